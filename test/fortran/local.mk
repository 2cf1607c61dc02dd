# SPDX-License-Identifier: BSD-3-Clause
# The Fortran bindings: one text, compiled for each.
EXTRA_DIST += test/fortran/calls.inc test/fortran/colls.inc test/fortran/tapf.F90 test/fortran/tapf_c.c test/fortran/f08.F90 test/fortran/usempi.F90 \
	test/fortran/mpifh.F90
fortran_programs = test/fortran/f08 test/fortran/usempi test/fortran/mpifh
if HAVE_FORTRAN
check_PROGRAMS += $(fortran_programs)
fortran_tests = test/fortran/f08-n2.t test/fortran/usempi-n2.t test/fortran/mpifh-n2.t
TESTS += $(fortran_tests)
SMOKE_TESTS += test/fortran/f08-n2.t
endif HAVE_FORTRAN

fortran_libs = $(OCCL_FORTRAN_LIB) $(OCCL_LIB) $(TAP_MPI_LIBS)
test_fortran_f08_SOURCES = test/fortran/f08.F90 test/fortran/tapf.F90 test/fortran/tapf_c.c
test_fortran_f08_LDADD = $(fortran_libs)
test_fortran_f08_LDFLAGS = $(occl_test_ldflags)
test_fortran_usempi_SOURCES = test/fortran/usempi.F90 test/fortran/tapf.F90 test/fortran/tapf_c.c
test_fortran_usempi_LDADD = $(fortran_libs)
test_fortran_usempi_LDFLAGS = $(occl_test_ldflags)
test_fortran_mpifh_SOURCES = test/fortran/mpifh.F90 test/fortran/tapf.F90 test/fortran/tapf_c.c
test_fortran_mpifh_FCFLAGS = $(AM_FCFLAGS) $(FC_ARGUMENT_MISMATCH)
test_fortran_mpifh_LDADD = $(fortran_libs)
test_fortran_mpifh_LDFLAGS = $(occl_test_ldflags)
test/fortran/f08.$(OBJEXT) test/fortran/usempi.$(OBJEXT): $(occl_modules) test/fortran/calls.inc test/fortran/colls.inc
test/fortran/mpifh-mpifh.$(OBJEXT): test/fortran/calls.inc test/fortran/colls.inc
CLEANFILES += mpi-ext/fortran/calls_f08.mod mpi-ext/fortran/calls_usempi.mod mpi-ext/fortran/calls_mpifh.mod
