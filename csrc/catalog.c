#include "catalog.h"

#include <string.h>

/* Each is defined at the end of its kernel's file. */
extern const Variant variant_naive, variant_coalesced, variant_smem, variant_tile1d, variant_tile2d,
    variant_vec4, variant_prefetch;

#ifdef SGEMM_CUDA
Launcher launch_cublas_cuda; /* cuda/cublas.cu */
#else
#define launch_cublas_cuda NULL
#endif

static const Variant variant_cublas = {
    .name = "cublas",
    .summary = "NVIDIA's library in true single precision: the reference above the ladder",
    .min_compute_capability = {7, 5},
    .launch = {[DEVICE_CUDA] = launch_cublas_cuda},
};

const Variant *const catalog[] = {
    &variant_naive,    &variant_coalesced, &variant_smem,
    &variant_tile1d,   &variant_tile2d,    &variant_vec4,
    &variant_prefetch, &variant_cublas,    NULL,
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
