// idea      a block loads each tile of A and B once into shared memory and reuses it from there.
// block     32 x 32 threads, one result each; tiles of 32 x 32.
// traffic   8 / 32 bytes from global memory per multiply-add, and 8 from shared memory.
// bound by  shared-memory loads: still two per multiply-add.
// next      tile1d: several results per thread, so that a loaded value is used more than once.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of (BN, BM) threads.
constexpr int BM = 32, BN = 32, BK = 32;
static_assert(BM == BK && BN == BK, "each thread loads one element of each tile");

__global__ void __launch_bounds__(BM *BN)
    smem(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const unsigned blocks_in_row = (N - 1) / BN + 1;
    const unsigned row = blockIdx.x / blocks_in_row * BM + ty;
    const unsigned col = blockIdx.x % blocks_in_row * BN + tx;
    // Its element of each tile. A thread outside C stores zeros, and waits with the others.
    const float *a = A + (size_t)row * K + tx, *b = B + (size_t)ty * N + col;

    float sum = 0.0f;
    for (int left = K; left > 0; left -= BK) { // from these tiles to the end of K
        const float a_value = row < M && tx < left ? *a : 0.0f;
        const float b_value = col < N && ty < left ? *b : 0.0f;
        a += BK;
        b += (size_t)BK * N;
        __syncthreads(); // all threads have read the previous tiles
        As[ty][tx] = a_value;
        Bs[ty][tx] = b_value;
        __syncthreads(); // the tiles are complete
        for (int k = 0; k < BK; ++k) {
            sum += As[ty][k] * Bs[k][tx];
        }
    }
    if (row < M && col < N) {
        float *c = C + (size_t)row * N + col;
        *c = beta == 0.0f ? alpha * sum : fmaf(beta, *c, alpha * sum);
    }
}
