/* SPDX-License-Identifier: BSD-3-Clause */
/* The logger, and the clock and futex that progress stands on. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "util/clock.h"
#include "util/futex.h"
#include "util/log.h"

static int pipe_fd[2];

/* What was written since the last call. */
static const char *heard(void)
{
    static char buf[4096];
    ssize_t n = read(pipe_fd[0], buf, sizeof buf - 1);

    buf[n > 0 ? n : 0] = '\0';
    return buf;
}

static void listen_with(occl_logger_t *lg, const char *spec, int rank)
{
    occl_env_t env;
    char err[512];

    occl_env_defaults(&env);
    snprintf(env.log, sizeof env.log, "%s", spec);
    is_int(occl_logger_init(lg, &env, rank, err, sizeof err), OCCL_OK, "OCCL_LOG=%s is understood",
           spec);
    lg->fd = pipe_fd[1];
}

static void test_levels(void)
{
    char host[64], want[256], err[512];
    occl_logger_t lg;
    occl_env_t env;
    int evaluated = 0;

    listen_with(&lg, "warn", 3);
    occl_log(&lg, OCCL_LOG_WARN, "slow path: %s", "why");
    snprintf(want, sizeof want, "[%s:%ld rank 3] OCCL warn: slow path: why\n",
             occl_log_hostname(host, sizeof host), (long)getpid());
    is_str(heard(), want, "a line names host, process, rank and level");
    occl_log(&lg, OCCL_LOG_INFO, "%d", ++evaluated);
    is_str(heard(), "", "warn is deaf to info");
    is_int(evaluated, 0, "whose arguments are not evaluated");
    occl_log(&lg, OCCL_LOG_ERROR | OCCL_AREA_MEMORY, "two\nlines");
    ok(strstr(heard(), "OCCL error (memory): two lines\n") != NULL,
       "an area is named, and a message is one line");
    occl_log((occl_logger_t *)NULL, OCCL_LOG_ERROR, "nobody");

    listen_with(&lg, "warn,choice", -1);
    occl_log(&lg, OCCL_LOG_DEBUG | OCCL_AREA_CHOICE, "chosen");
    snprintf(want, sizeof want, "[%s:%ld] OCCL debug (choice): chosen\n", host, (long)getpid());
    is_str(heard(), want, "an area in OCCL_LOG is heard up to debug; no rank, none named");
    occl_log(&lg, OCCL_LOG_TRACE | OCCL_AREA_CHOICE, "no");
    occl_log(&lg, OCCL_LOG_INFO | OCCL_AREA_GATE, "no");
    is_str(heard(), "", "not beyond, and no other area");

    listen_with(&lg, "choice:trace,off", 0);
    occl_log(&lg, OCCL_LOG_ERROR, "no");
    is_str(heard(), "", "off silences");
    occl_log(&lg, OCCL_LOG_TRACE | OCCL_AREA_CHOICE, "yes");
    ok(strstr(heard(), "trace (choice): yes") != NULL, "but not an area that is named");
    listen_with(&lg, "trace,gate:off", 0);
    occl_log(&lg, OCCL_LOG_ERROR | OCCL_AREA_GATE, "no");
    is_str(heard(), "", "an area can be silenced");
    listen_with(&lg, "", 0);
    occl_log(&lg, OCCL_LOG_WARN, "yes");
    ok(heard()[0] != '\0', "nothing said means warn");

    occl_env_defaults(&env);
    snprintf(env.log, sizeof env.log, "warn,chioce");
    is_int(occl_logger_init(&lg, &env, 0, err, sizeof err), OCCL_ERR_ARG,
           "a mistyped area is refused");
    ok(strstr(err, "chioce") && strstr(err, "choice") && strstr(err, "debug"),
       "the text names it and what there is");
    is_int(lg.level[0], OCCL_LOG_WARN, "the logger still warns");
    snprintf(env.log, sizeof env.log, "gate:loud");
    is_int(occl_logger_init(&lg, &env, 0, err, sizeof err), OCCL_ERR_ARG, "a mistyped level too");
}

static void test_long_line(void)
{
    char text[3000];
    occl_logger_t lg;
    const char *line;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    listen_with(&lg, "info", 0);
    occl_log(&lg, OCCL_LOG_INFO, "%s", text);
    line = heard();
    ok(strlen(line) <= 1024 && line[strlen(line) - 1] == '\n', "a long line is cut and ended");
}

static uint32_t word;

static void *waker(void *arg)
{
    (void)arg;
    usleep(20000);
    __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
    occl_futex_wake(&word, 1);
    return NULL;
}

static void test_futex(void)
{
    uint64_t t0 = occl_host_clock_ns(), t1;
    pthread_t thread;

    is_int(occl_futex_wait(&word, 0, 5000000), ETIMEDOUT, "a sleep ends at its timeout");
    t1 = occl_host_clock_ns();
    ok(t1 - t0 >= 5000000, "not before it");
    is_int(occl_futex_wait(&word, 1, UINT64_MAX), 0, "a word that differs is not slept on");
    if (pthread_create(&thread, NULL, waker, NULL))
        bail("no thread");
    while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE))
        if (occl_futex_wait(&word, 0, (uint64_t)(10e9 * tap_slack())) == ETIMEDOUT)
            break;
    is_int(__atomic_load_n(&word, __ATOMIC_ACQUIRE), 1, "a sleeper is woken");
    pthread_join(thread, NULL);
    is_int(occl_futex_wake(&word, 1), 0, "with nobody asleep nobody is woken");
}

int main(void)
{
    if (pipe(pipe_fd) || fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK))
        bail("no pipe");
    test_levels();
    test_long_line();
    test_futex();
    return tap_done();
}
