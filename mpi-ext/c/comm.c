/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attaching. The one collective call: the members exchange one record each, over the user's communicator, and all decide the
 * same from what they read:
 *   - somebody cannot (bad info, no memory, another version): all fail with the same class and a text that names the ranks
 *   - everybody still has the same attachment: it is counted
 *   - else a new attachment begins, on a private communicator that all of them have idle, or on a new one
 * A rank may have left an attachment that others still have (detach is local). The others move over: their count goes on.
 */
#include "internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/hash.h"

/* --- finding, references ------------------------------------------------------------------------------------------ */

occl_mpi_comm_t *occl_mpi_comm_find(MPI_Comm comm, occl_status_t *status_p, char *why, size_t len)
{
    void *value = NULL;
    int found = 0, inter = 0;

    if (comm == MPI_COMM_NULL) {
        snprintf(why, len, "the communicator is MPI_COMM_NULL");
        *status_p = OCCL_ERR_COMM;
        return NULL;
    }
    if (OCCL_LIKELY(occl_mpi_is_ready()) &&
        PMPI_Comm_get_attr(comm, occl_mpi.keyval, &value, &found) == MPI_SUCCESS && found)
        return value;
    if (PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter) {
        snprintf(why, len, "an intercommunicator cannot be used; merge it with MPI_Intercomm_merge");
        *status_p = OCCL_ERR_COMM;
        return NULL;
    }
    snprintf(why, len, "the communicator is not attached: call MPIX_Occl_comm_attach on all its members first");
    *status_p = OCCL_ERR_NOT_ATTACHED;
    return NULL;
}

static void comm_free(occl_mpi_comm_t *m)
{
    occl_lock_fini(&m->lock);
    free(m->member);
    free(atomic_load_explicit(&m->edges, memory_order_relaxed));
    free(m);
}

occl_status_t occl_mpi_comm_sticky_slow(occl_mpi_comm_t *m, char *why, size_t len)
{
    char text[OCCL_TEXT - 128] = "";
    occl_status_t status = occl_comm_take_error(m->core, text, sizeof text);

    if (OCCL_UNLIKELY(status != OCCL_OK))
        snprintf(why, len, "an operation that was enqueued before has failed: %s", text);
    return status;
}

/* The object itself goes when it is reaped, see below. */
void occl_mpi_comm_unref(occl_mpi_comm_t *m) { atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel); }

/*
 * Attachments that this process has left: the private communicator is free once all members have; the rest when nothing
 * refers to it. Without the lock: whoever gives the core's lock back runs completions that are due, the user's continuations
 * among them, and these may call MPI, and us again. One thread at a time takes the whole list; another one has nothing to do.
 */
static void reap(void)
{
    occl_list_t mine, *e;

    occl_mpi_req_reap(); /* requests hold communicators */
    occl_list_init(&mine);
    occl_lock(&occl_mpi.lock);
    if (occl_mpi.reaping || occl_list_empty(&occl_mpi.leaving)) {
        occl_unlock(&occl_mpi.lock);
        return;
    }
    occl_mpi.reaping = 1;
    while ((e = occl_list_pop(&occl_mpi.leaving)) != NULL)
        occl_list_push_back(&mine, e);
    occl_unlock(&occl_mpi.lock);
    OCCL_LIST_EACH(m, next, &mine, occl_mpi_comm_t, link) {
        if (m->priv && occl_comm_all_detached(m->core)) {
            occl_lock(&occl_mpi.lock);
            m->priv->busy = 0;
            occl_unlock(&occl_mpi.lock);
            m->priv = NULL;
        }
        if (!m->priv && atomic_load_explicit(&m->refs, memory_order_acquire) == 0) {
            occl_list_remove(&m->link);
            occl_comm_release(m->core);
            comm_free(m);
        }
    }
    occl_lock(&occl_mpi.lock);
    while ((e = occl_list_pop(&mine)) != NULL)
        occl_list_push_back(&occl_mpi.leaving, e);
    occl_mpi.reaping = 0;
    occl_unlock(&occl_mpi.lock);
}

/* The end of an attachment in this process. Called by MPI when the attribute goes: MPI_Comm_delete_attr, MPI_Comm_free, a newer
 * attachment, MPI_Finalize. */
int occl_mpi_comm_delete_fn(MPI_Comm comm, int keyval, void *value, void *extra)
{
    occl_mpi_comm_t *m = value;

    (void)comm, (void)keyval, (void)extra;
    if (!occl_mpi_is_ready()) /* MPI_Finalize: see occl_mpi_comm_free_all */
        return MPI_SUCCESS;
    occl_lock(&occl_mpi.lock);
    atomic_store_explicit(&m->attached, 0, memory_order_release);
    m->user = MPI_COMM_NULL;
    occl_list_remove(&m->link);
    occl_list_push_back(&occl_mpi.leaving, &m->link);
    occl_unlock(&occl_mpi.lock);
    occl_comm_detach(m->core);
    atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel);
    return MPI_SUCCESS;
}

void occl_mpi_comm_detach_all(void)
{
    OCCL_LIST_EACH(m, next, &occl_mpi.attached, occl_mpi_comm_t, link) {
        atomic_store_explicit(&m->attached, 0, memory_order_release);
        occl_comm_detach(m->core);
    }
}

/* The core is gone. Requests and colls that the program has not freed still point to their attachment: those stay. */
void occl_mpi_comm_free_all(void)
{
    occl_list_t *lists[] = {&occl_mpi.attached, &occl_mpi.leaving};

    for (int i = 0; i < 2; i++) {
        OCCL_LIST_EACH(m, next, lists[i], occl_mpi_comm_t, link) {
            m->core = NULL;
            m->user = MPI_COMM_NULL;
            /* One reference of an attached one is the attribute's; MPI will not look at the value again through us. */
            if (atomic_load_explicit(&m->refs, memory_order_acquire) <= (i == 0)) {
                occl_list_remove(&m->link);
                comm_free(m);
            }
        }
    }
    OCCL_LIST_EACH(p, next, &occl_mpi.privs, occl_mpi_priv_t, link) {
        occl_list_remove(&p->link);
        PMPI_Group_free(&p->group);
        PMPI_Comm_free(&p->comm);
        free(p);
    }
}

/* --- info --------------------------------------------------------------------------------------------------------- */

occl_status_t occl_mpi_info_priority(MPI_Info info, int *priority_p, char *why, size_t len)
{
    char value[MPI_MAX_INFO_VAL + 1] = "", *end = value;
    int found = 0;
    long n;

    if (info == MPI_INFO_NULL || PMPI_Info_get(info, "mpix_occl_priority", MPI_MAX_INFO_VAL, value, &found) != MPI_SUCCESS || !found)
        return OCCL_OK;
    if (strcmp(value, "normal") == 0) {
        *priority_p = 0;
    } else if (strcmp(value, "high") == 0) {
        *priority_p = 1;
    } else {
        n = strtol(value, &end, 10);
        if (end == value || *end != '\0' || n < 0 || n > 1000) {
            snprintf(why, len, "info mpix_occl_priority is \"%.60s\"; it must be normal, high, or a number from 0 to 1000", value);
            return OCCL_ERR_INFO;
        }
        *priority_p = (int)n;
    }
    return OCCL_OK;
}

/* The value of a key, or "". */
static void info_text(MPI_Info info, const char *key, char *text, int len)
{
    int found = 0;

    text[0] = '\0';
    if (info != MPI_INFO_NULL && PMPI_Info_get(info, key, len - 1, text, &found) == MPI_SUCCESS && !found)
        text[0] = '\0';
}

/* --- the handshake ------------------------------------------------------------------------------------------------ */

/* The record's size and its first lines stay as they are for ever: they are how two versions of this library find out about
 * each other. */
enum { HELLO_MAGIC = 0x4f43434c, HELLO_BYTES = 512, OFFERS = 8 };
typedef struct {
    uint32_t magic;
    uint32_t status;      /* occl_status_t of this rank; meaningful between equal versions */
    char version[24];
    char abi[24];
    char text[176];       /* why status is not OCCL_OK */
    char where[44];       /* host:pid */
    int32_t world_rank;
    uint64_t algo;        /* hash of the info value */
    uint64_t epoch;       /* attachment that this rank has; 0: none */
    uint64_t unique;      /* number for what is made new; rank 0's counts */
    uint32_t noffers;
    uint32_t pad;
    uint64_t offer[OFFERS]; /* idle private communicators of this group */
} hello_t;
_Static_assert(sizeof(hello_t) <= HELLO_BYTES, "the attach record has a fixed size");

#define OCCL_STRING2(x) #x
#define OCCL_STRING(x) OCCL_STRING2(x)
#define OCCL_VERSION \
    OCCL_STRING(MPIX_OCCL_VERSION_MAJOR) "." OCCL_STRING(MPIX_OCCL_VERSION_MINOR) "." OCCL_STRING(MPIX_OCCL_VERSION_PATCH)
/* What must agree beside the version: processes read each other's memory. */
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OCCL_ABI "little-" OCCL_STRING(__SIZEOF_POINTER__) "-" OCCL_STRING(__SIZEOF_LONG_DOUBLE__)
#else
#define OCCL_ABI "big-" OCCL_STRING(__SIZEOF_POINTER__) "-" OCCL_STRING(__SIZEOF_LONG_DOUBLE__)
#endif

static const hello_t *hello_at(const void *all, int rank)
{
    return (const void *)((const char *)all + (size_t)rank * HELLO_BYTES);
}

/* "rank 1 (host:pid)" for all ranks for which `differs` holds, at most four by name */
static void name_ranks(char *to, size_t len, const void *all, int size, int (*differs)(const hello_t *, const hello_t *))
{
    int n = 0, more = 0;
    size_t at = 0;

    to[0] = '\0';
    for (int r = 0; r < size; r++) {
        const hello_t *h = hello_at(all, r);

        if (!differs(hello_at(all, 0), h))
            continue;
        if (n++ >= 4) {
            more++;
            continue;
        }
        at += (size_t)snprintf(to + at, at < len ? len - at : 0, "%srank %d (%.*s)", n > 1 ? ", " : "", r,
                               (int)sizeof h->where - 1, h->where);
    }
    if (more)
        snprintf(to + at, at < len ? len - at : 0, " and %d more", more);
}

static int other_version(const hello_t *a, const hello_t *b)
{
    return a->magic != b->magic || memcmp(a->version, b->version, sizeof a->version) != 0 ||
           memcmp(a->abi, b->abi, sizeof a->abi) != 0;
}
static int is_failed(const hello_t *a, const hello_t *b)
{
    (void)a;
    return b->status != OCCL_OK;
}
static int other_algo(const hello_t *a, const hello_t *b) { return a->algo != b->algo; }

/* The members' verdict, the same on all of them */
static occl_status_t verdict(const void *all, int size, char *why, size_t len)
{
    const hello_t *first = hello_at(all, 0);
    char names[400];

    name_ranks(names, sizeof names, all, size, other_version);
    if (names[0]) {
        const hello_t *h = first;
        for (int r = 0; r < size && !other_version(first, h); r++)
            h = hello_at(all, r);
        snprintf(why, len, "the members use different builds of this library: rank 0 has %.*s (%.*s), %s: %.*s (%.*s)",
                 (int)sizeof first->version - 1, first->version, (int)sizeof first->abi - 1, first->abi, names,
                 (int)sizeof h->version - 1, h->version, (int)sizeof h->abi - 1, h->abi);
        return OCCL_ERR_UNSUPPORTED;
    }
    name_ranks(names, sizeof names, all, size, is_failed);
    if (names[0]) {
        const hello_t *h = first;
        for (int r = 0; r < size && h->status == OCCL_OK; r++)
            h = hello_at(all, r);
        snprintf(why, len, "%s: %.*s", names, (int)sizeof h->text - 1, h->text);
        return h->status < OCCL_STATUS_COUNT ? (occl_status_t)h->status : OCCL_ERR_INTERN;
    }
    name_ranks(names, sizeof names, all, size, other_algo);
    if (names[0]) {
        snprintf(why, len, "info mpix_occl_algo must be the same on all members; that of %s is not rank 0's", names);
        return OCCL_ERR_MISMATCH;
    }
    return OCCL_OK;
}

/* --- private communicators ---------------------------------------------------------------------------------------- */

static void make_offers(MPI_Group group, hello_t *hello)
{
    occl_mpi_priv_t *idle[OFFERS];
    uint32_t n = 0;

    occl_lock(&occl_mpi.lock);
    OCCL_LIST_EACH(p, next, &occl_mpi.privs, occl_mpi_priv_t, link) {
        int same = MPI_UNEQUAL;

        /* Group_compare is local and calls nothing of ours: the lock may be held. */
        if (!p->busy && n < OFFERS && PMPI_Group_compare(group, p->group, &same) == MPI_SUCCESS && same == MPI_IDENT) {
            idle[n] = p;
            hello->offer[n++] = p->id;
        }
    }
    /* Another thread that attaches the same group must not offer the same ones; those not taken are given back. */
    for (uint32_t i = 0; i < n; i++)
        idle[i]->busy = 1;
    occl_unlock(&occl_mpi.lock);
    hello->noffers = n;
}

static int is_offered(const hello_t *h, uint64_t id)
{
    for (uint32_t i = 0; i < h->noffers && i < OFFERS; i++)
        if (h->offer[i] == id)
            return 1;
    return 0;
}

/* The first of rank 0's that all have, or 0 */
static uint64_t choose_offer(const void *all, int size)
{
    const hello_t *first = hello_at(all, 0);

    for (uint32_t i = 0; i < first->noffers && i < OFFERS; i++) {
        int good = 1;
        for (int r = 1; r < size && good; r++)
            good = is_offered(hello_at(all, r), first->offer[i]);
        if (good)
            return first->offer[i];
    }
    return 0;
}

/* Gives back what was offered; keeps `chosen` (0: none) and returns it. */
static occl_mpi_priv_t *settle_offers(const hello_t *hello, uint64_t chosen)
{
    occl_mpi_priv_t *kept = NULL;

    occl_lock(&occl_mpi.lock);
    OCCL_LIST_EACH(p, next, &occl_mpi.privs, occl_mpi_priv_t, link) {
        if (!is_offered(hello, p->id))
            continue;
        if (chosen && p->id == chosen)
            kept = p;
        else
            p->busy = 0;
    }
    occl_unlock(&occl_mpi.lock);
    return kept;
}

/* Collective over comm */
static occl_mpi_priv_t *make_priv(MPI_Comm comm, MPI_Group group, uint64_t id, char *why, size_t len)
{
    occl_mpi_priv_t *p = calloc(1, sizeof *p);
    MPI_Comm made = MPI_COMM_NULL;
    int good, all = 0;

    /* On the full group: unlike MPI_Comm_dup it runs no attribute copy functions of the user. */
    good = PMPI_Comm_create(comm, group, &made) == MPI_SUCCESS && made != MPI_COMM_NULL && p;
    if (PMPI_Allreduce(&good, &all, 1, MPI_INT, MPI_LAND, comm) != MPI_SUCCESS)
        all = 0;
    if (!all) {
        if (made != MPI_COMM_NULL)
            PMPI_Comm_free(&made);
        free(p);
        snprintf(why, len, "MPI has no further communicator for us (MPICH allows about 2,000)");
        return NULL;
    }
    PMPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    occl_list_init(&p->link);
    p->comm = made;
    p->id = id;
    p->busy = 1;
    PMPI_Comm_group(made, &p->group);
    occl_lock(&occl_mpi.lock);
    occl_list_push_back(&occl_mpi.privs, &p->link);
    occl_unlock(&occl_mpi.lock);
    return p;
}

/* --- bootstrap for the core --------------------------------------------------------------------------------------- */

static int oob_allgather(void *state, const void *in, void *out, size_t bytes)
{
    const occl_mpi_comm_t *m = state;
    MPI_Datatype block;
    int rc;

    if (bytes <= INT_MAX)
        return PMPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, m->priv->comm) != MPI_SUCCESS;
    if (bytes % 4096 != 0 || PMPI_Type_contiguous(4096, MPI_BYTE, &block) != MPI_SUCCESS)
        return 1;
    PMPI_Type_commit(&block);
    rc = PMPI_Allgather(in, (int)(bytes / 4096), block, out, (int)(bytes / 4096), block, m->priv->comm);
    PMPI_Type_free(&block);
    return rc != MPI_SUCCESS;
}

static void oob_rank_name(void *state, int rank, char *buf, size_t len)
{
    const occl_mpi_comm_t *m = state;
    const occl_mpi_member_t *w = &m->member[rank];

    if (w->world_rank == MPI_UNDEFINED || w->world_rank == rank)
        snprintf(buf, len, "rank %d (%s)", rank, w->where);
    else
        snprintf(buf, len, "rank %d (MPI_COMM_WORLD rank %d, %s)", rank, w->world_rank, w->where);
}

/* --- attach ------------------------------------------------------------------------------------------------------- */

static void fill_hello(hello_t *hello, MPI_Info info, char *algo, int algo_len, int *priority, int can_begin, const char *begin_text)
{
    char why[256] = "", host[MPI_MAX_PROCESSOR_NAME + 1] = "";
    occl_status_t status = (occl_status_t)can_begin;

    hello->magic = HELLO_MAGIC;
    memcpy(hello->version, OCCL_VERSION, sizeof OCCL_VERSION);
    memcpy(hello->abi, OCCL_ABI, sizeof OCCL_ABI);
    (void)gethostname(host, sizeof host - 1);
    snprintf(hello->where, sizeof hello->where, "%.30s:%ld", host, (long)getpid());
    PMPI_Comm_rank(MPI_COMM_WORLD, &hello->world_rank);
    info_text(info, "mpix_occl_algo", algo, algo_len);
    hello->algo = algo[0] ? occl_hash_bytes(algo, strlen(algo), 1) : 0;
    if (status == OCCL_OK)
        status = occl_mpi_info_priority(info, priority, why, sizeof why);
    else
        snprintf(why, sizeof why, "%s", begin_text);
    hello->status = (uint32_t)status;
    memcpy(hello->text, why, sizeof hello->text - 1);
    occl_lock(&occl_mpi.lock);
    hello->unique = occl_hash_mix(occl_mpi.unique += 2);
    occl_unlock(&occl_mpi.lock);
}

/* A communicator without a name is told by its members: "communicator {2,3}", in MPI_COMM_WORLD's numbering. */
static void name_by_members(occl_mpi_comm_t *m)
{
    enum { SHOWN = 6 };
    char *to = m->name;
    size_t len = sizeof m->name, at;

    at = (size_t)snprintf(to, len, "communicator {");
    for (int r = 0; r < m->size && r < SHOWN; r++) {
        if (m->member[r].world_rank == MPI_UNDEFINED)
            at += (size_t)snprintf(to + at, len - at, "%s?", r ? "," : "");
        else
            at += (size_t)snprintf(to + at, len - at, "%s%d", r ? "," : "", m->member[r].world_rank);
    }
    snprintf(to + at, len - at, "%s}", m->size > SHOWN ? ",..." : "");
}

static occl_mpi_comm_t *comm_new(const void *all, int rank, int size, MPI_Comm user, MPI_Group group)
{
    occl_mpi_comm_t *m = calloc(1, sizeof *m);
    MPI_Group world;
    int len = 0, *mine = NULL, *theirs = NULL;

    if (m)
        m->member = calloc((size_t)size, sizeof *m->member);
    mine = malloc((size_t)size * sizeof *mine);
    theirs = malloc((size_t)size * sizeof *theirs);
    if (!m || !m->member || !mine || !theirs) {
        if (m)
            free(m->member);
        free(m);
        free(mine);
        free(theirs);
        return NULL;
    }
    for (int r = 0; r < size; r++)
        mine[r] = r;
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, size, mine, world, theirs);
    PMPI_Group_free(&world);
    for (int r = 0; r < size; r++) {
        const hello_t *h = hello_at(all, r);
        m->member[r].world_rank = theirs[r];
        memcpy(m->member[r].where, h->where, sizeof m->member[r].where);
        m->member[r].where[sizeof m->member[r].where - 1] = '\0';
    }
    free(mine);
    free(theirs);
    occl_list_init(&m->link);
    occl_lock_init(&m->lock);
    m->user = user;
    m->rank = rank;
    m->size = size;
    atomic_init(&m->refs, 1);
    PMPI_Comm_get_name(user, m->name, &len);
    if (!m->name[0])
        name_by_members(m);
    return m;
}

int PMPIX_Occl_comm_attach(MPI_Comm comm, MPI_Info info)
{
    static const char fn[] = "MPIX_Occl_comm_attach";
    char why[OCCL_TEXT - 64] = "", algo[OCCL_ENV_STRING] = "", device[16] = "";
    union {
        hello_t hello;
        char bytes[HELLO_BYTES];
    } mine;
    char *all = NULL;
    occl_mpi_comm_t *m = NULL, *old = NULL;
    occl_mpi_priv_t *priv = NULL;
    occl_attach_opts_t opts = {0, NULL, NULL};
    occl_oob_t oob;
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    occl_status_t status, down;
    uint64_t chosen;
    int rank, size, inter = 0, rc, counted, agreed;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    if (comm == MPI_COMM_NULL)
        return occl_mpi_fail(NULL, comm, fn, OCCL_ERR_COMM, "the communicator is MPI_COMM_NULL");
    if ((rc = PMPI_Comm_test_inter(comm, &inter)) != MPI_SUCCESS)
        return rc; /* MPI has called the handler */
    if (inter)
        return occl_mpi_fail(NULL, comm, fn, OCCL_ERR_COMM,
                             "an intercommunicator cannot be attached; merge it with MPI_Intercomm_merge");
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);

    /* From here on this rank takes part, whatever is wrong with it. */
    down = occl_mpi_begin(why, sizeof why);
    memset(&mine, 0, sizeof mine);
    fill_hello(&mine.hello, info, algo, (int)sizeof algo, &opts.priority, (int)down, why);
    info_text(info, "mpix_occl_device", device, (int)sizeof device);
    opts.device = device;
    PMPI_Comm_group(comm, &group);
    if (down == OCCL_OK) {
        void *value = NULL;
        int found = 0;

        reap();
        PMPI_Comm_get_attr(comm, occl_mpi.keyval, &value, &found);
        old = found ? value : NULL;
        mine.hello.epoch = old ? old->epoch : 0;
        make_offers(group, &mine.hello);
    }
    all = malloc((size_t)size * HELLO_BYTES);
    /* What MPI finds wrong is ours to report, not a reason to end the program here. */
    PMPI_Comm_get_errhandler(comm, &handler);
    PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    rc = all ? PMPI_Allgather(mine.bytes, HELLO_BYTES, MPI_BYTE, all, HELLO_BYTES, MPI_BYTE, comm) : MPI_ERR_NO_MEM;
    if (rc != MPI_SUCCESS) {
        status = OCCL_ERR_RESOURCE;
        snprintf(why, sizeof why, "the members could not exchange their records (%s)",
                 all ? "MPI_Allgather failed" : "no memory");
        settle_offers(&mine.hello, 0);
        goto out;
    }
    status = verdict(all, size, why, sizeof why);
    if (status != OCCL_OK) {
        settle_offers(&mine.hello, 0);
        goto out;
    }

    counted = 1;
    for (int r = 0; r < size && counted; r++)
        counted = hello_at(all, r)->epoch != 0 && hello_at(all, r)->epoch == hello_at(all, 0)->epoch;
    if (counted) {
        settle_offers(&mine.hello, 0);
        atomic_fetch_add(&old->attaches, 1);
        goto out;
    }

    chosen = choose_offer(all, size);
    priv = settle_offers(&mine.hello, chosen);
    if (!priv)
        priv = make_priv(comm, group, hello_at(all, 0)->unique, why, sizeof why);
    if (!priv) {
        status = OCCL_ERR_RESOURCE; /* agreed in make_priv */
        goto out;
    }
    m = comm_new(all, rank, size, comm, group);
    rc = m != NULL;
    if (PMPI_Allreduce(&rc, &agreed, 1, MPI_INT, MPI_LAND, priv->comm) != MPI_SUCCESS || !agreed) {
        status = OCCL_ERR_RESOURCE;
        snprintf(why, sizeof why, "a member has no memory left");
        goto out;
    }
    m->priv = priv;
    m->priority = opts.priority;
    m->epoch = hello_at(all, 0)->unique ^ 1; /* `unique` is the private communicator's, should one be made */
    memset(&oob, 0, sizeof oob);
    oob.rank = rank;
    oob.size = size;
    oob.allgather = oob_allgather;
    oob.rank_name = oob_rank_name;
    oob.state = m;
    oob.name = m->name;
    opts.algo = algo[0] ? algo : NULL;
    status = occl_comm_attach(occl_mpi.ctx, &oob, &opts, &m->core);
    if (status != OCCL_OK) {
        snprintf(why, sizeof why, "%s", occl_last_error());
        goto out;
    }
    atomic_store(&m->attaches, 1 + (old ? atomic_load(&old->attaches) : 0));
    atomic_store_explicit(&m->attached, 1, memory_order_release);
    occl_lock(&occl_mpi.lock);
    occl_list_push_back(&occl_mpi.attached, &m->link);
    occl_unlock(&occl_mpi.lock);
    priv = NULL;
    /* Replacing an old value calls the delete function for it. */
    PMPI_Comm_set_attr(comm, occl_mpi.keyval, m);
    m = NULL;
out:
    if (handler != MPI_ERRHANDLER_NULL) {
        PMPI_Comm_set_errhandler(comm, handler);
        PMPI_Errhandler_free(&handler);
    }
    if (group != MPI_GROUP_NULL)
        PMPI_Group_free(&group);
    if (priv) {
        occl_lock(&occl_mpi.lock);
        priv->busy = 0;
        occl_unlock(&occl_mpi.lock);
    }
    if (m)
        comm_free(m);
    free(all);
    if (status != OCCL_OK)
        return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    return MPI_SUCCESS;
}
OCCL_ALIAS(comm_attach);

int PMPIX_Occl_comm_detach(MPI_Comm comm)
{
    static const char fn[] = "MPIX_Occl_comm_detach";
    char why[OCCL_TEXT - 64];
    occl_status_t status;
    occl_mpi_comm_t *m;
    int code = MPI_SUCCESS;

    if (!occl_mpi_is_up())
        return occl_mpi_fail_down(fn);
    m = occl_mpi_comm_find(comm, &status, why, sizeof why);
    if (!m)
        return occl_mpi_fail(NULL, comm, fn, status, "%s", why);
    /* This call does its work all the same: there may be no other one that could. */
    status = occl_mpi_comm_sticky(m, why, sizeof why);
    if (status != OCCL_OK)
        code = occl_mpi_code(m, status, fn, why);
    if (atomic_fetch_sub(&m->attaches, 1) == 1)
        PMPI_Comm_delete_attr(comm, occl_mpi.keyval);
    reap();
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(comm, code);
    return code;
}
OCCL_ALIAS(comm_detach);

int PMPIX_Occl_comm_get_error(MPI_Comm comm, int *errorcode, char *text, int length)
{
    static const char fn[] = "MPIX_Occl_comm_get_error";
    char copy[OCCL_TEXT] = "", why[OCCL_TEXT - 64];
    occl_status_t status;
    occl_mpi_comm_t *m = NULL;

    if (!errorcode || length < 0)
        return occl_mpi_fail(NULL, comm, fn, OCCL_ERR_ARG, errorcode ? "the length %d is negative" : "errorcode is NULL", length);
    if (comm != MPI_COMM_NULL && occl_mpi_is_ready())
        m = occl_mpi_comm_find(comm, &status, why, sizeof why);
    if (m) {
        status = occl_mpi_comm_sticky(m, why, sizeof why);
        (void)occl_mpi_code(m, status, fn, why);
        occl_lock(&m->lock);
        *errorcode = m->error;
        memcpy(copy, m->error_text, sizeof copy);
        occl_unlock(&m->lock);
    } else {
        occl_mpi_thread_error(errorcode, copy, sizeof copy);
    }
    occl_mpi_put_text(text, length, copy);
    return MPI_SUCCESS;
}
OCCL_ALIAS(comm_get_error);
