/* SPDX-License-Identifier: BSD-3-Clause */
/* Promise 2 and the device: what programs do to a GPU while collectives wait on it, and what waits of ours may do to them. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull

static void run_some(emu_rank_t *r, int tag, uint64_t count, int times)
{
    emu_op_t op;
    emu_op_init(&op, r->comm, tag, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, count, 0);
    for (int k = 0; k < times; k++) {
        emu_op_fill(&op, (uint64_t)k);
        emu_op_start(r, &op);
        emu_op_wait(r, &op);
    }
    emu_op_fini(&op);
}

/* --- lanes, channels, slots, chaos --------------------------------------------------------------------------------- */

static void mixed_body(emu_rank_t *r)
{
    enum { N = 10 };
    const int *rounds = r->arg;
    emu_op_t op[N];
    int order[N];
    occl_rng_t shared;
    occl_rng_seed(&shared, (uint64_t)*rounds, 3);
    for (int i = 0; i < N; i++)
        emu_op_random(&op[i], r->comm, i, &shared, i % 2 ? 6000 : 300);
    for (int k = 0; k < *rounds; k++) {
        for (int i = 0; i < N; i++)
            order[i] = i;
        occl_rng_shuffle(&r->rng, order, N);
        for (int i = 0; i < N; i++) {
            emu_op_fill(&op[order[i]], (uint64_t)k);
            emu_op_start(r, &op[order[i]]);
        }
        occl_rng_shuffle(&r->rng, order, N);
        for (int i = 0; i < N; i++)
            emu_op_wait(r, &op[order[i]]);
    }
    for (int i = 0; i < N; i++)
        emu_op_fini(&op[i]);
}

/* --- 027: no free SM ------------------------------------------------------------------------------------------------ */

static void full_body(emu_rank_t *r)
{
    occl_emu_kernel_t *k = NULL;
    emu_op_t op;
    emu_op_init(&op, r->comm, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 9000, 0);
    emu_op_fill(&op, 1);
    run_some(r, 0, 9000, 2);
    if (r->rank == 0) {
        k = occl_emu_kernel_start(emu_dev(r), 3, OCCL_INF); /* all slots */
        occl_emu_kernel_resident(k);
    }
    emu_barrier(r);
    emu_op_start(r, &op);
    if (r->rank == 0) {
        emu_sleep(20 * MS);
        emu_check(r, op.coll->active != NULL, "nothing can run while the application has all slots");
        emu_check(r, occl_emu_resident(emu_dev(r)) == 0, "no block of ours is on the GPU");
        occl_emu_kernel_stop(k);
        occl_emu_kernel_join(k);
    }
    emu_op_wait(r, &op);
    /* All but one for the whole time: three channels take turns in the one that is left. */
    if (r->rank == 0) {
        k = occl_emu_kernel_start(emu_dev(r), 2, OCCL_INF);
        occl_emu_kernel_resident(k);
    }
    run_some(r, 2, 9000, 5);
    run_some(r, 3, 50, 5);
    if (r->rank == 0) {
        occl_emu_kernel_stop(k);
        occl_emu_kernel_join(k);
    }
    emu_op_fini(&op);
}

/* --- 018, 020: synchronising calls while a member is absent --------------------------------------------------------- */

typedef struct sync {
    int first_launch; /* else synchronise */
    uint64_t count;
    int busy;         /* another tag runs without end meanwhile */
} sync_t;

static void busy_thread(emu_rank_t *t)
{
    if (t->thread == 1) {
        int n = 0;
        emu_op_t op;
        emu_op_init(&op, t->comm, 9, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 3000, 0);
        /* Until rank 0 says so, in the round that it says. */
        for (;; n++) {
            emu_op_fill(&op, (uint64_t)n);
            if (t->rank == 0)
                emu_set(t, 3, emu_get(t, 2) ? (uint64_t)n + 1 : 0);
            emu_op_start(t, &op);
            emu_op_wait(t, &op);
            if (t->rank == 0) {
                uint64_t last = emu_get(t, 3);
                emu_set(t, 4, last ? (uint64_t)n + 2 : (uint64_t)n + 1); /* round n is over; was it the last? */
                emu_set(t, 5, last);
                emu_set(t, 6, (uint64_t)n + 1);
                if (last)
                    break;
            } else {
                emu_wait_for(t, 6, (uint64_t)n + 1);
                if (emu_get(t, 5) == (uint64_t)n + 1)
                    break;
            }
        }
        emu_op_fini(&op);
        return;
    }
    {
        const sync_t *s = t->arg;
        emu_op_t op;
        uint64_t worst = 0;
        emu_op_init(&op, t->comm, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, s->count, 0);
        for (uint64_t k = 0; k < 6; k++) {
            emu_op_fill(&op, k);
            if (t->rank == 0) {
                emu_op_start(t, &op);
                for (int i = 0; i < 8; i++) {
                    uint64_t ns = s->first_launch ? occl_emu_first_launch(emu_dev(t)) : occl_emu_synchronize(emu_dev(t));
                    worst = ns > worst ? ns : worst;
                }
                emu_check(t, op.coll->active != NULL, "member 1 is absent");
                emu_set(t, 1, k + 1);
            } else {
                emu_wait_for(t, 1, k + 1); /* comes only after all those calls have returned */
                emu_op_start(t, &op);
            }
            emu_op_wait(t, &op);
        }
        emu_check(t, (double)worst < 0.05e9 * tap_slack(), "a synchronising call took %.1f ms", (double)worst / 1e6);
        emu_op_fini(&op);
        if (t->rank == 0)
            emu_set(t, 2, 1);
    }
}

static void sync_body(emu_rank_t *r)
{
    const sync_t *s = r->arg;
    emu_threads(r, s->busy ? 2 : 1, busy_thread);
}

/* --- 097: a waiting library leaves the GPU --------------------------------------------------------------------------- */

static void idle_body(emu_rank_t *r)
{
    emu_op_t small, large;
    emu_op_init(&small, r->comm, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20, 0);
    emu_op_init(&large, r->comm, 2, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    emu_op_fill(&small, 1);
    emu_op_fill(&large, 1);
    run_some(r, 1, 20, 2);
    run_some(r, 2, 20000, 2);
    if (r->rank == 0) {
        uint64_t launches;
        int on = 0;
        /* Gated: never goes to the GPU. */
        while (occl_emu_resident(emu_dev(r)))
            emu_sleep(MS);
        launches = emu_stat(r, "launches");
        emu_op_start(r, &large);
        emu_sleep(50 * MS);
        emu_check(r, emu_stat(r, "launches") == launches, "a run that is not ready anywhere else launches nothing");
        emu_check(r, occl_emu_resident(emu_dev(r)) == 0, "and nothing is resident");
        /* Not gated: goes there, finds nobody, leaves; comes back to look, but seldom. */
        emu_op_start(r, &small);
        for (int i = 0; i < 200; i++) {
            emu_sleep(MS / 2);
            on += occl_emu_resident(emu_dev(r)) != 0;
        }
        launches = emu_stat(r, "launches") - launches;
        emu_check(r, launches < 200, "%d launches in about 100 ms", (int)launches);
        emu_check(r, on < 150, "resident in %d of 200 samples", on);
        emu_check(r, emu_stat(r, "quits") > 0, "it quits");
        emu_set(r, 1, 1);
    } else {
        emu_wait_for(r, 1, 1);
        emu_op_start(r, &small);
        emu_op_start(r, &large);
    }
    emu_op_wait(r, &small);
    emu_op_wait(r, &large);
    for (int i = 0; i < 2000 && occl_emu_resident(emu_dev(r)); i++)
        emu_sleep(MS);
    emu_check(r, occl_emu_resident(emu_dev(r)) == 0, "with nothing to do it leaves for good");
    emu_op_fini(&small);
    emu_op_fini(&large);
}

/* --- a table full of runs that wait -------------------------------------------------------------------------------- */

static void full_table_body(emu_rank_t *r)
{
    enum { N = OCCL_TABLE_MAX + 30 };
    emu_op_t *op = calloc(N + 1, sizeof(*op)), *ready = &op[N];
    for (int i = 0; i <= N; i++) {
        emu_op_init(&op[i], r->comm, i, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, i == N ? 3000 : 5, 0);
        emu_op_fill(&op[i], (uint64_t)i);
    }
    /* Links exist after a first run, and then small ones need no gate. */
    for (int i = 0; i < N; i++)
        emu_op_start(r, &op[i]);
    for (int i = 0; i < N; i++)
        emu_op_wait(r, &op[i]);
    for (uint64_t round = 1; round < 5; round++) {
        for (int i = 0; i < N; i++)
            emu_op_fill(&op[i], round * 1000 + (uint64_t)i);
        emu_barrier(r);
        /* Rank 0 has more runs waiting on the device than a channel's table holds, when one comes that could run. */
        for (int i = 0; i < N && r->rank == 0; i++)
            emu_op_start(r, &op[i]);
        for (uint64_t k = 0; k < 3; k++) {
            emu_op_fill(ready, k);
            emu_op_start(r, ready);
            emu_op_wait(r, ready);
        }
        emu_barrier(r);
        for (int i = N - 1; i >= 0 && r->rank; i--)
            emu_op_start(r, &op[i]);
        for (int i = 0; i < N; i++)
            emu_op_wait(r, &op[i]);
    }
    if (r->rank == 0)
        emu_check(r, emu_stat(r, "parks") > 0, "runs have been parked");
    for (int i = 0; i <= N; i++)
        emu_op_fini(&op[i]);
    free(op);
}

/* --- the host's part ------------------------------------------------------------------------------------------------ */

/* A larger communicator comes while channels are on the GPU: their lists grow. */
static void grow_thread(emu_rank_t *t)
{
    static const int pair[2] = {0, 1};
    if (t->thread == 1 && t->rank < 2) {
        occl_comm_t *c = emu_attach(t, pair, 2, "pair");
        emu_op_t op;
        emu_op_init(&op, c, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 10000, 0);
        for (uint64_t k = 0; k < 40; k++) {
            emu_op_fill(&op, k);
            emu_op_start(t, &op);
            emu_op_wait(t, &op);
        }
        emu_op_fini(&op);
        emu_detach(c);
    } else if (t->thread == 0) {
        for (int n = 2; n <= t->size; n++) {
            int list[EMU_MAX_RANKS];
            char name[16];
            for (int i = 0; i < n; i++)
                list[i] = i;
            (void)snprintf(name, sizeof(name), "first%d", n);
            if (t->rank < n) {
                occl_comm_t *c = emu_attach(t, list, n, name), *world = t->comm;
                t->comm = c;
                run_some(t, 2, 500, 2);
                t->comm = world;
                emu_detach(c);
            }
        }
    }
}

static void grow_body(emu_rank_t *r) { emu_threads(r, 2, grow_thread); }

/* After the first run of a collective, nothing that would be an allocation, a free or a synchronise on a GPU. */
static void calls_body(emu_rank_t *r)
{
    occl_emu_counts_t a, b;
    run_some(r, 1, 5000, 2);
    emu_barrier(r);
    occl_emu_counts(emu_dev(r), &a);
    run_some(r, 1, 5000, 30);
    occl_emu_counts(emu_dev(r), &b);
    emu_check(r, a.allocs == b.allocs && a.frees == b.frees && a.syncs == b.syncs, "no such call");
    emu_check(r, b.launches > a.launches, "launches, though");
    emu_barrier(r);
}

/* The memory of a member cannot be reached: an error for all, in time. */
static void fault_body(emu_rank_t *r)
{
    emu_op_t op;
    occl_status_t s;
    if (r->rank == 1) {
        occl_ctx_lock(r->ctx);
        r->comm->via[0] = OCCL_VIA_FAIL_PULL | OCCL_VIA_FAIL_PUSH;
        occl_ctx_unlock(r->ctx);
    }
    emu_op_init(&op, r->comm, 5, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 80000, 0);
    emu_op_fill(&op, 1);
    emu_op_start(r, &op);
    s = emu_op_outcome(r, &op);
    emu_check(r, s == OCCL_ERR_PEER_FAILED, "%s: %s", occl_status_name(s), occl_coll_error(op.coll));
    emu_check(r, r->rank == 1 || strstr(occl_coll_error(op.coll), "member 1"), "who: %s", occl_coll_error(op.coll));
    emu_op_start(r, &op);
    emu_check(r, emu_op_outcome(r, &op) != OCCL_OK, "the tag is lost");
    run_some(r, 6, 50, 2); /* others are not */
    emu_barrier(r);        /* members that were in the middle of it may have read my buffer until they failed, too */
    emu_op_fini(&op);
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    static const int lanes[] = {1, 4, 8};
    int rounds = 4;
    for (int i = 0; i < 3; i++) {
        for (int c = 1; c <= 3; c++) {
            for (int chaos = 0; chaos < 2; chaos++) {
                char env[200];
                /* One slot, so that blocks take turns; or as many as channels */
                (void)snprintf(env, sizeof(env), "OCCL_EMU_LANES=%d OCCL_MAX_CHANNELS=%d OCCL_EMU_SLOTS=%d OCCL_EMU_CHAOS=%d "
                               "OCCL_CMA=%d OCCL_EAGER_MAX=%s", lanes[i], c, chaos ? 1 : c, chaos ? 10 * i + c : 0, (i + c) % 2,
                               c == 2 ? "0" : "4K");
                emu_run(&(emu_conf_t){.ranks = 3, .device = OCCL_DEVICE_EMU, .env = env, .arg = &rounds, .seed = (uint64_t)(i + c),
                                      .deadline = 12}, mixed_body, "mixed collectives: %s", env);
            }
        }
    }
    /* All channels on the GPU at a time, and there when runs come: what they hand each other is ordered by nothing but their words. */
    for (int i = 0; i < 2; i++)
        emu_run(&(emu_conf_t){.ranks = 3, .device = OCCL_DEVICE_EMU, .arg = &rounds, .deadline = 12, .seed = 9,
                              .env = i ? "OCCL_MAX_CHANNELS=3 OCCL_EMU_SLOTS=3 OCCL_EMU_LANES=1 OCCL_LINGER=5ms OCCL_RESIDENCE=50ms"
                                       : "OCCL_MAX_CHANNELS=3 OCCL_EMU_SLOTS=3 OCCL_EMU_LANES=2 OCCL_LINGER=5ms OCCL_RESIDENCE=50ms "
                                         "OCCL_EMU_CHAOS=5"}, mixed_body,
                "mixed collectives, three channels that stay together%s", i ? "" : ", with delays");
    emu_run(&(emu_conf_t){.ranks = 2, .device = OCCL_DEVICE_EMU,
                          .env = "OCCL_MAX_CHANNELS=3 OCCL_EMU_SLOTS=3 OCCL_EMU_LANES=2"}, full_body,
            "027: the application has all slots, or all but one");
    for (int i = 0; i < 8; i++) {
        sync_t s = {.first_launch = i & 1, .count = i & 2 ? 20000 : 20, .busy = i >> 2};
        /* Busy: there is always something to do again before the daemon would leave for want of it. */
        emu_run(&(emu_conf_t){.ranks = 2, .device = OCCL_DEVICE_EMU, .arg = &s,
                              .env = s.busy ? "OCCL_EMU_LANES=2 OCCL_LINGER=1s" : "OCCL_EMU_LANES=2"}, sync_body,
                "%s while a member is absent, count %d%s", s.first_launch ? "020: first launch of a kernel" : "018: synchronise",
                (int)s.count, s.busy ? ", and another tag runs without end" : "");
    }
    emu_run(&(emu_conf_t){.ranks = 2, .device = OCCL_DEVICE_EMU, .env = "OCCL_EMU_LANES=1 OCCL_RESIDENCE=50ms"}, idle_body,
            "097: what waits is not on the GPU");
    for (int d = 0; d < 2; d++) {
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=1"}, full_table_body,
                "%s: runs that wait make room for one that can run", name[d]);
        if (d)
            emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_EMU_LANES=1 OCCL_MAX_CHANNELS=2 OCCL_EMU_SLOTS=1"},
                    full_table_body, "%s, two channels: runs that wait make room for one that can run", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=2 OCCL_MAX_CHANNELS=2"}, fault_body,
                "%s: memory out of reach is an error for all", name[d]);
    }
    emu_run(&(emu_conf_t){.ranks = 6, .device = OCCL_DEVICE_EMU, .env = "OCCL_EMU_LANES=2", .no_world = 1}, grow_body,
            "larger communicators come while channels are on the GPU");
    emu_run(&(emu_conf_t){.ranks = 2, .device = OCCL_DEVICE_EMU, .env = "OCCL_EMU_LANES=2"}, calls_body,
            "018: no allocating, freeing or synchronising call on the way");
    return tap_done();
}
