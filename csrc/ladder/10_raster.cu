// idea      choose which blocks run together, so that the tiles they share come from memory once.
//           That helps if the L2 cache is small or memory is slow. On an H200 it gains nothing.
// block     128 x 256 results, 256 threads, tiles, stages and launch as in async.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, fewer from memory; 6 / 8 from shared.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds.
// next      splitk: several blocks per tile of C, if there are too few tiles for the GPU.
// C = alpha * A @ B + beta * C. The matrices are row-major, of any size: A is M x K, B is K x N.
// Launch: ((N - 1) / BN + 1) * ((M - 1) / BM + 1) blocks of THREADS threads, SHARED bytes.
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline.h>

constexpr int BM = 128, BN = 256, BK = 32, WM = 64, WN = 64, TM = 8, TN = 16, LDA = BM + 4;
constexpr int ROWS = WM / TM, COLS = WN / TN, THREADS = BM * BN / (TM * TN); // a warp: 8 x 4
constexpr int STAGES = 4, SHARED = STAGES * (BK * (LDA + BN) * 4 + 8); // bytes; a barrier has 8
constexpr int BAND = 8;                                                // rows of blocks in a band

struct Shared {
    float As[STAGES][BK][LDA], Bs[STAGES][BK][BN]; // LDA: padded, as in vec4
    __mbarrier_t full[STAGES];                     // complete when all threads' copies have landed
};
static_assert(sizeof(Shared) == SHARED && STAGES >= 4, "what the launch allocates; the ring");
static_assert(ROWS * COLS == 32 && THREADS == 256 && BN == 256 && BK % 8 == 0, "tile sizes");

struct Step { // a thread's values of A and B at one step of K
    alignas(16) float a[TM], b[TN];

    __device__ void read(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            *(float4 *)&a[i] = *(const float4 *)&As[i * ROWS];
        }
        for (int j = 0; j < TN; j += 4) {
            *(float4 *)&b[j] = *(const float4 *)&Bs[j * COLS];
        }
    }

    // Every other row goes backwards, so that neighbouring multiply-adds always share an operand.
    template <int FIRST, int LAST> __device__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = FIRST; i < LAST; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] += a[i] * b[j];
            }
        }
    }
};

// Begins to copy 4 or 16 bytes to shared memory; writes zeros if they are outside the matrix.
__device__ void copy(float *to, const float *from, int bytes, bool inside)
{
    __pipeline_memcpy_async(to, from, bytes, inside ? 0 : bytes);
}

__global__ void __launch_bounds__(THREADS, 1) // 1 block at a time: up to 255 registers
    raster(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    extern __shared__ float4 tiles[];
    Shared &s = *(Shared *)tiles;
    // Blocks are numbered in bands of BAND rows of blocks, and column by column within a band. They
    // begin in this order: those that run together form a rectangle, with fewer different tiles.
    const unsigned blocks_in_row = (N - 1) / BN + 1, blocks_in_column = (M - 1) / BM + 1;
    const unsigned band = blockIdx.x / (BAND * blocks_in_row);
    const unsigned in_band = blockIdx.x % (BAND * blocks_in_row);
    const unsigned height = min(BAND, blocks_in_column - band * BAND); // the last band may be lower
    const int row0 = (band * BAND + in_band % height) * BM, col0 = in_band / height * BN;
    const int rows = M - row0, cols = N - col0; // of C, from the block's first element on:
    C += (size_t)row0 * N + col0;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const bool wide = N % 4 == 0 && ((size_t)B | (size_t)C) % 16 == 0; // for float4

    // What this thread copies of each tile: 4 x 4 floats of A, and 8 float4 of B.
    const int a_row = thread / 8, a_k = thread % 8, b_k = thread / 64, b_col = thread % 64 * 4;
    const int a_rows = rows - a_row, b_cols = cols - b_col; // from there to the end
    const float *a_from = A + (size_t)(row0 + a_row) * K + a_k;
    const float *b_from = B + (size_t)b_k * N + col0 + b_col;
    const auto load = [&](int stage, int left) { // the next tile; `left` steps of K remain
        const float *from = a_from;
        for (int i = 0; i < BM; i += 32, from += (size_t)32 * K) {
            for (int k = 0; k < BK; k += 8) {
                copy(&s.As[stage][a_k + k][a_row + i], from + k, 4, i < a_rows && a_k + k < left);
            }
        }
        a_from += BK;
        if (wide) {
            for (int k = 0; k < BK; k += 4) {
                copy(&s.Bs[stage][b_k + k][b_col], b_from + (size_t)k * N, 16,
                     0 < b_cols && b_k + k < left);
            }
        } else {
            for (int i = 0; i < BK; ++i) {
                const int k = i / 4 * 4, j = i % 4;
                copy(&s.Bs[stage][b_k + k][b_col + j], b_from + (size_t)k * N + j, 4,
                     j < b_cols && b_k + k < left);
            }
        }
        b_from += (size_t)BK * N;
    };
    const auto arrive = [&](int stage) { // this thread, when its copies have landed
        __pipeline_arrive_on(&s.full[stage]);
        return __mbarrier_arrive(&s.full[stage]);
    };
    const auto wait = [&](int stage, __mbarrier_token_t token) { // until all threads have arrived
#if __CUDA_ARCH__ >= 900                                         // a waiting warp is suspended
        while (!__mbarrier_try_wait(&s.full[stage], token, 1000)) {
        }
#else
        while (!__mbarrier_test_wait(&s.full[stage], token)) {
        }
#endif
    };

    if (thread < STAGES) {
        __mbarrier_init(&s.full[thread], THREADS);
    }
    __syncthreads(); // the barriers are ready
    load(0, K), wait(0, arrive(0));

    // What it computes: rows ty ... ty + 3 and those 4 * ROWS further on, columns likewise.
    const int ty = warp / (BN / WN) * WM + lane / COLS * 4;
    const int tx = warp % (BN / WN) * WN + lane % COLS * 4;
    const float *a = &s.As[0][0][ty], *b = &s.Bs[0][0][tx];
    float sum[TM][TN] = {};
    Step even, odd = {};
    even.read(a, b);
    // Before a thread arrives at the barrier of tile t, it has read tile t - 2. So tile t + 1 could
    // replace that one once tile t is complete; it replaces tile t - 3.
#pragma unroll 1
    for (int t = 1, left = K - BK; left > -BK; ++t, left -= BK) {
        const int next = t % STAGES;
        load(next, left); // zeros, after the last tile
        const __mbarrier_token_t token = arrive(next);
        // Two steps at a time, as in async; two rows of an odd step come after the next read.
#pragma unroll 1
        for (int k = 0; k < BK - 2; k += 2) {
            odd.multiply<2, TM>(sum);
            odd.read(a + LDA, b + BN);
            even.multiply<0, TM>(sum);
            even.read(a += 2 * LDA, b += 2 * BN);
            odd.multiply<0, 2>(sum);
        }
        odd.multiply<2, TM>(sum);
        odd.read(a + LDA, b + BN);
        even.multiply<0, TM>(sum);
        wait(next, token);
        even.read(a = &s.As[next][0][ty], b = &s.Bs[next][0][tx]);
        odd.multiply<0, 2>(sum);
    }
    odd.multiply<2, TM>(sum);

#pragma unroll
    for (int i = 0; i < TM; ++i) {
        for (int j = 0; j < TN; j += 4) {
            const int row = ty + i / 4 * 4 * ROWS + i % 4, col = tx + j * COLS;
            const int count = row < rows ? cols - col : 0; // of four neighbours, or more
            float *c = C + (size_t)row * N + col, x[4];
            for (int n = 0; n < 4; ++n) {
                x[n] = alpha * sum[i][j + n];
                if (beta != 0.0f && n < count) {
                    x[n] = fmaf(beta, c[n], x[n]);
                }
                if (!wide && n < count) {
                    c[n] = x[n];
                }
            }
            if (wide && count > 0) {
                *(float4 *)c = make_float4(x[0], x[1], x[2], x[3]);
            }
        }
    }
}
