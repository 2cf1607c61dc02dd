# SPDX-License-Identifier: BSD-3-Clause
# CUDA: nvcc and the static runtime. Never -lcuda: a library without it loads on
# a machine without a GPU, where cudaGetDeviceCount then says "no driver".

AC_DEFUN([OCCL_CHECK_CUDA], [
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda=DIR|no], [CUDA toolkit 12.8 or later; default: of the nvcc on PATH])],
  [], [with_cuda=auto])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCC_GENCODE], [GPU architectures, as options of nvcc])
AC_ARG_VAR([NVCCFLAGS], [further options of nvcc])
occl_cuda=no occl_cuda_why="not asked for" CUDA_DIR=
AS_IF([test "x$with_cuda" != xno], [
  AS_CASE([$with_cuda],
    [auto|yes], [AC_PATH_PROGS([NVCC], [nvcc], [], [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
    [CUDA_DIR=$with_cuda; AS_IF([test -z "$NVCC"], [NVCC=$CUDA_DIR/bin/nvcc])])
  occl_cuda_why="no nvcc"
  AS_IF([test -n "$NVCC"], [
    # nvcc itself knows best where it lives, through links and wrapper scripts
    AS_IF([test -z "$CUDA_DIR"], [
      CUDA_DIR=`$NVCC --dryrun -c -x cu /dev/null -o /dev/null 2>&1 | sed -n 's/^#\\$ TOP=//p'`
      CUDA_DIR=`cd "$CUDA_DIR" 2>/dev/null && pwd -P`])
    AS_IF([test -z "$NVCC_GENCODE"], [NVCC_GENCODE="-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90"])
    AC_MSG_CHECKING([whether $NVCC compiles for these GPUs])
    cat >conftest.cu <<_OCCL_EOF
#include <cuda_runtime.h>
#if CUDART_VERSION < 12080
#error CUDA 12.8 or later is needed: __nv_atomic_load_n
#endif
__global__ void k(unsigned *p, unsigned *q)
{
    *q = __nv_atomic_load_n(p, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM);
}
extern "C" int conftest(void) { int n = 0; return (int)cudaGetDeviceCount(&n); }
_OCCL_EOF
    AS_IF([$NVCC $NVCC_GENCODE $NVCCFLAGS -c conftest.cu -o conftest_cu.o >&AS_MESSAGE_LOG_FD 2>&1],
      [AC_MSG_RESULT([yes])
       AC_MSG_CHECKING([for the static CUDA runtime])
       CUDA_LIBDIR=
       for occl_dir in "$CUDA_DIR/lib64" "$CUDA_DIR/lib" "$CUDA_DIR"/targets/*/lib; do
         AS_IF([test -z "$CUDA_LIBDIR" && test -f "$occl_dir/libcudart_static.a"], [CUDA_LIBDIR=$occl_dir])
       done
       CUDA_LIBS="-L$CUDA_LIBDIR -lcudart_static -lrt -lpthread -ldl -lstdc++"
       CUDA_CPPFLAGS="-I$CUDA_DIR/include"
       AS_IF([test -n "$CUDA_LIBDIR"], [
         occl_save_LIBS=$LIBS LIBS="conftest_cu.o $CUDA_LIBS $LIBS"
         AC_LINK_IFELSE([AC_LANG_PROGRAM([[int conftest(void);]], [[return conftest();]])],
           [occl_cuda=`$NVCC --version | sed -n 's/.*release \(@<:@0-9.@:>@*\).*/\1/p'`],
           [occl_cuda_why="linking with libcudart_static failed, see config.log"])
         LIBS=$occl_save_LIBS],
         [occl_cuda_why="no libcudart_static.a under $CUDA_DIR"])
       AC_MSG_RESULT([${CUDA_LIBDIR:-no}])],
      [AC_MSG_RESULT([no]); occl_cuda_why="$NVCC does not compile, see config.log"])
    rm -f conftest.cu conftest_cu.o
  ])
  AS_IF([test "x$occl_cuda" = xno && test "x$with_cuda" != xauto],
    [AC_MSG_ERROR([--with-cuda=$with_cuda: $occl_cuda_why])])
])
AS_IF([test "x$occl_cuda" = xno], [CUDA_LIBS= CUDA_CPPFLAGS=],
  [AC_DEFINE([HAVE_CUDA], [1], [the CUDA device is compiled in])])
AC_SUBST([CUDA_DIR])
AC_SUBST([CUDA_LIBS])
AC_SUBST([CUDA_CPPFLAGS])
AM_CONDITIONAL([HAVE_CUDA], [test "x$occl_cuda" != xno])
])
