/* SPDX-License-Identifier: BSD-3-Clause */
/* The TAP helper for tests in Fortran: see tapf.F90. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tap_mpi.h"

void tapf_begin(void);
void tapf_begin(void)
{
    tap_mpi_begin(NULL, NULL, MPI_THREAD_MULTIPLE, 1);
}

void tapf_check(int cond, const char *text, size_t len);
void tapf_check(int cond, const char *text, size_t len)
{
    ok_all(cond, "%.*s", (int)len, text);
}

void tapf_diag(const char *text, size_t len);
void tapf_diag(const char *text, size_t len) { tap_rank_diag("%.*s", (int)len, text); }

void tapf_end(void);
void tapf_end(void) { (void)tap_mpi_end(); }

/* A file that is gone when the program ends, and how much is in it */
int tapf_file(void);
int tapf_file(void)
{
    FILE *f = tmpfile();

    return f ? fileno(f) : -1;
}

int tapf_file_size(int fd);
int tapf_file_size(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? (int)st.st_size : -1;
}
