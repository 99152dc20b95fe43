#define _GNU_SOURCE /* clock_gettime */
#include "request.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "engine.h"
#include "estimate.h"
#include "log.h"
#include "own_blas.h"
#include "settings.h"

#define BLAS_NAME(name) #name,
const char *const entry_names[BLAS_ENTRY_COUNT] = {BLAS_ENTRIES(BLAS_NAME)};
#undef BLAS_NAME

/* Opening a GPU takes less than this (0.13 s on an H100), but also memory. Until the products so far
 * would have gained as much, they are passed on: a short program never opens it. */
static const double opening_s = 0.25;
static double missed_s; /* what the products that were passed on would have gained */

/* The first products on a device also load kernels and pin memory. */
enum { UNTIMED = 3 };
static int computed;

/* Some libraries call sgemm_ in their cblas_sgemm: that call is part of one that was passed on. */
static _Thread_local bool is_passing_on;

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

/* Why the product is passed on; NULL if it is computed here. */
static const char *reason_to_pass_on(const Request *request)
{
    const Settings *const s = settings();
    const char *why;
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
        fprintf(stderr,
                "sgemm_kernels: the product M=%lld N=%lld K=%lld failed when a part of C was "
                "already overwritten, and beta is not 0, so C is lost: %s\n",
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

void request_answer(const Request *request, const void *caller)
{
    void *const own = own_function(request->entry, caller);
    if (!request->valid || is_passing_on) {
        request->pass_on(request->arguments, own);
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
    const double begin = now();
    is_passing_on = true;
    request->pass_on(request->arguments, own);
    is_passing_on = false;
    const double seconds = now() - begin;
    estimate_learn_own(request, seconds);
    log_note(request, false, why, seconds);
}
