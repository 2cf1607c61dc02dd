# SPDX-License-Identifier: BSD-3-Clause
# Which MPI: the compiler names it (CC=mpicc.X), the launcher must fit it.

# OCCL_PROG_MPICC: where CC comes from, for the launcher and FC that go with it
AC_DEFUN([OCCL_PROG_MPICC], [
AC_ARG_VAR([MPIEXEC], [launcher of the same MPI as CC, e.g. mpiexec.openmpi])
# mpicc.mpich -> .mpich, /opt/x/bin/mpicc -> directory /opt/x/bin
set dummy $CC
occl_cc_dir=`AS_DIRNAME(["$[2]"])`
AS_CASE([$[2]], [*/*], [], [occl_cc_dir=])
occl_cc_suffix=`AS_ECHO(["$[2]"]) | sed -n 's,^\(.*/\)*mpicc,,p'`
])

# OCCL_CHECK_MPI: header, flavour, launcher, and a run of two ranks
AC_DEFUN([OCCL_CHECK_MPI], [
AC_ARG_ENABLE([mpi-run-check],
  [AS_HELP_STRING([--disable-mpi-run-check],
    [do not start a 2-rank program to see whether MPIEXEC fits CC (as when cross compiling)])],
  [], [enable_mpi_run_check=yes])

AC_MSG_CHECKING([whether $CC builds MPI programs])
AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>]], [[MPI_Init(0, 0);]])],
  [AC_MSG_RESULT([yes])],
  [AC_MSG_RESULT([no])
   AC_MSG_ERROR([$CC cannot build an MPI program. Name the compiler of an MPI,
as CC=mpicc.openmpi or CC=mpicc.mpich. On Debian and Ubuntu: apt-get install libopenmpi-dev openmpi-bin])])

AC_CACHE_CHECK([which MPI $CC belongs to], [occl_cv_mpi_flavour], [
  occl_cv_mpi_flavour=other
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef OPEN_MPI
#error no
#endif]], [])], [occl_cv_mpi_flavour=openmpi])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <mpi.h>
#ifndef MPICH
#error no
#endif]], [])], [occl_cv_mpi_flavour=mpich])
])
OCCL_MPI=$occl_cv_mpi_flavour
AC_SUBST([OCCL_MPI])
AM_CONDITIONAL([MPI_IS_OPENMPI], [test "x$OCCL_MPI" = xopenmpi])
AM_CONDITIONAL([MPI_IS_MPICH], [test "x$OCCL_MPI" = xmpich])
AC_CHECK_FUNCS([MPIX_Grequest_start])

# Files that see <mpi.h>. gcc 12 warns of MPI_STATUSES_IGNORE in MPICH's header
# (an address of 1 that it takes for an object of size 0): false, so off.
OCCL_MPI_CFLAGS=
AS_IF([test "x$OCCL_MPI" = xmpich], [OCCL_TRY_CFLAG([-Wno-stringop-overflow], [OCCL_MPI_CFLAGS])])
AC_SUBST([OCCL_MPI_CFLAGS])

# What a program needs that is not compiled by mpicc (CMake, pkg-config). Taken
# from the wrapper itself: both MPIs answer -show, and it cannot belong to
# another MPI than the one we build with, as a .pc file found by name could.
OCCL_MPI_PC_CFLAGS= OCCL_MPI_PC_LIBS=
occl_show=`$CC -show 2>/dev/null` || occl_show=
for occl_word in $occl_show; do
  AS_CASE([$occl_word],
    [-I*|-D*], [AS_VAR_APPEND([OCCL_MPI_PC_CFLAGS], [" $occl_word"])],
    [-L*|-l*|-Wl,-rpath*|-Wl,--enable-new-dtags], [AS_VAR_APPEND([OCCL_MPI_PC_LIBS], [" $occl_word"])])
done
AC_SUBST([OCCL_MPI_PC_CFLAGS])
AC_SUBST([OCCL_MPI_PC_LIBS])

# The launcher. AC_PATH_PROGS would ignore MPIEXEC=mpiexec.mpich (it is not
# absolute) and take another MPI's, under which every rank believes it is alone.
AS_IF([test -z "$MPIEXEC" && test -n "$occl_cc_dir"], [
  for occl_try in "$occl_cc_dir/mpiexec$occl_cc_suffix" "$occl_cc_dir/mpirun$occl_cc_suffix"; do
    AS_IF([test -z "$MPIEXEC" && AS_EXECUTABLE_P(["$occl_try"])], [MPIEXEC=$occl_try])
  done])
AC_CHECK_PROGS([MPIEXEC], [mpiexec$occl_cc_suffix mpirun$occl_cc_suffix mpiexec.$OCCL_MPI mpiexec mpirun], [])

AC_MSG_CHECKING([whether $MPIEXEC starts 2 ranks of this MPI])
AS_IF([test "x$cross_compiling" = xyes || test "x$enable_mpi_run_check" = xno],
    [occl_mpi_run=skipped; AC_MSG_RESULT([not tried])],
  [test -z "$MPIEXEC"],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([no mpiexec was found: name the launcher of this MPI by MPIEXEC=...])],
  [occl_mpi_run=no
   AC_LINK_IFELSE([AC_LANG_SOURCE([[
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("occl-size=%d\n", size);
    MPI_Finalize();
    return 0;
}]])], [
     occl_timeout=; timeout 1 true >/dev/null 2>&1 && occl_timeout="timeout 60"
     # For this run only: root may start it, one core may hold both ranks.
     occl_out=`OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
       OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
       PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
       $occl_timeout $MPIEXEC -n 2 ./conftest$EXEEXT 2>&AS_MESSAGE_LOG_FD </dev/null`
     AS_ECHO(["$occl_out"]) >&AS_MESSAGE_LOG_FD
     occl_size=`AS_ECHO(["$occl_out"]) | sed -n 's/.*occl-size=//p' | sed 1q`
     AS_CASE([$occl_size], [2], [occl_mpi_run=yes])
   ], [occl_size=])
   AC_MSG_RESULT([$occl_mpi_run])
   AS_CASE([$occl_mpi_run/$occl_size],
     [yes/*], [],
     [no/1], [AC_MSG_ERROR([launcher and library do not fit: under "$MPIEXEC -n 2" each rank of a
program built by "$CC" ($OCCL_MPI) believes that it is alone. Name both of one MPI,
as CC=mpicc.mpich MPIEXEC=mpiexec.mpich. (Ubuntu 24.04's own MPICH package has this
fault by itself: use Open MPI there, or an MPICH of your own.)])],
     [AC_MSG_ERROR([launcher and library do not fit: "$MPIEXEC -n 2" did not run a program
built by "$CC" ($OCCL_MPI); config.log has its output. Name both of one MPI, as
CC=mpicc.mpich MPIEXEC=mpiexec.mpich, or give --disable-mpi-run-check when programs cannot run here.])])
  ])
])

# OCCL_MPI_SUFFIX: builds for two MPIs in one prefix
AC_DEFUN([OCCL_MPI_SUFFIX], [
AC_ARG_ENABLE([mpi-suffix],
  [AS_HELP_STRING([--enable-mpi-suffix],
    [name library, pkg-config file, tools and module folders after the MPI, so that
     builds for several MPIs stand in one prefix])],
  [], [enable_mpi_suffix=no])
OCCL_SUFFIX=
AS_CASE([$enable_mpi_suffix], [no], [], [yes], [OCCL_SUFFIX=_$OCCL_MPI], [OCCL_SUFFIX=_$enable_mpi_suffix])
AC_SUBST([OCCL_SUFFIX])
OCCL_MODDIR=$with_fortran_moddir
AS_IF([test -z "$OCCL_MODDIR"], [AS_IF([test -z "$OCCL_SUFFIX"], [OCCL_MODDIR='${includedir}'],
  [OCCL_MODDIR="\${includedir}/mpix_occl$OCCL_SUFFIX"])])
AC_SUBST([OCCL_MODDIR])
# Tools only (occl_perf -> occl_perf_mpich, and their man pages); pages of
# functions say the same for every MPI and keep their names.
AS_IF([test -n "$OCCL_SUFFIX"], [
  AS_IF([test "x$program_transform_name" = "xs,x,x,"], [program_transform_name=],
    [program_transform_name="$program_transform_name;"])
  program_transform_name="${program_transform_name}s,^occl_.*,&$OCCL_SUFFIX,"])
])
