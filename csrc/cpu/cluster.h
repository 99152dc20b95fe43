/* Clusters of blocks that run together, as compute capability 9.0 has them, for kernels that launch with
 * KernelSpec.cluster: the blocks whose blockIdx.x, divided by that, is the same. */
#ifndef SGEMM_CPU_CLUSTER_H
#define SGEMM_CPU_CLUSTER_H

#pragma GCC visibility push(hidden)

/* The number of this block in its cluster. */
int grid_cluster_rank();

/* Waits until every thread of every block of the cluster has come to this line of the kernel: what they
 * wrote before, to shared or global memory, is there for all after. */
void grid_cluster_barrier(int line);

/* The same place in the dynamic shared memory of the cluster's block `rank` as `mine` is in this block's.
 * It is an error to ask for it once a thread of that block has returned: with its last one the block's
 * shared memory is gone, so that all of a cluster must wait for each other before they end. */
const void *grid_cluster_shared(const void *mine, int rank);

#pragma GCC visibility pop

#endif
