// A tiled kernel whose design decisions are constants, for row-major n x n matrices. n is a
// multiple of the tile. It is compiled once for each setting of benchmarks/_questions.py, which
// explains the constants, and linked with alternate.cu.
#include "settings.h"

#include <cuda_pipeline_primitives.h>
#include <stdexcept>

namespace {

constexpr int THREADS = BM * BN / (TM * TN);
constexpr int LANE_COLS = 32 / LANE_ROWS;
constexpr int WM = LANE_ROWS * TM, WN = LANE_COLS * TN; // a warp's results
constexpr int A_ROW = BM + PADDING;                     // floats from one step of As to the next
constexpr int SHARED = BUFFERS * BK * (A_ROW + BN);

// Tiles are loaded as float4s. Each operand is loaded by all threads, or by half of them.
constexpr int LOADERS = SEPARATE_LOADERS ? THREADS / 2 : THREADS;
constexpr int A_FLOAT4S = BM * BK / 4 / LOADERS, B_FLOAT4S = BK * BN / 4 / LOADERS; // per thread
constexpr int A_ROWS_LOADED = LOADERS / (BK / 4),
              B_ROWS_LOADED = LOADERS / (BN / 4); // rows at a time
// Stores per thread and tile: A's elements one by one, because As is transposed, and B's float4s.
constexpr int STORES = 4 * A_FLOAT4S + (ASYNC ? 0 : B_FLOAT4S);

static_assert(BM % WM == 0 && BN % WN == 0, "whole warps");
static_assert(A_FLOAT4S * A_ROWS_LOADED == BM && B_FLOAT4S * B_ROWS_LOADED == BK,
              "whole float4s for each loader");
static_assert(BUFFERS == 2 || (STORE_AT == BK && !ASYNC), "one buffer is free only between tiles");
static_assert(UNROLL == BK || STORE_AT == BK,
              "stores within the tile need the number of their step");
static_assert(AHEAD || (BUFFERS == 1 && FRAGMENTS == 1 && !ASYNC), "nothing to prefetch");
static_assert(FRAGMENTS == 1 || UNROLL % 2 == 0, "fragments alternate");
static_assert(!SEPARATE_LOADERS || !ASYNC, "half of the threads would have nothing in registers");
static_assert(!SWIZZLE || PADDING == 0, "one or the other");

struct Place {
    int i, j;
};

// Orders of a thread's multiply-adds: each returns the s-th result. An operand that two consecutive
// results share can stay in the reuse cache of the multiply-add unit. ORDER selects one.

// Row after row.
[[maybe_unused]] __device__ constexpr Place plain(int s)
{
    return {s / TN, s % TN};
}
// Along one row of results, back along the next.
[[maybe_unused]] __device__ constexpr Place serpentine_n(int s)
{
    return {s / TN, s / TN % 2 ? TN - 1 - s % TN : s % TN};
}
// Down one column of results, up the next.
[[maybe_unused]] __device__ constexpr Place serpentine_m(int s)
{
    return {s / TM % 2 ? TM - 1 - s % TM : s % TM, s / TM};
}
// Around each 2 x 2 square, square after square.
[[maybe_unused]] __device__ constexpr Place swirl(int s)
{
    const int square = s / 4, corner = s % 4;
    return {square / (TN / 2) * 2 + corner / 2,
            square % (TN / 2) * 2 + (corner == 1 || corner == 2)};
}

// The lane's row and column in its warp: row after row, or along a Z-order curve, in which the bits
// of row and column alternate.
__device__ __forceinline__ Place lane_place(int lane)
{
    if (!Z_ORDER) {
        return {lane / LANE_COLS, lane % LANE_COLS};
    }
    static_assert(!Z_ORDER || LANE_ROWS == 4, "lanes of 4 x 8");
    return {(lane >> 1 & 1) | (lane >> 2 & 2), (lane & 1) | (lane >> 1 & 2) | (lane >> 2 & 4)};
}

// The column of As that holds row `row` of A at step k of the tile. A warp stores BK / 4 groups of
// rows at a time. The swizzle puts each group in different banks; elements stay in their float4.
__device__ __forceinline__ int swizzled(int row, int k)
{
    return SWIZZLE ? row ^ k / 4 * (128 / BK) % 32 : row;
}

__device__ __forceinline__ void copy_float4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    // Not __restrict__: the compiler would hoist loads of A and B across barriers, to the previous
    // tile.
    NAME(const float *A, const float *B, float *C, int n)
{
    extern __shared__ __align__(16) float shared[];
    float *const As = shared, *const Bs = shared + BUFFERS * BK * A_ROW; // [BUFFERS][BK][row]

    // Blocks run down groups of RASTER rows of tiles; 1 is row after row.
    const int across = n / BN, group = RASTER * across;
    const int block_row = blockIdx.x / group * RASTER + blockIdx.x % group % RASTER;
    const int block_col = blockIdx.x % group / RASTER;

    const int thread = threadIdx.x, warp = thread / 32;
    const Place lane = lane_place(thread % 32);
    // This thread's results are groups of four rows and columns. The next group is LANE_ROWS or
    // LANE_COLS groups away.
    const int row = warp / (BN / WN) * WM + lane.i * 4, col = warp % (BN / WN) * WN + lane.j * 4;

    const bool loads_a = !SEPARATE_LOADERS || thread < LOADERS,
               loads_b = !SEPARATE_LOADERS || thread >= LOADERS;
    const int loader = thread % LOADERS;
    const int a_row = loader / (BK / 4), a_k = loader % (BK / 4) * 4;
    const int b_k = loader / (BN / 4), b_col = loader % (BN / 4) * 4;
    // Offsets in A and B have 32 bits: n * n is below 2^31.
    const int a_from = (block_row * BM + a_row) * n + a_k;
    const int b_from = b_k * n + block_col * BN + b_col;
    int next = 0; // K of the tile to load next
    float a_float4s[A_FLOAT4S][4], b_float4s[ASYNC ? 1 : B_FLOAT4S][4];

    const auto load = [&](int buffer) { // the next tile to registers; with ASYNC B to `buffer`
        if (loads_a) {
#pragma unroll
            for (int q = 0; q < A_FLOAT4S; ++q) {
                copy_float4(a_float4s[q], A + (a_from + q * A_ROWS_LOADED * n + next));
            }
        }
        if (loads_b) {
#pragma unroll
            for (int q = 0; q < B_FLOAT4S; ++q) {
                const float *const from = B + (b_from + (next + q * B_ROWS_LOADED) * n);
                if constexpr (ASYNC) {
                    __pipeline_memcpy_async(
                        &Bs[(buffer * BK + b_k + q * B_ROWS_LOADED) * BN + b_col], from, 16);
                } else {
                    copy_float4(b_float4s[q], from);
                }
            }
        }
        next = min(next + BK, n - BK); // after the last tile, loads it again, unused
    };
    const auto store_one = [&](int buffer, int store) { // one of the STORES to shared memory
        if (store < 4 * A_FLOAT4S) {
            if (loads_a) {
                const int q = store / 4, k = a_k + store % 4;
                As[(buffer * BK + k) * A_ROW + swizzled(a_row + q * A_ROWS_LOADED, a_k)] =
                    a_float4s[q][store % 4];
            }
        } else if (!ASYNC && loads_b) {
            const int q = store - 4 * A_FLOAT4S;
            copy_float4(&Bs[(buffer * BK + b_k + q * B_ROWS_LOADED) * BN + b_col], b_float4s[q]);
        }
    };
    const auto store_all = [&](int buffer) {
#pragma unroll
        for (int store = 0; store < STORES; ++store) {
            store_one(buffer, store);
        }
    };
    const auto publish = [&] { // makes this thread's stores and copies visible to the block
        if constexpr (ASYNC) {
            __pipeline_commit();
            __pipeline_wait_prior(0);
        }
        __syncthreads();
    };

    float a[FRAGMENTS][TM], b[FRAGMENTS][TN], sum[TM][TN] = {};
    const auto load_fragments = [&](int fragment, int buffer, int k) {
#pragma unroll
        for (int i = 0; i < TM; i += 4) {
            copy_float4(&a[fragment][i],
                        &As[(buffer * BK + k) * A_ROW + swizzled(row + i * LANE_ROWS, k)]);
        }
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            copy_float4(&b[fragment][j], &Bs[(buffer * BK + k) * BN + col + j * LANE_COLS]);
        }
    };

    const auto fetch = [&] { // the first tile; without AHEAD, every tile
        load(0);
        store_all(0);
        publish();
    };
    int now = 0;
    const auto go_on = [&] { // from this tile to the next
        if (BUFFERS == 1) {
            __syncthreads();
        }
        now ^= BUFFERS - 1;
        if (STORE_AT == BK) {
            store_all(now);
        }
        publish();
    };
    if (AHEAD) {
        fetch();
    }
    if (FRAGMENTS == 2) {
        load_fragments(0, now, 0);
    }

#pragma unroll 1
    for (int left = n; left > 0; left -= BK) {
        if (!AHEAD) {
            __syncthreads();
            fetch();
        }
#pragma unroll 1
        for (int first = 0; first < BK; first += UNROLL) {
#pragma unroll
            for (int step = 0; step < UNROLL; ++step) {
                const int k = first + step;
                if (AHEAD && k == 0) {
                    load(now ^ 1);
                }
                if (STORE_AT < BK) {
#pragma unroll
                    for (int store = 0; store < STORES; ++store) {
                        if (k == STORE_AT + store * STORE_STEPS / STORES) {
                            store_one(now ^ 1, store);
                        }
                    }
                }
                if (FRAGMENTS == 1) {
                    load_fragments(0, now, k);
                } else if (step + 1 < UNROLL || k + 1 < BK) {
                    load_fragments((step + 1) % 2, now, k + 1);
                } else {
                    go_on();
                    load_fragments(0, now, 0);
                }
#pragma unroll
                for (int s = 0; s < TM * TN; ++s) {
                    const Place at = ORDER(s);
                    sum[at.i][at.j] += a[step % FRAGMENTS][at.i] * b[step % FRAGMENTS][at.j];
                }
            }
        }
        if (AHEAD && FRAGMENTS == 1) {
            go_on();
        }
    }

    float *const c = C + static_cast<size_t>(block_row * BM + row) * n + block_col * BN + col;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const size_t down = i / 4 * 4 * LANE_ROWS + i % 4;
            copy_float4(c + down * n + j * LANE_COLS, &sum[i][j]);
        }
    }
}

static const bool listed = list(TEXT(NAME), [](int n) -> harness::Launch {
    if (n % (RASTER * BM) != 0 || n % BN != 0) {
        throw std::invalid_argument("n must be a multiple of RASTER * BM and of BN");
    }
    constexpr int bytes = SHARED * sizeof(float);
    cudaFuncSetAttribute(NAME, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return {NAME, dim3(n / BM * (n / BN)), dim3(THREADS), bytes};
});
