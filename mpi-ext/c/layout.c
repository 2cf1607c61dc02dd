/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes that a program has made: what they are made of, and where it lies in memory.
 *
 * A datatype is looked into once, and what was found is kept until it is freed: an attribute on it tells us. So a start finds it in a
 * table, and an operation that is pending keeps it (occl_mpi_layout_t.refs) whatever the program frees. Packing needs no MPI, so
 * any thread may do it.
 *
 * A layout is a list of runs: `count` pieces of `bytes` bytes, `stride` bytes apart, in the order of the type map, which is the order
 * in which MPI_Pack takes them. Pieces that lie one behind the other are one.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/daemon.h"
#include "util/hash.h"

enum { MOST_RUNS = 1 << 22 };   /* of one datatype: 128 MiB of list */

/* What is being put together. sig: of the sequence of basic types, so that two types that are made in different ways are the same if
 * their basic types are; len: how many there are. */
typedef struct {
    occl_mpi_run_t *run;
    size_t n, cap;
    uint64_t size;
    int64_t extent;
    uint32_t id, ops; /* of the basic type, as long as there is only one */
    int any, mixed, failed;
    uint64_t sig, len;
} shape_t;

/* --- signatures --------------------------------------------------------------------------------------------------- */

/* A sequence's hash is a polynomial in BASE modulo 2^64, so that it can be had of two parts' and of a part's n times over. */
#define BASE 0x9e3779b97f4a7c15ull

static uint64_t power(uint64_t n)
{
    uint64_t r = 1, b = BASE;

    for (; n; n >>= 1, b *= b)
        if (n & 1)
            r *= b;
    return r;
}

uint64_t occl_mpi_sig_repeat(uint64_t sig, uint64_t len, uint64_t n)
{
    uint64_t all = 0, some = 1, q;

    if (OCCL_LIKELY(n == 1))
        return sig;
    /* 1 + q + ... of n terms, from those of its binary digits */
    for (q = power(len); n; n >>= 1, some = some * q + some, q *= q)
        if (n & 1)
            all = all * q + some;
    return all * sig;
}

uint64_t occl_mpi_sig_of(const occl_mpi_type_t *t, uint64_t count)
{
    if (t->layout)
        return occl_mpi_sig_repeat(t->sig, t->len, count);
    return occl_mpi_sig_repeat(t->id + 1, 1, t->n * count);
}

static void follow(shape_t *s, uint64_t sig, uint64_t len)
{
    s->sig = s->sig * power(len) + sig;
    s->len += len;
}

/* --- putting together --------------------------------------------------------------------------------------------- */

static void push(shape_t *s, int64_t at, uint64_t bytes, uint64_t count, int64_t stride)
{
    occl_mpi_run_t *last = s->n ? &s->run[s->n - 1] : NULL;

    if (bytes == 0 || count == 0 || s->failed)
        return;
    if (last && count == 1) {
        if (last->count == 1 && last->at + (int64_t)last->bytes == at) {
            last->bytes += bytes;
            return;
        }
        if (last->bytes == bytes && (last->count == 1 || at == last->at + (int64_t)last->count * last->stride)) {
            if (last->count == 1)
                last->stride = at - last->at;
            last->count++;
            return;
        }
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 8;
        void *p = s->n < MOST_RUNS ? realloc(s->run, cap * sizeof *s->run) : NULL;

        if (!p) {
            s->failed = 1;
            return;
        }
        s->run = p;
        s->cap = cap;
    }
    s->run[s->n++] = (occl_mpi_run_t){at, bytes, count, stride};
}

static int is_dense(const shape_t *s)
{
    return s->n == 0 || (s->n == 1 && s->run[0].at == 0 && s->run[0].count == 1 && (int64_t)s->run[0].bytes == s->extent);
}

/* `blocks` of a child, its extent apart, from disp on */
static void place(shape_t *s, int64_t disp, int64_t blocks, const shape_t *child)
{
    if (blocks <= 0 || child->size == 0 || s->failed)
        return;
    if (s->any && (s->mixed || child->mixed || s->id != child->id))
        s->mixed = 1;
    if (!s->any) {
        s->id = child->id;
        s->ops = child->ops;
        s->mixed = child->mixed;
        s->any = 1;
    }
    follow(s, occl_mpi_sig_repeat(child->sig, child->len, (uint64_t)blocks), child->len * (uint64_t)blocks);
    s->size += child->size * (uint64_t)blocks;
    if (is_dense(child)) {
        push(s, disp, child->size * (uint64_t)blocks, 1, 0);
    } else if (child->n == 1 && child->run[0].count == 1) {
        if (blocks == 1)
            push(s, disp + child->run[0].at, child->run[0].bytes, 1, 0);
        else
            push(s, disp + child->run[0].at, child->run[0].bytes, (uint64_t)blocks, child->extent);
    } else {
        for (int64_t k = 0; k < blocks && !s->failed; k++)
            for (size_t i = 0; i < child->n; i++)
                push(s, disp + k * child->extent + child->run[i].at, child->run[i].bytes, child->run[i].count, child->run[i].stride);
    }
}

/* The elements of an array, `size` in each dimension, whose indices are in the lists; `order` as MPI has it. */
static void grid(shape_t *s, int nd, int *const *list, const int *n, const int *size, int order, const shape_t *child)
{
    int at[32] = {0}, fast = order == MPI_ORDER_FORTRAN ? 0 : nd - 1, step = order == MPI_ORDER_FORTRAN ? 1 : -1;

    for (int d = 0; d < nd; d++)
        if (n[d] == 0)
            return;
    for (;;) {
        int64_t where = 0, scale = 1;
        int d, k = 1;

        for (int i = 0, e = fast; i < nd; i++, e += step) {
            where += scale * list[e][at[e]];
            scale *= size[e];
        }
        /* as many as lie one behind the other */
        while (at[fast] + k < n[fast] && list[fast][at[fast] + k] == list[fast][at[fast]] + k)
            k++;
        place(s, where * child->extent, k, child);
        at[fast] += k;
        for (d = fast; at[d] >= n[d]; at[d] += 1) {
            at[d] = 0;
            d += step;
            if (d < 0 || d >= nd || s->failed)
                return;
        }
    }
}

/* --- taking apart ------------------------------------------------------------------------------------------------- */

static occl_status_t decode(MPI_Datatype datatype, shape_t *s, char *why, size_t len, int depth);

static void free_child(MPI_Datatype *child)
{
    int i, a, d, combiner;

    /* What Type_get_contents returns for a predefined type must not be freed. */
    if (*child != MPI_DATATYPE_NULL && PMPI_Type_get_envelope(*child, &i, &a, &d, &combiner) == MPI_SUCCESS &&
        combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL && combiner != MPI_COMBINER_F90_COMPLEX &&
        combiner != MPI_COMBINER_F90_INTEGER)
        PMPI_Type_free(child);
}

static void basic(shape_t *s, const occl_mpi_type_t *t)
{
    memset(s, 0, sizeof *s);
    s->id = t->id;
    s->ops = t->ops;
    s->any = 1;
    s->size = t->n * occl_host_type_bytes(t->id);
    s->extent = (int64_t)s->size;
    s->len = t->n;
    s->sig = occl_mpi_sig_repeat(t->id + 1, 1, t->n);
    push(s, 0, s->size, 1, 0);
}

/* Which indices of a dimension a process has (MPI-3.1, 4.1.4). NULL: no memory */
static int *indices(int distrib, int arg, int size, int procs, int me, int *n_p)
{
    int *list = malloc(((size_t)size + 1) * sizeof *list), n = 0;
    int64_t block = distrib == MPI_DISTRIBUTE_BLOCK && arg == MPI_DISTRIBUTE_DFLT_DARG ? (size + procs - 1) / procs
                    : distrib == MPI_DISTRIBUTE_CYCLIC && arg == MPI_DISTRIBUTE_DFLT_DARG ? 1
                    : distrib == MPI_DISTRIBUTE_NONE ? size : arg;

    if (!list)
        return NULL;
    if (distrib == MPI_DISTRIBUTE_NONE)
        me = 0, procs = 1;
    for (int64_t first = me * block; first < size && block > 0; first += procs * block) {
        for (int64_t k = first; k < first + block && k < size; k++)
            list[n++] = (int)k;
        if (distrib == MPI_DISTRIBUTE_BLOCK)
            break;
    }
    *n_p = n;
    return list;
}

static int darray(shape_t *s, const int *i, const shape_t *child)
{
    int nd = i[2], rank = i[1], *list[32] = {NULL}, n[32] = {0}, good = nd <= 32;
    const int *size = i + 3, *distrib = size + nd, *arg = distrib + nd, *procs = arg + nd, order = procs[nd];

    /* Processes are in row-major order, whatever the array's is. */
    for (int d = nd; d-- > 0 && good; rank /= procs[d])
        good = (list[d] = indices(distrib[d], arg[d], size[d], procs[d], rank % procs[d], &n[d])) != NULL;
    if (good)
        grid(s, nd, list, n, size, order, child);
    for (int d = 0; d < nd && d < 32; d++)
        free(list[d]);
    return good;
}

static int subarray(shape_t *s, const int *i, const shape_t *child)
{
    int nd = i[0], *list[32] = {NULL}, n[32] = {0}, good = nd <= 32;
    const int *size = i + 1, *sub = size + nd, *start = sub + nd, order = start[nd];

    for (int d = 0; d < nd && good; d++) {
        good = (list[d] = malloc(((size_t)sub[d] + 1) * sizeof *list[d])) != NULL;
        for (int k = 0; k < sub[d] && good; k++)
            list[d][k] = start[d] + k;
        n[d] = sub[d];
    }
    if (good)
        grid(s, nd, list, n, size, order, child);
    for (int d = 0; d < nd && d < 32; d++)
        free(list[d]);
    return good;
}

static occl_status_t decode_derived(MPI_Datatype datatype, int combiner, int ni, int na, int nd, shape_t *s, char *why, size_t len, int depth)
{
    occl_status_t status = OCCL_OK;
    MPI_Datatype *child = calloc((size_t)nd + 1, sizeof *child);
    int *i = calloc((size_t)ni + 1, sizeof *i), got = 0, good = 1;
    MPI_Aint *a = calloc((size_t)na + 1, sizeof *a), lb, extent;
    shape_t *c = calloc((size_t)nd + 1, sizeof *c);
    occl_mpi_type_t ours;

    if (!child || !i || !a || !c) {
        snprintf(why, len, "no memory to look into a datatype");
        status = OCCL_ERR_RESOURCE;
        goto out;
    }
    if (PMPI_Type_get_contents(datatype, ni, na, nd, i, a, child) != MPI_SUCCESS ||
        PMPI_Type_get_extent(datatype, &lb, &extent) != MPI_SUCCESS) {
        snprintf(why, len, "MPI does not say what the datatype is made of");
        status = OCCL_ERR_TYPE;
        goto out;
    }
    got = 1;
    if (combiner == MPI_COMBINER_HINDEXED && i[0] == 2 && occl_mpi_type_is_ours(i + 1, a, child[0], &ours)) {
        basic(s, &ours);
        goto out;
    }
    for (int k = 0; k < nd && status == OCCL_OK; k++)
        status = decode(child[k], &c[k], why, len, depth + 1);
    if (status != OCCL_OK)
        goto out;

    switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: /* lb, extent in bytes */
        place(s, 0, 1, &c[0]);
        break;
    case MPI_COMBINER_CONTIGUOUS: /* count */
        place(s, 0, i[0], &c[0]);
        break;
    case MPI_COMBINER_VECTOR: /* count, blocklength, stride */
        for (int k = 0; k < i[0]; k++)
            place(s, (int64_t)k * i[2] * c[0].extent, i[1], &c[0]);
        break;
    case MPI_COMBINER_HVECTOR: /* count, blocklength; stride in bytes */
        for (int k = 0; k < i[0]; k++)
            place(s, (int64_t)k * a[0], i[1], &c[0]);
        break;
    case MPI_COMBINER_INDEXED: /* count, blocklengths, displacements */
        for (int k = 0; k < i[0]; k++)
            place(s, (int64_t)i[1 + i[0] + k] * c[0].extent, i[1 + k], &c[0]);
        break;
    case MPI_COMBINER_HINDEXED: /* count, blocklengths; displacements in bytes */
        for (int k = 0; k < i[0]; k++)
            place(s, a[k], i[1 + k], &c[0]);
        break;
    case MPI_COMBINER_INDEXED_BLOCK: /* count, blocklength, displacements */
        for (int k = 0; k < i[0]; k++)
            place(s, (int64_t)i[2 + k] * c[0].extent, i[1], &c[0]);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK: /* count, blocklength; displacements in bytes */
        for (int k = 0; k < i[0]; k++)
            place(s, a[k], i[1], &c[0]);
        break;
    case MPI_COMBINER_STRUCT: /* count, blocklengths; displacements in bytes; types */
        for (int k = 0; k < i[0]; k++)
            place(s, a[k], i[1 + k], &c[k]);
        break;
    case MPI_COMBINER_SUBARRAY: /* ndims, sizes, subsizes, starts, order */
        good = subarray(s, i, &c[0]);
        break;
    case MPI_COMBINER_DARRAY: /* size, rank, ndims, gsizes, distribs, dargs, psizes, order */
        good = darray(s, i, &c[0]);
        break;
    default:
        snprintf(why, len, "the datatype was made by a constructor that is not known here (%d)", combiner);
        status = OCCL_ERR_TYPE;
        goto out;
    }
    s->extent = extent;
    if (!good || s->failed) {
        snprintf(why, len, "the datatype has more pieces than there is memory for, or more than %d of them", MOST_RUNS);
        status = OCCL_ERR_RESOURCE;
    }
out:
    for (int k = 0; got && k < nd; k++) {
        free_child(&child[k]);
        free(c[k].run);
    }
    free(child);
    free(i);
    free(a);
    free(c);
    return status;
}

static occl_status_t decode(MPI_Datatype datatype, shape_t *s, char *why, size_t len, int depth)
{
    occl_mpi_type_t t;
    int ni, na, nd, combiner, size = 0;
    char name[MPI_MAX_OBJECT_NAME + 1] = "";

    if (datatype == MPI_DATATYPE_NULL) {
        snprintf(why, len, "the datatype is MPI_DATATYPE_NULL");
        return OCCL_ERR_TYPE;
    }
    memset(s, 0, sizeof *s);
    if (occl_mpi_type_known(datatype, &t)) {
        basic(s, &t);
        return OCCL_OK;
    }
    if (depth > 64 || PMPI_Type_get_envelope(datatype, &ni, &na, &nd, &combiner) != MPI_SUCCESS) {
        snprintf(why, len, depth > 64 ? "the datatype is nested too deeply" : "the datatype is not valid");
        return OCCL_ERR_TYPE;
    }
    switch (combiner) {
    case MPI_COMBINER_NAMED:
        PMPI_Type_get_name(datatype, name, &size);
        snprintf(why, len, "the predefined datatype %s is not supported", name);
        return OCCL_ERR_TYPE;
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        PMPI_Type_size(datatype, &size);
        if (!occl_mpi_type_by_size(combiner == MPI_COMBINER_F90_INTEGER ? 'i' : combiner == MPI_COMBINER_F90_REAL ? 'r' : 'c', size, &t)) {
            snprintf(why, len, "there is no type of Fortran's of %d bytes here", size);
            return OCCL_ERR_TYPE;
        }
        basic(s, &t);
        return OCCL_OK;
    default:
        return decode_derived(datatype, combiner, ni, na, nd, s, why, len, depth);
    }
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static occl_lock_t lock = OCCL_LOCK_INIT;
static occl_hash_t table = OCCL_HASH_INIT; /* handle -> occl_mpi_layout_t; the table has a reference */
static int keyval = MPI_KEYVAL_INVALID;

void occl_mpi_layout_unref(occl_mpi_layout_t *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
        free(l->run);
        free(l);
    }
}

static uint64_t key_of(MPI_Datatype datatype)
{
    uint64_t key = 0;

    memcpy(&key, &datatype, sizeof datatype);
    return key;
}

/* The datatype goes. Its handle may be another one's next. */
static int gone(MPI_Datatype datatype, int k, void *value, void *extra)
{
    occl_mpi_layout_t *l;

    (void)k, (void)extra;
    occl_lock(&lock);
    l = occl_hash_get(&table, key_of(datatype));
    if (l != value)
        l = NULL; /* it was not the table's; or there is no table any more */
    else
        occl_hash_remove(&table, key_of(datatype));
    occl_unlock(&lock);
    if (l) {
        atomic_store_explicit(&l->freed, 1, memory_order_release);
        occl_mpi_layout_unref(l);
    }
    return MPI_SUCCESS;
}

int occl_mpi_layouts_init(void)
{
    return keyval != MPI_KEYVAL_INVALID || PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, gone, &keyval, NULL) == MPI_SUCCESS;
}

void occl_mpi_layouts_fini(void)
{
    occl_hash_t was;
    size_t at = 0;
    uint64_t key;
    void *v;

    occl_lock(&lock);
    was = table;
    occl_hash_init(&table);
    occl_unlock(&lock);
    while ((v = occl_hash_next(&was, &at, &key)) != NULL)
        occl_mpi_layout_unref(v);
    occl_hash_fini(&was);
    if (keyval != MPI_KEYVAL_INVALID)
        PMPI_Type_free_keyval(&keyval);
}

static void tell(occl_mpi_layout_t *l, occl_mpi_type_t *t)
{
    *t = l->type;
    t->layout = l;
}

occl_status_t occl_mpi_layout_get(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len)
{
    occl_mpi_layout_t *l, *other;
    occl_status_t status;
    shape_t s;

    occl_lock(&lock);
    l = occl_hash_get(&table, key_of(datatype));
    occl_unlock(&lock);
    if (OCCL_LIKELY(l != NULL)) {
        tell(l, type_p);
        return OCCL_OK;
    }
    status = decode(datatype, &s, why, len, 0);
    if (status != OCCL_OK)
        return status;
    l = calloc(1, sizeof *l);
    if (!l) {
        free(s.run);
        snprintf(why, len, "no memory for a datatype");
        return OCCL_ERR_RESOURCE;
    }
    atomic_init(&l->refs, 1);
    l->datatype = datatype;
    l->run = s.run;
    l->n = s.n;
    l->extent = s.extent;
    l->size = s.size;
    l->type.id = s.mixed || !s.any ? (uint32_t)OCCL_T_BYTE : s.id;
    l->type.ops = s.mixed || !s.any ? 0 : s.ops;
    l->type.n = s.size / occl_host_type_bytes(l->type.id);
    l->type.mixed = s.mixed;
    l->type.sig = s.sig;
    l->type.len = s.len;
    l->type.gaps = !is_dense(&s);
    l->low = INT64_MAX;
    l->high = INT64_MIN;
    for (size_t i = 0; i < s.n; i++) {
        int64_t first = s.run[i].at, last = first + (int64_t)(s.run[i].count - 1) * s.run[i].stride;
        int64_t lo = first < last ? first : last, hi = (first < last ? last : first) + (int64_t)s.run[i].bytes;
        l->low = lo < l->low ? lo : l->low;
        l->high = hi > l->high ? hi : l->high;
    }
    if (!s.n)
        l->low = l->high = 0;
    occl_lock(&lock);
    other = occl_hash_get(&table, key_of(datatype)); /* another thread may have been faster */
    status = other ? OCCL_OK : occl_hash_put(&table, key_of(datatype), l);
    occl_unlock(&lock);
    if (!other && status == OCCL_OK && PMPI_Type_set_attr(datatype, keyval, l) != MPI_SUCCESS) {
        occl_lock(&lock);
        occl_hash_remove(&table, key_of(datatype));
        occl_unlock(&lock);
        status = OCCL_ERR_TYPE;
    }
    if (other || status != OCCL_OK)
        occl_mpi_layout_unref(l);
    if (status != OCCL_OK)
        snprintf(why, len, status == OCCL_ERR_TYPE ? "the datatype takes no attribute: it is not valid" : "no memory for a datatype");
    else
        tell(other ? other : l, type_p);
    return status;
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

static inline void one(char *d, const char *s, uint64_t bytes)
{
    switch (bytes) {
    case 4: memcpy(d, s, 4); break;
    case 8: memcpy(d, s, 8); break;
    case 16: memcpy(d, s, 16); break;
    default: memcpy(d, s, bytes);
    }
}

void occl_mpi_pack(const occl_mpi_layout_t *l, void *packed, void *user, uint64_t count, uint64_t bytes, int unpack)
{
    char *p = packed, *end = p + bytes;

    for (uint64_t k = 0; k < count && p < end; k++) {
        char *base = (char *)user + (int64_t)k * l->extent;
        for (size_t i = 0; i < l->n && p < end; i++) {
            const occl_mpi_run_t *r = &l->run[i];
            char *u = base + r->at;
            for (uint64_t j = 0; j < r->count && p < end; j++, u += r->stride) {
                uint64_t now = (uint64_t)(end - p) < r->bytes ? (uint64_t)(end - p) : r->bytes;
                if (unpack)
                    one(u, p, now);
                else
                    one(p, u, now);
                p += now;
            }
        }
    }
}
