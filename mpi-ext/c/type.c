/* SPDX-License-Identifier: BSD-3-Clause */
/* Datatypes that MPI or this library defines -> the engine's numbers. (Those that a program makes: layout.c) */
#include "internal.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/daemon.h"
#include "util/hash.h"

/* --- predefined types --------------------------------------------------------------------------------------------- */

/* What MPI says a type is; with its size it gives the engine's type. MPI's names are many: on one machine MPI_LONG, MPI_AINT and
 * MPI_INTEGER8 are all I64. */
typedef enum { INT, FINT, UINT, CHARACTER, FLOAT, COMPLEX, LOGICAL, INTEGERS, REALS, BYTES, GIVEN } family_t;

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

/* One bit an op; the engine knows which go with a type. */
static uint32_t ops_of(uint32_t id)
{
    uint32_t ops = 0;

    for (uint32_t op = OCCL_OP_NONE + 1; op < OCCL_OP_COUNT; op++)
        if (occl_host_op_valid(op, id))
            ops |= 1u << op;
    return ops;
}

static const uint32_t type_bytes[OCCL_T_COUNT] = {
#define X(id, number, bytes, name) [number] = bytes,
    OCCL_TYPE_TABLE(X)
#undef X
};

static int by_size(int size, int one, int two, int four, int eight, int sixteen)
{
    return size == 1 ? one : size == 2 ? two : size == 4 ? four : size == 8 ? eight : size == 16 ? sixteen : -1;
}

static void add(MPI_Datatype datatype, family_t family, int id)
{
    static const uint32_t logical = 1u << OCCL_OP_LAND | 1u << OCCL_OP_LOR | 1u << OCCL_OP_LXOR;
    occl_mpi_type_t t = {.n = 1};
    MPI_Aint lb, extent = 0;
    uint32_t without = 0;
    int size = 0;

    /* Types that this MPI does not have on this machine */
    if (datatype == MPI_DATATYPE_NULL || PMPI_Type_size(datatype, &size) != MPI_SUCCESS || size <= 0 ||
        PMPI_Type_get_extent(datatype, &lb, &extent) != MPI_SUCCESS)
        return;
    switch (family) {
    case FINT: /* of Fortran, or of both languages: MPI has no logical ops for them */
        without = logical;
        /* fall through */
    case INT: id = by_size(size, OCCL_T_I8, OCCL_T_I16, OCCL_T_I32, OCCL_T_I64, OCCL_T_I128); break;
    case UINT: id = by_size(size, OCCL_T_U8, OCCL_T_U16, OCCL_T_U32, OCCL_T_U64, -1); break;
    case CHARACTER: /* MPI has no op for characters */
        id = by_size(size, OCCL_T_U8, OCCL_T_U16, OCCL_T_U32, OCCL_T_U64, -1);
        without = ~0u;
        break;
    /* Fortran's REAL(16) is C's long double only where that has as many digits. */
    case FLOAT: id = by_size(size, -1, OCCL_T_F16, OCCL_T_F32, OCCL_T_F64, LDBL_MANT_DIG == 113 ? OCCL_T_FLD : OCCL_T_F128); break;
    case COMPLEX: id = by_size(size / 2, -1, -1, OCCL_T_C32, OCCL_T_C64, LDBL_MANT_DIG == 113 ? OCCL_T_CLD : OCCL_T_C128); break;
    case LOGICAL: id = by_size(size, OCCL_T_L8, OCCL_T_L16, OCCL_T_L32, OCCL_T_L64, -1); break;
    case INTEGERS: id = by_size(size / 2, -1, -1, OCCL_T_I32_I32, OCCL_T_I64_I64, -1); break;
    case REALS: id = by_size(size / 2, -1, -1, OCCL_T_F32_F32, OCCL_T_F64_F64, -1); break;
    case BYTES: id = OCCL_T_BYTE; break;
    case GIVEN: break;
    }
    /* No arithmetic for it: it can be moved all the same, as bytes. */
    if (id < 0 || (MPI_Aint)type_bytes[id] != extent || (id != OCCL_T_BYTE && !ops_of((uint32_t)id))) {
        id = OCCL_T_BYTE;
        without = ~0u;
        t.n = (uint64_t)extent;
    }
    t.id = (uint32_t)id;
    t.ops = ops_of(t.id) & ~without;
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
    add(MPI_UNSIGNED_CHAR, UINT, 0);
    add(MPI_UNSIGNED_SHORT, UINT, 0);
    add(MPI_UNSIGNED, UINT, 0);
    add(MPI_UNSIGNED_LONG, UINT, 0);
    add(MPI_UNSIGNED_LONG_LONG, UINT, 0);
    add(MPI_UINT8_T, UINT, 0);
    add(MPI_UINT16_T, UINT, 0);
    add(MPI_UINT32_T, UINT, 0);
    add(MPI_UINT64_T, UINT, 0);
    add(MPI_AINT, FINT, 0);
    add(MPI_OFFSET, FINT, 0);
    add(MPI_COUNT, FINT, 0);
    add(MPI_INTEGER, FINT, 0);
    add(MPI_INTEGER1, FINT, 0);
    add(MPI_INTEGER2, FINT, 0);
    add(MPI_INTEGER4, FINT, 0);
    add(MPI_INTEGER8, FINT, 0);
#ifdef MPI_INTEGER16
    add(MPI_INTEGER16, FINT, 0);
#endif
    add(MPI_CHAR, CHARACTER, 0);
    add(MPI_WCHAR, CHARACTER, 0);
    add(MPI_CHARACTER, CHARACTER, 0);
    add(MPI_FLOAT, FLOAT, 0);
    add(MPI_DOUBLE, FLOAT, 0);
    add(MPI_REAL, FLOAT, 0);
    add(MPI_DOUBLE_PRECISION, FLOAT, 0);
#ifdef MPI_REAL2
    add(MPI_REAL2, FLOAT, 0);
#endif
    add(MPI_REAL4, FLOAT, 0);
    add(MPI_REAL8, FLOAT, 0);
#ifdef MPI_REAL16
    add(MPI_REAL16, FLOAT, 0);
#endif
    add(MPI_C_COMPLEX, COMPLEX, 0);
    add(MPI_C_FLOAT_COMPLEX, COMPLEX, 0);
    add(MPI_C_DOUBLE_COMPLEX, COMPLEX, 0);
    add(MPI_COMPLEX, COMPLEX, 0);
    add(MPI_DOUBLE_COMPLEX, COMPLEX, 0);
#ifdef MPI_COMPLEX4
    add(MPI_COMPLEX4, COMPLEX, 0);
#endif
    add(MPI_COMPLEX8, COMPLEX, 0);
    add(MPI_COMPLEX16, COMPLEX, 0);
#ifdef MPI_COMPLEX32
    add(MPI_COMPLEX32, COMPLEX, 0);
#endif
    add(MPI_CXX_FLOAT_COMPLEX, COMPLEX, 0);
    add(MPI_CXX_DOUBLE_COMPLEX, COMPLEX, 0);
    add(MPI_LOGICAL, LOGICAL, 0);
#ifdef MPI_LOGICAL1
    add(MPI_LOGICAL1, LOGICAL, 0);
#endif
#ifdef MPI_LOGICAL2
    add(MPI_LOGICAL2, LOGICAL, 0);
#endif
#ifdef MPI_LOGICAL4
    add(MPI_LOGICAL4, LOGICAL, 0);
#endif
#ifdef MPI_LOGICAL8
    add(MPI_LOGICAL8, LOGICAL, 0);
#endif
    add(MPI_C_BOOL, GIVEN, OCCL_T_BOOL);
    add(MPI_CXX_BOOL, GIVEN, OCCL_T_BOOL);
    add(MPI_BYTE, BYTES, 0);
    add(MPI_PACKED, BYTES, 0);
    slot(type_key(MPI_PACKED))->ops = 0;
    add(MPI_LONG_DOUBLE, GIVEN, OCCL_T_FLD);
    add(MPI_C_LONG_DOUBLE_COMPLEX, GIVEN, OCCL_T_CLD);
    add(MPI_CXX_LONG_DOUBLE_COMPLEX, GIVEN, OCCL_T_CLD);
    add(MPI_FLOAT_INT, GIVEN, OCCL_T_F32_I32);
    add(MPI_DOUBLE_INT, GIVEN, OCCL_T_F64_I32);
    add(MPI_LONG_INT, GIVEN, sizeof(long) == 8 ? OCCL_T_I64_I32 : OCCL_T_I32_I32);
    add(MPI_SHORT_INT, GIVEN, OCCL_T_I16_I32);
    add(MPI_2INT, GIVEN, OCCL_T_I32_I32);
    add(MPI_LONG_DOUBLE_INT, GIVEN, OCCL_T_FLD_I32);
    add(MPI_2INTEGER, INTEGERS, 0);
    add(MPI_2REAL, REALS, 0);
    add(MPI_2DOUBLE_PRECISION, REALS, 0);
#ifdef MPI_2COMPLEX
    add(MPI_2COMPLEX, GIVEN, -1);
    add(MPI_2DOUBLE_COMPLEX, GIVEN, -1);
#endif
#ifdef MPIX_C_FLOAT16
    add(MPIX_C_FLOAT16, FLOAT, 0);
#endif
}

/* --- types of this library ---------------------------------------------------------------------------------------- */

/*
 * In the order of MPIX_OCCL_FLOAT16 and its kin in mpix_occl.h. To MPI they are so many bytes, and a block of none at a place
 * that nobody else thinks of: by that they are known in what is made of them, where MPI hands out copies.
 */
enum { OUR_PLACE = 0x0cc15a00 };
static const struct {
    const char *name;
    uint32_t id;
} our_type[] = {
    {"MPIX_OCCL_FLOAT16", OCCL_T_F16},
    {"MPIX_OCCL_BFLOAT16", OCCL_T_BF16},
    {"MPIX_OCCL_FLOAT8_E4M3", OCCL_T_E4M3},
    {"MPIX_OCCL_FLOAT8_E5M2", OCCL_T_E5M2},
};
enum { OUR_TYPES = sizeof our_type / sizeof our_type[0] };
OCCL_MPI_HANDLE_FITS(MPI_Datatype);
static _Atomic uint64_t ours[OUR_TYPES]; /* their keys; 0: not made */
static occl_lock_t ours_lock = OCCL_LOCK_INIT;

static MPI_Datatype of_key(uint64_t key)
{
    MPI_Datatype datatype;

    memcpy(&datatype, &key, sizeof datatype);
    return datatype;
}

/* The lock is held over calls of MPI that are local and call nobody. */
MPI_Datatype PMPIX_Occl_datatype(int which)
{
    MPI_Datatype datatype = MPI_DATATYPE_NULL;
    uint64_t key;

    if (which < 0 || which >= OUR_TYPES || !occl_mpi_is_up())
        return MPI_DATATYPE_NULL;
    if ((key = atomic_load_explicit(&ours[which], memory_order_acquire)) != 0)
        return of_key(key);
    occl_lock(&ours_lock);
    if ((key = atomic_load_explicit(&ours[which], memory_order_relaxed)) != 0) {
        datatype = of_key(key);
    } else if (occl_mpi_at_finalize() &&
               PMPI_Type_create_hindexed(2, (int[]){(int)type_bytes[our_type[which].id], 0}, (MPI_Aint[]){0, OUR_PLACE + which},
                                         MPI_BYTE, &datatype) == MPI_SUCCESS) {
        PMPI_Type_commit(&datatype);
        PMPI_Type_set_name(datatype, our_type[which].name);
        atomic_store_explicit(&ours[which], type_key(datatype), memory_order_release);
    }
    occl_unlock(&ours_lock);
    return datatype;
}
OCCL_ALIAS(datatype);

static void set_ours(int which, occl_mpi_type_t *t)
{
    *t = (occl_mpi_type_t){.id = our_type[which].id, .ops = ops_of(our_type[which].id), .n = 1};
}

static int is_ours(MPI_Datatype datatype, occl_mpi_type_t *t)
{
    uint64_t key = type_key(datatype);

    for (int i = 0; i < OUR_TYPES; i++) {
        if (atomic_load_explicit(&ours[i], memory_order_acquire) == key) {
            set_ours(i, t);
            return 1;
        }
    }
    return 0;
}

void occl_mpi_types_fini(void)
{
    for (int i = 0; i < OUR_TYPES; i++) {
        uint64_t key = atomic_exchange(&ours[i], 0);
        MPI_Datatype datatype = of_key(key);

        if (key)
            PMPI_Type_free(&datatype);
    }
}

static const char *const type_name[OCCL_T_COUNT] = {
#define X(id, number, bytes, name) [number] = name,
    OCCL_TYPE_TABLE(X)
#undef X
};

const char *occl_mpi_type_name(uint32_t id) { return id < OCCL_T_COUNT ? type_name[id] : "?"; }

int occl_mpi_type_by_size(char what, int size, occl_mpi_type_t *t)
{
    MPI_Datatype type = MPI_DATATYPE_NULL;

    if (what == 'i')
        type = size == 1 ? MPI_INT8_T : size == 2 ? MPI_INT16_T : size == 4 ? MPI_INT32_T : size == 8 ? MPI_INT64_T : type;
    else if (what == 'r')
        type = size == 4 ? MPI_FLOAT : size == 8 ? MPI_DOUBLE : type;
    else
        type = size == 8 ? MPI_C_FLOAT_COMPLEX : size == 16 ? MPI_C_DOUBLE_COMPLEX : type;
#ifdef MPI_REAL16
    if (what == 'r' && size == 16)
        type = MPI_REAL16;
#endif
#ifdef MPI_COMPLEX32
    if (what == 'c' && size == 32)
        type = MPI_COMPLEX32;
#endif
    return type != MPI_DATATYPE_NULL && occl_mpi_type_known(type, t);
}

int occl_mpi_type_known(MPI_Datatype datatype, occl_mpi_type_t *t)
{
    const occl_mpi_type_t *known = lookup(datatype);

    if (OCCL_LIKELY(known != NULL)) {
        *t = *known;
        return 1;
    }
    return is_ours(datatype, t);
}

int occl_mpi_type_is_ours(const int *lengths, const MPI_Aint *places, MPI_Datatype of, occl_mpi_type_t *t)
{
    if (lengths[1] != 0 || places[1] < OUR_PLACE || places[1] >= OUR_PLACE + OUR_TYPES || of != MPI_BYTE)
        return 0;
    set_ours((int)(places[1] - OUR_PLACE), t);
    return 1;
}

occl_status_t occl_mpi_type_get(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len)
{
    if (OCCL_LIKELY(occl_mpi_type_known(datatype, type_p)))
        return OCCL_OK;
    return occl_mpi_layout_get(datatype, type_p, why, len);
}
