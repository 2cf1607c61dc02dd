/* SPDX-License-Identifier: BSD-3-Clause */
/* "I store mine, then read yours": who is about to sleep and who has news for it do not miss each other. By force. */
#include "emu.h"

#include <string.h>

/* Of rank 0, as rank 1 sees it. */
static occl_ctx_t *sleeper_ctx(emu_rank_t *r) { return (occl_ctx_t *)(uintptr_t)emu_get(r, 1); }
static uint32_t bell_of(emu_rank_t *r) { return __atomic_load_n(&sleeper_ctx(r)->sleeper->bell, __ATOMIC_ACQUIRE); }
static uint64_t gates_of(emu_rank_t *r)
{
    uint64_t n = 0;
    (void)occl_get_stat(sleeper_ctx(r), NULL, "gates_opened", &n);
    return n;
}

typedef struct wake {
    uint64_t count;
    int other_tag;   /* the news are about another run than the one waited for */
} wake_t;

static void start_two(emu_rank_t *r, emu_op_t *op, uint64_t k)
{
    const wake_t *w = r->arg;
    for (int i = 0; i < 2; i++) {
        emu_op_init(&op[i], r->comm, 1 + i, OCCL_COLL_ALLREDUCE, OCCL_T_I32, OCCL_OP_SUM, 0, w->count, 0);
        emu_op_fill(&op[i], k);
    }
}

/* Rank 0 has looked for the last time and goes to sleep; then rank 1 starts: the bell must have been rung by then. */
static void rung_body(emu_rank_t *r)
{
    const wake_t *w = r->arg;
    emu_op_t op[2];
    if (r->rank == 0)
        emu_hold_me(r);
    for (uint64_t k = 0; k < 6; k++) {
        start_two(r, op, k);
        emu_barrier(r);
        if (r->rank == 0) {
            emu_op_start(r, &op[0]);
            emu_op_start(r, &op[1]);
            emu_hold_at(0, OCCL_POINT_SLEEPING);
            emu_op_wait(r, &op[0]);
        } else {
            uint32_t before;
            emu_hold_wait(0);
            before = bell_of(r);
            emu_op_start(r, &op[w->other_tag]);
            /* Nobody else has a reason to ring it. */
            emu_check(r, bell_of(r) != before, "the bell is rung by the start");
            emu_hold_end(0);
            emu_op_start(r, &op[!w->other_tag]);
            emu_op_wait(r, &op[0]);
        }
        emu_op_wait(r, &op[1]);
        emu_op_fini(&op[0]);
        emu_op_fini(&op[1]);
        emu_barrier(r);
    }
    if (r->rank == 0)
        emu_hold_none(r);
}

/* Rank 1 starts before rank 0 has announced that it sleeps, and does not ring: rank 0 must find it when it looks once more. */
static void found_body(emu_rank_t *r)
{
    const wake_t *w = r->arg;
    emu_op_t op[2];
    uint64_t gates = 0;
    if (r->rank == 0)
        emu_hold_me(r);
    for (uint64_t k = 0; k < 6; k++) {
        start_two(r, op, k);
        if (r->rank)
            gates = gates_of(r);
        emu_barrier(r);
        if (r->rank == 0) {
            emu_op_start(r, &op[0]);
            emu_hold_at(0, OCCL_POINT_ANNOUNCING);
            emu_op_wait(r, &op[0]);
            emu_set(r, 2, k + 1);
        } else {
            emu_hold_wait(0);
            emu_op_start(r, &op[0]);
            emu_hold_at(0, OCCL_POINT_SLEEPING); /* lets it go on, until it would sleep */
            emu_sleep(3000000);
            if (w->count > 1000) /* now it may sleep, since it waits for our part */
                emu_check(r, gates_of(r) == gates + 1, "it has found the start and opened the gate");
            else
                emu_check(r, !emu_hold_is_there(0), "it has found the start and does not sleep");
            emu_hold_end(0);
            emu_op_wait(r, &op[0]);
        }
        emu_op_fini(&op[0]);
        emu_op_fini(&op[1]);
        emu_barrier(r);
    }
    if (r->rank == 0)
        emu_hold_none(r);
}

/* The same for messages of a run that is on the device: who posts them rings. */
static void posted_body(emu_rank_t *r)
{
    emu_op_t op[2];
    if (r->rank == 0)
        emu_hold_me(r);
    /* Links are there after a first run: then small ones go to the device at once, on both sides. */
    for (uint64_t k = 0; k < 6; k++) {
        start_two(r, op, k);
        if (k == 0) {
            emu_op_start(r, &op[0]);
            emu_op_wait(r, &op[0]);
        } else {
            emu_barrier(r);
            if (r->rank == 0) {
                emu_op_start(r, &op[0]);
                emu_check(r, emu_stat(r, "eager_runs") > 0, "it needs no gate");
                emu_hold_at(0, OCCL_POINT_SLEEPING);
                emu_op_wait(r, &op[0]);
            } else {
                    uint32_t before;
                emu_hold_wait(0);
                before = bell_of(r);
                emu_op_start(r, &op[0]);
                emu_check(r, bell_of(r) != before, "the bell is rung by the post");
                emu_hold_end(0);
                emu_op_wait(r, &op[0]);
            }
        }
        emu_op_fini(&op[0]);
        emu_op_fini(&op[1]);
        emu_barrier(r);
    }
    if (r->rank == 0)
        emu_hold_none(r);
}

static void with_peer(emu_rank_t *r, void (*body)(emu_rank_t *r))
{
    if (r->rank == 0)
        emu_set(r, 1, (uint64_t)(uintptr_t)r->ctx);
    emu_barrier(r);
    body(r);
}
static void rung(emu_rank_t *r) { with_peer(r, rung_body); }
static void found(emu_rank_t *r) { with_peer(r, found_body); }
static void posted(emu_rank_t *r) { with_peer(r, posted_body); }

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host device", "emulated device"};
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < 4; i++) {
            wake_t w = {.count = i & 1 ? 20000 : 10, .other_tag = i >> 1};
            emu_run(&(emu_conf_t){.ranks = 2, .device = devices[d], .env = "OCCL_HELPER=0 OCCL_EMU_LANES=1", .arg = &w}, rung,
                    "%s: a start rings whoever is about to sleep, count %d%s", name[d], (int)w.count,
                    w.other_tag ? ", also if it waits for another run" : "");
        }
    }
    for (int i = 0; i < 2; i++) {
        wake_t w = {.count = i & 1 ? 20000 : 10};
        emu_run(&(emu_conf_t){.ranks = 2, .device = OCCL_DEVICE_HOST, .env = "OCCL_HELPER=0", .arg = &w}, found,
                "host device: a start that was too early to ring is found by the last look, count %d", (int)w.count);
    }
    {
        wake_t w = {.count = 10};
        emu_run(&(emu_conf_t){.ranks = 2, .device = OCCL_DEVICE_HOST, .env = "OCCL_HELPER=0", .arg = &w}, posted,
                "host device: messages ring whoever is about to sleep");
    }
    return tap_done();
}
