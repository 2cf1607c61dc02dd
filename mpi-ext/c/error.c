/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statuses of the core -> MPI error codes with texts.
 *
 * An MPI error code is a limited resource (MPICH has 8,192, and none is ever given back), while texts name ranks and values and
 * are all different. So each class has a few codes in turn, and the text of a code is set anew when it is used. Whoever holds a
 * code while RING more errors of its class happen reads a newer text from MPI_Error_string; MPIX_Occl_comm_get_error and its
 * kin always give the right one, whole (MPI cuts at MPI_MAX_ERROR_STRING).
 *
 * MPICH cannot put a text of ours on a code of MPI's own classes through MPI_Add_error_string (4.0.2 then shows an unrelated
 * message). Its own I/O part makes such codes with MPIR_Err_create_code, which is looked up at run time; without it the bare
 * class is returned.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RING = 4, OURS = MPIX_OCCL_ERR_CLASSES };
/* MPI_Error_string's buffer: 256 with Open MPI, which refuses a longer text */
enum { SHOWN = (MPI_MAX_ERROR_STRING < 256 ? MPI_MAX_ERROR_STRING : 256) - 16 };

/* In the order of MPIX_OCCL_ERR_* in mpix_occl.h */
static const occl_status_t our_status[OURS] = {
    OCCL_ERR_NOT_ATTACHED, OCCL_ERR_MISMATCH,    OCCL_ERR_TIMEOUT, OCCL_ERR_PEER_FAILED,
    OCCL_ERR_REVOKED,      OCCL_ERR_UNSUPPORTED, OCCL_ERR_DEVICE,  OCCL_ERR_RESOURCE,
};
static int our_class[OURS];
static int cancel_code; /* for MPI_Cancel */
static atomic_int made;
static occl_lock_t lock = OCCL_LOCK_INIT;

static struct {
    int code[RING];
    unsigned n;
    atomic_uint next;
} ring[OCCL_STATUS_COUNT];

#ifdef MPICH
static int (*mpich_create_code)(int, int, const char *, int, int, const char *, const char *, ...);
#endif

static const char cancel_text[] =
    "MPIX_Occl: a request cannot be cancelled by MPI_Cancel; a persistent operation can by MPIX_Occl_coll_cancel";

static __thread char thread_text[OCCL_TEXT];
static __thread int thread_code;
static __thread int thread_outcome;

static int our_index(occl_status_t status)
{
    for (int i = 0; i < OURS; i++)
        if (our_status[i] == status)
            return i;
    return -1;
}

static int class_of(occl_status_t status)
{
    int i = our_index(status);

    if (i >= 0)
        return our_class[i];
    switch (status) {
    case OCCL_OK: return MPI_SUCCESS;
    case OCCL_ERR_ARG: return MPI_ERR_ARG;
    case OCCL_ERR_REQUEST: return MPI_ERR_REQUEST;
    case OCCL_ERR_COUNT: return MPI_ERR_COUNT;
    case OCCL_ERR_TYPE: return MPI_ERR_TYPE;
    case OCCL_ERR_OP: return MPI_ERR_OP;
    case OCCL_ERR_ROOT: return MPI_ERR_ROOT;
    case OCCL_ERR_TAG: return MPI_ERR_TAG;
    case OCCL_ERR_BUFFER: return MPI_ERR_BUFFER;
    case OCCL_ERR_RANK: return MPI_ERR_RANK;
    case OCCL_ERR_TRUNCATE: return MPI_ERR_TRUNCATE;
    case OCCL_ERR_INFO: return MPI_ERR_INFO_VALUE;
    case OCCL_ERR_COMM: return MPI_ERR_COMM;
    case OCCL_ERR_PENDING: return MPI_ERR_PENDING;
    case OCCL_ERR_INTERN: return MPI_ERR_INTERN;
    default: return MPI_ERR_OTHER;
    }
}

/* The classes and codes, once; MPI must be up. The lock is held over calls of MPI, so this must not first happen inside a
 * callback of MPI's: there are none of ours before the first attach, which calls this. */
static void make_classes(void)
{
    if (atomic_load_explicit(&made, memory_order_acquire))
        return;
    occl_lock(&lock);
    if (!atomic_load_explicit(&made, memory_order_relaxed)) {
        for (int i = 0; i < OURS; i++) {
            char text[128];

            our_class[i] = MPI_ERR_OTHER;
            if (PMPI_Add_error_class(&our_class[i]) != MPI_SUCCESS)
                continue;
            snprintf(text, sizeof text, "MPIX_Occl: %s", occl_status_text(our_status[i]));
            PMPI_Add_error_string(our_class[i], text);
        }
        if (PMPI_Add_error_code(our_class[our_index(OCCL_ERR_UNSUPPORTED)], &cancel_code) == MPI_SUCCESS)
            PMPI_Add_error_string(cancel_code, cancel_text);
        else
            cancel_code = our_class[our_index(OCCL_ERR_UNSUPPORTED)];
        for (int status = OCCL_OK + 1; status < OCCL_STATUS_COUNT; status++) {
#ifdef MPICH
            if (our_index((occl_status_t)status) < 0)
                continue;
#endif
            for (unsigned i = 0; i < RING; i++)
                if (PMPI_Add_error_code(class_of((occl_status_t)status), &ring[status].code[ring[status].n]) == MPI_SUCCESS)
                    ring[status].n++;
        }
#ifdef MPICH
        *(void **)&mpich_create_code = dlsym(RTLD_DEFAULT, "MPIR_Err_create_code");
#endif
        atomic_store_explicit(&made, 1, memory_order_release);
    }
    occl_unlock(&lock);
}

int occl_mpi_class(occl_status_t status)
{
    make_classes();
    return class_of(status);
}

int PMPIX_Occl_error_class(int which)
{
    if (which < 0 || which >= OURS || (!atomic_load_explicit(&made, memory_order_acquire) && !occl_mpi_is_up()))
        return MPI_ERR_OTHER;
    make_classes();
    return our_class[which];
}
OCCL_ALIAS(error_class);

/* A code of this class that MPI_Error_string turns into the text (or into its beginning) */
static int make_code(occl_status_t status, const char *fn, const char *text)
{
    int mpi_class, code;
    char shown[SHOWN];

    if ((unsigned)status >= OCCL_STATUS_COUNT)
        status = OCCL_ERR_INTERN;
    code = mpi_class = occl_mpi_class(status);

#ifdef MPICH
    if (our_index(status) < 0) {
        /* "**other" is a key of its message table; the second text takes its place. It shows fn by itself. */
        if (mpich_create_code)
            code = mpich_create_code(MPI_SUCCESS, 0, fn, 0, mpi_class, "**other", "%s", text);
        return code;
    }
#endif
    if ((unsigned)status < OCCL_STATUS_COUNT && ring[status].n > 0)
        code = ring[status].code[atomic_fetch_add_explicit(&ring[status].next, 1, memory_order_relaxed) % ring[status].n];
    if (code != mpi_class) {
        int n = snprintf(shown, sizeof shown, "%s: %s", fn, text);

        if (n >= (int)sizeof shown)
            memcpy(shown + sizeof shown - 4, "...", 4);
        PMPI_Add_error_string(code, shown);
    }
    return code;
}

int occl_mpi_code(occl_mpi_comm_t *m, occl_status_t status, const char *fn, const char *text)
{
    int code;

    if (status == OCCL_OK)
        return MPI_SUCCESS;
    code = make_code(status, fn, text);
    snprintf(thread_text, sizeof thread_text, "%s: %s", fn, text);
    thread_code = code;
    if (m) {
        occl_lock(&m->lock);
        m->error = code;
        memcpy(m->error_text, thread_text, sizeof m->error_text);
        occl_unlock(&m->lock);
    }
    return code;
}

int occl_mpi_cancel_code(void)
{
    snprintf(thread_text, sizeof thread_text, "%s", cancel_text);
    return thread_code = cancel_code;
}

int occl_mpi_raise(occl_mpi_comm_t *m, int code)
{
    /* A communicator that was freed or detached meanwhile has no handler to call any more. */
    if (code != MPI_SUCCESS && m && atomic_load_explicit(&m->attached, memory_order_acquire))
        PMPI_Comm_call_errhandler(m->user, code);
    return code;
}

int occl_mpi_fail(occl_mpi_comm_t *m, MPI_Comm comm, const char *fn, occl_status_t status, const char *fmt, ...)
{
    char text[OCCL_TEXT - 64];
    va_list ap;
    int code;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!occl_mpi_is_up()) {
        snprintf(thread_text, sizeof thread_text, "%s: %s", fn, text);
        return thread_code = MPI_ERR_OTHER;
    }
    code = occl_mpi_code(m, status, fn, text);
    PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, code);
    return code;
}

int occl_mpi_fail_down(const char *fn)
{
    snprintf(thread_text, sizeof thread_text,
             "%s: MPI_Init was not called (a program that uses sessions only is not supported), or MPI_Finalize was", fn);
    return thread_code = MPI_ERR_OTHER;
}

void occl_mpi_put_text(char *to, int length, const char *text)
{
    if (to && length > 0)
        snprintf(to, (size_t)length, "%s", text);
}

void occl_mpi_thread_error(int *code_p, char *text, size_t len)
{
    *code_p = thread_code;
    snprintf(text, len, "%s", thread_text);
}

void occl_mpi_outcome_note(int code)
{
    if (thread_outcome == MPI_SUCCESS)
        thread_outcome = code;
}

int occl_mpi_outcome_take(void)
{
    int code = thread_outcome;

    thread_outcome = MPI_SUCCESS;
    return code;
}
