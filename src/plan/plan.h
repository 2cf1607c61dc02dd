/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Planners: pure index arithmetic. A planner takes what is known at registration and emits one rank's program per channel. It
 * never sees an address, a flag value or a peer's state. One file an algorithm; adding one touches no other layer.
 */
#ifndef OCCL_SRC_PLAN_PLAN_H
#define OCCL_SRC_PLAN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "../../kernels/occl_dev_plan.h"
#include "../../kernels/occl_dev_types.h"
#include "../util/status.h"

/* X(id, number, name) */
#define OCCL_COLL_TABLE(X)                     \
    X(BARRIER, 0, "barrier")                   \
    X(BCAST, 1, "bcast")                       \
    X(REDUCE, 2, "reduce")                     \
    X(ALLREDUCE, 3, "allreduce")               \
    X(GATHER, 4, "gather")                     \
    X(SCATTER, 5, "scatter")                   \
    X(ALLGATHER, 6, "allgather")               \
    X(REDUCE_SCATTER_BLOCK, 7, "reduce_scatter_block") \
    X(ALLTOALL, 8, "alltoall")                 \
    X(SENDRECV, 9, "sendrecv") /* one message from rank 0 to rank 1 of a pair */ \
    X(SCAN, 10, "scan")                        \
    X(EXSCAN, 11, "exscan")                    \
    X(REDUCE_SCATTER, 12, "reduce_scatter")    \
    X(GATHERV, 13, "gatherv") /* from here on: exchanges (occl_coll_exchanges) */ \
    X(SCATTERV, 14, "scatterv")                \
    X(ALLGATHERV, 15, "allgatherv")            \
    X(ALLTOALLV, 16, "alltoallv")              \
    X(ALLTOALLW, 17, "alltoallw")              \
    X(NEIGHBOR_ALLGATHER, 18, "neighbor_allgather") \
    X(NEIGHBOR_ALLGATHERV, 19, "neighbor_allgatherv") \
    X(NEIGHBOR_ALLTOALL, 20, "neighbor_alltoall") \
    X(NEIGHBOR_ALLTOALLV, 21, "neighbor_alltoallv") \
    X(NEIGHBOR_ALLTOALLW, 22, "neighbor_alltoallw")

typedef enum occl_collkind {
#define X(id, number, name) OCCL_COLL_##id = number,
    OCCL_COLL_TABLE(X)
#undef X
    OCCL_COLL_COUNT
} occl_collkind_t;

const char *occl_coll_name(uint32_t kind);

/*
 * An exchange: each rank has a list of blocks that it sends and one of blocks that it receives, and knows no more. The m-th block that
 * i sends to j is the m-th that j receives from i; both say the same length. Units are bytes. The rest is copies, so one planner
 * (exchange.c) serves all of them.
 */
static inline int occl_coll_exchanges(uint32_t kind) { return kind >= OCCL_COLL_GATHERV; }
/* In place blocks are exchanged within RECV: only where all are, and through slots. */
static inline int occl_coll_swaps(uint32_t kind, uint32_t in_place)
{
    return in_place && (kind == OCCL_COLL_ALLTOALL || kind == OCCL_COLL_ALLTOALLV || kind == OCCL_COLL_ALLTOALLW);
}
/* Exchanges in which every rank knows every length, so that all may choose before they have heard of each other */
static inline int occl_coll_known(uint32_t kind) { return kind == OCCL_COLL_ALLGATHERV; }

/* A block of a rank's buffer: n elements (exchanges: bytes) at `at` from its start, which go to `peer` or come from it. */
typedef struct occl_block {
    int32_t peer;
    uint32_t type;    /* what must be the same at the other end, when n > 0; planners ignore it */
    uint64_t at, n;
} occl_block_t;

/* How data move. SLOTS plans run over link slots of any size; EXPOSED plans over peers' user buffers. */
typedef enum occl_movement { OCCL_MOVE_SLOTS, OCCL_MOVE_EXPOSED } occl_movement_t;

/*
 * What a plan depends on. `count` is MPI's: elements per rank and per block (for reduce_scatter_block, gather, scatter,
 * allgather and alltoall the size of one block; for bcast, reduce and allreduce the whole vector).
 *
 * Buffers of the spaces: SEND holds count elements (alltoall, scatter root, reduce_scatter_block: nranks * count);
 * RECV holds count (allgather, gather root, alltoall: nranks * count). bcast uses RECV on every rank, the root's too.
 * in_place (MPI_IN_PLACE):
 *   allreduce, reduce root   SEND == RECV; nothing to change
 *   reduce_scatter_block     SEND == RECV (nranks * count); the result goes to RECV[0 .. count)
 *   allgather, gather root   SEND is unused; my block already stands at RECV[rank * count]; XSEND of me is unused: peers must be
 *                            pointed at XRECV(rank) + rank * count instead. Whether ONE rank is in place is not known to the others,
 *                            so the host sets XSEND(rank) to that address: plans always read XSEND(p).off 0
 *   scatter root             RECV is unused on the root (no own copy)
 *   alltoall                 SEND is unused; blocks are exchanged within RECV through scratch or slots (EXPOSED is refused:
 *                            the selection falls back to SLOTS, whose messages are all read before they are overwritten)
 *   scan, exscan             SEND == RECV
 *   reduce_scatter           SEND == RECV; the result goes to RECV[0 .. n of my block)
 *
 * scan, exscan: count is the whole vector's; exscan leaves RECV of rank 0 alone.
 * reduce_scatter: `recvs` are the nranks blocks of the vector, of any length, one after the other; count is the whole vector's.
 *   The choice goes by the longest block.
 * Exchanges: elem_bytes is 1; count is what the choice goes by, an average block. XSEND(p) and XRECV(p) at 0 are the block that p
 *   sends me, or receives from me. in_place: alltoallv and alltoallw send from RECV, and `sends` are there; the others have
 *   no block of mine for myself in `sends`, and allgatherv sends from where its block lies, which the host calls SEND.
 */
typedef struct occl_plan_args {
    occl_collkind_t kind;
    occl_movement_t move;
    uint32_t rank, nranks;
    uint32_t root;
    uint64_t count;
    uint32_t type, op;
    uint32_t elem_bytes;
    uint32_t in_place;
    uint32_t nchannels;
    uint32_t nsends, nrecvs;
    const occl_block_t *sends, *recvs;
    uint64_t least;     /* exchanges: so many elements fit one message of SLOTS, whatever slots a run gets */
    uint64_t scale[4];        /* of the op PREMUL: one element of the type */
} occl_plan_args_t;

typedef struct occl_planner {
    const char *name;         /* "oneshot", "twoshot", "ring", "tree", "pairwise", "direct", "dissemination", "push" */
    occl_collkind_t kind;
    uint32_t moves;           /* bit set of 1 << occl_movement_t */
    uint32_t partials;        /* 1: intermediate results are stored in the element type at several ranks, so that 8- and 16-bit
                                 floats would be rounded on the way: refused for them, and for ops that need all sources at once */
    /*
     * Writes *plan_p only on success. OCCL_ERR_UNSUPPORTED: this planner cannot do these arguments.
     * The plan is one allocation: free with occl_plan_free.
     */
    occl_status_t (*build)(const occl_plan_args_t *args, occl_plan_t **plan_p);
    /*
     * SLOTS form: an upper bound, the same on every rank, of the messages that one chunk sends over one link, msgs + ring_msgs *
     * (nranks - 1); split: each message carries a part of 1/nranks of count. The selection needs no plan to know what
     * fits a link.
     */
    uint32_t msgs, ring_msgs, split;
} occl_planner_t;

extern const occl_planner_t *const occl_planners[]; /* NULL-terminated */
const occl_planner_t *occl_planner_find(occl_collkind_t kind, const char *name);

/*
 * Largest number of elements that one message of a SLOTS plan carries is the run's chunk, set by whoever submits the run:
 * slot capacity / elem_bytes. EXPOSED plans: OCCL_CHUNK / elem_bytes.
 */
void occl_plan_free(occl_plan_t *plan);

/* For devices with memory of their own: how large a plan is with all that it points to, and a copy of it in `image` whose
 * pointers are right once it lies at address `at`. */
size_t occl_plan_size(const occl_plan_t *plan);
void occl_plan_image(const occl_plan_t *plan, uint64_t at, void *image);

/* MPI's count in bytes: what rules call bytes. */
uint64_t occl_plan_bytes(const occl_plan_args_t *args);
/* Do the flag numbers of the plan's last iteration fit their words when a chunk has so many elements? */
int occl_plan_fits(const occl_plan_t *plan, uint64_t chunk);
/*
 * May the messages be data-with-flag words (occl_dev_run_t.words)? All ranks answer alike. Only when none is sent a second time
 * through the same slot, every message fits its slot as words, and all that a step waits for fits `stage` bytes.
 */
int occl_plan_words(const occl_planner_t *planner, const occl_plan_t *plan, uint64_t chunk, uint32_t slot_bytes, uint32_t nslots,
                    uint64_t stage);
/* The plan as text, a line a step, for dumps. */
void occl_plan_print(const occl_plan_t *plan, void (*put)(void *state, const char *line), void *state);

/* Part b of `parts` of n elements, as equal as can be: [*lo_p, *hi_p). The first n % parts ones have one element more. */
void occl_plan_split(uint64_t n, uint32_t parts, uint32_t b, uint64_t *lo_p, uint64_t *hi_p);

/*
 * Builder that planners use: append steps to a channel's open section. Nothing here fails at once: after a failure (memory, a
 * flag number that does not fit) steps go nowhere, and occl_plan_end says what happened.
 */
typedef struct occl_plan_builder occl_plan_builder_t;
occl_plan_builder_t *occl_plan_begin(const occl_plan_args_t *args, uint32_t flags, const char *algo);
/* The planner sees to it that the messages of each link are sent in one section: with SLOTS there may be several. */
void occl_plan_links_apart(occl_plan_builder_t *b);
void occl_plan_section(occl_plan_builder_t *b, uint32_t channel, uint64_t range); /* opens the next section */
occl_step_t *occl_plan_step(occl_plan_builder_t *b, uint32_t channel);            /* zeroed; never NULL */
void occl_plan_scratch(occl_plan_builder_t *b, uint32_t chunks);                  /* of each channel */
void occl_plan_fail(occl_plan_builder_t *b, occl_status_t why);
occl_status_t occl_plan_end(occl_plan_builder_t *b, occl_plan_t **plan_p);        /* consumes b; computes peers */

#endif
