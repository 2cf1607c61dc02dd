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

#endif
