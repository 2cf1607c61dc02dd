# SPDX-License-Identifier: BSD-3-Clause
# hwloc tells which cores are near; without it the process's own affinity does.

# Whoever first links it adds $(HWLOC_LIBS) to occl_core_libs in src/local.mk and
# hwloc to OCCL_PC_REQUIRES_PRIVATE here.
AC_DEFUN([OCCL_CHECK_HWLOC], [
AC_ARG_WITH([hwloc], [AS_HELP_STRING([--without-hwloc], [do not use hwloc])], [], [with_hwloc=auto])
occl_hwloc=no
AS_IF([test "x$with_hwloc" != xno],
  [PKG_CHECK_MODULES([HWLOC], [hwloc >= 2.0],
    [occl_hwloc=`$PKG_CONFIG --modversion hwloc`
     AC_DEFINE([HAVE_HWLOC], [1], [hwloc 2 is there])],
    [AS_IF([test "x$with_hwloc" != xauto], [AC_MSG_ERROR([--with-hwloc: hwloc 2 was not found by pkg-config])])])])
AM_CONDITIONAL([HAVE_HWLOC], [test "x$occl_hwloc" != xno])
])
