/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs and channels as the device sees them: what the host hands over, what a channel keeps, how they tell each other.
 *
 * Who writes what
 *   occl_dev_run     the host fills it before it submits (submission's release orders it) and writes `drop` later;
 *                    st[c] belongs to channel c; left, failed and parked are counters among the channels
 *   occl_queue       host -> channel 0 (the leader). One writer: the host, under its lock
 *   inbox            leader -> channel. One writer: the leader
 *   cq               channel -> host, one ring a channel, written by that channel only
 *
 * No word is written by both sides, and nothing but the counters among channels is a read-modify-write.
 */
#ifndef OCCL_KERNELS_CHAN_H
#define OCCL_KERNELS_CHAN_H

#include "occl_dev_atomic.h"
#include "occl_dev_link.h"
#include "occl_dev_plan.h"

/*
 * 1 where the processor cannot address what the channels work on: submissions, completions and the quit word then go through
 * a front in mapped memory (occl_dev_front.h), and sq, cq and quit below are not used.
 */
#ifndef OCCL_FRONT
#define OCCL_FRONT OCCL_CUDA
#endif

/*
 * Lanes of a block on CUDA, at most. Twice as many would have half the registers each, which the engine does not fit; what
 * counts for bandwidth is the product of lanes and what each keeps in flight.
 */
#define OCCL_LANES_MAX 256

#define OCCL_CHANNELS_MAX 32
#define OCCL_TABLE_MAX 64       /* runs that a channel holds at once; the rest wait in front */
#define OCCL_QUEUE_LEN 1024     /* submissions in flight, a power of two; the host never has more outstanding */

/* Where a run stands on one channel: all that a preemption saves. Written only by the channel that runs it. */
typedef struct occl_chan_state {
    uint64_t iter;
    uint32_t section, pc;
    uint32_t over;        /* this channel has nothing more to do for the run */
    uint32_t posted;      /* flags were posted since the last look: the host device then wakes sleeping peers */
    uint64_t stick_ns;    /* how long a fruitless wait may last before the channel takes the next run */
    uint64_t stuck_since; /* clock when it last moved */
} occl_chan_state_t;

typedef struct occl_dev_run {
    const occl_plan_t *plan;
    const occl_link_t *links;     /* [channel * nranks + peer] */
    unsigned char *send, *recv, *scratch;
    /* EXPOSED plans: addresses of the peers' buffers and how to reach them (0: as they stand; else occl_host_pull's via) */
    const uint64_t *xsend, *xrecv, *via;
    /* pool slots, when agreed at the gate: [channel * nranks + peer]; else 0 and the links' own slots serve */
    unsigned char *const *rxpool, *const *txpool;
    union {
        /* the host device: where peers sleep, to be woken after a post (occl_host_wake); 0 elsewhere */
        uint32_t *const *wake;
        /* OCCL_FRONT: number of (plan, links); a new one whenever anything in either has changed. 0: none */
        uint64_t serial;
    };
    uint32_t nwake, slot_bytes;
    uint16_t nslots;
    uint16_t words;               /* OCCL_FRONT: messages are data-with-flag words; all fit without credit, in one iteration */
    uint32_t priority;
    uint64_t run;                 /* n of (communicator, tag, n); starts at 1 */
    uint64_t sig;
    uint64_t chunk;               /* elements an iteration */
    uint32_t drop;                /* host: withdraw at the next blocked step */
    uint32_t left;                /* channels that have not reported; the last one tells the host */
    uint32_t parked, failed;      /* channels that parked it; the worst of OCCL_MISMATCH.. */
    uint64_t user;                /* the host's own */
    occl_chan_state_t st[OCCL_CHANNELS_MAX];
    uint64_t near[16];            /* OCCL_FRONT: xsend and xrecv of few ranks, as they came with the submission */
} occl_dev_run_t;

/* Submissions. Payload (the entry) first, then tail (release). The leader acquires tail. */
typedef struct occl_queue {
    uint64_t tail;                /* written by the producer */
    uint64_t pad0[7];
    uint64_t head;                /* written by the consumer, for the producer's information */
    uint64_t pad1[7];
    uint64_t entry[OCCL_QUEUE_LEN];  /* occl_dev_run_t * */
} occl_queue_t;

/* A completion entry: run address | what happened (runs are 64-byte aligned). */
enum { OCCL_CQ_PARKED = 8 };      /* or'ed to nothing: the run must be submitted again; else OCCL_DONE/MISMATCH/DROPPED/FAULT */
#define OCCL_CQ_MASK 63ull

typedef struct occl_chan_stats {  /* written by the channel (relaxed), read by anyone */
    uint64_t runs, preemptions, parks, polls, steps, quits;
} occl_chan_stats_t;

#if OCCL_CUDA
/* Nobody else reads it in place. */
OCCL_FN void occl_count(uint64_t *p, uint64_t by) { *p += by; }
#else
OCCL_FN void occl_count(uint64_t *p, uint64_t by) { occl_store_relaxed64(p, occl_load_relaxed64(p) + by); }
#endif

/* Thresholds, in time: the same numbers serve every GPU and server (OCCL's counts of polls did not). */
typedef struct occl_sched_conf {
    uint64_t stick_min_ns, stick_max_ns; /* bounds of the adaptive stickiness */
    uint64_t park_ns;                    /* a run that has not moved for so long makes room when others wait for it */
    uint64_t linger_ns;                  /* daemon: stay so long without progress, then quit */
    uint64_t residence_ns;               /* daemon: quit after so long even when busy */
    uint32_t min_polls;                  /* a deadline needs so many polls too: a block that was time-sliced out must not give up */
    uint32_t max_steps;                  /* steps of one run in one turn */
} occl_sched_conf_t;

typedef struct occl_chan {
    /* private to the channel; survives a quit. OCCL_FRONT: while the daemon runs it works on a copy in fast memory */
    uint32_t index, nchannels;
    uint32_t ntable;
    uint32_t narrow;                     /* OCCL_FRONT, leader: a run has come that needs more channels than this launch has */
    occl_dev_run_t *table[OCCL_TABLE_MAX];
    const void **srcs;                   /* [max ranks] pointers for the reduce of all */
    unsigned char *tile;                 /* host device: bounce buffer for memory of other processes */
    uint64_t tile_bytes;
    uint64_t tail_seen;                  /* leader: of the host's queue */
    uint64_t inbox_head;                 /* OCCL_FRONT: taken from the inbox */
    uint64_t reported;                   /* OCCL_FRONT: completions put into the front */
    struct occl_cache *cache;            /* OCCL_FRONT: the block's fast memory */
    occl_chan_stats_t stats;
    uint64_t *trace;                     /* of a build that traces (OCCL_TRACE): clock << 8 | where, traced of them */
    uint64_t traced;
    uint64_t pad[2];
    occl_queue_t inbox;                  /* from the leader; unused by the leader itself when it is alone */
    occl_queue_t cq;                     /* to the host */
} occl_chan_t;

/* Where each microsecond goes: only in a build that asks for it (test/gpu/engine trace). */
#if defined(OCCL_TRACING) && OCCL_CUDA
#define OCCL_TRACE_LEN 8192
#define OCCL_TRACE(l, ch, where)                                                                     \
    do {                                                                                             \
        if (occl_lane(l) == 0 && (ch)->trace)                                                        \
            (ch)->trace[(ch)->traced++ & (OCCL_TRACE_LEN - 1)] = (uint64_t)clock64() << 8 | (where); \
    } while (0)
#else
#define OCCL_TRACE(l, ch, where) ((void)0)
#endif

/* One device: the host's submission queue, the launch words, the channels. */
typedef struct occl_daemon {
    occl_queue_t sq;                     /* host -> leader */
    uint64_t stop;                       /* leader: launch number whose channels shall leave */
    uint64_t pad0[7];
    uint64_t quit;                       /* leader's last store of a launch: launch number << 32 | low half of the tail it saw */
    uint64_t pad1[7];
    /* from here on: what does not change while the daemon runs, or is the leader's alone */
    occl_sched_conf_t conf;
    uint32_t nchannels;
    uint32_t max_ranks;                  /* that the channels' pointer lists have room for; the host's */
    occl_chan_t *chan;                   /* [nchannels] */
    struct occl_front *front;            /* OCCL_FRONT: mapped host memory */
    uint64_t taken;                      /* OCCL_FRONT, leader: submissions taken from the front */
    struct occl_quick *quicks;           /* OCCL_FRONT, leader: [OCCL_QUICKS_KEPT], or 0; for when the cache has forgotten */
} occl_daemon_t;

#endif
