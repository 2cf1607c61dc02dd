/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The emulated device: a block of the daemon is a few threads (lanes) with a barrier; a GPU is a number of slots for blocks. See
 * emu.h. There is no thread that launches: whoever changes what a launch waits for (a block that leaves, a call that gives
 * the API lock back, a submission) starts what can be started (schedule).
 *
 * One lock a GPU guards the slots, the queue in front of them and all devices on it. A context's lock may be held when it is
 * taken, never the other way round.
 */
#if defined(OCCL_EMU) && OCCL_EMU
#define _GNU_SOURCE /* sched_yield */
#include "device/emu.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/daemon.h"
#include "util/clock.h"
#include "util/futex.h"
#include "util/list.h"
#include "util/rng.h"

enum { BARRIER_YIELDS = 20, RELAUNCH_MIN_NS = 20000, RELAUNCH_MAX_NS = 2000000, LANES_MAX = 64 };

typedef struct emu emu_t;

/* Waits for a slot: one block of the daemon, or of an application's kernel. */
typedef struct request {
    occl_list_t in_queue;
    struct block *block;
    occl_emu_kernel_t *kernel;
} request_t;

typedef struct block {
    /* barrier: `arrived` is everybody's; `generation` is written by the last to arrive, and slept on */
    uint32_t arrived, generation, asleep;
    uint32_t box;              /* lane 0's value, between two barriers */
    uint32_t vote[LANES_MAX];  /* each lane's, between two barriers */
    uint32_t go;               /* futex: changes with every launch; release */
    uint32_t inside;           /* lanes that have not left; the last one gives the slot back */
    uint32_t lanes, index;
    uint64_t launch, since;
    emu_t *dev;
    request_t request;
} block_t;

typedef struct lane {
    pthread_t thread;
    block_t *block;
    uint32_t rank;
    int started;
} lane_t;

struct occl_emu_gpu {
    pthread_mutex_t lock;
    pthread_cond_t changed;    /* a block has left or come, the API lock is free */
    uint32_t slots, used;
    occl_list_t queue;         /* request_t.in_queue */
    occl_list_t devices;       /* emu_t.in_gpu */
    int own;                   /* goes with its only device */
};

struct emu {
    occl_device_t pub;
    occl_emu_gpu_t *gpu;
    occl_list_t in_gpu;
    uint32_t lanes, chaos;
    uint32_t stop;             /* lanes shall end */
    block_t *block;            /* [nchannels] */
    lane_t *lane;              /* [nchannels * lanes] */
    occl_rng_t rng;
    /* under the GPU's lock: the stream */
    uint32_t wanted, started, done; /* launches asked for; given to the GPU; ended */
    uint32_t live;             /* blocks of launch `started` that have not left */
    uint32_t resident;         /* of those, on the GPU */
    uint32_t api_held;         /* calls that hold the API lock */
    uint32_t app_pending;      /* kernels of the application that have not ended */
    occl_emu_counts_t counts;
    /* under the context's lock: when to launch again for work that was left behind */
    uint64_t delay, launch_at, steps;
};

struct occl_emu_kernel {
    emu_t *dev;
    pthread_t thread;
    uint32_t blocks, granted;
    uint64_t ns;
    int stopped;
    request_t *request;
};

/* --- lanes -------------------------------------------------------------------------------------------------------- */

static __thread occl_rng_t chaos_rng;
static __thread int chaos_on;

static void chaos_seed(uint64_t seed, uint64_t stream)
{
    chaos_on = seed != 0;
    occl_rng_seed(&chaos_rng, seed, stream);
}

void occl_emu_host_chaos(uint64_t seed) { chaos_seed(seed, 0); }

/* Nothing, a yield, a spin, or a sleep that is longer than most things here take. */
static void chaos(void)
{
    uint64_t v;
    if (!chaos_on)
        return;
    v = occl_rng_next(&chaos_rng);
    if ((v & 7) < 4)
        return;
    if ((v & 7) < 6) {
        (void)sched_yield();
    } else if ((v & 7) == 6 || (v >> 8 & 15)) {
        for (uint64_t i = 0; i < (v >> 16 & 1023); i++)
            occl_relax();
    } else {
        struct timespec ts = {0, (long)(v >> 16 & 0x1ffff)};
        (void)nanosleep(&ts, NULL);
    }
}

void occl_emu_chaos(void *block)
{
    (void)block;
    chaos();
}

/* The last to arrive acquires what all have released by their additions, and releases it by the generation. */
static void barrier(block_t *b)
{
    uint32_t g = __atomic_load_n(&b->generation, __ATOMIC_ACQUIRE);
    if (__atomic_add_fetch(&b->arrived, 1, __ATOMIC_ACQ_REL) == b->lanes) {
        __atomic_store_n(&b->arrived, 0, __ATOMIC_RELAXED);
        /* sequentially consistent with `asleep`: either the sleeper sees the new generation or we see the sleeper */
        __atomic_store_n(&b->generation, g + 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&b->asleep, __ATOMIC_SEQ_CST))
            (void)occl_futex_wake(&b->generation, INT32_MAX);
        return;
    }
    for (int i = 0; i < BARRIER_YIELDS; i++) {
        if (__atomic_load_n(&b->generation, __ATOMIC_ACQUIRE) != g)
            return;
        (void)sched_yield();
    }
    (void)__atomic_add_fetch(&b->asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&b->generation, __ATOMIC_SEQ_CST) == g)
        (void)occl_futex_wait(&b->generation, g, UINT64_MAX);
    (void)__atomic_sub_fetch(&b->asleep, 1, __ATOMIC_SEQ_CST);
}

/* Delays on both sides: a lane may be late at a barrier, and late to leave it. */
void occl_emu_sync(void *block)
{
    chaos();
    barrier(block);
    chaos();
}

uint32_t occl_emu_uniform(void *block, uint32_t lane, uint32_t v)
{
    block_t *b = block;
    barrier(b);
    chaos();
    if (lane == 0)
        b->box = v;
    barrier(b);
    chaos();
    return b->box;
}

uint32_t occl_emu_all(void *block, uint32_t lane, uint32_t v)
{
    block_t *b = block;
    uint32_t all = 1;
    chaos();
    b->vote[lane] = v;
    barrier(b);
    for (uint32_t i = 0; i < b->lanes; i++)
        all &= b->vote[i] != 0;
    barrier(b);
    chaos();
    return all;
}

/* --- the GPU ------------------------------------------------------------------------------------------------------ */

static void start_block(block_t *b)
{
    emu_t *e = b->dev;
    e->resident++;
    b->launch = e->started;
    b->since = occl_host_clock_ns();
    __atomic_store_n(&b->inside, b->lanes, __ATOMIC_RELAXED);
    __atomic_store_n(&b->go, b->go + 1, __ATOMIC_RELEASE);
    (void)occl_futex_wake(&b->go, INT32_MAX);
}

/* Puts the blocks of the device's next launch into the queue, if the one before has left and nobody holds the API lock. */
static void start_launch(emu_t *e)
{
    uint32_t n = e->pub.daemon->nchannels;
    int order[OCCL_CHANNELS_MAX];
    if (e->started == e->wanted || e->api_held || e->live)
        return;
    e->started++;
    e->live = n;
    for (uint32_t c = 0; c < n; c++)
        order[c] = (int)c;
    if (e->chaos) /* the order of blocks is nobody's promise */
        occl_rng_shuffle(&e->rng, order, n);
    for (uint32_t c = 0; c < n; c++)
        occl_list_push_back(&e->gpu->queue, &e->block[order[c]].request.in_queue);
}

/* Something has changed: start what can be started. Under the lock. */
static void schedule(occl_emu_gpu_t *gpu)
{
    OCCL_LIST_EACH(e, next, &gpu->devices, emu_t, in_gpu)
        start_launch(e);
    while (gpu->used < gpu->slots && !occl_list_empty(&gpu->queue)) {
        request_t *q = OCCL_CONTAINER(occl_list_pop(&gpu->queue), request_t, in_queue);
        gpu->used++;
        if (q->block)
            start_block(q->block);
        else
            q->kernel->granted++;
    }
    (void)pthread_cond_broadcast(&gpu->changed);
}

static void block_left(block_t *b)
{
    emu_t *e = b->dev;
    occl_emu_gpu_t *gpu = e->gpu;
    uint64_t stay;
    (void)pthread_mutex_lock(&gpu->lock);
    stay = occl_host_clock_ns() - b->since;
    if (stay > e->counts.stay_ns_max)
        e->counts.stay_ns_max = stay;
    gpu->used--;
    e->resident--;
    if (--e->live == 0)
        e->done = e->started;
    schedule(gpu);
    (void)pthread_mutex_unlock(&gpu->lock);
}

static void *lane_main(void *arg)
{
    lane_t *l = arg;
    block_t *b = l->block;
    uint32_t seen = 0, go;
    chaos_seed(b->dev->chaos, (uint64_t)(uintptr_t)b->dev->pub.daemon / 64 % 97 + 1 + (uint64_t)b->index * LANES_MAX + l->rank);
    for (;;) {
        while ((go = __atomic_load_n(&b->go, __ATOMIC_ACQUIRE)) == seen)
            (void)occl_futex_wait(&b->go, seen, UINT64_MAX);
        if (__atomic_load_n(&b->dev->stop, __ATOMIC_ACQUIRE))
            return NULL;
        seen = go;
        occl_emu_daemon(l->rank, b->lanes, b, b->dev->pub.daemon, b->index, b->launch);
        if (__atomic_sub_fetch(&b->inside, 1, __ATOMIC_ACQ_REL) == 0)
            block_left(b);
    }
}

static __thread occl_emu_gpu_t *next_gpu;

void occl_emu_use_gpu(occl_emu_gpu_t *gpu) { next_gpu = gpu; }

occl_emu_gpu_t *occl_emu_gpu_create(uint32_t slots)
{
    occl_emu_gpu_t *gpu = calloc(1, sizeof(*gpu));
    if (!gpu)
        return NULL;
    (void)pthread_mutex_init(&gpu->lock, NULL);
    (void)pthread_cond_init(&gpu->changed, NULL);
    gpu->slots = slots;
    occl_list_init(&gpu->queue);
    occl_list_init(&gpu->devices);
    return gpu;
}

void occl_emu_gpu_destroy(occl_emu_gpu_t *gpu)
{
    if (!gpu)
        return;
    (void)pthread_mutex_destroy(&gpu->lock);
    (void)pthread_cond_destroy(&gpu->changed);
    free(gpu);
}

/* --- device ------------------------------------------------------------------------------------------------------- */

static emu_t *emu_of(occl_device_t *dev) { return (emu_t *)dev; }

/* Waits until nothing that was launched is queued or resident. The context's lock is held, so nothing is launched meanwhile. */
static void quiesce(emu_t *e)
{
    (void)pthread_mutex_lock(&e->gpu->lock);
    e->counts.syncs++;
    while (e->done != e->wanted)
        (void)pthread_cond_wait(&e->gpu->changed, &e->gpu->lock);
    (void)pthread_mutex_unlock(&e->gpu->lock);
}

static void emu_destroy(occl_device_t *dev)
{
    emu_t *e = emu_of(dev);
    uint32_t n = e->pub.daemon ? e->pub.daemon->nchannels : 0;
    if (e->gpu && e->lane)
        quiesce(e);
    __atomic_store_n(&e->stop, 1, __ATOMIC_RELEASE);
    for (uint32_t c = 0; e->lane && c < n; c++) {
        __atomic_store_n(&e->block[c].go, e->block[c].go + 1, __ATOMIC_RELEASE);
        (void)occl_futex_wake(&e->block[c].go, INT32_MAX);
        for (uint32_t i = 0; i < e->lanes; i++)
            if (e->lane[c * e->lanes + i].started)
                (void)pthread_join(e->lane[c * e->lanes + i].thread, NULL);
    }
    if (e->gpu) {
        (void)pthread_mutex_lock(&e->gpu->lock);
        occl_list_remove(&e->in_gpu);
        (void)pthread_mutex_unlock(&e->gpu->lock);
        if (e->gpu->own)
            occl_emu_gpu_destroy(e->gpu);
    }
    free(e->block);
    free(e->lane);
    if (e->pub.daemon)
        occl_daemon_destroy(e->pub.daemon);
    free(e);
}

static occl_status_t emu_create(const occl_env_t *env, const occl_logger_t *log, occl_arena_t *arena, occl_device_t **dev_p,
                                char *err, size_t errlen)
{
    emu_t *e = calloc(1, sizeof(*e));
    uint32_t n = (uint32_t)env->max_channels;
    (void)log;
    (void)arena;
    if (!e)
        goto nothing;
    if (n > OCCL_CHANNELS_MAX)
        n = OCCL_CHANNELS_MAX;
    if (n == 0)
        n = 1;
    occl_list_init(&e->in_gpu);
    e->pub.nchannels = n;
    occl_device_init(&e->pub, &occl_device_emu);
    e->lanes = (uint32_t)env->emu_lanes;
    e->chaos = (uint32_t)env->emu_chaos;
    e->delay = RELAUNCH_MIN_NS;
    if (occl_daemon_create(env, n, &e->pub.daemon) != OCCL_OK)
        goto fail;
    occl_rng_seed(&e->rng, e->chaos, 77);
    e->gpu = next_gpu;
    if (!e->gpu) {
        e->gpu = occl_emu_gpu_create((uint32_t)env->emu_slots);
        if (!e->gpu)
            goto fail;
        e->gpu->own = 1;
    }
    (void)pthread_mutex_lock(&e->gpu->lock);
    occl_list_push_back(&e->gpu->devices, &e->in_gpu);
    (void)pthread_mutex_unlock(&e->gpu->lock);
    e->block = calloc(n, sizeof(*e->block));
    e->lane = e->block ? calloc((size_t)n * e->lanes, sizeof(*e->lane)) : NULL;
    if (!e->lane)
        goto fail;
    for (uint32_t c = 0; c < n; c++) {
        block_t *b = &e->block[c];
        b->dev = e;
        b->index = c;
        b->lanes = e->lanes;
        b->request.block = b;
        occl_list_init(&b->request.in_queue);
        for (uint32_t i = 0; i < e->lanes; i++) {
            lane_t *l = &e->lane[c * e->lanes + i];
            l->block = b;
            l->rank = i;
            if (pthread_create(&l->thread, NULL, lane_main, l))
                goto fail;
            l->started = 1;
        }
    }
    *dev_p = &e->pub;
    return OCCL_OK;
fail:
    emu_destroy(&e->pub);
nothing:
    if (errlen)
        (void)snprintf(err, errlen, "no memory or threads for the emulated device");
    return OCCL_ERR_RESOURCE;
}

/* Channels read the lists that reserve replaces: none may be on the device. */
static occl_status_t emu_reserve(occl_device_t *dev, uint32_t ranks)
{
    emu_t *e = emu_of(dev);
    if (ranks <= dev->daemon->max_ranks)
        return OCCL_OK;
    quiesce(e);
    e->counts.allocs++;
    e->counts.frees++;
    return occl_daemon_reserve(dev->daemon, ranks);
}

static uint64_t steps_done(const occl_daemon_t *d)
{
    uint64_t sum = 0;
    for (uint32_t c = 0; c < d->nchannels; c++)
        sum += occl_load_relaxed64(&d->chan[c].stats.steps);
    return sum;
}

static void launch(emu_t *e)
{
    (void)pthread_mutex_lock(&e->gpu->lock);
    e->wanted++;
    e->counts.launches++;
    if (e->api_held)
        e->counts.launches_blocked++;
    schedule(e->gpu);
    (void)pthread_mutex_unlock(&e->gpu->lock);
    e->pub.launches++;
    e->launch_at = 0;
}

/* The daemon has left: its leader has stored the quit word of the last launch. */
static int is_out(const emu_t *e, uint64_t *quit_p)
{
    *quit_p = occl_load_acquire64(&e->pub.daemon->quit);
    return (uint32_t)(*quit_p >> 32) == (uint32_t)e->pub.launches;
}

static void emu_submit(occl_device_t *dev, occl_dev_run_t *run)
{
    emu_t *e = emu_of(dev);
    uint64_t quit;
    dev->outstanding++;
    occl_daemon_push(dev->daemon, run);
    /* If it is about to leave without having seen this entry, its quit word says so, and the next poll launches. */
    if (is_out(e, &quit))
        launch(e);
}

static uint32_t emu_poll(occl_device_t *dev, uint32_t patient, uint32_t news)
{
    emu_t *e = emu_of(dev);
    uint64_t quit, now, steps;
    (void)patient;
    if (!dev->outstanding || !is_out(e, &quit))
        return 0;
    if (news || (uint32_t)quit != (uint32_t)dev->daemon->sq.tail) {
        e->delay = RELAUNCH_MIN_NS;
        launch(e);
        return 0;
    }
    /* Work was left behind by the end of its residence, or because nothing came: soon again, or less and less often. */
    now = occl_host_clock_ns();
    if (!e->launch_at) {
        steps = steps_done(dev->daemon);
        if (steps != e->steps)
            e->delay = RELAUNCH_MIN_NS;
        e->steps = steps;
        e->launch_at = now + e->delay;
        if (e->delay < RELAUNCH_MAX_NS)
            e->delay *= 2;
    }
    if (now >= e->launch_at) {
        dev->relaunches++;
        launch(e);
    }
    return 0;
}

const occl_device_ops_t *occl_emu_far;
const occl_device_ops_t occl_device_emu = {
    .name = "emulated",
    .create = emu_create,
    .destroy = emu_destroy,
    .reserve = emu_reserve,
    .submit = emu_submit,
    .poll = emu_poll,
    .drop = occl_daemon_drop,
    .pop = occl_daemon_pop,
    .stats = occl_daemon_stats,
    .caller_executes = 0,
};

/* --- hooks -------------------------------------------------------------------------------------------------------- */

uint32_t occl_emu_gpu_resident(occl_emu_gpu_t *gpu)
{
    uint32_t n;
    (void)pthread_mutex_lock(&gpu->lock);
    n = gpu->used;
    (void)pthread_mutex_unlock(&gpu->lock);
    return n;
}

uint32_t occl_emu_resident(occl_device_t *dev)
{
    emu_t *e = emu_of(dev);
    uint32_t n;
    (void)pthread_mutex_lock(&e->gpu->lock);
    n = e->resident;
    (void)pthread_mutex_unlock(&e->gpu->lock);
    return n;
}

/* Both calls: take the API lock, wait for what has been launched. Launches that wait for the lock come after. */
static uint64_t drain_device(occl_device_t *dev)
{
    emu_t *e = emu_of(dev);
    uint64_t from = occl_host_clock_ns();
    (void)pthread_mutex_lock(&e->gpu->lock);
    e->api_held++;
    while (e->done != e->started || e->app_pending)
        (void)pthread_cond_wait(&e->gpu->changed, &e->gpu->lock);
    e->api_held--;
    schedule(e->gpu);
    (void)pthread_mutex_unlock(&e->gpu->lock);
    return occl_host_clock_ns() - from;
}

uint64_t occl_emu_synchronize(occl_device_t *dev) { return drain_device(dev); }

uint64_t occl_emu_first_launch(occl_device_t *dev)
{
    uint64_t ns = drain_device(dev);
    occl_emu_kernel_join(occl_emu_kernel_start(dev, 1, 1000));
    return ns;
}

static void *kernel_main(void *arg)
{
    occl_emu_kernel_t *k = arg;
    occl_emu_gpu_t *gpu = k->dev->gpu;
    uint64_t until = 0;
    (void)pthread_mutex_lock(&gpu->lock);
    while (k->granted < k->blocks)
        (void)pthread_cond_wait(&gpu->changed, &gpu->lock);
    until = k->ns == OCCL_INF ? OCCL_INF : occl_host_clock_ns() + k->ns;
    while (!k->stopped && occl_host_clock_ns() < until) {
        struct timespec ts = {0, 100000};
        (void)pthread_mutex_unlock(&gpu->lock);
        if (k->ns < 100000)
            ts.tv_nsec = (long)k->ns;
        (void)nanosleep(&ts, NULL);
        (void)pthread_mutex_lock(&gpu->lock);
    }
    gpu->used -= k->blocks;
    k->dev->app_pending--;
    schedule(gpu);
    (void)pthread_mutex_unlock(&gpu->lock);
    return NULL;
}

occl_emu_kernel_t *occl_emu_kernel_start(occl_device_t *dev, uint32_t blocks, uint64_t ns)
{
    emu_t *e = emu_of(dev);
    occl_emu_kernel_t *k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    k->request = calloc(blocks, sizeof(*k->request));
    if (!k->request) {
        free(k);
        return NULL;
    }
    k->dev = e;
    k->blocks = blocks;
    k->ns = ns;
    if (pthread_create(&k->thread, NULL, kernel_main, k)) {
        free(k->request);
        free(k);
        return NULL;
    }
    (void)pthread_mutex_lock(&e->gpu->lock);
    while (e->api_held)
        (void)pthread_cond_wait(&e->gpu->changed, &e->gpu->lock);
    e->app_pending++;
    for (uint32_t i = 0; i < blocks; i++) {
        k->request[i].kernel = k;
        occl_list_push_back(&e->gpu->queue, &k->request[i].in_queue);
    }
    schedule(e->gpu);
    (void)pthread_mutex_unlock(&e->gpu->lock);
    return k;
}

void occl_emu_kernel_resident(occl_emu_kernel_t *k)
{
    (void)pthread_mutex_lock(&k->dev->gpu->lock);
    while (k->granted < k->blocks)
        (void)pthread_cond_wait(&k->dev->gpu->changed, &k->dev->gpu->lock);
    (void)pthread_mutex_unlock(&k->dev->gpu->lock);
}

void occl_emu_kernel_stop(occl_emu_kernel_t *k)
{
    (void)pthread_mutex_lock(&k->dev->gpu->lock);
    k->stopped = 1;
    (void)pthread_mutex_unlock(&k->dev->gpu->lock);
}

void occl_emu_kernel_join(occl_emu_kernel_t *k)
{
    if (!k)
        return;
    (void)pthread_join(k->thread, NULL);
    free(k->request);
    free(k);
}

void occl_emu_counts(occl_device_t *dev, occl_emu_counts_t *counts_p)
{
    emu_t *e = emu_of(dev);
    (void)pthread_mutex_lock(&e->gpu->lock);
    *counts_p = e->counts;
    (void)pthread_mutex_unlock(&e->gpu->lock);
}

#else
/* Production builds have no emulated device. */
typedef int occl_emu_none_t;
#endif
