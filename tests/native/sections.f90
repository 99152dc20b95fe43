! Products of array sections as operands and results. Prints the number of cases; each wrong one has
! a line before.
module without_target
contains
  subroutine multiply_here(place, a, b, out)
    use sgemm_kernels
    type(sgemm_kernels_place), intent(in) :: place
    real, intent(in) :: a(:, :), b(:, :)
    real, intent(inout) :: out(:, :)
    type(sgemm_kernels_status) :: status
    if (sgemm_kernels_multiply('vec4' // c_null_char, place, 1.0, sgemm_kernels_matrix_of(a), &
                               sgemm_kernels_matrix_of(b), 0.0, sgemm_kernels_matrix_of(out), &
                               sgemm_kernels_matrix_of(out), status) /= SGEMM_KERNELS_OK) then
      print '(a)', sgemm_kernels_message(status)
    end if
  end subroutine
end module

program sections
  use sgemm_kernels
  use without_target
  implicit none
  real, target :: a(40, 30), b(30, 50), c(40, 50), flat(2000)
  real, allocatable, target :: own(:, :)
  real, pointer :: view(:, :)
  type(sgemm_kernels_place) :: place
  integer :: cases = 0, step, first
  call random_number(a)
  call random_number(b)
  call random_number(flat)
  do step = 1, 3
    do first = 1, 2
      call check(a(first:30:step, :), b, c(first:30:step, :))
      call check(a(:, first:30:step), b(first:30:step, :), c)
      call check(a, b(:, first:50:step), c(:, first:50:step))
      call check(a(first:39:step, :), b(:, first:50:step), c(first:39:step, first:50:step))
      call check(a(30:first:-step, :), b, c(30:first:-step, :))
      call check(a(:, 30:first:-step), b(30:first:-step, :), c)
      call check(a, b(:, 50:first:-step), c(:, 50:first:-step))
      call check(a(39:first:-step, :), b(:, 50:first:-step), c(39:first:-step, 50:first:-step))
    end do
  end do
  do step = 0, 3
    call check(a(1:step, :), b, c(1:step, :))
    call check(a(:, 5:4 + step), b(5:4 + step, :), c)
    call check(a, b(:, 7:6 + step), c(:, 7:6 + step))
    call check(a(7:6 + step, 3:2 + step), b(3:2 + step, 7:6 + step), c(7:6 + step, 7:6 + step))
  end do
  allocate (own(0:12, -3:26))
  own = a(1:13, :)
  call check(own, b, c(1:13, :))
  view(1:20, 1:30) => flat(1:1200:2)
  call check(view, b, c(1:20, :))
  call check(view(20:1:-2, :), b, c(1:10, :))
  print '(i0)', cases

contains

  ! `out` is a section of c.
  subroutine check(a, b, out)
    real, intent(in) :: a(:, :), b(:, :)
    real, intent(inout) :: out(:, :)
    real :: expected(size(out, 1), size(out, 2))
    expected = matmul(a, b)
    c = 7
    call multiply_here(place, a, b, out)
    if (any(abs(out - expected) > 1e-3)) print '(a, i0)', 'wrong result of case ', cases
    out = 7
    if (any(abs(c - 7) > 0)) print '(a, i0)', 'wrong memory was written to in case ', cases
    cases = cases + 1
  end subroutine
end program
