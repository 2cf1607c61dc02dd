/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleep on a shared word, between processes. The word may lie in an arena.
 *
 * The kernel compares the word and sleeps in one step, so a waker that stores first and wakes
 * then is never missed:
 *   sleeper  announce (store), fence_sys, look once more, occl_futex_wait(word, value seen)
 *   waker    store the news, fence_sys, look at the announcement, change word, occl_futex_wake
 */
#ifndef OCCL_SRC_UTIL_FUTEX_H
#define OCCL_SRC_UTIL_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word == expected, at most timeout_ns (UINT64_MAX: no limit). 0: woken, or
 * changed, or a signal: look again. ETIMEDOUT: the time has passed. */
static inline int occl_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
    struct timespec ts, *limit = NULL;

    if (timeout_ns != UINT64_MAX) {
        ts.tv_sec = (time_t)(timeout_ns / 1000000000u);
        ts.tv_nsec = (long)(timeout_ns % 1000000000u);
        limit = &ts;
    }
    /* not FUTEX_PRIVATE_FLAG: the word is shared between processes; the time is relative, of
     * CLOCK_MONOTONIC */
    if (syscall(SYS_futex, word, FUTEX_WAIT, expected, limit, NULL, 0) == -1 && errno == ETIMEDOUT)
        return ETIMEDOUT;
    return 0;
}

/* Wakes at most n sleepers (INT32_MAX: all). Returns how many. */
static inline int occl_futex_wake(uint32_t *word, int n)
{
    long woken = syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);

    return woken < 0 ? 0 : (int)woken;
}

#endif
