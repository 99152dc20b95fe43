/* The launch of a rung of the ladder. The build generates one file for each rung from
 * csrc/ladder/launches.toml, which includes this header, the rung and its launcher. */
#ifndef SGEMM_KERNELS_RUNG_H
#define SGEMM_KERNELS_RUNG_H

#include "plain_run.h"

#ifndef __CUDACC__
#include "../../emulator/plain/plain_device.h"
#include "../../emulator/plain/plain_groups.h"
#endif

/* What every rung computes: C = alpha * A @ B + beta * C, with contiguous row-major
 * matrices. */
typedef void RungKernel(int M, int N, int K, float alpha, const float *A, const float *B,
                        float beta, float *C);

/* The columns of B and C. In the traced build, the block's C ends with its tile; its rows have
 * the distance of those of the whole matrix. */
static inline int64_t rung_cols(const Sgemm *problem)
{
#ifdef SGEMM_TRACED
    return problem->C.row_stride;
#else
    return problem->C.cols;
#endif
}

/* Launches the kernel for one product with `blocks` blocks. */
static inline Status launch_rung(RungKernel *kernel, const KernelSpec &spec, int64_t blocks,
                                 const Sgemm *problem, const Launch *where)
{
    const Sgemm &p = *problem;
    const int64_t M = p.C.rows, N = rung_cols(problem), K = p.A.cols;
    const Status fits = variant_fits(&spec, M, N, K);
    if (fits.code != STATUS_OK) {
        return fits;
    }
#ifdef SGEMM_NAMES_LAUNCHES
    launched_add(spec.symbol);
#endif
    const PlainValue values[] = {plain_integer(M),        plain_integer(N),
                                 plain_integer(K),        plain_real(p.alpha),
                                 plain_pointer(p.A.data), plain_pointer(p.B.data),
                                 plain_real(p.beta),      plain_pointer(p.C.data)};
    const PlainShape shape = {
        {blocks, 1, 1}, {spec.threads[0], spec.threads[1], 1}, spec.dynamic_bytes};
    return plain_run(kernel, values, shape, where);
}

#endif
