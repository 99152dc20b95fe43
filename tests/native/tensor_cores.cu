/* Checks tensor cores against their arithmetic in integers: on the CPU device, or, compiled by
 * nvcc, on a GPU.
 *
 *   tensor_cores             bits of products and conversions; which threads must synchronize
 *   tensor_cores time        the time of a product, in warps that do nothing else
 *
 * It is the arithmetic of compute capability 9.0, described in csrc/emulator/multiply_fp16.cpp. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <vector>

#include "fp16.h"

namespace {

/* ------------------------------------------------------------------ instructions */

#ifdef __CUDACC__
__device__ void load(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}
__device__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ uint16_t to_half(float x)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
__device__ float from_half(uint16_t h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
#else
void load(unsigned (&r)[4], const void *row)
{
    grid_load_matrices(r, row, __LINE__);
}
void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    grid_multiply_fp16(d, a, b, __LINE__);
}
uint16_t to_half(float x)
{
    return grid_half(x);
}
float from_half(uint16_t h)
{
    return grid_float_of_half(h);
}
#endif

/* One product of a warp: A row-major and B column-major, so both are K-major. */
struct Product {
    uint16_t A[16][16], B[8][16];
    float D[16][8];
};

struct Products {
    Product *first;
    int times; /* how often to compute each */
};

__global__ void __launch_bounds__(32) multiply_all(const Products products)
{
    __shared__ __align__(16) uint16_t As[16][16];
    __shared__ __align__(16) uint16_t Bs[16][16]; // load() needs the last eight rows
    Product &product = products.first[blockIdx.x];
    const int lane = threadIdx.x;
    for (int k = lane % 2 * 8; k < lane % 2 * 8 + 8; ++k) {
        As[lane / 2][k] = product.A[lane / 2][k];
        Bs[lane / 2][k] = lane < 16 ? product.B[lane / 2][k] : 0;
    }
    __syncwarp();
    unsigned a[4], b[4];
    load(a, &As[lane % 16][lane / 16 * 8]);
    load(b, &Bs[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    float *const rows[2] = {&product.D[lane / 4][lane % 4 * 2],
                            &product.D[lane / 4 + 8][lane % 4 * 2]};
    float d[4] = {rows[0][0], rows[0][1], rows[1][0], rows[1][1]};
    const unsigned b_pair[2] = {b[0], b[1]};
    for (int time = 0; time < products.times; ++time) {
        multiply(d, a, b_pair);
    }
    rows[0][0] = d[0];
    rows[0][1] = d[1];
    rows[1][0] = d[2];
    rows[1][1] = d[3];
}

struct Conversions {
    const float *floats;
    uint16_t *halves; /* converted from the floats */
    float *back;      /* converted from every fp16 value */
    int count;
};

constexpr int every_half = 1 << 16;

__global__ void __launch_bounds__(32) convert_all(const Conversions c)
{
    for (int i = blockIdx.x * 32 + threadIdx.x; i < c.count; i += every_half) {
        c.halves[i] = to_half(c.floats[i]);
        if (i < every_half) {
            c.back[i] = from_half(static_cast<uint16_t>(i));
        }
    }
}

/* ------------------------------------------------------------------ checks */

void draw(Random &random, const Kind &kind, Product *product)
{
    for (auto &row : product->A) {
        for (uint16_t &a : row) {
            a = draw_half(random, kind);
        }
    }
    for (auto &col : product->B) {
        for (uint16_t &b : col) {
            b = draw_half(random, kind);
        }
    }
    for (auto &row : product->D) {
        for (float &d : row) {
            d = draw_float(random, kind);
        }
    }
    /* The second product of such a pair cancels the first. */
    for (int k = 0; k < 16; k += 2) {
        if (with_odds(random, kind.cancelling)) {
            for (auto &row : product->A) {
                row[k + 1] = row[k];
            }
            for (auto &col : product->B) {
                col[k + 1] = col[k] ^ 0x8000;
            }
        }
    }
}

void check_products()
{
    constexpr int count = 256;
    Random random(5);
    const Shared<Product> products(count);
    for (const Kind &kind : kinds) {
        for (int i = 0; i < count; ++i) {
            draw(random, kind, products + i);
        }
        for (auto &row : products[0].A) { // zeros of one sign, and of both
            std::fill_n(row, 16, uint16_t{0x8000});
        }
        for (auto &col : products[1].B) {
            std::fill_n(col, 8, uint16_t{0});
            std::fill_n(col + 8, 8, uint16_t{0x8000});
        }
        std::fill_n(products[0].D[0], 8, -0.0f);
        const std::vector<Product> before(&products[0], &products[count]);
        run(multiply_all, 32, 0, count, Products{products, 1});
        for (int i = 0; i < count; ++i) {
            const Product &was = before[static_cast<size_t>(i)];
            for (int row = 0; row < 16; ++row) {
                for (int col = 0; col < 8; ++col) {
                    const uint32_t found = bits_of_float(products[i].D[row][col]);
                    const uint32_t wanted =
                        bits_of_float(sum_of(was.A[row], was.B[col], was.D[row][col]));
                    check(found == wanted, kind.name, found, wanted);
                }
            }
        }
    }
}

void check_conversions()
{
    Random random(6);
    std::vector<float> floats;
    for (uint32_t half = 0; half < every_half; ++half) { // and values around midpoints
        const double here = value_of_half(static_cast<uint16_t>(half));
        const double next = value_of_half(static_cast<uint16_t>(half ^ 1));
        const float middle = static_cast<float>((here + next) / 2);
        for (const float x : {static_cast<float>(here), middle, nextafterf(middle, INFINITY),
                              nextafterf(middle, -INFINITY)}) {
            floats.push_back(x);
        }
    }
    for (const float x :
         {65519.996f, 65520.0f, 65536.0f, 3e38f, 0x1p-25f, 0x1.000002p-25f, 0x1p-26f, 0x1p-149f}) {
        floats.push_back(x);
        floats.push_back(-x);
    }
    for (int i = 0; i < 100'000; ++i) {
        floats.push_back(float_of(static_cast<uint32_t>(random())));
    }
    const int count = static_cast<int>(floats.size());
    const Shared<float> from(floats.size()), back(every_half);
    const Shared<uint16_t> halves(floats.size());
    memcpy(from, floats.data(), floats.size() * sizeof(float));
    run(convert_all, 32, 0, every_half / 32, Conversions{from, halves, back, count});
    for (int i = 0; i < count; ++i) {
        check(halves[i] == nearest_half(from[i]), "to half", halves[i], nearest_half(from[i]));
    }
    for (int i = 0; i < every_half; ++i) {
        const float wanted = static_cast<float>(value_of_half(static_cast<uint16_t>(i)));
        check(isnan(wanted) ? isnan(back[i]) : bits_of_float(back[i]) == bits_of_float(wanted),
              "from half", bits_of_float(back[i]), bits_of_float(wanted));
    }
}

void report_time()
{
    constexpr int blocks = 64, times = 1000;
    Random random(7);
    const Shared<Product> products(blocks);
    for (int i = 0; i < blocks; ++i) {
        draw(random, kinds[0], products + i);
    }
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    run(multiply_all, 32, 0, blocks, Products{products, times});
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = static_cast<double>(end.tv_sec - begin.tv_sec) +
                           1e-9 * static_cast<double>(end.tv_nsec - begin.tv_nsec);
    printf("%.3f us for each of %d products\n", 1e6 * seconds / (blocks * times), blocks * times);
}

} // namespace

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "time") == 0) {
        report_time();
        return 0;
    }
    check_products();
    check_conversions();
    printf("tensor_cores: %d failures\n", failures);
    return failures > 0;
}
