#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

// Eight lanes compute one element of C.
__global__ void gemm_groups(float *C, const float *A, const float *B, int M, int N, int K)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    __shared__ float results[16];
    const unsigned element = blockIdx.x * tile.meta_group_size() + tile.meta_group_rank();
    const int row = element / N, col = element % N;
    float sum = 0.f;
    if (row < M)
        for (int k = tile.thread_rank(); k < K; k += tile.size()) sum += A[row * K + k] * B[k * N + col];
    sum = cg::reduce(tile, sum, cg::plus<float>());
    if (tile.thread_rank() == 0) results[tile.meta_group_rank()] = sum;
    block.sync();
    if (block.thread_rank() < tile.meta_group_size()) {
        const unsigned mine = blockIdx.x * tile.meta_group_size() + block.thread_rank();
        if (mine < M * N) C[mine] = results[block.thread_rank()];
    }
}
