/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream order on host queues: every operation, matching with starts of other forms, order within a queue and none between queues,
 * starts and waits apart, refusals, failures that are told once, queues and communicators that go while something is in them.
 */
#include "occl_test.h"

#include <unistd.h>

#define HOST MPIX_OCCL_QUEUE_HOST
#define STREAM MPIX_OCCL_QUEUE_CUDA_STREAM

static MPI_Comm comm;
static int me, np, last;

static void *new_queue(void)
{
    void *q = NULL;

    if (MPIX_Occl_queue_create(&q) != MPI_SUCCESS)
        bail("queue_create: %s", whole_text(MPI_COMM_NULL));
    return q;
}

static int sync_free(void **q)
{
    int good = MPIX_Occl_queue_synchronize(*q) == MPI_SUCCESS;

    return MPIX_Occl_queue_free(q) == MPI_SUCCESS && *q == NULL && good;
}

/* Nothing has failed since last time. Asking makes it told. */
static char error_before[1100];
static int no_error(void)
{
    const char *now = whole_text(comm);
    int same = strcmp(now, error_before) == 0;

    if (!same)
        tap_rank_diag("there is an error: %s", now);
    snprintf(error_before, sizeof error_before, "%s", now);
    return same;
}
static void forget_errors(void) { snprintf(error_before, sizeof error_before, "%s", whole_text(comm)); }

static int sum_of(int first, int step) /* first + rank * step over all ranks */
{
    return np * first + step * np * (np - 1) / 2;
}

static int works(void)
{
    int x = me + 1, sum = 0, rc;
    MPI_Request req;

    if ((rc = MPIX_Occl_iallreduce(&x, &sum, 1, MPI_INT, MPI_SUM, 0, comm, &req)) == MPI_SUCCESS)
        rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    if (rc != MPI_SUCCESS)
        tap_rank_diag("%s", whole_text(comm));
    return rc == MPI_SUCCESS && sum == sum_of(1, 1);
}

/* --- every operation ---------------------------------------------------------------------------------------------- */

typedef enum { BARRIER, BCAST, REDUCE, ALLREDUCE, GATHER, SCATTER, ALLGATHER, RSB, ALLTOALL, RING, NKINDS } kind_t;
static const char *const kind_name[] = {"barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather",
                                        "reduce_scatter_block", "alltoall", "send and recv"};

/* Ours when q, MPI's own else; in and out of `whole` elements */
static int operation(kind_t k, int n, int root, int in_place, int *in, int *out, int tag, void *q)
{
    const void *s = in_place ? MPI_IN_PLACE : (const void *)in, *rs = me == root ? s : (const void *)in;
    void *so = in_place && me == root ? MPI_IN_PLACE : (void *)out;
    int right = (me + 1) % np, left = (me + np - 1) % np, rc;

    switch (k) {
    case BARRIER: return q ? MPIX_Occl_barrier_enqueue(tag, comm, HOST, q) : MPI_SUCCESS;
    case BCAST:
        return q ? MPIX_Occl_bcast_enqueue(out, n, MPI_INT, root, tag, comm, HOST, q) : MPI_Bcast(out, n, MPI_INT, root, comm);
    case REDUCE:
        if (!q && in_place && me == root) { /* MPICH 4.0.2 crashes on a long one whose root is not rank 0 */
            int *copy = memcpy(malloc((size_t)n * sizeof *out + 1), out, (size_t)n * sizeof *out);

            rc = MPI_Reduce(copy, out, n, MPI_INT, MPI_SUM, root, comm);
            free(copy);
            return rc;
        }
        return q ? MPIX_Occl_reduce_enqueue(rs, out, n, MPI_INT, MPI_SUM, root, tag, comm, HOST, q)
                 : MPI_Reduce(rs, out, n, MPI_INT, MPI_SUM, root, comm);
    case ALLREDUCE:
        return q ? MPIX_Occl_allreduce_enqueue(s, out, n, MPI_INT, MPI_SUM, tag, comm, HOST, q)
                 : MPI_Allreduce(s, out, n, MPI_INT, MPI_SUM, comm);
    case GATHER:
        return q ? MPIX_Occl_gather_enqueue(rs, n, MPI_INT, out, n, MPI_INT, root, tag, comm, HOST, q)
                 : MPI_Gather(rs, n, MPI_INT, out, n, MPI_INT, root, comm);
    case SCATTER:
        return q ? MPIX_Occl_scatter_enqueue(in, n, MPI_INT, so, n, MPI_INT, root, tag, comm, HOST, q)
                 : MPI_Scatter(in, n, MPI_INT, so, n, MPI_INT, root, comm);
    case ALLGATHER:
        return q ? MPIX_Occl_allgather_enqueue(s, n, MPI_INT, out, n, MPI_INT, tag, comm, HOST, q)
                 : MPI_Allgather(s, n, MPI_INT, out, n, MPI_INT, comm);
    case RSB:
        return q ? MPIX_Occl_reduce_scatter_block_enqueue(in, out, n, MPI_INT, MPI_SUM, tag, comm, HOST, q)
                 : MPI_Reduce_scatter_block(in, out, n, MPI_INT, MPI_SUM, comm);
    case ALLTOALL:
        return q ? MPIX_Occl_alltoall_enqueue(s, n, MPI_INT, out, n, MPI_INT, tag, comm, HOST, q)
                 : MPI_Alltoall(s, n, MPI_INT, out, n, MPI_INT, comm);
    case RING:
        if (!q)
            return MPI_Sendrecv(in, n, MPI_INT, right, 1, out, n, MPI_INT, left, 1, comm, MPI_STATUS_IGNORE);
        /* In one queue a send waits for its receive: somebody has to receive first. */
        if (me == 0 && (rc = MPIX_Occl_recv_enqueue(out, n, MPI_INT, left, tag, comm, HOST, q)) != MPI_SUCCESS)
            return rc;
        rc = MPIX_Occl_send_enqueue(in, n, MPI_INT, right, tag, comm, HOST, q);
        if (me != 0 && rc == MPI_SUCCESS)
            rc = MPIX_Occl_recv_enqueue(out, n, MPI_INT, left, tag, comm, HOST, q);
        return rc;
    default: return MPI_ERR_OTHER;
    }
}

static void every_operation(void)
{
    static const int counts[] = {0, 1, 17, 1000, 5001, 40000};
    enum { NCOUNTS = sizeof counts / sizeof counts[0], NQ = 3 };

    for (int k = 0; k < NKINDS; k++) {
        int good = 1, *in[NCOUNTS], *out[NCOUNTS], *ref[NCOUNTS];
        void *q[NQ];

        for (int i = 0; i < NQ; i++)
            q[i] = new_queue();
        for (int c = 0; c < NCOUNTS; c++) {
            size_t whole = (size_t)counts[c] * (size_t)np + 8;

            in[c] = malloc(whole * sizeof(int));
            out[c] = malloc(whole * sizeof(int));
            ref[c] = malloc(whole * sizeof(int));
            for (size_t j = 0; j < whole; j++) {
                in[c][j] = (int)j * 31 + me * 1003 + c;
                out[c][j] = ref[c][j] = -(int)j * 13 - me * 7001;
            }
            good &= operation((kind_t)k, counts[c], c % np, c % 2, in[c], ref[c], 0, NULL) == MPI_SUCCESS;
        }
        /* Queues in another order on each rank; within a queue the same order */
        for (int i = 0; i < NQ; i++) {
            int at = (i + me) % NQ;

            for (int c = at; c < NCOUNTS; c += NQ) {
                int rc = operation((kind_t)k, counts[c], c % np, c % 2, in[c], out[c], 10 + c, q[at]);

                if (rc != MPI_SUCCESS)
                    tap_rank_diag("%s: %s", kind_name[k], text_of(rc));
                good &= rc == MPI_SUCCESS;
            }
        }
        for (int i = NQ - 1; i >= 0; i--)
            good &= sync_free(&q[i]);
        for (int c = 0; c < NCOUNTS; c++) {
            size_t whole = (size_t)counts[c] * (size_t)np + 8;

            if (memcmp(out[c], ref[c], whole * sizeof(int)) != 0) {
                tap_rank_diag("%s of %d: wrong", kind_name[k], counts[c]);
                good = 0;
            }
            free(in[c]);
            free(out[c]);
            free(ref[c]);
        }
        ok_all(good && no_error(), "%s in queues gives the right results and writes nothing else", kind_name[k]);
    }
    {
        void *q = new_queue();
        int x = 3, good;

        good = MPIX_Occl_send_enqueue(&x, 1, MPI_INT, MPI_PROC_NULL, 1, comm, HOST, q) == MPI_SUCCESS &&
               MPIX_Occl_recv_enqueue(&x, 1, MPI_INT, MPI_PROC_NULL, 1, comm, HOST, q) == MPI_SUCCESS && sync_free(&q);
        ok_all(good && x == 3, "MPI_PROC_NULL is nobody");
    }
    {
        void *q[2] = {new_queue(), new_queue()};
        int in = me + 5, out = -1, good;

        /* A message to oneself needs a queue for each side, or the receive would never begin. */
        good = MPIX_Occl_send_enqueue(&in, 1, MPI_INT, me, 2, comm, HOST, q[0]) == MPI_SUCCESS &&
               MPIX_Occl_recv_enqueue(&out, 1, MPI_INT, me, 2, comm, HOST, q[1]) == MPI_SUCCESS && sync_free(&q[0]) && sync_free(&q[1]);
        ok_all(good && out == me + 5, "a message to oneself goes from one queue to another");
    }
}

/* --- matching ----------------------------------------------------------------------------------------------------- */

/* The n-th start with the tag on each rank, in another form on each one */
static void forms_match(void)
{
    enum { ROUNDS = 24 };
    int in[ROUNDS], out[ROUNDS], nreq = 0, good = 1;
    MPI_Request req[ROUNDS];
    MPIX_Occl_Coll coll[ROUNDS];
    void *q = new_queue(), *other = new_queue();

    for (int n = 0; n < ROUNDS; n++) {
        int rc = MPI_SUCCESS;

        in[n] = n * 100 + me;
        out[n] = -1;
        coll[n] = MPIX_OCCL_COLL_NULL;
        switch ((n + me) % 5) {
        case 0: rc = MPIX_Occl_allreduce_enqueue(&in[n], &out[n], 1, MPI_INT, MPI_SUM, 20, comm, HOST, q); break;
        case 1: rc = MPIX_Occl_iallreduce(&in[n], &out[n], 1, MPI_INT, MPI_SUM, 20, comm, &req[nreq++]); break;
        case 2:
        case 3:
            rc = MPIX_Occl_allreduce_init(&in[n], &out[n], 1, MPI_INT, MPI_SUM, 20, comm, MPI_INFO_NULL, &coll[n]);
            if (rc == MPI_SUCCESS)
                rc = (n + me) % 5 == 2 ? MPIX_Occl_start(coll[n], MPIX_OCCL_NO_REQUEST) : MPIX_Occl_start_enqueue(coll[n], HOST, other);
            break;
        default: rc = MPIX_Occl_allreduce_enqueue(&in[n], &out[n], 1, MPI_INT, MPI_SUM, 20, comm, HOST, other); break;
        }
        if (rc != MPI_SUCCESS)
            tap_rank_diag("round %d: %s", n, text_of(rc));
        good &= rc == MPI_SUCCESS;
    }
    good &= MPIX_Occl_waitall(nreq, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    good &= sync_free(&q) && sync_free(&other);
    for (int n = 0; n < ROUNDS; n++) {
        if (coll[n] != MPIX_OCCL_COLL_NULL)
            good &= MPIX_Occl_coll_wait(coll[n]) == MPI_SUCCESS && MPIX_Occl_coll_free(&coll[n]) == MPI_SUCCESS;
        good &= out[n] == sum_of(n * 100, 1);
    }
    ok_all(good && no_error(), "enqueued, nonblocking and persistent starts of one tag match each other, in the order of the calls");
}

/* The place is the call's, although the queue gets there later. */
static void place_of_the_call(void)
{
    int a[3], b[5], sa[3] = {0}, sb[5] = {0}, good = 1;
    MPI_Request r[2];
    void *q = new_queue();

    for (int i = 0; i < 5; i++)
        b[i] = me * 10 + i;
    for (int i = 0; i < 3; i++)
        a[i] = me + i;
    if (me == 0) {
        /* The queue is held by a barrier that the others start last. */
        good &= MPIX_Occl_barrier_enqueue(21, comm, HOST, q) == MPI_SUCCESS;
        good &= MPIX_Occl_allreduce_enqueue(a, sa, 3, MPI_INT, MPI_SUM, 22, comm, HOST, q) == MPI_SUCCESS;
        good &= MPIX_Occl_iallreduce(b, sb, 5, MPI_INT, MPI_SUM, 22, comm, &r[0]) == MPI_SUCCESS;
        meet(comm);
        good &= MPIX_Occl_wait(&r[0], MPI_STATUS_IGNORE) == MPI_SUCCESS && MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS;
    } else {
        good &= MPIX_Occl_iallreduce(a, sa, 3, MPI_INT, MPI_SUM, 22, comm, &r[0]) == MPI_SUCCESS;
        good &= MPIX_Occl_iallreduce(b, sb, 5, MPI_INT, MPI_SUM, 22, comm, &r[1]) == MPI_SUCCESS;
        meet(comm);
        good &= MPIX_Occl_barrier_enqueue(21, comm, HOST, q) == MPI_SUCCESS;
        good &= MPIX_Occl_waitall(2, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS && MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS;
    }
    good &= MPIX_Occl_queue_free(&q) == MPI_SUCCESS;
    ok_all(good && no_error() && sa[2] == sum_of(2, 1) && sb[4] == sum_of(4, 10),
           "a start has its place from the call on, although its queue gets there later");
}

/* --- order -------------------------------------------------------------------------------------------------------- */

static int still_pending(MPI_Request *r)
{
    int flag = 0;

    for (int i = 0; i < 20 && !flag; i++) {
        if (MPIX_Occl_test(r, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 0;
        usleep(1000);
    }
    return !flag;
}

static void wait_holds_back(void)
{
    int one = me + 1, sum = 0, copy = -1, good = 1, late = me == last;
    MPIX_Occl_Coll a;
    MPI_Request r;
    void *q = new_queue();

    good &= MPIX_Occl_allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, 30, comm, MPI_INFO_NULL, &a) == MPI_SUCCESS;
    if (me == 0) {
        good &= MPIX_Occl_start_enqueue(a, HOST, q) == MPI_SUCCESS && MPIX_Occl_wait_enqueue(a, HOST, q) == MPI_SUCCESS;
        good &= MPIX_Occl_bcast_enqueue(&sum, 1, MPI_INT, 0, 31, comm, HOST, q) == MPI_SUCCESS;
        usleep(20000);
        good &= sum == 0;
    } else {
        good &= MPIX_Occl_ibcast(&copy, 1, MPI_INT, 0, 31, comm, &r) == MPI_SUCCESS;
        if (!late)
            good &= MPIX_Occl_start(a, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS;
        good &= still_pending(&r) && copy == -1;
    }
    meet(comm);
    if (late)
        good &= MPIX_Occl_start(a, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS;
    if (me == 0)
        good &= MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS;
    else
        good &= MPIX_Occl_wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS && copy == sum_of(1, 1);
    good &= MPIX_Occl_coll_wait(a) == MPI_SUCCESS && sum == sum_of(1, 1);
    good &= MPIX_Occl_coll_free(&a) == MPI_SUCCESS && MPIX_Occl_queue_free(&q) == MPI_SUCCESS;
    ok_all(good && no_error(), "a wait in a queue holds back what is behind it, which then finds the result");
}

static void start_does_not(void)
{
    int one = me + 1, sum[2] = {0, 0}, flag = 1, good = 1, late = me == last;
    MPIX_Occl_Coll a;
    void *q = new_queue();

    good &= MPIX_Occl_allreduce_init(&one, &sum[0], 1, MPI_INT, MPI_SUM, 32, comm, MPI_INFO_NULL, &a) == MPI_SUCCESS;
    if (!late)
        good &= MPIX_Occl_start_enqueue(a, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&one, &sum[1], 1, MPI_INT, MPI_SUM, 33, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS && sum[1] == sum_of(1, 1);
    if (!late)
        good &= MPIX_Occl_coll_test(a, &flag) == MPI_SUCCESS && !flag;
    meet(comm);
    if (late)
        good &= MPIX_Occl_start_enqueue(a, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_wait_enqueue(a, HOST, q) == MPI_SUCCESS && MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS && sum[0] == sum_of(1, 1);
    good &= MPIX_Occl_wait_enqueue(a, HOST, q) == MPI_SUCCESS && MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS;
    good &= MPIX_Occl_coll_free(&a) == MPI_SUCCESS && MPIX_Occl_queue_free(&q) == MPI_SUCCESS;
    ok_all(good && no_error(), "a start alone holds back nothing, and synchronising does not wait for it");
}

/* Two queues that the ranks fill in opposite orders; in one queue: starts in opposite orders, before the waits. */
static void opposite_orders(void)
{
    enum { ROUNDS = 20 };
    int good = 1, in[2], out[2], twice[2], x = me % 2;
    MPIX_Occl_Coll c[2];
    void *q[2] = {new_queue(), new_queue()};

    for (int i = 0; i < 2; i++)
        good &= MPIX_Occl_allreduce_init(&in[i], &out[i], 1, MPI_INT, MPI_SUM, 34 + i, comm, MPI_INFO_NULL, &c[i]) == MPI_SUCCESS;
    for (int round = 0; round < ROUNDS && good; round++) {
        in[0] = round + me;
        in[1] = round * 2 - me;
        for (int i = 0; i < 2; i++)
            good &= MPIX_Occl_start_enqueue(c[i ^ x], HOST, q[0]) == MPI_SUCCESS;
        for (int i = 0; i < 2; i++)
            good &= MPIX_Occl_wait_enqueue(c[i ^ (round & 1)], HOST, q[0]) == MPI_SUCCESS;
        good &= MPIX_Occl_allreduce_enqueue(out, twice, 2, MPI_INT, MPI_SUM, 36, comm, HOST, q[0]) == MPI_SUCCESS;
        good &= MPIX_Occl_queue_synchronize(q[0]) == MPI_SUCCESS && twice[0] == np * sum_of(round, 1) && twice[1] == np * sum_of(round * 2, -1);
    }
    for (int i = 0; i < 2; i++)
        good &= MPIX_Occl_coll_free(&c[i]) == MPI_SUCCESS;
    ok_all(good && no_error(), "starts in one queue may stand in opposite orders, before the waits");

    for (int round = 0; round < ROUNDS && good; round++) {
        for (int i = 0; i < 2; i++) {
            int k = i ^ x;

            in[k] = round + me + k;
            good &= MPIX_Occl_allreduce_enqueue(&in[k], &out[k], 1, MPI_INT, MPI_SUM, 34 + k, comm, HOST, q[k]) == MPI_SUCCESS;
            good &= MPIX_Occl_allreduce_enqueue(&out[k], &twice[k], 1, MPI_INT, MPI_SUM, 34 + k, comm, HOST, q[k]) == MPI_SUCCESS;
        }
        for (int i = 0; i < 2; i++)
            good &= MPIX_Occl_queue_synchronize(q[i]) == MPI_SUCCESS && twice[i] == np * sum_of(round + i, 1);
    }
    for (int i = 0; i < 2; i++)
        good &= MPIX_Occl_queue_free(&q[i]) == MPI_SUCCESS;
    ok_all(good && no_error(), "queues may be filled in opposite orders");
}

/* Starts of one operation behind each other, without a look at them */
static void loops(void)
{
    enum { ROUNDS = 10 };
    int x[2] = {1, me}, y[2] = {0, 0}, want[2] = {1, sum_of(0, 1)}, good = 1;
    MPIX_Occl_Coll c[2];
    void *q = new_queue();

    for (int i = 0; i < 2; i++)
        good &= MPIX_Occl_allreduce_init(i ? y : x, i ? x : y, 2, MPI_INT, MPI_SUM, 37, comm, MPI_INFO_NULL, &c[i]) == MPI_SUCCESS;
    for (int round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2 && me == last)
            usleep(10000);
        good &= MPIX_Occl_start_enqueue(c[round % 2], HOST, q) == MPI_SUCCESS;
        if (round % 3) /* one tag: they are executed one after the other in any case */
            good &= MPIX_Occl_wait_enqueue(c[round % 2], HOST, q) == MPI_SUCCESS;
        for (int i = 0; i < 2; i++)
            want[i] *= round || i == 0 ? np : 1;
    }
    for (int i = 0; i < 2; i++)
        good &= MPIX_Occl_coll_wait(c[i]) == MPI_SUCCESS && MPIX_Occl_coll_free(&c[i]) == MPI_SUCCESS;
    good &= sync_free(&q);
    ok_all(good && no_error() && x[0] == want[0] && x[1] == want[1], "an operation may be started in a queue again and again");
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void refused(int rc, const char *fn, const char *part, const char *what)
{
    int code;
    static char text[1100];

    MPIX_Occl_comm_get_error(MPI_COMM_NULL, &code, text, sizeof text); /* of this thread: not all name a communicator */
    if (class_of(rc) != MPI_ERR_ARG || code != rc || !strstr(text, part) || !strstr(text, fn)) {
        tap_rank_diag("class %d, \"%s\"; wanted \"%s\" of %s in it", class_of(rc), text, part, fn);
        rc = MPI_SUCCESS;
    }
    ok_all(rc != MPI_SUCCESS, "%s", what);
}

static void arguments(void)
{
    void *q = new_queue(), *gone = new_queue(), *copy = gone, *null = NULL;
    int x = me, y = 0;
    MPIX_Occl_Coll c = MPIX_OCCL_COLL_NULL;

    ok_all(MPIX_Occl_queue_free(&gone) == MPI_SUCCESS && gone == NULL, "a queue is freed and its handle NULL");
    refused(MPIX_Occl_barrier_enqueue(1, comm, 7, q), "MPIX_Occl_barrier_enqueue", "queue_type is 7", "an unknown type of queue is MPI_ERR_ARG");
    refused(MPIX_Occl_barrier_enqueue(1, comm, HOST, NULL), "MPIX_Occl_barrier_enqueue", "queue is NULL", "no queue is MPI_ERR_ARG");
    refused(MPIX_Occl_barrier_enqueue(1, comm, HOST, copy), "MPIX_Occl_barrier_enqueue", "freed", "a queue that was freed is MPI_ERR_ARG");
    refused(MPIX_Occl_barrier_enqueue(1, comm, HOST, &x), "MPIX_Occl_barrier_enqueue", "queue_create", "so is what never was one");
    refused(MPIX_Occl_barrier_enqueue(1, comm, HOST, (void *)1), "MPIX_Occl_barrier_enqueue", "queue_create", "also where nothing can be read");
    refused(MPIX_Occl_allreduce_enqueue(&x, &y, 1, MPI_INT, MPI_SUM, 1, comm, STREAM, NULL), "MPIX_Occl_allreduce_enqueue", "\"host\"",
            "a CUDA stream on a communicator of the host device is MPI_ERR_ARG");
    refused(MPIX_Occl_queue_create(NULL), "MPIX_Occl_queue_create", "NULL", "no place for a queue is MPI_ERR_ARG");
    refused(MPIX_Occl_queue_free(NULL), "MPIX_Occl_queue_free", "NULL", "freeing nowhere is MPI_ERR_ARG");
    refused(MPIX_Occl_queue_free(&null), "MPIX_Occl_queue_free", "queue_create", "freeing none is MPI_ERR_ARG");
    refused(MPIX_Occl_queue_free(&copy), "MPIX_Occl_queue_free", "freed", "freeing one twice is MPI_ERR_ARG");
    refused(MPIX_Occl_queue_synchronize(copy), "MPIX_Occl_queue_synchronize", "freed", "synchronising one that was freed is MPI_ERR_ARG");
    refused(MPIX_Occl_queue_synchronize(NULL), "MPIX_Occl_queue_synchronize", "queue_create", "synchronising none is MPI_ERR_ARG");
    MPIX_Occl_allreduce_init(&x, &y, 1, MPI_INT, MPI_SUM, 1, comm, MPI_INFO_NULL, &c);
    refused(MPIX_Occl_start_enqueue(c, 0, q), "MPIX_Occl_start_enqueue", "queue_type is 0", "start_enqueue looks at the type");
    refused(MPIX_Occl_start_enqueue(c, HOST, NULL), "MPIX_Occl_start_enqueue", "NULL", "and the queue");
    refused(MPIX_Occl_wait_enqueue(c, -3, q), "MPIX_Occl_wait_enqueue", "queue_type is -3", "wait_enqueue too");
    refused(MPIX_Occl_wait_enqueue(c, HOST, NULL), "MPIX_Occl_wait_enqueue", "NULL", "and the queue");
    ok_all(is_class(MPIX_Occl_start_enqueue(MPIX_OCCL_COLL_NULL, HOST, q), MPI_ERR_REQUEST, NULL, MPI_COMM_NULL) &&
               is_class(MPIX_Occl_wait_enqueue(MPIX_OCCL_COLL_NULL, HOST, q), MPI_ERR_REQUEST, NULL, MPI_COMM_NULL),
           "MPIX_OCCL_COLL_NULL is MPI_ERR_REQUEST");
    ok_all(is_class(MPIX_Occl_barrier_enqueue(-5, comm, HOST, q), MPI_ERR_TAG, "-5", comm) &&
               is_class(MPIX_Occl_bcast_enqueue(&x, 1, MPI_INT, np, 1, comm, HOST, q), MPI_ERR_ROOT, "MPIX_Occl_bcast_enqueue", comm) &&
               is_class(MPIX_Occl_allreduce_enqueue(&x, &y, -2, MPI_INT, MPI_SUM, 1, comm, HOST, q), MPI_ERR_COUNT, "-2", comm) &&
               is_class(MPIX_Occl_allreduce_enqueue(NULL, &y, 1, MPI_INT, MPI_SUM, 1, comm, HOST, q), MPI_ERR_BUFFER, NULL, comm) &&
               is_class(MPIX_Occl_send_enqueue(&x, 1, MPI_INT, np, 1, comm, HOST, q), MPI_ERR_RANK, "dest", comm) &&
               is_class(MPIX_Occl_barrier_enqueue(1, MPI_COMM_SELF, HOST, q), MPIX_OCCL_ERR_NOT_ATTACHED, NULL, MPI_COMM_SELF),
           "the arguments of the operations are looked at as in the other forms");
    ok_all(MPIX_Occl_wait_enqueue(c, HOST, q) == MPI_SUCCESS && MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS,
           "waiting for what was never started, and for an empty queue, is no waiting");
    /* Each of the refused starts has its place on tag 1, on all ranks alike. */
    y = 0;
    ok_all(MPIX_Occl_start_enqueue(c, HOST, q) == MPI_SUCCESS && MPIX_Occl_coll_wait(c) == MPI_SUCCESS && y == sum_of(0, 1),
           "afterwards the tag works, and coll_wait completes what a queue has started");
    MPIX_Occl_coll_free(&c);
    ok_all(sync_free(&q) && works(), "and everything else");
}

static void active(void)
{
    int x = me, y = 0, rc[2], flag = 1, good;
    MPIX_Occl_Coll c, b;
    MPI_Request r = MPI_REQUEST_NULL;
    void *q = new_queue();

    MPIX_Occl_allreduce_init(&x, &y, 1, MPI_INT, MPI_SUM, 40, comm, MPI_INFO_NULL, &c);
    MPIX_Occl_barrier_init(41, comm, MPI_INFO_NULL, &b);
    if (me == 0) {
        /* The queue does not get there before the others have started the barrier. */
        good = MPIX_Occl_start_enqueue(b, HOST, q) == MPI_SUCCESS && MPIX_Occl_wait_enqueue(b, HOST, q) == MPI_SUCCESS &&
               MPIX_Occl_start_enqueue(c, HOST, q) == MPI_SUCCESS;
        rc[0] = MPIX_Occl_start(c, MPIX_OCCL_NO_REQUEST);
        rc[1] = MPIX_Occl_start(c, &r);
        good = good && class_of(rc[0]) == MPI_ERR_REQUEST && class_of(rc[1]) == MPI_ERR_REQUEST && r == MPI_REQUEST_NULL;
        good = good && MPIX_Occl_coll_test(c, &flag) == MPI_SUCCESS && !flag;
        meet(comm);
    } else {
        good = MPIX_Occl_start(c, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS;
        rc[0] = MPIX_Occl_start_enqueue(c, HOST, q);
        good = good && class_of(rc[0]) == MPI_ERR_REQUEST;
        meet(comm);
        good = good && MPIX_Occl_start_enqueue(b, HOST, q) == MPI_SUCCESS;
    }
    good = good && MPIX_Occl_coll_wait(c) == MPI_SUCCESS && y == sum_of(0, 1) && MPIX_Occl_coll_wait(b) == MPI_SUCCESS;
    ok_all(good, "starting what waits in a queue, or enqueueing what is active, is MPI_ERR_REQUEST and takes no place");
    y = 0;
    good = MPIX_Occl_start_enqueue(c, HOST, q) == MPI_SUCCESS && MPIX_Occl_coll_free(&c) == MPI_SUCCESS &&
           MPIX_Occl_barrier_enqueue(40, comm, HOST, q) == MPI_SUCCESS && sync_free(&q);
    ok_all(good && y == sum_of(0, 1), "an operation may be freed while it is in a queue");
    MPIX_Occl_coll_free(&b);
    forget_errors();
}

/* --- failures ----------------------------------------------------------------------------------------------------- */

static int nhandled, handled;
static void handler(MPI_Comm *c, int *code, ...)
{
    (void)c;
    handled = *code;
    nhandled++;
}

static int a[8], b[8];
static void fail_one(void *q) /* the last rank means something else */
{
    if (MPIX_Occl_allreduce_enqueue(a, b, me == last ? 3 : 4, MPI_INT, MPI_SUM, 50, comm, HOST, q) != MPI_SUCCESS ||
        MPIX_Occl_queue_synchronize(q) != MPI_SUCCESS)
        tap_rank_diag("fail_one: %s", whole_text(comm));
}
static int is_told(int rc) { return class_of(rc) == MPIX_OCCL_ERR_MISMATCH && nhandled == 1 && handled == rc; }

static void told_once(void)
{
    MPI_Errhandler h;
    MPI_Request r = MPI_REQUEST_NULL;
    MPIX_Occl_Coll c = MPIX_OCCL_COLL_NULL, none = MPIX_OCCL_COLL_NULL;
    void *q = new_queue(), *other = new_queue();
    int rc, code, x = me, y, good, flag;
    char text[1100];

    MPI_Comm_create_errhandler(handler, &h);
    MPI_Comm_set_errhandler(comm, h);
    MPIX_Occl_allreduce_init(&x, &y, 1, MPI_INT, MPI_SUM, 51, comm, MPI_INFO_NULL, &c);

#define TOLD(call, what)                                                                             \
    do {                                                                                             \
        fail_one(q);                                                                                 \
        nhandled = 0;                                                                                \
        rc = (call);                                                                                 \
        good = is_told(rc) && strstr(whole_text(comm), "enqueued") && strstr(whole_text(comm), "count"); \
        if (!good)                                                                                   \
            tap_rank_diag("class %d, %d handled: %s", class_of(rc), nhandled, whole_text(comm));     \
        good = works() && good && nhandled == 1;                                                     \
        ok_all(good, "a failure in a queue is told once, by " what);                                 \
    } while (0)
    TOLD(MPIX_Occl_ibarrier(51, comm, &r), "the next nonblocking start");
    TOLD(MPIX_Occl_start(c, MPIX_OCCL_NO_REQUEST), "a persistent start");
    TOLD(MPIX_Occl_start(c, &r), "one with a request");
    TOLD(MPIX_Occl_barrier_enqueue(51, comm, HOST, q), "the next operation in a queue");
    TOLD(MPIX_Occl_start_enqueue(c, HOST, q), "a start in a queue");
    TOLD(MPIX_Occl_wait_enqueue(c, HOST, q), "a wait in a queue");
    TOLD(MPIX_Occl_barrier_init(51, comm, MPI_INFO_NULL, &none), "the making of an operation");
    TOLD(MPIX_Occl_isend(&x, 1, MPI_INT, MPI_PROC_NULL, 51, comm, &r), "a send to nobody");
    ok_all(r == MPI_REQUEST_NULL && none == MPIX_OCCL_COLL_NULL, "no handle comes of that");
    /* The refused starts have their places: */
    good = MPIX_Occl_start(c, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS && MPIX_Occl_coll_wait(c) == MPI_SUCCESS && y == sum_of(0, 1);
    ok_all(good, "the tag of the refused starts goes on");

    fail_one(q);
    nhandled = 0;
    rc = MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
    good = rc == MPI_SUCCESS && class_of(code) == MPIX_OCCL_ERR_MISMATCH && strstr(text, "count") && nhandled == 0;
    if (!good)
        tap_rank_diag("%s", text);
    ok_all(good && works() && nhandled == 0, "comm_get_error tells it without the handler, and then no call does");

    /* The first of two; what is behind them goes on. Nothing begins before the last rank's queue has passed the barrier, or one
     * of the calls would be told already. */
    y = 0;
    good = me != last || MPIX_Occl_barrier_enqueue(54, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(a, b, me == last ? 3 : 4, MPI_INT, MPI_SUM, 50, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_bcast_enqueue(b, 1, MPI_INT, me == last ? 1 : 0, 50, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&x, &y, 1, MPI_INT, MPI_SUM, 50, comm, HOST, q) == MPI_SUCCESS;
    meet(comm);
    good &= me == last || MPIX_Occl_barrier_enqueue(54, comm, HOST, other) == MPI_SUCCESS;
    good &= MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS && y == sum_of(0, 1);
    ok_all(good, "a queue goes on after failures");
    MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
    good = class_of(code) == MPIX_OCCL_ERR_MISMATCH && strstr(text, "count") && works();
    if (!good)
        tap_rank_diag("%s", text);
    ok_all(good, "the first of them is told, and no other");
    good = sync_free(&other);

    /* A persistent one: its own outcome, and the communicator's */
    {
        MPIX_Occl_Coll bad;

        MPIX_Occl_bcast_init(b, 2, MPI_INT, me == last ? 1 : 0, 52, comm, MPI_INFO_NULL, &bad);
        MPIX_Occl_start_enqueue(bad, HOST, q);
        nhandled = 0;
        rc = MPIX_Occl_coll_wait(bad);
        good = is_told(rc) && strstr(whole_text(comm), "root");
        MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
        good = good && class_of(MPIX_Occl_coll_test(bad, &flag)) == MPIX_OCCL_ERR_MISMATCH && flag;
        MPIX_Occl_coll_free(&bad);
        ok_all(good, "the outcome of a start in a queue is the operation's as well");
    }

    /* Refused on one rank only */
    rc = MPIX_Occl_barrier_enqueue(53, comm, me == last ? 9 : HOST, q);
    good = me == last ? class_of(rc) == MPI_ERR_ARG : rc == MPI_SUCCESS;
    good = MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS && good;
    MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
    good = good && class_of(code) == (me == last ? MPI_ERR_ARG : MPIX_OCCL_ERR_MISMATCH);
    ok_all(good, "one that is refused on a rank is a mismatch on the others");
    MPIX_Occl_coll_free(&c);
    MPIX_Occl_barrier_init(53, comm, MPI_INFO_NULL, &c);
    rc = MPIX_Occl_start_enqueue(c, me == last ? 9 : HOST, q);
    good = me == last ? class_of(rc) == MPI_ERR_ARG : rc == MPI_SUCCESS && class_of(MPIX_Occl_coll_wait(c)) == MPIX_OCCL_ERR_MISMATCH;
    MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
    ok_all(good && works(), "so is a persistent one");
    good = MPIX_Occl_barrier_enqueue(53, comm, HOST, q) == MPI_SUCCESS && sync_free(&q);
    MPIX_Occl_comm_get_error(comm, &code, NULL, 0);
    ok_all(good, "and the tag goes on");
    MPIX_Occl_coll_free(&c);
    return_errors(comm);
    MPI_Errhandler_free(&h);
}

/* --- what goes while something is in it --------------------------------------------------------------------------- */

static void queue_freed(void)
{
    int x = me, s[3] = {0, 0, 0}, good = 1;
    MPI_Request r;
    void *q = new_queue();

    if (me == last)
        usleep(20000);
    good &= MPIX_Occl_allreduce_enqueue(&x, &s[0], 1, MPI_INT, MPI_SUM, 60, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&s[0], &s[1], 1, MPI_INT, MPI_SUM, 61, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&s[1], &s[2], 1, MPI_INT, MPI_SUM, 62, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_queue_free(&q) == MPI_SUCCESS;
    /* Behind the last one */
    good &= MPIX_Occl_ibarrier(62, comm, &r) == MPI_SUCCESS && MPIX_Occl_wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    ok_all(good && no_error() && s[2] == np * np * sum_of(0, 1), "what is in a queue that is freed goes on, in its order");
}

static void detached(void)
{
    int x = me, s[2] = {0, 0}, good = 1;
    MPI_Comm dup;
    MPIX_Occl_Coll c;
    void *q = new_queue();

    MPI_Comm_dup(comm, &dup);
    return_errors(dup);
    good &= MPIX_Occl_comm_attach(dup, MPI_INFO_NULL) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_init(&x, &s[0], 1, MPI_INT, MPI_SUM, 1, dup, MPI_INFO_NULL, &c) == MPI_SUCCESS;
    if (me == last)
        usleep(20000);
    good &= MPIX_Occl_start_enqueue(c, HOST, q) == MPI_SUCCESS && MPIX_Occl_wait_enqueue(c, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&s[0], &s[1], 1, MPI_INT, MPI_SUM, 2, dup, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_comm_detach(dup) == MPI_SUCCESS;
    good &= is_class(MPIX_Occl_start_enqueue(c, HOST, q), MPIX_OCCL_ERR_NOT_ATTACHED, NULL, MPI_COMM_NULL);
    MPI_Comm_free(&dup);
    good &= MPIX_Occl_queue_synchronize(q) == MPI_SUCCESS && MPIX_Occl_coll_free(&c) == MPI_SUCCESS;
    ok_all(good && s[1] == np * sum_of(0, 1), "operations in a queue go on when their communicator is detached and freed");

    /* A failure that nobody has asked for is told by detach, which detaches all the same. */
    MPI_Comm_dup(comm, &dup);
    return_errors(dup);
    good = MPIX_Occl_comm_attach(dup, MPI_INFO_NULL) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(a, b, me == last ? 3 : 4, MPI_INT, MPI_SUM, 1, dup, HOST, q) == MPI_SUCCESS && sync_free(&q);
    good &= class_of(MPIX_Occl_comm_detach(dup)) == MPIX_OCCL_ERR_MISMATCH;
    good &= class_of(MPIX_Occl_comm_detach(dup)) == MPIX_OCCL_ERR_NOT_ATTACHED;
    MPI_Comm_free(&dup);
    ok_all(good, "detach tells of a failure, and detaches");
}

/* One queue, operations of two communicators with different members */
static void communicators(void)
{
    int half = me % 2, x = me, s[3] = {0, 0, 0}, others = 0, good = 1;
    MPI_Comm part;
    void *q = new_queue();

    MPI_Comm_split(comm, half, 0, &part);
    return_errors(part);
    good &= MPIX_Occl_comm_attach(part, MPI_INFO_NULL) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&x, &s[0], 1, MPI_INT, MPI_SUM, 1, part, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&s[0], &s[1], 1, MPI_INT, MPI_SUM, 70, comm, HOST, q) == MPI_SUCCESS;
    good &= MPIX_Occl_allreduce_enqueue(&s[1], &s[2], 1, MPI_INT, MPI_SUM, 1, part, HOST, q) == MPI_SUCCESS;
    good &= sync_free(&q);
    for (int r = 0, n[2] = {(np + 1) / 2, np / 2}; r < np; r++) /* each rank's number once for each of its half */
        others += r * n[r % 2];
    MPI_Comm_size(part, &half);
    good &= s[1] == others && s[2] == others * half;
    MPIX_Occl_comm_detach(part);
    MPI_Comm_free(&part);
    ok_all(good && no_error(), "operations of several communicators may stand in one queue");
}

/* --- random orders ------------------------------------------------------------------------------------------------ */

enum { TAGS = 8, QUEUES = 3 };

static unsigned random_state;
static int below(int n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 16) % (unsigned)n);
}
static void shuffle(int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = below(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void random_orders(void)
{
    static const int counts[TAGS] = {1, 3, 100, 1000, 3000, 10000, 7, 40000};
    enum { ROUNDS = 60 };
    static int in[TAGS][40000], out[TAGS][40000];
    MPIX_Occl_Coll c[TAGS];
    void *q[QUEUES];
    int order[TAGS], good = 1, rc = MPI_SUCCESS;

    random_state = 12345u + (unsigned)me * 7919u;
    for (int i = 0; i < QUEUES; i++)
        q[i] = new_queue();
    for (int t = 0; t < TAGS; t++)
        good &= MPIX_Occl_allreduce_init(in[t], out[t], counts[t], MPI_INT, MPI_SUM, 80 + t, comm, MPI_INFO_NULL, &c[t]) == MPI_SUCCESS;
    for (int round = 0; round < ROUNDS && good; round++) {
        int by_queue = below(2), waits = 0;

        for (int t = 0; t < TAGS; t++) {
            for (int k = 0; k < counts[t]; k++)
                in[t][k] = round * 7 + t + me + k;
        }
        shuffle(order, TAGS);
        for (int i = 0; i < TAGS && rc == MPI_SUCCESS; i++)
            rc = below(4) == 0 ? MPIX_Occl_start(c[order[i]], MPIX_OCCL_NO_REQUEST) : MPIX_Occl_start_enqueue(c[order[i]], HOST, q[below(QUEUES)]);
        shuffle(order, TAGS);
        for (int i = 0; i < TAGS && rc == MPI_SUCCESS; i++) {
            if (by_queue || below(2)) {
                rc = MPIX_Occl_wait_enqueue(c[order[i]], HOST, q[below(QUEUES)]);
                waits++;
            }
            if (!by_queue && rc == MPI_SUCCESS)
                rc = MPIX_Occl_coll_wait(c[order[i]]);
        }
        for (int i = 0; i < QUEUES && rc == MPI_SUCCESS && (by_queue || waits); i++)
            rc = MPIX_Occl_queue_synchronize(q[(i + me) % QUEUES]);
        if (rc != MPI_SUCCESS)
            tap_rank_diag("round %d: %s", round, whole_text(comm));
        good &= rc == MPI_SUCCESS;
        for (int t = 0; t < TAGS && good; t++)
            for (int k = 0; k < counts[t] && good; k++)
                if (out[t][k] != sum_of(round * 7 + t + k, 1)) {
                    tap_rank_diag("round %d tag %d element %d: %d", round, t, k, out[t][k]);
                    good = 0;
                }
    }
    for (int t = 0; t < TAGS; t++)
        good &= MPIX_Occl_coll_free(&c[t]) == MPI_SUCCESS;
    ok_all(good && no_error(), "8 tags, 3 queues, starts and waits in random orders on each rank (%d rounds)", ROUNDS);

    /* Long chains without a look at them: queue i has the tags i, i + 3, ... in the same order on all ranks, and is filled whenever. */
    {
        enum { LINKS = 12 };
        static int x[TAGS][LINKS + 1];
        int next[QUEUES] = {0, 0, 0}, left = QUEUES, want;

        for (int t = 0; t < TAGS; t++)
            x[t][0] = me + t;
        while (left > 0 && good) {
            int i = below(QUEUES), link = next[i];

            if (link == LINKS)
                continue;
            for (int t = i; t < TAGS; t += QUEUES)
                good &= MPIX_Occl_allreduce_enqueue(&x[t][link], &x[t][link + 1], 1, MPI_INT, MPI_SUM, 80 + t, comm, HOST, q[i]) == MPI_SUCCESS;
            left -= ++next[i] == LINKS;
        }
        for (int i = 0; i < QUEUES; i++)
            good &= MPIX_Occl_queue_synchronize(q[i]) == MPI_SUCCESS;
        for (int t = 0; t < TAGS; t++) {
            want = sum_of(t, 1);
            for (int link = 1; link <= LINKS; link++, want *= np)
                good &= x[t][link] == want;
        }
        ok_all(good && no_error(), "long chains in queues that are filled in random orders");
    }
    for (int i = 0; i < QUEUES; i++)
        MPIX_Occl_queue_free(&q[i]);
}

int main(int argc, char **argv)
{
    void *q = NULL;

    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 2);
    return_errors(MPI_COMM_WORLD);
    return_errors(MPI_COMM_SELF);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &np);
    last = np - 1;
    ok_all(MPIX_Occl_queue_create(&q) == MPI_SUCCESS && sync_free(&q), "a queue may be made before anything is attached");
    if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
        bail("attach: %s", whole_text(comm));
    every_operation();
    forms_match();
    place_of_the_call();
    wait_holds_back();
    start_does_not();
    opposite_orders();
    loops();
    arguments();
    active();
    told_once();
    forget_errors();
    queue_freed();
    detached();
    communicators();
    random_orders();
    MPIX_Occl_comm_detach(comm);
    MPI_Comm_free(&comm);
    return tap_mpi_end();
}
