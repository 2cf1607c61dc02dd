#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The tools on a GPU: right data from every kind of memory; random orders, with device synchronisation, complete.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

perf=$top_builddir/src/tools/occl_perf stress=$top_builddir/src/tools/occl_stress
timeout 60 "$perf" allreduce --device cuda --sizes 8 -n 2 >"$tap_tmp/out" 2>&1
[ $? != 77 ] || skip_all "$(sed -n 's/.*--device cuda: //p' "$tap_tmp/out")"

launch 4 "$perf" allreduce --device cuda --sizes 8,4K,1M,16M -n 40
shown $? "occl_perf: all-reduce on four ranks"
says '^# data correct' "its data are right"
for memory in pinned managed pageable async; do
    launch 2 "$perf" allgather --device cuda --memory $memory --sizes 64,1M -n 20
    shown $? "occl_perf: all-gather on $memory memory"
done
launch 2 "$perf" allreduce --device cuda --sizes 8 --cold -n 20
shown $? "occl_perf: cold starts"

launch 4 "$stress" --device cuda --iters 60 --colls 12
shown $? "occl_stress: all-reduces in random orders"
launch 4 "$stress" --device cuda --iters 40 --mixed --colls 24 --comms 6 --seed 11
shown $? "occl_stress: every kind, size, type and op, in memory of every kind"
launch 8 "$stress" --device cuda --device-sync --iters 40
shown $? "occl_stress: eight ranks, with device synchronisation"
launch 4 "$stress" --device cuda --iters 8 --mixed --corrupt
[ $? != 0 ]
shown $? "occl_stress: one flipped bit: the status is not 0"
says '^FAIL .*, 1 wrong elements' "and the line says FAIL, one wrong element"
done_testing
