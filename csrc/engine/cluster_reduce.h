/* Adds what several warps, or several blocks, have computed of a tile of C, each from a part of K. Warps of a block
 * leave their sums in its shared memory. Blocks of a cluster read each other's. Clusters leave theirs in memory, and
 * the last of them to arrive adds all. The order is the same each time, so that results are, bit for bit. */
#ifndef SGEMM_ENGINE_CLUSTER_REDUCE_H
#define SGEMM_ENGINE_CLUSTER_REDUCE_H

#include "partial_sums.h"
#include "plan.h"
#include "store_tile.h"

namespace {

/* ------------------------------------------------------------------ clusters */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SGEMM_CLUSTERS 1
#endif

/* Else no plan has any: their kernels need no code. */
#if defined(__CUDA_ARCH__) && !defined(SGEMM_CLUSTERS)
constexpr bool has_clusters = false;
#else
constexpr bool has_clusters = true;
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

/* And which of all clusters that is, of so many blocks each. Read anew each time, too. */
static __device__ __forceinline__ unsigned cluster_number(unsigned blocks)
{
#ifdef SGEMM_CLUSTERS
    (void)blocks; // without a division, before which no block could begin
    unsigned number;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(number));
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
    (void)number; // there is no other
    UNROLL(WIDTH)
    for (int i = 0; i < WIDTH; ++i) {
        to[i] = mine[i];
    }
#endif
}

/* ------------------------------------------------------------------ adding blocks of a cluster */

/* A block's shared memory: its tiles, and what last_to_arrive says. */
template <class G> struct Shared : G::Shared {
    bool is_last;
};

/* A block's results in crossed quads, where its tiles lay: those of each slice, and then, in place of the first,
 * their sum. */
template <class G> struct Part {
    float results[G::slices][G::BM][G::BN + quad_padding];
};

/* A product whose K is divided among blocks. */
struct JoinedProduct {
    Sgemm p;
    Parts parts;  // of steps, a tile of K each,
    int missing;  // of which the first lacks so much of a whole tile's depth
    int blocks;   // of a cluster, each of which has a part of K
    int clusters; // of a tile of C
    float4 *sums; // crossed quads, of each tile, and each of its clusters; NULL where there is one
    int of_group; // clusters whose sums are added before those of groups are; 1 if all are added at once
    unsigned
        *arrived; // how many blocks have, less one, and 0 after the last: for each tile and place
                  // in a cluster, of groups, and for each of these, of its clusters
};

static __host__ __device__ __forceinline__ int groups_of(const JoinedProduct &j)
{
    return (j.clusters + j.of_group - 1) / j.of_group;
}

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

/* WIDTH neighbours of a part: of a block of the cluster; or with SLICES, of a slice of this one. */
template <bool SLICES, class G, int WIDTH>
static __device__ __forceinline__ void read_part(float (&to)[WIDTH], const Part<G> &own, int part,
                                                 int row, int col)
{
    if constexpr (!SLICES) {
        read_of_block(to, &own.results[0][row][col], part);
    } else if constexpr (WIDTH == 4) {
        read_quad(to, &own.results[part][row][col]);
    } else {
        to[0] = own.results[part][row][col];
    }
}

/* Adds and stores a share of a tile whose rows are contiguous in C: warps take rows by turns, WIDTH neighbours
 * a thread. */
template <class G, int WIDTH, int PARTS, bool SLICES>
static __device__ __forceinline__ void store_rows(const Sgemm &p, const Origin &tile,
                                                  const Part<G> &own, const Turn &turn)
{
    constexpr int side = G::BN / WIDTH < 32 ? G::BN / WIDTH : 32; // threads side by side
    constexpr int abreast = 32 / side, pieces = G::BN / WIDTH / side;
    static_assert(32 % side == 0 && side * WIDTH * pieces == G::BN, "they take whole rows");
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
                        const int right = col + j * side * WIDTH;
                        read_part<SLICES>(values[n][j][part], own, part, row + n * apart,
                                          WIDTH == 1 ? crossed(right) : right);
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
                    store_whole(c, make_float4(scaled(p, sum[1], 0.0f), scaled(p, sum[0], 0.0f),
                                               scaled(p, sum[3], 0.0f), scaled(p, sum[2], 0.0f)));
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
template <class G, int PARTS, bool SLICES>
static __device__ __forceinline__ void store_columns_of_parts(const Sgemm &p, const Origin &tile,
                                                              const Part<G> &own, const Turn &turn)
{
    constexpr int abreast = G::BM < 8 ? G::BM : 8, side = 32 / abreast; // threads
    constexpr int across = G::BN / (4 * side);
    static_assert(32 % abreast == 0 && across * 4 * side == G::BN, "they take whole rows");
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
                read_part<SLICES>(values[part], own, part, row, col);
            }
        }
        add_up(values, sum);
        float *to = address(p.C, tile.row + row, tile.col + col);
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            if (row < rows && col + i < cols) {
                *to = scaled(p, sum[crossed(i)], p.beta == 0.0f ? 0.0f : *to);
            }
            to += p.C.col_stride;
        }
    }
}

/* Whichever way C lies. */
template <class G, int PARTS, bool SLICES = false>
static __device__ __forceinline__ void add_and_store(const Sgemm &p, const Origin &tile,
                                                     const Part<G> &own, const Turn &turn)
{
    if (p.C.col_stride != 1) {
        store_columns_of_parts<G, PARTS, SLICES>(p, tile, own, turn);
    } else if (p.beta == 0.0f && is_aligned(p.C.data) && p.C.row_stride % 4 == 0 &&
               p.C.cols % 4 == 0) {
        store_rows<G, 4, PARTS, SLICES>(p, tile, own, turn);
    } else {
        store_rows<G, 1, PARTS, SLICES>(p, tile, own, turn);
    }
}

/* ------------------------------------------------------------------ adding slices */

/* Where a quad of a tile lies, so that quads which follow each other are neighbours in C. */
template <class G> struct QuadPlace {
    int row, col;

    __device__ __forceinline__ QuadPlace(int quad, bool by_columns)
        : row(by_columns ? quad % G::BM : quad / (G::BN / 4)),
          col((by_columns ? quad / G::BM : quad % (G::BN / 4)) * 4)
    {}
};

/* The slices' sum, in place of the first. All threads have stored theirs. */
template <class G> static __device__ __forceinline__ void add_slices(Part<G> &own, unsigned thread)
{
    UNROLL(2)
    for (int quad = static_cast<int>(thread); quad < G::BM * G::BN / 4; quad += G::threads) {
        const QuadPlace<G> at(quad, false);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        UNROLL(G::slices)
        for (int slice = 0; slice < G::slices; ++slice) {
            add_quad(sum, *reinterpret_cast<float4 *>(&own.results[slice][at.row][at.col]));
        }
        *reinterpret_cast<float4 *>(&own.results[0][at.row][at.col]) = sum;
    }
}

/* ------------------------------------------------------------------ adding clusters */

/* Each cluster leaves its sums in memory, and the last adds all of them, in an order that is always the same. Of
 * each place in a cluster this is by the last block to arrive there, for its share of the tile. Where there are many
 * the last of each group adds what that has, and the last group what groups have. */
template <class G>
static __device__ __forceinline__ void add_clusters(const JoinedProduct &j, const Origin &tile,
                                                    unsigned of_tile, unsigned cluster,
                                                    Part<G> &own, bool &is_last)
{
    const Sgemm &p = j.p;
    const bool by_columns = p.C.col_stride != 1;
    constexpr int quads = G::BM * G::BN / 4;
    const int rank = rank_in_cluster(), share = quads / j.blocks, first = rank * share;
    const bool by_slices = G::slices > 1 && j.blocks == 1; // which nobody has added
    const int parts = by_slices ? G::slices : j.blocks;
    float4 *const sums = j.sums + static_cast<int64_t>(of_tile) * j.clusters * quads + first;
    UNROLL(1)
    for (int n = static_cast<int>(threadIdx.x); n < share; n += G::threads) {
        const QuadPlace<G> at(first + n, by_columns);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        UNROLL(4)
        for (int part = 0; part < parts; ++part) {
            float more[4];
            if (by_slices) {
                read_quad(more, &own.results[part][at.row][at.col]);
            } else {
                read_of_block(more, &own.results[0][at.row][at.col], part);
            }
            add_quad(sum, make_float4(more[0], more[1], more[2], more[3]));
        }
        sums[static_cast<int64_t>(cluster) * quads + n] = sum;
    }
    if (j.blocks > 1) {
        cluster_barrier(); // nobody's shared memory changes, or goes, before the others have read it
    }
    float4 *const room = reinterpret_cast<float4 *>(&own);
    const int groups = groups_of(j);
    unsigned *const arrived = j.arrived + (of_tile * j.blocks + rank) * (1 + groups);
    if (j.of_group > 1) {
        const int group = static_cast<int>(cluster) / j.of_group, begin = group * j.of_group;
        const int left = j.clusters - begin, count = left < j.of_group ? left : j.of_group;
        if (!last_to_arrive(arrived + 1 + group, count, is_last)) {
            return;
        }
        float4 *const of_group = sums + static_cast<int64_t>(begin) * quads;
        add_left<G::threads>(of_group, share, quads, count, room,
                             [=](int n, const float4 &sum) { of_group[n] = sum; });
    }
    if (!last_to_arrive(arrived, groups, is_last)) {
        return;
    }
    const auto store = [&](int n, const float4 &sum) {
        const QuadPlace<G> at(first + n, by_columns);
        const float of_quad[4] = {sum.y, sum.x, sum.w, sum.z};
        const int64_t row = tile.row + at.row, col = tile.col + at.col;
        for (int i = 0; row < p.C.rows && i < 4 && col + i < p.C.cols; ++i) {
            float *const c = address(p.C, row, col + i);
            *c = scaled(p, of_quad[i], p.beta == 0.0f ? 0.0f : *c);
        }
    };
    add_left<G::threads>(sums, share, static_cast<int64_t>(j.of_group) * quads, groups, room,
                         store);
}

/* ------------------------------------------------------------------ the kernel */

/* For how many blocks a multiprocessor shall have registers. From 8.6 to 8.9 a block that is ALONE has them for one where
 * else for two: there would be too few, and of the largest tiles no room in shared memory either. Before 9.0 parts of K
 * have them for two where else for three, since the compiler would spill some; and so it would on 9.0 for five or six
 * blocks in the kernels for all ways that operands lie, which are hardly ever launched there, and after it without a
 * pipeline. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 860
template <class G, bool ALONE, int BLOCKS>
constexpr int least_blocks = !ALONE && BLOCKS == 3 ? 2 : BLOCKS;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class G, bool ALONE, int BLOCKS>
constexpr int least_blocks = BLOCKS == (ALONE ? 2 : 3) ? BLOCKS - 1 : BLOCKS;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
template <class G, bool ALONE, int BLOCKS>
constexpr int least_blocks = (G::a_neighbours == EITHER_WAY && BLOCKS > 4) ? 4 : BLOCKS;
#else
template <class G, bool ALONE, int BLOCKS>
constexpr int least_blocks = (G::stages == 1 && BLOCKS > 4) ? 4 : BLOCKS;
#endif

/* Of how many tiles the copies begin before the first is waited for. Small tiles are multiplied in less time than
 * memory takes to bring the next, and a short K has but a few. By measured times threads of at most 8 x 8 results gain,
 * and slices do, in any of these kernels but streamk. */
template <class G> constexpr int tiles_at_once = (G::TM * G::TN <= 64 || G::slices > 1 ? 3 : 1);

/* The same where the kernel is for several parts of K: the largest slices lose by it there, and threads of 4 x 8
 * results, and from 10.0 to 11.0 registers would be spilled. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
template <class G> constexpr int tiles_of_part_at_once = 1;
#else
template <class G>
constexpr bool loses_in_parts = (G::slices > 1 ? G::BM * G::BN >= 64 * 64 : G::TM * G::TN < 64);
template <class G> constexpr int tiles_of_part_at_once = loses_in_parts<G> ? 1 : tiles_at_once<G>;
#endif

/* How many tiles ahead of the arithmetic they then go on, and so begin at least: as it was measured on 9.0, two in slices
 * of small tiles, which are multiplied in less time than memory takes. */
template <class G> constexpr int tiles_ahead = G::slices > 1 && G::BM <= 32 ? 2 : 1;

/* The product that is one part of K. The first takes what K leaves over, so that all others are whole tiles deep. */
template <class G>
static __device__ __forceinline__ Sgemm part_of(const JoinedProduct &j, unsigned part)
{
    const auto begin_of = [&](unsigned number) {
        const int64_t k = j.parts.first(number) * G::BK - j.missing;
        return k > 0 ? k : 0;
    };
    const int64_t begin = begin_of(part);
    Sgemm p = j.p;
    p.A.data = address(p.A, 0, begin);
    p.B.data = address(p.B, begin, 0);
    p.A.cols = p.B.rows = begin_of(part + 1) - begin;
    return p;
}

/* How a tile of C is put together: by a block alone, for its slices, or for a C whose columns are contiguous, which a
 * pipeline's epilogue does not store to; the blocks of one cluster; or those of several. Each has a kernel of its own:
 * most blocks go through their code once, and wait for it to be fetched. */
enum Joins { ONE_BLOCK, ONE_CLUSTER, CLUSTERS };

/* What one block does for a tile of C and a part of K. */
template <class G, Joins HOW> KERNEL_BODY void compute_part(const JoinedProduct &j)
{
    const int blocks = HOW == ONE_BLOCK ? 1 : j.blocks;
    // The tile's number, and which of its clusters this is. Found once more after the product: meanwhile no register
    // keeps it.
    const auto find = [&](unsigned &cluster) {
        const unsigned number =
            HOW == ONE_BLOCK ? blockIdx.x : cluster_number(static_cast<unsigned>(blocks));
        if (HOW != CLUSTERS) {
            cluster = 0;
            return number;
        }
        const unsigned tiles = static_cast<unsigned>(tiles_of(j.p.C, G::BM, G::BN));
        cluster = number / tiles;
        return number - cluster * tiles;
    };
    unsigned cluster;
    TileNumber<G> number(raster_origin(j.p.C, G::BM, G::BN, find(cluster)));
    Shared<G> &shared = dynamic_shared<Shared<G>>();
    float sum[G::TM][G::TN] = {};
    {
        const Origin tile = number.origin();
        const unsigned first = cluster * static_cast<unsigned>(blocks);
        const Sgemm p = HOW == ONE_BLOCK
                            ? j.p
                            : part_of<G>(j, first + static_cast<unsigned>(rank_in_cluster()));
        const ThreadTile<G> own(threadIdx.x);
        if constexpr (G::stages == 1) {
            stage_product<G>(p.A, p.B, tile, own, sum);
        } else {
            constexpr int ahead = tiles_ahead<G>;
            constexpr int at_once = HOW == ONE_BLOCK ? tiles_at_once<G> : tiles_of_part_at_once<G>;
            block_product<G, (at_once < ahead ? ahead : at_once), ahead>(p.A, p.B, tile, own, sum);
        }
    }
    // What follows from these is worked out anew: few registers are left to keep it.
    unsigned thread = threadIdx.x;
    not_known_before(thread);
    const Origin tile = number.origin();
    const ThreadTile<G> place(thread);
    static_assert(sizeof(Part<G>) <= sizeof shared.As + sizeof shared.Bs,
                  "the barriers lie behind it");
    static_assert(G::threads * sizeof(float4) <= sizeof(Part<G>), "add_left finds room in it");
    Part<G> &own = *reinterpret_cast<Part<G> *>(&shared);
    __syncthreads(); // nobody needs the tiles any more
    auto &results = own.results[thread / 32 / G::warps_of_slice % G::slices];
    UNROLL(G::TM)
    for (int i = 0; i < G::TM; ++i) {
        UNROLL(G::TN / 4)
        for (int n = 0; n < G::TN; n += 4) {
            float *const to =
                &results[place.row + ThreadTile<G>::down(i)][place.col + ThreadTile<G>::right(n)];
            store_crossed(to, sum[i] + n);
        }
    }
    constexpr int warps = G::threads / 32;
    const int warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32);
    if constexpr (HOW == ONE_BLOCK) {
        __syncthreads();
        add_and_store<G, G::slices, true>(j.p, tile, own, {warp, warps, lane});
        return;
    }
    if (G::slices > 1 && blocks > 1) {
        __syncthreads();
        add_slices<G>(own, thread);
    }
    if constexpr (HOW == CLUSTERS) {
        if (blocks > 1) {
            cluster_barrier();
        } else {
            __syncthreads();
        }
        const unsigned of_tile = find(cluster);
        add_clusters<G>(j, tile, of_tile, cluster, own, shared.is_last);
        return;
    }
    cluster_barrier();
    const Turn turn = {rank_in_cluster() * warps + warp, blocks * warps, lane};
    if (blocks == 2) {
        add_and_store<G, 2>(j.p, tile, own, turn);
    } else if (blocks == 4) {
        add_and_store<G, 4>(j.p, tile, own, turn);
    } else {
        add_and_store<G, CLUSTER_MOST_BLOCKS>(j.p, tile, own, turn);
    }
    cluster_barrier_after_reads(); // nobody's shared memory goes before the others have read it
}

/* One block for each tile of C and part of K; those of a tile are clusters. */
template <class G, int MIN_BLOCKS, Joins HOW>
__global__ void __launch_bounds__(G::threads, least_blocks<G, HOW == ONE_BLOCK, MIN_BLOCKS>)
    joined(const JoinedProduct j)
{
    if constexpr (has_code<G> && (has_clusters || HOW != ONE_CLUSTER)) {
        compute_part<G, HOW>(j);
    }
}

/* ------------------------------------------------------------------ on the host */

template <class G> constexpr KernelSpec spec_of_joined(int blocks)
{
    KernelSpec spec = spec_of<G>("joined");
    spec.dynamic_bytes = sizeof(Shared<G>);
    spec.cluster = blocks;
    return spec;
}

/* Launches one block for each tile of C and part of K, in clusters of so many. */
template <class G, int MIN_BLOCKS>
Status launch_joined(const Sgemm &p, int splits, int blocks, const Launch *where)
{
    const int64_t tiles = tiles_of(p.C, G::BM, G::BN), steps = (p.A.cols + G::BK - 1) / G::BK;
    const KernelSpec spec = spec_of_joined<G>(blocks);
    const int clusters = splits > blocks ? splits / blocks : 1;
    const int missing = static_cast<int>(steps * G::BK - p.A.cols);
    JoinedProduct j = {p,      {steps, clusters * blocks}, missing, blocks, clusters, nullptr, 1,
                       nullptr};
    j.of_group = plan_group(clusters);
    const size_t bytes = static_cast<size_t>(tiles * clusters * G::BM * G::BN) * sizeof(float);
    const int64_t counters = tiles * blocks * (1 + groups_of(j));
    Handover<float4> memory(clusters > 1, bytes, counters, where);
    if (memory.taken) {
        j.sums = memory.left;
        j.arrived = memory.arrived;
        return launch_blocks(joined<G, MIN_BLOCKS, CLUSTERS>, spec, tiles * j.parts.count, j,
                             where);
    }
    // One cluster adds its parts without memory; there are no more where there is no memory for sums.
    j.clusters = 1;
    j.parts = {steps, blocks};
    return blocks == 1
               ? launch_blocks(joined<G, MIN_BLOCKS, ONE_BLOCK>, spec, tiles, j, where)
               : launch_blocks(joined<G, MIN_BLOCKS, ONE_CLUSTER>, spec, tiles * blocks, j, where);
}

} // namespace

#endif
