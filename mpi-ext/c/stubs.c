/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-ins until the functions are here: every call fails. */
#include <mpix_occl.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"
int MPIX_OCCL_ABI_SYMBOL(void) { return 0; }
int PMPIX_Occl_comm_attach(MPI_Comm comm, MPI_Info info)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_comm_attach = PMPIX_Occl_comm_attach
int PMPIX_Occl_comm_detach(MPI_Comm comm)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_comm_detach = PMPIX_Occl_comm_detach
int PMPIX_Occl_comm_get_error(MPI_Comm comm, int *errorcode, char *text, int length)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_comm_get_error = PMPIX_Occl_comm_get_error
int PMPIX_Occl_ibarrier(int tag, MPI_Comm comm, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_ibarrier = PMPIX_Occl_ibarrier
int PMPIX_Occl_barrier_init(int tag, MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_barrier_init = PMPIX_Occl_barrier_init
int PMPIX_Occl_ibcast(void *buffer, int count, MPI_Datatype datatype, int root, int tag,
                      MPI_Comm comm, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_ibcast = PMPIX_Occl_ibcast
int PMPIX_Occl_bcast_init(void *buffer, int count, MPI_Datatype datatype, int root, int tag,
                          MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_bcast_init = PMPIX_Occl_bcast_init
int PMPIX_Occl_ireduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
                       MPI_Op op, int root, int tag, MPI_Comm comm, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_ireduce = PMPIX_Occl_ireduce
int PMPIX_Occl_reduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
                           MPI_Op op, int root, int tag, MPI_Comm comm, MPI_Info info,
                           MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_reduce_init = PMPIX_Occl_reduce_init
int PMPIX_Occl_iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
                          MPI_Op op, int tag, MPI_Comm comm, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_iallreduce = PMPIX_Occl_iallreduce
int PMPIX_Occl_allreduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype,
                              MPI_Op op, int tag, MPI_Comm comm, MPI_Info info,
                              MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_allreduce_init = PMPIX_Occl_allreduce_init
int PMPIX_Occl_igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                       int recvcount, MPI_Datatype recvtype, int root, int tag, MPI_Comm comm,
                       MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_igather = PMPIX_Occl_igather
int PMPIX_Occl_gather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                           int recvcount, MPI_Datatype recvtype, int root, int tag, MPI_Comm comm,
                           MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_gather_init = PMPIX_Occl_gather_init
int PMPIX_Occl_iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                        int recvcount, MPI_Datatype recvtype, int root, int tag, MPI_Comm comm,
                        MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_iscatter = PMPIX_Occl_iscatter
int PMPIX_Occl_scatter_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                            void *recvbuf, int recvcount, MPI_Datatype recvtype, int root, int tag,
                            MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_scatter_init = PMPIX_Occl_scatter_init
int PMPIX_Occl_iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                          int recvcount, MPI_Datatype recvtype, int tag, MPI_Comm comm,
                          MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_iallgather = PMPIX_Occl_iallgather
int PMPIX_Occl_allgather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                              void *recvbuf, int recvcount, MPI_Datatype recvtype, int tag,
                              MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_allgather_init = PMPIX_Occl_allgather_init
int PMPIX_Occl_ireduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount,
                                     MPI_Datatype datatype, MPI_Op op, int tag, MPI_Comm comm,
                                     MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_ireduce_scatter_block = PMPIX_Occl_ireduce_scatter_block
int PMPIX_Occl_reduce_scatter_block_init(const void *sendbuf, void *recvbuf, int recvcount,
                                         MPI_Datatype datatype, MPI_Op op, int tag, MPI_Comm comm,
                                         MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_reduce_scatter_block_init = PMPIX_Occl_reduce_scatter_block_init
int PMPIX_Occl_ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                         int recvcount, MPI_Datatype recvtype, int tag, MPI_Comm comm,
                         MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_ialltoall = PMPIX_Occl_ialltoall
int PMPIX_Occl_alltoall_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                             void *recvbuf, int recvcount, MPI_Datatype recvtype, int tag,
                             MPI_Comm comm, MPI_Info info, MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_alltoall_init = PMPIX_Occl_alltoall_init
int PMPIX_Occl_isend(const void *buf, int count, MPI_Datatype datatype, int dest, int tag,
                     MPI_Comm comm, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_isend = PMPIX_Occl_isend
int PMPIX_Occl_irecv(void *buf, int count, MPI_Datatype datatype, int source, int tag,
                     MPI_Comm comm, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_irecv = PMPIX_Occl_irecv
int PMPIX_Occl_start(MPIX_Occl_Coll coll, MPI_Request *request)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_start = PMPIX_Occl_start
int PMPIX_Occl_startall(int count, const MPIX_Occl_Coll array_of_colls[],
                        MPI_Request array_of_requests[])
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_startall = PMPIX_Occl_startall
int PMPIX_Occl_coll_test(MPIX_Occl_Coll coll, int *flag)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_coll_test = PMPIX_Occl_coll_test
int PMPIX_Occl_coll_wait(MPIX_Occl_Coll coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_coll_wait = PMPIX_Occl_coll_wait
int PMPIX_Occl_coll_cancel(MPIX_Occl_Coll coll, int *flag)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_coll_cancel = PMPIX_Occl_coll_cancel
int PMPIX_Occl_coll_free(MPIX_Occl_Coll *coll)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_coll_free = PMPIX_Occl_coll_free
int PMPIX_Occl_coll_get_error(MPIX_Occl_Coll coll, int *errorcode, char *text, int length)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_coll_get_error = PMPIX_Occl_coll_get_error
int PMPIX_Occl_wait(MPI_Request *request, MPI_Status *status)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_wait = PMPIX_Occl_wait
int PMPIX_Occl_test(MPI_Request *request, int *flag, MPI_Status *status)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_test = PMPIX_Occl_test
int PMPIX_Occl_waitall(int count, MPI_Request array_of_requests[], MPI_Status array_of_statuses[])
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_waitall = PMPIX_Occl_waitall
int PMPIX_Occl_testall(int count, MPI_Request array_of_requests[], int *flag,
                       MPI_Status array_of_statuses[])
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_testall = PMPIX_Occl_testall
int PMPIX_Occl_waitany(int count, MPI_Request array_of_requests[], int *index, MPI_Status *status)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_waitany = PMPIX_Occl_waitany
int PMPIX_Occl_testany(int count, MPI_Request array_of_requests[], int *index, int *flag,
                       MPI_Status *status)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_testany = PMPIX_Occl_testany
int PMPIX_Occl_waitsome(int incount, MPI_Request array_of_requests[], int *outcount,
                        int array_of_indices[], MPI_Status array_of_statuses[])
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_waitsome = PMPIX_Occl_waitsome
int PMPIX_Occl_testsome(int incount, MPI_Request array_of_requests[], int *outcount,
                        int array_of_indices[], MPI_Status array_of_statuses[])
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_testsome = PMPIX_Occl_testsome
int PMPIX_Occl_continue(MPI_Request *request, MPIX_Occl_Continue_function *fn, void *state)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_continue = PMPIX_Occl_continue
int PMPIX_Occl_request_get_error(MPI_Request request, int *errorcode)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_request_get_error = PMPIX_Occl_request_get_error
int PMPIX_Occl_get_stat(MPI_Comm comm, const char *name, MPI_Count *value)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_get_stat = PMPIX_Occl_get_stat
int PMPIX_Occl_get_stat_name(int index, char *name, int *resultlen)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_get_stat_name = PMPIX_Occl_get_stat_name
int PMPIX_Occl_dump(MPI_Comm comm, int fd)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_dump = PMPIX_Occl_dump
int PMPIX_Occl_error_class(int which)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_error_class = PMPIX_Occl_error_class
int PMPIX_Occl_get_version(int *major, int *minor, int *patch)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_get_version = PMPIX_Occl_get_version
int PMPIX_Occl_get_library_version(char *version, int *resultlen)
{
    return MPI_ERR_OTHER;
}
#pragma weak MPIX_Occl_get_library_version = PMPIX_Occl_get_library_version
