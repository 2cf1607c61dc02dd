/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers on a GPU: which go without a copy and which are staged, how long peers keep what was freed, memory of the library's, and
 * pageable memory, of which the device works on a copy.
 */
#include "gpu_test.h"

static unsigned state;

static unsigned long long stat_of(const char *name) { return tool_stat(comm, name); }

static uint64_t once(tool_memory_t memory, tool_coll_t coll, size_t bytes, int tag, int in_place, int persistent)
{
    work_t w = work_of(coll, TOOL_FLOAT, TOOL_SUM, tool_job_count(coll, TOOL_FLOAT, np, bytes), tag);
    uint64_t wrong;

    w.job.memory = memory;
    w.job.in_place = in_place;
    w.job.shift = 1;
    wrong = (uint64_t)work_make(&w, persistent);
    for (uint64_t step = 0; step < 3; step++)
        wrong += work_batch(&w, 1, step, &state, 0, NULL);
    work_free(&w);
    return wrong;
}

/* Large ones, of memory that each rank can export and of memory that one cannot. */
static void no_copies(void)
{
    static const struct {
        tool_memory_t mine, others;
        int hidden;
    } cases[] = {{TOOL_MEMORY_DEVICE, TOOL_MEMORY_DEVICE, 0}, {TOOL_MEMORY_MAPPED, TOOL_MEMORY_MAPPED, 0},
                 {TOOL_MEMORY_MAPPED, TOOL_MEMORY_DEVICE, 0}, {TOOL_MEMORY_ASYNC, TOOL_MEMORY_DEVICE, 1},
                 {TOOL_MEMORY_PINNED, TOOL_MEMORY_MAPPED, 1}};

    for (int i = 0; i < 5; i++) {
        unsigned long long was = stat_of("hidden_runs");
        tool_memory_t m = me == 0 ? cases[i].mine : cases[i].others;
        uint64_t wrong = once(m, TOOL_ALLREDUCE, 12 << 20, 10 + i, 0, 1) + once(m, TOOL_ALLGATHER, 12 << 20, 20 + i, i % 2, 0) +
                         once(m, TOOL_BCAST, 5 << 20, 30 + i, 0, 1) + once(m, TOOL_SENDRECV, 5 << 20, 40 + i, 0, 0);
        unsigned long long n = stat_of("hidden_runs") - was;

        ok_all(wrong == 0, "rank 0 with %s memory, the others with %s memory: right data", tool_memory_name(cases[i].mine),
               tool_memory_name(cases[i].others));
        ok_all(cases[i].hidden ? n >= 9 : n == 0, "and %s", cases[i].hidden ? "staged" : "without a copy");
    }
}

static int falls_to(const char *name, unsigned long long most, double within)
{
    double from = tap_now();

    while (stat_of(name) > most)
        if (tap_now() - from > within)
            return 0;
        else
            usleep(20000);
    return 1;
}

/* What is freed is let go, with nothing pending and while a run waits for a peer. */
static void freed(void)
{
    static const int kinds[] = {TOOL_MEMORY_DEVICE, TOOL_MEMORY_MAPPED};
    static float small[8];

    for (int k = 0; k < 4; k++) {
        unsigned long long exports, mappings;
        double within = tap_slack() > 1.5 ? tap_slack() : 1.5;
        MPI_Request waits = MPI_REQUEST_NULL;
        uint64_t wrong;
        int good;

        MPI_Barrier(MPI_COMM_WORLD);
        (void)falls_to("exports", 0, 1.5);
        exports = stat_of("exports");
        mappings = stat_of("mappings");
        if (k >= 2 && me != np - 1) /* its last member comes at the end */
            MPIX_Occl_iallreduce(MPI_IN_PLACE, small, 8, MPI_FLOAT, MPI_SUM, 50 + k, comm, &waits);
        wrong = once((tool_memory_t)kinds[k % 2], TOOL_ALLREDUCE, 4 << 20, 60 + k, 0, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        good = falls_to("exports", exports, within) && falls_to("mappings", mappings, within);
        if (!good)
            tap_rank_diag("exports %llu (%llu before), mappings %llu (%llu before)", stat_of("exports"), exports, stat_of("mappings"),
                          mappings);
        ok_all(wrong == 0 && good, "%s memory that was freed is let go by its peers soon%s", tool_memory_name((tool_memory_t)kinds[k % 2]),
               k >= 2 ? ", while another run waits for a peer" : "");
        MPI_Barrier(MPI_COMM_WORLD);
        if (k >= 2 && me == np - 1)
            MPIX_Occl_iallreduce(MPI_IN_PLACE, small, 8, MPI_FLOAT, MPI_SUM, 50 + k, comm, &waits);
        if (k >= 2)
            MPIX_Occl_wait(&waits, MPI_STATUS_IGNORE);
    }
}

static void ours(void)
{
    enum { N = 1 << 20 };
    float *x = NULL, *host = malloc(N * sizeof *host);
    unsigned long long was = stat_of("hidden_runs");
    void *async = tool_cuda_alloc(TOOL_MEMORY_ASYNC, 1000);
    MPI_Request req;
    int good, rc = MPIX_Occl_mem_alloc((MPI_Aint)(N * sizeof *x), comm, &x);

    good = rc == MPI_SUCCESS;
    for (int i = 0; i < N; i++)
        host[i] = (float)(i % 1000 + me);
    if (good)
        tool_cuda_copy(x, host, N * sizeof *x);
    good = good && MPIX_Occl_iallreduce(MPI_IN_PLACE, x, N, MPI_FLOAT, MPI_SUM, 70, comm, &req) == MPI_SUCCESS &&
           MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    if (good)
        tool_cuda_copy(host, x, N * sizeof *x);
    for (int i = 0; good && i < N; i++)
        good = host[i] == (float)(np * (i % 1000) + np * (np - 1) / 2);
    ok_all(good && stat_of("hidden_runs") == was, "memory of mem_alloc goes without a copy");
    ok_all(MPIX_Occl_mem_free(x) == MPI_SUCCESS && class_of(MPIX_Occl_mem_free(x)) == MPI_ERR_BUFFER, "and is freed, once");
    ok_all(is_class(MPIX_Occl_mem_register(comm, async, 1000), MPIX_OCCL_ERR_UNSUPPORTED, "pool", comm),
           "memory of a pool cannot be registered");
    ok_all(MPIX_Occl_mem_register(comm, host, (MPI_Aint)(N * sizeof *host)) == MPI_SUCCESS, "ordinary memory can");
    for (int i = 0; i < N; i++)
        host[i] = (float)(i % 500 + me);
    good = MPIX_Occl_iallreduce(MPI_IN_PLACE, host, N, MPI_FLOAT, MPI_SUM, 71, comm, &req) == MPI_SUCCESS &&
           MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
    for (int i = 0; good && i < N; i++)
        good = host[i] == (float)(np * (i % 500) + np * (np - 1) / 2);
    ok_all(good, "and is a good buffer");
    ok_all(MPIX_Occl_mem_unregister(comm, host) == MPI_SUCCESS, "until it is unregistered");
    tool_cuda_free(TOOL_MEMORY_ASYNC, async);
    free(host);
}

/* Of pageable memory the device has a copy: only what an operation writes is written back. */
static void pageable(void)
{
    float *x = malloc(1000 * sizeof *x);
    MPI_Request req;
    MPIX_Occl_Coll coll;
    int good = 1, other = me ^ 1, flag, rc;

    /* A message shorter than the buffer */
    for (int i = 0; i < 1000; i++)
        x[i] = me % 2 ? -1 : (float)i;
    if (other < np) {
        rc = me % 2 ? MPIX_Occl_irecv(x, 1000, MPI_FLOAT, other, 80, comm, &req) : MPIX_Occl_isend(x, 300, MPI_FLOAT, other, 80, comm, &req);
        good = rc == MPI_SUCCESS && MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) == MPI_SUCCESS;
        for (int i = 0; good && i < 1000; i++)
            good = x[i] == (me % 2 && i >= 300 ? -1 : (float)i);
    }
    ok_all(good, "a message shorter than a pageable buffer leaves the rest of it alone");

    /* Withdrawn, and started again with other data */
    for (int i = 0; i < 1000; i++)
        x[i] = 1;
    MPIX_Occl_allreduce_init(MPI_IN_PLACE, x, 1000, MPI_FLOAT, MPI_SUM, 81, comm, MPI_INFO_NULL, &coll);
    if (me != np - 1) {
        MPIX_Occl_start(coll, MPIX_OCCL_NO_REQUEST);
        MPIX_Occl_coll_cancel(coll, &flag);
        good = flag;
        for (int i = 0; good && i < 1000; i++)
            good = x[i] == 1;
    }
    for (int i = 0; i < 1000; i++)
        x[i] = (float)(me + i);
    MPI_Barrier(MPI_COMM_WORLD);
    MPIX_Occl_start(coll, MPIX_OCCL_NO_REQUEST);
    good = MPIX_Occl_coll_wait(coll) == MPI_SUCCESS && good;
    for (int i = 0; good && i < 1000; i++)
        good = x[i] == (float)(np * i + np * (np - 1) / 2);
    MPIX_Occl_coll_free(&coll);
    ok_all(good, "a start that was withdrawn leaves it alone, and the next one takes what is in it then");

    /* Failed */
    for (int i = 0; i < 1000; i++)
        x[i] = 5;
    rc = MPIX_Occl_iallreduce(MPI_IN_PLACE, x, me ? 999 : 1000, MPI_FLOAT, MPI_SUM, 82, comm, &req);
    if (rc == MPI_SUCCESS)
        rc = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE);
    good = class_of(rc) == MPIX_OCCL_ERR_MISMATCH;
    for (int i = 0; good && i < 1000; i++)
        good = x[i] == 5;
    ok_all(good, "and so does one that fails");
    free(x);
}

int main(int argc, char **argv)
{
    gpu_begin(&argc, &argv);
    state = 3u + 7u * (unsigned)me;
    return_errors(MPI_COMM_WORLD);
    no_copies();
    freed();
    ours();
    pageable();
    MPIX_Occl_comm_detach(comm);
    MPI_Comm_free(&comm);
    return tap_mpi_end();
}
