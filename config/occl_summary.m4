# SPDX-License-Identifier: BSD-3-Clause
AC_DEFUN([OCCL_SUMMARY], [
AS_IF([test "x$occl_fortran" = xyes], [occl_say_fc="yes ($FC, modules in $OCCL_MODDIR)"],
  [occl_say_fc="no ($occl_fortran_why)"])
AS_IF([test "x$occl_cuda" = xno], [occl_say_cuda="no ($occl_cuda_why)"], [occl_say_cuda="$occl_cuda ($CUDA_DIR)"])
AS_IF([test "x$occl_mpi_run" = xyes], [occl_say_run="2 ranks seen"], [occl_say_run="not tried: nothing was run here"])
# Found for transports and placement to come; no source uses them yet
occl_say_hwloc=$occl_hwloc occl_say_ucx=$occl_ucx
AS_IF([test "x$occl_hwloc" != xno], [occl_say_hwloc="$occl_hwloc (found, not used yet)"])
AS_IF([test "x$occl_ucx" != xno], [occl_say_ucx="$occl_ucx (found, not used yet)"])
AS_ECHO(["
MPIX_Occl $PACKAGE_VERSION, libtool $OCCL_LT_VERSION
  MPI             $OCCL_MPI
  C compiler      $CC
  launcher        $MPIEXEC ($occl_say_run)
  C flags         $OCCL_OPT_CFLAGS $CFLAGS (library core: $OCCL_KERNEL_CFLAGS)
  Fortran         $occl_say_fc
  hwloc           $occl_say_hwloc
  UCX             $occl_say_ucx
  CUDA            $occl_say_cuda
  version script  $occl_cv_version_script
  sanitizers      $enable_sanitizers
  library name    libmpix_occl$OCCL_SUFFIX (shared: $enable_shared, static: $enable_static)
  prefix          $prefix"])
])
