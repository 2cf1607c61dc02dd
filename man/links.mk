# SPDX-License-Identifier: BSD-3-Clause
# Made by mpi-ext/gen-bindings: functions that are on another one's page.
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
	man/man3/MPIX_Occl_gather_enqueue.3 \
	man/man3/MPIX_Occl_gather_init.3 \
	man/man3/MPIX_Occl_get_library_version.3 \
	man/man3/MPIX_Occl_get_stat_name.3 \
	man/man3/MPIX_Occl_irecv.3 \
	man/man3/MPIX_Occl_mem_free.3 \
	man/man3/MPIX_Occl_mem_register.3 \
	man/man3/MPIX_Occl_mem_unregister.3 \
	man/man3/MPIX_Occl_queue_free.3 \
	man/man3/MPIX_Occl_queue_synchronize.3 \
	man/man3/MPIX_Occl_recv_enqueue.3 \
	man/man3/MPIX_Occl_reduce_enqueue.3 \
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
