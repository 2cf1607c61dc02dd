/* SPDX-License-Identifier: BSD-3-Clause */
/* A run that waits for long is named once, with whom it waits for; also when nobody waits and only the helper looks. */
#define _GNU_SOURCE /* pipe2 */
#include "emu.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LATE_NS = 900000000 };

typedef struct late {
    int in_wait; /* rank 0 waits, or it computes */
    int warn;    /* a warning is expected */
} late_t;

static void late_body(emu_rank_t *r)
{
    static const char waited[] = "tag 7 run 1 has waited";
    const late_t *l = r->arg;
    occl_coll_args_t args = {.kind = OCCL_COLL_ALLREDUCE, .type = OCCL_T_I32, .op = OCCL_OP_SUM, .root = -1, .count = 1};
    int32_t in = 1, out = 0;
    occl_run_t *run = NULL;
    int fd[2] = {-1, -1};
    args.send = &in;
    args.recv = &out;
    if (r->rank == 0) {
        emu_check(r, pipe2(fd, O_NONBLOCK) == 0, "a pipe");
        r->ctx->log.fd = fd[1];
    } else {
        emu_sleep(LATE_NS);
    }
    emu_check(r, occl_start(r->comm, 7, &args, &run) == OCCL_OK, "%s", occl_last_error());
    if (r->rank == 0 && !l->in_wait)
        emu_sleep(LATE_NS + 100000000);
    occl_run_wait(run);
    emu_check(r, occl_run_status(run) == OCCL_OK && out == r->size, "sum %d", out);
    occl_run_release(run);
    if (r->rank == 0) {
        char text[2048];
        ssize_t n = read(fd[0], text, sizeof(text) - 1);
        const char *first;
        text[n > 0 ? n : 0] = 0;
        first = strstr(text, waited);
        emu_check(r, !first == !l->warn, "said: %s", text);
        emu_check(r, !l->warn || (strstr(text, "not started by member 1") && strstr(text, "member 2")), "said: %s", text);
        emu_check(r, !first || !strstr(first + strlen(waited), "has waited"), "said twice: %s", text);
        r->ctx->log.fd = 2;
        close(fd[0]);
        close(fd[1]);
    }
}

int main(void)
{
    static const occl_device_kind_t devices[] = {OCCL_DEVICE_HOST, OCCL_DEVICE_EMU};
    static const char *const name[] = {"host", "emu"};
    for (int d = 0; d < 2; d++) {
        late_t l = {.in_wait = 1, .warn = 1};
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_T_WARN=100ms", .arg = &l}, late_body,
                "%s: a late member is named to who waits for it", name[d]);
        l.in_wait = 0;
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_T_WARN=100ms", .arg = &l}, late_body,
                "%s: and to who computes", name[d]);
        l = (late_t){.in_wait = 1, .warn = 0};
        emu_run(&(emu_conf_t){.ranks = 3, .device = devices[d], .env = "OCCL_T_WARN=0", .arg = &l}, late_body,
                "%s: but not if nobody wants to know", name[d]);
    }
    return tap_done();
}
