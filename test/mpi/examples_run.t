#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The examples run on four ranks and find their results right.
. "$top_srcdir/test/tap/tap.sh"
. "$top_srcdir/test/tap/launch.sh"

[ -z "$SANITIZED" ] || skip_all "the MPI libraries are not clean under sanitizers"

# example PROGRAM SENTENCE: it ends with status 0 and a line like this
example() {
    launch 4 "$top_builddir/examples/$1"
    shown $? "$1 ends well"
    says "$2" "$1 finds its result right"
}

example jacobi 'the solution is right'
example experts '4 ranks, 8 layers in flight: 2048 of 2048 tokens came home'
if [ "$HAVE_FORTRAN" = yes ]; then
    example jacobi_f08 'the solution is right'
else
    skip "jacobi_f08: no Fortran in this build"
fi
done_testing
