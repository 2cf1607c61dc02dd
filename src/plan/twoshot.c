/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two shots: every rank owns one block. First its owner gets a block from all (and folds it, in rank order, in one
 * place); then all get it from its owner. Every byte crosses each rank's port twice at most: the algorithm of large payloads
 * where all ranks reach each other equally well.
 *
 * Ranks begin with their next neighbour and go round, so that nobody is everybody's first.
 *
 * Slots cannot deadlock: phases "send k to all, receive k from all" as in oneshot.c.
 */
#include "planner.h"

static uint32_t after(const occl_plan_args_t *a, uint32_t i) { return (a->rank + i) % a->nranks; }

static void allreduce_slots(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    static const occl_num_t scatter = {.base = 0, .per = 2}, gather = {.base = 1, .per = 2};
    occl_part_t mine = occl_part_block(a, a->nranks, a->rank, c);

    occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
    for (uint32_t i = 1; i < a->nranks; i++) {
        occl_part_t p = occl_part_block(a, a->nranks, after(a, i), c);
        occl_emit_send(b, c, after(a, i), scatter, occl_at(OCCL_SP_SEND, p.lo), p.n);
    }
    /* In place, RECV is written from here on: what stood at this chunk of any block has been sent above. */
    occl_emit_fold(b, c, scatter, occl_at(OCCL_SP_SEND, mine.lo), occl_at(OCCL_SP_RECV, mine.lo), mine.n);
    occl_emit_spread(b, c, gather, occl_at(OCCL_SP_RECV, mine.lo), mine.n, 0);
    for (uint32_t i = 1; i < a->nranks; i++) {
        occl_part_t p = occl_part_block(a, a->nranks, after(a, i), c);
        occl_emit_recv(b, c, after(a, i), gather, occl_at(OCCL_SP_RECV, p.lo), p.n);
    }
}

/*
 * The owner of block p, and nobody else, reads block p of my SEND, and it tells me (SIG) when chunk i of it is folded. Only
 * then do I write that chunk of RECV, which may be the same memory. My own block is read from my RECV only after my SIG.
 */
static void allreduce_exposed(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    static const occl_num_t folded = {.sec = 0, .per = 1};
    occl_part_t mine = occl_part_block(a, a->nranks, a->rank, c);
    occl_step_t *s;

    occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
    s = occl_emit_fold_exposed(b, c, occl_at(OCCL_SP_SEND, mine.lo), mine.lo, occl_at(OCCL_SP_RECV, mine.lo), mine.n);
    occl_post(b, s, OCCL_POST_SIG_ALL, 0, folded);
    for (uint32_t i = 1; i < a->nranks; i++) {
        uint32_t owner = after(a, i);
        occl_part_t p = occl_part_block(a, a->nranks, owner, c);
        s = occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XRECV, owner, p.lo), occl_at(OCCL_SP_RECV, p.lo), p.n);
        occl_wait(b, s, OCCL_WAIT_SIG, owner, folded);
    }
}

static occl_status_t build_allreduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "twoshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, (a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED) | OCCL_PLAN_HEARS_ALL, "twoshot");
    for (uint32_t c = 0; c < a->nchannels; c++)
        (a->move == OCCL_MOVE_SLOTS ? allreduce_slots : allreduce_exposed)(a, b, c);
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/*
 * reduce: the second shot goes to the root only. With slots the root gets two messages a chunk from each rank, the others
 * one, so numbers count by two on links to the root. Only the root and SCRATCH take results: RECV is the root's alone.
 */
static void reduce_slots(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    static const occl_num_t to_root = {.base = 0, .per = 2}, result = {.base = 1, .per = 2}, to_other = {.base = 0, .per = 1};
    occl_part_t mine = occl_part_block(a, a->nranks, a->rank, c);
    int root = a->rank == a->root;
    occl_ref_t sum = root ? occl_at(OCCL_SP_RECV, mine.lo) : occl_at(OCCL_SP_SCRATCH, 0);

    occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
    for (uint32_t i = 1; i < a->nranks; i++) {
        occl_part_t p = occl_part_block(a, a->nranks, after(a, i), c);
        occl_emit_send(b, c, after(a, i), after(a, i) == a->root ? to_root : to_other, occl_at(OCCL_SP_SEND, p.lo), p.n);
    }
    occl_emit_fold(b, c, root ? to_root : to_other, occl_at(OCCL_SP_SEND, mine.lo), sum, mine.n);
    if (!root) {
        occl_emit_send(b, c, a->root, result, sum, mine.n);
        return;
    }
    for (uint32_t i = 1; i < a->nranks; i++) {
        occl_part_t p = occl_part_block(a, a->nranks, after(a, i), c);
        occl_emit_recv(b, c, after(a, i), result, occl_at(OCCL_SP_RECV, p.lo), p.n);
    }
}

/* Exposed: each owner writes its sum into the root's RECV. In place at the root: the owner alone reads that block there. */
static void reduce_exposed(const occl_plan_args_t *a, occl_plan_builder_t *b, uint32_t c)
{
    occl_part_t mine = occl_part_block(a, a->nranks, a->rank, c);
    occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
    occl_emit_fold_exposed(b, c, occl_at(OCCL_SP_SEND, mine.lo), mine.lo,
                           a->rank == a->root ? occl_at(OCCL_SP_RECV, mine.lo)
                                              : occl_at_rank(OCCL_SP_XRECV, a->root, mine.lo), mine.n);
}

static occl_status_t build_reduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "twoshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, (a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_LONG) | OCCL_PLAN_HEARS_ALL,
                        "twoshot");
    if (a->move == OCCL_MOVE_SLOTS)
        occl_plan_scratch(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++)
        (a->move == OCCL_MOVE_SLOTS ? reduce_slots : reduce_exposed)(a, b, c);
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/*
 * reduce_scatter_block: the first shot alone. Slots: as in oneshot.c, but a send to one rank does not wait for credit of
 * another.
 *
 * Exposed: a rank in place puts its result over block 0 of its own SEND, which rank 0 reads. So it folds into scratch and
 * waits for rank 0's word about the chunk. Rank 0's own result lies over its own block, which only it reads.
 */
static occl_status_t build_reduce_scatter_block(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    static const occl_num_t each = {.per = 1};
    int late = a->in_place && a->rank != 0 && a->move == OCCL_MOVE_EXPOSED;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "twoshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, (a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_LONG) | OCCL_PLAN_HEARS_ALL,
                        "twoshot");
    if (late)
        occl_plan_scratch(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        uint64_t home = a->rank * a->count + p.lo;
        occl_plan_section(b, c, p.n);
        if (a->move == OCCL_MOVE_SLOTS) {
            for (uint32_t i = 1; i < a->nranks; i++)
                occl_emit_send(b, c, after(a, i), each, occl_at(OCCL_SP_SEND, after(a, i) * a->count + p.lo), p.n);
            occl_emit_fold(b, c, each, occl_at(OCCL_SP_SEND, home), occl_at(OCCL_SP_RECV, p.lo), p.n);
            continue;
        }
        occl_ref_t sum = late ? occl_at(OCCL_SP_SCRATCH, 0) : occl_at(OCCL_SP_RECV, p.lo);
        occl_step_t *s = occl_emit_fold_exposed(b, c, occl_at(OCCL_SP_SEND, home), home, sum, p.n);
        if (a->rank == 0)
            occl_post(b, s, OCCL_POST_SIG_ALL, 0, each);
        if (late)
            occl_wait(b, occl_emit_copy(b, c, sum, occl_at(OCCL_SP_RECV, p.lo), p.n), OCCL_WAIT_SIG, 0, each);
    }
    if (a->move == OCCL_MOVE_EXPOSED)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

/*
 * reduce_scatter: blocks of any length, each folded by its owner. Slots: every link has as many messages as the longest block has
 * chunks, since all that go to one rank are folded together.
 *
 * In place the result belongs to the start of the vector, where blocks of others lie, of any length. So the owner folds its block
 * where it stands, which nobody else writes or reads, and moves it down when all have read theirs: chunk by chunk from below,
 * through scratch, because a chunk may overlap the place that it goes to. What one channel reads another one would write then, so
 * there is one channel.
 */
static occl_status_t build_reduce_scatter(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    static const occl_num_t each = {.per = 1};
    int slots = a->move == OCCL_MOVE_SLOTS;
    const occl_block_t *mine = &a->recvs[a->rank];
    uint64_t longest = 0;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "twoshot", plan_p, &status))
        return status;
    if (a->nrecvs != a->nranks)
        return OCCL_ERR_UNSUPPORTED;
    for (uint32_t p = 0; p < a->nranks; p++)
        longest = a->recvs[p].n > longest ? a->recvs[p].n : longest;
    b = occl_plan_begin(a, (slots ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED) | OCCL_PLAN_HEARS_ALL, "twoshot");
    occl_plan_links_apart(b);
    occl_plan_scratch(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_ref_t from = occl_at(OCCL_SP_SEND, mine->at), to = occl_at(OCCL_SP_RECV, a->in_place ? mine->at : 0);
        occl_plan_section(b, c, c ? 0 : longest);
        for (uint32_t i = 1; i < a->nranks && slots && c == 0; i++)
            occl_emit_send(b, c, after(a, i), each, occl_at(OCCL_SP_SEND, a->recvs[after(a, i)].at), a->recvs[after(a, i)].n);
        if (slots && c == 0)
            occl_emit_fold(b, c, each, from, to, mine->n);
        else if (c == 0)
            (void)occl_emit_fold_exposed(b, c, from, mine->at, to, mine->n);
    }
    if (!slots)
        occl_emit_close(b, 1);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_plan_section(b, c, c ? 0 : longest);
        if (c || !a->in_place || mine->at == 0)
            continue;
        occl_emit_copy(b, c, occl_at(OCCL_SP_RECV, mine->at), occl_at(OCCL_SP_SCRATCH, 0), mine->n);
        occl_emit_copy(b, c, occl_at(OCCL_SP_SCRATCH, 0), occl_at(OCCL_SP_RECV, 0), mine->n);
    }
    return occl_plan_end(b, plan_p);
}

/*
 * bcast: the ranks other than the root own a block each, pull it from the root, and the rest from its owners. The root sends
 * every byte once.
 */
static occl_status_t build_bcast(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    static const occl_num_t here = {.sec = 0, .per = 1};
    uint32_t blocks = a->nranks - 1;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_EXPOSED, "twoshot", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL, "twoshot");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        uint32_t v = (a->rank + a->nranks - a->root - 1) % a->nranks; /* my block; the root has none */
        occl_plan_section(b, c, occl_part_block(a, blocks, 0, c).n);
        if (a->rank == a->root) {
            occl_emit_nop(b, c);
            continue;
        }
        for (uint32_t i = 0; i < blocks; i++) {
            uint32_t w = (v + i) % blocks, owner = (a->root + 1 + w) % a->nranks;
            occl_part_t p = occl_part_block(a, blocks, w, c);
            occl_step_t *s = occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XRECV, i ? owner : a->root, p.lo),
                                            occl_at(OCCL_SP_RECV, p.lo), p.n);
            if (i == 0)
                occl_post(b, s, OCCL_POST_SIG_ALL, 0, here);
            else
                occl_wait(b, s, OCCL_WAIT_SIG, owner, here);
        }
    }
    occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

#define PLANNER(coll, COLL, mv, m, sp) \
    const occl_planner_t occl_planner_twoshot_##coll = { \
        .name = "twoshot", .kind = OCCL_COLL_##COLL, .moves = mv, .build = build_##coll, .msgs = m, .split = sp}

PLANNER(allreduce, ALLREDUCE, OCCL_MOVES_BOTH, 2, 1);
PLANNER(reduce, REDUCE, OCCL_MOVES_BOTH, 2, 1);
PLANNER(reduce_scatter_block, REDUCE_SCATTER_BLOCK, OCCL_MOVES_BOTH, 1, 0);
PLANNER(reduce_scatter, REDUCE_SCATTER, OCCL_MOVES_BOTH, 1, 0);
PLANNER(bcast, BCAST, OCCL_MOVES_EXPOSED, 0, 0);
