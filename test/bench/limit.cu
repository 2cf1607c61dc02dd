/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the GPU allows: a bare two-shot all-reduce and plain copies, for test/bench/gpu.sh to measure ours against.
 *
 *     limit twoshot RANKS CHANNELS LANES SIZE...      lines "twoshot,RANKS,CHANNELS,LANES,BYTES,us_p50,us_p10,us_p90"
 *     limit copy SIZE...                              lines "copy,WHO,BYTES,GB/s" (read plus written)
 *
 * twoshot: each rank reads its slice of all ranks' vectors of floats, adds, and writes the sum into all ranks' results, with a
 * flag from every rank to every rank before and after, channel by channel. Ranks are streams of one process: on one GPU
 * that is the same memory traffic as processes under MPS. The kernel stays for all rounds, so a time has no
 * launch, no submission and no completion in it. Every wait is bounded; nothing can hang.
 */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS 3000000000ull
#define MAX_RANKS 8
#define MAX_CHANNELS 64
#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t e_ = (call);                                                             \
        if (e_ != cudaSuccess) {                                                             \
            fprintf(stderr, "limit: %s: %s\n", #call, cudaGetErrorString(e_));               \
            exit(e_ == cudaErrorNoDevice || e_ == cudaErrorInsufficientDriver ? 77 : 1);     \
        }                                                                                    \
    } while (0)

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* "16M"; 0: not a size */
static uint64_t size_of(const char *text)
{
    char *end;
    uint64_t v = strtoull(text, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift)
        end++;
    return *end ? 0 : v << shift;
}

__device__ __forceinline__ uint64_t timer(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

typedef struct {
    float4 *in[MAX_RANKS], *out[MAX_RANKS];
    uint64_t *flag;  /* [to rank][from rank][channel], one every 128 bytes */
    uint64_t *ends;  /* [round]: when rank 0's channel 0 was through */
    uint32_t *late;  /* somebody waited too long */
    uint64_t slice;  /* 16-byte words of a slice */
    int rounds;
} shared_t;

/* All earlier accesses of this block, then a flag to this channel of every rank; then theirs. */
template <int ranks> __device__ __forceinline__ bool meet(const shared_t &s, int rank, uint64_t value)
{
    int bad = 0;
    __syncthreads();
    if (threadIdx.x < ranks) {
        const int peer = threadIdx.x;
        uint64_t *to = s.flag + ((peer * ranks + rank) * MAX_CHANNELS + blockIdx.x) * 16;
        const uint64_t *from = s.flag + ((rank * ranks + peer) * MAX_CHANNELS + blockIdx.x) * 16;
        uint64_t seen, until = timer() + LIMIT_NS;
        asm volatile("fence.acq_rel.sys;" ::: "memory");
        asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
        do {
            asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(seen) : "l"(from) : "memory");
            bad = seen < value && timer() > until;
        } while (seen < value && !bad);
    }
    return !__syncthreads_or(bad);
}

template <int ranks> __global__ void __launch_bounds__(512, 1) k_twoshot(shared_t s, int rank)
{
    uint64_t each = (s.slice + gridDim.x - 1) / gridDim.x, from = blockIdx.x * each, to = from + each < s.slice ? from + each : s.slice;
    for (int round = 0; round < s.rounds; round++) {
        if (!meet<ranks>(s, rank, 2 * round + 1)) {
            if (threadIdx.x == 0)
                *s.late = 1;
            return;
        }
        for (uint64_t i = from + threadIdx.x; i < to; i += 2 * blockDim.x) {
            float4 x[2][ranks];
            const uint64_t at = rank * s.slice + i;
#pragma unroll
            for (int w = 0; w < 2; w++)
#pragma unroll
                for (int r = 0; r < ranks; r++)
                    if (i + w * blockDim.x < to)
                        x[w][r] = s.in[r][at + w * blockDim.x];
#pragma unroll
            for (int w = 0; w < 2; w++) {
#pragma unroll
                for (int r = 1; r < ranks; r++)
                    x[w][0].x += x[w][r].x, x[w][0].y += x[w][r].y, x[w][0].z += x[w][r].z, x[w][0].w += x[w][r].w;
                if (i + w * blockDim.x < to)
#pragma unroll
                    for (int r = 0; r < ranks; r++)
                        s.out[r][at + w * blockDim.x] = x[w][0];
            }
        }
        if (!meet<ranks>(s, rank, 2 * round + 2)) {
            if (threadIdx.x == 0)
                *s.late = 1;
            return;
        }
        if (rank == 0 && blockIdx.x == 0 && threadIdx.x == 0)
            s.ends[round] = timer();
    }
}

__global__ void k_fill(float *v, uint64_t n, int rank)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x)
        v[i] = (float)((i * 7 + rank * 3) % 64);
}

__global__ void k_check(const float *v, uint64_t n, int ranks, unsigned long long *wrong)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
        float sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += (float)((i * 7 + r * 3) % 64);
        if (v[i] != sum)
            atomicAdd(wrong, 1ull);
    }
}

template <int ranks> static int twoshot(int channels, int lanes, uint64_t bytes)
{
    shared_t s;
    cudaStream_t stream[ranks];
    unsigned long long *wrong, bad = 0;
    uint32_t late = 0;
    uint64_t flag_bytes = (uint64_t)ranks * ranks * MAX_CHANNELS * 128;
    int blocks = 0, sms = 0;

    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, k_twoshot<ranks>, lanes, 0));
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    if (ranks * channels > blocks * sms) {
        fprintf(stderr, "limit: %d ranks of %d channels do not fit on %d SMs\n", ranks, channels, sms);
        return 1;
    }
    bytes -= bytes % (16 * ranks);
    s.slice = bytes / 16 / ranks;
    s.rounds = bytes >= 64u << 20 ? 40 : bytes >= 4u << 20 ? 200 : 1000;
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaMalloc((void **)&s.in[r], bytes));
        CHECK(cudaMalloc((void **)&s.out[r], bytes));
        k_fill<<<256, 256>>>((float *)s.in[r], bytes / 4, r);
        CHECK(cudaMemset(s.out[r], 0, bytes));
        CHECK(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
    }
    CHECK(cudaMalloc((void **)&s.flag, flag_bytes));
    CHECK(cudaMemset(s.flag, 0, flag_bytes));
    CHECK(cudaMalloc((void **)&s.ends, s.rounds * sizeof(uint64_t)));
    CHECK(cudaMalloc((void **)&s.late, sizeof(uint32_t)));
    CHECK(cudaMemset(s.late, 0, sizeof(uint32_t)));
    CHECK(cudaMalloc((void **)&wrong, sizeof *wrong));
    CHECK(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK(cudaDeviceSynchronize());
    for (int r = 0; r < ranks; r++)
        k_twoshot<ranks><<<channels, lanes, 0, stream[r]>>>(s, r);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    for (int r = 0; r < ranks; r++)
        k_check<<<256, 256>>>((const float *)s.out[r], bytes / 4, ranks, wrong);
    CHECK(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&late, s.late, sizeof late, cudaMemcpyDeviceToHost));

    uint64_t *ends = (uint64_t *)malloc(s.rounds * sizeof(uint64_t));
    double *us = (double *)malloc(s.rounds * sizeof(double));
    int n = 0;
    CHECK(cudaMemcpy(ends, s.ends, s.rounds * sizeof(uint64_t), cudaMemcpyDeviceToHost));
    for (int i = s.rounds / 5; i + 1 < s.rounds; i++)
        us[n++] = (double)(ends[i + 1] - ends[i]) * 1e-3;
    qsort(us, n, sizeof *us, by_value);
    if (bad || late)
        fprintf(stderr, "limit: twoshot of %llu bytes: %llu wrong elements%s\n", (unsigned long long)bytes, bad,
                late ? ", a rank did not come" : "");
    else
        printf("twoshot,%d,%d,%d,%llu,%.3f,%.3f,%.3f\n", ranks, channels, lanes, (unsigned long long)bytes, us[n / 2], us[n / 10],
               us[n * 9 / 10]);
    fflush(stdout);
    free(ends);
    free(us);
    for (int r = 0; r < ranks; r++) {
        CHECK(cudaFree(s.in[r]));
        CHECK(cudaFree(s.out[r]));
        CHECK(cudaStreamDestroy(stream[r]));
    }
    CHECK(cudaFree(s.flag));
    CHECK(cudaFree(s.ends));
    CHECK(cudaFree(s.late));
    CHECK(cudaFree(wrong));
    return bad || late;
}

__global__ void __launch_bounds__(512, 1) k_copy(uint4 *d, const uint4 *s, uint64_t n)
{
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int w = 0; w < 4; w++)
            if (i + w * step < n)
                v[w] = s[i + w * step];
#pragma unroll
        for (int w = 0; w < 4; w++)
            if (i + w * step < n)
                d[i + w * step] = v[w];
    }
}

static void copy(uint64_t bytes)
{
    enum { ROUNDS = 21 };
    char *a, *b;
    cudaEvent_t e0, e1;
    cudaStream_t stream;
    double v[ROUNDS];
    float ms;

    CHECK(cudaMalloc((void **)&a, bytes));
    CHECK(cudaMalloc((void **)&b, bytes));
    CHECK(cudaMemset(a, 1, bytes));
    CHECK(cudaMemset(b, 2, bytes));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&e0));
    CHECK(cudaEventCreate(&e1));
    for (int who = 0; who < 2; who++) {
        for (int i = -3; i < ROUNDS; i++) {
            CHECK(cudaEventRecord(e0, stream));
            if (who)
                CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice, stream));
            else
                k_copy<<<264, 512, 0, stream>>>((uint4 *)b, (const uint4 *)a, bytes / 16);
            CHECK(cudaEventRecord(e1, stream));
            CHECK(cudaEventSynchronize(e1));
            CHECK(cudaEventElapsedTime(&ms, e0, e1));
            if (i >= 0)
                v[i] = 2.0 * (double)bytes / ms * 1e-6;
        }
        qsort(v, ROUNDS, sizeof *v, by_value);
        printf("copy,%s,%llu,%.1f\n", who ? "engine" : "kernel", (unsigned long long)bytes, v[ROUNDS / 2]);
    }
    fflush(stdout);
    CHECK(cudaEventDestroy(e0));
    CHECK(cudaEventDestroy(e1));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
}

int main(int argc, char **argv)
{
    int bad = 0;

    if (argc > 5 && !strcmp(argv[1], "twoshot")) {
        int ranks = atoi(argv[2]), channels = atoi(argv[3]), lanes = atoi(argv[4]);
        if (channels < 1 || channels > MAX_CHANNELS || lanes < 32 || lanes > 512 || lanes % 32) {
            fprintf(stderr, "limit: 1 to %d channels of 32 to 512 lanes, a multiple of 32\n", MAX_CHANNELS);
            return 2;
        }
        for (int i = 5; i < argc; i++) {
            uint64_t bytes = size_of(argv[i]);
            if (bytes < 1024) {
                fprintf(stderr, "limit: \"%s\" is no size from 1K on\n", argv[i]);
                return 2;
            }
            switch (ranks) {
            case 2: bad |= twoshot<2>(channels, lanes, bytes); break;
            case 4: bad |= twoshot<4>(channels, lanes, bytes); break;
            case 8: bad |= twoshot<8>(channels, lanes, bytes); break;
            default: fprintf(stderr, "limit: 2, 4 or 8 ranks\n"); return 2;
            }
        }
        return bad;
    }
    if (argc > 2 && !strcmp(argv[1], "copy")) {
        for (int i = 2; i < argc; i++) {
            uint64_t bytes = size_of(argv[i]);
            if (bytes < 1024) {
                fprintf(stderr, "limit: \"%s\" is no size from 1K on\n", argv[i]);
                return 2;
            }
            copy(bytes);
        }
        return 0;
    }
    fprintf(stderr, "Usage: limit twoshot RANKS CHANNELS LANES SIZE... | limit copy SIZE...\n");
    return 2;
}
