/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When the CUDA device launches its daemon (src/device/cuda_device.c), over a driver and a GPU that this file plays with the rules
 * that were measured (doc/cuda.md): streams share a few hardware queues, and who waits for a word, or for what is before it in
 * its stream, holds up all that is behind it in its queue; cudaFree waits for all that is in the process's streams, and until
 * it returns every other launch of the process waits for it. No GPU, and no CUDA library.
 */
#include "../../src/device/cuda_device.c"

#include "tap.h"

#include <sched.h>
#include <unistd.h>

/* --- the GPU ------------------------------------------------------------------------------------------------------ */

enum { OPS = 1 << 16, RUNS = 1 << 16, LINGER_NS = 300000, QUEUES = 8, STREAMS = 32, OURS = 0 };
typedef struct op {
    enum { WAIT, DAEMON, WRITE, WAIT_KERNEL } kind;
    int stream;
    uint64_t *word, value;
} op_t;
typedef struct hw_queue {
    op_t op[OPS];
    uint64_t head, tail; /* under `gpu` */
    pthread_t thread;
} hw_queue_t;
typedef struct stream {
    uint64_t pending;    /* under `gpu`: what is in it */
    int queue;           /* where that is */
    const op_t *kernel;  /* what runs of it */
} stream_t;

static pthread_mutex_t gpu = PTHREAD_MUTEX_INITIALIZER; /* what the GPU knows */
static pthread_mutex_t api = PTHREAD_MUTEX_INITIALIZER; /* one call at a time; cudaFree has it until it returns */
static hw_queue_t queue[QUEUES];
static stream_t streams[STREAMS];
static int nqueues;
static occl_cuda_t *cuda;
static uint64_t work[RUNS], nwork, ndone, finished[RUNS], nfinished, npopped, quit_word;
static uint64_t stop, stays, idle_launches, ndaemons;

static uint64_t load(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

/* The leader: takes what there is, lingers, leaves unless it must stay; its last store says what it has seen. */
static void daemon_run(uint64_t launch)
{
    uint64_t moved = occl_host_clock_ns(), taken = 0;
    int any = 0;
    while (!load(&stop)) {
        (void)pthread_mutex_lock(&gpu);
        if (ndone < nwork) {
            while (ndone < nwork) {
                if (work[ndone % RUNS])
                    finished[nfinished++ % RUNS] = work[ndone % RUNS];
                ndone++;
            }
            any = 1;
            moved = occl_host_clock_ns();
        }
        taken = ndone;
        (void)pthread_mutex_unlock(&gpu);
        if (occl_host_clock_ns() - moved > LINGER_NS) {
            if (load(&cuda->front->stay) != launch)
                break;
            stays++;
            moved = occl_host_clock_ns();
        }
        (void)sched_yield();
    }
    idle_launches += !any;
    __atomic_store_n(&quit_word, launch << 32 | (taken & 0xffffffff), __ATOMIC_RELEASE);
}

static void *kernel_main(void *arg)
{
    op_t *op = arg;
    if (op->kind == DAEMON)
        daemon_run(op->value);
    while (op->kind == WAIT_KERNEL && load(op->word) < op->value && !load(&stop))
        usleep(20);
    (void)pthread_mutex_lock(&gpu);
    streams[op->stream].kernel = NULL;
    streams[op->stream].pending--;
    ndaemons--;
    (void)pthread_mutex_unlock(&gpu);
    return NULL;
}

/* A queue's front: one thing after the other; a kernel runs beside it, until the next thing of its stream. */
static void *queue_main(void *arg)
{
    hw_queue_t *q = arg;
    while (!load(&stop)) {
        op_t *op;
        int go;
        (void)pthread_mutex_lock(&gpu);
        op = q->head != q->tail ? &q->op[q->head % OPS] : NULL;
        go = op && !streams[op->stream].kernel && (op->kind != WAIT || load(op->word) >= op->value);
        if (go) {
            q->head++;
            if (op->kind == DAEMON || op->kind == WAIT_KERNEL) {
                pthread_t t;
                streams[op->stream].kernel = op;
                ndaemons++;
                if (pthread_create(&t, NULL, kernel_main, op) || pthread_detach(t))
                    bail("no thread");
            } else {
                if (op->kind == WRITE)
                    __atomic_store_n(op->word, op->value, __ATOMIC_RELEASE);
                streams[op->stream].pending--;
            }
        }
        (void)pthread_mutex_unlock(&gpu);
        if (!go)
            usleep(20);
    }
    return NULL;
}

/* A stream with nothing in it takes the queue that has least. */
static void stream_put(int stream, op_t op)
{
    stream_t *s = &streams[stream];
    (void)pthread_mutex_lock(&api);
    (void)pthread_mutex_lock(&gpu);
    if (!s->pending)
        for (int i = 0; i < nqueues; i++)
            if (queue[i].tail - queue[i].head < queue[s->queue].tail - queue[s->queue].head)
                s->queue = i;
    op.stream = stream;
    s->pending++;
    queue[s->queue].op[queue[s->queue].tail++ % OPS] = op;
    (void)pthread_mutex_unlock(&gpu);
    (void)pthread_mutex_unlock(&api);
}

/* Returns when all that was in the streams before it has been done. 0: it did not within 10 seconds. */
static int fake_cuda_free(void)
{
    uint64_t until = occl_host_clock_ns() + 10000000000u;
    int over = 0;
    (void)pthread_mutex_lock(&api);
    while (!over && occl_host_clock_ns() < until) {
        (void)pthread_mutex_lock(&gpu);
        over = 1; /* nobody can put anything in */
        for (int i = 0; i < STREAMS; i++)
            over &= !streams[i].pending;
        (void)pthread_mutex_unlock(&gpu);
        usleep(20);
    }
    (void)pthread_mutex_unlock(&api);
    return over;
}

/* --- what cuda.c and cuda_ipc.c would be -------------------------------------------------------------------------- */

int occl_cuda_current(char *err, size_t errlen)
{
    (void)err, (void)errlen;
    return 0;
}
occl_status_t occl_cuda_open(int device, uint32_t nchannels, uint32_t lanes, uint32_t cluster, uint32_t max_ranks,
                             const occl_sched_conf_t *conf, occl_cuda_t *cu)
{
    (void)device, (void)lanes, (void)cluster, (void)max_ranks, (void)conf;
    memset(cu, 0, sizeof(*cu));
    cu->nchannels = cu->grid = cu->most = nchannels;
    cu->shared_gpu = nqueues == 2;
    cu->front = calloc(1, sizeof(*cu->front));
    cuda = cu;
    for (int i = 0; i < nqueues; i++)
        if (pthread_create(&queue[i].thread, NULL, queue_main, &queue[i]))
            bail("no thread");
    return OCCL_OK;
}
void occl_cuda_close(occl_cuda_t *cu)
{
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < nqueues; i++)
        (void)pthread_join(queue[i].thread, NULL);
    while (load(&ndaemons))
        usleep(100);
    free(cu->front);
}
void occl_cuda_quiet(occl_cuda_t *cu) { (void)cu; }
void *occl_cuda_alloc(occl_cuda_t *cu, size_t bytes)
{
    void *p = NULL;
    (void)cu;
    return posix_memalign(&p, 64, bytes) ? NULL : p;
}
void occl_cuda_free(occl_cuda_t *cu, void *p) { (void)cu, free(p); }
void *occl_cuda_alloc_mapped(occl_cuda_t *cu, size_t bytes) { return (void)cu, calloc(1, bytes); }
void occl_cuda_free_mapped(occl_cuda_t *cu, void *p) { (void)cu, free(p); }
occl_status_t occl_cuda_export(occl_cuda_t *cu, void *p, unsigned char handle[64]) { return (void)cu, (void)p, (void)handle, OCCL_OK; }
occl_status_t occl_cuda_zero(occl_cuda_t *cu, void *p, size_t bytes, int done)
{
    (void)cu, (void)p, (void)bytes, (void)done;
    (void)pthread_mutex_lock(&api);
    (void)pthread_mutex_unlock(&api);
    return OCCL_OK;
}
occl_status_t occl_cuda_fill(occl_cuda_t *cu, void *p, size_t stride, uint32_t n, uint64_t value)
{
    return (void)cu, (void)p, (void)stride, (void)n, (void)value, OCCL_OK;
}
static void submit(occl_cuda_t *cu, uint64_t at)
{
    (void)pthread_mutex_lock(&gpu);
    work[nwork++ % RUNS] = at;
    cu->submitted = nwork;
    (void)pthread_mutex_unlock(&gpu);
}
void occl_cuda_put(occl_cuda_t *cu, const occl_dev_run_t *run, uint64_t at, uint32_t channels, uint32_t left, int fresh,
                   uint32_t nranks, const uint64_t *x, uint64_t far_x)
{
    (void)run, (void)channels, (void)left, (void)fresh, (void)nranks, (void)x, (void)far_x;
    submit(cu, at);
}
void occl_cuda_drop(occl_cuda_t *cu, uint64_t at) { (void)at, submit(cu, 0); }
void occl_cuda_load(occl_cuda_t *cu, uint64_t to, const void *mapped, uint64_t words)
{
    (void)to, (void)mapped, (void)words;
    submit(cu, 0);
}
uint64_t occl_cuda_pop(occl_cuda_t *cu, uint32_t *what_p)
{
    uint64_t at = 0;
    (void)cu;
    (void)pthread_mutex_lock(&gpu);
    if (npopped < nfinished)
        at = finished[npopped++ % RUNS];
    (void)pthread_mutex_unlock(&gpu);
    *what_p = OCCL_DONE;
    return at;
}
int occl_cuda_is_out(const occl_cuda_t *cu, int *seen_p)
{
    uint64_t q = load(&quit_word);
    if (seen_p)
        *seen_p = (uint32_t)q == (uint32_t)cu->submitted;
    return (uint32_t)(q >> 32) == (uint32_t)load(&cu->launches);
}
occl_status_t occl_cuda_launch_as(occl_cuda_t *cu, uint64_t number, uint32_t grid)
{
    (void)cu, (void)grid;
    stream_put(OURS, (op_t){.kind = DAEMON, .value = number});
    return OCCL_OK;
}
occl_status_t occl_cuda_stream_check(occl_cuda_t *cu, void *stream, char *err, size_t errlen)
{
    return (void)cu, (void)stream, (void)err, (void)errlen, OCCL_OK;
}
occl_status_t occl_cuda_stream_write(occl_cuda_t *cu, void *stream, uint64_t *word, uint64_t value)
{
    (void)cu;
    stream_put((int)(intptr_t)stream, (op_t){.kind = WRITE, .word = word, .value = value});
    return OCCL_OK;
}
occl_status_t occl_cuda_stream_wait(occl_cuda_t *cu, void *stream, uint64_t *word, uint64_t value, int kernel)
{
    (void)cu;
    stream_put((int)(intptr_t)stream, (op_t){.kind = kernel ? WAIT_KERNEL : WAIT, .word = word, .value = value});
    return OCCL_OK;
}
int occl_cuda_stream_idle(occl_cuda_t *cu, void *stream)
{
    int yes;
    (void)cu;
    (void)pthread_mutex_lock(&gpu);
    yes = !streams[(intptr_t)stream].pending;
    (void)pthread_mutex_unlock(&gpu);
    return yes;
}

struct occl_ipc {
    int nothing;
};
static occl_ipc_t no_ipc;
occl_status_t occl_ipc_create(int d, occl_arena_t *a, const occl_logger_t *l, occl_ipc_t **p, char *e, size_t n)
{
    (void)d, (void)a, (void)l, (void)e, (void)n;
    *p = &no_ipc;
    return OCCL_OK;
}
void occl_ipc_destroy(occl_ipc_t *i) { (void)i; }
uint64_t occl_ipc_table(const occl_ipc_t *i) { return (void)i, 0; }
occl_status_t occl_ipc_buffer(occl_ipc_t *i, const void *p, uint64_t b, int x, occl_buffer_t *f, char *e, size_t n)
{
    return (void)i, (void)p, (void)b, (void)x, (void)f, (void)e, (void)n, OCCL_OK;
}
void occl_ipc_buffer_free(occl_ipc_t *i, occl_buffer_t *b) { (void)i, (void)b; }
occl_status_t occl_ipc_peer_open(occl_ipc_t *i, const occl_far_desc_t *d, const void *a, int m, occl_ipc_peer_t **p, char *e, size_t n)
{
    return (void)i, (void)d, (void)a, (void)m, (void)p, (void)e, (void)n, OCCL_OK;
}
void occl_ipc_peer_close(occl_ipc_t *i, occl_ipc_peer_t *p) { (void)i, (void)p; }
unsigned char *occl_ipc_peer_base(const occl_ipc_peer_t *p) { return (void)p, NULL; }
const char *occl_ipc_peer_hides(const occl_ipc_peer_t *p) { return (void)p, NULL; }
int occl_ipc_resolve(occl_ipc_t *i, occl_ipc_peer_t *p, uint64_t n, uint64_t o, uint64_t *a, void **h, const char **w)
{
    return (void)i, (void)p, (void)n, (void)o, (void)a, (void)h, (void)w, 1;
}
void occl_ipc_release(occl_ipc_t *i, void **h, uint32_t n) { (void)i, (void)h, (void)n; }
occl_status_t occl_ipc_mem_alloc(occl_ipc_t *i, uint64_t b, int x, void **p, char *e, size_t n)
{
    return (void)i, (void)b, (void)x, (void)p, (void)e, (void)n, OCCL_OK;
}
int occl_ipc_mem_free(occl_ipc_t *i, void *p) { return (void)i, (void)p, 0; }
occl_status_t occl_ipc_mem_register(occl_ipc_t *i, void *p, uint64_t b, int x, char *e, size_t n)
{
    return (void)i, (void)p, (void)b, (void)x, (void)e, (void)n, OCCL_OK;
}
int occl_ipc_mem_unregister(occl_ipc_t *i, void *p) { return (void)i, (void)p, 0; }
void occl_ipc_service(occl_ipc_t *i, int c) { (void)i, (void)c; }
int occl_ipc_upkeep(occl_ipc_t *i, int *c) { return (void)i, *c = 0, 0; }
void occl_ipc_close(occl_ipc_t *i, int o) { (void)i, (void)o; }
void occl_ipc_counts(occl_ipc_t *i, uint64_t *e, uint64_t *m) { (void)i, *e = *m = 0; }

/* --- the core's part ---------------------------------------------------------------------------------------------- */

static occl_device_t *dev;
static occl_bound_t *bound;
static pthread_mutex_t ctx = PTHREAD_MUTEX_INITIALIZER;
static occl_plan_t plan = {.nchannels = 1, .nranks = 1};
static int stuck;

static void unlock(void)
{
    (void)pthread_mutex_unlock(&ctx);
    if (occl_load_relaxed32(&dev->wants))
        dev->ops->far->service(dev);
}

/* Submits a run and drives the device until it is reported, by whichever thread. 0: that took too long. */
typedef struct job {
    occl_dev_run_t run;
    int done;
} job_t;
static int run_to_its_end(job_t *job)
{
    occl_dev_run_t *run = &job->run;
    uint64_t until = occl_host_clock_ns() + 10000000000u;
    uint32_t what;
    (void)pthread_mutex_lock(&ctx);
    memset(job, 0, sizeof(*job));
    run->plan = &plan;
    run->user = (uint64_t)(uintptr_t)bound;
    if (!dev->ops->far->place(dev, run))
        bail("no place");
    dev->ops->submit(dev, run);
    unlock();
    while (occl_host_clock_ns() < until) {
        occl_dev_run_t *got;
        int done;
        (void)pthread_mutex_lock(&ctx);
        (void)dev->ops->poll(dev, 0, 0);
        got = dev->ops->pop(dev, &what);
        if (got) {
            dev->outstanding--;
            ((job_t *)(void *)got)->done = 1;
        }
        done = job->done;
        unlock();
        if (done)
            return 1;
        (void)sched_yield();
    }
    return 0;
}

/* The helper: sees the bell, runs, tells the stream. */
typedef struct enqueued {
    occl_ticket_t ticket;
    uint32_t delay_us;
} enqueued_t;
static void *helper(void *arg)
{
    enqueued_t *e = arg;
    uint64_t until = occl_host_clock_ns() + 10000000000u;
    static __thread job_t run;
    while (!dev->ops->far->ticket_rung(dev, &e->ticket) && occl_host_clock_ns() < until)
        usleep(20);
    usleep(e->delay_us); /* the peers are late */
    if (!run_to_its_end(&run))
        __atomic_store_n(&stuck, 1, __ATOMIC_RELAXED);
    (void)pthread_mutex_lock(&ctx);
    dev->ops->far->ticket_over(dev, &e->ticket);
    unlock();
    return NULL;
}

/* Where everything stands, for whoever has to find out why it does not go on. */
static void diag_state(void)
{
    static const char *const kinds[] = {"wait", "daemon", "write", "wait kernel"};
    cuda_device_t *cd = of(dev);
    diag("launches %llu held %llu stay %llu out %llx owed %u launching %u asked %u submitted %llu done %llu outstanding %llu",
         (unsigned long long)cuda->launches, (unsigned long long)cd->held, (unsigned long long)load(&cuda->front->stay), (unsigned long long)load(&quit_word), cd->owed,
         cd->launching, cd->asked, (unsigned long long)nwork, (unsigned long long)ndone, (unsigned long long)dev->outstanding);
    for (int i = 0; i < nqueues; i++)
        for (uint64_t k = queue[i].head; k < queue[i].tail; k++) {
            const op_t *op = &queue[i].op[k % OPS];
            diag("queue %d: stream %d: %s %llu (%llu)", i, op->stream, kinds[op->kind], (unsigned long long)op->value,
                 op->word ? (unsigned long long)load(op->word) : 0);
        }
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].kernel)
            diag("stream %d: runs a %s %llu", i, kinds[streams[i].kernel->kind], (unsigned long long)streams[i].kernel->value);
}

/* n enqueued at once, cudaFree right behind them. */
static int round_of(int n, unsigned seed)
{
    static enqueued_t e[16];
    pthread_t thread[16];
    char err[64];
    static uint64_t busy, busy_value;
    int freed;
    busy_value++;
    for (int k = 0; k < n; k++) {
        int i = seed % 2 ? n - 1 - k : k;
        void *stream = (void *)(intptr_t)(OURS + 1 + i);
        if ((seed >> 3) % 3 == 0) /* there is work before it */
            stream_put((int)(intptr_t)stream, (op_t){.kind = WAIT_KERNEL, .word = &busy, .value = busy_value});
        (void)pthread_mutex_lock(&ctx);
        if (!dev->ops->far->ticket_take(dev, &e[i].ticket))
            bail("no ticket");
        unlock();
        e[i].delay_us = (seed * 2654435761u >> (8 + i)) % 3000;
        (void)dev->ops->far->stream_start(dev, &e[i].ticket, stream, err, sizeof(err));
        (void)dev->ops->far->stream_wait(dev, &e[i].ticket, stream, err, sizeof(err));
        if (pthread_create(&thread[i], NULL, helper, &e[i]))
            bail("no thread");
    }
    usleep(seed * 40503u % 1500);
    __atomic_store_n(&busy, busy_value, __ATOMIC_RELEASE);
    freed = fake_cuda_free();
    if (!freed)
        diag_state();
    for (int i = 0; i < n; i++)
        (void)pthread_join(thread[i], NULL);
    return freed && !stuck;
}

static int with_queues(int n_queues)
{
    occl_env_t env;
    occl_logger_t log;
    char err[256] = "", number[16];
    uint64_t at, launches;
    void *image;
    occl_link_t link = {NULL, NULL};
    static job_t run;
    int good = 1, n;

    nqueues = n_queues;
    memset(streams, 0, sizeof(streams));
    stop = quit_word = nwork = ndone = nfinished = npopped = stays = 0;
    (void)snprintf(number, sizeof(number), "%d", n_queues);
    if (n_queues == 8 || n_queues == 2) /* what the driver takes without and with MPS */
        (void)unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    else
        (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", number, 1);
    occl_env_defaults(&env);
    memset(&log, 0, sizeof(log));
    env.device_arena = 4 << 20;
    env.max_channels = 4;
    if (occl_device_cuda.create(&env, &log, NULL, &dev, err, sizeof(err)) != OCCL_OK)
        bail("no device: %s", err);
    bound = dev->ops->far->bind(dev, 64, &link, 1, &at, &image);
    dev->ops->far->load(dev, bound);

    for (n = 0; n < 50 && good; n++) {
        good = run_to_its_end(&run);
        if (n % 3 == 0)
            usleep(1500); /* it has left */
        if (n % 5 == 0)
            good &= fake_cuda_free();
    }
    ok(good, "%d hardware queues: 50 runs that the host starts, the daemon there or gone, cudaFree now and then", nqueues);
    ok(stays == 0, "where no stream is used the daemon leaves when it has nothing to do");

    for (n = 0; n < 100 && good; n++)
        good = round_of(1, (unsigned)n + 1);
    ok(good, "100 times: a stream waits for a run, cudaFree waits for the stream (%d)", n);
    for (n = 0; n < 150 && good; n++)
        good = round_of(1 + n % 16, (unsigned)n + 1000);
    ok(good, "the same with up to 16 streams at once (%d)", n);
    ok(stays > 0, "it stayed %llu times because a stream waited", (unsigned long long)stays);
    ok(good && fake_cuda_free() && !of(dev)->held, "with no run owed nothing stays: cudaFree returns");
    for (n = 0; n < 20 && good; n++)
        good = run_to_its_end(&run) && fake_cuda_free();
    ok(good, "and runs that the host starts go on as before");
    launches = cuda->launches;
    usleep(50000);
    ok(cuda->launches == launches && occl_cuda_is_out(cuda, NULL), "with nothing to do the daemon is out and stays out");
    if (good) { /* else its threads are stuck */
        dev->ops->far->unbind(dev, bound);
        dev->ops->destroy(dev);
    }
    return good;
}

int main(void)
{
    static const int queues[] = {8, 2, 1, 4};
    for (int i = 0; i < 4; i++)
        if (!with_queues(queues[i]))
            break;
    return tap_done();
}
