/* The barriers that signal the completion of asynchronous copies to shared memory. */
#ifndef SGEMM_GEMM_COPY_ASYNC_H
#define SGEMM_GEMM_COPY_ASYNC_H

#include "kernel_helpers.h"

/* Added to each row of a shared tile, so that four floats stored one below the other are in
 * different banks. A multiple of 4 keeps the rows aligned. */
constexpr int float4_padding = 4;

/* The barriers of the pipeline, in shared memory. Tile t uses stage t % STAGES, which is full when
 * the copies of all threads have landed. Threads arrive at least a whole tile before they wait, so
 * no warp waits for the slowest one at each tile.
 *
 * The same barrier frees stages. A thread arrives at tile t's barrier after it has multiplied tile
 * t - 3. So once tile t is complete, all threads have done so, and tile t + 1 may replace tile
 * t - 3. */
template <int STAGES> struct Pipeline {
    Mbarrier full[STAGES];

    __device__ __forceinline__ void begin(int thread, int threads)
    {
        if (thread < STAGES) {
            mbarrier_init(full + thread, threads);
        }
        __syncthreads();
    }

    /* Arrives when all copies that this thread has started so far have landed. */
    __device__ __forceinline__ void commit(int tile)
    {
        cp_async_mbarrier_arrive(full + tile % STAGES);
    }

    /* Waits until the tile is complete. */
    __device__ __forceinline__ void wait(int tile)
    {
        mbarrier_wait(full + tile % STAGES, tile / STAGES % 2);
    }
};

#endif
