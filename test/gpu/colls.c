/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every collective on a GPU through the public API: types and ops, sizes from nothing to 16 MiB, buffers that are not aligned,
 * memory of every kind, mixed between ranks, memory freed and taken again at the same address, ranks that disagree.
 */
#include "gpu_test.h"

enum { MAX_BATCH = 256 };
static work_t work[MAX_BATCH];
static unsigned state;

/* One batch, twice, of what was put into work[]; frees it. */
static uint64_t go(int n)
{
    uint64_t wrong = 0;

    for (uint64_t step = 0; step < 2; step++)
        wrong += work_batch(work, n, step, &state, 0, NULL);
    for (int i = 0; i < n; i++)
        work_free(&work[i]);
    return wrong;
}

static void types_and_ops(void)
{
    for (int count = 1; count <= 4099; count = count == 1 ? 7 : count == 7 ? 4099 : 4100) {
        uint64_t wrong = 0;
        int n = 0;

        for (int type = 0; type < TOOL_LONGDOUBLE; type++)
            for (int op = 0; op < TOOL_OPS; op++) {
                if (!tool_op_allowed((tool_op_t)op, (tool_type_t)type))
                    continue;
                work[n] = work_of(TOOL_ALLREDUCE, (tool_type_t)type, (tool_op_t)op, count, n);
                work[n].job.shift = count == 7 ? n % 5 : 0;
                wrong += (uint64_t)work_make(&work[n], n % 2);
                n++;
            }
        wrong += go(n);
        ok_all(wrong == 0, "allreduce of %d elements: all %d pairs of type and op, in flight together", count, n);
    }
}

static void no_long_double(void)
{
    work_t w = work_of(TOOL_ALLREDUCE, TOOL_LONGDOUBLE, TOOL_SUM, 5, 1000);
    int rc, refused, all;

    tool_job_alloc(&w.job);
    tool_job_fill(&w.job, 0);
    w.coll = MPIX_OCCL_COLL_NULL;
    rc = tool_occl_start(&w.job, &w.pending);
    refused = rc != MPI_SUCCESS;
    if (!refused)
        rc = tool_occl_wait(&w.pending);
    MPI_Allreduce(&refused, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    ok_all((all == 0 && rc == MPI_SUCCESS && tool_job_check(&w.job, 0) == 0) || (all == np && rc != MPI_SUCCESS),
           "a sum of long doubles, which no GPU has: right, or refused on all ranks");
    if (refused)
        diag("refused: %s", whole_text(comm));
    tool_job_free(&w.job);
}

static void every_collective(void)
{
    static const size_t bytes[] = {0, 4, 12, 1004, 16384, 65532, 1 << 20, (1 << 20) + 4, 16 << 20};

    for (int c = 0; c < TOOL_COLLS; c++) {
        tool_coll_t coll = (tool_coll_t)c;
        uint64_t wrong = 0;
        int n = 0, most = quick ? 6 : (int)(sizeof bytes / sizeof *bytes);

        for (int i = 0; i < most; i++)
            for (int in_place = 0; in_place < 2; in_place++) {
                tool_type_t type = i % 3 == 1 ? TOOL_INT16 : TOOL_FLOAT;
                int count = tool_job_count(coll, type, np, bytes[i]);

                if (!count && bytes[i] && !(tool_coll_flags(coll) & TOOL_BLOCKS) && coll != TOOL_BARRIER)
                    continue;
                if (bytes[i] && bytes[i] < 1000)
                    count = (int)(bytes[i] / tool_type_size(type)); /* of a block, too */
                if (coll == TOOL_BARRIER)
                    count = 0;
                work[n] = work_of(coll, type, TOOL_SUM, count, 100 * c + n);
                work[n].job.in_place = in_place;
                work[n].job.shift = i % 2 ? (me + i) % 4 : 0; /* ranks differ */
                wrong += (uint64_t)work_make(&work[n], (i + in_place) % 2);
                n++;
            }
        wrong += go(n);
        ok_all(wrong == 0, "%s: %d sizes up to %zu KiB on device memory, in place too", tool_coll_name(coll), most,
               bytes[most - 1] >> 10);
    }
}

static void memory_kinds(void)
{
    static const size_t bytes[] = {64, 40000, 1 << 20, 4 << 20};
    const int kinds = TOOL_MEMORIES - TOOL_MEMORY_DEVICE;

    for (int k = 0; k < 2 * kinds; k++) {
        int mixed = k >= kinds, n = 0;
        uint64_t wrong = 0;

        for (int c = 0; c < TOOL_COLLS; c++)
            for (int i = 0; i < (quick ? 2 : 4); i++) {
                if (c == TOOL_BARRIER)
                    continue;
                work[n] = work_of((tool_coll_t)c, TOOL_FLOAT, TOOL_SUM, tool_job_count((tool_coll_t)c, TOOL_FLOAT, np, bytes[i]),
                                  2000 + 100 * k + n);
                work[n].job.memory = (tool_memory_t)(TOOL_MEMORY_DEVICE + (mixed ? k + me : k) % kinds);
                wrong += (uint64_t)work_make(&work[n], c % 2);
                n++;
            }
        wrong += go(n);
        if (mixed)
            ok_all(wrong == 0, "every collective with another kind of memory on every rank, rank 0's %s",
                   tool_memory_name((tool_memory_t)(TOOL_MEMORY_DEVICE + k % kinds)));
        else
            ok_all(wrong == 0, "every collective on %s memory", tool_memory_name((tool_memory_t)(TOOL_MEMORY_DEVICE + k)));
    }
}

/* What peers have mapped must not be what was there before. */
static void again_at_the_same_address(void)
{
    static const int kinds[] = {TOOL_MEMORY_DEVICE, TOOL_MEMORY_ASYNC, TOOL_MEMORY_PINNED, TOOL_MEMORY_MAPPED};

    for (int k = 0; k < 4; k++) {
        void *was[2] = {NULL, NULL};
        uint64_t wrong = 0;
        int same = 0, rounds = quick ? 6 : 20;

        for (int i = 0; i < rounds; i++) {
            /* sizes of one allocation granule and of many; the other buffer of the pair is freed first now and then */
            int count = i % 3 == 2 ? 1000 : 1 << 19;

            work[0] = work_of(TOOL_ALLREDUCE, TOOL_FLOAT, TOOL_SUM, count, 4000 + k);
            work[0].job.memory = (tool_memory_t)kinds[k];
            work[0].job.salt += (uint64_t)i;
            wrong += (uint64_t)work_make(&work[0], i % 2);
            same += work[0].job.send_mem == was[0] || work[0].job.recv_mem == was[1] || work[0].job.send_mem == was[1];
            was[0] = work[0].job.send_mem;
            was[1] = work[0].job.recv_mem;
            wrong += go(1);
        }
        ok_all(wrong == 0, "%s memory freed and taken again between runs, %d times", tool_memory_name((tool_memory_t)kinds[k]), rounds);
        diag("%d of %d times at an address of the time before (rank 0)", same, rounds);
    }
}

static void disagree(void)
{
    static const struct {
        const char *what;
        int count, other_count, other_op;
    } cases[] = {{"count, small", 5, 7, TOOL_SUM}, {"count, large", 1 << 18, 1 << 17, TOOL_SUM}, {"op", 100, 100, TOOL_MAX}};

    for (int i = 0; i < 3; i++) {
        work_t w = work_of(TOOL_ALLREDUCE, TOOL_FLOAT, me ? (tool_op_t)cases[i].other_op : TOOL_SUM,
                           me ? cases[i].other_count : cases[i].count, 5000 + i);
        int rc;

        work_make(&w, i % 2);
        tool_job_fill(&w.job, 0);
        rc = work_start(&w);
        if (rc == MPI_SUCCESS)
            rc = work_wait(&w);
        ok_all(is_class(rc, MPIX_OCCL_ERR_MISMATCH, NULL, comm), "ranks that disagree (%s) all get the error of a mismatch", cases[i].what);
        work_free(&w);
        work[0] = work_of(TOOL_ALLREDUCE, TOOL_FLOAT, TOOL_SUM, 300, 5000 + i);
        work_make(&work[0], 0);
        ok_all(go(1) == 0, "and the tag works on");
    }
}

int main(int argc, char **argv)
{
    gpu_begin(&argc, &argv);
    state = 99u + 17u * (unsigned)me;
    types_and_ops();
    no_long_double();
    every_collective();
    memory_kinds();
    again_at_the_same_address();
    disagree();
    MPIX_Occl_comm_detach(comm);
    MPI_Comm_free(&comm);
    return tap_mpi_end();
}
