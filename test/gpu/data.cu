/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA body of kernels/occl_dev_data.h under the cases of test/unit/data.c, which is compiled with -DOCCL_TEST_GPU and
 * linked to this. Buffers are pinned host memory, so that a case needs no copies. With an argument it measures instead.
 *
 *     gcc -std=gnu11 -O2 -DOCCL_TEST_GPU=1 -I. -Itest/tap -c test/unit/data.c test/tap/tap.c
 *     nvcc -arch=native -std=c++17 -O3 -fmad=false -I. test/gpu/data.cu data.o tap.o -o data_gpu
 */
#include "kernels/occl_dev_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess) {                                                                                       \
            printf("Bail out! %s: %s\n", #call, cudaGetErrorString(e_));                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint32_t occl_dev_type_bytes_host(uint32_t type)
{
    static const uint32_t bytes[] = {
#define X(id, number, bytes, name) bytes,
        OCCL_TYPE_TABLE(X)
#undef X
    };
    return bytes[type];
}
static __global__ void k_copy(void *dst, const void *src, uint64_t bytes)
{
    occl_lanes_t l = {0};
    occl_dev_copy(l, dst, src, bytes);
}
static __global__ void __launch_bounds__(512, 2) k_reduce(uint32_t type, uint32_t op, const void *scale, void *dst,
                                                          const void *const *src, uint32_t nsrc, uint64_t n)
{
    occl_lanes_t l = {0};
    occl_dev_fold(l, type, op, scale, dst, src, nsrc, n);
}

extern "C" void *gpu_alloc(size_t bytes)
{
    void *p;
    TRY(cudaMallocHost(&p, bytes));
    return p;
}
extern "C" void gpu_copy(uint32_t lanes, void *dst, const void *src, uint64_t bytes)
{
    k_copy<<<1, lanes>>>(dst, src, bytes);
    TRY(cudaDeviceSynchronize());
}
extern "C" void gpu_reduce(uint32_t lanes, uint32_t type, uint32_t op, const void *scale, void *dst, const void *const *src,
                           uint32_t nsrc, uint64_t n)
{
    static const void **list;
    if (!list)
        list = (const void **)gpu_alloc(64 * sizeof(*list));
    memcpy(list, src, nsrc * sizeof(*list));
    if (scale)
        memcpy(list + 32, scale, occl_dev_type_bytes_host(type));
    k_reduce<<<1, lanes>>>(type, op, scale ? list + 32 : 0, dst, list, nsrc, n);
    TRY(cudaDeviceSynchronize());
}

/* Block 0 sends to block 1, two slots in turn, as words_sender and words_receiver of test/unit/data.c. */
#define WORDS_MOST 3000
static __device__ uint64_t words_length(uint32_t r) { return r < 40 ? r : r * 37 % (WORDS_MOST + 1); }
static __device__ uint8_t words_byte(uint32_t r, uint64_t i) { return (uint8_t)(r * 131 + i * 7 + (i >> 8)); }
static __global__ void k_words(char *slots, uint8_t *buf, uint32_t *done, uint32_t *bad, uint32_t rounds)
{
    occl_lanes_t l = {0};
    for (uint32_t r = 0; r < rounds; r++) {
        char *slot = slots + (r & 1) * occl_dev_words_bytes(WORDS_MOST);
        uint64_t n = words_length(r);
        if (blockIdx.x == 0) {
            uint8_t *s = buf + r % 16;
            for (uint64_t i = occl_lane(l); i < n; i += occl_nlanes(l))
                s[i] = words_byte(r, i);
            while (!occl_uniform(l, occl_load_acquire32(done) + 2 > r))
                ;
            occl_dev_words_put(l, slot, s, n, r + 1);
            occl_sync(l);
        } else {
            uint8_t *d = buf + WORDS_MOST + 64 + r * 5 % 16;
            while (!occl_dev_words_ready(l, slot, n, r + 1))
                ;
            occl_dev_words_get(l, d, slot, n);
            occl_sync(l);
            for (uint64_t i = occl_lane(l); i < n; i += occl_nlanes(l))
                if (d[i] != words_byte(r, i))
                    *bad = 1;
            occl_sync(l);
            if (occl_lane(l) == 0)
                occl_store_release32(done, r + 1);
        }
    }
}
extern "C" int gpu_words(uint32_t lanes, uint32_t rounds)
{
    char *slots;
    uint8_t *buf;
    uint32_t *state, result[2];
    uint64_t size = 2 * ((WORDS_MOST + 7) / 8 * 16);

    TRY(cudaMalloc(&slots, size));
    TRY(cudaMalloc(&buf, 2 * (WORDS_MOST + 64)));
    TRY(cudaMalloc(&state, 8));
    TRY(cudaMemset(slots, 0, size));
    TRY(cudaMemset(state, 0, 8));
    k_words<<<2, lanes>>>(slots, buf, state, state + 1, rounds);
    TRY(cudaDeviceSynchronize());
    TRY(cudaMemcpy(result, state, 8, cudaMemcpyDeviceToHost));
    TRY(cudaFree(slots));
    TRY(cudaFree(buf));
    TRY(cudaFree(state));
    return result[0] != rounds || result[1];
}

/* Bandwidth: each block its slice, as channels would. */
static __global__ void __launch_bounds__(512, 1) k_reduce_slices(uint32_t type, uint32_t op, char *dst, char *base,
                                                                 uint64_t apart, uint32_t nsrc, uint64_t n, uint32_t skew)
{
    __shared__ const void *src[16];
    occl_lanes_t l = {0};
    uint64_t each = n / gridDim.x, at = each * blockIdx.x * occl_dev_type_bytes(type);
    if (threadIdx.x < nsrc)
        src[threadIdx.x] = base + threadIdx.x * apart + at + (threadIdx.x ? skew : 0);
    occl_sync(l);
    occl_dev_reduce(l, type, op, dst + at, src, nsrc, each);
}
static __global__ void __launch_bounds__(512, 1) k_copy_slices(char *dst, const char *src, uint64_t n)
{
    occl_lanes_t l = {0};
    uint64_t each = n / gridDim.x / 16 * 16;
    occl_dev_copy(l, dst + each * blockIdx.x, src + each * blockIdx.x, each);
}
extern "C" void gpu_bench(void)
{
    static const uint32_t types[] = {OCCL_T_F32, OCCL_T_BF16, OCCL_T_F16, OCCL_T_F64, OCCL_T_I8};
    static const uint32_t sizes[] = {4, 2, 2, 8, 1};
    static const char *const names[] = {"float", "bfloat16", "float16", "double", "int8"};
    const uint64_t bytes = 256u << 20;
    char *base, *dst;
    cudaEvent_t from, to;
    float ms;

    TRY(cudaMalloc(&base, 9 * (bytes + 4096)));
    TRY(cudaMalloc(&dst, bytes));
    TRY(cudaMemset(base, 0, 9 * (bytes + 4096)));
    TRY(cudaEventCreate(&from));
    TRY(cudaEventCreate(&to));
#define TIMED(label, traffic, launch)                                                                                  \
    do {                                                                                                               \
        float best = 1e9f;                                                                                             \
        for (int rep = 0; rep < 4; rep++) {                                                                            \
            TRY(cudaEventRecord(from));                                                                                \
            launch;                                                                                                    \
            TRY(cudaEventRecord(to));                                                                                  \
            TRY(cudaEventSynchronize(to));                                                                             \
            TRY(cudaEventElapsedTime(&ms, from, to));                                                                  \
            best = ms < best ? ms : best;                                                                              \
        }                                                                                                              \
        printf("# %-28s %4u blocks: %7.1f GB/s of memory traffic\n", label, blocks, (double)(traffic) / best / 1e6);   \
    } while (0)
    for (uint32_t blocks = 8; blocks <= 132; blocks = blocks == 8 ? 32 : blocks == 32 ? 66 : blocks == 66 ? 132 : 999) {
        char label[64];
        TIMED("copy", 2 * bytes, (k_copy_slices<<<blocks, 512>>>(dst, base, bytes)));
        for (unsigned t = 0; t < 5; t++) {
            for (uint32_t nsrc = 2; nsrc <= 8; nsrc *= 2) {
                uint64_t n = bytes / sizes[t];
                snprintf(label, sizeof(label), "%s sum of %u", names[t], nsrc);
                TIMED(label, (nsrc + 1) * bytes, (k_reduce_slices<<<blocks, 512>>>(types[t], OCCL_OP_SUM, dst, base,
                                                                                   bytes + 4096, nsrc, n, 0)));
            }
        }
        TIMED("float sum of 2, 4 apart", 3 * bytes, (k_reduce_slices<<<blocks, 512>>>(OCCL_T_F32, OCCL_OP_SUM, dst, base,
                                                                                   bytes + 4096, 2, bytes / 4, 4)));
        TIMED("double max of 4", 5 * bytes, (k_reduce_slices<<<blocks, 512>>>(OCCL_T_F64, OCCL_OP_MAX, dst, base,
                                                                              bytes + 4096, 4, bytes / 8, 0)));
    }
}
