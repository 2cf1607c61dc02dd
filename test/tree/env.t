#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Environment variables are declared once, in src/util/env.def.
. "$top_srcdir/test/tap/tap.sh"

cd "$top_srcdir" || bail "no source folder"
t=$tap_tmp

find src mpi-ext kernels \( -name '*.[ch]' -o -name '*.cu' \) | sort >"$t/files"
xargs grep -n -E '\b(secure_)?getenv *\(' <"$t/files" | grep -v '^src/util/env\.[ch]:' | grep -v '^src/tools/' |
    grep -v -E '^[^:]*:[0-9]*: *(/?\*|//)' >"$t/bad"
empty "getenv is called in src/util/env.c alone" "$t/bad"

if [ -f src/util/env.def ]; then
    # OCCL_ENV(member, NAME, KIND, ...)
    sed -n 's/^OCCL_ENV( *[a-z0-9_]*, *\(OCCL_[A-Z0-9_]*\),.*/\1/p' src/util/env.def | sort >"$t/declared"
    [ "$(grep -c '^OCCL_ENV(' src/util/env.def)" = "$(grep -c . "$t/declared")" ]
    ok $? "each line of env.def is OCCL_ENV(member, OCCL_NAME, ...)"
    uniq -d "$t/declared" >"$t/bad"
    empty "no variable is declared twice" "$t/bad"
    [ -s "$t/declared" ]
    ok $? "env.def declares variables" || diag 'none found'
    xargs grep -h -o -E '"OCCL_[A-Z0-9_]+"' <"$t/files" | tr -d '"' | grep -v -E '^OCCL_(ERR|TEST)_' | sort -u >"$t/used"
    comm -23 "$t/used" "$t/declared" >"$t/bad"
    empty "each OCCL_ name in a string of the library is declared in env.def" "$t/bad"
    page=$(find man "$top_builddir/man" -name 'mpix_occl_env.7' 2>/dev/null | sed 1q)
    if [ -n "$page" ]; then
        while read -r v; do grep -q "$(printf '%s' "$v" | sed 's/_/[_\\\\e]*/g')" "$page" || echo "$v"; done <"$t/declared" >"$t/bad"
        empty "mpix_occl_env(7) names every variable" "$t/bad"
    else
        skip "no mpix_occl_env.7 yet"
    fi
else
    skip "no env.def yet"
fi
done_testing
