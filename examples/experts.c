/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Experts: every token goes to the rank whose expert its router has chosen, and comes back changed.
 *
 *     mpiexec -n 4 experts [TOKENS]
 *
 * Several layers are in flight, each with micro-batches of its own, and each takes three exchanges: how many tokens come,
 * the tokens to their experts, and the tokens home. What a rank starts next is what happens to be complete there: every rank
 * begins with the layers in its own random order and goes on with whichever is ready. MPI's collectives would need the same
 * order everywhere, that is, waiting for the slowest; here a tag for each layer and exchange says what belongs together.
 *
 * Routers are unfair, so that the loads differ: every other token wants expert 0.
 */
#include <mpi.h>
#include <mpix_occl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAYERS = 8, WIDTH = 16 }; /* of a token: so many numbers */
enum { COUNTS, THERE, HOME, EXCHANGES };

typedef struct token {
    double x[WIDTH];
} token_t;

typedef struct layer {
    int exchange;                      /* the one that is under way */
    int *scounts, *sdispls;            /* tokens for each expert */
    int *rcounts, *rdispls;            /* tokens from each rank */
    int *slot;                         /* where each of my tokens lies in `routed` */
    token_t *routed, *guests;          /* mine by expert, before and after; those that visit my expert */
} layer_t;

static int rank, size, tokens = 64;
static MPI_Datatype token_type;

static unsigned hash(unsigned a, unsigned b, unsigned c)
{
    unsigned h = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;

    h = (h ^ (h >> 15)) * 2246822519u;
    return h ^ (h >> 13);
}

/* Number d of a token; its expert; what that makes of the number. Small whole numbers: equality is exact. */
static double number(int owner, int layer, int t, int d) { return hash((unsigned)owner, (unsigned)(layer * tokens + t), (unsigned)d) % 1000; }

static int route(int owner, int layer, int t) { return t % 2 ? 0 : (int)(hash((unsigned)owner, (unsigned)layer, (unsigned)t) % (unsigned)size); }

static double expert(int e, int layer, double x, int d) { return (e + 2) * x + 100 * layer + d; }

static void *get(size_t count, size_t bytes)
{
    void *p = calloc(count ? count : 1, bytes);

    if (!p)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return p;
}

/* The first exchange: how many tokens will come */
static void begin(layer_t *l, int layer, MPI_Request *req)
{
    l->scounts = get(4 * (size_t)size, sizeof(int));
    l->sdispls = l->scounts + size;
    l->rcounts = l->sdispls + size;
    l->rdispls = l->rcounts + size;
    l->slot = get((size_t)tokens, sizeof(int));
    l->routed = get((size_t)tokens, sizeof(token_t));
    for (int t = 0; t < tokens; t++)
        l->slot[t] = l->scounts[route(rank, layer, t)]++;
    for (int e = 1; e < size; e++)
        l->sdispls[e] = l->sdispls[e - 1] + l->scounts[e - 1];
    for (int t = 0; t < tokens; t++) {
        l->slot[t] += l->sdispls[route(rank, layer, t)];
        for (int d = 0; d < WIDTH; d++)
            l->routed[l->slot[t]].x[d] = number(rank, layer, t, d);
    }
    l->exchange = COUNTS;
    MPIX_Occl_ialltoall(l->scounts, 1, MPI_INT, l->rcounts, 1, MPI_INT, layer * EXCHANGES + COUNTS, MPI_COMM_WORLD, req);
}

/* An exchange is complete: starts the next one, or leaves req as it is (MPI_REQUEST_NULL) after the last one */
static void go_on(layer_t *l, int layer, MPI_Request *req)
{
    int guests;

    switch (l->exchange++) {
    case COUNTS:
        for (int r = 1; r < size; r++)
            l->rdispls[r] = l->rdispls[r - 1] + l->rcounts[r - 1];
        l->guests = get((size_t)(l->rdispls[size - 1] + l->rcounts[size - 1]), sizeof(token_t));
        MPIX_Occl_ialltoallv(l->routed, l->scounts, l->sdispls, token_type, l->guests, l->rcounts, l->rdispls, token_type,
                             layer * EXCHANGES + THERE, MPI_COMM_WORLD, req);
        break;
    case THERE:
        guests = l->rdispls[size - 1] + l->rcounts[size - 1];
        for (int g = 0; g < guests; g++)
            for (int d = 0; d < WIDTH; d++)
                l->guests[g].x[d] = expert(rank, layer, l->guests[g].x[d], d);
        MPIX_Occl_ialltoallv(l->guests, l->rcounts, l->rdispls, token_type, l->routed, l->scounts, l->sdispls, token_type,
                             layer * EXCHANGES + HOME, MPI_COMM_WORLD, req);
        break;
    }
}

int main(int argc, char **argv)
{
    static layer_t layers[LAYERS];
    MPI_Request reqs[LAYERS];
    int order[LAYERS], i, sums[2] = {0, 0}, busiest;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        tokens = atoi(argv[1]);
    if (tokens < 1 || tokens > 1000000) {
        fprintf(stderr, "Usage: mpiexec -n N experts [TOKENS]: of each rank in each layer\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Type_contiguous(WIDTH, MPI_DOUBLE, &token_type);
    MPI_Type_commit(&token_type);
    MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL);

    srand((unsigned)time(NULL) + 7919u * (unsigned)rank); /* my own order, another one every time */
    for (i = 0; i < LAYERS; i++) {
        int j = rand() % (i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (i = 0; i < LAYERS; i++)
        begin(&layers[order[i]], order[i], &reqs[i]);
    for (;;) {
        MPIX_Occl_waitany(LAYERS, reqs, &i, MPI_STATUS_IGNORE);
        if (i == MPI_UNDEFINED)
            break; /* all are home */
        go_on(&layers[order[i]], order[i], &reqs[i]); /* of those complete, the first in my order */
    }

    busiest = 0;
    for (int l = 0; l < LAYERS; l++) {
        layer_t *y = &layers[l];
        for (int t = 0; t < tokens; t++) {
            int e = route(rank, l, t), good = y->exchange == EXCHANGES;
            for (int d = 0; d < WIDTH; d++)
                good &= y->routed[y->slot[t]].x[d] == expert(e, l, number(rank, l, t, d), d);
            sums[0] += good;
        }
        busiest += y->rdispls[size - 1] + y->rcounts[size - 1];
        free(y->scounts);
        free(y->slot);
        free(y->routed);
        free(y->guests);
    }
    sums[1] = LAYERS * tokens;
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &busiest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d layers in flight: %d of %d tokens came home as their experts made them; the busiest rank saw %d.\n",
               size, LAYERS, sums[0], sums[1], busiest);
    MPIX_Occl_comm_detach(MPI_COMM_WORLD);
    MPI_Type_free(&token_type);
    MPI_Finalize();
    return sums[0] != sums[1];
}
