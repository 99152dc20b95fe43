// says: wrong values
__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
                      float *C)
{
    __shared__ float As[32][32], Bs[32][32];
    int tx = threadIdx.x, ty = threadIdx.y, thread = ty * 32 + tx;
    int row0 = blockIdx.y * 32, col = blockIdx.x * 32 + tx;

    float sum[4] = {};
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int i = 0; i < 4; ++i) {
            int r = thread / 8, k = thread % 8 + 8 * i; // a warp loads 8 columns of 4 rows
            int group = (r / 4) ^ (k % 8);
            As[k][group * 4 + r % 4] =
                row0 + r < M && k0 + k < K ? A[(row0 + r) * K + k0 + k] : 0.0f;
            int kb = ty + 8 * i;
            Bs[kb][tx] = k0 + kb < K && col < N ? B[(k0 + kb) * N + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 32; ++k) {
            float b = Bs[k][tx];
            int group = (ty + k) % 8;
            float4 a = *(float4 *)&As[k][group * 4]; // rows 4 * ty to 4 * ty + 3
            sum[0] += a.x * b;
            sum[1] += a.y * b;
            sum[2] += a.z * b;
            sum[3] += a.w * b;
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        int row = row0 + ty * 4 + i;
        if (row < M && col < N) {
            float *c = C + row * N + col;
            *c = alpha * sum[i] + (beta == 0.0f ? 0.0f : beta * *c);
        }
    }
}
