/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena: memory from the system, the allocator, and the mappings of peers; see arena.h.
 *
 * Address space, from the base:
 *
 *     head | blocks and free extents ........ | top ... fresh | ............ committed | .... size
 *
 *   top        everything from here on is free
 *   fresh      highest top ever: from here on nobody has written, so the bytes are zero
 *   committed  memory that the system has promised; below it no access can fail
 *
 * Free extents between blocks are kept by size class and found by their ends, so that alloc and
 * free cost the same with ten blocks and with a hundred thousand, and neighbours are always
 * merged.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/hash.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/strbuf.h"
#include "transport/arena.h"

#define ARENA_MAGIC 0x4f43434cu /* "OCCL" */
#define ARENA_VERSION 1u
#define ARENA_GRAIN 64u
#define ARENA_HEAD 4096u
#define ARENA_SMALLEST ((uint64_t)64 << 10)

/* First bytes of every arena. Written by the owner before it describes the arena, then constant. */
typedef struct arena_head {
    uint32_t magic, version;
    uint64_t nonce[2];
    uint64_t size;
    uint32_t refs; /* within the owner's process, where ranks are threads: the owner and those that took its pointer */
} arena_head_t;

typedef struct arena_extent {
    occl_list_t link; /* in its bin */
    uint64_t offset, size;
} arena_extent_t;

/* Size classes in grains: 1 to 15 have one each, then eight to a power of two. */
#define ARENA_BINS 512
#define ARENA_WORDS (ARENA_BINS / 64)

struct occl_peer {
    occl_peer_t *next; /* of the same hash */
    occl_proc_id_t proc;
    uint64_t nonce[2];
    void *base;
    uint64_t size;
    uint64_t key;
    int refs;
    int mapped;  /* a mapping of our own, to be undone */
    int counted; /* a thread of this process: refs in its head was raised */
};

struct occl_arena {
    occl_lock_t lock; /* all that is below, except what is constant after create */

    /* constant */
    char *base;
    uint64_t size, step;
    int fd, flags;
    occl_proc_id_t proc;
    uint64_t nonce[2];
    uint64_t probe; /* nonce[0] again; peers read it, and write it back, by cross-memory attach */

    char name[64];
    uint64_t top, fresh, committed, limit;
    uint64_t used, peak;
    occl_hash_t live;     /* offset -> size, which is never 0 */
    occl_hash_t by_start; /* offset -> extent */
    occl_hash_t by_end;   /* offset of the end -> extent */
    occl_list_t bin[ARENA_BINS];
    uint64_t bin_used[ARENA_WORDS];
    occl_hash_t peers;
    char error[320];
};

static uint64_t round_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

/* --- memory from the system ----------------------------------------------------------------- */

static void arena_random(void *buf, size_t n)
{
    if (getrandom(buf, n, GRND_NONBLOCK) == (ssize_t)n)
        return;
    /* Early at boot or forbidden. The nonce tells arenas apart, it keeps no secret. */
    for (size_t i = 0; i < n; i++) {
        uint64_t x = occl_host_clock_ns() ^ (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)buf ^ i;

        ((unsigned char *)buf)[i] = (unsigned char)occl_hash_mix(x);
    }
}

static int arena_open_shm(occl_arena_t *a)
{
    occl_strbuf_t b;
    uint64_t random;
    int fd = -1;

    for (int attempt = 0; fd < 0 && attempt < 8; attempt++) {
        arena_random(&random, sizeof random);
        occl_strbuf_fixed(&b, a->name, sizeof a->name);
        occl_strbuf_printf(&b, "/occl.%016llx", (unsigned long long)random);
        fd = shm_open(a->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        a->name[0] = '\0';
    return fd;
}

static void arena_unlink_locked(occl_arena_t *a)
{
    if (a->name[0])
        (void)shm_unlink(a->name);
    a->name[0] = '\0';
}

/* The file behind the arena. Its descriptor, or -1 with errno. */
static int arena_open(occl_arena_t *a)
{
    int fd = -1;

    if (!(a->flags & (OCCL_ARENA_NO_MEMFD | OCCL_ARENA_NAMED)))
        fd = memfd_create("occl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        fd = arena_open_shm(a);
        if (fd >= 0 && !(a->flags & OCCL_ARENA_NAMED))
            arena_unlink_locked(a);
    }
    return fd;
}

/* Maps at most `want` bytes, less where limits of the process ask for it. */
static occl_status_t arena_map(occl_arena_t *a, uint64_t want, occl_strbuf_t *err)
{
    int private = (a->flags & OCCL_ARENA_PRIVATE) != 0;
    struct rlimit limit;

    /* Growing a file beyond this limit is a signal, not an error. */
    if (!private && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < want)
        want = limit.rlim_cur / ARENA_HEAD * ARENA_HEAD;
    for (;;) {
        void *base = MAP_FAILED;

        if (want < ARENA_SMALLEST) {
            occl_strbuf_printf(err, "no address space for a shared arena: %s (see ulimit -v, -f)",
                               strerror(errno));
            return OCCL_ERR_RESOURCE;
        }
        if (private)
            base = mmap(NULL, want, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        else if (ftruncate(a->fd, (off_t)want) == 0)
            base = mmap(NULL, want, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, a->fd, 0);
        if (base != MAP_FAILED) {
            a->base = (char *)base;
            a->size = want;
            break;
        }
        want = want / 2 / ARENA_HEAD * ARENA_HEAD;
    }
#ifdef F_ADD_SEALS
    /* Nobody can shorten it: a peer that did would give us a SIGBUS. shm_open's has no seals. */
    if (!private)
        (void)fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
#endif
    return OCCL_OK;
}

/* Makes the pages of [from, to) exist. 0 or an errno. */
static int arena_allocate_pages(const occl_arena_t *a, uint64_t from, uint64_t to)
{
    int r;

    if (a->flags & OCCL_ARENA_PRIVATE)
        return 0;
    do
        r = fallocate(a->fd, 0, (off_t)from, (off_t)(to - from)) == 0 ? 0 : errno;
    while (r == EINTR);
    if (r != ENOSYS && r != EOPNOTSUPP)
        return r;
    /* A kernel without it: writing a byte to a page makes the page; nobody has used them yet. */
    for (uint64_t at = from; at < to; at += 4096)
        if (pwrite(a->fd, "", 1, (off_t)at) != 1)
            return errno;
    return 0;
}

/* What the file system behind the arena still has, or OCCL_INF when it sets no limit. */
static uint64_t arena_available(const occl_arena_t *a)
{
    struct statvfs fs;

    if (a->fd < 0 || fstatvfs(a->fd, &fs) != 0 || fs.f_blocks == 0)
        return OCCL_INF;
    return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* Makes [0, end) usable. On failure the text is in a->error. */
static occl_status_t arena_commit(occl_arena_t *a, uint64_t end)
{
    uint64_t cap = a->size < a->limit ? a->size : a->limit, target;
    occl_strbuf_t b;
    int reason;

    if (end <= a->committed)
        return OCCL_OK;
    occl_strbuf_fixed(&b, a->error, sizeof a->error);
    if (end > cap) {
        occl_strbuf_add(&b, "shared arena is full: ");
        occl_strbuf_size(&b, round_up(end - a->top, ARENA_GRAIN));
        occl_strbuf_add(&b, " needed, ");
        occl_strbuf_size(&b, cap > a->top ? cap - a->top : 0);
        occl_strbuf_add(&b, " available of ");
        occl_strbuf_size(&b, cap);
        occl_strbuf_add(&b, "; raise OCCL_ARENA_MAX");
        return OCCL_ERR_RESOURCE;
    }
    target = round_up(end, a->step);
    if (target > cap)
        target = cap;
    reason = arena_allocate_pages(a, a->committed, target);
    if (reason) {
        target = round_up(end, ARENA_HEAD); /* no whole step is left: just what is needed */
        if (target > cap)
            target = cap;
        reason = arena_allocate_pages(a, a->committed, target);
    }
    if (reason) {
        uint64_t available = arena_available(a);

        occl_strbuf_add(&b, "no memory for the shared arena: ");
        occl_strbuf_size(&b, target - a->committed);
        occl_strbuf_add(&b, " needed, ");
        if (available == OCCL_INF)
            occl_strbuf_add(&b, "none available");
        else {
            occl_strbuf_size(&b, available);
            occl_strbuf_add(&b, " available in /dev/shm");
        }
        occl_strbuf_add(&b, ", ");
        occl_strbuf_size(&b, a->committed);
        occl_strbuf_printf(&b, " in use (%s); give the container more memory or shared memory "
                               "(docker: --shm-size)",
                           strerror(reason));
        return OCCL_ERR_RESOURCE;
    }
    a->committed = target;
    return OCCL_OK;
}

/* --- free extents --------------------------------------------------------------------------- */

static unsigned bin_of(uint64_t size)
{
    uint64_t grains = size / ARENA_GRAIN;
    unsigned log2;

    if (grains < 16)
        return (unsigned)grains;
    log2 = 63u - (unsigned)__builtin_clzll(grains);
    return 16 + (log2 - 4) * 8 + (unsigned)((grains >> (log2 - 3)) & 7);
}

static void extent_unlink(occl_arena_t *a, arena_extent_t *e)
{
    unsigned bin = bin_of(e->size);

    occl_list_remove(&e->link);
    if (occl_list_empty(&a->bin[bin]))
        a->bin_used[bin / 64] &= ~((uint64_t)1 << (bin % 64));
    (void)occl_hash_remove(&a->by_start, e->offset);
    (void)occl_hash_remove(&a->by_end, e->offset + e->size);
}

/* Files [offset, offset + size) as free. Its neighbours are known to be in use. Without memory for
 * the book-keeping the bytes are lost until the arena goes: a leak, never a fault. */
static void extent_add(occl_arena_t *a, uint64_t offset, uint64_t size)
{
    unsigned bin = bin_of(size);
    arena_extent_t *e;

    if (size == 0)
        return;
    e = (arena_extent_t *)malloc(sizeof *e);
    if (!e)
        return;
    e->offset = offset;
    e->size = size;
    if (occl_hash_put(&a->by_start, offset, e) != OCCL_OK)
        goto no_start;
    if (occl_hash_put(&a->by_end, offset + size, e) != OCCL_OK)
        goto no_end;
    occl_list_push_front(&a->bin[bin], &e->link);
    a->bin_used[bin / 64] |= (uint64_t)1 << (bin % 64);
    return;

no_end:
    (void)occl_hash_remove(&a->by_start, offset);
no_start:
    free(e);
}

/* Free bytes [offset, offset + size): merged with what is free on either side. */
static void extent_release(occl_arena_t *a, uint64_t offset, uint64_t size)
{
    arena_extent_t *e;

    e = (arena_extent_t *)occl_hash_get(&a->by_end, offset);
    if (e) {
        extent_unlink(a, e);
        offset = e->offset;
        size += e->size;
        free(e);
    }
    e = (arena_extent_t *)occl_hash_get(&a->by_start, offset + size);
    if (e) {
        extent_unlink(a, e);
        size += e->size;
        free(e);
    }
    if (offset + size == a->top)
        a->top = offset;
    else
        extent_add(a, offset, size);
}

/* An extent of at least size bytes, taken out of the bins, or NULL. */
static arena_extent_t *extent_take(occl_arena_t *a, uint64_t size)
{
    unsigned bin = bin_of(size), word, tries = 16;
    arena_extent_t *e = NULL;
    uint64_t used;

    /* The own class holds smaller ones too. */
    for (occl_list_t *l = a->bin[bin].next; l != &a->bin[bin] && tries > 0; l = l->next, tries--) {
        e = OCCL_CONTAINER(l, arena_extent_t, link);
        if (e->size >= size)
            goto found;
    }
    /* Any of a higher class is large enough; the lowest such class leaves the smallest rest. */
    bin++;
    if (bin >= ARENA_BINS)
        return NULL;
    word = bin / 64;
    used = a->bin_used[word] & (~(uint64_t)0 << (bin % 64));
    while (!used) {
        if (++word == ARENA_WORDS)
            return NULL;
        used = a->bin_used[word];
    }
    bin = word * 64 + (unsigned)__builtin_ctzll(used);
    e = OCCL_CONTAINER(a->bin[bin].next, arena_extent_t, link);
found:
    extent_unlink(a, e);
    return e;
}

/* --- the arena ------------------------------------------------------------------------------ */

occl_status_t occl_arena_create(const occl_env_t *env, int flags, occl_arena_t **arena_p, char *err,
                                size_t errlen)
{
    occl_status_t status;
    arena_head_t *head;
    occl_arena_t *a;
    occl_strbuf_t b;

    occl_strbuf_fixed(&b, err, err ? errlen : 0);
    a = (occl_arena_t *)calloc(1, sizeof *a);
    if (!a) {
        occl_strbuf_add(&b, "no memory");
        return OCCL_ERR_RESOURCE;
    }
    occl_lock_init(&a->lock);
    a->fd = -1;
    a->flags = flags;
    a->limit = OCCL_INF;
    a->step = round_up(env->arena_step ? env->arena_step : 1, ARENA_HEAD);
    for (int i = 0; i < ARENA_BINS; i++)
        occl_list_init(&a->bin[i]);
    arena_random(a->nonce, sizeof a->nonce);
    a->probe = a->nonce[0];

    status = occl_topo_proc(env, &a->proc);
    if (status != OCCL_OK) {
        occl_strbuf_add(&b, "the identity of this node is unknown (no /proc?): set OCCL_HOSTID");
        goto failed;
    }
    if (!(flags & OCCL_ARENA_PRIVATE)) {
        a->fd = arena_open(a);
        if (a->fd < 0) {
            occl_strbuf_printf(&b, "no shared memory, neither memfd_create nor shm_open: %s",
                               strerror(errno));
            status = OCCL_ERR_RESOURCE;
            goto failed;
        }
    }
    status = arena_map(a, round_up(env->arena_max, ARENA_HEAD), &b);
    if (status != OCCL_OK)
        goto failed;
    status = arena_commit(a, ARENA_HEAD);
    if (status != OCCL_OK) {
        occl_strbuf_add(&b, a->error);
        goto failed;
    }
    a->top = a->fresh = ARENA_HEAD;
    head = (arena_head_t *)(void *)a->base;
    head->version = ARENA_VERSION;
    head->nonce[0] = a->nonce[0];
    head->nonce[1] = a->nonce[1];
    head->size = a->size;
    head->refs = 1;
    head->magic = ARENA_MAGIC;
    *arena_p = a;
    return OCCL_OK;

failed:
    occl_arena_destroy(a);
    return status;
}

/* Ranks that are threads take each other's pointer, so the last one unmaps. */
static void base_release(void *base, uint64_t size)
{
    if (__atomic_fetch_sub(&((arena_head_t *)base)->refs, 1, __ATOMIC_ACQ_REL) == 1)
        (void)munmap(base, size);
}

static void peer_free(occl_peer_t *peer)
{
    if (peer->counted)
        base_release(peer->base, peer->size);
    if (peer->mapped)
        (void)munmap(peer->base, peer->size);
    free(peer);
}

void occl_arena_destroy(occl_arena_t *a)
{
    occl_peer_t *peer;
    arena_extent_t *e;
    size_t at;

    if (!a)
        return;
    for (at = 0; (peer = (occl_peer_t *)occl_hash_next(&a->peers, &at, NULL));) {
        while (peer) {
            occl_peer_t *next = peer->next;

            peer_free(peer);
            peer = next;
        }
    }
    for (at = 0; (e = (arena_extent_t *)occl_hash_next(&a->by_start, &at, NULL));)
        free(e);
    occl_hash_fini(&a->peers);
    occl_hash_fini(&a->live);
    occl_hash_fini(&a->by_start);
    occl_hash_fini(&a->by_end);
    arena_unlink_locked(a);
    if (a->base && a->top) /* the head was written */
        base_release(a->base, a->size);
    else if (a->base)
        (void)munmap(a->base, a->size);
    if (a->fd >= 0)
        (void)close(a->fd);
    occl_lock_fini(&a->lock);
    free(a);
}

static uint64_t arena_alloc_locked(occl_arena_t *a, uint64_t size, uint64_t align)
{
    uint64_t slack = align - ARENA_GRAIN, start, end, offset;
    arena_extent_t *e = extent_take(a, size + slack);

    if (e) {
        start = e->offset;
        end = start + e->size;
        free(e);
        offset = round_up(start, align);
        extent_add(a, start, offset - start);
        extent_add(a, offset + size, end - offset - size);
    } else {
        start = a->top;
        offset = round_up(start, align);
        end = offset + size;
        if (arena_commit(a, end) != OCCL_OK)
            return 0;
        extent_add(a, start, offset - start);
        a->top = end;
    }
    if (occl_hash_put(&a->live, offset, (void *)(uintptr_t)size) != OCCL_OK) {
        extent_release(a, offset, size);
        return 0;
    }
    end = offset + size;
    if (offset < a->fresh && !(a->flags & OCCL_ARENA_OFFSETS))
        memset(a->base + offset, 0, (end < a->fresh ? end : a->fresh) - offset);
    if (a->top > a->fresh)
        a->fresh = a->top;
    a->used += size;
    if (a->used > a->peak)
        a->peak = a->used;
    return offset;
}

uint64_t occl_arena_alloc(occl_arena_t *a, uint64_t size, uint64_t align)
{
    uint64_t offset = 0;

    if (align < ARENA_GRAIN)
        align = ARENA_GRAIN;
    if (size == 0)
        size = 1;
    occl_lock(&a->lock);
    if (size > a->size || align > a->size || (align & (align - 1))) {
        occl_strbuf_t b;

        occl_strbuf_fixed(&b, a->error, sizeof a->error);
        occl_strbuf_add(&b, "shared arena is too small: ");
        occl_strbuf_size(&b, size);
        occl_strbuf_add(&b, " needed, ");
        occl_strbuf_size(&b, a->size);
        occl_strbuf_add(&b, " in all; raise OCCL_ARENA_MAX");
    } else {
        offset = arena_alloc_locked(a, round_up(size, ARENA_GRAIN), align);
    }
    occl_unlock(&a->lock);
    return offset;
}

occl_status_t occl_arena_free(occl_arena_t *a, uint64_t offset, uint64_t size)
{
    occl_status_t status = OCCL_OK;

    if (offset == 0)
        return OCCL_OK;
    size = round_up(size ? size : 1, ARENA_GRAIN);
    occl_lock(&a->lock);
    if ((uint64_t)(uintptr_t)occl_hash_get(&a->live, offset) != size) {
        status = OCCL_ERR_ARG;
    } else {
        (void)occl_hash_remove(&a->live, offset);
        a->used -= size;
        extent_release(a, offset, size);
    }
    occl_unlock(&a->lock);
    return status;
}

void *occl_arena_base(const occl_arena_t *a)
{
    return a->base;
}

uint64_t occl_arena_size(const occl_arena_t *a)
{
    return a->size;
}

const occl_proc_id_t *occl_arena_proc(const occl_arena_t *a)
{
    return &a->proc;
}

static uint64_t arena_number(occl_arena_t *a, const uint64_t *number)
{
    uint64_t value;

    occl_lock(&a->lock);
    value = *number;
    occl_unlock(&a->lock);
    return value;
}

uint64_t occl_arena_used(occl_arena_t *a)
{
    return arena_number(a, &a->used);
}

uint64_t occl_arena_peak(occl_arena_t *a)
{
    return arena_number(a, &a->peak);
}

uint64_t occl_arena_committed(occl_arena_t *a)
{
    return arena_number(a, &a->committed);
}

uint64_t occl_arena_blocks(occl_arena_t *a)
{
    uint64_t n;

    occl_lock(&a->lock);
    n = a->live.count;
    occl_unlock(&a->lock);
    return n;
}

char *occl_arena_error(occl_arena_t *a, char *buf, size_t len)
{
    occl_strbuf_t b;

    occl_strbuf_fixed(&b, buf, len);
    occl_lock(&a->lock);
    occl_strbuf_add(&b, a->error);
    occl_unlock(&a->lock);
    return buf;
}

void occl_arena_limit(occl_arena_t *a, uint64_t bytes)
{
    occl_lock(&a->lock);
    a->limit = bytes;
    occl_unlock(&a->lock);
}

void occl_arena_unlink(occl_arena_t *a)
{
    occl_lock(&a->lock);
    arena_unlink_locked(a);
    occl_unlock(&a->lock);
}

void occl_arena_describe(const occl_arena_t *a, occl_arena_desc_t *desc_p)
{
    memset(desc_p, 0, sizeof *desc_p);
    desc_p->magic = ARENA_MAGIC;
    desc_p->version = ARENA_VERSION;
    desc_p->proc = a->proc;
    desc_p->nonce[0] = a->nonce[0];
    desc_p->nonce[1] = a->nonce[1];
    desc_p->size = a->size;
    desc_p->base = (uint64_t)(uintptr_t)a->base;
    desc_p->probe = (uint64_t)(uintptr_t)&a->probe;
    desc_p->fd = a->fd;
    desc_p->flags = (uint32_t)a->flags;
    memcpy(desc_p->name, a->name, sizeof desc_p->name);
}

int occl_same_node(const occl_arena_desc_t *a, const occl_arena_desc_t *b)
{
    return occl_node_equal(&a->proc.node, &b->proc.node);
}

int occl_same_process(const occl_arena_desc_t *a, const occl_arena_desc_t *b)
{
    return occl_proc_equal(&a->proc, &b->proc);
}

/* --- peers ---------------------------------------------------------------------------------- */

void *occl_peer_base(const occl_peer_t *peer)
{
    return peer->base;
}

uint64_t occl_peer_size(const occl_peer_t *peer)
{
    return peer->size;
}

/* A status for the errno of an open or mmap. */
static occl_status_t peer_errno_status(int reason)
{
    switch (reason) {
    case ENOENT:
    case ESRCH:
        return OCCL_ERR_PEER_FAILED;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return OCCL_ERR_RESOURCE;
    default:
        return OCCL_ERR_UNSUPPORTED;
    }
}

/* Opens the memory of a process that is not ours. The descriptor, or -1, a status and a text. */
static int peer_open(const occl_arena_t *self, const occl_arena_desc_t *desc,
                     occl_status_t *status_p, occl_strbuf_t *err)
{
    char path[64];
    occl_strbuf_t b;
    int fd = -1;

    if (desc->name[0])
        fd = shm_open(desc->name, O_RDWR | O_CLOEXEC, 0);
    if (fd >= 0)
        return fd;
    *status_p = OCCL_ERR_UNSUPPORTED;
    if (desc->proc.pid_ns != self->proc.pid_ns) {
        /* its pid is another process's here */
        occl_strbuf_add(err, "it is in another pid namespace");
        return -1;
    }
    if (occl_topo_start_time(desc->proc.pid) != desc->proc.start_time) {
        occl_strbuf_add(err, "the process has ended");
        *status_p = OCCL_ERR_PEER_FAILED;
        return -1;
    }
    occl_strbuf_fixed(&b, path, sizeof path);
    occl_strbuf_printf(&b, "/proc/%lu/fd/%ld", (unsigned long)desc->proc.pid, (long)desc->fd);
    /* O_NONBLOCK: whatever is behind a stale number, opening it must not wait */
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        int reason = errno;

        *status_p = peer_errno_status(reason);
        occl_strbuf_printf(err, "%s: %s", path, strerror(reason));
    }
    return fd;
}

/* Checks what was opened, maps it and checks the head. */
static occl_status_t peer_map_fd(int fd, const occl_arena_t *self, const occl_arena_desc_t *desc,
                                 void **base_p, occl_strbuf_t *err)
{
    const arena_head_t *head;
    struct stat st;
    void *base;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size < desc->size) {
        occl_strbuf_add(err, "what was found is not the arena described");
        return OCCL_ERR_MISMATCH;
    }
    if (st.st_uid != (uid_t)self->proc.uid || desc->proc.uid != self->proc.uid) {
        occl_strbuf_printf(err, "it belongs to user %lu, not %lu", (unsigned long)st.st_uid,
                           (unsigned long)self->proc.uid);
        return OCCL_ERR_UNSUPPORTED;
    }
    base = mmap(NULL, desc->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        int reason = errno;

        occl_strbuf_printf(err, "mapping it failed: %s (see ulimit -v)", strerror(reason));
        return peer_errno_status(reason);
    }
    head = (const arena_head_t *)base;
    if (head->magic != ARENA_MAGIC || head->version != ARENA_VERSION ||
        head->nonce[0] != desc->nonce[0] || head->nonce[1] != desc->nonce[1] ||
        head->size != desc->size) {
        (void)munmap(base, desc->size);
        occl_strbuf_add(err, "what was found is not the arena described");
        return OCCL_ERR_MISMATCH;
    }
    (void)madvise(base, desc->size, MADV_DONTDUMP); /* a core file holds its own arena, not all */
    *base_p = base;
    return OCCL_OK;
}

/* Fills base and mapped of a new entry. */
static occl_status_t peer_attach(const occl_arena_t *self, const occl_arena_desc_t *desc,
                                 occl_peer_t *peer, occl_strbuf_t *err)
{
    occl_status_t status = OCCL_ERR_UNSUPPORTED;
    int fd;

    if (!occl_node_equal(&self->proc.node, &desc->proc.node)) {
        occl_strbuf_add(err, "it is on another node");
        return OCCL_ERR_UNSUPPORTED;
    }
    if (occl_proc_equal(&self->proc, &desc->proc)) {
        /* ourselves, or a rank that is a thread of this process: one address for one word */
        peer->base = (void *)(uintptr_t)desc->base;
        if (peer->base != self->base) {
            (void)__atomic_fetch_add(&((arena_head_t *)peer->base)->refs, 1, __ATOMIC_RELAXED);
            peer->counted = 1;
        }
        return OCCL_OK;
    }
    fd = peer_open(self, desc, &status, err);
    if (fd < 0)
        return status;
    status = peer_map_fd(fd, self, desc, &peer->base, err);
    (void)close(fd);
    if (status == OCCL_OK)
        peer->mapped = 1;
    return status;
}

occl_status_t occl_peer_map(occl_arena_t *self, const occl_arena_desc_t *desc, occl_peer_t **peer_p,
                            char *err, size_t errlen)
{
    occl_peer_t *first, *peer;
    occl_status_t status;
    occl_strbuf_t b;
    uint64_t key;

    occl_strbuf_fixed(&b, err, err ? errlen : 0);
    if (desc->magic != ARENA_MAGIC || desc->version != ARENA_VERSION) {
        occl_strbuf_add(&b, "not the description of an arena of this version");
        return OCCL_ERR_MISMATCH;
    }
    occl_strbuf_printf(&b, "shared memory of pid %lu: ", (unsigned long)desc->proc.pid);
    if (desc->faults & OCCL_FAULT_MAP) {
        occl_strbuf_add(&b, "failure injected by a test");
        return OCCL_ERR_UNSUPPORTED;
    }
    key = occl_hash_bytes(&desc->proc, sizeof desc->proc, desc->nonce[0] ^ desc->nonce[1]);

    occl_lock(&self->lock);
    first = (occl_peer_t *)occl_hash_get(&self->peers, key);
    for (peer = first; peer; peer = peer->next)
        if (occl_proc_equal(&peer->proc, &desc->proc) && peer->nonce[0] == desc->nonce[0] &&
            peer->nonce[1] == desc->nonce[1])
            break;
    if (peer) {
        peer->refs++;
        status = OCCL_OK;
        goto out;
    }
    peer = (occl_peer_t *)calloc(1, sizeof *peer);
    if (!peer) {
        occl_strbuf_add(&b, "no memory");
        status = OCCL_ERR_RESOURCE;
        goto out;
    }
    peer->proc = desc->proc;
    peer->nonce[0] = desc->nonce[0];
    peer->nonce[1] = desc->nonce[1];
    peer->size = desc->size;
    peer->key = key;
    peer->refs = 1;
    peer->next = first;
    status = peer_attach(self, desc, peer, &b);
    if (status != OCCL_OK)
        goto drop;
    status = occl_hash_put(&self->peers, key, peer);
    if (status != OCCL_OK) {
        occl_strbuf_add(&b, "no memory");
        goto drop;
    }
    goto out;

drop:
    peer_free(peer);
out:
    occl_unlock(&self->lock);
    if (status == OCCL_OK) {
        occl_strbuf_clear(&b);
        *peer_p = peer;
    }
    return status;
}

void occl_peer_unmap(occl_arena_t *self, occl_peer_t *peer)
{
    occl_peer_t *first, **at;

    if (!peer)
        return;
    occl_lock(&self->lock);
    if (--peer->refs == 0) {
        first = (occl_peer_t *)occl_hash_remove(&self->peers, peer->key);
        for (at = &first; *at && *at != peer; at = &(*at)->next)
            ;
        if (*at)
            *at = peer->next;
        if (first)
            (void)occl_hash_put(&self->peers, peer->key, first); /* into the slot just freed */
        peer_free(peer);
    }
    occl_unlock(&self->lock);
}
