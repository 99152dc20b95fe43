/* Settings made of the rungs' own text, whose kernels take a problem in place of operands. */
#ifndef ABLATIONS_RUNG_H
#define ABLATIONS_RUNG_H

#include "../../csrc/ladder/09_async.cu"
#include "turns.h"

#include <stdexcept>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "bulk tensor copies, and a baseline for them, need compute capability 9.0 or newer"
#endif

typedef Geometry<128, 256, 32, 64, 64, 8, 16> T; // of the rung async

/* The harness's operands as a rung takes them. */
inline Sgemm product(const float *A, const float *B, float *C, int n)
{
    return {{const_cast<float *>(A), n, n, n, 1},
            {const_cast<float *>(B), n, n, n, 1},
            {C, n, n, n, 1},
            1.0f,
            0.0f};
}

/* How a kernel is launched that computes a tile of T by each block. */
template <class... Arguments>
harness::Launch of_tiles(void (*kernel)(Arguments...), size_t shared, harness::Start *start, int n)
{
    if (n % T::BM != 0 || n % T::BN != 0) {
        throw std::invalid_argument("n must be a multiple of BM and of BN");
    }
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared)) != cudaSuccess) {
        throw std::invalid_argument("the GPU must give a block more shared memory");
    }
    return {reinterpret_cast<harness::Kernel *>(kernel), dim3(n / T::BM * (n / T::BN)),
            dim3(T::threads), shared, start};
}

#endif
