/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Open addressing with linear probing. A removal moves later entries of the same run of slots back
 * instead of leaving a mark, so a table that thousands of tags have passed through is as fast as a
 * new one.
 */
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

uint64_t occl_hash_bytes(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = (const unsigned char *)data;
    uint64_t h = occl_hash_mix(seed ^ (uint64_t)n), w;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = occl_hash_mix((h + 0x9e3779b97f4a7c15u) ^ w);
    }
    if (n) {
        w = 0;
        memcpy(&w, p, n);
        h = occl_hash_mix((h + 0x9e3779b97f4a7c15u) ^ w);
    }
    return h;
}

void occl_hash_init(occl_hash_t *h)
{
    h->slot = NULL;
    h->mask = 0;
    h->count = 0;
}

void occl_hash_fini(occl_hash_t *h)
{
    free(h->slot);
    occl_hash_init(h);
}

static size_t hash_home(const occl_hash_t *h, uint64_t key)
{
    return (size_t)occl_hash_mix(key) & h->mask;
}

/* The slot of key, or the empty one where it belongs. There is always an empty one. */
static size_t hash_find(const occl_hash_t *h, uint64_t key)
{
    size_t i = hash_home(h, key);

    while (h->slot[i].value && h->slot[i].key != key)
        i = (i + 1) & h->mask;
    return i;
}

void *occl_hash_get(const occl_hash_t *h, uint64_t key)
{
    return h->slot ? h->slot[hash_find(h, key)].value : NULL;
}

/* At most two thirds full, so that probes stay short and an empty slot ends every search. */
static occl_status_t hash_grow(occl_hash_t *h)
{
    size_t cap = h->slot ? (h->mask + 1) * 2 : 16, old = h->slot ? h->mask + 1 : 0;
    occl_hash_t bigger;

    bigger.slot = (occl_hash_slot_t *)calloc(cap, sizeof *bigger.slot);
    if (!bigger.slot)
        return OCCL_ERR_RESOURCE;
    bigger.mask = cap - 1;
    bigger.count = h->count;
    for (size_t i = 0; i < old; i++)
        if (h->slot[i].value)
            bigger.slot[hash_find(&bigger, h->slot[i].key)] = h->slot[i];
    free(h->slot);
    *h = bigger;
    return OCCL_OK;
}

occl_status_t occl_hash_put(occl_hash_t *h, uint64_t key, void *value)
{
    size_t i;

    if (!value)
        return OCCL_ERR_ARG;
    if (!h->slot || (h->count + 1) * 3 > (h->mask + 1) * 2) {
        occl_status_t status;

        if (h->slot && h->slot[i = hash_find(h, key)].value) { /* replacing needs no room */
            h->slot[i].value = value;
            return OCCL_OK;
        }
        status = hash_grow(h);
        if (status != OCCL_OK)
            return status;
    }
    i = hash_find(h, key);
    if (!h->slot[i].value)
        h->count++;
    h->slot[i].key = key;
    h->slot[i].value = value;
    return OCCL_OK;
}

void *occl_hash_remove(occl_hash_t *h, uint64_t key)
{
    size_t hole, i;
    void *value;

    if (!h->slot)
        return NULL;
    hole = hash_find(h, key);
    value = h->slot[hole].value;
    if (!value)
        return NULL;
    /* An entry after the hole moves into it unless its home lies in (hole, i]: it would no longer
     * be found there. */
    for (i = (hole + 1) & h->mask; h->slot[i].value; i = (i + 1) & h->mask) {
        size_t home = hash_home(h, h->slot[i].key);

        if (((i - home) & h->mask) >= ((i - hole) & h->mask)) {
            h->slot[hole] = h->slot[i];
            hole = i;
        }
    }
    h->slot[hole].value = NULL;
    h->count--;
    return value;
}

void *occl_hash_next(const occl_hash_t *h, size_t *at, uint64_t *key_p)
{
    for (; h->slot && *at <= h->mask; (*at)++) {
        if (h->slot[*at].value) {
            if (key_p)
                *key_p = h->slot[*at].key;
            return h->slot[(*at)++].value;
        }
    }
    return NULL;
}
