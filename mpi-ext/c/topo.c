/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbours of a process on a communicator with a topology: MPI is asked once, since a topology never changes. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

struct occl_mpi_edges {
    int nin, nout;
    occl_mpi_edge_t edge[]; /* in, then out */
};

static int add(occl_mpi_edge_t *e, int n, int rank, int index)
{
    if (rank == MPI_PROC_NULL)
        return n;
    e[n] = (occl_mpi_edge_t){rank, index};
    return n + 1;
}

/*
 * Cartesian: first the neighbour below, then the one above, in each dimension, and what goes up is what comes from below. Where both are
 * one process (a ring of two, or of one) the m-th block that I send to it is the m-th that it expects of me: so of the
 * blocks to send the one that goes up comes first.
 */
static occl_mpi_edges_t *cartesian(MPI_Comm comm)
{
    int dims = 0, below, above;
    occl_mpi_edges_t *x;

    if (PMPI_Cartdim_get(comm, &dims) != MPI_SUCCESS)
        return NULL;
    x = calloc(1, sizeof *x + 4 * (size_t)dims * sizeof x->edge[0]);
    for (int d = 0; x && d < dims; d++) {
        PMPI_Cart_shift(comm, d, 1, &below, &above);
        x->nin = add(x->edge, x->nin, below, 2 * d);
        x->nin = add(x->edge, x->nin, above, 2 * d + 1);
    }
    for (int d = 0; x && d < dims; d++) {
        PMPI_Cart_shift(comm, d, 1, &below, &above);
        x->nout = add(x->edge + x->nin, x->nout, above, 2 * d + 1);
        x->nout = add(x->edge + x->nin, x->nout, below, 2 * d);
    }
    return x;
}

static occl_mpi_edges_t *graph(MPI_Comm comm, int rank)
{
    int n = 0;
    int *to;
    occl_mpi_edges_t *x;

    if (PMPI_Graph_neighbors_count(comm, rank, &n) != MPI_SUCCESS)
        return NULL;
    to = calloc((size_t)n + 1, sizeof *to);
    x = calloc(1, sizeof *x + 2 * (size_t)n * sizeof x->edge[0]);
    if (to && x && PMPI_Graph_neighbors(comm, rank, n, to) == MPI_SUCCESS) {
        for (int i = 0; i < n; i++)
            x->nin = add(x->edge, x->nin, to[i], i);
        for (int i = 0; i < n; i++)
            x->nout = add(x->edge + x->nin, x->nout, to[i], i);
    } else {
        free(x);
        x = NULL;
    }
    free(to);
    return x;
}

static occl_mpi_edges_t *dist_graph(MPI_Comm comm)
{
    int nin = 0, nout = 0, weighted;
    int *from, *to, *w;
    occl_mpi_edges_t *x;

    if (PMPI_Dist_graph_neighbors_count(comm, &nin, &nout, &weighted) != MPI_SUCCESS)
        return NULL;
    from = calloc((size_t)nin + 1, sizeof *from);
    to = calloc((size_t)nout + 1, sizeof *to);
    w = calloc((size_t)(nin > nout ? nin : nout) + 1, sizeof *w);
    x = calloc(1, sizeof *x + ((size_t)nin + (size_t)nout) * sizeof x->edge[0]);
    /* (The weights are of no interest, but MPI_UNWEIGHTED is for communicators without.) */
    if (from && to && w && x &&
        PMPI_Dist_graph_neighbors(comm, nin, from, weighted ? w : MPI_UNWEIGHTED, nout, to, weighted ? w : MPI_UNWEIGHTED) == MPI_SUCCESS) {
        for (int i = 0; i < nin; i++)
            x->nin = add(x->edge, x->nin, from[i], i);
        for (int i = 0; i < nout; i++)
            x->nout = add(x->edge + x->nin, x->nout, to[i], i);
    } else {
        free(x);
        x = NULL;
    }
    free(from);
    free(to);
    free(w);
    return x;
}

occl_status_t occl_mpi_neighbors(occl_mpi_comm_t *m, MPI_Comm comm, const occl_mpi_edge_t **in_p, int *nin_p,
                                 const occl_mpi_edge_t **out_p, int *nout_p, char *why, size_t len)
{
    occl_mpi_edges_t *x = atomic_load_explicit(&m->edges, memory_order_acquire), *none = NULL;
    int topology = MPI_UNDEFINED;

    if (!x) {
        if (PMPI_Topo_test(comm, &topology) != MPI_SUCCESS || topology == MPI_UNDEFINED) {
            snprintf(why, len, "the communicator has no topology, so no neighbours (MPI_Cart_create, MPI_Dist_graph_create_adjacent, ...)");
            return OCCL_ERR_COMM;
        }
        x = topology == MPI_CART ? cartesian(comm) : topology == MPI_GRAPH ? graph(comm, m->rank) : dist_graph(comm);
        if (!x) {
            snprintf(why, len, "the neighbours could not be found: no memory");
            return OCCL_ERR_RESOURCE;
        }
        /* Another thread may have been faster. */
        if (!atomic_compare_exchange_strong(&m->edges, &none, x)) {
            free(x);
            x = none;
        }
    }
    *in_p = x->edge;
    *nin_p = x->nin;
    *out_p = x->edge + x->nin;
    *nout_p = x->nout;
    return OCCL_OK;
}
