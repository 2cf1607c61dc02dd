/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device: where channels run. All calls are made under the context's lock, from any thread; none blocks on a peer.
 * No slot of the table is ever NULL.
 */
#ifndef OCCL_SRC_DEVICE_DEVICE_H
#define OCCL_SRC_DEVICE_DEVICE_H

#include "kernels/occl_dev_chan.h"
#include "util/env.h"
#include "util/log.h"
#include "util/status.h"

typedef struct occl_device occl_device_t;

typedef struct occl_device_ops {
    const char *name;
    /* max_ranks: the largest communicator so far; grows by occl_device_ops.reserve. */
    occl_status_t (*create)(const occl_env_t *env, const occl_logger_t *log, occl_device_t **dev_p, char *err, size_t errlen);
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
    /* True when posts are made by the calling thread itself, and peers woken by it (host device). */
    int caller_executes;
} occl_device_ops_t;

struct occl_device {
    const occl_device_ops_t *ops;
    occl_daemon_t *daemon;
    uint64_t outstanding;  /* submitted and not yet reported */
    uint64_t launches, relaunches;
};

extern const occl_device_ops_t occl_device_host;
#if defined(OCCL_EMU) && OCCL_EMU
extern const occl_device_ops_t occl_device_emu;
#endif

/* Shared by devices whose queues the processor can address. */
occl_status_t occl_daemon_create(const occl_env_t *env, uint32_t nchannels, occl_daemon_t **d_p);
/* No channel is on the device: it replaces lists that they read. */
occl_status_t occl_daemon_reserve(occl_daemon_t *d, uint32_t ranks);
void occl_daemon_destroy(occl_daemon_t *d);
void occl_daemon_push(occl_daemon_t *d, occl_dev_run_t *run);
/* Next completion of any channel: the run and what happened (OCCL_DONE, OCCL_CQ_PARKED, ...), or NULL. */
occl_dev_run_t *occl_daemon_pop(occl_daemon_t *d, uint32_t *what_p);

#endif
