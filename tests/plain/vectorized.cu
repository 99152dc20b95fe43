#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define FETCH_FLOAT4(pointer) (reinterpret_cast<float4*>(&(pointer))[0])
#define CFLOAT4(value) *((float4 *)(&(value)))

template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void sgemmVectorize(float *A, float *B, float *C, int M, int N, int K, float alpha,
                               float beta)
{
    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    __shared__ float As[BK * BM];
    __shared__ float Bs[BK * BN];
    A = &A[blockIdx.y * BM * K];
    B = &B[blockIdx.x * BN];
    C = &C[blockIdx.y * BM * N + blockIdx.x * BN];
    const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
    const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
    float accum[TM][TN] = {0.f}, a_frag[TM], b_frag[TN];
    for (int k = 0; k < K; k += BK) {
        float4 t = FETCH_FLOAT4(A[OFFSET(a_row, a_col, K)]);
        As[OFFSET(a_col, a_row, BM)] = t.x;
        As[OFFSET(a_col + 1, a_row, BM)] = t.y;
        As[OFFSET(a_col + 2, a_row, BM)] = t.z;
        As[OFFSET(a_col + 3, a_row, BM)] = t.w;
        FETCH_FLOAT4(Bs[OFFSET(b_row, b_col, BN)]) = FETCH_FLOAT4(B[OFFSET(b_row, b_col, N)]);
        __syncthreads();
        A += BK;
        B += BK * N;
        for (int i = 0; i < BK; i++) {
            for (int m = 0; m < TM; m += 4)
                CFLOAT4(a_frag[m]) = CFLOAT4(As[OFFSET(i, ty * TM + m, BM)]);
            for (int n = 0; n < TN; n += 4)
                CFLOAT4(b_frag[n]) = CFLOAT4(Bs[OFFSET(i, tx * TN + n, BN)]);
            for (int m = 0; m < TM; m++)
                for (int n = 0; n < TN; n++) accum[m][n] += a_frag[m] * b_frag[n];
        }
        __syncthreads();
    }
    for (int m = 0; m < TM; m++)
        for (int n = 0; n < TN; n += 4) {
            float4 ctmp = FETCH_FLOAT4(C[OFFSET(ty * TM + m, tx * TN + n, N)]);
            ctmp.x = alpha * accum[m][n] + beta * ctmp.x;
            ctmp.y = alpha * accum[m][n + 1] + beta * ctmp.y;
            ctmp.z = alpha * accum[m][n + 2] + beta * ctmp.z;
            ctmp.w = alpha * accum[m][n + 3] + beta * ctmp.w;
            FETCH_FLOAT4(C[OFFSET(ty * TM + m, tx * TN + n, N)]) = ctmp;
        }
}
