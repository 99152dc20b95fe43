/* The product that `fused` computes for groups: C's columns are divided into groups of any sizes,
 * ragged, and each has an A of its own (plan/fused_groups.h). All groups' columns of B are split as
 * one operand. */
#ifndef SGEMM_KERNELS_RAGGED_H
#define SGEMM_KERNELS_RAGGED_H

#include "../plan/fused_groups.h"
#include "fused_slices.h"

namespace {

/* A warpgroup's part of a tile of a group. */
template <int BN_> struct RaggedTile : GroupTile<BN_> {};

template <int BN> constexpr bool begins_at_odd_columns<RaggedTile<BN>> = true;

/* The group that a tile or a column belongs to: the last one that does not begin behind it. */
__device__ __forceinline__ unsigned group_of(const int (&begins)[FUSED_GROUPS_MOST + 1], int count,
                                             int64_t number)
{
    unsigned low = 0, high = static_cast<unsigned>(count);
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        const bool is_before = number < begins[middle];
        low = is_before ? low : middle;
        high = is_before ? middle : high;
    }
    return low;
}

constexpr int64_t unit_floats = FUSED_GROUPS_UNIT / sizeof(float);

/* The product of one group, whose tiles, columns and results are counted from its own first. A
 * tile has TILES numbers, one for each warpgroup. */
template <int TILES>
__device__ __forceinline__ Fp16Product product_of_group(const Fp16Product &all,
                                                        const GroupStarts &starts, unsigned group)
{
    Fp16Product own = all;
    const int64_t tile = int64_t{starts.tiles[group]} * TILES, col = starts.cols[group];
    own.p.A.data += starts.A[group] * unit_floats;
    own.p.B.data += starts.B[group] * unit_floats;
    own.p.C.data += starts.C[group];
    own.addend.data += starts.C[group];
    own.p.B.cols = own.p.C.cols = starts.cols[group + 1] - col;
    own.b.largest += col;
    own.b.scale += col;
    own.failing += tile;
    own.position += tile * max_failing;
    return own;
}

/* All columns of B. */
struct RaggedSplit : Split {
    GroupStarts starts;

    __device__ __forceinline__ Matrix matrix_of(int64_t row) const
    {
        const unsigned group = group_of(starts.cols, starts.count, row);
        Matrix own = X;
        own.data += starts.B[group] * unit_floats - starts.cols[group] * X.row_stride;
        return own;
    }
};

struct RaggedWork;

struct RaggedProduct : FusedProduct {
    typedef RaggedWork Unit;
    GroupStarts starts;
};
static_assert(sizeof(RaggedProduct) <= 4096, "it is a kernel's parameter");

/* What a block computes without a pause: a tile of a group. */
struct RaggedWork {
    static constexpr unsigned matrix = 0, part = 0;
    static constexpr bool divided = false;
    static constexpr int begin = 0;
    unsigned group, tile;
    int end;

    __device__ __forceinline__ RaggedWork(const RaggedProduct &q, unsigned number)
        : group(group_of(q.starts.tiles, q.starts.count, number)),
          tile(number - static_cast<unsigned>(q.starts.tiles[group])), end(q.product.b.chunks)
    {}
};

__device__ __forceinline__ Fp16Product product_of(const RaggedProduct &q, const RaggedWork &work)
{
    return product_of_group<GroupTile<FUSED_WIDE>::stacked>(q.product, q.starts, work.group);
}

/* TMA sees all matrices A as one whose places, 16 bytes apart, overlap. */
__device__ __forceinline__ int first_line(const RaggedProduct &q, const RaggedWork &work)
{
    return q.starts.A[work.group];
}

__device__ __forceinline__ void load_lines(void *to, const RaggedProduct &q, int along, int place,
                                           int line, Mbarrier *barrier)
{
    tma_load_3d(to, q.a, along, line, place, barrier);
}

__device__ __forceinline__ int64_t first_col(const RaggedProduct &q, const RaggedWork &work)
{
    return q.starts.cols[work.group];
}

/* What failed in the tiles of all groups. */
struct RaggedRecomputed : Recomputed {
    GroupStarts starts;

    template <class T>
    __device__ __forceinline__ Fp16Product product_of(FailedTile<T> &failed) const
    {
        constexpr unsigned tiles = T::stacked;
        const unsigned group = group_of(starts.tiles, starts.count, failed.number / tiles);
        failed.number -= tiles * static_cast<unsigned>(starts.tiles[group]);
        failed.in_batch = failed.number;
        return product_of_group<tiles>(product, starts, group);
    }
};

} // namespace

#endif
