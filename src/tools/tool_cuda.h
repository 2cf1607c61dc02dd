/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA for the tools and for test/gpu: one GPU a process, memory of every kind, copies, and the calls that wait for the
 * device. No CUDA type, so that whoever includes this needs no CUDA header; tool_cuda.c is there in builds with CUDA only.
 * Failures end the process (tool_fatal), except where a text is returned.
 */
#ifndef OCCL_SRC_TOOLS_TOOL_CUDA_H
#define OCCL_SRC_TOOLS_TOOL_CUDA_H

#include <stddef.h>

#include "tool.h"

/* Makes GPU local_rank (modulo how many there are) current. NULL, or why that cannot be (in err). */
const char *tool_cuda_open(int local_rank, char *err, size_t errlen);
void tool_cuda_close(void);
/* "NVIDIA H200, driver 13.0, runtime 13.0" */
void tool_cuda_describe(char *text, size_t len);
int tool_cuda_current(void); /* the runtime's current device */
int tool_cuda_count(void);

void *tool_cuda_alloc(tool_memory_t memory, size_t bytes);
void tool_cuda_free(tool_memory_t memory, void *p);
/* Done when it returns, for every stream; any direction. */
void tool_cuda_copy(void *to, const void *from, size_t bytes);
size_t tool_cuda_free_bytes(void); /* of the whole GPU */

/* Calls that wait for kernels of the process that run; the time of the call itself in microseconds, -1: not to be had. */
typedef enum tool_sync {
    TOOL_SYNC_DEVICE,       /* cudaDeviceSynchronize */
    TOOL_SYNC_FREE,         /* cudaFree of a fresh allocation */
    TOOL_SYNC_FIRST_LAUNCH, /* a kernel that was never launched before, to its end */
    TOOL_SYNC_FREE_HOST,    /* cudaFreeHost */
    TOOL_SYNCS
} tool_sync_t;
double tool_cuda_sync(tool_sync_t which);
const char *tool_cuda_sync_name(tool_sync_t which);

/* A stream for other libraries' collectives (cudaStream_t), and its end. */
void *tool_cuda_stream(void);
void tool_cuda_stream_wait(void);

#endif
