/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective, sizes from nothing to many chunks, several types, on both devices, against a reference written for being read. */
#include "emu.h"

typedef struct plan {
    uint64_t max_count;
    int rounds;
    int kinds;     /* only the first so many */
} plan_t;

/* All collectives at the sizes where something changes: empty, less than ranks, one slot, several slots, the pool, exposed. */
static void sizes_body(emu_rank_t *r)
{
    static const uint64_t counts[] = {0, 1, 3, 250, 1001, 5000, 40000};
    const plan_t *p = r->arg;
    for (int kind = 0; kind < (p->kinds ? p->kinds : OCCL_COLL_COUNT); kind++) {
        if (kind == OCCL_COLL_SENDRECV)
            continue;
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            for (int in_place = 0; in_place < 2; in_place++) {
                emu_op_t op;
                int root = (int)(i + (size_t)in_place) % r->size;
                if (counts[i] > p->max_count || (in_place && kind >= OCCL_COLL_NEIGHBOR_ALLGATHER))
                    continue;
                if (kind > OCCL_COLL_SENDRECV && (i + (size_t)kind) % 2 == 0 && i != 3)
                    continue; /* lengths of their own are enough variety */
                emu_op_init(&op, r->comm, 5, (occl_collkind_t)kind, OCCL_T_I32, OCCL_OP_SUM, root, counts[i], in_place);
                for (uint64_t k = 0; k < 3; k++) {
                    emu_op_fill(&op, k * 1000 + counts[i]);
                    emu_op_start(r, &op);
                    emu_op_wait(r, &op);
                }
                emu_op_fini(&op);
            }
        }
    }
}

static void types_body(emu_rank_t *r)
{
    const plan_t *p = r->arg;
    occl_rng_t shared;
    occl_rng_seed(&shared, 4711, 1);
    for (int i = 0; i < p->rounds; i++) {
        emu_op_t op;
        emu_op_random(&op, r->comm, i % 3, &shared, p->max_count);
        emu_op_fill(&op, (uint64_t)i);
        emu_op_start(r, &op);
        emu_op_wait(r, &op);
        emu_op_fini(&op);
    }
}

static void messages_body(emu_rank_t *r)
{
    for (uint64_t i = 0; i < 12; i++) {
        emu_op_t op[EMU_MAX_RANKS];
        /* Everybody sends to everybody's next one; the root is the source. */
        for (int src = 0; src < r->size; src++) {
            emu_op_init(&op[src], r->comm, 9, OCCL_COLL_SENDRECV, OCCL_T_I32, 0, src, i * i * i * 20, 0);
            emu_op_fill(&op[src], i);
        }
        for (int k = 0; k < r->size; k++) {
            int src = (k + r->rank) % r->size;
            if (src == r->rank || (src + 1) % r->size == r->rank)
                emu_op_start(r, &op[src]);
        }
        for (int src = 0; src < r->size; src++) {
            emu_op_wait(r, &op[src]);
            emu_op_fini(&op[src]);
        }
    }
}

/* A block with another length at its two ends: all members learn which, nothing is moved, and the tag goes on. */
static void unequal_body(emu_rank_t *r)
{
    static const occl_collkind_t kinds[] = {OCCL_COLL_GATHERV, OCCL_COLL_SCATTERV, OCCL_COLL_ALLTOALLV, OCCL_COLL_ALLTOALLW,
                                            OCCL_COLL_NEIGHBOR_ALLTOALLV, OCCL_COLL_ALLGATHERV, OCCL_COLL_REDUCE_SCATTER};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        for (int wrong = 0; wrong < 3; wrong++) {
            emu_op_t op;
            occl_block_t *b;
            emu_op_init(&op, r->comm, 4, kinds[i], OCCL_T_I32, OCCL_OP_SUM, 0, 700, 0);
            b = (occl_block_t *)op.args.recvs;
            /* Rank 0 thinks that rank 1 sends it, or gets, one element less or none; or both are right. */
            if (r->rank == 0 && wrong) {
                if (kinds[i] == OCCL_COLL_SCATTERV)
                    b = (occl_block_t *)op.args.sends;
                for (uint32_t k = 0; k < (kinds[i] == OCCL_COLL_SCATTERV ? op.args.nsends : op.args.nrecvs); k++)
                    if (kinds[i] == OCCL_COLL_REDUCE_SCATTER ? k == 1 : b[k].peer == 1)
                        b[k].n = wrong == 1 && b[k].n ? b[k].n - 1 : b[k].n ? 0 : 4;
            }
            emu_op_fill(&op, (uint64_t)wrong);
            emu_op_start(r, &op);
            if (!wrong) {
                emu_op_wait(r, &op);
            } else {
                occl_status_t s = emu_op_outcome(r, &op);
                const char *text = op.coll ? occl_coll_error(op.coll) : "";
                emu_check(r, s == OCCL_ERR_MISMATCH && (strstr(text, "sends rank 0") || strstr(text, "sends rank 1") ||
                                                         (i > 4 && strstr(text, "count ")) /* not all are known yet */), "%s: %s: %s",
                          occl_coll_name(kinds[i]), occl_status_name(s), text);
            }
            emu_op_fini(&op);
        }
}

static const char from_buffer_to_buffer[] = "OCCL_DIRECT_MIN=0 OCCL_CHUNK=4K OCCL_ALGO=*:direct/exposed;*:twoshot/exposed;*:push/exposed;*:exchange/exposed";

static const char *const through_slots[] = {
    "OCCL_CMA=0 OCCL_ALGO=*:direct/slots;*:twoshot/slots;*:dissemination OCCL_EMU_LANES=2 OCCL_EMU_CHAOS=7",
    "OCCL_CMA=0 OCCL_ALGO=*:oneshot/slots OCCL_POOL_MAX=0 OCCL_EMU_LANES=1",
    "OCCL_CMA=0 OCCL_ALGO=*:ring/slots;*:tree/slots;*:pairwise/slots;*:chain/slots OCCL_POOL_MAX=0 OCCL_EMU_LANES=2 OCCL_EMU_CHAOS=9",
    "OCCL_CMA=0 OCCL_ALGO=*:twoshot/slots;*:direct/slots OCCL_MAX_CHANNELS=3 OCCL_POOL_MAX=0 OCCL_EMU_LANES=1 OCCL_EMU_CHAOS=11",
};

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    plan_t big = {40000, 60, 0}, small = {5000, 60, 0}, others = {5000, 0, OCCL_COLL_GATHERV};
    for (int d = 0; d < 2; d++) {
        for (int n = 1; n <= 4; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d], .arg = &big, .deadline = 12}, sizes_body,
                    "%s, %d ranks: every collective gives the reference's result at every size", name[d], n);
        emu_run(&(emu_conf_t){.ranks = 8, .device = devices[d], .arg = &small, .deadline = 12, .env = "OCCL_EMU_LANES=2"},
                sizes_body, "%s, 8 ranks: every collective gives the reference's result", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .arg = &big, .env = "OCCL_CMA=0 OCCL_POOL_MAX=0"}, sizes_body,
                "%s, 3 ranks: through a link's own slots alone", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .arg = &big, .env = "OCCL_CMA=0"}, types_body,
                "%s, 4 ranks: random types and operations through slots and pool", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .arg = &big, .env = from_buffer_to_buffer}, types_body,
                "%s, 4 ranks: random types and operations from buffer to buffer", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .arg = &small, .env = from_buffer_to_buffer}, sizes_body,
                "%s, 3 ranks: every collective from buffer to buffer", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_EMU_CHAOS=3"}, unequal_body,
                "%s, 3 ranks: a block of two lengths fails on all, which are told which it is", name[d]);
        for (int n = 2; n <= 4; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d]}, messages_body, "%s, %d ranks: messages arrive", name[d], n);
    }
    /* One slot a half, as a device with memory of its own has: every plan through slots takes its turns all the same. */
    occl_emu_nslots = 1;
    for (int d = 0; d < 2; d++)
        for (int n = d ? 2 : 3; n <= 3 + d; n++)
            for (size_t i = 0; i < sizeof(through_slots) / sizeof(*through_slots); i++)
                emu_run(&(emu_conf_t){.ranks = n, .device = devices[d], .arg = i % 3 == 0 ? &small : &others, .env = through_slots[i],
                                      .deadline = 12}, sizes_body,
                        "%s, %d ranks, one slot a half: %s", name[d], n, through_slots[i]);
    occl_emu_nslots = 0;
    return tap_done();
}
