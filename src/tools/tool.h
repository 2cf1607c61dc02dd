/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tools share: command lines, statistics, and collectives as data: what to run, on which buffers, what
 * must come out. Nothing here times anything and nothing but tool_fatal ends the process.
 */
#ifndef OCCL_SRC_TOOLS_TOOL_H
#define OCCL_SRC_TOOLS_TOOL_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#include "mpix_occl.h"
#include "util/rng.h"

/* --- command lines ------------------------------------------------------------------------------------------------ */

typedef enum tool_opt_kind {
    TOOL_FLAG,   /* int *: set to 1 */
    TOOL_INT,    /* long *: min..max */
    TOOL_SIZE,   /* size_t *: K, M, G (1024) */
    TOOL_SEED,   /* uint64_t *: decimal or 0x... */
    TOOL_CHOICE, /* int *: the index in choices */
    TOOL_TEXT    /* const char ** */
} tool_opt_kind_t;

typedef struct tool_opt {
    const char *name;    /* "--iters", without a long form NULL */
    char letter;         /* 'n' for -n; 0: none */
    tool_opt_kind_t kind;
    void *value;
    const char *arg;     /* its name in the help */
    const char *help;    /* NULL: not listed */
    long min, max;       /* TOOL_INT */
    const char *choices; /* TOOL_CHOICE: "host|cuda" */
} tool_opt_t;

typedef struct tool_program {
    const char *name;
    const char *usage;    /* what follows the name */
    const char *about;    /* lines under the usage */
    const tool_opt_t *opts;
    const char *positional;        /* what the one positional argument is, or NULL: none allowed */
    const char **positional_value;
} tool_program_t;

typedef enum tool_parse { TOOL_GO, TOOL_DONE, TOOL_WRONG } tool_parse_t;

/*
 * --help and --version are answered here (TOOL_DONE). TOOL_WRONG: a message is in err; the caller prints it on one
 * rank. May be called before MPI_Init. The list of options ends with an all-zero one.
 */
tool_parse_t tool_parse(const tool_program_t *prog, int argc, char **argv, char *err, size_t errlen);
/* "128K", "2M", "77". 0, or -1. */
int tool_parse_size(const char *text, size_t *value_p);
/* The index of text in "a|b|c", or -1. */
int tool_choice(const char *choices, const char *text);

/* MPI_Finalize with the message of a wrong command line on rank 0; returns the exit status 2. MPI must be initialised. */
int tool_usage_error(const tool_program_t *prog, const char *err);
/* Prints "name: text" on stderr and MPI_Abort(1). For what no rank can go on from. */
void tool_fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* Where an MPI or MPIX_Occl call fails: tool_fatal with MPI's text. */
void tool_mpi_check(int rc, const char *what);
/* Deadlines in tests are multiplied by OCCL_TEST_SLACK (default 10; at least 1). */
double tool_slack(void);

/* --- devices ------------------------------------------------------------------------------------------------------ */

/* The numbers of "host|cuda" */
enum { TOOL_DEVICE_HOST, TOOL_DEVICE_CUDA };
#define TOOL_DEVICE_CHOICES "host|cuda"

/* What kind of memory a buffer is. All but the first need an open CUDA device. */
typedef enum tool_memory {
    TOOL_MEMORY_HOST,
    TOOL_MEMORY_DEVICE,   /* cudaMalloc */
    TOOL_MEMORY_PINNED,   /* cudaHostAlloc */
    TOOL_MEMORY_MANAGED,  /* cudaMallocManaged */
    TOOL_MEMORY_PAGEABLE, /* malloc, of a process that uses CUDA */
    TOOL_MEMORY_ASYNC,    /* cudaMallocAsync */
    TOOL_MEMORY_MAPPED,   /* cuMemCreate and cuMemMap, in pieces of 2 MiB or more, as PyTorch's expandable segments */
    TOOL_MEMORIES
} tool_memory_t;
/* The names of those from TOOL_MEMORY_DEVICE on */
#define TOOL_MEMORY_CHOICES "device|pinned|managed|pageable|async|mapped"
const char *tool_memory_name(tool_memory_t memory);

/* Exit status of a tool that cannot do what is asked on this machine, as of a test that is skipped */
#define TOOL_SKIP 77

/*
 * Collective over comm: every rank gets its device ready (cuda: the GPU of its rank on the node, modulo their number). NULL, or,
 * on all ranks, why a rank cannot (in err).
 */
const char *tool_device_open(int device, MPI_Comm comm, char *err, size_t errlen);
void tool_device_close(int device);
/* MPI_Finalize with that reason on rank 0; returns TOOL_SKIP. */
int tool_device_none(const tool_program_t *prog, const char *why);
/* Attach with the info key that asks for this device */
int tool_attach(MPI_Comm comm, int device);

/* --- time and statistics ------------------------------------------------------------------------------------------ */

double tool_now_us(void);                            /* monotonic; about 20 ns a call */
double tool_quantile(double *v, size_t n, double q); /* sorts v; nearest rank; 0 when n is 0 */

/* --- types and operations ----------------------------------------------------------------------------------------- */

/* X(id, name, MPI type, C type, family): family S signed, U unsigned, F floating */
#define TOOL_TYPE_TABLE(X)                               \
    X(INT8, "int8", MPI_INT8_T, int8_t, S)               \
    X(UINT8, "uint8", MPI_UINT8_T, uint8_t, U)           \
    X(INT16, "int16", MPI_INT16_T, int16_t, S)           \
    X(UINT16, "uint16", MPI_UINT16_T, uint16_t, U)       \
    X(INT32, "int32", MPI_INT32_T, int32_t, S)           \
    X(UINT32, "uint32", MPI_UINT32_T, uint32_t, U)       \
    X(INT64, "int64", MPI_INT64_T, int64_t, S)           \
    X(UINT64, "uint64", MPI_UINT64_T, uint64_t, U)       \
    X(FLOAT, "float", MPI_FLOAT, float, F)               \
    X(DOUBLE, "double", MPI_DOUBLE, double, F)           \
    X(LONGDOUBLE, "longdouble", MPI_LONG_DOUBLE, long double, F)

/* X(id, name, MPI op, integers only) */
#define TOOL_OP_TABLE(X)           \
    X(SUM, "sum", MPI_SUM, 0)      \
    X(PROD, "prod", MPI_PROD, 0)   \
    X(MAX, "max", MPI_MAX, 0)      \
    X(MIN, "min", MPI_MIN, 0)      \
    X(LAND, "land", MPI_LAND, 1)   \
    X(LOR, "lor", MPI_LOR, 1)      \
    X(LXOR, "lxor", MPI_LXOR, 1)   \
    X(BAND, "band", MPI_BAND, 1)   \
    X(BOR, "bor", MPI_BOR, 1)      \
    X(BXOR, "bxor", MPI_BXOR, 1)

/* X(id, name, flags): R reduces, O has a root, B its size counts one block a rank */
#define TOOL_COLL_TABLE(X)                                            \
    X(BARRIER, "barrier", 0)                                          \
    X(BCAST, "bcast", TOOL_ROOTED)                                    \
    X(REDUCE, "reduce", TOOL_REDUCES | TOOL_ROOTED)                   \
    X(ALLREDUCE, "allreduce", TOOL_REDUCES)                           \
    X(GATHER, "gather", TOOL_ROOTED | TOOL_BLOCKS)                    \
    X(SCATTER, "scatter", TOOL_ROOTED | TOOL_BLOCKS)                  \
    X(ALLGATHER, "allgather", TOOL_BLOCKS)                            \
    X(REDUCE_SCATTER_BLOCK, "reduce_scatter_block", TOOL_REDUCES | TOOL_BLOCKS) \
    X(ALLTOALL, "alltoall", TOOL_BLOCKS)                              \
    X(SENDRECV, "sendrecv", 0) /* every rank sends to the next one and receives from the one before */ \
    X(SCAN, "scan", TOOL_REDUCES)                                     \
    X(EXSCAN, "exscan", TOOL_REDUCES)                                 \
    X(REDUCE_SCATTER, "reduce_scatter", TOOL_REDUCES | TOOL_BLOCKS)   \
    X(GATHERV, "gatherv", TOOL_ROOTED | TOOL_BLOCKS)                  \
    X(SCATTERV, "scatterv", TOOL_ROOTED | TOOL_BLOCKS)                \
    X(ALLGATHERV, "allgatherv", TOOL_BLOCKS)                          \
    X(ALLTOALLV, "alltoallv", TOOL_BLOCKS)                            \
    X(ALLTOALLW, "alltoallw", TOOL_BLOCKS)

#define TOOL_REDUCES 1
#define TOOL_ROOTED 2
#define TOOL_BLOCKS 4

typedef enum tool_type {
#define X(id, name, mpi, c, family) TOOL_##id,
    TOOL_TYPE_TABLE(X)
#undef X
    TOOL_TYPES
} tool_type_t;

typedef enum tool_op {
#define X(id, name, mpi, integers) TOOL_##id,
    TOOL_OP_TABLE(X)
#undef X
    TOOL_OPS
} tool_op_t;

typedef enum tool_coll {
#define X(id, name, flags) TOOL_##id,
    TOOL_COLL_TABLE(X)
#undef X
    TOOL_COLLS
} tool_coll_t;

const char *tool_type_name(tool_type_t type);
const char *tool_op_name(tool_op_t op);
const char *tool_coll_name(tool_coll_t coll);
const char *tool_type_choices(void); /* "int8|uint8|..." */
const char *tool_op_choices(void);
const char *tool_coll_choices(void);
size_t tool_type_size(tool_type_t type);
int tool_op_allowed(tool_op_t op, tool_type_t type);
int tool_coll_flags(tool_coll_t coll);

/* --- jobs: a collective with its buffers -------------------------------------------------------------------------- */

/*
 * Fill in the first part (the rest zero), then tool_job_alloc. The contents of a buffer are a function of (salt, step,
 * rank that sends, index), chosen so that every sum is exact in the type, in any order: a check compares bits.
 */
typedef struct tool_job {
    tool_coll_t coll;
    tool_type_t type;
    tool_op_t op;
    MPI_Comm comm;
    int count;     /* MPI's: of one block where the operation has blocks; of the longest where each has a length */
    int uneven;    /* where each has a length: they are different, some empty. 0: all are alike */
    int root;
    int in_place;  /* MPI_IN_PLACE where this rank may; ignored by barrier, bcast and sendrecv */
    int tag;
    uint64_t salt; /* tells jobs of one step apart; the same on all members */
    tool_memory_t memory; /* of the buffers; members may differ */
    int shift;     /* the buffers begin so many elements behind an aligned address */

    int rank, size;
    size_t send_n, recv_n; /* elements; 0: the buffer is not significant here */
    void *send, *recv;     /* own memory, with a guard behind it */
    void *send_host, *recv_host; /* where the processor fills and checks them: the same, or a copy */
    void *send_mem, *recv_mem;
    int *lengths;   /* where each block has a length: [6][size], see tool_job_alloc */
    MPI_Datatype *types;
} tool_job_t;

/* MPI's own or our requests of one start; sendrecv has two. */
typedef struct tool_pending {
    MPI_Request req[2];
    int n;
} tool_pending_t;

void tool_job_alloc(tool_job_t *job);
void tool_job_free(tool_job_t *job);
/* Payload as nccl-tests counts it: the whole vector, over all blocks. */
size_t tool_job_bytes(const tool_job_t *job);
/* The count that makes tool_job_bytes <= bytes. */
int tool_job_count(tool_coll_t coll, tool_type_t type, int size, size_t bytes);
/* busbw = algbw * this (nccl-tests' factors: the traffic that the slowest link must carry at least). */
double tool_busbw_factor(tool_coll_t coll, int size);

void tool_job_fill(const tool_job_t *job, uint64_t step);
/* How many elements are not what they must be: results, the send buffer (it must be untouched) and the guards. */
uint64_t tool_job_check(const tool_job_t *job, uint64_t step);
/* Text about the first wrong element that tool_job_check meets. */
void tool_job_explain(const tool_job_t *job, uint64_t step, char *text, size_t len);
/* Flips one bit of a received buffer; 0 when this rank receives nothing. */
int tool_job_corrupt(const tool_job_t *job, uint64_t where);

/* All return MPI codes. */
int tool_occl_init(const tool_job_t *job, MPIX_Occl_Coll *coll_p); /* not sendrecv: it has no persistent form */
int tool_occl_start(const tool_job_t *job, tool_pending_t *p); /* nonblocking */
int tool_occl_enqueue(const tool_job_t *job, int type, void *queue); /* not sendrecv */
int tool_occl_wait(tool_pending_t *p);
int tool_mpi_start(const tool_job_t *job, tool_pending_t *p);  /* MPI's own, nonblocking */
int tool_mpi_wait(tool_pending_t *p);
int tool_mpi_blocking(const tool_job_t *job);
const char *tool_mpi_name(tool_coll_t coll); /* "MPI_Iallreduce" */

/* --- statistics of the library ------------------------------------------------------------------------------------ */

/* 0 when the library has no such number. comm may be MPI_COMM_NULL for one of the process. */
unsigned long long tool_stat(MPI_Comm comm, const char *name);

/* --- watchdog ------------------------------------------------------------------------------------------------------ */

/*
 * A thread that ends the process when it was not fed for so long: it runs report(state), then _exit(1), and the
 * launcher ends the other ranks. 0 seconds stops it.
 */
void tool_watchdog(double seconds, void (*report)(void *state), void *state);
void tool_watchdog_feed(void);

#endif
