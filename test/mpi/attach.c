/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attaching and detaching: what can be attached and what cannot, counting, clean-up by MPI_Comm_free, agreement on errors, and that
 * private communicators are used again: MPICH has about 2,000, so the long test makes more rounds than that.
 */
#include "occl_test.h"

#include <unistd.h>

#ifndef ROUNDS
#define ROUNDS 150
#endif

/* --- a rank of another version ------------------------------------------------------------------------------------ */

/* Takes the place of MPI's in the library's calls: the record that attach sends is changed on its way. */
static int forge, seen_allgathers;
int PMPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                   MPI_Comm comm)
{
    char record[512];

    seen_allgathers++;
    if (forge && sendcount == (int)sizeof record && sendtype == MPI_BYTE) {
        memcpy(record, sendbuf, sizeof record);
        memcpy(record + 8, "99.1.2", 7); /* the version stands after two words, and stays there for ever */
        sendbuf = record;
    }
    return MPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
}

/* --- helpers ------------------------------------------------------------------------------------------------------ */

static int nhandled, handled_code;
static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    nhandled++;
    handled_code = *code;
}

/* An operation over all of comm works. */
static int works(MPI_Comm comm)
{
    int rank, size, sum = -1;
    MPI_Request req;

    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    rank++;
    if (MPIX_Occl_iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, 3, comm, &req) != MPI_SUCCESS) {
        tap_rank_diag("iallreduce: %s", whole_text(comm));
        return 0;
    }
    if (MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        tap_rank_diag("wait: %s", whole_text(comm));
        return 0;
    }
    return sum == size * (size + 1) / 2;
}

static int start_code(MPI_Comm comm)
{
    int in = 1, out;
    MPI_Request req;

    return MPIX_Occl_iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, 0, comm, &req);
}

/* --- the checks --------------------------------------------------------------------------------------------------- */

static void before(void)
{
    ok_all(is_class(start_code(MPI_COMM_WORLD), MPIX_OCCL_ERR_NOT_ATTACHED, "attach", MPI_COMM_WORLD),
           "a start before any attach is NOT_ATTACHED");
    ok_all(is_class(MPIX_Occl_comm_detach(MPI_COMM_WORLD), MPIX_OCCL_ERR_NOT_ATTACHED, NULL, MPI_COMM_WORLD), "so is a detach");
    ok_all(is_class(MPIX_Occl_comm_attach(MPI_COMM_NULL, MPI_INFO_NULL), MPI_ERR_COMM, "MPI_COMM_NULL", MPI_COMM_NULL),
           "MPI_COMM_NULL cannot be attached");
    ok_all(is_class(start_code(MPI_COMM_NULL), MPI_ERR_COMM, "MPI_COMM_NULL", MPI_COMM_NULL), "nor used");
    int classes[] = {MPIX_OCCL_ERR_NOT_ATTACHED, MPIX_OCCL_ERR_MISMATCH, MPIX_OCCL_ERR_TIMEOUT, MPIX_OCCL_ERR_PEER_FAILED,
                     MPIX_OCCL_ERR_REVOKED, MPIX_OCCL_ERR_UNSUPPORTED, MPIX_OCCL_ERR_DEVICE, MPIX_OCCL_ERR_RESOURCE};
    int good = 1;
    for (int i = 0; i < MPIX_OCCL_ERR_CLASSES; i++) {
        good &= classes[i] > MPI_ERR_LASTCODE && strstr(text_of(classes[i]), "MPIX_Occl") != NULL;
        for (int j = 0; j < i; j++)
            good &= classes[i] != classes[j];
    }
    ok_all(good && MPIX_Occl_error_class(-1) == MPI_ERR_OTHER && MPIX_Occl_error_class(MPIX_OCCL_ERR_CLASSES) == MPI_ERR_OTHER,
           "the error classes are different, new, and have a text");
}

static void counting(void)
{
    MPI_Comm comm;
    MPI_Errhandler mine, now;
    MPI_Request req;
    int rc, in = 1, out = 0;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_set_errhandler(comm, mine);
    nhandled = 0;
    rc = start_code(comm);
    ok_all(nhandled == 1 && handled_code == rc && class_of(rc) == MPIX_OCCL_ERR_NOT_ATTACHED,
           "an error calls the communicator's own handler with the code that is returned");
    ok_all(strstr(text_of(rc), "MPIX_Occl_iallreduce") != NULL, "MPI_Error_string names the function");

    ok_all(MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) == MPI_SUCCESS && works(comm), "an attached communicator works");
    MPI_Comm_get_errhandler(comm, &now);
    ok_all(now == mine, "attach leaves the error handler as it was");
    MPI_Errhandler_free(&now);
    ok_all(MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) == MPI_SUCCESS && works(comm), "a second attach counts");
    ok_all(MPIX_Occl_comm_detach(comm) == MPI_SUCCESS && works(comm), "one detach leaves it attached");
    /* This rank leaves while its last operation may still be under way elsewhere. */
    MPIX_Occl_iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, 9, comm, &req);
    ok_all(MPIX_Occl_comm_detach(comm) == MPI_SUCCESS, "the second detach succeeds with an operation pending");
    ok_all(MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS && out == tap_size, "which completes");
    ok_all(class_of(start_code(comm)) == MPIX_OCCL_ERR_NOT_ATTACHED, "then it is detached");
    ok_all(class_of(MPIX_Occl_comm_detach(comm)) == MPIX_OCCL_ERR_NOT_ATTACHED, "and cannot be detached again");

    /* Ranks that leave and ranks that stay: attach again must bring them together. */
    MPIX_Occl_comm_attach(comm, MPI_INFO_NULL);
    if (tap_rank % 2 == 0)
        MPIX_Occl_comm_detach(comm);
    ok_all(MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) == MPI_SUCCESS && works(comm), "ranks that left and ranks that stayed attach together");
    MPIX_Occl_comm_detach(comm);
    ok_all((tap_rank % 2 == 0 ? class_of(start_code(comm)) == MPIX_OCCL_ERR_NOT_ATTACHED : MPIX_Occl_comm_detach(comm) == MPI_SUCCESS),
           "and each rank's own count goes on");
    ok_all(class_of(start_code(comm)) == MPIX_OCCL_ERR_NOT_ATTACHED, "to the end");
    MPI_Comm_free(&comm);
    MPI_Errhandler_free(&mine);
}

static void kinds(void)
{
    MPI_Comm comm, copy, half, inter, merged;
    int dims[1] = {0}, periods[1] = {1}, good;

    ok_all(MPIX_Occl_comm_attach(MPI_COMM_SELF, MPI_INFO_NULL) == MPI_SUCCESS && works(MPI_COMM_SELF), "MPI_COMM_SELF works");
    dims[0] = tap_size;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &comm);
    ok_all(MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) == MPI_SUCCESS && works(comm), "a Cartesian communicator works");
    MPI_Comm_dup(comm, &copy);
    return_errors(copy);
    ok_all(class_of(start_code(copy)) == MPIX_OCCL_ERR_NOT_ATTACHED, "a copy of an attached communicator is not attached");
    MPI_Comm_free(&copy);
    MPI_Comm_free(&comm);
    ok_all(comm == MPI_COMM_NULL, "an attached communicator can be freed without detach");

    MPI_Comm_split(MPI_COMM_WORLD, tap_rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - tap_rank % 2, 5, &inter);
    return_errors(inter);
    return_errors(half);
    good = is_class(MPIX_Occl_comm_attach(inter, MPI_INFO_NULL), MPI_ERR_COMM, "intercommunicator", MPI_COMM_NULL);
    ok_all(good, "an intercommunicator is refused at once on every rank");
    good = is_class(start_code(inter), MPI_ERR_COMM, "intercommunicator", MPI_COMM_NULL);
    ok_all(good, "and its use as well");
    MPI_Intercomm_merge(inter, tap_rank % 2, &merged);
    ok_all(MPIX_Occl_comm_attach(merged, MPI_INFO_NULL) == MPI_SUCCESS && works(merged), "merged, it works");
    ok_all(MPIX_Occl_comm_attach(half, MPI_INFO_NULL) == MPI_SUCCESS && works(half), "halves of the world work beside it");
    MPI_Comm_free(&merged);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    MPIX_Occl_comm_detach(MPI_COMM_SELF);
}

static void agreement(void)
{
    MPI_Comm comm;
    MPI_Info info;
    char want[32];
    int last = tap_size - 1, before_calls;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpix_occl_priority", tap_rank == last ? "urgent" : "high");
    snprintf(want, sizeof want, "rank %d", last);
    ok_all(is_class(MPIX_Occl_comm_attach(comm, info), MPI_ERR_INFO_VALUE, "urgent", comm), "a bad info value on one rank fails on all");
    ok_all(strstr(whole_text(comm), want) != NULL, "and the text names that rank");
    MPI_Info_set(info, "mpix_occl_priority", "7");
    MPI_Info_set(info, "mpix_occl_unheard_of", "x");
    ok_all(MPIX_Occl_comm_attach(comm, info) == MPI_SUCCESS && works(comm), "a number is a priority; unknown keys are ignored");
    MPIX_Occl_comm_detach(comm);

    MPI_Info_set(info, "mpix_occl_algo", tap_rank == last ? "allreduce:ring" : "allreduce:oneshot");
    ok_all(is_class(MPIX_Occl_comm_attach(comm, info), MPIX_OCCL_ERR_MISMATCH, "mpix_occl_algo", comm), "hints for algorithms must agree");
    MPI_Info_set(info, "mpix_occl_algo", "no such thing");
    ok_all(is_class(MPIX_Occl_comm_attach(comm, info), MPI_ERR_INFO_VALUE, "no such thing", comm), "one that cannot be read is MPI_ERR_INFO_VALUE");
    MPI_Info_set(info, "mpix_occl_algo", "allreduce:twoshot");
    ok_all(MPIX_Occl_comm_attach(comm, info) == MPI_SUCCESS && works(comm), "one that can is taken");
    MPIX_Occl_comm_detach(comm);
    MPI_Info_free(&info);

    forge = tap_rank == last;
    before_calls = seen_allgathers;
    ok_all(is_class(MPIX_Occl_comm_attach(comm, MPI_INFO_NULL), MPIX_OCCL_ERR_UNSUPPORTED, "99.1.2", comm),
           "a rank with another version of the library fails the attach on all, naming the versions");
    ok_all(strstr(whole_text(comm), want) != NULL && seen_allgathers == before_calls + 1, "and that rank, before anything else is exchanged");
    forge = 0;
    ok_all(MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) == MPI_SUCCESS && works(comm), "after a failed attach another one works");
    MPI_Comm_free(&comm);
}

static void rounds(void)
{
    int n = ROUNDS, good = 1, k, rc = 0;
    MPI_Comm comm;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    for (k = 0; k < n && good; k++) {
        if ((rc = MPIX_Occl_comm_attach(comm, MPI_INFO_NULL)) != MPI_SUCCESS)
            tap_rank_diag("round %d: %s", k, whole_text(comm));
        good = rc == MPI_SUCCESS && (k % 50 || works(comm));
        if (good)
            good = MPIX_Occl_comm_detach(comm) == MPI_SUCCESS;
    }
    ok_all(good, "%d rounds of attach and detach on one communicator", n);
    for (k = 0; k < n / 4 && good; k++) {
        MPI_Comm temp;

        MPI_Comm_dup(comm, &temp);
        return_errors(temp);
        good = MPIX_Occl_comm_attach(temp, MPI_INFO_NULL) == MPI_SUCCESS && (k % 50 || works(temp));
        MPI_Comm_free(&temp);
    }
    ok_all(good, "%d rounds of attach and MPI_Comm_free", n / 4);
    MPI_Comm_free(&comm);
}

/* cases: freed in different orders on every rank, from MPI_Comm_free's callback or by detach */
static void orders(void)
{
    enum { N = 8 };
    int good = 1;

    for (int round = 0; round < 6 && good; round++) {
        MPI_Comm comm[N];
        MPI_Request req[N];
        int in[N], out[N], order[N];

        for (int i = 0; i < N; i++) {
            MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
            MPIX_Occl_comm_attach(comm[i], MPI_INFO_NULL);
            order[i] = i;
        }
        srand((unsigned)(round * 100 + tap_rank));
        for (int i = N; i > 1; i--) {
            int j = rand() % i, k = order[i - 1];
            order[i - 1] = order[j];
            order[j] = k;
        }
        for (int i = 0; i < N; i++) {
            int k = order[i];
            in[k] = tap_rank + k;
            good &= MPIX_Occl_iallreduce(&in[k], &out[k], 1, MPI_INT, MPI_MAX, 0, comm[k], &req[k]) == MPI_SUCCESS;
        }
        /* Detach with the operations pending, in an order of one's own */
        for (int i = 0; i < N; i++)
            good &= MPIX_Occl_comm_detach(comm[order[i]]) == MPI_SUCCESS;
        good &= MPI_Waitall(N, req, MPI_STATUSES_IGNORE) == MPI_SUCCESS;
        for (int i = 0; i < N; i++)
            good &= out[i] == tap_size - 1 + i;
        for (int i = 0; i < N; i++)
            MPI_Comm_free(&comm[i]);
    }
    ok_all(good, "8 communicators, used and left in another order on every rank");
}

static void looking(void)
{
    MPI_Comm comm;
    MPI_Count value = -1, runs = 0;
    char name[MPIX_OCCL_MAX_STAT_NAME], text[4096] = "", version[MPIX_OCCL_MAX_LIBRARY_VERSION_STRING];
    int len = 1, n = 0, good = 1, fd[2], major, minor, patch, in = 1, out = 0;
    MPI_Request req;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    MPI_Comm_set_name(comm, "looked at");
    MPIX_Occl_comm_attach(comm, MPI_INFO_NULL);
    works(comm);
    for (n = 0; good; n++) {
        good = MPIX_Occl_get_stat_name(n, name, &len) == MPI_SUCCESS && len == (int)strlen(name);
        if (len == 0)
            break;
        if (MPIX_Occl_get_stat(comm, name, &value) != MPI_SUCCESS) {
            tap_rank_diag("%s: %s", name, whole_text(comm));
            good = 0;
        }
    }
    ok_all(good && n >= 10, "every named statistic can be had");
    ok_all(MPIX_Occl_get_stat(comm, "runs", &runs) == MPI_SUCCESS && runs > 0, "runs are counted");
    ok_all(MPIX_Occl_get_stat(MPI_COMM_NULL, "pending", &value) == MPI_SUCCESS && value == 0, "nothing is pending in the process");
    ok_all(is_class(MPIX_Occl_get_stat(comm, "no such", &value), MPI_ERR_ARG, "no such", comm), "an unknown statistic is an error that names it");
    /* One rank looks while the others have not started. */
    if (tap_rank == 0) {
        MPIX_Occl_iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, 77, comm, &req);
        good = pipe(fd) == 0 && MPIX_Occl_dump(comm, fd[1]) == MPI_SUCCESS;
        close(fd[1]);
        good = good && read(fd[0], text, sizeof text - 1) > 0 && strstr(text, "77") && strstr(text, "allreduce");
        close(fd[0]);
        if (!good)
            tap_rank_diag("dump: %s", text);
    }
    ok_all(good, "a dump names what is pending, with its tag");
    if (tap_rank != 0)
        MPIX_Occl_iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, 77, comm, &req);
    MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    ok_all(is_class(MPIX_Occl_dump(comm, -1), MPI_ERR_ARG, "fd", comm), "a dump into nowhere is an error");
    ok_all(MPIX_Occl_get_version(&major, &minor, &patch) == MPI_SUCCESS && major == MPIX_OCCL_VERSION_MAJOR &&
               minor == MPIX_OCCL_VERSION_MINOR && patch == MPIX_OCCL_VERSION_PATCH,
           "the library's version is the header's");
    ok_all(MPIX_Occl_get_library_version(version, &len) == MPI_SUCCESS && len == (int)strlen(version) && strstr(version, "MPI"),
           "the library version names the MPI: %s", tap_rank == 0 ? version : "");
    MPI_Comm_free(&comm);
}

/* Memory of the library's, and memory that it is told of. */
static void memory(void)
{
    MPI_Comm comm;
    int *x = NULL, rank, size, good, other[4];
    MPI_Request req;
    void *none = NULL;

    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    ok_all(is_class(MPIX_Occl_mem_alloc(64, comm, &x), MPIX_OCCL_ERR_NOT_ATTACHED, NULL, comm),
           "no memory for a communicator that is not attached");
    MPIX_Occl_comm_attach(comm, MPI_INFO_NULL);
    good = MPIX_Occl_mem_alloc((MPI_Aint)(100000 * sizeof *x), comm, &x) == MPI_SUCCESS && x && (MPI_Aint)x % 64 == 0;
    for (int i = 0; good && i < 100000; i++)
        x[i] = i + rank;
    good = good && MPIX_Occl_iallreduce(MPI_IN_PLACE, x, 100000, MPI_INT, MPI_SUM, 1, comm, &req) == MPI_SUCCESS &&
           MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; good && i < 100000; i++)
        good = x[i] == size * i + size * (size - 1) / 2;
    ok_all(good, "memory of mem_alloc is a buffer like any other");
    ok_all(MPIX_Occl_mem_register(comm, other, sizeof other) == MPI_SUCCESS &&
               MPIX_Occl_mem_unregister(comm, other) == MPI_SUCCESS,
           "memory on the stack is registered and unregistered");
    ok_all(is_class(MPIX_Occl_mem_alloc(-1, comm, &none), MPI_ERR_ARG, "size", comm) &&
               is_class(MPIX_Occl_mem_alloc(8, comm, NULL), MPI_ERR_ARG, "baseptr", comm) &&
               is_class(MPIX_Occl_mem_register(comm, NULL, 8), MPI_ERR_BUFFER, "base", comm) &&
               is_class(MPIX_Occl_mem_register(comm, other, 0), MPI_ERR_ARG, "size", comm),
           "sizes and pointers that cannot be are refused");
    MPIX_Occl_comm_detach(comm);
    MPI_Comm_free(&comm);
    good = MPIX_Occl_mem_free(x) == MPI_SUCCESS && class_of(MPIX_Occl_mem_free(x)) == MPI_ERR_BUFFER &&
           class_of(MPIX_Occl_mem_free(other)) == MPI_ERR_BUFFER && MPIX_Occl_mem_free(NULL) == MPI_SUCCESS;
    ok_all(good, "memory outlives its communicator, and is freed once");
}

int main(int argc, char **argv)
{
    int major = -1, minor, patch;

    /* Before MPI_Init: an error code, and MPI is not touched. */
    int early = MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL);
    int early2 = start_code(MPI_COMM_WORLD), early3 = MPIX_Occl_get_version(&major, &minor, &patch);
    int early4 = MPIX_OCCL_ERR_MISMATCH;

    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 2);
    return_errors(MPI_COMM_WORLD);
    return_errors(MPI_COMM_SELF);
    ok_all(early == MPI_ERR_OTHER && early2 == MPI_ERR_OTHER && early3 == MPI_SUCCESS && major >= 0 && early4 == MPI_ERR_OTHER,
           "before MPI_Init calls fail softly, and the version can be had");
    before();
    counting();
    kinds();
    agreement();
    orders();
    looking();
    memory();
    rounds();
    /* Left attached, for MPI_Finalize */
    MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL);
    MPIX_Occl_comm_attach(MPI_COMM_SELF, MPI_INFO_NULL);
    return tap_mpi_end();
}
