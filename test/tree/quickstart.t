#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# quickstart on a machine where nothing is installed: a PATH of stubs stands for
# it. No package is installed here.
. "$top_srcdir/test/tap/tap.sh"

mkdir "$tap_tmp/bin" "$tap_tmp/tree"
cp "$top_srcdir/quickstart" "$tap_tmp/tree/"
cd "$tap_tmp" || bail "no folder"
for p in sh sed dirname mktemp rm date grep awk cat tail head tr mkdir nproc tee; do
    real=$(command -v "$p") && ln -s "$real" "bin/$p"
done
cat >bin/apt-get <<'EOT'
#!/bin/sh
echo "$DEBIAN_FRONTEND apt-get $*" >>"$APT_LOG"
EOT
cat >bin/id <<'EOT'
#!/bin/sh
echo "$FAKE_UID"
EOT
cat >bin/sudo <<'EOT'
#!/bin/sh
echo "sudo $*" >>"$APT_LOG"
EOT
cp bin/sudo bin/update-alternatives
chmod +x bin/*
APT_LOG=$tap_tmp/apt.log
: >"$APT_LOG"

try() { # UID MPI: quickstart check as that user
    env -i PATH="$tap_tmp/bin" HOME="$tap_tmp" TMPDIR="$tap_tmp" APT_LOG="$APT_LOG" FAKE_UID="$1" MPI="$2" \
        sh tree/quickstart check >out 2>&1 </dev/null
    rc=$?
}
said() { grep -q -e "$1" out; }

try 1000 ''
[ $rc != 0 ]
ok $? "an ordinary user without packages gets a failure"
said '^ *apt-get update && apt-get install -y --no-install-recommends .*openmpi-bin libopenmpi-dev'
ok $? "and the exact command, for Open MPI by default" || sed 's/^/# /' out
said 'sudo'
[ $? != 0 ]
ok $? "which asks for root but names no sudo"
[ ! -s "$APT_LOG" ]
ok $? "and nothing was run"

try 1000 mpich
said 'mpich libmpich-dev'
ok $? "MPI=mpich asks for MPICH"

try 0 ''
sed -n 1p "$APT_LOG" | grep -q '^noninteractive apt-get update'
ok $? "root: apt-get update comes first"
sed -n 2p "$APT_LOG" | grep -q '^noninteractive apt-get install -y.* --no-install-recommends .*libopenmpi-dev'
ok $? "then the packages, without questions and recommendations"
[ "$(grep -c . "$APT_LOG")" = 2 ]
ok $? "and nothing else: no sudo, no alternatives" || sed 's/^/# /' "$APT_LOG"
[ $rc != 0 ] && said 'still missing'
ok $? "packages that did not bring the tools are a failure" || sed 's/^/# /' out

: >"$APT_LOG"
try 0 lam
[ $rc != 0 ] && said 'MPI=lam is not known'
ok $? "an unknown MPI is refused by name"
[ ! -s "$APT_LOG" ]
ok $? "before anything is installed"

env -i PATH="$tap_tmp/bin" sh tree/quickstart >out 2>&1 </dev/null
[ $? = 2 ] && said 'quickstart demo'
ok $? "without a command the usage is printed"
done_testing
