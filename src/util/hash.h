/* SPDX-License-Identifier: BSD-3-Clause */
/* A map from uint64_t to a pointer that is not NULL. Open addressing, linear probing, no
 * tombstones. Not locked. */
#ifndef OCCL_SRC_UTIL_HASH_H
#define OCCL_SRC_UTIL_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "util/status.h"

typedef struct occl_hash_slot {
    uint64_t key;
    void *value; /* NULL: empty */
} occl_hash_slot_t;

typedef struct occl_hash {
    occl_hash_slot_t *slot; /* NULL until the first put */
    size_t mask;            /* capacity - 1; the capacity is a power of two */
    size_t count;
} occl_hash_t;

#define OCCL_HASH_INIT {NULL, 0, 0}

/* Mixes all bits of x into all bits of the result (a bijection). Good for building keys:
 * mix(mix(a) ^ b). */
static inline uint64_t occl_hash_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return x;
}
/* 64 bits for n bytes. The same on every machine of the same byte order; no cryptography. */
uint64_t occl_hash_bytes(const void *data, size_t n, uint64_t seed);

void occl_hash_init(occl_hash_t *h);
void occl_hash_fini(occl_hash_t *h); /* frees the table, not the values; h is then empty */
void *occl_hash_get(const occl_hash_t *h, uint64_t key); /* NULL when absent */
/* Inserts or replaces. OCCL_ERR_RESOURCE: no memory, nothing was changed. OCCL_ERR_ARG: value is
 * NULL. */
occl_status_t occl_hash_put(occl_hash_t *h, uint64_t key, void *value);
void *occl_hash_remove(occl_hash_t *h, uint64_t key); /* the value, or NULL */
/* One after the other in no order: *at starts at 0. NULL at the end. No put or remove in between.
 */
void *occl_hash_next(const occl_hash_t *h, size_t *at, uint64_t *key_p);

#endif
