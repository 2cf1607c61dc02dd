/* SPDX-License-Identifier: BSD-3-Clause */
/* TAP for tests of several ranks: see tap_mpi.h. */
#include "tap_mpi.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tap_rank, tap_size = 1;

/* Checks talk on a communicator of their own, so that they match no message of the test. */
static MPI_Comm comm = MPI_COMM_NULL;

static const char *level_name(int level)
{
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

void tap_mpi_begin(int *argc, char ***argv, int thread_level, int min_ranks)
{
    const char *want = getenv("TAP_MPI_SIZE");
    int provided;

    MPI_Init_thread(argc, argv, thread_level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &tap_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &tap_size);
    /* The wrong launcher makes every rank a world of its own, in which sums are "right". */
    if (want && atoi(want) != tap_size)
        bail("run-tap started %s ranks, MPI_COMM_WORLD has %d: launcher and library do not fit",
             want, tap_size);
    tap_set_silent(tap_rank != 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (provided < thread_level || tap_size < min_ranks) {
        MPI_Comm_free(&comm);
        MPI_Finalize();
        if (provided < thread_level)
            skip_all("this MPI does not provide %s", level_name(thread_level));
        skip_all("needs %d ranks, has %d", min_ranks, tap_size);
    }
}

void tap_rank_diag(const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    /* One write a line: ranks share this stream. */
    fprintf(stderr, "# rank %d: %s\n", tap_rank, text);
}

int tap_ok_all(int cond, const char *file, int line, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    int all = 0, mine = !!cond;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!mine)
        tap_rank_diag("failed: %s (%s:%d)", text, file, line);
    PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, comm);
    tap_ok(all, file, line, "%s", text);
    return all;
}

int tap_mpi_end(void)
{
    int rc;

    MPI_Comm_free(&comm);
    rc = tap_done();
    MPI_Finalize();
    return rc;
}
