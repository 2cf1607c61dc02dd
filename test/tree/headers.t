#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every header stands alone: it compiles as the first and only include. The
# public ones in strict C11 and C++11, the others as the library is compiled.
. "$top_srcdir/test/tap/tap.sh"

inc="-I$top_builddir/include -I$top_srcdir/include"
strict="-Wall -Wextra -Wpedantic -Werror $OCCL_MPI_CFLAGS"
for h in "$top_srcdir"/include/*.h "$top_builddir"/include/*.h; do
    [ -f "$h" ] || continue
    b=${h##*/}
    case " $seen " in *" $b "*) continue ;; esac
    seen="$seen $b"
    case $b in
    *f.h) continue ;; # Fortran include file
    esac
    printf '#include <%s>\nint main(void) { return 0; }\n' "$b" >"$tap_tmp/t.c"
    cp "$tap_tmp/t.c" "$tap_tmp/t.cc"
    runs "$b compiles alone as strict C11" \
        $CC -std=c11 $strict $inc $CUDA_CPPFLAGS -c "$tap_tmp/t.c" -o "$tap_tmp/t.o"
    if [ -z "$TEST_CXX" ]; then
        skip "$b in C++11: no C++ compiler"
    else
        # MPI's own headers are not pedantic C++: -isystem keeps to ours
        sys=$(printf '%s' "$OCCL_MPI_PC_CFLAGS" | sed 's/-I/-isystem /g')
        runs "$b compiles alone as C++11" $TEST_CXX -std=c++11 -Wall -Wextra -Wpedantic -Werror \
            -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX $inc $sys $CUDA_CPPFLAGS \
            -c "$tap_tmp/t.cc" -o "$tap_tmp/t.o"
    fi
    # A second include must do nothing
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$b" "$b" >"$tap_tmp/t.c"
    runs "$b may be included twice" $CC -std=c11 $inc $CUDA_CPPFLAGS -fsyntax-only "$tap_tmp/t.c"
done

inc="-I$top_builddir/config $inc -I$top_builddir/src -I$top_srcdir/src -I$top_builddir -I$top_srcdir -I$top_srcdir/test/tap"
for h in $(cd "$top_srcdir" && find kernels src mpi-ext test -name '*.h' | sort); do
    case $h in
    *_tmpl.h | *_body.h) continue ;; # included many times with parameters, never alone
    *cuda*.h) [ -n "$CUDA_CPPFLAGS" ] || continue ;;
    esac
    printf '#include "%s"\n#include "%s"\n' "$h" "$h" >"$tap_tmp/t.c"
    runs "$h compiles alone" $CC -std=gnu11 -Wall -Wextra -Wno-unused-function -Werror \
        $OCCL_MPI_CFLAGS $inc $CUDA_CPPFLAGS -fsyntax-only "$tap_tmp/t.c"
done
[ $tap_count -gt 0 ] || skip_all "no header yet"
done_testing
