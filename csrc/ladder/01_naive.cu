// idea      one thread per element of C: it computes one dot product.
// block     32 x 32 threads, one result each; threadIdx.x runs down a column of C.
// traffic   8 bytes of load requests per multiply-add: one element of A and one of B; nothing is
//           reused.
// bound by  uncoalesced loads: the 32 threads of a warp read 32 rows of A, and so 32 lines of the
//           cache. Of each, memory delivers one sector of 32 bytes, for one float.
// next      coalesced: give neighbouring threads neighbouring columns.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of (BM, BN) threads.
constexpr int BM = 32, BN = 32; // the rows and columns of C that a block computes

__global__ void __launch_bounds__(BM *BN)
    naive(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    // Blocks are numbered along C's rows, in one dimension: gridDim.y is at most 65,535.
    const unsigned blocks_in_row = (N - 1) / BN + 1;
    const unsigned row = blockIdx.x / blocks_in_row * BM + threadIdx.x;
    const unsigned col = blockIdx.x % blocks_in_row * BN + threadIdx.y;
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
