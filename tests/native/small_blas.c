/* A BLAS for tests/test_blas.py: plain loops that count their calls. Compiled with -DPREFIX=scipy_,
 * names have that prefix. INTEGER is the type of sizes. As in the reference BLAS, cblas_sgemm calls
 * sgemm_. PADDING moves the functions to other addresses. OPENBLAS and BLIS are the answers of
 * functions that those libraries have. */
#include <stddef.h>

#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)
#define NAMED(name) JOIN(PREFIX, name)
#ifndef PREFIX
#define PREFIX
#endif
#ifndef INTEGER
#define INTEGER int
#endif

long own_sgemm_calls, own_cblas_calls, own_ssyrk_calls, errors;
void (*at_each_sgemm)(void);

#ifdef PADDING
void padding(void)
{
    __asm__ volatile(".skip 65536, 0xcc");
}
#endif
#ifdef OPENBLAS
const char *openblas_get_config(void)
{
    return OPENBLAS;
}
#endif
#ifdef BLIS
long bli_info_get_blas_int_type_size(void)
{
    return BLIS;
}
#endif

static void scale(float *value, float beta)
{
    *value = beta == 0.0f ? 0.0f : *value * beta;
}

static int is_n(const char *trans)
{
    return *trans == 'N' || *trans == 'n';
}

void NAMED(sgemm_)(const char *transa, const char *transb, const INTEGER *m, const INTEGER *n,
                   const INTEGER *k, const float *alpha, const float *A, const INTEGER *lda,
                   const float *B, const INTEGER *ldb, const float *beta, float *C,
                   const INTEGER *ldc)
{
    ++own_sgemm_calls;
    if (at_each_sgemm) {
        at_each_sgemm();
    }
    if (*m < 0 || *n < 0 || *k < 0 || *lda < (is_n(transa) ? *m : *k) ||
        *ldb < (is_n(transb) ? *k : *n) || *ldc < *m) {
        ++errors;
        return;
    }
    for (INTEGER j = 0; j < *n; ++j) {
        for (INTEGER i = 0; i < *m; ++i) {
            float *const c = C + i + (ptrdiff_t)j * *ldc;
            scale(c, *beta);
            for (INTEGER l = 0; l < *k; ++l) {
                const float a =
                    is_n(transa) ? A[i + (ptrdiff_t)l * *lda] : A[l + (ptrdiff_t)i * *lda];
                const float b =
                    is_n(transb) ? B[l + (ptrdiff_t)j * *ldb] : B[j + (ptrdiff_t)l * *ldb];
                *c += *alpha * a * b;
            }
        }
    }
}

void NAMED(cblas_sgemm)(int order, int transa, int transb, INTEGER m, INTEGER n, INTEGER k,
                        float alpha, const float *A, INTEGER lda, const float *B, INTEGER ldb,
                        float beta, float *C, INTEGER ldc)
{
    ++own_cblas_calls;
    const char *const a = transa == 111 ? "N" : "T", *const b = transb == 111 ? "N" : "T";
    if (order == 102) {
        NAMED(sgemm_)(a, b, &m, &n, &k, &alpha, A, &lda, B, &ldb, &beta, C, &ldc);
    } else {
        NAMED(sgemm_)(b, a, &n, &m, &k, &alpha, B, &ldb, A, &lda, &beta, C, &ldc);
    }
}

void NAMED(ssyrk_)(const char *uplo, const char *trans, const INTEGER *n, const INTEGER *k,
                   const float *alpha, const float *A, const INTEGER *lda, const float *beta,
                   float *C, const INTEGER *ldc)
{
    ++own_ssyrk_calls;
    for (INTEGER j = 0; j < *n; ++j) {
        for (INTEGER i = 0; i < *n; ++i) {
            float *const c = C + i + (ptrdiff_t)j * *ldc;
            if (*uplo == 'U' ? i > j : i < j) {
                continue;
            }
            scale(c, *beta);
            for (INTEGER l = 0; l < *k; ++l) {
                *c += *alpha * (is_n(trans)
                                    ? A[i + (ptrdiff_t)l * *lda] * A[j + (ptrdiff_t)l * *lda]
                                    : A[l + (ptrdiff_t)i * *lda] * A[l + (ptrdiff_t)j * *lda]);
            }
        }
    }
}
