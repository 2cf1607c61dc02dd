#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# doc/mpi-coverage.md is what the table of functions and the tree make of it, and nothing of MPI is missing in it.
. "$top_srcdir/test/tap/tap.sh"

t=$tap_tmp
perl -e 1 2>/dev/null || skip_all "no perl"
gen=$top_srcdir/mpi-ext/gen-bindings
runs "the table is made" perl "$gen" -o "$t/coverage.md" coverage "$top_srcdir/mpi-ext/api.tbl" "$top_srcdir" || done_testing
diff "$top_srcdir/doc/mpi-coverage.md" "$t/coverage.md" >"$t/bad"
empty "doc/mpi-coverage.md is up to date" "$t/bad" ||
    diag "perl mpi-ext/gen-bindings -o doc/mpi-coverage.md coverage mpi-ext/api.tbl ."
perl "$gen" links "$top_srcdir/mpi-ext/api.tbl" | diff "$top_srcdir/man/links.mk" - >"$t/bad"
empty "man/links.mk is up to date" "$t/bad" || diag "perl mpi-ext/gen-bindings -o man/links.mk links mpi-ext/api.tbl"
grep '^Empty:' "$t/coverage.md" | tr ';' '\n' >"$t/bad"
empty "no cell is empty" "$t/bad"

# The test of the test: a function that is nowhere is seen
cp "$top_srcdir/mpi-ext/api.tbl" "$t/api.tbl"
cat >>"$t/api.tbl" <<'EOT'

[function nothing_of_the_kind]
page MPIX_Occl_nothing
since 0.1
brief is not there
comm COMM in communicator
EOT
perl "$gen" coverage "$t/api.tbl" "$top_srcdir" >"$t/more.md"
grep '^Empty:' "$t/more.md" | tr ';' '\n' | grep -c 'nothing_of_the_kind: ' >"$t/count"
[ "$(cat "$t/count")" = 9 ]
ok $? "a function that is only in the table has nine empty cells" || grep nothing_of "$t/more.md" | sed 's/^/# /'
done_testing
