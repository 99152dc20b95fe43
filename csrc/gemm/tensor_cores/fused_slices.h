/* The product that `fused` computes, with K in slices; the kernel that adds the slices. */
#ifndef SGEMM_KERNELS_FUSED_SLICES_H
#define SGEMM_KERNELS_FUSED_SLICES_H

#include "error_check.h"
#include "split_in_registers.h"

namespace {

struct Work;

struct FusedProduct {
    typedef Work Unit;
    Fp16Product product;  // its `a` is not used
    int64_t matrix_lines; // lines of A's tensor map from matrix to matrix of a batch
    TensorMap a, b;
    float chunk_share;        // k_chunk / K
    unsigned work_items;      // whole tiles, then all slices of the others
    unsigned blocks;          // each does every blocks-th
    unsigned tiles_of_matrix; // of a C
    unsigned whole;           // tiles of all C that are not divided along K: the first ones
    int slices;               // of K in each other tile
    float *sums;              // of each part: a slice of a divided tile
    RowOfA *rows;             // of each part

    /* Where `sums` and `rows` have a row of C, in a part of a tile of ROWS rows. */
    template <int ROWS>
    __device__ __forceinline__ int64_t row_in_part(unsigned part, int64_t row) const
    {
        return int64_t{part} * ROWS + row % ROWS;
    }
};

/* What a block computes without a pause: a tile of a C, whole or a slice of K, in K chunks. */
struct Work {
    unsigned matrix, tile;
    bool divided;
    unsigned part; // if divided, its slice, numbered through all divided tiles; otherwise not used
    int begin, end;

    __device__ __forceinline__ Work(const FusedProduct &q, unsigned number)
        : divided(number >= q.whole), part(number - q.whole)
    {
        const auto slices = static_cast<unsigned>(q.slices);
        const unsigned in_batch = divided ? q.whole + part / slices : number;
        matrix = in_batch / q.tiles_of_matrix;
        tile = in_batch % q.tiles_of_matrix;
        begin = divided ? boundary(q, part % slices) : 0;
        end = divided ? boundary(q, part % slices + 1) : q.product.b.chunks;
    }
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
__device__ __forceinline__ void store_slice(const FusedProduct &q, unsigned part,
                                            const RowOfA (&rows)[2],
                                            const float (&sum)[1][T::NI][4], const Tile &own)
{
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        const int64_t row =
            q.row_in_part<T::stacked * T::BM>(part, own.tile.row + own.row_in_tile(r));
        if (threadIdx.x % 4 == 0) {
            q.rows[row] = rows[r];
        }
        UNROLL(T::NI)
        for (int j = 0; j < T::NI; ++j) {
            const Pair two = {sum[0][j][2 * r], sum[0][j][2 * r + 1]};
            *reinterpret_cast<Pair *>(q.sums + row * T::BN + own.col_in_tile(2 * j)) = two;
        }
    }
}

/* The tile of a block that adds slices of K: what a warpgroup computes, or some columns of it. */
template <class GROUP, int BN_> struct AddingTile {
    typedef GROUP Group;
    static constexpr bool symmetric = Group::symmetric;
    static constexpr int stacked = Group::stacked;
    static constexpr int BM = Group::BM, BN = BN_;
    static constexpr int WM = 16, WN = 32, MI = WM / 16, NI = WN / 8;
    static constexpr int warps_across = BN / WN, threads = BM / WM * warps_across * 32;
    static constexpr int resident = BN == 64 ? 0 : 1; // least blocks of a multiprocessor

    static __device__ __forceinline__ void synchronize()
    {
        __syncthreads();
    }
};

template <class Group, int BN> constexpr int beside<AddingTile<Group, BN>> = Group::BN / BN;

/* Adds the slices of K in order, in the tiles that are divided. */
template <class T, bool ALONE = false>
__global__ void __launch_bounds__(T::threads, T::resident) add_slices(const FusedProduct q)
{
    __shared__ Checking<T> shared;
    griddep_wait();
    constexpr unsigned together = T::stacked * beside<T>;
    const unsigned divided = blockIdx.x / together, in_batch = q.whole + divided;
    CheckedTile<T, RowsInOrder, ALONE> own(
        q.product, in_batch % q.tiles_of_matrix * together + blockIdx.x % together,
        in_batch / q.tiles_of_matrix, threadIdx.x);
    float sum[1][T::NI][4] = {};
    RowOfA rows[2] = {};
    UNROLL(8)
    for (int slice = 0; slice < q.slices; ++slice) {
        UNROLL(2)
        for (int r = 0; r < 2; ++r) {
            const int64_t row = q.row_in_part<T::stacked * T::BM>(
                divided * static_cast<unsigned>(q.slices) + static_cast<unsigned>(slice),
                own.tile.row + own.row_in_tile(r));
            rows[r].inverse_scales += q.rows[row].inverse_scales;
            rows[r].largest = max_or_nan(rows[r].largest, q.rows[row].largest);
            UNROLL(T::NI)
            for (int j = 0; j < T::NI; ++j) {
                const Pair two = *reinterpret_cast<const Pair *>(q.sums + row * T::Group::BN +
                                                                 own.tile.col % T::Group::BN +
                                                                 own.col_in_tile(2 * j));
                sum[0][j][2 * r] += two.x;
                sum[0][j][2 * r + 1] += two.y;
            }
        }
    }
    griddep_launch_dependents();
    scale_rows<T>(rows, q.chunk_share, sum, own, shared);
    own.store_passing(sum, true, shared.failing, shared.staging);
}

/* Launches add_slices if tiles are divided. */
template <class T, bool ALONE = false>
Status launch_adding(const FusedProduct &q, const Launch *where)
{
    const int64_t divided = (q.work_items - q.whole) / static_cast<unsigned>(q.slices);
    return divided == 0 ? status_ok()
                        : launch_blocks(add_slices<T, ALONE>,
                                        overlapping(spec_of_threads("add_slices", T::threads)),
                                        divided * T::stacked * beside<T>, q, where);
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

/* Counts the work items: each C has this number of tiles. */
inline Status count_work(FusedProduct *q, int64_t tiles)
{
    const int64_t of_batch = tiles * q->product.p.count;
    if (of_batch > INT32_MAX / q->slices) {
        return too_many_work_items();
    }
    q->tiles_of_matrix = static_cast<unsigned>(tiles);
    q->work_items = q->blocks =
        q->whole + (static_cast<unsigned>(of_batch) - q->whole) * static_cast<unsigned>(q->slices);
    return status_ok();
}

/* Takes memory for the sums of all parts of tiles. The caller gives it back. */
template <class T>
Status take_sums(int64_t parts, const Launch *where, FusedProduct *q, void **memory)
{
    const auto place = [&](char *from) {
        Arrays arrays = {from, 0};
        q->sums = arrays.take<float>(parts * T::BM * T::BN);
        q->rows = arrays.take<RowOfA>(parts * T::BM);
        return arrays.bytes;
    };
    const Status status = scratch_alloc(place(nullptr), where, memory);
    if (status.code == STATUS_OK) {
        place(static_cast<char *>(*memory));
    }
    return status;
}

/* Calls launch() with memory for the sums of the tiles T that q->slices divide, if any. */
template <class T, class Do>
Status with_sums(const Sgemm *problem, const Launch *where, FusedProduct *q, const Do &launch)
{
    const int64_t divided = tiles_computed<T>(problem->C) * problem->count - q->whole;
    if (divided == 0) {
        return launch();
    }
    void *memory;
    Status status = take_sums<T>(divided * q->slices, where, q, &memory);
    if (status.code == STATUS_OK) {
        status = launch();
        scratch_free(memory, where);
    }
    return status;
}

} // namespace

#endif
