/* SPDX-License-Identifier: BSD-3-Clause */
/* One real buffer of more than 2^31 elements, on two ranks: every byte arrives. In check-long, for its memory: 4.5 GB. */
#include "occl_test.h"

#include <stdint.h>

static unsigned char at(size_t i, int salt) { return (unsigned char)((i * 0x9e3779b97f4a7c15u + (uint64_t)salt) >> 56); }

/* A prefix that is whole and everything around 2^31, where numbers of 32 bits would turn over, and every 4099th byte */
static size_t wrong(const unsigned char *v, size_t n, int salt)
{
    size_t bad = 0, edge = (size_t)1 << 31;

    for (size_t i = 0; i < n; i += i < 4096 || (i > edge - 4096 && i < edge + 4096) || i > n - 4096 ? 1 : 4099)
        bad += v[i] != at(i, salt);
    return bad;
}

int main(int argc, char **argv)
{
    const MPI_Count n = ((MPI_Count)1 << 31) + 17;
    unsigned char *v;
    MPI_Request req;
    MPI_Status st;
    MPI_Count len = 0;
    int rc, rank;

    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 2);
    rank = tap_rank;
    return_errors(MPI_COMM_WORLD);
    if (MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL) != MPI_SUCCESS)
        bail("attach: %s", whole_text(MPI_COMM_WORLD));
    v = malloc((size_t)n);
    if (!v)
        bail("no memory for %lld bytes", (long long)n);
    for (size_t i = 0; i < (size_t)n; i++)
        v[i] = rank == 0 ? at(i, 1) : 0;
    rc = MPIX_Occl_ibcast_c(v, n, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &req);
    rc = rc == MPI_SUCCESS ? MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) : rc;
    ok_all(rc == MPI_SUCCESS && wrong(v, (size_t)n, 1) == 0, "a broadcast of %lld MPI_CHAR", (long long)n);

    for (size_t i = 0; i < (size_t)n; i++)
        v[i] = rank == 1 ? at(i, 2) : 0;
    rc = rank == 1 ? MPIX_Occl_isend_c(v, n, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &req)
                   : MPIX_Occl_irecv_c(v, n, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, &req);
    rc = rc == MPI_SUCCESS ? MPIX_Occl_wait(&req, &st) : rc;
    if (rank == 0)
        MPI_Get_elements_x(&st, MPI_BYTE, &len);
    ok_all(rc == MPI_SUCCESS && wrong(v, (size_t)n, 2) == 0 && (rank == 1 || len == n), "a message of as many");

    {
        /* One block that is long, in an exchange of others that are empty */
        MPI_Count sc[2] = {0, 0}, rcs[2] = {0, 0};
        MPI_Aint d[2] = {0, 0};
        for (size_t i = 0; i < (size_t)n; i++)
            v[i] = rank == 0 ? at(i, 3) : 0;
        if (rank == 0)
            sc[1] = n;
        else
            rcs[0] = n;
        rc = MPIX_Occl_ialltoallv_c(v, sc, d, MPI_CHAR, v, rcs, d, MPI_CHAR, 2, MPI_COMM_WORLD, &req);
        rc = rc == MPI_SUCCESS ? MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) : rc;
        ok_all(rc == MPI_SUCCESS && wrong(v, (size_t)n, 3) == 0, "a block of as many in an alltoallv");
    }
    free(v);
    MPIX_Occl_comm_detach(MPI_COMM_WORLD);
    return tap_mpi_end();
}
