/* Takes over PyTorch's own products: aten::mm and aten::bmm here, and through Python's functions in
 * python/torch_calls.c those with arguments that the stable C ABI cannot pass: addmm and baddbmm,
 * and every product with out_dtype. */
#ifndef SGEMM_TORCH_DISPATCH_OVERRIDE_H
#define SGEMM_TORCH_DISPATCH_OVERRIDE_H

#include "abi.h"
#include "product.h"

/* What happened to a call: computed here, left to PyTorch's kernel for a reason, or failed. */
typedef enum {
    TORCH_TAKEN,
    TORCH_LEFT_DTYPE,       /* a tensor, or out_dtype, is not float32 */
    TORCH_LEFT_DEVICE,      /* tensors on several devices */
    TORCH_LEFT_LAYOUT,      /* a tensor without strides */
    TORCH_LEFT_SHAPE,       /* the shapes do not fit: PyTorch raises, or resizes out */
    TORCH_LEFT_EMPTY,       /* nothing to compute */
    TORCH_LEFT_SMALL,       /* fewer operations than min_flops */
    TORCH_LEFT_TF32,        /* the user allowed TF32, or another precision below float32 */
    TORCH_LEFT_SCALAR,      /* alpha or beta is not a real number */
    TORCH_LEFT_UNSUPPORTED, /* the variant does not run on that device */
    TORCH_LEFT_FAILED,      /* the kernel failed */
    TORCH_RAISED,           /* the kernel failed and may have changed an operand: an exception */
    TORCH_OUTCOMES,
} TorchOutcome;

/* The operators that are taken over. */
typedef enum {
    TORCH_MM,
    TORCH_MM_OUT,
    TORCH_BMM,
    TORCH_BMM_OUT,
    TORCH_ADDMM,
    TORCH_ADDMM_OUT,
    TORCH_ADDMM_IN_PLACE,
    TORCH_BADDBMM,
    TORCH_BADDBMM_OUT,
    TORCH_BADDBMM_IN_PLACE,
    TORCH_MM_DTYPE,
    TORCH_MM_DTYPE_OUT,
    TORCH_BMM_DTYPE,
    TORCH_BMM_DTYPE_OUT,
    TORCH_ADDMM_DTYPE,
    TORCH_ADDMM_DTYPE_OUT,
    TORCH_BADDBMM_DTYPE,
    TORCH_BADDBMM_DTYPE_OUT,
    TORCH_OPERATORS,
} TorchOperator;

extern const char *const torch_operator_names[TORCH_OPERATORS]; /* "mm.out" */
extern const char *const torch_outcome_names[TORCH_OUTCOMES];

typedef struct {
    char variant[64];
    double min_flops;      /* smaller products are left to PyTorch */
    bool (*reduced)(void); /* asks PyTorch whether TF32 is allowed; NULL: torch_abi.precision */
} TorchSettings;

/* Registers kernels for aten::mm, mm.out, bmm and bmm.out at a dispatch key, "CUDA" or "CPU". With
 * a second call, only the settings change. */
Status torch_override_dispatch(const char *key, const TorchSettings *settings);

/* Removes these kernels again. */
void torch_give_back(void);

/* The current settings; NULL: nothing is taken over. */
const TorchSettings *torch_settings(void);

/* Decides from A, B and C whether to compute a call; fills in the result's shape. `typed`: the call
 * has out_dtype=float32, so A and B may both be float16, or both bfloat16. */
TorchOutcome torch_decide(const TorchSettings *settings, const TorchProduct *product, bool typed,
                          int64_t result[3], char *message);

/* The outcome for a code of torch_multiply. */
TorchOutcome torch_outcome(int code, const char *message);

/* Counts a call. */
void torch_count(TorchOperator op, TorchOutcome outcome);

/* Copies the counts, and then sets them to zero if `reset`. */
void torch_counts(int64_t counts[TORCH_OPERATORS][TORCH_OUTCOMES], bool reset);

/* Copies why a kernel failed last; empty if none did. */
void torch_last_failure(char message[TORCH_MESSAGE_BYTES]);

#endif
