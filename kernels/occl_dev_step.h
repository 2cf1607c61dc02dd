/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interpreter: one step of a plan, then the next. Never waits: OCCL_AGAIN means that a flag is not there and that
 * nothing has been changed.
 *
 * Memory order, for all posts and waits below:
 *   data stores of all lanes; occl_sync; flag store (release, system) by one lane          post
 *   flag load (acquire, system) by one lane; block vote (a barrier); data loads of all lanes  wait
 * The barrier makes the one lane's release cover the stores of the others, and its acquire their loads.
 */
#ifndef OCCL_KERNELS_STEP_H
#define OCCL_KERNELS_STEP_H

#include "occl_dev_chan.h"
#include "occl_dev_data.h"
#include "occl_dev_front.h"

OCCL_FN uint64_t occl_k(occl_kexpr_t e, uint64_t iter) { return iter * e.per + e.base; }

OCCL_FN uint64_t occl_flag_slot(uint64_t run, uint64_t k) { return run << 32 | (k + 1); }
OCCL_FN uint64_t occl_flag_sig(uint64_t run, uint32_t sec, uint64_t k)
{
    return run << 32 | (uint64_t)sec << 24 | (k + 1);
}

/* Slot k of a run. rx: in my mailbox; tx: in the peer's. */
OCCL_FN occl_slot_t *occl_slot_of(const occl_dev_run_t *r, unsigned char *const *pool, occl_mailbox_t *m, uint32_t ix,
                                  uint64_t k)
{
    unsigned char *base = pool ? pool[ix]
                               : (unsigned char *)(m + 1) + (r->run & 1) * (uint64_t)r->nslots * r->slot_bytes;
    return (occl_slot_t *)(base + (k & (r->nslots - 1)) * (uint64_t)r->slot_bytes);
}
OCCL_FN occl_slot_t *occl_slot_rx(const occl_dev_run_t *r, uint32_t ix, uint64_t k)
{
    return occl_slot_of(r, r->rxpool, r->links[ix].rx, ix, k);
}
OCCL_FN occl_slot_t *occl_slot_tx(const occl_dev_run_t *r, uint32_t ix, uint64_t k)
{
    return occl_slot_of(r, r->txpool, r->links[ix].tx, ix, k);
}

/* One flag of one peer: OCCL_DONE, OCCL_AGAIN or OCCL_MISMATCH. */
OCCL_FN uint32_t occl_check_slot(const occl_dev_run_t *r, uint32_t ix, uint64_t k)
{
    const occl_slot_t *s = occl_slot_rx(r, ix, k);
    if (occl_load_acquire64(&s->flag) != occl_flag_slot(r->run, k))
        return OCCL_AGAIN;
    return s->sig == r->sig ? OCCL_DONE : OCCL_MISMATCH;
}
OCCL_FN uint32_t occl_check_credit(const occl_dev_run_t *r, uint32_t ix, uint64_t k)
{
    uint64_t credit;
    if (k < r->nslots)
        return OCCL_DONE;
    credit = occl_load_acquire64(&r->links[ix].rx->credit[r->run & 1]);
    /* A credit of an earlier run has a smaller upper half. */
    return (int64_t)(credit - (r->run << 32 | (k - r->nslots + 1))) >= 0 ? OCCL_DONE : OCCL_AGAIN;
}
OCCL_FN uint32_t occl_check_sig(const occl_dev_run_t *r, uint32_t ix, uint32_t sec, uint64_t k)
{
    uint64_t sig = occl_load_acquire64(&r->links[ix].rx->sig);
    return (int64_t)(sig - occl_flag_sig(r->run, sec, k)) >= 0 ? OCCL_DONE : OCCL_AGAIN;
}

#if OCCL_FRONT
/*
 * Messages as data-with-flag words, 8 bytes and a flag in 16, in one access each: neither side needs a fence, which on a GPU is
 * half a microsecond. Word 0 carries the signature, where a plain message has its header. All messages of such a run fit
 * without credit, so credit is neither given nor awaited.
 *
 * A slot that holds words now may have held plain data before: so the flag is 64 bits that look like chance.
 */
OCCL_FN uint64_t occl_words_flag(uint64_t run, uint64_t k)
{
    uint64_t x = occl_flag_slot(run, k) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ x >> 29;
}
OCCL_FN uint32_t occl_words_of(const occl_dev_run_t *r, const occl_step_t *s)
{
    return (uint32_t)((s->n * occl_plan_of(r)->elem_bytes + 7) / 8);
}
/* Data of peer p's message, once it is here: a row for every rank, my own unused until a fold wants it; or that of the only one. */
OCCL_FN unsigned char *occl_words_stage(const occl_dev_run_t *r, occl_cache_t *k, const occl_step_t *s, uint32_t p)
{
    uint32_t q = s->wait == OCCL_WAIT_SLOT ? 0 : p;
    return (unsigned char *)(k->stage + (uint64_t)q * occl_words_of(r, s));
}
/* Words w, w + step, ... of one message onto the stage, four loads at a time. OCCL_DONE, OCCL_AGAIN or OCCL_MISMATCH. */
OCCL_FN uint32_t occl_words_look(const uint64_t *slot, uint32_t w, uint32_t step, uint32_t per, uint64_t want, uint64_t sig, uint64_t *stage)
{
    uint64_t data[4], flag[4];
    uint32_t v = OCCL_DONE, i;
    OCCL_ROLLED
    for (; w < per; w += 4 * step) {
        OCCL_UNROLLED
        for (i = 0; i < 4; i++)
            if (i == 0 || w + i * step < per)
                occl_load_two(slot + 2 * (w + i * step), &data[i], &flag[i]);
        OCCL_UNROLLED
        for (i = 0; i < 4; i++) {
            uint32_t k = w + i * step;
            if (i && k >= per)
                continue;
            if (flag[i] != want)
                return v == OCCL_MISMATCH ? v : OCCL_AGAIN;
            if (k)
                stage[k - 1] = data[i];
            else if (data[i] != sig)
                v = OCCL_MISMATCH;
        }
    }
    return v;
}
/*
 * Each lane looks at words of its own and puts what it finds on the stage; then the block votes. Few words: all messages side by
 * side, so that their loads overlap. Many: one message after the other.
 */
OCCL_FN uint32_t occl_words_ready(occl_lanes_t l, const occl_dev_run_t *r, uint32_t c, const occl_step_t *s, uint64_t iter,
                                  occl_cache_t *cache)
{
    uint32_t n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, per = occl_words_of(r, s) + 1, lanes = occl_nlanes(l), v = OCCL_DONE;
    uint32_t one = s->wait == OCCL_WAIT_SLOT, peers = one ? 1 : n - 1, q = 0, w = occl_lane(l), last = peers;
    uint64_t k = occl_k(s->wait_k, iter), want = occl_words_flag(r->run, k);
    if (peers * per <= lanes) {
        q = w / per;
        w -= q * per;
        last = q < peers ? q + 1 : q;
        lanes = per;
    }
    /* Who looks at signatures looks at all of them: a mismatch wins, whoever else is late. */
    OCCL_ROLLED
    for (; q < last && (v == OCCL_DONE || w == 0); q++) {
        uint32_t row = one ? 0 : q + (q >= me);
        const occl_slot_t *slot = occl_slot_rx(r, c * n + (one ? (uint32_t)s->wait_peer : row), k);
        uint32_t x = occl_words_look((const uint64_t *)slot, w, lanes, per, want, r->sig, cache->stage + row * (per - 1));
        v = x == OCCL_MISMATCH || v == OCCL_DONE ? x : v;
    }
    if (occl_all(l, v == OCCL_DONE))
        return OCCL_DONE;
    return occl_all(l, v != OCCL_MISMATCH) ? OCCL_AGAIN : OCCL_MISMATCH;
}
OCCL_FN uint64_t occl_words_load(const unsigned char *p, uint64_t bytes)
{
    uint64_t v = 0;
    uint32_t b;
    if (bytes >= 8 && (uintptr_t)p % 8 == 0)
        return *(const uint64_t *)(const void *)p;
    OCCL_ROLLED
    for (b = 0; b < 8 && b < bytes; b++)
        v |= (uint64_t)p[b] << (8 * b);
    return v;
}
OCCL_FN void occl_words_put(unsigned char *p, uint64_t v, uint64_t bytes)
{
    uint32_t b;
    if (bytes >= 8 && (uintptr_t)p % 8 == 0) {
        *(uint64_t *)(void *)p = v;
        return;
    }
    OCCL_ROLLED
    for (b = 0; b < 8 && b < bytes; b++)
        p[b] = (unsigned char)(v >> (8 * b));
}
/* Message k to one peer or to all; the operand is src, for rank p at src + p * stride. */
OCCL_FN void occl_words_post(occl_lanes_t l, const occl_dev_run_t *r, uint32_t c, const occl_step_t *s, uint64_t iter,
                             const unsigned char *src)
{
    uint32_t n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, eb = occl_plan_of(r)->elem_bytes, per = occl_words_of(r, s) + 1;
    uint32_t one = s->post == OCCL_POST_SLOT, peers = one ? 1 : n - 1, q = 0, first = occl_lane(l), last = peers, lanes = occl_nlanes(l), w;
    uint64_t k = occl_k(s->post_k, iter), flag = occl_words_flag(r->run, k), bytes = s->n * eb;
    if (peers * per <= lanes) {
        q = first / per;
        first -= q * per;
        last = q < peers ? q + 1 : q;
        lanes = per;
    }
    OCCL_ROLLED
    for (; q < last; q++) {
        uint32_t p = one ? (uint32_t)s->post_peer : q + (q >= me);
        const unsigned char *from = src + (one ? 0 : p * s->stride * eb);
        uint64_t *slot = (uint64_t *)occl_slot_tx(r, c * n + p, k);
        OCCL_ROLLED
        for (w = first; w < per; w += lanes)
            occl_store_two(slot + 2 * w, w ? occl_words_load(from + 8ull * (w - 1), bytes - 8ull * (w - 1)) : r->sig, flag);
    }
}
#endif

/* May the step go on? Uniform over the block. */
OCCL_FN uint32_t occl_step_ready(occl_lanes_t l, const occl_chan_t *ch, const occl_dev_run_t *r, const occl_step_t *s,
                                 uint64_t iter)
{
    uint32_t n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, c = ch->index, base = c * n, p, v = OCCL_DONE;
    uint64_t k = occl_k(s->wait_k, iter);
#if OCCL_FRONT
    if (r->words) {
        if (s->wait == OCCL_WAIT_SLOT || s->wait == OCCL_WAIT_SLOT_ALL)
            return occl_words_ready(l, r, c, s, iter, occl_cache_of(ch));
        return OCCL_DONE; /* only credit could be waited for */
    }
#endif
    switch (s->wait) {
    case OCCL_WAIT_NONE:
        return OCCL_DONE;
    case OCCL_WAIT_SLOT:
        if (occl_lane(l) == 0)
            v = occl_check_slot(r, base + (uint32_t)s->wait_peer, k);
        return occl_uniform(l, v);
    case OCCL_WAIT_CREDIT:
        if (occl_lane(l) == 0)
            v = occl_check_credit(r, base + (uint32_t)s->wait_peer, k);
        return occl_uniform(l, v);
    case OCCL_WAIT_SIG:
        if (occl_lane(l) == 0)
            v = occl_check_sig(r, base + (uint32_t)s->wait_peer, s->wait_k.sec, k);
        return occl_uniform(l, v);
    default:
        break;
    }
    /* All peers, the lanes sharing the work. A mismatch anywhere wins: it will not go away. */
    OCCL_ROLLED
    for (p = occl_lane(l); p < n; p += occl_nlanes(l)) {
        uint32_t w;
        if (p == me)
            continue;
        w = s->wait == OCCL_WAIT_SLOT_ALL     ? occl_check_slot(r, base + p, k)
            : s->wait == OCCL_WAIT_CREDIT_ALL ? occl_check_credit(r, base + p, k)
                                              : occl_check_sig(r, base + p, s->wait_k.sec, k);
        if (w == OCCL_MISMATCH) {
            v = w;
            break;
        }
        if (w)
            v = w;
    }
    if (occl_all(l, v == OCCL_DONE))
        return OCCL_DONE;
    return occl_all(l, v != OCCL_MISMATCH) ? OCCL_AGAIN : OCCL_MISMATCH;
}

/* Address of an operand for the elements from `lo` on. RXSLOT and TXSLOT hold just this iteration's elements. */
OCCL_FN unsigned char *occl_operand(const occl_dev_run_t *r, uint32_t c, const occl_step_t *s, const occl_ref_t *ref,
                                    uint64_t iter, uint64_t lo)
{
    uint32_t n = occl_plan_of(r)->nranks, eb = occl_plan_of(r)->elem_bytes;
    switch (ref->space) {
    case OCCL_SP_SEND:
        return r->send + (ref->off + lo) * eb;
    case OCCL_SP_RECV:
        return r->recv + (ref->off + lo) * eb;
    case OCCL_SP_SCRATCH:
        return r->scratch + ((uint64_t)c * occl_plan_of(r)->scratch_chunks + ref->off) * r->chunk * eb;
    case OCCL_SP_XSEND:
        if ((uint32_t)ref->rank == occl_plan_of(r)->rank)
            return r->send + (ref->off + lo) * eb;
        return (unsigned char *)(uintptr_t)(r->xsend[ref->rank] + (ref->off + lo) * eb);
    case OCCL_SP_XRECV:
        if ((uint32_t)ref->rank == occl_plan_of(r)->rank || ref->rank < 0)
            return r->recv + (ref->off + lo) * eb;
        return (unsigned char *)(uintptr_t)(r->xrecv[ref->rank] + (ref->off + lo) * eb);
    case OCCL_SP_RXSLOT:
        return (unsigned char *)(occl_slot_rx(r, c * n + (uint32_t)s->wait_peer, occl_k(s->wait_k, iter)) + 1);
    case OCCL_SP_TXSLOT:
        return (unsigned char *)(occl_slot_tx(r, c * n + (uint32_t)s->post_peer, occl_k(s->post_k, iter)) + 1);
    default:
        return (unsigned char *)0;
    }
}

OCCL_FN void occl_step_post(occl_lanes_t l, occl_dev_run_t *r, uint32_t c, const occl_step_t *s, uint64_t iter)
{
    uint32_t n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, base = c * n, p, first, last;
    uint64_t k = occl_k(s->post_k, iter);
    if (s->post == OCCL_POST_NONE)
        return;
    occl_chaos(l);
    occl_sync(l);
#if OCCL_FRONT
    if (r->words) {
        if (s->post == OCCL_POST_SLOT || s->post == OCCL_POST_SLOT_ALL)
            occl_words_post(l, r, c, s, iter, occl_operand(r, c, s, &s->src, iter, 0));
        return;
    }
#endif
    first = (uint32_t)s->post_peer;
    last = first + 1;
    if (s->post == OCCL_POST_SLOT_ALL || s->post == OCCL_POST_CREDIT_ALL || s->post == OCCL_POST_SIG_ALL) {
        first = 0;
        last = n;
    }
    OCCL_ROLLED
    for (p = first + occl_lane(l); p < last; p += occl_nlanes(l)) {
        if (p == me)
            continue;
        switch (s->post) {
        case OCCL_POST_SLOT:
        case OCCL_POST_SLOT_ALL: {
            occl_slot_t *t = occl_slot_tx(r, base + p, k);
            t->sig = r->sig;
            occl_store_release64(&t->flag, occl_flag_slot(r->run, k));
            break;
        }
        case OCCL_POST_CREDIT:
        case OCCL_POST_CREDIT_ALL:
            occl_store_release64(&r->links[base + p].tx->credit[r->run & 1], r->run << 32 | (k + 1));
            break;
        default:
            occl_store_release64(&r->links[base + p].tx->sig, occl_flag_sig(r->run, s->post_k.sec, k));
        }
    }
#if !OCCL_CUDA
    if (occl_lane(l) == 0)
        r->st[c].posted = 1;
#endif
}

/* 0: the operand can be loaded and stored as it stands. Else another process's memory, by way of the host. */
OCCL_FN uint64_t occl_via(const occl_dev_run_t *r, const occl_ref_t *ref)
{
    if (ref->space != OCCL_SP_XSEND && ref->space != OCCL_SP_XRECV)
        return 0;
    if ((uint32_t)ref->rank == occl_plan_of(r)->rank || ref->rank < 0 || !r->via)
        return 0;
    return r->via[ref->rank];
}

OCCL_FN uint32_t occl_act_copy(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, const occl_step_t *s, uint64_t iter,
                               uint64_t lo, uint64_t cnt)
{
    uint32_t c = ch->index;
    unsigned char *d = occl_operand(r, c, s, &s->dst, iter, lo);
    unsigned char *a = occl_operand(r, c, s, &s->src, iter, lo);
    uint64_t bytes = cnt * occl_plan_of(r)->elem_bytes;
#if !OCCL_CUDA
    uint64_t va = occl_via(r, &s->src), vd = occl_via(r, &s->dst);
    if (va || vd) {
        uint32_t ok = 0;
        if (occl_lane(l) == 0)
            ok = (va ? occl_host_pull(va, d, (uint64_t)(uintptr_t)a, bytes)
                     : occl_host_push(vd, a, (uint64_t)(uintptr_t)d, bytes)) == 0;
        return occl_uniform(l, ok) ? OCCL_DONE : OCCL_FAULT;
    }
#endif
#if OCCL_FRONT
    if (r->words && s->src.space == OCCL_SP_RXSLOT)
        a = occl_words_stage(r, occl_cache_of(ch), s, 0);
#endif
    occl_dev_copy(l, d, a, bytes);
    return OCCL_DONE;
}

#if !OCCL_CUDA
/* A result in my RECV that is for everybody's. */
OCCL_FN uint32_t occl_spread_result(occl_lanes_t l, const occl_dev_run_t *r, const occl_step_t *s, const unsigned char *d, uint64_t lo,
                                    uint64_t cnt)
{
    uint32_t n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, eb = occl_plan_of(r)->elem_bytes, i;
    if (s->dst.space != OCCL_SP_XRECV || s->dst.rank >= 0)
        return OCCL_DONE;
    occl_sync(l);
    for (i = 1; i < n; i++) {
        uint32_t p = (me + i) % n;
        uint64_t to = r->xrecv[p] + (s->dst.off + lo) * eb;
        if (r->via && r->via[p]) {
            uint32_t good = 0;
            if (occl_lane(l) == 0)
                good = occl_host_push(r->via[p], d, to, cnt * eb) == 0;
            if (!occl_uniform(l, good))
                return OCCL_FAULT;
            continue;
        }
        occl_dev_copy(l, (void *)(uintptr_t)to, d, cnt * eb);
    }
    return OCCL_DONE;
}
#endif

/* What a step folds with. A copy is one; but the only rank's is its fold. */
OCCL_FN uint32_t occl_fold_op(const occl_dev_run_t *r, const occl_step_t *s)
{
    return s->op == OCCL_STEP_COPY && occl_plan_of(r)->nranks > 1 ? (uint32_t)OCCL_OP_NONE : occl_plan_of(r)->op;
}

/*
 * dst = fold of `nsrc` sources, source i at address at(i). Sources or a destination in other processes go through the
 * channel's bounce buffer, a tile at a time, small enough to stay in the cache between pull and fold.
 */
OCCL_FN uint32_t occl_act_reduce(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, const occl_step_t *s, uint64_t iter,
                                 uint64_t lo, uint64_t cnt)
{
    uint32_t c = ch->index, n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, eb = occl_plan_of(r)->elem_bytes, i;
    uint32_t nsrc = s->op == OCCL_STEP_REDUCE_ALL ? (uint32_t)s->stride : s->op == OCCL_STEP_REDUCE ? 2 : 1;
    unsigned char *d = occl_operand(r, c, s, &s->dst, iter, lo);
    const void **srcs = ch->srcs;
#if OCCL_CUDA
    if (r->words && s->op == OCCL_STEP_REDUCE_ALL && cnt * eb <= 8ull * occl_nlanes(l)) {
        uint32_t bytes = (uint32_t)(cnt * eb), at = occl_lane(l) * 8, done = 1;
        if (at < bytes) {
            uint64_t to, *stage = occl_cache_of(ch)->stage + occl_lane(l);
            stage[me * occl_words_of(r, s)] = occl_words_load(occl_operand(r, c, s, &s->src, iter, lo) + at, bytes - at);
            done = occl_dev_fold_little(occl_plan_of(r)->type, occl_plan_of(r)->op, stage, occl_words_of(r, s), nsrc, &to);
            if (done)
                occl_words_put(d + at, to, bytes - at);
        }
        if (occl_all(l, done))
            return OCCL_DONE;
    }
#endif
#if !OCCL_CUDA
    uint32_t remote = occl_via(r, &s->dst) != 0;
    if (r->via && s->src2.space != OCCL_SP_RXSLOT)
        remote |= s->op == OCCL_STEP_REDUCE ? occl_via(r, &s->src) || occl_via(r, &s->src2)
                                            : s->src2.space == OCCL_SP_XSEND || s->src2.space == OCCL_SP_XRECV;
#endif
#if OCCL_CUDA
    if (nsrc <= OCCL_CACHE_RANKS)
        srcs = occl_cache_of(ch)->srcs;
#endif
    occl_sync(l); /* the pointer list of an earlier step is no longer in use */
    OCCL_ROLLED
    for (i = occl_lane(l); i < nsrc; i += occl_nlanes(l)) {
        if (s->op != OCCL_STEP_REDUCE_ALL) {
            srcs[i] = occl_operand(r, c, s, i ? &s->src2 : &s->src, iter, lo);
#if OCCL_FRONT
            if (r->words && (i ? s->src2.space : s->src.space) == OCCL_SP_RXSLOT)
                srcs[i] = occl_words_stage(r, occl_cache_of(ch), s, 0);
#endif
        } else if (i == me) {
            srcs[i] = occl_operand(r, c, s, &s->src, iter, lo);
#if OCCL_FRONT
        } else if (r->words && s->src2.space == OCCL_SP_RXSLOT) {
            srcs[i] = occl_words_stage(r, occl_cache_of(ch), s, i);
#endif
        } else if (s->src2.space == OCCL_SP_RXSLOT) {
            srcs[i] = occl_slot_rx(r, c * n + i, occl_k(s->wait_k, iter)) + 1;
        } else {
            const uint64_t *x = s->src2.space == OCCL_SP_XSEND ? r->xsend : r->xrecv;
            srcs[i] = (const void *)(uintptr_t)(x[i] + (s->src2.off + lo) * eb);
        }
    }
    occl_sync(l);
#if OCCL_CUDA
    {
        /* Everybody's RECV, mine first. */
        const void **dsts = occl_cache_of(ch)->dsts;
        uint32_t more = s->dst.space == OCCL_SP_XRECV && s->dst.rank < 0 ? n - 1 : 0, fit = more <= OCCL_CACHE_RANKS ? more : 0;
        if (fit) {
            OCCL_ROLLED
            for (i = occl_lane(l); i < fit; i += occl_nlanes(l))
                dsts[i] = (const void *)(uintptr_t)(r->xrecv[(me + 1 + i) % n] + (s->dst.off + lo) * eb);
            occl_sync(l);
        }
        occl_dev_fold_to(l, occl_plan_of(r)->type, occl_fold_op(r, s), occl_plan_of(r)->scale, d, dsts, fit, srcs, nsrc, cnt);
        if (fit < more) {
            occl_sync(l);
            OCCL_ROLLED
            for (i = 1; i < n; i++)
                occl_dev_copy(l, (void *)(uintptr_t)(r->xrecv[(me + i) % n] + (s->dst.off + lo) * eb), d, cnt * eb);
        }
        return OCCL_DONE;
    }
#else
    if (!remote) {
        occl_dev_fold(l, occl_plan_of(r)->type, occl_fold_op(r, s), occl_plan_of(r)->scale, d, srcs, nsrc, cnt);
        return occl_spread_result(l, r, s, d, lo, cnt);
    }
    {
        /* Slots of the bounce buffer: one for each source, one for a remote destination. */
        uint64_t vd = occl_via(r, &s->dst);
        uint64_t per = ch->tile_bytes / (nsrc + 1) / 64 * 64, tile = per / eb, done, m;
        const void **ptr = srcs + nsrc; /* second half of the list */
        for (done = 0; done < cnt; done += m) {
            uint32_t ok = 1;
            m = cnt - done < tile ? cnt - done : tile;
            if (occl_lane(l) == 0) {
                for (i = 0; i < nsrc; i++) {
                    const unsigned char *a = (const unsigned char *)srcs[i] + done * eb;
                    uint64_t v = 0;
                    if (s->op == OCCL_STEP_REDUCE)
                        v = occl_via(r, i ? &s->src2 : &s->src);
                    else if (i != me && s->src2.space != OCCL_SP_RXSLOT && r->via)
                        v = r->via[i];
                    ptr[i] = a;
                    if (v) {
                        ptr[i] = ch->tile + i * per;
                        if (occl_host_pull(v, ch->tile + i * per, (uint64_t)(uintptr_t)a, m * eb))
                            ok = 0;
                    }
                }
            }
            if (!occl_uniform(l, ok))
                return OCCL_FAULT;
            occl_dev_fold(l, occl_plan_of(r)->type, occl_fold_op(r, s), occl_plan_of(r)->scale, vd ? ch->tile + nsrc * per : d + done * eb, ptr, nsrc, m);
            if (vd) {
                occl_sync(l);
                if (occl_lane(l) == 0)
                    ok = occl_host_push(vd, ch->tile + nsrc * per, (uint64_t)(uintptr_t)(d + done * eb), m * eb) == 0;
                if (!occl_uniform(l, ok))
                    return OCCL_FAULT;
            }
            occl_sync(l);
        }
    }
    return occl_spread_result(l, r, s, d, lo, cnt);
#endif
}


/* Moves the data of one step. OCCL_DONE or OCCL_FAULT. */
OCCL_FN uint32_t occl_step_act(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, const occl_step_t *s, uint64_t iter)
{
    uint32_t c = ch->index, n = occl_plan_of(r)->nranks, me = occl_plan_of(r)->rank, p, eb = occl_plan_of(r)->elem_bytes;
    uint64_t lo = iter * r->chunk, cnt;
    if (s->op == OCCL_STEP_NOP || lo >= s->n)
        return OCCL_DONE;
    cnt = s->n - lo < r->chunk ? s->n - lo : r->chunk;
#if OCCL_FRONT
    if (r->words && (s->post == OCCL_POST_SLOT || s->post == OCCL_POST_SLOT_ALL))
        return OCCL_DONE; /* the post moves them */
#endif
    switch (s->op) {
    case OCCL_STEP_COPY:
#if OCCL_CUDA
        /* Much: as a reduction of one source, whose loop has more in flight. */
        if ((cnt * eb < OCCL_BULK_LEAST || r->words || !occl_bulk_there()) && (n > 1 || occl_plan_of(r)->op != OCCL_OP_PREMUL))
#else
        if (n > 1 || occl_plan_of(r)->op != OCCL_OP_PREMUL)
#endif
            return occl_act_copy(l, ch, r, s, iter, lo, cnt);
        /* fall through */
    case OCCL_STEP_REDUCE:
    case OCCL_STEP_REDUCE_ALL:
        return occl_act_reduce(l, ch, r, s, iter, lo, cnt);
    case OCCL_STEP_SPREAD: {
        unsigned char *a = occl_operand(r, c, s, &s->src, iter, lo);
        OCCL_ROLLED
        for (p = 0; p < n; p++)
            if (p != me)
                occl_dev_copy(l, occl_slot_tx(r, c * n + p, occl_k(s->post_k, iter)) + 1, a + p * s->stride * eb, cnt * eb);
        return OCCL_DONE;
    }
    case OCCL_STEP_COLLECT: {
        unsigned char *d = occl_operand(r, c, s, &s->dst, iter, lo);
        OCCL_ROLLED
        for (p = 0; p < n; p++) {
            const void *a;
            if (p == me)
                continue;
            a = occl_slot_rx(r, c * n + p, occl_k(s->wait_k, iter)) + 1;
#if OCCL_FRONT
            if (r->words)
                a = occl_words_stage(r, occl_cache_of(ch), s, p);
#endif
            occl_dev_copy(l, d + p * s->stride * eb, a, cnt * eb);
        }
        return OCCL_DONE;
    }
    default:
        return OCCL_FAULT;
    }
}

/*
 * Runs channel `ch`'s program of run r from where it stands, at most `max_steps` steps. OCCL_DONE: the program is finished;
 * OCCL_AGAIN: blocked, or the steps are used up (*moved_p says how many were done); else the run has failed.
 */
OCCL_FN_BIG uint32_t occl_dev_exec(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, uint32_t max_steps, uint32_t patient,
                                   uint32_t *moved_p)
{
    const occl_program_t *prog = &occl_plan_of(r)->prog[ch->index];
    occl_chan_state_t *st = &r->st[ch->index];
    uint32_t moved = 0, v = OCCL_DONE;
    /* Private copies; all lanes hold the same. */
    uint32_t section = st->section, pc = st->pc;
    uint64_t iter = st->iter;
    occl_sync(l); /* nobody writes st before all have read it */
    OCCL_ROLLED
    while (section < prog->nsections) {
        const occl_section_t *sec = &prog->sections[section];
        const occl_step_t *s = &prog->steps[sec->first + pc];
        if (moved == max_steps) {
            v = OCCL_AGAIN;
            break;
        }
        if (pc < sec->nsteps) {
            v = occl_step_ready(l, ch, r, s, iter);
#if OCCL_CUDA
            /* What it waits for is mostly a hop away: looking again here is cheaper than coming back. */
            OCCL_ROLLED
            for (uint32_t again = 0; v == OCCL_AGAIN && patient && again < 8; again++)
                v = occl_step_ready(l, ch, r, s, iter);
#else
            (void)patient;
#endif
            OCCL_TRACE(l, ch, v == OCCL_DONE ? 5 : 13);
            if (v == OCCL_DONE)
                v = occl_step_act(l, ch, r, s, iter);
            if (v != OCCL_DONE)
                break;
            OCCL_TRACE(l, ch, 6);
            /* What one lane has read or written the next step's lanes may overwrite or read. (A post is a barrier anyway, and
               words need one behind it, too: the stage is read.) */
            if (s->post != OCCL_POST_NONE)
                occl_step_post(l, r, ch->index, s, iter);
            if (s->post == OCCL_POST_NONE || (OCCL_FRONT && r->words))
                occl_sync(l);
            OCCL_TRACE(l, ch, 7);
            moved++;
            pc++;
        }
        if (pc >= sec->nsteps) {
            pc = 0;
            iter++;
            if (iter * r->chunk >= sec->range) {
                iter = 0;
                section++;
            }
        }
    }
    if (occl_lane(l) == 0) {
        st->section = section;
        st->pc = pc;
        st->iter = iter;
    }
    *moved_p = moved;
    return v;
}

#endif
