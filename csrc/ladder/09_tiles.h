/* What is left of async when the asynchronous copy and the pipeline of 09_async.cu are understood:
 * which copies each thread makes, whichever way an operand lies, and which results it owns. */
#ifndef SGEMM_KERNELS_09_TILES_H
#define SGEMM_KERNELS_09_TILES_H

#include "06_quad.h"

/* ------------------------------------------------------------------ loading tiles */

/* These begin to copy one float to shared memory, or four neighbours: 09_async.cu. */
template <int FETCHED>
static __device__ __forceinline__ void copy_async(float *to, const float *from, bool there);
static __device__ __forceinline__ void copy_quad_async(float *to, const float *from, bool there);

/* Which way an operand's neighbours lie in memory, of a tile's lines, if the compiler is to know: then it writes out the
 * copies for that alone. */
enum Neighbours { EITHER_WAY, ACROSS_LINES, ALONG_DEPTH };

/* The greatest common divisor: of so many neighbours so many threads take as many side by side. */
static constexpr int common(int threads, int neighbours)
{
    return neighbours == 0 ? threads : common(neighbours, threads % neighbours);
}

/* What a thread loads of each of an operand's tiles, LINES x DEPTH (see 06_quad.h), by THREADS
 * threads. Shared memory keeps a tile as [depth][line], rows LD apart. Where neighbours in memory
 * lie across the lines, whole quads are copied, or single floats if not all quads are aligned. Where
 * they lie along the depth, single floats are, each to its transposed place: a warp reads 32 bytes
 * of each of four lines, and as LD is 4 or 20 more than a multiple of 32, writes to 32 different banks. Or with
 * DEEP = 16, where that is faster, 64 bytes of each of two lines: it then writes twice to each of 16 banks.
 * Lines beyond the operand's last become zeros, for which nothing is read: where all blocks read one
 * line in their place, they waited for each other. */
template <int LINES, int DEPTH, int LD, int THREADS, int DEEP, Neighbours LIE> struct TileLoader {
    static constexpr int quads = LINES / 4;
    static constexpr int side = common(THREADS, quads);    // quads taken side by side
    static constexpr int rows = THREADS / side;            // and rows of them, at a time
    static constexpr int singles = common(THREADS, LINES); // floats taken side by side
    static constexpr int single_rows = THREADS / singles;
    static constexpr int deep = DEEP;            // floats of a line taken side by side,
    static constexpr int lines = THREADS / deep; // and lines of them, at a time
    static constexpr int fetched = 16 * deep;    // bytes, to the L2 cache
    static_assert(DEPTH % rows == 0 && quads % side == 0 && DEPTH % deep == 0 &&
                      LINES % lines == 0 && DEPTH % single_rows == 0 && LINES % singles == 0,
                  "all threads load equally much");

    const float *here;
    int64_t depth_stride, line_stride;
    int first;  // of this thread's places in a shared tile
    int k;      // at which depth that is
    int count;  // from this thread's first line to the operand's last
    bool along; // the depth
    bool whole; // across: each quad is aligned, and none crosses the operand's last line

    __device__ __forceinline__ TileLoader(const Matrix &X, int64_t first_line, int thread)
        : depth_stride(X.col_stride), line_stride(X.row_stride), along(X.col_stride == 1)
    {
        const int left = clamped(X.rows - first_line);
        whole = is_aligned(X.data) && depth_stride % 4 == 0 && (X.rows % 4 == 0 || left >= LINES);
        const int line = along_depth() ? thread / deep
                         : whole       ? thread % side * 4
                                       : thread % singles;
        k = along_depth() ? thread % deep : whole ? thread / side : thread / singles;
        first = k * LD + line;
        count = left - line;
        here = address(X, first_line + line, k);
    }

    /* Begins to copy the next tile. */
    __device__ __forceinline__ void load(float (&tile)[DEPTH][LD])
    {
        copy<true>(&tile[0][0] + first, DEPTH);
    }

    /* Begins to copy a first tile of which `depth` rows lie inside the operand; the others become
     * zeros, and the tiles that follow are whole. */
    __device__ __forceinline__ void load_part(float (&tile)[DEPTH][LD], int depth)
    {
        copy<false>(&tile[0][0] + first, depth);
    }

  private:
    __device__ __forceinline__ bool along_depth() const
    {
        return LIE == EITHER_WAY ? along : LIE == ALONG_DEPTH;
    }

    template <bool INSIDE> __device__ __forceinline__ void copy(float *to, int depth)
    {
        const float *from = here;
        here += depth * depth_stride;
        if (along_depth()) {
            const int64_t stride = lines * line_stride;
            UNROLL(LINES / lines)
            for (int i = 0; i < LINES; i += lines) {
                UNROLL(DEPTH / deep)
                for (int d = 0; d < DEPTH; d += deep) {
                    copy_async<fetched>(to + d * LD + i, from + d,
                                        i < count && (INSIDE || k + d < depth));
                }
                from += stride;
                KEEP(from);
            }
        } else if (whole) {
            const int64_t stride = rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += rows) {
                UNROLL(quads / side)
                for (int q = 0; q < LINES; q += 4 * side) {
                    copy_quad_async(to + d * LD + q, from + q,
                                    q < count && (INSIDE || k + d < depth));
                }
                from += stride;
                KEEP(from);
            }
        } else {
            const int64_t stride = single_rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += single_rows) {
                UNROLL(LINES / singles)
                for (int i = 0; i < LINES; i += singles) {
                    copy_async<128>(to + d * LD + i, from + i,
                                    i < count && (INSIDE || k + d < depth));
                }
                from += stride;
                KEEP(from);
            }
        }
    }
};

/* ------------------------------------------------------------------ who computes what */

/* When the tiles that are on their way are there: 09_async.cu. */
template <int STAGES> struct Pipeline;

/* DEEP of TileLoader where warps have slices of a tile: as it was measured on 9.0. The compilers for others spill
 * registers with 16, and that for 9.0 does where threads have 12 rows. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int TM> constexpr int deep_in_slices = 8;
#else
template <int TM> constexpr int deep_in_slices = TM == 12 ? 8 : 16;
#endif

/* How a product is divided: blocks of BM x BN results, tiles of depth BK, warps of WM x WN results,
 * threads of TM x TN; how many tiles of each operand have room in shared memory; and how many warps share
 * the same results, each with a slice of a tile's depth, which engine/joined.h adds. */
template <int BM_, int BN_, int BK_, int WM_, int WN_, int TM_, int TN_, int STAGES = 4,
          int SLICES = 1>
struct Geometry {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, TM = TM_, TN = TN_;
    static constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of shared tiles
    static constexpr int stages = STAGES, slices = SLICES;
    static constexpr Neighbours a_neighbours = EITHER_WAY, b_neighbours = EITHER_WAY;
    static constexpr int deep = SLICES > 1 && STAGES > 1 ? deep_in_slices<TM> : 8;
    static constexpr int warps_across = BN / WN, warps_of_slice = BM / WM * warps_across;
    static constexpr int threads = SLICES * warps_of_slice * 32;
    static constexpr int lanes_across = WN / TN, lanes_down = WM / TM;
    static constexpr bool in_twos = // as a warp's lanes lie, see ThreadTile
        (STAGES == 1 || TM * TN < 64) && lanes_across % 2 == 0 && lanes_down % 2 == 0;
    static_assert(lanes_across * lanes_down == 32, "a warp has 32 threads");
    static_assert(TM % 4 == 0 && TN % 4 == 0, "threads own quads");
    static_assert(WM % TM == 0 && WN % TN == 0 && BM % WM == 0 && BN % WN == 0, "all are whole");

    struct Shared {
        float As[stages][BK][lda]; // (stages, BK, BM)
        float Bs[stages][BK][ldb]; // (stages, BK, BN)
        Pipeline<STAGES> pipeline;
    };
};

/* Those of its operands. */
template <class G>
using LoaderOfA = TileLoader<G::BM, G::BK, G::lda, G::threads, G::deep, G::a_neighbours>;
template <class G>
using LoaderOfB = TileLoader<G::BN, G::BK, G::ldb, G::threads, G::deep, G::b_neighbours>;

/* A geometry for operands of which the compiler is to know how they lie. */
template <class G, Neighbours A, Neighbours B> struct Known : G {
    static constexpr Neighbours a_neighbours = A, b_neighbours = B;
};

/* Whether a kernel for a geometry has code: with what is known of operands for 9.0 alone, where that was measured. Of
 * each way that they lie there is a kernel then, beside the one for all. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <class G> constexpr bool has_code = G::a_neighbours == EITHER_WAY;
#else
template <class G> constexpr bool has_code = true;
#endif

/* The kernel of this name, for a geometry. */
template <class G> constexpr KernelSpec spec_of(const char *symbol)
{
    return {symbol,
            {G::BM, G::BN, G::BK},
            {G::TM, G::TN},
            {G::threads, 1},
            0,
            sizeof(typename G::Shared),
            1,
            false,
            ""};
}

/* The tile of results that a thread owns: quads of a row, down(i) and right(j) from its first,
 * which is (row, col) in the block's tile. A warp's lanes lie row by row, or in twos: then two neighbours
 * read the same quads of A, and two that are two apart the same of B, and shared memory serves 16 lanes at
 * once, where it else serves 8. It is worth that where shared memory is the limit: elsewhere what comes
 * at once hinders the multiplications. */
template <class G> struct ThreadTile {
    int row, col;

    __device__ __forceinline__ explicit ThreadTile(unsigned thread)
    {
        const unsigned warp = thread / 32 % G::warps_of_slice, lane = thread % 32;
        constexpr unsigned rows = G::in_twos ? 2 : 1, cols = G::in_twos ? 2 : G::lanes_across;
        constexpr unsigned abreast = rows * G::lanes_across; // lanes
        const unsigned down = lane / abreast * rows + lane / cols % rows;
        const unsigned right = lane % abreast / (rows * cols) * cols + lane % cols;
        row = static_cast<int>(warp / G::warps_across * G::WM + down * 4);
        col = static_cast<int>(warp % G::warps_across * G::WN + right * 4);
    }
    __device__ __forceinline__ ThreadTile(int row, int col) : row(row), col(col) {}

    static __device__ __forceinline__ constexpr int down(int i)
    {
        return i / 4 * 4 * G::lanes_down + i % 4;
    }
    static __device__ __forceinline__ constexpr int right(int j)
    {
        return j / 4 * 4 * G::lanes_across + j % 4;
    }
};

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

#endif
