/* SPDX-License-Identifier: BSD-3-Clause */
/* The environment table: defaults, good and bad values, what is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "util/env.h"
#include "util/strbuf.h"

extern char **environ;

/* Whoever runs the tests may have set some, and the build has variables of its own. */
static void clear_environment(void)
{
    for (char **e = environ; e && *e;) {
        char name[64];

        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        if (!strncmp(name, "OCCL_", 5) && unsetenv(name) == 0)
            e = environ;
        else
            e++;
    }
}

/* Loads with one variable set. */
static occl_status_t load_with(const char *name, const char *value, occl_env_t *env, char *err,
                               size_t errlen)
{
    occl_status_t status;

    setenv(name, value, 1);
    status = occl_env_load(env, err, errlen);
    unsetenv(name);
    return status;
}

static void test_sizes(void)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"4K", 4096},
                {"4k", 4096},
                {"4KiB", 4096},
                {"4kB", 4096},
                {"7B", 7},
                {"3M", 3u << 20},
                {"8G", (uint64_t)8 << 30},
                {"2T", (uint64_t)2 << 40},
                {"18446744073709551614", UINT64_MAX - 1},
                {"inf", OCCL_INF},
                {"INF", OCCL_INF}};
    static const char *const bad[] = {"",    "-1",   "+1",  " 1",   "1 K", "K",
                                      "1.5M", "1X",  "1KK", "1Ki", "0x10", "infinite",
                                      "18446744073709551615", "18446744073709551616",
                                      "99999999999999999999999", "16777216T"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t v = 12345;

        ok(occl_parse_size(good[i].text, &v) == 0 && v == good[i].value, "size \"%s\" is read",
           good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t v = 12345;

        ok(occl_parse_size(bad[i], &v) != 0 && v == 12345,
           "size \"%s\" is refused and nothing is written", bad[i]);
    }
}

static void test_times(void)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"0", 0},          {"5ns", 5},           {"20us", 20000},   {"3ms", 3000000},
                {"2s", 2000000000}, {"inf", OCCL_INF}, {"0s", 0}};
    static const char *const bad[] = {"", "20", "1m", "1h", "-1us", "1.5ms", "us", "1 us", "1US",
                                      "18446744074s"};

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t v = 12345;

        ok(occl_parse_time(good[i].text, &v) == 0 && v == good[i].value, "time \"%s\" is read",
           good[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t v = 12345;

        ok(occl_parse_time(bad[i], &v) != 0 && v == 12345,
           "time \"%s\" is refused and nothing is written", bad[i]);
    }
}

static void test_formats(void)
{
    char buf[32];
    uint64_t v;

    is_str(occl_format_size(1536, buf, sizeof buf), "1536", "a size that is no whole K");
    is_str(occl_format_size((uint64_t)3 << 20, buf, sizeof buf), "3M", "a whole M is in M");
    is_str(occl_format_size(0, buf, sizeof buf), "0", "no bytes");
    is_str(occl_format_size(OCCL_INF, buf, sizeof buf), "inf", "no limit");
    is_str(occl_format_time(1500, buf, sizeof buf), "1500ns", "a time that is no whole us");
    is_str(occl_format_time(20000, buf, sizeof buf), "20us", "a whole us is in us");
    ok(occl_parse_size(occl_format_size(((uint64_t)5 << 30) + 1, buf, sizeof buf), &v) == 0 &&
           v == ((uint64_t)5 << 30) + 1,
       "what is written can be read");
}

/* Every default must be a valid value; occl_env_defaults has nobody to tell. */
static void test_defaults(void)
{
    occl_env_t env;
    char err[256];

#define OCCL_ENV(member, name, kind, def, unit, allowed, help)                                     \
    ok(occl_env_set(&env, #name, def, err, sizeof err) == OCCL_OK, "the default of %s is valid",   \
       #name);
    occl_env_defaults(&env);
#include "util/env.def"
#undef OCCL_ENV
    occl_env_defaults(&env);
    is_int((long long)env.eager_max, 4096, "OCCL_EAGER_MAX is 4K");
    is_int((long long)env.spin, 20000, "OCCL_SPIN is 20us");
    is_int(env.helper, 1, "OCCL_HELPER is on");
    is_int(env.emu_lanes, 4, "OCCL_EMU_LANES is 4");
    is_str(env.log, "warn", "OCCL_LOG is warn");
}

static void test_load(void)
{
    occl_env_t env;
    char err[256], longer[OCCL_ENV_STRING + 1];

    is_int(occl_env_load(&env, err, sizeof err), OCCL_OK, "an empty environment loads");
    is_str(err, "", "and says nothing");
    is_int(load_with("OCCL_CHUNK", "1M", &env, err, sizeof err), OCCL_OK, "a good value loads");
    is_int((long long)env.chunk, 1 << 20, "and counts");
    is_int(load_with("OCCL_CHUNK", "", &env, err, sizeof err), OCCL_OK, "an empty value loads");
    is_int((long long)env.chunk, 128 << 10, "and counts as unset");
    is_int(load_with("OCCL_HELPER", "off", &env, err, sizeof err), OCCL_OK, "off loads");
    is_int(env.helper, 0, "and switches off");

    is_int(load_with("OCCL_CHUNK", "12Q", &env, err, sizeof err), OCCL_ERR_ARG,
           "a bad value is refused");
    ok(strstr(err, "OCCL_CHUNK") && strstr(err, "12Q") && strstr(err, "4K..64M"),
       "the text names variable, value and what is allowed: %s", err);
    is_int((long long)env.chunk, 128 << 10, "the default stands");
    is_int(load_with("OCCL_CHUNK", "1K", &env, err, sizeof err), OCCL_ERR_ARG,
           "a value below the range is refused");
    is_int(load_with("OCCL_EMU_LANES", "65", &env, err, sizeof err), OCCL_ERR_ARG,
           "an integer above the range is refused");
    is_int(load_with("OCCL_EMU_LANES", "-4", &env, err, sizeof err), OCCL_ERR_ARG,
           "a negative one too");
    is_int(load_with("OCCL_EMU_LANES", "4x", &env, err, sizeof err), OCCL_ERR_ARG,
           "and one with something behind it");
    is_int(load_with("OCCL_CMA", "maybe", &env, err, sizeof err), OCCL_ERR_ARG,
           "a boolean is 0 or 1");
    ok(strstr(err, "OCCL_CMA=maybe") != NULL, "the text names it: %s", err);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    is_int(load_with("OCCL_HOSTID", longer, &env, err, sizeof err), OCCL_ERR_ARG,
           "a string that is too long is refused, not cut");
    is_str(env.hostid, "", "and nothing of it is kept");
    is_int(load_with("OCCL_CHUNK", "12Q", &env, NULL, 0), OCCL_ERR_ARG, "nobody has to listen");

    setenv("OCCL_CHUNK", "bad", 1);
    is_int(load_with("OCCL_SPIN", "7us", &env, err, sizeof err), OCCL_ERR_ARG,
           "one bad value fails the load");
    is_int((long long)env.spin, 7000, "but the others are read");
    unsetenv("OCCL_CHUNK");

    is_int(occl_env_set(&env, "OCCL_NOTHING", "1", err, sizeof err), OCCL_ERR_ARG,
           "there is no such variable");
    ok(strstr(err, "OCCL_NOTHING") != NULL, "and the text says which: %s", err);
}

static void test_unknown(void)
{
    const char *seen;

    seen = occl_env_unknown();
    ok(!seen, "no unknown variable%s%s", seen ? ": " : "", seen ? seen : "");
    setenv("OCCL_CHUNKS", "1M", 1);
    seen = occl_env_unknown();
    ok(seen && !strncmp(seen, "OCCL_CHUNKS=", 12), "a mistyped name is found");
    unsetenv("OCCL_CHUNKS");
    setenv("OCCL_TEST_ANYTHING", "1", 1);
    ok(!occl_env_unknown(), "the tests' own are not");
    unsetenv("OCCL_TEST_ANYTHING");
}

static void append(void *arg, const char *text)
{
    occl_strbuf_add((occl_strbuf_t *)arg, text);
}

static void test_print(void)
{
    occl_env_t env;
    occl_strbuf_t b;
    int variables = 0, n;

#define OCCL_ENV(member, name, kind, def, unit, allowed, help) variables++;
#include "util/env.def"
#undef OCCL_ENV
    occl_strbuf_init(&b);
    occl_env_defaults(&env);
    env.chunk = 1 << 20;
    n = occl_env_print(&env, OCCL_ENV_PLAIN, append, &b);
    is_int(n, variables, "every variable is printed");
    ok(strstr(b.text, "OCCL_CHUNK=1M\n") != NULL, "with its value");
    ok(strstr(b.text, "default 128K") != NULL, "and its default");
    occl_strbuf_clear(&b);
    occl_env_print(&env, OCCL_ENV_MAN, append, &b);
#define OCCL_ENV(member, name, kind, def, unit, allowed, help)                                     \
    ok(strstr(b.text, #name) && sizeof help > 10, "the manual page names %s and says something",  \
       #name);
#include "util/env.def"
#undef OCCL_ENV
    occl_strbuf_fini(&b);
}

int main(void)
{
    clear_environment();
    test_sizes();
    test_times();
    test_formats();
    test_defaults();
    test_load();
    test_unknown();
    test_print();
    return tap_done();
}
