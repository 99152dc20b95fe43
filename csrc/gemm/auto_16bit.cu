// `auto` for operands of 16 bits, on GPUs of compute capability 9.0: `direct` for two of one type;
// for one beside a float32 operand `mixed`, if that is estimated to be faster; otherwise `auto`
// with a float32 copy.
#ifndef SGEMM_TRACED // the traced build counts the rungs
#include "../base/addend.h"
#include "kernel/kernel.h"
#include "kernel/stored_element.h"
#include "plan/plan.h"

extern "C" const Variant variant_auto, variant_direct, variant_mixed;

namespace {

#ifdef __CUDACC__
constexpr DeviceKind this_kind = DEVICE_CUDA;
#define ON_DEVICE(name) name##_cuda
#else
constexpr DeviceKind this_kind = DEVICE_CPU;
#define ON_DEVICE(name) name##_cpu
#endif

/* ------------------------------------------------------------------ float32 copies */

/* Rows of `from`, whose elements have 16 bits, are contiguous, and so are those of `to`. */
struct Widening {
    Matrix from, to;
    unsigned vectors, vectors_of_row; // of eight elements; the last one of a row may be shorter
    bool by_vectors;                  // all of them begin on 16-byte boundaries
};

constexpr int widen_threads = 256;

struct alignas(16) Eight {
    uint16_t each[8];
};

template <ElementType ELEMENT>
__global__ void __launch_bounds__(widen_threads) widen(const Widening w)
{
    const unsigned vector = blockIdx.x * widen_threads + threadIdx.x;
    if (vector >= w.vectors) {
        return;
    }
    const unsigned row = vector / w.vectors_of_row;
    const int64_t col = int64_t{vector % w.vectors_of_row} * 8, left = w.from.cols - col;
    const uint16_t *const from = stored_address<ELEMENT>(w.from, row, col, blockIdx.y);
    float *const to = address(w.to, row, col);
    if (w.by_vectors && left >= 8) {
        const Eight eight = *reinterpret_cast<const Eight *>(from);
        UNROLL(2)
        for (int i = 0; i < 8; i += 4) {
            *reinterpret_cast<float4 *>(to + i) =
                make_float4(StoredElement<ELEMENT>::value(eight.each[i]),
                            StoredElement<ELEMENT>::value(eight.each[i + 1]),
                            StoredElement<ELEMENT>::value(eight.each[i + 2]),
                            StoredElement<ELEMENT>::value(eight.each[i + 3]));
        }
        return;
    }
    for (int i = 0; i < 8 && i < left; ++i) {
        to[i] = StoredElement<ELEMENT>::value(from[i]);
    }
}

/* Converts `matrices` matrices. */
Status launch_widening(Widening w, ElementType type, int64_t matrices, const Launch *where)
{
    constexpr KernelSpec spec = {.symbol = "widen", .threads = {widen_threads, 1}};
    const Matrix from = w.from, to = w.to;
    Status status = status_ok();
    for (int64_t n = 0; n < matrices && status.code == STATUS_OK; n += BATCH_OF_LAUNCH) {
        w.from = typed_in_batch(&from, n, type);
        w.to = matrix_in_batch(&to, n);
        const int64_t left = matrices - n;
        status = launch_blocks(type == ELEMENT_FLOAT16 ? widen<ELEMENT_FLOAT16>
                                                       : widen<ELEMENT_BFLOAT16>,
                               spec, ceil_div(w.vectors, widen_threads), w, where,
                               left < BATCH_OF_LAUNCH ? left : int64_t{BATCH_OF_LAUNCH});
    }
    return status;
}

/* Plans the copy of `matrices` matrices with contiguous rows. False if no memory holds it. */
bool plan_widening(const Matrix &from, int64_t matrices, Widening *w, size_t *bytes)
{
    const int64_t vectors_of_row = ceil_div(from.cols, 8), most = UINT32_MAX - widen_threads;
    if (from.rows > most / vectors_of_row ||
        from.rows * vectors_of_row > (int64_t{1} << 40) / matrices) {
        return false;
    }
    const int64_t pitch = leading_dimension_in(ELEMENT_FLOAT32, matrices, from.cols);
    w->from = from;
    w->to = {nullptr, from.rows, from.cols, pitch, 1, matrices > 1 ? from.rows * pitch : 0};
    w->vectors_of_row = static_cast<unsigned>(vectors_of_row);
    w->vectors = static_cast<unsigned>(from.rows * vectors_of_row);
    w->by_vectors = is_aligned(from.data) && pitch % 4 == 0 &&
                    (from.rows == 1 || from.row_stride % 8 == 0) &&
                    (matrices == 1 || (from.batch_stride % 8 == 0 && w->to.batch_stride % 4 == 0));
    *bytes = static_cast<size_t>(matrices * from.rows * pitch) * sizeof(float);
    return true;
}

/* multiply(the problem with a float32 copy of A, or of B). The copy is row-major if the operand
 * is. If A @ A.T is computed, both operands are the same copy. */
Status with_widened(const Sgemm *problem, const Launch *where, int operand, Launcher *multiply)
{
    Sgemm widened = *problem;
    Launch here = *where;
    Matrix *const X = operand == 0 ? &widened.A : &widened.B;
    here.elements[operand] = ELEMENT_FLOAT32;
    if (X->rows == 0 || X->cols == 0) {
        return multiply(&widened, &here);
    }
    const bool symmetric = where->elements[0] == where->elements[1] && sgemm_is_symmetric(problem);
    const bool by_columns = X->col_stride != 1;
    const int64_t matrices = X->batch_stride == 0 ? 1 : problem->count;
    Widening w;
    size_t bytes;
    if (!plan_widening(by_columns ? transposed(*X) : *X, matrices, &w, &bytes)) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for a float32 copy of %lld x %lld",
                            static_cast<long long>(X->rows), static_cast<long long>(X->cols));
    }
    void *memory;
    Status status = scratch_alloc(bytes, where, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    w.to.data = static_cast<float *>(memory);
    status = launch_widening(w, where->elements[operand], matrices, where);
    if (status.code == STATUS_OK) {
        *X = by_columns ? transposed(w.to) : w.to;
        if (symmetric) {
            (operand == 0 ? widened.B : widened.A) = transposed(*X);
            here.elements[1 - operand] = ELEMENT_FLOAT32;
        }
        status = multiply(&widened, &here);
    }
    scratch_free(memory, where);
    return status;
}

/* ------------------------------------------------------------------ the choice */

/* The kernel that takes the operands as they are, if that is estimated to be faster. */
Status choose(const Sgemm *problem, const Launch *where, const Variant **kernel)
{
    const int64_t most = INT32_MAX - 256; // so that the corners of all tiles are ints
    const ElementType of_a = where->elements[0], of_b = where->elements[1];
    *kernel = nullptr;
    if (problem->C.rows > most || problem->C.cols > most || problem->A.cols > most ||
        (of_a != of_b && of_a != ELEMENT_FLOAT32 && of_b != ELEMENT_FLOAT32)) {
        return status_ok();
    }
    PlanDevice device;
    const Status status = ON_DEVICE(plan_device)(where, &device);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (of_a == of_b) {
        *kernel = plan_prefers_direct(problem, &device) ? &variant_direct : nullptr;
        return status;
    }
    const bool swapped = of_a == ELEMENT_FLOAT32;
    const Sgemm oriented = swapped ? sgemm_transposed(problem) : *problem;
    const Prepared *const pairs = where->prepared[swapped ? 0 : 1];
    *kernel =
        plan_prefers_mixed(&oriented, pairs && pairs->ready, &device) ? &variant_mixed : nullptr;
    return status;
}

/* The operand of 16 bits that is converted first: the smaller one. */
int first_to_widen(const Sgemm *problem, const Launch *where)
{
    if (where->elements[0] == ELEMENT_FLOAT32 || where->elements[1] == ELEMENT_FLOAT32) {
        return where->elements[0] == ELEMENT_FLOAT32 ? 1 : 0;
    }
    return problem->C.cols < problem->C.rows ? 1 : 0;
}

Status multiply(const Sgemm *problem, const Launch *where)
{
    int64_t launched = 0;
    if (where->elements[0] == ELEMENT_FLOAT32 && where->elements[1] == ELEMENT_FLOAT32) {
        return variant_launch(&variant_auto, this_kind, problem, where, &launched);
    }
    const Variant *kernel;
    Status status = choose(problem, where, &kernel);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (kernel) {
        Launch here = *where;
        if (!kernel->spec.reads_addend) {
            status = addend_copy(where, problem->count);
            here.addend = nullptr;
        }
        status = status.code == STATUS_OK
                     ? variant_launch(kernel, this_kind, problem, &here, &launched)
                     : status;
        if (status.code != STATUS_OUT_OF_MEMORY) { // float32 may need less
            return status;
        }
    }
    Sgemm rest = part_of_batch(problem, launched, problem->count - launched);
    rest.A = typed_in_batch(&problem->A, launched, where->elements[0]);
    rest.B = typed_in_batch(&problem->B, launched, where->elements[1]);
    Addend addend;
    const Launch of_rest = addend_part(where, launched, &addend);
    return with_widened(&rest, &of_rest, first_to_widen(problem, where), multiply);
}

} // namespace

LAUNCHER(auto_16bit)
{
    return multiply(problem, where);
}

ANY_BATCH_ARCHITECTURE_SPECIFIC_VARIANT(auto_16bit,
                                        "A or B has 16 bits: auto takes them as they are", nullptr,
                                        KernelSpec{.reads_addend = true}, {9, 0});
#endif
