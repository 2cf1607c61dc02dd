/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scan and exscan: rank i gets the fold of ranks 0 to i, or to i - 1.
 *
 * oneshot  Everybody sends to everybody, as for an allreduce (oneshot.c), and folds as many as it needs. Ranks hear also those that
 *          they need nothing of: so every rank hears every other one, and no gate is needed.
 * chain    Rank i gets the prefix from the one before, adds its own, passes it on. Every rank moves its vector twice, whatever their
 *          number. Prefixes stand in the element type on their way (partials).
 * push     The owner of a block reads it from all and writes to each what that one shall have. Nobody else touches that block of
 *          anybody's buffers, so no flag is needed. Every prefix is folded anew, from the last rank down: what has been
 *          written over, where a rank is in place, is needed by none of the shorter ones.
 * twoshot  The same, but one prefix is made from the one before (partials): each vector is read once.
 *
 * Slots cannot deadlock: oneshot as there; in the chain messages go up only.
 */
#include "planner.h"

static const occl_num_t each = {.per = 1};

/* How many ranks' contributions rank r gets. */
static uint32_t upto(const occl_plan_args_t *a, uint32_t r) { return a->kind == OCCL_COLL_SCAN ? r + 1 : r; }

static occl_status_t build_oneshot(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    uint32_t n = upto(a, a->rank);
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "oneshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS | OCCL_PLAN_HEARS_ALL, "oneshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_plan_section(b, c, p.n);
        occl_emit_spread(b, c, each, occl_at(OCCL_SP_SEND, p.lo), p.n, 0);
        if (n) {
            occl_emit_fold(b, c, each, occl_at(OCCL_SP_SEND, p.lo), occl_at(OCCL_SP_RECV, p.lo), p.n)->stride = n;
        } else {
            occl_step_t *s = occl_emit_nop(b, c);
            occl_wait(b, s, OCCL_WAIT_SLOT_ALL, 0, each);
            occl_post(b, s, OCCL_POST_CREDIT_ALL, 0, each);
        }
    }
    return occl_plan_end(b, plan_p);
}

/* exscan in place: RECV takes the prefix, so mine is saved first. */
static occl_status_t build_chain(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    int last = a->rank + 1 == a->nranks, scan = a->kind == OCCL_COLL_SCAN, save = !scan && a->in_place && a->rank > 0 && !last;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "chain", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS, "chain");
    if (save)
        occl_plan_scratch(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t mine = occl_at(OCCL_SP_SEND, p.lo), here = occl_at(OCCL_SP_RECV, p.lo);
        occl_plan_section(b, c, p.n);
        if (save) {
            occl_emit_copy(b, c, mine, occl_at(OCCL_SP_SCRATCH, 0), p.n);
            mine = occl_at(OCCL_SP_SCRATCH, 0);
        }
        if (scan && a->rank > 0)
            occl_emit_recv_reduce(b, c, a->rank - 1, each, mine, 1, here, p.n);
        else if (scan && !a->in_place)
            occl_emit_copy(b, c, mine, here, p.n);
        else if (a->rank > 0)
            occl_emit_recv(b, c, a->rank - 1, each, here, p.n);
        if (last)
            continue;
        if (scan || a->rank == 0) {
            occl_emit_send(b, c, a->rank + 1, each, scan ? here : mine, p.n);
        } else {
            occl_step_t *s = occl_emit_reduce(b, c, here, mine, occl_at(OCCL_SP_TXSLOT, 0), p.n);
            occl_wait(b, s, OCCL_WAIT_CREDIT, a->rank + 1, each);
            occl_post(b, s, OCCL_POST_SLOT, a->rank + 1, each);
        }
    }
    return occl_plan_end(b, plan_p);
}

static occl_status_t build_push(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_EXPOSED, "push", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL | OCCL_PLAN_LONG, "push");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_block(a, a->nranks, a->rank, c);
        occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
        for (uint32_t r = a->nranks; r-- > 0;)
            if (upto(a, r))
                occl_emit_fold_exposed(b, c, occl_at(OCCL_SP_SEND, p.lo), p.lo, occl_at_rank(OCCL_SP_XRECV, r, p.lo), p.n)->stride =
                    upto(a, r);
    }
    occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* exscan: a rank in place has its own read before it is written over, so there are two prefixes at a time. */
static occl_status_t build_twoshot(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    int scan = a->kind == OCCL_COLL_SCAN;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_EXPOSED, "twoshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "twoshot");
    occl_plan_scratch(b, scan ? 1 : 2);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_block(a, a->nranks, a->rank, c);
        occl_ref_t sum = occl_at(OCCL_SP_SCRATCH, 0);
        occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
        occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, 0, p.lo), sum, p.n);
        if (scan)
            occl_emit_copy(b, c, sum, occl_at_rank(OCCL_SP_XRECV, 0, p.lo), p.n);
        for (uint32_t r = 1; r < a->nranks; r++) {
            occl_ref_t next = scan ? sum : occl_at(OCCL_SP_SCRATCH, r & 1);
            if (scan || r + 1 < a->nranks)
                occl_emit_reduce(b, c, sum, occl_at_rank(OCCL_SP_XSEND, r, p.lo), next, p.n);
            occl_emit_copy(b, c, scan ? next : sum, occl_at_rank(OCCL_SP_XRECV, r, p.lo), p.n);
            sum = next;
        }
    }
    occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

#define PLANNER(algo, coll, COLL, mv, part, m) \
    const occl_planner_t occl_planner_##algo##_##coll = {.name = #algo, .kind = OCCL_COLL_##COLL, .moves = mv, .partials = part, \
                                                         .build = build_##algo, .msgs = m}
#define PLANNERS(algo, mv, part, m)                  \
    PLANNER(algo, scan, SCAN, mv, part, m);          \
    PLANNER(algo, exscan, EXSCAN, mv, part, m)

PLANNERS(oneshot, OCCL_MOVES_SLOTS, 0, 1);
PLANNERS(chain, OCCL_MOVES_SLOTS, 1, 1);
PLANNERS(push, OCCL_MOVES_EXPOSED, 0, 0);
PLANNERS(twoshot, OCCL_MOVES_EXPOSED, 1, 0);
