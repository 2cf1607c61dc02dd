/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where each microsecond goes between a processor and a resident kernel: the numbers that the CUDA device is designed by.
 *
 *     nvcc -O3 -arch=sm_90 -std=c++17 -o probe probe.cu -lcuda        (-DWITH_CUBLAS ... -lcublas: matrix products too)
 *     ./probe [memory|small|host|hop|torn|launch|armed|copy|twoshot|beside|ranks N|all]
 *
 * `ranks N` starts N processes that share one GPU through CUDA IPC (run it under MPS, then without). Every kernel and every
 * host loop is bounded by time, so nothing can hang. Plain cudaMalloc only; no setting of the card is touched.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif

#define LIMIT_NS 4000000000ull
#define CHECK(call)                                                                                                  \
    do {                                                                                                             \
        cudaError_t e_ = (call);                                                                                     \
        if (e_ != cudaSuccess) {                                                                                     \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e_));                            \
            fflush(stdout);                                                                                          \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* One line of the table: median, and how far the values spread. */
static void report(const char *what, double *v, int n, const char *unit)
{
    qsort(v, n, sizeof(*v), by_value);
    printf("| %-72s | %9.3f | %9.3f | %9.3f | %9.3f | %-5s |\n", what, v[n / 2], v[n / 10], v[n * 9 / 10], v[n * 99 / 100], unit);
    fflush(stdout);
}
static void head(const char *title)
{
    printf("\n%s\n| %-72s | %9s | %9s | %9s | %9s | %-5s |\n", title, "what", "median", "p10", "p90", "p99", "unit");
}
static double ghz = 1.98;

/* ---- accesses ------------------------------------------------------------------------------------------------------ */

__device__ __forceinline__ uint64_t timer(void)
{
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}
#define LOAD(name, ptx)                                                                                              \
    __device__ __forceinline__ uint64_t name(const void *p)                                                          \
    {                                                                                                                \
        uint64_t v;                                                                                                  \
        asm volatile(ptx " %0, [%1];" : "=l"(v) : "l"(p) : "memory");                                                \
        return v;                                                                                                    \
    }
#define STORE(name, ptx)                                                                                             \
    __device__ __forceinline__ void name(void *p, uint64_t v) { asm volatile(ptx " [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
LOAD(ld_acq_sys, "ld.acquire.sys.u64")
LOAD(ld_acq_gpu, "ld.acquire.gpu.u64")
LOAD(ld_rlx_sys, "ld.relaxed.sys.u64")
LOAD(ld_rlx_gpu, "ld.relaxed.gpu.u64")
STORE(st_rel_sys, "st.release.sys.u64")
STORE(st_rel_gpu, "st.release.gpu.u64")
STORE(st_rlx_sys, "st.relaxed.sys.u64")
STORE(st_rlx_gpu, "st.relaxed.gpu.u64")
__device__ __forceinline__ void ld_word(const void *p, uint64_t *a, uint64_t *b)
{
    asm volatile("{ .reg .b128 w; ld.relaxed.sys.b128 w, [%2]; mov.b128 {%0, %1}, w; }" : "=l"(*a), "=l"(*b) : "l"(p) : "memory");
}
__device__ __forceinline__ void st_word(void *p, uint64_t a, uint64_t b)
{
    asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.sys.b128 [%0], w; }" ::"l"(p), "l"(a), "l"(b) : "memory");
}

/* ---- memory: one access, repeated, each waiting for the one before ------------------------------------------------- */

enum { A_LD_RLX, A_LD_ACQ, A_LD_B128, A_LD_WARP512, A_ST_RLX, A_ST_REL_SYS, A_ST_REL_GPU, A_FENCE, A_ST_B128, A_ST2_REL, A_COUNT };
static const char *const access_name[] = {"ld.relaxed.sys 8 B", "ld.acquire.sys 8 B", "ld.relaxed.sys.b128", "32 lanes ld b128 (512 B)",
                                          "st.relaxed.sys (issue only)", "st.release.sys", "st.release.gpu", "fence.acq_rel.sys alone",
                                          "st.relaxed.sys.b128 (issue only)", "data store, then st.release.sys"};
__global__ void k_access(int what, char *p, int n, uint64_t *out)
{
    uint64_t x = 0, y = 0, t0, t1;
    for (int warm = 0; warm < 2; warm++) {
        t0 = clock64();
        for (int i = 0; i < n; i++) {
            char *q = p + (x & 1); /* x is 0: makes each access wait for the last */
            switch (what) {
            case A_LD_RLX: x |= ld_rlx_sys(q); break;
            case A_LD_ACQ: x |= ld_acq_sys(q); break;
            case A_LD_B128: ld_word(q, &x, &y); break;
            case A_LD_WARP512: ld_word(q + threadIdx.x * 16, &x, &y); x = __any_sync(~0u, x != 0); break;
            case A_ST_RLX: st_rlx_sys(q, 0); break;
            case A_ST_REL_SYS: st_rel_sys(q, 0); break;
            case A_ST_REL_GPU: st_rel_gpu(q, 0); break;
            case A_FENCE: asm volatile("fence.acq_rel.sys;" ::: "memory"); break;
            case A_ST_B128: st_word(q, 0, 0); break;
            default: st_rlx_gpu(q + 256, 0); st_rel_sys(q, 0); break;
            }
        }
        t1 = clock64();
    }
    if (threadIdx.x == 0)
        *out = t1 - t0 + (x & 2) + (y & 2);
}
static void probe_memory(void)
{
    char *host, *dev, name[96];
    uint64_t *out, got;
    double v[9];
    CHECK(cudaHostAlloc((void **)&host, 4096, cudaHostAllocMapped));
    CHECK(cudaMalloc((void **)&dev, 4096));
    CHECK(cudaMalloc((void **)&out, 8));
    memset(host, 0, 4096);
    CHECK(cudaMemset(dev, 0, 4096));
    head("One access by one lane (clock cycles / clock rate)");
    for (int where = 0; where < 2; where++)
        for (int a = 0; a < A_COUNT; a++) {
            for (int i = 0; i < 9; i++) {
                k_access<<<1, a == A_LD_WARP512 ? 32 : 1>>>(a, where ? host : dev, 500, out);
                CHECK(cudaMemcpy(&got, out, 8, cudaMemcpyDeviceToHost));
                v[i] = got / 500.0 / ghz;
            }
            snprintf(name, sizeof(name), "%s, %s memory", access_name[a], where ? "host (mapped)" : "device");
            report(name, v, 9, "ns");
        }
    CHECK(cudaFree(dev));
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(host));
}

/* ---- small: what a block pays for this and that --------------------------------------------------------------------- */

__global__ void k_small(int what, int n, uint64_t *out)
{
    __shared__ uint32_t box;
    __shared__ uint64_t chain[4];
    uint64_t x = 0, t0, t1, *g = chain;
    if (threadIdx.x < 4)
        chain[threadIdx.x] = 0;
    __syncthreads();
    t0 = clock64();
    for (int i = 0; i < n; i++) {
        switch (what) {
        case 0: x += timer(); break;
        case 1: __nanosleep(20); break;
        case 2: __syncthreads(); break;
        case 3: x += __syncthreads_and(x < 1u << 30); break;
        case 4:
            __syncthreads();
            if (threadIdx.x == 0)
                box = i;
            __syncthreads();
            x += box;
            break;
        case 5: asm volatile("ld.u64 %0, [%1];" : "=l"(x) : "l"(g + x) : "memory"); break; /* generic address of shared memory */
        case 6: asm volatile("fence.acq_rel.gpu;" ::: "memory"); break;
        case 7: asm volatile("fence.sc.sys;" ::: "memory"); break;
        default: asm volatile("atom.acq_rel.gpu.add.u64 %0, [%1], 0;" : "=l"(x) : "l"(out + 1 + x) : "memory"); break;
        }
    }
    t1 = clock64();
    if (threadIdx.x == 0)
        *out = t1 - t0 + (x == 1);
}
static void probe_small(void)
{
    static const char *const name[] = {"%globaltimer", "__nanosleep(20)", "__syncthreads", "__syncthreads_and", "lane 0's value to all (two barriers)",
                                       "shared memory by generic address", "fence.acq_rel.gpu", "fence.sc.sys", "atom.acq_rel.gpu in device memory"};
    uint64_t *out, got;
    double v[9];
    char text[96];
    CHECK(cudaMalloc((void **)&out, 64));
    CHECK(cudaMemset(out, 0, 64));
    head("What a block pays");
    for (int lanes = 32; lanes <= 512; lanes *= 4)
        for (int w = 0; w < 9; w++) {
            if (lanes > 32 && (w < 2 || w > 4))
                continue;
            for (int i = 0; i < 9; i++) {
                k_small<<<1, lanes>>>(w, 1000, out);
                CHECK(cudaMemcpy(&got, out, 8, cudaMemcpyDeviceToHost));
                v[i] = got / 1000.0 / ghz;
            }
            snprintf(text, sizeof(text), "%s, %d lanes", name[w], lanes);
            report(text, v, 9, "ns");
        }
    CHECK(cudaFree(out));
}

/* ---- host: processor -> resident kernel -> processor -------------------------------------------------------------- */

enum { R_ACQ, R_B128, R_WARP, R_TAIL_ENTRY, R_TAIL_ENTRY_RUN, R_HOP_DEV, R_HOP_GPU, R_REL, R_SYNC, R_COUNT };
static const char *const trip_name[] = {
    "poll ld.acquire 8 B, answer st.relaxed", "poll one 16-byte word (data with flag), st.relaxed",
    "poll 512 B of words by one warp, st.relaxed", "poll tail, then read entry (2 reads), st.relaxed",
    "poll tail, entry, then a 512 B record (3 reads), st.relaxed", "poll 8 B, forward to a 2nd block (sys scope) and back",
    "poll 8 B, forward to a 2nd block (gpu scope) and back", "poll 8 B, answer st.release.sys",
    "poll 8 B, barrier of 512 threads twice, answer st.release.sys"};
typedef struct mapped {
    volatile uint64_t tail, pad0[7], entry[64], words[128], record[64], pad1[8];
    volatile uint64_t answer, pad2[7];
} mapped_t;

__device__ bool lane0_polls_on(uint64_t until, int *n) { return (++*n & 63) || timer() < until; }

__global__ void k_trip(int what, mapped_t *m, uint64_t *hop, uint64_t rounds, int extra)
{
    uint64_t until = timer() + LIMIT_NS, a, b, sum = 0;
    int n = 0;
    if (blockIdx.x >= 1 && blockIdx.x <= (unsigned)extra) { /* blocks that poll, too: what they cost the others */
        while (ld_rlx_sys((void *)&m->answer) < rounds && lane0_polls_on(until, &n))
            ;
        return;
    }
    if (blockIdx.x > (unsigned)extra) { /* the second block: answers in device memory */
        for (uint64_t r = 1; r <= rounds; r++) {
            if (what == R_HOP_DEV)
                while (ld_acq_sys(hop) < r && lane0_polls_on(until, &n))
                    ;
            else
                while (ld_acq_gpu(hop) < r && lane0_polls_on(until, &n))
                    ;
            if (what == R_HOP_DEV)
                st_rel_sys(hop + 32, r);
            else
                st_rel_gpu(hop + 32, r);
        }
        return;
    }
    for (uint64_t r = 1; r <= rounds; r++) {
        if (what == R_WARP) {
            for (;;) {
                ld_word((char *)m->words + threadIdx.x * 16, &a, &b);
                if (__all_sync(~0u, b == r) || !lane0_polls_on(until, &n))
                    break;
            }
            sum += a;
            if (threadIdx.x == 0)
                st_rlx_sys((void *)&m->answer, r);
            continue;
        }
        if (threadIdx.x == 0) {
            switch (what) {
            case R_B128:
                do {
                    ld_word((void *)m->words, &a, &b);
                } while (b != r && lane0_polls_on(until, &n));
                break;
            default:
                while (ld_acq_sys((void *)&m->tail) < r && lane0_polls_on(until, &n))
                    ;
                if (what == R_TAIL_ENTRY || what == R_TAIL_ENTRY_RUN)
                    sum += a = ld_rlx_sys((void *)&m->entry[r & 63]);
            }
        }
        if (what == R_TAIL_ENTRY_RUN) {
            a = __shfl_sync(~0u, a, 0);
            ld_word((char *)m->record + threadIdx.x * 16 + (a & 1), &a, &b);
            if (__any_sync(~0u, a + b == 99))
                sum++;
        }
        if (what == R_SYNC) {
            __syncthreads();
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            if (what == R_HOP_DEV) {
                st_rel_sys(hop, r);
                while (ld_acq_sys(hop + 32) < r && lane0_polls_on(until, &n))
                    ;
            } else if (what == R_HOP_GPU) {
                st_rel_gpu(hop, r);
                while (ld_acq_gpu(hop + 32) < r && lane0_polls_on(until, &n))
                    ;
            }
            if (what == R_REL || what == R_SYNC)
                st_rel_sys((void *)&m->answer, r);
            else
                st_rlx_sys((void *)&m->answer, r + (sum == 12345));
        }
    }
}

static int trip(int what, mapped_t *m, uint64_t *hop, int extra, double *v, int rounds)
{
    double end = now_us() + LIMIT_NS * 1e-3;
    int ok = 1;
    memset((void *)m, 0, sizeof(*m));
    CHECK(cudaMemset(hop, 0, 4096));
    k_trip<<<1 + extra + (what == R_HOP_DEV || what == R_HOP_GPU), what == R_SYNC ? 512 : what == R_WARP || what == R_TAIL_ENTRY_RUN ? 32 : 1>>>(
        what, m, hop, rounds, extra);
    for (int r = 1; r <= rounds && ok; r++) {
        double t0;
        for (double w = now_us() + 3 + r % 7 * 0.3; now_us() < w;)
            ;
        t0 = now_us();
        if (what == R_WARP || what == R_B128) {
            for (int i = 0; i < (what == R_WARP ? 32 : 1); i++)
                _mm_store_si128((__m128i *)&m->words[2 * i], _mm_set_epi64x(r, r));
        } else {
            m->entry[r & 63] = 2 * r;
            __atomic_store_n(&m->tail, r, __ATOMIC_RELEASE);
        }
        while (m->answer < (uint64_t)r && ok)
            if (now_us() > end)
                ok = 0;
        v[r - 1] = now_us() - t0;
    }
    m->tail = ~0ull >> 1;
    m->answer = ~0ull >> 1;
    CHECK(cudaDeviceSynchronize());
    return ok;
}
static void probe_host(void)
{
    enum { ROUNDS = 5000 };
    static double v[ROUNDS];
    char name[120];
    mapped_t *m;
    uint64_t *hop;
    CHECK(cudaHostAlloc((void **)&m, sizeof(*m), cudaHostAllocMapped));
    CHECK(cudaMalloc((void **)&hop, 4096));
    head("Round trip: host store -> resident kernel -> host sees the answer");
    for (int w = 0; w < R_COUNT; w++)
        for (int again = 0; again < 2; again++) {
            snprintf(name, sizeof(name), "%s%s", trip_name[w], again ? " (again)" : "");
            if (trip(w, m, hop, 0, v, ROUNDS))
                report(name, v, ROUNDS, "us");
            else
                printf("| %s: timed out\n", name);
        }
    for (int extra = 7; extra <= 31; extra += 24) {
        snprintf(name, sizeof(name), "as the first, beside %d blocks that poll host memory", extra);
        if (trip(R_ACQ, m, hop, extra, v, ROUNDS))
            report(name, v, ROUNDS, "us");
    }
    CHECK(cudaFree(hop));
    CHECK(cudaFreeHost((void *)m));
}

/* ---- hop: block to block in device memory ------------------------------------------------------------------------- */

enum { H_ACQREL_SYS, H_ACQREL_GPU, H_B128, H_BLOCK_SYS, H_BLOCK_B128, H_CLUSTER, H_COUNT };
static const char *const hop_name[] = {"release/acquire flag, system scope", "release/acquire flag, gpu scope",
                                       "16-byte word with flag, relaxed", "512 B data, barrier, release flag; acquire, barrier, load (512 lanes)",
                                       "512 B as words with flag, vote of 512 lanes", "cluster: flag in the other block's shared memory"};
__global__ void k_hop(int what, char *p, int rounds, uint64_t *out)
{
    __shared__ volatile uint64_t box;
    __shared__ uint64_t got;
    uint64_t until = timer() + LIMIT_NS, t0 = 0, a = 0, b;
    char *mine = p + blockIdx.x * 65536, *other = p + (1 - blockIdx.x) * 65536;
    uint64_t far = 0;
    int n = 0;
    box = 0;
    __syncthreads();
#if __CUDA_ARCH__ >= 900
    if (what == H_CLUSTER) {
        uint32_t here = (uint32_t)__cvta_generic_to_shared((void *)&box), there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(1 - blockIdx.x));
        far = there;
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    }
#endif
    for (int r = 1; r <= rounds; r++) {
        if (r == rounds / 10)
            t0 = timer();
        for (int turn = 0; turn < 2; turn++) {
            bool send = turn == (int)blockIdx.x;
            char *f = send ? other : mine;
            if (what == H_CLUSTER && threadIdx.x == 0) {
#if __CUDA_ARCH__ >= 900
                if (send)
                    asm volatile("st.release.cluster.shared::cluster.u64 [%0], %1;" ::"r"((uint32_t)far), "l"((uint64_t)r) : "memory");
                else
                    do {
                        asm volatile("ld.acquire.cluster.shared::cta.u64 %0, [%1];" : "=l"(a) : "r"((uint32_t)__cvta_generic_to_shared((void *)&box)) : "memory");
                    } while (a < (uint64_t)r && lane0_polls_on(until, &n));
#endif
            } else if (what == H_BLOCK_SYS) {
                if (send) {
                    if (threadIdx.x < 64)
                        ((uint64_t *)(f + 1024))[threadIdx.x] = r;
                    __syncthreads();
                    if (threadIdx.x == 0)
                        st_rel_sys(f, r);
                } else {
                    if (threadIdx.x == 0)
                        while (ld_acq_sys(f) < (uint64_t)r && lane0_polls_on(until, &n))
                            ;
                    __syncthreads();
                    if (threadIdx.x < 64)
                        a += ((volatile uint64_t *)(f + 1024))[threadIdx.x];
                    __syncthreads();
                }
            } else if (what == H_BLOCK_B128) {
                if (send) {
                    if (threadIdx.x < 64)
                        st_word(f + 16 * threadIdx.x, r, r);
                } else {
                    bool good;
                    do {
                        good = true;
                        if (threadIdx.x < 64) {
                            ld_word(f + 16 * threadIdx.x, &a, &b);
                            good = b == (uint64_t)r || !lane0_polls_on(until, &n);
                        }
                    } while (!__syncthreads_and(good));
                }
            } else if (threadIdx.x == 0) {
                if (send) {
                    if (what == H_ACQREL_SYS)
                        st_rel_sys(f, r);
                    else if (what == H_ACQREL_GPU)
                        st_rel_gpu(f, r);
                    else
                        st_word(f, r, r);
                } else if (what == H_ACQREL_SYS) {
                    while (ld_acq_sys(f) < (uint64_t)r && lane0_polls_on(until, &n))
                        ;
                } else if (what == H_ACQREL_GPU) {
                    while (ld_acq_gpu(f) < (uint64_t)r && lane0_polls_on(until, &n))
                        ;
                } else {
                    do
                        ld_word(f, &a, &b);
                    while (b != (uint64_t)r && lane0_polls_on(until, &n));
                }
            }
        }
    }
    if (threadIdx.x == 0) {
        got = timer() - t0 + (a == 12345678);
        if (blockIdx.x == 0)
            *out = got;
    }
#if __CUDA_ARCH__ >= 900
    if (what == H_CLUSTER)
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
static void probe_hop(void)
{
    enum { ROUNDS = 2000, TIMES = 9 };
    double v[TIMES];
    uint64_t *out, got;
    char *p;
    CHECK(cudaMalloc((void **)&p, 131072));
    CHECK(cudaMalloc((void **)&out, 8));
    head("One way between two blocks of one GPU (half a ping-pong)");
    for (int w = 0; w < H_COUNT; w++) {
        for (int i = 0; i < TIMES; i++) {
            cudaLaunchConfig_t c = {};
            cudaLaunchAttribute at[1];
            CHECK(cudaMemset(p, 0, 131072));
            c.gridDim = dim3(2);
            c.blockDim = dim3(w == H_BLOCK_SYS || w == H_BLOCK_B128 ? 512 : 32);
            at[0].id = cudaLaunchAttributeClusterDimension;
            at[0].val.clusterDim.x = w == H_CLUSTER ? 2 : 1;
            at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
            c.attrs = at;
            c.numAttrs = 1;
            CHECK(cudaLaunchKernelEx(&c, k_hop, w, p, (int)ROUNDS, out));
            CHECK(cudaMemcpy(&got, out, 8, cudaMemcpyDeviceToHost));
            v[i] = got * 1e-3 / (ROUNDS - ROUNDS / 10 + 1) / 2;
        }
        report(hop_name[w], v, TIMES, "us");
    }
    CHECK(cudaFree(p));
    CHECK(cudaFree(out));
}

/* ---- torn: is a 16-byte store of the processor one access for the GPU? ------------------------------------------- */

__global__ void k_torn(uint64_t *word, uint64_t *out, uint64_t ns)
{
    uint64_t until = timer() + ns, a, b, torn = 0, changes = 0, last = 0, reads = 0;
    while (timer() < until)
        for (int i = 0; i < 64; i++) {
            ld_word(word, &a, &b);
            reads++;
            torn += a != b;
            changes += a != last;
            last = a;
        }
    out[0] = reads;
    out[1] = changes;
    out[2] = torn;
}
static void probe_torn(void)
{
    uint64_t *word, *out, got[3];
    cudaEvent_t done;
    CHECK(cudaHostAlloc((void **)&word, 4096, cudaHostAllocMapped));
    CHECK(cudaMalloc((void **)&out, 24));
    CHECK(cudaEventCreate(&done));
    memset(word, 0, 4096);
    k_torn<<<1, 1>>>(word, out, 1000000000ull);
    CHECK(cudaEventRecord(done));
    for (uint64_t i = 1; cudaEventQuery(done) == cudaErrorNotReady;)
        for (int k = 0; k < 10000; k++, i++)
            _mm_store_si128((__m128i *)word, _mm_set1_epi64x(i));
    CHECK(cudaMemcpy(got, out, 24, cudaMemcpyDeviceToHost));
    printf("\n16-byte processor stores read by ld.relaxed.sys.b128: %llu reads, %llu saw a new value, %llu torn\n",
           (unsigned long long)got[0], (unsigned long long)got[1], (unsigned long long)got[2]);
    CHECK(cudaFree(out));
    CHECK(cudaFreeHost(word));
}

/* ---- launch --------------------------------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(512, 1) k_answer(volatile uint64_t *m, uint64_t v)
{
    if (threadIdx.x == 0 && blockIdx.x == 0)
        st_rlx_sys((void *)m, v);
}
static void probe_launch(void)
{
    enum { N = 1000 };
    static double a[N], b[N], c[N], d[N];
    uint64_t *m;
    cudaStream_t s;
    CHECK(cudaHostAlloc((void **)&m, 4096, cudaHostAllocMapped));
    CHECK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -5));
    head("Launch");
    *m = 0;
    for (int blocks = 1; blocks <= 32; blocks *= 32) {
        char name[80];
        for (int i = 0; i < N; i++) {
            double t0 = now_us(), end = t0 + 1e6;
            k_answer<<<blocks, 512, 0, s>>>(m, i + 1);
            a[i] = now_us() - t0;
            while (*(volatile uint64_t *)m != (uint64_t)i + 1 && now_us() < end)
                ;
            b[i] = now_us() - t0;
            CHECK(cudaStreamSynchronize(s));
            c[i] = now_us() - t0;
        }
        snprintf(name, sizeof(name), "%d block(s) of 512: the launch call itself", blocks);
        report(name, a, N, "us");
        snprintf(name, sizeof(name), "%d block(s) of 512: call to first answer in host memory", blocks);
        report(name, b, N, "us");
        snprintf(name, sizeof(name), "%d block(s) of 512: call to stream synchronised", blocks);
        report(name, c, N, "us");
    }
    for (int i = 0; i < N; i++) {
        double t0 = now_us();
        (void)cudaStreamQuery(s);
        d[i] = now_us() - t0;
    }
    report("cudaStreamQuery of an idle stream", d, N, "us");
    CHECK(cudaStreamDestroy(s));
    CHECK(cudaFreeHost(m));
}

/* ---- armed: a kernel queued behind a wait on a wake word ---------------------------------------------------------- */

typedef struct stuck {
    void *p;
    volatile int state;
    double returned;
} stuck_t;
static void *free_thread(void *arg)
{
    stuck_t *s = (stuck_t *)arg;
    s->state = 1;
    CHECK(cudaFree(s->p));
    s->returned = now_us();
    s->state = 2;
    return NULL;
}
static void probe_armed(void)
{
    enum { N = 200 };
    static double a[N], b[N], e[N];
    uint64_t *m;
    cudaStream_t ours, user;
    stuck_t s;
    CHECK(cudaHostAlloc((void **)&m, 4096, cudaHostAllocMapped));
    CHECK(cudaStreamCreateWithPriority(&ours, cudaStreamNonBlocking, -5));
    CHECK(cudaStreamCreateWithFlags(&user, cudaStreamNonBlocking));
    memset(m, 0, 4096);
    k_answer<<<1, 1, 0, ours>>>(m, 0); /* loaded */
    CHECK(cudaStreamSynchronize(ours));
    head("Armed launch: m[0] answer, m[8] wake word");
    for (int i = 0; i < N; i++) {
        double t0 = now_us(), end;
        if (cuStreamWaitValue64(ours, (CUdeviceptr)(uintptr_t)(m + 8), i + 1, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS) {
            printf("cuStreamWaitValue64 refused\n");
            return;
        }
        k_answer<<<1, 512, 0, ours>>>(m, i + 1);
        e[i] = now_us() - t0;
        for (end = now_us() + 100; now_us() < end;)
            ;
        t0 = now_us();
        __atomic_store_n(m + 8, (uint64_t)i + 1, __ATOMIC_RELEASE);
        for (end = t0 + 1e6; __atomic_load_n(m, __ATOMIC_ACQUIRE) != (uint64_t)i + 1 && now_us() < end;)
            ;
        a[i] = now_us() - t0;
        CHECK(cudaStreamSynchronize(ours));
    }
    report("arming: the two calls", e, N, "us");
    report("wake store -> first answer of the kernel behind it", a, N, "us");
    int stuck_seen = 0, n = 20;
    for (int i = 0; i < n; i++) {
        pthread_t t;
        double t0;
        memset(m, 0, 4096);
        /* the user's wait_enqueue, then our armed launch that completes it */
        if (cuStreamWaitValue64(user, (CUdeviceptr)(uintptr_t)m, 77, CU_STREAM_WAIT_VALUE_EQ) != CUDA_SUCCESS ||
            cuStreamWaitValue64(ours, (CUdeviceptr)(uintptr_t)(m + 8), 1, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS)
            return;
        k_answer<<<1, 512, 0, ours>>>(m, 77);
        CHECK(cudaMalloc(&s.p, 1 << 20));
        s.state = 0;
        pthread_create(&t, NULL, free_thread, &s);
        usleep(20000);
        stuck_seen += s.state == 1;
        t0 = now_us();
        __atomic_store_n(m + 8, 1, __ATOMIC_RELEASE);
        for (double end = t0 + 2e6; s.state != 2 && now_us() < end;)
            usleep(50);
        if (s.state != 2) { /* let everything go */
            printf("a stuck cudaFree did not return within 2 s\n");
            m[0] = 77;
        }
        pthread_join(t, NULL);
        b[i] = s.returned - t0;
    }
    printf("cudaFree was stuck behind the user's wait in %d of %d tries\n", stuck_seen, n);
    report("wake store -> stuck cudaFree returns", b, n, "us");
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamDestroy(ours));
    CHECK(cudaStreamDestroy(user));
    CHECK(cudaFreeHost(m));
}

/* ---- copy and a bare two-shot -------------------------------------------------------------------------------------- */

template <int ways> __device__ __forceinline__ void move(uint4 *d, const uint4 *s, uint64_t n, unsigned first, unsigned step)
{
    for (uint64_t i = first; i < n; i += (uint64_t)step * ways) {
        uint4 v[ways];
#pragma unroll
        for (int w = 0; w < ways; w++)
            if (i + (uint64_t)w * step < n)
                v[w] = s[i + (uint64_t)w * step];
#pragma unroll
        for (int w = 0; w < ways; w++)
            if (i + (uint64_t)w * step < n)
                d[i + (uint64_t)w * step] = v[w];
    }
}
__global__ void __launch_bounds__(512, 1) k_copy(uint4 *d, const uint4 *s, uint64_t n)
{
    uint64_t each = (n + gridDim.x - 1) / gridDim.x, from = blockIdx.x * each, to = from + each < n ? from + each : n;
    if (from < to)
        move<8>(d + from, s + from, to - from, threadIdx.x, blockDim.x);
}
/* Each block adds its part of `ranks` vectors and writes the sum to all of them. */
template <int ranks> __global__ void __launch_bounds__(512, 1) k_twoshot(float4 **v, uint64_t n, int rank, int nranks)
{
    uint64_t slice = n / nranks, each = (slice + gridDim.x - 1) / gridDim.x, from = blockIdx.x * each, to = from + each < slice ? from + each : slice;
    const float4 *s[ranks];
    float4 *d[ranks];
    for (int r = 0; r < ranks; r++)
        s[r] = v[r] + rank * slice, d[r] = v[nranks + r] + rank * slice;
    for (uint64_t i = from + threadIdx.x; i < to; i += 2 * blockDim.x) {
        float4 x[2][ranks];
#pragma unroll
        for (int w = 0; w < 2; w++)
#pragma unroll
            for (int r = 0; r < ranks; r++)
                if (i + w * blockDim.x < to)
                    x[w][r] = s[r][i + w * blockDim.x];
#pragma unroll
        for (int w = 0; w < 2; w++) {
#pragma unroll
            for (int r = 1; r < ranks; r++)
                x[w][0].x += x[w][r].x, x[w][0].y += x[w][r].y, x[w][0].z += x[w][r].z, x[w][0].w += x[w][r].w;
            if (i + w * blockDim.x < to)
#pragma unroll
                for (int r = 0; r < ranks; r++)
                    d[r][i + w * blockDim.x] = x[w][0];
        }
    }
}
static void probe_copy(void)
{
    enum { N = 11 };
    uint64_t bytes = 1ull << 30;
    double v[N];
    char *a, *b, name[96];
    cudaEvent_t e0, e1;
    float ms;
    CHECK(cudaMalloc((void **)&a, bytes));
    CHECK(cudaMalloc((void **)&b, bytes));
    CHECK(cudaMemset(a, 1, bytes));
    CHECK(cudaEventCreate(&e0));
    CHECK(cudaEventCreate(&e1));
    head("Copy of 1 GiB in device memory, blocks of 512 lanes, 16-byte accesses, 8 in flight (read plus written)");
    for (int blocks = 1; blocks <= 256; blocks *= 2) {
        for (int i = 0; i < N; i++) {
            CHECK(cudaEventRecord(e0));
            k_copy<<<blocks, 512>>>((uint4 *)b, (uint4 *)a, bytes / 16);
            CHECK(cudaEventRecord(e1));
            CHECK(cudaEventSynchronize(e1));
            CHECK(cudaEventElapsedTime(&ms, e0, e1));
            v[i] = 2.0 * bytes / ms * 1e-6;
        }
        snprintf(name, sizeof(name), "%d blocks", blocks);
        report(name, v, N, "GB/s");
    }
    for (int i = 0; i < N; i++) {
        CHECK(cudaEventRecord(e0));
        CHECK(cudaMemcpyAsync(b, a, bytes, cudaMemcpyDeviceToDevice));
        CHECK(cudaEventRecord(e1));
        CHECK(cudaEventSynchronize(e1));
        CHECK(cudaEventElapsedTime(&ms, e0, e1));
        v[i] = 2.0 * bytes / ms * 1e-6;
    }
    report("cudaMemcpyAsync", v, N, "GB/s");
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
}
/* Numbers of [1, 2) that look like chance: zeros move faster than data. */
__global__ void k_fill(uint32_t *p, uint32_t n, uint32_t seed)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t x = (i + seed * 77777777u) * 2654435761u;
        x ^= x >> 15;
        x *= 2246822519u;
        p[i] = 0x3f800000u | (x ^ x >> 13) >> 9;
    }
}
static void probe_twoshot(void)
{
    enum { N = 9, RANKS = 4 };
    float4 *buf[2 * RANKS], **dev;
    cudaStream_t s[RANKS];
    cudaEvent_t e0, e1, er[RANKS];
    double v[N];
    char name[96];
    float ms;
    CHECK(cudaMalloc((void **)&dev, sizeof(buf)));
    for (int i = 0; i < 2 * RANKS; i++) {
        CHECK(cudaMalloc((void **)&buf[i], 256u << 20));
        k_fill<<<1024, 256>>>((uint32_t *)buf[i], (256u << 20) / 4, i);
    }
    CHECK(cudaMemcpy(dev, buf, sizeof(buf), cudaMemcpyHostToDevice));
    for (int r = 0; r < RANKS; r++) {
        CHECK(cudaStreamCreateWithFlags(&s[r], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&er[r], cudaEventDisableTiming));
    }
    CHECK(cudaEventCreate(&e0));
    CHECK(cudaEventCreate(&e1));
    head("Bare two-shot all-reduce of floats, 4 ranks in one process (no flags at all: the limit)");
    for (uint64_t mib = 1; mib <= 256; mib *= 16)
        for (int blocks = 8; blocks <= 64; blocks *= 2) {
            for (int i = 0; i < N; i++) {
                CHECK(cudaEventRecord(e0, s[0]));
                for (int r = 1; r < RANKS; r++)
                    CHECK(cudaStreamWaitEvent(s[r], e0, 0));
                for (int r = 0; r < RANKS; r++)
                    k_twoshot<RANKS><<<blocks < 33 ? blocks : 33, 512, 0, s[r]>>>(dev, (mib << 20) / 16, r, RANKS);
                for (int r = 1; r < RANKS; r++) {
                    CHECK(cudaEventRecord(er[r], s[r]));
                    CHECK(cudaStreamWaitEvent(s[0], er[r], 0));
                }
                CHECK(cudaEventRecord(e1, s[0]));
                CHECK(cudaEventSynchronize(e1));
                CHECK(cudaEventElapsedTime(&ms, e0, e1));
                v[i] = ms * 1e3;
            }
            snprintf(name, sizeof(name), "%llu MiB a rank, %d blocks a rank (four launches included)", (unsigned long long)mib, blocks < 33 ? blocks : 33);
            report(name, v, N, "us");
        }
    for (int i = 0; i < 2 * RANKS; i++)
        CHECK(cudaFree(buf[i]));
    CHECK(cudaFree(dev));
}

/* ---- beside: a matrix product beside a kernel that only waits ----------------------------------------------------- */

__global__ void __launch_bounds__(512, 1) k_wait(uint64_t *host, uint64_t *dev, int host_pollers, uint64_t limit_ns)
{
    uint64_t until = timer() + limit_ns;
    int n = 0;
    if (threadIdx.x == 0) {
        if ((int)blockIdx.x < host_pollers) {
            while (ld_acq_sys(host) == 0 && lane0_polls_on(until, &n))
                __nanosleep(20);
            st_rel_gpu(dev, 1);
        } else {
            while (ld_acq_gpu(dev) == 0 && lane0_polls_on(until, &n))
                __nanosleep(20);
        }
    }
    __syncthreads();
}
static void probe_beside(void)
{
#ifdef WITH_CUBLAS
    enum { N = 15 };
    static const struct {
        int blocks, pollers, cluster;
        const char *name;
    } c[] = {{0, 0, 1, "nothing"}, {1, 1, 1, "1 block polling host memory"}, {8, 1, 1, "8 blocks, one polls host memory"},
             {32, 1, 1, "32 blocks, one polls host memory"}, {32, 32, 1, "32 blocks, all poll host memory"},
             {32, 1, 8, "32 blocks in clusters of 8, one polls host memory"}};
    cublasHandle_t h;
    cudaStream_t s, d;
    cudaEvent_t e0, e1;
    uint64_t *host, *dev;
    void *a, *b, *r;
    double v[N];
    char name[120];
    float ms, one = 1, zero = 0;
    if (cublasCreate(&h) != CUBLAS_STATUS_SUCCESS)
        return;
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithPriority(&d, cudaStreamNonBlocking, -5));
    cublasSetStream(h, s);
    CHECK(cudaEventCreate(&e0));
    CHECK(cudaEventCreate(&e1));
    CHECK(cudaHostAlloc((void **)&host, 4096, cudaHostAllocMapped));
    CHECK(cudaMalloc((void **)&dev, 4096));
    CHECK(cudaMalloc(&a, 8192ull * 8192 * 2));
    CHECK(cudaMalloc(&b, 8192ull * 8192 * 2));
    CHECK(cudaMalloc(&r, 8192ull * 8192 * 2));
    CHECK(cudaMemset(a, 0x3c, 8192ull * 8192 * 2));
    CHECK(cudaMemset(b, 0x3b, 8192ull * 8192 * 2));
    head("bf16 matrix product (cuBLAS) beside a resident kernel of 512-lane blocks that only waits");
    for (unsigned k = 0; k < sizeof(c) / sizeof(c[0]); k++)
        for (int size = 2048; size <= 8192; size *= 4) {
            for (int i = 0; i < N + 2; i++) {
                *host = 0;
                CHECK(cudaMemset(dev, 0, 8));
                if (c[k].blocks) {
                    cudaLaunchConfig_t g = {};
                    cudaLaunchAttribute at[1];
                    g.gridDim = dim3(c[k].blocks);
                    g.blockDim = dim3(512);
                    g.stream = d;
                    at[0].id = cudaLaunchAttributeClusterDimension;
                    at[0].val.clusterDim.x = c[k].cluster;
                    at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
                    g.attrs = at;
                    g.numAttrs = 1;
                    CHECK(cudaLaunchKernelEx(&g, k_wait, host, dev, c[k].pollers, (uint64_t)LIMIT_NS));
                    usleep(100);
                }
                CHECK(cudaEventRecord(e0, s));
                cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, a, CUDA_R_16BF, size, b, CUDA_R_16BF, size,
                             &zero, r, CUDA_R_16BF, size, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
                CHECK(cudaEventRecord(e1, s));
                CHECK(cudaEventSynchronize(e1));
                CHECK(cudaEventElapsedTime(&ms, e0, e1));
                __atomic_store_n(host, 1, __ATOMIC_RELEASE);
                CHECK(cudaDeviceSynchronize());
                if (i >= 2)
                    v[i - 2] = ms;
            }
            snprintf(name, sizeof(name), "%d^3 beside %s", size, c[k].name);
            report(name, v, N, "ms");
        }
    cublasDestroy(h);
#else
    printf("\n(built without cuBLAS: no matrix products)\n");
#endif
}

/* ---- ranks: several processes on the GPU --------------------------------------------------------------------------- */

#define MAX_RANKS 8
#define RANK_ROUNDS 2000
typedef struct shared {
    cudaIpcMemHandle_t mem;
    volatile int ready, at[64];
    double trip[MAX_RANKS][RANK_ROUNDS], shot[RANK_ROUNDS], launch[MAX_RANKS][200];
    volatile uint64_t kernel_us[MAX_RANKS];
} shared_t;

static int meet(shared_t *s, int n, int point)
{
    double end = now_us() + 60e6;
    __atomic_fetch_add(&s->at[point], 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&s->at[point], __ATOMIC_ACQUIRE) < n) {
        usleep(10);
        if (now_us() > end) {
            printf("a rank is missing at point %d\n", point);
            _exit(1);
        }
    }
    return 0;
}
/* Answers host words; between two of them ranks 0 and 1 play ping-pong with flags in rank 0's memory. */
__global__ void k_rank_ping(uint64_t *f, int rank, int rounds, uint64_t *out, uint64_t limit)
{
    uint64_t until = timer() + limit, t0 = 0;
    int n = 0;
    for (int r = 1; r <= rounds; r++) {
        if (r == rounds / 10 + 1)
            t0 = timer();
        if (rank == 0) {
            st_rel_sys(f, r);
            while (ld_acq_sys(f + 32) < (uint64_t)r && lane0_polls_on(until, &n))
                ;
        } else {
            while (ld_acq_sys(f) < (uint64_t)r && lane0_polls_on(until, &n))
                ;
            st_rel_sys(f + 32, r);
        }
    }
    *out = (timer() - t0) / (rounds - rounds / 10);
}
/* One-shot all-reduce of 8 bytes, hand-written: host word -> 16-byte words to all -> sum of all -> host word. */
__global__ void k_rank_shot(mapped_t *m, char *words, int rank, int n, int rounds, uint64_t limit)
{
    uint64_t until = timer() + limit, a, b;
    int polls = 0, lane = threadIdx.x;
    for (int r = 1; r <= rounds; r++) {
        if (lane < n) {
            do
                ld_word((void *)m->words, &a, &b);
            while (b != (uint64_t)r && lane0_polls_on(until, &polls));
            st_word(words + (((r & 1) * MAX_RANKS + lane) * MAX_RANKS + rank) * 16, a + rank, r);
            do
                ld_word(words + (((r & 1) * MAX_RANKS + rank) * MAX_RANKS + lane) * 16, &a, &b);
            while (b != (uint64_t)r && lane0_polls_on(until, &polls));
        } else {
            a = 0;
        }
        __syncwarp();
        for (int o = 16; o; o /= 2)
            a += __shfl_xor_sync(~0u, a, o);
        if (lane == 0)
            st_word((void *)&m->answer, r, a);
    }
}
static int rank_main(shared_t *s, int rank, int n)
{
    mapped_t *m;
    uint64_t *hop, *mem, *out, got;
    cudaStream_t st;
    double *v = s->trip[rank];
    uint64_t limit = 20000000000ull;
    int rounds;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithPriority(&st, cudaStreamNonBlocking, -5));
    CHECK(cudaHostAlloc((void **)&m, sizeof(*m), cudaHostAllocMapped));
    CHECK(cudaMalloc((void **)&hop, 4096));
    CHECK(cudaMalloc((void **)&out, 8));
    if (rank == 0) {
        CHECK(cudaMalloc((void **)&mem, 1 << 20));
        CHECK(cudaMemset(mem, 0, 1 << 20));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaIpcGetMemHandle(&s->mem, mem));
        s->ready = 1;
    }
    meet(s, n, 0);
    if (rank != 0)
        CHECK(cudaIpcOpenMemHandle((void **)&mem, s->mem, cudaIpcMemLazyEnablePeerAccess));
    memset((void *)m, 0, sizeof(*m));
    cudaFuncAttributes fa;
    CHECK(cudaFuncGetAttributes(&fa, k_trip));
    CHECK(cudaFuncGetAttributes(&fa, k_rank_ping));
    CHECK(cudaFuncGetAttributes(&fa, k_rank_shot));
    CHECK(cudaFuncGetAttributes(&fa, k_answer));
    meet(s, n, 1);
    /* 1: host round trip, all ranks at once; every rank's kernel is resident */
    rounds = getenv("PROBE_SLOW") ? 100 : RANK_ROUNDS;
    trip(R_ACQ, m, hop, 0, v, rounds);
    qsort(v, rounds, sizeof(*v), by_value);
    meet(s, n, 2);
    /* 2: ping-pong between the kernels of ranks 0 and 1 */
    if (rank < 2 && n > 1) {
        k_rank_ping<<<1, 1, 0, st>>>(mem, rank, rounds, out, limit);
        CHECK(cudaMemcpyAsync(&got, out, 8, cudaMemcpyDeviceToHost, st));
        CHECK(cudaStreamSynchronize(st));
        s->kernel_us[rank] = got;
    }
    meet(s, n, 3);
    /* 3: hand-written one-shot all-reduce; rank 0's clock from its own store to its own answer, all started together */
    memset((void *)m, 0, sizeof(*m));
    k_rank_shot<<<1, 32, 0, st>>>(m, (char *)(mem + 65536 / 8), rank, n, rounds, limit);
    meet(s, n, 4);
    for (int r = 1; r <= rounds; r++) {
        /* the others go when they see rank 0 start; a shared word of the processors */
        double t0, end = now_us() + 20e6;
        if (rank == 0) {
            for (double w = now_us() + 10; now_us() < w;)
                ;
            __atomic_store_n(&s->at[32], r, __ATOMIC_RELEASE);
        } else {
            while (__atomic_load_n(&s->at[32], __ATOMIC_ACQUIRE) < r && now_us() < end)
                if (n > 12)
                    sched_yield();
        }
        t0 = now_us();
        _mm_store_si128((__m128i *)m->words, _mm_set_epi64x(r, 5));
        while (m->answer < (uint64_t)r && now_us() < end)
            ;
        if (rank == 0)
            s->shot[r - 1] = now_us() - t0;
        if (r == rounds && *(volatile uint64_t *)(&m->answer + 1) != (uint64_t)(5 * n + n * (n - 1) / 2))
            printf("rank %d: the sum is wrong\n", rank);
        /* nobody runs ahead: links have two halves */
        __atomic_fetch_add(&s->at[33], 1, __ATOMIC_ACQ_REL);
        while (__atomic_load_n(&s->at[33], __ATOMIC_ACQUIRE) < r * n && now_us() < end)
            ;
    }
    CHECK(cudaStreamSynchronize(st));
    meet(s, n, 5);
    for (int i = 0; i < 200; i++) {
        double t0 = now_us(), end = t0 + 5e6;
        m->answer = 0;
        k_answer<<<1, 512, 0, st>>>(&m->answer, i + 1);
        while (m->answer != (uint64_t)i + 1 && now_us() < end)
            ;
        s->launch[rank][i] = now_us() - t0;
        CHECK(cudaStreamSynchronize(st));
    }
    meet(s, n, 6);
    if (rank == 0) {
        double all[MAX_RANKS * 200];
        char name[96];
        snprintf(name, sizeof(name), "%d ranks: host round trip, rank 0 (all ranks resident and asking)", n);
        report(name, s->trip[0], rounds, "us");
        if (n > 1)
            printf("| %-72s | %9.3f |\n", "  flag ping-pong between the kernels of two processes, round trip, us", s->kernel_us[0] * 1e-3);
        snprintf(name, sizeof(name), "%d ranks: hand-written one-shot all-reduce of 8 B, host to host", n);
        report(name, s->shot, rounds, "us");
        for (int r = 0; r < n; r++)
            memcpy(all + r * 200, s->launch[r], sizeof(s->launch[r]));
        snprintf(name, sizeof(name), "%d ranks: launch call to first answer, all ranks launching", n);
        report(name, all, n * 200, "us");
    } else {
        CHECK(cudaIpcCloseMemHandle(mem));
    }
    meet(s, n, 7);
    return 0;
}
static int probe_ranks(int n)
{
    shared_t *s = (shared_t *)mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int bad = 0;
    if (s == MAP_FAILED || n < 1 || n > MAX_RANKS)
        return 1;
    memset((void *)s, 0, sizeof(*s));
    fflush(stdout);
    for (int r = 0; r < n; r++) {
        pid_t p = fork();
        if (p == 0) {
            alarm(150);
            _exit(rank_main(s, r, n));
        }
        if (p < 0)
            return 1;
    }
    for (int r = 0; r < n; r++) {
        int st;
        if (wait(&st) > 0 && st)
            bad = 1;
    }
    return bad;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "all";
    int all = !strcmp(what, "all"), khz = 0, driver = 0;
    cudaDeviceProp prop;
    if (!strcmp(what, "ranks")) {
        printf("\n| %-72s | %9s | %9s | %9s | %9s | %-5s |\n", "several processes on one GPU", "median", "p10", "p90", "p99", "unit");
        fflush(stdout);
        for (int i = 2; i < argc; i++)
            if (probe_ranks(atoi(argv[i])))
                printf("%s ranks: failed\n", argv[i]);
        return 0;
    }
    if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess) {
        printf("no GPU\n");
        return 77;
    }
    alarm(400);
    (void)cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    (void)cudaDriverGetVersion(&driver);
    if (khz)
        ghz = khz * 1e-6;
    printf("%s, %d SMs, clock %.3f GHz (used to turn cycles into ns), driver %d\n", prop.name, prop.multiProcessorCount, ghz, driver);
    if (all || !strcmp(what, "memory"))
        probe_memory();
    if (all || !strcmp(what, "small"))
        probe_small();
    if (all || !strcmp(what, "host"))
        probe_host();
    if (all || !strcmp(what, "hop"))
        probe_hop();
    if (all || !strcmp(what, "torn"))
        probe_torn();
    if (all || !strcmp(what, "launch"))
        probe_launch();
    if (all || !strcmp(what, "armed"))
        probe_armed();
    if (all || !strcmp(what, "copy"))
        probe_copy();
    if (all || !strcmp(what, "twoshot"))
        probe_twoshot();
    if (all || !strcmp(what, "beside"))
        probe_beside();
    return 0;
}
