/* Products of float32 matrices by GEMMul8: from products of 8-bit integers, or of 8-bit floating-
 * point numbers, modulo several numbers (Ozaki scheme II). The matrices are column-major, as in
 * BLAS. Only what these products need of GEMMul8 is compiled. */
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

/* GEMMul8 waits for the GPU around each step, to time it. A product is queued without that. */
#define cudaStreamSynchronize(stream) static_cast<void>(stream)

/* Each of these headers needs the ones before it. */
// clang-format off
#include "../include/gemmul8.hpp"
#include "self_hipify.hpp"
#include "template_type.hpp"
#include "common.hpp"
#include "template_math.hpp"
#include "table.hpp"
#include "find_max.hpp"
#include "mod.hpp"
#include "matmult.hpp"
#include "scaling.hpp"
#include "scaling_fast_real.hpp"
#include "scaling_accu_real.hpp"
#include "conv_hi2mid_real.hpp"
#include "inverse_scaling_real.hpp"
#include "gemmul8_real.hpp"
// clang-format on

namespace {

struct Workspace {
    void *start = nullptr;
    size_t bytes = 0;

    bool holds(size_t needed)
    {
        if (needed > bytes) {
            cudaFree(start);
            bytes = cudaMalloc(&start, needed) == cudaSuccess ? needed : 0;
        }
        return needed <= bytes;
    }
};

template <gemmul8::Backend BACKEND>
int product(char of_a, char of_b, int M, int N, int K, const float *A, int lda, const float *B,
            int ldb, float *C, int ldc, int moduli, void *stream)
{
    static cublasLtHandle_t handle = nullptr;
    static Workspace workspace;
    if (handle == nullptr && cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) {
        return 1;
    }
    const size_t needed = real::workSize<BACKEND>(M, N, K, moduli, false, false, nullptr, nullptr);
    if (!workspace.holds(needed)) {
        return 2;
    }
    const auto operation = [](char name) { return name == 'T' ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const float one = 1.0f, zero = 0.0f;
    constexpr bool fast = false;
    real::gemm<float, BACKEND>(Handle_t(CublasLtTag{}, handle), operation(of_a), operation(of_b), M,
                               N, K, &one, A, lda, B, ldb, &zero, C, ldc, moduli, fast,
                               workspace.start, nullptr, nullptr, false, false, false, false,
                               static_cast<cudaStream_t>(stream));
    return cudaGetLastError() == cudaSuccess ? 0 : 3;
}

} // namespace

#define PRODUCT(name, BACKEND)                                                                     \
    extern "C" int name(char of_a, char of_b, int M, int N, int K, const float *A, int lda,        \
                        const float *B, int ldb, float *C, int ldc, int moduli, void *stream)      \
    {                                                                                              \
        return product<BACKEND>(of_a, of_b, M, N, K, A, lda, B, ldb, C, ldc, moduli, stream);      \
    }
PRODUCT(int8, gemmul8::Backend::INT8)
PRODUCT(fp8, gemmul8::Backend::FP8)
