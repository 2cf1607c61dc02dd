#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The main job with its sums in device memory: random start orders give the bits of the ordered run, and those of the host device.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

train=$top_builddir/examples/train_digits
launch 1 "$train" --device cuda --steps 1
[ $? != 77 ] || skip_all "$(sed -n 's/^train_digits: //p' "$tap_tmp/out" | sed 1q)"

launch 4 "$train" --device cuda
shown $? "four ranks as a grid of 2 x 2"
says '^The weights are bit for bit those of the ordered run' "the weights are bit for bit those of the ordered run"
awk '/test accuracy/ { n++; if ($3 + 0 < 95) exit 1 } END { exit n != 2 }' "$tap_tmp/out"
shown $? "at least 95 % of the test images are read right"

launch 2 "$train" --device cuda --steps 60
sum=$(sed -n 's/.*(checksum \([0-9a-f]*\)).*/\1/p' "$tap_tmp/out")
launch 2 "$train" --device host --steps 60
[ -n "$sum" ] && [ "$sum" = "$(sed -n 's/.*(checksum \([0-9a-f]*\)).*/\1/p' "$tap_tmp/out")" ]
shown $? "two ranks: the same bits on the GPU as on the host, where a sum has two parts" || diag "GPU: $sum"
done_testing
