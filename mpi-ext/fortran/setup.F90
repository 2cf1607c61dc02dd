! SPDX-License-Identifier: BSD-3-Clause
! Tells the C side which addresses are MPI_IN_PLACE and its kin: each way to MPI may have its own. Called by support.c, once.
! The numbers are those of support.h: way 0 mpif.h, 1 use mpi, 2 use mpi_f08; what 0 bottom, 1 in place, 2 status, 3 statuses, 4 no request.

module occl_f_setup
    use, intrinsic :: iso_c_binding, only: c_int
    implicit none
    interface
        subroutine occl_f_sentinel(way, what, where) bind(C, name="occl_f_sentinel")
            import :: c_int
            integer(c_int), value :: way, what
            type(*) :: where
        end subroutine
        subroutine occl_f_sentinel_array(way, what, where) bind(C, name="occl_f_sentinel_array")
            import :: c_int
            integer(c_int), value :: way, what
            type(*) :: where(*)
        end subroutine
        subroutine occl_f_values(yes, no, size) bind(C, name="occl_f_values")
            type(*) :: yes, no
            integer :: size
        end subroutine
    end interface
end module

subroutine occl_f_setup_mpifh() bind(C, name="occl_f_setup_mpifh")
    use occl_f_setup
    implicit none
    include 'mpif.h'
    logical :: yes, no
    integer :: size
    yes = .true.
    no = .false.
    size = MPI_STATUS_SIZE
    call occl_f_values(yes, no, size)
    call occl_f_sentinel(0_c_int, 0_c_int, MPI_BOTTOM)
    call occl_f_sentinel(0_c_int, 1_c_int, MPI_IN_PLACE)
    call occl_f_sentinel_array(0_c_int, 2_c_int, MPI_STATUS_IGNORE)
    call occl_f_sentinel_array(0_c_int, 3_c_int, MPI_STATUSES_IGNORE)
end subroutine

subroutine occl_f_setup_mpi() bind(C, name="occl_f_setup_mpi")
    use occl_f_setup
    use mpix_occl
    implicit none
    call occl_f_sentinel(1_c_int, 0_c_int, MPI_BOTTOM)
    call occl_f_sentinel(1_c_int, 1_c_int, MPI_IN_PLACE)
    call occl_f_sentinel_array(1_c_int, 2_c_int, MPI_STATUS_IGNORE)
    call occl_f_sentinel_array(1_c_int, 3_c_int, MPI_STATUSES_IGNORE)
    ! Of mpix_occlf.h too: the same common block
    call occl_f_sentinel(0_c_int, 4_c_int, MPIX_OCCL_NO_REQUEST)
    call occl_f_sentinel_array(1_c_int, 4_c_int, MPIX_OCCL_NO_REQUESTS)
end subroutine

subroutine occl_f_setup_f08() bind(C, name="occl_f_setup_f08")
    use occl_f_setup
    use mpi_f08
    implicit none
    call occl_f_sentinel(2_c_int, 0_c_int, MPI_BOTTOM)
    call occl_f_sentinel(2_c_int, 1_c_int, MPI_IN_PLACE)
    call occl_f_sentinel(2_c_int, 2_c_int, MPI_STATUS_IGNORE)
    call occl_f_sentinel_array(2_c_int, 3_c_int, MPI_STATUSES_IGNORE)
end subroutine
