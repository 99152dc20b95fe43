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
#include "fused_plan.h"
#include "fused_slices.h"

namespace {

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
    store_slice<T>(q, work.slice, rows, sum, own);
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

/* ------------------------------------------------------------------ the launch */

template <class T> constexpr KernelSpec spec = spec_of_tile<T>("fused", T::block_threads);

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
    void *memory;
    Status status = take_sums<T>(problem, where, &q, &memory);
    if (status.code == STATUS_OK) {
        status = launch_checked<AddingTile>(problem, where, multiply, false);
        scratch_give(memory, where);
    }
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
