/* A call of one of the BLAS functions, and what becomes of it. */
#ifndef SGEMM_BLAS_REQUEST_H
#define SGEMM_BLAS_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "../c/sgemm_kernels.h"

/* The functions that this library replaces. NumPy's and SciPy's wheels prefix the names of their
 * OpenBLAS; names with 64_ take 64-bit integers. */
#define BLAS_ENTRIES(X)                                                                            \
    X(sgemm_)                                                                                      \
    X(sgemm_64_)                                                                                   \
    X(scipy_sgemm_)                                                                                \
    X(scipy_sgemm_64_)                                                                             \
    X(cblas_sgemm)                                                                                 \
    X(cblas_sgemm64_)                                                                              \
    X(scipy_cblas_sgemm)                                                                           \
    X(scipy_cblas_sgemm64_)                                                                        \
    X(ssyrk_)                                                                                      \
    X(ssyrk_64_)                                                                                   \
    X(scipy_ssyrk_)                                                                                \
    X(scipy_ssyrk_64_)                                                                             \
    X(cblas_ssyrk)                                                                                 \
    X(cblas_ssyrk64_)                                                                              \
    X(scipy_cblas_ssyrk)                                                                           \
    X(scipy_cblas_ssyrk64_)

#define BLAS_ENTRY(name) ENTRY_##name,
typedef enum { BLAS_ENTRIES(BLAS_ENTRY) BLAS_ENTRY_COUNT } Entry;
#undef BLAS_ENTRY

extern const char *const entry_names[BLAS_ENTRY_COUNT];

/* A function of the program's own BLAS. */
typedef struct {
    void *function; /* NULL: the program has no BLAS */
    bool wide;      /* its integers have 64 bits */
    /* If `wide`: a function of the same name with 32-bit integers, for another library that may
     * have ended with a jump to ours. NULL if no loaded library calls one. */
    void *narrow;
} Own;

/* C = alpha * A @ B + beta * C. For ssyrk, B is the transposed A, and only one triangle of C is
 * read and written. */
typedef struct Request {
    Entry entry;
    const void *caller; /* the address of the calling code */
    Own own;
    bool valid; /* false: an argument is wrong */
    bool is_syrk, upper;
    float alpha, beta;
    sgemm_kernels_matrix A, B, C;
    /* Calls the program's own function with the caller's arguments. */
    void (*pass_on)(const void *arguments, void *own);
    const void *arguments;
} Request;

/* Multiply-adds times two. */
static inline double request_flops(const Request *request)
{
    const double all =
        2.0 * (double)request->C.rows * (double)request->C.cols * (double)request->A.cols;
    return request->is_syrk ? all / 2 : all;
}

/* Computes the product here, or passes it on to the program's own function. */
void request_answer(const Request *request);

#endif
