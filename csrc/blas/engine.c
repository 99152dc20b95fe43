#define _GNU_SOURCE /* dladdr */
#include "engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../core/offered_engine.h"
#include "settings.h"

typedef enum { CLOSED, OPENING, OPEN, FAILED } State;

/* A forked child of a process that is opening the device stays in OPENING, and does not wait. */
static int state = CLOSED;
static char problem[600] = "the device is being opened"; /* written before state is FAILED */

static const Engine *offered;     /* by the Python extension, if the process has it */
static Engine engine;             /* written before state is OPEN */
static sgemm_kernels_place place; /* the device; the matrices are in host memory */

static void fail(const char *why)
{
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != FAILED) {
        snprintf(problem, sizeof problem, "%s", why);
        __atomic_store_n(&state, FAILED, __ATOMIC_RELEASE);
    }
}

/* Opens the library, which is in this library's folder. */
static bool open_library(void)
{
    Dl_info ours;
    char path[4096];
    if (!dladdr(&engine, &ours)) {
        return false;
    }
    const char *const slash = strrchr(ours.dli_fname, '/');
    const int folder = slash ? (int)(slash - ours.dli_fname + 1) : 0;
    snprintf(path, sizeof path, "%.*slibsgemm_kernels.so", folder, ours.dli_fname);
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fail(dlerror());
        return false;
    }
    engine.find_device =
        (__typeof__(engine.find_device))dlsym(library, "sgemm_kernels_find_device");
    engine.multiply = (__typeof__(engine.multiply))dlsym(library, "sgemm_kernels_multiply");
    engine.allocate = (__typeof__(engine.allocate))dlsym(library, "sgemm_kernels_allocate");
    engine.free = (__typeof__(engine.free))dlsym(library, "sgemm_kernels_free");
    return true;
}

static bool find_device(sgemm_kernels_status *status)
{
    return engine.find_device(settings()->device, &place.device, status) == SGEMM_KERNELS_OK;
}

/* The extension may be of another build, which cannot use the device. */
static bool take_offered(void)
{
    const Engine *const theirs = __atomic_load_n(&offered, __ATOMIC_ACQUIRE);
    if (!theirs) {
        return false;
    }
    engine = *theirs;
    return find_device(NULL);
}

static void open_all(void)
{
    sgemm_kernels_status status;
    if (!take_offered()) {
        if (!open_library()) {
            return;
        }
        if (!find_device(&status)) {
            fail(status.message);
            return;
        }
    }
    __atomic_store_n(&state, OPEN, __ATOMIC_RELEASE);
}

__attribute__((visibility("default"))) OfferEngine sgemm_kernels_blas_offer_0;

void sgemm_kernels_blas_offer_0(const Engine *theirs)
{
    __atomic_store_n(&offered, theirs, __ATOMIC_RELEASE);
}

bool engine_is_open(const char **why)
{
    int closed = CLOSED;
    if (__atomic_compare_exchange_n(&state, &closed, OPENING, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        open_all();
    }
    const int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    *why = now == FAILED ? problem : "the device is being opened";
    return now == OPEN;
}

void engine_give_up(const char *why)
{
    fail(why);
}

/* Copies a triangle of the product, which is row-major, to C. */
static void copy_triangle(const Request *request, const float *product)
{
    const sgemm_kernels_matrix *const C = &request->C;
    const int64_t n = C->rows;
    const float beta = request->beta;
    for (int64_t i = 0; i < n; ++i) {
        /* Row i of the product is also its column i: follow the direction that is contiguous. */
        const bool by_rows = C->col_stride == 1;
        const bool from_diagonal = request->upper == by_rows;
        const int64_t first = from_diagonal ? i : 0, end = from_diagonal ? n : i + 1;
        float *const to = C->data + i * (by_rows ? C->row_stride : C->col_stride);
        const float *const from = product + i * n;
        if (beta == 0.0f) {
            memcpy(to + first, from + first, (size_t)(end - first) * sizeof(float));
            continue;
        }
        for (int64_t j = first; j < end; ++j) {
            to[j] = from[j] + beta * to[j];
        }
    }
}

/* Computes the whole square in memory of its own, so that C is unchanged after a failure. */
static bool compute_syrk(const Request *request, sgemm_kernels_status *status)
{
    const int64_t n = request->C.rows;
    float *const product = engine.allocate(place.device, (size_t)(n * n) * sizeof(float));
    if (!product) {
        *status = (sgemm_kernels_status){SGEMM_KERNELS_OUT_OF_MEMORY, 0, "out of host memory"};
        return false;
    }
    const sgemm_kernels_matrix out = {product, n, n, n, 1};
    const int code = engine.multiply(settings()->variant, &place, request->alpha, &request->A,
                                     &request->B, 0.0f, NULL, &out, status);
    status->out_changed = 0;
    if (code == SGEMM_KERNELS_OK) {
        copy_triangle(request, product);
    }
    engine.free(product);
    return code == SGEMM_KERNELS_OK;
}

bool engine_compute(const Request *request, sgemm_kernels_status *status)
{
    if (request->is_syrk) {
        return compute_syrk(request, status);
    }
    return engine.multiply(settings()->variant, &place, request->alpha, &request->A, &request->B,
                           request->beta, &request->C, &request->C, status) == SGEMM_KERNELS_OK;
}
