#include "small_batch_plan.h"

#include <limits.h>

static int64_t ceil_div(int64_t count, int64_t by)
{
    return (count + by - 1) / by;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t round_up(int64_t count, int64_t to)
{
    return ceil_div(count, to) * to;
}

/* Whether all lines of `length` floats are float4s on 16-byte boundaries. */
static bool in_float4s(const Matrix *X, int64_t length, int64_t pitch, int64_t count)
{
    return length % 4 == 0 && (uintptr_t)X->data % 16 == 0 && pitch % 4 == 0 &&
           (count == 1 || X->batch_stride % 4 == 0);
}

/* Divides the copy of `lines` lines of `length` floats of each matrix among the threads. */
static void divide(BatchCopy *copy, int lines, int length, int threads)
{
    copy->units = copy->float4 ? length / 4 : length;
    const int at_once = threads / copy->units;
    copy->matrices = at_once > lines ? at_once / lines : 1;
    copy->lines = at_once > lines ? lines : at_once;
}

/* Places `lines` lines of `length` floats of each matrix in shared memory, one behind the other. An
 * odd number of float4s from line to line, if they are read at once, and from matrix to matrix
 * avoids bank conflicts. */
static void place(BatchCopy *copy, int lines, int length, bool read_at_once, int matrices)
{
    const int pitch = (int)round_up(length, 4);
    copy->unit = copy->float4 ? 4 : 1;
    copy->line = read_at_once && pitch % 8 == 0 ? pitch + 4 : pitch;
    copy->matrix = lines * copy->line;
    copy->matrix += copy->matrix % 8 == 0 ? 4 : 0;
    copy->bytes = matrices * copy->matrix * 4;
}

/* The copy of K chunks of an operand: `size` rows of A, or columns of B, padded to `padded`. */
static BatchCopy operand_copy(bool k_major_in_memory, bool k_major, bool float4, int size,
                              int padded, const SmallBatchPlan *plan)
{
    BatchCopy copy = {.float4 = float4, .k_major = k_major_in_memory};
    if (k_major_in_memory) {
        divide(&copy, size, plan->depth, plan->threads);
    } else {
        divide(&copy, plan->depth, size, plan->threads);
    }
    if (k_major) {
        place(&copy, padded, plan->depth, true, plan->matrices);
    } else {
        place(&copy, plan->depth, padded, false, plan->matrices);
    }
    if (k_major && !k_major_in_memory) { /* transposed, float by float */
        copy.unit = copy.line;
        copy.line = 1;
    }
    return copy;
}

typedef struct {
    int thread_tile, threads, stage_bytes;
} Tuning;

static SmallBatchPlan plan_with(const Sgemm *p, SmallBatchDevice device, Tuning tuning)
{
    const int64_t M = p->C.rows, N = p->C.cols, K = p->A.cols;
    const int T = tuning.thread_tile, places = tuning.threads;
    SmallBatchPlan plan = {.thread_tile = T};

    /* The tiles of a matrix, of equal size up to rounding. */
    plan.tiles_down = (int)ceil_div(M, SMALL_BATCH_TILE);
    plan.tiles_across = (int)ceil_div(N, SMALL_BATCH_TILE);
    do {
        plan.thread_rows = (int)ceil_div(ceil_div(M, plan.tiles_down), T);
        plan.thread_cols = (int)ceil_div(ceil_div(N, plan.tiles_across), T);
        const bool wide = plan.thread_cols > plan.thread_rows;
        plan.tiles_across += wide;
        plan.tiles_down += !wide;
    } while (plan.thread_rows * plan.thread_cols > SMALL_BATCH_THREADS);
    const int of_matrix = plan.thread_rows * plan.thread_cols;
    const int padded_rows = plan.thread_rows * T, padded_cols = plan.thread_cols * T;
    plan.tiles_down = (int)ceil_div(M, padded_rows);
    plan.tiles_across = (int)ceil_div(N, padded_cols);
    plan.rows = (int)least(M, padded_rows);
    plan.cols = (int)least(N, padded_cols);

    /* Matrices at once: as many as there are threads for, but work for all multiprocessors, and
     * chunks of at least 16 of K. */
    const int64_t tiles = (int64_t)plan.tiles_down * plan.tiles_across;
    const int64_t each = device.multiprocessors ? ceil_div(p->count, device.multiprocessors) : p->count;
    const int64_t of_k = padded_rows + padded_cols; /* floats per matrix and step of K */
    const int64_t floats = tuning.stage_bytes / 4;
    const int64_t least_depth = least(round_up(most(K, 1), 4), 16);
    plan.matrices = 1;
    if (tiles == 1) {
        plan.matrices = (int)most(1, least(least(places / of_matrix, each),
                                           floats / (of_k * least_depth)));
    }
    plan.threads = (int)least(most(round_up(plan.matrices * of_matrix, 32), 128), SMALL_BATCH_THREADS);

    const int64_t whole = least(floats / (plan.matrices * of_k), 128);
    const int64_t deepest = K <= whole ? round_up(most(K, 1), 4) : most(whole / 8 * 8, 8);
    plan.depth = (int)round_up(ceil_div(most(K, 1), ceil_div(most(K, 1), deepest)), K <= whole ? 4 : 8);

    const bool a_k = p->A.col_stride == 1, b_k = p->B.row_stride == 1;
    const bool a4 = in_float4s(&p->A, a_k ? K : M, a_k ? p->A.row_stride : p->A.col_stride, p->count);
    const bool b4 = in_float4s(&p->B, b_k ? K : N, b_k ? p->B.col_stride : p->B.row_stride, p->count);
    const bool c4 = in_float4s(&p->C, N, p->C.row_stride, p->count);
    plan.a_k_major = a_k;
    /* Neighbouring threads store neighbouring floats of C if B is K-major. */
    plan.b_k_major = b_k || (T == 8 && !c4 && !b4);
    plan.A = operand_copy(a_k, plan.a_k_major, a4 && K > 0, plan.rows, padded_rows, &plan);
    plan.B = operand_copy(b_k, plan.b_k_major, b4 && K > 0, plan.cols, padded_cols, &plan);
    plan.C = (BatchCopy){.float4 = c4};
    if (T == 4) {
        divide(&plan.C, plan.rows, plan.cols, plan.threads);
        place(&plan.C, padded_rows, padded_cols, false, plan.matrices);
    }
    plan.shared_bytes = SMALL_BATCH_STAGES * (plan.A.bytes + plan.B.bytes) + plan.C.bytes;

    const int registers = T == 8 ? SMALL_BATCH_REGISTERS_8 : SMALL_BATCH_REGISTERS_4;
    const int reserved = 1024; /* shared memory that each block takes beside its own */
    plan.resident = (int)most(1, least((device.shared_bytes + reserved) / (plan.shared_bytes + reserved),
                                       65536 / (registers * plan.threads)));
    plan.tasks = (unsigned)(tiles > 1 ? p->count * tiles : ceil_div(p->count, plan.matrices));
    plan.blocks = (int)least(plan.tasks, device.multiprocessors
                                        ? (int64_t)device.multiprocessors * plan.resident
                                        : INT_MAX);
    return plan;
}

SmallBatchPlan small_batch_plan(const Sgemm *p, SmallBatchDevice device)
{
    const bool tiny = p->C.rows <= 32 && p->C.cols <= 32;
    return plan_with(p, device, tiny ? (Tuning){4, 128, 16384} : (Tuning){8, 256, 32768});
}

#ifdef SMALL_BATCH_TUNING
SmallBatchPlan small_batch_plan_tuned(const Sgemm *problem, SmallBatchDevice device,
                                      SmallBatchTuning tuning)
{
    return plan_with(problem, device, (Tuning){tuning.thread_tile, tuning.threads, tuning.stage_bytes});
}
#endif
