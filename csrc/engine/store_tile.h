/* The epilogue: a block's results from registers to C. */
#ifndef SGEMM_ENGINE_STORE_TILE_H
#define SGEMM_ENGINE_STORE_TILE_H

#include "tile_product.h"

/* Stores four neighbouring results of a thread where only the kernel itself reads them, those of a pair in each
 * other's place. A quad that is loaded or stored takes four registers in order. So a value of B and the results of
 * its column would have numbers of the same parity, which an NVIDIA GPU's two register banks go by, and a
 * multiply-add would read one after the other. */
static __device__ __forceinline__ void store_crossed(float *to, const float *sum)
{
    *reinterpret_cast<float4 *>(to) = make_float4(sum[1], sum[0], sum[3], sum[2]);
}

/* Where the result of this number, from the first of such a quad or of a line of them, lies. */
static __device__ __forceinline__ int crossed(int number)
{
    return number ^ 1;
}

/* The epilogue through shared memory, since no thread of the block has use for the tiles any more: then
 * neighbouring threads store neighbours, of which each may lie anywhere, and what C held is read for
 * some results at a time. */
template <class G>
static __device__ __forceinline__ void store_by_lines(const Sgemm &p, const Origin &tile,
                                                      const ThreadTile<G> &own,
                                                      const float (&sum)[G::TM][G::TN])
{
    // Quads that are written at once are in different banks, of four rows.
    typedef float Line[G::WN + (G::lanes_across < 8 || G::in_twos ? quad_padding : 0)];
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    constexpr size_t room = sizeof shared.As + sizeof shared.Bs;
    constexpr size_t needed = sizeof(Line) * G::lanes_down * (G::threads / 32);
    constexpr int each = 4 * needed <= room ? 4 : 1; // of a thread's rows, at a time
    constexpr int rows = each * G::lanes_down;       // and of a warp's, so far
    constexpr int apart = each == 4 ? 1 : 4;         // from each other in C
    // How a warp takes them: so many results of a line side by side, so many lines abreast, pieces of
    // a line one after the other, and so many lines at a time: what C held there is read before the
    // first of them is stored.
    constexpr int side = 32 % G::WN == 0 ? G::WN : 32, abreast = 32 / side;
    constexpr int pieces = (G::WN + side - 1) / side;
    constexpr int left = rows / abreast;
    constexpr int lines_of_batch = abreast * (left % 4 == 0 && pieces <= 2   ? 4
                                              : left % 2 == 0 && pieces <= 4 ? 2
                                                                             : 1);
    static_assert(rows % lines_of_batch == 0, "all batches are whole");
    static_assert(each * needed <= room, "they fit");
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
                store_crossed(to, sum[i + r] + j);
            }
        }
        __syncwarp();
        const Results C = results(p.C, tile.row + own.row - 4 * row + ThreadTile<G>::down(i),
                                  tile.col + own.col - col);
        const int cols = C.cols < G::WN ? C.cols : G::WN;
        UNROLL(1)
        for (int line = lane / side; line < rows; line += lines_of_batch) {
            float *const to = C.first + line * apart * C.ld + first;
            // Of shared memory all are read first, what lies beyond C's edges too: a branch for each
            // would wait for it.
            float values[lines_of_batch / abreast][pieces],
                old[lines_of_batch / abreast][pieces] = {};
            UNROLL(lines_of_batch / abreast)
            for (int n = 0; n < lines_of_batch / abreast; ++n) {
                UNROLL(pieces)
                for (int j = 0; j < pieces; ++j) {
                    const int right = first + j * side;
                    values[n][j] = lines[line + n * abreast][crossed(right < G::WN ? right : 0)];
                }
            }
            if (p.beta != 0.0f) {
                UNROLL(lines_of_batch / abreast)
                for (int n = 0; n < lines_of_batch / abreast; ++n) {
                    UNROLL(pieces)
                    for (int j = 0; j < pieces; ++j) {
                        const int down = n * abreast * apart;
                        if (line * apart + down < C.rows && first + j * side < cols) {
                            old[n][j] = to[down * C.ld + j * side];
                        }
                    }
                }
            }
            UNROLL(lines_of_batch / abreast)
            for (int n = 0; n < lines_of_batch / abreast; ++n) {
                UNROLL(pieces)
                for (int j = 0; j < pieces; ++j) {
                    const int down = n * abreast * apart;
                    float value = scaled(p, values[n][j], old[n][j]);
                    known_here(value);
                    if (line * apart + down < C.rows && first + j * side < cols) {
                        to[down * C.ld + j * side] = value;
                    }
                }
            }
        }
        __syncwarp();
    }
}

/* Four neighbours, by one store: of an assignment the compiler makes four in some kernels. */
static __device__ __forceinline__ void store_whole(float *to, const float4 &quad)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
                 "f"(quad.x), "f"(quad.y), "f"(quad.z), "f"(quad.w));
#else
    *reinterpret_cast<float4 *>(to) = quad;
#endif
}

/* The epilogue for all results of a thread: by quads, where all are aligned and none is read before. A
 * block runs through it once, and so waits for its instructions to be fetched: they are few. */
template <class G>
static __device__ __forceinline__ void store_thread_tile(const Sgemm &p, const Origin &tile,
                                                         const ThreadTile<G> &own,
                                                         const float (&sum)[G::TM][G::TN])
{
    if (p.beta != 0.0f || !is_aligned(p.C.data) || p.C.row_stride % 4 != 0 || p.C.cols % 4 != 0) {
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
            float4 quad = make_float4(scaled(p, from[0], 0.0f), scaled(p, from[1], 0.0f),
                                      scaled(p, from[2], 0.0f), scaled(p, from[3], 0.0f));
            known_here(quad.x);
            known_here(quad.y);
            known_here(quad.z);
            known_here(quad.w);
            if (down < C.rows && right < C.cols) {
                store_whole(C.first + down * C.ld + right, quad);
            }
        }
    }
}

/* A geometry as the transpose of C has it. */
template <class G> struct Turned {
    static constexpr int WM = G::WN, WN = G::WM, TM = G::TN, TN = G::TM, threads = G::threads;
    static constexpr int lanes_across = G::lanes_down, lanes_down = G::lanes_across;
    static constexpr int warps_across = G::threads / 32 / G::warps_across;
    static constexpr int warps_of_slice = G::warps_of_slice;
    static constexpr bool in_twos = G::in_twos;
    typedef typename G::Shared Shared;
};

/* store_thread_tile for a C whose neighbours run down a column. */
template <class G>
static __device__ __forceinline__ void store_columns(Sgemm p, const Origin &tile,
                                                     const ThreadTile<G> &own,
                                                     const float (&sum)[G::TM][G::TN])
{
    float turned[G::TN][G::TM];
    UNROLL(G::TN)
    for (int j = 0; j < G::TN; ++j) {
        UNROLL(G::TM)
        for (int i = 0; i < G::TM; ++i) {
            turned[j][i] = sum[i][j];
        }
    }
    p.C = transposed(p.C);
    store_thread_tile<Turned<G>>(p, {tile.col, tile.row}, {own.col, own.row}, turned);
}

#endif
