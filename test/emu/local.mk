# SPDX-License-Identifier: BSD-3-Clause
# Ranks as threads of one process on the emulated device: libocclcore_emu.la, no MPI.
# A test is test/emu/NAME.c; add NAME to the list.

EMU_CPPFLAGS = -DOCCL_EMU=1 $(AM_CPPFLAGS)
EMU_LIBS = test/emu/libemu.la libocclcore_emu.la $(TAP_LIBS)
check_LTLIBRARIES += test/emu/libemu.la
test_emu_libemu_la_SOURCES = test/emu/emu.c test/emu/emu.h
test_emu_libemu_la_CPPFLAGS = $(EMU_CPPFLAGS)

emu_tests = test/emu/colls test/emu/order test/emu/late test/emu/errors test/emu/cancel test/emu/device test/emu/queue test/emu/wake test/emu/far test/emu/stage
check_PROGRAMS += $(emu_tests)
TESTS += $(emu_tests:=.t)

test_emu_colls_SOURCES = test/emu/colls.c
test_emu_colls_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_colls_LDADD = $(EMU_LIBS)
test_emu_colls_LDFLAGS = $(occl_test_ldflags)
test_emu_order_SOURCES = test/emu/order.c
test_emu_order_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_order_LDADD = $(EMU_LIBS)
test_emu_order_LDFLAGS = $(occl_test_ldflags)
test_emu_late_SOURCES = test/emu/late.c
test_emu_late_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_late_LDADD = $(EMU_LIBS)
test_emu_late_LDFLAGS = $(occl_test_ldflags)
test_emu_errors_SOURCES = test/emu/errors.c
test_emu_errors_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_errors_LDADD = $(EMU_LIBS)
test_emu_errors_LDFLAGS = $(occl_test_ldflags)
test_emu_cancel_SOURCES = test/emu/cancel.c
test_emu_cancel_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_cancel_LDADD = $(EMU_LIBS)
test_emu_cancel_LDFLAGS = $(occl_test_ldflags)
test_emu_device_SOURCES = test/emu/device.c
test_emu_device_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_device_LDADD = $(EMU_LIBS)
test_emu_device_LDFLAGS = $(occl_test_ldflags)
test_emu_queue_SOURCES = test/emu/queue.c
test_emu_queue_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_queue_LDADD = $(EMU_LIBS)
test_emu_queue_LDFLAGS = $(occl_test_ldflags)
test_emu_wake_SOURCES = test/emu/wake.c
test_emu_wake_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_wake_LDADD = $(EMU_LIBS)
test_emu_wake_LDFLAGS = $(occl_test_ldflags)
test_emu_far_SOURCES = test/emu/far.c
test_emu_far_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_far_LDADD = $(EMU_LIBS)
test_emu_far_LDFLAGS = $(occl_test_ldflags)
test_emu_stage_SOURCES = test/emu/stage.c
test_emu_stage_CPPFLAGS = $(EMU_CPPFLAGS)
test_emu_stage_LDADD = $(EMU_LIBS)
test_emu_stage_LDFLAGS = $(occl_test_ldflags)
