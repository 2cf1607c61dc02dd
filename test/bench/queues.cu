// SPDX-License-Identifier: BSD-3-Clause
/*
 * Which streams hold each other up: streams share the hardware queues of a process (CUDA_DEVICE_MAX_CONNECTIONS), and one that waits
 * for a word holds up whoever shares its queue. The device's stream order (src/device/cuda_device.c) stands on what this prints.
 *
 *   nvcc -o queues queues.cu -lcuda && ./queues
 *
 * Every line: what waits, and how many of N streams made afterwards (before) get a kernel, or a written word, through meanwhile.
 */
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

enum { N = 40 };

__global__ void touch(volatile unsigned long long *at) { *at = 1; }
__global__ void hold(volatile unsigned long long *word, unsigned long long value)
{
    while (*word < value)
        __nanosleep(2000);
}

static volatile unsigned long long *word; /* mapped */

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess) {
        printf("%s: %s\n", what, cudaGetErrorString(e));
        exit(1);
    }
}
static void must(CUresult e, const char *what)
{
    if (e != CUDA_SUCCESS) {
        printf("%s: driver error %d\n", what, (int)e);
        exit(1);
    }
}

static cudaStream_t stream(int high)
{
    cudaStream_t s;
    int least, most;
    must(cudaDeviceGetStreamPriorityRange(&least, &most), "priorities");
    must(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, high ? most : least), "stream");
    return s;
}

/* A stream of a green context of its own, or NULL. */
static cudaStream_t green()
{
#if CUDA_VERSION >= 12040
    CUdevice dev;
    CUdevResource all;
    CUdevResourceDesc desc;
    CUgreenCtx ctx;
    CUstream s;
    if (cuDeviceGet(&dev, 0) || cuDeviceGetDevResource(dev, &all, CU_DEV_RESOURCE_TYPE_SM) || cuDevResourceGenerateDesc(&desc, &all, 1) ||
        cuGreenCtxCreate(&ctx, desc, dev, CU_GREEN_CTX_DEFAULT_STREAM) || cuGreenCtxStreamCreate(&s, ctx, CU_STREAM_NON_BLOCKING, 0))
        return NULL;
    return (cudaStream_t)s;
#else
    return NULL;
#endif
}

static void block(cudaStream_t s, int how)
{
    if (how == 0)
        must(cuStreamWaitValue64((CUstream)s, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_GEQ), "wait");
    else {
        hold<<<1, 32, 0, s>>>(word, 1);
        if (how == 2) /* and something behind it in the same stream */
            touch<<<1, 1, 0, s>>>(word + 1);
    }
}

/* How many of the streams get something through within 100 ms; then all go on. */
static int through(cudaStream_t *s, int n, int write)
{
    int got = 0;
    for (int i = 0; i < n; i++)
        word[8 + i] = 0;
    for (int i = 0; i < n; i++)
        if (write)
            must(cuStreamWriteValue64((CUstream)s[i], (CUdeviceptr)(word + 8 + i), 1, 0), "write");
        else
            touch<<<1, 1, 0, s[i]>>>(word + 8 + i);
    usleep(100000);
    for (int i = 0; i < n; i++)
        got += word[8 + i] == 1;
    *word = 1;
    must(cudaDeviceSynchronize(), "synchronise");
    *word = 0;
    return got;
}

int main()
{
    cudaStream_t s[N], one;
    const char *env = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    static const char *const kinds[] = {"normal stream", "high-priority stream", "green context's stream"};
    static const char *const hows[] = {"WaitValue", "wait kernel", "wait kernel with a kernel behind it"};
    void *p;

    must(cudaHostAlloc(&p, 4096, cudaHostAllocMapped | cudaHostAllocPortable), "mapped memory");
    memset(p, 0, 4096);
    word = (volatile unsigned long long *)p;
    touch<<<1, 1>>>(word + 2);
    hold<<<1, 1>>>(word, 0);
    must(cudaDeviceSynchronize(), "synchronise");
    printf("CUDA_DEVICE_MAX_CONNECTIONS %s\n", env ? env : "unset");
    for (int kind = 0; kind < 3; kind++) {
        one = kind == 2 ? green() : stream(kind);
        if (!one) {
            printf("%s: not to be had\n", kinds[kind]);
            continue;
        }
        for (int i = 0; i < N; i++)
            s[i] = stream(0);
        for (int how = 0; how < 3; how++) {
            int a, b;
            block(one, how);
            a = through(s, N, 0);
            block(one, how);
            b = through(s, N, 1);
            printf("%s waits (%s): of %d normal streams %d get a kernel through, %d a word\n", kinds[kind], hows[how], N, a, b);
            /* the other way round */
            for (int k = 1; k <= N; k++) {
                int ok;
                for (int i = 0; i < k; i++)
                    block(s[i], how);
                ok = through(&one, 1, 0);
                if (!ok || k == N) {
                    printf("%s: gets a kernel through beside %d normal streams that wait (%s)\n", kinds[kind], ok ? k : k - 1, hows[how]);
                    break;
                }
            }
        }
        /* ... with those that were made before it, each alone */
        {
            cudaStream_t late = kind == 2 ? green() : stream(kind);
            int held = 0;
            for (int k = 0; late && k < N; k++) {
                block(s[k], 0);
                held += !through(&late, 1, 0);
            }
            printf("%s made last: held up by %d of %d normal streams that wait alone\n", kinds[kind], held, N);
        }
        for (int i = 0; i < N; i++)
            must(cudaStreamDestroy(s[i]), "destroy");
    }
    return 0;
}
