/* The epilogue: stores a block's results from registers to C. */
#ifndef SGEMM_GEMM_STORE_TILE_H
#define SGEMM_GEMM_STORE_TILE_H

#include "tile_product.h"

/* Stores four results with each pair swapped. A float4 access needs four consecutive registers.
 * With swapped pairs, a value of B and its results are in different register banks, so that a
 * multiply-add reads both in one cycle. */
static __device__ __forceinline__ void store_swapped_pairs(float *to, const float *sum)
{
    *reinterpret_cast<float4 *>(to) = make_float4(sum[1], sum[0], sum[3], sum[2]);
}

/* The index of a result in a row of swapped pairs. */
static __device__ __forceinline__ int swapped_index(int number)
{
    return number ^ 1;
}

/* The epilogue through shared memory, for any alignment of C and for beta != 0. It reuses the
 * memory of the tiles. Neighbouring threads store neighbouring results, and each thread reads
 * several old values of C before it stores. */
template <class G>
static __device__ __forceinline__ void store_by_lines(const Sgemm &p, const Origin &tile,
                                                      const ThreadTile<G> &own,
                                                      const float (&sum)[G::TM][G::TN])
{
    // The padding puts the float4s that a warp writes at once, in four rows, in different banks.
    typedef float Line[G::WN + (G::lanes_across < 8 || G::in_twos ? float4_padding : 0)];
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    constexpr size_t available = sizeof shared.As + sizeof shared.Bs;
    constexpr size_t needed = sizeof(Line) * G::lanes_down * (G::threads / 32);
    constexpr int each = 4 * needed <= available ? 4 : 1; // rows of a thread per pass
    constexpr int rows = each * G::lanes_down;            // rows of a warp per pass
    constexpr int row_step = each == 4 ? 1 : 4;           // distance of these rows in C
    // At once, a warp stores `side` results of each of `abreast` rows. A row takes `pieces` such
    // stores. The warp reads the old values of a batch of rows before it stores the first of them.
    constexpr int side = 32 % G::WN == 0 ? G::WN : 32, abreast = 32 / side;
    constexpr int pieces = (G::WN + side - 1) / side;
    constexpr int left = rows / abreast;
    constexpr int lines_of_batch = abreast * (left % 4 == 0 && pieces <= 2   ? 4
                                              : left % 2 == 0 && pieces <= 4 ? 2
                                                                             : 1);
    static_assert(rows % lines_of_batch == 0, "all batches are whole");
    static_assert(each * needed <= available, "they fit");
    const int row = own.row % G::WM / 4, col = own.col % G::WN;
    const int lane = row * G::lanes_across + col / 4, first = lane % side;
    const int warp = own.row / G::WM * G::warps_across + own.col / G::WN;
    Line *const lines = reinterpret_cast<Line *>(&shared) + warp * rows;
    __syncthreads();
    UNROLL(G::TM / each)
    for (int i = 0; i < G::TM; i += each) {
        UNROLL(each)
        for (int r = 0; r < each; ++r) {
            UNROLL(G::TN / 4)
            for (int j = 0; j < G::TN; j += 4) {
                float *const to = lines[row * each + r] + col + ThreadTile<G>::right(j);
                store_swapped_pairs(to, sum[i + r] + j);
            }
        }
        __syncwarp();
        const Results C = results(p.C, tile.row + own.row - 4 * row + ThreadTile<G>::down(i),
                                  tile.col + own.col - col);
        const int cols = C.cols < G::WN ? C.cols : G::WN;
        UNROLL(1)
        for (int line = lane / side; line < rows; line += lines_of_batch) {
            float *const to = C.first + line * row_step * C.ld + first;
            // Reads all values first, even those outside C. Otherwise each read would wait behind
            // its own branch.
            float values[lines_of_batch / abreast][pieces],
                old[lines_of_batch / abreast][pieces] = {};
            UNROLL(lines_of_batch / abreast)
            for (int n = 0; n < lines_of_batch / abreast; ++n) {
                UNROLL(pieces)
                for (int j = 0; j < pieces; ++j) {
                    const int right = first + j * side;
                    values[n][j] =
                        lines[line + n * abreast][swapped_index(right < G::WN ? right : 0)];
                }
            }
            if (p.beta != 0.0f) {
                UNROLL(lines_of_batch / abreast)
                for (int n = 0; n < lines_of_batch / abreast; ++n) {
                    UNROLL(pieces)
                    for (int j = 0; j < pieces; ++j) {
                        const int down = n * abreast * row_step;
                        if (line * row_step + down < C.rows && first + j * side < cols) {
                            old[n][j] = to[down * C.ld + j * side];
                        }
                    }
                }
            }
            UNROLL(lines_of_batch / abreast)
            for (int n = 0; n < lines_of_batch / abreast; ++n) {
                UNROLL(pieces)
                for (int j = 0; j < pieces; ++j) {
                    const int down = n * abreast * row_step;
                    float value = scaled(p, values[n][j], old[n][j]);
                    compute_here(value);
                    if (line * row_step + down < C.rows && first + j * side < cols) {
                        to[down * C.ld + j * side] = value;
                    }
                }
            }
        }
        __syncwarp();
    }
}

/* The epilogue: float4 stores from registers if C is aligned and beta is 0. The code is kept short
 * because each block fetches it once. */
template <class G>
static __device__ __forceinline__ void store_thread_tile(const Sgemm &p, const Origin &tile,
                                                         const ThreadTile<G> &own,
                                                         const float (&sum)[G::TM][G::TN])
{
    if (p.beta != 0.0f || !is_aligned(address(p.C, 0, 0)) || p.C.row_stride % 4 != 0 ||
        p.C.cols % 4 != 0) {
        store_by_lines<G>(p, tile, own, sum);
        return;
    }
    const Results C = results(p.C, tile.row + own.row, tile.col + own.col);
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        const int down = ThreadTile<G>::down(i);
        UNROLL(G::TN / 4)
        for (int j = 0; j < G::TN; j += 4) {
            const int right = ThreadTile<G>::right(j);
            const float *const from = sum[i] + j;
            float4 vector = make_float4(scaled(p, from[0], 0.0f), scaled(p, from[1], 0.0f),
                                        scaled(p, from[2], 0.0f), scaled(p, from[3], 0.0f));
            compute_here(vector.x);
            compute_here(vector.y);
            compute_here(vector.z);
            compute_here(vector.w);
            if (down < C.rows && right < C.cols) {
                store_whole(C.first + down * C.ld + right, vector);
            }
        }
    }
}

#endif
