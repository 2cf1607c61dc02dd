/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the layer above does around each run (occl_stage_t): once before and once after it, in whatever order ranks start and wait; not
 * too early in a queue; what only the application may do is left to its threads; withdrawn and failed runs; messages to oneself.
 */
#include "emu.h"

#include <pthread.h>
#include <stdlib.h>

enum { N = 700, TAGS = 6 };

typedef struct {
    occl_stage_t core; /* first */
    int32_t user_in[N], user_out[N], in[N * 4], out[N * 4];
    int before, after, held, released, outside, fails, after_without_before;
    pthread_t thread;  /* of the application */
} stage_t;

static void before(occl_stage_t *core)
{
    stage_t *s = (stage_t *)core;
    (void)__atomic_fetch_add(&s->before, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < N; i++)
        s->in[i] = 2 * s->user_in[i];
}
static occl_status_t after(occl_stage_t *core, uint64_t received)
{
    stage_t *s = (stage_t *)core;
    (void)__atomic_fetch_add(&s->after, 1, __ATOMIC_RELAXED);
    s->outside |= s->core.application && !pthread_equal(s->thread, pthread_self());
    s->after_without_before |= s->after > s->before;
    for (int i = 0; i < N && (received == UINT64_MAX || (uint64_t)i * 4 < received); i++)
        s->user_out[i] = s->out[i] + 1;
    return s->fails ? OCCL_ERR_OP : OCCL_OK;
}
static void retain(occl_stage_t *core) { (void)__atomic_fetch_add(&((stage_t *)core)->held, 1, __ATOMIC_RELAXED); }
static void release(occl_stage_t *core) { (void)__atomic_fetch_add(&((stage_t *)core)->released, 1, __ATOMIC_RELAXED); }

static stage_t *stage_new(int application)
{
    stage_t *s = calloc(1, sizeof(*s));
    s->core = (occl_stage_t){before, after, retain, release, application};
    s->thread = pthread_self();
    return s;
}
static occl_coll_args_t sum_of(stage_t *s)
{
    return (occl_coll_args_t){.kind = OCCL_COLL_ALLREDUCE, .type = OCCL_T_I32, .op = OCCL_OP_SUM, .root = -1, .count = N, .send = s->in,
                              .recv = s->out, .stage = &s->core};
}
static void fill(stage_t *s, int rank, int salt)
{
    for (int i = 0; i < N; i++)
        s->user_in[i] = rank * 100 + salt * 7 + i, s->user_out[i] = -1;
}
static int is_sum(const stage_t *s, int size, int salt)
{
    for (int i = 0; i < N; i++)
        if (s->user_out[i] != 2 * (size * (salt * 7 + i) + 100 * size * (size - 1) / 2) + 1)
            return 0;
    return 1;
}

/* Persistent ones on several tags, started and waited for in an order of each rank's own. */
static void order_body(emu_rank_t *r)
{
    stage_t *s[TAGS];
    occl_coll_t *coll[TAGS];
    occl_status_t outcome;
    int good = 1;
    for (int t = 0; t < TAGS; t++) {
        occl_coll_args_t a;
        s[t] = stage_new(t & 1);
        a = sum_of(s[t]);
        emu_check(r, occl_coll_create(r->comm, t, &a, &coll[t]) == OCCL_OK, "%s", occl_last_error());
    }
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < TAGS; i++) {
            int t = (i * (r->rank % 2 ? 5 : 1) + r->rank + k) % TAGS;
            fill(s[t], r->rank, k + t);
            good &= occl_coll_start(coll[t], NULL) == OCCL_OK;
            emu_dawdle(r, 200000);
        }
        for (int i = 0; i < TAGS; i++) {
            int t = (i * 5 + 2 * r->rank + 3) % TAGS, done = 0;
            if (i % 3 == 0)
                for (; !done; emu_sleep(20000))
                    good &= occl_coll_test(coll[t], &done, &outcome) == OCCL_OK;
            good &= occl_coll_wait(coll[t], &outcome) == OCCL_OK && outcome == OCCL_OK && is_sum(s[t], r->size, k + t);
            good &= s[t]->before == k + 1 && s[t]->after == k + 1 && !s[t]->outside;
        }
    }
    emu_check(r, good, "sums of what `before` has made, once before and once after each run");
    for (int t = 0; t < TAGS; t++) {
        occl_coll_free(coll[t]);
        emu_check(r, s[t]->held == 1 && s[t]->released == 1, "the stage is let go with the collective");
        free(s[t]);
    }
}

/* The application sleeps. What the helper may do it does; what is the application's it leaves, and the run is over when that comes. */
static void asleep_body(emu_rank_t *r)
{
    for (int application = 0; application < 2; application++) {
        stage_t *s = stage_new(application);
        occl_coll_args_t a = sum_of(s);
        occl_run_t *run = NULL;
        uint64_t until = occl_clock_ns() + 2000000000u;
        fill(s, r->rank, 3);
        emu_check(r, occl_start(r->comm, application, &a, &run) == OCCL_OK, "%s", occl_last_error());
        if (application) {
            emu_sleep(30000000);
            emu_check(r, !__atomic_load_n(&s->after, __ATOMIC_RELAXED) && !occl_run_is_over(run), "nobody else has done it");
        } else {
            while (!occl_run_is_over(run) && occl_clock_ns() < until)
                emu_sleep(1000000);
            emu_check(r, occl_run_is_over(run), "the helper has done it all");
        }
        occl_run_wait(run);
        emu_check(r, is_sum(s, r->size, 3) && s->before == 1 && s->after == 1 && !s->outside, "and it is right");
        occl_run_release(run);
        emu_barrier(r);
        free(s);
    }
}

/* Withdrawn as long as another one has not come, then started again. */
static void cancel_body(emu_rank_t *r)
{
    stage_t *s = stage_new(0);
    occl_coll_args_t a = sum_of(s);
    occl_coll_t *coll;
    occl_status_t outcome;
    int gone = 0;
    emu_check(r, occl_coll_create(r->comm, 1, &a, &coll) == OCCL_OK, "%s", occl_last_error());
    if (r->rank == 0) {
        for (int k = 0; k < 3; k++) {
            fill(s, 50, 50);
            emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK && occl_coll_cancel(coll, &gone) == OCCL_OK && gone, "withdrawn");
        }
    }
    emu_barrier(r);
    fill(s, r->rank, 1);
    emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK && occl_coll_wait(coll, &outcome) == OCCL_OK && outcome == OCCL_OK && is_sum(s, r->size, 1),
              "then it counts, with what was there then");
    emu_check(r, s->after == 1 && !s->after_without_before, "`after` is for runs that have results");
    s->fails = 1;
    fill(s, r->rank, 2);
    emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK && occl_coll_wait(coll, &outcome) == OCCL_OK && outcome == OCCL_ERR_OP,
              "what `after` says is the outcome");
    s->fails = 0;
    fill(s, r->rank, 3);
    emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK && occl_coll_wait(coll, &outcome) == OCCL_OK && outcome == OCCL_OK && is_sum(s, r->size, 3),
              "and the next one is fine");
    occl_coll_free(coll);
    free(s);
}

/* In a queue behind something that is late: not packed before its turn. And messages to oneself. */
static void queue_body(emu_rank_t *r)
{
    stage_t *s = stage_new(1), *m[2] = {stage_new(0), stage_new(0)};
    occl_coll_args_t a = sum_of(s), late = {.kind = OCCL_COLL_BARRIER, .root = -1};
    occl_hqueue_t *q;
    occl_run_t *run[2];
    emu_check(r, occl_hqueue_create(r->ctx, &q) == OCCL_OK, "%s", occl_last_error());
    if (r->rank != 0) {
        fill(s, r->rank, 9);
        emu_check(r, occl_enqueue(r->comm, 1, &late, OCCL_QUEUE_HOST, q) == OCCL_OK && occl_enqueue(r->comm, 2, &a, OCCL_QUEUE_HOST, q) == OCCL_OK,
                  "%s", occl_last_error());
        emu_sleep(5000000);
        emu_check(r, !__atomic_load_n(&s->before, __ATOMIC_RELAXED), "its turn has not come");
        fill(s, r->rank, 4); /* what the queue's earlier work would have made */
    }
    emu_barrier(r);
    if (r->rank == 0) {
        fill(s, 0, 4);
        emu_check(r, occl_enqueue(r->comm, 1, &late, OCCL_QUEUE_HOST, q) == OCCL_OK && occl_enqueue(r->comm, 2, &a, OCCL_QUEUE_HOST, q) == OCCL_OK,
                  "%s", occl_last_error());
    }
    emu_check(r, occl_hqueue_synchronize(q) == OCCL_OK && is_sum(s, r->size, 4) && s->before == 1 && s->after == 1, "what was there at its turn");
    occl_hqueue_free(q);
    for (int k = 0; k < 2; k++) {
        a = (occl_coll_args_t){.kind = OCCL_COLL_SENDRECV, .type = OCCL_T_I32, .root = -1, .peer = r->rank, .sender = k, .count = k ? 100 : N,
                               .send = k ? m[k]->in : NULL, .recv = k ? NULL : m[k]->out, .stage = &m[k]->core};
        fill(m[k], r->rank, 5);
        emu_check(r, occl_start(r->comm, 3, &a, &run[k]) == OCCL_OK, "%s", occl_last_error());
    }
    occl_run_wait(run[0]);
    occl_run_wait(run[1]);
    emu_check(r, m[0]->user_out[99] == 2 * m[1]->user_in[99] + 1 && m[0]->user_out[100] == -1 && occl_run_bytes(run[0]) == 400,
              "a message to oneself, and no more of it than has come");
    occl_run_release(run[0]);
    occl_run_release(run[1]);
    emu_barrier(r);
    free(s);
    free(m[0]);
    free(m[1]);
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    for (int d = 0; d < 2; d++) {
        for (int n = 1; n <= 4; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d], .seed = (uint64_t)n}, order_body,
                    "%s, %d ranks: around each run once, in any order", name[d], n);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_CMA=0 OCCL_POOL_MAX=0"}, order_body,
                "%s, 3 ranks: the same through slots alone", name[d]);
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d]}, asleep_body, "%s: the helper does what it may, and leaves what it may not", name[d]);
        for (int n = 2; n <= 3; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d]}, cancel_body, "%s, %d ranks: withdrawn, failed, and again", name[d], n);
        for (int n = 2; n <= 3; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d]}, queue_body, "%s, %d ranks: in a queue; to oneself", name[d], n);
    }
    return tap_done();
}
