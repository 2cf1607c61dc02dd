/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA for the tools and for test/gpu; see tool_cuda.h. The only file of the tools that sees CUDA's headers. */
#include "tool_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int device, open;
    cudaStream_t copy, work; /* non-blocking: neither waits for the legacy default stream */
} tc;

/* sm_80 text is translated for whatever newer GPU there is. Loaded afresh each time, so that each launch is a first one. */
static const char empty_kernel[] = ".version 8.0\n"
                                   ".target sm_80\n"
                                   ".address_size 64\n"
                                   ".visible .entry occl_tool_empty()\n"
                                   "{\n"
                                   "    ret;\n"
                                   "}\n";

static void check(cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        tool_fatal("%s failed: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

const char *tool_cuda_open(int local_rank, char *err, size_t errlen)
{
    const char *what = "cudaGetDeviceCount";
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e == cudaSuccess && n == 0)
        e = cudaErrorNoDevice;
    if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver) {
        snprintf(err, errlen, "no GPU or no driver here (%s)", cudaGetErrorString(e));
        return err;
    }
    tc.device = n > 0 ? local_rank % n : 0;
    if (e == cudaSuccess)
        e = cudaSetDevice(tc.device), what = "cudaSetDevice";
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&tc.copy, cudaStreamNonBlocking), what = "cudaStreamCreateWithFlags";
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&tc.work, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        snprintf(err, errlen, "the GPU cannot be used: %s: %s", what, cudaGetErrorString(e));
        return err;
    }
    tc.open = 1;
    return NULL;
}

void tool_cuda_close(void)
{
    if (!tc.open)
        return;
    cudaStreamDestroy(tc.copy);
    cudaStreamDestroy(tc.work);
    tc.open = 0;
}

void tool_cuda_describe(char *text, size_t len)
{
    struct cudaDeviceProp prop;
    int driver = 0, runtime = 0;

    check(cudaGetDeviceProperties(&prop, tc.device), "cudaGetDeviceProperties");
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    snprintf(text, len, "%s, %d SMs, driver for CUDA %d.%d, runtime %d.%d", prop.name, prop.multiProcessorCount, driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

int tool_cuda_current(void)
{
    int device = -1;

    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
}

int tool_cuda_count(void)
{
    int n = 0;

    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

/* Mapped memory. The driver's functions are looked up, so that the tools start where there is no driver. */
typedef struct mapping {
    struct mapping *next;
    CUdeviceptr at;
    size_t bytes;
} mapping_t;
static mapping_t *mappings;

static void *driver(const char *name)
{
    enum cudaDriverEntryPointQueryResult found;
    void *p = NULL;

    check(cudaGetDriverEntryPointByVersion(name, &p, 12000, cudaEnableDefault, &found), name);
    if (!p)
        tool_fatal("the driver has no %s", name);
    return p;
}
#define DRIVER(name) ((__typeof__(&name))driver(#name))

static void driver_check(CUresult e, const char *what)
{
    if (e != CUDA_SUCCESS)
        tool_fatal("%s failed: CUresult %d", what, (int)e);
}

static void *map_alloc(size_t bytes)
{
    size_t piece = (size_t)2 << 20, total;
    CUmemAllocationProp prop;
    CUmemAccessDesc access;
    mapping_t *m = calloc(1, sizeof *m);

    while (piece * 32 < bytes)
        piece *= 2;
    total = (bytes + piece - 1) / piece * piece;
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = tc.device;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    memset(&access, 0, sizeof access);
    access.location = prop.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver_check(DRIVER(cuMemAddressReserve)(&m->at, total, 0, 0, 0), "cuMemAddressReserve");
    for (size_t at = 0; at < total; at += piece) {
        CUmemGenericAllocationHandle h;

        driver_check(DRIVER(cuMemCreate)(&h, piece, &prop, 0), "cuMemCreate");
        driver_check(DRIVER(cuMemMap)(m->at + at, piece, 0, h, 0), "cuMemMap");
        driver_check(DRIVER(cuMemRelease)(h), "cuMemRelease");
    }
    driver_check(DRIVER(cuMemSetAccess)(m->at, total, &access, 1), "cuMemSetAccess");
    m->bytes = total;
    m->next = mappings;
    mappings = m;
    return (void *)(uintptr_t)m->at;
}

static void map_free(void *p)
{
    for (mapping_t **at = &mappings; *at; at = &(*at)->next) {
        mapping_t *m = *at;

        if (m->at != (CUdeviceptr)(uintptr_t)p)
            continue;
        driver_check(DRIVER(cuMemUnmap)(m->at, m->bytes), "cuMemUnmap");
        driver_check(DRIVER(cuMemAddressFree)(m->at, m->bytes), "cuMemAddressFree");
        *at = m->next;
        free(m);
        return;
    }
    tool_fatal("%p is not mapped memory", p);
}

void *tool_cuda_alloc(tool_memory_t memory, size_t bytes)
{
    void *p = NULL;

    if (!bytes)
        bytes = 1;
    switch (memory) {
    case TOOL_MEMORY_DEVICE: check(cudaMalloc(&p, bytes), "cudaMalloc"); break;
    case TOOL_MEMORY_PINNED: check(cudaHostAlloc(&p, bytes, cudaHostAllocPortable), "cudaHostAlloc"); break;
    case TOOL_MEMORY_MANAGED: check(cudaMallocManaged(&p, bytes, cudaMemAttachGlobal), "cudaMallocManaged"); break;
    case TOOL_MEMORY_ASYNC:
        check(cudaMallocAsync(&p, bytes, tc.copy), "cudaMallocAsync");
        check(cudaStreamSynchronize(tc.copy), "cudaStreamSynchronize");
        break;
    case TOOL_MEMORY_MAPPED: p = map_alloc(bytes); break;
    default:
        if (posix_memalign(&p, 64, bytes))
            tool_fatal("no memory for a buffer of %zu bytes", bytes);
        break;
    }
    return p;
}

void tool_cuda_free(tool_memory_t memory, void *p)
{
    if (!p)
        return;
    switch (memory) {
    case TOOL_MEMORY_DEVICE:
    case TOOL_MEMORY_MANAGED: check(cudaFree(p), "cudaFree"); break;
    case TOOL_MEMORY_PINNED: check(cudaFreeHost(p), "cudaFreeHost"); break;
    case TOOL_MEMORY_ASYNC:
        check(cudaFreeAsync(p, tc.copy), "cudaFreeAsync");
        check(cudaStreamSynchronize(tc.copy), "cudaStreamSynchronize");
        break;
    case TOOL_MEMORY_MAPPED: map_free(p); break;
    default: free(p); break;
    }
}

void tool_cuda_copy(void *to, const void *from, size_t bytes)
{
    if (!bytes)
        return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, tc.copy), "cudaMemcpyAsync");
    check(cudaStreamSynchronize(tc.copy), "cudaStreamSynchronize");
}

size_t tool_cuda_free_bytes(void)
{
    size_t left = 0, all = 0;

    check(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
    return left;
}

static double first_launch(void)
{
    cudaLibrary_t library;
    cudaKernel_t kernel;
    dim3 one = {1, 1, 1};
    double t0, t;

    if (cudaLibraryLoadData(&library, empty_kernel, NULL, NULL, 0, NULL, NULL, 0) != cudaSuccess) {
        cudaGetLastError();
        return -1; /* a driver without a compiler for such text */
    }
    t0 = tool_now_us();
    check(cudaLibraryGetKernel(&kernel, library, "occl_tool_empty"), "cudaLibraryGetKernel");
    check(cudaLaunchKernel((const void *)kernel, one, one, NULL, 0, tc.work), "the first launch of a kernel");
    check(cudaStreamSynchronize(tc.work), "cudaStreamSynchronize");
    t = tool_now_us() - t0;
    check(cudaLibraryUnload(library), "cudaLibraryUnload");
    return t;
}

double tool_cuda_sync(tool_sync_t which)
{
    void *p = NULL;
    double t0;

    switch (which) {
    case TOOL_SYNC_DEVICE:
        t0 = tool_now_us();
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        break;
    case TOOL_SYNC_FREE:
        check(cudaMalloc(&p, 1 << 20), "cudaMalloc");
        t0 = tool_now_us();
        check(cudaFree(p), "cudaFree");
        break;
    case TOOL_SYNC_FREE_HOST:
        check(cudaHostAlloc(&p, 1 << 16, cudaHostAllocPortable), "cudaHostAlloc");
        t0 = tool_now_us();
        check(cudaFreeHost(p), "cudaFreeHost");
        break;
    default: return first_launch();
    }
    return tool_now_us() - t0;
}

const char *tool_cuda_sync_name(tool_sync_t which)
{
    static const char *const names[TOOL_SYNCS] = {"cudaDeviceSynchronize", "cudaFree", "first launch", "cudaFreeHost"};

    return names[which];
}

void *tool_cuda_stream(void) { return tc.work; }
void tool_cuda_stream_wait(void) { check(cudaStreamSynchronize(tc.work), "cudaStreamSynchronize"); }
