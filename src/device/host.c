/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host device of production: one channel with one lane, executed by whoever polls. A caller that waits does the work
 * itself (no hand-over between threads); the helper thread does it while the application computes.
 */
#include "device/device.h"

#include <stdlib.h>

#include "kernels/daemon.h"

static occl_status_t host_create(const occl_env_t *env, const occl_logger_t *log, occl_arena_t *arena, occl_device_t **dev_p,
                                 char *err, size_t errlen)
{
    occl_device_t *dev = calloc(1, sizeof(*dev));
    (void)log;
    (void)arena;
    if (!dev || occl_daemon_create(env, 1, &dev->daemon) != OCCL_OK) {
        free(dev);
        if (errlen)
            __builtin_snprintf(err, errlen, "no memory for the host device");
        return OCCL_ERR_RESOURCE;
    }
    /* One thread serves all runs, so a fruitless wait costs the others: short. */
    if (dev->daemon->conf.stick_max_ns > 2000)
        dev->daemon->conf.stick_max_ns = 2000;
    dev->daemon->conf.min_polls = 4;
    dev->daemon->conf.max_steps = 16; /* of up to 8 * OCCL_CHUNK: 1.5 ms, and mostly much less */
    dev->nchannels = 1;
    occl_device_init(dev, &occl_device_host);
    *dev_p = dev;
    return OCCL_OK;
}

static void host_destroy(occl_device_t *dev)
{
    occl_daemon_destroy(dev->daemon);
    free(dev);
}

static occl_status_t host_reserve(occl_device_t *dev, uint32_t ranks) { return occl_daemon_reserve(dev->daemon, ranks); }

static void host_submit(occl_device_t *dev, occl_dev_run_t *run)
{
    dev->outstanding++;
    occl_daemon_push(dev->daemon, run);
}

static uint32_t host_poll(occl_device_t *dev, uint32_t patient, uint32_t news)
{
    (void)news;
    return dev->outstanding ? occl_host_pass(dev->daemon, patient) : 0;
}

const occl_device_ops_t occl_device_host = {
    .name = "host",
    .create = host_create,
    .destroy = host_destroy,
    .reserve = host_reserve,
    .submit = host_submit,
    .poll = host_poll,
    .drop = occl_daemon_drop,
    .pop = occl_daemon_pop,
    .stats = occl_daemon_stats,
    .caller_executes = 1,
};
