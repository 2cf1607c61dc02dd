/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fast lane: a small run on one channel whose messages are words and go one way, each rank sending first and hearing then. From the
 * words of the submission straight to send, look, fold, report, without run object, table and interpreter. The plan is
 * still what says what is done: occl_quick_make reads its steps once and notes what remains when a run of it comes.
 *
 * It has two ends only. All messages came, with the right signature: done and reported. Else nothing has been
 * changed but what the steps before `pc` do, and the general path goes on from there: it knows of mismatch, withdrawal and
 * preemption, and finds the messages where they are.
 *
 * Word i of every message is lane i's, from the send buffer to the receive buffer: no lane reads what another has put on the stage,
 * and one vote tells all of them that everything is here.
 */
#ifndef OCCL_KERNELS_QUICK_H
#define OCCL_KERNELS_QUICK_H

#include "occl_dev_step.h"

#if OCCL_FRONT

OCCL_FN occl_quick_t *occl_quick_of(occl_cache_t *k, uint64_t serial)
{
    return &k->quick[(uint32_t)serial * 0x9e3779b9u >> 27 & (OCCL_QUICKS - 1)];
}

/* Bytes from the start of the send buffer, or of the receive buffer, as one number. */
#define OCCL_QUICK_NONE (~0u)
OCCL_FN uint32_t occl_quick_operand(const occl_ref_t *ref, uint64_t off, uint32_t eb)
{
    uint64_t bytes = (ref->off + off) * eb;
    if ((ref->space != OCCL_SP_SEND && ref->space != OCCL_SP_RECV) || bytes >= 1u << 30)
        return OCCL_QUICK_NONE;
    return (uint32_t)bytes << 1 | (ref->space == OCCL_SP_RECV);
}
OCCL_FN unsigned char *occl_quick_at(const uint64_t *sub, uint32_t operand)
{
    return (unsigned char *)(uintptr_t)sub[operand & 1 ? 3 : 2] + (operand >> 1);
}

/* One lane. w is a run of this plan, in the cache. Whatever it does not know makes the plan none for the fast lane. */
OCCL_FN void occl_quick_make(occl_cache_t *k, const occl_dev_run_t *w)
{
    occl_quick_t *q = occl_quick_of(k, w->serial);
    uint32_t n = k->plan.nranks, me = k->plan.rank, eb = k->plan.elem_bytes, i, first, last, p, seen = 0;
    q->serial = w->serial;
    q->good = 0;
    q->shape[0] = (uint64_t)w->slot_bytes << 32 | w->nwake;
    q->shape[1] = (uint64_t)w->priority << 32 | (uint64_t)w->words << 16 | w->nslots;
    q->shape[2] = w->chunk;
    if (w->rxpool || w->txpool || k->plan.nchannels != 1 || n > OCCL_QUICK_RANKS || k->prog.nsections != 1 || k->prog.nsteps > OCCL_CACHE_STEPS)
        return;
    q->half = (uint32_t)w->nslots * w->slot_bytes;
    q->me = me;
    q->nsend = q->nrecv = q->rows = q->words = q->bytes = 0;
    q->type = k->plan.type;
    q->op = k->plan.op;
    q->own = q->own_to = OCCL_QUICK_NONE;
    q->steps = q->pc = k->prog.nsteps;
    OCCL_ROLLED
    for (i = 0; i < k->prog.nsteps; i++) {
        const occl_step_t *s = &k->steps[i];
        uint32_t out = s->post == OCCL_POST_SLOT || s->post == OCCL_POST_SLOT_ALL, in = s->wait == OCCL_WAIT_SLOT || s->wait == OCCL_WAIT_SLOT_ALL;
        uint32_t bytes = (uint32_t)(s->n * eb), all = out ? s->post == OCCL_POST_SLOT_ALL : s->wait == OCCL_WAIT_SLOT_ALL, x;
        if (s->op == OCCL_STEP_NOP && !out && !in && s->wait == OCCL_WAIT_NONE)
            continue;
        if (!seen) {
            seen = 1;
            q->bytes = bytes;
            q->words = (bytes + 7) / 8;
        }
        /* All of one length, in one iteration; hearing is the last thing; and message 0 is the only one. */
        if (s->n > w->chunk || s->n * eb > OCCL_STAGE_BYTES || q->bytes != bytes || (out && in) || (q->nrecv && !in) ||
            (out && s->post_k.base) || (in && s->wait_k.base))
            return;
        first = all ? 0 : out ? (uint32_t)s->post_peer : (uint32_t)s->wait_peer;
        last = all ? n : first + 1;
        if (out) {
            OCCL_ROLLED
            for (p = first; p < last; p++) {
                if (p == me)
                    continue;
                x = occl_quick_operand(&s->src, all ? p * s->stride : 0, eb);
                if (q->nsend == OCCL_QUICK_RANKS || (bytes && x == OCCL_QUICK_NONE))
                    return;
                q->from[q->nsend] = x;
                q->tx[q->nsend++] = (unsigned char *)(w->links[p].tx + 1);
            }
        } else if (in) {
            if (!q->nrecv)
                q->pc = i;
            if (s->op == OCCL_STEP_REDUCE_ALL) {
                if (q->nrecv || s->src2.space != OCCL_SP_RXSLOT || q->own != OCCL_QUICK_NONE || !occl_dev_is_little(q->type, q->op))
                    return;
                q->own = occl_quick_operand(&s->src, 0, eb);
                if (q->own == OCCL_QUICK_NONE)
                    return;
                q->rows = (uint32_t)s->stride;
            } else if (q->rows || (s->op != OCCL_STEP_COPY && s->op != OCCL_STEP_COLLECT) || (s->op == OCCL_STEP_COPY && s->src.space != OCCL_SP_RXSLOT)) {
                return;
            }
            OCCL_ROLLED
            for (p = first; p < last; p++) {
                if (p == me)
                    continue;
                x = occl_quick_operand(&s->dst, s->op == OCCL_STEP_COLLECT ? p * s->stride : 0, eb);
                if (q->nrecv == OCCL_QUICK_RANKS || (bytes && (x == OCCL_QUICK_NONE || s->dst.space != OCCL_SP_RECV)))
                    return;
                q->to[q->nrecv] = x;
                q->rx[q->nrecv++] = (unsigned char *)(w->links[p].rx + 1);
            }
        } else {
            /* my own part, from here to there */
            q->own_to = occl_quick_operand(&s->dst, 0, eb);
            if (s->op != OCCL_STEP_COPY || s->wait != OCCL_WAIT_NONE || q->own != OCCL_QUICK_NONE || q->own_to == OCCL_QUICK_NONE ||
                s->dst.space != OCCL_SP_RECV)
                return;
            q->own = occl_quick_operand(&s->src, 0, eb);
            if (q->own == OCCL_QUICK_NONE)
                return;
        }
    }
    /* The stage has room for what it has to hold. */
    q->good = (w->words || !(q->nsend | q->nrecv)) && (uint64_t)q->words * (q->rows ? n : q->nrecv) * 8 <= OCCL_STAGE_BYTES;
}

/* Lane 0, leader. The plan of a run that is being worked on is looked at once; from now on its runs go the fast lane. */
OCCL_FN void occl_quick_learn(occl_daemon_t *d, occl_cache_t *k, const occl_dev_run_t *w)
{
    occl_quick_t *q = occl_quick_of(k, w->serial);
    uint32_t i;
    if (!w->serial || q->serial == w->serial || k->plan.nchannels != 1)
        return;
    occl_quick_make(k, w);
    if (d->quicks) {
        uint64_t *to = (uint64_t *)&d->quicks[w->serial & (OCCL_QUICKS_KEPT - 1)];
        OCCL_ROLLED
        for (i = 0; i < sizeof(*q) / 8; i++)
            to[i] = ((const uint64_t *)q)[i];
    }
}

/* All lanes, leader: what an earlier launch has learned, or what another plan has displaced. */
OCCL_FN void occl_quick_recall(occl_lanes_t l, const occl_daemon_t *d, occl_cache_t *k, uint64_t serial)
{
    const occl_quick_t *from = &d->quicks[serial & (OCCL_QUICKS_KEPT - 1)];
    occl_sync(l); /* all have seen that it is not here */
    if (from->serial == serial)
        occl_copy_words(l, occl_quick_of(k, serial), from, sizeof(*from));
    occl_sync(l);
}

/* All lanes: submission `sub` of the cache. 1: done. 0: the general path's, from step *pc_p on. */
OCCL_FN uint32_t occl_dev_quick(occl_lanes_t l, occl_daemon_t *d, occl_chan_t *ch, uint64_t number, const uint64_t *sub, uint32_t others,
                                uint32_t *pc_p)
{
    occl_cache_t *k = occl_cache_of(ch);
    const uint64_t head = sub[0], serial = sub[10];
    const occl_quick_t *q = occl_quick_of(k, serial);
    const uint64_t must = OCCL_SUB_FRESH | OCCL_SUB_FAR | 63ull << OCCL_SUB_CHANNELS_AT | OCCL_SUB_LEFT;
    uint64_t flag, half, sig, deadline = 0, *stage = k->stage;
    uint32_t lanes = occl_nlanes(l), lane = occl_lane(l), words, bytes, nsend, nrecv, i, p, w, hear = 0, polls = 0, skip;
    *pc_p = 0;
    if ((head & must) != (OCCL_SUB_FRESH | 1ull << OCCL_SUB_CHANNELS_AT | 1) || !serial)
        return 0;
    if (q->serial != serial && d->quicks)
        occl_quick_recall(l, d, k, serial);
    if (q->serial != serial || !q->good || (sub[8] | sub[9]) ||
        ((sub[11] ^ q->shape[0]) | (sub[12] ^ q->shape[1]) | (sub[15] ^ q->shape[2])))
        return 0;
    sig = sub[14];
    half = sub[13] & 1 ? q->half : 0;
    flag = occl_words_flag(sub[13], 0);
    words = q->words;
    bytes = q->bytes;
    nsend = q->nsend;
    nrecv = q->nrecv;
    /* Signatures are sent and heard by the last lanes, data by the first: they are other warps. */
    OCCL_ROLLED
    for (i = lanes - 1 - lane; i < nsend; i += lanes)
        occl_store_two((uint64_t *)(void *)(q->tx[i] + half), sig, flag);
    OCCL_ROLLED
    for (w = lane; w < words; w += lanes) {
        uint32_t have = q->own;
        uint64_t v = 0, left = bytes - 8ull * w;
        if (have != OCCL_QUICK_NONE) {
            v = occl_words_load(occl_quick_at(sub, have) + 8ull * w, left);
            if (q->rows)
                stage[q->me * words + w] = v;
            else
                occl_words_put(occl_quick_at(sub, q->own_to) + 8ull * w, v, left);
        }
        OCCL_ROLLED
        for (p = 0; p < nsend; p += 4) {
            /* Read first: nothing moves across the stores. */
            unsigned char *tx[4];
            uint32_t from[4];
            OCCL_UNROLLED
            for (i = 0; i < 4; i++)
                if (p + i < nsend) {
                    tx[i] = q->tx[p + i] + half;
                    from[i] = q->from[p + i];
                }
            OCCL_UNROLLED
            for (i = 0; i < 4; i++)
                if (p + i < nsend) {
                    if (from[i] != have)
                        v = occl_words_load(occl_quick_at(sub, have = from[i]) + 8ull * w, left);
                    occl_store_two((uint64_t *)(void *)tx[i] + 2 * (w + 1), v, flag);
                }
        }
    }
    OCCL_TRACE(l, ch, 20);
    /* The stage has a row for each message, or one for each rank. */
    skip = q->rows ? q->me : OCCL_QUICK_RANKS;
    w = lane;
    OCCL_ROLLED
    for (;;) {
        uint32_t all = 1;
        OCCL_ROLLED
        for (; w < words; w += lanes) {
            OCCL_ROLLED
            for (p = 0; p < nrecv; p += 4) {
                uint64_t x[4], f[4];
                OCCL_UNROLLED
                for (i = 0; i < 4; i++)
                    if (p + i < nrecv)
                        occl_load_two((const uint64_t *)(const void *)(q->rx[p + i] + half) + 2 * (w + 1), &x[i], &f[i]);
                OCCL_UNROLLED
                for (i = 0; i < 4; i++)
                    if (p + i < nrecv) {
                        all &= f[i] == flag;
                        stage[(p + i + (p + i >= skip)) * words + w] = x[i];
                    }
            }
            if (!all)
                break;
        }
        if (!hear) {
            hear = 1;
            OCCL_ROLLED
            for (i = lanes - 1 - lane; i < nrecv; i += lanes) {
                uint64_t x, f;
                occl_load_two((const uint64_t *)(const void *)(q->rx[i] + half), &x, &f);
                hear &= f == flag && x == sig;
            }
        }
        if (occl_all(l, all & hear))
            break;
        polls++;
        if ((polls & 7) == 0 || (others && !k->luck)) {
            uint32_t go = 0;
            if (lane == 0) {
                uint64_t now = occl_clock_ns();
                if (!deadline)
                    deadline = now + d->conf.stick_min_ns * 4; /* as the head of the table has */
                go = !others && now < deadline;
            }
            if (!occl_uniform(l, go)) {
                if (lane == 0) {
                    k->luck = 0;
                    occl_count(&ch->stats.polls, polls);
                    occl_count(&ch->stats.steps, q->pc);
                }
                *pc_p = q->pc;
                return 0;
            }
        }
        occl_chaos(l);
    }
    OCCL_TRACE(l, ch, 21);
    OCCL_ROLLED
    for (w = lane; w < words; w += lanes) {
        uint64_t left = bytes - 8ull * w, v;
        if (q->rows) {
            (void)occl_dev_fold_little(q->type, q->op, stage + w, words, q->rows, &v);
            occl_words_put(occl_quick_at(sub, q->to[0]) + 8ull * w, v, left);
            continue;
        }
        OCCL_ROLLED
        for (p = 0; p < nrecv; p++)
            occl_words_put(occl_quick_at(sub, q->to[p]) + 8ull * w, stage[p * words + w], left);
    }
    OCCL_TRACE(l, ch, 22);
    occl_sync(l);
    if (lane == 0) {
        d->taken = number;
        occl_front_report(d, ch, (occl_dev_run_t *)(uintptr_t)(head & OCCL_SUB_ADDRESS), OCCL_DONE);
        k->luck = 1;
        occl_count(&ch->stats.polls, polls);
        occl_count(&ch->stats.steps, q->steps);
        occl_count(&ch->stats.runs, 1);
    }
    OCCL_TRACE(l, ch, 11);
    return 1;
}

#endif
#endif
