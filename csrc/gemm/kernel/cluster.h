/* Thread block clusters: the blocks of a KernelSpec with `cluster`, which run together. */
#ifndef SGEMM_KERNELS_CLUSTER_H
#define SGEMM_KERNELS_CLUSTER_H

#include "kernel.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SGEMM_CLUSTERS 1
#endif

/* The rank of this block in its cluster. It is read again at each use, which saves a register. */
static __device__ __forceinline__ int rank_in_cluster()
{
#ifdef SGEMM_CLUSTERS
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#elif !defined(__CUDACC__)
    return grid_cluster_rank();
#else
    return 0;
#endif
}

/* The number of this cluster, if clusters have `blocks` blocks. It is read again at each use,
 * too. */
static __device__ __forceinline__ unsigned cluster_number(unsigned blocks)
{
#ifdef SGEMM_CLUSTERS
    (void)blocks; // the register replaces a division, which would delay the block's first copy
    unsigned number;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(number));
    return number;
#else
    return blockIdx.x / blocks;
#endif
}

/* Waits until all threads of the cluster have arrived. Their earlier writes to shared memory are
 * then visible to all of them. */
static __device__ __forceinline__ void cluster_barrier()
{
#ifdef SGEMM_CLUSTERS
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#elif !defined(__CUDACC__)
    grid_cluster_barrier(__LINE__);
#endif
}

/* The same after reads only. It does not wait until earlier writes have reached memory. */
static __device__ __forceinline__ void cluster_barrier_after_reads()
{
#ifdef SGEMM_CLUSTERS
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
#elif !defined(__CUDACC__)
    grid_cluster_barrier(__LINE__);
#endif
}

/* Reads WIDTH consecutive floats from the dynamic shared memory of the cluster's block `number`, at
 * the offset that `mine` has in this block's. */
template <int WIDTH>
static __device__ __forceinline__ void read_of_block(float (&to)[WIDTH], const float *mine,
                                                     int number)
{
    static_assert(WIDTH == 1 || WIDTH == 4, "a float or a float4");
#ifdef SGEMM_CLUSTERS
    unsigned from;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(from)
        : "r"(static_cast<unsigned>(__cvta_generic_to_shared(mine))), "r"(number));
    if constexpr (WIDTH == 4) {
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                     : "r"(from));
    } else {
        asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(to[0]) : "r"(from));
    }
#elif !defined(__CUDACC__)
    const float *const from = static_cast<const float *>(grid_cluster_shared(mine, number));
    for (int i = 0; i < WIDTH; ++i) {
        to[i] = from[i];
    }
#else
    (void)number; // a cluster has one block
    UNROLL(WIDTH)
    for (int i = 0; i < WIDTH; ++i) {
        to[i] = mine[i];
    }
#endif
}

#endif
