/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes and ops -> the engine's numbers. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

/* --- predefined types --------------------------------------------------------------------------------------------- */

/* What MPI says a type is; with its size it gives the engine's type. MPI's names are many: on one machine MPI_LONG, MPI_AINT and
 * MPI_INTEGER8 are all I64. */
typedef enum { INT, UINT, CHARACTER, FLOAT, COMPLEX, LOGICAL, CBOOL, BYTES, PAIR } family_t;

enum { SLOTS = 256 };
static struct {
    uint64_t key;
    occl_mpi_type_t type;
} table[SLOTS];

static uint64_t type_key(MPI_Datatype datatype)
{
    uint64_t key = 0;

    memcpy(&key, &datatype, sizeof datatype);
    return key;
}

static occl_mpi_type_t *slot(uint64_t key)
{
    size_t i = (size_t)occl_hash_mix(key) & (SLOTS - 1);

    while (table[i].key != 0 && table[i].key != key)
        i = (i + 1) & (SLOTS - 1);
    table[i].key = key;
    return &table[i].type;
}

static const occl_mpi_type_t *lookup(MPI_Datatype datatype)
{
    uint64_t key = type_key(datatype);
    size_t i = (size_t)occl_hash_mix(key) & (SLOTS - 1);

    for (; table[i].key != 0; i = (i + 1) & (SLOTS - 1))
        if (table[i].key == key)
            return &table[i].type;
    return NULL;
}

static int by_size(int size, int one, int two, int four, int eight)
{
    return size == 1 ? one : size == 2 ? two : size == 4 ? four : size == 8 ? eight : -1;
}

static void add(MPI_Datatype datatype, family_t family, int pair)
{
    occl_mpi_type_t t = {OCCL_T_BYTE, 1, 1};
    int id = -1, size = 0;

    /* Types that this MPI does not have on this machine */
    if (datatype == MPI_DATATYPE_NULL || PMPI_Type_size(datatype, &size) != MPI_SUCCESS || size <= 0)
        return;
    switch (family) {
    case INT: id = by_size(size, OCCL_T_I8, OCCL_T_I16, OCCL_T_I32, OCCL_T_I64); break;
    case UINT: id = by_size(size, OCCL_T_U8, OCCL_T_U16, OCCL_T_U32, OCCL_T_U64); break;
    case CHARACTER: /* MPI defines no op for characters */
        id = by_size(size, OCCL_T_U8, OCCL_T_U16, OCCL_T_U32, OCCL_T_U64);
        t.reduces = 0;
        break;
    case FLOAT: id = by_size(size, -1, OCCL_T_F16, OCCL_T_F32, OCCL_T_F64); break;
    case COMPLEX: id = size == 8 ? OCCL_T_C32 : size == 16 ? OCCL_T_C64 : -1; break;
    case LOGICAL: id = size == 4 ? OCCL_T_L32 : -1; break;
    case CBOOL: id = size == 1 ? OCCL_T_BOOL : -1; break;
    case BYTES: id = OCCL_T_BYTE; break;
    case PAIR: id = pair; break;
    }
    /* No arithmetic for it (a 16-byte integer, say): it can be moved all the same, as bytes. */
    if (id < 0 || (id == OCCL_T_BYTE && size != 1)) {
        id = OCCL_T_BYTE;
        t.n = (uint64_t)size;
        t.reduces = 0;
    }
    t.id = (uint32_t)id;
    *slot(type_key(datatype)) = t;
}

void occl_mpi_types_init(void)
{
    memset(table, 0, sizeof table);
    add(MPI_SIGNED_CHAR, INT, 0);
    add(MPI_SHORT, INT, 0);
    add(MPI_INT, INT, 0);
    add(MPI_LONG, INT, 0);
    add(MPI_LONG_LONG_INT, INT, 0);
    add(MPI_INT8_T, INT, 0);
    add(MPI_INT16_T, INT, 0);
    add(MPI_INT32_T, INT, 0);
    add(MPI_INT64_T, INT, 0);
    add(MPI_AINT, INT, 0);
    add(MPI_OFFSET, INT, 0);
    add(MPI_COUNT, INT, 0);
    add(MPI_UNSIGNED_CHAR, UINT, 0);
    add(MPI_UNSIGNED_SHORT, UINT, 0);
    add(MPI_UNSIGNED, UINT, 0);
    add(MPI_UNSIGNED_LONG, UINT, 0);
    add(MPI_UNSIGNED_LONG_LONG, UINT, 0);
    add(MPI_UINT8_T, UINT, 0);
    add(MPI_UINT16_T, UINT, 0);
    add(MPI_UINT32_T, UINT, 0);
    add(MPI_UINT64_T, UINT, 0);
    add(MPI_INTEGER, INT, 0);
    add(MPI_INTEGER1, INT, 0);
    add(MPI_INTEGER2, INT, 0);
    add(MPI_INTEGER4, INT, 0);
    add(MPI_INTEGER8, INT, 0);
    add(MPI_CHAR, CHARACTER, 0);
    add(MPI_WCHAR, CHARACTER, 0);
    add(MPI_CHARACTER, CHARACTER, 0);
    add(MPI_FLOAT, FLOAT, 0);
    add(MPI_DOUBLE, FLOAT, 0);
    add(MPI_REAL, FLOAT, 0);
    add(MPI_DOUBLE_PRECISION, FLOAT, 0);
    add(MPI_REAL4, FLOAT, 0);
    add(MPI_REAL8, FLOAT, 0);
    add(MPI_C_COMPLEX, COMPLEX, 0);
    add(MPI_C_FLOAT_COMPLEX, COMPLEX, 0);
    add(MPI_C_DOUBLE_COMPLEX, COMPLEX, 0);
    add(MPI_COMPLEX, COMPLEX, 0);
    add(MPI_DOUBLE_COMPLEX, COMPLEX, 0);
    add(MPI_COMPLEX8, COMPLEX, 0);
    add(MPI_COMPLEX16, COMPLEX, 0);
    add(MPI_CXX_FLOAT_COMPLEX, COMPLEX, 0);
    add(MPI_CXX_DOUBLE_COMPLEX, COMPLEX, 0);
    add(MPI_LOGICAL, LOGICAL, 0);
    add(MPI_C_BOOL, CBOOL, 0);
    add(MPI_CXX_BOOL, CBOOL, 0);
    add(MPI_BYTE, BYTES, 0);
    add(MPI_PACKED, BYTES, 0);
    slot(type_key(MPI_PACKED))->reduces = 0;
    /* long double is the one type whose representation is C's alone: MPI_REAL16 is something else. */
    add(MPI_LONG_DOUBLE, PAIR, sizeof(long double) == 16 ? OCCL_T_FLD : -1);
    add(MPI_C_LONG_DOUBLE_COMPLEX, PAIR, sizeof(long double) == 16 ? OCCL_T_CLD : -1);
    add(MPI_CXX_LONG_DOUBLE_COMPLEX, PAIR, sizeof(long double) == 16 ? OCCL_T_CLD : -1);
    add(MPI_FLOAT_INT, PAIR, OCCL_T_F32_I32);
    add(MPI_DOUBLE_INT, PAIR, OCCL_T_F64_I32);
    add(MPI_LONG_INT, PAIR, sizeof(long) == 8 ? OCCL_T_I64_I32 : OCCL_T_I32_I32);
    add(MPI_SHORT_INT, PAIR, OCCL_T_I16_I32);
    add(MPI_2INT, PAIR, OCCL_T_I32_I32);
    add(MPI_LONG_DOUBLE_INT, PAIR, sizeof(long double) == 16 ? OCCL_T_FLD_I32 : -1);
    add(MPI_2INTEGER, PAIR, OCCL_T_I32_I32);
    add(MPI_2REAL, PAIR, OCCL_T_F32_F32);
    add(MPI_2DOUBLE_PRECISION, PAIR, OCCL_T_F64_F64);
    /* Moved as bytes only, where this MPI has them */
    add(MPI_REAL16, PAIR, -1);
    add(MPI_COMPLEX32, PAIR, -1);
#ifdef OPEN_MPI
    add(MPI_LOGICAL1, LOGICAL, 0);
    add(MPI_LOGICAL2, LOGICAL, 0);
    add(MPI_LOGICAL4, LOGICAL, 0);
    add(MPI_LOGICAL8, LOGICAL, 0);
#endif
#ifdef MPIX_C_FLOAT16
    add(MPIX_C_FLOAT16, FLOAT, 0);
#endif
}

static const char *const type_name[OCCL_T_COUNT] = {
#define X(id, number, bytes, name) [number] = name,
    OCCL_TYPE_TABLE(X)
#undef X
};
static const uint32_t type_bytes[OCCL_T_COUNT] = {
#define X(id, number, bytes, name) [number] = bytes,
    OCCL_TYPE_TABLE(X)
#undef X
};

const char *occl_mpi_type_name(uint32_t id) { return id < OCCL_T_COUNT ? type_name[id] : "?"; }

/* --- derived types ------------------------------------------------------------------------------------------------ */

static const char *combiner_name(int combiner)
{
    switch (combiner) {
    case MPI_COMBINER_VECTOR: return "MPI_Type_vector";
    case MPI_COMBINER_HVECTOR: return "MPI_Type_create_hvector";
    case MPI_COMBINER_INDEXED: return "MPI_Type_indexed";
    case MPI_COMBINER_HINDEXED: return "MPI_Type_create_hindexed";
    case MPI_COMBINER_INDEXED_BLOCK: return "MPI_Type_create_indexed_block";
    case MPI_COMBINER_HINDEXED_BLOCK: return "MPI_Type_create_hindexed_block";
    case MPI_COMBINER_STRUCT: return "MPI_Type_create_struct";
    case MPI_COMBINER_SUBARRAY: return "MPI_Type_create_subarray";
    case MPI_COMBINER_DARRAY: return "MPI_Type_create_darray";
    case MPI_COMBINER_RESIZED: return "MPI_Type_create_resized";
    default: return "a constructor that is not known here";
    }
}

static occl_status_t refuse(char *why, size_t len, int combiner, const char *reason)
{
    snprintf(why, len, "a datatype made by %s %s; only types that lie in memory without gaps, in order, over one basic type "
             "can be used", combiner_name(combiner), reason);
    return OCCL_ERR_TYPE;
}

static occl_status_t decode(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len, int depth);

/* Blocks of a child type, one after the other: each must begin where the one before ended. disp in bytes. */
typedef struct {
    occl_mpi_type_t child;
    int have_child;
    int64_t end;  /* in bytes */
    uint64_t n;   /* basic elements so far */
} layout_t;

static int place(layout_t *l, int64_t disp, int64_t blocks, const occl_mpi_type_t *child)
{
    uint64_t bytes;

    if (blocks == 0 || child->n == 0)
        return 1;
    if (l->have_child && l->child.id != child->id)
        return 0;
    l->child = *child;
    l->have_child = 1;
    if (blocks < 0 || disp != l->end || __builtin_mul_overflow((uint64_t)blocks, child->n, &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)type_bytes[child->id], &bytes) || bytes > INT64_MAX / 2)
        return 0;
    l->end += (int64_t)bytes;
    l->n += (uint64_t)blocks * child->n;
    return 1;
}

static int64_t span(const occl_mpi_type_t *t) { return (int64_t)(t->n * type_bytes[t->id]); }

static void free_child(MPI_Datatype *child)
{
    int i, a, d, combiner;

    /* What Type_get_contents returns for a predefined type must not be freed. */
    if (*child != MPI_DATATYPE_NULL && PMPI_Type_get_envelope(*child, &i, &a, &d, &combiner) == MPI_SUCCESS &&
        combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL && combiner != MPI_COMBINER_F90_COMPLEX &&
        combiner != MPI_COMBINER_F90_INTEGER)
        PMPI_Type_free(child);
}

static occl_status_t decode_derived(MPI_Datatype datatype, int combiner, int ni, int na, int nd, occl_mpi_type_t *type_p,
                                    char *why, size_t len, int depth)
{
    static const char gaps[] = "has gaps, overlaps or another order, or mixes basic types";
    occl_status_t status = OCCL_OK;
    layout_t l;
    occl_mpi_type_t *c = NULL;
    MPI_Datatype *child = calloc((size_t)nd + 1, sizeof *child);
    int *i = calloc((size_t)ni + 1, sizeof *i);
    MPI_Aint *a = calloc((size_t)na + 1, sizeof *a), lb, extent;
    int good = 1, got = 0;

    memset(&l, 0, sizeof l);
    c = calloc((size_t)nd + 1, sizeof *c);
    if (!child || !i || !a || !c) {
        snprintf(why, len, "no memory to look into a datatype");
        status = OCCL_ERR_RESOURCE;
        goto out;
    }
    if (PMPI_Type_get_contents(datatype, ni, na, nd, i, a, child) != MPI_SUCCESS) {
        status = refuse(why, len, combiner, "cannot be looked into");
        goto out;
    }
    got = 1;
    for (int k = 0; k < nd && status == OCCL_OK; k++)
        status = decode(child[k], &c[k], why, len, depth + 1);
    if (status != OCCL_OK)
        goto out;

    switch (combiner) {
    case MPI_COMBINER_DUP:
        *type_p = c[0];
        goto out;
    case MPI_COMBINER_CONTIGUOUS: /* count */
        good = place(&l, 0, i[0], &c[0]);
        break;
    case MPI_COMBINER_VECTOR: /* count, blocklength, stride */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, (int64_t)k * i[2] * span(&c[0]), i[1], &c[0]);
        break;
    case MPI_COMBINER_HVECTOR: /* count, blocklength; stride in bytes */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, (int64_t)k * a[0], i[1], &c[0]);
        break;
    case MPI_COMBINER_INDEXED: /* count, blocklengths, displacements */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, (int64_t)i[1 + i[0] + k] * span(&c[0]), i[1 + k], &c[0]);
        break;
    case MPI_COMBINER_HINDEXED: /* count, blocklengths; displacements in bytes */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, a[k], i[1 + k], &c[0]);
        break;
    case MPI_COMBINER_INDEXED_BLOCK: /* count, blocklength, displacements */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, (int64_t)i[2 + k] * span(&c[0]), i[1], &c[0]);
        break;
    case MPI_COMBINER_HINDEXED_BLOCK: /* count, blocklength; displacements in bytes */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, a[k], i[1], &c[0]);
        break;
    case MPI_COMBINER_STRUCT: /* count, blocklengths; displacements in bytes; types */
        for (int k = 0; k < i[0] && good; k++)
            good = place(&l, a[k], i[1 + k], &c[k]);
        break;
    case MPI_COMBINER_RESIZED: /* lb, extent in bytes */
        good = place(&l, 0, 1, &c[0]) && a[0] == 0 && a[1] == l.end;
        break;
    case MPI_COMBINER_SUBARRAY: { /* ndims, sizes, subsizes, starts, order: the whole array, or it has gaps */
        uint64_t n = 1;
        for (int k = 0; k < i[0]; k++) {
            good = good && i[1 + i[0] + k] == i[1 + k];
            n *= (uint64_t)i[1 + k];
        }
        good = good && place(&l, 0, (int64_t)n, &c[0]);
        break;
    }
    default:
        status = refuse(why, len, combiner, "is not supported");
        goto out;
    }
    if (good && PMPI_Type_get_extent(datatype, &lb, &extent) == MPI_SUCCESS && (l.n == 0 || (lb == 0 && extent == l.end))) {
        type_p->id = l.have_child ? l.child.id : OCCL_T_BYTE;
        type_p->n = l.n;
        type_p->reduces = 0;
    } else {
        status = refuse(why, len, combiner, gaps);
    }
out:
    for (int k = 0; got && k < nd; k++)
        free_child(&child[k]);
    free(child);
    free(i);
    free(a);
    free(c);
    return status;
}

static occl_status_t decode(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len, int depth)
{
    const occl_mpi_type_t *t;
    int ni, na, nd, combiner, size = 0;
    char name[MPI_MAX_OBJECT_NAME + 1] = "";

    if (datatype == MPI_DATATYPE_NULL) {
        snprintf(why, len, "the datatype is MPI_DATATYPE_NULL");
        return OCCL_ERR_TYPE;
    }
    if ((t = lookup(datatype)) != NULL) {
        *type_p = *t;
        return OCCL_OK;
    }
    if (depth > 16 || PMPI_Type_get_envelope(datatype, &ni, &na, &nd, &combiner) != MPI_SUCCESS) {
        snprintf(why, len, depth > 16 ? "the datatype is nested too deeply" : "the datatype is not valid");
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
        if (combiner == MPI_COMBINER_F90_INTEGER)
            t = lookup(size == 1 ? MPI_INT8_T : size == 2 ? MPI_INT16_T : size == 4 ? MPI_INT32_T : MPI_INT64_T);
        else if (combiner == MPI_COMBINER_F90_REAL)
            t = lookup(size == 4 ? MPI_FLOAT : MPI_DOUBLE);
        else
            t = lookup(size == 8 ? MPI_C_FLOAT_COMPLEX : MPI_C_DOUBLE_COMPLEX);
        if (t && (uint64_t)size == t->n * type_bytes[t->id]) {
            *type_p = *t;
            return OCCL_OK;
        }
        return refuse(why, len, combiner, "is not supported");
    default:
        return decode_derived(datatype, combiner, ni, na, nd, type_p, why, len, depth);
    }
}

occl_status_t occl_mpi_type_get(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len)
{
    const occl_mpi_type_t *t = lookup(datatype);

    if (OCCL_LIKELY(t != NULL)) {
        *type_p = *t;
        return OCCL_OK;
    }
    return decode(datatype, type_p, why, len, 0);
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

occl_status_t occl_mpi_op_get(MPI_Op op, uint32_t *op_p, char *why, size_t len)
{
    const struct {
        MPI_Op op;
        uint32_t id;
    } known[] = {
        {MPI_SUM, OCCL_OP_SUM},   {MPI_MAX, OCCL_OP_MAX},   {MPI_MIN, OCCL_OP_MIN},   {MPI_PROD, OCCL_OP_PROD},
        {MPI_LAND, OCCL_OP_LAND}, {MPI_BAND, OCCL_OP_BAND}, {MPI_LOR, OCCL_OP_LOR},   {MPI_BOR, OCCL_OP_BOR},
        {MPI_LXOR, OCCL_OP_LXOR}, {MPI_BXOR, OCCL_OP_BXOR}, {MPI_MINLOC, OCCL_OP_MINLOC}, {MPI_MAXLOC, OCCL_OP_MAXLOC},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (op == known[i].op) {
            *op_p = known[i].id;
            return OCCL_OK;
        }
    }
    if (op == MPI_OP_NULL) {
        snprintf(why, len, "the op is MPI_OP_NULL");
        return OCCL_ERR_OP;
    }
    if (op == MPI_REPLACE || op == MPI_NO_OP) {
        snprintf(why, len, "%s is for one-sided communication only", op == MPI_REPLACE ? "MPI_REPLACE" : "MPI_NO_OP");
        return OCCL_ERR_OP;
    }
    snprintf(why, len, "ops made by MPI_Op_create are not supported: MPI offers no way to keep one alive while a run is pending");
    return OCCL_ERR_UNSUPPORTED;
}
