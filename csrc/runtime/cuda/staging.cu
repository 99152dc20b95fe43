#include "staging.h"

#include <stdlib.h>

bool alloc_staging(int device, size_t bytes, Staging *staging)
{
    staging->pinned = pinned_alloc(&cuda_device, device, bytes);
    staging->memory = static_cast<char *>(staging->pinned ? pinned_memory(staging->pinned)
                                                          : malloc(bytes ? bytes : 1));
    return staging->memory != nullptr;
}

void free_staging(Staging *staging)
{
    if (staging->pinned) {
        pinned_free(staging->pinned);
    } else {
        free(staging->memory);
    }
    *staging = {};
}

Status no_staging(size_t bytes)
{
    return status_error(
        STATUS_OUT_OF_MEMORY,
        "no host memory for a staging buffer of %.3f GB for copies to or from a GPU",
        static_cast<double>(bytes) / 1e9);
}

bool as_pinned_matrix(const Strided *part, bool by_columns, Matrix *matrix, ElementType type)
{
    const int64_t element = element_bytes(type);
    const Strided lines = by_columns ? strided_transposed(part) : *part;
    if (lines.type != type || lines.swapped || lines.rows == 0 || lines.cols == 0 ||
        (lines.cols > 1 && lines.col_bytes != element) ||
        (lines.rows > 1 &&
         (lines.row_bytes < lines.cols * element || lines.row_bytes % element != 0)) ||
        reinterpret_cast<uintptr_t>(lines.data) % element != 0) {
        return false;
    }
    const int64_t ld = lines.rows > 1 ? lines.row_bytes / element : lines.cols;
    *matrix = {reinterpret_cast<float *>(lines.data), part->rows, part->cols, by_columns ? 1 : ld,
               by_columns ? ld : 1};
    return pinned_holds(lines.data,
                        static_cast<size_t>(((lines.rows - 1) * ld + lines.cols) * element));
}
