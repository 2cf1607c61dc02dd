/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users' buffers on a CUDA device, and how peers reach them.
 *
 * What peers can reach is exported: once per allocation, as an entry of a table in the process's arena (number, IPC handle, base,
 * size). Records name a buffer by entry and offset. A peer opens an entry when a gate first shows it, and keeps the mapping
 * until the table says that the allocation is gone. An allocation is known by its base and the driver's buffer id, so
 * memory that was freed and allocated again at the same address is another one.
 *
 * Memory that its owner has mapped (cuMemCreate, cuMemMap) is exported by descriptors, one for each mapped piece that the buffer
 * touches; an entry has all pieces of one buffer, and peers map them one behind the other. They fetch the descriptors with
 * pidfd_getfd, which the system may refuse: found out at attach, and such memory is then hidden from all.
 *
 * What they cannot reach (pools, managed, pinned memory) is used in place by the own device; what that cannot reach either
 * (pageable memory) has a bounce buffer.
 *
 * Threads. occl_ipc_resolve, _release and _buffer_free are called under the context's lock and make no call to the driver. The others
 * do, and are called without it. The table's own lock is never held across such a call.
 */
#ifndef OCCL_SRC_TRANSPORT_CUDA_IPC_H
#define OCCL_SRC_TRANSPORT_CUDA_IPC_H

#include <stddef.h>

#include "transport/arena.h"
#include "transport/far.h"
#include "util/log.h"
#include "util/status.h"

typedef struct occl_ipc occl_ipc_t;
typedef struct occl_ipc_peer occl_ipc_peer_t;

/* On failure the text is in err. */
/* A function of the driver, as `version` (11070: 11.7) has it, into *fn_p. False: it has none. */
int occl_cuda_driver(const char *name, unsigned int version, void *fn_p);

occl_status_t occl_ipc_create(int device, occl_arena_t *arena, const occl_logger_t *log, occl_ipc_t **ipc_p, char *err,
                              size_t errlen);
/* The daemon is out. */
void occl_ipc_destroy(occl_ipc_t *ipc);
/* Offset of the table in the arena. */
uint64_t occl_ipc_table(const occl_ipc_t *ipc);

/* See occl_device_far_ops_t.buffer (device/device.h). */
occl_status_t occl_ipc_buffer(occl_ipc_t *ipc, const void *p, uint64_t bytes, int expose, occl_buffer_t *b, char *err, size_t errlen);
void occl_ipc_buffer_free(occl_ipc_t *ipc, occl_buffer_t *b);

/* A process, by the region that its links lie in. Counted. base: in this process, for mine. */
occl_status_t occl_ipc_peer_open(occl_ipc_t *ipc, const occl_far_desc_t *desc, const void *arena, int mine, occl_ipc_peer_t **peer_p,
                                 char *err, size_t errlen);
void occl_ipc_peer_close(occl_ipc_t *ipc, occl_ipc_peer_t *peer);
unsigned char *occl_ipc_peer_base(const occl_ipc_peer_t *peer);
/* Why its mapped memory cannot be reached; NULL: it can. */
const char *occl_ipc_peer_hides(const occl_ipc_peer_t *peer);

/* See occl_device_far_ops_t. */
int occl_ipc_resolve(occl_ipc_t *ipc, occl_ipc_peer_t *peer, uint64_t number, uint64_t offset, uint64_t *at_p, void **hold_p,
                     const char **why_p);
void occl_ipc_release(occl_ipc_t *ipc, void **hold, uint32_t n);
occl_status_t occl_ipc_mem_alloc(occl_ipc_t *ipc, uint64_t bytes, int expose, void **p_p, char *err, size_t errlen);
int occl_ipc_mem_free(occl_ipc_t *ipc, void *p);
occl_status_t occl_ipc_mem_register(occl_ipc_t *ipc, void *p, uint64_t bytes, int expose, char *err, size_t errlen);
int occl_ipc_mem_unregister(occl_ipc_t *ipc, void *p);

/* Opens what was asked for. may_close: mappings that stand in the way may be closed, which waits for what runs in this process; where
 * that may wait for us, they stay, and what cannot be opened goes through slots. */
void occl_ipc_service(occl_ipc_t *ipc, int may_close);
/* A few times a second: own allocations that are gone are taken from the table; *close_p: mappings of peers' that are gone may be
 * closed. False when there is nothing to look after. */
int occl_ipc_upkeep(occl_ipc_t *ipc, int *close_p);
/* Closes them, those that have to wait for it when the daemon is out (it is now), or when they have waited for long. */
void occl_ipc_close(occl_ipc_t *ipc, int out);
/* Entries now, and mappings of peers' entries. */
void occl_ipc_counts(occl_ipc_t *ipc, uint64_t *exports_p, uint64_t *imports_p);

#endif
