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
# Links
occl_man_links = \
	man/man3/MPIX_Occl_allgather_enqueue.3 \
	man/man3/MPIX_Occl_allgather_init.3 \
	man/man3/MPIX_Occl_allreduce_enqueue.3 \
	man/man3/MPIX_Occl_allreduce_init.3 \
	man/man3/MPIX_Occl_alltoall_enqueue.3 \
	man/man3/MPIX_Occl_alltoall_init.3 \
	man/man3/MPIX_Occl_barrier_enqueue.3 \
	man/man3/MPIX_Occl_barrier_init.3 \
	man/man3/MPIX_Occl_bcast_enqueue.3 \
	man/man3/MPIX_Occl_bcast_init.3 \
	man/man3/MPIX_Occl_coll_f2c.3 \
	man/man3/MPIX_Occl_coll_free.3 \
	man/man3/MPIX_Occl_coll_get_error.3 \
	man/man3/MPIX_Occl_coll_test.3 \
	man/man3/MPIX_Occl_comm_detach.3 \
	man/man3/MPIX_Occl_datatype.3 \
	man/man3/MPIX_Occl_gather_enqueue.3 \
	man/man3/MPIX_Occl_gather_init.3 \
	man/man3/MPIX_Occl_get_library_version.3 \
	man/man3/MPIX_Occl_get_stat_name.3 \
	man/man3/MPIX_Occl_irecv.3 \
	man/man3/MPIX_Occl_op.3 \
	man/man3/MPIX_Occl_op_create_premul.3 \
	man/man3/MPIX_Occl_op_free.3 \
	man/man3/MPIX_Occl_queue_free.3 \
	man/man3/MPIX_Occl_queue_synchronize.3 \
	man/man3/MPIX_Occl_recv_enqueue.3 \
	man/man3/MPIX_Occl_reduce_enqueue.3 \
	man/man3/MPIX_Occl_mem_free.3 \
	man/man3/MPIX_Occl_mem_register.3 \
	man/man3/MPIX_Occl_mem_unregister.3 \
	man/man3/MPIX_Occl_reduce_init.3 \
	man/man3/MPIX_Occl_reduce_scatter_block_enqueue.3 \
	man/man3/MPIX_Occl_reduce_scatter_block_init.3 \
	man/man3/MPIX_Occl_request_get_error.3 \
	man/man3/MPIX_Occl_scatter_enqueue.3 \
	man/man3/MPIX_Occl_scatter_init.3 \
	man/man3/MPIX_Occl_send_enqueue.3 \
	man/man3/MPIX_Occl_startall.3 \
	man/man3/MPIX_Occl_test.3 \
	man/man3/MPIX_Occl_testall.3 \
	man/man3/MPIX_Occl_testany.3 \
	man/man3/MPIX_Occl_testsome.3 \
	man/man3/MPIX_Occl_wait_enqueue.3 \
	man/man3/MPIX_Occl_waitall.3 \
	man/man3/MPIX_Occl_waitany.3 \
	man/man3/MPIX_Occl_waitsome.3

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
