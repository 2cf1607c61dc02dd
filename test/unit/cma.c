/* SPDX-License-Identifier: BSD-3-Clause */
/* Single copy between two processes: sizes, offsets, a peer that dies, and the probe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"
#include "tap.h"
#include "transport/cma.h"
#include "util/hash.h"

#define BUFFER ((size_t)10 << 20)

static unsigned char pattern(size_t i, unsigned salt)
{
    return (unsigned char)occl_hash_mix(i / 3 + salt * 1000003u);
}

static occl_arena_t *create(int flags)
{
    occl_arena_t *a = NULL;
    occl_env_t env;
    char err[300];

    occl_env_defaults(&env);
    if (occl_arena_create(&env, flags, &a, err, sizeof err) != OCCL_OK)
        bail("no arena: %s", err);
    return a;
}

/* Holds a buffer in ordinary memory and lets the parent read and write it. */
static void child(int fd, void *arg)
{
    occl_arena_t *a = create(0);
    /* a page that is there, then one that is not: where a transfer must stop */
    unsigned char *map = (unsigned char *)mmap(NULL, BUFFER + 4096, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    occl_arena_desc_t desc;
    uint64_t address = (uint64_t)(uintptr_t)map, wrong = 0;

    (void)arg;
    munmap(map + BUFFER, 4096);
    for (size_t i = 0; i < BUFFER; i++)
        map[i] = pattern(i, 1);
    occl_arena_describe(a, &desc);
    pair_send(fd, &desc, sizeof desc);
    pair_send(fd, &address, sizeof address);
    if (!pair_await(fd))
        _exit(1);
    for (size_t i = 0; i < BUFFER; i++) /* all was overwritten by now */
        wrong += map[i] != pattern(i, 2);
    pair_send(fd, &wrong, sizeof wrong);
    pair_await(fd);
}

static void test_pair(void)
{
    static const size_t sizes[] = {0,    1,     7,     8,       63,          64,
                                   4095, 4096,  4097,  65536,   (1u << 20) + 3,
                                   (4u << 20) - 1, 4u << 20, (4u << 20) + 1, BUFFER - 5};
    unsigned char *mine = (unsigned char *)malloc(BUFFER + 16);
    occl_arena_t *self = create(0);
    pair_t p = pair_start(child, NULL);
    uint64_t address, via = 0, bad = 0, wrong = 0;
    occl_arena_desc_t desc, faulty;
    char err[300];

    if (!mine || !pair_recv(p.fd, &desc, sizeof desc) || !pair_recv(p.fd, &address, sizeof address))
        bail("the child is gone");
    if (occl_cma_probe(self, &desc, desc.probe, desc.nonce[0], &via, err, sizeof err) != OCCL_OK) {
        diag("%s", err);
        pair_kill(&p);
        skip(20, "cross-memory attach is not permitted here");
        occl_arena_destroy(self);
        free(mine);
        return;
    }
    ok(via != 0, "the probe finds a way to another process");
    ok(via == occl_cma_via(self, &desc), "the one that its description names");
    is_int(occl_cma_probe(self, &desc, desc.probe, desc.nonce[0] + 1, &bad, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "a probe that reads another value fails: %s", err);
    is_int(occl_cma_probe(self, &desc, 8, desc.nonce[0], &bad, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "so does an address that is not there: %s", err);
    faulty = desc;
    faulty.faults = OCCL_FAULT_PULL;
    is_int(occl_cma_probe(self, &faulty, desc.probe, desc.nonce[0], &bad, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "reading can be made to fail: %s", err);
    ok(strstr(err, "reading") != NULL, "and the text says reading");
    faulty.faults = OCCL_FAULT_PUSH;
    is_int(occl_cma_probe(self, &faulty, desc.probe, desc.nonce[0], &bad, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "writing too: %s", err);
    ok(strstr(err, "writing") != NULL, "and the text says writing");
    faulty = desc;
    faulty.proc.pid_ns++;
    is_int(occl_cma_probe(self, &faulty, desc.probe, desc.nonce[0], &bad, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "a pid of another namespace is not tried: %s", err);
    is_int((long long)bad, 0, "a failed probe writes nothing");

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t n = sizes[s], from = 5;

        memset(mine, 0xee, BUFFER + 16);
        if (occl_host_pull(via, mine + 3, address + from, n) != 0)
            wrong++;
        for (size_t i = 0; i < n; i++)
            wrong += mine[3 + i] != pattern(from + i, 1);
        for (size_t i = 0; i < 3; i++)
            wrong += mine[i] != 0xee || mine[3 + n + i] != 0xee;
    }
    is_int((long long)wrong, 0, "pulls of 0 bytes to 10 MB at odd addresses bring the right bytes");

    is_int(occl_host_pull(via, mine, address + BUFFER - 100, 200), -1,
           "a pull that runs off the peer's memory fails");
    is_int(occl_host_pull(via, mine, address + BUFFER + 1, 1), -1, "so does one outside of it");
    is_int(occl_host_push(via, mine, 8, 1), -1, "and a push");
    is_int(occl_host_pull(via | OCCL_VIA_FAIL_PULL, mine, address, 8), -1,
           "a pull can be made to fail");
    is_int(occl_host_push(via | OCCL_VIA_FAIL_PULL, mine + 8, address, 0), 0,
           "without touching a push");
    is_int(occl_host_push(via | OCCL_VIA_FAIL_PUSH, mine, address, 8), -1, "and a push");

    for (size_t i = 0; i < BUFFER; i++)
        mine[i] = pattern(i, 2);
    wrong = 0;
    for (size_t at = 0, n = 1; at < BUFFER; at += n, n = n * 3 + 1) {
        if (n > BUFFER - at)
            n = BUFFER - at;
        wrong += occl_host_push(via, mine + at, address + at, n) != 0;
    }
    pair_go(p.fd);
    is_int((long long)wrong, 0, "pushes of all sizes work");
    if (!pair_recv(p.fd, &wrong, sizeof wrong))
        wrong = 1;
    is_int((long long)wrong, 0, "and the peer finds every byte");

    pair_kill(&p);
    is_int(occl_host_pull(via, mine, address, 8), -1, "a dead peer cannot be read");
    is_int(occl_host_push(via, mine, address, 8), -1, "nor written");
    is_int(occl_cma_probe(self, &desc, desc.probe, desc.nonce[0], &bad, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "nor probed: %s", err);
    occl_arena_destroy(self);
    free(mine);
}

static void test_one_process(void)
{
    occl_arena_t *a = create(OCCL_ARENA_PRIVATE), *b = create(OCCL_ARENA_PRIVATE);
    char here[16] = "", there[16] = "0123456789abcde", err[300];
    occl_arena_desc_t desc;
    uint64_t via = 77;

    occl_arena_describe(b, &desc);
    is_int(occl_cma_probe(a, &desc, desc.probe, desc.nonce[0], &via, err, sizeof err), OCCL_OK,
           "a rank in the same process is reached");
    is_int((long long)via, 0, "by a plain copy");
    is_int(occl_host_pull(via, here, (uint64_t)(uintptr_t)there, 16), 0, "a pull copies");
    is_str(here, there, "the bytes");
    here[0] = 'x';
    is_int(occl_host_push(via, here, (uint64_t)(uintptr_t)there, 16), 0, "a push copies");
    is_str(there, "x123456789abcde", "the other way");
    is_int(occl_host_pull(via | OCCL_VIA_FAIL_PULL, here, (uint64_t)(uintptr_t)there, 16), -1,
           "failures can be injected here too");
    desc.faults = OCCL_FAULT_PUSH;
    is_int(occl_cma_probe(a, &desc, desc.probe, desc.nonce[0], &via, err, sizeof err),
           OCCL_ERR_UNSUPPORTED, "and in the probe");
    occl_arena_destroy(a);
    occl_arena_destroy(b);
}

int main(void)
{
    test_pair();
    test_one_process();
    return tap_done();
}
