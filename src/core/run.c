/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a run (states in internal.h): publish, gate, submit, what the device says, finish.
 */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/daemon.h"

/* Every so many runs of a tag the mailboxes' words are renewed, so that no stale word can be taken for a coming run. */
#define RENEW_EVERY (1ull << 30)

static occl_coll_t *coll_of(const occl_run_t *r) { return r->coll; }

/* --- memory ------------------------------------------------------------------------------------------------------- */

occl_run_t *occl_run_new(void)
{
    void *p = NULL;
    occl_run_t *r;
    if (posix_memalign(&p, 64, (sizeof(*r) + 63) / 64 * 64))
        return NULL;
    r = memset(p, 0, sizeof(*r));
    occl_list_init(&r->in_tag);
    occl_list_init(&r->in_room);
    occl_list_init(&r->in_called);
    occl_list_init(&r->in_bells);
    return r;
}

void occl_run_ref(occl_run_t *r) { r->refs++; }

void occl_run_strip(occl_run_t *r, occl_comm_t *c)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    if (far) {
        far->forget(c->dev, &r->dev);
        far->free(c->dev, r->scratch_off, r->scratch_cap);
    } else {
        free(r->scratch);
    }
    free(r->x);
    free(r->hold);
    free(r->pools);
    free(r->text);
}

void occl_run_unref(occl_run_t *r)
{
    occl_coll_t *coll;
    if (--r->refs)
        return;
    coll = r->coll;
    if (r->cp)
        occl_plan_put(r->comm, r->cp);
    r->cp = NULL;
    occl_tag_unbind(r);
    occl_comm_run_gone(r->comm);
    if (!r->embedded) {
        occl_comm_t *c = r->comm;
        occl_run_strip(r, c);
        free(r);
        if (coll)
            occl_coll_unref(coll);
        else
            occl_comm_unref(c);
    } else {
        occl_coll_unref(coll);
    }
}

/*
 * Pool: regions of one size for the messages of one half of a tag's mailboxes. Tried once, never waited for: without it the run
 * goes through its own slots. Regions are kept for the next run; only slot headers are cleaned, since a flag of another
 * tag's run could look like one of ours.
 */
typedef struct pool_region {
    occl_list_t in_free;
    uint64_t off, bytes;
} pool_region_t;

static uint64_t pool_take(occl_ctx_t *ctx, uint64_t bytes)
{
    uint64_t off;
    OCCL_LIST_EACH(p, next, &ctx->pool_free, pool_region_t, in_free) {
        if (p->bytes == bytes) {
            off = p->off;
            occl_list_remove(&p->in_free);
            free(p);
            ctx->pool_used += bytes;
            return off;
        }
    }
    if (ctx->pool_used + bytes > ctx->env.pool_max)
        return 0;
    off = occl_arena_alloc(ctx->arena, bytes, 64);
    if (off) {
        ctx->pool_used += bytes;
        if (ctx->pool_used > ctx->pool_peak)
            ctx->pool_peak = ctx->pool_used;
    }
    return off;
}

static void pool_give(occl_ctx_t *ctx, uint64_t off, uint64_t bytes)
{
    pool_region_t *p = malloc(sizeof(*p));
    ctx->pool_used -= bytes;
    if (!p) {
        (void)occl_arena_free(ctx->arena, off, bytes);
        return;
    }
    p->off = off;
    p->bytes = bytes;
    occl_list_push_front(&ctx->pool_free, &p->in_free);
}

/* Gives kept regions back to the arena, all of them. */
void occl_pool_trim(occl_ctx_t *ctx)
{
    occl_list_t *e;
    while ((e = occl_list_pop(&ctx->pool_free)) != NULL) {
        pool_region_t *p = OCCL_CONTAINER(e, pool_region_t, in_free);
        (void)occl_arena_free(ctx->arena, p->off, p->bytes);
        free(p);
    }
}

/* --- publish ------------------------------------------------------------------------------------------------------ */

/* Channels without slots have the flags only. */
uint64_t occl_mailbox_room(const occl_comm_t *c, uint32_t channel)
{
    return channel < c->slot_channels ? occl_mailbox_bytes(c->geo) : sizeof(occl_mailbox_t);
}

/* Sets every word of a mailbox on a far device that a peer writes to run n's base. */
static void far_renew(const occl_comm_t *c, uint32_t ch, uint64_t off, uint64_t n)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    far->fill(c->dev, off, sizeof(uint64_t), 3, n << 32);
    if (ch < c->slot_channels)
        far->fill(c->dev, off + sizeof(occl_mailbox_t), c->geo.slot_bytes, 2 * c->geo.nslots, n << 32);
}

/* My mailbox for one peer and channel, made when first needed; false: no memory. */
static int make_mailbox(occl_tag_t *t, uint32_t ch, uint32_t peer, uint64_t n)
{
    uint32_t ix = ch * t->n + peer;
    occl_comm_t *c = t->comm;
    const occl_device_far_ops_t *far = c->dev->ops->far;
    uint64_t off, bytes;
    if (OCCL_LIKELY(t->links[ix].rx != NULL))
        return 1;
    bytes = occl_mailbox_room(c, ch);
    off = far ? far->alloc(c->dev, bytes) : occl_ctx_alloc(c->ctx, bytes);
    if (!off)
        return 0;
    t->links[ix].rx = (occl_mailbox_t *)(c->member[c->rank].dbase + off);
    /* Zero would be ahead of a run number beyond 2^31. */
    if (!far)
        t->links[ix].rx->sig = t->links[ix].rx->credit[0] = t->links[ix].rx->credit[1] = n << 32;
    else if (OCCL_UNLIKELY(n > (1u << 30)))
        far_renew(c, ch, off, n);
    occl_store_release64(&t->blk->mbox[ix], off);
    t->bytes += bytes;
    c->tag_bytes += bytes;
    if (t->bytes > c->tag_bytes_max)
        c->tag_bytes_max = t->bytes;
    return 1;
}

static int make_mailboxes_of(occl_run_t *r, const occl_plan_t *plan)
{
    for (uint32_t ch = 0; ch < plan->nchannels; ch++)
        for (uint32_t i = 0; i < plan->npeers; i++)
            if (!make_mailbox(r->tag, ch, plan->peers[i], r->n))
                return 0;
    return 1;
}

/* Mailboxes for all peers of the plan. A message's plan is made at the gate only, but its peer is known. */
static int make_mailboxes(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    if (!r->cp) {
        for (uint32_t ch = 0; t->n == 2 && ch < t->comm->nchannels; ch++)
            if (!make_mailbox(t, ch, 1 - t->me, r->n))
                return 0;
        return 1;
    }
    if (!make_mailboxes_of(r, r->cp->plan))
        return 0;
    /* Some member's buffer may be hidden from its peers, and then this is the plan. */
    return !r->coll->alt || make_mailboxes_of(r, r->coll->alt->plan);
}

/* Exports of mine that all members of the tag have mapped once stay mapped as long as they are there. */
static int is_confirmed(const occl_tag_t *t, uint64_t number)
{
    for (uint32_t i = 0; i < OCCL_CONFIRMED; i++)
        if (t->confirmed[i] == number)
            return 1;
    return number == 0;
}
static void confirm(occl_tag_t *t, uint64_t number)
{
    if (!is_confirmed(t, number))
        t->confirmed[t->nconfirmed++ % OCCL_CONFIRMED] = number;
}

/* The other ends; false: some peer has not made its mailbox yet. */
static int find_mailboxes(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    const occl_plan_t *plan = r->cp->plan;
    for (uint32_t ch = 0; ch < plan->nchannels; ch++) {
        for (uint32_t i = 0; i < plan->npeers; i++) {
            uint32_t p = plan->peers[i], ix = ch * t->n + p;
            occl_member_t *m = &t->comm->member[t->member[p]];
            uint64_t off;
            if (OCCL_LIKELY(t->links[ix].tx != NULL))
                continue;
            if (!t->pblk[p]) {
                off = occl_dir_find(m->blk, m->base, t->key);
                if (!off)
                    return 0;
                t->pblk[p] = (occl_tagblk_t *)(m->base + off);
            }
            off = occl_load_acquire64(&t->pblk[p]->mbox[ch * t->n + t->me]);
            if (!off)
                return 0;
            t->links[ix].tx = (occl_mailbox_t *)(m->dbase + off);
        }
    }
    return 1;
}

/* Sets every word that a peer writes to this run's base. Nobody writes now: the run is gated, and the last one is over. */
static void renew_mailboxes(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_geometry_t g = t->comm->geo;
    for (uint32_t ix = 0; ix < t->comm->nchannels * t->n; ix++) {
        occl_mailbox_t *m = t->links[ix].rx;
        if (!m)
            continue;
        if (t->comm->dev->ops->far) {
            far_renew(t->comm, ix / t->n, (uint64_t)((unsigned char *)m - t->comm->member[t->comm->rank].dbase), r->n);
            continue;
        }
        occl_store_relaxed64(&m->sig, r->n << 32);
        occl_store_relaxed64(&m->credit[0], r->n << 32);
        occl_store_relaxed64(&m->credit[1], r->n << 32);
        for (uint32_t k = 0; k < 2 * g.nslots; k++)
            occl_store_relaxed64(&((occl_slot_t *)((unsigned char *)(m + 1) + (uint64_t)k * g.slot_bytes))->flag, r->n << 32);
    }
}

#if defined(OCCL_EMU) && OCCL_EMU
void occl_tag_set_run(occl_tag_t *t, uint64_t n)
{
    occl_run_t r = {.tag = t, .n = n};
    t->last_n = n;
    renew_mailboxes(&r);
}
#endif

/* Message slots in my pool for every peer of a gated run through slots. */
static void take_pool(occl_run_t *r, const occl_plan_t *plan)
{
    occl_tag_t *t = r->tag;
    occl_ctx_t *ctx = t->comm->ctx;
    occl_geometry_t g = t->comm->pool_geo;
    uint64_t one = (uint64_t)g.nslots * g.slot_bytes, off;
    r->pool_bytes = one * plan->npeers * plan->nchannels;
    if (!r->pool_bytes)
        return;
    r->pool_off = pool_take(ctx, r->pool_bytes);
    if (!r->pool_off)
        return;
    off = r->pool_off;
    for (uint32_t ch = 0; ch < plan->nchannels; ch++) {
        for (uint32_t i = 0; i < plan->npeers; i++, off += one) {
            unsigned char *base = occl_arena_at(ctx->arena, off);
            for (uint32_t k = 0; k < g.nslots; k++)
                occl_store_relaxed64(&((occl_slot_t *)(base + (uint64_t)k * g.slot_bytes))->flag, 0);
            occl_store_relaxed64(&t->links[ch * t->n + plan->peers[i]].rx->pool[r->n & 1], off);
        }
    }
    ctx->n_pool++;
}

/*
 * May the steps of this run be long, as far as this rank is concerned? What is not aligned to 16 bytes goes through loops that are
 * many times slower, so is memory of the processor, and scratch is memory for as many bytes as a step has.
 */
static int long_steps(const occl_run_t *r)
{
    const occl_coll_t *coll = coll_of(r);
    const occl_plan_t *plan = r->cp ? r->cp->plan : NULL;
    uint32_t kind = coll->args.kind;
    uint64_t block = kind == OCCL_COLL_ALLREDUCE || kind == OCCL_COLL_REDUCE || kind == OCCL_COLL_BCAST || kind == OCCL_COLL_SCAN ||
                             kind == OCCL_COLL_EXSCAN
                         ? 0 : coll->args.count * occl_host_type_bytes(coll->args.type);
    for (uint32_t i = 0; coll->blocks && i < coll->args.nsends + coll->args.nrecvs; i++)
        block |= coll->blocks[i].at | coll->blocks[i].n;
    return plan && plan->flags & (OCCL_PLAN_BULK | OCCL_PLAN_LONG) && !plan->scratch_chunks &&
           !coll->sbuf.pinned && !coll->rbuf.pinned &&
           !((occl_coll_at(coll, coll->args.send) | occl_coll_at(coll, coll->args.recv) | block) & 15);
}

/* Writes the record of run n and tells the members. */
static void write_record(occl_run_t *r, uint32_t state, uint32_t flags)
{
    occl_tag_t *t = r->tag;
    occl_coll_t *coll = coll_of(r);
    occl_record_t rec;
    const uint64_t *from = (const uint64_t *)&rec;
    uint64_t *to = (uint64_t *)&t->blk->rec[r->n & 1];
    if (coll) {
        memcpy(&rec, &coll->wire, REC_WORDS * 8);
        rec.send = (uint64_t)(uintptr_t)coll->args.send;
        rec.recv = (uint64_t)(uintptr_t)coll->args.recv;
        rec.send_number = rec.recv_number = 0;
        rec.table = r->table;
        flags |= coll->rec_flags;
        if (t->comm->dev->ops->far) {
            int all = occl_coll_exported(coll, coll->args.send, &rec.send_number, &rec.send);
            if (!occl_coll_exported(coll, coll->args.recv, &rec.recv_number, &rec.recv) || !all)
                flags |= REC_HIDDEN;
            else if (!is_confirmed(t, rec.send_number) || !is_confirmed(t, rec.recv_number))
                flags |= REC_NEW;
            if (!(flags & REC_HIDDEN) && long_steps(r))
                flags |= REC_LONG;
        }
        rec.status = state == REC_ERROR ? r->failing : 0;
    } else {
        memset(&rec, 0, REC_WORDS * 8);
        rec.status = r->failing;
    }
    rec.flags = flags;
    for (int k = 1; k < REC_WORDS; k++)
        occl_store_relaxed64(to + k, from[k]);
    occl_store_release64(to, r->n << 16 | (uint64_t)(t->attempt & 0xff) << 8 | state);
    occl_comm_publish(t->comm, t->key);
}

/* A resource of ours is missing: the members get a mismatch with this reason. */
static void publish_failure(occl_run_t *r, occl_status_t why, char *text)
{
    r->failing = why;
    write_record(r, REC_ERROR, 0);
    occl_tag_wake(r->tag);
    r->failing = OCCL_OK;
    occl_run_fail(r, why, text);
}

static int early_allowed(const occl_run_t *r)
{
    const occl_device_t *dev = r->comm->dev;
    return !r->gated && dev->outstanding < dev->eager_room && occl_list_empty(&dev->waiting);
}

int occl_run_stage(occl_run_t *r)
{
    const occl_coll_t *coll = coll_of(r);
    if (OCCL_LIKELY(!coll || !coll->args.stage || !coll->args.stage->before || r->staged == 2))
        return 0;
    if (!r->staged) {
        r->staged = 1;
        r->state = RUN_QUEUED;
        occl_run_ref(r);
        occl_list_push_back(&r->comm->ctx->called, &r->in_called);
    }
    return 1;
}

/* The run has become the head of its tag. */
void occl_run_publish(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_ctx_t *ctx = t->comm->ctx;
    uint32_t flags = 0;
    if (occl_run_stage(r))
        return;
    if (!coll_of(r)) { /* a start that failed: tell the members, and wait for them */
        write_record(r, REC_ERROR, 0);
        occl_tag_wake(t);
        r->state = RUN_DRAIN;
        occl_tag_check(t);
        return;
    }
    if (OCCL_UNLIKELY(r->refused != OCCL_OK)) {
        publish_failure(r, r->refused, occl_text("it could not be put into the stream"));
        return;
    }
    if (!make_mailboxes(r)) {
        char err[256];
        publish_failure(r, OCCL_ERR_RESOURCE,
                        occl_text("no memory for links: %s", occl_arena_error(ctx->arena, err, sizeof(err))));
        return;
    }
    if (OCCL_UNLIKELY(coll_of(r)->blocks != NULL) && !(r->table = occl_tag_put_table(t, r->n, coll_of(r)))) {
        char err[256];
        publish_failure(r, OCCL_ERR_RESOURCE,
                        occl_text("no memory for a list of blocks: %s", occl_arena_error(ctx->arena, err, sizeof(err))));
        return;
    }
    if (r->cp) {
        const occl_coll_t *coll = coll_of(r);
        const occl_plan_t *slots = r->cp->plan;
        r->gated = r->cp->gated;
        if (OCCL_UNLIKELY(coll->alt && coll->likely_slots && occl_coll_exchanges(coll->args.kind)))
            slots = coll->alt->plan; /* the one that the gate will take, I think */
        if (OCCL_UNLIKELY((r->n & (RENEW_EVERY - 1)) == 0)) {
            r->gated = 1;
            renew_mailboxes(r);
        }
        if (r->gated && (slots->flags & OCCL_PLAN_SLOTS) && !t->comm->dev->ops->far) {
            take_pool(r, slots);
            if (r->pool_off)
                flags |= REC_POOL;
        }
    } else {
        r->gated = 1; /* point to point: the size is known at the gate only */
    }
    write_record(r, REC_READY, flags);
    r->state = RUN_GATE;
    if (r->gated)
        ctx->n_gated++;
    if (early_allowed(r) && find_mailboxes(r)) {
        ctx->n_eager++;
        /* A member that was here before us may disagree and never answer: its record is looked at when nothing else moves. */
        occl_list_push_back(&ctx->unchecked, &t->in_unchecked);
        occl_run_submit(r);
        return;
    }
    occl_tag_wake(t);
    occl_tag_check(t);
}

void occl_run_unhold(occl_run_t *r)
{
    occl_list_remove(&r->in_bells);
    if (!r->held)
        return;
    r->held = 0;
    if (r->over)
        return; /* failed or withdrawn meanwhile */
    r->started_at = r->comm->ctx->env.t_warn ? occl_host_clock_ns() : 0;
    if (r->tag->n == 1 && r->coll->args.kind == OCCL_COLL_SENDRECV)
        occl_message_to_self(r);
    else if (r->state == RUN_QUEUED && r->tag->queue.next == &r->in_tag)
        occl_run_publish(r);
    occl_helper_kick(r->comm->ctx->helper);
}

/* --- gate --------------------------------------------------------------------------------------------------------- */

static int grow(void **p, uint32_t *cap, uint32_t want, size_t each)
{
    void *q;
    if (*cap >= want)
        return 1;
    q = realloc(*p, (size_t)want * each);
    if (!q)
        return 0;
    *p = q;
    *cap = want;
    return 1;
}

/* Point to point: now both sides' records are here. The message has the sender's length. */
static occl_status_t open_message(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_coll_t *coll = coll_of(r);
    occl_coll_args_t a = coll->args;
    occl_record_t rec;
    uint64_t sent = a.count, room = a.count;
    if (t->n == 2) {
        occl_tag_opened_record(t, 1 - t->me, r->n, &rec);
        if (a.sender)
            room = rec.count;
        else
            sent = rec.count;
    }
    r->bytes = sent * occl_host_type_bytes(a.type);
    if (sent > room) {
        occl_run_fail(r, OCCL_ERR_TRUNCATE,
                 occl_text("a message of %llu elements came where %llu were expected", (unsigned long long)sent,
                           (unsigned long long)room));
        return OCCL_ERR_TRUNCATE;
    }
    return occl_plan_choose(t->comm, t, &a, sent, r->hidden, &r->cp);
}

static void release_buffers(occl_run_t *r)
{
    if (r->nhold)
        r->comm->dev->ops->far->release(r->comm->dev, r->hold, r->nhold);
    r->nhold = 0;
    r->mapped = 0;
}

/* Looked at again when nothing else moves, and by whoever waits for it. */
static void look_again(occl_tag_t *t)
{
    occl_list_remove(&t->in_unchecked);
    occl_list_push_back(&t->comm->ctx->unchecked, &t->in_unchecked);
}

/* Where in member i's buffers the blocks lie that go from there to me, and from me there. */
static void add_displacement(occl_run_t *r, uint32_t i, const occl_record_t *rec)
{
    occl_tag_t *t = r->tag;
    const occl_table_t *b = occl_tag_table(t, i, rec);
    if (OCCL_LIKELY(!b || !occl_coll_exchanges(r->coll->args.kind)))
        return;
    for (int in = 0; in < 2; in++) {
        const occl_block_t *e = b->e + (in ? b->cap : 0);
        uint32_t k = 0, all = in ? b->nrecv : b->nsend;
        if (t->me < all && e[t->me].peer == (int32_t)t->me && e[t->me].n)
            k = t->me; /* one for each member, mostly */
        while (k < all && !(e[k].peer == (int32_t)t->me && e[k].n))
            k++;
        if (k < all)
            r->x[in ? t->n + i : i] += e[k].at;
    }
}

/*
 * Far device, an exposed plan: the members' buffers as this one's device sees them. 1: all are known, and held; 0: not yet, the
 * driver has to map one; -1: one cannot be mapped, why_p.
 */
static int resolve_buffers(occl_run_t *r, char *why, size_t len)
{
    occl_tag_t *t = r->tag;
    occl_comm_t *c = t->comm;
    const occl_device_far_ops_t *far = c->dev->ops->far;
    int ready = 1;
    if (r->mapped)
        return r->mapped;
    for (uint32_t i = 0; i < t->n; i++) {
        occl_record_t rec;
        occl_member_t *m = &c->member[t->member[i]];
        const char *text = "";
        int a, b;
        if (i == t->me) {
            r->x[i] = occl_coll_at(r->coll, r->coll->args.send);
            r->x[t->n + i] = occl_coll_at(r->coll, r->coll->args.recv);
            r->hold[i] = r->hold[t->n + i] = NULL;
            continue;
        }
        occl_tag_opened_record(t, i, r->n, &rec);
        a = far->resolve(c->dev, m->far, rec.send_number, rec.send, &r->x[i], &r->hold[i], &text);
        b = far->resolve(c->dev, m->far, rec.recv_number, rec.recv, &r->x[t->n + i], &r->hold[t->n + i], &text);
        if (a < 0 || b < 0) {
            (void)snprintf(why, len, "a buffer of %.90s cannot be mapped: %.120s", m->name, text);
            ready = -1;
        } else if (ready > 0) {
            add_displacement(r, i, &rec);
            ready = a & b;
        }
    }
    r->nhold = 2 * t->n;
    if (ready <= 0)
        release_buffers(r);
    r->mapped = ready;
    return ready;
}

/*
 * Whether the run can go from and to the members' buffers. Somebody who finds that it cannot map one of them must not be alone with
 * it: so where a record names an export that not all members are known to have mapped before, they tell each other how it went,
 * and all take the other plan if one could not. 1: yes; 0: not known yet; -1: no; -2: the run has failed.
 */
static int agree_on_buffers(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_record_t *mine = &t->blk->rec[r->n & 1];
    char why[256] = "";
    int ready = resolve_buffers(r, why, sizeof(why)), some_new = (mine->flags & REC_NEW) != 0;
    for (uint32_t i = 0; i < t->n && !some_new; i++) {
        occl_record_t rec;
        if (i == t->me)
            continue;
        occl_tag_opened_record(t, i, r->n, &rec);
        some_new = (rec.flags & REC_NEW) != 0;
    }
    if (!ready) {
        look_again(t);
        return 0;
    }
    if (!some_new) {
        if (ready < 0)
            occl_run_break(r, OCCL_ERR_DEVICE, occl_text("%s", why));
        return ready < 0 ? -2 : 1;
    }
    if (mine->mapped >> 1 != r->n) {
        occl_store_release64(&mine->mapped, r->n << 1 | (ready > 0));
        occl_comm_publish(t->comm, t->key);
        occl_tag_wake(t);
        if (ready < 0)
            occl_log(&t->comm->ctx->log, OCCL_LOG_INFO | OCCL_AREA_CHOICE, "through slots: %s", why);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t w;
        if (i == t->me)
            continue;
        w = occl_tag_mapped_word(t, i, r->n);
        if (w >> 1 != r->n)
            return 0; /* its news will tell */
        if (!(w & 1))
            ready = -1;
    }
    if (ready < 0) {
        release_buffers(r);
        return -1;
    }
    return 1;
}

static void take_alt(occl_run_t *r)
{
    if (r->cp)
        occl_plan_put(r->comm, r->cp);
    r->cp = r->coll->alt;
    if (r->cp)
        r->cp->refs++;
}

/* From now on the run goes through slots. A message has no plan then, until find_message_plan. */
static void hide(occl_run_t *r)
{
    r->hidden = 1;
    r->comm->ctx->n_hidden++;
    take_alt(r);
}

/*
 * An exchange: does every block have its other half, and how shall they go? All members find the same, since all add up the same
 * numbers. False: it has failed.
 */
static int agree_on_blocks(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    const occl_coll_t *coll = r->coll;
    uint64_t balance = coll->wire.balance, moved = coll->wire.moved, n = coll->wire.nmoved;
    uint32_t flags = coll->rec_flags;
    for (uint32_t i = 0; i < t->n; i++) {
        occl_record_t rec;
        if (i == t->me)
            continue;
        occl_tag_opened_record(t, i, r->n, &rec);
        balance += rec.balance;
        moved += rec.moved;
        n += rec.nmoved;
        flags |= rec.flags;
    }
    if (balance) {
        t->comm->n_mismatch++;
        t->comm->ctx->n_mismatch++;
        occl_run_fail(r, OCCL_ERR_MISMATCH, occl_run_mismatch_text(r));
        return 0;
    }
    if (coll->alt && r->cp == coll->cp &&
        ((flags & REC_SLOTS) || occl_exchange_move(t->comm, t, &coll->args, n ? (moved + n - 1) / n : 0) == OCCL_MOVE_SLOTS))
        take_alt(r);
    return 1;
}

static int find_message_plan(occl_run_t *r)
{
    occl_status_t s = open_message(r);
    if (s != OCCL_OK && s != OCCL_ERR_TRUNCATE)
        occl_run_break(r, s, occl_text("%s", occl_last_error()));
    return s == OCCL_OK;
}

/* Do all members' records say so? A chunk must be everybody's. */
static int all_long(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_record_t rec;
    int yes = long_steps(r);
    for (uint32_t i = 0; i < t->n && yes; i++) {
        if (i == t->me)
            continue;
        occl_tag_opened_record(t, i, r->n, &rec);
        yes = (rec.flags & REC_LONG) != 0;
    }
    return yes;
}

/* Does some member have a buffer that the others cannot reach? */
static int any_hidden(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    uint64_t number, offset;
    occl_record_t rec;
    if (!occl_coll_exported(r->coll, r->coll->args.send, &number, &offset) ||
        !occl_coll_exported(r->coll, r->coll->args.recv, &number, &offset))
        return 1;
    for (uint32_t i = 0; i < t->n; i++) {
        if (i == t->me)
            continue;
        occl_tag_opened_record(t, i, r->n, &rec);
        if (rec.flags & REC_HIDDEN)
            return 1;
    }
    return 0;
}

/* All members have started the run with the same signature. */
void occl_run_open(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_ctx_t *ctx = t->comm->ctx;
    occl_dev_run_t *d = &r->dev;
    const occl_plan_t *plan;
    int pool = r->pool_off != 0;
    if (!occl_tag_recheck(t, r))
        return;
    OCCL_POINT(OPENED, ctx);
    if (OCCL_UNLIKELY(r->coll->blocks && occl_coll_exchanges(r->coll->args.kind)) && !occl_coll_known(r->coll->args.kind) &&
        !agree_on_blocks(r))
        return;
    if (OCCL_UNLIKELY(t->comm->dev->ops->far != NULL) && (!r->cp || (r->cp->plan->flags & OCCL_PLAN_EXPOSED)) && any_hidden(r)) {
        hide(r);
    }
    if (!r->cp && !find_message_plan(r))
        return;
    if (OCCL_UNLIKELY(t->comm->dev->ops->far != NULL) && (r->cp->plan->flags & OCCL_PLAN_EXPOSED)) {
        int yes;
        if (!grow((void **)&r->x, &r->xcap, 2 * t->n, sizeof(uint64_t)) ||
            !grow((void **)&r->hold, &r->holdcap, 2 * t->n, sizeof(void *))) {
            occl_run_break(r, OCCL_ERR_RESOURCE, occl_text("no memory for the peers' addresses"));
            return;
        }
        yes = agree_on_buffers(r);
        if (!yes || yes == -2)
            return;
        if (yes < 0) {
            hide(r);
            if (!r->cp && !find_message_plan(r))
                return;
        }
    }
    plan = r->cp->plan;
    /* Every member made its mailboxes before it published its record, so they are there; the tests inject failures here. */
    if (!find_mailboxes(r)) {
        occl_run_break(r, OCCL_ERR_INTERN, occl_text("a member published run %llu without its links", (unsigned long long)r->n));
        return;
    }
    if (plan->flags & OCCL_PLAN_EXPOSED) {
        if (!grow((void **)&r->x, &r->xcap, 2 * t->n, sizeof(uint64_t))) {
            occl_run_break(r, OCCL_ERR_RESOURCE, occl_text("no memory for the peers' addresses"));
            return;
        }
        for (uint32_t i = 0; i < t->n && !t->comm->dev->ops->far; i++) {
            occl_record_t rec;
            memset(&rec, 0, sizeof(rec));
            if (i != t->me)
                occl_tag_opened_record(t, i, r->n, &rec);
            r->x[i] = rec.send;
            r->x[t->n + i] = rec.recv;
            if (i != t->me)
                add_displacement(r, i, &rec);
        }
        d->xsend = r->x;
        d->xrecv = r->x + t->n;
        d->via = t->comm->dev->ops->far ? NULL : t->via;
        if (!d->chunk && t->comm->dev->ops->far && all_long(r))
            d->chunk = occl_long_chunk_bytes(t->comm, plan) / plan->elem_bytes;
    }
    ctx->n_gates++;
    if (r->gated && (plan->flags & OCCL_PLAN_SLOTS)) {
        for (uint32_t i = 0; i < t->n && pool; i++) {
            occl_record_t rec;
            if (i == t->me)
                continue;
            occl_tag_opened_record(t, i, r->n, &rec);
            pool = (rec.flags & REC_POOL) != 0;
        }
        if (pool && grow((void **)&r->pools, &r->pcap, 2 * plan->nchannels * t->n, sizeof(*r->pools))) {
            uint32_t half = r->n & 1, all = plan->nchannels * t->n;
            for (uint32_t ch = 0; ch < plan->nchannels; ch++) {
                for (uint32_t i = 0; i < plan->npeers; i++) {
                    uint32_t ix = ch * t->n + plan->peers[i];
                    occl_member_t *m = &t->comm->member[t->member[plan->peers[i]]];
                    r->pools[ix] = occl_arena_at(ctx->arena, occl_load_relaxed64(&t->links[ix].rx->pool[half]));
                    r->pools[all + ix] = m->base + occl_load_relaxed64(&t->links[ix].tx->pool[half]);
                }
            }
            d->rxpool = r->pools;
            d->txpool = r->pools + all;
            d->slot_bytes = t->comm->pool_geo.slot_bytes;
            d->nslots = t->comm->pool_geo.nslots;
            d->chunk = occl_slot_capacity(d->slot_bytes) / plan->elem_bytes;
        }
    }
    occl_run_submit(r);
}

/* --- device ------------------------------------------------------------------------------------------------------- */

/* Scratch of the run's first submission; false: no memory. What it has may be enough. */
static int take_scratch(occl_run_t *r, uint64_t need)
{
    occl_device_t *dev = r->comm->dev;
    const occl_device_far_ops_t *far = dev->ops->far;
    if (need <= r->scratch_cap)
        return 1;
    if (far) {
        far->free(dev, r->scratch_off, r->scratch_cap);
        r->scratch_off = far->alloc(dev, need);
        r->scratch = r->scratch_off ? r->comm->member[r->comm->rank].dbase + r->scratch_off : NULL;
    } else {
        free(r->scratch);
        r->scratch = malloc(need);
    }
    r->scratch_cap = r->scratch ? need : 0;
    return r->scratch != NULL;
}

/* Hands the run over, first time or again. Buffers and pool have been set before, by run_prepare and occl_run_open. */
void occl_run_submit(occl_run_t *r)
{
    occl_device_t *dev = r->comm->dev;
    const occl_device_far_ops_t *far = dev->ops->far;
    occl_dev_run_t *d = &r->dev;
    const occl_plan_t *plan = r->cp->plan;
    uint32_t left = 0;
    /* Nobody overtakes those who wait for room: runs that are parked and come again would keep them out for ever, and the members may
       have others in their queues. */
    if (OCCL_UNLIKELY(r->state != RUN_ROOM && (dev->outstanding >= dev->room || !occl_list_empty(&dev->waiting) ||
                                               (far && !far->place(dev, d))))) {
        occl_list_push_back(&dev->waiting, &r->in_room);
        r->state = RUN_ROOM;
        return;
    }
    if (d->plan != plan) { /* first time */
        uint32_t ch;
        uint64_t need;
        d->plan = plan;
        d->links = r->tag->links;
        d->send = (unsigned char *)(uintptr_t)r->coll->args.send;
        d->recv = r->coll->args.recv;
        if (OCCL_UNLIKELY(far != NULL)) {
            const occl_coll_t *from = r->partner ? r->partner->coll : r->coll;
            d->send = (unsigned char *)(uintptr_t)occl_coll_at(from, from->args.send);
            d->recv = (unsigned char *)(uintptr_t)occl_coll_at(r->coll, r->coll->args.recv);
            d->words = (uint16_t)r->cp->words;
            if (!occl_tag_bind(r)) {
                d->plan = NULL;
                occl_run_break(r, OCCL_ERR_RESOURCE, occl_text("no device memory for a plan of %llu bytes",
                                                               (unsigned long long)occl_plan_size(plan)));
                return;
            }
        }
        if (!d->chunk) {
            if (plan->flags & OCCL_PLAN_SLOTS)
                d->chunk = occl_slot_capacity(d->slot_bytes) / plan->elem_bytes;
            else
                d->chunk = occl_chunk_bytes(r->comm, plan) / plan->elem_bytes;
            if (!d->chunk)
                d->chunk = 1;
        }
        need = (uint64_t)plan->nchannels * plan->scratch_chunks * d->chunk * plan->elem_bytes;
        if (!take_scratch(r, need)) {
            d->plan = NULL;
            occl_run_break(r, OCCL_ERR_RESOURCE, occl_text("no memory for %llu bytes of scratch", (unsigned long long)need));
            return;
        }
        d->scratch = r->scratch;
        for (ch = 0; ch < plan->nchannels; ch++)
            memset(&d->st[ch], 0, sizeof(d->st[ch]));
    }
    for (uint32_t ch = 0; ch < plan->nchannels; ch++)
        left += !d->st[ch].over;
    d->left = left;
    d->parked = 0;
    d->failed = 0;
    d->priority = (uint32_t)(r->coll->args.priority + r->comm->priority);
    r->state = RUN_DEVICE;
    /* The host device wakes peers after the run's first turn, also for the record that was just published. */
    d->st[0].posted = 1;
    dev->ops->submit(dev, d);
    if (!dev->ops->caller_executes)
        occl_tag_wake(r->tag);
}

void occl_device_event(occl_ctx_t *ctx, occl_dev_run_t *dev, uint32_t what)
{
    occl_run_t *r = (occl_run_t *)dev;
    occl_tag_t *t = r->tag;
    r->comm->dev->outstanding--;
    r->state = RUN_GATE;
    if (OCCL_UNLIKELY(r->failing != OCCL_OK)) {
        occl_status_t why = r->failing;
        char *text = r->text;
        r->text = NULL;
        occl_run_finish(r, why, text);
        return;
    }
    switch (what) {
    case OCCL_DONE:
        if ((r->cp->plan->flags & OCCL_PLAN_HEARS_ALL) || t->nseen + 1 >= t->n) {
            t->nseen = t->n - 1;
            occl_run_finish(r, OCCL_OK, NULL);
            return;
        }
        r->state = RUN_VERIFY;
        occl_tag_check(t);
        return;
    case OCCL_CQ_PARKED:
        r->gated = 1; /* falls back to the gate: no more submission before everybody is known to be there */
        occl_tag_check(t);
        return;
    case OCCL_MISMATCH:
        t->comm->n_mismatch++;
        ctx->n_mismatch++;
        occl_run_fail(r, OCCL_ERR_MISMATCH, occl_run_mismatch_text(r));
        return;
    default:
    {
        const char *name = occl_comm_find_dead(t->comm);
        occl_run_break(r, OCCL_ERR_PEER_FAILED,
                       name ? occl_text("%s has exited", name)
                            : occl_text("the memory of a member could not be reached: it has exited or unmapped it"));
    }
    }
}

/* The device is lost: what it holds does not come back, and nothing can be started on it. */
void occl_device_lost(occl_ctx_t *ctx, occl_device_t *dev)
{
    OCCL_LIST_EACH(c, cn, &ctx->comms, occl_comm_t, in_ctx) {
        if (c->dev != dev)
            continue;
        occl_comm_ref(c);
        OCCL_LIST_EACH(t, tn, &c->active_tags, occl_tag_t, in_active) {
            occl_run_t *r = OCCL_CONTAINER(t->queue.next, occl_run_t, in_tag);
            occl_tag_abandon(t);
            occl_tag_wake(t);
            if (r->state == RUN_DEVICE) {
                dev->outstanding--;
                r->state = RUN_GATE;
                r->failing = OCCL_OK;
            }
            occl_tag_kill(t, OCCL_ERR_DEVICE, dev->broken);
        }
        occl_comm_unref(c);
    }
}

/* --- end ---------------------------------------------------------------------------------------------------------- */

/* Ends the run, now or when the device has given it back. Takes text. */
void occl_run_fail(occl_run_t *r, occl_status_t status, char *text)
{
    if (r->failing != OCCL_OK || r->state == RUN_DRAIN || r->state == RUN_OVER || r->state == RUN_COPY) {
        free(text);
        return;
    }
    r->comm->ctx->n_failed++;
    if (r->state == RUN_DEVICE) {
        r->failing = status;
        free(r->text);
        r->text = text;
        r->comm->dev->ops->drop(r->comm->dev, &r->dev);
        return;
    }
    occl_run_finish(r, status, text);
}

/* It fails here alone and in the middle, when the members may already wait for my part: they are told, and the tag is lost. Takes
 * text. */
void occl_run_break(occl_run_t *r, occl_status_t status, char *text)
{
    occl_tag_t *t = r->tag;
    char why[sizeof(t->why_dead)];
    (void)snprintf(why, sizeof(why), "an earlier run of this tag has failed in the middle: %.100s", text ? text : "");
    occl_tag_abandon(t);
    occl_tag_wake(t);
    occl_run_fail(r, status, text);
    occl_tag_kill(t, status, why);
}

/* The run is over for its user; it leaves the tag now, or when the last member has started it. */
void occl_run_finish(occl_run_t *r, occl_status_t status, char *text)
{
    occl_tag_t *t = r->tag;
    occl_ctx_t *ctx = r->comm->ctx;
    occl_coll_t *coll = coll_of(r);
    if (r->state == RUN_ROOM)
        occl_list_remove(&r->in_room);
    if (OCCL_UNLIKELY(coll && coll->args.stage)) {
        if (status == OCCL_OK && coll->args.stage->after && !r->copied) {
            r->state = RUN_COPY;
            occl_list_push_back(&ctx->called, &r->in_called);
            return;
        }
        if (r->staged == 1 && !occl_list_empty(&r->in_called)) { /* failed or withdrawn before `before` was called */
            occl_list_remove(&r->in_called);
            r->staged = 0;
            r->refs--; /* the tag has one, too */
        }
    }
    if (OCCL_UNLIKELY(r->comm->dev->ops->far != NULL)) {
        if (status == OCCL_OK && coll && coll->rbuf.bounce && !r->copied) {
            r->state = RUN_COPY;
            occl_list_push_back(&ctx->called, &r->in_called);
            return;
        }
        if (status == OCCL_OK && r->nhold && coll) {
            uint64_t number, offset;
            (void)occl_coll_exported(coll, coll->args.send, &number, &offset);
            confirm(t, number);
            (void)occl_coll_exported(coll, coll->args.recv, &number, &offset);
            confirm(t, number);
        }
        release_buffers(r);
        r->comm->dev->ops->far->forget(r->comm->dev, &r->dev);
        occl_tag_unbind(r);
        if (r->partner)
            occl_run_finish(r->partner, status, text ? occl_text("%s", text) : NULL);
        r->partner = NULL;
    }
    free(r->text);
    r->text = text;
    r->status = status;
    r->failing = OCCL_OK;
    if (OCCL_UNLIKELY(r->enqueued))
        occl_run_enqueued_over(r);
    if (r->pool_off) {
        /* All messages that were for me have been read (or, failed at the gate, none was ever sent). A run that failed on the device
           may still be written to: its region is lost to the pool until the communicator goes. */
        if (status == OCCL_OK || r->dev.plan == NULL)
            pool_give(ctx, r->pool_off, r->pool_bytes);
        r->pool_off = 0;
    }
    r->comm->pending--;
    occl_store_relaxed32(&ctx->pending, ctx->pending - 1);
    if (coll && coll->active == r)
        coll->active = NULL;
    occl_store_release32(&r->over, 1); /* outputs, status and text are seen by whoever acquires it */
    if (r->fn)  {
        occl_run_ref(r);
        occl_list_push_back(&ctx->called, &r->in_called);
    }
    if (coll) {
        coll->outcome = status;
        free(coll->text);
        coll->text = text ? occl_text("%s", text) : NULL;
    }
    if (status == OCCL_OK || status == OCCL_ERR_CANCELLED || t->nseen + 1 >= t->n || t->dead || r->state == RUN_QUEUED) {
        occl_tag_leave(t, r);
    } else {
        r->state = RUN_DRAIN;
        occl_tag_check(t); /* they may all have come by now */
    }
}

/* --- what the members disagree about ------------------------------------------------------------------------------ */

const char *occl_type_name(uint32_t type)
{
    static const char *const names[] = {
#define X(id, number, bytes, name) name,
        OCCL_TYPE_TABLE(X)
#undef X
    };
    return type < OCCL_T_COUNT ? names[type] : "?";
}

const char *occl_op_name(uint32_t op)
{
    static const char *const names[] = {
#define X(id, number, name) name,
        OCCL_OP_TABLE(X)
#undef X
    };
    return op < OCCL_OP_COUNT ? names[op] : "?";
}

static void field(char *buf, size_t len, const occl_record_t *rec, int which)
{
    int failed = (rec->word & 0xff) == REC_ERROR;
    buf[0] = 0;
    if (which == 0)
        (void)snprintf(buf, len, "%s", failed ? occl_status_name((occl_status_t)rec->status) : "");
    else if (failed)
        return;
    else if (which == 1)
        (void)snprintf(buf, len, "%s%s", occl_coll_name(rec->kind & WIRE_KIND),
                       rec->kind & WIRE_IN_PLACE ? " (in place)" : "");
    else if (which == 2)
        (void)snprintf(buf, len, "%llu", (unsigned long long)rec->count);
    else if (which == 3 && rec->type > 0xff)
        (void)snprintf(buf, len, "several basic types (#%06x)", rec->type >> 8);
    else if (which == 3)
        (void)snprintf(buf, len, "%s", occl_type_name(rec->type));
    else if (which == 4 && (rec->op & 0xff) == OCCL_OP_PREMUL)
        (void)snprintf(buf, len, "%s with a scalar (#%06x)", occl_op_name(OCCL_OP_PREMUL), rec->op >> 8);
    else if (which == 4)
        (void)snprintf(buf, len, "%s", occl_op_name(rec->op));
    else
        (void)snprintf(buf, len, "%d", (int)rec->root);
}

static void end_of(occl_strbuf_t *b, const occl_block_t *e)
{
    if (e && e->n)
        occl_strbuf_printf(b, "%llu bytes (%s)", (unsigned long long)e->n, occl_type_name(e->type));
    else
        occl_strbuf_add(b, "nothing");
}

/* The which-th block for `peer`; NULL: there are not so many. */
static const occl_block_t *find_block(const occl_table_t *x, int in, int32_t peer, uint32_t which)
{
    const occl_block_t *e = x->e + (in ? x->cap : 0);
    uint32_t n = in ? x->nrecv : x->nsend;
    if (!which && (uint32_t)peer < n && e[peer].peer == peer && (peer == 0 || e[peer - 1].peer == peer - 1))
        return &e[peer]; /* one for each member, mostly */
    for (uint32_t i = 0; i < n && i < x->cap; i++)
        if (e[i].peer == peer && !which--)
            return &e[i];
    return NULL;
}

/* "rank 0 sends rank 1 12 bytes (int32), which expects 8 bytes (int32)", for the first few. How many there are. */
static uint32_t unequal_blocks(occl_run_t *r, const occl_record_t *recs, occl_strbuf_t *b)
{
    enum { SOME = 4 };
    occl_tag_t *t = r->tag;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const occl_table_t *x = recs[i].word ? occl_tag_table(t, i, &recs[i]) : NULL;
        for (uint32_t j = 0; x && j < t->n; j++) {
            const occl_table_t *y = recs[j].word ? occl_tag_table(t, j, &recs[j]) : NULL;
            for (uint32_t which = 0; y && which <= x->cap; which++) {
                const occl_block_t *out = find_block(x, 0, (int32_t)j, which), *in = find_block(y, 1, (int32_t)i, which);
                if (!out && !in)
                    break;
                if ((out ? out->n : 0) == (in ? in->n : 0) && (!out || !out->n || out->type == in->type))
                    continue;
                if (n++ < SOME) {
                    occl_strbuf_printf(b, " rank %d sends rank %d ", (int)t->member[i], (int)t->member[j]);
                    end_of(b, out);
                    occl_strbuf_add(b, ", which expects ");
                    end_of(b, in);
                    occl_strbuf_add(b, ";");
                }
            }
        }
    }
    if (n > SOME)
        occl_strbuf_printf(b, " and %u more;", n - SOME);
    return n;
}

/* Members disagree how a vector is divided. */
static uint32_t unequal_lengths(occl_run_t *r, const occl_record_t *recs, occl_strbuf_t *b)
{
    occl_tag_t *t = r->tag;
    for (uint32_t p = 0; p < t->n; p++)
        for (uint32_t i = 0, first = t->n; i < t->n; i++) {
            const occl_table_t *x = recs[i].word ? occl_tag_table(t, i, &recs[i]) : NULL;
            const occl_table_t *y = first < t->n ? occl_tag_table(t, first, &recs[first]) : NULL;
            if (!x || x->nrecv <= p)
                continue;
            if (y && y->e[y->cap + p].n != x->e[x->cap + p].n) {
                occl_strbuf_printf(b, " block %u: %llu on rank %d, %llu on rank %d;", p, (unsigned long long)y->e[y->cap + p].n,
                                   (int)t->member[first], (unsigned long long)x->e[x->cap + p].n, (int)t->member[i]);
                return 1;
            }
            first = y ? first : i;
        }
    return 0;
}

/* "count: 8 on ranks 0,2; 16 on rank 1" for every field in which the members that have come differ. */
char *occl_run_mismatch_text(occl_run_t *r)
{
    static const char *const label[] = {"start refused", "operation", "count", "type", "op", "root"};
    occl_tag_t *t = r->tag;
    occl_record_t *recs = calloc(t->n, sizeof(*recs));
    char *done = calloc(t->n, 1), where[96];
    occl_strbuf_t b;
    uint32_t missing = 0, any = 0;
    if (!recs || !done) {
        free(recs);
        free(done);
        return NULL;
    }
    occl_strbuf_init(&b);
    for (uint32_t i = 0; i < t->n; i++) {
        if (i == t->me)
            memcpy(&recs[i], &t->blk->rec[r->n & 1], sizeof(recs[i]));
        else if (!occl_tag_read_record(t, i, r->n, &recs[i]))
            memset(&recs[i], 0, sizeof(recs[i])), missing++;
    }
    occl_strbuf_printf(&b, "the members disagree about run %llu of %s on %s:", (unsigned long long)r->n,
                       occl_tag_label(t, where, sizeof(where)), t->comm->name);
    for (int f = 0; f < 6; f++) {
        char mine[64], v[64];
        int differ = 0, first = 1;
        memset(done, 0, t->n);
        for (uint32_t i = 0; i < t->n; i++) {
            if (!recs[i].word)
                continue;
            field(v, sizeof(v), &recs[i], f);
            if (f && !v[0])
                continue; /* a start that failed has only its reason */
            if (first)
                memcpy(mine, v, sizeof(mine)), first = 0;
            differ |= strcmp(v, mine) != 0;
        }
        if (f == 0 ? (first || (!differ && !mine[0])) : !differ)
            continue;
        if (f == 2 && t->n == 2 && recs[t->me].kind == OCCL_COLL_SENDRECV)
            continue; /* a message's length and a buffer's room may differ */
        occl_strbuf_printf(&b, " %s", label[f]);
        any = 1;
        first = 1;
        for (uint32_t i = 0; i < t->n; i++) {
            int many = 0;
            if (done[i] || !recs[i].word)
                continue;
            field(mine, sizeof(mine), &recs[i], f);
            if (!mine[0])
                continue;
            for (uint32_t k = i + 1; k < t->n; k++) {
                field(v, sizeof(v), &recs[k], f);
                many += recs[k].word && !strcmp(v, mine);
            }
            occl_strbuf_printf(&b, "%s %s on rank%s %d", first ? "" : ",", mine, many ? "s" : "", (int)t->member[i]);
            first = 0;
            for (uint32_t k = i + 1; k < t->n; k++) {
                field(v, sizeof(v), &recs[k], f);
                if (!recs[k].word || strcmp(v, mine))
                    continue;
                done[k] = 1;
                occl_strbuf_printf(&b, ",%d", (int)t->member[k]);
            }
        }
        occl_strbuf_add(&b, ";");
    }
    {
        /* Of one operation only can blocks be compared. */
        int alike = 1;
        for (uint32_t i = 0; i < t->n; i++)
            alike &= !recs[i].word || ((recs[i].word & 0xff) != REC_ERROR && recs[i].kind == recs[t->me].kind);
        if (alike && recs[t->me].table && occl_coll_exchanges(recs[t->me].kind & WIRE_KIND))
            any |= unequal_blocks(r, recs, &b) > 0;
        else if (alike && recs[t->me].table)
            any |= unequal_lengths(r, recs, &b) > 0;
    }
    if (!any)
        occl_strbuf_add(&b, " one of them had been started with another signature first, and was withdrawn;");
    if (missing)
        occl_strbuf_printf(&b, " %u members have not started it yet", missing);
    free(recs);
    free(done);
    return occl_strbuf_take(&b);
}
