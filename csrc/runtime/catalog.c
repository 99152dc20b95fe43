#include "catalog.h"

#include <math.h>
#include <string.h>

#include "../../build/ladder/names.h"
#include "../gemm/plan/proofs.h"

/* The library's rungs. LADDER has those of csrc/ladder, in the order of launches.toml. */
#define LIBRARY(EACH)                                                                              \
    EACH(splitk) EACH(streamk) EACH(tma) EACH(mma) EACH(wgmma) EACH(waves) EACH(fused)

/* Each kernel's file defines its variant at the end. */
#define DECLARE(name) extern const Variant variant_##name;
LADDER(DECLARE)
LIBRARY(DECLARE)
extern const Variant variant_simt, variant_auto, variant_invariant, variant_mma_step;

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
    .batch = 1,
    .launch = {[DEVICE_CUDA] = launch_cublas_cuda},
};

#ifndef SGEMM_HIP
/* For measurements only. It is not a variant, because run promises float32. */
static const Variant reference_tf32 = {
    .name = "cublas-tf32",
    .summary = "NVIDIA's library on tensor cores, which round the factors to TF32",
    .min_compute_capability = {8, 0},
    .batch = 1,
    .launch = {[DEVICE_CUDA] = launch_cublas_tf32_cuda},
};
#endif

#define ENTRY(name) &variant_##name,
const Variant *const catalog[] = {LADDER(ENTRY) LIBRARY(ENTRY) ENTRY(cublas) ENTRY(simt) ENTRY(auto)
                                      ENTRY(invariant) NULL};

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
    if (strcmp(name, variant_mma_step.name) == 0) {
        return &variant_mma_step;
    }
#ifndef SGEMM_HIP
    if (strcmp(name, reference_tf32.name) == 0) {
        return &reference_tf32;
    }
#endif
    return catalog_find(name);
}

bool variant_is_library(const Variant *variant)
{
    return !variant->file && strncmp(variant->name, GPU_REFERENCE, strlen(GPU_REFERENCE)) == 0;
}

/* CUDA cores could do 128 multiply-adds per cycle; kernels reach about 80 % of that. */
static const double on_cuda_cores = 0.8 * 128;

#ifndef SGEMM_HIP
/* Measured on H200s with 132 multiprocessors at 1.98 GHz, sizes 4096 and above
 * (benchmarks/results/h200/ladder.json). A shorter K runs on CUDA cores. */
static const struct {
    const Variant *variant;
    int capability[2];
    int min_depth;
    double multiply_adds;
} on_tensor_cores[] = {
    {&variant_mma, {9, 0}, MMA_MIN_K, 250},     {&variant_wgmma, {9, 0}, WGMMA_MIN_K, 400},
    {&variant_waves, {9, 0}, WGMMA_MIN_K, 400}, {&variant_fused, {9, 0}, WGMMA_MIN_K, 400},
    {&variant_auto, {9, 0}, WGMMA_MIN_K, 400},  {&variant_invariant, {9, 0}, WGMMA_MIN_K, 400},
};
#endif

double catalog_multiply_adds(const Variant *variant, const int capability[2], int64_t depth)
{
#ifndef SGEMM_HIP
    for (size_t row = 0; row < sizeof on_tensor_cores / sizeof *on_tensor_cores; ++row) {
        if (on_tensor_cores[row].variant == variant && depth >= on_tensor_cores[row].min_depth &&
            memcmp(on_tensor_cores[row].capability, capability, 2 * sizeof *capability) == 0) {
            return on_tensor_cores[row].multiply_adds;
        }
    }
    /* On a GPU that passed the proof, auto runs mma where that is faster. */
    const bool is_mma = variant == &variant_mma || variant == &variant_auto;
    const Proof *const proof = is_mma && depth >= MMA_MIN_K ? proof_find(NULL, capability) : NULL;
    if (proof) {
        return fmax(proof->rate, on_cuda_cores);
    }
#else
    (void)variant, (void)capability, (void)depth;
#endif
    return on_cuda_cores;
}
