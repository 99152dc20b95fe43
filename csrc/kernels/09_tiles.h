/* What is left of async when the asynchronous copy and the pipeline of 09_async.cu are understood:
 * which copies each thread makes, whichever way an operand lies, and which results it owns. */
#ifndef SGEMM_KERNELS_09_TILES_H
#define SGEMM_KERNELS_09_TILES_H

#include "06_quad.h"

/* ------------------------------------------------------------------ loading tiles */

#ifdef __CUDACC__
/* An address as the instructions for shared memory take it. */
static __device__ __forceinline__ unsigned shared_address(const void *in_shared_memory)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(in_shared_memory));
}
#endif

/* These begin to copy one float to shared memory, or four neighbours: 09_async.cu. */
static __device__ __forceinline__ void copy_async(float *to, const float *from, bool there);
static __device__ __forceinline__ void copy_quad_async(float *to, const float *from, bool there);

/* What a thread loads of each of an operand's tiles, LINES x DEPTH (see 06_quad.h), by THREADS
 * threads. Shared memory keeps a tile as [depth][line], rows LD apart. Where neighbours in memory
 * lie across the lines, whole quads are copied, or single floats if not all quads are aligned. Where
 * they lie along the depth, single floats are, each to its transposed place: a warp reads 32 bytes
 * of each of four lines, and as LD is 4 more than a multiple of 32, writes to 32 different banks. */
template <int LINES, int DEPTH, int LD, int THREADS> struct TileLoader {
    static constexpr int quads = LINES / 4;
    static constexpr int side = THREADS < quads ? THREADS : quads;    // quads taken side by side
    static constexpr int rows = THREADS / side;                       // and rows of them, at a time
    static constexpr int singles = THREADS < LINES ? THREADS : LINES; // floats taken side by side
    static constexpr int single_rows = THREADS / singles;
    static constexpr int deep = 8;               // floats of a line taken side by side,
    static constexpr int lines = THREADS / deep; // and lines of them, at a time
    static_assert(DEPTH % rows == 0 && quads % side == 0 && DEPTH % deep == 0 &&
                      LINES % lines == 0 && DEPTH % single_rows == 0 && LINES % singles == 0,
                  "all threads load equally much");

    const float *here;
    int64_t depth_stride, line_stride;
    int first; // of this thread's places in a shared tile
    int k;     // at which depth that is
    int count; // from this thread's first line to the operand's last
    bool along_depth;
    bool interior; // no tile reaches beyond the operand's last line
    bool whole;    // across: each quad is aligned, and none crosses the operand's last line

    __device__ __forceinline__ TileLoader(const Matrix &X, int64_t first_line, int thread)
        : depth_stride(X.col_stride), line_stride(X.row_stride), along_depth(X.col_stride == 1)
    {
        const int left = clamped(X.rows - first_line);
        interior = left >= LINES;
        whole = is_aligned(X.data) && depth_stride % 4 == 0 && (X.rows % 4 == 0 || interior);
        const int line = along_depth ? thread / deep : whole ? thread % side * 4 : thread % singles;
        k = along_depth ? thread % deep : thread / (whole ? side : singles);
        first = k * LD + line;
        count = left - line;
        // In place of what lies beyond the last line, the last: it is part of no result.
        const int last = !along_depth && whole ? left - 4 : left - 1;
        here = address(X, first_line + (line < last ? line : last), k);
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
    template <bool DEEP> __device__ __forceinline__ void copy(float *to, int depth)
    {
        const float *from = here;
        here += depth * depth_stride;
        if (along_depth && interior) {
            const int64_t stride = lines * line_stride;
            UNROLL(LINES / lines)
            for (int i = 0; i < LINES; i += lines) {
                UNROLL(DEPTH / deep)
                for (int d = 0; d < DEPTH; d += deep) {
                    copy_async(to + d * LD + i, from + d, DEEP || k + d < depth);
                }
                from += stride;
                KEEP(from);
            }
        } else if (along_depth) {
            UNROLL(4)
            for (int i = 0; i < LINES; i += lines) {
                UNROLL(DEPTH / deep)
                for (int d = 0; d < DEPTH; d += deep) {
                    copy_async(to + d * LD + i, from + d, DEEP || k + d < depth);
                }
                if (i + lines < count) {
                    from += lines * line_stride;
                }
            }
        } else if (whole) {
            const int64_t stride = rows * depth_stride;
            UNROLL(8)
            for (int d = 0; d < DEPTH; d += rows) {
                UNROLL(quads / side)
                for (int q = 0; q < LINES; q += 4 * side) {
                    const int there = q < count - 4 ? q : count > 4 ? count - 4 : 0;
                    copy_quad_async(to + d * LD + q, from + there, DEEP || k + d < depth);
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
                    const int there = i < count ? i : count > 1 ? count - 1 : 0;
                    copy_async(to + d * LD + i, from + there, DEEP || k + d < depth);
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

/* How a product is divided: blocks of BM x BN results, tiles of depth BK, warps of WM x WN results,
 * threads of TM x TN; and how many tiles of each operand have room in shared memory. */
template <int BM_, int BN_, int BK_, int WM_, int WN_, int TM_, int TN_, int STAGES = 4>
struct Geometry {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, TM = TM_, TN = TN_;
    static constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of shared tiles
    static constexpr int stages = STAGES;
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;
    static constexpr int lanes_across = WN / TN, lanes_down = WM / TM;
    static_assert(lanes_across * lanes_down == 32, "a warp has 32 threads");

    struct Shared {
        float As[stages][BK][lda]; // (stages, BK, BM)
        float Bs[stages][BK][ldb]; // (stages, BK, BN)
        Pipeline<STAGES> pipeline;
    };
};

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
 * which is (row, col) in the block's tile. */
template <class G> struct ThreadTile {
    int row, col;

    __device__ __forceinline__ explicit ThreadTile(int thread)
    {
        const int warp = thread / 32, lane = thread % 32;
        row = warp / G::warps_across * G::WM + lane / G::lanes_across * 4;
        col = warp % G::warps_across * G::WN + lane % G::lanes_across * 4;
    }
    static __device__ __forceinline__ constexpr int down(int i)
    {
        return i / 4 * 4 * G::lanes_down + i % 4;
    }
    static __device__ __forceinline__ constexpr int right(int j)
    {
        return j / 4 * 4 * G::lanes_across + j % 4;
    }
};

/* The epilogue where the quads of C are not aligned. Threads of a warp that each stored their own, float
 * by float, would write to each sector of 32 bytes again and again: they exchange them, so that
 * neighbours store neighbours. Then no thread of the block has use for the tiles, and their memory
 * serves. */
template <class G>
static __device__ __forceinline__ void store_by_lines(const Sgemm &p, const Origin &tile,
                                                      const ThreadTile<G> &own,
                                                      const float (&sum)[G::TM][G::TN])
{
    constexpr int ld = G::WN + 16; // rows that are written at once are in different banks
    typedef float Lines[G::lanes_down][ld];
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    static_assert(sizeof(Lines) * (G::threads / 32) <= sizeof shared.As + sizeof shared.Bs,
                  "they fit");
    Lines &lines = reinterpret_cast<Lines *>(shared.As)[threadIdx.x / 32];
    const int lane = threadIdx.x % 32, row = lane / G::lanes_across;
    const int col = lane % G::lanes_across * 4;
    const Results C = results(p.C, tile.row + own.row - 4 * row, tile.col + own.col - col + lane);
    __syncthreads();
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        UNROLL(G::TN / 4)
        for (int j = 0; j < G::TN; j += 4) {
            const float4 quad = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            *reinterpret_cast<float4 *>(&lines[row][col + ThreadTile<G>::right(j)]) = quad;
        }
        __syncwarp();
        UNROLL(G::lanes_down)
        for (int r = 0; r < G::lanes_down; ++r) {
            UNROLL((G::WN + 31) / 32)
            for (int c = 0; c < G::WN; c += 32) {
                if (G::WN % 32 == 0 || c + lane < G::WN) {
                    store(p, C, 4 * r + ThreadTile<G>::down(i), c, lines[r][c + lane]);
                }
            }
        }
        __syncwarp();
    }
}

/* The epilogue for all results of a thread. */
template <class G>
static __device__ __forceinline__ void store_thread_tile(const Sgemm &p, const Origin &tile,
                                                         const ThreadTile<G> &own,
                                                         const float (&sum)[G::TM][G::TN])
{
    if (!is_aligned(p.C.data) || p.C.row_stride % 4 != 0) {
        store_by_lines<G>(p, tile, own, sum);
        return;
    }
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        const Results C =
            results(p.C, tile.row + own.row + ThreadTile<G>::down(i), tile.col + own.col);
        UNROLL(G::TN / 4)
        for (int j = 0; j < G::TN; j += 4) {
            store_quad(p, C, 0, ThreadTile<G>::right(j), sum[i] + j);
        }
    }
}

#endif
