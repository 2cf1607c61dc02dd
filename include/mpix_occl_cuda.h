/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA streams as queues of MPIX_Occl. Needs no header of CUDA's.
 *
 *     MPIX_Occl_allreduce_enqueue(in, out, n, MPI_FLOAT, MPI_SUM, tag, comm, MPIX_OCCL_QUEUE_CUDA_STREAM,
 *                                 MPIX_Occl_cuda_queue(stream));
 *
 * A queue of the type MPIX_OCCL_QUEUE_CUDA_STREAM is the value of a cudaStream_t (the driver's CUstream is the same type), as a
 * void *. NULL is the legacy default stream, cudaStreamLegacy and cudaStreamPerThread are what CUDA says they are. The stream
 * must be one of the device that the communicator was attached to, and must not be destroyed by another thread during the call;
 * afterwards it may be, as CUDA says: what is in it goes on.
 */
#ifndef MPIX_OCCL_CUDA_H
#define MPIX_OCCL_CUDA_H

#include <mpix_occl.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* *(cudaStream_t) */

/* For the argument `queue`: so that the compiler sees that it is a stream, and no pointer to one. */
static inline void *MPIX_Occl_cuda_queue(struct CUstream_st *stream) { return (void *)stream; }

#ifdef __cplusplus
}
#endif

#endif
