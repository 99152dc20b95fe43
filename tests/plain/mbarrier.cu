#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline.h>

constexpr int TILE = 16;
constexpr int STAGES = 2;

// A barrier in shared memory tells when all threads' copies of a tile have landed.
__global__ void gemm_mbarrier(int m, int n, int k, float alpha, const float *a, const float *b,
                              float beta, float *c)
{
    __shared__ float as[STAGES][TILE][TILE], bs[STAGES][TILE][TILE];
    __shared__ __mbarrier_t full[STAGES];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    if (ty == 0 && tx < STAGES) __mbarrier_init(&full[tx], TILE * TILE);
    __syncthreads();

    const auto load = [&](int stage, int k0) {
        const bool in_a = row < m && k0 + tx < k, in_b = k0 + ty < k && col < n;
        __pipeline_memcpy_async(&as[stage][ty][tx], &a[row * k + k0 + tx], sizeof(float),
                                in_a ? 0 : sizeof(float));
        __pipeline_memcpy_async(&bs[stage][ty][tx], &b[(k0 + ty) * n + col], sizeof(float),
                                in_b ? 0 : sizeof(float));
        __pipeline_arrive_on(&full[stage]); // the next arrival waits for these copies
        return __mbarrier_arrive(&full[stage]);
    };
    __mbarrier_token_t token = load(0, 0);
    float sum = 0.f;
    for (int t = 0; t * TILE < k; ++t) {
        const int stage = t % STAGES;
        while (!__mbarrier_test_wait(&full[stage], token)) {
        }
        token = load(stage ^ 1, (t + 1) * TILE); // zeros, after the last tile
        for (int i = 0; i < TILE; ++i) sum += as[stage][ty][i] * bs[stage][i][tx];
        __syncthreads(); // all threads have read the stage
    }
    if (row < m && col < n) {
        float *to = &c[row * n + col];
        *to = beta == 0.f ? alpha * sum : fmaf(beta, *to, alpha * sum);
    }
}
