/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: MPI's own wait and test family and ours, over our requests and mixed ones, with a peer that is late, that sits in
 * MPI_Recv, or whose message must move meanwhile; freeing, cancelling, continuing, asking for outcomes; persistent operations.
 * Built once a thread level (LEVEL); the first two ranks play.
 */
#include "occl_test.h"

#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#ifndef LEVEL
#define LEVEL MPI_THREAD_SINGLE
#endif

static MPI_Comm comm;
static pthread_t main_thread;

/* --- who calls MPI ------------------------------------------------------------------------------------------------ */

/* Below MPI_THREAD_MULTIPLE only the thread that initialised MPI may. These are the calls that a helper thread could be
 * tempted to make; ours take the place of MPI's for the library's calls. */
static int strangers;
static void seen(void)
{
    if (LEVEL != MPI_THREAD_MULTIPLE && !pthread_equal(pthread_self(), main_thread))
        __atomic_fetch_add(&strangers, 1, __ATOMIC_RELAXED);
}
int PMPI_Grequest_complete(MPI_Request request)
{
    seen();
    return MPI_Grequest_complete(request);
}
int PMPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    seen();
    return MPI_Test(request, flag, status);
}
int PMPI_Add_error_string(int code, const char *text)
{
    seen();
    return MPI_Add_error_string(code, text);
}
int PMPI_Comm_call_errhandler(MPI_Comm c, int code)
{
    seen();
    return MPI_Comm_call_errhandler(c, code);
}

/* --- helpers ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *prefix;
    int (*wait)(MPI_Request *, MPI_Status *);
    int (*test)(MPI_Request *, int *, MPI_Status *);
    int (*waitall)(int, MPI_Request *, MPI_Status *);
    int (*testall)(int, MPI_Request *, int *, MPI_Status *);
    int (*waitany)(int, MPI_Request *, int *, MPI_Status *);
    int (*testany)(int, MPI_Request *, int *, int *, MPI_Status *);
    int (*waitsome)(int, MPI_Request *, int *, int *, MPI_Status *);
    int (*testsome)(int, MPI_Request *, int *, int *, MPI_Status *);
} family_t;
static const family_t families[] = {
    {"MPI", MPI_Wait, MPI_Test, MPI_Waitall, MPI_Testall, MPI_Waitany, MPI_Testany, MPI_Waitsome, MPI_Testsome},
    {"MPIX_Occl", MPIX_Occl_wait, MPIX_Occl_test, MPIX_Occl_waitall, MPIX_Occl_testall, MPIX_Occl_waitany, MPIX_Occl_testany,
     MPIX_Occl_waitsome, MPIX_Occl_testsome}};

static int in[64], out[64];
static int start(int tag, MPI_Request *req)
{
    in[tag] = tap_rank + tag;
    out[tag] = -1;
    return MPIX_Occl_iallreduce(&in[tag], &out[tag], 1, MPI_INT, MPI_SUM, tag, comm, req);
}
/* Two ranks: r + t each */
static int right(int tag) { return out[tag] == 1 + 2 * tag; }
static void late(void)
{
    if (tap_rank == 1)
        usleep(15000);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void every_wait(const family_t *f)
{
    MPI_Request r[6];
    MPI_Status st[6];
    int idx, flag, n, got, good, places[6], message = tap_rank, other = -1;

    late();
    good = start(1, &r[0]) == MPI_SUCCESS && f->wait(&r[0], &st[0]) == MPI_SUCCESS;
    ok_all(good && right(1) && r[0] == MPI_REQUEST_NULL, "%s: wait completes a collective and the request is null then", f->prefix);

    late();
    start(2, &r[0]);
    for (flag = 0; !flag;)
        if (f->test(&r[0], &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
    ok_all(flag && right(2) && r[0] == MPI_REQUEST_NULL, "%s: so does test", f->prefix);

    /* Started in opposite orders; a null one between */
    late();
    for (int i = 0; i < 3; i++)
        start(tap_rank == 0 ? 3 + i : 5 - i, &r[tap_rank == 0 ? i : 2 - i]);
    r[3] = MPI_REQUEST_NULL;
    good = f->waitall(4, r, st) == MPI_SUCCESS && right(3) && right(4) && right(5);
    ok_all(good && r[0] == MPI_REQUEST_NULL && r[2] == MPI_REQUEST_NULL, "%s: waitall completes several, whatever their order", f->prefix);

    late();
    start(6, &r[0]);
    MPI_Irecv(&other, 1, MPI_INT, 1 - tap_rank, 1, comm, &r[1]);
    MPI_Isend(&message, 1, MPI_INT, 1 - tap_rank, 1, comm, &r[2]);
    start(7, &r[3]);
    good = f->waitall(4, r, st) == MPI_SUCCESS && right(6) && right(7) && other == 1 - tap_rank && st[1].MPI_SOURCE == 1 - tap_rank;
    ok_all(good, "%s: waitall completes a mix with MPI's requests, statuses in their places", f->prefix);

    late();
    other = -1;
    start(8, &r[0]);
    MPI_Irecv(&other, 1, MPI_INT, 1 - tap_rank, 1, comm, &r[1]);
    MPI_Isend(&message, 1, MPI_INT, 1 - tap_rank, 1, comm, &r[2]);
    for (flag = 0, good = 1; !flag && good;)
        good = f->testall(3, r, &flag, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    ok_all(good && right(8) && other == 1 - tap_rank, "%s: testall does too", f->prefix);

    late();
    start(9, &r[0]);
    start(10, &r[1]);
    r[2] = MPI_REQUEST_NULL;
    MPI_Irecv(&other, 1, MPI_INT, 1 - tap_rank, 2, comm, &r[3]);
    for (n = 0, good = 1, got = 0; n < 2 && good; n++) {
        good = f->waitany(4, r, &idx, &st[0]) == MPI_SUCCESS && (idx == 0 || idx == 1) && r[idx] == MPI_REQUEST_NULL;
        got |= good << idx;
    }
    meet(comm); /* nobody's message comes before its time */
    MPI_Send(&message, 1, MPI_INT, 1 - tap_rank, 2, comm);
    good = good && f->waitany(4, r, &idx, &st[0]) == MPI_SUCCESS && idx == 3 && st[0].MPI_SOURCE == 1 - tap_rank;
    ok_all(good && got == 3 && right(9) && right(10), "%s: waitany finds each one, MPI's as well", f->prefix);
    ok_all(f->waitany(4, r, &idx, MPI_STATUS_IGNORE) == MPI_SUCCESS && idx == MPI_UNDEFINED, "%s: waitany of none is MPI_UNDEFINED", f->prefix);

    late();
    start(11, &r[0]);
    start(12, &r[1]);
    for (n = 0, good = 1; n < 2 && good;) {
        good = f->testany(2, r, &idx, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS;
        n += flag && idx != MPI_UNDEFINED;
    }
    good = good && f->testany(2, r, &idx, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag && idx == MPI_UNDEFINED;
    ok_all(good && right(11) && right(12), "%s: testany finds each one", f->prefix);

    late();
    start(13, &r[0]);
    start(14, &r[1]);
    MPI_Irecv(&other, 1, MPI_INT, 1 - tap_rank, 3, comm, &r[2]);
    MPI_Isend(&message, 1, MPI_INT, 1 - tap_rank, 3, comm, &r[3]);
    for (got = 0, good = 1; got < 4 && good; got += n)
        good = f->waitsome(4, r, &n, places, st) == MPI_SUCCESS && n > 0 && n <= 4;
    good = good && f->waitsome(4, r, &n, places, st) == MPI_SUCCESS && n == MPI_UNDEFINED;
    ok_all(good && right(13) && right(14), "%s: waitsome completes all in the end", f->prefix);

    late();
    start(15, &r[0]);
    start(16, &r[1]);
    for (got = 0, good = 1; got < 2 && good; got += n)
        good = f->testsome(2, r, &n, places, MPI_STATUSES_IGNORE) == MPI_SUCCESS && n >= 0;
    ok_all(good && right(15) && right(16), "%s: testsome too", f->prefix);

    /* More than what fits on the stack */
    {
        enum { MANY = 40 };
        MPI_Request many[MANY];
        for (int i = 0; i < MANY; i++) {
            int k = tap_rank == 0 ? i : MANY - 1 - i;
            start(20 + k, &many[k]);
        }
        good = f->waitall(MANY, many, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < MANY; i++)
            good &= right(20 + i);
        ok_all(good, "%s: waitall of %d", f->prefix, MANY);
    }
    ok_all(f->wait(&r[0], &st[0]) == MPI_SUCCESS && f->test(&r[0], &flag, &st[0]) == MPI_SUCCESS && flag &&
               f->waitall(2, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS,
           "%s: what is complete already is complete at once", f->prefix);
}

/* The peer sits in a call of MPI's that has nothing to do with us. */
static void peer_in_recv(void)
{
    enum { BIG = 1 << 18 };
    int *a = malloc(BIG * sizeof *a), *b = malloc(BIG * sizeof *b), token = 5, good;
    MPI_Request req;
    const int counts[] = {1, 600, BIG};

    for (int c = 0; c < 3; c++) {
        for (int turn = 0; turn < 2; turn++) {
            int n = counts[c], sits = turn;
            for (int i = 0; i < n; i++)
                a[i] = i + tap_rank;
            meet(comm);
            if (tap_rank == sits) {
                good = MPIX_Occl_iallreduce(a, b, n, MPI_INT, MPI_SUM, 1, comm, &req) == MPI_SUCCESS;
                MPI_Recv(&token, 1, MPI_INT, 1 - tap_rank, 4, comm, MPI_STATUS_IGNORE);
                good = good && MPI_Wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
            } else {
                usleep(5000); /* the peer is in MPI_Recv now, most likely */
                good = MPIX_Occl_iallreduce(a, b, n, MPI_INT, MPI_SUM, 1, comm, &req) == MPI_SUCCESS &&
                       (turn ? MPI_Wait(&req, MPI_STATUS_IGNORE) : MPIX_Occl_wait(&req, MPI_STATUS_IGNORE)) == MPI_SUCCESS;
                MPI_Send(&token, 1, MPI_INT, 1 - tap_rank, 4, comm);
            }
            for (int i = 0; i < n && good; i++)
                good = b[i] == 2 * i + 1;
            ok_all(good, "a collective of %d completes while the peer (rank %d) sits in MPI_Recv", n, sits);
        }
    }
    free(a);
    free(b);
}

/* A message of the program's own that needs both sides must move while one side waits for us. */
static void message_moves(void)
{
    enum { BIG = 4 << 20 };
    static const char *const how[] = {"MPIX_Occl_wait", "MPI_Wait", "MPI_Waitall", "MPIX_Occl_waitall", "MPIX_Occl_coll_wait", "MPIX_Occl_test", "MPIX_Occl_coll_test"};
    char *buf = calloc(1, BIG);
    MPI_Request r[2];
    MPIX_Occl_Coll coll;
    int good, flag;

    for (int h = 0; h < 7; h++) {
        int with_coll = h == 4 || h == 6;
        MPIX_Occl_barrier_init(3, comm, MPI_INFO_NULL, &coll);
        meet(comm);
        if (tap_rank == 0) {
            MPI_Isend(buf, BIG, MPI_CHAR, 1, 5, comm, &r[1]);
            good = (with_coll ? MPIX_Occl_start(coll, MPIX_OCCL_NO_REQUEST) : MPIX_Occl_ibarrier(3, comm, &r[0])) == MPI_SUCCESS;
            switch (h) {
            case 0: good &= MPIX_Occl_wait(&r[0], MPI_STATUS_IGNORE) == MPI_SUCCESS; break;
            case 1: good &= MPI_Wait(&r[0], MPI_STATUS_IGNORE) == MPI_SUCCESS; break;
            case 2: good &= MPI_Waitall(2, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS; break;
            case 3: good &= MPIX_Occl_waitall(2, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS; break;
            case 4: good &= MPIX_Occl_coll_wait(coll) == MPI_SUCCESS; break;
            case 5:
                for (flag = 0; !flag && good;)
                    good = MPIX_Occl_test(&r[0], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS;
                break;
            case 6:
                for (flag = 0; !flag && good;)
                    good = MPIX_Occl_coll_test(coll, &flag) == MPI_SUCCESS;
                break;
            }
            MPI_Wait(&r[1], MPI_STATUS_IGNORE);
        } else {
            usleep(3000);
            MPI_Recv(buf, BIG, MPI_CHAR, 0, 5, comm, MPI_STATUS_IGNORE);
            good = MPIX_Occl_start(coll, &r[0]) == MPI_SUCCESS && MPIX_Occl_wait(&r[0], MPI_STATUS_IGNORE) == MPI_SUCCESS;
        }
        MPIX_Occl_coll_free(&coll);
        ok_all(good, "%s lets a long message of MPI's move", how[h]);
    }
    free(buf);
}

static void test_does_not_block(void)
{
    MPI_Request req = MPI_REQUEST_NULL;
    int flag, good = 1;

    meet(comm);
    if (tap_rank == 0) {
        double t;
        start(1, &req);
        t = tap_now();
        for (int i = 0; i < 200 && good; i++)
            good = MPIX_Occl_test(&req, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag;
        for (int i = 0; i < 200 && good; i++)
            good = MPI_Test(&req, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag;
        t = (tap_now() - t) / 400;
        if (!good || t > 1e-3 * tap_slack())
            tap_rank_diag("flag %d, %g s a test", flag, t);
        good = good && t < 1e-3 * tap_slack();
    }
    meet(comm);
    if (tap_rank == 1)
        start(1, &req);
    ok_all(MPI_Wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && right(1) && good, "test does not block without the peer");
}

/* --- misuse, outcomes --------------------------------------------------------------------------------------------- */

static void freeing_and_cancelling(void)
{
    MPI_Request req, copy;
    MPI_Comm temp;
    int flag = 1, rc, x = tap_rank, y = -1;

    late();
    start(1, &req);
    ok_all(MPI_Request_free(&req) == MPI_SUCCESS && req == MPI_REQUEST_NULL, "an active request can be freed");
    late();
    start(1, &req); /* the next of the same tag: after the first */
    ok_all(MPI_Wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && right(1), "and its operation runs to its end");

    meet(comm);
    if (tap_rank == 1)
        usleep(5000);
    start(2, &req);
    copy = req;
    rc = MPI_SUCCESS;
    if (tap_rank == 0)
        rc = MPI_Cancel(&req);
    ok_all(tap_rank != 0 || rc == MPI_SUCCESS || class_of(rc) == MPIX_OCCL_ERR_UNSUPPORTED, "MPI_Cancel is refused as UNSUPPORTED");
    ok_all(req == copy && MPI_Wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && right(2), "and leaves the request as it was");

    MPI_Comm_dup(comm, &temp);
    return_errors(temp);
    MPIX_Occl_comm_attach(temp, MPI_INFO_NULL);
    late();
    rc = MPIX_Occl_iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, 0, temp, &req);
    MPI_Comm_free(&temp);
    ok_all(rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && y == 1,
           "an operation completes although its communicator was freed");

    ok_all(is_class(MPIX_Occl_continue(&req, NULL, NULL), MPI_ERR_ARG, NULL, MPI_COMM_NULL), "continue needs a function");
    MPI_Irecv(&y, 1, MPI_INT, 1 - tap_rank, 6, comm, &req);
    ok_all(is_class(MPIX_Occl_request_get_error(req, &rc), MPI_ERR_REQUEST, NULL, MPI_COMM_NULL), "a request of MPI's has no outcome of ours");
    MPI_Send(&x, 1, MPI_INT, 1 - tap_rank, 6, comm);
    MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);

    rc = MPI_SUCCESS;
    if (tap_rank == 0) {
        start(3, &req);
        MPIX_Occl_request_get_error(req, &rc);
    }
    meet(comm);
    if (tap_rank == 1)
        start(3, &req);
    ok_all(tap_rank == 1 || class_of(rc) == MPI_ERR_PENDING, "an active request's outcome is MPI_ERR_PENDING");
    for (rc = MPI_ERR_PENDING; class_of(rc) == MPI_ERR_PENDING;)
        MPIX_Occl_request_get_error(req, &rc);
    /* at MULTIPLE the helper may have found the run over and be about to tell MPI */
    double until = tap_now() + tap_slack();
    for (flag = 0; !flag && tap_now() < until;)
        if (MPI_Request_get_status(req, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
    ok_all(rc == MPI_SUCCESS && flag && req != MPI_REQUEST_NULL, "asking makes progress and does not complete the request");
    MPI_Wait(&req, MPI_STATUS_IGNORE);
    ok_all(right(3), "its result is there");
}

static void outcomes(void)
{
    MPI_Request r[3];
    MPI_Status st[3];
    MPI_Errhandler old;
    int rc, code, a[4] = {1, 2, 3, 4}, b[4], n = tap_rank == 0 ? 1 : 2;

    (void)old;
    MPIX_Occl_request_get_error(MPI_REQUEST_NULL, &code); /* forget */
    MPIX_Occl_iallreduce(a, b, n, MPI_INT, MPI_SUM, 1, comm, &r[0]);
    rc = MPIX_Occl_wait(&r[0], MPI_STATUS_IGNORE);
    ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "count", comm), "MPIX_Occl_wait returns the operation's error");
    ok_all(MPIX_Occl_request_get_error(MPI_REQUEST_NULL, &code) == MPI_SUCCESS && code == MPI_SUCCESS, "which was delivered, so nothing is left to ask");

    MPIX_Occl_iallreduce(a, b, n, MPI_INT, MPI_SUM, 1, comm, &r[0]);
    rc = MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    MPIX_Occl_request_get_error(MPI_REQUEST_NULL, &code);
    ok_all(class_of(rc) == MPIX_OCCL_ERR_MISMATCH && class_of(code) == MPIX_OCCL_ERR_MISMATCH, "MPI_Wait returns it too, and it can be asked for");
    ok_all(MPIX_Occl_request_get_error(MPI_REQUEST_NULL, &code) == MPI_SUCCESS && code == MPI_SUCCESS, "once");

    start(2, &r[0]);
    MPIX_Occl_iallreduce(a, b, n, MPI_INT, MPI_SUM, 1, comm, &r[1]);
    start(3, &r[2]);
    rc = MPIX_Occl_waitall(3, r, st);
    ok_all(rc == MPI_ERR_IN_STATUS && st[0].MPI_ERROR == MPI_SUCCESS && class_of(st[1].MPI_ERROR) == MPIX_OCCL_ERR_MISMATCH &&
               st[2].MPI_ERROR == MPI_SUCCESS && right(2) && right(3),
           "one failure in waitall is in its status; the others are done");

    start(2, &r[0]);
    MPIX_Occl_iallreduce(a, b, n, MPI_INT, MPI_SUM, 1, comm, &r[1]);
    rc = MPI_Waitall(2, r, st);
    MPIX_Occl_request_get_error(MPI_REQUEST_NULL, &code);
    ok_all(rc != MPI_SUCCESS && class_of(code) == MPIX_OCCL_ERR_MISMATCH, "what MPI_Waitall makes of it differs by MPI; the outcome can be asked for");
    for (int i = 0; i < 2; i++)
        if (r[i] != MPI_REQUEST_NULL)
            MPI_Wait(&r[i], MPI_STATUS_IGNORE);
    start(4, &r[0]);
    ok_all(MPI_Wait(&r[0], MPI_STATUS_IGNORE) == MPI_SUCCESS && right(4), "after all these failures operations work");
}

/* --- continuations ------------------------------------------------------------------------------------------------ */

static int ncontinued, continued_code = -1, chained;
static void count(int error, void *state)
{
    __atomic_store_n(&continued_code, error, __ATOMIC_RELAXED);
    (void)state;
    if (LEVEL != MPI_THREAD_MULTIPLE && !pthread_equal(pthread_self(), main_thread))
        __atomic_fetch_add(&strangers, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&ncontinued, 1, __ATOMIC_RELEASE);
}
static void chain(int error, void *state)
{
    int *left = state;
    MPI_Request req;

    if (error == MPI_SUCCESS && --*left > 0 && MPIX_Occl_ibarrier(40, comm, &req) == MPI_SUCCESS)
        MPIX_Occl_continue(&req, chain, left);
    else
        __atomic_store_n(&chained, *left == 0 ? 1 : -1, __ATOMIC_RELEASE);
}
static int wait_for(int *what, int value)
{
    double end = tap_now() + 2 * tap_slack();
    MPIX_Occl_Coll coll = MPIX_OCCL_COLL_NULL;
    MPI_Request req;
    int flag;

    /* Any call of ours lets continuations run below MPI_THREAD_MULTIPLE. */
    MPIX_Occl_barrier_init(39, comm, MPI_INFO_NULL, &coll);
    MPIX_Occl_start(coll, &req);
    while (__atomic_load_n(what, __ATOMIC_ACQUIRE) != value && tap_now() < end)
        MPIX_Occl_coll_test(coll, &flag);
    MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    MPIX_Occl_coll_free(&coll);
    return __atomic_load_n(what, __ATOMIC_ACQUIRE) == value;
}

static void continuations(void)
{
    MPI_Request req;
    int a[2] = {1, 2}, b[2], left = 20;

    ncontinued = 0;
    late();
    start(1, &req);
    ok_all(MPIX_Occl_continue(&req, count, NULL) == MPI_SUCCESS && req == MPI_REQUEST_NULL, "continue takes the request");
    ok_all(wait_for(&ncontinued, 1) && continued_code == MPI_SUCCESS && right(1), "and calls the function once, with success");

    start(2, &req);
    for (int flag = 0; !flag;)
        MPI_Request_get_status(req, &flag, MPI_STATUS_IGNORE), MPIX_Occl_request_get_error(req, &(int){0});
    MPIX_Occl_continue(&req, count, NULL);
    ok_all(wait_for(&ncontinued, 2), "a request that is complete already is continued at once");

    MPIX_Occl_iallreduce(a, b, 1 + tap_rank, MPI_INT, MPI_SUM, 3, comm, &req);
    MPIX_Occl_continue(&req, count, NULL);
    ok_all(wait_for(&ncontinued, 3) && class_of(continued_code) == MPIX_OCCL_ERR_MISMATCH, "it gets the error of a failed operation");

    MPIX_Occl_ibarrier(40, comm, &req);
    MPIX_Occl_continue(&req, chain, &left);
    ok_all(wait_for(&chained, 1), "a continuation may start the next operation");
    ok_all(ncontinued == 3, "no function was called twice");
}

#if LEVEL == MPI_THREAD_MULTIPLE
/* A continuation may run in any call of ours that finds it due, and must find no lock held there: here in a detach. */
enum { DUE = 16 };
static MPI_Comm spare_comm[3];
static int hold_entered, hold_left, ndue, dismissed;
static void due(int error, void *state)
{
    int first = __atomic_fetch_add(&ndue, 1, __ATOMIC_ACQ_REL) == 0;
    double end = tap_now() + 1;

    (void)error, (void)state;
    if (first) {
        __atomic_store_n(&hold_entered, 1, __ATOMIC_RELEASE);
        while (__atomic_load_n(&ndue, __ATOMIC_ACQUIRE) == 1 && tap_now() < end)
            continue;
        __atomic_store_n(&hold_left, 1, __ATOMIC_RELEASE);
    } else if (__atomic_exchange_n(&dismissed, 1, __ATOMIC_ACQ_REL) == 0) {
        MPIX_Occl_comm_detach(spare_comm[1]);
    }
}
static void *dismiss(void *arg)
{
    double end = tap_now() + 2 * tap_slack();

    (void)arg;
    while (!__atomic_load_n(&hold_entered, __ATOMIC_ACQUIRE) && tap_now() < end)
        continue;
    MPIX_Occl_comm_detach(spare_comm[0]);
    return NULL;
}

static void continued_in_detach(void)
{
    MPI_Request req[DUE];
    pthread_t thread;

    for (int i = 0; i < 3; i++) {
        MPI_Comm_dup(comm, &spare_comm[i]);
        MPIX_Occl_comm_attach(spare_comm[i], MPI_INFO_NULL);
    }
    MPIX_Occl_comm_attach(spare_comm[0], MPI_INFO_NULL); /* so that `dismiss` only looks what can go: */
    if (tap_rank == 0)
        MPIX_Occl_comm_detach(spare_comm[2]); /* this one, but for rank 1 */
    meet(comm);
    if (tap_rank == 0) {
        pthread_create(&thread, NULL, dismiss, NULL);
        for (int i = 0; i < DUE; i++) {
            MPIX_Occl_ibarrier(60 + i, comm, &req[i]);
            MPIX_Occl_continue(&req[i], due, NULL);
        }
        meet(comm);
        wait_for(&ndue, DUE);
        pthread_join(thread, NULL);
        if (!dismissed)
            MPIX_Occl_comm_detach(spare_comm[1]);
    } else {
        meet(comm);
        for (int i = 0; i < DUE; i++)
            MPIX_Occl_ibarrier(60 + i, comm, &req[i]);
        wait_for(&ndue, 0);
        MPIX_Occl_waitall(DUE, req, MPI_STATUSES_IGNORE);
        MPIX_Occl_comm_detach(spare_comm[1]);
        MPIX_Occl_comm_detach(spare_comm[2]);
    }
    ok_all(tap_rank || ndue == DUE, "continuations that run inside a detach may call us");
    for (int i = 0; i < 3; i++)
        MPI_Comm_free(&spare_comm[i]);
}
#endif

/* --- persistent --------------------------------------------------------------------------------------------------- */

static void persistent(void)
{
    MPIX_Occl_Coll c[4], copy;
    MPI_Request r[4], req;
    MPI_Status st;
    int x[4], y[4], flag, rc, code, good, cancelled;
    char text[200];

    for (int i = 0; i < 4; i++)
        MPIX_Occl_allreduce_init(&x[i], &y[i], 1, MPI_INT, MPI_SUM, i, comm, MPI_INFO_NULL, &c[i]);
    for (int i = 0; i < 4; i++)
        x[i] = i + tap_rank;
    ok_all(MPIX_Occl_coll_wait(c[0]) == MPI_SUCCESS && MPIX_Occl_coll_test(c[0], &flag) == MPI_SUCCESS && flag,
           "an operation that was never started is complete");
    late();
    good = MPIX_Occl_startall(4, c, r) == MPI_SUCCESS && MPIX_Occl_waitall(4, r, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
    for (int i = 0; i < 4; i++)
        good &= y[i] == 2 * i + 1;
    ok_all(good, "startall starts them all");
    good = MPIX_Occl_startall(4, c, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS;
    for (int i = 0; i < 4; i++)
        good &= MPIX_Occl_coll_wait(c[3 - i]) == MPI_SUCCESS && y[3 - i] == 2 * (3 - i) + 1;
    ok_all(good, "also without requests, waited for in another order");
    copy = MPIX_Occl_coll_f2c(MPIX_Occl_coll_c2f(c[1]));
    good = MPIX_Occl_coll_c2f(c[0]) != MPIX_Occl_coll_c2f(c[1]) && copy == c[1] && MPIX_Occl_start(copy, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS &&
           MPIX_Occl_coll_wait(c[1]) == MPI_SUCCESS;
    ok_all(good, "Fortran's handle of an operation leads back to it");
    ok_all(MPIX_Occl_coll_c2f(MPIX_OCCL_COLL_NULL) == 0 && !MPIX_Occl_coll_f2c(0) && !MPIX_Occl_coll_f2c(-1) &&
               !MPIX_Occl_coll_f2c(2000000000),
           "numbers that are none are MPIX_OCCL_COLL_NULL");

    meet(comm);
    if (tap_rank == 0) {
        MPIX_Occl_start(c[0], MPIX_OCCL_NO_REQUEST);
        rc = MPIX_Occl_start(c[0], MPIX_OCCL_NO_REQUEST);
        good = is_class(rc, MPI_ERR_REQUEST, "active", comm);
        MPIX_Occl_coll_get_error(c[0], &code, text, sizeof text);
        good &= class_of(code) == MPI_ERR_PENDING;
    }
    meet(comm);
    if (tap_rank == 1)
        MPIX_Occl_start(c[0], MPIX_OCCL_NO_REQUEST);
    good &= MPIX_Occl_coll_wait(c[0]) == MPI_SUCCESS && y[0] == 1;
    ok_all(good, "a second start of an active operation is MPI_ERR_REQUEST, and the first one goes on");
    ok_all(MPIX_Occl_coll_get_error(c[0], &code, text, sizeof text) == MPI_SUCCESS && code == MPI_SUCCESS && text[0] == '\0',
           "its outcome is success");

    /* Withdrawn before the peer has come: the next start takes its place. Large, so that nothing was sent yet. */
    {
        enum { BIG = 1 << 16 };
        int *from = malloc(BIG * sizeof *from), *to = malloc(BIG * sizeof *to);
        MPIX_Occl_Coll big;

        for (int i = 0; i < BIG; i++)
            from[i] = i + tap_rank;
        MPIX_Occl_allreduce_init(from, to, BIG, MPI_INT, MPI_SUM, 8, comm, MPI_INFO_NULL, &big);
        meet(comm);
        good = cancelled = 1;
        if (tap_rank == 0) {
            good = MPIX_Occl_start(big, &req) == MPI_SUCCESS && MPIX_Occl_coll_cancel(big, &cancelled) == MPI_SUCCESS && cancelled &&
                   MPIX_Occl_wait(&req, &st) == MPI_SUCCESS;
            if (good)
                MPI_Test_cancelled(&st, &flag);
            good = good && flag;
        }
        ok_all(good, "a start can be withdrawn while the peer has not started; its request is cancelled");
        MPIX_Occl_start(big, MPIX_OCCL_NO_REQUEST);
        good = MPIX_Occl_coll_wait(big) == MPI_SUCCESS;
        for (int i = 0; i < BIG && good; i++)
            good = to[i] == 2 * i + 1;
        ok_all(good, "the next start takes its place");
        MPIX_Occl_coll_free(&big);
        free(from);
        free(to);
    }
    rc = MPIX_Occl_coll_cancel(c[1], &flag);
    ok_all(class_of(rc) == MPI_ERR_REQUEST || (rc == MPI_SUCCESS && !flag), "there is nothing to withdraw from an inactive operation");

    /* Freed while active */
    late();
    y[2] = -1;
    MPIX_Occl_start(c[2], &req);
    copy = c[2];
    ok_all(MPIX_Occl_coll_free(&c[2]) == MPI_SUCCESS && c[2] == MPIX_OCCL_COLL_NULL, "an active operation can be freed");
    ok_all(MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && y[2] == 5, "and completes");
    rc = MPIX_Occl_coll_free(&copy);
    ok_all(is_class(rc, MPI_ERR_REQUEST, "freed", MPI_COMM_NULL), "freeing it again is an error");
    ok_all(class_of(MPIX_Occl_start(copy, MPIX_OCCL_NO_REQUEST)) == MPI_ERR_REQUEST, "so is a start");
    ok_all(class_of(MPIX_Occl_coll_free(&c[2])) == MPI_ERR_REQUEST && class_of(MPIX_Occl_start(MPIX_OCCL_COLL_NULL, &req)) == MPI_ERR_REQUEST &&
               MPIX_Occl_coll_wait(MPIX_OCCL_COLL_NULL) == MPI_SUCCESS,
           "the null operation can be waited for, not started or freed");

    /* A mismatch, by the fast way */
    {
        MPIX_Occl_Coll bad;
        MPIX_Occl_bcast_init(x, 1, MPI_INT, tap_rank, 9, comm, MPI_INFO_NULL, &bad);
        MPIX_Occl_start(bad, MPIX_OCCL_NO_REQUEST);
        rc = MPIX_Occl_coll_wait(bad);
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "root", comm), "coll_wait returns the outcome of the operation");
        MPIX_Occl_coll_get_error(bad, &code, text, sizeof text);
        ok_all(class_of(code) == MPIX_OCCL_ERR_MISMATCH && strstr(text, "root"), "and coll_get_error has its text");
        MPIX_Occl_coll_free(&bad);
    }
    for (int i = 0; i < 4; i++)
        if (c[i] != MPIX_OCCL_COLL_NULL)
            MPIX_Occl_coll_free(&c[i]);
}

/* A coll outlives its communicator's attachment, but cannot be started any more. */
static void after_detach(void)
{
    MPI_Comm temp;
    MPIX_Occl_Coll c;
    int rc;

    MPI_Comm_dup(comm, &temp);
    return_errors(temp);
    MPIX_Occl_comm_attach(temp, MPI_INFO_NULL);
    MPIX_Occl_barrier_init(0, temp, MPI_INFO_NULL, &c);
    MPIX_Occl_start(c, MPIX_OCCL_NO_REQUEST);
    MPI_Comm_free(&temp);
    ok_all(MPIX_Occl_coll_wait(c) == MPI_SUCCESS, "an active start ends after its communicator was freed");
    rc = MPIX_Occl_start(c, MPIX_OCCL_NO_REQUEST);
    ok_all(is_class(rc, MPIX_OCCL_ERR_NOT_ATTACHED, NULL, MPI_COMM_NULL), "a further start is NOT_ATTACHED");
    ok_all(MPIX_Occl_coll_free(&c) == MPI_SUCCESS, "and it can be freed");
}

int main(int argc, char **argv)
{
    main_thread = pthread_self();
    tap_mpi_begin(&argc, &argv, LEVEL, 2);
    return_errors(MPI_COMM_WORLD);
    return_errors(MPI_COMM_SELF);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
        bail("attach: %s", whole_text(comm));
    every_wait(&families[0]);
    every_wait(&families[1]);
    peer_in_recv();
    message_moves();
    test_does_not_block();
    freeing_and_cancelling();
    outcomes();
    continuations();
#if LEVEL == MPI_THREAD_MULTIPLE
    continued_in_detach();
#endif
    persistent();
    after_detach();
    ok_all(strangers == 0, "no thread but the program's has called MPI");
    MPIX_Occl_comm_detach(comm);
    MPI_Comm_free(&comm);
    return tap_mpi_end();
}
