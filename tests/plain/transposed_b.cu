// C = A @ Bt^T: both operands are contiguous along K, and float4 loads run along it.
__global__ void gemm_nt(const float4 *__restrict__ lhs, const float4 *__restrict__ weights,
                        float *__restrict__ out, int rows, int cols, int inner)
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    const int quads = inner / 4;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int k = 0; k < quads; ++k) {
        const float4 x = __ldg(lhs + row * quads + k), y = __ldg(weights + col * quads + k);
        sum.x += x.x * y.x;
        sum.y += x.y * y.y;
        sum.z += x.z * y.z;
        sum.w += x.w * y.w;
    }
    out[row * cols + col] = (sum.x + sum.y) + (sum.z + sum.w);
}
