/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated device's own hooks, for tests (builds with OCCL_EMU only): what a program does to a GPU beside our collectives.
 *
 * A *GPU* has SM slots; a *device* (occl_device_t, one a context, that is: one a process) puts the blocks of its daemon launches and
 * of the application's kernels into them, first come first served. By default each device has a GPU of its own with OCCL_EMU_SLOTS
 * slots. CUDA's rules that matter are kept:
 *
 *   - launches on the daemon's stream run one after the other; a launch's blocks start in any order, as slots become free;
 *   - a synchronising call waits for everything that the process has launched before, and while it waits every other launch of
 *     the process waits for it (the API lock);
 *   - so does the first launch of any kernel under lazy loading.
 */
#ifndef OCCL_SRC_DEVICE_EMU_H
#define OCCL_SRC_DEVICE_EMU_H

#include "device/device.h"

typedef struct occl_emu_gpu occl_emu_gpu_t;
typedef struct occl_emu_kernel occl_emu_kernel_t;

occl_emu_gpu_t *occl_emu_gpu_create(uint32_t slots);
/* No device sits on it any more. */
void occl_emu_gpu_destroy(occl_emu_gpu_t *gpu);
/* Devices that the calling thread creates from now on sit on this GPU; NULL: each one on its own. */
void occl_emu_use_gpu(occl_emu_gpu_t *gpu);

/* Blocks on the GPU now, of all processes, daemons' and applications'. */
uint32_t occl_emu_gpu_resident(occl_emu_gpu_t *gpu);
/* Blocks of this process's daemon that are on its GPU now. */
uint32_t occl_emu_resident(occl_device_t *dev);

/*
 * cudaDeviceSynchronize, cudaFree: returns when all that the process had launched before has left, after at most OCCL_RESIDENCE
 * and one pass for each daemon that shares the slots, and the rest of the application's kernels. The nanoseconds it took.
 */
uint64_t occl_emu_synchronize(occl_device_t *dev);
/* The first launch of a kernel of the application's: waits until no block of the process is resident. The nanoseconds it took. */
uint64_t occl_emu_first_launch(occl_device_t *dev);

/* A kernel of the application: occupies so many slots for ns each (OCCL_INF: until stopped). Returns when it is queued. */
occl_emu_kernel_t *occl_emu_kernel_start(occl_device_t *dev, uint32_t blocks, uint64_t ns);
/* Waits until all its blocks are on the GPU. */
void occl_emu_kernel_resident(occl_emu_kernel_t *k);
void occl_emu_kernel_stop(occl_emu_kernel_t *k);
/* Waits for its end and frees it. */
void occl_emu_kernel_join(occl_emu_kernel_t *k);

/* What would have been CUDA calls. */
typedef struct occl_emu_counts {
    uint64_t launches;         /* kernel launches of ours */
    uint64_t launches_blocked; /* of those, that had to wait for the API lock */
    uint64_t allocs, frees;    /* device memory, ours */
    uint64_t syncs;            /* synchronising calls of ours */
    uint64_t stay_ns_max;      /* longest time that a block of ours has stayed */
} occl_emu_counts_t;
void occl_emu_counts(occl_device_t *dev, occl_emu_counts_t *counts_p);

/* Chaos for the host device of this build (it has no blocks): seed for the calling thread's passes, 0: none. */
void occl_emu_host_chaos(uint64_t seed);

#endif
