/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TAP for C tests. One process prints; see tap_mpi.h for tests of several ranks.
 *
 *     int main(void)
 *     {
 *         ok(sq_full(&q), "a queue of 4 is full after 4 pushes");
 *         is_int(sq_count(&q), 4, "and says so");
 *         return tap_done();
 *     }
 *
 * The text of a check is a sentence about behaviour. Every check returns its
 * verdict, so `if (!ok(...)) diag(...)` adds what was seen. The plan is printed
 * last, by tap_done(): a test that dies on the way shows as "missing plan".
 * A failed check is no exit status: the verdict is in the output, and a status
 * on top would be counted as a second error.
 *
 * Checks may be called from several threads; lines do not mix.
 */
#ifndef OCCL_TEST_TAP_H
#define OCCL_TEST_TAP_H

#include <stddef.h>

#ifdef __GNUC__
#define TAP_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define TAP_NORETURN __attribute__((noreturn))
#else
#define TAP_PRINTF(fmt, first)
#define TAP_NORETURN
#endif

/* Checks. The text must not be NULL. */
int tap_ok(int cond, const char *file, int line, const char *fmt, ...) TAP_PRINTF(4, 5);
int tap_is_int(long long got, long long want, const char *file, int line, const char *fmt, ...)
    TAP_PRINTF(5, 6);
int tap_is_str(const char *got, const char *want, const char *file, int line, const char *fmt, ...)
    TAP_PRINTF(5, 6);
int tap_is_mem(const void *got, const void *want, size_t bytes, const char *file, int line,
               const char *fmt, ...) TAP_PRINTF(6, 7);
/* Equal within so many units in the last place of a double (see TAP_ULPS_FLOAT for floats);
 * NaN equals NaN only. */
int tap_is_near(double got, double want, double ulps, const char *file, int line, const char *fmt,
                ...) TAP_PRINTF(6, 7);

#define ok(cond, ...) tap_ok(!!(cond), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, want, ...) tap_is_int((got), (want), __FILE__, __LINE__, __VA_ARGS__)
#define is_str(got, want, ...) tap_is_str((got), (want), __FILE__, __LINE__, __VA_ARGS__)
#define is_mem(got, want, n, ...) tap_is_mem((got), (want), (n), __FILE__, __LINE__, __VA_ARGS__)
#define is_near(got, want, ulps, ...)                                                              \
    tap_is_near((got), (want), (ulps), __FILE__, __LINE__, __VA_ARGS__)

/* A float's unit in the last place, in those of a double */
#define TAP_ULPS_FLOAT(n) ((n) * 536870912.0)

/* Optional: say beforehand how many checks there will be. Without it tap_done() counts. */
void tap_plan(int checks);
/* Print the plan; the value to return from main (0 whatever the verdicts were). */
int tap_done(void);
/* How many checks failed so far (todo ones not counted) */
int tap_failures(void);

/* Count n checks as skipped, with the reason */
void skip(int n, const char *fmt, ...) TAP_PRINTF(2, 3);
/* Skip the whole program: only before the first check */
void skip_all(const char *fmt, ...) TAP_PRINTF(1, 2) TAP_NORETURN;
/* Checks from here on are expected to fail, for this reason; NULL ends it */
void todo(const char *why);
/* A comment, on stdout and so in the log, in order with the checks */
void diag(const char *fmt, ...) TAP_PRINTF(1, 2);
/* The test cannot go on (no memory, wrong launcher): Bail out! and exit */
void bail(const char *fmt, ...) TAP_PRINTF(1, 2) TAP_NORETURN;

/* Deadlines in tests are bounds on liveness, never claims about speed: multiply each by this.
 * OCCL_TEST_SLACK, default 10. */
double tap_slack(void);
/* Seconds on a clock that never goes back */
double tap_now(void);

/* For tap_mpi.c: this process prints nothing (it is not rank 0) */
void tap_set_silent(int silent);

#endif
