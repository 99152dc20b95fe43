// idea      `fused` with fixed roles, for `invariant`: the bits of a row of C do not depend on the
//           other rows. It computes the transposed problem, so here A has the weights, which are
//           split in registers, and B has the tokens, which are split in advance. Slices of K
//           follow from the weights' sizes alone. If few tokens do not fill the GPU, blocks compute
//           slices in parallel. Otherwise a block computes all slices of its tile, one after the
//           other. Both add them in the same order.
// block     128 x 128 results by two consumer warpgroups, or 64 x 64 by one, and a producer
//           warpgroup; tiles 32 deep, in six stages.
// traffic   as in `fused`; in addition 8 bytes for each result and slice of K.
// bound by  memory with few tokens, otherwise tensor cores.
#include "../kernel/launch_parts.h"
#include "../plan/invariant_plan.h"
#include "copy_rows.h"
#include "fused_tiles.h"
#include "recompute_alone.h"

namespace {

struct FixedProduct : FusedProduct {
    int serial;     // slices of K that a block computes one after the other; 1: see `slices`
    float4 *totals; // [tile][number of results / 4][thread], with `serial`
};

/* GROUPS consumer warpgroups compute 64 x BN_ results each. A has the weights. */
template <int GROUPS, int BN_, int STAGES, bool MN_MAJOR>
struct FixedTile : SplitTile<GroupTile<BN_, false, GROUPS>, STAGES, MN_MAJOR> {
    static constexpr int blocks = GROUPS == 1 ? 2 : 1; // on a multiprocessor
    static constexpr int consumer_registers = GROUPS == 1 ? 208 : 232;

    static constexpr KernelSpec spec()
    {
        return spec_of_tile<FixedTile>("fixed", FixedTile::block_threads);
    }
};

/* Adds the slices of K of a tile in one block, as add_slices does. The total of a thread is in
 * memory until the last slice. */
template <class T> class SlicesInOrder {
  public:
    __device__ __forceinline__ SlicesInOrder(const FixedProduct &q, const Work &work)
        : q(q), totals(q.totals + int64_t{work.matrix * q.tiles_of_matrix + work.tile} *
                                      T::Group::NI * T::threads),
          slice(0), next(boundary(1)), rows()
    {}

    /* After a chunk, which ends at `end`. */
    __device__ __forceinline__ void add(int end, RowOfA (&of_slice)[2],
                                        float (&sum)[1][T::Group::NI][4])
    {
        if (end != next) {
            return;
        }
        const bool is_last = slice + 1 == q.serial;
        UNROLL(T::Group::NI)
        for (int j = 0; j < T::Group::NI; ++j) {
            float4 *const at = totals + j * T::threads + threadIdx.x;
            float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (slice > 0) {
                total = *at;
            }
            total.x += sum[0][j][0], total.y += sum[0][j][1];
            total.z += sum[0][j][2], total.w += sum[0][j][3];
            if (!is_last) {
                *at = total;
                total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
            sum[0][j][0] = total.x, sum[0][j][1] = total.y;
            sum[0][j][2] = total.z, sum[0][j][3] = total.w;
        }
        UNROLL(2)
        for (int r = 0; r < 2; ++r) {
            rows[r].inverse_scales += of_slice[r].inverse_scales;
            rows[r].largest = max_or_nan(rows[r].largest, of_slice[r].largest);
            of_slice[r] = is_last ? rows[r] : RowOfA{};
        }
        next = boundary(++slice + 1);
    }

  private:
    __device__ __forceinline__ int boundary(int number) const
    {
        return static_cast<int>(int64_t{q.product.b.chunks} * number / q.serial);
    }

    const FixedProduct &q;
    float4 *const totals;
    int slice, next; // the chunk where it ends
    RowOfA rows[2];  // of the total
};

/* The consumer threads of a warpgroup. */
template <class T, bool SERIAL>
KERNEL_BODY void multiply_fixed(const FixedProduct &q, const Work &work, typename T::Shared &shared)
{
    typedef typename T::Group Group;
    const int group = threadIdx.x / Group::threads, thread = threadIdx.x % Group::threads;
    const int row = threadIdx.x / 32 * Group::WM + EvenRowsFirst::row_of_lane(threadIdx.x % 32);
    RingPosition<T::stages> first, ahead; // of the K blocks multiplied and read next
    float sum[1][Group::NI][4] = {};
    RowOfA rows[2] = {};
    SlicesInOrder<T> slices(q, work);
    multiply_work<T>(work, shared, row, first, ahead, rows, sum, [&](int end) {
        if constexpr (SERIAL) {
            slices.add(end, rows, sum);
        }
    });
    griddep_launch_dependents();
    CheckedTile<Group, EvenRowsFirst, true> own(q.product, work.tile * T::groups + group,
                                                work.matrix, thread);
    if (work.divided) {
        store_slice<Group>(q, work.part, rows, sum, own);
    } else {
        Checking<Group> &check = shared.check[group];
        scale_rows<Group>(rows, q.chunk_share, sum, own, check);
        own.store_passing(sum, true, check.failing, check.staging);
    }
}

template <class T, bool SERIAL>
__global__ void __launch_bounds__(T::block_threads, T::blocks)
    fixed(const __grid_constant__ FixedProduct q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
        }
        fence_proxy_async();
    }
    __syncthreads();
    const Work work(q, blockIdx.x);
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<T::consumer_registers>();
        griddep_wait();
        multiply_fixed<T, SERIAL>(q, work, shared);
    } else {
        setmaxnreg_dec<40>();
        if (threadIdx.x == T::threads) {
            RingPosition<T::stages> to;
            load_work<T>(q, work, true, to, shared);
        }
    }
}

/* ------------------------------------------------------------------ the launch */

template <class T> using FixedAdding = AddingTile<typename T::Group, FUSED_NARROW>;

template <class T>
Status launch_fixed(FixedProduct q, const Fp16Product &product, bool overlaps, const Launch *where)
{
    const Sgemm &p = product.p;
    q.product = product;
    Status status = count_work(&q, tiles_of(p.C, T::BM, T::BN));
    if (status.code != STATUS_OK) {
        return status;
    }
    // TMA sees the matrices of a batch as one with many lines.
    const Matrix lines = fused_lines(&p);
    const int64_t last = p.A.batch_stride ? p.count - 1 : 0;
    q.matrix_lines = last ? fused_lines_apart(&p) : 0;
    q.chunk_share = static_cast<float>(k_chunk) / static_cast<float>(p.A.cols);
    const TiledMatrix a = {lines.data,
                           static_cast<uint64_t>(lines.cols),
                           static_cast<uint64_t>(last * q.matrix_lines + lines.rows),
                           static_cast<uint64_t>(lines.row_stride) * sizeof(float),
                           sizeof(float),
                           line_floats,
                           T::mn_major ? k_block : T::BM,
                           true};
    status = encode_tensor_map(&q.b, tiled_matrix(product.b, T::BN));
    if (status.code == STATUS_OK) {
        status = encode_tensor_map(&q.a, a);
    }
    if (status.code == STATUS_OK) {
        status = launch_blocks(q.serial > 1 ? fixed<T, true> : fixed<T, false>,
                               overlapping(T::spec(), overlaps), q.blocks, q, where);
    }
    return status.code == STATUS_OK ? launch_adding<FixedAdding<T>, true>(q, where) : status;
}

/* Multiplies by `multiply` and recomputes what fails, in tiles T whose rows are in this order. */
template <class T, class Rows, class Multiply>
Status launch_alone(const Sgemm *problem, const Launch *where, const Multiply &multiply)
{
    const auto recompute = [&](const Fp16Product &product) {
        Recomputed failed = {product, 0, 0};
        return launch_recompute<T>(recompute_alone<T, Rows>, &failed, where);
    };
    return launch_tiles_checked<T>(problem, tiles_computed<T>(problem->C), where, multiply,
                                   recompute, false, true);
}

template <class T>
Status launch_slices(const Sgemm *problem, const Launch *where, int slices, bool parallel)
{
    FixedProduct q = {};
    const int64_t tiles = tiles_of(problem->C, T::BM, T::BN) * problem->count;
    q.whole = parallel && slices > 1 ? 0 : static_cast<unsigned>(tiles);
    q.slices = parallel ? slices : 1;
    q.serial = parallel ? 1 : slices;
    const auto multiply = [&](const Fp16Product &product, bool overlaps) {
        return launch_fixed<T>(q, product, overlaps, where);
    };
    if (slices == 1) {
        return launch_alone<typename T::Group, EvenRowsFirst>(problem, where, multiply);
    }
    void *memory;
    Status status = take_sums<T>(tiles * q.slices, where, &q, &memory);
    if (status.code != STATUS_OK) {
        return status;
    }
    q.totals = reinterpret_cast<float4 *>(q.sums);
    status = parallel ? launch_alone<FixedAdding<T>, RowsInOrder>(problem, where, multiply)
                      : launch_alone<typename T::Group, EvenRowsFirst>(problem, where, multiply);
    scratch_free(memory, where);
    return status;
}

/* TMA can load the weights. */
template <bool MN_MAJOR> Status launch_loadable(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const int slices = invariant_slices(problem->C.rows, problem->A.cols);
    const InvariantPlan plan = plan_invariant(problem, slices, multiprocessors);
    return (plan.low ? launch_slices<FixedTile<1, FUSED_NARROW, 6, MN_MAJOR>>
                     : launch_slices<FixedTile<2, FUSED_WIDE, 6, MN_MAJOR>>)(problem, where, slices,
                                                                             plan.parallel);
}

/* Products of the transposed problem. */
Status launch_part(const Sgemm *problem, const Launch *where)
{
    const auto launch = [&](const Sgemm *loadable) {
        return (fused_is_mn_major(loadable) ? launch_loadable<true>
                                            : launch_loadable<false>)(loadable, where);
    };
    if (fused_lines_apart(problem) >= 0) {
        return launch(problem);
    }
    return with_rows_copied(problem->A, problem->count, where, [&](const Matrix &A) {
        Sgemm loadable = *problem;
        loadable.A = A;
        return launch(&loadable);
    });
}

/* The transposed problem, in parts of the batch. */
Status launch_transposed(const Sgemm *batch, const Launch *where)
{
    const int slices = invariant_slices(batch->C.rows, batch->A.cols);
    return launch_parts(batch, where, invariant_batch(batch, slices), launch_part);
}

} // namespace

/* K is at least WGMMA_MIN_K. */
LAUNCHER(fixed)
{
    return launch_swapped(problem, where, launch_transposed);
}

ARCHITECTURE_SPECIFIC_VARIANT(fixed, "rows of C with bits of their own, on tensor cores", nullptr,
                              (FixedTile<2, FUSED_WIDE, 6, false>::spec()), {9, 0});
