/* Copies tiles asynchronously, in any layout: the idea of async, used by the rungs after it too. */
#ifndef SGEMM_KERNELS_ASYNC_TILES_H
#define SGEMM_KERNELS_ASYNC_TILES_H

#include "../kernel/ptx.h"
#include "fragment.h"

/* Added to each row of a shared tile, so that floats stored one below the other are in different
 * banks. */
constexpr int padding = 4;

/* A thread's share of the copies of each ROWS x BK tile of A. For B pass transposed(B): its rows
 * are the columns of B. A shared tile is always [k][row]. */
template <int ROWS, int BK, int THREADS> struct AsyncLoader {
    const float *from; // this thread's first element of the next tile
    int64_t k_stride, row_stride;
    int row, k; // of that element
    int rows_inside;
    bool k_major; // K-major; otherwise neighbours in memory are in different rows
    bool aligned;

    __device__ __forceinline__ AsyncLoader(const Matrix &X, int64_t first_row, int thread)
        : k_stride(X.col_stride), row_stride(X.row_stride), k_major(X.col_stride == 1)
    {
        rows_inside = clamped(X.rows - first_row);
        aligned = is_aligned(address(X, 0, 0)) && k_stride % 4 == 0 &&
                  (X.rows % 4 == 0 || rows_inside >= ROWS);
        row = k_major ? thread / 8 : aligned ? thread % (ROWS / 4) * 4 : thread % ROWS;
        k = k_major ? thread % 8 : aligned ? thread / (ROWS / 4) : thread / ROWS;
        rows_inside -= row;
        from = address(X, first_row + row, k);
    }

    /* Starts the copies of the next tile. Zeros replace the steps of K from `depth` on. */
    __device__ __forceinline__ void load(float (&tile)[BK][ROWS + padding], int depth,
                                         int line = __builtin_LINE())
    {
        float *const to = &tile[k][row];
        const float *source = from;
        from += BK * k_stride;
        if (k_major) { // a warp copies 32 bytes of each of four rows, to 32 different banks
            constexpr int step = THREADS / 8;
            UNROLL(ROWS / step)
            for (int r = 0; r < ROWS; r += step) {
                UNROLL(BK / 8)
                for (int d = 0; d < BK; d += 8) {
                    cp_async4(to + d * (ROWS + padding) + r, source + d,
                              r < rows_inside && k + d < depth, line);
                }
                source += step * row_stride;
            }
        } else if (aligned) {
            constexpr int step = THREADS / (ROWS / 4);
            UNROLL(8)
            for (int d = 0; d < BK; d += step) {
                cp_async16(to + d * (ROWS + padding), source, 0 < rows_inside && k + d < depth,
                           line);
                source += step * k_stride;
            }
        } else {
            constexpr int step = THREADS / ROWS;
            UNROLL(8)
            for (int d = 0; d < BK; d += step) {
                cp_async4(to + d * (ROWS + padding), source, 0 < rows_inside && k + d < depth,
                          line);
                source += step * k_stride;
            }
        }
    }
};

/* sum += A @ B for the tiles t to end - 1 of the operands. Tile t passes through stage t % STAGES.
 * load(t) starts its copies and arrives at the stage's barrier, after the thread has read tile
 * t - 2. So once tile t is complete, all threads have read tile t - 3, and tile t + 1 may replace
 * it. No warp waits for the slowest. t becomes `end`. */
template <int ROWS, int COLS, int STAGES, int BK, int LDA, int LDB, int TM, int TN, class Load>
KERNEL_BODY void multiply_tiles(const float (&As)[STAGES][BK][LDA],
                                const float (&Bs)[STAGES][BK][LDB], Mbarrier (&full)[STAGES],
                                int ty, int tx, int &t, int end, const Load &load,
                                float (&sum)[TM][TN])
{
    static_assert(STAGES >= 4, "tile t + 1 replaces tile t - 3 or an older one");
    load(t);
    mbarrier_wait(full + t % STAGES, t / STAGES % 2);

    Fragment<TM, TN, ROWS, COLS> even, odd = {};
    const float *a = &As[t % STAGES][0][ty], *b = &Bs[t % STAGES][0][tx];
    even.load(a, b);
    UNROLL(1)
    for (; t < end; ++t) {
        const int next = (t + 1) % STAGES;
        load(t + 1);
        // Two steps at a time and not unrolled: otherwise nvcc interleaves the steps and loses the
        // order of the multiply-adds. The loop ends within a step, so that no step waits for values
        // that were just loaded.
        UNROLL(1)
        for (int k = 0; k < BK - 2; k += 2) {
            odd.template multiply<2, TM>(sum);
            odd.load(a + LDA, b + LDB);
            even.multiply(sum);
            even.load(a += 2 * LDA, b += 2 * LDB);
            odd.template multiply<0, 2>(sum);
        }
        odd.template multiply<2, TM>(sum);
        odd.load(a + LDA, b + LDB);
        even.multiply(sum);
        // After the last tile too, since a branch would cost more.
        mbarrier_wait(full + next, (t + 1) / STAGES % 2);
        even.load(a = &As[next][0][ty], b = &Bs[next][0][tx]);
        odd.template multiply<0, 2>(sum);
    }
    odd.template multiply<2, TM>(sum);
}

/* Stores a thread's results: rows row ... row + 3 and those 4 * ROWS further on, columns
 * likewise. */
template <int ROWS, int COLS, int TM, int TN>
static __device__ __forceinline__ void store_results(const Sgemm &p, int64_t row, int64_t col,
                                                     const float (&sum)[TM][TN])
{
    UNROLL(TM)
    for (int i = 0; i < TM; ++i) {
        UNROLL(TN / 4)
        for (int j = 0; j < TN; j += 4) {
            store4(p, row + i / 4 * 4 * ROWS + i % 4, col + j * COLS, sum[i] + j);
        }
    }
}

/* The origin of a BM x BN tile of C, in raster's order: bands of eight rows of tiles from top to
 * bottom, column by column within a band. */
template <int BM, int BN>
static __device__ __forceinline__ Origin tile_in_bands(const Matrix &C, unsigned number)
{
    constexpr unsigned band_rows = 8;
    const unsigned tile_rows = static_cast<unsigned>((C.rows + BM - 1) / BM);
    const unsigned tile_cols = static_cast<unsigned>((C.cols + BN - 1) / BN);
    const unsigned band = number / (band_rows * tile_cols),
                   in_band = number % (band_rows * tile_cols);
    const unsigned rows_left = tile_rows - band * band_rows;
    const unsigned rows = rows_left < band_rows ? rows_left : band_rows;
    return {static_cast<int64_t>(band * band_rows + in_band % rows) * BM,
            static_cast<int64_t>(in_band / rows) * BN};
}

#endif
