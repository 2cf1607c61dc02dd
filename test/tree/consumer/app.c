/* SPDX-License-Identifier: BSD-3-Clause */
/* A user's program: two all-reduces, started in another order on each rank. */
#include <mpix_occl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, a, b, sum_a = 0, sum_b = 0, bad;
    MPI_Request req[2];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL);
    a = rank + 1;
    b = 10 * a;
    for (int i = 0; i < 2; i++) {
        int which = (i + rank) % 2;
        MPIX_Occl_iallreduce(which ? &b : &a, which ? &sum_b : &sum_a, 1, MPI_INT, MPI_SUM, which,
                             MPI_COMM_WORLD, &req[i]);
    }
    MPI_Waitall(2, req, MPI_STATUSES_IGNORE);
    bad = sum_a != size * (size + 1) / 2 || sum_b != 10 * sum_a;
    printf("consumer: rank %d of %d: %d %d %s\n", rank, size, sum_a, sum_b, bad ? "wrong" : "right");
    MPI_Finalize();
    return bad;
}
