/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jacobi's iteration for Poisson's equation on a rectangle, with the halo exchange and the test of convergence under way
 * while points are computed.
 *
 *     mpiexec -n 4 jacobi [POINTS]
 *
 * The ranks are a grid, and each has POINTS x POINTS of its inner points. Both operations are made once and
 * started in every sweep: the exchange with the neighbours, which the points along the edge wait for, and the all-reduce of
 * how much the last sweep changed, which is waited for after this one. Half of the ranks start the exchange first and the
 * others the all-reduce: with tags of their own no order has to be kept.
 *
 * -u_xx - u_yy = 2 (x (w - x) + y (h - y)), with u = 0 on the border of a rectangle of width w and height h, has the solution
 * u = x (w - x) y (h - y). The difference quotients are exact for it, so it solves the discrete problem too.
 */
#include <math.h>
#include <mpi.h>
#include <mpix_occl.h>
#include <stdio.h>
#include <stdlib.h>

enum { HALO = 1, CHANGE = 2 }; /* tags */
static const double EPS = 1e-10;

static int n;                /* a rank's points in a row */
static double h;             /* from point to point */
static double width, height; /* the longer one is 1 */
static double left, low;      /* before my first point */
static double *old, *new;    /* mine and a frame around them: n + 2 in a row */

#define AT(u, i, j) ((u)[(i) * (n + 2) + (j)])

static double solution(double x, double y) { return x * (width - x) * y * (height - y); }

/* Computes the points of some rows and columns; how much one of them changed at most, if that is more than `change` */
static double sweep(int i0, int i1, int j0, int j1, double change)
{
    for (int i = i0; i <= i1; i++) {
        for (int j = j0; j <= j1; j++) {
            double x = left + i * h, y = low + j * h, f = 2 * (x * (width - x) + y * (height - y));

            AT(new, i, j) = (AT(old, i - 1, j) + AT(old, i + 1, j) + AT(old, i, j - 1) + AT(old, i, j + 1) + h * h * f) / 4;
            change = fmax(change, fabs(AT(new, i, j) - AT(old, i, j)));
        }
    }
    return change;
}

int main(int argc, char **argv)
{
    int rank, size, dims[2] = {0, 0}, periods[2] = {0, 0}, at[2], sweeps = 0;
    double *edge, *halo, changed = 0, most = 1, error = 0, limit;
    MPI_Comm grid;
    MPIX_Occl_Coll exchange, test;

    MPI_Init(&argc, &argv);
    n = argc > 1 ? atoi(argv[1]) : 8;
    if (n < 2 || n > 10000) {
        fprintf(stderr, "Usage: mpiexec -n N jacobi [POINTS]: of 2 or more in a row a rank\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, at);
    MPIX_Occl_comm_attach(grid, MPI_INFO_NULL);

    h = 1.0 / (n * (dims[0] > dims[1] ? dims[0] : dims[1]) + 1);
    width = (n * dims[0] + 1) * h;
    height = (n * dims[1] + 1) * h;
    left = at[0] * n * h;
    low = at[1] * n * h;
    old = calloc((size_t)(n + 2) * (size_t)(n + 2), sizeof *old);
    new = calloc((size_t)(n + 2) * (size_t)(n + 2), sizeof *new);
    edge = calloc(4 * (size_t)n, sizeof *edge); /* to the neighbours before and behind in x, then in y */
    halo = calloc(4 * (size_t)n, sizeof *halo); /* from them; stays 0 where there is none */
    if (!old || !new || !edge || !halo)
        MPI_Abort(MPI_COMM_WORLD, 1);

    MPIX_Occl_neighbor_alltoall_init(edge, n, MPI_DOUBLE, halo, n, MPI_DOUBLE, HALO, grid, MPI_INFO_NULL, &exchange);
    MPIX_Occl_allreduce_init(&changed, &most, 1, MPI_DOUBLE, MPI_MAX, CHANGE, grid, MPI_INFO_NULL, &test);

    while (most > EPS) {
        for (int k = 0; k < n; k++) {
            edge[k] = AT(old, 1, k + 1);
            edge[n + k] = AT(old, n, k + 1);
            edge[2 * n + k] = AT(old, k + 1, 1);
            edge[3 * n + k] = AT(old, k + 1, n);
        }
        /* the first sweep has no change to test before it */
        if (rank % 2 && sweeps > 0)
            MPIX_Occl_start(test, MPIX_OCCL_NO_REQUEST);
        MPIX_Occl_start(exchange, MPIX_OCCL_NO_REQUEST);
        if (rank % 2 == 0 && sweeps > 0)
            MPIX_Occl_start(test, MPIX_OCCL_NO_REQUEST);

        double change = sweep(2, n - 1, 2, n - 1, 0); /* these need no neighbour */

        MPIX_Occl_coll_wait(exchange);
        for (int k = 0; k < n; k++) {
            AT(old, 0, k + 1) = halo[k];
            AT(old, n + 1, k + 1) = halo[n + k];
            AT(old, k + 1, 0) = halo[2 * n + k];
            AT(old, k + 1, n + 1) = halo[3 * n + k];
        }
        change = sweep(1, 1, 1, n, change);
        change = sweep(n, n, 1, n, change);
        change = sweep(2, n - 1, 1, 1, change);
        change = sweep(2, n - 1, n, n, change);
        if (sweeps++ > 0)
            MPIX_Occl_coll_wait(test); /* of the sweep before: the same bits, and so the same decision, everywhere */
        changed = change;
        double *t = old;
        old = new;
        new = t;
    }

    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= n; j++)
            error = fmax(error, fabs(AT(old, i, j) - solution(left + i * h, low + j * h)));
    MPI_Allreduce(MPI_IN_PLACE, &error, 1, MPI_DOUBLE, MPI_MAX, grid);
    limit = 2 * EPS / (1 - cos(acos(-1) * h)); /* a sweep takes off the cosine of the slowest error */
    if (rank == 0)
        printf("%d ranks as a grid of %d x %d, %d x %d points: after %d sweeps the solution is %s: %.1e off, at most %.1e.\n",
               size, dims[0], dims[1], n * dims[0], n * dims[1], sweeps, error < limit ? "right" : "WRONG", error, limit);

    MPIX_Occl_coll_free(&exchange);
    MPIX_Occl_coll_free(&test);
    MPIX_Occl_comm_detach(grid);
    MPI_Comm_free(&grid);
    free(old);
    free(new);
    free(edge);
    free(halo);
    MPI_Finalize();
    return !(error < limit);
}
