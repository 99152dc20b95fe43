/* Launches the rung `fused`: chooses a tile and slices of K, splits B, and orients the problem. */
#ifndef SGEMM_KERNELS_FUSED_LAUNCH_H
#define SGEMM_KERNELS_FUSED_LAUNCH_H

#include "../plan/fused_plan.h"
#include "copy_rows.h"
#include "fused_slices.h"

namespace {

template <class T, class Q> __global__ void fused(const __grid_constant__ Q q);

/* Describes A to TMA. It sees the matrices of a batch as one with many lines. */
template <class T> TiledMatrix tiled_a(const Matrix &lines, int64_t of_all)
{
    return {lines.data,
            static_cast<uint64_t>(lines.cols),
            static_cast<uint64_t>(of_all),
            static_cast<uint64_t>(lines.row_stride) * sizeof(float),
            sizeof(float),
            line_floats,
            T::mn_major ? k_block : T::BM,
            true};
}

/* Launches `fused` for so many tiles of each C of q->product. */
template <class T, class Q>
Status launch_product(Q *q, int64_t tiles, const TiledMatrix &a, bool overlaps,
                      unsigned most_blocks, const Launch *where)
{
    const Fp16Product &product = q->product;
    const Status counted = count_work(q, tiles);
    if (counted.code != STATUS_OK) {
        return counted;
    }
    q->blocks = q->work_items < most_blocks ? q->work_items : most_blocks;
    q->chunk_share = static_cast<float>(k_chunk) / static_cast<float>(product.p.A.cols);
    Status status = encode_tensor_map(&q->b, tiled_matrix(product.b, T::BN));
    if (status.code == STATUS_OK) {
        status = encode_tensor_map(&q->a, a);
    }
    return status.code == STATUS_OK
               ? launch_blocks(fused<T, Q>, overlapping(T::spec(), overlaps), q->blocks, *q, where)
               : status;
}

/* The same for a product or a batch. */
template <class T>
Status launch_batch(FusedProduct *q, bool overlaps, unsigned most_blocks, const Launch *where)
{
    const Sgemm &p = q->product.p;
    const int64_t last = p.A.batch_stride ? p.count - 1 : 0;
    q->matrix_lines = last ? fused_lines_apart(&p) : 0;
    const Matrix lines = fused_lines(&p);
    const TiledMatrix a = tiled_a<T>(lines, last * q->matrix_lines + lines.rows);
    return launch_product<T>(q, tiles_computed<T>(p.C), a, overlaps, most_blocks, where);
}

/* add_slices has tiles of ADDED columns. If some tiles are not divided, that is their width, too:
 * `recompute` reads one list for both. */
template <class T, int ADDED>
Status launch_tile(const Sgemm *problem, const Launch *where, const FusedPlan &plan,
                   unsigned most_blocks)
{
    typedef AddingTile<typename T::Group, ADDED> Adding;
    FusedProduct q = {};
    q.whole = static_cast<unsigned>(plan.whole);
    q.slices = plan.slices;
    const auto multiply = [&](const Fp16Product &product, int64_t, bool overlaps) {
        q.product = product;
        const Status status = launch_batch<T>(&q, overlaps, most_blocks, where);
        return status.code == STATUS_OK ? launch_adding<Adding>(q, where) : status;
    };
    return with_sums<T>(problem, where, &q,
                        [&] { return launch_checked<Adding>(problem, where, multiply, false); });
}

template <template <bool, bool> class Tiles, bool SYMMETRIC>
Status launch_planned(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const FusedPlan plan = plan_fused(problem, SYMMETRIC, multiprocessors);
    const auto launch = [&](const Sgemm *loadable) {
        const auto with = [&](auto tiles) {
            typedef typename decltype(tiles)::Narrow Narrow;
            typedef typename decltype(tiles)::Wide Wide;
            return (plan.width == FUSED_NARROW ? launch_tile<Narrow, FUSED_NARROW>
                    : plan.whole > 0
                        ? launch_tile<Wide, FUSED_WIDE>
                        : launch_tile<Wide, FUSED_NARROW>)(loadable, where, plan,
                                                           static_cast<unsigned>(multiprocessors));
        };
        return fused_is_mn_major(loadable) ? with(Tiles<true, SYMMETRIC>())
                                           : with(Tiles<false, SYMMETRIC>());
    };
    if (!plan.copies) {
        return launch(problem);
    }
    return with_rows_copied(problem->A, problem->count, where, [&](const Matrix &A) {
        Sgemm loadable = *problem;
        loadable.A = A;
        return launch(&loadable);
    });
}

/* Splits the larger operand in registers: as A, or as the B of the transposed problem. */
template <template <bool, bool> class Tiles, bool SYMMETRIC>
Status launch_fused(const Sgemm *problem, const Launch *where)
{
    if (!fused_transposes(problem)) {
        return launch_planned<Tiles, SYMMETRIC>(problem, where);
    }
    return launch_swapped(problem, where, launch_planned<Tiles, SYMMETRIC>);
}

} // namespace

#endif
