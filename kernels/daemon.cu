/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine for CUDA: the only .cu file, so no device link step. Block b of the grid is channel b. Only launched, never linked
 * against, by src/device/cuda.c.
 */
#include "occl_dev_sched.h"

extern "C" __global__ void __launch_bounds__(512, 1) occl_k_daemon(occl_daemon_t *d, uint64_t launch)
{
    occl_lanes_t l = {0};
    occl_dev_daemon(l, d, &d->chan[blockIdx.x], launch);
}
