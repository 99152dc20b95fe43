// idea      the size of the tiles by that of C. A wave is as many blocks as run at once; the last one is
//           seldom full. Low tiles where there would be fewer than multiprocessors; wide ones, which
//           read less of shared memory for each product, where their waves are as full as others'.
// block     64 x 128, 128 x 128 or 128 x 192 results, of one or two warpgroups that multiply.
// traffic   for 128 x 192: 6.7 / 128 bytes of halves from the L2 cache per multiply-add.
// bound by  power, from 2048 on: the clock goes down before the tensor cores run dry.
// next      nothing yet.
#include "15_wgmma.cu"

namespace {

typedef WgmmaTiling<1, 128, 8> Low;
typedef WgmmaTiling<2, 192, 5> Wide;

/* The time of all waves, one of 128 x 128 tiles taking 1: an H200 was measured. */
template <class T> double waves_time(const Sgemm *problem, int multiprocessors)
{
    const double of_wave = T::BM == 64 ? 0.70 : T::BN == 192 ? 1.45 : 1;
    const int64_t tiles = tiles_of(problem->C, T::BM, T::BN);
    return of_wave * static_cast<double>((tiles + multiprocessors - 1) / multiprocessors);
}

Status launch(const Sgemm *problem, const Launch *where)
{
    int multiprocessors;
    const Status status = multiprocessors_of(where, &multiprocessors);
    if (status.code != STATUS_OK || multiprocessors == 0) {
        return status.code != STATUS_OK ? status : launch_wgmma<Square>(problem, where);
    }
    const double low = waves_time<Low>(problem, multiprocessors);
    const double square = waves_time<Square>(problem, multiprocessors);
    const double wide = waves_time<Wide>(problem, multiprocessors);
    return wide < square && wide < low ? launch_wgmma<Wide>(problem, where)
           : low < square              ? launch_wgmma<Low>(problem, where)
                                       : launch_wgmma<Square>(problem, where);
}

} // namespace

LAUNCHER(waves)
{
    return launch_long_sums(launch, problem, where);
}

ARCHITECTURE_SPECIFIC_VARIANT(waves,
                              "tiles of the size that leaves the fewest multiprocessors idle",
                              "16_waves.cu", wgmma_spec<Square>("wgmma"), {9, 0});
