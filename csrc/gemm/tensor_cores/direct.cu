// idea      a product of two bf16 or two fp16 numbers is exact in float32, so 16-bit operands need
//           no fp16 pairs: wgmma reads both from shared memory as TMA loads them. Only the sums of
//           tensor cores lose digits, so they are added to sums in float32 every 128 of K.
// block     128 x 192, 128 x 128 or 64 x 128 results by one or two consumer warpgroups, and a
//           producer warpgroup; tiles 64 deep, in four to six stages. A block computes one tile of
//           C after the other, of all matrices of a batch. The tiles that would not fill the GPU
//           are left to clusters, whose blocks compute slices of K and add them.
// traffic   3.3 / 128 bytes from the L2 cache per multiply-add for 128 x 192, and from shared
//           memory 8 KiB per 96 clocks of a warpgroup.
// bound by  tensor cores, and nearly as much by shared memory; few rows: memory.
#include "../../base/addend.h"
#include "../kernel/cluster.h"
#include "../kernel/wgmma_16bit.h"
#include "../plan/direct_plan.h"
#include "copy_rows.h"
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
    static constexpr int producer_registers = 40;
    static constexpr int consumer_registers = resident == 1 ? 232 : 216;

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
                .cluster = slices,
                .reads_addend = true};
    }
};

struct DirectProduct {
    Sgemm p;
    Matrix addend; // what beta multiplies: C itself, or another matrix
    TensorMap a, b;
    unsigned tiles;        // of one C
    unsigned works, whole; // tiles of the batch, and how many of them blocks compute alone
    unsigned blocks;
    int stages;      // of K; the last may end in zeros, which TMA writes beyond K
    int stage_bytes; // that TMA writes; fewer than a stage has if A has few rows or B few columns
    int slices;      // of K, each by a block of a cluster
};

__device__ __forceinline__ unsigned cluster_of_block(const DirectProduct &q)
{
    return blockIdx.x / static_cast<unsigned>(q.slices);
}

__device__ __forceinline__ int slice_of_block(const DirectProduct &q)
{
    return static_cast<int>(blockIdx.x % static_cast<unsigned>(q.slices));
}

/* The tile of which this block computes a slice. The cluster has none if it is >= q.works. */
__device__ __forceinline__ unsigned sliced_work(const DirectProduct &q)
{
    return q.whole + cluster_of_block(q);
}

/* What a block multiplies without a pause: a tile of C, and some stages of K. */
template <class T> struct DirectWork {
    unsigned matrix; // of the batch
    Origin tile;
    bool is_slice;
    int begin, end;

    __device__ __forceinline__ DirectWork(const DirectProduct &q, unsigned number, bool is_slice)
        : matrix(number / q.tiles),
          tile(tile_in_bands(q.p.C, T::BM, T::BN, number - matrix * q.tiles)), is_slice(is_slice),
          begin(is_slice ? boundary(q, slice_of_block(q)) : 0),
          end(is_slice ? boundary(q, slice_of_block(q) + 1) : q.stages)
    {}
    /* Slices consist of whole chunks, so the sums of the chunks are the same without slices. */
    static __device__ __forceinline__ int boundary(const DirectProduct &q, int slice)
    {
        const int chunks = (q.stages + chunk_stages - 1) / chunk_stages;
        const int64_t stage = int64_t{chunks} * slice / q.slices * chunk_stages;
        return stage < q.stages ? static_cast<int>(stage) : q.stages;
    }
};

/* Calls compute(work) for each whole tile of this block, and then for its slice. */
template <class T, class Compute>
__device__ __forceinline__ void for_each_work(const DirectProduct &q, const Compute &compute)
{
    bool is_whole = true;
    UNROLL(1)
    for (unsigned number = blockIdx.x; is_whole; number += q.blocks) {
        is_whole = number < q.whole;
        number = is_whole ? number : sliced_work(q);
        if (number < q.works) {
            compute(DirectWork<T>(q, number, !is_whole));
        }
    }
}

/* ------------------------------------------------------------------ the producer */

/* Loads 64 steps of K of LINES rows of A or columns of B. */
template <int LINES, bool MN_MAJOR>
__device__ __forceinline__ void load_operand(uint16_t *to, const TensorMap &map, int k, int line,
                                             int matrix, Mbarrier *full)
{
    if constexpr (MN_MAJOR) {
        UNROLL(LINES / mn_tile)
        for (int i = 0; i < LINES; i += mn_tile) {
            tma_load_3d(to + i * stage_depth, map, line + i, k, matrix, full);
        }
    } else {
        tma_load_3d(to, map, k, line, matrix, full);
    }
}

/* The number of the matrix that a product of the batch multiplies. All may share one. */
__device__ __forceinline__ int number_of(const Matrix &X, unsigned matrix)
{
    return X.batch_stride == 0 ? 0 : static_cast<int>(matrix);
}

/* The producer thread. It is ahead by all stages, so the next tile is loaded while this one is
 * stored. */
template <class T, class Layouts>
KERNEL_BODY void load_stages(const DirectProduct &q, typename T::Shared &shared)
{
    RingPosition<T::stages> to;
    for_each_work<T>(q, [&](const DirectWork<T> &work) {
        const int of_a = number_of(q.p.A, work.matrix), of_b = number_of(q.p.B, work.matrix);
        const int row = static_cast<int>(work.tile.row), col = static_cast<int>(work.tile.col);
        UNROLL(1)
        for (int stage = work.begin; stage < work.end; ++stage) {
            Mbarrier *const full = shared.full + to.index;
            mbarrier_wait(shared.empty + to.index, to.parity ^ 1);
            mbarrier_arrive_expect_tx(full, q.stage_bytes);
            load_operand<T::BM, Layouts::a_mn_major>(shared.As[to.index], q.a, stage * stage_depth,
                                                     row, of_a, full);
            load_operand<T::BN, Layouts::b_mn_major>(shared.Bs[to.index], q.b, stage * stage_depth,
                                                     col, of_b, full);
            to.advance();
        }
    });
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

/* ------------------------------------------------------------------ the results */

struct alignas(2 * sizeof(float)) Two {
    float x, y;
};

/* Written out, because nvcc would divide some of these stores into single floats. */
__device__ __forceinline__ void store_vector(float *to, const float4 &four)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(four.x), "f"(four.y),
                 "f"(four.z), "f"(four.w)
                 : "memory");
#else
    *reinterpret_cast<float4 *>(to) = four;
#endif
}

__device__ __forceinline__ void store_vector(float *to, const Two &two)
{
#ifdef __CUDACC__
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(two.x), "f"(two.y) : "memory");
#else
    *reinterpret_cast<Two *>(to) = two;
#endif
}

/* A tile of C, and what beta multiplies there. */
struct Output {
    const Sgemm &p;
    float *const first;
    const int64_t row_stride;
    const float *const added;
    const int64_t added_row_stride, added_col_stride;
    const int rows, cols; // up to the edges of C

    template <class T>
    __device__ __forceinline__ Output(const DirectProduct &q, const DirectWork<T> &work)
        : p(q.p), first(address(q.p.C, work.tile.row, work.tile.col, work.matrix)),
          row_stride(q.p.C.row_stride),
          added(address(q.addend, work.tile.row, work.tile.col, work.matrix)),
          added_row_stride(q.addend.row_stride), added_col_stride(q.addend.col_stride),
          rows(clamped(q.p.C.rows - work.tile.row)), cols(clamped(q.p.C.cols - work.tile.col))
    {}
    /* Whether WIDTH neighbours can be read and written at once, from each WIDTH-th column on. */
    template <int WIDTH> __device__ __forceinline__ bool is_aligned() const
    {
        const auto aligned = [](const float *from, int64_t stride) {
            return reinterpret_cast<uintptr_t>(from) % (WIDTH * sizeof(float)) == 0 &&
                   stride % WIDTH == 0;
        };
        return aligned(first, row_stride) &&
               (p.beta == 0.0f || (added_col_stride == 1 && aligned(added, added_row_stride)));
    }
    __device__ __forceinline__ void store(int row, int col, float sum) const
    {
        if (row < rows && col < cols) {
            const float *const old = added + row * added_row_stride + col * added_col_stride;
            first[row * row_stride + col] = scaled(p, sum, p.beta == 0.0f ? 0.0f : *old);
        }
    }
    /* The same for four results, which are inside C and aligned. */
    __device__ __forceinline__ void store_four(int row, int col, const float (&sum)[4]) const
    {
        float old[4] = {};
        if (p.beta != 0.0f) {
            read4(old, added + row * added_row_stride + col);
        }
        store_vector(first + row * row_stride + col,
                     make_float4(scaled(p, sum[0], old[0]), scaled(p, sum[1], old[1]),
                                 scaled(p, sum[2], old[2]), scaled(p, sum[3], old[3])));
    }
};

/* Stores a thread's results in pairs. It loads many old values before it stores, since the compiler
 * cannot know that they are not the same. */
template <class T, bool ADDS>
__device__ __forceinline__ void store_pairs(const Output &C, int row, int col,
                                            const float (&sum)[T::NI][4])
{
    constexpr int together = 8;
    const float alpha = C.p.alpha;
    float *const to = C.first + row * C.row_stride + col;
    const float *const added = C.added + row * C.added_row_stride + col;
    const bool is_in_row[] = {row < C.rows, row + 8 < C.rows};
    const int cols = C.cols - col;
    UNROLL(T::NI / together)
    for (int first = 0; first < T::NI; first += together) {
        Two old[2 * together] = {};
        UNROLL(2 * together)
        for (int i = 0; i < 2 * together && ADDS; ++i) {
            if (is_in_row[i % 2] && 8 * (first + i / 2) < cols) {
                old[i] = *reinterpret_cast<const Two *>(added + i % 2 * 8 * C.added_row_stride +
                                                        8 * (first + i / 2));
            }
        }
        UNROLL(2 * together)
        for (int i = 0; i < 2 * together; ++i) {
            const float *const two = sum[first + i / 2] + i % 2 * 2;
            const Two pair = {ADDS ? scaled(C.p, two[0], old[i].x) : alpha * two[0],
                              ADDS ? scaled(C.p, two[1], old[i].y) : alpha * two[1]};
            if (is_in_row[i % 2] && 8 * (first + i / 2) < cols) {
                store_vector(to + i % 2 * 8 * C.row_stride + 8 * (first + i / 2), pair);
            }
        }
    }
}

/* Stores a thread's results: in pairs if they are aligned and none is half outside C. */
template <class T>
__device__ __forceinline__ void store_tile(const Output &C, const float (&sum)[T::NI][4])
{
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x / 32 * 16 + lane / 4, col = lane % 4 * 2;
    if (C.cols % 2 == 0 && C.is_aligned<2>()) {
        if (C.p.beta == 0.0f) {
            store_pairs<T, false>(C, row, col, sum);
        } else {
            store_pairs<T, true>(C, row, col, sum);
        }
        return;
    }
    UNROLL(2)
    for (int half = 0; half < 2; ++half) {
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            C.store(row + half * 8, col + 8 * j, sum[j][2 * half]);
            C.store(row + half * 8, col + 8 * j + 1, sum[j][2 * half + 1]);
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

/* Adds the slices of some rows of the tile, in order. All slices are read before the first is
 * added, to hide latency. */
template <class T>
__device__ __forceinline__ void add_slices(const DirectProduct &q, typename T::Shared &shared)
{
    constexpr int vectors = T::BN / 4;
    const Output C(q, DirectWork<T>(q, sliced_work(q), true));
    const bool aligned = C.is_aligned<4>();
    const int count = (C.rows < T::BM ? C.rows : T::BM) * vectors;
    const int slice = slice_of_block(q), end = count * (slice + 1) / q.slices;
    UNROLL(1)
    for (int i = count * slice / q.slices + static_cast<int>(threadIdx.x); i < end;
         i += T::threads) {
        const int row = i / vectors, col = i % vectors * 4;
        float parts[DIRECT_MOST_SLICES][4] = {}, sum[4] = {};
        UNROLL(DIRECT_MOST_SLICES)
        for (int other = 0; other < DIRECT_MOST_SLICES; ++other) {
            if (other < q.slices) {
                read_of_block(parts[other], shared.sums(row) + col, other);
            }
        }
        UNROLL(DIRECT_MOST_SLICES)
        for (int other = 0; other < DIRECT_MOST_SLICES; ++other) {
            UNROLL(4)
            for (int j = 0; j < 4 && other < q.slices; ++j) {
                sum[j] += parts[other][j];
            }
        }
        if (aligned && col + 4 <= C.cols) {
            C.store_four(row, col, sum);
            continue;
        }
        UNROLL(4)
        for (int j = 0; j < 4; ++j) {
            C.store(row, col + j, sum[j]);
        }
    }
}

/* The consumer threads. */
template <class T, class Layouts>
KERNEL_BODY void multiply_stages(const DirectProduct &q, typename T::Shared &shared)
{
    RingPosition<T::stages> at;
    Turns<T> turns;
    for_each_work<T>(q, [&](const DirectWork<T> &work) {
        float sum[T::NI][4] = {};
        multiply_work<T, Layouts>(work, shared, at, turns, sum);
        if (work.is_slice) {
            store_slice<T>(shared, sum);
        } else {
            store_tile<T>(Output(q, work), sum);
        }
    });
}

template <class T, class Layouts>
__global__ void __launch_bounds__(T::block_threads, T::resident)
    direct(const __grid_constant__ DirectProduct q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    const bool has_slice = sliced_work(q) < q.works; // as all blocks of the cluster
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
            for (int group = 0; group < T::groups; ++group) {
                mbarrier_init(shared.half[group] + i, 4);
            }
        }
        fence_proxy_async();
    } else if (threadIdx.x == T::threads && q.stages > 0) {
        tma_prefetch(q.a);
        tma_prefetch(q.b);
    }
    __syncthreads();
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<T::consumer_registers>();
        multiply_stages<T, Layouts>(q, shared);
        if (has_slice) {
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
        if (has_slice) {
            cluster_barrier();
            cluster_barrier_after_reads();
        }
    }
}

/* ------------------------------------------------------------------ the launch */

/* An operand as TMA loads it: a matrix, or those of a batch. X is A, or the transpose of B; a tile
 * of C needs `lines` of its rows. */
struct Loadable {
    bool mn_major;
    TiledMatrix tiled;
    int stage_bytes;
};

Loadable loadable(const Matrix &X, int lines, int64_t count)
{
    const bool mn_major = !tma_can_load_16bit(&X);
    const Matrix rows = mn_major ? transposed(X) : X;
    const int64_t pitch = rows.rows == 1 ? (rows.cols + 7) / 8 * 8 : rows.row_stride;
    const bool several = count > 1 && rows.batch_stride != 0;
    const int64_t apart = several ? rows.batch_stride : pitch;
    // Rows that are not loaded hold anything, and so do results outside C, which are not stored.
    const int64_t used = (rows.rows + 7) / 8 * 8;
    const int loaded = mn_major || used > lines ? lines : static_cast<int>(used);
    return {mn_major,
            {rows.data, static_cast<uint64_t>(rows.cols), static_cast<uint64_t>(rows.rows),
             static_cast<uint64_t>(pitch) * sizeof(uint16_t), sizeof(uint16_t), stage_depth,
             mn_major ? mn_tile_depth : loaded, true, static_cast<uint64_t>(several ? count : 1),
             static_cast<uint64_t>(apart) * sizeof(uint16_t)},
            loaded * swizzle_bytes};
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
Status launch_direct_tile(const Sgemm *problem, const Launch *where, const DirectPlan &plan)
{
    const int64_t tiles = tiles_of(problem->C, T::BM, T::BN), works = tiles * problem->count;
    if (works > INT32_MAX) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a C of more than 2^31 tiles");
    }
    const Loadable a = loadable(problem->A, T::BM, problem->count);
    const Loadable b = loadable(transposed(problem->B), T::BN, problem->count);
    const int64_t blocks = plan.clusters * plan.slices;
    DirectProduct q = {*problem,
                       addend_or(where, &problem->C),
                       {},
                       {},
                       static_cast<unsigned>(tiles),
                       static_cast<unsigned>(works),
                       static_cast<unsigned>(plan.whole),
                       static_cast<unsigned>(blocks),
                       static_cast<int>(ceil_div(problem->A.cols, stage_depth)),
                       a.stage_bytes + b.stage_bytes,
                       plan.slices};
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
    return status.code == STATUS_OK ? launch_blocks(kernel, T::spec(plan.slices), blocks, q, where)
                                    : status;
}

#define TILE(NAME, ROWS, COLS, STAGES, RESIDENT, ...)                                              \
    launch_direct_tile<DirectTile<COLS, ROWS / 64, STAGES, RESIDENT>>,
constexpr decltype(&launch_direct_tile<DirectTile<128, 2, 6, 1>>) launch_tiles_of[] = {
    DIRECT_TILES(TILE)};
#undef TILE

bool is_loadable(const Matrix &X, int64_t count)
{
    const Matrix other = transposed(X);
    const int64_t apart = count == 1 ? 0 : X.batch_stride;
    return (tma_can_load_16bit(&X) || tma_can_load_16bit(&other)) && apart >= 0 && apart % 8 == 0 &&
           apart < INT64_C(1) << 39;
}

/* A copy of A or B, or of a batch of them, that TMA can load, row-major if the operand is, for
 * multiply(copy). */
template <class Multiply>
Status with_loadable(const Matrix &X, int64_t count, const Launch *where, const Multiply &multiply)
{
    if (is_loadable(X, count)) {
        return multiply(X);
    }
    if (X.col_stride == 1) {
        return with_rows_copied<uint16_t>(X, count, where, multiply);
    }
    return with_rows_copied<uint16_t>(transposed(X), count, where, [&](const Matrix &copy) {
        return multiply(transposed(copy));
    });
}

/* multiply(the problem), whose operands TMA can load. */
template <class Multiply>
Status with_both_loadable(const Sgemm *problem, const Launch *where, const Multiply &multiply)
{
    return with_loadable(problem->A, problem->count, where, [&](const Matrix &a) {
        return with_loadable(problem->B, problem->count, where, [&](const Matrix &b) {
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
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const DirectPlan plan = plan_direct(problem, multiprocessors); // A @ A.T is one before copies
    const auto launch = [&](const Sgemm *loadable) {
        return launch_tiles_of[plan.tile](loadable, where, plan);
    };
    return A.cols == 0 ? launch(problem) : with_both_loadable(problem, where, launch);
}

BATCHED_ARCHITECTURE_SPECIFIC_VARIANT(direct,
                                      "two 16-bit operands, read by tensor cores as they are",
                                      nullptr, (DirectTile<128, 2, 6, 1>::spec()), {9, 0});
