! Products of 16-bit operands from Fortran: prints the largest difference from float32 copies.
program typed
  use sgemm_kernels
  implicit none
  integer, parameter :: m = 5, n = 4, k = 6
  ! The bits of 1, 2, -3 and 0.5.
  integer, parameter :: as_float16(4) = [15360, 16384, -15872, 14336]
  integer, parameter :: as_bfloat16(4) = [16256, 16384, -16320, 16128]
  real, parameter :: values(4) = [1.0, 2.0, -3.0, 0.5]
  integer(c_int16_t), target :: a(2 * m, k), b(k, n), both(m, k, 2)
  real, target :: floats_of_a(m, k), floats_of_b(k, n), c(m, n), results(m, n, 2)
  type(sgemm_kernels_place) :: place
  type(sgemm_kernels_status) :: status
  type(sgemm_kernels_operand) :: many_a(2), many_b(2)
  type(sgemm_kernels_matrix) :: many_c(2), many_out(2)
  integer :: i, j, which
  real :: worst = 0
  a = 0
  do j = 1, k
    do i = 1, m
      which = 1 + mod(i + 3 * j, 4)
      a(2 * i - 1, j) = int(as_float16(which), c_int16_t)
      both(i, j, :) = int(as_bfloat16(which), c_int16_t)
      floats_of_a(i, j) = values(which)
    end do
    do i = 1, n
      which = 1 + mod(2 * i + j, 4)
      b(j, i) = int(as_bfloat16(which), c_int16_t)
      floats_of_b(j, i) = values(which)
    end do
  end do
  c = 2

  ! A section of float16, and bfloat16.
  if (sgemm_kernels_multiply_typed('auto' // c_null_char, place, 1_c_int64_t, 1.0, &
      sgemm_kernels_operand_of(a(1:2 * m - 1:2, :), SGEMM_KERNELS_FLOAT16), 0_c_int64_t, &
      sgemm_kernels_operand_of(b, SGEMM_KERNELS_BFLOAT16), 0_c_int64_t, 0.5, &
      sgemm_kernels_matrix_of(c), 0_c_int64_t, sgemm_kernels_matrix_of(results(:, :, 1)), &
      0_c_int64_t, status) /= SGEMM_KERNELS_OK) error stop 'one product failed'
  call compare(results(:, :, 1), matmul(floats_of_a, floats_of_b) + 1)

  ! A batch of bfloat16 times reals.
  if (sgemm_kernels_multiply_typed('simt' // c_null_char, place, 2_c_int64_t, 1.0, &
      sgemm_kernels_operand_of(both(:, :, 1), SGEMM_KERNELS_BFLOAT16), int(m * k, c_int64_t), &
      sgemm_kernels_operand_of(floats_of_b), 0_c_int64_t, 0.0, &
      sgemm_kernels_matrix_of(c), 0_c_int64_t, sgemm_kernels_matrix_of(results(:, :, 1)), &
      int(m * n, c_int64_t), status) /= SGEMM_KERNELS_OK) error stop 'a batch failed'
  call compare(results(:, :, 2), matmul(floats_of_a, floats_of_b))

  ! A list.
  many_a = [sgemm_kernels_operand_of(floats_of_a), &
            sgemm_kernels_operand_of(both(:, :, 2), SGEMM_KERNELS_BFLOAT16)]
  many_b = sgemm_kernels_operand_of(b, SGEMM_KERNELS_BFLOAT16)
  many_c = sgemm_kernels_matrix_of(c)
  many_out = [sgemm_kernels_matrix_of(results(:, :, 1)), sgemm_kernels_matrix_of(results(:, :, 2))]
  results = 0
  if (sgemm_kernels_multiply_many_typed('auto' // c_null_char, place, 2_c_int64_t, 1.0, many_a, &
      many_b, 0.0, many_c, many_out, status) /= SGEMM_KERNELS_OK) error stop 'a list failed'
  do i = 1, 2
    call compare(results(:, :, i), matmul(floats_of_a, floats_of_b))
  end do

  ! A type that there is not.
  if (sgemm_kernels_multiply_typed('auto' // c_null_char, place, 1_c_int64_t, 1.0, &
      sgemm_kernels_operand_of(b, 7), 0_c_int64_t, sgemm_kernels_operand_of(b, 7), 0_c_int64_t, &
      0.0, sgemm_kernels_matrix_of(c), 0_c_int64_t, sgemm_kernels_matrix_of(c), 0_c_int64_t, &
      status) == SGEMM_KERNELS_OK) error stop 'an unknown type was accepted'
  print '(a, 1x, f4.1)', sgemm_kernels_message(status), worst

contains

  subroutine compare(result, expected)
    real, intent(in) :: result(:, :), expected(:, :)
    worst = max(worst, maxval(abs(result - expected)))
  end subroutine
end program
