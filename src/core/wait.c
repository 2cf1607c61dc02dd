/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Progress and waiting. Every wait of the core is here: it spins for OCCL_SPIN (doing the work itself), then yields, then sleeps on
 * the bell with a doubling bound, so that it neither misses anything for long nor occupies a core.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "core/internal.h"

#include <sched.h>
#include <stdlib.h>

enum { NEWS_EVERY = 16, BUSY_NEWS_EVERY = 64, PEERS_EVERY_NS = 200000000, YIELD_NS = 200000, SLEEP_MIN_NS = 50000, SLEEP_MAX_NS = 20000000, SLEEP_HOOK_NS = 1000000,
       SLEEP_BUSY_NS = 50000 };

/* The first that may go: all may, but on a far device those that have a place there when no other is free. */
static occl_run_t *next_waiting(occl_device_t *dev)
{
    OCCL_LIST_EACH(r, next, &dev->waiting, occl_run_t, in_room) {
        if (dev->ops->far && !dev->ops->far->place(dev, &r->dev))
            continue;
        occl_list_remove(&r->in_room);
        return r;
    }
    return NULL;
}

static int drain(occl_ctx_t *ctx, occl_device_t *dev)
{
    uint32_t what;
    occl_dev_run_t *d;
    occl_run_t *r;
    int any = 0;
    while ((d = dev->ops->pop(dev, &what)) != NULL) {
        occl_device_event(ctx, d, what);
        any |= what != OCCL_CQ_PARKED; /* going round in circles is no progress */
    }
    while (OCCL_UNLIKELY(!occl_list_empty(&dev->waiting)) && dev->outstanding < dev->room && (r = next_waiting(dev)) != NULL) {
        occl_run_submit(r);
        any = 1;
    }
    return any;
}

static int drive(occl_ctx_t *ctx, occl_device_t *dev, uint32_t patient, uint32_t news)
{
    int any;
    if (!dev->outstanding)
        return 0;
    any = (int)dev->ops->poll(dev, patient, news);
    any |= drain(ctx, dev);
    if (OCCL_UNLIKELY(occl_load_relaxed32(&dev->wants) && __atomic_load_n(&dev->broken, __ATOMIC_ACQUIRE) != NULL))
        occl_device_lost(ctx, dev);
    return any;
}

static int drive_all(occl_ctx_t *ctx, uint32_t patient, uint32_t news)
{
    int any = drive(ctx, ctx->dev, patient, news);
    for (uint32_t i = 0; OCCL_UNLIKELY(i < ctx->nfar); i++)
        any |= drive(ctx, ctx->far[i], patient, news);
    return any;
}

/* Completions may come that ring no bell. */
static int busy(const occl_ctx_t *ctx)
{
    for (uint32_t i = 0; i < ctx->nfar; i++)
        if (ctx->far[i]->outstanding && ctx->far[i]->ops->far->busy(ctx->far[i]))
            return 1;
    return !occl_list_empty(&ctx->bells);
}

/* Now and then, while something is pending: who waits for long, who has gone. */
void occl_ctx_look_round(occl_ctx_t *ctx, uint64_t now)
{
    if (now - ctx->checked_peers_at <= PEERS_EVERY_NS)
        return;
    ctx->checked_peers_at = now;
    if (ctx->env.t_warn && ctx->env.t_warn != OCCL_INF) {
        OCCL_LIST_EACH(c, next, &ctx->active, occl_comm_t, in_active)
            occl_comm_warn_late(c, now);
    }
    OCCL_LIST_EACH(c2, next2, &ctx->active, occl_comm_t, in_active)
        occl_comm_check_peers(c2);
}

/*
 * One bounded pass, under the lock. `focus` is the run that the caller waits for: its gate is looked at directly, the others' by
 * their news, and not every time.
 */
int occl_ctx_progress(occl_ctx_t *ctx, occl_run_t *focus, uint32_t patient)
{
    uint32_t news = 0;
    int any;
    occl_store_relaxed32(&ctx->turns, ctx->turns + 1);
    any = drive_all(ctx, patient, 0);
    if (OCCL_UNLIKELY(!occl_list_empty(&ctx->bells)))
        any |= occl_bells_check(ctx);
    if (focus && (focus->state == RUN_GATE || focus->state == RUN_VERIFY)) {
        occl_run_state_t before = focus->state;
        occl_tag_check(focus->tag);
        if (focus->state != before) {
            any = 1;
            if (focus->state == RUN_DEVICE)
                (void)drive(ctx, focus->comm->dev, patient, 1);
        }
    }
    if (any) {
        /* However busy: other tags' gates open by their news only. */
        ctx->idle_passes = 0;
        if (OCCL_LIKELY(++ctx->busy_passes % BUSY_NEWS_EVERY))
            return 1;
        if (ctx->busy_passes % 4096 == 0)
            occl_ctx_look_round(ctx, occl_host_clock_ns());
    } else if ((++ctx->idle_passes % NEWS_EVERY) != 1 && focus && patient) {
        return 0;
    }
    if (occl_list_empty(&ctx->active))
        return any;
    /* Each once: one that waits for the driver to map something comes back to the list's end. */
    for (uint32_t n = occl_list_length(&ctx->unchecked); n && !occl_list_empty(&ctx->unchecked); n--) {
        occl_list_t *e = occl_list_pop(&ctx->unchecked);
        occl_tag_check(OCCL_CONTAINER(e, occl_tag_t, in_unchecked));
    }
    OCCL_LIST_EACH(c, next, &ctx->active, occl_comm_t, in_active)
        news |= (uint32_t)occl_comm_read_news(c);
    if (news)
        (void)drive_all(ctx, patient, 1);
    if (ctx->idle_passes % 1024 == 1)
        occl_ctx_look_round(ctx, occl_host_clock_ns());
    return any | (int)news;
}

int occl_progress(occl_ctx_t *ctx)
{
    static __thread int inside; /* an MPI's progress hook may be called from within our own pass */
    int any;
    if (inside || !occl_load_relaxed32(&ctx->pending))
        return 0;
    if (!occl_trylock(&ctx->lock))
        return 0;
    inside = 1;
    any = occl_ctx_progress(ctx, NULL, 0);
    occl_ctx_unlock(ctx);
    inside = 0;
    return any;
}

void occl_ctx_set_wait_hook(occl_ctx_t *ctx, void (*fn)(void *state), void *state)
{
    ctx->wait_hook = fn;
    ctx->wait_hook_state = state;
}

/*
 * The one wait. `over` is asked without the lock.
 */
static void wait_loop(occl_ctx_t *ctx, occl_run_t *focus, int (*over)(void *), void *state)
{
    /* With more ranks than processors a spinning waiter keeps the very peer from running that it waits for. */
    const uint64_t spin = ctx->oversubscribed ? 0 : ctx->env.spin;
    uint64_t start = 0, sleep = SLEEP_MIN_NS, now;
    enum { SPIN, YIELD, SLEEP } phase = spin ? SPIN : YIELD;
    uint32_t passes = 0, seen = 0, slept = 0;
    occl_ctx_lock(ctx);
    occl_store_relaxed32(&ctx->waiters, ctx->waiters + 1);
    while (!over(state)) {
        int moved;
        if (phase == SLEEP) {
            OCCL_POINT(ANNOUNCING, ctx);
            seen = __atomic_load_n(&ctx->sleeper->bell, __ATOMIC_ACQUIRE);
            occl_store_relaxed32(&ctx->sleeper->sleeping, ++ctx->sleepers);
            occl_fence_sys(); /* announced; now look once more: a peer posts, fences, looks who sleeps */
            OCCL_POINT(ANNOUNCED, ctx);
            ctx->idle_passes = 0;
        }
        moved = occl_ctx_progress(ctx, focus, phase == SPIN);
        if (phase == SLEEP) {
            if (!moved && !over(state) && !occl_ctx_has_calls(ctx) && !ctx->queues_kicked) {
                int bounded = busy(ctx);
                ctx->n_sleeps++;
                slept++;
                occl_ctx_unlock(ctx);
                if (ctx->wait_hook)
                    ctx->wait_hook(ctx->wait_hook_state);
                OCCL_POINT(SLEEPING, ctx);
                (void)occl_futex_wait(&ctx->sleeper->bell, seen, bounded && sleep > SLEEP_BUSY_NS ? SLEEP_BUSY_NS : sleep);
                occl_ctx_lock(ctx);
                if (sleep < (ctx->wait_hook ? SLEEP_HOOK_NS : SLEEP_MAX_NS))
                    sleep *= 2;
                occl_ctx_look_round(ctx, occl_host_clock_ns());
            }
            occl_store_relaxed32(&ctx->sleeper->sleeping, --ctx->sleepers);
        }
        if (occl_ctx_has_calls(ctx) || ctx->queues_kicked) {
            occl_ctx_unlock(ctx);
            occl_ctx_lock(ctx);
            moved = 1;
        } else if (occl_ctx_wants(ctx)) {
            occl_ctx_unlock(ctx);
            occl_ctx_lock(ctx);
        }
        if (moved) {
            passes = 0;
            start = 0;
            sleep = SLEEP_MIN_NS;
            phase = spin ? SPIN : YIELD;
            continue;
        }
        if (phase == SLEEP)
            continue;
        passes++;
        if (phase == YIELD) {
            occl_ctx_unlock(ctx);
            if (ctx->wait_hook && passes % 8 == 0)
                ctx->wait_hook(ctx->wait_hook_state);
            (void)sched_yield();
            occl_ctx_lock(ctx);
        } else if (OCCL_UNLIKELY(occl_load_relaxed32(&ctx->lock_wanted))) {
            occl_ctx_unlock(ctx);
            (void)sched_yield();
            occl_ctx_lock(ctx);
        }
        if (passes % 8)
            continue;
        now = occl_host_clock_ns();
        if (!start)
            start = now;
        phase = now - start < spin ? SPIN : now - start < spin + YIELD_NS ? YIELD : SLEEP;
    }
    occl_store_relaxed32(&ctx->waiters, ctx->waiters - 1);
    if (slept > 8 && !ctx->waiters) /* some milliseconds: by now it looks in rarely */
        occl_helper_resume(ctx->helper);
    occl_ctx_unlock(ctx);
}

static int run_over(void *state) { return (int)occl_load_acquire32(&((occl_run_t *)state)->over); }

int occl_run_is_over(const occl_run_t *run) { return (int)occl_load_acquire32(&run->over); }

int occl_run_test(occl_run_t *run)
{
    occl_ctx_t *ctx;
    if (occl_run_is_over(run))
        return 1;
    ctx = run->comm->ctx;
    occl_ctx_lock(ctx);
    (void)occl_ctx_progress(ctx, run, 0);
    occl_ctx_unlock(ctx);
    return occl_run_is_over(run);
}

void occl_run_wait(occl_run_t *run)
{
    if (!occl_run_is_over(run))
        wait_loop(run->comm->ctx, run, run_over, run);
}

void occl_wait_until(occl_ctx_t *ctx, int (*poll)(void *state), void *state) { wait_loop(ctx, NULL, poll, state); }

occl_status_t occl_coll_test(occl_coll_t *coll, int *done_p, occl_status_t *outcome_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_ctx_lock(ctx);
    if (coll->active)
        (void)occl_ctx_progress(ctx, coll->active, 0);
    *done_p = coll->active == NULL;
    *outcome_p = coll->active ? OCCL_OK : coll->outcome;
    occl_ctx_unlock(ctx);
    return OCCL_OK;
}

occl_status_t occl_coll_wait(occl_coll_t *coll, occl_status_t *outcome_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_run_t *r;
    occl_ctx_lock(ctx);
    r = coll->active;
    if (!r) {
        *outcome_p = coll->outcome;
        occl_ctx_unlock(ctx);
        return OCCL_OK;
    }
    occl_run_ref(r);
    occl_ctx_unlock(ctx);
    wait_loop(ctx, r, run_over, r);
    occl_ctx_lock(ctx);
    *outcome_p = r->status;
    occl_run_unref(r);
    occl_ctx_unlock(ctx);
    return OCCL_OK;
}

const char *occl_coll_error(occl_coll_t *coll) { return coll->text ? coll->text : ""; }
occl_status_t occl_run_status(const occl_run_t *run) { return run->status; }
const char *occl_run_error(const occl_run_t *run) { return run->text ? run->text : ""; }
uint64_t occl_run_bytes(const occl_run_t *run) { return run->bytes; }
occl_comm_t *occl_run_comm(const occl_run_t *run) { return run->comm; }

void occl_run_release(occl_run_t *run)
{
    occl_ctx_t *ctx = run->comm->ctx;
    occl_ctx_lock(ctx);
    occl_run_unref(run);
    occl_ctx_unlock(ctx);
}

void occl_run_set_callback(occl_run_t *run, void (*fn)(void *state, occl_run_t *run), void *state)
{
    occl_ctx_t *ctx = run->comm->ctx;
    occl_ctx_lock(ctx);
    run->fn = fn;
    run->fn_state = state;
    if (run->over) {
        occl_run_ref(run);
        occl_list_push_back(&ctx->called, &run->in_called);
    }
    occl_ctx_unlock(ctx);
}
