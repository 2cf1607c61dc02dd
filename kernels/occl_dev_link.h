/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links: the memory through which two ranks exchange flags and small data for one (communicator, tag, channel).
 *
 * Each rank owns one *mailbox* per peer and channel, in its own shared arena. Only that peer writes to it, except the pool
 * words, which the owner writes. Rank a's mailbox for b, and b's mailbox for a, together make the links a->b and b->a.
 *
 * Why halves: run r uses half r & 1. A rank starts run r + 1 of a tag only after it has seen that every member has started
 * run r, and whoever starts r has finished r - 1. So when half (r & 1) is used again nobody has an unread message of r - 2
 * in it, without any credit across runs.
 */
#ifndef OCCL_KERNELS_LINK_H
#define OCCL_KERNELS_LINK_H

#include "occl_dev_atomic.h"

/* Header of a slot; data follow. The writer fills sig and data, then releases flag; the reader acquires flag. */
typedef struct occl_slot {
    uint64_t flag;   /* run << 32 | k + 1 */
    uint64_t sig;    /* signature hash of the sender's run */
} occl_slot_t;

typedef struct occl_mailbox {
    /* written by the peer */
    uint64_t sig;       /* SIG word: run << 32 | section << 24 | k + 1; release, only grows */
    uint64_t credit[2]; /* by half: run << 32 | messages of mine that the peer has consumed; release */
    uint64_t pad0[5];
    /* written by the owner before it publishes its readiness record of the run (release of the record orders it): where in
       the owner's arena the peer shall push the messages of this half; 0: the own slots below */
    uint64_t pool[2];
    uint64_t pad1[6];
    /* own slots: 2 halves of nslots slots of slot_bytes, written by the peer */
} occl_mailbox_t;

/* A link as a channel sees it. Both pointers are device addresses. */
typedef struct occl_link {
    occl_mailbox_t *rx;  /* mine, for this peer */
    occl_mailbox_t *tx;  /* the peer's, for me; 0 until the peer has made it */
} occl_link_t;

/* Own slots of a link. The host device: 2 x 4 slots of 1 KiB. */
typedef struct occl_geometry {
    uint32_t slot_bytes;   /* header included; a multiple of 64 */
    uint32_t nslots;       /* a half; a power of two */
} occl_geometry_t;

OCCL_FN uint64_t occl_mailbox_bytes(occl_geometry_t g)
{
    return sizeof(occl_mailbox_t) + 2ull * g.nslots * g.slot_bytes;
}

/* Data bytes that a slot holds. */
OCCL_FN uint64_t occl_slot_capacity(uint32_t slot_bytes) { return slot_bytes - sizeof(occl_slot_t); }

#endif
