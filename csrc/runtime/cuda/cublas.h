/* The cuBLAS (or rocBLAS) handle of a device. One stream at a time may use it. */
#ifndef SGEMM_CUDA_CUBLAS_H
#define SGEMM_CUDA_CUBLAS_H

#include "../../base/variant.h"

extern "C" Launcher launch_cublas_cuda;
#ifndef SGEMM_HIP
extern "C" Launcher launch_cublas_tf32_cuda;
#endif

/* True if the library computes this variant's products. */
bool cublas_launches(const Variant *variant);

/* The stream waits until the current device's handle is free; other threads wait for cublas_end.
 * Call cublas_end if this succeeds. Launches by this thread in between queue only the product, so a
 * measurement can keep both calls out of the timed section. */
Status cublas_begin(int device, cudaStream_t stream);
Status cublas_end(int device, cudaStream_t stream);

#endif
