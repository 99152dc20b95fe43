/* The operators sgemm_kernels::mm, addmm, bmm and baddbmm, and the override of PyTorch's own. */
#ifndef SGEMM_TORCH_OPERATORS_H
#define SGEMM_TORCH_OPERATORS_H

#include "abi.h"
#include "product.h"

/* Reads a tensor through its handle. `writes`: its data will be written. False if it has no
 * strides. */
bool torch_read(TorchHandle handle, bool writes, TorchTensor *tensor);

/* Frees a tensor; NULL is allowed. */
void torch_free(TorchHandle handle);

/* Makes an uninitialized, contiguous tensor on the device of `like`. `dtype` is PyTorch's code.
 * NULL with the reason in message[TORCH_MESSAGE_BYTES] if PyTorch has no memory for it, even after
 * torch_free_idle. */
TorchHandle torch_new(TorchHandle like, int32_t dtype, const int64_t result[3], bool batched,
                      char *message);

/* Frees the GPU memory that this package keeps for later products, so that PyTorch can allocate a
 * result on the device. False if the device is the CPU. */
bool torch_free_idle(int device);

/* The stream in which PyTorch queues work on a GPU; NULL on the CPU. False if it is unknown. */
bool torch_stream(int device, void **stream);

/* Opens the library of the reference variant. False with the reason in
 * message[TORCH_MESSAGE_BYTES]. Python sets it before an operator can be called. */
extern bool (*torch_open_library)(char *message);

/* Adds this package's kernels for the operators sgemm_kernels::*, whose schemas exist already, for
 * CPU tensors and for CUDA tensors. */
Status torch_add_operators(void);

#endif
