#define _GNU_SOURCE /* clock_gettime */
#include "request.h"

#include <stdlib.h>
#include <time.h>

#include "engine.h"
#include "estimate.h"
#include "log.h"
#include "own_blas.h"
#include "say.h"
#include "settings.h"

#define BLAS_NAME(name) #name,
const char *const entry_names[BLAS_ENTRY_COUNT] = {BLAS_ENTRIES(BLAS_NAME)};
#undef BLAS_NAME

/* Opening a GPU takes less than this (0.13 s on an H100), but also memory. Until the products so
 * far would have gained as much, they are passed on: a short program never opens it. */
static const double opening_s = 0.25;
static double missed_s; /* what the products that were passed on would have gained */

/* The first products on a device also load kernels and pin memory. */
enum { UNTIMED = 3 };
static int computed;

/* The call of this thread that is being passed on. Its frame is NULL if there is none. A longjmp
 * out of the program's own BLAS, such as from its error handler, leaves it here. */
static _Thread_local struct {
    const char *frame;
    Own own;
} passing_on;

/* Some libraries call sgemm_ in their cblas_sgemm: that call is part of one that was passed on. Its
 * frame is deeper in the stack, and its caller is in the library. */
static bool is_part_of_another(const Request *request)
{
    const char *const frame = __builtin_frame_address(0);
    return frame < passing_on.frame && own_contains(&passing_on.own, request->caller);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool has_gained(double gain)
{
    double before, after;
    __atomic_load(&missed_s, &before, __ATOMIC_RELAXED);
    after = before + gain;
    __atomic_store(&missed_s, &after, __ATOMIC_RELAXED);
    return after >= opening_s;
}

#ifdef SGEMM_CUDA
static const bool has_gpu_code = true;
#else
static const bool has_gpu_code = false;
#endif

/* Why the product is passed on; NULL if it is computed here. */
static const char *reason_to_pass_on(const Request *request)
{
    const Settings *const s = settings();
    const char *why;
    if (!s->on_cpu && !has_gpu_code) {
        return s->device && !engine_is_open(&why) ? why : "this build has no GPU support";
    }
    if (s->has_min || s->on_cpu) {
        if (request_flops(request) < s->min) {
            return "smaller than SGEMM_KERNELS_BLAS_MIN";
        }
    } else {
        const double gain = estimate_own(request) - estimate_here(request);
        if (gain <= 0) {
            return "faster in the program's own BLAS";
        }
        if (!has_gained(gain)) {
            return "would gain less than opening the GPU takes";
        }
    }
    return engine_is_open(&why) ? NULL : why;
}

/* Computes the product here. False, with the reason in *status, if it failed and C is unchanged or
 * need not be kept. */
static bool compute(const Request *request, sgemm_kernels_status *status)
{
    const double begin = now();
    if (engine_compute(request, status)) {
        const double seconds = now() - begin;
        if (__atomic_fetch_add(&computed, 1, __ATOMIC_RELAXED) >= UNTIMED) {
            estimate_learn_here(request, seconds);
        }
        log_note(request, true, "computed here", seconds);
        return true;
    }
    if (status->out_changed && request->beta != 0.0f) {
        say("the product M=%lld N=%lld K=%lld failed when a part of C was already overwritten, and "
            "beta is not 0, so C is lost: %s",
            (long long)request->C.rows, (long long)request->C.cols, (long long)request->A.cols,
            status->message);
        abort();
    }
    if (status->code == SGEMM_KERNELS_DEVICE || status->code == SGEMM_KERNELS_UNSUPPORTED ||
        status->code == SGEMM_KERNELS_INVALID) {
        engine_give_up(status->message); /* later products would fail, too */
    }
    return false;
}

/* A program can find our function where it would find none, and then has no BLAS of its own that
 * could compute the product. The caller has no way to receive an error. */
static void compute_on_cpu(const Request *request)
{
    sgemm_kernels_status status;
    const double begin = now();
    if (!engine_compute_on_cpu(request, &status)) {
        say("the program has no BLAS with %s, and the product M=%lld N=%lld K=%lld failed: %s. Set "
            "SGEMM_KERNELS_BLAS_LIBRARY to a BLAS, such as libopenblas.so.0",
            entry_names[request->entry], (long long)request->C.rows, (long long)request->C.cols,
            (long long)request->A.cols, status.message);
        abort();
    }
    const double seconds = now() - begin;
    estimate_learn_own(request, seconds);
    log_note(request, true, "computed on the CPU device: the program has no BLAS", seconds);
}

static void pass_on(const Request *request)
{
    if (request->own.function) {
        request->pass_on(request->arguments, request->own.function);
    } else if (!request->valid) {
        say("%s was called with a wrong argument", entry_names[request->entry]);
    } else if (request->C.rows > 0 && request->C.cols > 0) {
        compute_on_cpu(request);
    }
}

void request_answer(const Request *request)
{
    const bool has_product = request->valid && request->C.rows > 0 && request->C.cols > 0 &&
                             request->A.cols > 0 && request->alpha != 0.0f;
    if (!has_product || is_part_of_another(request)) {
        pass_on(request);
        return;
    }
    sgemm_kernels_status status;
    const char *why = reason_to_pass_on(request);
    if (!why) {
        if (compute(request, &status)) {
            return;
        }
        why = status.message;
    }
    if (!request->own.function) {
        pass_on(request);
        return;
    }
    const double begin = now();
    passing_on.own = request->own;
    passing_on.frame = __builtin_frame_address(0);
    pass_on(request);
    passing_on.frame = NULL;
    const double seconds = now() - begin;
    estimate_learn_own(request, seconds);
    log_note(request, false, why, seconds);
}
