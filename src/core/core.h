/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core as its user sees it: mpi-ext/ over MPI, test/emu over threads, later the simulator. No MPI type appears here.
 *
 * Objects
 *   ctx    one per process (in the emulation: per rank-thread): arena, device, helper thread, peer table
 *   comm   one per attached communicator
 *   coll   one registered collective: communicator, tag, arguments. Local; registration never closes
 *   run    one start. Reference counted: one reference for the engine until the run is over, one for whoever started it
 *
 * Threads. Every function may be called from any thread at any time, except that create/destroy calls must not race with the use
 * of the object they end. Nothing here calls user code while it holds a lock, except the completion callback's promise below.
 *
 * Errors. A function that fails returns a status and, through occl_ctx_error(), a text for the calling thread; the
 * outcome of a run (occl_run_status, occl_run_error) is another thing than the outcome of the call that waited for it.
 */
#ifndef OCCL_SRC_CORE_CORE_H
#define OCCL_SRC_CORE_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "util/env.h"
#include "util/status.h"

typedef struct occl_ctx occl_ctx_t;
typedef struct occl_comm occl_comm_t;
typedef struct occl_coll occl_coll_t;
typedef struct occl_run occl_run_t;

/* --- process ------------------------------------------------------------------------------------------------------ */

typedef enum occl_device_kind {
    OCCL_DEVICE_HOST,   /* production: the caller does the work */
    OCCL_DEVICE_EMU     /* channels as threads with lanes, slots and chaos; only in builds with OCCL_EMU */
} occl_device_kind_t;

/* Reads the environment. `threads_are_ranks`: several contexts live in this process (emulation). */
occl_status_t occl_ctx_create(occl_device_kind_t device, int threads_are_ranks, occl_ctx_t **ctx_p, char *err, size_t errlen);
/* Ends all runs that are still pending with OCCL_ERR_REVOKED, joins the helper, frees everything. */
void occl_ctx_destroy(occl_ctx_t *ctx);
const occl_env_t *occl_ctx_env(const occl_ctx_t *ctx);
/* Text of the calling thread's last failed call. Never NULL. */
const char *occl_last_error(void);

/* One bounded, non-blocking pass over everything that is pending: for MPI's progress hooks and poll functions.
 * Returns the number of things that moved. Safe against re-entry (returns 0). */
int occl_progress(occl_ctx_t *ctx);

/* The layer above makes progress of its own (MPI's messages) in fn, which must not block. Every thread that waits in occl_coll_wait,
 * occl_run_wait or occl_wait_until calls it once it is past OCCL_SPIN, between its attempts and at least once a millisecond; no
 * lock is held, and nobody calls it from the helper. NULL: none. Set before the first attach. */
void occl_ctx_set_wait_hook(occl_ctx_t *ctx, void (*fn)(void *state), void *state);

/* --- communicators ------------------------------------------------------------------------------------------------ */

/* Bootstrap over whatever connects the ranks; used inside attach only, which is collective. */
typedef struct occl_oob {
    int rank, size;
    /* Every rank gives `bytes` bytes; all get size * bytes in rank order. 0 or non-zero (failed). */
    int (*allgather)(void *state, const void *in, void *out, size_t bytes);
    void *state;
    /* Name of a rank for messages, e.g. "rank 2 (MPI_COMM_WORLD rank 6, host:pid)"; may be NULL. */
    void (*rank_name)(void *state, int rank, char *buf, size_t len);
    const char *name;   /* communicator's name for messages; may be NULL */
} occl_oob_t;

typedef struct occl_attach_opts {
    int priority;            /* info mpix_occl_priority: 0 normal, > 0 goes first among ready runs */
    const char *algo;        /* info mpix_occl_algo: as OCCL_ALGO, or NULL */
    const char *device;      /* info mpix_occl_device: as OCCL_DEVICE, or NULL */
} occl_attach_opts_t;

/* Collective. All ranks return the same status; a failure on one rank is named on all. Attaches do not count here. */
occl_status_t occl_comm_attach(occl_ctx_t *ctx, const occl_oob_t *oob, const occl_attach_opts_t *opts, occl_comm_t **comm_p);
/* Local. Runs that are pending go on; the comm's memory goes when they and all members are done. No call on comm after. */
void occl_comm_detach(occl_comm_t *comm);
/* True once every member has detached (a private communicator may then be used again). Valid after detach while the
 * caller holds the reference that attach gave; dropped by occl_comm_release. */
int occl_comm_all_detached(occl_comm_t *comm);
void occl_comm_release(occl_comm_t *comm);
int occl_comm_rank(const occl_comm_t *comm);
int occl_comm_size(const occl_comm_t *comm);
/* The name of the device that its runs are executed on, and the type of queue that goes with it. */
const char *occl_comm_device(const occl_comm_t *comm, int *queue_type_p);

/* Statistics by name: runs, starts, preemptions, parks, quits, launches, polls, gates_opened, gated_runs, eager_runs, mismatches,
 * pending, tags, colls, tag_bytes (memory of this rank's tags), tag_bytes_max (largest single tag), arena_bytes, pool_bytes,
 * helper_threads, helper_passes, cma, ... OCCL_ERR_ARG for an unknown name. comm may be NULL where the number is the process's. */
occl_status_t occl_get_stat(occl_ctx_t *ctx, occl_comm_t *comm, const char *name, uint64_t *value_p);
/* The i-th name, or NULL. */
const char *occl_stat_name(int i);
/* Text about everything pending (keys, state, ranks arrived and missing). Never blocks longer than a bounded time. */
void occl_comm_dump(occl_comm_t *comm, void (*put)(void *state, const char *text), void *state);

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Memory that the communicator's device works on in place, and the members without a copy in between where the node allows it.
 * Local, any thread, no order. The last three return OCCL_ERR_BUFFER for memory that is not known. Operations on it are over. */
occl_status_t occl_mem_alloc(occl_comm_t *comm, uint64_t bytes, void **p_p);
occl_status_t occl_mem_free(occl_ctx_t *ctx, void *p);
/* The same for memory that is there: OCCL_ERR_UNSUPPORTED if it cannot be. */
occl_status_t occl_mem_register(occl_comm_t *comm, void *p, uint64_t bytes);
occl_status_t occl_mem_unregister(occl_comm_t *comm, void *p);

/* --- collectives -------------------------------------------------------------------------------------------------- */

/*
 * Arguments already reduced to what the engine knows. Types are basic types: a contiguous derived type is given as its basic type
 * times the larger count. `count` is per block as plan.h says. For OCCL_COLL_SENDRECV: `peer` is the other rank, `sender` says
 * which side this is, count is the sender's message or the receiver's capacity.
 *
 * Exchanges (occl_coll_exchanges) and REDUCE_SCATTER: `sends` and `recvs` say what lies where, copied when the collective is
 * registered. Exchanges count in bytes, `at` may be negative, and type and count are not looked at; a block for oneself is there at
 * both ends, except in place of a gatherv (root), scatterv (root) or allgatherv. In place of an alltoallv or alltoallw `sends` is
 * not looked at. REDUCE_SCATTER: recvs are the members' blocks, n elements each; peer, at and count are filled in.
 */

/*
 * What the layer above does around each run, where the user's data are not what the engine works on. Not for far devices. before: once
 * the run's queue has come to it and no earlier run of its tag is left, before anybody can look at its buffers. after: the outputs are
 * there, the run is not over yet; it becomes what after returns. received: of a message, else UINT64_MAX. No lock is held, and any
 * thread calls; after of `application` is called by the application's threads only, inside calls of theirs that make progress.
 * Either may be NULL. release may be called under the lock.
 */
typedef struct occl_stage {
    void (*before)(struct occl_stage *s);
    occl_status_t (*after)(struct occl_stage *s, uint64_t received);
    void (*retain)(struct occl_stage *s);
    void (*release)(struct occl_stage *s);
    int application;
} occl_stage_t;

typedef struct occl_coll_args {
    occl_collkind_t kind;
    uint32_t type, op;
    uint64_t scale[4];       /* of OCCL_OP_PREMUL: one element of the type, the rest 0; the same on all members */
    int32_t root;            /* -1 where the operation has none */
    int32_t peer;            /* SENDRECV only */
    int32_t sender;          /* SENDRECV only */
    uint64_t count;
    const void *send;        /* NULL where not significant */
    void *recv;              /* NULL where not significant */
    int in_place;
    int priority;
    uint32_t nsends, nrecvs;
    const occl_block_t *sends, *recvs;
    occl_stage_t *stage;     /* or NULL; the collective retains it */
    /* What the members compare and read of it, where that is something else: a reduction that is a movement as far as this goes */
    int as;                  /* as_kind, as_op and as_count hold */
    uint32_t as_kind, as_op;
    uint64_t as_count;
    uint32_t as_types;       /* not 0: a hash of several basic types, of which `type` knows the bytes only */
} occl_coll_args_t;

/* Checks what can be checked here and now (op/type pair, root, tag, count overflow, NULL buffers with count > 0, aliasing). */
occl_status_t occl_coll_create(occl_comm_t *comm, int32_t tag, const occl_coll_args_t *args, occl_coll_t **coll_p);
/* The coll may be freed while a run of it is active: that run completes. */
void occl_coll_free(occl_coll_t *coll);
/* OCCL_ERR_REQUEST when a run of this coll is active. The run's reference for the caller is given by run_p; with run_p NULL the
 * caller uses occl_coll_test/wait: the fast path, no allocation. */
occl_status_t occl_coll_start(occl_coll_t *coll, occl_run_t **run_p);
/* Complete the coll's last run: done at once when none is active. *outcome_p is the run's own status. */
occl_status_t occl_coll_test(occl_coll_t *coll, int *done_p, occl_status_t *outcome_p);
occl_status_t occl_coll_wait(occl_coll_t *coll, occl_status_t *outcome_p);
/* Text of the last run's error; valid until the next start. Never NULL. */
const char *occl_coll_error(occl_coll_t *coll);
occl_comm_t *occl_coll_comm(occl_coll_t *coll);
/* Withdraw the active run if its gate is still closed: *cancelled_p says whether. Then it is as if it had never been started: its
 * place n goes to the next start on the tag. Refused (0) when later runs of the tag are queued or a peer may already have
 * opened the gate. */
occl_status_t occl_coll_cancel(occl_coll_t *coll, int *cancelled_p);

/* create + start + free in one: the nonblocking form. */
occl_status_t occl_start(occl_comm_t *comm, int32_t tag, const occl_coll_args_t *args, occl_run_t **run_p);
/* A start whose arguments were refused after communicator and tag had been found valid: takes its n and tells the peers.
 * args: what is known of it; kind always, peer and sender for OCCL_COLL_SENDRECV (its sequence is the pair's), the rest may be 0. */
void occl_start_failed(occl_comm_t *comm, int32_t tag, const occl_coll_args_t *args, occl_status_t why);
/* The same for a start of coll. */
void occl_coll_start_failed(occl_coll_t *coll, occl_status_t why);

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* Bounded; makes progress. */
int occl_run_test(occl_run_t *run);
/* Returns when the run is over. Does the work itself; spins for OCCL_SPIN, then yields, then sleeps until news. */
void occl_run_wait(occl_run_t *run);
/* Wait until `poll(state)` returns non-zero, making progress meanwhile: for waitany/waitsome over mixed requests. */
void occl_wait_until(occl_ctx_t *ctx, int (*poll)(void *state), void *state);
int occl_run_is_over(const occl_run_t *run);             /* acquire: outputs are visible when true */
occl_status_t occl_run_status(const occl_run_t *run);    /* only when over */
const char *occl_run_error(const occl_run_t *run);       /* only when over; never NULL */
uint64_t occl_run_bytes(const occl_run_t *run);          /* SENDRECV: bytes received; else 0; only when over */
occl_comm_t *occl_run_comm(const occl_run_t *run);
void occl_run_release(occl_run_t *run);                  /* drops the starter's reference; the run goes on */
/* Called exactly once when the run is over (at once if it is already), on the thread that finds out: a waiter, a progress
 * hook, or the helper. No lock is held; it may start, test and release runs, but not wait. */
void occl_run_set_callback(occl_run_t *run, void (*fn)(void *state, occl_run_t *run), void *state);

/* --- stream order ------------------------------------------------------------------------------------------------- */

/* A queue is in order: what is put into it begins when all that was put into it before has happened. HOST: an occl_hqueue_t *
 * below. CUDA_STREAM: a cudaStream_t; NULL is the legacy default stream. */
enum { OCCL_QUEUE_HOST = 1, OCCL_QUEUE_CUDA_STREAM = 2 };
typedef struct occl_hqueue occl_hqueue_t;
occl_status_t occl_hqueue_create(occl_ctx_t *ctx, occl_hqueue_t **q_p);
void occl_hqueue_free(occl_hqueue_t *q); /* what is queued goes on */
/* Returns when all that was queued before has happened; makes progress. */
occl_status_t occl_hqueue_synchronize(occl_hqueue_t *q);

/* `type` and `queue` are as the user gave them. None of these waits for anybody.
 * start: a run of coll begins when the queue gets here. wait: the queue goes on when coll's last run is over. */
occl_status_t occl_coll_start_enqueue(occl_coll_t *coll, int type, void *queue);
occl_status_t occl_coll_wait_enqueue(occl_coll_t *coll, int type, void *queue);
/* start and wait in one; the coll is the queue's.
 * Of these three a start that fails has its place in the tag's sequence and the peers are told, as by occl_start_failed (but for
 * OCCL_ERR_REQUEST, NOT_ATTACHED and REVOKED, and OCCL_ERR_RANK where without a peer there is no sequence). */
occl_status_t occl_enqueue(occl_comm_t *comm, int32_t tag, const occl_coll_args_t *args, int type, void *queue);
/* The first failure of an enqueued run on the communicator since this was last asked. OCCL_OK: there was none. text may be NULL. */
occl_status_t occl_comm_take_error(occl_comm_t *comm, char *text, size_t len);

#endif
