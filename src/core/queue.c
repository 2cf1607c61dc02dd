/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stream-ordered starts: runs that begin when a queue of the program gets to them.
 */
#include "core/internal.h"

static occl_status_t not_yet(void) { return occl_fail(OCCL_ERR_UNSUPPORTED, "stream-ordered starts are not built yet"); }

occl_status_t occl_hqueue_create(occl_ctx_t *ctx, occl_hqueue_t **q_p)
{
    (void)ctx, (void)q_p;
    return not_yet();
}

void occl_hqueue_free(occl_hqueue_t *q) { (void)q; }

occl_status_t occl_hqueue_synchronize(occl_hqueue_t *q)
{
    (void)q;
    return not_yet();
}

occl_status_t occl_coll_start_enqueue(occl_coll_t *coll, int type, void *queue)
{
    (void)coll, (void)type, (void)queue;
    return not_yet();
}

occl_status_t occl_coll_wait_enqueue(occl_coll_t *coll, int type, void *queue)
{
    (void)coll, (void)type, (void)queue;
    return not_yet();
}

occl_status_t occl_enqueue(occl_comm_t *comm, int32_t tag, const occl_coll_args_t *args, int type, void *queue)
{
    (void)comm, (void)tag, (void)args, (void)type, (void)queue;
    return not_yet();
}

occl_status_t occl_comm_take_error(occl_comm_t *comm, char *text, size_t len)
{
    (void)comm;
    if (text && len)
        text[0] = '\0';
    return OCCL_OK;
}
