#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The main job: random start orders give the bits of the ordered run, and real data are learnt. MPI's own collectives in
# the same orders must be seen to fail: otherwise the orders would be no test.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

[ -z "$SANITIZED" ] || skip_all "the MPI libraries are not clean under sanitizers"
train=$top_builddir/examples/train_digits

launch 4 "$train"
shown $? "four ranks as a grid of 2 x 2"
says '^The weights are bit for bit those of the ordered run' "the weights are bit for bit those of the ordered run"
awk '/test accuracy/ { n++; if ($3 + 0 < 95) exit 1 } END { exit n != 2 }' "$tap_tmp/out"
shown $? "at least 95 % of the test images are read right"

launch 3 "$train" --steps 60 --seed 5
shown $? "three ranks, data-parallel only"

launch 4 "$train" --steps 60 --backend mpi
[ $? != 0 ]
shown $? "MPI's own collectives in these orders fail"
says 'MPI matches collectives by the order in which each rank starts them' "and a sentence says why"

launch 1 "$train" --backend nccl
says 'Usage:' "an unknown backend is refused"
done_testing
