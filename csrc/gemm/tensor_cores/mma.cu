// idea      tensor cores: split each float32 into an fp16 hi/lo pair, and replace a float32 product
//           by three fp16 products.
// block     128 x 128 results, 256 threads, warps of 64 x 32; tiles 128 x 64 and 64 x 128, in three
//           stages; a thread has 8 x 8 results, as sums of the tensor core and in float32.
// traffic   8 / 128 bytes of fp16 from the L2 cache per multiply-add, as many as of float32.
// bound by  tensor cores and shared memory: 13 ldmatrix loads of 4 wavefronts each for 48 products.
// next      wgmma: products that read their factors from shared memory themselves.
#include "error_check.h"
#include "split_fp16.h"

namespace {

template <int BM_, int BN_, int WM_, bool SYMMETRIC> struct MmaTile {
    static constexpr bool symmetric = SYMMETRIC;
    static constexpr int stacked = 1;
    static constexpr int BM = BM_, BN = BN_, BK = k_chunk, stages = 3;
    static constexpr int WM = WM_, WN = 32, MI = WM / 16, NI = WN / 8; // of a warp; in mma products
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;
    static constexpr int depths = BK / 16; // products along K
    static_assert(group_rows % BM == 0 && group_rows % BN == 0, "a tile is within one group");

    struct Shared {
        Fp16x8 As[stages][BM * chunk_vectors];
        Fp16x8 Bs[stages][BN * chunk_vectors];
        Mbarrier full[4];              // of chunk t: t % 4
        uint64_t failing[threads / 8]; // a byte for each thread
    };

    static __device__ __forceinline__ void synchronize()
    {
        __syncthreads();
    }
};

/* Copies half of the rows of a K chunk asynchronously. Rows eight apart are swizzled alike, so each
 * thread copies the same vector of rows that are a multiple of eight apart. */
template <class T, int ROWS>
__device__ __forceinline__ void copy_rows(Fp16x8 *to, const Fp16x8 *from, int64_t pitch, int thread,
                                          int half)
{
    constexpr int step = T::threads / chunk_vectors;
    static_assert(step % 8 == 0, "swizzled alike");
    const int row = half * ROWS / 2 + thread / chunk_vectors, vector = thread % chunk_vectors;
    from += row * pitch + vector;
    to += row * chunk_vectors + swizzled(row, vector);
    UNROLL(ROWS / 2 / step)
    for (int i = 0; i < ROWS / 2; i += step) {
        cp_async16(to + i * chunk_vectors, from);
        from += step * pitch;
    }
}

/* The rows of a stage's tiles whose addresses a thread passes to ldmatrix. The swizzle is an
 * exclusive or, and so are the steps from hi to lo and from depth to depth. */
template <class T> struct Factors {
    const Fp16x8 *As, *Bs;
    unsigned a, b; // at depth 0, hi

    __device__ __forceinline__ Factors(const Fp16x8 *As, const Fp16x8 *Bs, int thread)
        : As(As), Bs(Bs)
    {
        const int warp = thread / 32, lane = thread % 32;
        a = (warp / T::warps_across * T::WM + lane % 16) * chunk_vectors +
            swizzled(lane, lane / 16);
        b = (warp % T::warps_across * T::WN + lane / 16 * 8 + lane % 8) * chunk_vectors +
            swizzled(lane, lane / 8 % 2);
        recompute_from(a); // saves registers: the addresses are recomputed for each chunk
        recompute_from(b);
    }
    /* A factor of A: the i-th 16 rows, their hi or their lo. */
    __device__ __forceinline__ void load_a(unsigned (&to)[4], int i, int depth, bool low) const
    {
        ldmatrix_x4(to, As + place(a, depth, low) + i * 16 * chunk_vectors);
    }
    /* All of the warp's factors of B. */
    __device__ __forceinline__ void load_b(unsigned (&to)[T::NI][2], int depth, bool low) const
    {
        UNROLL(T::NI / 2)
        for (int j = 0; j < T::NI; j += 2) {
            unsigned two[4];
            ldmatrix_x4(two, Bs + place(b, depth, low) + j * 8 * chunk_vectors);
            to[j][0] = two[0], to[j][1] = two[1];
            to[j + 1][0] = two[2], to[j + 1][1] = two[3];
        }
    }
    static __device__ __forceinline__ int place(int first, int depth, bool low)
    {
        return (first ^ (depth % 2 * 2 + low * lo_offset)) + depth / 2 * block_vectors;
    }
};

/* sum += the product of a K chunk. The small products come first, because tensor cores truncate
 * sums, and a small sum loses less. The hi factors stay in registers for the last pass,
 * which has time for copies: it calls meanwhile(depth). */
template <class T, class Meanwhile>
__device__ __forceinline__ void
multiply_chunk(const Factors<T> &from, float (&sum)[T::MI][T::NI][4], const Meanwhile &meanwhile)
{
    float part[T::MI][T::NI][4] = {}; // of this chunk alone, summed by tensor cores
    unsigned a_hi[T::depths][T::MI][4], b_hi[T::depths][T::NI][2];
    UNROLL(T::depths)
    for (int d = T::depths - 1; d >= 0; --d) {
        unsigned b_lo[T::NI][2];
        from.load_b(b_hi[d], d, false);
        from.load_b(b_lo, d, true);
        UNROLL(T::MI)
        for (int i = 0; i < T::MI; ++i) {
            unsigned a_lo[4];
            from.load_a(a_lo, i, d, true);
            from.load_a(a_hi[d][i], i, d, false);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                mma_m16n8k16(part[i][j], a_lo, b_hi[d][j]);
            }
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                mma_m16n8k16(part[i][j], a_hi[d][i], b_lo[j]);
            }
        }
    }
    UNROLL(T::depths)
    for (int d = 0; d < T::depths; ++d) {
        meanwhile(d);
        UNROLL(T::MI)
        for (int i = 0; i < T::MI; ++i) {
            if (d == 1) { // these do not fit in registers
                from.load_a(a_hi[d][i], i, d, false);
            }
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                mma_m16n8k16(part[i][j], a_hi[d][i], b_hi[d][j]);
            }
        }
    }
    UNROLL(T::MI)
    for (int i = 0; i < T::MI; ++i) {
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            UNROLL(4)
            for (int r = 0; r < 4; ++r) {
                sum[i][j][r] += part[i][j][r];
            }
        }
    }
}

template <class T> __global__ void __launch_bounds__(T::threads, 1) mma(const Fp16Product q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    const int thread = threadIdx.x;
    CheckedTile<T> own(q, blockIdx.x, thread);
    griddep_wait();
    if (thread < 4) {
        mbarrier_init(shared.full + thread, T::threads);
    }
    __syncthreads();
    NonzeroChunks<T> next(q, own.tile);
    int begun = 0; // chunks whose copies have begun
    const Fp16x8 *const a = q.a.vectors + own.tile.row * q.a.pitch();
    const Fp16x8 *const b = q.b.vectors + own.tile.col * q.b.pitch();
    const auto load_half = [&](int stage, int half) {
        if (next.any()) {
            const int64_t at = static_cast<int64_t>(next.now) * chunk_vectors;
            copy_rows<T, T::BM>(shared.As[stage], a + at, q.a.pitch(), thread, half);
            copy_rows<T, T::BN>(shared.Bs[stage], b + at, q.b.pitch(), thread, half);
        }
    };
    const auto finish_loading = [&](int chunk) {
        cp_async_mbarrier_arrive(shared.full + chunk % 4);
        begun += next.any();
        next.look_ahead();
    };
    const auto wait = [&](int chunk) { mbarrier_wait(shared.full + chunk % 4, chunk / 4 % 2); };
    for (int stage = 0; stage < T::stages - 1; ++stage) {
        load_half(stage, 0);
        load_half(stage, 1);
        finish_loading(stage);
        next.advance();
    }
    wait(0);

    float sum[T::MI][T::NI][4] = {};
    int done = 0;
    UNROLL(1)
    for (int stage = 0; done < begun; ++done) {
        const int free = stage == 0 ? T::stages - 1 : stage - 1; // once all threads are here
        const Factors<T> of_As_and_Bs(shared.As[stage], shared.Bs[stage], thread);
        const auto meanwhile = [&](int depth) {
            if (depth == T::depths - 3) {
                wait(done + 1);
                load_half(free, 0);
            } else if (depth == T::depths - 2) {
                load_half(free, 1);
                finish_loading(done + 2);
            }
        };
        multiply_chunk<T>(of_As_and_Bs, sum, meanwhile);
        next.advance();
        stage = stage + 1 == T::stages ? 0 : stage + 1;
        if (done + 1 == early_check && own.fails_early(sum, shared.failing)) {
            cp_async_commit();
            cp_async_wait<0>();
            return;
        }
    }
    griddep_launch_dependents();
    cp_async_wait<0>();
    static_assert(sizeof(Staging) * T::threads / 32 <= sizeof shared.As, "As is free by now");
    own.store_passing(sum, done > 0, shared.failing, reinterpret_cast<Staging *>(shared.As));
}

/* ------------------------------------------------------------------ the launch */

template <class T> constexpr KernelSpec spec = spec_of_tile<T>("mma", T::threads);

template <class T> Status launch_tile(const Sgemm *problem, const Launch *where)
{
    const auto multiply = [&](const Fp16Product &q, int64_t tiles, bool overlaps) {
        return launch_blocks(mma<T>, overlapping(spec<T>, overlaps), tiles, q, where);
    };
    return launch_checked<T>(problem, where, multiply);
}

template <bool SYMMETRIC> using Square = MmaTile<128, 128, 64, SYMMETRIC>;
// If a block has less than 193 KiB of shared memory, or less than 145.
template <bool SYMMETRIC> using Narrow = MmaTile<128, 64, 64, SYMMETRIC>;
template <bool SYMMETRIC> using Small = MmaTile<64, 64, 32, SYMMETRIC>;

template <bool SYMMETRIC> Status launch_largest_tile(const Sgemm *problem, const Launch *where)
{
    return has_shared_memory(where, spec<Square<SYMMETRIC>>)
               ? launch_tile<Square<SYMMETRIC>>(problem, where)
           : has_shared_memory(where, spec<Narrow<SYMMETRIC>>)
               ? launch_tile<Narrow<SYMMETRIC>>(problem, where)
               : launch_tile<Small<SYMMETRIC>>(problem, where);
}

Status launch(const Sgemm *problem, const Launch *where)
{
    return (where->symmetric ? launch_largest_tile<true> : launch_largest_tile<false>)(problem,
                                                                                       where);
}

} // namespace

LAUNCHER(mma)
{
    return launch_unless_short(launch, problem, where, MMA_MIN_K);
}

VARIANT(mma, "each float32 as an fp16 hi/lo pair, three products on tensor cores", "mma.cu",
        spec<Square<false>>, {8, 0});
