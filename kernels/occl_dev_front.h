/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The front: mapped host memory through which a processor and a device that has memory of its own talk. The processor cannot
 * write to the device's memory, and each access of the device to the processor's costs most of a microsecond. So
 *
 *   - a submission carries the whole run, and every word of it its own sequence number: the leader's lanes poll all of it in
 *     one access each, and when all are there they are the run (no tail, then entry, then record: one round trip, not three);
 *   - a completion is one 16-byte store, {run | what, number}: no tail either;
 *   - the device keeps its own counters in its own memory and never reads what it wrote here.
 *
 * One writer a word: the processor (under its lock) writes `sub`, a channel its `done`, the leader `quit`.
 *
 * Words of a submission are 4 bytes of data and 4 of number in 8, so that no more than 8 bytes need be one access for
 * processor, bus or device.
 */
#ifndef OCCL_KERNELS_FRONT_H
#define OCCL_KERNELS_FRONT_H

#include "occl_dev_chan.h"

#define OCCL_SUB_WORDS 32      /* of 8 bytes of data */
#define OCCL_SUB_X 16          /* from here on: addresses of the peers' buffers, xsend then xrecv */
#define OCCL_SUB_RANKS 8       /* for so many ranks; more are read from mapped memory */
/*
 * Words 0 to 15 are those of occl_dev_run_t, in its order (plan .. chunk), but for
 *   word 0   the run's address in device memory | channels that have not finished it (6 bits; 0: withdraw the run) | the
 *            plan's channels (6 bits) | OCCL_SUB_FAR | OCCL_SUB_FRESH: it was not submitted before
 *   word 7   the plan (`via` is 0 on such a device)
 * and word 10 is 0 (`wake`). FAR: words 16 and 17 are the mapped address and number of the words that go to xsend on.
 */
#define OCCL_SUB_LEFT 63ull
#define OCCL_SUB_FRESH (1ull << 63)
#define OCCL_SUB_FAR (1ull << 62)
#define OCCL_SUB_CHANNELS_AT 56
#define OCCL_SUB_ADDRESS (((1ull << OCCL_SUB_CHANNELS_AT) - 1) & ~OCCL_SUB_LEFT)
#define OCCL_SUB_PLAN 7

typedef struct occl_sub {
    uint64_t half[2 * OCCL_SUB_WORDS]; /* number << 32 | 4 bytes of data, the lower ones first */
} occl_sub_t;

typedef struct occl_done {
    uint64_t what;    /* run's address | OCCL_DONE, OCCL_CQ_PARKED, ... */
    uint64_t number;  /* of this channel's completions, from 1 */
} occl_done_t;

typedef struct occl_front {
    uint64_t quit;    /* leader's last store of a launch: launch << 32 | low half of the submissions taken */
    uint64_t pad0[15];
    occl_sub_t sub[OCCL_QUEUE_LEN];
    occl_done_t done[OCCL_CHANNELS_MAX][OCCL_QUEUE_LEN];
} occl_front_t;

OCCL_ASSERT_STATIC(sizeof(occl_sub_t) == 512, a_warp_reads_a_submission_in_one_access);
OCCL_ASSERT_STATIC(__builtin_offsetof(occl_dev_run_t, chunk) == 15 * 8 && __builtin_offsetof(occl_dev_run_t, via) == 7 * 8 &&
                       __builtin_offsetof(occl_dev_run_t, wake) == 10 * 8 && __builtin_offsetof(occl_dev_run_t, drop) == 16 * 8,
                   words_of_a_submission_are_words_of_a_run);

#if !OCCL_CUDA
/* Processor. Writes submission `number` (from 1). Its place is free: the device has taken number - OCCL_QUEUE_LEN. */
OCCL_FN void occl_front_put(occl_front_t *f, uint64_t number, const uint64_t *word, uint32_t words)
{
    uint64_t *h = f->sub[(number - 1) & (OCCL_QUEUE_LEN - 1)].half, seq = number << 32;
    uint32_t i;
    for (i = 0; i < OCCL_SUB_WORDS; i++) {
        uint64_t w = i < words ? word[i] : 0;
        occl_store_relaxed64(h + 2 * i, seq | (w & 0xffffffffull));
        occl_store_relaxed64(h + 2 * i + 1, seq | w >> 32);
    }
}
/* Completion `number` of channel c: 1 when it is there. Its acquire makes the run's outputs visible. */
OCCL_FN uint32_t occl_front_get(occl_front_t *f, uint32_t c, uint64_t number, uint64_t *what)
{
    occl_done_t *d = &f->done[c][(number - 1) & (OCCL_QUEUE_LEN - 1)];
    if (occl_load_acquire64(&d->number) != number)
        return 0;
    *what = occl_load_relaxed64(&d->what);
    return 1;
}
#endif

#if OCCL_FRONT
OCCL_FN uint32_t occl_front_word(const occl_sub_t *s, uint32_t i, uint32_t number, uint64_t *w)
{
    uint64_t lo, hi;
    occl_load_two(s->half + 2 * i, &lo, &hi);
    *w = (lo & 0xffffffffull) | hi << 32;
    return (uint32_t)(lo >> 32) == number && (uint32_t)(hi >> 32) == number;
}

/*
 * Leader, all lanes: takes the next submission, if it is there, and writes the run. Returns word 0, uniform; 0 when there is
 * none. *run_p is the run; its fields are written by this block's lanes and seen by them after the next occl_sync.
 */
OCCL_FN uint64_t occl_front_take(occl_lanes_t l, occl_daemon_t *d, occl_dev_run_t **run_p)
{
    uint64_t number = d->taken + 1, w = 0, head, *to;
    const occl_sub_t *s = &d->front->sub[(number - 1) & (OCCL_QUEUE_LEN - 1)];
    uint32_t i, ok = 1, n = occl_nlanes(l);
    for (i = occl_lane(l); i < OCCL_SUB_WORDS; i += n)
        ok &= occl_front_word(s, i, (uint32_t)number, &w);
    if (!occl_all(l, ok))
        return 0;
    if (n < OCCL_SUB_WORDS && occl_lane(l) == 0)
        (void)occl_front_word(s, 0, (uint32_t)number, &w);
    head = occl_uniform(l, (uint32_t)w);
    head |= (uint64_t)occl_uniform(l, (uint32_t)(w >> 32)) << 32;
    *run_p = (occl_dev_run_t *)(uintptr_t)(head & OCCL_SUB_ADDRESS);
    if (occl_lane(l) == 0)
        d->taken = number; /* all lanes have read it before the vote */
    to = (uint64_t *)*run_p;
    if (!(head & OCCL_SUB_LEFT)) {
        if (occl_lane(l) == 0)
            occl_store_relaxed32(&(*run_p)->drop, 1);
        return head;
    }
    for (i = occl_lane(l); i < OCCL_SUB_WORDS; i += n) {
        if (n < OCCL_SUB_WORDS)
            (void)occl_front_word(s, i, (uint32_t)number, &w);
        if (i == 0) {
            to[OCCL_SUB_PLAN] = 0;
            (*run_p)->drop = 0;
            (*run_p)->left = (uint32_t)(head & OCCL_SUB_LEFT);
            (*run_p)->parked = (*run_p)->failed = 0;
        } else if (i == OCCL_SUB_PLAN) {
            to[0] = w;
        } else if (i < OCCL_SUB_X) {
            to[i] = w;
        } else {
            (*run_p)->near[i - OCCL_SUB_X] = w;
        }
    }
    if (head & OCCL_SUB_FRESH)
        for (i = occl_lane(l); i < sizeof((*run_p)->st) / 8; i += n)
            ((uint64_t *)(*run_p)->st)[i] = 0;
    if (head & OCCL_SUB_FAR) {
        const uint64_t *from;
        uint64_t words;
        occl_sync(l);
        from = (const uint64_t *)(uintptr_t)(*run_p)->near[0];
        words = (*run_p)->near[1];
        for (w = occl_lane(l); w < words; w += n)
            ((uint64_t *)(uintptr_t)(*run_p)->xsend)[w] = occl_load_relaxed64(from + w);
    }
    return head;
}

/* Lane 0 of the channel that is last: the run is over, or parked. */
OCCL_FN void occl_front_report(occl_daemon_t *d, occl_chan_t *ch, occl_dev_run_t *r, uint64_t what)
{
    uint64_t number = ++ch->reported;
    occl_fence_release(); /* the outputs of all channels, before the word that says so */
    occl_store_two((uint64_t *)&d->front->done[ch->index][(number - 1) & (OCCL_QUEUE_LEN - 1)], (uint64_t)(uintptr_t)r | what,
                   number);
}
#endif

#endif
