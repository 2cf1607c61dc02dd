#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Programs end soon and with the exit code that they give, whatever of ours they forgot.
. "$top_srcdir/test/tap/tap.sh"

prog=$top_builddir/test/mpi/ending_prog
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_hwloc_base_binding_policy=none
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_hwloc_base_binding_policy PRTE_MCA_rmaps_default_mapping_policy

ends() { # HOW CODE
    timeout 60 $MPIEXEC -n 2 "$prog" "$1" "$2" >"$tap_tmp/out" 2>"$tap_tmp/err" </dev/null
    code=$?
    [ $code = "$2" ]
    ok $? "$1: ends, with the program's exit code"
    [ $code = "$2" ] || diag "exit code $code: $(head -c 800 "$tap_tmp/err")"
}

"$prog" noinit 9
[ $? = 9 ]
ok $? "noinit: a call before MPI_Init is an error code, and that is all"
ends clean 0
grep OCCL "$tap_tmp/err" >"$tap_tmp/bad"
empty "clean: not a word from us" "$tap_tmp/bad"
# 0: Open MPI's launcher may lose what is written before an exit code that is not
ends forget 0
[ "$(grep -c 'OCCL warn: MPI_Finalize was called while 2 operations are pending' "$tap_tmp/err")" = 1 ]
ok $? "forget: one warning says that operations were pending"
grep -q 'OCCL warn.*77' "$tap_tmp/err"
ok $? "forget: and names them"
grep -q 'continuation got an error' "$tap_tmp/out"
ok $? "forget: the continuation gets an error"
ends queued 0
[ "$(grep -c 'OCCL warn: MPI_Finalize was called while 3 operations are pending' "$tap_tmp/err")" = 1 ]
ok $? "queued: what is in a queue is pending, begun or not"
ends after 0 # not another code: the launcher ends the other rank when one exits with it, maybe before its destructor
[ "$(grep -c 'destructor fine' "$tap_tmp/out")" = 2 ] && ! grep -q 'succeeded\|returned' "$tap_tmp/out"
ok $? "after: calls after MPI_Finalize fail softly, also in a destructor"
ends late 3
done_testing
