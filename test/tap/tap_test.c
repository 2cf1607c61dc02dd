/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TAP helper tests itself: it runs itself as a child that makes known
 * mistakes and compares what the child printed, word for word.
 */
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int child(const char *what)
{
    if (strcmp(what, "fail") == 0) {
        ok(1, "one");
        ok(0, "two");
        is_int(3, 4, "three");
        is_str("a", "b", "four");
        is_mem("abc", "adc", 3, "five");
        is_near(1.0, 1.1, 4, "six");
    } else if (strcmp(what, "plain") == 0) {
        ok(1, "a # in the text");
        diag("two\nlines");
        skip(1, "no %s", "GPU");
        todo("not done");
        ok(0, "later");
        todo(NULL);
    } else if (strcmp(what, "none") == 0) {
        skip_all("no reason but %d", 1);
    } else if (strcmp(what, "bail") == 0) {
        ok(1, "one");
        bail("out of %s", "luck");
    } else if (strcmp(what, "die") == 0) {
        ok(1, "one");
        abort();
    }
    return tap_done();
}

/* Run this program as `what`; its stdout (without "#   at" lines) and its status */
static char *output(const char *self, const char *what, int *status)
{
    static char text[4096];
    char command[1024], line[512];
    size_t used = 0;
    FILE *f;

    /* sh itself reports the signal of a child that aborts: not to our stderr */
    snprintf(command, sizeof command, "exec 2>/dev/null; ASAN_OPTIONS=handle_abort=0 '%s' %s", self, what);
    f = popen(command, "r");
    if (!f)
        bail("popen failed");
    text[0] = 0;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "#   at ", 7) == 0)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s", line);
        if (used >= sizeof text)
            bail("too much output");
    }
    *status = pclose(f);
    return text;
}

int main(int argc, char **argv)
{
    int status;

    if (argc > 1)
        return child(argv[1]);

    is_str(output(argv[0], "fail", &status),
           "ok 1 - one\n"
           "not ok 2 - two\n"
           "not ok 3 - three\n#   got 3, expected 4\n"
           "not ok 4 - four\n#   got \"a\", expected \"b\"\n"
           "not ok 5 - five\n#   1 of 3 bytes differ, first at 1: got 0x62, expected 0x64\n"
           "not ok 6 - six\n#   got 1, expected 1.1000000000000001 within 4 ulps\n"
           "1..6\n",
           "each kind of failed check is 'not ok' and says what it saw");
    is_int(status, 0, "and a failed check is not an exit status as well");

    is_str(output(argv[0], "plain", &status),
           "ok 1 - a   in the text\n# two\n# lines\nok 2 # SKIP no GPU\n"
           "not ok 3 - later # TODO not done\n1..3\n",
           "skip, todo and diag keep TAP's grammar");
    is_str(output(argv[0], "none", &status), "1..0 # SKIP no reason but 1\n",
           "skip_all says why");
    is_str(output(argv[0], "bail", &status), "ok 1 - one\nBail out! out of luck\n",
           "bail stops at once");
    is_str(output(argv[0], "die", &status), "ok 1 - one\n",
           "a test that dies has printed its checks but no plan");
    ok(status != 0, "and its status tells");
    is_str(output(argv[0], "empty", &status), "1..0 # SKIP nothing was checked\n",
           "a program without checks does not pass");

    is_near(0.1 + 0.2, 0.3, 1, "is_near takes a rounding error for equal");
    is_near((double)(0.1f + 0.2f), 0.3, TAP_ULPS_FLOAT(2), "and one of a float");
    is_near(NAN, NAN, 0, "and NaN for NaN");
    ok(tap_slack() > 0, "deadlines have a slack");
    return tap_done();
}
