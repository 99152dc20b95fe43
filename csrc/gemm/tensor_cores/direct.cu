// idea      a product of two bf16 or two fp16 numbers is exact in float32, so 16-bit operands need
//           no fp16 pairs: wgmma reads both from shared memory as TMA loads them. Only the sums of
//           tensor cores lose digits, so they are added to sums in float32 every 128 of K.
// block     128 x 192 or 128 x 128 results by two consumer warpgroups, and a producer warpgroup;
//           tiles 64 deep, in five or six stages. A block computes one tile of C after the other.
// traffic   6.7 / 128 bytes from the L2 cache per multiply-add for 128 x 192, and from shared
//           memory 8 KiB per 96 clocks of a warpgroup.
// bound by  tensor cores, and nearly as much by shared memory; few rows: memory.
#include "../kernel/wgmma_16bit.h"
#include "copy_rows_16bit.h"
#include "tile_order.h"

namespace {

constexpr int stage_depth = 64; // steps of K in a stage: 128 bytes
constexpr int chunk_stages = 2; // whose sum is added to the sums in float32

/* Two consumer warpgroups compute 64 x BN_ results each. */
template <int BN_, int STAGES> struct DirectTile {
    static constexpr int groups = 2, BM = groups * 64, BN = BN_, BK = stage_depth;
    static constexpr int NI = BN / 8, stages = STAGES;
    static constexpr int threads = groups * 128, block_threads = threads + 128;

    struct Shared {
        uint16_t As[stages][BM * BK];
        uint16_t Bs[stages][BN * BK];
        Mbarrier full[stages], empty[stages]; // of a stage: loaded, read by all consumers
    };

    static constexpr KernelSpec spec()
    {
        return {"direct", {BM, BN, BK}, {2, 2}, {block_threads, 1}, 0, sizeof(Shared), 1};
    }
};

struct DirectProduct {
    Sgemm p;
    TensorMap a, b;
    unsigned tiles, blocks; // a block computes every blocks-th tile
    int chunks;             // of K; the last may end in zeros, which TMA writes beyond K
};

/* ------------------------------------------------------------------ the producer */

/* Loads 64 steps of K of LINES rows of A or columns of B. */
template <int LINES, bool MN_MAJOR>
__device__ __forceinline__ void load_operand(uint16_t *to, const TensorMap &map, int k, int line,
                                             Mbarrier *full)
{
    if constexpr (MN_MAJOR) {
        UNROLL(LINES / mn_tile)
        for (int i = 0; i < LINES; i += mn_tile) {
            tma_load_2d(to + i * stage_depth, map, line + i, k, full);
        }
    } else {
        tma_load_2d(to, map, k, line, full);
    }
}

/* The producer thread. It is ahead by all stages, so the next tile is loaded while this one is
 * stored. */
template <class T, class Layouts>
KERNEL_BODY void load_stages(const DirectProduct &q, typename T::Shared &shared)
{
    RingPosition<T::stages> to;
    UNROLL(1)
    for (unsigned number = blockIdx.x; number < q.tiles; number += q.blocks) {
        const Origin tile = tile_in_bands(q.p.C, T::BM, T::BN, number);
        UNROLL(1)
        for (int stage = 0; stage < q.chunks * chunk_stages; ++stage) {
            Mbarrier *const full = shared.full + to.index;
            mbarrier_wait(shared.empty + to.index, to.parity ^ 1);
            mbarrier_arrive_expect_tx(full, sizeof shared.As[0] + sizeof shared.Bs[0]);
            load_operand<T::BM, Layouts::a_mn_major>(shared.As[to.index], q.a, stage * stage_depth,
                                                     static_cast<int>(tile.row), full);
            load_operand<T::BN, Layouts::b_mn_major>(shared.Bs[to.index], q.b, stage * stage_depth,
                                                     static_cast<int>(tile.col), full);
            to.advance();
        }
    }
}

/* ------------------------------------------------------------------ the consumers */

/* Waits for a stage and begins part += its product, or part = its product. */
template <class T, class Layouts>
__device__ __forceinline__ void begin_stage(typename T::Shared &shared,
                                            const RingPosition<T::stages> &stage, bool accumulate,
                                            float (&part)[T::NI][4])
{
    mbarrier_wait(shared.full + stage.index, stage.parity);
    const int rows = threadIdx.x / 128 * 64 * stage_depth; // K-major or not: 64 rows are 8 KiB
    const WgmmaFactor a = factor_16bit<Layouts::a_mn_major>(shared.As[stage.index] + rows);
    const WgmmaFactor b = factor_16bit<Layouts::b_mn_major>(shared.Bs[stage.index]);
    wgmma_fence();
    UNROLL(stage_depth / 16)
    for (int k = 0; k < stage_depth; k += 16) {
        wgmma_16bit<Layouts>(part, from_step<Layouts::a_mn_major>(a, k),
                             from_step<Layouts::b_mn_major>(b, k), accumulate || k > 0);
    }
    wgmma_commit();
}

struct alignas(2 * sizeof(float)) Two {
    float x, y;
};

__device__ __forceinline__ void store_two(const Sgemm &p, float *first, float x, float y)
{
    Two *const c = reinterpret_cast<Two *>(first);
    const Two old = p.beta == 0.0f ? Two{} : *c;
    *c = {scaled(p, x, old.x), scaled(p, y, old.y)};
}

/* Stores a thread's results: in pairs if the tile is inside C and the pairs are aligned. */
template <class T>
__device__ __forceinline__ void store_tile(const Sgemm &p, const Origin &tile,
                                           const float (&sum)[T::NI][4])
{
    const int lane = threadIdx.x % 32;
    const int64_t row = tile.row + threadIdx.x / 32 * 16 + lane / 4, col = tile.col + lane % 4 * 2;
    const int rows = clamped(p.C.rows - row), cols = clamped(p.C.cols - col);
    float *const c = p.C.data + row * p.C.row_stride + col;
    float *const in_row[] = {c, c + 8 * p.C.row_stride};
    if (inside(p.C, tile.row + T::BM - 1, tile.col + T::BN - 1) && p.C.row_stride % 2 == 0 &&
        reinterpret_cast<uintptr_t>(p.C.data) % sizeof(Two) == 0) {
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            store_two(p, in_row[0] + 8 * j, sum[j][0], sum[j][1]);
            store_two(p, in_row[1] + 8 * j, sum[j][2], sum[j][3]);
        }
        return;
    }
    UNROLL(T::NI)
    for (int j = 0; j < T::NI; ++j) {
        UNROLL(4)
        for (int r = 0; r < 4; ++r) {
            if (r / 2 * 8 < rows && 8 * j + r % 2 < cols) {
                float *const one = in_row[r / 2] + 8 * j + r % 2;
                *one = scaled(p, sum[j][r], p.beta == 0.0f ? 0.0f : *one);
            }
        }
    }
}

/* The consumer threads. */
template <class T, class Layouts>
KERNEL_BODY void multiply_stages(const DirectProduct &q, typename T::Shared &shared)
{
    RingPosition<T::stages> first;
    UNROLL(1)
    for (unsigned number = blockIdx.x; number < q.tiles; number += q.blocks) {
        float sum[T::NI][4] = {};
        UNROLL(1)
        for (int chunk = 0; chunk < q.chunks; ++chunk) {
            RingPosition<T::stages> second = first;
            second.advance();
            float part[T::NI][4];
            begin_stage<T, Layouts>(shared, first, false, part);
            begin_stage<T, Layouts>(shared, second, true, part);
            const auto release = [&](int stage) { // this warp has read it
                if (threadIdx.x % 32 == 0) {
                    mbarrier_arrive(shared.empty + stage);
                }
            };
            wgmma_wait<1>();
            release(first.index);
            wgmma_wait<0>();
            release(second.index);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                wgmma_accumulators_ready(part[j]);
                UNROLL(4)
                for (int r = 0; r < 4; ++r) {
                    sum[j][r] += part[j][r];
                }
            }
            first = second;
            first.advance();
        }
        store_tile<T>(q.p, tile_in_bands(q.p.C, T::BM, T::BN, number), sum);
    }
}

template <class T, class Layouts>
__global__ void __launch_bounds__(T::block_threads, 1)
    direct(const __grid_constant__ DirectProduct q)
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
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<240>();
        multiply_stages<T, Layouts>(q, shared);
    } else {
        setmaxnreg_dec<24>();
        if (threadIdx.x == T::threads) {
            load_stages<T, Layouts>(q, shared);
        }
    }
}

/* ------------------------------------------------------------------ the launch */

/* An operand as TMA loads it. X is A, or the transpose of B; a tile of C needs `lines` of its
 * rows. */
struct Loadable {
    bool mn_major;
    TiledMatrix tiled;
};

Loadable loadable(const Matrix &X, int lines)
{
    const bool mn_major = !tma_can_load_16bit(&X);
    const Matrix rows = mn_major ? transposed(X) : X;
    const int64_t pitch = rows.rows == 1 ? (rows.cols + 7) / 8 * 8 : rows.row_stride;
    return {mn_major,
            {rows.data, static_cast<uint64_t>(rows.cols), static_cast<uint64_t>(rows.rows),
             static_cast<uint64_t>(pitch) * sizeof(uint16_t), sizeof(uint16_t), stage_depth,
             mn_major ? mn_tile_depth : lines, true}};
}

template <class T, ElementType ELEMENT>
void (*direct_kernel(bool a_mn_major, bool b_mn_major))(DirectProduct)
{
    return a_mn_major   ? b_mn_major ? direct<T, FactorLayouts<ELEMENT, true, true>>
                                     : direct<T, FactorLayouts<ELEMENT, true, false>>
             : b_mn_major ? direct<T, FactorLayouts<ELEMENT, false, true>>
                        : direct<T, FactorLayouts<ELEMENT, false, false>>;
}

/* Both operands can be loaded by TMA. */
template <class T>
Status launch_tile(const Sgemm *problem, const Launch *where, int multiprocessors)
{
    const int64_t tiles = tiles_of(problem->C, T::BM, T::BN);
    if (tiles > INT32_MAX) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a C of more than 2^31 tiles");
    }
    const Loadable a = loadable(problem->A, T::BM), b = loadable(transposed(problem->B), T::BN);
    DirectProduct q = {*problem, {}, {}, static_cast<unsigned>(tiles), 0, 0};
    q.blocks = q.tiles < static_cast<unsigned>(multiprocessors)
                   ? q.tiles
                   : static_cast<unsigned>(multiprocessors);
    constexpr int chunk_depth = chunk_stages * stage_depth;
    q.chunks = static_cast<int>((problem->A.cols + chunk_depth - 1) / chunk_depth);
    Status status = status_ok();
    if (q.chunks > 0) { // otherwise the sums are 0, and nothing is loaded
        status = encode_tensor_map(&q.a, a.tiled);
    }
    if (status.code == STATUS_OK && q.chunks > 0) {
        status = encode_tensor_map(&q.b, b.tiled);
    }
    const auto kernel = where->elements[0] == ELEMENT_BFLOAT16
                            ? direct_kernel<T, ELEMENT_BFLOAT16>(a.mn_major, b.mn_major)
                            : direct_kernel<T, ELEMENT_FLOAT16>(a.mn_major, b.mn_major);
    return status.code == STATUS_OK ? launch_blocks(kernel, T::spec(), q.blocks, q, where) : status;
}

typedef DirectTile<128, 6> Square;
typedef DirectTile<192, 5> Wide;

/* Chooses the tile whose waves take the least time. A wave of Wide tiles takes 1.45 times as long
 * as one of Square tiles: reading shared memory costs less per product. */
Status launch_loadable(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const auto waves = [&](int BM, int BN) {
        const int64_t tiles = tiles_of(problem->C, BM, BN);
        return static_cast<double>((tiles + multiprocessors - 1) / multiprocessors);
    };
    return (1.45 * waves(Wide::BM, Wide::BN) < waves(Square::BM, Square::BN)
                ? launch_tile<Wide>
                : launch_tile<Square>)(problem, where, multiprocessors);
}

bool is_loadable(const Matrix &X)
{
    const Matrix other = transposed(X);
    return tma_can_load_16bit(&X) || tma_can_load_16bit(&other);
}

/* A copy of A or B that TMA can load, row-major if the operand is, for multiply(copy). */
template <class Multiply>
Status with_loadable(const Matrix &X, const Launch *where, const Multiply &multiply)
{
    if (is_loadable(X)) {
        return multiply(X);
    }
    if (X.col_stride == 1) {
        return with_rows_copied_16bit(X, where, multiply);
    }
    return with_rows_copied_16bit(transposed(X), where,
                                  [&](const Matrix &copy) { return multiply(transposed(copy)); });
}

} // namespace

LAUNCHER(direct)
{
    const Matrix &A = problem->A, &B = problem->B;
    if (where->elements[0] == ELEMENT_FLOAT32 || where->elements[0] != where->elements[1]) {
        return status_error(STATUS_UNSUPPORTED, "direct multiplies two float16 matrices or two "
                                                "bfloat16 matrices: convert A or B");
    }
    constexpr int64_t most = INT32_MAX - 256; // so that the corners of all tiles are ints
    if (A.rows > most || A.cols > most || B.cols > most) {
        return status_error(STATUS_UNSUPPORTED,
                            "direct multiplies matrices of at most %lld rows "
                            "and columns: pass parts of A or B",
                            static_cast<long long>(most));
    }
    if (A.cols == 0) {
        return launch_loadable(problem, where);
    }
    return with_loadable(A, where, [&](const Matrix &a) {
        return with_loadable(B, where, [&](const Matrix &b) {
            Sgemm loadable = *problem;
            loadable.A = a;
            loadable.B = b;
            return launch_loadable(&loadable, where);
        });
    });
}

ARCHITECTURE_SPECIFIC_VARIANT(direct, "two 16-bit operands, read by tensor cores as they are",
                              nullptr, Square::spec(), {9, 0});
