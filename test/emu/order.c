/* SPDX-License-Identifier: BSD-3-Clause */
/* Promise 1: whatever order each rank starts and waits in, everything completes, with the bits of the ordered run. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void shuffle_or_not(emu_rank_t *r, int *v, int n, int random)
{
    for (int i = 0; i < n; i++)
        v[i] = i;
    if (random)
        occl_rng_shuffle(&r->rng, v, (size_t)n);
}

/* --- 001: two communicators, one rank the other way round --------------------------------------------------------- */

static void reversed_body(emu_rank_t *r)
{
    occl_comm_t *c[2] = {r->comm, NULL};
    int all[EMU_MAX_RANKS];
    emu_op_t op[2];
    for (int i = 0; i < r->size; i++)
        all[i] = i;
    c[1] = emu_attach(r, all, r->size, "second");
    for (int i = 0; i < 2; i++)
        emu_op_init(&op[i], c[i], 1, OCCL_COLL_ALLREDUCE, OCCL_T_F32, OCCL_OP_SUM, 0, 3000, 0);
    for (uint64_t k = 0; k < 30; k++) {
        int first = (r->rank + (int)k) & 1;
        emu_op_fill(&op[0], k);
        emu_op_fill(&op[1], k + 1000);
        emu_op_start(r, &op[first]);
        /* Neither needs the other to be waited for first, nor to have been started. */
        if (k % 3 == 0)
            emu_dawdle(r, 300000);
        emu_op_start(r, &op[!first]);
        emu_op_wait(r, &op[k % 2 ? first : !first]);
        emu_op_wait(r, &op[k % 2 ? !first : first]);
    }
    for (int i = 0; i < 2; i++)
        emu_op_fini(&op[i]);
    emu_detach(c[1]);
}

/* --- 002: a ring of overlapping pairs ------------------------------------------------------------------------------ */

static void ring_body(emu_rank_t *r)
{
    static const occl_collkind_t kinds[] = {OCCL_COLL_ALLREDUCE, OCCL_COLL_BARRIER, OCCL_COLL_ALLGATHER, OCCL_COLL_BCAST,
                                            OCCL_COLL_ALLTOALL, OCCL_COLL_REDUCE_SCATTER_BLOCK, OCCL_COLL_GATHER};
    int n = r->size, mine[2];
    occl_comm_t *c[2] = {NULL, NULL};
    emu_op_t op[7][2];
    /* Communicator i has the ranks i and i + 1. I am in number rank - 1 and number rank. */
    mine[0] = (r->rank + n - 1) % n;
    mine[1] = r->rank;
    for (int i = 0; i < n; i++) {
        int a = i, b = (i + 1) % n, pair[2] = {a < b ? a : b, a < b ? b : a};
        char name[16];
        (void)snprintf(name, sizeof(name), "pair%d", i);
        for (int k = 0; k < 2; k++)
            if (mine[k] == i)
                c[k] = emu_attach(r, pair, 2, name);
    }
    for (int q = 0; q < 7; q++)
        for (int k = 0; k < 2; k++)
            emu_op_init(&op[q][k], c[k], q, kinds[q], OCCL_T_I32, OCCL_OP_SUM, 0, q % 2 ? 10 : 2000, 0);
    /* Bit `rank` of the pattern says which of its two this rank starts first, and which it waits for first. */
    for (uint32_t start = 0; start < 1u << n; start++) {
        for (uint32_t wait = 0; wait < 1u << n; wait++) {
            int q = (int)((start * 31 + wait) % 7), s = (int)(start >> r->rank & 1), w = (int)(wait >> r->rank & 1);
            if (n == 5 && (start ^ wait) % 3) /* a third of the 1024 */
                continue;
            emu_op_fill(&op[q][0], start * 64 + wait);
            emu_op_fill(&op[q][1], start * 64 + wait);
            emu_op_start(r, &op[q][s]);
            emu_op_start(r, &op[q][!s]);
            emu_op_wait(r, &op[q][w]);
            emu_op_wait(r, &op[q][!w]);
        }
    }
    for (int q = 0; q < 7; q++)
        for (int k = 0; k < 2; k++)
            emu_op_fini(&op[q][k]);
    emu_detach(c[0]);
    emu_detach(c[1]);
}

/* --- 004: rows and columns with a device synchronise in between ---------------------------------------------------- */

static void grid_body(emu_rank_t *r)
{
    int row = r->rank / 2, col = r->rank % 2, rows[2] = {row * 2, row * 2 + 1}, cols[2] = {col, col + 2};
    occl_comm_t *rc, *cc;
    emu_op_t a, b;
    uint64_t worst = 0, t;
    rc = emu_attach(r, rows, 2, row ? "row1" : "row0");
    cc = emu_attach(r, cols, 2, col ? "col1" : "col0");
    emu_op_init(&a, rc, 0, OCCL_COLL_ALLTOALL, OCCL_T_I32, 0, 0, 300, 0);
    emu_op_init(&b, cc, 0, OCCL_COLL_ALLREDUCE, OCCL_T_F32, OCCL_OP_SUM, 0, 300, 0);
    for (uint64_t k = 0; k < 25; k++) {
        emu_op_t *first = r->rank == 3 ? &b : &a, *second = r->rank == 3 ? &a : &b;
        emu_op_fill(&a, k);
        emu_op_fill(&b, k);
        emu_op_start(r, first);
        t = occl_emu_synchronize(emu_dev(r));
        worst = t > worst ? t : worst;
        emu_op_start(r, second);
        emu_op_wait(r, second);
        emu_op_wait(r, first);
    }
    emu_check(r, (double)worst < 0.05e9 * tap_slack(), "a device synchronise took %.1f ms", (double)worst / 1e6);
    emu_op_fini(&a);
    emu_op_fini(&b);
    emu_detach(rc);
    emu_detach(cc);
}

/* --- 006: pairs of messages beside an all-reduce ------------------------------------------------------------------- */

static void messages_body(emu_rank_t *r)
{
    enum { MANY = 60 };
    emu_op_t *op = calloc(3 * MANY, sizeof(*op));
    int order[3 * MANY], right = (r->rank + 1) % r->size, left = (r->rank + r->size - 1) % r->size;
    (void)right;
    for (int i = 0; i < MANY; i++) {
        emu_op_init(&op[i], r->comm, 10 + i, OCCL_COLL_SENDRECV, OCCL_T_I32, 0, r->rank, (uint64_t)i * 40, 0);
        emu_op_init(&op[MANY + i], r->comm, 10 + i, OCCL_COLL_SENDRECV, OCCL_T_I32, 0, left, (uint64_t)i * 40, 0);
        emu_op_init(&op[2 * MANY + i], r->comm, 10 + i, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, (uint64_t)i * 40, 0);
    }
    for (int i = 0; i < 3 * MANY; i++)
        emu_op_fill(&op[i], (uint64_t)(i % MANY));
    shuffle_or_not(r, order, 3 * MANY, 1);
    for (int i = 0; i < 3 * MANY; i++)
        emu_op_start(r, &op[order[i]]);
    shuffle_or_not(r, order, 3 * MANY, 1);
    for (int i = 0; i < 3 * MANY; i++) {
        emu_op_wait(r, &op[order[i]]);
        emu_op_fini(&op[order[i]]);
    }
    free(op);
}

/* --- 007, 013: threads --------------------------------------------------------------------------------------------- */

static void thread_body(emu_rank_t *t)
{
    const int *rounds = t->arg;
    emu_op_t op;
    emu_op_init(&op, t->comm, t->thread, t->thread % 2 ? OCCL_COLL_GATHER : OCCL_COLL_ALLGATHER, OCCL_T_I64, 0, 0,
                t->thread == 2 ? 0 : 37 << t->thread, 0);
    for (int k = 0; k < *rounds; k++) {
        emu_op_fill(&op, (uint64_t)k);
        emu_op_start(t, &op);
        if (t->thread < 2)
            emu_dawdle(t, 100000);
        emu_op_wait(t, &op);
    }
    emu_op_fini(&op);
}

static void threads2_body(emu_rank_t *r) { emu_threads(r, 2, thread_body); }
static void threads6_body(emu_rank_t *r) { emu_threads(r, 6, thread_body); }

/* --- OCCL's stress, made harder ------------------------------------------------------------------------------------ */

typedef struct stress {
    int colls, iters, comms, random, mixed, device_sync;
    uint64_t max_count;
    float *out[EMU_MAX_RANKS]; /* results in floats, for comparing bits */
} stress_t;

/* Sub-communicators that overlap: all, the even ones and the odd ones, halves, all but one. */
static int attach_many(emu_rank_t *r, int want, occl_comm_t **c)
{
    int n = 0;
    c[n++] = r->comm;
    for (int g = 1; g < want; g++) {
        int list[EMU_MAX_RANKS], k = 0, in = 0;
        char name[24];
        for (int p = 0; p < r->size; p++) {
            int member = g == 1 ? p % 2 == 0 : g == 2 ? p < (r->size + 1) / 2 + 1 : g == 3 ? p != 1 : 1;
            if (member)
                list[k++] = p;
            in |= member && p == r->rank;
        }
        (void)snprintf(name, sizeof(name), "group%d", g);
        if (in)
            c[n++] = emu_attach(r, list, k, name);
        else
            c[n++] = NULL;
    }
    return n;
}

static void stress_body(emu_rank_t *r)
{
    stress_t *s = r->arg;
    occl_comm_t *comm[8];
    emu_op_t *op = calloc((size_t)(s->colls * s->comms), sizeof(*op));
    int *order = calloc((size_t)(s->colls * s->comms), sizeof(*order)), n = 0;
    attach_many(r, s->comms, comm);
    for (int g = 0; g < s->comms; g++) {
        occl_rng_t shared;
        occl_rng_seed(&shared, 99, (uint64_t)g);
        for (int i = 0; i < s->colls && comm[g]; i++) {
            if (s->mixed)
                emu_op_random(&op[n++], comm[g], i, &shared, s->max_count);
            else
                emu_op_init(&op[n++], comm[g], i, OCCL_COLL_ALLREDUCE, OCCL_T_F32, OCCL_OP_SUM, 0,
                            s->max_count >> (i % 8), 0);
        }
    }
    for (int k = 0; k < s->iters && !emu_failed(r); k++) {
        shuffle_or_not(r, order, n, s->random);
        for (int i = 0; i < n; i++) {
            emu_op_fill(&op[order[i]], (uint64_t)k);
            emu_op_start(r, &op[order[i]]);
            if (s->device_sync && occl_rng_below(&r->rng, 4) == 0)
                (void)occl_emu_synchronize(emu_dev(r));
        }
        shuffle_or_not(r, order, n, s->random);
        for (int i = 0; i < n; i++)
            emu_op_wait(r, &op[order[i]]);
    }
    for (int i = 0; i < n; i++)
        emu_op_fini(&op[i]);
    for (int g = 1; g < s->comms; g++)
        emu_detach(comm[g]);
    free(op);
    free(order);
}

/* --- same bits ----------------------------------------------------------------------------------------------------- */

enum { BITS_COLLS = 6, BITS_COUNT = 3000 };

/* Floats that round at every addition. */
static void bits_body(emu_rank_t *r)
{
    stress_t *s = r->arg;
    occl_coll_t *coll[BITS_COLLS];
    float *send = malloc(sizeof(float) * BITS_COLLS * BITS_COUNT), *recv = calloc(BITS_COLLS * BITS_COUNT, sizeof(float));
    int order[BITS_COLLS];
    occl_rng_t data;
    occl_rng_seed(&data, 5, (uint64_t)r->rank);
    for (int i = 0; i < BITS_COLLS * BITS_COUNT; i++)
        send[i] = (float)(int64_t)occl_rng_next(&data) / 1e12f;
    for (int i = 0; i < BITS_COLLS; i++) {
        occl_coll_args_t a = {.kind = OCCL_COLL_ALLREDUCE, .type = OCCL_T_F32, .op = OCCL_OP_SUM, .root = -1};
        a.count = BITS_COUNT >> i;
        a.send = send + i * BITS_COUNT;
        a.recv = recv + i * BITS_COUNT;
        emu_check(r, occl_coll_create(r->comm, i, &a, &coll[i]) == OCCL_OK, "%s", occl_last_error());
    }
    for (int k = 0; k < s->iters; k++) {
        shuffle_or_not(r, order, BITS_COLLS, s->random);
        for (int i = 0; i < BITS_COLLS; i++) {
            emu_check(r, occl_coll_start(coll[order[i]], NULL) == OCCL_OK, "%s", occl_last_error());
            if (s->random)
                emu_dawdle(r, 200000);
        }
        shuffle_or_not(r, order, BITS_COLLS, s->random);
        for (int i = 0; i < BITS_COLLS; i++) {
            occl_status_t outcome;
            emu_check(r, occl_coll_wait(coll[order[i]], &outcome) == OCCL_OK && outcome == OCCL_OK, "wait");
        }
        if (!s->out[r->rank]) {
            s->out[r->rank] = malloc(sizeof(float) * BITS_COLLS * BITS_COUNT);
            memcpy(s->out[r->rank], recv, sizeof(float) * BITS_COLLS * BITS_COUNT);
        }
        emu_check(r, !memcmp(s->out[r->rank], recv, sizeof(float) * BITS_COLLS * BITS_COUNT), "iteration %d has other bits", k);
    }
    for (int i = 0; i < BITS_COLLS; i++)
        occl_coll_free(coll[i]);
    free(send);
    free(recv);
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    int rounds = 60;
    for (int d = 0; d < 2; d++) {
        for (int n = 2; n <= 8; n *= 2)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d], .env = "OCCL_EMU_LANES=2", .seed = (uint64_t)n}, reversed_body,
                    "001, %s, %d ranks: two communicators in opposite orders", name[d], n);
        for (int n = 3; n <= 5; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d], .env = "OCCL_EMU_LANES=1", .deadline = 20, .no_world = 1},
                    ring_body, "002, %s: a ring of %d overlapping pairs, all start orders and wait orders", name[d], n);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .env = "OCCL_EMU_LANES=2"}, messages_body,
                "006, %s: messages both ways and all-reduces, started and waited for in any order", name[d]);
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .arg = &rounds}, threads2_body,
                "007, %s: a background thread gathers while the main one works", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .arg = &rounds, .env = "OCCL_EMU_LANES=1"}, threads6_body,
                "013, %s: six threads a rank with a tag each", name[d]);
        {
            stress_t s = {.colls = 6, .iters = 12, .comms = 4, .random = 1, .mixed = 1, .max_count = 4000};
            emu_run(&(emu_conf_t){.ranks = 6, .device = devices[d], .arg = &s, .env = "OCCL_EMU_LANES=2 OCCL_EMU_CHAOS=3",
                                  .deadline = 12}, stress_body,
                    "%s: four overlapping communicators, every kind, size and type, random orders", name[d]);
        }
        {
            stress_t s = {.iters = 3};
            emu_run(&(emu_conf_t){.ranks = 5, .device = devices[d], .arg = &s}, bits_body, "%s: same bits in order", name[d]);
            s.iters = 20;
            s.random = 1;
            emu_run(&(emu_conf_t){.ranks = 5, .device = devices[d], .arg = &s, .env = "OCCL_EMU_CHAOS=11"}, bits_body,
                    "%s: ... and in random orders", name[d]);
            for (int i = 0; i < EMU_MAX_RANKS; i++)
                free(s.out[i]);
        }
    }
    emu_run(&(emu_conf_t){.ranks = 4, .device = OCCL_DEVICE_EMU, .no_world = 1}, grid_body,
            "004: rows and columns in different orders with device synchronises in between");
    for (int sync = 0; sync < 2; sync++) {
        stress_t s = {.colls = 8, .iters = 200, .comms = 1, .random = 1, .device_sync = sync, .max_count = 4096};
        emu_run(&(emu_conf_t){.ranks = 8, .device = OCCL_DEVICE_EMU, .arg = &s, .env = "OCCL_EMU_LANES=1", .deadline = 40},
                stress_body, "8 ranks, 8 all-reduces, one SM slot, 200 random orders%s",
                sync ? ", device synchronises in between" : "");
    }
    {
        stress_t s = {.colls = 8, .iters = 20, .comms = 1, .random = 1, .max_count = 4096};
        emu_run(&(emu_conf_t){.ranks = 8, .device = OCCL_DEVICE_EMU, .arg = &s, .env = "OCCL_EMU_LANES=1", .shared_slots = 1,
                              .deadline = 20}, stress_body, "8 ranks on one GPU that holds one block at a time");
    }
    return tap_done();
}
