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

#define OCCL_STAGE_BYTES 16384 /* of a block: data of messages that came as words */
#define OCCL_SUB_WORDS 32      /* of 8 bytes of data */
#define OCCL_SUB_X 16          /* from here on: addresses of the peers' buffers, xsend then xrecv */
#define OCCL_SUB_RANKS 8       /* for so many ranks; more are read from mapped memory */
/*
 * Words 0 to 15 are those of occl_dev_run_t, in its order (plan .. chunk), but for
 *   word 0   the run's address in device memory | channels that have not finished it (6 bits; 0: withdraw the run) | the
 *            plan's channels (6 bits) | OCCL_SUB_FAR | OCCL_SUB_FRESH: it was not submitted before
 *   word 7   the plan (`via` is 0 on such a device)
 * A submission with no channels left and some of the plan's is a load: so many words (2) from mapped memory (1) to the address of
 * word 0, done when the next submission is looked at.
 * FAR: words 16 and 17 are the mapped address and number of the words that go to xsend on.
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
    /* Processor: this launch may not leave, since the next one could not be brought here without the driver; 0: none. The leader
       reads it when it would leave. */
    uint64_t stay;
    uint64_t pad2[15];
    occl_chan_stats_t stats[OCCL_CHANNELS_MAX]; /* as they were when the channel last left */
    uint64_t pad1[16 - 6 * OCCL_CHANNELS_MAX % 16];
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
        occl_store_release64(h + 2 * i, seq | (w & 0xffffffffull));
        occl_store_release64(h + 2 * i + 1, seq | w >> 32);
    }
    /* The ring is larger than the fastest caches: the next one's place is on its way when it is needed. */
    h = f->sub[number & (OCCL_QUEUE_LEN - 1)].half;
    for (i = 0; i < 2 * OCCL_SUB_WORDS; i += 8)
        __builtin_prefetch(h + i, 1);
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

/* Lane 0, rarely. */
OCCL_FN uint32_t occl_front_stay(const occl_daemon_t *d, uint64_t launch)
{
#if OCCL_FRONT
    return occl_load_relaxed64(&d->front->stay) == launch;
#else
    (void)d, (void)launch;
    return 0;
#endif
}

/*
 * A plan that fits the fast lane (occl_dev_quick.h), as what remains to be done when its run comes: everything that plan, program and links
 * say is in here.
 */
#define OCCL_QUICKS 32     /* plans that a block remembers, by serial; a power of two */
#define OCCL_QUICKS_KEPT 1024 /* and in device memory, from launch to launch; a power of two */
#define OCCL_QUICK_RANKS 8
typedef struct occl_quick {
    uint64_t serial;                  /* that was looked at; 0: none */
    uint64_t shape[3];                /* words 11, 12 and 15 that it was made for */
    uint32_t good, pc;                /* pc: where the general path goes on when the messages do not come in time */
    uint32_t words, bytes;            /* of each message */
    uint32_t nsend, nrecv, half;      /* half: bytes from the first half's slots to the second's */
    uint32_t me, rows;                /* fold: all `rows` rows of the stage, mine is number `me`; 0: no fold */
    uint32_t type, op, steps;
    uint32_t own, own_to;             /* operands, see occl_quick_at; own: OCCL_QUICK_NONE where there is no part of my own */
    uint32_t from[OCCL_QUICK_RANKS], to[OCCL_QUICK_RANKS];
    unsigned char *tx[OCCL_QUICK_RANKS], *rx[OCCL_QUICK_RANKS]; /* slot 0 of the first half */
} occl_quick_t;

#if OCCL_FRONT
/*
 * A block's fast memory (CUDA: shared memory, some 30 cycles away where device memory is 400). What is read again and again while
 * a run is worked on is here: its words, its state on this channel, the plan, this channel's program and links.
 */
#define OCCL_CACHE_STEPS 40
#define OCCL_CACHE_SECTIONS 8
#define OCCL_CACHE_RANKS 16
typedef struct occl_cache {
    occl_dev_run_t *owner;      /* whose run, state and plan are here, ready to be worked on; or 0 */
    occl_dev_run_t *raw;        /* whose words are in `run` as they were submitted; or 0 */
    uint64_t serial;            /* of plan, program and links */
    uint64_t first;             /* exchange between lanes */
    occl_dev_run_t run;         /* pointers lead to what follows, as far as that has room */
    occl_plan_t plan;
    occl_program_t prog;
    occl_section_t sections[OCCL_CACHE_SECTIONS];
    occl_step_t steps[OCCL_CACHE_STEPS];
    occl_link_t links[OCCL_CACHE_RANKS];
    const void *srcs[OCCL_CACHE_RANKS];
    const void *dsts[OCCL_CACHE_RANKS];
    uint64_t sub[4 * OCCL_SUB_WORDS]; /* leader: words of the submissions looked at last, */
    uint32_t seen[4];                 /* ... and whether each has begun to come */
    uint32_t luck, pad;               /* leader: the last run's peers came in time */
    occl_quick_t quick[OCCL_QUICKS];
    uint64_t stage[OCCL_STAGE_BYTES / 8]; /* data of messages that came as words */
} occl_cache_t;
/* Before a daemon's first pass, one lane. What a launch left behind in here is not kept. */
OCCL_FN void occl_cache_clear(occl_cache_t *k)
{
    uint32_t i;
    k->owner = k->raw = 0;
    k->serial = 0;
    k->luck = 1;
    OCCL_ROLLED
    for (i = 0; i < OCCL_QUICKS; i++)
        k->quick[i].serial = 0;
}

/* Where the block's cache is. On CUDA a place that the compiler knows: no pointer to hold, none to follow. */
#if OCCL_CUDA
OCCL_FN occl_cache_t *occl_cache_of(const occl_chan_t *ch)
{
    __shared__ __align__(16) occl_cache_t cache;
    (void)ch;
    return &cache;
}
#else
OCCL_FN occl_cache_t *occl_cache_of(const occl_chan_t *ch) { return ch->cache; }
#endif

OCCL_FN void occl_copy_words(occl_lanes_t l, void *to, const void *from, uint64_t bytes)
{
    uint64_t i;
    OCCL_ROLLED
    for (i = occl_lane(l); i < bytes / 8; i += occl_nlanes(l))
        ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
}

OCCL_FN uint32_t occl_front_word(const occl_sub_t *s, uint32_t i, uint32_t number, uint64_t *w)
{
    uint64_t lo, hi;
    occl_load_two_acquire(s->half + 2 * i, &lo, &hi); /* plan, links and the user's data are as they were at the submission */
    *w = (lo & 0xffffffffull) | hi << 32;
    return (uint32_t)(lo >> 32) == number && (uint32_t)(hi >> 32) == number;
}

/* Where word i of a submission stands in a run, in words; and what of word 0: the plan's old place gets 0. */
OCCL_FN uint32_t occl_front_place(uint32_t i)
{
    uint32_t at = i < OCCL_SUB_X ? i : i - OCCL_SUB_X + (uint32_t)(__builtin_offsetof(occl_dev_run_t, near) / 8);
    at = i == OCCL_SUB_PLAN ? 0 : at;
    return i == 0 ? OCCL_SUB_PLAN : at;
}

/*
 * Leader, all lanes: looks at the next submissions, one for each 32 lanes. Its own lanes keep a submission's words in *w: the first
 * group those of `taken` + 1, the next those of `taken` + 2.
 */
enum { OCCL_SUB_AT_ONCE = 4 }; /* what the cache has room for */
OCCL_FN uint32_t occl_front_groups(occl_lanes_t l)
{
    uint32_t g = occl_nlanes(l) / OCCL_SUB_WORDS;
    return g > OCCL_SUB_AT_ONCE ? OCCL_SUB_AT_ONCE : g ? g : 1;
}
OCCL_FN const occl_sub_t *occl_front_sub(const occl_daemon_t *d, uint64_t number)
{
    return &d->front->sub[(number - 1) & (OCCL_QUEUE_LEN - 1)];
}
OCCL_FN uint32_t occl_front_look(occl_lanes_t l, occl_daemon_t *d, uint64_t taken, uint64_t *w, occl_cache_t *k)
{
    uint32_t g = occl_lane(l) / OCCL_SUB_WORDS, i, ok = 1;
    *w = 0;
    if (g >= occl_front_groups(l))
        return 0;
    OCCL_ROLLED
    for (i = occl_lane(l) % OCCL_SUB_WORDS; i < OCCL_SUB_WORDS; i += occl_nlanes(l)) {
        ok &= occl_front_word(occl_front_sub(d, taken + 1 + g), i, (uint32_t)(taken + 1 + g), w);
        k->sub[g * OCCL_SUB_WORDS + i] = *w;
        if (i == 0)
            k->seen[g] = ok;
    }
    return ok;
}

/*
 * All lanes: group g's submission `number` is complete, w as above. Writes the run, to its place and to the cache, and returns word
 * 0, uniform. *run_p is the run. A barrier is due before another lane's words are used.
 */
OCCL_FN uint64_t occl_front_take(occl_lanes_t l, occl_daemon_t *d, occl_chan_t *ch, uint32_t g, uint64_t number, uint64_t w,
                                 occl_dev_run_t **run_p)
{
    occl_cache_t *cache = occl_cache_of(ch);
    occl_dev_run_t *r;
    uint64_t head;
    uint32_t lane = occl_lane(l) - g * OCCL_SUB_WORDS, i, n = occl_nlanes(l); /* other groups: beyond all bounds below */
    if (lane == 0) {
        if (n < OCCL_SUB_WORDS)
            (void)occl_front_word(occl_front_sub(d, number), 0, (uint32_t)number, &w);
        cache->first = w;
        cache->owner = 0;
        cache->raw = 0;
        d->taken = number;
    }
    occl_sync(l);
    head = cache->first;
    r = *run_p = (occl_dev_run_t *)(uintptr_t)(head & OCCL_SUB_ADDRESS);
    if (!(head & OCCL_SUB_LEFT)) {
        const uint64_t *from;
        uint64_t words, k;
        if (!(head >> OCCL_SUB_CHANNELS_AT & 63)) {
            if (lane == 0)
                occl_store_relaxed32(&r->drop, 1);
            return head;
        }
        OCCL_ROLLED
        for (i = lane; i < 3; i += n) {
            if (n < OCCL_SUB_WORDS)
                (void)occl_front_word(occl_front_sub(d, number), i, (uint32_t)number, &w);
            cache->run.near[i] = w;
        }
        occl_sync(l);
        from = (const uint64_t *)(uintptr_t)cache->run.near[1];
        words = cache->run.near[2];
        OCCL_ROLLED
        for (k = occl_lane(l); k < words; k += n)
            ((uint64_t *)r)[k] = occl_load_relaxed64(from + k);
        return head;
    }
    OCCL_ROLLED
    for (i = lane; i < OCCL_SUB_WORDS; i += n) {
        if (n < OCCL_SUB_WORDS)
            (void)occl_front_word(occl_front_sub(d, number), i, (uint32_t)number, &w);
        w = i ? w : 0;
        ((uint64_t *)r)[occl_front_place(i)] = w;
        ((uint64_t *)&cache->run)[occl_front_place(i)] = w;
    }
    if (lane == 0) {
        r->drop = 0;
        r->left = (uint32_t)(head & OCCL_SUB_LEFT);
        if (!(head & OCCL_SUB_FRESH)) {
            /* Parked, and here again: those that were through with it are not asked again. */
            OCCL_ROLLED
            for (i = 0; i < (uint32_t)(head >> OCCL_SUB_CHANNELS_AT & 63); i++)
                r->left -= r->st[i].over != 0;
        }
        r->parked = r->failed = 0;
        if (!(head & OCCL_SUB_FAR) && (head & OCCL_SUB_FRESH))
            cache->raw = r;
    }
    if (head & OCCL_SUB_FRESH) {
        OCCL_ROLLED
        for (i = occl_lane(l); i < (uint32_t)(head >> OCCL_SUB_CHANNELS_AT & 63) * (sizeof(r->st[0]) / 8); i += n)
            ((uint64_t *)r->st)[i] = 0;
        OCCL_ROLLED
        for (i = occl_lane(l); i < sizeof(r->st[0]) / 8; i += n)
            ((uint64_t *)&cache->run.st[0])[i] = 0;
    }
    if (head & OCCL_SUB_FAR) {
        const uint64_t *from;
        uint64_t words, k;
        occl_sync(l);
        from = (const uint64_t *)(uintptr_t)cache->run.near[0];
        words = cache->run.near[1];
        OCCL_ROLLED
        for (k = occl_lane(l); k < words; k += n)
            ((uint64_t *)(uintptr_t)cache->run.xsend)[k] = occl_load_relaxed64(from + k);
    }
    return head;
}

/* Lane 0 of the channel that is last: the run is over, or parked. */
OCCL_FN void occl_front_report(occl_daemon_t *d, occl_chan_t *ch, occl_dev_run_t *r, uint64_t what)
{
    uint64_t number = ++ch->reported;
    OCCL_TRACE((occl_lanes_t){0}, ch, 9);
    occl_fence_release(); /* the outputs of all channels, before the word that says so */
    OCCL_TRACE((occl_lanes_t){0}, ch, 10);
    occl_store_two((uint64_t *)&d->front->done[ch->index][(number - 1) & (OCCL_QUEUE_LEN - 1)], (uint64_t)(uintptr_t)r | what,
                   number);
}

/* All lanes: the run as it is worked on, in the cache. */
OCCL_FN occl_dev_run_t *occl_cache_bring(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r)
{
    occl_cache_t *k = occl_cache_of(ch);
    occl_dev_run_t *w = &k->run;
    uint32_t c = ch->index, n;
    if (k->owner == r)
        return w;
    occl_sync(l); /* all lanes have looked, and are through with what is here */
    if (k->raw != r) {
        occl_copy_words(l, w, r, __builtin_offsetof(occl_dev_run_t, drop));
        occl_copy_words(l, w->near, r->near, sizeof(w->near));
        occl_copy_words(l, &w->st[c], &r->st[c], sizeof(w->st[c]));
        occl_sync(l);
    }
    if (!w->serial || w->serial != k->serial) {
        const occl_plan_t *plan = w->plan;
        occl_copy_words(l, &k->plan, plan, sizeof(k->plan));
        occl_copy_words(l, &k->prog, (const occl_program_t *)(plan + 1) + c, sizeof(k->prog)); /* a plan is one block */
        occl_sync(l);
        n = k->plan.nranks;
        if (k->prog.nsections <= OCCL_CACHE_SECTIONS)
            occl_copy_words(l, k->sections, k->prog.sections, k->prog.nsections * sizeof(occl_section_t));
        if (k->prog.nsteps <= OCCL_CACHE_STEPS)
            occl_copy_words(l, k->steps, k->prog.steps, k->prog.nsteps * sizeof(occl_step_t));
        if (n <= OCCL_CACHE_RANKS)
            occl_copy_words(l, k->links, w->links + c * n, n * sizeof(occl_link_t));
        occl_sync(l);
        if (occl_lane(l) == 0) {
            k->serial = w->serial;
            k->plan.prog = &k->prog - c;
            if (k->prog.nsections <= OCCL_CACHE_SECTIONS)
                k->prog.sections = k->sections;
            if (k->prog.nsteps <= OCCL_CACHE_STEPS)
                k->prog.steps = k->steps;
        }
        occl_sync(l);
    }
    n = k->plan.nranks;
    if (occl_lane(l) == 0) {
        w->plan = &k->plan;
        if (n <= OCCL_CACHE_RANKS)
            w->links = k->links - (uint64_t)c * n;
        if (w->xsend == r->near) {
            w->xsend = w->near;
            w->xrecv = w->near + n;
        }
        k->raw = 0;
        k->owner = r;
    }
    occl_sync(l);
    return w;
}

/* Lane 0. What a turn has changed. */
OCCL_FN void occl_cache_keep(occl_chan_t *ch, occl_dev_run_t *r, const occl_dev_run_t *w) { r->st[ch->index] = w->st[ch->index]; }
/* The plan of a run that is worked on: beside it in the cache. */
OCCL_FN const occl_plan_t *occl_plan_of(const occl_dev_run_t *r)
{
    return (const occl_plan_t *)(const void *)((const char *)r - __builtin_offsetof(occl_cache_t, run) +
                                               __builtin_offsetof(occl_cache_t, plan));
}
#else
OCCL_FN const occl_plan_t *occl_plan_of(const occl_dev_run_t *r) { return r->plan; }
#endif

#endif
