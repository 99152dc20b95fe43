/* Checks tensor cores against their arithmetic, written out in integers: those of the CPU device, or,
 * compiled by nvcc, a GPU's.
 *
 *   tensor_cores             bits of products and conversions; which threads must come together
 *   tensor_cores time        how long a product takes, by warps that do nothing else
 *
 * The arithmetic is that of compute capability 9.0; csrc/cpu/tensor_cores.cpp says what it is. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <initializer_list>
#include <random>
#include <vector>

#include "../../csrc/kernels/kernel.h"

namespace {

/* ------------------------------------------------------------------ the device's */

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
    grid_multiply_halves(d, a, b, __LINE__);
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

/* One product of a warp: A by rows, B by columns, so that both lie along the depth. */
struct Product {
    uint16_t A[16][16], B[8][16];
    float D[16][8];
};

struct Products {
    Product *first;
    int times; /* that each is done */
};

__global__ void __launch_bounds__(32) multiply_all(const Products products)
{
    __shared__ __align__(16) uint16_t As[16][16];
    __shared__ __align__(16) uint16_t Bs[16][16]; // the last eight are there for load alone
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
    uint16_t *halves; /* of the floats */
    float *back;      /* of every half */
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

[[noreturn]] void give_up(const char *why)
{
    printf("tensor_cores: %s\n", why);
    exit(2);
}

/* Memory of the host and of the device. */
template <class T> class Shared {
  public:
    explicit Shared(size_t count)
    {
#ifdef __CUDACC__
        cudaMallocManaged(&memory_, count * sizeof(T));
#else
        memory_ = static_cast<T *>(malloc(count * sizeof(T)));
#endif
        if (!memory_) {
            give_up("no memory");
        }
    }
    ~Shared()
    {
#ifdef __CUDACC__
        cudaFree(memory_);
#else
        free(memory_);
#endif
    }
    Shared(const Shared &) = delete;
    operator T *() const
    {
        return memory_;
    }

  private:
    T *memory_ = nullptr;
};

template <class Problem> void run(void (*kernel)(Problem), int64_t blocks, const Problem &problem)
{
    const Launch where = {};
    const KernelSpec one_warp = {"", {}, {}, {32, 1}, 0, 0, 1, false, ""};
    const Status status = launch_blocks(kernel, one_warp, blocks, problem, &where);
    if (status.code != STATUS_OK) {
        give_up(status.message);
    }
#ifdef __CUDACC__
    if (cudaDeviceSynchronize() != cudaSuccess) {
        give_up(cudaGetErrorString(cudaGetLastError()));
    }
#endif
}

/* ------------------------------------------------------------------ the arithmetic, in integers */

uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A number that is finite: significand 2^(exponent - point), with a significand below
 * 2^(point + 1), or 2^(point + 2) for a product. */
struct Term {
    bool negative;
    int exponent, point;
    int64_t significand;
};

Term term_of_half(uint16_t h)
{
    const int field = h >> 10 & 31;
    const int64_t fraction = h & 1023;
    return {h >> 15 != 0, field ? field - 15 : -14, 10, field ? fraction + 1024 : fraction};
}

Term term_of_float(float x)
{
    const int field = static_cast<int>(bits_of(x) >> 23 & 255);
    const int64_t fraction = bits_of(x) & 0x7fffff;
    return {signbit(x) != 0, field ? field - 127 : -126, 23,
            field ? fraction + 0x800000 : fraction};
}

double value_of_half(uint16_t h)
{
    const Term term = term_of_half(h);
    const double magnitude = (h & 0x7fff) > 0x7c00    ? static_cast<double>(NAN)
                             : (h & 0x7fff) == 0x7c00 ? static_cast<double>(INFINITY)
                                                      : ldexp(static_cast<double>(term.significand),
                                                              term.exponent - term.point);
    return term.negative ? -magnitude : magnitude;
}

float sum_of(const Product &product, int row, int col)
{
    const float before = product.D[row][col];
    double plain = before; // right in this alone, whether it is finite
    std::vector<Term> terms;
    for (int k = 0; k < 16; ++k) {
        const uint16_t a = product.A[row][k], b = product.B[col][k];
        plain += value_of_half(a) * value_of_half(b);
        const Term x = term_of_half(a), y = term_of_half(b);
        terms.push_back({x.negative != y.negative, x.exponent + y.exponent, x.point + y.point,
                         x.significand * y.significand});
    }
    terms.push_back(term_of_float(before));
    if (isnan(plain)) {
        return float_of(0x7fffffff);
    }
    if (isinf(plain)) {
        return plain < 0 ? -INFINITY : INFINITY;
    }
    int largest = INT32_MIN;
    for (const Term &term : terms) {
        largest = term.significand && term.exponent > largest ? term.exponent : largest;
    }
    if (largest == INT32_MIN) {
        return 0.0f;
    }
    const int unit = largest - 25; // cut off at multiples of 2^unit
    __int128 sum = 0;
    for (const Term &term : terms) {
        const int up = term.significand ? term.exponent - term.point - unit : 0; // 25 at most
        const __int128 cut = up >= 0     ? static_cast<__int128>(term.significand) << up
                             : up > -100 ? static_cast<__int128>(term.significand) >> -up
                                         : 0;
        sum += term.negative ? -cut : cut;
    }
    const bool negative = sum < 0;
    __int128 magnitude = negative ? -sum : sum;
    int exponent = unit;
    for (; magnitude >= 1 << 24 || (exponent < -149 && magnitude); magnitude >>= 1) {
        ++exponent;
    }
    const float result = ldexpf(static_cast<float>(static_cast<int>(magnitude)), exponent);
    return negative ? -result : result;
}

/* The half nearest to a float, of two the even one, by trying all. */
uint16_t nearest_half(float x)
{
    if (isnan(x)) {
        return 0x7fff;
    }
    const double magnitude = fabs(static_cast<double>(x));
    int low = 0, high = 0x7c00; // the greatest half that is not above it
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        (value_of_half(static_cast<uint16_t>(middle)) <= magnitude ? low : high) = middle;
    }
    const double below = value_of_half(static_cast<uint16_t>(low));
    const double above = low == 0x7bff ? 65536.0 : value_of_half(static_cast<uint16_t>(low + 1));
    const double rest = magnitude - below, missing = above - magnitude;
    low += rest > missing || (rest == missing && low % 2);
    return static_cast<uint16_t>(low | (signbit(x) ? 0x8000 : 0));
}

/* ------------------------------------------------------------------ checks */

int failures;

void check(bool right, const char *what, uint32_t found, uint32_t wanted)
{
    if (!right && ++failures <= 10) {
        printf("%s: %08x, not %08x\n", what, found, wanted);
    }
}

typedef std::mt19937_64 Random;

/* Kinds of operands, each with what it aims at. */
struct Kind {
    const char *name;
    int least, spread;      /* exponents of halves */
    double zeros, specials; /* how many are zero, or not finite */
    int least_d, spread_d;  /* exponents of d */
    double zero_d, cancelling, positive;
};

const Kind kinds[] = {
    {"ordinary", -3, 4, 0, 0, -3, 6, 0.02, 0, 0},
    {"positive", -3, 4, 0, 0, -3, 6, 0.02, 0, 1},
    {"wide", -24, 40, 0, 0, -40, 80, 0.1, 0, 0},
    {"subnormal", -24, 11, 0.1, 0, -60, 40, 0.1, 0, 0},
    {"largest", 12, 4, 0, 0, 20, 16, 0.1, 0, 1},
    {"zeros beside large factors", -24, 40, 0.6, 0, -60, 60, 0.3, 0, 0},
    {"zeros alone", 0, 1, 1, 0, -149, 277, 0.5, 0, 0},
    {"few terms", -24, 40, 0.95, 0, -149, 277, 0.2, 0, 0},
    {"cancelling", -4, 8, 0.2, 0, -8, 16, 0.2, 0.5, 0},
    {"d of any size", -24, 40, 0.1, 0, -149, 277, 0.1, 0, 0},
    {"not finite", -24, 40, 0.1, 0.01, -149, 277, 0.1, 0, 0},
    {"mostly not finite", -24, 40, 0.3, 0.3, -149, 277, 0.3, 0, 0},
};

bool with_odds(Random &random, double odds)
{
    return std::uniform_real_distribution<double>()(random) < odds;
}

uint16_t draw_half(Random &random, const Kind &kind)
{
    const uint16_t sign = with_odds(random, kind.positive) ? 0 : random() & 0x8000;
    if (with_odds(random, kind.specials)) {
        return static_cast<uint16_t>(sign | 0x7c00 | (random() % 3 ? 0 : random() & 1023));
    }
    if (with_odds(random, kind.zeros)) {
        return sign;
    }
    const int exponent = kind.least + static_cast<int>(random() % kind.spread);
    const double magnitude = ldexp(1.0 + static_cast<double>(random() & 1023) / 1024.0, exponent);
    return sign | nearest_half(static_cast<float>(magnitude > 65504.0 ? 65504.0 : magnitude));
}

float draw_float(Random &random, const Kind &kind)
{
    const uint32_t sign = with_odds(random, kind.positive) ? 0 : (random() & 1) << 31;
    if (with_odds(random, kind.specials)) {
        return float_of(sign | 0x7f800000 | (random() % 3 ? 0 : random() & 0x7fffff));
    }
    if (with_odds(random, kind.zero_d)) {
        return float_of(sign);
    }
    const int exponent = kind.least_d + static_cast<int>(random() % kind.spread_d);
    const float magnitude =
        ldexpf(1.0f + static_cast<float>(random() & 0x7fffff) * 0x1p-23f, exponent);
    return sign ? -magnitude : magnitude;
}

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
    /* Of two neighbouring products one takes the other away. */
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
        const std::vector<Product> before(&products[0], &products[count]);
        run(multiply_all, count, Products{products, 1});
        for (int i = 0; i < count; ++i) {
            for (int row = 0; row < 16; ++row) {
                for (int col = 0; col < 8; ++col) {
                    const uint32_t found = bits_of(products[i].D[row][col]);
                    const uint32_t wanted =
                        bits_of(sum_of(before[static_cast<size_t>(i)], row, col));
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
    for (uint32_t half = 0; half < every_half; ++half) { // each half, and what is about the middles
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
    run(convert_all, every_half / 32, Conversions{from, halves, back, count});
    for (int i = 0; i < count; ++i) {
        check(halves[i] == nearest_half(from[i]), "to half", halves[i], nearest_half(from[i]));
    }
    for (int i = 0; i < every_half; ++i) {
        const float wanted = static_cast<float>(value_of_half(static_cast<uint16_t>(i)));
        check(isnan(wanted) ? isnan(back[i]) : bits_of(back[i]) == bits_of(wanted), "from half",
              bits_of(back[i]), bits_of(wanted));
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
    run(multiply_all, blocks, Products{products, times});
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
