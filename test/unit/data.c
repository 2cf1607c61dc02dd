/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loops that touch payload, against a reference that is written for being read: one element at a time, through the
 * value and not through the bits. Built twice: as production (one lane) and with OCCL_EMU (several lanes a block).
 */
#include "kernels/occl_dev_data.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(OCCL_EMU) && OCCL_EMU
#define MAX_LANES 5
#else
#define MAX_LANES 1
#endif

#if defined(OCCL_TEST_GPU)
#define OCCL_ON_GPU 1
#else
#define OCCL_ON_GPU 0
#endif

static const char *const type_name[] = {
#define X(id, number, bytes, name) name,
    OCCL_TYPE_TABLE(X)
#undef X
};
static const char *const op_name[] = {
#define X(id, number, name) name,
    OCCL_OP_TABLE(X)
#undef X
};

static uint64_t rng_state = 88172645463325252u;
static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state * 2685821657736338717u >> 11;
}

/*------------------------------------------------------------------------------
 * lanes
 *----------------------------------------------------------------------------*/
#if MAX_LANES > 1
struct occl_emu_block {
    pthread_barrier_t barrier;
    uint32_t vote[MAX_LANES];
};
void occl_emu_sync(void *block) { pthread_barrier_wait(&((struct occl_emu_block *)block)->barrier); }
uint32_t occl_emu_uniform(void *block, uint32_t lane, uint32_t v)
{
    struct occl_emu_block *b = block;
    uint32_t r;

    b->vote[lane] = v;
    occl_emu_sync(b);
    r = b->vote[0];
    occl_emu_sync(b);
    return r;
}
uint32_t occl_emu_all(void *block, uint32_t lane, uint32_t v)
{
    struct occl_emu_block *b = block;
    uint32_t r = 1;
    pthread_barrier_t *barrier = &b->barrier;
    static const uint32_t lanes = MAX_LANES;

    b->vote[lane] = v;
    pthread_barrier_wait(barrier);
    for (uint32_t i = 0; i < lanes; i++)
        r &= b->vote[i];
    pthread_barrier_wait(barrier);
    return r;
}
void occl_emu_chaos(void *block) { (void)block; }
static occl_lanes_t lane_of(uint32_t rank, uint32_t count, void *block)
{
    return (occl_lanes_t){.rank = rank, .count = count, .block = block};
}
#else
static occl_lanes_t lane_of(uint32_t rank, uint32_t count, void *block)
{
    (void)rank, (void)count, (void)block;
    return (occl_lanes_t){.unused = 0};
}
#endif

#if defined(OCCL_TEST_GPU)
/* The same cases through the CUDA body: test/gpu/data.cu */
void *gpu_alloc(size_t bytes);
void gpu_copy(uint32_t lanes, void *dst, const void *src, uint64_t bytes);
void gpu_reduce(uint32_t lanes, uint32_t type, uint32_t op, const void *scale, void *dst, const void *const *src, uint32_t nsrc,
                uint64_t n);
int gpu_words(uint32_t lanes, uint32_t rounds);
void gpu_bench(void);
static void *test_alloc(size_t bytes) { return gpu_alloc(bytes); }
static void copy(uint32_t lanes, void *dst, const void *src, uint64_t bytes) { gpu_copy(lanes, dst, src, bytes); }
static void reduce(uint32_t lanes, uint32_t variant, uint32_t type, uint32_t op, const void *scale, void *dst,
                   const void *const *src, uint32_t nsrc, uint64_t n)
{
    (void)variant;
    gpu_reduce(lanes, type, op, scale, dst, src, nsrc, n);
}
#else
static void *test_alloc(size_t bytes) { return malloc(bytes); }
/* No barrier is inside a copy or reduction, so the lanes may as well run one after the other. */
static void copy(uint32_t lanes, void *dst, const void *src, uint64_t bytes)
{
    for (uint32_t i = lanes; i-- > 0;)
        occl_dev_copy(lane_of(i, lanes, NULL), dst, src, bytes);
}
static void reduce(uint32_t lanes, uint32_t variant, uint32_t type, uint32_t op, const void *scale, void *dst,
                   const void *const *src, uint32_t nsrc, uint64_t n)
{
    for (uint32_t i = lanes; i-- > 0;)
        occl_dev_fold_variant(lane_of(i, lanes, NULL), variant, type, op, scale, dst, src, nsrc, n);
}
#endif

/*------------------------------------------------------------------------------
 * reference
 *----------------------------------------------------------------------------*/
enum klass { INT, FLOAT, COMPLEX, LOGICAL, BYTES, PAIR };
static enum klass class_of(uint32_t t)
{
    switch (t) {
    case OCCL_T_BYTE: return BYTES;
    case OCCL_T_BOOL: case OCCL_T_L8: case OCCL_T_L16: case OCCL_T_L32: case OCCL_T_L64: return LOGICAL;
    case OCCL_T_C32: case OCCL_T_C64: case OCCL_T_CLD: case OCCL_T_C128: return COMPLEX;
    case OCCL_T_F32: case OCCL_T_F64: case OCCL_T_FLD: case OCCL_T_F128: case OCCL_T_F16: case OCCL_T_BF16:
    case OCCL_T_E4M3: case OCCL_T_E5M2: return FLOAT;
    case OCCL_T_F32_I32: case OCCL_T_F64_I32: case OCCL_T_I64_I32: case OCCL_T_I16_I32: case OCCL_T_I32_I32:
    case OCCL_T_FLD_I32: case OCCL_T_F32_F32: case OCCL_T_F64_F64: case OCCL_T_I64_I64: return PAIR;
    default: return INT;
    }
}

/* A value in a type wide enough for every member of its class. In a pair, re is the value and im or i[1] the index. */
typedef struct {
    long double re, im;
    __int128 i[2];
    __float128 q[2]; /* F128, C128: re and im */
} value;

/* IEEE formats of 16 bits: `m` explicit bits of mantissa, smallest normal exponent `emin`. */
static long double half_value(unsigned h, int m, int emin)
{
    int e = (h & 0x7fff) >> m;
    long double f = h & ((1u << m) - 1), v;

    if (e == (0x7fff >> m))
        v = f != 0 ? NAN : INFINITY;
    else
        v = e == 0 ? ldexpl(f, emin - m) : ldexpl(f + (1 << m), emin - m + e - 1);
    return h & 0x8000 ? -v : v;
}
static unsigned half_round(long double v, int m, int emin)
{
    unsigned sign = signbit(v) ? 0x8000 : 0, top = 0x7fff >> m << m;
    int e;

    if (isnan(v))
        return sign | top | 1u << (m - 1);
    if (isinf(v))
        return sign | top;
    frexpl(fabsl(v), &e);
    e = v == 0 || e - 1 < emin ? emin : e - 1;
    long double units = rintl(ldexpl(fabsl(v), m - e));  /* to nearest even */
    unsigned bits = (unsigned)units + ((unsigned)(e - emin) << m);
    return sign | (bits > top ? top : bits);
}

/*
 * Floats of 8 bits, from their table of values: E4M3 has 448 as its largest number and NaN at 0x7f, E5M2 goes on as IEEE's do. A number
 * is rounded to whichever is nearest in the table, had the table one value more; of two, to the one with the even code.
 */
static long double eight_value(uint32_t t, unsigned h)
{
    int e4 = t == OCCL_T_E4M3, m = e4 ? 3 : 2, bias = e4 ? 7 : 15, e = (int)(h & 0x7f) >> m, f = (int)(h & ((1u << m) - 1));
    long double v;

    if (e4 ? (h & 0x7f) == 0x7f : (h & 0x7f) > 0x7c)
        v = NAN;
    else if (!e4 && (h & 0x7f) == 0x7c)
        v = INFINITY;
    else
        v = e == 0 ? ldexpl(f, 1 - bias - m) : ldexpl(f + (1 << m), e - bias - m);
    return h & 0x80 ? -v : v;
}
static unsigned eight_round(uint32_t t, long double x)
{
    static long double table[2][128];
    long double *value_of = table[t == OCCL_T_E4M3];
    unsigned last = t == OCCL_T_E4M3 ? 0x7e : 0x7b, best = 0, sign = signbit(x) ? 0x80 : 0;
    long double beyond = t == OCCL_T_E4M3 ? 480 : 65536, v = fabsl(x);

    if (isnan(x))
        return sign | 0x7f;
    for (unsigned h = 0; value_of[1] == 0 && h < 128; h++)
        table[t == OCCL_T_E4M3][127 - h] = eight_value(t, 127 - h);
    for (unsigned h = 1; h <= last + 1; h++) {
        long double a = h > last ? beyond : value_of[h], b = value_of[best];
        if (fabsl(a - v) < fabsl(b - v) || (fabsl(a - v) == fabsl(b - v) && h % 2 == 0))
            best = h;
    }
    if (v > beyond)
        best = last + 1;
    return sign | (best > last ? (t == OCCL_T_E4M3 ? 0x7f : 0x7c) : best);
}

static value load(uint32_t t, const void *p)
{
    value v = {0, 0, {0, 0}, {0, 0}};
#define GET(T, dst, off) do { T x; memcpy(&x, (const char *)p + (off), sizeof(x)); dst = x; } while (0)
    switch (t) {
    case OCCL_T_BYTE: case OCCL_T_BOOL: case OCCL_T_L8: case OCCL_T_U8: GET(uint8_t, v.i[0], 0); break;
    case OCCL_T_I128: GET(__int128, v.i[0], 0); break;
    case OCCL_T_L16: GET(int16_t, v.i[0], 0); break;
    case OCCL_T_L64: GET(int64_t, v.i[0], 0); break;
    case OCCL_T_E4M3: case OCCL_T_E5M2: { unsigned h; GET(uint8_t, h, 0); v.re = eight_value(t, h); break; }
    case OCCL_T_F128: GET(__float128, v.q[0], 0); break;
    case OCCL_T_C128: GET(__float128, v.q[0], 0); GET(__float128, v.q[1], 16); break;
    case OCCL_T_I64_I64: GET(int64_t, v.re, 0); GET(int64_t, v.im, 8); break;
    case OCCL_T_I8: GET(int8_t, v.i[0], 0); break;
    case OCCL_T_I16: GET(int16_t, v.i[0], 0); break;
    case OCCL_T_U16: GET(uint16_t, v.i[0], 0); break;
    case OCCL_T_I32: case OCCL_T_L32: GET(int32_t, v.i[0], 0); break;
    case OCCL_T_U32: GET(uint32_t, v.i[0], 0); break;
    case OCCL_T_I64: GET(int64_t, v.i[0], 0); break;
    case OCCL_T_U64: GET(uint64_t, v.i[0], 0); break;
    case OCCL_T_F32: GET(float, v.re, 0); break;
    case OCCL_T_F64: GET(double, v.re, 0); break;
    case OCCL_T_FLD: GET(long double, v.re, 0); break;
    case OCCL_T_F16: { unsigned h; GET(uint16_t, h, 0); v.re = half_value(h, 10, -14); break; }
    case OCCL_T_BF16: { unsigned h; GET(uint16_t, h, 0); v.re = half_value(h, 7, -126); break; }
    case OCCL_T_C32: GET(float, v.re, 0); GET(float, v.im, 4); break;
    case OCCL_T_C64: GET(double, v.re, 0); GET(double, v.im, 8); break;
    case OCCL_T_CLD: GET(long double, v.re, 0); GET(long double, v.im, 16); break;
    case OCCL_T_F32_I32: GET(float, v.re, 0); GET(int32_t, v.im, 4); break;
    case OCCL_T_F64_I32: GET(double, v.re, 0); GET(int32_t, v.im, 8); break;
    case OCCL_T_I64_I32: GET(int64_t, v.re, 0); GET(int32_t, v.im, 8); break;
    case OCCL_T_I16_I32: GET(int16_t, v.re, 0); GET(int32_t, v.im, 4); break;
    case OCCL_T_I32_I32: GET(int32_t, v.re, 0); GET(int32_t, v.im, 4); break;
    case OCCL_T_FLD_I32: GET(long double, v.re, 0); GET(int32_t, v.im, 16); break;
    case OCCL_T_F32_F32: GET(float, v.re, 0); GET(float, v.im, 4); break;
    case OCCL_T_F64_F64: GET(double, v.re, 0); GET(double, v.im, 8); break;
    }
#undef GET
    return v;
}

static void store(uint32_t t, void *p, value v)
{
#define PUT(T, src, off) do { T x = (T)(src); memcpy((char *)p + (off), &x, sizeof(x)); } while (0)
    switch (t) {
    case OCCL_T_BYTE: case OCCL_T_BOOL: case OCCL_T_L8: case OCCL_T_U8: case OCCL_T_I8: PUT(uint8_t, v.i[0], 0); break;
    case OCCL_T_I16: case OCCL_T_U16: case OCCL_T_L16: PUT(uint16_t, v.i[0], 0); break;
    case OCCL_T_I128: PUT(__int128, v.i[0], 0); break;
    case OCCL_T_L64: PUT(uint64_t, v.i[0], 0); break;
    case OCCL_T_E4M3: case OCCL_T_E5M2: PUT(uint8_t, eight_round(t, v.re), 0); break;
    case OCCL_T_F128: PUT(__float128, v.q[0], 0); break;
    case OCCL_T_C128: PUT(__float128, v.q[0], 0); PUT(__float128, v.q[1], 16); break;
    case OCCL_T_I64_I64: PUT(int64_t, v.re, 0); PUT(int64_t, v.im, 8); break;
    case OCCL_T_I32: case OCCL_T_L32: case OCCL_T_U32: PUT(uint32_t, v.i[0], 0); break;
    case OCCL_T_I64: case OCCL_T_U64: PUT(uint64_t, v.i[0], 0); break;
    case OCCL_T_F32: PUT(float, v.re, 0); break;
    case OCCL_T_F64: PUT(double, v.re, 0); break;
    case OCCL_T_FLD: PUT(long double, v.re, 0); break;
    case OCCL_T_F16: PUT(uint16_t, half_round(v.re, 10, -14), 0); break;
    case OCCL_T_BF16: PUT(uint16_t, half_round(v.re, 7, -126), 0); break;
    case OCCL_T_C32: PUT(float, v.re, 0); PUT(float, v.im, 4); break;
    case OCCL_T_C64: PUT(double, v.re, 0); PUT(double, v.im, 8); break;
    case OCCL_T_CLD: PUT(long double, v.re, 0); PUT(long double, v.im, 16); break;
    case OCCL_T_F32_I32: PUT(float, v.re, 0); PUT(int32_t, v.im, 4); break;
    case OCCL_T_F64_I32: PUT(double, v.re, 0); PUT(int32_t, v.im, 8); break;
    case OCCL_T_I64_I32: PUT(int64_t, v.re, 0); PUT(int32_t, v.im, 8); break;
    case OCCL_T_I16_I32: PUT(int16_t, v.re, 0); PUT(int32_t, v.im, 4); break;
    case OCCL_T_I32_I32: PUT(int32_t, v.re, 0); PUT(int32_t, v.im, 4); break;
    case OCCL_T_FLD_I32: PUT(long double, v.re, 0); PUT(int32_t, v.im, 16); break;
    case OCCL_T_F32_F32: PUT(float, v.re, 0); PUT(float, v.im, 4); break;
    case OCCL_T_F64_F64: PUT(double, v.re, 0); PUT(double, v.im, 8); break;
    }
#undef PUT
}

/* One rounding to the type that sums are kept in. Through a volatile: no contraction, no excess precision. */
static long double rounded(uint32_t t, long double x)
{
    volatile float f;
    volatile double d;

    switch (t) {
    case OCCL_T_F32: case OCCL_T_C32: case OCCL_T_F16: case OCCL_T_BF16: case OCCL_T_E4M3: case OCCL_T_E5M2: f = (float)x; return f;
    case OCCL_T_F64: case OCCL_T_C64: d = (double)x; return d;
    default: return x;
    }
}
/*
 * The sum and product of two doubles in long double, then rounded, would be rounded twice; so each width does its own.
 */
static long double add(uint32_t t, long double x, long double y)
{
    volatile double a = (double)x, b = (double)y, d;

    if (t != OCCL_T_F64 && t != OCCL_T_C64)
        return rounded(t, x + y);
    d = a + b;
    return d;
}
static long double mul(uint32_t t, long double x, long double y)
{
    volatile double a = (double)x, b = (double)y, d;

    if (t != OCCL_T_F64 && t != OCCL_T_C64)
        return rounded(t, x * y);
    d = a * b;
    return d;
}

static long double over(uint32_t t, long double x, uint32_t n)
{
    volatile double a = (double)x, d;

    if (t != OCCL_T_F64 && t != OCCL_T_C64)
        return rounded(t, x / n);
    d = a / n;
    return d;
}

/* 128 bits: the compiler's own type, as there is nothing wider. */
static int quad_sign(__float128 x)
{
    char c[16];

    memcpy(c, &x, 16);
    return c[15] & 0x80;
}
static value combine_quad(uint32_t t, uint32_t op, value a, value b)
{
    value r = a;
    volatile __float128 x, y;

    if (op == OCCL_OP_SUM) {
        r.q[0] = a.q[0] + b.q[0];
        r.q[1] = a.q[1] + b.q[1];
    } else if (op == OCCL_OP_PROD && t == OCCL_T_F128) {
        r.q[0] = a.q[0] * b.q[0];
    } else if (op == OCCL_OP_PROD) {
        x = a.q[0] * b.q[0], y = a.q[1] * b.q[1], r.q[0] = x - y;
        x = a.q[0] * b.q[1], y = a.q[1] * b.q[0], r.q[1] = x + y;
    } else if (a.q[0] != a.q[0] || b.q[0] != b.q[0]) {
        r = a.q[0] != a.q[0] ? a : b;
    } else if (a.q[0] == b.q[0]) {
        r = !quad_sign(a.q[0]) == (op == OCCL_OP_MAX) ? a : b;
    } else {
        r = (a.q[0] < b.q[0]) == (op == OCCL_OP_MIN) ? a : b;
    }
    return r;
}

static value combine(uint32_t t, uint32_t op, value a, value b)
{
    value r = a;
    int c = class_of(t);

    if (t == OCCL_T_F128 || t == OCCL_T_C128)
        return combine_quad(t, op, a, b);
    switch (op) {
    case OCCL_OP_SUM:
        r.i[0] = (__int128)((unsigned __int128)a.i[0] + (unsigned __int128)b.i[0]);
        r.re = add(t, a.re, b.re);
        r.im = add(t, a.im, b.im);
        break;
    case OCCL_OP_PROD:
        if (c == INT) {
            r.i[0] = (__int128)((unsigned __int128)a.i[0] * (unsigned __int128)b.i[0]);
        } else if (c == FLOAT) {
            r.re = mul(t, a.re, b.re);
        } else {
            r.re = add(t, mul(t, a.re, b.re), -mul(t, a.im, b.im));
            r.im = add(t, mul(t, a.re, b.im), mul(t, a.im, b.re));
        }
        break;
    case OCCL_OP_MIN:
    case OCCL_OP_MAX: {
        int max = op == OCCL_OP_MAX;
        if (c == INT)
            r.i[0] = (a.i[0] < b.i[0]) != max ? a.i[0] : b.i[0];
        else if (isnan(a.re) || isnan(b.re))
            r.re = NAN;
        else if (a.re == b.re)
            r.re = !!signbit(a.re) != max ? a.re : b.re;
        else
            r.re = (a.re < b.re) != max ? a.re : b.re;
        break;
    }
    case OCCL_OP_LAND: r.i[0] = a.i[0] && b.i[0]; break;
    case OCCL_OP_LOR: r.i[0] = a.i[0] || b.i[0]; break;
    case OCCL_OP_LXOR: r.i[0] = !a.i[0] != !b.i[0]; break;
    case OCCL_OP_BAND: r.i[0] = a.i[0] & b.i[0]; break;
    case OCCL_OP_BOR: r.i[0] = a.i[0] | b.i[0]; break;
    case OCCL_OP_BXOR: r.i[0] = a.i[0] ^ b.i[0]; break;
    case OCCL_OP_MINLOC:
    case OCCL_OP_MAXLOC:
        if (isnan(a.re) != isnan(b.re))
            r = isnan(a.re) ? a : b;
        else if (isnan(a.re) || a.re == b.re)
            r = a.im <= b.im ? a : b;
        else
            r = (a.re < b.re) == (op == OCCL_OP_MINLOC) ? a : b;
        break;
    }
    /* Integers wrap to their type at once, so that a left fold never leaves 128 bits. */
    if (c == INT) {
        char cell[16];
        store(t, cell, r);
        r = load(t, cell);
    }
    return r;
}

/* What a reduction of n sources comes to, by the words of occl_dev_data.h. */
static value reference(uint32_t t, uint32_t op, const void *scale, const void *const *src, uint32_t nsrc, uint64_t at)
{
    uint32_t plain = op == OCCL_OP_AVG || op == OCCL_OP_PREMUL ? (uint32_t)OCCL_OP_SUM : op;
    value v = {0, 0, {0, 0}, {0, 0}};

    for (uint32_t s = 0; s < nsrc; s++) {
        value x = load(t, (const char *)src[s] + at);
        if (op == OCCL_OP_PREMUL)
            x = combine(t, OCCL_OP_PROD, x, load(t, scale));
        v = s ? combine(t, plain, v, x) : x;
    }
    if (op == OCCL_OP_AVG && nsrc > 1) {
        v.i[0] /= nsrc;
        v.re = over(t, v.re, nsrc);
        v.im = over(t, v.im, nsrc);
        v.q[0] = v.q[0] == 0 ? v.q[0] : v.q[0] / nsrc;
        v.q[1] = v.q[1] == 0 ? v.q[1] : v.q[1] / nsrc;
    }
    return v;
}

static int same_quad(__float128 a, __float128 b)
{
    return (a != a && b != b) || (a == b && quad_sign(a) == quad_sign(b));
}
static int same_float(long double a, long double b)
{
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}
/* Equal bit for bit, but for the payload of NaNs and for padding. */
static int same(uint32_t t, const void *p, const void *q)
{
    value a = load(t, p), b = load(t, q);
    int c = class_of(t);

    return a.i[0] == b.i[0] && same_float(a.re, b.re) && same_quad(a.q[0], b.q[0]) && same_quad(a.q[1], b.q[1]) &&
           (c == PAIR || c == COMPLEX ? same_float(a.im, b.im) : 1);
}

/* Elements as they hurt: limits, zeros of both signs, NaNs, ties, and numbers that overflow or round. */
static long double nasty_float(uint32_t t)
{
    static const long double few[] = {0, -0.0L, 1, -1, 2, 3, 0.5L, 1.0L / 3, 255, 256, 257, 65504, 65520, 6e-8L, 3e-5L,
                                      1e-40L, 3e38L, 1e300L, -7.25L};
    uint64_t r = rng();

    if (r % 37 == 0)
        return NAN;
    if (r % 37 == 1)
        return r & 4096 ? INFINITY : -INFINITY;
    if (r % 3 == 0)
        return few[rng() % (sizeof(few) / sizeof(few[0]))];
    return ((long double)(int64_t)(rng() % 2000001) - 1000000) / (t == OCCL_T_F16 ? 4096 : 1024 + r % 100000);
}
static void nasty(uint32_t t, void *p)
{
    value v = {0, 0, {0, 0}, {0, 0}};
    uint64_t r = rng();

    memset(p, (int)(r & 255), occl_dev_type_bytes(t));
    switch (class_of(t)) {
    case INT: case BYTES: case LOGICAL:
        v.i[0] = r % 4 == 0 ? (__int128)(rng() % 5) - 2 : (__int128)(rng() << 11 ^ rng());
        if (r % 16 == 1)
            v.i[0] = (__int128)1 << (r / 16 % (t == OCCL_T_I128 ? 127 : 64));
        if (t == OCCL_T_I128 && r % 8 == 2)
            v.i[0] = (__int128)((unsigned __int128)v.i[0] << 64 | rng());
        if (class_of(t) == LOGICAL && r % 2)
            v.i[0] = 0;
        break;
    case FLOAT:
    case COMPLEX:
        v.re = nasty_float(t);
        v.im = nasty_float(t);
        if (t != OCCL_T_F128 && t != OCCL_T_C128 && t != OCCL_T_E4M3 && t != OCCL_T_E5M2)
            break;
        /* Digits that no narrower type has */
        v.q[0] = (__float128)v.re + (__float128)v.re / 3 * (r % 2);
        v.q[1] = (__float128)v.im + (__float128)v.im / 7 * (r % 3);
        if ((t == OCCL_T_E4M3 || t == OCCL_T_E5M2) && r % 2) { /* any of the 256 */
            memcpy(p, &r, 1);
            return;
        }
        break;
    case PAIR:
        v.re = t == OCCL_T_I64_I64 || t == OCCL_T_I64_I32 || t == OCCL_T_I32_I32 || t == OCCL_T_I16_I32 ? (long double)(rng() % 5) - 2
                                                                                : nasty_float(t);
        v.im = (long double)(rng() % 5);
        break;
    }
    store(t, p, v);
}

/*------------------------------------------------------------------------------
 * reduce
 *----------------------------------------------------------------------------*/
#define MAX_SRC 9
#define MOST 3000          /* elements */
#define MARGIN 64
#define CANARY 0x5a

static unsigned char *room[MAX_SRC + 1], *want;

/* One case. in_place: which source dst is, or -1. Answers NULL or what went wrong. */
static const char *reduce_case(uint32_t lanes, uint32_t variant, uint32_t t, uint32_t op, uint32_t nsrc, uint64_t n,
                               int in_place, unsigned shift)
{
    uint32_t bytes = occl_dev_type_bytes(t);
    const void *src[MAX_SRC];
    unsigned char *at[MAX_SRC + 1], *dst;
    char scalar[32], *scale = op == OCCL_OP_PREMUL ? scalar : NULL;

    nasty(t, scalar);
    for (uint32_t s = 0; s <= nsrc; s++) {
        memset(room[s], CANARY, MARGIN + 16);
        at[s] = room[s] + MARGIN + (shift * (s + 3) + shift / 16 * s) % 16;
        memset(at[s] + n * bytes, CANARY, MARGIN);
        if (s < nsrc) {
            src[s] = at[s];
            for (uint64_t i = 0; i < n; i++)
                nasty(t, at[s] + i * bytes);
        }
    }
    dst = in_place >= 0 ? at[in_place] : at[nsrc];
    for (uint64_t i = 0; i < n; i++)
        store(t, want + i * bytes, reference(t, op, scale, src, nsrc, i * bytes));
    if (nsrc == 1 && n > 0 && !scale)
        memcpy(want, src[0], n * bytes);
    reduce(lanes, variant, t, op, scale, dst, src, nsrc, n);
    for (uint64_t i = 0; i < n; i++)
        if (!same(t, dst + i * bytes, want + i * bytes))
            return "a wrong element";
    for (uint32_t s = 0; s <= nsrc; s++) {
        for (unsigned char *c = room[s]; c < at[s]; c++)
            if (*c != CANARY)
                return "a write before the range";
        for (unsigned i = 0; i < MARGIN; i++)
            if (at[s][n * bytes + i] != CANARY)
                return "a write behind the range";
    }
    return NULL;
}

static void every_type_and_op(uint32_t lanes, uint32_t variant)
{
    for (uint32_t t = 0; t < OCCL_T_COUNT; t++) {
        for (uint32_t op = 0; op < OCCL_OP_COUNT; op++) {
            const char *wrong = NULL;
            unsigned long cases = 0, n = 0, nsrc = 0, shift = 0;
            int in_place = 0;

            if (!occl_dev_op_valid(op, t) || (OCCL_ON_GPU && occl_dev_type_is_host(t)))
                continue;
#define TRY(sources, count, place, by)                                                                                 \
    do {                                                                                                               \
        if (!wrong) {                                                                                                  \
            nsrc = (sources), n = (count), in_place = (place), shift = (by), cases++;                                  \
            wrong = reduce_case(lanes, variant, t, op, (uint32_t)nsrc, n, in_place, (unsigned)shift);                  \
        }                                                                                                              \
    } while (0)
            for (unsigned k = 0; k < 68; k++)
                TRY(2, k, (int)(k % 3) - 1, (k & 1) ? 0 : rng() % 256);
            for (unsigned k = 0; k < 16; k++)
                for (unsigned s = 1; s <= 3; s++)
                    TRY(s, 40 + k, -1, k);
            for (int s = 1; s <= MAX_SRC; s++)
                for (int p = -1; p < s; p++)
                    TRY(s, rng() % 50, p, rng() % 256);
            TRY(2, 1000 + rng() % 1000, -1, 0);
            TRY(2, 1000 + rng() % 1000, 1, rng() % 256);
            TRY(3, MOST - rng() % 16, 2, 0);
            TRY(5, MOST - rng() % 16, (int)(rng() % 5), rng() % 256);
#undef TRY
            if (!ok(!wrong, "%s %s is the left fold of its sources (%u lane%s, variant %u)", type_name[t], op_name[op],
                    lanes, lanes > 1 ? "s" : "", variant))
                diag("%s: %lu sources, %lu elements, in place of %d, shift %lu (after %lu cases)", wrong, nsrc, n,
                     in_place, shift, cases);
        }
    }
}

/* MPI's table, written down a second time. */
#define FIELD "sum prod avg premul"
#define ORDERED FIELD " min max"
static void what_is_allowed(void)
{
    static const char *const table[] = {
        [OCCL_T_BYTE] = "band bor bxor", [OCCL_T_BOOL] = "land lor lxor", [OCCL_T_L8] = "land lor lxor",
        [OCCL_T_L16] = "land lor lxor", [OCCL_T_L32] = "land lor lxor", [OCCL_T_L64] = "land lor lxor",
        [OCCL_T_F32] = ORDERED, [OCCL_T_F64] = ORDERED, [OCCL_T_FLD] = ORDERED, [OCCL_T_F128] = ORDERED,
        [OCCL_T_F16] = ORDERED, [OCCL_T_BF16] = ORDERED, [OCCL_T_E4M3] = ORDERED, [OCCL_T_E5M2] = ORDERED,
        [OCCL_T_C32] = FIELD, [OCCL_T_C64] = FIELD, [OCCL_T_CLD] = FIELD, [OCCL_T_C128] = FIELD,
        [OCCL_T_COUNT - 1] = NULL};
    int good = 1, mapped = 1;

    for (uint32_t t = 0; t < OCCL_T_COUNT + 3; t++) {
        for (uint32_t op = 0; op < OCCL_OP_COUNT + 30; op++) {
            uint32_t allowed = 0;
            if (t < OCCL_T_COUNT && op > 0 && op < OCCL_OP_COUNT) {
                const char *list = table[t] ? table[t] : class_of(t) == PAIR ? "minloc maxloc" :
                                   ORDERED " land lor lxor band bor bxor";
                char word[16], line[80];
                snprintf(word, sizeof(word), " %s ", op_name[op]);
                snprintf(line, sizeof(line), " %s ", list);
                allowed = strstr(line, word) != NULL;
            }
            if (occl_dev_op_valid(op, t) != allowed)
                good = 0;
            if (t < OCCL_T_COUNT && op < OCCL_OP_COUNT)
                for (uint32_t v = 0; v < OCCL_DEV_VARIANTS; v++)
                    if (op == OCCL_OP_AVG || op == OCCL_OP_PREMUL ? !!occl_dev_fields[v][t].times != allowed
                                                                  : !!occl_dev_folds[v][t][op] != allowed)
                        mapped = 0;
        }
    }
    ok(good, "an operation is allowed for a type exactly where MPI's table has it");
    ok(mapped, "every allowed pair has a loop, and no other");
    ok(occl_dev_type_bytes(OCCL_T_CLD) == 32 && occl_dev_type_bytes(OCCL_T_COUNT) == 0, "a number that is no type has 0 bytes");
}

static void values_by_hand(void)
{
    static const uint16_t bf256 = 0x4380, bf1 = 0x3f80;
    uint16_t h[8] = {bf256, bf1, bf1, bf1, bf1, bf1, bf1, bf1}, hr = 0;
    const void *src[8];
    occl_lanes_t l = lane_of(0, 1, NULL);

    for (int i = 0; i < 8; i++)
        src[i] = &h[i];
    occl_dev_reduce(l, OCCL_T_BF16, OCCL_OP_SUM, &hr, src, 8, 1);
    is_int(hr, 0x4384, "bfloat16 {256,1,1,1,1,1,1,1} sums to 264: one rounding, not seven");  /* 264 fits: 0x4384 */
    h[0] = 0x6800, h[1] = h[2] = h[3] = h[4] = 0x3c00;                   /* 2048 + 1 + 1 + 1 + 1 in float16 */
    occl_dev_reduce(l, OCCL_T_F16, OCCL_OP_SUM, &hr, src, 5, 1);
    is_int(hr, 0x6802, "float16 {2048,1,1,1,1} sums to 2052");
    h[0] = 0x7bff, h[1] = 0x7bff;
    occl_dev_reduce(l, OCCL_T_F16, OCCL_OP_SUM, &hr, src, 2, 1);
    is_int(hr, 0x7c00, "float16 overflows to infinity");

    static const struct {
        const char *what;
        uint32_t type, op;
        uint8_t x, y, want;
    } eight[] = {
        {"e4m3: 448 + 16 is a tie, and stays 448", OCCL_T_E4M3, OCCL_OP_SUM, 0x7e, 0x58, 0x7e},
        {"e4m3: 448 + 18 is nearer to what it cannot be: NaN", OCCL_T_E4M3, OCCL_OP_SUM, 0x7e, 0x59, 0x7f},
        {"e4m3: -448 - 448 is NaN too", OCCL_T_E4M3, OCCL_OP_SUM, 0xfe, 0xfe, 0xff},
        {"e4m3: 16 + 1 is a tie, to even: 16", OCCL_T_E4M3, OCCL_OP_SUM, 0x58, 0x38, 0x58},
        {"e4m3: 18 + 1 is a tie, to even: 20", OCCL_T_E4M3, OCCL_OP_SUM, 0x59, 0x38, 0x5a},
        {"e4m3: the least subnormal, twice", OCCL_T_E4M3, OCCL_OP_SUM, 0x01, 0x01, 0x02},
        {"e4m3: half of the least subnormal is a tie: 0", OCCL_T_E4M3, OCCL_OP_PROD, 0x01, 0x30, 0x00},
        {"e4m3: half of three of them: two", OCCL_T_E4M3, OCCL_OP_PROD, 0x03, 0x30, 0x02},
        {"e4m3: the largest subnormal and the least are the least normal", OCCL_T_E4M3, OCCL_OP_SUM, 0x07, 0x01, 0x08},
        {"e4m3: the largest of NaN and 1", OCCL_T_E4M3, OCCL_OP_MAX, 0x38, 0x7f, 0x7f},
        {"e5m2: 57344 + 3584 stays", OCCL_T_E5M2, OCCL_OP_SUM, 0x7b, 0x6b, 0x7b},
        {"e5m2: 57344 + 4096 is a tie, to even: infinity", OCCL_T_E5M2, OCCL_OP_SUM, 0x7b, 0x6c, 0x7c},
        {"e5m2: infinity less infinity", OCCL_T_E5M2, OCCL_OP_AVG, 0x7c, 0xfc, 0x7e},
        {"e5m2: half of the least subnormal is a tie: 0", OCCL_T_E5M2, OCCL_OP_PROD, 0x01, 0x38, 0x00},
        {"e5m2: the mean of 1 and 2 is 1.5", OCCL_T_E5M2, OCCL_OP_AVG, 0x3c, 0x40, 0x3e},
        {"e4m3: the mean of 448 and 448 is 448, though the sum is not there", OCCL_T_E4M3, OCCL_OP_AVG, 0x7e, 0x7e, 0x7e},
    };
    for (size_t i = 0; i < sizeof(eight) / sizeof(eight[0]); i++) {
        uint8_t got = 0;
        src[0] = &eight[i].x, src[1] = &eight[i].y;
        occl_dev_reduce(l, eight[i].type, eight[i].op, &got, src, 2, 1);
        if (isnan(eight_value(eight[i].type, eight[i].want)))
            ok(isnan(eight_value(eight[i].type, got)), "%s", eight[i].what);
        else
            is_int(got, eight[i].want, "%s", eight[i].what);
    }
    {
        float x[3] = {1, 2, 4}, third = 0, half = 0.5f, got = 0;
        int32_t neg[2] = {-3, -4}, ineg = 0;
        uint8_t big[2] = {200, 100}, ibig = 0;
        for (int k = 0; k < 3; k++)
            src[k] = &x[k];
        occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_AVG, &third, src, 3, 1);
        ok(third == 7.0f / 3, "the mean of 1, 2 and 4");
        occl_dev_fold(l, OCCL_T_F32, OCCL_OP_PREMUL, &half, &got, src, 3, 1);
        ok(got == 3.5f, "half of each of 1, 2 and 4, added up");
        got = 9;
        occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_PREMUL, &got, src, 3, 1);
        ok(got == 9, "without a scalar nothing is multiplied, and nothing written");
        src[0] = &neg[0], src[1] = &neg[1];
        occl_dev_reduce(l, OCCL_T_I32, OCCL_OP_AVG, &ineg, src, 2, 1);
        is_int(ineg, -3, "the mean of -3 and -4 is cut to -3");
        src[0] = &big[0], src[1] = &big[1];
        occl_dev_reduce(l, OCCL_T_U8, OCCL_OP_AVG, &ibig, src, 2, 1);
        is_int(ibig, 22, "the mean of 200 and 100 in 8 bits is of the sum that wrapped");
    }

    int8_t a = 120, b = 100, r = 0;
    src[0] = &a, src[1] = &b;
    occl_dev_reduce(l, OCCL_T_I8, OCCL_OP_SUM, &r, src, 2, 1);
    is_int(r, -36, "int8 120 + 100 wraps to -36");
    uint16_t ua = 65535, ub = 65535, ur = 0;
    src[0] = &ua, src[1] = &ub;
    occl_dev_reduce(l, OCCL_T_U16, OCCL_OP_PROD, &ur, src, 2, 1);
    is_int(ur, 1, "uint16 65535 * 65535 wraps to 1");
    int64_t la = INT64_MAX, lb = 2, lr = 0;
    src[0] = &la, src[1] = &lb;
    occl_dev_reduce(l, OCCL_T_I64, OCCL_OP_PROD, &lr, src, 2, 1);
    is_int(lr, -2, "int64 wraps too");

    float f[2] = {NAN, 1}, fr = 0;
    for (int side = 0; side < 2; side++) {
        src[0] = &f[side], src[1] = &f[1 - side];
        occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_MIN, &fr, src, 2, 1);
        ok(isnan(fr), "min is NaN with a NaN in source %d", side);
        occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_MAX, &fr, src, 2, 1);
        ok(isnan(fr), "max is NaN with a NaN in source %d", side);
    }
    f[0] = -0.0f, f[1] = 0.0f;
    for (int side = 0; side < 2; side++) {
        src[0] = &f[side], src[1] = &f[1 - side];
        occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_MIN, &fr, src, 2, 1);
        ok(fr == 0 && signbit(fr), "the smaller zero is -0, whichever comes first (%d)", side);
        occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_MAX, &fr, src, 2, 1);
        ok(fr == 0 && !signbit(fr), "the larger zero is +0, whichever comes first (%d)", side);
    }

    struct { double v; int k; } p[3] = {{2, 7}, {1, 9}, {1, 4}}, pr = {0, 0};
    for (int i = 0; i < 3; i++)
        src[i] = &p[i];
    occl_dev_reduce(l, OCCL_T_F64_I32, OCCL_OP_MINLOC, &pr, src, 3, 1);
    ok(pr.v == 1 && pr.k == 4, "minloc takes the lower index of two equal values");
    p[2].v = 2;
    occl_dev_reduce(l, OCCL_T_F64_I32, OCCL_OP_MAXLOC, &pr, src, 3, 1);
    ok(pr.v == 2 && pr.k == 4, "maxloc takes the lower index of two equal values");

    /* (1 + e)^2 - 1 * (1 + 2e) is e^2 with an fma and 0 without */
    float e = 1.0f / 4096, c[2] = {1 + e, 1}, d[2] = {1 + e, 1 + 2 * e}, cr[2];
    src[0] = c, src[1] = d;
    occl_dev_reduce(l, OCCL_T_C32, OCCL_OP_PROD, cr, src, 2, 1);
    ok(cr[0] == 0, "a complex product is not contracted into an fma");

    uint32_t untouched = 42, logical[2] = {0xffffffffu, 2}, lres = 9;
    src[0] = &logical[0], src[1] = &logical[1];
    occl_dev_reduce(l, OCCL_T_L32, OCCL_OP_LAND, &lres, src, 2, 1);
    is_int(lres, 1, "a Fortran .true. of any compiler reduces to 1");
    occl_dev_reduce(l, OCCL_T_F32, OCCL_OP_BAND, &untouched, src, 2, 1);
    is_int(untouched, 42, "an operation that is not allowed writes nothing");
}

/* All 65536 halves through the load, and every rounding boundary through the store. */
static void half_conversions(void)
{
    int loads = 1, stores = 1;

    for (unsigned h = 0; h < 65536; h++) {
        long double f16 = half_value(h, 10, -14), bf16 = half_value(h, 7, -126);
        loads &= same_float(occl_dev_load_f16((uint16_t)h), f16) && same_float(occl_dev_load_bf16((uint16_t)h), bf16);
        for (int d = -1; d <= 1; d++) {
            float at[3] = {(float)f16, (float)bf16, ((float)f16 + occl_dev_load_f16((uint16_t)(h + 1))) / 2};
            for (int k = 0; k < 3; k++) {
                uint32_t u = occl_dev_bits_f32(at[k]) + (uint32_t)d;
                float x = occl_dev_from_f32(u);
                uint16_t gf = occl_dev_round_f16(x), gb = occl_dev_round_bf16(x);
                stores &= same_float(half_value(gf, 10, -14), half_value(half_round(x, 10, -14), 10, -14));
                stores &= same_float(half_value(gb, 7, -126), half_value(half_round(x, 7, -126), 7, -126));
            }
            uint32_t between = (h << 16) + 0x8000u + (uint32_t)d;
            float x = occl_dev_from_f32(between);
            stores &= same_float(half_value(occl_dev_round_bf16(x), 7, -126),
                                 half_value(half_round(x, 7, -126), 7, -126));
        }
    }
    for (int e4 = 0; e4 < 2; e4++) {
        uint32_t t = e4 ? OCCL_T_E4M3 : OCCL_T_E5M2;
        int eights = 1, rounds = 1;
        for (unsigned h = 0; h < 256; h++) {
            long double v = eight_value(t, h), next = eight_value(t, (h + 1) & 0xff);
            float x = e4 ? occl_dev_load_e4m3((uint8_t)h) : occl_dev_load_e5m2((uint8_t)h);
            eights &= same_float(x, v);
            for (int k = 0; k < 4; k++) {
                /* The value, the middle between it and the next, the middle to the value that is missing at the end, very little */
                float at = k == 0 ? (float)v : k == 1 ? (float)((v + next) / 2) : k == 2 ? (e4 ? 464 : 61440) : 1e-42f * (float)h;
                for (int d = -2; d <= 2; d++) {
                    float y = occl_dev_from_f32(occl_dev_bits_f32(at) + (uint32_t)d);
                    unsigned got = e4 ? occl_dev_round_e4m3(y) : occl_dev_round_e5m2(y), right = eight_round(t, y);
                    int good = isnan(y) || isnan(eight_value(t, right)) ? isnan(eight_value(t, got)) : got == right;
                    if (!good && rounds)
                        diag("%s: %a becomes 0x%02x and not 0x%02x", type_name[t], (double)y, got, right);
                    rounds &= good;
                }
            }
        }
        ok(eights, "every %s loads as its value", type_name[t]);
        ok(rounds, "float rounds to %s to nearest even, at every boundary, and out of range to what it has for that", type_name[t]);
    }
    ok(loads, "every float16 and bfloat16 loads as its value");
    ok(stores, "float rounds to float16 and bfloat16 to nearest even, at every boundary");
}

/*------------------------------------------------------------------------------
 * copy
 *----------------------------------------------------------------------------*/
/* The destination a little before and past the source modulo a page, where a copy goes in pieces; ends beside their borders. */
static void long_copies(uint32_t lanes)
{
    enum { PAGE = 4096, ROOM = 4 * PAGE, BEFORE = 64 };
    static const unsigned lengths[] = {1023, 1024, 1025, 2047, 2048, 2049, 5000, ROOM - 2 * PAGE};
    static unsigned char *src, *dst;
    int good = 1, outside = 1;

    if (!src) {
        src = test_alloc(ROOM);
        dst = test_alloc(ROOM);
    }
    for (unsigned i = 0; i < ROOM; i++)
        src[i] = (unsigned char)rng();
    for (unsigned k = 0; k < sizeof lengths / sizeof lengths[0]; k++)
        for (unsigned delta = 0; delta < 2 * BEFORE; delta++) {
            unsigned char *s = src + BEFORE, *d = dst + ((uintptr_t)s - (uintptr_t)dst + delta - BEFORE / 2) % PAGE;
            unsigned n = lengths[k];
            memset(dst, CANARY, ROOM);
            copy(lanes, d, s, n);
            good &= memcmp(d, s, n) == 0;
            for (unsigned char *p = dst; p < dst + ROOM; p++)
                if ((p < d || p >= d + n) && *p != CANARY)
                    outside = 0;
        }
    ok(good && outside, "long ones too, wherever source and destination lie in their pages");
}

static void copies(uint32_t lanes)
{
    static unsigned char *src, *dst;
    int good = 1, outside = 1;

    if (!src) {
        src = test_alloc(512);
        dst = test_alloc(512);
    }

    for (unsigned n = 0; n < 300; n = n < 70 ? n + 1 : n + 23) {
        for (unsigned shift = 0; shift < 256; shift++) {
            unsigned so = 64 + shift % 16, d = 64 + shift / 16;
            for (unsigned i = 0; i < 512; i++)
                src[i] = (unsigned char)rng();
            memset(dst, CANARY, 512);
            copy(lanes, dst + d, src + so, n);
            good &= memcmp(dst + d, src + so, n) == 0;
            for (unsigned i = 0; i < 512; i++)
                if ((i < d || i >= d + n) && dst[i] != CANARY)
                    outside = 0;
        }
    }
    ok(good, "copy copies at every alignment and length (%u lane%s)", lanes, lanes > 1 ? "s" : "");
    ok(outside, "and nothing around");
    long_copies(lanes);
    copy(lanes, src, src, 512);
    copy(lanes, NULL, NULL, 0);
    ok(1, "a copy onto itself, or of nothing, is nothing");
}

/*------------------------------------------------------------------------------
 * words
 *----------------------------------------------------------------------------*/
struct words_block {
    void *block;
    uint32_t lanes;
    unsigned char *slot;
    unsigned rounds;
    int bad;
};
struct words_lane {
    struct words_block *b;
    uint32_t rank;
    int bad;
};
#define WORDS_MOST 300

/* What round `r` carries, and from where to where. */
static uint64_t words_length(unsigned r) { return r < 40 ? r : (r * 37) % (WORDS_MOST + 1); }
static unsigned char words_byte(unsigned r, uint64_t i) { return (unsigned char)(r * 131 + i * 7 + (i >> 8)); }

/* Two slots in turn: the put of round r + 2 is ordered behind the get of round r by the flag of the way back. */
static uint32_t receiver_done;

static void *words_sender(void *arg)
{
    struct words_lane *me = arg;
    struct words_block *b = me->b;
    occl_lanes_t l = lane_of(me->rank, b->lanes, b->block);
    static _Thread_local unsigned char src[WORDS_MOST + 16];

    for (unsigned r = 0; r < b->rounds; r++) {
        uint64_t n = words_length(r);
        unsigned char *s = src + r % 16;
        for (uint64_t i = 0; i < n; i++)
            s[i] = words_byte(r, i);
        while (occl_load_acquire32(&receiver_done) + 2 <= r)
            sched_yield();
        occl_dev_words_put(l, b->slot + (r & 1) * occl_dev_words_bytes(WORDS_MOST), s, n, r + 1);
    }
    return NULL;
}
static void *words_receiver(void *arg)
{
    struct words_lane *me = arg;
    struct words_block *b = me->b;
    occl_lanes_t l = lane_of(me->rank, b->lanes, b->block);
    static unsigned char shared_dst[2][WORDS_MOST + 64];

    for (unsigned r = 0; r < b->rounds; r++) {
        uint64_t n = words_length(r);
        unsigned char *d = shared_dst[r & 1] + 16 + (r * 5) % 16;
        const unsigned char *slot = b->slot + (r & 1) * occl_dev_words_bytes(WORDS_MOST);
        if (me->rank == 0)
            memset(shared_dst[r & 1], CANARY, sizeof(shared_dst[0]));
        occl_sync(l);
        while (!occl_dev_words_ready(l, slot, n, r + 1))
            sched_yield();
        occl_dev_words_get(l, d, slot, n);
        occl_sync(l);
        if (me->rank == 0) {
            for (uint64_t i = 0; i < n; i++)
                me->bad |= d[i] != words_byte(r, i);
            for (unsigned char *c = shared_dst[r & 1]; c < shared_dst[r & 1] + sizeof(shared_dst[0]); c++)
                me->bad |= (c < d || c >= d + n) && *c != CANARY;
            occl_store_release32(&receiver_done, r + 1);
        }
    }
    return NULL;
}

static void words(uint32_t lanes)
{
    unsigned char *slot = aligned_alloc(64, 2048);
    struct words_block b[2];
    struct words_lane who[2][MAX_LANES];
    pthread_t thread[2][MAX_LANES];
    int bad = 0;

    memset(slot, 0, 2048);
    receiver_done = 0;
    for (int side = 0; side < 2; side++) {
        b[side] = (struct words_block){.lanes = lanes, .slot = slot, .rounds = lanes > 1 ? 400 : 2000};
#if MAX_LANES > 1
        struct occl_emu_block *e = calloc(1, sizeof(*e));
        for (unsigned i = lanes; i < MAX_LANES; i++)
            e->vote[i] = 1;
        pthread_barrier_init(&e->barrier, NULL, lanes);
        b[side].block = e;
#endif
        for (uint32_t i = 0; i < lanes; i++) {
            who[side][i] = (struct words_lane){&b[side], i, 0};
            if (pthread_create(&thread[side][i], NULL, side ? words_receiver : words_sender, &who[side][i]))
                bail("no thread");
        }
    }
    for (int side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < lanes; i++) {
            pthread_join(thread[side][i], NULL);
            bad |= who[side][i].bad;
        }
        free(b[side].block);
    }
    ok(!bad, "words carry every length and alignment from thread to thread (%u lane%s)", lanes, lanes > 1 ? "s" : "");
    free(slot);
}

static void words_by_hand(void)
{
    _Alignas(16) unsigned char slot[256], image[256], got[40];
    occl_lanes_t l = lane_of(0, 1, NULL);
    const char text[] = "thirteen char";
    int early = 0, missed = 0;

    is_int(occl_dev_words_bytes(0), 0, "no payload needs no slot");
    is_int(occl_dev_words_bytes(1), 16, "one byte needs a word of 16");
    is_int(occl_dev_words_bytes(17), 48, "a slot is twice its payload");
    memset(slot, 0, sizeof(slot));
    ok(occl_dev_words_ready(l, slot, 0, 5), "no payload is always there");
    occl_dev_words_put(l, slot, text, 13, 5);
    for (unsigned i = occl_dev_words_bytes(13); i < sizeof(slot); i++)
        early |= slot[i];
    ok(!early, "put stays inside its slot");
    ok(occl_dev_words_ready(l, slot, 13, 5) && !occl_dev_words_ready(l, slot, 13, 6), "only the right flag makes them ready");
    for (unsigned n = 1; n <= 100; n += 3) {
        _Alignas(16) uint64_t longer[32];
        unsigned char zeros[100] = {0};
        memset(longer, 0, sizeof(longer));
        occl_dev_words_put(l, longer, zeros, n, 5);
        for (unsigned w = 0; w < (n + 3) / 4; w++) {
            longer[w] ^= (uint64_t)1 << 32; /* not this message's flag */
            missed += occl_dev_words_ready(l, longer, n, 5);
            longer[w] ^= (uint64_t)1 << 32;
        }
        missed += !occl_dev_words_ready(l, longer, n, 5);
    }
    is_int(missed, 0, "one word missing, whichever, is not ready");
    memcpy(image, slot, sizeof(slot));
    occl_dev_words_get(l, got, slot, 13);
    ok(memcmp(got, text, 13) == 0 && memcmp(slot, image, sizeof(slot)) == 0, "get gives the payload and leaves the slot");
}

#if defined(OCCL_TEST_GPU)
int main(int argc, char **argv)
{
    static const uint32_t lanes[] = {1, 33, 512};

    (void)argv;
    if (argc > 1) {
        gpu_bench();
        return 0;
    }
    for (int s = 0; s <= MAX_SRC; s++)
        room[s] = test_alloc(MOST * 32 + 3 * MARGIN);
    want = malloc(MOST * 32);
    for (unsigned i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        copies(lanes[i]);
        every_type_and_op(lanes[i], 0);
        ok(gpu_words(lanes[i], 2000) == 0, "words carry every length from block to block (%u lanes)", lanes[i]);
    }
    return tap_done();
}
#else
int main(void)
{
    for (int s = 0; s <= MAX_SRC; s++)
        room[s] = test_alloc(MOST * 32 + 3 * MARGIN);
    want = malloc(MOST * 32);
    if (!want)
        bail("no memory");
    what_is_allowed();
    values_by_hand();
    half_conversions();
    copies(1);
    words_by_hand();
    words(1);
    for (uint32_t v = 0; v < OCCL_DEV_VARIANTS; v++) {
        if (v > 0 && !occl_dev_variant(1 << 20)) {
            skip(1, "this processor has no AVX2");
            continue;
        }
        every_type_and_op(1, v);
    }
#if MAX_LANES > 1
    copies(MAX_LANES);
    words(2);
    words(MAX_LANES);
    every_type_and_op(3, 0);
#endif
    for (int s = 0; s <= MAX_SRC; s++)
        free(room[s]);
    free(want);
    return tap_done();
}
#endif
