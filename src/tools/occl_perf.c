/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast a collective is, with nccl-tests' columns, and beside it MPI's own in the same run.
 *
 * Each size is measured in rounds of blocks: ours, MPI's nonblocking, MPI's blocking, in turning order, so that
 * whatever else the machine does falls on all alike. MPI's run on the same buffers over a communicator that is not
 * attached. With --compare nccl or nvshmem the two are: enqueued on a stream and waited for, and enqueued back to back. A time is one start to the end of its wait, back to back; a rank's quantile is taken over its own times
 * and the slowest rank's is shown. Data are new for every checked iteration, before and after the timed ones.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"
#if TOOL_HAVE_CUDA
#include "rival.h"
#include "tool_cuda.h"
#endif

enum { OURS, RIVAL, BLOCKING, WAYS }; /* of a library of GPU collectives, BLOCKING is: back to back on a stream */
enum { PERSISTENT, NONBLOCKING, ENQUEUE };
static const char *const mode_names[] = {"persistent", "nonblocking", "enqueue"};

enum { WITH_MPI, WITH_NCCL, WITH_NVSHMEM };

#define ROUNDS 10
#define COLD_US 1000 /* longer than a daemon with nothing to do stays (OCCL_LINGER) */
#define MAX_SIZES 64

static struct {
    const char *coll_name;
    tool_coll_t coll;
    size_t min, max;
    long factor, iters, warmup, root, tags, overlap_ms, pause_us;
    int type, op, mode, device, memory, compare, in_place, rival_only, thread_level, mpi_wait, cold;
    const char *csv_name, *sizes_text;
    size_t sizes[MAX_SIZES];
    int nsizes;

    int rank, size, provided;
    MPI_Comm comm;  /* attached */
    MPI_Comm plain; /* not attached: the rival's, and our own barriers and sums */
    FILE *csv;
    uint64_t wrong;
    void *queue; /* enqueue: the stream, or a host queue */
    const char *rival_name;
#if TOOL_HAVE_CUDA
    const rival_t *lib; /* the other library of GPU collectives */
#endif
} perf = {.min = 8, .max = 1 << 20, .factor = 2, .warmup = -1, .type = TOOL_FLOAT, .op = TOOL_SUM, .memory = -1, .compare = -1};

static const char *const device_names[] = {"host", "cuda"};

static const tool_opt_t perf_opts[] = {
    {"--min", 'b', TOOL_SIZE, &perf.min, "SIZE", "smallest payload (8); sizes may end in K, M or G", 0, 0, NULL},
    {"--max", 'e', TOOL_SIZE, &perf.max, "SIZE", "largest payload (1M)", 0, 0, NULL},
    {"--factor", 'f', TOOL_INT, &perf.factor, "N", "from one size to the next (2)", 2, 1 << 20, NULL},
    {"--sizes", 0, TOOL_TEXT, &perf.sizes_text, "LIST", "these payloads, separated by commas, in place of --min, --max, --factor", 0,
     0, NULL},
    {"--iters", 'n', TOOL_INT, &perf.iters, "N", "timed iterations a size (0: for about 1/4 s)", 0, 100000000, NULL},
    {"--warmup", 'w', TOOL_INT, &perf.warmup, "N", "untimed iterations before (-1: as fits the size)", -1, 100000000, NULL},
    {"--type", 'd', TOOL_CHOICE, &perf.type, "TYPE", NULL, 0, 0, NULL},
    {"--op", 'o', TOOL_CHOICE, &perf.op, "OP", NULL, 0, 0, NULL},
    {"--root", 'r', TOOL_INT, &perf.root, "RANK", "root of bcast, reduce, gather, scatter (0)", 0, 1 << 30, NULL},
    {"--in-place", 0, TOOL_FLAG, &perf.in_place, "", "with MPI_IN_PLACE", 0, 0, NULL},
    {"--mode", 0, TOOL_CHOICE, &perf.mode, "MODE", "persistent (default), nonblocking or enqueue", 0, 0, "persistent|nonblocking|enqueue"},
    {"--mpi-wait", 0, TOOL_FLAG, &perf.mpi_wait, "", "nonblocking: wait by MPI_Wait, not MPIX_Occl_wait", 0, 0, NULL},
    {"--device", 0, TOOL_CHOICE, &perf.device, "DEVICE", "host (default) or cuda", 0, 0, TOOL_DEVICE_CHOICES},
    {"--memory", 0, TOOL_CHOICE, &perf.memory, "KIND", "--device cuda: of the buffers, device (default), pinned, managed, pageable, async or mapped",
     0, 0, TOOL_MEMORY_CHOICES},
    {"--cold", 0, TOOL_FLAG, &perf.cold, "", "pause before each start until the device's daemon has left (--pause 1000)", 0, 0, NULL},
    {"--pause", 0, TOOL_INT, &perf.pause_us, "US", "pause US microseconds before each start; then all ranks start together", 1,
     10000000, NULL},
    {"--compare", 0, TOOL_CHOICE, &perf.compare, "WITH", "measure another one beside it: mpi; with --device cuda nccl or nvshmem", 0, 0,
     "mpi|nccl|nvshmem"},
    {"--csv", 0, TOOL_TEXT, &perf.csv_name, "FILE", "write the table there too", 0, 0, NULL},
    {"--overlap", 0, TOOL_INT, &perf.overlap_ms, "MS", "compute MS ms between start and wait: what is left to wait for", 1,
     10000, NULL},
    {"--tags", 0, TOOL_INT, &perf.tags, "N", "register N tags, start each once, in random order; payload is --min", 1,
     10000000, NULL},
    {"--thread-level", 0, TOOL_CHOICE, &perf.thread_level, "LEVEL", "single (default), funneled, serialized or multiple",
     0, 0, "single|funneled|serialized|multiple"},
    {"--rival-only", 0, TOOL_FLAG, &perf.rival_only, "", NULL, 0, 0, NULL}, /* MPI alone: nothing of ours is touched */
    {0}};

static double max_over_ranks(double v)
{
    double m;

    MPI_Allreduce(&v, &m, 1, MPI_DOUBLE, MPI_MAX, perf.plain);
    return m;
}

static uint64_t sum_over_ranks(uint64_t v)
{
    uint64_t s;

    MPI_Allreduce(&v, &s, 1, MPI_UINT64_T, MPI_SUM, perf.plain);
    return s;
}

/* --- one size ----------------------------------------------------------------------------------------------------- */

typedef struct perf_case {
    tool_job_t job, rival; /* the same buffers, another communicator */
    MPIX_Occl_Coll coll;
    int compared; /* the other library can do it */
} perf_case_t;

static void case_begin(perf_case_t *c, size_t bytes, int tag)
{
    memset(c, 0, sizeof *c);
    c->job.coll = perf.coll;
    c->job.type = (tool_type_t)perf.type;
    c->job.op = (tool_op_t)perf.op;
    c->job.comm = perf.rival_only ? perf.plain : perf.comm;
    c->job.count = tool_job_count(perf.coll, c->job.type, perf.size, bytes);
    c->job.root = (int)perf.root;
    c->job.in_place = perf.in_place;
    c->job.tag = tag;
    c->job.memory = perf.device == TOOL_DEVICE_CUDA ? (tool_memory_t)(perf.memory + TOOL_MEMORY_DEVICE) : TOOL_MEMORY_HOST;
    c->job.salt = (uint64_t)tag;
    tool_job_alloc(&c->job);
    c->rival = c->job;
    c->rival.comm = perf.plain;
    c->coll = MPIX_OCCL_COLL_NULL;
    c->compared = perf.compare >= 0 || perf.rival_only;
#if TOOL_HAVE_CUDA
    if (perf.lib) {
        const char *no = perf.lib->begin(&c->rival);
        if (no && perf.rank == 0)
            printf("# not compared with %s: %s\n", perf.lib->name, no);
        c->compared = !no;
    }
#endif
    if (!perf.rival_only && perf.mode == PERSISTENT)
        tool_mpi_check(tool_occl_init(&c->job, &c->coll), "MPIX_Occl_..._init");
}

static void case_end(perf_case_t *c)
{
    if (c->coll != MPIX_OCCL_COLL_NULL)
        tool_mpi_check(MPIX_Occl_coll_free(&c->coll), "MPIX_Occl_coll_free");
#if TOOL_HAVE_CUDA
    if (perf.lib)
        perf.lib->end();
#endif
    tool_job_free(&c->job);
}

static inline void start(perf_case_t *c, int way, tool_pending_t *p)
{
    int rc;

    if (way == OURS)
        rc = c->coll != MPIX_OCCL_COLL_NULL ? MPIX_Occl_start(c->coll, MPIX_OCCL_NO_REQUEST) : tool_occl_start(&c->job, p);
    else
        rc = tool_mpi_start(&c->rival, p);
    if (rc != MPI_SUCCESS)
        tool_mpi_check(rc, way == OURS ? "start" : "MPI's start");
}

static inline void finish(perf_case_t *c, int way, tool_pending_t *p)
{
    int rc;

    if (way == OURS && c->coll != MPIX_OCCL_COLL_NULL)
        rc = MPIX_Occl_coll_wait(c->coll);
    else if (way == OURS && !perf.mpi_wait)
        rc = tool_occl_wait(p);
    else
        rc = tool_mpi_wait(p);
    if (rc != MPI_SUCCESS)
        tool_mpi_check(rc, way == OURS ? "wait" : "MPI's wait");
}

static void enqueue(perf_case_t *c)
{
    int rc = tool_occl_enqueue(&c->job, perf.device == TOOL_DEVICE_CUDA ? MPIX_OCCL_QUEUE_CUDA_STREAM : MPIX_OCCL_QUEUE_HOST, perf.queue);
    if (rc != MPI_SUCCESS)
        tool_mpi_check(rc, "enqueue");
}

static void queue_wait(void)
{
#if TOOL_HAVE_CUDA
    if (perf.device == TOOL_DEVICE_CUDA) {
        tool_cuda_stream_wait();
        return;
    }
#endif
    tool_mpi_check(MPIX_Occl_queue_synchronize(perf.queue), "MPIX_Occl_queue_synchronize");
}

static inline void once(perf_case_t *c, int way)
{
    tool_pending_t p;

    if (way == OURS && perf.mode == ENQUEUE) {
        enqueue(c);
        queue_wait();
        return;
    }

#if TOOL_HAVE_CUDA
    if (perf.lib && way != OURS) {
        perf.lib->enqueue(&c->rival);
        tool_cuda_stream_wait();
        return;
    }
#endif
    if (way == BLOCKING) {
        tool_mpi_check(tool_mpi_blocking(&c->rival), "MPI's blocking collective");
        return;
    }
    start(c, way, &p);
    finish(c, way, &p);
}

static void checked(perf_case_t *c, int way, uint64_t step)
{
    uint64_t wrong;

    tool_job_fill(&c->job, step);
    once(c, way);
    wrong = tool_job_check(&c->job, step);
    if (wrong && !perf.wrong) {
        char text[512];
        tool_job_explain(&c->job, step, text, sizeof text);
        fprintf(stderr, "# rank %d: %s\n", perf.rank, text);
    }
    perf.wrong += wrong;
}

/* Away until the daemon has left; then all ranks begin at one time (they are on one node, so they have one clock). */
static void pause_together(void)
{
    double at;

    usleep((useconds_t)perf.pause_us);
    at = tool_now_us() + 100;
    MPI_Bcast(&at, 1, MPI_DOUBLE, 0, perf.plain);
    while (tool_now_us() < at)
        ;
}

/* Times from[] .. to[] - 1 of one way */
static void timed(perf_case_t *c, int way, double *t, long from, long to)
{
    double before = tool_now_us(), now;

    if (way == OURS && perf.mode == ENQUEUE && !perf.pause_us) { /* back to back in the queue: each its share */
        for (long i = from; i < to; i++)
            enqueue(c);
        queue_wait();
        now = tool_now_us();
        for (long i = from; i < to; i++)
            t[i] = (now - before) / (double)(to - from);
        return;
    }
#if TOOL_HAVE_CUDA
    if (perf.lib && way == BLOCKING) { /* back to back on the stream: each its share */
        for (long i = from; i < to; i++)
            perf.lib->enqueue(&c->rival);
        tool_cuda_stream_wait();
        now = tool_now_us();
        for (long i = from; i < to; i++)
            t[i] = (now - before) / (double)(to - from);
        return;
    }
#endif
    for (long i = from; i < to; i++) {
        if (perf.pause_us) {
            pause_together();
            before = tool_now_us();
        }
        once(c, way);
        now = tool_now_us();
        t[i] = now - before;
        before = now;
    }
}

/* How many iterations take about `us`, agreed; also warms up. */
static long fitting(perf_case_t *c, const int *ways, int nways, double us)
{
    double slowest = 0;
    long warm = perf.warmup;

    for (int k = 0; k < nways; k++) {
        double t0 = tool_now_us(), t;
        long n = warm >= 0 ? warm : 3;

        for (long i = 0; i < n; i++)
            once(c, ways[k]);
        t = tool_now_us() - t0;
        if (warm < 0) { /* 20 ms more, at most 1000 */
            double each = max_over_ranks(t / (double)n);
            n = (long)(20e3 / (each + 0.1));
            n = n < 2 ? 2 : n > 1000 ? 1000 : n;
            MPI_Barrier(perf.plain);
            t0 = tool_now_us();
            for (long i = 0; i < n; i++)
                once(c, ways[k]);
            t = tool_now_us() - t0;
        }
        t = max_over_ranks(n ? t / (double)n : 100);
        if (t > slowest)
            slowest = t;
    }
    long n = perf.iters ? perf.iters : (long)(us / (slowest + (double)perf.pause_us + 0.01));
    if (!perf.iters)
        n = n < 2 * ROUNDS ? 2 * ROUNDS : n > 20000 ? 20000 : n;
    return n;
}

static void measure(size_t bytes)
{
    static int headed;
    const tool_coll_t coll = perf.coll;
    perf_case_t c;
    int ways[WAYS], nways = 0, on[WAYS] = {0};
    double *t[WAYS] = {NULL}, p50[WAYS] = {0}, p99[WAYS] = {0};
    long done[WAYS] = {0};
    unsigned long long launches = 0;
    int check = 1;

    case_begin(&c, bytes, 0);
    bytes = tool_job_bytes(&c.job);
    if (!perf.rival_only)
        ways[nways++] = OURS;
    if (c.compared) {
        ways[nways++] = RIVAL;
        ways[nways++] = BLOCKING;
    }
    if (!nways) {
        case_end(&c);
        return;
    }
    /* NVSHMEM's alone work on buffers of their own */
    check = !(perf.rival_only && perf.compare == WITH_NVSHMEM);
    perf.wrong = 0;
    for (uint64_t step = 0; check && step < (bytes > 32 << 20 ? 1 : 2); step++)
        checked(&c, ways[0], step);

    long iters = fitting(&c, ways, nways, 250e3);
    for (int k = 0; k < nways; k++) {
        on[ways[k]] = 1;
        t[ways[k]] = malloc((size_t)iters * sizeof(double));
        if (!t[ways[k]])
            tool_fatal("no memory for %ld times", iters);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < nways; k++) {
            int way = ways[(k + round) % nways];
            long end = iters * (round + 1) / ROUNDS;
            unsigned long long before;

            MPI_Barrier(perf.plain);
            /* untimed: caches and the ranks' paces after another one's block */
            for (long i = 0; i < 2 + (bytes <= 65536 ? 8 : 0); i++)
                once(&c, way);
            before = way == OURS ? tool_stat(perf.comm, "launches") : 0;
            timed(&c, way, t[way], done[way], end);
            done[way] = end;
            launches += way == OURS ? tool_stat(perf.comm, "launches") - before : 0;
        }
    }
    for (int k = 0; k < nways; k++) {
        int way = ways[k];
        p50[way] = max_over_ranks(tool_quantile(t[way], (size_t)iters, 0.5));
        p99[way] = max_over_ranks(tool_quantile(t[way], (size_t)iters, 0.99));
        free(t[way]);
    }
    if (check)
        checked(&c, ways[0], 2);
    uint64_t wrong = sum_over_ranks(perf.wrong);
    perf.wrong = wrong;
    case_end(&c);
    if (perf.rank)
        return;

    int main_way = perf.rival_only ? RIVAL : OURS;
    double algbw = p50[main_way] > 0 ? (double)bytes / p50[main_way] * 1e-3 : 0, busbw = algbw * tool_busbw_factor(coll, perf.size);
    int flags = tool_coll_flags(coll);
    const char *type = coll == TOOL_BARRIER ? "none" : tool_type_name((tool_type_t)perf.type);
    const char *op = flags & TOOL_REDUCES ? tool_op_name((tool_op_t)perf.op) : "none";

    if (!headed) {
        headed = 1;
        printf("#%11s %11s %10s %6s %5s %10s %10s %8s %8s %7s", "bytes", "count", "type", "op", "root", "us p50", "us p99",
               "algbw", "busbw", "#wrong");
        if (on[RIVAL] && on[OURS])
            printf(" | %s us p50, ours/it | %s us p50, ours/it", perf.rival_name, perf.compare == WITH_MPI ? "blocking" : "back to back");
        else if (on[BLOCKING])
            printf(" | %s us p50", perf.compare <= WITH_MPI ? "blocking" : "back to back");
        if (perf.pause_us)
            printf(" | launches/start");
        printf("\n#%11s %11s %10s %6s %5s %10s %10s %8s %8s\n", "(B)", "(elements)", "", "", "", "", "", "(GB/s)", "(GB/s)");
    }
    printf("%12zu %11d %10s %6s ", bytes, c.job.count, type, op);
    if (flags & TOOL_ROOTED)
        printf("%5ld", perf.root);
    else
        printf("%5s", "-");
    printf(" %10.2f %10.2f %8.3f %8.3f %7llu", p50[main_way], p99[main_way], algbw, busbw, (unsigned long long)wrong);
    if (on[RIVAL] && on[OURS])
        printf(" | %10.2f %6.2f | %10.2f %6.2f", p50[RIVAL], p50[OURS] / p50[RIVAL], p50[BLOCKING], p50[OURS] / p50[BLOCKING]);
    else if (on[BLOCKING])
        printf(" | %10.2f", p50[BLOCKING]);
    if (perf.pause_us)
        printf(" | %.2f", (double)launches / (double)iters);
    printf("\n");
    fflush(stdout);
    if (perf.csv) {
        if (perf.rival_only)
            fprintf(perf.csv, "%s,rival-only,%s,%d,%zu,%s,%s,,,,,%llu,%s,%.3f,", tool_coll_name(coll), device_names[perf.device],
                    perf.size, bytes, type, op, (unsigned long long)wrong, perf.rival_name, p50[RIVAL]);
        else
            fprintf(perf.csv, "%s,%s,%s,%d,%zu,%s,%s,%.3f,%.3f,%.4f,%.4f,%llu,%s,", tool_coll_name(coll),
                    mode_names[perf.mode], device_names[perf.device], perf.size, bytes, type, op,
                    p50[OURS], p99[OURS], algbw, busbw, (unsigned long long)wrong, on[RIVAL] ? perf.rival_name : "");
        if (!perf.rival_only) {
            if (on[RIVAL])
                fprintf(perf.csv, "%.3f,%.4f", p50[RIVAL], p50[OURS] / p50[RIVAL]);
            else
                fprintf(perf.csv, ",");
        }
        if (on[BLOCKING])
            fprintf(perf.csv, ",%.3f", p50[BLOCKING]);
        else
            fprintf(perf.csv, ",");
        fprintf(perf.csv, ",%s,%ld,%.3f\n", tool_memory_name(c.job.memory), perf.pause_us, (double)launches / (double)iters);
        fflush(perf.csv);
    }
}

/* --- progress while the application computes ---------------------------------------------------------------------- */

/* Arithmetic that the compiler cannot leave out and no memory is needed for */
static double compute(long units)
{
    volatile double sink;
    double x = 1.0;

    for (long u = 0; u < units; u++)
        for (int i = 0; i < 100; i++)
            x = x * 0.999999 + 0.5;
    sink = x;
    return sink;
}

static void overlap(size_t bytes)
{
    static int headed;
    static long units;
    long iters = perf.iters ? perf.iters : 20;
    perf_case_t c;
    double own[WAYS] = {0}, left[WAYS] = {0}, stretch[WAYS] = {0};
    int nways = perf.compare >= 0 ? 2 : 1;
    double *wait = malloc((size_t)iters * sizeof *wait), *busy = malloc((size_t)iters * sizeof *busy);

    if (!wait || !busy)
        tool_fatal("no memory for %ld times", iters);
    if (!units) { /* the work of MS ms, found while every rank computes */
        double t0, t;

        MPI_Barrier(perf.plain);
        compute(10000);
        MPI_Barrier(perf.plain);
        t0 = tool_now_us();
        compute(20000);
        t = tool_now_us() - t0;
        units = (long)(20000 * (double)perf.overlap_ms * 1e3 / t) + 1;
    }
    for (long i = 0; i < iters; i++) {
        MPI_Barrier(perf.plain);
        double t0 = tool_now_us();
        compute(units);
        busy[i] = tool_now_us() - t0;
    }
    double alone = tool_quantile(busy, (size_t)iters, 0.5);

    case_begin(&c, bytes, 0);
    bytes = tool_job_bytes(&c.job);
    perf.wrong = 0;
    checked(&c, OURS, 0);
    for (int way = 0; way < nways; way++) {
        tool_pending_t p;

        for (long i = 0; i < 3; i++)
            once(&c, way);
        for (long i = 0; i < iters; i++) {
            MPI_Barrier(perf.plain);
            double t0 = tool_now_us();
            once(&c, way);
            wait[i] = tool_now_us() - t0;
        }
        own[way] = max_over_ranks(tool_quantile(wait, (size_t)iters, 0.5));
        for (long i = 0; i < iters; i++) {
            double t0, t1, t2;

            MPI_Barrier(perf.plain);
            start(&c, way, &p);
            t0 = tool_now_us();
            compute(units);
            t1 = tool_now_us();
            finish(&c, way, &p);
            t2 = tool_now_us();
            busy[i] = t1 - t0;
            wait[i] = t2 - t1;
        }
        left[way] = max_over_ranks(tool_quantile(wait, (size_t)iters, 0.5));
        stretch[way] = max_over_ranks(tool_quantile(busy, (size_t)iters, 0.5) / alone);
    }
    checked(&c, OURS, 1);
    perf.wrong = sum_over_ranks(perf.wrong);
    case_end(&c);
    free(wait);
    free(busy);
    if (perf.rank)
        return;
    if (!headed) {
        headed = 1;
        printf("# started before %ld ms of computing; own: start to end of wait without it; left: what wait still took; "
               "stretch: how much longer the computing took\n",
               perf.overlap_ms);
        printf("#%11s %10s %10s %8s %8s %7s", "bytes", "own us", "left us", "left/own", "stretch", "#wrong");
        if (nways > 1)
            printf(" | %s: own us, left us, left/own, stretch", tool_mpi_name(perf.coll));
        printf("\n");
        if (perf.csv)
            fprintf(perf.csv, "coll,mode,device,ranks,bytes,type,op,compute_ms,own_us,left_us,left_ratio,stretch,wrong,rival,"
                              "rival_own_us,rival_left_us,rival_left_ratio,rival_stretch\n");
    }
    printf("%12zu %10.1f %10.1f %7.1f%% %7.1f%% %7llu", bytes, own[OURS], left[OURS], 100 * left[OURS] / own[OURS],
           100 * (stretch[OURS] - 1), (unsigned long long)perf.wrong);
    if (nways > 1)
        printf(" | %10.1f %10.1f %7.1f%% %7.1f%%", own[RIVAL], left[RIVAL], 100 * left[RIVAL] / own[RIVAL],
               100 * (stretch[RIVAL] - 1));
    printf("\n");
    fflush(stdout);
    if (perf.csv) {
        fprintf(perf.csv, "%s,%s,%s,%d,%zu,%s,%s,%ld,%.2f,%.2f,%.4f,%.4f,%llu,", tool_coll_name(perf.coll),
                mode_names[perf.mode], device_names[perf.device], perf.size, bytes, tool_type_name((tool_type_t)perf.type),
                tool_op_name((tool_op_t)perf.op), perf.overlap_ms, own[OURS], left[OURS], left[OURS] / own[OURS],
                stretch[OURS], (unsigned long long)perf.wrong);
        if (nways > 1)
            fprintf(perf.csv, "%s,%.2f,%.2f,%.4f,%.4f\n", tool_mpi_name(perf.coll), own[RIVAL], left[RIVAL],
                    left[RIVAL] / own[RIVAL], stretch[RIVAL]);
        else
            fprintf(perf.csv, ",,,,\n");
    }
}

/* --- many tags ---------------------------------------------------------------------------------------------------- */

static void many_tags(size_t bytes)
{
    size_t n = (size_t)perf.tags;
    perf_case_t *cases = calloc(n, sizeof *cases);
    int *start_order = malloc(n * sizeof *start_order), *wait_order = malloc(n * sizeof *wait_order);
    tool_pending_t *p = calloc(n, sizeof *p);
    occl_rng_t rng;
    double t0, registered, ran[2];

    if (!cases || !start_order || !wait_order || !p)
        tool_fatal("no memory for %zu tags", n);
    MPI_Barrier(perf.plain);
    t0 = tool_now_us();
    for (size_t i = 0; i < n; i++)
        case_begin(&cases[i], bytes, (int)i);
    registered = max_over_ranks(tool_now_us() - t0);
    bytes = tool_job_bytes(&cases[0].job);
    perf.wrong = 0;
    /* twice: the first start of a tag makes its links, the second finds them */
    for (uint64_t step = 0; step < 2; step++) {
        occl_rng_seed(&rng, 1 + step, (uint64_t)perf.rank);
        for (size_t i = 0; i < n; i++) {
            tool_job_fill(&cases[i].job, step);
            start_order[i] = wait_order[i] = (int)i;
        }
        occl_rng_shuffle(&rng, start_order, n);
        occl_rng_shuffle(&rng, wait_order, n);
        MPI_Barrier(perf.plain);
        t0 = tool_now_us();
        for (size_t i = 0; i < n; i++)
            start(&cases[start_order[i]], OURS, &p[start_order[i]]);
        for (size_t i = 0; i < n; i++)
            finish(&cases[wait_order[i]], OURS, &p[wait_order[i]]);
        ran[step] = max_over_ranks(tool_now_us() - t0);
        for (size_t i = 0; i < n; i++)
            perf.wrong += tool_job_check(&cases[i].job, step);
    }
    double all = max_over_ranks((double)tool_stat(perf.comm, "tag_bytes"));
    double largest = max_over_ranks((double)tool_stat(perf.comm, "tag_bytes_max"));
    perf.wrong = sum_over_ranks(perf.wrong);
    for (size_t i = 0; i < n; i++)
        case_end(&cases[i]);
    free(cases);
    free(start_order);
    free(wait_order);
    free(p);
    if (perf.rank)
        return;
    printf("# %zu tags, each with a payload of %zu bytes, started once each in every rank's own random order\n", n, bytes);
    printf("#%9s %12s %18s %18s %14s %12s %12s %7s\n", "tags", "bytes", "register (us/tag)", "1st start (us/tag)",
           "2nd (us/tag)", "memory/tag", "largest tag", "#wrong");
    printf("%10zu %12zu %18.3f %18.3f %14.3f %12.0f %12.0f %7llu\n", n, bytes, registered / (double)n, ran[0] / (double)n,
           ran[1] / (double)n, all / (double)n, largest, (unsigned long long)perf.wrong);
    if (perf.csv)
        fprintf(perf.csv,
                "coll,device,ranks,tags,bytes,us_register,us_first,us_second,tag_bytes,tag_bytes_max,wrong\n"
                "%s,%s,%d,%zu,%zu,%.4f,%.4f,%.4f,%.1f,%.0f,%llu\n",
                tool_coll_name(perf.coll), device_names[perf.device], perf.size, n, bytes, registered / (double)n, ran[0] / (double)n, ran[1] / (double)n,
                all / (double)n, largest, (unsigned long long)perf.wrong);
}

/* --- GPUs and other libraries of theirs --------------------------------------------------------------------------- */

static void about_device(void)
{
#if TOOL_HAVE_CUDA
    char text[256];

    if (perf.device == TOOL_DEVICE_CUDA) {
        tool_cuda_describe(text, sizeof text);
        printf("# GPU: %s\n", text);
    }
    if (perf.lib) {
        perf.lib->version(text, sizeof text);
        printf("# beside: %s\n", text);
    }
#endif
}

/* 0; or -1 on all ranks, and on those that know why it is in err */
static int rival_open(char *err, size_t errlen)
{
    int failed = 1;

    snprintf(err, errlen, "built without CUDA");
#if TOOL_HAVE_CUDA
    const rival_t *lib = perf.compare == WITH_NCCL ? &rival_nccl : &rival_nvshmem;

    snprintf(err, errlen, "another rank failed");
    failed = lib->open(perf.plain, err, errlen) != NULL;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, perf.plain);
    if (!failed)
        perf.lib = lib;
#endif
    return failed ? -1 : 0;
}

static int rival_none(const tool_program_t *prog, const char *why)
{
    if (perf.rank == 0)
        fprintf(stderr, "%s: --compare %s: %s\n", prog->name, perf.rival_name, why);
    MPI_Finalize();
    return TOOL_SKIP;
}

static void rival_close(void)
{
#if TOOL_HAVE_CUDA
    if (perf.lib)
        perf.lib->close();
#endif
}

/* --- main --------------------------------------------------------------------------------------------------------- */

/* What only several options together, or the number of ranks, can tell */
static const char *refuse(char *err, size_t errlen)
{
    int coll = tool_choice(tool_coll_choices(), perf.coll_name);
    if (coll < 0) {
        snprintf(err, errlen, "no collective \"%s\"; one of %s", perf.coll_name, tool_coll_choices());
        return err;
    }
    perf.coll = (tool_coll_t)coll;
    if (perf.sizes_text) {
        char item[32];
        perf.min = SIZE_MAX;
        perf.max = 0;
        for (const char *s = perf.sizes_text;; s++) {
            size_t n = strcspn(s, ","), bytes;
            snprintf(item, sizeof item, "%.*s", n < sizeof item ? (int)n : (int)sizeof item - 1, s);
            if (perf.nsizes == MAX_SIZES || tool_parse_size(item, &bytes)) {
                snprintf(err, errlen, "--sizes takes at most %d sizes such as 8,64K,16M, not \"%s\"", MAX_SIZES, perf.sizes_text);
                return err;
            }
            perf.sizes[perf.nsizes++] = bytes;
            if (bytes < perf.min)
                perf.min = bytes;
            if (bytes > perf.max)
                perf.max = bytes;
            s += n;
            if (!*s)
                break;
        }
    }
    if (perf.device == TOOL_DEVICE_HOST && (perf.memory >= 0 || perf.compare > WITH_MPI))
        return "--memory, and --compare with nccl or nvshmem, need --device cuda";
    if (perf.memory < 0)
        perf.memory = 0;
    if (perf.device == TOOL_DEVICE_CUDA && (perf.compare == WITH_MPI || (perf.rival_only && perf.compare < 0)) &&
        perf.memory != TOOL_MEMORY_PINNED - TOOL_MEMORY_DEVICE && perf.memory != TOOL_MEMORY_PAGEABLE - TOOL_MEMORY_DEVICE)
        return "MPI may not know device memory: compare with it by --memory pinned or pageable";
    if (perf.cold && !perf.pause_us)
        perf.pause_us = COLD_US;
    if (perf.pause_us && (perf.tags || perf.overlap_ms))
        return "--cold and --pause are for plain times";
    if ((perf.overlap_ms || perf.tags) && perf.compare > WITH_MPI)
        return "--overlap and --tags compare with mpi only";
    perf.rival_name = perf.compare <= WITH_MPI ? tool_mpi_name(perf.coll) : perf.compare == WITH_NCCL ? "nccl" : "nvshmem";
    if (perf.min > perf.max)
        perf.max = perf.min;
    if (perf.tags)
        perf.max = perf.min;
    if (perf.max >= (size_t)INT32_MAX * tool_type_size((tool_type_t)perf.type))
        return "--max is more than an int counts";
    if (tool_coll_flags(perf.coll) & TOOL_REDUCES && !tool_op_allowed((tool_op_t)perf.op, (tool_type_t)perf.type)) {
        snprintf(err, errlen, "MPI has no %s for %s", tool_op_name((tool_op_t)perf.op), tool_type_name((tool_type_t)perf.type));
        return err;
    }
    if (perf.root >= perf.size) {
        snprintf(err, errlen, "--root %ld, but there are %d ranks", perf.root, perf.size);
        return err;
    }
    if (perf.rival_only && (perf.tags || perf.overlap_ms))
        return "--rival-only measures plain times only";
    if (perf.tags && perf.overlap_ms)
        return "either --tags or --overlap";
    if (perf.mpi_wait && perf.mode != NONBLOCKING)
        return "--mpi-wait needs --mode nonblocking";
    if (perf.mode == ENQUEUE && (perf.tags || perf.overlap_ms))
        return "--mode enqueue measures plain times only";
    if (perf.mode == ENQUEUE && perf.coll == TOOL_SENDRECV)
        return "--mode enqueue is not for sendrecv";
    if (perf.coll == TOOL_SENDRECV)
        perf.mode = NONBLOCKING; /* it has no other form */
    return NULL;
}

int main(int argc, char **argv)
{
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    static const char *const level_names[] = {"single", "funneled", "serialized", "multiple"};
    char err[512], about[1024], version[MPI_MAX_LIBRARY_VERSION_STRING];
    tool_opt_t opts[sizeof perf_opts / sizeof *perf_opts];
    int len;
    uint64_t wrong = 0;
    const char *no;

    memcpy(opts, perf_opts, sizeof opts);
    for (tool_opt_t *o = opts; o->name; o++) {
        if (o->letter == 'd') {
            o->choices = tool_type_choices();
            o->help = "type of the elements (float)";
        } else if (o->letter == 'o') {
            o->choices = tool_op_choices();
            o->help = "of the collectives that reduce (sum)";
        }
    }
    snprintf(about, sizeof about,
             "Measures one collective on all ranks and checks its data.\n"
             "COLL: %s\nTYPE: %s\nOP:   %s\n"
             "Exit status: 0, or 1 if data were wrong, or 77 if this machine or build has no such device.",
             tool_coll_choices(), tool_type_choices(), tool_op_choices());
    tool_program_t prog = {"occl_perf", "COLL [options]", about, opts, "collective", &perf.coll_name};

    tool_parse_t parsed = tool_parse(&prog, argc, argv, err, sizeof err);
    if (parsed == TOOL_DONE)
        return 0;
    MPI_Init_thread(&argc, &argv, perf.rival_only ? MPI_THREAD_SINGLE : levels[perf.thread_level], &perf.provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &perf.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &perf.size);
    if (parsed == TOOL_WRONG)
        return tool_usage_error(&prog, err);
    if ((no = refuse(err, sizeof err)) != NULL)
        return tool_usage_error(&prog, no);

    if ((no = tool_device_open(perf.device, MPI_COMM_WORLD, err, sizeof err)) != NULL)
        return tool_device_none(&prog, no);
    MPI_Comm_dup(MPI_COMM_WORLD, &perf.plain);
    if (perf.compare > WITH_MPI && rival_open(err, sizeof err))
        return rival_none(&prog, err);
    if (!perf.rival_only) {
        MPI_Comm_dup(MPI_COMM_WORLD, &perf.comm);
        MPI_Comm_set_errhandler(perf.comm, MPI_ERRORS_RETURN); /* so that a failure is told in our words */
        tool_mpi_check(tool_attach(perf.comm, perf.device), "MPIX_Occl_comm_attach");
    }
    int csv_ok = 1;
    if (perf.rank == 0 && perf.csv_name) {
        perf.csv = fopen(perf.csv_name, "w");
        csv_ok = perf.csv != NULL;
        if (csv_ok && !perf.overlap_ms && !perf.tags)
            fprintf(perf.csv, "coll,mode,device,ranks,bytes,type,op,us_p50,us_p99,algbw,busbw,wrong,rival,rival_us_p50,ratio,"
                              "second_us_p50,memory,pause_us,launches\n");
    }
    if (!csv_ok)
        tool_fatal("cannot write %s", perf.csv_name);
    if (perf.mode == ENQUEUE && !perf.rival_only) {
#if TOOL_HAVE_CUDA
        if (perf.device == TOOL_DEVICE_CUDA)
            perf.queue = tool_cuda_stream();
#endif
        if (perf.device != TOOL_DEVICE_CUDA)
            tool_mpi_check(MPIX_Occl_queue_create(&perf.queue), "MPIX_Occl_queue_create");
    }
    if (perf.rank == 0) {
        MPI_Get_library_version(version, &len);
        version[strcspn(version, ",\n\r")] = 0;
        for (char *v = version; *v; v++)
            if (*v == '\t')
                *v = ' ';
        printf("# occl_perf %s: %d ranks, %s, %s device, %s memory, thread level %s\n# MPI: %s\n", tool_coll_name(perf.coll),
               perf.size,
               perf.rival_only           ? "the rival alone"
               : perf.mode == PERSISTENT ? "persistent"
               : perf.mode == ENQUEUE    ? "enqueued back to back"
               : perf.mpi_wait           ? "nonblocking with MPI_Wait"
                                         : "nonblocking",
               device_names[perf.device],
               tool_memory_name(perf.device == TOOL_DEVICE_HOST ? TOOL_MEMORY_HOST : (tool_memory_t)(perf.memory + TOOL_MEMORY_DEVICE)),
               level_names[perf.rival_only ? 0 : perf.thread_level], version);
        about_device();
    }
    if (perf.tags) {
        many_tags(perf.min);
        wrong += perf.wrong;
    } else if (perf.nsizes) {
        for (int i = 0; i < perf.nsizes; i++) {
            perf.overlap_ms ? overlap(perf.sizes[i]) : measure(perf.sizes[i]);
            wrong += perf.wrong;
        }
    } else {
        size_t last = SIZE_MAX;
        for (size_t bytes = perf.min;; bytes *= (size_t)perf.factor) {
            size_t unit = tool_type_size((tool_type_t)perf.type);
            int count = tool_job_count(perf.coll, (tool_type_t)perf.type, perf.size, bytes);
            size_t real = (size_t)count * unit;

            /* sizes that come to the same count (barrier, fewer bytes than an element a rank) once only, and 0 only if asked */
            if (real != last && (real || !bytes || perf.coll == TOOL_BARRIER)) {
                perf.overlap_ms ? overlap(bytes) : measure(bytes);
                wrong += perf.wrong;
            }
            last = real;
            if (perf.coll == TOOL_BARRIER || bytes > perf.max / (size_t)perf.factor)
                break;
            if (!bytes)
                bytes = 1;
        }
    }
    if (perf.rank == 0 && !perf.rival_only)
        printf("# runs %llu, preemptions %llu, parks %llu, quits %llu, launches %llu, channels %llu (rank 0)\n",
               tool_stat(perf.comm, "runs"), tool_stat(perf.comm, "preemptions"), tool_stat(perf.comm, "parks"),
               tool_stat(perf.comm, "quits"), tool_stat(perf.comm, "launches"), tool_stat(perf.comm, "channels"));
    if (perf.rank == 0)
        printf(wrong ? "# FAIL: %llu wrong elements\n" : "# data correct\n", (unsigned long long)wrong);
    fflush(stdout);
    if (perf.csv)
        fclose(perf.csv);
    if (!perf.rival_only) {
        MPIX_Occl_comm_detach(perf.comm);
        MPI_Comm_free(&perf.comm);
    }
    rival_close();
    MPI_Comm_free(&perf.plain);
    MPI_Finalize();
    tool_device_close(perf.device);
    return wrong ? 1 : 0;
}
