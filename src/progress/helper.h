/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The helper thread: at most one a process, makes progress while the application computes, asleep when nothing is pending.
 *
 *   idle      nothing pending: sleeps on the bell without limit
 *   standby   something is pending, but the application's own threads are at it: looks in after 0.5 ms, then less and less often
 *   on duty   something is pending, nobody waits and nobody has been here for 0.3 ms: passes; when they move nothing it announces
 *             itself and sleeps on the bell (peers ring it with their news), at most for a doubling delay
 *   attending streams of a GPU have started something: one pass after the other, until nothing has moved for 0.2 ms
 */
#ifndef OCCL_SRC_PROGRESS_HELPER_H
#define OCCL_SRC_PROGRESS_HELPER_H

#include <stddef.h>
#include <stdint.h>

#include "util/log.h"
#include "util/status.h"

typedef struct occl_helper occl_helper_t;

typedef struct occl_helper_ops {
    /* One bounded pass; whether anything moved. sure: also when another thread is at it, after that one. */
    int (*pass)(void *state, int sure);
    int (*pending)(void *state);           /* runs that are not over; no lock */
    int (*waiters)(void *state);           /* threads of the application inside a wait; no lock */
    uint32_t (*turns)(void *state);        /* changes with every pass that one of them makes; no lock */
    void (*announce)(void *state, int on); /* peers shall ring the bell */
    uint64_t (*upkeep)(void *state);       /* what has to be done a few times a second, pending runs or not; when again while
                                              nothing is pending, OCCL_INF: never */
    int (*soon)(void *state);              /* something is awaited that rings no bell: sleep shortly; no lock */
} occl_helper_ops_t;

occl_status_t occl_helper_create(const occl_helper_ops_t *ops, void *state, uint32_t *bell, const char *cpus, int avoid_cpu,
                                 const occl_logger_t *log, occl_helper_t **helper_p, char *err, size_t errlen);
/* Joins it. helper may be NULL. */
void occl_helper_destroy(occl_helper_t *helper);
/* Something is pending now. Cheap unless the helper sleeps for good; the caller has executed a fence_sys after its store of
 * the pending count. helper may be NULL. */
static inline void occl_helper_kick(occl_helper_t *helper);

/* A thread of the application has done waiting, and may compute now. helper may be NULL. */
static inline void occl_helper_resume(occl_helper_t *helper);

/* `soon` has become true: the caller has stored what it says, and executed a full fence. helper may be NULL. */
static inline void occl_helper_attend(occl_helper_t *helper);

struct occl_helper {
    uint32_t idle;   /* written by the helper: it sleeps without limit, or is about to */
    uint32_t dozing; /* the same: on standby for long. A hint: missed, it costs one nap */
    uint32_t napping; /* by the helper: asleep, but not on the bell; 0 from whoever wakes it */
    uint32_t stop;
    uint32_t *bell;
    uint64_t cpu_ns; /* its own processor time, for statistics */
};

void occl_helper_ring(occl_helper_t *helper);
void occl_helper_wake(occl_helper_t *helper);

static inline void occl_helper_kick(occl_helper_t *helper)
{
    /* The helper stores idle, fences, and looks at the pending count once more; we stored the count, fenced, and look at idle. */
    if (helper && __builtin_expect(__atomic_load_n(&helper->idle, __ATOMIC_RELAXED) != 0, 0))
        occl_helper_ring(helper);
}

static inline void occl_helper_resume(occl_helper_t *helper)
{
    if (helper && __builtin_expect(__atomic_load_n(&helper->dozing, __ATOMIC_RELAXED) != 0, 0))
        occl_helper_wake(helper);
}

static inline void occl_helper_attend(occl_helper_t *helper)
{
    occl_helper_kick(helper);
    /* It stores napping, fences, and asks `soon` once more before it sleeps on the word, which a wake-up changes. */
    if (helper && __atomic_load_n(&helper->napping, __ATOMIC_RELAXED) != 0)
        occl_helper_wake(helper);
}

#endif
