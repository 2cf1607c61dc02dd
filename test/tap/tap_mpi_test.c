/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI side of the TAP helper: a check that fails on one rank fails. */
#include "tap_mpi.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int all, saved;

    tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 2);
    ok_all(tap_size >= 2, "there are as many ranks as the name says");
    ok_all(tap_rank < tap_size, "each rank knows its place");

    /* A wrong check on the last rank only: expected to fail, so a todo */
    todo("fails on purpose");
    fflush(stderr);
    saved = dup(2);
    (void)!freopen("/dev/null", "w", stderr);
    all = ok_all(tap_rank != tap_size - 1, "true on all ranks but one is false");
    fflush(stderr);
    dup2(saved, 2);
    todo(NULL);
    ok_all(!all, "and every rank learns so");
    return tap_mpi_end();
}
