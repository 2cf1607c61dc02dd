/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's own MPI traffic on the same communicator, receives and probes with wildcards among it, beside our operations:
 * no message of either is taken for one of the other's. Overlapping communicators, random orders, all forms mixed.
 */
#include "occl_test.h"

enum { ROUNDS = 40, NCOMM = 3, PER = 6 };

int main(int argc, char **argv)
{
    MPI_Comm comm[NCOMM];
    int good = 1, extra = 0, rank, size, flag, last[NCOMM];

    tap_mpi_begin(&argc, &argv, MPI_THREAD_FUNNELED, 3);
    return_errors(MPI_COMM_WORLD);
    /* The world, the world backwards, all but the last rank */
    MPI_Comm_dup(MPI_COMM_WORLD, &comm[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -tap_rank, &comm[1]);
    MPI_Comm_split(MPI_COMM_WORLD, tap_rank == tap_size - 1 ? MPI_UNDEFINED : 0, tap_rank, &comm[2]);
    for (int c = 0; c < NCOMM; c++) {
        last[c] = comm[c] == MPI_COMM_NULL;
        if (last[c])
            continue;
        return_errors(comm[c]);
        if (MPIX_Occl_comm_attach(comm[c], MPI_INFO_NULL) != MPI_SUCCESS)
            bail("attach: %s", whole_text(comm[c]));
    }
    MPI_Comm_rank(comm[0], &rank);
    MPI_Comm_size(comm[0], &size);

    srand(4242u + (unsigned)tap_rank);
    for (int round = 0; round < ROUNDS && good; round++) {
        MPI_Request req[NCOMM * PER + 1];
        int in[NCOMM * PER], out[NCOMM * PER * 4], order[NCOMM * PER], n = 0, token = -1, sum = 0, one = 1, what[NCOMM * PER];
        int message = rank * 100 + round;
        MPI_Status st;

        for (int i = 0; i < NCOMM * PER; i++) {
            req[i] = MPI_REQUEST_NULL;
            if (!last[i / PER])
                order[n++] = i;
        }
        for (int i = n; i > 1; i--) {
            int j = rand() % i, k = order[i - 1];
            order[i - 1] = order[j];
            order[j] = k;
        }
        for (int i = 0; i < n; i++) {
            int k = order[i], c = k / PER, tag = k % PER;
            in[k] = tap_rank + k;
            what[k] = (k + round) % 3;
            if (what[k] == 0)
                good &= MPIX_Occl_iallreduce(&in[k], &out[k * 4], 1, MPI_INT, MPI_SUM, tag, comm[c], &req[k]) == MPI_SUCCESS;
            else if (what[k] == 1)
                good &= MPIX_Occl_iallgather(&in[k], 1, MPI_INT, &out[k * 4], 1, MPI_INT, tag, comm[c], &req[k]) == MPI_SUCCESS;
            else
                good &= MPIX_Occl_ibarrier(tag, comm[c], &req[k]) == MPI_SUCCESS;
            /* In the middle: MPI's own, with the same tags and with wildcards */
            if (i == n / 2) {
                MPI_Send(&message, 1, MPI_INT, (rank + 1) % size, tag % 2, comm[0]);
                MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm[0]);
                MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm[0], &st);
                good &= st.MPI_SOURCE == (rank + size - 1) % size;
                MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm[0], &st);
                good &= sum == size && token == ((rank + size - 1) % size) * 100 + round && st.MPI_SOURCE == (rank + size - 1) % size;
            }
        }
        /* Nothing else is there to be found. */
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm[0], &flag, MPI_STATUS_IGNORE);
        extra += flag;
        good &= (round % 2 ? MPI_Waitall(NCOMM * PER, req, MPI_STATUSES_IGNORE) : MPIX_Occl_waitall(NCOMM * PER, req, MPI_STATUSES_IGNORE)) == MPI_SUCCESS;
        for (int i = 0; i < n && good; i++) {
            int k = order[i], members = k / PER == 2 ? size - 1 : size;
            if (what[k] == 0)
                good &= out[k * 4] == members * (members - 1) / 2 + members * k;
            for (int r = 0; r < members && what[k] == 1; r++)
                good &= out[k * 4 + r] == (k / PER == 1 ? members - 1 - r : r) + k;
        }
        if (!good)
            tap_rank_diag("round %d", round);
    }
    ok_all(good, "%d rounds: our operations in random orders and MPI's messages with wildcards keep apart", ROUNDS);
    ok_all(extra == 0, "a probe with wildcards never finds a message of ours");
    for (int c = 0; c < NCOMM; c++)
        if (!last[c])
            MPI_Comm_free(&comm[c]);
    return tap_mpi_end();
}
