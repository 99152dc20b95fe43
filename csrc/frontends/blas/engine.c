#define _GNU_SOURCE /* dladdr1 */
#include "engine.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../c/offered_engine.h"
#include "apart.h"
#include "settings.h"

typedef enum { CLOSED, OPENING, OPEN, FAILED } State;

/* A forked child of a process that is opening the device stays in OPENING, and does not wait. */
static int state = CLOSED;
static char problem[600] = "the device is being opened"; /* written before state is FAILED */

static const Engine *offered; /* by the Python extension, if the process has it */

/* The functions, and where they compute. The matrices are in host memory. */
typedef struct {
    Engine functions;
    sgemm_kernels_place place;
} Opened;
static Opened chosen; /* the device of the settings; written before state is OPEN */

static void fail(const char *why)
{
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != FAILED) {
        snprintf(problem, sizeof problem, "%s", why);
        __atomic_store_n(&state, FAILED, __ATOMIC_RELEASE);
    }
}

/* The path of libsgemm_kernels.so, which is in this library's folder. NULL without memory. The
 * program may have named this library by a relative path and then changed its folder, or by a
 * symbolic link. */
static char *library_path(void)
{
    Dl_info ours;
    struct link_map *map;
    char *const path = malloc(2 * PATH_MAX), *whole = NULL;
    if (path && dladdr1(&chosen, &ours, (void **)&map, RTLD_DL_LINKMAP) &&
        dlinfo(map, RTLD_DI_ORIGIN, path) == 0) {
        const char *const slash = strrchr(ours.dli_fname, '/');
        strcat(strcat(path, "/"), slash ? slash + 1 : ours.dli_fname);
        whole = realpath(path, NULL);
    }
    if (whole) {
        char *const slash = strrchr(whole, '/');
        snprintf(path, 2 * PATH_MAX, "%.*s/libsgemm_kernels.so", (int)(slash - whole), whole);
        free(whole);
    }
    return path;
}

/* Returns why it failed, or NULL. */
static const char *open_library(Engine *functions)
{
    char *const path = library_path();
    void *const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    free(path);
    if (!library) {
        const char *const error = dlerror();
        return error ? error : "out of memory";
    }
    functions->find_device =
        (__typeof__(functions->find_device))dlsym(library, "sgemm_kernels_find_device");
    functions->multiply = (__typeof__(functions->multiply))dlsym(library, "sgemm_kernels_multiply");
    functions->allocate = (__typeof__(functions->allocate))dlsym(library, "sgemm_kernels_allocate");
    functions->free = (__typeof__(functions->free))dlsym(library, "sgemm_kernels_free");
    return NULL;
}

static bool find_device(sgemm_kernels_status *status)
{
    return chosen.functions.find_device(settings()->device, &chosen.place.device, status) ==
           SGEMM_KERNELS_OK;
}

static bool take_offered(Engine *functions)
{
    const Engine *const theirs = __atomic_load_n(&offered, __ATOMIC_ACQUIRE);
    if (theirs) {
        *functions = *theirs;
    }
    return theirs;
}

static void *open_all(void *unused)
{
    sgemm_kernels_status status;
    /* The extension may be of another build, which cannot use the device. */
    if (!take_offered(&chosen.functions) || !find_device(NULL)) {
        const char *const error = open_library(&chosen.functions);
        if (error) {
            fail(error);
            return unused;
        }
        if (!find_device(&status)) {
            fail(status.message);
            return unused;
        }
    }
    __atomic_store_n(&state, OPEN, __ATOMIC_RELEASE);
    return unused;
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
        apart_run(open_all, NULL);
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
static bool compute_syrk(const Opened *opened, const char *variant, const Request *request,
                         sgemm_kernels_status *status)
{
    const Engine *const engine = &opened->functions;
    const int64_t n = request->C.rows;
    float *const product = engine->allocate(opened->place.device, (size_t)(n * n) * sizeof(float));
    if (!product) {
        *status = (sgemm_kernels_status){SGEMM_KERNELS_OUT_OF_MEMORY, 0, "out of host memory"};
        return false;
    }
    const sgemm_kernels_matrix out = {product, n, n, n, 1};
    const int code = engine->multiply(variant, &opened->place, request->alpha, &request->A,
                                      &request->B, 0.0f, NULL, &out, status);
    status->out_changed = 0;
    if (code == SGEMM_KERNELS_OK) {
        copy_triangle(request, product);
    }
    engine->free(product);
    return code == SGEMM_KERNELS_OK;
}

/* A product to compute. */
typedef struct {
    const Opened *opened;
    const char *variant;
    const Request *request;
    sgemm_kernels_status *status;
    bool done; /* the result: whether it succeeded */
} Work;

static void *compute(void *context)
{
    Work *const work = context;
    const Request *const r = work->request;
    work->done = r->is_syrk
                     ? compute_syrk(work->opened, work->variant, r, work->status)
                     : work->opened->functions.multiply(work->variant, &work->opened->place,
                                                        r->alpha, &r->A, &r->B, r->beta, &r->C,
                                                        &r->C, work->status) == SGEMM_KERNELS_OK;
    return NULL;
}

static bool compute_on(const Opened *opened, const char *variant, const Request *request,
                       sgemm_kernels_status *status)
{
    Work work = {opened, variant, request, status, false};
    if (apart_is_needed()) {
        apart_run(compute, &work);
    } else {
        compute(&work);
    }
    return work.done;
}

bool engine_compute(const Request *request, sgemm_kernels_status *status)
{
    return compute_on(&chosen, settings()->variant, request, status);
}

static Opened on_cpu = {.place = {.device = SGEMM_KERNELS_CPU}};
static char cpu_problem[600];

static void *open_cpu(void *unused)
{
    const char *const error =
        take_offered(&on_cpu.functions) ? NULL : open_library(&on_cpu.functions);
    snprintf(cpu_problem, sizeof cpu_problem, "%s", error ? error : "");
    return unused;
}

static void open_cpu_once(void)
{
    apart_run(open_cpu, NULL);
}

bool engine_compute_on_cpu(const Request *request, sgemm_kernels_status *status)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_cpu_once);
    if (!on_cpu.functions.multiply) {
        *status = (sgemm_kernels_status){.code = SGEMM_KERNELS_DEVICE};
        snprintf(status->message, sizeof status->message, "%.500s", cpu_problem);
        return false;
    }
    return compute_on(&on_cpu, "auto", request, status);
}
