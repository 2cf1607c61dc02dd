/* SPDX-License-Identifier: BSD-3-Clause */
/* Node, process and processors, from /proc, /sys and the scheduler. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/strbuf.h"
#include "topo/topo.h"

/* 8192 processors: the kernel refuses a mask shorter than its own. */
typedef union topo_cpus {
    cpu_set_t set;
    unsigned char bytes[1024];
} topo_cpus_t;
#define TOPO_CPU_LIMIT 8192

/* The beginning of a small file, NUL-terminated. Its length, or -1. */
static int topo_read(const char *path, char *buf, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return -1;
    do
        n = read(fd, buf, len - 1);
    while (n < 0 && errno == EINTR);
    (void)close(fd);
    if (n < 0)
        return -1;
    buf[n] = '\0';
    return (int)n;
}

occl_status_t occl_topo_node(const occl_env_t *env, occl_node_id_t *id_p)
{
    occl_node_id_t id = {{0, 0}};
    char text[64];
    int digits = 0;

    if (env && env->hostid[0]) {
        size_t n = strlen(env->hostid);

        id_p->word[0] = occl_hash_bytes(env->hostid, n, 1);
        id_p->word[1] = occl_hash_bytes(env->hostid, n, 2);
        return OCCL_OK;
    }
    if (topo_read("/proc/sys/kernel/random/boot_id", text, sizeof text) < 0)
        return OCCL_ERR_UNSUPPORTED;
    for (const char *p = text; *p && digits < 32; p++) {
        unsigned digit;

        if (!isxdigit((unsigned char)*p))
            continue;
        digit = *p <= '9' ? (unsigned)(*p - '0') : (unsigned)((*p | 0x20) - 'a' + 10);
        id.word[digits / 16] = id.word[digits / 16] << 4 | digit;
        digits++;
    }
    if (digits != 32)
        return OCCL_ERR_UNSUPPORTED;
    *id_p = id;
    return OCCL_OK;
}

uint64_t occl_topo_start_time(uint32_t pid)
{
    char path[48], text[1024], *p, state = '?';
    uint64_t threads = 2, start = 0, memory = 1;

    (void)snprintf(path, sizeof path, "/proc/%lu/stat", (unsigned long)pid);
    if (topo_read(path, text, sizeof text) < 0)
        return 0;
    /* "pid (name) state ...": the name may hold blanks and brackets, so count from the last one. */
    p = strrchr(text, ')');
    for (int field = 3; p && (p = strchr(p, ' ')) != NULL && field <= 23; field++) {
        p++;
        if (field == 3)
            state = *p;
        else if (field == 20)
            threads = strtoull(p, NULL, 10);
        else if (field == 22)
            start = strtoull(p, NULL, 10);
        else if (field == 23)
            memory = strtoull(p, NULL, 10);
    }
    /* Ending, or ended and its parent has not asked how. (A main thread that ended before the others looks so, too, but is not
     * alone.) */
    return state == 'X' || (threads <= 1 && (state == 'Z' || memory == 0)) ? 0 : start;
}

occl_status_t occl_topo_proc(const occl_env_t *env, occl_proc_id_t *id_p)
{
    occl_proc_id_t id;
    struct stat st;
    occl_status_t status;

    memset(&id, 0, sizeof id);
    status = occl_topo_node(env, &id.node);
    if (status != OCCL_OK)
        return status;
    id.pid = (uint32_t)getpid();
    id.uid = (uint32_t)geteuid();
    id.pid_ns = stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
    id.start_time = occl_topo_start_time(id.pid);
    *id_p = id;
    return OCCL_OK;
}

int occl_node_equal(const occl_node_id_t *a, const occl_node_id_t *b)
{
    return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

int occl_proc_equal(const occl_proc_id_t *a, const occl_proc_id_t *b)
{
    return occl_node_equal(&a->node, &b->node) && a->pid_ns == b->pid_ns && a->pid == b->pid &&
           a->start_time == b->start_time;
}

/* The processors that the process may use: its main thread's. */
static int topo_process_cpus(topo_cpus_t *cpus)
{
    memset(cpus, 0, sizeof *cpus);
    return sched_getaffinity(getpid(), sizeof *cpus, &cpus->set);
}

int occl_topo_cpus(void)
{
    topo_cpus_t cpus;
    int n;

    if (topo_process_cpus(&cpus) != 0)
        return 1;
    n = CPU_COUNT_S(sizeof cpus, &cpus.set);
    return n > 0 ? n : 1;
}

int occl_topo_current_cpu(void)
{
    return sched_getcpu();
}

/* "3,8-11", to a set. -1 when it is no such list. */
static int topo_parse_list(const char *text, topo_cpus_t *cpus)
{
    memset(cpus, 0, sizeof *cpus);
    for (;;) {
        unsigned long from, to;
        char *end;

        if (!isdigit((unsigned char)*text))
            return -1;
        from = to = strtoul(text, &end, 10);
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return -1;
            to = strtoul(end + 1, &end, 10);
        }
        if (from > to || to >= TOPO_CPU_LIMIT)
            return -1;
        for (; from <= to; from++)
            CPU_SET_S(from, sizeof *cpus, &cpus->set);
        if (*end == '\0' || *end == '\n')
            return 0;
        if (*end != ',')
            return -1;
        text = end + 1;
    }
}

/* Takes the core of cpu, with all its hardware threads, out of the set. */
static void topo_remove_core(topo_cpus_t *cpus, int cpu)
{
    char path[96], text[256];
    topo_cpus_t core;

    if (cpu < 0 || cpu >= TOPO_CPU_LIMIT)
        return;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                   cpu);
    if (topo_read(path, text, sizeof text) <= 0 || topo_parse_list(text, &core) != 0)
        memset(&core, 0, sizeof core);
    CPU_SET_S((size_t)cpu, sizeof core, &core.set);
    for (size_t i = 0; i < sizeof core.bytes; i++)
        cpus->bytes[i] &= (unsigned char)~core.bytes[i];
}

occl_status_t occl_topo_helper_bind(const char *spec, int avoid_cpu, char *err, size_t errlen)
{
    topo_cpus_t all, want;
    occl_strbuf_t b;

    occl_strbuf_fixed(&b, err, err ? errlen : 0);
    if (topo_process_cpus(&all) != 0)
        return OCCL_OK; /* an unknown cpuset is left as it is */
    if (!spec || !spec[0]) {
        want = all;
        topo_remove_core(&want, avoid_cpu);
        if (CPU_COUNT_S(sizeof want, &want.set) == 0)
            want = all;
    } else if (!strcmp(spec, "any")) {
        want = all;
    } else {
        if (topo_parse_list(spec, &want) != 0) {
            occl_strbuf_printf(&b, "OCCL_HELPER_CPU=%.80s is not a list of processors (3,8-11)",
                               spec);
            return OCCL_ERR_ARG;
        }
        for (size_t i = 0; i < sizeof want.bytes; i++)
            want.bytes[i] &= all.bytes[i];
        if (CPU_COUNT_S(sizeof want, &want.set) == 0) {
            occl_strbuf_printf(&b, "OCCL_HELPER_CPU=%.80s: the process may use none of these",
                               spec);
            return OCCL_ERR_ARG;
        }
    }
    if (sched_setaffinity(0, sizeof want, &want.set) != 0) {
        occl_strbuf_printf(&b, "the helper thread could not be bound: %s", strerror(errno));
        return OCCL_ERR_ARG;
    }
    return OCCL_OK;
}
