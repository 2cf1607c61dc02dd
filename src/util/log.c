/* SPDX-License-Identifier: BSD-3-Clause */
/* The logger: one write(2) a line, so that lines of several threads and processes do not mix. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/strbuf.h"

static const char *const log_level_names[OCCL_LOG_LEVELS] = {"off",  "error", "warn",
                                                             "info", "debug", "trace"};
static const char *const log_area_names[OCCL_LOG_AREAS] = {
#define X(id, name, what) name,
    OCCL_LOG_AREA_TABLE(X)
#undef X
};

/* The index of the word of n characters, or -1. */
static int log_word(const char *const *names, int count, const char *word, size_t n)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == n && !memcmp(names[i], word, n))
            return i;
    return -1;
}

/* "warn,choice,gate:trace": a level for all areas, an area up to debug, an area up to a level. The
 * last word on an area counts; a level does not touch areas that are named. */
static int log_parse(occl_logger_t *lg, const char *spec, const char **bad_p, size_t *bad_len_p)
{
    unsigned char named[OCCL_LOG_AREAS] = {0};
    int general = OCCL_LOG_WARN;

    for (const char *at = spec; *at;) {
        size_t n = strcspn(at, ","), head = strcspn(at, ",:");
        int level = log_word(log_level_names, OCCL_LOG_LEVELS, at, n);
        int area = log_word(log_area_names, OCCL_LOG_AREAS, at, head);

        if (n == 0) {
            /* an empty word between commas says nothing */
        } else if (level >= 0) {
            general = level;
        } else if (area >= 0 && head == n) {
            named[area] = OCCL_LOG_DEBUG + 1;
        } else if (area >= 0) {
            level = log_word(log_level_names, OCCL_LOG_LEVELS, at + head + 1, n - head - 1);
            if (level >= 0)
                named[area] = (unsigned char)(level + 1);
        }
        if (n && level < 0 && (area < 0 || head != n)) {
            *bad_p = at;
            *bad_len_p = n;
            return -1;
        }
        at += n;
        at += *at == ',';
    }
    for (int i = 0; i < OCCL_LOG_AREAS; i++)
        lg->level[i] = (unsigned char)(named[i] ? named[i] - 1 : general);
    return 0;
}

char *occl_log_hostname(char *buf, size_t len)
{
    char name[256];
    occl_strbuf_t b;

    if (gethostname(name, sizeof name) != 0)
        (void)snprintf(name, sizeof name, "?");
    name[sizeof name - 1] = '\0'; /* a name that is too long need not be terminated */
    occl_strbuf_fixed(&b, buf, len);
    occl_strbuf_addn(&b, name, strcspn(name, "."));
    return buf;
}

void occl_logger_set_rank(occl_logger_t *lg, int rank)
{
    char host[48];
    occl_strbuf_t b;

    occl_strbuf_fixed(&b, lg->prefix, sizeof lg->prefix);
    occl_strbuf_printf(&b, "[%s:%ld", occl_log_hostname(host, sizeof host), (long)getpid());
    if (rank >= 0)
        occl_strbuf_printf(&b, " rank %d", rank);
    occl_strbuf_add(&b, "] OCCL");
}

occl_status_t occl_logger_init(occl_logger_t *lg, const occl_env_t *env, int rank, char *err,
                               size_t errlen)
{
    const char *bad = "";
    size_t bad_len = 0;

    lg->fd = STDERR_FILENO;
    memset(lg->level, OCCL_LOG_WARN, sizeof lg->level);
    occl_logger_set_rank(lg, rank);
    if (err && errlen)
        err[0] = '\0';
    if (log_parse(lg, env->log, &bad, &bad_len) == 0)
        return OCCL_OK;

    occl_strbuf_t b;
    occl_strbuf_fixed(&b, err, err ? errlen : 0);
    occl_strbuf_printf(&b, "OCCL_LOG=%.100s is not valid: \"%.*s\" is neither a level (", env->log,
                       (int)(bad_len > 40 ? 40 : bad_len), bad);
    for (int i = 0; i < OCCL_LOG_LEVELS; i++)
        occl_strbuf_printf(&b, "%s%s", i ? ", " : "", log_level_names[i]);
    occl_strbuf_add(&b, ") nor an area (");
    for (int i = 0; i < OCCL_LOG_AREAS; i++)
        occl_strbuf_printf(&b, "%s%s", i ? ", " : "", log_area_names[i]);
    occl_strbuf_add(&b, ")");
    return OCCL_ERR_ARG;
}

void occl_log_write(const occl_logger_t *lg, int what, const char *fmt, ...)
{
    int saved = errno, level = what & 0xff, area = what >> OCCL_AREA_SHIFT;
    char line[1024];
    occl_strbuf_t b;
    va_list ap;
    char text[896];

    if (!lg || level <= OCCL_LOG_OFF || level >= OCCL_LOG_LEVELS)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    occl_strbuf_fixed(&b, line, sizeof line - 1);
    occl_strbuf_printf(&b, "%s %s", lg->prefix, log_level_names[level]);
    if (area > 0 && area < OCCL_LOG_AREAS)
        occl_strbuf_printf(&b, " (%s)", log_area_names[area]);
    occl_strbuf_add(&b, ": ");
    occl_strbuf_add(&b, text);
    for (size_t i = 0; i < b.len; i++)
        if (b.text[i] == '\n')
            b.text[i] = ' '; /* one message, one line, whatever a peer's text holds */
    line[b.len] = '\n';
    /* A full or closed stderr must not stop a collective: what cannot be written is lost. */
    if (write(lg->fd, line, b.len + 1) < 0)
        errno = 0;
    errno = saved;
}
