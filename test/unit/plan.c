/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every planner, proved on paper: all ranks' programs run in one process over values that remember where they come from.
 *
 * This is no copy of the engine. It executes plans by the text of occl_dev_plan.h and complains about everything that text
 * forbids, in ways that do not depend on luck:
 *
 *   values      an element is the set of ranks whose contribution it holds, and the index contributed; adding the same rank
 *               twice, or different indices, or using an element that nobody has written, is a fault on the spot
 *   slots       a message may be overwritten only after its sender has *waited* for the credit, read only by a step that
 *               waits for it, and all are acknowledged at the end
 *   exposed     vector clocks: two accesses to one element, one of them a write, must be ordered by flags, not by the
 *               order that happened to come; the same for a rank's end and the others' last access to its buffers
 *   signals     a wait names a number that is posted, so that a lost post is noticed even if a later one covers it
 *   deadlock    waits only ever become true, so one schedule that gets stuck is enough; schedules are random all the same
 *
 * The second half breaks plans on purpose and checks that each breakage is noticed.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "tap.h"

#define MAX_RANKS 64
#define MAX_CHANNELS 3
#ifdef __SANITIZE_THREAD__
#define FULL_RANKS 8     /* one thread: that sanitizer has little to find and takes ten times as long */
#define MANY_RANKS 0
#else
#define FULL_RANKS 16
#define MANY_RANKS 7
#endif

/* --- memory: one arena, emptied after each case -------------------------------------------------------------------- */

typedef struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) char data[];
} block_t;

static block_t *arena_first, *arena_now;

static void *take(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    while (arena_now && arena_now->used + bytes > arena_now->size) {
        if (!arena_now->next)
            break;
        arena_now = arena_now->next;
        arena_now->used = 0;
    }
    if (!arena_now || arena_now->used + bytes > arena_now->size) {
        size_t size = bytes > 1u << 20 ? bytes : 1u << 20;
        block_t *b = malloc(sizeof *b + size);
        if (!b)
            bail("out of memory");
        b->next = NULL;
        b->used = 0;
        b->size = size;
        if (arena_now)
            arena_now->next = b;
        else
            arena_first = b;
        arena_now = b;
    }
    void *p = arena_now->data + arena_now->used;
    arena_now->used += bytes;
    return p;
}

static void *take0(size_t bytes) { return memset(take(bytes), 0, bytes); }

static void arena_reset(void)
{
    arena_now = arena_first;
    if (arena_now)
        arena_now->used = 0;
}

static uint64_t seed;
static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* --- values -------------------------------------------------------------------------------------------------------- */

typedef struct val {
    uint64_t ranks;    /* whose contributions; 0: never written */
    uint32_t index;    /* which element of theirs */
    uint32_t ordered;  /* folded one by one in rank order */
} val_t;

static val_t leaf(uint32_t rank, uint64_t index) { return (val_t){1ull << rank, (uint32_t)index, 1}; }

/* Who touched an element last. Clock 0: nobody in this run. */
typedef struct shadow {
    uint32_t wclk, rclk;
    uint8_t wrank, rrank, wch, rch;
    uint32_t *many;      /* clocks of several readers, by rank */
} shadow_t;

typedef struct buffer {
    val_t *v;
    shadow_t *sh;
    uint64_t n;
} buffer_t;

static buffer_t new_buffer(uint64_t n)
{
    return (buffer_t){take0(n * sizeof(val_t) + 1), take0(n * sizeof(shadow_t) + 1), n};
}

/* --- the machine ---------------------------------------------------------------------------------------------------- */

typedef struct message {
    uint64_t k, n;
    val_t *data;
    uint32_t *clocks;
    int there;
} message_t;

typedef struct signal {
    struct signal *older;
    uint64_t value;
    uint32_t *clocks;
} signal_t;

typedef struct link {
    uint64_t posted, seen, credited;   /* messages sent; seen and acknowledged by the receiver */
    uint64_t credit_seen;              /* by the sender, in a wait */
    uint32_t *credit_clocks;
    message_t *slots;
    signal_t *sig;
} link_t;

typedef struct thread {
    uint32_t rank, ch, section, pc, clk, last_move, over;
    uint64_t iter;
    uint32_t clocks[MAX_RANKS];
    val_t *scratch;
} thread_t;

typedef struct setup {
    const occl_planner_t *planner;
    occl_movement_t move;
    uint32_t n, root, channels, nslots;
    uint64_t count, chunk;
    uint64_t in_place;                 /* set of ranks */
    uint64_t least;                    /* exchanges: what one message carries at least */
} setup_t;

/* --- blocks of any length ------------------------------------------------------------------------------------------- */

static int in_place(const setup_t *s, uint32_t r) { return (int)(s->in_place >> r & 1); }
static int swaps(const setup_t *s, uint32_t r)
{
    return in_place(s, r) && (s->planner->kind == OCCL_COLL_ALLTOALLV || s->planner->kind == OCCL_COLL_ALLTOALLW);
}
static int is_neighborly(occl_collkind_t k) { return k >= OCCL_COLL_NEIGHBOR_ALLGATHER; }
/* Two edges each way between ranks that are each other's neighbours on both sides: there exposed plans are refused. */
static int doubles(const setup_t *s) { return is_neighborly(s->planner->kind) && s->n == 2; }

static uint64_t length(const setup_t *s, uint32_t from, uint32_t to, uint32_t which)
{
    uint64_t c = s->count, of[] = {c, 0, c / 3, 1, c - c / 7, c / 2, c};
    if (s->planner->kind == OCCL_COLL_ALLGATHERV || s->planner->kind == OCCL_COLL_NEIGHBOR_ALLGATHERV)
        to = which = 0;
    if (s->planner->kind == OCCL_COLL_NEIGHBOR_ALLGATHER || s->planner->kind == OCCL_COLL_NEIGHBOR_ALLTOALL)
        return c;
    if (s->in_place && (s->planner->kind == OCCL_COLL_ALLTOALLV || s->planner->kind == OCCL_COLL_ALLTOALLW) && from > to) {
        uint32_t k = from;
        from = to;
        to = k;
    }
    c = of[(from * 3 + to * 5 + which) % 7];
    return c > s->count ? s->count : c;
}

static int gathers(occl_collkind_t k)
{
    return k == OCCL_COLL_ALLGATHERV || k == OCCL_COLL_NEIGHBOR_ALLGATHER || k == OCCL_COLL_NEIGHBOR_ALLGATHERV;
}

/* What element i of the which-th block for `to` is called. */
static uint64_t origin(const setup_t *s, uint32_t to, uint32_t which)
{
    return gathers(s->planner->kind) || s->planner->kind == OCCL_COLL_GATHERV ? 0 : (2 * to + which) * 1000ull;
}

typedef struct lists {
    occl_block_t s[MAX_RANKS], r[MAX_RANKS];
    uint32_t which_s[MAX_RANKS], which_r[MAX_RANKS];
    uint32_t ns, nr;
    uint64_t send, recv;   /* elements of the buffers */
    uint64_t own;          /* gatherv, allgatherv in place: my block lies at the start of RECV */
} lists_t;

static lists_t *lists_of(const setup_t *s, uint32_t r)
{
    occl_collkind_t k = s->planner->kind;
    lists_t *l = take0(sizeof *l);
    int left_out = in_place(s, r) && (k == OCCL_COLL_GATHERV || k == OCCL_COLL_SCATTERV || k == OCCL_COLL_ALLGATHERV);
    if (left_out && k != OCCL_COLL_SCATTERV)
        l->own = length(s, r, r, 0);
    for (int in = 0; in < 2; in++) {
        occl_block_t *b = in ? l->r : l->s;
        uint32_t n = 0, *which = in ? l->which_r : l->which_s;
        uint64_t at = in && l->own ? l->own + 1 : 0;
        if (is_neighborly(k)) {
            b[0].peer = (int32_t)((r + (in ? s->n - 1 : 1)) % s->n);
            b[1].peer = (int32_t)((r + (in ? 1 : s->n - 1)) % s->n);
            n = 2;
            which[1] = b[0].peer == b[1].peer;
        } else if (k == OCCL_COLL_GATHERV && !in) {
            b[n++].peer = (int32_t)s->root;
        } else if (k == OCCL_COLL_SCATTERV && in) {
            b[n++].peer = (int32_t)s->root;
        } else if ((k != OCCL_COLL_GATHERV && k != OCCL_COLL_SCATTERV) || r == s->root) {
            for (uint32_t p = 0; p < s->n; p++)
                b[n++].peer = (int32_t)p;
        }
        if (left_out) {
            uint32_t kept = 0;
            for (uint32_t i = 0; i < n; i++)
                if (b[i].peer != (int32_t)r)
                    b[kept++].peer = b[i].peer;
            n = kept;
        }
        for (uint32_t i = n; i-- > 0;) { /* the last one first, and gaps */
            uint32_t p = (uint32_t)b[i].peer;
            b[i].n = in ? length(s, p, r, which[i]) : length(s, r, p, which[i]);
            b[i].at = !in && gathers(k) ? 0 : at;
            at = b[i].at + b[i].n + (!in && gathers(k) ? 0 : i % 3);
        }
        *(in ? &l->nr : &l->ns) = n;
        *(in ? &l->recv : &l->send) = at;
    }
    if (swaps(s, r)) {
        memcpy(l->s, l->r, sizeof l->s);
        l->send = 0;
    }
    return l;
}

/* reduce_scatter: the members' blocks of a vector of `count` elements. */
static occl_block_t *parts_of(const setup_t *s)
{
    occl_block_t *b = take0(s->n * sizeof *b);
    uint64_t at = 0;
    for (uint32_t p = 0; p < s->n; p++) {
        uint64_t left = s->count - at, n = p + 1 == s->n ? left : p % 3 == 1 ? 0 : left / (2 + p % 2);
        b[p] = (occl_block_t){.peer = (int32_t)p, .at = at, .n = n};
        at += n;
    }
    return b;
}

typedef struct machine {
    setup_t s;
    occl_plan_t *plan[MAX_RANKS];
    buffer_t send[MAX_RANKS], recv[MAX_RANKS];
    buffer_t xsend[MAX_RANKS];
    lists_t *lists[MAX_RANKS];         /* exchanges */
    occl_block_t *parts;               /* reduce_scatter */
    thread_t *t;                       /* [n * channels] */
    link_t *link;                      /* [ch][from][to] */
    uint64_t heard[MAX_RANKS];         /* set of ranks whose message or signal was awaited */
    uint64_t peers[MAX_RANKS];
    uint32_t *access;                  /* [ch][owner][who]: clock of the last access to an exposed buffer */
    uint64_t steps;
    char fault[256];
} machine_t;

__attribute__((format(printf, 2, 3))) static int fault(machine_t *m, const char *fmt, ...)
{
    va_list ap;
    if (!m->fault[0]) {
        va_start(ap, fmt);
        vsnprintf(m->fault, sizeof m->fault, fmt, ap);
        va_end(ap);
    }
    return 0;
}

static link_t *link_of(machine_t *m, uint32_t ch, uint32_t from, uint32_t to)
{
    return &m->link[(ch * m->s.n + from) * m->s.n + to];
}

static int tracks_clocks(const machine_t *m)
{
    return m->s.move == OCCL_MOVE_EXPOSED || m->s.planner->kind == OCCL_COLL_BARRIER;
}

static void join(machine_t *m, thread_t *t, const uint32_t *clocks)
{
    if (clocks)
        for (uint32_t i = 0; i < m->s.n; i++)
            if (t->clocks[i] < clocks[i])
                t->clocks[i] = clocks[i];
}

/* --- access to elements ---------------------------------------------------------------------------------------------- */

static int before(const thread_t *t, uint32_t ch, uint32_t rank, uint32_t clk)
{
    return clk == 0 || (ch == t->ch && t->clocks[rank] >= clk);
}

static int load(machine_t *m, thread_t *t, buffer_t b, uint64_t i, val_t *v)
{
    shadow_t *sh;
    if (i >= b.n)
        return fault(m, "rank %u reads element %llu of a buffer of %llu", t->rank, (unsigned long long)i, (unsigned long long)b.n);
    sh = &b.sh[i];
    if (!before(t, sh->wch, sh->wrank, sh->wclk))
        return fault(m, "rank %u reads an element that rank %u writes at the same time", t->rank, sh->wrank);
    *v = b.v[i];
    if (!v->ranks)
        return fault(m, "rank %u reads an element that nobody has written", t->rank);
    if (sh->rclk && sh->rch != t->ch)
        sh->rch = 255; /* readers on two channels: nobody may write any more */
    else if (!sh->rclk)
        sh->rch = (uint8_t)t->ch;
    if (sh->many) {
        sh->many[t->rank] = t->clk;
    } else if (sh->rclk && sh->rrank != t->rank) {
        sh->many = take0(m->s.n * sizeof *sh->many);
        sh->many[sh->rrank] = sh->rclk;
        sh->many[t->rank] = t->clk;
    }
    sh->rclk = t->clk;
    sh->rrank = (uint8_t)t->rank;
    return 1;
}

static int store(machine_t *m, thread_t *t, buffer_t b, uint64_t i, val_t v)
{
    shadow_t *sh;
    if (i >= b.n)
        return fault(m, "rank %u writes element %llu of a buffer of %llu", t->rank, (unsigned long long)i, (unsigned long long)b.n);
    sh = &b.sh[i];
    if (!before(t, sh->wch, sh->wrank, sh->wclk))
        return fault(m, "rank %u writes an element that rank %u writes at the same time", t->rank, sh->wrank);
    if (!before(t, sh->rch, sh->rrank, sh->rclk))
        return fault(m, "rank %u writes an element that rank %u reads at the same time", t->rank, sh->rrank);
    if (sh->many)
        for (uint32_t r = 0; r < m->s.n; r++)
            if (!before(t, sh->rch, r, sh->many[r]))
                return fault(m, "rank %u writes an element that rank %u reads at the same time", t->rank, r);
    sh->wclk = t->clk;
    sh->wrank = (uint8_t)t->rank;
    sh->wch = (uint8_t)t->ch;
    sh->rclk = 0;
    sh->many = NULL;
    b.v[i] = v;
    return 1;
}

/* Where an operand is, for one iteration: a buffer and a first element, or plain values (slots, scratch). */
typedef struct place {
    buffer_t b;
    uint64_t at;
    val_t *plain;
} place_t;

static int get(machine_t *m, thread_t *t, const place_t *p, uint64_t i, val_t *v)
{
    if (!p->plain)
        return load(m, t, p->b, p->at + i, v);
    *v = p->plain[i];
    return v->ranks ? 1 : fault(m, "rank %u uses scratch that nobody has written", t->rank);
}

static int put(machine_t *m, thread_t *t, const place_t *p, uint64_t i, val_t v)
{
    if (!p->plain)
        return store(m, t, p->b, p->at + i, v);
    p->plain[i] = v;
    return 1;
}

static uint64_t number(occl_kexpr_t k, uint64_t iter) { return k.base + k.per * iter; }

/* The message that the step waits for from peer, as data of exactly n elements. */
static int message_in(machine_t *m, thread_t *t, const occl_step_t *s, uint32_t peer, uint64_t n, place_t *p)
{
    link_t *l = link_of(m, t->ch, peer, t->rank);
    uint64_t k = number(s->wait_k, t->iter);
    message_t *msg = &l->slots[k % m->s.nslots];
    if (s->wait != OCCL_WAIT_SLOT && s->wait != OCCL_WAIT_SLOT_ALL)
        return fault(m, "rank %u reads a slot without waiting for it", t->rank);
    if (k < l->credited)
        return fault(m, "rank %u reads a slot that it has given back", t->rank);
    if (msg->n != n)
        return fault(m, "rank %u takes %llu elements of a message of %llu", t->rank, (unsigned long long)n, (unsigned long long)msg->n);
    *p = (place_t){.plain = msg->data};
    return 1;
}

/* A place for the message that the step will post. The sender must have seen that the slot is free. */
static int message_out(machine_t *m, thread_t *t, const occl_step_t *s, uint32_t peer, uint64_t n, place_t *p)
{
    link_t *l = link_of(m, t->ch, t->rank, peer);
    uint64_t k = number(s->post_k, t->iter);
    message_t *msg = &l->slots[k % m->s.nslots];
    if (s->post != OCCL_POST_SLOT && s->post != OCCL_POST_SLOT_ALL)
        return fault(m, "rank %u fills a slot without posting it", t->rank);
    if (k >= m->s.nslots && l->credit_seen < k - m->s.nslots + 1)
        return fault(m, "rank %u overwrites message %llu to rank %u without credit", t->rank,
                     (unsigned long long)(k - m->s.nslots), peer);
    msg->data = take(n * sizeof(val_t) + 1);
    msg->n = n;
    *p = (place_t){.plain = msg->data};
    return 1;
}

static int operand(machine_t *m, thread_t *t, const occl_step_t *s, const occl_ref_t *r, int writes, uint32_t peer, uint64_t lo,
                   uint64_t n, place_t *p)
{
    uint32_t who = r->rank >= 0 ? (uint32_t)r->rank : 0;
    *p = (place_t){.at = r->off + lo};
    switch (r->space) {
    case OCCL_SP_SEND:
        if (writes)
            return fault(m, "rank %u writes its send buffer", t->rank);
        p->b = m->send[t->rank];
        return 1;
    case OCCL_SP_RECV:
        p->b = m->recv[t->rank];
        return 1;
    case OCCL_SP_SCRATCH:
        if (r->off >= m->plan[t->rank]->scratch_chunks)
            return fault(m, "rank %u uses scratch that it has not asked for", t->rank);
        p->plain = t->scratch + r->off * (m->s.chunk < m->s.count ? m->s.chunk : m->s.count);
        return 1;
    case OCCL_SP_XSEND:
    case OCCL_SP_XRECV:
        if (s->op == OCCL_STEP_REDUCE_ALL && (r == &s->src2 || r->rank < 0))
            who = peer;
        if (m->s.move != OCCL_MOVE_EXPOSED)
            return fault(m, "a slots plan uses exposed buffers");
        if (writes && r->space == OCCL_SP_XSEND)
            return fault(m, "rank %u writes the send buffer of rank %u", t->rank, who);
        if (who >= m->s.n)
            return fault(m, "no such rank");
        p->b = r->space == OCCL_SP_XSEND ? m->xsend[who] : m->recv[who];
        if (m->lists[who]) { /* what it has for me, or gets from me */
            const lists_t *l = m->lists[who];
            const occl_block_t *b = r->space == OCCL_SP_XSEND ? l->s : l->r;
            uint32_t k = 0, all = r->space == OCCL_SP_XSEND ? l->ns : l->nr;
            while (k < all && !(b[k].peer == (int32_t)t->rank && b[k].n))
                k++;
            if (k == all || r->off + lo + n > b[k].n)
                return fault(m, "rank %u reaches beyond what rank %u has for it", t->rank, who);
            p->at += b[k].at;
        }
        m->access[(t->ch * m->s.n + who) * m->s.n + t->rank] = t->clk;
        return 1;
    case OCCL_SP_RXSLOT:
        return writes ? fault(m, "rank %u writes what it has received", t->rank) : message_in(m, t, s, peer, n, p);
    case OCCL_SP_TXSLOT:
        return writes ? message_out(m, t, s, peer, n, p) : fault(m, "rank %u reads what it sends", t->rank);
    default:
        return fault(m, "rank %u uses an operand that is nowhere", t->rank);
    }
}

/* --- steps ------------------------------------------------------------------------------------------------------------ */

static val_t fold(machine_t *m, thread_t *t, val_t a, val_t b)
{
    if (a.index != b.index)
        fault(m, "rank %u adds element %u to element %u", t->rank, a.index, b.index);
    if (a.ranks & b.ranks)
        fault(m, "rank %u adds a contribution twice", t->rank);
    return (val_t){a.ranks | b.ranks, a.index,
                   a.ordered && (b.ranks & (b.ranks - 1)) == 0 && (a.ranks & ~(b.ranks - 1)) == 0};
}

static int move_data(machine_t *m, thread_t *t, const occl_step_t *s)
{
    uint64_t lo = t->iter * m->s.chunk, cnt = lo < s->n ? s->n - lo : 0;
    place_t src[MAX_RANKS], dst[MAX_RANKS];
    uint32_t ndst;
    uint32_t nsrc = 0, first = 0, last = 1;

    if (cnt > m->s.chunk)
        cnt = m->s.chunk;
    if (cnt)
        t->last_move = t->clk;
    switch (s->op) {
    case OCCL_STEP_NOP:
        return 1;
    case OCCL_STEP_COPY:
    case OCCL_STEP_REDUCE:
    case OCCL_STEP_REDUCE_ALL:
        if (cnt == 0 && s->dst.space != OCCL_SP_TXSLOT && s->src.space != OCCL_SP_RXSLOT)
            return 1;
        nsrc = s->op == OCCL_STEP_COPY ? 1 : s->op == OCCL_STEP_REDUCE ? 2 : (uint32_t)s->stride;
        if (nsrc == 0 || nsrc > m->s.n + 1)
            return fault(m, "rank %u folds %u ranks", t->rank, nsrc);
        for (uint32_t i = 0; i < nsrc; i++) {
            const occl_ref_t *r = s->op == OCCL_STEP_REDUCE_ALL ? (i == t->rank ? &s->src : &s->src2) : i ? &s->src2 : &s->src;
            if (cnt == 0 && r->space == OCCL_SP_NONE)
                continue;
            if (!operand(m, t, s, r, 0, s->op == OCCL_STEP_REDUCE_ALL ? i : (uint32_t)s->wait_peer, lo, cnt, &src[i]))
                return 0;
        }
        /* into everybody's RECV */
        ndst = s->op == OCCL_STEP_REDUCE_ALL && s->dst.space == OCCL_SP_XRECV && s->dst.rank < 0 ? m->s.n : 1;
        for (uint32_t i = 0; i < ndst; i++)
            if ((cnt || s->dst.space == OCCL_SP_TXSLOT) &&
                !operand(m, t, s, &s->dst, 1, ndst > 1 ? i : (uint32_t)s->post_peer, lo, cnt, &dst[i]))
                return 0;
        for (uint64_t e = 0; e < cnt; e++) {
            val_t acc, v;
            if (!get(m, t, &src[0], e, &acc))
                return 0;
            for (uint32_t i = 1; i < nsrc; i++) {
                if (!get(m, t, &src[i], e, &v))
                    return 0;
                acc = fold(m, t, acc, v);
            }
            for (uint32_t i = 0; i < ndst; i++)
                if (!put(m, t, &dst[i], e, acc))
                    return 0;
        }
        return !m->fault[0];
    case OCCL_STEP_SPREAD:
    case OCCL_STEP_COLLECT:
        last = m->s.n;
        for (uint32_t p = first; p < last; p++) {
            occl_ref_t near = s->op == OCCL_STEP_SPREAD ? s->src : s->dst, far = s->op == OCCL_STEP_SPREAD ? s->dst : s->src;
            place_t a, b;
            if (p == t->rank)
                continue;
            near.off += p * s->stride;
            if (!operand(m, t, s, &far, s->op == OCCL_STEP_SPREAD, p, lo, cnt, &b))
                return 0;
            if (cnt && !operand(m, t, s, &near, s->op == OCCL_STEP_COLLECT, p, lo, cnt, &a))
                return 0;
            for (uint64_t e = 0; e < cnt; e++) {
                val_t v;
                if (s->op == OCCL_STEP_SPREAD ? !get(m, t, &a, e, &v) || !put(m, t, &b, e, v)
                                              : !get(m, t, &b, e, &v) || !put(m, t, &a, e, v))
                    return 0;
            }
        }
        return 1;
    default:
        return fault(m, "rank %u: no such operation", t->rank);
    }
}

/* One flag. 1: there; 0: not yet, or a fault. */
static int ready_one(machine_t *m, thread_t *t, const occl_step_t *s, uint32_t peer, int look)
{
    uint64_t k = number(s->wait_k, t->iter);
    if (peer >= m->s.n || peer == t->rank)
        return fault(m, "rank %u waits for rank %u", t->rank, peer);
    m->peers[t->rank] |= 1ull << peer;
    switch (s->wait) {
    case OCCL_WAIT_SLOT:
    case OCCL_WAIT_SLOT_ALL: {
        link_t *l = link_of(m, t->ch, peer, t->rank);
        message_t *msg = &l->slots[k % m->s.nslots];
        if (!msg->there || msg->k < k)
            return 0;
        if (msg->k > k)
            return fault(m, "rank %u waits for message %llu of rank %u, which is overwritten", t->rank, (unsigned long long)k, peer);
        if (!look) {
            if (k < l->seen && k < l->credited)
                return fault(m, "rank %u waits again for a message that it has given back", t->rank);
            if (k > l->seen)
                return fault(m, "rank %u skips a message of rank %u", t->rank, peer);
            l->seen = k + 1 > l->seen ? k + 1 : l->seen;
            m->heard[t->rank] |= 1ull << peer;
            join(m, t, msg->clocks);
        }
        return 1;
    }
    case OCCL_WAIT_CREDIT:
    case OCCL_WAIT_CREDIT_ALL: {
        link_t *l = link_of(m, t->ch, t->rank, peer);
        uint64_t need = k < m->s.nslots ? 0 : k - m->s.nslots + 1;
        if (l->credited < need)
            return 0;
        if (!look && l->credit_seen < need) {
            l->credit_seen = need;
            join(m, t, l->credit_clocks);
        }
        return 1;
    }
    default: {
        signal_t *g = link_of(m, t->ch, peer, t->rank)->sig, *first = NULL;
        uint64_t value = (uint64_t)s->wait_k.sec << 24 | (k + 1);
        if (!g || g->value < value)
            return 0;
        if (!look) {
            /* Only what the first sufficient signal says is known for sure. */
            for (; g && g->value >= value; g = g->older)
                first = g;
            m->heard[t->rank] |= 1ull << peer;
            join(m, t, first->clocks);
            /* A later signal would do too, only later: planners are held to the exact one. */
            if (first->value != value)
                return fault(m, "rank %u waits for a signal of rank %u that is never posted", t->rank, peer);
        }
        return 1;
    }
    }
}

static int is_all_wait(uint32_t w)
{
    return w == OCCL_WAIT_SLOT_ALL || w == OCCL_WAIT_CREDIT_ALL || w == OCCL_WAIT_SIG_ALL;
}

static int ready(machine_t *m, thread_t *t, const occl_step_t *s)
{
    if (s->wait == OCCL_WAIT_NONE)
        return 1;
    for (int look = 1; look >= 0; look--) {
        if (!is_all_wait(s->wait)) {
            if (!ready_one(m, t, s, (uint32_t)s->wait_peer, look))
                return 0;
            continue;
        }
        for (uint32_t p = 0; p < m->s.n; p++)
            if (p != t->rank && !ready_one(m, t, s, p, look))
                return 0;
    }
    return 1;
}

static int post_one(machine_t *m, thread_t *t, const occl_step_t *s, uint32_t peer, uint32_t *clocks)
{
    uint64_t k = number(s->post_k, t->iter);
    if (peer >= m->s.n || peer == t->rank)
        return fault(m, "rank %u posts to rank %u", t->rank, peer);
    m->peers[t->rank] |= 1ull << peer;
    switch (s->post) {
    case OCCL_POST_SLOT:
    case OCCL_POST_SLOT_ALL: {
        link_t *l = link_of(m, t->ch, t->rank, peer);
        message_t *msg = &l->slots[k % m->s.nslots];
        if (k != l->posted)
            return fault(m, "rank %u posts message %llu to rank %u, but %llu is next", t->rank, (unsigned long long)k, peer,
                         (unsigned long long)l->posted);
        if (k >= m->s.nslots && l->credit_seen < k - m->s.nslots + 1)
            return fault(m, "rank %u posts message %llu without credit", t->rank, (unsigned long long)k);
        if (s->op == OCCL_STEP_NOP || s->dst.space != OCCL_SP_TXSLOT)
            msg->n = 0;
        l->posted++;
        msg->k = k;
        msg->there = 1;
        msg->clocks = clocks;
        return 1;
    }
    case OCCL_POST_CREDIT:
    case OCCL_POST_CREDIT_ALL: {
        link_t *l = link_of(m, t->ch, peer, t->rank);
        if (k != l->credited || k >= l->seen)
            return fault(m, "rank %u acknowledges message %llu of rank %u out of order", t->rank, (unsigned long long)k, peer);
        l->credited++;
        l->credit_clocks = clocks;
        return 1;
    }
    default: {
        link_t *l = link_of(m, t->ch, t->rank, peer);
        uint64_t value = (uint64_t)s->post_k.sec << 24 | (k + 1);
        signal_t *g = take(sizeof *g);
        if (m->s.move != OCCL_MOVE_EXPOSED)
            return fault(m, "a slots plan signals");
        if (s->post_k.sec != t->section)
            return fault(m, "rank %u signals for section %u in section %u", t->rank, s->post_k.sec, t->section);
        if (l->sig && l->sig->value >= value)
            return fault(m, "rank %u: the signal to rank %u does not grow", t->rank, peer);
        *g = (signal_t){.older = l->sig, .value = value, .clocks = clocks};
        l->sig = g;
        return 1;
    }
    }
}

static int post(machine_t *m, thread_t *t, const occl_step_t *s)
{
    uint32_t *clocks = NULL;
    if (s->post == OCCL_POST_NONE)
        return 1;
    if (tracks_clocks(m)) {
        clocks = take(m->s.n * sizeof *clocks);
        memcpy(clocks, t->clocks, m->s.n * sizeof *clocks);
    }
    if (s->post != OCCL_POST_SLOT_ALL && s->post != OCCL_POST_CREDIT_ALL && s->post != OCCL_POST_SIG_ALL)
        return post_one(m, t, s, (uint32_t)s->post_peer, clocks);
    for (uint32_t p = 0; p < m->s.n; p++)
        if (p != t->rank && !post_one(m, t, s, p, clocks))
            return 0;
    return 1;
}

/* One step of one thread. 1: done; 0: blocked, over, or a fault. */
static int step(machine_t *m, thread_t *t)
{
    const occl_program_t *prog = &m->plan[t->rank]->prog[t->ch];
    const occl_section_t *sec = &prog->sections[t->section];
    const occl_step_t *s = &prog->steps[sec->first + t->pc];

    if (t->pc < sec->nsteps) {
        if (!ready(m, t, s))
            return 0;
        t->clocks[t->rank] = ++t->clk;
        if (!move_data(m, t, s) || !post(m, t, s))
            return 0;
        t->pc++;
        m->steps++;
    }
    if (t->pc >= sec->nsteps) {
        t->pc = 0;
        t->iter++;
        if (t->iter * m->s.chunk >= sec->range) {
            t->iter = 0;
            t->section++;
        }
    }
    t->over = t->section == prog->nsections;
    return 1;
}

/* --- a whole collective ----------------------------------------------------------------------------------------------- */

static buffer_t part(buffer_t b, uint64_t lo, uint64_t n)
{
    return b.n < lo + n ? (buffer_t){0} : (buffer_t){b.v + lo, b.sh + lo, n};
}

/* Buffers as plan.h says, and what stands in them at the start. */
static void make_buffers(machine_t *m, uint32_t r)
{
    const setup_t *s = &m->s;
    uint64_t c = s->count, all = s->n * c, nsend = 0, nrecv = 0;
    int root = r == s->root, ip = in_place(s, r);
    switch (s->planner->kind) {
    case OCCL_COLL_BCAST: nrecv = c; break;
    case OCCL_COLL_REDUCE: nsend = c; nrecv = root ? c : 0; break;
    case OCCL_COLL_ALLREDUCE: nsend = nrecv = c; break;
    case OCCL_COLL_GATHER: nsend = c; nrecv = root ? all : 0; break;
    case OCCL_COLL_SCATTER: nsend = root ? all : 0; nrecv = root && ip ? 0 : c; break;
    case OCCL_COLL_ALLGATHER: nsend = c; nrecv = all; break;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK: nsend = all; nrecv = ip ? all : c; break;
    case OCCL_COLL_ALLTOALL: nsend = nrecv = all; break;
    case OCCL_COLL_SENDRECV: nsend = r == 0 ? c : 0; nrecv = r == s->n - 1 ? c : 0; break;
    case OCCL_COLL_SCAN:
    case OCCL_COLL_EXSCAN: nsend = nrecv = c; break;
    case OCCL_COLL_REDUCE_SCATTER: nsend = c; nrecv = ip ? c : m->parts[r].n; break;
    default: break;
    }
    if (m->lists[r]) {
        const lists_t *l = m->lists[r];
        m->recv[r] = new_buffer(l->recv);
        m->send[r] = new_buffer(l->send);
        for (uint64_t i = 0; i < l->own; i++)
            m->recv[r].v[i] = leaf(r, i);
        if (l->own)
            m->send[r] = part(m->recv[r], 0, l->own);
        for (uint32_t k = 0; k < l->ns; k++)
            for (uint64_t i = 0; i < l->s[k].n; i++)
                (swaps(s, r) ? m->recv : m->send)[r].v[l->s[k].at + i] =
                    leaf(r, origin(s, (uint32_t)l->s[k].peer, l->which_s[k]) + i);
        m->xsend[r] = m->send[r];
        return;
    }
    m->recv[r] = new_buffer(nrecv);
    switch (s->planner->kind) {
    case OCCL_COLL_BCAST:
        for (uint64_t i = 0; root && i < c; i++)
            m->recv[r].v[i] = leaf(r, i);
        return;
    case OCCL_COLL_ALLTOALL:
        if (ip) {
            for (uint64_t i = 0; i < all; i++)
                m->recv[r].v[i] = leaf(r, i);
            return;
        }
        break;
    case OCCL_COLL_ALLGATHER:
    case OCCL_COLL_GATHER:
        if (ip) { /* XSEND of me is my block of RECV; SEND itself is not there */
            m->xsend[r] = part(m->recv[r], r * c, c);
            for (uint64_t i = 0; i < c; i++)
                m->recv[r].v[r * c + i] = leaf(r, i);
            return;
        }
        break;
    case OCCL_COLL_SCATTER:
        break;
    default:
        if (ip)
            m->send[r] = m->recv[r];
        break;
    }
    if (!m->send[r].v)
        m->send[r] = new_buffer(nsend);
    m->xsend[r] = m->send[r];
    for (uint64_t i = 0; i < nsend; i++)
        m->send[r].v[i] = leaf(r, i);
}

static int is(val_t v, uint64_t ranks, uint64_t index) { return v.ranks == ranks && v.index == index; }

/* What must stand in RECV in the end. */
static int check_result(machine_t *m, uint32_t r)
{
    const setup_t *s = &m->s;
    uint64_t c = s->count, everyone = s->n == 64 ? UINT64_MAX : (1ull << s->n) - 1, n = 0, wrong = 0;
    const val_t *v = m->recv[r].v;
    int root = r == s->root, reduces = 0;
    switch (s->planner->kind) {
    case OCCL_COLL_BCAST:
        for (n = 0; n < c; n++)
            wrong += !is(v[n], 1ull << s->root, n);
        break;
    case OCCL_COLL_REDUCE:
    case OCCL_COLL_ALLREDUCE:
        reduces = root || s->planner->kind == OCCL_COLL_ALLREDUCE;
        for (n = 0; reduces && n < c; n++)
            wrong += !is(v[n], everyone, n);
        break;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK:
        reduces = 1;
        for (n = 0; n < c; n++)
            wrong += !is(v[n], everyone, r * c + n);
        break;
    case OCCL_COLL_GATHER:
    case OCCL_COLL_ALLGATHER:
        if (root || s->planner->kind == OCCL_COLL_ALLGATHER)
            for (n = 0; n < s->n * c; n++)
                wrong += !is(v[n], 1ull << n / c, n % c);
        break;
    case OCCL_COLL_SCATTER:
        if (!(root && in_place(s, r)))
            for (n = 0; n < c; n++)
                wrong += !is(v[n], 1ull << s->root, r * c + n);
        break;
    case OCCL_COLL_ALLTOALL:
        for (n = 0; n < s->n * c; n++)
            wrong += !is(v[n], 1ull << n / c, r * c + n % c);
        break;
    case OCCL_COLL_SENDRECV:
        if (r == s->n - 1)
            for (n = 0; n < c; n++)
                wrong += !is(v[n], 1, n);
        break;
    case OCCL_COLL_SCAN:
    case OCCL_COLL_EXSCAN: {
        uint32_t upto = r + (s->planner->kind == OCCL_COLL_SCAN);
        for (n = 0; n < c; n++)
            wrong += upto ? !is(v[n], upto == 64 ? UINT64_MAX : (1ull << upto) - 1, n)
                          : !is(v[n], in_place(s, r) ? 1ull << r : 0, in_place(s, r) ? n : 0);
        reduces = upto > 0;
        break;
    }
    case OCCL_COLL_REDUCE_SCATTER:
        reduces = 1;
        c = m->parts[r].n;
        for (n = 0; n < c; n++)
            wrong += !is(v[n], everyone, m->parts[r].at + n);
        break;
    default:
        if (m->lists[r]) {
            const lists_t *l = m->lists[r];
            uint64_t written = 0;
            for (n = 0; n < l->own; n++)
                wrong += !is(v[n], 1ull << r, n);
            for (uint32_t k = 0; k < l->nr; k++)
                for (uint64_t i = 0; i < l->r[k].n; i++, n++)
                    wrong += !is(v[l->r[k].at + i], 1ull << l->r[k].peer, origin(s, r, l->which_r[k]) + i);
            for (uint64_t i = 0; i < l->recv; i++)
                written += v[i].ranks != 0;
            if (written != n)
                return fault(m, "rank %u: something is written between the blocks", r);
        }
        break;
    }
    if (wrong)
        return fault(m, "rank %u: %llu of %llu results are wrong", r, (unsigned long long)wrong, (unsigned long long)n);
    /* Partials that stay in one place are folded in rank order. */
    if (reduces && !s->planner->partials)
        for (n = 0; n < c; n++)
            if (!v[n].ordered)
                return fault(m, "rank %u: the fold is not in rank order", r);
    return 1;
}

/* What can be said without running: all ranks count alike, and the flags tell the truth. */
static int check_shape(machine_t *m, uint32_t r)
{
    const occl_plan_t *p = m->plan[r];
    uint32_t moves = p->flags & (OCCL_PLAN_SLOTS | OCCL_PLAN_EXPOSED);
    uint64_t share = m->s.planner->split ? (m->s.count + m->s.n - 1) / m->s.n : m->s.count;
    int apart = m->lists[r] != NULL, several = apart || m->s.planner->kind == OCCL_COLL_REDUCE_SCATTER;
    if (moves != (m->s.move == OCCL_MOVE_SLOTS ? OCCL_PLAN_SLOTS : OCCL_PLAN_EXPOSED))
        return fault(m, "the flags do not name the movement");
    if (p->flags != m->plan[0]->flags)
        return fault(m, "the flags differ between ranks");
    if (p->nchannels != m->s.channels || p->rank != r || p->nranks != m->s.n)
        return fault(m, "the plan is another one's");
    for (uint32_t c = 0; c < p->nchannels; c++) {
        const occl_program_t *g = &p->prog[c], *g0 = &m->plan[0]->prog[c];
        uint32_t steps = 0;
        if ((g->nsections != g0->nsections && !apart) || g->nsections == 0)
            return fault(m, "sections differ between ranks");
        if (m->s.move == OCCL_MOVE_SLOTS && g->nsections != 1 && !several)
            return fault(m, "a slots plan with several sections");
        for (uint32_t i = 0; i < g->nsections; i++) {
            const occl_section_t *sec = &g->sections[i];
            if (!apart && sec->range != g0->sections[i].range)
                return fault(m, "ranges differ between ranks");
            if (m->s.move == OCCL_MOVE_SLOTS && m->s.n > 1 && !several && sec->range > (share + m->s.channels - 1) / m->s.channels)
                return fault(m, "the range is larger than the selection thinks");
            if (sec->first != steps)
                return fault(m, "steps lie outside sections");
            steps += sec->nsteps;
            for (uint32_t j = sec->first; j < steps && j < g->nsteps; j++)
                if (g->steps[j].n > sec->range && !(apart && sec->range == 0 && g->steps[j].n <= m->s.least))
                    return fault(m, "a step is longer than its section");
        }
        if (steps != g->nsteps)
            return fault(m, "steps lie outside sections");
    }
    return 1;
}

/* After the last step. */
static void check_end(machine_t *m)
{
    const setup_t *s = &m->s;
    for (uint32_t c = 0; c < s->channels; c++) {
        uint64_t range = m->plan[0]->prog[c].sections[0].range, chunks = range ? (range + s->chunk - 1) / s->chunk : 1;
        for (uint32_t a = 0; a < s->n; a++)
            for (uint32_t b = 0; b < s->n; b++) {
                const link_t *l = link_of(m, c, a, b);
                const thread_t *t = &m->t[a * s->channels + c], *o = &m->t[b * s->channels + c];
                if (l->posted != l->credited) {
                    fault(m, "rank %u has %llu unread messages of rank %u", b, (unsigned long long)(l->posted - l->credited), a);
                    return;
                }
                if (!m->lists[a] && l->posted > chunks * (s->planner->msgs + s->planner->ring_msgs * (uint64_t)(s->n - 1))) {
                    fault(m, "more messages on a link than the selection thinks");
                    return;
                }
                if (a != b && s->move == OCCL_MOVE_EXPOSED &&
                    (t->clocks[b] < m->access[(c * s->n + a) * s->n + b] || (!m->lists[a] && !m->parts && t->clocks[b] < o->last_move))) {
                    fault(m, "rank %u may end while rank %u still moves data", a, b);
                    return;
                }
                if (a != b && s->planner->kind == OCCL_COLL_BARRIER && t->clocks[b] == 0) {
                    fault(m, "rank %u passes the barrier before rank %u has come", a, b);
                    return;
                }
            }
    }
    for (uint32_t r = 0; r < s->n; r++) {
        const occl_plan_t *p = m->plan[r];
        uint64_t others = (s->n == 64 ? UINT64_MAX : (1ull << s->n) - 1) & ~(1ull << r), peers = 0;
        if ((p->flags & OCCL_PLAN_HEARS_ALL) && m->heard[r] != others) {
            fault(m, "rank %u does not hear all", r);
            return;
        }
        for (uint32_t i = 0; i < p->npeers; i++) {
            if (i && p->peers[i] <= p->peers[i - 1])
                fault(m, "peers are not ascending");
            peers |= 1ull << p->peers[i];
        }
        if (peers != m->peers[r]) {
            fault(m, "rank %u does not list its peers", r);
            return;
        }
        if (!check_result(m, r))
            return;
    }
}

/* What a mutant does to the plan of its victim. */
enum {
    DROP_WAIT, DROP_POST, LATER_WAIT, EARLIER_WAIT, OTHER_POST_K, OTHER_PER, OTHER_WAIT_PEER, OTHER_POST_PEER, SHIFT_SRC,
    SHIFT_DST, SHORTEN, FOLD_TWO, OTHER_SOURCE_RANK, DROP_STEP, OTHER_RANGE, MUTANTS, WRONG_ROOT
};
typedef struct mutant {
    uint32_t rank, channel, step;
    int kind;
} mutant_t;
static int mutate(occl_plan_t *plan, const mutant_t *x);

typedef struct verdict {
    int unsupported, changed;
    uint64_t steps;
    char fault[256];
} verdict_t;

static void set_blocks(machine_t *m, uint32_t r, occl_plan_args_t *a)
{
    const setup_t *s = &m->s;
    if (occl_coll_exchanges(s->planner->kind)) {
        lists_t *l = m->lists[r] = lists_of(s, r);
        a->sends = l->s;
        a->nsends = l->ns;
        a->recvs = l->r;
        a->nrecvs = l->nr;
        a->least = s->least;
    } else if (s->planner->kind == OCCL_COLL_REDUCE_SCATTER) {
        a->recvs = m->parts = parts_of(s);
        a->nrecvs = s->n;
    }
}

/* Builds all plans, runs them, checks everything. */
static verdict_t run(const setup_t *s, const mutant_t *x)
{
    machine_t *m = take0(sizeof *m);
    verdict_t v = {0};
    uint32_t nthreads = s->n * s->channels, alive = nthreads;
    uint32_t *order = take(nthreads * sizeof *order);

    m->s = *s;
    m->t = take0(nthreads * sizeof *m->t);
    m->link = take0((size_t)s->channels * s->n * s->n * sizeof *m->link);
    m->access = take0((size_t)s->channels * s->n * s->n * sizeof *m->access);
    if (s->move == OCCL_MOVE_SLOTS) {
        message_t *slots = take0((size_t)s->channels * s->n * s->n * s->nslots * sizeof *slots);
        for (uint32_t i = 0; i < s->channels * s->n * s->n; i++)
            m->link[i].slots = slots + (size_t)i * s->nslots;
    }
    for (uint32_t r = 0; r < s->n; r++) {
        occl_plan_args_t a = {.kind = s->planner->kind, .move = s->move, .rank = r, .nranks = s->n, .root = s->root,
                              .count = s->count, .type = OCCL_T_F32, .op = OCCL_OP_SUM, .elem_bytes = 4,
                              .in_place = (uint32_t)in_place(s, r), .nchannels = s->channels};
        set_blocks(m, r, &a);
        if (x && x->kind == WRONG_ROOT && x->rank == r)
            a.root = (s->root + 1) % s->n;
        occl_status_t status = s->planner->build(&a, &m->plan[r]);
        if (status != OCCL_OK) {
            v.unsupported = status == OCCL_ERR_UNSUPPORTED;
            fault(m, "not built: status %d", (int)status);
            goto out;
        }
    }
    if (x && x->kind != WRONG_ROOT) {
        v.changed = mutate(m->plan[x->rank], x);
        if (!v.changed)
            goto out;
    }
    for (uint32_t r = 0; r < s->n; r++) {
        if (!check_shape(m, r) && !x)
            goto out;
        make_buffers(m, r);
        for (uint32_t c = 0; c < s->channels; c++) {
            thread_t *t = &m->t[r * s->channels + c];
            t->rank = r;
            t->ch = c;
            t->scratch = take0(m->plan[r]->scratch_chunks * (s->chunk < s->count ? s->chunk : s->count) * sizeof(val_t) + 1);
        }
    }
    for (uint32_t i = 0; i < nthreads; i++)
        order[i] = i;
    while (alive && !m->fault[0]) {
        int moved = 0;
        for (uint32_t i = 0; i < alive && !m->fault[0]; i++) {
            uint32_t j = i + rnd(alive - i), id = order[j], burst = 1 + rnd(6);
            order[j] = order[i];
            order[i] = id;
            while (burst-- && !m->t[id].over && step(m, &m->t[id]))
                moved = 1;
        }
        for (uint32_t i = 0; i < alive;)
            if (m->t[order[i]].over)
                order[i] = order[--alive];
            else
                i++;
        if (!moved && !m->fault[0]) {
            const thread_t *t = &m->t[order[0]];
            fault(m, "deadlock: rank %u waits in section %u, chunk %llu, step %u", t->rank, t->section,
                  (unsigned long long)t->iter, t->pc);
        }
    }
    if (!m->fault[0])
        check_end(m);
out:
    v.steps = m->steps;
    memcpy(v.fault, m->fault, sizeof v.fault);
    for (uint32_t r = 0; r < s->n; r++)
        occl_plan_free(m->plan[r]);
    arena_reset();
    return v;
}

/* --- the cases -------------------------------------------------------------------------------------------------------- */

static const char *const move_name[] = {"slots", "exposed"};

static int rooted(occl_collkind_t k)
{
    return k == OCCL_COLL_BCAST || k == OCCL_COLL_REDUCE || k == OCCL_COLL_GATHER || k == OCCL_COLL_SCATTER ||
           k == OCCL_COLL_GATHERV || k == OCCL_COLL_SCATTERV;
}

/* Who may be in place: nobody, or a set that MPI allows. Variant 0: none; 1: all that may; 2: some. */
static uint64_t in_place_set(const setup_t *s, int variant)
{
    uint64_t all = s->n == 64 ? UINT64_MAX : (1ull << s->n) - 1;
    switch (s->planner->kind) {
    case OCCL_COLL_REDUCE:
    case OCCL_COLL_GATHER:
    case OCCL_COLL_SCATTER:
    case OCCL_COLL_GATHERV:
    case OCCL_COLL_SCATTERV:
        return variant ? 1ull << s->root : 0;
    case OCCL_COLL_ALLTOALLV:
    case OCCL_COLL_ALLTOALLW:
    case OCCL_COLL_ALLTOALL: /* all or nobody */
        return variant ? all : 0;
    case OCCL_COLL_ALLREDUCE:
    case OCCL_COLL_ALLGATHER:
    case OCCL_COLL_SCAN:
    case OCCL_COLL_EXSCAN:
    case OCCL_COLL_REDUCE_SCATTER:
    case OCCL_COLL_ALLGATHERV:
    case OCCL_COLL_REDUCE_SCATTER_BLOCK: {
        uint64_t some = ((uint64_t)rnd(1u << 31) << 33 ^ (uint64_t)rnd(1u << 31) << 5 ^ rnd(32)) & all;
        return variant == 0 ? 0 : variant == 1 ? all : some;
    }
    default:
        return 0;
    }
}

typedef struct tally {
    uint64_t cases, faults, unsupported, steps;
} tally_t;

static void one(setup_t s, tally_t *y)
{
    uint64_t seed0 = seed;
    verdict_t v = run(&s, NULL);
    y->cases++;
    y->steps += v.steps;
    if (v.unsupported && s.move == OCCL_MOVE_EXPOSED &&
        ((s.planner->kind == OCCL_COLL_ALLTOALL && s.in_place && s.n > 1) || (swaps(&s, 0) && s.in_place) || doubles(&s))) {
        y->unsupported++; /* as plan.h says */
        return;
    }
    if (v.fault[0] && y->faults++ < 3)
        diag("%s %s/%s: %s: ranks %u root %u count %llu chunk %llu slots %u channels %u in place %llx seed %llu",
             occl_coll_name(s.planner->kind), s.planner->name, move_name[s.move], v.fault, s.n, s.root,
             (unsigned long long)s.count, (unsigned long long)s.chunk, s.nslots, s.channels, (unsigned long long)s.in_place,
             (unsigned long long)seed0);
}

static const uint64_t chunks[] = {1, 3, 7, 1000}; /* exchanges: at times one message carries as much for sure */
static const uint32_t slot_counts[] = {1, 2, 4};

/* All combinations for few ranks, a rotating choice for many. */
static void cases_of(const occl_planner_t *p, occl_movement_t move, uint32_t n, uint64_t count, tally_t *y)
{
    setup_t s = {.planner = p, .move = move, .n = n, .count = count};
    uint32_t nroots = !rooted(p->kind) || n == 1 ? 1 : n == 2 ? 2 : 3;
    int kinds = move == OCCL_MOVE_SLOTS ? 3 : 1;
    if (n <= 3) {
        for (uint32_t root = 0; root < nroots; root++)
            for (int ip = 0; ip < 3; ip++)
                for (s.channels = 1; s.channels <= MAX_CHANNELS; s.channels++)
                    for (int ns = 0; ns < kinds; ns++)
                        for (int ch = 0; ch < 4; ch++) {
                            s.root = root;
                            s.in_place = in_place_set(&s, ip);
                            if (ip == 1 && s.in_place == 0)
                                continue;
                            s.nslots = slot_counts[ns];
                            s.chunk = chunks[ch];
                            s.least = (s.channels + (uint32_t)ch) % 2 ? s.chunk : 0;
                            one(s, y);
                        }
        return;
    }
    for (int ip = 0; ip < 3; ip++)
        for (int rep = 0; rep < (n <= 8 ? 3 : 1); rep++) {
            s.root = nroots == 1 ? 0 : rnd(3) ? rnd(n) : n - 1;
            s.in_place = in_place_set(&s, ip);
            if (ip == 1 && s.in_place == 0)
                continue;
            s.channels = 1 + rnd(n <= 32 ? MAX_CHANNELS : 2);
            s.nslots = slot_counts[rnd(3)];
            s.chunk = chunks[n <= 16 ? rnd(4) : 1 + rnd(3)];
            s.least = rnd(2) ? s.chunk : 0;
            one(s, y);
        }
}

static void check_planner(const occl_planner_t *p, occl_movement_t move)
{
    static const uint32_t many[] = {17, 24, 31, 32, 33, 63, 64};
    tally_t y = {0};
    for (uint32_t i = 1; i <= FULL_RANKS + MANY_RANKS; i++) {
        uint32_t n = i <= FULL_RANKS ? i : many[i - FULL_RANKS - 1];
        uint64_t counts[] = {0, 1, 2, n - 1, n, n + 1, 67};
        if (p->kind == OCCL_COLL_SENDRECV && n > 2)
            break;
        for (int j = 0; j < (p->kind == OCCL_COLL_BARRIER ? 1 : 7); j++) {
            if (n > 16 && (j == 1 || j == 4))
                continue;
            cases_of(p, move, n, counts[j], &y);
        }
    }
    ok(y.faults == 0 && y.cases > y.unsupported, "%s by %s over %s: every contribution arrives once, nobody waits for ever",
       occl_coll_name(p->kind), p->name, move_name[move]);
    diag("%llu cases, %llu faults, %llu steps", (unsigned long long)y.cases, (unsigned long long)y.faults,
         (unsigned long long)y.steps);
}

/* --- breakages -------------------------------------------------------------------------------------------------------- */

static const char *const mutant_name[] = {
    "a wait dropped", "a post dropped", "a wait for the next number", "a wait for the number before", "another number posted",
    "numbers that grow faster", "a wait for another rank", "a post to another rank", "a source shifted", "a destination shifted",
    "a step one element short", "a fold of two ranks only", "another rank's buffer", "a step dropped",
    "a section one chunk longer"};

/* The plan is ours until it is freed, and one allocation: its steps may be written. 0: nothing to change here. */
static int mutate(occl_plan_t *plan, const mutant_t *x)
{
    const occl_program_t *g = &plan->prog[x->channel];
    occl_step_t *s, was;
    if (x->step >= g->nsteps)
        return 0;
    s = (occl_step_t *)&g->steps[x->step];
    was = *s;
    switch (x->kind) {
    case DROP_WAIT: s->wait = OCCL_WAIT_NONE; break;
    case DROP_POST: s->post = OCCL_POST_NONE; break;
    case LATER_WAIT:
        if (s->wait)
            s->wait_k.base++;
        break;
    case EARLIER_WAIT:
        if (s->wait && s->wait_k.base)
            s->wait_k.base--;
        break;
    case OTHER_POST_K:
        if (s->post)
            s->post_k.base++;
        break;
    case OTHER_PER:
        if (s->post && s->op != OCCL_STEP_NOP)
            s->post_k.per++;
        break;
    case OTHER_WAIT_PEER:
        if (s->wait == OCCL_WAIT_SLOT || s->wait == OCCL_WAIT_CREDIT || s->wait == OCCL_WAIT_SIG)
            s->wait_peer = (s->wait_peer + 1) % (int32_t)plan->nranks;
        break;
    case OTHER_POST_PEER:
        if (s->post == OCCL_POST_SLOT || s->post == OCCL_POST_CREDIT || s->post == OCCL_POST_SIG)
            s->post_peer = (s->post_peer + 1) % (int32_t)plan->nranks;
        break;
    case SHIFT_SRC:
        if (s->n && s->src.space != OCCL_SP_RXSLOT)
            s->src.off++;
        break;
    case SHIFT_DST:
        if (s->n && s->dst.space != OCCL_SP_TXSLOT)
            s->dst.off++;
        break;
    case SHORTEN:
        s->n -= s->n != 0;
        break;
    case FOLD_TWO:
        if (s->op == OCCL_STEP_REDUCE_ALL && s->n) {
            s->op = OCCL_STEP_REDUCE;
        }
        break;
    case OTHER_SOURCE_RANK:
        if (s->n && s->op == OCCL_STEP_COPY && s->src.space >= OCCL_SP_XSEND && s->src.space <= OCCL_SP_XRECV)
            s->src.rank = (s->src.rank + 1) % (int32_t)plan->nranks;
        else if (s->n && s->op == OCCL_STEP_COPY && s->dst.space >= OCCL_SP_XSEND && s->dst.space <= OCCL_SP_XRECV)
            s->dst.rank = (s->dst.rank + 1) % (int32_t)plan->nranks;
        break;
    case DROP_STEP:
        if (s->n || s->wait || s->post)
            *s = (occl_step_t){.op = OCCL_STEP_NOP};
        break;
    case OTHER_RANGE:
        if (x->step == 0 && (s->wait || s->post)) {
            occl_section_t *sec = (occl_section_t *)g->sections;
            while (!sec->nsteps)
                sec++;
            sec->range += sec->range ? 2 : 3;
            return 1;
        }
        break;
    default: break;
    }
    return memcmp(s, &was, sizeof was) != 0;
}

/* Breakages that break nothing, each with its reason. Anything else that survives is a hole in the checker. */
static const char *harmless(const setup_t *s, const mutant_t *x, const occl_step_t *step)
{
    int credit = step->wait == OCCL_WAIT_CREDIT || step->wait == OCCL_WAIT_CREDIT_ALL;
    if (s->planner->kind == OCCL_COLL_BARRIER && credit &&
        (x->kind == DROP_WAIT || x->kind == OTHER_WAIT_PEER || x->kind == EARLIER_WAIT))
        return "one message a link needs no credit";
    if (occl_coll_exchanges(s->planner->kind) && step->n <= s->least && (((x->kind == DROP_WAIT || x->kind == OTHER_WAIT_PEER) && credit) || x->kind == OTHER_PER))
        return "a short block is the only message of its link";
    if (s->planner->kind == OCCL_COLL_SCAN || s->planner->kind == OCCL_COLL_EXSCAN) {
        int mine_in = step->op != OCCL_STEP_REDUCE_ALL || x->rank < step->stride;
        if (x->kind == SHORTEN && step->op == OCCL_STEP_SPREAD && x->rank == s->n - 1)
            return "nobody asks what the last rank contributes";
        if (x->kind == SHIFT_SRC && !mine_in)
            return "its own is not in the fold";
        if (s->planner->kind == OCCL_COLL_SCAN && x->rank == 0 && in_place(s, 0) && (x->kind == SHORTEN || x->kind == DROP_STEP) &&
            step->n && !step->post && !step->wait &&
            (step->op == OCCL_STEP_COPY || step->stride == 1) && step->dst.rank == 0 && step->dst.space >= OCCL_SP_XSEND)
            return "it stands there already";
        if (s->planner->kind == OCCL_COLL_SCAN && x->rank == 0 && in_place(s, 0) && x->kind == SHORTEN &&
            step->op == OCCL_STEP_REDUCE_ALL && step->stride == 1)
            return "it stands there already";
    }
    if (s->planner->kind == OCCL_COLL_BARRIER && x->kind == OTHER_PER)
        return "there is one iteration";
    if (step->wait == OCCL_WAIT_SIG && x->kind == LATER_WAIT)
        return "it waits for more than it needs";
    if (s->planner->kind == OCCL_COLL_BCAST && x->kind == OTHER_SOURCE_RANK && (step->src.rank + 1) % (int)s->n == (int)s->root)
        return "the root has all of it";
    return NULL;
}

/* Is the breakage noticed in any of the settings that rank r's plan has to work in? 0, 1; -1: nothing was broken. */
static int noticed(setup_t s, const mutant_t *x)
{
    uint64_t mine = s.in_place & 1ull << x->rank;
    for (int others = 0; others < 2; others++) {
        verdict_t v;
        s.in_place = mine ? in_place_set(&s, 1) : others ? in_place_set(&s, 1) & ~(1ull << x->rank) : 0;
        if (mine && others && s.planner->kind != OCCL_COLL_ALLTOALL)
            s.in_place = mine;
        if (s.planner->kind == OCCL_COLL_ALLTOALL && !mine)
            s.in_place = 0;
        v = run(&s, x);
        if (!v.changed)
            return -1;
        if (v.fault[0])
            return 1;
    }
    return 0;
}

static void check_mutants(const occl_planner_t *p, occl_movement_t move, uint64_t *caught, uint64_t *made)
{
    uint32_t n = p->kind == OCCL_COLL_SENDRECV ? 2 : 4;
    setup_t s = {.planner = p, .move = move, .n = n, .root = n == 2 ? 0 : 1, .channels = 1, .nslots = 1, .count = 21, .chunk = 2,
                 .least = 2};
    machine_t view = {.s = s};
    uint64_t survivors = 0, here = 0;
    for (uint32_t r = 0; r < n; r++)
        for (int ip = 0; ip < 2; ip++) {
            occl_plan_args_t a = {.kind = p->kind, .move = move, .rank = r, .nranks = n, .root = s.root, .count = s.count,
                                  .type = OCCL_T_F32, .op = OCCL_OP_SUM, .elem_bytes = 4, .nchannels = 1};
            occl_plan_t *plan = NULL;
            s.in_place = in_place_set(&s, ip) & 1ull << r;
            a.in_place = (uint32_t)in_place(&s, r);
            view.s = s;
            set_blocks(&view, r, &a);
            if ((ip && !a.in_place) || p->build(&a, &plan) != OCCL_OK)
                continue;
            for (uint32_t i = 0; i < plan->prog[0].nsteps; i++)
                for (int k = 0; k < MUTANTS; k++) {
                    mutant_t x = {.rank = r, .step = i, .kind = k};
                    int seen = harmless(&s, &x, &plan->prog[0].steps[i]) ? -1 : noticed(s, &x);
                    if (seen < 0)
                        continue;
                    here++;
                    made[k]++;
                    caught[k] += (uint64_t)seen;
                    if (!seen && survivors++ < 5)
                        diag("survived: %s %s/%s rank %u%s step %u: %s", occl_coll_name(p->kind), p->name, move_name[move], r,
                             ip ? " in place" : "", i, mutant_name[k]);
                }
            occl_plan_free(plan);
        }
    ok(survivors == 0 && here > 0, "%s by %s over %s: each of %llu breakages is noticed", occl_coll_name(p->kind), p->name,
       move_name[move], (unsigned long long)here);
}

/* One rank thinks of another root. */
static void check_wrong_root(void)
{
    int all = 1;
    for (int i = 0; occl_planners[i]; i++)
        for (int move = 0; move < 2; move++) {
            setup_t s = {.planner = occl_planners[i], .move = (occl_movement_t)move, .n = 4, .root = 1, .channels = 1, .nslots = 2,
                         .count = 5, .chunk = 2};
            /* (exchanges go by their lists) */
            if (!rooted(s.planner->kind) || occl_coll_exchanges(s.planner->kind) || !(s.planner->moves & 1u << move))
                continue;
            for (uint32_t r = 0; r < s.n; r++) {
                mutant_t x = {.rank = r, .kind = WRONG_ROOT};
                verdict_t v = run(&s, &x);
                if (!v.fault[0])
                    diag("%s %s/%s: rank %u", occl_coll_name(s.planner->kind), s.planner->name, move_name[move], r);
                all &= v.fault[0] != 0;
            }
        }
    ok(all, "a rank that thinks of another root is noticed");
}

/* --- main ------------------------------------------------------------------------------------------------------------- */

static void check_split(void)
{
    int good = 1;
    for (uint64_t n = 0; n < 70; n++)
        for (uint32_t parts = 1; parts < 20; parts++) {
            uint64_t at = 0, lo, hi;
            for (uint32_t b = 0; b < parts; b++) {
                occl_plan_split(n, parts, b, &lo, &hi);
                good &= lo == at && hi - lo == n / parts + (b < n % parts);
                at = hi;
            }
            good &= at == n;
        }
    ok(good, "parts are adjacent, complete and as equal as can be");
}

static void check_fits(void)
{
    occl_plan_args_t a = {.kind = OCCL_COLL_ALLREDUCE, .move = OCCL_MOVE_EXPOSED, .nranks = 2, .count = 1ull << 40,
                          .elem_bytes = 4, .nchannels = 1};
    occl_plan_t *plan = NULL;
    if (!ok(occl_planner_find(OCCL_COLL_ALLREDUCE, "oneshot")->build(&a, &plan) == OCCL_OK, "a huge vector can be planned"))
        return;
    ok(occl_plan_fits(plan, 1ull << 17), "and its signals fit with chunks of 128 Ki elements");
    ok(!occl_plan_fits(plan, 1ull << 15), "but not with chunks of 32 Ki");
    occl_plan_free(plan);
}

/* Counts past 2^31: every planner's offsets reach to the ends of the buffers, and no further. */
static void check_large(void)
{
    const uint64_t count = (1ull << 33) + 7;
    const uint32_t n = 3;
    uint64_t plans = 0;
    int good = 1;
    for (int i = 0; occl_planners[i]; i++)
        for (int move = 0; move < 2; move++) {
            const occl_planner_t *p = occl_planners[i];
            setup_t s = {.planner = p, .move = (occl_movement_t)move, .n = n, .root = 1, .channels = 2, .count = count};
            machine_t *m = take0(sizeof *m);
            uint64_t top = 0, all = 0;
            if (!(p->moves & 1u << move) || p->kind == OCCL_COLL_SENDRECV || p->kind == OCCL_COLL_BARRIER)
                continue;
            m->s = s;
            for (uint32_t r = 0; r < n; r++) {
                occl_plan_args_t a = {.kind = p->kind, .move = s.move, .rank = r, .nranks = n, .root = s.root, .count = count,
                                      .type = OCCL_T_F32, .op = OCCL_OP_SUM, .elem_bytes = 4, .nchannels = s.channels};
                occl_plan_t *plan = NULL;
                set_blocks(m, r, &a);
                if (m->lists[r])
                    all = m->lists[r]->recv > all ? m->lists[r]->recv : all;
                if (p->build(&a, &plan) != OCCL_OK) {
                    good = 0;
                    continue;
                }
                plans++;
                for (uint32_t c = 0; c < plan->nchannels; c++)
                    for (uint32_t k = 0; k < plan->prog[c].nsteps; k++) {
                        const occl_step_t *st = &plan->prog[c].steps[k];
                        uint64_t end = st->dst.off + st->n + (st->op == OCCL_STEP_COLLECT ? (n - 1 - (r == n - 1)) * st->stride : 0);
                        if (st->dst.space == OCCL_SP_RECV || (st->dst.space == OCCL_SP_XRECV && !m->lists[r]))
                            top = end > top ? end : top;
                    }
                occl_plan_free(plan);
            }
            if (p->kind == OCCL_COLL_GATHER || p->kind == OCCL_COLL_ALLGATHER || p->kind == OCCL_COLL_ALLTOALL)
                all = n * count;
            else if (p->kind == OCCL_COLL_REDUCE_SCATTER)
                all = m->parts[0].n > m->parts[2].n ? m->parts[0].n : m->parts[2].n;
            else if (!m->lists[0])
                all = count;
            /* Gaps behind the last block are no part of it; nor is what a root writes into others' buffers, which they know the place of. */
            if (top != all && !(m->lists[0] && top <= all && top + 2 + (p->kind == OCCL_COLL_SCATTERV ? all / n : 0) >= all)) {
                diag("%s %s/%s: %llu and not %llu", occl_coll_name(p->kind), p->name, move_name[move], (unsigned long long)top,
                     (unsigned long long)all);
                good = 0;
            }
            arena_reset();
        }
    ok(good && plans > 100, "with counts past 2^31 offsets reach to the ends of the buffers, and no further (%llu plans)",
       (unsigned long long)plans);
}

int main(void)
{
    uint64_t caught[MUTANTS] = {0}, made[MUTANTS] = {0};
    check_split();
    check_fits();
    check_large();
    for (int i = 0; occl_planners[i]; i++)
        for (int move = 0; move < 2; move++)
            if (occl_planners[i]->moves & 1u << move) {
                seed = 20240607u + (uint64_t)i * 1000 + (uint64_t)move;
                check_planner(occl_planners[i], (occl_movement_t)move);
            }
    for (int i = 0; occl_planners[i]; i++)
        for (int move = 0; move < 2; move++)
            if (occl_planners[i]->moves & 1u << move)
                check_mutants(occl_planners[i], (occl_movement_t)move, caught, made);
    check_wrong_root();
    for (int k = 0; k < MUTANTS; k++)
        ok(made[k] > 0, "%s is noticed (%llu of %llu)", mutant_name[k], (unsigned long long)caught[k], (unsigned long long)made[k]);
    while (arena_first) {
        block_t *b = arena_first;
        arena_first = b->next;
        free(b);
    }
    return tap_done();
}
