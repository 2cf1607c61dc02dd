/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks as threads of one process, each with a context of its own: everything of the library but MPI. A test says
 *
 *     static void body(emu_rank_t *r) { ... what one rank does ... }
 *     emu_run(&(emu_conf_t){.ranks = 3, .device = OCCL_DEVICE_EMU, .env = "OCCL_EMU_LANES=4"}, body, "text of the check");
 *
 * which is one TAP check: every rank got to the end of body and no emu_check failed. A world that takes longer than its
 * deadline (x OCCL_TEST_SLACK) is dumped, rank by rank, and ends the program with "Bail out!".
 *
 * OCCL_TEST_ONLY=TEXT runs only the worlds whose check has TEXT in it.
 */
#ifndef OCCL_TEST_EMU_H
#define OCCL_TEST_EMU_H

#include "core/internal.h"
#include "device/emu.h"
#include "tap.h"
#include "util/clock.h"
#include "util/rng.h"

#define EMU_MAX_RANKS 8

typedef struct emu_world emu_world_t;

typedef struct emu_rank {
    emu_world_t *world;
    int rank, size;
    occl_ctx_t *ctx;
    occl_comm_t *comm;     /* of all ranks; attached before body, released after it unless it is NULL by then */
    occl_rng_t rng;        /* differs from rank to rank, same every time for a seed */
    void *arg;
    int thread;            /* in emu_threads: which one */
} emu_rank_t;

typedef struct emu_conf {
    int ranks;
    occl_device_kind_t device;
    const char *env;       /* "NAME=value NAME=value": for all ranks */
    const char *(*rank_env)(int rank); /* and more of it for one; may be NULL */
    uint64_t seed;
    uint32_t shared_slots; /* > 0: all ranks sit on one GPU with so many slots */
    double deadline;       /* seconds; 0: 6 */
    void *arg;
    int no_world;          /* leave comm NULL */
} emu_conf_t;

/* Returns whether all was well. */
int emu_run(const emu_conf_t *conf, void (*body)(emu_rank_t *r), const char *fmt, ...) TAP_PRINTF(3, 4);

/* Collective over the given ranks of the world, ascending. `name` is not used by two groups of one world at a time. */
occl_comm_t *emu_attach(emu_rank_t *r, const int *ranks, int n, const char *name);
/* The same, but a failure is returned. */
occl_status_t emu_try_attach(emu_rank_t *r, const int *ranks, int n, const char *name, const occl_attach_opts_t *opts,
                             occl_comm_t **comm_p);
/* Local: detach and release. */
void emu_detach(occl_comm_t *c);

/* n threads of this rank run fn, each with an emu_rank_t of its own; returns when all are through. */
void emu_threads(emu_rank_t *r, int n, void (*fn)(emu_rank_t *r));

/* This rank is through with the library (its MPI_Finalize), whatever is pending; r->ctx and r->comm are NULL afterwards. */
void emu_finalize(emu_rank_t *r);

/* Ranks of the world wait for each other (not a collective of ours). */
void emu_barrier(emu_rank_t *r);
/* A number that ranks share: sets, and reads. */
void emu_set(emu_rank_t *r, int which, uint64_t v);
uint64_t emu_get(emu_rank_t *r, int which);
void emu_wait_for(emu_rank_t *r, int which, uint64_t at_least);

/* A condition that must hold on this rank; the first that does not is told. */
#define emu_check(r, cond, ...) emu_check_((r), !!(cond), #cond, __LINE__, __VA_ARGS__)
int emu_check_(emu_rank_t *r, int cond, const char *text, int line, const char *fmt, ...) TAP_PRINTF(5, 6);
/* What went wrong so far in this world, on any rank */
int emu_failed(emu_rank_t *r);

void emu_sleep(uint64_t ns);
/* Sometimes nothing, sometimes a yield, sometimes up to max_ns. */
void emu_dawdle(emu_rank_t *r, uint64_t max_ns);
uint64_t emu_stat(emu_rank_t *r, const char *name);
static inline occl_device_t *emu_dev(emu_rank_t *r) { return r->ctx->dev; }

/* --- holding threads (util/point.h) --------------------------------------------------------------------------------- */

/* From now on this rank's threads can be held; until emu_hold_none. */
void emu_hold_me(emu_rank_t *r);
void emu_hold_none(emu_rank_t *r);
/* The rank's next visit to the point lasts until emu_hold_end. */
void emu_hold_at(int rank, int point);
/* Until it has come there. */
void emu_hold_wait(int rank);
int emu_hold_is_there(int rank);
void emu_hold_end(int rank);
/* All points become places of chaos (occl_emu_host_chaos). */
void emu_hold_chaos(int on);

/* --- a collective with its data ------------------------------------------------------------------------------------ */

typedef struct emu_op {
    occl_coll_args_t args;
    occl_comm_t *comm;
    int rank, size;
    int tag;
    size_t sbytes, rbytes;
    unsigned char *send_mem, *recv_mem, *want; /* with guards before and after */
    unsigned char *send, *recv;
    occl_coll_t *coll;
    occl_run_t *run;
    occl_block_t *blocks;      /* args.sends, then args.recvs */
} emu_op_t;

/* Buffers and arguments of one rank. count is per block, as MPI has it; where blocks have a length each, none is longer, some are
 * empty, and they lie in the buffers in another order, with gaps. Neighbours are those in a ring, forwards and backwards. For SENDRECV root is the source and the destination is
 * (root + 1) % size; other ranks get count = 0 and must not start it. */
void emu_op_init(emu_op_t *op, occl_comm_t *c, int tag, occl_collkind_t kind, uint32_t type, uint32_t opcode, int root,
                 uint64_t count, int in_place);
void emu_op_fini(emu_op_t *op);
/* Fills the buffers of this rank for iteration `salt`, and works out what shall come out. */
void emu_op_fill(emu_op_t *op, uint64_t salt);
/* Start it (persistent, registered at the first start) and check what came out. */
int emu_op_start(emu_rank_t *r, emu_op_t *op);
int emu_op_wait(emu_rank_t *r, emu_op_t *op);   /* wait, then check */
int emu_op_check(emu_rank_t *r, emu_op_t *op);
/* Wait, and give the outcome; the text is occl_coll_error's. */
occl_status_t emu_op_outcome(emu_rank_t *r, emu_op_t *op);
/* A random collective; all members get the same from the same generator. */
void emu_op_random(emu_op_t *op, occl_comm_t *c, int tag, occl_rng_t *shared, uint64_t max_count);
const char *emu_op_text(const emu_op_t *op, char *buf, size_t len);

#endif
