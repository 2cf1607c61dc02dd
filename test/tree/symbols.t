#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What the library shows to a linker, and what it asks of others.
. "$top_srcdir/test/tap/tap.sh"

[ -n "$NM" ] || skip_all "no nm"
so=$top_builddir/.libs/libmpix_occl$OCCL_SUFFIX.so
a=$top_builddir/.libs/libmpix_occl$OCCL_SUFFIX.a
core=$top_builddir/.libs/libocclcore.a
t=$tap_tmp

if [ -f "$so" ]; then
    $NM -D --defined-only "$so" >"$t/so"
    awk '$2 != "A" && $3 !~ /^P?MPIX_Occl_[a-z0-9_]+@@MPIX_OCCL_[0-9]+$/' "$t/so" |
        grep -v -E ' (_init|_fini|__asan_.*|__odr_asan.*|__start_.*|__stop_.*)$' >"$t/bad"
    empty "the shared library exports only MPIX_Occl_ and PMPIX_Occl_ names, all with a version" "$t/bad"
    awk '$3 ~ /^PMPIX_/ && $2 != "T"' "$t/so" >"$t/bad"
    empty "each PMPIX_Occl_ name is strong" "$t/bad"
    sed -n 's/@@.*//; s/.* P\(MPIX_Occl_.*\)/\1/p' "$t/so" | sort >"$t/pnames"
    sed -n 's/@@.*//; s/.* \(MPIX_Occl_.*\)/\1/p' "$t/so" | sort >"$t/names"
    # MPIX_Occl_abi_* is a marker for the linker, not a function to intercept
    grep -v '^MPIX_Occl_abi_' "$t/names" | comm -3 - "$t/pnames" >"$t/bad"
    empty "each function has both names, for tools that intercept" "$t/bad"
    grep ' MPIX_Occl_' "$t/so" | grep -v MPIX_Occl_abi_ | awk '$2 == "T" || $2 == "D" || $2 == "B"' >"$t/bad"
    empty "each MPIX_Occl_ name is weak" "$t/bad"
    for h in "$top_builddir/include/mpix_occl.h" "$top_srcdir/include/mpix_occl.h"; do
        [ -f "$h" ] && break
    done
    if [ -f "$h" ]; then
        # functions declared: a name followed by "(", outside comments and macros
        $CC -E -P -I"$top_builddir/include" -I"$top_srcdir/include" "$h" 2>"$t/err" |
            grep -o 'P\{0,1\}MPIX_Occl_[a-z0-9_]* *(' | tr -d ' (' | sort -u >"$t/declared"
        { cat "$t/names"; sed "s/^/P/" "$t/pnames"; } | sort -u >"$t/defined"
        comm -23 "$t/declared" "$t/defined" >"$t/bad"
        empty "every function that mpix_occl.h declares is in the library" "$t/bad"
        comm -13 "$t/declared" "$t/defined" | grep -v MPIX_Occl_abi_ >"$t/bad"
        empty "every function of the library is declared in mpix_occl.h" "$t/bad"
    else
        skip "no mpix_occl.h yet"
    fi
    if [ -z "$SANITIZED" ] && command -v ldd >/dev/null; then
        ldd "$so" | grep -E 'libcuda\.|libcudart' >"$t/bad"
        empty "the library needs no CUDA library to load" "$t/bad"
    fi
else
    skip "no shared library in this build"
fi

fso=$top_builddir/.libs/libmpix_occl_fortran$OCCL_SUFFIX.so
if [ -f "$fso" ]; then
    # The commons of mpif.h come with it, by any MPI's names
    $NM -D --defined-only "$fso" | awk '{print tolower($3)}' | grep -v -E '^(occl_f(d|08)?_|p?mpix_occl_|__mpix_occl|mpi_|mpif?priv|mpifcmb|_init|_fini|__asan|__odr_asan)' >"$t/bad"
    empty "the Fortran library keeps to names of ours" "$t/bad"
    $NM -D -u "$fso" | awk '{print $2}' | grep -E '^PMPIX_' >"$t/bad"
    empty "and calls the functions that a tool may take over" "$t/bad"
    perl -e 1 2>/dev/null && perl "$top_srcdir/mpi-ext/gen-bindings" names "$top_srcdir/mpi-ext/api.tbl" | grep -v -E '_(c2f|f2c)$' | sort >"$t/names"
    $NM -D --defined-only "$fso" | sed -n 's/.* occl_f_/MPIX_Occl_/p' | sort | comm -23 "$t/names" - >"$t/bad"
    empty "every function is there" "$t/bad"
fi

if [ -f "$a" ]; then
    $NM -g --defined-only "$a" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u |
        grep -v -E '^(P?MPIX_Occl_|occl_|_Z|__cuda|__nv|fatbin|DW\.ref\.|__asan|__odr_asan|__tsan|__start|__stop|_ZTV|__device_stub)' >"$t/bad"
    empty "the static library keeps to the names MPIX_Occl_, PMPIX_Occl_ and occl_" "$t/bad"
    # MPI_UNWEIGHTED is an object in MPICH, no call
    $NM -u "$a" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u | grep -E '^(MPI_|MPIX_[^O])' |
        grep -v -E '^(MPIX_Grequest|MPI_UNWEIGHTED$)' >"$t/bad"
    empty "inside, MPI is called by its PMPI_ names only" "$t/bad"
fi

if [ -f "$core" ]; then
    # daemon.o is what nvcc made of daemon.cu: its host stubs are CUDA's own
    $NM -u "$core" 2>/dev/null | awk '/:$/ {skip = /daemon\.o:$/} $1 == "U" && !skip {print $2}' |
        sort -u >"$t/needs"
    grep -E '^(P?MPI_|P?MPIX_|MPIR_|ompi_|opal_|mpi_)' "$t/needs" >"$t/bad"
    empty "the core knows nothing of MPI" "$t/bad"
    grep -E '^(_?exit|_Exit|quick_exit|abort|printf|puts|putchar|vprintf|__printf_chk|__vprintf_chk|stdout|perror|system|popen|exec.*)$' \
        "$t/needs" >"$t/bad"
    empty "the core never exits, aborts, prints to stdout or starts a program" "$t/bad"
    grep -E '^(gets|strcpy|strcat|sprintf|vsprintf|tmpnam|mktemp)$' "$t/needs" >"$t/bad"
    empty "the core writes no string without a bound" "$t/bad"
fi
[ $tap_count -gt 0 ] || skip_all "no library"
done_testing
