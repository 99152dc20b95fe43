/* cuBLAS as the reference for the ladder, in true single precision, and in TF32 for measurements
 * only; on AMD GPUs rocBLAS, in single precision. The library is opened on first use, so building
 * and importing do not need it. The functions used are declared here. */
#include <dlfcn.h>
#include <limits.h>
#ifndef SGEMM_HIP
#include <library_types.h>
#endif
#include <pthread.h>

#include "../../base/cuda/failures.h"
#include "../device.h"
#include "cublas.h"

namespace {

/* BLAS matrices are column-major, so we ask for C^T = B^T A^T. BLAS reads a row-major operand of
 * ours as its transpose, which is the factor we need. */
struct Stored {
    int operation;
    int64_t ld;
};

/* The functions that we use of either library. */
#ifdef SGEMM_HIP
typedef struct _rocblas_handle *Handle;
constexpr int no_transpose = 111, transpose = 112; /* rocblas_operation */

struct Library {
    static constexpr const char *names[] = {"rocblas_create_handle", "rocblas_set_stream",
                                            "rocblas_sgemm", "rocblas_status_to_string"};
    int (*create)(Handle *);
    int (*set_stream)(Handle, hipStream_t);
    int (*gemm)(Handle, int transa, int transb, int m, int n, int k, const float *alpha,
                const float *A, int lda, const float *B, int ldb, const float *beta, float *C,
                int ldc);
    const char *(*status_text)(int);

    int multiply(Handle handle, const Sgemm &p, const Stored &a, const Stored &b, const Stored &c,
                 int) const
    {
        constexpr int invalid_size = 4; /* rocblas_status */
        for (const int64_t number : {p.C.rows, p.C.cols, p.A.cols, a.ld, b.ld, c.ld}) {
            if (number > INT_MAX) {
                return invalid_size;
            }
        }
        return gemm(handle, b.operation, a.operation, static_cast<int>(p.C.cols),
                    static_cast<int>(p.C.rows), static_cast<int>(p.A.cols), &p.alpha, p.B.data,
                    static_cast<int>(b.ld), p.A.data, static_cast<int>(a.ld), &p.beta, p.C.data,
                    static_cast<int>(c.ld));
    }
};
#else
typedef struct cublasContext *Handle;
constexpr int no_transpose = 0, transpose = 1; /* cublasOperation_t */

struct Library {
    static constexpr const char *names[] = {"cublasCreate_v2", "cublasSetStream_v2",
                                            "cublasGemmEx_64", "cublasGetStatusString"};
    int (*create)(Handle *);
    int (*set_stream)(Handle, cudaStream_t);
    int (*gemm)(Handle, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha,
                const void *A, cudaDataType Atype, int64_t lda, const void *B, cudaDataType Btype,
                int64_t ldb, const void *beta, void *C, cudaDataType Ctype, int64_t ldc,
                int compute_type, int algorithm);
    const char *(*status_text)(int);

    int multiply(Handle handle, const Sgemm &p, const Stored &a, const Stored &b, const Stored &c,
                 int compute_type) const
    {
        constexpr int default_algorithm = -1; /* CUBLAS_GEMM_DEFAULT */
        return gemm(handle, b.operation, a.operation, p.C.cols, p.C.rows, p.A.cols, &p.alpha,
                    p.B.data, CUDA_R_32F, b.ld, p.A.data, CUDA_R_32F, a.ld, &p.beta, p.C.data,
                    CUDA_R_32F, c.ld, compute_type, default_algorithm);
    }
};
#endif
constexpr int pedantic_float32 = 69; /* CUBLAS_COMPUTE_32F_PEDANTIC */
constexpr int fast_tf32 = 77;        /* CUBLAS_COMPUTE_32F_FAST_TF32 */

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Library library;
Handle handles[most_devices];
cudaEvent_t last_use[most_devices];
thread_local bool has_handle; /* this thread is between cublas_begin and cublas_end */

Status failed(const char *what, int error)
{
    return status_error(STATUS_DEVICE, GPU_LIBRARY " could not %s: %s", what,
                        library.status_text(error));
}

/* A handle owns one workspace, so calls from several streams run one after another on the
 * device. */
Status open_handle(int device)
{
    if (handles[device]) {
        return status_ok();
    }
    const cudaError_t error =
        last_use[device] ? cudaSuccess
                         : cudaEventCreateWithFlags(&last_use[device], cudaEventDisableTiming);
    if (error != cudaSuccess) {
        return device_failed(device, "creating an event for " GPU_LIBRARY, error);
    }
    const int result = library.create(&handles[device]);
    return result == 0 ? status_ok() : failed("create a handle", result);
}

/* BLAS requires a leading dimension of at least the row (or column) length, even if there is only
 * one row and its stride is arbitrary. */
Stored stored(const Matrix &X)
{
    const bool by_rows = X.col_stride == 1;
    const int64_t length = by_rows ? X.cols : X.rows, lines = by_rows ? X.rows : X.cols;
    const int64_t stride = by_rows ? X.row_stride : X.col_stride;
    const int64_t shortest = length > 1 ? length : 1;
    return {by_rows ? no_transpose : transpose, lines <= 1 || length == 0 ? shortest : stride};
}

Status gemm(const Sgemm &p, int compute_type, int device, cudaStream_t stream)
{
    const Stored a = stored(p.A), b = stored(p.B), c = stored(p.C);
    int result = library.set_stream(handles[device], stream);
    if (result == 0) {
        result = library.multiply(handles[device], p, a, b, c, compute_type);
    }
    return result == 0 ? status_ok() : failed("multiply", result);
}

Status launch(const Sgemm *problem, int compute_type, const Launch *where)
{
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(static_cast<cudaStream_t>(where->stream), &capture);
    if (capture != cudaStreamCaptureStatusNone) {
        return status_error(
            STATUS_INVALID, GPU_REFERENCE
            " uses one workspace for all calls on a GPU, one after another, and a " GPU_API
            " graph cannot keep that order: capture another variant");
    }
    const cudaStream_t stream = static_cast<cudaStream_t>(where->stream);
    if (has_handle) {
        return gemm(*problem, compute_type, where->device, stream);
    }
    Status status = cublas_begin(where->device, stream);
    if (status.code == STATUS_OK) {
        status = gemm(*problem, compute_type, where->device, stream);
        const Status ended = cublas_end(where->device, stream);
        status = status.code == STATUS_OK ? ended : status;
    }
    return status;
}

} // namespace

Status cublas_begin(int device, cudaStream_t stream)
{
    pthread_mutex_lock(&mutex);
    Status status = open_handle(device);
    if (status.code == STATUS_OK) {
        status = device_checked(device, "waiting for " GPU_LIBRARY,
                                cudaStreamWaitEvent(stream, last_use[device], 0));
    }
    has_handle = status.code == STATUS_OK;
    if (!has_handle) {
        pthread_mutex_unlock(&mutex);
    }
    return status;
}

Status cublas_end(int device, cudaStream_t stream)
{
    const Status status = device_checked(device, "recording an event after " GPU_LIBRARY,
                                         cudaEventRecord(last_use[device], stream));
    has_handle = false;
    pthread_mutex_unlock(&mutex);
    return status;
}

bool cublas_launches(const Variant *variant)
{
    Launcher *const launcher = variant->launch[DEVICE_CUDA];
#ifdef SGEMM_HIP
    return launcher == launch_cublas_cuda;
#else
    return launcher == launch_cublas_cuda || launcher == launch_cublas_tf32_cuda;
#endif
}

extern "C" Status launch_cublas_cuda(const Sgemm *problem, const Launch *where)
{
    return launch(problem, pedantic_float32, where);
}

#ifndef SGEMM_HIP
extern "C" Status launch_cublas_tf32_cuda(const Sgemm *problem, const Launch *where)
{
    return launch(problem, fast_tf32, where);
}
#endif

extern "C" bool cublas_is_open(void)
{
    pthread_mutex_lock(&mutex);
    const bool open = library.gemm != nullptr;
    pthread_mutex_unlock(&mutex);
    return open;
}

extern "C" Status cublas_open(const char *path)
{
    void *const opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        return status_error(STATUS_UNSUPPORTED, GPU_LIBRARY " could not be opened: %s", dlerror());
    }
    Library found = {};
    found.create = reinterpret_cast<decltype(found.create)>(dlsym(opened, Library::names[0]));
    found.set_stream =
        reinterpret_cast<decltype(found.set_stream)>(dlsym(opened, Library::names[1]));
    found.gemm = reinterpret_cast<decltype(found.gemm)>(dlsym(opened, Library::names[2]));
    found.status_text =
        reinterpret_cast<decltype(found.status_text)>(dlsym(opened, Library::names[3]));
    if (!found.create || !found.set_stream || !found.gemm || !found.status_text) {
        dlclose(opened);
        return status_error(STATUS_UNSUPPORTED,
                            "the library at %s is not " GPU_LIBRARY ", or its version is too old",
                            path);
    }
    pthread_mutex_lock(&mutex);
    library = found;
    pthread_mutex_unlock(&mutex);
    return status_ok();
}
