/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dissemination: in round j tell rank + 2^j, hear rank - 2^j. A barrier of log2(ranks) messages a rank instead of
 * ranks - 1. A rank hears only a few others itself, so it does not claim to hear all.
 *
 * Distances are powers of two below nranks, so every link carries one message at most, and no credit is ever waited for.
 */
#include "planner.h"

static occl_status_t build_barrier(const occl_plan_args_t *a, occl_plan_t **plan_p)
{
    static const occl_num_t once = {.per = 1};
    occl_plan_builder_t *b;
    occl_status_t status;
    if (occl_plan_settled(a, OCCL_MOVES_SLOTS, "dissemination", plan_p, &status))
        return status;
    b = occl_plan_begin(a, OCCL_PLAN_SLOTS, "dissemination");
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_plan_section(b, c, 0);
        for (uint64_t d = 1; d < a->nranks; d *= 2) {
            occl_emit_send(b, c, (uint32_t)((a->rank + d) % a->nranks), once, occl_at(OCCL_SP_NONE, 0), 0);
            occl_emit_recv(b, c, (uint32_t)((a->rank + a->nranks - d) % a->nranks), once, occl_at(OCCL_SP_NONE, 0), 0);
        }
    }
    return occl_plan_end(b, plan_p);
}

const occl_planner_t occl_planner_dissemination_barrier = {
    .name = "dissemination", .kind = OCCL_COLL_BARRIER, .moves = OCCL_MOVES_SLOTS, .build = build_barrier, .msgs = 1};
