#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Install into a folder, use it as a stranger would, uninstall: nothing stays.
. "$top_srcdir/test/tap/tap.sh"

[ -z "$SANITIZED" ] || skip_all "a sanitizer build is not installed"
top_srcdir=$(cd "$top_srcdir" && pwd)
cd "$top_builddir" || bail "no build folder"
# DESTDIR, as packages are made: libtool installs a library that needs another one only where configure said
dest=$tap_tmp/dest
prefix=$dest$(sed -n 's/^prefix = //p' Makefile)
# Not as a part of the make that runs this test
unset MAKEFLAGS MFLAGS MAKELEVEL TESTS

runs "make install" $MAKE install DESTDIR="$dest" || { done_testing; }
module=mpix_occl$OCCL_SUFFIX
for f in "lib/lib$module.a" "lib/lib$module.so" "lib/pkgconfig/$module.pc"; do
    [ -e "$prefix/$f" ]
    ok $? "it brings $f"
done
if [ -f "$prefix/include/mpix_occl.h" ]; then
    mkdir "$tap_tmp/pc" "$tap_tmp/app"
    sed "s|^prefix=.*|prefix=$prefix|" "$prefix/lib/pkgconfig/$module.pc" >"$tap_tmp/pc/$module.pc"
    # Functions that only say "unsupported" cannot run a program
    [ ! -f "$top_srcdir/mpi-ext/c/stubs.c" ] || tap_todo="mpi-ext/c/stubs.c stands in for the library"
    # A user builds in a shell of his own
    unset CC CFLAGS LDFLAGS
    if ! pkg-config --version >/dev/null 2>&1; then
        skip "no pkg-config"
    else
        runs "a program finds it by pkg-config and runs on 2 ranks" \
            sh "$top_srcdir/test/tree/consumer/check" "$tap_tmp/pc" "$module" "$MPIEXEC" "$tap_tmp/app"
        if [ "$HAVE_FORTRAN" = yes ]; then
            fmodule=mpix_occl_fortran$OCCL_SUFFIX
            sed "s|^prefix=.*|prefix=$prefix|" "$prefix/lib/pkgconfig/$fmodule.pc" >"$tap_tmp/pc/$fmodule.pc"
            runs "and one in Fortran, with the module" env FC="$FC" \
                sh "$top_srcdir/test/tree/consumer/check" "$tap_tmp/pc" "$fmodule" "$MPIEXEC" "$tap_tmp/app" fortran
        else
            skip "no Fortran in this build"
        fi
        if [ -n "$CMAKE" ]; then
            runs "and by CMake, with three lines" \
                sh "$top_srcdir/test/tree/consumer/check" "$tap_tmp/pc" "$module" "$MPIEXEC" "$tap_tmp/app" cmake
        else
            skip "no cmake"
        fi
    fi
else
    skip "no mpix_occl.h yet"
fi
tap_todo=
runs "make uninstall" $MAKE uninstall DESTDIR="$dest"
find "$dest" ! -type d >"$tap_tmp/left"
empty "leaves no file" "$tap_tmp/left"
done_testing
