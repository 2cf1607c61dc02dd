# SPDX-License-Identifier: BSD-3-Clause
# Fortran is optional: the bindings are left out without it, and nothing else changes.

AC_DEFUN([OCCL_PROG_FC], [
AC_ARG_ENABLE([fortran],
  [AS_HELP_STRING([--disable-fortran], [leave the Fortran side out])],
  [], [enable_fortran=auto])
AC_ARG_WITH([fortran-moddir],
  [AS_HELP_STRING([--with-fortran-moddir=DIR], [where the .mod files go; they are of this compiler and this MPI
     @<:@INCLUDEDIR, with --enable-mpi-suffix INCLUDEDIR/mpix_occl_MPI@:>@])],
  [], [with_fortran_moddir=])
AS_IF([test "x$enable_fortran" = xno], [FC=no])
# The wrapper beside the C one, never another MPI's
AS_IF([test -z "$FC" && test -n "$occl_cc_dir"], [
  AS_IF([AS_EXECUTABLE_P(["$occl_cc_dir/mpifort$occl_cc_suffix"])], [FC=$occl_cc_dir/mpifort$occl_cc_suffix])])
AC_PROG_FC([mpifort$occl_cc_suffix])
])

# OCCL_FC_TRY(WHAT, PROGRAM): if nothing was missing yet, does it compile and link? If not, WHAT is missing.
AC_DEFUN([OCCL_FC_TRY], [
AS_IF([test -z "$occl_fortran_why"], [
  AC_MSG_CHECKING([whether $FC has $1])
  AC_LINK_IFELSE([AC_LANG_SOURCE([$2])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no]); occl_fortran_why="$FC lacks $1"])])
])

# OCCL_FC_FLAG(FLAG, VARIABLE): set the variable to the flag if the compiler takes it
AC_DEFUN([OCCL_FC_FLAG], [
AC_MSG_CHECKING([whether $FC accepts $1])
occl_save_FCFLAGS=$FCFLAGS
FCFLAGS="$FCFLAGS $1"
AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
program conftest
end program]])], [AC_MSG_RESULT([yes]); $2="$1"], [AC_MSG_RESULT([no]); $2=])
FCFLAGS=$occl_save_FCFLAGS
AC_SUBST([$2])
])

AC_DEFUN([OCCL_CHECK_FORTRAN], [
occl_fortran_why=
FC_MODOUT= FC_QUIET= FC_ARGUMENT_MISMATCH= OCCL_FC_DEFS=
AS_IF([test "x$enable_fortran" = xno], [occl_fortran_why="--disable-fortran"],
  [test -z "$FC" || test "x$FC" = xno], [occl_fortran_why="no Fortran compiler of this MPI was found; name it by FC=mpifort.X"])

AS_IF([test -z "$occl_fortran_why"], [
  # The C side of what the bindings are made of: descriptors, and a name as Fortran spells it
  AC_MSG_CHECKING([whether $CC knows the descriptors of $FC])
  AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#include <mpi.h>
#include <ISO_Fortran_binding.h>
int occl_conf_check;
void occl_conf(const CFI_cdesc_t *buf, const MPI_Fint *comm, MPI_Fint *ierror)
{
    occl_conf_check = CFI_is_contiguous(buf) + (MPI_Comm_f2c(*comm) == MPI_COMM_NULL);
    if (ierror)
        *ierror = 0;
}]])], [AC_MSG_RESULT([yes]); cp conftest.$ac_objext conftst_c.$ac_objext],
    [AC_MSG_RESULT([no]); occl_fortran_why="$CC finds no ISO_Fortran_binding.h"])])

AS_IF([test -z "$occl_fortran_why"], [
  occl_save_srcext=$ac_fc_srcext occl_save_LIBS=$LIBS
  ac_fc_srcext=f90
  AC_LANG_PUSH([Fortran])
  # An INTEGER of another size than MPI's does not compile: 1 is one
  OCCL_FC_TRY([the module mpi of this MPI], [[
program conftest
use mpi
implicit none
integer :: ierror
call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
end program]])
  # What the module mpix_occl_f08 is made of
  LIBS="conftst_c.$ac_objext $LIBS"
  OCCL_FC_TRY([the module mpi_f08 of this MPI and assumed rank], [[
program conftest
use mpi_f08
use, intrinsic :: iso_c_binding
implicit none
interface
subroutine occl_conf(buf, comm, ierror) bind(C, name="occl_conf")
import
type(*), dimension(..), intent(in), asynchronous :: buf
!DIR$ IGNORE_TKR(d) buf
type(MPI_Comm), intent(in) :: comm
integer, optional, intent(out) :: ierror
end subroutine
end interface
real :: a(4,4)
a = 0
call occl_conf(a(1:4:2,:), MPI_COMM_WORLD)
call occl_conf(a(1,1), MPI_COMM_WORLD)
call MPI_Abort(MPI_COMM_WORLD, 1)
end program]])
  LIBS=$occl_save_LIBS

  AS_IF([test -z "$occl_fortran_why"], [
    AC_MSG_CHECKING([for the flag of $FC that names the folder of modules])
    mkdir conftst.mod
    occl_save_FCFLAGS=$FCFLAGS
    for occl_flag in -J -module@%:@ -mdir@%:@ -moddir=; do
      occl_flag=`AS_ECHO(["$occl_flag"]) | sed 's/@%:@/ /'`
      FCFLAGS="$occl_save_FCFLAGS ${occl_flag}conftst.mod"
      AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
module occl_conf_module
end module]])], [AS_IF([test -f conftst.mod/occl_conf_module.mod], [FC_MODOUT=$occl_flag; break])])
    done
    FCFLAGS=$occl_save_FCFLAGS
    rm -f -r conftst.mod occl_conf_module.mod
    AS_IF([test -n "$FC_MODOUT"], [AC_MSG_RESULT([$FC_MODOUT])],
      [AC_MSG_RESULT([none]); occl_fortran_why="no flag is known for the folder of modules of $FC"])])

  AS_IF([test -z "$occl_fortran_why"], [
    OCCL_FC_FLAG([-Wno-c-binding-type -Wno-missing-include-dirs], [FC_QUIET])
    # mpif.h has no interfaces: gfortran 10 and later wants buffers of one type in all calls of a program unit
    OCCL_FC_FLAG([-fallow-argument-mismatch -w], [FC_ARGUMENT_MISMATCH])
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
subroutine occl_conf_name()
end subroutine]])], [cp conftest.$ac_objext conftst_f.$ac_objext])])
  AC_LANG_POP([Fortran])
  ac_fc_srcext=$occl_save_srcext

  AS_IF([test -z "$occl_fortran_why"], [
    AC_MSG_CHECKING([how $FC spells names])
    occl_spelling=
    LIBS="conftst_f.$ac_objext $LIBS"
    for occl_try in occl_conf_name_ occl_conf_name occl_conf_name__ OCCL_CONF_NAME; do
      AC_LINK_IFELSE([AC_LANG_SOURCE([void $occl_try(void); int main(void) { $occl_try(); return 0; }])],
        [occl_spelling=$occl_try; break])
    done
    LIBS=$occl_save_LIBS
    AS_CASE([$occl_spelling],
      [occl_conf_name_], [occl_fc_name='lower @%:@@%:@ _'],
      [occl_conf_name__], [occl_fc_name='lower @%:@@%:@ __'],
      [occl_conf_name], [occl_fc_name='lower'],
      [OCCL_CONF_NAME], [occl_fc_name='upper'],
      [occl_fortran_why="names are spelt by $FC in no way that is known"])
    AC_MSG_RESULT([${occl_spelling:-unknown}])
    AS_IF([test -n "$occl_spelling"],
      [AC_DEFINE_UNQUOTED([OCCL_FC_NAME(lower, upper)], [$occl_fc_name], [how Fortran spells a name with underscores])])
    # Without generic names for large counts then: both forms would be the same
    AC_COMPILE_IFELSE([AC_LANG_SOURCE([[#include <mpi.h>
char occl_conf[sizeof(MPI_Fint) == 8 ? 1 : -1];]])], [OCCL_FC_DEFS=-DOCCL_INTEGER8])])
])
rm -f conftst_c.$ac_objext conftst_f.$ac_objext
AS_IF([test -z "$occl_fortran_why"], [occl_fortran=yes], [occl_fortran=no])
AS_IF([test "x$enable_fortran" = xyes && test "x$occl_fortran" = xno],
  [AC_MSG_ERROR([--enable-fortran: $occl_fortran_why])])
AC_SUBST([OCCL_FORTRAN], [$occl_fortran])
AC_SUBST([FC_MODOUT])
AC_SUBST([OCCL_FC_DEFS])
AM_CONDITIONAL([HAVE_FORTRAN], [test "x$occl_fortran" = xyes])
])
