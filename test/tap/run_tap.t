#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run-tap: ranks from the name, a deadline for what hangs, and no way to pass
# with the wrong launcher.
. "$top_srcdir/test/tap/tap.sh"

run="sh $top_srcdir/test/tap/run-tap"
t=$tap_tmp
cat >"$t/mpiexec" <<'EOT'
#!/bin/sh
echo "launched: $1 $2 size=$TAP_MPI_SIZE root=$OMPI_ALLOW_RUN_AS_ROOT over=$OMPI_MCA_rmaps_base_oversubscribe"
shift 2
exec "$@"
EOT
cat >"$t/pass.t" <<'EOT'
#!/bin/sh
echo "ok 1 - ran with $# arguments"
echo 1..1
EOT
cat >"$t/hang.t" <<'EOT'
#!/bin/sh
echo "ok 1 - began"
sleep 30
echo 1..1
EOT
chmod +x "$t"/*
cp "$t/pass.t" "$t/pass-n3.t"

MPIEXEC=$t/mpiexec
export MPIEXEC
unset OCCL_TEST_WRAPPER OCCL_TEST_TIMEOUT

$run "$t/pass.t" >"$t/out"
grep -q '^ok 1' "$t/out" && ! grep -q launched "$t/out"
ok $? "a test without ranks in its name runs as it is"
$run "$t/pass-n3.t" >"$t/out"
grep -q '^launched: -n 3 size=3 root=1 over=1$' "$t/out"
ok $? "x-n3.t is launched with 3 ranks, and with what Open MPI wants of root and few cores" ||
    sed 's/^/# /' "$t/out"
(cd "$t" && sh "$OLDPWD/$top_srcdir/test/tap/run-tap" pass-n3.t 2>/dev/null ||
    sh "$top_srcdir/test/tap/run-tap" pass-n3.t) >"$t/out"
grep -q '^ok 1' "$t/out"
ok $? "a name without a folder is not looked up in PATH"

if timeout 1 true 2>/dev/null; then
    OCCL_TEST_TIMEOUT=1 $run "$t/hang.t" >"$t/out"
    [ $? = 124 ] && grep -q 'stopped after 1 s' "$t/out" && ! grep -q '^1\.\.' "$t/out"
    ok $? "a test that hangs is stopped, says so, and has no plan" || sed 's/^/# /' "$t/out"
else
    skip "no timeout program"
fi

# A real MPI program, started without its launcher although two ranks were promised
prog=$top_builddir/test/tap/tapmpi
if [ -x "$prog" ]; then
    TAP_MPI_SIZE=2 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        timeout 60 "$prog" >"$t/out" 2>&1 </dev/null
    grep -q '^Bail out! .*do not fit' "$t/out"
    ok $? "a rank that is alone although it should not be bails out" || sed 's/^/# /' "$t/out"
else
    skip "tapmpi is not built"
fi
done_testing
