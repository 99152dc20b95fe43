#include "small_batch_plan.h"

#include <limits.h>
#include <math.h>

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

/* The blocks that a multiprocessor holds, and the tasks of each. */
static void place_blocks(SmallBatchPlan *plan, const Sgemm *p, int registers,
                         const PlanDevice *device)
{
    const int reserved = 1024; /* shared memory that each block takes beside its own */
    plan->resident = (int)most(1, least((device->shared_bytes + reserved) / (plan->shared_bytes + reserved),
                                        65536 / (registers * plan->threads)));
    const int64_t tiles = (int64_t)plan->tiles_down * plan->tiles_across;
    plan->tasks = (unsigned)(tiles > 1 ? p->count * tiles : ceil_div(p->count, plan->matrices));
    plan->blocks = (int)least(plan->tasks, device->multiprocessors
                                               ? (int64_t)device->multiprocessors * plan->resident
                                               : INT_MAX);
}

/* Floats of a stage. With 8 x 8 results, 12 warps of a multiprocessor hide latency; longer chunks
 * are better than more warps. */
static int64_t stage_floats(int thread_tile, int threads, int stage_bytes, const PlanDevice *device)
{
    const int64_t blocks = ceil_div(12 * 32, threads);
    const int64_t bytes = stage_bytes        ? stage_bytes
                          : thread_tile == 8 ? device->shared_bytes / blocks / SMALL_BATCH_STAGES - 512
                                             : 128 * threads;
    /* Two blocks fit in a multiprocessor. */
    return least(bytes, device->shared_bytes / (2 * SMALL_BATCH_STAGES)) / 4;
}

static SmallBatchPlan plan_with(const Sgemm *p, const PlanDevice *device, Tuning tuning)
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

    const bool a_k = p->A.col_stride == 1, b_k = p->B.row_stride == 1;
    const bool a4 = in_float4s(&p->A, a_k ? K : M, a_k ? p->A.row_stride : p->A.col_stride, p->count);
    const bool b4 = in_float4s(&p->B, b_k ? K : N, b_k ? p->B.col_stride : p->B.row_stride, p->count);
    const bool c4 = in_float4s(&p->C, N, p->C.row_stride, p->count);
    /* A thread copies in one column of units only, so a line has no more units than threads. */
    const int least_threads = T == 8 && a4 && b4 && c4 ? 64 : 128;

    /* Matrices at once: as many as keep most threads of a multiprocessor busy, but work for all
     * multiprocessors, and chunks of at least 16 of K. */
    const int64_t tiles = (int64_t)plan.tiles_down * plan.tiles_across;
    const int64_t each = device->multiprocessors ? ceil_div(p->count, device->multiprocessors) : p->count;
    const int64_t of_k = padded_rows + padded_cols; /* floats per matrix and step of K */
    const int64_t K_padded = round_up(most(K, 1), 4), least_depth = least(K_padded, 16);
    const int64_t largest = tiles > 1 ? 1 : most(1, least(places / of_matrix, each));
    int64_t floats = 0, busiest = 0;
    for (int matrices = 1; matrices <= largest; ++matrices) {
        const int threads = (int)most(round_up(matrices * of_matrix, 32), least_threads);
        const int64_t fit = stage_floats(T, threads, tuning.stage_bytes, device);
        const int64_t busy = matrices * of_matrix * most(512 / threads, 1);
        if (matrices == 1 || (fit >= matrices * of_k * least_depth && 32 * busy > 33 * busiest)) {
            plan.matrices = matrices;
            plan.threads = threads;
            floats = fit;
            busiest = busy;
        }
    }
    /* K-major tiles have four floats more in each row. */
    const int64_t padding = T == 4 ? 0 : 4 * plan.matrices * ((a_k ? padded_rows : 0) + (b_k ? padded_cols : 0));
    const int64_t whole = least((floats - padding) / (plan.matrices * of_k), 128);
    const int64_t deepest = K <= whole ? K_padded : most(whole / 8 * 8, 8);
    plan.depth = (int)round_up(ceil_div(most(K, 1), ceil_div(most(K, 1), deepest)), K <= whole ? 4 : 8);

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

    place_blocks(&plan, p, T == 8 ? SMALL_BATCH_REGISTERS_8 : SMALL_BATCH_REGISTERS_4, device);
    return plan;
}

/* Whether the batch is one array, or one matrix that all products share. */
static bool is_packed(const Matrix *X, int64_t count)
{
    const bool by_rows = X->col_stride == 1;
    const int64_t length = by_rows ? X->cols : X->rows, lines = by_rows ? X->rows : X->cols;
    const int64_t pitch = by_rows ? X->row_stride : X->col_stride;
    return (lines == 1 || pitch == length) &&
           (count == 1 || X->batch_stride == 0 || X->batch_stride == length * lines);
}

static SmallBatchPlan packed_plan(const Sgemm *p, const PlanDevice *device, Tuning tuning)
{
    enum { T = 4 };
    const int64_t M = p->C.rows, N = p->C.cols, K = p->A.cols;
    SmallBatchPlan plan = {.packed = true, .thread_tile = T, .rows = (int)M, .cols = (int)N,
                           .depth = (int)K, .tiles_down = 1, .tiles_across = 1};
    plan.thread_rows = (int)ceil_div(M, T);
    plan.thread_cols = (int)ceil_div(N, T);
    const int of_matrix = plan.thread_rows * plan.thread_cols;
    const int64_t each = device->multiprocessors ? ceil_div(p->count, device->multiprocessors) : p->count;
    const int64_t fit = tuning.stage_bytes / (4 * (M * K + K * N + 1));
    plan.matrices = (int)most(1, least(least(tuning.threads / of_matrix, fit), each));
    plan.threads = (int)most(round_up(plan.matrices * of_matrix, 32), 64);
    /* An array begins up to three floats behind a 16-byte boundary. */
    plan.A.bytes = (int)round_up(4 * (plan.matrices * M * K + 3), 16);
    plan.B.bytes = (int)round_up(4 * (plan.matrices * K * N + 3), 16);
    plan.C.bytes = (int)round_up(4 * (plan.matrices * M * N + 3), 16);
    plan.shared_bytes = SMALL_BATCH_STAGES * (plan.A.bytes + plan.B.bytes) + plan.C.bytes;
    place_blocks(&plan, p, SMALL_BATCH_REGISTERS_4, device);
    return plan;
}

/* Whether packed_plan can plan this batch, and shared memory holds its matrices. */
static bool can_be_packed(const Sgemm *p, const PlanDevice *device)
{
    const int64_t M = p->C.rows, N = p->C.cols, K = p->A.cols;
    return M <= 64 && N <= 64 && ceil_div(M, 4) * ceil_div(N, 4) <= SMALL_BATCH_THREADS &&
           K <= 256 && 4 * (2 * (M * K + K * N + 8) + M * N + 4) <= device->shared_bytes / 2 &&
           is_packed(&p->A, p->count) && is_packed(&p->B, p->count) && is_packed(&p->C, p->count);
}

/* The longest side of C, which keeps the number of tiles below 2^31. */
enum { MOST = 1 << 20 };

bool small_batch_supports(const Sgemm *p, const PlanDevice *device)
{
    const int64_t M = p->C.rows, N = p->C.cols;
    if (M < 1 || N < 1 || M > MOST || N > MOST || p->count > INT_MAX) {
        return false;
    }
    const SmallBatchPlan plan = small_batch_plan(p, device);
    return plan.shared_bytes <= device->shared_bytes &&
           p->count <= INT_MAX / ((int64_t)plan.tiles_down * plan.tiles_across);
}

SmallBatchPlan small_batch_plan(const Sgemm *p, const PlanDevice *device)
{
    const int64_t M = p->C.rows, N = p->C.cols;
    const bool odd = p->C.cols % 4 != 0 || p->A.rows % 4 != 0 || p->A.cols % 4 != 0;
    if (odd && can_be_packed(p, device)) {
        return packed_plan(p, device, (Tuning){4, 256, 24576});
    }
    const bool tiny = least(M, N) <= 16 || most(M, N) <= 32;
    return plan_with(p, device, tiny ? (Tuning){4, 128, 0} : (Tuning){8, most(M, N) <= 64 ? 128 : 256, 0});
}

/* Bytes of an operand that are read at least once. */
static double bytes_of(const Matrix *X, int64_t count)
{
    return 4.0 * (double)X->rows * (double)X->cols * (double)(X->batch_stride == 0 ? 1 : count);
}

double small_batch_cycles(const SmallBatchPlan *plan, const Sgemm *p, const PlanDevice *device)
{
    enum {
        OF_UNIT = 22,   /* issue slots of a warp to copy a unit */
        OF_CHUNK = 300, /* and to begin the copies of a chunk */
        OF_TASK = 300,  /* and to begin and end a task */
        WARPS = 4,      /* that issue in the same cycle */
    };
    const double overhead = 1.17; /* issue slots for each multiply-add of the main loop */
    const int T = plan->thread_tile;
    const PlanConstants *const c = device->constants;
    const double results = (double)(plan->matrices * plan->rows * plan->cols);
    const double factors = (double)(plan->matrices * (plan->rows + plan->cols)) * plan->depth;
    const double chunks = (double)most(ceil_div(p->A.cols, plan->depth), 1);
    const double units = factors / (plan->A.float4 && plan->B.float4 ? 4 : 1) / plan->threads;
    const double stores = results / (plan->C.float4 ? 4 : 1) / plan->threads;
    const double of_warp = chunks * (T * T * plan->depth * overhead + units * OF_UNIT + OF_CHUNK) +
                           stores * OF_UNIT + OF_TASK;
    const double tasks = (double)ceil_div(plan->tasks, device->multiprocessors);
    const double busy = tasks * of_warp * (plan->threads / 32) / WARPS;
    const double bytes = bytes_of(&p->A, p->count) + bytes_of(&p->B, p->count) +
                         (p->beta == 0 ? 1 : 2) * bytes_of(&p->C, p->count);
    return c->launch + hypot(bytes / (c->from_memory * device->multiprocessors), busy);
}

#ifdef SMALL_BATCH_TUNING
SmallBatchPlan small_batch_plan_tuned(const Sgemm *problem, const PlanDevice *device,
                                      SmallBatchTuning tuning)
{
    if (tuning.thread_tile < 0) {
        return packed_plan(problem, device, (Tuning){4, tuning.threads, tuning.stage_bytes});
    }
    return plan_with(problem, device, (Tuning){tuning.thread_tile, tuning.threads, tuning.stage_bytes});
}
#endif
