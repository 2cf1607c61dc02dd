! SPDX-License-Identifier: BSD-3-Clause
! TAP for tests in Fortran, on test/tap/tap_mpi.h. Checks are collective; a text is a sentence. External procedures, so that a
! program with mpif.h may call them too.
!
!     call tap_begin()
!     call check(all(b == 3), 'every element is three')
!     call tap_end()

subroutine tap_begin()
    implicit none
    interface
        subroutine tapf_begin() bind(C, name="tapf_begin")
        end subroutine
    end interface
    call tapf_begin()
end subroutine

subroutine check(cond, text)
    use, intrinsic :: iso_c_binding
    implicit none
    logical, intent(in) :: cond
    character(len=*), intent(in) :: text
    interface
        subroutine tapf_check(cond, text, len) bind(C, name="tapf_check")
            import
            integer(c_int), value :: cond
            character(kind=c_char), intent(in) :: text(*)
            integer(c_size_t), value :: len
        end subroutine
    end interface
    call tapf_check(merge(1_c_int, 0_c_int, cond), text, len(text, c_size_t))
end subroutine

subroutine diag(text)
    use, intrinsic :: iso_c_binding
    implicit none
    character(len=*), intent(in) :: text
    interface
        subroutine tapf_diag(text, len) bind(C, name="tapf_diag")
            import
            character(kind=c_char), intent(in) :: text(*)
            integer(c_size_t), value :: len
        end subroutine
    end interface
    call tapf_diag(text, len(text, c_size_t))
end subroutine

subroutine tap_end()
    implicit none
    interface
        subroutine tapf_end() bind(C, name="tapf_end")
        end subroutine
    end interface
    call tapf_end()
end subroutine
