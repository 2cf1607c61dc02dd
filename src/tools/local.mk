# SPDX-License-Identifier: BSD-3-Clause
# Tools: programs on top of the public API, and occl_info, which prints the table of environment variables.
bin_PROGRAMS += src/tools/occl_perf src/tools/occl_stress src/tools/occl_info

occl_tool_files = src/tools/tool.c src/tools/tool.h

src_tools_occl_perf_SOURCES = src/tools/occl_perf.c $(occl_tool_files)
src_tools_occl_perf_LDADD = $(OCCL_LIB)

src_tools_occl_stress_SOURCES = src/tools/occl_stress.c $(occl_tool_files)
src_tools_occl_stress_LDADD = $(OCCL_LIB)

src_tools_occl_info_SOURCES = src/tools/occl_info.c $(occl_tool_files)
# The table is internal: the shared library does not export it
src_tools_occl_info_LDADD = $(OCCL_LIB) libocclcore.la
