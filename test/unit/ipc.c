/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users' buffers on a CUDA device (src/transport/cuda_ipc.c) over a driver that this file plays: its memory is the processor's, its
 * handles are descriptors, its ids are counted. Exporter and importer are two tables in one process; the importer fetches the
 * exporter's descriptors as it would another process's. No GPU, and no CUDA library.
 */
#include "../../src/transport/cuda_ipc.c"

#include "tap.h"

/* --- the driver --------------------------------------------------------------------------------------------------- */

enum { PAGE = 1 << 16, MAPS = 8192, FDS = 8192 };
enum { LEGACY = 1, MAPPED = 2, POOL = 4, PINNED = 8, PRIVATE = 16 };

typedef struct map {
    uint64_t at, bytes, id;
    int fd, kind;
} map_t;
static map_t maps[MAPS];
static int nmaps;
static uint64_t ids;
static struct {
    int opened, closed, exported, imported, refuse_open, refuse_import;
} seen;

static map_t *map_at(uint64_t p)
{
    for (int i = 0; i < nmaps; i++)
        if (maps[i].bytes && p >= maps[i].at && p < maps[i].at + maps[i].bytes)
            return &maps[i];
    return NULL;
}

static int new_fd(uint64_t bytes)
{
    int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        bail("no memfd");
    return fd;
}

/* Memory of fd at `at`, or anywhere. */
static void *put_at(uint64_t at, uint64_t bytes, int fd, int kind)
{
    void *p = mmap((void *)(uintptr_t)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);
    int i = 0;
    if (p == MAP_FAILED)
        bail("no memory");
    while (i < nmaps && maps[i].bytes)
        i++;
    if (i == MAPS)
        bail("too many");
    if (i == nmaps)
        nmaps++;
    maps[i] = (map_t){(uint64_t)(uintptr_t)p, bytes, ++ids, fd, kind};
    return p;
}

/* Its place stays reserved, so that a test may put something else there. */
static void take_away(void *p)
{
    map_t *m = map_at((uint64_t)(uintptr_t)p);
    if (!m)
        bail("nothing there");
    (void)mmap(p, m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    (void)close(m->fd);
    m->bytes = 0;
}

static CUresult f_attributes(unsigned int n, CUpointer_attribute *which, void **data, CUdeviceptr p)
{
    const map_t *m = map_at((uint64_t)p);
    for (unsigned i = 0; i < n; i++) {
        switch (which[i]) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *(unsigned *)data[i] = !m ? 0 : m->kind == PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data[i] = m ? 0 : -2; break;
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(uint64_t *)data[i] = m ? m->id : 0; break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data[i] = 0; break;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data[i] = m ? p : 0; break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(unsigned *)data[i] = m && m->kind == LEGACY; break;
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(uint64_t *)data[i] = m && (m->kind == MAPPED || m->kind == POOL); break;
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(void **)data[i] = m && m->kind == POOL ? (void *)1 : NULL; break;
        default: return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}
static CUresult f_range(CUdeviceptr *base, size_t *bytes, CUdeviceptr p)
{
    const map_t *m = map_at((uint64_t)p);
    if (!m)
        return CUDA_ERROR_NOT_FOUND;
    *base = (CUdeviceptr)m->at;
    *bytes = m->bytes;
    return CUDA_SUCCESS;
}
static CUresult f_context(CUcontext *c)
{
    *c = (CUcontext)1;
    return CUDA_SUCCESS;
}
static CUresult f_retain(CUmemGenericAllocationHandle *h, void *p)
{
    const map_t *m = map_at((uint64_t)(uintptr_t)p);
    if (!m || m->kind != MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    *h = (CUmemGenericAllocationHandle)dup(m->fd);
    return CUDA_SUCCESS;
}
static CUresult f_export(void *fd, CUmemGenericAllocationHandle h, CUmemAllocationHandleType t, unsigned long long flags)
{
    (void)t;
    (void)flags;
    *(int *)fd = dup((int)h);
    seen.exported++;
    return CUDA_SUCCESS;
}
static CUresult f_import(CUmemGenericAllocationHandle *h, void *fd, CUmemAllocationHandleType t)
{
    (void)t;
    if (seen.refuse_import && seen.refuse_import-- == 1)
        return CUDA_ERROR_INVALID_HANDLE;
    *h = (CUmemGenericAllocationHandle)dup((int)(intptr_t)fd);
    seen.imported++;
    return CUDA_SUCCESS;
}
static CUresult f_release(CUmemGenericAllocationHandle h) { return close((int)h) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS; }
static CUresult f_reserve(CUdeviceptr *p, size_t bytes, size_t align, CUdeviceptr at, unsigned long long flags)
{
    void *q = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    (void)align;
    (void)at;
    (void)flags;
    *p = (CUdeviceptr)(uintptr_t)q;
    return q == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
static CUresult f_unreserve(CUdeviceptr p, size_t bytes)
{
    return munmap((void *)(uintptr_t)p, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static CUresult f_map(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags)
{
    (void)offset;
    (void)flags;
    return mmap((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)h, 0) == MAP_FAILED
               ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static CUresult f_unmap(CUdeviceptr p, size_t bytes)
{
    seen.closed++;
    return mmap((void *)(uintptr_t)p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED
               ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
static CUresult f_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *d, size_t n)
{
    (void)p;
    (void)bytes;
    return n == 1 && d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult f_error(CUresult e, const char **text)
{
    (void)e;
    *text = "the fake refuses";
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **p, unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    static const struct {
        const char *name;
        void *fn;
    } all[] = {{"cuPointerGetAttributes", (void *)f_attributes}, {"cuMemGetAddressRange", (void *)f_range},
               {"cuCtxGetCurrent", (void *)f_context},           {"cuGetErrorString", (void *)f_error},
               {"cuMemRetainAllocationHandle", (void *)f_retain}, {"cuMemExportToShareableHandle", (void *)f_export},
               {"cuMemImportFromShareableHandle", (void *)f_import}, {"cuMemRelease", (void *)f_release},
               {"cuMemAddressReserve", (void *)f_reserve},       {"cuMemAddressFree", (void *)f_unreserve},
               {"cuMemMap", (void *)f_map},                      {"cuMemUnmap", (void *)f_unmap},
               {"cuMemSetAccess", (void *)f_access}};
    (void)version;
    (void)flags;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (!strcmp(name, all[i].name)) {
            *p = all[i].fn;
            *found = cudaDriverEntryPointSuccess;
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    (void)mode;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d)
{
    *d = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) { return d ? cudaErrorInvalidDevice : cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t e) { return e == cudaSuccess ? "fine" : "the fake refuses"; }
cudaError_t cudaDeviceCanAccessPeer(int *yes, int a, int b)
{
    *yes = a == b;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int d, unsigned int flags)
{
    (void)d;
    (void)flags;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    *p = put_at(0, bytes, new_fd(bytes), LEGACY);
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    take_away(p);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    (void)flags;
    *p = put_at(0, bytes, new_fd(bytes), PINNED);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
    take_away(p);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned int flags)
{
    (void)flags;
    maps[nmaps++] = (map_t){(uint64_t)(uintptr_t)p, bytes, ++ids, -1, PINNED};
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    map_at((uint64_t)(uintptr_t)p)->bytes = 0;
    return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *h, void *p)
{
    const map_t *m = map_at((uint64_t)(uintptr_t)p);
    if (!m || m->kind != LEGACY)
        return cudaErrorInvalidValue;
    memset(h, 0, sizeof(*h));
    memcpy(h, &m->fd, sizeof(m->fd));
    memcpy((char *)h + 8, &m->bytes, 8);
    memcpy((char *)h + 16, &m->id, 8);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t h, unsigned int flags)
{
    int fd;
    uint64_t bytes, id;
    (void)flags;
    memcpy(&fd, &h, sizeof(fd));
    memcpy(&bytes, (char *)&h + 8, 8);
    memcpy(&id, (char *)&h + 16, 8);
    for (int i = 0; i < nmaps; i++)
        if (maps[i].bytes && maps[i].id == id && !seen.refuse_open) {
            *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            seen.opened++;
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}
cudaError_t cudaIpcCloseMemHandle(void *p)
{
    (void)p; /* the mapping is left: what reads it later would still see the old bytes, as on a GPU */
    seen.closed++;
    return cudaSuccess;
}

/* --- two sides ---------------------------------------------------------------------------------------------------- */

static occl_arena_t *arena_a, *arena_b;
static occl_ipc_t *a, *b; /* owner, importer */
static occl_ipc_peer_t *peer;
static occl_logger_t logger;
static char err[256];
static unsigned char *region;

static occl_arena_t *new_arena(void)
{
    occl_arena_t *arena = NULL;
    occl_env_t env;
    occl_env_defaults(&env);
    if (occl_arena_create(&env, OCCL_ARENA_PRIVATE, &arena, err, sizeof(err)) != OCCL_OK)
        bail("no arena: %s", err);
    return arena;
}

static occl_ipc_peer_t *open_peer(occl_ipc_t *from, occl_ipc_t *owner, occl_arena_t *arena)
{
    occl_far_desc_t d;
    cudaIpcMemHandle_t h;
    occl_ipc_peer_t *p = NULL;
    memset(&d, 0, sizeof(d));
    (void)cudaIpcGetMemHandle(&h, region);
    memcpy(d.handle, &h, sizeof(d.handle));
    d.base = (uint64_t)(uintptr_t)region;
    d.exports = occl_ipc_table(owner);
    if (occl_ipc_peer_open(from, &d, occl_arena_base(arena), 0, &p, err, sizeof(err)) != OCCL_OK)
        bail("no peer: %s", err);
    return p;
}

static occl_buffer_t buffer(const void *p, uint64_t bytes, int expose)
{
    occl_buffer_t x;
    memset(&x, 0, sizeof(x));
    if (occl_ipc_buffer(a, p, bytes, expose, &x, err, sizeof(err)) != OCCL_OK)
        x.at = 0;
    return x;
}

/* Where the importer has it; NULL, and why. */
static unsigned char *reach(const occl_buffer_t *x, void **hold, const char **why)
{
    uint64_t at = 0;
    int r = occl_ipc_resolve(b, peer, x->number, x->offset, &at, hold, why);
    if (r == 0) {
        occl_ipc_service(b, 1);
        r = occl_ipc_resolve(b, peer, x->number, x->offset, &at, hold, why);
    }
    return r == 1 ? (unsigned char *)(uintptr_t)at : NULL;
}
static void let_go(void **hold) { occl_ipc_release(b, hold, 1); }

static void upkeep(void)
{
    int close;
    a->upkept_at = b->upkept_at = 0;
    (void)occl_ipc_upkeep(a, &close);
    (void)occl_ipc_upkeep(b, &close);
    occl_ipc_close(b, 1);
}
static uint64_t mappings(void)
{
    uint64_t e, i;
    occl_ipc_counts(b, &e, &i);
    return i;
}
static uint64_t exports(void)
{
    uint64_t e, i;
    occl_ipc_counts(a, &e, &i);
    return e;
}

static void handles(void)
{
    void *p, *hold = NULL, *hold2 = NULL;
    unsigned char *q;
    const char *why = "";
    occl_buffer_t x, y;
    uint64_t first;
    cudaMalloc(&p, 3 * PAGE);
    x = buffer(p, 1000, OCCL_EXPOSE_MAPPED);
    y = buffer((char *)p + PAGE, 1000, OCCL_EXPOSE_HANDLES);
    ok(x.number && x.number == y.number && x.offset == 0 && y.offset == PAGE, "two buffers of an allocation are one export");
    memset((char *)p + PAGE, 7, 1000);
    q = reach(&y, &hold, &why);
    ok(q && q[0] == 7 && q[999] == 7, "a peer finds the second one's bytes");
    ok(buffer(p, 1000, OCCL_EXPOSE_NONE).number == 0, "nothing is exported where nothing shall be exposed");
    ok(buffer(p, 3 * PAGE + 1, 1).at == 0 && strstr(err, "goes beyond its allocation"), "a buffer beyond its allocation is refused");
    first = x.number;
    is_int((long long)mappings(), 1, "one mapping");
    take_away(p);
    upkeep();
    is_int((long long)mappings(), 1, "freed while a run uses it, it stays mapped");
    ok(exports() == 0, "and is exported no more");
    ok(!reach(&x, &hold2, &why) && strstr(why, "freed"), "a new run is told that it has been freed");
    (void)put_at((uint64_t)(uintptr_t)p, 3 * PAGE, new_fd(3 * PAGE), LEGACY);
    ok(occl_ipc_buffer(a, p, 1000, 1, &x, err, sizeof(err)) == OCCL_OK && x.number && x.number != first,
       "other memory at the same address is another export");
    let_go(&hold);
    q = reach(&x, &hold, &why);
    memset(p, 9, 10);
    ok(q && q[0] == 9, "and a peer finds it");
    is_int((long long)mappings(), 1, "the first one was closed before");
    let_go(&hold);
    seen.refuse_open = 1;
    take_away(p);
    cudaMalloc(&p, PAGE);
    x = buffer(p, 10, 1);
    ok(!reach(&x, &hold, &why) && strstr(why, "fake"), "a handle that the driver refuses cannot be reached");
    seen.refuse_open = 0;
    ok(reach(&x, &hold, &why) != NULL, "but perhaps the next time");
    let_go(&hold);
    take_away(p);
    upkeep();
    ok(mappings() == 0 && exports() == 0, "nothing is left");
}

static unsigned char *mapped(int pieces, const int *kinds)
{
    CUdeviceptr p;
    (void)f_reserve(&p, (size_t)(pieces + 1) * PAGE, 0, 0, 0);
    for (int i = 0; i < pieces; i++)
        (void)put_at((uint64_t)p + (uint64_t)i * PAGE, PAGE, new_fd(PAGE), kinds ? kinds[i] : MAPPED);
    return (unsigned char *)(uintptr_t)p;
}

static void pieces(void)
{
    static const int no_fd[] = {MAPPED, PRIVATE, MAPPED};
    unsigned char *p = mapped(4, NULL), *q;
    void *hold = NULL, *hold2 = NULL;
    const char *why = "";
    occl_buffer_t x, y, z;
    uint64_t first;
    int exported = seen.exported, all = 1;
    x = buffer(p + 100, 3 * PAGE, OCCL_EXPOSE_MAPPED);
    ok(x.number && x.offset == 100, "a buffer over four mapped pieces is one export");
    is_int(seen.exported - exported, 4, "with one descriptor each");
    y = buffer(p + PAGE + 8, PAGE, OCCL_EXPOSE_MAPPED);
    ok(y.number && y.number != x.number && y.offset == 8 && seen.exported - exported == 4, "another one over two of them has no new ones");
    for (uint64_t i = 0; i < 3 * PAGE; i++)
        p[100 + i] = (unsigned char)(i * 7 + i / PAGE);
    q = reach(&x, &hold, &why);
    for (uint64_t i = 0; q && i < 3 * PAGE; i++)
        all &= q[i] == (unsigned char)(i * 7 + i / PAGE);
    ok(q && all, "a peer has the pieces one behind the other");
    q = reach(&y, &hold2, &why);
    ok(q && q[0] == p[PAGE + 8] && q[PAGE - 1] == p[2 * PAGE + 7], "and those of the second one");
    ok(buffer(p, 10, OCCL_EXPOSE_HANDLES).number == 0, "where descriptors may not be fetched such memory is hidden");
    ok(buffer(p + 3 * PAGE, PAGE + 1, OCCL_EXPOSE_MAPPED).at == 0 && strstr(err, "goes beyond"), "a buffer that runs into a hole is refused");

    /* The same addresses, another piece in the middle, as expandable segments do it */
    first = x.number;
    take_away(p + 2 * PAGE);
    (void)put_at((uint64_t)(uintptr_t)p + 2 * PAGE, PAGE, new_fd(PAGE), MAPPED);
    ok(occl_ipc_buffer(a, p + 100, 3 * PAGE, OCCL_EXPOSE_MAPPED, &x, err, sizeof(err)) == OCCL_OK && x.number && x.number != first,
       "with another piece in its middle it is another export");
    p[2 * PAGE + 50] = 77;
    let_go(&hold);
    q = reach(&x, &hold, &why);
    ok(q && q[2 * PAGE - 50] == 77 && q[0] == p[100], "in which a peer finds the new piece between the old ones");
    first = x.number;
    ok(occl_ipc_buffer(a, p + 100, 3 * PAGE, OCCL_EXPOSE_MAPPED, &x, err, sizeof(err)) == OCCL_OK && x.number == first,
       "unchanged it stays what it is");
    let_go(&hold);
    let_go(&hold2);
    upkeep();
    is_int((long long)mappings(), 1, "the stale mappings go");
    for (int i = 0; i < 4; i++)
        take_away(p + i * PAGE);
    upkeep();
    ok(mappings() == 0 && exports() == 0 && a->nfds == 0, "and at the end all, with the descriptors");

    p = mapped(3, no_fd);
    z = buffer(p, 2 * PAGE, OCCL_EXPOSE_MAPPED);
    ok(z.at && z.number == 0, "a buffer with one piece that cannot be exported is hidden");
    ok(buffer(p, PAGE, OCCL_EXPOSE_MAPPED).number != 0, "one beside it is not");
    seen.refuse_import = 1;
    z = buffer(p, PAGE, OCCL_EXPOSE_MAPPED);
    ok(!reach(&z, &hold, &why) && strstr(why, "fake"), "a descriptor that the driver refuses cannot be reached");
    p = put_at(0, PAGE, new_fd(PAGE), POOL);
    z = buffer(p, 100, OCCL_EXPOSE_MAPPED);
    ok(z.at == (uint64_t)(uintptr_t)p && z.number == 0, "memory of a pool is hidden");
    p = mapped(1, NULL);
    a->max_fds = 0;
    z = buffer(p, 100, OCCL_EXPOSE_MAPPED);
    ok(z.at && z.number == 0, "and so is what finds no descriptor left");
    a->max_fds = 500;
}

static void many(void)
{
    enum { N = 3000 };
    static void *p[N];
    static occl_buffer_t x[N];
    void *hold = NULL;
    const char *why = "";
    int good = 1;
    uint64_t was = exports();
    for (int i = 0; i < N; i++) {
        p[i] = put_at(0, PAGE, dup(maps[0].fd), LEGACY); /* all the same bytes: that many descriptors are not to be had */
        (void)close(map_at((uint64_t)(uintptr_t)p[i])->fd);
        x[i] = buffer(p[i], 8, 1);
        good &= x[i].number != 0;
    }
    ok(good && exports() == was + N, "%d exports", N);
    for (int i = 0; i < N; i += N / 4)
        good &= is_export(a, x[i].number);
    ok(good, "the first ones are what they were");
    for (int i = 0; i < N; i++)
        map_at((uint64_t)(uintptr_t)p[i])->bytes = 0;
    upkeep();
    ok(exports() == was && !reach(&x[0], &hold, &why), "they go with their memory");
}

static void bounces(void)
{
    static char on_heap[200000];
    occl_buffer_t x, y;
    void *was;
    x = buffer(on_heap, 5000, 1);
    ok(x.bounce && x.at == (uint64_t)(uintptr_t)x.bounce && x.room >= 5000 && x.bytes == 5000 && !x.number,
       "pageable memory has a bounce buffer");
    was = x.bounce;
    ok(occl_ipc_buffer(a, on_heap, 100, 1, &x, err, sizeof(err)) == OCCL_OK && x.bounce == was && x.bytes == 100,
       "which serves a smaller one, too");
    occl_ipc_buffer_free(a, &x);
    y = buffer(on_heap + 8, 6000, 1);
    ok(y.bounce == was, "and is used again");
    ok(occl_ipc_mem_register(a, on_heap, sizeof(on_heap), 1, err, sizeof(err)) == OCCL_OK, "registered, it is pinned");
    ok(occl_ipc_buffer(a, on_heap + 8, 6000, 1, &y, err, sizeof(err)) == OCCL_OK && !y.bounce && y.pinned &&
           y.at == (uint64_t)(uintptr_t)on_heap + 8, "and used in place");
    ok(occl_ipc_mem_register(a, on_heap, 10, 1, err, sizeof(err)) == OCCL_ERR_BUFFER, "it is not registered twice");
    ok(occl_ipc_mem_unregister(a, on_heap) && !occl_ipc_mem_unregister(a, on_heap), "and unregistered once");
    ok(occl_ipc_buffer(a, on_heap + 8, 6000, 1, &y, err, sizeof(err)) == OCCL_OK && y.bounce && !y.pinned, "then it bounces again");
    occl_ipc_buffer_free(a, &y);
}

static void given(void)
{
    void *p, *hold = NULL;
    const char *why = "";
    uint64_t was = exports();
    occl_buffer_t x;
    ok(occl_ipc_mem_alloc(a, 1000, OCCL_EXPOSE_MAPPED, &p, err, sizeof(err)) == OCCL_OK && exports() == was + 1,
       "memory that is given is exported at once");
    x = buffer(p, 1000, OCCL_EXPOSE_MAPPED);
    ok(x.number && reach(&x, &hold, &why), "and reached");
    let_go(&hold);
    ok(occl_ipc_mem_free(a, p) && exports() == was && !occl_ipc_mem_free(a, p), "freed once, it is exported no more");
    p = put_at(0, PAGE, new_fd(PAGE), POOL);
    ok(occl_ipc_mem_register(a, p, 100, OCCL_EXPOSE_MAPPED, err, sizeof(err)) == OCCL_ERR_UNSUPPORTED && strstr(err, "pool"),
       "registering memory of a pool says why it cannot be");
    p = mapped(1, NULL);
    ok(occl_ipc_mem_register(a, p, 100, OCCL_EXPOSE_HANDLES, err, sizeof(err)) == OCCL_ERR_UNSUPPORTED && strstr(err, "pidfd"),
       "and so does mapped memory where descriptors are not fetched");
    ok(occl_ipc_mem_register(a, p, 100, OCCL_EXPOSE_MAPPED, err, sizeof(err)) == OCCL_OK && occl_ipc_mem_unregister(a, p),
       "else it can");
}

static void refused(void)
{
    occl_arena_t *other = new_arena();
    occl_ipc_t *o;
    occl_ipc_peer_t *p;
    if (occl_ipc_create(0, other, &logger, &o, err, sizeof(err)) != OCCL_OK)
        bail("%s", err);
    ok(occl_ipc_peer_hides(peer) == NULL, "descriptors of a process like this one may be fetched");
    o->table->nonce[0]++;
    ids++;
    take_away(region);
    cudaMalloc((void **)&region, PAGE);
    p = open_peer(b, o, other);
    ok(occl_ipc_peer_hides(p) && strstr(occl_ipc_peer_hides(p), "not the process"), "those of another one than described are not");
    occl_ipc_peer_close(b, p);
    occl_ipc_destroy(o);
    occl_arena_destroy(other);
    upkeep(); /* does not look at what is not mapped any more */
    ok(1, "a process without a communicator is not looked at");
}

int main(void)
{
    arena_a = new_arena();
    arena_b = new_arena();
    cudaMalloc((void **)&region, PAGE);
    if (occl_ipc_create(0, arena_a, &logger, &a, err, sizeof(err)) != OCCL_OK ||
        occl_ipc_create(0, arena_b, &logger, &b, err, sizeof(err)) != OCCL_OK)
        bail("%s", err);
    peer = open_peer(b, a, arena_a);
    if (occl_ipc_peer_hides(peer))
        skip_all("descriptors cannot be fetched here: %s", occl_ipc_peer_hides(peer));
    handles();
    pieces();
    many();
    bounces();
    given();
    refused();
    occl_ipc_peer_close(b, peer);
    occl_ipc_destroy(b);
    occl_ipc_destroy(a);
    occl_arena_destroy(arena_b);
    occl_arena_destroy(arena_a);
    return tap_done();
}
