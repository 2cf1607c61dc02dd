/* SPDX-License-Identifier: BSD-3-Clause */
/* What the Fortran bindings share: see support.h. */
#include "support.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "mpi-ext/c/section.h"

/* --- sentinels ---------------------------------------------------------------------------------------------------- */

/* Written by whichever thread comes first, and perhaps by others at the same time: the same values. `ready` is released last. */
static _Atomic(const void *) sentinel[OCCL_F_WAYS][OCCL_F_SENTINELS];
static _Atomic MPI_Fint logical_true, logical_false, status_size;
static atomic_int ready;

/* Fortran's, in setup_*.F90 */
void occl_f_setup_mpifh(void);
void occl_f_setup_mpi(void);
void occl_f_setup_f08(void);
/* Called by them */
void occl_f_sentinel(int way, int what, const void *where);
void occl_f_sentinel_array(int way, int what, const void *where);
void occl_f_values(const void *yes, const void *no, const MPI_Fint *size);

void occl_f_sentinel(int way, int what, const void *where)
{
    atomic_store_explicit(&sentinel[way][what], where, memory_order_relaxed);
}
void occl_f_sentinel_array(int way, int what, const void *where) { occl_f_sentinel(way, what, where); }

void occl_f_values(const void *yes, const void *no, const MPI_Fint *size)
{
    MPI_Fint y, n;

    memcpy(&y, yes, sizeof y);
    memcpy(&n, no, sizeof n);
    atomic_store_explicit(&logical_true, y, memory_order_relaxed);
    atomic_store_explicit(&logical_false, n, memory_order_relaxed);
    atomic_store_explicit(&status_size, *size, memory_order_relaxed);
}

static void setup(void)
{
    if (atomic_load_explicit(&ready, memory_order_acquire))
        return;
    occl_f_setup_mpifh();
    occl_f_setup_mpi();
    occl_f_setup_f08();
    atomic_store_explicit(&ready, 1, memory_order_release);
}

/* The module's, where no request is wanted: the address is all that counts. */
extern MPI_Fint occl_f08_no_request, occl_f08_no_requests[1];

int occl_f_is(int what, const void *p)
{
    setup();
    if (what == OCCL_F_NO_REQUEST && (p == &occl_f08_no_request || p == occl_f08_no_requests))
        return 1;
    for (int way = 0; way < OCCL_F_WAYS; way++) {
        if (p && p == atomic_load_explicit(&sentinel[way][what], memory_order_relaxed))
            return 1;
    }
    return 0;
}

void *occl_f_buffer(void *p)
{
    return occl_f_is(OCCL_F_IN_PLACE, p) ? MPI_IN_PLACE : occl_f_is(OCCL_F_BOTTOM, p) ? MPI_BOTTOM : p;
}

void *occl_f_section(const CFI_cdesc_t *d)
{
    /* A scalar, or an array that is its address and no more, has no gaps. */
    return d->rank == 0 || !d->base_addr || CFI_is_contiguous(d) ? d->base_addr : OCCL_MPI_SECTION;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

void occl_f_flag_out(MPI_Fint *to, int flag)
{
    setup();
    *to = atomic_load_explicit(flag ? &logical_true : &logical_false, memory_order_relaxed);
}

/* Of the compilers that have more than one value for true, all have one for false. */
int occl_f_flag_in(const MPI_Fint *from)
{
    setup();
    return *from != atomic_load_explicit(&logical_false, memory_order_relaxed);
}

void occl_f_string_in(char to[OCCL_F_TEXT], const char *from, size_t len)
{
    while (len > 0 && from[len - 1] == ' ')
        len--;
    if (len > OCCL_F_TEXT - 1)
        len = OCCL_F_TEXT - 1;
    memcpy(to, from, len);
    to[len] = '\0';
}

void occl_f_string_out(char *to, size_t len, MPI_Fint most, const char *from)
{
    size_t n = strlen(from);

    if (n > len)
        n = len;
    if (most >= 0 && n > (size_t)most)
        n = (size_t)most;
    memcpy(to, from, n);
    memset(to + n, ' ', len - n);
}

int occl_f_length(MPI_Fint length, size_t len)
{
    size_t n = len < OCCL_F_TEXT - 1 ? len : OCCL_F_TEXT - 1;

    if (length < 0)
        return INT_MIN; /* the C function says so */
    if ((size_t)length < n)
        n = (size_t)length;
    return (int)n + 1;
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

int occl_f_size(MPI_Fint comm)
{
    MPI_Comm c = PMPI_Comm_f2c(comm);
    int n = 0;

    if (c == MPI_COMM_NULL || PMPI_Comm_size(c, &n) != MPI_SUCCESS)
        return 0;
    return n;
}

int occl_f_is_root(MPI_Fint comm, MPI_Fint root)
{
    MPI_Comm c = PMPI_Comm_f2c(comm);
    int rank;

    return c != MPI_COMM_NULL && PMPI_Comm_rank(c, &rank) == MPI_SUCCESS && rank == root;
}

int occl_f_degree(MPI_Fint comm, int out)
{
    MPI_Comm c = PMPI_Comm_f2c(comm);
    int topology, in_degree = 0, out_degree = 0, weighted, n = 0, rank;

    if (c == MPI_COMM_NULL || PMPI_Topo_test(c, &topology) != MPI_SUCCESS)
        return 0;
    switch (topology) {
    case MPI_DIST_GRAPH:
        PMPI_Dist_graph_neighbors_count(c, &in_degree, &out_degree, &weighted);
        return out ? out_degree : in_degree;
    case MPI_CART:
        PMPI_Cartdim_get(c, &n);
        return 2 * n;
    case MPI_GRAPH:
        PMPI_Comm_rank(c, &rank);
        PMPI_Graph_neighbors_count(c, rank, &n);
        return n;
    default:
        return 0;
    }
}

void *occl_f_space(void *small, int n, size_t size)
{
    return n <= OCCL_F_FEW ? small : calloc((size_t)n, size);
}

int occl_f_no_memory(void)
{
    int code = MPIX_OCCL_ERR_RESOURCE;

    PMPI_Comm_call_errhandler(MPI_COMM_WORLD, code);
    return code;
}

const int *occl_f_ints(int *few, const MPI_Fint *from, int n)
{
    int *to;

    if (sizeof(MPI_Fint) == sizeof(int))
        return (const int *)from;
    to = occl_f_space(few, n, sizeof *to);
    for (int i = 0; to && i < n; i++)
        to[i] = occl_f_int(from[i]);
    return to;
}

/* --- statuses ----------------------------------------------------------------------------------------------------- */

MPI_Status *occl_f_status_in(const MPI_Fint *status, MPI_Status *space)
{
    if (occl_f_is(OCCL_F_STATUS_IGNORE, status))
        return MPI_STATUS_IGNORE;
    PMPI_Status_f2c(status, space);
    return space;
}

void occl_f_status_out(MPI_Fint *status, const MPI_Status *from)
{
    if (from != MPI_STATUS_IGNORE)
        PMPI_Status_c2f(from, status);
}

/* TYPE(MPI_Status) is, in both MPIs, as long as the INTEGER array and has the same bits. Called after occl_f_is. */
static size_t status_ints(void) { return (size_t)atomic_load_explicit(&status_size, memory_order_relaxed); }

MPI_Status *occl_f_statuses_in(const MPI_Fint *statuses, MPI_Status *few, int n)
{
    MPI_Status *to;

    if (occl_f_is(OCCL_F_STATUSES_IGNORE, statuses))
        return MPI_STATUSES_IGNORE;
    to = occl_f_space(few, n, sizeof *to);
    for (int i = 0; to && i < n; i++)
        PMPI_Status_f2c(statuses + (size_t)i * status_ints(), to + i);
    return to;
}

void occl_f_statuses_out(MPI_Fint *statuses, const MPI_Status *from, int n)
{
    for (int i = 0; i < n; i++)
        PMPI_Status_c2f(from + i, statuses + (size_t)i * status_ints());
}
