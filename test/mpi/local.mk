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

# vectors: blocks with a length each, scans, neighbours; all forms and counts
check_PROGRAMS += test/mpi/vectors
test_mpi_vectors_SOURCES = test/mpi/vectors.c
test_mpi_vectors_LDADD = $(occl_mpi_test_libs)
test_mpi_vectors_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/vectors-n4.t
SMOKE_TESTS += test/mpi/vectors-n4.t

# types_ops: every type with every op, derived types, ops of the program; on 1 and on all ranks
check_PROGRAMS += test/mpi/types_ops
test_mpi_types_ops_SOURCES = test/mpi/types_ops.c
test_mpi_types_ops_LDADD = $(occl_mpi_test_libs) -lm
test_mpi_types_ops_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/types_ops-n2.t test/mpi/types_ops-n3.t test/mpi/types_ops-n4.t
SMOKE_TESTS += test/mpi/types_ops-n3.t

# large: a buffer of more than 2^31 elements
check_PROGRAMS += test/mpi/large
test_mpi_large_SOURCES = test/mpi/large.c
test_mpi_large_LDADD = $(occl_mpi_test_libs)
test_mpi_large_LDFLAGS = $(occl_test_ldflags)
LONG_TESTS += test/mpi/large-n2.t

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

# requests: one program a thread level
check_PROGRAMS += test/mpi/requests_single
test_mpi_requests_single_SOURCES = test/mpi/requests.c
test_mpi_requests_single_CPPFLAGS = $(AM_CPPFLAGS) -DLEVEL=MPI_THREAD_SINGLE
test_mpi_requests_single_LDADD = $(occl_mpi_test_libs)
test_mpi_requests_single_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/requests_single-n2.t
check_PROGRAMS += test/mpi/requests_funneled
test_mpi_requests_funneled_SOURCES = test/mpi/requests.c
test_mpi_requests_funneled_CPPFLAGS = $(AM_CPPFLAGS) -DLEVEL=MPI_THREAD_FUNNELED
test_mpi_requests_funneled_LDADD = $(occl_mpi_test_libs)
test_mpi_requests_funneled_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/requests_funneled-n2.t
check_PROGRAMS += test/mpi/requests_multiple
test_mpi_requests_multiple_SOURCES = test/mpi/requests.c
test_mpi_requests_multiple_CPPFLAGS = $(AM_CPPFLAGS) -DLEVEL=MPI_THREAD_MULTIPLE
test_mpi_requests_multiple_LDADD = $(occl_mpi_test_libs)
test_mpi_requests_multiple_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/requests_multiple-n2.t
SMOKE_TESTS += test/mpi/requests_single-n2.t

# errors: wrong arguments, ranks that disagree
check_PROGRAMS += test/mpi/errors
test_mpi_errors_SOURCES = test/mpi/errors.c
test_mpi_errors_LDADD = $(occl_mpi_test_libs)
test_mpi_errors_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/errors-n3.t
SMOKE_TESTS += test/mpi/errors-n3.t

# enqueue_host: stream order on host queues
check_PROGRAMS += test/mpi/enqueue_host
test_mpi_enqueue_host_SOURCES = test/mpi/enqueue_host.c
test_mpi_enqueue_host_LDADD = $(occl_mpi_test_libs)
test_mpi_enqueue_host_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/enqueue_host-n4.t
SMOKE_TESTS += test/mpi/enqueue_host-n4.t

# traffic: the program's own messages beside ours
check_PROGRAMS += test/mpi/traffic
test_mpi_traffic_SOURCES = test/mpi/traffic.c
test_mpi_traffic_LDADD = $(occl_mpi_test_libs)
test_mpi_traffic_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/traffic-n4.t

# threads: MPI_THREAD_MULTIPLE
check_PROGRAMS += test/mpi/threads
test_mpi_threads_SOURCES = test/mpi/threads.c
test_mpi_threads_LDADD = $(occl_mpi_test_libs) -lpthread
test_mpi_threads_LDFLAGS = $(occl_test_ldflags)
TESTS += test/mpi/threads-n2.t

# ending: what is forgotten at MPI_Finalize; exit codes. The script starts the program several times.
check_PROGRAMS += test/mpi/ending_prog
test_mpi_ending_prog_SOURCES = test/mpi/ending_prog.c
test_mpi_ending_prog_LDADD = $(OCCL_LIB)
test_mpi_ending_prog_LDFLAGS = $(occl_test_ldflags)
dist_check_SCRIPTS += test/mpi/ending.t
TESTS += test/mpi/ending.t
