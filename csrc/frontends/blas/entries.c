/* The functions that replace the program's BLAS functions. */
#include <stddef.h>

#include "own_blas.h"
#include "request.h"

#define EXPORTED __attribute__((visibility("default")))
#define CALLER __builtin_extract_return_addr(__builtin_return_address(0))

/* ------------------------------------------------------------------ matrices */

/* CBLAS's numbers. */
typedef enum { COLUMN_MAJOR = 102, ROW_MAJOR = 101 } Order;
enum { NO_TRANSPOSE = 111, TRANSPOSE = 112, CONJUGATE_TRANSPOSE = 113, UPPER = 121, LOWER = 122 };

typedef enum { TRANSPOSED, AS_IS, WRONG } Transpose;

static Transpose transpose_of(int number)
{
    return number == NO_TRANSPOSE                                 ? AS_IS
           : number == TRANSPOSE || number == CONJUGATE_TRANSPOSE ? TRANSPOSED
                                                                  : WRONG;
}

/* op(X), a rows x cols matrix in the memory of X. Clears *valid if the leading dimension is
 * too small. */
static sgemm_kernels_matrix operand(const float *data, int64_t rows, int64_t cols, int64_t ld,
                                    Order order, Transpose transpose, bool *valid)
{
    const bool by_rows = (order == ROW_MAJOR) == (transpose == AS_IS);
    const int64_t length = by_rows ? cols : rows;
    *valid = *valid && ld >= length && ld >= 1;
    return (sgemm_kernels_matrix){(float *)data, rows, cols, by_rows ? ld : 1, by_rows ? 1 : ld};
}

typedef struct {
    Order order;
    int transa, transb;
    int64_t m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *A, *B;
    float *C;
} Sgemm;

/* `request` has the entry, the caller, the own function and its arguments. */
static void answer_sgemm(Request request, const Sgemm *s)
{
    const Transpose a = transpose_of(s->transa), b = transpose_of(s->transb);
    request.valid = a != WRONG && b != WRONG &&
                    (s->order == ROW_MAJOR || s->order == COLUMN_MAJOR) && s->m >= 0 && s->n >= 0 &&
                    s->k >= 0;
    request.alpha = s->alpha;
    request.beta = s->beta;
    request.A = operand(s->A, s->m, s->k, s->lda, s->order, a, &request.valid);
    request.B = operand(s->B, s->k, s->n, s->ldb, s->order, b, &request.valid);
    request.C = operand(s->C, s->m, s->n, s->ldc, s->order, AS_IS, &request.valid);
    request_answer(&request);
}

typedef struct {
    Order order;
    int uplo, trans;
    int64_t n, k, lda, ldc;
    float alpha, beta;
    const float *A;
    float *C;
} Ssyrk;

static void answer_ssyrk(Request request, const Ssyrk *s)
{
    const Transpose trans = transpose_of(s->trans), other = trans == AS_IS ? TRANSPOSED : AS_IS;
    request.valid = (s->uplo == UPPER || s->uplo == LOWER) && trans != WRONG &&
                    (s->order == ROW_MAJOR || s->order == COLUMN_MAJOR) && s->n >= 0 && s->k >= 0;
    request.is_syrk = true;
    request.upper = s->uplo == UPPER;
    request.alpha = s->alpha;
    request.beta = s->beta;
    request.A = operand(s->A, s->n, s->k, s->lda, s->order, trans, &request.valid);
    request.B = operand(s->A, s->k, s->n, s->lda, s->order, other, &request.valid);
    request.C = operand(s->C, s->n, s->n, s->ldc, s->order, AS_IS, &request.valid);
    request_answer(&request);
}

/* ------------------------------------------------------------------ Fortran */

/* CBLAS's number for a character; 0 if it is wrong. */
static int number_of(char character)
{
    switch (character) {
    case 'N':
    case 'n':
        return NO_TRANSPOSE;
    case 'T':
    case 't':
        return TRANSPOSE;
    case 'C':
    case 'c':
        return CONJUGATE_TRANSPOSE;
    case 'U':
    case 'u':
        return UPPER;
    case 'L':
    case 'l':
        return LOWER;
    default:
        return 0;
    }
}

/* An integer argument. The memory is the caller's. */
static int64_t integer(const void *argument, bool wide)
{
    return wide ? *(const int64_t *)argument : *(const int32_t *)argument;
}

/* The own function. If it has a narrow one beside it, the integers decide: there is other memory
 * beside a 32-bit integer, so as a 64-bit one it is misaligned or mostly too large. */
static Own own_with(Entry entry, const void *caller, const void *const *integers, size_t count)
{
    Own own = own_function(entry, caller);
    for (size_t index = 0; index < count && own.narrow; ++index) {
        const bool can_be_wide = (uintptr_t)integers[index] % sizeof(int64_t) == 0 &&
                                 integer(integers[index], true) >= INT32_MIN &&
                                 integer(integers[index], true) <= UINT32_MAX;
        own = can_be_wide ? own : (Own){own.narrow, false, NULL};
    }
    return own;
}

/* The lengths of the character arguments follow the others; many C callers omit them. */
typedef void FortranSgemm(const char *, const char *, const void *, const void *, const void *,
                          const float *, const float *, const void *, const float *, const void *,
                          const float *, float *, const void *, size_t, size_t);
typedef void FortranSsyrk(const char *, const char *, const void *, const void *, const float *,
                          const float *, const void *, const float *, float *, const void *, size_t,
                          size_t);

typedef struct {
    const char *transa, *transb;
    const void *m, *n, *k, *lda, *ldb, *ldc;
    const float *alpha, *beta, *A, *B;
    float *C;
} FortranSgemmArguments;

static void pass_on_fortran_sgemm(const void *arguments, void *own)
{
    const FortranSgemmArguments *const a = arguments;
    ((FortranSgemm *)own)(a->transa, a->transb, a->m, a->n, a->k, a->alpha, a->A, a->lda, a->B,
                          a->ldb, a->beta, a->C, a->ldc, 1, 1);
}

static void fortran_sgemm(Entry entry, bool wide, const void *caller,
                          const FortranSgemmArguments *a)
{
    const void *const integers[] = {a->m, a->n, a->k, a->lda, a->ldb, a->ldc};
    const Own own = own_with(entry, caller, integers, sizeof integers / sizeof *integers);
    wide = wide || own.wide;
    const Sgemm sgemm = {COLUMN_MAJOR,
                         number_of(*a->transa),
                         number_of(*a->transb),
                         integer(a->m, wide),
                         integer(a->n, wide),
                         integer(a->k, wide),
                         integer(a->lda, wide),
                         integer(a->ldb, wide),
                         integer(a->ldc, wide),
                         *a->alpha,
                         *a->beta,
                         a->A,
                         a->B,
                         a->C};
    answer_sgemm((Request){.entry = entry,
                           .caller = caller,
                           .own = own,
                           .pass_on = pass_on_fortran_sgemm,
                           .arguments = a},
                 &sgemm);
}

#define FORTRAN_SGEMM(name, wide)                                                                  \
    EXPORTED void name(const char *transa, const char *transb, const void *m, const void *n,       \
                       const void *k, const float *alpha, const float *A, const void *lda,         \
                       const float *B, const void *ldb, const float *beta, float *C,               \
                       const void *ldc)                                                            \
    {                                                                                              \
        const FortranSgemmArguments arguments = {transa, transb, m,    n, k, lda, ldb,             \
                                                 ldc,    alpha,  beta, A, B, C};                   \
        fortran_sgemm(ENTRY_##name, wide, CALLER, &arguments);                                     \
    }

typedef struct {
    const char *uplo, *trans;
    const void *n, *k, *lda, *ldc;
    const float *alpha, *beta, *A;
    float *C;
} FortranSsyrkArguments;

static void pass_on_fortran_ssyrk(const void *arguments, void *own)
{
    const FortranSsyrkArguments *const a = arguments;
    ((FortranSsyrk *)own)(a->uplo, a->trans, a->n, a->k, a->alpha, a->A, a->lda, a->beta, a->C,
                          a->ldc, 1, 1);
}

static void fortran_ssyrk(Entry entry, bool wide, const void *caller,
                          const FortranSsyrkArguments *a)
{
    const void *const integers[] = {a->n, a->k, a->lda, a->ldc};
    const Own own = own_with(entry, caller, integers, sizeof integers / sizeof *integers);
    wide = wide || own.wide;
    const Ssyrk ssyrk = {COLUMN_MAJOR,
                         number_of(*a->uplo),
                         number_of(*a->trans),
                         integer(a->n, wide),
                         integer(a->k, wide),
                         integer(a->lda, wide),
                         integer(a->ldc, wide),
                         *a->alpha,
                         *a->beta,
                         a->A,
                         a->C};
    answer_ssyrk((Request){.entry = entry,
                           .caller = caller,
                           .own = own,
                           .pass_on = pass_on_fortran_ssyrk,
                           .arguments = a},
                 &ssyrk);
}

#define FORTRAN_SSYRK(name, wide)                                                                  \
    EXPORTED void name(const char *uplo, const char *trans, const void *n, const void *k,          \
                       const float *alpha, const float *A, const void *lda, const float *beta,     \
                       float *C, const void *ldc)                                                  \
    {                                                                                              \
        const FortranSsyrkArguments arguments = {uplo, trans, n, k, lda, ldc, alpha, beta, A, C};  \
        fortran_ssyrk(ENTRY_##name, wide, CALLER, &arguments);                                     \
    }

/* ------------------------------------------------------------------ CBLAS */

/* Integers are declared wide for both kinds of libraries, so that a value passes unchanged through
 * its register. A narrow library ignores the upper half, which its callers leave undefined. */
typedef void CblasSgemm(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                        const float *, int64_t, float, float *, int64_t);
typedef void CblasSsyrk(int, int, int, int64_t, int64_t, float, const float *, int64_t, float,
                        float *, int64_t);

static int64_t value(int64_t argument, bool wide)
{
    return wide ? argument : (int32_t)argument;
}

static void pass_on_cblas_sgemm(const void *arguments, void *own)
{
    const Sgemm *const s = arguments;
    ((CblasSgemm *)own)(s->order, s->transa, s->transb, s->m, s->n, s->k, s->alpha, s->A, s->lda,
                        s->B, s->ldb, s->beta, s->C, s->ldc);
}

static void cblas_sgemm_of(Entry entry, bool wide, const void *caller, const Sgemm *arguments)
{
    const Own own = own_function(entry, caller);
    wide = wide || own.wide;
    Sgemm sgemm = *arguments;
    int64_t *const integers[] = {&sgemm.m, &sgemm.n, &sgemm.k, &sgemm.lda, &sgemm.ldb, &sgemm.ldc};
    for (size_t index = 0; index < sizeof integers / sizeof *integers; ++index) {
        *integers[index] = value(*integers[index], wide);
    }
    answer_sgemm((Request){.entry = entry,
                           .caller = caller,
                           .own = own,
                           .pass_on = pass_on_cblas_sgemm,
                           .arguments = arguments},
                 &sgemm);
}

#define CBLAS_SGEMM(name, wide)                                                                    \
    EXPORTED void name(int order, int transa, int transb, int64_t m, int64_t n, int64_t k,         \
                       float alpha, const float *A, int64_t lda, const float *B, int64_t ldb,      \
                       float beta, float *C, int64_t ldc)                                          \
    {                                                                                              \
        const Sgemm arguments = {order, transa, transb, m,    n, k, lda,                           \
                                 ldb,   ldc,    alpha,  beta, A, B, C};                            \
        cblas_sgemm_of(ENTRY_##name, wide, CALLER, &arguments);                                    \
    }

static void pass_on_cblas_ssyrk(const void *arguments, void *own)
{
    const Ssyrk *const s = arguments;
    ((CblasSsyrk *)own)(s->order, s->uplo, s->trans, s->n, s->k, s->alpha, s->A, s->lda, s->beta,
                        s->C, s->ldc);
}

static void cblas_ssyrk_of(Entry entry, bool wide, const void *caller, const Ssyrk *arguments)
{
    const Own own = own_function(entry, caller);
    wide = wide || own.wide;
    Ssyrk ssyrk = *arguments;
    int64_t *const integers[] = {&ssyrk.n, &ssyrk.k, &ssyrk.lda, &ssyrk.ldc};
    for (size_t index = 0; index < sizeof integers / sizeof *integers; ++index) {
        *integers[index] = value(*integers[index], wide);
    }
    answer_ssyrk((Request){.entry = entry,
                           .caller = caller,
                           .own = own,
                           .pass_on = pass_on_cblas_ssyrk,
                           .arguments = arguments},
                 &ssyrk);
}

#define CBLAS_SSYRK(name, wide)                                                                    \
    EXPORTED void name(int order, int uplo, int trans, int64_t n, int64_t k, float alpha,          \
                       const float *A, int64_t lda, float beta, float *C, int64_t ldc)             \
    {                                                                                              \
        const Ssyrk arguments = {order, uplo, trans, n, k, lda, ldc, alpha, beta, A, C};           \
        cblas_ssyrk_of(ENTRY_##name, wide, CALLER, &arguments);                                    \
    }

/* ------------------------------------------------------------------ the functions */

/* clang-format off */
FORTRAN_SGEMM(sgemm_, false)
FORTRAN_SGEMM(sgemm_64_, true)
FORTRAN_SGEMM(scipy_sgemm_, false)
FORTRAN_SGEMM(scipy_sgemm_64_, true)
CBLAS_SGEMM(cblas_sgemm, false)
CBLAS_SGEMM(cblas_sgemm64_, true)
CBLAS_SGEMM(scipy_cblas_sgemm, false)
CBLAS_SGEMM(scipy_cblas_sgemm64_, true)
FORTRAN_SSYRK(ssyrk_, false)
FORTRAN_SSYRK(ssyrk_64_, true)
FORTRAN_SSYRK(scipy_ssyrk_, false)
FORTRAN_SSYRK(scipy_ssyrk_64_, true)
CBLAS_SSYRK(cblas_ssyrk, false)
CBLAS_SSYRK(cblas_ssyrk64_, true)
CBLAS_SSYRK(scipy_cblas_ssyrk, false)
CBLAS_SSYRK(scipy_cblas_ssyrk64_, true)
/* clang-format on */
