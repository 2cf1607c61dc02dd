/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single copy between processes (cross-memory attach: process_vm_readv and process_vm_writev).
 *
 * A peer is named by an opaque 64-bit `via`: 0 is the same address space (memcpy), else the pid
 * in the low half. It is found once, at attach, by a real read and a real write between the very
 * pair; permission is not derived from kernel settings.
 */
#ifndef OCCL_SRC_TRANSPORT_CMA_H
#define OCCL_SRC_TRANSPORT_CMA_H

#include <stddef.h>
#include <stdint.h>

#include "transport/arena.h"
#include "util/status.h"

/* Or-ed to a via by tests: pulling or pushing through it then fails as if the peer were gone. */
#define OCCL_VIA_FAIL_PULL ((uint64_t)1 << 63)
#define OCCL_VIA_FAIL_PUSH ((uint64_t)1 << 62)

/* The via for a peer on the same node; no check. self is the caller's arena. */
uint64_t occl_cma_via(const occl_arena_t *self, const occl_arena_desc_t *peer);

/*
 * Reads and writes back 8 bytes at remote, in the peer's ordinary memory, that hold nonce:
 * peer->probe and peer->nonce[0], kept by the peer's arena for this. OCCL_OK: *via_p is good in
 * both directions from here. Else OCCL_ERR_UNSUPPORTED and a text with the system's reason; the
 * members then agree on the fall-back.
 */
occl_status_t occl_cma_probe(const occl_arena_t *self, const occl_arena_desc_t *peer,
                             uint64_t remote, uint64_t nonce, uint64_t *via_p, char *err,
                             size_t errlen);

/* Also declared in kernels/occl_dev.h. 0, or -1: the peer is gone or the address is not its. A
 * failed one may have moved a part. */
int occl_host_pull(uint64_t via, void *local, uint64_t remote, uint64_t bytes);
int occl_host_push(uint64_t via, const void *local, uint64_t remote, uint64_t bytes);

#endif
