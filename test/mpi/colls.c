/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operation on communicators of 1 to 4 ranks: types and ops against MPI's own, counts, roots, MPI_IN_PLACE, NULL buffers,
 * derived types, nonblocking and persistent. Data depend on rank and index; what is written beside the result shows.
 */
#include "occl_test.h"

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static MPI_Comm comm;
static int me, np;

/* --- types -------------------------------------------------------------------------------------------------------- */

typedef enum { CINT, FINT, FLOATING, CPLX, LOGIC, OCTET, PAIRS } group_t;
typedef struct {
    const char *name;
    MPI_Datatype type;
    size_t bytes;  /* extent */
    group_t group;
    int first, second, second_at; /* PAIRS: sizes of the parts, where the second one stands */
    void (*put)(void *at, int value);
} type_t;

#define PUT(id, ctype) static void put_##id(void *at, int value) { *(ctype *)at = (ctype)value; }
PUT(schar, signed char)
PUT(uchar, unsigned char)
PUT(short, short)
PUT(ushort, unsigned short)
PUT(int, int)
PUT(uint, unsigned)
PUT(long, long)
PUT(ulong, unsigned long)
PUT(float, float)
PUT(double, double)
PUT(ldouble, long double)
PUT(cf, float complex)
PUT(cd, double complex)
PUT(cld, long double complex)
static void put_bool(void *at, int value) { *(bool *)at = value & 1; }
static void put_logical(void *at, int value)
{
    int t = 1;
    *(int *)at = value & 1 ? t : 0;
}
#define PAIR(id, a, b)                                                                                   \
    typedef struct {                                                                                     \
        a v;                                                                                             \
        b i;                                                                                             \
    } pair_##id;                                                                                         \
    static void put_##id(void *at, int value)                                                            \
    {                                                                                                    \
        pair_##id *p = at;                                                                               \
        p->v = (a)value;                                                                                 \
        p->i = (b)(value * 7 % 11);                                                                      \
    }
PAIR(fi, float, int)
PAIR(di, double, int)
PAIR(li, long, int)
PAIR(si, short, int)
PAIR(ii, int, int)
PAIR(ldi, long double, int)
PAIR(ff, float, float)
PAIR(dd, double, double)

#define T(mpi, ctype, group, id) {#mpi, mpi, sizeof(ctype), group, 0, 0, 0, put_##id}
#define P(mpi, id) \
    {#mpi, mpi, sizeof(pair_##id), PAIRS, sizeof(((pair_##id *)0)->v), sizeof(((pair_##id *)0)->i), offsetof(pair_##id, i), put_##id}
enum { NTYPES = 44 };
static int make_types(type_t *t)
{
    type_t all[] = {
        T(MPI_SIGNED_CHAR, signed char, CINT, schar), T(MPI_SHORT, short, CINT, short), T(MPI_INT, int, CINT, int),
        T(MPI_LONG, long, CINT, long), T(MPI_LONG_LONG, long long, CINT, long), T(MPI_UNSIGNED_CHAR, unsigned char, CINT, uchar),
        T(MPI_UNSIGNED_SHORT, unsigned short, CINT, ushort), T(MPI_UNSIGNED, unsigned, CINT, uint),
        T(MPI_UNSIGNED_LONG, unsigned long, CINT, ulong), T(MPI_UNSIGNED_LONG_LONG, unsigned long long, CINT, ulong),
        T(MPI_INT8_T, int8_t, CINT, schar), T(MPI_INT16_T, int16_t, CINT, short), T(MPI_INT32_T, int32_t, CINT, int),
        T(MPI_INT64_T, int64_t, CINT, long), T(MPI_UINT8_T, uint8_t, CINT, uchar), T(MPI_UINT16_T, uint16_t, CINT, ushort),
        T(MPI_UINT32_T, uint32_t, CINT, uint), T(MPI_UINT64_T, uint64_t, CINT, ulong), T(MPI_AINT, MPI_Aint, FINT, long),
        T(MPI_OFFSET, MPI_Offset, FINT, long), T(MPI_COUNT, MPI_Count, FINT, long), T(MPI_INTEGER, int, FINT, int),
        T(MPI_FLOAT, float, FLOATING, float), T(MPI_DOUBLE, double, FLOATING, double),
        T(MPI_LONG_DOUBLE, long double, FLOATING, ldouble), T(MPI_REAL, float, FLOATING, float),
        T(MPI_DOUBLE_PRECISION, double, FLOATING, double), T(MPI_C_FLOAT_COMPLEX, float complex, CPLX, cf),
        T(MPI_C_DOUBLE_COMPLEX, double complex, CPLX, cd), T(MPI_C_LONG_DOUBLE_COMPLEX, long double complex, CPLX, cld),
        T(MPI_COMPLEX, float complex, CPLX, cf), T(MPI_DOUBLE_COMPLEX, double complex, CPLX, cd), T(MPI_C_BOOL, bool, LOGIC, bool),
        T(MPI_LOGICAL, int, LOGIC, logical), T(MPI_BYTE, unsigned char, OCTET, uchar), P(MPI_FLOAT_INT, fi),
        P(MPI_DOUBLE_INT, di), P(MPI_LONG_INT, li), P(MPI_SHORT_INT, si), P(MPI_2INT, ii), P(MPI_LONG_DOUBLE_INT, ldi),
        P(MPI_2INTEGER, ii), P(MPI_2REAL, ff), P(MPI_2DOUBLE_PRECISION, dd),
    };
    int n = 0;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int size = 0;
        /* An MPI without Fortran has no Fortran types. */
        if (all[i].type == MPI_DATATYPE_NULL || MPI_Type_size(all[i].type, &size) != MPI_SUCCESS || size == 0)
            continue;
        t[n++] = all[i];
    }
    return n;
}

static const struct {
    const char *name;
    int arith, order, logic, bits, loc;
} ops[] = {{"MPI_SUM", 1, 0, 0, 0, 0},  {"MPI_PROD", 1, 0, 0, 0, 0}, {"MPI_MIN", 0, 1, 0, 0, 0},    {"MPI_MAX", 0, 1, 0, 0, 0},
           {"MPI_LAND", 0, 0, 1, 0, 0}, {"MPI_LOR", 0, 0, 1, 0, 0},  {"MPI_LXOR", 0, 0, 1, 0, 0},   {"MPI_BAND", 0, 0, 0, 1, 0},
           {"MPI_BOR", 0, 0, 0, 1, 0},  {"MPI_BXOR", 0, 0, 0, 1, 0}, {"MPI_MINLOC", 0, 0, 0, 0, 1}, {"MPI_MAXLOC", 0, 0, 0, 0, 1}};
enum { NOPS = 12 };

static MPI_Op op_at(int i)
{
    MPI_Op all[NOPS] = {MPI_SUM,  MPI_PROD, MPI_MIN, MPI_MAX,  MPI_LAND,   MPI_LOR,
                        MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    return all[i];
}

/* What MPI allows (MPI-3.1, 5.9.2) */
static int allowed(group_t g, int o)
{
    switch (g) {
    case CINT: return !ops[o].loc;
    case FINT: return ops[o].arith || ops[o].order || ops[o].bits;
    case FLOATING: return ops[o].arith || ops[o].order;
    case CPLX: return ops[o].arith;
    case LOGIC: return ops[o].logic;
    case OCTET: return ops[o].bits;
    case PAIRS: return ops[o].loc;
    }
    return 0;
}

/* Small whole numbers: every op is exact in every type and in every order. */
static int value(int rank, size_t i, int salt) { return (int)((i * 3 + (size_t)rank * 5 + (size_t)salt) % 4); }

static void fill(const type_t *t, void *buf, size_t n, int salt)
{
    memset(buf, 0, n * t->bytes);
    for (size_t i = 0; i < n; i++)
        t->put((char *)buf + i * t->bytes, value(me, i, salt));
}

/* Padding is nobody's. */
static int equal(const type_t *t, const void *a, const void *b, size_t n)
{
    int cut = t->type == MPI_LONG_DOUBLE || t->type == MPI_LONG_DOUBLE_INT || t->type == MPI_C_LONG_DOUBLE_COMPLEX;

    for (size_t i = 0; i < n; i++) {
        const char *x = (const char *)a + i * t->bytes, *y = (const char *)b + i * t->bytes;
        size_t first = t->group == PAIRS ? (size_t)t->first : t->bytes;

        if (cut && sizeof(long double) == 16) {
            if (memcmp(x, y, 10) != 0)
                return 0;
            if (t->group == CPLX && memcmp(x + 16, y + 16, 10) != 0)
                return 0;
        } else if (memcmp(x, y, first) != 0) {
            return 0;
        }
        if (t->group == PAIRS && memcmp(x + t->second_at, y + t->second_at, (size_t)t->second) != 0)
            return 0;
    }
    return 1;
}

/* All ops on all types at once, in flight together, started in another order on every rank */
static void types_and_ops(void)
{
    enum { N = 7, MAX = NTYPES * NOPS };
    static type_t t[NTYPES];
    static struct {
        int type, op;
        void *in, *out, *ref;
    } c[MAX];
    static MPI_Request req[MAX];
    static int order[MAX];
    int ntypes = make_types(t), n = 0, bad = 0;

    for (int i = 0; i < ntypes; i++) {
        for (int o = 0; o < NOPS; o++) {
            if (!allowed(t[i].group, o))
                continue;
            c[n].type = i;
            c[n].op = o;
            c[n].in = malloc(N * t[i].bytes);
            c[n].out = calloc(N, t[i].bytes);
            c[n].ref = calloc(N, t[i].bytes);
            fill(&t[i], c[n].in, N, o);
            order[n] = n;
            n++;
        }
    }
    srand(17u + (unsigned)me);
    for (int i = n; i > 1; i--) {
        int j = rand() % i, k = order[i - 1];
        order[i - 1] = order[j];
        order[j] = k;
    }
    for (int i = 0; i < n; i++) {
        int k = order[i], rc = MPIX_Occl_iallreduce(c[k].in, c[k].out, N, t[c[k].type].type, op_at(c[k].op), k, comm, &req[k]);
        if (rc != MPI_SUCCESS && ++bad <= 5)
            tap_rank_diag("%s %s is refused: %s", t[c[k].type].name, ops[c[k].op].name, text_of(rc));
        if (rc != MPI_SUCCESS)
            req[k] = MPI_REQUEST_NULL;
    }
    ok_all(bad == 0, "%d ranks: every op is accepted on every type that MPI allows it on (%d pairs)", np, n);
    ok_all(MPIX_Occl_waitall(n, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS, "%d ranks: all of them, started in any order, complete", np);
    /* MPI's all at once: one by one they take 10 ms each with more ranks than cores. */
    for (int k = 0; k < n; k++)
        MPI_Iallreduce(c[k].in, c[k].ref, N, t[c[k].type].type, op_at(c[k].op), comm, &req[k]);
    MPI_Waitall(n, req, MPI_STATUSES_IGNORE);
    for (int o = 0; o < NOPS; o++) {
        int wrong = 0;

        for (int k = 0; k < n; k++) {
            if (c[k].op != o)
                continue;
            if (!equal(&t[c[k].type], c[k].out, c[k].ref, N)) {
                wrong++;
                tap_rank_diag("%s of %s differs from MPI_Allreduce", ops[o].name, t[c[k].type].name);
            }
        }
        ok_all(wrong == 0, "%d ranks: %s gives MPI's result for all its types", np, ops[o].name);
    }
    for (int k = 0; k < n; k++) {
        free(c[k].in);
        free(c[k].out);
        free(c[k].ref);
    }
}

/* --- every operation ---------------------------------------------------------------------------------------------- */

typedef enum { BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, SCATTER, ALLGATHER, RSB, ALLTOALL, NKINDS } kind_t;
static const char *const kind_name[NKINDS] = {"barrier", "bcast", "reduce", "allreduce", "gather",
                                              "scatter", "allgather", "reduce_scatter_block", "alltoall"};

typedef struct {
    kind_t kind;
    int n, root, in_place, persistent;
} case_t;

/* What stands in the buffers of any rank before */
static int in_at(int rank, size_t i, int round, int tag) { return (int)i * 31 + rank * 1000003 + round * 77 + tag; }
static int out_at(int rank, size_t i, int round) { return -(int)i * 13 - rank * 7001 - round * 5; }

/* What must stand in out afterwards, by MPI's definition. (MPI's own blocking calls take 10 ms each with more ranks than cores;
 * those of types_and_ops are enough.) */
static void expect(const case_t *c, int round, int tag, int *out)
{
    size_t n = (size_t)c->n;
    int at_root = me == c->root;

#define SEND(rank, i) (c->in_place ? out_at(rank, i, round) : in_at(rank, i, round, tag))
    switch (c->kind) {
    case BCAST:
        for (size_t i = 0; i < n; i++)
            out[i] = out_at(c->root, i, round);
        break;
    case REDUCE:
    case ALLREDUCE:
        for (size_t i = 0; i < n && (at_root || c->kind == ALLREDUCE); i++) {
            out[i] = 0;
            for (int r = 0; r < np; r++)
                out[i] += c->kind == ALLREDUCE || r == c->root ? SEND(r, i) : in_at(r, i, round, tag);
        }
        break;
    case RSB:
        for (size_t i = 0; i < n; i++) {
            out[i] = 0;
            for (int r = 0; r < np; r++)
                out[i] += SEND(r, (size_t)me * n + i);
        }
        break;
    case GATHER:
    case ALLGATHER:
        for (int r = 0; r < np && (at_root || c->kind == ALLGATHER); r++) {
            if (c->in_place && (r == me || c->kind == ALLGATHER)) {
                for (size_t i = 0; i < n; i++)
                    out[(size_t)r * n + i] = out_at(r, (size_t)r * n + i, round);
                continue;
            }
            for (size_t i = 0; i < n; i++)
                out[(size_t)r * n + i] = in_at(r, i, round, tag);
        }
        break;
    case SCATTER:
        for (size_t i = 0; i < n && !(at_root && c->in_place); i++)
            out[i] = in_at(c->root, (size_t)me * n + i, round, tag);
        break;
    case ALLTOALL:
        for (int r = 0; r < np; r++)
            for (size_t i = 0; i < n; i++)
                out[(size_t)r * n + i] = SEND(r, (size_t)me * n + i);
        break;
    default: break;
    }
#undef SEND
}

/* Both forms from one list of arguments */
#define BOTH(name, ...) \
    (c->persistent ? MPIX_Occl_##name##_init(__VA_ARGS__ tag, comm, MPI_INFO_NULL, coll) : MPIX_Occl_i##name(__VA_ARGS__ tag, comm, req))
#define A ,
static int we_do(const case_t *c, const int *in, int *out, int tag, MPI_Request *req, MPIX_Occl_Coll *coll)
{
    int n = c->n;
    const void *s = c->in_place ? MPI_IN_PLACE : (const void *)in;
    const void *root_s = me == c->root ? s : (const void *)in;

    switch (c->kind) {
    case BARRIER: return BOTH(barrier, );
    case BCAST: return BOTH(bcast, out A n A MPI_INT A c->root A);
    case REDUCE: return BOTH(reduce, root_s A out A n A MPI_INT A MPI_SUM A c->root A);
    case ALLREDUCE: return BOTH(allreduce, s A out A n A MPI_INT A MPI_SUM A);
    case GATHER: return BOTH(gather, root_s A n A MPI_INT A out A n A MPI_INT A c->root A);
    case SCATTER:
        return BOTH(scatter, in A n A MPI_INT A (me == c->root && c->in_place ? MPI_IN_PLACE : out) A n A MPI_INT A c->root A);
    case ALLGATHER: return BOTH(allgather, s A n A MPI_INT A out A n A MPI_INT A);
    case RSB: return BOTH(reduce_scatter_block, s A out A n A MPI_INT A MPI_SUM A);
    case ALLTOALL: return BOTH(alltoall, s A n A MPI_INT A out A n A MPI_INT A);
    default: return MPI_ERR_OTHER;
    }
}
#undef A

/* Elements: of the result that count, of the whole buffer */
static size_t result_size(const case_t *c)
{
    size_t n = (size_t)c->n;

    switch (c->kind) {
    case BARRIER: return 0;
    case REDUCE: return me == c->root ? n : 0;
    case GATHER: return me == c->root ? n * (size_t)np : 0;
    case SCATTER: return me == c->root && c->in_place ? 0 : n;
    case ALLGATHER:
    case ALLTOALL: return n * (size_t)np;
    default: return n;
    }
}

static int one_case(const case_t *c, int tag)
{
    size_t whole = (size_t)c->n * (size_t)np + 8;
    int *in = malloc(whole * sizeof *in), *out = malloc(whole * sizeof *out), *ref = malloc(whole * sizeof *ref);
    MPI_Request req = MPI_REQUEST_NULL;
    MPIX_Occl_Coll coll = MPIX_OCCL_COLL_NULL;
    int rc, good, rounds = c->persistent ? 3 : 1, null = c->n == 0 && (tag & 1);

    /* MPI_IN_PLACE of a reduce_scatter_block, and nothing else, leaves the rest of the buffer undefined. */
    size_t compare = c->kind == RSB && c->in_place ? result_size(c) : whole;

    good = 1;
    rc = MPI_SUCCESS;
    if (c->persistent) {
        rc = we_do(c, null ? NULL : in, null ? NULL : out, tag, &req, &coll);
        if (rc != MPI_SUCCESS)
            tap_rank_diag("%s_init: %s", kind_name[c->kind], text_of(rc));
    }
    for (int round = 0; round < rounds && rc == MPI_SUCCESS; round++) {
        for (size_t i = 0; i < whole; i++) {
            in[i] = in_at(me, i, round, tag);
            out[i] = ref[i] = out_at(me, i, round);
        }
        expect(c, round, tag, ref);
        rc = c->persistent ? MPIX_Occl_start(coll, round == 1 ? &req : MPIX_OCCL_NO_REQUEST)
                           : we_do(c, null ? NULL : in, null ? NULL : out, tag, &req, &coll);
        if (rc != MPI_SUCCESS) {
            tap_rank_diag("%s: start: %s", kind_name[c->kind], text_of(rc));
            break;
        }
        rc = c->persistent && round != 1 ? MPIX_Occl_coll_wait(coll) : MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS) {
            tap_rank_diag("%s: wait: %s", kind_name[c->kind], text_of(rc));
            break;
        }
        if (memcmp(out, ref, compare * sizeof *out) != 0) {
            size_t i = 0;
            while (out[i] == ref[i])
                i++;
            tap_rank_diag("%s n %d root %d%s%s round %d: element %zu is %d and not %d", kind_name[c->kind], c->n, c->root,
                          c->in_place ? " in place" : "", c->persistent ? " persistent" : "", round, i, out[i], ref[i]);
            good = 0;
        }
        for (size_t i = 0; i < whole && good; i++)
            if (in[i] != in_at(me, i, round, tag))
                good = 0;
    }
    if (coll != MPIX_OCCL_COLL_NULL && MPIX_Occl_coll_free(&coll) != MPI_SUCCESS)
        good = 0;
    free(in);
    free(out);
    free(ref);
    return good && rc == MPI_SUCCESS;
}

static void every_operation(int in_group)
{
    static const int counts[] = {0, 1, 3, 17, 1000, 5001, 40000, 150000};

    for (int k = 0; k < NKINDS; k++) {
        int rooted = k == BCAST || k == REDUCE || k == GATHER || k == SCATTER;
        int good = 1, tag = 0, ncases = 0;

        for (size_t i = 0; in_group && i < sizeof counts / sizeof counts[0]; i++) {
            if (np < tap_size && i % 2)
                continue;
            for (int v = 0; v < 4; v++) {
                /* Large ones with one root each, small ones with all */
                int roots = rooted ? (counts[i] <= 17 ? np : 1) : 1;
                for (int r = 0; r < roots; r++) {
                    case_t c = {(kind_t)k, counts[i], roots == 1 ? (int)i % np : r, v & 1, v >> 1};
                    if (!rooted)
                        c.root = 0;
                    if (c.in_place && (k == BCAST || k == BARRIER))
                        continue;
                    if (k == BARRIER && i > 0)
                        continue;
                    good &= one_case(&c, tag++);
                    ncases++;
                }
            }
        }
        ok_all(good, "%d ranks: %s gives the right results and writes nothing else (%d cases)", np, kind_name[k], ncases);
    }
}

/* --- derived types, point to point -------------------------------------------------------------------------------- */

static void derived(void)
{
    MPI_Datatype three, nine, dup, vec, indexed, st, gaps, swapped;
    int lens[3] = {1, 1, 1}, disp[3] = {0, 1, 2}, rdisp[3] = {2, 1, 0};
    MPI_Aint bytes[2] = {0, 12};
    int slens[2] = {3, 1};
    MPI_Datatype stypes[2];
    int in[36], out[200], ref[200], rc, good = 1;
    MPI_Request req;

    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_vector(3, 1, 1, three, &vec);
    MPI_Type_contiguous(3, three, &nine);
    MPI_Type_dup(nine, &dup);
    MPI_Type_indexed(3, lens, disp, MPI_INT, &indexed);
    stypes[0] = MPI_INT;
    stypes[1] = three;
    MPI_Type_create_struct(2, slens, bytes, stypes, &st);
    MPI_Type_vector(3, 1, 2, MPI_INT, &gaps);
    MPI_Type_indexed(3, lens, rdisp, MPI_INT, &swapped);
    MPI_Type_commit(&three);
    MPI_Type_commit(&vec);
    MPI_Type_commit(&dup);
    MPI_Type_commit(&indexed);
    MPI_Type_commit(&st);
    MPI_Type_commit(&gaps);
    MPI_Type_commit(&swapped);
    for (int i = 0; i < 36; i++)
        in[i] = me * 100 + i;
    memset(out, 0, sizeof out);
    memset(ref, 0, sizeof ref);
    MPI_Allgather(in, 36, MPI_INT, ref, 36, MPI_INT, comm);
    /* The same signature in several dresses: on ranks and sides alike */
    rc = MPIX_Occl_iallgather(in, me % 2 ? 4 : 36, me % 2 ? dup : MPI_INT, out, me % 3 ? 4 : 12, me % 3 ? vec : indexed, 1, comm, &req);
    good = rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && memcmp(out, ref, sizeof out) == 0;
    ok_all(good, "%d ranks: types without gaps over one basic type are what they are made of", np);
    memset(out, 0, sizeof out);
    rc = MPIX_Occl_iallgather(in, 6, st, out, 36, MPI_INT, 1, comm, &req);
    good = rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && memcmp(out, ref, sizeof out) == 0;
    ok_all(good, "%d ranks: so is a struct of them", np);
    ok_all(is_class(MPIX_Occl_iallreduce(in, out, 1, gaps, MPI_SUM, 2, comm, &req), MPI_ERR_TYPE, "gaps", comm),
           "%d ranks: a predefined op on a type with gaps is refused", np);
    ok_all(is_class(MPIX_Occl_iallreduce(in, out, 1, swapped, MPI_SUM, 2, comm, &req), MPI_ERR_TYPE, "order", comm),
           "%d ranks: and so is one on a type with another order", np);
    rc = MPIX_Occl_iallreduce(in, out, 2, three, MPI_SUM, 2, comm, &req);
    good = rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 6; i++)
        good &= out[i] == np * i + 100 * np * (np - 1) / 2;
    ok_all(good, "%d ranks: a predefined op on a derived type without gaps is on its elements", np);
    ok_all(is_class(MPIX_Occl_iallreduce(in, out, 1, MPI_CHAR, MPI_SUM, 2, comm, &req), MPI_ERR_OP, "character", comm),
           "%d ranks: a sum of characters is refused", np);
    MPI_Type_free(&three);
    MPI_Type_free(&vec);
    MPI_Type_free(&nine);
    MPI_Type_free(&dup);
    MPI_Type_free(&indexed);
    MPI_Type_free(&st);
    MPI_Type_free(&gaps);
    MPI_Type_free(&swapped);
}

static void messages(void)
{
    enum { N = 50000 };
    int right = (me + 1) % np, left = (me + np - 1) % np, count, good = 1;
    int *in = malloc(N * sizeof *in), *out = malloc(N * sizeof *out);
    MPI_Request req[2];
    MPI_Status st[2];

    for (int n = 0; n <= N; n = n ? n * 10 : 5) {
        for (int i = 0; i < n; i++) {
            in[i] = me * 1000 + i;
            out[i] = -1;
        }
        good &= MPIX_Occl_irecv(out, N, MPI_INT, left, 7, comm, &req[0]) == MPI_SUCCESS;
        good &= MPIX_Occl_isend(in, n, MPI_INT, right, 7, comm, &req[1]) == MPI_SUCCESS;
        good &= MPIX_Occl_waitall(2, req, st) == MPI_SUCCESS;
        MPI_Get_count(&st[0], MPI_INT, &count);
        good &= count == n && st[0].MPI_SOURCE == left && st[0].MPI_TAG == 7;
        for (int i = 0; i < n; i++)
            good &= out[i] == left * 1000 + i;
        if (!good) {
            tap_rank_diag("message of %d ints: count %d source %d tag %d", n, count, st[0].MPI_SOURCE, st[0].MPI_TAG);
            break;
        }
    }
    ok_all(good, "%d ranks: messages round a ring arrive; the status has source, tag and count", np);
    good = MPIX_Occl_isend(in, 1, MPI_INT, MPI_PROC_NULL, 7, comm, &req[1]) == MPI_SUCCESS &&
           MPIX_Occl_irecv(out, 1, MPI_INT, MPI_PROC_NULL, 7, comm, &req[0]) == MPI_SUCCESS &&
           MPI_Waitall(2, req, st) == MPI_SUCCESS && st[0].MPI_SOURCE == MPI_PROC_NULL && st[0].MPI_TAG == MPI_ANY_TAG;
    MPI_Get_count(&st[0], MPI_INT, &count);
    ok_all(good && count == 0, "%d ranks: MPI_PROC_NULL is nobody", np);
    /* Two in flight on one tag stay in order; another tag may overtake. */
    {
        MPI_Request r[6];
        int a = me * 10 + 1, b = me * 10 + 2, c = me * 10 + 3, x = 0, y = 0, z = 0;

        good = MPIX_Occl_isend(&a, 1, MPI_INT, right, 1, comm, &r[0]) == MPI_SUCCESS &&
               MPIX_Occl_isend(&b, 1, MPI_INT, right, 1, comm, &r[1]) == MPI_SUCCESS &&
               MPIX_Occl_isend(&c, 1, MPI_INT, right, 2, comm, &r[2]) == MPI_SUCCESS &&
               MPIX_Occl_irecv(&z, 1, MPI_INT, left, 2, comm, &r[3]) == MPI_SUCCESS &&
               MPIX_Occl_wait(&r[3], MPI_STATUS_IGNORE) == MPI_SUCCESS &&
               MPIX_Occl_irecv(&x, 1, MPI_INT, left, 1, comm, &r[4]) == MPI_SUCCESS &&
               MPIX_Occl_irecv(&y, 1, MPI_INT, left, 1, comm, &r[5]) == MPI_SUCCESS && MPI_Waitall(6, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
        ok_all(good && x == left * 10 + 1 && y == left * 10 + 2 && z == left * 10 + 3,
               "%d ranks: messages of one tag keep their order, of another they need none", np);
    }
    if (np > 1) {
        int rc[2] = {0, 0};

        MPIX_Occl_irecv(out, 3, MPI_INT, left, 9, comm, &req[0]);
        MPIX_Occl_isend(in, 4, MPI_INT, right, 9, comm, &req[1]);
        rc[0] = MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE);
        rc[1] = MPIX_Occl_wait(&req[1], MPI_STATUS_IGNORE);
        ok_all(is_class(rc[0], MPI_ERR_TRUNCATE, NULL, comm), "%d ranks: a message longer than the buffer is MPI_ERR_TRUNCATE (the sender: %s)",
               np, rc[1] == MPI_SUCCESS ? "success" : "an error");
    } else {
        skip(1, "a message that is too long needs two ranks");
    }
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 1);
    return_errors(MPI_COMM_WORLD);
    for (int size = 1; size <= tap_size; size++) {
        /* Ranks counted backwards, so that they are not MPI_COMM_WORLD's. */
        MPI_Comm_split(MPI_COMM_WORLD, tap_rank < size ? 0 : MPI_UNDEFINED, -tap_rank, &comm);
        np = size;
        me = size - 1 - tap_rank;
        if (comm != MPI_COMM_NULL) {
            return_errors(comm);
            if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
                bail("attach of %d ranks: %s", size, whole_text(comm));
        }
        every_operation(comm != MPI_COMM_NULL);
        /* The rest has collective checks inside: only with all ranks, or with each one alone. */
        if (size == tap_size) {
            types_and_ops();
            derived();
            messages();
        }
        if (comm != MPI_COMM_NULL) {
            MPIX_Occl_comm_detach(comm);
            MPI_Comm_free(&comm);
        }
    }
    return tap_mpi_end();
}
