// The split-fp16 kernel of the rungs wgmma and waves, with design decisions as constants. Matrices
// are n x n and row-major; n is a multiple of 128. It is compiled once for each setting of
// benchmarks/_questions_fp16_pairs.py, which explains the constants, and linked with alternate.cu.
// Operands are in [-1, 1) and are split before the timing. So there is one scale for all rows, and
// no result is recomputed in float32.
#include "../../csrc/gemm/tensor_cores/split_fp16.h"
#include "settings.h"

#include <map>
#include <new>
#include <stdexcept>
#include <type_traits>

namespace {

constexpr int BM = WARPGROUPS * BLOCKS_DOWN * 64, BN = COLS;
constexpr int THREADS = WARPGROUPS * 128 + 128;    // the last warpgroup is the producer
enum SharedTile { no_tile, tile_of_a, tile_of_b }; // loaded by both blocks of a cluster
constexpr bool SHARES_A = CLUSTER_SHARES == tile_of_a, SHARES_B = CLUSTER_SHARES == tile_of_b;
constexpr int CLUSTER = CLUSTER_SHARES == no_tile ? 1 : 2;
constexpr int A_TILE_ROWS = SHARES_A ? BM / 2 : BM,
              B_TILE_ROWS = SHARES_B ? BN / 2 : BN; // rows of a TMA tile
constexpr int RESULTS = COLS / 8; // groups of four, per thread and 64 x COLS results

constexpr float to_fp16 = 0x1p14f; // the scale of operands in [-1, 1); fp16 is below 2^16
constexpr float from_fp16 = 0x1p-28f;

struct Shared {
    Fp16x8 As[DEPTH_STAGES][BM * block_vectors];
    Fp16x8 Bs[DEPTH_STAGES][BN * block_vectors];
    Mbarrier full[DEPTH_STAGES], empty[DEPTH_STAGES];
};

// The stage of the producer or of a consumer, and the parity of its phase.
struct Ring {
    int stage = 0, parity = 0;

    __device__ __forceinline__ void go_on()
    {
        if (++stage == DEPTH_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* ------------------------------------------------------------------ clusters of two blocks */

__device__ __forceinline__ int rank_in_cluster()
{
    return blockIdx.x % CLUSTER;
}

__device__ __forceinline__ void cluster_barrier()
{
    if constexpr (CLUSTER > 1) {
        asm volatile("barrier.cluster.arrive.aligned;\n"
                     "barrier.cluster.wait.aligned;" ::
                         : "memory");
    } else {
        __syncthreads();
    }
}

// Called by a warp that has read a stage: tells this block, and the block that shares the stage.
__device__ __forceinline__ void release(Mbarrier *empty)
{
    const int lane = threadIdx.x % 32;
    if constexpr (CLUSTER > 1) {
        if (lane < CLUSTER) {
            asm volatile("{\n"
                         ".reg .b32 there;\n"
                         "mapa.shared::cluster.u32 there, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                         "}" ::"r"(smem_address(empty)),
                         "r"(lane)
                         : "memory");
        }
    } else if (lane == 0) {
        mbarrier_arrive(empty);
    }
}

// Loads a TMA tile to the same address in both blocks of the cluster. The barriers of both blocks
// count its bytes.
__device__ __forceinline__ void load_to_both(Fp16x8 *to, const TensorMap &map, int line, int block,
                                             Mbarrier *barrier)
{
    constexpr int block_elements = swizzle_bytes / 2;
    constexpr uint16_t both = 3;
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem_address(to)),
                 "l"(&map), "r"(block * block_elements), "r"(line), "r"(smem_address(barrier)),
                 "h"(both)
                 : "memory");
}

// Loads an operand's tile of a stage: all of it, or the half that this block loads to both blocks.
template <bool SHARED>
__device__ __forceinline__ void load_tile(Fp16x8 *to, const TensorMap &map, int line, int rows,
                                          int block, Mbarrier *barrier)
{
    if constexpr (SHARED) {
        const int first = rank_in_cluster() * rows;
        load_to_both(to + first * block_vectors, map, line + first, block, barrier);
    } else {
        tma_load_2d(to, map, block * (swizzle_bytes / 2), line, barrier);
    }
}

/* ------------------------------------------------------------------ which tile */

struct Corner {
    int row, col;
};

// Clusters go down bands of BAND rows of tiles, like the rungs' blocks (tile_in_bands).
struct Tiles {
    int down, across; // of clusters

    __device__ __forceinline__ explicit Tiles(int n)
        : down((n + BM * (SHARES_B ? 2 : 1) - 1) / (BM * (SHARES_B ? 2 : 1))),
          across((n + BN * (SHARES_A ? 2 : 1) - 1) / (BN * (SHARES_A ? 2 : 1)))
    {}
    __device__ __forceinline__ Corner corner(int number) const
    {
        const int band = number / (BAND * across), in_band = number % (BAND * across);
        const int rows = min(BAND, down - band * BAND);
        const int row = band * BAND + in_band % rows, col = in_band / rows;
        return {(SHARES_B ? row * 2 + rank_in_cluster() : row) * BM,
                (SHARES_A ? col * 2 + rank_in_cluster() : col) * BN};
    }
    // Calls what(corner) for each of the block's tiles: one, or several with PERSISTENT.
    template <class What> __device__ __forceinline__ void of_block(const What &what) const
    {
        for (int i = blockIdx.x / CLUSTER; i < down * across; i += gridDim.x / CLUSTER) {
            what(corner(i));
        }
    }
};

/* ------------------------------------------------------------------ products */

typedef float Part[RESULTS][4];

// 64 rows of A that products read from the stage's tile in shared memory.
template <int DEPTHS> struct RowsInShared {
    WgmmaFactor lines;

    __device__ __forceinline__ explicit RowsInShared(const Fp16x8 *first) : lines(first) {}
    __device__ __forceinline__ WgmmaFactor at(int depth, bool low) const
    {
        return lines.from_byte((depth * 2 + low * lo_offset) * 16);
    }
};

// The same rows in registers: each warp loads the hi and lo values of its 16 rows.
template <int DEPTHS> struct RowsInRegisters {
    unsigned pairs[DEPTHS][2][4];

    __device__ __forceinline__ explicit RowsInRegisters(const Fp16x8 *first)
    {
        const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
        UNROLL(DEPTHS)
        for (int depth = 0; depth < DEPTHS; ++depth) {
            UNROLL(2)
            for (int low = 0; low < 2; ++low) {
                const int chunk = depth * 2 + low * lo_offset + lane / 16;
                ldmatrix_x4(pairs[depth][low], first + row * block_vectors + swizzled(row, chunk));
            }
        }
    }
    __device__ __forceinline__ const unsigned (&at(int depth, bool low) const)[4]
    {
        return pairs[depth][low];
    }
};

constexpr int depths = k_block / 16; // steps of 16 in a stage
typedef std::conditional_t<A_IN_REGISTERS, RowsInRegisters<depths>, RowsInShared<depths>> Rows;

// Adds the small products (lo hi and hi lo) of one stage, 32 steps of K; the first ones overwrite
// part.
__device__ __forceinline__ void multiply_small(Part &part, const Rows &a, const WgmmaFactor &b,
                                               bool first)
{
    UNROLL(depths)
    for (int depth = 0; depth < depths; ++depth) {
        wgmma_k16(part, a.at(depth, true), b.from_byte(depth * 32), !first || depth > 0);
        wgmma_k16(part, a.at(depth, false), b.from_byte((depth * 2 + lo_offset) * 16), true);
    }
}

__device__ __forceinline__ void multiply_large(Part &part, const Rows &a, const WgmmaFactor &b)
{
    UNROLL(depths)
    for (int depth = 0; depth < depths; ++depth) {
        wgmma_k16(part, a.at(depth, false), b.from_byte(depth * 32), true);
    }
}

// Adds this warpgroup's products of one K chunk (64), which is two stages. Each chunk has its own
// sum in the tensor cores, because they truncate: a long sum would accumulate the error.
__device__ __forceinline__ void multiply_chunk(float (&sum)[BLOCKS_DOWN][RESULTS][4],
                                               Shared &shared, int first, int second)
{
    const int rows = threadIdx.x / 128 * BLOCKS_DOWN * 64;
    UNROLL(BLOCKS_DOWN)
    for (int i = 0; i < BLOCKS_DOWN; ++i) {
        const bool last = i == BLOCKS_DOWN - 1;
        const int begin = (rows + i * 64) * block_vectors;
        const Rows a0(shared.As[first] + begin), a1(shared.As[second] + begin);
        const WgmmaFactor b0(shared.Bs[first]), b1(shared.Bs[second]);
        Part part;
        wgmma_fence();
        multiply_small(part, a0, b0, true);
        if (SMALL_BY_STAGE) {
            multiply_large(part, a0, b0);
            wgmma_commit();
            multiply_small(part, a1, b1, false);
        } else {
            multiply_small(part, a1, b1, false);
            multiply_large(part, a0, b0);
            wgmma_commit();
        }
        multiply_large(part, a1, b1);
        wgmma_commit();
        wgmma_wait<1>();
        if (last) {
            release(shared.empty + first);
        }
        wgmma_wait<0>();
        if (last) {
            release(shared.empty + second);
        }
        UNROLL(RESULTS)
        for (int j = 0; j < RESULTS; ++j) {
            wgmma_accumulators_ready(part[j]);
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[i][j][r] += part[j][r];
            }
        }
    }
}

__device__ __forceinline__ void store(const float (&sum)[BLOCKS_DOWN][RESULTS][4], float *C, int n,
                                      Corner tile)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    UNROLL(BLOCKS_DOWN)
    for (int i = 0; i < BLOCKS_DOWN; ++i) {
        const int row = tile.row + (warp / 4 * BLOCKS_DOWN + i) * 64 + warp % 4 * 16 + lane / 4;
        UNROLL(RESULTS)
        for (int j = 0; j < RESULTS; ++j) {
            const int col = tile.col + j * 8 + lane % 4 * 2;
            UNROLL(2)
            for (int half = 0; half < 2; ++half) {
                if (row + half * 8 < n && col < n) {
                    *reinterpret_cast<float2 *>(C + static_cast<size_t>(row + half * 8) * n + col) =
                        make_float2(sum[i][j][half * 2] * from_fp16,
                                    sum[i][j][half * 2 + 1] * from_fp16);
                }
            }
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
    NAME(const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, float *C, int n)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared &shared = *reinterpret_cast<Shared *>(shared_bytes);
    if (threadIdx.x == 0) {
        for (int i = 0; i < DEPTH_STAGES; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, WARPGROUPS * 4 * CLUSTER);
        }
        fence_proxy_async();
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_barrier();
    const Tiles tiles(n);
    Ring ring;
    if (threadIdx.x < WARPGROUPS * 128) {
        setmaxnreg_inc<WARPGROUPS == 3 ? 160 : 240>();
        tiles.of_block([&](Corner tile) {
            float sum[BLOCKS_DOWN][RESULTS][4] = {};
            UNROLL(1)
            for (int k = 0; k < n; k += 2 * k_block) {
                const int first = ring.stage;
                mbarrier_wait(shared.full + first, ring.parity);
                ring.go_on();
                mbarrier_wait(shared.full + ring.stage, ring.parity);
                multiply_chunk(sum, shared, first, ring.stage);
                ring.go_on();
            }
            store(sum, C, n, tile);
        });
    } else {
        setmaxnreg_dec<24>();
        if (threadIdx.x == WARPGROUPS * 128) {
            tiles.of_block([&](Corner tile) {
                UNROLL(1)
                for (int block = 0; block < n / k_block; ++block) {
                    Mbarrier *const full = shared.full + ring.stage;
                    mbarrier_wait(shared.empty + ring.stage, ring.parity ^ 1);
                    mbarrier_arrive_expect_tx(full, sizeof shared.As[0] + sizeof shared.Bs[0]);
                    load_tile<SHARES_A>(shared.As[ring.stage], A, tile.row, A_TILE_ROWS, block,
                                        full);
                    load_tile<SHARES_B>(shared.Bs[ring.stage], B, tile.col, B_TILE_ROWS, block,
                                        full);
                    ring.go_on();
                }
            });
        }
    }
    if (CLUSTER > 1) {
        __syncwarp();
        cluster_barrier(); // the other block may still arrive at this block's barriers
    }
}

/* ------------------------------------------------------------------ the launch */

// Splits the rows or columns of X into fp16 pairs, K-major, in the rungs' layout: for each 32
// elements the hi values, then the lo values.
static __global__ void split(uint16_t *to, const float *X, int n, bool columns)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, line = blockIdx.y;
    const float x =
        X[columns ? static_cast<size_t>(k) * n + line : static_cast<size_t>(line) * n + k] *
        to_fp16;
    const uint16_t high = fp16_from_float(x);
    uint16_t *const at = to + static_cast<size_t>(line) * 2 * n + k / 32 * 64 + k % 32;
    at[0] = high;
    at[32] = fp16_from_float(x - float_from_fp16(high));
}

// The tensor map of TMA tiles with `tile_rows` rows (of A, or columns of B) and 32 steps of K.
static TensorMap tensor_map_of(uint16_t *pairs, int n, int tile_rows)
{
    const uint64_t inner = 2 * static_cast<uint64_t>(n);
    const TiledMatrix tiles = {pairs,
                               inner,
                               static_cast<uint64_t>(n),
                               inner * sizeof *pairs,
                               sizeof *pairs,
                               swizzle_bytes / sizeof *pairs,
                               tile_rows,
                               true};
    TensorMap map;
    if (encode_tensor_map_by_driver(&map, tiles) != CUDA_SUCCESS) {
        throw std::runtime_error("tensor maps need a driver for CUDA 12.0 or newer");
    }
    return map;
}

static TensorMap split_once(const float *X, int n, bool columns, int tile_rows)
{
    static std::map<const float *, uint16_t *> pairs;
    uint16_t *&to = pairs[X];
    if (to == nullptr) {
        if (cudaMalloc(&to, static_cast<size_t>(n) * n * 2 * sizeof *to) != cudaSuccess) {
            throw std::bad_alloc();
        }
        split<<<dim3(n / 128, n), 128>>>(to, X, n, columns);
    }
    return tensor_map_of(to, n, tile_rows);
}

static void start(const harness::Launch &launch, const float *A, const float *B, float *C, int n)
{
    const TensorMap a = split_once(A, n, false, A_TILE_ROWS),
                    b = split_once(B, n, true, B_TILE_ROWS);
    NAME<<<launch.grid, launch.block, launch.shared>>>(a, b, C, n);
}

static const bool listed = list(TEXT(NAME), [](int n) -> harness::Launch {
    if (n % 128 != 0) {
        throw std::invalid_argument("n must be a multiple of 128");
    }
    if (cudaFuncSetAttribute(NAME, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)) !=
        cudaSuccess) {
        throw std::invalid_argument("the GPU must be of compute capability 9.0");
    }
    int multiprocessors;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    const auto clusters = [&](int tile, bool paired) {
        const int lines = paired ? 2 * tile : tile;
        return (n + lines - 1) / lines;
    };
    const int blocks = clusters(BM, SHARES_B) * clusters(BN, SHARES_A) * CLUSTER;
    const int grid = PERSISTENT ? min(blocks, multiprocessors / CLUSTER * CLUSTER) : blocks;
    return {reinterpret_cast<harness::Kernel *>(NAME), dim3(grid), dim3(THREADS), sizeof(Shared),
            start};
});
