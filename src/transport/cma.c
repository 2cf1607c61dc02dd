/* SPDX-License-Identifier: BSD-3-Clause */
/* Single copy between processes; see cma.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "util/strbuf.h"
#include "transport/cma.h"

#define CMA_FAIL (OCCL_VIA_FAIL_PULL | OCCL_VIA_FAIL_PUSH)
/* One call moves at most this much, so that a signal or a dying peer is noticed in time. */
#define CMA_PIECE ((uint64_t)4 << 20)

uint64_t occl_cma_via(const occl_arena_t *self, const occl_arena_desc_t *peer)
{
    return occl_proc_equal(occl_arena_proc(self), &peer->proc) ? 0 : (uint64_t)peer->proc.pid;
}

/* 0, or the reason as an errno. Addresses are of the peer, so they stay integers. */
static int cma_move(uint64_t via, char *local, uint64_t remote, uint64_t bytes, int push)
{
    pid_t pid = (pid_t)(via & 0xffffffffu);

    if (via & (push ? OCCL_VIA_FAIL_PUSH : OCCL_VIA_FAIL_PULL))
        return EPERM;
    if ((via & ~CMA_FAIL) == 0) {
        /* memmove, not memcpy: an in-place collective may name the same bytes on both sides */
        if (push)
            memmove((void *)(uintptr_t)remote, local, bytes);
        else
            memmove(local, (const void *)(uintptr_t)remote, bytes);
        return 0;
    }
    while (bytes > 0) {
        uint64_t piece = bytes < CMA_PIECE ? bytes : CMA_PIECE;
        struct iovec here = {local, piece};
        struct iovec there = {(void *)(uintptr_t)remote, piece};
        ssize_t n = push ? process_vm_writev(pid, &here, 1, &there, 1, 0)
                         : process_vm_readv(pid, &here, 1, &there, 1, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            return EFAULT; /* no progress is no success */
        local += n; /* a short transfer goes on; what stopped it shows at the next call */
        remote += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

int occl_host_pull(uint64_t via, void *local, uint64_t remote, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    return cma_move(via, (char *)local, remote, bytes, 0) ? -1 : 0;
}

int occl_host_push(uint64_t via, const void *local, uint64_t remote, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    return cma_move(via, (char *)(uintptr_t)local, remote, bytes, 1) ? -1 : 0;
}

occl_status_t occl_cma_probe(const occl_arena_t *self, const occl_arena_desc_t *peer,
                             uint64_t remote, uint64_t nonce, uint64_t *via_p, char *err,
                             size_t errlen)
{
    const occl_proc_id_t *me = occl_arena_proc(self);
    uint64_t via = occl_cma_via(self, peer), probe = via, seen = 0;
    const char *what;
    occl_strbuf_t b;
    int reason;

    occl_strbuf_fixed(&b, err, err ? errlen : 0);
    if (!occl_node_equal(&me->node, &peer->proc.node)) {
        occl_strbuf_printf(&b, "single copy from pid %lu: it is on another node",
                           (unsigned long)peer->proc.pid);
        return OCCL_ERR_UNSUPPORTED;
    }
    if (me->pid_ns != peer->proc.pid_ns) {
        /* the number may belong to somebody else here */
        occl_strbuf_printf(&b, "single copy from pid %lu: it is in another pid namespace",
                           (unsigned long)peer->proc.pid);
        return OCCL_ERR_UNSUPPORTED;
    }
    if (peer->faults & OCCL_FAULT_PULL)
        probe |= OCCL_VIA_FAIL_PULL;
    if (peer->faults & OCCL_FAULT_PUSH)
        probe |= OCCL_VIA_FAIL_PUSH;

    if (probe == 0) {
        *via_p = 0; /* one address space needs no proof */
        return OCCL_OK;
    }
    what = "reading from";
    reason = cma_move(probe, (char *)&seen, remote, sizeof seen, 0);
    if (reason == 0 && seen != nonce)
        reason = ESRCH; /* another process, or another address space than described */
    if (reason == 0) {
        /* The same value again: any number of peers may probe at a time. */
        what = "writing to";
        reason = cma_move(probe, (char *)&seen, remote, sizeof seen, 1);
    }
    if (reason == 0) {
        *via_p = via;
        return OCCL_OK;
    }
    occl_strbuf_printf(&b, "single copy: %s pid %lu failed: %s%s", what,
                       (unsigned long)peer->proc.pid, strerror(reason),
                       reason == EPERM ? " (see ptrace_scope, container capabilities)" : "");
    return OCCL_ERR_UNSUPPORTED;
}
