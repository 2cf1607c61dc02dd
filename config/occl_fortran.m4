# SPDX-License-Identifier: BSD-3-Clause
# Fortran is optional: bindings are left out without it.

AC_DEFUN([OCCL_PROG_FC], [
AC_ARG_ENABLE([fortran],
  [AS_HELP_STRING([--disable-fortran], [leave the Fortran side out])],
  [], [enable_fortran=auto])
AS_IF([test "x$enable_fortran" = xno], [FC=no])
# The wrapper beside the C one, never another MPI's
AS_IF([test -z "$FC" && test -n "$occl_cc_dir"], [
  AS_IF([AS_EXECUTABLE_P(["$occl_cc_dir/mpifort$occl_cc_suffix"])], [FC=$occl_cc_dir/mpifort$occl_cc_suffix])])
AC_PROG_FC([mpifort$occl_cc_suffix])
])

AC_DEFUN([OCCL_CHECK_FORTRAN], [
occl_fortran=no
AS_IF([test -n "$FC" && test "x$FC" != xno], [
  AC_MSG_CHECKING([whether $FC knows mpi_f08 of this MPI])
  AC_LANG_PUSH([Fortran])
  AC_LINK_IFELSE([AC_LANG_SOURCE([[
      program conftest
      use mpi_f08
      implicit none
      call MPI_Init()
      end program]])], [occl_fortran=yes])
  AC_LANG_POP([Fortran])
  AC_MSG_RESULT([$occl_fortran])])
AS_IF([test "x$enable_fortran" = xyes && test "x$occl_fortran" = xno],
  [AC_MSG_ERROR([--enable-fortran: no working Fortran compiler of this MPI; name it by FC=mpifort.X])])
AM_CONDITIONAL([HAVE_FORTRAN], [test "x$occl_fortran" = xyes])
])
