# SPDX-License-Identifier: BSD-3-Clause
# Man pages. Each is made by man/gen-man, which says how, and goes into the tarball, so that only a clone
# needs perl. A function on another one's page is a link to that.

# Pages written by hand: PAGE.in
occl_man_pages = \
	man/man1/occl_info.1 \
	man/man1/occl_perf.1 \
	man/man1/occl_stress.1 \
	man/man3/MPIX_Occl_comm_attach.3 \
	man/man3/MPIX_Occl_comm_get_error.3 \
	man/man3/MPIX_Occl_continue.3 \
	man/man3/MPIX_Occl_coll_c2f.3 \
	man/man3/MPIX_Occl_coll_cancel.3 \
	man/man3/MPIX_Occl_coll_wait.3 \
	man/man3/MPIX_Occl_dump.3 \
	man/man3/MPIX_Occl_enqueue.3 \
	man/man3/MPIX_Occl_error_class.3 \
	man/man3/MPIX_Occl_get_stat.3 \
	man/man3/MPIX_Occl_get_version.3 \
	man/man3/MPIX_Occl_iallgather.3 \
	man/man3/MPIX_Occl_iallgatherv.3 \
	man/man3/MPIX_Occl_iallreduce.3 \
	man/man3/MPIX_Occl_ialltoall.3 \
	man/man3/MPIX_Occl_ialltoallv.3 \
	man/man3/MPIX_Occl_ibarrier.3 \
	man/man3/MPIX_Occl_ibcast.3 \
	man/man3/MPIX_Occl_igather.3 \
	man/man3/MPIX_Occl_igatherv.3 \
	man/man3/MPIX_Occl_ineighbor_allgather.3 \
	man/man3/MPIX_Occl_ineighbor_alltoall.3 \
	man/man3/MPIX_Occl_ireduce.3 \
	man/man3/MPIX_Occl_ireduce_scatter_block.3 \
	man/man3/MPIX_Occl_ireduce_scatter.3 \
	man/man3/MPIX_Occl_iscan.3 \
	man/man3/MPIX_Occl_iscatter.3 \
	man/man3/MPIX_Occl_iscatterv.3 \
	man/man3/MPIX_Occl_isend.3 \
	man/man3/MPIX_Occl_isendrecv.3 \
	man/man3/MPIX_Occl_queue_create.3 \
	man/man3/MPIX_Occl_mem_alloc.3 \
	man/man3/MPIX_Occl_op_create.3 \
	man/man3/MPIX_Occl_start.3 \
	man/man3/MPIX_Occl_start_enqueue.3 \
	man/man3/MPIX_Occl_wait.3 \
	man/man7/mpix_occl.7 \
	man/man7/mpix_occl_env.7 \
	man/man7/mpix_occl_fortran.7 \
	man/man7/mpix_occl_tuning.7

# Links: occl_man_links. Automake wants to see them, so the file is kept; test/tree/coverage.t says when and how it is made anew.
include man/links.mk

dist_man_MANS += $(occl_man_pages) $(occl_man_links)
MAINTAINERCLEANFILES += $(addprefix $(srcdir)/,$(occl_man_pages) $(occl_man_links))
EXTRA_DIST += man/gen-man $(addsuffix .in,$(occl_man_pages)) man/inc/coll_description.roff man/inc/coll_notes.roff \
	man/inc/coll_return.roff

occl_man_from = $(srcdir)/man/gen-man $(srcdir)/mpi-ext/gen-bindings $(srcdir)/mpi-ext/api.tbl $(srcdir)/VERSION
OCCL_GEN_MAN = $(AM_V_GEN)perl $(srcdir)/man/gen-man -o $@ $(srcdir)
$(addprefix $(srcdir)/,$(occl_man_pages)): %: %.in $(occl_man_from) $(wildcard $(srcdir)/man/inc/*.roff)
	$(OCCL_GEN_MAN)
$(addprefix $(srcdir)/,$(occl_man_links)): $(occl_man_from)
	$(OCCL_GEN_MAN)
$(srcdir)/man/man7/mpix_occl_env.7: $(srcdir)/src/util/env.def
$(srcdir)/man/man7/mpix_occl_tuning.7: $(srcdir)/src/plan/select.c
