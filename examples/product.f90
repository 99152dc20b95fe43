! Multiplies two matrices on the first usable GPU, or on the CPU if there is none.
!
!     include=$(python -c 'import sgemm_kernels; print(sgemm_kernels.get_include())')
!     gfortran $include/sgemm_kernels.f90 product.f90 $(sgemm-kernels config --libs) -o product
program product
  use sgemm_kernels
  implicit none
  integer, parameter :: M = 300, N = 200, K = 100
  real(c_float), target :: A(M, K), B(K, N), C(M, N)
  type(sgemm_kernels_place) :: place
  type(sgemm_kernels_status) :: status

  if (sgemm_kernels_find_device(c_null_ptr, place%device, status) /= SGEMM_KERNELS_OK) then
    print '(a)', sgemm_kernels_message(status)
    place%device = SGEMM_KERNELS_CPU
  end if
  call random_number(A)
  call random_number(B)
  if (sgemm_kernels_multiply('auto' // c_null_char, place, 1.0, sgemm_kernels_matrix_of(A), &
                             sgemm_kernels_matrix_of(B), 0.0, sgemm_kernels_matrix_of(C), &
                             sgemm_kernels_matrix_of(C), status) /= SGEMM_KERNELS_OK) then
    print '(a)', sgemm_kernels_message(status)
    error stop
  end if
  print '(a, i0, a, es8.1)', 'device ', place%device, ': largest difference from matmul ', &
    maxval(abs(C - matmul(A, B)))
  if (maxval(abs(C - matmul(A, B))) > 1e-3) error stop
end program
