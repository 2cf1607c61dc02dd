/* SPDX-License-Identifier: BSD-3-Clause */
/* The shared arena: the allocator, shortage, and mapping between processes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "tap.h"
#include "transport/arena.h"
#include "util/hash.h"
#include "util/rng.h"

static occl_arena_t *create(int flags, uint64_t max, uint64_t step)
{
    occl_arena_t *a = NULL;
    occl_env_t env;
    char err[512];

    occl_env_defaults(&env);
    env.arena_max = max;
    env.arena_step = step;
    if (occl_arena_create(&env, flags, &a, err, sizeof err) != OCCL_OK)
        bail("no arena: %s", err);
    return a;
}

/* All n bytes are v. By memcmp: the sanitizers make a loop over bytes slow. */
static int is_all(const unsigned char *p, uint64_t n, unsigned char v)
{
    return n == 0 || (p[0] == v && !memcmp(p, p + 1, n - 1));
}

static int is_zero(const unsigned char *p, uint64_t n)
{
    return is_all(p, n, 0);
}

static void test_blocks(int flags, const char *kind)
{
    occl_arena_t *a = create(flags, (uint64_t)64 << 20, 64 << 10);
    uint64_t x, y, z, big;

    ok(occl_arena_used(a) == 0 && occl_arena_blocks(a) == 0, "%s: a new arena is empty", kind);
    x = occl_arena_alloc(a, 1, 0);
    y = occl_arena_alloc(a, 100, 1);
    ok(x && y && x % 64 == 0 && y % 64 == 0 && x != y, "%s: blocks lie on cache lines", kind);
    is_int((long long)occl_arena_used(a), 64 + 128, "%s: in whole cache lines", kind);
    memset(occl_arena_at(a, y), 0xff, 100);
    z = occl_arena_alloc(a, 5000, 65536);
    ok(z && z % 65536 == 0, "%s: a large alignment is kept", kind);
    is_int(occl_arena_free(a, y, 64), OCCL_ERR_ARG, "%s: freeing another size is refused", kind);
    is_int(occl_arena_free(a, y + 64, 64), OCCL_ERR_ARG, "%s: and the middle of a block", kind);
    is_int(occl_arena_free(a, y, 100), OCCL_OK, "%s: a block is freed", kind);
    is_int(occl_arena_free(a, y, 100), OCCL_ERR_ARG, "%s: not twice", kind);
    is_int(occl_arena_free(a, 0, 7), OCCL_OK, "%s: offset 0 is no block", kind);
    big = occl_arena_alloc(a, 128, 0);
    is_int((long long)big, (long long)y, "%s: the bytes are used again", kind);
    ok(is_zero((unsigned char *)occl_arena_at(a, big), 128), "%s: and are zero again", kind);
    occl_arena_free(a, x, 1);
    occl_arena_free(a, big, 128);
    occl_arena_free(a, z, 5000);
    ok(occl_arena_used(a) == 0 && occl_arena_blocks(a) == 0 && occl_arena_peak(a) >= 5000,
       "%s: nothing is left, the peak is remembered", kind);
    occl_arena_destroy(a);
}

typedef struct block {
    uint64_t offset, size;
    unsigned char fill;
} block_t;

/* Random blocks that are checked to be zero when they come and unharmed when they go. Returns the
 * number of faults. */
static int churn(occl_arena_t *a, uint64_t seed, int steps, int slots, uint64_t largest)
{
    block_t *b = (block_t *)calloc((size_t)slots, sizeof *b);
    occl_rng_t rng;
    int wrong = 0;

    if (!b)
        return 1;
    occl_rng_seed(&rng, seed, 1);
    for (int i = 0; i < steps + slots; i++) {
        int which = i < steps ? (int)occl_rng_below(&rng, (uint64_t)slots) : i - steps;
        block_t *one = &b[which];
        unsigned char *p = (unsigned char *)occl_arena_at(a, one->offset);

        if (one->offset) {
            wrong += !is_all(p, one->size, one->fill);
            wrong += occl_arena_free(a, one->offset, one->size) != OCCL_OK;
            one->offset = 0;
        } else if (i < steps) {
            uint64_t align = (uint64_t)1 << occl_rng_below(&rng, 13);

            one->size = occl_rng_below(&rng, occl_rng_below(&rng, largest)) + 1;
            one->fill = (unsigned char)(1 + occl_rng_below(&rng, 255));
            one->offset = occl_arena_alloc(a, one->size, align);
            if (!one->offset)
                continue;
            p = (unsigned char *)occl_arena_at(a, one->offset);
            wrong += one->offset % align != 0 || !is_zero(p, one->size);
            memset(p, one->fill, one->size);
        }
    }
    free(b);
    return wrong;
}

static void test_churn(void)
{
    uint64_t size = (uint64_t)8 << 20, whole;
    occl_arena_t *a = create(0, size, 256 << 10);

    is_int(churn(a, 11, 20000, 200, 20000), 0,
           "random blocks never overlap, are aligned and come zeroed");
    is_int((long long)occl_arena_used(a), 0, "all was given back");
    ok(occl_arena_committed(a) <= size, "no more than the arena was taken");
    whole = occl_arena_alloc(a, size - 4096, 0);
    ok(whole != 0, "the free pieces have grown together: the whole arena is one block");
    memset(occl_arena_at(a, whole), 1, size - 4096); /* a SIGBUS would show here */
    occl_arena_free(a, whole, size - 4096);

    is_int(churn(a, 12, 5000, 400, 100000), 0, "the same when the arena is full now and then");
    occl_arena_destroy(a);

    a = create(0, size, 256 << 10);
    for (int i = 0; i < 10000; i++)
        (void)occl_arena_alloc(a, 64, 0);
    for (int i = 0; i < 10000; i += 2)
        occl_arena_free(a, 4096 + 64 * (uint64_t)i, 64);
    is_int((long long)occl_arena_blocks(a), 5000, "five thousand holes");
    ok(occl_arena_alloc(a, 128, 0) >= 4096 + 64 * 10000, "none is taken for a larger block");
    ok(occl_arena_alloc(a, 64, 0) < 4096 + 64 * 10000, "one is for a block that fits");
    occl_arena_destroy(a);
}

static void *churn_thread(void *arg)
{
    static unsigned seed;
    unsigned mine = __atomic_add_fetch(&seed, 1, __ATOMIC_RELAXED);

    return (void *)(intptr_t)churn((occl_arena_t *)arg, mine, 4000, 50, 5000);
}

static void test_threads(void)
{
    occl_arena_t *a = create(OCCL_ARENA_PRIVATE, (uint64_t)8 << 20, 64 << 10);
    pthread_t thread[4];
    intptr_t wrong = 0;

    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread[i], NULL, churn_thread, a))
            bail("no thread");
    for (int i = 0; i < 4; i++) {
        void *w;

        pthread_join(thread[i], &w);
        wrong += (intptr_t)w;
    }
    is_int(wrong, 0, "four threads share an arena");
    occl_arena_destroy(a);
}

static void test_shortage(void)
{
    occl_arena_t *a = create(0, 64 << 10, 4096);
    uint64_t first = 0, last = 0, x;
    char err[400];
    int n = 0;

    is_str(occl_arena_error(a, err, sizeof err), "", "no error before one");
    while ((x = occl_arena_alloc(a, 4096, 0))) {
        memset(occl_arena_at(a, x), n, 4096);
        if (!first)
            first = x;
        last = x;
        n++;
    }
    is_int(n, 15, "an arena of 64K holds 15 blocks of 4K beside its head");
    occl_arena_error(a, err, sizeof err);
    ok(strstr(err, "4K needed") && strstr(err, "0 available") && strstr(err, "OCCL_ARENA_MAX"),
       "the next is refused with needed, available and what to do: %s", err);
    ok(occl_arena_alloc(a, 1 << 20, 0) == 0, "a block larger than the arena is refused");
    ok(strstr(occl_arena_error(a, err, sizeof err), "1M needed") != NULL, "with a text: %s", err);
    ok(occl_arena_alloc(a, UINT64_MAX - 100, 0) == 0, "a size near 2^64 too");
    ok(occl_arena_alloc(a, 64, 3 << 10) == 0, "an alignment that is no power of two too");
    occl_arena_free(a, first, 4096);
    ok(occl_arena_alloc(a, 4096, 0) == first, "what is freed can be had again");
    occl_arena_free(a, last, 4096);
    ok(occl_arena_alloc(a, 64, 0) == last, "at the end as well");
    occl_arena_destroy(a);

    a = create(0, (uint64_t)1 << 30, 1 << 20);
    occl_arena_limit(a, 2 << 20);
    x = occl_arena_alloc(a, 1 << 20, 0);
    ok(x && !occl_arena_alloc(a, 2 << 20, 0), "a system that has no more is an error");
    ok(occl_arena_committed(a) <= 2 << 20, "and not more is taken from it");
    occl_arena_limit(a, OCCL_INF);
    ok(occl_arena_alloc(a, 2 << 20, 0) != 0, "when it has more again, it works again");
    occl_arena_destroy(a);
}

/* --- in a child of its own: 0 good, 1.. what failed, 77 not possible here --- */

static void child_small_shm(int fd, void *arg)
{
    occl_arena_t *a = NULL;
    occl_env_t env;
    char err[600];
    uint64_t x;

    (void)arg;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/dev/shm", "tmpfs", 0, "size=1m"))
        _exit(77);
    occl_env_defaults(&env);
    if (occl_arena_create(&env, OCCL_ARENA_NO_MEMFD, &a, err, sizeof err) != OCCL_OK)
        _exit(2);
    x = occl_arena_alloc(a, 4 << 20, 0); /* would be a SIGBUS at its first use */
    if (x)
        _exit(3);
    occl_arena_error(a, err, sizeof err);
    pair_send(fd, err, sizeof err);
    for (int n = 0; (x = occl_arena_alloc(a, 60000, 0)) && n < 100; n++)
        memset(occl_arena_at(a, x), 1, 60000);
    if (occl_arena_used(a) < 600000)
        _exit(4); /* the megabyte that is there can be used */
    occl_arena_destroy(a);
    a = NULL;
    if (occl_arena_create(&env, 0, &a, err, sizeof err) != OCCL_OK ||
        !(x = occl_arena_alloc(a, 4 << 20, 0)))
        _exit(5); /* the normal way does not need /dev/shm */
    memset(occl_arena_at(a, x), 1, 4 << 20);
    occl_arena_destroy(a);
}

static void test_small_shm(void)
{
    pair_t p = pair_start(child_small_shm, NULL);
    char err[600] = "";
    int status;

    (void)pair_recv(p.fd, err, sizeof err);
    status = pair_join(&p);
    if (status == 77) {
        skip(2, "no mount namespace here");
        return;
    }
    is_int(status, 0, "with 1 MiB of /dev/shm a large block is an error, not a SIGBUS");
    ok(strstr(err, "4M needed") || (strstr(err, "needed") && strstr(err, "available in /dev/shm")),
       "the text says needed, available and where: %s", err);
}

static void child_limits(int fd, void *arg)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    occl_arena_t *a = NULL;
    occl_env_t env;
    char err[300];

    (void)fd;
    (void)arg;
    occl_env_defaults(&env);
    setrlimit(RLIMIT_FSIZE, &limit);
    if (occl_arena_create(&env, 0, &a, err, sizeof err) != OCCL_OK)
        _exit(2);
    if (occl_arena_size(a) != 1 << 20 || !occl_arena_alloc(a, 500000, 0) ||
        occl_arena_alloc(a, 1 << 20, 0))
        _exit(3);
    occl_arena_destroy(a);
}

static void test_limits(void)
{
    pair_t p = pair_start(child_limits, NULL);

    is_int(pair_join(&p), 0, "under a limit on file size the arena is smaller; no signal comes");
}

/* --- two processes --- */

#define WORDS 1000

static void child_owner(int fd, void *arg)
{
    occl_arena_t *a = create(*(int *)arg, (uint64_t)1 << 30, 1 << 20);
    uint64_t at = occl_arena_alloc(a, WORDS * 8, 0), *w;
    occl_arena_desc_t desc;

    w = (uint64_t *)occl_arena_at(a, at);
    for (uint64_t i = 0; i < WORDS; i++)
        w[i] = occl_hash_mix(i);
    occl_arena_describe(a, &desc);
    pair_send(fd, &desc, sizeof desc);
    pair_send(fd, &at, sizeof at);
    if (!pair_await(fd))
        _exit(1);
    for (uint64_t i = 0; i < WORDS; i++) /* the parent has written to it */
        if (w[i] != occl_hash_mix(i) + 1)
            _exit(2);
    pair_go(fd);
    pair_await(fd); /* the parent kills us here */
    _exit(3);
}

static int ours_in_shm(void)
{
    DIR *dir = opendir("/dev/shm");
    struct dirent *e;
    int n = 0;

    if (!dir)
        return 0;
    while ((e = readdir(dir)))
        n += !strncmp(e->d_name, "occl.", 5);
    closedir(dir);
    return n;
}

static void test_two_processes(int flags, const char *kind)
{
    occl_arena_t *self = create(0, (uint64_t)1 << 30, 1 << 20);
    int before = ours_in_shm();
    pair_t p = pair_start(child_owner, &flags);
    occl_arena_desc_t desc, wrong, mine;
    occl_peer_t *peer = NULL, *again = NULL;
    occl_status_t status;
    uint64_t at, *w;
    char err[400];
    int right = 1;

    if (!pair_recv(p.fd, &desc, sizeof desc) || !pair_recv(p.fd, &at, sizeof at))
        bail("the child is gone");
    occl_arena_describe(self, &mine);
    ok(occl_same_node(&mine, &desc) && !occl_same_process(&mine, &desc),
       "%s: another process on the same node", kind);

    wrong = desc;
    wrong.nonce[0]++;
    is_int(occl_peer_map(self, &wrong, &peer, err, sizeof err), OCCL_ERR_MISMATCH,
           "%s: an arena with another nonce is refused: %s", kind, err);
    wrong = desc;
    wrong.magic++;
    is_int(occl_peer_map(self, &wrong, &peer, err, sizeof err), OCCL_ERR_MISMATCH,
           "%s: a description that is none too", kind);
    wrong = desc;
    wrong.proc.node.word[0]++;
    is_int(occl_peer_map(self, &wrong, &peer, err, sizeof err), OCCL_ERR_UNSUPPORTED,
           "%s: and another node", kind);
    if (!(flags & OCCL_ARENA_NAMED)) {
        wrong = desc;
        wrong.proc.pid_ns++;
        is_int(occl_peer_map(self, &wrong, &peer, err, sizeof err), OCCL_ERR_UNSUPPORTED,
               "%s: and another pid namespace, where the pid is somebody else's: %s", kind, err);
        wrong = desc;
        wrong.proc.start_time++;
        is_int(occl_peer_map(self, &wrong, &peer, err, sizeof err), OCCL_ERR_PEER_FAILED,
               "%s: and a process that took over the pid: %s", kind, err);
        wrong = desc;
        wrong.fd = 0; /* the child's standard input */
        status = occl_peer_map(self, &wrong, &peer, err, sizeof err);
        ok(status != OCCL_OK, "%s: and a descriptor that is something else: %s", kind, err);
    }
    wrong = desc;
    wrong.faults = OCCL_FAULT_MAP;
    is_int(occl_peer_map(self, &wrong, &peer, err, sizeof err), OCCL_ERR_UNSUPPORTED,
           "%s: a failure can be injected", kind);
    ok(peer == NULL, "%s: a refusal writes nothing", kind);

    is_int(occl_peer_map(self, &desc, &peer, err, sizeof err), OCCL_OK, "%s: it is mapped %s", kind,
           err);
    if (!peer)
        bail("no mapping");
    is_int(occl_peer_map(self, &desc, &again, err, sizeof err), OCCL_OK, "%s: and again", kind);
    ok(again == peer, "%s: which is the same mapping", kind);
    occl_peer_unmap(self, again);

    w = (uint64_t *)occl_peer_at(peer, at);
    for (uint64_t i = 0; i < WORDS; i++) {
        right &= w[i] == occl_hash_mix(i);
        w[i]++;
    }
    ok(right, "%s: what the owner wrote is seen", kind);
    pair_go(p.fd);
    ok(pair_await(p.fd), "%s: the owner sees what the peer wrote", kind);
    if (flags & OCCL_ARENA_NAMED)
        is_int(ours_in_shm(), before + 1, "%s: the name is there", kind);
    else
        is_int(ours_in_shm(), before, "%s: nothing of it has a name", kind);

    is_int(pair_kill(&p), -SIGKILL, "%s: the owner is killed", kind);
    if (!(flags & OCCL_ARENA_NAMED))
        is_int(ours_in_shm(), before, "%s: nothing stays in /dev/shm", kind);
    right = 1;
    for (uint64_t i = 0; i < WORDS; i++)
        right &= w[i] == occl_hash_mix(i) + 1;
    ok(right, "%s: its memory stays readable", kind);
    occl_peer_unmap(self, peer);
    if (flags & OCCL_ARENA_NAMED) {
        char path[96];

        snprintf(path, sizeof path, "/dev/shm%s", desc.name);
        unlink(path); /* what a killed owner leaves: why naming is not the rule */
    }
    peer = NULL;
    status = occl_peer_map(self, &desc, &peer, err, sizeof err);
    is_int(status, OCCL_ERR_PEER_FAILED, "%s: mapping a dead owner fails: %s", kind, err);
    occl_arena_destroy(self);
}

static void test_named_unlink(void)
{
    int before = ours_in_shm();
    occl_arena_t *a = create(OCCL_ARENA_NAMED, (uint64_t)1 << 20, 4096);

    is_int(ours_in_shm(), before + 1, "a named arena has a name");
    occl_arena_unlink(a);
    is_int(ours_in_shm(), before, "until it is taken away");
    ok(occl_arena_alloc(a, 5000, 0) != 0, "the arena lives on");
    occl_arena_destroy(a);
    a = create(OCCL_ARENA_NAMED, (uint64_t)1 << 20, 4096);
    occl_arena_destroy(a);
    is_int(ours_in_shm(), before, "or the arena is destroyed");
}

static void test_one_process(void)
{
    occl_arena_t *a = create(OCCL_ARENA_PRIVATE, (uint64_t)1 << 30, 1 << 20);
    occl_arena_t *b = create(OCCL_ARENA_PRIVATE, (uint64_t)1 << 30, 1 << 20);
    occl_peer_t *pa = NULL, *pb = NULL, *self = NULL;
    occl_arena_desc_t da, db;
    char err[300];
    uint64_t x;

    occl_arena_describe(a, &da);
    occl_arena_describe(b, &db);
    ok(occl_same_process(&da, &db), "two ranks in one process");
    x = occl_arena_alloc(b, 64, 0);
    is_int(occl_peer_map(a, &db, &pb, err, sizeof err), OCCL_OK, "one maps the other");
    is_int(occl_peer_map(b, &da, &pa, err, sizeof err), OCCL_OK, "and the other way");
    ok(pb && occl_peer_at(pb, x) == occl_arena_at(b, x), "without a second address");
    is_int(occl_peer_map(a, &da, &self, err, sizeof err), OCCL_OK, "a rank maps itself");
    ok(self && self != pb && occl_peer_base(self) == occl_arena_base(a), "at its own address");
    occl_peer_unmap(a, self);
    occl_peer_unmap(a, pb);
    occl_peer_unmap(b, pa);
    occl_arena_destroy(a);
    occl_arena_destroy(b);
}

static void test_identity(void)
{
    occl_proc_id_t a, b;
    occl_node_id_t n1, n2;
    occl_env_t env;

    is_int(occl_topo_proc(NULL, &a), OCCL_OK, "a process has an identity");
    ok(occl_topo_proc(NULL, &b) == OCCL_OK && occl_proc_equal(&a, &b), "always the same");
    ok(a.pid == (uint32_t)getpid() && a.start_time && a.pid_ns, "of pid, start time, namespace");
    is_int((long long)occl_topo_start_time(a.pid), (long long)a.start_time, "found by others too");
    is_int((long long)occl_topo_start_time(0x7ffffff0), 0, "no process, no start time");
    {
        pid_t pid = fork();
        siginfo_t info;
        if (pid == 0)
            _exit(0);
        (void)waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
        is_int((long long)occl_topo_start_time((uint32_t)pid), 0, "nor one that has ended and was not waited for");
        (void)waitpid(pid, NULL, 0);
    }
    occl_env_defaults(&env);
    occl_topo_node(&env, &n1);
    ok(occl_node_equal(&n1, &a.node), "the node is the kernel's boot id");
    snprintf(env.hostid, sizeof env.hostid, "node7");
    occl_topo_node(&env, &n1);
    snprintf(env.hostid, sizeof env.hostid, "node8");
    occl_topo_node(&env, &n2);
    ok(!occl_node_equal(&n1, &n2) && !occl_node_equal(&n1, &a.node),
       "unless OCCL_HOSTID says else");
    ok(sizeof(occl_arena_desc_t) <= 256, "a description is at most 256 bytes");
}

static void *bind_thread(void *arg)
{
    char err[200], *buf = (char *)arg;
    cpu_set_t set;

    snprintf(buf, 200, "%s", "");
    if (occl_topo_helper_bind("", occl_topo_current_cpu(), err, sizeof err) != OCCL_OK)
        snprintf(buf, 200, "default: %.150s", err);
    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) < 1)
        snprintf(buf, 200, "no processor is left");
    if (occl_topo_helper_bind("any", 0, err, sizeof err) != OCCL_OK)
        snprintf(buf, 200, "any: %.150s", err);
    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) != occl_topo_cpus())
        snprintf(buf, 200, "any is not all");
    if (occl_topo_helper_bind("x", 0, err, sizeof err) != OCCL_ERR_ARG ||
        !strstr(err, "OCCL_HELPER_CPU=x"))
        snprintf(buf, 200, "a bad list was taken");
    if (occl_topo_helper_bind("3-1", 0, err, sizeof err) != OCCL_ERR_ARG)
        snprintf(buf, 200, "a bad range was taken");
    if (occl_topo_helper_bind("8000", 0, err, sizeof err) != OCCL_ERR_ARG)
        snprintf(buf, 200, "a processor that is not ours was taken");
    return NULL;
}

static void test_binding(void)
{
    pthread_t thread;
    char why[200] = "";

    ok(occl_topo_cpus() >= 1, "there is a processor");
    if (pthread_create(&thread, NULL, bind_thread, why))
        bail("no thread");
    pthread_join(thread, NULL);
    is_str(why, "", "a helper is bound as OCCL_HELPER_CPU says");
}

int main(void)
{
    test_blocks(0, "memfd");
    test_blocks(OCCL_ARENA_PRIVATE, "private");
    test_blocks(OCCL_ARENA_NO_MEMFD, "shm");
    test_churn();
    test_threads();
    test_shortage();
    test_small_shm();
    test_limits();
    test_identity();
    test_two_processes(0, "memfd");
    test_two_processes(OCCL_ARENA_NO_MEMFD, "shm");
    test_two_processes(OCCL_ARENA_NAMED, "named");
    test_named_unlink();
    test_one_process();
    test_binding();
    return tap_done();
}
