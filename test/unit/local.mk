# SPDX-License-Identifier: BSD-3-Clause
# Unit tests: one process, no MPI, mostly linked to the emulation build of the core.
# test/local.mk says how to add one.

unit_util_tests = test/unit/env test/unit/hash test/unit/log
unit_transport_tests = test/unit/arena test/unit/cma
check_PROGRAMS += $(unit_util_tests) $(unit_transport_tests)
TESTS += $(unit_util_tests:=.t) $(unit_transport_tests:=.t)
SMOKE_TESTS += $(unit_util_tests:=.t) $(unit_transport_tests:=.t)

test_unit_env_SOURCES = test/unit/env.c
test_unit_env_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_env_LDFLAGS = $(occl_test_ldflags)
test_unit_hash_SOURCES = test/unit/hash.c
test_unit_hash_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_hash_LDFLAGS = $(occl_test_ldflags)
test_unit_log_SOURCES = test/unit/log.c
test_unit_log_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_log_LDFLAGS = $(occl_test_ldflags)
test_unit_arena_SOURCES = test/unit/arena.c test/unit/pair.h
test_unit_arena_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_arena_LDFLAGS = $(occl_test_ldflags)
test_unit_cma_SOURCES = test/unit/cma.c test/unit/pair.h
test_unit_cma_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_cma_LDFLAGS = $(occl_test_ldflags)

# The payload loops, as produced (-O3) and with several lanes a block
check_PROGRAMS += test/unit/data test/unit/data_emu
test_unit_data_SOURCES = test/unit/data.c
test_unit_data_CFLAGS = $(OCCL_BASE_CFLAGS) $(OCCL_KERNEL_CFLAGS)
test_unit_data_LDADD = $(TAP_LIBS) -lpthread
test_unit_data_LDFLAGS = $(occl_test_ldflags)
test_unit_data_emu_SOURCES = test/unit/data.c
test_unit_data_emu_CPPFLAGS = -DOCCL_EMU=1 $(AM_CPPFLAGS)
test_unit_data_emu_LDADD = $(TAP_LIBS) -lpthread
test_unit_data_emu_LDFLAGS = $(occl_test_ldflags)
TESTS += test/unit/data.t test/unit/data_emu.t
SMOKE_TESTS += test/unit/data_emu.t
# The same cases on a GPU; how to build it stands in the file.
EXTRA_DIST += test/gpu/data.cu

# planners
unit_plan_tests = test/unit/plan test/unit/select
check_PROGRAMS += $(unit_plan_tests)
TESTS += $(unit_plan_tests:=.t)
SMOKE_TESTS += test/unit/select.t
test_unit_plan_SOURCES = test/unit/plan.c
test_unit_plan_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_plan_LDFLAGS = $(occl_test_ldflags)
test_unit_select_SOURCES = test/unit/select.c
test_unit_select_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_select_LDFLAGS = $(occl_test_ldflags)

# Users' buffers on a GPU, over a driver that the test plays: CUDA's headers, and nothing else of it
if HAVE_CUDA
check_PROGRAMS += test/unit/ipc
TESTS += test/unit/ipc.t
test_unit_ipc_SOURCES = test/unit/ipc.c
test_unit_ipc_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
test_unit_ipc_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_ipc_LDFLAGS = $(occl_test_ldflags)
else !HAVE_CUDA
EXTRA_DIST += test/unit/ipc.c
endif !HAVE_CUDA

# When the CUDA device launches, over a driver and a GPU that the test plays
check_PROGRAMS += test/unit/launches
TESTS += test/unit/launches.t
test_unit_launches_SOURCES = test/unit/launches.c
test_unit_launches_CPPFLAGS = $(AM_CPPFLAGS) -DOCCL_HAVE_CUDA_DEVICE=1
test_unit_launches_LDADD = libocclcore_emu.la $(TAP_LIBS)
test_unit_launches_LDFLAGS = $(occl_test_ldflags)
