/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ways to end a program; run by ending.t with one of them as argument and the exit code to give as another.
 *
 *   clean      everything freed, detached
 *   forget     nothing freed; two operations pending on rank 0 at MPI_Finalize, one with a request, one continued
 *   noinit     exit without MPI_Finalize is the launcher's affair: here, exit before MPI_Init
 *   after      calls after MPI_Finalize, and from a destructor of the program
 *   queued     the same with operations in a queue, begun and not; the queue is not freed
 *   late       rank 1 sits in MPI_Finalize with an operation that rank 0 started and never finishes
 */
#include <mpix_occl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static MPIX_Occl_Coll kept = MPIX_OCCL_COLL_NULL;
static int destructor_checks;

__attribute__((destructor)) static void at_the_end(void)
{
    int flag = 0;

    if (!destructor_checks)
        return;
    if (MPIX_Occl_start(kept, MPIX_OCCL_NO_REQUEST) == MPI_SUCCESS || MPIX_Occl_coll_free(&kept) == MPI_SUCCESS ||
        MPIX_Occl_coll_test(kept, &flag) == MPI_SUCCESS)
        printf("ending: a call in a destructor succeeded\n");
    else
        printf("ending: destructor fine\n");
}

static int continued = -1;
static void note(int error, void *state)
{
    (void)state;
    continued = error;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int code = argc > 2 ? atoi(argv[2]) : 0, rank, size, x = 1, y = 0, rc;
    MPI_Request req = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
    MPI_Comm comm;

    if (strcmp(how, "noinit") == 0)
        return MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL) == MPI_ERR_OTHER ? code : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPIX_Occl_comm_attach(comm, MPI_INFO_NULL);
    MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL);
    MPIX_Occl_allreduce_init(&x, &y, 1, MPI_INT, MPI_SUM, 1, comm, MPI_INFO_NULL, &kept);
    MPIX_Occl_start(kept, MPIX_OCCL_NO_REQUEST);
    if (MPIX_Occl_coll_wait(kept) != MPI_SUCCESS || y != size)
        return 1;
    if (strcmp(how, "clean") == 0) {
        MPIX_Occl_coll_free(&kept);
        MPIX_Occl_comm_detach(MPI_COMM_WORLD);
        MPIX_Occl_comm_detach(comm);
        MPI_Comm_free(&comm);
    } else if (strcmp(how, "forget") == 0 && rank == 0) {
        MPI_Comm_set_name(comm, "forgotten");
        MPIX_Occl_iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, 77, comm, &req);
        MPIX_Occl_ibarrier(78, comm, &other);
        MPIX_Occl_continue(&other, note, NULL);
    } else if (strcmp(how, "queued") == 0 && rank == 0) {
        void *queue = NULL;

        MPIX_Occl_queue_create(&queue);
        MPIX_Occl_allreduce_enqueue(&x, &y, 1, MPI_INT, MPI_SUM, 77, comm, MPIX_OCCL_QUEUE_HOST, queue);
        MPIX_Occl_barrier_enqueue(78, comm, MPIX_OCCL_QUEUE_HOST, queue);
        MPIX_Occl_start_enqueue(kept, MPIX_OCCL_QUEUE_HOST, queue);
        MPIX_Occl_wait_enqueue(kept, MPIX_OCCL_QUEUE_HOST, queue);
    } else if (strcmp(how, "forget") == 0 || strcmp(how, "queued") == 0) {
        usleep(500000); /* rank 0 ends first: otherwise it finds that its peer has gone */
    } else if (strcmp(how, "late") == 0 && rank == 0) {
        /* The others go to MPI_Finalize at once. */
        MPIX_Occl_iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, 77, comm, &req);
        for (double t = MPI_Wtime(); MPI_Wtime() < t + 0.5;)
            MPIX_Occl_test(&req, &(int){0}, MPI_STATUS_IGNORE);
    }
    destructor_checks = strcmp(how, "after") == 0;
    MPI_Finalize();
    if (strcmp(how, "forget") == 0 && rank == 0)
        printf("ending: continuation %s\n", continued > MPI_SUCCESS ? "got an error" : "was not called");
    rc = MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL);
    if (rc != MPI_ERR_OTHER)
        printf("ending: attach after MPI_Finalize returned %d\n", rc);
    return code;
}
