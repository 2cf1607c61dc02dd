/* SPDX-License-Identifier: BSD-3-Clause */
/* The process: its arena, its device, its helper thread; error texts. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(OCCL_EMU) && OCCL_EMU
void (*occl_point_hook)(int point, void *ctx);
#endif

static __thread char last_error[1024];

const char *occl_last_error(void) { return last_error; }

void occl_set_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(last_error, sizeof(last_error), fmt, ap);
    va_end(ap);
}

occl_status_t occl_fail(occl_status_t status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(last_error, sizeof(last_error), fmt, ap);
    va_end(ap);
    return status;
}

char *occl_text(const char *fmt, ...)
{
    char *p = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&p, fmt, ap) < 0)
        p = NULL;
    va_end(ap);
    return p;
}

/* device_host's wake (kernels/occl_dev_sched.h): the sleeper announced itself, so change its word and wake it. */
void occl_host_wake(uint32_t *sleeping)
{
    occl_sleeper_t *s = (occl_sleeper_t *)sleeping;
    (void)__atomic_fetch_add(&s->bell, 1, __ATOMIC_RELEASE);
    (void)occl_futex_wake(&s->bell, INT32_MAX);
}

/* Zeroed, aligned to a cache line; 0: no memory, even after giving back what is only kept for later. */
uint64_t occl_ctx_alloc(occl_ctx_t *ctx, uint64_t bytes)
{
    uint64_t off = occl_arena_alloc(ctx->arena, bytes, 64);
    if (OCCL_LIKELY(off))
        return off;
    occl_pool_trim(ctx);
    occl_comm_sweep(ctx);
    return occl_arena_alloc(ctx->arena, bytes, 64);
}

static __thread int is_helper;

/* What is due of a run that was in `called`. The lock is given back and taken again meanwhile. */
static void call_before(occl_ctx_t *ctx, occl_run_t *r)
{
    if (!r->over) {
        occl_unlock(&ctx->lock);
        r->coll->args.stage->before(r->coll->args.stage);
        occl_lock(&ctx->lock);
    }
    r->staged = 2;
    if (!r->over && r->tag->n == 1 && r->coll->args.kind == OCCL_COLL_SENDRECV)
        occl_message_to_self(r);
    else if (!r->over && r->state == RUN_QUEUED && r->tag->queue.next == &r->in_tag)
        occl_run_publish(r);
    occl_run_unref(r);
}

/* Nobody else touches it now: the run is active, its tag's head. */
static void call_after(occl_ctx_t *ctx, occl_run_t *r)
{
    occl_stage_t *stage = r->coll->args.stage;
    occl_status_t status = OCCL_OK;
    if (OCCL_UNLIKELY(stage && stage->application && is_helper)) {
        occl_list_push_back(&ctx->deferred, &r->in_called);
        if (ctx->sleepers)
            occl_host_wake(&ctx->sleeper->sleeping);
        return;
    }
    occl_unlock(&ctx->lock);
    if (OCCL_UNLIKELY(stage != NULL))
        status = stage->after(stage, r->coll->args.kind == OCCL_COLL_SENDRECV ? r->bytes : UINT64_MAX);
    else
        occl_run_copy_out(r);
    occl_lock(&ctx->lock);
    r->copied = 1;
    occl_run_finish(r, status, status == OCCL_OK ? NULL : occl_text("what is done with the results has failed"));
}

static void call_back(occl_ctx_t *ctx, occl_run_t *r)
{
    void (*fn)(void *, occl_run_t *) = r->fn;
    void *state = r->fn_state;
    r->fn = NULL;
    occl_unlock(&ctx->lock);
    fn(state, r);
    occl_lock(&ctx->lock);
    occl_run_unref(r);
}

void occl_ctx_unlock(occl_ctx_t *ctx)
{
    occl_list_t *e;
    int wants;
    while (OCCL_UNLIKELY(!occl_list_empty(&ctx->deferred)) && !is_helper)
        occl_list_push_back(&ctx->called, occl_list_pop(&ctx->deferred));
    for (;;) {
        occl_run_t *r;
        if (OCCL_UNLIKELY(ctx->queues_kicked))
            occl_queues_run(ctx);
        if (OCCL_LIKELY((e = occl_list_pop(&ctx->called)) == NULL))
            break;
        r = OCCL_CONTAINER(e, occl_run_t, in_called);
        if (OCCL_UNLIKELY(r->staged == 1))
            call_before(ctx, r);
        else if (r->state == RUN_COPY)
            call_after(ctx, r);
        else
            call_back(ctx, r);
    }
    if (OCCL_UNLIKELY(ctx->sweep))
        occl_comm_sweep(ctx);
    wants = occl_ctx_wants(ctx);
    occl_unlock(&ctx->lock);
    if (wants)
        for (uint32_t i = 0; i < ctx->nfar; i++)
            if (occl_load_relaxed32(&ctx->far[i]->wants))
                ctx->far[i]->ops->far->service(ctx->far[i]);
}

static int helper_pass(void *state, int sure)
{
    occl_ctx_t *ctx = state;
    int moved = 0;
    is_helper = 1;
    if (sure)
        occl_ctx_lock(ctx);
    else if (!occl_trylock(&ctx->lock))
        return 0; /* somebody else is at it */
    ctx->n_passes++;
    moved = occl_ctx_progress(ctx, NULL, 1);
    occl_store_relaxed32(&ctx->turns, ctx->turns - 1); /* counts those of the application's threads */
    if (!moved) /* its passes are far between */
        occl_ctx_look_round(ctx, occl_host_clock_ns());
    occl_ctx_unlock(ctx);
    return moved;
}

static int helper_pending(void *state)
{
    occl_ctx_t *ctx = state;
    return (int)occl_load_relaxed32(&ctx->pending);
}

static int helper_waiters(void *state)
{
    occl_ctx_t *ctx = state;
    return (int)occl_load_relaxed32(&ctx->waiters);
}

/* Streams ring no futex, and the processor has its part in each of their runs. */
static int helper_soon(void *state)
{
    occl_ctx_t *ctx = state;
    return occl_load_relaxed32(&ctx->streamed) != 0;
}

static uint32_t helper_turns(void *state)
{
    occl_ctx_t *ctx = state;
    return occl_load_relaxed32(&ctx->turns);
}

/* What the application frees on a GPU is mapped by the peers, who shall let it go. */
static uint64_t helper_upkeep(void *state)
{
    enum { EVERY_NS = 250000000 };
    occl_ctx_t *ctx = state;
    uint32_t n = __atomic_load_n(&ctx->nfar, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n; i++)
        (void)ctx->far[i]->ops->far->upkeep(ctx->far[i]);
    return n ? EVERY_NS : OCCL_INF;
}

/* Announce (1) or take back (0) that a thread of ours is about to sleep on the bell. */
static void helper_announce(void *state, int sleeping)
{
    occl_ctx_t *ctx = state;
    occl_lock(&ctx->lock);
    ctx->sleepers += sleeping ? 1 : (uint32_t)-1;
    occl_store_relaxed32(&ctx->sleeper->sleeping, ctx->sleepers);
    occl_unlock(&ctx->lock);
}

occl_status_t occl_ctx_create(occl_device_kind_t device, int threads_are_ranks, occl_ctx_t **ctx_p, char *err, size_t errlen)
{
    const occl_device_ops_t *ops = &occl_device_host;
    occl_ctx_t *ctx = calloc(1, sizeof(*ctx));
    occl_status_t s;
    if (!ctx)
        return OCCL_ERR_RESOURCE;
    occl_lock_init(&ctx->lock);
    occl_list_init(&ctx->comms);
    occl_list_init(&ctx->active);
    occl_lock_init(&ctx->far_lock);
    occl_list_init(&ctx->bells);
    occl_list_init(&ctx->queues);
    occl_list_init(&ctx->unchecked);
    occl_list_init(&ctx->called);
    occl_list_init(&ctx->deferred);
    occl_list_init(&ctx->pool_free);
    occl_hash_init(&ctx->given);
    s = occl_env_load(&ctx->env, err, errlen);
    if (s == OCCL_OK)
        s = occl_logger_init(&ctx->log, &ctx->env, -1, err, errlen);
    if (s != OCCL_OK)
        goto fail;
    if (device == OCCL_DEVICE_EMU) {
#if defined(OCCL_EMU) && OCCL_EMU
        ops = &occl_device_emu;
#else
        snprintf(err, errlen, "this build has no emulated device");
        s = OCCL_ERR_UNSUPPORTED;
        goto fail;
#endif
    }
    ctx->threads_are_ranks = threads_are_ranks;
    ctx->ncpus = occl_topo_cpus();
    s = occl_arena_create(&ctx->env, threads_are_ranks ? OCCL_ARENA_PRIVATE : 0, &ctx->arena, err, errlen);
    if (s != OCCL_OK)
        goto fail;
    ctx->sleeper_off = occl_arena_alloc(ctx->arena, sizeof(occl_sleeper_t), 64);
    if (!ctx->sleeper_off) {
        s = OCCL_ERR_RESOURCE;
        occl_arena_error(ctx->arena, err, errlen);
        goto fail;
    }
    ctx->sleeper = occl_arena_at(ctx->arena, ctx->sleeper_off);
    s = ops->create(&ctx->env, &ctx->log, ctx->arena, &ctx->dev, err, errlen);
    if (s != OCCL_OK)
        goto fail;
    if (ctx->env.helper) {
        static const occl_helper_ops_t hops = {helper_pass, helper_pending, helper_waiters, helper_turns, helper_announce, helper_upkeep, helper_soon};
        s = occl_helper_create(&hops, ctx, &ctx->sleeper->bell, ctx->env.helper_cpu, occl_topo_current_cpu(), &ctx->log,
                               &ctx->helper, err, errlen);
        if (s != OCCL_OK)
            goto fail;
    }
    *ctx_p = ctx;
    return OCCL_OK;
fail:
    if (ctx->dev)
        ctx->dev->ops->destroy(ctx->dev);
    occl_arena_destroy(ctx->arena);
    occl_lock_fini(&ctx->lock);
    occl_lock_fini(&ctx->far_lock);
    free(ctx);
    return s;
}

static uint64_t outstanding(const occl_ctx_t *ctx)
{
    uint64_t n = ctx->dev->outstanding;
    for (uint32_t i = 0; i < ctx->nfar; i++)
        n += ctx->far[i]->outstanding;
    return n;
}

void occl_ctx_destroy(occl_ctx_t *ctx)
{
    uint64_t until;
    if (!ctx)
        return;
    occl_ctx_lock(ctx);
    ctx->closing = 1;
    /* Everything that is pending fails; what the device holds is withdrawn and comes back within a pass. */
    OCCL_LIST_EACH(c, cn, &ctx->comms, occl_comm_t, in_ctx) {
        OCCL_LIST_EACH(t1, tn1, &c->active_tags, occl_tag_t, in_active)
            occl_tag_abandon(t1);
        occl_comm_set_state(c, PEER_GONE); /* whoever reads it sees what has been abandoned */
        OCCL_LIST_EACH(t, tn, &c->active_tags, occl_tag_t, in_active)
            occl_tag_kill(t, OCCL_ERR_REVOKED, "the library was finalized while this run was pending");
    }
    until = occl_host_clock_ns() + 2000000000u;
    while (outstanding(ctx) && occl_host_clock_ns() < until) {
        (void)occl_ctx_progress(ctx, NULL, 0);
        occl_ctx_unlock(ctx);
        sched_yield();
        occl_ctx_lock(ctx);
    }
    OCCL_LIST_EACH(c2, cn2, &ctx->comms, occl_comm_t, in_ctx) {
        for (int p = 0; p < c2->size; p++)
            if (p != c2->rank && c2->member[p].sleeper && occl_load_relaxed32(&c2->member[p].sleeper->sleeping))
                occl_host_wake(&c2->member[p].sleeper->sleeping);
    }
    occl_ctx_unlock(ctx);
    occl_helper_destroy(ctx->helper);
    occl_ctx_lock(ctx);
    /* The communicators' own references (attach) are dropped: nobody can call us any more. */
    OCCL_LIST_EACH(c3, cn3, &ctx->comms, occl_comm_t, in_ctx) {
        /* Colls that were never freed still refer to it; nobody may use them now. */
        c3->refs = 1;
        occl_comm_unref(c3);
    }
    occl_comm_sweep(ctx);
    occl_queues_fini(ctx);
    ctx->pool_used = 0;
    occl_pool_trim(ctx);
    occl_ctx_unlock(ctx);
    for (uint32_t i = 0; i < ctx->nfar; i++)
        ctx->far[i]->ops->destroy(ctx->far[i]);
    ctx->dev->ops->destroy(ctx->dev);
    occl_arena_destroy(ctx->arena);
    occl_lock_fini(&ctx->lock);
    occl_lock_fini(&ctx->far_lock);
    occl_hash_fini(&ctx->given);
    free(ctx->cells);
    free(ctx);
}

const occl_env_t *occl_ctx_env(const occl_ctx_t *ctx) { return &ctx->env; }
