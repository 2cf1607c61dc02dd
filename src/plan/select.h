/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which planner a collective gets. The answer depends on its signature and on what the members have agreed at attach, never on
 * one rank's buffers, load or luck: so all ranks choose alike without a word, and results have the same bits every time.
 *
 * Rules are text, the first match wins:
 *
 *     COLLECTIVE:PLANNER[/slots|/exposed] [bytes=RANGE] [ranks=RANGE]
 *
 * separated by ; or , (or the end of the text). COLLECTIVE may be *. RANGE is HI or LO-HI, both included, with K, M, G (1024)
 * and inf. bytes is MPI's count argument in bytes (one block where the operation has blocks). A rule that the planner cannot
 * follow here (movement not possible, partials of narrow floats or of an op that needs all sources at once) does not match. Without /slots or /exposed the rule is
 * for both: exposed where that is allowed and the payload is large enough, else slots.
 */
#ifndef OCCL_SRC_PLAN_SELECT_H
#define OCCL_SRC_PLAN_SELECT_H

#include "plan.h"

typedef struct occl_select {
    /* signature */
    occl_collkind_t kind;
    uint32_t nranks, type, op, elem_bytes;
    uint64_t count;          /* as in occl_plan_args_t */
    int in_place;            /* of alltoall only, where all ranks must agree on it; ignored elsewhere */
    /* agreed at attach */
    int far;                 /* a device that loads and stores the peers' buffers as they stand */
    int exposed;             /* all members can reach each other's buffers */
    uint64_t eager_max;      /* OCCL_EAGER_MAX */
    uint64_t direct_min;     /* OCCL_DIRECT_MIN */
    uint32_t slot_data;      /* data bytes of one of a link's own slots */
    uint32_t nslots;         /* a link's own slots, of a half */
    uint32_t nchannels;      /* that the plan will be built with */
    const char *algo;        /* rules that go before the built-in ones: OCCL_ALGO; may be NULL or empty */
} occl_select_t;

typedef struct occl_choice {
    const occl_planner_t *planner;
    occl_movement_t move;
    int gated;               /* 0: slots, and everything fits the links' own slots: may start before its peers are known ready */
} occl_choice_t;

/* OCCL_ERR_ARG: `algo` is no list of rules. OCCL_ERR_UNSUPPORTED: no planner at all (not for any collective of the table). */
occl_status_t occl_plan_select(const occl_select_t *in, occl_choice_t *choice_p);

/* Are these rules? For attach: OCCL_ERR_ARG, and what is wrong in err. */
occl_status_t occl_plan_check_rules(const char *rules, char *err, size_t errlen);

/* The i-th built-in rule, or NULL. */
const char *occl_plan_rule(int i);
/* The same of the table that goes before it on a far device. */
const char *occl_plan_far_rule(int i);

#endif
