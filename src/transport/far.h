/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of a device that is not the processor's: what its owner tells its peers, and what is known of a user's buffer. */
#ifndef OCCL_SRC_TRANSPORT_FAR_H
#define OCCL_SRC_TRANSPORT_FAR_H

#include <stdint.h>

/* How a process's memory on the device is reached; sent as bytes at attach. */
typedef struct occl_far_desc {
    unsigned char uuid[16];   /* of the GPU */
    unsigned char handle[64]; /* of the region below */
    uint64_t base, bytes;     /* where the owner has it */
    uint64_t exports;         /* offset of the table of exported buffers in the owner's arena */
    uint32_t channels;        /* that fit this GPU at once, all its processes together */
    uint32_t pad;
    char name[64];            /* for messages */
} occl_far_desc_t;

/* Which buffers peers shall reach, agreed at attach: none; those with a handle; and mapped memory, whose descriptors they fetch. */
enum { OCCL_EXPOSE_NONE, OCCL_EXPOSE_HANDLES, OCCL_EXPOSE_MAPPED };

/* What a device knows of a user's buffer. */
typedef struct occl_buffer {
    uint64_t at;              /* where the device finds it */
    uint64_t number, offset;  /* how the peers do: an entry of the table of exports, from its base on; 0: they cannot */
    void *bounce;             /* the device cannot either: `at` is this copy of it, in memory that both address */
    uint64_t bytes, room;     /* of the bounce buffer: in use, and in all */
    uint64_t id;              /* of the allocation that it lies in */
    int pinned;               /* the processor's memory, which the device can address as long as its owner keeps it pinned */
    int refused;              /* could have been exported, and was not */
} occl_buffer_t;

#endif
