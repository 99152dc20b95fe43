// The rung async with tiles that come by bulk tensor copies (TMA): one thread asks for a whole
// tile, and the copy's own unit finds the addresses. Compiled and linked as tile.cu is; A_STEPS is
// explained in benchmarks/_questions.py.
#include "rung.h"

#include <cstdio>
#include <cstdlib>
#include <cuda.h>

namespace {

// The pipeline of 09_async.cu but for one thing: a stage is full when all bytes are there that one
// thread has asked for. The others do not arrive there, so a second barrier tells when all have
// read a stage.
struct BulkPipeline : Pipeline<T::stages> {
    Barrier empty[T::stages];

    __device__ __forceinline__ void begin(int thread)
    {
        if (thread < T::stages) {
            barrier_begin(full + thread, 1);
            barrier_begin(empty + thread, T::threads);
            asm volatile("fence.mbarrier_init.release.cluster;"); // for the copies' unit to see
        }
        __syncthreads();
    }

    // This thread has read what it needs of the tile.
    __device__ __forceinline__ void emptied(int tile)
    {
        asm volatile(
            "mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(empty + tile % T::stages))
            : "memory");
    }

    // Until all have read what was in the tile's stage before; on the first round it is empty.
    __device__ __forceinline__ void wait_until_empty(int tile)
    {
        barrier_wait(empty + tile % T::stages, tile / T::stages % 2 ^ 1);
    }

    // The tile's stage is full once so many bytes have come. Called by the thread that asks for
    // them, before it does.
    __device__ __forceinline__ void expect(int tile, unsigned bytes)
    {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(
                         shared_address(full + tile % T::stages)),
                     "r"(bytes)
                     : "memory");
    }

    // Begins to copy the box of a matrix whose first element is X(row, col).
    __device__ __forceinline__ void bring(int tile, void *to, const CUtensorMap &X, int row,
                                          int col)
    {
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                     "l"(&X), "r"(col), "r"(row), "r"(shared_address(full + tile % T::stages))
                     : "memory");
    }
};

// A copy moves rows as they are, so A's tile stays [row][k]. A row is 128 bytes, all banks of
// shared memory, and the 8 rows that a warp reads at one k would meet in the same four. The copy
// can place quad q of row r at q ^ r % 8 (the 128-byte swizzle), where they meet no longer; that
// goes by the address, and wants tiles that begin at multiples of 1,024 bytes.
struct Shared {
    float As[T::stages][T::BM][T::BK];
    float Bs[T::stages][T::BK][T::BN];
    BulkPipeline pipeline;
};
static_assert(T::BK * sizeof(float) == 128 && T::lanes_down == 8, "as the swizzle has it");

constexpr int ahead = 2; // tiles whose copies are under way
constexpr unsigned tile_bytes = (T::BM * T::BK + T::BK * T::BN) * sizeof(float);

// A thread's values of A: A_STEPS steps of its TM rows, each by one load, and of B: one step.
typedef float A_values[T::TM][A_STEPS];
typedef float B_values[T::TN];

// Row i of the thread's rows; `from` is where its first row begins, whose number is lane_row modulo
// the 8 of the swizzle, as are those of all others.
__device__ __forceinline__ void load_row(A_values &a, int i, const float *from, int lane_row, int k)
{
    from += i * T::lanes_down * T::BK + (k / 4 ^ lane_row) * 4 + k % 4;
    if constexpr (A_STEPS == 4) {
        read_quad(a[i], from);
    } else {
        static_assert(A_STEPS == 2 || A_STEPS == 4, "8 bytes or 16");
        const float2 pair = *reinterpret_cast<const float2 *>(from);
        a[i][0] = pair.x;
        a[i][1] = pair.y;
    }
}

__device__ __forceinline__ void load_b(B_values &b, const float *from)
{
    for (int j = 0; j < T::TN; j += 4) {
        read_quad(b + j, from + ThreadTile<T>::right(j));
    }
}

// Row i of the results, in the order of Fragments::multiply.
__device__ __forceinline__ void multiply(float (&sum)[T::TM][T::TN], int i, const A_values &a,
                                         int step, const B_values &b)
{
    for (int n = 0; n < T::TN; ++n) {
        const int j = i % 2 ? T::TN - 1 - n : n;
        sum[i][j] += a[i][step] * b[j];
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(T::threads)
    NAME(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
         const Sgemm p)
{
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared &shared = *reinterpret_cast<Shared *>(shared_bytes);
    BulkPipeline &pipeline = shared.pipeline;
    const int thread = threadIdx.x;
    pipeline.begin(thread);

    const Origin tile = tile_origin(p.C, T::BM, T::BN);
    const int tiles = static_cast<int>(p.A.cols) / T::BK;
    const auto bring = [&](int t) {
        const int stage = t % T::stages;
        pipeline.expect(t, tile_bytes);
        pipeline.bring(t, shared.As[stage], A, static_cast<int>(tile.row), t * T::BK);
        pipeline.bring(t, shared.Bs[stage], B, t * T::BK, static_cast<int>(tile.col));
    };
    if (thread == 0) {
        for (int t = 0; t < ahead && t < tiles; ++t) {
            bring(t);
        }
    }

    // The thread's rows are lanes_down apart, not quads of neighbours as in `async`: 8 rows that a
    // warp reads at once must differ modulo 8.
    const int lane_row = thread % 32 / T::lanes_across;
    const int row = thread / 32 / T::warps_across * T::WM + lane_row,
              col = ThreadTile<T>(thread).col;

    constexpr int cut = 2; // the loop is cut in a step after so many rows, as in block_product
    float sum[T::TM][T::TN] = {};
    A_values a = {};
    B_values even, odd = {};
    const float *As = &shared.As[0][row][0], *Bs = &shared.Bs[0][0][col];
    pipeline.wait(0);
    for (int i = 0; i < cut; ++i) {
        load_row(a, i, As, lane_row, 0);
    }
    load_b(even, Bs);

    int k = 0;
    // A_STEPS steps, from the cut to the next one. `advance` moves k, As and Bs to what follows.
    const auto turn = [&](auto &&advance) {
        UNROLL(A_STEPS / 2)
        for (int step = 0; step < A_STEPS; step += 2) {
            for (int i = cut; i < T::TM; ++i) {
                multiply(sum, i, a, (step + A_STEPS - 1) % A_STEPS, odd);
                if (step == 0) {
                    load_row(a, i, As, lane_row, k);
                }
            }
            load_b(odd, Bs + T::BN);
            for (int i = 0; i < T::TM; ++i) {
                multiply(sum, i, a, step, even);
            }
            Bs += 2 * T::BN;
            const bool last = step + 2 == A_STEPS;
            if (last) {
                advance();
            }
            load_b(even, Bs);
            for (int i = 0; i < cut; ++i) {
                multiply(sum, i, a, step + 1, odd);
                if (last) {
                    load_row(a, i, As, lane_row, k);
                }
            }
        }
    };
    UNROLL(1)
    for (int t = 0; t < tiles; ++t) {
        if (thread == 0 && t + ahead < tiles) {
            pipeline.wait_until_empty(t + ahead);
            bring(t + ahead);
        }
        UNROLL(1)
        while (k < T::BK - A_STEPS) {
            turn([&] { k += A_STEPS; });
        }
        turn([&] {
            if (t + 1 < tiles) {
                pipeline.wait(t + 1);
            }
            pipeline.emptied(t);
            k = 0;
            As = &shared.As[(t + 1) % T::stages][row][0];
            Bs = &shared.Bs[(t + 1) % T::stages][0][col];
        });
    }
    for (int i = cut; i < T::TM; ++i) {
        multiply(sum, i, a, A_STEPS - 1, odd);
    }

    UNROLL(T::TM)
    for (int i = 0; i < T::TM; ++i) {
        const Results C = results(p.C, tile.row + row + i * T::lanes_down, tile.col + col);
        UNROLL(T::TN / 4)
        for (int j = 0; j < T::TN; j += 4) {
            store_quad(p, C, 0, ThreadTile<T>::right(j), sum[i] + j);
        }
    }
}

// The driver's function that encodes tensor maps. Asked for, so that nothing links the driver.
static decltype(&cuTensorMapEncodeTiled) encoder()
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
        fprintf(stderr, "tensor maps need a driver for CUDA 12.0 or newer\n");
        exit(1);
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

// How boxes of a matrix are copied, rows x cols.
static CUtensorMap tensor_map(const Matrix &X, unsigned rows, unsigned cols,
                              CUtensorMapSwizzle swizzle)
{
    static const auto encode = encoder();
    const cuuint64_t extent[] = {static_cast<cuuint64_t>(X.cols), static_cast<cuuint64_t>(X.rows)};
    const cuuint64_t stride[] = {X.row_stride * sizeof(float)}; // of rows; neighbours lie along one
    const cuuint32_t box[] = {cols, rows}, every[] = {1, 1};
    CUtensorMap map;
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, X.data, extent, stride, box, every,
               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "cuTensorMapEncodeTiled: error %d\n", result);
        exit(1);
    }
    return map;
}

// A map holds an operand's address, so each launch makes its own.
static void start(const harness::Launch &launch, const float *A, const float *B, float *C, int n)
{
    const Sgemm p = product(A, B, C, n);
    NAME<<<launch.grid, launch.block, launch.shared>>>(
        tensor_map(p.A, T::BM, T::BK, CU_TENSOR_MAP_SWIZZLE_128B),
        tensor_map(p.B, T::BK, T::BN, CU_TENSOR_MAP_SWIZZLE_NONE), p);
}

static const bool listed =
    list(TEXT(NAME), [](int n) { return of_tiles(NAME, sizeof(Shared), start, n); });
