/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The environment, read once into a struct. The table is env.def; tests fill the struct with
 * occl_env_defaults and change members, so that several "processes" in one program can differ.
 */
#ifndef OCCL_SRC_UTIL_ENV_H
#define OCCL_SRC_UTIL_ENV_H

#include <stddef.h>
#include <stdint.h>

#include "util/status.h"

#define OCCL_INF UINT64_MAX  /* "inf" as a size or a time */
#define OCCL_ENV_STRING 512  /* a longer value is refused, not cut */

typedef struct occl_env {
#define OCCL_ENV_MEMBER_BOOL(member) int member;
#define OCCL_ENV_MEMBER_INT(member) int member;
#define OCCL_ENV_MEMBER_ENUM(member) int member;
#define OCCL_ENV_MEMBER_SIZE(member) uint64_t member;
#define OCCL_ENV_MEMBER_TIME(member) uint64_t member;
#define OCCL_ENV_MEMBER_STRING(member) char member[OCCL_ENV_STRING];
#define OCCL_ENV(member, name, kind, def, unit, allowed, help) OCCL_ENV_MEMBER_##kind(member)
#include "util/env.def"
#undef OCCL_ENV
} occl_env_t;

/* The defaults of the table, whatever the environment holds. */
void occl_env_defaults(occl_env_t *env);

/*
 * Defaults, then the environment. A value that cannot be read or is out of range: OCCL_ERR_ARG
 * and a text that names the variable, the value and what is allowed; *env then holds the default
 * for it and the rest is read all the same (the text tells of the first one). An empty value
 * counts as unset.
 */
occl_status_t occl_env_load(occl_env_t *env, char *err, size_t errlen);

/* Sets one variable by name, as occl_env_load would. OCCL_ERR_ARG and a text when there is none
 * of that name. */
occl_status_t occl_env_set(occl_env_t *env, const char *name, const char *value, char *err,
                           size_t errlen);

/* The first variable of the environment that starts with OCCL_ but is not ours, or NULL: perhaps
 * a typing mistake, so worth a line at info. OCCL_TEST_* belongs to the tests and is passed over. */
const char *occl_env_unknown(void);

/* A number in another library's variable, as CUDA_DEVICE_MAX_CONNECTIONS; `otherwise` when there is none. */
long occl_env_foreign(const char *name, long otherwise);

/* The same text forms for others (info keys, tuning rules). 0, or -1. */
int occl_parse_size(const char *text, uint64_t *value_p);
int occl_parse_time(const char *text, uint64_t *value_p);
int occl_parse_bool(const char *text, int *value_p);
/* "128K", "1536", "inf"; "20us", "0". Returns buf. */
char *occl_format_size(uint64_t value, char *buf, size_t len);
char *occl_format_time(uint64_t value, char *buf, size_t len);

typedef enum {
    OCCL_ENV_PLAIN, /* occl_info -c: NAME=value, then kind, default and help as comments */
    OCCL_ENV_MAN    /* the body of mpix_occl_env(7): one .TP a variable */
} occl_env_style_t;
/* Gets one piece of text at a time; the text is valid during the call only. */
typedef void (*occl_env_write_fn)(void *arg, const char *text);
/* Writes all variables in the order of the table; returns how many. */
int occl_env_print(const occl_env_t *env, occl_env_style_t style, occl_env_write_fn write,
                   void *arg);

#endif
