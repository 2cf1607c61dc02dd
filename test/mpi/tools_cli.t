#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Command lines of the tools: a wrong one is told in a sentence with exit status 2, and nothing is measured.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

[ -z "$SANITIZED" ] || skip_all "the MPI libraries are not clean under sanitizers"
tools=$top_builddir/src/tools

# refused TOOL PATTERN ARGS...
refused() {
    tool=$1 pattern=$2
    shift 2
    timeout 60 "$tools/$tool" "$@" >"$tap_tmp/out" 2>&1 </dev/null
    status=$?
    [ $status = 2 ] && grep -q -e "$pattern" "$tap_tmp/out"
    shown $? "$tool $*: refused with status 2 and \"$pattern\"" || diag "status $status"
}

refused occl_perf 'no collective given'
refused occl_perf 'no collective "allredoce"' allredoce
refused occl_perf 'takes a size' allreduce -b 12Q
refused occl_perf 'no option "--itres"' allreduce --itres 3
refused occl_perf 'needs a value' allreduce -e
refused occl_perf 'MPI has no band for float' allreduce -o band
refused occl_perf 'there are 1 ranks' bcast --root 1
refused occl_stress 'takes a number from 1' --colls 0
refused occl_perf 'need --device cuda' allreduce --memory device
refused occl_perf 'need --device cuda' allreduce --compare nccl
refused occl_perf 'takes at most' allreduce --sizes 8,,16
refused occl_stress 'one argument too many' allreduce
refused occl_info 'no option' --nonsense

# Without CUDA, or without a GPU: told in a sentence, with the status of a test that is skipped
for tool in 'occl_perf allreduce' occl_stress; do
    CUDA_VISIBLE_DEVICES='' timeout 60 "$tools"/$tool --device cuda >"$tap_tmp/out" 2>&1 </dev/null
    status=$?
    [ $status = 77 ] && grep -q -e 'rank 0: built without CUDA' -e 'rank 0: no GPU or no driver here' "$tap_tmp/out"
    shown $? "$tool --device cuda: status 77 and why" || diag "status $status"
done
timeout 60 "$tools/occl_perf" allreduce --sizes 8,1K -n 20 >"$tap_tmp/out" 2>&1 </dev/null
shown $? "a list of sizes"
[ "$(grep -c '^ *\(8\|1024\) ' "$tap_tmp/out")" = 2 ]
shown $? "is measured, each once"
timeout 60 "$tools/occl_perf" allreduce --sizes 8 --cold -n 20 >"$tap_tmp/out" 2>&1 </dev/null
says 'launches/start$' "with pauses the launches are told"

for tool in occl_perf occl_stress occl_info; do
    timeout 60 "$tools/$tool" --version >"$tap_tmp/out" 2>&1
    says "^$tool \(MPIX_Occl\) [0-9]+\.[0-9]+\.[0-9]+" "$tool --version tells the version"
    timeout 60 "$tools/$tool" --help >"$tap_tmp/out" 2>&1
    says "^Usage: $tool" "$tool --help tells the usage"
done

"$tools/occl_info" >"$tap_tmp/out" 2>&1
shown $? "occl_info runs without a launcher"
says '^OCCL_LOG=' "it lists the environment variables"
says '^preemptions$' "and the names of the statistics"
OCCL_SPIN=maybe "$tools/occl_info" -c >"$tap_tmp/out" 2>&1
[ $? = 1 ]
shown $? "a variable with a value that the library refuses is exit status 1"
says 'OCCL_SPIN' "and named"
# the first one is named, and make check has some of its own
env -i PATH="$PATH" OCCL_SPINN=1 "$tools/occl_info" -c >"$tap_tmp/out" 2>&1
says 'OCCL_SPINN is set, but there is no such variable' "a misspelt variable is named"
done_testing
