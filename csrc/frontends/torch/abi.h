/* PyTorch's stable C ABI, found in the libraries that the process has already loaded. Needs no
 * PyTorch to build. One binary works with all releases from 2.10 on. */
#ifndef SGEMM_TORCH_ABI_H
#define SGEMM_TORCH_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../base/status.h"

/* A tensor, an operator library or a string that PyTorch owns. */
typedef struct TorchObject *TorchHandle;

/* An argument or a result of an operator: a tensor, a string, a double, an integer. */
typedef uint64_t TorchValue;

/* The kernel of an operator. `stack` holds the arguments, which the kernel must free, and receives
 * the results. */
typedef void TorchKernel(TorchValue *stack, uint64_t arguments, uint64_t results);

/* Functions that return int32_t return 0 on success, if no comment says otherwise. */
typedef struct {
    /* Codes of dtypes and device types. */
    int32_t (*float32)(void);
    int32_t (*float16)(void);
    int32_t (*bfloat16)(void);
    int32_t (*cpu)(void);
    int32_t (*cuda)(void);
    uint64_t (*version)(void); /* the major version in the top byte, then the minor version */

    int32_t (*implement)(const char *space, const char *dispatch_key, const char *file,
                         uint32_t line, TorchHandle *library);
    int32_t (*add_kernel)(TorchHandle library, const char *operation, TorchKernel *kernel,
                          uint64_t written_for);
    int32_t (*delete_library)(TorchHandle library); /* also removes its kernels */

    int32_t (*dims)(TorchHandle, int64_t *);
    int32_t (*sizes)(TorchHandle, int64_t **); /* borrowed from the tensor */
    int32_t (*strides)(TorchHandle, int64_t **);
    int32_t (*dtype)(TorchHandle, int32_t *);
    int32_t (*device_type)(TorchHandle, int32_t *);
    int32_t (*device_index)(TorchHandle, int32_t *);
    int32_t (*const_data)(TorchHandle, const void **);
    int32_t (*mutable_data)(TorchHandle, void **);
    int32_t (*empty)(int64_t dims, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                     int32_t device_type, int32_t device_index, TorchHandle *);
    int32_t (*delete_tensor)(TorchHandle);
    int32_t (*copy)(TorchHandle to, TorchHandle from, int32_t non_blocking);
    int32_t (*string_data)(TorchHandle string, const char **);
    int32_t (*delete_string)(TorchHandle string);

    /* Raises RuntimeError in the caller's Python if the condition is false: it does not return. */
    void (*check)(bool, const char *function, const char *file, uint32_t line, const char *text);

    /* PyTorch's own kernels, called without its dispatcher. */
    int32_t (*cpu_mm)(TorchHandle out, TorchHandle a, TorchHandle b);
    int32_t (*cpu_bmm)(TorchHandle out, TorchHandle a, TorchHandle b);

    /* The following are NULL in a PyTorch without CUDA. */
    int32_t (*cuda_mm)(TorchHandle out, TorchHandle a, TorchHandle b);
    int32_t (*cuda_bmm)(TorchHandle out, TorchHandle a, TorchHandle b);
    int32_t (*current_stream)(int32_t device, void **stream);

    /* The text of the last error of this thread; NULL before 2.13. */
    const char *(*last_error)(void);

    /* at::Context::float32Precision and its context. A C++ function, so NULL if a release lacks it
     * or changes its signature. */
    int (*precision)(const void *context, int backend, int operation);
    const void *context;
} TorchAbi;

/* PyTorch 2.10, the release whose conventions this code follows, as in TorchAbi.version. */
#define TORCH_WRITTEN_FOR ((uint64_t)2 << 56 | (uint64_t)10 << 48)

/* The functions, after torch_abi_open has succeeded. */
extern TorchAbi torch_abi;

/* Finds the functions. Fails if the process has not imported PyTorch, or an older release. */
Status torch_abi_open(void);

/* "float64" for the code of that dtype; for messages. */
const char *torch_dtype_name(int32_t dtype);

/* The method that makes a tensor with a dtype of that name float32, or one of 16 bits if that holds
 * all values and `allows_16_bits`: "float()". */
const char *torch_dtype_conversion(const char *name, bool allows_16_bits);

#endif
