/* Launches the rung `fused` for groups. */
#ifndef SGEMM_KERNELS_RAGGED_LAUNCH_H
#define SGEMM_KERNELS_RAGGED_LAUNCH_H

#include "fused_launch.h"
#include "ragged.h"

namespace {

template <class T>
Status launch_ragged_tile(const FusedGroups &groups, int multiprocessors, const Launch *where)
{
    typedef typename T::Group Group;
    const GroupStarts &starts = groups.starts;
    const int64_t tiles = starts.tiles[starts.count];
    const auto split = [&](const SplitBoth &both) {
        const RaggedSplit all = {both.b, starts};
        return launch_split_of<true>(all, where);
    };
    const auto multiply = [&](const Fp16Product &product, bool overlaps) {
        RaggedProduct q = {};
        q.product = product;
        q.starts = starts;
        q.whole = static_cast<unsigned>(tiles);
        q.slices = 1;
        const Matrix lines = fused_lines(&groups.whole);
        TiledMatrix a = tiled_a<T>(lines, lines.rows);
        a.matrices = static_cast<uint64_t>(groups.places);
        a.matrix_pitch = FUSED_GROUPS_UNIT;
        return launch_product<T>(&q, tiles, a, overlaps, static_cast<unsigned>(multiprocessors),
                                 where);
    };
    const auto recompute_all = [&](const Fp16Product &product) {
        RaggedRecomputed failed = {{product, 0, 0}, starts};
        return launch_recompute<Group>(recompute<Group, ELEMENT_FLOAT32, RaggedRecomputed>, &failed,
                                       where);
    };
    return launch_steps<Group>(&groups.whole, tiles * T::groups, where, false, false, split,
                               multiply, recompute_all);
}

template <template <bool> class Tiles>
Status launch_ragged(const FusedGroups &groups, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const auto launch = [&](auto tiles) {
        typedef decltype(tiles) Two;
        return (groups.width == FUSED_WIDE
                    ? launch_ragged_tile<typename Two::Wide>
                    : launch_ragged_tile<typename Two::Narrow>)(groups, multiprocessors, where);
    };
    return fused_is_mn_major(&groups.whole) ? launch(Tiles<true>()) : launch(Tiles<false>());
}

} // namespace

#endif
