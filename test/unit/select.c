/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of planners: rules as text, and what may start before its peers are known to be ready. */
#include <stdio.h>
#include <string.h>

#include "plan/select.h"
#include "tap.h"

static occl_select_t basic(occl_collkind_t kind, uint64_t count, uint32_t nranks)
{
    return (occl_select_t){.kind = kind, .nranks = nranks, .type = OCCL_T_F32, .elem_bytes = 4, .count = count, .exposed = 1,
                           .eager_max = 4096, .direct_min = 32768, .slot_data = 1024 - 16, .nslots = 4, .nchannels = 1};
}

static const char *name(const occl_select_t *in)
{
    static char text[64];
    occl_choice_t c;
    if (occl_plan_select(in, &c) != OCCL_OK)
        return "none";
    snprintf(text, sizeof text, "%s/%s%s", c.planner->name, c.move == OCCL_MOVE_SLOTS ? "slots" : "exposed",
             c.gated ? "" : " eager");
    return text;
}

/* Every collective, size, number of ranks and movement finds a planner that then builds. */
static void check_complete(void)
{
    static const uint32_t types[] = {OCCL_T_F32, OCCL_T_BF16, OCCL_T_FLD, OCCL_T_E4M3, OCCL_T_F64};
    static const uint32_t bytes[] = {4, 2, 16, 1, 8};
    uint64_t made = 0, bad = 0, narrow = 0, whole = 0;
    for (uint32_t kind = 0; kind < OCCL_COLL_COUNT; kind++)
        for (uint32_t n = 1; n <= 130; n = n < 9 ? n + 1 : n * 2 - 1)
            for (uint64_t count = 0; count < 1u << 26; count = count ? count * 16 : 1)
                for (int v = 0; v < 20; v++) {
                    occl_select_t in = basic((occl_collkind_t)kind, count, n);
                    occl_choice_t c;
                    in.exposed = v & 1;
                    in.in_place = v >> 1 & 1;
                    in.type = types[v >> 2];
                    in.elem_bytes = bytes[v >> 2];
                    in.op = in.type == OCCL_T_F64 ? OCCL_OP_AVG : OCCL_OP_SUM;
                    if (kind == OCCL_COLL_SENDRECV && n > 2)
                        continue;
                    if (occl_plan_select(&in, &c) != OCCL_OK) {
                        if (!bad++)
                            diag("%s, %u ranks, count %llu: none", occl_coll_name(kind), n, (unsigned long long)count);
                        continue;
                    }
                    narrow += (in.type == OCCL_T_BF16 || in.type == OCCL_T_E4M3) && c.planner->partials;
                    whole += in.op == OCCL_OP_AVG && c.planner->partials;
                    static occl_block_t parts[256]; /* of a reduce_scatter */
                    for (uint32_t p = 0; p < n; p++)
                        parts[p] = (occl_block_t){.peer = (int32_t)p, .at = p * count, .n = count};
                    occl_plan_args_t a = {.kind = (occl_collkind_t)kind, .move = c.move, .rank = n - 1, .nranks = n,
                                          .recvs = parts, .nrecvs = kind == OCCL_COLL_REDUCE_SCATTER ? n : 0,
                                          .count = count, .type = in.type, .op = OCCL_OP_SUM, .elem_bytes = in.elem_bytes,
                                          .in_place = kind == OCCL_COLL_ALLTOALL ? (uint32_t)in.in_place : 0, .nchannels = 1};
                    occl_plan_t *plan = NULL;
                    if (c.planner->kind != kind || c.planner->build(&a, &plan) != OCCL_OK)
                        bad++;
                    occl_plan_free(plan);
                    made++;
                }
    ok(bad == 0 && made > 1000, "every collective of every size finds a planner, and it builds (%llu)", (unsigned long long)made);
    ok(narrow == 0, "floats of 8 and 16 bits are never stored half way");
    ok(whole == 0, "an average has all its sources in one fold");
}

/* All messages of an eager plan really fit the slots. */
static void check_eager(void)
{
    uint64_t eager = 0, bad = 0;
    for (uint32_t kind = 0; kind < OCCL_COLL_REDUCE_SCATTER; kind++)
        for (uint32_t n = 2; n <= 9; n++)
            for (uint64_t count = 0; count < 3000; count += 1 + count / 5)
                for (uint32_t nch = 1; nch <= 3; nch++)
                    for (int i = 0; occl_planners[i]; i++) {
                        occl_select_t in = basic((occl_collkind_t)kind, count, n);
                        char algo[64];
                        occl_choice_t c;
                        if (occl_planners[i]->kind != kind || kind == OCCL_COLL_SENDRECV ||
                            !(occl_planners[i]->moves & 1u << OCCL_MOVE_SLOTS))
                            continue;
                        snprintf(algo, sizeof algo, "%s:%s/slots", occl_coll_name(kind), occl_planners[i]->name);
                        in.algo = algo;
                        in.nchannels = nch;
                        if (occl_plan_select(&in, &c) != OCCL_OK || c.gated)
                            continue;
                        for (uint32_t r = 0; r < n; r++) {
                            occl_plan_args_t a = {.kind = (occl_collkind_t)kind, .move = c.move, .rank = r, .nranks = n,
                                                  .count = count, .type = in.type, .op = OCCL_OP_SUM, .elem_bytes = 4,
                                                  .nchannels = nch};
                            occl_plan_t *plan = NULL;
                            if (c.planner->build(&a, &plan) != OCCL_OK) {
                                bad++;
                                continue;
                            }
                            for (uint32_t ch = 0; ch < nch; ch++) {
                                const occl_section_t *sec = &plan->prog[ch].sections[0];
                                uint64_t chunk = in.slot_data / 4, last = sec->range ? (sec->range - 1) / chunk : 0;
                                for (uint32_t j = 0; j < plan->prog[ch].nsteps; j++) {
                                    const occl_step_t *s = &plan->prog[ch].steps[j];
                                    if (s->post == OCCL_POST_SLOT || s->post == OCCL_POST_SLOT_ALL)
                                        bad += last * s->post_k.per + s->post_k.base >= in.nslots;
                                }
                            }
                            occl_plan_free(plan);
                            eager++;
                        }
                    }
    ok(bad == 0 && eager > 1000, "what starts without a gate never needs credit (%llu plans)", (unsigned long long)eager);
}

static void check_rules(void)
{
    static const char *const good[] = {"", " ; ", "allreduce:ring", "allreduce:ring,bcast:tree", "* : direct"};
    static const struct {
        const char *rules, *why;
    } wrong[] = {
        {"allreduce", "':' is missing"}, {"allreduce:", "no such algorithm"}, {"allreduce:pairwise", "no such algorithm"},
        {"alreduce:ring", "no such collective"}, {"allreduce:ring/fast", "neither slots nor exposed"},
        {"allreduce:ring bytes=", "a number is missing"}, {"allreduce:ring bytes=8-4", "the range is empty"},
        {"allreduce:ring size=4", "neither bytes= nor ranks="}, {"allreduce:ring bytes=99999999999999999999", "too large"},
        {"allreduce:ring bytes=99999999999G", "too large"},
        {"allreduce:ring; bcast:tree x", "neither bytes= nor ranks="}};
    char err[128] = "";
    occl_select_t in = basic(OCCL_COLL_ALLREDUCE, 100, 4);

    for (size_t i = 0; i < 4; i++)
        ok(occl_plan_check_rules(good[i], err, sizeof err) == OCCL_OK, "\"%s\" is a list of rules", good[i]);
    ok(occl_plan_check_rules(NULL, err, sizeof err) == OCCL_OK, "no text is no rule");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err[0] = 0;
        if (!ok(occl_plan_check_rules(wrong[i].rules, err, sizeof err) == OCCL_ERR_ARG && strstr(err, wrong[i].why),
                "\"%s\" is refused with the reason", wrong[i].rules))
            diag("%s", err);
    }
    for (int i = 0; occl_plan_rule(i); i++)
        if (occl_plan_check_rules(occl_plan_rule(i), err, sizeof err) != OCCL_OK)
            ok(0, "built-in rule %d: %s", i, err);

    in.algo = "allreduce:ring";
    is_str(name(&in), "ring/slots", "a forced algorithm is taken");
    in.count = 200000;
    is_str(name(&in), "ring/exposed", "over exposed buffers where they are allowed and it pays");
    in.algo = "allreduce:ring/slots";
    is_str(name(&in), "ring/slots", "unless the rule says slots");
    in.type = OCCL_T_F16;
    in.elem_bytes = 2;
    is_str(name(&in), "twoshot/exposed", "a rule that would round 16-bit floats half way is passed over");
    in = basic(OCCL_COLL_ALLREDUCE, 100, 4);
    in.algo = "allreduce:ring bytes=500-inf; allreduce:twoshot ranks=8-inf; *:oneshot";
    is_str(name(&in), "oneshot/slots eager", "rules are tried in order, with their ranges");
    in.count = 125;
    is_str(name(&in), "ring/slots", "and the bounds of a range belong to it");
    in.algo = "bcast:tree";
    is_str(name(&in), "oneshot/slots eager", "rules for other collectives do not matter");
    in.algo = "nonsense";
    is_str(name(&in), "none", "what is no rule is an error");
}

static void check_choices(void)
{
    occl_select_t in = basic(OCCL_COLL_ALLREDUCE, 2, 4);
    is_str(name(&in), "oneshot/slots eager", "8 bytes: one shot at once");
    in.count = 1u << 20;
    is_str(name(&in), "twoshot/exposed", "4 MiB: two shots over the users' buffers");
    in.exposed = 0;
    is_str(name(&in), "twoshot/slots", "or over slots, behind the gate");
    in = basic(OCCL_COLL_ALLREDUCE, 64 << 10, 4);
    is_str(name(&in), "twoshot/slots", "256 KiB of few ranks: what fits a pool's slots goes through them");
    in.count++;
    is_str(name(&in), "twoshot/exposed", "and not a byte more");
    in.count--;
    in.nranks = 5;
    is_str(name(&in), "twoshot/exposed", "of more ranks the pool would not last");
    in = basic(OCCL_COLL_ALLREDUCE, 2, 4);
    in.eager_max = 0;
    is_str(name(&in), "oneshot/slots", "OCCL_EAGER_MAX=0: everything with data is gated");
    in = basic(OCCL_COLL_ALLREDUCE, 2, 4);
    in.elem_bytes = 2048;
    in.eager_max = 1 << 20;
    is_str(name(&in), "oneshot/slots", "an element larger than a slot is not eager");
    in = basic(OCCL_COLL_ALLTOALL, 1u << 20, 4);
    is_str(name(&in), "direct/exposed", "alltoall of large blocks pulls");
    in.in_place = 1;
    is_str(name(&in), "pairwise/slots", "in place it exchanges through slots");
    in = basic(OCCL_COLL_BARRIER, 0, 4);
    is_str(name(&in), "oneshot/slots eager", "a barrier of few");
    in.nranks = 1000;
    is_str(name(&in), "dissemination/slots eager", "a barrier of many");
    in.kind = OCCL_COLL_COUNT;
    is_str(name(&in), "none", "an unknown collective is an error");
}

int main(void)
{
    check_rules();
    check_choices();
    check_complete();
    check_eager();
    return tap_done();
}
