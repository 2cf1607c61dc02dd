/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct: every byte goes once, from where it is to where it belongs. Slots: plain sends and receives. Exposed: all ranks move
 * as much. Where every rank has as much to fetch, each one pulls. Where all comes from a root, or goes to it, the others
 * move most of their parts, and the root an n-th of each: with 2 ranks both move a half.
 *
 * Slots cannot deadlock: rooted ones go one way only; alltoall and allgather are "send k to all, receive k from all" as in
 * oneshot.c.
 */
#include "planner.h"

static const occl_num_t each = {.per = 1};

static uint32_t after(const occl_plan_args_t *a, uint32_t i) { return (a->rank + i) % a->nranks; }

static uint32_t flags(const occl_plan_args_t *a, uint32_t slots_too)
{
    return a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS | slots_too : OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL | OCCL_PLAN_BULK;
}

/* Exposed: what of the part p that a rank exchanges with the root that rank moves, and what the root moves. */
static occl_part_t share(const occl_plan_args_t *a, occl_part_t p, int of_root)
{
    uint64_t of_roots = p.n / a->nranks, others = p.n - of_roots;
    return of_root ? (occl_part_t){.lo = p.lo + others, .n = of_roots} : (occl_part_t){.lo = p.lo, .n = others};
}

/* Exposed: all pull from the root, which pushes its share to all. */
static occl_status_t build_bcast(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "direct", plan_p, &status))
        return status;
    b = occl_plan_begin(a, flags(a, 0), "direct");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_part_t s = share(a, p, a->rank == a->root);
        occl_ref_t here = occl_at(OCCL_SP_RECV, a->move == OCCL_MOVE_SLOTS ? p.lo : s.lo);
        occl_plan_section(b, c, a->move == OCCL_MOVE_SLOTS ? p.n : share(a, p, 0).n);
        if (a->move == OCCL_MOVE_SLOTS && a->rank == a->root)
            occl_emit_spread(b, c, each, here, p.n, 0);
        else if (a->move == OCCL_MOVE_SLOTS)
            occl_emit_recv(b, c, a->root, each, here, p.n);
        else if (a->rank != a->root)
            occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XRECV, a->root, s.lo), here, s.n);
        else
            for (uint32_t i = 1; i < a->nranks; i++)
                occl_emit_copy(b, c, here, occl_at_rank(OCCL_SP_XRECV, after(a, i), s.lo), s.n);
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* Exposed: all push to the root, which pulls its share from all. */
static occl_status_t build_gather(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "direct", plan_p, &status))
        return status;
    b = occl_plan_begin(a, flags(a, 0), "direct");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        uint64_t home = a->rank * a->count + p.lo;
        occl_part_t s = share(a, p, a->rank == a->root);
        occl_ref_t mine = occl_at(OCCL_SP_SEND, p.lo);
        occl_plan_section(b, c, p.n);
        if (a->rank == a->root) {
            if (!a->in_place)
                occl_emit_copy(b, c, mine, occl_at(OCCL_SP_RECV, home), p.n);
            if (a->move == OCCL_MOVE_SLOTS)
                occl_emit_collect(b, c, each, occl_at(OCCL_SP_RECV, p.lo), p.n, a->count);
            else
                for (uint32_t i = 1; i < a->nranks; i++)
                    occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, after(a, i), s.lo),
                                   occl_at(OCCL_SP_RECV, after(a, i) * a->count + s.lo), s.n);
        } else if (a->move == OCCL_MOVE_SLOTS) {
            occl_emit_send(b, c, a->root, each, mine, p.n);
        } else {
            occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, s.lo), occl_at_rank(OCCL_SP_XRECV, a->root, a->rank * a->count + s.lo), s.n);
        }
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* Exposed: all pull from the root, which pushes its share to all. */
static occl_status_t build_scatter(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "direct", plan_p, &status))
        return status;
    b = occl_plan_begin(a, flags(a, 0), "direct");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_part_t s = share(a, p, a->rank == a->root);
        uint64_t home = a->rank * a->count + p.lo;
        occl_ref_t here = occl_at(OCCL_SP_RECV, p.lo);
        occl_plan_section(b, c, p.n);
        if (a->rank == a->root) {
            if (a->move == OCCL_MOVE_SLOTS)
                occl_emit_spread(b, c, each, occl_at(OCCL_SP_SEND, p.lo), p.n, a->count);
            if (!a->in_place)
                occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, home), here, p.n);
            for (uint32_t i = 1; i < a->nranks && a->move == OCCL_MOVE_EXPOSED; i++)
                occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, after(a, i) * a->count + s.lo),
                               occl_at_rank(OCCL_SP_XRECV, after(a, i), s.lo), s.n);
        } else if (a->move == OCCL_MOVE_SLOTS) {
            occl_emit_recv(b, c, a->root, each, here, p.n);
        } else {
            occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, a->root, a->rank * a->count + s.lo), occl_at(OCCL_SP_RECV, s.lo), s.n);
        }
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* Exposed: pull from everybody, my next neighbour first. In place, my block of RECV is what the others read; nobody writes it. */
static occl_status_t build_allgather(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "direct", plan_p, &status))
        return status;
    b = occl_plan_begin(a, flags(a, OCCL_PLAN_HEARS_ALL), "direct");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t home = occl_at(OCCL_SP_RECV, a->rank * a->count + p.lo);
        occl_ref_t mine = a->in_place ? home : occl_at(OCCL_SP_SEND, p.lo);
        occl_plan_section(b, c, p.n);
        if (a->move == OCCL_MOVE_SLOTS)
            for (uint32_t i = 1; i < a->nranks; i++)
                occl_emit_send(b, c, after(a, i), each, mine, p.n);
        if (!a->in_place)
            occl_emit_copy(b, c, mine, home, p.n);
        for (uint32_t i = 1; i < a->nranks; i++) {
            uint32_t r = after(a, i);
            occl_ref_t there = occl_at(OCCL_SP_RECV, r * a->count + p.lo);
            if (a->move == OCCL_MOVE_SLOTS)
                occl_emit_recv(b, c, r, each, there, p.n);
            else
                occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, r, p.lo), there, p.n);
        }
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* Exposed: pull, as allgather. Not in place: blocks would be overwritten before they are read. With slots they have left. */
static occl_status_t build_alltoall(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    uint32_t from = a->in_place ? OCCL_SP_RECV : OCCL_SP_SEND;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "direct", plan_p, &status))
        return status;
    if (a->in_place && a->move == OCCL_MOVE_EXPOSED)
        return OCCL_ERR_UNSUPPORTED;
    b = occl_plan_begin(a, flags(a, OCCL_PLAN_HEARS_ALL), "direct");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        uint64_t home = a->rank * a->count + p.lo;
        occl_plan_section(b, c, p.n);
        if (a->move == OCCL_MOVE_SLOTS)
            for (uint32_t i = 1; i < a->nranks; i++)
                occl_emit_send(b, c, after(a, i), each, occl_at(from, after(a, i) * a->count + p.lo), p.n);
        if (!a->in_place)
            occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, home), occl_at(OCCL_SP_RECV, home), p.n);
        for (uint32_t i = 1; i < a->nranks; i++) {
            uint32_t r = after(a, i);
            occl_ref_t there = occl_at(OCCL_SP_RECV, r * a->count + p.lo);
            if (a->move == OCCL_MOVE_SLOTS)
                occl_emit_recv(b, c, r, each, there, p.n);
            else
                occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, r, home), there, p.n);
        }
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* One message from rank 0 to rank 1 of a pair. Exposed: rank 1 pulls a half, rank 0 pushes the other. */
static occl_status_t build_sendrecv(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "direct", plan_p, &status))
        return status;
    if (a->nranks != 2)
        return OCCL_ERR_UNSUPPORTED;
    b = occl_plan_begin(a, flags(a, 0), "direct");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c), s = share(a, p, a->rank == 0);
        occl_plan_section(b, c, a->move == OCCL_MOVE_SLOTS ? p.n : share(a, p, 0).n);
        if (a->move == OCCL_MOVE_SLOTS && a->rank == 0)
            occl_emit_send(b, c, 1, each, occl_at(OCCL_SP_SEND, p.lo), p.n);
        else if (a->move == OCCL_MOVE_SLOTS)
            occl_emit_recv(b, c, 0, each, occl_at(OCCL_SP_RECV, p.lo), p.n);
        else if (a->rank == 1)
            occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, 0, s.lo), occl_at(OCCL_SP_RECV, s.lo), s.n);
        else
            occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, s.lo), occl_at_rank(OCCL_SP_XRECV, 1, s.lo), s.n);
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

#define PLANNER(coll, COLL) \
    const occl_planner_t occl_planner_direct_##coll = { \
        .name = "direct", .kind = OCCL_COLL_##COLL, .moves = OCCL_MOVES_BOTH, .build = build_##coll, .msgs = 1}

PLANNER(bcast, BCAST);
PLANNER(gather, GATHER);
PLANNER(scatter, SCATTER);
PLANNER(allgather, ALLGATHER);
PLANNER(alltoall, ALLTOALL);
PLANNER(sendrecv, SENDRECV);
