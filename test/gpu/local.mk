# SPDX-License-Identifier: BSD-3-Clause
# Tests that need a GPU. `make gpu-tests` builds and runs them (nvcc takes its time, so `make check` does not);
# without a GPU they skip. `make gpu-bench` builds what test/bench/gpu.sh runs. test/bench/probe.cu and `test/gpu/engine bench`
# print the tables of doc/measurements.md.

EXTRA_DIST += test/bench/probe.cu test/bench/limit.cu test/bench/queues.cu test/bench/gpu.sh test/gpu/with-mps test/gpu/run-gpu test/gpu/gpu_test.h \
	test/gpu/gpu_demo.t test/gpu/gpu_tools.t
CLEANFILES += test/bench/probe test/bench/limit test/bench/queues
if HAVE_CUDA
gpu_tests = test/gpu/engine test/gpu/colls test/gpu/order test/gpu/stream test/gpu/memory
EXTRA_PROGRAMS = $(gpu_tests) test/bench/beside
test_gpu_engine_SOURCES = test/gpu/engine.c
test_gpu_engine_CFLAGS = $(OCCL_BASE_CFLAGS) $(OCCL_KERNEL_CFLAGS)
test_gpu_engine_LDADD = libocclcore.la $(TAP_LIBS) $(CUDA_LIBS)
test_gpu_engine_LDFLAGS = $(occl_test_ldflags)

# Through the public API, with the tools' jobs
occl_gpu_files = src/tools/tool.c src/tools/tool.h src/tools/tool_cuda.c src/tools/tool_cuda.h
test_gpu_colls_SOURCES = test/gpu/colls.c $(occl_gpu_files)
test_gpu_colls_CPPFLAGS = $(occl_tool_cppflags)
test_gpu_colls_LDADD = $(TAP_MPI_LIBS) $(occl_tool_libs)
test_gpu_colls_LDFLAGS = $(occl_test_ldflags)
test_gpu_order_SOURCES = test/gpu/order.c $(occl_gpu_files)
test_gpu_order_CPPFLAGS = $(occl_tool_cppflags)
test_gpu_order_LDADD = $(TAP_MPI_LIBS) $(occl_tool_libs)
test_gpu_order_LDFLAGS = $(occl_test_ldflags)
test_gpu_memory_SOURCES = test/gpu/memory.c $(occl_gpu_files)
test_gpu_memory_CPPFLAGS = $(occl_tool_cppflags)
test_gpu_memory_LDADD = $(TAP_MPI_LIBS) $(occl_tool_libs)
test_gpu_memory_LDFLAGS = $(occl_test_ldflags)

test_gpu_stream_SOURCES = test/gpu/stream.c $(occl_gpu_files)
test_gpu_stream_CPPFLAGS = $(occl_tool_cppflags)
test_gpu_stream_LDADD = $(TAP_MPI_LIBS) $(occl_tool_libs)
test_gpu_stream_LDFLAGS = $(occl_test_ldflags)

test_bench_beside_SOURCES = test/bench/beside.c $(occl_gpu_files)
test_bench_beside_CPPFLAGS = $(occl_tool_cppflags)
test_bench_beside_LDADD = $(occl_tool_libs)
test_bench_beside_LDFLAGS = $(occl_test_ldflags)

gpu_links = test/gpu/engine.t test/gpu/colls-n2.t test/gpu/colls-n4.t test/gpu/order-n2.t test/gpu/order-n4.t \
	test/gpu/stream-n2.t test/gpu/stream-n4.t test/gpu/memory-n2.t test/gpu/memory-n3.t
OCCL_RUN_GPU = $(AM_TESTS_ENVIRONMENT) OCCL_TEST_TIMEOUT=$${OCCL_TEST_TIMEOUT:-300}; export OCCL_TEST_TIMEOUT;

# One rank, then several under MPS, then a short run of those with the GPU's time in slices. Without MPS here: the last only.
gpu-tests: $(gpu_links) gpu-bench
	@$(OCCL_RUN_GPU) bad=0; \
	$(SHELL) $(srcdir)/test/gpu/run-gpu 'alone' test/gpu/engine.t || bad=1; \
	$(SHELL) $(srcdir)/test/gpu/with-mps $(SHELL) $(srcdir)/test/gpu/run-gpu 'MPS' test/gpu/colls-n2.t test/gpu/colls-n4.t \
	  test/gpu/order-n2.t test/gpu/order-n4.t test/gpu/stream-n2.t test/gpu/stream-n4.t test/gpu/memory-n2.t test/gpu/memory-n3.t $(srcdir)/test/gpu/gpu_tools.t $(srcdir)/test/gpu/gpu_demo.t; \
	case $$? in 0 | 77) ;; *) bad=1 ;; esac; \
	for c in 1 8 32; do \
	  CUDA_DEVICE_MAX_CONNECTIONS=$$c $(SHELL) $(srcdir)/test/gpu/with-mps $(SHELL) $(srcdir)/test/gpu/run-gpu "MPS, $$c hardware queues" test/gpu/stream-n2.t; \
	  case $$? in 0 | 77) ;; *) bad=1 ;; esac; \
	done; \
	OCCL_TEST_QUICK=1; export OCCL_TEST_QUICK; \
	$(SHELL) $(srcdir)/test/gpu/run-gpu 'time slices' test/gpu/colls-n2.t test/gpu/order-n2.t || bad=1; \
	exit $$bad

# Everything that needs a GPU, built and not run: a build without a GPU sees that it compiles.
gpu-build: $(gpu_links) gpu-bench
gpu-bench: test/bench/limit test/bench/beside src/tools/occl_perf src/tools/occl_stress

occl_nvcc_bench = $(AM_V_NVCC)$(MKDIR_P) $(@D) && $(NVCC) -O3 -std=c++17 $(NVCC_GENCODE) $(NVCCFLAGS) -o $@
test/bench/probe: $(srcdir)/test/bench/probe.cu
	$(occl_nvcc_bench) $(srcdir)/test/bench/probe.cu -lcuda
test/bench/queues: $(srcdir)/test/bench/queues.cu
	$(occl_nvcc_bench) $(srcdir)/test/bench/queues.cu -lcuda
test/bench/limit: $(srcdir)/test/bench/limit.cu
	$(occl_nvcc_bench) $(srcdir)/test/bench/limit.cu $(CUDA_LIBS)
else !HAVE_CUDA
EXTRA_DIST += test/gpu/engine.c test/gpu/colls.c test/gpu/order.c test/gpu/stream.c test/gpu/memory.c test/bench/beside.c
gpu-tests gpu-build gpu-bench:
	@echo "$@: built without CUDA"
endif !HAVE_CUDA
.PHONY: gpu-tests gpu-build gpu-bench
