/* SPDX-License-Identifier: BSD-3-Clause */
/* See emu.h. */
#define _GNU_SOURCE
#include "emu.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS = 64, NUMBERS = 64, GUARD = 64 };

typedef struct group {
    char name[64];
    int size, users;
    const void *in[EMU_MAX_RANKS];
    int arrived, left;
    uint64_t round;
} group_t;

struct emu_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const emu_conf_t *conf;
    void (*body)(emu_rank_t *r);
    emu_rank_t rank[EMU_MAX_RANKS];
    pthread_t thread[EMU_MAX_RANKS];
    group_t group[GROUPS];
    uint64_t number[NUMBERS];
    int at_barrier;
    uint64_t barriers;
    int running, failures;
    uint64_t until;
};

/* --- small things ------------------------------------------------------------------------------------------------- */

void emu_sleep(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    (void)nanosleep(&ts, NULL);
}

void emu_dawdle(emu_rank_t *r, uint64_t max_ns)
{
    uint64_t v = occl_rng_below(&r->rng, 4);
    if (v == 0)
        (void)sched_yield();
    else if (v == 1)
        emu_sleep(occl_rng_below(&r->rng, max_ns));
}

int emu_check_(emu_rank_t *r, int cond, const char *text, int line, const char *fmt, ...)
{
    emu_world_t *w = r->world;
    char msg[1200];
    va_list ap;
    if (cond)
        return 1;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    (void)pthread_mutex_lock(&w->lock);
    if (w->failures++ < 10)
        diag("rank %d, line %d: %s: %s", r->rank, line, msg, text);
    (void)pthread_mutex_unlock(&w->lock);
    return 0;
}

int emu_failed(emu_rank_t *r)
{
    int n;
    (void)pthread_mutex_lock(&r->world->lock);
    n = r->world->failures;
    (void)pthread_mutex_unlock(&r->world->lock);
    return n;
}

void emu_set(emu_rank_t *r, int which, uint64_t v)
{
    (void)pthread_mutex_lock(&r->world->lock);
    r->world->number[which] = v;
    (void)pthread_cond_broadcast(&r->world->changed);
    (void)pthread_mutex_unlock(&r->world->lock);
}

uint64_t emu_get(emu_rank_t *r, int which)
{
    uint64_t v;
    (void)pthread_mutex_lock(&r->world->lock);
    v = r->world->number[which];
    (void)pthread_mutex_unlock(&r->world->lock);
    return v;
}

void emu_wait_for(emu_rank_t *r, int which, uint64_t at_least)
{
    (void)pthread_mutex_lock(&r->world->lock);
    while (r->world->number[which] < at_least)
        (void)pthread_cond_wait(&r->world->changed, &r->world->lock);
    (void)pthread_mutex_unlock(&r->world->lock);
}

void emu_barrier(emu_rank_t *r)
{
    emu_world_t *w = r->world;
    uint64_t round;
    (void)pthread_mutex_lock(&w->lock);
    round = w->barriers;
    if (++w->at_barrier == w->conf->ranks) {
        w->at_barrier = 0;
        w->barriers++;
        (void)pthread_cond_broadcast(&w->changed);
    }
    while (w->barriers == round)
        (void)pthread_cond_wait(&w->changed, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
}

typedef struct thread_arg {
    emu_rank_t r;
    void (*fn)(emu_rank_t *r);
    pthread_t thread;
} thread_arg_t;

static void *thread_main(void *arg)
{
    thread_arg_t *t = arg;
    t->fn(&t->r);
    return NULL;
}

void emu_threads(emu_rank_t *r, int n, void (*fn)(emu_rank_t *r))
{
    thread_arg_t *t = calloc((size_t)n, sizeof(*t));
    if (!t)
        bail("no memory");
    for (int i = 0; i < n; i++) {
        t[i].r = *r;
        t[i].r.thread = i;
        occl_rng_seed(&t[i].r.rng, occl_rng_next(&r->rng), (uint64_t)i);
        t[i].fn = fn;
        if (pthread_create(&t[i].thread, NULL, thread_main, &t[i]))
            bail("no thread");
    }
    for (int i = 0; i < n; i++)
        (void)pthread_join(t[i].thread, NULL);
    free(t);
}

uint64_t emu_stat(emu_rank_t *r, const char *name)
{
    uint64_t v = 0;
    emu_check(r, occl_get_stat(r->ctx, NULL, name, &v) == OCCL_OK, "there is a statistic %s", name);
    return v;
}

/* --- communicators ------------------------------------------------------------------------------------------------ */

typedef struct oob_state {
    emu_world_t *w;
    group_t *g;
    int rank;
} oob_state_t;

static int oob_allgather(void *state, const void *in, void *out, size_t bytes)
{
    oob_state_t *s = state;
    group_t *g = s->g;
    emu_world_t *w = s->w;
    uint64_t round;
    (void)pthread_mutex_lock(&w->lock);
    while (g->left) /* the one before is still being read */
        (void)pthread_cond_wait(&w->changed, &w->lock);
    round = g->round;
    g->in[s->rank] = in;
    if (++g->arrived == g->size) {
        g->round++;
        g->left = g->size;
        (void)pthread_cond_broadcast(&w->changed);
    }
    while (g->round == round)
        (void)pthread_cond_wait(&w->changed, &w->lock);
    for (int p = 0; p < g->size; p++)
        memcpy((char *)out + (size_t)p * bytes, g->in[p], bytes);
    round = g->round;
    if (--g->left == 0) {
        g->arrived = 0;
        (void)pthread_cond_broadcast(&w->changed);
    }
    while (g->left && g->round == round) /* `in` is the caller's: nobody may still want it */
        (void)pthread_cond_wait(&w->changed, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
    return 0;
}

static group_t *group_join(emu_world_t *w, const char *name, int n)
{
    group_t *g = NULL;
    (void)pthread_mutex_lock(&w->lock);
    for (int i = 0; i < GROUPS && !g; i++)
        if (w->group[i].users && !strcmp(w->group[i].name, name))
            g = &w->group[i];
    for (int i = 0; i < GROUPS && !g; i++) {
        if (!w->group[i].users) {
            g = &w->group[i];
            memset(g, 0, sizeof(*g));
            (void)snprintf(g->name, sizeof(g->name), "%s", name);
            g->size = n;
        }
    }
    if (!g)
        bail("more than %d groups", GROUPS);
    if (g->users++ >= g->size)
        bail("group %s is used twice at a time", name);
    (void)pthread_mutex_unlock(&w->lock);
    return g;
}

/* A group's entry stays until all have left it, so that a late one does not find another's. */
static void group_leave(emu_world_t *w, group_t *g)
{
    (void)pthread_mutex_lock(&w->lock);
    if (++g->arrived == g->size) { /* counts leavers now */
        g->arrived = 0;
        g->users = 0;
        g->round++;
        (void)pthread_cond_broadcast(&w->changed);
    } else {
        uint64_t round = g->round;
        while (g->round == round)
            (void)pthread_cond_wait(&w->changed, &w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

static void rank_name(void *state, int rank, char *buf, size_t len)
{
    (void)state;
    (void)snprintf(buf, len, "member %d", rank);
}

occl_status_t emu_try_attach(emu_rank_t *r, const int *ranks, int n, const char *name, const occl_attach_opts_t *opts,
                             occl_comm_t **comm_p)
{
    oob_state_t s = {r->world, NULL, -1};
    occl_oob_t oob = {.allgather = oob_allgather, .state = &s, .rank_name = rank_name, .name = name, .size = n};
    occl_status_t st;
    for (int i = 0; i < n; i++)
        if (ranks[i] == r->rank)
            s.rank = i;
    if (s.rank < 0)
        bail("rank %d is not in group %s", r->rank, name);
    oob.rank = s.rank;
    s.g = group_join(r->world, name, n);
    st = occl_comm_attach(r->ctx, &oob, opts, comm_p);
    group_leave(r->world, s.g);
    return st;
}

occl_comm_t *emu_attach(emu_rank_t *r, const int *ranks, int n, const char *name)
{
    occl_comm_t *c = NULL;
    occl_status_t st = emu_try_attach(r, ranks, n, name, NULL, &c);
    if (st != OCCL_OK)
        bail("rank %d: attach to %s: %s: %s", r->rank, name, occl_status_name(st), occl_last_error());
    return c;
}

void emu_detach(occl_comm_t *c)
{
    if (!c)
        return;
    occl_comm_detach(c);
    occl_comm_release(c);
}

void emu_finalize(emu_rank_t *r)
{
    occl_ctx_t *ctx = r->ctx;
    (void)pthread_mutex_lock(&r->world->lock);
    r->ctx = NULL;
    r->comm = NULL;
    (void)pthread_mutex_unlock(&r->world->lock);
    occl_ctx_destroy(ctx);
}

/* --- holding threads ------------------------------------------------------------------------------------------------ */

static struct {
    occl_ctx_t *ctx[EMU_MAX_RANKS];
    int at[EMU_MAX_RANKS], here[EMU_MAX_RANKS];
    int chaos;
} hold = {.at = {-1, -1, -1, -1, -1, -1, -1, -1}};

static void hook(int point, void *ctx)
{
    for (int i = 0; i < EMU_MAX_RANKS; i++) {
        if (__atomic_load_n(&hold.ctx[i], __ATOMIC_ACQUIRE) != ctx || __atomic_load_n(&hold.at[i], __ATOMIC_ACQUIRE) != point)
            continue;
        __atomic_store_n(&hold.here[i], 1, __ATOMIC_RELEASE);
        while (__atomic_load_n(&hold.at[i], __ATOMIC_ACQUIRE) == point)
            (void)sched_yield();
        __atomic_store_n(&hold.here[i], 0, __ATOMIC_RELEASE);
    }
    if (__atomic_load_n(&hold.chaos, __ATOMIC_RELAXED))
        occl_emu_chaos(NULL);
}

void emu_hold_at(int rank, int point) { __atomic_store_n(&hold.at[rank], point, __ATOMIC_RELEASE); }
int emu_hold_is_there(int rank) { return __atomic_load_n(&hold.here[rank], __ATOMIC_ACQUIRE); }

void emu_hold_wait(int rank)
{
    while (!emu_hold_is_there(rank))
        (void)sched_yield();
}

void emu_hold_end(int rank) { __atomic_store_n(&hold.at[rank], -1, __ATOMIC_RELEASE); }

void emu_hold_me(emu_rank_t *r)
{
    __atomic_store_n(&hold.at[r->rank], -1, __ATOMIC_RELEASE);
    __atomic_store_n(&hold.ctx[r->rank], r->ctx, __ATOMIC_RELEASE);
}

void emu_hold_none(emu_rank_t *r) { __atomic_store_n(&hold.ctx[r->rank], NULL, __ATOMIC_RELEASE); }
void emu_hold_chaos(int on) { __atomic_store_n(&hold.chaos, on, __ATOMIC_RELAXED); }

/* --- the world ---------------------------------------------------------------------------------------------------- */

static void put_env(const char *text, int set)
{
    char *copy = strdup(text ? text : ""), *save = NULL;
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(w, '=');
        if (!eq)
            bail("no NAME=value: %s", w);
        *eq = 0;
        if (set)
            (void)setenv(w, eq + 1, 1);
        else
            (void)unsetenv(w);
    }
    free(copy);
}

static void put_line(void *state, const char *text)
{
    char line[400];
    (void)state;
    while (*text) {
        size_t n = strcspn(text, "\n");
        (void)snprintf(line, sizeof(line), "%.*s", (int)(n < 390 ? n : 390), text);
        diag("%s", line);
        text += n + (text[n] == '\n');
    }
}

static void dump(emu_world_t *w)
{
    /* A dump takes locks that may be what the world hangs on */
    (void)alarm(10);
    for (int i = 0; i < w->conf->ranks; i++) {
        occl_ctx_t *ctx = w->rank[i].ctx;
        if (!ctx) {
            diag("--- rank %d has finalized", i);
            continue;
        }
        OCCL_LIST_EACH(c, next, &ctx->comms, occl_comm_t, in_ctx) {
            diag("--- rank %d:", i);
            occl_comm_dump(c, put_line, NULL);
        }
        diag("    rank %d: launches %llu, outstanding %llu, sq head %llu tail %llu", i, (unsigned long long)ctx->dev->launches,
             (unsigned long long)ctx->dev->outstanding, (unsigned long long)ctx->dev->daemon->sq.head,
             (unsigned long long)ctx->dev->daemon->sq.tail);
    }
    (void)alarm(0);
}

static void *rank_main(void *arg)
{
    emu_rank_t *r = arg;
    emu_world_t *w = r->world;
    int all[EMU_MAX_RANKS];
    for (int i = 0; i < r->size; i++)
        all[i] = i;
    if (!w->conf->no_world)
        r->comm = emu_attach(r, all, r->size, "world");
    w->body(r);
    emu_detach(r->comm);
    (void)pthread_mutex_lock(&w->lock);
    w->running--;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

int emu_run(const emu_conf_t *conf, void (*body)(emu_rank_t *r), const char *fmt, ...)
{
    emu_world_t *w = calloc(1, sizeof(*w));
    occl_emu_gpu_t *gpu = conf->shared_slots ? occl_emu_gpu_create(conf->shared_slots) : NULL;
    double limit = (conf->deadline > 0 ? conf->deadline : 6) * tap_slack();
    char text[400], err[300];
    struct timespec ts;
    va_list ap;
    int good;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (!w || conf->ranks > EMU_MAX_RANKS)
        bail("no world");
    if (getenv("OCCL_TEST_ONLY") && !strstr(text, getenv("OCCL_TEST_ONLY"))) {
        occl_emu_gpu_destroy(gpu);
        free(w);
        return 1;
    }
    w->conf = conf;
    w->body = body;
    occl_point_hook = hook;
    w->running = conf->ranks;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, NULL);
    occl_emu_use_gpu(gpu);
    put_env(conf->env, 1);
    for (int i = 0; i < conf->ranks; i++) {
        emu_rank_t *r = &w->rank[i];
        const char *mine = conf->rank_env ? conf->rank_env(i) : NULL;
        r->world = w;
        r->rank = i;
        r->size = conf->ranks;
        r->arg = conf->arg;
        occl_rng_seed(&r->rng, conf->seed + 1, (uint64_t)i + 1);
        put_env(mine, 1);
        if (occl_ctx_create(conf->device, 1, &r->ctx, err, sizeof(err)) != OCCL_OK)
            bail("rank %d: %s", i, err);
        put_env(mine, 0);
        if (mine)
            put_env(conf->env, 1);
    }
    put_env(conf->env, 0);
    occl_emu_use_gpu(NULL);
    for (int i = 0; i < conf->ranks; i++)
        if (pthread_create(&w->thread[i], NULL, rank_main, &w->rank[i]))
            bail("no thread for rank %d", i);
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    ts.tv_sec += (time_t)limit + 1;
    (void)pthread_mutex_lock(&w->lock);
    while (w->running) {
        if (pthread_cond_timedwait(&w->changed, &w->lock, &ts) != 0 && w->running) {
            int running = w->running;
            (void)pthread_mutex_unlock(&w->lock);
            diag("%s", text);
            diag("%d of %d ranks are not through after %.0f s", running, conf->ranks, limit);
            dump(w);
            bail("deadline: %s", text);
        }
    }
    (void)pthread_mutex_unlock(&w->lock);
    for (int i = 0; i < conf->ranks; i++)
        (void)pthread_join(w->thread[i], NULL);
    for (int i = 0; i < conf->ranks; i++)
        occl_ctx_destroy(w->rank[i].ctx);
    occl_emu_gpu_destroy(gpu);
    good = ok(w->failures == 0, "%s", text);
    (void)pthread_mutex_destroy(&w->lock);
    (void)pthread_cond_destroy(&w->changed);
    free(w);
    return good;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

static int reduces(occl_collkind_t k)
{
    return k == OCCL_COLL_REDUCE || k == OCCL_COLL_ALLREDUCE || k == OCCL_COLL_REDUCE_SCATTER_BLOCK || k == OCCL_COLL_SCAN ||
           k == OCCL_COLL_EXSCAN || k == OCCL_COLL_REDUCE_SCATTER;
}

static uint32_t type_bytes(uint32_t type)
{
    static const uint32_t bytes[] = {
#define X(id, number, bytes, name) bytes,
        OCCL_TYPE_TABLE(X)
#undef X
    };
    return bytes[type];
}

/* Of rank p's contribution, element e. Depends on everything, so that nothing can be taken for something else. */
static uint64_t raw(int p, uint64_t salt, uint64_t e)
{
    uint64_t z = ((uint64_t)p + 1) * 0x9e3779b97f4a7c15u ^ salt * 0xd1342543de82ef95u ^ (e + 1) * 0x2545f4914f6cdd1du;
    z = (z ^ z >> 31) * 0xbf58476d1ce4e5b9u;
    return z ^ z >> 29;
}

/* Small whole numbers: every type here adds and multiplies them without rounding. */
static double number(int p, uint64_t salt, uint64_t e, uint32_t opcode)
{
    uint64_t v = raw(p, salt, e);
    return opcode == OCCL_OP_PROD ? 1 + (double)(v % 8 == 0) : (double)(v & 15);
}

static uint16_t half_of(double v)
{
    int exp = 0;
    uint32_t m;
    if (v == 0)
        return 0;
    while (v >= 2)
        v /= 2, exp++;
    m = (uint32_t)((v - 1) * 1024);
    return (uint16_t)((exp + 15) << 10 | m);
}

static void encode(uint32_t type, double v, unsigned char *to)
{
    union {
        int8_t i8;
        uint8_t u8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f32;
        double f64;
    } u;
    memset(&u, 0, sizeof(u));
    switch (type) {
    case OCCL_T_I8: u.i8 = (int8_t)(int64_t)v; break;
    case OCCL_T_U8: u.u8 = (uint8_t)(int64_t)v; break;
    case OCCL_T_I16: u.i16 = (int16_t)(int64_t)v; break;
    case OCCL_T_U16: u.u16 = (uint16_t)(int64_t)v; break;
    case OCCL_T_I32: u.i32 = (int32_t)v; break;
    case OCCL_T_U32: u.u32 = (uint32_t)v; break;
    case OCCL_T_I64: u.i64 = (int64_t)v; break;
    case OCCL_T_U64: u.u64 = (uint64_t)v; break;
    case OCCL_T_F32: u.f32 = (float)v; break;
    case OCCL_T_F64: u.f64 = v; break;
    case OCCL_T_F16: u.u16 = half_of(v); break;
    case OCCL_T_BF16: {
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        u.u16 = (uint16_t)(bits >> 16);
        break;
    }
    default: bail("no encoding of type %u", type);
    }
    memcpy(to, &u, type_bytes(type));
}

static double fold(uint32_t opcode, double a, double b)
{
    switch (opcode) {
    case OCCL_OP_SUM: return a + b;
    case OCCL_OP_PROD: return a * b;
    case OCCL_OP_MIN: return a < b ? a : b;
    case OCCL_OP_MAX: return a > b ? a : b;
    case OCCL_OP_BAND: return (double)((uint64_t)a & (uint64_t)b);
    case OCCL_OP_BXOR: return (double)((uint64_t)a ^ (uint64_t)b);
    case OCCL_OP_LOR: return a != 0 || b != 0;
    default: bail("no reference of operation %u", opcode);
    }
}

/* n elements from e on of what rank p contributes. */
static void contribute(const emu_op_t *op, int p, uint64_t salt, uint64_t e, uint64_t n, unsigned char *to)
{
    uint32_t eb = type_bytes(op->args.type);
    for (uint64_t i = 0; i < n; i++, to += eb) {
        if (reduces(op->args.kind)) {
            encode(op->args.type, number(p, salt, e + i, op->args.op), to);
        } else {
            uint64_t v = raw(p, salt, e + i);
            for (uint32_t b = 0; b < eb; b++)
                to[b] = (unsigned char)(v >> (8 * (b & 7)) ^ (b >> 3));
        }
    }
}

/* Of the first `ranks` ranks. */
static void folded(const emu_op_t *op, int ranks, uint64_t salt, uint64_t e, uint64_t n, unsigned char *to)
{
    uint32_t eb = type_bytes(op->args.type);
    for (uint64_t i = 0; i < n; i++) {
        double v = number(0, salt, e + i, op->args.op);
        for (int p = 1; p < ranks; p++)
            v = fold(op->args.op, v, number(p, salt, e + i, op->args.op));
        encode(op->args.type, v, to + i * eb);
    }
}

/* --- blocks of any length ------------------------------------------------------------------------------------------ */

/* Elements of the which-th block from one rank to another. */
static uint64_t length(const emu_op_t *op, int from, int to, int which)
{
    uint64_t c = op->args.count, of[] = {c, 0, c / 3, 1, c - c / 7, c / 2, c};
    switch (op->args.kind) {
    case OCCL_COLL_ALLGATHERV:
    case OCCL_COLL_NEIGHBOR_ALLGATHERV: to = which = 0; break;
    case OCCL_COLL_NEIGHBOR_ALLGATHER:
    case OCCL_COLL_NEIGHBOR_ALLTOALL: return c;
    default: break;
    }
    if ((op->args.kind == OCCL_COLL_ALLTOALLV || op->args.kind == OCCL_COLL_ALLTOALLW) && op->args.in_place && from > to) { /* what is exchanged in place is as long both ways */
        int k = from;
        from = to;
        to = k;
    }
    c = of[(from * 3 + to * 5 + which) % 7];
    return c > op->args.count ? op->args.count : c;
}

/* Where the data of that block begin in what the rank contributes. */
static uint64_t origin(const emu_op_t *op, int to, int which)
{
    switch (op->args.kind) {
    case OCCL_COLL_GATHERV:
    case OCCL_COLL_ALLGATHERV:
    case OCCL_COLL_NEIGHBOR_ALLGATHER:
    case OCCL_COLL_NEIGHBOR_ALLGATHERV: return 0;
    default: return (uint64_t)(2 * to + which) * 1000003;
    }
}

static int is_neighborly(occl_collkind_t k) { return k >= OCCL_COLL_NEIGHBOR_ALLGATHER; }
static int gathers(occl_collkind_t k)
{
    return k == OCCL_COLL_ALLGATHERV || k == OCCL_COLL_NEIGHBOR_ALLGATHER || k == OCCL_COLL_NEIGHBOR_ALLGATHERV;
}

/* The peers of one rank on one side, in order; how many. */
static uint32_t peers_of(const emu_op_t *op, int out, int *peer)
{
    const occl_coll_args_t *a = &op->args;
    uint32_t n = 0;
    if (is_neighborly(a->kind)) {
        peer[n++] = (op->rank + (out ? 1 : op->size - 1)) % op->size;
        peer[n++] = (op->rank + (out ? op->size - 1 : 1)) % op->size;
        return n;
    }
    if (a->kind == OCCL_COLL_GATHERV && out) {
        peer[n++] = a->root;
    } else if (a->kind == OCCL_COLL_SCATTERV && !out) {
        peer[n++] = a->root;
    } else if ((a->kind != OCCL_COLL_GATHERV && a->kind != OCCL_COLL_SCATTERV) || a->root == op->rank) {
        for (int p = 0; p < op->size; p++)
            peer[n++] = p;
    }
    if (a->in_place && (a->kind == OCCL_COLL_GATHERV || a->kind == OCCL_COLL_SCATTERV || a->kind == OCCL_COLL_ALLGATHERV)) {
        uint32_t k = 0;
        for (uint32_t i = 0; i < n; i++)
            if (peer[i] != op->rank)
                peer[k++] = peer[i];
        n = k;
    }
    return n;
}

static int which_of(const int *peer, uint32_t i)
{
    int which = 0;
    for (uint32_t k = 0; k < i; k++)
        which += peer[k] == peer[i];
    return which;
}

/* A block of mine in RECV that no list has. */
static uint64_t own_bytes(const emu_op_t *op)
{
    int has = op->args.kind == OCCL_COLL_ALLGATHERV || (op->args.kind == OCCL_COLL_GATHERV && op->args.root == op->rank);
    return op->args.in_place && has ? length(op, op->rank, op->rank, 0) * type_bytes(op->args.type) : 0;
}

static void make_blocks(emu_op_t *op)
{
    uint64_t eb = type_bytes(op->args.type), bytes[2];
    int peer[2][EMU_MAX_RANKS + 2];
    uint32_t n[2];
    occl_block_t *b;
    n[0] = peers_of(op, 1, peer[0]);
    n[1] = peers_of(op, 0, peer[1]);
    b = op->blocks = calloc(n[0] + n[1] + 1, sizeof(*b));
    if (!b)
        bail("no memory");
    for (int in = 0; in < 2; in++) {
        uint64_t at = in && own_bytes(op) ? own_bytes(op) + 2 * eb : 0;
        for (uint32_t k = n[in]; k-- > 0;) { /* the last one first */
            occl_block_t *e = b + (in ? n[0] : 0) + k;
            int p = peer[in][k], w = which_of(peer[in], k);
            e->peer = p;
            e->type = op->args.type;
            e->n = eb * (in ? length(op, p, op->rank, w) : length(op, op->rank, p, w));
            e->at = !in && gathers(op->args.kind) ? 0 : at;
            at += e->n + (k % 3) * eb;
            if (!in && gathers(op->args.kind))
                at = e->n;
        }
        bytes[in] = at;
    }
    op->args.sends = b;
    op->args.nsends = n[0];
    op->args.recvs = b + n[0];
    op->args.nrecvs = n[1];
    op->sbytes = (size_t)bytes[0];
    op->rbytes = (size_t)bytes[1];
    if (op->args.in_place && (op->args.kind == OCCL_COLL_ALLTOALLV || op->args.kind == OCCL_COLL_ALLTOALLW))
        op->sbytes = 0;
    if (own_bytes(op))
        op->sbytes = 0;
}

static void fill_blocks(emu_op_t *op, uint64_t salt)
{
    const occl_coll_args_t *a = &op->args;
    uint64_t eb = type_bytes(a->type);
    int peer[EMU_MAX_RANKS + 2], swap = a->in_place && (a->kind == OCCL_COLL_ALLTOALLV || a->kind == OCCL_COLL_ALLTOALLW);
    memcpy(op->want, op->recv, op->rbytes);
    if (own_bytes(op)) {
        contribute(op, op->rank, salt, 0, own_bytes(op) / eb, op->recv);
        memcpy(op->want, op->recv, own_bytes(op));
    }
    peers_of(op, 1, peer);
    for (uint32_t i = 0; i < a->nsends && !own_bytes(op); i++)
        contribute(op, op->rank, salt, origin(op, peer[i], which_of(peer, i)), a->sends[i].n / eb,
                   swap ? op->recv + a->recvs[i].at : op->send + a->sends[i].at);
    peers_of(op, 0, peer);
    for (uint32_t i = 0; i < a->nrecvs; i++)
        contribute(op, peer[i], salt, origin(op, op->rank, which_of(peer, i)), a->recvs[i].n / eb, op->want + a->recvs[i].at);
}

/* reduce_scatter: elements of member p's block, and before it. */
static uint64_t part_of(const emu_op_t *op, int p)
{
    uint64_t c = op->args.count, of[] = {c, c / 2, 0, c / 3, 1};
    c = c % 2 ? c : of[p % 5]; /* odd counts: all alike */
    return c > op->args.count ? op->args.count : c;
}
static uint64_t parts_before(const emu_op_t *op, int p)
{
    uint64_t n = 0;
    while (p-- > 0)
        n += part_of(op, p);
    return n;
}

void emu_op_init(emu_op_t *op, occl_comm_t *c, int tag, occl_collkind_t kind, uint32_t type, uint32_t opcode, int root,
                 uint64_t count, int in_place)
{
    uint64_t n, block, sblocks = 0, rblocks = 0;
    int rooted = kind == OCCL_COLL_BCAST || kind == OCCL_COLL_REDUCE || kind == OCCL_COLL_GATHER || kind == OCCL_COLL_SCATTER ||
                 kind == OCCL_COLL_GATHERV || kind == OCCL_COLL_SCATTERV;
    int is_root;
    memset(op, 0, sizeof(*op));
    op->comm = c;
    op->rank = occl_comm_rank(c);
    op->size = occl_comm_size(c);
    op->tag = tag;
    n = (uint64_t)op->size;
    block = count * type_bytes(type);
    is_root = root == op->rank;
    op->args.kind = kind;
    op->args.type = type;
    op->args.op = reduces(kind) ? opcode : OCCL_OP_NONE;
    op->args.root = rooted ? root : -1;
    op->args.count = count;
    switch (kind) {
    case OCCL_COLL_BCAST: rblocks = 1; break;
    case OCCL_COLL_REDUCE: sblocks = 1; rblocks = is_root; break;
    case OCCL_COLL_ALLREDUCE:
    case OCCL_COLL_SCAN:
    case OCCL_COLL_EXSCAN: sblocks = rblocks = 1; break;
    case OCCL_COLL_GATHER: sblocks = 1; rblocks = is_root ? n : 0; break;
    case OCCL_COLL_SCATTER: sblocks = is_root ? n : 0; rblocks = 1; break;
    case OCCL_COLL_ALLGATHER: sblocks = 1; rblocks = n; break;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK: sblocks = n; rblocks = in_place ? n : 1; break;
    case OCCL_COLL_ALLTOALL: sblocks = rblocks = n; break;
    case OCCL_COLL_SENDRECV:
        op->args.sender = is_root;
        op->args.peer = is_root ? (root + 1) % op->size : root;
        sblocks = is_root;
        rblocks = op->rank == (root + 1) % op->size;
        break;
    default: break;
    }
    if (kind == OCCL_COLL_BCAST || is_neighborly(kind))
        in_place = 0;
    if (in_place && (kind == OCCL_COLL_REDUCE || kind == OCCL_COLL_GATHER || kind == OCCL_COLL_SCATTER ||
                     kind == OCCL_COLL_GATHERV || kind == OCCL_COLL_SCATTERV))
        in_place = is_root;
    op->args.in_place = in_place;
    op->sbytes = (size_t)(sblocks * block);
    op->rbytes = (size_t)(rblocks * block);
    if (occl_coll_exchanges(kind)) {
        make_blocks(op);
    } else if (kind == OCCL_COLL_REDUCE_SCATTER) {
        op->blocks = calloc(n, sizeof(*op->blocks));
        if (!op->blocks)
            bail("no memory");
        for (int p = 0; p < op->size; p++)
            op->blocks[p].n = part_of(op, p);
        op->args.recvs = op->blocks;
        op->args.nrecvs = (uint32_t)n;
        op->sbytes = (size_t)(parts_before(op, op->size) * type_bytes(type));
        op->rbytes = in_place ? op->sbytes : (size_t)(part_of(op, op->rank) * type_bytes(type));
    }
    op->send_mem = malloc(op->sbytes + 2 * GUARD);
    op->recv_mem = malloc(op->rbytes + 2 * GUARD);
    op->want = malloc(op->rbytes + 1);
    if (!op->send_mem || !op->recv_mem || !op->want)
        bail("no memory");
    op->send = op->send_mem + GUARD;
    op->recv = op->recv_mem + GUARD;
    op->args.send = in_place && kind != OCCL_COLL_SCATTER ? NULL : op->send;
    op->args.recv = in_place && kind == OCCL_COLL_SCATTER ? NULL : op->recv;
    if (occl_coll_exchanges(kind) && own_bytes(op))
        op->args.send = op->recv; /* where my block lies */
    else if (occl_coll_exchanges(kind))
        op->args.send = op->send;
}

void emu_op_fini(emu_op_t *op)
{
    if (op->coll)
        occl_coll_free(op->coll);
    free(op->send_mem);
    free(op->recv_mem);
    free(op->want);
    free(op->blocks);
    memset(op, 0, sizeof(*op));
}

void emu_op_fill(emu_op_t *op, uint64_t salt)
{
    const occl_coll_args_t *a = &op->args;
    uint64_t count = a->count, all = count * (uint64_t)op->size, block = count * type_bytes(a->type);
    uint64_t mine = (uint64_t)op->rank * block;
    int root = a->root;
    memset(op->send_mem, 0x5a, op->sbytes + 2 * GUARD);
    memset(op->recv_mem, 0xa5, op->rbytes + 2 * GUARD);
    switch (a->kind) {
    case OCCL_COLL_BCAST:
        contribute(op, root, salt, 0, count, op->want);
        if (op->rank == root)
            memcpy(op->recv, op->want, op->rbytes);
        return;
    case OCCL_COLL_REDUCE:
    case OCCL_COLL_ALLREDUCE:
        contribute(op, op->rank, salt, 0, count, a->in_place ? op->recv : op->send);
        if (op->rbytes)
            folded(op, op->size, salt, 0, count, op->want);
        return;
    case OCCL_COLL_GATHER:
    case OCCL_COLL_ALLGATHER:
        contribute(op, op->rank, salt, 0, count, a->in_place ? op->recv + mine : op->send);
        for (int p = 0; p < op->size && op->rbytes; p++)
            contribute(op, p, salt, 0, count, op->want + (uint64_t)p * block);
        return;
    case OCCL_COLL_SCATTER:
        if (op->rank == root)
            contribute(op, root, salt, 0, all, op->send);
        if (a->in_place)
            memcpy(op->want, op->recv, op->rbytes); /* untouched */
        else
            contribute(op, root, salt, (uint64_t)op->rank * count, count, op->want);
        return;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK:
        contribute(op, op->rank, salt, 0, all, a->in_place ? op->recv : op->send);
        folded(op, op->size, salt, (uint64_t)op->rank * count, count, op->want);
        return;
    case OCCL_COLL_ALLTOALL:
        contribute(op, op->rank, salt, 0, all, a->in_place ? op->recv : op->send);
        for (int p = 0; p < op->size; p++)
            contribute(op, p, salt, (uint64_t)op->rank * count, count, op->want + (uint64_t)p * block);
        return;
    case OCCL_COLL_SCAN:
    case OCCL_COLL_EXSCAN:
        contribute(op, op->rank, salt, 0, count, a->in_place ? op->recv : op->send);
        if (a->kind == OCCL_COLL_EXSCAN && op->rank == 0)
            memcpy(op->want, op->recv, op->rbytes); /* untouched */
        else
            folded(op, a->kind == OCCL_COLL_SCAN ? op->rank + 1 : op->rank, salt, 0, count, op->want);
        return;
    case OCCL_COLL_REDUCE_SCATTER:
        contribute(op, op->rank, salt, 0, parts_before(op, op->size), a->in_place ? op->recv : op->send);
        folded(op, op->size, salt, parts_before(op, op->rank), part_of(op, op->rank), op->want);
        return;
    case OCCL_COLL_SENDRECV:
        if (a->sender)
            contribute(op, op->rank, salt, 0, count, op->send);
        else if (op->rbytes)
            contribute(op, a->peer, salt, 0, count, op->want);
        return;
    default:
        if (occl_coll_exchanges(a->kind))
            fill_blocks(op, salt);
        return;
    }
}

static int is_filled(const unsigned char *p, unsigned char v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != v)
            return 0;
    return 1;
}

const char *emu_op_text(const emu_op_t *op, char *buf, size_t len)
{
    (void)snprintf(buf, len, "tag %d: %s of %llu, type %u, op %u, root %d%s", op->tag, occl_coll_name(op->args.kind),
                   (unsigned long long)op->args.count, op->args.type, op->args.op, op->args.root,
                   op->args.in_place ? ", in place" : "");
    return buf;
}

int emu_op_check(emu_rank_t *r, emu_op_t *op)
{
    size_t bytes = op->rbytes;
    char what[200];
    /* In place, only the first block of a reduce_scatter_block's result is defined. */
    if (op->args.kind == OCCL_COLL_REDUCE_SCATTER_BLOCK)
        bytes = (size_t)(op->args.count * type_bytes(op->args.type));
    if (op->args.kind == OCCL_COLL_REDUCE_SCATTER)
        bytes = (size_t)(part_of(op, op->rank) * type_bytes(op->args.type));
    if (bytes && memcmp(op->recv, op->want, bytes)) {
        size_t i = 0;
        while (op->recv[i] == op->want[i])
            i++;
        return emu_check(r, 0, "%s: byte %zu of %zu is %02x, not %02x", emu_op_text(op, what, sizeof(what)), i, bytes, op->recv[i],
                         op->want[i]);
    }
    return emu_check(r, is_filled(op->recv_mem, 0xa5, GUARD) && is_filled(op->recv + op->rbytes, 0xa5, GUARD) &&
                            is_filled(op->send_mem, 0x5a, GUARD) && is_filled(op->send + op->sbytes, 0x5a, GUARD),
                     "%s: nothing is written outside", emu_op_text(op, what, sizeof(what)));
}

int emu_op_start(emu_rank_t *r, emu_op_t *op)
{
    occl_status_t s = OCCL_OK;
    if (!op->coll)
        s = occl_coll_create(op->comm, op->tag, &op->args, &op->coll);
    if (s == OCCL_OK)
        s = occl_coll_start(op->coll, NULL);
    return emu_check(r, s == OCCL_OK, "start: %s", occl_last_error());
}

occl_status_t emu_op_outcome(emu_rank_t *r, emu_op_t *op)
{
    occl_status_t outcome = OCCL_ERR_INTERN;
    emu_check(r, op->coll && occl_coll_wait(op->coll, &outcome) == OCCL_OK, "wait: %s", occl_last_error());
    return outcome;
}

int emu_op_wait(emu_rank_t *r, emu_op_t *op)
{
    occl_status_t outcome = OCCL_ERR_INTERN;
    char what[200];
    if (!op->coll)
        return 0;
    if (!emu_check(r, occl_coll_wait(op->coll, &outcome) == OCCL_OK, "wait: %s", occl_last_error()))
        return 0;
    if (!emu_check(r, outcome == OCCL_OK, "%s: %s: %s", emu_op_text(op, what, sizeof(what)), occl_status_name(outcome),
                   occl_coll_error(op->coll)))
        return 0;
    return emu_op_check(r, op);
}

void emu_op_random(emu_op_t *op, occl_comm_t *c, int tag, occl_rng_t *shared, uint64_t max_count)
{
    static const uint32_t types[] = {OCCL_T_U8, OCCL_T_I16, OCCL_T_I32, OCCL_T_I64, OCCL_T_F32, OCCL_T_F64, OCCL_T_F16,
                                     OCCL_T_BF16};
    static const uint32_t ops[] = {OCCL_OP_SUM, OCCL_OP_SUM, OCCL_OP_MIN, OCCL_OP_MAX, OCCL_OP_PROD};
    occl_collkind_t kind = (occl_collkind_t)occl_rng_below(shared, OCCL_COLL_COUNT - 1);
    uint32_t type = types[occl_rng_below(shared, sizeof(types) / sizeof(*types))];
    uint32_t opcode = ops[occl_rng_below(shared, sizeof(ops) / sizeof(*ops))];
    int root = (int)occl_rng_below(shared, (uint64_t)occl_comm_size(c)), in_place = occl_rng_below(shared, 4) == 0;
    /* All sizes alike on a logarithmic scale */
    uint64_t limit = 1ull << occl_rng_below(shared, 63 - (uint64_t)__builtin_clzll(max_count + 1) + 1);
    uint64_t count = occl_rng_below(shared, limit + 1);
    if (kind >= OCCL_COLL_SENDRECV)
        kind++;
    emu_op_init(op, c, tag, kind, type, opcode, root, count, in_place);
}
