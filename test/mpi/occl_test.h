/* SPDX-License-Identifier: BSD-3-Clause */
/* Small things that the tests of this folder share. */
#ifndef OCCL_TEST_MPI_OCCL_TEST_H
#define OCCL_TEST_MPI_OCCL_TEST_H

#include <mpix_occl.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap_mpi.h"

static inline int class_of(int code)
{
    int c = MPI_SUCCESS;

    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &c);
    return c;
}

/* The text that MPI has for a code; two calls may stand in one expression. */
static inline const char *text_of(int code)
{
    static char text[2][MPI_MAX_ERROR_STRING + 1];
    static int turn;
    int len;

    turn = !turn;
    MPI_Error_string(code, text[turn], &len);
    return text[turn];
}

/* The whole text of the latest error on comm */
static inline const char *whole_text(MPI_Comm comm)
{
    static char text[1100];
    int code;

    MPIX_Occl_comm_get_error(comm, &code, text, sizeof text);
    return text;
}

/* Says what was seen when it is not what was wanted; for conditions given to ok_all. */
static inline int is_class(int code, int want, const char *part, MPI_Comm comm)
{
    int good = class_of(code) == want && (!part || strstr(whole_text(comm), part));

    if (!good)
        tap_rank_diag("class %d (wanted %d), MPI's text \"%s\", ours \"%s\" (wanted \"%s\" in it)", class_of(code), want,
                      text_of(code), whole_text(comm), part ? part : "");
    return good;
}

static inline void return_errors(MPI_Comm comm) { MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN); }

/* Everybody is here. A plain barrier would do, were it not for tests that count MPI's calls. */
static inline void meet(MPI_Comm comm) { PMPI_Barrier(comm); }

#endif
