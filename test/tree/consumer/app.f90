! SPDX-License-Identifier: BSD-3-Clause
! What a Fortran program needs of an installed library: module, library, run.
program app
    use mpix_occl_f08
    implicit none
    integer, asynchronous :: one, total
    integer :: rank, ranks
    type(MPI_Request) :: request
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    call MPIX_Occl_comm_attach(MPI_COMM_WORLD, MPI_INFO_NULL)
    one = rank + 1
    call MPIX_Occl_iallreduce(one, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call MPIX_Occl_comm_detach(MPI_COMM_WORLD)
    if (total == ranks * (ranks + 1) / 2) print '(a, i0, a, i0, a, i0, a)', 'rank ', rank, ' of ', ranks, ': ', total, ' right'
    call MPI_Finalize()
end program
