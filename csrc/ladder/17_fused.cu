// idea      split A as it is multiplied. Loads A's tiles in float32; a warpgroup splits its rows in
//           registers, from where wgmma reads them. No kernel writes A's fp16 pairs. Thin products,
//           whose A is far larger than B, read it once. Few tiles: divide K, as in splitk.
// block     128 x 128 or 128 x 64 results by two consumer warpgroups, and a producer warpgroup;
//           tiles 32 deep, in six or eight stages; a thread has 2 x 32 or 2 x 16 results.
// traffic   8 / 128 bytes from the L2 cache per multiply-add. From shared memory 4 / 128 bytes of A,
//           which are read once, and 3 / 64 times 2 bytes of B.
// bound by  memory if C has 64 columns, tensor cores from 256 on.
// next      nothing yet.
#include "copy_rows.h"
#include "error_check.h"
#include "fused_plan.h"
#include "split_fp16.h"

namespace {

constexpr int row_floats = k_block; /* of A's tile in shared memory: 128 bytes, swizzled */

/* Two consumer warpgroups compute 64 x BN_ results each. */
template <int BN_, int STAGES> struct FusedTile {
    static constexpr int BM = 128, BN = BN_, BK = k_block, stages = STAGES;
    static constexpr int WM = 16, WN = BN, MI = WM / 16, NI = WN / 8; // of a warp, and in products
    static constexpr int warps_across = 1, threads = BM / WM * 32;    // of the consumers
    static constexpr int producers = 128, block_threads = threads + producers;

    struct Shared {
        float As[stages][BM * row_floats];     // (BM, 32)
        Fp16x8 Bs[stages][BN * block_vectors]; // (BN, 32): hi, lo
        Mbarrier full[stages], empty[stages];  // of a stage: loaded, read by all consumers
        uint64_t failing[threads / 8];         // a byte for each consumer
        Staging staging[threads / 32];         // for each consumer warp
        unsigned row_largest[BM];
        int row_scale[BM];
    };
    static __device__ __forceinline__ void synchronize()
    {
        bar_sync<1>(threads); // the consumers alone
    }
};

/* The tile of a block that adds slices of K. */
struct AddingTile {
    static constexpr int BM = 64, BN = 64;
    static constexpr int WM = 16, WN = 32, MI = WM / 16, NI = WN / 8;
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;

    struct Shared {
        uint64_t failing[threads / 8];
        Staging staging[threads / 32];
        unsigned row_largest[BM];
        int row_scale[BM];
    };
    static __device__ __forceinline__ void synchronize()
    {
        __syncthreads();
    }
};

/* What the check needs of a row of A. Each K chunk of the row has a scale of its own. */
struct RowOfA {
    float inverse_scales; // their sum
    float largest;        // NaN if any element is
};

struct FusedProduct {
    Fp16Product product; // its `a` is not used
    int64_t matrix_rows; // rows of A's tensor map from matrix to matrix of a batch
    TensorMap a, b;
    float chunk_share; // k_chunk / K
    int slices;        // of K
    float *sums;       // of each slice: rows x cols, padded to whole tiles
    RowOfA *rows;      // of each slice
    int64_t row_count, col_count;

    /* The first row of this block's matrix in `sums` and `rows`. */
    __device__ __forceinline__ int64_t row_in_slice(int64_t slice) const
    {
        return (blockIdx.y * int64_t{slices} + slice) * row_count;
    }
};

/* A block's tile of C and slice of K, in K chunks. */
struct Work {
    unsigned tile, slice;
    int begin, end;

    __device__ __forceinline__ explicit Work(const FusedProduct &q)
        : tile(blockIdx.x / static_cast<unsigned>(q.slices)),
          slice(blockIdx.x % static_cast<unsigned>(q.slices)), begin(boundary(q, slice)),
          end(boundary(q, slice + 1))
    {}
    static __device__ __forceinline__ int boundary(const FusedProduct &q, unsigned slice)
    {
        return static_cast<int>(int64_t{q.product.b.chunks} * slice / q.slices);
    }
};

/* ------------------------------------------------------------------ the producer */

/* The producer thread. Its first loads of A need not wait for the kernel that splits B. */
template <class T>
KERNEL_BODY void load_chunks(const FusedProduct &q, const Work &work, typename T::Shared &shared)
{
    constexpr int b_step = swizzle_bytes / static_cast<int>(sizeof(uint16_t)); // of a K block
    const Origin tile = tile_in_bands(q.product.p.C, T::BM, T::BN, work.tile);
    const int row = static_cast<int>(tile.row + blockIdx.y * q.matrix_rows);
    const int col = static_cast<int>(tile.col + q.product.b.first_row());
    const auto load_a = [&](int block, int stage) {
        mbarrier_arrive_expect_tx(shared.full + stage, sizeof shared.As[0] + sizeof shared.Bs[0]);
        tma_load_2d(shared.As[stage], q.a, block * k_block, row, shared.full + stage);
    };
    const auto load_b = [&](int block, int stage) {
        tma_load_2d(shared.Bs[stage], q.b, block * b_step, col, shared.full + stage);
    };
    const int begin = 2 * work.begin, end = 2 * work.end;
    const int filled = begin + T::stages < end ? begin + T::stages : end;
    UNROLL(1)
    for (int block = begin; block < filled; ++block) {
        load_a(block, block - begin);
    }
    griddep_wait();
    UNROLL(1)
    for (int block = begin; block < filled; ++block) {
        load_b(block, block - begin);
    }
    RingPosition<T::stages> to;
    UNROLL(1)
    for (int block = filled; block < end; ++block) {
        mbarrier_wait(shared.empty + to.index, to.parity);
        load_a(block, to.index);
        load_b(block, to.index);
        to.advance();
    }
}

/* ------------------------------------------------------------------ the consumers */

/* In this order, 16 lanes that read 8 bytes each use different banks. */
struct EvenRowsFirst {
    static __device__ __forceinline__ int row_of_lane(int lane)
    {
        return lane / 4 * 2 % 8 + lane / 16;
    }
};

constexpr int depths = k_chunk / 16; /* products along K */

/* A thread's elements of two rows of a K chunk, in the layout of wgmma's A: [depth][register]. */
typedef Pair PairsOfA[depths][4];

/* Reads one of the chunk's two K blocks. `row` is the thread's first of the tile. */
__device__ __forceinline__ void read_pairs(const float *As, int row, int block, PairsOfA &to)
{
    const int lane = threadIdx.x % 32;
    UNROLL(depths / 2)
    for (int d = 0; d < depths / 2; ++d) {
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            const int vector = swizzled(row, 4 * d + i / 2 * 2 + lane % 4 / 2);
            const float *const from = As + (row + i % 2 * 8) * row_floats + vector * 4;
            to[block * depths / 2 + d][i] = reinterpret_cast<const Pair *>(from)[lane % 2];
        }
    }
}

__device__ __forceinline__ float larger(float largest, const Pair &x)
{
    return max_or_nan(max_or_nan(largest, fabsf(x.x)), fabsf(x.y));
}

/* Scales both rows so that the largest magnitude of a chunk is in [2^14, 2^15), and splits them.
 * Returns the inverse scales. A scale is at most 2^125, so that its inverse is normal. */
__device__ __forceinline__ void split_pairs(const PairsOfA &x, RowOfA (&rows)[2],
                                            float (&inverse)[2], unsigned (&hi)[depths][4],
                                            unsigned (&lo)[depths][4])
{
    float scale[2];
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        float largest = 0.0f;
        UNROLL(depths)
        for (int d = 0; d < depths; ++d) {
            largest = larger(larger(largest, x[d][r]), x[d][r + 2]);
        }
        largest = max_or_nan(largest, __shfl_xor_sync(0xffffffff, largest, 1));
        largest = max_or_nan(largest, __shfl_xor_sync(0xffffffff, largest, 2));
        const int field = static_cast<int>(bits_of(largest) >> 23);
        const int exponent = (field > 16 ? field : 16) - 127;
        scale[r] = power_of_two(14 - exponent);
        inverse[r] = power_of_two(exponent - 14);
        rows[r].inverse_scales += inverse[r];
        rows[r].largest = max_or_nan(rows[r].largest, largest);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            const float a = x[d][i].x * scale[i % 2], b = x[d][i].y * scale[i % 2];
            const Pair high = round_two(a, b, hi[d][i]);
            round_two(a - high.x, b - high.y, lo[d][i]); // exact differences
        }
    }
}

/* part = the product of a K chunk, whose B is in two stages. The order is that of mma. */
template <class T>
__device__ __forceinline__ void
begin_products(const unsigned (&hi)[depths][4], const unsigned (&lo)[depths][4],
               const decltype(T::Shared::Bs) &Bs, int first, int second, float (&part)[T::NI][4])
{
    const WgmmaFactor b[] = {WgmmaFactor(Bs[first]), WgmmaFactor(Bs[second])};
    const auto at = [&b](int depth, bool low) {
        const int vectors = depth % 2 * 2 + low * lo_offset;
        return b[depth / 2].from_byte(vectors * static_cast<int>(sizeof(Fp16x8)));
    };
    wgmma_fence();
    UNROLL(depths)
    for (int d = depths - 1; d >= 0; --d) {
        wgmma_k16(part, lo[d], at(d, false), d != depths - 1);
        wgmma_k16(part, hi[d], at(d, true), true);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        wgmma_k16(part, hi[d], at(d, false), true);
    }
    wgmma_commit();
}

/* Scales each row's sums by a power of two so that `passing` is their least magnitude that passes
 * the check, and lets `own` undo it. If sums may have overflowed, they become 0, or NaN if they did:
 * both fail, unless all terms are 0. */
template <class T, class Tile>
__device__ __forceinline__ void scale_rows(const RowOfA (&rows)[2], float chunk_share,
                                           float (&sum)[1][T::NI][4], Tile &own,
                                           typename T::Shared &shared)
{
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        const unsigned mean = bits_of(rows[r].inverse_scales * chunk_share);
        const int exponent = static_cast<int>(mean >> 23) - 127 + ((mean & 0x7fffff) != 0);
        const float scale = rows[r].inverse_scales < 0x1p91f ? power_of_two(-exponent) : 0.0f;
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            sum[0][j][2 * r] *= scale;
            sum[0][j][2 * r + 1] *= scale;
        }
        if (threadIdx.x % 4 == 0) {
            shared.row_scale[own.row_in_tile(r)] = rows[r].largest == 0.0f ? 0 : -exponent;
            shared.row_largest[own.row_in_tile(r)] = bits_of(rows[r].largest);
        }
    }
    own.row_scale = shared.row_scale;
    own.row_largest = shared.row_largest;
    T::synchronize();
}

/* The consumer threads. A chunk of A is read from shared memory during the previous chunk's
 * products. */
template <class T>
KERNEL_BODY void multiply_chunks(const FusedProduct &q, const Work &work,
                                 typename T::Shared &shared)
{
    CheckedTile<T, EvenRowsFirst> own(q.product, work.tile, threadIdx.x);
    float sum[1][T::NI][4] = {};
    RowOfA rows[2] = {};
    PairsOfA x;
    RingPosition<T::stages> first, ahead;
    const auto read_next = [&] {
        UNROLL(2)
        for (int block = 0; block < 2; ++block) {
            mbarrier_wait(shared.full + ahead.index, ahead.parity);
            read_pairs(shared.As[ahead.index], own.row, block, x);
            ahead.advance();
        }
    };
    read_next();
    UNROLL(1)
    for (int chunk = work.begin; chunk < work.end; ++chunk) {
        RingPosition<T::stages> second = first;
        second.advance();
        unsigned hi[depths][4], lo[depths][4];
        float inverse[2], part[T::NI][4];
        split_pairs(x, rows, inverse, hi, lo);
        begin_products<T>(hi, lo, shared.Bs, first.index, second.index, part);
        if (chunk + 1 < work.end) {
            read_next();
        }
        wgmma_wait<0>();
        UNROLL(depths)
        for (int d = 0; d < depths; ++d) {
            wgmma_factor_read(hi[d]);
            wgmma_factor_read(lo[d]);
        }
        if (threadIdx.x % 32 == 0) { // this warp has read both stages
            mbarrier_arrive(shared.empty + first.index);
            mbarrier_arrive(shared.empty + second.index);
        }
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            wgmma_accumulators_ready(part[j]);
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[0][j][r] = multiply_add(part[j][r], inverse[r / 2], sum[0][j][r]);
            }
        }
        first = second;
        first.advance();
    }
    griddep_launch_dependents();
    if (q.slices == 1) {
        scale_rows<T>(rows, q.chunk_share, sum, own, shared);
        own.store_passing(sum, true, shared.failing, shared.staging);
        return;
    }
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        const int64_t row = q.row_in_slice(work.slice) + own.tile.row + own.row_in_tile(r);
        if (own.tile.col == 0 && threadIdx.x % 4 == 0) {
            q.rows[row] = rows[r];
        }
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            const Pair two = {sum[0][j][2 * r], sum[0][j][2 * r + 1]};
            *reinterpret_cast<Pair *>(q.sums + row * q.col_count + own.tile.col +
                                      own.col_in_tile(2 * j)) = two;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(T::block_threads, 1) fused(const __grid_constant__ FusedProduct q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
        }
        fence_proxy_async();
    }
    __syncthreads();
    const Work work(q);
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<232>();
        griddep_wait();
        multiply_chunks<T>(q, work, shared);
    } else {
        setmaxnreg_dec<40>();
        if (threadIdx.x == T::threads) {
            load_chunks<T>(q, work, shared);
        }
    }
}

/* Adds the slices of K in order. */
__global__ void __launch_bounds__(AddingTile::threads) add_slices(const FusedProduct q)
{
    typedef AddingTile T;
    __shared__ T::Shared shared;
    griddep_wait();
    CheckedTile<T> own(q.product, blockIdx.x, threadIdx.x);
    float sum[1][T::NI][4] = {};
    RowOfA rows[2] = {};
    UNROLL(8)
    for (int slice = 0; slice < q.slices; ++slice) {
        UNROLL(2)
        for (int r = 0; r < 2; ++r) {
            const int64_t row = q.row_in_slice(slice) + own.tile.row + own.row_in_tile(r);
            rows[r].inverse_scales += q.rows[row].inverse_scales;
            rows[r].largest = max_or_nan(rows[r].largest, q.rows[row].largest);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                const Pair two = *reinterpret_cast<const Pair *>(
                    q.sums + row * q.col_count + own.tile.col + own.col_in_tile(2 * j));
                sum[0][j][2 * r] += two.x;
                sum[0][j][2 * r + 1] += two.y;
            }
        }
    }
    griddep_launch_dependents();
    scale_rows<T>(rows, q.chunk_share, sum, own, shared);
    own.store_passing(sum, true, shared.failing, shared.staging);
}

/* ------------------------------------------------------------------ the launch */

template <class T> constexpr KernelSpec spec = spec_of_tile<T>("fused", T::block_threads);
constexpr KernelSpec adding_spec = spec_of_threads("add_slices", AddingTile::threads);

template <class T>
Status launch_product(FusedProduct q, const Fp16Product &product, bool overlaps,
                      const Launch *where)
{
    const Sgemm &p = product.p;
    q.product = product;
    // TMA sees the matrices of a batch as one with many rows.
    const int64_t last = p.A.batch_stride ? p.count - 1 : 0;
    q.matrix_rows = last ? fused_rows_apart(&p) : 0;
    q.chunk_share = static_cast<float>(k_chunk) / static_cast<float>(p.A.cols);
    const TiledMatrix a = {p.A.data,
                           static_cast<uint64_t>(p.A.cols),
                           static_cast<uint64_t>(last * q.matrix_rows + p.A.rows),
                           static_cast<uint64_t>(p.A.row_stride) * sizeof(float),
                           sizeof(float),
                           row_floats,
                           T::BM,
                           true};
    Status status = encode_tensor_map(&q.b, tiled_matrix(product.b, T::BN));
    if (status.code == STATUS_OK) {
        status = encode_tensor_map(&q.a, a);
    }
    if (status.code == STATUS_OK) {
        status = launch_blocks(fused<T>, overlapping(spec<T>, overlaps),
                               tiles_of(p.C, T::BM, T::BN) * q.slices, q, where, p.count);
    }
    if (status.code == STATUS_OK && q.slices > 1) {
        status = launch_blocks(add_slices, overlapping(adding_spec),
                               tiles_of(p.C, AddingTile::BM, AddingTile::BN), q, where, p.count);
    }
    return status;
}

template <class T> Status launch_tile(const Sgemm *problem, const Launch *where, int slices)
{
    FusedProduct q = {};
    const auto multiply = [&](const Fp16Product &product, int64_t, bool overlaps) {
        return launch_product<T>(q, product, overlaps, where);
    };
    q.slices = slices;
    if (slices == 1) {
        return launch_checked<T>(problem, where, multiply, false);
    }
    q.row_count = (problem->C.rows + T::BM - 1) / T::BM * T::BM;
    q.col_count = (problem->C.cols + T::BN - 1) / T::BN * T::BN;
    Arrays arrays = {nullptr, 0};
    for (int pass = 0; pass < 2; ++pass) { // the first computes how many bytes are needed
        q.sums = arrays.take<float>(problem->count * slices * q.row_count * q.col_count);
        q.rows = arrays.take<RowOfA>(problem->count * slices * q.row_count);
        if (pass == 0) {
            void *memory;
            const Status status = scratch_take(arrays.bytes, where, &memory);
            if (status.code != STATUS_OK) {
                return status;
            }
            arrays = {static_cast<char *>(memory), 0};
        }
    }
    const Status status = launch_checked<AddingTile>(problem, where, multiply, false);
    scratch_give(arrays.memory, where);
    return status;
}

typedef FusedTile<FUSED_NARROW, 8> Narrow;
typedef FusedTile<FUSED_WIDE, 6> Wide;

Status launch_planned(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const FusedPlan plan = plan_fused(problem, multiprocessors);
    const auto launch = [&](const Sgemm *loadable) {
        return plan.width == FUSED_WIDE ? launch_tile<Wide>(loadable, where, plan.slices)
                                        : launch_tile<Narrow>(loadable, where, plan.slices);
    };
    if (!plan.copies) {
        return launch(problem);
    }
    return with_rows_copied(problem->A, problem->count, where, [&](const Matrix &A) {
        Sgemm loadable = *problem;
        loadable.A = A;
        return launch(&loadable);
    });
}

Status launch(const Sgemm *problem, const Launch *where)
{
    if (!fused_transposes(problem)) {
        return launch_planned(problem, where);
    }
    const Sgemm swapped = {transpose_of(problem->B),
                           transpose_of(problem->A),
                           transpose_of(problem->C),
                           problem->alpha,
                           problem->beta,
                           problem->count};
    Launch here = *where;
    here.prepared[0] = where->prepared[1];
    here.prepared[1] = where->prepared[0];
    return launch_planned(&swapped, &here);
}

} // namespace

LAUNCHER(fused)
{
    return launch_unless_short(launch, problem, where);
}

ARCHITECTURE_SPECIFIC_VARIANT(fused, "A stays float32 until a warpgroup splits it in registers",
                              "17_fused.cu", spec<Wide>, {9, 0});
