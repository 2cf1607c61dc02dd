/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of select.h: the built-in table, a small parser, and the eager test. */
#include "select.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/*
 * The built-in table. Small payloads: fewest hops while ranks are few, trees when they are many. Large ones: two shots
 * where every rank can reach every other one's memory; with slots rings once ranks are many, because links are memory.
 *
 * At 32 KiB, of few ranks: two copies by way of slots are faster than one by way of the kernel, which looks up every page. For more
 * that is so only where the two processors share a cache close by; where they do not, slots move a third of what the kernel does,
 * which is the same everywhere (doc/measurements.md). Reductions read what others have written anyway.
 */
static const char *const table[] = {
    "barrier:oneshot ranks=16",
    "barrier:dissemination",
    /* An exchange of small messages is over in one hop. What is folded n times is cheap as long as it is small. */
    "allreduce:oneshot/slots bytes=2K ranks=16",
    "allreduce:oneshot/slots bytes=16K ranks=4",
    "allreduce:oneshot/slots bytes=256 ranks=64",
    "allreduce:twoshot/slots bytes=256K ranks=4",
    "allreduce:twoshot/exposed",
    "allreduce:twoshot/slots ranks=32",
    "allreduce:ring/slots bytes=1M-inf",
    "allreduce:twoshot/slots",
    "reduce:oneshot/slots bytes=128K ranks=4",
    "reduce:twoshot/exposed",
    "reduce:oneshot/slots ranks=8",
    "reduce:oneshot/slots bytes=1K ranks=16",
    "reduce:twoshot/slots bytes=64K-inf ranks=32",
    "reduce:tree/slots",
    "reduce:oneshot/slots",
    "bcast:direct/slots bytes=32K ranks=4",
    "bcast:twoshot/exposed bytes=256K-inf ranks=5-inf",
    "bcast:direct/exposed ranks=16",
    "bcast:tree/exposed",
    "bcast:direct/slots ranks=4",
    "bcast:tree/slots",
    "allgather:direct/slots bytes=32K-32K ranks=4",
    "allgather:direct/exposed",
    "allgather:oneshot/slots bytes=16K ranks=32",
    "allgather:ring/slots bytes=64K-inf ranks=17-inf",
    "allgather:direct/slots",
    "alltoall:pairwise/slots bytes=32K-32K ranks=4",
    "alltoall:direct/exposed",
    "alltoall:oneshot/slots bytes=1K ranks=32",
    "alltoall:pairwise/slots",
    "reduce_scatter_block:twoshot/slots bytes=32K-128K ranks=4",
    "reduce_scatter_block:twoshot/exposed",
    "reduce_scatter_block:oneshot/slots bytes=16K ranks=32",
    "reduce_scatter_block:ring/slots bytes=64K-inf ranks=17-inf",
    "reduce_scatter_block:twoshot/slots",
    "gather:direct/slots bytes=32K ranks=4",
    "gather:direct",
    "scatter:direct/slots bytes=32K ranks=4",
    "scatter:direct",
    "sendrecv:direct/slots bytes=128K",
    "sendrecv:direct",
    "reduce_scatter:twoshot/slots bytes=128K ranks=4",
    "reduce_scatter:twoshot",
    "scan:oneshot bytes=16K ranks=4",
    "scan:oneshot bytes=1K ranks=16",
    "scan:push ranks=2",
    "scan:twoshot",
    "scan:push",
    "scan:chain",
    "scan:oneshot",
    "exscan:oneshot bytes=16K ranks=4",
    "exscan:oneshot bytes=1K ranks=16",
    "exscan:push ranks=2",
    "exscan:twoshot",
    "exscan:push",
    "exscan:chain",
    "exscan:oneshot",
    /* bytes: of an average block that is not empty */
    "gatherv:exchange/slots bytes=32K",
    "gatherv:exchange",
    "scatterv:exchange/slots bytes=32K",
    "scatterv:exchange",
    "allgatherv:exchange/slots bytes=32K",
    "allgatherv:exchange",
    "alltoallv:exchange/slots bytes=32K",
    "alltoallv:exchange",
    "alltoallw:exchange/slots bytes=32K",
    "alltoallw:exchange",
    "neighbor_allgather:exchange/slots bytes=32K",
    "neighbor_allgather:exchange",
    "neighbor_allgatherv:exchange/slots bytes=32K",
    "neighbor_allgatherv:exchange",
    "neighbor_alltoall:exchange/slots bytes=32K",
    "neighbor_alltoall:exchange",
    "neighbor_alltoallv:exchange/slots bytes=32K",
    "neighbor_alltoallv:exchange",
    "neighbor_alltoallw:exchange/slots bytes=32K",
    "neighbor_alltoallw:exchange",
};

/*
 * Before it, on a device that loads and stores its peers' buffers: what is small goes as words through slots and needs no gate, the
 * rest from buffer to buffer. Small is what a slot holds as words, which depends on the number of ranks (src/core/comm.c:agree).
 */
#define FAR_SMALL(what) what " bytes=4K ranks=4", what " bytes=2K ranks=8", what " bytes=1K ranks=16", what " bytes=512"
static const char *const far_table[] = {
    FAR_SMALL("allreduce:oneshot/slots"),
    "allreduce:push/exposed",
    FAR_SMALL("reduce:oneshot/slots"),
    FAR_SMALL("bcast:direct/slots"),
    "bcast:direct/exposed",
    FAR_SMALL("allgather:oneshot/slots"),
    FAR_SMALL("alltoall:oneshot/slots"),
    FAR_SMALL("reduce_scatter_block:oneshot/slots"),
    FAR_SMALL("gather:direct/slots"),
    FAR_SMALL("scatter:direct/slots"),
    FAR_SMALL("sendrecv:direct/slots"),
    FAR_SMALL("scan:oneshot/slots"),
    FAR_SMALL("exscan:oneshot/slots"),
    FAR_SMALL("reduce_scatter:twoshot/slots"),
    "scan:twoshot",
    "scan:push",
    "exscan:twoshot",
    "exscan:push",
    FAR_SMALL("gatherv:exchange/slots"),
    "gatherv:exchange",
    FAR_SMALL("scatterv:exchange/slots"),
    "scatterv:exchange",
    FAR_SMALL("allgatherv:exchange/slots"),
    "allgatherv:exchange",
    FAR_SMALL("alltoallv:exchange/slots"),
    "alltoallv:exchange",
    FAR_SMALL("alltoallw:exchange/slots"),
    "alltoallw:exchange",
    "neighbor_allgather:exchange",
    "neighbor_allgatherv:exchange",
    "neighbor_alltoall:exchange",
    "neighbor_alltoallv:exchange",
    "neighbor_alltoallw:exchange",
};

const char *occl_plan_rule(int i)
{
    return i >= 0 && (size_t)i < sizeof table / sizeof *table ? table[i] : NULL;
}

const char *occl_plan_far_rule(int i)
{
    return i >= 0 && (size_t)i < sizeof far_table / sizeof *far_table ? far_table[i] : NULL;
}

typedef struct range {
    uint64_t lo, hi;
} range_t;

typedef struct rule {
    int any;                         /* for all collectives */
    uint32_t kind;
    char planner[24];
    uint32_t moves;
    range_t bytes, ranks;
} rule_t;

/* --- text --------------------------------------------------------------------------------------------------------- */

typedef struct text {
    const char *at;
    char *err;
    size_t errlen;
} text_t;

static int wrong(text_t *t, const char *what)
{
    if (t->err && t->errlen)
        snprintf(t->err, t->errlen, "%s at \"%.40s\"", what, t->at);
    return 0;
}

static void skip_blank(text_t *t)
{
    while (*t->at == ' ' || *t->at == '\t' || *t->at == '\n')
        t->at++;
}

static int at_rule_end(const text_t *t) { return *t->at == 0 || *t->at == ';' || *t->at == ','; }

/* A word of letters, digits and _: its length. */
static size_t word(const text_t *t)
{
    size_t n = 0;
    while (isalnum((unsigned char)t->at[n]) || t->at[n] == '_')
        n++;
    return n;
}

static int is_word(const text_t *t, size_t n, const char *s) { return strlen(s) == n && strncmp(t->at, s, n) == 0; }

static int parse_number(text_t *t, uint64_t *v_p)
{
    uint64_t v = 0;
    unsigned shift = 0;
    if (strncmp(t->at, "inf", 3) == 0) {
        t->at += 3;
        *v_p = UINT64_MAX;
        return 1;
    }
    if (!isdigit((unsigned char)*t->at))
        return wrong(t, "a number is missing");
    while (isdigit((unsigned char)*t->at)) {
        if (v > (UINT64_MAX - 9) / 10)
            return wrong(t, "the number is too large");
        v = 10 * v + (uint64_t)(*t->at++ - '0');
    }
    if (*t->at == 'K' || *t->at == 'M' || *t->at == 'G')
        shift = *t->at == 'K' ? 10 : *t->at == 'M' ? 20 : 30;
    if (shift) {
        if (v > UINT64_MAX >> shift)
            return wrong(t, "the number is too large");
        t->at++;
    }
    *v_p = v << shift;
    return 1;
}

static int parse_range(text_t *t, range_t *r)
{
    r->lo = 0;
    if (!parse_number(t, &r->hi))
        return 0;
    if (*t->at == '-') {
        t->at++;
        r->lo = r->hi;
        if (!parse_number(t, &r->hi))
            return 0;
    }
    return r->lo <= r->hi ? 1 : wrong(t, "the range is empty");
}

/* The collective's name and ':'. */
static int parse_kind(text_t *t, rule_t *r)
{
    size_t n = word(t);
    r->kind = OCCL_COLL_COUNT;
    r->any = *t->at == '*';
    if (r->any)
        n = 1;
    else
        for (uint32_t k = 0; k < OCCL_COLL_COUNT; k++)
            if (is_word(t, n, occl_coll_name(k)))
                r->kind = k;
    if (!r->any && r->kind == OCCL_COLL_COUNT)
        return wrong(t, "no such collective");
    t->at += n;
    if (*t->at != ':')
        return wrong(t, "':' is missing");
    t->at++;
    return 1;
}

/* The planner's name and the movement. */
static int parse_planner(text_t *t, rule_t *r)
{
    size_t n = word(t);
    int found = 0;
    if (n >= sizeof r->planner)
        return wrong(t, "no such algorithm");
    memcpy(r->planner, t->at, n);
    r->planner[n] = 0;
    for (int i = 0; occl_planners[i]; i++)
        found |= (r->any || occl_planners[i]->kind == r->kind) && strcmp(occl_planners[i]->name, r->planner) == 0;
    if (!found)
        return wrong(t, "no such algorithm");
    t->at += n;
    r->moves = 1u << OCCL_MOVE_SLOTS | 1u << OCCL_MOVE_EXPOSED;
    if (*t->at != '/')
        return 1;
    t->at++;
    n = word(t);
    if (is_word(t, n, "slots"))
        r->moves = 1u << OCCL_MOVE_SLOTS;
    else if (is_word(t, n, "exposed"))
        r->moves = 1u << OCCL_MOVE_EXPOSED;
    else
        return wrong(t, "neither slots nor exposed");
    t->at += n;
    return 1;
}

/* The next rule and what separates it. 1, or 0 with t->err written. */
static int parse_rule(text_t *t, rule_t *r)
{
    *r = (rule_t){.bytes = {0, UINT64_MAX}, .ranks = {0, UINT64_MAX}};
    if (!parse_kind(t, r) || !parse_planner(t, r))
        return 0;
    for (skip_blank(t); !at_rule_end(t); skip_blank(t)) {
        range_t *range = NULL;
        if (strncmp(t->at, "bytes=", 6) == 0 || strncmp(t->at, "ranks=", 6) == 0)
            range = *t->at == 'b' ? &r->bytes : &r->ranks;
        if (!range)
            return wrong(t, "neither bytes= nor ranks=");
        t->at += 6;
        if (!parse_range(t, range))
            return 0;
    }
    if (*t->at)
        t->at++;
    return 1;
}

/* Before each rule: blanks and empty rules. False at the end of the text. */
static int more_rules(text_t *t)
{
    skip_blank(t);
    while (*t->at == ';' || *t->at == ',') {
        t->at++;
        skip_blank(t);
    }
    return *t->at != 0;
}

occl_status_t occl_plan_check_rules(const char *rules, char *err, size_t errlen)
{
    text_t t = {.at = rules ? rules : "", .err = err, .errlen = errlen};
    rule_t r;
    while (more_rules(&t))
        if (!parse_rule(&t, &r))
            return OCCL_ERR_ARG;
    return OCCL_OK;
}

/* --- choice ------------------------------------------------------------------------------------------------------- */

static uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

/* All messages of a link fit the link's own slots of one half, and are small enough to be sent on the off chance. */
static int is_eager(const occl_select_t *in, const occl_planner_t *p)
{
    uint64_t capacity = in->elem_bytes ? in->slot_data / in->elem_bytes : 1;
    uint64_t share = p->split ? ceil_div(in->count, in->nranks) : in->count;
    uint64_t per = p->msgs + (uint64_t)p->ring_msgs * (in->nranks - 1);
    uint64_t chunks;
    if (capacity == 0)
        return 0;
    /* eager_max is of a peer, all channels together; slots are a channel's own. */
    if (per && in->elem_bytes && share > in->eager_max / in->elem_bytes / per)
        return 0;
    chunks = ceil_div(ceil_div(share, in->nchannels), capacity);
    if (chunks == 0)
        chunks = 1;
    return per == 0 || chunks <= in->nslots / per;
}

/* Can this planner move so? */
static int possible(const occl_select_t *in, const occl_planner_t *p, occl_movement_t move)
{
    if (!(p->moves & 1u << move) || (p->partials && (OCCL_T_IS_NARROW(in->type) || OCCL_OP_IS_WHOLE(in->op))))
        return 0;
    if (move == OCCL_MOVE_SLOTS)
        return 1;
    return in->exposed && !occl_coll_swaps(in->kind, in->in_place);
}

static int match(const occl_select_t *in, const rule_t *r, occl_choice_t *choice_p)
{
    uint64_t bytes = in->count * in->elem_bytes;
    const occl_planner_t *p;
    int exposed;

    if (!r->any && r->kind != in->kind)
        return 0;
    if (bytes < r->bytes.lo || bytes > r->bytes.hi || in->nranks < r->ranks.lo || in->nranks > r->ranks.hi)
        return 0;
    p = occl_planner_find(in->kind, r->planner);
    if (!p)
        return 0;
    exposed = (r->moves & 1u << OCCL_MOVE_EXPOSED) && bytes >= in->direct_min && possible(in, p, OCCL_MOVE_EXPOSED);
    if (!exposed && !((r->moves & 1u << OCCL_MOVE_SLOTS) && possible(in, p, OCCL_MOVE_SLOTS)))
        return 0;
    choice_p->planner = p;
    choice_p->move = exposed ? OCCL_MOVE_EXPOSED : OCCL_MOVE_SLOTS;
    choice_p->gated = exposed || !is_eager(in, p);
    return 1;
}

/* The built-in table, parsed once: nonblocking starts ask every time. */
static rule_t parsed[sizeof table / sizeof *table], far_parsed[sizeof far_table / sizeof *far_table];
static size_t nparsed, nfar_parsed;
static pthread_once_t parsed_once = PTHREAD_ONCE_INIT;

static size_t parse_table(const char *const *from, size_t n, rule_t *to)
{
    size_t got = 0;
    for (size_t i = 0; i < n; i++) {
        text_t t = {.at = from[i]};
        got += (size_t)parse_rule(&t, &to[got]);
    }
    return got;
}

static void parse_tables(void)
{
    nparsed = parse_table(table, sizeof table / sizeof *table, parsed);
    nfar_parsed = parse_table(far_table, sizeof far_table / sizeof *far_table, far_parsed);
}

occl_status_t occl_plan_select(const occl_select_t *in, occl_choice_t *choice_p)
{
    text_t t = {.at = in->algo ? in->algo : ""};
    rule_t r;
    if ((uint32_t)in->kind >= OCCL_COLL_COUNT || in->nranks == 0 || in->nchannels == 0)
        return OCCL_ERR_ARG;
    while (more_rules(&t)) {
        if (!parse_rule(&t, &r))
            return OCCL_ERR_ARG;
        if (match(in, &r, choice_p))
            return OCCL_OK;
    }
    pthread_once(&parsed_once, parse_tables);
    for (size_t i = 0; in->far && i < nfar_parsed; i++)
        if (match(in, &far_parsed[i], choice_p))
            return OCCL_OK;
    for (size_t i = 0; i < nparsed; i++)
        if (match(in, &parsed[i], choice_p))
            return OCCL_OK;
    return OCCL_ERR_UNSUPPORTED;
}
