/* NVIDIA GPUs through the CUDA runtime, or AMD GPUs through HIP. */
#include "../../base/cuda/failures.h"
#include "../device.h"
#include "device_arrays.h"
#include "session.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

/* The process that first used CUDA successfully, or 0. The driver's state does not survive a
 * fork. */
static std::atomic<pid_t> cuda_process{0};

/* True if this process was forked after the package was loaded. */
static std::atomic<bool> is_child{false};

static void note_fork()
{
    is_child = true;
}

__attribute__((constructor)) static void look_out_for_forks()
{
    pthread_atfork(nullptr, nullptr, note_fork);
}

/* Cached, so that small calls need not query the driver: the number of GPUs, their compute
 * capabilities as major * 10 + minor, and whether this build can use them. */
static std::atomic<int> known_count{0}, known_capability[most_devices];
static std::atomic<bool> known_usable[most_devices];

static Status failed(const char *what, cudaError_t error)
{
    cudaGetLastError(); /* clears an error that is not sticky */
    return status_error(STATUS_DEVICE, "%s failed: %s (%s)", what, cudaGetErrorString(error),
                        cudaGetErrorName(error));
}

static Status forked()
{
    return status_error(
        STATUS_DEVICE,
        "this process was forked from one that had used the GPU, and " GPU_API
        " does not survive a fork: "
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
                            "no " GPU_MAKER " driver is installed, or it is not visible here");
    }
    char serves[16], needs[16];
    version_text(driver, serves, sizeof serves);
    version_text(CUDART_VERSION, needs, sizeof needs);
    return status_error(STATUS_UNSUPPORTED,
                        "the " GPU_MAKER " driver is too old: it supports " GPU_API
                        " %s and this build needs %s; "
                        "update the driver, "
                        "or build with an older toolkit (SGEMM_KERNELS_" GPU_API "=<path>)",
                        serves, needs);
}

/* True if this process is a fork of one that had used CUDA. */
static bool is_child_of_user()
{
    const pid_t user = cuda_process;
    return user != 0 && user != getpid();
}

Status cuda_reachable(void)
{
    return is_child_of_user() ? forked() : status_ok();
}

static int count(Status *why)
{
    *why = cuda_reachable();
    if (why->code != STATUS_OK) {
        return -1;
    }
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
        *why = status_error(STATUS_UNSUPPORTED, "the " GPU_MAKER " driver shows no GPU%s",
                            getenv(GPU_VISIBLE) ? " (" GPU_VISIBLE " is set)" : "");
    } else if (error == cudaErrorInsufficientDriver) {
        *why = no_usable_driver();
    } else if (error == cudaErrorInitializationError && is_child) {
        /* CUDA reports this in a forked child if another library had used it in the parent. */
        *why = forked();
        return -1;
    } else {
        *why = failed("looking for GPUs", error);
    }
    return 0;
}

#ifdef SGEMM_HIP
/* A GPU's architecture without the feature suffixes, for example "gfx90a". */
static void architecture_of(const cudaDeviceProp &properties, char *name, size_t bytes)
{
    const char *const full = properties.gcnArchName;
    snprintf(name, bytes, "%.*s", static_cast<int>(strcspn(full, ":")), full);
}

/* Success if one of the architectures, as in "gfx900 gfx90a", is the GPU's. */
static Status runs_on(const char *architectures, int index)
{
    cudaDeviceProp properties;
    char name[16];
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) {
        return failed("querying a GPU's properties", error);
    }
    architecture_of(properties, name, sizeof name);
    const size_t length = strlen(name);
    for (const char *word = architectures; *word;
         word += strcspn(word, " "), word += strspn(word, " ")) {
        if (strcspn(word, " ") == length && strncmp(word, name, length) == 0) {
            return status_ok();
        }
    }
    return status_error(STATUS_UNSUPPORTED,
                        "this build has no code for the GPU: it is a %s, and the build has code "
                        "for %s; build with SGEMM_KERNELS_ARCHS=%s",
                        name, architectures, name);
}
#else
/* True if this build has machine code for compute capability major.minor, or PTX that the driver
 * can compile for it. `architectures` is a list such as "sm_75 sm_90 compute_90". PTX for less than
 * 9.0 serves only its own major version: it lacks the instructions of kernels that need more. */
static bool runs_on(const char *architectures, int major, int minor)
{
    int number;
    for (const char *word = architectures; *word;
         word += strcspn(word, " "), word += strspn(word, " ")) {
        if (sscanf(word, "sm_%d", &number) == 1 && number / 10 == major && number % 10 <= minor) {
            return true;
        }
        if (sscanf(word, "compute_%d", &number) == 1 && number <= major * 10 + minor &&
            (number >= 90 || number / 10 == major)) {
            return true;
        }
    }
    return false;
}
#endif

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
            return failed("querying a GPU's compute capability", error);
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
#ifdef SGEMM_HIP
    const Status status = runs_on(SGEMM_ARCHITECTURES, index);
    if (status.code == STATUS_OK && index < most_devices) {
        known_usable[index] = true;
    }
    return status;
#else
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
                        "%s: it has compute capability %d.%d, and the build has code for %s; "
                        "build with SGEMM_KERNELS_ARCHS=%d%d",
                        major * 10 + minor < 75 ? "the GPU is too old for this build"
                                                : "this build has no code for the GPU",
                        major, minor, SGEMM_ARCHITECTURES, major, minor);
#endif
}

static Status describe(int index, DeviceInfo *info)
{
    *info = {};
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) {
        return failed("querying a GPU's properties", error);
    }
#ifdef SGEMM_HIP
    char architecture[16];
    architecture_of(properties, architecture, sizeof architecture);
    snprintf(info->model, sizeof info->model, "%.200s (%s)", properties.name, architecture);
#else
    snprintf(info->model, sizeof info->model, "%s", properties.name);
    compute_capability(index, info->compute_capability);
#endif
    snprintf(info->problem, sizeof info->problem, "%s", usable(index).message);
    info->multiprocessors = properties.multiProcessorCount;
    info->fused_multiply_add = true;
    info->clock_mhz = attribute(cudaDevAttrClockRate, index) / 1000;
    info->memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, index) / 1000;
    info->memory_bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth, index);
    info->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    info->l2_bytes = properties.l2CacheSize;
    info->shared_bytes_per_multiprocessor =
        attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, index);
    info->registers_per_multiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor, index);
    int driver = 0;
    cudaDriverGetVersion(&driver);
    version_text(driver, info->driver, sizeof info->driver);
    cudaDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, index);
    return status_ok();
}

static bool pin(int index, void *memory, size_t bytes)
{
    if (session_open(index).code != STATUS_OK) {
        return false;
    }
    const bool pinned =
        cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) ==
        cudaSuccess;
    cudaGetLastError();
    session_close();
    return pinned;
}

static bool unpin(int index, void *memory)
{
    if (session_open(index).code != STATUS_OK) {
        return false;
    }
    const bool unpinned = cudaHostUnregister(memory) == cudaSuccess;
    cudaGetLastError();
    session_close();
    return unpinned;
}

/* host_arrays.cu */
extern "C" Status cuda_multiply(const struct Product *product);
/* device_arrays.cu */
extern "C" Status cuda_queue(const struct Product *product, const struct Batch *batch,
                             void *stream);
extern "C" Status cuda_queue_many(const struct Product *products, int64_t count, void *stream);
/* measure.cu */
extern "C" Status cuda_measure(const Measurement *measurement);
extern "C" Status cuda_measure_copies(const Measurement *measurement);

extern const Device cuda_device = {
    .name = GPU_KIND,
    .count = count,
    .usable = usable,
    .compute_capability = compute_capability,
    .runs_16bit = nullptr,
    .describe = describe,
    .multiply = cuda_multiply,
    .multiply_many = nullptr,
    .pin = pin,
    .unpin = unpin,
    .measure = cuda_measure,
    .measure_copies = cuda_measure_copies,
    .give_idle_back = cuda_give_idle_back,
    .queue = cuda_queue,
    .queue_many = cuda_queue_many,
    .arrays = &cuda_arrays,
};
