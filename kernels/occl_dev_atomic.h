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
        return __nv_atomic_load_n(p, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM);                               \
    }                                                                                                              \
    OCCL_FN uint##bits##_t occl_load_acquire##bits(const uint##bits##_t *p)                                        \
    {                                                                                                              \
        return __nv_atomic_load_n(p, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM);                               \
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
/* Returns the value before. Acquire and release, among the channels of one device. */
OCCL_FN uint32_t occl_add_dev(uint32_t *p, uint32_t v)
{
    return __nv_atomic_fetch_add(p, v, __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_DEVICE);
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
OCCL_FN uint32_t occl_add_dev(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
#endif

OCCL_ATOMIC_COLUMN(32)
OCCL_ATOMIC_COLUMN(64)

#endif
