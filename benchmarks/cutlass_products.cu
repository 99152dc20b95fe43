/* Products C = A B of float32 matrices by CUTLASS: on CUDA cores, and as three TF32 products on
 * tensor cores. A and C are row-major; B is, or it is column-major in functions ending in _nt. Each
 * function queues one in a stream. It returns 0 or CUTLASS's error number. */
#include <cutlass/gemm/device/gemm.h>

#include <type_traits>

namespace {

using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
template <int M, int N, int K> using Shape = cutlass::gemm::GemmShape<M, N, K>;
template <int WIDTH>
using Store = cutlass::epilogue::thread::LinearCombination<float, WIDTH, float, float>;

/* Tiles from CUTLASS's list for float32, and from its example of three TF32 products. */
template <class LayoutOfB>
using Simt =
    cutlass::gemm::device::Gemm<float, Rows, float, LayoutOfB, float, Rows, float,
                                cutlass::arch::OpClassSimt, cutlass::arch::Sm80, Shape<128, 128, 8>,
                                Shape<32, 64, 8>, Shape<1, 1, 1>, Store<1>,
                                cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 5>;
template <class LayoutOfB>
using ThreeTf32 =
    cutlass::gemm::device::Gemm<float, Rows, float, LayoutOfB, float, Rows, float,
                                cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
                                Shape<128, 64, 16>, Shape<64, 32, 16>, Shape<16, 8, 8>, Store<4>,
                                cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 3, 4,
                                4, false, cutlass::arch::OpMultiplyAddFastF32>;

template <class Gemm>
int product(const float *A, const float *B, float *C, int M, int N, int K, void *stream)
{
    constexpr bool by_rows = std::is_same_v<typename Gemm::LayoutB, Rows>;
    Gemm gemm;
    const typename Gemm::Arguments arguments({M, N, K}, {A, K}, {B, by_rows ? N : K}, {C, N},
                                             {C, N}, {1.0f, 0.0f});
    cutlass::Status status = gemm.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) {
        status = gemm(arguments, nullptr, static_cast<cudaStream_t>(stream));
    }
    return static_cast<int>(status);
}

} // namespace

#define PRODUCT(name, Gemm)                                                                        \
    extern "C" int name(const float *A, const float *B, float *C, int M, int N, int K,             \
                        void *stream)                                                              \
    {                                                                                              \
        return product<Gemm>(A, B, C, M, N, K, stream);                                            \
    }
PRODUCT(simt, Simt<Rows>)
PRODUCT(simt_nt, Simt<Columns>)
PRODUCT(three_tf32, ThreeTf32<Rows>)
PRODUCT(three_tf32_nt, ThreeTf32<Columns>)
