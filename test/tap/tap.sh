# SPDX-License-Identifier: BSD-3-Clause
# TAP for tests that are shell scripts: `. "$top_srcdir/test/tap/tap.sh"`.
# Automake's environment gives top_srcdir, top_builddir, CC, ...; by hand, set those.

: "${top_srcdir:=.}" "${top_builddir:=.}"
tap_count=0
# A folder of this test's own, gone when it ends
tap_tmp=$(mktemp -d "${TMPDIR:-/tmp}/occl-test.XXXXXX") || exit 99
trap 'rm -rf "$tap_tmp"' 0
trap 'exit 1' 1 2 15

diag() { printf '%s\n' "$*" | sed 's/^/# /'; }
bail() { echo "Bail out! $*"; exit 99; }
skip_all() { echo "1..0 # SKIP $*"; exit 0; }
skip() { tap_count=$((tap_count + 1)); echo "ok $tap_count # SKIP $*"; }

# ok STATUS SENTENCE: 0 is true. tap_todo, when not empty, says why it may fail for now.
tap_todo=
ok() {
    tap_count=$((tap_count + 1))
    if [ "$1" = 0 ]; then
        echo "ok $tap_count - $2${tap_todo:+ # TODO $tap_todo}"
    else
        echo "not ok $tap_count - $2${tap_todo:+ # TODO $tap_todo}"
        return 1
    fi
}

# runs SENTENCE COMMAND...: passes if the command does; shows its output if not
runs() {
    tap_say=$1
    shift
    if "$@" >"$tap_tmp/out" 2>&1 </dev/null; then
        ok 0 "$tap_say"
    else
        ok 1 "$tap_say"
        diag "status of: $*"
        head -n 40 "$tap_tmp/out" | sed 's/^/# /'
        return 1
    fi
}

# fails SENTENCE COMMAND...: passes if the command does not
fails() {
    tap_say=$1
    shift
    if "$@" >"$tap_tmp/out" 2>&1 </dev/null; then
        ok 1 "$tap_say"
        sed 's/^/# /' "$tap_tmp/out"
        return 1
    fi
    ok 0 "$tap_say"
}

# empty SENTENCE FILE: passes if the file is empty, shows its lines if not
empty() {
    if [ -s "$2" ]; then
        ok 1 "$1"
        head -n 40 "$2" | sed 's/^/#   /'
        return 1
    fi
    ok 0 "$1"
}

done_testing() { echo "1..$tap_count"; exit 0; }
