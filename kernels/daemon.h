/* SPDX-License-Identifier: BSD-3-Clause */
/* What src/device calls of the engine built for processors. */
#ifndef OCCL_KERNELS_DAEMON_H
#define OCCL_KERNELS_DAEMON_H

#include "occl_dev_chan.h"

/* One pass over the only channel, by the calling thread. The caller holds whatever lock makes it the channel's only user.
 * Without patience a blocked run is left at once (the call in a start). Returns whether anything moved. */
uint32_t occl_host_pass(occl_daemon_t *d, uint32_t patient);

/* One lane of one channel's daemon; returns when the daemon leaves the device. Emulation only. */
void occl_emu_daemon(uint32_t lane, uint32_t nlanes, void *block, occl_daemon_t *d, uint32_t channel, uint64_t launch);

/* The engine's tables, for argument checks. */
uint64_t occl_host_type_bytes(uint32_t type);
uint32_t occl_host_op_valid(uint32_t op, uint32_t type);
/* The same of the engine that nvcc compiles */
uint32_t occl_cuda_op_valid(uint32_t op, uint32_t type);

#endif
