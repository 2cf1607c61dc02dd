/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Element types and reduction operations as the engine numbers them. The numbers travel in signatures between processes of
 * one library version only (the attach handshake compares versions), so they may change between releases.
 */
#ifndef OCCL_KERNELS_TYPES_H
#define OCCL_KERNELS_TYPES_H

/* X(id, number, bytes, name as in messages). MPI's many names map onto these: MPI_INT is I32 where int has 32 bits. */
#define OCCL_TYPE_TABLE(X)          \
    X(BYTE, 0, 1, "byte")           \
    X(I8, 1, 1, "int8")             \
    X(U8, 2, 1, "uint8")            \
    X(I16, 3, 2, "int16")           \
    X(U16, 4, 2, "uint16")          \
    X(I32, 5, 4, "int32")           \
    X(U32, 6, 4, "uint32")          \
    X(I64, 7, 8, "int64")           \
    X(U64, 8, 8, "uint64")          \
    X(F32, 9, 4, "float")           \
    X(F64, 10, 8, "double")         \
    X(FLD, 11, 16, "long double")   \
    X(F16, 12, 2, "float16")        \
    X(BF16, 13, 2, "bfloat16")      \
    X(C32, 14, 8, "float complex")  \
    X(C64, 15, 16, "double complex")\
    X(CLD, 16, 32, "long double complex") \
    X(BOOL, 17, 1, "bool")          \
    X(L32, 18, 4, "Fortran logical")\
    X(F32_I32, 19, 8, "float_int")  \
    X(F64_I32, 20, 16, "double_int")\
    X(I64_I32, 21, 16, "long_int")  \
    X(I16_I32, 22, 8, "short_int")  \
    X(I32_I32, 23, 8, "2int")       \
    X(FLD_I32, 24, 32, "long_double_int") \
    X(F32_F32, 25, 8, "2real")      \
    X(F64_F64, 26, 16, "2double_precision") \
    X(E4M3, 27, 1, "float8_e4m3")   \
    X(E5M2, 28, 1, "float8_e5m2")   \
    X(F128, 29, 16, "real(16)")     \
    X(C128, 30, 32, "complex(16)")  \
    X(I128, 31, 16, "int128")       \
    X(L8, 32, 1, "Fortran logical(1)")  \
    X(L16, 33, 2, "Fortran logical(2)") \
    X(L64, 34, 8, "Fortran logical(8)") \
    X(I64_I64, 35, 16, "2integer(8)")

/* X(id, number, name as in messages) */
#define OCCL_OP_TABLE(X)     \
    X(NONE, 0, "none")       \
    X(SUM, 1, "sum")         \
    X(PROD, 2, "prod")       \
    X(MIN, 3, "min")         \
    X(MAX, 4, "max")         \
    X(LAND, 5, "land")       \
    X(LOR, 6, "lor")         \
    X(LXOR, 7, "lxor")       \
    X(BAND, 8, "band")       \
    X(BOR, 9, "bor")         \
    X(BXOR, 10, "bxor")      \
    X(MINLOC, 11, "minloc")  \
    X(MAXLOC, 12, "maxloc")  \
    X(AVG, 13, "avg")        /* the sum, divided by the number of sources at the end of the one fold that there is */ \
    X(PREMUL, 14, "premul")  /* every source times a scalar that the plan holds, then the sum */ \
    X(USER, 15, "of the user") /* in signatures only: the layer above folds */

enum {
#define X(id, number, bytes, name) OCCL_T_##id = number,
    OCCL_TYPE_TABLE(X)
#undef X
    OCCL_T_COUNT
};

/* Floats that are folded as fp32: 16 and 8 bits. */
#define OCCL_T_IS_NARROW(t) ((t) == OCCL_T_F16 || (t) == OCCL_T_BF16 || (t) == OCCL_T_E4M3 || (t) == OCCL_T_E5M2)
/* Ops that are right only where all sources are folded at once. */
#define OCCL_OP_IS_WHOLE(op) ((op) == OCCL_OP_AVG || (op) == OCCL_OP_PREMUL)

enum {
#define X(id, number, name) OCCL_OP_##id = number,
    OCCL_OP_TABLE(X)
#undef X
    OCCL_OP_COUNT
};

#endif
