#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# occl_perf: it measures what it says, checks data, and its CSV keeps its header (scripts read it).
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

[ -z "$SANITIZED" ] || skip_all "the MPI libraries are not clean under sanitizers"
perf=$top_builddir/src/tools/occl_perf

launch 2 "$perf" allreduce -b 4 -e 1M -f 16 -n 20 -w 2 --compare mpi --csv "$tap_tmp/csv"
shown $? "allreduce beside MPI's: correct data give status 0"
says 'data correct' "and it says so"
[ "$(head -n 1 "$tap_tmp/csv")" = 'coll,mode,device,ranks,bytes,type,op,us_p50,us_p99,algbw,busbw,wrong,rival,rival_us_p50,ratio,second_us_p50,memory,pause_us,launches' ]
shown $? "the CSV has the header that scripts know"
[ "$(awk -F, 'NR > 1 && NF == 19 && $1 == "allreduce" && $2 == "persistent" && $4 == 2 && $8 > 0 && $9 >= $8 && $12 == 0 && $13 == "MPI_Iallreduce" && $14 > 0 && $15 > 0 && $16 > 0 && $17 == "host"' "$tap_tmp/csv" | wc -l)" -eq 5 ]
shown $? "and a whole line for each of 5 sizes" || sed 's/^/# /' "$tap_tmp/csv"

launch 3 "$perf" reduce_scatter_block -b 64 -e 4K -f 64 -n 20 -w 2 -d int8 -o prod --mode nonblocking --mpi-wait --in-place
shown $? "nonblocking with MPI_Wait, in place, on three ranks"
launch 2 "$perf" sendrecv -b 8 -e 64K -f 8192 -n 20 -w 2 --csv "$tap_tmp/csv"
shown $? "sendrecv"
awk -F, 'NR > 1 && ($2 != "nonblocking" || $13 != "" || $14 != "" || $16 != "" || NF != 19) {exit 1}' "$tap_tmp/csv"
shown $? "without a rival its fields are empty"

launch 2 "$perf" allreduce -b 1K --tags 300
shown $? "300 tags, one start each in random order"
awk '/^ *300 / { if ($7 <= 0 || $7 >= 65536) exit 1; n++ } END { exit n != 1 }' "$tap_tmp/out"
shown $? "and none takes 64 KiB"

launch 2 "$perf" allreduce -b 64K -e 64K --overlap 1 -n 5
shown $? "time left to wait after computing"
launch 2 "$perf" allreduce -b 8 -e 8 -n 100 --rival-only --csv "$tap_tmp/csv"
shown $? "MPI alone"
awk -F, 'NR == 2 && $2 == "rival-only" && $8 == "" && $14 > 0 {n++} END {exit n != 1}' "$tap_tmp/csv"
shown $? "fills the rival's fields only"
done_testing
