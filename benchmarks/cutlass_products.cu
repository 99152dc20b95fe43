/* Products of float32 matrices by rows, C = A B, by CUTLASS: on CUDA cores, and as three products of
 * TF32 on tensor cores. Each function queues one in a stream, and returns 0, or CUTLASS's number of
 * what is in the way. */
#include <cutlass/gemm/device/gemm.h>

namespace {

using Rows = cutlass::layout::RowMajor;
template <int M, int N, int K> using Shape = cutlass::gemm::GemmShape<M, N, K>;
template <int WIDTH>
using Store = cutlass::epilogue::thread::LinearCombination<float, WIDTH, float, float>;

/* Tiles from CUTLASS's own list for float32, and those of its example of three products. */
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
