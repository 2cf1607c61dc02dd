/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered collectives: argument checks, the signature, the plan cache, starting, withdrawing.
 */
#include "core/internal.h"

#include "kernels/occl_dev_front.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/daemon.h"

static int reduces(occl_collkind_t k)
{
    return k == OCCL_COLL_REDUCE || k == OCCL_COLL_ALLREDUCE || k == OCCL_COLL_REDUCE_SCATTER_BLOCK || k == OCCL_COLL_SCAN ||
           k == OCCL_COLL_EXSCAN || k == OCCL_COLL_REDUCE_SCATTER;
}

static int rooted(occl_collkind_t k)
{
    return k == OCCL_COLL_BCAST || k == OCCL_COLL_REDUCE || k == OCCL_COLL_GATHER || k == OCCL_COLL_SCATTER ||
           k == OCCL_COLL_GATHERV || k == OCCL_COLL_SCATTERV;
}

/* Where all members must agree whether they are in place: blocks are exchanged within RECV. */
static int swaps(const occl_coll_args_t *a) { return occl_coll_swaps(a->kind, a->in_place); }

static int has_blocks(occl_collkind_t k) { return occl_coll_exchanges(k) || k == OCCL_COLL_REDUCE_SCATTER; }

/* --- blocks ------------------------------------------------------------------------------------------------------- */

/* Displacements count from the lowest one: the buffer begins there. */
static const void *rebase(const void *buf, occl_block_t *b, uint32_t n)
{
    int64_t low = INT64_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (b[i].n && (int64_t)b[i].at < low)
            low = (int64_t)b[i].at;
    if (low == INT64_MAX)
        low = 0;
    for (uint32_t i = 0; i < n; i++)
        b[i].at = b[i].n ? b[i].at - (uint64_t)low : 0;
    return (const void *)((uintptr_t)buf + (uintptr_t)low);
}

/* No lock. Where there are blocks *args_p becomes *a, with blocks of our own, which *blocks_p is to be freed by. */
static occl_status_t take_blocks(const occl_comm_t *c, const occl_coll_args_t **args_p, occl_coll_args_t *a, occl_block_t **blocks_p)
{
    occl_block_t *b;
    *blocks_p = NULL;
    if (OCCL_LIKELY((unsigned)(*args_p)->kind >= OCCL_COLL_COUNT || !has_blocks((*args_p)->kind)))
        return OCCL_OK;
    *a = **args_p;
    *args_p = a;
    if (swaps(a)) {
        a->sends = a->recvs;
        a->nsends = a->nrecvs;
    }
    if (a->kind == OCCL_COLL_REDUCE_SCATTER && (a->nsends || a->nrecvs != (uint32_t)c->size))
        return occl_fail(OCCL_ERR_ARG, "a reduce_scatter needs one block for each member");
    b = calloc((size_t)a->nsends + a->nrecvs + 1, sizeof(*b));
    if (!b)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for %u blocks", a->nsends + a->nrecvs);
    if (a->nsends)
        memcpy(b, a->sends, a->nsends * sizeof(*b));
    if (a->nrecvs)
        memcpy(b + a->nsends, a->recvs, a->nrecvs * sizeof(*b));
    a->sends = b;
    a->recvs = b + a->nsends;
    *blocks_p = b;
    if (a->kind == OCCL_COLL_REDUCE_SCATTER) {
        a->count = 0;
        for (uint32_t i = 0; i < a->nrecvs; i++) {
            b[i].peer = (int32_t)i;
            b[i].type = a->type;
            b[i].at = a->count;
            if (__builtin_add_overflow(a->count, b[i].n, &a->count))
                return occl_fail(OCCL_ERR_COUNT, "the blocks are too large: together they exceed 2^64 elements");
        }
        return OCCL_OK;
    }
    a->type = OCCL_T_BYTE;
    a->op = OCCL_OP_NONE;
    a->count = 0;
    for (uint32_t i = 0; i < a->nsends + a->nrecvs; i++) {
        int64_t end;
        if (b[i].peer < 0 || b[i].peer >= c->size)
            return occl_fail(OCCL_ERR_RANK, "rank %d is not in the communicator (0 to %d)", (int)b[i].peer, c->size - 1);
        if (b[i].n > INT64_MAX / 2 || __builtin_add_overflow((int64_t)b[i].at, (int64_t)b[i].n, &end) ||
            (int64_t)b[i].at < INT64_MIN / 2 || end > INT64_MAX / 2)
            return occl_fail(OCCL_ERR_COUNT, "a block of %llu bytes at %lld is too large", (unsigned long long)b[i].n,
                             (long long)b[i].at);
    }
    if (!swaps(a))
        a->send = rebase(a->send, b, a->nsends);
    a->recv = (void *)(uintptr_t)rebase(a->recv, b + a->nsends, a->nrecvs);
    if (swaps(a))
        memcpy(b, b + a->nsends, a->nsends * sizeof(*b));
    return OCCL_OK;
}

static uint64_t span_of(const occl_block_t *b, uint32_t n)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < n; i++)
        if (b[i].n && b[i].at + b[i].n > end)
            end = b[i].at + b[i].n;
    return end;
}

typedef struct piece {
    uintptr_t at, end;
    int recv;
} piece_t;

static int by_address(const void *a, const void *b)
{
    const piece_t *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : x->recv - y->recv;
}

/* No byte is written twice, or both written and read; and what goes to oneself fits. */
static occl_status_t check_blocks(const occl_comm_t *c, const occl_coll_args_t *a)
{
    uint32_t n = 0, k = 0;
    uintptr_t recv_end = 0, send_end = 0;
    occl_status_t s = OCCL_OK;
    piece_t *p = malloc(((size_t)a->nsends + a->nrecvs + 1) * sizeof(*p));
    if (!p)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory to look at %u blocks", a->nsends + a->nrecvs);
    for (uint32_t i = 0; i < a->nsends; i++) {
        const occl_block_t *b = &a->sends[i], *r = NULL;
        if (b->n && !swaps(a))
            p[n++] = (piece_t){(uintptr_t)a->send + b->at, (uintptr_t)a->send + b->at + b->n, 0};
        if (b->peer != c->rank)
            continue;
        for (; k < a->nrecvs && !r; k++)
            if (a->recvs[k].peer == c->rank)
                r = &a->recvs[k];
        if (r && b->n == r->n && b->n && b->type != r->type)
            s = occl_fail(OCCL_ERR_TYPE, "what rank %d sends to itself is of the type %s, what it expects of the type %s", c->rank,
                          occl_type_name(b->type), occl_type_name(r->type));
        else if (!r || b->n != r->n)
            s = occl_fail(OCCL_ERR_COUNT, "rank %d sends itself %llu bytes and expects %llu; they must be equal", c->rank,
                          (unsigned long long)b->n, (unsigned long long)(r ? r->n : 0));
        if (s != OCCL_OK)
            break;
    }
    for (uint32_t i = 0; s == OCCL_OK && i < a->nrecvs; i++)
        if (a->recvs[i].n)
            p[n++] = (piece_t){(uintptr_t)a->recv + a->recvs[i].at, (uintptr_t)a->recv + a->recvs[i].at + a->recvs[i].n, 1};
    if (s == OCCL_OK)
        qsort(p, n, sizeof(*p), by_address);
    for (uint32_t i = 0; s == OCCL_OK && i < n; i++) {
        if (p[i].at < recv_end && p[i].recv && p[i].at >= send_end)
            s = occl_fail(OCCL_ERR_BUFFER, "blocks of the receive buffer overlap");
        else if (p[i].at < recv_end || (p[i].recv && p[i].at < send_end))
            s = occl_fail(OCCL_ERR_BUFFER, "blocks of the send and the receive buffer overlap");
        if (p[i].recv && p[i].end > recv_end)
            recv_end = p[i].end;
        if (!p[i].recv && p[i].end > send_end)
            send_end = p[i].end;
    }
    free(p);
    return s;
}

static uint64_t half_of(int from, int to, uint32_t which, const occl_block_t *b)
{
    uint64_t h = occl_hash_mix(((uint64_t)(uint32_t)from << 32 | (uint32_t)to) + 1);
    h = occl_hash_mix(h ^ ((uint64_t)which << 32 | b->type));
    return occl_hash_mix(h + b->n);
}

/* What the record of an exchange says of its blocks. False: no memory. */
static int describe(const occl_comm_t *c, occl_coll_t *coll)
{
    const occl_coll_args_t *a = &coll->args;
    occl_record_t *w = &coll->wire;
    uint32_t *seen = calloc(2 * (size_t)c->size, sizeof(*seen)), *filled;
    if (!seen)
        return 0;
    filled = seen + c->size;
    for (int out = 1; out >= 0; out--) {
        const occl_block_t *b = out ? a->sends : a->recvs;
        memset(seen, 0, 2 * (size_t)c->size * sizeof(*seen));
        for (uint32_t i = 0; i < (out ? a->nsends : a->nrecvs); i++) {
            uint32_t which = seen[b[i].peer]++;
            if (!b[i].n)
                continue;
            if (filled[b[i].peer]++ && b[i].peer != c->rank)
                coll->rec_flags |= REC_SLOTS; /* an exposed plan has one address for each peer */
            w->balance += out ? half_of(c->rank, b[i].peer, which, &b[i]) : -half_of(b[i].peer, c->rank, which, &b[i]);
            if (out && b[i].peer != c->rank) {
                w->moved += b[i].n;
                w->nmoved++;
            }
        }
    }
    free(seen);
    return 1;
}

/* Every rank knows every length: their sum, the longest, how many are not 0, and a hash. */
typedef struct lengths {
    uint64_t sum, longest, some, hash;
} lengths_t;

static void add_length(lengths_t *l, uint32_t rank, uint64_t n, uint32_t type)
{
    if (!n)
        return;
    l->sum += n;
    l->some++;
    l->longest = n > l->longest ? n : l->longest;
    l->hash += occl_hash_mix(occl_hash_mix((uint64_t)rank << 32 | type) + n);
}

static lengths_t lengths_of(const occl_comm_t *c, const occl_coll_args_t *a)
{
    lengths_t l = {0, 0, 0, 0};
    int all = a->kind == OCCL_COLL_REDUCE_SCATTER;
    for (uint32_t i = 0; i < a->nrecvs; i++)
        if (all || a->recvs[i].peer != c->rank)
            add_length(&l, (uint32_t)a->recvs[i].peer, a->recvs[i].n, a->recvs[i].type);
    if (!all && a->nsends)
        add_length(&l, (uint32_t)c->rank, a->sends[0].n, a->sends[0].type);
    return l;
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Bytes of each buffer that count: what plan.h says of SEND and RECV. */
static void extents(const occl_comm_t *c, const occl_coll_args_t *a, uint64_t *send_p, uint64_t *recv_p)
{
    uint64_t n = (uint64_t)c->size, bytes = a->count * occl_host_type_bytes(a->type);
    int root = a->root == c->rank;
    uint64_t send = 0, recv = 0;
    if (occl_coll_exchanges(a->kind)) {
        *send_p = swaps(a) ? 0 : span_of(a->sends, a->nsends);
        *recv_p = span_of(a->recvs, a->nrecvs);
        return;
    }
    switch (a->kind) {
    case OCCL_COLL_BCAST:
        recv = 1;
        break;
    case OCCL_COLL_REDUCE:
        send = !(root && a->in_place);
        recv = root;
        break;
    case OCCL_COLL_ALLREDUCE:
    case OCCL_COLL_SCAN:
        send = !a->in_place;
        recv = 1;
        break;
    case OCCL_COLL_EXSCAN:
        send = !a->in_place;
        recv = a->in_place || c->rank > 0;
        break;
    case OCCL_COLL_GATHER:
        send = !(root && a->in_place);
        recv = root ? n : 0;
        break;
    case OCCL_COLL_SCATTER:
        send = root ? n : 0;
        recv = !(root && a->in_place);
        break;
    case OCCL_COLL_ALLGATHER:
        send = !a->in_place;
        recv = n;
        break;
    case OCCL_COLL_REDUCE_SCATTER_BLOCK:
        send = a->in_place ? 0 : n;
        recv = a->in_place ? n : 1;
        break;
    case OCCL_COLL_ALLTOALL:
        send = a->in_place ? 0 : n;
        recv = n;
        break;
    case OCCL_COLL_SENDRECV:
        send = a->sender != 0;
        recv = a->sender == 0;
        break;
    case OCCL_COLL_REDUCE_SCATTER:
        send = !a->in_place;
        *recv_p = a->in_place ? bytes : a->recvs[c->rank].n * occl_host_type_bytes(a->type);
        *send_p = send * bytes;
        return;
    default:
        break;
    }
    *send_p = send * bytes;
    *recv_p = recv * bytes;
}

static occl_status_t check(const occl_comm_t *c, int32_t tag, const occl_coll_args_t *a)
{
    uint64_t send, recv, eb = occl_host_type_bytes(a->type);
    if ((unsigned)a->kind >= OCCL_COLL_COUNT)
        return occl_fail(OCCL_ERR_ARG, "no such collective: %d", (int)a->kind);
    if (tag < 0)
        return occl_fail(OCCL_ERR_TAG, "tag %d is negative; tags are 0 to 2147483647", tag);
    if (a->type >= OCCL_T_COUNT || !eb)
        return occl_fail(OCCL_ERR_TYPE, "element type %u is not known to the engine", a->type);
    if (rooted(a->kind) && (a->root < 0 || a->root >= c->size))
        return occl_fail(OCCL_ERR_ROOT, "root %d is not a rank of the communicator (0 to %d)", a->root, c->size - 1);
    if (a->kind == OCCL_COLL_SENDRECV && (a->peer < 0 || a->peer >= c->size))
        return occl_fail(OCCL_ERR_RANK, "rank %d is not in the communicator (0 to %d)", a->peer, c->size - 1);
    if (reduces(a->kind) && c->dev->ops->far && !c->dev->ops->far->op_valid(a->op, a->type))
        return occl_fail(OCCL_ERR_OP, "the op %s on the type %s cannot be done by the %s device", occl_op_name(a->op),
                         occl_type_name(a->type), c->dev->ops->name);
    if (reduces(a->kind) && !occl_host_op_valid(a->op, a->type))
        return occl_fail(OCCL_ERR_OP, "the op %s is not defined for the type %s", occl_op_name(a->op), occl_type_name(a->type));
    if (a->count > (uint64_t)INT64_MAX / eb / (uint64_t)(c->size ? c->size : 1))
        return occl_fail(OCCL_ERR_COUNT, "count %llu is too large: the buffers would exceed 2^63 bytes",
                         (unsigned long long)a->count);
    extents(c, a, &send, &recv);
    if (send && !a->send)
        return occl_fail(OCCL_ERR_BUFFER, "the send buffer is NULL but has %llu elements", (unsigned long long)(send / eb));
    if (recv && !a->recv)
        return occl_fail(OCCL_ERR_BUFFER, "the receive buffer is NULL but has %llu elements", (unsigned long long)(recv / eb));
    if (occl_coll_exchanges(a->kind))
        return check_blocks(c, a);
    if (send && recv && !a->in_place) {
        uintptr_t s = (uintptr_t)a->send, r = (uintptr_t)a->recv;
        if (s < r + recv && r < s + send)
            return occl_fail(OCCL_ERR_BUFFER, "send and receive buffers overlap; use MPI_IN_PLACE");
    }
    return OCCL_OK;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

/* blocks: those that a says the number of. The pointers in a are NULL. */
static uint64_t plan_key(const occl_plan_args_t *a, const occl_block_t *blocks, int hidden)
{
    /* What most have not is 0, and stands last. */
    size_t bytes = a->op == OCCL_OP_PREMUL ? sizeof(*a) : offsetof(occl_plan_args_t, least);
    uint64_t h = occl_hash_bytes(a, bytes, (uint64_t)hidden);
    return a->nsends + a->nrecvs ? occl_hash_bytes(blocks, (a->nsends + a->nrecvs) * sizeof(*blocks), h) : h;
}

static int same_plan(const occl_cached_plan_t *cp, const occl_plan_args_t *a, const occl_block_t *blocks, int hidden)
{
    return cp->hidden == hidden && memcmp(&cp->args, a, sizeof(*a)) == 0 &&
           (a->nsends + a->nrecvs == 0 || memcmp(cp->blocks, blocks, (a->nsends + a->nrecvs) * sizeof(*blocks)) == 0);
}

void occl_cached_plan_free(occl_cached_plan_t *cp)
{
    occl_plan_free(cp->plan);
    free(cp->blocks);
    free(cp);
}

/*
 * Channels of a collective, from its size. One has room for so much in words; what goes from buffer to buffer is worth another
 * channel for each 64 KiB that this rank has to move.
 */
enum { SLOT_BYTES_PER_CHANNEL = 1024, EXPOSED_BYTES_PER_CHANNEL = 64 * 1024 };
static uint32_t channels_for(const occl_comm_t *c, uint64_t bytes, int exposed)
{
    uint64_t n = bytes / (exposed ? EXPOSED_BYTES_PER_CHANNEL : SLOT_BYTES_PER_CHANNEL);
    uint32_t most = exposed ? c->nchannels : c->slot_channels;
    if (!c->dev->ops->far)
        return c->nchannels;
    return n < 1 ? 1 : n > most ? most : (uint32_t)n;
}

enum { PLANS_KEPT = 1024 };

static void forget_unused_plans(occl_comm_t *c)
{
    size_t at = 0;
    uint64_t key;
    void *v;
    occl_hash_t keep = OCCL_HASH_INIT;
    while ((v = occl_hash_next(&c->plans, &at, &key)) != NULL) {
        occl_cached_plan_t *cp = v;
        if (!cp->refs) {
            occl_cached_plan_free(cp);
        } else if (occl_hash_put(&keep, key, cp) != OCCL_OK) {
            cp->key = 0; /* no memory to keep it in the table: freed with its last reference */
        }
    }
    occl_hash_fini(&c->plans);
    c->plans = keep;
}

void occl_plan_put(occl_comm_t *c, occl_cached_plan_t *cp)
{
    (void)c;
    if (--cp->refs == 0 && cp->key == 0)
        occl_cached_plan_free(cp);
}

static void select_in(occl_comm_t *c, const occl_tag_t *t, const occl_plan_args_t *pa, occl_select_t *in)
{
    memset(in, 0, sizeof(*in));
    in->kind = pa->kind;
    in->type = pa->type;
    in->op = pa->op;
    in->nranks = t->n;
    in->count = pa->count;
    in->elem_bytes = pa->elem_bytes;
    in->in_place = (int)pa->in_place;
    in->exposed = c->exposed != 0;
    in->far = c->dev->ops->far != NULL;
    in->eager_max = c->eager_max;
    in->direct_min = in->far ? 0 : c->direct_min; /* far: its rules say */
    in->slot_data = (uint32_t)occl_slot_capacity(c->geo.slot_bytes);
    in->nslots = c->geo.nslots;
    in->nchannels = channels_for(c, pa->count * pa->elem_bytes, 0);
    in->algo = c->algo;
}

occl_movement_t occl_exchange_move(occl_comm_t *c, const occl_tag_t *t, const occl_coll_args_t *a, uint64_t bytes)
{
    occl_plan_args_t pa = {.kind = a->kind, .count = bytes, .type = OCCL_T_BYTE, .elem_bytes = 1, .in_place = a->in_place != 0};
    occl_select_t in;
    occl_choice_t out;
    select_in(c, t, &pa, &in);
    return occl_plan_select(&in, &out) == OCCL_OK ? out.move : OCCL_MOVE_SLOTS;
}

/* Chooses algorithm and movement from the signature and what was agreed at attach, and gives a referenced plan. For an exchange in
 * which not all know all lengths the gate has the choice: from buffer to buffer, if that is possible, or through slots (hidden). */
occl_status_t occl_plan_choose(occl_comm_t *c, occl_tag_t *t, const occl_coll_args_t *a, uint64_t count, int hidden,
                               occl_cached_plan_t **cp_p)
{
    int exchange = occl_coll_exchanges(a->kind), known = occl_coll_known(a->kind), same = 1;
    lengths_t l = {0, 0, 0, 0};
    const occl_block_t *blocks = NULL;
    occl_plan_args_t pa;
    occl_select_t in;
    occl_choice_t out;
    occl_cached_plan_t *cp;
    occl_status_t s = OCCL_OK;
    memset(&pa, 0, sizeof(pa)); /* hashed and compared as bytes */
    pa.kind = a->kind;
    pa.rank = t->me;
    pa.nranks = t->n;
    pa.root = a->root > 0 ? (uint32_t)a->root : 0;
    pa.count = count;
    pa.type = a->type;
    pa.op = reduces(a->kind) ? a->op : OCCL_OP_NONE;
    if (pa.op == OCCL_OP_PREMUL)
        memcpy(pa.scale, a->scale, sizeof(pa.scale));
    pa.elem_bytes = (uint32_t)occl_host_type_bytes(a->type);
    pa.in_place = (uint32_t)(a->in_place != 0);
    if (OCCL_UNLIKELY(has_blocks(a->kind))) {
        if (known || !exchange)
            l = lengths_of(c, a);
        for (uint32_t i = 1; !exchange && i < a->nrecvs; i++)
            same &= a->recvs[i].n == a->recvs[0].n;
        if (!exchange && same) { /* the blocks are equal */
            pa.kind = OCCL_COLL_REDUCE_SCATTER_BLOCK;
            pa.count = a->recvs[0].n;
        } else {
            pa.nsends = a->nsends;
            pa.nrecvs = a->nrecvs;
            blocks = a->nsends ? a->sends : a->recvs;
        }
        if (exchange) {
            pa.least = occl_slot_capacity(c->geo.slot_bytes);
            pa.count = l.some ? (l.sum + l.some - 1) / l.some : 0;
        }
    }
    /* Everything else that the choice depends on is the communicator's, so the key may leave the choice out. */
    cp = occl_hash_get(&c->plans, plan_key(&pa, blocks, hidden));
    if (cp && same_plan(cp, &pa, blocks, hidden)) {
        cp->refs++;
        *cp_p = cp;
        return OCCL_OK;
    }
    select_in(c, t, &pa, &in);
    in.exposed = in.exposed && !hidden;
    if (pa.kind == OCCL_COLL_REDUCE_SCATTER)
        in.count = l.longest;
    if (exchange && !known) {
        out.planner = occl_planner_find(a->kind, "exchange");
        out.move = hidden ? OCCL_MOVE_SLOTS : OCCL_MOVE_EXPOSED;
        out.gated = 1;
    } else {
        s = occl_plan_select(&in, &out);
    }
    if (s != OCCL_OK)
        return occl_fail(s, "no algorithm for this %s (OCCL_ALGO is \"%.100s\")", occl_coll_name(a->kind), c->algo);
    if (exchange && known) /* short ones go at once, and each link has one message */
        out.gated = out.move == OCCL_MOVE_EXPOSED || l.longest > pa.least || l.longest > c->eager_max;
    if (c->plans.count >= PLANS_KEPT)
        forget_unused_plans(c);
    cp = calloc(1, sizeof(*cp));
    if (!cp)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a plan");
    cp->args = pa;
    if (blocks) {
        cp->blocks = malloc((pa.nsends + pa.nrecvs + 1) * sizeof(*blocks));
        if (!cp->blocks) {
            free(cp);
            return occl_fail(OCCL_ERR_RESOURCE, "no memory for a plan");
        }
        memcpy(cp->blocks, blocks, (pa.nsends + pa.nrecvs) * sizeof(*blocks));
        pa.sends = cp->blocks;
        pa.recvs = cp->blocks + pa.nsends;
    }
    pa.move = out.move;
    /* What is exchanged on a channel must be so at both ends, and nobody knows how much that is. */
    pa.nchannels = channels_for(c, exchange ? (out.move == OCCL_MOVE_EXPOSED ? UINT64_MAX : 0) : count * pa.elem_bytes,
                                out.move == OCCL_MOVE_EXPOSED);
    s = out.planner->build(&pa, &cp->plan);
    if (s != OCCL_OK) {
        occl_cached_plan_free(cp);
        return occl_fail(s, "the %s algorithm cannot do this %s", out.planner->name, occl_coll_name(a->kind));
    }
    {
        uint64_t chunk = (out.move == OCCL_MOVE_EXPOSED ? occl_chunk_bytes(c, cp->plan) : in.slot_data) / pa.elem_bytes;
        if (!occl_plan_fits(cp->plan, chunk ? chunk : 1)) {
            occl_cached_plan_free(cp);
            return occl_fail(OCCL_ERR_COUNT, "count %llu is too large for steps of %llu bytes (OCCL_CHUNK)",
                             (unsigned long long)count, (unsigned long long)(chunk * pa.elem_bytes));
        }
    }
    cp->gated = out.gated;
    cp->hidden = hidden;
    cp->words = in.far && !exchange && occl_plan_words(out.planner, cp->plan, in.slot_data / pa.elem_bytes, c->geo.slot_bytes,
                                                       c->geo.nslots, OCCL_STAGE_BYTES);
    cp->key = plan_key(&cp->args, cp->blocks, hidden);
    /* A plan that does not get into the table (a collision, no memory) lives as long as its references. */
    if (occl_hash_get(&c->plans, cp->key) || occl_hash_put(&c->plans, cp->key, cp) != OCCL_OK)
        cp->key = 0;
    cp->refs = 1;
    occl_log(&c->ctx->log, OCCL_LOG_DEBUG | OCCL_AREA_CHOICE, "%s of %llu x %s on %u ranks: %s, %s, %s", occl_coll_name(a->kind),
             (unsigned long long)pa.count, "elements", t->n, out.planner->name,
             out.move == OCCL_MOVE_SLOTS ? "through slots" : "from and to user buffers", out.gated ? "gated" : "eager");
    *cp_p = cp;
    return OCCL_OK;
}

/* --- buffers of a far device ---------------------------------------------------------------------------------------- */

/* No lock: asks the driver. The parts of the buffers that count, as the user gave them (before place). */
static occl_status_t buffers_known(const occl_comm_t *c, const occl_coll_args_t *a, occl_buffer_t *s, occl_buffer_t *r)
{
    const occl_device_far_ops_t *far = c->dev->ops->far;
    uint64_t send, recv;
    occl_status_t status = OCCL_OK;
    char err[256] = "";
    if (!far)
        return OCCL_OK;
    extents(c, a, &send, &recv);
    if (send)
        status = far->buffer(c->dev, a->send, send, c->exposed, s, err, sizeof(err));
    if (status == OCCL_OK && recv)
        status = far->buffer(c->dev, a->recv, recv, c->exposed, r, err, sizeof(err));
    return status == OCCL_OK ? status : occl_fail(status, "%s", err);
}

static void buffers_free(const occl_comm_t *c, occl_buffer_t *s, occl_buffer_t *r)
{
    if (!c->dev->ops->far)
        return;
    c->dev->ops->far->buffer_free(c->dev, s);
    c->dev->ops->far->buffer_free(c->dev, r);
}

/* In which of the two a place is that the engine is given; its distance from the start. */
static const occl_buffer_t *buffer_of(const occl_coll_t *coll, const void *p, uint64_t *delta_p)
{
    const unsigned char *recv = coll->user_recv;
    if (p == coll->args.send && coll->sbuf.at) {
        *delta_p = 0;
        return &coll->sbuf;
    }
    *delta_p = coll->rbuf.at ? (uint64_t)((const unsigned char *)p - recv) : 0;
    return &coll->rbuf;
}

uint64_t occl_coll_at(const occl_coll_t *coll, const void *p)
{
    uint64_t delta;
    const occl_buffer_t *b = p ? buffer_of(coll, p, &delta) : NULL;
    return b && b->at ? b->at + delta : 0;
}

/* False: peers cannot reach it. */
int occl_coll_exported(const occl_coll_t *coll, const void *p, uint64_t *number_p, uint64_t *offset_p)
{
    uint64_t delta;
    const occl_buffer_t *b = p ? buffer_of(coll, p, &delta) : NULL;
    *number_p = *offset_p = 0;
    if (!b || !b->at)
        return 1; /* no bytes */
    *number_p = b->number;
    *offset_p = b->offset + delta;
    return b->number != 0;
}

static void copy_in(const occl_coll_t *coll, int rank)
{
    if (coll->sbuf.bounce)
        memcpy(coll->sbuf.bounce, coll->user_send, coll->sbuf.bytes);
    if (coll->rbuf.bounce && (coll->args.in_place || (coll->args.kind == OCCL_COLL_BCAST && coll->args.root == rank)))
        memcpy(coll->rbuf.bounce, coll->user_recv, coll->rbuf.bytes);
}

void occl_run_copy_out(occl_run_t *r)
{
    const occl_buffer_t *b = &r->coll->rbuf;
    uint64_t bytes = r->coll->args.kind == OCCL_COLL_SENDRECV && r->bytes < b->bytes ? r->bytes : b->bytes;
    if (!b->bounce || (r->coll->args.kind == OCCL_COLL_BCAST && r->coll->args.root == r->comm->rank))
        return; /* the root's own data are not to be written, not even with what they are */
    if (occl_coll_exchanges(r->coll->args.kind)) { /* what lies between the blocks is not ours */
        for (uint32_t i = 0; i < r->coll->args.nrecvs; i++) {
            const occl_block_t *p = &r->coll->args.recvs[i];
            memcpy((unsigned char *)r->coll->user_recv + p->at, (unsigned char *)b->bounce + p->at, p->n);
        }
        return;
    }
    if (r->coll->args.kind == OCCL_COLL_EXSCAN && r->comm->rank == 0)
        return;
    memcpy(r->coll->user_recv, b->bounce, bytes);
}

/* --- registration ------------------------------------------------------------------------------------------------- */

/* Where the engine shall read and write: MPI_IN_PLACE becomes plain addresses. */
static void place(const occl_comm_t *c, occl_coll_args_t *a)
{
    uint64_t block = a->count * occl_host_type_bytes(a->type);
    if (!a->in_place)
        return;
    if (a->kind == OCCL_COLL_ALLGATHER || (a->kind == OCCL_COLL_GATHER && a->root == c->rank))
        a->send = (unsigned char *)a->recv + block * (uint64_t)c->rank;
    else if (reduces(a->kind))
        a->send = a->recv;
    else if (swaps(a) && a->kind != OCCL_COLL_ALLTOALL)
        a->send = NULL;
}

void occl_coll_unref(occl_coll_t *coll)
{
    occl_comm_t *c = coll->comm;
    if (--coll->refs)
        return;
    if (coll->cp)
        occl_plan_put(c, coll->cp);
    if (coll->alt)
        occl_plan_put(c, coll->alt);
    buffers_free(c, &coll->sbuf, &coll->rbuf);
    if (coll->run) {
        occl_run_strip(coll->run, c);
        free(coll->run);
    }
    free(coll->text);
    free(coll->blocks);
    if (coll->args.stage)
        coll->args.stage->release(coll->args.stage);
    c->n_colls--;
    free(coll);
    occl_comm_unref(c);
}

/* The plans of a collective. An exchange has two where there is a choice, and its gate takes one of them. */
static occl_status_t find_plans(occl_coll_t *coll)
{
    occl_comm_t *c = coll->comm;
    const occl_coll_args_t *a = &coll->args;
    int exchange = occl_coll_exchanges(a->kind) && !occl_coll_known(a->kind);
    int slots = exchange && (!c->exposed || swaps(a) || (coll->rec_flags & REC_SLOTS));
    occl_status_t s = occl_plan_choose(c, coll->tag, a, a->count, slots, &coll->cp);
    if (s == OCCL_OK && (exchange || c->dev->ops->far) && (coll->cp->plan->flags & OCCL_PLAN_EXPOSED)) {
        s = occl_plan_choose(c, coll->tag, a, a->count, 1, &coll->alt);
        if (s != OCCL_OK)
            occl_plan_put(c, coll->cp);
    }
    return s;
}

/* bufs: send, receive; blocks: of args. Taken over when it succeeds. */
static occl_status_t coll_new(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, const occl_buffer_t *bufs,
                              occl_block_t *blocks, occl_coll_t **coll_p)
{
    occl_coll_t *coll;
    occl_tag_t *t;
    occl_status_t s = check(c, tag, args);
    if (s != OCCL_OK)
        return s;
    s = occl_tag_get(c, tag, args, &t);
    if (s != OCCL_OK)
        return s;
    coll = calloc(1, sizeof(*coll));
    if (!coll)
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a collective");
    coll->comm = c;
    coll->tag = t;
    coll->args = *args;
    coll->user_send = args->send;
    coll->user_recv = args->recv;
    coll->refs = 1;
    if (OCCL_UNLIKELY(occl_coll_exchanges(args->kind)) && !describe(c, coll)) {
        free(coll);
        return occl_fail(OCCL_ERR_RESOURCE, "no memory for a collective");
    }
    if (args->kind != OCCL_COLL_SENDRECV) {
        s = find_plans(coll);
        if (s != OCCL_OK) {
            free(coll);
            return s;
        }
    }
    coll->sbuf = bufs[0];
    coll->rbuf = bufs[1];
    place(c, &coll->args);
    coll->wire.kind = args->kind | (swaps(args) ? WIRE_IN_PLACE : 0);
    coll->wire.type = args->kind == OCCL_COLL_BARRIER ? 0 : args->type;
    coll->wire.op = reduces(args->kind) ? args->op : OCCL_OP_NONE;
    if (coll->wire.op == OCCL_OP_PREMUL)
        coll->wire.op |= (uint32_t)occl_hash_bytes(args->scale, sizeof(args->scale), 1) << 8;
    coll->wire.root = rooted(args->kind) ? args->root : -1;
    coll->wire.count = args->kind == OCCL_COLL_BARRIER ? 0 : args->count;
    if (OCCL_UNLIKELY(args->as)) {
        coll->wire.kind = args->as_kind | WIRE_OF_USER;
        coll->wire.op = args->as_op;
        coll->wire.count = args->as_count;
    }
    if (OCCL_UNLIKELY(args->as_types != 0))
        coll->wire.type |= args->as_types << 8;
    if (args->stage)
        args->stage->retain(args->stage);
    {
        /* Sender and receiver may pass different counts. */
        uint64_t h = occl_hash_mix(coll->wire.kind + 1);
        h = occl_hash_mix(h ^ ((uint64_t)coll->wire.type << 32 | coll->wire.op));
        h = occl_hash_mix(h ^ (uint64_t)(uint32_t)coll->wire.root);
        coll->wire.sig = occl_hash_mix(h ^ (args->kind == OCCL_COLL_SENDRECV ? 0 : coll->wire.count));
    }
    if (OCCL_UNLIKELY(has_blocks(args->kind))) {
        coll->blocks = blocks;
        coll->serial = ++c->serials;
        if (occl_coll_known(args->kind) || args->kind == OCCL_COLL_REDUCE_SCATTER) {
            lengths_t l = lengths_of(c, args);
            coll->wire.count = l.sum;
            coll->wire.sig = occl_hash_mix(coll->wire.sig ^ l.hash);
            coll->wire.balance = 0;
        }
        coll->likely_slots = !coll->alt || occl_exchange_move(c, t, args, coll->wire.nmoved ? coll->wire.moved / coll->wire.nmoved : 0) ==
                                               OCCL_MOVE_SLOTS;
    }
    occl_comm_ref(c);
    c->n_colls++;
    *coll_p = coll;
    return OCCL_OK;
}

occl_status_t occl_coll_create(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_coll_t **coll_p)
{
    occl_buffer_t bufs[2];
    occl_coll_args_t own;
    occl_block_t *blocks;
    occl_status_t s = take_blocks(c, &args, &own, &blocks);
    memset(bufs, 0, sizeof(bufs));
    if (s == OCCL_OK)
        s = check(c, tag, args);
    if (s == OCCL_OK)
        s = buffers_known(c, args, &bufs[0], &bufs[1]);
    if (s == OCCL_OK) {
        occl_ctx_lock(c->ctx);
        s = coll_new(c, tag, args, bufs, blocks, coll_p);
        occl_ctx_unlock(c->ctx);
    }
    if (s != OCCL_OK) {
        buffers_free(c, &bufs[0], &bufs[1]);
        free(blocks);
    }
    return s;
}

void occl_coll_free(occl_coll_t *coll)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_ctx_lock(ctx);
    coll->freed = 1;
    occl_coll_unref(coll);
    occl_ctx_unlock(ctx);
}

/* --- start -------------------------------------------------------------------------------------------------------- */

/* Sets up a run object for its next life. References: the tag's, and the starter's if it wants one. */
static void run_prepare(occl_run_t *r, occl_coll_t *coll, int starter)
{
    occl_comm_t *c = coll->comm;
    r->coll = coll;
    r->comm = c;
    r->tag = coll->tag;
    r->cp = coll->cp;
    if (r->cp)
        r->cp->refs++;
    r->refs = 1 + starter;
    r->status = OCCL_OK;
    r->failing = OCCL_OK;
    r->fn = NULL;
    r->bytes = 0;
    r->gated = 0;
    r->hidden = 0;
    r->copied = 0;
    r->staged = 0;
    r->held = r->enqueued = 0;
    r->refused = OCCL_OK;
    r->ticket.value = 0;
    r->partner = NULL;
    r->pool_off = 0;
    r->table = 0;
    r->started_at = c->ctx->env.t_warn ? occl_host_clock_ns() : 0;
    if (OCCL_UNLIKELY(r->text != NULL)) {
        free(r->text);
        r->text = NULL;
    }
    occl_store_relaxed32(&r->over, 0);
    r->dev.plan = NULL;
    r->dev.sig = coll->wire.sig;
    r->dev.drop = 0;
    r->dev.chunk = 0;
    r->dev.xsend = r->dev.xrecv = r->dev.via = NULL;
    r->dev.rxpool = r->dev.txpool = NULL;
    if (c->dev->ops->far) {
        r->dev.serial = 0;
        r->dev.nwake = 0;
    } else {
        r->dev.wake = r->tag->wake;
        r->dev.nwake = r->tag->n - 1;
    }
    r->dev.slot_bytes = c->geo.slot_bytes;
    r->dev.nslots = c->geo.nslots;
}

static int coll_is_message(const occl_coll_t *coll) { return coll->args.kind == OCCL_COLL_SENDRECV; }

/* A message to oneself: the n-th send meets the n-th receive, here. */
void occl_message_to_self(occl_run_t *r)
{
    occl_tag_t *t = r->tag;
    if (occl_run_stage(r))
        return;
    occl_list_push_back(r->coll->args.sender ? &t->self_sends : &t->self_recvs, &r->in_tag);
    r->state = RUN_GATE;
    while (!occl_list_empty(&t->self_sends) && !occl_list_empty(&t->self_recvs)) {
        occl_run_t *s = OCCL_CONTAINER(t->self_sends.next, occl_run_t, in_tag);
        occl_run_t *d = OCCL_CONTAINER(t->self_recvs.next, occl_run_t, in_tag);
        const occl_coll_args_t *sa = &s->coll->args, *da = &d->coll->args;
        occl_status_t status = OCCL_OK;
        const char *why = "";
        if (sa->type != da->type) {
            status = OCCL_ERR_MISMATCH;
            why = "a message to oneself: sender and receiver pass different types";
        } else if (sa->count > da->count) {
            status = OCCL_ERR_TRUNCATE;
            why = "a message to oneself is longer than the receive buffer";
        } else if (sa->count && s->comm->dev->ops->far) {
            /* The device copies: an all-gather of one rank. */
            occl_coll_args_t a = *sa;
            a.kind = OCCL_COLL_ALLGATHER;
            occl_list_remove(&s->in_tag);
            occl_list_remove(&d->in_tag);
            d->partner = s;
            d->bytes = s->bytes = sa->count * occl_host_type_bytes(sa->type);
            status = occl_plan_choose(t->comm, t, &a, sa->count, 0, &d->cp);
            if (status == OCCL_OK)
                occl_run_submit(d);
            else
                occl_run_finish(d, status, occl_text("%s", occl_last_error()));
            continue;
        } else if (sa->count) {
            memcpy(da->recv, sa->send, sa->count * occl_host_type_bytes(sa->type));
        }
        d->bytes = s->bytes = sa->count * occl_host_type_bytes(sa->type);
        occl_list_remove(&s->in_tag); /* their outcome may have to wait for what the layer above does */
        occl_list_remove(&d->in_tag);
        occl_run_finish(s, status, status ? occl_text("%s", why) : NULL);
        occl_run_finish(d, status, status ? occl_text("%s", why) : NULL);
    }
}

/* The caller holds the lock. */
static void launch(occl_run_t *r)
{
    occl_comm_t *c = r->comm;
    occl_ctx_t *ctx = c->ctx;
    c->n_starts++;
    ctx->n_starts++;
    c->pending++;
    occl_store_relaxed32(&ctx->pending, ctx->pending + 1);
    if (r->held && r->tag->n == 1 && coll_is_message(r->coll))
        r->state = RUN_QUEUED; /* meets its partner when it is released */
    else if (r->tag->n == 1 && coll_is_message(r->coll))
        occl_message_to_self(r);
    else
        occl_tag_enqueue(r->tag, r);
    /* The host device makes the first turn here: what can be sent is on its way when start returns. */
    if (c->dev->ops->caller_executes)
        (void)occl_ctx_progress(ctx, NULL, 0);
}

static occl_status_t start_locked(occl_coll_t *coll, int held, occl_run_t **run_p)
{
    occl_run_t *r;
    /* Of queued starts any number may be under way: the queue has them in order. */
    if (coll->active && !(held && coll->active->enqueued))
        return occl_fail(OCCL_ERR_REQUEST, "a run of this collective is still active; one at a time (register it again for more)");
    if (coll->comm->ctx->closing)
        return occl_fail(OCCL_ERR_REVOKED, "the library is being finalized");
    if (coll->comm->detached)
        return occl_fail(OCCL_ERR_NOT_ATTACHED, "the communicator has been detached");
    if (OCCL_UNLIKELY(__atomic_load_n(&coll->comm->dev->broken, __ATOMIC_ACQUIRE) != NULL))
        return occl_fail(OCCL_ERR_DEVICE, "%s", coll->comm->dev->broken);
    if (run_p || !coll->run || coll->run->refs) {
        r = occl_run_new();
        if (!r)
            return occl_fail(OCCL_ERR_RESOURCE, "no memory for a run");
        if (!run_p && !coll->run) {
            r->embedded = 1;
            coll->run = r;
        }
    } else {
        r = coll->run;
    }
    run_prepare(r, coll, run_p != NULL);
    r->held = r->enqueued = held;
    coll->refs++;
    coll->comm->live++;
    coll->active = r;
    coll->outcome = OCCL_OK;
    free(coll->text);
    coll->text = NULL;
    if (run_p)
        *run_p = r;
    launch(r);
    return OCCL_OK;
}

/* When the lock is released and the device launched, which neither shall compete with. There was a fence after the store of the pending
 * count: in the progress or in occl_tag_wake. */
static void helper_kick(occl_ctx_t *ctx)
{
    occl_helper_kick(ctx->helper);
}

occl_status_t occl_coll_start(occl_coll_t *coll, occl_run_t **run_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_status_t s;
    if (OCCL_UNLIKELY(coll->comm->dev->ops->far != NULL)) {
        /* The buffers may have been freed and made anew since; and what the device cannot reach is copied. Only while no run is
           active: it is the last start's caller who says so, and nobody else may start this one. */
        occl_ctx_lock(ctx);
        s = coll->active ? OCCL_ERR_REQUEST : OCCL_OK;
        occl_ctx_unlock(ctx);
        if (s == OCCL_OK) {
            s = occl_coll_refresh(coll);
            if (s != OCCL_OK)
                return s;
            copy_in(coll, coll->comm->rank);
        }
    }
    occl_ctx_lock(ctx);
    s = start_locked(coll, 0, run_p);
    occl_ctx_unlock(ctx);
    helper_kick(ctx);
    return s;
}

occl_status_t occl_coll_refresh(occl_coll_t *coll)
{
    occl_coll_args_t a = coll->args;
    if (!coll->comm->dev->ops->far || !(coll->alt || !coll->cp || coll->sbuf.bounce || coll->rbuf.bounce || coll->sbuf.pinned ||
                                        coll->rbuf.pinned))
        return OCCL_OK;
    a.send = coll->user_send;
    a.recv = coll->user_recv;
    return buffers_known(coll->comm, &a, &coll->sbuf, &coll->rbuf);
}

occl_status_t occl_coll_start_held(occl_coll_t *coll, occl_run_t **run_p) { return start_locked(coll, 1, run_p); }


occl_status_t occl_start(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_run_t **run_p)
{
    occl_coll_t *coll = NULL;
    occl_buffer_t bufs[2];
    occl_coll_args_t own;
    occl_block_t *blocks;
    occl_status_t s = take_blocks(c, &args, &own, &blocks);
    memset(bufs, 0, sizeof(bufs));
    if (OCCL_UNLIKELY(c->dev->ops->far != NULL) && s == OCCL_OK) {
        s = check(c, tag, args);
        if (s == OCCL_OK)
            s = buffers_known(c, args, &bufs[0], &bufs[1]);
        if (s == OCCL_OK) {
            occl_coll_t view;
            view.args = *args;
            view.user_send = args->send;
            view.user_recv = args->recv;
            view.sbuf = bufs[0];
            view.rbuf = bufs[1];
            copy_in(&view, c->rank);
        }
    }
    occl_ctx_lock(c->ctx);
    if (s == OCCL_OK)
        s = coll_new(c, tag, args, bufs, blocks, &coll);
    if (s == OCCL_OK) {
        s = start_locked(coll, 0, run_p);
        coll->freed = 1;
        occl_coll_unref(coll);
    } else {
        buffers_free(c, &bufs[0], &bufs[1]);
        free(blocks);
    }
    occl_ctx_unlock(c->ctx);
    helper_kick(c->ctx);
    return s;
}

/* Under the lock. A start that never was takes its place, so that the peers learn it. */
static void take_place(occl_tag_t *t, occl_status_t why)
{
    occl_comm_t *c = t->comm;
    occl_run_t *r = occl_run_new();
    if (r && t->n == 1) { /* nobody to tell, and nothing to keep in step with */
        free(r);
    } else if (r) {
        r->comm = c;
        r->tag = t;
        r->refs = 1;
        r->failing = why;
        r->over = 1;
        occl_comm_ref(c);
        c->live++;
        occl_tag_enqueue(t, r);
    }
}

void occl_start_failed(occl_comm_t *c, int32_t tag, const occl_coll_args_t *args, occl_status_t why)
{
    occl_tag_t *t;
    occl_ctx_lock(c->ctx);
    if (occl_tag_get(c, tag, args, &t) == OCCL_OK)
        take_place(t, why);
    else
        occl_tag_lose(c, tag, args);
    occl_ctx_unlock(c->ctx);
}

void occl_coll_start_failed(occl_coll_t *coll, occl_status_t why)
{
    occl_ctx_lock(coll->comm->ctx);
    take_place(coll->tag, why);
    occl_ctx_unlock(coll->comm->ctx);
}

occl_status_t occl_coll_cancel(occl_coll_t *coll, int *cancelled_p)
{
    occl_ctx_t *ctx = coll->comm->ctx;
    occl_run_t *r;
    *cancelled_p = 0;
    occl_ctx_lock(ctx);
    r = coll->active;
    if (!r) {
        occl_ctx_unlock(ctx);
        return occl_fail(OCCL_ERR_REQUEST, "no run of this collective is active");
    }
    if (r->n == r->tag->last_n && (r->state == RUN_QUEUED || (r->state == RUN_GATE && r->dev.plan == NULL))) {
        occl_tag_t *t = r->tag;
        int gone = r->state == RUN_QUEUED;
        if (!gone && t->n > 1)
            gone = occl_tag_withdraw(t, r);
        if (gone) {
            t->last_n--;
            ctx->n_withdrawn++;
            occl_run_finish(r, OCCL_ERR_CANCELLED, occl_text("withdrawn by MPIX_Occl_coll_cancel"));
            *cancelled_p = 1;
        }
    }
    occl_ctx_unlock(ctx);
    return OCCL_OK;
}

occl_comm_t *occl_coll_comm(occl_coll_t *coll) { return coll->comm; }
