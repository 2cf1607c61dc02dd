/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUDA as a device of the core: places for runs, plans and links in device memory, when to launch, and what the driver has to do
 * without the context's lock (service).
 *
 * Memory of a device. One region, exported at attach: the peers' links lie in it (they write there), our plans, and scratch. It is
 * handed out by an arena that has no memory of its own. What is given back is zeroed by the service before it is used again.
 *
 * A run has a place (twin) in device memory from its first submission until it is reported for good; the host's view knows its
 * number (near[0]), and the completion names its address.
 *
 * Launches, of as many blocks as what is outstanding needs: a run for more makes the leader leave at once. Who finds that the
 * daemon is out and has work says so (want_launch, under the context's lock); the service launches. In between, and until the
 * number of launches is known, `launching` keeps everybody else from deciding anything.
 */
#define _GNU_SOURCE 1 /* RTLD_NOLOAD */
#include "device/cuda.h"
#include "device/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/daemon.h"
#include "kernels/occl_dev_types.h"
#include "transport/cuda_ipc.h"
#include "util/clock.h"
#include "util/futex.h"
#include "util/lock.h"

enum {
    TWINS = 8192,
    TWINS_FOR_GATED = TWINS / 2, /* runs that wait for peers may park, and keep theirs: they get half */
    ROOM = 256,
    TICKETS = 4096,
    SUBMISSIONS = OCCL_QUEUE_LEN - 8,
    STAGE_BYTES = 8 << 20,       /* plans on their way to the device */
    MAX_RANKS = 1024,
    RELAUNCH_MIN_NS = 50000,
    RELAUNCH_MAX_NS = 20000000,
    BUSY_NS = 1000000,
    QUEUES_MIN = 4,              /* hardware queues: with fewer no stream waits by its queue */
    GRIDS = 128,                 /* that can be on a GPU at a time (CUDA C++ Programming Guide, compute capability 7.0 and later) */
    GRIDS_OF_DAEMON = 3          /* one comes, one leaves, one to spare */
};

/* The low bits of a twin's address say other things in submissions and completions. */
#define TWIN_BYTES ((sizeof(occl_dev_run_t) + 63) / 64 * 64)

struct occl_bound {
    uint64_t off, bytes;         /* in the region: plan, then links */
    void *image;                 /* on the stage, until it is loaded */
    uint64_t plan, links, serial;
};

typedef struct twin {
    occl_dev_run_t *run;         /* NULL: free */
    uint64_t number;             /* of its last submission */
    uint64_t x_off, x_bytes;     /* addresses of more peers than travel with a submission */
    int fresh;
} twin_t;

typedef struct dirty {
    struct dirty *next;
    uint64_t off, bytes;
} dirty_t;

/* A part of the stage that the device still reads: until submission `number` has been taken. */
typedef struct load {
    uint64_t number, end;
} load_t;

/* A stream that waits for runs of ours: the first of its waits holds it, the others are behind that one. */
typedef struct waiting {
    void *stream;
    uint32_t waits;
    uint32_t kernel;             /* by a kernel; else by the hardware queue */
} waiting_t;
static char no_stream;           /* the legacy default stream is NULL */
#define NO_STREAM ((void *)&no_stream)

typedef struct cuda_device {
    occl_device_t pub;
    occl_cuda_t cu;
    occl_ipc_t *ipc;
    const occl_logger_t *log;
    /* under the context's lock */
    occl_arena_t *space;
    unsigned char *base;
    unsigned char handle[64];
    uint64_t bytes;
    unsigned char *twins_at;
    twin_t *twin;
    uint32_t *free_twin, nfree;
    unsigned char *stage;
    uint64_t stage_head, stage_tail; /* bytes ever used, ever free again */
    load_t load[OCCL_QUEUE_LEN];
    uint64_t load_head, load_tail;
    uint64_t taken;              /* submissions that the device is known to have taken */
    uint32_t need;               /* channels of what is outstanding, at most */
    uint64_t serial;
    uint64_t delay, launch_at, steps;
    uint64_t *words;             /* mapped: [2 * TICKETS], start and over of each */
    uint64_t *value;             /* of each ticket, its last */
    uint32_t *free_ticket, ntickets;
    uint32_t connections;        /* hardware queues that streams share (CUDA_DEVICE_MAX_CONNECTIONS) */
    uint32_t sharing;            /* processes on this GPU */
    /* between who holds the lock and the service */
    occl_lock_t launch_lock;     /* what follows is written under it; no call to the driver is made */
    uint32_t owed;               /* tickets that are out */
    waiting_t waiting[GRIDS * 2]; /* streams; [nwaiting] */
    uint32_t nwaiting, wait_kernels;
    void **waits;                /* of each ticket: the stream that waits for it, or NO_STREAM */
    uint64_t held;               /* a launch that stays as long as some are; 0: none */
    pthread_t launcher;          /* does the service while tickets are out: see launcher_main */
    uint32_t has_launcher, launcher_bell, launcher_stop;
    uint32_t launching;          /* release by the service */
    uint32_t asked;              /* a launch */
    occl_lock_t dirty_lock;
    dirty_t *dirty;
    occl_lock_t service_lock;
} cuda_device_t;

static cuda_device_t *of(occl_device_t *dev) { return (cuda_device_t *)dev; }
static const cuda_device_t *cof(const occl_device_t *dev) { return (const cuda_device_t *)dev; }

static void want(cuda_device_t *cd)
{
    occl_store_relaxed32(&cd->pub.wants, 1);
    if (occl_load_relaxed32(&cd->has_launcher)) {
        (void)__atomic_fetch_add(&cd->launcher_bell, 1, __ATOMIC_RELEASE);
        (void)occl_futex_wake(&cd->launcher_bell, 1);
    }
}

/* The service makes it. */
static void want_launch(cuda_device_t *cd)
{
    cd->launch_at = 0;
    cd->cu.grid = cd->need ? cd->need : 1;
    occl_store_relaxed32(&cd->launching, 1);
    occl_store_release32(&cd->asked, 1);
    want(cd);
}

int occl_cuda_in_use(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *ctx = NULL;
    int (*current)(void **) = NULL, yes = 0;
    if (!lib)
        return 0;
    *(void **)&current = dlsym(lib, "cuCtxGetCurrent");
    yes = current && current(&ctx) == 0 && ctx;
    (void)dlclose(lib);
    return yes;
}

/* --- create, destroy ---------------------------------------------------------------------------------------------- */

static void cuda_destroy(occl_device_t *dev)
{
    cuda_device_t *cd = of(dev);
    if (cd->has_launcher) {
        __atomic_store_n(&cd->launcher_stop, 1, __ATOMIC_RELEASE);
        want(cd);
        (void)pthread_join(cd->launcher, NULL);
    }
    occl_cuda_quiet(&cd->cu);
    occl_ipc_destroy(cd->ipc);
    occl_cuda_free(&cd->cu, cd->twins_at);
    occl_cuda_free(&cd->cu, cd->base);
    occl_cuda_free_mapped(&cd->cu, cd->stage);
    occl_cuda_close(&cd->cu);
    occl_arena_destroy(cd->space);
    for (dirty_t *d = cd->dirty, *next; d; d = next) {
        next = d->next;
        free(d);
    }
    occl_cuda_free_mapped(&cd->cu, cd->words);
    free(cd->value);
    free(cd->waits);
    free(cd->free_ticket);
    free(cd->twin);
    free(cd->free_twin);
    occl_lock_fini(&cd->dirty_lock);
    occl_lock_fini(&cd->service_lock);
    occl_lock_fini(&cd->launch_lock);
    free(cd->pub.broken);
    free(cd);
}

static occl_status_t cuda_create(const occl_env_t *env, const occl_logger_t *log, occl_arena_t *arena, occl_device_t **dev_p,
                                 char *err, size_t errlen)
{
    cuda_device_t *cd = calloc(1, sizeof(*cd));
    uint32_t n = env->max_channels ? (uint32_t)env->max_channels : OCCL_CHANNELS_MAX;
    occl_sched_conf_t conf = {.stick_min_ns = env->stick_min, .stick_max_ns = env->stick_max, .park_ns = 100000,
                              .linger_ns = env->linger, .residence_ns = env->residence, .min_polls = 2, .max_steps = 64};
    occl_env_t space = *env;
    occl_status_t s;
    int ordinal = occl_cuda_current(err, errlen);
    if (ordinal < 0) {
        free(cd);
        return OCCL_ERR_UNSUPPORTED;
    }
    if (!cd) {
        (void)snprintf(err, errlen, "no memory");
        return OCCL_ERR_RESOURCE;
    }
    occl_lock_init(&cd->dirty_lock);
    occl_lock_init(&cd->service_lock);
    occl_lock_init(&cd->launch_lock);
    n = n > OCCL_CHANNELS_MAX ? OCCL_CHANNELS_MAX : n;
    cd->log = log;
    cd->delay = RELAUNCH_MIN_NS;
    cd->pub.nchannels = n;
    cd->pub.ordinal = ordinal;
    occl_device_init(&cd->pub, &occl_device_cuda);
    cd->pub.room = ROOM;
    s = occl_cuda_open(ordinal, n, OCCL_LANES_MAX, 1, MAX_RANKS, &conf, &cd->cu);
    if (s != OCCL_OK)
        goto cuda_failed;
    cd->cu.most = 1;
    cd->bytes = env->device_arena;
    s = OCCL_ERR_RESOURCE;
    cd->base = occl_cuda_alloc(&cd->cu, cd->bytes);
    cd->twins_at = cd->base ? occl_cuda_alloc(&cd->cu, TWINS * TWIN_BYTES) : NULL;
    cd->stage = cd->twins_at ? occl_cuda_alloc_mapped(&cd->cu, STAGE_BYTES) : NULL;
    if (!cd->stage || (s = occl_cuda_export(&cd->cu, cd->base, cd->handle)) != OCCL_OK)
        goto cuda_failed;
    cd->twin = calloc(TWINS, sizeof(*cd->twin));
    cd->free_twin = calloc(TWINS, sizeof(*cd->free_twin));
    cd->words = occl_cuda_alloc_mapped(&cd->cu, 2 * TICKETS * sizeof(*cd->words));
    cd->value = calloc(TICKETS, sizeof(*cd->value));
    cd->waits = calloc(TICKETS, sizeof(*cd->waits));
    cd->free_ticket = calloc(TICKETS, sizeof(*cd->free_ticket));
    cd->sharing = 1;
    for (uint32_t i = TICKETS; cd->free_ticket && i; i--)
        cd->free_ticket[cd->ntickets++] = i - 1;
    /* Under MPS there are 2 where nothing is said (measured: test/bench/queues.cu). */
    cd->connections = (uint32_t)occl_env_foreign("CUDA_DEVICE_MAX_CONNECTIONS", cd->cu.shared_gpu ? 2 : 8);
    if (!cd->twin || !cd->free_twin || !cd->words || !cd->value || !cd->waits || !cd->free_ticket) {
        (void)snprintf(err, errlen, "no memory");
        s = OCCL_ERR_RESOURCE;
        goto failed;
    }
    for (uint32_t i = TWINS; i; i--)
        cd->free_twin[cd->nfree++] = i - 1;
    space.arena_max = cd->bytes;
    s = occl_arena_create(&space, OCCL_ARENA_PRIVATE | OCCL_ARENA_OFFSETS, &cd->space, err, errlen);
    if (s == OCCL_OK)
        s = occl_ipc_create(ordinal, arena, log, &cd->ipc, err, errlen);
    if (s != OCCL_OK)
        goto failed;
    *dev_p = &cd->pub;
    return OCCL_OK;
cuda_failed:
    (void)snprintf(err, errlen, "%s", cd->cu.error);
failed:
    cuda_destroy(&cd->pub);
    return s;
}

static occl_status_t cuda_reserve(occl_device_t *dev, uint32_t ranks)
{
    (void)dev;
    return ranks <= MAX_RANKS ? OCCL_OK : OCCL_ERR_RESOURCE;
}

static void cuda_reserve_channels(occl_device_t *dev, uint32_t channels, uint32_t sharing)
{
    cuda_device_t *cd = of(dev);
    if (sharing > cd->sharing)
        occl_store_relaxed32(&cd->sharing, sharing);
    if (channels > cd->cu.most)
        occl_store_relaxed32(&cd->cu.most, channels > cd->cu.nchannels ? cd->cu.nchannels : channels);
}

static void cuda_describe(const occl_device_t *dev, occl_far_desc_t *desc)
{
    const cuda_device_t *cd = cof(dev);
    memset(desc, 0, sizeof(*desc));
    memcpy(desc->uuid, cd->cu.uuid, sizeof(desc->uuid));
    memcpy(desc->handle, cd->handle, sizeof(desc->handle));
    desc->base = (uint64_t)(uintptr_t)cd->base;
    desc->bytes = cd->bytes;
    desc->exports = occl_ipc_table(cd->ipc);
    /* Blocks of processes that share a GPU must be resident together; one fits a processor. OCCL_MAX_CHANNELS asks for fewer. */
    desc->channels = cd->cu.processors - cd->cu.processors / 32;
    (void)snprintf(desc->name, sizeof(desc->name), "%s", cd->cu.name);
}

static occl_status_t cuda_map(occl_device_t *dev, const occl_far_desc_t *desc, const void *arena, int mine, occl_far_t **far_p,
                              char *err, size_t errlen)
{
    return occl_ipc_peer_open(of(dev)->ipc, desc, arena, mine, (occl_ipc_peer_t **)far_p, err, errlen);
}
static void cuda_unmap(occl_device_t *dev, occl_far_t *far) { occl_ipc_peer_close(of(dev)->ipc, (occl_ipc_peer_t *)far); }
static unsigned char *cuda_base(const occl_far_t *far) { return occl_ipc_peer_base((const occl_ipc_peer_t *)far); }

/* --- memory ------------------------------------------------------------------------------------------------------- */

static uint64_t cuda_alloc(occl_device_t *dev, uint64_t bytes) { return occl_arena_alloc(of(dev)->space, bytes, 64); }

static void cuda_free(occl_device_t *dev, uint64_t off, uint64_t bytes)
{
    cuda_device_t *cd = of(dev);
    dirty_t *d;
    if (!off)
        return;
    d = malloc(sizeof(*d));
    if (!d)
        return; /* lost until the end */
    d->off = off;
    d->bytes = bytes;
    occl_lock(&cd->dirty_lock);
    d->next = cd->dirty;
    cd->dirty = d;
    occl_unlock(&cd->dirty_lock);
    want(cd);
}

static void cuda_fill(occl_device_t *dev, uint64_t off, uint64_t stride, uint32_t n, uint64_t value)
{
    cuda_device_t *cd = of(dev);
    (void)occl_cuda_fill(&cd->cu, cd->base + off, stride, n, value);
}

/* What the device has taken: completions and the quit word tell. */
static void note_taken(cuda_device_t *cd, uint64_t number)
{
    if (number > cd->taken)
        cd->taken = number;
    while (cd->load_tail != cd->load_head && cd->load[cd->load_tail % OCCL_QUEUE_LEN].number < cd->taken) {
        cd->stage_tail = cd->load[cd->load_tail % OCCL_QUEUE_LEN].end;
        cd->load_tail++;
    }
}

/* Mapped memory that the device reads before submission number + 1; NULL: none free. */
static void *stage_take(cuda_device_t *cd, uint64_t bytes, uint64_t number)
{
    uint64_t at = cd->stage_head % STAGE_BYTES, from = cd->stage_head;
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > STAGE_BYTES / 2)
        return NULL;
    if (at + bytes > STAGE_BYTES)
        from += STAGE_BYTES - at; /* not around the end */
    if (from + bytes - cd->stage_tail > STAGE_BYTES || cd->load_head - cd->load_tail >= OCCL_QUEUE_LEN)
        return NULL;
    cd->stage_head = from + bytes;
    cd->load[cd->load_head++ % OCCL_QUEUE_LEN] = (load_t){number, cd->stage_head};
    return cd->stage + from % STAGE_BYTES;
}

static occl_bound_t *cuda_bind(occl_device_t *dev, size_t plan_bytes, const occl_link_t *links, uint32_t nlinks, uint64_t *at_p,
                               void **image_p)
{
    cuda_device_t *cd = of(dev);
    occl_bound_t *b = calloc(1, sizeof(*b));
    uint64_t head = (plan_bytes + 63) / 64 * 64;
    unsigned char *image;
    if (!b)
        return NULL;
    b->bytes = head + nlinks * sizeof(*links);
    b->off = occl_arena_alloc(cd->space, b->bytes, 64);
    image = b->off ? stage_take(cd, b->bytes, cd->cu.submitted + 1) : NULL;
    if (!image) {
        cuda_free(dev, b->off, b->bytes);
        free(b);
        return NULL;
    }
    b->plan = (uint64_t)(uintptr_t)cd->base + b->off;
    b->links = b->plan + head;
    b->serial = ++cd->serial;
    memcpy(image + head, links, nlinks * sizeof(*links));
    b->image = image;
    *at_p = b->plan;
    *image_p = image;
    return b;
}

static void cuda_load(occl_device_t *dev, occl_bound_t *b)
{
    occl_cuda_load(&of(dev)->cu, b->plan, b->image, b->bytes / 8);
    b->image = NULL;
}

static void cuda_unbind(occl_device_t *dev, occl_bound_t *b)
{
    cuda_free(dev, b->off, b->bytes);
    free(b);
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static int cuda_place(occl_device_t *dev, occl_dev_run_t *run)
{
    cuda_device_t *cd = of(dev);
    twin_t *t;
    if (cd->cu.submitted - cd->taken >= SUBMISSIONS - 4)
        return 0; /* the queue might run full: what was withdrawn and loaded is in it, too */
    if (run->near[0])
        return 1;
    if (!cd->nfree)
        return 0;
    run->near[0] = cd->free_twin[--cd->nfree] + 1;
    t = &cd->twin[run->near[0] - 1];
    t->run = run;
    t->fresh = 1;
    dev->eager_room = cd->nfree > TWINS_FOR_GATED ? OCCL_TABLE_MAX : 0;
    return 1;
}

static void cuda_forget(occl_device_t *dev, occl_dev_run_t *run)
{
    cuda_device_t *cd = of(dev);
    if (!run->near[0])
        return;
    cd->twin[run->near[0] - 1].run = NULL;
    cd->free_twin[cd->nfree++] = (uint32_t)run->near[0] - 1;
    run->near[0] = 0;
    dev->eager_room = cd->nfree > TWINS_FOR_GATED ? OCCL_TABLE_MAX : 0;
}

static void cuda_submit(occl_device_t *dev, occl_dev_run_t *run)
{
    cuda_device_t *cd = of(dev);
    const occl_bound_t *b = (const occl_bound_t *)(uintptr_t)run->user;
    twin_t *t = &cd->twin[run->near[0] - 1];
    uint64_t at = (uint64_t)(uintptr_t)cd->twins_at + (run->near[0] - 1) * TWIN_BYTES, far_x = 0;
    const uint64_t *x = run->xsend;
    occl_dev_run_t view; /* its head is what travels */
    uint32_t n = run->plan->nranks, channels = run->plan->nchannels;
    memcpy(&view, run, OCCL_SUB_X * sizeof(uint64_t));
    view.plan = (const occl_plan_t *)(uintptr_t)b->plan;
    view.links = (const occl_link_t *)(uintptr_t)b->links;
    view.serial = b->serial;
    if (x && n > OCCL_SUB_RANKS) {
        uint64_t bytes = 2ull * n * sizeof(*x);
        uint64_t *mapped;
        if (t->x_bytes < bytes) {
            cuda_free(dev, t->x_off, t->x_bytes);
            t->x_off = occl_arena_alloc(cd->space, bytes, 64);
            t->x_bytes = t->x_off ? bytes : 0;
        }
        mapped = t->x_off ? stage_take(cd, bytes, cd->cu.submitted + 1) : NULL;
        if (!mapped) {
            /* Cannot be told apart from a device that has failed: there is no memory to tell it anything. */
            if (!dev->broken)
                __atomic_store_n(&dev->broken, strdup("no device memory for the addresses of the peers' buffers"), __ATOMIC_RELEASE);
            want(cd);
            dev->outstanding++;
            return;
        }
        memcpy(mapped, x, bytes);
        x = mapped;
        far_x = (uint64_t)(uintptr_t)cd->base + t->x_off;
    }
    if (!dev->outstanding++ || channels > cd->need)
        cd->need = channels;
    occl_cuda_put(&cd->cu, &view, at, channels, channels, t->fresh, n, x, far_x);
    t->fresh = 0;
    t->number = cd->cu.submitted;
    /* If it is about to leave without having seen this, its quit word says so, and the next poll launches. */
    if (!occl_load_acquire32(&cd->launching) && occl_cuda_is_out(&cd->cu, NULL))
        want_launch(cd);
}

static void cuda_drop(occl_device_t *dev, occl_dev_run_t *run)
{
    cuda_device_t *cd = of(dev);
    occl_cuda_drop(&cd->cu, (uint64_t)(uintptr_t)cd->twins_at + (run->near[0] - 1) * TWIN_BYTES);
    if (!occl_load_acquire32(&cd->launching) && occl_cuda_is_out(&cd->cu, NULL))
        want_launch(cd);
}

static occl_dev_run_t *cuda_pop(occl_device_t *dev, uint32_t *what_p)
{
    cuda_device_t *cd = of(dev);
    uint64_t at = occl_cuda_pop(&cd->cu, what_p);
    twin_t *t;
    occl_dev_run_t *run;
    if (!at)
        return NULL;
    dev->launches = cd->cu.launches;
    t = &cd->twin[(at - (uint64_t)(uintptr_t)cd->twins_at) / TWIN_BYTES];
    run = t->run;
    note_taken(cd, t->number);
    if (*what_p != OCCL_CQ_PARKED)
        cuda_forget(dev, run);
    return run;
}

static void cuda_stats(const occl_device_t *dev, occl_chan_stats_t *sum_p)
{
    const cuda_device_t *cd = cof(dev);
    memset(sum_p, 0, sizeof(*sum_p));
    for (uint32_t c = 0; c < cd->cu.nchannels; c++) {
        const uint64_t *from = (const uint64_t *)&cd->cu.front->stats[c];
        uint64_t *to = (uint64_t *)sum_p;
        for (size_t i = 0; i < sizeof(*sum_p) / sizeof(*to); i++)
            to[i] += occl_load_relaxed64(from + i);
    }
}

static uint32_t cuda_poll(occl_device_t *dev, uint32_t patient, uint32_t news)
{
    cuda_device_t *cd = of(dev);
    occl_chan_stats_t sum;
    uint64_t now;
    int seen;
    (void)patient;
    if (occl_load_acquire32(&cd->launching) || !occl_cuda_is_out(&cd->cu, &seen))
        return 0;
    dev->launches = cd->cu.launches;
    if (seen)
        note_taken(cd, cd->cu.submitted);
    if (news || !seen || cd->cu.grid < cd->need) {
        cd->delay = RELAUNCH_MIN_NS;
        want_launch(cd);
        return 0;
    }
    /* Work was left behind by the end of its residence, or because nothing came: soon again, or less and less often. */
    now = occl_host_clock_ns();
    if (!cd->launch_at) {
        cuda_stats(dev, &sum);
        if (sum.steps != cd->steps) { /* the end of its residence, in the middle of work: whoever waited for it to leave gets through */
            cd->steps = sum.steps;
            cd->delay = RELAUNCH_MIN_NS;
            dev->relaunches++;
            want_launch(cd);
            return 0;
        }
        cd->launch_at = now + cd->delay;
        if (cd->delay < RELAUNCH_MAX_NS)
            cd->delay *= 2;
    }
    if (now >= cd->launch_at) {
        dev->relaunches++;
        want_launch(cd);
    }
    return 0;
}

static int cuda_busy(const occl_device_t *dev)
{
    const cuda_device_t *cd = cof(dev);
    /* or will be again in a moment */
    return occl_load_relaxed32(&cd->launching) || !occl_cuda_is_out(&cd->cu, NULL) || (cd->launch_at && cd->delay < BUSY_NS);
}

/* --- without the lock --------------------------------------------------------------------------------------------- */

static void clean(cuda_device_t *cd)
{
    dirty_t *list;
    occl_status_t s = OCCL_OK;
    occl_lock(&cd->dirty_lock);
    list = cd->dirty;
    cd->dirty = NULL;
    occl_unlock(&cd->dirty_lock);
    if (!list)
        return;
    for (dirty_t *d = list; d && s == OCCL_OK; d = d->next)
        s = occl_cuda_zero(&cd->cu, cd->base + d->off, d->bytes, d->next == NULL);
    while (list) {
        dirty_t *d = list;
        list = d->next;
        if (s == OCCL_OK)
            (void)occl_arena_free(cd->space, d->off, d->bytes);
        free(d);
    }
}

static void device_broken(cuda_device_t *cd)
{
    char *text;
    if (cd->pub.broken)
        return;
    text = strdup(cd->cu.error);
    __atomic_store_n(&cd->pub.broken, text ? text : strdup("the CUDA device has failed"), __ATOMIC_RELEASE);
}

/*
 * While tickets are out the daemon stays, with all channels: a thread may be stuck in cudaFree until a stream goes on that waits for
 * our run, and until then no launch gets through to the GPU. With none out nothing is kept: cudaDeviceSynchronize would wait for it.
 *
 * It is a new launch, made before the first stream gets anything of ours, and told to stay before it begins: whoever is there may
 * have decided to leave. Launches that wait in the stream for a word would leave the GPU to the application meanwhile, but a
 * word's wait takes a hardware queue, and the driver may put our launch behind another stream's wait for the very run that
 * needs it (test/bench/queues.cu).
 */

/* Nothing is owed: who stays may leave. Under launch_lock. */
static void settle(cuda_device_t *cd)
{
    occl_store_release64(&cd->cu.front->stay, 0);
    cd->held = 0;
}

/* Under service_lock. The launch is counted before the driver has it: it is there, for all who might decide on another. */
static void hold(cuda_device_t *cd)
{
    uint64_t number = 0;
    occl_lock(&cd->launch_lock);
    if (cd->owed && !cd->held && !cd->pub.broken) {
        number = cd->held = cd->cu.launches + 1;
        occl_store_release64(&cd->cu.front->stay, number);
        __atomic_store_n(&cd->cu.launches, number, __ATOMIC_RELEASE);
    }
    occl_unlock(&cd->launch_lock);
    if (number && occl_cuda_launch_as(&cd->cu, number, occl_load_relaxed32(&cd->cu.most)) != OCCL_OK)
        device_broken(cd);
}

/*
 * A thread of its own, from the first ticket on: while a stream waits for our run, a thread of the application may be stuck in
 * cudaFree until it goes on, and with it everyone who launches. So the helper, who has to see that the run ends, launches
 * nothing then.
 */
static void cuda_service(occl_device_t *dev);
static void *launcher_main(void *arg)
{
    cuda_device_t *cd = arg;
    while (!__atomic_load_n(&cd->launcher_stop, __ATOMIC_ACQUIRE)) {
        uint32_t seen = __atomic_load_n(&cd->launcher_bell, __ATOMIC_ACQUIRE);
        cuda_service(&cd->pub);
        if (__atomic_load_n(&cd->pub.broken, __ATOMIC_ACQUIRE))
            break;
        /* Something may be left to do only where another thread is at it. */
        (void)occl_futex_wait(&cd->launcher_bell, seen, occl_load_relaxed32(&cd->pub.wants) ? 100000 : OCCL_INF);
    }
    return NULL;
}

static void launcher_start(cuda_device_t *cd)
{
    sigset_t all, old;
    if (cd->has_launcher)
        return;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&cd->launcher, NULL, launcher_main, cd) == 0)
        occl_store_relaxed32(&cd->has_launcher, 1);
    else
        occl_log(cd->log, OCCL_LOG_WARN | OCCL_AREA_ENGINE, "no thread to launch from: cudaFree beside a stream that waits may hang");
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* --- stream order --------------------------------------------------------------------------------------------------- */

/*
 * A stream that waits takes one hardware queue, our own another; beyond that it is a kernel that waits, of one warp. Those are
 * counted, because the GPU holds so many kernels and no more, and the daemons have to fit (stream_check refuses). All under
 * launch_lock.
 */
static uint32_t queue_waits_most(const cuda_device_t *cd) { return cd->connections >= QUEUES_MIN ? cd->connections - 2 : 0; }
static uint32_t wait_kernels_most(const cuda_device_t *cd)
{
    uint32_t each = GRIDS / occl_load_relaxed32(&cd->sharing);
    return each > GRIDS_OF_DAEMON ? each - GRIDS_OF_DAEMON : 1;
}
static waiting_t *find_waiting(cuda_device_t *cd, const void *stream)
{
    for (uint32_t i = 0; i < cd->nwaiting; i++)
        if (cd->waiting[i].stream == stream)
            return &cd->waiting[i];
    return NULL;
}

/* Whether by a kernel. A ticket that one stream waits for already is waited for by another with its own. */
static int waits_now(cuda_device_t *cd, const occl_ticket_t *t, void *stream)
{
    waiting_t *w;
    int kernel = 1;
    occl_lock(&cd->launch_lock);
    if (occl_load_acquire64(&cd->words[2 * t->index + 1]) >= t->value) { /* over: it waits for nothing */
        occl_unlock(&cd->launch_lock);
        return 0;
    }
    w = find_waiting(cd, stream);
    if (!w && cd->nwaiting < sizeof(cd->waiting) / sizeof(*cd->waiting)) {
        w = &cd->waiting[cd->nwaiting];
        *w = (waiting_t){stream, 0, cd->nwaiting - cd->wait_kernels >= queue_waits_most(cd)};
        cd->nwaiting++;
        cd->wait_kernels += w->kernel;
    }
    if (w) {
        kernel = (int)w->kernel;
        if (cd->waits[t->index] == NO_STREAM) {
            cd->waits[t->index] = stream;
            w->waits++;
        }
    }
    occl_unlock(&cd->launch_lock);
    return kernel;
}
static void waits_no_more(cuda_device_t *cd, uint32_t ticket)
{
    waiting_t *w = cd->waits[ticket] == NO_STREAM ? NULL : find_waiting(cd, cd->waits[ticket]);
    cd->waits[ticket] = NO_STREAM;
    if (!w || --w->waits)
        return;
    cd->wait_kernels -= w->kernel;
    *w = cd->waiting[--cd->nwaiting];
}

static int cuda_ticket_take(occl_device_t *dev, occl_ticket_t *t)
{
    cuda_device_t *cd = of(dev);
    if (!cd->ntickets)
        return 0;
    t->index = cd->free_ticket[--cd->ntickets];
    t->value = ++cd->value[t->index];
    cd->waits[t->index] = NO_STREAM;
    occl_lock(&cd->launch_lock);
    occl_store_relaxed32(&cd->owed, cd->owed + 1);
    occl_unlock(&cd->launch_lock);
    return 1;
}

static int cuda_ticket_rung(const occl_device_t *dev, const occl_ticket_t *t)
{
    return occl_load_acquire64(&cof(dev)->words[2 * t->index]) >= t->value;
}

/* The word only grows, so a stream that comes to its wait later finds at least its value, whoever has the ticket by then. */
static void cuda_ticket_over(occl_device_t *dev, const occl_ticket_t *t)
{
    cuda_device_t *cd = of(dev);
    occl_store_release64(&cd->words[2 * t->index + 1], t->value);
    cd->free_ticket[cd->ntickets++] = t->index;
    occl_lock(&cd->launch_lock);
    waits_no_more(cd, t->index);
    occl_store_relaxed32(&cd->owed, cd->owed - 1);
    if (!cd->owed)
        settle(cd);
    occl_unlock(&cd->launch_lock);
}

static occl_status_t cuda_stream_check(occl_device_t *dev, void *stream, char *err, size_t errlen)
{
    cuda_device_t *cd = of(dev);
    occl_status_t s = occl_cuda_stream_check(&cd->cu, stream, err, errlen);
    int fits;
    if (s != OCCL_OK)
        return s;
    occl_lock(&cd->launch_lock);
    fits = cd->nwaiting - cd->wait_kernels < queue_waits_most(cd) || cd->wait_kernels < wait_kernels_most(cd) ||
           find_waiting(cd, stream);
    occl_unlock(&cd->launch_lock);
    if (fits)
        return OCCL_OK;
    (void)snprintf(err, errlen, "%u streams wait for collectives at once, and no more fit: a GPU holds %d kernels, and %u processes share this one",
                   cd->nwaiting, GRIDS, cd->sharing);
    return OCCL_ERR_RESOURCE;
}

/* Before anything can wait. Where another thread is stuck in the driver this one would be in a moment, too. Under service_lock. */
static void ready(cuda_device_t *cd)
{
    launcher_start(cd);
    hold(cd);
}

static occl_status_t cuda_stream_start(occl_device_t *dev, const occl_ticket_t *t, void *stream, char *err, size_t errlen)
{
    cuda_device_t *cd = of(dev);
    occl_status_t s = OCCL_OK;
    occl_lock(&cd->service_lock);
    ready(cd);
    /* A stream with nothing to do has come to it. That saves the way through the GPU, and a place behind what others wait for. */
    if (occl_cuda_stream_idle(&cd->cu, stream))
        occl_store_release64(&cd->words[2 * t->index], t->value);
    else
        s = occl_cuda_stream_write(&cd->cu, stream, &cd->words[2 * t->index], t->value);
    if (s != OCCL_OK)
        (void)snprintf(err, errlen, "%s", cd->cu.error);
    occl_unlock(&cd->service_lock);
    return s;
}

static occl_status_t cuda_stream_wait(occl_device_t *dev, const occl_ticket_t *t, void *stream, char *err, size_t errlen)
{
    cuda_device_t *cd = of(dev);
    occl_status_t s;
    int kernel;
    occl_lock(&cd->service_lock);
    ready(cd);
    kernel = waits_now(cd, t, stream);
    s = occl_cuda_stream_wait(&cd->cu, stream, &cd->words[2 * t->index + 1], t->value, kernel);
    if (s != OCCL_OK)
        (void)snprintf(err, errlen, "%s", cd->cu.error);
    occl_unlock(&cd->service_lock);
    return s;
}

/* Under service_lock. Its number, and of how many channels. 0: one has come since that stays. */
static uint64_t next_launch(cuda_device_t *cd, uint32_t *grid_p)
{
    uint64_t number = 0;
    occl_lock(&cd->launch_lock);
    *grid_p = cd->cu.grid;
    if (!cd->held || occl_cuda_is_out(&cd->cu, NULL))
        number = cd->cu.launches + 1;
    if (number && cd->held) { /* the one that stayed had to leave, for a run of more channels than it had */
        cd->held = number;
        *grid_p = occl_load_relaxed32(&cd->cu.most);
        occl_store_release64(&cd->cu.front->stay, number);
    }
    occl_unlock(&cd->launch_lock);
    return number;
}

static void cuda_service(occl_device_t *dev)
{
    cuda_device_t *cd = of(dev);
    if (occl_load_relaxed32(&cd->owed) && occl_load_relaxed32(&cd->has_launcher) && !pthread_equal(pthread_self(), cd->launcher))
        return; /* the launcher's */
    if (!occl_trylock(&cd->service_lock))
        return;
    while (occl_load_relaxed32(&dev->wants)) {
        occl_store_relaxed32(&dev->wants, 0);
        occl_fence_sys();
        if (occl_load_acquire32(&cd->asked)) {
            uint32_t grid;
            uint64_t number;
            occl_store_relaxed32(&cd->asked, 0);
            number = next_launch(cd, &grid);
            if (number && occl_cuda_launch_as(&cd->cu, number, grid) != OCCL_OK) {
                device_broken(cd);
                break; /* launching stays: nobody tries again */
            }
            if (number)
                __atomic_store_n(&cd->cu.launches, number, __ATOMIC_RELEASE);
            occl_store_release32(&cd->launching, 0);
        }
        occl_ipc_service(cd->ipc, !occl_load_relaxed32(&cd->owed));
        clean(cd);
    }
    if (dev->broken)
        want(cd); /* until the core has noticed */
    occl_unlock(&cd->service_lock);
}

static occl_status_t cuda_buffer(occl_device_t *dev, const void *p, uint64_t bytes, int expose, occl_buffer_t *b, char *err,
                                 size_t errlen)
{
    return occl_ipc_buffer(of(dev)->ipc, p, bytes, expose, b, err, errlen);
}
static void cuda_buffer_free(occl_device_t *dev, occl_buffer_t *b) { occl_ipc_buffer_free(of(dev)->ipc, b); }

static int cuda_reach(const occl_far_t *far, const char **why_p)
{
    *why_p = occl_ipc_peer_hides((const occl_ipc_peer_t *)far);
    return *why_p ? OCCL_EXPOSE_HANDLES : OCCL_EXPOSE_MAPPED;
}

static int cuda_resolve(occl_device_t *dev, occl_far_t *far, uint64_t number, uint64_t offset, uint64_t *at_p, void **hold_p,
                        const char **why_p)
{
    int r = occl_ipc_resolve(of(dev)->ipc, (occl_ipc_peer_t *)far, number, offset, at_p, hold_p, why_p);
    if (!r)
        want(of(dev));
    return r;
}
static void cuda_release(occl_device_t *dev, void **hold, uint32_t n) { occl_ipc_release(of(dev)->ipc, hold, n); }

static int cuda_upkeep(occl_device_t *dev)
{
    cuda_device_t *cd = of(dev);
    int close, any;
    /* While a stream waits for one of our runs a thread may be stuck in the driver until it goes on, and this one may be the one
     * that has to see to that. */
    if (occl_load_relaxed32(&cd->owed))
        return 1;
    any = occl_ipc_upkeep(cd->ipc, &close);
    if (close && occl_trylock(&cd->service_lock)) {
        /* Closing waits for what this process has on the GPU. So not while a stream waits for one of our runs, which may need this very
         * thread; and no stream begins to meanwhile (cuda_stream_wait). */
        if (!occl_load_relaxed32(&cd->owed))
            occl_ipc_close(cd->ipc, !occl_load_acquire32(&cd->launching) && occl_cuda_is_out(&cd->cu, NULL));
        occl_unlock(&cd->service_lock);
        if (occl_load_relaxed32(&dev->wants))
            cuda_service(dev); /* others found the lock taken */
    }
    return any;
}

static occl_status_t cuda_mem_alloc(occl_device_t *dev, uint64_t bytes, int expose, void **p_p, char *err, size_t errlen)
{
    return occl_ipc_mem_alloc(of(dev)->ipc, bytes, expose, p_p, err, errlen);
}
static int cuda_mem_free(occl_device_t *dev, void *p) { return occl_ipc_mem_free(of(dev)->ipc, p); }
static occl_status_t cuda_mem_register(occl_device_t *dev, void *p, uint64_t bytes, int expose, char *err, size_t errlen)
{
    return occl_ipc_mem_register(of(dev)->ipc, p, bytes, expose, err, errlen);
}
static int cuda_mem_unregister(occl_device_t *dev, void *p) { return occl_ipc_mem_unregister(of(dev)->ipc, p); }
static void cuda_counts(occl_device_t *dev, uint64_t *exports_p, uint64_t *imports_p)
{
    occl_ipc_counts(of(dev)->ipc, exports_p, imports_p);
}

/* As the engine's own table (kernels/occl_dev_data.h), which has no long double where nvcc compiles it. */
static int cuda_op_valid(uint32_t op, uint32_t type)
{
    return (int)occl_cuda_op_valid(op, type);
}

static const occl_device_far_ops_t far_ops = {
    .service = cuda_service,
    .busy = cuda_busy,
    .upkeep = cuda_upkeep,
    .describe = cuda_describe,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .base = cuda_base,
    .reach = cuda_reach,
    .reserve_channels = cuda_reserve_channels,
    .op_valid = cuda_op_valid,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .fill = cuda_fill,
    .bind = cuda_bind,
    .load = cuda_load,
    .unbind = cuda_unbind,
    .place = cuda_place,
    .forget = cuda_forget,
    .ticket_take = cuda_ticket_take,
    .ticket_rung = cuda_ticket_rung,
    .ticket_over = cuda_ticket_over,
    .stream_check = cuda_stream_check,
    .stream_start = cuda_stream_start,
    .stream_wait = cuda_stream_wait,
    .buffer = cuda_buffer,
    .buffer_free = cuda_buffer_free,
    .resolve = cuda_resolve,
    .release = cuda_release,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_register = cuda_mem_register,
    .mem_unregister = cuda_mem_unregister,
    .counts = cuda_counts,
};

const occl_device_ops_t occl_device_cuda = {
    .name = "cuda",
    .create = cuda_create,
    .destroy = cuda_destroy,
    .reserve = cuda_reserve,
    .submit = cuda_submit,
    .poll = cuda_poll,
    .drop = cuda_drop,
    .pop = cuda_pop,
    .stats = cuda_stats,
    .caller_executes = 0,
    .far = &far_ops,
};
