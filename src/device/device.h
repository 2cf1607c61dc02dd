/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device: where channels run. Calls are made under the context's lock, from any thread, unless they say otherwise; none
 * blocks on a peer. No slot of a table is ever NULL.
 */
#ifndef OCCL_SRC_DEVICE_DEVICE_H
#define OCCL_SRC_DEVICE_DEVICE_H

#include <stddef.h>

#include "kernels/occl_dev_chan.h"
#include "transport/arena.h"
#include "transport/far.h"
#include "util/env.h"
#include "util/list.h"
#include "util/log.h"
#include "util/status.h"

typedef struct occl_device occl_device_t;
typedef struct occl_bound occl_bound_t; /* a plan and its links as the device has them */
typedef struct occl_ticket {
    uint32_t index;
    uint64_t value; /* 0: none */
} occl_ticket_t;
typedef struct occl_far occl_far_t;     /* another process's memory on the device */

/*
 * A device whose memory is not the processor's. Addresses of links, scratch and buffers are then the device's, and the core does
 * not follow them. "No lock" calls go to the driver and may block for as long as another thread of the process is stuck in
 * one of its calls (doc/cuda.md); nobody who makes progress may have to wait for whoever makes them.
 */
typedef struct occl_device_far_ops {
    /* No lock. Does what wants doing (occl_device_t.wants); returns at once when another thread is at it. */
    void (*service)(occl_device_t *dev);
    /* Runs are being worked on: their completion rings no bell. */
    int (*busy)(const occl_device_t *dev);
    /* No lock, a few times a second, by the helper: lets the peers know what has been freed here, and lets go what they have freed.
     * True as long as there is anything to look after. */
    int (*upkeep)(occl_device_t *dev);

    void (*describe)(const occl_device_t *dev, occl_far_desc_t *desc_p);
    /* No lock. `arena`: where the owner's arena is mapped here; `mine`: it is this process. */
    occl_status_t (*map)(occl_device_t *dev, const occl_far_desc_t *desc, const void *arena, int mine, occl_far_t **far_p,
                         char *err, size_t errlen);
    /* The mapping is kept until the daemon is out. */
    void (*unmap)(occl_device_t *dev, occl_far_t *far);
    unsigned char *(*base)(const occl_far_t *far);
    /* OCCL_EXPOSE_*: what of its buffers can be reached from here, and if not all, why. */
    int (*reach)(const occl_far_t *far, const char **why_p);
    /* A communicator's runs take so many channels. sharing: processes on this one's GPU, as far as the communicator knows */
    void (*reserve_channels)(occl_device_t *dev, uint32_t channels, uint32_t sharing);

    /* Can it reduce this? */
    int (*op_valid)(uint32_t op, uint32_t type);
    /* Zeroed memory: offset from the own base, or 0. */
    uint64_t (*alloc)(occl_device_t *dev, uint64_t bytes);
    void (*free)(occl_device_t *dev, uint64_t off, uint64_t bytes);
    /* Sets `n` words, `stride` bytes apart, to value. A call to the driver under the lock: once in 2^30 runs. */
    void (*fill)(occl_device_t *dev, uint64_t off, uint64_t stride, uint32_t n, uint64_t value);

    /* Room for a plan with its links on the device, or NULL. The caller writes the plan's image, as it shall stand at *at_p, to
     * *image_p, and then has it loaded: the next submission comes after it. */
    occl_bound_t *(*bind)(occl_device_t *dev, size_t plan_bytes, const occl_link_t *links, uint32_t nlinks, uint64_t *at_p,
                          void **image_p);
    void (*load)(occl_device_t *dev, occl_bound_t *bound);
    void (*unbind)(occl_device_t *dev, occl_bound_t *bound);
    /* A place on the device for the run, if it has none yet: true when it may be submitted. Kept until it is reported (parked
     * runs keep theirs), or forgotten. */
    int (*place)(occl_device_t *dev, occl_dev_run_t *run);
    void (*forget)(occl_device_t *dev, occl_dev_run_t *run);

    /*
     * Stream order. A ticket is a pair of words that streams and processor share: `start` gets the ticket's value when the stream
     * comes to where the run begins, `over` when the run is over, and streams wait for it. take and over: under the lock.
     * While tickets are out, no call to the driver is needed for a run to go on.
     */
    int (*ticket_take)(occl_device_t *dev, occl_ticket_t *t); /* false: none free */
    int (*ticket_rung)(const occl_device_t *dev, const occl_ticket_t *t);
    void (*ticket_over)(occl_device_t *dev, const occl_ticket_t *t);
    /* No lock. OCCL_OK: work may be put into this stream (it is of this device, and is not being captured). */
    occl_status_t (*stream_check)(occl_device_t *dev, void *stream, char *err, size_t errlen);
    occl_status_t (*stream_start)(occl_device_t *dev, const occl_ticket_t *t, void *stream, char *err, size_t errlen);
    occl_status_t (*stream_wait)(occl_device_t *dev, const occl_ticket_t *t, void *stream, char *err, size_t errlen);
    /* No lock. Fills *b for a buffer, or brings up to date what it says. expose: OCCL_EXPOSE_*. */
    occl_status_t (*buffer)(occl_device_t *dev, const void *p, uint64_t bytes, int expose, occl_buffer_t *b, char *err,
                            size_t errlen);
    void (*buffer_free)(occl_device_t *dev, occl_buffer_t *b);
    /* Where a peer's buffer is here. 1: known, and stays until *hold_p is released; 0: the service will find out; -1: it cannot be
     * reached, *why says why. */
    int (*resolve)(occl_device_t *dev, occl_far_t *far, uint64_t number, uint64_t offset, uint64_t *at_p, void **hold_p,
                   const char **why_p);
    void (*release)(occl_device_t *dev, void **hold, uint32_t n);

    /* No lock. Memory that peers reach without a copy; false: it was not given, or registered. */
    occl_status_t (*mem_alloc)(occl_device_t *dev, uint64_t bytes, int expose, void **p_p, char *err, size_t errlen);
    int (*mem_free)(occl_device_t *dev, void *p);
    occl_status_t (*mem_register)(occl_device_t *dev, void *p, uint64_t bytes, int expose, char *err, size_t errlen);
    int (*mem_unregister)(occl_device_t *dev, void *p);
    void (*counts)(occl_device_t *dev, uint64_t *exports_p, uint64_t *imports_p);
} occl_device_far_ops_t;

typedef struct occl_device_ops {
    const char *name;
    /* `arena`: the process's, for what peers shall read. */
    occl_status_t (*create)(const occl_env_t *env, const occl_logger_t *log, occl_arena_t *arena, occl_device_t **dev_p, char *err,
                            size_t errlen);
    /* No run is outstanding. */
    void (*destroy)(occl_device_t *dev);
    /* Communicators of so many ranks will come. */
    occl_status_t (*reserve)(occl_device_t *dev, uint32_t ranks);
    /* Hands a run over; the entry, then the tail (release). Launches the daemon if it is out. */
    void (*submit)(occl_device_t *dev, occl_dev_run_t *run);
    /* Drives the device: the host device executes a pass in the calling thread, patient or not; the others see that a daemon
     * which left work behind is launched again. `news`: something arrived that a blocked run may have waited for. Returns
     * whether anything moved. */
    uint32_t (*poll)(occl_device_t *dev, uint32_t patient, uint32_t news);
    /* Withdraw a run that is submitted and not reported, at its next blocked step. Once. */
    void (*drop)(occl_device_t *dev, occl_dev_run_t *run);
    /* The next completion, or NULL, and what happened (OCCL_DONE, OCCL_CQ_PARKED, ...). */
    occl_dev_run_t *(*pop)(occl_device_t *dev, uint32_t *what_p);
    /* Adds up all channels. */
    void (*stats)(const occl_device_t *dev, occl_chan_stats_t *sum_p);
    /* True when posts are made by the calling thread itself, and peers woken by it (host device). */
    int caller_executes;
    const occl_device_far_ops_t *far; /* NULL: memory is the processor's own */
} occl_device_ops_t;

struct occl_device {
    const occl_device_ops_t *ops;
    occl_daemon_t *daemon; /* where the processor can address it, else NULL */
    uint32_t nchannels;
    int ordinal;           /* of the GPU */
    uint32_t room;         /* runs that may be outstanding */
    uint32_t eager_room;   /* the same, for runs whose peers may not be there */
    uint32_t wants;        /* far: the service has something to do; relaxed */
    uint64_t outstanding;  /* submitted and not yet reported */
    uint64_t launches, relaunches;
    occl_list_t waiting;   /* the core's: runs that found no room */
    char *broken;          /* the device has failed: why. Nothing that is outstanding comes back */
};

extern const occl_device_ops_t occl_device_host;
#if defined(OCCL_EMU) && OCCL_EMU
extern const occl_device_ops_t occl_device_emu;
extern const occl_device_ops_t *occl_emu_far; /* a test's: what OCCL_DEVICE=cuda means */
#endif
#if defined(OCCL_HAVE_CUDA_DEVICE) && OCCL_HAVE_CUDA_DEVICE
extern const occl_device_ops_t occl_device_cuda;
/* Whether the calling thread uses CUDA already: it has a current context. Initialises nothing. */
int occl_cuda_in_use(void);
/* The calling thread's current device; initialises CUDA. -1: none, and why. */
int occl_cuda_current(char *err, size_t errlen);
#endif

/* Shared by devices whose queues the processor can address. */
occl_status_t occl_daemon_create(const occl_env_t *env, uint32_t nchannels, occl_daemon_t **d_p);
/* No channel is on the device: it replaces lists that they read. */
occl_status_t occl_daemon_reserve(occl_daemon_t *d, uint32_t ranks);
void occl_daemon_destroy(occl_daemon_t *d);
void occl_daemon_push(occl_daemon_t *d, occl_dev_run_t *run);
occl_dev_run_t *occl_daemon_pop(occl_device_t *dev, uint32_t *what_p);
void occl_daemon_drop(occl_device_t *dev, occl_dev_run_t *run);
void occl_daemon_stats(const occl_device_t *dev, occl_chan_stats_t *sum_p);
/* The fields that every device has; nchannels is set. */
void occl_device_init(occl_device_t *dev, const occl_device_ops_t *ops);

#endif
