/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent operations. With MPIX_OCCL_NO_REQUEST the way from the program to the core is a few compares: no attribute, no
 * allocation, no MPI.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct MPIX_Occl_coll_s *spare;
static occl_lock_t spare_lock = OCCL_LOCK_INIT;

/* Each has a number for good, its Fortran handle: that of its slab and its place there. Two levels, so that there is no table to
 * move while others read it: a slab is written before its address is released, and never changes. */
enum { SLAB = 32, SHELF = 1024, SHELVES = 1024 };
typedef struct {
    _Atomic(struct MPIX_Occl_coll_s *) slab[SHELF];
} shelf_t;
static _Atomic(shelf_t *) shelves[SHELVES];
static int slabs;

/* Under the lock. The first number of the slab; 0: no memory for it */
static int shelve(struct MPIX_Occl_coll_s *slab)
{
    int n = slabs;
    shelf_t *shelf;

    if (n == SHELF * SHELVES)
        return 0;
    shelf = atomic_load_explicit(&shelves[n / SHELF], memory_order_relaxed);
    if (!shelf) {
        if (!(shelf = calloc(1, sizeof *shelf)))
            return 0;
        atomic_store_explicit(&shelves[n / SHELF], shelf, memory_order_release);
    }
    atomic_store_explicit(&shelf->slab[n % SHELF], slab, memory_order_release);
    slabs = n + 1;
    return n * SLAB + 1;
}

struct MPIX_Occl_coll_s *occl_mpi_coll_alloc(void)
{
    struct MPIX_Occl_coll_s *c;
    int first;

    occl_lock(&spare_lock);
    if (!spare && (c = calloc(SLAB, sizeof *c)) != NULL) {
        first = shelve(c);
        for (int i = 0; i < SLAB && first; i++) {
            atomic_init(&c[i].magic, OCCL_COLL_FREE);
            c[i].number = first + i;
            c[i].next = spare;
            spare = &c[i];
        }
        if (!first)
            free(c);
    }
    if ((c = spare) != NULL)
        spare = c->next;
    occl_unlock(&spare_lock);
    return c;
}

void occl_mpi_coll_release(struct MPIX_Occl_coll_s *c)
{
    atomic_store_explicit(&c->magic, OCCL_COLL_FREE, memory_order_release);
    c->core = c->twin = NULL;
    c->odd = 0;
    c->m = NULL;
    occl_lock(&spare_lock);
    c->next = spare;
    spare = c;
    occl_unlock(&spare_lock);
}

#define is_live occl_mpi_coll_is_live
#define is_attached occl_mpi_coll_is_attached

static inline MPI_Comm user_comm(const struct MPIX_Occl_coll_s *c) { return is_attached(c) ? c->m->user : MPI_COMM_NULL; }

static int not_live(const char *fn, const struct MPIX_Occl_coll_s *c)
{
    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_REQUEST,
                         c ? "the operation was freed before" : "the operation is MPIX_OCCL_COLL_NULL");
}

/* --- start -------------------------------------------------------------------------------------------------------- */

int occl_mpi_coll_check(const char *fn, struct MPIX_Occl_coll_s *c)
{
    if (!is_live(c) || !occl_mpi_is_ready())
        return not_live(fn, c);
    if (!is_attached(c))
        return occl_mpi_fail(c->m, MPI_COMM_NULL, fn, OCCL_ERR_NOT_ATTACHED,
                             "the operation's communicator has been detached or freed since %s", c->fn);
    return MPI_SUCCESS;
}

int occl_mpi_coll_refuse(const char *fn, struct MPIX_Occl_coll_s *c, occl_status_t status, const char *text)
{
    return occl_mpi_coll_refuse_rest(fn, c, 0, status, text);
}

int occl_mpi_coll_refuse_rest(const char *fn, struct MPIX_Occl_coll_s *c, int started, occl_status_t status, const char *text)
{
    char copy[OCCL_TEXT - 64];

    snprintf(copy, sizeof copy, "%s", text); /* it may be the core's, which may write another one now */
    /* One that is active has its place; where there is no communicator any more there are no places. */
    if (status != OCCL_ERR_REQUEST && status != OCCL_ERR_NOT_ATTACHED && status != OCCL_ERR_REVOKED) {
        if (c->core && started < 1)
            occl_coll_start_failed(c->core, status);
        if (c->twin && started < 2)
            occl_coll_start_failed(c->twin, status);
    }
    return occl_mpi_fail(c->m, c->m->user, fn, status, "%s", copy);
}

int occl_mpi_coll_start(const char *fn, struct MPIX_Occl_coll_s *c, MPI_Request *request)
{
    char why[OCCL_TEXT - 64];
    occl_mpi_req_t *q = NULL;
    occl_run_t *run = NULL, *twin = NULL;
    occl_status_t status = OCCL_OK;
    int rc = occl_mpi_coll_check(fn, c);

    if (rc != MPI_SUCCESS)
        return rc;
    if (request)
        *request = MPI_REQUEST_NULL;
    status = occl_mpi_comm_sticky(c->m, why, sizeof why);
    if (status != OCCL_OK)
        return occl_mpi_coll_refuse(fn, c, status, why);
    if (request) {
        if (!occl_mpi_req_allowed())
            return occl_mpi_coll_refuse(fn, c, OCCL_ERR_UNSUPPORTED,
                                        "this MPI offers no way to complete a request below MPI_THREAD_MULTIPLE; "
                                        "give MPIX_OCCL_NO_REQUEST");
        if (!(q = occl_mpi_req_alloc(c->m, fn)))
            return occl_mpi_coll_refuse(fn, c, OCCL_ERR_RESOURCE, "no memory for a request");
        q->source = c->source;
        q->tag = c->tag;
    }
    if (c->core)
        status = occl_coll_start(c->core, request ? &run : NULL);
    if (status == OCCL_OK && c->twin && (status = occl_coll_start(c->twin, request ? &twin : NULL)) != OCCL_OK) {
        char copy[OCCL_TEXT - 64];

        /* The receive goes on; MPIX_Occl_coll_wait waits for it. */
        snprintf(copy, sizeof copy, "%s", occl_last_error());
        if (run)
            occl_run_release(run);
        if (q)
            occl_mpi_req_drop(q);
        return occl_mpi_coll_refuse_rest(fn, c, 1, status, copy);
    }
    if (status != OCCL_OK) {
        if (q)
            occl_mpi_req_drop(q);
        return occl_mpi_coll_refuse(fn, c, status, occl_last_error());
    }
    if (request && occl_mpi_req_publish(q, run, twin, request) != MPI_SUCCESS)
        return occl_mpi_fail(c->m, c->m->user, fn, OCCL_ERR_RESOURCE, "MPI_Grequest_start failed; the operation was started");
    return MPI_SUCCESS;
}

int PMPIX_Occl_start(MPIX_Occl_Coll coll, MPI_Request *request)
{
    /* After MPI_Finalize nothing is attached, so that this one test also says whether the core is there. */
    if (OCCL_LIKELY(request == MPIX_OCCL_NO_REQUEST && is_live(coll) && is_attached(coll) && !coll->odd &&
                    !atomic_load_explicit(&coll->m->enqueued, memory_order_relaxed)) &&
        OCCL_LIKELY(occl_coll_start(coll->core, NULL) == OCCL_OK))
        return MPI_SUCCESS;
    return occl_mpi_coll_start("MPIX_Occl_start", coll, request);
}
OCCL_ALIAS(start);

int PMPIX_Occl_startall(int count, const MPIX_Occl_Coll array_of_colls[], MPI_Request array_of_requests[])
{
    static const char fn[] = "MPIX_Occl_startall";
    int rc = MPI_SUCCESS;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (count < 0 || (count > 0 && !array_of_colls))
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, count < 0 ? OCCL_ERR_COUNT : OCCL_ERR_ARG,
                             count < 0 ? "count is %d" : "array_of_colls is NULL", count);
    for (int i = 0; array_of_requests && i < count; i++)
        array_of_requests[i] = MPI_REQUEST_NULL;
    for (int i = 0; i < count && rc == MPI_SUCCESS; i++)
        rc = occl_mpi_coll_start(fn, array_of_colls[i], array_of_requests ? &array_of_requests[i] : NULL);
    return rc;
}
OCCL_ALIAS(startall);

/* --- completion --------------------------------------------------------------------------------------------------- */

/* Both of two, one after the other: each makes progress for the other one, too. The outcome is the first that is none; *which_p
 * has it. */
static occl_status_t wait_both(struct MPIX_Occl_coll_s *c, occl_coll_t **which_p, occl_status_t *outcome_p)
{
    occl_status_t status = OCCL_OK, second = OCCL_OK;

    *outcome_p = OCCL_OK;
    *which_p = c->core;
    if (c->core)
        status = occl_coll_wait(c->core, outcome_p);
    if (status == OCCL_OK && c->twin)
        status = occl_coll_wait(c->twin, &second);
    if (*outcome_p == OCCL_OK && second != OCCL_OK) {
        *which_p = c->twin;
        *outcome_p = second;
    }
    return status;
}

static occl_status_t test_both(struct MPIX_Occl_coll_s *c, int *done_p, occl_coll_t **which_p, occl_status_t *outcome_p)
{
    occl_status_t status = OCCL_OK, second = OCCL_OK;
    int one = 1, two = 1;

    *outcome_p = OCCL_OK;
    *which_p = c->core;
    if (c->core)
        status = occl_coll_test(c->core, &one, outcome_p);
    if (status == OCCL_OK && c->twin)
        status = occl_coll_test(c->twin, &two, &second);
    *done_p = one && two;
    if (*done_p && *outcome_p == OCCL_OK && second != OCCL_OK) {
        *which_p = c->twin;
        *outcome_p = second;
    }
    return status;
}

static int outcome_error(const char *fn, struct MPIX_Occl_coll_s *c, const occl_coll_t *which, occl_status_t outcome)
{
    if (outcome == OCCL_OK || outcome == OCCL_ERR_CANCELLED)
        return MPI_SUCCESS;
    return occl_mpi_raise(c->m, occl_mpi_code(c->m, outcome, fn, occl_coll_error((occl_coll_t *)which)));
}

int PMPIX_Occl_coll_wait(MPIX_Occl_Coll coll)
{
    static const char fn[] = "MPIX_Occl_coll_wait";
    occl_status_t outcome = OCCL_OK, status;
    occl_coll_t *which;

    if (OCCL_UNLIKELY(!is_live(coll) || !occl_mpi_is_ready()))
        return coll || !occl_mpi_is_up() ? not_live(fn, coll) : MPI_SUCCESS; /* nothing to wait for, as with MPI_REQUEST_NULL */
    which = coll->core;
    status = OCCL_UNLIKELY(coll->odd) ? wait_both(coll, &which, &outcome) : occl_coll_wait(coll->core, &outcome);
    occl_mpi_req_drain();
    if (OCCL_LIKELY(status == OCCL_OK && outcome == OCCL_OK))
        return MPI_SUCCESS;
    if (status != OCCL_OK)
        return occl_mpi_fail(coll->m, user_comm(coll), fn, status, "%s", occl_last_error());
    return outcome_error(fn, coll, which, outcome);
}
OCCL_ALIAS(coll_wait);

int PMPIX_Occl_coll_test(MPIX_Occl_Coll coll, int *flag)
{
    static const char fn[] = "MPIX_Occl_coll_test";
    occl_status_t outcome = OCCL_OK, status;
    occl_coll_t *which;
    int done = 0;

    if (OCCL_UNLIKELY(!flag))
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "flag is NULL");
    if (OCCL_UNLIKELY(!is_live(coll) || !occl_mpi_is_ready())) {
        if (coll || !occl_mpi_is_up())
            return not_live(fn, coll);
        *flag = 1;
        return MPI_SUCCESS;
    }
    status = test_both(coll, &done, &which, &outcome);
    occl_mpi_req_drain();
    if (status != OCCL_OK)
        return occl_mpi_fail(coll->m, user_comm(coll), fn, status, "%s", occl_last_error());
    *flag = done;
    if (!done) {
        occl_mpi_poke_sometimes();
        return MPI_SUCCESS;
    }
    return outcome_error(fn, coll, which, outcome);
}
OCCL_ALIAS(coll_test);

int PMPIX_Occl_coll_cancel(MPIX_Occl_Coll coll, int *flag)
{
    static const char fn[] = "MPIX_Occl_coll_cancel";
    occl_status_t status;
    int cancelled = 0;

    if (!is_live(coll) || !occl_mpi_is_ready())
        return not_live(fn, coll);
    if (!flag)
        return occl_mpi_fail(coll->m, user_comm(coll), fn, OCCL_ERR_ARG, "flag is NULL");
    /* Of two, one could be withdrawn and the other one not: so they go on. */
    status = coll->odd ? OCCL_OK : occl_coll_cancel(coll->core, &cancelled);
    occl_mpi_req_drain();
    if (status != OCCL_OK)
        return occl_mpi_fail(coll->m, user_comm(coll), fn, status, "%s", occl_last_error());
    *flag = cancelled;
    return MPI_SUCCESS;
}
OCCL_ALIAS(coll_cancel);

int PMPIX_Occl_coll_free(MPIX_Occl_Coll *coll)
{
    static const char fn[] = "MPIX_Occl_coll_free";
    struct MPIX_Occl_coll_s *c = coll ? *coll : NULL;
    unsigned live = OCCL_COLL_LIVE;

    if (!coll && occl_mpi_is_up())
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "coll is NULL");
    if (!c || !occl_mpi_is_ready())
        return not_live(fn, c);
    /* Of two threads that free the same one, one gets the error. */
    if (!atomic_compare_exchange_strong(&c->magic, &live, OCCL_COLL_FREE))
        return not_live(fn, c);
    if (c->core)
        occl_coll_free(c->core);
    if (c->twin)
        occl_coll_free(c->twin);
    occl_mpi_comm_unref(c->m);
    occl_mpi_coll_release(c);
    *coll = MPIX_OCCL_COLL_NULL;
    return MPI_SUCCESS;
}
OCCL_ALIAS(coll_free);

int PMPIX_Occl_coll_get_error(MPIX_Occl_Coll coll, int *errorcode, char *text, int length)
{
    static const char fn[] = "MPIX_Occl_coll_get_error";
    occl_status_t outcome = OCCL_OK, status;
    occl_coll_t *which;
    int done = 0;

    if (!is_live(coll) || !occl_mpi_is_ready())
        return not_live(fn, coll);
    if (!errorcode || length < 0)
        return occl_mpi_fail(coll->m, user_comm(coll), fn, OCCL_ERR_ARG,
                             errorcode ? "the length %d is negative" : "errorcode is NULL", length);
    status = test_both(coll, &done, &which, &outcome);
    occl_mpi_req_drain();
    if (status != OCCL_OK)
        return occl_mpi_fail(coll->m, user_comm(coll), fn, status, "%s", occl_last_error());
    if (!done) {
        *errorcode = occl_mpi_class(OCCL_ERR_PENDING);
        occl_mpi_put_text(text, length, "not complete");
    } else if (outcome == OCCL_OK) {
        *errorcode = MPI_SUCCESS;
        occl_mpi_put_text(text, length, "");
    } else if (outcome == OCCL_ERR_CANCELLED) {
        *errorcode = MPI_SUCCESS;
        occl_mpi_put_text(text, length, which ? occl_coll_error(which) : "");
    } else {
        char whole[OCCL_TEXT] = "";

        *errorcode = occl_mpi_code(NULL, outcome, coll->fn, occl_coll_error(which));
        occl_mpi_thread_error(&(int){0}, whole, sizeof whole);
        occl_mpi_put_text(text, length, whole);
    }
    return MPI_SUCCESS;
}
OCCL_ALIAS(coll_get_error);

/* --- Fortran's handles -------------------------------------------------------------------------------------------- */

/* As MPI's own: no error, and valid at any time. One that was freed stays what it is, for the calls to refuse. */
MPI_Fint PMPIX_Occl_coll_c2f(MPIX_Occl_Coll coll) { return coll ? (MPI_Fint)coll->number : 0; }
OCCL_ALIAS(coll_c2f);

MPIX_Occl_Coll PMPIX_Occl_coll_f2c(MPI_Fint coll)
{
    shelf_t *shelf;
    struct MPIX_Occl_coll_s *slab;
    int64_t at = (int64_t)coll - 1;

    if (at < 0 || at >= (int64_t)SLAB * SHELF * SHELVES)
        return MPIX_OCCL_COLL_NULL;
    shelf = atomic_load_explicit(&shelves[at / SLAB / SHELF], memory_order_acquire);
    slab = shelf ? atomic_load_explicit(&shelf->slab[at / SLAB % SHELF], memory_order_acquire) : NULL;
    return slab ? slab + at % SLAB : MPIX_OCCL_COLL_NULL;
}
OCCL_ALIAS(coll_f2c);
