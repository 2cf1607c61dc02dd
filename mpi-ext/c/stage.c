/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Around a run: elements with gaps are packed before and unpacked after; contributions to a reduction by a function of the program,
 * which the run has only gathered, are combined after.
 *
 * The core calls before() and after() without a lock, once each for a run, and one run of an operation at a time is between the two;
 * so one stage serves all runs of a persistent operation. Packing is done by any thread; the program's function is called by the
 * program's own threads only. The last reference may go under the core's lock: what has to be given back to MPI then waits for a
 * thread that may call it.
 */
#include "internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/daemon.h"

typedef struct {
    int side, what;
    char *user;
    uint64_t at, bytes, count;
    occl_mpi_layout_t *layout; /* referenced; NULL: as they stand */
} piece_t;

struct occl_mpi_stage {
    occl_stage_t core; /* first */
    atomic_int refs;
    struct occl_mpi_stage *next; /* among the dead */
    occl_list_t in_all;
    piece_t *piece;
    size_t n, cap;
    uint64_t size[2];
    char *memory[2];
    /* fold */
    MPI_Op op;
    occl_mpi_op_t *o;          /* referenced */
    MPI_Datatype datatype, copy; /* copy: for when the program has freed it */
    occl_mpi_layout_t *layout; /* referenced; of a datatype that was made */
    int gaps;
    uint64_t each, skip, count, element;
    uint32_t upto;
    char *result, *room, *laid; /* laid: where in room an element with gaps lies */
};

static _Atomic(occl_mpi_stage_t *) dead;
static occl_lock_t lock = OCCL_LOCK_INIT;
static occl_list_t all = OCCL_LIST_INIT(all); /* under the lock */

static void destroy(occl_mpi_stage_t *s)
{
    occl_lock(&lock);
    occl_list_remove(&s->in_all);
    occl_unlock(&lock);
    for (size_t i = 0; i < s->n; i++)
        if (s->piece[i].layout)
            occl_mpi_layout_unref(s->piece[i].layout);
    if (s->copy != MPI_DATATYPE_NULL)
        PMPI_Type_free(&s->copy);
    if (s->layout)
        occl_mpi_layout_unref(s->layout);
    if (s->o)
        occl_mpi_op_unref(s->o);
    free(s->piece);
    free(s->memory[0]);
    free(s->memory[1]);
    free(s->room);
    free(s);
}

void occl_mpi_stage_unref(occl_mpi_stage_t *s)
{
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    s->next = atomic_load_explicit(&dead, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&dead, &s->next, s, memory_order_release, memory_order_relaxed))
        ;
}

void occl_mpi_stages_reap(void)
{
    occl_mpi_stage_t *s, *next;

    if (OCCL_LIKELY(!atomic_load_explicit(&dead, memory_order_relaxed)))
        return;
    for (s = atomic_exchange_explicit(&dead, NULL, memory_order_acquire); s; s = next) {
        next = s->next;
        destroy(s);
    }
}

/* The core is no more. What it still held, of operations that had failed or were never freed, nobody needs now. */
void occl_mpi_stages_fini(void)
{
    atomic_store_explicit(&dead, NULL, memory_order_relaxed);
    while (!occl_list_empty(&all))
        destroy(OCCL_CONTAINER(all.next, occl_mpi_stage_t, in_all));
}

/* --- what the core calls ------------------------------------------------------------------------------------------ */

static void before(occl_stage_t *core)
{
    occl_mpi_stage_t *s = (occl_mpi_stage_t *)core;

    for (size_t i = 0; i < s->n; i++) {
        piece_t *p = &s->piece[i];
        if (!(p->what & OCCL_STAGE_IN))
            continue;
        if (p->layout)
            occl_mpi_pack(p->layout, s->memory[p->side] + p->at, p->user, p->count, p->bytes, 0);
        else if (p->bytes)
            memcpy(s->memory[p->side] + p->at, p->user, p->bytes);
    }
}

/* In rank order, from the last one on: inout = in op inout. */
static occl_status_t fold(occl_mpi_stage_t *s)
{
    MPI_Datatype datatype = s->copy != MPI_DATATYPE_NULL && atomic_load_explicit(&s->layout->freed, memory_order_acquire) ? s->copy : s->datatype;
    const uint64_t bytes = s->count * s->element;

    if (!s->upto || !s->count)
        return OCCL_OK;
    for (uint32_t i = s->upto; i-- > 0;) {
        char *from = s->memory[OCCL_STAGE_RECV] + i * s->each + s->skip * s->element, *to = s->result;
        int first = i + 1 == s->upto;

        if (s->gaps) {
            occl_mpi_pack(s->layout, from, first ? s->result : s->laid, s->count, bytes, 1);
            from = s->laid;
        } else if (first) {
            memcpy(s->result, from, bytes);
        }
        for (uint64_t done = 0; done < s->count && !first;) {
            int now = s->count - done < INT_MAX ? (int)(s->count - done) : INT_MAX;

            if (s->o)
                s->o->fn(from, to, &now, &datatype);
            else if (PMPI_Reduce_local(from, to, now, datatype, s->op) != MPI_SUCCESS)
                return OCCL_ERR_OP;
            done += (uint64_t)now;
            from += (int64_t)now * (s->layout ? s->layout->extent : (int64_t)s->element);
            to += (int64_t)now * (s->layout ? s->layout->extent : (int64_t)s->element);
        }
    }
    return OCCL_OK;
}

static occl_status_t after(occl_stage_t *core, uint64_t received)
{
    occl_mpi_stage_t *s = (occl_mpi_stage_t *)core;

    for (size_t i = 0; i < s->n; i++) {
        piece_t *p = &s->piece[i];
        uint64_t bytes = received < p->bytes ? received : p->bytes;
        if (!(p->what & OCCL_STAGE_OUT))
            continue;
        if (p->layout)
            occl_mpi_pack(p->layout, s->memory[p->side] + p->at, p->user, p->count, bytes, 1);
        else if (bytes)
            memcpy(p->user, s->memory[p->side] + p->at, bytes);
    }
    return s->upto ? fold(s) : OCCL_OK;
}

static void retain(occl_stage_t *core)
{
    atomic_fetch_add_explicit(&((occl_mpi_stage_t *)core)->refs, 1, memory_order_relaxed);
}

static void release(occl_stage_t *core) { occl_mpi_stage_unref((occl_mpi_stage_t *)core); }

/* --- making one --------------------------------------------------------------------------------------------------- */

occl_mpi_stage_t *occl_mpi_stage_new(void)
{
    occl_mpi_stage_t *s;

    occl_mpi_stages_reap();
    s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    atomic_init(&s->refs, 1);
    s->core.retain = retain;
    s->core.release = release;
    s->copy = MPI_DATATYPE_NULL;
    occl_lock(&lock);
    occl_list_push_back(&all, &s->in_all);
    occl_unlock(&lock);
    return s;
}

occl_stage_t *occl_mpi_stage_core(occl_mpi_stage_t *s) { return &s->core; }

int occl_mpi_stage_add(occl_mpi_stage_t *s, int side, const void *user, const occl_mpi_type_t *t, uint64_t count, int what, uint64_t *at_p)
{
    uint64_t bytes = count * t->n * occl_host_type_bytes(t->id);
    piece_t *p;

    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        void *q = realloc(s->piece, cap * sizeof *s->piece);

        if (!q)
            return 0;
        s->piece = q;
        s->cap = cap;
    }
    p = &s->piece[s->n++];
    *p = (piece_t){side, what, (char *)(uintptr_t)user, s->size[side], bytes, count, t->gaps ? t->layout : NULL};
    if (p->layout)
        occl_mpi_layout_ref(p->layout);
    if (at_p)
        *at_p = s->size[side];
    s->size[side] += bytes;
    if (what & OCCL_STAGE_IN)
        s->core.before = before;
    if (what & OCCL_STAGE_OUT)
        s->core.after = after;
    return 1;
}

int occl_mpi_stage_has(const occl_mpi_stage_t *s, int side)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->piece[i].side == side)
            return 1;
    return 0;
}

void *occl_mpi_stage_memory(occl_mpi_stage_t *s, int side)
{
    void *p = NULL;

    if (!s->memory[side] && posix_memalign(&p, 64, s->size[side] ? s->size[side] : 1) == 0)
        s->memory[side] = p;
    return s->memory[side];
}

occl_status_t occl_mpi_stage_fold(occl_mpi_stage_t *s, MPI_Op op, occl_mpi_op_t *o, MPI_Datatype datatype, const occl_mpi_type_t *t,
                                  uint64_t bytes, uint32_t upto, uint64_t skip, uint64_t count, void *result, char *why, size_t len)
{
    s->op = op;
    s->o = o;
    if (o)
        atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    s->datatype = datatype;
    s->each = bytes;
    s->upto = upto;
    s->skip = skip;
    s->count = count;
    s->element = t->n * occl_host_type_bytes(t->id);
    s->result = result;
    s->gaps = t->gaps;
    if (t->layout) {
        s->layout = t->layout;
        occl_mpi_layout_ref(t->layout);
        if (PMPI_Type_dup(datatype, &s->copy) != MPI_SUCCESS) {
            s->copy = MPI_DATATYPE_NULL;
            snprintf(why, len, "MPI_Type_dup of the datatype failed");
            return OCCL_ERR_TYPE;
        }
    }
    if (t->gaps && count && upto) {
        /* One vector of them as they lie in memory */
        int64_t span = t->layout->extent * (int64_t)(count - 1), low = t->layout->low + (span < 0 ? span : 0);
        int64_t high = t->layout->high + (span > 0 ? span : 0);
        void *p = NULL;

        if (posix_memalign(&p, 64, (size_t)(high - low) + 64)) {
            snprintf(why, len, "no memory for a vector of %lld bytes", (long long)(high - low));
            return OCCL_ERR_RESOURCE;
        }
        s->room = p;
        s->laid = s->room - low;
        s->laid += (64 - ((uintptr_t)s->laid & 63)) & 63; /* aligned as malloc's would be */
        memset(s->room, 0, (size_t)(high - low) + 64);
    }
    if (upto) {
        s->core.after = after;
        s->core.application = 1;
    }
    return OCCL_OK;
}
