/* SPDX-License-Identifier: BSD-3-Clause */
/* Looking inside: statistics by name, and the text of everything that is pending. */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Of all channels of a communicator's device, or of all devices. */
static uint64_t chan_sum(const occl_ctx_t *ctx, const occl_comm_t *comm, size_t member)
{
    uint64_t sum = 0;
    occl_chan_stats_t one;
    for (uint32_t i = 0; i <= ctx->nfar; i++) {
        const occl_device_t *dev = i ? ctx->far[i - 1] : ctx->dev;
        if (comm && comm->dev != dev)
            continue;
        dev->ops->stats(dev, &one);
        sum += *(const uint64_t *)((const char *)&one + member);
    }
    return sum;
}
#define CHAN(name) chan_sum(ctx, comm, offsetof(occl_chan_stats_t, name))
#define DEV(field) device_sum(ctx, comm, offsetof(occl_device_t, field))
static uint64_t device_sum(const occl_ctx_t *ctx, const occl_comm_t *comm, size_t member)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= ctx->nfar; i++) {
        const occl_device_t *dev = i ? ctx->far[i - 1] : ctx->dev;
        if (!comm || comm->dev == dev)
            sum += *(const uint64_t *)((const char *)dev + member);
    }
    return sum;
}

/* What is exported to peers (0), or mapped of theirs (1), on devices that have memory of their own. */
static uint64_t far_counts(const occl_ctx_t *ctx, const occl_comm_t *comm, int which)
{
    uint64_t sum = 0, n[2];
    for (uint32_t i = 0; i < ctx->nfar; i++) {
        occl_device_t *dev = ctx->far[i];
        if (comm && comm->dev != dev)
            continue;
        dev->ops->far->counts(dev, &n[0], &n[1]);
        sum += n[which];
    }
    return sum;
}

/* X(name, value with a communicator, value of the process) */
#define STAT_TABLE(X)                                                        \
    X(starts, comm->n_starts, ctx->n_starts)                                 \
    X(pending, comm->pending, ctx->pending)                                  \
    X(mismatches, comm->n_mismatch, ctx->n_mismatch)                         \
    X(colls, comm->n_colls, 0)                                               \
    X(tags, comm->tags.count, 0)                                             \
    X(tag_bytes, comm->tag_bytes, 0)                                         \
    X(tag_bytes_max, comm->tag_bytes_max, 0)                                 \
    X(single_copy, comm->exposed != 0, 0)                                        \
    X(runs, CHAN(runs), CHAN(runs))                                          \
    X(preemptions, CHAN(preemptions), CHAN(preemptions))                     \
    X(parks, CHAN(parks), CHAN(parks))                                       \
    X(quits, CHAN(quits), CHAN(quits))                                       \
    X(polls, CHAN(polls), CHAN(polls))                                       \
    X(steps, CHAN(steps), CHAN(steps))                                       \
    X(launches, DEV(launches), DEV(launches))                                \
    X(outstanding, DEV(outstanding), DEV(outstanding))                       \
    X(channels, comm->nchannels, ctx->dev->nchannels)                        \
    X(gates_opened, ctx->n_gates, ctx->n_gates)                              \
    X(gated_runs, ctx->n_gated, ctx->n_gated)                                \
    X(eager_runs, ctx->n_eager, ctx->n_eager)                                \
    X(pooled_runs, ctx->n_pool, ctx->n_pool)                                 \
    X(hidden_runs, ctx->n_hidden, ctx->n_hidden)                             \
    X(exports, far_counts(ctx, comm, 0), far_counts(ctx, comm, 0))           \
    X(mappings, far_counts(ctx, comm, 1), far_counts(ctx, comm, 1))          \
    X(failed_runs, ctx->n_failed, ctx->n_failed)                             \
    X(withdrawn_runs, ctx->n_withdrawn, ctx->n_withdrawn)                    \
    X(sleeps, ctx->n_sleeps, ctx->n_sleeps)                                  \
    X(pool_bytes, ctx->pool_used, ctx->pool_used)                            \
    X(pool_bytes_peak, ctx->pool_peak, ctx->pool_peak)                       \
    X(arena_bytes, occl_arena_used(ctx->arena), occl_arena_used(ctx->arena)) \
    X(arena_bytes_peak, occl_arena_peak(ctx->arena), occl_arena_peak(ctx->arena)) \
    X(helper_threads, ctx->helper ? 1 : 0, ctx->helper ? 1 : 0)              \
    X(helper_passes, ctx->n_passes, ctx->n_passes)                           \
    X(helper_cpu_ns, ctx->helper ? __atomic_load_n(&ctx->helper->cpu_ns, __ATOMIC_RELAXED) : 0, \
      ctx->helper ? __atomic_load_n(&ctx->helper->cpu_ns, __ATOMIC_RELAXED) : 0)

const char *occl_stat_name(int i)
{
    static const char *const names[] = {
#define X(name, of_comm, of_ctx) #name,
        STAT_TABLE(X)
#undef X
    };
    return i >= 0 && i < (int)(sizeof(names) / sizeof(names[0])) ? names[i] : NULL;
}

occl_status_t occl_get_stat(occl_ctx_t *ctx, occl_comm_t *comm, const char *name, uint64_t *value_p)
{
    occl_status_t s = OCCL_ERR_ARG;
    occl_ctx_lock(ctx);
#define X(n, of_comm, of_ctx)                                \
    if (s != OCCL_OK && !strcmp(name, #n)) {                 \
        *value_p = comm ? (uint64_t)(of_comm) : (uint64_t)(of_ctx); \
        s = OCCL_OK;                                         \
    }
    STAT_TABLE(X)
#undef X
    occl_ctx_unlock(ctx);
    return s == OCCL_OK ? s : occl_fail(s, "there is no statistic named \"%s\"", name);
}

static const char *state_text(occl_run_state_t s)
{
    static const char *const names[] = {"queued behind an earlier run of its tag",
                                        "waiting for members to start it",
                                        "ready, waiting for room on the device",
                                        "running",
                                        "done here, waiting to see that all members agree",
                                        "done, being copied out of a bounce buffer",
                                        "failed, waiting for members to start it",
                                        "over"};
    return names[s];
}

void occl_comm_dump(occl_comm_t *c, void (*put)(void *state, const char *text), void *state)
{
    occl_strbuf_t b;
    char *text, label[96];
    occl_strbuf_init(&b);
    occl_ctx_lock(c->ctx);
    occl_strbuf_printf(&b, "%s: rank %d of %d, device %s, %llu runs pending, %llu on the device\n", c->name, c->rank, c->size,
                       c->dev->ops->name, (unsigned long long)c->pending, (unsigned long long)c->dev->outstanding);
    OCCL_LIST_EACH(t, tn, &c->active_tags, occl_tag_t, in_active) {
        occl_tag_check(t);
        OCCL_LIST_EACH(r, rn, &t->queue, occl_run_t, in_tag) {
            int any = 0;
            occl_strbuf_printf(&b, "  %s run %llu: ", occl_tag_label(t, label, sizeof(label)), (unsigned long long)r->n);
            if (r->coll)
                occl_strbuf_printf(&b, "%s of %llu elements, ", occl_coll_name(r->coll->args.kind),
                                   (unsigned long long)r->coll->args.count);
            occl_strbuf_add(&b, state_text(r->state));
            if (r->state == RUN_DEVICE && r->dev.plan)
                occl_strbuf_printf(&b, " (%s, section %u step %u iteration %llu)", r->dev.plan->algo,
                                   occl_load_relaxed32(&r->dev.st[0].section), occl_load_relaxed32(&r->dev.st[0].pc),
                                   (unsigned long long)occl_load_relaxed64(&r->dev.st[0].iter));
            if (r->state != RUN_QUEUED) {
                for (uint32_t i = 0; i < t->n; i++) {
                    if (i == t->me || t->seen[i] >= r->n)
                        continue;
                    occl_strbuf_printf(&b, "%s%s", any++ ? ", " : "; not started by ", c->member[t->member[i]].name);
                }
            }
            occl_strbuf_add(&b, "\n");
            if (occl_list_empty(&t->queue))
                break;
        }
    }
    occl_ctx_unlock(c->ctx);
    text = occl_strbuf_take(&b);
    put(state, text ? text : "no memory for a dump\n");
    free(text);
}
