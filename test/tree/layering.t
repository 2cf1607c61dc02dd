#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Dependencies point one way. Reads the #include lines of the tree:
#   mpi-ext -> core -> plan, control, backend, tuner -> progress -> device -> transport -> kernels
# and util serves all. A call upward is a callback in an ops table.
. "$top_srcdir/test/tap/tap.sh"

cd "$top_srcdir" || bail "no source folder"
t=$tap_tmp

# FILE: INCLUDED, one a line, without comments' examples
includes() {
    find "$@" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.in' -o -name '*.def' \) 2>/dev/null | sort |
        while read -r f; do
            sed -n 's/^[ \t]*#[ \t]*include[ \t]*[<"]\([^>"]*\)[>"].*/\1/p' "$f" | sed "s,^,$f: ,"
        done
}

# may FOLDER LAYER...: files of src/FOLDER may include these folders (and their own, and util)
may() {
    from=$1
    shift
    [ -d "src/$from" ] || return 0
    allow="$from util"
    for l; do allow="$allow $l"; done
    includes "src/$from" | awk -v allow="$allow" '
        BEGIN { n = split(allow, a, " "); for (i = 1; i <= n; i++) yes[a[i]] = 1
                m = split("core plan control backend tuner progress device transport topo util tools kernels mpi-ext", b, " ")
                for (i = 1; i <= m; i++) layer[b[i]] = 1 }
        { split($2, p, "/"); if ((p[1] in layer) && index($2, "/") && !(p[1] in yes)) print }' >"$t/bad"
    empty "src/$from includes only: $allow" "$t/bad"
}

may util kernels
may topo
may device transport topo kernels
may transport topo kernels
may progress device transport topo kernels
may plan kernels
may control progress plan topo kernels
may backend progress device transport plan topo kernels
may tuner plan topo kernels
may core plan control backend tuner progress device transport topo kernels

includes kernels | awk '$1 != "kernels/daemon.cu:" && $2 != "stdint.h" && $2 !~ /^(kernels\/)?occl_[a-z0-9_]*\.(h|c)$/ && $2 !~ /^(kernels\/)?[a-z0-9_]*\.h$/' >"$t/bad"
includes kernels | awk '{f = $2; sub(/^kernels\//, "", f)} $1 ~ /kernels\// && f !~ /\// && f != "stdint.h" {print f " " $0}' |
    while read -r f line; do [ -f "kernels/$f" ] || echo "$line"; done |
    grep -v -E '^kernels/daemon\.cu: cuda|^kernels/occl_dev\.h: (cuda|sched|pthread)' >>"$t/bad"
empty "kernels/ includes nothing but <stdint.h> and itself" "$t/bad"

includes src kernels include test/unit test/emu | grep -E ': (mpi|mpio|mpi-ext)\.h$' |
    grep -v -E '^src/(backend/mpi|transport/mpi)\.c:|^src/tools/|^include/mpix_occl' >"$t/bad"
empty "<mpi.h> is seen by mpi-ext, backend/mpi.c and transport/mpi.c only" "$t/bad"

includes src mpi-ext kernels | grep -E ': (cuda|cuda_.*|cudaTypedefs|driver_types|nccl)\.h$' |
    grep -v -E '^(kernels/daemon\.cu|kernels/occl_dev\.h|src/device/cuda\.c|src/transport/cuda_ipc\.c|src/backend/nccl\.c|src/tools/tool_cuda\.c):' >"$t/bad"
empty "CUDA's headers are seen only by the files that are CUDA" "$t/bad"

includes src mpi-ext kernels | grep -E ': (ucp|uct|ucs)/' | grep -v '^src/transport/ucx\.c:' >"$t/bad"
empty "UCX's headers are seen by transport/ucx.c only" "$t/bad"

find kernels -name '*.cu' | grep -v '^kernels/daemon\.cu$' >"$t/bad"
empty "there is one .cu file: no device link step" "$t/bad"

# One file speaks memory order in device code: no fences, atomics or volatile elsewhere. An asm("cvt
# is arithmetic (CUDA has no header-free name for converting a half).
grep -n -E '__atomic_|__sync_|__nv_atomic|__threadfence|asm[ (]|\bvolatile\b' kernels/*.[ch] kernels/*.cu 2>/dev/null |
    grep -v -E '^kernels/occl_dev(_atomic|_fence)?\.h:' | grep -v 'asm("cvt' | grep -v -E '^[^:]*:[0-9]*: *(/?\*|//)' >"$t/bad"
empty "memory order in kernels/ is spoken by occl_dev_atomic.h alone" "$t/bad"

grep -n -E '\b(threadIdx|blockIdx|blockDim|gridDim)\b' kernels/*.[ch] 2>/dev/null |
    grep -v '^kernels/occl_dev\.h:' | grep -v -E '^[^:]*:[0-9]*: *(/?\*|//)' >"$t/bad"
empty "threadIdx and its like are read in occl_dev.h alone" "$t/bad"

# Non-coherent loads would be wrong in a resident kernel
grep -n -E '__ldg|__restrict__' kernels/*.[ch] kernels/*.cu 2>/dev/null |
    grep -n -E '__ldg|const [a-z0-9_ ]*\* *__restrict__' | grep -v -E ':[0-9]*: *(/?\*|//)' >"$t/bad"
empty "no non-coherent load (__ldg, const __restrict__) in kernels/" "$t/bad"

# Every file says its licence. In config/ only ours: the rest is made by others' tools.
{
    find kernels src mpi-ext test include examples \( -name '*.[ch]' -o -name '*.cu' -o -name '*.t' -o -name '*.mk' -o -name '*.sh' \) 2>/dev/null
    ls config/occl_*.m4 config/nvcc-check
} | while read -r f; do
    [ -L "$f" ] || head -n 3 "$f" | grep -q 'SPDX-License-Identifier' || echo "$f"
done >"$t/bad"
empty "every source file has its SPDX line" "$t/bad"
done_testing
