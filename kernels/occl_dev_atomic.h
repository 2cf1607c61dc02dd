/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one file that speaks memory order. Two columns of the same names.
 *
 *   _sys   between the processor, other processes and other GPUs
 *   _dev   between the channels of one device
 *
 * load_acquire  what is written before the store_release that it reads is seen by every later load of this lane
 *               (after occl_sync: of the block).
 * store_release all earlier stores of this lane (before an occl_sync: of the block) are seen by whoever acquires it.
 * fence_sys     orders everything before it with everything after it, stores with later loads too; the one place where
 *               "I store mine, then read yours" (sleep against wake, withdraw against open) is decided.
 *
 * Every shared word has one writer, except where the comment at its declaration says otherwise; read-modify-write is used
 * only between channels of one device (occl_add_dev) and never shared by CPU and GPU.
 */
#ifndef OCCL_KERNELS_ATOMIC_H
#define OCCL_KERNELS_ATOMIC_H

#include "occl_dev.h"

#if OCCL_CUDA
#define OCCL_ATOMIC_COLUMN(bits)                                                                                   \
    OCCL_FN uint##bits##_t occl_load_relaxed##bits(const uint##bits##_t *p)                                        \
    {                                                                                                              \
        return __nv_atomic_load_n((uint##bits##_t *)p, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM);            \
    }                                                                                                              \
    OCCL_FN uint##bits##_t occl_load_acquire##bits(const uint##bits##_t *p)                                        \
    {                                                                                                              \
        return __nv_atomic_load_n((uint##bits##_t *)p, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM);            \
    }                                                                                                              \
    OCCL_FN void occl_store_relaxed##bits(uint##bits##_t *p, uint##bits##_t v)                                     \
    {                                                                                                              \
        __nv_atomic_store_n(p, v, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM);                                  \
    }                                                                                                              \
    OCCL_FN void occl_store_release##bits(uint##bits##_t *p, uint##bits##_t v)                                     \
    {                                                                                                              \
        __nv_atomic_store_n(p, v, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_SYSTEM);                                  \
    }
OCCL_FN void occl_fence_sys(void) { __nv_atomic_thread_fence(__NV_ATOMIC_SEQ_CST, __NV_THREAD_SCOPE_SYSTEM); }
/* Orders what is before it with relaxed stores after it: a release for several words at once. */
OCCL_FN void occl_fence_release(void) { __nv_atomic_thread_fence(__NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_SYSTEM); }
/* Returns the value before. Acquire and release, among the channels of one device. */
OCCL_FN uint32_t occl_add_dev(uint32_t *p, uint32_t v)
{
    return __nv_atomic_fetch_add(p, v, __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_DEVICE);
}
OCCL_FN uint64_t occl_load_acquire_dev64(const uint64_t *p)
{
    return __nv_atomic_load_n((uint64_t *)p, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE);
}
OCCL_FN void occl_store_release_dev64(uint64_t *p, uint64_t v)
{
    __nv_atomic_store_n(p, v, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
}
/* Two neighbouring words in one access of 16 bytes, 16-byte aligned; each of the two is whole. */
OCCL_FN void occl_load_two(const uint64_t *p, uint64_t *a, uint64_t *b)
{
    asm volatile("{ .reg .b128 w; ld.relaxed.sys.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
                 : "=l"(*a), "=l"(*b) : "l"(p) : "memory");
}
OCCL_FN void occl_load_two_acquire(const uint64_t *p, uint64_t *a, uint64_t *b)
{
    asm volatile("{ .reg .b128 w; ld.acquire.sys.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
                 : "=l"(*a), "=l"(*b) : "l"(p) : "memory");
}
OCCL_FN void occl_store_two(uint64_t *p, uint64_t a, uint64_t b)
{
    asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.sys.b128 [%0], w; }"
                 : : "l"(p), "l"(a), "l"(b) : "memory");
}
#else
#define OCCL_ATOMIC_COLUMN(bits)                                                                                   \
    OCCL_FN uint##bits##_t occl_load_relaxed##bits(const uint##bits##_t *p)                                        \
    {                                                                                                              \
        return __atomic_load_n(p, __ATOMIC_RELAXED);                                                               \
    }                                                                                                              \
    OCCL_FN uint##bits##_t occl_load_acquire##bits(const uint##bits##_t *p)                                        \
    {                                                                                                              \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);                                                               \
    }                                                                                                              \
    OCCL_FN void occl_store_relaxed##bits(uint##bits##_t *p, uint##bits##_t v)                                     \
    {                                                                                                              \
        __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                                  \
    }                                                                                                              \
    OCCL_FN void occl_store_release##bits(uint##bits##_t *p, uint##bits##_t v)                                     \
    {                                                                                                              \
        __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                                  \
    }
OCCL_FN void occl_fence_sys(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
OCCL_FN void occl_fence_release(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
OCCL_FN uint32_t occl_add_dev(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
OCCL_FN uint64_t occl_load_acquire_dev64(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
OCCL_FN void occl_store_release_dev64(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
OCCL_FN void occl_load_two(const uint64_t *p, uint64_t *a, uint64_t *b)
{
    *b = __atomic_load_n(p + 1, __ATOMIC_ACQUIRE); /* first: b is the flag where one of the two is */
    *a = __atomic_load_n(p, __ATOMIC_RELAXED);
}
OCCL_FN void occl_load_two_acquire(const uint64_t *p, uint64_t *a, uint64_t *b)
{
    *b = __atomic_load_n(p + 1, __ATOMIC_ACQUIRE);
    *a = __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
OCCL_FN void occl_store_two(uint64_t *p, uint64_t a, uint64_t b)
{
    __atomic_store_n(p, a, __ATOMIC_RELAXED);
    __atomic_store_n(p + 1, b, __ATOMIC_RELEASE);
}
#endif

OCCL_ATOMIC_COLUMN(32)
OCCL_ATOMIC_COLUMN(64)

/*
 * Data-with-flag words: payload and flag in one relaxed system-scope access that the memory model calls atomic, so that the
 * arrival of the flag is the arrival of the data and neither needs a fence. 4 + 4 bytes in 8 on the host; 8 + 8 in 16 on
 * CUDA, where the compiler has no name for such an access (a vector access is several) and it is PTX. p is aligned to it.
 */
#if OCCL_CUDA
typedef uint64_t occl_word_t;
OCCL_FN void occl_store_word(void *p, occl_word_t data, uint32_t flag)
{
    asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.sys.b128 [%0], w; }"
                 : : "l"(p), "l"(data), "l"((uint64_t)flag) : "memory");
}
OCCL_FN uint32_t occl_load_word(const void *p, occl_word_t *data)
{
    uint64_t flag;
    asm volatile("{ .reg .b128 w; ld.relaxed.sys.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
                 : "=l"(*data), "=l"(flag) : "l"(p) : "memory");
    return (uint32_t)flag;
}
#else
typedef uint32_t occl_word_t;
OCCL_FN void occl_store_word(void *p, occl_word_t data, uint32_t flag)
{
    occl_store_relaxed64((uint64_t *)p, (uint64_t)flag << 32 | data);
}
OCCL_FN uint32_t occl_load_word(const void *p, occl_word_t *data)
{
    uint64_t w = occl_load_relaxed64((const uint64_t *)p);
    *data = (occl_word_t)w;
    return (uint32_t)(w >> 32);
}
/*
 * Two words in one 16-byte access, {data, flag, data, flag}: only that each word stays whole matters. x86 with AVX promises
 * it for all 16 aligned bytes, and older ones split at 8. volatile: one access, as written. Not in the emulation and where
 * ThreadSanitizer looks on, which has to recognise an atomic access.
 */
#if defined(__SSE2__) && !(defined(OCCL_EMU) && OCCL_EMU) && !defined(__SANITIZE_THREAD__) && defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define OCCL_WORD_PAIRS 1
typedef uint32_t occl_word_pair_t __attribute__((vector_size(16), may_alias));
OCCL_FN void occl_store_word_pair(void *p, occl_word_pair_t v) { *(volatile occl_word_pair_t *)p = v; }
OCCL_FN occl_word_pair_t occl_load_word_pair(const void *p) { return *(const volatile occl_word_pair_t *)p; }
#endif
#endif
#endif

#ifndef OCCL_WORD_PAIRS
#define OCCL_WORD_PAIRS 0
#endif

/*
 * Shared memory for tiles on their way (occl_dev_data.h), where the architecture has bulk copies; the launcher gives it. Registers
 * allow a multiprocessor one block anyway.
 */
#define OCCL_BULK_BYTES (128 * 1024)
#if OCCL_CUDA
/* What bulk copies are made of. They are a way of their own to memory (the async proxy), ordered by mbarriers and fences. */
#define OCCL_BULK_STAGES 8
#if __CUDA_ARCH__ >= 900
extern __shared__ __align__(128) unsigned char occl_bulk_tiles[];
/* A stage's barriers, "full" and "read"; then which of them have been used an odd number of times. */
OCCL_FN uint64_t *occl_bulk_words(void)
{
    __shared__ uint64_t words[2 * OCCL_BULK_STAGES + 1];
    return words;
}
OCCL_FN uint32_t occl_bulk_there(void)
{
    uint32_t bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    return bytes >= OCCL_BULK_BYTES;
}
OCCL_FN uint32_t occl_bulk_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
OCCL_FN void occl_bulk_open(occl_lanes_t l)
{
    if (occl_lane(l) != 0)
        return;
#pragma unroll 1
    for (uint32_t i = 0; i < 2 * OCCL_BULK_STAGES; i++)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                     : : "r"(occl_bulk_address(occl_bulk_words() + i)), "r"(i < OCCL_BULK_STAGES ? 1 : occl_nlanes(l) / 32) : "memory");
    occl_bulk_words()[2 * OCCL_BULK_STAGES] = 0;
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}
OCCL_FN void occl_bulk_fence(void) { asm volatile("fence.proxy.async;" : : : "memory"); }
/* `bytes` of every source, from `at` on, to the stage, where each has room for a tile. */
OCCL_FN void occl_bulk_ask(uint32_t stage, const void *const *src, uint32_t nsrc, uint64_t at, uint32_t tile, uint32_t bytes)
{
    uint32_t full = occl_bulk_address(occl_bulk_words() + stage), to = occl_bulk_address(occl_bulk_tiles) + stage * nsrc * tile;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(full), "r"(nsrc * bytes) : "memory");
#pragma unroll 1
    for (uint32_t s = 0; s < nsrc; s++)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     : : "r"(to + s * tile), "l"(__cvta_generic_to_global((const char *)src[s] + at)), "r"(bytes), "r"(full) : "memory");
}
/* A tile to where it belongs; at most one earlier tile is still being read when this returns. */
OCCL_FN void occl_bulk_give(const char *tile, void *dst, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 : : "l"(__cvta_generic_to_global(dst)), "r"(occl_bulk_address(tile)), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}
/* All that was given is where it belongs. */
OCCL_FN void occl_bulk_given(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
    occl_bulk_fence();
}
/* This warp has read its part of the stage. */
OCCL_FN void occl_bulk_done(occl_lanes_t l, uint32_t stage)
{
    __syncwarp();
    if (occl_lane(l) % 32 == 0)
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(occl_bulk_address(occl_bulk_words() + OCCL_BULK_STAGES + stage)) : "memory");
}
/* For barrier `which`. Not bounded, as a load is not. */
OCCL_FN void occl_bulk_wait(uint32_t which, uint32_t parity)
{
    uint32_t full = occl_bulk_address(occl_bulk_words() + which), there;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(there) : "r"(full), "r"(parity) : "memory");
    } while (!there);
}
#else
OCCL_FN uint32_t occl_bulk_there(void) { return 0; }
OCCL_FN void occl_bulk_open(occl_lanes_t l) { (void)l; }
#endif
#endif

#endif
