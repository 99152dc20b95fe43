#include "host_matrix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

Status host_matrix_allocate(const char *what, int64_t rows, int64_t cols, Matrix *matrix)
{
    const size_t most = PTRDIFF_MAX / sizeof(float);
    const bool fits = rows == 0 || cols == 0 || (size_t)rows <= most / (size_t)cols;
    const size_t bytes = (size_t)rows * (size_t)cols * sizeof(float);
    *matrix = (Matrix){fits ? malloc(bytes ? bytes : 1) : NULL, rows, cols, cols, 1, 0};
    if (!matrix->data) {
        return status_error(
            STATUS_OUT_OF_MEMORY,
            "out of host memory: a copy of %s, %lld x %lld float32, takes %.3g GB. Free memory or "
            "multiply fewer rows at a time",
            what, (long long)rows, (long long)cols,
            (double)rows * (double)cols * sizeof(float) / 1e9);
    }
    return status_ok();
}
