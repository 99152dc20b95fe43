// idea      neighbouring threads compute neighbouring columns: a warp reads whole sectors of B, and
//           one element of A for all its threads.
// block     32 x 32 threads, one result each; threadIdx.x, not .y, runs along a row of C.
// traffic   8 bytes of load requests per multiply-add: one element of A and one of B; nothing is
//           reused.
// bound by  load instructions: two per multiply-add, although most hit the cache.
// next      smem: load each tile once per block and reuse it from shared memory.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of (BN, BM) threads.
constexpr int BM = 32, BN = 32; // the rows and columns of C that a block computes

__global__ void __launch_bounds__(BM *BN)
    coalesced(int M, int N, int K, float alpha, const float *A, const float *B, float beta,
              float *C)
{
    // Blocks are numbered along C's rows, in one dimension: gridDim.y is at most 65,535.
    const unsigned blocks_in_row = (N - 1) / BN + 1;
    const unsigned row = blockIdx.x / blocks_in_row * BM + threadIdx.y;
    const unsigned col = blockIdx.x % blocks_in_row * BN + threadIdx.x;
    if (row >= M || col >= N) {
        return;
    }
    const float *a = A + (size_t)row * K, *b = B + col; // size_t: a matrix may have 2^31 elements
    float sum = 0.0f;
#pragma unroll 32 // 64 loads begin before the first value is needed
    for (int k = 0; k < K; ++k) {
        sum += a[k] * b[(size_t)k * N];
    }
    float *c = C + (size_t)row * N + col;
    *c = beta == 0.0f ? alpha * sum : fmaf(beta, *c, alpha * sum); // beta 0: C is not read
}
