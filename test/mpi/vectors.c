/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives with a length for each block, scans, and those on neighbours, on communicators of 1 to 4 ranks: nonblocking,
 * persistent and enqueued, with int and with large counts, in place, with empty blocks, in any order and with gaps. What must come
 * out is worked out here, by MPI's definition.
 */
#include "occl_test.h"

#include <stdint.h>

static MPI_Comm comm;
static int me, np;
static void *queue;

typedef enum {
    SCAN, EXSCAN, RS, GATHERV, SCATTERV, ALLGATHERV, ALLTOALLV, ALLTOALLW, NAG, NAGV, NATA, NATAV, NATAW, NKINDS
} kind_t;
static const char *const kind_name[NKINDS] = {"scan", "exscan", "reduce_scatter", "gatherv", "scatterv", "allgatherv", "alltoallv",
                                              "alltoallw", "neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall",
                                              "neighbor_alltoallv", "neighbor_alltoallw"};
enum { NONBLOCKING, PERSISTENT, ENQUEUED, FORMS };
typedef struct {
    kind_t kind;
    int n, root, in_place, form, large;
} case_t;

/* The graph: edges out and in of a rank, in the order of the arguments. Which block of the sender is block k of the receiver. */
enum { MAX = 16 };
typedef struct {
    int nout, nin, out[MAX], in[MAX];
} graph_t;
typedef enum { RING, GRID, DIST, NGRAPHS } shape_t;
static shape_t shape;

static graph_t graph_of(int r)
{
    graph_t g = {0, 0, {0}, {0}};

    switch (shape) {
    case RING: /* periodic: below, above */
        g.nout = g.nin = 2;
        g.out[0] = g.in[0] = (r + np - 1) % np;
        g.out[1] = g.in[1] = (r + 1) % np;
        break;
    case GRID: { /* (np + 1) / 2 x 2, or np x 1, not periodic */
        int cols = np % 2 ? 1 : 2, rows = np / cols, row = r / cols, col = r % cols;
        g.nout = g.nin = 4;
        g.out[0] = g.in[0] = row > 0 ? r - cols : MPI_PROC_NULL;
        g.out[1] = g.in[1] = row + 1 < rows ? r + cols : MPI_PROC_NULL;
        g.out[2] = g.in[2] = col > 0 ? r - 1 : MPI_PROC_NULL;
        g.out[3] = g.in[3] = col + 1 < cols ? r + 1 : MPI_PROC_NULL;
        break;
    }
    default: /* to all that are above, and two edges to myself; given backwards */
        for (int p = np; p-- > r;)
            g.out[g.nout++] = p;
        g.out[g.nout++] = r;
        for (int p = 0; p <= r; p++)
            g.in[g.nin++] = p;
        g.in[g.nin++] = r;
        break;
    }
    return g;
}

/* The block of rank `from` that comes in as block k of mine. */
static int partner(int from, int k)
{
    graph_t g = graph_of(me), f = graph_of(from);
    int nth = 0;

    if (shape != DIST)
        return k ^ 1; /* what comes from below went up */
    for (int i = 0; i < k; i++)
        nth += g.in[i] == from;
    for (int i = 0; i < f.nout; i++)
        if (f.out[i] == me && nth-- == 0)
            return i;
    return -1;
}

/* Ints in a block: of the edge, or from rank to rank */
static int length(const case_t *c, int from, int to)
{
    int of[5] = {c->n, 0, c->n / 3, 1, c->n / 2}, v;

    if (c->kind == NAG || c->kind == NATA)
        return c->n;
    if (c->kind == ALLGATHERV || c->kind == NAGV)
        to = 0;
    if ((c->kind == ALLTOALLV || c->kind == ALLTOALLW) && c->in_place && from > to) {
        int k = from;
        from = to;
        to = k;
    }
    v = of[(from * 2 + to * 3) % 5];
    v = v > c->n ? c->n : v;
    return c->kind == ALLTOALLW || c->kind == NATAW ? v / 2 * 2 : v;
}

static int value(int from, int block, size_t i, int tag, int round) { return (int)i * 31 + from * 1000003 + block * 7001 + tag * 77 + round; }
static int is_gather(kind_t k) { return k == GATHERV || k == ALLGATHERV || k == NAG || k == NAGV; }

typedef struct {
    int nb;                /* blocks */
    int ci[MAX], di[MAX];
    MPI_Count cl[MAX];
    MPI_Aint dl[MAX], bytes[MAX];
    int bytes_i[MAX];
    MPI_Datatype type[MAX];
    int peer[MAX], block[MAX]; /* whose value(): block number at the sender */
    size_t whole;              /* ints */
} side_t;

static MPI_Datatype two;

static void lay_out(const case_t *c, side_t *s, int receiving)
{
    graph_t g = graph_of(me);
    size_t at = 3;

    memset(s, 0, sizeof *s);
    s->nb = c->kind < NAG ? np : receiving ? g.nin : g.nout;
    for (int k = s->nb; k-- > 0;) {
        int peer = c->kind < NAG ? k : receiving ? g.in[k] : g.out[k], n;
        s->peer[k] = peer;
        n = peer == MPI_PROC_NULL ? c->n : receiving ? length(c, peer, me) : length(c, me, peer);
        s->block[k] = is_gather(c->kind) ? 0 : c->kind < NAG ? (receiving ? me : peer) : !receiving ? k : peer == MPI_PROC_NULL ? 0 : partner(peer, k);
        if (c->kind == NAG || c->kind == NATA)
            at = (size_t)k * (size_t)c->n;
        /* alltoallw: a side in pairs and one in single ints, at times */
        s->type[k] = (c->kind == ALLTOALLW || c->kind == NATAW) && (k + receiving) % 2 ? two : MPI_INT;
        s->ci[k] = s->type[k] == two ? n / 2 : n;
        s->cl[k] = s->ci[k];
        s->di[k] = (int)at;
        s->dl[k] = (MPI_Aint)at;
        s->bytes[k] = (MPI_Aint)(at * sizeof(int));
        s->bytes_i[k] = (int)s->bytes[k];
        at += (size_t)n + (size_t)(k % 3);
        if (at > s->whole)
            s->whole = at;
    }
    s->whole = (c->kind == NAG || c->kind == NATA ? (size_t)s->nb * (size_t)c->n : s->whole) + 4;
}

/* Every form from two lists of arguments, with int and with large counts */
#define STRIP(...) __VA_ARGS__
#define CALL(name, S, L)                                                                                                      \
    (c->large ? (c->form == NONBLOCKING  ? MPIX_Occl_i##name##_c(STRIP L, tag, comm, req)                                            \
                 : c->form == PERSISTENT ? MPIX_Occl_##name##_init_c(STRIP L, tag, comm, MPI_INFO_NULL, coll)                        \
                                         : MPIX_Occl_##name##_enqueue_c(STRIP L, tag, comm, MPIX_OCCL_QUEUE_HOST, queue))            \
              : (c->form == NONBLOCKING  ? MPIX_Occl_i##name(STRIP S, tag, comm, req)                                                \
                 : c->form == PERSISTENT ? MPIX_Occl_##name##_init(STRIP S, tag, comm, MPI_INFO_NULL, coll)                          \
                                         : MPIX_Occl_##name##_enqueue(STRIP S, tag, comm, MPIX_OCCL_QUEUE_HOST, queue)))
#define SAME(name, S) CALL(name, S, S)

static int we_do(const case_t *c, const int *in, int *out, const side_t *s, const side_t *r, int tag, MPI_Request *req,
                 MPIX_Occl_Coll *coll)
{
    const void *from = c->in_place ? MPI_IN_PLACE : (const void *)in;
    int n = c->n, own = length(c, me, c->kind == GATHERV ? c->root : 0), mine = length(c, c->root, me);

    switch (c->kind) {
    case SCAN: return SAME(scan, (from, out, n, MPI_INT, MPI_SUM));
    case EXSCAN: return SAME(exscan, (from, out, n, MPI_INT, MPI_SUM));
    case RS: return CALL(reduce_scatter, (from, out, r->ci, MPI_INT, MPI_SUM), (from, out, r->cl, MPI_INT, MPI_SUM));
    case GATHERV:
        if (me != c->root) /* the rest is significant on the root only */
            return SAME(gatherv, (in, own, MPI_INT, NULL, NULL, NULL, MPI_DATATYPE_NULL, c->root));
        return CALL(gatherv, (from, own, MPI_INT, out, r->ci, r->di, MPI_INT, c->root),
                    (from, own, MPI_INT, out, r->cl, r->dl, MPI_INT, c->root));
    case SCATTERV:
        if (me != c->root)
            return SAME(scatterv, (NULL, NULL, NULL, MPI_DATATYPE_NULL, out, mine, MPI_INT, c->root));
        return CALL(scatterv, (in, s->ci, s->di, MPI_INT, (c->in_place ? MPI_IN_PLACE : out), mine, MPI_INT, c->root),
                    (in, s->cl, s->dl, MPI_INT, (c->in_place ? MPI_IN_PLACE : out), mine, MPI_INT, c->root));
    case ALLGATHERV:
        return CALL(allgatherv, (from, own, MPI_INT, out, r->ci, r->di, MPI_INT),
                    (from, own, MPI_INT, out, r->cl, r->dl, MPI_INT));
    case ALLTOALLV:
        return CALL(alltoallv, (from, s->ci, s->di, MPI_INT, out, r->ci, r->di, MPI_INT),
                    (from, s->cl, s->dl, MPI_INT, out, r->cl, r->dl, MPI_INT));
    case ALLTOALLW:
        return CALL(alltoallw, (from, s->ci, s->bytes_i, s->type, out, r->ci, r->bytes_i, r->type),
                    (from, s->cl, s->bytes, s->type, out, r->cl, r->bytes, r->type));
    case NAG: return SAME(neighbor_allgather, (in, n, MPI_INT, out, n, MPI_INT));
    case NAGV:
        return CALL(neighbor_allgatherv, (in, own, MPI_INT, out, r->ci, r->di, MPI_INT),
                    (in, own, MPI_INT, out, r->cl, r->dl, MPI_INT));
    case NATA: return SAME(neighbor_alltoall, (in, n, MPI_INT, out, n, MPI_INT));
    case NATAV:
        return CALL(neighbor_alltoallv, (in, s->ci, s->di, MPI_INT, out, r->ci, r->di, MPI_INT),
                    (in, s->cl, s->dl, MPI_INT, out, r->cl, r->dl, MPI_INT));
    case NATAW:
        return CALL(neighbor_alltoallw, (in, s->ci, s->bytes, s->type, out, r->ci, r->bytes, r->type),
                    (in, s->cl, s->bytes, s->type, out, r->cl, r->bytes, r->type));
    default: return MPI_ERR_OTHER;
    }
}

static int ints(const side_t *s, int k) { return s->ci[k] * (s->type[k] == two ? 2 : 1); }

/* Data, and what must come out in ref. The same function of everything on every rank. */
static void prepare(const case_t *c, const side_t *s, const side_t *r, int tag, int round, int *in, int *out, int *ref)
{
    size_t n = (size_t)c->n, before = 0;
    int swap = c->in_place && (c->kind == ALLTOALLV || c->kind == ALLTOALLW);

    for (size_t i = 0; i < s->whole; i++)
        in[i] = -5;
    for (size_t i = 0; i < r->whole; i++)
        out[i] = ref[i] = -9 - (int)i;
    if (c->kind == SCAN || c->kind == EXSCAN || c->kind == RS) {
        size_t all = c->kind == RS ? 0 : n, mine, upto = (size_t)(c->kind == SCAN ? me + 1 : c->kind == EXSCAN ? me : np);
        for (int p = 0; c->kind == RS && p < np; p++) {
            before += p < me ? (size_t)r->ci[p] : 0;
            all += (size_t)r->ci[p];
        }
        mine = c->kind == RS ? (size_t)r->ci[me] : n;
        for (size_t i = 0; i < all; i++)
            (c->in_place ? out : in)[i] = value(me, 0, i, tag, round);
        if (c->in_place)
            memcpy(ref, out, all * sizeof *ref);
        for (size_t i = 0; i < mine && upto; i++) {
            ref[i] = 0;
            for (size_t p = 0; p < upto; p++)
                ref[i] += value((int)p, 0, before + i, tag, round);
        }
        return;
    }
    for (int k = 0; k < s->nb; k++) {
        /* The one block of those that gather lies at the start. */
        int *at = swap ? out + r->di[k] : is_gather(c->kind) ? in : in + s->di[k];
        int len = is_gather(c->kind) ? length(c, me, c->kind == GATHERV ? c->root : 0) : swap ? ints(r, k) : ints(s, k);
        if (s->peer[k] == MPI_PROC_NULL || (c->kind == SCATTERV && me != c->root))
            continue;
        for (int i = 0; i < len; i++)
            at[i] = value(me, s->block[k], (size_t)i, tag, round);
    }
    if (c->kind == SCATTERV) {
        for (int i = 0; i < length(c, c->root, me) && !(c->in_place && me == c->root); i++)
            ref[i] = value(c->root, me, (size_t)i, tag, round);
        return;
    }
    for (int k = 0; k < r->nb; k++) {
        if (r->peer[k] == MPI_PROC_NULL || (c->kind == GATHERV && me != c->root))
            continue;
        for (int i = 0; i < ints(r, k); i++)
            ref[r->di[k] + i] = value(r->peer[k], r->block[k], (size_t)i, tag, round);
    }
    if (c->in_place && (c->kind == GATHERV || c->kind == ALLGATHERV) && (c->kind == ALLGATHERV || me == c->root))
        memcpy(out + r->di[me], ref + r->di[me], (size_t)r->ci[me] * sizeof *out);
    if (swap)
        for (int k = 0; k < r->nb; k++)
            for (int i = ints(r, k), gap = r->di[k] + i; i < 0; i++)
                ref[gap] = out[gap];
}

static int one_case(const case_t *given, int tag)
{
    case_t copy = *given, *c = &copy;
    side_t s, r;
    MPI_Request req = MPI_REQUEST_NULL;
    MPIX_Occl_Coll coll = MPIX_OCCL_COLL_NULL;
    int rc = MPI_SUCCESS, good = 1, rounds = c->form == PERSISTENT ? 2 : 1;
    size_t most, compare;
    int *in, *out, *ref;

    if ((c->kind == GATHERV || c->kind == SCATTERV) && me != c->root)
        c->in_place = 0;
    lay_out(c, &s, 0);
    lay_out(c, &r, 1);
    if (c->kind == RS)
        for (int p = 0; p < np; p++)
            r.cl[p] = r.ci[p] = c->n % 2 ? c->n : length(c, p, 1);
    most = (size_t)(c->n + 8) * (size_t)(np + 4);
    s.whole = most > s.whole ? most : s.whole;
    r.whole = most > r.whole ? most : r.whole;
    in = calloc(s.whole, sizeof *in);
    out = calloc(r.whole, sizeof *out);
    ref = malloc(r.whole * sizeof *ref);
    compare = r.whole;
    if (c->kind == RS && c->in_place) /* the rest of the buffer is not defined */
        compare = (size_t)r.ci[me];
    if (c->form == PERSISTENT)
        rc = we_do(c, in, out, &s, &r, tag, &req, &coll);
    for (int round = 0; round < rounds && rc == MPI_SUCCESS; round++) {
        prepare(c, &s, &r, tag, round, in, out, ref);
        rc = c->form == PERSISTENT ? MPIX_Occl_start(coll, round ? &req : MPIX_OCCL_NO_REQUEST) : we_do(c, in, out, &s, &r, tag, &req, &coll);
        if (rc != MPI_SUCCESS)
            break;
        rc = c->form == ENQUEUED ? MPIX_Occl_queue_synchronize(queue)
             : c->form == PERSISTENT && !round ? MPIX_Occl_coll_wait(coll) : MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < compare && good && rc == MPI_SUCCESS; i++)
            if (out[i] != ref[i]) {
                tap_rank_diag("%s n %d root %d%s form %d%s shape %d round %d: element %zu is %d and not %d", kind_name[c->kind], c->n,
                              c->root, c->in_place ? " in place" : "", c->form, c->large ? " large" : "", (int)shape, round, i, out[i],
                              ref[i]);
                good = 0;
            }
    }
    if (rc != MPI_SUCCESS)
        tap_rank_diag("%s n %d form %d%s: %s", kind_name[c->kind], c->n, c->form, c->large ? " large" : "", whole_text(comm));
    if (coll != MPIX_OCCL_COLL_NULL && MPIX_Occl_coll_free(&coll) != MPI_SUCCESS)
        good = 0;
    free(in);
    free(out);
    free(ref);
    return good && rc == MPI_SUCCESS;
}

static void kinds(int in_group, int first, int last, const char *what)
{
    static const int counts[] = {0, 1, 6, 250, 1001, 20000, 60000};

    for (int k = first; k < last; k++) {
        int good = 1, tag = 1, ncases = 0;

        for (size_t i = 0; in_group && i < sizeof counts / sizeof counts[0]; i++) {
            for (int form = 0; form < FORMS; form++) {
                for (int in_place = 0; in_place < (k < NAG ? 2 : 1); in_place++) {
                    case_t c = {(kind_t)k, counts[i], ((int)i + form) % np, in_place, form, (int)(i + (size_t)form + (size_t)in_place) % 2};
                    if (np < tap_size && (i + (size_t)form) % 2)
                        continue;
                    good &= one_case(&c, tag++);
                    ncases++;
                }
            }
        }
        ok_all(good, "%d ranks%s: %s gives the right results and writes nothing else (%d cases)", np, what, kind_name[k], ncases);
    }
}

static void attach(void)
{
    return_errors(comm);
    if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
        bail("attach: %s", whole_text(comm));
}

static void neighbors(int in_group)
{
    static const char *const name[NGRAPHS] = {", a ring", ", a grid", ", a graph with two edges to oneself"};
    MPI_Comm flat = comm;

    for (int s = 0; s < NGRAPHS; s++) {
        shape = (shape_t)s;
        if (in_group) {
            int one = 1, weight[MAX] = {0}, dims[2] = {np % 2 ? np : np / 2, np % 2 ? 1 : 2}, open[2] = {0, 0};
            graph_t g = graph_of(me);

            if (shape == RING)
                MPI_Cart_create(flat, 1, &np, &one, 0, &comm);
            else if (shape == GRID)
                MPI_Cart_create(flat, 2, dims, open, 0, &comm);
            else
                MPI_Dist_graph_create_adjacent(flat, g.nin, g.in, weight, g.nout, g.out, weight, MPI_INFO_NULL, 0, &comm);
            attach();
        }
        kinds(in_group, NAG, NKINDS, name[s]);
        if (in_group) {
            MPIX_Occl_comm_detach(comm);
            MPI_Comm_free(&comm);
        }
    }
    comm = flat;
}

/* What must be refused, and what the members disagree about. All ranks. */
static void mistakes(void)
{
    int in[64] = {0}, out[64] = {0}, counts[8], displs[8], rc;
    MPI_Request req;

    for (int p = 0; p < np; p++) {
        counts[p] = 2;
        displs[p] = 2 * p;
    }
    rc = MPIX_Occl_ialltoallv(in, counts, displs, MPI_INT, in + 1, counts, displs, MPI_INT, 1, comm, &req);
    ok_all(is_class(rc, MPI_ERR_BUFFER, "overlap", comm), "%d ranks: blocks that overlap are refused", np);
    counts[0] = -1;
    rc = MPIX_Occl_iallgatherv(in, 2, MPI_INT, out, counts, displs, MPI_INT, 1, comm, &req);
    ok_all(is_class(rc, MPI_ERR_COUNT, "recvcounts[0] is -1", comm), "%d ranks: a negative count is named", np);
    counts[0] = 2;
    rc = MPIX_Occl_ialltoallv(in, NULL, displs, MPI_INT, out, counts, displs, MPI_INT, 1, comm, &req);
    ok_all(is_class(rc, MPI_ERR_ARG, "NULL", comm), "%d ranks: an array of counts that is NULL is refused", np);
    rc = MPIX_Occl_ineighbor_allgather(in, 1, MPI_INT, out, 1, MPI_INT, 1, comm, &req);
    ok_all(is_class(rc, MPI_ERR_COMM, "no topology", comm), "%d ranks: without a topology there are no neighbours", np);
    rc = MPIX_Occl_iscatterv(in, counts, displs, MPI_INT, MPI_IN_PLACE, 2, MPI_INT, (me + 1) % np, 1, comm, &req);
    ok_all(np == 1 || is_class(rc, MPI_ERR_BUFFER, "only the root", comm), "%d ranks: only the root may be in place", np);
    if (np == 1)
        MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    if (np < 2) {
        skip(3, "members that disagree need two ranks");
        return;
    }
    counts[0] = me == 1 ? 3 : 2; /* rank 1 sends rank 0 one more than that one expects */
    displs[0] = 40;
    {
        int expect[8];
        for (int p = 0; p < np; p++)
            expect[p] = 2;
        rc = MPIX_Occl_ialltoallv(in, counts, displs, MPI_INT, out, expect, displs, MPI_INT, 2, comm, &req);
        rc = rc == MPI_SUCCESS ? MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) : rc;
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "rank 1 sends rank 0 12 bytes", comm) &&
                   strstr(whole_text(comm), "which expects 8 bytes"),
               "%d ranks: every member learns which block has another length at its two ends", np);
        rc = MPIX_Occl_ialltoallv(in, expect, displs, me == 1 ? MPI_FLOAT : MPI_INT, out, expect, displs, MPI_INT, 2, comm, &req);
        ok_all(np < 2 || me != 1 ? 1 : is_class(rc, MPI_ERR_TYPE, "itself", comm), "%d ranks: what one sends oneself has one type", np);
        if (rc == MPI_SUCCESS)
            (void)MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
        expect[0] = me == 1 ? 3 : 2;
        rc = MPIX_Occl_ireduce_scatter(in, out, expect, MPI_INT, MPI_SUM, 3, comm, &req);
        rc = rc == MPI_SUCCESS ? MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) : rc;
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "block 0: ", comm),
               "%d ranks: the part is named that has another length on one of them", np);
    }
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

static int got(const int *v, int n, int from, int round)
{
    for (int i = 0; i < n; i++)
        if (v[i] != from * 1000 + i + round)
            return 0;
    return 1;
}

/* All ranks. */
static void messages(void)
{
    enum { N = 30000 };
    int *in = calloc(N, sizeof *in), *out = calloc(N, sizeof *out), right = (me + 1) % np, left = (me + np - 1) % np, good = 1, count;
    MPIX_Occl_Coll to = MPIX_OCCL_COLL_NULL, from = MPIX_OCCL_COLL_NULL, both = MPIX_OCCL_COLL_NULL, none = MPIX_OCCL_COLL_NULL;
    MPI_Request req[2];
    MPI_Status st;

    good &= MPIX_Occl_send_init(in, N, MPI_INT, right, 3, comm, MPI_INFO_NULL, &to) == MPI_SUCCESS;
    good &= MPIX_Occl_recv_init_c(out, N, MPI_INT, left, 3, comm, MPI_INFO_NULL, &from) == MPI_SUCCESS;
    for (int round = 0; round < 4 && good; round++) {
        for (int i = 0; i < N; i++)
            in[i] = me * 1000 + i + round, out[i] = -1;
        if (round % 2) { /* with requests */
            good &= MPIX_Occl_start(from, &req[0]) == MPI_SUCCESS && MPIX_Occl_start(to, &req[1]) == MPI_SUCCESS;
            good &= MPIX_Occl_wait(&req[0], &st) == MPI_SUCCESS && MPIX_Occl_wait(&req[1], MPI_STATUS_IGNORE) == MPI_SUCCESS;
            MPI_Get_count(&st, MPI_INT, &count);
            good &= st.MPI_SOURCE == left && st.MPI_TAG == 3 && count == N;
        } else {
            good &= MPIX_Occl_start(to, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS && MPIX_Occl_start(from, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS;
            good &= MPIX_Occl_coll_wait(from) == MPI_SUCCESS && MPIX_Occl_coll_wait(to) == MPI_SUCCESS;
        }
        good &= got(out, N, left, round);
    }
    ok_all(good, "%d ranks: persistent messages arrive, with and without requests", np);
    MPIX_Occl_coll_free(&to);
    MPIX_Occl_coll_free(&from);

    good = MPIX_Occl_sendrecv_init(in, N, MPI_INT, right, 5, out, N, MPI_INT, left, 5, comm, MPI_INFO_NULL, &both) == MPI_SUCCESS;
    for (int round = 0; round < 6 && good; round++) {
        for (int i = 0; i < N; i++)
            in[i] = me * 1000 + i + round, out[i] = -1;
        switch (round) {
        case 0: good &= MPIX_Occl_start(both, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS && MPIX_Occl_coll_wait(both) == MPI_SUCCESS; break;
        case 1:
            good &= MPIX_Occl_start(both, &req[0]) == MPI_SUCCESS && MPI_Wait(&req[0], &st) == MPI_SUCCESS;
            MPI_Get_count(&st, MPI_INT, &count);
            good &= st.MPI_SOURCE == left && st.MPI_TAG == 5 && count == N;
            break;
        case 2:
            good &= MPIX_Occl_isendrecv(in, N, MPI_INT, right, 5, out, N, MPI_INT, left, 5, comm, &req[0]) == MPI_SUCCESS;
            for (int done = 0; !done && good;)
                good &= MPIX_Occl_test(&req[0], &done, &st) == MPI_SUCCESS;
            good &= st.MPI_SOURCE == left;
            break;
        case 3: /* the halves match plain messages */
            good &= me % 2 == 0 || np % 2
                        ? MPIX_Occl_isendrecv_c(in, N, MPI_INT, right, 5, out, N, MPI_INT, left, 5, comm, &req[0]) == MPI_SUCCESS &&
                              MPIX_Occl_wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS
                        : MPIX_Occl_irecv(out, N, MPI_INT, left, 5, comm, &req[0]) == MPI_SUCCESS &&
                              MPIX_Occl_isend_c(in, N, MPI_INT, right, 5, comm, &req[1]) == MPI_SUCCESS &&
                              MPIX_Occl_waitall(2, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
            break;
        case 4:
            good &= MPIX_Occl_sendrecv_enqueue(in, N, MPI_INT, right, 5, out, N, MPI_INT, left, 5, comm, MPIX_OCCL_QUEUE_HOST, queue) ==
                        MPI_SUCCESS && MPIX_Occl_queue_synchronize(queue) == MPI_SUCCESS;
            break;
        default:
            good &= MPIX_Occl_start_enqueue(both, MPIX_OCCL_QUEUE_HOST, queue) == MPI_SUCCESS &&
                    MPIX_Occl_wait_enqueue(both, MPIX_OCCL_QUEUE_HOST, queue) == MPI_SUCCESS &&
                    MPIX_Occl_queue_synchronize(queue) == MPI_SUCCESS;
        }
        if (!got(out, N, left, round)) {
            tap_rank_diag("sendrecv, round %d: %s", round, whole_text(comm));
            good = 0;
        }
    }
    ok_all(good, "%d ranks: a send and a receive in one go, in every form", np);
    MPIX_Occl_coll_free(&both);

    /* One half with nobody, both with nobody */
    out[0] = -1;
    good = MPIX_Occl_isendrecv(in, 1, MPI_INT, me ? MPI_PROC_NULL : np - 1, 6, out, 1, MPI_INT, me == np - 1 ? 0 : MPI_PROC_NULL, 6, comm,
                               &req[0]) == MPI_SUCCESS && MPIX_Occl_wait(&req[0], &st) == MPI_SUCCESS;
    good &= me == np - 1 ? out[0] == 5 : out[0] == -1 && st.MPI_SOURCE == MPI_PROC_NULL;
    good &= MPIX_Occl_send_init(in, 1, MPI_INT, MPI_PROC_NULL, 1, comm, MPI_INFO_NULL, &none) == MPI_SUCCESS &&
            MPIX_Occl_start(none, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS && MPIX_Occl_coll_wait(none) == MPI_SUCCESS &&
            MPIX_Occl_start(none, &req[0]) == MPI_SUCCESS && MPI_Wait(&req[0], MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            MPIX_Occl_coll_test(none, &count) == MPI_SUCCESS && count && MPIX_Occl_coll_free(&none) == MPI_SUCCESS;
    ok_all(good, "%d ranks: MPI_PROC_NULL is nobody, in either half and for good", np);
    ok_all(is_class(MPIX_Occl_isendrecv(in, 4, MPI_INT, right, 7, in + 3, 4, MPI_INT, left, 7, comm, &req[0]), MPI_ERR_BUFFER, "overlap", comm),
           "%d ranks: buffers that overlap are refused", np);
    free(in);
    free(out);
}

/* Counts that an int does not hold, as far as they can be without memory: all blocks but small ones are empty, or far away. */
static void large_counts(void)
{
    MPI_Count counts[8], far = (MPI_Count)5 << 30;
    MPI_Aint displs[8];
    char *reach = NULL;
    int in[2] = {me, me + 1}, rc;
    MPI_Request req;

    /* Displacements past 2^31 elements: the buffer begins far before what is there of it. */
    int *mem = calloc(2 * (size_t)np, sizeof *mem);
    for (int p = 0; p < np; p++) {
        counts[p] = 2;
        displs[p] = (MPI_Aint)far + 2 * p;
    }
    reach = (char *)((uintptr_t)mem - (uintptr_t)far * sizeof(int));
    rc = MPIX_Occl_iallgatherv_c(in, 2, MPI_INT, reach, counts, displs, MPI_INT, 1, comm, &req);
    rc = rc == MPI_SUCCESS ? MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) : rc;
    for (int p = 0; p < np && rc == MPI_SUCCESS; p++)
        if (mem[2 * p] != p || mem[2 * p + 1] != p + 1)
            rc = MPI_ERR_OTHER;
    ok_all(rc == MPI_SUCCESS, "%d ranks: displacements past 2^31 elements", np);
    rc = MPIX_Occl_ibcast_c(in, (MPI_Count)1 << 62, MPI_INT, 0, 1, comm, &req);
    ok_all(is_class(rc, MPI_ERR_COUNT, "too large", comm), "%d ranks: a count whose bytes no address has is refused", np);
    rc = MPIX_Occl_iallreduce_c(in, mem, (MPI_Count)-1, MPI_INT, MPI_SUM, 1, comm, &req);
    ok_all(is_class(rc, MPI_ERR_COUNT, "count is -1", comm), "%d ranks: a negative large count, too", np);
    free(mem);
}

int main(int argc, char **argv)
{
    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 1);
    return_errors(MPI_COMM_WORLD);
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    if (MPIX_Occl_queue_create(&queue) != MPI_SUCCESS)
        bail("queue_create: %s", whole_text(MPI_COMM_WORLD));
    for (int size = 1; size <= tap_size; size++) {
        int member = tap_rank < size;
        /* Ranks counted backwards, so that they are not MPI_COMM_WORLD's. */
        MPI_Comm_split(MPI_COMM_WORLD, member ? 0 : MPI_UNDEFINED, -tap_rank, &comm);
        np = size;
        me = size - 1 - tap_rank;
        if (member)
            attach();
        kinds(member, 0, NAG, "");
        neighbors(member);
        if (size == tap_size) {
            mistakes();
            messages();
            large_counts();
        }
        if (member) {
            MPIX_Occl_comm_detach(comm);
            MPI_Comm_free(&comm);
        }
    }
    MPIX_Occl_queue_free(&queue);
    MPI_Type_free(&two);
    return tap_mpi_end();
}
