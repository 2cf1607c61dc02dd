/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Generalized requests: what makes MPI_Wait work on our operations.
 *
 * A request of MPI's is complete for MPI when MPI_Grequest_complete was called, which only a thread that may call MPI can do:
 *
 *   who finds the run over             at MPI_THREAD_MULTIPLE       below
 *   a thread in a call of ours         completes it                 puts it into the list `done`
 *   MPI's progress (hook, poll)        completes it                 the same
 *   the helper thread                  completes it                 the same
 *
 * and the list is emptied by the next thread inside a call of MPI (hook, poll) or of ours. One rule for all below MULTIPLE is
 * simpler than telling threads apart, and costs a compare-and-swap.
 */
#include "internal.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

_Atomic(occl_mpi_req_t *) occl_mpi_done;

/* --- the table: MPI_Request -> ours ------------------------------------------------------------------------------- */

enum { BUCKETS = 4096, STRIPES = 64 };
static occl_mpi_req_t *bucket[BUCKETS];
static occl_lock_t stripe[STRIPES];
static atomic_int table_made;
static occl_lock_t table_lock = OCCL_LOCK_INIT;

static void table_init(void)
{
    if (OCCL_LIKELY(atomic_load_explicit(&table_made, memory_order_acquire)))
        return;
    occl_lock(&table_lock);
    if (!atomic_load_explicit(&table_made, memory_order_relaxed)) {
        for (int i = 0; i < STRIPES; i++)
            occl_lock_init(&stripe[i]);
        atomic_store_explicit(&table_made, 1, memory_order_release);
    }
    occl_unlock(&table_lock);
}

static uint64_t request_key(MPI_Request request)
{
    uint64_t key = 0;

    memcpy(&key, &request, sizeof request);
    return key;
}

static size_t bucket_of(uint64_t key) { return (size_t)occl_hash_mix(key) & (BUCKETS - 1); }

static void table_put(occl_mpi_req_t *q)
{
    size_t b = bucket_of(q->key);

    occl_lock(&stripe[b % STRIPES]);
    q->next = bucket[b];
    bucket[b] = q;
    occl_unlock(&stripe[b % STRIPES]);
}

static void table_remove(occl_mpi_req_t *q)
{
    size_t b = bucket_of(q->key);

    occl_lock(&stripe[b % STRIPES]);
    for (occl_mpi_req_t **at = &bucket[b]; *at; at = &(*at)->next) {
        if (*at == q) {
            *at = q->next;
            break;
        }
    }
    occl_unlock(&stripe[b % STRIPES]);
}

occl_mpi_req_t *occl_mpi_req_find(MPI_Request request)
{
    uint64_t key = request_key(request);
    size_t b = bucket_of(key);
    occl_mpi_req_t *q;

    if (request == MPI_REQUEST_NULL || !atomic_load_explicit(&table_made, memory_order_acquire))
        return NULL;
    occl_lock(&stripe[b % STRIPES]);
    for (q = bucket[b]; q && q->key != key; q = q->next)
        ;
    if (q)
        atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
    occl_unlock(&stripe[b % STRIPES]);
    return q;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Freed ones are kept for the next start, a few a thread's worth: a start then costs no malloc. */
enum { SPARE = 256 };
static occl_mpi_req_t *spare;
static int nspare;
static occl_lock_t spare_lock = OCCL_LOCK_INIT;

occl_mpi_req_t *occl_mpi_req_alloc(occl_mpi_comm_t *m, const char *fn)
{
    occl_mpi_req_t *q;

    occl_mpi_req_reap();
    occl_lock(&spare_lock);
    if ((q = spare) != NULL) {
        spare = q->next;
        nspare--;
    }
    occl_unlock(&spare_lock);
    if (!q && !(q = malloc(sizeof *q)))
        return NULL;
    memset(q, 0, sizeof *q);
    q->m = m;
    q->fn = fn;
    q->source = q->tag = MPI_UNDEFINED;
    atomic_init(&q->code, -1);
    occl_mpi_comm_ref(m);
    return q;
}

static void req_free(occl_mpi_req_t *q)
{
    /* After MPI_Finalize the core is gone, and its runs with it. */
    if (q->run && occl_mpi_is_ready())
        occl_run_release(q->run);
    if (q->twin && occl_mpi_is_ready())
        occl_run_release(q->twin);
    if (occl_mpi_is_ready())
        occl_mpi_comm_unref(q->m);
    occl_lock(&spare_lock);
    if (nspare < SPARE) {
        q->next = spare;
        spare = q;
        nspare++;
        q = NULL;
    }
    occl_unlock(&spare_lock);
    free(q);
}

void occl_mpi_req_drop(occl_mpi_req_t *q)
{
    q->run = q->twin = NULL;
    req_free(q);
}

void occl_mpi_req_unref(occl_mpi_req_t *q)
{
    if (atomic_fetch_sub_explicit(&q->refs, 1, memory_order_acq_rel) == 1)
        req_free(q);
}

/*
 * What MPI has let go of, to be freed by the next thread in a call of ours. Freeing drops the run, and whoever takes the core's
 * lock for that also delivers callbacks of other runs, which complete requests: an MPI call from inside MPI, which at
 * MPI_THREAD_MULTIPLE MPICH answers with a failed assertion (it holds its global lock over the free function).
 */
static _Atomic(occl_mpi_req_t *) buried;

static void bury(occl_mpi_req_t *q)
{
    occl_mpi_req_t *head = atomic_load_explicit(&buried, memory_order_relaxed);

    do
        q->next = head;
    while (!atomic_compare_exchange_weak_explicit(&buried, &head, q, memory_order_release, memory_order_relaxed));
}

void occl_mpi_req_reap(void)
{
    occl_mpi_req_t *q, *next;

    if (OCCL_LIKELY(atomic_load_explicit(&buried, memory_order_relaxed) == NULL))
        return;
    for (q = atomic_exchange_explicit(&buried, NULL, memory_order_acquire); q; q = next) {
        next = q->next;
        req_free(q);
    }
}

/* The one that has failed, if one has. */
static const occl_run_t *telling_run(const occl_mpi_req_t *q)
{
    return q->twin && (!q->run || occl_run_status(q->run) == OCCL_OK) ? q->twin : q->run;
}

static occl_status_t req_status(const occl_mpi_req_t *q)
{
    if (!q->run && !q->twin)
        return OCCL_OK;
    return q->ended ? q->how : occl_run_status(telling_run(q));
}

int occl_mpi_req_outcome(occl_mpi_req_t *q)
{
    int code = atomic_load_explicit(&q->code, memory_order_acquire), none = -1;
    occl_status_t status;

    if (code >= 0)
        return code;
    status = req_status(q);
    if (status == OCCL_OK || status == OCCL_ERR_CANCELLED)
        code = MPI_SUCCESS;
    else
        code = occl_mpi_code(q->m, status, q->fn,
                             q->ended ? "MPI_Finalize was called before it was complete" : occl_run_error(telling_run(q)));
    /* Two threads may ask at a time: the first answer stays. */
    if (!atomic_compare_exchange_strong(&q->code, &none, code))
        code = none;
    return code;
}

/* --- completion --------------------------------------------------------------------------------------------------- */

static void call_continuation(occl_mpi_req_t *q)
{
    q->fn_cont(occl_mpi_req_outcome(q), q->cont_state);
}

/* The run is over and this thread may call MPI. Safe to be called by several: the first one tells MPI. Whoever sets the
 * second of OVER and CONT calls the continuation. */
static void complete(occl_mpi_req_t *q)
{
    if (!(atomic_fetch_or(&q->state, OCCL_REQ_COMPLETE) & OCCL_REQ_COMPLETE)) {
        /* The error's code and text now, so that the query function need not call MPI for them from inside MPI. */
        (void)occl_mpi_req_outcome(q);
        PMPI_Grequest_complete(q->handle);
    }
    if ((atomic_fetch_or(&q->state, OCCL_REQ_OVER) & (OCCL_REQ_OVER | OCCL_REQ_CONT)) == OCCL_REQ_CONT)
        call_continuation(q);
}

void occl_mpi_req_tell(occl_mpi_req_t *q) { complete(q); }

/* The core's callback: any thread, no lock held */
static void on_over(void *state, occl_run_t *run)
{
    occl_mpi_req_t *q = state, *head;

    if (!occl_mpi_is_ready()) {
        q->ended = 1;
        if (q->how == OCCL_OK)
            q->how = occl_run_status(run);
    }
    if (atomic_fetch_sub_explicit(&q->left, 1, memory_order_acq_rel) != 1)
        return; /* the other one goes on */
    if (occl_mpi.level == MPI_THREAD_MULTIPLE) {
        complete(q);
        occl_mpi_req_unref(q);
        return;
    }
    head = atomic_load_explicit(&occl_mpi_done, memory_order_relaxed);
    do
        q->next_done = head;
    while (!atomic_compare_exchange_weak_explicit(&occl_mpi_done, &head, q, memory_order_release, memory_order_relaxed));
}

void occl_mpi_req_drain_slow(void)
{
    occl_mpi_req_t *q = atomic_exchange_explicit(&occl_mpi_done, NULL, memory_order_acquire), *next, *in_order = NULL;

    /* The list is last in, first out; continuations are called in the order of completion. */
    for (; q; q = next) {
        next = q->next_done;
        q->next_done = in_order;
        in_order = q;
    }
    for (q = in_order; q; q = next) {
        next = q->next_done;
        complete(q);
        occl_mpi_req_unref(q);
    }
}

/* --- what MPI calls ----------------------------------------------------------------------------------------------- */

static int query_fn(void *state, MPI_Status *status)
{
    occl_mpi_req_t *q = state;
    int code = MPI_SUCCESS;

    status->MPI_SOURCE = q->source;
    status->MPI_TAG = q->tag;
    PMPI_Status_set_cancelled(status, occl_mpi_req_is_over(q) && req_status(q) == OCCL_ERR_CANCELLED);
    PMPI_Status_set_elements_x(status, MPI_BYTE, q->run && !q->ended ? (MPI_Count)occl_run_bytes(q->run) : 0);
    code = occl_mpi_req_outcome(q);
    if (atomic_load_explicit(&q->quiet, memory_order_relaxed))
        return MPI_SUCCESS;
    occl_mpi_outcome_note(code);
    return code;
}

/* MPICH calls this from MPI_Request_free although the run is not over. */
static int free_fn(void *state)
{
    occl_mpi_req_t *q = state;

    table_remove(q);
    if (atomic_fetch_sub_explicit(&q->refs, 1, memory_order_acq_rel) == 1)
        bury(q);
    return MPI_SUCCESS;
}

static int cancel_fn(void *state, int complete)
{
    (void)state;
    return complete ? MPI_SUCCESS : occl_mpi_cancel_code();
}

#ifdef OCCL_HAVE_GREQUEST_POLL
static int poll_fn(void *state, MPI_Status *status)
{
    (void)state, (void)status;
    if (occl_mpi_is_ready()) {
        (void)occl_progress(occl_mpi.ctx);
        occl_mpi_req_drain();
    }
    return MPI_SUCCESS;
}

/* MPI_Waitall calls this for our requests one after the other and relies on them being complete when it returns. It must let
 * MPI's own messages move meanwhile: what we wait for may need a message that the program waits for in the same call. */
static int wait_fn(int count, void **states, double timeout, MPI_Status *status)
{
    (void)timeout, (void)status;
    for (int i = 0; i < count; i++) {
        occl_mpi_req_t *q = states[i];

        for (unsigned spin = 0; !(atomic_load_explicit(&q->state, memory_order_acquire) & OCCL_REQ_COMPLETE); spin++) {
            (void)poll_fn(NULL, NULL);
            if (spin > 100) {
                occl_mpi_poke();
                sched_yield();
            }
        }
    }
    return MPI_SUCCESS;
}
#endif

int occl_mpi_req_publish(occl_mpi_req_t *q, occl_run_t *run, occl_run_t *twin, MPI_Request *request)
{
    int rc;

    table_init();
    q->run = run;
    q->twin = twin;
    atomic_store_explicit(&q->left, (run != NULL) + (twin != NULL), memory_order_relaxed);
    atomic_store_explicit(&q->refs, 3, memory_order_relaxed); /* MPI's, the callback's, ours until the end of this function */
#ifdef OCCL_HAVE_GREQUEST_POLL
    rc = PMPIX_Grequest_start(query_fn, free_fn, cancel_fn, poll_fn, wait_fn, q, &q->handle);
#else
    rc = PMPI_Grequest_start(query_fn, free_fn, cancel_fn, q, &q->handle);
#endif
    if (rc != MPI_SUCCESS) {
        req_free(q); /* the run goes on without anybody to wait for it */
        return rc;
    }
    q->key = request_key(q->handle);
    table_put(q);
    *request = q->handle;
    if (run)
        occl_run_set_callback(run, on_over, q);
    if (twin)
        occl_run_set_callback(twin, on_over, q);
    if (!run && !twin) {
        complete(q);
        occl_mpi_req_unref(q);
    }
    occl_mpi_req_drain();
    occl_mpi_req_unref(q);
    return MPI_SUCCESS;
}

int occl_mpi_req_finish(occl_mpi_req_t *q, MPI_Request *request, MPI_Status *status)
{
    int code;

    complete(q);
    atomic_store_explicit(&q->quiet, 1, memory_order_relaxed);
    code = occl_mpi_req_outcome(q);
    PMPI_Wait(request, status);
    return code;
}

void occl_mpi_req_continue(occl_mpi_req_t *q, MPIX_Occl_Continue_function *fn, void *state)
{
    q->fn_cont = fn;
    q->cont_state = state;
    if ((atomic_fetch_or(&q->state, OCCL_REQ_CONT) & (OCCL_REQ_OVER | OCCL_REQ_CONT)) == OCCL_REQ_OVER)
        call_continuation(q);
}
