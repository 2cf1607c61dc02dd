/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What planner files share: the list of planners, and the few moves that all algorithms are made of. Private to src/plan.
 *
 * A planner reads like its algorithm: open a section, then one emit call a move. Every emit call appends one step.
 */
#ifndef OCCL_SRC_PLAN_PLANNER_H
#define OCCL_SRC_PLAN_PLANNER_H

#include "plan.h"

/* Every planner, one line: X(file, collective). Each stands as occl_planner_<file>_<collective> in <file>.c. */
#define OCCL_PLANNER_TABLE(X)          \
    X(oneshot, allreduce)              \
    X(oneshot, reduce)                 \
    X(oneshot, allgather)              \
    X(oneshot, alltoall)               \
    X(oneshot, reduce_scatter_block)   \
    X(oneshot, barrier)                \
    X(twoshot, allreduce)              \
    X(twoshot, reduce)                 \
    X(twoshot, reduce_scatter_block)   \
    X(twoshot, bcast)                  \
    X(push, allreduce)                 \
    X(direct, bcast)                   \
    X(direct, gather)                  \
    X(direct, scatter)                 \
    X(direct, allgather)               \
    X(direct, alltoall)                \
    X(direct, sendrecv)                \
    X(ring, allreduce)                 \
    X(ring, allgather)                 \
    X(ring, reduce_scatter_block)      \
    X(tree, bcast)                     \
    X(tree, reduce)                    \
    X(pairwise, alltoall)              \
    X(dissemination, barrier)          \
    X(oneshot, scan)                   \
    X(oneshot, exscan)                 \
    X(chain, scan)                     \
    X(chain, exscan)                   \
    X(push, scan)                      \
    X(push, exscan)                    \
    X(twoshot, scan)                   \
    X(twoshot, exscan)                 \
    X(twoshot, reduce_scatter)         \
    X(exchange, gatherv)               \
    X(exchange, scatterv)              \
    X(exchange, allgatherv)            \
    X(exchange, alltoallv)             \
    X(exchange, alltoallw)             \
    X(exchange, neighbor_allgather)    \
    X(exchange, neighbor_allgatherv)   \
    X(exchange, neighbor_alltoall)     \
    X(exchange, neighbor_alltoallv)    \
    X(exchange, neighbor_alltoallw)

#define X(file, coll) extern const occl_planner_t occl_planner_##file##_##coll;
OCCL_PLANNER_TABLE(X)
#undef X

#define OCCL_MOVES_SLOTS (1u << OCCL_MOVE_SLOTS)
#define OCCL_MOVES_EXPOSED (1u << OCCL_MOVE_EXPOSED)
#define OCCL_MOVES_BOTH (OCCL_MOVES_SLOTS | OCCL_MOVES_EXPOSED)

/* A range of elements, and its parts: part i of n, and what channel c of it handles. */
typedef struct occl_part {
    uint64_t lo, n;
} occl_part_t;
occl_part_t occl_part(occl_part_t whole, uint32_t parts, uint32_t i);
/* Channel c's share of a whole count. */
occl_part_t occl_part_channel(const occl_plan_args_t *a, uint32_t c);
/* Channel c's share of block b, when count is split into `blocks`. Share c of block 0 is the largest of all share c. */
occl_part_t occl_part_block(const occl_plan_args_t *a, uint32_t blocks, uint32_t b, uint32_t c);

/*
 * Every planner's first line. True when nothing is left to plan: the movement is not the planner's (OCCL_ERR_UNSUPPORTED in
 * *status_p), or there is one rank only, whose plan is a local copy.
 */
int occl_plan_settled(const occl_plan_args_t *a, uint32_t moves, const char *algo, occl_plan_t **plan_p, occl_status_t *status_p);

/* Operands. */
occl_ref_t occl_at(uint32_t space, uint64_t off);
occl_ref_t occl_at_rank(uint32_t space, uint32_t rank, uint64_t off);

/* k = iter * per + base, in section sec of the program of whoever posts it. */
typedef struct occl_num {
    uint32_t sec, base, per;
} occl_num_t;

/* Flags of a step, added to what an emit call returned. */
void occl_wait(occl_plan_builder_t *b, occl_step_t *s, uint32_t wait, uint32_t peer, occl_num_t k);
void occl_post(occl_plan_builder_t *b, occl_step_t *s, uint32_t post, uint32_t peer, occl_num_t k);

/* Local or exposed data, no flags yet. */
occl_step_t *occl_emit_nop(occl_plan_builder_t *b, uint32_t c);
occl_step_t *occl_emit_copy(occl_plan_builder_t *b, uint32_t c, occl_ref_t src, occl_ref_t dst, uint64_t n);
occl_step_t *occl_emit_reduce(occl_plan_builder_t *b, uint32_t c, occl_ref_t src, occl_ref_t src2, occl_ref_t dst, uint64_t n);
/* dst = fold over all ranks: mine at `mine`, those of the others in XSEND at off. (s->stride: over so many, from rank 0 on) */
occl_step_t *occl_emit_fold_exposed(occl_plan_builder_t *b, uint32_t c, occl_ref_t mine, uint64_t off, occl_ref_t dst,
                                    uint64_t n);

/* Slots. send: src -> message k to peer (credit awaited). recv: message k of peer -> dst, credit given. */
void occl_emit_send(occl_plan_builder_t *b, uint32_t c, uint32_t peer, occl_num_t k, occl_ref_t src, uint64_t n);
void occl_emit_recv(occl_plan_builder_t *b, uint32_t c, uint32_t peer, occl_num_t k, occl_ref_t dst, uint64_t n);
/* dst = mine op message k of peer (`first`: message op mine). */
void occl_emit_recv_reduce(occl_plan_builder_t *b, uint32_t c, uint32_t peer, occl_num_t k, occl_ref_t mine, int first,
                           occl_ref_t dst, uint64_t n);
/* src + p * stride -> message k to every other rank p; and message k of every other rank p -> dst + p * stride. */
void occl_emit_spread(occl_plan_builder_t *b, uint32_t c, occl_num_t k, occl_ref_t src, uint64_t n, uint64_t stride);
void occl_emit_collect(occl_plan_builder_t *b, uint32_t c, occl_num_t k, occl_ref_t dst, uint64_t n, uint64_t stride);
/* dst = fold over all ranks in rank order: mine, and message k of every other rank. */
occl_step_t *occl_emit_fold(occl_plan_builder_t *b, uint32_t c, occl_num_t k, occl_ref_t mine, occl_ref_t dst, uint64_t n);

/* The closing section of an exposed plan, on all channels: all have made their last access, so the buffers are the user's again. */
void occl_emit_close(occl_plan_builder_t *b, uint32_t section);

#endif
