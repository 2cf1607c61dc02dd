/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one file that asks which compiler this is.
 *
 * Everything in kernels/ is a C subset that gcc and nvcc both take (no implicit void * conversion, no restrict,
 * no _Static_assert, no out-of-order designated initialisers) and includes <stdint.h> only. It is built three times:
 *
 *   CUDA         nvcc, a block of threads per channel
 *   production   gcc -O3, one lane per channel: every lane test below is a compile-time constant
 *   emulation    gcc -DOCCL_EMU=1, several pthreads play the lanes of a block, with seeded random delays ("chaos")
 *
 * No device function waits. What it cannot do now it reports as OCCL_AGAIN, and the scheduler decides.
 */
#ifndef OCCL_KERNELS_DEV_H
#define OCCL_KERNELS_DEV_H

#include <stdint.h>

#if defined(__CUDACC__)
#define OCCL_CUDA 1
#define OCCL_FN static __device__ __forceinline__
#define OCCL_FN_BIG static __device__ __forceinline__ /* too: around a call ptxas saves registers, up to a hundred */
#define OCCL_ASSERT_STATIC(cond, name) static_assert(cond, #name)
/* Before a loop that is short or rare: nvcc would unroll it, for registers that the daemon does not have. */
#define OCCL_ROLLED _Pragma("unroll 1")
#define OCCL_UNROLLED _Pragma("unroll")
#else
#define OCCL_CUDA 0
#define OCCL_FN static inline __attribute__((always_inline))
#define OCCL_FN_BIG static __attribute__((unused))
#define OCCL_ASSERT_STATIC(cond, name) _Static_assert(cond, #name)
#define OCCL_ROLLED
#define OCCL_UNROLLED
#endif

#define OCCL_CACHE_LINE 64

/* What a step or a run answers. Uniform over the lanes of a block, always. */
enum {
    OCCL_DONE = 0,
    OCCL_AGAIN = 1,     /* not now: nothing was changed */
    OCCL_MISMATCH = 2,  /* a peer's message carries another signature */
    OCCL_DROPPED = 3,   /* the host withdrew the run */
    OCCL_FAULT = 4      /* a peer's memory could not be reached */
};

/* The threads of a channel. Code never asks threadIdx or a thread id anywhere else. */
#if OCCL_CUDA
typedef struct occl_lanes {
    uint32_t unused;
} occl_lanes_t;
OCCL_FN uint32_t occl_lane(occl_lanes_t l) { (void)l; return threadIdx.x; }
OCCL_FN uint32_t occl_nlanes(occl_lanes_t l) { (void)l; return blockDim.x; }
OCCL_FN void occl_sync(occl_lanes_t l) { (void)l; __syncthreads(); }
/* Lane 0's value, for all lanes. A barrier on both sides of the exchange. */
OCCL_FN uint32_t occl_uniform(occl_lanes_t l, uint32_t v)
{
    __shared__ uint32_t box;
    (void)l;
    __syncthreads();
    if (threadIdx.x == 0)
        box = v;
    __syncthreads();
    return box;
}
/* True when all lanes say so. */
OCCL_FN uint32_t occl_all(occl_lanes_t l, uint32_t v) { (void)l; return (uint32_t)__syncthreads_and((int)v); }
OCCL_FN void occl_chaos(occl_lanes_t l) { (void)l; }
OCCL_FN void occl_relax(void) { __nanosleep(20); }
OCCL_FN uint64_t occl_clock_ns(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) : : "memory");
    return t;
}
#else /* host */
#if defined(OCCL_EMU) && OCCL_EMU
typedef struct occl_lanes {
    uint32_t rank, count;
    void *block;  /* struct occl_emu_block of src/device/emu.c */
} occl_lanes_t;
void occl_emu_sync(void *block);
uint32_t occl_emu_uniform(void *block, uint32_t lane, uint32_t v);
uint32_t occl_emu_all(void *block, uint32_t lane, uint32_t v);
void occl_emu_chaos(void *block);
OCCL_FN uint32_t occl_lane(occl_lanes_t l) { return l.rank; }
OCCL_FN uint32_t occl_nlanes(occl_lanes_t l) { return l.count; }
OCCL_FN void occl_sync(occl_lanes_t l) { if (l.count > 1) occl_emu_sync(l.block); }
OCCL_FN uint32_t occl_uniform(occl_lanes_t l, uint32_t v)
{
    return l.count > 1 ? occl_emu_uniform(l.block, l.rank, v) : v;
}
OCCL_FN uint32_t occl_all(occl_lanes_t l, uint32_t v)
{
    return l.count > 1 ? occl_emu_all(l.block, l.rank, v) : v;
}
OCCL_FN void occl_chaos(occl_lanes_t l) { occl_emu_chaos(l.block); }
#else
typedef struct occl_lanes {
    uint32_t unused;
} occl_lanes_t;
OCCL_FN uint32_t occl_lane(occl_lanes_t l) { (void)l; return 0; }
OCCL_FN uint32_t occl_nlanes(occl_lanes_t l) { (void)l; return 1; }
OCCL_FN void occl_sync(occl_lanes_t l) { (void)l; }
OCCL_FN uint32_t occl_uniform(occl_lanes_t l, uint32_t v) { (void)l; return v; }
OCCL_FN uint32_t occl_all(occl_lanes_t l, uint32_t v) { (void)l; return v; }
OCCL_FN void occl_chaos(occl_lanes_t l) { (void)l; }
#endif
#if defined(__x86_64__) || defined(__i386__)
OCCL_FN void occl_relax(void) { __builtin_ia32_pause(); }
#else
OCCL_FN void occl_relax(void) { __asm__ __volatile__("" : : : "memory"); }
#endif
uint64_t occl_host_clock_ns(void);
OCCL_FN uint64_t occl_clock_ns(void) { return occl_host_clock_ns(); }
/*
 * Single-copy access to another process's memory (transport/cma.c): 0, or -1 when the peer is gone. The device code
 * names the peer by the opaque handle that the host put into the run.
 */
int occl_host_pull(uint64_t via, void *local, uint64_t remote, uint64_t bytes);
int occl_host_push(uint64_t via, const void *local, uint64_t remote, uint64_t bytes);
#endif

#endif
