/* What the last of several blocks to arrive adds: what all of them have left in memory. */
#ifndef SGEMM_KERNELS_AUTO_ADD_LEFT_H
#define SGEMM_KERNELS_AUTO_ADD_LEFT_H

#include "../ladder/kernel.h"

static __device__ __forceinline__ void add_quad(float4 &sum, const float4 &more)
{
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
}

/* The sum of `count` parts of some quads, which lie STEP quads apart in each part, and `apart` in two that follow each
 * other: several parts of each are read at once. Of quads from number `left` on nothing is read. */
template <int QUADS, int STEP, int PARTS>
static __device__ __forceinline__ void sum_parts(const float4 *from, int left, int64_t apart,
                                                 int count, float4 (&sums)[QUADS])
{
    UNROLL(QUADS)
    for (int i = 0; i < QUADS; ++i) {
        sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    UNROLL(PARTS)
    for (int part = 0; part < count; ++part) {
        UNROLL(QUADS)
        for (int i = 0; i < QUADS; ++i) {
            if (i * STEP < left) {
                add_quad(sums[i], from[i * STEP]);
            }
        }
        from += apart;
    }
}

/* Adds `count` parts of so many quads, `apart` quads from each other, and has each sum stored, by store(quad, sum). Of
 * few quads, for each of which there are two threads or more: these share it, each with every so many-th part; what
 * they have is added in `shared`, which has room for a quad of each thread. All in the same order each time. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_few(const float4 *parts, int quads, int64_t apart,
                                               int count, float4 *shared, Store store)
{
    const int thread = static_cast<int>(threadIdx.x);
    int side = THREADS / 2, sharers = 2;
    UNROLL(1)
    while (side / 2 >= quads && side > 1) {
        side /= 2;
        sharers *= 2;
    }
    const int quad = thread & (side - 1), y = thread / side;
    const int own = y < count ? (count - y - 1) / sharers + 1 : 0; // parts
    float4 sums[1];
    sum_parts<1, 1, 8>(parts + y * apart + quad, quads - quad, sharers * apart, own, sums);
    shared[thread] = sums[0];
    __syncthreads();
    if (quad < quads && y == 0) {
        const int others = sharers < count ? sharers : count; // who have any
        for (int other = 1; other < others; ++other) {
            add_quad(sums[0], shared[other * side + quad]);
        }
        store(quad, sums[0]);
    }
}

/* The same of few or many. */
template <int THREADS, class Store>
static __device__ __forceinline__ void add_left(const float4 *parts, int quads, int64_t apart,
                                                int count, float4 *shared, Store store)
{
    if (quads <= THREADS / 2) {
        add_few<THREADS>(parts, quads, apart, count, shared, store);
        return;
    }
    constexpr int several = 4;
    UNROLL(1)
    for (int quad = static_cast<int>(threadIdx.x); quad < quads; quad += several * THREADS) {
        float4 sums[several];
        sum_parts<several, THREADS, 4>(parts + quad, quads - quad, apart, count, sums);
        UNROLL(several)
        for (int i = 0; i < several; ++i) {
            if (quad + i * THREADS < quads) {
                store(quad + i * THREADS, sums[i]);
            }
        }
    }
}

#endif
