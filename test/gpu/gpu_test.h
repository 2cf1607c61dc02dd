/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of the public API on GPUs: batches of collectives on the tools' jobs (src/tools/tool.h), whose data are exact in
 * every type, so that a check compares bits.
 */
#ifndef OCCL_TEST_GPU_GPU_TEST_H
#define OCCL_TEST_GPU_GPU_TEST_H

#include "../mpi/occl_test.h"
#include "../../src/tools/tool.h"
#include "../../src/tools/tool_cuda.h"

#include <dirent.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static MPI_Comm comm; /* attached to the CUDA device */
static int me, np, quick;

typedef struct work {
    tool_job_t job;
    MPIX_Occl_Coll coll; /* MPIX_OCCL_COLL_NULL: nonblocking */
    tool_pending_t pending;
} work_t;

/* A job without its buffers: the caller may change more of it before work_make. */
static inline work_t work_of(tool_coll_t coll, tool_type_t type, tool_op_t op, int count, int tag)
{
    work_t w;

    memset(&w, 0, sizeof w);
    w.job.coll = coll;
    w.job.type = type;
    w.job.op = op;
    w.job.count = count;
    w.job.tag = tag;
    w.job.salt = (uint64_t)tag + 1;
    w.job.comm = comm;
    w.job.root = tag % np;
    w.job.memory = TOOL_MEMORY_DEVICE;
    return w;
}

/* 0, or 1 with a diagnosis: no operation was made */
static inline int work_make(work_t *w, int persistent)
{
    int rc = MPI_SUCCESS;

    tool_job_alloc(&w->job);
    w->coll = MPIX_OCCL_COLL_NULL;
    if (persistent && w->job.coll != TOOL_SENDRECV)
        rc = tool_occl_init(&w->job, &w->coll);
    if (rc != MPI_SUCCESS)
        tap_rank_diag("%s_init of %d %s: %s", tool_coll_name(w->job.coll), w->job.count, tool_type_name(w->job.type),
                      whole_text(w->job.comm));
    return rc != MPI_SUCCESS;
}

static inline int work_start(work_t *w)
{
    return w->coll != MPIX_OCCL_COLL_NULL ? MPIX_Occl_start(w->coll, MPIX_OCCL_NO_REQUEST) : tool_occl_start(&w->job, &w->pending);
}

static inline int work_wait(work_t *w)
{
    return w->coll != MPIX_OCCL_COLL_NULL ? MPIX_Occl_coll_wait(w->coll) : tool_occl_wait(&w->pending);
}

static inline void work_free(work_t *w)
{
    if (w->coll != MPIX_OCCL_COLL_NULL)
        MPIX_Occl_coll_free(&w->coll);
    tool_job_free(&w->job);
}

static inline unsigned work_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static inline void work_shuffle(int *order, int n, unsigned *state)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n; i > 1; i--) {
        int k = (int)(work_random(state) % (unsigned)i), t = order[i - 1];
        order[i - 1] = order[k];
        order[k] = t;
    }
}

/* Wrong elements and failed calls of one step of all of them, started and waited for in this rank's own order.
 * sync: now and then a call that waits for the device in between; *longest_p is raised to the longest (us). */
static inline uint64_t work_batch(work_t *w, int n, uint64_t step, unsigned *state, int sync, double *longest_p)
{
    static int told;
    int *order = malloc((size_t)n * sizeof *order), *bad = calloc((size_t)n, sizeof *bad);
    uint64_t wrong = 0;

    for (int i = 0; i < n; i++)
        tool_job_fill(&w[i].job, step);
    work_shuffle(order, n, state);
    for (int k = 0; k < n; k++) {
        int i = order[k], rc = work_start(&w[i]);

        if (rc != MPI_SUCCESS) {
            bad[i] = 1;
            wrong++;
            if (told++ < 8)
                tap_rank_diag("start of %s, tag %d: %s", tool_coll_name(w[i].job.coll), w[i].job.tag, whole_text(w[i].job.comm));
        }
        if (sync && work_random(state) % 3 == 0) {
            double t = tool_cuda_sync((tool_sync_t)(work_random(state) % TOOL_SYNCS));
            if (longest_p && t > *longest_p)
                *longest_p = t;
        }
    }
    work_shuffle(order, n, state);
    for (int k = 0; k < n; k++) {
        int i = order[k], rc = bad[i] ? MPI_SUCCESS : work_wait(&w[i]);

        if (rc != MPI_SUCCESS) {
            bad[i] = 1;
            wrong++;
            if (told++ < 8)
                tap_rank_diag("wait for %s, tag %d: %s", tool_coll_name(w[i].job.coll), w[i].job.tag, whole_text(w[i].job.comm));
        }
    }
    for (int i = 0; i < n; i++) {
        uint64_t e = bad[i] ? 0 : tool_job_check(&w[i].job, step);

        if (e && told++ < 8) {
            char text[512];
            tool_job_explain(&w[i].job, step, text, sizeof text);
            tap_rank_diag("%s memory, shift %d, %s: %s", tool_memory_name(w[i].job.memory), w[i].job.shift,
                          w[i].coll != MPIX_OCCL_COLL_NULL ? "persistent" : "nonblocking", text);
        }
        wrong += e;
    }
    free(order);
    free(bad);
    return wrong;
}

/*
 * OCCL_TEST_STACKS=SECONDS: where all threads are after so long, on standard error, and what the library has to say. For a test that
 * hangs on a machine without a debugger.
 */
static inline void stacks_here(int sig)
{
    void *at[48];
    char text[64];
    int n = backtrace(at, 48);

    (void)sig;
    n = n < 0 ? 0 : n;
    (void)!write(2, text, (size_t)snprintf(text, sizeof text, "# rank %d, thread %ld\n", me, (long)syscall(SYS_gettid)));
    backtrace_symbols_fd(at, n, 2);
}

static inline void *stacks_main(void *arg)
{
    struct dirent *e;
    DIR *tasks;
    double seconds = atof(arg);

    usleep((useconds_t)(1e6 * (seconds + 2 * me)));
    tasks = opendir("/proc/self/task");
    while (tasks && (e = readdir(tasks)) != NULL) {
        long tid = atol(e->d_name);
        if (tid && tid != (long)syscall(SYS_gettid)) {
            (void)syscall(SYS_tgkill, getpid(), tid, SIGUSR2);
            usleep(50000);
        }
    }
    if (tasks)
        closedir(tasks);
    (void)MPIX_Occl_dump(comm, 2);
    return NULL;
}

static inline void stacks_begin(void)
{
    char *seconds = getenv("OCCL_TEST_STACKS");
    pthread_t t;

    if (!seconds)
        return;
    (void)signal(SIGUSR2, stacks_here);
    if (pthread_create(&t, NULL, stacks_main, seconds) == 0)
        (void)pthread_detach(t);
}

/* MPI, the GPU and an attached communicator; or the whole program is skipped with the reason. */
static inline void gpu_begin(int *argc, char ***argv)
{
    char why[512];
    const char *no;

    tap_mpi_begin(argc, argv, MPI_THREAD_SINGLE, 2);
    quick = getenv("OCCL_TEST_QUICK") != NULL;
    no = tool_device_open(TOOL_DEVICE_CUDA, MPI_COMM_WORLD, why, sizeof why);
    if (no) {
        MPI_Finalize();
        skip_all("%s", no);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    return_errors(comm);
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &np);
    if (tool_attach(comm, TOOL_DEVICE_CUDA) != MPI_SUCCESS)
        bail("attach with mpix_occl_device=cuda: %s", whole_text(comm));
    stacks_begin();
}

#endif
