/* `auto` for 16-bit operands when `direct` and `mixed` find no memory: the products that they have
 * not launched are computed from float32 copies. Here both are planted, and so is `auto`. */
#define variant_auto planted_auto
#define variant_direct planted_direct
#define variant_mixed planted_mixed
#include "../../csrc/gemm/kernel/launch.h"
#undef ANY_BATCH_ARCHITECTURE_SPECIFIC_VARIANT
#define ANY_BATCH_ARCHITECTURE_SPECIFIC_VARIANT(...) static_assert(true, "")
#include "../../csrc/gemm/auto_16bit.cu"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

namespace {

/* The checkers link programs that have shared arrays. */
extern "C" float *shared_array();
extern "C" float *shared_array()
{
    __shared__ float one[1];
    return one;
}

struct Size {
    int M, N, K;
};

int spared, begun; // products that the planted kernel has memory for, and those that it began
int in_float32;    // that auto computed

Status compute_some(const Sgemm *problem, const Launch *)
{
    if (begun == spared) {
        return status_error(STATUS_OUT_OF_MEMORY, "planted");
    }
    ++begun;
    problem->C.data[0] += 1000.0f; // a product that is computed twice has both
    return status_ok();
}

/* Adds the sum of the first row and column, as a product with beta = 1. */
Status compute_float32(const Sgemm *problem, const Launch *where)
{
    if (where->elements[0] != ELEMENT_FLOAT32 || where->elements[1] != ELEMENT_FLOAT32) {
        return status_error(STATUS_DEVICE, "auto got an operand of 16 bits");
    }
    for (int64_t n = 0; n < problem->count; ++n) {
        const Sgemm one = part_of_batch(problem, n, 1);
        for (int64_t k = 0; k < one.A.cols; ++k) {
            one.C.data[0] += one.A.data[k * one.A.col_stride] * one.B.data[k * one.B.row_stride];
        }
        ++in_float32;
    }
    return status_ok();
}

} // namespace

extern "C" const Variant planted_auto = {"auto", "",    nullptr,   KernelSpec{.reads_addend = true},
                                         {7, 5}, false, INT32_MAX, {compute_float32, nullptr}};
extern "C" const Variant planted_direct = {"direct", "",   nullptr, KernelSpec{},
                                           {9, 0},   true, 1,       {compute_some, nullptr}};
extern "C" const Variant planted_mixed = {"mixed", "",   nullptr, KernelSpec{},
                                          {9, 0},  true, 1,       {compute_some, nullptr}};

/* The GPU that is planned for: with one multiprocessor, `mixed` is faster. */
extern "C" Status plan_device_cpu(const Launch *, PlanDevice *device)
{
    *device = {1, CLUSTER_MOST_BLOCKS, 227 * 1024, &plan_fitted};
    return status_ok();
}

namespace {

/* An operand with elements of that type, all of the same value. */
std::vector<float> filled(ElementType type, int64_t count, float value)
{
    std::vector<float> memory(static_cast<size_t>(count), value);
    if (type != ELEMENT_FLOAT32) { // bfloat16: the upper half
        unsigned bits;
        memcpy(&bits, &value, sizeof bits);
        for (int64_t i = 0; i < count; ++i) {
            const auto upper = static_cast<uint16_t>(bits >> 16);
            memcpy(reinterpret_cast<char *>(memory.data()) + 2 * i, &upper, sizeof upper);
        }
    }
    return memory;
}

bool falls_back(ElementType of_a, ElementType of_b, const Size &size, int count, int with_memory)
{
    const int M = size.M, N = size.N, K = size.K;
    std::vector<float> A = filled(of_a, int64_t{count} * M * K, 1.5f),
                       B = filled(of_b, int64_t{count} * K * N, 2.0f),
                       C(static_cast<size_t>(count * M * N), 1.0f);
    const Sgemm problem = {{A.data(), M, K, K, 1, M * K},
                           {B.data(), K, N, N, 1, K * N},
                           {C.data(), M, N, N, 1, M * N},
                           1.0f,
                           1.0f,
                           count};
    Launch where = {};
    where.elements[0] = of_a;
    where.elements[1] = of_b;
    spared = with_memory;
    begun = in_float32 = 0;
    const Status status = launch_auto_16bit_cpu(&problem, &where);
    bool right = status.code == STATUS_OK && begun == with_memory && in_float32 == count - begun;
    for (int n = 0; n < count; ++n) {
        right &= C[static_cast<size_t>(n * M * N)] ==
                 1.0f + (n < with_memory ? 1000.0f : 1.5f * 2.0f * static_cast<float>(K));
    }
    if (!right) {
        printf("auto_16bit: types %d and %d, %d products, memory for %d: %s, %d in float32\n", of_a,
               of_b, count, with_memory, status.code == STATUS_OK ? "ok" : status.message,
               in_float32);
    }
    return right;
}

} // namespace

int main()
{
    bool right = true;
    const ElementType types[][2] = {{ELEMENT_BFLOAT16, ELEMENT_FLOAT32},
                                    {ELEMENT_FLOAT32, ELEMENT_BFLOAT16},
                                    {ELEMENT_BFLOAT16, ELEMENT_BFLOAT16}};
    const Size one = {192, 128, 512}, of_batch = {1024, 1024, 4};
    for (const auto &pair : types) {
        right &= falls_back(pair[0], pair[1], one, 1, 0) && falls_back(pair[0], pair[1], one, 1, 1);
    }
    constexpr int most = 3;
    for (int with_memory = 0; with_memory <= most; ++with_memory) {
        right &= falls_back(ELEMENT_BFLOAT16, ELEMENT_BFLOAT16, of_batch, most, with_memory);
    }
    printf("auto_16bit: %s\n", right ? "passed" : "FAILED");
    return !right;
}
