#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The figures of the CUDA device, as a Markdown table for doc/measurements.md.
#
#   test/bench/gpu.sh [-r ROUNDS] [-n RANKS] [-L FOLDERS] [-q] [-k FOLDER] BUILD
#
# BUILD is a configured and built tree with CUDA; what is missing of it is made (`make gpu-bench`). All ranks share what GPUs there
# are, first under MPS, which is started and ended here, then with the GPU's time in slices. Every figure is the median
# of ROUNDS (3) launches, its spread the range over them; a rival is measured in the same run, turn by turn with ours.
# NCCL (2.30.3 or later), NVSHMEM 3 and cuBLAS are looked for in FOLDERS (separated by colons), in python3's packages and
# where the system has them; what needs a missing one is "not measured". -q: one quick round (2 minutes; else 8). -k keeps
# the raw tables there. Let nothing else run on the machine. No setting of the GPU is changed.

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
rounds=3 ranks=4 folders='' quick='' keep='' phase=''
while getopts r:n:L:qk:P: o; do
    case $o in
    r) rounds=$OPTARG ;;
    n) ranks=$OPTARG ;;
    L) folders=$OPTARG ;;
    q) quick=1 rounds=1 ;;
    k) keep=$OPTARG ;;
    P) phase=$OPTARG ;; # of this script's own: see the end
    *) sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# = 1 ] || { echo "gpu.sh: name one build folder" >&2; exit 2; }
build=$(cd "$1" 2>/dev/null && pwd) && [ -f "$build/Makefile" ] || { echo "gpu.sh: $1 is not a built tree" >&2; exit 2; }
launcher=$(sed -n 's/^MPIEXEC = //p' "$build/Makefile")
mpi=$(sed -n 's/^OCCL_MPI = //p' "$build/Makefile")
limit=$build/test/bench/limit

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
    PRTE_MCA_hwloc_default_binding_policy=none NCCL_NVLS_ENABLE=0 NVSHMEM_DISABLE_NVLS=1
# Under MPS streams share 2 hardware queues where nothing is said, without it 8
export CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-8}"

say() { echo "gpu.sh: $(date +%H:%M:%S) $*" >&2; }

# in_build SECONDS RANKS PROGRAM ARGS: output into $raw/out, the command line into $raw/commands; returns the status
in_build() {
    seconds=$1 n=$2 program=$3
    shift 3
    flags=
    [ "$mpi" != openmpi ] || flags="--mca pml ob1 --mca btl vader,self"
    echo "$launcher -n $n $program $*" | sed 's/ --csv [^ ]*//' >>"$raw/commands"
    # shellcheck disable=SC2086
    timeout -k 5 "$seconds" $launcher -n "$n" $flags "$build/$program" "$@" >"$raw/out" 2>&1 </dev/null
    status=$?
    if [ $status != 0 ]; then
        [ $status = 77 ] || echo "$phase: -n $n $program $* (status $status)" | sed 's/ --csv [^ ]*//' >>"$raw/failed"
        say "status $status: -n $n $program $*"
        grep -v -E '^(--+|$)|Primary job|exit code|non-zero status|Exit code|Process name|user-direction|the job to be' "$raw/out" | tail -n 6 >&2
    fi
    return $status
}

# perf NAME RANKS ARGS: the lines of its table into $raw/perf, with NAME in front
perf() {
    name=$1 perf_ranks=$2
    shift 2
    rm -f "$raw/csv"
    in_build 90 "$perf_ranks" src/tools/occl_perf "$@" --device cuda --csv "$raw/csv"
    perf_status=$?
    [ ! -f "$raw/csv" ] || awk -v name="$name" 'NR > 1 { print name "," $0 }' "$raw/csv" >>"$raw/perf"
    return $perf_status
}

# compared NAME LIBRARY ARGS: beside that library; without it when that cannot be, ours all the same if NAME is warm
compared() {
    name=$1 library=$2
    shift 2
    [ -f "$raw/no_$library" ] || perf "$name" "$ranks" "$@" --compare "$library" && return
    if [ ! -f "$raw/no_$library" ]; then
        sed -n "s/.*--compare $library: //p" "$raw/out" | sed 1q >"$raw/no_$library"
        [ -s "$raw/no_$library" ] || echo "the run with it failed" >"$raw/no_$library"
    fi
    [ "$name" != warm ] || perf "$name" "$ranks" "$@"
}

case $phase in
mps)
    raw=$keep
    iters=0 pairs=200 tags=500 stress=400
    [ -z "$quick" ] || iters=60 pairs=40 tags=100 stress=60
    round=1
    while [ "$round" -le "$rounds" ]; do
        say "round $round of $rounds"
        compared warm nccl allreduce --sizes 8,4K,64K,1M,2M,16M,256M -n "$iters"
        channels=$(sed -n 's/.*, channels \([0-9]*\) (rank 0).*/\1/p' "$raw/out")
        perf cold "$ranks" allreduce --sizes 8 --cold -n 200
        perf enqueue "$ranks" allreduce --sizes 8 --mode enqueue -n 400
        # several of its processes on a GPU: NVSHMEM wants to know that each has its share of it
        CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$((100 / ranks))
        export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
        compared nvshmem nvshmem allreduce --sizes 8,4K -n "$iters"
        unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
        for c in allgather reduce_scatter_block alltoall bcast; do
            perf big "$ranks" $c --sizes 64M -n 40
        done
        # the bare kernel with as many channels as ours, as far as they fit on the GPU at a time
        sms=$(sed -n 's/^# GPU: .*, \([0-9]*\) SMs.*/\1/p' "$raw/out")
        : "${channels:=1}" "${sms:=132}"
        [ "$channels" -ge 1 ] || channels=1
        [ $((channels * ranks)) -le "$sms" ] || channels=$((sms / ranks))
        echo "$channels" >"$raw/channels"
        echo "limit twoshot $ranks $channels 512 1M 16M 256M; limit copy $((ranks * 64))M" >>"$raw/commands"
        { timeout 60 "$limit" twoshot "$ranks" "$channels" 512 1M 16M 256M && timeout 60 "$limit" copy $((ranks * 64))M; } \
            >>"$raw/limit" 2>"$raw/out" || { echo "$phase: limit: $(cat "$raw/out")" >>"$raw/failed"; say "limit: $(cat "$raw/out")"; }
        round=$((round + 1))
    done
    say "products beside the library"
    in_build 120 3 test/bench/beside "$pairs" && grep -E '^[a-zA-Z0-9_]+,[-0-9.]+,' "$raw/out" >>"$raw/beside"
    grep '^beside: ' "$raw/out" >"$raw/no_products"
    say "stress"
    in_build 120 8 src/tools/occl_stress --device cuda --comms 1 --iters "$stress" --time && sed 's/^/time,/' "$raw/out" >>"$raw/stress"
    in_build 120 8 src/tools/occl_stress --device cuda --comms 1 --iters $((stress / 2)) --device-sync && sed 's/^/sync,/' "$raw/out" >>"$raw/stress"
    in_build 120 8 src/tools/occl_stress --device cuda --iters $((stress / 4)) --device-sync && sed 's/^/layouts,/' "$raw/out" >>"$raw/stress"
    rm -f "$raw/csv"
    in_build 60 "$ranks" src/tools/occl_perf allreduce --device cuda -b 8 --tags "$tags" --csv "$raw/csv" && sed -n 2p "$raw/csv" >"$raw/tags"
    exit 0
    ;;
slices)
    raw=$keep
    iters=30 stress=30 syncs=10
    [ -z "$quick" ] || iters=10 stress=8 syncs=2
    for n in 2 4; do
        say "time slices, $n ranks"
        perf slices$n $n allreduce --sizes 8 -n $iters -w 3
        in_build 100 $n src/tools/occl_stress --device cuda --iters $stress --deadline 6 && sed "s/^/slices$n,/" "$raw/out" >>"$raw/stress"
    done
    in_build 100 3 test/bench/beside $syncs syncs
    grep '^sync_' "$raw/out" | sed 's/^/slices_/' >>"$raw/beside"
    exit 0
    ;;
esac

# --- the whole ---------------------------------------------------------------------------------------------------------

if [ "$phase" = table ]; then # the table again, of what -k has kept
    raw=$keep
else
raw=${keep:-$(mktemp -d "${TMPDIR:-/tmp}/occl-gpu-bench.XXXXXX")} && mkdir -p "$raw" || exit 1
[ -n "$keep" ] || trap 'rm -rf "$raw"' 0
trap 'exit 1' 1 2 15
rm -f "$raw"/no_*
for f in perf limit beside stress tags failed commands; do : >"$raw/$f"; done
if [ ! -x "$limit" ] || [ ! -x "$build/test/bench/beside" ]; then
    say "building"
    make -C "$build" gpu-bench >"$raw/make" 2>&1 || { tail -n 20 "$raw/make" >&2; exit 1; }
    [ -x "$limit" ] || { echo "gpu.sh: $build is a build without CUDA" >&2; exit 77; }
fi
"$limit" copy 1M >/dev/null 2>"$raw/out" || { cat "$raw/out" >&2; echo "gpu.sh: no GPU to measure" >&2; exit 77; }

# Where other libraries may lie. A folder given by hand goes first.
found=$(python3 - 2>/dev/null <<'END'
import importlib, os
for name in ("nccl", "nvshmem", "cu13", "cublas"):
    try:
        module = importlib.import_module("nvidia." + name)
    except Exception:
        continue
    for path in module.__path__:
        if os.path.isdir(path + "/lib"):
            print(path + "/lib")
END
)
for d in $found /usr/local/cuda/lib64; do folders=$folders${folders:+:}$d; done
LD_LIBRARY_PATH=$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

began=$(date +%s)
"$top/test/gpu/with-mps" sh "$0" -P mps -k "$raw" -r "$rounds" -n "$ranks" ${quick:+-q} "$build"
mps=$?
[ $mps = 77 ] && say "no MPS here: only what ranks with the GPU's time in slices can show"
sh "$0" -P slices -k "$raw" -r "$rounds" -n "$ranks" ${quick:+-q} "$build"

echo "$ranks ranks on $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c |
    sed 's/^ *\([0-9]*\) \(.*\), \(.*\)/\1 x \2, driver \3/' | tr '\n' ';'), $(date +%Y-%m-%d), medians of $rounds launches, $(($(date +%s) - began)) s in all."
echo "CUDA $("$(sed -n 's/^NVCC = //p' "$build/Makefile")" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p'); \
$("$build/src/tools/occl_info" --build | sed -n 's/^MPI  *//p' | sed 's/, package.*//'); \
$("$build/src/tools/occl_info" --build | sed -n 's/^Library  *//p'); Linux $(uname -r), $(getconf _NPROCESSORS_ONLN) processors, load $(cut -d' ' -f1 /proc/loadavg)."
[ $mps = 77 ] && echo "Without MPS."
echo
fi
awk -F, -v raw="$raw" -v ranks="$ranks" '
function median(v, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : n ? (v[n / 2] + v[n / 2 + 1]) / 2 : 0
}
function add(key, x) { if (x != "") list[key, ++count[key]] = x + 0 }
function has(key) { return count[key] > 0 }
function mid(key,    i, v) { for (i = 1; i <= count[key]; i++) v[i] = list[key, i]; return median(v, count[key] + 0) }
function spread(key,    i, lo, hi, m) {
    if (count[key] < 2) return "-"
    m = mid(key); lo = hi = list[key, 1]
    for (i = 2; i <= count[key]; i++) { if (list[key, i] < lo) lo = list[key, i]; if (list[key, i] > hi) hi = list[key, i] }
    return m > 0 ? sprintf("%.0f %%", 100 * (hi - lo) / m) : "-"
}
function size(b) { return b >= 1048576 ? b / 1048576 " MiB" : b >= 1024 ? b / 1024 " KiB" : b " B" }
# Rows. x: a number, smaller (low) or larger (high) is better; ratio: x by what is wanted at least
function row(what, shown, least, aim, ratio, reached, sp) {
    printf "| %s | %s | %s | %s | %s | %s | %s |\n", what, shown, least, aim, ratio, reached, sp
}
function low(what, x, unit, least, aim, sp) {
    row(what, sprintf("%.4g%s", x, unit), least unit, aim unit, least > 0 ? sprintf("%.2f", x / least) : "", x <= aim ? "aim" : x <= least ? "at least" : "**no**", sp)
}
function high(what, x, unit, least, aim, sp) {
    row(what, sprintf("%.4g%s", x, unit), least unit, aim unit, sprintf("%.2f", x / least), x >= aim ? "aim" : x >= least ? "at least" : "**no**", sp)
}
function none(what, least, aim, why) { row(what, "not measured", least, aim, "", why, "") }
function first_line(file,    line) { line = ""; if ((getline line < (raw "/" file)) <= 0) line = ""; close(raw "/" file); return line }
function why(library,    line) { line = first_line("no_" library); return line != "" ? line : "no run succeeded" }
FILENAME == raw "/perf" {
    # name,coll,mode,device,ranks,bytes,type,op,us_p50,us_p99,algbw,busbw,wrong,rival,rival_us_p50,ratio,second_us_p50,memory,pause,launches
    k = $1 SUBSEP $2 SUBSEP ($6 + 0)
    add(k, $9); add(k SUBSEP "p99", $10); add(k SUBSEP "rival", $15); add(k SUBSEP "second", $17); add(k SUBSEP "launches", $20)
    wrong += $13
}
FILENAME == raw "/limit" && $1 == "twoshot" { add("bare" SUBSEP ($5 + 0), $6); channels = $3 }
FILENAME == raw "/limit" && $1 == "copy" { add("copy" SUBSEP $2, $4) }
FILENAME == raw "/beside" { b[$1] = $2; is[$1] = 1 }
FILENAME == raw "/stress" {
    word = $2; sub(/ .*/, "", word)
    if (word != "PASS" && word != "FAIL") next
    verdict[$1] = word
    if (match($0, /random.ordered [0-9.]+/)) factor[$1] = substr($0, RSTART + 15, RLENGTH - 15) + 0
    if (match($0, /longest synchronisation [0-9.]+/)) longest[$1] = substr($0, RSTART + 24, RLENGTH - 24) + 0
    if (match($0, /preemptions [0-9]+/)) preempted[$1] = substr($0, RSTART + 12, RLENGTH - 12) + 0
}
FILENAME == raw "/tags" { tag_most = $10; wrong += $11 } # coll,device,ranks,tags,bytes,us_register,us_first,us_second,tag_bytes,tag_bytes_max,wrong
function warm(bytes, least, aim,    k) {
    k = "warm" SUBSEP "allreduce" SUBSEP bytes
    if (has(k)) low("all-reduce " ranks " ranks, host start to host sees completion, warm: " size(bytes), mid(k), " us", least, aim, spread(k))
    else none("all-reduce " ranks " ranks, warm: " size(bytes), least " us", aim " us", "the run failed")
}
function shmem(bytes,    k) {
    k = "nvshmem" SUBSEP "allreduce" SUBSEP bytes
    if (has(k) && has(k SUBSEP "rival")) high("the same against NVSHMEM on-stream + synchronise (" sprintf("%.1f us), ", mid(k SUBSEP "rival")) size(bytes), mid(k SUBSEP "rival") / mid(k), " x", 2, 3, spread(k))
    else none("the same against NVSHMEM on-stream + synchronise, " size(bytes), "2 x", "3 x", why("nvshmem"))
}
function over(bytes,    k, l) {
    k = "warm" SUBSEP "allreduce" SUBSEP bytes; l = "bare" SUBSEP bytes
    if (has(k) && has(l)) low("ours minus a bare two-shot kernel of " channels " channels (" sprintf("%.1f us), ", mid(l)) size(bytes), mid(k) - mid(l), " us", 10, 5.5, spread(k))
    else none("ours minus a bare two-shot kernel, " size(bytes), "10 us", "5.5 us", "a run failed")
}
function nccl(bytes, then, least, aim,    k, r) {
    k = "warm" SUBSEP "allreduce" SUBSEP bytes
    if (!has(k)) { none("against NCCL, " size(bytes), least " x", aim " x", "the run failed"); return }
    if (has(k SUBSEP "second")) high("against NCCL here, back to back on a stream (" sprintf("%.0f us), ", mid(k SUBSEP "second")) size(bytes), mid(k SUBSEP "second") / mid(k), " x", least, aim, spread(k SUBSEP "second"))
    else none("against NCCL here, " size(bytes), least " x", aim " x", why("nccl"))
    if (ranks == 4) high("against NCCL 2.30.7 as once measured (" then " us), " size(bytes), then / mid(k), " x", least, aim, spread(k))
}
# traffic: bytes read and written by all ranks
function big(coll, traffic,    k, c) {
    k = "big" SUBSEP coll SUBSEP 67108864
    c = mid("copy" SUBSEP "kernel"); if (mid("copy" SUBSEP "engine") > c) c = mid("copy" SUBSEP "engine")
    if (has(k) && c > 0) high(coll " 64 MiB (" sprintf("%.0f us), ", mid(k)) "memory traffic against device copy (" sprintf("%.0f GB/s)", c), 100 * traffic / mid(k) * 1e-3 / c, " %", 70, 90, spread(k))
    else none(coll " 64 MiB, memory traffic against device copy speed", "70 %", "90 %", "a run failed")
}
function side(key, what, least, aim) {
    if (key in is) { if (least == "report") row(what, sprintf("%.2f %%", b[key]), "report", "", "", "", ""); else low(what, b[key], " %", least, aim, "-") }
    else none(what, least == "report" ? least : least " %", least == "report" ? "" : aim " %", no_products)
}
function syncs(prefix, what, least, aim,    i, j, n, names, k, worst, mids) {
    n = split("cudaDeviceSynchronize cudaFree cudaFreeHost first_launch", names, " ")
    for (i = 1; i <= n; i++) {
        k = prefix names[i] "_"
        if ((k "max") in is) low(names[i] " " what ": longest (median " sprintf("%.3f ms)", b[k "p50"]), b[k "max"], " ms", least, aim, "-")
        else none(names[i] " " what, least " ms", aim " ms", "the run failed, or no such call here")
    }
}
function stressed(key, what) {
    if (key in verdict) row(what, verdict[key] (key in longest ? ", longest synchronisation " longest[key] " ms" : "") ", preemptions " preempted[key] + 0, "PASS", "PASS", "", verdict[key] == "PASS" ? "aim" : "**no**", "")
    else none(what, "PASS", "PASS", "the run failed")
}
END {
    MIB = 1048576
    no_products = first_line("no_products"); if (no_products == "") no_products = "the run failed"
    print "| what | measured | at least | aim | measured / at least | reached | spread |"
    print "|---|---|---|---|---|---|---|"
    warm(8, 8.5, 6.3); warm(4096, 9, 7); warm(65536, 20, 13)
    k = "cold" SUBSEP "allreduce" SUBSEP 8
    if (has(k)) low("the same, 8 B, cold (" sprintf("%.2f", mid(k SUBSEP "launches")) " launches a start)", mid(k), " us", 25, 17, spread(k))
    else none("the same, 8 B, cold", "25 us", "17 us", "the run failed")
    shmem(8); shmem(4096)
    k = "warm" SUBSEP "allreduce" SUBSEP 8
    what = "enqueue form, 8 B, back to back on a stream (NCCL " (has(k SUBSEP "second") ? sprintf("here %.1f us)", mid(k SUBSEP "second")) : "2.30.7: 12 us)")
    k = "enqueue" SUBSEP "allreduce" SUBSEP 8
    if (has(k)) low(what, mid(k), " us", 10, 6, spread(k))
    else none(what, "10 us", "6 us", "the run failed")
    over(MIB); over(16 * MIB)
    k = "warm" SUBSEP "allreduce" SUBSEP 256 * MIB; l = "bare" SUBSEP 256 * MIB
    if (has(k) && has(l)) high("bare two-shot by ours, 256 MiB (" sprintf("%.0f by %.0f us)", mid(l), mid(k)), 100 * mid(l) / mid(k), " %", 93, 98, spread(k))
    else none("bare two-shot by ours, 256 MiB", "93 %", "98 %", "a run failed")
    nccl(2 * MIB, 53, 1.5, 2.2); nccl(16 * MIB, 231, 3, 4.2); nccl(256 * MIB, 1557, 2.3, 2.8)
    S = 64 * MIB
    big("allgather", 2 * ranks * S); big("reduce_scatter_block", (ranks + 1) * S); big("alltoall", 2 * ranks * S); big("bcast", 2 * (ranks - 1) * S)
    np = split("8192 2048", p, " ")
    for (i = 1; i <= np; i++) {
        t = sprintf("%s^3 bf16 product (%.0f us) ", p[i], b["product_us_" p[i]])
        side("idle_" p[i], t "beside an attached idle library: slower by", 1, 0)
        side("absent_8B_" p[i], t "beside 8 B whose peer is absent (for 2 ms): slower by", 1, 0)
        side("absent_16MiB_" p[i], t "beside 16 MiB whose peer is absent: slower by", 1, 0)
        side("absent_8B_at_once_" p[i], t "right behind the start of 8 B whose peer is absent: slower by", "report")
        side("running_16MiB_" p[i], t "beside two other ranks with 16 MiB without end: slower by", "report")
        side("running_8B_" p[i], t "beside two other ranks with 8 B without end: slower by", "report")
    }
    for (i = 1; i <= 2; i++) {
        k = i == 1 ? "visits_8B" : "visits_16MiB"; t = "residence without progress, " (i == 1 ? "8 B" : "16 MiB") " whose peer is absent"
        if (k in is) row(t, b[k] + 0 " launches in 1 s", "0.1 % of the time", "0", "", b[k] == 0 ? "aim" : "each stays OCCL_LINGER at most", "")
        else none(t, "0.1 % of the time", "0", no_products)
    }
    syncs("sync_pending_", "beside eight collectives whose peer is absent", 5, 0.5)
    syncs("sync_running_", "beside eight that run", 5, 0.5)
    syncs("slices_sync_pending_", "beside absent peers, 3 ranks time-sliced", 11, 11)
    if ("time" in factor) low("stress, 8 ranks, 8 all-reduces, random orders: time by that of the ordered run", factor["time"], "", 1.2, 1.05, "-")
    else none("stress, 8 ranks, random orders by ordered", "1.2", "1.05", "the run failed")
    stressed("time", "the same: no deadlock, right data"); stressed("sync", "the same with device synchronisation"); stressed("layouts", "the same on four overlapping layouts")
    for (i = 2; i <= 4; i += 2) {
        stressed("slices" i, "time-sliced (no MPS), " i " ranks: stress")
        k = "slices" i SUBSEP "allreduce" SUBSEP 8
        if (has(k)) row("time-sliced, " i " ranks: all-reduce 8 B", sprintf("%.0f us", mid(k)), "report", "", "", "", "")
        else none("time-sliced, " i " ranks: all-reduce 8 B", "report", "", "the run failed")
    }
    if (tag_most > 0) low("memory per tag a rank, " ranks " ranks (largest tag)", tag_most / 1024, " KiB", 64, 16, "-")
    else none("memory per tag a rank", "64 KiB", "16 KiB", "the run failed")
    print ""
    print "Wrong elements in all runs: " wrong + 0 "."
    print ""
    print "| all-reduce, float sum | ours us | p99 | NCCL, each waited for | NCCL, back to back | bare two-shot | spread |"
    print "|---|---|---|---|---|---|---|"
    n = split("8 4096 65536 1048576 2097152 16777216 268435456", sizes, " ")
    for (i = 1; i <= n; i++) {
        k = "warm" SUBSEP "allreduce" SUBSEP (sizes[i] + 0); l = "bare" SUBSEP (sizes[i] + 0)
        if (!has(k)) continue
        printf "| %s | %.2f | %.2f | %s | %s | %s | %s |\n", size(sizes[i]), mid(k), mid(k SUBSEP "p99"), has(k SUBSEP "rival") ? sprintf("%.2f", mid(k SUBSEP "rival")) : "-", has(k SUBSEP "second") ? sprintf("%.2f", mid(k SUBSEP "second")) : "-", has(l) ? sprintf("%.2f", mid(l)) : "-", spread(k)
    }
}' "$raw/perf" "$raw/limit" "$raw/beside" "$raw/stress" "$raw/tags" /dev/null
echo
echo "Commands:"
echo
sort -u "$raw/commands" | sed -e "s|$build/||g" -e 's/^/    /'
if [ -s "$raw/failed" ]; then
    echo
    echo "Runs that failed:"
    echo
    sed 's/^/- /' "$raw/failed"
    exit 1
fi
