/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations: MPI's arguments -> occl_coll_args_t. Each public function only says what it was called with (call_t); one
 * function checks, converts and starts.
 *
 * Order of the checks: the communicator and the tag come first. Once both are valid a nonblocking start has its place in the
 * tag's sequence; if anything else is wrong the peers are told, so that they get MPIX_OCCL_ERR_MISMATCH and do not wait.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *fn;
    occl_collkind_t kind;
    const void *send;
    void *recv;
    MPI_Count scount, rcount; /* reductions and bcast: rcount only */
    MPI_Datatype stype, rtype;
    MPI_Op op;
    int root;                 /* SENDRECV: the other rank */
    int sender;
    int tag;
    MPI_Comm comm;
} call_t;

static occl_status_t bad(char *why, size_t len, occl_status_t status, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static occl_status_t bad(char *why, size_t len, occl_status_t status, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, len, fmt, ap);
    va_end(ap);
    return status;
}

/* One side's type and count, in basic elements */
static occl_status_t side(const char *what, MPI_Count count, MPI_Datatype datatype, occl_mpi_type_t *t, uint64_t *n, char *why, size_t len)
{
    occl_status_t status;

    if (count < 0)
        return bad(why, len, OCCL_ERR_COUNT, "%scount is %lld", what, (long long)count);
    status = occl_mpi_type_get(datatype, t, why, len);
    if (status != OCCL_OK)
        return status;
    if (__builtin_mul_overflow((uint64_t)count, t->n, n))
        return bad(why, len, OCCL_ERR_COUNT, "%scount is %lld of a datatype of %llu elements: too many", what, (long long)count,
                   (unsigned long long)t->n);
    return OCCL_OK;
}

/* Both sides of one rank must say the same. */
static occl_status_t same(const occl_mpi_type_t *st, uint64_t sn, const occl_mpi_type_t *rt, uint64_t rn, char *why, size_t len)
{
    if (sn != rn)
        return bad(why, len, OCCL_ERR_COUNT, "sendcount and recvcount come to %llu and %llu basic elements; they must be equal",
                   (unsigned long long)sn, (unsigned long long)rn);
    if (sn > 0 && st->id != rt->id)
        return bad(why, len, OCCL_ERR_TYPE, "sendtype (%s) and recvtype (%s) are different", occl_mpi_type_name(st->id),
                   occl_mpi_type_name(rt->id));
    return OCCL_OK;
}

static occl_status_t convert(const call_t *c, const occl_mpi_comm_t *m, occl_coll_args_t *a, char *why, size_t len)
{
    occl_mpi_type_t st = {0, 0, 0}, rt = {0, 0, 0};
    uint64_t sn = 0, rn = 0;
    occl_status_t status = OCCL_OK;
    int at_root = 1;

    a->kind = c->kind;
    a->root = -1;
    a->priority = m->priority;
    switch (c->kind) {
    case OCCL_COLL_BCAST:
    case OCCL_COLL_REDUCE:
    case OCCL_COLL_GATHER:
    case OCCL_COLL_SCATTER:
        if (c->root < 0 || c->root >= m->size)
            return bad(why, len, OCCL_ERR_ROOT, "root is %d; the communicator has ranks 0 to %d", c->root, m->size - 1);
        a->root = c->root;
        at_root = c->root == m->rank;
        break;
    case OCCL_COLL_SENDRECV:
        if (c->root < 0 || c->root >= m->size)
            return bad(why, len, OCCL_ERR_RANK, "%s is %s%d; the communicator has ranks 0 to %d", c->sender ? "dest" : "source",
                       c->root == MPI_ANY_SOURCE ? "MPI_ANY_SOURCE, which is not supported: " : "", c->root, m->size - 1);
        a->peer = c->root;
        a->sender = c->sender;
        break;
    default:
        break;
    }

    switch (c->kind) {
    case OCCL_COLL_BARRIER:
        break;

    case OCCL_COLL_BCAST:
        if (c->recv == MPI_IN_PLACE)
            return bad(why, len, OCCL_ERR_BUFFER, "buffer is MPI_IN_PLACE");
        status = side("", c->rcount, c->rtype, &rt, &rn, why, len);
        a->recv = c->recv;
        break;

    case OCCL_COLL_REDUCE:
    case OCCL_COLL_ALLREDUCE:
    case OCCL_COLL_REDUCE_SCATTER_BLOCK:
        if (c->send == MPI_IN_PLACE && !at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "sendbuf is MPI_IN_PLACE, which only the root may give");
        if (c->recv == MPI_IN_PLACE && at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE; that belongs into sendbuf");
        status = side(c->kind == OCCL_COLL_REDUCE_SCATTER_BLOCK ? "recv" : "", c->rcount, c->rtype, &rt, &rn, why, len);
        if (status == OCCL_OK)
            status = occl_mpi_op_get(c->op, &a->op, why, len);
        if (status == OCCL_OK && !rt.reduces)
            return bad(why, len, OCCL_ERR_OP, "no predefined op is defined for this datatype (a character, or a derived or unusual type)");
        a->in_place = c->send == MPI_IN_PLACE;
        a->recv = at_root ? c->recv : NULL;
        a->send = a->in_place ? c->recv : c->send;
        break;

    case OCCL_COLL_GATHER:
        if (c->send == MPI_IN_PLACE && !at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "sendbuf is MPI_IN_PLACE, which only the root may give");
        if (c->recv == MPI_IN_PLACE && at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE; that belongs into sendbuf");
        a->in_place = c->send == MPI_IN_PLACE;
        if (!a->in_place)
            status = side("send", c->scount, c->stype, &st, &sn, why, len);
        if (status == OCCL_OK && at_root)
            status = side("recv", c->rcount, c->rtype, &rt, &rn, why, len);
        if (status == OCCL_OK && at_root && !a->in_place)
            status = same(&st, sn, &rt, rn, why, len);
        if (!at_root)
            rt = st, rn = sn;
        a->send = a->in_place ? NULL : c->send;
        a->recv = at_root ? c->recv : NULL;
        break;

    case OCCL_COLL_SCATTER:
        if (c->recv == MPI_IN_PLACE && !at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE, which only the root may give");
        if (c->send == MPI_IN_PLACE && at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "sendbuf is MPI_IN_PLACE; the root gives that as recvbuf");
        a->in_place = c->recv == MPI_IN_PLACE;
        if (!a->in_place)
            status = side("recv", c->rcount, c->rtype, &rt, &rn, why, len);
        if (status == OCCL_OK && at_root)
            status = side("send", c->scount, c->stype, &st, &sn, why, len);
        if (status == OCCL_OK && at_root && !a->in_place)
            status = same(&st, sn, &rt, rn, why, len);
        if (at_root)
            rt = st, rn = sn;
        a->send = at_root ? c->send : NULL;
        a->recv = a->in_place ? NULL : c->recv;
        break;

    case OCCL_COLL_ALLGATHER:
    case OCCL_COLL_ALLTOALL:
        if (c->recv == MPI_IN_PLACE)
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE; that belongs into sendbuf");
        a->in_place = c->send == MPI_IN_PLACE;
        status = side("recv", c->rcount, c->rtype, &rt, &rn, why, len);
        if (status == OCCL_OK && !a->in_place) {
            status = side("send", c->scount, c->stype, &st, &sn, why, len);
            if (status == OCCL_OK)
                status = same(&st, sn, &rt, rn, why, len);
        }
        a->send = a->in_place ? NULL : c->send;
        a->recv = c->recv;
        break;

    case OCCL_COLL_SENDRECV:
        if (c->send == MPI_IN_PLACE || c->recv == MPI_IN_PLACE)
            return bad(why, len, OCCL_ERR_BUFFER, "buf is MPI_IN_PLACE");
        status = side("", c->rcount, c->rtype, &rt, &rn, why, len);
        a->send = c->send;
        a->recv = c->recv;
        break;

    default:
        return bad(why, len, OCCL_ERR_INTERN, "unknown operation");
    }
    if (status == OCCL_OK && (a->send == OCCL_MPI_SECTION || a->recv == OCCL_MPI_SECTION))
        return bad(why, len, OCCL_ERR_BUFFER, "%s", OCCL_MPI_SECTION_TEXT);
    a->count = rn;
    /* Of nothing the type does not matter, where MPI compares type signatures. (A message's length is the sender's alone.) */
    a->type = rn == 0 && a->op == OCCL_OP_NONE && c->kind != OCCL_COLL_SENDRECV ? (uint32_t)OCCL_T_BYTE : rt.id;
    return status;
}

/* Finds the communicator and looks at the tag: what must be right for a start to have a place. */
static occl_mpi_comm_t *enter(const call_t *c, int *rc_p)
{
    char why[256];
    occl_status_t status;
    occl_mpi_comm_t *m;

    if (OCCL_UNLIKELY(!occl_mpi_is_ready() && !occl_mpi_is_up())) {
        *rc_p = occl_mpi_fail_down(c->fn);
        return NULL;
    }
    m = occl_mpi_comm_find(c->comm, &status, why, sizeof why);
    if (OCCL_UNLIKELY(!m)) {
        *rc_p = occl_mpi_fail(NULL, c->comm, c->fn, status, "%s", why);
        return NULL;
    }
    if (OCCL_UNLIKELY(c->tag < 0)) {
        *rc_p = occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_TAG, "tag is %d%s; tags are 0 to 2147483647", c->tag,
                              c->tag == MPI_ANY_TAG ? " (MPI_ANY_TAG)" : "");
        return NULL;
    }
    return m;
}

static const char no_requests[] =
    "this MPI offers no way to complete a request below MPI_THREAD_MULTIPLE; use a persistent operation with MPIX_OCCL_NO_REQUEST";

static int start(const call_t *c, MPI_Request *request)
{
    char why[OCCL_TEXT - 64] = "";
    occl_coll_args_t args;
    occl_mpi_comm_t *m;
    occl_mpi_req_t *q = NULL;
    occl_run_t *run = NULL;
    occl_status_t status;
    int rc = MPI_SUCCESS;

    m = enter(c, &rc);
    if (OCCL_UNLIKELY(!m))
        return rc;
    memset(&args, 0, sizeof args);
    status = convert(c, m, &args, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status == OCCL_OK && !request)
        status = bad(why, sizeof why, OCCL_ERR_REQUEST, "request is NULL");
    if (status == OCCL_OK && !occl_mpi_req_allowed())
        status = bad(why, sizeof why, OCCL_ERR_UNSUPPORTED, "%s", no_requests);
    if (status == OCCL_OK && !(q = occl_mpi_req_alloc(m, c->fn)))
        status = bad(why, sizeof why, OCCL_ERR_RESOURCE, "no memory for a request");
    if (OCCL_UNLIKELY(status != OCCL_OK)) {
        if (status != OCCL_ERR_RANK) /* without the peer there is no sequence to have a place in */
            occl_start_failed(m->core, c->tag, &args, status);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    }
    if (c->kind == OCCL_COLL_SENDRECV && !c->sender) {
        q->source = c->root;
        q->tag = c->tag;
    }
    status = occl_start(m->core, c->tag, &args, &run);
    if (OCCL_UNLIKELY(status != OCCL_OK)) {
        occl_mpi_req_drop(q);
        occl_start_failed(m->core, c->tag, &args, status);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", occl_last_error());
    }
    rc = occl_mpi_req_publish(q, run, request);
    if (OCCL_UNLIKELY(rc != MPI_SUCCESS))
        return occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_RESOURCE, "MPI_Grequest_start failed; the operation was started");
    return MPI_SUCCESS;
}

static int enqueue(const call_t *c, int type, void *queue)
{
    char why[OCCL_TEXT - 64] = "";
    occl_coll_args_t args;
    occl_mpi_comm_t *m;
    occl_status_t status;
    void *core = NULL;
    int rc = MPI_SUCCESS, nobody = c->kind == OCCL_COLL_SENDRECV && c->root == MPI_PROC_NULL;

    m = enter(c, &rc);
    if (OCCL_UNLIKELY(!m))
        return rc;
    memset(&args, 0, sizeof args);
    status = nobody ? OCCL_OK : convert(c, m, &args, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_queue_get(m, type, queue, &core, why, sizeof why);
    if (OCCL_UNLIKELY(status != OCCL_OK)) {
        if (!nobody && status != OCCL_ERR_RANK)
            occl_start_failed(m->core, c->tag, &args, status);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    }
    if (nobody)
        return MPI_SUCCESS;
    atomic_store_explicit(&m->enqueued, 1, memory_order_relaxed);
    status = occl_enqueue(m->core, c->tag, &args, type, core);
    if (OCCL_UNLIKELY(status != OCCL_OK))
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", occl_last_error()); /* the core has told the peers */
    occl_mpi_req_drain();
    return MPI_SUCCESS;
}

static int init(const call_t *c, MPI_Info info, MPIX_Occl_Coll *coll_p)
{
    char why[OCCL_TEXT - 64] = "";
    occl_coll_args_t args;
    occl_mpi_comm_t *m;
    struct MPIX_Occl_coll_s *coll = NULL;
    occl_status_t status;
    int rc = MPI_SUCCESS;

    m = enter(c, &rc);
    if (!m)
        return rc;
    memset(&args, 0, sizeof args);
    status = convert(c, m, &args, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_info_priority(info, &args.priority, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status == OCCL_OK && !coll_p)
        status = bad(why, sizeof why, OCCL_ERR_ARG, "coll is NULL");
    if (status == OCCL_OK && !(coll = occl_mpi_coll_alloc()))
        status = bad(why, sizeof why, OCCL_ERR_RESOURCE, "no memory");
    if (status != OCCL_OK)
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    status = occl_coll_create(m->core, c->tag, &args, &coll->core);
    if (status != OCCL_OK) {
        occl_mpi_coll_release(coll);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", occl_last_error());
    }
    coll->m = m;
    coll->fn = c->fn;
    occl_mpi_comm_ref(m);
    atomic_store_explicit(&coll->magic, OCCL_COLL_LIVE, memory_order_release);
    *coll_p = coll;
    return MPI_SUCCESS;
}

/* --- the functions ------------------------------------------------------------------------------------------------ */

/* clang-format off */
#define NONBLOCKING(name, ...) \
    call_t c = {.fn = "MPIX_Occl_i" #name, .tag = tag, .comm = comm, __VA_ARGS__}; \
    return start(&c, request)
#define PERSISTENT(name, ...) \
    call_t c = {.fn = "MPIX_Occl_" #name "_init", .tag = tag, .comm = comm, __VA_ARGS__}; \
    return init(&c, info, coll)
#define ENQUEUE(name, ...) \
    call_t c = {.fn = "MPIX_Occl_" #name "_enqueue", .tag = tag, .comm = comm, __VA_ARGS__}; \
    return enqueue(&c, queue_type, queue)
/* clang-format on */

#define BARRIER_ARGS .kind = OCCL_COLL_BARRIER
int PMPIX_Occl_ibarrier(int tag, MPI_Comm comm, MPI_Request *request) { NONBLOCKING(barrier, BARRIER_ARGS); }
OCCL_ALIAS(ibarrier);
int PMPIX_Occl_barrier_init(int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll) { PERSISTENT(barrier, BARRIER_ARGS); }
OCCL_ALIAS(barrier_init);
int PMPIX_Occl_barrier_enqueue(int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(barrier, BARRIER_ARGS);
}
OCCL_ALIAS(barrier_enqueue);

#define BCAST_ARGS .kind = OCCL_COLL_BCAST, .recv = buffer, .rcount = count, .rtype = datatype, .root = root
int PMPIX_Occl_ibcast(void *buffer, int count, MPI_Datatype datatype, int root, int tag, MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(bcast, BCAST_ARGS);
}
OCCL_ALIAS(ibcast);
int PMPIX_Occl_bcast_init(void *buffer, int count, MPI_Datatype datatype, int root, int tag, MPI_Comm comm, MPI_Info info,
                          MPIX_Occl_Coll *coll)
{
    PERSISTENT(bcast, BCAST_ARGS);
}
OCCL_ALIAS(bcast_init);
int PMPIX_Occl_bcast_enqueue(void *buffer, int count, MPI_Datatype datatype, int root, int tag, MPI_Comm comm, int queue_type,
                             void *queue)
{
    ENQUEUE(bcast, BCAST_ARGS);
}
OCCL_ALIAS(bcast_enqueue);

#define REDUCE_ARGS \
    .kind = OCCL_COLL_REDUCE, .send = sendbuf, .recv = recvbuf, .rcount = count, .rtype = datatype, .op = op, .root = root
int PMPIX_Occl_ireduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root, int tag,
                       MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(reduce, REDUCE_ARGS);
}
OCCL_ALIAS(ireduce);
int PMPIX_Occl_reduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root, int tag,
                           MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(reduce, REDUCE_ARGS);
}
OCCL_ALIAS(reduce_init);
int PMPIX_Occl_reduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
                              int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(reduce, REDUCE_ARGS);
}
OCCL_ALIAS(reduce_enqueue);

#define ALLREDUCE_ARGS .kind = OCCL_COLL_ALLREDUCE, .send = sendbuf, .recv = recvbuf, .rcount = count, .rtype = datatype, .op = op
int PMPIX_Occl_iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int tag, MPI_Comm comm,
                          MPI_Request *request)
{
    NONBLOCKING(allreduce, ALLREDUCE_ARGS);
}
OCCL_ALIAS(iallreduce);
int PMPIX_Occl_allreduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int tag,
                              MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(allreduce, ALLREDUCE_ARGS);
}
OCCL_ALIAS(allreduce_init);
int PMPIX_Occl_allreduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int tag,
                                 MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(allreduce, ALLREDUCE_ARGS);
}
OCCL_ALIAS(allreduce_enqueue);

#define TWO_SIDED_ARGS \
    .send = sendbuf, .scount = sendcount, .stype = sendtype, .recv = recvbuf, .rcount = recvcount, .rtype = recvtype
#define GATHER_ARGS .kind = OCCL_COLL_GATHER, TWO_SIDED_ARGS, .root = root
int PMPIX_Occl_igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                       MPI_Datatype recvtype, int root, int tag, MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(gather, GATHER_ARGS);
}
OCCL_ALIAS(igather);
int PMPIX_Occl_gather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                           MPI_Datatype recvtype, int root, int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(gather, GATHER_ARGS);
}
OCCL_ALIAS(gather_init);
int PMPIX_Occl_gather_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                              MPI_Datatype recvtype, int root, int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(gather, GATHER_ARGS);
}
OCCL_ALIAS(gather_enqueue);

#define SCATTER_ARGS .kind = OCCL_COLL_SCATTER, TWO_SIDED_ARGS, .root = root
int PMPIX_Occl_iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                        MPI_Datatype recvtype, int root, int tag, MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(scatter, SCATTER_ARGS);
}
OCCL_ALIAS(iscatter);
int PMPIX_Occl_scatter_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                            MPI_Datatype recvtype, int root, int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(scatter, SCATTER_ARGS);
}
OCCL_ALIAS(scatter_init);
int PMPIX_Occl_scatter_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                               MPI_Datatype recvtype, int root, int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(scatter, SCATTER_ARGS);
}
OCCL_ALIAS(scatter_enqueue);

#define ALLGATHER_ARGS .kind = OCCL_COLL_ALLGATHER, TWO_SIDED_ARGS
int PMPIX_Occl_iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                          MPI_Datatype recvtype, int tag, MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(allgather, ALLGATHER_ARGS);
}
OCCL_ALIAS(iallgather);
int PMPIX_Occl_allgather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                              MPI_Datatype recvtype, int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(allgather, ALLGATHER_ARGS);
}
OCCL_ALIAS(allgather_init);
int PMPIX_Occl_allgather_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                                 MPI_Datatype recvtype, int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(allgather, ALLGATHER_ARGS);
}
OCCL_ALIAS(allgather_enqueue);

#define REDUCE_SCATTER_BLOCK_ARGS                                                                                        \
    .kind = OCCL_COLL_REDUCE_SCATTER_BLOCK, .send = sendbuf, .recv = recvbuf, .rcount = recvcount, .rtype = datatype, \
    .op = op
int PMPIX_Occl_ireduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op, int tag,
                                     MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(reduce_scatter_block, REDUCE_SCATTER_BLOCK_ARGS);
}
OCCL_ALIAS(ireduce_scatter_block);
int PMPIX_Occl_reduce_scatter_block_init(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                                         int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(reduce_scatter_block, REDUCE_SCATTER_BLOCK_ARGS);
}
OCCL_ALIAS(reduce_scatter_block_init);
int PMPIX_Occl_reduce_scatter_block_enqueue(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                                            int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(reduce_scatter_block, REDUCE_SCATTER_BLOCK_ARGS);
}
OCCL_ALIAS(reduce_scatter_block_enqueue);

#define ALLTOALL_ARGS .kind = OCCL_COLL_ALLTOALL, TWO_SIDED_ARGS
int PMPIX_Occl_ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                         MPI_Datatype recvtype, int tag, MPI_Comm comm, MPI_Request *request)
{
    NONBLOCKING(alltoall, ALLTOALL_ARGS);
}
OCCL_ALIAS(ialltoall);
int PMPIX_Occl_alltoall_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                             MPI_Datatype recvtype, int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    PERSISTENT(alltoall, ALLTOALL_ARGS);
}
OCCL_ALIAS(alltoall_init);
int PMPIX_Occl_alltoall_enqueue(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
                                MPI_Datatype recvtype, int tag, MPI_Comm comm, int queue_type, void *queue)
{
    ENQUEUE(alltoall, ALLTOALL_ARGS);
}
OCCL_ALIAS(alltoall_enqueue);

/* --- point to point ----------------------------------------------------------------------------------------------- */

/* To or from nobody: complete at once. A receive's status is then MPI's: source MPI_PROC_NULL, any tag, nothing. */
static int nobody(const call_t *c, MPI_Request *request)
{
    char why[OCCL_TEXT - 64];
    occl_status_t status;
    occl_mpi_comm_t *m;
    occl_mpi_req_t *q;
    int rc = MPI_SUCCESS;

    if (!(m = enter(c, &rc)))
        return rc;
    status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status != OCCL_OK)
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    if (!request)
        return occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_REQUEST, "request is NULL");
    if (!(q = occl_mpi_req_alloc(m, c->fn)))
        return occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_RESOURCE, "no memory for a request");
    if (!c->sender) {
        q->source = MPI_PROC_NULL;
        q->tag = MPI_ANY_TAG;
    }
    if (occl_mpi_req_publish(q, NULL, request) != MPI_SUCCESS)
        return occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_RESOURCE, "MPI_Grequest_start failed");
    return MPI_SUCCESS;
}

int PMPIX_Occl_isend(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, MPI_Request *request)
{
    call_t c = {.fn = "MPIX_Occl_isend", .kind = OCCL_COLL_SENDRECV, .send = buf, .rcount = count, .rtype = datatype,
                .root = dest, .sender = 1, .tag = tag, .comm = comm};

    return dest == MPI_PROC_NULL ? nobody(&c, request) : start(&c, request);
}
OCCL_ALIAS(isend);

int PMPIX_Occl_irecv(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Request *request)
{
    call_t c = {.fn = "MPIX_Occl_irecv", .kind = OCCL_COLL_SENDRECV, .recv = buf, .rcount = count, .rtype = datatype,
                .root = source, .sender = 0, .tag = tag, .comm = comm};

    return source == MPI_PROC_NULL ? nobody(&c, request) : start(&c, request);
}
OCCL_ALIAS(irecv);

int PMPIX_Occl_send_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm, int queue_type,
                            void *queue)
{
    ENQUEUE(send, .kind = OCCL_COLL_SENDRECV, .send = buf, .rcount = count, .rtype = datatype, .root = dest, .sender = 1);
}
OCCL_ALIAS(send_enqueue);

int PMPIX_Occl_recv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, int queue_type,
                            void *queue)
{
    ENQUEUE(recv, .kind = OCCL_COLL_SENDRECV, .recv = buf, .rcount = count, .rtype = datatype, .root = source, .sender = 0);
}
OCCL_ALIAS(recv_enqueue);
