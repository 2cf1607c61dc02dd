/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which node, which process, which processors. A process is named by boot id, pid namespace, pid
 * and start time: host names and pids alone collide between containers and over time.
 */
#ifndef OCCL_SRC_TOPO_TOPO_H
#define OCCL_SRC_TOPO_TOPO_H

#include <stddef.h>
#include <stdint.h>

#include "util/env.h"
#include "util/status.h"

typedef struct occl_node_id {
    uint64_t word[2]; /* the kernel's boot id, or a hash of OCCL_HOSTID */
} occl_node_id_t;

typedef struct occl_proc_id { /* POD, no holes: compared and sent as bytes */
    occl_node_id_t node;
    uint64_t pid_ns;      /* inode of the pid namespace: pids of two namespaces do not compare */
    uint64_t start_time;  /* field 22 of /proc/pid/stat: a pid used again is another process */
    uint32_t pid;         /* in its namespace */
    uint32_t uid;         /* effective */
} occl_proc_id_t;

/* OCCL_ERR_UNSUPPORTED without /proc and without env->hostid. env may be NULL. */
occl_status_t occl_topo_node(const occl_env_t *env, occl_node_id_t *id_p);
occl_status_t occl_topo_proc(const occl_env_t *env, occl_proc_id_t *id_p);
int occl_node_equal(const occl_node_id_t *a, const occl_node_id_t *b);
int occl_proc_equal(const occl_proc_id_t *a, const occl_proc_id_t *b);
/* Start time of a pid of our namespace, 0 when there is no such process, it has ended, or it cannot be seen. */
uint64_t occl_topo_start_time(uint32_t pid);

/* Processors that the process may use (of its main thread's affinity). At least 1. */
int occl_topo_cpus(void);
/* The processor that the calling thread is on, or -1. Taken by the thread that attaches, for
 * occl_topo_helper_bind. */
int occl_topo_current_cpu(void);
/*
 * Binds the calling thread (the helper) as spec says: "" = the process's cpuset minus the core,
 * with its hardware threads, of avoid_cpu (the whole cpuset when nothing is left or avoid_cpu is
 * -1); "any" = the process's cpuset; else a list such as 3,8-11. OCCL_ERR_ARG and a text for a
 * bad list or one that the process may not use; the thread then keeps its binding.
 */
occl_status_t occl_topo_helper_bind(const char *spec, int avoid_cpu, char *err, size_t errlen);

#endif
