# SPDX-License-Identifier: BSD-3-Clause
# Tools, for example:
#   bin_PROGRAMS += src/tools/occl_perf
#   src_tools_occl_perf_SOURCES = src/tools/occl_perf.c
#   src_tools_occl_perf_LDADD = $(OCCL_LIB)
