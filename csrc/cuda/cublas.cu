/* cuBLAS as the reference above the ladder, in true single precision, and, to be measured alone, in
 * TF32. The library is opened when it is first asked for, so that neither building nor importing
 * needs it; what is used of it is declared here. */
#include <dlfcn.h>
#include <library_types.h>
#include <pthread.h>

#include "../core/device.h"

namespace {

constexpr int max_devices = 64;
constexpr int no_transpose = 0, transpose = 1; /* cublasOperation_t */
constexpr int pedantic_float32 = 69;           /* CUBLAS_COMPUTE_32F_PEDANTIC */
constexpr int fast_tf32 = 77;                  /* CUBLAS_COMPUTE_32F_FAST_TF32 */
constexpr int default_algorithm = -1;          /* CUBLAS_GEMM_DEFAULT */

typedef struct cublasContext *Handle;

struct Cublas {
    int (*create)(Handle *);
    int (*set_stream)(Handle, cudaStream_t);
    int (*gemm)(Handle, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha,
                const void *A, cudaDataType Atype, int64_t lda, const void *B, cudaDataType Btype,
                int64_t ldb, const void *beta, void *C, cudaDataType Ctype, int64_t ldc,
                int compute_type, int algorithm);
    const char *(*status_text)(int);
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Cublas cublas;
Handle handles[max_devices];
cudaEvent_t last_use[max_devices];

Status failed(const char *what, int error)
{
    return status_error(STATUS_DEVICE, "cuBLAS could not %s: %s", what, cublas.status_text(error));
}

/* A handle holds scratch memory, so calls from several streams follow one another on the device. */
Status open_handle(int device)
{
    if (handles[device]) {
        return status_ok();
    }
    const cudaError_t error =
        last_use[device] ? cudaSuccess
                         : cudaEventCreateWithFlags(&last_use[device], cudaEventDisableTiming);
    if (error != cudaSuccess) {
        return status_error(STATUS_DEVICE, "an event for cuBLAS could not be made: %s",
                            cudaGetErrorString(error));
    }
    const int result = cublas.create(&handles[device]);
    return result == 0 ? status_ok() : failed("begin", result);
}

/* cuBLAS thinks in columns: it is asked for C^T = B^T A^T. An operand of ours that is stored by
 * rows is, to it, its own transpose, and needs no transposing. */
struct Stored {
    int operation;
    int64_t ld;
};

/* BLAS wants a leading dimension no shorter than a line, of a matrix of one line too, where nothing
 * is ever that far apart. */
Stored stored(const Matrix &X)
{
    const bool by_rows = X.col_stride == 1;
    const int64_t length = by_rows ? X.cols : X.rows, lines = by_rows ? X.rows : X.cols;
    const int64_t apart = by_rows ? X.row_stride : X.col_stride;
    const int64_t shortest = length > 1 ? length : 1;
    return {by_rows ? no_transpose : transpose, lines <= 1 || length == 0 ? shortest : apart};
}

Status gemm(const Sgemm &p, int compute_type, int device, cudaStream_t stream)
{
    Status status = open_handle(device);
    if (status.code != STATUS_OK) {
        return status;
    }
    const Stored a = stored(p.A), b = stored(p.B), c = stored(p.C);
    cudaStreamWaitEvent(stream, last_use[device], 0);
    int result = cublas.set_stream(handles[device], stream);
    if (result == 0) {
        result =
            cublas.gemm(handles[device], b.operation, a.operation, p.C.cols, p.C.rows, p.A.cols,
                        &p.alpha, p.B.data, CUDA_R_32F, b.ld, p.A.data, CUDA_R_32F, a.ld, &p.beta,
                        p.C.data, CUDA_R_32F, c.ld, compute_type, default_algorithm);
    }
    cudaEventRecord(last_use[device], stream);
    return result == 0 ? status_ok() : failed("multiply", result);
}

Status launch(const Sgemm *problem, int compute_type, const Launch *where)
{
    if (where->device >= max_devices) {
        return status_error(STATUS_UNSUPPORTED, "cublas serves the first %d GPUs", max_devices);
    }
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(static_cast<cudaStream_t>(where->stream), &capture);
    if (capture != cudaStreamCaptureStatusNone) {
        return status_error(
            STATUS_INVALID,
            "cublas works in memory that its calls on a GPU have in common, one after "
            "another, which a CUDA graph cannot keep to: capture another variant");
    }
    pthread_mutex_lock(&mutex);
    const Status status =
        gemm(*problem, compute_type, where->device, static_cast<cudaStream_t>(where->stream));
    pthread_mutex_unlock(&mutex);
    return status;
}

} // namespace

extern "C" Status launch_cublas_cuda(const Sgemm *problem, const Launch *where)
{
    return launch(problem, pedantic_float32, where);
}

extern "C" Status launch_cublas_tf32_cuda(const Sgemm *problem, const Launch *where)
{
    return launch(problem, fast_tf32, where);
}

extern "C" bool cublas_is_open(void)
{
    pthread_mutex_lock(&mutex);
    const bool open = cublas.gemm != nullptr;
    pthread_mutex_unlock(&mutex);
    return open;
}

extern "C" Status cublas_open(const char *path)
{
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return status_error(STATUS_UNSUPPORTED, "cuBLAS could not be opened: %s", dlerror());
    }
    Cublas found = {};
    found.create = reinterpret_cast<decltype(found.create)>(dlsym(library, "cublasCreate_v2"));
    found.set_stream =
        reinterpret_cast<decltype(found.set_stream)>(dlsym(library, "cublasSetStream_v2"));
    found.gemm = reinterpret_cast<decltype(found.gemm)>(dlsym(library, "cublasGemmEx_64"));
    found.status_text =
        reinterpret_cast<decltype(found.status_text)>(dlsym(library, "cublasGetStatusString"));
    if (!found.create || !found.set_stream || !found.gemm || !found.status_text) {
        dlclose(library);
        return status_error(STATUS_UNSUPPORTED, "the cuBLAS library at %s is older than CUDA 12",
                            path);
    }
    pthread_mutex_lock(&mutex);
    cublas = found;
    pthread_mutex_unlock(&mutex);
    return status_ok();
}
