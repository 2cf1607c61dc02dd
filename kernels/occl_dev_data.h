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
 *   - F16, BF16, E4M3 and E5M2 are folded in fp32 over all sources and rounded once, to nearest even. A NaN stays a NaN. What is
 *     too large becomes infinity; E4M3 has none: NaN.
 *   - AVG is the sum, divided by the number of sources before it is rounded; of integers the sum wraps and the quotient is cut
 *     towards zero. PREMUL multiplies each source by a scalar of the type, in the arithmetic of the fold, and adds up. Both are for
 *     folds that have all sources at once.
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
/* Numbers of 128 bits: Fortran's REAL(16) and INTEGER(16) */
#if defined(__SIZEOF_FLOAT128__) && defined(__SIZEOF_INT128__) && !OCCL_CUDA
#define OCCL_HAVE_128 1
#else
#define OCCL_HAVE_128 0
#endif

/* ---- what may be asked ------------------------------------------------------------------------------------------- */

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

/* Types that only processors have arithmetic for */
OCCL_FN uint32_t occl_dev_type_is_host(uint32_t type)
{
    return type == OCCL_T_FLD || type == OCCL_T_CLD || type == OCCL_T_FLD_I32 || type == OCCL_T_F128 || type == OCCL_T_C128 ||
           type == OCCL_T_I128;
}

/* MPI's table of which predefined operation fits which type, one bit an operation. */
OCCL_FN uint32_t occl_dev_type_ops(uint32_t type)
{
#define OCCL_BIT(op) (1u << OCCL_OP_##op)
    const uint32_t logical = OCCL_BIT(LAND) | OCCL_BIT(LOR) | OCCL_BIT(LXOR);
    const uint32_t bitwise = OCCL_BIT(BAND) | OCCL_BIT(BOR) | OCCL_BIT(BXOR);
    const uint32_t field = OCCL_BIT(SUM) | OCCL_BIT(PROD) | OCCL_BIT(AVG) | OCCL_BIT(PREMUL);
    const uint32_t ordered = field | OCCL_BIT(MIN) | OCCL_BIT(MAX);
    const uint32_t pair = OCCL_BIT(MINLOC) | OCCL_BIT(MAXLOC);
#undef OCCL_BIT
    switch (type) {
    case OCCL_T_I8: case OCCL_T_U8: case OCCL_T_I16: case OCCL_T_U16:
    case OCCL_T_I32: case OCCL_T_U32: case OCCL_T_I64: case OCCL_T_U64:
        return ordered | logical | bitwise;
    case OCCL_T_I128:
        return OCCL_HAVE_128 ? ordered | logical | bitwise : 0;
    case OCCL_T_F32: case OCCL_T_F64: case OCCL_T_F16: case OCCL_T_BF16: case OCCL_T_E4M3: case OCCL_T_E5M2:
        return ordered;
    case OCCL_T_F128:
        return OCCL_HAVE_128 ? ordered : 0;
    case OCCL_T_C128:
        return OCCL_HAVE_128 ? field : 0;
    case OCCL_T_FLD:
        return OCCL_HAVE_FLD ? ordered : 0;
    case OCCL_T_C32: case OCCL_T_C64:
        return field;
    case OCCL_T_CLD:
        return OCCL_HAVE_FLD ? field : 0;
    case OCCL_T_BOOL: case OCCL_T_L8: case OCCL_T_L16: case OCCL_T_L32: case OCCL_T_L64:
        return logical;
    case OCCL_T_BYTE:
        return bitwise;
    case OCCL_T_F32_I32: case OCCL_T_F64_I32: case OCCL_T_I64_I32: case OCCL_T_I16_I32:
    case OCCL_T_I32_I32: case OCCL_T_I64_I64: case OCCL_T_F32_F32: case OCCL_T_F64_F64:
        return pair;
    case OCCL_T_FLD_I32:
        return OCCL_HAVE_FLD ? pair : 0;
    }
    return 0;
}

/* Whether this body can reduce `type` with `op`. long double and what has 128 bits are refused on CUDA. */
OCCL_FN uint32_t occl_dev_op_valid(uint32_t op, uint32_t type)
{
    return op < OCCL_OP_COUNT && ((occl_dev_type_ops(type) >> op) & 1u);
}

/* ---- what an operation means ------------------------------------------------------------------------------------- */

typedef struct { float re, im; } occl_dev_c32_t;
typedef struct { double re, im; } occl_dev_c64_t;
typedef struct { float v; int32_t k; } occl_dev_f32_i32_t;
typedef struct { double v; int32_t k; } occl_dev_f64_i32_t;
typedef struct { int64_t v; int32_t k; } occl_dev_i64_i32_t;
typedef struct { int16_t v; int32_t k; } occl_dev_i16_i32_t;
typedef struct { int32_t v; int32_t k; } occl_dev_i32_i32_t;
typedef struct { int64_t v; int64_t k; } occl_dev_i64_i64_t;
typedef struct { float v, k; } occl_dev_f32_f32_t;
typedef struct { double v, k; } occl_dev_f64_f64_t;
OCCL_ASSERT_STATIC(sizeof(occl_dev_f64_i32_t) == 16 && sizeof(occl_dev_i16_i32_t) == 8, pairs_have_the_layout_of_c);
#if OCCL_HAVE_FLD
typedef long double occl_dev_fld_t;
typedef struct { long double re, im; } occl_dev_cld_t;
typedef struct { long double v; int32_t k; } occl_dev_fld_i32_t;
#endif
#if OCCL_HAVE_128
typedef __float128 occl_dev_f128_t;
typedef struct { __float128 re, im; } occl_dev_c128_t;
typedef __int128 int128_t;
typedef unsigned __int128 uint128_t;
#endif

/* The bits of a float. A union is the one way to say it that both compilers take and optimise to nothing. */
typedef union { float f; uint32_t u; } occl_dev_pun32_t;
typedef union { double f; uint64_t u; } occl_dev_pun64_t;
OCCL_FN uint32_t occl_dev_bits_f32(float f) { occl_dev_pun32_t p; p.f = f; return p.u; }
OCCL_FN float occl_dev_from_f32(uint32_t u) { occl_dev_pun32_t p; p.u = u; return p.f; }
OCCL_FN uint64_t occl_dev_bits_f64(double f) { occl_dev_pun64_t p; p.f = f; return p.u; }
OCCL_FN double occl_dev_from_f64(uint64_t u) { occl_dev_pun64_t p; p.u = u; return p.f; }

#define OCCL_MASK(cond) (0u - (uint32_t)(cond))
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
#endif

/*
 * Floats of 8 bits (Open Compute Project's OFP8), one text for both bodies. E5M2 is the upper half of a float16. E4M3 has no infinity,
 * and one NaN of each sign where others have two binades of them. Subnormals go through the adder, as above: `m` units of the
 * float whose last place is theirs.
 */
OCCL_FN float occl_dev_load_e4m3(uint8_t h)
{
    uint32_t sign = ((uint32_t)h & 0x80u) << 24, m = h & 0x7fu;
    uint32_t nan = OCCL_MASK(m == 0x7fu), tiny = OCCL_MASK(m < 0x08u);
    uint32_t normal = ((m << 20) + (120u << 23)) | (nan & 0x7fc00000u);
    uint32_t subnormal = occl_dev_bits_f32(occl_dev_from_f32(0x46800000u + m) - 16384.0f);
    return occl_dev_from_f32(sign | (normal & ~tiny) | (subnormal & tiny));
}
OCCL_FN uint8_t occl_dev_round_e4m3(float f)
{
    uint32_t u = occl_dev_bits_f32(f), a = u & 0x7fffffffu;
    uint32_t huge = OCCL_MASK(a > 0x43e80000u), tiny = OCCL_MASK(a < 0x3c800000u); /* above 464: not a number; below 2^-6 */
    uint32_t normal = (a - (120u << 23) + 0x7ffffu + ((a >> 20) & 1u)) >> 20;
    uint32_t subnormal = occl_dev_bits_f32(occl_dev_from_f32(a & tiny) + 16384.0f) - 0x46800000u;
    uint32_t h = (normal & ~(huge | tiny)) | (subnormal & tiny) | (huge & 0x7fu);
    return (uint8_t)((u >> 24 & 0x80u) | h);
}
OCCL_FN float occl_dev_load_e5m2(uint8_t h)
{
    uint32_t sign = ((uint32_t)h & 0x80u) << 24, m = h & 0x7fu;
    uint32_t special = OCCL_MASK(m >= 0x7cu), tiny = OCCL_MASK(m < 0x04u);
    uint32_t normal = (m << 21) + (112u << 23) + (special & (112u << 23));
    uint32_t subnormal = occl_dev_bits_f32(occl_dev_from_f32(0x43000000u + m) - 128.0f);
    return occl_dev_from_f32(sign | (normal & ~tiny) | (subnormal & tiny));
}
OCCL_FN uint8_t occl_dev_round_e5m2(float f)
{
    uint32_t u = occl_dev_bits_f32(f), a = u & 0x7fffffffu;
    uint32_t nan = OCCL_MASK(a > 0x7f800000u), huge = OCCL_MASK(a >= 0x47700000u), tiny = OCCL_MASK(a < 0x38800000u);
    uint32_t normal = (a - (112u << 23) + 0xfffffu + ((a >> 21) & 1u)) >> 21;
    uint32_t subnormal = occl_dev_bits_f32(occl_dev_from_f32(a & tiny) + 128.0f) - 0x43000000u;
    uint32_t h = (normal & ~(huge | tiny)) | (subnormal & tiny) | (huge & 0x7cu) | (nan & 0x02u);
    return (uint8_t)((u >> 24 & 0x80u) | h);
}
#undef OCCL_MASK

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
#if OCCL_HAVE_128
OCCL_DEV_OPS_WIDTH(128, uint128_t)
#endif
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

/* The narrow types fold as float; only their loads and the last store differ. */
#define OCCL_DEV_OPS_NARROW(kind)                                                                                      \
    OCCL_FN float occl_dev_op_sum##kind(float a, float b) { return occl_dev_op_sumf32(a, b); }                         \
    OCCL_FN float occl_dev_op_prod##kind(float a, float b) { return occl_dev_op_prodf32(a, b); }                       \
    OCCL_FN float occl_dev_op_min##kind(float a, float b) { return occl_dev_op_minf32(a, b); }                         \
    OCCL_FN float occl_dev_op_max##kind(float a, float b) { return occl_dev_op_maxf32(a, b); }
OCCL_DEV_OPS_NARROW(f16)
OCCL_DEV_OPS_NARROW(bf16)
OCCL_DEV_OPS_NARROW(e4m3)
OCCL_DEV_OPS_NARROW(e5m2)
#undef OCCL_DEV_OPS_NARROW

/* Floats without a vector: long double and 128 bits */
#define OCCL_DEV_OPS_WIDE(f, c, SIGN)                                                                                  \
    OCCL_FN occl_dev_##f##_t occl_dev_op_sum##f(occl_dev_##f##_t a, occl_dev_##f##_t b) { return a + b; }              \
    OCCL_FN occl_dev_##f##_t occl_dev_op_prod##f(occl_dev_##f##_t a, occl_dev_##f##_t b) { return a * b; }             \
    OCCL_FN occl_dev_##f##_t occl_dev_op_min##f(occl_dev_##f##_t a, occl_dev_##f##_t b)                                \
    {                                                                                                                  \
        if (a == b)                                                                                                    \
            return SIGN(a) ? a : b;                                                                                    \
        return a < b || a != a ? a : b;                                                                                \
    }                                                                                                                  \
    OCCL_FN occl_dev_##f##_t occl_dev_op_max##f(occl_dev_##f##_t a, occl_dev_##f##_t b)                                \
    {                                                                                                                  \
        if (a == b)                                                                                                    \
            return SIGN(a) ? b : a;                                                                                    \
        return a > b || a != a ? a : b;                                                                                \
    }                                                                                                                  \
    OCCL_FN occl_dev_##c##_t occl_dev_op_prod##c(occl_dev_##c##_t a, occl_dev_##c##_t b)                               \
    {                                                                                                                  \
        occl_dev_##c##_t r;                                                                                            \
        r.re = a.re * b.re - a.im * b.im;                                                                              \
        r.im = a.re * b.im + a.im * b.re;                                                                              \
        return r;                                                                                                      \
    }
#if OCCL_HAVE_FLD
OCCL_DEV_OPS_WIDE(fld, cld, __builtin_signbitl)
#endif
#if OCCL_HAVE_128
OCCL_FN uint32_t occl_dev_sign_f128(__float128 f)
{
    union { __float128 f; uint64_t u[2]; } p;
    p.f = f;
    return (uint32_t)(p.u[__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__] >> 63);
}
OCCL_DEV_OPS_WIDE(f128, c128, occl_dev_sign_f128)
#endif
#undef OCCL_DEV_OPS_WIDE

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
OCCL_DEV_OPS_PAIR(i64_i64)
OCCL_DEV_OPS_PAIR(f32_f32)
OCCL_DEV_OPS_PAIR(f64_f64)
#if OCCL_HAVE_FLD
OCCL_DEV_OPS_PAIR(fld_i32)
#endif
#undef OCCL_DEV_OPS_PAIR

/*
 * The loops there are: X(name, element) folds elements as they are, H(name, kind, element) folds a narrow `kind` in fp32.
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
#if OCCL_HAVE_128
#define OCCL_DEV_LOOPS_128(X)                                                                                          \
    OCCL_DEV_LOOPS_WIDTH(X, 128) X(sumf128, occl_dev_f128_t) X(prodf128, occl_dev_f128_t) X(minf128, occl_dev_f128_t)  \
    X(maxf128, occl_dev_f128_t) X(prodc128, occl_dev_c128_t)
#else
#define OCCL_DEV_LOOPS_128(X)
#endif
#define OCCL_DEV_LOOPS(X)                                                                                              \
    OCCL_DEV_LOOPS_WIDTH(X, 8) OCCL_DEV_LOOPS_WIDTH(X, 16) OCCL_DEV_LOOPS_WIDTH(X, 32) OCCL_DEV_LOOPS_WIDTH(X, 64)     \
    X(sumf32, float) X(prodf32, float) X(minf32, float) X(maxf32, float) X(prodc32, occl_dev_c32_t)                    \
    X(sumf64, double) X(prodf64, double) X(minf64, double) X(maxf64, double) X(prodc64, occl_dev_c64_t)                \
    OCCL_DEV_LOOPS_PAIR(X, f32_i32) OCCL_DEV_LOOPS_PAIR(X, f64_i32) OCCL_DEV_LOOPS_PAIR(X, i64_i32)                    \
    OCCL_DEV_LOOPS_PAIR(X, i16_i32) OCCL_DEV_LOOPS_PAIR(X, i32_i32) OCCL_DEV_LOOPS_PAIR(X, i64_i64)                    \
    OCCL_DEV_LOOPS_PAIR(X, f32_f32) OCCL_DEV_LOOPS_PAIR(X, f64_f64) OCCL_DEV_LOOPS_FLD(X) OCCL_DEV_LOOPS_128(X)
#define OCCL_DEV_LOOPS_KIND(H, kind, T) H(sum##kind, kind, T) H(prod##kind, kind, T) H(min##kind, kind, T) H(max##kind, kind, T)
#define OCCL_DEV_LOOPS_NARROW(H)                                                                                       \
    OCCL_DEV_LOOPS_KIND(H, f16, uint16_t) OCCL_DEV_LOOPS_KIND(H, bf16, uint16_t)                                       \
    OCCL_DEV_LOOPS_KIND(H, e4m3, uint8_t) OCCL_DEV_LOOPS_KIND(H, e5m2, uint8_t)

/* Which loop does what: X(type, op, loop). One row for each pair that occl_dev_op_valid allows, but for AVG and PREMUL, which are
 * sums with something before or behind. */
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
#if OCCL_HAVE_128
#define OCCL_DEV_MAP_128(X)                                                                                            \
    OCCL_DEV_MAP_INT(X, I128, 128, i) OCCL_DEV_MAP_FLOAT(X, F128, f128) X(C128, SUM, sumf128) X(C128, PROD, prodc128)
#else
#define OCCL_DEV_MAP_128(X)
#endif
#define OCCL_DEV_MAP(X)                                                                                                \
    OCCL_DEV_MAP_INT(X, I8, 8, i) OCCL_DEV_MAP_INT(X, U8, 8, u) OCCL_DEV_MAP_INT(X, I16, 16, i)                        \
    OCCL_DEV_MAP_INT(X, U16, 16, u) OCCL_DEV_MAP_INT(X, I32, 32, i) OCCL_DEV_MAP_INT(X, U32, 32, u)                    \
    OCCL_DEV_MAP_INT(X, I64, 64, i) OCCL_DEV_MAP_INT(X, U64, 64, u)                                                    \
    OCCL_DEV_MAP_FLOAT(X, F32, f32) OCCL_DEV_MAP_FLOAT(X, F64, f64)                                                    \
    OCCL_DEV_MAP_FLOAT(X, F16, f16) OCCL_DEV_MAP_FLOAT(X, BF16, bf16)                                                  \
    OCCL_DEV_MAP_FLOAT(X, E4M3, e4m3) OCCL_DEV_MAP_FLOAT(X, E5M2, e5m2)                                                \
    X(C32, SUM, sumf32) X(C32, PROD, prodc32) X(C64, SUM, sumf64) X(C64, PROD, prodc64)                                \
    OCCL_DEV_MAP_LOGICAL(X, BOOL, 8) OCCL_DEV_MAP_LOGICAL(X, L8, 8) OCCL_DEV_MAP_LOGICAL(X, L16, 16)                   \
    OCCL_DEV_MAP_LOGICAL(X, L32, 32) OCCL_DEV_MAP_LOGICAL(X, L64, 64) OCCL_DEV_MAP_BITWISE(X, BYTE, 8)                 \
    OCCL_DEV_MAP_PAIR(X, F32_I32, f32_i32) OCCL_DEV_MAP_PAIR(X, F64_I32, f64_i32)                                      \
    OCCL_DEV_MAP_PAIR(X, I64_I32, i64_i32) OCCL_DEV_MAP_PAIR(X, I16_I32, i16_i32)                                      \
    OCCL_DEV_MAP_PAIR(X, I32_I32, i32_i32) OCCL_DEV_MAP_PAIR(X, I64_I64, i64_i64)                                      \
    OCCL_DEV_MAP_PAIR(X, F32_F32, f32_f32) OCCL_DEV_MAP_PAIR(X, F64_F64, f64_f64)                                      \
    OCCL_DEV_MAP_FLD(X) OCCL_DEV_MAP_128(X)

/* The types that AVG and PREMUL are for: A(type, sum, product, element of the product, element of the quotient, divisor) as they
 * are, N(type, kind, element) in fp32. */
#if OCCL_HAVE_FLD
#define OCCL_DEV_FIELD_FLD(A)                                                                                          \
    A(FLD, sumfld, prodfld, occl_dev_fld_t, occl_dev_fld_t, occl_dev_fld_t)                                            \
    A(CLD, sumfld, prodcld, occl_dev_cld_t, occl_dev_fld_t, occl_dev_fld_t)
#else
#define OCCL_DEV_FIELD_FLD(A)
#endif
#if OCCL_HAVE_128
#define OCCL_DEV_FIELD_128(A)                                                                                          \
    A(I128, sum128, prod128, uint128_t, int128_t, int128_t)                                                            \
    A(F128, sumf128, prodf128, occl_dev_f128_t, occl_dev_f128_t, occl_dev_f128_t)                                      \
    A(C128, sumf128, prodc128, occl_dev_c128_t, occl_dev_f128_t, occl_dev_f128_t)
#else
#define OCCL_DEV_FIELD_128(A)
#endif
#define OCCL_DEV_FIELD(A, N)                                                                                           \
    A(I8, sum8, prod8, uint8_t, int8_t, int64_t) A(U8, sum8, prod8, uint8_t, uint8_t, int64_t)                         \
    A(I16, sum16, prod16, uint16_t, int16_t, int64_t) A(U16, sum16, prod16, uint16_t, uint16_t, int64_t)               \
    A(I32, sum32, prod32, uint32_t, int32_t, int64_t) A(U32, sum32, prod32, uint32_t, uint32_t, uint32_t)              \
    A(I64, sum64, prod64, uint64_t, int64_t, int64_t) A(U64, sum64, prod64, uint64_t, uint64_t, uint64_t)              \
    A(F32, sumf32, prodf32, float, float, float) A(F64, sumf64, prodf64, double, double, double)                       \
    A(C32, sumf32, prodc32, occl_dev_c32_t, float, float) A(C64, sumf64, prodc64, occl_dev_c64_t, double, double)      \
    N(F16, f16, uint16_t) N(BF16, bf16, uint16_t) N(E4M3, e4m3, uint8_t) N(E5M2, e5m2, uint8_t)                        \
    OCCL_DEV_FIELD_FLD(A) OCCL_DEV_FIELD_128(A)

/*
 * Little data, 8 bytes of it a lane: *to is the fold of word 0 of `n` rows, `per` words apart. Only what is common is done here (0: it
 * was not): a lane that has one word to add takes longer through the loop above than the word took to come.
 */
#define OCCL_DEV_LITTLE(X, H)                                                                                          \
    X(F32, SUM, float, sumf32) X(F64, SUM, double, sumf64) H(BF16, SUM, bf16, sumbf16) H(F16, SUM, f16, sumf16)        \
    X(I32, SUM, uint32_t, sum32) X(I64, SUM, uint64_t, sum64) X(F32, MAX, float, maxf32) X(F32, MIN, float, minf32)    \
    X(I32, MAX, int32_t, maxi32) X(I32, MIN, int32_t, mini32)
OCCL_FN uint32_t occl_dev_is_little(uint32_t type, uint32_t op)
{
#define X(T, O, elem, name)                        \
    if (type == OCCL_T_##T && op == OCCL_OP_##O)   \
        return 1;
    OCCL_DEV_LITTLE(X, X)
#undef X
    return 0;
}

#if !OCCL_CUDA
/* ---- copy and reduce, host body ---------------------------------------------------------------------------------- */

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
    default: break;
    }
    /*
     * The C library leaves what is more than 2 KiB to `rep movsb`, and on some processors (AMD Zen, measured: doc/measurements.md) that
     * takes fifteen times as long where the destination is 1 to 31 bytes past the source, modulo 4096: so in pieces there.
     */
    if (((uintptr_t)d - (uintptr_t)s - 1) % 4096 < 31) {
        const uint64_t piece = 1024;
        for (; count > piece; count -= piece, d += piece, s += piece)
            __builtin_memcpy(d, s, piece);
    }
    __builtin_memcpy(d, s, count);
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
#define OCCL_DEV_NARROW(name, kind, T)                                                                                 \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, loop_##name, name, T, T, T,                                                           \
                  occl_dev_round_##kind, occl_dev_load_##kind, occl_dev_load_##kind)                                   \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, first_##name, name, float, T, T, , occl_dev_load_##kind, occl_dev_load_##kind)        \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, next_##name, name, float, float, T, , , occl_dev_load_##kind)                         \
    OCCL_DEV_BOTH(OCCL_DEV_LOOP, last_##name, name, T, float, T, occl_dev_round_##kind, , occl_dev_load_##kind)
OCCL_DEV_LOOPS_NARROW(OCCL_DEV_NARROW)
#undef OCCL_DEV_NARROW
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
#define OCCL_DEV_FOLD(v, TARGET, name, T)                                                                              \
    static const occl_dev_fold_t occl_dev_fold_##name##_##v = {                                                        \
        occl_dev_loop_##name##_##v, occl_dev_first_##name##_##v, occl_dev_next_##name##_##v,                           \
        occl_dev_last_##name##_##v, sizeof(T), sizeof(float)};
#define H(name, kind, T) OCCL_DEV_BOTH(OCCL_DEV_FOLD, name, T)
OCCL_DEV_LOOPS_NARROW(H)
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
 * AVG and PREMUL: d = x * scale, into what is held, by elements of the type; d = x / by, or x, out of what is held, by its units.
 */
typedef void occl_dev_times_t(void *d, const void *x, const void *scale, uint64_t n);
typedef void occl_dev_over_t(void *d, const void *x, uint32_t by, uint64_t n);
typedef struct {
    occl_dev_times_t *times;
    occl_dev_loop_t *add;  /* of what is held */
    occl_dev_over_t *over; /* by 0: not divided */
} occl_dev_field_t;

#define OCCL_DEV_FIELD_LOOPS(variant, TARGET, name, prod, D, S, P, B, Q, H, LOAD, STORE)                                     \
    TARGET static void occl_dev_times_##name##_##variant(void *dst, const void *x, const void *scale, uint64_t n)            \
    {                                                                                                                  \
        OCCL_DEV_ANYWHERE(P) *d = dst;                                                                                 \
        const OCCL_DEV_ANYWHERE(S) *a = x;                                                                             \
        const P s = LOAD(((const OCCL_DEV_ANYWHERE(S) *)scale)->v);                                                    \
        OCCL_IVDEP                                                                                                     \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            d[i].v = occl_dev_op_##prod(LOAD(a[i].v), s);                                                              \
    }                                                                                                                  \
    TARGET static void occl_dev_over_##name##_##variant(void *dst, const void *x, uint32_t by, uint64_t n)                   \
    {                                                                                                                  \
        OCCL_DEV_ANYWHERE(Q) *d = dst;                                                                                 \
        const OCCL_DEV_ANYWHERE(H) *a = x;                                                                             \
        const B k = (B)by;                                                                                             \
        if (by == 0) {                                                                                                 \
            OCCL_IVDEP                                                                                                 \
            for (uint64_t i = 0; i < n; i++)                                                                           \
                d[i].v = STORE(a[i].v);                                                                                \
            return;                                                                                                    \
        }                                                                                                              \
        OCCL_IVDEP                                                                                                     \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            d[i].v = STORE((H)(a[i].v / k));                                                                           \
    }
#define A(T, sum, prod, P, Q, B)                                                                                          \
    OCCL_DEV_BOTH(OCCL_DEV_FIELD_LOOPS, T, prod, P, P, P, B, Q, Q, , )
#define N(T, kind, E)                                                                                                  \
    OCCL_DEV_BOTH(OCCL_DEV_FIELD_LOOPS, T, prod##kind, E, E, float, float, E, float, occl_dev_load_##kind, occl_dev_round_##kind)
OCCL_DEV_FIELD(A, N)
#undef A
#undef N
#undef OCCL_DEV_FIELD_LOOPS

static const occl_dev_field_t occl_dev_fields[OCCL_DEV_VARIANTS][OCCL_T_COUNT] = {
#define A(T, sum, prod, P, Q, B) \
    [OCCL_T_##T] = {occl_dev_times_##T##_0, occl_dev_loop_##sum##_0, occl_dev_over_##T##_0},
#define N(T, kind, E) \
    [OCCL_T_##T] = {occl_dev_times_##T##_0, occl_dev_loop_sumf32_0, occl_dev_over_##T##_0},
    {OCCL_DEV_FIELD(A, N)},
#undef A
#undef N
#if OCCL_DEV_AVX2
#define A(T, sum, prod, P, Q, B) \
    [OCCL_T_##T] = {occl_dev_times_##T##_1, occl_dev_loop_##sum##_1, occl_dev_over_##T##_1},
#define N(T, kind, E) \
    [OCCL_T_##T] = {occl_dev_times_##T##_1, occl_dev_loop_sumf32_1, occl_dev_over_##T##_1},
    {OCCL_DEV_FIELD(A, N)},
#undef A
#undef N
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

/* AVG and PREMUL of n elements from `offset` bytes on, in tiles too, so that dst may be any source. */
OCCL_FN_BIG void occl_dev_reduce_whole(uint32_t variant, uint32_t type, const void *scale, char *dst, const void *const *src,
                                       uint32_t nsrc, uint64_t offset, uint64_t n)
{
    char tile[2][OCCL_DEV_TILE] __attribute__((aligned(64)));
    const occl_dev_field_t *f = &occl_dev_fields[variant][type];
    const occl_dev_fold_t *sum = occl_dev_folds[variant][type][OCCL_OP_SUM];
    const uint64_t bytes = occl_dev_type_bytes(type), held = bytes / sum->unit * sum->held, most = OCCL_DEV_TILE / held;

    while (n > 0) {
        const uint64_t now = n < most ? n : most, units = now * bytes / sum->unit;
        if (scale) {
            f->times(tile[0], (const char *)src[0] + offset, scale, now);
            for (uint32_t s = 1; s < nsrc; s++) {
                f->times(tile[1], (const char *)src[s] + offset, scale, now);
                f->add(tile[0], tile[0], tile[1], units);
            }
        } else {
            sum->first(tile[0], (const char *)src[0] + offset, (const char *)src[1] + offset, units);
            for (uint32_t s = 2; s < nsrc; s++)
                sum->next(tile[0], tile[0], (const char *)src[s] + offset, units);
        }
        f->over(dst + offset, tile[0], scale ? 0 : nsrc, units);
        offset += now * bytes;
        n -= now;
    }
}

/* As occl_dev_fold, with the compiled variant named. */
OCCL_FN void occl_dev_fold_variant(occl_lanes_t l, uint32_t variant, uint32_t type, uint32_t op, const void *scale, void *dst,
                                   const void *const *src, uint32_t nsrc, uint64_t n)
{
    uint64_t first, count, bytes = occl_dev_type_bytes(type);
    const occl_dev_fold_t *f;

    if (OCCL_OP_IS_WHOLE(op) && (nsrc > 1 || op == OCCL_OP_PREMUL)) {
        if (!occl_dev_op_valid(op, type) || (op == OCCL_OP_PREMUL && !scale))
            return;
        occl_dev_part(l, n, &first, &count);
        occl_dev_reduce_whole(variant, type, op == OCCL_OP_PREMUL ? scale : 0, (char *)dst, src, nsrc, first * bytes, count);
        return;
    }
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

/* scale: of PREMUL, else nobody reads it */
OCCL_FN void occl_dev_fold(occl_lanes_t l, uint32_t type, uint32_t op, const void *scale, void *dst, const void *const *src,
                           uint32_t nsrc, uint64_t n)
{
    occl_dev_fold_variant(l, occl_dev_variant(n * occl_dev_type_bytes(type)), type, op, scale, dst, src, nsrc, n);
}

OCCL_FN uint32_t occl_dev_fold_little(uint32_t type, uint32_t op, const uint64_t *row, uint32_t per, uint32_t n, uint64_t *to)
{
    uint64_t sum[2]; /* of halves: floats */
    const occl_dev_fold_t *f;
    if (!occl_dev_is_little(type, op))
        return 0;
    f = occl_dev_folds[0][type][op];
    if (n == 1)
        *to = *row;
    else if (n == 2)
        f->two(to, row, row + per, 8 / f->unit);
    else
        f->first(sum, row, row + per, 8 / f->unit);
    for (uint32_t p = 2; p + 1 < n; p++)
        f->next(sum, sum, row + p * per, 8 / f->unit);
    if (n > 2)
        f->last(to, sum, row + (n - 1) * per, 8 / f->unit);
    return 1;
}

#else
/* ---- copy and reduce, CUDA body ---------------------------------------------------------------------------------- */

/*
 * One loop for all types and operations: what differs is a switch inside it, which all lanes take alike and which costs
 * little beside the loads it waits for. A function for each would cost a call, around which ptxas saves up to a hundred
 * registers; an instance of the loop for each, minutes of compiling. So everything here is inlined, and needs 40 registers.
 *
 * A lane holds OCCL_WAYS units in 4 words each. A unit is as many bytes as can be aligned in all buffers at once, 16 at
 * best, or one element if that is more, in aligned pieces. Operations act on 16 bytes whatever is in them.
 */
#ifndef OCCL_WAYS
#define OCCL_WAYS 4 /* more would spill; where the architecture has it, what is much comes in bulk, below */
#endif
#define OCCL_COPY_WAYS 8
OCCL_FN void occl_dev_copy(occl_lanes_t l, void *dst, const void *src, uint64_t bytes);

/* Numbers of the loops; the narrow ones last, those of 8 bits behind those of 16. */
enum {
#define X(name, T) OCCL_LOOP_##name,
    OCCL_DEV_LOOPS(X)
#undef X
#define H(name, kind, T) OCCL_LOOP_##name,
    OCCL_DEV_LOOPS_NARROW(H)
#undef H
    OCCL_LOOP_COUNT
};

OCCL_FN uint32_t occl_dev_loop_of(uint32_t type, uint32_t op)
{
    switch (type << 4 | op) {
#define X(T, O, name) case OCCL_T_##T << 4 | OCCL_OP_##O: return OCCL_LOOP_##name;
        OCCL_DEV_MAP(X)
#undef X
    }
    return OCCL_LOOP_COUNT;
}

/* Way w of v from p + w * stride, if on[w]. In pieces of less than 4 bytes there is only the first way. */
template <uint32_t WAYS>
static __device__ __forceinline__ void occl_dev_fetch(uint32_t *v, const char *p, uint32_t unit, uint32_t piece,
                                                      uint32_t stride, const bool *on)
{
#define OCCL_EACH_WAY                                                                                                  \
    _Pragma("unroll") for (uint32_t w = 0; w < WAYS; w++) if (on[w])
    switch (piece) {
    case 16:
        OCCL_EACH_WAY {
            uint4 t = *(const uint4 *)(p + w * stride);
            v[4 * w] = t.x, v[4 * w + 1] = t.y, v[4 * w + 2] = t.z, v[4 * w + 3] = t.w;
        }
        break;
    case 8:
        OCCL_EACH_WAY {
#pragma unroll
            for (uint32_t j = 0; j < 2; j++)
                if (8 * j < unit) {
                    uint2 t = *(const uint2 *)(p + w * stride + 8 * j);
                    v[4 * w + 2 * j] = t.x, v[4 * w + 2 * j + 1] = t.y;
                }
        }
        break;
    case 4:
        OCCL_EACH_WAY {
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                if (4 * j < unit)
                    v[4 * w + j] = *(const uint32_t *)(p + w * stride + 4 * j);
        }
        break;
    case 2:
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            if (2 * j < unit) {
                uint32_t t = *(const uint16_t *)(p + 2 * j);
                v[j / 2] = j % 2 ? v[j / 2] | t << 16 : t;
            }
        break;
    default:
#pragma unroll
        for (uint32_t j = 0; j < 16; j++)
            if (j < unit) {
                uint32_t t = *(const uint8_t *)(p + j);
                v[j / 4] = j % 4 ? v[j / 4] | t << (8 * (j % 4)) : t;
            }
        break;
    }
}

template <uint32_t WAYS>
static __device__ __forceinline__ void occl_dev_drop(char *p, const uint32_t *v, uint32_t unit, uint32_t piece,
                                                     uint32_t stride, const bool *on)
{
    switch (piece) {
    case 16:
        OCCL_EACH_WAY
            *(uint4 *)(p + w * stride) = make_uint4(v[4 * w], v[4 * w + 1], v[4 * w + 2], v[4 * w + 3]);
        break;
    case 8:
        OCCL_EACH_WAY {
#pragma unroll
            for (uint32_t j = 0; j < 2; j++)
                if (8 * j < unit)
                    *(uint2 *)(p + w * stride + 8 * j) = make_uint2(v[4 * w + 2 * j], v[4 * w + 2 * j + 1]);
        }
        break;
    case 4:
        OCCL_EACH_WAY {
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                if (4 * j < unit)
                    *(uint32_t *)(p + w * stride + 4 * j) = v[4 * w + j];
        }
        break;
    case 2:
#pragma unroll
        for (uint32_t j = 0; j < 8; j++)
            if (2 * j < unit)
                *(uint16_t *)(p + 2 * j) = (uint16_t)(v[j / 2] >> (16 * (j % 2)));
        break;
    default:
#pragma unroll
        for (uint32_t j = 0; j < 16; j++)
            if (j < unit)
                *(uint8_t *)(p + j) = (uint8_t)(v[j / 4] >> (8 * (j % 4)));
        break;
    }
#undef OCCL_EACH_WAY
}

/* One operation on all that a lane holds, as it is packed. */
template <uint32_t WAYS, class T, T (*OP)(T, T)> static __device__ __forceinline__ void occl_dev_lift(uint32_t *a, const uint32_t *v)
{
    union {
        uint32_t w[4];
        T e[16 / sizeof(T)];
    } x, y;
#pragma unroll
    for (uint32_t w = 0; w < WAYS; w++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            x.w[i] = a[4 * w + i], y.w[i] = v[4 * w + i];
#pragma unroll
        for (uint32_t i = 0; i < 16 / sizeof(T); i++)
            x.e[i] = OP(x.e[i], y.e[i]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            a[4 * w + i] = x.w[i];
    }
}

/* Narrow floats: what is folded is the first half of the ways, of 8 bits the first quarter, as floats in all of them. */
template <class E> static __device__ __forceinline__ E occl_dev_piece(const uint32_t *v, uint32_t i)
{
    const uint32_t per = 4 / sizeof(E);
    return (E)(v[i / per] >> (8 * sizeof(E) * (i % per)));
}
/* `by`: the scalar of PREMUL, else 1, which changes nothing. */
template <uint32_t WAYS, class E, float (*LOAD)(E)> static __device__ __forceinline__ void occl_dev_widen(uint32_t *a, const uint32_t *v, float by)
{
#pragma unroll
    for (uint32_t i = 0; i < 4 * WAYS; i++)
        a[i] = occl_dev_bits_f32(occl_dev_mul_f32(LOAD(occl_dev_piece<E>(v, i)), by));
}
template <uint32_t WAYS, class E, float (*LOAD)(E), float (*OP)(float, float)>
static __device__ __forceinline__ void occl_dev_lift_narrow(uint32_t *a, const uint32_t *v, float by)
{
#pragma unroll
    for (uint32_t i = 0; i < 4 * WAYS; i++)
        a[i] = occl_dev_bits_f32(OP(occl_dev_from_f32(a[i]), occl_dev_mul_f32(LOAD(occl_dev_piece<E>(v, i)), by)));
}
template <uint32_t WAYS, class E, E (*ROUND)(float)> static __device__ __forceinline__ void occl_dev_narrow(uint32_t *v, const uint32_t *a)
{
    const uint32_t per = 4 / sizeof(E);
#pragma unroll
    for (uint32_t i = 0; i < 4 * WAYS / per; i++) {
        v[i] = 0;
#pragma unroll
        for (uint32_t j = 0; j < per; j++)
            v[i] |= (uint32_t)ROUND(occl_dev_from_f32(a[per * i + j])) << (8 * sizeof(E) * j);
    }
}

template <uint32_t WAYS> static __device__ __forceinline__ void occl_dev_combine(uint32_t loop, uint32_t *a, const uint32_t *v, float by)
{
    switch (loop) {
#define X(name, T) case OCCL_LOOP_##name: occl_dev_lift<WAYS, T, occl_dev_op_##name>(a, v); break;
        OCCL_DEV_LOOPS(X)
#undef X
#define H(name, kind, T)                                                                                               \
    case OCCL_LOOP_##name: occl_dev_lift_narrow<WAYS, T, occl_dev_load_##kind, occl_dev_op_##name>(a, v, by); break;
        OCCL_DEV_LOOPS_NARROW(H)
#undef H
    }
}

/*
 * What is the same for all lanes and seldom looked at while they fold is where all of them have put it: registers are scarce here.
 * What is done besides folding, mostly nothing, is bits beside the number of the loop.
 */
enum { OCCL_LOOP_MASK = 0xffff, OCCL_LOOP_PREMUL = 0x10000, OCCL_LOOP_AVG = 0x20000, OCCL_LOOP_AVG_LATE = 0x40000 };
typedef struct occl_dev_beside {
    uint64_t bound[4];         /* of the three parts, in bytes */
    uint32_t unit, size, apart;
    float by;                  /* PREMUL's scalar of a narrow float */
    char *dst;
    const void *const *more;
    uint32_t nmore, late;      /* late: nmore, of what is written last */
    uint32_t nsrc, loop;
    uint32_t type, over;       /* over: AVG's number of sources */
} occl_dev_beside_t;
OCCL_FN occl_dev_beside_t *occl_dev_beside(void)
{
    __shared__ occl_dev_beside_t beside;
    return &beside;
}

/*
 * PREMUL of what is not narrow: one element a lane and turn, apart from everything else. In the loop that all others share it would
 * take registers that the daemon does not have.
 */
template <class T, T (*ADD)(T, T), class P, P (*MUL)(P, P), uint32_t PARTS>
static __device__ __forceinline__ void occl_dev_premul(occl_lanes_t l, const void *scale, void *dst, const void *const *src, uint32_t nsrc, uint64_t n)
{
    union both {
        P p;
        T t[PARTS];
    } a, x;
    P by;
    uint32_t low = (uint32_t)(uintptr_t)dst;
#pragma unroll 1
    for (uint32_t s = 0; s < nsrc; s++)
        low |= (uint32_t)(uintptr_t)src[s];
    low &= (uint32_t)sizeof(T) - 1;
    __builtin_memcpy(&by, scale, sizeof(P));
#pragma unroll 1
    for (uint64_t i = occl_lane(l); i < n; i += occl_nlanes(l)) {
#pragma unroll 1
        for (uint32_t s = 0; s < nsrc; s++) {
            const char *from = (const char *)src[s] + i * sizeof(P);
#pragma unroll
            for (uint32_t k = 0; k < PARTS; k++) {
                if (low)
                    __builtin_memcpy(&x.t[k], from + k * sizeof(T), sizeof(T));
                else
                    x.t[k] = ((const T *)from)[k];
            }
            x.p = MUL(x.p, by);
#pragma unroll
            for (uint32_t k = 0; k < PARTS; k++)
                a.t[k] = s ? ADD(a.t[k], x.t[k]) : x.t[k];
        }
#pragma unroll
        for (uint32_t k = 0; k < PARTS; k++) {
            if (low)
                __builtin_memcpy((char *)dst + i * sizeof(P) + k * sizeof(T), &a.t[k], sizeof(T));
            else
                ((T *)dst)[i * PARTS + k] = a.t[k];
        }
    }
}
OCCL_FN void occl_dev_premul_wide(occl_lanes_t l, uint32_t type, const void *scale, void *dst, const void *const *src, uint32_t nsrc, uint64_t n)
{
#define OCCL_WIDE(T, add, P, mul, parts)                                                                               \
    occl_dev_premul<T, occl_dev_op_##add, P, occl_dev_op_##mul, parts>(l, scale, dst, src, nsrc, n)
    switch (type) {
    case OCCL_T_I8: case OCCL_T_U8: OCCL_WIDE(uint8_t, sum8, uint8_t, prod8, 1); break;
    case OCCL_T_I16: case OCCL_T_U16: OCCL_WIDE(uint16_t, sum16, uint16_t, prod16, 1); break;
    case OCCL_T_I32: case OCCL_T_U32: OCCL_WIDE(uint32_t, sum32, uint32_t, prod32, 1); break;
    case OCCL_T_I64: case OCCL_T_U64: OCCL_WIDE(uint64_t, sum64, uint64_t, prod64, 1); break;
    case OCCL_T_F32: OCCL_WIDE(float, sumf32, float, prodf32, 1); break;
    case OCCL_T_F64: OCCL_WIDE(double, sumf64, double, prodf64, 1); break;
    case OCCL_T_C32: OCCL_WIDE(float, sumf32, occl_dev_c32_t, prodc32, 2); break;
    case OCCL_T_C64: OCCL_WIDE(double, sumf64, occl_dev_c64_t, prodc64, 2); break;
    }
#undef OCCL_WIDE
}

/*
 * a / n, rounded once: what the reciprocal gives is put right by its remainder. (A division proper is a call, and one in double takes
 * registers that there are not.) Small numbers are worked on as larger ones, so that the remainder is exact; where the quotient has no
 * longer all digits, below 2^-126, its last one may be the next.
 */
OCCL_FN float occl_dev_over_f32(float a, float n, float recip)
{
    const float up = fabsf(a) < 0x1p-60f ? 0x1p64f : 1.0f, down = fabsf(a) < 0x1p-60f ? 0x1p-64f : 1.0f;
    const float q = a * up * recip, rest = fmaf(-q, n, a * up);
    return (rest < 0 || rest > 0 ? fmaf(rest, recip, q) : q) * down;
}
/* Floats of up to 32 bits are divided where they are held; the rest afterwards, in memory: that is seldom, and long code. */
OCCL_FN uint32_t occl_dev_late(uint32_t type)
{
    return (type >= OCCL_T_I8 && type <= OCCL_T_U64) || type == OCCL_T_F64 || type == OCCL_T_C64;
}
template <uint32_t WAYS> static __device__ __forceinline__ void occl_dev_share(uint32_t loop, uint32_t *a)
{
    const occl_dev_beside_t *b = occl_dev_beside();
    if (!(loop & OCCL_LOOP_AVG))
        return;
    const float n = (float)b->over;
    float recip;
    {
        double r = (double)__fdividef(1.0f, n);
        r = fma(r, fma(-(double)n, r, 1.0), r); /* from 22 digits to 44 */
        recip = (float)r;
    }
#pragma unroll
    for (uint32_t i = 0; i < 4 * WAYS; i++)
        a[i] = occl_dev_bits_f32(occl_dev_over_f32(occl_dev_from_f32(a[i]), n, recip));
}
template <class T, class W> static __device__ __forceinline__ void occl_dev_divide(occl_lanes_t l, void *dst, uint32_t over, uint64_t n)
{
    const uint32_t low = (uint32_t)(uintptr_t)dst & ((uint32_t)sizeof(T) - 1);
#pragma unroll 1
    for (uint64_t i = occl_lane(l); i < n; i += occl_nlanes(l)) {
        T x;
        if (low)
            __builtin_memcpy(&x, (const char *)dst + i * sizeof(T), sizeof(T));
        else
            x = ((const T *)dst)[i];
        x = (T)(x / (W)over);
        if (low)
            __builtin_memcpy((char *)dst + i * sizeof(T), &x, sizeof(T));
        else
            ((T *)dst)[i] = x;
    }
}
/* All lanes; a barrier is behind what wrote. */
OCCL_FN void occl_dev_share_late(occl_lanes_t l, uint32_t type, void *dst, uint32_t over, uint64_t n)
{
    switch (type) {
    case OCCL_T_I8: occl_dev_divide<int8_t, int32_t>(l, dst, over, n); break;
    case OCCL_T_U8: occl_dev_divide<uint8_t, int32_t>(l, dst, over, n); break;
    case OCCL_T_I16: occl_dev_divide<int16_t, int32_t>(l, dst, over, n); break;
    case OCCL_T_U16: occl_dev_divide<uint16_t, int32_t>(l, dst, over, n); break;
    case OCCL_T_I32: occl_dev_divide<int32_t, int32_t>(l, dst, over, n); break;
    case OCCL_T_U32: occl_dev_divide<uint32_t, uint32_t>(l, dst, over, n); break;
    case OCCL_T_I64: occl_dev_divide<int64_t, int64_t>(l, dst, over, n); break;
    case OCCL_T_U64: occl_dev_divide<uint64_t, uint64_t>(l, dst, over, n); break;
    case OCCL_T_F64: occl_dev_divide<double, double>(l, dst, over, n); break;
    case OCCL_T_C64: occl_dev_divide<double, double>(l, dst, over, 2 * n); break;
    }
}

/* The first source into the accumulator; and out of it, into v. */
template <uint32_t WAYS> static __device__ __forceinline__ void occl_dev_begin(uint32_t loop, uint32_t *a, const uint32_t *v, float by)
{
    if (loop >= OCCL_LOOP_sume5m2) {
        occl_dev_widen<WAYS, uint8_t, occl_dev_load_e5m2>(a, v, by);
    } else if (loop >= OCCL_LOOP_sume4m3) {
        occl_dev_widen<WAYS, uint8_t, occl_dev_load_e4m3>(a, v, by);
    } else if (loop >= OCCL_LOOP_sumbf16) {
        occl_dev_widen<WAYS, uint16_t, occl_dev_load_bf16>(a, v, by);
    } else if (loop >= OCCL_LOOP_sumf16) {
        occl_dev_widen<WAYS, uint16_t, occl_dev_load_f16>(a, v, by);
    } else {
#pragma unroll
        for (uint32_t j = 0; j < 4 * WAYS; j++)
            a[j] = v[j];
    }
}
template <uint32_t WAYS> static __device__ __forceinline__ void occl_dev_end(uint32_t loop, uint32_t *v, const uint32_t *a)
{
    if (loop >= OCCL_LOOP_sume5m2) {
        occl_dev_narrow<WAYS, uint8_t, occl_dev_round_e5m2>(v, a);
    } else if (loop >= OCCL_LOOP_sume4m3) {
        occl_dev_narrow<WAYS, uint8_t, occl_dev_round_e4m3>(v, a);
    } else if (loop >= OCCL_LOOP_sumbf16) {
        occl_dev_narrow<WAYS, uint16_t, occl_dev_round_bf16>(v, a);
    } else if (loop >= OCCL_LOOP_sumf16) {
        occl_dev_narrow<WAYS, uint16_t, occl_dev_round_f16>(v, a);
    } else {
#pragma unroll
        for (uint32_t j = 0; j < 4 * WAYS; j++)
            v[j] = a[j];
    }
}
/* Folds another source, the first one if it is the first. */
template <uint32_t WAYS>
static __device__ __forceinline__ void occl_dev_take(uint32_t loop, uint32_t s, uint32_t *a, uint32_t *v)
{
    const float by = loop & OCCL_LOOP_PREMUL ? occl_dev_beside()->by : 1.0f;
    if (s == 0)
        occl_dev_begin<WAYS>(loop & OCCL_LOOP_MASK, a, v, by);
    else
        occl_dev_combine<WAYS>(loop & OCCL_LOOP_MASK, a, v, by);
}

/*
 * Bulk copies (sm_90): the sources come to shared memory by themselves, several tiles ahead, so that what is in flight is not bounded
 * by registers. A tile is what the lanes take in one turn of the loop, two units each, of every source. Of a copy one lane moves
 * all, out of shared memory in bulk too, and the others have nothing to do.
 *
 * An mbarrier a stage says when all of it is there, another when all warps have read it; then one of them, each in its turn, asks for
 * a later tile. So warps wait for data and hardly for each other. What others have written to the sources was acquired by
 * ordinary loads; the proxy fence makes it visible to copies.
 */
#define OCCL_BULK_SOURCES 8
#define OCCL_BULK_LEAST 8192 /* bytes from which it pays */
#if __CUDA_ARCH__ >= 900
/* Bytes of all buffers from `at` up to `end`, multiples of 16 away from each other and from a 16-byte boundary. */
OCCL_FN void occl_bulk_copy(void *dst, const void *const *src, uint64_t at, uint64_t end)
{
    const uint32_t tile = OCCL_BULK_BYTES / OCCL_BULK_STAGES;
    uint32_t stage = 0, odd = (uint32_t)occl_bulk_words()[2 * OCCL_BULK_STAGES], full = odd;
    uint64_t next = at;
    occl_bulk_fence();
#pragma unroll 1
    for (uint32_t i = 0; i < OCCL_BULK_STAGES && next < end; i++, next += tile)
        occl_bulk_ask(i, src, 1, next, tile, end - next < tile ? (uint32_t)(end - next) : tile);
    /* `next` is asked for when the tile before the one at hand has left its stage. */
    next = at + (uint64_t)(OCCL_BULK_STAGES - 1) * tile;
#pragma unroll 1
    for (bool first = true; at < end; first = false, at += tile, next += tile) {
        occl_bulk_wait(stage, full >> stage & 1);
        occl_bulk_give((const char *)occl_bulk_tiles + stage * tile, (char *)dst + at, end - at < tile ? (uint32_t)(end - at) : tile);
        if (!first && next < end)
            occl_bulk_ask((stage - 1) % OCCL_BULK_STAGES, src, 1, next, tile, end - next < tile ? (uint32_t)(end - next) : tile);
        full ^= 1u << stage;
        stage = (stage + 1) % OCCL_BULK_STAGES;
    }
    /* Here "read" has not been used: nobody else was there. */
    occl_bulk_words()[2 * OCCL_BULK_STAGES] = (odd & ~0u << OCCL_BULK_STAGES) | full;
    occl_bulk_given();
}
OCCL_FN void occl_bulk_reduce(occl_lanes_t l, uint32_t loop, const void *const *src, uint32_t nsrc, uint64_t at, uint64_t end)
{
    enum { W = 2 };
    const occl_dev_beside_t *b = occl_dev_beside();
    const uint32_t lane = occl_lane(l), stride = 16 * occl_nlanes(l), tile = stride * ((loop & OCCL_LOOP_MASK) < OCCL_LOOP_sumf16 ? W : W / 2);
    const uint32_t most = OCCL_BULK_BYTES / (tile * nsrc), stages = most > OCCL_BULK_STAGES ? OCCL_BULK_STAGES : most;
    uint32_t stage = 0, mover = 0, odd = (uint32_t)occl_bulk_words()[2 * OCCL_BULK_STAGES];
    if (lane == 0) {
        uint64_t next = at;
        occl_bulk_fence();
#pragma unroll 1
        for (uint32_t i = 0; i < stages && next < end; i++, next += tile)
            occl_bulk_ask(i, src, nsrc, next, tile, end - next < tile ? (uint32_t)(end - next) : tile);
    }
#pragma unroll 1
    for (; at < end; at += tile) {
        const uint32_t bytes = end - at < tile ? (uint32_t)(end - at) : tile;
        const char *here = (const char *)occl_bulk_tiles + stage * nsrc * tile + lane * 16;
        uint32_t a[4 * W], v[4 * W];
        bool on[W];
#pragma unroll
        for (uint32_t w = 0; w < W; w++)
            on[w] = w * stride + lane * 16 < bytes && w * stride < tile;
#pragma unroll
        for (uint32_t j = 0; j < 4 * W; j++)
            v[j] = 0;
        occl_bulk_wait(stage, odd >> stage & 1);
#pragma unroll 1
        for (uint32_t s = 0; s < nsrc; s++) {
            occl_dev_fetch<W>(v, here + s * tile, 16, 16, stride, on);
            occl_dev_take<W>(loop, s, a, v);
        }
        occl_bulk_done(l, stage);
        occl_dev_share<W>(loop, a);
        occl_dev_end<W>(loop & OCCL_LOOP_MASK, v, a);
        occl_dev_drop<W>(b->dst + at + lane * 16, v, 16, 16, stride, on);
#pragma unroll 1
        for (uint32_t s = 0; s < b->nmore; s++)
            occl_dev_drop<W>((char *)b->more[s] + at + lane * 16, v, 16, 16, stride, on);
        if (lane == mover * 32) {
            const uint64_t next = at + (uint64_t)stages * tile;
            if (next < end) {
                occl_bulk_wait(OCCL_BULK_STAGES + stage, odd >> (OCCL_BULK_STAGES + stage) & 1);
                occl_bulk_ask(stage, src, nsrc, next, tile, end - next < tile ? (uint32_t)(end - next) : tile);
            }
        }
        mover = (mover + 1) * 32 == occl_nlanes(l) ? 0 : mover + 1;
        odd ^= (1u << OCCL_BULK_STAGES | 1u) << stage;
        stage = stage + 1 == stages ? 0 : stage + 1;
    }
    occl_sync(l); /* all have begun with what lane 0 changes */
    if (lane == 0)
        occl_bulk_words()[2 * OCCL_BULK_STAGES] = odd; /* a step ends with a barrier */
}
#else
OCCL_FN void occl_bulk_copy(void *, const void *const *, uint64_t, uint64_t) {}
OCCL_FN void occl_bulk_reduce(occl_lanes_t, uint32_t, const void *const *, uint32_t, uint64_t, uint64_t) {}
#endif

/* The result goes to dst, and to `nmore` more places. scale: of PREMUL, else nobody reads it. */
OCCL_FN void occl_dev_fold_to(occl_lanes_t l, uint32_t type, uint32_t op, const void *scale, void *dst, const void *const *more,
                              uint32_t nmore, const void *const *src, uint32_t nsrc, uint64_t n)
{
    const uint32_t low = (uint32_t)(uintptr_t)dst & 15;
    uint32_t size = occl_dev_type_bytes(type), loop = OCCL_LOOP_bor8, differ = 16, apart, unit, head;
    uint64_t mid;
    occl_dev_beside_t *b = occl_dev_beside(); /* all write the same; a barrier is between this and the last time */

    if (nsrc == 1 && op != OCCL_OP_PREMUL) {
        n *= size;
        size = 1;
    } else if ((loop = occl_dev_loop_of(type, OCCL_OP_IS_WHOLE(op) ? (uint32_t)OCCL_OP_SUM : op)) == OCCL_LOOP_COUNT ||
               (op == OCCL_OP_PREMUL && !scale)) {
        return;
    } else if (op == OCCL_OP_PREMUL && !OCCL_T_IS_NARROW(type)) {
        occl_dev_premul_wide(l, type, scale, dst, src, nsrc, n);
        if (nmore)
            occl_sync(l);
#pragma unroll 1
        for (uint32_t s = 0; s < nmore; s++)
            occl_dev_copy(l, (void *)(uintptr_t)more[s], dst, n * size);
        return;
    } else if (OCCL_OP_IS_WHOLE(op)) {
        b->type = type;
        b->over = nsrc;
        b->late = nmore;
        if (op == OCCL_OP_PREMUL)
            b->by = type == OCCL_T_F16    ? occl_dev_load_f16(*(const uint16_t *)scale)
                    : type == OCCL_T_BF16 ? occl_dev_load_bf16(*(const uint16_t *)scale)
                    : type == OCCL_T_E4M3 ? occl_dev_load_e4m3(*(const uint8_t *)scale)
                                          : occl_dev_load_e5m2(*(const uint8_t *)scale);
        loop |= op == OCCL_OP_PREMUL ? OCCL_LOOP_PREMUL : occl_dev_late(type) ? OCCL_LOOP_AVG_LATE : OCCL_LOOP_AVG;
        nmore = loop & OCCL_LOOP_AVG_LATE ? 0 : nmore;
    }
    n *= size; /* bytes from here on */
#pragma unroll 1
    for (uint32_t s = 0; s < nsrc; s++)
        differ |= ((uint32_t)(uintptr_t)src[s] ^ low) & 15;
#pragma unroll 1
    for (uint32_t s = 0; s < nmore; s++)
        differ |= ((uint32_t)(uintptr_t)more[s] ^ low) & 15;
    unit = differ & (0u - differ);
    head = (0u - low) & (unit - 1);
    apart = differ | low | size;
    apart &= 0u - apart;
    if (unit <= size || (head & (size - 1)) || n < head)
        head = 0, unit = size;
    mid = unit > size ? head + ((n - head) & ~(uint64_t)(unit - 1)) : 0;
    b->bound[0] = 0;
    b->bound[1] = head;
    b->bound[2] = mid;
    b->bound[3] = n;
    b->unit = unit;
    b->size = size;
    b->apart = apart;
    b->dst = (char *)dst;
    b->more = more;
    b->nmore = nmore;
    b->nsrc = nsrc;
    b->loop = loop;

    /* Elements up to the first boundary of a unit; units; elements again, which is all when there are no units. */
#pragma unroll 1
    for (uint32_t part = 0; part < 3; part++) {
        const uint32_t step = part == 1 ? b->unit : b->size, piece = part == 1 ? b->unit : b->apart;
        const uint32_t stride = step * occl_nlanes(l);
        const uint32_t ways = piece < 4 ? 1 : (b->loop & OCCL_LOOP_MASK) < OCCL_LOOP_sumf16 ? OCCL_WAYS : (b->loop & OCCL_LOOP_MASK) < OCCL_LOOP_sume4m3 ? OCCL_WAYS / 2 : OCCL_WAYS / 4;
        const uint64_t end = b->bound[part + 1];
        uint64_t at = b->bound[part];

        /* 16-byte elements that are aligned are units, too. */
        if (piece == 16 && end - at >= OCCL_BULK_LEAST && at < end && b->nsrc <= OCCL_BULK_SOURCES && (b->loop & OCCL_LOOP_MASK) < OCCL_LOOP_sume4m3 &&
            occl_bulk_there()) {
            if (b->nsrc > 1 || b->loop & OCCL_LOOP_PREMUL)
                occl_bulk_reduce(l, b->loop, src, b->nsrc, at, end);
            else if (occl_lane(l) == 0)
                occl_bulk_copy(b->dst, src, at, end);
            continue;
        }
#pragma unroll 1
        for (at += occl_lane(l) * step; at < end; at += stride * ways) {
            const uint32_t left = end - at < 0x40000000u ? (uint32_t)(end - at) : 0x40000000u;
            uint32_t a[4 * OCCL_WAYS], v[4 * OCCL_WAYS];
            bool on[OCCL_WAYS];

#pragma unroll
            for (uint32_t w = 0; w < OCCL_WAYS; w++)
                on[w] = w < ways && w * stride < left;
#pragma unroll
            for (uint32_t j = 0; j < 4 * OCCL_WAYS; j++)
                v[j] = 0;
#pragma unroll 1
            for (uint32_t s = 0; s < b->nsrc; s++) {
                occl_dev_fetch<OCCL_WAYS>(v, (const char *)src[s] + at, step, piece, stride, on);
                occl_dev_take<OCCL_WAYS>(b->loop, s, a, v);
            }
            occl_dev_share<OCCL_WAYS>(b->loop, a);
            occl_dev_end<OCCL_WAYS>(b->loop & OCCL_LOOP_MASK, v, a);
            occl_dev_drop<OCCL_WAYS>(b->dst + at, v, step, piece, stride, on);
#pragma unroll 1
            for (uint32_t s = 0; s < b->nmore; s++)
                occl_dev_drop<OCCL_WAYS>((char *)b->more[s] + at, v, step, piece, stride, on);
        }
    }
    if (b->loop & OCCL_LOOP_AVG_LATE) {
        occl_sync(l);
        occl_dev_share_late(l, b->type, b->dst, b->over, b->bound[3] / b->size);
        occl_sync(l);
#pragma unroll 1
        for (uint32_t s = 0; s < b->late; s++)
            occl_dev_copy(l, (void *)(uintptr_t)b->more[s], b->dst, b->bound[3]);
    }
}
OCCL_FN void occl_dev_fold(occl_lanes_t l, uint32_t type, uint32_t op, const void *scale, void *dst, const void *const *src,
                           uint32_t nsrc, uint64_t n)
{
    occl_dev_fold_to(l, type, op, scale, dst, 0, 0, src, nsrc, n);
}

template <class T, T (*OP)(T, T)> static __device__ __forceinline__ uint64_t occl_dev_little(const uint64_t *row, uint32_t per, uint32_t n)
{
    union {
        uint64_t w;
        T e[8 / sizeof(T)];
    } a, x;
    a.w = *row;
#pragma unroll 1
    for (uint32_t p = 1; p < n; p++) {
        x.w = *(row += per);
#pragma unroll
        for (uint32_t i = 0; i < 8 / sizeof(T); i++)
            a.e[i] = OP(a.e[i], x.e[i]);
    }
    return a.w;
}
template <float (*LOAD)(uint16_t), uint16_t (*ROUND)(float), float (*OP)(float, float)>
static __device__ __forceinline__ uint64_t occl_dev_little_half(const uint64_t *row, uint32_t per, uint32_t n)
{
    float a[4];
    uint64_t w = *row;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        a[i] = LOAD((uint16_t)(w >> (16 * i)));
#pragma unroll 1
    for (uint32_t p = 1; p < n; p++) {
        w = *(row += per);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            a[i] = OP(a[i], LOAD((uint16_t)(w >> (16 * i))));
    }
    w = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        w |= (uint64_t)ROUND(a[i]) << (16 * i);
    return w;
}
OCCL_FN uint32_t occl_dev_fold_little(uint32_t type, uint32_t op, const uint64_t *row, uint32_t per, uint32_t n, uint64_t *to)
{
#define X(T, O, elem, name)                                                                                            \
    if (type == OCCL_T_##T && op == OCCL_OP_##O) {                                                                     \
        *to = occl_dev_little<elem, occl_dev_op_##name>(row, per, n);                                                  \
        return 1;                                                                                                      \
    }
#define H(T, O, kind, name)                                                                                            \
    if (type == OCCL_T_##T && op == OCCL_OP_##O) {                                                                     \
        *to = occl_dev_little_half<occl_dev_load_##kind, occl_dev_round_##kind, occl_dev_op_##name>(row, per, n);      \
        return 1;                                                                                                      \
    }
    OCCL_DEV_LITTLE(X, H)
#undef X
#undef H
    return 0;
}

/*
 * A copy is its own, smaller loop, in the widest unit in which both sides can be aligned, and with no
 * accumulator to keep twice as many of them in flight.
 */
OCCL_FN void occl_dev_copy(occl_lanes_t l, void *dst, const void *src, uint64_t bytes)
{
    const uint32_t low = (uint32_t)(uintptr_t)dst & 15, differ = (low ^ (uint32_t)(uintptr_t)src) | 16;
    const uint32_t unit = differ & (0u - differ);
    uint32_t head = (0u - low) & (unit - 1);
    uint64_t mid;

    if (dst == src)
        return;
    if (bytes <= 8ull * occl_nlanes(l) && ((low | (uint32_t)(uintptr_t)src) & 7) == 0) {
        /* Little: one access a lane. What is below counts instructions by the hundred, 2 ns each. */
        uint32_t at = occl_lane(l) * 8;
        if (at + 8 <= bytes)
            *(uint64_t *)((char *)dst + at) = *(const uint64_t *)((const char *)src + at);
        else
            for (; at < bytes; at++)
                ((char *)dst)[at] = ((const char *)src)[at];
        return;
    }
    if (head > bytes)
        head = (uint32_t)bytes;
    mid = head + ((bytes - head) & ~(uint64_t)(unit - 1));
#pragma unroll 1
    for (uint32_t part = 0; part < 3; part++) {
        const uint32_t step = part == 1 ? unit : 1, stride = step * occl_nlanes(l);
        const uint32_t ways = step < 4 ? 1 : OCCL_COPY_WAYS;
        const uint64_t end = part == 0 ? head : part == 1 ? mid : bytes;

#pragma unroll 1
        for (uint64_t at = (part == 0 ? 0 : part == 1 ? head : mid) + occl_lane(l) * step; at < end; at += stride * ways) {
            const uint32_t left = end - at < 0x40000000u ? (uint32_t)(end - at) : 0x40000000u;
            uint32_t v[4 * OCCL_COPY_WAYS];
            bool on[OCCL_COPY_WAYS];

#pragma unroll
            for (uint32_t w = 0; w < OCCL_COPY_WAYS; w++)
                on[w] = w < ways && w * stride < left;
            occl_dev_fetch<OCCL_COPY_WAYS>(v, (const char *)src + at, step, step, stride, on);
            occl_dev_drop<OCCL_COPY_WAYS>((char *)dst + at, v, step, step, stride, on);
        }
    }
}
#endif

OCCL_FN void occl_dev_reduce(occl_lanes_t l, uint32_t type, uint32_t op, void *dst, const void *const *src,
                             uint32_t nsrc, uint64_t n)
{
    occl_dev_fold(l, type, op, 0, dst, src, nsrc, n);
}

/* ---- data-with-flag words: one text ------------------------------------------------------------------------------ */

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
