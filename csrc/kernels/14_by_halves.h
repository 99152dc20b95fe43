/* A product by halves from its operands on: split them, multiply, compute in float32 what was not
 * certain. Each is a kernel of its own, queued behind the one before. */
#ifndef SGEMM_KERNELS_14_BY_HALVES_H
#define SGEMM_KERNELS_14_BY_HALVES_H

#include "14_recompute.h"

namespace {

/* The tiling in float32 for tiles of C of this size. */
template <int BM, int BN> struct Float32;
template <> struct Float32<128, 128> {
    typedef Geometry<128, 128, 16, 64, 64, 8, 16> Tiling;
};
template <> struct Float32<128, 64> {
    typedef Geometry<128, 64, 16, 64, 32, 8, 8> Tiling;
};
template <> struct Float32<64, 128> {
    typedef Geometry<64, 128, 16, 32, 64, 8, 8> Tiling;
};
template <> struct Float32<128, 192> {
    typedef Geometry<128, 64, 16, 64, 32, 8, 8> Tiling; // three side by side
};
template <> struct Float32<64, 64> {
    typedef Geometry<64, 64, 16, 64, 64, 8, 16> Tiling;
};

/* Launches them, the product itself by multiply(product, tiles of C, whether it overlaps). Takes 4 bytes of scratch memory
 * for each element of A and B, as if they had a multiple of 128 lines and of 64 of the depth. */
template <class T, class Multiply>
Status launch_by_halves(const Sgemm *problem, const Launch *where, const Multiply &multiply)
{
    if (!countable(problem->A) || !countable(transposed(problem->B))) {
        return status_error(STATUS_OUT_OF_MEMORY, "no memory for more than 70 TB of halves");
    }
    HalvesProduct q = {};
    SplittingBoth both = {};
    const int64_t tiles = tiles_of(problem->C, T::BM, T::BN);
    Prepared *const of_a = where->prepared, *const of_b = of_a ? of_a + 1 : nullptr;
    const bool a_is_split = find_prepared(problem->A, of_a, where);
    const bool b_is_split = find_prepared(transposed(problem->B), of_b, where);
    Parts parts = {nullptr, 0};
    for (int pass = 0; pass < 2; ++pass) { // how many bytes, then where
        both.a = plan_splitting(problem->A, of_a, &parts);
        both.b = plan_splitting(transposed(problem->B), of_b, &parts);
        q = {*problem, both.a.to, both.b.to, parts.take<int>(tiles),
             parts.take<uint16_t>(tiles * slots)};
        if (pass == 0) {
            void *memory;
            const Status status = scratch_take(parts.bytes, where, &memory);
            if (status.code != STATUS_OK) {
                for (int i = 0; i < 2 && where->prepared; ++i) { // what is not filled is of no use
                    if (!where->prepared[i].ready) {
                        scratch_give(where->prepared[i].memory, where);
                        where->prepared[i].memory = nullptr;
                    }
                }
                return status;
            }
            parts = {static_cast<char *>(memory), 0};
        }
    }
    both.a.to.groups = a_is_split ? 0 : both.a.to.groups;
    both.b.to.groups = b_is_split ? 0 : both.b.to.groups;
    typedef typename Float32<T::BM, T::BN>::Tiling Float32Tiling;
    Status status = launch_splitting(both, where);
    if (status.code == STATUS_OK) {
        // Only behind kernels of its own: others it has to wait for in the common way.
        status = multiply(q, tiles, !(a_is_split && b_is_split));
    }
    if (status.code == STATUS_OK) {
        status =
            launch_blocks(fill_slots<T>, overlapping(spec_of_threads("fill_slots", dot_threads)),
                          tiles, q, where);
    }
    if (status.code == STATUS_OK) {
        status = launch_blocks(fill_tiles<T, Float32Tiling>,
                               overlapping(spec_of<Float32Tiling>("fill_tiles")),
                               tiles * blocks_of_tile<T, Float32Tiling>, q, where);
    }
    scratch_give(parts.memory, where);
    return status;
}

} // namespace

#if defined(__CUDACC__)
extern "C" Launcher launch_splitk_cuda;
#elif !defined(SGEMM_COUNTED)
extern "C" const Variant variant_coalesced, variant_splitk;

/* Computes by splitk; by coalesced, with the same bits, where one tile of splitk's would take a CPU
 * longer than all that C has. */
static inline Status launch_in_float32(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const bool in_order = plan_splits(problem, multiprocessors ? multiprocessors : 8) == 1;
    const Variant *const rung = where->brief && in_order ? &variant_coalesced : &variant_splitk;
    return rung->launch[DEVICE_CPU](problem, where);
}
#endif

/* Short sums are computed in float32: the proof of the bound needs some length. */
static inline Status launch_long_sums(Launcher *by_halves, const Sgemm *problem,
                                      const Launch *where)
{
#ifdef __CUDACC__
    Launcher *const in_float32 = launch_splitk_cuda;
#elif defined(SGEMM_COUNTED)
    Launcher *const in_float32 = by_halves; // the tile that is counted stands for long sums
#else
    Launcher *const in_float32 = launch_in_float32;
#endif
    return (problem->A.cols < shortest ? in_float32 : by_halves)(problem, where);
}

#endif
