/* Copies of operands that tiles are copied from by whole quads, for products large enough to be worth
 * it: plan.c says which.
 *
 * A tile is kept as [depth][line]. Where an operand's neighbours run along the depth, as those of a B by
 * columns, or where its lines follow one another and their length is no multiple of four, it would be
 * copied float by float, once for each tile of C that it is part of. Here it is once for all: by rows of
 * the depth, each of whole quads, with zeros after the last line. */
#ifndef SGEMM_ENGINE_ALIGNED_COPY_H
#define SGEMM_ENGINE_ALIGNED_COPY_H

#include "copy_async.h"

namespace {

constexpr int edge = 32;     // of a tile,
constexpr int edge_rows = 8; // of which a block copies so many rows at a time

struct Copy {
    Matrix from, to;
};

/* Copies a tile of edge x edge: neighbours are read as they lie, and written along the rows. */
__global__ void __launch_bounds__(edge *edge_rows) copy_aligned(const Copy copy)
{
    __shared__ float tile[edge][edge + 1]; // a column's elements lie in different banks
    const Origin origin = tile_origin(copy.to, edge, edge);
    const int x = threadIdx.x % edge, y = threadIdx.x / edge;
    const bool by_rows = copy.from.col_stride == 1;
    UNROLL(edge / edge_rows)
    for (int j = y; j < edge; j += edge_rows) {
        const int row = by_rows ? j : x, col = by_rows ? x : j;
        const bool there = inside(copy.from, origin.row + row, origin.col + col);
        tile[row][col] = there ? at(copy.from, origin.row + row, origin.col + col) : 0.0f;
    }
    __syncthreads();
    UNROLL(edge / edge_rows)
    for (int i = y; i < edge; i += edge_rows) {
        if (inside(copy.to, origin.row + i, origin.col + x)) {
            *address(copy.to, origin.row + i, origin.col + x) = tile[i][x];
        }
    }
}

constexpr KernelSpec copy_spec = {"copy_aligned",
                                  {edge, edge, 1},
                                  {edge / edge_rows, 1},
                                  {edge * edge_rows, 1},
                                  edge *(edge + 1) * sizeof(float),
                                  0,
                                  1};

/* Queues a copy of X, which is (depth, lines), and has X name the copy, in memory that is to be given
 * back. */
inline Status copy_to_quads(Matrix *X, const Launch *where, void **memory)
{
    if (X->rows == 0) {
        return status_ok(); // it has no depth
    }
    const int64_t ld = (X->cols + 3) / 4 * 4;
    Status status = scratch_take(sizeof(float) * static_cast<size_t>(X->rows * ld), where, memory);
    if (status.code != STATUS_OK) {
        *memory = nullptr;
        return status;
    }
    const Copy copy = {*X, {static_cast<float *>(*memory), X->rows, ld, ld, 1}};
    *X = copy.to;
    return launch_blocks(copy_aligned, copy_spec, tiles_of(copy.to, edge, edge), copy, where);
}

/* Launches a product with copies of its operands, of A or of B or of both, by `launch`, or without if
 * there is no memory for them. */
template <class LaunchProduct>
Status launch_with_copies(const Sgemm *problem, bool of_A, bool of_B, const Launch *where,
                          LaunchProduct launch)
{
    Sgemm copied = *problem;
    Matrix A = transposed(problem->A);
    void *memory[2] = {};
    Status status = of_A ? copy_to_quads(&A, where, &memory[0]) : status_ok();
    copied.A = transposed(A);
    if (status.code == STATUS_OK && of_B) {
        status = copy_to_quads(&copied.B, where, &memory[1]);
    }
    if (status.code == STATUS_OK) {
        status = launch(&copied);
    }
    for (void *const each : memory) {
        if (each) {
            scratch_give(each, where);
        }
    }
    /* What the copies took the launch may have lacked. */
    return status.code == STATUS_OUT_OF_MEMORY && (of_A || of_B) ? launch(problem) : status;
}

} // namespace

#endif
