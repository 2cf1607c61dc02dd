/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine for CUDA: the only .cu file, so no device link step. Block b of the grid is channel b. Launched by
 * src/device/cuda.c.
 */
#include "occl_dev_sched.h"

/* Where a struct would begin whose fields from `field` on are in p. */
#define OCCL_TAIL(type, field, p) ((type *)((char *)(p) - __builtin_offsetof(type, field)))

/* A stream waits for a word of mapped memory: where a wait by the stream itself would take one queue of the hardware too many. */
extern "C" __global__ void occl_k_wait(const uint64_t *word, uint64_t value)
{
    while (occl_load_acquire64(word) < value)
        __nanosleep(2000);
}

/*
 * What the daemon reads all the time is copied to shared memory: device memory is 200 ns away, and each acquire empties the
 * first-level cache. The tail of occl_daemon_t and the head of occl_chan_t go back when it leaves.
 */
/*
 * Not all registers of a processor: of each quarter's 16384 two warps take 15872, and two of the one-warp kernels by which streams
 * wait fit beside them. Without that a block finds no room wherever such a kernel is.
 */
extern "C" __global__ void __maxnreg__(248) occl_k_daemon(occl_daemon_t *home, uint64_t launch)
{
    enum {
        daemon_bytes = sizeof(occl_daemon_t) - __builtin_offsetof(occl_daemon_t, conf),
        chan_bytes = __builtin_offsetof(occl_chan_t, inbox)
    };
    __shared__ uint64_t daemon_words[daemon_bytes / 8], chan_words[chan_bytes / 8];
    occl_lanes_t l = {0};
    occl_daemon_t *d = OCCL_TAIL(occl_daemon_t, conf, daemon_words);
    occl_chan_t *ch = (occl_chan_t *)chan_words, *ch_home = &home->chan[blockIdx.x];

    occl_copy_words(l, daemon_words, &home->conf, daemon_bytes);
    occl_copy_words(l, chan_words, ch_home, chan_bytes);
    occl_sync(l);
    if (occl_lane(l) == 0) {
        occl_cache_clear(occl_cache_of(ch));
        ch->nchannels = gridDim.x;
        ch->narrow = 0;
    }
    occl_bulk_open(l);
    occl_sync(l);
    occl_dev_daemon(l, home, d, ch, launch);
    occl_sync(l);
    occl_copy_words(l, ch_home, chan_words, chan_bytes);
    if (occl_lane(l) < sizeof(ch->stats) / 8)
        occl_store_relaxed64((uint64_t *)&d->front->stats[ch->index] + occl_lane(l), ((uint64_t *)&ch->stats)[occl_lane(l)]);
    if (ch->index == 0 && occl_lane(l) == 0)
        home->taken = d->taken;
}
