/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Training with data and tensor parallelism on real data, where no rank keeps anybody's order.
 *
 *     mpiexec -n 4 train_digits
 *
 * A network of 64 inputs (an 8 x 8 image), 64 hidden units and 10 outputs learns handwritten digits. Four ranks are a
 * 2 x 2 grid:
 *
 *                        first half of          second half of
 *                        the hidden units       the hidden units
 *     half of a batch    rank 0  <--- row --->  rank 1
 *                          ^                      ^
 *                       column                 column
 *                          v                      v
 *     other half         rank 2  <--- row --->  rank 3
 *
 * Forward, a row adds up its halves of the outputs: one all-reduce for each micro-batch. Backward, a column adds up the
 * gradients of its halves of the batch: one all-reduce for each piece of the weights; at the same time the rows add
 * up the weights' norms. Every rank is in a row and in a column, and every rank starts all these in a fresh random
 * order in every step, and waits for them in another.
 *
 * With MPI's own nonblocking collectives that is wrong: MPI matches them by the order in which they are started on a
 * communicator (try --backend mpi). Here they match by tag. The program trains twice, once with everybody in the same
 * order and once at random, and compares the weights bit for bit.
 *
 * --device cuda: the buffers that are added up lie in the memory of a GPU, and the GPU adds; the network stays on the processor.
 */
#include <math.h>
#include <mpi.h>
#include <mpix_occl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if TRAIN_DIGITS_CUDA
#include <cuda_runtime_api.h>
#endif

#ifndef TRAIN_DIGITS_DATA
#define TRAIN_DIGITS_DATA "optdigits.txt"
#endif

enum { PIXELS = 64, HIDDEN = 64, DIGITS = 10 };
enum { BATCH = 96, MICRO = 4 };  /* images a step; a column's share is worked on in so many micro-batches */
enum { W1_PIECES = 4 };          /* the gradient of the first layer travels in so many pieces */
enum { MAX_IMAGES = 4096 };
static const float LEARNING_RATE = 0.12f, MOMENTUM = 0.9f;

/* --- this program's ranks and options ------------------------------------------------------------------------------ */

static int rank, size;
static int nrows, ncols;      /* of the grid: data-parallel, tensor-parallel */
static int my_row, my_col;
static MPI_Comm row, column;  /* the ranks of my row; of my column */
static int use_mpi;           /* --backend mpi */
static int use_gpu;           /* --device cuda */
static int steps = 450, deadline;
static unsigned long long seed = 1;
static const char *data_file;
static volatile int in_random_order;

/* --- how it ends when it fails -------------------------------------------------------------------------------------- */

static const char mpi_lesson[] =
    "MPI matches collectives by the order in which each rank starts them on a communicator, so random orders pair\n"
    "different layers' gradients: wrong sums, truncated messages or a hang. Collectives that match by tag do not care:\n"
    "run it without --backend mpi.\n";

/* One rank should speak: the others give rank 0 a second to do so and to end the run. */
static void give_up(const char *what)
{
    if (rank)
        sleep(1);
    fprintf(stderr, "\ntrain_digits: rank %d: %s\n%s", rank, what, use_mpi && in_random_order ? mpi_lesson : "");
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

static void check(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING + 100];
    int len, n;

    if (rc == MPI_SUCCESS)
        return;
    n = snprintf(text, 100, "%s failed: ", what);
    MPI_Error_string(rc, text + n, &len);
    give_up(text);
}

/* A step took longer than the deadline: in a signal handler, so only write and _exit. */
static void too_late(int sig)
{
    static const char mpi_hang[] = "\ntrain_digits: no step was finished within the deadline: it hangs.\n";
    static const char our_hang[] = "\ntrain_digits: no step was finished within the deadline. Either the machine is very "
                                   "busy (see --deadline) or this is a fault.\n";
    ssize_t n = 0;

    (void)sig;
    if (rank)
        sleep(1);
    if (use_mpi) {
        n += write(2, mpi_hang, sizeof mpi_hang - 1);
        if (in_random_order)
            n += write(2, mpi_lesson, sizeof mpi_lesson - 1);
    } else
        n += write(2, our_hang, sizeof our_hang - 1);
    _exit(n > 0 ? 1 : 2);
}

/* --- random numbers -------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* A random order of 0 ... n - 1 that depends on the key alone */
static void shuffle(int *order, int n, uint64_t key)
{
    for (int i = 0; i < n; i++) {
        int j = (int)((key = mix(key)) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
}

/* --- the GPU ---------------------------------------------------------------------------------------------------------- */

#if TRAIN_DIGITS_CUDA
static cudaStream_t stream;

static void gpu_check(cudaError_t e, const char *what)
{
    char text[256];

    if (e == cudaSuccess)
        return;
    snprintf(text, sizeof text, "%s failed: %s", what, cudaGetErrorString(e));
    give_up(text);
}

/* NULL, or why there is no GPU. Ranks are dealt to the GPUs of the node. */
static const char *gpu_open(void)
{
    MPI_Comm node;
    int local, n = 0;

    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0)
        return "no GPU or no driver here";
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);
    gpu_check(cudaSetDevice(local % n), "cudaSetDevice");
    gpu_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return NULL;
}

static float *gpu_alloc(int count)
{
    void *p = NULL;

    gpu_check(cudaMalloc(&p, (size_t)count * sizeof(float)), "cudaMalloc");
    return p;
}

static void gpu_free(float *p) { gpu_check(cudaFree(p), "cudaFree"); }

static void gpu_copy(float *to, const float *from, int count)
{
    gpu_check(cudaMemcpyAsync(to, from, (size_t)count * sizeof(float), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    gpu_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}
#else
static const char *gpu_open(void) { return "built without CUDA"; }
static float *gpu_alloc(int count) { return calloc((size_t)count, sizeof(float)); }
static void gpu_free(float *p) { free(p); }
static void gpu_copy(float *to, const float *from, int count) { memcpy(to, from, (size_t)count * sizeof(float)); }
#endif

/* --- collectives: all of them add up a buffer in place ---------------------------------------------------------------- */

typedef struct sum {
    float *buf;
    float *shared;       /* what is added up: buf itself, or memory of the GPU */
    int count, tag;
    MPI_Comm comm;
    MPIX_Occl_Coll coll; /* ours: registered once, started in every step */
    MPI_Request request; /* --backend mpi */
} sum_t;

static void sum_make(sum_t *s, float *buf, int count, int tag, MPI_Comm comm)
{
    *s = (sum_t){.buf = buf, .count = count, .tag = tag, .comm = comm, .request = MPI_REQUEST_NULL};
    s->shared = use_gpu ? gpu_alloc(count) : buf;
    if (!use_mpi) /* local: no other rank need register it now, or in this order */
        check(MPIX_Occl_allreduce_init(MPI_IN_PLACE, s->shared, count, MPI_FLOAT, MPI_SUM, tag, comm, MPI_INFO_NULL, &s->coll),
              "MPIX_Occl_allreduce_init");
}

static void sum_start(sum_t *s)
{
    if (use_gpu)
        gpu_copy(s->shared, s->buf, s->count);
    if (use_mpi) /* MPI has no tag for collectives */
        check(MPI_Iallreduce(MPI_IN_PLACE, s->buf, s->count, MPI_FLOAT, MPI_SUM, s->comm, &s->request), "MPI_Iallreduce");
    else
        check(MPIX_Occl_start(s->coll, MPIX_OCCL_NO_REQUEST), "MPIX_Occl_start");
}

static void sum_wait(sum_t *s)
{
    if (use_mpi)
        check(MPI_Wait(&s->request, MPI_STATUS_IGNORE), "MPI_Wait");
    else
        check(MPIX_Occl_coll_wait(s->coll), "MPIX_Occl_coll_wait");
    if (use_gpu)
        gpu_copy(s->buf, s->shared, s->count);
}

static void sum_free(sum_t *s)
{
    if (!use_mpi)
        check(MPIX_Occl_coll_free(&s->coll), "MPIX_Occl_coll_free");
    if (use_gpu)
        gpu_free(s->shared);
}

/* --- data -------------------------------------------------------------------------------------------------------------- */

static struct {
    int n, ntrain; /* every fifth image is for the test */
    unsigned char digit[MAX_IMAGES];
    float pixel[MAX_IMAGES][PIXELS];
    int train[MAX_IMAGES], test[MAX_IMAGES];
} data;

static void read_data(void)
{
    char line[256];
    FILE *f = rank ? NULL : fopen(data_file, "r");

    if (rank == 0 && !f)
        give_up("cannot read the data file; name it by --data FILE");
    while (f && fgets(line, sizeof line, f) && data.n < MAX_IMAGES) {
        if (line[0] == '#' || strlen(line) < PIXELS + 2)
            continue;
        for (int i = 0; i < PIXELS; i++) {
            int c = line[i], v = c <= '9' ? c - '0' : c - 'a' + 10;
            if (v < 0 || v > 16)
                give_up("the data file has a pixel that is not 0 to g");
            data.pixel[data.n][i] = (float)v / 16.0f;
        }
        data.digit[data.n++] = (unsigned char)(line[PIXELS + 1] - '0');
    }
    if (f)
        fclose(f);
    MPI_Bcast(&data.n, 1, MPI_INT, 0, MPI_COMM_WORLD); /* MPI's own collectives work beside ours, as ever */
    MPI_Bcast(data.pixel, data.n * PIXELS, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Bcast(data.digit, data.n, MPI_UNSIGNED_CHAR, 0, MPI_COMM_WORLD);
    if (data.n < 2 * BATCH)
        give_up("the data file has too few images");
    int order[MAX_IMAGES];
    shuffle(order, data.n, mix(2024)); /* the same split for every seed */
    for (int i = 0; i < data.n; i++)
        if (i % 5 == 4)
            data.test[i / 5] = order[i];
        else
            data.train[data.ntrain++] = order[i];
}

/* --- the network: my columns of the hidden layer ------------------------------------------------------------------------ */

static int units; /* my hidden units */

/* All parameters of a rank in one array, and so their gradients */
static float *w1(float *p) { return p; }                                   /* [PIXELS][units] */
static float *b1(float *p) { return p + PIXELS * units; }                  /* [units] */
static float *w2(float *p) { return p + (PIXELS + 1) * units; }            /* [units][DIGITS] */
static float *b2(float *p) { return p + (PIXELS + 1 + DIGITS) * units; }   /* [DIGITS]: the same on a whole row */
static int params(void) { return (PIXELS + 1 + DIGITS) * units + DIGITS; }

typedef struct net {
    float *weight, *gradient, *velocity;
    float hidden[BATCH][HIDDEN], output[BATCH][DIGITS]; /* of my images */
    int image[BATCH];
} net_t;

static float uniform(uint64_t key) { return (float)(int64_t)(mix(key) >> 40) / (float)(1 << 23) - 1.0f; }

/* A weight depends on its place in the whole network, not on who holds it */
static void net_init(net_t *n)
{
    for (int u = 0; u < units; u++) {
        int whole = my_col * HIDDEN / ncols + u;
        for (int i = 0; i < PIXELS; i++)
            w1(n->weight)[i * units + u] = 0.2f * uniform(mix(seed) + (uint64_t)(i * HIDDEN + whole));
        b1(n->weight)[u] = 0.0f;
        for (int d = 0; d < DIGITS; d++)
            w2(n->weight)[u * DIGITS + d] = 0.2f * uniform(mix(seed + 1) + (uint64_t)(whole * DIGITS + d));
    }
    for (int d = 0; d < DIGITS; d++)
        b2(n->weight)[d] = 0.0f;
    memset(n->velocity, 0, (size_t)params() * sizeof(float));
}

/* Images from .. to - 1 of mine: hidden units, and my part of the outputs */
static void forward(net_t *n, int from, int to)
{
    for (int b = from; b < to; b++) {
        const float *x = data.pixel[n->image[b]];
        float *h = n->hidden[b], *o = n->output[b];

        for (int u = 0; u < units; u++)
            h[u] = b1(n->weight)[u];
        for (int i = 0; i < PIXELS; i++)
            for (int u = 0; u < units; u++)
                h[u] += x[i] * w1(n->weight)[i * units + u];
        for (int u = 0; u < units; u++)
            h[u] = h[u] > 0.0f ? h[u] : 0.0f;
        for (int d = 0; d < DIGITS; d++)
            o[d] = my_col == 0 ? b2(n->weight)[d] : 0.0f; /* once in a row */
        for (int u = 0; u < units; u++)
            for (int d = 0; d < DIGITS; d++)
                o[d] += h[u] * w2(n->weight)[u * DIGITS + d];
    }
}

/* From the whole outputs of image b: its loss, whether it is right, and (in place of the outputs) what they should change */
static float judge(net_t *n, int b, int *right)
{
    float *o = n->output[b], most = o[0], sum = 0.0f, loss;
    int digit = data.digit[n->image[b]], best = 0;

    for (int d = 1; d < DIGITS; d++)
        if (o[d] > most) {
            most = o[d];
            best = d;
        }
    *right += best == digit;
    for (int d = 0; d < DIGITS; d++)
        sum += o[d] = expf(o[d] - most);
    for (int d = 0; d < DIGITS; d++)
        o[d] /= sum;
    loss = -logf(o[digit] + 1e-30f);
    o[digit] -= 1.0f;
    return loss;
}

static void backward(net_t *n, int images)
{
    memset(n->gradient, 0, (size_t)params() * sizeof(float));
    for (int b = 0; b < images; b++) {
        const float *x = data.pixel[n->image[b]], *h = n->hidden[b], *o = n->output[b];
        float dh[HIDDEN];

        for (int d = 0; d < DIGITS; d++)
            b2(n->gradient)[d] += o[d];
        for (int u = 0; u < units; u++) {
            float s = 0.0f;
            for (int d = 0; d < DIGITS; d++) {
                w2(n->gradient)[u * DIGITS + d] += h[u] * o[d];
                s += o[d] * w2(n->weight)[u * DIGITS + d];
            }
            dh[u] = h[u] > 0.0f ? s : 0.0f;
            b1(n->gradient)[u] += dh[u];
        }
        for (int i = 0; i < PIXELS; i++)
            for (int u = 0; u < units; u++)
                w1(n->gradient)[i * units + u] += x[i] * dh[u];
    }
}

static void update(net_t *n, const float *gradient, int count)
{
    long at = gradient - n->gradient;

    for (long i = at; i < at + count; i++) {
        n->velocity[i] = MOMENTUM * n->velocity[i] - LEARNING_RATE * (n->gradient[i] / BATCH);
        n->weight[i] += n->velocity[i];
    }
}

static float norm2(const float *v, int count)
{
    float s = 0.0f;

    for (int i = 0; i < count; i++)
        s += v[i] * v[i];
    return s;
}

/* --- training ---------------------------------------------------------------------------------------------------------- */

/* Part p of n things dealt to `parts`: where it begins */
static int part(int n, int parts, int p) { return (int)((long)n * p / parts); }

/* Which order this rank takes, for this step and purpose */
static void take_order(int *order, int n, int at_random, int step, int purpose)
{
    if (at_random)
        shuffle(order, n, mix(mix(seed + 77) ^ mix((uint64_t)step * 4 + (uint64_t)purpose) ^ mix((uint64_t)rank + 1000)));
    else
        for (int i = 0; i < n; i++)
            order[i] = i;
}

/* Trains from scratch into n->weight; *accuracy_p is of the test images. Returns the seconds that it took. */
static double train(net_t *n, int at_random, double *accuracy_p)
{
    enum { STATS, NORM1, NORM2, GRADIENTS }; /* then the gradients: pieces of w1, then b1, w2, b2 */
    const int images = part(BATCH, nrows, my_row + 1) - part(BATCH, nrows, my_row);
    const int per_epoch = data.ntrain / BATCH;
    sum_t outputs[MICRO], sums[GRADIENTS + W1_PIECES + 3];
    int nsums = GRADIENTS, order[MAX_IMAGES], epoch_order[MAX_IMAGES];
    float stats[2] = {0, 0}, norm[2] = {0, 0};
    double began = MPI_Wtime(), loss = 0, right = 0;

    in_random_order = at_random;
    net_init(n);
    for (int m = 0; m < MICRO; m++) {
        int from = part(images, MICRO, m), to = part(images, MICRO, m + 1);
        sum_make(&outputs[m], n->output[from], (to - from) * DIGITS, m, row);
    }
    sum_make(&sums[STATS], stats, 2, 100, column);
    sum_make(&sums[NORM1], &norm[0], 1, 101, row);
    sum_make(&sums[NORM2], &norm[1], 1, 102, row);
    for (int k = 0; k < W1_PIECES; k++) {
        int from = part(PIXELS, W1_PIECES, k), to = part(PIXELS, W1_PIECES, k + 1);
        sum_make(&sums[nsums++], w1(n->gradient) + from * units, (to - from) * units, 200 + k, column);
    }
    sum_make(&sums[nsums++], b1(n->gradient), units, 210, column);
    sum_make(&sums[nsums++], w2(n->gradient), units * DIGITS, 211, column);
    sum_make(&sums[nsums++], b2(n->gradient), DIGITS, 212, column);

    for (int step = 0; step < steps; step++) {
        int correct = 0;
        float lost = 0.0f;

        alarm((unsigned)deadline);
        if (step % per_epoch == 0) /* the same on all ranks */
            shuffle(epoch_order, data.ntrain, mix(seed + 5) + (uint64_t)(step / per_epoch));
        for (int b = 0; b < images; b++)
            n->image[b] = data.train[epoch_order[step % per_epoch * BATCH + part(BATCH, nrows, my_row) + b]];

        /* forward: micro-batches in my order, each row sum started as soon as my part is there */
        take_order(order, MICRO, at_random, step, 0);
        for (int k = 0; k < MICRO; k++) {
            int m = order[k];
            forward(n, part(images, MICRO, m), part(images, MICRO, m + 1));
            sum_start(&outputs[m]);
        }
        take_order(order, MICRO, at_random, step, 1);
        for (int k = 0; k < MICRO; k++)
            sum_wait(&outputs[order[k]]);
        for (int b = 0; b < images; b++)
            lost += judge(n, b, &correct);
        backward(n, images);
        stats[0] = lost;
        stats[1] = (float)correct;
        norm[0] = norm2(w1(n->weight), PIXELS * units);
        norm[1] = norm2(w2(n->weight), units * DIGITS);

        /* gradients down my column, norms along my row: all at once, in my order */
        take_order(order, nsums, at_random, step, 2);
        for (int k = 0; k < nsums; k++)
            sum_start(&sums[order[k]]);
        take_order(order, nsums, at_random, step, 3);
        for (int k = 0; k < nsums; k++) {
            sum_wait(&sums[order[k]]);
            if (order[k] >= GRADIENTS)
                update(n, sums[order[k]].buf, sums[order[k]].count);
        }

        loss += (double)stats[0];
        right += (double)stats[1];
        int every = per_epoch * 5;
        if ((step + 1) % every == 0 || step + 1 == steps) {
            int images_seen = ((step % every) + 1) * BATCH;
            if (rank == 0)
                printf("  step %4d  loss %.4f  training accuracy %5.1f %%  |w1| %.3f  |w2| %.3f\n", step + 1,
                       loss / images_seen, 100 * right / images_seen, sqrt((double)norm[0]), sqrt((double)norm[1]));
            fflush(stdout);
            loss = right = 0;
        }
    }
    double took = MPI_Wtime() - began;

    /* test: my row's part of the images, a batch at a time */
    int ntest = data.n - data.ntrain, from = part(ntest, nrows, my_row), to = part(ntest, nrows, my_row + 1), correct = 0;
    float whole[BATCH * DIGITS];
    sum_t test;

    in_random_order = 0;
    sum_make(&test, whole, BATCH * DIGITS, 300, row);
    for (int b = from; b < to; b += BATCH) {
        int m = to - b < BATCH ? to - b : BATCH;

        alarm((unsigned)deadline);
        memcpy(n->image, &data.test[b], (size_t)m * sizeof(int));
        forward(n, 0, m);
        memset(whole, 0, sizeof whole);
        memcpy(whole, n->output, (size_t)m * DIGITS * sizeof(float));
        sum_start(&test);
        sum_wait(&test);
        memcpy(n->output, whole, (size_t)m * DIGITS * sizeof(float));
        for (int k = 0; k < m; k++)
            judge(n, k, &correct);
    }
    sum_free(&test);
    stats[0] = 0;
    stats[1] = (float)correct;
    sum_start(&sums[STATS]);
    sum_wait(&sums[STATS]);
    alarm(0);
    *accuracy_p = 100.0 * (double)stats[1] / ntest;
    for (int m = 0; m < MICRO; m++)
        sum_free(&outputs[m]);
    for (int k = 0; k < nsums; k++)
        sum_free(&sums[k]);
    return took;
}

/* One number for the weights of all ranks */
static unsigned long long checksum(const float *weight)
{
    unsigned long long sum = 0, all;

    for (int i = 0; i < params(); i++) {
        uint32_t bits;
        memcpy(&bits, &weight[i], sizeof bits);
        sum += mix(((uint64_t)(rank * params() + i) << 32) + bits);
    }
    MPI_Allreduce(&sum, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* --- main --------------------------------------------------------------------------------------------------------------- */

static int usage(int status)
{
    if (rank == 0)
        fputs("Usage: mpiexec -n N train_digits [--backend occl|mpi] [--device host|cuda] [--steps N] [--seed S] [--data FILE] [--deadline S]\n"
              "Trains a network on handwritten digits, in order and then with every rank in its own random order, and\n"
              "compares the weights. --backend mpi does the same with MPI's own collectives, and fails.\n"
              "  --device cuda  what is added up lies in the memory of a GPU; exit status 77 if there is none\n"
              "  --steps N      training steps (450); below 200 the accuracy is not judged\n"
              "  --seed S       of weights, batches and orders (1)\n"
              "  --data FILE    the images (" TRAIN_DIGITS_DATA ")\n"
              "  --deadline S   seconds that one step may take at most (30; 5 with --backend mpi)\n",
              status ? stderr : stdout);
    MPI_Finalize();
    return status;
}

/* Where the data are: next to the program's source, or as installed beside the program */
static const char *find_data(const char *program)
{
    static char near[4096];
    const char *slash = strrchr(program, '/');

    if (access(TRAIN_DIGITS_DATA, R_OK) == 0)
        return TRAIN_DIGITS_DATA;
    snprintf(near, sizeof near, "%.*s/data/optdigits.txt", slash ? (int)(slash - program) : 1, slash ? program : ".");
    return access(near, R_OK) == 0 ? near : TRAIN_DIGITS_DATA;
}

int main(int argc, char **argv)
{
    double accuracy[2], took[2];
    unsigned long long sum;
    float *ordered;
    net_t *n;
    int same, failed = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        char *end = NULL;

        if (!strcmp(argv[i], "--help"))
            return usage(0);
        if (!value)
            return usage(2);
        if (!strcmp(argv[i], "--backend") && (!strcmp(value, "mpi") || !strcmp(value, "occl")))
            use_mpi = !strcmp(value, "mpi");
        else if (!strcmp(argv[i], "--device") && (!strcmp(value, "host") || !strcmp(value, "cuda")))
            use_gpu = !strcmp(value, "cuda");
        else if (!strcmp(argv[i], "--steps"))
            steps = (int)strtol(value, &end, 10);
        else if (!strcmp(argv[i], "--seed"))
            seed = strtoull(value, &end, 0);
        else if (!strcmp(argv[i], "--deadline"))
            deadline = (int)strtol(value, &end, 10);
        else if (!strcmp(argv[i], "--data"))
            data_file = value;
        else
            return usage(2);
        if ((end && *end) || steps < 1 || deadline < 0)
            return usage(2);
        i++;
    }
    if (use_mpi && use_gpu)
        return usage(2);
    if (!data_file)
        data_file = find_data(argv[0]);
    if (use_gpu) {
        const char *no = gpu_open();
        int have = no == NULL;

        MPI_Allreduce(MPI_IN_PLACE, &have, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        if (!have) {
            if (rank == 0)
                fprintf(stderr, "train_digits: %s\n", no ? no : "no GPU on another node");
            MPI_Finalize();
            return 77;
        }
    }
    if (!deadline)
        deadline = use_mpi ? 5 : 30;
    signal(SIGALRM, too_late);

    /* the grid: rows of two where the number of ranks is even */
    ncols = size % 2 ? 1 : 2;
    nrows = size / ncols;
    if (nrows > BATCH / MICRO)
        give_up("that many ranks have nothing to do: 48 are the most");
    my_row = rank / ncols;
    my_col = rank % ncols;
    units = HIDDEN / ncols;
    MPI_Comm_split(MPI_COMM_WORLD, my_row, my_col, &row);
    MPI_Comm_split(MPI_COMM_WORLD, my_col, my_row, &column);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* errors come back to check() */
    MPI_Comm_set_errhandler(row, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(column, MPI_ERRORS_RETURN);
    if (!use_mpi) {
        MPI_Info info;

        MPI_Info_create(&info);
        MPI_Info_set(info, "mpix_occl_device", use_gpu ? "cuda" : "host");
        check(MPIX_Occl_comm_attach(row, info), "MPIX_Occl_comm_attach");
        check(MPIX_Occl_comm_attach(column, info), "MPIX_Occl_comm_attach");
        MPI_Info_free(&info);
    }
    read_data();
    n = calloc(1, sizeof *n);
    ordered = malloc((size_t)params() * sizeof(float));
    if (!n || !ordered)
        give_up("no memory");
    n->weight = calloc((size_t)params(), sizeof(float));
    n->gradient = calloc((size_t)params(), sizeof(float));
    n->velocity = calloc((size_t)params(), sizeof(float));
    if (!n->weight || !n->gradient || !n->velocity)
        give_up("no memory");

    if (rank == 0) {
        printf("%d ranks as a grid of %d x %d: %d share a batch of %d images, %d share the %d hidden units.\n", size, nrows,
               ncols, nrows, BATCH, ncols, HIDDEN);
        printf("%d images for training, %d for the test; %d sums a step over rows and columns, by %s.\n", data.ntrain,
               data.n - data.ntrain, MICRO + 6 + W1_PIECES,
               use_mpi ? "MPI's own collectives" : use_gpu ? "MPIX_Occl on GPUs" : "MPIX_Occl");
        printf("1. Everybody in the same order:\n");
    }
    took[0] = train(n, 0, &accuracy[0]);
    memcpy(ordered, n->weight, (size_t)params() * sizeof(float));
    if (rank == 0) {
        printf("  test accuracy %.1f %%, %.1f s\n", accuracy[0], took[0]);
        printf("2. Every rank in its own random order, a new one in every step:\n");
        fflush(stdout);
    }
    took[1] = train(n, 1, &accuracy[1]);
    in_random_order = 1;
    if (rank == 0)
        printf("  test accuracy %.1f %%, %.1f s\n", accuracy[1], took[1]);

    same = memcmp(ordered, n->weight, (size_t)params() * sizeof(float)) == 0;
    MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    sum = checksum(n->weight);
    if (rank == 0 && same)
        printf("The weights are bit for bit those of the ordered run (checksum %016llx).\n", sum);
    if (rank == 0 && !same) {
        printf("The weights are NOT those of the ordered run (checksum %016llx).\n", sum);
        fflush(stdout);
        if (use_mpi)
            fputs(mpi_lesson, stderr);
    }
    failed = !same;
    if (same && steps >= 200 && accuracy[1] < 95.0) {
        failed = 1;
        if (rank == 0)
            printf("The test accuracy is below 95 %%.\n");
    }
    if (!use_mpi) {
        MPIX_Occl_comm_detach(row);
        MPIX_Occl_comm_detach(column);
    }
    MPI_Comm_free(&row);
    MPI_Comm_free(&column);
    free(n->weight);
    free(n->gradient);
    free(n->velocity);
    free(n);
    free(ordered);
    MPI_Finalize();
    return failed;
}
