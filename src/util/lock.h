/* SPDX-License-Identifier: BSD-3-Clause */
/* A lock between the threads of a process. pthread's, so that ThreadSanitizer knows it. */
#ifndef OCCL_SRC_UTIL_LOCK_H
#define OCCL_SRC_UTIL_LOCK_H

#include <pthread.h>

typedef struct occl_lock {
    pthread_mutex_t mutex;
} occl_lock_t;

#define OCCL_LOCK_INIT {PTHREAD_MUTEX_INITIALIZER}

static inline void occl_lock_init(occl_lock_t *l) { (void)pthread_mutex_init(&l->mutex, NULL); }
static inline void occl_lock_fini(occl_lock_t *l) { (void)pthread_mutex_destroy(&l->mutex); }
static inline void occl_lock(occl_lock_t *l) { (void)pthread_mutex_lock(&l->mutex); }
static inline void occl_unlock(occl_lock_t *l) { (void)pthread_mutex_unlock(&l->mutex); }
/* True when it was taken. */
static inline int occl_trylock(occl_lock_t *l) { return pthread_mutex_trylock(&l->mutex) == 0; }

#endif
