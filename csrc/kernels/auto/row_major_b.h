/* A row-major copy of B, for products large enough to be worth it: plan_copies_B says which.
 *
 * Where B lies by columns its neighbours run along the depth, and have to be parted one by one on
 * their way to shared memory: from vec4 on that costs 3 to 5 % of a large product's time. The copy
 * costs 8 bytes of traffic for each element, once for all rows of C. */
#ifndef SGEMM_KERNELS_AUTO_ROW_MAJOR_B_H
#define SGEMM_KERNELS_AUTO_ROW_MAJOR_B_H

#include "../kernel.h"

namespace {

constexpr int edge = 32;     // of a tile,
constexpr int edge_rows = 8; // of which a block copies so many rows at a time

struct Copy {
    Matrix from, to;
};

/* Copies a tile of edge x edge: neighbours are read along the columns, and written along the
 * rows. */
__global__ void __launch_bounds__(edge *edge_rows) copy_row_major(const Copy copy)
{
    __shared__ float tile[edge][edge + 1]; // a column's elements lie in different banks
    const Origin origin = tile_origin(copy.to, edge, edge);
    const int x = threadIdx.x % edge, y = threadIdx.x / edge;
    UNROLL(edge / edge_rows)
    for (int j = y; j < edge; j += edge_rows) {
        if (inside(copy.from, origin.row + x, origin.col + j)) {
            tile[x][j] = at(copy.from, origin.row + x, origin.col + j);
        }
    }
    __syncthreads();
    UNROLL(edge / edge_rows)
    for (int i = y; i < edge; i += edge_rows) {
        if (inside(copy.to, origin.row + i, origin.col + x)) {
            *address(copy.to, origin.row + i, origin.col + x) = tile[i][x];
        }
    }
}

constexpr KernelSpec copy_spec = {"copy_row_major",
                                  {edge, edge, 1},
                                  {edge / edge_rows, 1},
                                  {edge * edge_rows, 1},
                                  edge *(edge + 1) * sizeof(float),
                                  0,
                                  1,
                                  false,
                                  ""};

/* Launches a product with a row-major copy of B, or without one if there is no memory for it. */
inline Status launch_with_copy(const Sgemm *problem, const Launch *where, Launcher *launch)
{
    const Matrix &B = problem->B;
    const int64_t ld = (B.cols + 3) / 4 * 4;
    void *memory;
    if (scratch_take(sizeof(float) * static_cast<size_t>(B.rows * ld), where, &memory).code !=
        STATUS_OK) {
        return launch(problem, where);
    }
    Sgemm copied = *problem;
    copied.B = {static_cast<float *>(memory), B.rows, B.cols, ld, 1};
    const Copy copy = {B, copied.B};
    Status status = launch_blocks(copy_row_major, copy_spec, tiles_of(B, edge, edge), copy, where);
    if (status.code == STATUS_OK) {
        status = launch(&copied, where);
    }
    scratch_give(memory, where);
    /* What the copy took the launch may have lacked. */
    return status.code == STATUS_OUT_OF_MEMORY ? launch(problem, where) : status;
}

} // namespace

#endif
