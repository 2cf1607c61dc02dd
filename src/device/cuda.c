/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon on a CUDA device (cuda.h). Static runtime, no -lcuda: the library loads where there is no driver.
 */
#include "device/cuda.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "transport/cuda_ipc.h"

/* kernels/daemon.cu; its address here is that of the stub which the runtime knows. */
extern void occl_k_daemon(occl_daemon_t *d, uint64_t launch);
extern void occl_k_wait(const uint64_t *word, uint64_t value);

static occl_status_t failed(occl_cuda_t *cu, cudaError_t e, const char *what)
{
    (void)snprintf(cu->error, sizeof(cu->error), "%s: %s", what, cudaGetErrorString(e));
    return e == cudaErrorMemoryAllocation ? OCCL_ERR_RESOURCE : OCCL_ERR_DEVICE;
}

/* The caller's current device is left as it was. */
static int enter(const occl_cuda_t *cu)
{
    int was = -1;
    if (cudaGetDevice(&was) != cudaSuccess || was == cu->device)
        return -1;
    (void)cudaSetDevice(cu->device);
    return was;
}
static void leave(int was)
{
    if (was >= 0)
        (void)cudaSetDevice(was);
}

static cudaError_t alloc_zeroed(void **p, size_t bytes, cudaStream_t s)
{
    cudaError_t e = cudaMalloc(p, bytes);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(*p, 0, bytes, s);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(s);
    return e;
}

occl_status_t occl_cuda_open(int device, uint32_t nchannels, uint32_t lanes, uint32_t cluster, uint32_t max_ranks,
                             const occl_sched_conf_t *conf, occl_cuda_t *cu)
{
    struct cudaFuncAttributes attr;
    struct cudaDeviceProp prop;
    occl_daemon_t d;
    occl_chan_t ch;
    occl_status_t s = OCCL_OK;
    cudaError_t e;
    int count = 0, least, most, was, major = 0, room = 0, mps = 0;
    size_t list = (size_t)(max_ranks < 2 ? 2 : max_ranks) + 2;

    memset(cu, 0, sizeof(*cu));
    if (nchannels < 1 || nchannels > OCCL_CHANNELS_MAX || lanes % 32 || lanes < 32 || lanes > OCCL_LANES_MAX)
        return OCCL_ERR_ARG;
    e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || device >= count) {
        (void)failed(cu, e, "no GPU");
        return OCCL_ERR_UNSUPPORTED;
    }
    cu->device = device;
    cu->nchannels = cu->grid = cu->most = nchannels;
    cu->lanes = lanes;
    cu->cluster = cluster ? cluster : 1;
    was = enter(cu);
#define DO(call, what)                    \
    if ((e = (call)) != cudaSuccess) {    \
        s = failed(cu, e, what);          \
        goto out;                         \
    }
    /* Loaded now, so that no later launch of ours is a first one, which would wait for what runs. */
    DO(cudaFuncGetAttributes(&attr, (const void *)occl_k_daemon), "loading the kernel")
    DO(cudaFuncGetAttributes(&attr, (const void *)occl_k_wait), "loading the kernel")
    DO(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability")
    DO(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory")
    if (major >= 9 && attr.sharedSizeBytes + OCCL_BULK_BYTES <= (size_t)room) {
        cu->shared = OCCL_BULK_BYTES;
        DO(cudaFuncSetAttribute((const void *)occl_k_daemon, cudaFuncAttributeMaxDynamicSharedMemorySize, OCCL_BULK_BYTES), "shared memory")
    }
    /* A processor keeps its split of cache and shared memory while anything is on it: the daemon's block has to fit beside. */
    DO(cudaFuncSetAttribute((const void *)occl_k_wait, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
       "shared memory")
    DO(cudaDeviceGetStreamPriorityRange(&least, &most), "stream priorities")
    DO(cudaStreamCreateWithPriority((cudaStream_t *)&cu->stream, cudaStreamNonBlocking, most), "stream")
    DO(cudaStreamCreateWithFlags((cudaStream_t *)&cu->side, cudaStreamNonBlocking), "stream")
    if (!occl_cuda_driver("cuStreamWriteValue64", 11070, &cu->stream_write) || !occl_cuda_driver("cuStreamWaitValue64", 11070, &cu->stream_wait) ||
        !occl_cuda_driver("cuStreamGetFlags", 11070, &cu->stream_flags) || !occl_cuda_driver("cuStreamQuery", 11070, &cu->stream_query)) {
        (void)snprintf(cu->error, sizeof(cu->error), "the driver lacks functions of CUDA 11.7");
        s = OCCL_ERR_UNSUPPORTED;
        goto out;
    }
    DO(cudaGetDeviceProperties(&prop, device), "properties")
    /* cudaDevAttrMpsEnabled; drivers that do not know it say so */
    if (cudaDeviceGetAttribute(&mps, (enum cudaDeviceAttr)133, device) != cudaSuccess) {
        mps = 0;
        (void)cudaGetLastError();
    }
    cu->shared_gpu = mps != 0;
    memcpy(cu->uuid, &prop.uuid, sizeof(cu->uuid));
    (void)snprintf(cu->name, sizeof(cu->name), "%.63s", prop.name);
    cu->processors = (uint32_t)prop.multiProcessorCount;
    DO(cudaHostAlloc((void **)&cu->front, sizeof(*cu->front), cudaHostAllocMapped | cudaHostAllocPortable), "front")
    memset(cu->front, 0, sizeof(*cu->front));
    DO(alloc_zeroed((void **)&cu->daemon, sizeof(d), cu->stream), "daemon")
    DO(alloc_zeroed((void **)&cu->chan, nchannels * sizeof(ch), cu->stream), "channels")
    DO(alloc_zeroed((void **)&cu->srcs, nchannels * list * sizeof(void *), cu->stream), "pointer lists")
    DO(alloc_zeroed(&cu->quicks, OCCL_QUICKS_KEPT * sizeof(occl_quick_t), cu->stream), "plans of the fast lane")
    for (uint32_t c = 0; c < nchannels; c++) {
        memset(&ch, 0, sizeof(ch));
        ch.index = c;
        ch.nchannels = nchannels;
        ch.srcs = cu->srcs + c * list;
        if ((s = occl_cuda_upload(cu, &cu->chan[c], &ch, sizeof(ch))) != OCCL_OK)
            goto out;
    }
    memset(&d, 0, sizeof(d));
    d.conf = *conf;
    d.nchannels = nchannels;
    d.chan = cu->chan;
    d.front = cu->front;
    d.quicks = cu->quicks;
    s = occl_cuda_upload(cu, cu->daemon, &d, sizeof(d));
#undef DO
out:
    leave(was);
    if (s != OCCL_OK)
        occl_cuda_close(cu);
    return s;
}

int occl_cuda_current(char *err, size_t errlen)
{
    int count = 0, device = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count == 0)
        e = cudaErrorNoDevice;
    if (e == cudaSuccess)
        e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        return device;
    (void)snprintf(err, errlen, "no GPU: %s", cudaGetErrorString(e));
    (void)cudaGetLastError();
    return -1;
}

void occl_cuda_quiet(occl_cuda_t *cu)
{
    int was = enter(cu);
    if (cu->stream)
        (void)cudaStreamSynchronize((cudaStream_t)cu->stream);
    leave(was);
}

occl_status_t occl_cuda_export(occl_cuda_t *cu, void *p, unsigned char handle[64])
{
    int was = enter(cu);
    cudaIpcMemHandle_t h;
    cudaError_t e = cudaIpcGetMemHandle(&h, p);
    leave(was);
    memcpy(handle, &h, 64);
    return e == cudaSuccess ? OCCL_OK : failed(cu, e, "exporting memory");
}

occl_status_t occl_cuda_zero(occl_cuda_t *cu, void *p, size_t bytes, int done)
{
    int was = enter(cu);
    cudaError_t e = cudaMemsetAsync(p, 0, bytes, (cudaStream_t)cu->side);
    if (e == cudaSuccess && done)
        e = cudaStreamSynchronize((cudaStream_t)cu->side);
    leave(was);
    return e == cudaSuccess ? OCCL_OK : failed(cu, e, "zeroing memory");
}

occl_status_t occl_cuda_fill(occl_cuda_t *cu, void *p, size_t stride, uint32_t n, uint64_t value)
{
    int was = enter(cu);
    cudaError_t e = cudaSuccess;
    for (uint32_t i = 0; i < n && e == cudaSuccess; i++)
        e = cudaMemcpyAsync((char *)p + i * stride, &value, sizeof(value), cudaMemcpyHostToDevice, (cudaStream_t)cu->side);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize((cudaStream_t)cu->side);
    leave(was);
    return e == cudaSuccess ? OCCL_OK : failed(cu, e, "setting flags");
}

void occl_cuda_close(occl_cuda_t *cu)
{
    int was = enter(cu);
    if (cu->side)
        (void)cudaStreamDestroy((cudaStream_t)cu->side);
    cu->side = NULL;
    if (cu->stream) {
        (void)cudaStreamSynchronize((cudaStream_t)cu->stream);
        (void)cudaStreamDestroy((cudaStream_t)cu->stream);
    }
    (void)cudaFree(cu->quicks);
    (void)cudaFree(cu->srcs);
    (void)cudaFree(cu->chan);
    (void)cudaFree(cu->daemon);
    if (cu->front)
        (void)cudaFreeHost(cu->front);
    cu->stream = NULL;
    cu->srcs = NULL;
    cu->quicks = NULL;
    cu->chan = NULL;
    cu->daemon = NULL;
    cu->front = NULL;
    leave(was);
}

void *occl_cuda_alloc(occl_cuda_t *cu, size_t bytes)
{
    int was = enter(cu);
    void *p = NULL;
    cudaError_t e = alloc_zeroed(&p, bytes, (cudaStream_t)cu->stream);
    /* The daemon's stream may be busy for its residence: whoever allocates does so before it starts. */
    if (e != cudaSuccess) {
        (void)failed(cu, e, "device memory");
        (void)cudaFree(p);
        p = NULL;
    }
    leave(was);
    return p;
}

void occl_cuda_free(occl_cuda_t *cu, void *p)
{
    int was = enter(cu);
    (void)cudaFree(p);
    leave(was);
}

void *occl_cuda_alloc_mapped(occl_cuda_t *cu, size_t bytes)
{
    int was = enter(cu);
    void *p = NULL;
    cudaError_t e = cudaHostAlloc(&p, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
    if (e == cudaSuccess)
        memset(p, 0, bytes);
    else
        (void)failed(cu, e, "mapped memory");
    leave(was);
    return e == cudaSuccess ? p : NULL;
}

void occl_cuda_free_mapped(occl_cuda_t *cu, void *p)
{
    int was = enter(cu);
    (void)cudaFreeHost(p);
    leave(was);
}

static occl_status_t copy(occl_cuda_t *cu, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    int was = enter(cu);
    cudaError_t e = cudaMemcpy(to, from, bytes, kind);
    /* From pageable memory it returns while the last piece is on its way, and our streams do not wait for the default one. */
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(cudaStreamLegacy);
    leave(was);
    return e == cudaSuccess ? OCCL_OK : failed(cu, e, "copy");
}
occl_status_t occl_cuda_upload(occl_cuda_t *cu, void *dev, const void *host, size_t bytes)
{
    return copy(cu, dev, host, bytes, cudaMemcpyHostToDevice);
}
occl_status_t occl_cuda_download(occl_cuda_t *cu, void *host, const void *dev, size_t bytes)
{
    return copy(cu, host, dev, bytes, cudaMemcpyDeviceToHost);
}

void occl_cuda_put(occl_cuda_t *cu, const occl_dev_run_t *run, uint64_t at, uint32_t channels, uint32_t left, int fresh,
                   uint32_t nranks, const uint64_t *x, uint64_t far_x)
{
    uint64_t w[OCCL_SUB_WORDS];
    uint32_t words = OCCL_SUB_X;
    memcpy(w, run, OCCL_SUB_X * sizeof(*w));
    w[OCCL_SUB_PLAN] = w[0];
    w[0] = at | left | (uint64_t)channels << OCCL_SUB_CHANNELS_AT | (fresh ? OCCL_SUB_FRESH : 0);
    if (x && nranks <= OCCL_SUB_RANKS) {
        memcpy(w + OCCL_SUB_X, x, 2 * nranks * sizeof(*x));
        words += 2 * nranks;
        w[5] = at + offsetof(occl_dev_run_t, near);
        w[6] = w[5] + nranks * sizeof(*x);
    } else if (x) {
        w[0] |= OCCL_SUB_FAR;
        w[5] = far_x;
        w[6] = far_x + nranks * sizeof(*x);
        w[OCCL_SUB_X] = (uint64_t)(uintptr_t)x;
        w[OCCL_SUB_X + 1] = 2 * nranks;
        words += 2;
    }
    occl_front_put(cu->front, ++cu->submitted, w, words);
}

void occl_cuda_drop(occl_cuda_t *cu, uint64_t at) { occl_front_put(cu->front, ++cu->submitted, &at, 1); }

void occl_cuda_load(occl_cuda_t *cu, uint64_t to, const void *mapped, uint64_t words)
{
    uint64_t w[3] = {to | 1ull << OCCL_SUB_CHANNELS_AT, (uint64_t)(uintptr_t)mapped, words};
    occl_front_put(cu->front, ++cu->submitted, w, 3);
}

uint64_t occl_cuda_pop(occl_cuda_t *cu, uint32_t *what_p)
{
    for (uint32_t c = 0; c < cu->nchannels; c++) {
        uint64_t w;
        if (occl_front_get(cu->front, c, cu->got[c] + 1, &w)) {
            cu->got[c]++;
            *what_p = (uint32_t)(w & OCCL_CQ_MASK);
            return w & ~OCCL_CQ_MASK;
        }
    }
    return 0;
}

int occl_cuda_is_out(const occl_cuda_t *cu, int *seen_p)
{
    uint64_t quit = occl_load_acquire64(&cu->front->quit);
    if (seen_p)
        *seen_p = (uint32_t)quit == (uint32_t)cu->submitted;
    return (uint32_t)(quit >> 32) == (uint32_t)__atomic_load_n(&cu->launches, __ATOMIC_ACQUIRE);
}

static occl_status_t failed_driver(occl_cuda_t *cu, int code, const char *what)
{
    (void)snprintf(cu->error, sizeof(cu->error), "%s: driver error %d", what, code);
    return OCCL_ERR_DEVICE;
}

occl_status_t occl_cuda_stream_check(occl_cuda_t *cu, void *stream, char *err, size_t errlen)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int was = enter(cu), device = -1;
    cudaError_t e = cudaStreamIsCapturing((cudaStream_t)stream, &status);
    occl_status_t s = OCCL_OK;
    if (e != cudaSuccess) {
        (void)snprintf(err, errlen, "the stream %p cannot be used: %s", stream, cudaGetErrorString(e));
        (void)cudaGetLastError();
        s = e == cudaErrorStreamCaptureImplicit ? OCCL_ERR_UNSUPPORTED : OCCL_ERR_ARG;
    } else if (status != cudaStreamCaptureStatusNone) {
        (void)snprintf(err, errlen, "the stream %p is being captured: a graph cannot hold collectives yet", stream);
        s = OCCL_ERR_UNSUPPORTED;
    } else if (stream && cudaStreamGetDevice((cudaStream_t)stream, &device) == cudaSuccess && device != cu->device) {
        (void)snprintf(err, errlen, "the stream %p is of GPU %d, the communicator uses GPU %d", stream, device, cu->device);
        s = OCCL_ERR_ARG;
    }
    leave(was);
    return s;
}

occl_status_t occl_cuda_stream_write(occl_cuda_t *cu, void *stream, uint64_t *word, uint64_t value)
{
    int was = enter(cu), code = cu->stream_write(stream, (uintptr_t)word, value, 0);
    leave(was);
    return code ? failed_driver(cu, code, "cuStreamWriteValue64") : OCCL_OK;
}

int occl_cuda_stream_idle(occl_cuda_t *cu, void *stream)
{
    unsigned int flags = 0;
    int was = enter(cu), yes;
    /* An ordinary stream may still have to wait for the legacy default stream, which only its next piece of work would show. */
    yes = cu->stream_flags(stream, &flags) == 0 && (flags & cudaStreamNonBlocking) && cu->stream_query(stream) == 0;
    leave(was);
    return yes;
}

occl_status_t occl_cuda_stream_wait(occl_cuda_t *cu, void *stream, uint64_t *word, uint64_t value, int kernel)
{
    int was = enter(cu), code = 0;
    cudaError_t e = cudaSuccess;
    if (kernel) {
        void *args[] = {&word, &value};
        struct dim3 one = {1, 1, 1};
        e = cudaLaunchKernel((const void *)occl_k_wait, one, one, args, 0, (cudaStream_t)stream);
    } else {
        code = cu->stream_wait(stream, (uintptr_t)word, value, 0); /* until it is at least that */
    }
    leave(was);
    if (e != cudaSuccess)
        return failed(cu, e, "the wait kernel");
    return code ? failed_driver(cu, code, "cuStreamWaitValue64") : OCCL_OK;
}

occl_status_t occl_cuda_launch(occl_cuda_t *cu)
{
    occl_status_t s = occl_cuda_launch_as(cu, cu->launches + 1, cu->grid);
    if (s == OCCL_OK)
        __atomic_store_n(&cu->launches, cu->launches + 1, __ATOMIC_RELEASE);
    return s;
}

occl_status_t occl_cuda_launch_as(occl_cuda_t *cu, uint64_t number, uint32_t grid)
{
    int was = enter(cu);
    void *args[] = {&cu->daemon, &number};
    cudaLaunchConfig_t c;
    cudaLaunchAttribute a[1];
    cudaError_t e;
    memset(&c, 0, sizeof(c));
    memset(a, 0, sizeof(a));
    c.gridDim.x = grid;
    c.blockDim.x = cu->lanes;
    c.gridDim.y = c.gridDim.z = c.blockDim.y = c.blockDim.z = 1;
    c.dynamicSmemBytes = cu->shared;
    c.stream = (cudaStream_t)cu->stream;
    a[0].id = cudaLaunchAttributeClusterDimension;
    a[0].val.clusterDim.x = cu->cluster;
    a[0].val.clusterDim.y = a[0].val.clusterDim.z = 1;
    c.attrs = a;
    c.numAttrs = cu->cluster > 1;
    e = cudaLaunchKernelExC(&c, (const void *)occl_k_daemon, args);
    leave(was);
    return e == cudaSuccess ? OCCL_OK : failed(cu, e, "launch");
}
