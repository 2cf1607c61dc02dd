/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon on a CUDA device: its memory, its launches, what goes in and comes out through the front. No CUDA header is needed to
 * include this. It knows nothing of communicators: runs, plans and links in device memory are the caller's.
 *
 * Calls are made under the caller's lock. occl_cuda_put and occl_cuda_pop make no CUDA call; occl_cuda_launch may block while
 * another thread is stuck in cudaFree and the like (doc/cuda.md), so no thread that others wait for may be the one to launch
 * while such a call can be under way.
 */
#ifndef OCCL_SRC_DEVICE_CUDA_H
#define OCCL_SRC_DEVICE_CUDA_H

#include <stddef.h>

#include "kernels/occl_dev_chan.h"
#include "kernels/occl_dev_front.h"
#include "util/status.h"

typedef struct occl_cuda {
    int device;
    uint32_t nchannels, lanes, cluster;
    uint32_t grid;              /* channels of the next launch, at most nchannels */
    uint32_t most;              /* ... at most */
    uint32_t shared;            /* a block's OCCL_BULK_BYTES, or 0 */
    occl_daemon_t *daemon;      /* device memory */
    occl_chan_t *chan;          /* device memory [nchannels] */
    const void **srcs;          /* device memory */
    void *quicks;               /* device memory */
    occl_front_t *front;        /* mapped host memory, the same address on both sides */
    void *stream;               /* cudaStream_t */
    void *side;                 /* cudaStream_t for what may not wait for the daemon */
    unsigned char uuid[16];
    char name[64];
    uint32_t processors;        /* SMs */
    uint32_t shared_gpu;        /* by MPS */
    uint64_t submitted, launches;
    uint64_t got[OCCL_CHANNELS_MAX];
    /* The driver's own: no header of its, and the runtime's query makes "not ready" the thread's last error. */
    int (*stream_write)(void *stream, unsigned long long at, uint64_t value, unsigned int flags);
    int (*stream_wait)(void *stream, unsigned long long at, uint64_t value, unsigned int flags);
    int (*stream_flags)(void *stream, unsigned int *flags);
    int (*stream_query)(void *stream);
    char error[200];
} occl_cuda_t;

/* cluster: blocks a cluster, 1 for none. OCCL_ERR_UNSUPPORTED: no such GPU. On failure *error says why and nothing is left. */
occl_status_t occl_cuda_open(int device, uint32_t nchannels, uint32_t lanes, uint32_t cluster, uint32_t max_ranks,
                             const occl_sched_conf_t *conf, occl_cuda_t *cu);
/* The daemon is out, or leaves within its residence. */
void occl_cuda_close(occl_cuda_t *cu);

/* Waits until the daemon has left. */
void occl_cuda_quiet(occl_cuda_t *cu);

/* Device memory of the daemon's GPU, zeroed; copies are done when these return. */
void *occl_cuda_alloc(occl_cuda_t *cu, size_t bytes);
void occl_cuda_free(occl_cuda_t *cu, void *p);
/* Host memory that the device can address, at the same address; zeroed. */
void *occl_cuda_alloc_mapped(occl_cuda_t *cu, size_t bytes);
void occl_cuda_free_mapped(occl_cuda_t *cu, void *p);
/* An IPC handle of what occl_cuda_alloc gave. */
occl_status_t occl_cuda_export(occl_cuda_t *cu, void *p, unsigned char handle[64]);
/* Beside the daemon, from any thread: zeroes, and if `done` returns when that and all before it has been done; sets n words. */
occl_status_t occl_cuda_zero(occl_cuda_t *cu, void *p, size_t bytes, int done);
occl_status_t occl_cuda_fill(occl_cuda_t *cu, void *p, size_t stride, uint32_t n, uint64_t value);
occl_status_t occl_cuda_upload(occl_cuda_t *cu, void *dev, const void *host, size_t bytes);
occl_status_t occl_cuda_download(occl_cuda_t *cu, void *host, const void *dev, size_t bytes);

/*
 * Submits a run: `run` is the host's view of it (the words plan .. chunk hold device addresses; xsend and xrecv are ignored),
 * `at` its place in device memory, `left` the channels that have not finished it. x: xsend then xrecv of 2 * nranks words, or
 * NULL; `far_x`: device memory for as many words when nranks > OCCL_SUB_RANKS, and then x must be mapped memory.
 */
void occl_cuda_put(occl_cuda_t *cu, const occl_dev_run_t *run, uint64_t at, uint32_t channels, uint32_t left, int fresh,
                   uint32_t nranks, const uint64_t *x, uint64_t far_x);
/* Withdraws it at its next blocked step. Comes after the submission, and before the next one of the same place. */
void occl_cuda_drop(occl_cuda_t *cu, uint64_t at);
/* Copies `words` of 8 bytes from mapped memory to device memory before the next submission is looked at. */
void occl_cuda_load(occl_cuda_t *cu, uint64_t to, const void *mapped, uint64_t words);
/* The next completion: address of the run in device memory, or 0. */
uint64_t occl_cuda_pop(occl_cuda_t *cu, uint32_t *what_p);

/* The last launch has left the device; *seen_p (may be NULL): all that was submitted had been taken then. */
int occl_cuda_is_out(const occl_cuda_t *cu, int *seen_p);
/* Words of mapped memory, and streams (cudaStream_t) of the caller. */
occl_status_t occl_cuda_stream_check(occl_cuda_t *cu, void *stream, char *err, size_t errlen);
occl_status_t occl_cuda_stream_write(occl_cuda_t *cu, void *stream, uint64_t *word, uint64_t value);
/* All that was put into it is done, and nothing of another stream holds it up. False where that cannot be told. */
int occl_cuda_stream_idle(occl_cuda_t *cu, void *stream);
/* kernel: by a kernel, not by the stream. */
occl_status_t occl_cuda_stream_wait(occl_cuda_t *cu, void *stream, uint64_t *word, uint64_t value, int kernel);
/* For whoever counts launches: this is launch `number`, of `grid` channels. */
occl_status_t occl_cuda_launch_as(occl_cuda_t *cu, uint64_t number, uint32_t grid);
occl_status_t occl_cuda_launch(occl_cuda_t *cu);

#endif
