/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mistakes: wrong arguments give MPI's error classes with a text that has the function's name and the bad value; ranks that
 * disagree get MPIX_OCCL_ERR_MISMATCH on every rank with a text that says in what; and afterwards everything still works.
 */
#include "occl_test.h"

#include <unistd.h>

static MPI_Comm comm;
static int nhandled;

static void handler(MPI_Comm *c, int *code, ...)
{
    (void)c, (void)code;
    nhandled++;
}

static int works(void)
{
    int x = tap_rank + 1, sum = 0, rc;
    MPI_Request req;

    if ((rc = MPIX_Occl_iallreduce(&x, &sum, 1, MPI_INT, MPI_SUM, 0, comm, &req)) != MPI_SUCCESS ||
        (rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE)) != MPI_SUCCESS)
        tap_rank_diag("%s", whole_text(comm));
    return rc == MPI_SUCCESS && sum == tap_size * (tap_size + 1) / 2;
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

/* All ranks make the same mistake, so all take the same place and nobody waits. The code and what is wanted: */
static void refused(int rc, int want, const char *fn, const char *part, const char *what)
{
    int good = is_class(rc, want, part, comm) && strstr(whole_text(comm), fn) != NULL;
    char text[MPI_MAX_ERROR_STRING + 1];
    int len;

    MPI_Error_string(rc, text, &len);
    if (good && !strstr(text, fn)) {
        tap_rank_diag("MPI_Error_string says \"%s\"", text);
        good = 0;
    }
    ok_all(good, "%s", what);
}

static void arguments(void)
{
    int a[8] = {0}, b[8] = {0}, rc, n;
    MPI_Request req = MPI_REQUEST_NULL;
    MPIX_Occl_Coll coll = MPIX_OCCL_COLL_NULL;

    refused(MPIX_Occl_iallreduce(a, b, -3, MPI_INT, MPI_SUM, 1, comm, &req), MPI_ERR_COUNT, "MPIX_Occl_iallreduce", "-3",
            "a negative count is MPI_ERR_COUNT");
    refused(MPIX_Occl_ibcast(a, 1, MPI_INT, tap_size, 1, comm, &req), MPI_ERR_ROOT, "MPIX_Occl_ibcast", "root",
            "a root beyond the last rank is MPI_ERR_ROOT");
    refused(MPIX_Occl_igather(a, 1, MPI_INT, b, 1, MPI_INT, -1, 1, comm, &req), MPI_ERR_ROOT, "MPIX_Occl_igather", "-1",
            "a negative root is MPI_ERR_ROOT");
    refused(MPIX_Occl_ibarrier(-5, comm, &req), MPI_ERR_TAG, "MPIX_Occl_ibarrier", "-5", "a negative tag is MPI_ERR_TAG");
    refused(MPIX_Occl_ibarrier(MPI_ANY_TAG, comm, &req), MPI_ERR_TAG, "MPIX_Occl_ibarrier", "tag", "MPI_ANY_TAG is MPI_ERR_TAG");
    refused(MPIX_Occl_iallreduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, 1, comm, &req), MPI_ERR_TYPE, "MPIX_Occl_iallreduce",
            "MPI_DATATYPE_NULL", "MPI_DATATYPE_NULL is MPI_ERR_TYPE");
    refused(MPIX_Occl_iallreduce(a, b, 1, MPI_INT, MPI_OP_NULL, 1, comm, &req), MPI_ERR_OP, "MPIX_Occl_iallreduce", "MPI_OP_NULL",
            "MPI_OP_NULL is MPI_ERR_OP");
    refused(MPIX_Occl_iallreduce(a, b, 1, MPI_FLOAT, MPI_BAND, 1, comm, &req), MPI_ERR_OP, "MPIX_Occl_iallreduce", "MPI_BAND",
            "an op that its type does not have is MPI_ERR_OP, by name");
    refused(MPIX_Occl_iallreduce(a, b, 1, MPI_INT, MPI_MINLOC, 1, comm, &req), MPI_ERR_OP, "MPIX_Occl_iallreduce", "MPI_MINLOC",
            "MPI_MINLOC of plain integers is MPI_ERR_OP");
    refused(MPIX_Occl_iallreduce(a, b, 1, MPI_INT, MPI_REPLACE, 1, comm, &req), MPI_ERR_OP, "MPIX_Occl_iallreduce", "one-sided",
            "MPI_REPLACE is MPI_ERR_OP");
    refused(MPIX_Occl_iallreduce(NULL, b, 1, MPI_INT, MPI_SUM, 1, comm, &req), MPI_ERR_BUFFER, "MPIX_Occl_iallreduce", NULL,
            "a NULL send buffer is MPI_ERR_BUFFER");
    refused(MPIX_Occl_iallgather(a, 1, MPI_INT, NULL, 1, MPI_INT, 1, comm, &req), MPI_ERR_BUFFER, "MPIX_Occl_iallgather", NULL,
            "a NULL receive buffer is MPI_ERR_BUFFER");
    refused(MPIX_Occl_iallreduce(a, a, 1, MPI_INT, MPI_SUM, 1, comm, &req), MPI_ERR_BUFFER, "MPIX_Occl_iallreduce", NULL,
            "the same buffer twice is MPI_ERR_BUFFER");
    refused(MPIX_Occl_ibcast(MPI_IN_PLACE, 1, MPI_INT, 0, 1, comm, &req), MPI_ERR_BUFFER, "MPIX_Occl_ibcast", "MPI_IN_PLACE",
            "MPI_IN_PLACE where it has no meaning is MPI_ERR_BUFFER");
    refused(MPIX_Occl_iallreduce(a, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, 1, comm, &req), MPI_ERR_BUFFER, "MPIX_Occl_iallreduce", "sendbuf",
            "MPI_IN_PLACE on the wrong side is MPI_ERR_BUFFER");
    refused(MPIX_Occl_iallgather(a, 2, MPI_INT, b, 1, MPI_INT, 1, comm, &req), MPI_ERR_COUNT, "MPIX_Occl_iallgather", "2 and 1",
            "a sendcount that is not the recvcount is MPI_ERR_COUNT");
    refused(MPIX_Occl_iallgather(a, 1, MPI_INT, b, 1, MPI_FLOAT, 1, comm, &req), MPI_ERR_TYPE, "MPIX_Occl_iallgather", "float",
            "a sendtype that is not the recvtype is MPI_ERR_TYPE");
    refused(MPIX_Occl_ibarrier(1, comm, NULL), MPI_ERR_REQUEST, "MPIX_Occl_ibarrier", "NULL", "no place for the request is MPI_ERR_REQUEST");
    refused(MPIX_Occl_isend(a, 1, MPI_INT, tap_size, 1, comm, &req), MPI_ERR_RANK, "MPIX_Occl_isend", "dest", "a destination beyond the last rank is MPI_ERR_RANK");
    refused(MPIX_Occl_irecv(a, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &req), MPI_ERR_RANK, "MPIX_Occl_irecv", "MPI_ANY_SOURCE",
            "MPI_ANY_SOURCE is refused by name");
    refused(MPIX_Occl_irecv(a, 1, MPI_INT, 0, MPI_ANY_TAG, comm, &req), MPI_ERR_TAG, "MPIX_Occl_irecv", "MPI_ANY_TAG", "so is MPI_ANY_TAG");
    refused(MPIX_Occl_allreduce_init(a, b, -1, MPI_INT, MPI_SUM, 1, comm, MPI_INFO_NULL, &coll), MPI_ERR_COUNT, "MPIX_Occl_allreduce_init",
            "-1", "a persistent operation is refused when it is made");
    refused(MPIX_Occl_barrier_init(1, comm, MPI_INFO_NULL, NULL), MPI_ERR_ARG, "MPIX_Occl_barrier_init", "coll", "no place for it is MPI_ERR_ARG");
    {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpix_occl_priority", "-4");
        rc = MPIX_Occl_barrier_init(1, comm, info, &coll);
        MPI_Info_free(&info);
        refused(rc, MPI_ERR_INFO_VALUE, "MPIX_Occl_barrier_init", "-4", "a bad priority is MPI_ERR_INFO_VALUE");
    }
    ok_all(coll == MPIX_OCCL_COLL_NULL && req == MPI_REQUEST_NULL, "a failed call leaves no handle");
    ok_all(is_class(MPIX_Occl_waitany(1, &req, NULL, MPI_STATUS_IGNORE), MPI_ERR_ARG, "index", MPI_COMM_NULL) &&
               is_class(MPIX_Occl_testany(1, &req, &n, NULL, MPI_STATUS_IGNORE), MPI_ERR_ARG, "flag", MPI_COMM_NULL) &&
               is_class(MPIX_Occl_testall(1, &req, NULL, MPI_STATUSES_IGNORE), MPI_ERR_ARG, "flag", MPI_COMM_NULL) &&
               is_class(MPIX_Occl_waitsome(1, &req, NULL, &n, MPI_STATUSES_IGNORE), MPI_ERR_ARG, "outcount", MPI_COMM_NULL) &&
               is_class(MPIX_Occl_testsome(1, &req, &n, NULL, MPI_STATUSES_IGNORE), MPI_ERR_ARG, "array_of_indices", MPI_COMM_NULL),
           "no place for which ones are complete is MPI_ERR_ARG");
    ok_all(is_class(MPIX_Occl_wait(NULL, MPI_STATUS_IGNORE), MPI_ERR_REQUEST, NULL, MPI_COMM_NULL) &&
               is_class(MPIX_Occl_test(&req, NULL, MPI_STATUS_IGNORE), MPI_ERR_ARG, "flag", MPI_COMM_NULL) &&
               is_class(MPIX_Occl_waitall(-1, &req, MPI_STATUSES_IGNORE), MPI_ERR_COUNT, "-1", MPI_COMM_NULL) &&
               is_class(MPIX_Occl_coll_test(MPIX_OCCL_COLL_NULL, NULL), MPI_ERR_ARG, "flag", MPI_COMM_NULL),
           "waiting for nothing or into nowhere is an error");
    ok_all(works(), "after all that operations work");
    /* Each of the refused starts above took its place on tag 1, on all ranks alike. */
    ok_all(MPIX_Occl_iallreduce(a, b, 1, MPI_INT, MPI_SUM, 1, comm, &req) == MPI_SUCCESS && MPI_Wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS,
           "also on the tag that had the failures");
}

/* --- disagreement ------------------------------------------------------------------------------------------------- */

enum { MAXN = 1 << 16 };
static int *in, *out;

/* Starts were made; every rank must get MISMATCH with `part` in the text. The one exception that the manual states: a small
 * operation with a root may be over on a rank before another rank's mistake exists. */
static void disagree(int rc, MPI_Request *req, const char *part, const char *what, int n)
{
    int good, may_succeed = n == 16 && (strncmp(what, "bcast,", 6) == 0 || strncmp(what, "reduce,", 7) == 0 ||
                                        strncmp(what, "gather,", 7) == 0 || strncmp(what, "scatter,", 8) == 0);

    if (rc == MPI_SUCCESS)
        rc = MPIX_Occl_wait(req, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && may_succeed) {
        ok_all(1, "%s (%d elements): MISMATCH where it is not over already", what, n);
        return;
    }
    good = is_class(rc, MPIX_OCCL_ERR_MISMATCH, part, comm);
    ok_all(good, "%s (%d elements): MISMATCH %s", what, n, may_succeed ? "where it is not over already" : "on every rank, and the text says so");
    if (n == 16)
        diag("%s", whole_text(comm));
}

static void mismatches(void)
{
    static const int sizes[] = {16, 3000, MAXN};
    int odd = tap_rank == tap_size - 1, rc;
    MPI_Request req;

    for (int s = 0; s < 3; s++) {
        int n = sizes[s], m = odd ? n - 1 : n;

        disagree(MPIX_Occl_iallreduce(in, out, m, MPI_INT, MPI_SUM, 5, comm, &req), &req, "count", "allreduce, other count", n);
        disagree(MPIX_Occl_iallreduce(in, out, n, odd ? MPI_FLOAT : MPI_INT, MPI_SUM, 5, comm, &req), &req, "type", "allreduce, other type", n);
        disagree(MPIX_Occl_iallreduce(in, out, n, MPI_INT, odd ? MPI_MAX : MPI_SUM, 5, comm, &req), &req, "op", "allreduce, other op", n);
        disagree(MPIX_Occl_ireduce(in, out, n, MPI_INT, MPI_SUM, odd, 5, comm, &req), &req, "root", "reduce, other root", n);
        disagree(MPIX_Occl_ibcast(out, n, MPI_INT, odd, 5, comm, &req), &req, "root", "bcast, other root", n);
        disagree(MPIX_Occl_ibcast(out, m, MPI_INT, 0, 5, comm, &req), &req, "count", "bcast, other count", n);
        rc = odd ? MPIX_Occl_ibcast(out, n, MPI_INT, 0, 5, comm, &req) : MPIX_Occl_iallreduce(in, out, n, MPI_INT, MPI_SUM, 5, comm, &req);
        disagree(rc, &req, "bcast", "bcast among allreduces", n);
        rc = odd ? MPIX_Occl_ibarrier(5, comm, &req) : MPIX_Occl_iallgather(in, n / 8, MPI_INT, out, n / 8, MPI_INT, 5, comm, &req);
        disagree(rc, &req, "barrier", "barrier among allgathers", n);
        disagree(MPIX_Occl_igather(in, m / 8, odd ? MPI_FLOAT : MPI_INT, out, n / 8, MPI_INT, 0, 5, comm, &req), &req, "type", "gather, other type on a leaf", n);
        disagree(MPIX_Occl_iscatter(in, n / 8, MPI_INT, out, odd ? n / 8 + 1 : n / 8, MPI_INT, 0, 5, comm, &req), &req, "count",
                 "scatter, other count on a leaf", n);
        disagree(MPIX_Occl_ialltoall(in, m / 8 + odd * 2, MPI_INT, out, m / 8 + odd * 2, MPI_INT, 5, comm, &req), &req, "count", "alltoall, other count", n);
        ok_all(works(), "afterwards operations work (%d elements)", n);
        ok_all(MPIX_Occl_iallreduce(in, out, n, MPI_INT, MPI_SUM, 5, comm, &req) == MPI_SUCCESS && MPI_Wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
                   out[1] == tap_size,
               "also on the same tag");
    }
}

/* One rank's start is refused: the others must learn it, and the tag goes on. */
static void refused_start(void)
{
    int odd = tap_rank == tap_size - 1, rc;
    MPI_Request req = MPI_REQUEST_NULL;

    rc = MPIX_Occl_iallreduce(in, out, odd ? -1 : 4, MPI_INT, MPI_SUM, 6, comm, &req);
    if (!odd) {
        if (rc == MPI_SUCCESS)
            rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, "rank 2", comm), "a start refused on one rank is a MISMATCH on the others");
    } else {
        ok_all(class_of(rc) == MPI_ERR_COUNT, "a start refused on one rank is a MISMATCH on the others");
    }
    for (int i = 0; i < 4; i++)
        out[i] = 0;
    rc = MPIX_Occl_iallreduce(in, out, 4, MPI_INT, MPI_SUM, 6, comm, &req);
    ok_all(rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && out[3] == tap_size, "the next start on the tag works");

    /* The others are late: the error record waits for them. */
    if (!odd)
        usleep(10000);
    rc = MPIX_Occl_ibcast(out, 4, odd ? MPI_DATATYPE_NULL : MPI_INT, 0, 6, comm, &req);
    if (!odd && rc == MPI_SUCCESS)
        rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    ok_all(class_of(rc) == (odd ? MPI_ERR_TYPE : MPIX_OCCL_ERR_MISMATCH), "also when the others come later");
    /* A message that cannot be sent: the receiver gets the error, the pair's sequence goes on. */
    rc = MPI_SUCCESS;
    if (tap_rank == 0)
        rc = MPIX_Occl_isend(in, -1, MPI_INT, 1, 6, comm, &req);
    if (tap_rank == 1 && (rc = MPIX_Occl_irecv(out, 4, MPI_INT, 0, 6, comm, &req)) == MPI_SUCCESS)
        rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    ok_all(class_of(rc) == (tap_rank == 0 ? MPI_ERR_COUNT : tap_rank == 1 ? MPIX_OCCL_ERR_MISMATCH : MPI_SUCCESS),
           "a send that is refused fails its receive");
    rc = MPI_SUCCESS;
    if (tap_rank == 0)
        rc = MPIX_Occl_isend(in, 4, MPI_INT, 1, 6, comm, &req);
    if (tap_rank == 1)
        rc = MPIX_Occl_irecv(out, 4, MPI_INT, 0, 6, comm, &req);
    if (tap_rank <= 1 && rc == MPI_SUCCESS)
        rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    ok_all(rc == MPI_SUCCESS, "and the next pair meets");
}

/* --- what the program hears --------------------------------------------------------------------------------------- */

static void handlers(void)
{
    MPI_Errhandler h;
    MPI_Request req;
    MPIX_Occl_Coll coll;
    int n = tap_rank == 0 ? 4 : 5, rc, code;
    char text[1024], shorter[20];

    MPI_Comm_create_errhandler(handler, &h);
    MPI_Comm_set_errhandler(comm, h);
    nhandled = 0;
    MPIX_Occl_iallreduce(in, out, n, MPI_INT, MPI_SUM, 7, comm, &req);
    rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    ok_all(nhandled == 1 && class_of(rc) == MPIX_OCCL_ERR_MISMATCH, "the communicator's handler hears of a failed operation once");
    MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
    MPIX_Occl_comm_get_error(comm, &code, shorter, sizeof shorter);
    ok_all(code == rc && strlen(text) > 19 && strlen(shorter) == 19 && strncmp(text, shorter, 19) == 0,
           "comm_get_error has the code and the text, cut to what there is room for");
    ok_all(MPIX_Occl_comm_get_error(comm, &code, NULL, 0) == MPI_SUCCESS && code == rc, "or no text");

    MPIX_Occl_allreduce_init(in, out, n, MPI_INT, MPI_SUM, 7, comm, MPI_INFO_NULL, &coll);
    nhandled = 0;
    MPIX_Occl_start(coll, MPIX_OCCL_NO_REQUEST);
    rc = MPIX_Occl_coll_wait(coll);
    ok_all(nhandled == 1 && class_of(rc) == MPIX_OCCL_ERR_MISMATCH, "coll_wait calls it too");
    MPIX_Occl_coll_get_error(coll, &code, text, sizeof text);
    ok_all(nhandled == 1 && class_of(code) == MPIX_OCCL_ERR_MISMATCH, "asking does not");
    MPIX_Occl_coll_free(&coll);
    return_errors(comm);
    MPI_Errhandler_free(&h);

    /* Codes are not used up. */
    rc = 1;
    for (int i = 0; i < 20000 && rc; i++)
        rc = class_of(MPIX_Occl_ibarrier(-1, comm, &req)) == MPI_ERR_TAG && class_of(MPIX_Occl_dump(comm, -1)) == MPI_ERR_ARG &&
             class_of(MPIX_Occl_iallreduce(in, out, -7, MPI_INT, MPI_SUM, 8, MPI_COMM_WORLD, &req)) == MPIX_OCCL_ERR_NOT_ATTACHED;
    ok_all(rc, "tens of thousands of errors use up no codes");
}

int main(int argc, char **argv)
{
    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 3);
    return_errors(MPI_COMM_WORLD);
    return_errors(MPI_COMM_SELF);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
        bail("attach: %s", whole_text(comm));
    in = calloc((size_t)MAXN * 4, sizeof *in);
    out = calloc((size_t)MAXN * 4, sizeof *out);
    for (int i = 0; i < MAXN; i++)
        in[i] = 1;
    arguments();
    mismatches();
    refused_start();
    handlers();
    free(in);
    free(out);
    MPIX_Occl_comm_detach(comm);
    MPI_Comm_free(&comm);
    return tap_mpi_end();
}
