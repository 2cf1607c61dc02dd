/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL beside ours. Several ranks on one GPU need NCCL 2.30.3 or later, a cap on its blocks (without one its waiting kernels fill
 * the GPU under MPS, and it hangs) and its multicast off.
 */
#include "rival.h"
#include "tool_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From NCCL's user guide: the API of 2.x. */
typedef struct nccl_comm *nccl_comm_t;
typedef struct nccl_unique_id {
    char internal[128];
} nccl_unique_id_t;
enum { NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64 };
enum { NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN };
#define NCCL_TABLE(X)                                                                                                 \
    X(GetVersion, (int *version))                                                                                     \
    X(GetUniqueId, (nccl_unique_id_t *id))                                                                            \
    X(CommInitRank, (nccl_comm_t *comm, int nranks, nccl_unique_id_t id, int rank))                                   \
    X(CommDestroy, (nccl_comm_t comm))                                                                                \
    X(GroupStart, (void))                                                                                             \
    X(GroupEnd, (void))                                                                                               \
    X(AllReduce, (const void *in, void *out, size_t n, int type, int op, nccl_comm_t comm, void *stream))             \
    X(Reduce, (const void *in, void *out, size_t n, int type, int op, int root, nccl_comm_t comm, void *stream))      \
    X(ReduceScatter, (const void *in, void *out, size_t n, int type, int op, nccl_comm_t comm, void *stream))         \
    X(AllGather, (const void *in, void *out, size_t n, int type, nccl_comm_t comm, void *stream))                     \
    X(Broadcast, (const void *in, void *out, size_t n, int type, int root, nccl_comm_t comm, void *stream))           \
    X(Send, (const void *buf, size_t n, int type, int peer, nccl_comm_t comm, void *stream))                          \
    X(Recv, (void *buf, size_t n, int type, int peer, nccl_comm_t comm, void *stream))

static struct {
    void *so;
    nccl_comm_t comm;
    int number, rank, size;
    const char *(*text)(int result);
#define X(name, args) int (*name) args;
    NCCL_TABLE(X)
#undef X
} nc;

static void check(int result, const char *what)
{
    if (result)
        tool_fatal("NCCL: %s failed: %s", what, nc.text ? nc.text(result) : "?");
}

static const char *nccl_open(MPI_Comm comm, char *err, size_t errlen)
{
    nccl_unique_id_t id;
    MPI_Comm node;
    int local, sharing, rc, failed;
    const char *missing = NULL;

    MPI_Comm_rank(comm, &nc.rank);
    MPI_Comm_size(comm, &nc.size);
    /* Before it is loaded: it reads some of them early. What the user has set holds, but for multicast. */
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
    setenv("NCCL_MAX_CTAS", "16", 0);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    nc.so = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!nc.so) {
        snprintf(err, errlen, "%s (LD_LIBRARY_PATH may name its folder)", dlerror());
        return err;
    }
    nc.text = (const char *(*)(int))dlsym(nc.so, "ncclGetErrorString");
#define X(name, args)                                                                 \
    if (!(nc.name = (int(*) args)dlsym(nc.so, "nccl" #name)))                         \
        missing = "nccl" #name;
    NCCL_TABLE(X)
#undef X
    if (missing) {
        snprintf(err, errlen, "libnccl.so.2 has no %s", missing);
        return err;
    }
    check(nc.GetVersion(&nc.number), "ncclGetVersion");
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, nc.rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &local);
    MPI_Comm_free(&node);
    sharing = local > tool_cuda_count();
    if (sharing && nc.number < 23003) {
        snprintf(err, errlen, "NCCL %d.%d.%d refuses several ranks on one GPU; 2.30.3 is needed", nc.number / 10000,
                 nc.number / 100 % 100, nc.number % 100);
        return err;
    }
    memset(&id, 0, sizeof id);
    rc = nc.rank == 0 ? nc.GetUniqueId(&id) : 0;
    MPI_Bcast(&rc, 1, MPI_INT, 0, comm);
    if (rc) {
        snprintf(err, errlen, "ncclGetUniqueId: %s", nc.text(rc));
        return err;
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, comm);
    rc = nc.CommInitRank(&nc.comm, nc.size, id, nc.rank);
    failed = rc != 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    if (failed) {
        snprintf(err, errlen, "ncclCommInitRank: %s (NCCL_DEBUG=WARN tells more)", rc ? nc.text(rc) : "failed on another rank");
        return err;
    }
    return NULL;
}

static void nccl_close(void)
{
    if (nc.comm)
        check(nc.CommDestroy(nc.comm), "ncclCommDestroy");
    nc.comm = NULL;
}

static void nccl_version(char *text, size_t len)
{
    const char *ctas = getenv("NCCL_MAX_CTAS");

    snprintf(text, len, "NCCL %d.%d.%d, at most %s CTAs", nc.number / 10000, nc.number / 100 % 100, nc.number % 100,
             ctas ? ctas : "?");
}

static int nccl_type(tool_type_t type)
{
    switch (type) {
    case TOOL_INT8: return NCCL_INT8;
    case TOOL_UINT8: return NCCL_UINT8;
    case TOOL_INT32: return NCCL_INT32;
    case TOOL_UINT32: return NCCL_UINT32;
    case TOOL_INT64: return NCCL_INT64;
    case TOOL_UINT64: return NCCL_UINT64;
    case TOOL_FLOAT: return NCCL_FLOAT32;
    case TOOL_DOUBLE: return NCCL_FLOAT64;
    default: return -1;
    }
}

static int nccl_op(tool_op_t op)
{
    switch (op) {
    case TOOL_SUM: return NCCL_SUM;
    case TOOL_PROD: return NCCL_PROD;
    case TOOL_MAX: return NCCL_MAX;
    case TOOL_MIN: return NCCL_MIN;
    default: return -1;
    }
}

static const char *nccl_begin(const tool_job_t *job)
{
    if (nccl_type(job->type) < 0)
        return "NCCL has no such type";
    if (tool_coll_flags(job->coll) & TOOL_REDUCES && nccl_op(job->op) < 0)
        return "NCCL has no such op";
    if (job->coll == TOOL_BARRIER || job->coll == TOOL_GATHER || job->coll == TOOL_SCATTER)
        return "NCCL has no such collective";
    if (job->in_place)
        return "compared without --in-place only";
    return NULL;
}

static void nccl_end(void) {}

static void nccl_enqueue(const tool_job_t *job)
{
    size_t n = (size_t)job->count, block = n * tool_type_size(job->type);
    int type = nccl_type(job->type), op = nccl_op(job->op), rc = 0;
    void *s = tool_cuda_stream();

    switch (job->coll) {
    case TOOL_ALLREDUCE: rc = nc.AllReduce(job->send, job->recv, n, type, op, nc.comm, s); break;
    case TOOL_REDUCE: rc = nc.Reduce(job->send, job->recv, n, type, op, job->root, nc.comm, s); break;
    case TOOL_REDUCE_SCATTER_BLOCK: rc = nc.ReduceScatter(job->send, job->recv, n, type, op, nc.comm, s); break;
    case TOOL_ALLGATHER: rc = nc.AllGather(job->send, job->recv, n, type, nc.comm, s); break;
    case TOOL_BCAST: rc = nc.Broadcast(job->recv, job->recv, n, type, job->root, nc.comm, s); break;
    case TOOL_ALLTOALL:
        rc = nc.GroupStart();
        for (int r = 0; r < nc.size && !rc; r++) {
            rc = nc.Send((const char *)job->send + (size_t)r * block, n, type, r, nc.comm, s);
            if (!rc)
                rc = nc.Recv((char *)job->recv + (size_t)r * block, n, type, r, nc.comm, s);
        }
        if (!rc)
            rc = nc.GroupEnd();
        break;
    case TOOL_SENDRECV:
        rc = nc.GroupStart();
        if (!rc)
            rc = nc.Send(job->send, n, type, (nc.rank + 1) % nc.size, nc.comm, s);
        if (!rc)
            rc = nc.Recv(job->recv, n, type, (nc.rank + nc.size - 1) % nc.size, nc.comm, s);
        if (!rc)
            rc = nc.GroupEnd();
        break;
    default: break;
    }
    check(rc, tool_coll_name(job->coll));
}

const rival_t rival_nccl = {"nccl", nccl_open, nccl_close, nccl_version, nccl_begin, nccl_end, nccl_enqueue};
