/* The host's side of plain kernels: copies of operands, and the checks of a launch. Linked with
 * each plain kernel, for the CPU device and, by nvcc, for GPUs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <initializer_list>

#include "plain_host.h"

#ifdef SGEMM_TRACED
void name_scratch(const void *first, size_t bytes, bool zeros);
void name_operand(const char *name, const Matrix &X, size_t bytes);
#endif

bool plain_pads = true;
#ifdef SGEMM_SANITIZED
extern bool sanitizer_last_block;
#else
constexpr bool sanitizer_last_block = false;
#endif

namespace {

#ifdef __CUDACC__
const CustomGpu *gpu_in_use()
{
    return custom_gpu_of_library();
}
#elif defined(SGEMM_TRACED)
const CustomGpu *gpu_in_use()
{
    return nullptr;
}
#else
const CustomGpu *gpu_in_use()
{
    return custom_gpu;
}
#endif

Status take(size_t bytes, const Launch *where, void **memory)
{
    if (const CustomGpu *const gpu = gpu_in_use()) {
        return gpu->scratch_alloc(bytes, where, memory);
    }
#ifdef SGEMM_SANITIZED
    constexpr size_t beside = 256; /* unused bytes, in which a stray access is found */
#else
    constexpr size_t beside = 0;
#endif
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + beside);
#ifdef SGEMM_TRACED
    if (*memory) {
        name_scratch(*memory, bytes, true);
    }
#endif
    return *memory ? status_ok()
                   : status_error(STATUS_OUT_OF_MEMORY, "no memory for %.3f GB",
                                  static_cast<double>(bytes) / 1e9);
}

void give(void *memory, const Launch *where)
{
    if (const CustomGpu *const gpu = gpu_in_use()) {
        gpu->scratch_free(memory, where);
    } else {
        free(memory);
    }
}

Status set_to_zero(const Matrix &X, const Launch *where)
{
    const size_t bytes = static_cast<size_t>(X.rows * X.cols) * sizeof(float);
    if (const CustomGpu *const gpu = gpu_in_use()) {
        return gpu->clear(X.data, bytes, where);
    }
    memset(X.data, 0, bytes);
    return status_ok();
}

/* to = from, in the corner that both have */
Status copy_matrix(const Matrix &to, const Matrix &from, const Launch *where)
{
    const int64_t rows = to.rows < from.rows ? to.rows : from.rows;
    const int64_t cols = to.cols < from.cols ? to.cols : from.cols;
    const Matrix target = {to.data, rows, cols, to.row_stride, to.col_stride};
    const Matrix source = {from.data, rows, cols, from.row_stride, from.col_stride};
    if (const CustomGpu *const gpu = gpu_in_use()) {
        return gpu->copy(&target, &source, where);
    }
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
            target.data[i * target.row_stride + j * target.col_stride] =
                source.data[i * source.row_stride + j * source.col_stride];
        }
    }
    return status_ok();
}

/* C = alpha * X + beta * C; X is 0 if it has no data, and C is not read if beta is 0 */
Status combine(const Matrix &C, const Matrix &X, float alpha, float beta, const Launch *where)
{
    if (const CustomGpu *const gpu = gpu_in_use()) {
        return gpu->combine(&C, &X, alpha, beta, where);
    }
    for (int64_t i = 0; i < C.rows; ++i) {
        for (int64_t j = 0; j < C.cols; ++j) {
            float *const c = C.data + i * C.row_stride + j * C.col_stride;
            const float x = X.data ? alpha * X.data[i * X.row_stride + j * X.col_stride] : 0.0f;
            *c = beta == 0.0f ? x : x + beta * *c;
        }
    }
    return status_ok();
}

Matrix transposed(const Matrix &X)
{
    return {X.data, X.cols, X.rows, X.col_stride, X.row_stride};
}

int64_t up_to_multiple(int64_t size, int64_t of)
{
    return (size + of - 1) / of * of;
}

/* The kernel can read or write the matrix where it lies, with this size. */
bool lies(const Matrix &X, int64_t rows, int64_t cols)
{
    return X.rows == rows && X.cols == cols && (X.col_stride == 1 || cols == 1) &&
           (X.row_stride == cols || rows == 1) && reinterpret_cast<uintptr_t>(X.data) % 16 == 0;
}

struct Operand {
    Matrix given, used; /* used: contiguous and row-major */
    void *memory;       /* of the copy, if there is one */
    bool padded;
};

Status place_operand(Operand *X, int64_t rows, int64_t cols, bool copied, const Launch *where)
{
    X->used = X->given;
    if (!copied && lies(X->given, rows, cols)) {
        return status_ok();
    }
    const Status status = take(static_cast<size_t>(rows * cols) * sizeof(float), where, &X->memory);
    X->used = {static_cast<float *>(X->memory), rows, cols, cols, 1};
    X->padded = rows != X->given.rows || cols != X->given.cols;
    return status;
}

Status fill(const Operand &X, const Launch *where)
{
    Status status = status_ok();
    if (X.memory && X.padded) {
        status = set_to_zero(X.used, where);
    }
    if (X.memory && status.code == STATUS_OK) {
        status = copy_matrix(X.used, X.given, where);
    }
    return status;
}

} // namespace

#if defined(SGEMM_TRACED) && !defined(SGEMM_SANITIZED)
/* Memory for a whole operand instead of the one that the trace has. Only pages that the kernel
 * touches take memory. */
static Status replace(int index, int64_t rows, int64_t cols, bool transposed, float **data,
                      size_t *bytes)
{
    const size_t size = static_cast<size_t>(rows * cols) * sizeof(float);
    void *const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for %.3f GB",
                            static_cast<double>(size) / 1e9);
    }
    *data = static_cast<float *>(memory);
    *bytes = size;
    const Matrix X = {*data, rows, cols, transposed ? 1 : cols, transposed ? rows : 1};
    const char *const names[3] = {"A", "B", "C"};
    name_operand(names[index], X, size);
    return status_ok();
}

/* A trace runs the blocks of the first tile. */
static Status count_accesses(const PlainFacts &facts, PlainStart *start, const Sgemm &p,
                             const Launch *where)
{
    const int64_t N = p.C.row_stride, K = p.A.cols;
    const int64_t M = facts.square ? N : up_to_multiple(p.C.rows, facts.multiple_of[0]);
    const bool fits = p.A.row_stride == K && N % facts.multiple_of[1] == 0 &&
                      K % facts.multiple_of[2] == 0 && (!facts.square || N == K);
    if (!fits) {
        return status_error(STATUS_UNSUPPORTED,
                            "a plain kernel is traced on row-major operands as they lie: choose N "
                            "and K as multiples of 4%s%s",
                            facts.square ? ", and M = N = K" : "",
                            facts.multiple_of[0] * facts.multiple_of[1] * facts.multiple_of[2] > 1
                                ? ", and sizes that multiple_of allows"
                                : "");
    }
    const int64_t sizes[3][2] = {{M, K}, {K, N}, {M, N}};
    float *data[3] = {p.A.data, p.B.data, p.C.data};
    size_t bytes[3] = {};
    Status status = status_ok();
    for (int index = 0; index < 3 && status.code == STATUS_OK; ++index) {
        // The operands of the trace have the rows of the first tile, those of B excepted.
        if (facts.transposed[index] || (index != 1 && M != p.C.rows)) {
            status = replace(index, sizes[index][0], sizes[index][1], facts.transposed[index],
                             &data[index], &bytes[index]);
        }
    }
    if (status.code == STATUS_OK) {
        const PlainProblem whole = {M, N, K, p.alpha, p.beta, data[0], data[1], data[2]};
        status = start(&whole, where);
    }
    for (int index = 0; index < 3; ++index) {
        if (bytes[index]) {
            munmap(data[index], bytes[index]);
        }
    }
    return status;
}
#endif

extern "C" Status plain_launch(const PlainFacts *facts, PlainStart *start, const Sgemm *problem,
                               const Launch *where)
{
    const Sgemm &p = *problem;
#if defined(SGEMM_TRACED) && !defined(SGEMM_SANITIZED)
    return count_accesses(*facts, start, p, where);
#endif
    if (p.A.cols == 0 || p.alpha == 0.0f) {
        return combine(p.C, {}, 0.0f, p.beta, where);
    }
    int64_t M = p.C.rows, N = p.C.cols, K = p.A.cols;
    if (plain_pads) {
        M = up_to_multiple(M, facts->multiple_of[0]);
        N = up_to_multiple(N, facts->multiple_of[1]);
        K = up_to_multiple(K, facts->multiple_of[2]);
        if (facts->square) {
            const int64_t side = M > N ? M : N;
            M = N = K = side > K ? side : K;
        }
    }
    /* Whether C is finished after the kernel, since it lacks alpha or beta. */
    const bool finished_here = (p.alpha != 1.0f && !facts->scales) ||
                               (p.beta != 0.0f && (facts->accumulates || !facts->adds));
    const bool *const turned = facts->transposed;
    Operand A = {turned[0] ? transposed(p.A) : p.A, {}, nullptr, false};
    Operand B = {turned[1] ? transposed(p.B) : p.B, {}, nullptr, false};
    Operand C = {turned[2] ? transposed(p.C) : p.C, {}, nullptr, false};
    const bool reads_C = p.beta != 0.0f && !finished_here;
    Status status = place_operand(&A, turned[0] ? K : M, turned[0] ? M : K, false, where);
    if (status.code == STATUS_OK) {
        status = place_operand(&B, turned[1] ? N : K, turned[1] ? K : N, false, where);
    }
    if (status.code == STATUS_OK) {
        status = place_operand(&C, turned[2] ? N : M, turned[2] ? M : N, finished_here, where);
    }
    status = status.code == STATUS_OK ? fill(A, where) : status;
    status = status.code == STATUS_OK ? fill(B, where) : status;
    if (status.code == STATUS_OK && reads_C) {
        status = fill(C, where);
    } else if (status.code == STATUS_OK && (facts->accumulates || facts->reads_C) &&
               !sanitizer_last_block) { /* then C is zero */
        status = set_to_zero(C.used, where);
    }
    if (status.code == STATUS_OK) {
        const PlainProblem whole = {M,
                                    N,
                                    K,
                                    facts->scales ? p.alpha : 1.0f,
                                    finished_here ? 0.0f : p.beta,
                                    A.used.data,
                                    B.used.data,
                                    C.used.data};
        status = start(&whole, where);
    }
    if (status.code == STATUS_OK && finished_here) {
        const Matrix corner = {C.used.data, C.given.rows, C.given.cols, C.used.cols, 1};
        status = combine(C.given, corner, facts->scales ? 1.0f : p.alpha, p.beta, where);
    } else if (status.code == STATUS_OK && C.memory) {
        status = copy_matrix(C.given, C.used, where);
    }
    for (void *memory : {A.memory, B.memory, C.memory}) {
        if (memory) {
            give(memory, where);
        }
    }
    return status;
}
