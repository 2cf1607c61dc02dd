#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# config/nvcc-check must fail on a stack frame or a spill, of any function, and
# when it read nothing at all (a changed output format must not pass for 0).
. "$top_srcdir/test/tap/tap.sh"

unset OCCL_NVCC_ALLOW_STACK
check="sh $top_srcdir/config/nvcc-check --parse"
report() { # FRAME STORES LOADS
    cat <<EOT
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'occl_k_daemon' for 'sm_90'
ptxas info    : Function properties for occl_k_daemon
    $1 bytes stack frame, $2 bytes spill stores, $3 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers
EOT
}
report 0 0 0 >"$tap_tmp/good"
report 96 0 0 >"$tap_tmp/frame"
report 0 8 0 >"$tap_tmp/stores"
report 0 0 8 >"$tap_tmp/loads"
{ report 16 0 0; report 0 0 0; } >"$tap_tmp/first"
echo 'something else' >"$tap_tmp/none"

runs "a kernel without stack or spills passes" $check "$tap_tmp/good"
fails "a stack frame fails" $check "$tap_tmp/frame"
fails "spilled stores fail" $check "$tap_tmp/stores"
fails "spilled loads fail" $check "$tap_tmp/loads"
fails "a fault in the first of two functions is not lost" $check "$tap_tmp/first"
fails "a report without functions fails" $check "$tap_tmp/none"

# With a compiler that is not there but says what nvcc would
cat >"$tap_tmp/nvcc" <<'EOT'
#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -o ] && echo object >"$2"; shift; done
cat "$FAKE" >&2
EOT
chmod +x "$tap_tmp/nvcc"
runs "as a compiler: passes on what is good" env FAKE="$tap_tmp/good" \
    sh "$top_srcdir/config/nvcc-check" "$tap_tmp/nvcc" -c -o "$tap_tmp/x.o" x.cu
[ -f "$tap_tmp/x.o" ]
ok $? "and leaves the object"
fails "as a compiler: fails on a spill" env FAKE="$tap_tmp/stores" \
    sh "$top_srcdir/config/nvcc-check" "$tap_tmp/nvcc" -c -o "$tap_tmp/x.o" x.cu
[ ! -f "$tap_tmp/x.o" ]
ok $? "and removes the object, so that the next make tries again"
done_testing
