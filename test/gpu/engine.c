/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The planners' plans and the real engine on a GPU: ranks are daemons of their own in streams of their own, in one process.
 * Plans, links, mailboxes and runs lie in device memory, submissions and completions in mapped memory. No core: the test plays
 * the gate. Results are compared with a fold by the host's own loops, bit for bit where the order of the fold is promised.
 *
 *     engine              the tests (TAP)
 *     engine small        a few of them, for compute-sanitizer
 *     engine bench        latencies and bandwidth, as tables (engine latency, engine bandwidth [channels]: one of them)
 *     engine trace        where the time of a small run goes (daemon.cu built with -DOCCL_TRACING)
 *
 * Nothing can hang: the daemon leaves by itself, and every wait here ends.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda.h"
#include "kernels/occl_dev_data.h"
#include "kernels/occl_dev_link.h"
#include "plan/plan.h"
#include "tap.h"

#define MAX_RANKS 10 /* more than travel in a submission */
#define GUARD 64
#define TIMEOUT_NS 20000000000ull

uint64_t occl_host_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t rng_state = 88172645463325252u;
static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state * 2685821657736338717u >> 11;
}

/* --- ranks ---------------------------------------------------------------------------------------------------------- */

static occl_cuda_t dev[MAX_RANKS];
static uint32_t nranks_open;

static const occl_sched_conf_t usual = {.stick_min_ns = 2000, .stick_max_ns = 20000, .park_ns = 100000, .linger_ns = 200000,
                                        .residence_ns = 2000000, .min_polls = 8, .max_steps = 64};

static void open_ranks(uint32_t n, uint32_t channels, uint32_t lanes, uint32_t cluster, const occl_sched_conf_t *conf)
{
    for (uint32_t r = 0; r < n; r++)
        if (occl_cuda_open(0, channels, lanes, cluster, MAX_RANKS, conf, &dev[r]) != OCCL_OK)
            bail("rank %u: %s", r, dev[r].error);
    nranks_open = n;
}
static void close_ranks(void)
{
    for (uint32_t r = 0; r < nranks_open; r++)
        occl_cuda_close(&dev[r]);
    nranks_open = 0;
}
static void *device_memory(uint64_t bytes)
{
    void *p = occl_cuda_alloc(&dev[0], bytes ? bytes : 1);
    if (!p)
        bail("%s", dev[0].error);
    return p;
}
static void upload(void *to, const void *from, uint64_t bytes)
{
    if (bytes && occl_cuda_upload(&dev[0], to, from, bytes) != OCCL_OK)
        bail("%s", dev[0].error);
}
static void download(void *to, const void *from, uint64_t bytes)
{
    if (bytes && occl_cuda_download(&dev[0], to, from, bytes) != OCCL_OK)
        bail("%s", dev[0].error);
}

/* --- a collective of all ranks on one tag ---------------------------------------------------------------------------- */

typedef struct job {
    /* what */
    const occl_planner_t *planner;
    occl_movement_t move;
    uint32_t n, root, type, op, channels, in_place, shift;  /* shift: bytes that buffers are off 16-byte alignment, rank-wise */
    uint64_t count, chunk;                                  /* chunk in elements; 0: from the slots */
    occl_geometry_t geo;
    /* made */
    uint32_t eb;
    uint64_t run, send_bytes[MAX_RANKS], recv_bytes[MAX_RANKS];
    unsigned char *hsend[MAX_RANKS], *hrecv[MAX_RANKS], *want[MAX_RANKS];
    unsigned char *send[MAX_RANKS], *recv[MAX_RANKS]; /* device; with a guard before and after recv */
    void *plan[MAX_RANKS], *links[MAX_RANKS], *scratch[MAX_RANKS], *mail[MAX_RANKS];
    occl_dev_run_t view[MAX_RANKS];
    void *dev_run[MAX_RANKS];
    uint64_t *x[MAX_RANKS]; /* mapped */
    void *far_x[MAX_RANKS];
    int submitted[MAX_RANKS], done[MAX_RANKS];
    uint32_t what[MAX_RANKS];
    uint32_t parks, words, plain; /* plain: no data-with-flag words even where they fit */
} job_t;
static uint64_t serials[MAX_RANKS]; /* as they are: of a device */

static int exact(const job_t *j)
{
    return !strcmp(j->planner->name, "oneshot") || !strcmp(j->planner->name, "twoshot") || !strcmp(j->planner->name, "push");
}

/* Values: anything where the fold's order is promised, else small integers whose sums are exact in any order. */
static void fill(const job_t *j, unsigned char *p, uint64_t elements)
{
    uint64_t i, most = 1u << 18; /* the rest of a large buffer repeats */
    for (i = 0; i < elements && i < most; i++) {
        uint64_t v = rng();
        switch (j->type) {
        case OCCL_T_F32: case OCCL_T_C32: {
            float f[2];
            f[0] = exact(j) && j->op == OCCL_OP_SUM ? (float)(int32_t)v * 1e-3f : (float)(v % 9) - 4;
            f[1] = (float)(v >> 20 & 3);
            memcpy(p + i * j->eb, f, j->eb);
            break;
        }
        case OCCL_T_F64: {
            double f = exact(j) && j->op == OCCL_OP_SUM ? (double)(int32_t)v * 1e-3 : (double)(v % 9) - 4;
            memcpy(p + i * j->eb, &f, j->eb);
            break;
        }
        case OCCL_T_F16: {
            uint16_t h = occl_dev_round_f16(exact(j) ? (float)(int32_t)(v & 0xffff) * 0.013f - 400 : (float)(v % 5) - 2);
            memcpy(p + i * j->eb, &h, 2);
            break;
        }
        case OCCL_T_BF16: {
            uint16_t h = occl_dev_round_bf16(exact(j) ? (float)(int32_t)(v & 0xffff) * 0.013f - 400 : (float)(v % 5) - 2);
            memcpy(p + i * j->eb, &h, 2);
            break;
        }
        case OCCL_T_F32_I32: {
            float f = (float)(v % 7);
            int32_t k = (int32_t)(v >> 8 & 0xff);
            memcpy(p + i * 8, &f, 4);
            memcpy(p + i * 8 + 4, &k, 4);
            break;
        }
        default:
            for (uint64_t b = 0; b < j->eb; b++)
                p[i * j->eb + b] = (unsigned char)(v >> (8 * (b % 5)));
        }
    }
    for (; i < elements; i += most)
        memcpy(p + i * j->eb, p, (elements - i < most ? elements - i : most) * j->eb);
}

/* dst = fold over the first `ranks` ranks of element range [at, at + n) of their inputs. */
static void fold_first(const job_t *j, uint32_t ranks, unsigned char *dst, uint64_t at, uint64_t n)
{
    const void *src[MAX_RANKS];
    occl_lanes_t l = {0};
    for (uint32_t r = 0; r < ranks; r++)
        src[r] = j->hsend[r] + at * j->eb;
    if (ranks == 1)
        memcpy(dst, src[0], n * j->eb);
    else if (ranks)
        occl_dev_reduce(l, j->type, j->op, dst, src, ranks, n);
}
static void fold(const job_t *j, unsigned char *dst, uint64_t at, uint64_t n) { fold_first(j, j->n, dst, at, n); }

/* Those with a length for each block are test/gpu/colls' part: their tables are the core's. */
static int has_job(const occl_planner_t *p) { return p->kind < OCCL_COLL_REDUCE_SCATTER; }

static int in_place_of(const job_t *j, uint32_t r)
{
    if (!j->in_place)
        return 0;
    switch (j->planner->kind) {
    case OCCL_COLL_REDUCE: case OCCL_COLL_GATHER: case OCCL_COLL_SCATTER: return r == j->root;
    case OCCL_COLL_SCAN: case OCCL_COLL_EXSCAN:
    case OCCL_COLL_ALLREDUCE: case OCCL_COLL_ALLGATHER: case OCCL_COLL_REDUCE_SCATTER_BLOCK: case OCCL_COLL_ALLTOALL: return 1;
    default: return 0;
    }
}

/* Elements of each rank's buffers, inputs, and what the outputs must be. */
static void make_data(job_t *j)
{
    uint64_t c = j->count, eb = j->eb;
    for (uint32_t r = 0; r < j->n; r++) {
        uint64_t s = c, d = c;
        switch (j->planner->kind) {
        case OCCL_COLL_BARRIER: s = d = 0; break;
        case OCCL_COLL_GATHER: d = r == j->root ? j->n * c : 0; break;
        case OCCL_COLL_REDUCE: d = r == j->root ? c : 0; break;
        case OCCL_COLL_SCATTER: s = r == j->root ? j->n * c : 0; break;
        case OCCL_COLL_ALLGATHER: d = j->n * c; break;
        case OCCL_COLL_REDUCE_SCATTER_BLOCK: s = j->n * c; d = in_place_of(j, r) ? j->n * c : c; break;
        case OCCL_COLL_ALLTOALL: s = d = j->n * c; break;
        default: break;
        }
        j->send_bytes[r] = s * eb;
        j->recv_bytes[r] = d * eb;
        j->hsend[r] = malloc(s * eb + 1);
        j->hrecv[r] = malloc(d * eb + 2 * GUARD + 1);
        j->want[r] = malloc(d * eb + 2 * GUARD + 1);
        memset(j->hrecv[r], 0xee, d * eb + 2 * GUARD);
        fill(j, j->hsend[r], s);
    }
    for (uint32_t r = 0; r < j->n; r++) {
        unsigned char *in = j->hrecv[r] + GUARD, *out;
        int ip = in_place_of(j, r);
        /* what stands in RECV before */
        if (j->planner->kind == OCCL_COLL_BCAST && r == j->root)
            memcpy(in, j->hsend[r], c * eb);
        if (ip && (j->planner->kind == OCCL_COLL_SCAN || j->planner->kind == OCCL_COLL_EXSCAN || j->planner->kind == OCCL_COLL_ALLREDUCE || j->planner->kind == OCCL_COLL_REDUCE ||
                   j->planner->kind == OCCL_COLL_REDUCE_SCATTER_BLOCK || j->planner->kind == OCCL_COLL_ALLTOALL))
            memcpy(in, j->hsend[r], j->send_bytes[r]);
        if (ip && (j->planner->kind == OCCL_COLL_ALLGATHER || j->planner->kind == OCCL_COLL_GATHER))
            memcpy(in + r * c * eb, j->hsend[r], c * eb);
        memcpy(j->want[r], j->hrecv[r], j->recv_bytes[r] + 2 * GUARD);
        out = j->want[r] + GUARD;
        switch (j->planner->kind) {
        case OCCL_COLL_BCAST: memcpy(out, j->hsend[j->root], c * eb); break;
        case OCCL_COLL_REDUCE:
            if (r == j->root)
                fold(j, out, 0, c);
            break;
        case OCCL_COLL_ALLREDUCE: fold(j, out, 0, c); break;
        case OCCL_COLL_GATHER:
        case OCCL_COLL_ALLGATHER:
            if (j->planner->kind == OCCL_COLL_ALLGATHER || r == j->root)
                for (uint32_t p = 0; p < j->n; p++)
                    memcpy(out + p * c * eb, j->hsend[p], c * eb);
            break;
        case OCCL_COLL_SCATTER:
            if (!ip)
                memcpy(out, j->hsend[j->root] + r * c * eb, c * eb);
            break;
        case OCCL_COLL_REDUCE_SCATTER_BLOCK: fold(j, out, r * c, c); break;
        case OCCL_COLL_SCAN: fold_first(j, r + 1, out, 0, c); break;
        case OCCL_COLL_EXSCAN: fold_first(j, r, out, 0, c); break; /* the first rank's stays as it is */
        case OCCL_COLL_ALLTOALL:
            for (uint32_t p = 0; p < j->n; p++)
                memcpy(out + p * c * eb, j->hsend[p] + r * c * eb, c * eb);
            break;
        case OCCL_COLL_SENDRECV:
            if (r == j->n - 1)
                memcpy(out, j->hsend[0], c * eb);
            break;
        default: break;
        }
    }
}

static occl_plan_args_t args_of(const job_t *j, uint32_t r)
{
    return (occl_plan_args_t){.kind = j->planner->kind, .move = j->move, .rank = r, .nranks = j->n, .root = j->root,
                              .count = j->count, .type = j->type, .op = j->op, .elem_bytes = j->eb,
                              .in_place = (uint32_t)in_place_of(j, r), .nchannels = j->channels};
}

/* Memory, plans and links of all ranks. 0: the planner does not do this. */
static int make(job_t *j)
{
    occl_plan_t *plan[MAX_RANKS] = {0};
    uint64_t box = (occl_mailbox_bytes(j->geo) + 63) / 64 * 64, boxes = (uint64_t)j->channels * j->n;
    j->eb = occl_dev_type_bytes(j->type);
    for (uint32_t r = 0; r < j->n; r++) {
        occl_plan_args_t a = args_of(j, r);
        if (j->planner->build(&a, &plan[r]) != OCCL_OK) {
            for (uint32_t p = 0; p < r; p++)
                occl_plan_free(plan[p]);
            return 0;
        }
    }
    make_data(j);
    if (!j->chunk)
        j->chunk = occl_slot_capacity(j->geo.slot_bytes) / j->eb;
    for (uint32_t r = 0; r < j->n; r++) {
        uint64_t bytes = occl_plan_size(plan[r]), need;
        void *image = malloc(bytes);
        j->plan[r] = device_memory(bytes);
        occl_plan_image(plan[r], (uint64_t)(uintptr_t)j->plan[r], image);
        upload(j->plan[r], image, bytes);
        free(image);
        j->send[r] = (unsigned char *)device_memory(j->send_bytes[r] + 256) + (j->shift * (r + 1)) % 16;
        j->recv[r] = (unsigned char *)device_memory(j->recv_bytes[r] + 2 * GUARD + 256) + (j->shift * (r + 2)) % 16 + GUARD;
        upload(j->send[r], j->hsend[r], j->send_bytes[r]);
        upload(j->recv[r] - GUARD, j->hrecv[r], j->recv_bytes[r] + 2 * GUARD);
        need = (uint64_t)j->channels * plan[r]->scratch_chunks * j->chunk * j->eb;
        j->scratch[r] = device_memory(need);
        j->links[r] = device_memory(boxes * sizeof(occl_link_t));
        j->mail[r] = device_memory(boxes * box);
        j->dev_run[r] = device_memory(sizeof(occl_dev_run_t));
    }
    for (uint32_t r = 0; r < j->n; r++) {
        occl_link_t *l = calloc(boxes, sizeof(*l));
        occl_dev_run_t *v = &j->view[r];
        for (uint32_t c = 0; c < j->channels; c++)
            for (uint32_t p = 0; p < j->n; p++) {
                uint64_t mine = (uint64_t)c * j->n + p, theirs = (uint64_t)c * j->n + r;
                l[mine].rx = (occl_mailbox_t *)(void *)((unsigned char *)j->mail[r] + mine * box);
                l[mine].tx = (occl_mailbox_t *)(void *)((unsigned char *)j->mail[p] + theirs * box);
            }
        upload(j->links[r], l, boxes * sizeof(*l));
        free(l);
        memset(v, 0, sizeof(*v));
        v->plan = j->plan[r];
        v->links = j->links[r];
        v->recv = j->recv[r];
        v->send = j->send[r];
        if (in_place_of(j, r) && j->planner->kind != OCCL_COLL_SCATTER)
            v->send = j->planner->kind == OCCL_COLL_ALLGATHER || j->planner->kind == OCCL_COLL_GATHER
                          ? v->recv + (uint64_t)r * j->count * j->eb : v->recv;
        v->scratch = j->scratch[r];
        v->slot_bytes = j->geo.slot_bytes;
        v->nslots = j->geo.nslots;
        v->sig = 0x5151000000000000u + j->planner->kind;
        v->chunk = j->chunk;
        v->serial = ++serials[r];
        v->words = (uint16_t)(j->words = !j->plain && occl_plan_words(j->planner, plan[r], j->chunk, j->geo.slot_bytes,
                                                                      j->geo.nslots, OCCL_STAGE_BYTES));
        occl_plan_free(plan[r]);
    }
    for (uint32_t r = 0; r < j->n; r++)
        for (uint32_t p = 0; p < j->n; p++) {
            if (!p && !(j->x[r] = occl_cuda_alloc_mapped(&dev[r], 2 * j->n * sizeof(uint64_t))))
                bail("%s", dev[r].error);
            if (!p)
                j->far_x[r] = device_memory(2 * j->n * sizeof(uint64_t));
            j->x[r][p] = (uint64_t)(uintptr_t)j->view[p].send;
            j->x[r][j->n + p] = (uint64_t)(uintptr_t)j->view[p].recv;
        }
    return 1;
}

static void unmake(job_t *j)
{
    for (uint32_t r = 0; r < j->n; r++) {
        occl_cuda_free(&dev[0], j->plan[r]);
        occl_cuda_free(&dev[0], j->links[r]);
        occl_cuda_free(&dev[0], j->mail[r]);
        occl_cuda_free(&dev[0], j->scratch[r]);
        occl_cuda_free(&dev[0], j->dev_run[r]);
        occl_cuda_free_mapped(&dev[r], j->x[r]);
        occl_cuda_free(&dev[0], j->far_x[r]);
        occl_cuda_free(&dev[0], j->send[r] - (j->shift * (r + 1)) % 16);
        occl_cuda_free(&dev[0], j->recv[r] - (j->shift * (r + 2)) % 16 - GUARD);
        free(j->hsend[r]);
        free(j->hrecv[r]);
        free(j->want[r]);
    }
}

/* Inputs as before the first run. */
static void renew(job_t *j)
{
    for (uint32_t r = 0; r < j->n; r++) {
        upload(j->recv[r] - GUARD, j->hrecv[r], j->recv_bytes[r] + 2 * GUARD);
        j->submitted[r] = j->done[r] = 0;
    }
    j->run++;
}

static void submit(job_t *j, uint32_t r, uint32_t left, int fresh)
{
    j->view[r].run = j->run;
    occl_cuda_put(&dev[r], &j->view[r], (uint64_t)(uintptr_t)j->dev_run[r], j->channels, left, fresh, j->n,
                  j->move == OCCL_MOVE_EXPOSED ? j->x[r] : NULL, (uint64_t)(uintptr_t)j->far_x[r]);
    j->submitted[r] = 1;
}

/* Channels that have not finished rank r's run. */
static uint32_t left_of(job_t *j, uint32_t r)
{
    occl_dev_run_t now;
    uint32_t left = 0;
    download(&now, j->dev_run[r], sizeof(now));
    for (uint32_t c = 0; c < j->channels; c++)
        left += !now.st[c].over;
    return left;
}

/* One look at all ranks: completions, and launches where work is left. Returns how many runs were over. */
static uint32_t poll_ranks(job_t **jobs, uint32_t njobs, uint32_t *outstanding)
{
    uint32_t over = 0;
    for (uint32_t r = 0; r < nranks_open; r++) {
        uint32_t what;
        uint64_t at;
        while ((at = occl_cuda_pop(&dev[r], &what)) != 0) {
            job_t *j = NULL;
            for (uint32_t i = 0; i < njobs && !j; i++)
                if ((uint64_t)(uintptr_t)jobs[i]->dev_run[r] == at)
                    j = jobs[i];
            if (!j)
                bail("rank %u completed a run that nobody submitted", r);
            if (what == OCCL_CQ_PARKED) {
                j->parks++;
                submit(j, r, left_of(j, r), 0);
                continue;
            }
            j->done[r] = 1;
            j->what[r] = what;
            outstanding[r]--;
            over++;
        }
        if (outstanding[r] && occl_cuda_is_out(&dev[r], NULL) && occl_cuda_launch(&dev[r]) != OCCL_OK)
            bail("rank %u: %s", r, dev[r].error);
    }
    return over;
}

static void show_stuck(job_t *j)
{
    for (uint32_t r = 0; r < j->n; r++) {
        occl_dev_run_t now;
        uint64_t quit = dev[r].front->quit;
        download(&now, j->dev_run[r], sizeof(now));
        diag("rank %u submitted %d done %d launches %llu quit %llx submitted %llu run %llu left %u drop %u", r, j->submitted[r], j->done[r],
             (unsigned long long)dev[r].launches, (unsigned long long)quit, (unsigned long long)dev[r].submitted,
             (unsigned long long)now.run, now.left, now.drop);
        for (uint32_t c = 0; c < j->channels && c < 4; c++)
            diag("  channel %u section %u pc %u iter %llu over %u", c, now.st[c].section, now.st[c].pc,
                 (unsigned long long)now.st[c].iter, now.st[c].over);
    }
}

/* Polls until `want` runs are over. */
static int finish(job_t **jobs, uint32_t njobs, uint32_t *outstanding, uint32_t want)
{
    uint64_t end = occl_host_clock_ns() + TIMEOUT_NS;
    uint32_t over = 0;
    while (over < want) {
        over += poll_ranks(jobs, njobs, outstanding);
        if (occl_host_clock_ns() > end) {
            diag("%u of %u runs are over", over, want);
            for (uint32_t i = 0; i < njobs; i++)
                show_stuck(jobs[i]);
            return 0;
        }
    }
    return 1;
}

/* Padding of pairs is nobody's: it compares equal. */
static void level(const job_t *j, unsigned char *got, const unsigned char *want, uint64_t bytes)
{
    uint32_t from = j->type == OCCL_T_I16_I32 ? 2 : 12, to = j->type == OCCL_T_I16_I32 ? 4 : 16;
    if (j->type != OCCL_T_I16_I32 && j->type != OCCL_T_F64_I32 && j->type != OCCL_T_I64_I32)
        return;
    for (uint64_t i = 0; i + j->eb <= bytes; i += j->eb)
        memcpy(got + i + from, want + i + from, to - from);
}

static int right(job_t *j, char *why, size_t len)
{
    for (uint32_t r = 0; r < j->n; r++) {
        uint64_t bytes = j->recv_bytes[r] + 2 * GUARD;
        unsigned char *got = malloc(bytes);
        uint64_t i;
        if (j->what[r] != OCCL_DONE) {
            snprintf(why, len, "rank %u ended with %u", r, j->what[r]);
            free(got);
            return 0;
        }
        download(got, j->recv[r] - GUARD, bytes);
        level(j, got + GUARD, j->want[r] + GUARD, j->recv_bytes[r]);
        i = bytes;
        if (memcmp(got, j->want[r], bytes))
            for (i = 0; got[i] == j->want[r][i]; i++)
                ;
        if (i < bytes) {
            snprintf(why, len, "rank %u byte %lld of %llu: %02x, not %02x (run %llu)", r, (long long)i - GUARD,
                     (unsigned long long)j->recv_bytes[r], got[i], j->want[r][i], (unsigned long long)j->run);
            free(got);
            return 0;
        }
        free(got);
    }
    return 1;
}

static const char *const type_name[] = {
#define X(id, number, bytes, name) name,
    OCCL_TYPE_TABLE(X)
#undef X
};
static const char *const op_name[] = {
#define X(id, number, name) name,
    OCCL_OP_TABLE(X)
#undef X
};

/* Runs the job `times` times, ranks starting in random order. 1: right every time; 0: wrong; -1: not planned. */
static int run_job(job_t *j, int times, char *why, size_t len)
{
    uint32_t outstanding[MAX_RANKS] = {0};
    int good = 1;
    if (!make(j))
        return -1;
    why[0] = 0;
    for (int t = 0; t < times && good; t++) {
        uint32_t first = (uint32_t)(rng() % j->n);
        renew(j);
        for (uint32_t i = 0; i < j->n; i++) {
            uint32_t r = (first + i) % j->n;
            submit(j, r, j->channels, 1);
            outstanding[r]++;
        }
        good = finish(&j, 1, outstanding, j->n);
        if (!good)
            snprintf(why, len, "stuck");
        else
            good = right(j, why, len);
    }
    if (good || strcmp(why, "stuck"))
        unmake(j);
    return good;
}

/* --- tests ------------------------------------------------------------------------------------------------------------ */

static const occl_geometry_t small_slots = {1024, 4}, large_slots = {65536 + 64, 4};

static void test_every_planner(int small)
{
    static const struct {
        uint32_t type, op;
    } pairs[] = {{OCCL_T_F32, OCCL_OP_SUM}, {OCCL_T_BF16, OCCL_OP_SUM}, {OCCL_T_F16, OCCL_OP_MAX}, {OCCL_T_I64, OCCL_OP_PROD},
                 {OCCL_T_U8, OCCL_OP_MIN}, {OCCL_T_F64, OCCL_OP_SUM}, {OCCL_T_I32, OCCL_OP_BXOR}, {OCCL_T_F32_I32, OCCL_OP_MAXLOC},
                 {OCCL_T_C32, OCCL_OP_PROD}, {OCCL_T_I16, OCCL_OP_SUM}};
    static const uint64_t counts[] = {1, 7, 1000, 5003};
    uint32_t seq = 0;
    char why[200];
    for (int i = 0; occl_planners[i]; i++) {
        const occl_planner_t *p = occl_planners[i];
        if (!has_job(p))
            continue;
        for (int move = 0; move < 2; move++) {
            int good = 0, bad = 0;
            if (!(p->moves & 1u << move))
                continue;
            for (uint32_t n = 1; n <= nranks_open && !bad; n++)
                for (uint32_t c = 0; c < (small ? 2 : 4) && !bad; c++)
                    for (uint32_t ch = 1; ch <= dev[0].nchannels && !bad; ch += dev[0].nchannels - 1 ? dev[0].nchannels - 1 : 1) {
                        uint32_t k = seq++ % (sizeof(pairs) / sizeof(pairs[0]));
                        job_t j;
                        int v;
                        if (small && n != 1 && n != nranks_open)
                            continue;
                        memset(&j, 0, sizeof(j));
                        j.planner = p;
                        j.move = (occl_movement_t)move;
                        j.n = n;
                        j.root = n - 1 - (seq % 2 && n > 1);
                        j.type = pairs[k].type;
                        j.op = pairs[k].op;
                        if (p->partials && (j.type == OCCL_T_F16 || j.type == OCCL_T_BF16))
                            j.type = OCCL_T_F32;
                        if (j.type == OCCL_T_C32 && !exact(&j))
                            j.op = OCCL_OP_SUM; /* a product's zeros have signs that depend on the order */
                        j.count = counts[c];
                        j.channels = ch;
                        j.in_place = seq / 3 % 2;
                        j.shift = seq % 3 == 0 ? 0 : seq % 3 == 1 ? 4 : 2;
                        j.geo = seq % 2 ? small_slots : large_slots;
                        if (move == OCCL_MOVE_EXPOSED)
                            j.chunk = 700;
                        v = run_job(&j, 3, why, sizeof(why));
                        good += v == 1;
                        if (v == 0) {
                            bad = 1;
                            ok(0, "%s/%s %s, %u ranks, %u channels, %s %s x %llu, %s, root %u, shift %u", occl_coll_name(p->kind), p->name,
                               move ? "exposed" : "slots", n, ch, op_name[j.op], type_name[j.type], (unsigned long long)j.count,
                               j.in_place ? "in place" : "not in place", j.root, j.shift);
                            diag("%s", why);
                        }
                    }
            if (!bad)
                ok(good, "%s/%s %s is right in %d cases, 1 to %u ranks, 1 and %u channels", occl_coll_name(p->kind), p->name,
                   move ? "exposed" : "slots", good, nranks_open, dev[0].nchannels);
        }
    }
}

static void test_every_op(void)
{
    char why[200];
    for (uint32_t t = 0; t < OCCL_T_COUNT; t++) {
        int cases = 0, bad = 0;
        if (t == OCCL_T_FLD || t == OCCL_T_CLD || t == OCCL_T_FLD_I32)
            continue; /* not on CUDA */
        for (uint32_t op = 1; op < OCCL_OP_COUNT && !bad; op++)
            for (uint32_t shift = 0; shift < 2 && !bad; shift++) {
                job_t j;
                if (!occl_dev_op_valid(op, t))
                    continue;
                memset(&j, 0, sizeof(j));
                j.planner = occl_planner_find(OCCL_COLL_ALLREDUCE, "oneshot");
                j.move = OCCL_MOVE_SLOTS;
                j.n = nranks_open;
                j.type = t;
                j.op = op;
                j.count = 1237;
                j.channels = 1;
                j.shift = shift ? 1 : 0;
                j.geo = large_slots;
                bad = run_job(&j, 1, why, sizeof(why)) != 1;
                cases++;
                if (bad) {
                    ok(0, "all-reduce %s of %s, shift %u", op_name[op], type_name[t], j.shift);
                    diag("%s", why);
                }
            }
        if (cases && !bad)
            ok(1, "all operations on %s give the host's bits, aligned and not", type_name[t]);
    }
}

/* Many tags, every rank starts them in an order of its own, daemons that leave after a moment. */
static void test_orders(uint32_t tags, int rounds, const char *what)
{
    static const occl_collkind_t kinds[] = {OCCL_COLL_ALLREDUCE, OCCL_COLL_ALLGATHER, OCCL_COLL_ALLTOALL, OCCL_COLL_BCAST,
                                            OCCL_COLL_REDUCE_SCATTER_BLOCK};
    job_t *jobs[96];
    uint32_t outstanding[MAX_RANKS] = {0}, n = nranks_open, parks = 0;
    uint64_t launches = 0, preempted = 0;
    char why[200] = "";
    int good = 1;
    for (uint32_t i = 0; i < tags; i++) {
        job_t *j = jobs[i] = calloc(1, sizeof(*j));
        j->planner = NULL;
        for (int k = 0; occl_planners[k] && !j->planner; k++)
            if (occl_planners[k]->kind == kinds[i % 5] && (i / 5) % 2 == (uint32_t)!strcmp(occl_planners[k]->name, "oneshot"))
                j->planner = occl_planners[k];
        if (!j->planner)
            j->planner = occl_planner_find(kinds[i % 5], "ring");
        if (!j->planner)
            j->planner = occl_planner_find(kinds[i % 5], "direct");
        j->move = j->planner->moves & 2 && i % 3 == 0 ? OCCL_MOVE_EXPOSED : j->planner->moves & 1 ? OCCL_MOVE_SLOTS : OCCL_MOVE_EXPOSED;
        j->n = n;
        j->type = OCCL_T_I32;
        j->op = OCCL_OP_SUM;
        j->count = 1 + rng() % 4000;
        j->channels = 1 + i % dev[0].nchannels;
        j->geo = small_slots;
        if (j->move == OCCL_MOVE_EXPOSED)
            j->chunk = 256;
        if (!make(j))
            bail("no plan for %s/%s", occl_coll_name(j->planner->kind), j->planner->name);
    }
    for (uint32_t r = 0; r < n; r++)
        launches -= dev[r].launches;
    for (int t = 0; t < rounds && good; t++) {
        uint32_t order[MAX_RANKS][96], at[MAX_RANKS] = {0}, over = 0, left = n * tags;
        uint64_t end = occl_host_clock_ns() + TIMEOUT_NS;
        for (uint32_t i = 0; i < tags; i++)
            renew(jobs[i]);
        for (uint32_t r = 0; r < n; r++) {
            for (uint32_t i = 0; i < tags; i++)
                order[r][i] = i;
            for (uint32_t i = tags; i > 1; i--) {
                uint32_t k = (uint32_t)(rng() % i), x = order[r][i - 1];
                order[r][i - 1] = order[r][k];
                order[r][k] = x;
            }
        }
        while (over < n * tags && good) {
            if (left) {
                uint32_t r = (uint32_t)(rng() % n);
                if (at[r] < tags) {
                    submit(jobs[order[r][at[r]]], r, jobs[order[r][at[r]]]->channels, 1);
                    outstanding[r]++;
                    at[r]++;
                    left--;
                }
                if (rng() % 16 == 0) /* long enough for daemons to leave, now and then */
                    usleep(rng() % 8 == 0 ? 500 : 5);
            }
            if (!left || rng() % 4 == 0)
                over += poll_ranks(jobs, tags, outstanding);
            if (occl_host_clock_ns() > end) {
                good = 0;
                diag("stuck with %u of %u over in round %d", over, n * tags, t);
                for (uint32_t i = 0; i < tags; i++)
                    show_stuck(jobs[i]);
            }
        }
        for (uint32_t i = 0; i < tags && good; i++)
            if (!right(jobs[i], why, sizeof(why))) {
                good = 0;
                diag("%s/%s: %s", occl_coll_name(jobs[i]->planner->kind), jobs[i]->planner->name, why);
            }
    }
    for (uint32_t r = 0; r < n; r++) {
        occl_chan_t ch;
        launches += dev[r].launches;
        for (uint32_t c = 0; c < dev[r].nchannels; c++) {
            download(&ch, &dev[r].chan[c], sizeof(ch));
            preempted += ch.stats.preemptions;
        }
    }
    for (uint32_t i = 0; i < tags; i++)
        parks += jobs[i]->parks;
    ok(good, "%u ranks, %u tags, %d rounds, each rank in an order of its own: %s", n, tags, rounds, what);
    diag("%llu launches, %llu preemptions, %u parked", (unsigned long long)launches, (unsigned long long)preempted, parks);
    if (!good)
        bail("what follows would not be meaningful");
    for (uint32_t i = 0; i < tags; i++) {
        unmake(jobs[i]);
        free(jobs[i]);
    }
}

/* More ranks than a submission has addresses for. */
static void test_many_ranks(void)
{
    static const char *const names[] = {"oneshot", "twoshot", "push", "ring"};
    char why[200];
    for (uint32_t i = 0; i < 4; i++) {
        job_t j;
        memset(&j, 0, sizeof(j));
        j.planner = occl_planner_find(OCCL_COLL_ALLREDUCE, names[i]);
        j.move = OCCL_MOVE_EXPOSED;
        j.n = nranks_open;
        j.type = OCCL_T_I32;
        j.op = OCCL_OP_SUM;
        j.count = 12345;
        j.channels = 2;
        j.geo = small_slots;
        j.chunk = 500;
        if (!ok(run_job(&j, 3, why, sizeof(why)) == 1, "all-reduce/%s exposed on %u ranks", names[i], nranks_open))
            diag("%s", why);
    }
}

/* A rank that disagrees, and a run that is withdrawn because a peer does not come. */
static void test_failures(void)
{
    uint32_t outstanding[MAX_RANKS] = {0}, n = nranks_open, mismatches = 0;
    job_t j, *p = &j;
    char why[200];
    memset(&j, 0, sizeof(j));
    j.planner = occl_planner_find(OCCL_COLL_ALLREDUCE, "oneshot");
    j.n = n;
    j.type = OCCL_T_I32;
    j.op = OCCL_OP_SUM;
    j.count = 3;
    j.channels = 1;
    j.geo = small_slots;
    if (!make(&j))
        bail("no plan");
    for (int i = 0; i < 3; i++) { /* from the second one on it goes the fast lane */
        renew(&j);
        for (uint32_t r = 0; r < n; r++) {
            submit(&j, r, 1, 1);
            outstanding[r]++;
        }
        if (!finish(&p, 1, outstanding, n) || !right(&j, why, sizeof(why)))
            bail("a plain run fails");
    }
    renew(&j);
    j.view[n - 1].sig++;
    for (uint32_t r = 0; r < n; r++) {
        submit(&j, r, 1, 1);
        outstanding[r]++;
    }
    ok(finish(&p, 1, outstanding, n), "runs whose signatures differ end");
    for (uint32_t r = 0; r < n; r++)
        mismatches += j.what[r] == OCCL_MISMATCH;
    is_int(mismatches, n, "with a mismatch on every rank");
    j.view[n - 1].sig--;
    renew(&j);
    for (uint32_t r = 0; r + 1 < n; r++) {
        submit(&j, r, 1, 1);
        outstanding[r]++;
    }
    for (uint64_t end = occl_host_clock_ns() + 20000000; occl_host_clock_ns() < end;)
        (void)poll_ranks(&p, 1, outstanding);
    for (uint32_t r = 0; r + 1 < n; r++)
        occl_cuda_drop(&dev[r], (uint64_t)(uintptr_t)j.dev_run[r]);
    ok(finish(&p, 1, outstanding, n - 1), "runs whose peer does not come end when they are withdrawn");
    is_int(j.what[0], OCCL_DROPPED, "and say so");
    /* the late rank's run of this number is withdrawn, too; then all goes on */
    submit(&j, n - 1, 1, 1);
    outstanding[n - 1]++;
    occl_cuda_drop(&dev[n - 1], (uint64_t)(uintptr_t)j.dev_run[n - 1]);
    ok(finish(&p, 1, outstanding, 1), "a withdrawal right behind its submission is heard");
    renew(&j);
    for (uint32_t r = 0; r < n; r++) {
        submit(&j, r, 1, 1);
        outstanding[r]++;
    }
    ok(finish(&p, 1, outstanding, n) && right(&j, why, sizeof(why)), "and the next run of the tag is right");
    unmake(&j);
}

/* Small runs whose peers come at once, a little late, or when the fast lane has given up; with and without others in between. */
static void test_late(int rounds)
{
    char why[200] = "";
    for (uint32_t two = 0; two < 2; two++)
        for (int i = 0; occl_planners[i]; i++) {
            uint32_t outstanding[MAX_RANKS] = {0}, n = nranks_open, over = 0;
            job_t jobs[2], *list[2] = {&jobs[0], &jobs[1]};
            int good = 1;
            if (!(occl_planners[i]->moves & 1) || !has_job(occl_planners[i]))
                continue;
            for (uint32_t k = 0; k <= two; k++) {
                job_t *j = list[k];
                memset(j, 0, sizeof(*j));
                j->planner = k ? occl_planner_find(OCCL_COLL_ALLREDUCE, "oneshot") : occl_planners[i];
                j->n = n;
                j->root = n - 1;
                j->type = k ? OCCL_T_F32 : OCCL_T_I32;
                j->op = OCCL_OP_SUM;
                j->count = k ? 300 : 3;
                j->channels = 1;
                j->geo = (occl_geometry_t){4096, 4};
                good &= make(j);
                if (!good)
                    break;
            }
            if (!good)
                continue;
            for (int t = 0; t < rounds && good; t++) {
                for (uint32_t k = 0; k <= two; k++)
                    renew(list[k]);
                for (uint32_t r = 0; r < n; r++) {
                    uint64_t end = occl_host_clock_ns() + (t % 3 ? rng() % 30000 : 0);
                    uint32_t first = two ? (uint32_t)(rng() % 2) : 0, rank = (r + (uint32_t)t) % n;
                    for (uint32_t k = 0; k <= two; k++) {
                        submit(list[k ^ first], rank, 1, 1);
                        outstanding[rank]++;
                    }
                    over = 0;
                    while (occl_host_clock_ns() < end)
                        over += poll_ranks(list, 1 + two, outstanding);
                }
                for (uint32_t r = over = 0; r < n; r++)
                    over += outstanding[r];
                good = finish(list, 1 + two, outstanding, over);
                for (uint32_t k = 0; k <= two && good; k++)
                    good = right(list[k], why, sizeof(why));
            }
            if (!ok(good, "%s/%s, small, peers early and late%s", occl_coll_name(occl_planners[i]->kind), occl_planners[i]->name,
                    two ? ", an all-reduce beside it" : ""))
                diag("%s", why);
            for (uint32_t k = 0; k <= two; k++)
                unmake(list[k]);
        }
}

/* Data that come in bulk where the architecture does that, with remainders, and where alignment forbids it. */
static void test_bulk(int small)
{
    static const struct {
        uint32_t type, op;
    } pairs[] = {{OCCL_T_F32, OCCL_OP_SUM}, {OCCL_T_BF16, OCCL_OP_SUM}, {OCCL_T_F64_I32, OCCL_OP_MAXLOC}, {OCCL_T_U8, OCCL_OP_MAX},
                 {OCCL_T_I64, OCCL_OP_BXOR}, {OCCL_T_F64, OCCL_OP_SUM}};
    static const struct {
        occl_collkind_t kind;
        const char *name;
    } what[] = {{OCCL_COLL_ALLREDUCE, "push"}, {OCCL_COLL_ALLREDUCE, "oneshot"}, {OCCL_COLL_ALLREDUCE, "twoshot"}, {OCCL_COLL_ALLGATHER, "direct"},
                {OCCL_COLL_ALLTOALL, "direct"}, {OCCL_COLL_BCAST, "direct"}};
    char why[200] = "";
    for (uint32_t w = 0; w < 6; w++) {
        int cases = 0, bad = 0;
        for (uint32_t i = 0; i < (small ? 1 : 6) && !bad; i++)
            for (uint32_t shift = 0; shift < (small ? 1 : 16) && !bad; shift += 4 + 4 * (shift == 4)) {
                job_t j;
                memset(&j, 0, sizeof(j));
                j.planner = occl_planner_find(what[w].kind, what[w].name);
                j.move = OCCL_MOVE_EXPOSED;
                j.n = nranks_open;
                j.type = pairs[i].type;
                j.op = pairs[i].op;
                j.eb = occl_dev_type_bytes(j.type);
                j.count = (small ? 60000 : 600000) / j.eb + 1 + rng() % 50;
                j.channels = 1 + i % dev[0].nchannels;
                j.in_place = i & 1 && what[w].kind != OCCL_COLL_ALLTOALL;
                j.shift = shift;
                j.geo = small_slots;
                j.chunk = (small ? 20000 : 100000) / j.eb;
                bad = run_job(&j, 2, why, sizeof(why)) != 1;
                cases++;
                if (bad) {
                    ok(0, "%s/%s, %s of %s, shift %u", occl_coll_name(what[w].kind), what[w].name, op_name[j.op], type_name[j.type], shift);
                    diag("%s", why);
                }
            }
        if (!bad)
            ok(1, "%s/%s, exposed, large, on %u ranks: right in %d cases", occl_coll_name(what[w].kind), what[w].name, nranks_open, cases);
    }
}

/* --- bench ------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bench_latency(uint32_t n, const char *planner, uint32_t channels, uint64_t bytes, occl_movement_t move, int plain)
{
    enum { WARM = 200, N = 2000 };
    static double v[N], first[N];
    uint32_t outstanding[MAX_RANKS] = {0};
    uint64_t launches = 0, l0 = 0;
    job_t j, *p = &j;
    char why[200] = "";
    memset(&j, 0, sizeof(j));
    j.planner = occl_planner_find(OCCL_COLL_ALLREDUCE, planner);
    j.move = move;
    j.n = n;
    j.type = OCCL_T_F32;
    j.op = OCCL_OP_SUM;
    j.count = bytes / 4;
    j.channels = channels;
    j.plain = (uint32_t)plain;
    j.geo = (occl_geometry_t){(uint32_t)((2 * (bytes / channels) + 32 + 63) / 64 * 64), 4};
    if (move == OCCL_MOVE_EXPOSED)
        j.chunk = 65536 / 4;
    if (!make(&j)) {
        printf("| %s %u ranks: no plan |\n", planner, n);
        return;
    }
    renew(&j);
    for (int i = 0; i < WARM + N; i++) {
        double t0, t1 = 0, t2;
        uint32_t over = 0;
        uint64_t end;
        for (end = occl_host_clock_ns() + 3000 + rng() % 2000; occl_host_clock_ns() < end;)
            ;
        if (i == WARM)
            for (uint32_t r = 0; r < n; r++)
                l0 += dev[r].launches;
        t0 = (double)occl_host_clock_ns();
        for (uint32_t r = 0; r < n; r++) {
            j.done[r] = 0;
            submit(&j, r, channels, 1);
            outstanding[r]++;
        }
        t1 = (double)occl_host_clock_ns();
        end = (uint64_t)t0 + 2000000000u;
        while (over < n && occl_host_clock_ns() < end)
            over += poll_ranks(&p, 1, outstanding);
        t2 = (double)occl_host_clock_ns();
        if (over < n) {
            printf("| %s %u ranks %llu B: stuck |\n", planner, n, (unsigned long long)bytes);
            show_stuck(&j);
            exit(1);
        }
        if (i >= WARM) {
            v[i - WARM] = (t2 - t0) * 1e-3;
            first[i - WARM] = (t1 - t0) * 1e-3;
        }
        j.run++;
    }
    for (uint32_t r = 0; r < n; r++)
        launches += dev[r].launches;
    qsort(v, N, sizeof(*v), by_value);
    qsort(first, N, sizeof(*first), by_value);
    printf("| %-8s %-7s | %u | %8llu | %2u | %8.2f | %8.2f | %8.2f | %5.2f | %llu | %s |\n", planner, move ? "exposed" : j.words ? "words" : "slots", n,
           (unsigned long long)bytes, channels, v[N / 2], v[N / 10], v[N * 9 / 10], first[N / 2], (unsigned long long)(launches - l0),
           right(&j, why, sizeof(why)) ? "right" : why);
    fflush(stdout);
    unmake(&j);
}

/* Many tags at once: submissions a second. */
static void bench_burst(uint32_t n, uint32_t tags)
{
    job_t *jobs[64];
    uint32_t outstanding[MAX_RANKS] = {0};
    double v[64];
    for (uint32_t i = 0; i < tags; i++) {
        job_t *j = jobs[i] = calloc(1, sizeof(*j));
        j->planner = occl_planner_find(OCCL_COLL_ALLREDUCE, "oneshot");
        j->n = n;
        j->type = OCCL_T_F32;
        j->op = OCCL_OP_SUM;
        j->count = 2;
        j->channels = 1;
        j->geo = small_slots;
        if (!make(j))
            bail("no plan");
        renew(j);
    }
    for (int t = 0; t < 64; t++) {
        double t0 = (double)occl_host_clock_ns();
        for (uint32_t i = 0; i < tags; i++)
            for (uint32_t r = 0; r < n; r++) {
                submit(jobs[i], r, 1, 1);
                outstanding[r]++;
            }
        if (!finish(jobs, tags, outstanding, n * tags))
            exit(1);
        v[t] = ((double)occl_host_clock_ns() - t0) * 1e-3 / tags;
        for (uint32_t i = 0; i < tags; i++)
            jobs[i]->run++;
    }
    qsort(v, 64, sizeof(*v), by_value);
    printf("| %u tags at once, 8 B, %u ranks: %.2f us each (p10 %.2f, p90 %.2f) |\n", tags, n, v[32], v[6], v[57]);
    for (uint32_t i = 0; i < tags; i++) {
        unmake(jobs[i]);
        free(jobs[i]);
    }
}

static void bench_bandwidth(occl_collkind_t kind, const char *planner, uint32_t n, uint32_t channels, uint64_t bytes, uint64_t chunk_bytes)
{
    enum { N = 9 };
    double v[N], moved = (double)bytes * 2 * n;
    uint32_t outstanding[MAX_RANKS] = {0};
    job_t j, *p = &j;
    char why[200] = "";
    memset(&j, 0, sizeof(j));
    j.planner = occl_planner_find(kind, planner);
    j.move = OCCL_MOVE_EXPOSED;
    j.n = n;
    j.type = OCCL_T_F32;
    j.op = OCCL_OP_SUM;
    j.count = bytes / 4 / (kind == OCCL_COLL_ALLREDUCE || kind == OCCL_COLL_BCAST ? 1 : n);
    j.channels = channels;
    j.geo = small_slots;
    j.chunk = chunk_bytes / 4;
    if (!j.planner || !make(&j))
        return;
    renew(&j);
    for (int i = 0; i < N; i++) {
        uint64_t t0 = occl_host_clock_ns();
        for (uint32_t r = 0; r < n; r++) {
            submit(&j, r, channels, 1);
            outstanding[r]++;
        }
        if (!finish(&p, 1, outstanding, n))
            exit(1);
        v[i] = (double)(occl_host_clock_ns() - t0) * 1e-3;
        j.run++;
    }
    qsort(v, N, sizeof(*v), by_value);
    /* read and written, each byte of each rank's buffers once; of a bcast what the leaves read and write */
    if (kind == OCCL_COLL_BCAST)
        moved = (double)bytes * 2 * (n - 1);
    if (kind == OCCL_COLL_REDUCE_SCATTER_BLOCK)
        moved = (double)bytes * (n + 1);
    printf("| %-14s %-7s | %u | %10llu | %2u | %8llu | %9.1f | %9.1f | %9.1f | %7.2f TB/s | %s |\n", occl_coll_name(kind), planner, n, (unsigned long long)bytes,
           channels, (unsigned long long)chunk_bytes, v[N / 2], v[0], v[N - 1], moved / v[N / 2] * 1e-6,
           right(&j, why, sizeof(why)) ? "right" : why);
    fflush(stdout);
    unmake(&j);
}

/* least: channels to begin with */
static void bench_bandwidths(uint32_t least)
{
    occl_sched_conf_t conf = usual;
    conf.linger_ns = 1000000;
    conf.residence_ns = 2000000000;
    printf("| algorithm | ranks | bytes | channels | chunk | median us | best | worst | traffic | result |\n");
    for (uint32_t ch = least; ch <= OCCL_CHANNELS_MAX; ch *= 2) {
        static const uint64_t sizes[] = {1 << 20, 16 << 20, 256 << 20};
        open_ranks(4, ch, 256, 1, &conf);
        for (int i = 0; i < 3; i++)
            for (uint64_t chunk = 262144; chunk <= 4194304; chunk *= 4)
                if ((i == 2) == (chunk > 1048576) || chunk == 1048576)
                    bench_bandwidth(OCCL_COLL_ALLREDUCE, "push", 4, ch, sizes[i], chunk);
        bench_bandwidth(OCCL_COLL_ALLREDUCE, "twoshot", 4, ch, 256u << 20, 1u << 20);
        if (ch == OCCL_CHANNELS_MAX) {
            bench_bandwidth(OCCL_COLL_ALLGATHER, "direct", 4, ch, 64u << 20, 1u << 20);
            bench_bandwidth(OCCL_COLL_ALLTOALL, "direct", 4, ch, 64u << 20, 1u << 20);
            bench_bandwidth(OCCL_COLL_BCAST, "direct", 4, ch, 64u << 20, 1u << 20);
            bench_bandwidth(OCCL_COLL_REDUCE_SCATTER_BLOCK, "twoshot", 4, ch, 64u << 20, 1u << 20);
        }
        close_ranks();
    }
}

static void bench_latencies(void)
{
    occl_sched_conf_t conf = usual;
    conf.linger_ns = 1000000;
    conf.residence_ns = 200000000;
    printf("all-reduce float, one process, one thread starts all ranks and waits for all; warm; us\n"
           "| algorithm | ranks | bytes | channels | median | p10 | p90 | starts | launches | result |\n");
    for (uint32_t lanes = 128; lanes <= 256; lanes *= 2) {
        open_ranks(4, 8, lanes, 1, &conf);
        printf("daemon of 8 blocks of %u lanes\n", lanes);
        for (uint32_t n = 1; n <= 4; n *= 2) {
            bench_latency(n, "oneshot", 1, 8, OCCL_MOVE_SLOTS, 0);
            bench_latency(n, "oneshot", 1, 8, OCCL_MOVE_SLOTS, 1);
            bench_latency(n, "oneshot", 1, 1024, OCCL_MOVE_SLOTS, 0);
            bench_latency(n, "oneshot", 1, 4096, OCCL_MOVE_SLOTS, 0);
            bench_latency(n, "oneshot", 1, 4096, OCCL_MOVE_SLOTS, 1);
            bench_latency(n, "oneshot", 8, 16384, OCCL_MOVE_SLOTS, 0);
            bench_latency(n, "twoshot", 8, 16384, OCCL_MOVE_SLOTS, 0);
            bench_latency(n, "oneshot", 8, 65536, OCCL_MOVE_SLOTS, 1);
            if (n > 1) {
                bench_latency(n, "twoshot", 8, 65536, OCCL_MOVE_SLOTS, 0);
                bench_latency(n, "twoshot", 8, 65536, OCCL_MOVE_EXPOSED, 1);
            }
        }
        close_ranks();
    }
    open_ranks(4, 1, 128, 1, &conf);
    printf("daemon of 1 block of 128 lanes\n");
    bench_latency(4, "oneshot", 1, 8, OCCL_MOVE_SLOTS, 0);
    bench_burst(4, 1);
    bench_burst(4, 8);
    bench_burst(4, 32);
    close_ranks();
}

/* --- trace: a build with -DOCCL_TRACING ------------------------------------------------------------------------------ */

#define TRACE_LEN 8192
/* The commonest sequence of places from one "taken" (1) to the next, and the median time of each. */
static void trace(uint32_t n, uint64_t bytes, int plain)
{
    enum { MOST = 64, RUNS = 512 };
    static uint64_t t[TRACE_LEN];
    static double at[RUNS][MOST], one[RUNS];
    static char seq[RUNS][MOST + 1];
    uint32_t runs = 0, best = 0, best_n = 0;
    uint32_t outstanding[MAX_RANKS] = {0};
    uint64_t *buf = device_memory(sizeof(t));
    occl_chan_t ch;
    job_t j, *p = &j;
    memset(&j, 0, sizeof(j));
    j.planner = occl_planner_find(OCCL_COLL_ALLREDUCE, "oneshot");
    j.n = n;
    j.type = OCCL_T_F32;
    j.op = OCCL_OP_SUM;
    j.count = bytes / 4;
    j.channels = 1;
    j.plain = (uint32_t)plain;
    j.geo = (occl_geometry_t){16384, 4};
    if (!make(&j))
        bail("no plan");
    renew(&j);
    while (!occl_cuda_is_out(&dev[0], NULL))
        usleep(100);
    usleep(1000);
    download(&ch, &dev[0].chan[0], sizeof(ch));
    ch.trace = buf;
    ch.traced = 0;
    upload(&dev[0].chan[0], &ch, __builtin_offsetof(occl_chan_t, inbox));
    for (int i = 0; i < 200; i++) {
        for (uint64_t end = occl_host_clock_ns() + 8000 + rng() % 2000; occl_host_clock_ns() < end;)
            ;
        for (uint32_t r = 0; r < n; r++) {
            submit(&j, (r + 1) % n, 1, 1);
            outstanding[r]++;
        }
        if (!finish(&p, 1, outstanding, n))
            exit(1);
        j.run++;
    }
    while (!occl_cuda_is_out(&dev[0], NULL))
        usleep(100);
    usleep(2000);
    download(&ch, &dev[0].chan[0], sizeof(ch));
    download(t, buf, sizeof(t));
    printf("trace of rank 0, %u ranks, %llu B%s: %llu marks\n", n, (unsigned long long)bytes, plain ? ", plain" : "",
           (unsigned long long)ch.traced);
    for (uint64_t last = ch.traced, i = last > TRACE_LEN ? last - TRACE_LEN : 0; i < last && runs < RUNS; i++) {
        uint64_t t0 = t[i % TRACE_LEN];
        uint32_t k = 0;
        if ((t0 & 0xff) != 1)
            continue;
        for (uint64_t m = i; m < last && k < MOST; m++) {
            uint64_t x = t[m % TRACE_LEN];
            if (m > i && ((x & 0xff) == 1 || (x & 0xff) == 12))
                break;
            at[runs][k] = (double)((x >> 8) - (t0 >> 8)) / 1.98;
            seq[runs][k++] = (char)('A' + (x & 0xff));
        }
        seq[runs++][k] = 0;
    }
    for (uint32_t i = 0; i < runs; i++) {
        uint32_t same = 0;
        for (uint32_t m = 0; m < runs; m++)
            same += !strcmp(seq[i], seq[m]);
        if (same > best_n) {
            best_n = same;
            best = i;
        }
    }
    for (uint32_t m = 0; runs && seq[best][m]; m++) {
        uint32_t k = 0;
        for (uint32_t i = 0; i < runs; i++)
            if (!strcmp(seq[i], seq[best]))
                one[k++] = at[i][m];
        qsort(one, k, sizeof(double), by_value);
        printf("  mark %2d at %7.0f ns\n", seq[best][m] - 'A', one[k / 2]);
    }
    printf("  (%u of %u runs go this way)\n", best_n, runs);
    unmake(&j);
    occl_cuda_free(&dev[0], buf);
}

int main(int argc, char **argv)
{
    occl_sched_conf_t brief = usual;
    const char *what = argc > 1 ? argv[1] : "all";
    occl_cuda_t probe;
    if (occl_cuda_open(0, 1, 32, 1, 2, &usual, &probe) != OCCL_OK)
        skip_all("no CUDA device: %s", probe.error);
    occl_cuda_close(&probe);
    if (!strcmp(what, "bench")) {
        bench_latencies();
        bench_bandwidths(8);
        return 0;
    }
    if (!strcmp(what, "latency")) {
        bench_latencies();
        return 0;
    }
    if (!strcmp(what, "bandwidth")) {
        bench_bandwidths(argc > 2 ? (uint32_t)atoi(argv[2]) : 8);
        return 0;
    }
    if (!strcmp(what, "trace")) {
        occl_sched_conf_t conf = usual;
        conf.linger_ns = 1000000;
        conf.residence_ns = 200000000;
        open_ranks(4, 2, 128, 1, &conf);
        trace(1, 8, 0);
        trace(2, 8, 0);
        trace(4, 8, 0);
        trace(4, 4096, 0);
        trace(2, 8, 1);
        close_ranks();
        return 0;
    }
    if (!strcmp(what, "small")) {
        open_ranks(2, 2, 128, 1, &usual);
        test_every_planner(1);
        test_failures();
        test_late(3);
        test_bulk(1);
        test_orders(6, 2, "small");
        close_ranks();
        return tap_done();
    }
    open_ranks(4, 3, 192, 1, &usual);
    test_every_planner(0);
    close_ranks();
    open_ranks(3, 1, 256, 1, &usual);
    test_every_op();
    test_failures();
    test_bulk(0);
    close_ranks();
    open_ranks(4, 4, 128, 1, &usual);
    test_late(24);
    test_orders(8, 30, "daemons stay");
    close_ranks();
    brief.linger_ns = 5000;
    brief.residence_ns = 60000;
    open_ranks(4, 4, 128, 1, &brief);
    test_orders(8, 30, "daemons leave all the time");
    test_orders(90, 3, "more than a channel's table holds, so runs are parked");
    close_ranks();
    open_ranks(4, 8, 128, 8, &usual);
    test_orders(8, 5, "blocks in clusters of 8");
    close_ranks();
    open_ranks(8, 2, 128, 1, &usual);
    test_orders(16, 5, "eight ranks");
    close_ranks();
    open_ranks(MAX_RANKS, 2, 64, 1, &usual);
    test_many_ranks();
    close_ranks();
    return tap_done();
}
