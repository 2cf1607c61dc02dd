/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line to standard error, `[host:pid rank] OCCL level: text`. The only place of the library
 * that writes there.
 *
 * The level is chosen by volume, not by mood:
 *   error  a few a life: an operation failed and the user has to act
 *   warn   a few a life: it goes on, but not as meant (slower, or differing from what was asked)
 *   info   a few a communicator: what was found and chosen
 *   debug  a few a collective or object: life cycle
 *   trace  any number: every run and message
 * The first function that knows a cause logs it once; callers only return. Errors that reach the
 * user as an MPI error code with a text are not logged as well, except at debug.
 */
#ifndef OCCL_SRC_UTIL_LOG_H
#define OCCL_SRC_UTIL_LOG_H

#include <stddef.h>

#include "util/env.h"
#include "util/status.h"

typedef enum {
    OCCL_LOG_OFF,
    OCCL_LOG_ERROR,
    OCCL_LOG_WARN,
    OCCL_LOG_INFO,
    OCCL_LOG_DEBUG,
    OCCL_LOG_TRACE,
    OCCL_LOG_LEVELS
} occl_log_level_t;

/* X(id, name in OCCL_LOG, what). An area named in OCCL_LOG is heard up to debug. */
#define OCCL_LOG_AREA_TABLE(X)                                     \
    X(GENERAL, "general", "everything else")                       \
    X(CHOICE, "choice", "which path, algorithm, backend, and why") \
    X(GATE, "gate", "readiness, gates, mismatches")                \
    X(ENGINE, "engine", "channels: preemption, parking, quitting") \
    X(MEMORY, "memory", "arenas, links, staging, mappings")        \
    X(CONTROL, "control", "attach, registration, messages")        \
    X(PROGRESS, "progress", "helper thread, sleep and wake")       \
    X(API, "api", "calls of the application")

/* An area is or-ed to the level: occl_log(lg, OCCL_LOG_INFO | OCCL_AREA_CHOICE, "...") */
#define OCCL_AREA_SHIFT 8
typedef enum {
#define X(id, name, what) OCCL_AREA_NUMBER_##id,
    OCCL_LOG_AREA_TABLE(X)
#undef X
    OCCL_LOG_AREAS
} occl_log_area_t;
enum {
#define X(id, name, what) OCCL_AREA_##id = (int)OCCL_AREA_NUMBER_##id << OCCL_AREA_SHIFT,
    OCCL_LOG_AREA_TABLE(X)
#undef X
};

typedef struct occl_logger {
    int fd;                               /* 2; tests put a pipe here */
    unsigned char level[OCCL_LOG_AREAS];  /* highest level heard, by area */
    char prefix[96];                      /* "[host:pid rank] OCCL" */
} occl_logger_t;

/* Levels from env->log; the prefix from the host name, the pid and the rank (none when negative).
 * An unknown word in env->log: OCCL_ERR_ARG and a text, and the logger is usable with the
 * default. */
occl_status_t occl_logger_init(occl_logger_t *lg, const occl_env_t *env, int rank, char *err,
                               size_t errlen);
/* The host's short name, for texts. Returns buf. */
char *occl_log_hostname(char *buf, size_t len);
/* Nothing but the prefix changes: the rank is known later than the first message. */
void occl_logger_set_rank(occl_logger_t *lg, int rank);

static inline int occl_log_on(const occl_logger_t *lg, int what)
{
    return lg && (what & 0xff) <= lg->level[what >> OCCL_AREA_SHIFT];
}

void occl_log_write(const occl_logger_t *lg, int what, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The arguments are evaluated only when somebody listens. lg may be NULL: silence. */
#define occl_log(lg, what, ...)                        \
    do {                                               \
        if (occl_log_on((lg), (what)))                 \
            occl_log_write((lg), (what), __VA_ARGS__); \
    } while (0)

#endif
