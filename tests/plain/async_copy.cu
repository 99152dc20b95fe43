#include <cuda_pipeline.h>
#include <cooperative_groups.h>
using namespace cooperative_groups;

constexpr int TILE = 16;
constexpr int STAGES = 2;

// Each tile is copied to shared memory while the previous one is multiplied.
__global__ void gemm_async(int m, int n, int k, float alpha, const float *a, const float *b,
                           float beta, float *c)
{
    __shared__ alignas(16) float as[STAGES][TILE][TILE];
    __shared__ alignas(16) float bs[STAGES][TILE][TILE];
    auto block = this_thread_block();
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    const auto load = [&](int stage, int k0) {
        // Zeros replace what is outside; it is not read.
        const bool in_a = row < m && k0 + tx < k, in_b = k0 + ty < k && col < n;
        __pipeline_memcpy_async(&as[stage][ty][tx], &a[row * k + k0 + tx], sizeof(float),
                                in_a ? 0 : sizeof(float));
        __pipeline_memcpy_async(&bs[stage][ty][tx], &b[(k0 + ty) * n + col], sizeof(float),
                                in_b ? 0 : sizeof(float));
        __pipeline_commit();
    };
    load(0, 0);
    float sum = 0.f;
    for (int t = 0; t * TILE < k; ++t) {
        const int stage = t % STAGES;
        if ((t + 1) * TILE < k) load(stage ^ 1, (t + 1) * TILE);
        __pipeline_wait_prior((t + 1) * TILE < k ? 1 : 0);
        block.sync();
        for (int i = 0; i < TILE; ++i) sum += as[stage][ty][i] * bs[stage][i][tx];
        block.sync();
    }
    if (row < m && col < n) c[row * n + col] = alpha * sum + beta * c[row * n + col];
}
