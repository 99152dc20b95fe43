/* Checks Hopper's instructions for warpgroups and clusters: on the CPU device, or, compiled by
 * nvcc, on a GPU of compute capability 9.0. Covers TMA tiles with each swizzle and across edges;
 * wgmma bit for bit, in a pipeline of stages guarded by mbarriers; shuffles and votes of a warp;
 * and clusters of blocks that read each other's shared memory.
 *
 *   hopper                   all of that
 *   hopper clusters          only the clusters
 *   hopper --planted NAME    one kernel with one mistake, which should fail; on a GPU only some
 *                            mistakes of clusters, which racecheck should find
 *   hopper --list            the mistakes
 *   hopper time              the time of a product of 512 x 512 x 512, as three fp16 products */
#include "hopper.h"

#include <time.h>

#include <string>

namespace {

/* ------------------------------------------------------------------ TMA tiles */

struct TmaTiles {
    Map map;
    const int (*corners)[2]; // of each block's TMA tile: column, row
    uint16_t *out;           // each TMA tile as found in shared memory
    int bytes;               // of a TMA tile
};

__global__ void __launch_bounds__(128) load_tma_tiles(const __grid_constant__ TmaTiles tiles)
{
    // The barrier is behind the tile. Static arrays would move the tile off its alignment.
    uint16_t *const tile = reinterpret_cast<uint16_t *>(shared_memory());
    const int bytes = tiles.bytes;
    uint64_t *const full = reinterpret_cast<uint64_t *>(shared_memory() + bytes);
    if (threadIdx.x == 0) {
        init_barrier(full, 1);
        proxy_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive_expect(full, bytes);
        const int *const corner = tiles.corners[blockIdx.x];
        copy_tile(tile, &tiles.map, full, corner[0], corner[1]);
    }
    wait_for(full, 0);
    for (int i = threadIdx.x; i < bytes / 2; i += 128) {
        tiles.out[blockIdx.x * static_cast<unsigned>(bytes / 2) + i] = tile[i];
    }
}

void check_tma_tiles()
{
    constexpr int rows = 45, cols = 77, ld = 80;
    const int corners[][2] = {{0, 0},   {8, 3},     {80, 0}, {64, 0},    {56, 20},
                              {-8, -5}, {-72, -20}, {8, 44}, {504, 500}, {16, 40}};
    constexpr int count = sizeof corners / sizeof corners[0];
    const Shared<uint16_t> tensor(rows * ld), out(count * 256 * 64);
    const Shared<int[2]> where(count);
    memcpy(where, corners, sizeof corners);
    for (int i = 0; i < rows * ld; ++i) {
        tensor[i] = i % ld < cols ? static_cast<uint16_t>(i + 1) : 0xffff;
    }
    constexpr int most = 256 * 128; // bytes
    for (const Layout &layout : {Layout{2, 64, 64}, Layout{2, 128, 128}, Layout{4, 128, 128},
                                 Layout{2, 96, 0}, Layout{4, 512, 0}, Layout{4, 1024, 0}}) {
        const int halves = layout.element_bytes / 2; // fp16 values per element
        for (const int tile_rows : {1, 8, 24, 32, 256}) {
            const int bytes = tile_rows * layout.row_bytes;
            if (bytes > most) {
                continue;
            }
            const Map map = map_of(tensor, rows, cols / halves, ld / halves, tile_rows, layout);
            run(load_tma_tiles, 128, bytes + static_cast<int>(sizeof(uint64_t)), count,
                TmaTiles{map, where, out, bytes});
            const int of_row = layout.row_bytes / 2;
            for (int i = 0; i < count * bytes / 2; ++i) {
                const int row = i / of_row % tile_rows, col = i % of_row;
                const int line = layout.swizzle == 128  ? row % 8 // permutes groups of eight chunks
                                 : layout.swizzle == 64 ? row / 2 % 4
                                                        : 0;
                const int *const corner = corners[i / (bytes / 2)];
                const int x = corner[0] * halves + (col ^ line * 8), y = corner[1] + row;
                const bool inside = 0 <= x && x < cols / halves * halves && 0 <= y && y < rows;
                const uint16_t wanted = inside ? tensor[y * ld + x] : 0;
                check(out[i] == wanted, "an element of a TMA tile", out[i], wanted);
            }
        }
    }
}

/* ------------------------------------------------------------------ products, in a pipeline */

/* X(name, what the planted bug does) */
#define BUGS(X)                                                                                    \
    X(none, "nothing: the control")                                                                \
    X(no_wait, "multiplies a stage without waiting until it is full")                              \
    X(wrong_stage, "waits for another stage than it multiplies")                                   \
    X(wrong_parity, "waits for the phase before the stage's")                                      \
    X(filled_unasked, "fills a stage again without waiting until it is empty")                     \
    X(released_early, "says that a stage is empty when its product has only begun")                \
    X(accumulators_unwaited, "reads results before it waits for their product")                    \
    X(accumulators_set, "sets an accumulator that a product adds to")                              \
    X(no_products_fence, "lets products take accumulators without a fence")                        \
    X(other_factors, "has a thread of the warpgroup name another factor")                          \
    X(left_out_of_warpgroup, "lets a thread pass by what its warpgroup does together")             \
    X(between_chunks, "begins a TMA tile between two multiples of 16 bytes")                       \
    X(bytes_never_come, "expects more bytes of a stage than its TMA tiles have")                   \
    X(never_released, "does not say that a stage may be filled again")

enum Bug {
#define BUG(name, summary) name,
    BUGS(BUG)
#undef BUG
};

struct Tiles {
    Map A, B;       // (rows, depth), (columns, depth)
    float *D;       // each block's (64, N)
    int steps;      // along K
    bool from_zero; // otherwise the product is added to D
};

constexpr int stages = 3;
constexpr int pipeline_threads = 256;

template <int N, int SWIZZLE> struct Stage {
    unsigned char A[64 * SWIZZLE], B[N * SWIZZLE];
};
template <int N, int SWIZZLE> struct Pipeline {
    Stage<N, SWIZZLE> stage[stages];
    uint64_t full[stages], empty[stages];
};

/* One warpgroup copies: a single thread issues its TMA loads. The other one multiplies. */
template <int N, int SWIZZLE, Bug bug>
__global__ void __launch_bounds__(pipeline_threads)
    multiply_tiles(const __grid_constant__ Tiles tiles)
{
    auto &pipeline = *reinterpret_cast<Pipeline<N, SWIZZLE> *>(shared_memory());
    constexpr int stage_bytes = sizeof(Stage<N, SWIZZLE>);
    const int thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            init_barrier(&pipeline.full[s], 1);
            init_barrier(&pipeline.empty[s], 1);
        }
        proxy_fence();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        for (int step = 0; thread == 0 && step < tiles.steps; ++step) {
            const int s = step % stages, phase = step / stages % 2;
            const int x = step * (SWIZZLE / 2) + (bug == between_chunks);
            if (bug != filled_unasked) {
                wait_for(&pipeline.empty[s], phase ^ 1);
            }
            arrive_expect(&pipeline.full[s],
                          bug == bytes_never_come ? stage_bytes + 16 : stage_bytes);
            copy_tile(pipeline.stage[s].A, &tiles.A, &pipeline.full[s], x,
                      static_cast<int>(blockIdx.x) * 64);
            copy_tile(pipeline.stage[s].B, &tiles.B, &pipeline.full[s], x, 0);
        }
        return;
    }
    /* A thread's first two of each four floats in eight columns; the other two are eight rows
     * below. */
    float *const own = tiles.D + static_cast<int64_t>(blockIdx.x) * 64 * N +
                       (thread / 32 * 16 + thread % 32 / 4) * N + thread % 4 * 2;
    float d[N / 2];
    UNROLL(64)
    for (int i = 0; i < N / 2; ++i) {
        d[i] = own[i / 2 % 2 * 8 * N + i / 4 * 8 + i % 2];
    }
    for (int step = 0; step < tiles.steps; ++step) {
        const int s = step % stages, phase = step / stages % 2;
        if (bug != no_wait) {
            wait_for(&pipeline.full[bug == wrong_stage ? (s + 1) % stages : s],
                     bug == wrong_parity ? phase ^ 1 : phase);
        }
        if (bug != no_products_fence) {
            fence_products();
        }
        UNROLL(4)
        for (int byte = 0; byte < SWIZZLE; byte += 32) { // 16 fp16 values
            const bool elsewhere = bug == other_factors && thread == 77;
            multiply<SWIZZLE>(d, pipeline.stage[elsewhere ? 0 : s].A + byte,
                              pipeline.stage[s].B + byte, !tiles.from_zero || step + byte > 0);
        }
        if (bug != left_out_of_warpgroup || thread != 77) {
            commit_products();
        }
        if (bug == accumulators_set) {
            d[1] = 0.0f;
        }
        if (bug == released_early && thread == 0) {
            arrive(&pipeline.empty[s]);
        }
        wait_for_products(1);
        if (bug != never_released && bug != released_early && step > 0 && thread == 0) {
            arrive(&pipeline.empty[(step - 1) % stages]);
        }
    }
    if (bug != accumulators_unwaited) {
        wait_for_products(0);
    }
    UNROLL(64)
    for (int i = 0; i < N / 2; ++i) {
#ifdef __CUDACC__
        asm volatile("" : "+f"(d[i])::"memory");
#endif
        own[i / 2 % 2 * 8 * N + i / 4 * 8 + i % 2] = d[i];
    }
    if (bug == accumulators_unwaited) {
        wait_for_products(0);
    }
}

template <int N, int SWIZZLE, Bug bug = none>
void check_products(Random &random, const Kind &kind, int depth, bool from_zero, int cluster = 1)
{
    constexpr int blocks = 2, rows = 64 * blocks - 3; // the last block extends beyond A
    const int ld = (depth + 7) / 8 * 8;
    const Shared<uint16_t> A(static_cast<size_t>(rows * ld)), B(static_cast<size_t>(N * ld));
    const Shared<float> D(blocks * 64 * N);
    for (int i = 0; i < rows * ld; ++i) {
        A[i] = draw_half(random, kind);
    }
    for (int i = 0; i < N * ld; ++i) {
        B[i] = draw_half(random, kind);
    }
    for (int i = 0; i < blocks * 64 * N; ++i) {
        D[i] = draw_float(random, kind);
    }
    const std::vector<float> before(&D[0], &D[blocks * 64 * N]);
    const Layout layout = {2, SWIZZLE, SWIZZLE};
    const int steps = (2 * depth + SWIZZLE - 1) / SWIZZLE;
    run(multiply_tiles<N, SWIZZLE, bug>, pipeline_threads, sizeof(Pipeline<N, SWIZZLE>), blocks,
        Tiles{map_of(A, rows, depth, ld, 64, layout), map_of(B, N, depth, ld, N, layout), D, steps,
              from_zero},
        cluster);
    for (int i = 0; i < blocks * 64 * N; ++i) {
        const int row = i / N, col = i % N;
        float wanted = from_zero ? 0.0f : before[static_cast<size_t>(i)];
        for (int k0 = 0; k0 < steps * SWIZZLE / 2; k0 += 16) {
            uint16_t a[16], b[16];
            for (int k = 0; k < 16; ++k) {
                const bool inside = k0 + k < depth;
                a[k] = inside && row < rows ? A[row * ld + k0 + k] : 0;
                b[k] = inside ? B[col * ld + k0 + k] : 0;
            }
            wanted = sum_of(a, b, wanted);
        }
        check(bits_of_float(D[i]) == bits_of_float(wanted), kind.name, bits_of_float(D[i]),
              bits_of_float(wanted));
    }
}

/* ------------------------------------------------------------------ tiles that threads copy */

/* X(name, what the planted bug does) */
#define THREAD_BUGS(X)                                                                             \
    X(copies_none, "nothing: the control for tiles that threads copy")                             \
    X(no_proxy_fence, "lets products read what threads wrote without a fence between")             \
    X(copies_read_early, "waits for asynchronous copies after the product of them")                \
    X(copies_too_few, "waits for all asynchronous copies but the newest, which it needs")

enum ThreadBug {
#define BUG(name, summary) name,
    THREAD_BUGS(BUG)
#undef BUG
};

struct CopiedTiles {
    const uint16_t *A, *B; // tiles of (64, 64) and (8, 64), contiguous
    float *D;              // (64, 8)
    int tiles;
};

struct CopiedStage {
    uint16_t A[64][64], B[8][64];
};

/* A warpgroup prefetches one tile: A by asynchronous copies, B through registers. */
template <ThreadBug bug>
__global__ void __launch_bounds__(128) multiply_copied(const CopiedTiles tiles)
{
    auto *const stage = reinterpret_cast<CopiedStage *>(shared_memory());
    const int thread = threadIdx.x;
    const auto bring = [&](int tile) {
        CopiedStage &to = stage[tile % 2];
        for (int i = thread; tile < tiles.tiles && i < 64 * 8; i += 128) {
            copy_chunk(&to.A[i / 8][(i % 8 ^ i / 8 % 8) * 8], tiles.A + (tile * 64 * 8 + i) * 8);
        }
        for (int i = thread; tile < tiles.tiles && i < 8 * 64; i += 128) {
            to.B[i / 64][i % 64 ^ i / 64 * 8] = tiles.B[tile * 8 * 64 + i];
        }
        commit_copies();
    };
    float d[4] = {};
    bring(0);
    for (int tile = 0; tile < tiles.tiles; ++tile) {
        if (bug == copies_too_few) {
            wait_for_copies(1);
        } else if (bug != copies_read_early) {
            wait_for_copies(0);
        }
        if (bug != no_proxy_fence) {
            proxy_fence();
        }
        __syncthreads(); // all threads have multiplied the previous tile, too
        bring(tile + 1);
        fence_products();
        UNROLL(4)
        for (int k = 0; k < 64; k += 16) {
            multiply<128>(d, &stage[tile % 2].A[0][k], &stage[tile % 2].B[0][k], true);
        }
        commit_products();
        wait_for_products(0);
        if (bug == copies_read_early) {
            wait_for_copies(0);
        }
    }
    for (int i = 0; i < 4; ++i) {
#ifdef __CUDACC__
        asm volatile("" : "+f"(d[i])::"memory");
#endif
        tiles.D[(thread / 32 * 16 + thread % 32 / 4 + i / 2 * 8) * 8 + thread % 4 * 2 + i % 2] =
            d[i];
    }
}

template <ThreadBug bug> void check_copied(Random &random, const Kind &kind, int depth, bool)
{
    const int tiles = depth / 64;
    const Shared<uint16_t> A(static_cast<size_t>(64 * depth)), B(static_cast<size_t>(8 * depth));
    const Shared<float> D(64 * 8);
    for (int i = 0; i < 64 * depth; ++i) {
        A[i] = draw_half(random, kind);
    }
    for (int i = 0; i < 8 * depth; ++i) {
        B[i] = draw_half(random, kind);
    }
    run(multiply_copied<bug>, 128, 2 * sizeof(CopiedStage), 1, CopiedTiles{A, B, D, tiles});
    for (int i = 0; i < 64 * 8; ++i) {
        const int row = i / 8, col = i % 8;
        float wanted = 0.0f;
        for (int k0 = 0; k0 < depth; k0 += 16) {
            uint16_t a[16], b[16];
            memcpy(a, A + (k0 / 64 * 64 + row) * 64 + k0 % 64, sizeof a);
            memcpy(b, B + (k0 / 64 * 8 + col) * 64 + k0 % 64, sizeof b);
            wanted = sum_of(a, b, wanted);
        }
        check(bits_of_float(D[i]) == bits_of_float(wanted), kind.name, bits_of_float(D[i]),
              bits_of_float(wanted));
    }
}

void check_all_products()
{
    Random random(8);
    bool from_zero = false;
    for (const Kind &kind : kinds) {
        check_products<8, 128>(random, kind, 5 * 64 - 3, from_zero);
        check_products<8, 64>(random, kind, 5 * 32 - 3, !from_zero);
        from_zero = !from_zero;
    }
    check_products<128, 128>(random, kinds[0], 75, false);
    check_products<128, 64>(random, kinds[2], 75, true);
    check_copied<copies_none>(random, kinds[0], 5 * 64, true);
}

/* ------------------------------------------------------------------ shuffles, votes, barriers */

constexpr int told = 10; // values per thread

struct Told {
    unsigned *by; // (blocks, threads, told)
};

__device__ void tell(const Told &out, unsigned *left)
{
    const unsigned thread = threadIdx.x, lane = thread % 32, all = 0xffffffff;
    const unsigned x = thread * thread + 7;
    unsigned *const by = out.by + (blockIdx.x * 96 + thread) * told;
    by[0] = __shfl_sync(all, x, 5);
    by[1] = __shfl_sync(all, x, static_cast<int>(lane * 7 + 35));
    by[2] = __shfl_xor_sync(all, x, 19);
    by[3] = __shfl_up_sync(all, x, 3);
    by[4] = static_cast<unsigned>(__shfl_down_sync(all, 0.5f * static_cast<float>(x), 9) * 2.0f);
    by[5] = static_cast<unsigned>(__shfl_sync(all, -static_cast<int>(x), 31));
    by[6] = __ballot_sync(all, x % 3 == 1);
    by[7] = static_cast<unsigned>(__any_sync(all, thread == 40) != 0);
    by[8] = static_cast<unsigned>(__all_sync(all, thread != 40) != 0);
    by[9] = 0;
    left[thread] = x;
    if (thread < 64) { // two of three warps
        for (int time = 0; time < 3; ++time) {
            named_barrier(1, 64);
            by[9] += left[63 - thread];
            named_barrier(2, 64);
            left[thread] += 1;
        }
    }
}

__global__ void __launch_bounds__(96) tell_all(const Told out)
{
    __shared__ unsigned left[96];
    tell(out, left);
}

__global__ void __launch_bounds__(96) tell_all_in_cluster(const Told out)
{
    tell(out, reinterpret_cast<unsigned *>(shared_memory()));
}

void check_warp_exchange(int cluster)
{
    const Shared<unsigned> by(static_cast<size_t>(cluster * 96 * told));
    if (cluster == 1) {
        run(tell_all, 96, 0, 1, Told{by});
    } else {
        run(tell_all_in_cluster, 96, 96 * sizeof(unsigned), cluster, Told{by}, cluster);
    }
    for (unsigned i = 0; i < 96 * static_cast<unsigned>(cluster); ++i) {
        const unsigned thread = i % 96;
        const unsigned warp = thread / 32 * 32, lane = thread % 32;
        const auto x = [warp](unsigned of) { return (warp + of) * (warp + of) + 7; };
        unsigned votes = 0;
        for (unsigned of = 0; of < 32; ++of) {
            votes |= (x(of) % 3 == 1 ? 1u : 0u) << of;
        }
        const unsigned opposite = (63 - thread) * (63 - thread) + 7;
        const unsigned wanted[told] = {x(5),
                                       x((lane * 7 + 35) % 32),
                                       x(lane ^ 19),
                                       x(lane < 3 ? lane : lane - 3),
                                       x(lane > 22 ? lane : lane + 9),
                                       0u - x(31),
                                       votes,
                                       warp == 32 ? 1u : 0u,
                                       warp == 32 ? 0u : 1u,
                                       thread < 64 ? 3 * opposite + 3 : 0};
        for (unsigned what = 0; what < told; ++what) {
            const unsigned found = by[i * told + what];
            check(found == wanted[what], ("told " + std::to_string(what)).c_str(), found,
                  wanted[what]);
        }
    }
}

/* ------------------------------------------------------------------ clusters of blocks */

/* X(name, what the planted bug does) */
#define CLUSTER_BUGS(X)                                                                            \
    X(cluster_none, "nothing: the control for clusters")                                           \
    X(no_cluster_barrier_before_reading, "reads what other blocks may still be writing")           \
    X(block_barrier_before_reading, "waits for its own block before it reads what others write")   \
    X(no_cluster_barrier_before_end, "ends while others may still read its shared memory")         \
    X(ended_before_kept_address, "does so where others know the address from before")              \
    X(left_cluster, "lets a thread return before the cluster's barrier")                           \
    X(other_cluster_barrier, "has one block wait for its cluster in another line")                 \
    X(block_barrier_of_some,                                                                       \
      "has a warp wait for its block while all others wait for the cluster")                       \
    X(part_overread, "reads another block's shared memory past its end")                           \
    X(part_of_nobody, "asks for shared memory of one block more than there are")                   \
    X(part_not_shared, "asks for the place of what is no shared memory")

enum ClusterBug {
#define BUG(name, summary) name,
    CLUSTER_BUGS(BUG)
#undef BUG
};

constexpr int cluster_size = 4, part_threads = 64, part_side = 16;
constexpr int part_elements = part_side * part_side;
static_assert(part_elements == cluster_size * part_threads, "a thread stores one element of C");

struct Parts {
    const float *A, *B; // (clusters * part_side, depth), (depth, part_side)
    float *C;           // (clusters * part_side, part_side)
    int depth;
};

/* Each block of a cluster computes a split-K slice of one tile of C, then adds all partial sums
 * of its quarter of the tile. */
template <ClusterBug bug> __global__ void __launch_bounds__(part_threads) add_parts(const Parts p)
{
    float *const part = reinterpret_cast<float *>(shared_memory());
    const int rank = cluster_rank(), thread = threadIdx.x;
    const int first_row = static_cast<int>(blockIdx.x) / cluster_size * part_side;
    const int end = p.depth * (rank + 1) / cluster_size;
    for (int i = thread; i < part_elements; i += part_threads) {
        float sum = 0.0f;
        for (int k = p.depth * rank / cluster_size; k < end; ++k) {
            sum = multiply_add(p.A[(first_row + i / part_side) * p.depth + k],
                               p.B[k * part_side + i % part_side], sum);
        }
        part[i] = sum;
    }
    const float *parts[cluster_size];
    const auto ask = [&] {
        for (int other = 0; other < cluster_size; ++other) {
            parts[other] = static_cast<const float *>(cluster_shared(
                bug == part_not_shared ? p.C : part, bug == part_of_nobody ? other + 1 : other));
        }
    };
    if (bug == ended_before_kept_address) {
        ask();
    }
    if (bug == left_cluster && rank == 2 && thread == 33) {
        return;
    }
    if (bug == block_barrier_before_reading) {
        __syncthreads();
    } else if (bug == block_barrier_of_some && rank == 1 && thread / 32 == 1) {
        __syncthreads();
    } else if (bug == other_cluster_barrier && rank == 3) {
        cluster_barrier();
    } else if (bug != no_cluster_barrier_before_reading) {
        cluster_barrier();
    }
    if (bug != ended_before_kept_address) {
        ask();
    }
    const int own = rank * part_threads + thread;
    float sum = 0.0f;
    for (int other = 0; other < cluster_size; ++other) {
        sum += parts[other][bug == part_overread ? own + part_threads : own];
    }
    p.C[first_row * part_side + own] = sum;
    if (bug != no_cluster_barrier_before_end && bug != ended_before_kept_address) {
        cluster_barrier();
    }
}

template <ClusterBug bug> void check_parts(Random &random, const Kind &kind, int depth, bool)
{
    constexpr int clusters = 3, rows = clusters * part_side;
    const Shared<float> A(static_cast<size_t>(rows * depth)),
        B(static_cast<size_t>(depth * part_side)), C(static_cast<size_t>(rows * part_side));
    const auto draw = [&random] { return static_cast<float>(random() % 17) - 8.0f; };
    for (int i = 0; i < rows * depth; ++i) {
        A[i] = draw();
    }
    for (int i = 0; i < depth * part_side; ++i) {
        B[i] = draw();
    }
    run(add_parts<bug>, part_threads, part_elements * static_cast<int>(sizeof(float)),
        clusters * cluster_size, Parts{A, B, C, depth}, cluster_size);
    for (int i = 0; i < rows * part_side; ++i) {
        float wanted = 0.0f; // integers: exact in any order
        for (int k = 0; k < depth; ++k) {
            wanted += A[i / part_side * depth + k] * B[k * part_side + i % part_side];
        }
        check(bits_of_float(C[i]) == bits_of_float(wanted), kind.name, bits_of_float(C[i]),
              bits_of_float(wanted));
    }
}

#ifndef __CUDACC__
/* Checks that the CPU device refuses unsupported launches, with the right reason. */
void check_refusals()
{
    const struct {
        int threads, blocks, cluster;
        const char *why;
    } cases[] = {
        {64, 8, 16, "a cluster of 16 blocks of 64 threads cannot be launched on the CPU device"},
        {512, 8, 8, "3072 threads per cluster (a GPU takes as many threads in each block)"},
        {48, 4, 2, "blocks of 48 threads cannot be launched on the CPU device: use a multiple"},
        {64, 7, 2, "7 blocks cannot be launched in clusters of 2: launch a multiple of"},
    };
    for (const auto &c : cases) {
        const Status status =
            launch(add_parts<cluster_none>, c.threads, 1024, c.blocks, c.cluster, Parts{});
        check(status.code == STATUS_DEVICE && strstr(status.message, c.why), c.why, status.code,
              STATUS_DEVICE);
    }
    const Launch where = {};
    const KernelSpec spec = {.symbol = "",
                             .threads = {part_threads, 1},
                             .static_bytes = 4,
                             .dynamic_bytes = 1024,
                             .cluster = 2};
    const Status status = launch_blocks(add_parts<cluster_none>, spec, 2, Parts{}, &where);
    check(status.code == STATUS_DEVICE && strstr(status.message, "no arrays of shared memory"),
          "arrays of shared memory in a cluster", status.code, STATUS_DEVICE);
}
#endif

void check_clusters()
{
    Random random(10);
    for (const int depth : {1, 4, 50}) {
        check_parts<cluster_none>(random, kinds[0], depth, true);
    }
    check_warp_exchange(3);
    check_products<8, 128>(random, kinds[0], 5 * 64 - 3, true, 2);
#ifndef __CUDACC__
    check_refusals();
#endif
}

/* ------------------------------------------------------------------ the command line */

typedef void CheckWithBug(Random &, const Kind &, int, bool);

template <Bug bug> void check_pipeline(Random &random, const Kind &kind, int depth, bool from_zero)
{
    check_products<8, 128, bug>(random, kind, depth, from_zero);
}

struct Planted {
    const char *name, *summary;
    CheckWithBug *check;
};
const Planted planted[] = {
#ifdef __CUDACC__
#define PLANTED(name)                                                                              \
    {                                                                                              \
#name, "", check_parts < name>                                                             \
    }
    PLANTED(cluster_none), PLANTED(no_cluster_barrier_before_reading),
    PLANTED(block_barrier_before_reading), PLANTED(no_cluster_barrier_before_end)
#undef PLANTED
#else
#define BUG(name, summary) {#name, summary, check_pipeline<name>},
    BUGS(BUG)
#undef BUG
#define BUG(name, summary) {#name, summary, check_copied<name>},
        THREAD_BUGS(BUG)
#undef BUG
#define BUG(name, summary) {#name, summary, check_parts<name>},
            CLUSTER_BUGS(BUG)
#undef BUG
#endif
};

void begin_threads_in_order(int order)
{
#ifdef SGEMM_CHECKED
    grid_check.order = order;
#else
    (void)order;
#endif
}

#ifdef __CUDACC__
constexpr int orders = 1;
#else
constexpr int orders = 20;
#endif

/* Starts the threads in each of the orders. */
void check_planted(const char *name)
{
    for (const Planted &bug : planted) {
        if (strcmp(bug.name, name) == 0) {
            for (int order = 0; order < orders; ++order) {
                begin_threads_in_order(order);
                Random random(9);
                bug.check(random, kinds[0], 8 * 64, false);
            }
            return;
        }
    }
    give_up("no bug of this name is planted");
}

void report_time()
{
    /* As many products as 512 x 512 x 512 needs: three times K = 512, in TMA tiles of 64. */
    constexpr int depth = 3 * 512, side = 512;
    Random random(7);
    const Shared<uint16_t> A(side * depth), B(128 * depth);
    const Shared<float> D(side * side);
    for (int i = 0; i < side * depth; ++i) {
        A[i] = draw_half(random, kinds[0]);
    }
    for (int i = 0; i < 128 * depth; ++i) {
        B[i] = draw_half(random, kinds[0]);
    }
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    run(multiply_tiles<128, 128, none>, pipeline_threads, sizeof(Pipeline<128, 128>), 32,
        Tiles{map_of(A, side, depth, depth, 64, {2, 128, 128}),
              map_of(B, 128, depth, depth, 128, {2, 128, 128}), D, depth / 64, true});
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.3f s\n", static_cast<double>(end.tv_sec - begin.tv_sec) +
                           1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec));
}

bool device_has_warpgroups()
{
#ifdef __CUDACC__
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    return major == 9;
#else
    return true;
#endif
}

} // namespace

int main(int count, char **arguments)
{
    const std::string what = count > 1 ? arguments[1] : "";
    if (!device_has_warpgroups()) {
        printf("hopper: not for this GPU, whose compute capability is not 9.0\n");
        return 0;
    }
    if (what == "time") {
        report_time();
        return 0;
    }
    if (what == "clusters") {
        check_clusters();
        printf("hopper: %d failures\n", failures);
        return failures > 0;
    }
    if (what == "--list") {
        for (const Planted &bug : planted) {
            printf("%-24s %s\n", bug.name, bug.summary);
        }
        return 0;
    }
    if (what == "--planted" && count > 2) {
        check_planted(arguments[2]);
        printf("hopper: %d failures\n", failures);
        return failures > 0;
    }
    check_tma_tiles();
    check_all_products();
    check_warp_exchange(1);
    check_clusters();
    printf("hopper: %d failures\n", failures);
    return failures > 0;
}
