// idea      a product of two bf16 or two fp16 numbers is exact in float32, so 16-bit operands need
//           no fp16 pairs: wgmma reads both from shared memory as TMA loads them. Only the sums of
//           tensor cores lose digits, so they are added to sums in float32 every 128 of K.
// block     128 x 192, 128 x 128 or 64 x 128 results by one or two consumer warpgroups, and a
//           producer warpgroup; tiles 64 deep, in four to six stages. A block computes one tile of
//           C after the other, or half of K, which a cluster of two adds.
// traffic   3.3 / 128 bytes from the L2 cache per multiply-add for 128 x 192, and from shared
//           memory 8 KiB per 96 clocks of a warpgroup.
// bound by  tensor cores, and nearly as much by shared memory; few rows: memory.
#include "../kernel/cluster.h"
#include "../kernel/wgmma_16bit.h"
#include "../plan/direct_plan.h"
#include "copy_rows_16bit.h"
#include "tile_order.h"

namespace {

constexpr int stage_depth = 64; // steps of K in a stage: 128 bytes
constexpr int chunk_stages = 2; // whose sum is added to the sums in float32

/* GROUPS consumer warpgroups compute 64 x BN_ results each. RESIDENT blocks share a
 * multiprocessor. */
template <int BN_, int GROUPS, int STAGES, int RESIDENT> struct DirectTile {
    static constexpr int groups = GROUPS, BM = groups * 64, BN = BN_, BK = stage_depth;
    static constexpr int NI = BN / 8, stages = STAGES;
    static constexpr int threads = groups * 128, block_threads = threads + 128;
    static constexpr int resident = RESIDENT;
    static constexpr int producer_registers = resident == 1 ? 24 : 40;
    static constexpr int consumer_registers = resident == 1 ? 240 : 216;

    struct Stages {
        uint16_t As[stages][BM * BK];
        uint16_t Bs[stages][BN * BK];
    };
    struct Shared : Stages {
        Mbarrier full[stages], empty[stages]; // of a stage: loaded, read by all consumers
        Mbarrier half[groups][stages];        // a group has computed half of a chunk

        /* A slice's sums, once all stages are read. */
        __device__ __forceinline__ float *sums(int row)
        {
            constexpr int pitch = BN + 8; // four rows' pairs in different banks
            static_assert(sizeof(Stages) >= BM * pitch * sizeof(float), "they fit");
            return reinterpret_cast<float *>(static_cast<Stages *>(this)) + row * pitch;
        }
    };

    static constexpr KernelSpec spec(int slices = 1)
    {
        return {.symbol = "direct",
                .block_tile = {BM, BN, BK},
                .thread_tile = {2, 2},
                .threads = {block_threads, 1},
                .dynamic_bytes = sizeof(Shared),
                .cluster = slices};
    }
};

struct DirectProduct {
    Sgemm p;
    TensorMap a, b;
    unsigned works, clusters; // a cluster computes every clusters-th tile
    int stages;               // of K; the last may end in zeros, which TMA writes beyond K
    int slices;               // of K, each by a block of a cluster
};

/* What a block multiplies without a pause: a tile of C, and some stages of K. */
template <class T> struct DirectWork {
    Origin tile;
    int begin, end;

    __device__ __forceinline__ DirectWork(const DirectProduct &q, unsigned number)
        : tile(tile_in_bands(q.p.C, T::BM, T::BN, number)), begin(boundary(q, slice(q))),
          end(boundary(q, slice(q) + 1))
    {}
    static __device__ __forceinline__ int slice(const DirectProduct &q)
    {
        return static_cast<int>(blockIdx.x % static_cast<unsigned>(q.slices));
    }
    /* Slices consist of whole chunks, so the sums of the chunks are the same without slices. */
    static __device__ __forceinline__ int boundary(const DirectProduct &q, int slice)
    {
        const int chunks = (q.stages + chunk_stages - 1) / chunk_stages;
        const int64_t stage = int64_t{chunks} * slice / q.slices * chunk_stages;
        return stage < q.stages ? static_cast<int>(stage) : q.stages;
    }
    static __device__ __forceinline__ unsigned first(const DirectProduct &q)
    {
        return blockIdx.x / static_cast<unsigned>(q.slices);
    }
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
    for (unsigned number = DirectWork<T>::first(q); number < q.works; number += q.clusters) {
        const DirectWork<T> work(q, number);
        UNROLL(1)
        for (int stage = work.begin; stage < work.end; ++stage) {
            Mbarrier *const full = shared.full + to.index;
            mbarrier_wait(shared.empty + to.index, to.parity ^ 1);
            mbarrier_arrive_expect_tx(full, sizeof shared.As[0] + sizeof shared.Bs[0]);
            load_operand<T::BM, Layouts::a_mn_major>(shared.As[to.index], q.a, stage * stage_depth,
                                                     static_cast<int>(work.tile.row), full);
            load_operand<T::BN, Layouts::b_mn_major>(shared.Bs[to.index], q.b, stage * stage_depth,
                                                     static_cast<int>(work.tile.col), full);
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

/* This warp has read the stage. */
template <class T> __device__ __forceinline__ void release(typename T::Shared &shared, int stage)
{
    if (threadIdx.x % 32 == 0) {
        mbarrier_arrive(shared.empty + stage);
    }
}

/* A group begins a chunk when the one before it has computed half of its own. So the groups add
 * their chunks one after the other, and tensor cores are busy meanwhile. */
template <class T> struct Turns {
    RingPosition<T::stages> chunk;

    __device__ __forceinline__ void wait(typename T::Shared &shared) const
    {
        if (T::groups > 1 && threadIdx.x >= 128) {
            mbarrier_wait(shared.half[threadIdx.x / 128 - 1] + chunk.index, chunk.parity);
        }
    }
    __device__ __forceinline__ void half_is_done(typename T::Shared &shared)
    {
        if (T::groups > 1 && threadIdx.x < T::threads - 128 && threadIdx.x % 32 == 0) {
            mbarrier_arrive(shared.half[threadIdx.x / 128] + chunk.index);
        }
        chunk.advance();
    }
};

/* sum += the product of the stages. */
template <class T, class Layouts>
__device__ __forceinline__ void multiply_work(const DirectWork<T> &work, typename T::Shared &shared,
                                              RingPosition<T::stages> &at, Turns<T> &turns,
                                              float (&sum)[T::NI][4])
{
    UNROLL(1)
    for (int stage = work.begin; stage < work.end; stage += chunk_stages) {
        const RingPosition<T::stages> first = at;
        float part[T::NI][4];
        turns.wait(shared);
        begin_stage<T, Layouts>(shared, first, false, part);
        at.advance();
        const bool has_second = stage + 1 < work.end;
        const RingPosition<T::stages> second = at;
        if (has_second) {
            begin_stage<T, Layouts>(shared, second, true, part);
            at.advance();
            wgmma_wait<1>();
            release<T>(shared, first.index);
            turns.half_is_done(shared);
        }
        wgmma_wait<0>();
        if (!has_second) {
            turns.half_is_done(shared);
        }
        release<T>(shared, has_second ? second.index : first.index);
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            wgmma_accumulators_ready(part[j]);
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[j][r] += part[j][r];
            }
        }
    }
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

/* A slice's sums, which all blocks of the cluster can read then. */
template <class T>
__device__ __forceinline__ void store_slice(typename T::Shared &shared,
                                            const float (&sum)[T::NI][4])
{
    bar_sync<1>(T::threads); // all stages are read
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    UNROLL(T::NI)
    for (int j = 0; j < T::NI; ++j) {
        UNROLL(2)
        for (int half = 0; half < 2; ++half) {
            float *const to = shared.sums(row + 8 * half) + 8 * j + lane % 4 * 2;
            *reinterpret_cast<Two *>(to) = {sum[j][2 * half], sum[j][2 * half + 1]};
        }
    }
}

/* Adds the slices of some rows of the tile, in order. */
template <class T>
__device__ __forceinline__ void add_slices(const DirectProduct &q, typename T::Shared &shared)
{
    const DirectWork<T> work(q, DirectWork<T>::first(q));
    constexpr int vectors = T::BN / 4;
    const int slice = DirectWork<T>::slice(q), end = T::BM * vectors * (slice + 1) / q.slices;
    UNROLL(1)
    for (int i = T::BM * vectors * slice / q.slices + static_cast<int>(threadIdx.x); i < end;
         i += T::threads) {
        const int row = i / vectors, col = i % vectors * 4;
        float sum[4] = {};
        UNROLL(1)
        for (int other = 0; other < q.slices; ++other) {
            float part[4];
            read_of_block(part, shared.sums(row) + col, other);
            UNROLL(4)
            for (int j = 0; j < 4; ++j) {
                sum[j] += part[j];
            }
        }
        store4(q.p, work.tile.row + row, work.tile.col + col, sum);
    }
}

/* The consumer threads. */
template <class T, class Layouts>
KERNEL_BODY void multiply_stages(const DirectProduct &q, typename T::Shared &shared)
{
    RingPosition<T::stages> at;
    Turns<T> turns;
    UNROLL(1)
    for (unsigned number = DirectWork<T>::first(q); number < q.works; number += q.clusters) {
        const DirectWork<T> work(q, number);
        float sum[T::NI][4] = {};
        multiply_work<T, Layouts>(work, shared, at, turns, sum);
        if (q.slices > 1) {
            store_slice<T>(shared, sum);
        } else {
            store_tile<T>(q.p, work.tile, sum);
        }
    }
}

template <class T, class Layouts>
__global__ void __launch_bounds__(T::block_threads, T::resident)
    direct(const __grid_constant__ DirectProduct q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
            for (int group = 0; group < T::groups; ++group) {
                mbarrier_init(shared.half[group] + i, 4);
            }
        }
        fence_proxy_async();
    }
    __syncthreads();
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<T::consumer_registers>();
        multiply_stages<T, Layouts>(q, shared);
        if (q.slices > 1) {
            __syncwarp();
            cluster_barrier(); // all slices are in shared memory
            add_slices<T>(q, shared);
            __syncwarp();
            cluster_barrier_after_reads();
        }
    } else {
        setmaxnreg_dec<T::producer_registers>();
        if (threadIdx.x == T::threads) {
            load_stages<T, Layouts>(q, shared);
        }
        __syncwarp();
        if (q.slices > 1) {
            cluster_barrier();
            cluster_barrier_after_reads();
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
Status launch_direct_tile(const Sgemm *problem, const Launch *where, int slices,
                          int multiprocessors)
{
    const int64_t works = tiles_of(problem->C, T::BM, T::BN);
    if (works > INT32_MAX) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a C of more than 2^31 tiles");
    }
    const Loadable a = loadable(problem->A, T::BM);
    const Loadable b = loadable(transposed(problem->B), T::BN);
    DirectProduct q = {*problem, {}, {}, static_cast<unsigned>(works), 0, 0, slices};
    const int resident = multiprocessors * T::resident;
    q.clusters = slices > 1 || works < resident ? q.works : static_cast<unsigned>(resident);
    q.stages = static_cast<int>(ceil_div(problem->A.cols, stage_depth));
    Status status = status_ok();
    if (q.stages > 0) { // otherwise the sums are 0, and nothing is loaded
        status = encode_tensor_map(&q.a, a.tiled);
    }
    if (status.code == STATUS_OK && q.stages > 0) {
        status = encode_tensor_map(&q.b, b.tiled);
    }
    const auto kernel = where->elements[0] == ELEMENT_BFLOAT16
                            ? direct_kernel<T, ELEMENT_BFLOAT16>(a.mn_major, b.mn_major)
                            : direct_kernel<T, ELEMENT_FLOAT16>(a.mn_major, b.mn_major);
    const int64_t blocks = int64_t{q.clusters} * slices;
    return status.code == STATUS_OK ? launch_blocks(kernel, T::spec(slices), blocks, q, where)
                                    : status;
}

#define TILE(NAME, ROWS, COLS, STAGES, RESIDENT, ...)                                              \
    launch_direct_tile<DirectTile<COLS, ROWS / 64, STAGES, RESIDENT>>,
constexpr decltype(&launch_direct_tile<DirectTile<128, 2, 6, 1>>) launch_tiles_of[] = {
    DIRECT_TILES(TILE)};
#undef TILE

Status launch_loadable(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const DirectPlan plan = plan_direct(problem, multiprocessors);
    return launch_tiles_of[plan.tile](problem, where, plan.slices, multiprocessors);
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

/* multiply(the problem), whose operands TMA can load. */
template <class Multiply>
Status with_both_loadable(const Sgemm *problem, const Launch *where, const Multiply &multiply)
{
    return with_loadable(problem->A, where, [&](const Matrix &a) {
        return with_loadable(problem->B, where, [&](const Matrix &b) {
            Sgemm loadable = *problem;
            loadable.A = a;
            loadable.B = b;
            return multiply(&loadable);
        });
    });
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
    return with_both_loadable(problem, where, [where](const Sgemm *loadable) {
        return launch_loadable(loadable, where);
    });
}

ARCHITECTURE_SPECIFIC_VARIANT(direct, "two 16-bit operands, read by tensor cores as they are",
                              nullptr, (DirectTile<128, 2, 6, 1>::spec()), {9, 0});
