/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Users' buffers on a CUDA device, and how peers reach them.
 *
 * What peers can reach is exported: once per allocation, as an entry of a table in the process's arena (number, IPC handle, base,
 * size). Records name a buffer by entry and offset. A peer opens an entry when a gate first shows it, and keeps the mapping
 * until the table says that the allocation is gone. An allocation is known by its base and the driver's buffer id, so
 * memory that was freed and allocated again at the same address is another one.
 *
 * What they cannot reach (pools, managed, pinned memory) is used in place by the own device; what that cannot reach either
 * (pageable memory) has a bounce buffer.
 *
 * Threads. occl_ipc_resolve and occl_ipc_buffer_free are called under the context's lock and make no call to the driver. The others
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

/* See occl_device_far_ops_t.resolve. *wants_p is set when the service has something to do. */
int occl_ipc_resolve(occl_ipc_t *ipc, occl_ipc_peer_t *peer, uint64_t number, uint64_t offset, uint64_t *at_p, const char **why_p);

/* Under the context's lock: no run is outstanding or waits on the device, so mappings of allocations that are gone may go.
 * True when there are any for the service to close. */
int occl_ipc_idle(occl_ipc_t *ipc);
/* Own allocations that are gone are taken from the table. Goes to the driver. */
void occl_ipc_scan(occl_ipc_t *ipc);
/* Anything exported or mapped? Then idle and scan are called a few times a second. */
int occl_ipc_any(const occl_ipc_t *ipc);
/* Opens what was asked for; closes what may go if the daemon is out. */
void occl_ipc_service(occl_ipc_t *ipc, int out);

#endif
