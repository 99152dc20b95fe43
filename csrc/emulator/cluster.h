/* Thread block clusters of compute capability 9.0, for kernels with KernelSpec.cluster: consecutive
 * blocks that run together. */
#ifndef SGEMM_EMULATOR_CLUSTER_H
#define SGEMM_EMULATOR_CLUSTER_H

#pragma GCC visibility push(hidden)

/* The rank of this block in its cluster. */
int grid_cluster_rank();

/* Waits until every thread of the cluster has reached this line. Earlier writes to shared and
 * global memory are then visible to the whole cluster. */
void grid_cluster_barrier(int line);

/* The address in block `rank` of the cluster that corresponds to `mine` in this block's dynamic
 * shared memory. An error if a thread of that block has returned: shared memory is gone when a
 * block ends, so all blocks of a cluster must synchronize before they end. */
const void *grid_cluster_shared(const void *mine, int rank);

#pragma GCC visibility pop

#endif
