/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scheduler of a channel: which run next, how long to wait for it, when to put it aside, when to leave the device.
 *
 * A pass gives every run of the table one turn, in order. A turn ends when the run is over, when its steps are used up, or
 * when it has waited in vain for its stickiness. Stickiness (OCCL's idea: a peer that answered is running the same
 * collective now, so stay) doubles after a turn that moved and halves after one that did not, between two bounds given in
 * time; the head of the table gets four times as much. Nothing is agreed with other ranks or channels: a switched-out run leaves
 * its messages in links that are its own tag's alone, so it blocks nobody.
 *
 * Decisions are lane 0's, shared with the block (occl_uniform): lanes that disagreed would run different collectives.
 */
#ifndef OCCL_KERNELS_SCHED_H
#define OCCL_KERNELS_SCHED_H

#include "occl_dev_front.h"
#include "occl_dev_quick.h"
#include "occl_dev_step.h"

#if !OCCL_CUDA
void occl_host_wake(uint32_t *sleeper);
/* Peers may sleep. My flags are stored; then the fence; then I read who sleeps. A sleeper stores that it sleeps, fences, and
 * looks at its flags once more: one of us sees the other. */
OCCL_FN void occl_wake_peers(const occl_dev_run_t *r)
{
    uint32_t i;
    occl_fence_sys();
    for (i = 0; i < r->nwake; i++)
        if (occl_load_relaxed32(r->wake[i]))
            occl_host_wake(r->wake[i]);
}
#endif

/* Lane 0 only. The channel is through with the run (`what`), or has parked it: the last channel tells the host. */
OCCL_FN void occl_dev_report(occl_daemon_t *d, occl_chan_t *ch, occl_dev_run_t *r, uint32_t nchannels, uint64_t what)
{
    if (nchannels > 1) {
        if (what == OCCL_CQ_PARKED)
            occl_store_relaxed32(&r->parked, 1);
        else if (what != OCCL_DONE && !occl_load_relaxed32(&r->failed)) /* the first one knows why; others follow it */
            occl_store_relaxed32(&r->failed, (uint32_t)what);
        if (occl_add_dev(&r->left, (uint32_t)-1) != 1)
            return;
        what = occl_load_relaxed32(&r->failed);
        if (!what && occl_load_relaxed32(&r->parked))
            what = OCCL_CQ_PARKED;
    }
#if OCCL_FRONT
    occl_front_report(d, ch, r, what);
#else
    uint64_t tail = ch->cq.tail;
    (void)d;
    /* The ring has room: the host never has more than OCCL_QUEUE_LEN runs outstanding. */
    occl_store_relaxed64(&ch->cq.entry[tail & (OCCL_QUEUE_LEN - 1)], (uint64_t)(uintptr_t)r | what);
    /* The counter's acquire has made the other channels' outputs mine; this release hands all of them to the host. */
    occl_store_release64(&ch->cq.tail, tail + 1);
#endif
}

/* Lane 0 only. Takes entry `i` out of the table. */
OCCL_FN void occl_dev_remove(occl_chan_t *ch, uint32_t i)
{
    OCCL_ROLLED
    for (ch->ntable--; i < ch->ntable; i++)
        ch->table[i] = ch->table[i + 1];
}

/* Lane 0 only. Puts a run into the table: a higher priority goes in front of a lower one. */
OCCL_FN void occl_dev_insert(occl_daemon_t *d, occl_chan_t *ch, occl_dev_run_t *r)
{
    uint32_t i = ch->ntable++;
    if (i) {
        uint32_t priority = r->priority;
        OCCL_ROLLED
        for (; i && ch->table[i - 1]->priority < priority; i--)
            ch->table[i] = ch->table[i - 1];
    }
    ch->table[i] = r;
#if OCCL_FRONT
    if (occl_cache_of(ch)->owner == r)
        occl_cache_of(ch)->owner = 0; /* submitted again: something may have changed */
    if (occl_cache_of(ch)->raw == r)
        occl_cache_of(ch)->run.st[ch->index].stick_ns = d->conf.stick_min_ns * 4;
#endif
    r->st[ch->index].stick_ns = d->conf.stick_min_ns * 4;
    r->st[ch->index].stuck_since = 0;
}

enum { OCCL_TURN_OVER = 1, OCCL_TURN_MOVED = 2 };

#if OCCL_FRONT
/*
 * All lanes; the result is lane 0's, *any_p (what has moved) everybody's. The leader takes what submissions it sees at one look
 * (another look would cost those that have come one more access to host memory), tries the fast lane, else hands them to the other channels, a lane a channel, and keeps its own part if its table
 * has room (else it goes through its inbox, too).
 */
OCCL_FN uint32_t occl_dev_accept_front(occl_lanes_t l, occl_daemon_t *d, occl_chan_t *ch, uint32_t *any_p)
{
    occl_queue_t *inbox = &d->chan[ch->index].inbox; /* ch may be a copy */
    occl_cache_t *k = occl_cache_of(ch);
    uint64_t head, tail;
    uint32_t c, n, taken_any = 0;
    if (ch->index == 0) {
        occl_dev_run_t *r;
        uint64_t taken = d->taken, words, w;
        uint32_t g, ok, some, idle = ch->ntable == 0 ? 8 : 1;
        OCCL_ROLLED
        do {
            /* With nothing to do but to wait for something to do, that is all it does for a while. */
            ok = occl_front_look(l, d, taken, &words, k);
            some = occl_all(l, ok || occl_lane(l) >= OCCL_SUB_WORDS);
            OCCL_TRACE(l, ch, some ? 1 : 12);
        } while (!some && --idle);
        taken_any = some;
        OCCL_ROLLED
        for (g = 0; some; some = ++g < occl_front_groups(l) && occl_all(l, ok || occl_lane(l) / OCCL_SUB_WORDS != g)) {
            uint32_t room = ch->ntable < OCCL_TABLE_MAX, pc = 0;
            if (room && occl_dev_quick(l, d, ch, taken + 1 + g, k->sub + g * OCCL_SUB_WORDS,
                                       ch->ntable || (g + 1 < occl_front_groups(l) && k->seen[g + 1]), &pc)) {
                *any_p = OCCL_TURN_MOVED;
                continue;
            }
            w = occl_front_take(l, d, ch, g, taken + 1 + g, words, &r);
            occl_sync(l); /* the run is written; the releases below cover all lanes */
            if (!(w & OCCL_SUB_LEFT))
                continue;
            n = (uint32_t)(w >> OCCL_SUB_CHANNELS_AT) & 63;
            if (occl_lane(l) == 0 && n > ch->nchannels)
                ch->narrow = 1; /* the host finds it taken and the daemon out, and launches more blocks */
            OCCL_ROLLED
            for (c = occl_lane(l); c < n; c += occl_nlanes(l)) {
                occl_queue_t *in = &d->chan[c].inbox;
                if (!(w & OCCL_SUB_FRESH) && r->st[c].over)
                    continue;
                if (c == 0 && room) {
                    occl_dev_insert(d, ch, r);
                    if (pc) /* it has gone part of its way */
                        r->st[0].pc = k->run.st[0].pc = pc;
                    continue;
                }
                tail = in->tail;
                occl_store_relaxed64(&in->entry[tail & (OCCL_QUEUE_LEN - 1)], (uint64_t)(uintptr_t)r);
                occl_store_release_dev64(&in->tail, tail + 1);
            }
        }
    }
    OCCL_TRACE(l, ch, 2);
    if (occl_lane(l) != 0 || taken_any) /* the leader's own inbox is for what its table had no room for: it can wait a pass */
        return 0;
    head = ch->inbox_head;
    tail = occl_load_relaxed64(&inbox->tail);
    if (head == tail)
        return 0;
    tail = occl_load_acquire_dev64(&inbox->tail);
    OCCL_ROLLED
    for (; head != tail && ch->ntable < OCCL_TABLE_MAX; head++)
        occl_dev_insert(d, ch, (occl_dev_run_t *)(uintptr_t)occl_load_relaxed64(&inbox->entry[head & (OCCL_QUEUE_LEN - 1)]));
    ch->inbox_head = head;
    return (uint32_t)(tail - head);
}
#else
/* Lane 0 only. Moves submissions into the table. Returns how many wait outside. */
OCCL_FN uint32_t occl_dev_accept(occl_daemon_t *d, occl_chan_t *ch)
{
    occl_queue_t *q = ch->nchannels > 1 ? &ch->inbox : &d->sq;
    uint64_t head, tail;
    if (ch->index == 0 && ch->nchannels > 1) {
        /* The leader alone reads the host's memory and hands entries on. */
        head = d->sq.head;
        tail = occl_load_acquire64(&d->sq.tail);
        OCCL_ROLLED
        for (; head != tail; head++) {
            uint64_t e = occl_load_relaxed64(&d->sq.entry[head & (OCCL_QUEUE_LEN - 1)]);
            occl_dev_run_t *r = (occl_dev_run_t *)(uintptr_t)e;
            uint32_t c, n = r->plan->nchannels;
            OCCL_ROLLED
            for (c = 0; c < n; c++) {
                occl_queue_t *in = &d->chan[c].inbox;
                uint64_t t = in->tail;
                if (r->st[c].over)
                    continue;
                occl_store_relaxed64(&in->entry[t & (OCCL_QUEUE_LEN - 1)], e);
                occl_store_release64(&in->tail, t + 1);
            }
        }
        occl_store_release64(&d->sq.head, head);
        ch->tail_seen = tail;
    }
    head = q->head;
    tail = occl_load_acquire64(&q->tail);
    OCCL_ROLLED
    for (; head != tail && ch->ntable < OCCL_TABLE_MAX; head++) {
        occl_dev_run_t *r = (occl_dev_run_t *)(uintptr_t)occl_load_relaxed64(&q->entry[head & (OCCL_QUEUE_LEN - 1)]);
        occl_dev_insert(d, ch, r);
    }
    occl_store_release64(&q->head, head);
    if (q == &d->sq)
        ch->tail_seen = tail;
    return (uint32_t)(tail - head);
}
#endif

/*
 * One run's turn. Returns OCCL_TURN_*. *result_p is what exec said last. Without patience a blocked run is left at once.
 * w is r as it is worked on: r itself, or what is in the cache.
 */
OCCL_FN uint32_t occl_dev_turn(occl_lanes_t l, occl_daemon_t *d, occl_chan_t *ch, occl_dev_run_t *r, occl_dev_run_t *w,
                               uint32_t head, uint32_t patient, uint32_t *result_p)
{
    occl_chan_state_t *st = &w->st[ch->index];
    uint32_t moved = 0, polls = 0, total = 0, v, go;
    uint64_t deadline = 0;
    /* Coming back costs little there, what waits outside is only seen between turns, and a look takes a microsecond: no long waits. */
    const uint32_t others = OCCL_FRONT && ch->ntable > 1, often = OCCL_FRONT ? 0 : 15;
    OCCL_ROLLED
    for (;;) {
        v = occl_dev_exec(l, ch, w, d->conf.max_steps, patient, &moved);
        total += moved;
        if (v != OCCL_AGAIN || total >= d->conf.max_steps)
            break;
        /* Blocked. Lane 0 decides for the block whether to poll on. */
        go = 0;
        if (occl_lane(l) == 0) {
            polls++;
            if (moved)
                deadline = 0;
            if (occl_load_relaxed32(&r->drop) || occl_load_relaxed32(&r->failed)) {
                go = 2; /* by the host, or another channel has failed and this one might wait for ever */
            } else if (!patient || others) {
                go = patient && moved;
            } else if ((polls & often) == 0) {
                uint64_t now = occl_clock_ns();
                if (!deadline)
                    deadline = now + (OCCL_FRONT ? d->conf.stick_min_ns * 8 : head ? st->stick_ns * 4 : st->stick_ns);
                go = polls < d->conf.min_polls || now < deadline;
            } else {
                go = 1;
            }
        }
        go = occl_uniform(l, go);
        if (go != 1) {
            if (go == 2)
                v = OCCL_DROPPED;
            break;
        }
        occl_chaos(l);
        occl_relax();
    }
    if (occl_lane(l) == 0) {
        occl_count(&ch->stats.polls, polls);
        occl_count(&ch->stats.steps, total);
        if (total) {
            if (st->stick_ns < d->conf.stick_max_ns)
                st->stick_ns *= 2;
        } else if (st->stick_ns > d->conf.stick_min_ns) {
            st->stick_ns /= 2;
        }
    }
    *result_p = v;
    return (v != OCCL_AGAIN ? OCCL_TURN_OVER : 0) | (total ? OCCL_TURN_MOVED : 0);
}

/* Every run of the table gets a turn. Returns whether anything moved; uniform. */
OCCL_FN_BIG uint32_t occl_dev_pass(occl_lanes_t l, occl_daemon_t *d, occl_chan_t *ch, uint32_t patient)
{
    uint32_t waiting = 0, i = 0, any = 0;
#if OCCL_FRONT
    waiting = occl_dev_accept_front(l, d, ch, &any);
#else
    if (occl_lane(l) == 0)
        waiting = occl_dev_accept(d, ch);
#endif
    waiting = occl_uniform(l, waiting);
    OCCL_ROLLED
    while (i < ch->ntable) {
        occl_dev_run_t *r = ch->table[i];
#if OCCL_FRONT
        occl_dev_run_t *w = occl_cache_bring(l, ch, r);
        OCCL_TRACE(l, ch, 3);
#else
        occl_dev_run_t *w = r;
#endif
        occl_chan_state_t *st = &w->st[ch->index];
        /* While others wait, one that has just come only sends what it can. */
        uint32_t first = OCCL_FRONT && ch->ntable > 1 && !(st->pc | st->section | st->iter);
        uint32_t result, turn = occl_dev_turn(l, d, ch, r, w, i == 0, patient && !first, &result), gone = 0;
        uint32_t nchannels = occl_plan_of(w)->nchannels;
        any |= turn;
        occl_sync(l); /* all lanes are through with the run before lane 0 may give it away */
        OCCL_TRACE(l, ch, 8);
        if (occl_lane(l) == 0) {
#if !OCCL_CUDA
            if (st->posted) {
                st->posted = 0;
                occl_wake_peers(r);
            }
#endif
            if (turn & OCCL_TURN_OVER) {
                gone = 1;
                st->over = 1;
                occl_count(&ch->stats.runs, 1);
            } else if (turn & OCCL_TURN_MOVED) {
                st->stuck_since = 0;
                if (ch->ntable > 1)
                    occl_count(&ch->stats.preemptions, 1);
            } else {
                uint64_t now = occl_clock_ns();
                if (!st->stuck_since) {
                    st->stuck_since = now;
                    /* Put aside for another. Looking at it again in vain is no further preemption. */
                    if (ch->ntable > 1)
                        occl_count(&ch->stats.preemptions, 1);
                }
                /* Others wait for a place that this run does not use. */
                if (waiting && now - st->stuck_since >= d->conf.park_ns) {
                    gone = 1;
                    waiting--;
                    result = OCCL_CQ_PARKED;
                    occl_count(&ch->stats.parks, 1);
                }
            }
#if OCCL_FRONT
            if (!(turn & OCCL_TURN_OVER) || nchannels > 1)
                occl_cache_keep(ch, r, w);
            if (gone)
                occl_cache_of(ch)->owner = 0;
#endif
            if (gone) {
                occl_dev_remove(ch, i);
                occl_dev_report(d, ch, r, nchannels, result);
            }
#if OCCL_FRONT
            if (ch->index == 0)
                occl_quick_learn(d, occl_cache_of(ch), w); /* it costs time, so when the run has done what it could */
#endif
        }
        OCCL_TRACE(l, ch, 11);
        gone = occl_uniform(l, gone);
        if (!gone)
            i++;
    }
    return any;
}

/*
 * The daemon: passes until there is nothing to do for `linger`, or until `residence` is over (so that a thread stuck in a
 * synchronising call of the application gets through, and the launcher brings the daemon back). The leader decides; the
 * others follow its stop word (nothing but the order is in it). State stays in the table: a later launch goes on where this one
 * left. d and ch may be copies, of which the caller gives back what changed; home is the daemon itself.
 */
OCCL_FN_BIG void occl_dev_daemon(occl_lanes_t l, occl_daemon_t *home, occl_daemon_t *d, occl_chan_t *ch, uint64_t launch)
{
    uint64_t born = 0, moved_at = 0;
    uint32_t stay = 1;
    if (occl_lane(l) == 0)
        born = moved_at = occl_clock_ns();
    OCCL_ROLLED
    while (stay) {
        uint32_t any = occl_dev_pass(l, d, ch, 1);
        if (occl_lane(l) == 0) {
            uint64_t now = occl_clock_ns();
            if (any)
                moved_at = now;
            if (ch->narrow) {
                stay = 0;
                occl_store_release64(&home->stop, launch);
            } else if (ch->index == 0 ? now - moved_at >= d->conf.linger_ns || now - born >= d->conf.residence_ns
                               : now - born >= d->conf.residence_ns) {
                /* A channel leaves of its own accord too: it may hold the place that the leader needs to come onto the device. */
                if (occl_front_stay(d, launch)) {
                    moved_at = born = now; /* asked again after as long: it is a load from far away */
                } else {
                    stay = 0;
                    if (ch->index == 0)
                        occl_store_release64(&home->stop, launch);
                }
            } else if (ch->index != 0 && occl_load_relaxed64(&home->stop) == launch) {
                stay = 0;
            }
        }
        stay = occl_uniform(l, stay);
    }
    if (occl_lane(l) == 0) {
        occl_count(&ch->stats.quits, ch->index == 0);
        if (ch->index == 0) {
#if OCCL_FRONT
            occl_store_release64(&d->front->quit, launch << 32 | (d->taken & 0xffffffffull));
#else
            /* The last store of this launch. A submission that came after the tail was read shows as a difference to it, and
               whoever waits launches again. */
            occl_store_release64(&home->quit, launch << 32 | (ch->tail_seen & 0xffffffffull));
#endif
        }
    }
}

#endif
