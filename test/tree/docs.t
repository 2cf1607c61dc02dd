#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# doc/architecture.md and the README name files and functions: they are there.
. "$top_srcdir/test/tap/tap.sh"

cd "$top_srcdir" || bail "no source folder"
t=$tap_tmp
arch=doc/architecture.md

# `file:name`; a file without a folder is in src/core, or wherever the one of this name is
grep -o '`[a-zA-Z0-9_./-]*\.[ch]:[A-Za-z0-9_]*`' $arch | tr -d '`' | sort -u >"$t/names"
[ -s "$t/names" ]
ok $? "the architecture names functions"
while IFS=: read -r file name; do
    found=
    for f in "src/core/$file" "$file" "src/$file" $(find src kernels mpi-ext -path "*/$file"); do
        [ -f "$f" ] && grep -q -w "$name" "$f" && found=1
    done
    [ -n "$found" ] || echo "$file:$name"
done <"$t/names" >"$t/bad"
empty "each is in its file" "$t/bad"

# `path/with/slashes`
{ grep -o '`[a-zA-Z0-9_.-]*/[a-zA-Z0-9_./-]*`' $arch; sed -n 's/^    \([a-z_]*\/[a-z_/]*\.[ch]\) .*/`\1`/p' README; } |
    tr -d '`' | sort -u | grep -v -e '^/' -e '^\.ci/' >"$t/paths" # .ci/ is not in the tarball
while read -r p; do
    q=${p%.t}
    for f in "$p" "src/$p" "${q%-n[0-9]}.c" "$q.c" "test/mpi/$p"; do [ -e "$f" ] && continue 2; done
    # A variant of a program (attach_long) is in a list of tests
    grep -q -s -F "$p" test/*/local.mk test/local.mk || echo "$p"
done <"$t/paths" >"$t/bad"
empty "and each file it names is there" "$t/bad"

# Every environment variable and statistic that the documents name exists
grep -o -h 'OCCL_[A-Z0-9_]*' README doc/*.md CONTRIBUTING | sort -u | grep -v -E '_$|^OCCL_(TEST|CHECK|DISTCHECK|CQ|EMU$|SP_)' >"$t/used"
while read -r v; do grep -q -r -w "$v" src/util/env.def kernels src mpi-ext include test/tap test/local.mk quickstart .ci 2>/dev/null || echo "$v"; done <"$t/used" >"$t/bad"
empty "variables and macros that they name exist" "$t/bad"
done_testing
