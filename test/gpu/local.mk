# SPDX-License-Identifier: BSD-3-Clause
# Tests that need a GPU. `make gpu-tests` builds and runs them (nvcc takes its time, so `make check` does not);
# without a GPU they skip. test/bench/probe.cu and `test/gpu/engine bench` print the tables of doc/measurements.md.

EXTRA_DIST += test/bench/probe.cu
CLEANFILES += test/bench/probe
if HAVE_CUDA
gpu_tests = test/gpu/engine
EXTRA_PROGRAMS = $(gpu_tests)
test_gpu_engine_SOURCES = test/gpu/engine.c
test_gpu_engine_CFLAGS = $(OCCL_BASE_CFLAGS) $(OCCL_KERNEL_CFLAGS)
test_gpu_engine_LDADD = libocclcore.la $(TAP_LIBS) $(CUDA_LIBS)
test_gpu_engine_LDFLAGS = $(occl_test_ldflags)

gpu-tests: $(gpu_tests)
	@for t in $(gpu_tests); do ./$$t || exit 1; done

test/bench/probe: $(srcdir)/test/bench/probe.cu
	$(AM_V_NVCC)$(MKDIR_P) $(@D) && $(NVCC) -O3 -std=c++17 $(NVCC_GENCODE) $(NVCCFLAGS) -o $@ $< -lcuda
else !HAVE_CUDA
EXTRA_DIST += test/gpu/engine.c
gpu-tests:
	@echo "gpu-tests: built without CUDA"
endif !HAVE_CUDA
.PHONY: gpu-tests
