/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core with a device that has memory of its own, as a GPU has: links and buffers are reached by the device alone, buffers of
 * several kinds, mappings that have to be made first, and that some rank cannot make. The device is the emulated one; its memory is
 * the arena, but the core does not know.
 */
#include "emu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the device --------------------------------------------------------------------------------------------------- */

enum { EXPORTED, HIDDEN, PAGEABLE };
enum { NUMBERS = 1 << 15, DEVS = 2 * EMU_MAX_RANKS };

/* What "drivers" know, of all ranks */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct export {
    const void *p;
    int kind;
} export[NUMBERS];
static uint64_t nexports = 1;
static struct far_dev {
    occl_device_t *dev;
    occl_arena_t *arena;
    int rank;                      /* in the order in which they come */
    uint64_t wanted[256];          /* numbers that were asked for */
    int nwanted;
    unsigned char mapped[NUMBERS]; /* 1 mapped, 2 refused */
    int64_t held;
} far_dev[DEVS];
static int (*refuses)(int rank, uint64_t number); /* cannot be mapped */
static int dead_service = -1;      /* this rank's driver never comes back */
static int (*kind_of)(const void *p);

static struct far_dev *state_of(const occl_device_t *dev)
{
    for (int i = 0; i < DEVS; i++)
        if (far_dev[i].dev == dev)
            return &far_dev[i];
    bail("not a far device");
}

static occl_device_ops_t far_device;

static occl_status_t f_create(const occl_env_t *env, const occl_logger_t *log, occl_arena_t *arena, occl_device_t **dev_p, char *err,
                              size_t errlen)
{
    occl_status_t s = occl_device_emu.create(env, log, arena, dev_p, err, errlen);
    int i = 0;
    if (s != OCCL_OK)
        return s;
    (*dev_p)->ops = &far_device;
    (void)pthread_mutex_lock(&lock);
    while (far_dev[i].dev)
        i++;
    memset(&far_dev[i], 0, sizeof(far_dev[i]));
    far_dev[i].dev = *dev_p;
    far_dev[i].arena = arena;
    far_dev[i].rank = i;
    (void)pthread_mutex_unlock(&lock);
    return s;
}
static void f_destroy(occl_device_t *dev)
{
    struct far_dev *f = state_of(dev);
    if (f->held)
        diag("%lld mappings are still held", (long long)f->held);
    (void)pthread_mutex_lock(&lock);
    f->dev = NULL;
    (void)pthread_mutex_unlock(&lock);
    occl_device_emu.destroy(dev);
}
static void f_submit(occl_device_t *dev, occl_dev_run_t *run)
{
    run->words = 0; /* only where messages lie in a GPU's memory */
    occl_device_emu.submit(dev, run);
}
static void f_service(occl_device_t *dev)
{
    struct far_dev *f = state_of(dev);
    (void)pthread_mutex_lock(&lock);
    occl_store_relaxed32(&dev->wants, 0);
    while (f->nwanted && f->rank != dead_service) {
        uint64_t n = f->wanted[--f->nwanted];
        f->mapped[n] = refuses && refuses(f->rank, n) ? 2 : 1;
    }
    (void)pthread_mutex_unlock(&lock);
}
static int f_busy(const occl_device_t *dev)
{
    (void)dev;
    return 1;
}
static int f_upkeep(occl_device_t *dev)
{
    (void)dev;
    return 0;
}
static void f_describe(const occl_device_t *dev, occl_far_desc_t *d)
{
    memset(d, 0, sizeof(*d));
    d->uuid[0] = (unsigned char)(state_of(dev)->rank + 1);
    d->base = (uint64_t)(uintptr_t)occl_arena_base(state_of(dev)->arena);
    d->channels = 64;
}
static occl_status_t f_map(occl_device_t *dev, const occl_far_desc_t *desc, const void *arena, int mine, occl_far_t **far_p, char *err,
                           size_t errlen)
{
    (void)dev;
    (void)arena;
    (void)mine;
    (void)err;
    (void)errlen;
    *far_p = (occl_far_t *)(uintptr_t)desc->base;
    return OCCL_OK;
}
static void f_unmap(occl_device_t *dev, occl_far_t *far)
{
    (void)dev;
    (void)far;
}
static unsigned char *f_base(const occl_far_t *far) { return (unsigned char *)(uintptr_t)far; }
static int f_reach(const occl_far_t *far, const char **why_p)
{
    (void)far;
    *why_p = NULL;
    return OCCL_EXPOSE_MAPPED;
}
static void f_reserve_channels(occl_device_t *dev, uint32_t n, uint32_t sharing)
{
    (void)dev;
    (void)n;
    (void)sharing;
}
static int f_op_valid(uint32_t op, uint32_t type)
{
    (void)op;
    (void)type;
    return 1;
}
static uint64_t f_alloc(occl_device_t *dev, uint64_t bytes) { return occl_arena_alloc(state_of(dev)->arena, bytes, 64); }
static void f_free(occl_device_t *dev, uint64_t off, uint64_t bytes) { (void)occl_arena_free(state_of(dev)->arena, off, bytes); }
static void f_fill(occl_device_t *dev, uint64_t off, uint64_t stride, uint32_t n, uint64_t value)
{
    for (uint32_t i = 0; i < n; i++)
        occl_store_relaxed64((uint64_t *)((char *)occl_arena_at(state_of(dev)->arena, off) + i * stride), value);
}
/* The emulated device follows the host's plans and links as they stand. */
static occl_bound_t *f_bind(occl_device_t *dev, size_t plan_bytes, const occl_link_t *links, uint32_t nlinks, uint64_t *at_p,
                            void **image_p)
{
    void *p = calloc(1, plan_bytes);
    (void)dev;
    (void)links;
    (void)nlinks;
    *at_p = (uint64_t)(uintptr_t)p;
    *image_p = p;
    return p;
}
static void f_load(occl_device_t *dev, occl_bound_t *b)
{
    (void)dev;
    (void)b;
}
static void f_unbind(occl_device_t *dev, occl_bound_t *b)
{
    (void)dev;
    free(b);
}
static int f_place(occl_device_t *dev, occl_dev_run_t *run)
{
    (void)dev;
    (void)run;
    return 1;
}
static void f_forget(occl_device_t *dev, occl_dev_run_t *run)
{
    (void)dev;
    (void)run;
}
static int f_ticket_take(occl_device_t *dev, occl_ticket_t *t)
{
    (void)dev;
    (void)t;
    return 0;
}
static int f_ticket_rung(const occl_device_t *dev, const occl_ticket_t *t)
{
    (void)dev;
    (void)t;
    return 1;
}
static void f_ticket_over(occl_device_t *dev, const occl_ticket_t *t)
{
    (void)dev;
    (void)t;
}
static occl_status_t f_stream_check(occl_device_t *dev, void *s, char *err, size_t errlen)
{
    (void)dev;
    (void)s;
    (void)snprintf(err, errlen, "no streams here");
    return OCCL_ERR_UNSUPPORTED;
}
static occl_status_t f_stream(occl_device_t *dev, const occl_ticket_t *t, void *s, char *err, size_t errlen)
{
    (void)t;
    return f_stream_check(dev, s, err, errlen);
}

static occl_status_t f_buffer(occl_device_t *dev, const void *p, uint64_t bytes, int expose, occl_buffer_t *b, char *err, size_t errlen)
{
    int kind = kind_of ? kind_of(p) : EXPORTED;
    (void)dev;
    (void)err;
    (void)errlen;
    b->number = b->offset = 0;
    b->bytes = bytes;
    if (kind == PAGEABLE) {
        if (!b->bounce || b->room < bytes) {
            free(b->bounce);
            b->bounce = malloc(bytes);
            b->room = bytes;
        }
        memset(b->bounce, 0x77, bytes);
        b->at = (uint64_t)(uintptr_t)b->bounce;
        return OCCL_OK;
    }
    b->at = (uint64_t)(uintptr_t)p;
    if (kind == HIDDEN || !expose)
        return OCCL_OK;
    (void)pthread_mutex_lock(&lock);
    for (uint64_t i = 1; i < nexports && !b->number; i++)
        if (export[i].p == p)
            b->number = i;
    if (!b->number) {
        if (nexports == NUMBERS)
            bail("too many exports");
        b->number = nexports++;
        export[b->number].p = p;
    }
    (void)pthread_mutex_unlock(&lock);
    return OCCL_OK;
}
static void f_buffer_free(occl_device_t *dev, occl_buffer_t *b)
{
    (void)dev;
    free(b->bounce);
    b->bounce = NULL;
}
static int f_resolve(occl_device_t *dev, occl_far_t *far, uint64_t number, uint64_t offset, uint64_t *at_p, void **hold_p,
                     const char **why_p)
{
    struct far_dev *f = state_of(dev);
    int r = 0;
    (void)far;
    *hold_p = NULL;
    *at_p = 0;
    if (!number)
        return 1;
    (void)pthread_mutex_lock(&lock);
    if (f->mapped[number] == 1) {
        *at_p = (uint64_t)(uintptr_t)export[number].p + offset;
        *hold_p = f;
        f->held++;
        r = 1;
    } else if (f->mapped[number] == 2) {
        *why_p = "refused by the test";
        r = -1;
    } else if (f->mapped[number] == 0) {
        f->mapped[number] = 3;
        f->wanted[f->nwanted++ % 256] = number;
        occl_store_relaxed32(&dev->wants, 1);
    } else {
        occl_store_relaxed32(&dev->wants, 1);
    }
    (void)pthread_mutex_unlock(&lock);
    return r;
}
static void f_release(occl_device_t *dev, void **hold, uint32_t n)
{
    struct far_dev *f = state_of(dev);
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n; i++) {
        f->held -= hold[i] != NULL;
        hold[i] = NULL;
    }
    (void)pthread_mutex_unlock(&lock);
}
static occl_status_t f_mem_alloc(occl_device_t *dev, uint64_t bytes, int expose, void **p_p, char *err, size_t errlen)
{
    (void)dev;
    (void)expose;
    (void)err;
    (void)errlen;
    *p_p = malloc(bytes ? bytes : 1);
    return OCCL_OK;
}
static int f_mem_free(occl_device_t *dev, void *p)
{
    (void)dev;
    free(p);
    return 1;
}
static occl_status_t f_mem_register(occl_device_t *dev, void *p, uint64_t bytes, int expose, char *err, size_t errlen)
{
    (void)dev;
    (void)p;
    (void)bytes;
    (void)expose;
    (void)snprintf(err, errlen, "not this");
    return OCCL_ERR_UNSUPPORTED;
}
static int f_mem_unregister(occl_device_t *dev, void *p)
{
    (void)dev;
    (void)p;
    return 0;
}
static void f_counts(occl_device_t *dev, uint64_t *exports_p, uint64_t *imports_p)
{
    (void)dev;
    *exports_p = *imports_p = 0;
}

static const occl_device_far_ops_t far_ops = {
    .service = f_service, .busy = f_busy, .upkeep = f_upkeep, .describe = f_describe, .map = f_map, .unmap = f_unmap, .base = f_base,
    .reach = f_reach, .reserve_channels = f_reserve_channels, .op_valid = f_op_valid, .alloc = f_alloc, .free = f_free, .fill = f_fill,
    .bind = f_bind, .load = f_load, .unbind = f_unbind, .place = f_place, .forget = f_forget, .ticket_take = f_ticket_take,
    .ticket_rung = f_ticket_rung, .ticket_over = f_ticket_over, .stream_check = f_stream_check, .stream_start = f_stream,
    .stream_wait = f_stream, .buffer = f_buffer, .buffer_free = f_buffer_free, .resolve = f_resolve, .release = f_release,
    .mem_alloc = f_mem_alloc, .mem_free = f_mem_free, .mem_register = f_mem_register, .mem_unregister = f_mem_unregister,
    .counts = f_counts};

/* --- the tests ---------------------------------------------------------------------------------------------------- */

static const char env[] = "OCCL_DEVICE=cuda OCCL_DIRECT_MIN=4K OCCL_EMU_SLOTS=4 OCCL_EMU_CHANNELS=2";

static int by_address(const void *p) { return (int)((uintptr_t)p >> 6 ^ (uintptr_t)p >> 12) % 3; }
static int pageable(const void *p)
{
    (void)p;
    return PAGEABLE;
}
static int third(int rank, uint64_t number) { return rank == 1 && number % 3 == 0; }
static int all_of_one(int rank, uint64_t number)
{
    (void)number;
    return rank == 2;
}

/* Random collectives, many tags at once, each three times. */
static void random_body(emu_rank_t *r)
{
    enum { N = 12 };
    emu_op_t op[N];
    occl_rng_t shared;
    int order[N];
    occl_rng_seed(&shared, *(uint64_t *)r->arg, 77);
    for (int round = 0; round < 6 && !emu_failed(r); round++) {
        for (int i = 0; i < N; i++)
            emu_op_random(&op[i], r->comm, i, &shared, i % 2 ? 20000 : 500);
        for (int turn = 0; turn < 3; turn++) {
            for (int i = 0; i < N; i++) {
                int k = (int)occl_rng_below(&r->rng, (uint64_t)i + 1);
                order[i] = order[k];
                order[k] = i;
            }
            for (int i = 0; i < N; i++) {
                emu_op_fill(&op[order[i]], (uint64_t)(100 * round + turn));
                emu_op_start(r, &op[order[i]]);
                emu_dawdle(r, 100000);
            }
            for (int i = 0; i < N; i++)
                emu_op_wait(r, &op[i]);
        }
        for (int i = 0; i < N; i++)
            emu_op_fini(&op[i]);
        emu_barrier(r);
    }
    emu_check(r, state_of(r->comm->dev)->held == 0, "mappings are held though all runs are over");
}

/* A large all-reduce; how many of this rank's runs went through slots. */
static uint64_t large(emu_rank_t *r, int tag, int times)
{
    uint64_t was = emu_stat(r, "hidden_runs");
    emu_op_t op;
    emu_op_init(&op, r->comm, tag, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 30000, 0);
    for (int i = 0; i < times; i++) {
        emu_op_fill(&op, (uint64_t)i);
        emu_op_start(r, &op);
        emu_op_wait(r, &op);
    }
    emu_op_fini(&op);
    return emu_stat(r, "hidden_runs") - was;
}

static void straight_body(emu_rank_t *r)
{
    emu_check(r, large(r, 1, 4) == 0, "a run went through slots");
    emu_check(r, large(r, 1, 2) == 0, "a run went through slots");
}

static void refused_body(emu_rank_t *r)
{
    emu_check(r, large(r, 1, 4) == 4, "not all runs went through slots");
    emu_barrier(r);
    if (r->rank == 0) {
        (void)pthread_mutex_lock(&lock);
        refuses = NULL;
        (void)pthread_mutex_unlock(&lock);
    }
    emu_barrier(r);
}

/* One rank never gets its mappings: the others wait, until it goes. */
static void gone_body(emu_rank_t *r)
{
    emu_op_t op;
    emu_op_init(&op, r->comm, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 30000, 0);
    emu_op_fill(&op, 1);
    emu_op_start(r, &op);
    emu_barrier(r);
    if (state_of(r->comm->dev)->rank == dead_service) {
        int gone = 1;
        emu_sleep(20000000);
        (void)occl_coll_cancel(op.coll, &gone);
        emu_check(r, !gone, "a run whose gate the others have opened was withdrawn");
        occl_coll_free(op.coll); /* goes with its run */
        op.coll = NULL;
        emu_finalize(r);
    } else {
        occl_status_t s = emu_op_outcome(r, &op);
        emu_check(r, s == OCCL_ERR_PEER_FAILED || s == OCCL_ERR_REVOKED, "the outcome is %s", occl_status_name(s));
    }
    emu_op_fini(&op);
}

/* Copies: only what the operation writes is written, and only when it succeeds. */
static void copies_body(emu_rank_t *r)
{
    enum { N = 3000 };
    int32_t *x = malloc(N * sizeof(*x));
    occl_coll_args_t a;
    occl_coll_t *coll;
    occl_run_t *run;
    occl_status_t s;
    int gone;
    /* A message that is shorter than the buffer */
    if (r->rank < 2) {
        for (int i = 0; i < N; i++)
            x[i] = r->rank ? -1 : i;
        a = (occl_coll_args_t){.kind = OCCL_COLL_SENDRECV, .type = OCCL_T_I32, .root = -1, .peer = 1 - r->rank, .sender = !r->rank,
                               .count = r->rank ? N : 1000, .send = r->rank ? NULL : x, .recv = r->rank ? x : NULL};
        emu_check(r, occl_start(r->comm, 1, &a, &run) == OCCL_OK, "%s", occl_last_error());
        occl_run_wait(run);
        emu_check(r, occl_run_status(run) == OCCL_OK && occl_run_bytes(run) == 4000, "%s", occl_run_error(run));
        occl_run_release(run);
        for (int i = 0; i < N; i++)
            emu_check(r, x[i] == (r->rank && i >= 1000 ? -1 : i), "element %d is %d", i, x[i]);
    }
    /* The root's buffer of a broadcast is not written */
    for (int i = 0; i < N; i++)
        x[i] = i + 5 * r->rank;
    a = (occl_coll_args_t){.kind = OCCL_COLL_BCAST, .type = OCCL_T_I32, .root = 1, .count = N, .recv = x};
    emu_check(r, occl_coll_create(r->comm, 2, &a, &coll) == OCCL_OK, "%s", occl_last_error());
    emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK, "%s", occl_last_error());
    if (r->rank == 1)
        x[7] = 4711; /* not to be done by a program */
    (void)occl_coll_wait(coll, &s);
    for (int i = 0; i < N; i++)
        emu_check(r, s == OCCL_OK && x[i] == (r->rank == 1 && i == 7 ? 4711 : i + 5), "element %d is %d", i, x[i]);
    occl_coll_free(coll);
    /* Withdrawn, and started again with other data; then a mismatch */
    for (int i = 0; i < N; i++)
        x[i] = 3;
    a = (occl_coll_args_t){.kind = OCCL_COLL_ALLREDUCE, .type = OCCL_T_I32, .op = OCCL_OP_SUM, .root = -1, .count = N, .recv = x,
                           .in_place = 1};
    emu_check(r, occl_coll_create(r->comm, 3, &a, &coll) == OCCL_OK, "%s", occl_last_error());
    if (r->rank) {
        emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK, "%s", occl_last_error());
        (void)occl_coll_cancel(coll, &gone);
        emu_check(r, gone && x[0] == 3 && x[N - 1] == 3, "not withdrawn, or written");
    }
    emu_barrier(r);
    for (int i = 0; i < N; i++)
        x[i] = r->rank + i;
    emu_check(r, occl_coll_start(coll, NULL) == OCCL_OK, "%s", occl_last_error());
    (void)occl_coll_wait(coll, &s);
    for (int i = 0; i < N; i++)
        emu_check(r, s == OCCL_OK && x[i] == r->size * i + r->size * (r->size - 1) / 2, "element %d is %d", i, x[i]);
    occl_coll_free(coll);
    for (int i = 0; i < N; i++)
        x[i] = 9;
    a.count = r->rank ? N : N - 1;
    emu_check(r, occl_start(r->comm, 4, &a, &run) == OCCL_OK, "%s", occl_last_error());
    occl_run_wait(run);
    emu_check(r, occl_run_status(run) == OCCL_ERR_MISMATCH, "%s", occl_run_error(run));
    occl_run_release(run);
    for (int i = 0; i < N; i++)
        emu_check(r, x[i] == 9, "element %d is %d after a failure", i, x[i]);
    free(x);
}

int main(void)
{
    emu_conf_t c = {.device = OCCL_DEVICE_HOST, .env = env};
    uint64_t seed = 1;
    far_device = occl_device_emu;
    far_device.create = f_create;
    far_device.destroy = f_destroy;
    far_device.submit = f_submit;
    far_device.far = &far_ops;
    occl_emu_far = &far_device;
    c.arg = &seed;
    for (c.ranks = 2; c.ranks <= 4; c.ranks++) {
        kind_of = NULL;
        emu_run(&c, straight_body, "%d ranks: large runs go straight", c.ranks);
        emu_run(&c, random_body, "%d ranks: random collectives", c.ranks);
        kind_of = by_address;
        seed++;
        emu_run(&c, random_body, "%d ranks: buffers of all kinds", c.ranks);
        kind_of = pageable;
        emu_run(&c, random_body, "%d ranks: pageable buffers", c.ranks);
        emu_run(&c, copies_body, "%d ranks: what is copied and what is not", c.ranks);
        kind_of = NULL;
        refuses = third;
        emu_run(&c, random_body, "%d ranks: rank 1 cannot map one in three", c.ranks);
        refuses = NULL;
    }
    c.ranks = 3;
    refuses = all_of_one;
    emu_run(&c, refused_body, "a rank that can map nothing: all go through slots");
    refuses = NULL;
    dead_service = 2;
    emu_run(&c, gone_body, "a rank that never gets its mappings, and goes");
    return tap_done();
}
