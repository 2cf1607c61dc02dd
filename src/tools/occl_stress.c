/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank starts the same collectives in its own random order, on communicators that overlap, waits for them in
 * another order and another way, and checks all data. Prints one line, PASS or FAIL, and never hangs: a watchdog
 * tells what was pending.
 *
 * What is agreed between ranks (kinds, sizes, tags) comes from the seed and the communicator; what is not (orders, ways
 * to wait, persistent or nonblocking) from the seed and the rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"
#if TOOL_HAVE_CUDA
#include "tool_cuda.h"
#endif

static struct {
    long colls, comms, iters, deadline;
    size_t bytes;
    uint64_t seed;
    int device_sync, device, mixed, corrupt, ordered, timed, thread_level, verbose;

    int rank, size;
    MPI_Comm plain; /* ours alone, never attached */
} st = {.colls = 8, .comms = 4, .iters = 200, .deadline = 3, .bytes = 65536, .seed = 1};

static const tool_opt_t st_opts[] = {
    {"--colls", 'c', TOOL_INT, &st.colls, "N", "collectives in each iteration, dealt to the communicators in turn (8)", 1,
     1000000, NULL},
    {"--comms", 'm', TOOL_INT, &st.comms, "N",
     "overlapping layouts of communicators (4): world, halves, odd and even, ring of pairs, ...", 1, 64, NULL},
    {"--iters", 'n', TOOL_INT, &st.iters, "N", "iterations (200)", 1, 1000000000, NULL},
    {"--bytes", 'b', TOOL_SIZE, &st.bytes, "SIZE", "largest payload (64K)", 0, 0, NULL},
    {"--seed", 's', TOOL_SEED, &st.seed, "S", "of all that is random (1)", 0, 0, NULL},
    {"--mixed", 0, TOOL_FLAG, &st.mixed, "", "every kind, size, type and operation; some share a tag", 0, 0, NULL},
    {"--ordered", 0, TOOL_FLAG, &st.ordered, "", "the same order on every rank", 0, 0, NULL},
    {"--time", 0, TOOL_FLAG, &st.timed, "", "turn by turn ordered and random; print both times and their ratio", 0, 0, NULL},
    {"--device-sync", 0, TOOL_FLAG, &st.device_sync, "",
     "between starts, at random: cudaDeviceSynchronize, cudaFree, the first launch of a kernel (host: stay away a while)", 0, 0, NULL},
    {"--device", 0, TOOL_CHOICE, &st.device, "DEVICE", "host (default) or cuda: buffers in device memory, with --mixed in any kind", 0, 0,
     TOOL_DEVICE_CHOICES},
    {"--corrupt", 0, TOOL_FLAG, &st.corrupt, "", "flip one bit of one result before it is checked: must print FAIL", 0, 0, NULL},
    {"--deadline", 0, TOOL_INT, &st.deadline, "S",
     "an iteration may take S * OCCL_TEST_SLACK seconds (3 * 10)", 1, 100000, NULL},
    {"--thread-level", 0, TOOL_CHOICE, &st.thread_level, "LEVEL", "single (default), funneled, serialized or multiple",
     0, 0, "single|funneled|serialized|multiple"},
    {"--verbose", 'v', TOOL_FLAG, &st.verbose, "", "list this run's collectives first (rank 0's)", 0, 0, NULL},
    {0}};

/* --- communicators ------------------------------------------------------------------------------------------------ */

#define MAX_MINE 2 /* of one layout, a rank is in so many communicators at most */

typedef struct st_layout {
    const char *name;
    int n;
    MPI_Comm comm[MAX_MINE];
    uint64_t id[MAX_MINE]; /* which part, agreed by its members */
} st_layout_t;

static st_layout_t *layouts;

enum { WORLD, HALVES, ODD_EVEN, PAIR_RING, REVERSED, ALL_BUT_LAST, THIRDS, ENDS, LAYOUTS };

static void layout_add(st_layout_t *l, int color, int key)
{
    MPI_Comm comm;

    MPI_Comm_split(st.plain, color, key, &comm);
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN); /* so that a failure is told in our words */
    tool_mpi_check(tool_attach(comm, st.device), "MPIX_Occl_comm_attach");
    l->comm[l->n] = comm;
    l->id[l->n++] = (uint64_t)color;
}

static void layout_make(st_layout_t *l, int kind)
{
    int r = st.rank, n = st.size;

    switch (kind) {
    case WORLD: l->name = "world"; layout_add(l, 0, r); break;
    case HALVES: l->name = "halves"; layout_add(l, 2 * r / n, r); break;
    case ODD_EVEN: l->name = "odd and even"; layout_add(l, r % 2, r); break;
    case PAIR_RING: /* {0,1} {1,2} ... {n-1,0}: a cycle of dependencies for any fixed order */
        l->name = "ring of pairs";
        for (int i = 0; i < n - (n == 2); i++) {
            int first = r == i, second = r == (i + 1) % n;
            layout_add(l, first || second ? i : MPI_UNDEFINED, first ? 0 : 1);
        }
        break;
    case REVERSED: l->name = "world, reversed"; layout_add(l, 0, -r); break;
    case ALL_BUT_LAST: l->name = "all but the last"; layout_add(l, r == n - 1, r); break;
    case THIRDS: l->name = "every third"; layout_add(l, r % 3, r); break;
    default: l->name = "ends and middle"; layout_add(l, r == 0 || r == n - 1, r); break;
    }
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

typedef struct st_job {
    tool_job_t job;
    const char *where;
    int place;           /* among the jobs of one (communicator, tag): these start in this order */
    int group;           /* which (communicator, tag) */
    int persistent;      /* as this rank chose */
    MPIX_Occl_Coll coll; /* persistent */
    tool_pending_t pending;
    int active;
} st_job_t;

static st_job_t *jobs;
static int njobs, shared_tags;
static volatile long iteration;

static void job_make(st_job_t *j, const st_layout_t *l, int part, long index, int layout)
{
    static const int sizes_shift = 3;
    tool_job_t *t = &j->job;
    long ordinal = index / st.comms; /* within the layout */
    occl_rng_t rng, mine;
    int size;
    size_t bytes;

    MPI_Comm_size(l->comm[part], &size);
    occl_rng_seed(&rng, st.seed * 0x10001 + (uint64_t)index, ((uint64_t)layout << 32) + l->id[part]);
    occl_rng_seed(&mine, st.seed, (uint64_t)st.rank * 1000003 + (uint64_t)index);
    t->comm = l->comm[part];
    t->salt = ((uint64_t)index << 24) + ((uint64_t)layout << 16) + l->id[part];
    t->tag = (int)index;
    t->coll = TOOL_ALLREDUCE;
    t->type = TOOL_FLOAT;
    t->op = TOOL_SUM;
    t->memory = st.device == TOOL_DEVICE_CUDA ? TOOL_MEMORY_DEVICE : TOOL_MEMORY_HOST;
    bytes = st.bytes >> (sizes_shift * (index % 5));
    if (st.mixed) {
        t->coll = (tool_coll_t)occl_rng_below(&rng, TOOL_COLLS);
        do /* a GPU has no long double */
            t->type = (tool_type_t)occl_rng_below(&rng, TOOL_TYPES);
        while (t->type == TOOL_LONGDOUBLE && st.device == TOOL_DEVICE_CUDA && tool_coll_flags(t->coll) & TOOL_REDUCES);
        do
            t->op = (tool_op_t)occl_rng_below(&rng, TOOL_OPS);
        while (!tool_op_allowed(t->op, t->type));
        t->root = (int)occl_rng_below(&rng, (uint64_t)size);
        t->in_place = occl_rng_below(&rng, 4) == 0;
        /* any magnitude alike; nothing at all now and then */
        bytes = 0;
        if (occl_rng_below(&rng, 12)) {
            size_t limit = st.bytes >> occl_rng_below(&rng, 16);
            bytes = (size_t)occl_rng_below(&rng, limit + 1);
        }
        /* a tag that its neighbour has too: several runs of one tag in flight */
        for (long k = ordinal; k > 0; k--) {
            occl_rng_t share;
            occl_rng_seed(&share, st.seed ^ 0x5ea1, (uint64_t)((k * st.comms + layout)));
            if (occl_rng_below(&share, 4))
                break;
            t->tag = (int)((k - 1) * st.comms + layout);
            shared_tags = 1;
        }
        t->tag *= 7919; /* not dense */
    }
    t->count = tool_job_count(t->coll, t->type, size, bytes);
    t->uneven = 1;
    j->where = l->name;
    j->place = (int)ordinal;
    j->group = t->tag; /* a tag belongs to one layout; two parts of a ring need no order, one does no harm */
    j->persistent = t->coll != TOOL_SENDRECV && occl_rng_below(&mine, 2);
    if (st.mixed && st.device == TOOL_DEVICE_CUDA) { /* as each rank likes */
        t->memory = (tool_memory_t)(TOOL_MEMORY_DEVICE + occl_rng_below(&mine, TOOL_MEMORIES - TOOL_MEMORY_DEVICE));
        t->shift = (int)occl_rng_below(&mine, 4);
    }
    tool_job_alloc(t);
    j->coll = MPIX_OCCL_COLL_NULL;
    if (j->persistent)
        tool_mpi_check(tool_occl_init(t, &j->coll), "MPIX_Occl_..._init");
}

/* --- verdicts ----------------------------------------------------------------------------------------------------- */

static void verdict(const char *word, long iters, const unsigned long long *stats, const char *more)
{
    printf("%s iterations %ld, collectives %ld on %ld layouts, ranks %d, %s%s%s%s, runs %llu, preemptions %llu, parks %llu, "
           "quits %llu, seed %llu%s\n",
           word, iters, st.colls, st.comms, st.size, st.timed ? "ordered and random" : st.ordered ? "ordered" : "random",
           st.mixed ? ", mixed" : "", st.device_sync ? ", device-sync" : "",
           st.device == TOOL_DEVICE_CUDA ? ", cuda" : "", stats[0], stats[1], stats[2], stats[3],
           (unsigned long long)st.seed, more);
    fflush(stdout);
}

static const char *const stat_names[] = {"runs", "preemptions", "parks", "quits"};

static void own_stats(unsigned long long *stats)
{
    for (int i = 0; i < 4; i++)
        stats[i] = tool_stat(MPI_COMM_NULL, stat_names[i]);
}

static void failed_call(const st_job_t *j, const char *what, int rc)
{
    char text[MPI_MAX_ERROR_STRING];
    unsigned long long stats[4];
    int len = 0;

    MPI_Error_string(rc, text, &len);
    text[len] = 0;
    own_stats(stats);
    fprintf(stderr, "# rank %d, iteration %ld: %s of %s (%s, tag %d) failed: %s\n", st.rank, iteration, what,
            tool_coll_name(j->job.coll), j->where, j->job.tag, text);
    verdict("FAIL", iteration, stats, ", a call failed");
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* On the watchdog's thread, with the process stuck: look, print, end. Rank 0 says the verdict; the others give it time. */
static void stuck(void *state)
{
    unsigned long long stats[4];

    (void)state;
    fprintf(stderr, "# rank %d: iteration %ld did not end within the deadline; pending:\n", st.rank, iteration);
    for (int i = 0; i < njobs; i++)
        if (jobs[i].active)
            fprintf(stderr, "#   rank %d: %s of %d %s (%s, tag %d%s)\n", st.rank, tool_coll_name(jobs[i].job.coll),
                    jobs[i].job.count, tool_type_name(jobs[i].job.type), jobs[i].where, jobs[i].job.tag,
                    jobs[i].persistent ? ", persistent" : "");
    fflush(stderr);
    own_stats(stats);
    if (st.rank == 0)
        verdict("FAIL", iteration, stats, ", hangs");
    for (long k = 0; k < st.comms; k++)
        for (int i = 0; i < layouts[k].n; i++) {
            fprintf(stderr, "# rank %d, %s:\n", st.rank, layouts[k].name);
            fflush(stderr);
            MPIX_Occl_dump(layouts[k].comm[i], 2);
        }
    if (st.rank) {
        sleep(3);
        verdict("FAIL", iteration, stats, ", hangs");
    }
}

/* --- one iteration ------------------------------------------------------------------------------------------------ */

static double longest_sync; /* microseconds */

static void device_sync(occl_rng_t *rng)
{
#if TOOL_HAVE_CUDA
    if (st.device == TOOL_DEVICE_CUDA) {
        double t = tool_cuda_sync((tool_sync_t)occl_rng_below(rng, TOOL_SYNC_FIRST_LAUNCH + 1));

        if (t > longest_sync)
            longest_sync = t;
        return;
    }
#endif
    /* The host device has nothing to synchronise: make the same gap, away from the library. */
    usleep((useconds_t)occl_rng_below(rng, 200));
}

static void start(st_job_t *j)
{
    int rc = j->persistent ? MPIX_Occl_start(j->coll, MPIX_OCCL_NO_REQUEST) : tool_occl_start(&j->job, &j->pending);

    if (rc != MPI_SUCCESS)
        failed_call(j, "start", rc);
    j->active = 1;
}

/* way 0: our wait; 1: MPI's wait where there is a request; 2: poll */
static void finish(st_job_t *j, int way)
{
    int rc = MPI_SUCCESS, done = 0;

    if (way == 2) {
        while (rc == MPI_SUCCESS && !done) {
            if (j->persistent)
                rc = MPIX_Occl_coll_test(j->coll, &done);
            else
                rc = MPIX_Occl_testall(j->pending.n, j->pending.req, &done, MPI_STATUSES_IGNORE);
        }
    } else if (j->persistent)
        rc = MPIX_Occl_coll_wait(j->coll);
    else
        rc = way == 1 ? tool_mpi_wait(&j->pending) : tool_occl_wait(&j->pending);
    if (rc != MPI_SUCCESS)
        failed_call(j, "wait", rc);
    j->active = 0;
}

/* All nonblocking ones at once, whatever order they are in */
static void finish_requests(MPI_Request *all)
{
    int n = 0, rc;

    for (int i = 0; i < njobs; i++)
        for (int k = 0; !jobs[i].persistent && jobs[i].active && k < jobs[i].pending.n; k++)
            all[n++] = jobs[i].pending.req[k];
    rc = MPIX_Occl_waitall(n, all, MPI_STATUSES_IGNORE);
    for (int i = 0; i < njobs; i++)
        if (!jobs[i].persistent && jobs[i].active) {
            if (rc != MPI_SUCCESS)
                failed_call(&jobs[i], "waitall (one of it and others)", rc);
            jobs[i].active = 0;
        }
}

static void random_order(occl_rng_t *rng, int *order)
{
    for (int i = 0; i < njobs; i++)
        order[i] = i;
    occl_rng_shuffle(rng, order, (size_t)njobs);
    if (!shared_tags)
        return;
    for (int p = 0; p < njobs; p++) /* of one tag, in the agreed order */
        for (int q = p + 1; q < njobs; q++) {
            const st_job_t *a = &jobs[order[p]], *b = &jobs[order[q]];
            if (a->group == b->group && a->place > b->place) {
                int t = order[p];
                order[p] = order[q];
                order[q] = t;
            }
        }
}

static double run_once(int ordered, occl_rng_t *rng, int *start_order, int *wait_order, MPI_Request *all)
{
    double t0;

    if (ordered)
        for (int i = 0; i < njobs; i++)
            start_order[i] = wait_order[i] = i;
    else {
        random_order(rng, start_order);
        random_order(rng, wait_order);
    }
    int way = st.timed ? 0 : (int)occl_rng_below(rng, 5);
    if (st.timed)
        MPI_Barrier(st.plain);
    t0 = tool_now_us();
    for (int i = 0; i < njobs; i++) {
        start(&jobs[start_order[i]]);
        if (st.device_sync && occl_rng_below(rng, 2))
            device_sync(rng);
        if (way == 4 && occl_rng_below(rng, 3) == 0) { /* look at an earlier one in between */
            st_job_t *j = &jobs[start_order[occl_rng_below(rng, (uint64_t)i + 1)]];
            int done;
            if (j->persistent && j->active) {
                int rc = MPIX_Occl_coll_test(j->coll, &done);
                if (rc != MPI_SUCCESS)
                    failed_call(j, "test", rc);
            }
        }
    }
    if (way == 3)
        finish_requests(all);
    for (int i = 0; i < njobs; i++)
        if (jobs[wait_order[i]].active)
            finish(&jobs[wait_order[i]], way < 3 ? way : 0);
    return tool_now_us() - t0;
}

/* --- main --------------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    const tool_program_t prog = {
        "occl_stress", "[options]",
        "Starts collectives in every rank's own random order on overlapping communicators, waits in another, checks all\n"
        "data and prints one line, PASS or FAIL. Exit status: 0, or 1 for FAIL, or 77 if this machine or build has no such\n"
        "device. The same seed and number of ranks repeat the same orders.",
        st_opts, NULL, NULL};
    char err[256], more[256] = "";
    int provided, corrupted = 0, *start_order, *wait_order;
    unsigned long long stats[4];
    uint64_t wrong = 0, told = 0;
    double *times[2];
    size_t ntimes[2] = {0, 0};
    MPI_Request *all;
    occl_rng_t rng;
    const char *no;

    tool_parse_t parsed = tool_parse(&prog, argc, argv, err, sizeof err);
    if (parsed == TOOL_DONE)
        return 0;
    MPI_Init_thread(&argc, &argv, levels[st.thread_level], &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &st.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &st.size);
    if (parsed == TOOL_WRONG)
        return tool_usage_error(&prog, err);
    if (st.timed && st.ordered)
        return tool_usage_error(&prog, "--time does both orders; leave out --ordered");
    if (st.bytes > (size_t)1 << 30)
        return tool_usage_error(&prog, "--bytes is at most 1G");
    if ((no = tool_device_open(st.device, MPI_COMM_WORLD, err, sizeof err)) != NULL)
        return tool_device_none(&prog, no);

    /* MPI_Wait on our requests raises this one's handler, whatever communicator they are of */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &st.plain);
    MPI_Comm_set_errhandler(st.plain, MPI_ERRORS_ARE_FATAL);
    layouts = calloc((size_t)st.comms, sizeof *layouts);
    jobs = calloc((size_t)st.colls * MAX_MINE, sizeof *jobs);
    if (!layouts || !jobs)
        tool_fatal("no memory");
    for (long k = 0; k < st.comms; k++)
        layout_make(&layouts[k], (int)(k % LAYOUTS));
    for (long i = 0; i < st.colls; i++)
        for (int part = 0; part < layouts[i % st.comms].n; part++)
            job_make(&jobs[njobs++], &layouts[i % st.comms], part, i, (int)(i % st.comms));
    for (int i = 0; st.verbose && st.rank == 0 && i < njobs; i++)
        fprintf(stderr, "# %s of %d %s %s%s on %s (%d ranks), tag %d, root %d, %s\n", tool_coll_name(jobs[i].job.coll),
                jobs[i].job.count, tool_type_name(jobs[i].job.type),
                tool_coll_flags(jobs[i].job.coll) & TOOL_REDUCES ? tool_op_name(jobs[i].job.op) : "",
                jobs[i].job.in_place ? " in place" : "", jobs[i].where, jobs[i].job.size, jobs[i].job.tag,
                jobs[i].job.root, jobs[i].persistent ? "persistent" : "nonblocking");
    start_order = malloc((size_t)njobs * sizeof *start_order);
    wait_order = malloc((size_t)njobs * sizeof *wait_order);
    all = malloc(2 * (size_t)njobs * sizeof *all);
    for (int i = 0; i < 2; i++)
        times[i] = malloc(((size_t)st.iters + 1) * sizeof(double));
    if (!start_order || !wait_order || !all || !times[0] || !times[1])
        tool_fatal("no memory");

    occl_rng_seed(&rng, st.seed, (uint64_t)st.rank + 1);
    tool_watchdog((double)st.deadline * tool_slack(), stuck, NULL);
    for (iteration = 0; iteration < st.iters; iteration++) {
        int ordered = st.timed ? iteration % 2 == 0 : st.ordered;
        double t;

        tool_watchdog_feed();
        for (int i = 0; i < njobs; i++)
            tool_job_fill(&jobs[i].job, (uint64_t)iteration);
        t = run_once(ordered, &rng, start_order, wait_order, all);
        if (iteration >= 4 || st.iters <= 8) /* the first ones make links */
            times[ordered][ntimes[ordered]++] = t;
        if (st.corrupt && !corrupted && iteration >= st.iters / 2 && st.rank == st.size - 1)
            for (int i = 0, at = (int)occl_rng_below(&rng, (uint64_t)njobs); i < njobs && !corrupted; i++)
                corrupted = tool_job_corrupt(&jobs[(at + i) % njobs].job, occl_rng_next(&rng));
        for (int i = 0; i < njobs; i++) {
            uint64_t bad = tool_job_check(&jobs[i].job, (uint64_t)iteration);

            if (bad && told++ < 4) {
                char text[512];
                tool_job_explain(&jobs[i].job, (uint64_t)iteration, text, sizeof text);
                fprintf(stderr, "# rank %d, iteration %ld, %s: %s\n", st.rank, iteration, jobs[i].where, text);
            }
            wrong += bad;
        }
    }
    tool_watchdog_feed();
    own_stats(stats);
    if (st.corrupt && st.rank == st.size - 1 && !corrupted)
        fprintf(stderr, "# rank %d: nothing was received, so nothing could be corrupted\n", st.rank);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, st.plain);
    MPI_Allreduce(MPI_IN_PLACE, stats, 4, MPI_UNSIGNED_LONG_LONG, MPI_SUM, st.plain);
    if (st.timed) {
        double p50[2];

        for (int i = 0; i < 2; i++)
            p50[i] = tool_quantile(times[i], ntimes[i], 0.5);
        MPI_Allreduce(MPI_IN_PLACE, p50, 2, MPI_DOUBLE, MPI_MAX, st.plain);
        snprintf(more, sizeof more, ", ordered %.1f us, random %.1f us, random/ordered %.3f", p50[1], p50[0],
                 p50[1] > 0 ? p50[0] / p50[1] : 0);
    }
    if (st.device_sync && st.device == TOOL_DEVICE_CUDA) {
        MPI_Allreduce(MPI_IN_PLACE, &longest_sync, 1, MPI_DOUBLE, MPI_MAX, st.plain);
        snprintf(more + strlen(more), sizeof more - strlen(more), ", longest synchronisation %.2f ms", longest_sync * 1e-3);
    }
    if (wrong)
        snprintf(more + strlen(more), sizeof more - strlen(more), ", %llu wrong elements", (unsigned long long)wrong);
    if (st.rank == 0)
        verdict(wrong ? "FAIL" : "PASS", st.iters, stats, more);

    for (int i = 0; i < njobs; i++) {
        if (jobs[i].persistent)
            tool_mpi_check(MPIX_Occl_coll_free(&jobs[i].coll), "MPIX_Occl_coll_free");
        tool_job_free(&jobs[i].job);
    }
    for (long k = 0; k < st.comms; k++)
        for (int i = 0; i < layouts[k].n; i++) {
            MPIX_Occl_comm_detach(layouts[k].comm[i]);
            MPI_Comm_free(&layouts[k].comm[i]);
        }
    MPI_Comm_free(&st.plain);
    MPI_Finalize();
    tool_watchdog(0, NULL, NULL);
    tool_device_close(st.device);
    free(jobs);
    free(layouts);
    free(start_order);
    free(wait_order);
    free(all);
    free(times[0]);
    free(times[1]);
    return wrong ? 1 : 0;
}
