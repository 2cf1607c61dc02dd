#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The manual: pages format without a word, every function has one, and the
# programs in them compile.
. "$top_srcdir/test/tap/tap.sh"

t=$tap_tmp
{
    find "$top_srcdir/man" -name '*.[137]'
    [ "$top_builddir" = "$top_srcdir" ] || find "$top_builddir/man" -name '*.[137]' 2>/dev/null
} | sort >"$t/pages"
[ -s "$t/pages" ] || skip_all "no man page yet"

[ -n "$GROFF" ] || skip "groff is not here"
[ -n "$MANDOC" ] || skip "mandoc is not here"
while read -r p; do
    b=${p##*/}
    # An alias is one line, `.so man3/other.3`
    if target=$(sed -n '1s/^\.so *//p' "$p") && [ -n "$target" ]; then
        [ -f "$top_srcdir/man/$target" ] || [ -f "$top_builddir/man/$target" ]
        ok $? "$b points to a page that exists ($target)"
        continue
    fi
    if [ -n "$GROFF" ]; then
        $GROFF -man -ww -z -K utf8 "$p" >"$t/bad" 2>&1 || $GROFF -man -ww -z "$p" >"$t/bad" 2>&1
        empty "$b: groff has nothing to say" "$t/bad"
    fi
    if [ -n "$MANDOC" ]; then
        # Not faults here: dates as we write them, references to MPI's pages that are elsewhere
        $MANDOC -T lint -W warning "$p" 2>&1 | grep -v -E 'referenced manual not found|cannot parse date' >"$t/bad"
        empty "$b: mandoc has nothing to say" "$t/bad"
    fi
    case $b in
    *.3)
        for s in NAME SYNOPSIS DESCRIPTION 'RETURN VALUE' 'SEE ALSO'; do
            grep -q -E "^\.SH \"?$s" "$p" || echo "no section $s"
        done >"$t/bad"
        empty "$b has the sections of a function's page" "$t/bad"
        ;;
    esac
    # Whole programs between .EX and .EE; \e is a backslash, \- a minus, \& nothing
    rm -f "$t"/prog*.c
    awk -v base="$t/prog" '
        /^\.EX/ { on = 1; n++; out = base n ".c"; next }
        /^\.EE/ { on = 0; next }
        on { if (/^\.\\"/) next; gsub(/\\e/, "\\"); gsub(/\\-/, "-"); gsub(/\\&/, ""); gsub(/\\(aq/, "\047"); gsub(/\\(dq/, "\""); gsub(/\\ /, " "); print > out }' "$p"
    for c in "$t"/prog*.c; do
        [ -f "$c" ] && grep -q 'int main *(' "$c" || continue
        # shellcheck disable=SC2086
        runs "$b: its program compiles" $CC -std=c11 -Wall -Wextra -Werror $OCCL_MPI_CFLAGS \
            -I"$top_builddir/include" -I"$top_srcdir/include" -c "$c" -o "$t/prog.o"
    done
done <"$t/pages"

for h in "$top_builddir/include/mpix_occl.h" "$top_srcdir/include/mpix_occl.h"; do
    [ -f "$h" ] && break
done
if [ -f "$h" ]; then
    $CC -E -P -I"$top_builddir/include" -I"$top_srcdir/include" "$h" 2>/dev/null |
        grep -o '\bMPIX_Occl_[a-z0-9_]* *(' | tr -d ' (' | sort -u | grep -v _abi_ >"$t/functions"
    while read -r f; do grep -q "/$f\.3$" "$t/pages" || echo "$f"; done <"$t/functions" >"$t/bad"
    empty "every function has a page or an alias" "$t/bad"
fi
done_testing
