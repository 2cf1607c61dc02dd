/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered collectives: argument checks, the signature, the plan cache, starting, withdrawing.
 */
#include "core/internal.h"

#include "kernels/occl_dev_front.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/daemon.h"

static int reduces(occl_collkind_t k)
{
    return k == OCCL_COLL_REDUCE || k == OCCL_COLL_ALLREDUCE || k == OCCL_COLL_REDUCE_SCATTER_BLOCK;
}

static int rooted(occl_collkind_t k)
{
    return k == OCCL_COLL_BCAST || k == OCCL_COLL_REDUCE || k == OCCL_COLL_GATHER || k == OCCL_COLL_SCATTER;
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Blocks of `count` elements that each buffer holds: what plan.h says of SEND and RECV. */
static void extents(const occl_comm_t *c, const occl_coll_args_t *a, uint64_t *send_p, uint64_t *recv_p)
{
    uint64_t n = (uint64_t)c->size;
    int root = a->root == c->rank;
    uint64_t send = 0, recv = 0;
    switch (a->kind) {
    case OCCL_COLL_BCAST:
        recv = 1;
        break;
    case OCCL_COLL_REDUCE:
        send = !(root && a->in_place);
        recv = root;
        break;
    case OCCL_COLL_ALLREDUCE:
        send = !a->in_place;
        recv = 1;
        break;
    case OCCL_COLL_GATHER:
        send = !(root && a->in_place);
        recv = root ? n : 0;
        break;
    case OCCL_COLL_SCATTER:
        send = root ? n : 0;
        recv = !(root && a->in_place);
        break;
    case OCCL_COLL_ALLGATHER:
        send = !a->in_place;
        recv = n;
        break;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK:
        send = a->in_place ? 0 : n;
        recv = a->in_place ? n : 1;
        break;
    case OCCL_COLL_ALLTOALL:
        send = a->in_place ? 0 : n;
        recv = n;
        break;
    case OCCL_COLL_SENDRECV:
        send = a->sender != 0;
        recv = a->sender == 0;
        break;
    default:
        break;
    }
    *send_p = send;
    *recv_p = recv;
}

static occl_status_t check(const occl_comm_t *c, int32_t tag, const occl_coll_args_t *a)
{
    uint64_t send, recv, eb = occl_host_type_bytes(a->type), bytes;
    if ((unsigned)a->kind >= OCCL_COLL_COUNT)
        return occl_fail(OCCL_ERR_ARG, "no such collective: %d", (int)a->kind);
    if (tag < 0)
        return occl_fail(OCCL_ERR_TAG, "tag %d is negative; tags are 0 to 2147483647", tag);
    if (a->type >= OCCL_T_COUNT || !eb)
        return occl_fail(OCCL_ERR_TYPE, "element type %u is not known to the engine", a->type);
    if (rooted(a->kind) && (a->root < 0 || a->root >= c->size))
        return occl_fail(OCCL_ERR_ROOT, "root %d is not a rank of the communicator (0 to %d)", a->root, c->size - 1);
    if (a->kind == OCCL_COLL_SENDRECV && (a->peer < 0 || a->peer >= c->size))
        return occl_fail(OCCL_ERR_RANK, "rank %d is not in the communicator (0 to %d)", a->peer, c->size - 1);
    if (reduces(a->kind) && c->dev->ops->far && !c->dev->ops->far->op_valid(a->op, a->type))
        return occl_fail(OCCL_ERR_OP, "the op %s on the type %s cannot be done by the %s device", occl_op_name(a->op),
                         occl_type_name(a->type), c->dev->ops->name);
    if (reduces(a->kind) && !occl_host_op_valid(a->op, a->type))
        return occl_fail(OCCL_ERR_OP, "the op %s is not defined for the type %s", occl_op_name(a->op), occl_type_name(a->type));
    if (a->count > (uint64_t)INT64_MAX / eb / (uint64_t)(c->size ? c->size : 1))
        return occl_fail(OCCL_ERR_COUNT, "count %llu is too large: the buffers would exceed 2^63 bytes",
                         (unsigned long long)a->count);
    extents(c, a, &send, &recv);
    bytes = a->count * eb;
    if (bytes && send && !a->send)
        return occl_fail(OCCL_ERR_BUFFER, "the send buffer is NULL but has %llu elements", (unsigned long long)(a->count * send));
    if (bytes && recv && !a->recv)
        return occl_fail(OCCL_ERR_BUFFER, "the receive buffer is NULL but has %llu elements",
                         (unsigned long long)(a->count * recv));
    if (bytes && send && recv && !a->in_place) {
        uintptr_t s = (uintptr_t)a->send, r = (uintptr_t)a->recv;
        if (s < r + bytes * recv && r < s + bytes * send)
            return occl_fail(OCCL_ERR_BUFFER, "send and receive buffers overlap; use MPI_IN_PLACE");
    }
    return OCCL_OK;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static uint64_t plan_key(const occl_plan_args_t *a, int hidden) { return occl_hash_bytes(a, sizeof(*a), (uint64_t)hidden); }

/*
 * Channels of a collective, from its size. One has room for so much in words; what goes from buffer to buffer is worth another
 * channel for each 64 KiB that this rank has to move.
 */
enum { SLOT_BYTES_PER_CHANNEL = 1024, EXPOSED_BYTES_PER_CHANNEL = 64 * 1024 };
static uint32_t channels_for(const occl_comm_t *c, uint64_t bytes, int exposed)
{
    uint64_t n = bytes / (exposed ? EXPOSED_BYTES_PER_CHANNEL : SLOT_BYTES_PER_CHANNEL);
    uint32_t most = exposed ? c->nchannels : c->slot_channels;
    if (!c->dev->ops->far)
        return c->nchannels;
    return n < 1 ? 1 : n > most ? most : (uint32_t)n;
}

enum { PLANS_KEPT = 1024 };

static void forget_unused_plans(occl_comm_t *c)
{
    size_t at = 0;
    uint64_t key;
    void *v;
    occl_hash_t keep = OCCL_HASH_INIT;
    while ((v = occl_hash_next(&c->plans, &at, &key)) != NULL) {
        occl_cached_plan_t *cp = v;
        if (!cp->refs) {
            occl_plan_free(cp->plan);
            free(cp);
        } else if (occl_hash_put(&keep, key, cp) != OCCL_OK) {
            cp->key = 0; /* no memory to keep it in the table: freed with its last reference */
        }
    }
    occl_hash_fini(&c->plans);
    c->plans = keep;
}

void occl_plan_put(occl_comm_t *c, occl_cached_plan_t *cp)
{
    (void)c;
    if (--cp->refs == 0 && cp->key == 0) {
        occl_plan_free(cp->plan);
        free(cp);
    }
}

/* Chooses algorithm and movement from the signature and what was agreed at attach, and gives a referenced plan. */
occl_status_t occl_plan_choose(occl_comm_t *c, occl_tag_t *t, const occl_coll_args_t *a, uint64_t count, int hidden,
                               occl_cached_plan_t **cp_p)
{
    occl_plan_args_t pa;
    occl_select_t in;
    occl_choice_t out;
    occl_cached_plan_t *cp;
    occl_status_t s;
    memset(&pa, 0, sizeof(pa)); /* hashed and compared as bytes */
    pa.kind = a->kind;
    pa.rank = t->me;
    pa.nranks = t->n;
    pa.root = a->root > 0 ? (uint32_t)a->root : 0;
    pa.count = count;
    pa.type = a->type;
    pa.op = reduces(a->kind) ? a->op : OCCL_OP_NONE;
    pa.elem_bytes = (uint32_t)occl_host_type_bytes(a->type);
    pa.in_place = (uint32_t)(a->in_place != 0);
    /* Everything else that the choice depends on is the communicator's, so the key may leave the choice out. */
    cp = occl_hash_get(&c->plans, plan_key(&pa, hidden));
    if (cp && cp->hidden == hidden && memcmp(&cp->args, &pa, sizeof(pa)) == 0) {
        cp->refs++;
        *cp_p = cp;
        return OCCL_OK;
    }
    memset(&in, 0, sizeof(in));
    in.kind = a->kind;
    in.type = a->type;
    in.nranks = t->n;
    in.count = count;
    in.elem_bytes = pa.elem_bytes;
    in.in_place = a->in_place;
    in.exposed = c->exposed && !hidden;
    in.far = c->dev->ops->far != NULL;
    in.eager_max = c->eager_max;
    in.direct_min = in.far ? 0 : c->direct_min; /* far: its rules say */
    in.slot_data = (uint32_t)occl_slot_capacity(c->geo.slot_bytes);
    in.nslots = c->geo.nslots;
    in.nchannels = channels_for(c, count * pa.elem_bytes, 0);
    in.algo = c->algo;
    s = occl_plan_select(&in, &out);
    if (s != OCCL_OK)
        return occl_fail(s, "no algorithm for this %s (OCCL_ALGO is \"%.100s\")", occl_coll_name(a->kind), c->algo);
    if (c->plans.count >= PLANS_KEPT)
        forget_unused_plans(c);
    cp = calloc(1, sizeof(*cp));
    if (!cp)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a plan");
    cp->args = pa;
    pa.move = out.move;
    pa.nchannels = channels_for(c, count * pa.elem_bytes, out.move == OCCL_MOVE_EXPOSED);
    s = out.planner->build(&pa, &cp->plan);
    if (s != OCCL_OK) {
        free(cp);
        return occl_fail(s, "the %s algorithm cannot do this %s", out.planner->name, occl_coll_name(a->kind));
    }
    {
        uint64_t chunk = (out.move == OCCL_MOVE_EXPOSED ? occl_chunk_bytes(c, cp->plan) : in.slot_data) / pa.elem_bytes;
        if (!occl_plan_fits(cp->plan, chunk ? chunk : 1)) {
            occl_plan_free(cp->plan);
            free(cp);
            return occl_fail(OCCL_ERR_COUNT, "count %llu is too large for steps of %llu bytes (OCCL_CHUNK)",
                             (unsigned long long)count, (unsigned long long)(chunk * pa.elem_bytes));
        }
    }
    cp->gated = out.gated;
    cp->hidden = hidden;
    cp->words = in.far && occl_plan_words(out.planner, cp->plan, in.slot_data / pa.elem_bytes, c->geo.slot_bytes, c->geo.nslots,
                                          OCCL_STAGE_BYTES);
    cp->key = plan_key(&cp->args, hidden);
    /* A plan that does not get into the table (a collision, no memory) lives as long as its references. */
    if (occl_hash_get(&c->plans, cp->key) || occl_hash_put(&c->plans, cp->key, cp) != OCCL_OK)
        cp->key = 0;
    cp->refs = 1;
    occl_log(&c->ctx->log, OCCL_LOG_DEBUG | OCCL_AREA_CHOICE, "%s of %llu x %s on %u ranks: %s, %s, %s", occl_coll_name(a->kind),
             (unsigned long long)count, "elements", t->n, out.planner->name,
             out.move == OCCL_MOVE_SLOTS ? "through slots" : "from and to user buffers", out.gated ? "gated" : "eager");
    *cp_p = cp;
    return OCCL_OK;
}

/* --- buffers of a far device ---------------------------------------------------------------------------------------- */

/* No lock: asks the driver. The parts of the buffers that count, as the user gave them (before place). */
static occl_status_t buffers_known(const occl_comm_t *c, const occl_coll_args_t *a, occl_buffer_t *s, occl_buffer_t *r)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    uint64_t send, recv, bytes = a->count * occl_host_type_bytes(a->type);
    occl_status_t status = OCCL_OK;
    char err[256] = "";
    if (!far)
        return OCCL_OK;
    extents(c, a, &send, &recv);
    if (bytes && send)
        status = far->buffer(c->dev, a->send, bytes * send, c->exposed, s, err, sizeof(err));
    if (status == OCCL_OK && bytes && recv)
        status = far->buffer(c->dev, a->recv, bytes * recv, c->exposed, r, err, sizeof(err));
    return status == OCCL_OK ? status : occl_fail(status, "%s", err);
}

static void buffers_free(const occl_comm_t *c, occl_buffer_t *s, occl_buffer_t *r)
{
    if (!c->dev->ops->far)
        return;
    c->dev->ops->far->buffer_free(c->dev, s);
    c->dev->ops->far->buffer_free(c->dev, r);
}

/* In which of the two a place is that the engine is given; its distance from the start. */
static const occl_buffer_t *buffer_of(const occl_coll_t *coll, const void *p, uint64_t *delta_p)
{
    const unsigned char *recv = coll->user_recv;
    if (p == coll->args.send && coll->sbuf.at) {
        *delta_p = 0;
        return &coll->sbuf;
    }
    *delta_p = coll->rbuf.at ? (uint64_t)((const unsigned char *)p - recv) : 0;
    return &coll->rbuf;
}

uint64_t occl_coll_at(const occl_coll_t *coll, const void *p)
{
    uint64_t delta;
    const occl_buffer_t *b = p ? buffer_of(coll, p, &delta) : NULL;
    return b && b->at ? b->at + delta : 0;
}

/* False: peers cannot reach it. */
int occl_coll_exported(const occl_coll_t *coll, const void *p, uint64_t *number_p, uint64_t *offset_p)
{
    uint64_t delta;
    const occl_buffer_t *b = p ? buffer_of(coll, p, &delta) : NULL;
    *number_p = *offset_p = 0;
    if (!b || !b->at)
        return 1; /* no bytes */
    *number_p = b->number;
    *offset_p = b->offset + delta;
    return b->number != 0;
}

static void copy_in(const occl_coll_t *coll, int rank)
{
    if (coll->sbuf.bounce)
        memcpy(coll->sbuf.bounce, coll->user_send, coll->sbuf.bytes);
    if (coll->rbuf.bounce && (coll->args.in_place || (coll->args.kind == OCCL_COLL_BCAST && coll->args.root == rank)))
        memcpy(coll->rbuf.bounce, coll->user_recv, coll->rbuf.bytes);
}

void occl_run_copy_out(occl_run_t *r)
{
    const occl_buffer_t *b = &r->coll->rbuf;
    uint64_t bytes = r->coll->args.kind == OCCL_COLL_SENDRECV && r->bytes < b->bytes ? r->bytes : b->bytes;
    if (!b->bounce || (r->coll->args.kind == OCCL_COLL_BCAST && r->coll->args.root == r->comm->rank))
        return; /* the root's own data are not to be written, not even with what they are */
    memcpy(r->coll->user_recv, b->bounce, bytes);
}

/* --- registration ------------------------------------------------------------------------------------------------- */

/* Where the engine shall read and write: MPI_IN_PLACE becomes plain addresses. */
static void place(const occl_comm_t *c, occl_coll_args_t *a)
{
    uint64_t block = a->count * occl_host_type_bytes(a->type);
    if (!a->in_place)
        return;
    if (a->kind == OCCL_COLL_ALLGATHER || (a->kind == OCCL_COLL_GATHER && a->root == c->rank))
        a->send = (unsigned char *)a->recv + block * (uint64_t)c->rank;
    else if (reduces(a->kind))
        a->send = a->recv;
}

void occl_coll_unref(occl_coll_t *coll)
{
    occl_comm_t *c = coll->comm;
    if (--coll->refs)
        return;
    if (coll->cp)
        occl_plan_put(c, coll->cp);
    if (coll->alt)
        occl_plan_put(c, coll->alt);
    buffers_free(c, &coll->sbuf, &coll->rbuf);
    if (coll->run) {
        occl_run_strip(coll->run, c);
        free(coll->run);
    }
    free(coll->text);
    c->n_colls--;
    free(coll);
    occl_comm_unref(c);
}

/* bufs: send, receive; taken over when it succeeds. */
static occl_status_t coll_new(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, const occl_buffer_t *bufs,
                              occl_coll_t **coll_p)
{
    occl_coll_t *coll;
    occl_tag_t *t;
    occl_status_t s = check(c, tag, args);
    if (s != OCCL_OK)
        return s;
    s = occl_tag_get(c, tag, args, &t);
    if (s != OCCL_OK)
        return s;
    coll = calloc(1, sizeof(*coll));
    if (!coll)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a collective");
    coll->comm = c;
    coll->tag = t;
    coll->args = *args;
    coll->user_send = args->send;
    coll->user_recv = args->recv;
    coll->refs = 1;
    if (args->kind != OCCL_COLL_SENDRECV) {
        s = occl_plan_choose(c, t, args, args->count, 0, &coll->cp);
        if (s == OCCL_OK && c->dev->ops->far && (coll->cp->plan->flags & OCCL_PLAN_EXPOSED)) {
            s = occl_plan_choose(c, t, args, args->count, 1, &coll->alt);
            if (s != OCCL_OK)
                occl_plan_put(c, coll->cp);
        }
        if (s != OCCL_OK) {
            free(coll);
            return s;
        }
    }
    coll->sbuf = bufs[0];
    coll->rbuf = bufs[1];
    place(c, &coll->args);
    /* Only for an all-to-all must all members agree whether it is in place. */
    coll->wire.kind = args->kind | (args->kind == OCCL_COLL_ALLTOALL && args->in_place ? WIRE_IN_PLACE : 0);
    coll->wire.type = args->kind == OCCL_COLL_BARRIER ? 0 : args->type;
    coll->wire.op = reduces(args->kind) ? args->op : OCCL_OP_NONE;
    coll->wire.root = rooted(args->kind) ? args->root : -1;
    coll->wire.count = args->kind == OCCL_COLL_BARRIER ? 0 : args->count;
    {
        /* Sender and receiver may pass different counts. */
        uint64_t h = occl_hash_mix(coll->wire.kind + 1);
        h = occl_hash_mix(h ^ ((uint64_t)coll->wire.type << 32 | coll->wire.op));
        h = occl_hash_mix(h ^ (uint64_t)(uint32_t)coll->wire.root);
        coll->wire.sig = occl_hash_mix(h ^ (args->kind == OCCL_COLL_SENDRECV ? 0 : coll->wire.count));
    }
    occl_comm_ref(c);
    c->n_colls++;
    *coll_p = coll;
    return OCCL_OK;
}

occl_status_t occl_coll_create(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_coll_t **coll_p)
{
    occl_buffer_t bufs[2];
    occl_status_t s = check(c, tag, args);
    memset(bufs, 0, sizeof(bufs));
    if (s == OCCL_OK)
        s = buffers_known(c, args, &bufs[0], &bufs[1]);
    if (s == OCCL_OK) {
        occl_ctx_lock(c->ctx);
        s = coll_new(c, tag, args, bufs, coll_p);
        occl_ctx_unlock(c->ctx);
    }
    if (s != OCCL_OK)
        buffers_free(c, &bufs[0], &bufs[1]);
    return s;
}

void occl_coll_free(occl_coll_t *coll)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_ctx_lock(ctx);
    coll->freed = 1;
    occl_coll_unref(coll);
    occl_ctx_unlock(ctx);
}

/* --- start -------------------------------------------------------------------------------------------------------- */

/* Sets up a run object for its next life. References: the tag's, and the starter's if it wants one. */
static void run_prepare(occl_run_t *r, occl_coll_t *coll, int starter)
{
    occl_comm_t *c = coll->comm;
    r->coll = coll;
    r->comm = c;
    r->tag = coll->tag;
    r->cp = coll->cp;
    if (r->cp)
        r->cp->refs++;
    r->refs = 1 + starter;
    r->status = OCCL_OK;
    r->failing = OCCL_OK;
    r->fn = NULL;
    r->bytes = 0;
    r->gated = 0;
    r->hidden = 0;
    r->copied = 0;
    r->held = r->enqueued = 0;
    r->refused = OCCL_OK;
    r->ticket.value = 0;
    r->partner = NULL;
    r->pool_off = 0;
    r->started_at = c->ctx->env.t_warn ? occl_host_clock_ns() : 0;
    if (OCCL_UNLIKELY(r->text != NULL)) {
        free(r->text);
        r->text = NULL;
    }
    occl_store_relaxed32(&r->over, 0);
    r->dev.plan = NULL;
    r->dev.sig = coll->wire.sig;
    r->dev.drop = 0;
    r->dev.chunk = 0;
    r->dev.xsend = r->dev.xrecv = r->dev.via = NULL;
    r->dev.rxpool = r->dev.txpool = NULL;
    if (c->dev->ops->far) {
        r->dev.serial = 0;
        r->dev.nwake = 0;
    } else {
        r->dev.wake = r->tag->wake;
        r->dev.nwake = r->tag->n - 1;
    }
    r->dev.slot_bytes = c->geo.slot_bytes;
    r->dev.nslots = c->geo.nslots;
}

static int coll_is_message(const occl_coll_t *coll) { return coll->args.kind == OCCL_COLL_SENDRECV; }

/* A message to oneself: the n-th send meets the n-th receive, here. */
void occl_message_to_self(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_list_push_back(r->coll->args.sender ? &t->self_sends : &t->self_recvs, &r->in_tag);
    r->state = RUN_GATE;
    while (!occl_list_empty(&t->self_sends) && !occl_list_empty(&t->self_recvs)) {
        occl_run_t *s = OCCL_CONTAINER(t->self_sends.next, occl_run_t, in_tag);
        occl_run_t *d = OCCL_CONTAINER(t->self_recvs.next, occl_run_t, in_tag);
        const occl_coll_args_t *sa = &s->coll->args, *da = &d->coll->args;
        occl_status_t status = OCCL_OK;
        const char *why = "";
        if (sa->type != da->type) {
            status = OCCL_ERR_MISMATCH;
            why = "a message to oneself: sender and receiver pass different types";
        } else if (sa->count > da->count) {
            status = OCCL_ERR_TRUNCATE;
            why = "a message to oneself is longer than the receive buffer";
        } else if (sa->count && s->comm->dev->ops->far) {
            /* The device copies: an all-gather of one rank. */
            occl_coll_args_t a = *sa;
            a.kind = OCCL_COLL_ALLGATHER;
            occl_list_remove(&s->in_tag);
            occl_list_remove(&d->in_tag);
            d->partner = s;
            d->bytes = s->bytes = sa->count * occl_host_type_bytes(sa->type);
            status = occl_plan_choose(t->comm, t, &a, sa->count, 0, &d->cp);
            if (status == OCCL_OK)
                occl_run_submit(d);
            else
                occl_run_finish(d, status, occl_text("%s", occl_last_error()));
            continue;
        } else if (sa->count) {
            memcpy(da->recv, sa->send, sa->count * occl_host_type_bytes(sa->type));
        }
        d->bytes = s->bytes = sa->count * occl_host_type_bytes(sa->type);
        occl_run_finish(s, status, status ? occl_text("%s", why) : NULL);
        occl_run_finish(d, status, status ? occl_text("%s", why) : NULL);
    }
}

/* The caller holds the lock. */
static void launch(occl_run_t *r)
{
    occl_comm_t *c = r->comm;
    occl_ctx_t *ctx = c->ctx;
    c->n_starts++;
    ctx->n_starts++;
    c->pending++;
    occl_store_relaxed32(&ctx->pending, ctx->pending + 1);
    if (r->held && r->tag->n == 1 && coll_is_message(r->coll))
        r->state = RUN_QUEUED; /* meets its partner when it is released */
    else if (r->tag->n == 1 && coll_is_message(r->coll))
        occl_message_to_self(r);
    else
        occl_tag_enqueue(r->tag, r);
    /* The host device makes the first turn here: what can be sent is on its way when start returns. */
    if (c->dev->ops->caller_executes)
        (void)occl_ctx_progress(ctx, NULL, 0);
}

static occl_status_t start_locked(occl_coll_t *coll, int held, occl_run_t **run_p)
{
    occl_run_t *r;
    /* Of queued starts any number may be under way: the queue has them in order. */
    if (coll->active && !(held && coll->active->enqueued))
        return occl_fail(OCCL_ERR_REQUEST, "a run of this collective is still active; one at a time (register it again for more)");
    if (coll->comm->ctx->closing)
        return occl_fail(OCCL_ERR_REVOKED, "the library is being finalized");
    if (coll->comm->detached)
        return occl_fail(OCCL_ERR_NOT_ATTACHED, "the communicator has been detached");
    if (OCCL_UNLIKELY(__atomic_load_n(&coll->comm->dev->broken, __ATOMIC_ACQUIRE) != NULL))
        return occl_fail(OCCL_ERR_DEVICE, "%s", coll->comm->dev->broken);
    if (run_p || !coll->run || coll->run->refs) {
        r = occl_run_new();
        if (!r)
            return occl_fail(OCCL_ERR_RESOURCE, "no memory for a run");
        if (!run_p && !coll->run) {
            r->embedded = 1;
            coll->run = r;
        }
    } else {
        r = coll->run;
    }
    run_prepare(r, coll, run_p != NULL);
    r->held = r->enqueued = held;
    coll->refs++;
    coll->comm->live++;
    coll->active = r;
    coll->outcome = OCCL_OK;
    free(coll->text);
    coll->text = NULL;
    if (run_p)
        *run_p = r;
    launch(r);
    return OCCL_OK;
}

/* When the lock is released and the device launched, which neither shall compete with. There was a fence after the store of the pending
 * count: in the progress or in occl_tag_wake. */
static void helper_kick(occl_ctx_t *ctx)
{
    occl_helper_kick(ctx->helper);
}

occl_status_t occl_coll_start(occl_coll_t *coll, occl_run_t **run_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_status_t s;
    if (OCCL_UNLIKELY(coll->comm->dev->ops->far != NULL)) {
        /* The buffers may have been freed and made anew since; and what the device cannot reach is copied. Only while no run is
           active: it is the last start's caller who says so, and nobody else may start this one. */
        occl_ctx_lock(ctx);
        s = coll->active ? OCCL_ERR_REQUEST : OCCL_OK;
        occl_ctx_unlock(ctx);
        if (s == OCCL_OK) {
            s = occl_coll_refresh(coll);
            if (s != OCCL_OK)
                return s;
            copy_in(coll, coll->comm->rank);
        }
    }
    occl_ctx_lock(ctx);
    s = start_locked(coll, 0, run_p);
    occl_ctx_unlock(ctx);
    helper_kick(ctx);
    return s;
}

occl_status_t occl_coll_refresh(occl_coll_t *coll)
{
    occl_coll_args_t a = coll->args;
    if (!coll->comm->dev->ops->far || !(coll->alt || !coll->cp || coll->sbuf.bounce || coll->rbuf.bounce || coll->sbuf.pinned ||
                                        coll->rbuf.pinned))
        return OCCL_OK;
    a.send = coll->user_send;
    a.recv = coll->user_recv;
    return buffers_known(coll->comm, &a, &coll->sbuf, &coll->rbuf);
}

occl_status_t occl_coll_start_held(occl_coll_t *coll, occl_run_t **run_p) { return start_locked(coll, 1, run_p); }


occl_status_t occl_start(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_run_t **run_p)
{
    occl_coll_t *coll = NULL;
    occl_buffer_t bufs[2];
    occl_status_t s = OCCL_OK;
    memset(bufs, 0, sizeof(bufs));
    if (OCCL_UNLIKELY(c->dev->ops->far != NULL)) {
        s = check(c, tag, args);
        if (s == OCCL_OK)
            s = buffers_known(c, args, &bufs[0], &bufs[1]);
        if (s == OCCL_OK) {
            occl_coll_t view;
            view.args = *args;
            view.user_send = args->send;
            view.user_recv = args->recv;
            view.sbuf = bufs[0];
            view.rbuf = bufs[1];
            copy_in(&view, c->rank);
        }
    }
    occl_ctx_lock(c->ctx);
    if (s == OCCL_OK)
        s = coll_new(c, tag, args, bufs, &coll);
    if (s == OCCL_OK) {
        s = start_locked(coll, 0, run_p);
        coll->freed = 1;
        occl_coll_unref(coll);
    } else {
        buffers_free(c, &bufs[0], &bufs[1]);
    }
    occl_ctx_unlock(c->ctx);
    helper_kick(c->ctx);
    return s;
}

/* Under the lock. A start that never was takes its place, so that the peers learn it. */
static void take_place(occl_tag_t *t, occl_status_t why)
{
    occl_comm_t *c = t->comm;
    occl_run_t *r = occl_run_new();
    if (r && t->n == 1) { /* nobody to tell, and nothing to keep in step with */
        free(r);
    } else if (r) {
        r->comm = c;
        r->tag = t;
        r->refs = 1;
        r->failing = why;
        r->over = 1;
        occl_comm_ref(c);
        c->live++;
        occl_tag_enqueue(t, r);
    }
}

void occl_start_failed(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_status_t why)
{
    occl_tag_t *t;
    occl_ctx_lock(c->ctx);
    if (occl_tag_get(c, tag, args, &t) == OCCL_OK)
        take_place(t, why);
    else
        occl_tag_lose(c, tag, args);
    occl_ctx_unlock(c->ctx);
}

void occl_coll_start_failed(occl_coll_t *coll, occl_status_t why)
{
    occl_ctx_lock(coll->comm->ctx);
    take_place(coll->tag, why);
    occl_ctx_unlock(coll->comm->ctx);
}

occl_status_t occl_coll_cancel(occl_coll_t *coll, int *cancelled_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_run_t *r;
    *cancelled_p = 0;
    occl_ctx_lock(ctx);
    r = coll->active;
    if (!r) {
        occl_ctx_unlock(ctx);
        return occl_fail(OCCL_ERR_REQUEST, "no run of this collective is active");
    }
    if (r->n == r->tag->last_n && (r->state == RUN_QUEUED || (r->state == RUN_GATE && r->dev.plan == NULL))) {
        occl_tag_t *t = r->tag;
        int gone = r->state == RUN_QUEUED;
        if (!gone && t->n > 1)
            gone = occl_tag_withdraw(t, r);
        if (gone) {
            t->last_n--;
            ctx->n_withdrawn++;
            occl_run_finish(r, OCCL_ERR_CANCELLED, occl_text("withdrawn by MPIX_Occl_coll_cancel"));
            *cancelled_p = 1;
        }
    }
    occl_ctx_unlock(ctx);
    return OCCL_OK;
}

occl_comm_t *occl_coll_comm(occl_coll_t *coll) { return coll->comm; }
