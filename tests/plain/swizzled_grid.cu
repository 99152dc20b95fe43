#include <cuda_runtime.h>
enum { TILE = 16, GROUP = 4 };

namespace detail {
struct Place {
    int row, col;
};
// Groups of rows of tiles, so that neighbouring blocks share tiles of B in the L2 cache.
__device__ inline Place place(int block, int rows, int cols)
{
    const int in_group = GROUP * cols;
    const int group = block / in_group, first = group * GROUP;
    const int height = min(rows - first, (int)GROUP);
    return {first + block % in_group % height, block % in_group / height};
}
} // namespace detail

__global__ void swizzled(size_t M, size_t N, size_t K, const float *dA, const float *dB, float *dC)
{
    __shared__ float2 as[TILE][TILE / 2];
    __shared__ float bs[TILE][TILE];
    const int rows = (M + TILE - 1) / TILE, cols = (N + TILE - 1) / TILE;
    const detail::Place tile = detail::place(blockIdx.x, rows, cols);
    const size_t row = tile.row * TILE + threadIdx.y, col = tile.col * TILE + threadIdx.x;
    float sum = 0;
    for (size_t k0 = 0; k0 < K; k0 += TILE) {
        const size_t k = k0 + threadIdx.x;
        reinterpret_cast<float *>(as[threadIdx.y])[threadIdx.x] =
            row < M && k < K ? dA[row * K + k] : 0.f;
        bs[threadIdx.y][threadIdx.x] =
            k0 + threadIdx.y < K && col < N ? dB[(k0 + threadIdx.y) * N + col] : 0.f;
        __syncthreads();
        for (int i = 0; i < TILE / 2; ++i) {
            const float2 pair = as[threadIdx.y][i];
            sum += pair.x * bs[2 * i][threadIdx.x] + pair.y * bs[2 * i + 1][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < M && col < N) dC[row * N + col] = sum;
}
