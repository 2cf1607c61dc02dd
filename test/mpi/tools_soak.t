#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Long: many seeds of occl_stress on 2 to 6 ranks, small and large payloads, and 10,000 tags. A seed that fails is named.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

[ -z "$SANITIZED" ] || skip_all "the MPI libraries are not clean under sanitizers"
tools=$top_builddir/src/tools
seed=${SOAK_SEED:-1000}
LAUNCH_TIMEOUT=300

for ranks in 2 3 4 5 6; do
    for bytes in 4K 64K 2M; do
        for extra in '' --device-sync '--thread-level multiple'; do
            seed=$((seed + 1))
            # shellcheck disable=SC2086
            launch $ranks "$tools/occl_stress" --mixed --colls 32 --comms 8 --iters 40 --bytes $bytes --seed $seed $extra
            shown $? "$ranks ranks, up to $bytes, seed $seed $extra"
        done
    done
done
launch 2 "$tools/occl_perf" allreduce -b 8 --tags 10000
shown $? "10,000 tags, each started once in random order"
awk '/^ *10000 / { if ($7 <= 0 || $7 >= 65536) exit 1; n++ } END { exit n != 1 }' "$tap_tmp/out"
shown $? "none takes 64 KiB"
launch 4 "$tools/occl_perf" allgather -b 64 --tags 2000 -d double
shown $? "2,000 tags on four ranks"
done_testing
