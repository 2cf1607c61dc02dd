/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes that talk through a socket: a child runs a function, the parent checks. Only the
 * parent prints. */
#ifndef OCCL_TEST_UNIT_PAIR_H
#define OCCL_TEST_UNIT_PAIR_H

#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

typedef struct pair {
    pid_t pid; /* the child */
    int fd;    /* to the other side */
} pair_t;

/* All n bytes; false when the other side has gone. */
static inline int pair_send(int fd, const void *data, size_t n)
{
    return send(fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static inline int pair_recv(int fd, void *data, size_t n)
{
    return recv(fd, data, n, MSG_WAITALL) == (ssize_t)n;
}

/* Tells the other side that it may go on, or waits for that. */
static inline int pair_go(int fd)
{
    return pair_send(fd, "g", 1);
}

static inline int pair_await(int fd)
{
    char c;

    return pair_recv(fd, &c, 1);
}

static inline pair_t pair_start(void (*child)(int fd, void *arg), void *arg)
{
    pair_t p;
    int fd[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
        bail("no socket");
    p.pid = fork();
    if (p.pid < 0)
        bail("no process");
    if (p.pid == 0) {
        close(fd[0]);
        child(fd[1], arg);
        _exit(0);
    }
    close(fd[1]);
    p.fd = fd[0];
    return p;
}

/* Waits for the child: its exit status, or minus the signal that ended it. */
static inline int pair_join(pair_t *p)
{
    int status = 0;

    close(p->fd);
    if (waitpid(p->pid, &status, 0) != p->pid)
        return 999;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline int pair_kill(pair_t *p)
{
    kill(p->pid, SIGKILL);
    return pair_join(p);
}

#endif
