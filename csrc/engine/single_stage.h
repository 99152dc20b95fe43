/* Products that are over before a pipeline would be full: few steps of K, or few results. A block begins
 * to copy as much of K as it has room for, all at once, and multiplies when that is there. While it
 * waits, other blocks of its multiprocessor multiply: threads own few results, so that many fit. It goes
 * on from 10_raster.cu, and is included after that. */
#ifndef SGEMM_KERNELS_AUTO_SINGLE_STAGE_H
#define SGEMM_KERNELS_AUTO_SINGLE_STAGE_H

namespace {

/* Until all is there that this thread has begun to copy. */
static __device__ __forceinline__ void wait_for_own_copies()
{
#ifdef SGEMM_ASYNC
    asm volatile("cp.async.wait_all;" ::: "memory");
#elif !defined(__CUDACC__)
    grid_copy_commit();
    grid_copy_wait(0);
#endif
}

/* sum += A @ B for the block's tile of C, as block_product of 09_async.cu does. */
template <class G>
KERNEL_BODY void stage_product(const Matrix &A, const Matrix &B, const Origin &tile,
                               const ThreadTile<G> &own, float (&sum)[G::TM][G::TN])
{
    static_assert(G::stages == 1, "each tile takes the place of the one before");
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    const int thread = threadIdx.x % G::threads; // which says that it is not negative
    LoaderOfA<G> a_loader(A, tile.row, thread);
    LoaderOfB<G> b_loader(transposed(B), tile.col, thread);
    const int slice = G::slices == 1 ? 0 : thread / 32 / G::warps_of_slice;
    const int64_t K = A.cols;
    const int tiles = static_cast<int>((K + G::BK - 1) / G::BK);
    int depth = static_cast<int>(K - static_cast<int64_t>(tiles - 1) * G::BK);
    UNROLL(1)
    for (int t = 0; t < tiles; ++t) {
        a_loader.load_part(shared.As[0], depth);
        b_loader.load_part(shared.Bs[0], depth);
        wait_for_own_copies();
        __syncthreads(); // nor is anything on its way that another thread has begun
        UNROLL(4)
        for (int k = slice; k < depth; k += G::slices) {
            Fragments<G::TM, G::TN, G::lanes_down, G::lanes_across> step;
            step.load(&shared.As[0][k][own.row], &shared.Bs[0][k][own.col]);
            step.multiply(sum);
        }
        __syncthreads(); // nobody reads what the next tile overwrites
        depth = G::BK;
    }
}

/* For as many blocks as a multiprocessor of 9.0 has registers for, where it was measured, the compilers
 * for others spill some. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 900
constexpr int fewer_blocks = 2;
#else
constexpr int fewer_blocks = 0;
#endif

/* A geometry as the transpose of C has it. */
template <class G> struct Turned {
    static constexpr int WM = G::WN, WN = G::WM, TM = G::TN, TN = G::TM, threads = G::threads;
    static constexpr int lanes_across = G::lanes_down, lanes_down = G::lanes_across;
    static constexpr int warps_across = G::threads / 32 / G::warps_across;
    static constexpr int warps_of_slice = G::warps_of_slice;
    static constexpr bool in_twos = G::in_twos;
    typedef typename G::Shared Shared;
};

/* store_thread_tile for a C whose neighbours run down a column. */
template <class G>
static __device__ __forceinline__ void store_columns(Sgemm p, const Origin &tile,
                                                     const ThreadTile<G> &own,
                                                     const float (&sum)[G::TM][G::TN])
{
    float turned[G::TN][G::TM];
    UNROLL(G::TN)
    for (int j = 0; j < G::TN; ++j) {
        UNROLL(G::TM)
        for (int i = 0; i < G::TM; ++i) {
            turned[j][i] = sum[i][j];
        }
    }
    p.C = transposed(p.C);
    store_thread_tile<Turned<G>>(p, {tile.col, tile.row}, {own.col, own.row}, turned);
}

/* A tile of C as its number down and across, which take half the registers of its origin while the block
 * multiplies. */
template <class G> struct TileNumber {
    unsigned down, across;

    __device__ __forceinline__ explicit TileNumber(const Origin &tile)
        : down(static_cast<unsigned>(tile.row / G::BM)),
          across(static_cast<unsigned>(tile.col / G::BN))
    {}

    __device__ __forceinline__ Origin origin()
    {
        not_known_before(down);
        not_known_before(across);
        return {static_cast<int64_t>(down) * G::BM, static_cast<int64_t>(across) * G::BN};
    }
};

/* As raster's kernel, which it takes the place of. It also stores to a C whose neighbours run down a
 * column. */
template <class G> KERNEL_BODY void multiply_and_store(const Sgemm &p)
{
    TileNumber<G> number(raster_origin(p.C, G::BM, G::BN, blockIdx.x));
    unsigned thread = threadIdx.x;
    float sum[G::TM][G::TN] = {};
    stage_product<G>(p.A, p.B, number.origin(), ThreadTile<G>(thread), sum);
    // What follows from these is worked out anew: few registers are left to keep it.
    not_known_before(thread);
    const Origin tile = number.origin();
    const ThreadTile<G> own(thread);
    if (p.C.col_stride == 1) {
        store_thread_tile<G>(p, tile, own, sum);
    } else {
        store_columns<G>(p, tile, own, sum);
    }
}

template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, MIN_BLOCKS - fewer_blocks) single_stage(const Sgemm p)
{
    if constexpr (has_code<G>) {
        multiply_and_store<G>(p);
    }
}

} // namespace

#endif
