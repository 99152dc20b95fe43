/* A copy of B by rows, for products large enough to be worth it.
 *
 * Where B lies by columns its neighbours run along the depth, and have to be parted one by one on
 * their way to shared memory: from vec4 on that costs 3 to 5 % of a large product's time. To copy B by
 * rows first costs 8 bytes of traffic for each element, once for all rows of C. */
#ifndef SGEMM_KERNELS_BY_ROWS_H
#define SGEMM_KERNELS_BY_ROWS_H

#include "kernel.h"

namespace {

/* On an H100 the copy then takes less than 3 % of the time, its launch included. */
constexpr int64_t worth_rows = 3072;
#ifdef __CUDACC__
constexpr double worth_multiply_adds = 3e10;
#else
constexpr double worth_multiply_adds = 0; // a launch costs nothing here
#endif

constexpr int edge = 32,
              edge_rows = 8; // of a tile, and how many of its rows a block copies at a time

struct Turn {
    Matrix from, to;
};

/* Copies a tile of edge x edge: neighbours are read along the columns, and written along the rows. */
__global__ void __launch_bounds__(edge *edge_rows) copy_by_rows(const Turn t)
{
    __shared__ float tile[edge][edge + 1]; // a column's elements lie in different banks
    const Origin origin = tile_origin(t.to, edge, edge);
    const int x = threadIdx.x % edge, y = threadIdx.x / edge;
    UNROLL(edge / edge_rows)
    for (int j = y; j < edge; j += edge_rows) {
        if (inside(t.from, origin.row + x, origin.col + j)) {
            tile[x][j] = at(t.from, origin.row + x, origin.col + j);
        }
    }
    __syncthreads();
    UNROLL(edge / edge_rows)
    for (int i = y; i < edge; i += edge_rows) {
        if (inside(t.to, origin.row + i, origin.col + x)) {
            *place(t.to, origin.row + i, origin.col + x) = tile[i][x];
        }
    }
}

/* Launches a product with a copy of B by rows, if there is memory for it. */
inline Status launch_copied(const Sgemm *problem, const Launch *where, Launcher *launch)
{
    const Matrix &B = problem->B;
    const int64_t ld = (B.cols + 3) / 4 * 4;
    void *memory;
    if (scratch_take(sizeof(float) * static_cast<size_t>(B.rows * ld), where, &memory).code !=
        STATUS_OK) {
        return launch(problem, where);
    }
    Sgemm by_rows = *problem;
    by_rows.B = {static_cast<float *>(memory), B.rows, B.cols, ld, 1};
    const Turn turn = {B, by_rows.B};
    Status status =
        launch_blocks(copy_by_rows, tiles_of(B, edge, edge), edge * edge_rows, 0, turn, where);
    if (status.code == STATUS_OK) {
        status = launch(&by_rows, where);
    }
    scratch_give(memory, where);
    /* What the copy took the launch may have lacked. */
    return status.code == STATUS_OUT_OF_MEMORY ? launch(problem, where) : status;
}

/* Launches a product, with such a copy where it is worth it. */
inline Status launch_by_rows(const Sgemm *problem, const Launch *where, Launcher *launch)
{
    const Matrix &C = problem->C;
    const double multiply_adds = static_cast<double>(C.rows) * static_cast<double>(C.cols) *
                                 static_cast<double>(problem->A.cols);
    return problem->B.col_stride != 1 && C.rows >= worth_rows &&
                   multiply_adds >= worth_multiply_adds
               ? launch_copied(problem, where, launch)
               : launch(problem, where);
}

} // namespace

#endif
