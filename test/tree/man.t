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
        for s in NAME SYNOPSIS DESCRIPTION 'RETURN VALUE' ERRORS NOTES EXAMPLE 'SEE ALSO'; do
            grep -q -E "^\.SH \"?$s" "$p" || echo "no section $s"
        done >"$t/bad"
        empty "$b has the sections of a function's page" "$t/bad"
        ;;
    esac
    rm -f "$t"/prog*.c "$t"/prog*.f90
    sh "$top_srcdir/test/tree/programs" "$p" "$t/prog"
    for c in "$t"/prog*.c; do
        [ -f "$c" ] || continue
        # shellcheck disable=SC2086
        runs "$b: its program compiles" $CC -std=c11 -Wall -Wextra -Werror $OCCL_MPI_CFLAGS \
            -I"$top_builddir/include" -I"$top_srcdir/include" -c "$c" -o "$t/prog.o"
    done
    # Fortran: examples.t compiles and runs it where there is a compiler
    case $b in
    *.3)
        if grep -q 'no such call in Fortran' "$p"; then
            ok 0 "$b says why there is nothing in Fortran"
        else
            for s in 'int MPIX_Occl_' 'SS Fortran 2008' 'SS Fortran 90 and 77'; do grep -q "$s" "$p" || echo "$s"; done >"$t/bad"
            empty "$b has its synopsis in three languages" "$t/bad"
        fi
        ;;
    esac
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

# What the source lists, the pages explain
page=$top_srcdir/man/man3/MPIX_Occl_get_stat.3.in
if [ -f "$page" ]; then
    sed -n 's/^    X(\([a-z_]*\), .*/\1/p' "$top_srcdir/src/core/stat.c" >"$t/stats"
    [ -s "$t/stats" ]
    ok $? "there are statistics" || diag "none found in src/core/stat.c"
    while read -r s; do grep -q -w "$s" "$page" || echo "$s"; done <"$t/stats" >"$t/bad"
    empty "every statistic is explained" "$t/bad"
fi
# Each algorithm and operation that a rule may name
page=$top_srcdir/man/man7/mpix_occl_tuning.7.in
sed -n '/char \*const table/,/^};/s/^ *"\([a-z_]*\):\([a-z_]*\).*/\1 \2/p' "$top_srcdir/src/plan/select.c" | tr ' ' '\n' | sort -u >"$t/names"
[ -s "$t/names" ]
ok $? "there are rules" || diag "none found in src/plan/select.c"
while read -r s; do grep -q -w -e "$s" "$page" || echo "$s"; done <"$t/names" >"$t/bad"
empty "mpix_occl_tuning(7) explains what the rules name" "$t/bad"
for tool in perf stress info; do
    page=$top_srcdir/man/man1/occl_$tool.1.in
    [ -f "$page" ] || continue
    sed -n 's/^ *{"\(--[a-z-]*\)", .*/\1/p' "$top_srcdir/src/tools/occl_$tool.c" | sort -u >"$t/options"
    [ -s "$t/options" ]
    ok $? "occl_$tool has options" || diag "none found in src/tools/occl_$tool.c"
    sed 's/\\-/-/g' "$page" >"$t/text"
    while read -r o; do grep -q -e "$o" "$t/text" || echo "$o"; done <"$t/options" >"$t/bad"
    empty "every option of occl_$tool is explained" "$t/bad"
done
done_testing
