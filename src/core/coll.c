/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered collectives: argument checks, the signature, the plan cache, starting, withdrawing.
 */
#include "core/internal.h"

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

static uint64_t plan_key(const occl_plan_args_t *a) { return occl_hash_bytes(a, sizeof(*a), 0); }

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
occl_status_t occl_plan_choose(occl_comm_t *c, occl_tag_t *t, const occl_coll_args_t *a, uint64_t count, occl_cached_plan_t **cp_p)
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
    pa.nchannels = c->nchannels;
    /* Everything else that the choice depends on is the communicator's, so the key may leave the choice out. */
    cp = occl_hash_get(&c->plans, plan_key(&pa));
    if (cp && memcmp(&cp->args, &pa, sizeof(pa)) == 0) {
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
    in.exposed = c->cma;
    in.eager_max = c->eager_max;
    in.direct_min = c->direct_min;
    in.slot_data = (uint32_t)occl_slot_capacity(c->geo.slot_bytes);
    in.nslots = c->geo.nslots;
    in.nchannels = c->nchannels;
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
    cp->key = plan_key(&cp->args);
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
    if (coll->run) {
        free(coll->run->x);
        free(coll->run->pools);
        free(coll->run->scratch);
        free(coll->run->text);
        free(coll->run);
    }
    free(coll->text);
    c->n_colls--;
    free(coll);
    occl_comm_unref(c);
}

static occl_status_t coll_new(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_coll_t **coll_p)
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
    coll->refs = 1;
    if (args->kind != OCCL_COLL_SENDRECV) {
        s = occl_plan_choose(c, t, args, args->count, &coll->cp);
        if (s != OCCL_OK) {
            free(coll);
            return s;
        }
    }
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
    occl_status_t s;
    occl_ctx_lock(c->ctx);
    s = coll_new(c, tag, args, coll_p);
    occl_ctx_unlock(c->ctx);
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
    r->dev.wake = r->tag->wake;
    r->dev.nwake = r->tag->n - 1;
    r->dev.slot_bytes = c->geo.slot_bytes;
    r->dev.nslots = c->geo.nslots;
}

static int coll_is_message(const occl_coll_t *coll) { return coll->args.kind == OCCL_COLL_SENDRECV; }

/* A message to oneself: the n-th send meets the n-th receive, here. */
static void message_to_self(occl_run_t *r)
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
    if (r->tag->n == 1 && coll_is_message(r->coll))
        message_to_self(r);
    else
        occl_tag_enqueue(r->tag, r);
    /* The host device makes the first turn here: what can be sent is on its way when start returns. */
    if (ctx->dev->ops->caller_executes)
        (void)occl_ctx_progress(ctx, NULL, 0);
    occl_helper_kick(ctx->helper); /* after the fence in the progress or in occl_tag_wake */
}

static occl_status_t start_locked(occl_coll_t *coll, occl_run_t **run_p)
{
    occl_run_t *r;
    if (coll->active)
        return occl_fail(OCCL_ERR_REQUEST, "a run of this collective is still active; one at a time (register it again for more)");
    if (coll->comm->ctx->closing)
        return occl_fail(OCCL_ERR_REVOKED, "the library is being finalized");
    if (coll->comm->detached)
        return occl_fail(OCCL_ERR_NOT_ATTACHED, "the communicator has been detached");
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

occl_status_t occl_coll_start(occl_coll_t *coll, occl_run_t **run_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_status_t s;
    occl_ctx_lock(ctx);
    s = start_locked(coll, run_p);
    occl_ctx_unlock(ctx);
    return s;
}

occl_status_t occl_start(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_run_t **run_p)
{
    occl_coll_t *coll = NULL;
    occl_status_t s;
    occl_ctx_lock(c->ctx);
    s = coll_new(c, tag, args, &coll);
    if (s == OCCL_OK) {
        s = start_locked(coll, run_p);
        coll->freed = 1;
        occl_coll_unref(coll);
    }
    occl_ctx_unlock(c->ctx);
    return s;
}

void occl_start_failed(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_status_t why)
{
    occl_tag_t *t;
    occl_run_t *r;
    occl_ctx_lock(c->ctx);
    r = NULL;
    if (occl_tag_get(c, tag, args, &t) == OCCL_OK)
        r = occl_run_new();
    else
        occl_tag_lose(c, tag, args);
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
    occl_ctx_unlock(c->ctx);
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
