__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[64][16], Bs[16][64];
    int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 16 + tx;
    int row0 = blockIdx.x * 64, col0 = blockIdx.y * 64;

    float sum[4][4] = {};
    for (int k0 = 0; k0 < K; k0 += 16) {
        // The thread's four floats of A: row a_row of the tile, from column a_k on.
        int a_row = thread / 4, a_k = thread % 4 * 4;
        int row = row0 + a_row, k = k0 + a_k;
        if (K % 4 == 0 && row < M && k + 3 < K) {
            *(float4 *)&As[a_row][a_k] = *(const float4 *)&A[row * K + k];
        } else {
            for (int i = 0; i < 4; ++i) {
                As[a_row][a_k + i] = row < M && k + i < K ? A[row * K + k + i] : 0.0f;
            }
        }
        // Its four floats of B.
        int b_k = thread / 16, b_col = thread % 16 * 4;
        int kb = k0 + b_k, col = col0 + b_col;
        if (N % 4 == 0 && kb < K && col + 3 < N) {
            *(float4 *)&Bs[b_k][b_col] = *(const float4 *)&B[kb * N + col];
        } else {
            for (int i = 0; i < 4; ++i) {
                Bs[b_k][b_col + i] = kb < K && col + i < N ? B[kb * N + col + i] : 0.0f;
            }
        }
        __syncthreads();
        for (int k = 0; k < 16; ++k) {
            float b[4];
            for (int j = 0; j < 4; ++j) {
                b[j] = Bs[k][tx + 16 * j];
            }
            for (int i = 0; i < 4; ++i) {
                float a = As[ty + 16 * i][k];
                for (int j = 0; j < 4; ++j) {
                    sum[i][j] += a * b[j];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            int row = row0 + ty + 16 * i, col = col0 + tx + 16 * j;
            if (row < M && col < N) {
                float *c = C + row * N + col;
                *c = alpha * sum[i][j] + (beta == 0.0f ? 0.0f : beta * *c);
            }
        }
    }
}
