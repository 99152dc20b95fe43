/* Checks the kernel for products of different shapes in one launch: on the CPU device, or, compiled
 * by nvcc, on a GPU. Random counts, sizes, layouts and strides. The elements are small integers, so
 * every order of additions gives the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "../../csrc/gemm/small/grouped.cu"
#include "kernel_memory.h"

namespace {

/* A matrix with NaN between its rows or columns, and around it. */
struct Operand {
    Matrix X;
    float *memory;
    size_t floats;

    Operand(int64_t rows, int64_t cols, bool column_major)
    {
        const int64_t length = column_major ? rows : cols, lines = column_major ? cols : rows;
        const int64_t pitch = below(2) ? (length + 3) / 4 * 4 : length + below(6);
        const int64_t guard = 64, skew = below(2) ? 0 : below(4);
        floats = static_cast<size_t>(2 * guard + skew + lines * pitch);
        memory = allocate(floats);
        if (!memory) {
            printf("grouped: no memory\n");
            exit(2);
        }
        std::fill(memory, memory + floats, NAN);
        X = {memory + guard + skew, rows, cols, column_major ? 1 : pitch, column_major ? pitch : 1};
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < cols; ++j) {
                *at(i, j) = static_cast<float>(below(17) - 8);
            }
        }
    }

    ~Operand()
    {
        release(memory);
    }

    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    float *at(int64_t i, int64_t j) const
    {
        return X.data + i * X.row_stride + j * X.col_stride;
    }
};

struct Product {
    Operand A, B, C;
    std::vector<float> expected; // the memory of C after the product

    Product(int64_t M, int64_t N, int64_t K, const bool *by_columns, float alpha, float beta)
        : A(M, K, by_columns[0]), B(K, N, by_columns[1]), C(M, N, by_columns[2])
    {
        expected.assign(C.memory, C.memory + C.floats);
        for (int64_t i = 0; i < M; ++i) {
            for (int64_t j = 0; j < N; ++j) {
                float sum = 0;
                for (int64_t k = 0; k < K; ++k) {
                    sum += *A.at(i, k) * *B.at(k, j);
                }
                float *const result = &expected[static_cast<size_t>(C.at(i, j) - C.memory)];
                *result = beta == 0 ? alpha * sum : alpha * sum + beta * *result;
                if (beta == 0) { // C is not read
                    *C.at(i, j) = NAN;
                }
            }
        }
    }

    bool is_right() const
    {
        for (size_t i = 0; i < C.floats; ++i) {
            const float found = C.memory[i], wanted = expected[i];
            if (found != wanted && !(isnan(found) && isnan(wanted))) {
                printf("grouped: element %zd of C is %g, not %g\n",
                       static_cast<ssize_t>(i) - (C.X.data - C.memory), found, wanted);
                return false;
            }
        }
        return true;
    }
};

/* Launches a group of random products with one configuration. */
bool passes(int kernel, int most, const Launch *where)
{
    constexpr auto &tiles = sizes;
    const bool has_slices = tiles[kernel][7] > 1;
    const bool by_columns[] = {below(2) == 0, below(2) == 0, has_slices && below(2) == 0};
    const int count = below(3) == 0 ? 1 : below(2) ? GROUP_MOST : 1 + below(GROUP_MOST);
    std::vector<std::unique_ptr<Product>> products;
    Group group = {};
    int64_t blocks = 0;
    for (int n = 0; n < count; ++n) {
        const bool is_whole = below(2) == 0;
        const auto size = [&](int least) {
            const int found = least + below(most);
            return is_whole ? (found + 3) / 4 * 4 : found;
        };
        const float alpha = below(2) ? 1.0f : -2.0f, beta = below(2) ? 0.0f : 0.5f;
        products.emplace_back(new Product(size(1), size(1), size(0), by_columns, alpha, beta));
        const Product &made = *products.back();
        group.first[n] = static_cast<unsigned>(blocks);
        group.problems[n] = {made.A.X, made.B.X, made.C.X, alpha, beta};
        blocks += tiles_of(made.C.X, tiles[kernel][0], tiles[kernel][1]);
    }
    group.count = count;
    // A matrix of one row has the layout that the others have.
    const Status status = launch_group(group, blocks, kernel, where);
    if (status.code != STATUS_OK) {
        printf("grouped: %s\n", status.message);
        return false;
    }
#ifdef __CUDACC__
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) {
        printf("grouped: %s\n", cudaGetErrorString(error));
        return false;
    }
#endif
    return std::all_of(products.begin(), products.end(),
                       [](const auto &each) { return each->is_right(); });
}

} // namespace

int main(int count, char **arguments)
{
    const int cases = count > 1 ? atoi(arguments[1]) : 100;
    const Launch where = {};
#define ROW(row) row,
    const int kernels[] = {GROUPED_TILES(ROW)};
#undef ROW
    for (int i = 0; i < cases; ++i) {
        randomness.seed(static_cast<unsigned>(i));
        const int kernel = kernels[i % static_cast<int>(sizeof kernels / sizeof *kernels)];
        if (!passes(kernel, i % 8 < 4 ? 40 : 150, &where)) {
            printf("case %d: configuration %d\n", i, kernel);
            return 1;
        }
    }
    printf("grouped: %d cases\n", cases);
    return 0;
}
