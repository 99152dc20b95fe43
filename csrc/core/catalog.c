#include "catalog.h"

#include <string.h>

/* Each is defined at the end of its kernel's file. */
extern const Variant variant_naive, variant_coalesced, variant_smem, variant_tile1d, variant_tile2d,
    variant_vec4, variant_prefetch, variant_warptile, variant_async, variant_raster, variant_splitk,
    variant_streamk, variant_mma, variant_wgmma, variant_waves, variant_simt, variant_auto;

#ifdef SGEMM_CUDA
Launcher launch_cublas_cuda, launch_cublas_tf32_cuda; /* cuda/cublas.cu */
#else
#define launch_cublas_cuda NULL
#define launch_cublas_tf32_cuda NULL
#endif

static const Variant variant_cublas = {
    .name = GPU_REFERENCE,
    .summary = GPU_MAKER "'s library in true single precision, above the ladder",
    .min_compute_capability = {7, 5},
    .launch = {[DEVICE_CUDA] = launch_cublas_cuda},
};

#ifndef SGEMM_HIP
/* No variant: run promises float32. A measurement may show it beside them. */
static const Variant reference_tf32 = {
    .name = "cublas-tf32",
    .summary = "NVIDIA's library on tensor cores, which round the factors to TF32",
    .min_compute_capability = {8, 0},
    .launch = {[DEVICE_CUDA] = launch_cublas_tf32_cuda},
};
#endif

const Variant *const catalog[] = {
    &variant_naive,
    &variant_coalesced,
    &variant_smem,
    &variant_tile1d,
    &variant_tile2d,
    &variant_vec4,
    &variant_prefetch,
    &variant_warptile,
    &variant_async,
    &variant_raster,
    &variant_splitk,
    &variant_streamk,
    &variant_mma,
    &variant_wgmma,
    &variant_waves,
    &variant_cublas,
    &variant_simt,
    &variant_auto,
    NULL,
};

const Variant *catalog_find(const char *name)
{
    for (const Variant *const *variant = catalog; *variant; ++variant) {
        if (strcmp((*variant)->name, name) == 0) {
            return *variant;
        }
    }
    return NULL;
}

const Variant *catalog_find_measured(const char *name)
{
#ifndef SGEMM_HIP
    if (strcmp(name, reference_tf32.name) == 0) {
        return &reference_tf32;
    }
#endif
    return catalog_find(name);
}
