/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Push: the owner of a block reads it from all, folds it in rank order, and writes it to all. Nobody else touches that block of
 * anybody's buffers, in place or not, so no flag is needed between the two shots: every chunk goes its way without a word, and
 * only the end is agreed. Each byte is read from its home once and written to its home once. For memory that is loaded and
 * stored as it stands; where it takes a system call twoshot.c costs less.
 */
#include "planner.h"

static occl_status_t build_allreduce(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_EXPOSED, "push", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_EXPOSED | OCCL_PLAN_HEARS_ALL | OCCL_PLAN_LONG, "push");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t p = occl_part_block(a, a->nranks, a->rank, c);
        occl_plan_section(b, c, occl_part_block(a, a->nranks, 0, c).n);
        occl_emit_fold_exposed(b, c, occl_at(OCCL_SP_SEND, p.lo), p.lo,
                               (occl_ref_t){.space = OCCL_SP_XRECV, .rank = -1, .off = p.lo}, p.n);
    }
    occl_emit_close(b, 1);
    return occl_plan_end(b, plan_p);
}

const occl_planner_t occl_planner_push_allreduce = {
    .name = "push", .kind = OCCL_COLL_ALLREDUCE, .moves = OCCL_MOVES_EXPOSED, .build = build_allreduce};
