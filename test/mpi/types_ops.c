/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Types and ops on communicators of 1 to 4 ranks: every predefined pair against a reference of its own (MPI's have bugs), what is
 * refused and why, this library's types and ops, derived types with and without gaps, ops of the program, and what is freed
 * while it is in use.
 */
#include "occl_test.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <wchar.h>

static MPI_Comm comm;
static int me, np;

#if defined(__SIZEOF_FLOAT128__) && defined(__SIZEOF_INT128__)
#define HAVE_128 1
typedef unsigned __int128 word_t;
typedef __int128 sword_t;
#else
#define HAVE_128 0
typedef uint64_t word_t;
typedef int64_t sword_t;
#endif

/* --- every predefined pair ---------------------------------------------------------------------------------------- */

typedef enum { CINT, CUINT, FINT, REAL, LONGD, CPLX, CPLXLD, LOGIC, OCTET, CHARS, PAIRS } group_t;
typedef struct {
    const char *name;
    MPI_Datatype type;
    group_t group;
    char first;        /* PAIRS: i or f, the size of the value ... */
    int first_size, second_at, second_size; /* ... and where the second one is; its size; second_size > 4 of f: a float */
} type_t;

#define T(mpi, group) {#mpi, mpi, group, 0, 0, 0, 0}
#define P(mpi, kind, a, b) {#mpi, mpi, PAIRS, kind, sizeof(a), (int)offsetof(struct { a v; b k; }, k), (int)sizeof(b)}
enum { MAX_TYPES = 80 };
static int make_types(type_t *t)
{
    type_t all[] = {
        T(MPI_SIGNED_CHAR, CINT), T(MPI_SHORT, CINT), T(MPI_INT, CINT), T(MPI_LONG, CINT), T(MPI_LONG_LONG, CINT),
        T(MPI_UNSIGNED_CHAR, CUINT), T(MPI_UNSIGNED_SHORT, CUINT), T(MPI_UNSIGNED, CUINT), T(MPI_UNSIGNED_LONG, CUINT),
        T(MPI_UNSIGNED_LONG_LONG, CUINT), T(MPI_INT8_T, CINT), T(MPI_INT16_T, CINT), T(MPI_INT32_T, CINT), T(MPI_INT64_T, CINT),
        T(MPI_UINT8_T, CUINT), T(MPI_UINT16_T, CUINT), T(MPI_UINT32_T, CUINT), T(MPI_UINT64_T, CUINT), T(MPI_AINT, FINT),
        T(MPI_OFFSET, FINT), T(MPI_COUNT, FINT), T(MPI_INTEGER, FINT), T(MPI_INTEGER1, FINT), T(MPI_INTEGER2, FINT),
        T(MPI_INTEGER4, FINT), T(MPI_INTEGER8, FINT), T(MPI_FLOAT, REAL), T(MPI_DOUBLE, REAL), T(MPI_LONG_DOUBLE, LONGD),
        T(MPI_REAL, REAL), T(MPI_DOUBLE_PRECISION, REAL), T(MPI_REAL4, REAL), T(MPI_REAL8, REAL), T(MPI_C_COMPLEX, CPLX),
        T(MPI_C_FLOAT_COMPLEX, CPLX), T(MPI_C_DOUBLE_COMPLEX, CPLX), T(MPI_C_LONG_DOUBLE_COMPLEX, CPLXLD), T(MPI_COMPLEX, CPLX),
        T(MPI_DOUBLE_COMPLEX, CPLX), T(MPI_COMPLEX8, CPLX), T(MPI_COMPLEX16, CPLX), T(MPI_CXX_FLOAT_COMPLEX, CPLX),
        T(MPI_CXX_DOUBLE_COMPLEX, CPLX), T(MPI_CXX_LONG_DOUBLE_COMPLEX, CPLXLD), T(MPI_C_BOOL, LOGIC), T(MPI_CXX_BOOL, LOGIC),
        T(MPI_LOGICAL, LOGIC), T(MPI_BYTE, OCTET), T(MPI_PACKED, CHARS), T(MPI_CHAR, CHARS), T(MPI_WCHAR, CHARS),
        T(MPI_CHARACTER, CHARS), P(MPI_FLOAT_INT, 'f', float, int), P(MPI_DOUBLE_INT, 'f', double, int),
        P(MPI_LONG_INT, 'i', long, int), P(MPI_SHORT_INT, 'i', short, int), P(MPI_2INT, 'i', int, int),
        P(MPI_LONG_DOUBLE_INT, 'l', long double, int), P(MPI_2INTEGER, 'i', int, int), P(MPI_2REAL, 'F', float, float),
        P(MPI_2DOUBLE_PRECISION, 'F', double, double),
#if HAVE_128 && defined(MPI_REAL16)
        T(MPI_REAL16, REAL),
#endif
#if HAVE_128 && defined(MPI_COMPLEX32)
        T(MPI_COMPLEX32, CPLX),
#endif
#ifdef MPI_INTEGER16
        T(MPI_INTEGER16, FINT),
#endif
#ifdef MPI_LOGICAL1
        T(MPI_LOGICAL1, LOGIC), T(MPI_LOGICAL2, LOGIC), T(MPI_LOGICAL4, LOGIC), T(MPI_LOGICAL8, LOGIC),
#endif
    };
    int n = 0;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int size = 0;
        /* An MPI without Fortran has no Fortran types. */
        if (all[i].type != MPI_DATATYPE_NULL && MPI_Type_size(all[i].type, &size) == MPI_SUCCESS && size > 0)
            t[n++] = all[i];
    }
    return n;
}

enum { SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC, AVG, NOPS };
static const char *const op_name[NOPS] = {"MPI_SUM",  "MPI_PROD", "MPI_MIN",  "MPI_MAX",    "MPI_LAND",   "MPI_LOR",      "MPI_LXOR",
                                          "MPI_BAND", "MPI_BOR",  "MPI_BXOR", "MPI_MINLOC", "MPI_MAXLOC", "MPIX_OCCL_AVG"};
static MPI_Op op_at(int i)
{
    MPI_Op all[NOPS] = {MPI_SUM,  MPI_PROD, MPI_MIN,  MPI_MAX,    MPI_LAND,   MPI_LOR,      MPI_LXOR,
                        MPI_BAND, MPI_BOR,  MPI_BXOR, MPI_MINLOC, MPI_MAXLOC, MPIX_OCCL_AVG};
    return all[i];
}

/* The table of MPI-3.1, 5.9.2; an average goes with a sum. */
static int allowed(group_t g, int o)
{
    int arith = o == SUM || o == PROD || o == AVG, order = o == MIN || o == MAX;
    int logic = o == LAND || o == LOR || o == LXOR, bits = o == BAND || o == BOR || o == BXOR;

    switch (g) {
    case CINT:
    case CUINT: return arith || order || logic || bits;
    case FINT: return arith || order || bits;
    case REAL:
    case LONGD: return arith || order;
    case CPLX:
    case CPLXLD: return arith;
    case LOGIC: return logic;
    case OCTET: return bits;
    case CHARS: return 0;
    case PAIRS: return o == MINLOC || o == MAXLOC;
    }
    return 0;
}

/* Numbers that show signs, wrap, and are exact in every float */
static int value(int rank, size_t i, int salt) { return (int)((i * 7 + (size_t)rank * 5 + (size_t)salt * 3) % 9) - 4; }
/* Of unsigned types the negative ones are the largest: what an MPI that compares them as signed gets wrong */
static word_t get_int(const void *p, int size, int is_signed)
{
    word_t w = 0;

    memcpy(&w, p, (size_t)size);
    if (is_signed && size < (int)sizeof w && w >> (8 * size - 1))
        w |= ~(word_t)0 << (8 * size);
    return w;
}
static void put_float(void *p, int size, int is_long, long double v)
{
    if (size == 4)
        *(float *)p = (float)v;
    else if (size == 8)
        *(double *)p = (double)v;
    else if (is_long)
        *(long double *)p = v;
#if HAVE_128
    else
        *(__float128 *)p = (__float128)v;
#endif
}
/* Sums and products are small whole numbers, exact anywhere; a quotient is rounded once, in the type. */
static void put_quotient(void *p, int size, int is_long, long double v, int by)
{
    if (size == 4)
        *(float *)p = (float)v / (float)by;
    else if (size == 8)
        *(double *)p = (double)v / by;
    else if (is_long)
        *(long double *)p = v / by;
#if HAVE_128
    else
        *(__float128 *)p = (__float128)v / by;
#endif
}

static void put(const type_t *t, void *at, int size, int rank, size_t i, int salt)
{
    int v = value(rank, i, salt), is_long = t->group == LONGD || t->group == CPLXLD;
    sword_t w = v;

    switch (t->group) {
    case CINT: case CUINT: case FINT: case OCTET: case CHARS: memcpy(at, &w, (size_t)size); break;
    case LOGIC: w = (v & 3) == 1; memcpy(at, &w, (size_t)size); break;
    case REAL: case LONGD: put_float(at, size, is_long, v); break;
    case CPLX: case CPLXLD:
        put_float(at, size / 2, is_long, v);
        put_float((char *)at + size / 2, size / 2, is_long, value(rank, i, salt + 1));
        break;
    case PAIRS: {
        int k = value(rank, i, salt + 2) + 4;
        w = k;
        if (t->first == 'i') {
            sword_t x = v;
            memcpy(at, &x, (size_t)t->first_size);
        } else {
            put_float(at, t->first_size, t->first == 'l', v);
        }
        if (t->first == 'F')
            put_float((char *)at + t->second_at, t->second_size, 0, k);
        else
            memcpy((char *)at + t->second_at, &w, (size_t)t->second_size);
        break;
    }
    }
}

static void reference(const type_t *t, int o, void *at, int size, size_t i, int salt)
{
    int is_long = t->group == LONGD || t->group == CPLXLD, is_signed = t->group == CINT || t->group == FINT;
    char cell[64];
    word_t acc = 0;
    long double re = 0, im = 0;
    int best = 0;

    switch (t->group) {
    case CINT: case CUINT: case FINT: case OCTET: case LOGIC: case CHARS:
        for (int r = 0; r < np; r++) {
            word_t w;
            put(t, cell, size, r, i, salt);
            w = get_int(cell, size, is_signed);
            if (r == 0) {
                acc = o >= LAND && o <= LXOR && np > 1 ? w != 0 : w;
                continue;
            }
            switch (o) {
            case SUM: case AVG: acc += w; break;
            case PROD: acc *= w; break;
            case MIN: acc = (is_signed ? (sword_t)w < (sword_t)acc : w < acc) ? w : acc; break;
            case MAX: acc = (is_signed ? (sword_t)w > (sword_t)acc : w > acc) ? w : acc; break;
            case LAND: acc = acc && w; break;
            case LOR: acc = acc || w; break;
            case LXOR: acc = !acc != !w; break;
            case BAND: acc &= w; break;
            case BOR: acc |= w; break;
            case BXOR: acc ^= w; break;
            }
            memcpy(cell, &acc, sizeof acc);
            acc = get_int(cell, size, is_signed);
        }
        if (o == AVG && np > 1)
            acc = is_signed ? (word_t)((sword_t)acc / np) : acc / (word_t)np;
        memcpy(at, &acc, (size_t)size);
        break;
    case REAL: case LONGD: case CPLX: case CPLXLD:
        for (int r = 0; r < np; r++) {
            long double x = value(r, i, salt), y = t->group == CPLX || t->group == CPLXLD ? value(r, i, salt + 1) : 0, z = re;
            if (r == 0)
                re = x, im = y;
            else if (o == SUM || o == AVG)
                re += x, im += y;
            else if (o == PROD)
                re = re * x - im * y, im = z * y + im * x;
            else
                re = (o == MIN) == (x < re) ? x : re;
        }
        if (t->group == CPLX || t->group == CPLXLD) {
            put_quotient(at, size / 2, is_long, re, o == AVG ? np : 1);
            put_quotient((char *)at + size / 2, size / 2, is_long, im, o == AVG ? np : 1);
        } else {
            put_quotient(at, size, is_long, re, o == AVG ? np : 1);
        }
        break;
    case PAIRS:
        for (int r = 1; r < np; r++) {
            int v = value(r, i, salt), b = value(best, i, salt);
            if (o == MINLOC ? v < b : v > b)
                best = r;
            else if (v == b && value(r, i, salt + 2) < value(best, i, salt + 2))
                best = r;
        }
        put(t, at, size, best, i, salt);
        break;
    }
}

/* Equal but for padding; two zeros are equal whatever their signs (products of small numbers have both). */
static int equal(const type_t *t, const void *a, const void *b, int size)
{
    int parts[2][2] = {{0, size}, {0, 0}}, is_float = t->group >= REAL && t->group <= CPLXLD;

    if (t->group == PAIRS) {
        parts[0][1] = t->first == 'l' ? 10 : t->first_size;
        parts[1][0] = t->second_at;
        parts[1][1] = t->second_size;
    } else if (t->group == CPLX || t->group == CPLXLD) {
        parts[0][1] = parts[1][1] = t->group == CPLXLD ? 10 : size / 2;
        parts[1][0] = size / 2;
    } else if (t->group == LONGD) {
        parts[0][1] = 10;
    }
    for (int k = 0; k < 2; k++) {
        const unsigned char *x = (const unsigned char *)a + parts[k][0], *y = (const unsigned char *)b + parts[k][0];
        int n = parts[k][1], zero = is_float;

        for (int i = 0; i < n && zero; i++)
            zero = (x[i] & (i == n - 1 ? 0x7f : 0xff)) == 0 && (y[i] & (i == n - 1 ? 0x7f : 0xff)) == 0;
        if (!zero && memcmp(x, y, (size_t)n) != 0)
            return 0;
    }
    return 1;
}

/* All ops on all types at once, in flight together, started in another order on every rank; small ones and large ones */
static void predefined_pairs(size_t n)
{
    static type_t t[MAX_TYPES];
    static struct {
        int type, op, size, extent;
        char *in, *out;
    } c[MAX_TYPES * NOPS];
    static MPI_Request req[MAX_TYPES * NOPS];
    static int order[MAX_TYPES * NOPS];
    int ntypes = make_types(t), cases = 0, refused = 0, bad = 0, wrong = 0;
    size_t first = n > 1000 ? 5 : 1; /* of many elements every fifth pair */

    for (int i = 0; i < ntypes; i++) {
        for (int o = 0; o < NOPS; o++) {
            MPI_Aint lb, extent;
            int size;

            MPI_Type_size(t[i].type, &size);
            MPI_Type_get_extent(t[i].type, &lb, &extent);
            if (!allowed(t[i].group, o)) {
                char a[64] = {0}, b[64];
                MPI_Request r;
                if (n <= 1000 && ++refused)
                    bad += !is_class(MPIX_Occl_iallreduce(a, b, 1, t[i].type, op_at(o), 0, comm, &r), MPI_ERR_OP, op_name[o], comm);
                continue;
            }
            if ((size_t)(i * NOPS + o) % first)
                continue;
            c[cases].type = i;
            c[cases].op = o;
            c[cases].size = size;
            c[cases].extent = (int)extent;
            c[cases].in = calloc(n, (size_t)extent);
            c[cases].out = calloc(n, (size_t)extent);
            for (size_t k = 0; k < n; k++)
                put(&t[i], c[cases].in + k * (size_t)extent, size, me, k, o);
            order[cases] = cases;
            cases++;
        }
    }
    if (n <= 1000)
        ok_all(bad == 0, "%d ranks: %d pairs that MPI does not allow are MPI_ERR_OP, with the op's name", np, refused);
    srand(17u + (unsigned)me);
    for (int i = cases; i > 1; i--) {
        int j = rand() % i, k = order[i - 1];
        order[i - 1] = order[j];
        order[j] = k;
    }
    bad = 0;
    for (int i = 0; i < cases; i++) {
        int k = order[i];
        int rc = MPIX_Occl_iallreduce(c[k].in, c[k].out, (int)n, t[c[k].type].type, op_at(c[k].op), k, comm, &req[k]);
        if (rc != MPI_SUCCESS && ++bad <= 5)
            tap_rank_diag("%s %s is refused: %s", t[c[k].type].name, op_name[c[k].op], text_of(rc));
        if (rc != MPI_SUCCESS)
            req[k] = MPI_REQUEST_NULL;
    }
    ok_all(bad == 0, "%d ranks: every op is accepted on every type that MPI allows it on (%d pairs, %zu elements)", np, cases, n);
    ok_all(MPIX_Occl_waitall(cases, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "%d ranks: all of them, started in any order, complete", np);
    for (int k = 0; k < cases; k++) {
        const type_t *u = &t[c[k].type];
        for (size_t i = 0; i < n; i++) {
            _Alignas(32) char ref[64] = {0};
            reference(u, c[k].op, ref, c[k].size, i, c[k].op);
            if (!equal(u, c[k].out + i * (size_t)c[k].extent, ref, c[k].size)) {
                if (++wrong <= 5)
                    tap_rank_diag("%s of %s: element %zu is wrong", op_name[c[k].op], u->name, i);
                break;
            }
        }
        free(c[k].in);
        free(c[k].out);
    }
    ok_all(wrong == 0, "%d ranks: each gives what MPI says it is (%zu elements)", np, n);
}

/* --- this library's types and ops --------------------------------------------------------------------------------- */

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* A float that the narrow type has -> its code: e exponent bits, m fraction bits */
static unsigned code_of(float f, int e, int m)
{
    uint32_t u = bits_of(f), exp = (u >> 23 & 255) - 127 + ((1u << (e - 1)) - 1);

    return f == 0 ? 0 : (u >> 31) << (e + m) | exp << m | (u & 0x7fffff) >> (23 - m);
}

static void narrow_types(void)
{
    const struct {
        const char *name;
        MPI_Datatype type;
        int e, m, bytes;
        float big; /* 1 is less than half of its last place ... */
    } t[] = {{"MPIX_OCCL_FLOAT16", MPIX_OCCL_FLOAT16, 5, 10, 2, 2048},
             {"MPIX_OCCL_BFLOAT16", MPIX_OCCL_BFLOAT16, 8, 7, 2, 256},
             {"MPIX_OCCL_FLOAT8_E4M3", MPIX_OCCL_FLOAT8_E4M3, 4, 3, 1, 16},
             {"MPIX_OCCL_FLOAT8_E5M2", MPIX_OCCL_FLOAT8_E5M2, 5, 2, 1, 8}};
    const int counts[] = {5, 3000, 300000};
    /* ... so added one by one nothing comes of them; together: */
    const int more[5] = {0, 0, 0, 2, 4}; /* big + 1 is a tie, to even: big; + 2; + 3 is a tie: + 4 */

    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char name[MPI_MAX_OBJECT_NAME] = "";
        int len, size = 0, good = t[i].type != MPI_DATATYPE_NULL;

        MPI_Type_get_name(t[i].type, name, &len);
        MPI_Type_size(t[i].type, &size);
        good = good && strcmp(name, t[i].name) == 0 && size == t[i].bytes;
        for (size_t k = 0; k < 3 && good; k++) {
            size_t n = (size_t)counts[k];
            unsigned char *in = calloc(n, 2), *out = calloc(n, 2);
            unsigned mine = code_of(me == 0 ? t[i].big : 1, t[i].e, t[i].m), want = code_of(t[i].big + (float)more[np], t[i].e, t[i].m), got;
            MPI_Request req[2];

            for (size_t j = 0; j < n; j++)
                memcpy(in + j * (size_t)size, &mine, (size_t)size);
            good = MPIX_Occl_iallreduce(in, out, (int)n, t[i].type, MPI_SUM, 3, comm, &req[0]) == MPI_SUCCESS &&
                   MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
            for (size_t j = 0; j < n && good; j++) {
                got = 0;
                memcpy(&got, out + j * (size_t)size, (size_t)size);
                if (got != want) {
                    tap_rank_diag("%s of %d elements: element %zu is 0x%x and not 0x%x", t[i].name, counts[k], j, got, want);
                    good = 0;
                }
            }
            /* The mean of np times the same is that, though the sum may be out of range. */
            want = t[i].e == 4 ? 0x7e : t[i].e == 8 ? 0x7f7f : t[i].m == 10 ? 0x7bff : 0x7b;
            for (size_t j = 0; j < n; j++)
                memcpy(in + j * (size_t)size, &want, (size_t)size);
            if (t[i].e != 8)
                good &= MPIX_Occl_iallreduce(in, out, (int)n, t[i].type, MPIX_OCCL_AVG, 3, comm, &req[0]) == MPI_SUCCESS &&
                        MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS && memcmp(in, out, n * (size_t)size) == 0;
            free(in);
            free(out);
        }
        ok_all(good, "%d ranks: %s adds up in float and is rounded once; its mean is divided before that", np, t[i].name);
    }
    {
        MPI_Datatype four;
        unsigned char in[12], out[12];
        MPI_Request req;
        int good;

        MPI_Type_contiguous(4, MPIX_OCCL_FLOAT8_E4M3, &four);
        MPI_Type_commit(&four);
        memset(in, (int)code_of(2, 4, 3), sizeof in);
        good = MPIX_Occl_iallreduce(in, out, 3, four, MPI_SUM, 3, comm, &req) == MPI_SUCCESS;
        if (!good)
            tap_rank_diag("%s", whole_text(comm));
        MPI_Type_free(&four);
        good = good && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
        memset(in, (int)code_of((float)(2 * np), 4, 3), sizeof in);
        ok_all(good && memcmp(in, out, sizeof in) == 0, "%d ranks: and goes into derived types", np);
    }
}

static int raised;
static void count_errors(MPI_Comm *c, int *code, ...)
{
    (void)c, (void)code;
    raised++;
}

static void premultiplied(void)
{
    enum { N = 40000 };
    float *in = malloc(N * sizeof *in), *out = malloc(N * sizeof *out), factor = 0.75f, other = 0.5f + 0.25f * (float)(me + 1);
    unsigned half_in[3], half_out[3] = {0};
    uint16_t third = (uint16_t)code_of(0.625f, 8, 7), narrow[2], nout[2];
    long double ld = 3, lx = me, lr = 0;
    MPI_Op op, op16, opld, differing, op_was;
    MPI_Errhandler counting;
    MPI_Request req[4];
    int good, rc, x = 1, y = 2;

    (void)half_in, (void)half_out;
    good = MPIX_Occl_op_create_premul(&factor, MPI_FLOAT, &op) == MPI_SUCCESS &&
           MPIX_Occl_op_create_premul(&third, MPIX_OCCL_BFLOAT16, &op16) == MPI_SUCCESS &&
           MPIX_Occl_op_create_premul(&ld, MPI_LONG_DOUBLE, &opld) == MPI_SUCCESS &&
           MPIX_Occl_op_create_premul(&other, MPI_FLOAT, &differing) == MPI_SUCCESS;
    ok_all(good, "%d ranks: pre-multiplied sums are made of scalars", np);
    ok_all(is_class(MPIX_Occl_iallreduce(in, out, 1, MPI_DOUBLE, op, 1, comm, &req[0]), MPI_ERR_OP, "another type", comm),
           "%d ranks: a scalar of another type is refused", np);
    for (int i = 0; i < N; i++)
        in[i] = (float)((i % 1000) * (me + 1));
    narrow[0] = (uint16_t)code_of(256, 8, 7), narrow[1] = (uint16_t)code_of(3, 8, 7);
    good = 1;
    for (int n = 7; n <= N; n = n == 7 ? 3000 : n == 3000 ? N : N + 1) {
        memset(out, 0, N * sizeof *out);
        good &= MPIX_Occl_iallreduce(in, out, n, MPI_FLOAT, op, 1, comm, &req[0]) == MPI_SUCCESS;
        good &= MPIX_Occl_iallreduce(narrow, nout, 2, MPIX_OCCL_BFLOAT16, op16, 2, comm, &req[1]) == MPI_SUCCESS;
        good &= MPIX_Occl_iallreduce(&lx, &lr, 1, MPI_LONG_DOUBLE, opld, 3, comm, &req[2]) == MPI_SUCCESS;
        good &= MPIX_Occl_waitall(3, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < n; i++)
            good &= out[i] == 0.75f * (float)((i % 1000) * np * (np + 1) / 2);
        good &= of_bits((uint32_t)nout[0] << 16) == 160.0f * (float)np && of_bits((uint32_t)nout[1] << 16) == 1.875f * (float)np;
        good &= lr == 3.0L * np * (np - 1) / 2;
    }
    ok_all(good, "%d ranks: every member's elements are multiplied and added up", np);
    for (int i = 0; i < 5; i++)
        out[i] = in[i];
    good = MPIX_Occl_iallreduce(MPI_IN_PLACE, out, 5, MPI_FLOAT, op, 1, comm, &req[0]) == MPI_SUCCESS;
    op_was = op;
    good &= MPIX_Occl_op_free(&op) == MPI_SUCCESS && op == MPI_OP_NULL;
    good &= MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 5; i++)
        good &= out[i] == 0.75f * (float)(i * np * (np + 1) / 2);
    ok_all(good, "%d ranks: in place, too, and the op may be freed meanwhile", np);
    (void)op_was;
    if (np > 1) {
        rc = MPIX_Occl_iallreduce(in, out, 5, MPI_FLOAT, differing, 1, comm, &req[0]);
        if (rc == MPI_SUCCESS)
            rc = MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE);
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "premul", comm), "%d ranks: other scalars are a mismatch on every member", np);
    } else {
        skip(1, "a mismatch needs two ranks");
    }
    MPIX_Occl_op_free(&op16);
    MPIX_Occl_op_free(&opld);
    MPIX_Occl_op_free(&differing);
    op = MPI_SUM;
    MPI_Comm_create_errhandler(count_errors, &counting);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, counting);
    raised = 0;
    rc = MPIX_Occl_op_free(&op);
    ok_all(class_of(rc) == MPI_ERR_OP && raised == 1, "%d ranks: an op that was not made here is not freed", np);
    raised = 0;
    MPI_Reduce_local(&x, &y, 1, MPI_INT, MPIX_OCCL_AVG);
    ok_all(raised == 1, "%d ranks: an average in one of MPI's own operations is an error, not a wrong number", np);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&counting);
    free(in);
    free(out);
}

/* --- NaN, and bits ------------------------------------------------------------------------------------------------ */

/* Whoever gives a NaN, wherever it comes in the order, and however many elements there are: all get one, and the same bits. */
static void not_a_number(void)
{
    const MPI_Op what[] = {MPI_MIN, MPI_MAX, MPI_SUM, MPIX_OCCL_AVG};
    const int counts[] = {4, 500, 5001, 100000};
    int good = 1, same = 1;

    for (int c = 0; c < 4; c++) {
        int n = counts[c];
        float *in = malloc((size_t)n * sizeof *in), *out = malloc((size_t)n * sizeof *out), *all = malloc((size_t)n * sizeof *all * (size_t)np);

        for (int k = 0; k < 4; k++) {
            MPI_Request req;
            /* Element i: NaN of rank i % (np + 1), of nobody for the last. Thirds, so that the order of a sum shows. */
            for (int i = 0; i < n; i++)
                in[i] = i % (np + 1) == me ? of_bits(0x7fc00000u | (uint32_t)me) : 1.0f / 3 * (float)((me + 1) * (i % 97)) - 1e5f * (float)(i % 3);
            good &= MPIX_Occl_iallreduce(in, out, n, MPI_FLOAT, what[k], 5, comm, &req) == MPI_SUCCESS &&
                    MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
            for (int i = 0; i < n; i++)
                good &= !isnan(out[i]) == (i % (np + 1) == np);
            MPI_Allgather(out, n, MPI_FLOAT, all, n, MPI_FLOAT, comm);
            for (int r = 1; r < np; r++)
                same &= memcmp(all, all + (size_t)r * (size_t)n, (size_t)n * sizeof *all) == 0;
        }
        free(in);
        free(out);
        free(all);
    }
    ok_all(good, "%d ranks: the least, largest, sum and mean of a NaN and anything is NaN, whoever gives it", np);
    ok_all(same, "%d ranks: and all members have the same bits, of NaNs too", np);
}

/* --- derived types ------------------------------------------------------------------------------------------------ */

typedef struct {
    double v;
    int k;
    char c;
} mixed_t; /* 3 bytes of padding at its end */

enum { NMADE = 14 };
static MPI_Datatype made[NMADE];
static const char *const made_name[NMADE] = {"vector", "hvector", "indexed", "hindexed", "indexed_block", "hindexed_block", "struct",
                                             "subarray", "subarray of Fortran", "resized", "darray", "darray, cyclic", "nested",
                                             "backwards"};
static void make_derived(void)
{
    int lens[4] = {3, 1, 0, 2}, disp[4] = {8, 1, 5, 14}, size[3] = {4, 5, 6}, sub[3] = {2, 3, 4}, start[3] = {1, 1, 2}, mlen[3] = {1, 1, 1};
    int gsize[2] = {7, 9}, distrib[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, darg[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2}, procs[2] = {2, 2};
    int cyclic[2] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}, cargs[2] = {3, MPI_DISTRIBUTE_DFLT_DARG}, cprocs[2] = {3, 1};
    MPI_Aint where[4] = {40, 4, 16, 72}, mdisp[3] = {offsetof(mixed_t, v), offsetof(mixed_t, k), offsetof(mixed_t, c)};
    MPI_Datatype mtypes[3] = {MPI_DOUBLE, MPI_INT, MPI_CHAR}, tmp;

    MPI_Type_vector(4, 2, 3, MPI_INT, &made[0]);
    MPI_Type_create_hvector(5, 1, 12, MPI_SHORT, &made[1]);
    MPI_Type_indexed(4, lens, disp, MPI_FLOAT, &made[2]);
    MPI_Type_create_hindexed(4, lens, where, MPI_INT, &made[3]);
    MPI_Type_create_indexed_block(4, 2, disp, MPI_DOUBLE, &made[4]);
    MPI_Type_create_hindexed_block(4, 1, where, MPI_INT, &made[5]);
    MPI_Type_create_struct(3, mlen, mdisp, mtypes, &tmp);
    MPI_Type_create_resized(tmp, 0, sizeof(mixed_t), &made[6]);
    MPI_Type_free(&tmp);
    MPI_Type_create_subarray(3, size, sub, start, MPI_ORDER_C, MPI_INT, &made[7]);
    MPI_Type_create_subarray(3, size, sub, start, MPI_ORDER_FORTRAN, MPI_SHORT, &made[8]);
    MPI_Type_create_resized(MPI_INT, -4, 20, &made[9]);
    MPI_Type_create_darray(4, 3, 2, gsize, distrib, darg, procs, MPI_ORDER_C, MPI_INT, &made[10]);
    MPI_Type_create_darray(3, 1, 2, gsize, cyclic, cargs, cprocs, MPI_ORDER_FORTRAN, MPI_DOUBLE, &made[11]);
    MPI_Type_vector(2, 2, 3, made[0], &made[12]);
    MPI_Type_vector(3, 1, -2, MPI_INT, &made[13]);
    for (int i = 0; i < NMADE; i++)
        MPI_Type_commit(&made[i]);
}

/* Room for n of a type on both sides of `base`, all of it filled. */
typedef struct {
    unsigned char *room, *base;
    size_t bytes;
} vessel_t;
static vessel_t vessel(MPI_Datatype t, int n, int salt)
{
    MPI_Aint lb, extent, tlb, textent;
    vessel_t v;

    MPI_Type_get_extent(t, &lb, &extent);
    MPI_Type_get_true_extent(t, &tlb, &textent);
    v.bytes = (size_t)(labs(extent) * n + labs(tlb) + labs(lb) + textent) * 2 + 128;
    v.room = malloc(v.bytes);
    v.base = v.room + v.bytes / 2 / 16 * 16;
    for (size_t i = 0; i < v.bytes; i++)
        v.room[i] = (unsigned char)(i * 7 + (size_t)salt * 13 + (i >> 8));
    return v;
}
/* What MPI_Pack makes of n elements; `packed` is big enough. */
static int pack(const void *base, int n, MPI_Datatype t, void *packed, int room)
{
    int at = 0;

    MPI_Pack(base, n, t, packed, room, &at, MPI_COMM_SELF);
    return at;
}
static void unpack(const void *packed, int bytes, void *base, int n, MPI_Datatype t)
{
    int at = 0;

    MPI_Unpack(packed, bytes, &at, base, n, t, MPI_COMM_SELF);
}

/* Every movement with a type with gaps at both ends, against MPI_Pack and MPI_Unpack; what is not of the type is left alone. */
static void movements(void)
{
    enum { MOST = 700 };
    static char packed[4][1 << 18];
    int bad = 0, cases = 0;

    for (int k = 0; k < NMADE; k++) {
        for (int n = 1; n <= MOST; n = n == 1 ? 5 : n == 5 ? MOST : MOST + 1) {
            MPI_Datatype t = made[k];
            int size, right = (me + 1) % np, left = (me + np - 1) % np, root = n % np, good = 1;
            vessel_t in = vessel(t, n * np, me), out = vessel(t, n * np, me + 100), want = vessel(t, n * np, me + 100), of;
            MPI_Request req[2];
            MPI_Status st[2];

            MPI_Type_size(t, &size);
            for (int what = 0; what < 7; what++) {
                memcpy(out.room, want.room, out.bytes);
                switch (what) {
                case 0: /* bcast */
                    good &= MPIX_Occl_ibcast(me == root ? in.base : out.base, n, t, root, 1, comm, &req[0]) == MPI_SUCCESS;
                    break;
                case 1: good &= MPIX_Occl_iallgather(in.base, n, t, out.base, n, t, 1, comm, &req[0]) == MPI_SUCCESS; break;
                case 2: good &= MPIX_Occl_ialltoall(in.base, n, t, out.base, n, t, 1, comm, &req[0]) == MPI_SUCCESS; break;
                case 3: good &= MPIX_Occl_igather(in.base, n, t, out.base, n, t, root, 1, comm, &req[0]) == MPI_SUCCESS; break;
                case 4: good &= MPIX_Occl_iscatter(in.base, n, t, out.base, n, t, root, 1, comm, &req[0]) == MPI_SUCCESS; break;
                case 5: /* a message that is shorter than the buffer */
                    good &= MPIX_Occl_irecv(out.base, n + 3 > n * np ? n : n + 3, t, left, 2, comm, &req[0]) == MPI_SUCCESS &&
                            MPIX_Occl_isend(in.base, n, t, right, 2, comm, &req[1]) == MPI_SUCCESS;
                    break;
                case 6: good &= MPIX_Occl_iallgather(MPI_IN_PLACE, 0, t, out.base, n, t, 1, comm, &req[0]) == MPI_SUCCESS; break;
                }
                good = good && MPIX_Occl_waitall(what == 5 ? 2 : 1, req, st) == MPI_SUCCESS;
                /* The same with MPI's own packing of what each rank has */
                {
                    vessel_t ref = vessel(t, n * np, me + 100);
                    MPI_Aint lb, extent;
                    int bytes = 0;

                    MPI_Type_get_extent(t, &lb, &extent);
                    for (int r = 0; r < np; r++) {
                        of = vessel(t, n * np, what == 6 ? r + 100 : r);
                        switch (what) {
                        case 0:
                            if (r == root && me != root) {
                                bytes = pack(of.base, n, t, packed[0], sizeof packed[0]);
                                unpack(packed[0], bytes, ref.base, n, t);
                            }
                            break;
                        case 1: case 3: case 6:
                            bytes = pack(of.base + (what == 6 ? (MPI_Aint)r * n * extent : 0), n, t, packed[0], sizeof packed[0]);
                            if (what != 3 || me == root)
                                unpack(packed[0], bytes, ref.base + (MPI_Aint)r * n * extent, n, t);
                            break;
                        case 2:
                            bytes = pack(of.base + (MPI_Aint)me * n * extent, n, t, packed[0], sizeof packed[0]);
                            unpack(packed[0], bytes, ref.base + (MPI_Aint)r * n * extent, n, t);
                            break;
                        case 4:
                            if (r == root) {
                                bytes = pack(of.base + (MPI_Aint)me * n * extent, n, t, packed[0], sizeof packed[0]);
                                unpack(packed[0], bytes, ref.base, n, t);
                            }
                            break;
                        case 5:
                            if (r == left) {
                                bytes = pack(of.base, n, t, packed[0], sizeof packed[0]);
                                unpack(packed[0], bytes, ref.base, n, t);
                            }
                            break;
                        }
                        free(of.room);
                    }
                    if (good && memcmp(out.room, ref.room, out.bytes) != 0) {
                        good = 0;
                        tap_rank_diag("%s, %d of them, movement %d: not what MPI_Pack and MPI_Unpack give", made_name[k], n, what);
                    }
                    free(ref.room);
                }
                if (!good) {
                    tap_rank_diag("%s, %d of them, movement %d: %s", made_name[k], n, what, whole_text(comm));
                    break;
                }
                cases++;
            }
            bad += !good;
            free(in.room);
            free(out.room);
            free(want.room);
        }
    }
    ok_all(bad == 0, "%d ranks: types with gaps are moved as MPI_Pack and MPI_Unpack say, and nothing between is written (%d cases)", np, cases);
}

/* What MPI allows: the same sequence of basic types in another dress. And what it does not. */
static void signatures(void)
{
    int in[60], out[60], rc, good;
    MPI_Datatype every_other, four;
    mixed_t a[3], b[3];
    struct { double v; char k; } other[3];
    MPI_Datatype twisted, tmp;
    int mlen[2] = {1, 1};
    MPI_Aint mdisp[2] = {0, 8};
    MPI_Datatype mtypes[2] = {MPI_DOUBLE, MPI_CHAR};
    MPI_Request req;

    MPI_Type_vector(2, 1, 2, MPI_INT, &every_other);
    MPI_Type_contiguous(4, MPI_INT, &four);
    MPI_Type_commit(&every_other);
    MPI_Type_commit(&four);
    MPI_Type_create_struct(2, mlen, mdisp, mtypes, &tmp);
    MPI_Type_create_resized(tmp, 0, 16, &twisted);
    MPI_Type_commit(&twisted);
    MPI_Type_free(&tmp);
    for (int i = 0; i < 60; i++)
        in[i] = me == 0 ? i : -1, out[i] = -2;
    /* The root has every other one of three, the others have plain ones. */
    rc = me == 0 ? MPIX_Occl_ibcast(in, 6, every_other, 0, 3, comm, &req) : MPIX_Occl_ibcast(out, me % 2 ? 12 : 3, me % 2 ? MPI_INT : four, 0, 3, comm, &req);
    good = rc == MPI_SUCCESS;
    MPI_Type_free(&every_other);
    MPI_Type_free(&four);
    good = good && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 12 && me != 0; i++)
        good &= out[i] == i / 2 * 3 + i % 2 * 2;
    ok_all(good, "%d ranks: a vector here and plain elements there are the same, and the types may be freed meanwhile", np);

    memset(b, 0, sizeof b);
    memset(other, 0, sizeof other);
    for (int i = 0; i < 3; i++)
        a[i] = (mixed_t){i + 0.5, i * 7, (char)('a' + i)};
    rc = MPIX_Occl_ibcast(me == 0 ? a : b, 3, made[6], 0, 3, comm, &req);
    good = rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 3 && me != 0; i++)
        good &= b[i].v == i + 0.5 && b[i].k == i * 7 && b[i].c == 'a' + i;
    ok_all(good, "%d ranks: structs of several basic types arrive", np);
    if (np > 1) {
        rc = me == 0 ? MPIX_Occl_ibcast(a, 3, made[6], 0, 3, comm, &req) : MPIX_Occl_ibcast(other, 3, twisted, 0, 3, comm, &req);
        if (rc == MPI_SUCCESS)
            rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, NULL, comm), "%d ranks: others are a mismatch on every member", np);
    } else {
        skip(1, "a mismatch needs two ranks");
    }
    rc = MPIX_Occl_iallgather(a, 1, made[6], b, 13, MPI_BYTE, 3, comm, &req);
    ok_all(is_class(rc, MPI_ERR_TYPE, "different basic types", comm), "%d ranks: two ends of one member that are made of different types are refused", np);
    MPI_Type_free(&twisted);
}

/* Blocks of any length with gaps; persistent ones, whose data change between starts; queues, in which the data are there late. */
static void gaps_in_all_forms(void)
{
    enum { N = 9, STARTS = 3 };
    int counts[4], displs[4], scounts[4], sdispls[4], good = 1, total = 0;
    MPI_Datatype col, types[4];
    int *in = malloc(sizeof(int) * 3 * 400), *out = malloc(sizeof(int) * 3 * 400);
    MPIX_Occl_Coll coll, bcast;
    MPI_Request req;
    void *queue;

    MPI_Type_create_resized(MPI_INT, 0, 12, &col); /* every third int */
    MPI_Type_commit(&col);
    for (int r = 0; r < np; r++) {
        counts[r] = N + r;
        displs[r] = total + 2;
        total += N + r + 1;
        scounts[r] = N + me;
        sdispls[r] = r * 2;
        types[r] = r % 2 ? col : MPI_INT;
    }
    for (int i = 0; i < 1200; i++)
        in[i] = me * 10000 + i, out[i] = -i;
    good &= MPIX_Occl_iallgatherv(in, N + me, col, out, counts, displs, col, 1, comm, &req) == MPI_SUCCESS &&
            MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 400; i++) {
        int here = -3 * i;
        for (int r = 0; r < np; r++)
            if (i >= displs[r] && i < displs[r] + counts[r])
                here = r * 10000 + 3 * (i - displs[r]);
        good &= out[3 * i] == here && out[3 * i + 1] == -3 * i - 1 && out[3 * i + 2] == -3 * i - 2;
    }
    ok_all(good, "%d ranks: allgatherv of every third element into every third", np);
    for (int i = 0; i < 1200; i++)
        out[i] = -i;
    good = MPIX_Occl_ialltoallv(in, scounts, sdispls, col, out, counts, displs, col, 1, comm, &req) == MPI_SUCCESS &&
           MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int r = 0; r < np; r++)
        for (int i = 0; i < counts[r]; i++)
            good &= out[3 * (displs[r] + i)] == r * 10000 + 3 * (2 * me + i);
    for (int i = 0; i < 400; i++)
        good &= out[3 * i + 1] == -3 * i - 1;
    ok_all(good, "%d ranks: alltoallv with gaps on both sides", np);
    for (int i = 0; i < 1200; i++)
        out[i] = -i;
    for (int r = 0; r < np; r++)
        displs[r] = r * 400, sdispls[r] = r * 40;
    {
        MPI_Datatype stypes[4];
        for (int r = 0; r < np; r++)
            stypes[r] = me % 2 ? col : MPI_INT; /* what I send is as I am, what I get as I say */
        good = MPIX_Occl_ialltoallw(in, scounts, sdispls, stypes, out, counts, displs, types, 1, comm, &req) == MPI_SUCCESS &&
               MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    }
    for (int r = 0; r < np; r++)
        for (int i = 0; i < counts[r]; i++)
            good &= out[r * 100 + (r % 2 ? 3 : 1) * i] == r * 10000 + me * 10 + (r % 2 ? 3 : 1) * i;
    ok_all(good, "%d ranks: alltoallw with a type for each block", np);

    good = MPIX_Occl_allgather_init(in, N, col, out, N, col, 2, comm, MPI_INFO_NULL, &coll) == MPI_SUCCESS;
    good &= MPIX_Occl_bcast_init(me == 0 ? in : out, N, col, 0, 4, comm, MPI_INFO_NULL, &bcast) == MPI_SUCCESS;
    MPI_Type_free(&col); /* persistent operations keep it */
    for (int k = 0; k < STARTS && good; k++) {
        for (int i = 0; i < 3 * N; i++)
            in[i] = me * 1000 + k * 100 + i;
        good &= MPIX_Occl_start(coll, k == 1 ? &req : MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS;
        good &= (k == 1 ? MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) : MPIX_Occl_coll_wait(coll)) == MPI_SUCCESS;
        for (int r = 0; r < np; r++)
            for (int i = 0; i < N; i++)
                good &= out[3 * (r * N + i)] == r * 1000 + k * 100 + 3 * i;
    }
    ok_all(good, "%d ranks: a persistent operation packs at each start, also when its type was freed", np);
    good = MPIX_Occl_queue_create(&queue) == MPI_SUCCESS;
    for (int i = 0; i < 3 * N * np; i++)
        out[i] = 0;
    for (int i = 0; i < 3 * N; i++)
        in[i] = me == 0 ? 5000 + i : -1;
    /* The second one sends what the first one brings; it must not be packed before. */
    good &= MPIX_Occl_start_enqueue(bcast, MPIX_OCCL_QUEUE_HOST, queue) == MPI_SUCCESS &&
            MPIX_Occl_wait_enqueue(bcast, MPIX_OCCL_QUEUE_HOST, queue) == MPI_SUCCESS;
    MPI_Type_create_resized(MPI_INT, 0, 12, &col);
    MPI_Type_commit(&col);
    {
        int *further = calloc(3 * N * 4, sizeof *further);
        good &= MPIX_Occl_gather_enqueue(me == 0 ? in : out, N, col, further, N, col, np - 1, 5, comm, MPIX_OCCL_QUEUE_HOST, queue) == MPI_SUCCESS;
        MPI_Type_free(&col);
        good &= MPIX_Occl_queue_synchronize(queue) == MPI_SUCCESS;
        for (int i = 0; i < N * np && me == np - 1; i++)
            good &= further[3 * i] == 5000 + 3 * (i % N);
        free(further);
    }
    ok_all(good, "%d ranks: in a queue, data are packed when the queue comes to it", np);
    good = MPIX_Occl_queue_free(&queue) == MPI_SUCCESS && MPIX_Occl_coll_free(&coll) == MPI_SUCCESS && MPIX_Occl_coll_free(&bcast) == MPI_SUCCESS;
    ok_all(good, "%d ranks: and all of it can be freed", np);
    free(in);
    free(out);
}

/* --- ops of the program ------------------------------------------------------------------------------------------- */

typedef struct {
    int m[4];
} matrix_t;
static MPI_Datatype matrix_type, seen_type;
static int seen_len, calls;

/* A product of 2 by 2 matrices modulo a prime: it does not commute. */
static matrix_t times(matrix_t a, matrix_t b)
{
    matrix_t r;

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            r.m[2 * i + j] = (a.m[2 * i] * b.m[j] + a.m[2 * i + 1] * b.m[2 + j]) % 9973;
    return r;
}
static void multiply(void *in, void *inout, int *len, MPI_Datatype *type)
{
    seen_type = *type;
    seen_len = *len;
    calls++;
    for (int i = 0; i < *len; i++)
        ((matrix_t *)inout)[i] = times(((matrix_t *)in)[i], ((matrix_t *)inout)[i]);
}
static matrix_t matrix(int rank, int i, int round) { return (matrix_t){{rank + 1, i % 7, round + 2, rank * 3 + i % 5 + 1}}; }
static matrix_t product(int first, int upto, int i, int round)
{
    matrix_t p = matrix(first, i, round);

    for (int r = first + 1; r < upto; r++)
        p = times(p, matrix(r, i, round));
    return p;
}

/* The largest double with its place, in a struct with padding */
static void largest(void *in, void *inout, int *len, MPI_Datatype *type)
{
    mixed_t *a = in, *b = inout;

    (void)type;
    for (int i = 0; i < *len; i++)
        if (a[i].v > b[i].v)
            b[i] = a[i];
}

static void of_the_program(int ours)
{
    enum { N = 5000 };
    MPI_Op op, most;
    matrix_t *in = malloc(sizeof *in * N * 4), *out = malloc(sizeof *out * N * 4);
    mixed_t *min = calloc(N, sizeof *min), *mout = calloc(N, sizeof *mout);
    int good, counts[4], before = 0;
    const char *made_by = ours ? "MPIX_Occl_op_create" : "MPI_Op_create";
    MPIX_Occl_Coll coll;
    MPI_Request req[7];

    MPI_Type_contiguous(4, MPI_INT, &matrix_type);
    MPI_Type_commit(&matrix_type);
    good = (ours ? MPIX_Occl_op_create(multiply, 0, &op) : MPI_Op_create(multiply, 0, &op)) == MPI_SUCCESS;
    good &= (ours ? MPIX_Occl_op_create(largest, 1, &most) : MPI_Op_create(largest, 1, &most)) == MPI_SUCCESS;
    for (int n = 1; n <= N && good; n = n == 1 ? 300 : n == 300 ? N : N + 1) {
        for (int i = 0; i < n; i++)
            in[i] = matrix(me, i, 0);
        calls = 0;
        good = MPIX_Occl_iallreduce(in, out, n, matrix_type, op, 1, comm, &req[0]) == MPI_SUCCESS &&
               MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < n; i++) {
            matrix_t p = product(0, np, i, 0);
            good &= memcmp(&out[i], &p, sizeof p) == 0;
        }
        good &= np == 1 || (calls == np - 1 && seen_len == n && (!ours || seen_type == matrix_type));
        /* in place, and the others */
        memcpy(out, in, sizeof *in * (size_t)n);
        good &= MPIX_Occl_ireduce(me == np - 1 ? MPI_IN_PLACE : in, out, n, matrix_type, op, np - 1, 1, comm, &req[0]) == MPI_SUCCESS &&
                MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < n && me == np - 1; i++) {
            matrix_t p = product(0, np, i, 0);
            good &= memcmp(&out[i], &p, sizeof p) == 0;
        }
        good &= MPIX_Occl_iscan(in, out, n, matrix_type, op, 1, comm, &req[0]) == MPI_SUCCESS && MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < n; i++) {
            matrix_t p = product(0, me + 1, i, 0);
            good &= memcmp(&out[i], &p, sizeof p) == 0;
        }
        memset(out, 7, sizeof *out * (size_t)n);
        good &= MPIX_Occl_iexscan(in, out, n, matrix_type, op, 1, comm, &req[0]) == MPI_SUCCESS && MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < n; i++) {
            matrix_t p;
            memset(&p, 7, sizeof p);
            if (me > 0)
                p = product(0, me, i, 0);
            good &= memcmp(&out[i], &p, sizeof p) == 0;
        }
        if (!good)
            tap_rank_diag("%s, %d elements: %s", made_by, n, whole_text(comm));
    }
    ok_all(good, "%d ranks: ops of %s are called with MPI's datatype and length, in rank order", np, made_by);
    for (int r = 0; r < np; r++) {
        counts[r] = 2 + r;
        for (int i = 0; i < 3; i++)
            in[r * 3 + i] = matrix(me, r * 3 + i, 0);
    }
    good = MPIX_Occl_ireduce_scatter_block(in, out, 3, matrix_type, op, 1, comm, &req[0]) == MPI_SUCCESS &&
           MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 3; i++) {
        matrix_t p = product(0, np, me * 3 + i, 0);
        good &= memcmp(&out[i], &p, sizeof p) == 0;
    }
    for (int i = 0; i < 30; i++)
        in[i] = matrix(me, i, 0);
    for (int r = 0; r < me; r++)
        before += counts[r];
    good &= MPIX_Occl_ireduce_scatter(in, out, counts, matrix_type, op, 1, comm, &req[0]) == MPI_SUCCESS &&
            MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < counts[me]; i++) {
        matrix_t p = product(0, np, before + i, 0);
        good &= memcmp(&out[i], &p, sizeof p) == 0;
    }
    ok_all(good, "%d ranks: each gets its part (%s)", np, made_by);
    for (int i = 0; i < N; i++) {
        min[i] = (mixed_t){(i * 7 + me * 5) % 11 + me * 0.01, me, (char)i};
        memset(&mout[i], 0, sizeof mout[i]);
    }
    good = MPIX_Occl_iallreduce(min, mout, N, made[6], most, 1, comm, &req[0]) == MPI_SUCCESS && MPI_Wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < N; i++) {
        int best = 0;
        for (int r = 1; r < np; r++)
            if ((i * 7 + r * 5) % 11 + r * 0.01 > (i * 7 + best * 5) % 11 + best * 0.01)
                best = r;
        good &= mout[i].v == (i * 7 + best * 5) % 11 + best * 0.01 && mout[i].k == best && mout[i].c == (char)i;
    }
    ok_all(good, "%d ranks: on structs with padding, completed by MPI_Wait (%s)", np, made_by);

    /* Persistent, several in flight, everything freed meanwhile that may be */
    good = MPIX_Occl_allreduce_init(in, out, 20, matrix_type, op, 9, comm, MPI_INFO_NULL, &coll) == MPI_SUCCESS;
    for (int k = 0; k < 6; k++)
        good &= MPIX_Occl_iallreduce(in, out + (k + 1) * 20, 20, matrix_type, op, 10 + (k * 5 + me) % 6, comm, &req[(k * 5 + me) % 6]) == MPI_SUCCESS;
    MPI_Type_free(&matrix_type);
    if (ours)
        good &= MPIX_Occl_op_free(&op) == MPI_SUCCESS && MPIX_Occl_op_free(&most) == MPI_SUCCESS;
    for (int k = 0; k < 2; k++)
        good &= MPIX_Occl_start(coll, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS && MPIX_Occl_coll_wait(coll) == MPI_SUCCESS;
    good &= MPIX_Occl_waitall(6, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 7 * 20; i++) {
        matrix_t p = product(0, np, i % 20, 0);
        good &= memcmp(&out[i], &p, sizeof p) == 0;
    }
    good &= MPIX_Occl_coll_free(&coll) == MPI_SUCCESS;
    ok_all(good, "%d ranks: several at once, in another order on every rank, persistent, with %s freed (%s)", np, ours ? "type and op" : "the type",
           made_by);
    if (!ours) {
        MPI_Op_free(&op);
        MPI_Op_free(&most);
    }
    if (np > 1 && ours) {
        int x = me, y = 0, rc;

        MPIX_Occl_op_create(multiply, 0, &op);
        rc = MPIX_Occl_iallreduce(&x, &y, 1, MPI_INT, me == 0 ? MPI_SUM : op, 1, comm, &req[0]);
        if (rc == MPI_SUCCESS)
            rc = MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE);
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "of the user", comm), "%d ranks: a predefined op here and one of the program there are a mismatch", np);
        MPIX_Occl_op_free(&op);
    } else if (ours) {
        skip(1, "a mismatch needs two ranks");
    }
    free(in);
    free(out);
    free(min);
    free(mout);
}

/* A communicator that is freed with all of this pending; the others' part comes late. */
static void freed_communicator(void)
{
    enum { N = 3000 };
    MPI_Comm c;
    MPI_Op op;
    MPI_Datatype t;
    matrix_t *in = malloc(sizeof *in * N), *out = malloc(sizeof *out * N);
    int *strided = calloc(3 * N, sizeof *strided), good;
    MPI_Request req[2];

    MPI_Comm_dup(comm, &c);
    return_errors(c);
    good = MPIX_Occl_comm_attach(c, MPI_INFO_NULL) == MPI_SUCCESS && MPIX_Occl_op_create(multiply, 0, &op) == MPI_SUCCESS;
    MPI_Type_contiguous(4, MPI_INT, &matrix_type);
    MPI_Type_commit(&matrix_type);
    MPI_Type_create_resized(MPI_INT, 0, 12, &t);
    MPI_Type_commit(&t);
    for (int i = 0; i < N; i++) {
        in[i] = matrix(me, i, 0);
        strided[3 * i] = me == 0 ? i : -1;
    }
    if (me == np - 1 && np > 1) { /* the last one lets the others be first */
        struct timespec nap = {0, 20000000};
        nanosleep(&nap, NULL);
    }
    good = good && MPIX_Occl_iallreduce(in, out, N, matrix_type, op, 1, c, &req[0]) == MPI_SUCCESS;
    good = good && MPIX_Occl_ibcast(strided, N, t, 0, 2, c, &req[1]) == MPI_SUCCESS;
    MPIX_Occl_op_free(&op);
    MPI_Type_free(&t);
    MPI_Type_free(&matrix_type);
    MPI_Comm_free(&c);
    good = good && MPIX_Occl_waitall(2, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < N && good; i++) {
        matrix_t p = product(0, np, i, 0);
        good = memcmp(&out[i], &p, sizeof p) == 0 && strided[3 * i] == i;
    }
    ok_all(good, "%d ranks: communicator, types and op are freed while operations are pending, which complete", np);
    free(in);
    free(out);
    free(strided);
}

int main(int argc, char **argv)
{
    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 1);
    return_errors(MPI_COMM_WORLD);
    make_derived();
    for (int size = 1; size <= tap_size; size++) {
        MPI_Comm_split(MPI_COMM_WORLD, tap_rank < size ? 0 : MPI_UNDEFINED, -tap_rank, &comm);
        np = size;
        me = size - 1 - tap_rank;
        /* The checks are of all ranks. */
        if (size != tap_size && size != 1) {
            if (comm != MPI_COMM_NULL)
                MPI_Comm_free(&comm);
            continue;
        }
        if (size == 1 && tap_size > 1) {
            if (comm != MPI_COMM_NULL)
                MPI_Comm_free(&comm);
            MPI_Comm_split(MPI_COMM_WORLD, tap_rank, 0, &comm);
            me = 0;
        }
        return_errors(comm);
        if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
            bail("attach of %d ranks: %s", size, whole_text(comm));
        predefined_pairs(7);
        predefined_pairs(4001);
        narrow_types();
        premultiplied();
        not_a_number();
        movements();
        signatures();
        gaps_in_all_forms();
        of_the_program(0);
        of_the_program(1);
        freed_communicator();
        MPIX_Occl_comm_detach(comm);
        MPI_Comm_free(&comm);
    }
    for (int i = 0; i < NMADE; i++)
        MPI_Type_free(&made[i]);
    return tap_mpi_end();
}
