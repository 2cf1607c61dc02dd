/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of planners, the builder, and the moves that algorithms are made of (planner.h). */
#include "plan.h"
#include "planner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const occl_planner_t *const occl_planners[] = {
#define X(file, coll) &occl_planner_##file##_##coll,
    OCCL_PLANNER_TABLE(X)
#undef X
    NULL,
};

const occl_planner_t *occl_planner_find(occl_collkind_t kind, const char *name)
{
    for (int i = 0; occl_planners[i]; i++)
        if (occl_planners[i]->kind == kind && strcmp(occl_planners[i]->name, name) == 0)
            return occl_planners[i];
    return NULL;
}

const char *occl_coll_name(uint32_t kind)
{
    switch (kind) {
#define X(id, number, name) \
    case number:            \
        return name;
        OCCL_COLL_TABLE(X)
#undef X
    default:
        return "?";
    }
}

uint64_t occl_plan_bytes(const occl_plan_args_t *args) { return args->count * args->elem_bytes; }

void occl_plan_split(uint64_t n, uint32_t parts, uint32_t b, uint64_t *lo_p, uint64_t *hi_p)
{
    uint64_t each = n / parts, more = n % parts;
    uint64_t lo = b * each + (b < more ? b : more);
    *lo_p = lo;
    *hi_p = lo + each + (b < more);
}

/* --- builder ------------------------------------------------------------------------------------------------------ */

typedef struct channel {
    occl_section_t *sections;
    occl_step_t *steps;
    uint32_t nsections, nsteps, section_cap, step_cap;
} channel_t;

struct occl_plan_builder {
    occl_plan_args_t args;
    uint32_t flags, scratch;
    int apart;             /* occl_plan_links_apart */
    const char *algo;
    occl_status_t status;
    channel_t *chan;
    occl_step_t nowhere;   /* where steps go after a failure */
};

occl_plan_builder_t *occl_plan_begin(const occl_plan_args_t *args, uint32_t flags, const char *algo)
{
    occl_plan_builder_t *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->args = *args;
    b->flags = flags;
    b->algo = algo;
    b->status = OCCL_OK;
    b->chan = calloc(args->nchannels, sizeof *b->chan);
    if (!b->chan) {
        free(b);
        return NULL;
    }
    return b;
}

void occl_plan_links_apart(occl_plan_builder_t *b)
{
    if (b)
        b->apart = 1;
}

void occl_plan_fail(occl_plan_builder_t *b, occl_status_t why)
{
    if (b && b->status == OCCL_OK)
        b->status = why;
}

/* Room for one more element of `size` bytes; NULL when there is none. */
static void *grow(void *old, uint32_t used, uint32_t *cap_p, size_t size)
{
    uint32_t cap = *cap_p;
    void *p;
    if (used < cap)
        return old;
    cap = cap ? 2 * cap : 8;
    p = realloc(old, cap * size);
    if (p)
        *cap_p = cap;
    return p;
}

void occl_plan_section(occl_plan_builder_t *b, uint32_t channel, uint64_t range)
{
    channel_t *ch;
    void *p;
    if (!b || b->status != OCCL_OK)
        return;
    ch = &b->chan[channel];
    /* SIG words have 8 bits for it; slot numbers k would start again in a second section. */
    if (b->flags & OCCL_PLAN_SLOTS ? ch->nsections == 1 && !b->apart : ch->nsections == 255) {
        occl_plan_fail(b, OCCL_ERR_UNSUPPORTED);
        return;
    }
    p = grow(ch->sections, ch->nsections, &ch->section_cap, sizeof *ch->sections);
    if (!p) {
        occl_plan_fail(b, OCCL_ERR_RESOURCE);
        return;
    }
    ch->sections = p;
    ch->sections[ch->nsections++] = (occl_section_t){.first = ch->nsteps, .range = range};
}

occl_step_t *occl_plan_step(occl_plan_builder_t *b, uint32_t channel)
{
    static _Thread_local occl_step_t nowhere; /* when not even a builder was to be had */
    channel_t *ch;
    void *p;
    if (!b)
        return memset(&nowhere, 0, sizeof nowhere);
    if (b->status != OCCL_OK)
        return memset(&b->nowhere, 0, sizeof b->nowhere);
    ch = &b->chan[channel];
    p = grow(ch->steps, ch->nsteps, &ch->step_cap, sizeof *ch->steps);
    if (!p) {
        occl_plan_fail(b, OCCL_ERR_RESOURCE);
        return memset(&b->nowhere, 0, sizeof b->nowhere);
    }
    ch->steps = p;
    ch->sections[ch->nsections - 1].nsteps++;
    return memset(&ch->steps[ch->nsteps++], 0, sizeof *ch->steps);
}

void occl_plan_scratch(occl_plan_builder_t *b, uint32_t chunks)
{
    if (b && b->scratch < chunks)
        b->scratch = chunks;
}

/* Marks the ranks whose flags a step waits for or writes. */
static void mark(unsigned char *seen, uint32_t nranks, uint32_t me, int32_t peer, int one, int all)
{
    if (one)
        seen[peer] = 1;
    if (all)
        for (uint32_t p = 0; p < nranks; p++)
            seen[p] |= p != me;
}

static void mark_peers(const occl_plan_builder_t *b, unsigned char *seen)
{
    for (uint32_t c = 0; c < b->args.nchannels; c++)
        for (uint32_t i = 0; i < b->chan[c].nsteps; i++) {
            const occl_step_t *s = &b->chan[c].steps[i];
            mark(seen, b->args.nranks, b->args.rank, s->wait_peer,
                 s->wait == OCCL_WAIT_SLOT || s->wait == OCCL_WAIT_CREDIT || s->wait == OCCL_WAIT_SIG,
                 s->wait == OCCL_WAIT_SLOT_ALL || s->wait == OCCL_WAIT_CREDIT_ALL || s->wait == OCCL_WAIT_SIG_ALL);
            mark(seen, b->args.nranks, b->args.rank, s->post_peer,
                 s->post == OCCL_POST_SLOT || s->post == OCCL_POST_CREDIT || s->post == OCCL_POST_SIG,
                 s->post == OCCL_POST_SLOT_ALL || s->post == OCCL_POST_CREDIT_ALL || s->post == OCCL_POST_SIG_ALL);
        }
}

/* Lays the finished plan out in one allocation. */
static occl_plan_t *pack(const occl_plan_builder_t *b, const unsigned char *seen, uint32_t npeers)
{
    uint32_t nch = b->args.nchannels;
    size_t nsteps = 0, nsections = 0;
    for (uint32_t c = 0; c < nch; c++) {
        nsteps += b->chan[c].nsteps;
        nsections += b->chan[c].nsections;
    }
    occl_plan_t *plan = malloc(sizeof *plan + nch * sizeof(occl_program_t) + nsteps * sizeof(occl_step_t) +
                               nsections * sizeof(occl_section_t) + npeers * sizeof(uint32_t));
    if (!plan)
        return NULL;
    /* Descending alignment: the 8-byte aligned ones first. */
    occl_program_t *prog = (occl_program_t *)(plan + 1);
    occl_step_t *step = (occl_step_t *)(prog + nch);
    occl_section_t *section = (occl_section_t *)(step + nsteps);
    uint32_t *peers = (uint32_t *)(section + nsections);

    *plan = (occl_plan_t){.flags = b->flags, .nchannels = nch, .rank = b->args.rank, .nranks = b->args.nranks,
                          .type = b->args.type, .op = b->args.op, .elem_bytes = b->args.elem_bytes,
                          .scratch_chunks = b->scratch, .bytes = occl_plan_bytes(&b->args), .prog = prog, .peers = peers,
                          .npeers = npeers, .algo = b->algo};
    memcpy(plan->scale, b->args.scale, sizeof plan->scale);
    for (uint32_t c = 0; c < nch; c++) {
        const channel_t *ch = &b->chan[c];
        prog[c] = (occl_program_t){.nsections = ch->nsections, .nsteps = ch->nsteps, .sections = section, .steps = step};
        if (ch->nsteps)
            memcpy(step, ch->steps, ch->nsteps * sizeof *step);
        if (ch->nsections)
            memcpy(section, ch->sections, ch->nsections * sizeof *section);
        step += ch->nsteps;
        section += ch->nsections;
    }
    for (uint32_t p = 0, i = 0; p < b->args.nranks; p++)
        if (seen[p])
            peers[i++] = p;
    return plan;
}

occl_status_t occl_plan_end(occl_plan_builder_t *b, occl_plan_t **plan_p)
{
    occl_status_t status;
    unsigned char *seen = NULL;
    uint32_t npeers = 0;

    if (!b)
        return OCCL_ERR_RESOURCE;
    status = b->status;
    if (status == OCCL_OK) {
        seen = calloc(b->args.nranks, 1);
        if (!seen)
            status = OCCL_ERR_RESOURCE;
    }
    if (status == OCCL_OK) {
        mark_peers(b, seen);
        for (uint32_t p = 0; p < b->args.nranks; p++)
            npeers += seen[p];
        occl_plan_t *plan = pack(b, seen, npeers);
        if (plan)
            *plan_p = plan;
        else
            status = OCCL_ERR_RESOURCE;
    }
    free(seen);
    for (uint32_t c = 0; c < b->args.nchannels; c++) {
        free(b->chan[c].sections);
        free(b->chan[c].steps);
    }
    free(b->chan);
    free(b);
    return status;
}

void occl_plan_free(occl_plan_t *plan) { free(plan); }

size_t occl_plan_size(const occl_plan_t *plan)
{
    size_t bytes = sizeof *plan + plan->nchannels * sizeof(occl_program_t) + plan->npeers * sizeof(uint32_t);
    for (uint32_t c = 0; c < plan->nchannels; c++)
        bytes += plan->prog[c].nsteps * sizeof(occl_step_t) + plan->prog[c].nsections * sizeof(occl_section_t);
    return bytes;
}

/* The packed plan is one block (pack), so every pointer moves by the same distance. */
void occl_plan_image(const occl_plan_t *plan, uint64_t at, void *image)
{
    uint64_t by = at - (uint64_t)(uintptr_t)plan;
    occl_plan_t *p = memcpy(image, plan, occl_plan_size(plan));
    occl_program_t *prog = (occl_program_t *)(p + 1);
#define MOVED(type, q) ((type)(uintptr_t)((uint64_t)(uintptr_t)(q) + by))
    p->prog = MOVED(const occl_program_t *, plan->prog);
    p->peers = MOVED(const uint32_t *, plan->peers);
    p->algo = NULL;
    for (uint32_t c = 0; c < plan->nchannels; c++) {
        prog[c].steps = MOVED(const occl_step_t *, plan->prog[c].steps);
        prog[c].sections = MOVED(const occl_section_t *, plan->prog[c].sections);
    }
#undef MOVED
}

int occl_plan_fits(const occl_plan_t *plan, uint64_t chunk)
{
    if (chunk == 0)
        return 0;
    for (uint32_t c = 0; c < plan->nchannels; c++)
        for (uint32_t i = 0; i < plan->prog[c].nsections; i++) {
            const occl_section_t *sec = &plan->prog[c].sections[i];
            uint64_t last = sec->range ? (sec->range - 1) / chunk : 0;
            for (uint32_t j = sec->first; j < sec->first + sec->nsteps; j++) {
                const occl_step_t *s = &plan->prog[c].steps[j];
                int sig = s->post == OCCL_POST_SIG || s->post == OCCL_POST_SIG_ALL;
                uint64_t top = sig ? 1u << 24 : UINT32_MAX; /* k + 1 must be smaller */
                if (s->post != OCCL_POST_NONE && s->post_k.per && last > (top - 2 - s->post_k.base) / s->post_k.per)
                    return 0;
            }
        }
    return 1;
}

int occl_plan_words(const occl_planner_t *planner, const occl_plan_t *plan, uint64_t chunk, uint32_t slot_bytes, uint32_t nslots,
                    uint64_t stage)
{
    uint64_t most = 0, words;
    if (!(plan->flags & OCCL_PLAN_SLOTS) || planner->msgs + planner->ring_msgs * (plan->nranks - 1) > nslots)
        return 0;
    for (uint32_t c = 0; c < plan->nchannels; c++)
        for (uint32_t i = 0; i < plan->prog[c].nsections; i++)
            if (most < plan->prog[c].sections[i].range)
                most = plan->prog[c].sections[i].range; /* the same on every rank */
    words = (most * plan->elem_bytes + 7) / 8;
    return most <= chunk && 16 * (words + 1) <= slot_bytes && 8 * words * plan->nranks <= stage;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static const char *const op_names[] = {"nop", "copy", "reduce", "reduce_all", "spread", "collect"};
static const char *const wait_names[] = {"", "slot", "slot_all", "credit", "credit_all", "sig", "sig_all"};
static const char *const post_names[] = {"", "slot", "slot_all", "credit", "credit_all", "sig", "sig_all"};
static const char *const space_names[] = {"-", "send", "recv", "scratch", "xsend", "xrecv", "rxslot", "txslot"};

static void print_ref(char *buf, size_t len, const occl_ref_t *r)
{
    if (r->space == OCCL_SP_XSEND || r->space == OCCL_SP_XRECV)
        snprintf(buf, len, "%s(%" PRId32 ")+%" PRIu64, space_names[r->space], r->rank, r->off);
    else
        snprintf(buf, len, "%s+%" PRIu64, space_names[r->space], r->off);
}

static void print_flag(char *buf, size_t len, const char *verb, const char *what, int32_t peer, occl_kexpr_t k)
{
    if (*what)
        snprintf(buf, len, " %s %s(%" PRId32 ") s%u k%u+%ui", verb, what, peer, k.sec, k.base, k.per);
    else
        buf[0] = 0;
}

void occl_plan_print(const occl_plan_t *plan, void (*put)(void *state, const char *line), void *state)
{
    char line[320], a[48], a2[48], d[48], w[64], p[64];
    snprintf(line, sizeof line, "%s: rank %u of %u, flags %u, %u channels", plan->algo, plan->rank, plan->nranks, plan->flags,
             plan->nchannels);
    put(state, line);
    for (uint32_t c = 0; c < plan->nchannels; c++)
        for (uint32_t i = 0; i < plan->prog[c].nsections; i++) {
            const occl_section_t *sec = &plan->prog[c].sections[i];
            snprintf(line, sizeof line, " channel %u section %u range %" PRIu64, c, i, sec->range);
            put(state, line);
            for (uint32_t j = sec->first; j < sec->first + sec->nsteps; j++) {
                const occl_step_t *s = &plan->prog[c].steps[j];
                print_flag(w, sizeof w, "wait", wait_names[s->wait], s->wait_peer, s->wait_k);
                print_flag(p, sizeof p, "post", post_names[s->post], s->post_peer, s->post_k);
                print_ref(a, sizeof a, &s->src);
                print_ref(a2, sizeof a2, &s->src2);
                print_ref(d, sizeof d, &s->dst);
                snprintf(line, sizeof line, "  %-10s n %" PRIu64 " stride %" PRIu64 " %s , %s -> %s%s%s", op_names[s->op], s->n,
                         s->stride, a, a2, d, w, p);
                put(state, line);
            }
        }
}

/* --- moves -------------------------------------------------------------------------------------------------------- */

occl_part_t occl_part(occl_part_t whole, uint32_t parts, uint32_t i)
{
    uint64_t lo, hi;
    occl_plan_split(whole.n, parts, i, &lo, &hi);
    return (occl_part_t){.lo = whole.lo + lo, .n = hi - lo};
}

occl_part_t occl_part_channel(const occl_plan_args_t *a, uint32_t c)
{
    return occl_part((occl_part_t){.lo = 0, .n = a->count}, a->nchannels, c);
}

occl_part_t occl_part_block(const occl_plan_args_t *a, uint32_t blocks, uint32_t b, uint32_t c)
{
    return occl_part(occl_part((occl_part_t){.lo = 0, .n = a->count}, blocks, b), a->nchannels, c);
}

occl_ref_t occl_at(uint32_t space, uint64_t off) { return (occl_ref_t){.off = off, .space = space}; }

occl_ref_t occl_at_rank(uint32_t space, uint32_t rank, uint64_t off)
{
    return (occl_ref_t){.off = off, .space = space, .rank = (int32_t)rank};
}

static occl_kexpr_t number(occl_plan_builder_t *b, occl_num_t k)
{
    if (k.base > UINT16_MAX || k.per > UINT16_MAX)
        occl_plan_fail(b, OCCL_ERR_UNSUPPORTED);
    return (occl_kexpr_t){.sec = (uint16_t)k.sec, .base = (uint16_t)k.base, .per = (uint16_t)k.per};
}

void occl_wait(occl_plan_builder_t *b, occl_step_t *s, uint32_t wait, uint32_t peer, occl_num_t k)
{
    s->wait = (uint8_t)wait;
    s->wait_peer = (int32_t)peer;
    s->wait_k = number(b, k);
}

void occl_post(occl_plan_builder_t *b, occl_step_t *s, uint32_t post, uint32_t peer, occl_num_t k)
{
    s->post = (uint8_t)post;
    s->post_peer = (int32_t)peer;
    s->post_k = number(b, k);
}

occl_step_t *occl_emit_nop(occl_plan_builder_t *b, uint32_t c) { return occl_plan_step(b, c); }

occl_step_t *occl_emit_copy(occl_plan_builder_t *b, uint32_t c, occl_ref_t src, occl_ref_t dst, uint64_t n)
{
    occl_step_t *s = occl_plan_step(b, c);
    s->op = OCCL_STEP_COPY;
    s->src = src;
    s->dst = dst;
    s->n = n;
    return s;
}

occl_step_t *occl_emit_reduce(occl_plan_builder_t *b, uint32_t c, occl_ref_t src, occl_ref_t src2, occl_ref_t dst, uint64_t n)
{
    occl_step_t *s = occl_emit_copy(b, c, src, dst, n);
    s->op = OCCL_STEP_REDUCE;
    s->src2 = src2;
    return s;
}

occl_step_t *occl_emit_fold_exposed(occl_plan_builder_t *b, uint32_t c, occl_ref_t mine, uint64_t off, occl_ref_t dst,
                                    uint64_t n)
{
    occl_step_t *s = occl_emit_reduce(b, c, mine, occl_at(OCCL_SP_XSEND, off), dst, n);
    s->op = OCCL_STEP_REDUCE_ALL;
    s->stride = b ? b->args.nranks : 0;
    return s;
}

void occl_emit_send(occl_plan_builder_t *b, uint32_t c, uint32_t peer, occl_num_t k, occl_ref_t src, uint64_t n)
{
    occl_step_t *s = occl_emit_copy(b, c, src, occl_at(OCCL_SP_TXSLOT, 0), n);
    occl_wait(b, s, OCCL_WAIT_CREDIT, peer, k);
    occl_post(b, s, OCCL_POST_SLOT, peer, k);
}

void occl_emit_recv(occl_plan_builder_t *b, uint32_t c, uint32_t peer, occl_num_t k, occl_ref_t dst, uint64_t n)
{
    occl_step_t *s = occl_emit_copy(b, c, occl_at(OCCL_SP_RXSLOT, 0), dst, n);
    occl_wait(b, s, OCCL_WAIT_SLOT, peer, k);
    occl_post(b, s, OCCL_POST_CREDIT, peer, k);
}

void occl_emit_recv_reduce(occl_plan_builder_t *b, uint32_t c, uint32_t peer, occl_num_t k, occl_ref_t mine, int first,
                           occl_ref_t dst, uint64_t n)
{
    occl_ref_t msg = occl_at(OCCL_SP_RXSLOT, 0);
    occl_step_t *s = first ? occl_emit_reduce(b, c, msg, mine, dst, n) : occl_emit_reduce(b, c, mine, msg, dst, n);
    occl_wait(b, s, OCCL_WAIT_SLOT, peer, k);
    occl_post(b, s, OCCL_POST_CREDIT, peer, k);
}

void occl_emit_spread(occl_plan_builder_t *b, uint32_t c, occl_num_t k, occl_ref_t src, uint64_t n, uint64_t stride)
{
    occl_step_t *s = occl_emit_copy(b, c, src, occl_at(OCCL_SP_TXSLOT, 0), n);
    s->op = OCCL_STEP_SPREAD;
    s->stride = stride;
    occl_wait(b, s, OCCL_WAIT_CREDIT_ALL, 0, k);
    occl_post(b, s, OCCL_POST_SLOT_ALL, 0, k);
}

void occl_emit_collect(occl_plan_builder_t *b, uint32_t c, occl_num_t k, occl_ref_t dst, uint64_t n, uint64_t stride)
{
    occl_step_t *s = occl_emit_copy(b, c, occl_at(OCCL_SP_RXSLOT, 0), dst, n);
    s->op = OCCL_STEP_COLLECT;
    s->stride = stride;
    occl_wait(b, s, OCCL_WAIT_SLOT_ALL, 0, k);
    occl_post(b, s, OCCL_POST_CREDIT_ALL, 0, k);
}

occl_step_t *occl_emit_fold(occl_plan_builder_t *b, uint32_t c, occl_num_t k, occl_ref_t mine, occl_ref_t dst, uint64_t n)
{
    occl_step_t *s = occl_emit_reduce(b, c, mine, occl_at(OCCL_SP_RXSLOT, 0), dst, n);
    s->op = OCCL_STEP_REDUCE_ALL;
    s->stride = b ? b->args.nranks : 0;
    occl_wait(b, s, OCCL_WAIT_SLOT_ALL, 0, k);
    occl_post(b, s, OCCL_POST_CREDIT_ALL, 0, k);
    return s;
}

void occl_emit_close(occl_plan_builder_t *b, uint32_t section)
{
    if (!b)
        return;
    for (uint32_t c = 0; c < b->args.nchannels; c++) {
        occl_num_t k = {.sec = section};
        occl_plan_section(b, c, 0);
        occl_post(b, occl_emit_nop(b, c), OCCL_POST_SIG_ALL, 0, k);
        occl_wait(b, occl_emit_nop(b, c), OCCL_WAIT_SIG_ALL, 0, k);
    }
}

int occl_plan_settled(const occl_plan_args_t *a, uint32_t moves, const char *algo, occl_plan_t **plan_p, occl_status_t *status_p)
{
    occl_plan_builder_t *b;
    int copy;

    if (!(moves & 1u << a->move) || a->nchannels == 0 || a->rank >= a->nranks) {
        *status_p = OCCL_ERR_UNSUPPORTED;
        return 1;
    }
    if (a->nranks > 1)
        return 0;
    copy = a->kind != OCCL_COLL_BARRIER && a->kind != OCCL_COLL_BCAST && a->kind != OCCL_COLL_EXSCAN &&
           (!a->in_place || a->op == OCCL_OP_PREMUL);
    b = occl_plan_begin(a, (a->move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED) | OCCL_PLAN_HEARS_ALL, algo);
    for (uint32_t c = 0; c < a->nchannels; c++) {
        occl_part_t part = occl_part_channel(a, c);
        occl_plan_section(b, c, copy ? part.n : 0);
        if (copy)
            occl_emit_copy(b, c, occl_at(OCCL_SP_SEND, part.lo), occl_at(OCCL_SP_RECV, part.lo), part.n);
        else
            occl_emit_nop(b, c);
    }
    *status_p = occl_plan_end(b, plan_p);
    return 1;
}
