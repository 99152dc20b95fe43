/* The part of cuBLAS, or rocBLAS, that runtime/cuda/cublas.cu uses, over the fake CUDA runtime. It
 * checks leading dimensions as strictly as BLAS does, and multiplies with the textbook loops. */
#ifndef SGEMM_HIP
#include <cuda_runtime.h>
#include <library_types.h>
#endif

#include <stdint.h>

#include "fake_cuda.h"

namespace {

/* Values of cublasStatus_t, or rocblas_status. */
#ifdef SGEMM_HIP
constexpr int success = 0, invalid_value = 4, alloc_failed = 5;
#else
constexpr int success = 0, invalid_value = 7, alloc_failed = 3;
#endif

struct Handle {
    cudaStream_t stream;
};

/* Creating a handle allocates GPU memory, here only for a moment. */
int make(Handle **handle)
{
    void *memory;
    if (cudaMalloc(&memory, 1) != cudaSuccess) {
        return alloc_failed;
    }
    cudaFree(memory);
    *handle = new Handle{nullptr};
    return success;
}

/* op(X), column-major with leading dimension ld. */
struct Operand {
    const float *data;
    bool transposed;
    int64_t rows, cols, ld;

    int64_t stored_rows() const
    {
        return transposed ? cols : rows;
    }
    int64_t stored_cols() const
    {
        return transposed ? rows : cols;
    }
    bool is_valid() const
    {
        return rows >= 0 && cols >= 0 && ld >= 1 && ld >= stored_rows();
    }
    /* Its elements in host memory; NULL if a GPU could not access all of them. */
    const float *content() const
    {
        static const float nothing = 0.0f;
        const int64_t lines = stored_cols(), length = stored_rows();
        if (lines == 0 || length == 0) {
            return &nothing;
        }
        const size_t bytes = sizeof(float) * static_cast<size_t>((lines - 1) * ld + length);
        const void *const there = fake_cuda_content(data, bytes);
        return there                              ? static_cast<const float *>(there)
               : fake_cuda_is_pinned(data, bytes) ? data
                                                  : nullptr;
    }
};

struct Work {
    Operand A, B, C;
    float alpha, beta;
};

void multiply(void *argument)
{
    Work *const w = static_cast<Work *>(argument);
    const float *const A = w->A.content(), *const B = w->B.content();
    float *const C = const_cast<float *>(w->C.content());
    const bool all = A && B && C;
    for (int64_t j = 0; all && j < w->C.cols; ++j) {
        for (int64_t i = 0; i < w->C.rows; ++i) {
            float sum = 0.0f;
            for (int64_t k = 0; k < w->A.cols; ++k) {
                sum += A[w->A.transposed ? k + i * w->A.ld : i + k * w->A.ld] *
                       B[w->B.transposed ? j + k * w->B.ld : k + j * w->B.ld];
            }
            float *const c = C + i + j * w->C.ld;
            *c = w->alpha * sum + (w->beta == 0.0f ? 0.0f : w->beta * *c);
        }
    }
    delete w;
}

int submit(const Handle *handle, const Work &work)
{
    if (!work.A.is_valid() || !work.B.is_valid() || !work.C.is_valid()) {
        return invalid_value;
    }
    cudaLaunchHostFunc(handle->stream, multiply, new Work(work));
    return success;
}

} // namespace

extern "C" {
#pragma GCC visibility push(default)

#ifdef SGEMM_HIP
int rocblas_create_handle(Handle **handle)
{
    return make(handle);
}

int rocblas_set_stream(Handle *handle, cudaStream_t stream)
{
    handle->stream = stream;
    return success;
}

int rocblas_sgemm(Handle *handle, int transa, int transb, int m, int n, int k, const float *alpha,
                  const float *A, int lda, const float *B, int ldb, const float *beta, float *C,
                  int ldc)
{
    constexpr int transpose = 112;
    return submit(handle, {{A, transa == transpose, m, k, lda},
                           {B, transb == transpose, k, n, ldb},
                           {C, false, m, n, ldc},
                           *alpha,
                           *beta});
}

const char *rocblas_status_to_string(int status)
{
    return status == invalid_value ? "rocblas_status_invalid_size" : "rocblas_status_success";
}
#else
int cublasCreate_v2(Handle **handle)
{
    return make(handle);
}

int cublasSetStream_v2(Handle *handle, cudaStream_t stream)
{
    handle->stream = stream;
    return success;
}

int cublasGemmEx_64(Handle *handle, int transa, int transb, int64_t m, int64_t n, int64_t k,
                    const void *alpha, const void *A, cudaDataType, int64_t lda, const void *B,
                    cudaDataType, int64_t ldb, const void *beta, void *C, cudaDataType, int64_t ldc,
                    int, int)
{
    return submit(handle, {{static_cast<const float *>(A), transa != 0, m, k, lda},
                           {static_cast<const float *>(B), transb != 0, k, n, ldb},
                           {static_cast<const float *>(C), false, m, n, ldc},
                           *static_cast<const float *>(alpha),
                           *static_cast<const float *>(beta)});
}

const char *cublasGetStatusString(int status)
{
    return status == invalid_value ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_SUCCESS";
}
#endif

#pragma GCC visibility pop
}
