/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: the collective attach, the board (directory of tags, news), detach, and what becomes of members that go.
 */
#include "core/internal.h"

#include "kernels/occl_dev_front.h"

#include <stdio.h>
#include <stdlib.h>

#ifndef OCCL_VERSION_STRING
#define OCCL_VERSION_STRING "0.1.0"
#endif

enum { DIR_FIRST = 64, CELLS_AT_ONCE = 32 };

/* What the ranks tell each other at attach. Sent as bytes: a differing version is found before any other field is used. */
typedef struct hello {
    char version[32];
    uint32_t size_of_hello;
    uint32_t status;
    char text[192];
    occl_arena_desc_t desc;
    uint64_t blk_off, sleeper_off, cell_off, gen;
    uint64_t eager_max, direct_min, chunk, pool_slot;
    uint32_t nchannels, cma, emu, priority;
    uint32_t wish, has_far;    /* WISH_*; the far device is there and described below */
    char far_text[160];        /* or why it is not */
    occl_far_desc_t far;
    char algo[OCCL_ENV_STRING];
} hello_t;

typedef struct verdict {
    uint32_t status, cma; /* far: OCCL_EXPOSE_* */
    char text[192];
} verdict_t;

enum { WISH_HOST = 1, WISH_FAR = 2, WISH_SAID = 4 }; /* SAID: by the user, not found out */

void occl_comm_ref(occl_comm_t *c) { c->refs++; }

static void dir_free(occl_comm_t *c)
{
    while (c->dir_off) {
        occl_dirtable_t *t = occl_arena_at(c->ctx->arena, c->dir_off);
        uint64_t off = c->dir_off, bytes = c->dir_bytes;
        c->dir_off = t->old;
        c->dir_bytes = t->old_bytes;
        (void)occl_arena_free(c->ctx->arena, off, bytes);
    }
}

static void cell_give(occl_ctx_t *ctx, uint64_t off)
{
    if (ctx->ncells == ctx->cells_cap) {
        uint32_t cap = ctx->cells_cap ? 2 * ctx->cells_cap : 2 * CELLS_AT_ONCE;
        uint64_t *p = realloc(ctx->cells, cap * sizeof(*p));
        if (!p)
            return; /* lost until the process ends */
        ctx->cells = p;
        ctx->cells_cap = cap;
    }
    ctx->cells[ctx->ncells++] = off;
}

static int cell_take(occl_comm_t *c)
{
    occl_ctx_t *ctx = c->ctx;
    if (!ctx->ncells) {
        /* Many at once: they are never given back, and each by itself would stand between blocks that are. */
        uint64_t off = occl_ctx_alloc(ctx, CELLS_AT_ONCE * sizeof(occl_cell_t));
        for (uint64_t i = CELLS_AT_ONCE; off && i; i--)
            cell_give(ctx, off + (i - 1) * sizeof(occl_cell_t));
    }
    if (!ctx->ncells)
        return 0;
    c->cell_off = ctx->cells[--ctx->ncells];
    c->cell = occl_arena_at(ctx->arena, c->cell_off);
    c->gen = (occl_load_relaxed64(&c->cell->word) >> 2) + 1;
    occl_comm_set_state(c, PEER_NONE);
    return 1;
}

static void comm_free(occl_comm_t *c)
{
    occl_ctx_t *ctx = c->ctx;
    size_t at = 0;
    void *v;
    for (at = 0; (v = occl_hash_next(&c->tags, &at, NULL)) != NULL;)
        occl_tag_free(v);
    for (at = 0; (v = occl_hash_next(&c->plans, &at, NULL)) != NULL;)
        occl_cached_plan_free(v);
    occl_hash_fini(&c->tags);
    occl_hash_fini(&c->plans);
    for (int p = 0; c->member && p < c->size; p++) {
        if (c->member[p].far)
            c->dev->ops->far->unmap(c->dev, c->member[p].far);
        if (c->member[p].map)
            occl_peer_unmap(ctx->arena, c->member[p].map);
    }
    dir_free(c);
    if (c->cell_off)
        cell_give(ctx, c->cell_off);
    if (c->blk_off)
        (void)occl_arena_free(ctx->arena, c->blk_off, sizeof(occl_commblk_t));
    occl_list_remove(&c->in_ctx);
    occl_list_remove(&c->in_active);
    free(c->member);
    free(c->via);
    free(c);
}

/*
 * The last reference has gone: no run is pending here and the communicator is detached. Peers may still be writing to our mailboxes
 * (they are behind) and reading our records, so the memory stays until every member has said that it is detached too.
 */
static void comm_try_free(occl_comm_t *c)
{
    if (c->refs > 0)
        return;
    for (int p = 0; p < c->size; p++)
        if (p != c->rank && !c->member[p].dead && occl_member_state(&c->member[p]) == PEER_ATTACHED &&
            !c->ctx->closing)
            return;
    comm_free(c);
}

/* Communicators whose members were not all gone when we were through with them. */
void occl_comm_sweep(occl_ctx_t *ctx)
{
    ctx->sweep = 0;
    OCCL_LIST_EACH(c, next, &ctx->comms, occl_comm_t, in_ctx)
        comm_try_free(c);
}

/* Detached, and no run left that could still write to a member: say so. Members may now forget us, and who misses us knows. */
static void leave(occl_comm_t *c)
{
    if (!c->detached || c->live || occl_comm_state(c) != PEER_ATTACHED)
        return;
    occl_comm_set_state(c, PEER_DETACHED);
    occl_fence_sys();
    for (int p = 0; p < c->size; p++)
        if (p != c->rank && occl_load_relaxed32(&c->member[p].sleeper->sleeping))
            occl_host_wake(&c->member[p].sleeper->sleeping);
}

void occl_comm_run_gone(occl_comm_t *c)
{
    c->live--;
    leave(c);
}

void occl_comm_unref(occl_comm_t *c)
{
    if (--c->refs)
        return;
    c->detached = 1;
    leave(c);
    c->ctx->sweep = 1; /* not at once: the caller, or the caller's caller, may be going through its tags */
}

static int smaller(uint64_t a, uint64_t b) { return a < b; }

#if defined(OCCL_EMU) && OCCL_EMU
uint32_t occl_emu_nslots;
#endif

/* Rank 0's settings are everybody's; a rank that was told otherwise gets one warning. */
static void agree(occl_comm_t *c, const hello_t *all)
{
    const hello_t *h0 = &all[0];
    occl_ctx_t *ctx = c->ctx;
    c->eager_max = h0->eager_max;
    c->direct_min = h0->direct_min;
    c->chunk = h0->chunk;
    c->nchannels = h0->nchannels;
    memcpy(c->algo, h0->algo, sizeof(c->algo));
    c->geo.slot_bytes = 1024;
    c->geo.nslots = 4;
    c->pool_geo.slot_bytes = (uint32_t)h0->pool_slot;
    c->pool_geo.nslots = 4;
    if (c->dev->ops->far) {
        /* Half of a slot is flags. What goes one way needs one slot, which is as large as the stage has room for such messages. */
        uint32_t data = 4096;
        while (data > 512 && data * (uint32_t)c->size > OCCL_STAGE_BYTES)
            data /= 2;
        c->geo.slot_bytes = 2 * data + 64;
        c->geo.nslots = 1;
    }
#if defined(OCCL_EMU) && OCCL_EMU
    if (occl_emu_nslots)
        c->geo.nslots = c->pool_geo.nslots = occl_emu_nslots;
#endif
    for (int p = 1; p < c->size; p++) {
        const hello_t *h = &all[p];
        c->nchannels = smaller(h->nchannels, c->nchannels) ? h->nchannels : c->nchannels;
        if (p != c->rank)
            continue;
        if (h->eager_max != h0->eager_max || h->direct_min != h0->direct_min || h->chunk != h0->chunk)
            occl_log(&ctx->log, OCCL_LOG_WARN | OCCL_AREA_CHOICE,
                     "OCCL_EAGER_MAX, OCCL_DIRECT_MIN or OCCL_CHUNK differ between rank 0 (%llu, %llu, %llu) and rank %d "
                     "(%llu, %llu, %llu): rank 0's are used",
                     (unsigned long long)h0->eager_max, (unsigned long long)h0->direct_min, (unsigned long long)h0->chunk, p,
                     (unsigned long long)h->eager_max, (unsigned long long)h->direct_min, (unsigned long long)h->chunk);
        if (strcmp(h->algo, h0->algo))
            occl_log(&ctx->log, OCCL_LOG_WARN | OCCL_AREA_CHOICE,
                     "OCCL_ALGO differs between rank 0 (\"%s\") and rank %d (\"%s\"): rank 0's is used", h0->algo, p, h->algo);
    }
}

/* --- the device --------------------------------------------------------------------------------------------------- */

/*
 * What this rank would have its runs executed by: the info key's word, else OCCL_DEVICE's; "auto" is CUDA where the thread that
 * attaches uses CUDA already. Makes the device, so that it can be described.
 */
static occl_status_t wish(occl_ctx_t *ctx, const occl_attach_opts_t *opts, hello_t *mine, occl_device_t **far_p)
{
    const char *word = opts && opts->device && opts->device[0] ? opts->device : ctx->env.device;
    mine->wish = WISH_HOST;
    *far_p = NULL;
    (void)snprintf(mine->far_text, sizeof(mine->far_text), "it does not use CUDA, and neither OCCL_DEVICE nor the info key "
                                                           "mpix_occl_device asks for it");
    if (strcmp(word, "host") == 0) {
        mine->wish |= WISH_SAID;
        (void)snprintf(mine->far_text, sizeof(mine->far_text), "it asks for the host device");
        return OCCL_OK;
    }
    if (strcmp(word, "auto") != 0 && strcmp(word, "cuda") != 0) {
        (void)snprintf(mine->text, sizeof(mine->text), "the device \"%.40s\" (OCCL_DEVICE or info mpix_occl_device) is none of auto, "
                                                       "host, cuda", word);
        return OCCL_ERR_INFO;
    }
    if (ctx->dev->ops != &occl_device_host)
        return OCCL_OK;
#if defined(OCCL_EMU) && OCCL_EMU
    if (word[0] == 'c' && occl_emu_far) {
        *far_p = ctx->nfar ? ctx->far[0] : NULL;
        if (!*far_p && occl_emu_far->create(&ctx->env, &ctx->log, ctx->arena, far_p, mine->far_text, sizeof(mine->far_text)) == OCCL_OK) {
            ctx->far[0] = *far_p;
            __atomic_store_n(&ctx->nfar, 1, __ATOMIC_RELEASE);
        }
        mine->wish = WISH_FAR | WISH_SAID;
        mine->has_far = *far_p != NULL;
        if (*far_p)
            (*far_p)->ops->far->describe(*far_p, &mine->far);
        return OCCL_OK;
    }
#endif
#if defined(OCCL_HAVE_CUDA_DEVICE) && OCCL_HAVE_CUDA_DEVICE
    if (word[0] == 'c' || occl_cuda_in_use()) {
        char err[192] = "";
        int ordinal = occl_cuda_current(err, sizeof(err));
        occl_lock(&ctx->far_lock);
        for (uint32_t i = 0; ordinal >= 0 && i < ctx->nfar; i++)
            if (ctx->far[i]->ordinal == ordinal)
                *far_p = ctx->far[i];
        if (ordinal >= 0 && !*far_p && ctx->nfar < OCCL_FAR_MAX) {
            if (occl_device_cuda.create(&ctx->env, &ctx->log, ctx->arena, far_p, err, sizeof(err)) == OCCL_OK) {
                occl_ctx_lock(ctx);
                ctx->far[ctx->nfar] = *far_p;
                __atomic_store_n(&ctx->nfar, ctx->nfar + 1, __ATOMIC_RELEASE);
                occl_ctx_unlock(ctx);
            }
        }
        occl_unlock(&ctx->far_lock);
        mine->wish = WISH_FAR | (word[0] == 'c' ? WISH_SAID : 0);
        if (*far_p) {
            (*far_p)->ops->far->describe(*far_p, &mine->far);
            mine->has_far = 1;
        } else {
            (void)snprintf(mine->far_text, sizeof(mine->far_text), "%.150s", err);
            if (word[0] != 'c') {
                mine->wish = WISH_HOST;
                occl_log(&ctx->log, OCCL_LOG_WARN | OCCL_AREA_CHOICE, "CUDA is in use, but not for collectives: %s", err);
            }
        }
    }
#else
    if (word[0] == 'c') {
        mine->wish = WISH_FAR | WISH_SAID;
        (void)snprintf(mine->far_text, sizeof(mine->far_text), "its library was built without CUDA");
    }
#endif
    return OCCL_OK;
}

/* All look at the same data: CUDA if anybody asks for it, or if everybody uses it anyway. */
static occl_status_t choose_device(occl_comm_t *c, const hello_t *all, occl_device_t *far)
{
    int asks_far = -1, asks_host = -1, not_far = -1;
    for (int p = c->size; p-- > 0;) {
        if (all[p].wish & WISH_SAID)
            *(all[p].wish & WISH_FAR ? &asks_far : &asks_host) = p;
        if (!all[p].has_far)
            not_far = p;
    }
    c->dev = c->ctx->dev;
    if (asks_far >= 0 && asks_host >= 0)
        return occl_fail(OCCL_ERR_INFO, "attach: rank %d asks for the CUDA device and rank %d for the host device", asks_far, asks_host);
    if (asks_far >= 0 && not_far >= 0)
        return occl_fail(OCCL_ERR_UNSUPPORTED, "attach: rank %d asks for the CUDA device, but rank %d has none: %.150s", asks_far,
                         not_far, all[not_far].far_text);
    if (not_far < 0 && asks_host < 0)
        c->dev = far;
    return OCCL_OK;
}

/* Channels: what fits each GPU at once with all its processes. */
static void agree_channels(occl_comm_t *c, const hello_t *all)
{
    uint32_t n = c->dev->nchannels, mine = 1;
    if (!c->dev->ops->far)
        return;
    for (int p = 0; p < c->size; p++) {
        uint32_t sharing = 0, fit;
        for (int q = 0; q < c->size; q++)
            sharing += !memcmp(all[p].far.uuid, all[q].far.uuid, sizeof(all[p].far.uuid));
        fit = all[p].far.channels / sharing;
        mine = p == c->rank ? sharing : mine;
        n = fit < n ? fit : n;
    }
    c->nchannels = n ? n : 1;
    c->dev->ops->far->reserve_channels(c->dev, c->nchannels, mine);
}

/* No lock: goes to the driver. */
static occl_status_t map_far(occl_comm_t *c, const hello_t *all, verdict_t *mine)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    mine->cma = OCCL_EXPOSE_MAPPED;
    for (int p = 0; p < c->size; p++) {
        occl_member_t *m = &c->member[p];
        char err[160] = "";
        occl_status_t s = far->map(c->dev, &all[p].far, m->base, p == c->rank, &m->far, err, sizeof(err));
        if (s != OCCL_OK) {
            (void)snprintf(mine->text, sizeof(mine->text), "rank %d cannot map the device memory of rank %d: %.110s", c->rank, p, err);
            return s;
        }
        m->dbase = far->base(m->far);
        c->via[p] = 0;
        if (p != c->rank) {
            const char *why = NULL;
            uint32_t reach = (uint32_t)far->reach(m->far, &why);
            if (reach < mine->cma)
                occl_log(&c->ctx->log, OCCL_LOG_INFO | OCCL_AREA_CHOICE, "memory mapped by cuMemMap goes through slots: %s", why);
            mine->cma = reach < mine->cma ? reach : mine->cma;
        }
    }
    return OCCL_OK;
}

static occl_status_t comm_map(occl_comm_t *c, const hello_t *all, verdict_t *mine)
{
    occl_ctx_t *ctx = c->ctx;
    mine->cma = 1;
    for (int p = 0; p < c->size; p++) {
        occl_member_t *m = &c->member[p];
        char err[160] = "";
        occl_status_t s;
        m->desc = all[p].desc;
        if (p == c->rank) {
            m->base = m->dbase = occl_arena_base(ctx->arena);
            m->blk = c->blk;
            m->sleeper = ctx->sleeper;
            m->cell = c->cell;
            m->gen = c->gen;
            continue;
        }
        if (!occl_same_node(&all[p].desc, &all[c->rank].desc)) {
            (void)snprintf(mine->text, sizeof(mine->text), "ranks %d and %d are on different nodes", c->rank, p);
            return OCCL_ERR_UNSUPPORTED;
        }
        s = occl_peer_map(ctx->arena, &m->desc, &m->map, err, sizeof(err));
        if (s != OCCL_OK) {
            (void)snprintf(mine->text, sizeof(mine->text), "rank %d cannot map the memory of rank %d: %.120s", c->rank, p, err);
            return s;
        }
        m->base = m->dbase = occl_peer_base(m->map);
        m->blk = (occl_commblk_t *)(m->base + all[p].blk_off);
        m->sleeper = (occl_sleeper_t *)(m->base + all[p].sleeper_off);
        m->cell = (occl_cell_t *)(m->base + all[p].cell_off);
        m->gen = all[p].gen;
        if (!mine->cma || !all[p].cma || !all[0].cma || c->dev->ops->far) {
            mine->cma = 0;
        } else if (occl_cma_probe(ctx->arena, &m->desc, m->desc.probe, m->desc.nonce[0], &m->via, err, sizeof(err)) != OCCL_OK) {
            occl_log(&ctx->log, OCCL_LOG_INFO | OCCL_AREA_CHOICE, "no single copy with rank %d: %s", p, err);
            mine->cma = 0;
        }
        c->via[p] = m->via;
    }
    return OCCL_OK;
}

occl_status_t occl_comm_attach(occl_ctx_t *ctx, const occl_oob_t *oob, const occl_attach_opts_t *opts, occl_comm_t **comm_p)
{
    occl_comm_t *c = calloc(1, sizeof(*c));
    hello_t *mine = calloc(1, sizeof(*mine)), *all = calloc((size_t)oob->size, sizeof(*all));
    verdict_t v, *verdicts = calloc((size_t)oob->size, sizeof(*verdicts));
    occl_device_t *far = NULL;
    occl_status_t s = OCCL_OK;
    int p;
    memset(&v, 0, sizeof(v));
    if (!c || !mine || !all || !verdicts) {
        s = OCCL_ERR_RESOURCE; /* cannot even take part: the others will see it in the bootstrap's failure */
        (void)occl_fail(s, "no memory to attach");
        goto out;
    }
    c->ctx = ctx;
    c->rank = oob->rank;
    c->size = oob->size;
    c->refs = 1;
    c->priority = opts ? opts->priority : 0;
    occl_list_init(&c->in_ctx);
    occl_list_init(&c->in_active);
    occl_list_init(&c->active_tags);
    occl_hash_init(&c->tags);
    occl_hash_init(&c->plans);
    (void)snprintf(c->name, sizeof(c->name), "%s", oob->name ? oob->name : "communicator");
    c->member = calloc((size_t)c->size, sizeof(*c->member));
    c->via = calloc((size_t)c->size, sizeof(*c->via));
    c->dev = ctx->dev;
    mine->status = (uint32_t)wish(ctx, opts, mine, &far);

    occl_ctx_lock(ctx);
    occl_comm_sweep(ctx);
    (void)snprintf(mine->version, sizeof(mine->version), "%s", OCCL_VERSION_STRING);
    mine->size_of_hello = sizeof(*mine);
    if (mine->status) {
        /* said already */
    } else if (!c->member || !c->via || ctx->dev->ops->reserve(ctx->dev, (uint32_t)c->size) != OCCL_OK ||
               (far && far->ops->reserve(far, (uint32_t)c->size) != OCCL_OK)) {
        mine->status = OCCL_ERR_RESOURCE;
        (void)snprintf(mine->text, sizeof(mine->text), "no memory");
    } else {
        c->blk_off = occl_ctx_alloc(ctx, sizeof(occl_commblk_t));
        c->dir_bytes = sizeof(occl_dirtable_t) + DIR_FIRST * sizeof(occl_direntry_t);
        c->dir_off = occl_ctx_alloc(ctx, c->dir_bytes);
        if (!c->blk_off || !c->dir_off || !cell_take(c)) {
            mine->status = OCCL_ERR_RESOURCE;
            occl_arena_error(ctx->arena, mine->text, sizeof(mine->text));
        } else {
            c->blk = occl_arena_at(ctx->arena, c->blk_off);
            ((occl_dirtable_t *)occl_arena_at(ctx->arena, c->dir_off))->mask = DIR_FIRST - 1;
            occl_store_release64(&c->blk->dir, c->dir_off);
            occl_comm_set_state(c, PEER_ATTACHED);
        }
    }
    occl_arena_describe(ctx->arena, &mine->desc);
    mine->blk_off = c->blk_off;
    mine->sleeper_off = ctx->sleeper_off;
    mine->cell_off = c->cell_off;
    mine->gen = c->gen;
    mine->eager_max = ctx->env.eager_max;
    mine->direct_min = ctx->env.direct_min;
    mine->chunk = ctx->env.chunk;
    mine->pool_slot = 32 * 1024 + 64; /* so that four of them take 128 KiB, each with its header */
    mine->nchannels = ctx->dev->nchannels;
    mine->cma = (uint32_t)ctx->env.cma;
    mine->emu = !ctx->dev->ops->caller_executes;
    (void)snprintf(mine->algo, sizeof(mine->algo), "%s", opts && opts->algo ? opts->algo : ctx->env.algo);
    {
        char why[128];
        if (!mine->status && occl_plan_check_rules(mine->algo, why, sizeof(why)) != OCCL_OK) {
            mine->status = OCCL_ERR_INFO;
            (void)snprintf(mine->text, sizeof(mine->text), "OCCL_ALGO or mpix_occl_algo: %s", why);
        }
    }
    occl_ctx_unlock(ctx);

    if (oob->allgather(oob->state, mine, all, sizeof(*mine))) {
        s = occl_fail(OCCL_ERR_INTERN, "attach: the bootstrap exchange failed");
        goto out;
    }
    /* Everybody looks at the same data in the same order, so everybody finds the same. */
    for (p = 0; p < c->size && s == OCCL_OK; p++) {
        if (memcmp(all[p].version, all[0].version, sizeof(all[p].version)) || all[p].size_of_hello != all[0].size_of_hello)
            s = occl_fail(OCCL_ERR_UNSUPPORTED, "attach: rank 0 uses MPIX_Occl %.31s and rank %d uses %.31s", all[0].version, p,
                          all[p].version);
        else if (all[p].status)
            s = occl_fail((occl_status_t)all[p].status, "attach: rank %d: %.190s", p, all[p].text);
        else if (all[p].emu != all[0].emu)
            s = occl_fail(OCCL_ERR_UNSUPPORTED, "attach: rank 0 and rank %d run on different devices", p);
    }
    if (s == OCCL_OK)
        s = choose_device(c, all, far);
    if (s != OCCL_OK)
        goto out;
    occl_ctx_lock(ctx);
    agree(c, all);
    agree_channels(c, all);
    c->slot_channels = c->dev->ops->far ? 1 : c->nchannels;
    v.status = (uint32_t)comm_map(c, all, &v);
    occl_ctx_unlock(ctx);
    if (!v.status && c->dev->ops->far)
        v.status = (uint32_t)map_far(c, all, &v);
    if (oob->allgather(oob->state, &v, verdicts, sizeof(v))) {
        s = occl_fail(OCCL_ERR_INTERN, "attach: the bootstrap exchange failed");
        goto out;
    }
    c->exposed = (int)v.cma;
    for (p = 0; p < c->size && s == OCCL_OK; p++) {
        if (verdicts[p].status)
            s = occl_fail((occl_status_t)verdicts[p].status, "attach: %.190s", verdicts[p].text);
        if ((int)verdicts[p].cma < c->exposed)
            c->exposed = (int)verdicts[p].cma;
    }
    if (s != OCCL_OK)
        goto out;
    for (p = 0; p < c->size; p++) {
        if (oob->rank_name)
            oob->rank_name(oob->state, p, c->member[p].name, sizeof(c->member[p].name));
        else
            (void)snprintf(c->member[p].name, sizeof(c->member[p].name), "rank %d (pid %u)", p, c->member[p].desc.proc.pid);
    }
    occl_ctx_lock(ctx);
    ctx->oversubscribed |= c->size > ctx->ncpus && !c->dev->ops->far;
    occl_list_push_back(&ctx->comms, &c->in_ctx);
    occl_log(&ctx->log, OCCL_LOG_INFO | OCCL_AREA_CONTROL, "attached to %s: rank %d of %d, device %s, %u channels, single copy %s",
             c->name, c->rank, c->size, c->dev->ops->name, c->nchannels, c->exposed ? "yes" : "no");
    occl_ctx_unlock(ctx);
    *comm_p = c;
    c = NULL;
out:
    if (c) {
        if (c->ctx) {
            occl_ctx_lock(ctx);
            comm_free(c);
            occl_ctx_unlock(ctx);
        } else {
            free(c);
        }
    }
    free(mine);
    free(all);
    free(verdicts);
    return s;
}

void occl_comm_detach(occl_comm_t *c)
{
    occl_ctx_lock(c->ctx);
    c->detached = 1;
    leave(c);
    occl_ctx_unlock(c->ctx);
}

int occl_comm_all_detached(occl_comm_t *c)
{
    int all = 1;
    occl_ctx_lock(c->ctx);
    if (!c->detached || c->live)
        all = 0;
    for (int p = 0; p < c->size && all; p++)
        if (p != c->rank && !c->member[p].dead && occl_member_state(&c->member[p]) == PEER_ATTACHED)
            all = 0;
    occl_ctx_unlock(c->ctx);
    return all;
}

void occl_comm_release(occl_comm_t *c)
{
    occl_ctx_t *ctx = c->ctx;
    occl_ctx_lock(ctx);
    occl_comm_unref(c);
    occl_comm_sweep(ctx);
    occl_ctx_unlock(ctx);
}

int occl_comm_rank(const occl_comm_t *c) { return c->rank; }
int occl_comm_size(const occl_comm_t *c) { return c->size; }

const char *occl_comm_device(const occl_comm_t *c, int *queue_type_p)
{
    *queue_type_p = c->dev->ops->far ? OCCL_QUEUE_CUDA_STREAM : OCCL_QUEUE_HOST;
    return c->dev->ops->name;
}

/* --- directory and news ------------------------------------------------------------------------------------------- */

static void dir_put(occl_dirtable_t *t, uint64_t key, uint64_t off)
{
    uint64_t i = occl_hash_mix(key) & t->mask;
    while (occl_load_relaxed64(&t->e[i].key))
        i = (i + 1) & t->mask;
    occl_store_relaxed64(&t->e[i].off, off);
    occl_store_release64(&t->e[i].key, key + 1);
}

occl_status_t occl_dir_insert(occl_comm_t *c, uint64_t key, uint64_t off)
{
    occl_dirtable_t *t = occl_arena_at(c->ctx->arena, c->dir_off);
    if ((c->dir_count + 1) * 4 > (t->mask + 1) * 3) {
        /* A reader may be inside the old table: it stays until the communicator goes. It finds less there, and looks again. */
        uint64_t cap = (t->mask + 1) * 4, bytes = sizeof(*t) + cap * sizeof(occl_direntry_t), i;
        uint64_t off2 = occl_ctx_alloc(c->ctx, bytes);
        occl_dirtable_t *t2;
        if (!off2)
            return OCCL_ERR_RESOURCE;
        t2 = occl_arena_at(c->ctx->arena, off2);
        t2->mask = cap - 1;
        t2->old = c->dir_off;
        t2->old_bytes = c->dir_bytes;
        for (i = 0; i <= t->mask; i++)
            if (t->e[i].key)
                dir_put(t2, t->e[i].key - 1, t->e[i].off);
        occl_store_release64(&c->blk->dir, off2);
        c->dir_off = off2;
        c->dir_bytes = bytes;
        t = t2;
    }
    dir_put(t, key, off);
    c->dir_count++;
    return OCCL_OK;
}

uint64_t occl_dir_find(const occl_commblk_t *blk, const unsigned char *base, uint64_t key)
{
    const occl_dirtable_t *t = (const occl_dirtable_t *)(base + occl_load_acquire64(&blk->dir));
    uint64_t i = occl_hash_mix(key) & t->mask, k;
    while ((k = occl_load_acquire64(&t->e[i].key)) != 0) {
        if (k == key + 1)
            return occl_load_relaxed64(&t->e[i].off);
        i = (i + 1) & t->mask;
    }
    return 0;
}

void occl_comm_publish(occl_comm_t *c, uint64_t key)
{
    uint64_t head = c->blk->head;
    occl_store_relaxed64(&c->blk->news[head & (OCCL_NEWS_LEN - 1)], key);
    occl_store_release64(&c->blk->head, head + 1);
}

void occl_comm_lose(occl_comm_t *c, uint64_t key)
{
    uint64_t n = c->blk->nlost;
    if (occl_comm_is_lost(c->blk, key))
        return;
    if (n < OCCL_LOST_LEN)
        occl_store_relaxed64(&c->blk->lost[n], key);
    occl_store_release64(&c->blk->nlost, n + 1);
}

int occl_comm_is_lost(const occl_commblk_t *blk, uint64_t key)
{
    uint64_t n = occl_load_acquire64(&blk->nlost);
    if (n > OCCL_LOST_LEN)
        return 1;
    for (uint64_t i = 0; i < n; i++)
        if (occl_load_relaxed64(&blk->lost[i]) == key)
            return 1;
    return 0;
}

/* Looks at the tags that peers have published since the last time. Returns whether there was anything. */
int occl_comm_read_news(occl_comm_t *c)
{
    int any = 0, all = 0;
    for (int p = 0; p < c->size; p++) {
        occl_member_t *m = &c->member[p];
        uint64_t head;
        if (p == c->rank)
            continue;
        head = occl_load_acquire64(&m->blk->head);
        if (OCCL_LIKELY(head == m->cursor))
            continue;
        any = 1;
        if (head - m->cursor > OCCL_NEWS_LEN / 2) {
            all = 1; /* the ring may wrap while we read: look at everything instead */
            m->cursor = head;
            continue;
        }
        while (m->cursor != head) {
            uint64_t key = occl_load_relaxed64(&m->blk->news[m->cursor & (OCCL_NEWS_LEN - 1)]);
            occl_tag_t *t = occl_hash_get(&c->tags, key);
            m->cursor++;
            if (t && !occl_list_empty(&t->queue))
                occl_tag_check(t);
        }
        /* Entries that were overwritten while we read them show by the distance; then nothing read can be trusted. */
        if (occl_load_acquire64(&m->blk->head) - head > OCCL_NEWS_LEN / 2)
            all = 1;
    }
    if (all) {
        OCCL_LIST_EACH(t, next, &c->active_tags, occl_tag_t, in_active)
            occl_tag_check(t);
    }
    return any;
}

/* OCCL_T_WARN: runs that have waited so long are named once, with whom they wait for. */
void occl_comm_warn_late(occl_comm_t *c, uint64_t now)
{
    occl_ctx_t *ctx = c->ctx;
    occl_comm_ref(c); /* looking at a tag may end the last run */
    OCCL_LIST_EACH(t, next, &c->active_tags, occl_tag_t, in_active) {
        occl_run_t *r = OCCL_CONTAINER(t->queue.next, occl_run_t, in_tag);
        char label[96], who[400];
        occl_strbuf_t b;
        uint32_t missing = 0;
        if (!r->started_at || now - r->started_at < ctx->env.t_warn)
            continue;
        occl_tag_check(t);
        if (occl_list_empty(&t->queue) || OCCL_CONTAINER(t->queue.next, occl_run_t, in_tag) != r)
            continue;
        occl_strbuf_fixed(&b, who, sizeof(who));
        for (uint32_t i = 0; i < t->n; i++) {
            if (i == t->me || t->seen[i] >= r->n)
                continue;
            if (missing++ < 4)
                occl_strbuf_printf(&b, "%s%.80s", missing > 1 ? ", " : "", c->member[t->member[i]].name);
        }
        if (!missing)
            continue; /* all are here: it is under way */
        if (missing > 4)
            occl_strbuf_printf(&b, " and %u more", missing - 4);
        occl_log(&ctx->log, OCCL_LOG_WARN | OCCL_AREA_GATE, "%s: %s run %llu has waited %.1f s; not started by %s", c->name,
                 occl_tag_label(t, label, sizeof(label)), (unsigned long long)r->n, (double)(now - r->started_at) * 1e-9, who);
        r->started_at = 0;
    }
    occl_comm_unref(c);
}

/* Looks whose process is gone. One of them, or NULL. */
const char *occl_comm_find_dead(occl_comm_t *c)
{
    const char *name = NULL;
    for (int p = c->size - 1; p >= 0 && !c->ctx->threads_are_ranks; p--) {
        occl_member_t *m = &c->member[p];
        if (p == c->rank)
            continue;
        if (!m->dead && occl_member_state(m) == PEER_ATTACHED && occl_topo_start_time(m->desc.proc.pid) != m->desc.proc.start_time)
            m->dead = 1;
        if (m->dead)
            name = m->name;
    }
    return name;
}

/*
 * Members that will never start what they have not started: detached, finalized, dead, or without memory for it. A run that
 * still misses such a member fails and names it.
 */
void occl_comm_check_peers(occl_comm_t *c)
{
    int any_dead = occl_comm_find_dead(c) != NULL;
    /* The dead ones first: they are the cause, and a member that failed of it in the middle is not. */
    for (int q = any_dead ? 0 : c->size; q < 2 * c->size; q++) {
        int p = q % c->size;
        occl_member_t *m = &c->member[p];
        const char *how = NULL;
        uint32_t state;
        if (p == c->rank || (q < c->size && !m->dead))
            continue;
        state = occl_member_state(m);
        if (m->dead)
            how = "has exited";
        else if (state == PEER_DETACHED)
            how = "has detached from the communicator without starting it";
        else if (state == PEER_GONE)
            how = "has finalized MPI without starting it";
        OCCL_LIST_EACH(t, next, &c->active_tags, occl_tag_t, in_active) {
            occl_run_t *r = OCCL_CONTAINER(t->queue.next, occl_run_t, in_tag);
            const char *how_this = how;
            uint32_t i;
            char text[160];
            for (i = 0; i < t->n && t->member[i] != p; i++)
                ;
            if (i == t->n)
                continue;
            if (how) {
                occl_tag_check(t); /* its record may have come before it went */
                if (occl_list_empty(&t->queue) || OCCL_CONTAINER(t->queue.next, occl_run_t, in_tag) != r)
                    continue;
            }
            if (t->pblk[i]) {
                uint64_t w = occl_load_acquire64(&t->pblk[i]->rec[r->n & 1].word);
                if (w >> 16 == r->n && (w & 0xff) == REC_DEAD)
                    how_this = state == PEER_GONE ? "has finalized MPI while it was running" : "has failed in the middle of it";
                else if (t->seen[i] >= r->n && !m->dead)
                    continue; /* it has started this one and will finish it before it goes */
            } else if (!how && occl_comm_is_lost(m->blk, t->key)) {
                (void)snprintf(text, sizeof(text), "%.96s has no memory for this tag", m->name);
                occl_tag_kill(t, OCCL_ERR_RESOURCE, text);
                continue;
            }
            if (!how_this)
                continue;
            (void)snprintf(text, sizeof(text), "%.96s %s", m->name, how_this);
            occl_tag_kill(t, OCCL_ERR_PEER_FAILED, text);
        }
    }
}
