/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial tree: the root reaches all ranks in log2(ranks) hops. For small payloads on many ranks.
 *
 * Ranks are counted from the root: v = rank - root. The parent of v is v without its lowest set bit; its children are v + m for
 * every m = 1, 2, 4, ... below that bit (below nranks, for the root). So v's subtree is a run of ranks from v on.
 *
 * Slots cannot deadlock: messages go one way only, from parent to child or back, and a tree has no cycle.
 */
#include "planner.h"

static const occl_num_t each = {.per = 1};

typedef struct node {
    uint32_t v, children;      /* number of children */
    uint32_t parent;           /* rank; of the root: itself */
} node_t;

static node_t node_of(const occl_plan_args_t *a)
{
    node_t n = {.v = (a->rank + a->nranks - a->root) % a->nranks, .parent = a->root};
    for (uint64_t m = 1; m < a->nranks && !(n.v & m); m *= 2)
        n.children += n.v + m < a->nranks;
    if (n.v)
        n.parent = (uint32_t)(((n.v & (n.v - 1)) + (uint64_t)a->root) % a->nranks);
    return n;
}

/* Rank of child i of n. Children are few and come without gaps: v + 1, v + 2, v + 4, ... */
static uint32_t child(const occl_plan_args_t *a, node_t n, uint32_t i)
{
    return (uint32_t)((n.v + (1ull << i) + a->root) % a->nranks);
}

/* bcast: the child with the largest subtree first. Exposed: pull from the parent, tell the children. */
static occl_status_t build_bcast(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "tree", plan_p, &status))
        return status;
    node_t me = node_of(a);
    b = occl_plan_begin(a, a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "tree");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t here = occl_at(OCCL_SP_RECV, p.lo);
        occl_plan_section(b, c, p.n);
        if (a->move == OCCL_MOVE_SLOTS) {
            if (me.v)
                occl_emit_recv(b, c, me.parent, each, here, p.n);
            for (uint32_t i = me.children; i-- > 0;)
                occl_emit_send(b, c, child(a, me, i), each, here, p.n);
            continue;
        }
        if (me.v) {
            occl_step_t *s = occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XRECV, me.parent, p.lo), here, p.n);
            if (me.parent != a->root)
                occl_wait(b, s, OCCL_WAIT_SIG, me.parent, each);
            for (uint32_t i = me.children; i-- > 0;)
                occl_post(b, occl_emit_nop(b, c), OCCL_POST_SIG, child(a, me, i), each);
        } else {
            occl_emit_nop(b, c); /* the root's data stand there from the start */
        }
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/* reduce: mine, then the children's partials, the smallest subtree first: always the same order, so always the same bits. */
static occl_status_t build_reduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "tree", plan_p, &status))
        return status;
    node_t me = node_of(a);
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS, "tree");
    if (me.v && me.children)
        occl_plan_scratch(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        occl_ref_t sum = me.v ? occl_at(OCCL_SP_SCRATCH, 0) : occl_at(OCCL_SP_RECV, p.lo), mine = occl_at(OCCL_SP_SEND, p.lo);
        occl_plan_section(b, c, p.n);
        for (uint32_t i = 0; i < me.children; i++)
            occl_emit_recv_reduce(b, c, child(a, me, i), each, i ? sum : mine, 0, sum, p.n);
        if (me.v)
            occl_emit_send(b, c, me.parent, each, me.children ? sum : mine, p.n);
    }
    return occl_plan_end(b, plan_p);
}

const occl_planner_t occl_planner_tree_bcast = {
    .name = "tree", .kind = OCCL_COLL_BCAST, .moves = OCCL_MOVES_BOTH, .build = build_bcast, .msgs = 1};
const occl_planner_t occl_planner_tree_reduce = {
    .name = "tree", .kind = OCCL_COLL_REDUCE, .moves = OCCL_MOVES_SLOTS, .partials = 1, .build = build_reduce, .msgs = 1};
