/* Planted bugs: one plain, correct kernel, and copies of it with one mistake each. A checker
 * that misses one of its bugs is broken; checks.mk lists which checker must find which bug. */
#include <string.h>

#include <initializer_list>

#include "../../csrc/gemm/simt/copy_async.h"

/* X(name, what the planted bug does) */
#define BUGS(X)                                                                                    \
    X(none, "nothing: the control")                                                                \
    X(shared_overread, "reads shared memory past its end")                                         \
    X(global_overread, "loads elements of A beyond its last column")                               \
    X(global_overwrite, "stores results beyond the edges of C")                                    \
    X(input_overwrite, "writes to A")                                                              \
    X(reads_C, "reads C although beta is 0")                                                       \
    X(misaligned_float4, "loads four floats at once from an address of any alignment")             \
    X(no_barrier_after_load, "computes with a tile that others may still be loading")              \
    X(no_barrier_before_reuse, "loads over a tile that others may still be reading")               \
    X(divergent_barrier, "lets half of the threads wait at a barrier of their own")                \
    X(early_return, "lets threads beyond the edges of C return before the barriers")               \
    X(unset_edge, "leaves a tile as it was where it lies beyond the edges of A")                   \
    X(offset_overflow, "computes the place of a result in 32 bits")

/* Bugs that also exist as dynamic_NAME, with the tiles in dynamic shared memory. */
#define DYNAMIC_BUGS(X)                                                                            \
    X(none)                                                                                        \
    X(shared_overread)                                                                             \
    X(no_barrier_after_load)                                                                       \
    X(no_barrier_before_reuse)                                                                     \
    X(unset_edge)

namespace {

enum Bug {
#define BUG(name, summary) name,
    BUGS(BUG)
#undef BUG
};

constexpr int T = 16;

/* A's and B's tiles in one array, so that the kernel has no shared memory past its end. */
typedef float Tiles[2][T][T];

/* Uses all four floats, so that the compiler loads all of them. */
__device__ __forceinline__ float first_of_float4(const float *a)
{
    const float4 vector = *reinterpret_cast<const float4 *>(a);
    return vector.x + 0.0f * (vector.y + vector.z + vector.w);
}

template <Bug bug> __device__ __forceinline__ void multiply(const Sgemm &p, Tiles &tiles)
{
    const Origin tile = tile_origin(p.C, T, T);
    const int ty = threadIdx.y, tx = threadIdx.x;
    const int64_t row = tile.row + ty, col = tile.col + tx;
    if (bug == early_return && !inside(p.C, row, col)) {
        return;
    }
    float sum = 0.0f;
    for (int64_t k0 = 0; k0 < p.A.cols; k0 += T) {
        float *const a = address(p.A, row, k0 + tx);
        if (row < p.A.rows && (bug == global_overread || k0 + tx < p.A.cols)) {
            tiles[0][ty][tx] = bug == misaligned_float4 ? first_of_float4(a) : *a;
        } else if (bug != unset_edge) {
            tiles[0][ty][tx] = 0.0f;
        }
        tiles[1][ty][tx] = inside(p.B, k0 + ty, col) ? at(p.B, k0 + ty, col) : 0.0f;
        if (bug == input_overwrite && inside(p.A, row, k0 + tx)) {
            *a = 0.0f;
        }
        if (bug == divergent_barrier && tx < T / 2) {
            __syncthreads();
        }
        if (bug != no_barrier_after_load) {
            __syncthreads();
        }
        const float *const a_row = tiles[0][ty], *const b_col = &tiles[1][0][tx];
        for (int k = 0; k < (bug == shared_overread ? T + 1 : T); ++k) {
            sum += a_row[k] * b_col[k * T];
        }
        if (bug != no_barrier_before_reuse) {
            __syncthreads();
        }
    }
    const bool in_C = inside(p.C, row, col);
    if (in_C || bug == global_overwrite) {
        float *c = address(p.C, row, col);
        if (bug == offset_overflow) {
            c = p.C.data + static_cast<int>(row) * static_cast<int>(p.C.row_stride) + col;
        }
        const float old = in_C && (p.beta != 0.0f || bug == reads_C) ? *c : 0.0f;
        *c = bug == reads_C ? p.alpha * sum + p.beta * old : scaled(p, sum, old);
    }
}

} // namespace

#define DEFINE(name, summary)                                                                      \
    /* Not in the template: there g++ ignores the section that __shared__ names. */                \
    static __global__ void __launch_bounds__(T *T) planted_##name(const Sgemm p)                   \
    {                                                                                              \
        __shared__ Tiles tiles;                                                                    \
        multiply<name>(p, tiles);                                                                  \
    }                                                                                              \
    LAUNCHER(name)                                                                                 \
    {                                                                                              \
        return launch_tiles(planted_##name, spec, problem, where);                                 \
    }                                                                                              \
    VARIANT(name, summary, "planted.cu", spec, {7, 5});
static constexpr KernelSpec spec = {.symbol = "planted",
                                    .block_tile = {T, T, T},
                                    .thread_tile = {1, 1},
                                    .threads = {T, T},
                                    .static_bytes = sizeof(Tiles)};
BUGS(DEFINE)

#define DEFINE_DYNAMIC(name)                                                                       \
    static __global__ void __launch_bounds__(T *T) planted_dynamic_##name(const Sgemm p)           \
    {                                                                                              \
        multiply<name>(p, dynamic_shared<Tiles>());                                                \
    }                                                                                              \
    LAUNCHER(dynamic_##name)                                                                       \
    {                                                                                              \
        return launch_tiles(planted_dynamic_##name, dynamic_spec, problem, where);                 \
    }                                                                                              \
    VARIANT(dynamic_##name, "as " #name ", in dynamic shared memory", "planted.cu", dynamic_spec,  \
            {7, 5});
static constexpr KernelSpec dynamic_spec = {.symbol = "planted",
                                            .block_tile = {T, T, T},
                                            .thread_tile = {1, 1},
                                            .threads = {T, T},
                                            .dynamic_bytes = sizeof(Tiles)};
DYNAMIC_BUGS(DEFINE_DYNAMIC)

/* ------------------------------------------------------------------ operations of a warp */

/* The same kernel with one-dimensional blocks. Each warp loads its two rows of A with
 * load_matrices. For the CPU device only: on a GPU these bugs are undefined behavior, and no
 * tool of compute-sanitizer finds them. */
#ifdef SGEMM_CUDA
#define WARP_BUGS(X)
#else
#define WARP_BUGS(X)                                                                               \
    X(warp_none, "nothing: the control for operations of a warp")                                  \
    X(no_warp_barrier_before_load, "fetches rows that others of the warp may still be writing")    \
    X(no_warp_barrier_after_store, "reads what others of the warp may still be writing")           \
    X(misaligned_row, "fetches a row from an address that is not a multiple of 16")                \
    X(left_out_of_warp, "lets a thread pass by what its warp does together")                       \
    X(left_warp, "lets a thread return before its warp is done")

namespace {

enum WarpBug {
#define BUG(name, summary) name,
    WARP_BUGS(BUG)
#undef BUG
};

struct WarpTiles {
    float A[T][T], B[T][T];
    float fetched[T][T]; /* what the warp that owns these rows of A has loaded */
};

template <WarpBug bug> void multiply_by_warps(const Sgemm &p, WarpTiles &tiles)
{
    const Origin tile = tile_origin(p.C, T, T);
    const int thread = threadIdx.x, ty = thread / T, tx = thread % T;
    const int64_t row = tile.row + ty, col = tile.col + tx;
    /* A float4 in the warp's two rows; threads 8 to 31 repeat the addresses of threads 0 to 7. */
    float *const vector = &tiles.A[ty / 2 * 2 + thread % 8 / 4][thread % 4 * 4];
    float sum = 0.0f;
    for (int64_t k0 = 0; k0 < p.A.cols; k0 += T) {
        tiles.B[ty][tx] = inside(p.B, k0 + ty, col) ? at(p.B, k0 + ty, col) : 0.0f;
        __syncthreads();
        tiles.A[ty][tx] = inside(p.A, row, k0 + tx) ? at(p.A, row, k0 + tx) : 0.0f;
        if (bug != no_warp_barrier_before_load) {
            __syncwarp();
        }
        if (bug == left_warp && thread == T + 1) {
            return;
        }
        unsigned words[4] = {};
        if (bug != left_out_of_warp || thread != T + 1) {
            grid_load_matrices(words, bug == misaligned_row ? vector + 1 : vector, __LINE__);
        }
        memcpy(&tiles.fetched[ty][tx], &words[0], sizeof(float));
        if (bug != no_warp_barrier_after_store) {
            __syncwarp();
        }
        for (int k = 0; k < T; ++k) {
            sum += tiles.fetched[ty][k] * tiles.B[k][tx];
        }
        __syncthreads();
    }
    store(p, row, col, sum);
}

} // namespace

#define DEFINE_BY_WARPS(name, summary)                                                             \
    static __global__ void planted_##name(const Sgemm p)                                           \
    {                                                                                              \
        __shared__ __align__(16) WarpTiles tiles;                                                  \
        multiply_by_warps<name>(p, tiles);                                                         \
    }                                                                                              \
    LAUNCHER(name)                                                                                 \
    {                                                                                              \
        return launch_tiles(planted_##name, warp_spec, problem, where);                            \
    }                                                                                              \
    VARIANT(name, summary, "planted.cu", warp_spec, {7, 5});
static constexpr KernelSpec warp_spec = {.symbol = "planted",
                                         .block_tile = {T, T, T},
                                         .thread_tile = {1, 1},
                                         .threads = {T * T, 1},
                                         .static_bytes = sizeof(WarpTiles)};
WARP_BUGS(DEFINE_BY_WARPS)
#endif

/* ------------------------------------------------------------------ blocks that exchange sums */

/* The same product with K split into three slices, one per block. The last block of a tile to
 * arrive adds the partial sums. Also for the CPU device only. */
#ifdef SGEMM_CUDA
#define EXCHANGE_BUGS(X)
#else
#define EXCHANGE_BUGS(X)                                                                           \
    X(exchange_none, "nothing: the control for blocks that exchange parts of sums")                \
    X(no_fence_before_arrival, "arrives before what it has stored can be seen")                    \
    X(no_fence_after_arrival, "reads what it need not see, although it knows of the arrival")      \
    X(stored_after_arrival, "arrives before it has stored its part")                               \
    X(added_by_arrival, "adds parts in the order in which blocks arrive")                          \
    X(counter_left, "leaves the counter of arrivals as it is")

namespace {

enum ExchangeBug {
#define BUG(name, summary) name,
    EXCHANGE_BUGS(BUG)
#undef BUG
};

constexpr int parts = 3;

struct ExchangeProduct {
    Sgemm p;
    float *partials; /* (tiles, parts, T, T) */
    unsigned *arrived;
};

template <ExchangeBug bug> void multiply_by_parts(const ExchangeProduct &e, bool &is_last)
{
    const Matrix &A = e.p.A, &B = e.p.B, &C = e.p.C;
    const int64_t across = (C.cols + T - 1) / T, number = blockIdx.x / parts;
    const int part = blockIdx.x % parts, ty = threadIdx.y, tx = threadIdx.x;
    const int64_t row = number / across * T + ty, col = number % across * T + tx;
    float sum = 0.0f;
    for (int64_t k = A.cols * part / parts; k < A.cols * (part + 1) / parts; ++k) {
        sum += inside(C, row, col) ? at(A, row, k) * at(B, k, col) : 0.0f;
    }
    float *const of_first = e.partials + ((number * parts) * T + ty) * T + tx;
    float *const own = of_first + part * T * T;
    if (bug == added_by_arrival) {
        atomicAdd(of_first, sum);
    } else if (bug != stored_after_arrival) {
        *own = sum;
    }
    __syncthreads();
    if (ty == 0 && tx == 0) {
        if (bug != no_fence_before_arrival) {
            __threadfence();
        }
        unsigned *const arrived = e.arrived + number;
        const unsigned before =
            bug == counter_left ? atomicAdd(arrived, 1u) : atomicInc(arrived, parts - 1);
        is_last = before == parts - 1;
        if (bug != no_fence_after_arrival) {
            __threadfence();
        }
    }
    __syncthreads();
    if (bug == stored_after_arrival) {
        *own = sum;
    }
    if (!is_last) {
        return;
    }
    sum = 0.0f;
    for (int other = 0; other < (bug == added_by_arrival ? 1 : parts); ++other) {
        sum += of_first[other * T * T];
    }
    if (bug == added_by_arrival) {
        *of_first = 0.0f;
    }
    store(e.p, row, col, sum);
}

/* Clears the counters and the partial sums. */
void clear_exchange(const ExchangeProduct e)
{
    const int64_t tiles = tiles_of(e.p.C, T, T);
    for (int64_t i = threadIdx.y * T + threadIdx.x; i < tiles * parts * T * T; i += T * T) {
        e.partials[i] = 0.0f;
        if (i < tiles) {
            e.arrived[i] = 0;
        }
    }
}

/* Runs twice with one set of counters, like a replayed graph. The first result is discarded. */
Status launch_exchange(void (*kernel)(ExchangeProduct), const KernelSpec &spec_of_parts,
                       const Sgemm *problem, const Launch *where)
{
    const Matrix &C = problem->C;
    const int64_t tiles = tiles_of(C, T, T), partials = tiles * parts * T * T;
    void *memory;
    const Status status = scratch_alloc(
        static_cast<size_t>(partials + tiles + C.rows * C.cols) * sizeof(float), where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    float *const first = static_cast<float *>(memory);
    const ExchangeProduct e = {*problem, first, reinterpret_cast<unsigned *>(first + partials)};
    ExchangeProduct for_nothing = e;
    for_nothing.p.C = {first + partials + tiles, C.rows, C.cols, C.cols, 1};
    for_nothing.p.beta = 0.0f;
    for_nothing.p.A.cols = for_nothing.p.B.rows = 0; // other partial sums than in the second run
    Status done = launch_blocks(clear_exchange, spec, 1, e, where);
    for (const auto &each : {for_nothing, e}) {
        if (done.code == STATUS_OK) {
            done = launch_blocks(kernel, spec_of_parts, tiles * parts, each, where);
        }
    }
    scratch_free(memory, where);
    return done;
}

} // namespace

#define DEFINE_EXCHANGE(name, summary)                                                             \
    static __global__ void planted_##name(const ExchangeProduct e)                                 \
    {                                                                                              \
        __shared__ bool is_last;                                                                   \
        multiply_by_parts<name>(e, is_last);                                                       \
    }                                                                                              \
    LAUNCHER(name)                                                                                 \
    {                                                                                              \
        return launch_exchange(planted_##name, exchange_spec, problem, where);                     \
    }                                                                                              \
    VARIANT(name, summary, "planted.cu", exchange_spec, {7, 5});
static constexpr KernelSpec exchange_spec = {.symbol = "planted",
                                             .block_tile = {T, T, T},
                                             .thread_tile = {1, 1},
                                             .threads = {T, T},
                                             .static_bytes = sizeof(bool)};
EXCHANGE_BUGS(DEFINE_EXCHANGE)
#endif

#ifndef __CUDACC__
#define ENTRY(name, ...) &variant_##name,
#define DYNAMIC_ENTRY(name) ENTRY(dynamic_##name)
extern const Variant *const planted_bugs[];
const Variant *const planted_bugs[] = {BUGS(ENTRY) DYNAMIC_BUGS(DYNAMIC_ENTRY) WARP_BUGS(ENTRY)
                                           EXCHANGE_BUGS(ENTRY) nullptr};
#endif
