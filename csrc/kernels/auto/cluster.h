/* K divided among the blocks of a cluster: what each has of a tile of C they read from each other's shared
 * memory, and each adds and stores a share of it, in the order of k. That takes no second kernel, no memory, and
 * no block more than a cluster can have. It goes on from 12_streamk.cu and single_stage.h, and is included after
 * these. */
#ifndef SGEMM_KERNELS_AUTO_CLUSTER_H
#define SGEMM_KERNELS_AUTO_CLUSTER_H

namespace {

/* ------------------------------------------------------------------ clusters */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SGEMM_CLUSTERS 1
#endif

/* Which of its cluster's blocks this is. Read anew each time, so that no register keeps it. */
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

/* And which of all clusters that is, of so many blocks each. */
static __device__ __forceinline__ unsigned cluster_number(unsigned blocks)
{
#ifdef SGEMM_CLUSTERS
    (void)blocks; // without a division, before which no block could begin
    unsigned number;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(number));
    return number;
#else
    return blockIdx.x / blocks;
#endif
}

/* Waits until all threads of the cluster's blocks have come here. What they wrote before to shared memory is
 * there for all of them. */
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

/* The same for what they have read, and used, and not for what they wrote: that would take until results are in
 * memory. */
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

/* WIDTH neighbours from the same place in the dynamic shared memory of the cluster's block of this number. */
template <int WIDTH>
static __device__ __forceinline__ void read_of_block(float (&to)[WIDTH], const float *mine,
                                                     int number)
{
    static_assert(WIDTH == 1 || WIDTH == 4, "a float or a quad");
#ifdef SGEMM_CLUSTERS
    unsigned from;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(from)
        : "r"(shared_address(mine)), "r"(number));
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
    (void)to, (void)mine, (void)number;
#endif
}

/* ------------------------------------------------------------------ adding */

/* A block's results, where its tiles lay. */
template <class G> struct Part {
    float results[G::BM][G::BN + quad_padding];
};

/* The parts' sum, in the order of k. */
template <int PARTS, int WIDTH>
static __device__ __forceinline__ void add_up(const float (&values)[PARTS][WIDTH],
                                              float (&sum)[WIDTH])
{
    UNROLL(WIDTH)
    for (int i = 0; i < WIDTH; ++i) {
        sum[i] = values[0][i];
        UNROLL(PARTS)
        for (int part = 1; part < PARTS; ++part) {
            sum[i] += values[part][i];
        }
    }
}

/* Which of the cluster's warps this is, of how many. */
struct Turn {
    int warp, warps, lane;
};

/* How many rows, each of so many floats of all parts, a thread reads before it adds the first. */
template <int FLOATS> constexpr int rows_at_once = FLOATS <= 8 ? 4 : FLOATS <= 16 ? 2 : 1;

/* Adds and stores a share of a tile whose rows are contiguous in C: warps take rows by turns, WIDTH neighbours
 * a thread. */
template <class G, int WIDTH, int PARTS>
static __device__ __forceinline__ void store_rows(const Sgemm &p, const Origin &tile,
                                                  const Part<G> &own, const Turn &turn)
{
    constexpr int side = G::BN / WIDTH < 32 ? G::BN / WIDTH : 32; // threads side by side
    constexpr int abreast = 32 / side, pieces = G::BN / WIDTH / side;
    constexpr int at_once = rows_at_once<pieces * PARTS * WIDTH>;
    const Results C = results(p.C, tile.row, tile.col);
    const int rows = C.rows < G::BM ? C.rows : G::BM, apart = turn.warps * abreast;
    const int col = turn.lane % side * WIDTH;
    int row = turn.warp * abreast + turn.lane / side;
    float *to = C.first + row * C.ld + col;
    UNROLL(1)
    while (row < rows) {
        float values[at_once][pieces][PARTS][WIDTH] = {};
        UNROLL(at_once)
        for (int n = 0; n < at_once; ++n) {
            UNROLL(pieces)
            for (int j = 0; j < pieces; ++j) {
                UNROLL(PARTS)
                for (int part = 0; part < PARTS; ++part) {
                    if (row + n * apart < rows && col + j * side * WIDTH < C.cols) {
                        read_of_block(values[n][j][part],
                                      &own.results[row + n * apart][col + j * side * WIDTH], part);
                    }
                }
            }
        }
        UNROLL(at_once)
        for (int n = 0; n < at_once; ++n) {
            UNROLL(pieces)
            for (int j = 0; j < pieces; ++j) {
                float sum[WIDTH];
                add_up(values[n][j], sum);
                float *const c = to + j * side * WIDTH;
                if (row >= rows || col + j * side * WIDTH >= C.cols) {
                    continue;
                }
                if constexpr (WIDTH == 4) {
                    store_whole(c, make_float4(scaled(p, sum[0], 0.0f), scaled(p, sum[1], 0.0f),
                                               scaled(p, sum[2], 0.0f), scaled(p, sum[3], 0.0f)));
                } else {
                    *c = scaled(p, sum[0], p.beta == 0.0f ? 0.0f : *c);
                }
            }
            row += apart;
            to += apart * C.ld;
        }
    }
}

/* The same of a tile whose columns are contiguous: warps take eight rows, which fill a sector, of 16 columns. */
template <class G, int PARTS>
static __device__ __forceinline__ void store_columns_of_parts(const Sgemm &p, const Origin &tile,
                                                              const Part<G> &own, const Turn &turn)
{
    constexpr int abreast = G::BM < 8 ? G::BM : 8, side = 32 / abreast; // threads
    constexpr int across = G::BN / (4 * side);
    const int left = clamped(p.C.rows - tile.row), rows = left < G::BM ? left : G::BM;
    const int cols = clamped(p.C.cols - tile.col);
    UNROLL(1)
    for (int n = turn.warp; n < (rows + abreast - 1) / abreast * across; n += turn.warps) {
        const int row = n / across * abreast + turn.lane % abreast;
        const int col = (n % across * side + turn.lane / abreast) * 4;
        float values[PARTS][4] = {}, sum[4];
        UNROLL(PARTS)
        for (int part = 0; part < PARTS; ++part) {
            if (row < rows && col < cols) {
                read_of_block(values[part], &own.results[row][col], part);
            }
        }
        add_up(values, sum);
        float *to = address(p.C, tile.row + row, tile.col + col);
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            if (row < rows && col + i < cols) {
                *to = scaled(p, sum[i], p.beta == 0.0f ? 0.0f : *to);
            }
            to += p.C.col_stride;
        }
    }
}

/* Whichever way C lies. */
template <class G, int PARTS>
static __device__ __forceinline__ void add_and_store(const Sgemm &p, const Origin &tile,
                                                     const Part<G> &own, const Turn &turn)
{
    if (p.C.col_stride != 1) {
        store_columns_of_parts<G, PARTS>(p, tile, own, turn);
    } else if (p.beta == 0.0f && is_aligned(p.C.data) && p.C.row_stride % 4 == 0 &&
               p.C.cols % 4 == 0) {
        store_rows<G, 4, PARTS>(p, tile, own, turn);
    } else {
        store_rows<G, 1, PARTS>(p, tile, own, turn);
    }
}

/* One block for each tile of C and part of K; those of a tile are a cluster. Of one part it is for a C whose
 * columns are contiguous, which a pipeline's epilogue does not store to. */
template <class G, int MIN_BLOCKS>
__global__ void __launch_bounds__(G::threads, MIN_BLOCKS) in_cluster(const SplitProduct s)
{
#if !defined(__CUDA_ARCH__) || defined(SGEMM_CLUSTERS)
    const unsigned of_tile = cluster_number(static_cast<unsigned>(s.splits));
    TileNumber<G> number(raster_origin(s.p.C, G::BM, G::BN, of_tile));
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
    float sum[G::TM][G::TN] = {};
    {
        const Origin tile = number.origin();
        const Sgemm p = part_of(s, static_cast<unsigned>(rank_in_cluster()), G::BK);
        const ThreadTile<G> own(threadIdx.x);
        if constexpr (G::stages == 1) {
            stage_product<G>(p.A, p.B, tile, own, sum);
        } else {
            block_product<G>(p.A, p.B, tile, own, sum);
        }
    }
    // What follows from these is worked out anew: few registers are left to keep it.
    unsigned thread = threadIdx.x;
    not_known_before(thread);
    const Origin tile = number.origin();
    const ThreadTile<G> place(thread);
    static_assert(sizeof(Part<G>) <= sizeof shared.As + sizeof shared.Bs,
                  "the barriers lie behind it");
    Part<G> &own = *reinterpret_cast<Part<G> *>(&shared);
    __syncthreads(); // nobody needs the tiles any more
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        UNROLL(G::TN / 4)
        for (int j = 0; j < G::TN; j += 4) {
            float *const to = &own.results[place.row + ThreadTile<G>::down(i)]
                                          [place.col + ThreadTile<G>::right(j)];
            const float *const from = sum[i] + j;
            *reinterpret_cast<float4 *>(to) = make_float4(from[0], from[1], from[2], from[3]);
        }
    }
    constexpr int warps = G::threads / 32;
    const int parts = s.splits, lane = static_cast<int>(thread % 32);
    const Turn turn = {rank_in_cluster() * warps + static_cast<int>(thread / 32), parts * warps,
                       lane};
    if (parts == 1) {
        __syncthreads();
        add_and_store<G, 1>(s.p, tile, own, turn);
        return;
    }
    cluster_barrier();
    if (parts == 2) {
        add_and_store<G, 2>(s.p, tile, own, turn);
    } else if (parts == 4) {
        add_and_store<G, 4>(s.p, tile, own, turn);
    } else {
        add_and_store<G, CLUSTER_MOST_BLOCKS>(s.p, tile, own, turn);
    }
    cluster_barrier_after_reads(); // nobody's shared memory goes before the others have read it
#else
    (void)s;
#endif
}

template <class G> constexpr KernelSpec spec_in_cluster(int blocks)
{
    KernelSpec spec = spec_of<G>("in_cluster");
    spec.cluster = blocks;
    return spec;
}

} // namespace

#endif
