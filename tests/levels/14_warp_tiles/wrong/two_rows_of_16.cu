// says: goal: multiply-adds per wavefront; No pairs of lanes
__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[8][64 + 4], Bs[8][64];
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    // TODO: the rows and columns of this lane. Now a warp is 2 rows of 16 threads.
    int ty = (warp * 2 + lane / 16) * 4, tx = lane % 16 * 4;
    int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;

    float sum[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 8) {
        for (int i = thread; i < 64 * 8; i += 256) {
            int row = row0 + i / 8, k = k0 + i % 8;
            As[i % 8][i / 8] = row < M && k < K ? A[row * K + k] : 0.0f;
        }
        for (int i = thread; i < 8 * 64; i += 256) {
            int k = k0 + i / 64, col = col0 + i % 64;
            Bs[i / 64][i % 64] = k < K && col < N ? B[k * N + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 8; ++k) {
            float4 a = *(float4 *)&As[k][ty], b = *(float4 *)&Bs[k][tx];
            float as[] = {a.x, a.y, a.z, a.w}, bs[] = {b.x, b.y, b.z, b.w};
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += as[i] * bs[j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            int row = row0 + ty + i, col = col0 + tx + j;
            if (row < M && col < N) {
                float *c = C + row * N + col;
                *c = alpha * sum[i][j] + (beta == 0.0f ? 0.0f : beta * *c);
            }
        }
    }
}
