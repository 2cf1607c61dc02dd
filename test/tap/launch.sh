# SPDX-License-Identifier: BSD-3-Clause
# For shell tests that start MPI programs themselves, after tap.sh: `launch 4 PROGRAM ARGS...`.
# Output goes to $tap_tmp/out, standard error too; the status is the program's (the launcher's idea of it).

# Root may start ranks, ranks may outnumber cores, no rank is pinned: for these runs only
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_hwloc_base_binding_policy=none
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_hwloc_base_binding_policy PRTE_MCA_rmaps_default_mapping_policy PRTE_MCA_hwloc_default_binding_policy

launch() {
    launch_n=$1
    shift
    timeout -k 5 "${LAUNCH_TIMEOUT:-90}" ${MPIEXEC:-mpiexec} -n "$launch_n" "$@" >"$tap_tmp/out" 2>&1 </dev/null
}

# shown CONDITION SENTENCE: ok, with the program's output when it is not
shown() {
    ok "$1" "$2" || head -n 60 "$tap_tmp/out" | sed 's/^/#   /'
}

# says PATTERN SENTENCE: the last launch printed a line like this (extended regular expression)
says() {
    grep -q -E -e "$1" "$tap_tmp/out"
    shown $? "$2"
}
