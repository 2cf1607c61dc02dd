/* SPDX-License-Identifier: BSD-3-Clause */
/* Many runs: of one tag, in order; of many tags, more than any table holds; over the ends of their numbers. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- many tags ------------------------------------------------------------------------------------------------------ */

#if defined(__SANITIZE_THREAD__)
#define MANY 2500
#else
#define MANY 4000 /* the device's queues of two ranks together hold 2048 */
#endif

typedef struct many {
    int n;
    int slots_taken; /* the device is held up while everything is started */
} many_t;

/*
 * The devices of the two hold different runs, and no others have room: 1 has started all, from the last one down, when 0 starts
 * from the first one up, and finds so much new then that it goes through its own list. Runs that are put aside have to let others in.
 */
static void apart_body(emu_rank_t *r)
{
    enum { N = 2 * OCCL_QUEUE_LEN + 400 };
    emu_op_t *op = calloc(N, sizeof(*op));
    for (int i = 0; i < N; i++) {
        emu_op_init(&op[i], r->comm, i, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 10, 0);
        emu_op_fill(&op[i], (uint64_t)i);
    }
    for (int rank = 1; rank >= 0; rank--) {
        emu_barrier(r);
        for (int i = 0; i < N && r->rank == rank; i++)
            emu_op_start(r, &op[rank ? N - 1 - i : i]);
    }
    emu_barrier(r);
    for (int i = 0; i < N; i++)
        emu_op_wait(r, &op[r->rank ? N - 1 - i : i]);
    for (int i = 0; i < N; i++)
        emu_op_fini(&op[i]);
    free(op);
}

static void many_body(emu_rank_t *r)
{
    const many_t *m = r->arg;
    emu_op_t *op = calloc((size_t)m->n, sizeof(*op));
    int *order = malloc((size_t)m->n * sizeof(*order));
    occl_emu_kernel_t *k = NULL;
    uint64_t before = 0;
    for (int i = 0; i < m->n; i++) {
        emu_op_init(&op[i], r->comm, i, i % 3 ? OCCL_COLL_ALLREDUCE : OCCL_COLL_ALLGATHER, OCCL_T_I32, OCCL_OP_SUM, 0,
                    (uint64_t)(i % 7 * 40), 0);
        order[i] = i;
    }
    for (uint64_t round = 0; round < 2; round++) {
        if (m->slots_taken) {
            k = occl_emu_kernel_start(emu_dev(r), 1, OCCL_INF);
            occl_emu_kernel_resident(k);
        }
        for (int i = 0; i < m->n; i++) {
            int j = r->rank ? m->n - 1 - i : i;
            emu_op_fill(&op[j], round * 10000 + (uint64_t)j);
            emu_op_start(r, &op[j]);
        }
        if (m->slots_taken) {
            emu_barrier(r);
            /* Everything is ready now; make room */
            for (int i = 0; i < 50; i++)
                (void)occl_progress(r->ctx);
            emu_check(r, emu_stat(r, "outstanding") <= OCCL_QUEUE_LEN, "no more than the queue holds");
            occl_emu_kernel_stop(k);
            occl_emu_kernel_join(k);
        }
        occl_rng_shuffle(&r->rng, order, (size_t)m->n);
        for (int i = 0; i < m->n; i++)
            emu_op_wait(r, &op[order[i]]);
        if (round == 0)
            before = emu_stat(r, "arena_bytes");
    }
    emu_check(r, emu_stat(r, "arena_bytes") == before, "a second run costs no memory");
    emu_check(r, emu_stat(r, "pending") == 0, "nothing is left");
    for (int i = 0; i < m->n; i++)
        emu_op_fini(&op[i]);
    free(op);
    free(order);
}

/* --- many runs of one tag ------------------------------------------------------------------------------------------- */

static void deep_body(emu_rank_t *r)
{
    enum { DEEP = 400 };
    emu_op_t *op = calloc(DEEP, sizeof(*op));
    occl_rng_t shared;
    occl_rng_seed(&shared, 8, 8);
    for (int i = 0; i < DEEP; i++) {
        emu_op_random(&op[i], r->comm, 4, &shared, i % 10 ? 500 : 6000);
        emu_op_fill(&op[i], (uint64_t)i);
    }
    /* Ranks are up to all of it ahead of each other. */
    for (int i = 0; i < DEEP; i++) {
        emu_op_start(r, &op[i]);
        if (i % 64 == r->rank)
            emu_dawdle(r, 2000000);
    }
    for (int k = 0; k < DEEP; k++) {
        int i = r->rank % 2 ? DEEP - 1 - k : k;
        emu_op_wait(r, &op[i]);
        emu_op_fini(&op[i]);
    }
    free(op);
}

/* 080: a member that is ahead writes nothing into my buffers before I start, however well it knows where they are. */
static void ahead_body(emu_rank_t *r)
{
    static const struct {
        occl_collkind_t kind;
        uint64_t count;
    } kinds[] = {
        {OCCL_COLL_GATHER, 20000}, {OCCL_COLL_GATHER, 50}, {OCCL_COLL_REDUCE, 20000}, {OCCL_COLL_REDUCE, 50},
        {OCCL_COLL_ALLGATHER, 20000}, {OCCL_COLL_ALLREDUCE, 20000}, {OCCL_COLL_ALLREDUCE, 50}, {OCCL_COLL_BCAST, 50},
        {OCCL_COLL_BCAST, 20000}, {OCCL_COLL_ALLTOALL, 50}, {OCCL_COLL_ALLTOALL, 9000},
    };
    for (size_t q = 0; q < sizeof(kinds) / sizeof(kinds[0]); q++) {
        emu_op_t op[3];
        for (int i = 0; i < 3; i++)
            emu_op_init(&op[i], r->comm, 20 + (int)q, kinds[q].kind, OCCL_T_I32, OCCL_OP_SUM, kinds[q].kind == OCCL_COLL_BCAST,
                        kinds[q].count, 0);
        for (uint64_t k = 0; k < 3; k++) {
            for (int i = 0; i < 3; i++)
                emu_op_fill(&op[i], 3 * k + (uint64_t)i);
            emu_barrier(r);
            if (r->rank)
                for (int i = 0; i < 3; i++) /* all three iterations at once */
                    emu_op_start(r, &op[i]);
            for (int i = 0; i < 3 && r->rank == 0; i++) {
                unsigned char *copy = malloc(op[i].rbytes + 1);
                memcpy(copy, op[i].recv, op[i].rbytes);
                emu_sleep(2000000);
                emu_check(r, !memcmp(copy, op[i].recv, op[i].rbytes), "%s: the receive buffer was written before its start",
                          occl_coll_name(kinds[q].kind));
                free(copy);
                emu_op_start(r, &op[i]);
                emu_op_wait(r, &op[i]);
            }
            for (int i = 0; i < 3 && r->rank; i++)
                emu_op_wait(r, &op[i]);
        }
        for (int i = 0; i < 3; i++)
            emu_op_fini(&op[i]);
    }
}

/* --- the ends of numbers -------------------------------------------------------------------------------------------- */

static void numbers_body(emu_rank_t *r)
{
    /* Receivers are late now and then: a sender that does not wait for credit is found out. */
    if (r->rank)
        occl_emu_host_chaos((uint64_t)r->rank);
    static const uint64_t from[] = {(1ull << 30) - 4, (1ull << 31) - 4, 3 * (1ull << 30) - 4, (1ull << 32) - 4, (1ull << 32) + 77,
                                    (1ull << 47) - 9};
    for (size_t q = 0; q < sizeof(from) / sizeof(from[0]); q++) {
        for (int fresh = 0; fresh < 2; fresh++) {
            int tag = 50 + 2 * (int)q + fresh;
            emu_op_t op;
            occl_tag_t *t;
            emu_op_init(&op, r->comm, tag, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 30, 0);
            if (fresh) { /* links are made only when the number is large already */
                emu_check(r, occl_coll_create(r->comm, tag, &op.args, &op.coll) == OCCL_OK, "%s", occl_last_error());
            } else {
                emu_op_fill(&op, 1);
                emu_op_start(r, &op);
                emu_op_wait(r, &op);
            }
            emu_barrier(r);
            occl_ctx_lock(r->ctx);
            t = op.coll->tag;
            occl_tag_set_run(t, from[q]);
            occl_ctx_unlock(r->ctx);
            emu_barrier(r);
            emu_op_fini(&op);
            for (uint64_t k = 0; k < 12; k++) {
                /* Small, with credit through own slots, from buffer to buffer, rooted */
                static const occl_collkind_t kinds[] = {OCCL_COLL_ALLREDUCE, OCCL_COLL_ALLGATHER, OCCL_COLL_BCAST, OCCL_COLL_ALLTOALL};
                emu_op_init(&op, r->comm, tag, kinds[fresh ? 2 : k % 4], OCCL_T_I32, OCCL_OP_SUM, fresh ? 0 : (int)k % r->size,
                            k % 3 != 2 ? 6000 : 10, 0);
                emu_op_fill(&op, k);
                emu_op_start(r, &op);
                emu_op_wait(r, &op);
                emu_op_fini(&op);
            }
        }
    }
    occl_emu_host_chaos(0);
}

/* Pool regions go from tag to tag, and their runs have the same numbers: what one leaves behind is none of the other's. */
static void pool_body(emu_rank_t *r)
{
    emu_op_t op[3];
    for (int i = 0; i < 3; i++)
        emu_op_init(&op[i], r->comm, i, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    for (uint64_t k = 0; k < 8; k++) {
        for (uint64_t i = 0; i < 3; i++) {
            emu_op_fill(&op[i], 100 * i + k);
            emu_barrier(r);
            if (r->rank == 0) /* the others look before it sends */
                emu_sleep(300000);
            emu_op_start(r, &op[i]);
            emu_op_wait(r, &op[i]);
        }
    }
    emu_check(r, emu_stat(r, "pooled_runs") == 24, "all went through the pool");
    for (int i = 0; i < 3; i++)
        emu_op_fini(&op[i]);
}

/* --- callbacks, lives ------------------------------------------------------------------------------------------------ */

typedef struct chain {
    emu_rank_t *r;
    emu_op_t op;
    int left, called;
} chain_t;

static void next_link(void *state, occl_run_t *run)
{
    chain_t *c = state;
    occl_run_t *next;
    c->called++;
    emu_check(c->r, occl_run_is_over(run) && occl_run_status(run) == OCCL_OK, "called when it is over");
    emu_op_check(c->r, &c->op);
    occl_run_release(run);
    if (--c->left) {
        emu_op_fill(&c->op, (uint64_t)c->left);
        emu_check(c->r, occl_start(c->op.comm, c->op.tag, &c->op.args, &next) == OCCL_OK, "%s", occl_last_error());
        occl_run_set_callback(next, next_link, c);
    } else {
        emu_set(c->r, 20 + c->r->rank * 4 + c->op.tag, 1);
    }
}

static void callbacks_body(emu_rank_t *r)
{
    chain_t c[3];
    memset(c, 0, sizeof(c));
    for (int i = 0; i < 3; i++) {
        occl_run_t *run;
        c[i].r = r;
        c[i].left = 60;
        emu_op_init(&c[i].op, r->comm, i, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, i * 3000, 0);
        emu_op_fill(&c[i].op, 60);
        emu_check(r, occl_start(r->comm, i, &c[i].op.args, &run) == OCCL_OK, "%s", occl_last_error());
        occl_run_set_callback(run, next_link, &c[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (r->rank == 0) /* the helper does it */
            emu_wait_for(r, 20 + r->rank * 4 + i, 1);
        else
            while (!emu_get(r, 20 + r->rank * 4 + i)) {
                (void)occl_progress(r->ctx);
                emu_dawdle(r, 50000);
            }
    }
    for (int i = 0; i < 3; i++) {
        emu_check(r, c[i].called == 60, "each one once");
        emu_op_fini(&c[i].op);
    }
}

/* Colls are freed while their run is active, run references dropped early and late. */
static void lives_body(emu_rank_t *r)
{
    emu_op_t one;
    emu_op_init(&one, r->comm, 9, OCCL_COLL_BARRIER, OCCL_T_BYTE, 0, 0, 0, 0);
    emu_op_fill(&one, 0);
    if (r->rank == 0) {
        emu_op_start(r, &one);
        emu_check(r, occl_coll_start(one.coll, NULL) == OCCL_ERR_REQUEST, "one active run a coll");
    }
    emu_barrier(r);
    if (r->rank)
        emu_op_start(r, &one);
    emu_op_wait(r, &one);
    emu_op_fini(&one);
    for (uint64_t k = 0; k < 60; k++) {
        emu_op_t op;
        occl_coll_t *coll;
        occl_run_t *run = NULL;
        emu_op_init(&op, r->comm, (int)k % 5, k % 2 ? OCCL_COLL_ALLREDUCE : OCCL_COLL_BCAST, OCCL_T_I32, OCCL_OP_SUM, 0,
                    (k * 173) % 9000, 0);
        emu_op_fill(&op, k);
        emu_check(r, occl_coll_create(r->comm, op.tag, &op.args, &coll) == OCCL_OK, "%s", occl_last_error());
        emu_check(r, occl_coll_start(coll, k % 3 ? &run : NULL) == OCCL_OK, "%s", occl_last_error());
        if (k % 3 == 0) {
            occl_status_t s;
            emu_check(r, occl_coll_wait(coll, &s) == OCCL_OK, "%s", occl_last_error());
            emu_check(r, s == OCCL_OK, "%s", occl_coll_error(coll));
            occl_coll_free(coll);
        } else {
            if (k % 4 == 1)
                occl_coll_free(coll);
            occl_run_wait(run);
            emu_check(r, occl_run_status(run) == OCCL_OK, "%s", occl_run_error(run));
            occl_run_release(run);
            if (k % 4 != 1)
                occl_coll_free(coll);
        }
        emu_op_check(r, &op);
        emu_op_fini(&op);
    }
}

/* 094: what a communicator costs comes back. */
static void memory_body(emu_rank_t *r)
{
    uint64_t base = 0;
    int all[EMU_MAX_RANKS];
    for (int i = 0; i < r->size; i++)
        all[i] = i;
    for (int k = 0; k < 6; k++) {
        occl_comm_t *c = emu_attach(r, all, r->size, "again"), *world = r->comm;
        for (int tag = 0; tag < 100; tag++) {
            emu_op_t op;
            emu_op_init(&op, c, tag, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, tag == 50 ? 100000 : 10, 0);
            emu_op_fill(&op, 1);
            emu_op_start(r, &op);
            emu_op_wait(r, &op);
            emu_op_fini(&op);
        }
        emu_check(r, emu_stat(r, "arena_bytes") > base, "it costs memory");
        emu_detach(c);
        r->comm = world;
        emu_barrier(r); /* all have gone: the next attach finds that */
        c = emu_attach(r, all, r->size, "sweep");
        emu_detach(c);
        emu_barrier(r);
        c = emu_attach(r, all, r->size, "sweep");
        if (k == 1)
            base = emu_stat(r, "arena_bytes");
        else if (k > 1)
            emu_check(r, emu_stat(r, "arena_bytes") == base, "round %d: %llu bytes, not %llu", k,
                      (unsigned long long)emu_stat(r, "arena_bytes"), (unsigned long long)base);
        emu_detach(c);
        emu_barrier(r);
    }
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    for (int d = 0; d < 2; d++) {
        many_t m = {.n = MANY};
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=1", .arg = &m, .deadline = 12}, many_body,
                "%s: %d tags, started forwards and backwards", name[d], MANY);
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=1 OCCL_EAGER_MAX=0 OCCL_HELPER=0", .deadline = 12},
                apart_body, "%s: devices that hold different runs, and are full", name[d]);
        if (d) {
            m.slots_taken = 1;
            m.n = 1500;
            emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=1", .arg = &m, .deadline = 12}, many_body,
                    "%s: more runs are ready than the device's queue holds", name[d]);
        }
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=2"}, deep_body,
                "%s: 400 runs of one tag in flight, in order, whatever they are", name[d]);
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=2"}, ahead_body,
                "080, %s: nothing is written before the start", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_CMA=0"}, pool_body,
                "%s: a pool region that another tag has used", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d],
                              .env = "OCCL_EMU_LANES=2 OCCL_CMA=0 OCCL_POOL_MAX=0 OCCL_EMU_CHAOS=6"}, numbers_body,
                "%s: run numbers over 2^30, 2^31, 2^32 through a link's own slots", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=2 OCCL_DIRECT_MIN=1K OCCL_ALGO=*:direct/exposed;*:twoshot/exposed"}, numbers_body,
                "%s: ... from buffer to buffer", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=2 OCCL_CMA=0 OCCL_POOL_MAX=600K"}, deep_body,
                "%s: a pool that is too small for all", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=1"}, callbacks_body,
                "%s: callbacks, once each, that start the next run", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=1"}, lives_body,
                "%s: colls and runs are given up in any order", name[d]);
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=1"}, memory_body,
                "094, %s: what a communicator costs comes back", name[d]);
    }
    return tap_done();
}
