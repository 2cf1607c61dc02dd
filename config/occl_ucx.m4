# SPDX-License-Identifier: BSD-3-Clause
# UCX is the RDMA transport between nodes.

AC_DEFUN([OCCL_CHECK_UCX], [
AC_ARG_WITH([ucx], [AS_HELP_STRING([--without-ucx], [do not use UCX])], [], [with_ucx=auto])
occl_ucx=no
AS_IF([test "x$with_ucx" != xno],
  [PKG_CHECK_MODULES([UCX], [ucx >= 1.12],
    [occl_ucx=`$PKG_CONFIG --modversion ucx`
     AC_DEFINE([HAVE_UCX], [1], [UCX is there])],
    [AS_IF([test "x$with_ucx" != xauto], [AC_MSG_ERROR([--with-ucx: UCX 1.12 was not found by pkg-config])])])])
AM_CONDITIONAL([HAVE_UCX], [test "x$occl_ucx" != xno])
])
