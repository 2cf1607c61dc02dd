/* SPDX-License-Identifier: BSD-3-Clause */
/* A small seeded random generator (the splitmix64 sequence): same seed, same numbers, on every
 * machine. */
#ifndef OCCL_SRC_UTIL_RNG_H
#define OCCL_SRC_UTIL_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct occl_rng {
    uint64_t state;
} occl_rng_t;

static inline uint64_t occl_rng_next(occl_rng_t *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* stream tells apart generators of one seed (a rank, a lane). */
static inline void occl_rng_seed(occl_rng_t *r, uint64_t seed, uint64_t stream)
{
    occl_rng_t s = {seed};

    r->state = occl_rng_next(&s) ^ (stream * 0xda942042e4dd58b5u);
    (void)occl_rng_next(r);
}

/* 0 to n - 1; 0 when n is 0. The bias is below n / 2^64. */
static inline uint64_t occl_rng_below(occl_rng_t *r, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)occl_rng_next(r) * n) >> 64);
}

/* A random order of n ints. */
static inline void occl_rng_shuffle(occl_rng_t *r, int *v, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)occl_rng_below(r, i);
        int t = v[i - 1];
        v[i - 1] = v[j];
        v[j] = t;
    }
}

#endif
