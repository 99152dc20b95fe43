/* Batches of matrices without gaps, of sizes that are not multiples of four: the batch is one
 * array, so float4s cross rows and matrices. A block copies float4s of several whole matrices, or
 * of some rows of a high one, and its threads read single floats of them from shared memory. If
 * there are few results, neighbouring threads divide K. */
#ifndef SGEMM_GEMM_PACKED_BATCH_H
#define SGEMM_GEMM_PACKED_BATCH_H

#include "small_batch_copy.h"

namespace {

/* The matrices of a task, or the rows of one. */
struct PackedTask {
    int64_t first;
    int matrices, row, rows;

    __device__ __forceinline__ PackedTask(const SmallBatch &batch, unsigned task)
    {
        const SmallBatchPlan &plan = batch.plan;
        if (plan.tiles_down == 1) {
            first = static_cast<int64_t>(task) * plan.matrices;
            matrices = static_cast<int>(at_most(batch.p.count - first, plan.matrices));
            row = 0;
            rows = plan.rows;
        } else {
            const unsigned tiles = static_cast<unsigned>(plan.tiles_down);
            first = task / tiles;
            matrices = 1;
            row = static_cast<int>(task % tiles) * plan.rows;
            rows = static_cast<int>(at_most(batch.p.C.rows - row, plan.rows));
        }
    }
};

/* A block's part of an operand, which is one array. */
struct PackedPart {
    float *data;            // of the part
    int floats;             // of the part
    int skew;               // floats from a 16-byte boundary to the part
    int64_t before, behind; // floats of the array before the part, and from its begin on
    bool shared_by_all;     // by all products of the batch

    /* The task's rows of all its matrices, or these matrices as a whole. */
    __device__ __forceinline__ PackedPart(const Matrix &X, const PackedTask &task, int64_t count,
                                          bool by_rows)
    {
        const int64_t cols = X.cols, size = X.rows * cols; // a high matrix may exceed an int
        const int64_t skipped = by_rows ? task.row * cols : 0;
        shared_by_all = X.batch_stride == 0;
        before = task.first * X.batch_stride + skipped;
        behind = (shared_by_all ? size : (count - task.first) * size) - skipped;
        floats = static_cast<int>((shared_by_all ? 1 : task.matrices) *
                                  (by_rows ? task.rows * cols : size));
        data = X.data + before;
        skew = static_cast<int>(reinterpret_cast<uintptr_t>(data) / sizeof(float) % 4);
    }

    /* Calls of_four(i) for this thread's whole float4s, which begin at element i, and of_one(i) for
     * elements of float4s at the ends of the array. */
    template <class OfFour, class OfOne>
    __device__ __forceinline__ void for_each(bool whole, int threads, const OfFour &of_four,
                                             const OfOne &of_one) const
    {
        UNROLL(1)
        for (int i = 4 * static_cast<int>(threadIdx.x) - skew; i < floats; i += 4 * threads) {
            if (whole ? i >= -before && i + 4 <= behind : i >= 0 && i + 4 <= floats) {
                of_four(i);
            } else {
                UNROLL(1)
                for (int j = i < 0 ? 0 : i; j < i + 4 && j < floats; ++j) {
                    of_one(j);
                }
            }
        }
    }

    /* Starts the copy of the part, from to + skew on. */
    __device__ __forceinline__ void begin_copies(const BatchCopy &copy, float *to,
                                                 int threads) const
    {
        const unsigned piece = static_cast<unsigned>(copy.piece);
        const auto place = [&](int i) {
            return to + skew + i + (piece == 0 ? 0u : static_cast<unsigned>(i) / piece * 4);
        };
        for_each(
            true, threads, [&](int i) { begin_copy<4>(place(i), data + i, true, shared_by_all); },
            [&](int i) { begin_copy<1>(place(i), data + i, true, shared_by_all); });
    }
};

__global__ void __launch_bounds__(SMALL_BATCH_THREADS, 3)
    packed_batch(const __grid_constant__ SmallBatch batch)
{
    constexpr int T = 4, stages = SMALL_BATCH_STAGES;
    const Sgemm &p = batch.p;
    const SmallBatchPlan &plan = batch.plan;
    float *const shared = reinterpret_cast<float *>(dynamic_shared<Floats<4>>().value);
    const int stage_floats = (plan.A.bytes + plan.B.bytes) / 4;
    const int N = static_cast<int>(p.C.cols), K = static_cast<int>(p.A.cols);
    const unsigned slices = static_cast<unsigned>(plan.slices); // of K: a power of two
    const int slice = static_cast<int>(threadIdx.x & (slices - 1));
    const BatchPlace place(threadIdx.x / slices, static_cast<unsigned>(plan.thread_rows),
                           static_cast<unsigned>(plan.thread_cols));
    const int n = place.outer() < plan.matrices ? place.outer() : 0; // any, for idle threads

    const auto begin_task = [&](unsigned number, int stage) {
        if (number < plan.tasks) {
            float *const to = shared + stage * stage_floats;
            const PackedTask task(batch, number);
            PackedPart(p.A, task, p.count, plan.A.k_major).begin_copies(plan.A, to, plan.threads);
            PackedPart(p.B, task, p.count, false)
                .begin_copies(plan.B, to + plan.A.bytes / 4, plan.threads);
        }
        end_group();
    };
    const unsigned blocks = static_cast<unsigned>(plan.blocks);
    UNROLL(1)
    for (int s = 0; s < stages - 1; ++s) {
        begin_task(blockIdx.x + static_cast<unsigned>(s) * blocks, s);
    }
    int stage = 0;
    UNROLL(1)
    for (unsigned number = blockIdx.x; number < plan.tasks; number += blocks) {
        wait_for_groups<stages - 2>();
        __syncthreads(); // the matrices are there, and all threads have read the ones before
        begin_task(number + (stages - 1) * blocks, stage == 0 ? stages - 1 : stage - 1);
        const PackedTask task(batch, number);
        const PackedPart of_A(p.A, task, p.count, plan.A.k_major), of_B(p.B, task, p.count, false);
        const int in_A = stage * stage_floats + of_A.skew +
                         (p.A.batch_stride == 0 ? 0 : n * plan.A.matrix) +
                         (plan.A.k_major ? 0 : task.row);
        const int in_B = stage * stage_floats + plan.A.bytes / 4 + of_B.skew +
                         (p.B.batch_stride == 0 ? 0 : n * plan.B.matrix);
        const int a_row = plan.A.k_major ? plan.A.line : 1, a_k = plan.A.k_major ? 1 : plan.A.line;
        const int b_col = plan.B.k_major ? plan.B.line : 1, b_k = plan.B.k_major ? 1 : plan.B.line;
        const float *a_from[T], *b_from[T];
        UNROLL(4)
        for (int i = 0; i < T; ++i) { // a row or column outside reads the last one
            const int row = place.middle() + i * plan.thread_rows;
            const int col = place.inner() + i * plan.thread_cols;
            a_from[i] =
                shared + in_A + (row < task.rows ? row : task.rows - 1) * a_row + slice * a_k;
            b_from[i] = shared + in_B + (col < N ? col : N - 1) * b_col + slice * b_k;
        }
        float sum[T][T] = {};
        const int a_step = plan.slices * a_k, b_step = plan.slices * b_k;
        UNROLL(2)
        for (int k = slice; k < K; k += plan.slices) {
            float a[T], b[T];
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                a[i] = *a_from[i];
                b[i] = *b_from[i];
                a_from[i] += a_step;
                b_from[i] += b_step;
            }
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                UNROLL(4)
                for (int j = 0; j < T; ++j) {
                    sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
                }
            }
        }
        UNROLL(1)
        for (int other = plan.slices / 2; other > 0; other /= 2) {
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                UNROLL(4)
                for (int j = 0; j < T; ++j) {
                    sum[i][j] += __shfl_xor_sync(0xffffffffu, sum[i][j], other);
                }
            }
        }

        // The results, as in memory.
        const PackedPart of_C(p.C, task, p.count, true);
        float *const Cs = shared + stages * stage_floats + of_C.skew;
        if (slice == 0 && place.outer() < task.matrices) {
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                const int row = place.middle() + i * plan.thread_rows;
                UNROLL(4)
                for (int j = 0; j < T; ++j) {
                    const int col = place.inner() + j * plan.thread_cols;
                    if (row < task.rows && col < N) {
                        Cs[(n * task.rows + row) * N + col] = sum[i][j];
                    }
                }
            }
        }
        __syncthreads();
        of_C.for_each(
            false, plan.threads,
            [&](int i) {
                float results[4];
                read_floats<4>(results, Cs + i);
                store_floats<4>(p, of_C.data + i, results);
            },
            [&](int i) { store_floats<1>(p, of_C.data + i, Cs + i); });
        stage = stage + 1 == stages ? 0 : stage + 1;
    }
}

inline Status launch_packed_batch(const SmallBatch &batch, const Launch *where)
{
    KernelSpec spec = {};
    spec.symbol = "packed_batch";
    spec.block_tile[0] = batch.plan.rows;
    spec.block_tile[1] = batch.plan.cols;
    spec.block_tile[2] = batch.plan.depth;
    spec.thread_tile[0] = spec.thread_tile[1] = 4;
    spec.threads[0] = batch.plan.threads;
    spec.threads[1] = 1;
    spec.dynamic_bytes = batch.plan.shared_bytes;
    return launch_blocks(packed_batch, spec, batch.plan.blocks, batch, where);
}

} // namespace

#endif
