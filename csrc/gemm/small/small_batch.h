/* Batches of small products. A block computes several matrices at once, or a tile of a large one.
 * It then continues with others: chunks of K stream through a pipeline in shared memory without a
 * pause between matrices, so loads are always in flight. */
#ifndef SGEMM_GEMM_SMALL_BATCH_H
#define SGEMM_GEMM_SMALL_BATCH_H

#include "packed_batch.h"

namespace {

/* ------------------------------------------------------------------ copies */

/* A thread's first matrix, line and unit. It goes on in steps of copy.matrices and copy.lines. */
KERNEL_BODY BatchPlace first_unit(const BatchCopy &copy, unsigned thread)
{
    return BatchPlace(thread, static_cast<unsigned>(copy.lines), static_cast<unsigned>(copy.units));
}

/* Calls visit(shared, global, line) for each unit of a thread: distances from the first matrix of
 * its tile in shared memory and in memory, and its line. The threads visit all lines of some
 * matrices at once, or some lines of one. */
template <class Visit>
KERNEL_BODY void for_each_unit(const BatchCopy &copy, BatchPlace first, int64_t batch_stride,
                               int64_t pitch, int matrices, int lines, const Visit &visit)
{
    int n = first.outer(), line = first.middle();
    if (n >= copy.matrices || line >= lines) {
        return;
    }
    const bool all_lines = copy.matrices > 1;
    const int shared_step = all_lines ? copy.matrices * copy.matrix : copy.lines * copy.line;
    const int64_t global_step = all_lines ? copy.matrices * batch_stride : copy.lines * pitch;
    const int step = all_lines ? copy.matrices : copy.lines, line_step = all_lines ? 0 : step;
    UNROLL(1)
    for (; n < matrices; n += all_lines ? matrices : 1) {
        int shared = n * copy.matrix + line * copy.line;
        int64_t global = n * batch_stride + line * pitch;
        int at_line = line;
        UNROLL(1)
        for (int i = all_lines ? n : line; i < (all_lines ? matrices : lines); i += step) {
            visit(shared, global, at_line);
            shared += shared_step;
            global += global_step;
            at_line += line_step;
        }
    }
}

/* Starts the copy of `matrices` chunks of an operand. */
template <int N>
KERNEL_BODY void begin_copies(const BatchCopy &copy, BatchPlace first, float *to, const Matrix &X,
                              const float *from, int64_t pitch, int matrices, int size, int steps)
{
    const int whole = (steps + 3) / 4 * 4; // zeros behind the end of K
    const int lines = copy.k_major ? size : whole, length = copy.k_major ? whole : size;
    const int unit = first.inner() * N;
    if (unit >= length) {
        return;
    }
    to += first.inner() * copy.unit;
    from += unit;
    // A K-major line is inside K up to this unit; otherwise the first lines are.
    const int lines_inside = !copy.k_major ? steps : unit < steps ? lines : 0;
    for_each_unit(copy, first, X.batch_stride, pitch, matrices, lines,
                  [&](int shared, int64_t global, int line) {
                      begin_copy<N>(to + shared, from + global, line < lines_inside,
                                    X.batch_stride == 0);
                  });
}

/* ------------------------------------------------------------------ the kernel */

/* The matrices or the tile of a task. */
struct BatchTask {
    int64_t matrix, row, col;
    int matrices, rows, cols;

    __device__ __forceinline__ BatchTask(const SmallBatch &batch, unsigned task)
    {
        const SmallBatchPlan &plan = batch.plan;
        const unsigned tiles = static_cast<unsigned>(plan.tiles_down * plan.tiles_across);
        if (tiles == 1) {
            matrix = static_cast<int64_t>(task) * plan.matrices;
            matrices = static_cast<int>(at_most(batch.p.count - matrix, plan.matrices));
            row = col = 0;
            rows = plan.rows;
            cols = plan.cols;
        } else {
            matrix = task / tiles;
            matrices = 1;
            const unsigned tile = task % tiles, across = static_cast<unsigned>(plan.tiles_across);
            row = static_cast<int64_t>(tile / across) * plan.rows;
            col = static_cast<int64_t>(tile % across) * plan.cols;
            rows = static_cast<int>(at_most(batch.p.C.rows - row, plan.rows));
            cols = static_cast<int>(at_most(batch.p.C.cols - col, plan.cols));
        }
    }
};

/* Index i of a thread's T rows (or columns) in its tile, for thread `place` of `places`. Threads
 * have neighbouring rows of a K-major tile, and neighbouring float4s otherwise. */
template <bool K_MAJOR> KERNEL_BODY int tile_index(int i, int place, int places)
{
    return K_MAJOR ? place + i * places : 4 * place + i / 4 * 4 * places + i % 4;
}

/* STEPS steps of K of a thread's T rows of A, or columns of B. */
template <int T, int STEPS, bool K_MAJOR>
KERNEL_BODY void read_steps(float (&to)[STEPS][T], const float *from, int pitch, int places)
{
    if constexpr (K_MAJOR) {
        UNROLL(8)
        for (int i = 0; i < T; ++i) {
            float read[STEPS];
            read_floats<STEPS>(read, from + i * places * pitch);
            UNROLL(4)
            for (int s = 0; s < STEPS; ++s) {
                to[s][i] = read[s];
            }
        }
    } else {
        UNROLL(4)
        for (int s = 0; s < STEPS; ++s) {
            UNROLL(2)
            for (int i = 0; i < T; i += 4) {
                read_floats<4>(&to[s][i], from + s * pitch + i * places);
            }
        }
    }
}

/* sum += A @ B for one chunk. Four steps of one operand are in registers; those of a row of A or a
 * column of B are loaded one after the other, because more would need too many registers. If
 * neither is K-major, all rows and columns of one step are loaded. */
template <int T, bool A_K_MAJOR, bool B_K_MAJOR>
KERNEL_BODY void multiply_chunk(const float *As, const float *Bs, int a_pitch, int b_pitch,
                                int thread_rows, int thread_cols, int depth, float (&sum)[T][T])
{
    UNROLL(1)
    for (int k = 0; k < depth; k += 4) {
        if constexpr (B_K_MAJOR) {
            float a[4][T];
            read_steps<T, 4, A_K_MAJOR>(a, As, a_pitch, thread_rows);
            UNROLL(8)
            for (int j = 0; j < T; ++j) {
                float b[4];
                read_floats<4>(b, Bs + j * thread_cols * b_pitch);
                UNROLL(4)
                for (int s = 0; s < 4; ++s) {
                    UNROLL(8)
                    for (int i = 0; i < T; ++i) {
                        sum[i][j] = multiply_add(a[s][i], b[s], sum[i][j]);
                    }
                }
            }
        } else if constexpr (A_K_MAJOR) {
            float b[4][T];
            read_steps<T, 4, false>(b, Bs, b_pitch, thread_cols);
            UNROLL(8)
            for (int i = 0; i < T; ++i) {
                float a[4];
                read_floats<4>(a, As + i * thread_rows * a_pitch);
                UNROLL(4)
                for (int s = 0; s < 4; ++s) {
                    UNROLL(8)
                    for (int j = 0; j < T; ++j) {
                        sum[i][j] = multiply_add(a[s], b[s][j], sum[i][j]);
                    }
                }
            }
        } else {
            UNROLL(4)
            for (int s = 0; s < 4; ++s) {
                float a[1][T], b[1][T];
                read_steps<T, 1, false>(a, As + s * a_pitch, a_pitch, thread_rows);
                read_steps<T, 1, false>(b, Bs + s * b_pitch, b_pitch, thread_cols);
                UNROLL(8)
                for (int i = 0; i < T; ++i) {
                    UNROLL(8)
                    for (int j = 0; j < T; ++j) {
                        sum[i][j] = multiply_add(a[0][i], b[0][j], sum[i][j]);
                    }
                }
            }
        }
        As += A_K_MAJOR ? 4 : 4 * a_pitch;
        Bs += B_K_MAJOR ? 4 : 4 * b_pitch;
    }
}

/* Stores a thread's results from registers. */
template <int T, bool A_K_MAJOR, bool B_K_MAJOR>
KERNEL_BODY void store_results(const SmallBatch &batch, const BatchTask &task, float *C, int r,
                               int c, const float (&sum)[T][T])
{
    const SmallBatchPlan &plan = batch.plan;
    UNROLL(8)
    for (int i = 0; i < T; ++i) {
        const int row = tile_index<A_K_MAJOR>(i, r, plan.thread_rows);
        if (row >= task.rows) {
            continue;
        }
        float *const of_row = C + row * batch.p.C.row_stride;
        if (!B_K_MAJOR && plan.C.float4) {
            UNROLL(2)
            for (int j = 0; j < T; j += 4) {
                const int col = tile_index<B_K_MAJOR>(j, c, plan.thread_cols);
                if (col < task.cols) {
                    store_floats<4>(batch.p, of_row + col, &sum[i][j]);
                }
            }
        } else {
            UNROLL(8)
            for (int j = 0; j < T; ++j) {
                const int col = tile_index<B_K_MAJOR>(j, c, plan.thread_cols);
                if (col < task.cols) {
                    store_floats<1>(batch.p, of_row + col, &sum[i][j]);
                }
            }
        }
    }
}

/* Stores the results that a block has collected in shared memory. */
template <int N>
KERNEL_BODY void store_collected(const SmallBatch &batch, BatchPlace first, const BatchTask &task,
                                 float *C, const float *from)
{
    const BatchCopy &copy = batch.plan.C;
    const int col = first.inner() * N;
    if (col >= task.cols) {
        return;
    }
    for_each_unit(copy, first, batch.p.C.batch_stride, batch.p.C.row_stride, task.matrices,
                  task.rows, [&](int shared, int64_t global, int) {
                      float sum[N];
                      read_floats<N>(sum, from + shared + col);
                      store_floats<N>(batch.p, C + global + col, sum);
                  });
}

template <int T, bool A_K_MAJOR, bool B_K_MAJOR>
__global__ void __launch_bounds__(SMALL_BATCH_THREADS, T == 8 ? 2 : 3)
    small_batch(const __grid_constant__ SmallBatch batch)
{
    constexpr int stages = SMALL_BATCH_STAGES;
    const Sgemm &p = batch.p;
    const SmallBatchPlan &plan = batch.plan;
    float *const shared = reinterpret_cast<float *>(dynamic_shared<Floats<4>>().value);
    const int a_pitch = plan.A.line, b_pitch = plan.B.line;
    const int stage_floats = (plan.A.bytes + plan.B.bytes) / 4;
    // Unpacked at each use, so that few registers are in use during the product.
    BatchPlace a_unit = first_unit(plan.A, threadIdx.x), b_unit = first_unit(plan.B, threadIdx.x);
    BatchPlace place(threadIdx.x, static_cast<unsigned>(plan.thread_rows),
                     static_cast<unsigned>(plan.thread_cols));

    unsigned loading = blockIdx.x; // the task whose copy begins next
    int64_t loading_k = 0;
    int to_stage = 0;
    const auto begin_next = [&] {
        if (loading < plan.tasks) {
            const BatchTask task(batch, loading);
            const int steps = static_cast<int>(at_most(p.A.cols - loading_k, plan.depth));
            float *const As = shared + to_stage * stage_floats, *const Bs = As + plan.A.bytes / 4;
            const float *const A = p.A.data + task.matrix * p.A.batch_stride +
                                   task.row * p.A.row_stride + loading_k * p.A.col_stride;
            const float *const B = p.B.data + task.matrix * p.B.batch_stride +
                                   loading_k * p.B.row_stride + task.col * p.B.col_stride;
            const int64_t a_line = plan.A.k_major ? p.A.row_stride : p.A.col_stride;
            const int64_t b_line = plan.B.k_major ? p.B.col_stride : p.B.row_stride;
            recompute_from(a_unit.packed);
            recompute_from(b_unit.packed);
            if (plan.A.float4) {
                begin_copies<4>(plan.A, a_unit, As, p.A, A, a_line, task.matrices, task.rows,
                                steps);
            } else {
                begin_copies<1>(plan.A, a_unit, As, p.A, A, a_line, task.matrices, task.rows,
                                steps);
            }
            if (plan.B.float4) {
                begin_copies<4>(plan.B, b_unit, Bs, p.B, B, b_line, task.matrices, task.cols,
                                steps);
            } else {
                begin_copies<1>(plan.B, b_unit, Bs, p.B, B, b_line, task.matrices, task.cols,
                                steps);
            }
            loading_k += plan.depth;
            if (loading_k >= p.A.cols) {
                loading_k = 0;
                loading += static_cast<unsigned>(plan.blocks);
            }
        }
        end_group();
        to_stage = to_stage + 1 == stages ? 0 : to_stage + 1;
    };
    UNROLL(1)
    for (int s = 0; s < stages - 1; ++s) {
        begin_next();
    }

    int stage = 0;
    UNROLL(1)
    for (unsigned number = blockIdx.x; number < plan.tasks;
         number += static_cast<unsigned>(plan.blocks)) {
        float sum[T][T] = {};
        int64_t k = 0;
        do {
            wait_for_groups<stages - 2>();
            __syncthreads(); // the chunk is complete, and all threads have read the one before
            begin_next();
            const int steps = static_cast<int>(at_most(p.A.cols - k, plan.depth));
            recompute_from(place.packed);
            const int n =
                place.outer() < plan.matrices ? place.outer() : 0; // any, for idle threads
            const float *const As = shared + stage * stage_floats + n * plan.A.matrix +
                                    place.middle() * (A_K_MAJOR ? a_pitch : 4);
            const float *const Bs = shared + stage * stage_floats + plan.A.bytes / 4 +
                                    n * plan.B.matrix + place.inner() * (B_K_MAJOR ? b_pitch : 4);
            multiply_chunk<T, A_K_MAJOR, B_K_MAJOR>(As, Bs, a_pitch, b_pitch, plan.thread_rows,
                                                    plan.thread_cols, steps, sum);
            stage = stage + 1 == stages ? 0 : stage + 1;
            k += plan.depth;
        } while (k < p.A.cols);

        recompute_from(place.packed);
        const int n = place.outer(), r = place.middle(), c = place.inner();
        const BatchTask task(batch, number);
        float *const C =
            p.C.data + task.matrix * p.C.batch_stride + task.row * p.C.row_stride + task.col;
        if constexpr (T == 4) {
            float *const Cs = shared + stages * stage_floats;
            if (n < plan.matrices) {
                UNROLL(4)
                for (int i = 0; i < T; ++i) {
                    float *const of_row =
                        Cs + n * plan.C.matrix +
                        tile_index<A_K_MAJOR>(i, r, plan.thread_rows) * plan.C.line;
                    if constexpr (B_K_MAJOR) {
                        UNROLL(4)
                        for (int j = 0; j < T; ++j) {
                            of_row[c + j * plan.thread_cols] = sum[i][j];
                        }
                    } else {
                        *reinterpret_cast<float4 *>(of_row + 4 * c) =
                            make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
                    }
                }
            }
            __syncthreads();
            const BatchPlace c_unit = first_unit(plan.C, threadIdx.x);
            if (plan.C.float4) {
                store_collected<4>(batch, c_unit, task, C, Cs);
            } else {
                store_collected<1>(batch, c_unit, task, C, Cs);
            }
        } else if (n < task.matrices) {
            store_results<T, A_K_MAJOR, B_K_MAJOR>(batch, task, C + n * p.C.batch_stride, r, c,
                                                   sum);
        }
    }
}

template <int T, bool A_K_MAJOR, bool B_K_MAJOR>
Status launch_small_batch_of(const SmallBatch &batch, const Launch *where)
{
    KernelSpec spec = {};
    spec.symbol = "small_batch";
    spec.block_tile[0] = batch.plan.rows;
    spec.block_tile[1] = batch.plan.cols;
    spec.block_tile[2] = batch.plan.depth;
    spec.thread_tile[0] = spec.thread_tile[1] = T;
    spec.threads[0] = batch.plan.threads;
    spec.threads[1] = 1;
    spec.dynamic_bytes = batch.plan.shared_bytes;
    spec.cluster = 1;
    return launch_blocks(small_batch<T, A_K_MAJOR, B_K_MAJOR>, spec, batch.plan.blocks, batch,
                         where);
}

/* With 8 x 8 results, only for a B that is not K-major: others are faster with tiles. */
inline Status launch_small_batch(const Sgemm &p, const PlanDevice &device, const Launch *where)
{
    const PlanShape shape = plan_shape(&p);
    const SmallBatch batch = {p, small_batch_plan(&shape, &device)};
    if (batch.plan.packed) {
        return launch_packed_batch(batch, where);
    }
    const bool eight = batch.plan.thread_tile == 8, a = shape.A.k_major, b = shape.B.k_major;
    const auto launch =
        eight ? (a ? launch_small_batch_of<8, true, false> : launch_small_batch_of<8, false, false>)
        : a   ? (b ? launch_small_batch_of<4, true, true> : launch_small_batch_of<4, true, false>)
            : (b ? launch_small_batch_of<4, false, true> : launch_small_batch_of<4, false, false>);
    return launch(batch, where);
}

} // namespace

#endif
