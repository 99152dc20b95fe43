#include "strided.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { ELEMENT = sizeof(float) };

bool strided_as_matrix(const Strided *array, Matrix *matrix)
{
    const int64_t in_elements =
        array->row_bytes | array->col_bytes | array->batch_bytes | (int64_t)(uintptr_t)array->data;
    if (array->swapped || in_elements % ELEMENT != 0) {
        return false;
    }
    *matrix = (Matrix){(float *)array->data,
                       array->rows,
                       array->cols,
                       array->row_bytes / ELEMENT,
                       array->col_bytes / ELEMENT,
                       array->batch_bytes / ELEMENT};
    /* If a dimension has only one element its stride is arbitrary. Choose the one that suits
     * kernels and is valid as a leading dimension in BLAS. */
    if (matrix->cols <= 1) {
        matrix->col_stride = 1;
    }
    if (matrix->rows <= 1) {
        const int64_t length = matrix->cols > 1 ? matrix->cols : 1;
        matrix->row_stride = matrix->col_stride == 1 ? length : 1;
    }
    return matrix->row_stride == 1 || matrix->col_stride == 1;
}

bool strided_as_addend(const Strided *array, Matrix *matrix)
{
    const int64_t in_elements =
        array->row_bytes | array->col_bytes | (int64_t)(uintptr_t)array->data;
    const bool repeats = array->row_bytes == 0 || array->col_bytes == 0;
    if (array->swapped || in_elements % ELEMENT != 0 || !(repeats || array->col_bytes == ELEMENT)) {
        return false;
    }
    *matrix = (Matrix){(float *)array->data,
                       array->rows,
                       array->cols,
                       array->row_bytes / ELEMENT,
                       array->col_bytes / ELEMENT,
                       0};
    return true;
}

bool is_column_major(const Strided *array)
{
    Matrix matrix;
    return strided_as_matrix(array, &matrix) && matrix.col_stride != 1;
}

Strided strided_of_matrix(const Matrix *matrix)
{
    return (Strided){.data = (char *)matrix->data,
                     .rows = matrix->rows,
                     .cols = matrix->cols,
                     .row_bytes = matrix->row_stride * ELEMENT,
                     .col_bytes = matrix->col_stride * ELEMENT,
                     .batch_bytes = matrix->batch_stride * ELEMENT};
}

/* A function with the contract of memcpy. */
typedef void *CopyLine(void *to, const void *from, size_t bytes);

static void copy_block(const Strided *to, const Strided *from, bool swap, CopyLine *copy_line)
{
    for (int64_t i = 0; i < from->rows; ++i) {
        char *destination = to->data + i * to->row_bytes;
        const char *source = from->data + i * from->row_bytes;
        if (!swap && to->col_bytes == ELEMENT && from->col_bytes == ELEMENT) {
            copy_line(destination, source, (size_t)from->cols * ELEMENT);
            continue;
        }
        for (int64_t j = 0; j < from->cols; ++j) {
            uint32_t bits;
            memcpy(&bits, source, ELEMENT);
            bits = swap ? __builtin_bswap32(bits) : bits;
            memcpy(destination, &bits, ELEMENT);
            destination += to->col_bytes;
            source += from->col_bytes;
        }
    }
}

Strided strided_part(const Strided *array, int64_t row, int64_t col, int64_t rows, int64_t cols)
{
    Strided part = *array;
    part.data += row * array->row_bytes + col * array->col_bytes;
    part.rows = rows;
    part.cols = cols;
    return part;
}

Strided strided_transposed(const Strided *array)
{
    return (Strided){array->data,      array->cols,    array->rows,       array->col_bytes,
                     array->row_bytes, array->swapped, array->batch_bytes};
}

bool strided_join(const Strided *array, int64_t count, Strided *joined)
{
    *joined = *array;
    joined->rows = count * array->rows;
    joined->batch_bytes = 0;
    if (array->rows == 1) {
        joined->row_bytes = array->batch_bytes;
    }
    return count == 1 || joined->rows == 0 || array->rows == 1 ||
           array->batch_bytes == array->rows * array->row_bytes;
}

bool strided_is_dense(const Strided *array)
{
    return (array->cols <= 1 || array->col_bytes == ELEMENT) &&
           (array->rows <= 1 || array->row_bytes == array->cols * ELEMENT);
}

static void copy_by(const Strided *to, const Strided *from, CopyLine *copy_line)
{
    const bool swap = to->swapped != from->swapped;
    const bool by_rows = to->col_bytes == ELEMENT && from->col_bytes == ELEMENT;
    /* Blocks let a transposing copy use every cache line completely. */
    const int64_t block_rows = 64;
    const int64_t block_cols = by_rows ? from->cols : 64;
    for (int64_t row = 0; row < from->rows; row += block_rows) {
        for (int64_t col = 0; col < from->cols; col += block_cols) {
            const int64_t rows = from->rows - row < block_rows ? from->rows - row : block_rows;
            const int64_t cols = from->cols - col < block_cols ? from->cols - col : block_cols;
            const Strided destination = strided_part(to, row, col, rows, cols);
            const Strided source = strided_part(from, row, col, rows, cols);
            copy_block(&destination, &source, swap, copy_line);
        }
    }
}

void strided_copy(const Strided *to, const Strided *from)
{
    copy_by(to, from, memcpy);
}

#if defined(__x86_64__)
/* Writes whole cache lines with non-temporal stores, and the bytes before and after them with
 * memcpy. */
static void *stream_line(void *to, const void *from, size_t bytes)
{
    enum { CACHE_LINE = 64, VECTORS = CACHE_LINE / sizeof(__m128i) };
    size_t before = -(uintptr_t)to % CACHE_LINE;
    before = before < bytes ? before : bytes;
    memcpy(to, from, before);
    char *destination = (char *)to + before;
    const char *source = (const char *)from + before, *const end = (const char *)from + bytes;
    for (; end - source >= CACHE_LINE; source += CACHE_LINE, destination += CACHE_LINE) {
        for (int vector = 0; vector < VECTORS; ++vector) {
            _mm_stream_si128((__m128i *)destination + vector,
                             _mm_loadu_si128((const __m128i *)source + vector));
        }
    }
    memcpy(destination, source, (size_t)(end - source));
    return to;
}

void strided_stream(const Strided *to, const Strided *from)
{
    copy_by(to, from, stream_line);
    _mm_sfence(); /* orders the non-temporal stores before later stores */
}
#else
void strided_stream(const Strided *to, const Strided *from)
{
    strided_copy(to, from);
}
#endif

void extent_repeat(Extent *extent, int64_t length, int64_t bytes)
{
    const int64_t last = (length - 1) * bytes;
    extent->first += (uintptr_t)(last < 0 ? last : 0);
    extent->end += (uintptr_t)(last > 0 ? last : 0);
}

Extent strided_extent(const Strided *array)
{
    Extent extent = {(uintptr_t)array->data, (uintptr_t)array->data + ELEMENT};
    extent_repeat(&extent, array->rows, array->row_bytes);
    extent_repeat(&extent, array->cols, array->col_bytes);
    return extent;
}
