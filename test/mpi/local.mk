# SPDX-License-Identifier: BSD-3-Clause
# Programs of several ranks under MPIEXEC; each launch costs 2 s, so few of them.

EXTRA_DIST += test/mpi/occl_test.h
occl_mpi_test_libs = $(TAP_MPI_LIBS) $(OCCL_LIB)

# colls: every operation against MPI's own, on 1 to 4 ranks
check_PROGRAMS += test/mpi/colls
test_mpi_colls_SOURCES = test/mpi/colls.c
test_mpi_colls_LDADD = $(occl_mpi_test_libs)
test_mpi_colls_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/colls-n4.t
SMOKE_TESTS += test/mpi/colls-n4.t

# attach: what can be attached, counting, clean-up, agreement
check_PROGRAMS += test/mpi/attach
test_mpi_attach_SOURCES = test/mpi/attach.c
test_mpi_attach_LDADD = $(occl_mpi_test_libs)
test_mpi_attach_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/attach-n2.t test/mpi/attach-n3.t
SMOKE_TESTS += test/mpi/attach-n2.t

check_PROGRAMS += test/mpi/attach_long
test_mpi_attach_long_SOURCES = test/mpi/attach.c
test_mpi_attach_long_CPPFLAGS = $(AM_CPPFLAGS) -DROUNDS=5000
test_mpi_attach_long_LDADD = $(occl_mpi_test_libs)
test_mpi_attach_long_LDFLAGS = $(occl_test_ldflags)
LONG_TESTS += test/mpi/attach_long-n2.t
