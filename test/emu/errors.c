/* SPDX-License-Identifier: BSD-3-Clause */
/* Promise 3: a mistake is an error on every rank, never a hang or wrong data; and the tag goes on working. */
#include "emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two right runs of the tag. */
static void goes_on(emu_rank_t *r, int tag)
{
    emu_op_t op;
    emu_op_init(&op, r->comm, tag, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 50, 0);
    for (uint64_t k = 0; k < 2; k++) {
        emu_op_fill(&op, k);
        emu_op_start(r, &op);
        emu_op_wait(r, &op);
    }
    emu_op_fini(&op);
}

/* --- signatures that differ ---------------------------------------------------------------------------------------- */

enum { FIELD_KIND, FIELD_COUNT, FIELD_COUNT_0, FIELD_TYPE, FIELD_OP, FIELD_ROOT, FIELDS };
static const char *const field_name[] = {"operation", "count", "count", "type", "op", "root"};

static void differ_init(emu_op_t *op, emu_rank_t *r, int field, uint64_t count, int odd)
{
    occl_collkind_t kind = field == FIELD_ROOT ? OCCL_COLL_BCAST : OCCL_COLL_ALLREDUCE;
    uint32_t type = OCCL_T_I32, opcode = OCCL_OP_SUM;
    int root = 0;
    if (odd) {
        if (field == FIELD_KIND)
            kind = OCCL_COLL_ALLGATHER;
        if (field == FIELD_COUNT)
            count = count / 2 + 1;
        if (field == FIELD_COUNT_0)
            count = 0;
        if (field == FIELD_TYPE)
            type = OCCL_T_F32;
        if (field == FIELD_OP)
            opcode = OCCL_OP_MAX;
        if (field == FIELD_ROOT)
            root = 1;
    }
    emu_op_init(op, r->comm, 3, kind, type, opcode, root, count, 0);
}

static void mismatch_body(emu_rank_t *r)
{
    static const uint64_t counts[] = {9, 700, 20000};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int field = 0; field < FIELDS; field++) {
            for (int odd = 0; odd < r->size; odd++) {
                emu_op_t op;
                occl_status_t s;
                differ_init(&op, r, field, counts[i], odd == r->rank);
                emu_op_fill(&op, 1);
                emu_dawdle(r, 100000);
                emu_op_start(r, &op);
                s = emu_op_outcome(r, &op);
                emu_check(r, s == OCCL_ERR_MISMATCH, "rank %d has another %s (of %llu): %s, %s", odd, field_name[field],
                          (unsigned long long)counts[i], occl_status_name(s), occl_coll_error(op.coll));
                emu_check(r, strstr(occl_coll_error(op.coll), field_name[field]) != NULL, "the text names the %s: %s",
                          field_name[field], occl_coll_error(op.coll));
                emu_op_fini(&op);
                if (odd % 2)
                    goes_on(r, 3);
            }
        }
    }
    goes_on(r, 3);
}

/* Runs in flight behind and in front of one that differs are not touched by it. */
static void chain_body(emu_rank_t *r)
{
    enum { DEEP = 7 };
    for (int bad = 0; bad < DEEP; bad++) {
        emu_op_t op[DEEP];
        for (int i = 0; i < DEEP; i++) {
            emu_op_init(&op[i], r->comm, 8, i % 2 ? OCCL_COLL_ALLREDUCE : OCCL_COLL_ALLGATHER, OCCL_T_I32, OCCL_OP_SUM, 0,
                        (uint64_t)(i * 300 + (i == bad && r->rank == r->size - 1)), 0);
            emu_op_fill(&op[i], (uint64_t)i);
            emu_op_start(r, &op[i]);
        }
        for (int k = 0; k < DEEP; k++) {
            int i = r->rank % 2 ? k : DEEP - 1 - k;
            if (i == bad)
                emu_check(r, emu_op_outcome(r, &op[i]) == OCCL_ERR_MISMATCH, "run %d differs", i);
            else
                emu_op_wait(r, &op[i]);
        }
        for (int i = 0; i < DEEP; i++)
            emu_op_fini(&op[i]);
    }
}

/* 009: a rank inserts a collective. With one tag for all every later one is out of step until it has been told. */
static void inserted_body(emu_rank_t *r)
{
    emu_op_t extra;
    for (int k = 0; k < 10; k++) {
        emu_op_t op;
        occl_status_t s;
        if (k == 7 && r->rank == 1) {
            emu_op_init(&extra, r->comm, 0, OCCL_COLL_BCAST, OCCL_T_I64, 0, 1, 1, 0);
            emu_op_fill(&extra, 0);
            emu_op_start(r, &extra);
        }
        if (k == 9 && r->rank == 1) /* one call more than the others: it does without the last */
            continue;
        emu_op_init(&op, r->comm, 0, OCCL_COLL_ALLREDUCE, OCCL_T_F32, OCCL_OP_SUM, 0, 25, 0);
        emu_op_fill(&op, (uint64_t)k);
        emu_op_start(r, &op);
        /* Rank 1's call 8 (k = 7) meets the others' call 9 (k = 8): the same signature. */
        s = emu_op_outcome(r, &op);
        if (k < 7 || r->rank == 1 || k > 7)
            emu_check(r, s == OCCL_OK, "call %d: %s", k, occl_status_name(s));
        else
            emu_check(r, s == OCCL_ERR_MISMATCH && strstr(occl_coll_error(op.coll), "bcast") &&
                             strstr(occl_coll_error(op.coll), "allreduce"), "both are named: %s", occl_coll_error(op.coll));
        emu_op_fini(&op);
    }
    if (r->rank == 1) {
        emu_check(r, emu_op_outcome(r, &extra) == OCCL_ERR_MISMATCH, "the inserted one");
        emu_op_fini(&extra);
    }
}

/* --- a start that was refused -------------------------------------------------------------------------------------- */

static void refused_body(emu_rank_t *r)
{
    for (int odd = 0; odd < r->size; odd++) {
        for (uint64_t count = 10; count < 100000; count *= 100) {
            emu_op_t op;
            emu_op_init(&op, r->comm, 6, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, count, 0);
            emu_op_fill(&op, 1);
            if (r->rank == odd) {
                occl_start_failed(r->comm, 6, &op.args, OCCL_ERR_TYPE);
            } else {
                occl_status_t s;
                emu_op_start(r, &op);
                s = emu_op_outcome(r, &op);
                emu_check(r, s == OCCL_ERR_MISMATCH && strstr(occl_coll_error(op.coll), "refused"), "%s: %s", occl_status_name(s),
                          occl_coll_error(op.coll));
            }
            emu_op_fini(&op);
            goes_on(r, 6);
        }
    }
    /* Several in a row, on all ranks, with nobody waiting */
    for (int k = 0; k < 5; k++) {
        occl_coll_args_t a = {.kind = OCCL_COLL_BARRIER};
        occl_start_failed(r->comm, 6, &a, OCCL_ERR_ARG);
    }
    goes_on(r, 6);
}

/* Messages: too long, another type; a message to oneself. */
static void message_body(emu_rank_t *r)
{
    int32_t out[40], in[40];
    for (int i = 0; i < 40; i++)
        out[i] = i * 3 + r->rank;
    for (int k = 0; k < 4; k++) {
        occl_coll_args_t a = {.kind = OCCL_COLL_SENDRECV, .type = OCCL_T_I32, .root = -1, .peer = 1 - r->rank, .count = 40};
        occl_run_t *run = NULL;
        a.sender = r->rank == 0;
        if (a.sender)
            a.send = out;
        else
            a.recv = in;
        if (k == 1 && !a.sender)
            a.count = 39;
        if (k == 2 && a.sender)
            a.type = OCCL_T_F32;
        memset(in, 0, sizeof(in));
        emu_check(r, occl_start(r->comm, 1, &a, &run) == OCCL_OK, "%s", occl_last_error());
        occl_run_wait(run);
        if (k == 1)
            emu_check(r, occl_run_status(run) == OCCL_ERR_TRUNCATE, "40 into 39: %s", occl_status_name(occl_run_status(run)));
        else if (k == 2)
            emu_check(r, occl_run_status(run) == OCCL_ERR_MISMATCH, "types: %s", occl_status_name(occl_run_status(run)));
        else
            emu_check(r, occl_run_status(run) == OCCL_OK && (a.sender || (in[39] == 117 && occl_run_bytes(run) == 160)),
                      "the next one arrives: %s", occl_run_error(run));
        occl_run_release(run);
    }
    for (int k = 0; k < 3; k++) {
        occl_coll_args_t s = {.kind = OCCL_COLL_SENDRECV, .type = OCCL_T_I32, .root = -1, .peer = r->rank, .count = 40}, d;
        occl_run_t *a, *b;
        d = s;
        s.sender = 1;
        s.send = out;
        d.recv = in;
        d.count = k == 1 ? 10 : 40;
        memset(in, 0, sizeof(in));
        emu_check(r, occl_start(r->comm, 2, k ? &d : &s, &a) == OCCL_OK && occl_start(r->comm, 2, k ? &s : &d, &b) == OCCL_OK,
                  "%s", occl_last_error());
        occl_run_wait(a);
        occl_run_wait(b);
        emu_check(r, occl_run_status(b) == (k == 1 ? OCCL_ERR_TRUNCATE : OCCL_OK) && occl_run_status(a) == occl_run_status(b),
                  "to oneself: %s", occl_run_error(b));
        emu_check(r, k == 1 || !memcmp(in, out, sizeof(in)), "its data");
        occl_run_release(a);
        occl_run_release(b);
    }
}

/* --- members that go ------------------------------------------------------------------------------------------------ */

typedef struct gone {
    uint64_t count;
    int finalize;      /* else detach */
    int started;       /* member 1 had started it */
    int late;          /* member 2 starts only after member 1 has gone */
} gone_t;

static void gone_body(emu_rank_t *r)
{
    const gone_t *g = r->arg;
    emu_op_t op, other;
    occl_comm_t *pair = NULL;
    static const int two[2] = {0, 2};
    emu_op_init(&op, r->comm, 4, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, g->count, 0);
    emu_op_init(&other, r->comm, 7, OCCL_COLL_BARRIER, OCCL_T_BYTE, 0, 0, 0, 0);
    goes_on(r, 4);
    if (r->rank != 1)
        pair = emu_attach(r, two, 2, "pair");
    emu_op_fill(&op, 1);
    if (r->rank == 1) {
        if (g->started)
            emu_op_start(r, &op);
        emu_wait_for(r, 0, 1); /* member 0 has started */
        emu_sleep(2000000);
        if (op.coll) {
            occl_coll_free(op.coll);
            op.coll = NULL;
        }
        if (g->finalize) {
            emu_finalize(r);
        } else {
            emu_detach(r->comm);
            r->comm = NULL;
        }
        emu_set(r, 1, 1);
        if (g->started) { /* its data must live as long as the others may read them */
            emu_wait_for(r, 30, 1);
            emu_wait_for(r, 32, 1);
        }
    } else {
        occl_status_t s;
        if (r->rank == 2 && g->late)
            emu_wait_for(r, 1, 1);
        emu_op_start(r, &op);
        if (r->rank == 0)
            emu_set(r, 0, 1);
        s = emu_op_outcome(r, &op);
        if (g->started && s == OCCL_OK)
            emu_op_check(r, &op); /* it may have done its part before it went */
        else if (g->started && !g->finalize)
            emu_check(r, 0, "detached, a started run goes on: %s: %s", occl_status_name(s), occl_coll_error(op.coll));
        else
            emu_check(r, s == OCCL_ERR_PEER_FAILED && strstr(occl_coll_error(op.coll), "member 1"), "%s: %s",
                      occl_status_name(s), occl_coll_error(op.coll));
        emu_wait_for(r, 1, 1);
        /* What is started later fails at once, on every tag; others go on. */
        emu_op_start(r, &other);
        s = emu_op_outcome(r, &other);
        emu_check(r, s == OCCL_ERR_PEER_FAILED, "a run after it has gone: %s", occl_status_name(s));
        emu_op_fini(&other);
        emu_op_init(&other, pair, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 500, 0);
        emu_op_fill(&other, 5);
        emu_op_start(r, &other);
        emu_op_wait(r, &other);
        emu_set(r, 30 + r->rank, 1);
    }
    emu_op_fini(&other);
    emu_detach(pair);
    if (r->rank == 1 || !g->started) {
        emu_op_fini(&op);
        return;
    }
    emu_op_fini(&op);
}

/* 026: a communicator is given up while another one waits for an absent member. */
static void busy_body(emu_rank_t *r)
{
    occl_comm_t *b;
    static const int all[3] = {0, 1, 2};
    emu_op_t wait, gone;
    uint64_t t;
    b = emu_attach(r, all, 3, "busy");
    emu_op_init(&wait, b, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    emu_op_init(&gone, r->comm, 1, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 10, 0);
    emu_op_fill(&wait, 1);
    emu_op_fill(&gone, 1);
    emu_op_start(r, &gone);
    emu_op_wait(r, &gone);
    emu_op_fini(&gone);
    if (r->rank != 1)
        emu_op_start(r, &wait);
    t = occl_host_clock_ns();
    emu_detach(r->comm);
    r->comm = NULL;
    t = occl_host_clock_ns() - t;
    emu_check(r, (double)t < 0.1e9 * tap_slack(), "detach took %.1f ms", (double)t / 1e6);
    emu_barrier(r);
    if (r->rank == 1)
        emu_op_start(r, &wait);
    emu_op_wait(r, &wait);
    emu_op_fini(&wait);
    emu_detach(b);
}

/* Runs are started, nobody waits, and the communicator is given up at once: they complete all the same. */
static void forgotten_body(emu_rank_t *r)
{
    enum { N = 6 };
    emu_op_t op[N];
    occl_run_t *run[N];
    for (uint64_t i = 0; i < N; i++) {
        emu_op_init(&op[i], r->comm, (int)i / 2, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, i * i * 300, 0);
        emu_op_fill(&op[i], i);
    }
    emu_dawdle(r, 3000000);
    for (int i = 0; i < N; i++)
        emu_check(r, occl_start(r->comm, op[i].tag, &op[i].args, &run[i]) == OCCL_OK, "%s", occl_last_error());
    emu_detach(r->comm);
    r->comm = NULL;
    for (int i = N - 1; i >= 0; i--) {
        occl_run_wait(run[i]);
        emu_check(r, occl_run_status(run[i]) == OCCL_OK, "%s", occl_run_error(run[i]));
        occl_run_release(run[i]);
        emu_op_check(r, &op[i]);
        emu_op_fini(&op[i]);
    }
}

/* The same with nobody left to look: the helpers finish them. */
static void released_body(emu_rank_t *r)
{
    for (uint64_t k = 0; k < 40; k++) {
        occl_comm_t *c;
        emu_op_t op;
        occl_run_t *run;
        char name[16];
        static const int all[4] = {0, 1, 2, 3};
        (void)snprintf(name, sizeof(name), "c%d", (int)k);
        c = emu_attach(r, all, r->size, name);
        emu_op_init(&op, c, 1, k % 3 == 0 ? OCCL_COLL_BCAST : OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, k * 100, 0);
        emu_op_fill(&op, k);
        emu_dawdle(r, 300000);
        emu_check(r, occl_start(c, 1, &op.args, &run) == OCCL_OK, "%s", occl_last_error());
        occl_run_release(run);
        emu_detach(c);
        while (emu_stat(r, "pending"))
            emu_sleep(50000);
        emu_op_check(r, &op);
        emu_op_fini(&op);
    }
}

/* --- nothing left ---------------------------------------------------------------------------------------------------- */

static void arena_body(emu_rank_t *r)
{
    enum { N = 300 };
    emu_op_t op[N];
    int failed = 0, good = 0;
    /* Links for tag after tag, until this rank's memory ends; the others have plenty. */
    for (int i = 0; i < N; i++) {
        occl_status_t s;
        emu_op_init(&op[i], r->comm, i, OCCL_COLL_ALLTOALL, OCCL_T_I32, 0, 0, 100, 0);
        emu_op_fill(&op[i], (uint64_t)i);
        s = occl_coll_create(op[i].comm, i, &op[i].args, &op[i].coll);
        if (s == OCCL_OK) {
            emu_op_start(r, &op[i]);
        } else {
            emu_check(r, s == OCCL_ERR_RESOURCE && strstr(occl_last_error(), "no memory for tag"), "%s: %s", occl_status_name(s),
                      occl_last_error());
            occl_start_failed(op[i].comm, i, &op[i].args, s);
        }
    }
    for (int i = 0; i < N; i++) {
        occl_status_t s;
        if (!op[i].coll)
            continue;
        s = emu_op_outcome(r, &op[i]);
        failed += s != OCCL_OK;
        good += s == OCCL_OK && emu_op_check(r, &op[i]);
        /* Of the first tag that has no room for links the members are told why; later ones have no room for even that. */
        emu_check(r, s == OCCL_OK || s == OCCL_ERR_RESOURCE || (s == OCCL_ERR_MISMATCH && r->rank != 1), "run %d: %s: %s", i,
                  occl_status_name(s), occl_coll_error(op[i].coll));
    }
    emu_check(r, good > 10 && (failed > 10 || r->rank == 1), "%d good, %d failed", good, failed);
    emu_barrier(r); /* a member that had gone by now would be another reason */
    for (int i = 0; i < N; i++)
        emu_op_fini(&op[i]);
}

static const char *small_arena(int rank) { return rank == 1 ? "OCCL_ARENA_MAX=400K OCCL_ARENA_STEP=4K" : NULL; }
static const char *tiny_arena(int rank) { return rank == 1 ? "OCCL_ARENA_MAX=96K OCCL_ARENA_STEP=4K" : NULL; }

/* An attach that cannot be: the same answer on every rank. */
static void attach_body(emu_rank_t *r)
{
    static const int all[4] = {0, 1, 2, 3};
    occl_comm_t *c = NULL, *many[40];
    int n = 0;
    occl_status_t s = OCCL_OK;
    occl_attach_opts_t bad = {.algo = "allreduce:nonsense"};
    s = emu_try_attach(r, all, r->size, "bad rules", r->rank == 2 ? &bad : NULL, &c);
    emu_check(r, s == OCCL_ERR_INFO && strstr(occl_last_error(), "rank 2"), "%s: %s", occl_status_name(s), occl_last_error());
    for (; n < 40; n++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "c%d", n);
        s = emu_try_attach(r, all, r->size, name, NULL, &many[n]);
        if (s != OCCL_OK)
            break;
    }
    emu_check(r, s == OCCL_ERR_RESOURCE && n > 0 && n < 40 && strstr(occl_last_error(), "rank 1"), "%d attaches: %s: %s", n,
              occl_status_name(s), occl_last_error());
    emu_set(r, 8 + r->rank, (uint64_t)n);
    emu_barrier(r);
    emu_check(r, emu_get(r, 8) == (uint64_t)n, "as many as on rank 0");
    while (n--)
        emu_detach(many[n]);
    emu_barrier(r); /* now all members have gone, and what they held can be had again */
    goes_on(r, 1);
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    for (int d = 0; d < 2; d++) {
        for (int n = 2; n <= 4; n++)
            emu_run(&(emu_conf_t){.ranks = n, .device = devices[d], .env = "OCCL_EMU_LANES=2", .deadline = 12}, mismatch_body,
                    "%s, %d ranks: every field that differs is a mismatch on every rank, named, and the tag goes on", name[d], n);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .deadline = 12,
                              .env = "OCCL_EMU_LANES=2 OCCL_MAX_CHANNELS=3 OCCL_EMU_SLOTS=3 OCCL_CMA=0"}, mismatch_body,
                "%s, three channels: a mismatch that one channel sees ends the run on all", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d]}, chain_body,
                "%s: a mismatch does not touch the runs before and behind it", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d]}, inserted_body, "009, %s: an inserted collective", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d]}, refused_body,
                "%s: a start that was refused keeps its place, and the members are told", name[d]);
        emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d]}, message_body,
                "%s: messages that are too long or of another type", name[d]);
        for (int i = 0; i < 16; i++) {
            gone_t g = {.count = i & 8 ? 30000 : 10, .finalize = i & 1, .started = i >> 1 & 1, .late = i >> 2 & 1};
            emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .arg = &g, .env = "OCCL_EMU_LANES=2"}, gone_body,
                    "%s: member 1 %s%s, count %d%s: no hang, and it is named", name[d], g.finalize ? "finalizes" : "detaches",
                    g.started ? " with the run started" : "", (int)g.count, g.late ? ", member 2 is late" : "");
        }
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d]}, busy_body,
                "026, %s: giving up a communicator does not wait for another", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d]}, forgotten_body,
                "%s: runs go on after the communicator has been given up", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .no_world = 1}, released_body,
                "%s: the last run frees a communicator that nobody holds any more", name[d]);
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .rank_env = small_arena, .env = "OCCL_EMU_LANES=1"}, arena_body,
                "%s: no memory for links on one rank is an error on all", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .rank_env = tiny_arena, .env = "OCCL_EMU_LANES=1"}, attach_body,
                "%s: an attach fails on all ranks alike", name[d]);
    }
    return tap_done();
}
