/* Split-K: adds the partial sums of a tile of C, in one of three ways. Slices are added in the
 * block's shared memory. Blocks of a cluster read each other's shared memory. Other blocks write
 * their sums to memory, and the last block to arrive adds all. The order of additions is fixed, so
 * results are bit-identical from run to run. */
#ifndef SGEMM_GEMM_CLUSTER_REDUCE_H
#define SGEMM_GEMM_CLUSTER_REDUCE_H

#include "../kernel/cluster.h"
#include "../kernel/lower_tile_order.h"
#include "../plan/plan.h"
#include "partial_sums.h"
#include "store_tile.h"

namespace {

/* ------------------------------------------------------------------ adding blocks of a cluster */

/* A block's partial sums in shared memory, in place of its tiles: one set for each slice, with
 * swapped pairs (see store_swapped_pairs). The sum of the slices replaces the first set. */
template <class G> struct Part {
    float results[G::slices][G::BM][G::BN + float4_padding];
};

/* A product that may use split-K. */
struct SplitProduct {
    Sgemm p;
    SplitK split_k;    // the splits, in steps of BK; one for each block of a tile of C
    int missing;       // BK minus the first tile's steps of K
    float4 *sums;      // SPLIT: partial sums, [tile][block]
    int of_group;      // SPLIT: see plan_group
    unsigned *arrived; // SPLIT: counters, [tile][all groups, each group]
};

static __host__ __device__ __forceinline__ int groups_of(const SplitProduct &j)
{
    return (j.split_k.count + j.of_group - 1) / j.of_group;
}

/* Adds partial sums in the order of K. */
template <int PARTS, int WIDTH>
static __device__ __forceinline__ void add_up(const float (&values)[PARTS][WIDTH],
                                              float (&sum)[WIDTH])
{
    UNROLL(WIDTH)
    for (int i = 0; i < WIDTH; ++i) {
        sum[i] = values[0][i];
        UNROLL(PARTS)
        for (int part = 1; part < PARTS; ++part) {
            sum[i] += values[part][i];
        }
    }
}

/* A warp's number among all warps of its cluster or block, and how many there are. */
struct WarpIndex {
    int warp, warps, lane;
};

/* Rows that a thread reads before it adds the first one, if it reads FLOATS floats of each. */
template <int FLOATS> constexpr int rows_in_flight = FLOATS <= 8 ? 4 : FLOATS <= 16 ? 2 : 1;

/* Reads WIDTH floats of partial sum `part`. With SLICES, `part` is a slice of this block; otherwise
 * it is a block of the cluster. */
template <bool SLICES, class G, int WIDTH>
static __device__ __forceinline__ void read_part(float (&to)[WIDTH], const Part<G> &own, int part,
                                                 int row, int col)
{
    if constexpr (!SLICES) {
        read_of_block(to, &own.results[0][row][col], part);
    } else if constexpr (WIDTH == 4) {
        read4(to, &own.results[part][row][col]);
    } else {
        to[0] = own.results[part][row][col];
    }
}

/* Adds and stores a tile of a row-major C. Rows go to the warps round-robin, and a thread stores
 * WIDTH columns at once. */
template <class G, int WIDTH, int PARTS, bool SLICES>
static __device__ __forceinline__ void store_rows(const Sgemm &p, const Origin &tile,
                                                  const Part<G> &own, const WarpIndex &warp_index)
{
    constexpr int side = G::BN / WIDTH < 32 ? G::BN / WIDTH : 32; // threads along a row
    constexpr int abreast = 32 / side, pieces = G::BN / WIDTH / side;
    static_assert(32 % side == 0 && side * WIDTH * pieces == G::BN, "they take whole rows");
    constexpr int in_flight = rows_in_flight<pieces * PARTS * WIDTH>;
    const Results C = results(p.C, tile.row, tile.col);
    const int rows = C.rows < G::BM ? C.rows : G::BM, row_step = warp_index.warps * abreast;
    const int col = warp_index.lane % side * WIDTH;
    int row = warp_index.warp * abreast + warp_index.lane / side;
    float *to = C.first + row * C.ld + col;
    UNROLL(1)
    while (row < rows) {
        float values[in_flight][pieces][PARTS][WIDTH] = {};
        UNROLL(in_flight)
        for (int n = 0; n < in_flight; ++n) {
            UNROLL(pieces)
            for (int j = 0; j < pieces; ++j) {
                UNROLL(PARTS)
                for (int part = 0; part < PARTS; ++part) {
                    if (row + n * row_step < rows && col + j * side * WIDTH < C.cols) {
                        const int right = col + j * side * WIDTH;
                        read_part<SLICES>(values[n][j][part], own, part, row + n * row_step,
                                          WIDTH == 1 ? swapped_index(right) : right);
                    }
                }
            }
        }
        UNROLL(in_flight)
        for (int n = 0; n < in_flight; ++n) {
            UNROLL(pieces)
            for (int j = 0; j < pieces; ++j) {
                float sum[WIDTH];
                add_up(values[n][j], sum);
                float *const c = to + j * side * WIDTH;
                if (row >= rows || col + j * side * WIDTH >= C.cols) {
                    continue;
                }
                if constexpr (WIDTH == 4) {
                    store_whole(c, make_float4(scaled(p, sum[1], 0.0f), scaled(p, sum[0], 0.0f),
                                               scaled(p, sum[3], 0.0f), scaled(p, sum[2], 0.0f)));
                } else {
                    *c = scaled(p, sum[0], p.beta == 0.0f ? 0.0f : *c);
                }
            }
            row += row_step;
            to += row_step * C.ld;
        }
    }
}

/* The same for a column-major C. A warp stores 16 columns of eight rows. Eight rows of a column are
 * a whole sector. */
template <class G, int PARTS, bool SLICES>
static __device__ __forceinline__ void
store_columns(const Sgemm &p, const Origin &tile, const Part<G> &own, const WarpIndex &warp_index)
{
    constexpr int abreast = G::BM < 8 ? G::BM : 8, side = 32 / abreast; // threads
    constexpr int across = G::BN / (4 * side);
    static_assert(32 % abreast == 0 && across * 4 * side == G::BN, "they take whole rows");
    const int left = clamped(p.C.rows - tile.row), rows = left < G::BM ? left : G::BM;
    const int cols = clamped(p.C.cols - tile.col);
    UNROLL(1)
    for (int n = warp_index.warp; n < (rows + abreast - 1) / abreast * across;
         n += warp_index.warps) {
        const int row = n / across * abreast + warp_index.lane % abreast;
        const int col = (n % across * side + warp_index.lane / abreast) * 4;
        float values[PARTS][4] = {}, sum[4];
        UNROLL(PARTS)
        for (int part = 0; part < PARTS; ++part) {
            if (row < rows && col < cols) {
                read_part<SLICES>(values[part], own, part, row, col);
            }
        }
        add_up(values, sum);
        float *to = address(p.C, tile.row + row, tile.col + col);
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            if (row < rows && col + i < cols) {
                *to = scaled(p, sum[swapped_index(i)], p.beta == 0.0f ? 0.0f : *to);
            }
            to += p.C.col_stride;
        }
    }
}

/* Adds and stores a tile of C in any layout. */
template <class G, int PARTS, bool SLICES = false>
static __device__ __forceinline__ void
add_and_store(const Sgemm &p, const Origin &tile, const Part<G> &own, const WarpIndex &warp_index)
{
    if (p.C.col_stride != 1) {
        store_columns<G, PARTS, SLICES>(p, tile, own, warp_index);
    } else if (p.beta == 0.0f && is_aligned(address(p.C, 0, 0)) && p.C.row_stride % 4 == 0 &&
               p.C.cols % 4 == 0) {
        store_rows<G, 4, PARTS, SLICES>(p, tile, own, warp_index);
    } else {
        store_rows<G, 1, PARTS, SLICES>(p, tile, own, warp_index);
    }
}

/* ------------------------------------------------------------------ adding slices */

/* The position of the float4 with a given number. Consecutive numbers are neighbours in C. */
template <class G> struct Float4Place {
    int row, col;

    __device__ __forceinline__ Float4Place(int index, bool by_columns)
        : row(by_columns ? index % G::BM : index / (G::BN / 4)),
          col((by_columns ? index / G::BM : index % (G::BN / 4)) * 4)
    {}
};

/* Adds the slices into the first one. All threads must have stored their sums. */
template <class G> static __device__ __forceinline__ void add_slices(Part<G> &own, unsigned thread)
{
    UNROLL(2)
    for (int index = static_cast<int>(thread); index < G::BM * G::BN / 4; index += G::threads) {
        const Float4Place<G> at(index, false);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        UNROLL(G::slices)
        for (int slice = 0; slice < G::slices; ++slice) {
            add_float4(sum, *reinterpret_cast<float4 *>(&own.results[slice][at.row][at.col]));
        }
        *reinterpret_cast<float4 *>(&own.results[0][at.row][at.col]) = sum;
    }
}

/* ------------------------------------------------------------------ adding clusters */

/* Each block writes its partial sums to memory, and the last one to arrive adds all of them in the
 * order of K. If there are many, the last block of each group adds its group's sums, and the last
 * group adds the sums of the groups. */
template <class G>
static __device__ __forceinline__ void add_in_memory(const SplitProduct &j, const Origin &tile,
                                                     unsigned of_tile, unsigned part, Part<G> &own,
                                                     bool &is_last)
{
    const Sgemm &p = j.p;
    const bool by_columns = p.C.col_stride != 1;
    constexpr int float4s = G::BM * G::BN / 4;
    float4 *const sums = j.sums + static_cast<int64_t>(of_tile) * j.split_k.count * float4s;
    UNROLL(1)
    for (int n = static_cast<int>(threadIdx.x); n < float4s; n += G::threads) {
        const Float4Place<G> at(n, by_columns);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        UNROLL(G::slices)
        for (int slice = 0; slice < G::slices; ++slice) {
            add_float4(sum, *reinterpret_cast<float4 *>(&own.results[slice][at.row][at.col]));
        }
        sums[static_cast<int64_t>(part) * float4s + n] = sum;
    }
    float4 *const scratch = reinterpret_cast<float4 *>(&own);
    const int groups = groups_of(j);
    unsigned *const arrived = j.arrived + of_tile * (1 + groups);
    if (j.of_group > 1) {
        const int group = static_cast<int>(part) / j.of_group, begin = group * j.of_group;
        const int left = j.split_k.count - begin, count = left < j.of_group ? left : j.of_group;
        if (!last_to_arrive(arrived + 1 + group, count, is_last)) {
            return;
        }
        float4 *const of_group = sums + static_cast<int64_t>(begin) * float4s;
        add_sums<G::threads>(of_group, float4s, float4s, count, scratch,
                             [=](int n, const float4 &sum) { of_group[n] = sum; });
    }
    if (!last_to_arrive(arrived, groups, is_last)) {
        return;
    }
    const auto store = [&](int n, const float4 &sum) {
        const Float4Place<G> at(n, by_columns);
        const float elements[4] = {sum.y, sum.x, sum.w, sum.z};
        const int64_t row = tile.row + at.row, col = tile.col + at.col;
        for (int i = 0; row < p.C.rows && i < 4 && col + i < p.C.cols; ++i) {
            float *const c = address(p.C, row, col + i);
            *c = scaled(p, elements[i], p.beta == 0.0f ? 0.0f : *c);
        }
    };
    add_sums<G::threads>(sums, float4s, static_cast<int64_t>(j.of_group) * float4s, groups, scratch,
                         store);
}

/* ------------------------------------------------------------------ the kernel */

/* Tiles in flight before the block waits for the first one. Small tiles need more, because they are
 * multiplied faster than memory delivers the next one. With split-K, more are slower for the
 * largest tiles with slices and for threads of 4 x 8 results. Measured on 9.0. */
template <class G> constexpr int tiles_in_flight = (G::TM * G::TN <= 64 || G::slices > 1 ? 3 : 1);
template <class G>
constexpr int tiles_in_flight_of_split = (G::slices > 1 ? G::BM * G::BN >= 64 * 64
                                                        : G::TM * G::TN < 64)
                                             ? 1
                                             : tiles_in_flight<G>;

/* Resident blocks that the compiler must leave registers for. With the number in TILES, the
 * compiler does not spill on 9.0; on other architectures it might. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
template <int BLOCKS> constexpr int min_blocks = BLOCKS > 2 ? BLOCKS - 1 : 1;
#else
template <int BLOCKS> constexpr int min_blocks = BLOCKS;
#endif

/* One block computes a tile of C, and each thread stores its own results. */
template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, min_blocks<MIN_BLOCKS>) tiled(const Sgemm p)
{
#ifdef __CUDA_ARCH__
    if (__CUDA_ARCH__ < 800) { // never launched: the device has no plans
        __trap();
        return;
    }
#endif
    TileNumber<G> number(raster_origin(p.C, G::BM, G::BN, blockIdx.x));
    unsigned thread = threadIdx.x;
    float sum[G::TM][G::TN] = {};
    block_product<G, tiles_in_flight<G>>(p.A, p.B, number.origin(), ThreadTile<G>(thread), sum);
    recompute_from(thread);
    store_thread_tile<G>(p, number.origin(), ThreadTile<G>(thread), sum);
}

/* The prefetch distance in tiles, for kernels that add slices. */
template <class G> constexpr int tiles_ahead = G::slices > 1 && G::BM <= 32 ? 2 : 1;

/* The product over one split of K. The first split takes the remainder of K, so that all others
 * have whole tiles. */
template <class G>
static __device__ __forceinline__ Sgemm part_of(const SplitProduct &j, unsigned part)
{
    const auto begin_of = [&](unsigned number) {
        const int64_t k = j.split_k.first(number) * G::BK - j.missing;
        return k > 0 ? k : 0;
    };
    const int64_t begin = begin_of(part);
    Sgemm p = j.p;
    p.A.data = address(p.A, 0, begin);
    p.B.data = address(p.B, begin, 0);
    p.A.cols = p.B.rows = begin_of(part + 1) - begin;
    return p;
}

/* Leaves the sums of this thread in shared memory, in place of the tiles. */
template <class G>
KERNEL_BODY Part<G> &leave_sums(unsigned thread, const ThreadTile<G> &place,
                                const float (&sum)[G::TM][G::TN])
{
    auto &shared = dynamic_shared<typename G::Shared>();
    static_assert(sizeof(Part<G>) <= sizeof shared.As + sizeof shared.Bs,
                  "the sums fit where the tiles were, before the barriers");
    static_assert(G::threads * sizeof(float4) <= sizeof(Part<G>), "add_sums uses the same memory");
    Part<G> &own = *reinterpret_cast<Part<G> *>(&shared);
    __syncthreads(); // all threads have read the tiles
    auto &results = own.results[thread / 32 / G::warps_of_slice % G::slices];
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        UNROLL(G::TN / 4)
        for (int n = 0; n < G::TN; n += 4) {
            float *const to =
                &results[place.row + ThreadTile<G>::down(i)][place.col + ThreadTile<G>::right(n)];
            store_swapped_pairs(to, sum[i] + n);
        }
    }
    return own;
}

/* How a tile of C is added up: one block adds its slices, the blocks of a cluster add their
 * sums, or the last block to arrive adds the sums in memory. Each way has its own kernel,
 * because most blocks run their code once and wait while it is fetched. */
enum Reduction { ONE_BLOCK, CLUSTER, SPLIT };

/* The tile of C and the split of K of this block. They are read again after the product, which
 * saves registers. */
struct Share {
    unsigned tile, part;
};

template <class G, Reduction HOW>
static __device__ __forceinline__ Share share_of(const SplitProduct &j)
{
    if (HOW == ONE_BLOCK) {
        return {blockIdx.x, 0};
    }
    if (HOW == CLUSTER) {
        return {cluster_number(static_cast<unsigned>(j.split_k.count)),
                static_cast<unsigned>(rank_in_cluster())};
    }
    const unsigned tiles = static_cast<unsigned>(tiles_of(j.p.C, G::BM, G::BN));
    const unsigned part = blockIdx.x / tiles;
    return {blockIdx.x - part * tiles, part};
}

template <class G, int MIN_BLOCKS, Reduction HOW>
__global__ void __launch_bounds__(G::threads, min_blocks<MIN_BLOCKS>)
    split_product(const SplitProduct j)
{
#ifdef __CUDA_ARCH__
    if (__CUDA_ARCH__ < (HOW == CLUSTER ? 900 : 800)) { // never launched: no such plans
        __trap();
        return;
    }
#endif
    const Share share = share_of<G, HOW>(j);
    TileNumber<G> number(raster_origin(j.p.C, G::BM, G::BN, share.tile));
    float sum[G::TM][G::TN] = {};
    {
        const Sgemm p = HOW == ONE_BLOCK ? j.p : part_of<G>(j, share.part);
        constexpr int ahead = tiles_ahead<G>;
        constexpr int in_flight =
            HOW == ONE_BLOCK ? tiles_in_flight<G> : tiles_in_flight_of_split<G>;
        block_product<G, (in_flight < ahead ? ahead : in_flight), ahead>(
            p.A, p.B, number.origin(), ThreadTile<G>(threadIdx.x), sum);
    }
    unsigned thread = threadIdx.x;
    recompute_from(thread);
    const Origin tile = number.origin();
    const ThreadTile<G> place(thread);
    Part<G> &own = leave_sums<G>(thread, place, sum);
    constexpr int warps = G::threads / 32;
    const int warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32);
    if constexpr (HOW == ONE_BLOCK) {
        __syncthreads();
        add_and_store<G, G::slices, true>(j.p, tile, own, {warp, warps, lane});
    } else if constexpr (HOW == SPLIT) {
        __syncthreads();
        const Share again = share_of<G, HOW>(j);
        auto &shared = dynamic_shared<typename G::Shared>();
        add_in_memory<G>(j, tile, again.tile, again.part, own, shared.is_last);
    } else {
        if (G::slices > 1) {
            __syncthreads();
            add_slices<G>(own, thread);
        }
        cluster_barrier();
        const int blocks = j.split_k.count;
        const WarpIndex warp_index = {rank_in_cluster() * warps + warp, blocks * warps, lane};
        if (blocks == 2) {
            add_and_store<G, 2>(j.p, tile, own, warp_index);
        } else if (blocks == 4) {
            add_and_store<G, 4>(j.p, tile, own, warp_index);
        } else {
            add_and_store<G, CLUSTER_MOST_BLOCKS>(j.p, tile, own, warp_index);
        }
        cluster_barrier_after_reads(); // no block exits before the others have read its memory
    }
}

/* ------------------------------------------------------------------ symmetric products */

/* Stores elements `begin` to `end` - 1 of a float4. */
static __device__ __forceinline__ void store_part(const Sgemm &p, float *to, const float (&sum)[4],
                                                  int begin, int end)
{
    const float x[4] = {scaled(p, sum[0], 0.0f), scaled(p, sum[1], 0.0f), scaled(p, sum[2], 0.0f),
                        scaled(p, sum[3], 0.0f)};
    if (begin <= 0 && end >= 4) {
        store_whole(to, make_float4(x[0], x[1], x[2], x[3]));
        return;
    }
    UNROLL(4)
    for (int i = 0; i < 4; ++i) {
        if (i >= begin && i < end) {
            to[i] = x[i];
        }
    }
}

/* Stores the sums on or below the diagonal of C there, and those below it also at their mirror
 * images, in float4s. */
template <class G>
static __device__ __forceinline__ void store_mirrored_float4s(const Sgemm &p, const Origin &tile,
                                                              const Part<G> &own, int thread)
{
    const auto &sums = own.results[0];
    const int rows = clamped(p.C.rows - tile.row), below = clamped(tile.row - tile.col);
    UNROLL(4)
    for (int n = thread; n < G::BM * G::BN / 4; n += G::threads) {
        const Float4Place<G> at(n, false);
        const float4 x = *reinterpret_cast<const float4 *>(&sums[at.row][at.col]);
        const float sum[4] = {x.y, x.x, x.w, x.z};
        if (at.row < rows) {
            store_part(p, address(p.C, tile.row + at.row, tile.col + at.col), sum, 0,
                       below + at.row - at.col + 1);
        }
    }
    // A warp reads 16 rows of eight columns, which are rows of the image.
    constexpr int high = 16, wide = 8, down = G::BM / high;
    static_assert(G::BM % high == 0 && G::BN % wide == 0, "they take the whole tile");
    UNROLL(4)
    for (int n = thread; n < G::BM * G::BN / 4; n += G::threads) {
        const int row = n / 32 % down * high + n % 32 / wide * 4;
        const int col = n / 32 / down * wide + n % wide;
        float sum[4];
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            sum[i] = sums[row + i][swapped_index(col)];
        }
        if (row < rows) {
            store_part(p, address(p.C, tile.col + col, tile.row + row), sum, col - row - below + 1,
                       4);
        }
    }
}

/* The same for any C. So each element of C is read and written once. */
template <class G>
static __device__ __forceinline__ void store_mirrored(const Sgemm &p, const Origin &tile,
                                                      const Part<G> &own, unsigned thread)
{
    if (p.beta == 0.0f && is_aligned(address(p.C, 0, 0)) && p.C.col_stride == 1 &&
        p.C.row_stride % 4 == 0 && p.C.rows % 4 == 0) {
        store_mirrored_float4s<G>(p, tile, own, static_cast<int>(thread));
        return;
    }
    // Neighbouring threads store neighbours.
    UNROLL(4)
    for (int n = static_cast<int>(thread); n < G::BM * G::BN; n += G::threads) {
        const int64_t row = tile.row + n / G::BN, col = tile.col + n % G::BN;
        if (row >= col) {
            store(p, row, col, own.results[0][n / G::BN][swapped_index(n % G::BN)]);
        }
    }
    UNROLL(4)
    for (int n = static_cast<int>(thread); n < G::BM * G::BN; n += G::threads) {
        const int64_t row = tile.row + n % G::BM, col = tile.col + n / G::BM;
        if (row > col) {
            store(p, col, row, own.results[0][n % G::BM][swapped_index(n / G::BM)]);
        }
    }
}

/* `tiled` for A @ A.T: only tiles of the lower triangle are computed. */
template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, min_blocks<MIN_BLOCKS>) tiled_symmetric(const Sgemm p)
{
#ifdef __CUDA_ARCH__
    if (__CUDA_ARCH__ < 800) { // never launched: the device has no plans
        __trap();
        return;
    }
#endif
    TileNumber<G> number(lower_tile_in_bands(p.C, G::BM, G::BN, blockIdx.x));
    unsigned thread = threadIdx.x;
    float sum[G::TM][G::TN] = {};
    block_product<G, tiles_in_flight<G>>(p.A, p.B, number.origin(), ThreadTile<G>(thread), sum);
    recompute_from(thread);
    Part<G> &own = leave_sums<G>(thread, ThreadTile<G>(thread), sum);
    __syncthreads();
    store_mirrored<G>(p, number.origin(), own, thread);
}

/* ------------------------------------------------------------------ on the host */

/* Launches one block for each tile of C and each of the plan's splits of K. */
template <class G, int MIN_BLOCKS>
Status launch_tiles_of(const Sgemm &p, const Plan &plan, const Launch *where)
{
    const int splits = plan.splits;
    const int64_t tiles = tiles_of(p.C, G::BM, G::BN), steps = (p.A.cols + G::BK - 1) / G::BK;
    const int missing = static_cast<int>(steps * G::BK - p.A.cols);
    SplitProduct j = {p, {steps, splits}, missing, nullptr, plan_group(splits), nullptr};
    if (plan.cluster) {
        return launch_blocks(split_product<G, MIN_BLOCKS, CLUSTER>,
                             spec_of<G>("split_product", splits), tiles * splits, j, where);
    }
    if (splits > 1) {
        const size_t bytes = static_cast<size_t>(tiles * splits * G::BM * G::BN) * sizeof(float);
        const Workspace<float4> memory(bytes, tiles * (1 + groups_of(j)), where);
        j.sums = memory.data;
        j.arrived = memory.arrived;
        return memory.status.code != STATUS_OK
                   ? memory.status
                   : launch_blocks(split_product<G, MIN_BLOCKS, SPLIT>, spec_of<G>("split_product"),
                                   tiles * splits, j, where);
    }
    if constexpr (G::slices == 1 && G::same_layouts) {
        if (plan.mirrors) {
            return launch_blocks(tiled_symmetric<G, MIN_BLOCKS>, spec_of<G>("tiled_symmetric"),
                                 lower_tiles(G::BM, G::BN, p.C.rows), p, where, p.count);
        }
    }
    if constexpr (G::slices == 1) {
        return launch_blocks(tiled<G, MIN_BLOCKS>, spec_of<G>("tiled"), tiles, p, where, p.count);
    } else {
        return launch_blocks(split_product<G, MIN_BLOCKS, ONE_BLOCK>, spec_of<G>("split_product"),
                             tiles, j, where, p.count);
    }
}

} // namespace

#endif
