/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA IPC (cuda_ipc.h). Driver calls are found at run time: the library loads where there is no driver. */
#include "transport/cuda_ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/occl_dev_atomic.h"
#include "util/hash.h"
#include "util/lock.h"

/* Entries of the table. One more export takes the place of the oldest, which is exported anew when it is used again. */
#define EXPORTS 1024

typedef struct entry {
    uint64_t number;          /* release, after the rest; 0: none, or gone */
    uint64_t base, bytes, id; /* id: the driver's, of the allocation */
    unsigned char handle[64];
    uint64_t pad[4];
} entry_t;

enum { WANTED, OPEN, FAILED };
typedef struct import {
    struct import *next;      /* in the list of what the service shall do */
    uint64_t number, bytes;
    unsigned char handle[64];
    unsigned char *base;
    int state;
    char why[96];
} import_t;

struct occl_ipc_peer {
    occl_ipc_peer_t *next;
    const void *arena;
    const entry_t *table;
    uint64_t at;              /* where the owner has the region */
    unsigned char handle[64];
    unsigned char *base;
    int mine, refs;
    occl_hash_t imports;      /* number -> import_t */
};

typedef struct bounce {
    struct bounce *next;
    void *p;
    uint64_t room;
} bounce_t;

typedef CUresult (*attributes_fn)(unsigned int n, CUpointer_attribute *which, void **data, CUdeviceptr p);
typedef CUresult (*range_fn)(CUdeviceptr *base, size_t *bytes, CUdeviceptr p);

struct occl_ipc {
    int device;
    occl_arena_t *arena;
    const occl_logger_t *log;
    attributes_fn attributes;
    range_fn range;
    CUresult (*context)(CUcontext *);
    uint64_t table_off;
    entry_t *table;

    occl_lock_t lock;         /* all below */
    uint64_t last;            /* number of the last export */
    occl_hash_t exports;      /* base -> number; what the entry says counts */
    occl_ipc_peer_t *peers;
    import_t *wanted, *closing;
    bounce_t *free_bounce;
    uint32_t nimports;
    uint32_t can_reach[64];   /* per device: 0 not asked, 1 yes, 2 no */
};

/* The device is current for the calling thread's driver calls; returns what was, for leave. */
static int enter(const occl_ipc_t *ipc)
{
    int was = -1;
    CUcontext ctx = NULL;
    if (cudaGetDevice(&was) != cudaSuccess)
        was = -1;
    if (was == ipc->device && ipc->context(&ctx) == CUDA_SUCCESS && ctx)
        return -1;
    (void)cudaSetDevice(ipc->device);
    return was == ipc->device ? -1 : was;
}
static void leave(int was)
{
    if (was >= 0)
        (void)cudaSetDevice(was);
}

static int driver(const char *name, unsigned int version, void *fn_p)
{
    enum cudaDriverEntryPointQueryResult found;
    void *p = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &p, version, cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess || !p)
        return 0;
    memcpy(fn_p, &p, sizeof(p));
    return 1;
}

occl_status_t occl_ipc_create(int device, occl_arena_t *arena, const occl_logger_t *log, occl_ipc_t **ipc_p, char *err,
                              size_t errlen)
{
    occl_ipc_t *ipc = calloc(1, sizeof(*ipc));
    if (!ipc) {
        (void)snprintf(err, errlen, "no memory");
        return OCCL_ERR_RESOURCE;
    }
    ipc->device = device;
    ipc->arena = arena;
    ipc->log = log;
    occl_lock_init(&ipc->lock);
    occl_hash_init(&ipc->exports);
    if (!driver("cuPointerGetAttributes", 7000, &ipc->attributes) || !driver("cuMemGetAddressRange", 3020, &ipc->range) ||
        !driver("cuCtxGetCurrent", 4000, &ipc->context)) {
        (void)snprintf(err, errlen, "the CUDA driver lacks a function that is needed");
        occl_ipc_destroy(ipc);
        return OCCL_ERR_UNSUPPORTED;
    }
    ipc->table_off = occl_arena_alloc(arena, EXPORTS * sizeof(entry_t), 64);
    if (!ipc->table_off) {
        (void)occl_arena_error(arena, err, errlen);
        occl_ipc_destroy(ipc);
        return OCCL_ERR_RESOURCE;
    }
    ipc->table = occl_arena_at(arena, ipc->table_off);
    *ipc_p = ipc;
    return OCCL_OK;
}

static void peer_free(occl_ipc_peer_t *p)
{
    size_t at = 0;
    import_t *m;
    while ((m = occl_hash_next(&p->imports, &at, NULL)) != NULL) {
        if (m->state == OPEN)
            (void)cudaIpcCloseMemHandle(m->base);
        free(m);
    }
    occl_hash_fini(&p->imports);
    if (!p->mine && p->base)
        (void)cudaIpcCloseMemHandle(p->base);
    free(p);
}

void occl_ipc_destroy(occl_ipc_t *ipc)
{
    int was;
    if (!ipc)
        return;
    was = ipc->context ? enter(ipc) : -1;
    for (import_t *m = ipc->closing, *next; m; m = next) {
        next = m->next;
        (void)cudaIpcCloseMemHandle(m->base);
        free(m);
    }
    for (occl_ipc_peer_t *p = ipc->peers, *next; p; p = next) {
        next = p->next;
        peer_free(p);
    }
    for (bounce_t *b = ipc->free_bounce, *next; b; b = next) {
        next = b->next;
        (void)cudaFreeHost(b->p);
        free(b);
    }
    leave(was);
    occl_hash_fini(&ipc->exports);
    if (ipc->table_off)
        (void)occl_arena_free(ipc->arena, ipc->table_off, EXPORTS * sizeof(entry_t));
    occl_lock_fini(&ipc->lock);
    free(ipc);
}

uint64_t occl_ipc_table(const occl_ipc_t *ipc) { return ipc->table_off; }

/* --- own buffers -------------------------------------------------------------------------------------------------- */

/* Number of the allocation's entry, made if there is none; 0: it cannot be exported. */
static uint64_t export_of(occl_ipc_t *ipc, uint64_t base, uint64_t bytes, uint64_t id)
{
    cudaIpcMemHandle_t handle;
    uint64_t number;
    entry_t *e;
    occl_lock(&ipc->lock);
    number = (uint64_t)(uintptr_t)occl_hash_get(&ipc->exports, base);
    if (number) {
        e = &ipc->table[number % EXPORTS];
        if (e->number != number || e->id != id || e->bytes != bytes)
            number = 0;
    }
    occl_unlock(&ipc->lock);
    if (number)
        return number;
    if (cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)base) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    /* The driver refuses to open what lies where a mapping of something freed still is, so peers have to know that it is gone before
     * they see this one. */
    occl_ipc_scan(ipc);
    occl_lock(&ipc->lock);
    number = (uint64_t)(uintptr_t)occl_hash_get(&ipc->exports, base);
    if (number && ipc->table[number % EXPORTS].number == number) /* another allocation that was there */
        occl_store_release64(&ipc->table[number % EXPORTS].number, 0);
    number = ++ipc->last;
    e = &ipc->table[number % EXPORTS];
    if (e->number) {
        (void)occl_hash_remove(&ipc->exports, e->base);
        occl_store_release64(&e->number, 0);
    }
    occl_fence_sys(); /* a reader that finds its number again after it has copied the rest has copied the old rest */
    e->base = base;
    e->bytes = bytes;
    e->id = id;
    memcpy(e->handle, &handle, sizeof(e->handle));
    occl_store_release64(&e->number, number);
    if (occl_hash_put(&ipc->exports, base, (void *)(uintptr_t)number) != OCCL_OK)
        number = 0;
    occl_unlock(&ipc->lock);
    return number;
}

static int can_reach(occl_ipc_t *ipc, int device)
{
    int yes = 0;
    if (device == ipc->device)
        return 1;
    if (device < 0 || device >= 64)
        return 0;
    if (!ipc->can_reach[device]) {
        if (cudaDeviceCanAccessPeer(&yes, ipc->device, device) != cudaSuccess)
            yes = 0;
        if (yes) {
            cudaError_t e = cudaDeviceEnablePeerAccess(device, 0);
            yes = e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
            (void)cudaGetLastError();
        }
        ipc->can_reach[device] = yes ? 1 : 2;
    }
    return ipc->can_reach[device] == 1;
}

static occl_status_t bounce_for(occl_ipc_t *ipc, uint64_t bytes, occl_buffer_t *b, char *err, size_t errlen)
{
    uint64_t room = 4096;
    bounce_t **at, *one = NULL;
    if (b->bounce && b->room >= bytes) {
        b->bytes = bytes;
        return OCCL_OK;
    }
    occl_ipc_buffer_free(ipc, b);
    while (room < bytes)
        room *= 2;
    occl_lock(&ipc->lock);
    for (at = &ipc->free_bounce; *at && (*at)->room != room; at = &(*at)->next)
        ;
    one = *at;
    if (one)
        *at = one->next;
    occl_unlock(&ipc->lock);
    if (!one) {
        cudaError_t e = cudaErrorMemoryAllocation;
        one = calloc(1, sizeof(*one));
        if (one)
            e = cudaHostAlloc(&one->p, room, cudaHostAllocMapped | cudaHostAllocPortable);
        if (e != cudaSuccess) {
            free(one);
            (void)cudaGetLastError();
            (void)snprintf(err, errlen, "no pinned memory for a bounce buffer of %llu bytes: %s", (unsigned long long)bytes,
                           cudaGetErrorString(e));
            return OCCL_ERR_RESOURCE;
        }
        one->room = room;
    }
    b->bounce = one->p;
    b->room = room;
    b->bytes = bytes;
    free(one);
    return OCCL_OK;
}

void occl_ipc_buffer_free(occl_ipc_t *ipc, occl_buffer_t *b)
{
    bounce_t *one;
    if (!b->bounce)
        return;
    one = calloc(1, sizeof(*one));
    if (one) { /* else it is lost until the process ends */
        one->p = b->bounce;
        one->room = b->room;
        occl_lock(&ipc->lock);
        one->next = ipc->free_bounce;
        ipc->free_bounce = one;
        occl_unlock(&ipc->lock);
    }
    b->bounce = NULL;
    b->room = b->bytes = 0;
}

occl_status_t occl_ipc_buffer(occl_ipc_t *ipc, const void *p, uint64_t bytes, int expose, occl_buffer_t *b, char *err, size_t errlen)
{
    unsigned int type = 0, managed = 0, legacy = 0;
    int device = -1, was = enter(ipc);
    uint64_t id = 0;
    CUdeviceptr at = 0, base = 0;
    size_t range = 0;
    occl_status_t s = OCCL_OK;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *data[] = {&type, &device, &id, &managed, &at, &legacy};
    if (ipc->attributes(sizeof(which) / sizeof(*which), which, data, (CUdeviceptr)(uintptr_t)p) != CUDA_SUCCESS)
        type = 0; /* nothing that CUDA knows */
    if (b->at == (uint64_t)(uintptr_t)p && b->id == id && id && b->bytes == bytes && (b->number || !expose || !legacy) &&
        (!b->number || ipc->table[b->number % EXPORTS].number == b->number)) {
        leave(was);
        return OCCL_OK; /* as it was */
    }
    b->number = b->offset = 0;
    b->id = id;
    if (managed || type == CU_MEMORYTYPE_HOST) {
        occl_ipc_buffer_free(ipc, b);
        b->at = managed || !at ? (uint64_t)(uintptr_t)p : (uint64_t)at;
        b->bytes = bytes;
    } else if (type == CU_MEMORYTYPE_DEVICE) {
        occl_ipc_buffer_free(ipc, b);
        b->at = (uint64_t)(uintptr_t)p;
        b->bytes = bytes;
        if (!can_reach(ipc, device)) {
            (void)snprintf(err, errlen, "the buffer %p is on GPU %d, which GPU %d of the communicator cannot reach", p, device,
                           ipc->device);
            s = OCCL_ERR_BUFFER;
        } else if (ipc->range(&base, &range, (CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS) {
            if ((uint64_t)(uintptr_t)p - base + bytes > range) {
                /* Memory that is mapped in pieces may go on behind this one. */
                if (legacy) {
                    (void)snprintf(err, errlen, "the buffer %p of %llu bytes goes beyond its allocation of %llu bytes", p,
                                   (unsigned long long)bytes, (unsigned long long)range);
                    s = OCCL_ERR_BUFFER;
                }
            } else if (legacy && expose) {
                b->number = export_of(ipc, base, range, id);
                b->offset = (uint64_t)(uintptr_t)p - base;
            }
        }
    } else {
        s = bounce_for(ipc, bytes, b, err, errlen);
        b->at = (uint64_t)(uintptr_t)b->bounce;
    }
    leave(was);
    return s;
}

void occl_ipc_scan(occl_ipc_t *ipc)
{
    int was = enter(ipc);
    for (uint32_t i = 0; i < EXPORTS; i++) {
        entry_t *e = &ipc->table[i];
        uint64_t number, base, id, now = 0;
        CUpointer_attribute which = CU_POINTER_ATTRIBUTE_BUFFER_ID;
        void *data = &now;
        occl_lock(&ipc->lock);
        number = e->number;
        base = e->base;
        id = e->id;
        occl_unlock(&ipc->lock);
        if (!number || (ipc->attributes(1, &which, &data, (CUdeviceptr)base) == CUDA_SUCCESS && now == id))
            continue;
        occl_lock(&ipc->lock);
        if (e->number == number) {
            (void)occl_hash_remove(&ipc->exports, base);
            occl_store_release64(&e->number, 0);
        }
        occl_unlock(&ipc->lock);
    }
    leave(was);
}

/* --- peers -------------------------------------------------------------------------------------------------------- */

occl_status_t occl_ipc_peer_open(occl_ipc_t *ipc, const occl_far_desc_t *desc, const void *arena, int mine, occl_ipc_peer_t **peer_p,
                                 char *err, size_t errlen)
{
    occl_ipc_peer_t *p;
    cudaError_t e = cudaSuccess;
    int was;
    occl_lock(&ipc->lock);
    for (p = ipc->peers; p; p = p->next) {
        if (p->arena == arena && p->at == desc->base && !memcmp(p->handle, desc->handle, sizeof(p->handle))) {
            p->refs++;
            occl_unlock(&ipc->lock);
            *peer_p = p;
            return OCCL_OK;
        }
    }
    occl_unlock(&ipc->lock);
    p = calloc(1, sizeof(*p));
    if (!p) {
        (void)snprintf(err, errlen, "no memory");
        return OCCL_ERR_RESOURCE;
    }
    p->arena = arena;
    p->table = (const entry_t *)((const unsigned char *)arena + desc->exports);
    p->at = desc->base;
    p->mine = mine;
    p->refs = 1;
    memcpy(p->handle, desc->handle, sizeof(p->handle));
    occl_hash_init(&p->imports);
    if (mine) {
        p->base = (unsigned char *)(uintptr_t)desc->base;
    } else {
        cudaIpcMemHandle_t h;
        memcpy(&h, desc->handle, sizeof(h));
        was = enter(ipc);
        e = cudaIpcOpenMemHandle((void **)&p->base, h, cudaIpcMemLazyEnablePeerAccess);
        leave(was);
        (void)cudaGetLastError();
    }
    if (e != cudaSuccess) {
        (void)snprintf(err, errlen, "%s", cudaGetErrorString(e));
        free(p);
        return OCCL_ERR_DEVICE;
    }
    occl_lock(&ipc->lock);
    p->next = ipc->peers;
    ipc->peers = p;
    occl_unlock(&ipc->lock);
    *peer_p = p;
    return OCCL_OK;
}

/* The last one leaves it to be found again, or for the end: communicators come and go among the same processes, and closing it
 * waits for the daemon. A process that is gone keeps nothing alive but its own memory. */
void occl_ipc_peer_close(occl_ipc_t *ipc, occl_ipc_peer_t *peer)
{
    occl_lock(&ipc->lock);
    peer->refs--;
    occl_unlock(&ipc->lock);
}

unsigned char *occl_ipc_peer_base(const occl_ipc_peer_t *peer) { return peer->base; }

int occl_ipc_resolve(occl_ipc_t *ipc, occl_ipc_peer_t *peer, uint64_t number, uint64_t offset, uint64_t *at_p, const char **why_p)
{
    import_t *m;
    int answer = 0;
    *at_p = 0;
    if (!number)
        return 1; /* a buffer of no bytes */
    occl_lock(&ipc->lock);
    m = occl_hash_get(&peer->imports, number);
    if (m && m->state == OPEN) {
        *at_p = (uint64_t)(uintptr_t)m->base + offset;
        answer = 1;
    } else if (m && m->state == FAILED) {
        *why_p = m->why;
        answer = -1;
    } else if (!m) {
        const entry_t *e = &peer->table[number % EXPORTS];
        m = calloc(1, sizeof(*m));
        if (m && occl_load_acquire64(&e->number) == number) {
            memcpy(m->handle, e->handle, sizeof(m->handle));
            m->bytes = e->bytes;
            occl_fence_sys();
        }
        if (!m || occl_load_relaxed64(&e->number) != number || occl_hash_put(&peer->imports, number, m) != OCCL_OK) {
            *why_p = m ? "it has been freed" : "no memory";
            free(m);
            answer = -1;
        } else {
            m->number = number;
            m->state = WANTED;
            m->next = ipc->wanted;
            ipc->wanted = m;
            ipc->nimports++;
        }
    }
    occl_unlock(&ipc->lock);
    return answer;
}

/* Under the table's lock: mappings of allocations that are gone go to the list of what is to be closed. */
static int find_stale(occl_ipc_t *ipc)
{
    for (occl_ipc_peer_t *p = ipc->peers; p; p = p->next) {
        import_t *m, *dead[16];
        uint32_t n;
        do {
            size_t at = 0;
            n = 0;
            while (n < 16 && (m = occl_hash_next(&p->imports, &at, NULL)) != NULL)
                if (m->state != WANTED && occl_load_acquire64(&p->table[m->number % EXPORTS].number) != m->number)
                    dead[n++] = m;
            for (uint32_t i = 0; i < n; i++) {
                m = dead[i];
                (void)occl_hash_remove(&p->imports, m->number);
                ipc->nimports--;
                if (m->state == FAILED) {
                    free(m);
                    continue;
                }
                m->next = ipc->closing;
                ipc->closing = m;
            }
        } while (n == 16);
    }
    return ipc->closing != NULL;
}

int occl_ipc_idle(occl_ipc_t *ipc)
{
    int any;
    occl_lock(&ipc->lock);
    any = find_stale(ipc);
    occl_unlock(&ipc->lock);
    return any;
}

int occl_ipc_any(const occl_ipc_t *ipc) { return ipc->last != 0 || ipc->nimports != 0; }

void occl_ipc_service(occl_ipc_t *ipc, int out)
{
    import_t *todo, *close;
    int was;
    occl_lock(&ipc->lock);
    todo = ipc->wanted;
    ipc->wanted = NULL;
    /* Before something is opened, what was freed is closed, even if that has to wait until the daemon leaves: see export_of. No
     * run uses it, or its owner has freed a buffer that was in use. */
    if (todo && find_stale(ipc))
        out = 1;
    close = out ? ipc->closing : NULL;
    if (out)
        ipc->closing = NULL;
    occl_unlock(&ipc->lock);
    if (!todo && !close)
        return;
    was = enter(ipc);
    while (close) {
        import_t *m = close;
        close = m->next;
        (void)cudaIpcCloseMemHandle(m->base);
        free(m);
    }
    while (todo) {
        import_t *m = todo;
        cudaIpcMemHandle_t h;
        void *p = NULL;
        cudaError_t e;
        todo = m->next;
        memcpy(&h, m->handle, sizeof(h));
        e = cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess);
        (void)cudaGetLastError();
        occl_lock(&ipc->lock);
        m->base = p;
        m->state = e == cudaSuccess ? OPEN : FAILED;
        (void)snprintf(m->why, sizeof(m->why), "%s", cudaGetErrorString(e));
        occl_unlock(&ipc->lock);
    }
    leave(was);
}
