/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream-ordered starts. A run that is enqueued takes its place n in the tag's order at once and is held: nothing of it is
 * published before its queue has come to it. So host-started and enqueued runs of one tag share one order, and a peer sees an
 * enqueued run exactly as it sees one that is started later.
 *
 * Host queues are lists of starts and waits. A start releases its run; a wait holds back what is behind it until its run is over.
 * They go on whenever the lock is released after one of their runs has ended.
 *
 * CUDA streams write a word when they come to a start, and wait for another (occl_device_far_ops_t.ticket_take). Whoever makes
 * progress looks at the first and releases the run; the second is written when the run is over, whatever its outcome: a
 * failure must not hold a stream for ever, and is the communicator's (occl_comm_take_error).
 */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct item {
    occl_list_t in_queue;
    occl_run_t *run;  /* referenced */
    int wait;
} item_t;

struct occl_hqueue {
    occl_list_t in_ctx;
    occl_ctx_t *ctx;
    occl_list_t items;
    uint32_t nitems;  /* release; read without the lock */
    int freed;
};

/* --- what became of them ------------------------------------------------------------------------------------------ */

/* Tickets of CUDA streams that are out: ctx.streamed. False: none is free. */
static int take_ticket(occl_comm_t *c, occl_ticket_t *t)
{
    if (!c->dev->ops->far->ticket_take(c->dev, t))
        return 0;
    occl_store_relaxed32(&c->ctx->streamed, c->ctx->streamed + 1);
    return 1;
}

static void give_ticket(occl_comm_t *c, occl_ticket_t *t)
{
    c->dev->ops->far->ticket_over(c->dev, t);
    occl_store_relaxed32(&c->ctx->streamed, c->ctx->streamed - 1);
    t->value = 0;
}

/* A run that a queue started is over. */
void occl_run_enqueued_over(occl_run_t *r)
{
    occl_comm_t *c = r->comm;
    occl_list_remove(&r->in_bells);
    if (r->ticket.value)
        give_ticket(c, &r->ticket);
    c->ctx->queues_kicked = !occl_list_empty(&c->ctx->queues);
    /* A refusal was told by the call. */
    if (r->status != OCCL_OK && r->status != OCCL_ERR_CANCELLED && r->refused == OCCL_OK && c->enqueue_error == OCCL_OK) {
        (void)snprintf(c->enqueue_text, sizeof(c->enqueue_text), "%s", r->text ? r->text : "");
        __atomic_store_n(&c->enqueue_error, r->status, __ATOMIC_RELAXED);
    }
}

occl_status_t occl_comm_take_error(occl_comm_t *comm, char *text, size_t len)
{
    occl_status_t s;
    if (text && len)
        text[0] = '\0';
    /* Asked by every start: the lock only for what there is to take. Relaxed: under the lock it is looked at again. */
    if (OCCL_LIKELY(__atomic_load_n(&comm->enqueue_error, __ATOMIC_RELAXED) == OCCL_OK))
        return OCCL_OK;
    occl_ctx_lock(comm->ctx);
    s = comm->enqueue_error;
    if (s != OCCL_OK && text && len)
        (void)snprintf(text, len, "%s", comm->enqueue_text);
    __atomic_store_n(&comm->enqueue_error, OCCL_OK, __ATOMIC_RELAXED);
    occl_ctx_unlock(comm->ctx);
    return s;
}

/* --- host queues -------------------------------------------------------------------------------------------------- */

static void item_drop(occl_hqueue_t *q, item_t *i)
{
    occl_list_remove(&i->in_queue);
    occl_run_unref(i->run);
    free(i);
    __atomic_store_n(&q->nitems, q->nitems - 1, __ATOMIC_RELEASE);
}

static void queue_run(occl_hqueue_t *q)
{
    while (!occl_list_empty(&q->items)) {
        item_t *i = OCCL_CONTAINER(q->items.next, item_t, in_queue);
        if (i->wait && !occl_load_acquire32(&i->run->over))
            return;
        if (!i->wait)
            occl_run_unhold(i->run);
        item_drop(q, i);
    }
    if (q->freed) {
        occl_list_remove(&q->in_ctx);
        free(q);
    }
}

void occl_queues_run(occl_ctx_t *ctx)
{
    while (ctx->queues_kicked) { /* a start may end a run at once */
        ctx->queues_kicked = 0;
        OCCL_LIST_EACH(q, next, &ctx->queues, occl_hqueue_t, in_ctx)
            queue_run(q);
    }
}

/* All runs have ended; what is left in queues of the user is theirs to free, and nobody can. */
void occl_queues_fini(occl_ctx_t *ctx)
{
    OCCL_LIST_EACH(q, next, &ctx->queues, occl_hqueue_t, in_ctx) {
        while (!occl_list_empty(&q->items))
            item_drop(q, OCCL_CONTAINER(q->items.next, item_t, in_queue));
        occl_list_remove(&q->in_ctx);
        if (q->freed)
            free(q);
    }
}

occl_status_t occl_hqueue_create(occl_ctx_t *ctx, occl_hqueue_t **q_p)
{
    occl_hqueue_t *q = calloc(1, sizeof(*q));
    if (!q)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a queue");
    q->ctx = ctx;
    occl_list_init(&q->items);
    occl_list_init(&q->in_ctx);
    occl_ctx_lock(ctx);
    if (ctx->closing) {
        occl_ctx_unlock(ctx);
        free(q);
        return occl_fail(OCCL_ERR_REVOKED, "the library is being finalized");
    }
    occl_list_push_back(&ctx->queues, &q->in_ctx);
    occl_ctx_unlock(ctx);
    *q_p = q;
    return OCCL_OK;
}

void occl_hqueue_free(occl_hqueue_t *q)
{
    occl_ctx_t *ctx = q->ctx;
    occl_ctx_lock(ctx);
    q->freed = 1;
    if (occl_list_empty(&q->items)) {
        occl_list_remove(&q->in_ctx);
        free(q);
    }
    occl_ctx_unlock(ctx);
}

static int queue_empty(void *state) { return __atomic_load_n(&((occl_hqueue_t *)state)->nitems, __ATOMIC_ACQUIRE) == 0; }

occl_status_t occl_hqueue_synchronize(occl_hqueue_t *q)
{
    occl_wait_until(q->ctx, queue_empty, q);
    return OCCL_OK;
}

/* Under the lock. Takes a reference of the run's. */
static occl_status_t queue_add(occl_hqueue_t *q, occl_run_t *run, int wait)
{
    item_t *i = calloc(1, sizeof(*i));
    if (!i)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a queue's entry");
    i->run = run;
    i->wait = wait;
    occl_run_ref(run);
    occl_list_push_back(&q->items, &i->in_queue);
    __atomic_store_n(&q->nitems, q->nitems + 1, __ATOMIC_RELEASE);
    q->ctx->queues_kicked = 1;
    return OCCL_OK;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

int occl_bells_check(occl_ctx_t *ctx)
{
    int any = 0;
    OCCL_LIST_EACH(r, next, &ctx->bells, occl_run_t, in_bells) {
        if (!r->comm->dev->ops->far->ticket_rung(r->comm->dev, &r->ticket))
            continue;
        occl_run_unhold(r);
        any = 1;
    }
    return any;
}

/* --- both --------------------------------------------------------------------------------------------------------- */

static occl_status_t check(const occl_comm_t *c, int type, void *queue)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    char err[256];
    occl_status_t s;
    if (type != OCCL_QUEUE_HOST && type != OCCL_QUEUE_CUDA_STREAM)
        return occl_fail(OCCL_ERR_ARG, "queue type %d is neither MPIX_OCCL_QUEUE_HOST nor MPIX_OCCL_QUEUE_CUDA_STREAM", type);
    if (type == OCCL_QUEUE_HOST && (far || !queue))
        return far ? occl_fail(OCCL_ERR_UNSUPPORTED, "a host queue cannot be used on a communicator of the %s device", c->dev->ops->name)
                   : occl_fail(OCCL_ERR_ARG, "the queue is NULL");
    if (type == OCCL_QUEUE_CUDA_STREAM && !far)
        return occl_fail(OCCL_ERR_UNSUPPORTED, "a CUDA stream cannot be used on a communicator of the %s device", c->dev->ops->name);
    if (!far)
        return OCCL_OK;
    s = far->stream_check(c->dev, queue, err, sizeof(err));
    return s == OCCL_OK ? s : occl_fail(s, "%s", err);
}

/* A start that has its place but cannot be put into the stream: the members are told. */
static void refuse(occl_run_t *r, occl_status_t why)
{
    r->refused = why;
    occl_run_unhold(r);
}

/* *placed_p: it has its place, also if it fails afterwards. */
static occl_status_t start(occl_coll_t *coll, void *queue, occl_run_t **run_p, int *placed_p)
{
    occl_comm_t *c = coll->comm;
    occl_ctx_t *ctx = c->ctx;
    const occl_device_far_ops_t *far = c->dev->ops->far;
    occl_ticket_t ticket = {0, 0};
    occl_run_t *r = NULL;
    occl_status_t s;
    char err[256];
    if (coll->sbuf.bounce || coll->rbuf.bounce)
        return occl_fail(OCCL_ERR_UNSUPPORTED, "pageable host memory cannot be used in stream order on the %s device: the copy would "
                                               "need the processor (use pinned or device memory)", c->dev->ops->name);
    s = occl_coll_refresh(coll);
    if (s != OCCL_OK)
        return s;
    occl_ctx_lock(ctx);
    if (far && !take_ticket(c, &ticket))
        s = occl_fail(OCCL_ERR_RESOURCE, "too many enqueued operations are under way");
    if (s == OCCL_OK) {
        s = occl_coll_start_held(coll, &r);
        if (s != OCCL_OK && far)
            give_ticket(c, &ticket);
    }
    if (s == OCCL_OK && !far) {
        s = queue_add(queue, r, 0);
        if (s != OCCL_OK)
            refuse(r, s);
    }
    if (s == OCCL_OK)
        r->ticket = ticket;
    occl_ctx_unlock(ctx);
    *placed_p = r != NULL;
    if (s != OCCL_OK && !r)
        return s;
    if (s == OCCL_OK && far) {
        s = far->stream_start(c->dev, &ticket, queue, err, sizeof(err));
        occl_ctx_lock(ctx);
        if (s != OCCL_OK) {
            refuse(r, s);
            (void)occl_fail(s, "%s", err);
        } else if (r->held && !r->over && far->ticket_rung(c->dev, &ticket)) {
            occl_run_unhold(r); /* the stream had nothing to do */
        } else if (r->held && !r->over) {
            occl_list_push_back(&ctx->bells, &r->in_bells);
            if (occl_load_relaxed32(&ctx->sleeper->sleeping))
                occl_host_wake(&ctx->sleeper->sleeping); /* whoever of ours sleeps does so shortly from now on */
        }
        occl_fence_sys();
        occl_helper_attend(ctx->helper);
        occl_ctx_unlock(ctx);
    }
    if (s != OCCL_OK) {
        occl_run_release(r);
        return s;
    }
    *run_p = r;
    return OCCL_OK;
}

/* Takes nothing. */
static occl_status_t wait(occl_run_t *r, void *queue)
{
    occl_comm_t *c = r->comm;
    occl_ctx_t *ctx = c->ctx;
    const occl_device_far_ops_t *far = c->dev->ops->far;
    occl_ticket_t ticket = {0, 0};
    occl_status_t s = OCCL_OK;
    char err[256];
    occl_ctx_lock(ctx);
    if (r->over) {
        /* nothing to wait for, but what is behind it stays behind what is before it anyway */
    } else if (!far) {
        s = queue_add(queue, r, 1);
        r->enqueued = 1; /* its end lets the queue go on */
    } else {
        if (!r->ticket.value && !take_ticket(c, &r->ticket)) /* the host has started it */
            s = occl_fail(OCCL_ERR_RESOURCE, "too many enqueued operations are under way");
        ticket = r->ticket;
        r->enqueued = 1;
        occl_fence_sys();
        occl_helper_attend(ctx->helper);
    }
    occl_ctx_unlock(ctx);
    /* It may end now: then its word has the value already, and keeps at least that. */
    if (s == OCCL_OK && ticket.value) {
        s = far->stream_wait(c->dev, &ticket, queue, err, sizeof(err));
        if (s != OCCL_OK)
            (void)occl_fail(s, "%s", err);
    }
    return s;
}

/* Whether a start that failed with s would have had a place */
static int has_place(occl_status_t s) { return s != OCCL_ERR_REQUEST && s != OCCL_ERR_NOT_ATTACHED && s != OCCL_ERR_REVOKED; }

occl_status_t occl_coll_start_enqueue(occl_coll_t *coll, int type, void *queue)
{
    occl_run_t *r = NULL;
    int placed = 0;
    occl_status_t s = check(coll->comm, type, queue);
    if (s == OCCL_OK)
        s = start(coll, queue, &r, &placed);
    if (s == OCCL_OK)
        occl_run_release(r);
    else if (!placed && has_place(s))
        occl_coll_start_failed(coll, s);
    return s;
}

occl_status_t occl_coll_wait_enqueue(occl_coll_t *coll, int type, void *queue)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_run_t *r;
    occl_status_t s = check(coll->comm, type, queue);
    if (s != OCCL_OK)
        return s;
    occl_ctx_lock(ctx);
    r = coll->active;
    if (r)
        occl_run_ref(r);
    occl_ctx_unlock(ctx);
    if (!r)
        return OCCL_OK; /* over, or never started: as in MPI_Wait on an inactive request */
    s = wait(r, queue);
    occl_run_release(r);
    return s;
}

occl_status_t occl_enqueue(occl_comm_t *comm, int32_t tag, const occl_coll_args_t *args, int type, void *queue)
{
    occl_coll_t *coll;
    occl_run_t *r = NULL;
    int placed = 0;
    occl_status_t s = check(comm, type, queue);
    if (s == OCCL_OK)
        s = occl_coll_create(comm, tag, args, &coll);
    if (s != OCCL_OK) {
        if (has_place(s) && s != OCCL_ERR_RANK)
            occl_start_failed(comm, tag, args, s);
        return s;
    }
    s = start(coll, queue, &r, &placed);
    if (s == OCCL_OK) {
        s = wait(r, queue); /* if that fails the run goes on, and the stream does not wait for it */
        occl_run_release(r);
    } else if (!placed && has_place(s)) {
        occl_coll_start_failed(coll, s);
    }
    occl_coll_free(coll);
    return s;
}
