/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plan: what a collective is on one rank and one channel, as data. Planners (src/plan) write it once, the engine
 * (occl_dev_step.h) only reads it. It holds no address and no chunk size, so one plan serves every run of a coll.
 *
 * A program is a list of sections run one after the other. A section is a short straight list of steps, repeated `iters`
 * times: once for every chunk of its range. In iteration i a step handles the elements [i*chunk, i*chunk + chunk) of its own
 * [0, n), possibly none; an empty step still waits and posts, so that all ranks count alike.
 *
 * A step is: wait for flags; move data; post flags. It has no effect unless it returns OCCL_DONE.
 *
 * Two ways to move data:
 *   slots    the sender pushes into small slots that the receiver owns (own slots of the link, or larger ones from the
 *            receiver's pool, agreed at the gate). Needs no peer buffer, so it may run without a gate. Message number k of a
 *            run on a link uses slot k % nslots of the half (run number & 1); from k >= nslots on the sender waits for credit.
 *            All messages of a link are sent in one section and received in one, because k counts on through it.
 *   exposed  steps read and write peers' user buffers (XSEND, XRECV) whose addresses the gate has exchanged; SIG words order
 *            them. Every rank ends with "post SIG to all, wait for SIG of all", so no buffer is in use after completion.
 *
 * Flag values. Slot k of run r carries (r << 32 | k + 1). SIG words carry (r << 32 | section << 24 | k + 1), k within the
 * section, and only grow within a run; a wait is "at least". So nothing that an earlier run left behind, finished or failed,
 * can satisfy a wait of this run, and a run starts from known counters whatever happened before it.
 *
 * Run numbers wrap in the 32 bits that flags have for them, so "at least" is a signed difference, and once in 2^30 runs of a tag
 * the owner of a mailbox sets its words to that run's base before it opens the gate (src/core/run.c): no word is ever
 * more than 2^31 runs old.
 */
#ifndef OCCL_KERNELS_PLAN_H
#define OCCL_KERNELS_PLAN_H

#include "occl_dev.h"

/* Where an operand lies. Offsets are in elements, from the start of the space. */
enum {
    OCCL_SP_NONE = 0,
    OCCL_SP_SEND,     /* my send buffer; for IN_PLACE the host has set it to the right part of the receive buffer */
    OCCL_SP_RECV,     /* my receive buffer */
    OCCL_SP_SCRATCH,  /* my scratch: off counts chunks, not elements, and does not move with the iteration */
    OCCL_SP_XSEND,    /* the send buffer of `rank` (rank may be me) */
    OCCL_SP_XRECV,    /* the receive buffer of `rank` (rank may be me) */
    OCCL_SP_RXSLOT,   /* the slot that message wait_k of wait_peer came in (or of every peer: *_ALL operations) */
    OCCL_SP_TXSLOT    /* the slot that message post_k to post_peer goes to (or to every peer) */
};

enum {
    OCCL_STEP_NOP = 0,      /* flags only */
    OCCL_STEP_COPY,         /* dst = src */
    OCCL_STEP_REDUCE,       /* dst = src op src2, in this order */
    OCCL_STEP_REDUCE_ALL,   /* dst = fold over ranks 0..stride-1 in rank order: mine is src, those of the others are src2
                               (RXSLOT, or XSEND/XRECV at src2.off) */
    OCCL_STEP_SPREAD,       /* for every other rank p: TXSLOT(p) = src at off + p * stride */
    OCCL_STEP_COLLECT       /* for every other rank p: dst at off + p * stride = RXSLOT(p) */
};

enum {
    OCCL_WAIT_NONE = 0,
    OCCL_WAIT_SLOT,       /* message wait_k of wait_peer is here */
    OCCL_WAIT_SLOT_ALL,   /* ... of every other rank */
    OCCL_WAIT_CREDIT,     /* slot for message wait_k to wait_peer is free again */
    OCCL_WAIT_CREDIT_ALL,
    OCCL_WAIT_SIG,        /* SIG word of wait_peer has reached wait_k */
    OCCL_WAIT_SIG_ALL
};

enum {
    OCCL_POST_NONE = 0,
    OCCL_POST_SLOT,       /* publish message post_k to post_peer */
    OCCL_POST_SLOT_ALL,
    OCCL_POST_CREDIT,     /* tell post_peer that its message post_k is consumed */
    OCCL_POST_CREDIT_ALL,
    OCCL_POST_SIG,
    OCCL_POST_SIG_ALL
};

/*
 * A number that grows with the iteration: k = iter * per + base. `sec` is written into SIG flags; it names the section
 * of the *poster's* program, so that both sides agree (slots ignore it).
 */
typedef struct occl_kexpr {
    uint16_t sec, base, per;
} occl_kexpr_t;

typedef struct occl_ref {
    uint64_t off;    /* elements (SCRATCH: chunks) */
    uint32_t space;
    int32_t rank;    /* XSEND, XRECV: whose; -1, for a REDUCE_ALL into XRECV: everybody's; else unused */
} occl_ref_t;

typedef struct occl_step {
    uint8_t op, wait, post, pad;
    int32_t wait_peer, post_peer;
    occl_kexpr_t wait_k, post_k;
    occl_ref_t src, src2, dst;
    uint64_t n;       /* elements of this step over all iterations */
    uint64_t stride;  /* elements, for SPREAD and COLLECT; ranks, for REDUCE_ALL */
} occl_step_t;

typedef struct occl_section {
    uint32_t first, nsteps;
    uint64_t range;   /* the largest n of the same section on any rank: fixes iters = max(1, ceil(range / chunk)) */
} occl_section_t;

/* What the plan needs from the gate. */
enum {
    OCCL_PLAN_SLOTS = 1,       /* uses slots */
    OCCL_PLAN_EXPOSED = 2,     /* uses XSEND or XRECV: must be gated */
    OCCL_PLAN_HEARS_ALL = 4,   /* cannot finish before a message of every other rank has been checked */
    OCCL_PLAN_BULK = 8,        /* copies that wait for nothing, on every rank: a long chunk costs nobody anything */
    OCCL_PLAN_LONG = 16        /* the same of folds, unless some rank has SCRATCH */
};

/* One rank's plan. `prog[c]` is channel c's program. */
typedef struct occl_program {
    uint32_t nsections, nsteps;
    const occl_section_t *sections;
    const occl_step_t *steps;
} occl_program_t;

typedef struct occl_plan {
    uint32_t flags;
    uint32_t nchannels;
    uint32_t rank, nranks;
    uint32_t type, op;            /* element type and operation of the reduce steps; copies use elem_bytes */
    uint32_t elem_bytes;
    uint32_t scratch_chunks;      /* SCRATCH of each channel */
    uint64_t scale[4];            /* PREMUL: one element of the type */
    uint64_t bytes;               /* payload a rank, as the tuning table keys it */
    const occl_program_t *prog;   /* [nchannels] */
    const uint32_t *peers;        /* ranks that this rank exchanges flags with on any channel, ascending */
    uint32_t npeers;
    const char *algo;             /* name, for logs and dumps; host only */
} occl_plan_t;

#endif
