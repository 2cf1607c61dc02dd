/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pairwise exchange: in round s ranks whose sum is s (modulo nranks) exchange blocks, so at any time a rank talks to one
 * other only.
 *
 * In place is safe because the two of a pair meet in the same round: a block leaves before its successor arrives.
 *
 * Slots cannot deadlock: take the rank that has come least far, in (chunk, round, send before receive). Its partner of this round
 * has come as far, so it has received the chunk before, and sent this one if it has passed its send; if it has not, it
 * has not come as far.
 */
#include "planner.h"

static occl_status_t build_alltoall(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    static const occl_num_t each = {.per = 1};
    int slots = a->move == OCCL_MOVE_SLOTS;
    uint32_t from = a->in_place ? OCCL_SP_RECV : OCCL_SP_SEND;
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_BOTH, "pairwise", plan_p, &status))
        return status;
    if (a->in_place && !slots)
        return OCCL_ERR_UNSUPPORTED;
    b = occl_plan_begin(a, (slots ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED | OCCL_PLAN_BULK) | OCCL_PLAN_HEARS_ALL, "pairwise");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_channel(a, c);
        uint64_t home = a->rank * a->count + p.lo;
        occl_plan_section(b, c, p.n);
        for (uint32_t s = 0; s < a->nranks; s++) {
            uint32_t peer = (s + a->nranks - a->rank) % a->nranks;
            uint64_t theirs = peer * a->count + p.lo;
            if (peer == a->rank) {
                if (!a->in_place)
                    occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, home), occl_at(OCCL_SP_RECV, home), p.n);
            } else if (slots) {
                occl_emit_send(b, c, peer, each, occl_at(from, theirs), p.n);
                occl_emit_recv(b, c, peer, each, occl_at(OCCL_SP_RECV, theirs), p.n);
            } else {
                occl_emit_copy(b, c, occl_at_rank(OCCL_SP_XSEND, peer, home), occl_at(OCCL_SP_RECV, theirs), p.n);
            }
        }
    }
    if (!slots)
        occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

const occl_planner_t occl_planner_pairwise_alltoall = {
    .name = "pairwise", .kind = OCCL_COLL_ALLTOALL, .moves = OCCL_MOVES_BOTH, .build = build_alltoall, .msgs = 1};
