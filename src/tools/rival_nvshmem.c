/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NVSHMEM's collectives on a stream beside ours. They need memory of NVSHMEM's own (the symmetric heap), so they run on buffers of the
 * same sizes, not on ours. Host library 3.x, initialised from a unique id that MPI passes round; multicast off.
 */
#include "rival.h"
#include "tool_cuda.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* From NVSHMEM's documentation: version 1 of the structures, which 3.x keeps. A version holds the size, too. */
typedef struct shm_uniqueid {
    int version;
    char internal[124];
} shm_uniqueid_t;
typedef struct shm_init_attr {
    int version;
    void *mpi_comm;
    struct {
        int version;
        struct {
            int version;
            shm_uniqueid_t *id;
            int rank, size;
        } uid;
        char content[96];
    } args;
} shm_init_attr_t;
_Static_assert(sizeof(shm_uniqueid_t) == 128 && sizeof(shm_init_attr_t) == 144, "NVSHMEM 3's layouts");
#define SHM_VERSION(x) ((1 << 16) + (int)sizeof(x))
#define SHM_INIT_WITH_UNIQUEID 8u
#define SHM_TEAM_WORLD 0

#define SHM_TABLE(X)                                                                                                         \
    X(int, get_uniqueid, nvshmemx_get_uniqueid, (shm_uniqueid_t *id))                                                        \
    X(int, set_args, nvshmemx_set_attr_uniqueid_args, (int rank, int size, const shm_uniqueid_t *id, shm_init_attr_t *attr)) \
    X(int, init, nvshmemx_hostlib_init_attr, (unsigned flags, shm_init_attr_t *attr))                                        \
    X(void, finalize, nvshmemx_hostlib_finalize, (void))                                                                     \
    X(void, vendor_version, nvshmemx_vendor_get_version_info, (int *major, int *minor, int *patch))                          \
    X(void *, malloc, nvshmem_malloc, (size_t bytes))                                                                        \
    X(void, free, nvshmem_free, (void *p))                                                                                   \
    X(int, sum_float, nvshmemx_float_sum_reduce_on_stream, (int32_t team, float *out, const float *in, size_t n, void *stream)) \
    X(int, fcollect, nvshmemx_fcollectmem_on_stream, (int32_t team, void *out, const void *in, size_t bytes, void *stream))  \
    X(int, alltoall, nvshmemx_alltoallmem_on_stream, (int32_t team, void *out, const void *in, size_t bytes, void *stream))  \
    X(int, broadcast, nvshmemx_broadcastmem_on_stream,                                                                       \
      (int32_t team, void *out, const void *in, size_t bytes, int root, void *stream))

static struct {
    void *so;
    int on;
    void *in, *out;
#define X(result, member, name, args) result(*member) args;
    SHM_TABLE(X)
#undef X
} sh;

static const char *shm_open_(MPI_Comm comm, char *err, size_t errlen)
{
    shm_uniqueid_t id = {.version = SHM_VERSION(shm_uniqueid_t)};
    shm_init_attr_t attr = {.version = SHM_VERSION(attr)};
    int rank, size, rc = 0, failed;
    const char *missing = NULL;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
    setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0); /* inside a node nothing else need be there */
    sh.so = dlopen("libnvshmem_host.so.3", RTLD_NOW | RTLD_GLOBAL);
    if (!sh.so) {
        snprintf(err, errlen, "%s (LD_LIBRARY_PATH may name its folder)", dlerror());
        return err;
    }
#define X(result, member, name, args)                            \
    if (!(sh.member = (result(*) args)dlsym(sh.so, #name)))       \
        missing = #name;
    SHM_TABLE(X)
#undef X
    if (missing) {
        snprintf(err, errlen, "libnvshmem_host.so.3 has no %s", missing);
        return err;
    }
    if (rank == 0)
        rc = sh.get_uniqueid(&id);
    MPI_Bcast(&rc, 1, MPI_INT, 0, comm);
    if (rc) {
        snprintf(err, errlen, "nvshmemx_get_uniqueid failed (%d)", rc);
        return err;
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
    attr.args.version = SHM_VERSION(attr.args);
    attr.args.uid.version = SHM_VERSION(attr.args.uid);
    rc = sh.set_args(rank, size, &id, &attr);
    if (!rc)
        rc = sh.init(SHM_INIT_WITH_UNIQUEID, &attr);
    failed = rc != 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    if (failed) {
        snprintf(err, errlen, "NVSHMEM does not start (%d here; NVSHMEM_DEBUG=WARN tells more)", rc);
        return err;
    }
    sh.on = 1;
    return NULL;
}

static void shm_end(void)
{
    if (sh.in)
        sh.free(sh.in);
    if (sh.out)
        sh.free(sh.out);
    sh.in = sh.out = NULL;
}

static void shm_close(void)
{
    shm_end();
    if (sh.on)
        sh.finalize();
    sh.on = 0;
}

static void shm_version(char *text, size_t len)
{
    int major = 0, minor = 0, patch = 0;

    sh.vendor_version(&major, &minor, &patch);
    snprintf(text, len, "NVSHMEM %d.%d.%d, on a stream of its own memory", major, minor, patch);
}

/* Collective: nvshmem_malloc is, and sizes are the same on all ranks. */
static const char *shm_begin(const tool_job_t *job)
{
    size_t block = (size_t)job->count * tool_type_size(job->type), all = block * (size_t)job->size;

    switch (job->coll) {
    case TOOL_ALLREDUCE:
        if (job->type != TOOL_FLOAT || job->op != TOOL_SUM)
            return "compared for sums of floats only";
        all = block;
        break;
    case TOOL_BCAST: all = block; break;
    case TOOL_ALLGATHER:
    case TOOL_ALLTOALL: break;
    default: return "not compared for this collective";
    }
    if (job->in_place)
        return "compared without --in-place only";
    sh.in = sh.malloc(all ? all : 16);
    sh.out = sh.malloc(all ? all : 16);
    if (!sh.in || !sh.out) {
        shm_end();
        return "its heap is full (NVSHMEM_SYMMETRIC_SIZE sets how large it is)";
    }
    return NULL;
}

static void shm_enqueue(const tool_job_t *job)
{
    size_t n = (size_t)job->count, block = n * tool_type_size(job->type);
    void *s = tool_cuda_stream();
    int rc = 0;

    switch (job->coll) {
    case TOOL_ALLREDUCE: rc = sh.sum_float(SHM_TEAM_WORLD, sh.out, sh.in, n, s); break;
    case TOOL_BCAST: rc = sh.broadcast(SHM_TEAM_WORLD, sh.out, sh.in, block, job->root, s); break;
    case TOOL_ALLGATHER: rc = sh.fcollect(SHM_TEAM_WORLD, sh.out, sh.in, block, s); break;
    case TOOL_ALLTOALL: rc = sh.alltoall(SHM_TEAM_WORLD, sh.out, sh.in, block, s); break;
    default: break;
    }
    if (rc)
        tool_fatal("NVSHMEM: %s failed (%d)", tool_coll_name(job->coll), rc);
}

const rival_t rival_nvshmem = {"nvshmem", shm_open_, shm_close, shm_version, shm_begin, shm_end, shm_enqueue};
