/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine for processors: one translation unit, built as the production host device (one lane) and as the emulation
 * (OCCL_EMU, several lanes). See daemon.h.
 */
#include "daemon.h"

#include "occl_dev_sched.h"

#if defined(OCCL_EMU) && OCCL_EMU
void occl_emu_daemon(uint32_t lane, uint32_t nlanes, void *block, occl_daemon_t *d, uint32_t channel, uint64_t launch)
{
    occl_lanes_t l;
    l.rank = lane;
    l.count = nlanes;
    l.block = block;
    occl_dev_daemon(l, d, d, &d->chan[channel], launch);
}
#endif

uint32_t occl_host_pass(occl_daemon_t *d, uint32_t patient)
{
#if defined(OCCL_EMU) && OCCL_EMU
    occl_lanes_t l = {0, 1, 0};
#else
    occl_lanes_t l = {0};
#endif
    return occl_dev_pass(l, d, &d->chan[0], patient);
}

uint64_t occl_host_type_bytes(uint32_t type) { return occl_dev_type_bytes(type); }
uint32_t occl_host_op_valid(uint32_t op, uint32_t type) { return occl_dev_op_valid(op, type); }
uint32_t occl_cuda_op_valid(uint32_t op, uint32_t type) { return !occl_dev_type_is_host(type) && occl_dev_op_valid(op, type); }
