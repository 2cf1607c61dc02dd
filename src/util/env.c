/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment: one table (env.def) expanded into descriptions, and one parser a kind. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/env.h"
#include "util/strbuf.h"

extern char **environ;

typedef enum {
    ENV_BOOL,
    ENV_INT,
    ENV_SIZE,
    ENV_TIME,
    ENV_STRING,
    ENV_ENUM
} env_kind_t;

typedef struct env_var {
    const char *name;
    env_kind_t kind;
    size_t offset;
    const char *def, *unit, *allowed, *help;
} env_var_t;

static const env_var_t env_vars[] = {
#define OCCL_ENV(member, name, kind, def, unit, allowed, help) \
    {#name, ENV_##kind, offsetof(occl_env_t, member), def, unit, allowed, help},
#include "util/env.def"
#undef OCCL_ENV
};
#define ENV_VARS (sizeof env_vars / sizeof env_vars[0])

static const char *const env_kind_names[] = {"boolean", "integer", "size",
                                             "time",    "string",  "choice"};

/* Decimal digits only: no sign, no blank, no overflow. *end_p is the first other character. */
static int parse_digits(const char *text, uint64_t *value_p, const char **end_p)
{
    uint64_t v = 0;

    if (*text < '0' || *text > '9')
        return -1;
    for (; *text >= '0' && *text <= '9'; text++) {
        unsigned digit = (unsigned)(*text - '0');

        if (v > (UINT64_MAX - digit) / 10)
            return -1;
        v = v * 10 + digit;
    }
    *value_p = v;
    *end_p = text;
    return 0;
}

/* value * unit, below OCCL_INF. */
static int parse_scale(uint64_t value, uint64_t unit, uint64_t *value_p)
{
    if (value > (OCCL_INF - 1) / unit)
        return -1;
    *value_p = value * unit;
    return 0;
}

int occl_parse_size(const char *text, uint64_t *value_p)
{
    static const char units[] = "KMGT";
    const char *end, *unit;
    uint64_t v, scale = 1;

    if (!strcasecmp(text, "inf")) {
        *value_p = OCCL_INF;
        return 0;
    }
    if (parse_digits(text, &v, &end))
        return -1;
    if (*end) {
        char upper = *end >= 'a' && *end <= 'z' ? (char)(*end - 'a' + 'A') : *end;

        unit = strchr(units, upper);
        if (unit) {
            scale <<= 10 * (unit - units + 1);
            end++;
            if (*end == 'i' && (end[1] == 'B' || end[1] == 'b'))
                end++;
        }
        if (*end == 'B' || *end == 'b')
            end++;
        if (*end)
            return -1;
    }
    return parse_scale(v, scale, value_p);
}

int occl_parse_time(const char *text, uint64_t *value_p)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    const char *end;
    uint64_t v;

    if (!strcasecmp(text, "inf")) {
        *value_p = OCCL_INF;
        return 0;
    }
    if (parse_digits(text, &v, &end))
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcmp(end, units[i].name))
            return parse_scale(v, units[i].ns, value_p);
    if (*end || v)
        return -1; /* a bare number would be read as seconds by one and nanoseconds by another */
    *value_p = 0;
    return 0;
}

int occl_parse_bool(const char *text, int *value_p)
{
    static const char *const words[] = {"0",  "1",     "no",   "yes", "off",
                                        "on", "false", "true", "n",   "y"}; /* odd: true */

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!strcasecmp(text, words[i])) {
            *value_p = (int)(i & 1);
            return 0;
        }
    }
    return -1;
}

static int parse_int(const char *text, int64_t *value_p)
{
    const char *end;
    uint64_t v;
    int negative = *text == '-';

    if (parse_digits(text + negative, &v, &end) || *end || v > INT64_MAX)
        return -1;
    *value_p = negative ? -(int64_t)v : (int64_t)v;
    return 0;
}

char *occl_format_size(uint64_t value, char *buf, size_t len)
{
    static const char units[] = "TGMK";

    if (value == OCCL_INF) {
        (void)snprintf(buf, len, "inf");
        return buf;
    }
    for (int i = 0; i < 4; i++) {
        uint64_t unit = (uint64_t)1 << (10 * (4 - i));

        if (value && value % unit == 0) {
            (void)snprintf(buf, len, "%llu%c", (unsigned long long)(value / unit), units[i]);
            return buf;
        }
    }
    (void)snprintf(buf, len, "%llu", (unsigned long long)value);
    return buf;
}

char *occl_format_time(uint64_t value, char *buf, size_t len)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"s", 1000000000}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

    if (value == OCCL_INF)
        (void)snprintf(buf, len, "inf");
    else if (value == 0)
        (void)snprintf(buf, len, "0");
    else
        for (int i = 0; i < 4; i++) {
            if (value % units[i].ns == 0) {
                (void)snprintf(buf, len, "%llu%s", (unsigned long long)(value / units[i].ns),
                               units[i].name);
                break;
            }
        }
    return buf;
}

/* Writes the two ends of "LO..HI" into copies; 0 when allowed has that form. */
static int env_range(const char *allowed, char lo[32], char hi[32])
{
    const char *dots = strstr(allowed, "..");

    if (!dots || dots - allowed > 31 || strlen(dots + 2) > 31)
        return -1;
    memcpy(lo, allowed, (size_t)(dots - allowed));
    lo[dots - allowed] = '\0';
    memcpy(hi, dots + 2, strlen(dots + 2) + 1);
    return 0;
}

/* The index of value in "a|b|c", or -1. */
static int env_choice(const char *allowed, const char *value)
{
    size_t n = strlen(value);

    for (int i = 0; *allowed; i++) {
        size_t len = strcspn(allowed, "|");

        if (len == n && !strncasecmp(allowed, value, n))
            return i;
        allowed += len;
        if (*allowed == '|')
            allowed++;
    }
    return -1;
}

static int env_parse_u64(const env_var_t *var, const char *text, uint64_t *value_p)
{
    return var->kind == ENV_SIZE ? occl_parse_size(text, value_p) : occl_parse_time(text, value_p);
}

/* Reads text into the member; -1 leaves it alone. */
static int env_assign(occl_env_t *env, const env_var_t *var, const char *text)
{
    void *member = (char *)env + var->offset;
    char lo[32], hi[32];
    int ranged = env_range(var->allowed, lo, hi) == 0;

    switch (var->kind) {
    case ENV_BOOL:
        return occl_parse_bool(text, (int *)member);
    case ENV_INT: {
        int64_t v, low = INT_MIN, high = INT_MAX;

        if (ranged && (parse_int(lo, &low) || parse_int(hi, &high)))
            return -1;
        if (parse_int(text, &v) || v < low || v > high)
            return -1;
        *(int *)member = (int)v;
        return 0;
    }
    case ENV_SIZE:
    case ENV_TIME: {
        uint64_t v, low = 0, high = OCCL_INF;

        if (ranged && (env_parse_u64(var, lo, &low) || env_parse_u64(var, hi, &high)))
            return -1;
        if (env_parse_u64(var, text, &v) || v < low || v > high)
            return -1;
        *(uint64_t *)member = v;
        return 0;
    }
    case ENV_STRING:
        if (strlen(text) >= OCCL_ENV_STRING)
            return -1;
        memcpy(member, text, strlen(text) + 1);
        return 0;
    case ENV_ENUM: {
        int i = env_choice(var->allowed, text);

        if (i < 0)
            return -1;
        *(int *)member = i;
        return 0;
    }
    }
    return -1;
}

/* "a time such as 20us (units ns, us, ms, s), 0..1s" */
static void env_expected(const env_var_t *var, occl_strbuf_t *b)
{
    switch (var->kind) {
    case ENV_BOOL:
        occl_strbuf_add(b, "0 or 1");
        break;
    case ENV_INT:
        occl_strbuf_add(b, "an integer");
        break;
    case ENV_SIZE:
        occl_strbuf_add(b, "a size such as 65536, 64K, 16M, 8G or inf");
        break;
    case ENV_TIME:
        occl_strbuf_add(b, "a time with a unit such as 500ns, 20us, 5ms or 1s");
        break;
    case ENV_STRING:
        occl_strbuf_printf(b, "a text of less than %d characters", OCCL_ENV_STRING);
        break;
    case ENV_ENUM:
        occl_strbuf_add(b, "one of");
        break;
    }
    if (var->allowed[0])
        occl_strbuf_printf(b, "%s%s", var->kind == ENV_ENUM ? " " : ", ", var->allowed);
}

static void env_complain(const env_var_t *var, const char *value, char *err, size_t errlen)
{
    occl_strbuf_t b;

    occl_strbuf_fixed(&b, err, errlen);
    occl_strbuf_printf(&b, "%s=%.80s%s is not valid: expected ", var->name, value,
                       strlen(value) > 80 ? "..." : "");
    env_expected(var, &b);
}

void occl_env_defaults(occl_env_t *env)
{
    memset(env, 0, sizeof *env);
    for (size_t i = 0; i < ENV_VARS; i++)
        (void)env_assign(env, &env_vars[i], env_vars[i].def); /* env.t: every default is valid */
}

occl_status_t occl_env_load(occl_env_t *env, char *err, size_t errlen)
{
    occl_status_t status = OCCL_OK;

    occl_env_defaults(env);
    if (err && errlen)
        err[0] = '\0';
    for (size_t i = 0; i < ENV_VARS; i++) {
        const char *value = getenv(env_vars[i].name);

        if (!value || !*value || env_assign(env, &env_vars[i], value) == 0)
            continue;
        if (status == OCCL_OK)
            env_complain(&env_vars[i], value, err, err ? errlen : 0);
        status = OCCL_ERR_ARG;
    }
    return status;
}

static const env_var_t *env_find(const char *name, size_t len)
{
    for (size_t i = 0; i < ENV_VARS; i++)
        if (strlen(env_vars[i].name) == len && !memcmp(env_vars[i].name, name, len))
            return &env_vars[i];
    return NULL;
}

occl_status_t occl_env_set(occl_env_t *env, const char *name, const char *value, char *err,
                           size_t errlen)
{
    const env_var_t *var = env_find(name, strlen(name));

    if (err && errlen)
        err[0] = '\0';
    if (!var) {
        occl_strbuf_t b;

        occl_strbuf_fixed(&b, err, err ? errlen : 0);
        occl_strbuf_printf(&b, "there is no variable %.80s", name);
        return OCCL_ERR_ARG;
    }
    if (env_assign(env, var, *value ? value : var->def) == 0)
        return OCCL_OK;
    env_complain(var, value, err, err ? errlen : 0);
    return OCCL_ERR_ARG;
}

const char *occl_env_unknown(void)
{
    for (char **e = environ; e && *e; e++) {
        size_t len = strcspn(*e, "=");

        if (!strncmp(*e, "OCCL_", 5) && strncmp(*e + 5, "TEST_", 5) && !env_find(*e, len))
            return *e;
    }
    return NULL;
}

/* The value as somebody would write it. */
static void env_value(const occl_env_t *env, const env_var_t *var, occl_strbuf_t *b)
{
    const void *member = (const char *)env + var->offset;

    switch (var->kind) {
    case ENV_BOOL:
    case ENV_INT:
        occl_strbuf_printf(b, "%d", *(const int *)member);
        break;
    case ENV_SIZE:
        occl_strbuf_size(b, *(const uint64_t *)member);
        break;
    case ENV_TIME:
        occl_strbuf_time(b, *(const uint64_t *)member);
        break;
    case ENV_STRING:
        occl_strbuf_add(b, (const char *)member);
        break;
    case ENV_ENUM: {
        const char *at = var->allowed;

        for (int i = *(const int *)member; i > 0 && *at; i--) {
            at += strcspn(at, "|");
            at += *at == '|';
        }
        occl_strbuf_addn(b, at, strcspn(at, "|"));
        break;
    }
    }
}

/* "integer (lanes), 1..64" */
static void env_form(const env_var_t *var, occl_strbuf_t *b)
{
    occl_strbuf_add(b, env_kind_names[var->kind]);
    if (var->unit[0])
        occl_strbuf_printf(b, " (%s)", var->unit);
    if (var->allowed[0])
        occl_strbuf_printf(b, ", %s", var->allowed);
}

/* Help text of one variable, broken at blanks into comment lines. */
static void env_print_wrapped(const char *text, occl_env_write_fn write, void *arg)
{
    while (*text) {
        size_t len = strlen(text), n = len;
        char line[128];

        if (n > 90)
            for (n = 90; n > 0 && text[n] != ' '; n--)
                ;
        if (n == 0)
            n = len < 90 ? len : 90;
        (void)snprintf(line, sizeof line, "#   %.*s\n", (int)n, text);
        write(arg, line);
        text += n;
        text += strspn(text, " ");
    }
}

/* roff takes a point or an apostrophe at the start of a line, and any backslash, as its own. */
static void env_print_roff(const char *text, occl_strbuf_t *b)
{
    if (*text == '.' || *text == '\'')
        occl_strbuf_add(b, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            occl_strbuf_add(b, "\\e");
        else if (*text == '-')
            occl_strbuf_add(b, "\\-");
        else
            occl_strbuf_addn(b, text, 1);
    }
}

int occl_env_print(const occl_env_t *env, occl_env_style_t style, occl_env_write_fn write,
                   void *arg)
{
    occl_strbuf_t b;

    occl_strbuf_init(&b);
    for (size_t i = 0; i < ENV_VARS; i++) {
        const env_var_t *var = &env_vars[i];

        occl_strbuf_clear(&b);
        if (style == OCCL_ENV_MAN) {
            occl_strbuf_printf(&b, ".TP\n.BR %s \" (", var->name);
            env_form(var, &b);
            if (var->def[0])
                occl_strbuf_printf(&b, "; default %s", var->def);
            occl_strbuf_add(&b, ")\"\n");
            env_print_roff(var->help, &b);
            occl_strbuf_add(&b, "\n");
            write(arg, b.text);
            continue;
        }
        occl_strbuf_printf(&b, "%s=", var->name);
        env_value(env, var, &b);
        occl_strbuf_add(&b, "\n# ");
        env_form(var, &b);
        occl_strbuf_printf(&b, "; default %s\n", var->def[0] ? var->def : "empty");
        write(arg, b.text);
        env_print_wrapped(var->help, write, arg);
    }
    occl_strbuf_fini(&b);
    return (int)ENV_VARS;
}

long occl_env_foreign(const char *name, long otherwise)
{
    const char *value = getenv(name);
    char *end;
    long n;
    if (!value || !*value)
        return otherwise;
    n = strtol(value, &end, 10);
    return *end ? otherwise : n;
}
