/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops that touch payload: copy, reduce, and data-with-flag words.
 *
 * The one file with two bodies, because the compiler makes vectors of a plain loop on the host and does not on the GPU.
 * What an operation *means* stands once, in the first half; each body only moves data through it. The CUDA body alone uses
 * templates: no C compiler reads it.
 *
 * Rules for all of them
 *   - Every lane of the block calls with the same arguments. Nothing here waits, and only occl_dev_words_ready has a
 *     barrier: the caller puts an occl_sync where another lane's result is read or another lane's input overwritten.
 *   - Any alignment and any length are right, and no byte outside the given ranges is touched.
 *   - Loads are ordinary coherent loads: no __restrict__ and no __ldg, which a resident kernel must not have on memory
 *     that others write.
 *
 * What a reduction gives, on both bodies
 *   - dst[i] = (src[0][i] op src[1][i]) op src[2][i] ...: always a left fold in this order, element by element, so no split
 *     into chunks, tiles or lanes changes a bit. Nothing is contracted into fma (gcc: -ffp-contract=off).
 *   - Integer sum and product wrap modulo 2^k. Logical results are 0 or 1 (Fortran's .true. is 1).
 *   - F16 and BF16 are folded in fp32 over all sources and rounded once, to nearest even. A NaN stays a NaN.
 *   - MIN and MAX give NaN when either side is NaN, and take -0 < +0.
 *   - MINLOC and MAXLOC take the lower index among equal values; a NaN beats a number, as in MIN and MAX.
 *   - A complex product is the plain four-multiplication formula, without C's Annex G repair of infinities.
 *   - Not promised: sign and payload of a NaN that arithmetic made, and bytes that are padding (long double, pairs).
 */
#ifndef OCCL_KERNELS_DATA_H
#define OCCL_KERNELS_DATA_H

#include "occl_dev.h"
#include "occl_dev_atomic.h"
#include "occl_dev_types.h"

#if defined(__SIZEOF_LONG_DOUBLE__) && __SIZEOF_LONG_DOUBLE__ == 16 && !OCCL_CUDA
#define OCCL_HAVE_FLD 1
#else
#define OCCL_HAVE_FLD 0
#endif

/* ---- what may be asked ------------------------------------------------------------------------------------------ */

/* Bytes of one element; 0 for a number that is no type. */
OCCL_FN uint32_t occl_dev_type_bytes(uint32_t type)
{
    switch (type) {
#define X(id, number, bytes, name) case number: return bytes;
        OCCL_TYPE_TABLE(X)
#undef X
    }
    return 0;
}

/* MPI's table of which predefined operation fits which type, one bit an operation. */
OCCL_FN uint32_t occl_dev_type_ops(uint32_t type)
{
#define OCCL_BIT(op) (1u << OCCL_OP_##op)
    const uint32_t logical = OCCL_BIT(LAND) | OCCL_BIT(LOR) | OCCL_BIT(LXOR);
    const uint32_t bitwise = OCCL_BIT(BAND) | OCCL_BIT(BOR) | OCCL_BIT(BXOR);
    const uint32_t field = OCCL_BIT(SUM) | OCCL_BIT(PROD);
    const uint32_t ordered = field | OCCL_BIT(MIN) | OCCL_BIT(MAX);
    const uint32_t pair = OCCL_BIT(MINLOC) | OCCL_BIT(MAXLOC);
#undef OCCL_BIT
    switch (type) {
    case OCCL_T_I8: case OCCL_T_U8: case OCCL_T_I16: case OCCL_T_U16:
    case OCCL_T_I32: case OCCL_T_U32: case OCCL_T_I64: case OCCL_T_U64:
        return ordered | logical | bitwise;
    case OCCL_T_F32: case OCCL_T_F64: case OCCL_T_F16: case OCCL_T_BF16:
        return ordered;
    case OCCL_T_FLD:
        return OCCL_HAVE_FLD ? ordered : 0;
    case OCCL_T_C32: case OCCL_T_C64:
        return field;
    case OCCL_T_CLD:
        return OCCL_HAVE_FLD ? field : 0;
    case OCCL_T_BOOL: case OCCL_T_L32:
        return logical;
    case OCCL_T_BYTE:
        return bitwise;
    case OCCL_T_F32_I32: case OCCL_T_F64_I32: case OCCL_T_I64_I32: case OCCL_T_I16_I32:
    case OCCL_T_I32_I32: case OCCL_T_F32_F32: case OCCL_T_F64_F64:
        return pair;
    case OCCL_T_FLD_I32:
        return OCCL_HAVE_FLD ? pair : 0;
    }
    return 0;
}

/* Whether this body can reduce `type` with `op`. long double is refused on CUDA. */
OCCL_FN uint32_t occl_dev_op_valid(uint32_t op, uint32_t type)
{
    return op < OCCL_OP_COUNT && ((occl_dev_type_ops(type) >> op) & 1u);
}

/* ---- what an operation means ------------------------------------------------------------------------------------ */

typedef struct { float re, im; } occl_dev_c32_t;
typedef struct { double re, im; } occl_dev_c64_t;
typedef struct { float v; int32_t k; } occl_dev_f32_i32_t;
typedef struct { double v; int32_t k; } occl_dev_f64_i32_t;
typedef struct { int64_t v; int32_t k; } occl_dev_i64_i32_t;
typedef struct { int16_t v; int32_t k; } occl_dev_i16_i32_t;
typedef struct { int32_t v; int32_t k; } occl_dev_i32_i32_t;
typedef struct { float v, k; } occl_dev_f32_f32_t;
typedef struct { double v, k; } occl_dev_f64_f64_t;
OCCL_ASSERT_STATIC(sizeof(occl_dev_f64_i32_t) == 16 && sizeof(occl_dev_i16_i32_t) == 8, pairs_have_the_layout_of_c);
#if OCCL_HAVE_FLD
typedef long double occl_dev_fld_t;
typedef struct { long double re, im; } occl_dev_cld_t;
typedef struct { long double v; int32_t k; } occl_dev_fld_i32_t;
#endif

/* The bits of a float. A union is the one way to say it that both compilers take and optimise to nothing. */
typedef union { float f; uint32_t u; } occl_dev_pun32_t;
typedef union { double f; uint64_t u; } occl_dev_pun64_t;
OCCL_FN uint32_t occl_dev_bits_f32(float f) { occl_dev_pun32_t p; p.f = f; return p.u; }
OCCL_FN float occl_dev_from_f32(uint32_t u) { occl_dev_pun32_t p; p.u = u; return p.f; }
OCCL_FN uint64_t occl_dev_bits_f64(double f) { occl_dev_pun64_t p; p.f = f; return p.u; }
OCCL_FN double occl_dev_from_f64(uint64_t u) { occl_dev_pun64_t p; p.u = u; return p.f; }

OCCL_FN float occl_dev_load_bf16(uint16_t h) { return occl_dev_from_f32((uint32_t)h << 16); }
OCCL_FN uint16_t occl_dev_round_bf16(float f)
{
    uint32_t u = occl_dev_bits_f32(f), quiet = u | 0x400000u, rounded = u + 0x7fffu + ((u >> 16) & 1u);
    return (uint16_t)((f == f ? rounded : quiet) >> 16);
}
#if OCCL_CUDA
OCCL_FN float occl_dev_load_f16(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
OCCL_FN uint16_t occl_dev_round_f16(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
#else
/*
 * Masks instead of choices, so that gcc has no branch to keep and makes vectors. Subnormal halves go through the adder: 0.5
 * has their unit in the last place.
 */
#define OCCL_MASK(cond) (0u - (uint32_t)(cond))
OCCL_FN float occl_dev_load_f16(uint16_t h)
{
    uint32_t sign = ((uint32_t)h & 0x8000u) << 16, m = h & 0x7fffu;
    uint32_t special = OCCL_MASK(m >= 0x7c00u), tiny = OCCL_MASK(m < 0x0400u);
    uint32_t normal = (m << 13) + (112u << 23) + (special & (112u << 23));
    uint32_t subnormal = occl_dev_bits_f32(occl_dev_from_f32(0x3f000000u + m) - 0.5f);
    return occl_dev_from_f32(sign | (normal & ~tiny) | (subnormal & tiny));
}
OCCL_FN uint16_t occl_dev_round_f16(float f)
{
    uint32_t u = occl_dev_bits_f32(f), a = u & 0x7fffffffu;
    uint32_t nan = OCCL_MASK(a > 0x7f800000u), huge = OCCL_MASK(a >= 0x47800000u), tiny = OCCL_MASK(a < 0x38800000u);
    uint32_t normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;
    uint32_t subnormal = occl_dev_bits_f32(occl_dev_from_f32(a) + 0.5f) - 0x3f000000u;
    uint32_t h = (normal & ~(huge | tiny)) | (subnormal & tiny) | (huge & 0x7c00u) | (nan & 0x0200u);
    return (uint16_t)((u >> 16 & 0x8000u) | h);
}
#undef OCCL_MASK
#endif

/* On CUDA the _rn forms are what nvcc never contracts, whatever -fmad says. */
#if OCCL_CUDA
OCCL_FN float occl_dev_add_f32(float a, float b) { return __fadd_rn(a, b); }
OCCL_FN float occl_dev_mul_f32(float a, float b) { return __fmul_rn(a, b); }
OCCL_FN double occl_dev_add_f64(double a, double b) { return __dadd_rn(a, b); }
OCCL_FN double occl_dev_mul_f64(double a, double b) { return __dmul_rn(a, b); }
#else
OCCL_FN float occl_dev_add_f32(float a, float b) { return a + b; }
OCCL_FN double occl_dev_add_f64(double a, double b) { return a + b; }
/* gcc 12 makes fmaddsub of complex products even under -ffp-contract=off where the target has it; the barrier forbids. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_assoc_barrier)
#define OCCL_ROUNDED(x) __builtin_assoc_barrier(x)
#endif
#endif
#ifndef OCCL_ROUNDED
#define OCCL_ROUNDED(x) (x)
#endif
OCCL_FN float occl_dev_mul_f32(float a, float b) { return OCCL_ROUNDED(a * b); }
OCCL_FN double occl_dev_mul_f64(double a, double b) { return OCCL_ROUNDED(a * b); }
#endif

/*
 * The operations proper, occl_dev_op_NAME. Arithmetic is in an unsigned type W at least as wide as unsigned int: it wraps
 * there, and small types are never promoted to a signed int that could overflow.
 */
#define OCCL_DEV_OPS_WIDTH(w, W)                                                                                       \
    OCCL_FN uint##w##_t occl_dev_op_sum##w(uint##w##_t a, uint##w##_t b) { return (uint##w##_t)((W)a + (W)b); }        \
    OCCL_FN uint##w##_t occl_dev_op_prod##w(uint##w##_t a, uint##w##_t b) { return (uint##w##_t)((W)a * (W)b); }       \
    OCCL_FN uint##w##_t occl_dev_op_land##w(uint##w##_t a, uint##w##_t b) { return (a != 0) & (b != 0); }              \
    OCCL_FN uint##w##_t occl_dev_op_lor##w(uint##w##_t a, uint##w##_t b) { return (a | b) != 0; }                      \
    OCCL_FN uint##w##_t occl_dev_op_lxor##w(uint##w##_t a, uint##w##_t b) { return (a != 0) ^ (b != 0); }              \
    OCCL_FN uint##w##_t occl_dev_op_band##w(uint##w##_t a, uint##w##_t b) { return a & b; }                            \
    OCCL_FN uint##w##_t occl_dev_op_bor##w(uint##w##_t a, uint##w##_t b) { return a | b; }                             \
    OCCL_FN uint##w##_t occl_dev_op_bxor##w(uint##w##_t a, uint##w##_t b) { return a ^ b; }                            \
    OCCL_FN uint##w##_t occl_dev_op_minu##w(uint##w##_t a, uint##w##_t b) { return a < b ? a : b; }                    \
    OCCL_FN uint##w##_t occl_dev_op_maxu##w(uint##w##_t a, uint##w##_t b) { return a < b ? b : a; }                    \
    OCCL_FN int##w##_t occl_dev_op_mini##w(int##w##_t a, int##w##_t b) { return a < b ? a : b; }                       \
    OCCL_FN int##w##_t occl_dev_op_maxi##w(int##w##_t a, int##w##_t b) { return a < b ? b : a; }
OCCL_DEV_OPS_WIDTH(8, uint32_t)
OCCL_DEV_OPS_WIDTH(16, uint32_t)
OCCL_DEV_OPS_WIDTH(32, uint32_t)
OCCL_DEV_OPS_WIDTH(64, uint64_t)
#undef OCCL_DEV_OPS_WIDTH

/*
 * Equal operands differ at most in the sign of a zero: or-ing the bits prefers -0, and-ing them +0. All comparisons are made
 * unconditionally, else gcc keeps branches (a comparison may trap).
 */
#define OCCL_DEV_OPS_FLOAT(n, F, U)                                                                                    \
    OCCL_FN F occl_dev_op_sumf##n(F a, F b) { return occl_dev_add_f##n(a, b); }                                        \
    OCCL_FN F occl_dev_op_prodf##n(F a, F b) { return occl_dev_mul_f##n(a, b); }                                       \
    OCCL_FN F occl_dev_op_minf##n(F a, F b)                                                                            \
    {                                                                                                                  \
        U x = occl_dev_bits_f##n(a), y = occl_dev_bits_f##n(b), r = a < b ? x : y;                                     \
        r = a == b ? (x | y) : r;                                                                                      \
        r = a != a ? x : r;                                                                                            \
        return occl_dev_from_f##n(r);                                                                                  \
    }                                                                                                                  \
    OCCL_FN F occl_dev_op_maxf##n(F a, F b)                                                                            \
    {                                                                                                                  \
        U x = occl_dev_bits_f##n(a), y = occl_dev_bits_f##n(b), r = a > b ? x : y;                                     \
        r = a == b ? (x & y) : r;                                                                                      \
        r = a != a ? x : r;                                                                                            \
        return occl_dev_from_f##n(r);                                                                                  \
    }                                                                                                                  \
    OCCL_FN occl_dev_c##n##_t occl_dev_op_prodc##n(occl_dev_c##n##_t a, occl_dev_c##n##_t b)                           \
    {                                                                                                                  \
        occl_dev_c##n##_t r;                                                                                           \
        r.re = occl_dev_add_f##n(occl_dev_mul_f##n(a.re, b.re), -occl_dev_mul_f##n(a.im, b.im));                       \
        r.im = occl_dev_add_f##n(occl_dev_mul_f##n(a.re, b.im), occl_dev_mul_f##n(a.im, b.re));                        \
        return r;                                                                                                      \
    }
OCCL_DEV_OPS_FLOAT(32, float, uint32_t)
OCCL_DEV_OPS_FLOAT(64, double, uint64_t)
#undef OCCL_DEV_OPS_FLOAT

/* The half types fold as float; only their loads and the last store differ. */
OCCL_FN float occl_dev_op_sumf16(float a, float b) { return occl_dev_op_sumf32(a, b); }
OCCL_FN float occl_dev_op_prodf16(float a, float b) { return occl_dev_op_prodf32(a, b); }
OCCL_FN float occl_dev_op_minf16(float a, float b) { return occl_dev_op_minf32(a, b); }
OCCL_FN float occl_dev_op_maxf16(float a, float b) { return occl_dev_op_maxf32(a, b); }
OCCL_FN float occl_dev_op_sumbf16(float a, float b) { return occl_dev_op_sumf32(a, b); }
OCCL_FN float occl_dev_op_prodbf16(float a, float b) { return occl_dev_op_prodf32(a, b); }
OCCL_FN float occl_dev_op_minbf16(float a, float b) { return occl_dev_op_minf32(a, b); }
OCCL_FN float occl_dev_op_maxbf16(float a, float b) { return occl_dev_op_maxf32(a, b); }

#if OCCL_HAVE_FLD
OCCL_FN long double occl_dev_op_sumfld(long double a, long double b) { return a + b; }
OCCL_FN long double occl_dev_op_prodfld(long double a, long double b) { return a * b; }
OCCL_FN long double occl_dev_op_minfld(long double a, long double b)
{
    if (a == b)
        return __builtin_signbitl(a) ? a : b;
    return a < b || a != a ? a : b;
}
OCCL_FN long double occl_dev_op_maxfld(long double a, long double b)
{
    if (a == b)
        return __builtin_signbitl(a) ? b : a;
    return a > b || a != a ? a : b;
}
OCCL_FN occl_dev_cld_t occl_dev_op_prodcld(occl_dev_cld_t a, occl_dev_cld_t b)
{
    occl_dev_cld_t r;
    r.re = a.re * b.re - a.im * b.im;
    r.im = a.re * b.im + a.im * b.re;
    return r;
}
#endif

/* `a.v != a.v` is false for integers and drops out. */
#define OCCL_DEV_OPS_PAIR(p)                                                                                           \
    OCCL_FN occl_dev_##p##_t occl_dev_op_minloc_##p(occl_dev_##p##_t a, occl_dev_##p##_t b)                            \
    {                                                                                                                  \
        int an = !(a.v == a.v), bn = !(b.v == b.v), same = (a.v == b.v) | (an & bn);                                   \
        return (a.v < b.v) | (an & !bn) | (same & (a.k <= b.k)) ? a : b;                                               \
    }                                                                                                                  \
    OCCL_FN occl_dev_##p##_t occl_dev_op_maxloc_##p(occl_dev_##p##_t a, occl_dev_##p##_t b)                            \
    {                                                                                                                  \
        int an = !(a.v == a.v), bn = !(b.v == b.v), same = (a.v == b.v) | (an & bn);                                   \
        return (a.v > b.v) | (an & !bn) | (same & (a.k <= b.k)) ? a : b;                                               \
    }
OCCL_DEV_OPS_PAIR(f32_i32)
OCCL_DEV_OPS_PAIR(f64_i32)
OCCL_DEV_OPS_PAIR(i64_i32)
OCCL_DEV_OPS_PAIR(i16_i32)
OCCL_DEV_OPS_PAIR(i32_i32)
OCCL_DEV_OPS_PAIR(f32_f32)
OCCL_DEV_OPS_PAIR(f64_f64)
#if OCCL_HAVE_FLD
OCCL_DEV_OPS_PAIR(fld_i32)
#endif
#undef OCCL_DEV_OPS_PAIR

/*
 * The loops there are: X(name, element) folds elements as they are, H(name, kind) folds 16-bit `kind` in fp32.
 * Fewer than types times operations: signed and unsigned share what does not depend on the sign, complex sums are real sums.
 */
#define OCCL_DEV_LOOPS_WIDTH(X, w)                                                                                     \
    X(sum##w, uint##w##_t) X(prod##w, uint##w##_t)                                                                     \
    X(land##w, uint##w##_t) X(lor##w, uint##w##_t) X(lxor##w, uint##w##_t)                                             \
    X(band##w, uint##w##_t) X(bor##w, uint##w##_t) X(bxor##w, uint##w##_t)                                             \
    X(minu##w, uint##w##_t) X(maxu##w, uint##w##_t) X(mini##w, int##w##_t) X(maxi##w, int##w##_t)
#define OCCL_DEV_LOOPS_PAIR(X, p) X(minloc_##p, occl_dev_##p##_t) X(maxloc_##p, occl_dev_##p##_t)
#if OCCL_HAVE_FLD
#define OCCL_DEV_LOOPS_FLD(X)                                                                                          \
    X(sumfld, occl_dev_fld_t) X(prodfld, occl_dev_fld_t) X(minfld, occl_dev_fld_t) X(maxfld, occl_dev_fld_t)           \
    X(prodcld, occl_dev_cld_t) OCCL_DEV_LOOPS_PAIR(X, fld_i32)
#else
#define OCCL_DEV_LOOPS_FLD(X)
#endif
#define OCCL_DEV_LOOPS(X)                                                                                              \
    OCCL_DEV_LOOPS_WIDTH(X, 8) OCCL_DEV_LOOPS_WIDTH(X, 16) OCCL_DEV_LOOPS_WIDTH(X, 32) OCCL_DEV_LOOPS_WIDTH(X, 64)     \
    X(sumf32, float) X(prodf32, float) X(minf32, float) X(maxf32, float) X(prodc32, occl_dev_c32_t)                    \
    X(sumf64, double) X(prodf64, double) X(minf64, double) X(maxf64, double) X(prodc64, occl_dev_c64_t)                \
    OCCL_DEV_LOOPS_PAIR(X, f32_i32) OCCL_DEV_LOOPS_PAIR(X, f64_i32) OCCL_DEV_LOOPS_PAIR(X, i64_i32)                    \
    OCCL_DEV_LOOPS_PAIR(X, i16_i32) OCCL_DEV_LOOPS_PAIR(X, i32_i32) OCCL_DEV_LOOPS_PAIR(X, f32_f32)                    \
    OCCL_DEV_LOOPS_PAIR(X, f64_f64) OCCL_DEV_LOOPS_FLD(X)
#define OCCL_DEV_LOOPS_HALF(H)                                                                                         \
    H(sumf16, f16) H(prodf16, f16) H(minf16, f16) H(maxf16, f16)                                                       \
    H(sumbf16, bf16) H(prodbf16, bf16) H(minbf16, bf16) H(maxbf16, bf16)

/* Which loop does what: X(type, op, loop). One row for each pair that occl_dev_op_valid allows. */
#define OCCL_DEV_MAP_LOGICAL(X, T, w) X(T, LAND, land##w) X(T, LOR, lor##w) X(T, LXOR, lxor##w)
#define OCCL_DEV_MAP_BITWISE(X, T, w) X(T, BAND, band##w) X(T, BOR, bor##w) X(T, BXOR, bxor##w)
#define OCCL_DEV_MAP_INT(X, T, w, s)                                                                                   \
    X(T, SUM, sum##w) X(T, PROD, prod##w) X(T, MIN, min##s##w) X(T, MAX, max##s##w)                                    \
    OCCL_DEV_MAP_LOGICAL(X, T, w) OCCL_DEV_MAP_BITWISE(X, T, w)
#define OCCL_DEV_MAP_FLOAT(X, T, n) X(T, SUM, sum##n) X(T, PROD, prod##n) X(T, MIN, min##n) X(T, MAX, max##n)
#define OCCL_DEV_MAP_PAIR(X, T, p) X(T, MINLOC, minloc_##p) X(T, MAXLOC, maxloc_##p)
#if OCCL_HAVE_FLD
#define OCCL_DEV_MAP_FLD(X)                                                                                            \
    OCCL_DEV_MAP_FLOAT(X, FLD, fld) X(CLD, SUM, sumfld) X(CLD, PROD, prodcld) OCCL_DEV_MAP_PAIR(X, FLD_I32, fld_i32)
#else
#define OCCL_DEV_MAP_FLD(X)
#endif
#define OCCL_DEV_MAP(X)                                                                                                \
    OCCL_DEV_MAP_INT(X, I8, 8, i) OCCL_DEV_MAP_INT(X, U8, 8, u) OCCL_DEV_MAP_INT(X, I16, 16, i)                        \
    OCCL_DEV_MAP_INT(X, U16, 16, u) OCCL_DEV_MAP_INT(X, I32, 32, i) OCCL_DEV_MAP_INT(X, U32, 32, u)                    \
    OCCL_DEV_MAP_INT(X, I64, 64, i) OCCL_DEV_MAP_INT(X, U64, 64, u)                                                    \
    OCCL_DEV_MAP_FLOAT(X, F32, f32) OCCL_DEV_MAP_FLOAT(X, F64, f64)                                                    \
    OCCL_DEV_MAP_FLOAT(X, F16, f16) OCCL_DEV_MAP_FLOAT(X, BF16, bf16)                                                  \
    X(C32, SUM, sumf32) X(C32, PROD, prodc32) X(C64, SUM, sumf64) X(C64, PROD, prodc64)                                \
    OCCL_DEV_MAP_LOGICAL(X, BOOL, 8) OCCL_DEV_MAP_LOGICAL(X, L32, 32) OCCL_DEV_MAP_BITWISE(X, BYTE, 8)                 \
    OCCL_DEV_MAP_PAIR(X, F32_I32, f32_i32) OCCL_DEV_MAP_PAIR(X, F64_I32, f64_i32)                                      \
    OCCL_DEV_MAP_PAIR(X, I64_I32, i64_i32) OCCL_DEV_MAP_PAIR(X, I16_I32, i16_i32)                                      \
    OCCL_DEV_MAP_PAIR(X, I32_I32, i32_i32) OCCL_DEV_MAP_PAIR(X, F32_F32, f32_f32)                                      \
    OCCL_DEV_MAP_PAIR(X, F64_F64, f64_f64) OCCL_DEV_MAP_FLD(X)

#if !OCCL_CUDA
/* ---- copy and reduce, host body ------------------------------------------------------------------------------------ */

/* This lane's part of n. With one lane it is all of it, and a compile-time fact. */
OCCL_FN void occl_dev_part(occl_lanes_t l, uint64_t n, uint64_t *first, uint64_t *count)
{
    uint64_t k = occl_nlanes(l), i = occl_lane(l), each = n / k, rest = n % k;

    *first = i * each + (i < rest ? i : rest);
    *count = each + (i < rest);
}

OCCL_FN void occl_dev_copy(occl_lanes_t l, void *dst, const void *src, uint64_t bytes)
{
    uint64_t first, count;

    if (dst == src)
        return;
    occl_dev_part(l, bytes, &first, &count);
    char *d = (char *)dst + first;
    const char *s = (const char *)src + first;
    switch (count) {
    case 0: return;
    case 8: __builtin_memcpy(d, s, 8); return;
    case 16: __builtin_memcpy(d, s, 16); return;
    case 32: __builtin_memcpy(d, s, 32); return;
    case 64: __builtin_memcpy(d, s, 64); return;
    default: __builtin_memcpy(d, s, count); return;
    }
}

/*
 * Elements at any address: with alignment 1 gcc emits the unaligned vector accesses that it would emit anyway, as it never
 * knows more than the element's own alignment. may_alias: buffers have whatever type their owner gave them.
 */
#define OCCL_DEV_ANYWHERE(T) struct __attribute__((packed, may_alias)) { T v; }

/* dst may be the very address of a source, else they are apart: no iteration depends on another. */
#if defined(__clang__)
#define OCCL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define OCCL_IVDEP _Pragma("GCC ivdep")
#endif

/* The loops are compiled for the plain processor and, where there is one, for AVX2; the processor decides at run time. */
#ifndef OCCL_DEV_AVX2
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__AVX2__)
#define OCCL_DEV_AVX2 1
#else
#define OCCL_DEV_AVX2 0
#endif
#endif
#if OCCL_DEV_AVX2
#define OCCL_DEV_VARIANTS 2
#define OCCL_DEV_BOTH(M, ...) M(0, , __VA_ARGS__) M(1, __attribute__((target("avx2"))), __VA_ARGS__)
/* AVX2 pays from a few vectors on; below, its longer tails lose what it wins. */
OCCL_FN uint32_t occl_dev_variant(uint64_t bytes) { return bytes >= 128 && __builtin_cpu_supports("avx2") ? 1 : 0; }
#else
#define OCCL_DEV_VARIANTS 1
#define OCCL_DEV_BOTH(M, ...) M(0, , __VA_ARGS__)
OCCL_FN uint32_t occl_dev_variant(uint64_t bytes) { (void)bytes; return 0; }
#endif

/* d[i] = x[i] op y[i], in the loop's own units. */
typedef void occl_dev_loop_t(void *d, const void *x, const void *y, uint64_t n);

#define OCCL_DEV_LOOP(variant, TARGET, loop, op, D, A, B, STORE, LOAD_A, LOAD_B)                                       \
    TARGET static void occl_dev_##loop##_##variant(void *dst, const void *x, const void *y, uint64_t n)                \
    {                                                                                                                  \
        OCCL_DEV_ANYWHERE(D) *d = dst;                                                                                 \
        const OCCL_DEV_ANYWHERE(A) *a = x;                                                                             \
        const OCCL_DEV_ANYWHERE(B) *b = y;                                                                             \
        OCCL_IVDEP                                                                                                     \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            d[i].v = STORE(occl_dev_op_##op(LOAD_A(a[i].v), LOAD_B(b[i].v)));                                          \
    }
/* As they are. */
#define X(name, T) OCCL_DEV_BOTH(OCCL_DEV_LOOP, loop_##name, name, T, T, T, , , )
OCCL_DEV_LOOPS(X)
#undef X
/* In fp32: two sources in one go, or the first two into the accumulator, the next onto it, the last one out of it. */
#define OCCL_DEV_HALF(name, kind)                                                                                      \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, loop_##name, name, uint16_t, uint16_t, uint16_t,                                      \
                  occl_dev_round_##kind, occl_dev_load_##kind, occl_dev_load_##kind)                                   \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, first_##name, name, float, uint16_t, uint16_t,                                        \
                  , occl_dev_load_##kind, occl_dev_load_##kind)                                                        \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, next_##name, name, float, float, uint16_t, , , occl_dev_load_##kind)                  \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, last_##name, name, uint16_t, float, uint16_t,                                         \
                  occl_dev_round_##kind, , occl_dev_load_##kind)
OCCL_DEV_LOOPS_HALF(OCCL_DEV_HALF)
#undef OCCL_DEV_HALF
#undef OCCL_DEV_LOOP

/* How to fold with one loop, over any number of sources. `unit` is what the loop counts, `held` the same in the tile. */
typedef struct {
    occl_dev_loop_t *two, *first, *next, *last;
    uint32_t unit, held;
} occl_dev_fold_t;

#define OCCL_DEV_FOLD(v, TARGET, name, T)                                                                              \
    static const occl_dev_fold_t occl_dev_fold_##name##_##v = {                                                        \
        occl_dev_loop_##name##_##v, occl_dev_loop_##name##_##v, occl_dev_loop_##name##_##v,                            \
        occl_dev_loop_##name##_##v, sizeof(T), sizeof(T)};
#define X(name, T) OCCL_DEV_BOTH(OCCL_DEV_FOLD, name, T)
OCCL_DEV_LOOPS(X)
#undef X
#undef OCCL_DEV_FOLD
#define OCCL_DEV_FOLD(v, TARGET, name)                                                                                 \
    static const occl_dev_fold_t occl_dev_fold_##name##_##v = {                                                        \
        occl_dev_loop_##name##_##v, occl_dev_first_##name##_##v, occl_dev_next_##name##_##v,                           \
        occl_dev_last_##name##_##v, sizeof(uint16_t), sizeof(float)};
#define H(name, kind) OCCL_DEV_BOTH(OCCL_DEV_FOLD, name)
OCCL_DEV_LOOPS_HALF(H)
#undef H
#undef OCCL_DEV_FOLD

static const occl_dev_fold_t *const occl_dev_folds[OCCL_DEV_VARIANTS][OCCL_T_COUNT][OCCL_OP_COUNT] = {
#define X(T, O, name) [OCCL_T_##T][OCCL_OP_##O] = &occl_dev_fold_##name##_0,
    {OCCL_DEV_MAP(X)},
#undef X
#if OCCL_DEV_AVX2
#define X(T, O, name) [OCCL_T_##T][OCCL_OP_##O] = &occl_dev_fold_##name##_1,
    {OCCL_DEV_MAP(X)},
#undef X
#endif
};

/*
 * More than two sources: through a tile that stays in the first-level cache. dst is written only when all sources of the
 * tile have been read, so it may be any one of them.
 */
#ifndef OCCL_DEV_TILE
#define OCCL_DEV_TILE 4096
#endif
OCCL_FN_BIG void occl_dev_reduce_tiles(const occl_dev_fold_t *f, char *dst, const void *const *src, uint32_t nsrc,
                                       uint64_t offset, uint64_t n)
{
    char tile[OCCL_DEV_TILE] __attribute__((aligned(64)));
    uint64_t most = OCCL_DEV_TILE / f->held;

    while (n > 0) {
        uint64_t now = n < most ? n : most;
        f->first(tile, (const char *)src[0] + offset, (const char *)src[1] + offset, now);
        for (uint32_t s = 2; s + 1 < nsrc; s++)
            f->next(tile, tile, (const char *)src[s] + offset, now);
        f->last(dst + offset, tile, (const char *)src[nsrc - 1] + offset, now);
        offset += now * f->unit;
        n -= now;
    }
}

/* As occl_dev_reduce, with the compiled variant named. */
OCCL_FN void occl_dev_reduce_variant(occl_lanes_t l, uint32_t variant, uint32_t type, uint32_t op, void *dst,
                                     const void *const *src, uint32_t nsrc, uint64_t n)
{
    uint64_t first, count, bytes = occl_dev_type_bytes(type);
    const occl_dev_fold_t *f;

    if (nsrc == 1) {
        occl_dev_copy(l, dst, src[0], n * bytes);
        return;
    }
    if (!occl_dev_op_valid(op, type))
        return;
    occl_dev_part(l, n, &first, &count);
    f = occl_dev_folds[variant][type][op];
    first *= bytes;
    count = count * bytes / f->unit;
    if (nsrc == 2)
        f->two((char *)dst + first, (const char *)src[0] + first, (const char *)src[1] + first, count);
    else
        occl_dev_reduce_tiles(f, (char *)dst, src, nsrc, first, count);
}

OCCL_FN void occl_dev_reduce(occl_lanes_t l, uint32_t type, uint32_t op, void *dst, const void *const *src,
                             uint32_t nsrc, uint64_t n)
{
    occl_dev_reduce_variant(l, occl_dev_variant(n * occl_dev_type_bytes(type)), type, op, dst, src, nsrc, n);
}

#else
/* ---- copy and reduce, CUDA body ------------------------------------------------------------------------------------ */

/*
 * A loop is written over units: 16 bytes where all pointers agree about their alignment, one element where they do not. A
 * unit knows how to load, fold and store itself, and how many of a source a lane keeps in flight: as many as leave the
 * daemon 64 registers a thread, so that it shares its SM with the application.
 */
template <class K> struct occl_dev_unit_one {
    typedef typename K::elem raw;
    typedef typename K::acc acc;
    enum { size = sizeof(raw), ways = size > 8 ? 1 : 4 };
    static __device__ __forceinline__ acc start(raw v) { return K::load(v); }
    static __device__ __forceinline__ acc fold(acc a, raw v) { return K::op(a, K::load(v)); }
    static __device__ __forceinline__ raw store(acc a) { return K::store(a); }
};

/* 16 bytes, folded as they are: the accumulator stays packed, so that bytes do not take a register each. */
template <class K, bool half> struct occl_dev_unit_vec {
    typedef uint4 raw;
    typedef uint4 acc;
    typedef typename K::elem elem;
    enum { size = 16, ways = sizeof(elem) == 1 ? 1 : sizeof(elem) == 2 || sizeof(elem) > 8 ? 2 : 4 };
    union cast {
        uint4 v;
        elem e[16 / sizeof(elem)];
    };
    static __device__ __forceinline__ acc start(raw v) { return v; }
    static __device__ __forceinline__ acc fold(acc a, raw v)
    {
        cast x, y;
        x.v = a;
        y.v = v;
#pragma unroll
        for (unsigned i = 0; i < 16 / sizeof(elem); i++)
            x.e[i] = K::op(x.e[i], y.e[i]);
        return x.v;
    }
    static __device__ __forceinline__ raw store(acc a) { return a; }
};

/* 16 bytes of halves, folded as eight floats. */
template <class K> struct occl_dev_unit_vec<K, true> {
    typedef uint4 raw;
    struct acc {
        float f[8];
    };
    enum { size = 16, ways = 2 };
    static __device__ __forceinline__ float at(raw v, unsigned i)
    {
        uint32_t w = i / 2 == 0 ? v.x : i / 2 == 1 ? v.y : i / 2 == 2 ? v.z : v.w;
        return K::load((uint16_t)(w >> (i % 2 * 16)));
    }
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        return (uint32_t)K::store(lo) | (uint32_t)K::store(hi) << 16;
    }
    static __device__ __forceinline__ acc start(raw v)
    {
        acc a;
#pragma unroll
        for (unsigned i = 0; i < 8; i++)
            a.f[i] = at(v, i);
        return a;
    }
    static __device__ __forceinline__ acc fold(acc a, raw v)
    {
#pragma unroll
        for (unsigned i = 0; i < 8; i++)
            a.f[i] = K::op(a.f[i], at(v, i));
        return a;
    }
    static __device__ __forceinline__ raw store(acc a)
    {
        return make_uint4(pack(a.f[0], a.f[1]), pack(a.f[2], a.f[3]), pack(a.f[4], a.f[5]), pack(a.f[6], a.f[7]));
    }
};

/* `count` units from byte `offset` on, all aligned. */
template <class U>
static __device__ __forceinline__ void occl_dev_fold_units(occl_lanes_t l, char *dst, const void *const *src,
                                                           uint32_t nsrc, uint32_t offset, uint64_t count)
{
    typedef typename U::raw raw;
    const uint32_t k = occl_nlanes(l);

    for (uint64_t i = occl_lane(l); i < count; i += k * U::ways) {
        const uint64_t at = offset + i * U::size;
        typename U::acc a[U::ways];
        raw v[U::ways];

        for (uint32_t s = 0; s < nsrc; s++) {
            const raw *p = (const raw *)((const char *)src[s] + at);
#pragma unroll
            for (unsigned w = 0; w < U::ways; w++)
                if (w == 0 || i + w * k < count)
                    v[w] = p[w * k];
#pragma unroll
            for (unsigned w = 0; w < U::ways; w++)
                a[w] = s == 0 ? U::start(v[w]) : U::fold(a[w], v[w]);
        }
#pragma unroll
        for (unsigned w = 0; w < U::ways; w++)
            if (w == 0 || i + w * k < count)
                ((raw *)(dst + at))[w * k] = U::store(a[w]);
    }
}

/* Not inlined: each loop gets its own registers, and the daemon only a call. */
template <class K>
static __device__ __noinline__ void occl_dev_fold(occl_lanes_t l, char *dst, const void *const *src, uint32_t nsrc,
                                                  uint64_t n)
{
    typedef typename K::elem elem;
    const uint32_t low = (uint32_t)(uintptr_t)dst, head = (0u - low) % 16;
    uint32_t differ = 0, before = 0;
    uint64_t done = 0;

    for (uint32_t s = 0; s < nsrc; s++)
        differ |= (uint32_t)(uintptr_t)src[s] ^ low;
    if ((differ | low) % alignof(elem) == 0) {
        if (differ % 16 == 0 && head % sizeof(elem) == 0 && head <= n * sizeof(elem)) {
            uint64_t vecs = (n * sizeof(elem) - head) / 16;
            occl_dev_fold_units<occl_dev_unit_vec<K, (sizeof(typename K::acc) > sizeof(elem))> >(l, dst, src, nsrc, head,
                                                                                               vecs);
            before = head / sizeof(elem);
            done = vecs * (16 / sizeof(elem));
        } else {
            occl_dev_fold_units<occl_dev_unit_one<K> >(l, dst, src, nsrc, 0, n);
            done = n;
        }
    }
    /* What is left: less than 16 bytes at either end, or everything where not even elements are aligned. */
    for (uint64_t i = occl_lane(l); i < n - done; i += occl_nlanes(l)) {
        const uint64_t at = (i < before ? i : i + done) * sizeof(elem);
        typename K::acc a;
        elem v;

        __builtin_memcpy(&v, (const char *)src[0] + at, sizeof(v));
        a = K::load(v);
        for (uint32_t s = 1; s < nsrc; s++) {
            __builtin_memcpy(&v, (const char *)src[s] + at, sizeof(v));
            a = K::op(a, K::load(v));
        }
        v = K::store(a);
        __builtin_memcpy(dst + at, &v, sizeof(v));
    }
}

#define X(name, T)                                                                                                     \
    struct occl_dev_k_##name {                                                                                         \
        typedef T elem;                                                                                                \
        typedef T acc;                                                                                                 \
        static __device__ __forceinline__ T load(T v) { return v; }                                                    \
        static __device__ __forceinline__ T store(T v) { return v; }                                                   \
        static __device__ __forceinline__ T op(T a, T b) { return occl_dev_op_##name(a, b); }                          \
    };
OCCL_DEV_LOOPS(X)
#undef X
#define H(name, kind)                                                                                                  \
    struct occl_dev_k_##name {                                                                                         \
        typedef uint16_t elem;                                                                                         \
        typedef float acc;                                                                                             \
        static __device__ __forceinline__ float load(uint16_t v) { return occl_dev_load_##kind(v); }                   \
        static __device__ __forceinline__ uint16_t store(float v) { return occl_dev_round_##kind(v); }                 \
        static __device__ __forceinline__ float op(float a, float b) { return occl_dev_op_##name(a, b); }              \
    };
OCCL_DEV_LOOPS_HALF(H)
#undef H

template <class T>
static __device__ __forceinline__ void occl_dev_copy_units(occl_lanes_t l, char *dst, const char *src, uint64_t count)
{
    enum { ways = sizeof(T) < 16 ? 4 : 8 };
    const uint32_t k = occl_nlanes(l);

    for (uint64_t i = occl_lane(l); i < count; i += k * ways) {
        T *d = (T *)dst + i;
        const T *s = (const T *)src + i;
        T v[ways];

#pragma unroll
        for (unsigned w = 0; w < ways; w++)
            if (w == 0 || i + w * k < count)
                v[w] = s[w * k];
#pragma unroll
        for (unsigned w = 0; w < ways; w++)
            if (w == 0 || i + w * k < count)
                d[w * k] = v[w];
    }
}

/* In the widest unit in which both sides can be aligned; what is left over at the ends goes byte by byte. */
OCCL_FN_BIG void occl_dev_copy(occl_lanes_t l, void *dst, const void *src, uint64_t bytes)
{
    char *d = (char *)dst;
    const char *s = (const char *)src;
    const uint32_t low = (uint32_t)(uintptr_t)dst, differ = low ^ (uint32_t)(uintptr_t)src;
    const uint32_t unit = differ % 16 == 0 ? 16 : differ % 4 == 0 ? 4 : 1;
    uint32_t head = (0u - low) % unit;
    uint64_t mid;

    if (dst == src)
        return;
    if (head > bytes)
        head = (uint32_t)bytes;
    mid = (bytes - head) / unit * unit;
    if (unit == 16)
        occl_dev_copy_units<uint4>(l, d + head, s + head, mid / 16);
    else if (unit == 4)
        occl_dev_copy_units<uint32_t>(l, d + head, s + head, mid / 4);
    else
        occl_dev_copy_units<uint8_t>(l, d + head, s + head, mid);
    /* Head and tail together are less than two units. */
    for (uint32_t i = occl_lane(l), rest = (uint32_t)(bytes - mid); i < rest; i += occl_nlanes(l)) {
        uint64_t at = i < head ? i : mid + i;
        d[at] = s[at];
    }
}

OCCL_FN_BIG void occl_dev_reduce(occl_lanes_t l, uint32_t type, uint32_t op, void *dst, const void *const *src,
                                 uint32_t nsrc, uint64_t n)
{
    if (nsrc == 1) {
        occl_dev_copy(l, dst, src[0], n * occl_dev_type_bytes(type));
        return;
    }
    switch (type << 4 | op) {
#define X(T, O, name)                                                                                                  \
    case OCCL_T_##T << 4 | OCCL_OP_##O:                                                                                \
        occl_dev_fold<occl_dev_k_##name>(l, (char *)dst, src, nsrc,                                                    \
                                         n * (occl_dev_type_bytes(OCCL_T_##T) / sizeof(occl_dev_k_##name::elem)));     \
        return;
        OCCL_DEV_MAP(X)
#undef X
    }
}

#endif

/* ---- data-with-flag words: one text ----------------------------------------------------------------------------- */

/*
 * A payload of `bytes` in words of occl_dev_atomic.h, each with the flag; a slot is twice its payload on either side. The
 * slot is 16-byte aligned, has one writer, and never held this flag before. For short messages: there is no fence to pay.
 */
OCCL_FN uint64_t occl_dev_words_bytes(uint64_t bytes) { return ((bytes + 7) & ~(uint64_t)7) * 2; }

OCCL_FN void occl_dev_words_put(occl_lanes_t l, void *slot, const void *src, uint64_t bytes, uint32_t flag)
{
    const uint32_t size = sizeof(occl_word_t), aligned = (uintptr_t)src % size == 0;
    uint64_t at = (uint64_t)occl_lane(l) * size;

#if OCCL_WORD_PAIRS /* and so one lane */
    const occl_word_pair_t flags = {flag, flag, flag, flag};
    for (; at + 16 <= bytes; at += 16) {
        occl_word_pair_t v;
        __builtin_memcpy(&v, (const char *)src + at, 16);
        occl_store_word_pair((char *)slot + 2 * at, __builtin_shufflevector(v, flags, 0, 4, 1, 5));
        occl_store_word_pair((char *)slot + 2 * at + 16, __builtin_shufflevector(v, flags, 2, 6, 3, 7));
    }
#endif
    for (; at < bytes; at += (uint64_t)occl_nlanes(l) * size) {
        const char *s = (const char *)src + at;
        occl_word_t v = 0;
        if (aligned && at + size <= bytes) {
            __builtin_memcpy(&v, __builtin_assume_aligned(s, sizeof(v)), sizeof(v));
        } else if (at + size <= bytes) {
            __builtin_memcpy(&v, s, sizeof(v));
        } else {
            for (uint32_t b = 0; at + b < bytes; b++)
                v |= (occl_word_t)(uint8_t)s[b] << (8 * b);
        }
        occl_store_word((char *)slot + 2 * at, v, flag);
    }
}

/*
 * True on all lanes when all words of the payload have arrived: each lane looks at its own words, then the block votes.
 * Writes nothing.
 */
OCCL_FN uint32_t occl_dev_words_ready(occl_lanes_t l, const void *slot, uint64_t bytes, uint32_t flag)
{
    const uint32_t size = sizeof(occl_word_t);
    uint64_t at = (uint64_t)occl_lane(l) * size;
    occl_word_t v;
    uint32_t ok = 1;

#if OCCL_WORD_PAIRS
    if (bytes >= 16) {
        /* The one that is written last is the one to poll; the others are then looked at without a branch for each. */
        if (occl_load_word((const char *)slot + 2 * ((bytes - 1) & ~(uint64_t)3), &v) != flag)
            return 0;
        const occl_word_pair_t flags = {flag, flag, flag, flag};
        occl_word_pair_t even = {0, 0, 0, 0}, odd = even;
        for (; at + 16 <= bytes; at += 16) {
            even |= occl_load_word_pair((const char *)slot + 2 * at) ^ flags;
            odd |= occl_load_word_pair((const char *)slot + 2 * at + 16) ^ flags;
        }
        even |= odd;
        ok = (even[1] | even[3]) == 0;
    }
#endif
    for (; at < bytes && ok; at += (uint64_t)occl_nlanes(l) * size) {
        ok = occl_load_word((const char *)slot + 2 * at, &v) == flag;
    }
    return occl_all(l, ok);
}

/* After occl_dev_words_ready said yes. Each lane takes the words that it looked at itself: nothing need order the lanes. */
OCCL_FN void occl_dev_words_get(occl_lanes_t l, void *dst, const void *slot, uint64_t bytes)
{
    const uint32_t size = sizeof(occl_word_t), aligned = (uintptr_t)dst % size == 0;
    uint64_t at = (uint64_t)occl_lane(l) * size;

#if OCCL_WORD_PAIRS
    for (; at + 16 <= bytes; at += 16) {
        occl_word_pair_t a = occl_load_word_pair((const char *)slot + 2 * at);
        occl_word_pair_t b = occl_load_word_pair((const char *)slot + 2 * at + 16);
        a = __builtin_shufflevector(a, b, 0, 2, 4, 6);
        __builtin_memcpy((char *)dst + at, &a, 16);
    }
#endif
    for (; at < bytes; at += (uint64_t)occl_nlanes(l) * size) {
        char *d = (char *)dst + at;
        occl_word_t v;
        (void)occl_load_word((const char *)slot + 2 * at, &v);
        if (aligned && at + size <= bytes) {
            __builtin_memcpy(__builtin_assume_aligned(d, sizeof(v)), &v, sizeof(v));
        } else if (at + size <= bytes) {
            __builtin_memcpy(d, &v, sizeof(v));
        } else {
            for (uint32_t b = 0; at + b < bytes; b++, v >>= 8)
                d[b] = (char)(uint8_t)v;
        }
    }
}

#endif
