#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The figures of the host device, as a Markdown table for doc/measurements.md.
#
#   test/bench/host.sh [-r ROUNDS] [-f FACTOR] [-q] [-w] [-k FOLDER] BUILD...
#
# BUILD is a configured and built tree; give one for each MPI. Two ranks. Every figure is the median of ROUNDS (5) runs.
# The rival is MPI's own nonblocking collective: in the same run, turn by turn with ours, and alone in a process that
# never touches the library, at MPI_THREAD_SINGLE; the faster of the two medians is the rival of record, size by size.
# Open MPI's runs take ob1 and vader: Debian's default path inside a node is 20 us slow. -q: two quick rounds, to try the
# script. -k keeps the raw tables there. Let nothing else run on the machine; -w, where that cannot be: wait for an idle
# moment before every run, and repeat it (at most 8 times) when other processes took more than 2 % of the processors meanwhile.

rounds=5 factor=2 iters=0 tags=10000 stress=400 keep= idle=
while getopts r:f:qwk: o; do
    case $o in
    r) rounds=$OPTARG ;;
    f) factor=$OPTARG ;;
    q) rounds=2 factor=8 iters=60 tags=1000 stress=60 ;;
    k) keep=$OPTARG ;;
    w) idle=1 ;;
    *) sed -n '3,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "host.sh: name at least one build folder" >&2; exit 2; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
    PRTE_MCA_hwloc_default_binding_policy=none

raw=${keep:-$(mktemp -d "${TMPDIR:-/tmp}/occl-bench.XXXXXX")} || exit 1
mkdir -p "$raw" || exit 1
[ -n "$keep" ] || trap 'rm -rf "$raw"' 0
trap 'exit 1' 1 2 15
: >"$raw/perf" >"$raw/failed"
for f in perf overlap tags stress failed names; do : >"$raw/$f"; done

# Processor time in 1/100 s: of all, and of what this script has run (after `times >$raw/times`, which a subshell cannot do)
busy_all() { awk '/^cpu / { print $2 + $3 + $4 }' /proc/stat; }
busy_mine() {
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] } printf "%d\n", 100 * s }' "$raw/times"
}
# wait_idle: until nothing has run for a second, ten minutes at most
wait_idle() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
            b=$(busy_all)
            sleep 1
            [ $(($(busy_all) - b)) -gt 5 ] || return 0
            sleep 1
        done
    done
}

launch() {
    case $mpi in
    openmpi) flags="--mca pml ob1 --mca btl vader,self" ;;
    *) flags= ;;
    esac
    # shellcheck disable=SC2086
    timeout 900 $launcher -n 2 $flags "$@" >"$raw/out" 2>&1 </dev/null
}

# in_build TOOL ARGS: run two ranks of the current build, output into $raw/out
in_build() {
    tool=$1 tries=8
    shift
    while :; do
        [ -z "$idle" ] || wait_idle
        times >"$raw/times"
        all=$(busy_all) mine=$(busy_mine) since=$(date +%s)
        launch "$build/src/tools/$tool" "$@"
        rc=$?
        times >"$raw/times"
        others=$(($(busy_all) - all - $(busy_mine) + mine))
        tries=$((tries - 1))
        [ -n "$idle" ] && [ $rc = 0 ] && [ $tries -gt 0 ] || break
        # 2 % of two processors, and what the script itself took
        [ $others -gt $((4 * ($(date +%s) - since) + 10)) ] || break
        echo "host.sh: others took $others/100 s of processor time: again" >&2
    done
    if [ $rc != 0 ]; then
        echo "$mpi: $tool $*" >>"$raw/failed"
        echo "host.sh: failed: $mpi: $tool $*" >&2
        tail -n 5 "$raw/out" >&2
        return 1
    fi
}

# table NAME: append the CSV just made to $raw/NAME, each line with the MPI in front
table() {
    awk -v mpi="$mpi" 'NR > 1 { print mpi "," $0 }' "$raw/csv" >>"$raw/$1"
}

perf() {
    in_build occl_perf "$@" -f "$factor" -n "$iters" --csv "$raw/csv" && table perf
}

load=$(cut -d' ' -f1-3 /proc/loadavg 2>/dev/null)
case $load in
0.[0-4]*) ;;
*) echo "host.sh: the load is $load: other programs run here, and figures will be noise" >&2 ;;
esac

round=1
while [ "$round" -le "$rounds" ]; do
    for build; do
        launcher=$(sed -n 's/^MPIEXEC = //p' "$build/Makefile")
        mpi=$(sed -n 's/^OCCL_MPI = //p' "$build/Makefile")
        [ -n "$launcher" ] && [ -x "$build/src/tools/occl_perf" ] || { echo "host.sh: $build is not a built tree" >&2; exit 2; }
        echo "host.sh: round $round of $rounds, $mpi" >&2
        [ "$round" -gt 1 ] || "$build/src/tools/occl_info" --build | sed -n "s/^MPI  */$mpi,/p" >>"$raw/names"
        perf allreduce -b 8 -e 16M --compare mpi
        perf allreduce -b 8 -e 16M --rival-only
        for c in allgather alltoall bcast; do
            perf $c -b 64K -e 4M --compare mpi
            perf $c -b 64K -e 4M --rival-only
        done
        in_build occl_perf allreduce -b 1M -e 1M --overlap 5 -n 30 --compare mpi --csv "$raw/csv" && table overlap
        in_build occl_stress --time --iters "$stress" --colls 16 &&
            sed -n "s/.*ordered \([0-9.]*\) us, random \([0-9.]*\) us, random.ordered \([0-9.]*\).*/$mpi,\1,\2,\3/p" "$raw/out" >>"$raw/stress"
        in_build occl_perf allreduce -b 8 --tags "$tags" --csv "$raw/csv" && table tags
    done
    round=$((round + 1))
done

echo "Two ranks, medians of $rounds runs, $(date +%Y-%m-%d), load before: ${load:-unknown}."
sed -n 's/^model name[ \t]*: //p' /proc/cpuinfo 2>/dev/null | sort | uniq -c | sed 's/^ *\([0-9]*\) \(.*\)/Processors: \1 x \2;/'
echo "Linux $(uname -r). $(sed 's/^[a-z]*,//; s/, package.*//; s/; standard/, standard/' "$raw/names" | tr '\n' ';')"
echo
cat "$raw/perf" | awk -F, -v raw="$raw" '
# v[1..n] sorted; the median
function median(v, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : n ? (v[n / 2] + v[n / 2 + 1]) / 2 : 0
}
function add(key, x) { list[key, ++count[key]] = x }
function mid(key,    i, v) { for (i = 1; i <= count[key]; i++) v[i] = list[key, i]; return median(v, count[key]) }
function spread(key,    i, lo, hi, m) {
    m = mid(key); lo = hi = list[key, 1]
    for (i = 2; i <= count[key]; i++) { if (list[key, i] < lo) lo = list[key, i]; if (list[key, i] > hi) hi = list[key, i] }
    return m > 0 ? 100 * (hi - lo) / m : 0
}
function size(b) { return b >= 1048576 ? b / 1048576 " MiB" : b >= 1024 ? b / 1024 " KiB" : b " B" }
function verdict(worst, least, aim) { return worst <= aim ? "aim" : worst <= least ? "at least" : "**no**" }
# One row: all sizes of coll from lo to hi
function band(what, coll, lo, hi, least, aim,    m, k, i, b, best, r, product, n, worst, at, sp, goal, result) {
    for (m = 1; m <= nmpi; m++) {
        product = 0; n = 0; worst = 0; sp = 0
        for (i = 1; i <= nsizes; i++) {
            b = sizes[i]
            if (b < lo || b > hi || !((k = mpis[m] SUBSEP coll SUBSEP b) SUBSEP "ours" in count)) continue
            best = mid(k SUBSEP "beside")
            if ((k SUBSEP "alone" in count) && mid(k SUBSEP "alone") < best) best = mid(k SUBSEP "alone")
            if (best <= 0) continue
            r = mid(k SUBSEP "ours") / best
            product += log(r); n++
            if (r > worst) { worst = r; at = b }
            if (spread(k SUBSEP "ours") > sp) sp = spread(k SUBSEP "ours")
        }
        if (!n)
            continue
        goal = "none set"
        result = ""
        if (least) {
            goal = sprintf("%.2f / %.2f", least, aim)
            result = verdict(worst, least, aim)
        }
        printf "| %s | %s | %.2f | %.2f at %s | %.0f %% | %s | %s |\n", what, mpis[m], exp(product / n), worst, size(at), sp, goal, result
    }
}
{
    # mpi,coll,mode,device,ranks,bytes,type,op,us_p50,us_p99,algbw,busbw,wrong,rival,rival_us_p50,ratio
    if (!($1 in seen)) { seen[$1] = 1; mpis[++nmpi] = $1 }
    if (!(("size", $6) in seen)) { seen["size", $6] = 1; sizes[++nsizes] = $6 + 0 }
    key = $1 SUBSEP $2 SUBSEP ($6 + 0)
    wrong += $13
    if ($3 == "rival-only") add(key SUBSEP "alone", $15)
    else { add(key SUBSEP "ours", $9); if ($15 != "") add(key SUBSEP "beside", $15) }
}
END {
    for (i = 2; i <= nsizes; i++)
        for (j = i; j > 1 && sizes[j - 1] > sizes[j]; j--) { t = sizes[j]; sizes[j] = sizes[j - 1]; sizes[j - 1] = t }
    print "| what (ours / the rival of record) | MPI | mean ratio | worst ratio | spread | at least / aim | reached |"
    print "|---|---|---|---|---|---|---|"
    band("all-reduce float sum, persistent, 8 - 512 B", "allreduce", 8, 512, 1.3, 0.85)
    band("the same, 1 - 4 KiB", "allreduce", 1024, 4096, 0.9, 0.5)
    band("the same, 8 - 32 KiB", "allreduce", 8192, 32768, 0, 0)
    band("the same, 64 KiB - 16 MiB", "allreduce", 65536, 16777216, 1.0, 0.7)
    band("all-gather, 64 KiB - 4 MiB", "allgather", 65536, 4194304, 1.1, 0.8)
    band("all-to-all, 64 KiB - 4 MiB", "alltoall", 65536, 4194304, 1.1, 0.8)
    band("bcast, 64 KiB - 4 MiB", "bcast", 65536, 4194304, 1.1, 0.8)
    while ((getline line < (raw "/overlap")) > 0) {
        # mpi,coll,mode,device,ranks,bytes,type,op,compute_ms,own_us,left_us,left_ratio,stretch,wrong,rival,own,left,ratio,stretch
        split(line, f, ","); add(f[1] SUBSEP "left", f[12]); add(f[1] SUBSEP "rleft", f[18]); wrong += f[14]
        add(f[1] SUBSEP "stretch", 100 * (f[13] - 1)); add(f[1] SUBSEP "own", f[10])
    }
    for (m = 1; m <= nmpi; m++)
        if ((mpis[m] SUBSEP "left") in count) {
            r = mid(mpis[m] SUBSEP "left")
            printf "| asynchronous progress, 1 MiB all-reduce under 5 ms of computing: left / own time (%.0f us) | %s | %.3f | MPI: %.2f | %.0f %% | 0.20 / 0.05 | %s, computing takes %.0f %% longer |\n", mid(mpis[m] SUBSEP "own"), mpis[m], r, mid(mpis[m] SUBSEP "rleft"), spread(mpis[m] SUBSEP "left"), verdict(r, 0.2, 0.05), mid(mpis[m] SUBSEP "stretch")
        }
    while ((getline line < (raw "/tags")) > 0) {
        # mpi,coll,device,ranks,tags,bytes,us_register,us_first,us_second,tag_bytes,tag_bytes_max,wrong
        split(line, f, ","); add(f[1] SUBSEP "tag", f[10]); add(f[1] SUBSEP "first", f[8]); add(f[1] SUBSEP "second", f[9])
        n = f[5]; wrong += f[12]; if (f[11] > largest[f[1]]) largest[f[1]] = f[11]
    }
    for (m = 1; m <= nmpi; m++)
        if ((mpis[m] SUBSEP "tag") in count)
            printf "| %d tags, one start each in random order: memory a tag | %s | %.1f KiB | %.1f KiB | %.0f %% | 64 KiB | %s; %.1f us a tag, again %.1f us |\n", n, mpis[m], mid(mpis[m] SUBSEP "tag") / 1024, largest[mpis[m]] / 1024, spread(mpis[m] SUBSEP "first"), (largest[mpis[m]] < 65536 ? "at least" : "**no**"), mid(mpis[m] SUBSEP "first"), mid(mpis[m] SUBSEP "second")
    while ((getline line < (raw "/stress")) > 0) { split(line, f, ","); add(f[1] SUBSEP "stress", f[4]); add(f[1] SUBSEP "inorder", f[2]) }
    for (m = 1; m <= nmpi; m++)
        if ((mpis[m] SUBSEP "stress") in count) {
            r = mid(mpis[m] SUBSEP "stress")
            printf "| stress, random orders against the same work in order (%.0f us) | %s | %.3f | | %.0f %% | 1.10 / 1.02 | %s |\n", mid(mpis[m] SUBSEP "inorder"), mpis[m], r, spread(mpis[m] SUBSEP "stress"), verdict(r, 1.10, 1.02)
        }
    print ""
    print "Wrong elements in all runs: " wrong + 0 "."
    print ""
    print "| collective | MPI | bytes | ours us | MPI beside us | MPI alone us | ratio | spread |"
    print "|---|---|---|---|---|---|---|---|"
    ncolls = split("allreduce allgather alltoall bcast", colls, " ")
    for (c = 1; c <= ncolls; c++) for (m = 1; m <= nmpi; m++) for (i = 1; i <= nsizes; i++) {
        k = mpis[m] SUBSEP colls[c] SUBSEP sizes[i]
        if (!((k SUBSEP "ours") in count)) continue
        best = beside = mid(k SUBSEP "beside"); alone = mid(k SUBSEP "alone")
        if (alone > 0 && alone < best) best = alone
        printf "| %s | %s | %s | %.2f | %.2f | %.2f | %.2f | %.0f %% |\n", colls[c], mpis[m], size(sizes[i]), mid(k SUBSEP "ours"), beside, alone, (best > 0 ? mid(k SUBSEP "ours") / best : 0), spread(k SUBSEP "ours")
    }
}'
if [ -s "$raw/failed" ]; then
    echo
    echo "Runs that failed:"
    sed 's/^/- /' "$raw/failed"
    exit 1
fi
