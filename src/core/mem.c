/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for users: what the device works on in place, and peers without a copy in between. */
#include "core/internal.h"

#include <stdlib.h>

enum { ALIGN = 4096 }; /* so that no two buffers share a page or a cache line */

occl_status_t occl_mem_alloc(occl_comm_t *c, uint64_t bytes, void **p_p)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    occl_ctx_t *ctx = c->ctx;
    void *p = NULL;
    char err[256] = "";
    occl_status_t s = OCCL_OK;
    *p_p = NULL;
    if (far)
        s = far->mem_alloc(c->dev, bytes, c->exposed, &p, err, sizeof(err));
    else if (bytes > SIZE_MAX - ALIGN || posix_memalign(&p, ALIGN, bytes ? (size_t)bytes : 1))
        s = OCCL_ERR_RESOURCE;
    if (s != OCCL_OK)
        return occl_fail(s, "%s", err[0] ? err : "no memory");
    occl_ctx_lock(ctx);
    s = occl_hash_put(&ctx->given, (uint64_t)(uintptr_t)p, far ? (void *)c->dev : (void *)ctx);
    occl_ctx_unlock(ctx);
    if (s != OCCL_OK) {
        if (far)
            (void)far->mem_free(c->dev, p);
        else
            free(p);
        return occl_fail(s, "no memory");
    }
    *p_p = p;
    return OCCL_OK;
}

occl_status_t occl_mem_free(occl_ctx_t *ctx, void *p)
{
    void *from;
    occl_ctx_lock(ctx);
    from = occl_hash_remove(&ctx->given, (uint64_t)(uintptr_t)p);
    occl_ctx_unlock(ctx);
    if (!from)
        return occl_fail(OCCL_ERR_BUFFER, "%p was not given by MPIX_Occl_mem_alloc, or is free already", p);
    if (from == ctx) {
        free(p);
    } else {
        occl_device_t *dev = from;
        (void)dev->ops->far->mem_free(dev, p);
    }
    return OCCL_OK;
}

occl_status_t occl_mem_register(occl_comm_t *c, void *p, uint64_t bytes)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    char err[256] = "";
    occl_status_t s = far ? far->mem_register(c->dev, p, bytes, c->exposed, err, sizeof(err)) : OCCL_OK;
    return s == OCCL_OK ? s : occl_fail(s, "%s", err);
}

/* The host device needs nothing, and remembers nothing. */
occl_status_t occl_mem_unregister(occl_comm_t *c, void *p)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    if (far && !far->mem_unregister(c->dev, p))
        return occl_fail(OCCL_ERR_BUFFER, "%p is not registered", p);
    return OCCL_OK;
}
