#include "wgmma.h"

#include <string.h>

#include "block.h"
#include "multiply_halves.h"
#include "tma.h"

namespace {

constexpr int product_lines = 64; /* rows of A and of d */
constexpr int most_cols = 256;

/* A product as a thread asks for it: all but d is the same for the whole warpgroup. */
struct Wgmma {
    float *d;
    int n;
    const void *a, *b;
    int swizzle;
    bool accumulate;
    int line;
};

bool same_factors(const Wgmma &one, const Wgmma &other)
{
    return one.n == other.n && one.a == other.a && one.b == other.b &&
           one.swizzle == other.swizzle && one.accumulate == other.accumulate;
}

/* The half at (line, k) of a factor; halves of a line come in chunks of eight, which swizzling keeps
 * together. */
const Half *chunk_of(const void *factor, int line, int k, int swizzle)
{
    const auto linear = reinterpret_cast<uintptr_t>(factor) +
                        static_cast<unsigned>(line * swizzle) + static_cast<unsigned>(2 * k);
    return reinterpret_cast<const Half *>(swizzled_address(linear, swizzle));
}

void read_a(const Wgmma &product, int first_line, FactorA *a)
{
    for (int row = 0; row < product_rows; ++row) {
        for (int k = 0; k < product_depth; k += 8) {
            memcpy(a->half + row * product_depth + k,
                   chunk_of(product.a, first_line + row, k, product.swizzle), 8 * sizeof(Half));
        }
    }
    a->prepare();
}

void read_b(const Wgmma &product, int first_line, FactorB *b)
{
    for (int col = 0; col < product_cols; ++col) {
        for (int k = 0; k < product_depth; k += 8) {
            const Half *const chunk = chunk_of(product.b, first_line + col, k, product.swizzle);
            for (int i = 0; i < 8; ++i) {
                b->half[(k + i) * product_cols + col] = chunk[i];
            }
        }
    }
    b->prepare();
}

/* Where a warp's thread has its four floats of a product of 16 x 8. */
int place_in_product(int lane, int i)
{
    return (lane / 4 + i / 2 * 8) * product_cols + lane % 4 * 2 + i % 2;
}

/* Each warp has 16 rows of d. */
void multiply(void *const *threads)
{
    const auto of = [threads](int thread) -> const Wgmma & {
        return *static_cast<const Wgmma *>(threads[thread]);
    };
    const Wgmma &product = of(0);
    for (int thread = 1; thread < warpgroup_size; ++thread) {
        if (!same_factors(of(thread), product)) {
            block_fail(status_error(STATUS_DEVICE,
                                    "line %d: the threads of a warpgroup name different products: "
                                    "their first thread and the %d after it",
                                    product.line, thread));
        }
    }
    constexpr int warps = warpgroup_size / warp_size;
    FactorA a[warps];
    for (int warp = 0; warp < warps; ++warp) {
        read_a(product, warp * product_rows, &a[warp]);
    }
    for (int col = 0; col < product.n; col += product_cols) {
        FactorB b;
        read_b(product, col, &b);
        for (int warp = 0; warp < warps; ++warp) {
            float d[product_rows * product_cols] = {};
            for (int lane = 0; product.accumulate && lane < warp_size; ++lane) {
                for (int i = 0; i < 4; ++i) {
                    d[place_in_product(lane, i)] = of(warp * warp_size + lane).d[col / 2 + i];
                }
            }
            multiply_halves(a[warp], b, d);
            for (int lane = 0; lane < warp_size; ++lane) {
                for (int i = 0; i < 4; ++i) {
                    of(warp * warp_size + lane).d[col / 2 + i] = d[place_in_product(lane, i)];
                }
            }
        }
    }
}

const char *mistake(const Wgmma &product)
{
    if (product.n < 8 || product.n > most_cols || product.n % 8 != 0) {
        return "a product by a warpgroup has 8 to 256 columns, a multiple of 8";
    }
    if (product.swizzle != 64 && product.swizzle != 128) {
        return "a swizzle is 64 or 128 bytes";
    }
    if (reinterpret_cast<uintptr_t>(product.a) % 16 ||
        reinterpret_cast<uintptr_t>(product.b) % 16) {
        return "a factor of a product by a warpgroup begins at a multiple of 16 bytes";
    }
    return nullptr;
}

} /* namespace */

void grid_wgmma(float *d, int n, const void *a, const void *b, int swizzle, bool accumulate,
                int line)
{
    Wgmma mine = {d, n, a, b, swizzle, accumulate, line};
    if (const char *const what = mistake(mine)) {
        block_fail(
            status_error(STATUS_DEVICE, "thread %d, line %d: %s", block_thread(), line, what));
    }
    grid_meet_warpgroup(line, multiply, &mine);
}

void grid_wgmma_fence(int line)
{
    grid_meet_warpgroup(line, nullptr, nullptr);
}

void grid_wgmma_commit(int line)
{
    grid_meet_warpgroup(line, nullptr, nullptr);
}

void grid_wgmma_wait(int, int line)
{
    grid_meet_warpgroup(line, nullptr, nullptr);
}
