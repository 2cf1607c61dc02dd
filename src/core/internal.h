/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core's own structures: what is shared with peers, what is private, who writes what. Included by src/core only.
 *
 * One lock a context (occl_ctx.lock) guards everything private. It is held for bounded times: never across a wait, a system
 * call that waits, or user code. Completion callbacks are collected under it and called after it is released (occl_ctx_unlock).
 */
#ifndef OCCL_SRC_CORE_INTERNAL_H
#define OCCL_SRC_CORE_INTERNAL_H

#include <stdarg.h>
#include <string.h>

#include "core/core.h"
#include "device/device.h"
#include "plan/select.h"
#include "progress/helper.h"
#include "transport/arena.h"
#include "transport/cma.h"
#include "util/futex.h"
#include "util/hash.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/point.h"
#include "util/strbuf.h"

#define OCCL_LIKELY(x) __builtin_expect(!!(x), 1)
#define OCCL_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* --- shared memory: the board ------------------------------------------------------------------------------------- */

/*
 * One a process, in its arena: how to wake it. `sleeping` is written by the owner (a thread that is about to sleep, counted
 * under the context's lock); `bell` by whoever wakes it (processors only, so a read-modify-write is allowed).
 */
typedef struct occl_sleeper {
    uint32_t sleeping; /* written by the owner; occl_dev_run_t.wake points here */
    uint32_t bell;     /* futex */
    uint32_t pad[14];
} occl_sleeper_t;

/*
 * Readiness record of run n: slot n & 1 of its tag block. The owner fills the fields, then releases `word`. A reader acquires word;
 * if it says n the fields are n's.
 *
 * Why two are enough: I write record n over record n-2. I do that when I have finished n-1, so I have seen the start of n-1 of
 * every member, and whoever starts n-1 has finished n-2 and will not read its records again. A run that fails keeps this: it may
 * be over for the user at once, but the next run of the tag is not started before every member has started this one (RUN_DRAIN).
 */
enum {
    REC_READY = 1,
    REC_ERROR = 2,       /* the start has failed */
    REC_WITHDRAWING = 3, /* no start for whoever has not opened; becomes WITHDRAWN or READY again (occl_tag_withdraw) */
    REC_WITHDRAWN = 4,   /* no start, until the same n is started again */
    REC_DEAD = 5,        /* the owner has failed or finalized in the middle of it */
    REC_DIFFERS = 6      /* started; failed by the owner, since another one's start differed (which may be withdrawn by now) */
};
/* Does the word say that run n has been started? */
static inline int occl_rec_started(uint64_t word, uint64_t n)
{
    uint32_t state = (uint32_t)(word & 0xff);
    return word >> 16 == n && (state == REC_READY || state == REC_ERROR || state == REC_DIFFERS);
}
/* LONG: nothing here speaks against long steps (occl_long_chunk_bytes); HIDDEN: a buffer that peers cannot reach;
 * NEW: one that they may not be able to map, so they tell (occl_record_t.mapped) */
enum { REC_POOL = 1, REC_LONG = 2, REC_HIDDEN = 4, REC_NEW = 8, REC_SLOTS = 16 /* an exchange that must go through slots */ };
typedef struct occl_record {
    uint64_t word; /* n << 16 | withdrawals of n so far << 8 | REC_* */
    uint64_t sig;  /* hash of the fields below, up to count */
    uint32_t kind, type, op;
    int32_t root;
    uint64_t count;
    uint64_t send, recv; /* addresses in the owner's address space; far device: offsets in the exports below */
    uint32_t flags;
    uint32_t status;     /* REC_ERROR: why */
    uint64_t send_number, recv_number; /* far device: of the owner's exports; 0: no buffer */
    /* exchanges */
    uint64_t balance; /* of what it sends and expects (occl_table_t): all members' add up to 0 */
    uint64_t moved;   /* bytes it sends to others, and in how many blocks */
    uint64_t nmoved;
    uint64_t table;   /* offset of an occl_table_t in the owner's arena; 0: none */
    uint64_t mapped; /* n << 1 | whether the owner could map all the others' buffers; written later, when some record is NEW */
    uint64_t pad;
} occl_record_t;
enum { REC_WORDS = 14, REC_MAPPED = 14 }; /* of 64 bits, written with the record; the word that comes later */

/*
 * What a record of an exchange cannot hold: the owner's blocks. One for each of the two records of a tag, made when first needed and
 * written under the same rule. e[0 .. nsend) is what it sends, e[cap .. cap + nrecv) what it expects.
 *
 * Balance. A rank adds up a hash of (from, to, which of the blocks between the two, bytes, type) of every block that it sends, and takes
 * away the same of every block that it expects. So the sum over all members is 0 when every block has its other half: each
 * member sees that all agree by n additions, though it knows nothing about the others' blocks.
 */
typedef struct occl_table {
    uint32_t cap, nsend, nrecv, pad;
    occl_block_t e[];
} occl_table_t;
#define WIRE_IN_PLACE 0x10000u /* or-ed to kind: in place on this rank, where all must agree */
#define WIRE_OF_USER 0x20000u  /* the same: a reduction of the layer above (occl_coll_args_t.as) */
#define WIRE_KIND 0xffffu

/* A tag of one rank, in its arena. mbox[channel * nmembers + member]: offset of the mailbox that this member writes to, 0
 * while there is none; the owner releases it once the mailbox is zeroed. */
typedef struct occl_tagblk {
    uint64_t key;
    uint64_t pad[7];
    occl_record_t rec[2];
    uint64_t mbox[];
} occl_tagblk_t;

/* Directory of a rank's tags on one communicator: open addressing, only grows, entries never move within one table. The
 * owner writes `off`, then releases `key`. A full table is replaced by a larger one; the old one stays readable. */
typedef struct occl_direntry {
    uint64_t key; /* key + 1; 0: empty */
    uint64_t off;
} occl_direntry_t;
typedef struct occl_dirtable {
    uint64_t mask;
    uint64_t old, old_bytes; /* the owner's: the table that this one replaces */
    uint64_t pad[5];
    occl_direntry_t e[];
} occl_dirtable_t;

/* Keys of the last records published, so that peers need not look at every pending tag. The owner stores the entry, then
 * releases head. A reader that fell behind by more than the ring looks at all its active tags instead. */
#define OCCL_NEWS_LEN 256
#define OCCL_LOST_LEN 63
enum { PEER_NONE = 0, PEER_ATTACHED = 1, PEER_DETACHED = 2, PEER_GONE = 3 };
/* A member's standing, which the others read even when it has gone and its block with it. So it lives in a cell of its own that is
 * only ever used again as such, with the next generation: who finds another one than it was told at attach knows. */
typedef struct occl_cell {
    uint64_t word; /* generation << 2 | PEER_*; release */
    uint64_t pad[7];
} occl_cell_t;
typedef struct occl_commblk {
    uint64_t dir;   /* offset of the directory's current table; release */
    uint64_t pad1[7];
    uint64_t head;  /* release */
    uint64_t pad2[7];
    uint64_t news[OCCL_NEWS_LEN];
    /* Tags that had a start here which nobody could be told of, for want of memory for the tag's block: lost for good. The owner
     * stores the key, then releases nlost; more than fit means all tags that have no block. */
    uint64_t nlost;
    uint64_t lost[OCCL_LOST_LEN];
} occl_commblk_t;

/* --- private ------------------------------------------------------------------------------------------------------ */

typedef struct occl_tag occl_tag_t;

enum { OCCL_FAR_MAX = 16 };

struct occl_ctx {
    occl_lock_t lock;
    uint32_t lock_wanted;        /* threads that found it taken; relaxed, a hint */
    occl_env_t env;
    occl_logger_t log;
    occl_arena_t *arena;
    int threads_are_ranks;
    int ncpus;
    int oversubscribed;          /* more ranks of a communicator on this node than processors: yield early */
    uint64_t sleeper_off;
    occl_sleeper_t *sleeper;
    uint32_t sleepers;           /* threads behind sleeper->sleeping */
    occl_device_t *dev;          /* the host's, or the emulated one */
    occl_device_t *far[OCCL_FAR_MAX]; /* devices with memory of their own; made by the first attach that wants one */
    uint32_t nfar;               /* written under the lock, only grows */
    occl_lock_t far_lock;        /* who makes one; taken before the lock */
    occl_list_t comms;           /* occl_comm_t.in_ctx, all, also detached ones with pending runs */
    occl_list_t active;          /* occl_comm_t.in_active: with pending runs */
    occl_list_t unchecked;       /* occl_tag_t.in_unchecked */
    uint32_t streamed;           /* runs that CUDA streams have started or wait for, not over; also read without the lock */
    occl_list_t bells;           /* occl_run_t.in_bells: enqueued, and their streams have not come to them yet */
    occl_list_t queues;          /* occl_hqueue_t.in_ctx */
    int queues_kicked;           /* one of them may go on */
    occl_list_t called;          /* occl_run_t.in_called: over, callback not yet called; or RUN_COPY; or staged == 1 */
    occl_list_t deferred;        /* the same, RUN_COPY, that the helper has left to the application's threads */
    uint32_t pending;            /* runs that are not over; also read without the lock (relaxed) */
    uint32_t waiters;            /* threads in a wait: the helper keeps out of their way */
    uint32_t turns;              /* passes of the application's threads: out of the way of those, too, that come again and again */
    uint32_t idle_passes, busy_passes;
    uint64_t pool_used, pool_peak;
    uint64_t *cells;             /* [ncells] offsets of occl_cell_t that are free */
    uint32_t ncells, cells_cap;
    occl_list_t pool_free;       /* pool regions kept for the next run */
    occl_hash_t given;           /* what occl_mem_alloc gave: address -> its device, or this context for the host's */
    uint64_t checked_peers_at;
    occl_helper_t *helper;
    uint64_t n_starts, n_gates, n_gated, n_eager, n_mismatch, n_withdrawn, n_failed, n_pool, n_hidden, n_passes, n_sleeps;
    void (*wait_hook)(void *);   /* the layer above makes progress of its own; never called by the helper */
    void *wait_hook_state;
    int closing;
    int sweep;                   /* a communicator has lost its last reference: see whether it can go, when the lock is released */
};

typedef struct occl_member {     /* a rank of a communicator, seen from here */
    occl_peer_t *map;
    unsigned char *base;         /* its arena */
    occl_far_t *far;             /* its memory on the device; NULL where that is the arena */
    unsigned char *dbase;        /* what links are offsets from: base, or far's */
    occl_commblk_t *blk;
    occl_cell_t *cell;
    uint64_t gen;                /* of the cell, as long as it is this communicator's */
    occl_sleeper_t *sleeper;
    uint64_t cursor;             /* how far its news are read */
    uint64_t via;
    occl_arena_desc_t desc;
    char name[96];
    int dead;                    /* found gone; never comes back */
} occl_member_t;

struct occl_comm {
    occl_ctx_t *ctx;
    occl_device_t *dev;          /* agreed */
    occl_list_t in_ctx, in_active;
    int rank, size;
    int refs;                    /* attach, every coll and every run */
    int detached;
    int unmapped;
    char name[64];
    uint64_t blk_off;
    occl_commblk_t *blk;
    uint64_t cell_off, gen;
    occl_cell_t *cell;
    uint64_t dir_off, dir_count, dir_bytes;
    occl_member_t *member;
    uint64_t *via;               /* [size], for EXPOSED runs */
    occl_hash_t tags;            /* key -> occl_tag_t */
    occl_list_t active_tags;     /* occl_tag_t.in_active: a run is pending */
    occl_hash_t plans;           /* signature + in_place + blocks -> occl_cached_plan_t */
    uint64_t serials;            /* occl_coll_t.serial, given so far */
    int exposed;                 /* agreed: members reach each other's buffers; far: OCCL_EXPOSE_* */
    uint64_t eager_max, direct_min, chunk;
    uint32_t nchannels;
    uint32_t slot_channels;      /* of those, that have slots: the others' mailboxes are flags only */
    occl_geometry_t geo, pool_geo;
    char algo[OCCL_ENV_STRING];
    int priority;
    uint64_t n_starts, n_mismatch, n_colls, tag_bytes, tag_bytes_max;
    occl_status_t enqueue_error; /* relaxed; of the first enqueued run that failed since it was last asked for */
    char enqueue_text[512];
    uint64_t pending;            /* runs that are not over */
    uint64_t live;               /* runs that still hold a place in a tag, drained ones too */
};

/* Plans are shared by all colls with the same arguments on a communicator. */
typedef struct occl_cached_plan {
    uint64_t key;
    occl_plan_args_t args;       /* compared whole: the key may collide; blocks point to the plan's own */
    occl_block_t *blocks;
    occl_plan_t *plan;
    int hidden;                  /* chosen for buffers that peers cannot reach */
    int gated;
    int words;                   /* far: messages are data-with-flag words */
    int refs;
} occl_cached_plan_t;

/* A plan with a tag's links, on a far device. */
typedef struct occl_binding {
    occl_cached_plan_t *cp;      /* referenced */
    occl_bound_t *bound;
    uint32_t users;              /* runs */
} occl_binding_t;
enum { OCCL_BINDINGS = 8 };      /* kept for a tag, more only while in use */
enum { OCCL_CONFIRMED = 8 };

struct occl_tag {
    occl_comm_t *comm;
    uint64_t key;
    occl_list_t in_active;
    occl_list_t queue;           /* occl_run_t.in_tag, in start order; only the head is active */
    uint32_t n, me;              /* members, my index */
    int32_t *member;             /* [n] ranks of the communicator */
    uint64_t last_n;             /* of the last start */
    uint64_t table_off[2], table_bytes[2]; /* occl_table_t */
    uint64_t table_of[2];        /* coll whose blocks it has: occl_coll_t.serial */
    occl_list_t old_tables;      /* outgrown: somebody may still read them, for a text */
    uint64_t block_off, bytes;
    occl_tagblk_t *blk;
    occl_tagblk_t **pblk;        /* [n] the members' blocks; NULL until found */
    occl_link_t *links;          /* [channels * n] */
    uint64_t *seen;              /* [n] last run whose record was read */
    uint64_t *pword, *psig;      /* [n] what it said */
    uint32_t attempt;            /* withdrawals so far: makes the words of two tries at one n differ */
    occl_list_t in_unchecked;    /* the head went to the device before the members' records were looked at */
    occl_list_t self_sends, self_recvs; /* messages to oneself: n == 1 */
    uint32_t nseen;              /* members (others) whose record of the head's n was seen */
    uint32_t **wake;             /* [n - 1] the others' sleepers */
    uint64_t *via;               /* [n] */
    occl_binding_t **bindings;   /* far: [nbindings] */
    uint32_t nbindings, bindings_cap;
    uint64_t confirmed[OCCL_CONFIRMED]; /* far: numbers of exports of mine that all members have mapped; the last ones, round */
    uint32_t nconfirmed;
    occl_status_t dead;          /* a member is gone: every further run fails like this */
    char why_dead[160];
};

/*
 * A run's states.
 *
 *   QUEUED   an earlier run of the tag is not finished
 *   GATE     record published; waits for the members' records
 *   ROOM     ready; the device's queue is full
 *   DEVICE   handed over
 *   VERIFY   outputs are written; not all members' signatures have been seen
 *   COPY     the same, but into a bounce buffer; whoever releases the lock next copies it (occl_ctx_unlock)
 *   DRAIN    over for the user (failed); holds the tag until all members have started it
 *   OVER     out of the tag's queue
 *
 *   QUEUED -> GATE            the run before has left the queue              occl_tag_activate
 *   GATE -> DEVICE | ROOM     all members ready, or not gated                 occl_run_submit
 *   ROOM -> DEVICE            a place is free                                 progress
 *   DEVICE -> GATE            parked by a channel                             occl_device_event
 *   DEVICE -> VERIFY | OVER   completed                                       occl_device_event
 *   any -> DRAIN | OVER       failed                                          occl_run_finish
 *   VERIFY, DRAIN -> OVER     the last member's record was seen               occl_tag_check
 */
typedef enum { RUN_QUEUED, RUN_GATE, RUN_ROOM, RUN_DEVICE, RUN_VERIFY, RUN_COPY, RUN_DRAIN, RUN_OVER } occl_run_state_t;

struct occl_run {
    occl_dev_run_t dev;          /* first: the device hands back its address */
    occl_list_t in_tag, in_room, in_called;
    occl_tag_t *tag;
    occl_comm_t *comm;
    occl_coll_t *coll;           /* referenced while the run lives; NULL for a failed start */
    occl_cached_plan_t *cp;      /* referenced */
    occl_run_state_t state;
    uint64_t n;
    int gated, embedded, refs;
    uint32_t over;               /* release; read without the lock */
    occl_status_t status;        /* outcome; written before over */
    occl_status_t failing;       /* what a withdrawal from the device will end as */
    char *text;                  /* of the outcome; NULL: none */
    uint64_t bytes;
    void (*fn)(void *, occl_run_t *);
    void *fn_state;
    uint64_t started_at;         /* clock; 0: OCCL_T_WARN is not set, or this run was named already */
    /* caches, kept for the object's next life */
    uint64_t *x;                 /* xsend, xrecv: xcap */
    void **hold;                 /* far: what keeps those mapped; holdcap */
    unsigned char **pools;       /* rxpool, txpool: 2 * pcap */
    uint32_t xcap, pcap, holdcap, nhold;
    unsigned char *scratch;
    uint64_t scratch_cap, scratch_off; /* off: far */
    occl_binding_t *binding;     /* far: in use */
    int held;                    /* has its place n, but is not published before its queue comes to it (occl_run_unhold) */
    int enqueued;                /* started by a queue: a failure is the communicator's */
    occl_status_t refused;       /* its start has failed after it took its place: published as such */
    occl_ticket_t ticket;
    occl_list_t in_bells;
    int copied;                  /* out of the bounce buffer, or `after` has been called */
    int staged;                  /* 1: `before` is due or being called; 2: it has been */
    int hidden;                  /* the plan is coll's alt */
    int mapped;                  /* far: 1 all the members' buffers are, and held; -1 one cannot be */
    occl_run_t *partner;         /* far, a message to oneself: the send that ends with this receive */
    uint64_t pool_off, pool_bytes;
    uint64_t table;              /* offset of its blocks, while it is published; 0: it has none */
};

struct occl_coll {
    occl_comm_t *comm;
    occl_tag_t *tag;
    occl_coll_args_t args;
    occl_record_t wire;          /* sig and fields as published */
    occl_cached_plan_t *cp;      /* NULL for SENDRECV until the gate knows the size */
    occl_cached_plan_t *alt;     /* through slots, instead of an exposed one: far, when some member's buffer turns out to be hidden;
                                    an exchange, when its blocks turn out to be small */
    occl_block_t *blocks;        /* what args.sends and args.recvs point to */
    uint64_t serial;             /* of one that has blocks */
    uint32_t rec_flags;          /* REC_SLOTS */
    int likely_slots;            /* an exchange: as far as its own blocks are concerned */
    occl_buffer_t sbuf, rbuf;    /* far; written by who starts it, with no run active */
    const void *user_send;       /* as given: args have MPI_IN_PLACE resolved */
    void *user_recv;
    int refs;                    /* owner, active runs */
    int freed;
    occl_run_t *run;             /* the embedded run */
    occl_run_t *active;          /* the run that is not over, embedded or not */
    occl_status_t outcome;       /* of the last run that was over */
    char *text;
};

/* ctx.c */
/* The sleeper announced itself: change its word and wake it (also called by the engine, kernels/occl_dev_sched.h). */
void occl_host_wake(uint32_t *sleeping);
void occl_set_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
occl_status_t occl_fail(occl_status_t status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A thread that spins in a wait takes the lock again at once, and a mutex is not fair: who has to wait for it says so. */
static inline void occl_ctx_lock(occl_ctx_t *ctx)
{
    if (OCCL_LIKELY(occl_trylock(&ctx->lock)))
        return;
    (void)__atomic_fetch_add(&ctx->lock_wanted, 1, __ATOMIC_RELAXED);
    occl_lock(&ctx->lock);
    (void)__atomic_fetch_sub(&ctx->lock_wanted, 1, __ATOMIC_RELAXED);
}
uint64_t occl_ctx_alloc(occl_ctx_t *ctx, uint64_t bytes);
/* The device's driver has something to do: whoever releases the lock does it. */
static inline int occl_ctx_wants(const occl_ctx_t *ctx)
{
    uint32_t any = 0;
    for (uint32_t i = 0; i < ctx->nfar; i++)
        any |= occl_load_relaxed32(&ctx->far[i]->wants);
    return OCCL_UNLIKELY(any);
}
/* Releases the lock and calls the callbacks that became due. */
void occl_ctx_unlock(occl_ctx_t *ctx);
/* There are some. */
static inline int occl_ctx_has_calls(const occl_ctx_t *ctx)
{
    return OCCL_UNLIKELY(!occl_list_empty(&ctx->called) || !occl_list_empty(&ctx->deferred));
}

/* comm.c */
void occl_comm_ref(occl_comm_t *c);
void occl_comm_unref(occl_comm_t *c);
/* PEER_* of a member, and one's own. */
static inline uint32_t occl_member_state(const occl_member_t *m)
{
    uint64_t w = occl_load_acquire64(&m->cell->word);
    return w >> 2 == m->gen ? (uint32_t)(w & 3) : PEER_DETACHED;
}
static inline uint32_t occl_comm_state(const occl_comm_t *c) { return (uint32_t)(occl_load_relaxed64(&c->cell->word) & 3); }
static inline void occl_comm_set_state(occl_comm_t *c, uint32_t state)
{
    occl_store_release64(&c->cell->word, c->gen << 2 | state);
}
void occl_comm_sweep(occl_ctx_t *ctx);
void occl_comm_run_gone(occl_comm_t *c);
occl_status_t occl_dir_insert(occl_comm_t *c, uint64_t key, uint64_t off);
uint64_t occl_dir_find(const occl_commblk_t *blk, const unsigned char *base, uint64_t key);
void occl_comm_publish(occl_comm_t *c, uint64_t key);
void occl_comm_lose(occl_comm_t *c, uint64_t key);
int occl_comm_is_lost(const occl_commblk_t *blk, uint64_t key);
int occl_comm_read_news(occl_comm_t *c);
const char *occl_comm_find_dead(occl_comm_t *c);
void occl_comm_check_peers(occl_comm_t *c);
void occl_comm_warn_late(occl_comm_t *c, uint64_t now);

/* tag.c */
occl_status_t occl_tag_get(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_tag_t **tag_p);
void occl_tag_lose(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args);
void occl_tag_free(occl_tag_t *t);
/* A consistent copy of member i's record of run n, for texts; or 0: it has none (any more). */
int occl_tag_read_record(occl_tag_t *t, uint32_t i, uint64_t n, occl_record_t *rec);
/* The same once the run has been opened: it is there, and stays as it is, whatever its owner tries. */
void occl_tag_opened_record(occl_tag_t *t, uint32_t i, uint64_t n, occl_record_t *rec);
/* What member i says of run n, opened, later than its record: n << 1 | its buffers are mapped. Acquire. */
uint64_t occl_tag_mapped_word(const occl_tag_t *t, uint32_t i, uint64_t n);
int occl_tag_withdraw(occl_tag_t *t, occl_run_t *r);
/* The blocks of a collective for its run n; their offset in the arena, 0: no memory. */
uint64_t occl_tag_put_table(occl_tag_t *t, uint64_t n, const occl_coll_t *coll);
/* Those of member i, from its record; NULL: it has none. */
const occl_table_t *occl_tag_table(const occl_tag_t *t, uint32_t i, const occl_record_t *rec);
void occl_tag_abandon(occl_tag_t *t);
void occl_run_break(occl_run_t *r, occl_status_t status, char *text);
int occl_tag_recheck(occl_tag_t *t, occl_run_t *r);
void occl_tag_enqueue(occl_tag_t *t, occl_run_t *r);
void occl_tag_activate(occl_tag_t *t);
void occl_tag_check(occl_tag_t *t);
void occl_tag_leave(occl_tag_t *t, occl_run_t *r);
/* Far device: the run's plan and links are there; false: no memory. */
int occl_tag_bind(occl_run_t *r);
void occl_tag_unbind(occl_run_t *r);
const char *occl_tag_label(const occl_tag_t *t, char *buf, size_t len);
void occl_tag_wake(occl_tag_t *t);
void occl_tag_kill(occl_tag_t *t, occl_status_t why, const char *text);

#if defined(OCCL_EMU) && OCCL_EMU
/* For tests: slots a half, of links and of the pool, of what is attached from now on; 0: as usual. */
extern uint32_t occl_emu_nslots;
/* For tests, on all members while the tag is idle: the last run had this number. */
void occl_tag_set_run(occl_tag_t *t, uint64_t n);
#endif

/* run.c */
occl_run_t *occl_run_new(void);
void occl_run_ref(occl_run_t *r);
void occl_run_unref(occl_run_t *r);
void occl_run_finish(occl_run_t *r, occl_status_t status, char *text);
void occl_run_fail(occl_run_t *r, occl_status_t status, char *text);
void occl_run_submit(occl_run_t *r);
void occl_run_publish(occl_run_t *r);
/* Its queue has come to it. */
void occl_run_unhold(occl_run_t *r);
void occl_run_open(occl_run_t *r);
void occl_device_event(occl_ctx_t *ctx, occl_dev_run_t *dev, uint32_t what);
/* Nothing comes back from it any more. */
void occl_device_lost(occl_ctx_t *ctx, occl_device_t *dev);
void occl_run_copy_out(occl_run_t *r); /* no lock */
/* `before` is due: whoever releases the lock calls it, and then the run goes on where it is asked for this. True: so it is. */
int occl_run_stage(occl_run_t *r);
/* Frees all that it holds, but not the object. */
void occl_run_strip(occl_run_t *r, occl_comm_t *c);
uint64_t occl_mailbox_room(const occl_comm_t *c, uint32_t channel);
/* As in messages: "int32", "sum" */
const char *occl_type_name(uint32_t type);
const char *occl_op_name(uint32_t op);
char *occl_run_mismatch_text(occl_run_t *r);
char *occl_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void occl_pool_trim(occl_ctx_t *ctx);

/* coll.c */
/* As occl_coll_start, under the lock, and the run is held; referenced for the caller. */
occl_status_t occl_coll_start_held(occl_coll_t *coll, occl_run_t **run_p);
/* No lock: what the device needs to know of the buffers. */
occl_status_t occl_coll_refresh(occl_coll_t *coll);

/* queue.c: under the lock */
/* Starts whose streams have come to them. Whether there was any. */
int occl_bells_check(occl_ctx_t *ctx);
/* Host queues go on as far as they can. */
void occl_queues_run(occl_ctx_t *ctx);
void occl_queues_fini(occl_ctx_t *ctx);
void occl_run_enqueued_over(occl_run_t *r);

void occl_message_to_self(occl_run_t *r);
/* coll.c, plans */
void occl_coll_unref(occl_coll_t *coll);
void occl_plan_put(occl_comm_t *c, occl_cached_plan_t *cp);
/* What an exposed plan moves in one step. The clock and other runs are looked at between steps only, so reductions, which others
 * wait for, take short ones. Copies that nobody waits for are faster in long ones: a call to the kernel each. */
static inline uint64_t occl_chunk_bytes(const occl_comm_t *c, const occl_plan_t *plan)
{
    return plan->flags & OCCL_PLAN_BULK ? 8 * c->chunk : c->chunk;
}
/* On a far device, when all members' records say REC_LONG. A step then moves as much on few ranks as on many: some 300 us of all of
 * a GPU's bandwidth, which is what may be left to wait for when the daemon shall leave. */
static inline uint64_t occl_long_chunk_bytes(const occl_comm_t *c, const occl_plan_t *plan)
{
    uint64_t bytes = plan->flags & OCCL_PLAN_BULK ? 32 * c->chunk : 32 * c->chunk / plan->nranks;
    return bytes > occl_chunk_bytes(c, plan) ? bytes : occl_chunk_bytes(c, plan);
}
void occl_cached_plan_free(occl_cached_plan_t *cp);
/* hidden: some buffer cannot be reached by the peers */
occl_status_t occl_plan_choose(occl_comm_t *c, occl_tag_t *t, const occl_coll_args_t *a, uint64_t count, int hidden,
                               occl_cached_plan_t **cp_p);
/* An exchange whose average block has so many bytes: OCCL_MOVE_*, the same on all members. */
occl_movement_t occl_exchange_move(occl_comm_t *c, const occl_tag_t *t, const occl_coll_args_t *a, uint64_t bytes);
/* Where the device finds a place in a user's buffer; how peers do. */
uint64_t occl_coll_at(const occl_coll_t *coll, const void *p);
int occl_coll_exported(const occl_coll_t *coll, const void *p, uint64_t *number_p, uint64_t *offset_p);

/* wait.c: the caller holds the lock */
int occl_ctx_progress(occl_ctx_t *ctx, occl_run_t *focus, uint32_t patient);
void occl_ctx_look_round(occl_ctx_t *ctx, uint64_t now);

#endif
