/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues, and persistent operations in them. (The other operations in queues: coll.c.)
 *
 * A host queue is known by its address: it is one of our slabs', which are never given back. So whatever a program passes as a
 * queue is found out without being looked into: a stream, a queue that was freed, a number.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)MPIX_OCCL_QUEUE_HOST == (int)OCCL_QUEUE_HOST && (int)MPIX_OCCL_QUEUE_CUDA_STREAM == (int)OCCL_QUEUE_CUDA_STREAM,
               "the core's numbers are the public ones");

typedef struct queue {
    _Atomic(occl_hqueue_t *) core; /* NULL: not in use */
    struct queue *next;            /* of those not in use */
} queue_t;

enum { SLAB = 64 };
typedef struct slab {
    struct slab *next; /* written before the slab can be found */
    queue_t queue[SLAB];
} slab_t;

static _Atomic(slab_t *) slabs;
static queue_t *spare;
static occl_lock_t lock = OCCL_LOCK_INIT;

/* Ours, in use or not, or NULL */
static queue_t *known(void *p)
{
    for (slab_t *s = atomic_load_explicit(&slabs, memory_order_acquire); s; s = s->next) {
        uintptr_t at = (uintptr_t)p - (uintptr_t)s->queue;

        if (at < sizeof s->queue)
            return at % sizeof(queue_t) == 0 ? p : NULL;
    }
    return NULL;
}

static occl_hqueue_t *core_of(queue_t *q) { return q ? atomic_load_explicit(&q->core, memory_order_acquire) : NULL; }

static queue_t *take(void)
{
    queue_t *q;
    slab_t *s;

    occl_lock(&lock);
    if (!spare && (s = calloc(1, sizeof *s)) != NULL) {
        for (int i = 0; i < SLAB; i++) {
            s->queue[i].next = spare;
            spare = &s->queue[i];
        }
        s->next = atomic_load_explicit(&slabs, memory_order_relaxed);
        atomic_store_explicit(&slabs, s, memory_order_release);
    }
    if ((q = spare) != NULL)
        spare = q->next;
    occl_unlock(&lock);
    return q;
}

static void give(queue_t *q)
{
    occl_lock(&lock);
    q->next = spare;
    spare = q;
    occl_unlock(&lock);
}

static const char *type_name(int type) { return type == MPIX_OCCL_QUEUE_HOST ? "MPIX_OCCL_QUEUE_HOST" : "MPIX_OCCL_QUEUE_CUDA_STREAM"; }

static const char not_a_queue[] = "queue is %p, which is none of MPIX_Occl_queue_create, or was freed";

occl_status_t occl_mpi_queue_get(const occl_mpi_comm_t *m, int type, void *queue, void **core_p, char *why, size_t len)
{
    queue_t *q = queue ? known(queue) : NULL;
    const char *device;
    int wanted;

    *core_p = queue;
    if (type != MPIX_OCCL_QUEUE_HOST && type != MPIX_OCCL_QUEUE_CUDA_STREAM) {
        snprintf(why, len, "queue_type is %d; it must be MPIX_OCCL_QUEUE_HOST (%d) or MPIX_OCCL_QUEUE_CUDA_STREAM (%d)", type,
                 MPIX_OCCL_QUEUE_HOST, MPIX_OCCL_QUEUE_CUDA_STREAM);
        return OCCL_ERR_ARG;
    }
    device = occl_comm_device(m->core, &wanted);
    if (type != wanted) {
        snprintf(why, len, "queue_type is %s (%d); the communicator was attached to the device \"%s\", which takes %s (%d)",
                 type_name(type), type, device, type_name(wanted), wanted);
        return OCCL_ERR_ARG;
    }
    if (type == MPIX_OCCL_QUEUE_CUDA_STREAM) {
        if (!q)
            return OCCL_OK;
        snprintf(why, len, "queue_type is MPIX_OCCL_QUEUE_CUDA_STREAM (%d), but queue %p is one of MPIX_Occl_queue_create", type,
                 queue);
        return OCCL_ERR_ARG;
    }
    if ((*core_p = core_of(q)) != NULL)
        return OCCL_OK;
    if (queue)
        snprintf(why, len, not_a_queue, queue);
    else
        snprintf(why, len, "queue is NULL; queue_type MPIX_OCCL_QUEUE_HOST (%d) needs one of MPIX_Occl_queue_create", type);
    return OCCL_ERR_ARG;
}

/* --- queues ------------------------------------------------------------------------------------------------------- */

int PMPIX_Occl_queue_create(void **queue)
{
    static const char fn[] = "MPIX_Occl_queue_create";
    char why[256] = "";
    occl_hqueue_t *core = NULL;
    occl_status_t status;
    queue_t *q;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!queue)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "queue is NULL");
    /* A program may make its queues before it attaches anything. */
    status = occl_mpi_begin(why, sizeof why);
    if (status != OCCL_OK)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, status, "%s", why);
    if (!(q = take()))
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_RESOURCE, "no memory");
    status = occl_hqueue_create(occl_mpi.ctx, &core);
    if (status != OCCL_OK) {
        give(q);
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, status, "%s", occl_last_error());
    }
    atomic_store_explicit(&q->core, core, memory_order_release);
    *queue = q;
    return MPI_SUCCESS;
}
OCCL_ALIAS(queue_create);

int PMPIX_Occl_queue_free(void **queue)
{
    static const char fn[] = "MPIX_Occl_queue_free";
    occl_hqueue_t *core = NULL;
    queue_t *q;

    if (!occl_mpi_is_up() || !occl_mpi_is_ready())
        return occl_mpi_is_up() ? occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "no queue has been made") : occl_mpi_fail_down(fn);
    if (!queue)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "queue is NULL");
    /* Of two threads that free the same one, one gets the error. */
    if ((q = known(*queue)) != NULL)
        core = atomic_exchange(&q->core, NULL);
    if (!core)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, not_a_queue, *queue);
    occl_hqueue_free(core);
    give(q);
    *queue = NULL;
    occl_mpi_req_drain();
    return MPI_SUCCESS;
}
OCCL_ALIAS(queue_free);

int PMPIX_Occl_queue_synchronize(void *queue)
{
    static const char fn[] = "MPIX_Occl_queue_synchronize";
    occl_hqueue_t *core;
    occl_status_t status;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!(core = core_of(known(queue))))
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, not_a_queue, queue);
    status = occl_hqueue_synchronize(core);
    occl_mpi_req_drain();
    if (status != OCCL_OK)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, status, "%s", occl_last_error());
    return MPI_SUCCESS;
}
OCCL_ALIAS(queue_synchronize);

void occl_mpi_queues_free_all(void)
{
    for (slab_t *s = atomic_load_explicit(&slabs, memory_order_acquire); s; s = s->next) {
        for (int i = 0; i < SLAB; i++) {
            occl_hqueue_t *core = atomic_exchange(&s->queue[i].core, NULL);

            if (core)
                occl_hqueue_free(core);
        }
    }
}

/* --- persistent operations ---------------------------------------------------------------------------------------- */

static int start_in(const char *fn, MPIX_Occl_Coll coll, int queue_type, void *queue)
{
    char why[OCCL_TEXT - 64] = "";
    occl_status_t status;
    void *core;
    int rc = occl_mpi_coll_check(fn, coll);

    if (OCCL_UNLIKELY(rc != MPI_SUCCESS))
        return rc;
    status = occl_mpi_comm_sticky(coll->m, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_queue_get(coll->m, queue_type, queue, &core, why, sizeof why);
    if (OCCL_UNLIKELY(status != OCCL_OK))
        return occl_mpi_coll_refuse(fn, coll, status, why);
    atomic_store_explicit(&coll->m->enqueued, 1, memory_order_relaxed);
    if (coll->core)
        status = occl_coll_start_enqueue(coll->core, queue_type, core);
    if (OCCL_LIKELY(status == OCCL_OK) && coll->twin)
        status = occl_coll_start_enqueue(coll->twin, queue_type, core);
    if (OCCL_UNLIKELY(status != OCCL_OK))
        return occl_mpi_fail(coll->m, coll->m->user, fn, status, "%s", occl_last_error()); /* the core has told the peers */
    occl_mpi_req_drain();
    return MPI_SUCCESS;
}

static int wait_in(const char *fn, MPIX_Occl_Coll coll, int queue_type, void *queue)
{
    char why[OCCL_TEXT - 64] = "";
    occl_status_t status;
    void *core;
    int rc = occl_mpi_coll_check(fn, coll);

    if (OCCL_UNLIKELY(rc != MPI_SUCCESS))
        return rc;
    status = occl_mpi_comm_sticky(coll->m, why, sizeof why);
    if (status == OCCL_OK)
        status = occl_mpi_queue_get(coll->m, queue_type, queue, &core, why, sizeof why);
    if (OCCL_LIKELY(status == OCCL_OK)) {
        atomic_store_explicit(&coll->m->enqueued, 1, memory_order_relaxed);
        if (coll->core)
            status = occl_coll_wait_enqueue(coll->core, queue_type, core);
        if (OCCL_LIKELY(status == OCCL_OK) && coll->twin)
            status = occl_coll_wait_enqueue(coll->twin, queue_type, core);
        if (OCCL_UNLIKELY(status != OCCL_OK))
            snprintf(why, sizeof why, "%s", occl_last_error());
        occl_mpi_req_drain();
    }
    if (OCCL_UNLIKELY(status != OCCL_OK))
        return occl_mpi_fail(coll->m, coll->m->user, fn, status, "%s", why);
    return MPI_SUCCESS;
}

int PMPIX_Occl_start_enqueue(MPIX_Occl_Coll coll, int queue_type, void *queue)
{
    return start_in("MPIX_Occl_start_enqueue", coll, queue_type, queue);
}
OCCL_ALIAS(start_enqueue);

int PMPIX_Occl_wait_enqueue(MPIX_Occl_Coll coll, int queue_type, void *queue)
{
    return wait_in("MPIX_Occl_wait_enqueue", coll, queue_type, queue);
}
OCCL_ALIAS(wait_enqueue);

int occl_mpi_coll_enqueue(const char *fn, MPIX_Occl_Coll coll, int queue_type, void *queue)
{
    int rc = start_in(fn, coll, queue_type, queue);

    return rc == MPI_SUCCESS ? wait_in(fn, coll, queue_type, queue) : rc;
}
