/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "progress/helper.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "topo/topo.h"
#include "util/clock.h"
#include "util/futex.h"

enum { STANDBY_NS = 500000, STANDBY_MAX_NS = 8000000, CONFIRM_NS = 300000, DUTY_MIN_NS = 50000, DUTY_MAX_NS = 10000000,
       DUTY_SOON_NS = 100000, IDLE_AFTER_NS = 20000000, LOOKS = 8, TURN_NS = 100000,
       UPKEEP_NS = 250000000, ATTEND_NS = 200000 };

typedef struct impl {
    occl_helper_t pub;
    pthread_t thread;
    const occl_helper_ops_t *ops;
    void *state;
    const occl_logger_t *log;
    int avoid_cpu;
    char cpus[512];
} impl_t;

static uint32_t bell_value(impl_t *h) { return __atomic_load_n(h->pub.bell, __ATOMIC_ACQUIRE); }

static int stopped(impl_t *h) { return (int)__atomic_load_n(&h->pub.stop, __ATOMIC_ACQUIRE); }

/* On standby. Not on the bell: that rings for the threads that wait. */
static void nap(impl_t *h, uint64_t ns)
{
    __atomic_store_n(&h->pub.napping, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* see occl_helper_attend */
    if (!h->ops->soon(h->state) && !stopped(h))
        (void)occl_futex_wait(&h->pub.napping, 1, ns);
    __atomic_store_n(&h->pub.napping, 0, __ATOMIC_RELAXED);
}

/*
 * Is a thread of the application at it? It waits, or it comes again and again: then it does the work itself, and whatever the helper
 * did would only take a processor away from it or from a peer. On a virtual machine waking up alone costs them 30 us, so the
 * longer they go on, the less often the helper looks; when nobody waits, a second look shows whether they compute.
 */
static int others_at_it(impl_t *h, uint64_t *standby)
{
    uint32_t turns = h->ops->turns(h->state);
    if (!h->ops->waiters(h->state)) {
        nap(h, CONFIRM_NS);
        if (!h->ops->waiters(h->state) && h->ops->turns(h->state) == turns) {
            *standby = STANDBY_NS;
            return 0;
        }
    }
    __atomic_store_n(&h->pub.dozing, 1, __ATOMIC_RELAXED);
    nap(h, *standby);
    __atomic_store_n(&h->pub.dozing, 0, __ATOMIC_RELAXED);
    if (*standby < STANDBY_MAX_NS)
        *standby *= 2;
    return 1;
}

/*
 * Streams of a GPU have operations under way: each goes through this thread, twice, and nothing of it rings the bell. Looks again
 * and again as long as something moved a moment ago (*moved_at); then it is up to the naps.
 */
static void attend(impl_t *h, uint64_t *moved_at)
{
    uint32_t n = 0;
    while (!stopped(h) && h->ops->soon(h->state) && !h->ops->waiters(h->state)) {
        if (h->ops->pass(h->state, 0)) {
            n = 0;
            *moved_at = occl_host_clock_ns();
        } else if (n++ % 16 == 0) {
            if (occl_host_clock_ns() - *moved_at > ATTEND_NS)
                return;
            if (n % 256 == 0)
                (void)sched_yield();
        }
    }
}

/* Nothing has been pending for a while: sleep until kicked. */
static void sleep_idle(impl_t *h)
{
    uint32_t seen = bell_value(h);
    uint64_t again = h->ops->upkeep(h->state);
    __atomic_store_n(&h->pub.idle, 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* see occl_helper_kick */
    if (!h->ops->pending(h->state) && !stopped(h))
        (void)occl_futex_wait(h->pub.bell, seen, again);
    __atomic_store_n(&h->pub.idle, 0, __ATOMIC_RELAXED);
}

/*
 * Short turns, soon: the helper needs microseconds now and then, but on a core where the application computes a thread that wakes
 * up has to wait for the end of the other one's turn, 3 ms and more. Since Linux 6.12 one that asks for short turns of its own
 * goes first. Older ones ignore it. No privilege is needed, and the share of the processor stays the same.
 */
static void ask_for_short_turns(void)
{
    /* struct sched_attr; not every C library has it. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {0};
#ifdef SYS_sched_setattr
    if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) != 0 || a.policy != SCHED_OTHER)
        return;
    a.size = sizeof(a);
    a.flags = 0;
    a.runtime = TURN_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
#endif
}

static void *helper_main(void *arg)
{
    impl_t *h = arg;
    uint64_t delay = DUTY_MIN_NS, quiet_since = occl_host_clock_ns(), upkept = quiet_since;
    uint64_t standby = STANDBY_NS;
    uint32_t turns = 0;
    uint64_t moved_at = 0;
    int on_duty = 0, attending = 0;
    char err[256];
    (void)prctl(PR_SET_NAME, "occl-helper");
    (void)prctl(PR_SET_TIMERSLACK, 1000UL); /* the default of 50 us is longer than many runs */
    ask_for_short_turns();
    if (occl_topo_helper_bind(h->cpus, h->avoid_cpu, err, sizeof(err)) != OCCL_OK)
        occl_log(h->log, OCCL_LOG_WARN | OCCL_AREA_PROGRESS, "helper thread not bound: %s", err);
    while (!stopped(h)) {
        uint32_t seen;
        int moved, i;
        struct timespec ts;
        if (!h->ops->pending(h->state)) {
            uint64_t now = occl_host_clock_ns();
            if (now - quiet_since >= IDLE_AFTER_NS) {
                sleep_idle(h);
                quiet_since = upkept = occl_host_clock_ns();
            } else {
                nap(h, standby);
                if (standby < STANDBY_MAX_NS)
                    standby *= 2;
            }
            on_duty = attending = 0;
            continue;
        }
        quiet_since = occl_host_clock_ns();
        if (quiet_since - upkept >= UPKEEP_NS) {
            (void)h->ops->upkeep(h->state);
            upkept = quiet_since;
        }
        if (h->ops->soon(h->state)) {
            if (!attending)
                moved_at = quiet_since;
            attending = 1;
            attend(h, &moved_at);
            on_duty = 1;
            turns = h->ops->turns(h->state);
        } else {
            attending = 0;
        }
        if (on_duty && (h->ops->waiters(h->state) || h->ops->turns(h->state) != turns))
            on_duty = 0;
        if (!on_duty && others_at_it(h, &standby))
            continue;
        on_duty = 1;
        moved = 0;
        /*
         * A few looks, and no yield between them: where the application computes on this core, a thread that yields comes back
         * when the other one's turn is over, milliseconds later. One that sleeps is woken at once.
         */
        for (i = 0; i < LOOKS && !stopped(h) && h->ops->pending(h->state); i++) {
            if (h->ops->pass(h->state, 0))
                moved = 1, i = -1;
            if (h->ops->waiters(h->state))
                break;
        }
        if (moved) {
            delay = DUTY_MIN_NS;
            moved_at = quiet_since;
        }
        turns = h->ops->turns(h->state); /* continuations that it has called may have started something itself */
        if (stopped(h) || !h->ops->pending(h->state))
            continue;
        seen = bell_value(h);
        h->ops->announce(h->state, 1);
        __atomic_thread_fence(__ATOMIC_SEQ_CST); /* announced; now look once more: a peer posts, fences, looks who sleeps */
        if (!h->ops->pass(h->state, 1)) {
            (void)occl_futex_wait(h->pub.bell, seen, delay);
            if (delay < (h->ops->soon(h->state) ? DUTY_SOON_NS : DUTY_MAX_NS))
                delay *= 2;
        }
        h->ops->announce(h->state, 0);
        if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts) == 0)
            __atomic_store_n(&h->pub.cpu_ns, (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec, __ATOMIC_RELAXED);
    }
    return NULL;
}

occl_status_t occl_helper_create(const occl_helper_ops_t *ops, void *state, uint32_t *bell, const char *cpus, int avoid_cpu,
                                 const occl_logger_t *log, occl_helper_t **helper_p, char *err, size_t errlen)
{
    impl_t *h = calloc(1, sizeof(*h));
    sigset_t all, old;
    int rc;
    if (!h)
        return OCCL_ERR_RESOURCE;
    h->ops = ops;
    h->state = state;
    h->log = log;
    h->avoid_cpu = avoid_cpu;
    h->pub.bell = bell;
    (void)snprintf(h->cpus, sizeof(h->cpus), "%s", cpus);
    (void)sigfillset(&all); /* the application's signals are for its own threads */
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&h->thread, NULL, helper_main, h);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        (void)snprintf(err, errlen, "cannot start the helper thread (error %d)", rc);
        free(h);
        return OCCL_ERR_RESOURCE;
    }
    *helper_p = &h->pub;
    return OCCL_OK;
}

void occl_helper_ring(occl_helper_t *helper)
{
    (void)__atomic_fetch_add(helper->bell, 1, __ATOMIC_RELEASE);
    (void)occl_futex_wake(helper->bell, INT32_MAX);
}

void occl_helper_wake(occl_helper_t *helper)
{
    __atomic_store_n(&helper->napping, 0, __ATOMIC_RELAXED);
    (void)occl_futex_wake(&helper->napping, INT32_MAX);
}

void occl_helper_destroy(occl_helper_t *helper)
{
    impl_t *h = (impl_t *)helper;
    if (!h)
        return;
    __atomic_store_n(&h->pub.stop, 1, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* as for occl_helper_attend */
    occl_helper_wake(helper);
    occl_helper_ring(helper);
    (void)pthread_join(h->thread, NULL);
    free(h);
}
