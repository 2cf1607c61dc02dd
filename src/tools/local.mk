# SPDX-License-Identifier: BSD-3-Clause
# Tools: programs on top of the public API, and occl_info, which prints the table of environment variables.
bin_PROGRAMS += src/tools/occl_perf src/tools/occl_stress src/tools/occl_info

occl_tool_files = src/tools/tool.c src/tools/tool.h src/tools/tool_cuda.h
occl_tool_cuda_files = src/tools/tool_cuda.c
# Other libraries beside ours: loaded at run time, in builds with CUDA
occl_rival_files = src/tools/rival.h src/tools/rival_nccl.c src/tools/rival_nvshmem.c
occl_tool_cppflags = $(AM_CPPFLAGS)
occl_tool_libs = $(OCCL_LIB)

src_tools_occl_perf_SOURCES = src/tools/occl_perf.c $(occl_tool_files)
src_tools_occl_perf_CPPFLAGS = $(occl_tool_cppflags)
src_tools_occl_perf_LDADD = $(occl_tool_libs)

src_tools_occl_stress_SOURCES = src/tools/occl_stress.c $(occl_tool_files)
src_tools_occl_stress_CPPFLAGS = $(occl_tool_cppflags)
src_tools_occl_stress_LDADD = $(occl_tool_libs)

src_tools_occl_info_SOURCES = src/tools/occl_info.c $(occl_tool_files)
src_tools_occl_info_CPPFLAGS = $(occl_tool_cppflags)
# The table is internal: the shared library does not export it
src_tools_occl_info_LDADD = $(occl_tool_libs) libocclcore.la

# The static runtime, as in the library: the tools run where there is no driver.
if HAVE_CUDA
occl_tool_cppflags += -DTOOL_HAVE_CUDA=1 $(CUDA_CPPFLAGS)
occl_tool_libs += $(CUDA_LIBS)
src_tools_occl_perf_SOURCES += $(occl_tool_cuda_files) $(occl_rival_files)
src_tools_occl_stress_SOURCES += $(occl_tool_cuda_files)
src_tools_occl_info_SOURCES += $(occl_tool_cuda_files)
else !HAVE_CUDA
EXTRA_DIST += $(occl_tool_cuda_files) $(occl_rival_files)
endif !HAVE_CUDA
