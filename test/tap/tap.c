/* SPDX-License-Identifier: BSD-3-Clause */
/* TAP for C tests: see tap.h. */
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int checks, failures, planned = -1, silent;
static const char *todo_why;

/* Line buffering even into a file: what was printed before a crash is in the log. */
static void start(void)
{
    static int started;

    if (!started) {
        started = 1;
        setvbuf(stdout, NULL, _IOLBF, 0);
    }
}

void tap_set_silent(int yes)
{
    silent = yes;
}

/* Called with the lock held; goes on with `# ` lines if the check failed and returns the verdict. */
static int verdict(int cond, const char *file, int line, const char *fmt, va_list ap)
{
    char text[512];

    start();
    vsnprintf(text, sizeof text, fmt, ap);
    /* A line break or a '#' in the text would end it for the harness. */
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '#')
            *c = ' ';
    checks++;
    if (!cond && !todo_why)
        failures++;
    if (silent)
        return cond;
    printf("%sok %d - %s%s%s\n", cond ? "" : "not ", checks, text, todo_why ? " # TODO " : "",
           todo_why ? todo_why : "");
    if (!cond)
        printf("#   at %s:%d\n", file, line);
    return cond;
}

#define VERDICT(cond)                                                                              \
    do {                                                                                           \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        verdict((cond), file, line, fmt, ap);                                                      \
        va_end(ap);                                                                                \
    } while (0)

int tap_ok(int cond, const char *file, int line, const char *fmt, ...)
{
    pthread_mutex_lock(&lock);
    VERDICT(cond);
    pthread_mutex_unlock(&lock);
    return cond;
}

int tap_is_int(long long got, long long want, const char *file, int line, const char *fmt, ...)
{
    int cond = got == want;

    pthread_mutex_lock(&lock);
    VERDICT(cond);
    if (!cond && !silent)
        printf("#   got %lld, expected %lld\n", got, want);
    pthread_mutex_unlock(&lock);
    return cond;
}

int tap_is_str(const char *got, const char *want, const char *file, int line, const char *fmt, ...)
{
    int cond = got && want ? strcmp(got, want) == 0 : got == want;

    pthread_mutex_lock(&lock);
    VERDICT(cond);
    if (!cond && !silent)
        printf("#   got \"%s\", expected \"%s\"\n", got ? got : "(null)", want ? want : "(null)");
    pthread_mutex_unlock(&lock);
    return cond;
}

int tap_is_mem(const void *got, const void *want, size_t bytes, const char *file, int line,
               const char *fmt, ...)
{
    const unsigned char *g = got, *w = want;
    size_t at = 0, differ = 0;

    for (size_t i = bytes; i-- > 0;)
        if (g[i] != w[i]) {
            at = i;
            differ++;
        }
    pthread_mutex_lock(&lock);
    VERDICT(differ == 0);
    if (differ && !silent)
        printf("#   %zu of %zu bytes differ, first at %zu: got 0x%02x, expected 0x%02x\n", differ,
               bytes, at, g[at], w[at]);
    pthread_mutex_unlock(&lock);
    return differ == 0;
}

int tap_is_near(double got, double want, double ulps, const char *file, int line, const char *fmt,
                ...)
{
    int cond;

    if (isnan(got) || isnan(want))
        cond = isnan(got) && isnan(want);
    else if (isinf(got) || isinf(want))
        cond = got == want;
    else {
        double size = fmax(fabs(got), fabs(want));
        cond = fabs(got - want) <= ulps * (nextafter(size, INFINITY) - size);
    }
    pthread_mutex_lock(&lock);
    VERDICT(cond);
    if (!cond && !silent)
        printf("#   got %.17g, expected %.17g within %g ulps\n", got, want, ulps);
    pthread_mutex_unlock(&lock);
    return cond;
}

void tap_plan(int n)
{
    start();
    planned = n;
    if (!silent)
        printf("1..%d\n", n);
}

int tap_done(void)
{
    start();
    if (planned < 0 && !silent)
        printf("1..%d%s\n", checks, checks ? "" : " # SKIP nothing was checked");
    fflush(stdout);
    return 0;
}

int tap_failures(void)
{
    return failures;
}

void skip(int n, const char *fmt, ...)
{
    char why[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    start();
    while (n-- > 0) {
        checks++;
        if (!silent)
            printf("ok %d # SKIP %s\n", checks, why);
    }
    pthread_mutex_unlock(&lock);
}

void skip_all(const char *fmt, ...)
{
    va_list ap;

    start();
    if (!silent) {
        printf("1..0 # SKIP ");
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        printf("\n");
    }
    exit(0);
}

void todo(const char *why)
{
    todo_why = why;
}

void diag(const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    start();
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (!silent && (*line || line == text))
            printf("# %s\n", line);
    }
    pthread_mutex_unlock(&lock);
}

void bail(const char *fmt, ...)
{
    va_list ap;

    start();
    printf("Bail out! ");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    exit(99);
}

double tap_slack(void)
{
    const char *text = getenv("OCCL_TEST_SLACK");
    double slack = text ? atof(text) : 0;

    return slack > 0 ? slack : 10;
}

double tap_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
