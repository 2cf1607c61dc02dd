#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# occl_stress: random orders on overlapping communicators complete with right data; a wrong byte is not missed.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

[ -z "$SANITIZED" ] || skip_all "the MPI libraries are not clean under sanitizers"
stress=$top_builddir/src/tools/occl_stress

launch 4 "$stress" --iters 60 --colls 12 --device-sync
shown $? "all-reduces on four overlapping layouts, with gaps between starts"
says '^PASS .* runs [1-9][0-9]*, preemptions [0-9]+, parks [0-9]+, quits [0-9]+, seed 1' "one line tells the verdict and the counters"

launch 4 "$stress" --iters 60 --mixed --colls 32 --comms 8 --seed 42
shown $? "every kind, size, type and operation, some on one tag"
launch 3 "$stress" --iters 60 --mixed --colls 24 --comms 6 --seed 7 --thread-level multiple
shown $? "the same on three ranks at MPI_THREAD_MULTIPLE"

launch 4 "$stress" --iters 8 --mixed --corrupt
[ $? != 0 ]
shown $? "one flipped bit: the status is not 0"
says '^FAIL .*, 1 wrong elements' "and the line says FAIL, one wrong element"
done_testing
