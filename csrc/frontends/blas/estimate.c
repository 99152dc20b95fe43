#define _GNU_SOURCE /* sched_getaffinity */
#include "estimate.h"

#include <sched.h>

/* Start values, until products have been timed. An H100 does 50e12 multiply-adds times two on CUDA
 * cores, and more on tensor cores; a processor core at most 64 per cycle. */
static const double gpu_flops = 40e12, flops_of_a_core = 100e9, first_bytes_per_s = 20e9;
static const double call_s = 20e-6;             /* launches, and waiting for the GPU */
static const double triangle_bytes_per_s = 4e9; /* ssyrk: one thread copies the result */
static const double least_timed_flops = 1e7;    /* shorter products tell the caches' speed */
static const double slowest_bus = 1e9, fastest_bus = 1e11;

/* Learned; 0: not yet. Threads may overwrite each other's values, which are about the same. */
static double own_flops_per_s, bytes_per_s;

static double get(const double *value)
{
    double copy;
    __atomic_load(value, &copy, __ATOMIC_RELAXED);
    return copy;
}

static void set(double *value, double now)
{
    __atomic_store(value, &now, __ATOMIC_RELAXED);
}

static double copied_bytes(const Request *request)
{
    const double M = (double)request->C.rows, N = (double)request->C.cols,
                 K = (double)request->A.cols;
    const bool reads_c = request->beta != 0.0f && !request->is_syrk;
    const double of_b = request->is_syrk ? 0 : K * N; /* A in the same memory */
    return 4 * (M * K + of_b + M * N * (reads_c ? 2 : 1));
}

/* Everything but the copies. */
static double fixed_seconds(const Request *request)
{
    const double triangle =
        request->is_syrk ? 4 * (double)request->C.rows * (double)request->C.cols : 0;
    return call_s + request_flops(request) / gpu_flops + triangle / triangle_bytes_per_s;
}

double estimate_here(const Request *request)
{
    const double known = get(&bytes_per_s);
    return fixed_seconds(request) + copied_bytes(request) / (known > 0 ? known : first_bytes_per_s);
}

static double own_rate(void)
{
    const double known = get(&own_flops_per_s);
    if (known > 0) {
        return known;
    }
    cpu_set_t cores;
    const int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    set(&own_flops_per_s, count * flops_of_a_core);
    return count * flops_of_a_core;
}

double estimate_own(const Request *request)
{
    return request_flops(request) / own_rate();
}

void estimate_learn_own(const Request *request, double seconds)
{
    if (request_flops(request) < least_timed_flops || seconds <= 0) {
        return;
    }
    /* A faster product is believed at once; a slower one may have been disturbed. */
    const double rate = request_flops(request) / seconds, before = own_rate();
    set(&own_flops_per_s, rate > before ? rate : 0.9 * before + 0.1 * rate);
}

void estimate_learn_here(const Request *request, double seconds)
{
    const double copying = seconds - fixed_seconds(request);
    const double bytes = copied_bytes(request), before = get(&bytes_per_s);
    double rate = copying > bytes / fastest_bus ? bytes / copying : fastest_bus;
    rate = rate > slowest_bus ? rate : slowest_bus;
    set(&bytes_per_s, before > 0 ? 0.8 * before + 0.2 * rate : rate);
}
