/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tags: the sequence of runs with one key on one communicator, and the part of the board and the links that belong to it.
 */
#include "core/internal.h"

#include <stdio.h>
#include <stdlib.h>

/* Point-to-point has its own sequence per (source, destination, tag). */
static uint64_t key_of(int32_t tag, const occl_coll_args_t *a, int rank)
{
    uint64_t src, dst;
    if (!a || a->kind != OCCL_COLL_SENDRECV)
        return (uint64_t)(uint32_t)tag;
    src = (uint64_t)(a->sender ? rank : a->peer);
    dst = (uint64_t)(a->sender ? a->peer : rank);
    return 1ull << 63 | src << 47 | dst << 31 | (uint64_t)(uint32_t)tag;
}

const char *occl_tag_label(const occl_tag_t *t, char *buf, size_t len)
{
    if (t->key >> 63)
        (void)snprintf(buf, len, "message %d -> %d, tag %llu", (int)(t->key >> 47 & 0xffff), (int)(t->key >> 31 & 0xffff),
                       (unsigned long long)(t->key & 0x7fffffff));
    else
        (void)snprintf(buf, len, "tag %llu", (unsigned long long)t->key);
    return buf;
}

static void free_binding(occl_tag_t *t, occl_binding_t *b)
{
    t->comm->dev->ops->far->unbind(t->comm->dev, b->bound);
    occl_plan_put(t->comm, b->cp);
    free(b);
}

/* Room for one more: the oldest that nobody uses goes. False: no memory. */
static int binding_room(occl_tag_t *t)
{
    void *p;
    if (t->nbindings >= OCCL_BINDINGS) {
        for (uint32_t i = 0; i < t->nbindings; i++) {
            if (t->bindings[i]->users)
                continue;
            free_binding(t, t->bindings[i]);
            t->nbindings--;
            memmove(t->bindings + i, t->bindings + i + 1, (t->nbindings - i) * sizeof(*t->bindings));
            break;
        }
    }
    if (t->nbindings < t->bindings_cap)
        return 1;
    p = realloc(t->bindings, (t->bindings_cap + OCCL_BINDINGS) * sizeof(*t->bindings));
    if (!p)
        return 0;
    t->bindings = p;
    t->bindings_cap += OCCL_BINDINGS;
    return 1;
}

int occl_tag_bind(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    occl_device_t *dev = t->comm->dev;
    const occl_plan_t *plan = r->cp->plan;
    occl_binding_t *b = NULL;
    uint64_t at;
    void *image;
    occl_tag_unbind(r); /* of the plan that it turned out not to be */
    for (uint32_t i = t->nbindings; i && !b; i--)
        if (t->bindings[i - 1]->cp == r->cp)
            b = t->bindings[i - 1];
    if (OCCL_UNLIKELY(!b)) {
        if (!binding_room(t) || !(b = calloc(1, sizeof(*b))))
            return 0;
        b->bound = dev->ops->far->bind(dev, occl_plan_size(plan), t->links, plan->nchannels * t->n, &at, &image);
        if (!b->bound) {
            free(b);
            return 0;
        }
        occl_plan_image(plan, at, image);
        dev->ops->far->load(dev, b->bound);
        b->cp = r->cp;
        b->cp->refs++;
        t->bindings[t->nbindings++] = b;
    }
    b->users++;
    r->binding = b;
    r->dev.user = (uint64_t)(uintptr_t)b->bound;
    return 1;
}

void occl_tag_unbind(occl_run_t *r)
{
    if (r->binding)
        r->binding->users--;
    r->binding = NULL;
}

static void free_tables(occl_tag_t *t);

/* Unpublished or never seen by anyone: frees everything. Else only when the communicator goes. */
void occl_tag_free(occl_tag_t *t)
{
    occl_ctx_t *ctx = t->comm->ctx;
    uint32_t nch = t->comm->nchannels;
    occl_device_t *dev = t->comm->dev;
    for (uint32_t i = 0; i < t->nbindings; i++)
        free_binding(t, t->bindings[i]);
    free(t->bindings);
    free_tables(t);
    if (t->blk && t->links)
        for (uint32_t i = 0; i < nch * t->n; i++) {
            uint64_t bytes = occl_mailbox_room(t->comm, i / t->n);
            if (!t->blk->mbox[i])
                continue;
            if (dev->ops->far)
                dev->ops->far->free(dev, t->blk->mbox[i], bytes);
            else
                (void)occl_arena_free(ctx->arena, t->blk->mbox[i], bytes);
        }
    if (t->block_off)
        (void)occl_arena_free(ctx->arena, t->block_off, sizeof(occl_tagblk_t) + (uint64_t)nch * t->n * 8);
    free(t->member);
    free(t->pblk);
    free(t->links);
    free(t->seen);
    free(t->pword);
    free(t->psig);
    free(t->wake);
    free(t->via);
    free(t);
}

occl_status_t occl_tag_get(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_tag_t **tag_p)
{
    uint64_t key = key_of(tag, args, c->rank), bytes;
    occl_tag_t *t = occl_hash_get(&c->tags, key);
    uint32_t i, w = 0;
    char err[256];
    if (t) {
        *tag_p = t;
        return OCCL_OK;
    }
    if (OCCL_UNLIKELY(occl_comm_is_lost(c->blk, key)))
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for tag %d when it was first started: it cannot be used any more", tag);
    t = calloc(1, sizeof(*t));
    if (!t)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for tag %d", tag);
    t->comm = c;
    t->key = key;
    occl_list_init(&t->in_active);
    occl_list_init(&t->queue);
    occl_list_init(&t->in_unchecked);
    occl_list_init(&t->self_sends);
    occl_list_init(&t->self_recvs);
    occl_list_init(&t->old_tables);
    /* A message to oneself has one member only. */
    t->n = !(key >> 63) ? (uint32_t)c->size : args->peer == c->rank ? 1 : 2;
    t->member = calloc(t->n, sizeof(*t->member));
    t->pblk = calloc(t->n, sizeof(*t->pblk));
    t->links = calloc((size_t)c->nchannels * t->n, sizeof(*t->links));
    t->seen = calloc(t->n, sizeof(*t->seen));
    t->pword = calloc(t->n, sizeof(*t->pword));
    t->psig = calloc(t->n, sizeof(*t->psig));
    t->wake = calloc(t->n, sizeof(*t->wake));
    t->via = calloc(t->n, sizeof(*t->via));
    bytes = sizeof(occl_tagblk_t) + (uint64_t)c->nchannels * t->n * 8;
    t->block_off = occl_ctx_alloc(c->ctx, bytes);
    if (!t->member || !t->pblk || !t->links || !t->seen || !t->pword || !t->psig || !t->wake || !t->via || !t->block_off) {
        (void)occl_fail(OCCL_ERR_RESOURCE, "no memory for tag %d: %s", tag, occl_arena_error(c->ctx->arena, err, sizeof(err)));
        goto fail;
    }
    t->blk = occl_arena_at(c->ctx->arena, t->block_off);
    t->blk->key = key;
    for (i = 0; i < t->n; i++) {
        if (!(key >> 63))
            t->member[i] = (int32_t)i;
        else if (t->n == 1)
            t->member[i] = c->rank;
        else
            t->member[i] = i == 0 ? (int32_t)(key >> 47 & 0xffff) : (int32_t)(key >> 31 & 0xffff);
        if (t->member[i] == c->rank) {
            t->me = i;
        } else {
            t->wake[w++] = &c->member[t->member[i]].sleeper->sleeping;
            t->via[i] = c->via[t->member[i]];
        }
    }
    t->bytes = bytes;
    if (occl_hash_put(&c->tags, key, t) != OCCL_OK || occl_dir_insert(c, key, t->block_off) != OCCL_OK) {
        (void)occl_hash_remove(&c->tags, key);
        (void)occl_fail(OCCL_ERR_RESOURCE, "no memory for tag %d: %s", tag, occl_arena_error(c->ctx->arena, err, sizeof(err)));
        goto fail;
    }
    c->tag_bytes += bytes;
    if (t->bytes > c->tag_bytes_max)
        c->tag_bytes_max = t->bytes;
    *tag_p = t;
    return OCCL_OK;
fail:
    occl_tag_free(t);
    return OCCL_ERR_RESOURCE;
}

/* A start on a tag that cannot be made. */
void occl_tag_lose(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args)
{
    occl_comm_lose(c, key_of(tag, args, c->rank));
}

void occl_tag_wake(occl_tag_t *t)
{
    occl_fence_sys(); /* my record is stored; now see who sleeps (occl_wake_peers has the other half) */
    for (uint32_t i = 0; i + 1 < t->n; i++)
        if (occl_load_relaxed32(t->wake[i]))
            occl_host_wake(t->wake[i]);
}

static occl_run_t *head_of(occl_tag_t *t)
{
    return occl_list_empty(&t->queue) ? NULL : OCCL_CONTAINER(t->queue.next, occl_run_t, in_tag);
}

/* The run takes its place n. */
void occl_tag_enqueue(occl_tag_t *t, occl_run_t *r)
{
    int first = occl_list_empty(&t->queue);
    r->n = ++t->last_n;
    r->dev.run = r->n;
    r->state = RUN_QUEUED;
    occl_list_push_back(&t->queue, &r->in_tag);
    if (first) {
        occl_comm_t *c = t->comm;
        if (occl_list_empty(&c->active_tags))
            occl_list_push_back(&c->ctx->active, &c->in_active);
        occl_list_push_back(&c->active_tags, &t->in_active);
        occl_tag_activate(t);
    }
}

/* The run before has left: publish the head's record. */
void occl_tag_activate(occl_tag_t *t)
{
    occl_run_t *r = head_of(t);
    if (!r) {
        occl_comm_t *c = t->comm;
        occl_list_remove(&t->in_active);
        if (occl_list_empty(&c->active_tags))
            occl_list_remove(&c->in_active);
        return;
    }
    t->nseen = 0;
    if (OCCL_UNLIKELY(t->dead)) {
        if (!r->coll) {
            occl_tag_leave(t, r); /* a start that had failed anyway */
            return;
        }
        occl_run_fail(r, t->dead, occl_text("%s", t->why_dead));
        return;
    }
    if (OCCL_UNLIKELY(r->held))
        return; /* occl_run_unhold */
    occl_run_publish(r);
}

void occl_tag_leave(occl_tag_t *t, occl_run_t *r)
{
    int head = head_of(t) == r;
    occl_list_remove(&r->in_tag);
    r->state = RUN_OVER;
    occl_run_unref(r); /* the tag's */
    if (head) {
        occl_list_remove(&t->in_unchecked);
        occl_tag_activate(t);
    }
}

/* Finds member i's block, once. */
static occl_tagblk_t *block_of(occl_tag_t *t, uint32_t i)
{
    if (OCCL_UNLIKELY(!t->pblk[i])) {
        occl_member_t *m = &t->comm->member[t->member[i]];
        uint64_t off = occl_dir_find(m->blk, m->base, t->key);
        if (off)
            t->pblk[i] = (occl_tagblk_t *)(m->base + off);
    }
    return t->pblk[i];
}

/*
 * Copies member i's record if it is run n's. The owner may withdraw and rewrite it while we read (words are atomic, so
 * nothing is undefined): the word before and after must be the same.
 */
int occl_tag_read_record(occl_tag_t *t, uint32_t i, uint64_t n, occl_record_t *rec)
{
    occl_tagblk_t *b = block_of(t, i);
    const uint64_t *from;
    uint64_t *to = (uint64_t *)rec;
    if (!b)
        return 0;
    from = (const uint64_t *)&b->rec[n & 1];
    to[0] = occl_load_acquire64(from);
    /* In the middle of a second look (WITHDRAWING) it is still there: nobody but openers cares */
    if (!occl_rec_started(to[0], n) && (to[0] >> 16 != n || (to[0] & 0xff) != REC_WITHDRAWING))
        return 0;
    for (int k = 1; k < REC_WORDS; k++)
        to[k] = occl_load_relaxed64(from + k);
    occl_fence_sys();
    return occl_load_relaxed64(from) >> 8 == to[0] >> 8;
}

void occl_tag_opened_record(occl_tag_t *t, uint32_t i, uint64_t n, occl_record_t *rec)
{
    const uint64_t *from = (const uint64_t *)&block_of(t, i)->rec[n & 1];
    uint64_t *to = (uint64_t *)rec;
    to[0] = occl_load_acquire64(from); /* the word may say WITHDRAWING for a moment: the owner will find that it is refused */
    for (int k = 1; k < REC_WORDS; k++)
        to[k] = occl_load_relaxed64(from + k);
}

uint64_t occl_tag_mapped_word(const occl_tag_t *t, uint32_t i, uint64_t n)
{
    return occl_load_acquire64((const uint64_t *)&t->pblk[i]->rec[n & 1] + REC_MAPPED);
}

typedef struct old_table {
    occl_list_t in_tag;
    uint64_t off, bytes;
} old_table_t;

uint64_t occl_tag_put_table(occl_tag_t *t, uint64_t n, const occl_coll_t *coll)
{
    const occl_coll_args_t *a = &coll->args;
    occl_ctx_t *ctx = t->comm->ctx;
    uint32_t half = n & 1, cap = a->nsends > a->nrecvs ? a->nsends : a->nrecvs;
    uint64_t bytes;
    occl_table_t *to;
    if (t->table_of[half] == coll->serial)
        return t->table_off[half];
    bytes = sizeof(*to) + 2 * (uint64_t)cap * sizeof(to->e[0]);
    if (t->table_bytes[half] < bytes) {
        old_table_t *old = t->table_off[half] ? malloc(sizeof(*old)) : NULL;
        uint64_t off;
        if (cap < t->n)
            bytes += 2 * (uint64_t)(t->n - cap) * sizeof(to->e[0]), cap = t->n;
        off = occl_ctx_alloc(ctx, bytes);
        if (!off || (t->table_off[half] && !old)) {
            if (off)
                (void)occl_arena_free(ctx->arena, off, bytes);
            free(old);
            return 0;
        }
        if (old) {
            old->off = t->table_off[half];
            old->bytes = t->table_bytes[half];
            occl_list_push_back(&t->old_tables, &old->in_tag);
        }
        t->table_off[half] = off;
        t->table_bytes[half] = bytes;
        t->bytes += bytes;
        t->comm->tag_bytes += bytes;
        if (t->bytes > t->comm->tag_bytes_max)
            t->comm->tag_bytes_max = t->bytes;
        to = occl_arena_at(ctx->arena, off);
        to->cap = cap;
    }
    to = occl_arena_at(ctx->arena, t->table_off[half]);
    to->nsend = a->nsends;
    to->nrecv = a->nrecvs;
    if (a->nsends)
        memcpy(to->e, a->sends, a->nsends * sizeof(to->e[0]));
    if (a->nrecvs)
        memcpy(to->e + to->cap, a->recvs, a->nrecvs * sizeof(to->e[0]));
    t->table_of[half] = coll->serial;
    return t->table_off[half];
}

const occl_table_t *occl_tag_table(const occl_tag_t *t, uint32_t i, const occl_record_t *rec)
{
    if (!rec->table)
        return NULL;
    return (const occl_table_t *)(t->comm->member[t->member[i]].base + rec->table);
}

static void free_tables(occl_tag_t *t)
{
    occl_arena_t *arena = t->comm->ctx->arena;
    occl_list_t *e;
    for (int half = 0; half < 2; half++)
        if (t->table_off[half])
            (void)occl_arena_free(arena, t->table_off[half], t->table_bytes[half]);
    while ((e = occl_list_pop(&t->old_tables)) != NULL) {
        old_table_t *old = OCCL_CONTAINER(e, old_table_t, in_tag);
        (void)occl_arena_free(arena, old->off, old->bytes);
        free(old);
    }
}

/*
 * The owner's half of withdrawing the head of the tag, whose gate is closed here: true when it is as if it had never been started.
 *
 *   owner   stores WITHDRAWING; fence; looks whether some member has not started: then WITHDRAWN, else READY again
 *   opener  has seen all records; fence; looks at every word again (occl_tag_recheck)
 *
 * If the opener does not see our WITHDRAWING its look was before our fence, and so were the records that it saw: we find nobody
 * missing. A member that is WITHDRAWING itself counts as one that has started, since it may find that it must stay: two
 * that took each other for missing would both go after a third one had opened.
 */
int occl_tag_withdraw(occl_tag_t *t, occl_run_t *r)
{
    occl_record_t *rec = &t->blk->rec[r->n & 1];
    uint64_t word = rec->word;
    int missing = 0;
    occl_store_release64(&rec->word, (word & ~0xffull) | REC_WITHDRAWING);
    occl_fence_sys();
    OCCL_POINT(WITHDRAWING, t->comm->ctx);
    for (uint32_t i = 0; i < t->n && !missing; i++) {
        occl_tagblk_t *b;
        uint64_t w;
        if (i == t->me)
            continue;
        b = block_of(t, i);
        w = b ? occl_load_acquire64(&b->rec[r->n & 1].word) : 0;
        missing = w >> 16 != r->n || (w & 0xff) == REC_WITHDRAWN;
    }
    if (!missing) {
        occl_store_release64(&rec->word, word);
        occl_comm_publish(t->comm, t->key); /* who looked in between has taken it for not started */
        occl_tag_wake(t);
        return 0;
    }
    occl_store_release64(&rec->word, (word & ~0xffull) | REC_WITHDRAWN);
    t->attempt++;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->seen[i] == r->n)
            t->seen[i] = r->n - 1; /* to be counted again when n is started again */
    t->nseen = 0;
    return 1;
}

/* This process gives up the head's run: members that wait for its part shall not, however far it had come. */
void occl_tag_abandon(occl_tag_t *t)
{
    occl_run_t *r = head_of(t);
    uint64_t *word;
    if (!r || !(r->state == RUN_GATE || r->state == RUN_ROOM || r->state == RUN_DEVICE))
        return;
    word = &t->blk->rec[r->n & 1].word;
    occl_store_release64(word, (*word & ~0xffull) | REC_DEAD);
}

/*
 * Records were seen, one after the other; is every one of them still there? See occl_tag_withdraw. A member that has gone is
 * counted as not seen.
 */
int occl_tag_recheck(occl_tag_t *t, occl_run_t *r)
{
    int ok = 1;
    occl_fence_sys();
    for (uint32_t i = 0; i < t->n; i++) {
        if (i == t->me || t->seen[i] != r->n || occl_load_acquire64(&t->pblk[i]->rec[r->n & 1].word) == t->pword[i])
            continue;
        t->seen[i] = r->n - 1;
        t->nseen--;
        ok = 0;
    }
    return ok;
}

static int differs_from(const occl_tag_t *t, uint32_t i, const occl_run_t *r)
{
    return t->seen[i] == r->n && (t->psig[i] != r->dev.sig || (t->pword[i] & 0xff) != REC_READY);
}

/*
 * Some member's record differs from mine, so the run fails: if it is still there. As long as somebody has not started it may be
 * withdrawn, and come again as I would have it, and then nobody but me knew that the run had failed. So my own record
 * says so, by the protocol of occl_tag_withdraw: WITHDRAWING holds off openers while I look again.
 */
static int disagree(occl_tag_t *t, occl_run_t *r)
{
    uint64_t *word = &t->blk->rec[r->n & 1].word, mine = *word;
    int all = t->nseen + 1 >= t->n, differs = 0;
    OCCL_POINT(DISAGREES, t->comm->ctx);
    if (!all)
        occl_store_release64(word, (mine & ~0xffull) | REC_WITHDRAWING);
    (void)occl_tag_recheck(t, r);
    for (uint32_t i = 0; i < t->n; i++)
        differs |= i != t->me && differs_from(t, i, r);
    if (!all) {
        occl_store_release64(word, differs ? (mine & ~0xffull) | REC_DIFFERS : mine);
        occl_comm_publish(t->comm, t->key);
        occl_tag_wake(t);
    }
    return differs;
}

/* Reads the members' records of the head's run and lets it go on as far as they allow. */
void occl_tag_check(occl_tag_t *t)
{
    occl_run_t *r = head_of(t);
    uint32_t i;
    int differs = 0;
    if (!r || r->state == RUN_QUEUED)
        return;
    for (i = 0; i < t->n; i++) {
        occl_tagblk_t *b;
        uint64_t w;
        if (i == t->me)
            continue;
        if (t->seen[i] != r->n) {
            const occl_record_t *rec;
            b = block_of(t, i);
            if (!b)
                continue;
            rec = &b->rec[r->n & 1];
            w = occl_load_acquire64(&rec->word);
            if (!occl_rec_started(w, r->n))
                continue;
            t->psig[i] = occl_load_relaxed64(&rec->sig);
            t->pword[i] = w;
            t->seen[i] = r->n;
            t->nseen++;
        }
        differs |= differs_from(t, i, r);
    }
    if (OCCL_UNLIKELY(differs) && r->state != RUN_DRAIN && !r->failing) {
        char *text;
        if (!disagree(t, r))
            return; /* what differed has been withdrawn: look again at the next news */
        t->comm->n_mismatch++;
        t->comm->ctx->n_mismatch++;
        text = occl_run_mismatch_text(r);
        occl_run_fail(r, OCCL_ERR_MISMATCH, text);
        if (head_of(t) != r)
            return;
    }
    if (t->nseen + 1 < t->n)
        return;
    OCCL_POINT(SEEN, t->comm->ctx);
    if (r->state == RUN_GATE) {
        occl_run_open(r);
        return;
    }
    /* The next run may use what this one leaves behind, so nobody may go back behind this one's start. */
    if (!occl_tag_recheck(t, r))
        return;
    if (r->state == RUN_VERIFY)
        occl_run_finish(r, OCCL_OK, NULL);
    else if (r->state == RUN_DRAIN)
        occl_tag_leave(t, r);
}

/* No run of this tag can succeed any more: fail those that are queued, and all that will be. */
void occl_tag_kill(occl_tag_t *t, occl_status_t why, const char *text)
{
    if (t->dead)
        return;
    t->dead = why;
    (void)snprintf(t->why_dead, sizeof(t->why_dead), "%s", text);
    while (head_of(t)) {
        occl_run_t *r = head_of(t);
        if (r->state == RUN_DRAIN) {
            occl_tag_leave(t, r);
            continue;
        }
        occl_run_fail(r, why, occl_text("%s", text));
        if (head_of(t) == r && r->state != RUN_DRAIN)
            break; /* on the device: comes back when it is withdrawn, and the rest of the queue follows */
    }
}
