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

/* May the step go on? Uniform over the block. */
OCCL_FN uint32_t occl_step_ready(occl_lanes_t l, const occl_dev_run_t *r, uint32_t c, const occl_step_t *s, uint64_t iter)
{
    uint32_t n = r->plan->nranks, me = r->plan->rank, base = c * n, p, v = OCCL_DONE;
    uint64_t k = occl_k(s->wait_k, iter);
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

OCCL_FN void occl_step_post(occl_lanes_t l, occl_dev_run_t *r, uint32_t c, const occl_step_t *s, uint64_t iter)
{
    uint32_t n = r->plan->nranks, me = r->plan->rank, base = c * n, p, first, last;
    uint64_t k = occl_k(s->post_k, iter);
    if (s->post == OCCL_POST_NONE)
        return;
    occl_chaos(l);
    occl_sync(l);
    first = (uint32_t)s->post_peer;
    last = first + 1;
    if (s->post == OCCL_POST_SLOT_ALL || s->post == OCCL_POST_CREDIT_ALL || s->post == OCCL_POST_SIG_ALL) {
        first = 0;
        last = n;
    }
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
    if (occl_lane(l) == 0)
        r->st[c].posted = 1;
}

/* Address of an operand for the elements from `lo` on. RXSLOT and TXSLOT hold just this iteration's elements. */
OCCL_FN unsigned char *occl_operand(const occl_dev_run_t *r, uint32_t c, const occl_step_t *s, const occl_ref_t *ref,
                                    uint64_t iter, uint64_t lo)
{
    uint32_t n = r->plan->nranks, eb = r->plan->elem_bytes;
    switch (ref->space) {
    case OCCL_SP_SEND:
        return r->send + (ref->off + lo) * eb;
    case OCCL_SP_RECV:
        return r->recv + (ref->off + lo) * eb;
    case OCCL_SP_SCRATCH:
        return r->scratch + ((uint64_t)c * r->plan->scratch_chunks + ref->off) * r->chunk * eb;
    case OCCL_SP_XSEND:
        if ((uint32_t)ref->rank == r->plan->rank)
            return r->send + (ref->off + lo) * eb;
        return (unsigned char *)(uintptr_t)(r->xsend[ref->rank] + (ref->off + lo) * eb);
    case OCCL_SP_XRECV:
        if ((uint32_t)ref->rank == r->plan->rank)
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

/* 0: the operand can be loaded and stored as it stands. Else another process's memory, by way of the host. */
OCCL_FN uint64_t occl_via(const occl_dev_run_t *r, const occl_ref_t *ref)
{
    if (ref->space != OCCL_SP_XSEND && ref->space != OCCL_SP_XRECV)
        return 0;
    if ((uint32_t)ref->rank == r->plan->rank || !r->via)
        return 0;
    return r->via[ref->rank];
}

OCCL_FN uint32_t occl_act_copy(occl_lanes_t l, occl_dev_run_t *r, uint32_t c, const occl_step_t *s, uint64_t iter,
                               uint64_t lo, uint64_t cnt)
{
    unsigned char *d = occl_operand(r, c, s, &s->dst, iter, lo);
    unsigned char *a = occl_operand(r, c, s, &s->src, iter, lo);
    uint64_t bytes = cnt * r->plan->elem_bytes;
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
    occl_dev_copy(l, d, a, bytes);
    return OCCL_DONE;
}

/*
 * dst = fold of `nsrc` sources, source i at address at(i). Sources or a destination in other processes go through the
 * channel's bounce buffer, a tile at a time, small enough to stay in the cache between pull and fold.
 */
OCCL_FN uint32_t occl_act_reduce(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, const occl_step_t *s, uint64_t iter,
                                 uint64_t lo, uint64_t cnt)
{
    uint32_t c = ch->index, n = r->plan->nranks, me = r->plan->rank, eb = r->plan->elem_bytes, i;
    uint32_t nsrc = s->op == OCCL_STEP_REDUCE ? 2 : n;
    unsigned char *d = occl_operand(r, c, s, &s->dst, iter, lo);
    uint32_t remote = 0;
#if !OCCL_CUDA
    remote = occl_via(r, &s->dst) != 0;
    if (r->via && s->src2.space != OCCL_SP_RXSLOT)
        remote |= s->op == OCCL_STEP_REDUCE ? occl_via(r, &s->src) || occl_via(r, &s->src2)
                                            : s->src2.space == OCCL_SP_XSEND || s->src2.space == OCCL_SP_XRECV;
#endif
    occl_sync(l); /* the pointer list of an earlier step is no longer in use */
    for (i = occl_lane(l); i < nsrc; i += occl_nlanes(l)) {
        if (s->op == OCCL_STEP_REDUCE) {
            ch->srcs[i] = occl_operand(r, c, s, i ? &s->src2 : &s->src, iter, lo);
        } else if (i == me) {
            ch->srcs[i] = occl_operand(r, c, s, &s->src, iter, lo);
        } else if (s->src2.space == OCCL_SP_RXSLOT) {
            ch->srcs[i] = occl_slot_rx(r, c * n + i, occl_k(s->wait_k, iter)) + 1;
        } else {
            const uint64_t *x = s->src2.space == OCCL_SP_XSEND ? r->xsend : r->xrecv;
            ch->srcs[i] = (const void *)(uintptr_t)(x[i] + (s->src2.off + lo) * eb);
        }
    }
    occl_sync(l);
    if (!remote) {
        occl_dev_reduce(l, r->plan->type, r->plan->op, d, ch->srcs, nsrc, cnt);
        return OCCL_DONE;
    }
#if !OCCL_CUDA
    {
        /* Slots of the bounce buffer: one for each source, one for a remote destination. */
        uint64_t vd = occl_via(r, &s->dst);
        uint64_t per = ch->tile_bytes / (nsrc + 1) / 64 * 64, tile = per / eb, done, m;
        const void **ptr = ch->srcs + nsrc; /* second half of the list */
        for (done = 0; done < cnt; done += m) {
            uint32_t ok = 1;
            m = cnt - done < tile ? cnt - done : tile;
            if (occl_lane(l) == 0) {
                for (i = 0; i < nsrc; i++) {
                    const unsigned char *a = (const unsigned char *)ch->srcs[i] + done * eb;
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
            occl_dev_reduce(l, r->plan->type, r->plan->op, vd ? ch->tile + nsrc * per : d + done * eb, ptr, nsrc, m);
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
#endif
    return OCCL_DONE;
}

/* Moves the data of one step. OCCL_DONE or OCCL_FAULT. */
OCCL_FN uint32_t occl_step_act(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, const occl_step_t *s, uint64_t iter)
{
    uint32_t c = ch->index, n = r->plan->nranks, me = r->plan->rank, p, eb = r->plan->elem_bytes;
    uint64_t lo = iter * r->chunk, cnt;
    if (s->op == OCCL_STEP_NOP || lo >= s->n)
        return OCCL_DONE;
    cnt = s->n - lo < r->chunk ? s->n - lo : r->chunk;
    switch (s->op) {
    case OCCL_STEP_COPY:
        return occl_act_copy(l, r, c, s, iter, lo, cnt);
    case OCCL_STEP_REDUCE:
    case OCCL_STEP_REDUCE_ALL:
        return occl_act_reduce(l, ch, r, s, iter, lo, cnt);
    case OCCL_STEP_SPREAD: {
        unsigned char *a = occl_operand(r, c, s, &s->src, iter, lo);
        for (p = 0; p < n; p++)
            if (p != me)
                occl_dev_copy(l, occl_slot_tx(r, c * n + p, occl_k(s->post_k, iter)) + 1, a + p * s->stride * eb, cnt * eb);
        return OCCL_DONE;
    }
    case OCCL_STEP_COLLECT: {
        unsigned char *d = occl_operand(r, c, s, &s->dst, iter, lo);
        for (p = 0; p < n; p++)
            if (p != me)
                occl_dev_copy(l, d + p * s->stride * eb, occl_slot_rx(r, c * n + p, occl_k(s->wait_k, iter)) + 1, cnt * eb);
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
OCCL_FN_BIG uint32_t occl_dev_exec(occl_lanes_t l, occl_chan_t *ch, occl_dev_run_t *r, uint32_t max_steps, uint32_t *moved_p)
{
    const occl_program_t *prog = &r->plan->prog[ch->index];
    occl_chan_state_t *st = &r->st[ch->index];
    uint32_t moved = 0, v = OCCL_DONE;
    /* Private copies; all lanes hold the same. */
    uint32_t section = st->section, pc = st->pc;
    uint64_t iter = st->iter;
    occl_sync(l); /* nobody writes st before all have read it */
    while (section < prog->nsections) {
        const occl_section_t *sec = &prog->sections[section];
        const occl_step_t *s = &prog->steps[sec->first + pc];
        if (moved == max_steps) {
            v = OCCL_AGAIN;
            break;
        }
        if (pc < sec->nsteps) {
            v = occl_step_ready(l, r, ch->index, s, iter);
            if (v == OCCL_DONE)
                v = occl_step_act(l, ch, r, s, iter);
            if (v != OCCL_DONE)
                break;
            occl_step_post(l, r, ch->index, s, iter);
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
