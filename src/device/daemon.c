/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues and channels of a device, as the processor allocates and serves them. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

enum { TILE_BYTES = 256 * 1024 };

static void *aligned_zero(size_t bytes)
{
    void *p = NULL;
    bytes = (bytes + 63) / 64 * 64;
    if (posix_memalign(&p, 64, bytes))
        return NULL;
    return memset(p, 0, bytes);
}

occl_status_t occl_daemon_create(const occl_env_t *env, uint32_t nchannels, occl_daemon_t **d_p)
{
    occl_daemon_t *d = aligned_zero(sizeof(*d));
    if (!d)
        return OCCL_ERR_RESOURCE;
    d->nchannels = nchannels;
    d->conf.stick_min_ns = env->stick_min;
    d->conf.stick_max_ns = env->stick_max;
    d->conf.linger_ns = env->linger;
    d->conf.residence_ns = env->residence;
    d->conf.park_ns = 100000;
    d->conf.min_polls = 8;
    d->conf.max_steps = 64;
    d->chan = aligned_zero(nchannels * sizeof(*d->chan));
    if (!d->chan)
        goto fail;
    for (uint32_t c = 0; c < nchannels; c++) {
        d->chan[c].index = c;
        d->chan[c].nchannels = nchannels;
        d->chan[c].tile_bytes = TILE_BYTES;
        d->chan[c].tile = aligned_zero(TILE_BYTES);
        if (!d->chan[c].tile)
            goto fail;
    }
    if (occl_daemon_reserve(d, 2) != OCCL_OK)
        goto fail;
    *d_p = d;
    return OCCL_OK;
fail:
    occl_daemon_destroy(d);
    return OCCL_ERR_RESOURCE;
}

occl_status_t occl_daemon_reserve(occl_daemon_t *d, uint32_t ranks)
{
    if (ranks <= d->max_ranks)
        return OCCL_OK;
    /* Twice: a reduce of all keeps a second list for bounced sources. */
    for (uint32_t c = 0; c < d->nchannels; c++) {
        const void **s = aligned_zero((2 * (size_t)ranks + 4) * sizeof(void *));
        if (!s)
            return OCCL_ERR_RESOURCE;
        free((void *)d->chan[c].srcs);
        d->chan[c].srcs = s;
    }
    d->max_ranks = ranks;
    return OCCL_OK;
}

void occl_daemon_destroy(occl_daemon_t *d)
{
    if (!d)
        return;
    for (uint32_t c = 0; d->chan && c < d->nchannels; c++) {
        free(d->chan[c].tile);
        free((void *)d->chan[c].srcs);
    }
    free(d->chan);
    free(d);
}

void occl_daemon_push(occl_daemon_t *d, occl_dev_run_t *run)
{
    uint64_t tail = d->sq.tail;
    occl_store_relaxed64(&d->sq.entry[tail & (OCCL_QUEUE_LEN - 1)], (uint64_t)(uintptr_t)run);
    occl_store_release64(&d->sq.tail, tail + 1); /* the run's fields are seen by whoever acquires the tail */
}

occl_dev_run_t *occl_daemon_pop(occl_device_t *dev, uint32_t *what_p)
{
    occl_daemon_t *d = dev->daemon;
    for (uint32_t c = 0; c < d->nchannels; c++) {
        occl_queue_t *q = &d->chan[c].cq;
        uint64_t e;
        if (q->head == occl_load_acquire64(&q->tail))
            continue;
        e = occl_load_relaxed64(&q->entry[q->head & (OCCL_QUEUE_LEN - 1)]);
        q->head++;
        *what_p = (uint32_t)(e & OCCL_CQ_MASK);
        return (occl_dev_run_t *)(uintptr_t)(e & ~OCCL_CQ_MASK);
    }
    return NULL;
}

void occl_daemon_drop(occl_device_t *dev, occl_dev_run_t *run)
{
    (void)dev;
    occl_store_relaxed32(&run->drop, 1);
}

void occl_daemon_stats(const occl_device_t *dev, occl_chan_stats_t *sum_p)
{
    memset(sum_p, 0, sizeof(*sum_p));
    for (uint32_t c = 0; c < dev->nchannels; c++) {
        const uint64_t *from = (const uint64_t *)&dev->daemon->chan[c].stats;
        uint64_t *to = (uint64_t *)sum_p;
        for (size_t i = 0; i < sizeof(*sum_p) / sizeof(*to); i++)
            to[i] += occl_load_relaxed64(from + i);
    }
}

void occl_device_init(occl_device_t *dev, const occl_device_ops_t *ops)
{
    dev->ops = ops;
    dev->room = OCCL_QUEUE_LEN;
    dev->eager_room = OCCL_TABLE_MAX;
    occl_list_init(&dev->waiting);
}
