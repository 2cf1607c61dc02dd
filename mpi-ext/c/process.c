/* SPDX-License-Identifier: BSD-3-Clause */
/* The process: made at the first attach, ended in MPI_Finalize. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "internal.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/log.h"

occl_mpi_t occl_mpi = {
    .lock = OCCL_LOCK_INIT,
    .attached = OCCL_LIST_INIT(occl_mpi.attached),
    .leaving = OCCL_LIST_INIT(occl_mpi.leaving),
    .privs = OCCL_LIST_INIT(occl_mpi.privs),
    .keyval = MPI_KEYVAL_INVALID,
    .self = MPI_COMM_NULL,
};

static occl_lock_t begin_lock = OCCL_LOCK_INIT;
static int self_keyval = MPI_KEYVAL_INVALID;

int occl_mpi_is_up(void)
{
    int yes = 0, no = 0;

    /* Both may be called at any time. */
    PMPI_Initialized(&yes);
    if (!yes)
        return 0;
    PMPI_Finalized(&no);
    return !no && atomic_load_explicit(&occl_mpi.state, memory_order_acquire) != OCCL_MPI_GONE;
}

/* --- MPI's progress, ours within it ------------------------------------------------------------------------------- */

#ifdef OPEN_MPI
typedef int (*opal_callback_t)(void);
static int (*opal_register)(opal_callback_t);
static int (*opal_unregister)(opal_callback_t);

/* Open MPI calls this from opal_progress(), that is from within most of its calls. It may come from within our own calls of
 * MPI too: the core refuses to be entered twice, and draining is safe at any time. */
static int opal_hook(void)
{
    int moved;

    if (!occl_mpi_is_ready())
        return 0;
    moved = occl_progress(occl_mpi.ctx);
    occl_mpi_req_drain();
    return moved > 0;
}

static int find_pal(struct dl_phdr_info *info, size_t size, void *name)
{
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libopen-pal"))
        return 0;
    *(const char **)name = info->dlpi_name;
    return 1;
}

static void *opal_symbol(const char *symbol)
{
    void *p = dlsym(RTLD_DEFAULT, symbol), *handle;
    const char *name = NULL;

    /* MPI may have been loaded by a dlopen() that kept its names to itself (as Python does). */
    if (!p && dl_iterate_phdr(find_pal, &name) && (handle = dlopen(name, RTLD_NOLOAD | RTLD_LAZY)) != NULL)
        p = dlsym(handle, symbol);
    return p;
}
#endif

static int find_hook(void)
{
#if defined(OPEN_MPI)
    *(void **)&opal_register = opal_symbol("opal_progress_register");
    *(void **)&opal_unregister = opal_symbol("opal_progress_unregister");
    if (opal_register && opal_unregister && opal_register(opal_hook) == 0)
        return OCCL_HOOK_OPAL;
    return OCCL_HOOK_NONE;
#elif defined(OCCL_HAVE_GREQUEST_POLL)
    return OCCL_HOOK_GREQUEST;
#else
    return OCCL_HOOK_NONE;
#endif
}

/* Testing a request that never completes is the one call that makes a pass of progress in every MPI, whatever its device:
 * MPICH's MPI_Iprobe makes none. One thread at a time, since two may not test one request. */
static MPI_Request never = MPI_REQUEST_NULL;
static atomic_flag never_busy = ATOMIC_FLAG_INIT;

void occl_mpi_poke(void)
{
    int flag;

    if (atomic_flag_test_and_set_explicit(&never_busy, memory_order_acquire))
        return;
    if (occl_mpi_is_ready())
        PMPI_Test(&never, &flag, MPI_STATUS_IGNORE);
    atomic_flag_clear_explicit(&never_busy, memory_order_release);
}

static void wait_hook(void *state)
{
    (void)state;
    occl_mpi_poke();
    occl_mpi_req_drain();
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Text of several lines: a line of the log each */
static void dump_lines(void *state, const char *text)
{
    for (const char *end; *text; text = *end ? end + 1 : end) {
        end = text + strcspn(text, "\n");
        if (end > text)
            occl_log((occl_logger_t *)state, OCCL_LOG_WARN, "%.*s", (int)(end - text), text);
    }
}

/* A program that forgot an operation is told so: its result will never come. */
static void warn_pending(void)
{
    uint64_t pending = 0;
    occl_logger_t log;
    char why[256];
    int rank;

    if (occl_get_stat(occl_mpi.ctx, NULL, "pending", &pending) != OCCL_OK || pending == 0)
        return;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)occl_logger_init(&log, occl_ctx_env(occl_mpi.ctx), rank, why, sizeof why);
    occl_log(&log, OCCL_LOG_WARN, "MPI_Finalize was called while %llu operations are pending; they end with an error",
             (unsigned long long)pending);
    OCCL_LIST_EACH(m, next, &occl_mpi.attached, occl_mpi_comm_t, link)
        if (occl_get_stat(occl_mpi.ctx, m->core, "pending", &pending) == OCCL_OK && pending > 0)
            occl_comm_dump(m->core, dump_lines, &log);
}

/* Runs first thing in MPI_Finalize, on the thread that calls it, while MPI is still whole. Nothing here waits for another
 * rank: MPI_Finalize must end, whatever the others do. */
static int finalize_fn(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    if (!occl_mpi_is_ready())
        return MPI_SUCCESS;
#ifdef OPEN_MPI
    if (occl_mpi.hook == OCCL_HOOK_OPAL)
        opal_unregister(opal_hook);
#endif
    warn_pending();
    occl_mpi_req_reap();
    occl_mpi_queues_free_all();
    occl_mpi_comm_detach_all();
    /* Pending runs end here: their callbacks still find everything as it was. */
    atomic_store_explicit(&occl_mpi.state, OCCL_MPI_GONE, memory_order_release);
    occl_ctx_destroy(occl_mpi.ctx);
    occl_mpi.ctx = NULL;
    occl_mpi_req_drain();
    occl_mpi_comm_free_all();
    occl_mpi_stages_fini();
    occl_mpi_layouts_fini();
    PMPI_Cancel(&never);
    PMPI_Wait(&never, MPI_STATUS_IGNORE);
    PMPI_Comm_free(&occl_mpi.self);
    PMPI_Comm_free_keyval(&occl_mpi.keyval);
    PMPI_Comm_free_keyval(&self_keyval);
    return MPI_SUCCESS;
}

/* --- types and ops of ours ---------------------------------------------------------------------------------------- */

static int ours_keyval = MPI_KEYVAL_INVALID;

/* In MPI_Finalize, before or after finalize_fn: runs hold what they need of them. */
static int free_ours(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    occl_mpi_ops_fini();
    occl_mpi_types_fini();
    PMPI_Comm_free_keyval(&ours_keyval);
    return MPI_SUCCESS;
}

int occl_mpi_at_finalize(void)
{
    static occl_lock_t lock = OCCL_LOCK_INIT;
    int good = 1;

    occl_lock(&lock); /* all that is called under it is local, and calls nobody */
    if (ours_keyval == MPI_KEYVAL_INVALID) {
        good = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_ours, &ours_keyval, NULL) == MPI_SUCCESS;
        if (good && PMPI_Comm_set_attr(MPI_COMM_SELF, ours_keyval, &ours_keyval) != MPI_SUCCESS) {
            PMPI_Comm_free_keyval(&ours_keyval);
            good = 0;
        }
    }
    occl_unlock(&lock);
    return good;
}

/* --- the beginning ------------------------------------------------------------------------------------------------ */

static uint64_t make_unique(void)
{
    struct {
        char host[64];
        long pid;
        struct timespec now;
    } seed;

    memset(&seed, 0, sizeof seed);
    (void)gethostname(seed.host, sizeof seed.host - 1);
    seed.pid = (long)getpid();
    (void)clock_gettime(CLOCK_REALTIME, &seed.now);
    return occl_hash_bytes(&seed, sizeof seed, 0x6f63636c);
}

static occl_status_t begin(char *why, size_t len)
{
    MPI_Group group = MPI_GROUP_NULL;
    occl_status_t status;
    int rc = MPI_SUCCESS;

    PMPI_Query_thread(&occl_mpi.level);
    occl_mpi_types_init();
    if (!occl_mpi_layouts_init()) {
        snprintf(why, len, "MPI could not make an attribute key of our own");
        return OCCL_ERR_RESOURCE;
    }
    (void)occl_mpi_class(OCCL_ERR_RESOURCE); /* makes the error classes: see error.c */
    occl_mpi.unique = make_unique();

    /* What an earlier attempt made is kept. */
    if (occl_mpi.self == MPI_COMM_NULL) {
        rc = PMPI_Comm_group(MPI_COMM_SELF, &group);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Comm_create(MPI_COMM_SELF, group, &occl_mpi.self);
        if (group != MPI_GROUP_NULL)
            PMPI_Group_free(&group);
        if (rc == MPI_SUCCESS)
            rc = PMPI_Comm_set_errhandler(occl_mpi.self, MPI_ERRORS_RETURN);
    }
    if (rc == MPI_SUCCESS && occl_mpi.keyval == MPI_KEYVAL_INVALID)
        rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, occl_mpi_comm_delete_fn, &occl_mpi.keyval, NULL);
    if (rc == MPI_SUCCESS && self_keyval == MPI_KEYVAL_INVALID)
        rc = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize_fn, &self_keyval, NULL);
    if (rc == MPI_SUCCESS && never == MPI_REQUEST_NULL)
        rc = PMPI_Irecv(NULL, 0, MPI_BYTE, 0, 0, occl_mpi.self, &never);
    if (rc != MPI_SUCCESS) {
        snprintf(why, len, "MPI could not make a communicator and attribute keys of our own");
        return OCCL_ERR_RESOURCE;
    }
    status = occl_ctx_create(OCCL_DEVICE_HOST, 0, &occl_mpi.ctx, why, len);
    if (status != OCCL_OK)
        return status;
    occl_ctx_set_wait_hook(occl_mpi.ctx, wait_hook, NULL);
    PMPI_Comm_set_attr(MPI_COMM_SELF, self_keyval, &occl_mpi);
    occl_mpi.hook = find_hook();
    atomic_store_explicit(&occl_mpi.state, OCCL_MPI_READY, memory_order_release);
    return OCCL_OK;
}

occl_status_t occl_mpi_begin(char *why, size_t len)
{
    occl_status_t status = OCCL_OK;

    if (occl_mpi_is_ready())
        return OCCL_OK;
    /* All that is called under this lock is local. */
    occl_lock(&begin_lock);
    if (!occl_mpi_is_ready())
        status = begin(why, len);
    occl_unlock(&begin_lock);
    return status;
}
