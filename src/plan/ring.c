/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring: everything comes from the previous rank and goes to the next. The fewest links and peers there are, so the
 * algorithm of large payloads where links are scarce; its latency grows with the number of ranks.
 *
 * Reducing: the partial of block b starts at rank b + 1, takes every rank's share on its way round and ends at rank b. So in
 * hop s a rank passes on block rank - 1 - s and gets block rank - 2 - s. Gathering: hop s gets block rank - 1 - s.
 *
 * Slots cannot deadlock: all ranks go through "send k to the next, receive k from the previous", k = 0, 1, ... Take the rank
 * that has come least far. If it waits to send k, the next one has received k - 1; if it waits to receive k, the previous one has
 * sent it. That is why a partial is stored here before it goes on: a step that waited for a message and for credit at
 * once would hold a slot while it waits, and with one slot a link the ring would lock.
 */
#include "planner.h"

/* Rank `r + by`, by >= -2 * nranks. */
static uint32_t at(const occl_plan_args_t *a, int64_t by)
{
    return (uint32_t)(((int64_t)a->rank + by + 2 * (int64_t)a->nranks) % a->nranks);
}

/*
 * allreduce with slots. In place: each block of SEND is used once here, in the hop that writes the same block of RECV
 * (except my last partial's), so nothing is overwritten before its use; gathered blocks come after all that.
 */
static void allreduce_slots(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    uint32_t hops = a->nranks - 1, next = at(a, 1), prev = at(a, -1);
    occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
    for (uint32_t s = 0; s < hops; s++) {
        occl_num_t k = {.base = s, .per = 2 * hops};
        occl_part_t out = occl_part_block(a, a->nranks, at(a, -1 - (int64_t)s), c);
        occl_part_t in = occl_part_block(a, a->nranks, at(a, -2 - (int64_t)s), c);
        occl_emit_send(b, c, next, k, occl_at(s ? OCCL_SP_RECV : OCCL_SP_SEND, out.lo), out.n);
        occl_emit_recv_reduce(b, c, prev, k, occl_at(OCCL_SP_SEND, in.lo), 1, occl_at(OCCL_SP_RECV, in.lo), in.n);
    }
    for (uint32_t s = 0; s < hops; s++) {
        occl_num_t k = {.base = hops + s, .per = 2 * hops};
        occl_part_t out = occl_part_block(a, a->nranks, at(a, -(int64_t)s), c);
        occl_part_t in = occl_part_block(a, a->nranks, at(a, -1 - (int64_t)s), c);
        occl_emit_send(b, c, next, k, occl_at(OCCL_SP_RECV, out.lo), out.n);
        occl_emit_recv(b, c, prev, k, occl_at(OCCL_SP_RECV, in.lo), in.n);
    }
}

/*
 * allreduce over exposed buffers: pull from the previous rank, tell the next. Nothing is overwritten under a reader's eyes: the
 * only block of my SEND that is read from outside is rank - 1, in the next one's first hop, and the only thing that
 * writes it in place is its gathered sum, which contains what that hop has read. Likewise a partial in my RECV is replaced only by
 * the sum that it went into.
 */
static void allreduce_exposed(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    uint32_t hops = a->nranks - 1, next = at(a, 1), prev = at(a, -1);
    occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
    for (uint32_t s = 0; s < 2 * hops; s++) {
        uint32_t reducing = s < hops;
        occl_part_t p = occl_part_block(a, a->nranks, at(a, reducing ? -2 - (int64_t)s : -1 - (int64_t)(s - hops)), c);
        occl_ref_t theirs = occl_at_rank(s ? OCCL_SP_XRECV : OCCL_SP_XSEND, prev, p.lo), here = occl_at(OCCL_SP_RECV, p.lo);
        occl_step_t *st = reducing ? occl_emit_reduce(b, c, theirs, occl_at(OCCL_SP_SEND, p.lo), here, p.n)
                                   : occl_emit_copy(b, c, theirs, here, p.n);
        if (s > 0)
            occl_wait(b, st, OCCL_WAIT_SIG, prev, (occl_num_t){.base = s - 1, .per = 2 * hops});
        if (s + 1 < 2 * hops)
            occl_post(b, st, OCCL_POST_SIG, next, (occl_num_t){.base = s, .per = 2 * hops});
    }
}

static occl_status_t build_allreduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "ring", plan_p, &status))
        return status;
    b = occl_plan_begin(a, a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "ring");
    for (uint32_t c = 0; c < a->nchannels; c++)
        (a->move == OCCL_MOVE_SLOTS ? allreduce_slots : allreduce_exposed)(a, b, c);
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

static occl_status_t build_allgather(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    uint32_t hops = a->nranks - 1;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "ring", plan_p, &status))
        return status;
    b = occl_plan_begin(a, a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "ring");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t home = occl_at(OCCL_SP_RECV, a->rank * a->count + p.lo);
        uint32_t next = at(a, 1), prev = at(a, -1);
        occl_plan_section(b, c, p.n);
        if (!a->in_place)
            occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, p.lo), home, p.n);
        for (uint32_t s = 0; s < hops; s++) {
            occl_num_t k = {.base = s, .per = hops}, before = {.base = s ? s - 1 : 0, .per = hops};
            uint64_t out = at(a, -(int64_t)s) * a->count + p.lo, in = at(a, -1 - (int64_t)s) * a->count + p.lo;
            if (a->move == OCCL_MOVE_SLOTS) {
                occl_emit_send(b, c, next, k, occl_at(OCCL_SP_RECV, out), p.n);
                occl_emit_recv(b, c, prev, k, occl_at(OCCL_SP_RECV, in), p.n);
                continue;
            }
            occl_ref_t theirs = s ? occl_at_rank(OCCL_SP_XRECV, prev, in) : occl_at_rank(OCCL_SP_XSEND, prev, p.lo);
            occl_step_t *st = occl_emit_copy(b, c, theirs, occl_at(OCCL_SP_RECV, in), p.n);
            if (s > 0)
                occl_wait(b, st, OCCL_WAIT_SIG, prev, before);
            if (s + 1 < hops)
                occl_post(b, st, OCCL_POST_SIG, next, k);
        }
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/*
 * reduce_scatter_block with slots: partials wait in scratch, because RECV has one block only. In place the result lies
 * over block 0 of SEND, whose chunk i has been used by then: the result is the chunk's last hop.
 */
static void reduce_scatter_slots(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    uint32_t hops = a->nranks - 1, next = at(a, 1), prev = at(a, -1);
    occl_part_t p = occl_part_channel(a, c);
    occl_ref_t partial = occl_at(OCCL_SP_SCRATCH, 0);
    occl_plan_section(b, c, p.n);
    for (uint32_t s = 0; s < hops; s++) {
        occl_num_t k = {.base = s, .per = hops};
        occl_ref_t out = occl_at(OCCL_SP_SEND, at(a, -1 - (int64_t)s) * a->count + p.lo);
        occl_ref_t mine = occl_at(OCCL_SP_SEND, at(a, -2 - (int64_t)s) * a->count + p.lo);
        occl_emit_send(b, c, next, k, s ? partial : out, p.n);
        occl_emit_recv_reduce(b, c, prev, k, mine, 1, s + 1 < hops ? partial : occl_at(OCCL_SP_RECV, p.lo), p.n);
    }
}

/*
 * reduce_scatter_block over exposed buffers: the one block of RECV is the window through which the next rank reads my partial.
 * Hop s: fold the previous one's window into scratch and tell it ("read"); once the next one has read mine, put the partial there
 * and tell it ("shown"). In place the window lies over block 0 of SEND, so that is saved into scratch first,
 * unless it is what the window shows first.
 *
 * It cannot deadlock: the rank that has come least far waits for "shown" of a hop that the previous one has behind it, or for
 * "read" of one that the next one has behind it. With two ranks previous and next are the same and share one SIG word: numbers grow
 * in program order for both.
 */
static void reduce_scatter_exposed(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    uint32_t hops = a->nranks - 1, next = at(a, 1), prev = at(a, -1), per = 2 * hops;
    occl_part_t p = occl_part_channel(a, c);
    occl_ref_t window = occl_at(OCCL_SP_RECV, p.lo), partial = occl_at(OCCL_SP_SCRATCH, 0), block0 = occl_at(OCCL_SP_SCRATCH, 1);
    occl_step_t *st;

    occl_plan_section(b, c, p.n);
    if (a->in_place && at(a, -1) != 0)
        occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, p.lo), block0, p.n);
    for (uint32_t s = 0; s <= hops; s++) {
        /* shown: numbers 0, 2, 4, ...; read: 1, 3, 5, ... */
        uint32_t block = at(a, -1 - (int64_t)s);
        occl_ref_t mine = a->in_place && block == 0 ? block0 : occl_at(OCCL_SP_SEND, block * a->count + p.lo);
        if (s > 0) {
            st = occl_emit_reduce(b, c, occl_at_rank(OCCL_SP_XRECV, prev, p.lo), mine, partial, p.n);
            occl_wait(b, st, OCCL_WAIT_SIG, prev, (occl_num_t){.base = 2 * (s - 1), .per = per});
            occl_post(b, st, OCCL_POST_SIG, prev, (occl_num_t){.base = 2 * (s - 1) + 1, .per = per});
        }
        if (s == 0 && a->in_place && block == 0)
            st = occl_emit_nop(b, c); /* it stands there */
        else
            st = occl_emit_copy(b, c, s ? partial : mine, window, p.n);
        if (s > 0)
            occl_wait(b, st, OCCL_WAIT_SIG, next, (occl_num_t){.base = 2 * (s - 1) + 1, .per = per});
        if (s < hops)
            occl_post(b, st, OCCL_POST_SIG, next, (occl_num_t){.base = 2 * s, .per = per});
    }
}

static occl_status_t build_reduce_scatter_block(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "ring", plan_p, &status))
        return status;
    b = occl_plan_begin(a, a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "ring");
    occl_plan_scratch(b, a->move == OCCL_MOVE_EXPOSED && a->in_place ? 2 : 1);
    for (uint32_t c = 0; c < a->nchannels; c++)
        (a->move == OCCL_MOVE_SLOTS ? reduce_scatter_slots : reduce_scatter_exposed)(a, b, c);
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

#define PLANNER(coll, COLL, part, m, sp) \
    const occl_planner_t occl_planner_ring_##coll = { \
        .name = "ring", .kind = OCCL_COLL_##COLL, .moves = OCCL_MOVES_BOTH, .partials = part, .build = build_##coll, \
        .ring_msgs = m, .split = sp}

PLANNER(allreduce, ALLREDUCE, 1, 2, 1);
PLANNER(allgather, ALLGATHER, 0, 1, 0);
PLANNER(reduce_scatter_block, REDUCE_SCATTER_BLOCK, 1, 1, 0);
