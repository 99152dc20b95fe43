/* What the rungs from async on share: tiles that come to shared memory by asynchronous copies, and
 * the product of a block's tiles.
 *
 * A thread that copies asynchronously goes on at once; no register holds what is on its way. A ring
 * of stages lets copies run a tile ahead of the arithmetic, and a barrier for each stage tells when it
 * is full. Threads arrive there a whole tile before they wait, so that no warp waits for another
 * longer than it must: __syncthreads() would have all of them wait for the slowest, at each tile. */
#ifndef SGEMM_KERNELS_ASYNC_H
#define SGEMM_KERNELS_ASYNC_H

#include "quad.h"

/* ------------------------------------------------------------------ asynchronous copies */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define SGEMM_ASYNC 1
#endif

#ifdef SGEMM_ASYNC
static __device__ __forceinline__ unsigned shared_address(const void *in_shared_memory)
{
    return static_cast<unsigned>(__cvta_generic_to_shared(in_shared_memory));
}
#endif

/* Begins to copy one float to shared memory; writes 0 where it is not `there`, and reads nothing. The
 * L2 cache is told to fetch all 128 bytes around it, whose others the next copies take. */
static __device__ __forceinline__ void copy_async(float *to, const float *from, bool there)
{
#ifdef SGEMM_ASYNC
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 4 : 0));
#else
    *to = there ? *from : 0.0f;
#endif
}

/* The same for four neighbours. Both places are aligned to 16 bytes. */
static __device__ __forceinline__ void copy_quad_async(float *to, const float *from, bool there)
{
#ifdef SGEMM_ASYNC
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0));
#else
    *reinterpret_cast<float4 *>(to) =
        there ? *reinterpret_cast<const float4 *>(from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#endif
}

/* ------------------------------------------------------------------ the ring of stages */

/* The barriers of a ring of stages, in shared memory; tile t goes through stage t % STAGES, which is
 * full when what all threads of the block copy to it is there.
 *
 * That tells as well which stage may be filled again. A thread arrives at tile t's barrier after it
 * has multiplied all of tile t - 3. Who has waited for tile t therefore knows of every thread that it
 * has, and may put tile t + 1 in that tile's place. */
#ifdef __CUDACC__
template <int STAGES> struct Ring {
    static_assert(STAGES >= 4, "tile t + 1 takes the place of tile t - 3, or of an older one");
    uint64_t full[STAGES];

    __device__ __forceinline__ void open(int thread, int threads)
    {
#ifdef SGEMM_ASYNC
        if (thread < STAGES) {
            asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(full + thread)),
                         "r"(threads));
        }
#endif
        __syncthreads();
    }

    /* This thread has begun all of its copies of the tile, if it has any. */
    __device__ __forceinline__ void filled(int tile)
    {
#ifdef SGEMM_ASYNC
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                         shared_address(full + tile % STAGES))
                     : "memory");
#endif
    }

    __device__ __forceinline__ void wait_until_full(int tile)
    {
        wait(full + tile % STAGES, tile / STAGES % 2);
    }

    /* Until the barrier's phase of this parity is complete. */
    static __device__ __forceinline__ void wait(const uint64_t *barrier, int parity)
    {
#ifdef SGEMM_ASYNC
        unsigned done;
        do {
            asm volatile("{\n"
                         ".reg .pred done;\n"
#if __CUDA_ARCH__ >= 900
                         "mbarrier.try_wait.parity.shared.b64 done, [%1], %2;\n"
#else
                         "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
#endif
                         "selp.u32 %0, 1, 0, done;\n"
                         "}"
                         : "=r"(done)
                         : "r"(shared_address(barrier)), "r"(parity)
                         : "memory");
        } while (!done);
#endif
    }
};
#else
/* On the CPU a copy is done at once, and a barrier of the block stands for all of that. */
template <int STAGES> struct Ring {
    void open(int, int) {}
    void filled(int) {}
    __forceinline__ void wait_until_full(int)
    {
        __syncthreads();
    }
};
#endif

/* ------------------------------------------------------------------ bringing tiles */

/* What a thread brings of each of an operand's tiles, LINES x DEPTH (see quad.h), by THREADS
 * threads. Shared memory keeps a tile as [depth][line], rows LD apart. Where neighbours in memory
 * lie across the lines, whole quads are copied. Where they lie along the depth, single floats are,
 * each to its transposed place: a warp reads 32 bytes of each of four lines, and as LD is 4 more
 * than a multiple of 32, writes to 32 different banks. */
template <int LINES, int DEPTH, int LD, int THREADS> struct Feed {
    static constexpr int quads = LINES / 4;
    static constexpr int side = THREADS < quads ? THREADS : quads; // quads taken side by side
    static constexpr int rows = THREADS / side;                    // and rows of them, at a time
    static constexpr int deep = 8;               // floats of a line taken side by side,
    static constexpr int lines = THREADS / deep; // and lines of them, at a time
    static_assert(DEPTH % rows == 0 && quads % side == 0 && DEPTH % deep == 0 && LINES % lines == 0,
                  "all threads bring equally much");

    const float *here;
    int64_t depth_stride, line_stride;
    int first; // of this thread's places in a shared tile
    int k;     // at which depth that is
    int count; // from this thread's first line to the operand's last
    bool along_depth;
    bool inside; // no tile reaches beyond the operand's last line
    bool whole;  // across: each quad is aligned, and none crosses the operand's last line

    __device__ __forceinline__ Feed(const Matrix &X, int64_t first_line, int thread)
        : depth_stride(X.col_stride), line_stride(X.row_stride), along_depth(X.col_stride == 1)
    {
        const int line = along_depth ? thread / deep : thread % side * 4;
        const int left = clamped(X.rows - first_line);
        k = along_depth ? thread % deep : thread / side;
        first = k * LD + line;
        count = left - line;
        inside = left >= LINES;
        whole = aligned(X.data) && depth_stride % 4 == 0 && (X.rows % 4 == 0 || inside);
        // In place of what lies beyond the last line, the last: it is part of no result.
        const int last = along_depth ? left - 1 : whole ? left - 4 : line;
        here = place(X, first_line + (line < last ? line : last), k);
    }

    /* Begins to copy the next tile. */
    __device__ __forceinline__ void bring(float (&tile)[DEPTH][LD])
    {
        copy<true>(&tile[0][0] + first, DEPTH);
    }

    /* Begins to copy a first tile of which `depth` rows lie inside the operand; the others become
     * zeros, and the tiles that follow are whole. */
    __device__ __forceinline__ void bring_part(float (&tile)[DEPTH][LD], int depth)
    {
        copy<false>(&tile[0][0] + first, depth);
    }

  private:
    template <bool DEEP> __device__ __forceinline__ void copy(float *to, int depth)
    {
        const float *from = here;
        here += depth * depth_stride;
        if (along_depth && inside) {
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
            UNROLL(1)
            for (int d = 0; d < DEPTH; d += rows) {
                UNROLL(1)
                for (int q = 0; q < LINES; q += 4 * side) {
                    for (int i = q; i < q + 4; ++i) {
                        copy_async(to + d * LD + i, from + i, i < count && (DEEP || k + d < depth));
                    }
                }
                from += rows * depth_stride;
            }
        }
    }
};

/* ------------------------------------------------------------------ the product of a block */

/* How a product is divided: blocks of BM x BN results, tiles of depth BK, warps of WM x WN results,
 * threads of TM x TN. */
template <int BM_, int BN_, int BK_, int WM_, int WN_, int TM_, int TN_> struct Tiling {
    static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, TM = TM_, TN = TN_;
    static constexpr int lda = BM + quad_padding, ldb = BN + quad_padding; // of shared tiles
    static constexpr int stages = 4;
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;
    static constexpr int lanes_across = WN / TN, lanes_down = WM / TM;
    static_assert(lanes_across * lanes_down == 32, "a warp has 32 threads");

    struct Shared {
        float As[stages][BK][lda];
        float Bs[stages][BK][ldb];
        Ring<stages> ring;
    };
};

/* Whether the device gives a block so much shared memory. */
static inline bool has_shared_memory(const Launch *where, size_t bytes)
{
#ifdef __CUDACC__
    int most = 0;
    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, where->device);
    return bytes <= static_cast<size_t>(most);
#else
    (void)where;
    (void)bytes;
    return true;
#endif
}

/* A thread's results: quads of a row, row(i) and col(j) in the block's tile. */
template <class T> struct Own {
    int row, col;

    __device__ __forceinline__ explicit Own(int thread)
    {
        const int warp = thread / 32, lane = thread % 32;
        row = warp / T::warps_across * T::WM + lane / T::lanes_across * 4;
        col = warp % T::warps_across * T::WN + lane % T::lanes_across * 4;
    }
    static __device__ __forceinline__ constexpr int down(int i)
    {
        return i / 4 * 4 * T::lanes_down + i % 4;
    }
    static __device__ __forceinline__ constexpr int right(int j)
    {
        return j / 4 * 4 * T::lanes_across + j % 4;
    }
};

/* sum += A @ B for the block's tile of C, whose first row and column `tile` names. */
template <class T>
KERNEL_BODY void block_product(const Matrix &A, const Matrix &B, const Origin &tile,
                               const Own<T> &own, float (&sum)[T::TM][T::TN])
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    const int thread = threadIdx.x;
    shared.ring.open(thread, T::threads);

    Feed<T::BM, T::BK, T::lda, T::threads> a_feed(A, tile.row, thread);
    Feed<T::BN, T::BK, T::ldb, T::threads> b_feed(transposed(B), tile.col, thread);

    // The first tile takes what K leaves over, so that all others are whole.
    const int64_t K = A.cols;
    const int tiles = static_cast<int>((K + T::BK - 1) / T::BK);
    const int depth = static_cast<int>(K - static_cast<int64_t>(tiles - 1) * T::BK);
    if (tiles > 0) {
        a_feed.bring_part(shared.As[0], depth);
        b_feed.bring_part(shared.Bs[0], depth);
    }
    shared.ring.filled(0);

    constexpr int cut = 2; // rows of a step before the cut
    Fragments<T::TM, T::TN, T::lanes_down, T::lanes_across> even, odd = {};
    const float *As = &shared.As[0][0][own.row], *Bs = &shared.Bs[0][0][own.col];
    shared.ring.wait_until_full(0);
    even.load(As, Bs);
    UNROLL(1)
    for (int t = 0; t < tiles; ++t) {
        const int next = (t + 1) % T::stages;
        if (t + 1 < tiles) {
            a_feed.bring(shared.As[next]);
            b_feed.bring(shared.Bs[next]);
        }
        shared.ring.filled(t + 1);
        // Two steps at a time, in a loop that stays a loop: written out, the compiler would mix the
        // steps' multiplications, and lose the order in which they share operands. The loop is cut
        // inside a step, where what it has loaded last is not needed at once.
        UNROLL(1)
        for (int k = 0; k < T::BK - 2; k += 2) {
            odd.template multiply<cut, T::TM>(sum);
            odd.load(As + T::lda, Bs + T::ldb);
            even.multiply(sum);
            even.load(As + 2 * T::lda, Bs + 2 * T::ldb);
            odd.template multiply<0, cut>(sum);
            As += 2 * T::lda;
            Bs += 2 * T::ldb;
        }
        odd.template multiply<cut, T::TM>(sum);
        odd.load(As + T::lda, Bs + T::ldb);
        even.multiply(sum);
        shared.ring.wait_until_full(t + 1); // after the last tile, too: a branch would cost more
        As = &shared.As[next][0][own.row];
        Bs = &shared.Bs[next][0][own.col];
        even.load(As, Bs);
        odd.template multiply<0, cut>(sum);
    }
    odd.template multiply<cut, T::TM>(sum);
}

template <class T>
static __device__ __forceinline__ void
store_block(const Sgemm &p, const Origin &tile, const Own<T> &own, const float (&sum)[T::TM][T::TN])
{
    UNROLL(T::TM)
    for (int i = 0; i < T::TM; ++i) {
        const Results C = results(p.C, tile.row + own.row + Own<T>::down(i), tile.col + own.col);
        UNROLL(T::TN / 4)
        for (int j = 0; j < T::TN; j += 4) {
            store_quad(p, C, 0, Own<T>::right(j), sum[i] + j);
        }
    }
}

/* ------------------------------------------------------------------ the order of blocks */

constexpr int band_rows = 8;

/* The first row and column of the tile of C with this number. Tiles are numbered in bands of rows,
 * from top to bottom and column by column in each: those that run at the same time then form nearly
 * a square, and read fewer rows of A and columns of B between them than a row of tiles would. */
static __device__ __forceinline__ Origin raster_origin(const Matrix &C, int block_rows,
                                                       int block_cols, unsigned number)
{
    const unsigned down = static_cast<unsigned>((C.rows + block_rows - 1) / block_rows);
    const unsigned across = static_cast<unsigned>((C.cols + block_cols - 1) / block_cols);
    const unsigned band = number / (band_rows * across), in_band = number % (band_rows * across);
    const unsigned rows = down - band * band_rows < band_rows ? down - band * band_rows : band_rows;
    return {static_cast<int64_t>(band * band_rows + in_band % rows) * block_rows,
            static_cast<int64_t>(in_band / rows) * block_cols};
}

#endif
