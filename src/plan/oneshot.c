/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One shot: everybody sends to everybody what it needs, once; whoever needs a sum folds it itself, in rank order.
 *
 * The fewest hops there are, so the algorithm of small payloads. With slots every rank hears every other one, which lets a
 * run start without a gate: a rank that does not agree cannot go unnoticed.
 *
 * Slots cannot deadlock, whatever their number: all ranks go through "send k to all, receive k from all". Take the rank that has
 * come least far. If it waits to send k, all others have received k - 1; if it waits to receive k, all have sent it.
 */
#include "planner.h"

static const occl_num_t each = {.per = 1}; /* one message a chunk */

/*
 * allreduce. Exposed: fold everybody's SEND. A rank in place may overwrite its SEND only after the others have read the
 * chunk, and they tell; so it folds into scratch and copies later. Whether somebody else is in place makes no difference to
 * the flags, so nobody needs to know.
 */
static occl_status_t build_allreduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "oneshot", plan_p, &status))
        return status;
    if (a->move == OCCL_MOVE_SLOTS) {
        b = occl_plan_begin(a, OCCL_PLAN_SLOTS | OCCL_PLAN_HEARS_ALL, "oneshot");
        for (uint32_t c = 0; c < a->nchannels; c++) {
            occl_part_t p = occl_part_channel(a, c);
            occl_plan_section(b, c, p.n);
            occl_emit_spread(b, c, each, occl_at(OCCL_SP_SEND, p.lo), p.n, 0);
            occl_emit_fold(b, c, each, occl_at(OCCL_SP_SEND, p.lo), occl_at(OCCL_SP_RECV, p.lo), p.n);
        }
        return occl_plan_end(b, plan_p);
    }
    b = occl_plan_begin(a, OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "oneshot");
    if (a->in_place)
        occl_plan_scratch(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t sum = a->in_place ? occl_at(OCCL_SP_SCRATCH, 0) : occl_at(OCCL_SP_RECV, p.lo);
        occl_plan_section(b, c, p.n);
        occl_post(b, occl_emit_fold_exposed(b, c, occl_at(OCCL_SP_SEND, p.lo), p.lo, sum, p.n), OCCL_POST_SIG_ALL, 0, each);
        if (a->in_place)
            occl_wait(b, occl_emit_copy(b, c, sum, occl_at(OCCL_SP_RECV, p.lo), p.n), OCCL_WAIT_SIG_ALL, 0, each);
    }
    occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* reduce: all send to the root, which folds. */
static occl_status_t build_reduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "oneshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS, "oneshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_plan_section(b, c, p.n);
        if (a->rank == a->root)
            occl_emit_fold(b, c, each, occl_at(OCCL_SP_SEND, p.lo), occl_at(OCCL_SP_RECV, p.lo), p.n);
        else
            occl_emit_send(b, c, a->root, each, occl_at(OCCL_SP_SEND, p.lo), p.n);
    }
    return occl_plan_end(b, plan_p);
}

static occl_status_t build_allgather(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "oneshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS | OCCL_PLAN_HEARS_ALL, "oneshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t home = occl_at(OCCL_SP_RECV, a->rank * a->count + p.lo);
        occl_ref_t mine = a->in_place ? home : occl_at(OCCL_SP_SEND, p.lo);
        occl_plan_section(b, c, p.n);
        occl_emit_spread(b, c, each, mine, p.n, 0);
        if (!a->in_place)
            occl_emit_copy(b, c, mine, home, p.n);
        occl_emit_collect(b, c, each, occl_at(OCCL_SP_RECV, p.lo), p.n, a->count);
    }
    return occl_plan_end(b, plan_p);
}

/* alltoall. In place: chunk i of all blocks has left before chunk i of any block is overwritten. */
static occl_status_t build_alltoall(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    uint32_t from = a->in_place ? OCCL_SP_RECV : OCCL_SP_SEND;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "oneshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS | OCCL_PLAN_HEARS_ALL, "oneshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        uint64_t home = a->rank * a->count + p.lo;
        occl_plan_section(b, c, p.n);
        occl_emit_spread(b, c, each, occl_at(from, p.lo), p.n, a->count);
        if (!a->in_place)
            occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, home), occl_at(OCCL_SP_RECV, home), p.n);
        occl_emit_collect(b, c, each, occl_at(OCCL_SP_RECV, p.lo), p.n, a->count);
    }
    return occl_plan_end(b, plan_p);
}

/* reduce_scatter_block. In place the result overwrites block 0, whose chunk i has left (or is mine). */
static occl_status_t build_reduce_scatter_block(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "oneshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS | OCCL_PLAN_HEARS_ALL, "oneshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_plan_section(b, c, p.n);
        occl_emit_spread(b, c, each, occl_at(OCCL_SP_SEND, p.lo), p.n, a->count);
        occl_emit_fold(b, c, each, occl_at(OCCL_SP_SEND, a->rank * a->count + p.lo), occl_at(OCCL_SP_RECV, p.lo), p.n);
    }
    return occl_plan_end(b, plan_p);
}

/* barrier: messages of nothing. */
static occl_status_t build_barrier(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "oneshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS | OCCL_PLAN_HEARS_ALL, "oneshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_plan_section(b, c, 0);
        occl_emit_spread(b, c, each, occl_at(OCCL_SP_NONE, 0), 0, 0);
        occl_emit_collect(b, c, each, occl_at(OCCL_SP_NONE, 0), 0, 0);
    }
    return occl_plan_end(b, plan_p);
}

#define PLANNER(coll, COLL, mv) \
    const occl_planner_t occl_planner_oneshot_##coll = { \
        .name = "oneshot", .kind = OCCL_COLL_##COLL, .moves = mv, .build = build_##coll, .msgs = 1}

PLANNER(allreduce, ALLREDUCE, OCCL_MOVES_BOTH);
PLANNER(reduce, REDUCE, OCCL_MOVES_SLOTS);
PLANNER(allgather, ALLGATHER, OCCL_MOVES_SLOTS);
PLANNER(alltoall, ALLTOALL, OCCL_MOVES_SLOTS);
PLANNER(reduce_scatter_block, REDUCE_SCATTER_BLOCK, OCCL_MOVES_SLOTS);
PLANNER(barrier, BARRIER, OCCL_MOVES_SLOTS);
