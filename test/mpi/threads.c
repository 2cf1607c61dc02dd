/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI_THREAD_MULTIPLE: several threads of a process on one communicator with tags of their own, waiting in all ways; attaching and
 * detaching from several threads at a time; the helper thread makes progress while the program computes.
 */
#include "occl_test.h"

#include <pthread.h>
#include <unistd.h>

enum { NTHREADS = 4, OPS = 150 };
static MPI_Comm comm, own[NTHREADS];
static int failed;

static void *user(void *arg)
{
    int t = (int)(intptr_t)arg, bad = 0;
    unsigned seed = (unsigned)(t * 1000 + tap_rank);

    for (int i = 0; i < OPS && !bad; i++) {
        int in[2] = {tap_rank + i, t}, out[2] = {0, 0}, flag, n = rand_r(&seed) % 3;
        MPI_Comm c = i % 4 == 3 ? own[t] : comm;
        MPI_Request req;

        bad = MPIX_Occl_iallreduce(in, out, 2, MPI_INT, MPI_SUM, t, c, &req) != MPI_SUCCESS;
        if (bad)
            break;
        if (n == 0) {
            bad = MPI_Wait(&req, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        } else if (n == 1) {
            bad = MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        } else {
            for (flag = 0; !flag && !bad;) {
                bad = MPIX_Occl_test(&req, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS;
                if (!flag)
                    sched_yield();
            }
        }
        bad |= out[0] != 2 * i + 1 || out[1] != 2 * t;
        if (bad)
            tap_rank_diag("thread %d op %d way %d: %d %d", t, i, n, out[0], out[1]);
    }
    if (bad)
        __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void *attacher(void *arg)
{
    int t = (int)(intptr_t)arg, bad = 0;

    for (int i = 0; i < 20 && !bad; i++) {
        MPI_Request req;
        int x = 1, y = 0;

        bad = MPIX_Occl_comm_attach(own[t], MPI_INFO_NULL) != MPI_SUCCESS ||
              MPIX_Occl_iallreduce(&x, &y, 1, MPI_INT, MPI_SUM, 0, own[t], &req) != MPI_SUCCESS ||
              MPIX_Occl_comm_detach(own[t]) != MPI_SUCCESS || MPIX_Occl_wait(&req, MPI_STATUS_IGNORE) != MPI_SUCCESS || y != 2;
        if (bad)
            tap_rank_diag("thread %d round %d: %s", t, i, whole_text(own[t]));
    }
    if (bad)
        __atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void together(void *(*fn)(void *))
{
    pthread_t th[NTHREADS];

    for (int t = 0; t < NTHREADS; t++)
        pthread_create(&th[t], NULL, fn, (void *)(intptr_t)t);
    for (int t = 0; t < NTHREADS; t++)
        pthread_join(th[t], NULL);
}

static int continued;
static void note(int error, void *state)
{
    (void)state;
    __atomic_store_n(&continued, error == MPI_SUCCESS ? 1 : -1, __ATOMIC_RELEASE);
}

int main(int argc, char **argv)
{
    MPI_Request req;
    int x[2000], y[2000];
    double end;

    tap_mpi_begin(&argc, &argv, MPI_THREAD_MULTIPLE, 2);
    return_errors(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int t = 0; t < NTHREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
    together(attacher);
    ok_all(failed == 0, "%d threads attach, use and detach communicators at the same time", NTHREADS);
    if (MPIX_Occl_comm_attach(comm, MPI_INFO_NULL) != MPI_SUCCESS)
        bail("attach: %s", whole_text(comm));
    for (int t = 0; t < NTHREADS; t++)
        MPIX_Occl_comm_attach(own[t], MPI_INFO_NULL);
    failed = 0;
    together(user);
    ok_all(failed == 0, "%d threads with a tag each make %d operations each", NTHREADS, OPS);

    /* Both compute, in no call of MPI's or ours: the helper carries it on. */
    for (int i = 0; i < 2000; i++)
        x[i] = i;
    MPIX_Occl_iallreduce(x, y, 2000, MPI_INT, MPI_SUM, 50, comm, &req);
    MPIX_Occl_continue(&req, note, NULL);
    for (end = tap_now() + 2 * tap_slack(); !__atomic_load_n(&continued, __ATOMIC_ACQUIRE) && tap_now() < end;)
        usleep(100);
    ok_all(continued == 1 && y[1999] == 2 * 1999, "an operation completes, and its continuation runs, while all threads compute");
    for (int t = 0; t < NTHREADS; t++)
        MPI_Comm_free(&own[t]);
    MPI_Comm_free(&comm);
    return tap_mpi_end();
}
