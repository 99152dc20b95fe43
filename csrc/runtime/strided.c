#include "strided.h"

#include <stdlib.h>
#include <string.h>

#include "element.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { ELEMENT = sizeof(float) };

bool strided_as_typed(const Strided *array, ElementType type, Matrix *matrix)
{
    const int64_t size = element_bytes(type);
    const int64_t in_elements =
        array->row_bytes | array->col_bytes | array->batch_bytes | (int64_t)(uintptr_t)array->data;
    if (array->type != type || array->swapped || in_elements % size != 0) {
        return false;
    }
    *matrix = (Matrix){(float *)array->data,
                       array->rows,
                       array->cols,
                       array->row_bytes / size,
                       array->col_bytes / size,
                       array->batch_bytes / size};
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

bool strided_as_matrix(const Strided *array, Matrix *matrix)
{
    return strided_as_typed(array, ELEMENT_FLOAT32, matrix);
}

bool strided_as_addend(const Strided *array, Matrix *matrix)
{
    const int64_t in_elements =
        array->row_bytes | array->col_bytes | array->batch_bytes | (int64_t)(uintptr_t)array->data;
    const bool repeats = array->row_bytes == 0 || array->col_bytes == 0;
    if (array->type != ELEMENT_FLOAT32 || array->swapped || in_elements % ELEMENT != 0 ||
        !(repeats || array->col_bytes == ELEMENT)) {
        return false;
    }
    *matrix = (Matrix){(float *)array->data,
                       array->rows,
                       array->cols,
                       array->row_bytes / ELEMENT,
                       array->col_bytes / ELEMENT,
                       array->batch_bytes / ELEMENT};
    return true;
}

bool is_column_major(const Strided *array)
{
    Matrix matrix;
    return strided_as_typed(array, array->type, &matrix) && matrix.col_stride != 1;
}

Strided strided_of_typed(const Matrix *matrix, ElementType type)
{
    const int64_t size = element_bytes(type);
    return (Strided){.data = (char *)matrix->data,
                     .rows = matrix->rows,
                     .cols = matrix->cols,
                     .row_bytes = matrix->row_stride * size,
                     .col_bytes = matrix->col_stride * size,
                     .batch_bytes = matrix->batch_stride * size,
                     .type = type};
}

Strided strided_of_matrix(const Matrix *matrix)
{
    return strided_of_typed(matrix, ELEMENT_FLOAT32);
}

Strided strided_in_batch(const Strided *first, int64_t number)
{
    Strided array = *first;
    array.data = first->data ? first->data + number * first->batch_bytes : NULL;
    return array;
}

/* A function with the contract of memcpy. */
typedef void *CopyLine(void *to, const void *from, size_t bytes);

/* Copies single elements of one type, or 16-bit elements as floats. */
static void copy_singly(char *to, int64_t to_step, const Strided *like, const char *from,
                        int64_t from_step, bool swap, bool converts)
{
    for (int64_t j = 0; j < like->cols; ++j, to += to_step, from += from_step) {
        if (like->type == ELEMENT_FLOAT32) {
            uint32_t bits;
            memcpy(&bits, from, sizeof bits);
            bits = swap ? __builtin_bswap32(bits) : bits;
            memcpy(to, &bits, sizeof bits);
            continue;
        }
        uint16_t half;
        memcpy(&half, from, sizeof half);
        half = swap ? __builtin_bswap16(half) : half;
        if (converts) {
            const uint32_t bits = float_of_16_bits(half, like->type);
            memcpy(to, &bits, sizeof bits);
        } else {
            memcpy(to, &half, sizeof half);
        }
    }
}

/* Whether both have contiguous rows of one type. */
static bool have_equal_rows(const Strided *to, const Strided *from)
{
    const int64_t size = element_bytes(from->type);
    return to->type == from->type && to->col_bytes == size && from->col_bytes == size;
}

static void copy_block(const Strided *to, const Strided *from, bool swap, CopyLine *copy_line)
{
    const bool by_lines = !swap && have_equal_rows(to, from);
    for (int64_t i = 0; i < from->rows; ++i) {
        char *const destination = to->data + i * to->row_bytes;
        const char *const source = from->data + i * from->row_bytes;
        if (by_lines) {
            copy_line(destination, source, (size_t)(from->cols * element_bytes(from->type)));
        } else {
            copy_singly(destination, to->col_bytes, from, source, from->col_bytes, swap,
                        to->type != from->type);
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
    return (Strided){array->data,      array->cols,    array->rows,        array->col_bytes,
                     array->row_bytes, array->swapped, array->batch_bytes, array->type};
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
    const int64_t size = element_bytes(array->type);
    return (array->cols <= 1 || array->col_bytes == size) &&
           (array->rows <= 1 || array->row_bytes == array->cols * size);
}

static void copy_by(const Strided *to, const Strided *from, CopyLine *copy_line)
{
    const bool swap = to->swapped != from->swapped;
    const bool by_rows =
        to->col_bytes == element_bytes(to->type) && from->col_bytes == element_bytes(from->type);
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
    Extent extent = {(uintptr_t)array->data,
                     (uintptr_t)array->data + (uintptr_t)element_bytes(array->type)};
    extent_repeat(&extent, array->rows, array->row_bytes);
    extent_repeat(&extent, array->cols, array->col_bytes);
    return extent;
}
