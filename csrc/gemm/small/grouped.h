/* Many products of different shapes in one launch (grouped.cu). */
#ifndef SGEMM_GEMM_GROUPED_H
#define SGEMM_GEMM_GROUPED_H

#include "../../base/sgemm.h"
#include "../../base/status.h"
#include "../../base/variant.h"

/* The most products in a launch. They are the kernel's parameter, so a launch copies no memory and
 * works in every stream. Parameters may have 32,764 bytes with the drivers of CUDA 13, and 4 KB
 * with older ones. */
#if defined(CUDART_VERSION) && CUDART_VERSION >= 13000
enum { GROUP_MOST = 128 };
#else
enum { GROUP_MOST = 24 };
#endif

/* Products whose operands have the same layouts. */
struct Group {
    int count;
    unsigned first[GROUP_MOST]; /* the first block of each */
    Sgemm problems[GROUP_MOST];
};
static_assert(sizeof(Group) <= (GROUP_MOST > 24 ? 32764 : 4096), "it is a kernel's parameter");

/* For x86-64 the host compiles this twice (launch.h), and each copy calls its own. */
#ifdef __CUDACC__
#define launch_group launch_group_cuda
#elif defined(SGEMM_FUSED)
#define launch_group launch_group_cpu_fused
#else
#define launch_group launch_group_cpu
#endif

/* Launches `blocks` blocks of a configuration, one of GROUPED_TILES. */
extern "C" Status launch_group(const Group &group, int64_t blocks, int kernel, const Launch *where);

#endif
