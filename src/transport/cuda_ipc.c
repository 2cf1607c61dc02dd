/* SPDX-License-Identifier: BSD-3-Clause */
/* CUDA IPC (cuda_ipc.h). Driver calls are found at run time: the library loads where there is no driver. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "transport/cuda_ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/occl_dev_atomic.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/lock.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum {
    SEGMENT = 256,     /* entries of the table that are made at a time */
    SEGMENTS = 256,
    PARTS_MAX = 512,   /* pieces that one buffer may lie in */
    FD_SHARE = 2,      /* of the descriptors that the process may have, one in so many at most */
    UPKEEP_NS = 200000000,
    CLOSE_ANYWAY_NS = 400000000
};

/*
 * The table of exports, in the owner's arena. An entry's number says where it is (lower 16 bits) and which life of that place it is,
 * so an entry is never replaced: it is there until its allocation is gone. When all are taken, further buffers are hidden.
 *
 * Readers copy an entry and look at its number again, and once more after they have fetched the descriptors that it names: the
 * owner takes the number away before it closes them.
 */
typedef struct part {
    int32_t fd;               /* in the owner */
    uint32_t pad;
    uint64_t bytes;
} part_t;
typedef struct entry {
    uint64_t number;          /* release, after the rest; 0: none, or gone */
    uint64_t base, bytes, id; /* id: the driver's, of the allocation; of parts: a hash of all theirs */
    unsigned char handle[64]; /* IPC handle, when there are no parts */
    uint64_t parts;           /* offset of part_t[nparts] in the arena */
    uint32_t nparts, pad[5];
} entry_t;
typedef struct table {
    uint64_t pid_ns, nonce[2];
    uint32_t pid;
    int32_t probe;            /* a descriptor of memory that holds the nonce: peers find out whether they may fetch any; -1: none */
    uint64_t segment[SEGMENTS]; /* offsets of entry_t[SEGMENT]; release; 0: not made yet */
} table_t;

static uint64_t slot_of(uint64_t number) { return number & 0xffff; }

/* A mapped piece of memory that was exported. Several entries may have it. */
typedef struct chunk {
    uint64_t base, bytes, id;
    int fd;
    uint32_t refs;
} chunk_t;
typedef struct own {          /* what the owner knows of an entry */
    uint64_t life, key;
    chunk_t **chunk;
    uint32_t nchunks;
} own_t;

enum { WANTED, OPEN, FAILED };
typedef struct import {
    struct import *next;      /* in the list of what the service shall do */
    occl_ipc_peer_t *peer;
    uint64_t number, bytes;
    unsigned char handle[64];
    part_t *part;             /* until it is mapped */
    uint32_t nparts;
    unsigned char *base;
    uint32_t users;           /* runs */
    int state;
    int again;                /* it has failed for what may pass */
    char why[96];
} import_t;

struct occl_ipc_peer {
    occl_ipc_peer_t *next;
    const unsigned char *arena;
    const table_t *table;
    uint64_t at;              /* where the owner has the region */
    unsigned char handle[64];
    unsigned char *base;
    int mine, refs;
    int pidfd;                /* -1: its descriptors cannot be fetched, and why */
    char why[96];
    occl_hash_t imports;      /* number -> import_t */
};

typedef struct bounce {
    struct bounce *next;
    void *p;
    uint64_t room;
} bounce_t;

/* Memory that mem_alloc gave or mem_register made known to the driver. */
typedef struct given {
    int allocated;            /* else registered: the driver was told, or `own`: there was nothing to tell */
    int told;
} given_t;

/* The driver's */
typedef struct driver {
    CUresult (*attributes)(unsigned int n, CUpointer_attribute *which, void **data, CUdeviceptr p);
    CUresult (*range)(CUdeviceptr *base, size_t *bytes, CUdeviceptr p);
    CUresult (*context)(CUcontext *);
    /* mapped memory; all or none */
    CUresult (*retain)(CUmemGenericAllocationHandle *h, void *p);
    CUresult (*export_fd)(void *fd, CUmemGenericAllocationHandle h, CUmemAllocationHandleType type, unsigned long long flags);
    CUresult (*import_fd)(CUmemGenericAllocationHandle *h, void *fd, CUmemAllocationHandleType type);
    CUresult (*release)(CUmemGenericAllocationHandle h);
    CUresult (*reserve)(CUdeviceptr *p, size_t bytes, size_t align, CUdeviceptr at, unsigned long long flags);
    CUresult (*unreserve)(CUdeviceptr p, size_t bytes);
    CUresult (*map)(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr p, size_t bytes);
    CUresult (*access)(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *desc, size_t n);
    CUresult (*error)(CUresult e, const char **text);
    int mapped;
} driver_t;

struct occl_ipc {
    int device;
    occl_arena_t *arena;
    const occl_logger_t *log;
    driver_t cu;
    uint64_t table_off;
    table_t *table;
    int probe;
    uint32_t max_fds;
    uint64_t upkept_at;       /* the helper's */

    occl_lock_t lock;         /* all below */
    own_t *own;               /* [nsegments * SEGMENT] */
    uint32_t *free_slot, nfree;
    uint32_t nsegments, nexports, nfds;
    uint64_t made;            /* exports ever */
    occl_hash_t exports;      /* key -> number */
    occl_hash_t chunks;       /* base -> chunk_t */
    occl_hash_t given;        /* address -> given_t */
    occl_ipc_peer_t *peers;
    import_t *wanted, *closing;
    uint64_t closing_since;
    char why[96];             /* of the last resolve; the context's lock is held for that */
    bounce_t *free_bounce;
    uint32_t nimports;
    uint32_t can_reach[64];   /* per device: 0 not asked, 1 yes, 2 no */
};

/* The device is current for the calling thread's driver calls, and none of them is taken for a part of a graph that some thread is
 * capturing. */
typedef struct here {
    int device;
    enum cudaStreamCaptureMode mode;
} here_t;
static here_t enter(const occl_ipc_t *ipc)
{
    here_t was = {-1, cudaStreamCaptureModeRelaxed};
    CUcontext ctx = NULL;
    int device;
    (void)cudaThreadExchangeStreamCaptureMode(&was.mode);
    if (cudaGetDevice(&device) != cudaSuccess)
        device = -1;
    if (device == ipc->device && ipc->cu.context(&ctx) == CUDA_SUCCESS && ctx)
        return was;
    (void)cudaSetDevice(ipc->device);
    was.device = device == ipc->device ? -1 : device;
    return was;
}
static void leave(here_t was)
{
    if (was.device >= 0)
        (void)cudaSetDevice(was.device);
    (void)cudaThreadExchangeStreamCaptureMode(&was.mode);
}

int occl_cuda_driver(const char *name, unsigned int version, void *fn_p)
{
    enum cudaDriverEntryPointQueryResult found;
    void *p = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &p, version, cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess || !p)
        return 0;
    memcpy(fn_p, &p, sizeof(p));
    return 1;
}

static const char *driver_text(const occl_ipc_t *ipc, CUresult e)
{
    const char *text = NULL;
    if (ipc->cu.error(e, &text) != CUDA_SUCCESS || !text)
        text = "the driver refuses";
    return text;
}

/* A descriptor that peers fetch, to find out whether they may, and from the right process. */
static int make_probe(const uint64_t nonce[2])
{
    int fd = memfd_create("mpix_occl-probe", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, nonce, 16) == 16)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

occl_status_t occl_ipc_create(int device, occl_arena_t *arena, const occl_logger_t *log, occl_ipc_t **ipc_p, char *err,
                              size_t errlen)
{
    occl_ipc_t *ipc = calloc(1, sizeof(*ipc));
    occl_arena_desc_t desc;
    struct rlimit limit;
    driver_t *cu;
    if (!ipc) {
        (void)snprintf(err, errlen, "no memory");
        return OCCL_ERR_RESOURCE;
    }
    cu = &ipc->cu;
    ipc->device = device;
    ipc->arena = arena;
    ipc->log = log;
    ipc->probe = -1;
    occl_lock_init(&ipc->lock);
    occl_hash_init(&ipc->exports);
    occl_hash_init(&ipc->chunks);
    occl_hash_init(&ipc->given);
    if (!occl_cuda_driver("cuPointerGetAttributes", 7000, &cu->attributes) || !occl_cuda_driver("cuMemGetAddressRange", 3020, &cu->range) ||
        !occl_cuda_driver("cuCtxGetCurrent", 4000, &cu->context) || !occl_cuda_driver("cuGetErrorString", 6000, &cu->error)) {
        (void)snprintf(err, errlen, "the CUDA driver lacks a function that is needed");
        cu->context = NULL;
        occl_ipc_destroy(ipc);
        return OCCL_ERR_UNSUPPORTED;
    }
    cu->mapped = occl_cuda_driver("cuMemRetainAllocationHandle", 11000, &cu->retain) &&
                 occl_cuda_driver("cuMemExportToShareableHandle", 10020, &cu->export_fd) &&
                 occl_cuda_driver("cuMemImportFromShareableHandle", 10020, &cu->import_fd) && occl_cuda_driver("cuMemRelease", 10020, &cu->release) &&
                 occl_cuda_driver("cuMemAddressReserve", 10020, &cu->reserve) && occl_cuda_driver("cuMemAddressFree", 10020, &cu->unreserve) &&
                 occl_cuda_driver("cuMemMap", 10020, &cu->map) && occl_cuda_driver("cuMemUnmap", 10020, &cu->unmap) &&
                 occl_cuda_driver("cuMemSetAccess", 10020, &cu->access);
    ipc->table_off = occl_arena_alloc(arena, sizeof(table_t), 64);
    if (!ipc->table_off) {
        (void)occl_arena_error(arena, err, errlen);
        occl_ipc_destroy(ipc);
        return OCCL_ERR_RESOURCE;
    }
    ipc->table = occl_arena_at(arena, ipc->table_off);
    occl_arena_describe(arena, &desc);
    ipc->table->pid = desc.proc.pid;
    ipc->table->pid_ns = desc.proc.pid_ns;
    memcpy(ipc->table->nonce, desc.nonce, sizeof(desc.nonce));
    if (cu->mapped)
        ipc->probe = make_probe(desc.nonce);
    ipc->table->probe = ipc->probe;
    ipc->max_fds = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < 1u << 20 ? (uint32_t)limit.rlim_cur / FD_SHARE : 1u << 16;
    *ipc_p = ipc;
    return OCCL_OK;
}

/* Unmaps it, whatever it is. */
static void unmap(occl_ipc_t *ipc, import_t *m)
{
    if (m->nparts) {
        (void)ipc->cu.unmap((CUdeviceptr)(uintptr_t)m->base, m->bytes);
        (void)ipc->cu.unreserve((CUdeviceptr)(uintptr_t)m->base, m->bytes);
    } else {
        (void)cudaIpcCloseMemHandle(m->base);
    }
}

static void import_free(import_t *m)
{
    free(m->part);
    free(m);
}

static void peer_free(occl_ipc_t *ipc, occl_ipc_peer_t *p)
{
    size_t at = 0;
    import_t *m;
    while ((m = occl_hash_next(&p->imports, &at, NULL)) != NULL) {
        if (m->state == OPEN)
            unmap(ipc, m);
        import_free(m);
    }
    occl_hash_fini(&p->imports);
    if (!p->mine && p->base)
        (void)cudaIpcCloseMemHandle(p->base);
    if (p->pidfd >= 0)
        (void)close(p->pidfd);
    free(p);
}

static void drop(occl_ipc_t *ipc, uint64_t number);

static void given_free(void *p, given_t *g)
{
    if (g->allocated)
        (void)cudaFree(p);
    else if (g->told)
        (void)cudaHostUnregister(p);
    free(g);
}

void occl_ipc_destroy(occl_ipc_t *ipc)
{
    here_t was = {-1, cudaStreamCaptureModeRelaxed};
    size_t at = 0;
    uint64_t key;
    void *v;
    if (!ipc)
        return;
    if (ipc->cu.context)
        was = enter(ipc);
    for (import_t *m = ipc->closing, *next; m; m = next) {
        next = m->next;
        unmap(ipc, m);
        import_free(m);
    }
    for (occl_ipc_peer_t *p = ipc->peers, *next; p; p = next) {
        next = p->next;
        peer_free(ipc, p);
    }
    for (bounce_t *b = ipc->free_bounce, *next; b; b = next) {
        next = b->next;
        (void)cudaFreeHost(b->p);
        free(b);
    }
    while ((v = occl_hash_next(&ipc->given, &at, &key)) != NULL)
        given_free((void *)(uintptr_t)key, v);
    for (uint32_t s = 0; s < ipc->nsegments; s++) {
        entry_t *e = occl_arena_at(ipc->arena, ipc->table->segment[s]);
        for (uint32_t i = 0; i < SEGMENT; i++)
            if (e[i].number)
                drop(ipc, e[i].number);
        (void)occl_arena_free(ipc->arena, ipc->table->segment[s], SEGMENT * sizeof(entry_t));
    }
    if (ipc->cu.context)
        leave(was);
    if (ipc->probe >= 0)
        (void)close(ipc->probe);
    occl_hash_fini(&ipc->exports);
    occl_hash_fini(&ipc->chunks);
    occl_hash_fini(&ipc->given);
    free(ipc->own);
    free(ipc->free_slot);
    if (ipc->table_off)
        (void)occl_arena_free(ipc->arena, ipc->table_off, sizeof(table_t));
    occl_lock_fini(&ipc->lock);
    free(ipc);
}

uint64_t occl_ipc_table(const occl_ipc_t *ipc) { return ipc->table_off; }

/* --- own buffers -------------------------------------------------------------------------------------------------- */

static const entry_t *find(const unsigned char *arena, const table_t *t, uint64_t number)
{
    uint64_t off = occl_load_acquire64(&t->segment[slot_of(number) / SEGMENT]);
    return off ? (const entry_t *)(arena + off) + slot_of(number) % SEGMENT : NULL;
}

/* Own entry, which is there; the lock is held where others may change it. */
static entry_t *own_entry(const occl_ipc_t *ipc, uint64_t number)
{
    return (entry_t *)(uintptr_t)find(occl_arena_base(ipc->arena), ipc->table, number);
}

/* Is it (still) an export? Any thread. */
static int is_export(const occl_ipc_t *ipc, uint64_t number)
{
    return occl_load_acquire64(&own_entry(ipc, number)->number) == number;
}

static uint64_t key_of(uint64_t base, uint64_t bytes) { return occl_hash_mix(base ^ occl_hash_mix(bytes)); }

static void chunk_put(occl_ipc_t *ipc, chunk_t *k)
{
    if (--k->refs)
        return;
    if (occl_hash_get(&ipc->chunks, k->base) == k)
        (void)occl_hash_remove(&ipc->chunks, k->base);
    (void)close(k->fd);
    ipc->nfds--;
    free(k);
}

/* Takes an entry from the table. With the lock. */
static void drop(occl_ipc_t *ipc, uint64_t number)
{
    entry_t *e = own_entry(ipc, number);
    own_t *o = &ipc->own[slot_of(number)];
    occl_store_release64(&e->number, 0);
    occl_fence_sys(); /* gone before its descriptors may become somebody else's */
    if ((uint64_t)(uintptr_t)occl_hash_get(&ipc->exports, o->key) == number)
        (void)occl_hash_remove(&ipc->exports, o->key);
    for (uint32_t i = 0; i < o->nchunks; i++)
        chunk_put(ipc, o->chunk[i]);
    free(o->chunk);
    if (e->parts)
        (void)occl_arena_free(ipc->arena, e->parts, e->nparts * sizeof(part_t));
    o->chunk = NULL;
    o->nchunks = 0;
    e->parts = 0;
    e->nparts = 0;
    ipc->free_slot[ipc->nfree++] = (uint32_t)slot_of(number);
    ipc->nexports--;
}

/* One more segment of entries; false: no memory, or all are made. With the lock. */
static int more_entries(occl_ipc_t *ipc)
{
    uint32_t n = (ipc->nsegments + 1) * SEGMENT;
    own_t *own;
    uint32_t *slots;
    uint64_t off;
    if (ipc->nsegments == SEGMENTS)
        return 0;
    own = realloc(ipc->own, n * sizeof(*own));
    if (own)
        ipc->own = own;
    slots = realloc(ipc->free_slot, n * sizeof(*slots));
    if (slots)
        ipc->free_slot = slots;
    off = own && slots ? occl_arena_alloc(ipc->arena, SEGMENT * sizeof(entry_t), 64) : 0;
    if (!off)
        return 0;
    memset(own + n - SEGMENT, 0, SEGMENT * sizeof(*own));
    for (uint32_t i = n; i > n - SEGMENT; i--)
        slots[ipc->nfree++] = i - 1;
    occl_store_release64(&ipc->table->segment[ipc->nsegments++], off);
    return 1;
}

/* Number of the entry for (base, bytes) if it is the allocation `id`; one of another allocation goes. With the lock. */
static uint64_t known(occl_ipc_t *ipc, uint64_t base, uint64_t bytes, uint64_t id)
{
    uint64_t number = (uint64_t)(uintptr_t)occl_hash_get(&ipc->exports, key_of(base, bytes));
    const entry_t *e;
    if (!number)
        return 0;
    e = own_entry(ipc, number);
    if (e->base == base && e->bytes == bytes && e->id == id)
        return number;
    drop(ipc, number);
    return 0;
}

/* Takes the references of chunk[n], and the list itself, if it succeeds. With the lock; 0: no room. */
static uint64_t add(occl_ipc_t *ipc, uint64_t base, uint64_t bytes, uint64_t id, const void *handle, chunk_t **chunk, uint32_t n)
{
    uint64_t number = 0, parts = 0, key = key_of(base, bytes);
    uint32_t slot;
    entry_t *e;
    own_t *o;
    if (!ipc->nfree && !more_entries(ipc))
        return 0;
    if (n) {
        parts = occl_arena_alloc(ipc->arena, n * sizeof(part_t), 64);
        if (!parts)
            return 0;
    }
    slot = ipc->free_slot[ipc->nfree - 1];
    o = &ipc->own[slot];
    number = (o->life + 1) << 16 | slot;
    if (occl_hash_put(&ipc->exports, key, (void *)(uintptr_t)number) != OCCL_OK) {
        (void)occl_arena_free(ipc->arena, parts, n * sizeof(part_t));
        return 0;
    }
    ipc->nfree--;
    o->life++;
    o->key = key;
    o->chunk = chunk;
    o->nchunks = n;
    e = own_entry(ipc, number);
    for (uint32_t i = 0; i < n; i++)
        ((part_t *)occl_arena_at(ipc->arena, parts))[i] = (part_t){chunk[i]->fd, 0, chunk[i]->bytes};
    e->base = base;
    e->bytes = bytes;
    e->id = id;
    e->parts = parts;
    e->nparts = n;
    if (handle)
        memcpy(e->handle, handle, sizeof(e->handle));
    occl_store_release64(&e->number, number);
    ipc->nexports++;
    ipc->made++;
    return number;
}

static void scan(occl_ipc_t *ipc);

/* Number of the allocation's entry, made if there is none; 0: it cannot be exported. */
static uint64_t export_of(occl_ipc_t *ipc, uint64_t base, uint64_t bytes, uint64_t id)
{
    cudaIpcMemHandle_t handle;
    uint64_t number;
    occl_lock(&ipc->lock);
    number = known(ipc, base, bytes, id);
    occl_unlock(&ipc->lock);
    if (number)
        return number;
    if (cudaIpcGetMemHandle(&handle, (void *)(uintptr_t)base) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    /* The driver refuses to open what lies where a mapping of something freed still is, so peers have to know that it is gone before
     * they see this one. */
    scan(ipc);
    occl_lock(&ipc->lock);
    number = known(ipc, base, bytes, id); /* another thread may have been faster */
    if (!number)
        number = add(ipc, base, bytes, id, &handle, NULL, 0);
    occl_unlock(&ipc->lock);
    return number;
}

typedef struct piece {
    uint64_t base, bytes, id;
} piece_t;

/* The descriptor of a mapped piece, referenced; NULL: it cannot be exported. */
static chunk_t *chunk_of(occl_ipc_t *ipc, const piece_t *p)
{
    CUmemGenericAllocationHandle h;
    chunk_t *k, *old;
    int fd = -1, ok;
    occl_lock(&ipc->lock);
    k = occl_hash_get(&ipc->chunks, p->base);
    if (k && k->id == p->id && k->bytes == p->bytes) {
        k->refs++;
        occl_unlock(&ipc->lock);
        return k;
    }
    ok = ipc->nfds < ipc->max_fds;
    occl_unlock(&ipc->lock);
    if (!ok || ipc->cu.retain(&h, (void *)(uintptr_t)p->base) != CUDA_SUCCESS)
        return NULL;
    ok = ipc->cu.export_fd(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
    (void)ipc->cu.release(h);
    if (!ok)
        return NULL;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    k = calloc(1, sizeof(*k));
    if (!k) {
        (void)close(fd);
        return NULL;
    }
    *k = (chunk_t){p->base, p->bytes, p->id, fd, 1};
    occl_lock(&ipc->lock);
    ipc->nfds++;
    old = occl_hash_get(&ipc->chunks, p->base);
    if (old && old->id == p->id && old->bytes == p->bytes) {
        chunk_put(ipc, k); /* another thread was faster */
        k = old;
        k->refs++;
    } else if (occl_hash_put(&ipc->chunks, p->base, k) != OCCL_OK) {
        chunk_put(ipc, k);
        k = NULL;
    }
    occl_unlock(&ipc->lock);
    return k;
}

static uint64_t export_pieces(occl_ipc_t *ipc, const piece_t *p, uint32_t n, uint64_t bytes, uint64_t id)
{
    uint64_t number;
    uint32_t have = 0;
    chunk_t **list;
    occl_lock(&ipc->lock);
    number = known(ipc, p->base, bytes, id);
    occl_unlock(&ipc->lock);
    if (number)
        return number;
    list = calloc(n, sizeof(*list));
    while (list && have < n && (list[have] = chunk_of(ipc, &p[have])) != NULL)
        have++;
    occl_lock(&ipc->lock);
    if (have == n) {
        number = known(ipc, p->base, bytes, id);
        if (!number) {
            number = add(ipc, p->base, bytes, id, NULL, list, n);
            if (number)
                have = 0, list = NULL;
        }
    }
    while (have)
        chunk_put(ipc, list[--have]);
    occl_unlock(&ipc->lock);
    free(list);
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
    bounce_t **at, **best = NULL, *one = NULL;
    if (b->bounce && b->room >= bytes) {
        b->bytes = bytes;
        return OCCL_OK;
    }
    occl_ipc_buffer_free(ipc, b);
    while (room < bytes)
        room *= 2;
    if (room > 1 << 20 && room / 8 * 5 >= bytes) /* pinned memory is not to be wasted: steps of a fifth to a third */
        room = room / 8 * 5;
    else if (room > 1 << 20 && room / 4 * 3 >= bytes)
        room = room / 4 * 3;
    occl_lock(&ipc->lock);
    for (at = &ipc->free_bounce; *at; at = &(*at)->next)
        if ((*at)->room >= room && (*at)->room / 2 <= room && (!best || (*at)->room < (*best)->room))
            best = at;
    if (best) {
        one = *best;
        *best = one->next;
        room = one->room;
    }
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

/* What the driver says of an address. */
typedef struct facts {
    unsigned int type, managed, legacy;
    int device;
    uint64_t id, types;
    CUdeviceptr at;
    void *pool;
} facts_t;

static void ask(const occl_ipc_t *ipc, uint64_t p, facts_t *f)
{
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,          CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID,            CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER,       CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void *data[] = {&f->type, &f->device, &f->id, &f->managed, &f->at, &f->legacy, &f->types, &f->pool};
    memset(f, 0, sizeof(*f));
    f->device = -1;
    if (ipc->cu.attributes(sizeof(which) / sizeof(*which), which, data, (CUdeviceptr)p) != CUDA_SUCCESS)
        f->type = 0; /* nothing that CUDA knows */
}

/* Memory that its owner has mapped, and that others can map. The driver has an id for each mapping; without it such memory could not be
 * told from what is mapped there later. */
static int is_mapped(const occl_ipc_t *ipc, const facts_t *f)
{
    return ipc->cu.mapped && f->type == CU_MEMORYTYPE_DEVICE && !f->managed && !f->legacy && !f->pool && f->id &&
           (f->types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/*
 * The pieces that [p, p + bytes) lies in, in order. 1: all can be exported; 0: some cannot, or they are too many; -1: some of it is
 * not mapped at all.
 */
static int pieces_of(occl_ipc_t *ipc, uint64_t p, uint64_t bytes, piece_t **list_p, uint32_t *n_p, uint64_t *total_p, uint64_t *id_p)
{
    piece_t *list = NULL;
    uint32_t n = 0, cap = 0;
    uint64_t at = p, id = 0, total = 0;
    int answer = 1;
    while (at < p + bytes) {
        CUdeviceptr base = 0;
        size_t range = 0;
        facts_t f;
        ask(ipc, at, &f);
        if (f.type != CU_MEMORYTYPE_DEVICE || ipc->cu.range(&base, &range, (CUdeviceptr)at) != CUDA_SUCCESS || !range) {
            answer = -1;
            break;
        }
        if (!is_mapped(ipc, &f) || n == PARTS_MAX) {
            answer = 0;
            break;
        }
        if (n == cap) {
            piece_t *more = realloc(list, (cap ? 4 * cap : 8) * sizeof(*list));
            if (!more) {
                answer = 0;
                break;
            }
            list = more;
            cap = cap ? 4 * cap : 8;
        }
        list[n++] = (piece_t){(uint64_t)base, range, f.id};
        id = occl_hash_mix(id ^ f.id) + range;
        total += range;
        at = (uint64_t)base + range;
    }
    *list_p = list;
    *n_p = n;
    *total_p = total;
    *id_p = id ? id : 1;
    return answer;
}

occl_status_t occl_ipc_buffer(occl_ipc_t *ipc, const void *p, uint64_t bytes, int expose, occl_buffer_t *b, char *err, size_t errlen)
{
    here_t was = enter(ipc);
    uint64_t at = (uint64_t)(uintptr_t)p, total = 0;
    CUdeviceptr base = 0;
    size_t range = 0;
    piece_t *piece = NULL;
    uint32_t n = 0;
    int exportable = 0;
    facts_t f;
    occl_status_t s = OCCL_OK;
    ask(ipc, at, &f);
    if (expose >= OCCL_EXPOSE_MAPPED && is_mapped(ipc, &f)) {
        exportable = pieces_of(ipc, at, bytes, &piece, &n, &total, &f.id);
        if (exportable < 0) {
            (void)snprintf(err, errlen, "the buffer %p of %llu bytes goes beyond the memory that is mapped there", p,
                           (unsigned long long)bytes);
            free(piece);
            leave(was);
            return OCCL_ERR_BUFFER;
        }
    } else if (f.legacy && expose) {
        exportable = 1;
    }
    if (b->at == at && b->id == f.id && f.id && b->bytes == bytes && (b->number || !exportable || b->refused) &&
        (!b->number || is_export(ipc, b->number))) {
        free(piece);
        leave(was);
        return OCCL_OK; /* as it was */
    }
    b->number = b->offset = 0;
    b->refused = 0;
    b->id = f.id;
    b->pinned = 0;
    if (f.managed || f.type == CU_MEMORYTYPE_HOST) {
        occl_ipc_buffer_free(ipc, b);
        b->at = f.managed || !f.at ? at : (uint64_t)f.at;
        b->bytes = bytes;
        b->pinned = 1;
    } else if (f.type == CU_MEMORYTYPE_DEVICE) {
        occl_ipc_buffer_free(ipc, b);
        b->at = at;
        b->bytes = bytes;
        if (!can_reach(ipc, f.device)) {
            (void)snprintf(err, errlen, "the buffer %p is on GPU %d, which GPU %d of the communicator cannot reach", p, f.device,
                           ipc->device);
            s = OCCL_ERR_BUFFER;
        } else if (n && exportable) {
            b->number = export_pieces(ipc, piece, n, total, f.id);
            b->offset = at - piece->base;
        } else if (ipc->cu.range(&base, &range, (CUdeviceptr)at) == CUDA_SUCCESS) {
            if (f.legacy && at - base + bytes > range) {
                (void)snprintf(err, errlen, "the buffer %p of %llu bytes goes beyond its allocation of %llu bytes", p,
                               (unsigned long long)bytes, (unsigned long long)range);
                s = OCCL_ERR_BUFFER;
            } else if (exportable) {
                b->number = export_of(ipc, base, range, f.id);
                b->offset = at - base;
            }
        }
        b->refused = exportable && !b->number;
    } else {
        s = bounce_for(ipc, bytes, b, err, errlen);
        b->at = (uint64_t)(uintptr_t)b->bounce;
    }
    free(piece);
    leave(was);
    return s;
}

/* Is the entry's memory still what was exported? Goes to the driver, so without the lock: ids and addresses are the caller's copy. */
static int alive(occl_ipc_t *ipc, const piece_t *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t now = 0;
        CUpointer_attribute which = CU_POINTER_ATTRIBUTE_BUFFER_ID;
        void *data = &now;
        if (ipc->cu.attributes(1, &which, &data, (CUdeviceptr)p[i].base) != CUDA_SUCCESS || now != p[i].id)
            return 0;
    }
    return 1;
}

static void scan(occl_ipc_t *ipc)
{
    uint32_t all;
    piece_t *list = malloc(PARTS_MAX * sizeof(*list));
    occl_lock(&ipc->lock);
    all = list && ipc->nexports ? ipc->nsegments * SEGMENT : 0;
    occl_unlock(&ipc->lock);
    for (uint32_t i = 0; i < all; i++) {
        const entry_t *e;
        const own_t *o;
        uint64_t number;
        uint32_t n;
        occl_lock(&ipc->lock);
        e = own_entry(ipc, i);
        o = &ipc->own[i];
        number = e->number;
        n = o->nchunks ? o->nchunks : 1;
        list[0] = (piece_t){e->base, e->bytes, e->id};
        for (uint32_t k = 0; k < o->nchunks; k++)
            list[k] = (piece_t){o->chunk[k]->base, o->chunk[k]->bytes, o->chunk[k]->id};
        occl_unlock(&ipc->lock);
        if (!number || alive(ipc, list, n))
            continue;
        occl_lock(&ipc->lock);
        if (own_entry(ipc, i)->number == number)
            drop(ipc, number);
        occl_unlock(&ipc->lock);
    }
    free(list);
}

/* --- memory for users ----------------------------------------------------------------------------------------------- */

static occl_status_t remember(occl_ipc_t *ipc, const void *p, int allocated, int told)
{
    given_t *g = calloc(1, sizeof(*g)), *old = NULL;
    occl_status_t s = OCCL_ERR_RESOURCE;
    if (g) {
        g->allocated = allocated;
        g->told = told;
        occl_lock(&ipc->lock);
        old = occl_hash_get(&ipc->given, (uint64_t)(uintptr_t)p);
        s = old ? OCCL_ERR_BUFFER : occl_hash_put(&ipc->given, (uint64_t)(uintptr_t)p, g);
        occl_unlock(&ipc->lock);
    }
    if (s != OCCL_OK)
        free(g);
    return s;
}

static given_t *forget(occl_ipc_t *ipc, const void *p, int allocated)
{
    given_t *g;
    occl_lock(&ipc->lock);
    g = occl_hash_get(&ipc->given, (uint64_t)(uintptr_t)p);
    if (g && g->allocated == allocated)
        (void)occl_hash_remove(&ipc->given, (uint64_t)(uintptr_t)p);
    else
        g = NULL;
    occl_unlock(&ipc->lock);
    return g;
}

occl_status_t occl_ipc_mem_alloc(occl_ipc_t *ipc, uint64_t bytes, int expose, void **p_p, char *err, size_t errlen)
{
    here_t was = enter(ipc);
    occl_buffer_t b;
    void *p = NULL;
    cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
    occl_status_t s = OCCL_OK;
    memset(&b, 0, sizeof(b));
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        (void)snprintf(err, errlen, "no device memory for %llu bytes: %s", (unsigned long long)bytes, cudaGetErrorString(e));
        s = OCCL_ERR_RESOURCE;
    } else {
        s = occl_ipc_buffer(ipc, p, bytes ? bytes : 1, expose, &b, err, errlen);
        if (s == OCCL_OK && expose && !b.number) {
            (void)snprintf(err, errlen, "device memory cannot be exported to other processes here");
            s = OCCL_ERR_UNSUPPORTED;
        }
        if (s == OCCL_OK && (s = remember(ipc, p, 1, 0)) != OCCL_OK)
            (void)snprintf(err, errlen, "no memory");
        if (s != OCCL_OK)
            (void)cudaFree(p);
    }
    leave(was);
    *p_p = s == OCCL_OK ? p : NULL;
    return s;
}

int occl_ipc_mem_free(occl_ipc_t *ipc, void *p)
{
    given_t *g = forget(ipc, p, 1);
    here_t was;
    CUdeviceptr base = 0;
    size_t range = 0;
    if (!g)
        return 0;
    was = enter(ipc);
    if (ipc->cu.range(&base, &range, (CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS) {
        /* The peers need not wait for the scan to find out. */
        uint64_t number;
        occl_lock(&ipc->lock);
        number = (uint64_t)(uintptr_t)occl_hash_get(&ipc->exports, key_of(base, range));
        if (number)
            drop(ipc, number);
        occl_unlock(&ipc->lock);
    }
    given_free(p, g);
    leave(was);
    return 1;
}

occl_status_t occl_ipc_mem_register(occl_ipc_t *ipc, void *p, uint64_t bytes, int expose, char *err, size_t errlen)
{
    here_t was = enter(ipc);
    occl_status_t s = OCCL_OK;
    int told = 0;
    facts_t f;
    ask(ipc, (uint64_t)(uintptr_t)p, &f);
    if (f.type == CU_MEMORYTYPE_DEVICE && !f.managed) {
        occl_buffer_t b;
        memset(&b, 0, sizeof(b));
        s = occl_ipc_buffer(ipc, p, bytes, expose, &b, err, errlen);
        if (s == OCCL_OK && expose && !b.number) {
            (void)snprintf(err, errlen, "peers cannot map the memory %p: %s", p,
                           f.pool                        ? "it is of a memory pool (cudaMallocAsync)"
                           : b.refused                   ? "the driver does not export it, or there are too many exports"
                           : f.types || f.legacy         ? "the members may not fetch each other's descriptors (pidfd_getfd)"
                                                         : "it was not made for export to other processes");
            s = OCCL_ERR_UNSUPPORTED;
        }
    } else if (!f.managed && f.type != CU_MEMORYTYPE_HOST) {
        cudaError_t e = cudaHostRegister(p, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
        told = e == cudaSuccess;
        if (!told) {
            (void)cudaGetLastError();
            (void)snprintf(err, errlen, "%llu bytes at %p cannot be pinned: %s", (unsigned long long)bytes, p, cudaGetErrorString(e));
            s = OCCL_ERR_RESOURCE;
        }
    }
    if (s == OCCL_OK && (s = remember(ipc, p, 0, told)) != OCCL_OK) {
        (void)snprintf(err, errlen, s == OCCL_ERR_BUFFER ? "the memory %p is registered already" : "no memory", p);
        if (told)
            (void)cudaHostUnregister(p);
    }
    leave(was);
    return s;
}

int occl_ipc_mem_unregister(occl_ipc_t *ipc, void *p)
{
    given_t *g = forget(ipc, p, 0);
    here_t was;
    if (!g)
        return 0;
    was = enter(ipc);
    given_free(p, g);
    leave(was);
    return 1;
}

/* --- peers -------------------------------------------------------------------------------------------------------- */

/* A descriptor of the peer's, or -1 and errno. */
static int fetch(const occl_ipc_peer_t *p, int fd) { return (int)syscall(SYS_pidfd_getfd, p->pidfd, fd, 0u); }

/* May this process fetch the peer's descriptors, and are they the peer's? */
static void probe(const occl_ipc_t *ipc, occl_ipc_peer_t *p)
{
    uint64_t seen[2] = {0, 0};
    int fd = -1;
    const char *what = NULL;
    p->pidfd = -1;
    if (p->mine)
        return;
    errno = 0;
    if (!ipc->cu.mapped || p->table->probe < 0) {
        (void)snprintf(p->why, sizeof(p->why), "it has no descriptors to fetch");
        return;
    }
    if (p->table->pid_ns != ipc->table->pid_ns) {
        (void)snprintf(p->why, sizeof(p->why), "pid %u is in another pid namespace", p->table->pid);
        return;
    }
    p->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)p->table->pid, 0u);
    if (p->pidfd < 0)
        what = "pidfd_open";
    else if ((fd = fetch(p, p->table->probe)) < 0)
        what = "pidfd_getfd";
    else if (pread(fd, seen, sizeof(seen), 0) != (ssize_t)sizeof(seen) || memcmp(seen, p->table->nonce, sizeof(seen)))
        what = "not the process described";
    if (what) {
        (void)snprintf(p->why, sizeof(p->why), "pid %u: %s%s%s", p->table->pid, what, errno ? ": " : "", errno ? strerror(errno) : "");
        if (p->pidfd >= 0)
            (void)close(p->pidfd);
        p->pidfd = -1;
    }
    if (fd >= 0)
        (void)close(fd);
}

occl_status_t occl_ipc_peer_open(occl_ipc_t *ipc, const occl_far_desc_t *desc, const void *arena, int mine, occl_ipc_peer_t **peer_p,
                                 char *err, size_t errlen)
{
    occl_ipc_peer_t *p;
    cudaError_t e = cudaSuccess;
    here_t was;
    occl_lock(&ipc->lock);
    for (p = ipc->peers; p; p = p->next) {
        if (p->at == desc->base && !memcmp(p->handle, desc->handle, sizeof(p->handle))) {
            p->arena = arena; /* mapped anew, perhaps, since the last communicator went */
            p->table = (const table_t *)(p->arena + desc->exports);
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
    p->table = (const table_t *)(p->arena + desc->exports);
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
    probe(ipc, p);
    occl_lock(&ipc->lock);
    p->next = ipc->peers;
    ipc->peers = p;
    occl_unlock(&ipc->lock);
    *peer_p = p;
    return OCCL_OK;
}

/* The last one leaves it to be found again, or for the end: communicators come and go among the same processes, and closing it
 * waits for the daemon. A process that is gone keeps nothing alive but its own memory. Mappings of its buffers go with the next
 * upkeep; its arena is not looked at any more. */
void occl_ipc_peer_close(occl_ipc_t *ipc, occl_ipc_peer_t *peer)
{
    occl_lock(&ipc->lock);
    peer->refs--;
    occl_unlock(&ipc->lock);
}

unsigned char *occl_ipc_peer_base(const occl_ipc_peer_t *peer) { return peer->base; }

const char *occl_ipc_peer_hides(const occl_ipc_peer_t *peer) { return peer->mine || peer->pidfd >= 0 ? NULL : peer->why; }

/* Copies the entry's contents; false: it is gone, or there is no memory (*why_p). With the lock; makes no call that waits. */
static int read_entry(import_t *m, const char **why_p)
{
    const unsigned char *arena = m->peer->arena;
    const entry_t *e = find(arena, m->peer->table, m->number);
    uint64_t parts;
    *why_p = "it has been freed";
    if (!e || occl_load_acquire64(&e->number) != m->number)
        return 0;
    memcpy(m->handle, e->handle, sizeof(m->handle));
    m->bytes = e->bytes;
    m->nparts = e->nparts;
    parts = e->parts;
    occl_fence_sys();
    if (occl_load_relaxed64(&e->number) != m->number)
        return 0;
    if (!m->nparts)
        return 1;
    m->part = malloc(m->nparts * sizeof(*m->part));
    if (!m->part) {
        *why_p = "no memory";
        return 0;
    }
    memcpy(m->part, arena + parts, m->nparts * sizeof(*m->part));
    occl_fence_sys();
    return occl_load_relaxed64(&e->number) == m->number;
}

/* With the lock: without a communicator that has the peer its arena is not mapped either (occl_ipc_peer_close). */
static int is_gone(const import_t *m)
{
    const entry_t *e = m->peer->refs ? find(m->peer->arena, m->peer->table, m->number) : NULL;
    return !e || occl_load_acquire64(&e->number) != m->number;
}

int occl_ipc_resolve(occl_ipc_t *ipc, occl_ipc_peer_t *peer, uint64_t number, uint64_t offset, uint64_t *at_p, void **hold_p,
                     const char **why_p)
{
    import_t *m;
    int answer = 0;
    *at_p = 0;
    *hold_p = NULL;
    if (!number)
        return 1; /* a buffer of no bytes */
    occl_lock(&ipc->lock);
    m = occl_hash_get(&peer->imports, number);
    if (m && m->state == OPEN && is_gone(m)) {
        *why_p = "it has been freed";
        answer = -1;
    } else if (m && m->state == OPEN) {
        *at_p = (uint64_t)(uintptr_t)m->base + offset;
        m->users++;
        *hold_p = m;
        answer = 1;
    } else if (m && m->state == FAILED) {
        (void)snprintf(ipc->why, sizeof(ipc->why), "%s", m->why);
        *why_p = ipc->why;
        answer = -1;
        if (m->again) {
            (void)occl_hash_remove(&peer->imports, number);
            ipc->nimports--;
            import_free(m);
        }
    } else if (!m) {
        m = calloc(1, sizeof(*m));
        *why_p = "no memory";
        if (m) {
            m->peer = peer;
            m->number = number;
        }
        if (!m || !read_entry(m, why_p) || occl_hash_put(&peer->imports, number, m) != OCCL_OK) {
            if (m)
                import_free(m);
            answer = -1;
        } else {
            m->state = WANTED;
            m->next = ipc->wanted;
            ipc->wanted = m;
            ipc->nimports++;
        }
    }
    occl_unlock(&ipc->lock);
    return answer;
}

void occl_ipc_release(occl_ipc_t *ipc, void **hold, uint32_t n)
{
    occl_lock(&ipc->lock);
    for (uint32_t i = 0; i < n; i++) {
        if (hold[i])
            ((import_t *)hold[i])->users--;
        hold[i] = NULL;
    }
    occl_unlock(&ipc->lock);
}

/* Mappings of what is gone, and that no run uses, are to be closed. With the lock. */
static void find_stale(occl_ipc_t *ipc)
{
    for (occl_ipc_peer_t *p = ipc->peers; p; p = p->next) {
        import_t *m, *dead[16];
        uint32_t n;
        do {
            size_t at = 0;
            n = 0;
            while (n < 16 && (m = occl_hash_next(&p->imports, &at, NULL)) != NULL)
                if (m->state != WANTED && !m->users && is_gone(m))
                    dead[n++] = m;
            for (uint32_t i = 0; i < n; i++) {
                m = dead[i];
                (void)occl_hash_remove(&p->imports, m->number);
                ipc->nimports--;
                if (m->state == FAILED) {
                    import_free(m);
                    continue;
                }
                if (!ipc->closing)
                    ipc->closing_since = occl_host_clock_ns();
                m->next = ipc->closing;
                ipc->closing = m;
            }
        } while (n == 16);
    }
}

/* Closes what may be closed: mapped memory any time; IPC memory when the daemon is out, for the call would wait for it. One that never
 * seems to be out leaves at the end of its residence, and the call then waits for that. */
void occl_ipc_close(occl_ipc_t *ipc, int out)
{
    here_t was;
    import_t *list = NULL, **at;
    occl_lock(&ipc->lock);
    if (ipc->closing && occl_host_clock_ns() - ipc->closing_since > CLOSE_ANYWAY_NS)
        out = 1;
    for (at = &ipc->closing; *at;) {
        import_t *m = *at;
        if (!out && !m->nparts) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        m->next = list;
        list = m;
    }
    occl_unlock(&ipc->lock);
    if (!list)
        return;
    was = enter(ipc);
    while (list) {
        import_t *m = list;
        list = m->next;
        unmap(ipc, m);
        import_free(m);
    }
    leave(was);
}

int occl_ipc_upkeep(occl_ipc_t *ipc, int *close_p)
{
    here_t was;
    int any;
    *close_p = 0;
    occl_lock(&ipc->lock);
    any = ipc->nexports || ipc->nimports || ipc->closing;
    occl_unlock(&ipc->lock);
    if (!any)
        return 0;
    if (occl_host_clock_ns() - ipc->upkept_at < UPKEEP_NS)
        return 1;
    ipc->upkept_at = occl_host_clock_ns();
    was = enter(ipc);
    scan(ipc);
    occl_lock(&ipc->lock);
    find_stale(ipc);
    *close_p = ipc->closing != NULL;
    occl_unlock(&ipc->lock);
    leave(was);
    return 1;
}

void occl_ipc_counts(occl_ipc_t *ipc, uint64_t *exports_p, uint64_t *imports_p)
{
    occl_lock(&ipc->lock);
    *exports_p = ipc->nexports;
    *imports_p = ipc->nimports;
    for (const import_t *m = ipc->closing; m; m = m->next)
        ++*imports_p;
    occl_unlock(&ipc->lock);
}

/* Maps the parts of an import one behind the other; false, and m->why. */
static int map_parts(occl_ipc_t *ipc, import_t *m)
{
    CUmemAccessDesc access;
    CUdeviceptr va = 0;
    uint64_t done = 0, total = 0;
    int *fd = malloc(m->nparts * sizeof(*fd)), ok = fd != NULL;
    uint32_t n = 0;
    CUresult e = CUDA_SUCCESS;
    (void)snprintf(m->why, sizeof(m->why), "no memory");
    for (; ok && n < m->nparts; n++) {
        fd[n] = m->peer->pidfd < 0 ? -1 : fetch(m->peer, m->part[n].fd);
        total += m->part[n].bytes;
        if (fd[n] < 0) {
            (void)snprintf(m->why, sizeof(m->why), "its descriptor cannot be fetched: %.60s",
                           m->peer->pidfd < 0 ? m->peer->why : strerror(errno));
            ok = 0;
            break;
        }
    }
    occl_fence_sys();
    occl_lock(&ipc->lock);
    if (ok && is_gone(m)) { /* then the descriptors may have been others already */
        (void)snprintf(m->why, sizeof(m->why), "it has been freed");
        ok = 0;
    }
    occl_unlock(&ipc->lock);
    if (ok && (total != m->bytes || (e = ipc->cu.reserve(&va, total, 0, 0, 0)) != CUDA_SUCCESS))
        ok = 0;
    for (uint32_t i = 0; ok && i < m->nparts; i++) {
        CUmemGenericAllocationHandle h;
        e = ipc->cu.import_fd(&h, (void *)(uintptr_t)fd[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        if (e == CUDA_SUCCESS) {
            e = ipc->cu.map(va + done, m->part[i].bytes, 0, h, 0);
            (void)ipc->cu.release(h); /* the mapping holds it */
        }
        if (e != CUDA_SUCCESS)
            ok = 0;
        else
            done += m->part[i].bytes;
    }
    if (ok) {
        memset(&access, 0, sizeof(access));
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = ipc->device;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        e = ipc->cu.access(va, total, &access, 1);
        ok = e == CUDA_SUCCESS;
    }
    if (e != CUDA_SUCCESS)
        (void)snprintf(m->why, sizeof(m->why), "%.90s", driver_text(ipc, e));
    if (!ok && va) {
        if (done)
            (void)ipc->cu.unmap(va, done);
        (void)ipc->cu.unreserve(va, total);
    }
    while (n)
        (void)close(fd[--n]);
    free(fd);
    free(m->part);
    m->part = NULL;
    m->base = ok ? (unsigned char *)(uintptr_t)va : NULL;
    return ok;
}

void occl_ipc_service(occl_ipc_t *ipc, int may_close)
{
    import_t *todo;
    here_t was;
    int close_first = 0;
    occl_lock(&ipc->lock);
    todo = ipc->wanted;
    ipc->wanted = NULL;
    for (const import_t *m = todo; m; m = m->next)
        close_first |= m->nparts == 0;
    close_first &= may_close;
    if (close_first)
        find_stale(ipc);
    occl_unlock(&ipc->lock);
    if (!todo)
        return;
    /* Before something is opened, what was freed is closed, even if that has to wait until the daemon leaves: see export_of. */
    if (close_first)
        occl_ipc_close(ipc, 1);
    was = enter(ipc);
    while (todo) {
        import_t *m = todo;
        int ok;
        todo = m->next;
        if (m->nparts) {
            ok = map_parts(ipc, m);
        } else {
            cudaIpcMemHandle_t h;
            void *p = NULL;
            cudaError_t e;
            memcpy(&h, m->handle, sizeof(h));
            e = cudaIpcOpenMemHandle(&p, h, cudaIpcMemLazyEnablePeerAccess);
            (void)cudaGetLastError();
            m->base = p;
            ok = e == cudaSuccess;
            (void)snprintf(m->why, sizeof(m->why), "%.90s", cudaGetErrorString(e));
        }
        occl_lock(&ipc->lock);
        m->state = ok ? OPEN : FAILED;
        m->again = !m->nparts; /* what was in the way (export_of) may have been in use, or being closed */
        occl_unlock(&ipc->lock);
    }
    leave(was);
}
