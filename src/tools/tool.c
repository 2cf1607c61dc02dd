/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tools share; see tool.h. */
#include "tool.h"
#if TOOL_HAVE_CUDA
#include "tool_cuda.h"
#endif

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const char *tool_name = "occl";

/* --- command lines ------------------------------------------------------------------------------------------------ */

int tool_parse_size(const char *text, size_t *value_p)
{
    char *end;
    unsigned long long v, unit = 1;

    if (!isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    v = strtoull(text, &end, 10);
    switch (toupper((unsigned char)*end)) {
    case 'K': unit = 1024ull; end++; break;
    case 'M': unit = 1024ull * 1024; end++; break;
    case 'G': unit = 1024ull * 1024 * 1024; end++; break;
    default: break;
    }
    if (!strcasecmp(end, "iB"))
        end += 2;
    else if (!strcasecmp(end, "B"))
        end++;
    if (*end || errno || v > SIZE_MAX / unit)
        return -1;
    *value_p = (size_t)(v * unit);
    return 0;
}

int tool_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);
    int i = 0;

    for (const char *c = choices; len && *c; i++) {
        size_t n = strcspn(c, "|");
        if (n == len && !strncasecmp(c, text, n))
            return i;
        c += n;
        if (*c)
            c++;
    }
    return -1;
}

static void tool_help(const tool_program_t *prog)
{
    char left[80];

    printf("Usage: %s %s\n%s\n\nOptions:\n", prog->name, prog->usage, prog->about);
    for (const tool_opt_t *o = prog->opts; o->name || o->letter; o++) {
        if (!o->help)
            continue;
        int n = 0;
        if (o->letter)
            n += snprintf(left + n, sizeof left - (size_t)n, "-%c%s", o->letter, o->name ? ", " : "");
        if (o->name)
            n += snprintf(left + n, sizeof left - (size_t)n, "%s", o->name);
        if (o->kind != TOOL_FLAG)
            n += snprintf(left + n, sizeof left - (size_t)n, " %s", o->arg);
        if (n < 25)
            printf("  %-24s %s\n", left, o->help);
        else
            printf("  %s\n  %-24s %s\n", left, "", o->help);
    }
    printf("  %-24s %s\n  %-24s %s\n", "--help", "this text", "--version", "the library's version");
}

static tool_parse_t tool_set(const tool_opt_t *o, const char *shown, const char *text, char *err, size_t errlen)
{
    char *end;

    switch (o->kind) {
    case TOOL_FLAG:
        *(int *)o->value = 1;
        return TOOL_GO;
    case TOOL_INT: {
        errno = 0;
        long v = strtol(text, &end, 10);
        if (errno || end == text || *end || v < o->min || v > o->max) {
            snprintf(err, errlen, "%s takes a number from %ld to %ld, not \"%s\"", shown, o->min, o->max, text);
            return TOOL_WRONG;
        }
        *(long *)o->value = v;
        return TOOL_GO;
    }
    case TOOL_SIZE:
        if (tool_parse_size(text, o->value)) {
            snprintf(err, errlen, "%s takes a size such as 8, 64K or 16M, not \"%s\"", shown, text);
            return TOOL_WRONG;
        }
        return TOOL_GO;
    case TOOL_SEED:
        errno = 0;
        *(uint64_t *)o->value = strtoull(text, &end, 0);
        if (errno || end == text || *end) {
            snprintf(err, errlen, "%s takes a whole number, not \"%s\"", shown, text);
            return TOOL_WRONG;
        }
        return TOOL_GO;
    case TOOL_CHOICE: {
        int i = tool_choice(o->choices, text);
        if (i < 0) {
            snprintf(err, errlen, "%s takes one of %s, not \"%s\"", shown, o->choices, text);
            return TOOL_WRONG;
        }
        *(int *)o->value = i;
        return TOOL_GO;
    }
    case TOOL_TEXT:
        *(const char **)o->value = text;
        return TOOL_GO;
    }
    return TOOL_WRONG;
}

tool_parse_t tool_parse(const tool_program_t *prog, int argc, char **argv, char *err, size_t errlen)
{
    tool_name = prog->name;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = NULL;
        const tool_opt_t *o;
        char shown[64];

        if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
            tool_help(prog);
            return TOOL_DONE;
        }
        if (!strcmp(a, "--version")) {
            int major, minor, patch;
            MPIX_Occl_get_version(&major, &minor, &patch);
            printf("%s (MPIX_Occl) %d.%d.%d\n", prog->name, major, minor, patch);
            return TOOL_DONE;
        }
        if (a[0] != '-' || !a[1]) {
            if (!prog->positional || *prog->positional_value) {
                snprintf(err, errlen, "one argument too many: \"%s\"", a);
                return TOOL_WRONG;
            }
            *prog->positional_value = a;
            continue;
        }
        for (o = prog->opts; o->name || o->letter; o++) {
            size_t n = o->name ? strlen(o->name) : 0;
            if (n && !strncmp(a, o->name, n) && (!a[n] || a[n] == '=')) {
                value = a[n] ? a + n + 1 : NULL;
                break;
            }
            if (o->letter && a[1] == o->letter) {
                value = a[2] ? a + 2 : NULL;
                break;
            }
        }
        if (!o->name && !o->letter) {
            snprintf(err, errlen, "no option \"%s\"", a);
            return TOOL_WRONG;
        }
        snprintf(shown, sizeof shown, "%.*s", a[1] == '-' ? (int)strcspn(a, "=") : 2, a);
        if (o->kind == TOOL_FLAG && value) {
            snprintf(err, errlen, "%s takes no value", shown);
            return TOOL_WRONG;
        }
        if (o->kind != TOOL_FLAG && !value) {
            if (i + 1 >= argc) {
                snprintf(err, errlen, "%s needs a value (%s)", shown, o->arg);
                return TOOL_WRONG;
            }
            value = argv[++i];
        }
        if (tool_set(o, shown, value, err, errlen) != TOOL_GO)
            return TOOL_WRONG;
    }
    if (prog->positional && !*prog->positional_value) {
        snprintf(err, errlen, "no %s given", prog->positional);
        return TOOL_WRONG;
    }
    return TOOL_GO;
}

int tool_usage_error(const tool_program_t *prog, const char *err)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "%s: %s\nUsage: %s %s\n(%s --help tells more)\n", prog->name, err, prog->name, prog->usage,
                prog->name);
    MPI_Finalize();
    return 2;
}

void tool_fatal(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    int on = 0, off = 0;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s: %s\n", tool_name, text);
    fflush(NULL);
    MPI_Initialized(&on);
    MPI_Finalized(&off);
    if (on && !off)
        MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

void tool_mpi_check(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;

    if (rc == MPI_SUCCESS)
        return;
    if (MPI_Error_string(rc, text, &len) != MPI_SUCCESS)
        len = 0;
    text[len] = 0;
    tool_fatal("%s failed: %s (code %d)", what, text, rc);
}

double tool_slack(void)
{
    const char *text = getenv("OCCL_TEST_SLACK");
    double slack = text ? atof(text) : 10;

    return slack >= 1 ? slack : 1;
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

const char *tool_memory_name(tool_memory_t memory)
{
    static const char *const names[TOOL_MEMORIES] = {"host", "device", "pinned", "managed", "pageable", "async", "mapped"};

    return names[memory];
}

const char *tool_device_open(int device, MPI_Comm comm, char *err, size_t errlen)
{
    char why[256] = "";
    MPI_Comm node;
    int rank, local, have, first, where;

    if (device == TOOL_DEVICE_HOST)
        return NULL;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &local);
    MPI_Comm_free(&node);
#if TOOL_HAVE_CUDA
    have = tool_cuda_open(local, why, sizeof why) == NULL;
#else
    (void)local;
    have = 0;
    snprintf(why, sizeof why, "built without CUDA: this build has no CUDA device (`occl_info` shows what is there)");
#endif
    where = have ? INT32_MAX : rank;
    MPI_Allreduce(&where, &first, 1, MPI_INT, MPI_MIN, comm);
    if (first == INT32_MAX)
        return NULL;
    MPI_Bcast(why, sizeof why, MPI_CHAR, first, comm);
    snprintf(err, errlen, "rank %d: %s", first, why);
    return err;
}

void tool_device_close(int device)
{
#if TOOL_HAVE_CUDA
    if (device == TOOL_DEVICE_CUDA)
        tool_cuda_close();
#else
    (void)device;
#endif
}

int tool_device_none(const tool_program_t *prog, const char *why)
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        fprintf(stderr, "%s: --device cuda: %s\n", prog->name, why);
    MPI_Finalize();
    return TOOL_SKIP;
}

int tool_attach(MPI_Comm comm, int device)
{
    MPI_Info info;
    int rc;

    MPI_Info_create(&info);
    MPI_Info_set(info, "mpix_occl_device", device == TOOL_DEVICE_CUDA ? "cuda" : "host");
    rc = MPIX_Occl_comm_attach(comm, info);
    MPI_Info_free(&info);
    return rc;
}

/* --- time and statistics ------------------------------------------------------------------------------------------ */

double tool_now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static int tool_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double tool_quantile(double *v, size_t n, double q)
{
    size_t i;

    if (!n)
        return 0;
    qsort(v, n, sizeof *v, tool_compare);
    i = (size_t)(q * (double)n);
    return v[i < n ? i : n - 1];
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

#define S 0
#define U 1
#define F 2
static const struct {
    const char *name;
    size_t size;
    int family;
} tool_types[TOOL_TYPES] = {
#define X(id, name, mpi, c, family) {name, sizeof(c), family},
    TOOL_TYPE_TABLE(X)
#undef X
};
static const struct {
    const char *name;
    int integers;
} tool_ops[TOOL_OPS] = {
#define X(id, name, mpi, integers) {name, integers},
    TOOL_OP_TABLE(X)
#undef X
};
static const struct {
    const char *name, *mpi_name;
    int flags;
} tool_colls[TOOL_COLLS] = {
#define X(id, name, flags) {name, "MPI_I" name, flags},
    TOOL_COLL_TABLE(X)
#undef X
};

/* Not tables: a handle need not be a constant */
static MPI_Datatype tool_mpi_type(tool_type_t type)
{
    switch (type) {
#define X(id, name, mpi, c, family) case TOOL_##id: return mpi;
    TOOL_TYPE_TABLE(X)
#undef X
    default: return MPI_DATATYPE_NULL;
    }
}

static MPI_Op tool_mpi_op(tool_op_t op)
{
    switch (op) {
#define X(id, name, mpi, integers) case TOOL_##id: return mpi;
    TOOL_OP_TABLE(X)
#undef X
    default: return MPI_OP_NULL;
    }
}

const char *tool_type_name(tool_type_t type) { return tool_types[type].name; }
const char *tool_op_name(tool_op_t op) { return tool_ops[op].name; }
const char *tool_coll_name(tool_coll_t coll) { return tool_colls[coll].name; }
size_t tool_type_size(tool_type_t type) { return tool_types[type].size; }
int tool_op_allowed(tool_op_t op, tool_type_t type) { return !tool_ops[op].integers || tool_types[type].family != F; }
int tool_coll_flags(tool_coll_t coll) { return tool_colls[coll].flags; }
const char *tool_mpi_name(tool_coll_t coll)
{
    return coll == TOOL_SENDRECV ? "MPI_Isend" : tool_colls[coll].mpi_name;
}

#define X(id, name, ...) "|" name
const char *tool_type_choices(void) { return (TOOL_TYPE_TABLE(X)) + 1; }
const char *tool_op_choices(void) { return (TOOL_OP_TABLE(X)) + 1; }
const char *tool_coll_choices(void) { return (TOOL_COLL_TABLE(X)) + 1; }
#undef X

/* --- what the data are -------------------------------------------------------------------------------------------- */

/*
 * One start's data as small whole numbers, so that every partial result is exact in the type: whoever adds in whatever
 * order gets the same bits, and a rank that is counted twice or not at all changes them.
 */
typedef struct tool_gen {
    uint64_t key;   /* job and step */
    int reduces;
    tool_op_t op;
    int family;
    unsigned bits;  /* values with so many bits are exact, sums over all ranks included */
    int n;          /* ranks */
} tool_gen_t;

static tool_gen_t tool_gen(const tool_job_t *job, uint64_t step)
{
    static const unsigned exact_float[] = {24, 53, 64}; /* float, double, long double */
    tool_gen_t g = {0};
    unsigned bits;

    g.key = job->salt * 0x9e3779b97f4a7c15u ^ (step + 1) * 0xc2b2ae3d27d4eb4fu;
    g.reduces = !!(tool_colls[job->coll].flags & TOOL_REDUCES);
    g.op = job->op;
    g.family = tool_types[job->type].family;
    g.n = job->size;
    if (g.family == F)
        bits = exact_float[job->type - TOOL_FLOAT];
    else
        bits = (unsigned)tool_types[job->type].size * 8 - (g.family == S);
    if (bits > 62)
        bits = 62; /* computed as int64_t here */
    if (g.reduces && (g.op == TOOL_SUM))
        for (int k = 1; k < g.n && bits > 1; k *= 2)
            bits--;
    g.bits = bits;
    return g;
}

static inline uint64_t tool_hash(uint64_t key, uint64_t rank, uint64_t i)
{
    uint64_t x = key + rank * 0xd6e8feb86659fd93u + i * 0x9fb21c651e98df25u;

    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 29;
    return x;
}

static inline int64_t tool_value(const tool_gen_t *g, int rank, uint64_t i)
{
    uint64_t h = tool_hash(g->key, (uint64_t)rank, i);

    if (g->reduces && g->op == TOOL_PROD) {
        /* one rank brings 2 or 3, the others 1: twice or not at all is seen; which rank changes with the index */
        uint64_t who = tool_hash(g->key, 1u << 20, i);
        return (int64_t)(who % (uint64_t)g->n) == rank ? 2 + (int64_t)((who >> 40) & 1) : 1;
    }
    if (g->reduces && (g->op == TOOL_LAND || g->op == TOOL_LOR || g->op == TOOL_LXOR)) {
        /* mostly the value that decides nothing, so that every rank matters somewhere */
        uint64_t odd = (h >> 8) % (uint64_t)(g->n + 1) == 0;
        return g->op == TOOL_LAND ? !odd : g->op == TOOL_LOR ? (int64_t)odd : (int64_t)(h & 1);
    }
    if (g->reduces && (g->op == TOOL_BAND || g->op == TOOL_BOR))
        h = g->op == TOOL_BAND ? h | (h << 7) | (h >> 11) : h & (h << 7) & (h >> 11);
    h >>= 1;
    return (int64_t)(h & ((1ull << g->bits) - 1)) - (g->family == U ? 0 : (int64_t)(1ull << (g->bits - 1)));
}

static inline int64_t tool_combine(tool_op_t op, int64_t a, int64_t b)
{
    switch (op) {
    case TOOL_SUM: return a + b;
    case TOOL_PROD: return a * b;
    case TOOL_MAX: return a > b ? a : b;
    case TOOL_MIN: return a < b ? a : b;
    case TOOL_LAND: return a && b;
    case TOOL_LOR: return a || b;
    case TOOL_LXOR: return !a != !b;
    case TOOL_BAND: return a & b;
    case TOOL_BOR: return a | b;
    case TOOL_BXOR: return a ^ b;
    default: return 0;
    }
}

/* Of the first `ranks` ranks */
static int64_t tool_prefix(const tool_gen_t *g, int ranks, uint64_t i)
{
    int64_t v = tool_value(g, 0, i);

    for (int r = 1; r < ranks; r++)
        v = tool_combine(g->op, v, tool_value(g, r, i));
    return v;
}

static int64_t tool_reduced(const tool_gen_t *g, uint64_t i) { return tool_prefix(g, g->n, i); }

/* Where each block has a length: of the one from rank to rank. Symmetric, so that it may be exchanged in place. Blocks lie `count`
 * apart, so that shorter ones leave gaps; but those of a reduce_scatter are parts of one vector. */
static int tool_length(const tool_job_t *job, int from, int to)
{
    int n = job->count, k;

    switch (job->coll) {
    case TOOL_REDUCE_SCATTER:
    case TOOL_SCATTERV: k = to; break;
    case TOOL_GATHERV:
    case TOOL_ALLGATHERV: k = from; break;
    default: k = from + to; break;
    }
    return !job->uneven || k % 4 == 0 ? n : k % 4 == 1 ? n / 3 : k % 4 == 2 ? n - n / 5 : 0;
}

static size_t tool_parts_before(const tool_job_t *job, int rank)
{
    size_t n = 0;

    for (int r = 0; r < rank; r++)
        n += (size_t)tool_length(job, 0, r);
    return n;
}

/* Is element i of the receive buffer one of the result? */
static inline int tool_counts(const tool_job_t *job, uint64_t i)
{
    uint64_t block = (uint64_t)job->count;

    switch (job->coll) {
    case TOOL_EXSCAN: return job->rank > 0;
    case TOOL_GATHERV:
    case TOOL_ALLGATHERV:
    case TOOL_ALLTOALLV:
    case TOOL_ALLTOALLW: return i % block < (uint64_t)tool_length(job, (int)(i / block), job->rank);
    case TOOL_SCATTERV: return i < (uint64_t)tool_length(job, job->root, job->rank);
    default: return 1;
    }
}

/* Element i that `rank` sends */
static void tool_put(const tool_job_t *job, const tool_gen_t *g, void *buf, size_t n, int rank)
{
    switch (job->type) {
#define X(id, name, mpi, c, family)                           \
    case TOOL_##id:                                           \
        for (size_t i = 0; i < n; i++)                        \
            ((c *)buf)[i] = (c)tool_value(g, rank, i);        \
        break;
    TOOL_TYPE_TABLE(X)
#undef X
    default: break;
    }
}

/* Element i of what this rank must have received */
static inline int64_t tool_expected(const tool_job_t *job, const tool_gen_t *g, uint64_t i)
{
    uint64_t block = (uint64_t)job->count, me = (uint64_t)job->rank;

    switch (job->coll) {
    case TOOL_BCAST: return tool_value(g, job->root, i);
    case TOOL_REDUCE:
    case TOOL_ALLREDUCE: return tool_reduced(g, i);
    case TOOL_GATHER:
    case TOOL_ALLGATHER: return tool_value(g, (int)(i / block), i % block);
    case TOOL_SCATTER: return tool_value(g, job->root, me * block + i);
    case TOOL_REDUCE_SCATTER_BLOCK: return tool_reduced(g, me * block + i);
    case TOOL_ALLTOALL: return tool_value(g, (int)(i / block), me * block + i % block);
    case TOOL_SENDRECV: return tool_value(g, (job->rank + job->size - 1) % job->size, i);
    case TOOL_SCAN: return tool_prefix(g, job->rank + 1, i);
    case TOOL_EXSCAN: return tool_prefix(g, job->rank, i);
    case TOOL_REDUCE_SCATTER: return tool_reduced(g, tool_parts_before(job, job->rank) + i);
    case TOOL_GATHERV:
    case TOOL_ALLGATHERV: return tool_value(g, (int)(i / block), i % block);
    case TOOL_SCATTERV: return tool_value(g, job->root, me * block + i);
    case TOOL_ALLTOALLV:
    case TOOL_ALLTOALLW: return tool_value(g, (int)(i / block), me * block + i % block);
    default: return 0;
    }
}

/* --- jobs --------------------------------------------------------------------------------------------------------- */

#define TOOL_GUARD 64
#define TOOL_GUARD_BYTE 0xA5
#define TOOL_POISON_BYTE 0xDB

/* Whether the processor cannot touch it: then it works on a copy */
static int tool_far(tool_memory_t memory)
{
    return memory == TOOL_MEMORY_DEVICE || memory == TOOL_MEMORY_ASYNC || memory == TOOL_MEMORY_MAPPED;
}

static void tool_memory_copy(void *to, const void *from, size_t bytes)
{
#if TOOL_HAVE_CUDA
    tool_cuda_copy(to, from, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

static void tool_memory_free(tool_memory_t memory, void *p)
{
#if TOOL_HAVE_CUDA
    if (memory != TOOL_MEMORY_HOST) {
        tool_cuda_free(memory, p);
        return;
    }
#else
    (void)memory;
#endif
    free(p);
}

/* n elements of es bytes and the guard */
static void *tool_buffer(const tool_job_t *job, size_t n, size_t es, void **mem_p, void **host_p)
{
    size_t shift = (size_t)job->shift * es, bytes = n * es;
    char *p;

#if TOOL_HAVE_CUDA
    *mem_p = job->memory == TOOL_MEMORY_HOST ? NULL : tool_cuda_alloc(job->memory, shift + bytes + TOOL_GUARD);
#endif
    if (job->memory == TOOL_MEMORY_HOST && posix_memalign(mem_p, 64, shift + bytes + TOOL_GUARD))
        tool_fatal("no memory for a buffer of %zu bytes", bytes);
    p = (char *)*mem_p + shift;
    *host_p = p;
    if (tool_far(job->memory) && posix_memalign(host_p, 64, bytes + TOOL_GUARD))
        tool_fatal("no memory for a copy of %zu bytes", bytes);
    memset(*host_p, 0, bytes);
    memset((char *)*host_p + bytes, TOOL_GUARD_BYTE, TOOL_GUARD);
    return p;
}

/* The processor's copies to where the collective finds them, and back */
static void tool_job_push(const tool_job_t *job)
{
    size_t es = tool_type_size(job->type);

    if (!tool_far(job->memory))
        return;
    if (job->send)
        tool_memory_copy(job->send, job->send_host, job->send_n * es + TOOL_GUARD);
    if (job->recv)
        tool_memory_copy(job->recv, job->recv_host, job->recv_n * es + TOOL_GUARD);
}

static void tool_job_pull(const tool_job_t *job)
{
    size_t es = tool_type_size(job->type);

    if (!tool_far(job->memory))
        return;
    if (job->send)
        tool_memory_copy(job->send_host, job->send, job->send_n * es + TOOL_GUARD);
    if (job->recv)
        tool_memory_copy(job->recv_host, job->recv, job->recv_n * es + TOOL_GUARD);
}

static int tool_job_in_place(const tool_job_t *job)
{
    switch (job->coll) {
    case TOOL_BARRIER:
    case TOOL_BCAST:
    case TOOL_SENDRECV: return 0;
    case TOOL_REDUCE:
    case TOOL_GATHER:
    case TOOL_GATHERV:
    case TOOL_SCATTERV:
    case TOOL_SCATTER: return job->in_place && job->rank == job->root;
    default: return job->in_place;
    }
}

void tool_job_alloc(tool_job_t *job)
{
    size_t one, all, es = tool_type_size(job->type);
    int root;

    MPI_Comm_rank(job->comm, &job->rank);
    MPI_Comm_size(job->comm, &job->size);
    one = (size_t)job->count;
    all = one * (size_t)job->size;
    root = job->rank == job->root;
    job->send_n = job->recv_n = 0;
    switch (job->coll) {
    case TOOL_BARRIER: break;
    case TOOL_BCAST: job->recv_n = one; break;
    case TOOL_REDUCE: job->send_n = one; job->recv_n = root ? one : 0; break;
    case TOOL_ALLREDUCE:
    case TOOL_SCAN:
    case TOOL_EXSCAN:
    case TOOL_SENDRECV: job->send_n = job->recv_n = one; break;
    case TOOL_GATHERV:
    case TOOL_GATHER: job->send_n = one; job->recv_n = root ? all : 0; break;
    case TOOL_SCATTERV:
    case TOOL_SCATTER: job->send_n = root ? all : 0; job->recv_n = one; break;
    case TOOL_ALLGATHERV:
    case TOOL_ALLGATHER: job->send_n = one; job->recv_n = all; break;
    case TOOL_REDUCE_SCATTER_BLOCK: job->send_n = all; job->recv_n = tool_job_in_place(job) ? all : one; break;
    case TOOL_ALLTOALLV:
    case TOOL_ALLTOALLW:
    case TOOL_ALLTOALL: job->send_n = job->recv_n = all; break;
    case TOOL_REDUCE_SCATTER:
        job->send_n = tool_parts_before(job, job->size);
        job->recv_n = tool_job_in_place(job) ? job->send_n : (size_t)tool_length(job, 0, job->rank);
        break;
    default: break;
    }
    /* MPI's nonblocking calls want their arrays to stay: lengths to send, where; to receive, where; both places in bytes. */
    job->lengths = calloc(6 * (size_t)job->size, sizeof *job->lengths);
    job->types = calloc((size_t)job->size, sizeof *job->types);
    if (!job->lengths || !job->types)
        tool_fatal("no memory");
    for (int r = 0, n = job->size; r < n; r++) {
        job->lengths[r] = tool_length(job, job->rank, r);
        job->lengths[2 * n + r] = job->coll == TOOL_REDUCE_SCATTER ? tool_length(job, 0, r) : tool_length(job, r, job->rank);
        job->lengths[n + r] = job->lengths[3 * n + r] = r * job->count;
        job->lengths[4 * n + r] = job->lengths[5 * n + r] = r * job->count * (int)es;
        job->types[r] = tool_mpi_type(job->type);
    }
    if (tool_job_in_place(job)) {
        if (job->coll == TOOL_SCATTER || job->coll == TOOL_SCATTERV)
            job->recv_n = 0;
        else
            job->send_n = 0;
    }
    job->send = job->recv = job->send_host = job->recv_host = job->send_mem = job->recv_mem = NULL;
    if (job->send_n)
        job->send = tool_buffer(job, job->send_n, es, &job->send_mem, &job->send_host);
    if (job->recv_n)
        job->recv = tool_buffer(job, job->recv_n, es, &job->recv_mem, &job->recv_host);
    tool_job_push(job);
}

void tool_job_free(tool_job_t *job)
{
    if (tool_far(job->memory)) {
        free(job->send_host);
        free(job->recv_host);
    }
    tool_memory_free(job->memory, job->send_mem);
    tool_memory_free(job->memory, job->recv_mem);
    free(job->lengths);
    free(job->types);
    job->lengths = NULL;
    job->types = NULL;
    job->send = job->recv = job->send_host = job->recv_host = job->send_mem = job->recv_mem = NULL;
}

size_t tool_job_bytes(const tool_job_t *job)
{
    size_t bytes = (size_t)job->count * tool_type_size(job->type);

    if (job->coll == TOOL_BARRIER)
        return 0;
    return tool_colls[job->coll].flags & TOOL_BLOCKS ? bytes * (size_t)job->size : bytes;
}

int tool_job_count(tool_coll_t coll, tool_type_t type, int size, size_t bytes)
{
    size_t n = bytes / tool_type_size(type);

    if (coll == TOOL_BARRIER)
        return 0;
    if (tool_colls[coll].flags & TOOL_BLOCKS)
        n /= (size_t)size;
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

double tool_busbw_factor(tool_coll_t coll, int size)
{
    double n = size;

    switch (coll) {
    case TOOL_ALLREDUCE: return 2 * (n - 1) / n;
    case TOOL_GATHER:
    case TOOL_SCATTER:
    case TOOL_ALLGATHER:
    case TOOL_REDUCE_SCATTER_BLOCK:
    case TOOL_REDUCE_SCATTER:
    case TOOL_GATHERV:
    case TOOL_SCATTERV:
    case TOOL_ALLGATHERV:
    case TOOL_ALLTOALLV:
    case TOOL_ALLTOALLW:
    case TOOL_ALLTOALL: return (n - 1) / n;
    case TOOL_BARRIER: return 0;
    default: return 1; /* bcast, reduce, sendrecv, scans */
    }
}

void tool_job_fill(const tool_job_t *job, uint64_t step)
{
    tool_gen_t g = tool_gen(job, step);
    size_t es = tool_type_size(job->type), one = (size_t)job->count;
    int in_place = tool_job_in_place(job);

    if (job->recv_n)
        memset(job->recv_host, TOOL_POISON_BYTE, job->recv_n * es);
    if (job->send_n)
        tool_put(job, &g, job->send_host, job->send_n, job->rank);
    if (job->coll == TOOL_BCAST && job->rank == job->root)
        tool_put(job, &g, job->recv_host, one, job->rank);
    if (in_place && job->coll != TOOL_SCATTER && job->coll != TOOL_SCATTERV) {
        if (job->coll == TOOL_GATHER || job->coll == TOOL_ALLGATHER || job->coll == TOOL_GATHERV || job->coll == TOOL_ALLGATHERV)
            tool_put(job, &g, (char *)job->recv_host + es * one * (size_t)job->rank, one, job->rank);
        else
            tool_put(job, &g, job->recv_host, job->recv_n, job->rank);
    }
    tool_job_push(job);
}

/* Elements of the receive buffer that are looked at: in place, a reduce_scatter leaves what lies behind the first block undefined. */
static size_t tool_results(const tool_job_t *job)
{
    return job->coll == TOOL_REDUCE_SCATTER_BLOCK ? (size_t)job->count
           : job->coll == TOOL_REDUCE_SCATTER     ? (size_t)tool_length(job, 0, job->rank)
                                                  : job->recv_n;
}

/* Whether element i, which is none of the result, is as it was. In place it was data. */
static int tool_untouched(const tool_job_t *job, size_t i, size_t es)
{
    const unsigned char *p = (const unsigned char *)job->recv_host + i * es;

    for (size_t b = 0; b < es && !job->in_place; b++)
        if (p[b] != TOOL_POISON_BYTE)
            return 0;
    return 1;
}

/* Calls found(what, index, got, want) for the first wrong one; returns how many. */
static uint64_t tool_job_compare(const tool_job_t *job, uint64_t step, char *text, size_t len)
{
    tool_gen_t g = tool_gen(job, step);
    size_t es = tool_type_size(job->type);
    size_t n = tool_results(job);
    uint64_t wrong = 0;

    tool_job_pull(job);
#define TOOL_DIFFERS(what, c, got, want)                                                                            \
    do {                                                                                                            \
        if (!wrong++ && text)                                                                                       \
            snprintf(text, len, "%s[%zu] is %.20Lg, must be %.20Lg", what, i, (long double)(got), (long double)(want)); \
    } while (0)
    switch (job->type) {
#define X(id, name, mpi, c, family)                                      \
    case TOOL_##id:                                                      \
        for (size_t i = 0; i < n && job->recv_n; i++) {                  \
            if (!tool_counts(job, i)) {                                  \
                if (!tool_untouched(job, i, es))                         \
                    TOOL_DIFFERS("between the blocks: element", c, ((c *)job->recv_host)[i], 0); \
                continue;                                                \
            }                                                            \
            c want = (c)tool_expected(job, &g, i), got = ((c *)job->recv_host)[i]; \
            if (got != want)                                             \
                TOOL_DIFFERS("receive buffer", c, got, want);            \
        }                                                                \
        for (size_t i = 0; i < job->send_n; i++) {                       \
            c want = (c)tool_value(&g, job->rank, i), got = ((c *)job->send_host)[i]; \
            if (got != want)                                             \
                TOOL_DIFFERS("send buffer", c, got, want);               \
        }                                                                \
        break;
    TOOL_TYPE_TABLE(X)
#undef X
    default: break;
    }
    for (int side = 0; side < 2; side++) {
        const unsigned char *guard = side ? job->recv_host : job->send_host;
        if (!guard)
            continue;
        guard += (side ? job->recv_n : job->send_n) * es;
        for (size_t i = 0; i < TOOL_GUARD; i++)
            if (guard[i] != TOOL_GUARD_BYTE)
                TOOL_DIFFERS(side ? "behind the receive buffer: byte" : "behind the send buffer: byte", int, guard[i],
                             TOOL_GUARD_BYTE);
    }
    return wrong;
}

uint64_t tool_job_check(const tool_job_t *job, uint64_t step)
{
    return tool_job_compare(job, step, NULL, 0);
}

void tool_job_explain(const tool_job_t *job, uint64_t step, char *text, size_t len)
{
    char first[256] = "nothing is wrong";
    uint64_t wrong = tool_job_compare(job, step, first, sizeof first);

    snprintf(text, len, "%s of %d %s%s%s, tag %d, root %d%s: %llu wrong; %s", tool_coll_name(job->coll), job->count,
             tool_type_name(job->type), tool_colls[job->coll].flags & TOOL_REDUCES ? " " : "",
             tool_colls[job->coll].flags & TOOL_REDUCES ? tool_op_name(job->op) : "", job->tag, job->root,
             tool_job_in_place(job) ? ", in place" : "", (unsigned long long)wrong, first);
}

int tool_job_corrupt(const tool_job_t *job, uint64_t where)
{
    size_t n = tool_results(job), tries = 0;
    size_t es = tool_type_size(job->type), bytes;

    if (!job->recv_n || !n)
        return 0;
    while (!tool_counts(job, where % n))
        if (where++, ++tries > n)
            return 0;
    /* a long double has bytes that mean nothing: the first one of an element always counts */
    bytes = (size_t)(where % n) * es;
    tool_job_pull(job);
    ((unsigned char *)job->recv_host)[bytes] ^= 1;
    tool_job_push(job);
    return 1;
}

/* --- starting them ------------------------------------------------------------------------------------------------ */

/* The arguments as MPI has them */
typedef struct tool_args {
    const void *send;
    void *recv;
    int count, root, right, left;
    MPI_Datatype type;
    MPI_Op op;
    int own, mine; /* elements that I send, or get, where the others' lengths are others */
    const int *sn, *sd, *rn, *rd, *sb, *rb;
    const MPI_Datatype *types;
} tool_args_t;

static tool_args_t tool_args(const tool_job_t *job)
{
    tool_args_t a;
    int in_place = tool_job_in_place(job);

    int scatters = job->coll == TOOL_SCATTER || job->coll == TOOL_SCATTERV, n = job->size;

    a.send = in_place && !scatters ? MPI_IN_PLACE : job->send;
    a.recv = in_place && scatters ? MPI_IN_PLACE : job->recv;
    a.own = tool_length(job, job->rank, job->root);
    a.mine = tool_length(job, job->root, job->rank);
    a.sn = job->lengths;
    a.sd = a.sn + n;
    a.rn = a.sd + n;
    a.rd = a.rn + n;
    a.sb = a.rd + n;
    a.rb = a.sb + n;
    a.types = job->types;
    a.count = job->count;
    a.root = job->root;
    a.type = tool_mpi_type(job->type);
    a.op = tool_mpi_op(job->op);
    a.right = (job->rank + 1) % job->size;
    a.left = (job->rank + job->size - 1) % job->size;
    return a;
}

/* One list for every way to call: NAME makes the function's name, the last arguments are what MPI's own list does not have */
#define TOOL_CALL(coll_, NAME, ...)                                                                             \
    switch (coll_) {                                                                                            \
    case TOOL_BARRIER: rc = NAME(barrier)(__VA_ARGS__); break;                                                  \
    case TOOL_BCAST: rc = NAME(bcast)(a.recv, a.count, a.type, a.root, __VA_ARGS__); break;                     \
    case TOOL_REDUCE: rc = NAME(reduce)(a.send, a.recv, a.count, a.type, a.op, a.root, __VA_ARGS__); break;     \
    case TOOL_ALLREDUCE: rc = NAME(allreduce)(a.send, a.recv, a.count, a.type, a.op, __VA_ARGS__); break;       \
    case TOOL_GATHER:                                                                                           \
        rc = NAME(gather)(a.send, a.count, a.type, a.recv, a.count, a.type, a.root, __VA_ARGS__);               \
        break;                                                                                                  \
    case TOOL_SCATTER:                                                                                          \
        rc = NAME(scatter)(a.send, a.count, a.type, a.recv, a.count, a.type, a.root, __VA_ARGS__);              \
        break;                                                                                                  \
    case TOOL_ALLGATHER:                                                                                        \
        rc = NAME(allgather)(a.send, a.count, a.type, a.recv, a.count, a.type, __VA_ARGS__);                    \
        break;                                                                                                  \
    case TOOL_REDUCE_SCATTER_BLOCK:                                                                             \
        rc = NAME(reduce_scatter_block)(a.send, a.recv, a.count, a.type, a.op, __VA_ARGS__);                    \
        break;                                                                                                  \
    case TOOL_ALLTOALL:                                                                                         \
        rc = NAME(alltoall)(a.send, a.count, a.type, a.recv, a.count, a.type, __VA_ARGS__);                     \
        break;                                                                                                  \
    case TOOL_SCAN: rc = NAME(scan)(a.send, a.recv, a.count, a.type, a.op, __VA_ARGS__); break;                 \
    case TOOL_EXSCAN: rc = NAME(exscan)(a.send, a.recv, a.count, a.type, a.op, __VA_ARGS__); break;             \
    case TOOL_REDUCE_SCATTER: rc = NAME(reduce_scatter)(a.send, a.recv, a.rn, a.type, a.op, __VA_ARGS__); break; \
    case TOOL_GATHERV:                                                                                          \
        rc = NAME(gatherv)(a.send, a.own, a.type, a.recv, a.rn, a.rd, a.type, a.root, __VA_ARGS__);             \
        break;                                                                                                  \
    case TOOL_SCATTERV:                                                                                         \
        rc = NAME(scatterv)(a.send, a.sn, a.sd, a.type, a.recv, a.mine, a.type, a.root, __VA_ARGS__);           \
        break;                                                                                                  \
    case TOOL_ALLGATHERV:                                                                                       \
        rc = NAME(allgatherv)(a.send, a.own, a.type, a.recv, a.rn, a.rd, a.type, __VA_ARGS__);                  \
        break;                                                                                                  \
    case TOOL_ALLTOALLV:                                                                                        \
        rc = NAME(alltoallv)(a.send, a.sn, a.sd, a.type, a.recv, a.rn, a.rd, a.type, __VA_ARGS__);              \
        break;                                                                                                  \
    case TOOL_ALLTOALLW:                                                                                        \
        rc = NAME(alltoallw)(a.send, a.sn, a.sb, a.types, a.recv, a.rn, a.rb, a.types, __VA_ARGS__);            \
        break;                                                                                                  \
    default: rc = MPI_ERR_ARG; break;                                                                           \
    }

int tool_occl_init(const tool_job_t *job, MPIX_Occl_Coll *coll_p)
{
    tool_args_t a = tool_args(job);
    int rc;

#define TOOL_INIT(name) MPIX_Occl_##name##_init
    TOOL_CALL(job->coll, TOOL_INIT, job->tag, job->comm, MPI_INFO_NULL, coll_p)
    return rc;
}

int tool_occl_enqueue(const tool_job_t *job, int type, void *queue)
{
    tool_args_t a = tool_args(job);
    int rc;

#define TOOL_ENQUEUE(name) MPIX_Occl_##name##_enqueue
    TOOL_CALL(job->coll, TOOL_ENQUEUE, job->tag, job->comm, type, queue)
    return rc;
}

int tool_occl_start(const tool_job_t *job, tool_pending_t *p)
{
    tool_args_t a = tool_args(job);
    int rc;

    p->n = 0;
    if (job->coll == TOOL_SENDRECV) {
        rc = MPIX_Occl_isend(a.send, a.count, a.type, a.right, job->tag, job->comm, &p->req[0]);
        if (rc == MPI_SUCCESS && ++p->n)
            rc = MPIX_Occl_irecv(a.recv, a.count, a.type, a.left, job->tag, job->comm, &p->req[1]);
    } else {
#define TOOL_NONBLOCKING(name) MPIX_Occl_i##name
        TOOL_CALL(job->coll, TOOL_NONBLOCKING, job->tag, job->comm, &p->req[0])
    }
    if (rc == MPI_SUCCESS)
        p->n++;
    return rc;
}

int tool_occl_wait(tool_pending_t *p)
{
    int rc = p->n == 1 ? MPIX_Occl_wait(&p->req[0], MPI_STATUS_IGNORE)
                       : MPIX_Occl_waitall(p->n, p->req, MPI_STATUSES_IGNORE);

    p->n = 0;
    return rc;
}

/* MPI's names have a capital in the middle: spelled so that TOOL_CALL can make them */
#define tool_mpi_ibarrier MPI_Ibarrier
#define tool_mpi_ibcast MPI_Ibcast
#define tool_mpi_ireduce MPI_Ireduce
#define tool_mpi_iallreduce MPI_Iallreduce
#define tool_mpi_igather MPI_Igather
#define tool_mpi_iscatter MPI_Iscatter
#define tool_mpi_iallgather MPI_Iallgather
#define tool_mpi_ireduce_scatter_block MPI_Ireduce_scatter_block
#define tool_mpi_ialltoall MPI_Ialltoall
#define tool_mpi_iscan MPI_Iscan
#define tool_mpi_iexscan MPI_Iexscan
#define tool_mpi_ireduce_scatter MPI_Ireduce_scatter
#define tool_mpi_igatherv MPI_Igatherv
#define tool_mpi_iscatterv MPI_Iscatterv
#define tool_mpi_iallgatherv MPI_Iallgatherv
#define tool_mpi_ialltoallv MPI_Ialltoallv
#define tool_mpi_ialltoallw MPI_Ialltoallw
#define tool_mpi_scan MPI_Scan
#define tool_mpi_exscan MPI_Exscan
#define tool_mpi_reduce_scatter MPI_Reduce_scatter
#define tool_mpi_gatherv MPI_Gatherv
#define tool_mpi_scatterv MPI_Scatterv
#define tool_mpi_allgatherv MPI_Allgatherv
#define tool_mpi_alltoallv MPI_Alltoallv
#define tool_mpi_alltoallw MPI_Alltoallw
#define tool_mpi_barrier MPI_Barrier
#define tool_mpi_bcast MPI_Bcast
#define tool_mpi_reduce MPI_Reduce
#define tool_mpi_allreduce MPI_Allreduce
#define tool_mpi_gather MPI_Gather
#define tool_mpi_scatter MPI_Scatter
#define tool_mpi_allgather MPI_Allgather
#define tool_mpi_reduce_scatter_block MPI_Reduce_scatter_block
#define tool_mpi_alltoall MPI_Alltoall

int tool_mpi_start(const tool_job_t *job, tool_pending_t *p)
{
    tool_args_t a = tool_args(job);
    int rc;

    p->n = 0;
    if (job->coll == TOOL_SENDRECV) {
        rc = MPI_Irecv(a.recv, a.count, a.type, a.left, 1, job->comm, &p->req[0]);
        if (rc == MPI_SUCCESS && ++p->n)
            rc = MPI_Isend(a.send, a.count, a.type, a.right, 1, job->comm, &p->req[1]);
    } else {
#define TOOL_MPI_I(name) tool_mpi_i##name
        TOOL_CALL(job->coll, TOOL_MPI_I, job->comm, &p->req[0])
    }
    if (rc == MPI_SUCCESS)
        p->n++;
    return rc;
}

int tool_mpi_wait(tool_pending_t *p)
{
    int rc = p->n == 1 ? MPI_Wait(&p->req[0], MPI_STATUS_IGNORE) : MPI_Waitall(p->n, p->req, MPI_STATUSES_IGNORE);

    p->n = 0;
    return rc;
}

int tool_mpi_blocking(const tool_job_t *job)
{
    tool_args_t a = tool_args(job);
    int rc;

    if (job->coll == TOOL_SENDRECV)
        return MPI_Sendrecv(a.send, a.count, a.type, a.right, 1, a.recv, a.count, a.type, a.left, 1, job->comm,
                            MPI_STATUS_IGNORE);
#define TOOL_MPI_BLOCKING(name) tool_mpi_##name
    TOOL_CALL(job->coll, TOOL_MPI_BLOCKING, job->comm)
    return rc;
}

/* --- statistics of the library ------------------------------------------------------------------------------------ */

unsigned long long tool_stat(MPI_Comm comm, const char *name)
{
    MPI_Count value = 0;

    return MPIX_Occl_get_stat(comm, name, &value) == MPI_SUCCESS ? (unsigned long long)value : 0;
}

/* --- watchdog ------------------------------------------------------------------------------------------------------ */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news;
    pthread_t thread;
    int running;
    double seconds;
    struct timespec until; /* under lock */
    void (*report)(void *state);
    void *state;
} tool_dog = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *tool_dog_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&tool_dog.lock);
    while (tool_dog.running) {
        struct timespec until = tool_dog.until, now;

        pthread_cond_timedwait(&tool_dog.news, &tool_dog.lock, &until);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (tool_dog.running && now.tv_sec > tool_dog.until.tv_sec) {
            tool_dog.report(tool_dog.state);
            fflush(NULL);
            _exit(1);
        }
    }
    pthread_mutex_unlock(&tool_dog.lock);
    return NULL;
}

void tool_watchdog_feed(void)
{
    pthread_mutex_lock(&tool_dog.lock);
    clock_gettime(CLOCK_MONOTONIC, &tool_dog.until);
    tool_dog.until.tv_sec += (time_t)tool_dog.seconds + 1;
    pthread_mutex_unlock(&tool_dog.lock);
}

void tool_watchdog(double seconds, void (*report)(void *state), void *state)
{
    if (tool_dog.running) {
        pthread_mutex_lock(&tool_dog.lock);
        tool_dog.running = 0;
        pthread_cond_signal(&tool_dog.news);
        pthread_mutex_unlock(&tool_dog.lock);
        pthread_join(tool_dog.thread, NULL);
        pthread_cond_destroy(&tool_dog.news);
    }
    if (seconds > 0) {
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&tool_dog.news, &attr);
        pthread_condattr_destroy(&attr);
        tool_dog.seconds = seconds;
        tool_dog.report = report;
        tool_dog.state = state;
        tool_dog.running = 1;
        tool_watchdog_feed();
        if (pthread_create(&tool_dog.thread, NULL, tool_dog_main, NULL))
            tool_dog.running = 0;
    }
}
