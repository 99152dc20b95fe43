/* NVIDIA GPUs as devices, by the CUDA runtime. Each calling thread has a stream of its own. */
#include "../core/device.h"
#include "allocator.h"
#include "copy.h"
#include "device_arrays.h"
#include "device_buffer.h"
#include "failures.h"

#include <cuda.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

/* The process in which CUDA was first found to work, or 0: a driver's state does not survive a
 * fork. */
static std::atomic<pid_t> cuda_process{0};

/* Whether this process was forked since the package was loaded. */
static std::atomic<bool> is_child{false};

static void note_fork()
{
    is_child = true;
}

__attribute__((constructor)) static void look_out_for_forks()
{
    pthread_atfork(nullptr, nullptr, note_fork);
}

/* What does not change once it is known, so that small calls need not ask: how many GPUs there are,
 * their compute capabilities, as major * 10 + minor, and whether this build can use them. */
static std::atomic<int> known_count{0}, known_capability[most_devices];
static std::atomic<bool> known_usable[most_devices];

static Status failed(const char *what, cudaError_t error)
{
    cudaGetLastError(); /* a failure that is not sticky ends here */
    return status_error(STATUS_DEVICE, "%s failed: %s (%s)", what, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

static Status forked()
{
    return status_error(
        STATUS_DEVICE,
        "this process was forked from one that had used the GPU, and CUDA does not survive a fork: "
        "start workers by multiprocessing.get_context('spawn') or 'forkserver', fork before the "
        "first "
        "use of the GPU, or pass device='cpu'");
}

static void version_text(int version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

static Status no_usable_driver()
{
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
        return status_error(STATUS_UNSUPPORTED,
                            "no NVIDIA driver is installed, or it is not visible here");
    }
    char serves[16], needs[16];
    version_text(driver, serves, sizeof serves);
    version_text(CUDART_VERSION, needs, sizeof needs);
    return status_error(STATUS_UNSUPPORTED,
                        "the NVIDIA driver is too old: it serves CUDA %s and this build needs %s; "
                        "update the driver, "
                        "or build with an older toolkit (SGEMM_KERNELS_CUDA=<path>)",
                        serves, needs);
}

/* Whether CUDA was found to work before a fork made this process. */
static bool is_child_of_user()
{
    const pid_t user = cuda_process;
    return user != 0 && user != getpid();
}

static int count(Status *why)
{
    if (is_child_of_user()) {
        *why = forked();
        return -1;
    }
    *why = status_ok();
    if (cuda_process != 0) {
        return known_count;
    }
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    cudaGetLastError();
    if (error == cudaSuccess && devices > 0) {
        known_count = devices;
        cuda_process = getpid();
        return devices;
    }
    if (error == cudaSuccess || error == cudaErrorNoDevice) {
        *why = status_error(STATUS_UNSUPPORTED, "the NVIDIA driver shows no GPU%s",
                            getenv("CUDA_VISIBLE_DEVICES") ? " (CUDA_VISIBLE_DEVICES is set)" : "");
    } else if (error == cudaErrorInsufficientDriver) {
        *why = no_usable_driver();
    } else if (error == cudaErrorInitializationError && is_child) {
        /* What CUDA says in a child of a process in which another library had used it. */
        *why = forked();
        return -1;
    } else {
        *why = failed("looking for GPUs", error);
    }
    return 0;
}

/* Whether machine code in this build runs on compute capability major.minor, or code in it that the
 * driver can compile for it: architectures is a list as "sm_75 sm_90 compute_90". */
static bool runs_on(const char *architectures, int major, int minor)
{
    int number;
    for (const char *word = architectures; *word;
         word += strcspn(word, " "), word += strspn(word, " ")) {
        if (sscanf(word, "sm_%d", &number) == 1 && number / 10 == major && number % 10 <= minor) {
            return true;
        }
        if (sscanf(word, "compute_%d", &number) == 1 && number <= major * 10 + minor) {
            return true;
        }
    }
    return false;
}

static int attribute(cudaDeviceAttr name, int index)
{
    int value = 0;
    cudaDeviceGetAttribute(&value, name, index);
    return value;
}

static Status find_capability(int index, int capability[2])
{
    int known = index < most_devices ? known_capability[index].load() : 0;
    if (known == 0) {
        int major = 0, minor = 0;
        cudaError_t error =
            cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
        error = error == cudaSuccess
                    ? cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index)
                    : error;
        if (error != cudaSuccess) {
            return failed("asking for a GPU's compute capability", error);
        }
        known = major * 10 + minor;
        if (index < most_devices) {
            known_capability[index] = known;
        }
    }
    capability[0] = known / 10;
    capability[1] = known % 10;
    return status_ok();
}

static void compute_capability(int index, int capability[2])
{
    capability[0] = capability[1] = 0;
    find_capability(index, capability);
}

static Status usable(int index)
{
    if (index < most_devices && known_usable[index]) {
        return status_ok();
    }
    int capability[2];
    const Status found = find_capability(index, capability);
    if (found.code != STATUS_OK) {
        return found;
    }
    const int major = capability[0], minor = capability[1];
    if (runs_on(SGEMM_ARCHITECTURES, major, minor)) {
        if (index < most_devices) {
            known_usable[index] = true;
        }
        return status_ok();
    }
    return status_error(STATUS_UNSUPPORTED,
                        "the GPU is %s for this build: it has compute capability %d.%d, and the "
                        "build has code for %s; "
                        "build with SGEMM_KERNELS_ARCHS=%d%d",
                        major * 10 + minor < 75 ? "too old" : "not served", major, minor,
                        SGEMM_ARCHITECTURES, major, minor);
}

static Status describe(int index, DeviceInfo *info)
{
    *info = {};
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) {
        return failed("asking for a GPU's properties", error);
    }
    snprintf(info->model, sizeof info->model, "%s", properties.name);
    snprintf(info->problem, sizeof info->problem, "%s", usable(index).message);
    compute_capability(index, info->compute_capability);
    info->multiprocessors = properties.multiProcessorCount;
    info->fused_multiply_add = true;
    info->clock_mhz = attribute(cudaDevAttrClockRate, index) / 1000;
    info->memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, index) / 1000;
    info->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    info->l2_bytes = properties.l2CacheSize;
    info->shared_bytes_per_multiprocessor =
        static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
    info->registers_per_multiprocessor = properties.regsPerMultiprocessor;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    version_text(driver, info->driver, sizeof info->driver);
    cudaDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, index);
    return status_ok();
}

/* The driver's own way to make a device current, after which is current what was so before, if that
 * was nothing at all, or a context of the caller's. To go back by cudaSetDevice would make a context
 * on a GPU that this process has not used, which takes hundreds of megabytes there. */
struct Driver {
    decltype(&cuDeviceGet) device_get;
    decltype(&cuDevicePrimaryCtxRetain) retain;
    decltype(&cuCtxPushCurrent) push;
    decltype(&cuCtxPopCurrent) pop;
};
static Driver driver; /* written once, before the first context is known */
static pthread_mutex_t driver_mutex = PTHREAD_MUTEX_INITIALIZER;
static std::atomic<CUcontext> known_context[most_devices]; /* kept for good; the driver is known */

template <class Function> static cudaError_t find_function(const char *name, Function *function)
{
    cudaDriverEntryPointQueryResult found;
    void **const address = reinterpret_cast<void **>(function);
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, address, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, address, cudaEnableDefault, &found);
#endif
    return error == cudaSuccess && !*address ? cudaErrorSymbolNotFound : error;
}

static cudaError_t find_driver()
{
    Driver found;
    cudaError_t error = find_function("cuDeviceGet", &found.device_get);
    error = error == cudaSuccess ? find_function("cuDevicePrimaryCtxRetain", &found.retain) : error;
    error = error == cudaSuccess ? find_function("cuCtxPushCurrent", &found.push) : error;
    error = error == cudaSuccess ? find_function("cuCtxPopCurrent", &found.pop) : error;
    if (error == cudaSuccess) {
        driver = found;
    }
    return error;
}

/* The context of a device that the CUDA runtime of every library in this process uses. */
static cudaError_t find_context(int index)
{
    CUdevice device;
    CUcontext context;
    pthread_mutex_lock(&driver_mutex);
    cudaError_t error = driver.pop ? cudaSuccess : find_driver();
    if (error == cudaSuccess && !known_context[index]) {
        /* The driver's errors have the runtime's numbers. */
        error = static_cast<cudaError_t>(driver.device_get(&device, index));
        error = error == cudaSuccess ? static_cast<cudaError_t>(driver.retain(&context, device))
                                     : error;
        if (error == cudaSuccess) {
            known_context[index] = context;
        }
    }
    pthread_mutex_unlock(&driver_mutex);
    return error;
}

static Status open(int index, Session *session)
{
    *session = {index, cudaStreamPerThread};
    const Status works = is_child_of_user() ? forked() : device_works(index);
    if (works.code != STATUS_OK) {
        return works;
    }
    cudaError_t error = known_context[index] ? cudaSuccess : find_context(index);
    if (error == cudaSuccess) {
        error = static_cast<cudaError_t>(driver.push(known_context[index]));
    }
    return device_checked(index, "making the GPU current", error);
}

static void close(Session *)
{
    CUcontext ours;
    driver.pop(&ours);
}

static Status allocate(Session *session, int64_t rows, int64_t cols, bool column_major,
                       Matrix *matrix)
{
    const int64_t ld = leading_dimension(column_major ? rows : cols);
    const int64_t lines = column_major ? cols : rows;
    *matrix = {nullptr, rows, cols, column_major ? 1 : ld, column_major ? ld : 1};
    if (ld == 0 || lines == 0) {
        return status_ok();
    }
    const bool countable = lines <= INT64_MAX / static_cast<int64_t>(sizeof(float)) / ld;
    const size_t bytes =
        countable ? static_cast<size_t>(lines) * static_cast<size_t>(ld) * sizeof(float) : SIZE_MAX;
    void *memory = nullptr;
    const Status status = allocator_take(session->index, bytes, nullptr, &memory);
    matrix->data = static_cast<float *>(memory);
    if (status.code != STATUS_OUT_OF_MEMORY) {
        return status;
    }
    return status_error(STATUS_OUT_OF_MEMORY, "no room for %lld x %lld float32: %.400s",
                        static_cast<long long>(rows), static_cast<long long>(cols), status.message);
}

static void release(Session *session, Matrix *matrix)
{
    allocator_give(session->index, matrix->data);
    matrix->data = nullptr;
}

/* Copies as many lines of as many elements, in as few calls as the copy engine's pitch allows. */
static cudaError_t copy_lines(float *to, int64_t to_ld, const float *from, int64_t from_ld,
                              int64_t length, int64_t lines, cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    const size_t line_bytes = static_cast<size_t>(length) * sizeof(float);
    if (length == 0 || lines == 0) {
        return cudaSuccess;
    }
    if (lines == 1 || (to_ld == length && from_ld == length)) {
        return cudaMemcpyAsync(to, from, line_bytes * static_cast<size_t>(lines), kind, stream);
    }
    const int64_t longest =
        (to_ld > from_ld ? to_ld : from_ld) * static_cast<int64_t>(sizeof(float));
    if (longest <= INT_MAX) {
        return cudaMemcpy2DAsync(to, static_cast<size_t>(to_ld) * sizeof(float), from,
                                 static_cast<size_t>(from_ld) * sizeof(float), line_bytes,
                                 static_cast<size_t>(lines), kind, stream);
    }
    cudaError_t error = cudaSuccess;
    for (int64_t line = 0; line < lines && error == cudaSuccess; ++line) {
        error = cudaMemcpyAsync(to + line * to_ld, from + line * from_ld, line_bytes, kind, stream);
    }
    return error;
}

cudaError_t queue_matrix_copy(const Matrix *to, const Matrix *from, cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    if (to->col_stride == 1 && from->col_stride == 1) {
        return copy_lines(to->data, to->row_stride, from->data, from->row_stride, to->cols,
                          to->rows, kind, stream);
    }
    return copy_lines(to->data, to->col_stride, from->data, from->col_stride, to->rows, to->cols,
                      kind, stream);
}

static Status upload(Session *session, const Matrix *device, const Matrix *host)
{
    return device_checked(session->index, "copying from the host",
                          queue_matrix_copy(device, host, cudaMemcpyHostToDevice,
                                            static_cast<cudaStream_t>(session->stream)));
}

static Status download(Session *session, const Matrix *host, const Matrix *device)
{
    return device_checked(session->index, "copying to the host",
                          queue_matrix_copy(host, device, cudaMemcpyDeviceToHost,
                                            static_cast<cudaStream_t>(session->stream)));
}

static Status finish(Session *session)
{
    return device_checked(session->index, "computing",
                          cudaStreamSynchronize(static_cast<cudaStream_t>(session->stream)));
}

static bool pin(int index, void *memory, size_t bytes)
{
    Session session;
    if (open(index, &session).code != STATUS_OK) {
        return false;
    }
    const bool pinned =
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) ==
        cudaSuccess;
    cudaGetLastError();
    close(&session);
    return pinned;
}

static void unpin(int index, void *memory)
{
    Session session;
    if (open(index, &session).code == STATUS_OK) {
        cudaHostUnregister(memory);
        cudaGetLastError();
        close(&session);
    }
}

/* host_arrays.cu */
extern "C" Status cuda_multiply(const struct Product *product);
/* measure.cu */
extern "C" Status cuda_measure(const Measurement *measurement);
extern "C" Status cuda_measure_copies(const Measurement *measurement);

extern const Device cuda_device = {
    .name = "cuda",
    .count = count,
    .usable = usable,
    .compute_capability = compute_capability,
    .describe = describe,
    .multiply = cuda_multiply,
    .open = open,
    .close = close,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .finish = finish,
    .pin = pin,
    .unpin = unpin,
    .measure = cuda_measure,
    .measure_copies = cuda_measure_copies,
    .give_idle_back = cuda_give_idle_back,
    .arrays = &cuda_arrays,
};
