# SPDX-License-Identifier: BSD-3-Clause
# Compiler flags, warnings, sanitizers, the version script, the ABI number.

# OCCL_SAVE_USER_FLAGS
# Automake puts CFLAGS last on the command line, so an -O2 there would undo the
# -O3 of the production kernels. We therefore choose the optimisation in flags
# of our own when the user names none, and add nothing when he does.
AC_DEFUN([OCCL_SAVE_USER_FLAGS], [
AS_VAR_SET_IF([CFLAGS], [occl_user_cflags=yes], [occl_user_cflags=no; CFLAGS=-g])
AS_VAR_SET_IF([FCFLAGS], [], [FCFLAGS="-O2 -g"])
])

# OCCL_TRY_CFLAG(FLAG, VARIABLE): append FLAG to VARIABLE if the compiler takes it
AC_DEFUN([OCCL_TRY_CFLAG], [
AC_MSG_CHECKING([whether $CC accepts $1])
occl_save_CFLAGS=$CFLAGS
CFLAGS="$CFLAGS -Werror $1"
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
  [AC_MSG_RESULT([yes]); AS_VAR_APPEND([$2], [" $1"])],
  [AC_MSG_RESULT([no])])
CFLAGS=$occl_save_CFLAGS
])

AC_DEFUN([OCCL_COMPILER_FLAGS], [
AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [for developers: warnings are errors])],
  [], [enable_werror=no])
AC_ARG_ENABLE([sanitizers],
  [AS_HELP_STRING([--enable-sanitizers=address|thread],
    [for developers: address (with undefined) or thread sanitizer])],
  [], [enable_sanitizers=no])

OCCL_BASE_CFLAGS=
OCCL_TRY_CFLAG([-std=gnu11], [OCCL_BASE_CFLAGS])
OCCL_TRY_CFLAG([-Wall], [OCCL_BASE_CFLAGS])
OCCL_TRY_CFLAG([-Wextra], [OCCL_BASE_CFLAGS])
OCCL_TRY_CFLAG([-Wstrict-prototypes], [OCCL_BASE_CFLAGS])
# Same bits everywhere: a reduction must not turn a*b+c into one rounding here
# and two there.
OCCL_TRY_CFLAG([-ffp-contract=off], [OCCL_BASE_CFLAGS])
OCCL_TRY_CFLAG([-pthread], [OCCL_BASE_CFLAGS])

OCCL_OPT_CFLAGS=
OCCL_KERNEL_CFLAGS=
AS_IF([test "x$occl_user_cflags" = xno],
  [OCCL_OPT_CFLAGS="-O2"; OCCL_KERNEL_CFLAGS="-O3"])
# Internal symbols need no PLT slot: only mpi-ext/ has anything to export.
OCCL_TRY_CFLAG([-fvisibility=hidden], [OCCL_KERNEL_CFLAGS])

OCCL_SANITIZER_FLAGS=
AS_CASE([$enable_sanitizers],
  [no], [],
  [address|yes], [enable_sanitizers=address
    OCCL_SANITIZER_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"],
  [thread], [OCCL_SANITIZER_FLAGS="-fsanitize=thread -fno-omit-frame-pointer"],
  [AC_MSG_ERROR([--enable-sanitizers takes address or thread, not "$enable_sanitizers"])])
AS_IF([test -n "$OCCL_SANITIZER_FLAGS"], [
  AC_MSG_CHECKING([whether a program links with $OCCL_SANITIZER_FLAGS])
  occl_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $OCCL_SANITIZER_FLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([the compiler has no runtime for --enable-sanitizers=$enable_sanitizers])])
  CFLAGS=$occl_save_CFLAGS
  dnl gcc warns that ThreadSanitizer does not see fences. Ours order "store mine, then read yours"
  dnl and publish no data, so nothing that it would report hangs on them.
  AS_IF([test "x$enable_sanitizers" = xthread], [OCCL_SANITIZER_FLAGS="$OCCL_SANITIZER_FLAGS -Wno-tsan"])
  OCCL_BASE_CFLAGS="$OCCL_BASE_CFLAGS $OCCL_SANITIZER_FLAGS"
])
AM_CONDITIONAL([SANITIZERS], [test "x$enable_sanitizers" != xno])

AS_IF([test "x$enable_werror" = xyes], [OCCL_BASE_CFLAGS="$OCCL_BASE_CFLAGS -Werror"])

AC_SUBST([OCCL_BASE_CFLAGS])
AC_SUBST([OCCL_OPT_CFLAGS])
AC_SUBST([OCCL_KERNEL_CFLAGS])
AC_SUBST([OCCL_SANITIZER_FLAGS])
])

# OCCL_LIBTOOL_VERSION: c:r:a from VERSION, see the rule there
AC_DEFUN([OCCL_LIBTOOL_VERSION], [
OCCL_LT_VERSION=m4_esyscmd_s([sed -n 's/^libtool=//p' VERSION])
AC_SUBST([OCCL_LT_VERSION])
])

# OCCL_VERSION_SCRIPT: may the linker be told the exported names by a map file?
AC_DEFUN([OCCL_VERSION_SCRIPT], [
AC_CACHE_CHECK([whether the linker takes a version script], [occl_cv_version_script], [
  occl_save_LDFLAGS=$LDFLAGS
  LDFLAGS="$LDFLAGS -shared -fPIC -Wl,--version-script=$srcdir/src/mpix_occl.map"
  AC_LINK_IFELSE([AC_LANG_SOURCE([int MPIX_Occl_conftest(void); int MPIX_Occl_conftest(void) { return 0; }])],
    [occl_cv_version_script=yes], [occl_cv_version_script=no])
  LDFLAGS=$occl_save_LDFLAGS
])
AM_CONDITIONAL([HAVE_VERSION_SCRIPT], [test "x$occl_cv_version_script" = xyes])
])

# OCCL_CHECK_SYSTEM: what we use of the C library
AC_DEFUN([OCCL_CHECK_SYSTEM], [
AC_SEARCH_LIBS([dlsym], [dl])
AC_SEARCH_LIBS([shm_open], [rt])
AC_CHECK_FUNCS([memfd_create process_vm_readv])
])

# OCCL_CHECK_TEST_TOOLS: a missing one skips its test by name, never silently
AC_DEFUN([OCCL_CHECK_TEST_TOOLS], [
AC_ARG_ENABLE([smoke-check],
  [AS_HELP_STRING([--enable-smoke-check], [make check runs the short set only (distcheck asks for it)])],
  [], [enable_smoke_check=no])
AS_IF([test "x$enable_smoke_check" = xno], [OCCL_DEFAULT_CHECK_SET=all], [OCCL_DEFAULT_CHECK_SET=smoke])
AC_SUBST([OCCL_DEFAULT_CHECK_SET])
AC_CHECK_TOOL([NM], [nm], [])
AC_CHECK_PROGS([GROFF], [groff], [])
AC_CHECK_PROGS([MANDOC], [mandoc], [])
AC_CHECK_PROGS([CMAKE], [cmake], [])
AC_CHECK_PROGS([TEST_CXX], [${CXX-g++} c++ clang++], [])
])
