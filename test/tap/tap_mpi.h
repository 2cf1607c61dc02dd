/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TAP for tests of several ranks. Only rank 0 prints TAP; a check is collective
 * over MPI_COMM_WORLD and passes when it passes on every rank; a rank on which
 * it failed says so on stderr ("# rank 1: ...").
 *
 *     int main(int argc, char **argv)
 *     {
 *         tap_mpi_begin(&argc, &argv, MPI_THREAD_SINGLE, 2);
 *         ok_all(sum == 3, "the sum is 3 on every rank");
 *         return tap_mpi_end();
 *     }
 *
 * The number of ranks stands in the test's name (x-n2.t); run-tap starts it so
 * and the program checks that it sees that many.
 *
 * ok(), is_int() etc. of tap.h count on every rank but print on rank 0 only:
 * use them only for what every rank checks alike, and prefer ok_all.
 */
#ifndef OCCL_TEST_TAP_MPI_H
#define OCCL_TEST_TAP_MPI_H

#include <mpi.h>

#include "tap.h"

/* MPI_Init_thread; bails out if the size is not TAP_MPI_SIZE, skips the program (on every rank)
 * if the thread level or min_ranks is not to be had. Sets MPI_ERRORS_RETURN on nothing: a test
 * that wants it says so. */
void tap_mpi_begin(int *argc, char ***argv, int thread_level, int min_ranks);
/* Collective check: true on every rank or false on every rank */
int tap_ok_all(int cond, const char *file, int line, const char *fmt, ...) TAP_PRINTF(4, 5);
#define ok_all(cond, ...) tap_ok_all(!!(cond), __FILE__, __LINE__, __VA_ARGS__)
/* A comment of this rank on stderr: "# rank 1: ..." */
void tap_rank_diag(const char *fmt, ...) TAP_PRINTF(1, 2);
/* Skip n checks on every rank (call it on every rank) */
#define skip_all_ranks(n, ...) skip((n), __VA_ARGS__)
/* Plan and MPI_Finalize; the value to return from main */
int tap_mpi_end(void);

extern int tap_rank, tap_size;

#endif
