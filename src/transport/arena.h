/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory of a node: every process owns one arena and maps those of its peers.
 *
 * An arena is one memfd of OCCL_ARENA_MAX bytes, sparse, mapped once, and allocated (fallocate)
 * in steps *before* use, so that a shortage is an error with a text and never a SIGBUS. Nothing
 * of it has a name in a file system, so nothing stays behind after kill -9. The book-keeping of
 * the allocator is private to the owner: a peer's stray store cannot break it.
 *
 * Links and boards lie in the arena of the process that *reads* them; peers store there. What the
 * words mean and in which order they are written is the business of kernels/ and core/; this file
 * hands out zeroed bytes.
 *
 * Ranks as threads of one process (test/emu) use OCCL_ARENA_PRIVATE: plain anonymous memory, and
 * mapping a peer means taking its pointer, so that ThreadSanitizer sees one address for one word.
 */
#ifndef OCCL_SRC_TRANSPORT_ARENA_H
#define OCCL_SRC_TRANSPORT_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "topo/topo.h"
#include "util/env.h"
#include "util/status.h"

typedef struct occl_arena occl_arena_t;
typedef struct occl_peer occl_peer_t;

/* How an arena is made; 0 is the normal way. */
enum {
    OCCL_ARENA_PRIVATE = 1,  /* ranks are threads: anonymous memory */
    OCCL_ARENA_NO_MEMFD = 2, /* as if memfd_create were missing: shm_open, unlinked at once */
    OCCL_ARENA_OFFSETS = 8,  /* the memory is elsewhere (a GPU's): address space that nobody touches; with PRIVATE. What
                                alloc hands out is not zeroed */
    OCCL_ARENA_NAMED = 4     /* shm_open, the name stays until occl_arena_unlink: for peers that may
                                not open /proc/PID/fd */
};

/* What a peer needs to map an arena. POD, sent as bytes at attach between processes of one
 * library version. */
typedef struct occl_arena_desc {
    uint32_t magic, version;
    occl_proc_id_t proc;
    uint64_t nonce[2];     /* random; stands in the arena's first bytes */
    uint64_t size;         /* bytes of address space */
    uint64_t base;         /* where the owner has it: for peers in the same process */
    uint64_t probe;        /* where the owner's ordinary memory holds nonce[0]: occl_cma_probe */
    int32_t fd;            /* in the owner; -1 for OCCL_ARENA_PRIVATE */
    uint32_t flags;        /* as made */
    uint32_t faults;       /* 0; tests set OCCL_FAULT_* in the copy that one rank received */
    uint32_t unused;
    char name[64];         /* OCCL_ARENA_NAMED only; else "" */
} occl_arena_desc_t;

/* Injected failures. Set by tests in a received descriptor, so one direction of one pair can
 * fail. */
enum {
    OCCL_FAULT_MAP = 1,  /* occl_peer_map */
    OCCL_FAULT_PULL = 2, /* occl_cma_probe: reading */
    OCCL_FAULT_PUSH = 4  /* occl_cma_probe: writing */
};

/* OCCL_ERR_RESOURCE and a text when not even a small arena can be had (a smaller one than asked
 * for is taken when the address space is limited). err may be NULL. */
occl_status_t occl_arena_create(const occl_env_t *env, int flags, occl_arena_t **arena_p, char *err,
                                size_t errlen);
/* Unmaps it and all peers that are still mapped. With PRIVATE: after all peers have unmapped it.
 * arena may be NULL. */
void occl_arena_destroy(occl_arena_t *arena);

/*
 * size bytes, zeroed, aligned to align (a power of two; at least 64 is given; 0 means 64). The
 * offset from the base, or 0: no memory, and occl_arena_error has the text (needed, available,
 * what to do). Thread-safe, as all calls on an arena.
 */
uint64_t occl_arena_alloc(occl_arena_t *arena, uint64_t size, uint64_t align);
/* Gives back what alloc returned, with the same size. Offset 0: nothing. OCCL_ERR_ARG: no such
 * block (nothing happens). */
occl_status_t occl_arena_free(occl_arena_t *arena, uint64_t offset, uint64_t size);

void *occl_arena_base(const occl_arena_t *arena);
static inline void *occl_arena_at(const occl_arena_t *arena, uint64_t offset)
{
    return (char *)occl_arena_base(arena) + offset;
}
uint64_t occl_arena_size(const occl_arena_t *arena);      /* address space */
uint64_t occl_arena_used(occl_arena_t *arena);            /* handed out now */
uint64_t occl_arena_peak(occl_arena_t *arena);            /* most that was ever handed out */
uint64_t occl_arena_committed(occl_arena_t *arena);       /* memory really taken from the system */
uint64_t occl_arena_blocks(occl_arena_t *arena);          /* number of blocks handed out now */
/* Copies the text of the last failed alloc ("" when none). Returns buf. */
char *occl_arena_error(occl_arena_t *arena, char *buf, size_t len);
/* No more than this many bytes are ever taken from the system, as if it had no more. For tests. */
void occl_arena_limit(occl_arena_t *arena, uint64_t bytes);

void occl_arena_describe(const occl_arena_t *arena, occl_arena_desc_t *desc_p);
/* OCCL_ARENA_NAMED: takes the name away once everybody has mapped it. Else nothing. */
void occl_arena_unlink(occl_arena_t *arena);
const occl_proc_id_t *occl_arena_proc(const occl_arena_t *arena);

/* Same node identity: memory may be shared (occl_peer_map finds out). */
int occl_same_node(const occl_arena_desc_t *a, const occl_arena_desc_t *b);
int occl_same_process(const occl_arena_desc_t *a, const occl_arena_desc_t *b);

/*
 * Maps a peer's arena (one's own too). Counted: mapping the same peer again gives the same
 * occl_peer_t. self is the caller's arena, which holds the table. Errors, each with a text:
 * OCCL_ERR_UNSUPPORTED (another node, user or pid namespace, or not permitted),
 * OCCL_ERR_PEER_FAILED (the process is gone), OCCL_ERR_RESOURCE, OCCL_ERR_MISMATCH (not the arena
 * described). A mapping outlives its owner: after its death the bytes stay readable.
 */
occl_status_t occl_peer_map(occl_arena_t *self, const occl_arena_desc_t *desc, occl_peer_t **peer_p,
                            char *err, size_t errlen);
void occl_peer_unmap(occl_arena_t *self, occl_peer_t *peer);
void *occl_peer_base(const occl_peer_t *peer);
uint64_t occl_peer_size(const occl_peer_t *peer);
static inline void *occl_peer_at(const occl_peer_t *peer, uint64_t offset)
{
    return (char *)occl_peer_base(peer) + offset;
}

#endif
