/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Other libraries of GPU collectives, to measure beside ours. Each is loaded at run time (dlopen), so that a tool runs where
 * it is not installed; its prototypes are declared by hand from its public documentation. One file a library.
 */
#ifndef OCCL_SRC_TOOLS_RIVAL_H
#define OCCL_SRC_TOOLS_RIVAL_H

#include "tool.h"

typedef struct rival {
    const char *name;
    /* Collective over comm, after tool_device_open. NULL, or why not (in err; may differ between ranks). */
    const char *(*open)(MPI_Comm comm, char *err, size_t errlen);
    void (*close)(void);
    void (*version)(char *text, size_t len);
    /* Before a job of these sizes: its own memory if it needs any. NULL, or why it cannot do this job. */
    const char *(*begin)(const tool_job_t *job);
    void (*end)(void);
    /* Puts the collective on tool_cuda_stream(): the job's buffers, or own ones of the same sizes. */
    void (*enqueue)(const tool_job_t *job);
} rival_t;

extern const rival_t rival_nccl, rival_nvshmem;

#endif
