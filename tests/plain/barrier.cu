#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;
using barrier = cuda::barrier<cuda::thread_scope_block>;

#pragma nv_diag_suppress static_var_with_dynamic_init

// Tiles come by memcpy_async, and a barrier in shared memory counts them.
template <int TILE>
__global__ void gemm_barrier(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    __shared__ barrier loaded;
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&loaded, block.size());
    block.sync();
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.f;
    for (int k = 0; k < K; k += TILE) {
        cuda::memcpy_async(&As[threadIdx.y][threadIdx.x], &A[row * K + k + threadIdx.x],
                           cuda::aligned_size_t<4>(sizeof(float)), loaded);
        cuda::memcpy_async(&Bs[threadIdx.y][threadIdx.x], &B[(k + threadIdx.y) * N + col],
                           cuda::aligned_size_t<4>(sizeof(float)), loaded);
        barrier::arrival_token token = loaded.arrive();
        loaded.wait(std::move(token));
        for (int i = 0; i < TILE; ++i) sum += As[threadIdx.y][i] * Bs[i][threadIdx.x];
        loaded.arrive_and_wait();
    }
    C[row * N + col] = sum;
}
