// A block of TILE x TILE threads loads TILE x TILE elements of A and of B into shared memory, and
// each thread computes one result from them. Compiled once for each TILE.
#include "harness.cuh"

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    tile_size(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C,
              int n)
{
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];

    const int ty = threadIdx.y, tx = threadIdx.x;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    const size_t ld = static_cast<size_t>(n);

    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        As[ty][tx] = A[row * ld + k0 + tx];
        Bs[ty][tx] = B[(k0 + ty) * ld + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            sum += As[ty][k] * Bs[k][tx];
        }
        __syncthreads();
    }
    C[row * ld + col] = sum;
}

int main(int, char **arguments)
{
    const int n = atoi(arguments[1]); // a multiple of TILE
    // The grid's second dimension ends at 65,535 blocks, and n is far below that.
    measure({{tile_size, dim3(n / TILE, n / TILE), dim3(TILE, TILE)}}, n);
}
