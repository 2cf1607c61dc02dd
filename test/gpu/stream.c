/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives in stream order: operands that the stream itself writes just before and reads just after, several streams, runs that
 * the host starts on one rank and a stream on another, a late rank beside calls that wait for the device, capture.
 * Nothing may hang: a hang is a missing end of this test.
 */
#include "gpu_test.h"

#include <string.h>

#include <cuda_runtime_api.h>

/* What all processes of a GPU hold at once are 128 kernels, with the daemons: see the refusal. */
enum { STREAMS = 64, GRIDS = 128 };

static void must(cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        bail("%s: %s", what, cudaGetErrorString(e));
}

static float *device_floats(size_t n)
{
    float *p = NULL;
    must(cudaMalloc((void **)&p, n * sizeof(*p)), "cudaMalloc");
    return p;
}

/* What rank r contributes to element i at a step, exact in float for any number of ranks here. */
static float value(int r, size_t i, int step) { return (float)((i * 7 + (size_t)r * 3 + (size_t)step * 5) % 11); }

static size_t wrong_sums(const float *got, size_t n, int step)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        float want = 0;
        for (int r = 0; r < np; r++)
            want += value(r, i, step);
        wrong += got[i] != want;
    }
    return wrong;
}

/* Host memory that streams copy from and to asynchronously. */
static float *pinned_floats(size_t n)
{
    float *p = NULL;
    must(cudaHostAlloc((void **)&p, n * sizeof(*p), cudaHostAllocDefault), "cudaHostAlloc");
    return p;
}

static const char *error_of(int rc)
{
    static char text[MPI_MAX_ERROR_STRING + 600];
    int len = 0;
    MPI_Error_string(rc, text, &len);
    return text;
}

/* The operand is brought by the stream, the result taken away by it; many steps without the host looking. */
static void chain(size_t n, int steps, cudaStream_t stream, const char *which)
{
    float *dev = device_floats(2 * n), *in = pinned_floats((size_t)steps * n), *out = pinned_floats((size_t)steps * n);
    size_t wrong = 0;
    int failed = 0;

    for (int s = 0; s < steps; s++)
        for (size_t i = 0; i < n; i++)
            in[(size_t)s * n + i] = value(me, i, s);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int s = 0; s < steps; s++) {
        int rc;
        must(cudaMemcpyAsync(dev, in + (size_t)s * n, n * sizeof(*in), cudaMemcpyHostToDevice, stream), "copy");
        rc = MPIX_Occl_allreduce_enqueue(dev, dev + n, (int)n, MPI_FLOAT, MPI_SUM, 1, comm, MPIX_OCCL_QUEUE_CUDA_STREAM, stream);
        if (rc != MPI_SUCCESS && !failed++)
            tap_rank_diag("step %d: %s", s, error_of(rc));
        must(cudaMemcpyAsync(out + (size_t)s * n, dev + n, n * sizeof(*out), cudaMemcpyDeviceToHost, stream), "copy");
    }
    must(cudaStreamSynchronize(stream), "the stream");
    for (int s = 0; s < steps; s++)
        wrong += wrong_sums(out + (size_t)s * n, n, s);
    ok_all(wrong == 0 && !failed, "%d all-reduces of %zu floats in a row on %s, each on what the stream has just written", steps, n,
           which);
    must(cudaFree(dev), "cudaFree");
    must(cudaFreeHost(in), "cudaFreeHost");
    must(cudaFreeHost(out), "cudaFreeHost");
}

/* Registered once, started and waited for in the stream, again and again; half of the ranks start it from the host. */
static void persistent(size_t n, int host_ranks)
{
    enum { STEPS = 20 };
    float *dev = device_floats(2 * n), *host = pinned_floats(n);
    MPIX_Occl_Coll coll;
    cudaStream_t stream;
    size_t wrong = 0;
    int rc, from_host = host_ranks && me % 2, failed = 0;

    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    rc = MPIX_Occl_allreduce_init(dev, dev + n, (int)n, MPI_FLOAT, MPI_SUM, 2, comm, MPI_INFO_NULL, &coll);
    for (int s = 0; s < STEPS && rc == MPI_SUCCESS; s++) {
        for (size_t i = 0; i < n; i++)
            host[i] = value(me, i, s);
        must(cudaMemcpyAsync(dev, host, n * sizeof(*host), cudaMemcpyHostToDevice, stream), "copy");
        if (from_host) {
            must(cudaStreamSynchronize(stream), "the stream");
            failed += MPIX_Occl_start(coll, MPIX_OCCL_NO_REQUEST) != MPI_SUCCESS;
            if (s % 2)
                failed += MPIX_Occl_coll_wait(coll) != MPI_SUCCESS;
            else /* started by the host, waited for by the stream */
                failed += MPIX_Occl_wait_enqueue(coll, MPIX_OCCL_QUEUE_CUDA_STREAM, stream) != MPI_SUCCESS;
        } else {
            failed += MPIX_Occl_start_enqueue(coll, MPIX_OCCL_QUEUE_CUDA_STREAM, stream) != MPI_SUCCESS;
            failed += MPIX_Occl_wait_enqueue(coll, MPIX_OCCL_QUEUE_CUDA_STREAM, stream) != MPI_SUCCESS;
        }
        must(cudaMemcpyAsync(host, dev + n, n * sizeof(*host), cudaMemcpyDeviceToHost, stream), "copy");
        must(cudaStreamSynchronize(stream), "the stream");
        wrong += wrong_sums(host, n, s);
    }
    ok_all(rc == MPI_SUCCESS && wrong == 0 && !failed, "one registered all-reduce of %zu floats, %d times, %s", n, STEPS,
           host_ranks ? "started by a stream on even ranks and by the host on odd ones" : "started and waited for by a stream");
    if (rc == MPI_SUCCESS)
        MPIX_Occl_coll_free(&coll);
    must(cudaStreamDestroy(stream), "stream");
    must(cudaFree(dev), "cudaFree");
    must(cudaFreeHost(host), "cudaFreeHost");
}

/* Many streams wait at once while the last rank is away; the others' cudaFree waits for their streams, and no longer. */
static void late(int streams, size_t n)
{
    float *dev = device_floats(2 * n * (size_t)streams), *host = pinned_floats(n * (size_t)streams);
    cudaStream_t *s = calloc((size_t)streams, sizeof(*s));
    void *victim = NULL;
    size_t wrong = 0;
    int failed = 0;
    double from, away = 0.15;

    for (size_t i = 0; i < n * (size_t)streams; i++)
        host[i] = value(me, i % n, (int)(i / n));
    must(cudaMemcpy(dev, host, n * (size_t)streams * sizeof(*host), cudaMemcpyHostToDevice), "copy");
    must(cudaDeviceSynchronize(), "synchronise");
    for (int k = 0; k < streams; k++)
        must(cudaStreamCreateWithFlags(&s[k], cudaStreamNonBlocking), "stream");
    must(cudaMalloc(&victim, 1 << 20), "cudaMalloc");
    MPI_Barrier(MPI_COMM_WORLD);
    from = tap_now();
    if (me == np - 1)
        usleep((useconds_t)(away * 1e6));
    for (int k = 0; k < streams; k++) {
        int which = me % 2 ? streams - 1 - k : k; /* in one order here, in the other there */
        int rc = MPIX_Occl_allreduce_enqueue(dev + (size_t)which * n, dev + ((size_t)streams + (size_t)which) * n, (int)n, MPI_FLOAT,
                                             MPI_SUM, 100 + which, comm, MPIX_OCCL_QUEUE_CUDA_STREAM, s[which]);
        if (rc != MPI_SUCCESS && !failed++)
            tap_rank_diag("stream %d: %s", which, error_of(rc));
    }
    must(cudaFree(victim), "cudaFree"); /* waits for all streams, so for the late rank */
    diag("rank 0: cudaFree behind %d waiting streams returned %.1f ms after the start, the last rank was %.0f ms late", streams,
         (tap_now() - from) * 1e3, away * 1e3);
    must(cudaDeviceSynchronize(), "synchronise");
    must(cudaMemcpy(host, dev + (size_t)streams * n, n * (size_t)streams * sizeof(*host), cudaMemcpyDeviceToHost), "copy");
    for (int k = 0; k < streams; k++)
        wrong += wrong_sums(host + (size_t)k * n, n, k);
    ok_all(wrong == 0 && !failed, "%d streams that wait for a late rank, with cudaFree behind them: all go on", streams);
    for (int k = 0; k < streams; k++)
        must(cudaStreamDestroy(s[k]), "stream");
    free(s);
    must(cudaFree(dev), "cudaFree");
    must(cudaFreeHost(host), "cudaFreeHost");
}

/* More streams than can wait at once: some are told so, and nothing hangs. */
static void too_many(void)
{
    enum { N = 2 * GRIDS };
    float *dev = device_floats(2 * N);
    static cudaStream_t s[N];
    int refusals = 0, named = 0, rc;
    MPI_Comm other; /* refusals stay its errors */

    must(cudaMemset(dev, 0, 2 * N * sizeof(*dev)), "memset");
    for (int k = 0; k < N; k++)
        must(cudaStreamCreateWithFlags(&s[k], cudaStreamNonBlocking), "stream");
    must(cudaDeviceSynchronize(), "synchronise");
    MPI_Comm_dup(comm, &other);
    if (tool_attach(other, TOOL_DEVICE_CUDA) != MPI_SUCCESS)
        bail("attach: %s", whole_text(other));
    return_errors(other);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == np - 1)
        usleep(50000);
    for (int k = 0; k < N; k++) {
        rc = MPIX_Occl_allreduce_enqueue(dev + k, dev + N + k, 1, MPI_FLOAT, MPI_SUM, 300 + k, other, MPIX_OCCL_QUEUE_CUDA_STREAM, s[k]);
        if (rc != MPI_SUCCESS) {
            refusals++;
            named += strstr(whole_text(other), "streams wait") != NULL;
        }
    }
    must(cudaDeviceSynchronize(), "synchronise");
    ok_all(me == np - 1 || refusals > 0, "%d streams at once: not all can wait", N);
    MPI_Barrier(MPI_COMM_WORLD);
    rc = MPIX_Occl_allreduce_enqueue(dev, dev + N, 1, MPI_FLOAT, MPI_SUM, 299, comm, MPIX_OCCL_QUEUE_CUDA_STREAM, s[0]);
    must(cudaStreamSynchronize(s[0]), "synchronise");
    ok_all(rc == MPI_SUCCESS, "and operations go on afterwards");
    diag("rank 0: %d refusals, %d of them say why", refusals, named);
    MPIX_Occl_comm_detach(other);
    MPI_Comm_free(&other);
    for (int k = 0; k < N; k++)
        must(cudaStreamDestroy(s[k]), "stream");
    must(cudaFree(dev), "cudaFree");
}

static void refused(void)
{
    float *dev = device_floats(64), host[64] = {0};
    cudaStream_t stream;
    cudaGraph_t graph = NULL;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    int class = 0, rc, host_class = 0;

    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
    rc = MPIX_Occl_allreduce_enqueue(dev, dev + 32, 32, MPI_FLOAT, MPI_SUM, 3, comm, MPIX_OCCL_QUEUE_CUDA_STREAM, stream);
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &class);
    must(cudaStreamIsCapturing(stream, &status), "capture");
    ok_all(class == MPIX_OCCL_ERR_UNSUPPORTED, "a stream that is being captured is refused");
    ok_all(status == cudaStreamCaptureStatusActive && cudaStreamEndCapture(stream, &graph) == cudaSuccess, "and its capture goes on");
    if (graph)
        (void)cudaGraphDestroy(graph);
    rc = MPIX_Occl_allreduce_enqueue(host, host + 32, 32, MPI_FLOAT, MPI_SUM, 3, comm, MPIX_OCCL_QUEUE_CUDA_STREAM, stream);
    if (rc != MPI_SUCCESS)
        MPI_Error_class(rc, &host_class);
    ok_all(host_class == MPIX_OCCL_ERR_UNSUPPORTED, "pageable memory is refused in stream order");
    must(cudaStreamDestroy(stream), "stream");
    must(cudaFree(dev), "cudaFree");
}

/* Queued back to back; the time is what a user of a stream sees. */
static void speed(size_t bytes)
{
    enum { WARM = 20, N = 200 };
    size_t n = bytes / sizeof(float);
    float *dev = device_floats(2 * n);
    cudaStream_t stream;
    double t = 0;

    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    must(cudaMemset(dev, 0, 2 * n * sizeof(*dev)), "memset");
    must(cudaDeviceSynchronize(), "synchronise");
    for (int part = 0; part < 2; part++) {
        int count = part ? N : WARM;
        MPI_Barrier(MPI_COMM_WORLD);
        t = tap_now();
        for (int i = 0; i < count; i++)
            (void)MPIX_Occl_allreduce_enqueue(dev, dev + n, (int)n, MPI_FLOAT, MPI_SUM, 5, comm, MPIX_OCCL_QUEUE_CUDA_STREAM, stream);
        must(cudaStreamSynchronize(stream), "the stream");
        t = (tap_now() - t) / count;
    }
    diag("%zu bytes, %d all-reduces back to back on a stream: %.2f us each", bytes, N, t * 1e6);
    must(cudaStreamDestroy(stream), "stream");
    must(cudaFree(dev), "cudaFree");
}

int main(int argc, char **argv)
{
    cudaStream_t stream;

    gpu_begin(&argc, &argv);
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    chain(2, 30, stream, "a stream");
    chain(1024, 30, stream, "a stream");
    chain(300000, 10, stream, "a stream");
    chain(64, 20, NULL, "the legacy default stream");
    persistent(16, 0);
    persistent(100000, 0);
    persistent(16, 1);
    persistent(100000, 1);
    refused();
    late(1, 64);
    late(4, 64);
    late(12, 64);
    if (!quick)
        late(GRIDS / np - 4 < STREAMS ? GRIDS / np - 4 : STREAMS, 64);
    late(2, 200000);
    too_many();
    speed(8);
    speed(4096);
    speed(1 << 20);
    must(cudaStreamDestroy(stream), "stream");
    return tap_mpi_end();
}
