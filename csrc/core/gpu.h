/* What this build calls a GPU: NVIDIA's through CUDA, or AMD's through HIP, which gives the same calls
 * other names (../cuda/hip.h). A build for the CPU alone speaks of NVIDIA's. */
#ifndef SGEMM_GPU_H
#define SGEMM_GPU_H

#ifdef SGEMM_HIP
#define GPU_KIND "hip" /* of device, as in 'hip:0' */
#define GPU_API "HIP"
#define GPU_MAKER "AMD"
#define GPU_VISIBLE "HIP_VISIBLE_DEVICES"
#define GPU_REFERENCE "rocblas" /* the variant that is the maker's library, */
#define GPU_LIBRARY "rocBLAS"   /* and that library */
#define GPU_REFUSAL "GPU, which is AMD's: it needs one of NVIDIA's; or pass device='cpu'"
#else
#define GPU_KIND "cuda"
#define GPU_API "CUDA"
#define GPU_MAKER "NVIDIA"
#define GPU_VISIBLE "CUDA_VISIBLE_DEVICES"
#define GPU_REFERENCE "cublas"
#define GPU_LIBRARY "cuBLAS"
#define GPU_REFUSAL "GPU: pass device='cpu'"
#endif

#endif
