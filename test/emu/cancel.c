/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A start is withdrawn while others open the gate: either it never happened, for anybody, or it is refused. By chance, many
 * times; and the interleavings that break without each rule, by force (util/point.h).
 */
#include "emu.h"

#include <string.h>

static int is_done(emu_rank_t *r, emu_op_t *op)
{
    int done = 0;
    occl_status_t s;
    emu_check(r, occl_coll_test(op->coll, &done, &s) == OCCL_OK, "test: %s", occl_last_error());
    return done;
}

static int withdraw(emu_rank_t *r, emu_op_t *op)
{
    int gone = 0;
    (void)r;
    (void)occl_coll_cancel(op->coll, &gone); /* it may be over by now: an error, and not gone */
    return gone;
}

/* Not within a while, however often it is asked. */
static void stays_pending(emu_rank_t *r, emu_op_t *op, const char *why)
{
    for (int i = 0; i < 200; i++) {
        if (!emu_check(r, !is_done(r, op), "%s", why))
            return;
        if (i % 20 == 0)
            emu_sleep(50000);
    }
}

/* --- by chance ------------------------------------------------------------------------------------------------------ */

typedef struct chance {
    int rounds;
    uint64_t count;
    occl_collkind_t kind;
} chance_t;

static void chance_body(emu_rank_t *r)
{
    const chance_t *c = r->arg;
    emu_op_t op;
    int withdrawn = 0, refused = 0;
    if (r->rank == 0)
        emu_set(r, 0, 0);
    occl_emu_host_chaos(r->rank + 1);
    emu_op_init(&op, r->comm, 3, c->kind, OCCL_T_I32, OCCL_OP_SUM, 0, c->count, 0);
    for (int k = 0; k < c->rounds && !emu_failed(r); k++) {
        int gone = 0;
        emu_op_fill(&op, (uint64_t)k);
        emu_barrier(r);
        for (uint64_t i = occl_rng_below(&r->rng, 2000); i; i--)
            occl_relax();
        emu_op_start(r, &op);
        if (occl_rng_below(&r->rng, 3) < 2) {
            for (uint64_t i = occl_rng_below(&r->rng, 600); i; i--)
                occl_relax();
            gone = withdraw(r, &op);
            refused += !gone;
        }
        withdrawn += gone;
        emu_set(r, 10 + r->rank, (uint64_t)gone);
        emu_barrier(r);
        /* If somebody has gone nobody can have it complete, now or later, until that one starts again. */
        for (int p = 0; p < r->size; p++) {
            if (emu_get(r, 10 + p) && p != r->rank && !gone) {
                for (int i = 0; i < 30; i++)
                    emu_check(r, !is_done(r, &op), "round %d is complete although member %d has withdrawn", k, p);
            }
        }
        emu_barrier(r);
        if (gone) {
            emu_op_fill(&op, (uint64_t)k);
            emu_op_start(r, &op);
        }
        emu_op_wait(r, &op);
    }
    emu_op_fini(&op);
    occl_emu_host_chaos(0);
    emu_barrier(r);
    (void)refused;
    (void)withdrawn;
}

/* --- by force ------------------------------------------------------------------------------------------------------- */

/* Member 0 withdraws in between: 1 has seen it, 2 has not come. Then 2 comes. Nobody may open without 0. */
static void gone_before_last_body(emu_rank_t *r)
{
    emu_op_t op, again;
    emu_op_init(&op, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    /* What 0 starts later has other buffers: whoever opened with the old ones is found out. */
    emu_op_init(&again, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    for (uint64_t k = 0; k < 5; k++) {
        emu_op_fill(&op, k);
        emu_op_fill(&again, k);
        if (r->rank < 2)
            emu_op_start(r, &op);
        emu_barrier(r);
        if (r->rank == 1)
            emu_check(r, !is_done(r, &op), "member 2 is missing"); /* it has seen 0 now */
        emu_barrier(r);
        if (r->rank == 0) {
            emu_check(r, withdraw(r, &op), "member 2 is missing: it can be withdrawn");
            memset(op.send, 0xee, op.sbytes);
        }
        emu_barrier(r);
        if (r->rank == 2)
            emu_op_start(r, &op);
        emu_barrier(r);
        if (r->rank)
            stays_pending(r, &op, "member 0 has withdrawn");
        emu_barrier(r);
        if (r->rank == 0) {
            emu_op_start(r, &again);
            emu_op_wait(r, &again);
        } else {
            emu_op_wait(r, &op);
        }
    }
    emu_op_fini(&op);
    emu_op_fini(&again);
}

/* All have started; 0 is in the middle of withdrawing. 1 must not open meanwhile, and must do it when 0 finds that it may not go. */
static void refused_body(emu_rank_t *r)
{
    emu_op_t op;
    emu_op_init(&op, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    emu_hold_me(r);
    for (uint64_t k = 0; k < 5; k++) {
        emu_op_fill(&op, k);
        if (r->rank == 0)
            emu_op_start(r, &op);
        emu_barrier(r);
        if (r->rank == 0) {
            emu_hold_at(0, OCCL_POINT_WITHDRAWING);
            emu_check(r, !withdraw(r, &op), "all have started: refused");
        } else {
            emu_hold_wait(0);
            emu_op_start(r, &op);
            stays_pending(r, &op, "member 0 is withdrawing");
            emu_set(r, r->rank, k + 1);
            if (r->rank == 1) {
                emu_wait_for(r, 2, k + 1);
                emu_hold_end(0);
            }
        }
        emu_op_wait(r, &op);
        emu_barrier(r);
    }
    emu_hold_none(r);
    emu_op_fini(&op);
}

/* 2 has opened. 0 and 1 withdraw at a time: neither may take the other for missing. Rank 3 takes no part, and lets them go on. */
static void two_body(emu_rank_t *r)
{
    if (r->rank < 3) {
        static const int three[3] = {0, 1, 2};
        r->comm = emu_attach(r, three, 3, "three");
    } else {
        r->comm = NULL;
    }
    if (r->comm) {
        emu_op_t op;
        emu_op_init(&op, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
        emu_hold_me(r);
        for (uint64_t k = 0; k < 5; k++) {
            emu_op_fill(&op, k);
            if (r->rank < 2)
                emu_op_start(r, &op);
            emu_barrier(r);
            if (r->rank == 2) {
                emu_hold_at(2, OCCL_POINT_OPENED);
                emu_barrier(r);
                emu_op_start(r, &op); /* held inside */
            } else {
                emu_barrier(r);
                emu_hold_wait(2);
                emu_hold_at(r->rank, OCCL_POINT_WITHDRAWING);
                emu_check(r, !withdraw(r, &op), "member 2 has opened: refused");
            }
            emu_op_wait(r, &op);
            emu_barrier(r);
        }
        emu_hold_none(r);
        emu_op_fini(&op);
        return;
    }
    for (int k = 0; k < 5; k++) {
        emu_barrier(r);
        emu_barrier(r);
        emu_hold_wait(2);
        emu_hold_wait(0);
        emu_hold_wait(1);
        emu_hold_end(0); /* both have stored their words: now each looks at the other */
        emu_hold_end(1);
        emu_hold_end(2);
        emu_barrier(r);
    }
}

/* 2 is between its second look and its use of the records when 0 tries to withdraw: what 2 reads must still be there. */
static void opened_body(emu_rank_t *r)
{
    emu_op_t op;
    /* From buffer to buffer: the addresses are in the record. */
    emu_op_init(&op, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 80000, 0);
    emu_hold_me(r);
    for (uint64_t k = 0; k < 5; k++) {
        emu_op_fill(&op, k);
        if (r->rank < 2)
            emu_op_start(r, &op);
        emu_barrier(r);
        if (r->rank == 2) {
            emu_hold_at(2, OCCL_POINT_OPENED);
            emu_op_start(r, &op);
        } else if (r->rank == 0) {
            emu_hold_wait(2);
            emu_hold_at(0, OCCL_POINT_WITHDRAWING);
            emu_check(r, !withdraw(r, &op), "member 2 has opened: refused");
        } else {
            emu_hold_wait(0);
            emu_hold_end(2); /* reads 0's record while its word says WITHDRAWING */
            emu_sleep(2000000);
            emu_hold_end(0);
        }
        emu_op_wait(r, &op);
        emu_barrier(r);
    }
    emu_hold_none(r);
    emu_op_fini(&op);
}

/*
 * 0 starts with a wrong count, 1 fails of it, 0 withdraws, since 2 has not come, and starts as it should: 1 has failed, so all
 * fail, and nobody waits for it. The next run is right.
 */
static void mended_body(emu_rank_t *r)
{
    emu_op_t op, wrong;
    emu_op_init(&op, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    emu_op_init(&wrong, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 19999, 0);
    for (uint64_t k = 0; k < 5; k++) {
        emu_op_fill(&op, k);
        emu_op_fill(&wrong, k);
        if (r->rank == 0)
            emu_op_start(r, &wrong);
        emu_barrier(r);
        if (r->rank == 1) {
            emu_op_start(r, &op);
            emu_check(r, emu_op_outcome(r, &op) == OCCL_ERR_MISMATCH, "counts differ");
        }
        emu_barrier(r);
        if (r->rank == 0) {
            /* It fails of 1's record as well, unless it is quicker; here it has not looked yet. */
            int gone = 0;
            (void)occl_coll_cancel(wrong.coll, &gone);
            if (gone)
                emu_op_start(r, &op);
            emu_set(r, 5, (uint64_t)gone);
        }
        emu_barrier(r);
        if (r->rank == 2)
            emu_op_start(r, &op);
        if (r->rank == 0)
            emu_check(r, emu_op_outcome(r, emu_get(r, 5) ? &op : &wrong) == OCCL_ERR_MISMATCH, "member 1 has failed it");
        if (r->rank == 2)
            emu_check(r, emu_op_outcome(r, &op) == OCCL_ERR_MISMATCH, "member 1 has failed it");
        emu_barrier(r);
        emu_op_fill(&op, k + 100);
        emu_op_start(r, &op);
        emu_op_wait(r, &op);
    }
    emu_op_fini(&op);
    emu_op_fini(&wrong);
}

/* 1 has seen that 0 differs and is about to fail when 0 mends its start: the record that 1 failed of is not there any more. */
static void mended_in_time_body(emu_rank_t *r)
{
    emu_op_t op, wrong;
    emu_op_init(&op, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
    emu_op_init(&wrong, r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 19999, 0);
    emu_hold_me(r);
    for (uint64_t k = 0; k < 5; k++) {
        emu_op_fill(&op, k);
        emu_op_fill(&wrong, k);
        if (r->rank == 0)
            emu_op_start(r, &wrong);
        emu_barrier(r);
        if (r->rank == 1) {
            emu_hold_at(1, OCCL_POINT_DISAGREES);
            emu_op_start(r, &op);
        } else if (r->rank == 0) {
            int gone = 0;
            emu_hold_wait(1);
            (void)occl_coll_cancel(wrong.coll, &gone);
            emu_check(r, gone, "member 2 is missing");
            emu_op_start(r, &op);
            emu_set(r, 6, k + 1);
        } else {
            emu_wait_for(r, 6, k + 1);
            emu_op_start(r, &op); /* sees two records that agree, and opens if it may */
            emu_hold_end(1);
        }
        emu_op_wait(r, &op);
        emu_barrier(r);
    }
    emu_hold_none(r);
    emu_op_fini(&op);
    emu_op_fini(&wrong);
}

/* Queued runs, runs with others behind them, runs on the device. */
static void which_body(emu_rank_t *r)
{
    emu_op_t op[3];
    int gone;
    for (int i = 0; i < 3; i++) {
        emu_op_init(&op[i], r->comm, 3, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, 20000, 0);
        emu_op_fill(&op[i], (uint64_t)i);
    }
    if (r->rank == 0) {
        for (int i = 0; i < 3; i++)
            emu_op_start(r, &op[i]);
        emu_check(r, occl_coll_cancel(op[0].coll, &gone) == OCCL_OK && !gone, "others are queued behind it");
        emu_check(r, occl_coll_cancel(op[1].coll, &gone) == OCCL_OK && !gone, "another is queued behind it");
        emu_check(r, occl_coll_cancel(op[2].coll, &gone) == OCCL_OK && gone, "the last one can be withdrawn");
        emu_check(r, emu_op_outcome(r, &op[2]) == OCCL_ERR_CANCELLED, "and says so");
        emu_check(r, occl_coll_cancel(op[2].coll, &gone) == OCCL_ERR_REQUEST, "only once");
        emu_check(r, occl_coll_cancel(op[1].coll, &gone) == OCCL_OK && gone, "then the one before it");
        emu_check(r, occl_coll_cancel(op[0].coll, &gone) == OCCL_OK && gone, "then the first");
    }
    emu_barrier(r);
    for (int i = 0; i < 3; i++)
        emu_op_start(r, &op[i]);
    for (int i = 2; i >= 0; i--) {
        emu_op_wait(r, &op[i]);
        emu_op_fini(&op[i]);
    }
    emu_check(r, emu_stat(r, "pending") == 0, "nothing is left");
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    for (int d = 0; d < 2; d++) {
        emu_conf_t three = {.ranks = 3, .device = devices[d], .env = "OCCL_EMU_LANES=1 OCCL_HELPER=0"};
        chance_t c = {.rounds = 300, .count = 20000, .kind = OCCL_COLL_ALLREDUCE};
        emu_run(&three, which_body, "%s: the last start of a tag can be withdrawn, others not", name[d]);
        emu_run(&three, gone_before_last_body, "%s: a start that was withdrawn before the last member came", name[d]);
        emu_run(&three, refused_body, "%s: the gate stays closed while a member is withdrawing, then opens", name[d]);
        emu_run(&(emu_conf_t){.ranks = 4, .device = devices[d], .env = "OCCL_EMU_LANES=1 OCCL_HELPER=0", .no_world = 1},
                two_body, "%s: two that withdraw at a time do not take each other for missing", name[d]);
        emu_run(&three, opened_body, "%s: whoever has opened reads records that are being withdrawn", name[d]);
        emu_run(&three, mended_body, "%s: a run that failed of a start that was withdrawn later fails for all", name[d]);
        emu_run(&three, mended_in_time_body, "%s: a start that was mended in time is no mismatch", name[d]);
        three.arg = &c;
        three.deadline = 12;
        emu_hold_chaos(1);
        emu_run(&three, chance_body, "%s: withdrawn for all or for nobody, by chance", name[d]);
        c.count = 5;
        emu_run(&three, chance_body, "%s: ... small ones that need no gate", name[d]);
        c.kind = OCCL_COLL_BCAST;
        emu_run(&three, chance_body, "%s: ... from a root that hears of nobody", name[d]);
        three.ranks = 2;
        c.count = 20000;
        emu_run(&three, chance_body, "%s: ... and with two", name[d]);
        emu_hold_chaos(0);
    }
    return tap_done();
}
