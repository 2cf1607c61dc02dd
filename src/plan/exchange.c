/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchange: blocks of any length between any ranks, by lists of which each rank has its own only. Whatever a plan rests on is known at
 * both ends of a link, and at no third place: the length of each block that goes over it.
 *
 * Slots. A block that fits one message goes at once: all of those are sent first and taken last, one hop. The longer ones go in
 * rounds, a section each: in round s ranks whose sum is s (modulo nranks) exchange (pairwise.c), in as many chunks as the longest of
 * their blocks has. So no rank ever waits for an empty message, however unequal the blocks are.
 * It cannot deadlock: short ones need no credit. Of the long ones, take the rank that has come least far in (round, chunk, pair of
 * send and receive, send before receive): its partner has come as far. If it waits for credit the partner has taken the message
 * before; if it waits for a message the partner has sent it.
 * Several blocks from one rank to another go in turn, chunk by chunk, so that numbers count through.
 *
 * Exposed. Each rank pulls what it shall have. Where all comes from a root or goes to it, the others move most (direct.c). In the end
 * each one tells those whose buffers it has touched.
 *
 * In place (alltoallv, alltoallw; slots only): a block's chunk has left before its successor comes, since the two of a pair meet.
 */
#include "planner.h"

#include <stdlib.h>

/* Blocks by peer: those for p are list[first[p]] to list[first[p + 1] - 1], in the order in which they were given. */
typedef struct index {
    const occl_block_t **list;
    uint32_t *first;
} index_t;

static void drop(index_t *x)
{
    free((void *)x->list);
    free(x->first);
}

/* Blocks of nothing are left out: nobody says a word about them. False: no memory. */
static int sort(const occl_plan_args_t *a, const occl_block_t *b, uint32_t n, index_t *x)
{
    uint32_t *at;
    x->list = calloc(n + 1, sizeof *x->list);
    x->first = calloc(a->nranks + 2, sizeof *x->first);
    if (!x->list || !x->first)
        return 0;
    at = x->first + 1; /* at[p]: where the next one of p goes; in the end where those of p + 1 begin */
    for (uint32_t i = 0; i < n; i++)
        if (b[i].n && (uint32_t)b[i].peer < a->nranks)
            at[b[i].peer + 1]++;
    for (uint32_t p = 0; p < a->nranks; p++)
        at[p + 1] += at[p];
    for (uint32_t i = 0; i < n; i++)
        if (b[i].n && (uint32_t)b[i].peer < a->nranks)
            x->list[at[b[i].peer]++] = &b[i];
    return 1;
}

static uint32_t blocks(const index_t *x, uint32_t p) { return x->first[p + 1] - x->first[p]; }
static const occl_block_t *block(const index_t *x, uint32_t p, uint32_t i) { return x->list[x->first[p] + i]; }
static occl_part_t part(const occl_plan_args_t *a, const occl_block_t *b, uint32_t c)
{
    return occl_part((occl_part_t){.lo = b->at, .n = b->n}, a->nchannels, c);
}

/* All that goes this way between the two fits one message. */
static int is_short(const occl_plan_args_t *a, const index_t *x, uint32_t p)
{
    return blocks(x, p) == 1 && block(x, p, 0)->n <= a->least;
}
static int is_long(const occl_plan_args_t *a, const index_t *x, uint32_t p) { return blocks(x, p) && !is_short(a, x, p); }

static int swaps(const occl_plan_args_t *a) { return occl_coll_swaps(a->kind, a->in_place); }

static void own(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c, const index_t *s, const index_t *r)
{
    for (uint32_t i = 0; !swaps(a) && i < blocks(s, a->rank) && i < blocks(r, a->rank); i++) {
        occl_part_t from = part(a, block(s, a->rank, i), c), to = part(a, block(r, a->rank, i), c);
        occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, from.lo), occl_at(OCCL_SP_RECV, to.lo), from.n < to.n ? from.n : to.n);
    }
}

static uint64_t longest(const occl_plan_args_t *a, const index_t *x, uint32_t p, uint32_t c, uint64_t so_far)
{
    for (uint32_t i = 0; i < blocks(x, p); i++) {
        occl_part_t q = part(a, block(x, p, i), c);
        so_far = q.n > so_far ? q.n : so_far;
    }
    return so_far;
}

static void through_slots(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c, const index_t *s, const index_t *r)
{
    static const occl_num_t once = {.per = 1};
    uint32_t from = swaps(a) ? OCCL_SP_RECV : OCCL_SP_SEND;
    occl_plan_section(b, c, 0);
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = (a->rank + i) % a->nranks;
        if (is_short(a, s, p)) {
            occl_part_t q = part(a, block(s, p, 0), c);
            occl_emit_send(b, c, p, once, occl_at(from, q.lo), q.n);
        }
    }
    occl_plan_section(b, c, longest(a, s, a->rank, c, 0));
    own(a, b, c, s, r);
    for (uint32_t round = 0; round < a->nranks; round++) {
        uint32_t p = (round + a->nranks - a->rank) % a->nranks;
        uint32_t out = is_long(a, s, p) ? blocks(s, p) : 0, in = is_long(a, r, p) ? blocks(r, p) : 0;
        if (p == a->rank || !(out | in))
            continue;
        occl_plan_section(b, c, longest(a, r, p, c, longest(a, s, p, c, 0)));
        for (uint32_t i = 0; i < out || i < in; i++) {
            if (i < out) {
                occl_part_t q = part(a, block(s, p, i), c);
                occl_emit_send(b, c, p, (occl_num_t){.base = i, .per = out}, occl_at(from, q.lo), q.n);
            }
            if (i < in) {
                occl_part_t q = part(a, block(r, p, i), c);
                occl_emit_recv(b, c, p, (occl_num_t){.base = i, .per = in}, occl_at(OCCL_SP_RECV, q.lo), q.n);
            }
        }
    }
    occl_plan_section(b, c, 0);
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = (a->rank + a->nranks - i) % a->nranks;
        if (is_short(a, r, p)) {
            occl_part_t q = part(a, block(r, p, 0), c);
            occl_emit_recv(b, c, p, once, occl_at(OCCL_SP_RECV, q.lo), q.n);
        }
    }
}

/* Of the part p that a rank exchanges with the root: what that rank moves, and what the root moves. Else all is the receiver's. */
static occl_part_t share(const occl_plan_args_t *a, occl_part_t p, int sending)
{
    int rooted = a->kind == OCCL_COLL_GATHERV || a->kind == OCCL_COLL_SCATTERV;
    uint64_t of_root = p.n / a->nranks, others = p.n - of_root;
    if (!rooted)
        return (occl_part_t){.lo = p.lo, .n = sending ? 0 : p.n};
    return a->rank == a->root ? (occl_part_t){.lo = p.lo + others, .n = of_root} : (occl_part_t){.lo = p.lo, .n = others};
}

/* Do I move anything from or to p's buffers (mine), or p from or to mine? What I do not move p does. */
static int touches(const occl_plan_args_t *a, uint32_t c, const index_t *s, const index_t *r, uint32_t p, int mine)
{
    uint64_t n = 0;
    for (int out = 0; out < 2; out++)
        if (blocks(out ? s : r, p)) {
            occl_part_t q = part(a, block(out ? s : r, p, 0), c), m = share(a, q, out);
            n += mine ? m.n : q.n - m.n;
        }
    return n > 0;
}

static void from_buffer_to_buffer(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c, const index_t *s, const index_t *r)
{
    uint64_t range = longest(a, s, a->rank, c, 0);
    occl_num_t over = {.sec = 1};
    for (uint32_t p = 0; p < a->nranks; p++)
        if (p != a->rank)
            range = longest(a, s, p, c, longest(a, r, p, c, range));
    occl_plan_section(b, c, range);
    own(a, b, c, s, r);
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = (a->rank + i) % a->nranks;
        if (blocks(r, p)) {
            occl_part_t q = part(a, block(r, p, 0), c), m = share(a, q, 0);
            if (m.n)
                occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, p, m.lo - block(r, p, 0)->at), occl_at(OCCL_SP_RECV, m.lo), m.n);
        }
        if (blocks(s, p)) {
            occl_part_t q = part(a, block(s, p, 0), c), m = share(a, q, 1);
            if (m.n)
                occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, m.lo), occl_at_rank(OCCL_SP_XRECV, p, m.lo - block(s, p, 0)->at), m.n);
        }
    }
    occl_plan_section(b, c, 0);
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = (a->rank + i) % a->nranks;
        if (touches(a, c, s, r, p, 1))
            occl_post(b, occl_emit_nop(b, c), OCCL_POST_SIG, p, over);
    }
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t p = (a->rank + i) % a->nranks;
        if (touches(a, c, s, r, p, 0))
            occl_wait(b, occl_emit_nop(b, c), OCCL_WAIT_SIG, p, over);
    }
}

static occl_status_t build(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    int slots = a->move == OCCL_MOVE_SLOTS;
    occl_plan_builder_t *b = NULL;
    occl_status_t status = OCCL_OK;
    index_t s = {0}, r = {0};
    if (a->nchannels == 0 || a->rank >= a->nranks)
        return OCCL_ERR_UNSUPPORTED;
    if (!sort(a, a->sends, a->nsends, &s) || !sort(a, a->recvs, a->nrecvs, &r))
        status = OCCL_ERR_RESOURCE;
    if (status == OCCL_OK && !slots && swaps(a))
        status = OCCL_ERR_UNSUPPORTED; /* blocks would be overwritten before they are read */
    for (uint32_t p = 0; status == OCCL_OK && !slots && p < a->nranks; p++)
        if (p != a->rank && (blocks(&s, p) > 1 || blocks(&r, p) > 1))
            status = OCCL_ERR_UNSUPPORTED; /* there is one address for each peer */
    if (status == OCCL_OK) {
        b = occl_plan_begin(a, slots ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_BULK, "exchange");
        occl_plan_links_apart(b);
        for (uint32_t c = 0; c < a->nchannels; c++)
            (slots ? through_slots : from_buffer_to_buffer)(a, b, c, &s, &r);
        status = occl_plan_end(b, plan_p);
    }
    drop(&s);
    drop(&r);
    return status;
}

#define PLANNER(coll, COLL) \
    const occl_planner_t occl_planner_exchange_##coll = { \
        .name = "exchange", .kind = OCCL_COLL_##COLL, .moves = OCCL_MOVES_BOTH, .build = build, .msgs = 1}

PLANNER(gatherv, GATHERV);
PLANNER(scatterv, SCATTERV);
PLANNER(allgatherv, ALLGATHERV);
PLANNER(alltoallv, ALLTOALLV);
PLANNER(alltoallw, ALLTOALLW);
PLANNER(neighbor_allgather, NEIGHBOR_ALLGATHER);
PLANNER(neighbor_allgatherv, NEIGHBOR_ALLGATHERV);
PLANNER(neighbor_alltoall, NEIGHBOR_ALLTOALL);
PLANNER(neighbor_alltoallv, NEIGHBOR_ALLTOALLV);
PLANNER(neighbor_alltoallw, NEIGHBOR_ALLTOALLW);
