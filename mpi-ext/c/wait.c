/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait, test and their kin over any mix of our requests and MPI's.
 *
 * Ours are watched through the core, MPI's through MPI_Test* on a packed copy of the array. Nothing here blocks inside MPI while a
 * request of ours is to be waited for. A list of ours only may sleep (the core knows when there is news, and its wait hook lets
 * MPI's messages move); with one of MPI's in the list we poll, as MPI_Wait does.
 *
 * Errors of ours raise the handler of their communicator, here; MPI sees our requests succeed (occl_mpi_req_t.quiet).
 */
#include "internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* --- one request -------------------------------------------------------------------------------------------------- */

/* Whether a blocking call of MPI may be made although operations of ours are pending: only where MPI progresses them. */
static int may_block(void) { return !occl_mpi_is_ready() || occl_mpi.hook == OCCL_HOOK_OPAL; }

static void pause_a_while(unsigned spin)
{
    (void)occl_progress(occl_mpi.ctx);
    occl_mpi_req_drain();
    if (spin > 200)
        sched_yield();
}

int PMPIX_Occl_wait(MPI_Request *request, MPI_Status *status)
{
    static const char fn[] = "MPIX_Occl_wait";
    occl_mpi_req_t *q;
    int code, flag = 0;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!request)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_REQUEST, "request is NULL");
    q = occl_mpi_req_find(*request);
    if (!q) {
        if (*request == MPI_REQUEST_NULL || may_block())
            return PMPI_Wait(request, status);
        for (unsigned spin = 0;; spin++) {
            code = PMPI_Test(request, &flag, status);
            if (flag || code != MPI_SUCCESS)
                return code;
            pause_a_while(spin);
        }
    }
    if (q->run)
        occl_run_wait(q->run);
    if (q->twin)
        occl_run_wait(q->twin);
    occl_mpi_req_drain();
    code = occl_mpi_raise(q->m, occl_mpi_req_finish(q, request, status));
    occl_mpi_req_unref(q);
    return code;
}
OCCL_ALIAS(wait);

int PMPIX_Occl_test(MPI_Request *request, int *flag, MPI_Status *status)
{
    static const char fn[] = "MPIX_Occl_test";
    occl_mpi_req_t *q;
    int code = MPI_SUCCESS;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!request || !flag)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, request ? OCCL_ERR_ARG : OCCL_ERR_REQUEST, "%s is NULL",
                             request ? "flag" : "request");
    q = occl_mpi_req_find(*request);
    if (!q) {
        if (occl_mpi_is_ready() && occl_mpi.hook != OCCL_HOOK_OPAL)
            pause_a_while(0);
        return PMPI_Test(request, flag, status);
    }
    *flag = occl_mpi_req_test(q);
    occl_mpi_req_drain();
    if (*flag)
        code = occl_mpi_raise(q->m, occl_mpi_req_finish(q, request, status));
    else
        occl_mpi_poke_sometimes();
    occl_mpi_req_unref(q);
    return code;
}
OCCL_ALIAS(test);

/* --- several ------------------------------------------------------------------------------------------------------ */

/* A result has nowhere to go: said before any request is touched. */
static int missing(const char *fn, const void *place, const char *name)
{
    if (place || !occl_mpi_is_up())
        return MPI_SUCCESS;
    return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "%s is NULL", name);
}
/* NULL is Open MPI's MPI_STATUSES_IGNORE, and a mistake with MPICH's. */
static int no_statuses(const char *fn, int count, const MPI_Status *statuses)
{
    return count > 0 && statuses != MPI_STATUSES_IGNORE ? missing(fn, statuses, "array_of_statuses") : MPI_SUCCESS;
}

enum { FEW = 16 };

/* An array of requests taken apart */
typedef struct {
    int n;
    MPI_Request *all;
    occl_mpi_req_t **ours;  /* [n]; NULL where it is not ours */
    int nours;
    int nmpi;
    MPI_Request *mpi;       /* [nmpi] the others that are not null, packed */
    int *place;             /* [nmpi] where they stand in all */
    /* waiting */
    int mpi_done, mpi_code; /* MPI_Testall has completed them, or failed */
    int mpi_index, mpi_count;
    int *mpi_indices;
    MPI_Status *mpi_statuses;
    int found;
    occl_mpi_req_t *few_ours[FEW];
    MPI_Request few_mpi[FEW];
    int few_place[FEW], few_indices[FEW];
    MPI_Status few_statuses[FEW];
    void *heap;
} mix_t;

/* 0, or the error code to return */
static int mix_begin(mix_t *x, const char *fn, int n, MPI_Request *all)
{
    x->heap = NULL;
    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (n < 0 || (n > 0 && !all))
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, n < 0 ? OCCL_ERR_COUNT : OCCL_ERR_REQUEST,
                             n < 0 ? "count is %d" : "array_of_requests is NULL", n);
    x->n = n;
    x->all = all;
    x->nours = x->nmpi = 0;
    x->mpi_done = x->mpi_count = 0;
    x->mpi_code = MPI_SUCCESS;
    x->mpi_index = MPI_UNDEFINED;
    if (n <= FEW) {
        x->ours = x->few_ours;
        x->mpi = x->few_mpi;
        x->place = x->few_place;
        x->mpi_indices = x->few_indices;
        x->mpi_statuses = x->few_statuses;
    } else {
        size_t k = (size_t)n;
        char *p = malloc(k * (sizeof *x->ours + sizeof *x->mpi + sizeof *x->mpi_statuses + 2 * sizeof(int)));

        if (!p)
            return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_RESOURCE, "no memory for %d requests", n);
        /* Widest first, so that each part is aligned. */
        x->heap = p;
        x->ours = (void *)p;
        x->mpi_statuses = (void *)(p += k * sizeof *x->ours);
        x->mpi = (void *)(p += k * sizeof *x->mpi_statuses);
        x->place = (void *)(p += k * sizeof *x->mpi);
        x->mpi_indices = x->place + k;
    }
    for (int i = 0; i < n; i++) {
        x->ours[i] = occl_mpi_req_find(all[i]);
        if (x->ours[i]) {
            x->nours++;
        } else if (all[i] != MPI_REQUEST_NULL) {
            x->mpi[x->nmpi] = all[i];
            x->place[x->nmpi++] = i;
        }
    }
    return MPI_SUCCESS;
}

static void mix_end(mix_t *x)
{
    for (int i = 0; i < x->n; i++)
        if (x->ours[i])
            occl_mpi_req_unref(x->ours[i]);
    free(x->heap);
}

/* Puts MPI's requests back as its calls have left them. */
static void put_back(mix_t *x)
{
    for (int k = 0; k < x->nmpi; k++)
        x->all[x->place[k]] = x->mpi[k];
}

static int ours_over(const mix_t *x, int i) { return x->ours[i] && occl_mpi_req_is_over(x->ours[i]); }

/* Until poll says so */
static void mix_wait(mix_t *x, int (*poll)(void *))
{
    if (x->nmpi == 0 && occl_mpi_is_ready()) {
        occl_wait_until(occl_mpi.ctx, poll, x);
        return;
    }
    for (unsigned spin = 0; !poll(x); spin++)
        pause_a_while(spin);
}

/* For tests: one pass, and now and then a pass of MPI's */
static void mix_pass(mix_t *x)
{
    if (!occl_mpi_is_ready())
        return;
    (void)occl_progress(occl_mpi.ctx);
    occl_mpi_req_drain();
    if (x->nmpi == 0)
        occl_mpi_poke_sometimes();
}

/* Completes one of ours; its outcome goes into the status (which may be MPI_STATUS_IGNORE) and is returned. */
static int take(mix_t *x, int i, MPI_Status *status)
{
    int code = occl_mpi_req_finish(x->ours[i], &x->all[i], status);

    if (status != MPI_STATUS_IGNORE)
        status->MPI_ERROR = code;
    return code;
}

static MPI_Status *status_at(MPI_Status *statuses, int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

/* MPI_ERR_IN_STATUS, raised where the first of ours failed (MPI has raised its own) */
static int in_status(const occl_mpi_comm_t *failed)
{
    if (failed && atomic_load_explicit(&failed->attached, memory_order_acquire))
        PMPI_Comm_call_errhandler(failed->user, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static int poll_all(void *state)
{
    mix_t *x = state;

    if (x->nmpi > 0 && !x->mpi_done && x->mpi_code == MPI_SUCCESS)
        x->mpi_code = PMPI_Testall(x->nmpi, x->mpi, &x->mpi_done, x->mpi_statuses);
    for (int i = 0; i < x->n; i++)
        if (x->ours[i] && !occl_mpi_req_is_over(x->ours[i]))
            return 0;
    return x->nmpi == 0 || x->mpi_done || x->mpi_code != MPI_SUCCESS;
}

/* Everything is complete, or MPI's part has failed */
static int finish_all(mix_t *x, MPI_Status *statuses)
{
    const occl_mpi_comm_t *failed = NULL;

    put_back(x);
    if (statuses != MPI_STATUSES_IGNORE) {
        /* Null requests get MPI's empty status. */
        for (int i = 0; i < x->n; i++) {
            MPI_Request none = MPI_REQUEST_NULL;

            if (!x->ours[i] && x->all[i] == MPI_REQUEST_NULL) {
                PMPI_Wait(&none, &statuses[i]);
                statuses[i].MPI_ERROR = MPI_SUCCESS;
            }
        }
        for (int k = 0; k < x->nmpi; k++) {
            statuses[x->place[k]] = x->mpi_statuses[k];
            if (x->mpi_code == MPI_SUCCESS)
                statuses[x->place[k]].MPI_ERROR = MPI_SUCCESS;
        }
    }
    for (int i = 0; i < x->n; i++) {
        if (x->ours[i] && take(x, i, status_at(statuses, i)) != MPI_SUCCESS && !failed)
            failed = x->ours[i]->m;
    }
    return failed ? in_status(failed) : x->mpi_code;
}

int PMPIX_Occl_waitall(int count, MPI_Request array_of_requests[], MPI_Status array_of_statuses[])
{
    static const char fn[] = "MPIX_Occl_waitall";
    mix_t x;
    int rc;

    if ((rc = no_statuses(fn, count, array_of_statuses)) != MPI_SUCCESS ||
        (rc = mix_begin(&x, fn, count, array_of_requests)) != MPI_SUCCESS)
        return rc;
    if (x.nours == 0 && may_block()) {
        rc = PMPI_Waitall(count, array_of_requests, array_of_statuses);
    } else {
        mix_wait(&x, poll_all);
        rc = finish_all(&x, array_of_statuses);
    }
    mix_end(&x);
    return rc;
}
OCCL_ALIAS(waitall);

int PMPIX_Occl_testall(int count, MPI_Request array_of_requests[], int *flag, MPI_Status array_of_statuses[])
{
    static const char fn[] = "MPIX_Occl_testall";
    mix_t x;
    int rc;

    if ((rc = missing(fn, flag, "flag")) != MPI_SUCCESS ||
        (rc = no_statuses(fn, count, array_of_statuses)) != MPI_SUCCESS ||
        (rc = mix_begin(&x, fn, count, array_of_requests)) != MPI_SUCCESS)
        return rc;
    mix_pass(&x);
    if (x.nours == 0) {
        rc = PMPI_Testall(count, array_of_requests, flag, array_of_statuses);
    } else {
        int ready = 1;

        /* All or none: MPI's may be completed only when all of ours can be. */
        for (int i = 0; i < count && ready; i++)
            ready = !x.ours[i] || occl_mpi_req_is_over(x.ours[i]);
        if (ready)
            ready = poll_all(&x);
        else if (x.nmpi > 0)
            occl_mpi_poke_sometimes();
        *flag = ready;
        if (ready)
            rc = finish_all(&x, array_of_statuses);
        else
            put_back(&x);
    }
    mix_end(&x);
    return rc;
}
OCCL_ALIAS(testall);

/* --- any ---------------------------------------------------------------------------------------------------------- */

/* True when one is complete (found >= 0 ours, or mpi_index), or none is active (both undefined), or MPI reports an error. */
static int poll_any(void *state)
{
    mix_t *x = state;
    int flag = 0;

    x->found = -1;
    for (int i = 0; i < x->n; i++) {
        if (ours_over(x, i)) {
            x->found = i;
            return 1;
        }
    }
    if (x->nmpi > 0) {
        x->mpi_code = PMPI_Testany(x->nmpi, x->mpi, &x->mpi_index, &flag, &x->mpi_statuses[0]);
        if (x->mpi_code != MPI_SUCCESS)
            return 1;
        if (flag && x->mpi_index != MPI_UNDEFINED)
            return 1;
    }
    /* MPI's that are left are inactive persistent ones: they do not count. */
    return x->nours == 0 && (x->nmpi == 0 || flag);
}

static int finish_any(mix_t *x, int *index, MPI_Status *status)
{
    MPI_Request none = MPI_REQUEST_NULL;
    int rc;

    put_back(x);
    if (x->found >= 0) {
        *index = x->found;
        rc = occl_mpi_req_finish(x->ours[x->found], &x->all[x->found], status);
        return occl_mpi_raise(x->ours[x->found]->m, rc);
    }
    if (x->nmpi > 0 && x->mpi_index != MPI_UNDEFINED) {
        *index = x->place[x->mpi_index];
        if (status != MPI_STATUS_IGNORE)
            *status = x->mpi_statuses[0];
        return x->mpi_code;
    }
    *index = MPI_UNDEFINED;
    if (x->mpi_code != MPI_SUCCESS)
        return x->mpi_code;
    return PMPI_Wait(&none, status); /* the empty status */
}

int PMPIX_Occl_waitany(int count, MPI_Request array_of_requests[], int *index, MPI_Status *status)
{
    static const char fn[] = "MPIX_Occl_waitany";
    mix_t x;
    int rc;

    if ((rc = missing(fn, index, "index")) != MPI_SUCCESS ||
        (rc = mix_begin(&x, fn, count, array_of_requests)) != MPI_SUCCESS)
        return rc;
    if (x.nours == 0 && may_block()) {
        rc = PMPI_Waitany(count, array_of_requests, index, status);
    } else {
        mix_wait(&x, poll_any);
        rc = finish_any(&x, index, status);
    }
    mix_end(&x);
    return rc;
}
OCCL_ALIAS(waitany);

int PMPIX_Occl_testany(int count, MPI_Request array_of_requests[], int *index, int *flag, MPI_Status *status)
{
    static const char fn[] = "MPIX_Occl_testany";
    mix_t x;
    int rc;

    if ((rc = missing(fn, index, "index")) != MPI_SUCCESS || (rc = missing(fn, flag, "flag")) != MPI_SUCCESS ||
        (rc = mix_begin(&x, fn, count, array_of_requests)) != MPI_SUCCESS)
        return rc;
    mix_pass(&x);
    if (x.nours == 0) {
        rc = PMPI_Testany(count, array_of_requests, index, flag, status);
    } else {
        *flag = poll_any(&x);
        if (*flag)
            rc = finish_any(&x, index, status);
        else {
            *index = MPI_UNDEFINED;
            put_back(&x);
        }
    }
    mix_end(&x);
    return rc;
}
OCCL_ALIAS(testany);

/* --- some --------------------------------------------------------------------------------------------------------- */

static int poll_some(void *state)
{
    mix_t *x = state;

    x->found = 0;
    for (int i = 0; i < x->n; i++)
        x->found += ours_over(x, i);
    if (x->nmpi > 0) {
        x->mpi_code = PMPI_Testsome(x->nmpi, x->mpi, &x->mpi_count, x->mpi_indices, x->mpi_statuses);
        if (x->mpi_code != MPI_SUCCESS)
            return 1;
        if (x->mpi_count != MPI_UNDEFINED && x->mpi_count > 0)
            return 1;
    }
    return x->found > 0 || (x->nours == 0 && (x->nmpi == 0 || x->mpi_count == MPI_UNDEFINED));
}

static int finish_some(mix_t *x, int *outcount, int indices[], MPI_Status *statuses)
{
    const occl_mpi_comm_t *failed = NULL;
    int n = 0, from_mpi = x->mpi_count == MPI_UNDEFINED ? 0 : x->mpi_count;

    put_back(x);
    for (int k = 0; k < from_mpi; k++, n++) {
        indices[n] = x->place[x->mpi_indices[k]];
        if (statuses != MPI_STATUSES_IGNORE) {
            statuses[n] = x->mpi_statuses[k];
            if (x->mpi_code == MPI_SUCCESS)
                statuses[n].MPI_ERROR = MPI_SUCCESS;
        }
    }
    for (int i = 0; i < x->n; i++) {
        if (!ours_over(x, i))
            continue;
        if (take(x, i, status_at(statuses, n)) != MPI_SUCCESS && !failed)
            failed = x->ours[i]->m;
        indices[n++] = i;
    }
    *outcount = n;
    if (n == 0 && x->nours == 0)
        *outcount = MPI_UNDEFINED;
    return failed ? in_status(failed) : x->mpi_code;
}

int PMPIX_Occl_waitsome(int incount, MPI_Request array_of_requests[], int *outcount, int array_of_indices[],
                        MPI_Status array_of_statuses[])
{
    static const char fn[] = "MPIX_Occl_waitsome";
    mix_t x;
    int rc;

    if ((rc = missing(fn, outcount, "outcount")) != MPI_SUCCESS ||
        (rc = (incount > 0 ? missing(fn, array_of_indices, "array_of_indices") : MPI_SUCCESS)) != MPI_SUCCESS ||
        (rc = no_statuses(fn, incount, array_of_statuses)) != MPI_SUCCESS ||
        (rc = mix_begin(&x, fn, incount, array_of_requests)) != MPI_SUCCESS)
        return rc;
    if (x.nours == 0 && may_block()) {
        rc = PMPI_Waitsome(incount, array_of_requests, outcount, array_of_indices, array_of_statuses);
    } else {
        mix_wait(&x, poll_some);
        rc = finish_some(&x, outcount, array_of_indices, array_of_statuses);
    }
    mix_end(&x);
    return rc;
}
OCCL_ALIAS(waitsome);

int PMPIX_Occl_testsome(int incount, MPI_Request array_of_requests[], int *outcount, int array_of_indices[],
                        MPI_Status array_of_statuses[])
{
    static const char fn[] = "MPIX_Occl_testsome";
    mix_t x;
    int rc;

    if ((rc = missing(fn, outcount, "outcount")) != MPI_SUCCESS ||
        (rc = (incount > 0 ? missing(fn, array_of_indices, "array_of_indices") : MPI_SUCCESS)) != MPI_SUCCESS ||
        (rc = no_statuses(fn, incount, array_of_statuses)) != MPI_SUCCESS ||
        (rc = mix_begin(&x, fn, incount, array_of_requests)) != MPI_SUCCESS)
        return rc;
    mix_pass(&x);
    if (x.nours == 0) {
        rc = PMPI_Testsome(incount, array_of_requests, outcount, array_of_indices, array_of_statuses);
    } else {
        (void)poll_some(&x);
        rc = finish_some(&x, outcount, array_of_indices, array_of_statuses);
    }
    mix_end(&x);
    return rc;
}
OCCL_ALIAS(testsome);

/* --- continuations, outcomes -------------------------------------------------------------------------------------- */

int PMPIX_Occl_continue(MPI_Request *request, MPIX_Occl_Continue_function *fn_cont, void *state)
{
    static const char fn[] = "MPIX_Occl_continue";
    occl_mpi_req_t *q;
    int rc;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!request || !fn_cont)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, request ? OCCL_ERR_ARG : OCCL_ERR_REQUEST, "%s is NULL", request ? "fn" : "request");
    q = occl_mpi_req_find(*request);
    if (!q)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_REQUEST,
                             *request == MPI_REQUEST_NULL ? "the request is MPI_REQUEST_NULL" : "the request is not one of this library");
    /* MPI lets go of it; the run keeps it alive until it is over. */
    rc = PMPI_Request_free(request);
    if (rc == MPI_SUCCESS)
        occl_mpi_req_continue(q, fn_cont, state);
    occl_mpi_req_unref(q);
    occl_mpi_req_drain();
    return rc;
}
OCCL_ALIAS(continue);

int PMPIX_Occl_request_get_error(MPI_Request request, int *errorcode)
{
    static const char fn[] = "MPIX_Occl_request_get_error";
    occl_mpi_req_t *q;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (!errorcode)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_ARG, "errorcode is NULL");
    if (request == MPI_REQUEST_NULL) {
        *errorcode = occl_mpi_outcome_take();
        return MPI_SUCCESS;
    }
    q = occl_mpi_req_find(request);
    if (!q)
        return occl_mpi_fail(NULL, MPI_COMM_NULL, fn, OCCL_ERR_REQUEST, "the request is not one of this library");
    (void)occl_mpi_req_test(q);
    occl_mpi_req_drain();
    if (occl_mpi_req_is_over(q)) {
        occl_mpi_req_tell(q); /* MPI_Request_get_status makes no progress in MPICH: it would not find out by itself */
        *errorcode = occl_mpi_req_outcome(q);
    } else {
        *errorcode = occl_mpi_class(OCCL_ERR_PENDING);
    }
    occl_mpi_req_unref(q);
    return MPI_SUCCESS;
}
OCCL_ALIAS(request_get_error);
