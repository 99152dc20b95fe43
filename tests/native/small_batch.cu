/* Checks the kernels for batches of small products: on the CPU device, or, compiled by nvcc, on a
 * GPU. Random sizes, layouts, strides and counts, bit for bit against sums in the order of K. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "../../csrc/gemm/small/small_batch.h"
#include "kernel_memory.h"

namespace {

/* A batch of matrices with NaN between its rows or columns, between matrices, and around all. */
struct Operand {
    Matrix X;
    float *memory;
    size_t floats;
    std::vector<float> before;

    Operand(int64_t rows, int64_t cols, bool column_major, int64_t count, bool shared_by_all,
            bool contiguous)
    {
        const int64_t length = column_major ? rows : cols, lines = column_major ? cols : rows;
        const int64_t padding = contiguous ? 0 : below(3) == 0 ? 4 - length % 4 : below(6);
        const int64_t pitch = length + padding;
        const int64_t skew = below(2) ? 0 : below(4);
        const int64_t stride = shared_by_all ? 0
                                             : lines * pitch + (contiguous ? 0
                                                                : below(2) ? 4 * below(3)
                                                                           : below(8));
        const int64_t guard = 64;
        floats = static_cast<size_t>(2 * guard + skew + lines * pitch + (count - 1) * stride + 16);
        memory = allocate(floats);
        if (!memory) {
            printf("small_batch: no memory\n");
            exit(2);
        }
        std::fill(memory, memory + floats, NAN);
        X = {memory + guard + skew,    rows,  cols, column_major ? 1 : pitch,
             column_major ? pitch : 1, stride};
        for (int64_t n = 0; n < (stride ? count : 1); ++n) {
            for (int64_t i = 0; i < rows; ++i) {
                for (int64_t j = 0; j < cols; ++j) {
                    *at(n, i, j) = static_cast<float>(below(2001) - 1000) * 0x1p-9f;
                }
            }
        }
    }

    ~Operand()
    {
        release(memory);
    }

    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    float *at(int64_t n, int64_t i, int64_t j) const
    {
        return X.data + n * X.batch_stride + i * X.row_stride + j * X.col_stride;
    }
};

struct Case {
    int64_t count, M, N, K;
    bool a_columns, b_columns, a_shared, b_shared, contiguous;
    float alpha, beta;
};

bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)) || (a == 0.0f && b == 0.0f);
}

/* sum + a * b, rounded as the kernels do. */
float add_product(float a, float b, float sum)
{
#if defined(__CUDACC__) || FUSES_MULTIPLY_ADD
    return fmaf(a, b, sum);
#else
    return a * b + sum;
#endif
}

/* The sum that the kernels compute: of each slice of K, and then of pairs of slices. */
float sum_of(const Operand &A, const Operand &B, int64_t n, int64_t i, int64_t j, int slices)
{
    std::vector<float> sums(static_cast<size_t>(slices), 0.0f);
    for (int64_t k = 0; k < A.X.cols; ++k) {
        float &sum = sums[static_cast<size_t>(k % slices)];
        sum = add_product(*A.at(n, i, k), *B.at(n, k, j), sum);
    }
    for (size_t other = sums.size() / 2; other > 0; other /= 2) {
        for (size_t slice = 0; slice < other; ++slice) {
            sums[slice] += sums[slice + other];
        }
    }
    return sums[0];
}

int refused;   // cases that other kernels compute
int of_rows;   // cases in which a task has some rows of a matrix
int in_slices; // cases in which threads divide K

/* Returns whether all results are right and nothing else has changed. */
bool passes(const Case &c, const PlanDevice &device, const Launch *where)
{
    Operand A(c.M, c.K, c.a_columns, c.count, c.a_shared, c.contiguous);
    Operand B(c.K, c.N, c.b_columns, c.count, c.b_shared, c.contiguous);
    Operand C(c.M, c.N, false, c.count, false, c.contiguous);
    if (c.K > 0 && below(3) == 0) { // special values
        *A.at(0, below(static_cast<int>(c.M)), below(static_cast<int>(c.K))) = NAN;
        *B.at(0, below(static_cast<int>(c.K)), below(static_cast<int>(c.N))) = INFINITY;
    }
    if (c.beta == 0) {
        for (int64_t n = 0; n < c.count; ++n) {
            for (int64_t i = 0; i < c.M; ++i) {
                std::fill(C.at(n, i, 0), C.at(n, i, 0) + c.N, NAN);
            }
        }
    }
    Sgemm p = {A.X, B.X, C.X, c.alpha, c.beta};
    p.count = c.count;
    const PlanShape shape = plan_shape(&p);
    if (!small_batch_supports(&shape, &device)) {
        ++refused;
        return true;
    }
    const SmallBatchPlan plan = small_batch_plan(&shape, &device);
    const int slices = plan.packed ? plan.slices : 1;
    in_slices += slices > 1;
    of_rows += plan.packed && plan.tiles_down > 1;
    std::vector<float> expected(C.memory, C.memory + C.floats);
    for (int64_t n = 0; n < c.count; ++n) {
        for (int64_t i = 0; i < c.M; ++i) {
            for (int64_t j = 0; j < c.N; ++j) {
                const float product = c.alpha * sum_of(A, B, n, i, j, slices);
                float &result = expected[static_cast<size_t>(C.at(n, i, j) - C.memory)];
                result = c.beta == 0 ? product : add_product(c.beta, result, product);
            }
        }
    }
    const Status status = launch_small_batch(p, device, where);
    if (status.code != STATUS_OK) {
        printf("small_batch: %s\n", status.message);
        return false;
    }
#ifdef __CUDACC__
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        printf("small_batch: %s\n", cudaGetErrorString(error));
        return false;
    }
#endif
    for (size_t i = 0; i < C.floats; ++i) {
        if (!same(C.memory[i], expected[i])) {
            printf("small_batch: element %zd of C is %g, not %g\n",
                   static_cast<ssize_t>(i) - (C.X.data - C.memory), C.memory[i], expected[i]);
            return false;
        }
    }
    return true;
}

int size_between(int least, int most)
{
    return least + below(most - least + 1);
}

} // namespace

#ifndef __CUDACC__
/* The last rows of the second of two matrices with 2^31 elements each. */
bool reaches_far()
{
    constexpr int64_t rows = 1 << 20, cols = 2048, size = rows * cols;
    constexpr int of_task = 4;
    SmallBatch batch = {};
    batch.p.C.rows = rows;
    batch.plan.rows = of_task;
    batch.plan.tiles_down = rows / of_task;
    const Matrix A = {reinterpret_cast<float *>(uintptr_t{4096}), rows, cols, cols, 1, size};
    const PackedTask task(batch, 2 * (rows / of_task) - 1);
    const PackedPart part(A, task, 2, true);
    const bool right = part.before == 2 * size - of_task * cols && part.behind == of_task * cols &&
                       part.floats == of_task * cols;
    if (!right) {
        printf("small_batch: a part begins behind %lld floats, and ends %lld further\n",
               static_cast<long long>(part.before), static_cast<long long>(part.behind));
    }
    return right;
}
#endif

int main(int count, char **arguments)
{
#ifndef __CUDACC__
    if (!reaches_far()) {
        return 1;
    }
#endif
    const int cases = count > 1 ? atoi(arguments[1]) : 300;
    Launch where = {};
#ifdef __CUDACC__
    int multiprocessors = 0, shared_bytes = 0;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    const PlanDevice devices[] = {{multiprocessors, 1, shared_bytes, &plan_fitted},
                                  {2, 1, shared_bytes, &plan_fitted}};
#else
    const PlanDevice devices[] = {{132, 1, 232448, &plan_fitted}, {2, 1, 65536, &plan_fitted}};
#endif
    for (int i = 0; i < cases; ++i) {
        randomness.seed(static_cast<unsigned>(i));
        const int most = i % 3 == 0 ? 12 : i % 3 == 1 ? 40 : i % 12 == 2 ? 300 : 130;
        Case c = {size_between(1, most <= 12   ? 300
                                  : most <= 40 ? 40
                                               : 5),
                  size_between(1, most),
                  size_between(1, most),
                  size_between(0, most),
                  below(2) == 0,
                  below(2) == 0,
                  below(4) == 0,
                  below(4) == 0,
                  below(2) == 0,
                  below(2) ? 1.0f : -0.75f,
                  below(2) ? 0.0f : 0.5f};
        if (below(2)) { // float4s
            c.M = (c.M + 3) / 4 * 4;
            c.N = (c.N + 3) / 4 * 4;
            c.K = (c.K + 3) / 4 * 4;
        }
        if (below(3) == 0) {
            c.N = c.K = c.M;
        }
        if (below(4) == 0 && most > 12) { // gaps between lines, or matrices, in shared memory
            c.K = (c.K + 15) / 16 * 16;
            c.contiguous = true;
        }
        if (i % 5 == 4) { // many rows, or a long K
            c.M = below(2) ? size_between(100, 700) : c.M;
            c.K = below(2) ? size_between(100, 500) : below(8);
            c.N = size_between(1, 30);
            c.count = size_between(1, 9);
            c.contiguous = true;
        }
        if (!passes(c, devices[i % 2], &where)) {
            printf("case %d: %lld x %lld x %lld x %lld, A %s%s, B %s%s%s, alpha %g, beta %g\n", i,
                   static_cast<long long>(c.count), static_cast<long long>(c.M),
                   static_cast<long long>(c.N), static_cast<long long>(c.K),
                   c.a_columns ? "by columns" : "by rows", c.a_shared ? " shared" : "",
                   c.b_columns ? "by columns" : "by rows", c.b_shared ? " shared" : "",
                   c.contiguous ? ", contiguous" : "", c.alpha, c.beta);
            return 1;
        }
    }
    printf("small_batch: %d cases; %d are for other kernels, %d by rows, %d with slices of K\n",
           cases, refused, of_rows, in_slices);
    return refused > cases / 2 || of_rows == 0 || in_slices == 0 ? 1 : 0;
}
