/* Names for messages: NVIDIA and CUDA, or AMD and HIP (cuda/hip.h). A build without GPU support
 * uses the NVIDIA names. */
#ifndef SGEMM_GPU_H
#define SGEMM_GPU_H

#ifdef SGEMM_HIP
#define GPU_KIND "hip" /* as in device='hip:0' */
#define GPU_API "HIP"
#define GPU_MAKER "AMD"
#define GPU_VISIBLE "HIP_VISIBLE_DEVICES"
#define GPU_REFERENCE "rocblas" /* the variant that calls the vendor's library */
#define GPU_LIBRARY "rocBLAS"
#define GPU_REFUSAL "AMD GPU: it needs an NVIDIA GPU; or pass device='cpu'"
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
