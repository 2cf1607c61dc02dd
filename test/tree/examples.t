#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs in the manual and in the README run on two ranks and say that all is
# well (status 0). One launch for all of them in C, one for each in Fortran.
. "$top_srcdir/test/tap/tap.sh"

t=$tap_tmp
lib=libmpix_occl$OCCL_SUFFIX.la
[ -z "$SANITIZED" ] || skip_all "MPI is not free of leaks"
[ -f "$top_builddir/$lib" ] || bail "no $lib in $top_builddir"

n=0
for page in "$top_srcdir/README" "$top_srcdir"/man/man[37]/*.[37]; do
    rm -f "$t"/prog*.c
    sh "$top_srcdir/test/tree/programs" "$page" "$t/prog"
    for f in "$t"/prog*.f90; do
        [ -f "$f" ] && mv "$f" "$t/${page##*/}-${f##*/prog}"
    done
    for c in "$t"/prog*.c; do
        [ -f "$c" ] || continue
        n=$((n + 1))
        # mpi.h is renamed along with the calls, so the prototypes fit
        # shellcheck disable=SC2086
        runs "${page##*/}: its program compiles" $CC -std=c11 -Wall -Wextra -Werror $OCCL_MPI_CFLAGS \
            -I"$top_builddir/include" -I"$top_srcdir/include" -Dmain=occl_example_$n -DMPI_Init=occl_example_init \
            -DMPI_Init_thread=occl_example_init_thread -DMPI_Finalize=occl_example_finalize \
            -c "$c" -o "$t/example$n.o" || continue
        printf 'X(%d, "%s")\n' $n "${page##*/}" >>"$t/examples.def"
    done
done
[ $n -gt 0 ] || bail "no program was found"

OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_hwloc_base_binding_policy PRTE_MCA_rmaps_default_mapping_policy PRTE_MCA_hwloc_default_binding_policy

# shellcheck disable=SC2086
runs "all of them link" "$top_builddir/libtool" --silent --tag=CC --mode=link $CC -std=gnu11 $OCCL_MPI_CFLAGS -I"$t" \
    -no-install -o "$t/examples" "$top_srcdir/test/tree/examples_main.c" "$t"/example*.o "$top_builddir/$lib" ||
    { done_testing; }
# run-tap ends this script, with all that it has started, when it takes too long
# shellcheck disable=SC2086
timeout -k 5 100 $MPIEXEC -n 2 "$t/examples" >"$t/said" 2>"$t/err" </dev/null
ok $? "the launch ends well" || head -n 40 "$t/err" | sed 's/^/# /'
while read -r x; do
    page=$(printf '%s' "$x" | sed 's/.*"\(.*\)".*/\1/')
    grep -q "^example: $page: good" "$t/said" && ! grep -q "^example: $page: failed" "$t/said"
    ok $? "$page: its program runs and finds its results right"
done <"$t/examples.def"

for f in "$t"/*.f90; do
    [ -f "$f" ] || bail "no program in Fortran was found"
    b=${f##*/}
    if [ "$HAVE_FORTRAN" != yes ]; then
        skip "$b: no Fortran in this build"
        continue
    fi
    # shellcheck disable=SC2086
    runs "$b: compiles" $FC -I"$top_builddir/mpi-ext/fortran" -c "$f" -o "${f%.f90}.o" || continue
    # shellcheck disable=SC2086
    runs "$b: links" "$top_builddir/libtool" --silent --tag=FC --mode=link $FC -no-install -o "${f%.f90}" "${f%.f90}.o" \
        "$top_builddir/libmpix_occl_fortran$OCCL_SUFFIX.la" || continue
    # shellcheck disable=SC2086
    runs "$b: runs and finds its results right" timeout -k 5 50 $MPIEXEC -n 2 "${f%.f90}"
done
done_testing
