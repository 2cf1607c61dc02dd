! SPDX-License-Identifier: BSD-3-Clause
! jacobi.c in Fortran: Jacobi's iteration for Poisson's equation, with the halo exchange and the test of convergence under way
! while points are computed.
!
!     mpiexec -n 4 jacobi_f08
!
! -u_xx - u_yy = 2 (x (w - x) + y (h - y)), with u = 0 on the border of a rectangle of width w and height h, has the solution
! u = x (w - x) y (h - y), and the difference quotients are exact for it.
program jacobi
    use mpix_occl_f08
    use, intrinsic :: iso_fortran_env, only: real64
    implicit none

    integer, parameter :: n = 8               ! a rank's points in a row
    integer, parameter :: halo = 1, change = 2 ! tags
    real(real64), parameter :: eps = 1e-10_real64
    ! What is sent and what comes, while the program does something else: the compiler is told
    real(real64), asynchronous :: edge(n, 4), from(n, 4), changed(1), most(1)
    real(real64) :: old(0:n + 1, 0:n + 1), new(0:n + 1, 0:n + 1), f(n, n), u(n, n)
    real(real64) :: h, width, height, x, y, error, limit
    type(MPI_Comm) :: grid
    type(MPIX_Occl_Coll) :: exchange, test
    integer :: rank, ranks, dims(2), at(2), i, j, sweeps

    call MPI_Init()
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    dims = 0
    call MPI_Dims_create(ranks, 2, dims)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.false., .false.], .true., grid)
    call MPI_Comm_rank(grid, rank)
    call MPI_Cart_coords(grid, rank, 2, at)
    call MPIX_Occl_comm_attach(grid, MPI_INFO_NULL)

    h = 1 / real(n * maxval(dims) + 1, real64)
    width = (n * dims(1) + 1) * h
    height = (n * dims(2) + 1) * h
    do j = 1, n
        do i = 1, n
            x = (at(1) * n + i) * h
            y = (at(2) * n + j) * h
            f(i, j) = 2 * (x * (width - x) + y * (height - y))
            u(i, j) = x * (width - x) * y * (height - y)
        end do
    end do

    ! Made once, started in every sweep. A neighbour that is not there writes nothing: the border stays 0.
    old = 0
    new = 0
    from = 0
    most = 1
    call MPIX_Occl_neighbor_alltoall_init(edge, n, MPI_DOUBLE_PRECISION, from, n, MPI_DOUBLE_PRECISION, halo, grid, &
        MPI_INFO_NULL, exchange)
    call MPIX_Occl_allreduce_init(changed, most, 1, MPI_DOUBLE_PRECISION, MPI_MAX, change, grid, MPI_INFO_NULL, test)

    sweeps = 0
    do while (most(1) > eps)
        edge(:, 1) = old(1, 1:n)
        edge(:, 2) = old(n, 1:n)
        edge(:, 3) = old(1:n, 1)
        edge(:, 4) = old(1:n, n)
        ! Half of the ranks start the test of the last sweep first, the others the exchange: no order has to be kept
        if (mod(rank, 2) == 1 .and. sweeps > 0) call MPIX_Occl_start(test, MPIX_OCCL_NO_REQUEST)
        call MPIX_Occl_start(exchange, MPIX_OCCL_NO_REQUEST)
        if (mod(rank, 2) == 0 .and. sweeps > 0) call MPIX_Occl_start(test, MPIX_OCCL_NO_REQUEST)

        call sweep(2, n - 1, 2, n - 1) ! these need no neighbour

        call MPIX_Occl_coll_wait(exchange)
        old(0, 1:n) = from(:, 1)
        old(n + 1, 1:n) = from(:, 2)
        old(1:n, 0) = from(:, 3)
        old(1:n, n + 1) = from(:, 4)
        call sweep(1, 1, 1, n)
        call sweep(n, n, 1, n)
        call sweep(2, n - 1, 1, 1)
        call sweep(2, n - 1, n, n)

        ! of the sweep before: the same bits, and so the same decision, everywhere
        if (sweeps > 0) call MPIX_Occl_coll_wait(test)
        changed(1) = maxval(abs(new(1:n, 1:n) - old(1:n, 1:n)))
        old = new
        sweeps = sweeps + 1
    end do

    error = maxval(abs(old(1:n, 1:n) - u))
    call MPI_Allreduce(MPI_IN_PLACE, error, 1, MPI_DOUBLE_PRECISION, MPI_MAX, grid)
    limit = 2 * eps / (1 - cos(acos(-1.0_real64) * h)) ! a sweep takes off the cosine of the slowest error
    if (rank == 0) print '(i0, a, i0, a, i0, a, i0, a, a, a, es7.1, a, es7.1, a)', ranks, ' ranks, ', n * dims(1), ' x ', &
        n * dims(2), ' points: after ', sweeps, ' sweeps the solution is ', trim(merge('right', 'WRONG', error < limit)), ': ', &
        error, ' off, at most ', limit, '.'

    call MPIX_Occl_coll_free(exchange)
    call MPIX_Occl_coll_free(test)
    call MPIX_Occl_comm_detach(grid)
    call MPI_Comm_free(grid)
    call MPI_Finalize()
    if (.not. error < limit) error stop 1

contains
    subroutine sweep(i0, i1, j0, j1)
        integer, intent(in) :: i0, i1, j0, j1

        new(i0:i1, j0:j1) = (old(i0 - 1:i1 - 1, j0:j1) + old(i0 + 1:i1 + 1, j0:j1) + old(i0:i1, j0 - 1:j1 - 1) &
            + old(i0:i1, j0 + 1:j1 + 1) + h * h * f(i0:i1, j0:j1)) / 4
    end subroutine
end program
