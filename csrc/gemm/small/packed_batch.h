/* Batches of matrices without gaps, of sizes that are not multiples of four: the batch is one
 * array, so float4s cross rows and matrices. A block copies float4s of several whole matrices, and
 * its threads read single floats of them from shared memory. */
#ifndef SGEMM_GEMM_PACKED_BATCH_H
#define SGEMM_GEMM_PACKED_BATCH_H

#include "small_batch_copy.h"

namespace {

/* A block's part of an operand, which is one array. */
struct PackedPart {
    float *data;            // of the part
    int floats;             // of the part
    int skew;               // floats from a 16-byte boundary to the part
    int64_t before, behind; // floats of the array before the part, and from its begin on
    bool shared_by_all;     // by all products of the batch

    __device__ __forceinline__ PackedPart(const Matrix &X, int64_t first, int64_t count,
                                          int matrices)
    {
        const int size = static_cast<int>(X.rows * X.cols);
        shared_by_all = X.batch_stride == 0;
        before = first * X.batch_stride;
        behind = shared_by_all ? size : (count - first) * size;
        floats = shared_by_all ? size : matrices * size;
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
    const int M = static_cast<int>(p.C.rows), N = static_cast<int>(p.C.cols),
              K = static_cast<int>(p.A.cols);
    const BatchPlace place(threadIdx.x, static_cast<unsigned>(plan.thread_rows),
                           static_cast<unsigned>(plan.thread_cols));
    const int n = place.outer() < plan.matrices ? place.outer() : 0; // any, for idle threads

    const auto first_of = [&](unsigned task) { return static_cast<int64_t>(task) * plan.matrices; };
    const auto matrices_of = [&](unsigned task) {
        return static_cast<int>(at_most(p.count - first_of(task), plan.matrices));
    };
    const auto begin_task = [&](unsigned task, int stage) {
        if (task < plan.tasks) {
            float *const to = shared + stage * stage_floats;
            const int64_t first = first_of(task);
            const int matrices = matrices_of(task);
            PackedPart(p.A, first, p.count, matrices).begin_copies(plan.A, to, plan.threads);
            PackedPart(p.B, first, p.count, matrices)
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
    for (unsigned task = blockIdx.x; task < plan.tasks; task += blocks) {
        wait_for_groups<stages - 2>();
        __syncthreads(); // the matrices are there, and all threads have read the ones before
        begin_task(task + (stages - 1) * blocks, stage == 0 ? stages - 1 : stage - 1);
        const int64_t first = first_of(task);
        const int matrices = matrices_of(task);
        const PackedPart of_A(p.A, first, p.count, matrices), of_B(p.B, first, p.count, matrices);
        const int in_A =
            stage * stage_floats + of_A.skew + (p.A.batch_stride == 0 ? 0 : n * plan.A.matrix);
        const int in_B = stage * stage_floats + plan.A.bytes / 4 + of_B.skew +
                         (p.B.batch_stride == 0 ? 0 : n * plan.B.matrix);
        const int a_row = plan.A.k_major ? plan.A.line : 1, a_k = plan.A.k_major ? 1 : plan.A.line;
        const int b_col = plan.B.k_major ? plan.B.line : 1, b_k = plan.B.k_major ? 1 : plan.B.line;
        const float *a_from[T], *b_from[T];
        UNROLL(4)
        for (int i = 0; i < T; ++i) { // a row or column outside reads the last one
            const int row = place.middle() + i * plan.thread_rows;
            const int col = place.inner() + i * plan.thread_cols;
            a_from[i] = shared + in_A + (row < M ? row : M - 1) * a_row;
            b_from[i] = shared + in_B + (col < N ? col : N - 1) * b_col;
        }
        float sum[T][T] = {};
        UNROLL(2)
        for (int k = 0; k < K; ++k) {
            float a[T], b[T];
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                a[i] = *a_from[i];
                b[i] = *b_from[i];
                a_from[i] += a_k;
                b_from[i] += b_k;
            }
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                UNROLL(4)
                for (int j = 0; j < T; ++j) {
                    sum[i][j] = multiply_add(a[i], b[j], sum[i][j]);
                }
            }
        }

        // The results, as in memory.
        const PackedPart of_C(p.C, first, p.count, matrices);
        float *const Cs = shared + stages * stage_floats + of_C.skew;
        if (place.outer() < matrices) {
            UNROLL(4)
            for (int i = 0; i < T; ++i) {
                const int row = place.middle() + i * plan.thread_rows;
                UNROLL(4)
                for (int j = 0; j < T; ++j) {
                    const int col = place.inner() + j * plan.thread_cols;
                    if (row < M && col < N) {
                        Cs[(n * M + row) * N + col] = sum[i][j];
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
