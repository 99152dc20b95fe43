/* Products C = A B of row-major float32 matrices by CUTLASS: on CUDA cores, and as three TF32
 * products on tensor cores. Each function queues one in a stream. It returns 0 or CUTLASS's error
 * number. */
#include <cutlass/gemm/device/gemm.h>

namespace {

using Rows = cutlass::layout::RowMajor;
template <int M, int N, int K> using Shape = cutlass::gemm::GemmShape<M, N, K>;
template <int WIDTH>
using Store = cutlass::epilogue::thread::LinearCombination<float, WIDTH, float, float>;

/* Tiles from CUTLASS's list for float32, and from its example of three TF32 products. */
using Simt =
    cutlass::gemm::device::Gemm<float, Rows, float, Rows, float, Rows, float,
                                cutlass::arch::OpClassSimt, cutlass::arch::Sm80, Shape<128, 128, 8>,
                                Shape<32, 64, 8>, Shape<1, 1, 1>, Store<1>,
                                cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 5>;
using ThreeTf32 =
    cutlass::gemm::device::Gemm<float, Rows, float, Rows, float, Rows, float,
                                cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
                                Shape<128, 64, 16>, Shape<64, 32, 16>, Shape<16, 8, 8>, Store<4>,
                                cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, 3, 4,
                                4, false, cutlass::arch::OpMultiplyAddFastF32>;

template <class Gemm>
int product(const float *A, const float *B, float *C, int M, int N, int K, void *stream)
{
    Gemm gemm;
    const typename Gemm::Arguments arguments({M, N, K}, {A, K}, {B, N}, {C, N}, {C, N},
                                             {1.0f, 0.0f});
    cutlass::Status status = gemm.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) {
        status = gemm(arguments, nullptr, static_cast<cudaStream_t>(stream));
    }
    return static_cast<int>(status);
}

} // namespace

extern "C" int simt(const float *A, const float *B, float *C, int M, int N, int K, void *stream)
{
    return product<Simt>(A, B, C, M, N, K, stream);
}

extern "C" int three_tf32(const float *A, const float *B, float *C, int M, int N, int K,
                          void *stream)
{
    return product<ThreeTf32>(A, B, C, M, N, K, stream);
}
