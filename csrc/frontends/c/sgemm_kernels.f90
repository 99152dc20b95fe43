! The Fortran interface of sgemm_kernels.h, which describes the functions. Compile this file with
! your program.
module sgemm_kernels
  use, intrinsic :: iso_c_binding
  implicit none
  private :: elements_between, bytes_between, operand_of_floats, operand_of_16_bits

  integer(c_int), parameter :: SGEMM_KERNELS_CPU = -1
  integer(c_int), parameter :: SGEMM_KERNELS_HOST_MEMORY = 0, SGEMM_KERNELS_GPU_MEMORY = 1
  integer(c_int), parameter :: SGEMM_KERNELS_OK = 0
  integer(c_int), parameter :: SGEMM_KERNELS_FLOAT32 = 0, SGEMM_KERNELS_FLOAT16 = 1
  integer(c_int), parameter :: SGEMM_KERNELS_BFLOAT16 = 2

  type, bind(c) :: sgemm_kernels_matrix
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: rows = 0, cols = 0, row_stride = 0, col_stride = 0
  end type

  type, bind(c) :: sgemm_kernels_operand
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: rows = 0, cols = 0, row_stride = 0, col_stride = 0
    integer(c_int) :: dtype = SGEMM_KERNELS_FLOAT32
  end type

  type, bind(c) :: sgemm_kernels_place
    integer(c_int) :: device = SGEMM_KERNELS_CPU
    integer(c_int) :: memory = SGEMM_KERNELS_HOST_MEMORY
    type(c_ptr) :: stream = c_null_ptr
  end type

  type, bind(c) :: sgemm_kernels_status
    integer(c_int) :: code = SGEMM_KERNELS_OK, out_changed = 0
    character(kind=c_char) :: message(504) = c_null_char
  end type

  interface
    integer(c_int) function sgemm_kernels_find_device(name, device, status) bind(c)
      import
      type(c_ptr), value :: name ! a C string, or c_null_ptr for the first usable GPU
      integer(c_int), intent(inout) :: device
      type(sgemm_kernels_status), intent(out) :: status
    end function

    integer(c_int) function sgemm_kernels_multiply(variant, place, alpha, A, B, beta, C, out, &
                                                   status) bind(c)
      import
      character(kind=c_char), intent(in) :: variant(*) ! ends with c_null_char
      type(sgemm_kernels_place), intent(in) :: place
      real(c_float), value :: alpha, beta
      type(sgemm_kernels_matrix), intent(in) :: A, B, C, out
      type(sgemm_kernels_status), intent(out) :: status
    end function

    integer(c_int) function sgemm_kernels_multiply_batched(variant, place, count, alpha, A, &
                                                           stride_A, B, stride_B, beta, C, &
                                                           stride_C, out, stride_out, &
                                                           status) bind(c)
      import
      character(kind=c_char), intent(in) :: variant(*)
      type(sgemm_kernels_place), intent(in) :: place
      integer(c_int64_t), value :: count, stride_A, stride_B, stride_C, stride_out
      real(c_float), value :: alpha, beta
      type(sgemm_kernels_matrix), intent(in) :: A, B, C, out
      type(sgemm_kernels_status), intent(out) :: status
    end function

    integer(c_int) function sgemm_kernels_multiply_many(variant, place, count, alpha, A, B, beta, &
                                                        C, out, status) bind(c)
      import
      character(kind=c_char), intent(in) :: variant(*)
      type(sgemm_kernels_place), intent(in) :: place
      integer(c_int64_t), value :: count
      real(c_float), value :: alpha, beta
      type(sgemm_kernels_matrix), intent(in) :: A(*), B(*), C(*), out(*)
      type(sgemm_kernels_status), intent(out) :: status
    end function

    integer(c_int) function sgemm_kernels_multiply_typed(variant, place, count, alpha, A, &
                                                         stride_A, B, stride_B, beta, C, &
                                                         stride_C, out, stride_out, status) bind(c)
      import
      character(kind=c_char), intent(in) :: variant(*)
      type(sgemm_kernels_place), intent(in) :: place
      integer(c_int64_t), value :: count, stride_A, stride_B, stride_C, stride_out
      real(c_float), value :: alpha, beta
      type(sgemm_kernels_operand), intent(in) :: A, B
      type(sgemm_kernels_matrix), intent(in) :: C, out
      type(sgemm_kernels_status), intent(out) :: status
    end function

    integer(c_int) function sgemm_kernels_multiply_many_typed(variant, place, count, alpha, A, B, &
                                                              beta, C, out, status) bind(c)
      import
      character(kind=c_char), intent(in) :: variant(*)
      type(sgemm_kernels_place), intent(in) :: place
      integer(c_int64_t), value :: count
      real(c_float), value :: alpha, beta
      type(sgemm_kernels_operand), intent(in) :: A(*), B(*)
      type(sgemm_kernels_matrix), intent(in) :: C(*), out(*)
      type(sgemm_kernels_status), intent(out) :: status
    end function

    type(c_ptr) function sgemm_kernels_allocate(device, bytes) bind(c)
      import
      integer(c_int), value :: device
      integer(c_size_t), value :: bytes
    end function

    subroutine sgemm_kernels_free(memory) bind(c)
      import
      type(c_ptr), value :: memory
    end subroutine
  end interface

  ! Describes an operand, as sgemm_kernels_matrix_of describes a matrix: an array of reals, or of
  ! 16-bit integers with the bits of float16 or bfloat16 numbers and the dtype.
  interface sgemm_kernels_operand_of
    module procedure operand_of_floats, operand_of_16_bits
  end interface

contains

  ! Describes an array, or a section of one: a(1:19:2, :) or a(:, 20:1:-1). Its memory is used after
  ! this call, therefore it is asynchronous: compilers then refuse vector subscripts, such as
  ! a([1, 3], :), which they copy. Do not pass an expression, such as 2 * a or transpose(a), nor a
  ! component of all elements, such as z%re: gfortran passes a copy, which is freed after the call.
  function sgemm_kernels_matrix_of(array) result(matrix)
    real(c_float), intent(in), asynchronous, target :: array(:, :)
    type(sgemm_kernels_matrix) :: matrix
    matrix%rows = size(array, 1, c_int64_t)
    matrix%cols = size(array, 2, c_int64_t)
    matrix%row_stride = 1
    matrix%col_stride = max(matrix%rows, 1_c_int64_t)
    if (size(array) == 0) return
    matrix%data = c_loc(array(1, 1))
    if (matrix%rows > 1) matrix%row_stride = elements_between(array(1, 1), array(2, 1))
    if (matrix%cols > 1) matrix%col_stride = elements_between(array(1, 1), array(1, 2))
  end function

  function operand_of_floats(array) result(operand)
    real(c_float), intent(in), asynchronous, target :: array(:, :)
    type(sgemm_kernels_operand) :: operand
    type(sgemm_kernels_matrix) :: matrix
    matrix = sgemm_kernels_matrix_of(array)
    operand = sgemm_kernels_operand(matrix%data, matrix%rows, matrix%cols, matrix%row_stride, &
                                    matrix%col_stride, SGEMM_KERNELS_FLOAT32)
  end function

  function operand_of_16_bits(array, dtype) result(operand)
    integer(c_int16_t), intent(in), asynchronous, target :: array(:, :)
    integer(c_int), intent(in) :: dtype
    type(sgemm_kernels_operand) :: operand
    operand%dtype = dtype
    operand%rows = size(array, 1, c_int64_t)
    operand%cols = size(array, 2, c_int64_t)
    operand%row_stride = 1
    operand%col_stride = max(operand%rows, 1_c_int64_t)
    if (size(array) == 0) return
    operand%data = c_loc(array(1, 1))
    if (operand%rows > 1) then
      operand%row_stride = bytes_between(c_loc(array(1, 1)), c_loc(array(2, 1))) / 2
    end if
    if (operand%cols > 1) then
      operand%col_stride = bytes_between(c_loc(array(1, 1)), c_loc(array(1, 2))) / 2
    end if
  end function

  integer(c_int64_t) function bytes_between(one, other) result(bytes)
    type(c_ptr), intent(in) :: one, other
    bytes = transfer(other, 0_c_int64_t) - transfer(one, 0_c_int64_t)
  end function

  integer(c_int64_t) function elements_between(one, other) result(elements)
    real(c_float), intent(in), target :: one, other
    elements = bytes_between(c_loc(one), c_loc(other)) / 4
  end function

  ! The message of a failure as a Fortran string.
  function sgemm_kernels_message(status) result(text)
    type(sgemm_kernels_status), intent(in) :: status
    character(len=:), allocatable :: text
    integer :: i
    text = ''
    do i = 1, size(status%message)
      if (status%message(i) == c_null_char) exit
      text = text // status%message(i)
    end do
  end function
end module
