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
refused occl_perf 'no CUDA device' allreduce --device cuda
refused occl_perf 'MPI has no band for float' allreduce -o band
refused occl_perf 'there are 1 ranks' bcast --root 1
refused occl_stress 'takes a number from 1' --colls 0
refused occl_stress 'no CUDA device' --device cuda
refused occl_stress 'one argument too many' allreduce
refused occl_info 'no option' --nonsense

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
