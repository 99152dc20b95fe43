/* The product that `fused` computes, with K in slices; the kernel that adds the slices. */
#ifndef SGEMM_KERNELS_FUSED_SLICES_H
#define SGEMM_KERNELS_FUSED_SLICES_H

#include "error_check.h"
#include "split_in_registers.h"

namespace {

struct Work;

struct FusedProduct {
    typedef Work Unit;
    static constexpr bool sliced = true; // K may be
    Fp16Product product;                 // its `a` is not used
    int64_t matrix_lines;                // lines of A's tensor map from matrix to matrix of a batch
    TensorMap a, b;
    float chunk_share;   // k_chunk / K
    unsigned work_items; // tiles x slices x matrices
    unsigned work_items_of_matrix;
    unsigned blocks; // each does every blocks-th
    int slices;      // of K
    float *sums;     // of each slice: rows x cols, padded to whole tiles
    RowOfA *rows;    // of each slice
    int64_t row_count, col_count;

    /* The first row of a slice in `sums` and `rows`. */
    __device__ __forceinline__ int64_t row_in_slice(unsigned matrix, int64_t slice) const
    {
        return (matrix * int64_t{slices} + slice) * row_count;
    }
};

/* What a block computes without a pause: a tile of a C, and a slice of K, in K chunks. */
struct Work {
    unsigned matrix, tile, slice;
    int begin, end;

    __device__ __forceinline__ Work(const FusedProduct &q, unsigned number)
        : matrix(number / q.work_items_of_matrix),
          tile(number % q.work_items_of_matrix / static_cast<unsigned>(q.slices)),
          slice(number % q.work_items_of_matrix % static_cast<unsigned>(q.slices)),
          begin(boundary(q, slice)), end(boundary(q, slice + 1))
    {}
    static __device__ __forceinline__ int boundary(const FusedProduct &q, unsigned slice)
    {
        return static_cast<int>(int64_t{q.product.b.chunks} * slice / q.slices);
    }
};

/* The product that a work belongs to; the first lines and columns of its matrices in the tensor
 * maps. */
__device__ __forceinline__ const Fp16Product &product_of(const FusedProduct &q, const Work &)
{
    return q.product;
}

__device__ __forceinline__ int first_line(const FusedProduct &q, const Work &work)
{
    return static_cast<int>(work.matrix * q.matrix_lines);
}

__device__ __forceinline__ int64_t first_col(const FusedProduct &q, const Work &work)
{
    return q.product.b.first_row(work.matrix);
}

/* Loads a tile of A, from a line of the work's matrix on, `first` being its first_line. */
__device__ __forceinline__ void load_lines(void *to, const FusedProduct &q, int along, int first,
                                           int line, Mbarrier *barrier)
{
    tma_load_2d(to, q.a, along, first + line, barrier);
}

/* What one consumer warpgroup computes and checks, without waiting for the other, if a block has
 * two. */
template <int BN_, bool SYMMETRIC = false, int STACKED = 2> struct GroupTile {
    static constexpr bool symmetric = SYMMETRIC;
    static constexpr int stacked = STACKED;
    static constexpr int BM = 64, BN = BN_;
    static constexpr int WM = 16, WN = BN, MI = WM / 16, NI = WN / 8; // of a warp, and in products
    static constexpr int warps_across = 1, threads = BM / WM * 32;

    static __device__ __forceinline__ void synchronize()
    {
        if (threadIdx.x < threads) {
            bar_sync<1>(threads);
        } else {
            bar_sync<2>(threads);
        }
    }
};

/* What the check of a tile keeps in shared memory. */
template <class T> struct Checking {
    uint64_t failing[T::threads / 8]; // a byte for each thread
    Staging staging[T::threads / 32]; // for each warp
    unsigned row_largest[T::BM];
    int row_scale[T::BM];
};

/* Scales each row's sums by a power of two so that `check_threshold` is their least magnitude that
 * passes the check, and lets `own` undo it. If sums may have overflowed, they become 0, or NaN if
 * they did: both fail, unless all terms are 0. */
template <class T, class Tile>
__device__ __forceinline__ void scale_rows(const RowOfA (&rows)[2], float chunk_share,
                                           float (&sum)[1][T::NI][4], Tile &own,
                                           Checking<T> &shared)
{
    T::synchronize(); // all threads have stored the previous tile
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        const unsigned mean = bits_of(rows[r].inverse_scales * chunk_share);
        const int exponent = static_cast<int>(mean >> 23) - 127 + ((mean & 0x7fffff) != 0);
        const float scale = rows[r].inverse_scales < 0x1p91f ? power_of_two(-exponent) : 0.0f;
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            sum[0][j][2 * r] *= scale;
            sum[0][j][2 * r + 1] *= scale;
        }
        if (threadIdx.x % 4 == 0) {
            shared.row_scale[own.row_in_tile(r)] = rows[r].largest == 0.0f ? 0 : -exponent;
            shared.row_largest[own.row_in_tile(r)] = bits_of(rows[r].largest);
        }
    }
    own.row_scale = shared.row_scale;
    own.row_largest = shared.row_largest;
    T::synchronize();
}

/* Stores a slice's sums and what the check needs of its rows. */
template <class T, class Tile>
__device__ __forceinline__ void store_slice(const FusedProduct &q, unsigned slice,
                                            const RowOfA (&rows)[2],
                                            const float (&sum)[1][T::NI][4], const Tile &own)
{
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        const int64_t row = q.row_in_slice(own.matrix, slice) + own.tile.row + own.row_in_tile(r);
        if (own.tile.col == 0 && threadIdx.x % 4 == 0) {
            q.rows[row] = rows[r];
        }
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            const Pair two = {sum[0][j][2 * r], sum[0][j][2 * r + 1]};
            *reinterpret_cast<Pair *>(q.sums + row * q.col_count + own.tile.col +
                                      own.col_in_tile(2 * j)) = two;
        }
    }
}

/* The tile of a block that adds slices of K. */
template <bool SYMMETRIC = false> struct AddingTile {
    static constexpr bool symmetric = SYMMETRIC;
    static constexpr int stacked = 1;
    static constexpr int BM = 64, BN = 64;
    static constexpr int WM = 16, WN = 32, MI = WM / 16, NI = WN / 8;
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;

    static __device__ __forceinline__ void synchronize()
    {
        __syncthreads();
    }
};

/* Adds the slices of K in order. */
template <class T, bool ALONE = false>
__global__ void __launch_bounds__(T::threads) add_slices(const FusedProduct q)
{
    __shared__ Checking<T> shared;
    griddep_wait();
    CheckedTile<T, RowsInOrder, ALONE> own(q.product, blockIdx.x, threadIdx.x);
    float sum[1][T::NI][4] = {};
    RowOfA rows[2] = {};
    UNROLL(8)
    for (int slice = 0; slice < q.slices; ++slice) {
        UNROLL(2)
        for (int r = 0; r < 2; ++r) {
            const int64_t row =
                q.row_in_slice(own.matrix, slice) + own.tile.row + own.row_in_tile(r);
            rows[r].inverse_scales += q.rows[row].inverse_scales;
            rows[r].largest = max_or_nan(rows[r].largest, q.rows[row].largest);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                const Pair two = *reinterpret_cast<const Pair *>(
                    q.sums + row * q.col_count + own.tile.col + own.col_in_tile(2 * j));
                sum[0][j][2 * r] += two.x;
                sum[0][j][2 * r + 1] += two.y;
            }
        }
    }
    griddep_launch_dependents();
    scale_rows<T>(rows, q.chunk_share, sum, own, shared);
    own.store_passing(sum, true, shared.failing, shared.staging);
}

/* Launches add_slices. */
template <bool SYMMETRIC, bool ALONE = false>
Status launch_adding(const FusedProduct &q, const Launch *where)
{
    typedef AddingTile<SYMMETRIC> T;
    return launch_blocks(add_slices<T, ALONE>,
                         overlapping(spec_of_threads("add_slices", T::threads)),
                         tiles_computed<T>(q.product.p.C), q, where, q.product.p.count);
}

/* Launches the transposed problem. */
inline Status launch_swapped(const Sgemm *problem, const Launch *where, Launcher *launch)
{
    const Sgemm swapped = sgemm_transposed(problem);
    Launch here = *where;
    here.prepared[0] = where->prepared[1];
    here.prepared[1] = where->prepared[0];
    here.elements[0] = where->elements[1];
    here.elements[1] = where->elements[0];
    Addend addend;
    if (where->addend) {
        addend = *where->addend;
        addend.matrix = transposed(addend.matrix);
        here.addend = &addend;
    }
    return launch(&swapped, &here);
}

/* Takes memory for the sums of q->slices, in whole tiles. The caller gives it back. */
template <class T>
Status take_sums(const Sgemm *problem, const Launch *where, FusedProduct *q, void **memory)
{
    q->row_count = (problem->C.rows + T::BM - 1) / T::BM * T::BM;
    q->col_count = (problem->C.cols + T::BN - 1) / T::BN * T::BN;
    const int64_t rows = problem->count * q->slices * q->row_count;
    const auto place = [&](char *from) {
        Arrays arrays = {from, 0};
        q->sums = arrays.take<float>(rows * q->col_count);
        q->rows = arrays.take<RowOfA>(rows);
        return arrays.bytes;
    };
    const Status status = scratch_alloc(place(nullptr), where, memory);
    if (status.code == STATUS_OK) {
        place(static_cast<char *>(*memory));
    }
    return status;
}

} // namespace

#endif
