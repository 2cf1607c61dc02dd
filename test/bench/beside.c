/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library costs a program that computes: bf16 matrix products (cuBLAS) beside an attached idle library, beside a
 * collective whose peer is absent and beside collectives that run; and how long calls that wait for the device take then.
 *
 *     mpiexec -n 3 beside [PAIRS] [syncs]         "syncs": no products, and PAIRS calls of each kind
 *
 * Rank 0 never attaches. Ranks 1 and 2 share a communicator. Rank 0's and rank 1's products in turn, before and after the
 * attach, give "idle": ratio after by ratio before, so that what differs between two processes drops out. All other pairs are
 * rank 1's own: with nothing pending, then with. Prints lines "NAME,VALUE,UNIT"; test/bench/gpu.sh reads them.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../src/tools/tool.h"
#include "../../src/tools/tool_cuda.h"

static int rank, pairs = 200;
static MPI_Comm pair = MPI_COMM_NULL; /* ranks 1 and 2 */

static void check(cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        tool_fatal("%s failed: %s", what, cudaGetErrorString(e));
}

static void print(const char *name, const char *part, double value, const char *unit)
{
    printf("%s%s,%.4f,%s\n", name, part, value, unit);
    fflush(stdout);
}

/* --- products: cuBLAS, loaded at run time; its prototypes from its documentation ------------------------------------- */

enum { CUBLAS_OP_N = 0, CUBLAS_16BF = 14, CUBLAS_COMPUTE_32F = 68, CUBLAS_GEMM_DEFAULT = -1 };
static struct {
    void *handle;
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *a, int atype, int lda,
                const void *b, int btype, int ldb, const void *beta, void *c, int ctype, int ldc, int compute, int algo);
    void *a, *b, *c;
    cudaEvent_t from, to;
} blas;

static const struct {
    int n, reps;
    const char *name;
} product[] = {{8192, 1, "8192"}, {2048, 20, "2048"}};
enum { PRODUCTS = 2 };

static const char *blas_open(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    size_t bytes = (size_t)product[0].n * (size_t)product[0].n * 2;
    void *so = NULL;

    for (size_t i = 0; !so && i < sizeof names / sizeof *names; i++)
        so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return "no libcublas.so (LD_LIBRARY_PATH may name its folder)";
    *(void **)&blas.create = dlsym(so, "cublasCreate_v2");
    *(void **)&blas.set_stream = dlsym(so, "cublasSetStream_v2");
    *(void **)&blas.gemm = dlsym(so, "cublasGemmEx");
    if (!blas.create || !blas.set_stream || !blas.gemm)
        return "libcublas.so lacks a function";
    if (blas.create(&blas.handle) || blas.set_stream(blas.handle, tool_cuda_stream()))
        return "cublasCreate failed";
    blas.a = tool_cuda_alloc(TOOL_MEMORY_DEVICE, bytes);
    blas.b = tool_cuda_alloc(TOOL_MEMORY_DEVICE, bytes);
    blas.c = tool_cuda_alloc(TOOL_MEMORY_DEVICE, bytes);
    check(cudaMemset(blas.a, 0, bytes), "cudaMemset");
    check(cudaMemset(blas.b, 0, bytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check(cudaEventCreate(&blas.from), "cudaEventCreate");
    check(cudaEventCreate(&blas.to), "cudaEventCreate");
    return NULL;
}

/* Microseconds of one product on the GPU */
static double multiply(int which)
{
    const float one = 1, zero = 0;
    int n = product[which].n;
    cudaStream_t s = (cudaStream_t)tool_cuda_stream();
    float ms = 0;

    check(cudaEventRecord(blas.from, s), "cudaEventRecord");
    for (int i = 0; i < product[which].reps; i++)
        if (blas.gemm(blas.handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, blas.a, CUBLAS_16BF, n, blas.b, CUBLAS_16BF, n, &zero,
                      blas.c, CUBLAS_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT))
            tool_fatal("cublasGemmEx failed");
    check(cudaEventRecord(blas.to, s), "cudaEventRecord");
    check(cudaEventSynchronize(blas.to), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, blas.from, blas.to), "cudaEventElapsedTime");
    return (double)ms * 1e3 / product[which].reps;
}

/* --- turns ----------------------------------------------------------------------------------------------------------- */

static void tell(int to)
{
    int x = 0;
    MPI_Send(&x, 1, MPI_INT, to, 7, MPI_COMM_WORLD);
}

static void hear(int from)
{
    int x;
    MPI_Recv(&x, 1, MPI_INT, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Median of rank 1's time by rank 0's, in turn; on rank 1 */
static double in_turn(int which, double *own_p)
{
    double *ratio = calloc((size_t)pairs, sizeof *ratio), *own = calloc((size_t)pairs, sizeof *own), t0, t1, r = 0;

    for (int i = 0; i < pairs && rank < 2; i++) {
        if (rank == 0) {
            t0 = multiply(which);
            MPI_Send(&t0, 1, MPI_DOUBLE, 1, 8, MPI_COMM_WORLD);
            hear(1);
        } else {
            MPI_Recv(&t0, 1, MPI_DOUBLE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            t1 = multiply(which);
            own[i] = t1;
            ratio[i] = t1 / t0;
            tell(0);
        }
    }
    if (rank == 1) {
        r = tool_quantile(ratio, (size_t)pairs, 0.5);
        *own_p = tool_quantile(own, (size_t)pairs, 0.5);
    }
    free(ratio);
    free(own);
    MPI_Barrier(MPI_COMM_WORLD);
    return r;
}

/* --- collectives of ranks 1 and 2 -------------------------------------------------------------------------------------- */

#define TAGS 8
static struct {
    size_t bytes;
    void *in, *out;
    MPIX_Occl_Coll coll;
} job[TAGS];

static void job_make(int i, size_t bytes)
{
    job[i].bytes = bytes;
    job[i].in = tool_cuda_alloc(TOOL_MEMORY_DEVICE, bytes);
    job[i].out = tool_cuda_alloc(TOOL_MEMORY_DEVICE, bytes);
    check(cudaMemset(job[i].in, 0, bytes), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    tool_mpi_check(MPIX_Occl_allreduce_init(job[i].in, job[i].out, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, i, pair, MPI_INFO_NULL,
                                            &job[i].coll),
                   "MPIX_Occl_allreduce_init");
}

static void job_free(int i)
{
    tool_mpi_check(MPIX_Occl_coll_free(&job[i].coll), "MPIX_Occl_coll_free");
    tool_cuda_free(TOOL_MEMORY_DEVICE, job[i].in);
    tool_cuda_free(TOOL_MEMORY_DEVICE, job[i].out);
}

static void start(int i) { tool_mpi_check(MPIX_Occl_start(job[i].coll, MPIX_OCCL_NO_REQUEST), "MPIX_Occl_start"); }
static void finish(int i) { tool_mpi_check(MPIX_Occl_coll_wait(job[i].coll), "MPIX_Occl_coll_wait"); }

/* Rank 1: products with nothing pending, then with job i pending for `away` us. Rank 2 comes when told. */
static void beside_absent(int i, int which, unsigned away, const char *name)
{
    double *ratio = calloc((size_t)pairs, sizeof *ratio);

    for (int k = 0; k < pairs && rank; k++) {
        if (rank == 2) {
            hear(1);
            start(i);
            finish(i);
            continue;
        }
        double alone = multiply(which);
        start(i);
        if (away)
            usleep(away);
        ratio[k] = multiply(which) / alone;
        tell(2);
        finish(i);
        usleep(200); /* idle again */
    }
    if (rank == 1)
        print(name, product[which].name, 100 * (tool_quantile(ratio, (size_t)pairs, 0.5) - 1), "%");
    free(ratio);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* How often the daemon comes while rank 2 stays away for a second: each time it is there without progress */
static void visits(int i, const char *name)
{
    if (rank == 2) {
        hear(1);
        start(i);
        finish(i);
    } else if (rank == 1) {
        start(i);
        usleep(100000);
        unsigned long long before = tool_stat(pair, "launches");
        usleep(1000000);
        print(name, "", (double)(tool_stat(pair, "launches") - before), "launches");
        tell(2);
        finish(i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0's products beside ranks 1 and 2 that do job i again and again */
static void beside_running(int i, int which, const char *name)
{
    MPI_Request over;
    int x, done = 0, n = pairs / 4 + 1;
    double *t = calloc((size_t)n, sizeof *t), alone;

    if (rank == 0) {
        for (int k = 0; k < n; k++)
            t[k] = multiply(which);
        alone = tool_quantile(t, (size_t)n, 0.5);
        tell(1);
        tell(2);
        usleep(2000);
        for (int k = 0; k < n; k++)
            t[k] = multiply(which);
        tell(1); /* rank 1 decides when both stop */
        print(name, product[which].name, 100 * (tool_quantile(t, (size_t)n, 0.5) / alone - 1), "%");
    } else {
        hear(0);
        if (rank == 1)
            MPI_Irecv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &over);
        while (!done) {
            for (int k = 0; k < 20; k++) {
                start(i);
                finish(i);
            }
            if (rank == 1) {
                MPI_Test(&over, &done, MPI_STATUS_IGNORE);
                MPI_Send(&done, 1, MPI_INT, 2, 9, MPI_COMM_WORLD);
            } else {
                MPI_Recv(&done, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    }
    free(t);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Calls that wait for the device, on rank 1: nothing pending; all jobs pending; all jobs running */
static void syncs(int n)
{
    static const char *const when[] = {"nothing", "pending", "running"};
    double *t = calloc((size_t)n, sizeof *t);

    for (int how = 0; how < 3 && rank; how++)
        for (int which = 0; which < TOOL_SYNCS; which++) {
            char name[96];
            int got = 0;

            for (int k = 0; k < n; k++) {
                double us;

                if (how == 2) { /* both start all */
                    if (rank == 1)
                        tell(2);
                    else
                        hear(1);
                }
                if (how == 1 ? rank == 1 : how == 2)
                    for (int i = 0; i < TAGS; i++)
                        start(i);
                if (rank == 1) {
                    us = tool_cuda_sync((tool_sync_t)which);
                    if (us >= 0)
                        t[got++] = us;
                    if (how == 1)
                        tell(2);
                } else if (how == 1) {
                    hear(1);
                    for (int i = 0; i < TAGS; i++)
                        start(i);
                }
                for (int i = 0; i < TAGS && how; i++)
                    finish(i);
            }
            if (rank == 1 && got) {
                snprintf(name, sizeof name, "sync_%s_%s_", when[how], tool_cuda_sync_name((tool_sync_t)which));
                for (char *s = name; *s; s++)
                    if (*s == ' ')
                        *s = '_';
                print(name, "p50", tool_quantile(t, (size_t)got, 0.5) * 1e-3, "ms");
                print(name, "max", t[got - 1] * 1e-3, "ms"); /* sorted by then */
            }
        }
    free(t);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const size_t sizes[TAGS] = {8, 16 << 20, 4096, 1 << 20, 64, 65536, 2 << 20, 512};
    double before[PRODUCTS] = {0}, own[PRODUCTS] = {0}, again;
    int size, products = 1, asked_products, have;
    const char *no = NULL;
    char err[256];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "syncs"))
            products = 0;
        else
            pairs = atoi(argv[i]);
    }
    asked_products = products;
    if (size != 3 || pairs < 1) {
        if (rank == 0)
            fprintf(stderr, "Usage: mpiexec -n 3 beside [PAIRS] [syncs]\n");
        MPI_Finalize();
        return 2;
    }
    no = tool_device_open(TOOL_DEVICE_CUDA, MPI_COMM_WORLD, err, sizeof err);
    if (no) {
        if (rank == 0)
            fprintf(stderr, "beside: %s\n", no);
        MPI_Finalize();
        return TOOL_SKIP;
    }
    if (products) {
        no = rank < 2 ? blas_open() : NULL;
        have = no == NULL;
        if (no)
            fprintf(stderr, "beside: rank %d: no products: %s\n", rank, no);
        MPI_Allreduce(&have, &products, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    for (int p = 0; p < PRODUCTS && products; p++) {
        for (int i = 0; i < 20 && rank < 2; i++)
            multiply(p);
        MPI_Barrier(MPI_COMM_WORLD);
        before[p] = in_turn(p, &own[p]);
        if (rank == 1)
            print("product_us_", product[p].name, own[p], "us");
    }

    MPI_Comm_split(MPI_COMM_WORLD, rank ? 0 : MPI_UNDEFINED, rank, &pair);
    if (rank) {
        MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
        tool_mpi_check(tool_attach(pair, TOOL_DEVICE_CUDA), "MPIX_Occl_comm_attach");
        for (int i = 0; i < TAGS; i++)
            job_make(i, sizes[i]);
        for (int k = 0; k < 10; k++)
            for (int i = 0; i < TAGS; i++) {
                start(i);
                finish(i);
            }
        usleep(10000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int p = 0; p < PRODUCTS && products; p++) {
        again = in_turn(p, &own[p]);
        if (rank == 1)
            print("idle_", product[p].name, 100 * (again / before[p] - 1), "%");
        beside_absent(0, p, 2000, "absent_8B_");
        beside_absent(1, p, 2000, "absent_16MiB_");
        beside_absent(0, p, 0, "absent_8B_at_once_");
        beside_running(1, p, "running_16MiB_");
        beside_running(0, p, "running_8B_");
    }
    visits(0, "visits_8B");
    visits(1, "visits_16MiB");
    syncs(asked_products ? 30 : pairs);
    if (rank) {
        for (int i = 0; i < TAGS; i++)
            job_free(i);
        MPIX_Occl_comm_detach(pair);
        MPI_Comm_free(&pair);
    }
    MPI_Finalize();
    return 0;
}
