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

#include "kernels/daemon.h"

/* An array of counts or displacements, as the program has it */
typedef struct {
    const void *at;
    enum { ARE_INT, ARE_COUNT, ARE_AINT } are;
} vec_t;

typedef struct {
    const char *fn;
    occl_collkind_t kind;
    const void *send;
    void *recv;
    MPI_Count scount, rcount; /* reductions and bcast: rcount only */
    MPI_Datatype stype, rtype;
    MPI_Op op;
    vec_t scounts, rcounts, sdispls, rdispls;
    const MPI_Datatype *stypes, *rtypes; /* instead of stype, rtype: displacements are in bytes then */
    int root;                 /* SENDRECV: the other rank */
    int sender;
    int tag;
    MPI_Comm comm;
} call_t;

static MPI_Count number_at(const vec_t *v, int i)
{
    switch (v->are) {
    case ARE_INT: return ((const int *)v->at)[i];
    case ARE_COUNT: return ((const MPI_Count *)v->at)[i];
    default: return ((const MPI_Aint *)v->at)[i];
    }
}

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
    if (sn > 0 && (st->mixed || rt->mixed) && occl_mpi_sig_of(st, sn / st->n) != occl_mpi_sig_of(rt, rn / rt->n))
        return bad(why, len, OCCL_ERR_TYPE, "sendtype and recvtype are made of different basic types");
    if (sn > 0 && st->id != rt->id)
        return bad(why, len, OCCL_ERR_TYPE, "sendtype (%s) and recvtype (%s) are different", occl_mpi_type_name(st->id),
                   occl_mpi_type_name(rt->id));
    return OCCL_OK;
}

/* --- data with gaps, and ops of the program -------------------------------------------------------------------------- */

static int is_far(const occl_mpi_comm_t *m)
{
    int type;

    (void)occl_comm_device(m->core, &type);
    return type == OCCL_QUEUE_CUDA_STREAM;
}

static const char no_memory[] = "no memory for a copy of the data";

/* Makes *s_p if there is none yet. Only where the processor works on the data. */
static occl_status_t need_stage(const occl_mpi_comm_t *m, occl_mpi_stage_t **s_p, const char *what, char *why, size_t len)
{
    if (is_far(m))
        return bad(why, len, OCCL_ERR_UNSUPPORTED, "%s cannot be used on a communicator of the device \"%s\": use it on one attached with "
                   "the info mpix_occl_device=host", what, occl_comm_device(m->core, &(int){0}));
    if (!*s_p && !(*s_p = occl_mpi_stage_new()))
        return bad(why, len, OCCL_ERR_RESOURCE, no_memory);
    return OCCL_OK;
}

static const char with_gaps[] = "a datatype whose elements have gaps between them, or another order,";

/* One side as one piece: `count` of datatype t. *buffer_p: the user's, then ours. */
static occl_status_t stage_side(const occl_mpi_comm_t *m, occl_mpi_stage_t **s_p, int side, const void **buffer_p, const occl_mpi_type_t *t,
                                uint64_t count, int what, char *why, size_t len)
{
    occl_status_t status;

    if (OCCL_LIKELY(!t->gaps))
        return OCCL_OK;
    status = need_stage(m, s_p, with_gaps, why, len);
    if (status != OCCL_OK)
        return status;
    if (count && !*buffer_p)
        return bad(why, len, OCCL_ERR_BUFFER, "the %s buffer is NULL", side == OCCL_STAGE_SEND ? "send" : "receive");
    if (!occl_mpi_stage_add(*s_p, side, *buffer_p, t, count, what, NULL) || !(*buffer_p = occl_mpi_stage_memory(*s_p, side)))
        return bad(why, len, OCCL_ERR_RESOURCE, no_memory);
    return OCCL_OK;
}

/* A reduction by a function of the program: its contributions are moved to where they are combined. `count` is of the datatype, of one
 * block where the operation has blocks; `total` of all of them. */
static occl_status_t convert_user(const call_t *c, const occl_mpi_comm_t *m, occl_coll_args_t *a, occl_mpi_op_t *o, const occl_mpi_type_t *t,
                                  uint64_t count, const occl_block_t *parts, occl_mpi_stage_t **s_p, char *why, size_t len)
{
    int at_root = c->kind != OCCL_COLL_REDUCE || c->root == m->rank, n = m->size, me = m->rank;
    const void *send = c->send == MPI_IN_PLACE ? c->recv : c->send;
    uint64_t total = count, skip = 0, mine = count, hash = 0, each;
    uint32_t upto = at_root ? (uint32_t)n : 0;
    occl_status_t status = need_stage(m, s_p, "an op of the program", why, len);

    if (status != OCCL_OK)
        return status;
    a->as = 1;
    a->as_kind = c->kind;
    a->as_op = OCCL_OP_USER;
    a->op = OCCL_OP_NONE;
    a->kind = OCCL_COLL_ALLGATHER;
    switch (c->kind) {
    case OCCL_COLL_REDUCE: a->kind = OCCL_COLL_GATHER; break;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK: a->kind = OCCL_COLL_ALLTOALL; break;
    case OCCL_COLL_SCAN: upto = (uint32_t)me + 1; break;
    case OCCL_COLL_EXSCAN: upto = (uint32_t)me; break;
    case OCCL_COLL_REDUCE_SCATTER:
        total = 0;
        for (int i = 0; i < n; i++) {
            uint64_t k = t->n ? parts[i].n / t->n : 0;
            hash = hash * 31 + k + 1;
            if (i < me)
                skip += k;
            total += k;
        }
        mine = t->n ? parts[me].n / t->n : 0;
        count = total;
        break;
    default: break;
    }
    a->count = count * t->n;
    a->as_count = a->count ^ hash << 32;
    each = a->count * occl_host_type_bytes(t->id);
    if (each > (uint64_t)INT64_MAX / 4 / (uint64_t)n)
        return bad(why, len, OCCL_ERR_COUNT, "the contributions of %d members come to too many bytes", n);
    if (c->kind == OCCL_COLL_REDUCE_SCATTER_BLOCK)
        total = count * (uint64_t)n;
    if (total && (!send || (at_root && !c->recv)))
        return bad(why, len, OCCL_ERR_BUFFER, "%s is NULL", send ? "recvbuf" : "sendbuf");
    if (total && at_root && c->send != MPI_IN_PLACE) {
        const char *s = send, *r = c->recv;
        uint64_t bytes = t->layout ? t->layout->size * total : each;
        if (s < r + bytes && r < s + bytes && !t->gaps)
            return bad(why, len, OCCL_ERR_BUFFER, "send and receive buffers overlap; use MPI_IN_PLACE");
    }
    status = stage_side(m, s_p, OCCL_STAGE_SEND, &send, t, total, OCCL_STAGE_IN, why, len);
    if (status != OCCL_OK)
        return status;
    a->send = send;
    a->recv = NULL;
    a->in_place = 0;
    if (at_root) {
        /* One contribution of each */
        occl_mpi_type_t plain = {.id = t->id, .n = t->n};
        if (!occl_mpi_stage_add(*s_p, OCCL_STAGE_RECV, NULL, &plain, count * (uint64_t)n, 0, NULL) ||
            !(a->recv = occl_mpi_stage_memory(*s_p, OCCL_STAGE_RECV)))
            return bad(why, len, OCCL_ERR_RESOURCE, no_memory);
    }
    return occl_mpi_stage_fold(*s_p, c->op, o, c->rtype, t, each, upto, skip, mine, c->recv, why, len);
}

/* --- blocks with a length each -------------------------------------------------------------------------------------- */

/* One side of an exchange. Its n blocks are numbered as the arguments number them; peers NULL: block i is rank i's. */
typedef struct {
    const char *what;          /* "send", "recv" */
    const occl_mpi_edge_t *edges; /* neighbours */
    int n, only;               /* only >= 0: one block, of this rank; its number in the arguments is 0 */
    int skip;                  /* no block of this rank */
    MPI_Count count;           /* of each, where there is no vector of counts */
    const vec_t *counts, *displs;
    MPI_Datatype type;
    const MPI_Datatype *types;
    int spread;                /* no displacements: the blocks lie one after the other; else all are the same one */
    int side, io;              /* OCCL_STAGE_*, when they have to be copied */
    const void *base;          /* the user's buffer */
} part_t;

static occl_status_t make_part(const part_t *p, const occl_mpi_comm_t *m, occl_block_t *b, uint32_t *n_p, occl_mpi_stage_t **s_p, int copy,
                               char *why, size_t len)
{
    occl_mpi_type_t t = {.n = 0};
    occl_status_t status = OCCL_OK;
    uint64_t size = 0;
    int64_t extent = 0;
    uint32_t n = 0;

    if ((p->counts && !p->counts->at && p->n > 0) || (p->displs && !p->displs->at && p->n > 0) )
        return bad(why, len, OCCL_ERR_ARG, "%s is NULL", p->counts && !p->counts->at ? "an array of counts" : "an array of displacements");
    for (int i = 0; i < p->n && status == OCCL_OK; i++) {
        int k = p->edges ? p->edges[i].index : i, rank = p->edges ? p->edges[i].rank : p->only >= 0 ? p->only : i;
        MPI_Count count = p->counts ? number_at(p->counts, k) : p->count;
        int64_t at = 0;

        if (i == 0 || p->types) {
            MPI_Datatype type = p->types ? p->types[k] : p->type;
            /* The type of nothing is not looked at, as MPI's own functions do not where there is one for each block. */
            if (p->types && count == 0)
                t = (occl_mpi_type_t){.n = 0};
            else
                status = occl_mpi_type_get(type, &t, why, len);
            size = t.n * occl_host_type_bytes(t.id);
            extent = t.gaps ? t.layout->extent : (int64_t)size;
            if (status == OCCL_OK && t.gaps && !copy) { /* then all are copied */
                status = need_stage(m, s_p, with_gaps, why, len);
                return status == OCCL_OK ? make_part(p, m, b, n_p, s_p, 1, why, len) : status;
            }
        }
        if (status == OCCL_OK && count < 0)
            status = p->counts ? bad(why, len, OCCL_ERR_COUNT, "%scounts[%d] is %lld", p->what, k, (long long)count)
                               : bad(why, len, OCCL_ERR_COUNT, "%scount is %lld", p->what, (long long)count);
        if (status != OCCL_OK || rank == p->skip)
            continue;
        b[n].peer = rank;
        b[n].type = t.id;
        if (__builtin_mul_overflow((uint64_t)count, size, &b[n].n) || b[n].n > INT64_MAX / 2)
            return bad(why, len, OCCL_ERR_COUNT, "%scount of block %d is %lld of a datatype of %llu bytes: too many", p->what, k,
                       (long long)count, (unsigned long long)size);
        if (p->displs) {
            at = number_at(p->displs, k);
            if (!p->types && b[n].n && __builtin_mul_overflow(at, extent, &at))
                return bad(why, len, OCCL_ERR_COUNT, "displacement %d of the %s blocks is too large", k, p->what);
        } else if (p->spread && __builtin_mul_overflow((int64_t)k, (int64_t)(count * extent), &at)) {
            return bad(why, len, OCCL_ERR_COUNT, "%scount is %lld for each of %d blocks: too many", p->what, (long long)count, p->n);
        }
        b[n].at = (uint64_t)at;
        if (OCCL_UNLIKELY(copy) && n > 0 && !p->displs && !p->spread && !p->types)
            b[n].at = b[0].at; /* the same data for all */
        else if (OCCL_UNLIKELY(copy) && !occl_mpi_stage_add(*s_p, p->side, (const char *)p->base + at, &t, (uint64_t)count, p->io, &b[n].at))
            return bad(why, len, OCCL_ERR_RESOURCE, no_memory);
        n++;
    }
    *n_p = n;
    return status;
}

static int is_neighborly(occl_collkind_t kind) { return kind >= OCCL_COLL_NEIGHBOR_ALLGATHER; }

/* Where block i of the receive side lies, in bytes; for what is in place there. */
static occl_status_t home_of(const part_t *r, const occl_mpi_comm_t *m, int i, uint64_t *n_p, int64_t *at_p, uint32_t *type_p,
                             occl_mpi_stage_t **s_p, char *why, size_t len)
{
    occl_block_t b;
    uint32_t n = 0;
    part_t one = *r;
    occl_mpi_edge_t edge = {.rank = i, .index = i};
    occl_status_t status;

    one.edges = &edge;
    one.n = 1;
    one.skip = -1;
    one.side = OCCL_STAGE_SEND;
    one.io = OCCL_STAGE_IN;
    status = make_part(&one, m, &b, &n, s_p, 0, why, len);
    *n_p = n ? b.n : 0;
    *at_p = n ? (int64_t)b.at : 0;
    *type_p = n ? b.type : 0;
    return status;
}

static occl_status_t convert_blocks(const call_t *c, occl_mpi_comm_t *m, occl_coll_args_t *a, occl_block_t **blocks_p,
                                    occl_mpi_stage_t **s_p, char *why, size_t len)
{
    int at_root = c->root == m->rank, root_only = c->kind == OCCL_COLL_GATHERV || c->kind == OCCL_COLL_SCATTERV;
    part_t s = {.what = "send", .n = m->size, .only = -1, .skip = -1, .count = c->scount, .type = c->stype, .types = c->stypes};
    part_t r = {.what = "recv", .n = m->size, .only = -1, .skip = -1, .count = c->rcount, .type = c->rtype, .types = c->rtypes};
    const int own = m->rank;
    occl_block_t *b;
    occl_status_t status = OCCL_OK;
    const occl_mpi_edge_t *in = NULL, *out = NULL;
    int inside = 0; /* MPI_IN_PLACE */

    if (is_neighborly(c->kind)) {
        status = occl_mpi_neighbors(m, c->comm, &in, &r.n, &out, &s.n, why, len);
        if (status != OCCL_OK)
            return status;
        s.edges = out;
        r.edges = in;
        if (c->send == MPI_IN_PLACE || c->recv == MPI_IN_PLACE)
            return bad(why, len, OCCL_ERR_BUFFER, "%s is MPI_IN_PLACE, which operations on neighbours do not have",
                       c->send == MPI_IN_PLACE ? "sendbuf" : "recvbuf");
    } else if (c->kind == OCCL_COLL_SCATTERV) {
        inside = c->recv == MPI_IN_PLACE;
        if (inside && !at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE, which only the root may give");
        if (c->send == MPI_IN_PLACE && at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "sendbuf is MPI_IN_PLACE; the root gives that as recvbuf");
    } else {
        inside = c->send == MPI_IN_PLACE;
        if (inside && root_only && !at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "sendbuf is MPI_IN_PLACE, which only the root may give");
        if (c->recv == MPI_IN_PLACE && (at_root || !root_only))
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE; that belongs into sendbuf");
    }
    a->send = c->send;
    a->recv = c->recv;
    s.side = OCCL_STAGE_SEND;
    s.io = OCCL_STAGE_IN;
    s.base = c->send;
    r.side = OCCL_STAGE_RECV;
    r.io = OCCL_STAGE_OUT;
    r.base = c->recv;
    switch (c->kind) {
    case OCCL_COLL_GATHERV:
        r.counts = &c->rcounts;
        r.displs = &c->rdispls;
        s.n = 1;
        s.only = c->root;
        if (!at_root)
            r.n = 0;
        else if (inside)
            s.n = 0;
        break;
    case OCCL_COLL_SCATTERV:
        s.counts = &c->scounts;
        s.displs = &c->sdispls;
        r.n = 1;
        r.only = c->root;
        if (!at_root)
            s.n = 0;
        else if (inside)
            r.n = 0;
        break;
    case OCCL_COLL_ALLGATHERV:
    case OCCL_COLL_NEIGHBOR_ALLGATHERV:
        r.counts = &c->rcounts;
        r.displs = &c->rdispls;
        break;
    case OCCL_COLL_NEIGHBOR_ALLGATHER: r.spread = 1; break;
    case OCCL_COLL_NEIGHBOR_ALLTOALL: s.spread = r.spread = 1; break;
    default:
        s.counts = &c->scounts;
        s.displs = &c->sdispls;
        r.counts = &c->rcounts;
        r.displs = &c->rdispls;
        if (inside) {
            s.n = 0;
            a->in_place = 1;
            r.io |= OCCL_STAGE_IN;
        }
        break;
    }
    if (inside && c->kind != OCCL_COLL_ALLTOALLV && c->kind != OCCL_COLL_ALLTOALLW)
        s.skip = r.skip = own;
    b = *blocks_p = calloc((size_t)s.n + (size_t)r.n + 1, sizeof *b);
    if (!b)
        return bad(why, len, OCCL_ERR_RESOURCE, "no memory for a list of blocks");
    if (inside && c->kind == OCCL_COLL_ALLGATHERV) {
        /* What I send lies where I would receive it: the same for all others. */
        uint64_t bytes;
        int64_t at;
        uint32_t type;
        status = home_of(&r, m, own, &bytes, &at, &type, s_p, why, len);
        for (int p = 0; p < m->size && status == OCCL_OK; p++)
            if (p != own)
                b[a->nsends++] = (occl_block_t){.peer = p, .type = type, .n = bytes};
        a->send = (const char *)c->recv + at;
    } else {
        status = make_part(&s, m, b, &a->nsends, s_p, 0, why, len);
    }
    if (status == OCCL_OK)
        status = make_part(&r, m, b + a->nsends, &a->nrecvs, s_p, 0, why, len);
    if (OCCL_UNLIKELY(*s_p != NULL) && status == OCCL_OK) {
        if (occl_mpi_stage_has(*s_p, OCCL_STAGE_SEND) && !(a->send = occl_mpi_stage_memory(*s_p, OCCL_STAGE_SEND)))
            return bad(why, len, OCCL_ERR_RESOURCE, no_memory);
        if (occl_mpi_stage_has(*s_p, OCCL_STAGE_RECV) && !(a->recv = occl_mpi_stage_memory(*s_p, OCCL_STAGE_RECV)))
            return bad(why, len, OCCL_ERR_RESOURCE, no_memory);
    }
    a->sends = b;
    a->recvs = b + a->nsends;
    a->type = OCCL_T_BYTE;
    if (a->nsends == 0 || a->in_place)
        a->send = NULL;
    if (a->nrecvs == 0)
        a->recv = NULL;
    return status;
}

/* reduce_scatter: the lengths of the parts */
static occl_status_t convert_parts(const call_t *c, const occl_mpi_comm_t *m, const occl_mpi_type_t *t, occl_coll_args_t *a,
                                   occl_block_t **blocks_p, uint64_t *total_p, char *why, size_t len)
{
    occl_block_t *b;

    if (!c->rcounts.at)
        return bad(why, len, OCCL_ERR_ARG, "recvcounts is NULL");
    b = *blocks_p = calloc((size_t)m->size, sizeof *b);
    if (!b)
        return bad(why, len, OCCL_ERR_RESOURCE, "no memory for a list of blocks");
    *total_p = 0;
    for (int i = 0; i < m->size; i++) {
        MPI_Count count = number_at(&c->rcounts, i);
        if (count < 0)
            return bad(why, len, OCCL_ERR_COUNT, "recvcounts[%d] is %lld", i, (long long)count);
        if (__builtin_mul_overflow((uint64_t)count, t->n, &b[i].n) || __builtin_add_overflow(*total_p, b[i].n, total_p))
            return bad(why, len, OCCL_ERR_COUNT, "recvcounts[%d] is %lld: too many", i, (long long)count);
    }
    a->recvs = b;
    a->nrecvs = (uint32_t)m->size;
    return OCCL_OK;
}

/* *blocks_p: to be freed once the operation is registered, whatever comes back; args point there. */
static occl_status_t convert(const call_t *c, occl_mpi_comm_t *m, occl_coll_args_t *a, occl_block_t **blocks_p, occl_mpi_stage_t **s_p,
                             char *why, size_t len)
{
    occl_mpi_type_t st = {.n = 0}, rt = {.n = 0}, own = {.n = 0}; /* own: of what the root of a scatter receives */
    occl_mpi_op_t *o = NULL;
    uint64_t np = (uint64_t)m->size;
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
    case OCCL_COLL_GATHERV:
    case OCCL_COLL_SCATTERV:
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
    case OCCL_COLL_REDUCE_SCATTER:
    case OCCL_COLL_SCAN:
    case OCCL_COLL_EXSCAN:
        if (c->send == MPI_IN_PLACE && !at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "sendbuf is MPI_IN_PLACE, which only the root may give");
        if (c->recv == MPI_IN_PLACE && at_root)
            return bad(why, len, OCCL_ERR_BUFFER, "recvbuf is MPI_IN_PLACE; that belongs into sendbuf");
        status = side(c->kind == OCCL_COLL_REDUCE_SCATTER_BLOCK ? "recv" : "", c->rcount, c->rtype, &rt, &rn, why, len);
        if (status == OCCL_OK)
            status = occl_mpi_reduction(c->op, c->rtype, &rt, a, &o, why, len);
        if (status == OCCL_OK && c->kind == OCCL_COLL_REDUCE_SCATTER)
            status = convert_parts(c, m, &rt, a, blocks_p, &rn, why, len);
        if (status == OCCL_OK && OCCL_UNLIKELY(a->op == OCCL_OP_USER)) {
            a->recvs = NULL;
            a->nrecvs = 0;
            a->type = rt.id;
            if (c->send == OCCL_MPI_SECTION || c->recv == OCCL_MPI_SECTION)
                status = bad(why, len, OCCL_ERR_BUFFER, "%s", OCCL_MPI_SECTION_TEXT);
            else
                status = convert_user(c, m, a, o, &rt, (uint64_t)c->rcount, *blocks_p, s_p, why, len);
            if (o)
                occl_mpi_op_unref(o);
            if (rt.mixed)
                a->as_types = (uint32_t)(occl_mpi_sig_of(&rt, rt.n ? a->count / rt.n : 0) >> 40) | 1;
            return status;
        }
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
        own = rt;
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
        if (!occl_coll_exchanges(c->kind))
            return bad(why, len, OCCL_ERR_INTERN, "unknown operation");
        if ((c->send == OCCL_MPI_SECTION && (at_root || c->kind != OCCL_COLL_SCATTERV)) ||
            (c->recv == OCCL_MPI_SECTION && (at_root || c->kind != OCCL_COLL_GATHERV)))
            return bad(why, len, OCCL_ERR_BUFFER, "%s", OCCL_MPI_SECTION_TEXT);
        return convert_blocks(c, m, a, blocks_p, s_p, why, len);
    }
    if (status == OCCL_OK && (a->send == OCCL_MPI_SECTION || a->recv == OCCL_MPI_SECTION))
        return bad(why, len, OCCL_ERR_BUFFER, "%s", OCCL_MPI_SECTION_TEXT);
    a->count = rn;
    /* Of nothing the type does not matter, where MPI compares type signatures. (A message's length is the sender's alone.) */
    a->type = rn == 0 && a->op == OCCL_OP_NONE && c->kind != OCCL_COLL_SENDRECV ? (uint32_t)OCCL_T_BYTE : rt.id;
    /* Who receives in vain of a root's data has a type, too, and it is the one that counts. */
    if (OCCL_UNLIKELY(rt.mixed) && status == OCCL_OK && c->kind != OCCL_COLL_SENDRECV && rn)
        a->as_types = (uint32_t)(occl_mpi_sig_of(&rt, rn / rt.n) >> 40) | 1;
    if (OCCL_UNLIKELY(st.gaps || rt.gaps || own.gaps) && status == OCCL_OK) {
        int in = a->in_place && c->kind != OCCL_COLL_SCATTER ? OCCL_STAGE_IN : 0, out = OCCL_STAGE_OUT;
        uint64_t sblocks = c->kind == OCCL_COLL_SCATTER || c->kind == OCCL_COLL_ALLTOALL ? np : 1;
        uint64_t rblocks = c->kind == OCCL_COLL_GATHER || c->kind == OCCL_COLL_ALLGATHER || c->kind == OCCL_COLL_ALLTOALL ? np : 1;
        const void *recv = a->recv;

        if (c->kind == OCCL_COLL_BCAST)
            in = at_root ? OCCL_STAGE_IN : 0, out = at_root ? 0 : OCCL_STAGE_OUT;
        if (a->send)
            status = stage_side(m, s_p, OCCL_STAGE_SEND, &a->send, c->kind == OCCL_COLL_SENDRECV ? &rt : &st,
                                (uint64_t)(c->kind == OCCL_COLL_SENDRECV ? c->rcount : c->scount) * sblocks, OCCL_STAGE_IN, why, len);
        if (status == OCCL_OK && a->recv)
            status = stage_side(m, s_p, OCCL_STAGE_RECV, &recv, c->kind == OCCL_COLL_SCATTER ? &own : &rt, (uint64_t)c->rcount * rblocks,
                                in | out, why, len);
        a->recv = (void *)(uintptr_t)recv;
    }
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

/* args of c, or of nothing where nobody is at the other end. done_with is to be called, whatever comes back. */
static occl_status_t make_args(const call_t *c, int nobody, occl_mpi_comm_t *m, occl_coll_args_t *a, occl_block_t **blocks_p,
                               occl_mpi_stage_t **stage_p, char *why, size_t len)
{
    occl_status_t status;

    memset(a, 0, sizeof *a);
    status = nobody ? OCCL_OK : convert(c, m, a, blocks_p, stage_p, why, len);
    a->stage = *stage_p ? occl_mpi_stage_core(*stage_p) : NULL;
    return status;
}

/* What make_args has made: the core has what it needs of it. */
static void done_with(occl_block_t *blocks, occl_mpi_stage_t *stage)
{
    free(blocks);
    if (OCCL_UNLIKELY(stage != NULL))
        occl_mpi_stage_unref(stage);
}

static int start(const call_t *c, MPI_Request *request)
{
    char why[OCCL_TEXT - 64] = "";
    occl_coll_args_t args;
    occl_block_t *blocks = NULL;
    occl_mpi_stage_t *stage = NULL;
    occl_mpi_comm_t *m;
    occl_mpi_req_t *q = NULL;
    occl_run_t *run = NULL;
    occl_status_t status;
    int rc = MPI_SUCCESS;

    m = enter(c, &rc);
    if (OCCL_UNLIKELY(!m))
        return rc;
    status = make_args(c, 0, m, &args, &blocks, &stage, why, sizeof why);
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
        done_with(blocks, stage);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    }
    if (c->kind == OCCL_COLL_SENDRECV && !c->sender) {
        q->source = c->root;
        q->tag = c->tag;
    }
    status = occl_start(m->core, c->tag, &args, &run);
    done_with(blocks, stage);
    if (OCCL_UNLIKELY(status != OCCL_OK)) {
        occl_mpi_req_drop(q);
        occl_start_failed(m->core, c->tag, &args, status);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", occl_last_error());
    }
    rc = occl_mpi_req_publish(q, run, NULL, request);
    if (OCCL_UNLIKELY(rc != MPI_SUCCESS))
        return occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_RESOURCE, "MPI_Grequest_start failed; the operation was started");
    return MPI_SUCCESS;
}

static int enqueue(const call_t *c, int type, void *queue)
{
    char why[OCCL_TEXT - 64] = "";
    occl_coll_args_t args;
    occl_block_t *blocks = NULL;
    occl_mpi_stage_t *stage = NULL;
    occl_mpi_comm_t *m;
    occl_status_t status;
    void *core = NULL;
    int rc = MPI_SUCCESS, nobody = c->kind == OCCL_COLL_SENDRECV && c->root == MPI_PROC_NULL;

    m = enter(c, &rc);
    if (OCCL_UNLIKELY(!m))
        return rc;
    status = make_args(c, nobody, m, &args, &blocks, &stage, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_queue_get(m, type, queue, &core, why, sizeof why);
    if (OCCL_UNLIKELY(status != OCCL_OK)) {
        if (!nobody && status != OCCL_ERR_RANK)
            occl_start_failed(m->core, c->tag, &args, status);
        done_with(blocks, stage);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    }
    if (nobody)
        return MPI_SUCCESS;
    atomic_store_explicit(&m->enqueued, 1, memory_order_relaxed);
    status = occl_enqueue(m->core, c->tag, &args, type, core);
    done_with(blocks, stage);
    if (OCCL_UNLIKELY(status != OCCL_OK))
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", occl_last_error()); /* the core has told the peers */
    occl_mpi_req_drain();
    return MPI_SUCCESS;
}

static int init(const call_t *c, MPI_Info info, MPIX_Occl_Coll *coll_p)
{
    char why[OCCL_TEXT - 64] = "";
    occl_coll_args_t args;
    occl_block_t *blocks = NULL;
    occl_mpi_stage_t *stage = NULL;
    occl_mpi_comm_t *m;
    struct MPIX_Occl_coll_s *coll = NULL;
    occl_status_t status;
    int rc = MPI_SUCCESS, nobody = c->kind == OCCL_COLL_SENDRECV && c->root == MPI_PROC_NULL;

    m = enter(c, &rc);
    if (!m)
        return rc;
    status = make_args(c, nobody, m, &args, &blocks, &stage, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_info_priority(info, &args.priority, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status == OCCL_OK && !coll_p)
        status = bad(why, sizeof why, OCCL_ERR_ARG, "coll is NULL");
    if (status == OCCL_OK && !(coll = occl_mpi_coll_alloc()))
        status = bad(why, sizeof why, OCCL_ERR_RESOURCE, "no memory");
    if (status != OCCL_OK) {
        done_with(blocks, stage);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", why);
    }
    if (!nobody)
        status = occl_coll_create(m->core, c->tag, &args, &coll->core);
    done_with(blocks, stage);
    if (status != OCCL_OK) {
        occl_mpi_coll_release(coll);
        return occl_mpi_fail(m, c->comm, c->fn, status, "%s", occl_last_error());
    }
    coll->m = m;
    coll->fn = c->fn;
    coll->odd = nobody;
    coll->source = coll->tag = MPI_UNDEFINED;
    if (c->kind == OCCL_COLL_SENDRECV && !c->sender) {
        coll->source = c->root;
        coll->tag = nobody ? MPI_ANY_TAG : c->tag;
    }
    occl_mpi_comm_ref(m);
    atomic_store_explicit(&coll->magic, OCCL_COLL_LIVE, memory_order_release);
    *coll_p = coll;
    return MPI_SUCCESS;
}

/* --- the functions ------------------------------------------------------------------------------------------------ */

/*
 * All forms of a collective, with int counts and with large ones: NAME_PARAMS are its parameters, with the types of counts and of
 * displacements; NAME_ARGS what of call_t they are, with how vectors of both are to be read. The prototypes in mpix_occl.h come from
 * api.tbl, so the compiler compares.
 */
/* clang-format off */
#define STRIP(...) __VA_ARGS__
#define FORMS_OF(name, sfx, PARAMS, ARGS)                                                                                 \
    int PMPIX_Occl_i##name##sfx(STRIP PARAMS, int tag, MPI_Comm comm, MPI_Request *request)                               \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_i" #name #sfx, .tag = tag, .comm = comm, STRIP ARGS};                                \
        return start(&c, request);                                                                                        \
    }                                                                                                                     \
    OCCL_ALIAS(i##name##sfx);                                                                                             \
    int PMPIX_Occl_##name##_init##sfx(STRIP PARAMS, int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)          \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_" #name "_init" #sfx, .tag = tag, .comm = comm, STRIP ARGS};                         \
        return init(&c, info, coll);                                                                                      \
    }                                                                                                                     \
    OCCL_ALIAS(name##_init##sfx);                                                                                         \
    int PMPIX_Occl_##name##_enqueue##sfx(STRIP PARAMS, int tag, MPI_Comm comm, int queue_type, void *queue)               \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_" #name "_enqueue" #sfx, .tag = tag, .comm = comm, STRIP ARGS};                      \
        return enqueue(&c, queue_type, queue);                                                                            \
    }                                                                                                                     \
    OCCL_ALIAS(name##_enqueue##sfx)
#define FORMS(name, NAME)                                                                                                 \
    FORMS_OF(name, , (NAME##_PARAMS(int, int)), (.kind = OCCL_COLL_##NAME, NAME##_ARGS(ARE_INT, ARE_INT)));               \
    FORMS_OF(name, _c, (NAME##_PARAMS(MPI_Count, MPI_Aint)), (.kind = OCCL_COLL_##NAME, NAME##_ARGS(ARE_COUNT, ARE_AINT)))
/* clang-format on */

int PMPIX_Occl_ibarrier(int tag, MPI_Comm comm, MPI_Request *request)
{
    call_t c = {.fn = "MPIX_Occl_ibarrier", .tag = tag, .comm = comm, .kind = OCCL_COLL_BARRIER};
    return start(&c, request);
}
OCCL_ALIAS(ibarrier);
int PMPIX_Occl_barrier_init(int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    call_t c = {.fn = "MPIX_Occl_barrier_init", .tag = tag, .comm = comm, .kind = OCCL_COLL_BARRIER};
    return init(&c, info, coll);
}
OCCL_ALIAS(barrier_init);
int PMPIX_Occl_barrier_enqueue(int tag, MPI_Comm comm, int queue_type, void *queue)
{
    call_t c = {.fn = "MPIX_Occl_barrier_enqueue", .tag = tag, .comm = comm, .kind = OCCL_COLL_BARRIER};
    return enqueue(&c, queue_type, queue);
}
OCCL_ALIAS(barrier_enqueue);

#define BCAST_PARAMS(COUNT, DISPL) void *buffer, COUNT count, MPI_Datatype datatype, int root
#define BCAST_ARGS(count_is, displ_is) .recv = buffer, .rcount = count, .rtype = datatype, .root = root
FORMS(bcast, BCAST);

#define REDUCE_PARAMS(COUNT, DISPL) const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype datatype, MPI_Op op, int root
#define REDUCE_ARGS(count_is, displ_is) \
    .send = sendbuf, .recv = recvbuf, .rcount = count, .rtype = datatype, .op = op, .root = root
FORMS(reduce, REDUCE);

#define ALLREDUCE_PARAMS(COUNT, DISPL) const void *sendbuf, void *recvbuf, COUNT count, MPI_Datatype datatype, MPI_Op op
#define ALLREDUCE_ARGS(count_is, displ_is) .send = sendbuf, .recv = recvbuf, .rcount = count, .rtype = datatype, .op = op
FORMS(allreduce, ALLREDUCE);

#define SCAN_PARAMS ALLREDUCE_PARAMS
#define SCAN_ARGS ALLREDUCE_ARGS
FORMS(scan, SCAN);
#define EXSCAN_PARAMS ALLREDUCE_PARAMS
#define EXSCAN_ARGS ALLREDUCE_ARGS
FORMS(exscan, EXSCAN);

#define REDUCE_SCATTER_BLOCK_PARAMS(COUNT, DISPL) \
    const void *sendbuf, void *recvbuf, COUNT recvcount, MPI_Datatype datatype, MPI_Op op
#define REDUCE_SCATTER_BLOCK_ARGS(count_is, displ_is) \
    .send = sendbuf, .recv = recvbuf, .rcount = recvcount, .rtype = datatype, .op = op
FORMS(reduce_scatter_block, REDUCE_SCATTER_BLOCK);

#define REDUCE_SCATTER_PARAMS(COUNT, DISPL) \
    const void *sendbuf, void *recvbuf, const COUNT recvcounts[], MPI_Datatype datatype, MPI_Op op
#define REDUCE_SCATTER_ARGS(count_is, displ_is) \
    .send = sendbuf, .recv = recvbuf, .rcounts = {recvcounts, count_is}, .rtype = datatype, .op = op
FORMS(reduce_scatter, REDUCE_SCATTER);

/* One count on each side */
#define ALLGATHER_PARAMS(COUNT, DISPL) \
    const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, COUNT recvcount, MPI_Datatype recvtype
#define ALLGATHER_ARGS(count_is, displ_is) \
    .send = sendbuf, .scount = sendcount, .stype = sendtype, .recv = recvbuf, .rcount = recvcount, .rtype = recvtype
FORMS(allgather, ALLGATHER);
#define ALLTOALL_PARAMS ALLGATHER_PARAMS
#define ALLTOALL_ARGS ALLGATHER_ARGS
FORMS(alltoall, ALLTOALL);
#define NEIGHBOR_ALLGATHER_PARAMS ALLGATHER_PARAMS
#define NEIGHBOR_ALLGATHER_ARGS ALLGATHER_ARGS
FORMS(neighbor_allgather, NEIGHBOR_ALLGATHER);
#define NEIGHBOR_ALLTOALL_PARAMS ALLGATHER_PARAMS
#define NEIGHBOR_ALLTOALL_ARGS ALLGATHER_ARGS
FORMS(neighbor_alltoall, NEIGHBOR_ALLTOALL);
#define GATHER_PARAMS(COUNT, DISPL) ALLGATHER_PARAMS(COUNT, DISPL), int root
#define GATHER_ARGS(count_is, displ_is) ALLGATHER_ARGS(count_is, displ_is), .root = root
FORMS(gather, GATHER);
#define SCATTER_PARAMS GATHER_PARAMS
#define SCATTER_ARGS GATHER_ARGS
FORMS(scatter, SCATTER);

/* A count for each block on one side */
#define ALLGATHERV_PARAMS(COUNT, DISPL)                                                                           \
    const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, void *recvbuf, const COUNT recvcounts[],         \
        const DISPL displs[], MPI_Datatype recvtype
#define ALLGATHERV_ARGS(count_is, displ_is)                                                                       \
    .send = sendbuf, .scount = sendcount, .stype = sendtype, .recv = recvbuf, .rcounts = {recvcounts, count_is},  \
    .rdispls = {displs, displ_is}, .rtype = recvtype
FORMS(allgatherv, ALLGATHERV);
#define NEIGHBOR_ALLGATHERV_PARAMS ALLGATHERV_PARAMS
#define NEIGHBOR_ALLGATHERV_ARGS ALLGATHERV_ARGS
FORMS(neighbor_allgatherv, NEIGHBOR_ALLGATHERV);
#define GATHERV_PARAMS(COUNT, DISPL) ALLGATHERV_PARAMS(COUNT, DISPL), int root
#define GATHERV_ARGS(count_is, displ_is) ALLGATHERV_ARGS(count_is, displ_is), .root = root
FORMS(gatherv, GATHERV);
#define SCATTERV_PARAMS(COUNT, DISPL)                                                                             \
    const void *sendbuf, const COUNT sendcounts[], const DISPL displs[], MPI_Datatype sendtype, void *recvbuf,    \
        COUNT recvcount, MPI_Datatype recvtype, int root
#define SCATTERV_ARGS(count_is, displ_is)                                                                         \
    .send = sendbuf, .scounts = {sendcounts, count_is}, .sdispls = {displs, displ_is}, .stype = sendtype,         \
    .recv = recvbuf, .rcount = recvcount, .rtype = recvtype, .root = root
FORMS(scatterv, SCATTERV);

/* On both sides */
#define ALLTOALLV_PARAMS(COUNT, DISPL)                                                                            \
    const void *sendbuf, const COUNT sendcounts[], const DISPL sdispls[], MPI_Datatype sendtype, void *recvbuf,   \
        const COUNT recvcounts[], const DISPL rdispls[], MPI_Datatype recvtype
#define ALLTOALLV_ARGS(count_is, displ_is)                                                                        \
    .send = sendbuf, .scounts = {sendcounts, count_is}, .sdispls = {sdispls, displ_is}, .stype = sendtype,        \
    .recv = recvbuf, .rcounts = {recvcounts, count_is}, .rdispls = {rdispls, displ_is}, .rtype = recvtype
FORMS(alltoallv, ALLTOALLV);
#define NEIGHBOR_ALLTOALLV_PARAMS ALLTOALLV_PARAMS
#define NEIGHBOR_ALLTOALLV_ARGS ALLTOALLV_ARGS
FORMS(neighbor_alltoallv, NEIGHBOR_ALLTOALLV);
/* And a type for each; displacements are in bytes, those of neighbours addresses. */
#define ALLTOALLW_PARAMS(COUNT, DISPL)                                                                            \
    const void *sendbuf, const COUNT sendcounts[], const DISPL sdispls[], const MPI_Datatype sendtypes[],         \
        void *recvbuf, const COUNT recvcounts[], const DISPL rdispls[], const MPI_Datatype recvtypes[]
#define ALLTOALLW_ARGS(count_is, displ_is)                                                                        \
    .send = sendbuf, .scounts = {sendcounts, count_is}, .sdispls = {sdispls, displ_is}, .stypes = sendtypes,      \
    .recv = recvbuf, .rcounts = {recvcounts, count_is}, .rdispls = {rdispls, displ_is}, .rtypes = recvtypes
FORMS(alltoallw, ALLTOALLW);
#define NEIGHBOR_ALLTOALLW_PARAMS(COUNT, DISPL) ALLTOALLW_PARAMS(COUNT, MPI_Aint)
#define NEIGHBOR_ALLTOALLW_ARGS(count_is, displ_is) ALLTOALLW_ARGS(count_is, ARE_AINT)
FORMS(neighbor_alltoallw, NEIGHBOR_ALLTOALLW);

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
    if (occl_mpi_req_publish(q, NULL, NULL, request) != MPI_SUCCESS)
        return occl_mpi_fail(m, c->comm, c->fn, OCCL_ERR_RESOURCE, "MPI_Grequest_start failed");
    return MPI_SUCCESS;
}

/* clang-format off */
#define MESSAGE_ARGS(rank, sends) .kind = OCCL_COLL_SENDRECV, .rcount = count, .rtype = datatype, .root = rank, .sender = sends
#define MESSAGES(sfx, COUNT)                                                                                              \
    int PMPIX_Occl_isend##sfx(const void *buf, COUNT count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,      \
                              MPI_Request *request)                                                                       \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_isend" #sfx, .send = buf, MESSAGE_ARGS(dest, 1), .tag = tag, .comm = comm};          \
        return dest == MPI_PROC_NULL ? nobody(&c, request) : start(&c, request);                                          \
    }                                                                                                                     \
    OCCL_ALIAS(isend##sfx);                                                                                               \
    int PMPIX_Occl_irecv##sfx(void *buf, COUNT count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,          \
                              MPI_Request *request)                                                                       \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_irecv" #sfx, .recv = buf, MESSAGE_ARGS(source, 0), .tag = tag, .comm = comm};        \
        return source == MPI_PROC_NULL ? nobody(&c, request) : start(&c, request);                                        \
    }                                                                                                                     \
    OCCL_ALIAS(irecv##sfx);                                                                                               \
    int PMPIX_Occl_send_enqueue##sfx(const void *buf, COUNT count, MPI_Datatype datatype, int dest, int tag,              \
                                     MPI_Comm comm, int queue_type, void *queue)                                          \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_send_enqueue" #sfx, .send = buf, MESSAGE_ARGS(dest, 1), .tag = tag, .comm = comm};   \
        return enqueue(&c, queue_type, queue);                                                                            \
    }                                                                                                                     \
    OCCL_ALIAS(send_enqueue##sfx);                                                                                        \
    int PMPIX_Occl_recv_enqueue##sfx(void *buf, COUNT count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,   \
                                     int queue_type, void *queue)                                                         \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_recv_enqueue" #sfx, .recv = buf, MESSAGE_ARGS(source, 0), .tag = tag, .comm = comm}; \
        return enqueue(&c, queue_type, queue);                                                                            \
    }                                                                                                                     \
    OCCL_ALIAS(recv_enqueue##sfx);                                                                                        \
    int PMPIX_Occl_send_init##sfx(const void *buf, COUNT count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,  \
                                  MPI_Info info, MPIX_Occl_Coll *coll)                                                    \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_send_init" #sfx, .send = buf, MESSAGE_ARGS(dest, 1), .tag = tag, .comm = comm};      \
        return init(&c, info, coll);                                                                                      \
    }                                                                                                                     \
    OCCL_ALIAS(send_init##sfx);                                                                                           \
    int PMPIX_Occl_recv_init##sfx(void *buf, COUNT count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,      \
                                  MPI_Info info, MPIX_Occl_Coll *coll)                                                    \
    {                                                                                                                     \
        call_t c = {.fn = "MPIX_Occl_recv_init" #sfx, .recv = buf, MESSAGE_ARGS(source, 0), .tag = tag, .comm = comm};    \
        return init(&c, info, coll);                                                                                      \
    }                                                                                                                     \
    OCCL_ALIAS(recv_init##sfx)
/* clang-format on */
MESSAGES(, int);
MESSAGES(_c, MPI_Count);

/* --- a send and a receive in one ---------------------------------------------------------------------------------- */

/* The partners of a start that was refused learn it, as far as there are some. */
static void pair_failed(const call_t *r, const call_t *s)
{
    const call_t *both[2] = {r, s};
    occl_status_t status;
    char why[256];
    occl_mpi_comm_t *m = occl_mpi_is_ready() ? occl_mpi_comm_find(r->comm, &status, why, sizeof why) : NULL;

    for (int i = 0; m && i < 2; i++) {
        occl_coll_args_t a = {.kind = OCCL_COLL_SENDRECV, .peer = both[i]->root, .sender = both[i]->sender, .root = -1};

        if (both[i]->root >= 0 && both[i]->root < m->size && both[i]->tag >= 0)
            occl_start_failed(m->core, both[i]->tag, &a, OCCL_ERR_ARG);
    }
}

/* What MPI forbids. Anything else that is wrong is said by init. */
static int overlap(const call_t *r, const call_t *s)
{
    occl_mpi_type_t st = {.n = 0}, rt = {.n = 0};
    uint64_t sn = 0, rn = 0, at = (uint64_t)(uintptr_t)s->send, to = (uint64_t)(uintptr_t)r->recv;
    char why[256];

    if (r->root == MPI_PROC_NULL || s->root == MPI_PROC_NULL || side("", s->rcount, s->rtype, &st, &sn, why, sizeof why) != OCCL_OK ||
        side("", r->rcount, r->rtype, &rt, &rn, why, sizeof why) != OCCL_OK || st.gaps || rt.gaps)
        return 0;
    return at < to + rn * occl_host_type_bytes(rt.id) && to < at + sn * occl_host_type_bytes(st.id) && sn && rn;
}

/* Makes both, or none. */
static int pair_init(const call_t *r, const call_t *s, MPI_Info info, MPIX_Occl_Coll *coll)
{
    MPIX_Occl_Coll send = MPIX_OCCL_COLL_NULL, recv = MPIX_OCCL_COLL_NULL;
    occl_mpi_comm_t *m;
    int rc = MPI_SUCCESS;

    if (!coll) /* said by init, with all that goes with it */
        return init(r, info, coll);
    if (!(m = enter(r, &rc)))
        return rc;
    if (overlap(r, s))
        return occl_mpi_fail(m, r->comm, r->fn, OCCL_ERR_BUFFER, "sendbuf and recvbuf overlap");
    if ((rc = init(r, info, &recv)) != MPI_SUCCESS)
        return rc;
    if ((rc = init(s, info, &send)) != MPI_SUCCESS) {
        PMPIX_Occl_coll_free(&recv);
        return rc;
    }
    recv->twin = send->core;
    recv->odd = 1;
    send->core = NULL;
    PMPIX_Occl_coll_free(&send);
    *coll = recv;
    return MPI_SUCCESS;
}

/* A persistent one that is started at once: so both starts have their places or none has, but for want of memory. */
static int pair_start(const call_t *r, const call_t *s, MPI_Request *request)
{
    MPIX_Occl_Coll coll = MPIX_OCCL_COLL_NULL;
    occl_mpi_comm_t *m;
    int rc;

    if (!request) {
        rc = MPI_SUCCESS;
        m = enter(r, &rc);
        return m ? occl_mpi_fail(m, r->comm, r->fn, OCCL_ERR_REQUEST, "request is NULL") : rc;
    }
    *request = MPI_REQUEST_NULL;
    if ((rc = pair_init(r, s, MPI_INFO_NULL, &coll)) != MPI_SUCCESS) {
        pair_failed(r, s);
        return rc;
    }
    rc = occl_mpi_coll_start(r->fn, coll, request);
    PMPIX_Occl_coll_free(&coll);
    return rc;
}

static int pair_enqueue(const call_t *r, const call_t *s, int queue_type, void *queue)
{
    MPIX_Occl_Coll coll = MPIX_OCCL_COLL_NULL;
    int rc = pair_init(r, s, MPI_INFO_NULL, &coll);

    if (rc != MPI_SUCCESS) {
        pair_failed(r, s);
        return rc;
    }
    rc = occl_mpi_coll_enqueue(r->fn, coll, queue_type, queue);
    PMPIX_Occl_coll_free(&coll);
    return rc;
}

/* clang-format off */
#define PAIRS(sfx, COUNT)                                                                                                 \
    int PMPIX_Occl_isendrecv##sfx(const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest, int sendtag,     \
                                  void *recvbuf, COUNT recvcount, MPI_Datatype recvtype, int source, int recvtag,         \
                                  MPI_Comm comm, MPI_Request *request)                                                    \
    {                                                                                                                     \
        PAIR("MPIX_Occl_isendrecv" #sfx);                                                                                 \
        return pair_start(&r, &s, request);                                                                               \
    }                                                                                                                     \
    OCCL_ALIAS(isendrecv##sfx);                                                                                           \
    int PMPIX_Occl_sendrecv_init##sfx(const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest, int sendtag, \
                                      void *recvbuf, COUNT recvcount, MPI_Datatype recvtype, int source, int recvtag,     \
                                      MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)                                 \
    {                                                                                                                     \
        PAIR("MPIX_Occl_sendrecv_init" #sfx);                                                                             \
        return pair_init(&r, &s, info, coll);                                                                             \
    }                                                                                                                     \
    OCCL_ALIAS(sendrecv_init##sfx);                                                                                       \
    int PMPIX_Occl_sendrecv_enqueue##sfx(const void *sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest,           \
                                         int sendtag, void *recvbuf, COUNT recvcount, MPI_Datatype recvtype, int source,  \
                                         int recvtag, MPI_Comm comm, int queue_type, void *queue)                         \
    {                                                                                                                     \
        PAIR("MPIX_Occl_sendrecv_enqueue" #sfx);                                                                          \
        return pair_enqueue(&r, &s, queue_type, queue);                                                                   \
    }                                                                                                                     \
    OCCL_ALIAS(sendrecv_enqueue##sfx)
#define PAIR(name)                                                                                                        \
    call_t s = {.fn = name, .kind = OCCL_COLL_SENDRECV, .send = sendbuf, .rcount = sendcount, .rtype = sendtype,          \
                .root = dest, .sender = 1, .tag = sendtag, .comm = comm};                                                 \
    call_t r = {.fn = name, .kind = OCCL_COLL_SENDRECV, .recv = recvbuf, .rcount = recvcount, .rtype = recvtype,          \
                .root = source, .sender = 0, .tag = recvtag, .comm = comm}
/* clang-format on */
PAIRS(, int);
PAIRS(_c, MPI_Count);
