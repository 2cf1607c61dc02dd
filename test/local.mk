# SPDX-License-Identifier: BSD-3-Clause
# Tests. A test is a line in TESTS that ends in .t; the program behind it has
# the same name without .t, and without -nK, the number of ranks:
#
#   check_PROGRAMS += test/mpi/bcast            (one program ...)
#   test_mpi_bcast_SOURCES = test/mpi/bcast.c
#   test_mpi_bcast_LDADD = $(TAP_MPI_LIBS) $(OCCL_LIB)
#   test_mpi_bcast_LDFLAGS = $(occl_test_ldflags)
#   TESTS += test/mpi/bcast-n2.t test/mpi/bcast-n4.t     (... two runs)
#
# Short ones that distcheck should run: SMOKE_TESTS += as well. Long ones
# (fuzz, soak, mutants): LONG_TESTS += instead; `make check-long` runs them.
# `make check OCCL_CHECK_SET=smoke` or `=emu` (unit, emu and tap only) runs a part.

TEST_EXTENSIONS = .t
T_LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/config/tap-driver.sh
T_LOG_COMPILER = $(SHELL) $(srcdir)/test/tap/run-tap
EXTRA_DIST += test/tap/run-tap

AM_TESTS_ENVIRONMENT = \
	MPIEXEC='$(MPIEXEC)'; OCCL_MPI='$(OCCL_MPI)'; OCCL_SUFFIX='@OCCL_SUFFIX@'; \
	top_srcdir='$(top_srcdir)'; top_builddir='$(top_builddir)'; \
	CC='$(CC)'; FC='$(FC)'; HAVE_FORTRAN='@OCCL_FORTRAN@'; TEST_CXX='$(TEST_CXX)'; NM='$(NM)'; MAKE='$(MAKE)'; \
	GROFF='$(GROFF)'; MANDOC='$(MANDOC)'; CMAKE='$(CMAKE)'; PKG_CONFIG='$(PKG_CONFIG)'; \
	NVCC='$(NVCC)'; CUDA_CPPFLAGS='$(CUDA_CPPFLAGS)'; OCCL_MPI_CFLAGS='$(OCCL_MPI_CFLAGS)'; \
	OCCL_MPI_PC_CFLAGS='$(OCCL_MPI_PC_CFLAGS)'; SANITIZED='$(OCCL_SANITIZER_FLAGS)'; \
	export MPIEXEC OCCL_MPI OCCL_SUFFIX top_srcdir top_builddir CC FC HAVE_FORTRAN TEST_CXX NM MAKE GROFF \
	  MANDOC CMAKE PKG_CONFIG NVCC CUDA_CPPFLAGS OCCL_MPI_CFLAGS OCCL_MPI_PC_CFLAGS SANITIZED;

# The parts of the tests that can be asked for by OCCL_CHECK_SET (make or environment)
OCCL_SET_all =
OCCL_SET_smoke = TESTS='$(SMOKE_TESTS)'
OCCL_SET_emu = TESTS='$(filter test/tap/tap.t test/unit/% test/emu/%,$(TESTS))'
OCCL_SET_tree = TESTS='$(filter test/tree/%,$(TESTS))'
OCCL_SET_mpi = TESTS='$(filter test/tap/% test/mpi/% test/fortran/%,$(TESTS))'
AM_MAKEFLAGS = $(OCCL_SET_$(or $(OCCL_CHECK_SET),$(OCCL_DEFAULT_CHECK_SET)))

# What `make distcheck` configures its copy with: the same MPI, the short tests
AM_DISTCHECK_CONFIGURE_FLAGS = CC='$(CC)' FC='$(FC)' MPIEXEC='$(MPIEXEC)' --enable-smoke-check \
	$(OCCL_DISTCHECK_FLAGS)

check-long: all
	$(MAKE) check OCCL_CHECK_SET=all TESTS='$(LONG_TESTS)' OCCL_TEST_TIMEOUT=$${OCCL_TEST_TIMEOUT:-1800}
.PHONY: check-long

# A test is a link to its program. -no-install: the program itself, not libtool's
# script around it, so that a link to it works and mpiexec starts one process less.
occl_test_ldflags = $(AM_LDFLAGS) -no-install
OCCL_LINK_TEST = $(AM_V_at)rm -f $@ && $(LN_S) $(<F) $@
%-n1.t: %$(EXEEXT)
	$(OCCL_LINK_TEST)
%-n2.t: %$(EXEEXT)
	$(OCCL_LINK_TEST)
%-n3.t: %$(EXEEXT)
	$(OCCL_LINK_TEST)
%-n4.t: %$(EXEEXT)
	$(OCCL_LINK_TEST)
%-n8.t: %$(EXEEXT)
	$(OCCL_LINK_TEST)
%.t: %$(EXEEXT)
	$(OCCL_LINK_TEST)

# Kept, to be run by hand: make would remove them as intermediate files.
.PRECIOUS: %-n1.t %-n2.t %-n3.t %-n4.t %-n8.t %.t

# `make clean`: the links of whatever run
clean-local: occl-clean-tests
occl-clean-tests:
	-find test -name '*.t' -type l -exec rm -f {} +
.PHONY: occl-clean-tests

#------------------------------------------------------------------------------
# tap: the helper, and its own tests
#------------------------------------------------------------------------------
check_LTLIBRARIES += test/tap/libtap.la test/tap/libtapmpi.la
test_tap_libtap_la_SOURCES = test/tap/tap.c test/tap/tap.h
test_tap_libtapmpi_la_SOURCES = test/tap/tap_mpi.c test/tap/tap_mpi.h
test_tap_libtap_la_LIBTOOLFLAGS = $(occl_once)
test_tap_libtapmpi_la_LIBTOOLFLAGS = $(occl_once)
TAP_CPPFLAGS = -I$(srcdir)/test/tap
TAP_LIBS = test/tap/libtap.la -lm
TAP_MPI_LIBS = test/tap/libtapmpi.la test/tap/libtap.la -lm
AM_CPPFLAGS += $(TAP_CPPFLAGS)

check_PROGRAMS += test/tap/tap
test_tap_tap_SOURCES = test/tap/tap_test.c
test_tap_tap_LDADD = $(TAP_LIBS)
test_tap_tap_LDFLAGS = $(occl_test_ldflags)
TESTS += test/tap/tap.t
SMOKE_TESTS += test/tap/tap.t

check_PROGRAMS += test/tap/tapmpi
test_tap_tapmpi_SOURCES = test/tap/tap_mpi_test.c
test_tap_tapmpi_LDADD = $(TAP_MPI_LIBS)
test_tap_tapmpi_LDFLAGS = $(occl_test_ldflags)
TESTS += test/tap/tapmpi-n2.t
SMOKE_TESTS += test/tap/tapmpi-n2.t
EXTRA_DIST += test/tap/tap.sh

TESTS += test/tap/run_tap.t

#------------------------------------------------------------------------------
# tree: tests of the tree itself, shell scripts
#------------------------------------------------------------------------------
tree_tests = test/tree/headers.t test/tree/symbols.t test/tree/layering.t test/tree/env.t \
	test/tree/man.t test/tree/docs.t test/tree/examples.t test/tree/nvcc_check.t test/tree/quickstart.t test/tree/coverage.t
# install.t is no part of the smoke set: distcheck installs and uninstalls by itself
dist_check_SCRIPTS = $(tree_tests) test/tree/install.t test/tap/run_tap.t
TESTS += $(tree_tests) test/tree/install.t
SMOKE_TESTS += $(tree_tests)
EXTRA_DIST += test/tree/programs test/tree/examples_main.c
EXTRA_DIST += test/tree/consumer/CMakeLists.txt test/tree/consumer/app.c test/tree/consumer/app.f90 test/tree/consumer/check

#------------------------------------------------------------------------------
# The tools and the main job: shell scripts that start them
#------------------------------------------------------------------------------
tool_tests = test/mpi/tools_cli.t test/mpi/tools_perf.t test/mpi/tools_stress.t test/mpi/train_digits.t test/mpi/examples_run.t
dist_check_SCRIPTS += $(tool_tests) test/mpi/tools_soak.t
TESTS += $(tool_tests)
SMOKE_TESTS += test/mpi/tools_cli.t test/mpi/tools_stress.t
LONG_TESTS += test/mpi/tools_soak.t
EXTRA_DIST += test/tap/launch.sh test/bench/host.sh

#------------------------------------------------------------------------------
# The other folders have a list each
#------------------------------------------------------------------------------
include test/unit/local.mk
include test/emu/local.mk
include test/mpi/local.mk
include test/fortran/local.mk
include test/gpu/local.mk

#------------------------------------------------------------------------------
# mutants: one-line breakages that a named test must notice (make check-long)
#------------------------------------------------------------------------------
dist_check_SCRIPTS += test/mutants/mutants.t test/mutants/run
EXTRA_DIST += test/mutants/list
LONG_TESTS += test/mutants/mutants.t
