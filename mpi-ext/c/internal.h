/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of this folder share. Everything here knows MPI handles; the core below knows none.
 *
 *   process.c  the process: the core's context, MPI's progress hook, clean-up in MPI_Finalize
 *   error.c    statuses of the core -> MPI error codes with texts, error handlers
 *   type.c     datatypes -> the engine's numbers
 *   layout.c   datatypes that a program has made: what they consist of, and where it lies
 *   stage.c    what is packed, unpacked and combined around an operation
 *   op.c       ops -> the engine's numbers
 *   comm.c     attach, detach, private communicators
 *   coll.c     nonblocking and persistent operations: arguments -> occl_coll_args_t
 *   topo.c     neighbours
 *   persist.c  start and completion of persistent operations
 *   queue.c    queues, and persistent operations in them
 *   request.c  generalized requests
 *   wait.c     the wait and test family over any mix of requests
 *   look.c     statistics, dump, versions
 *
 * Threads. Below MPI_THREAD_MULTIPLE MPI is called only by threads that are inside a call of MPI or of ours; the core's
 * helper thread never is. No lock of ours is held over a call of MPI or of the core.
 */
#ifndef OCCL_MPI_EXT_INTERNAL_H
#define OCCL_MPI_EXT_INTERNAL_H

#ifdef HAVE_CONFIG_H
#include <config.h>
#endif
#include <mpix_occl.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/core.h"
#include "mpi-ext/c/section.h"
#include "util/list.h"
#include "util/lock.h"

#define OCCL_LIKELY(x) __builtin_expect(!!(x), 1)
#define OCCL_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* After the definition of PMPIX_Occl_x: the name that programs call and tools may take over. */
#define OCCL_ALIAS(x) \
    extern __typeof__(PMPIX_Occl_##x) MPIX_Occl_##x __attribute__((weak, alias("PMPIX_Occl_" #x)))

/* MPICH's generalized requests with a poll function */
#if defined(MPICH) && defined(HAVE_MPIX_GREQUEST_START)
#define OCCL_HAVE_GREQUEST_POLL 1
#endif

#define OCCL_TEXT 1024 /* an error's text, whole */

/* --- process.c ---------------------------------------------------------------------------------------------------- */

#define OCCL_MPI_HANDLE_FITS(type) _Static_assert(sizeof(type) <= sizeof(uint64_t), "a handle of MPI is kept as a word")

enum { OCCL_MPI_NEW, OCCL_MPI_READY, OCCL_MPI_GONE };

/* How MPI's own calls make our progress, and so complete our requests */
enum {
    OCCL_HOOK_NONE,
    OCCL_HOOK_OPAL,    /* Open MPI calls us from every call that makes progress */
    OCCL_HOOK_GREQUEST /* MPICH calls the poll function of each of our requests that it waits for */
};

typedef struct occl_mpi {
    atomic_int state;     /* NEW -> READY: first attach; -> GONE: MPI_Finalize has begun */
    occl_ctx_t *ctx;
    int level;            /* MPI_THREAD_* as provided */
    int hook;
    int keyval;           /* attribute of attached communicators: occl_mpi_comm_t * */
    MPI_Comm self;        /* private, of this process alone */
    atomic_uint pokes;
    occl_lock_t lock;     /* the lists below */
    occl_list_t attached; /* occl_mpi_comm_t.link */
    occl_list_t leaving;  /* the same: detached here, perhaps not yet elsewhere */
    int reaping;          /* a thread has taken `leaving` to see what can go */
    occl_list_t privs;    /* occl_mpi_priv_t.link */
    uint64_t unique;      /* start of the numbers that this process gives out */
} occl_mpi_t;
extern occl_mpi_t occl_mpi;

static inline int occl_mpi_is_ready(void)
{
    return atomic_load_explicit(&occl_mpi.state, memory_order_acquire) == OCCL_MPI_READY;
}
/* Whether MPI may be called at all: between MPI_Init and MPI_Finalize (a program of sessions only has not called MPI_Init). */
int occl_mpi_is_up(void);
/* Has this library's types and ops freed in MPI_Finalize; may be called before there is a context. False: it cannot. */
int occl_mpi_at_finalize(void);
/* Makes the context, once. Local. */
occl_status_t occl_mpi_begin(char *why, size_t len);
/* Lets MPI's own messages move; does not block. For threads that wait for us. */
void occl_mpi_poke(void);
/* The same, every so often: for tests, which a program may call in a loop. */
static inline void occl_mpi_poke_sometimes(void)
{
    if ((atomic_fetch_add_explicit(&occl_mpi.pokes, 1, memory_order_relaxed) & 15) == 15)
        occl_mpi_poke();
}

/* --- error.c ------------------------------------------------------------------------------------------------------ */

typedef struct occl_mpi_comm occl_mpi_comm_t;

/* An error code with this text, remembered for *_get_error. Calls no handler. m may be NULL. */
int occl_mpi_code(occl_mpi_comm_t *m, occl_status_t status, const char *fn, const char *text);
/* The same, then the error handler of comm (MPI_COMM_NULL: of MPI_COMM_WORLD). Returns the code. */
int occl_mpi_fail(occl_mpi_comm_t *m, MPI_Comm comm, const char *fn, occl_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* What the cancel function of a request returns. Made beforehand: MPICH holds its lock while it calls that function. */
int occl_mpi_cancel_code(void);
/* The outcome of a run: `code` was made before; handler of m's communicator while it is attached. Returns the code. */
int occl_mpi_raise(occl_mpi_comm_t *m, int code);
/* Where there is no MPI to ask: remembers the text for this thread and returns MPI_ERR_OTHER. */
int occl_mpi_fail_down(const char *fn);
/* The calling thread's latest error */
void occl_mpi_thread_error(int *code_p, char *text, size_t len);
int occl_mpi_class(occl_status_t status);
void occl_mpi_put_text(char *to, int length, const char *text);
/* The first failure among requests that this thread completed; take resets it. */
void occl_mpi_outcome_note(int code);
int occl_mpi_outcome_take(void);

/* --- type.c ------------------------------------------------------------------------------------------------------- */

typedef struct occl_mpi_type {
    uint32_t id;      /* OCCL_T_* */
    uint32_t ops;     /* that are defined for it, one bit an OCCL_OP_* */
    uint64_t n;       /* basic elements in one of the type */
    /* Of a datatype that the program has made: */
    struct occl_mpi_layout *layout; /* as long as the datatype is there, or with a reference */
    int gaps;         /* its elements are not one behind the other */
    int mixed;        /* they are of several basic types: id says bytes, and this which they are: */
    uint64_t sig, len;
} occl_mpi_type_t;

void occl_mpi_types_init(void);
occl_status_t occl_mpi_type_get(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len);
const char *occl_mpi_type_name(uint32_t id);
/* One that MPI or this library has defined? */
int occl_mpi_type_known(MPI_Datatype datatype, occl_mpi_type_t *t);
/* Of Fortran's kinds: 'i'nteger, 'r'eal, 'c'omplex. False: there is none. */
int occl_mpi_type_by_size(char what, int size, occl_mpi_type_t *t);
/* Is an MPI_Type_create_hindexed of two blocks one of this library's types, or a copy? */
int occl_mpi_type_is_ours(const int *lengths, const MPI_Aint *places, MPI_Datatype of, occl_mpi_type_t *t);
/* The types that this library has made, at MPI_Finalize */
void occl_mpi_types_fini(void);

/* --- layout.c ----------------------------------------------------------------------------------------------------- */

typedef struct occl_mpi_run {
    int64_t at;       /* bytes from the element's address */
    uint64_t bytes;   /* of each piece */
    uint64_t count;   /* of pieces */
    int64_t stride;   /* bytes from one to the next */
} occl_mpi_run_t;

typedef struct occl_mpi_layout {
    atomic_int refs;
    atomic_int freed; /* the datatype is no more, or not ours to use */
    MPI_Datatype datatype;
    occl_mpi_type_t type;
    occl_mpi_run_t *run;
    size_t n;
    uint64_t size;    /* bytes of one, packed */
    int64_t extent;
    int64_t low, high; /* bytes that one covers */
} occl_mpi_layout_t;

int occl_mpi_layouts_init(void);
void occl_mpi_layouts_fini(void);
occl_status_t occl_mpi_layout_get(MPI_Datatype datatype, occl_mpi_type_t *type_p, char *why, size_t len);
static inline void occl_mpi_layout_ref(occl_mpi_layout_t *l) { atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed); }
void occl_mpi_layout_unref(occl_mpi_layout_t *l);
/* Between `count` elements as they lie in the user's memory and as many bytes one behind the other, at most `bytes` of them. */
void occl_mpi_pack(const occl_mpi_layout_t *l, void *packed, void *user, uint64_t count, uint64_t bytes, int unpack);
/* A number for a sequence of basic types: for one `n` times over, and for `count` of a type. */
uint64_t occl_mpi_sig_repeat(uint64_t sig, uint64_t len, uint64_t n);
uint64_t occl_mpi_sig_of(const occl_mpi_type_t *t, uint64_t count);

/* --- stage.c ------------------------------------------------------------------------------------------------------ */

/*
 * What is done before and after each run of an operation whose data do not lie as the engine takes them: elements with gaps are
 * packed and unpacked, contributions to a reduction by a function of the program are combined.
 */
typedef struct occl_mpi_stage occl_mpi_stage_t;
typedef struct occl_mpi_op occl_mpi_op_t;
enum { OCCL_STAGE_SEND, OCCL_STAGE_RECV };
enum { OCCL_STAGE_IN = 1, OCCL_STAGE_OUT = 2 }; /* packed before, unpacked after */
/* NULL: no memory */
occl_mpi_stage_t *occl_mpi_stage_new(void);
/* `count` elements at user, as t says: where they are one behind the other, in bytes from the side's start. False: no memory */
int occl_mpi_stage_add(occl_mpi_stage_t *s, int side, const void *user, const occl_mpi_type_t *t, uint64_t count, int what, uint64_t *at_p);
int occl_mpi_stage_has(const occl_mpi_stage_t *s, int side);
/* Once all is added: the side's start. NULL: no memory */
void *occl_mpi_stage_memory(occl_mpi_stage_t *s, int side);
/* Also: n contributions of `bytes` bytes stand one behind the other in the receive side; the first `upto` are combined into `count`
 * elements at result, from `skip` elements of each on. op: of the program; o: what is known of it, or NULL. */
occl_status_t occl_mpi_stage_fold(occl_mpi_stage_t *s, MPI_Op op, occl_mpi_op_t *o, MPI_Datatype datatype, const occl_mpi_type_t *t,
                                  uint64_t bytes, uint32_t upto, uint64_t skip, uint64_t count, void *result, char *why, size_t len);
/* The core's view. It has a reference of its own as long as it needs it. */
occl_stage_t *occl_mpi_stage_core(occl_mpi_stage_t *s);
void occl_mpi_stage_unref(occl_mpi_stage_t *s);
/* Frees what nobody needs any more. By threads that may call MPI. */
void occl_mpi_stages_reap(void);
/* In MPI_Finalize, after the core's end */
void occl_mpi_stages_fini(void);

/* --- op.c --------------------------------------------------------------------------------------------------------- */

/* An op of this library. References: the list, until it is freed, and runs that call its function. */
struct occl_mpi_op {
    struct occl_mpi_op *next;
    MPI_Op op;
    atomic_int refs;
    uint32_t id;           /* OCCL_OP_AVG, PREMUL, USER */
    int commute;
    MPI_User_function *fn; /* USER */
    uint32_t type;         /* PREMUL: OCCL_T_* of the scalar */
    uint64_t scale[4];
};

void occl_mpi_op_unref(occl_mpi_op_t *o);
void occl_mpi_ops_fini(void);
/* Sets op, and what goes with it, of a reduction of elements of `datatype`, which is t; or says why it cannot be. Of an op of the
 * program it is OCCL_OP_USER, and *o_p, with a reference, what this library knows of it, or NULL. */
occl_status_t occl_mpi_reduction(MPI_Op op, MPI_Datatype datatype, const occl_mpi_type_t *t, occl_coll_args_t *a, occl_mpi_op_t **o_p,
                                 char *why, size_t len);

/* --- comm.c ------------------------------------------------------------------------------------------------------- */

/* A private communicator. It is used by one attachment at a time; communicators are scarce (MPICH has 2,000), so it is used
 * again for the same group when all members have left that attachment. */
typedef struct occl_mpi_priv {
    occl_list_t link;
    MPI_Comm comm;
    MPI_Group group;
    uint64_t id; /* the same on every member */
    int busy;
} occl_mpi_priv_t;

typedef struct occl_mpi_member {
    int world_rank;   /* MPI_UNDEFINED: not in our MPI_COMM_WORLD */
    char where[44];   /* host:pid */
} occl_mpi_member_t;

/* An attachment. References: the attribute, every coll, every request. */
struct occl_mpi_comm {
    occl_list_t link;
    MPI_Comm user;      /* MPI_COMM_NULL once detached */
    atomic_int attached;
    atomic_int refs;
    occl_mpi_priv_t *priv;
    occl_comm_t *core;
    int rank, size;
    atomic_int attaches;
    int priority;
    uint64_t epoch;     /* the same on every member, unlike any other */
    occl_mpi_member_t *member;
    char name[MPI_MAX_OBJECT_NAME + 1];
    occl_lock_t lock;   /* the error */
    int error;
    char error_text[OCCL_TEXT];
    atomic_int enqueued; /* something was: the core may have a failure to tell */
    _Atomic(struct occl_mpi_edges *) edges; /* its topology, once somebody has asked */
};

/* The attachment of a user's communicator. NULL: none; *status_p and why say what to raise. */
occl_mpi_comm_t *occl_mpi_comm_find(MPI_Comm comm, occl_status_t *status_p, char *why, size_t len);
static inline void occl_mpi_comm_ref(occl_mpi_comm_t *m) { atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed); }
void occl_mpi_comm_unref(occl_mpi_comm_t *m);
/* An enqueued run that has failed is told once, by the next call on its communicator, which then does nothing else.
 * OCCL_OK: there is none. */
occl_status_t occl_mpi_comm_sticky_slow(occl_mpi_comm_t *m, char *why, size_t len);
static inline occl_status_t occl_mpi_comm_sticky(occl_mpi_comm_t *m, char *why, size_t len)
{
    if (OCCL_LIKELY(!atomic_load_explicit(&m->enqueued, memory_order_relaxed)))
        return OCCL_OK;
    return occl_mpi_comm_sticky_slow(m, why, len);
}
/* In MPI_Finalize, before and after the core's end */
void occl_mpi_comm_detach_all(void);
void occl_mpi_comm_free_all(void);
int occl_mpi_comm_delete_fn(MPI_Comm comm, int keyval, void *value, void *extra);
occl_status_t occl_mpi_info_priority(MPI_Info info, int *priority_p, char *why, size_t len);

/* --- topo.c ------------------------------------------------------------------------------------------------------- */

/* A neighbour, and the number of its block in the arguments. The m-th edge to a process is the m-th one there from here. */
typedef struct occl_mpi_edge {
    int rank, index;
} occl_mpi_edge_t;
typedef struct occl_mpi_edges occl_mpi_edges_t;
/* Of a communicator with a topology; they live as long as m. MPI_PROC_NULL is left out. */
occl_status_t occl_mpi_neighbors(occl_mpi_comm_t *m, MPI_Comm comm, const occl_mpi_edge_t **in_p, int *nin_p,
                                 const occl_mpi_edge_t **out_p, int *nout_p, char *why, size_t len);

/* --- coll.c, persist.c -------------------------------------------------------------------------------------------- */

enum { OCCL_COLL_LIVE = 0x6f63636c, OCCL_COLL_FREE = 0x66726565 };
/* Never given back to malloc, so that a handle used after free is found out. */
struct MPIX_Occl_coll_s {
    atomic_uint magic;
    occl_coll_t *core;   /* NULL: a message to or from nobody */
    occl_coll_t *twin;   /* sendrecv: the send, beside the receive */
    int odd;             /* not just core */
    int source, tag;     /* of a receive, for the status; else MPI_UNDEFINED */
    occl_mpi_comm_t *m;
    const char *fn; /* MPIX_Occl_allreduce_init, for messages */
    int number;     /* in Fortran */
    struct MPIX_Occl_coll_s *next;
};
struct MPIX_Occl_coll_s *occl_mpi_coll_alloc(void);
void occl_mpi_coll_release(struct MPIX_Occl_coll_s *coll);
static inline int occl_mpi_coll_is_live(const struct MPIX_Occl_coll_s *c)
{
    return c && atomic_load_explicit(&c->magic, memory_order_acquire) == OCCL_COLL_LIVE;
}
static inline int occl_mpi_coll_is_attached(const struct MPIX_Occl_coll_s *c)
{
    return atomic_load_explicit(&c->m->attached, memory_order_acquire);
}
/* Why fn may not start or queue c, raised: it is not live, or not attached. MPI_SUCCESS: it may. */
int occl_mpi_coll_check(const char *fn, struct MPIX_Occl_coll_s *c);
/* A start of c by fn was refused: its partners are told, and the error is raised. Returns the code. */
int occl_mpi_coll_refuse(const char *fn, struct MPIX_Occl_coll_s *c, occl_status_t status, const char *text);
/* The same where the first `started` of its two runs were started. */
int occl_mpi_coll_refuse_rest(const char *fn, struct MPIX_Occl_coll_s *c, int started, occl_status_t status, const char *text);

/* MPIX_Occl_start under another name */
int occl_mpi_coll_start(const char *fn, struct MPIX_Occl_coll_s *c, MPI_Request *request);

/* --- queue.c ------------------------------------------------------------------------------------------------------ */

/* A queue as the user gave it -> as the core takes it. */
occl_status_t occl_mpi_queue_get(const occl_mpi_comm_t *m, int type, void *queue, void **core_p, char *why, size_t len);
/* MPIX_Occl_start_enqueue and MPIX_Occl_wait_enqueue in one, under another name */
int occl_mpi_coll_enqueue(const char *fn, struct MPIX_Occl_coll_s *c, int queue_type, void *queue);
/* In MPI_Finalize, before the core's end */
void occl_mpi_queues_free_all(void);

/* --- request.c ---------------------------------------------------------------------------------------------------- */

enum {
    OCCL_REQ_COMPLETE = 1, /* MPI was told */
    OCCL_REQ_OVER = 2,     /* the same, and the continuation may be called */
    OCCL_REQ_CONT = 4      /* there is one */
};

/* References: MPI's (until the free function), the run's callback, and whoever looks at it. */
typedef struct occl_mpi_req {
    struct occl_mpi_req *next;      /* in the table */
    struct occl_mpi_req *next_done; /* in the list of what the helper found over */
    uint64_t key;
    MPI_Request handle;
    occl_run_t *run;                /* NULL: there was nothing to do (MPI_PROC_NULL) */
    occl_run_t *twin;               /* sendrecv: the send, beside the receive */
    atomic_int left;                /* of the two, those that are not over */
    occl_mpi_comm_t *m;
    const char *fn;
    atomic_int refs;
    atomic_int state;               /* OCCL_REQ_*, bits only added */
    atomic_int quiet;               /* the query function lets MPI see success: we raise the error ourselves */
    int source, tag;                /* of a receive, else MPI_UNDEFINED */
    atomic_int code;                /* of the outcome, -1 as long as it was not asked for */
    int ended;                      /* by MPI_Finalize: the run is no more ... */
    occl_status_t how;              /* ... and this was its outcome */
    MPIX_Occl_Continue_function *fn_cont;
    void *cont_state;
} occl_mpi_req_t;

/* Whether a start may ask for an MPI_Request */
static inline int occl_mpi_req_allowed(void)
{
    return occl_mpi.hook != OCCL_HOOK_NONE || occl_mpi.level == MPI_THREAD_MULTIPLE;
}
/* Before the start, so that nothing can fail after it: NULL without memory */
occl_mpi_req_t *occl_mpi_req_alloc(occl_mpi_comm_t *m, const char *fn);
void occl_mpi_req_drop(occl_mpi_req_t *q); /* one that was never published */
/* Makes the MPI_Request of a started run, or of two (both NULL: complete at once). An MPI error code. */
int occl_mpi_req_publish(occl_mpi_req_t *q, occl_run_t *run, occl_run_t *twin, MPI_Request *request);
/* Ours, with a reference, or NULL */
occl_mpi_req_t *occl_mpi_req_find(MPI_Request request);
void occl_mpi_req_unref(occl_mpi_req_t *q);
/* Frees what MPI has let go of. Not from inside MPI. */
void occl_mpi_req_reap(void);
static inline int occl_mpi_req_is_over(const occl_mpi_req_t *q)
{
    return (!q->run || occl_run_is_over(q->run)) && (!q->twin || occl_run_is_over(q->twin));
}
/* The same; makes progress. */
static inline int occl_mpi_req_test(const occl_mpi_req_t *q)
{
    return (!q->run || occl_run_test(q->run)) & (!q->twin || occl_run_test(q->twin));
}
/* Over already: completes it in MPI's eyes, as MPI_Wait would. Returns the outcome's code; raises nothing. */
int occl_mpi_req_finish(occl_mpi_req_t *q, MPI_Request *request, MPI_Status *status);
/* Over already: MPI is told, if nobody has yet. */
void occl_mpi_req_tell(occl_mpi_req_t *q);
/* Error code of the outcome; only when over */
int occl_mpi_req_outcome(occl_mpi_req_t *q);
void occl_mpi_req_continue(occl_mpi_req_t *q, MPIX_Occl_Continue_function *fn, void *state);
/* Tells MPI about what the helper found over. By threads inside a call of MPI or ours. */
void occl_mpi_req_drain_slow(void);
extern _Atomic(occl_mpi_req_t *) occl_mpi_done;
static inline void occl_mpi_req_drain(void)
{
    if (OCCL_UNLIKELY(atomic_load_explicit(&occl_mpi_done, memory_order_relaxed) != NULL))
        occl_mpi_req_drain_slow();
}

#endif
