#include "wgmma.h"

#include <string.h>

#include <algorithm>
#include <list>
#include <vector>

#include "block.h"
#include "deferred_async.h"
#include "fiber_sanitizers.h"
#include "float_bits.h"
#include "multiply_fp16.h"
#include "tma.h"

namespace {

constexpr int product_lines = 64; /* rows of A and of d */
constexpr int most_cols = 256;

struct Product {
    int n;
    const void *a, *b;
    int swizzle;
    bool accumulate;
    int line;
};

bool same(const Product &one, const Product &other)
{
    return one.n == other.n && one.a == other.a && one.b == other.b &&
           one.swizzle == other.swizzle && one.accumulate == other.accumulate;
}

constexpr int registers_of_a = 4; /* each holds a pair of A's elements */

/* The arguments of one thread. */
struct Request {
    Product product;
    float *d;
    const unsigned *a; /* its registers of A; NULL if A is in shared memory */
};

/* Pointers to the registers of each thread of a warpgroup: its accumulators, and its part of A. */
struct Registers {
    float *d[warpgroup_size];
    const unsigned *a[warpgroup_size];
};

/* The chunk of eight elements along K that begins at (line, k) of a factor. Swizzling keeps the
 * elements of a chunk together. */
const Half *chunk_of(const void *factor, int line, int k, int swizzle, int line_in_kernel)
{
    const auto linear = reinterpret_cast<uintptr_t>(factor) +
                        static_cast<unsigned>(line * swizzle) + static_cast<unsigned>(2 * k);
    const auto chunk = reinterpret_cast<const Half *>(swizzled_address(linear, swizzle));
#ifdef SGEMM_DEFERRED_ASYNC
    return static_cast<const Half *>(deferred_async_view(chunk, line_in_kernel));
#else
    (void)line_in_kernel;
    return chunk;
#endif
}

/* Each thread has two rows, eight apart, and two pairs in each, eight apart along K. */
void read_registers_of_a(const unsigned *const *of_lanes, FactorA *a)
{
    for (int lane = 0; lane < warp_size; ++lane) {
        for (int i = 0; i < registers_of_a; ++i) {
            const int row = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8;
            memcpy(a->half + row * product_depth + k, of_lanes[lane] + i, sizeof(unsigned));
        }
    }
    a->prepare();
}

void read_a(const Product &product, int first_line, FactorA *a)
{
    for (int row = 0; row < product_rows; ++row) {
        for (int k = 0; k < product_depth; k += 8) {
            memcpy(a->half + row * product_depth + k,
                   chunk_of(product.a, first_line + row, k, product.swizzle, product.line),
                   8 * sizeof(Half));
        }
    }
    a->prepare();
}

void read_b(const Product &product, int first_line, FactorB *b)
{
    for (int col = 0; col < product_cols; ++col) {
        for (int k = 0; k < product_depth; k += 8) {
            const Half *const chunk =
                chunk_of(product.b, first_line + col, k, product.swizzle, product.line);
            for (int i = 0; i < 8; ++i) {
                b->half[(k + i) * product_cols + col] = chunk[i];
            }
        }
    }
    b->prepare();
}

/* The position in a 16 x 8 product of the i-th of a thread's four floats. */
int place_in_product(int lane, int i)
{
    return (lane / 4 + i / 2 * 8) * product_cols + lane % 4 * 2 + i % 2;
}

/* Each warp computes 16 rows of d. */
void multiply(const Product &product, const Registers &registers)
{
    constexpr int warps = warpgroup_size / warp_size;
    FactorA a[warps];
    for (int warp = 0; warp < warps; ++warp) {
        if (product.a) {
            read_a(product, warp * product_rows, &a[warp]);
        } else {
            read_registers_of_a(registers.a + warp * warp_size, &a[warp]);
        }
    }
    for (int col = 0; col < product.n; col += product_cols) {
        FactorB b;
        read_b(product, col, &b);
        for (int warp = 0; warp < warps; ++warp) {
            float *const *const lanes = registers.d + warp * warp_size;
            float sums[product_rows * product_cols] = {};
            for (int lane = 0; product.accumulate && lane < warp_size; ++lane) {
                for (int i = 0; i < 4; ++i) {
                    sums[place_in_product(lane, i)] = lanes[lane][col / 2 + i];
                }
            }
            multiply_fp16(a[warp], b, sums);
            for (int lane = 0; lane < warp_size; ++lane) {
                for (int i = 0; i < 4; ++i) {
                    lanes[lane][col / 2 + i] = sums[place_in_product(lane, i)];
                }
            }
        }
    }
}

#ifdef SGEMM_DEFERRED_ASYNC
/* Accumulators in use by products that a warpgroup has started and not waited for. */
struct Pending {
    Registers registers;
    int n;
    int count;                 /* pending products */
    std::vector<float> values; /* not visible to the threads yet */
};
/* A product that a warpgroup has started and not waited for. */
struct Begun {
    Product product;
    Registers registers; /* the first thread's accumulators identify the Pending */
    unsigned group;
    uint64_t digest; /* of the factors when the product started */
};
struct Warpgroup {
    std::list<Pending> accumulators;
    std::vector<Begun> products;
    unsigned groups;
    bool fenced; /* a fence followed the last return of accumulators */
};
Warpgroup warpgroups[max_threads / warpgroup_size];

Warpgroup *warpgroup()
{
    return &warpgroups[block_thread() / warpgroup_size];
}

/* FNV-1a hash of the factors. */
uint64_t digest(const Product &product, const Registers &registers)
{
    uint64_t sum = 14695981039346656037u;
    const auto add = [&](const void *factor, int lines) {
        for (int line = 0; line < lines; ++line) {
            for (int k = 0; k < product_depth; k += 8) {
                const Half *const chunk = chunk_of(factor, line, k, product.swizzle, product.line);
                for (int i = 0; i < 8; ++i) {
                    sum = (sum ^ chunk[i]) * 1099511628211u;
                }
            }
        }
    };
    if (product.a) {
        add(product.a, product_lines);
    } else {
        for (const unsigned *const of_thread : registers.a) {
            for (int i = 0; i < registers_of_a; ++i) {
                sum = (sum ^ of_thread[i]) * 1099511628211u;
            }
        }
    }
    add(product.b, product.n);
    return sum;
}

/* Bytes from the first element of a factor to the last, with the gaps between them. */
int bytes_of(const Product &product, int lines)
{
    return (lines - 1) * product.swizzle + product_depth * static_cast<int>(sizeof(Half));
}

Pending *find_pending(Warpgroup *group, const float *d)
{
    for (Pending &pending : group->accumulators) {
        if (pending.registers.d[0] == d) {
            return &pending;
        }
    }
    return nullptr;
}

/* Takes the accumulators from the threads, which see NaN until they wait for them. */
Pending *take(Warpgroup *group, const Product &product, const Registers &registers)
{
    if (!group->fenced) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: the threads used the accumulators, and no "
                                "wgmma.fence followed: call grid_wgmma_fence",
                                thread_name(), product.line));
    }
    const int own = product.n / 2;
    group->accumulators.push_back({registers, product.n, 0, {}});
    Pending *const pending = &group->accumulators.back();
    for (float *const of_thread : registers.d) {
        pending->values.insert(pending->values.end(), of_thread, of_thread + own);
        std::fill_n(of_thread, own, bits_of<float>(UINT32_MAX));
    }
    return pending;
}

void give_back(const Pending &pending, const Product &product)
{
    const int own = product.n / 2;
    for (int thread = 0; thread < warpgroup_size; ++thread) {
        for (int i = 0; i < own; ++i) {
            float *const d = &pending.registers.d[thread][i];
            if (bits_of<uint32_t>(*d) != UINT32_MAX) {
                block_fail(status_error(STATUS_DEVICE,
                                        "thread %d of a warpgroup wrote to the accumulators of the "
                                        "product of line %d without waiting for it",
                                        thread, product.line));
            }
            *d = pending.values[static_cast<size_t>(thread * own + i)];
        }
    }
}

void begin(const Product &product, const Registers &registers)
{
    Warpgroup *const group = warpgroup();
    Pending *pending = find_pending(group, registers.d[0]);
    if (!pending) {
        pending = take(group, product, registers);
    } else if (pending->n != product.n) {
        block_fail(status_error(STATUS_DEVICE,
                                "%s, line %d: a product of %d columns uses the accumulators "
                                "of a pending product of %d columns: wait for it",
                                thread_name(), product.line, product.n, pending->n));
    }
    ++pending->count;
    group->products.push_back({product, registers, group->groups, digest(product, registers)});
    if (product.a) {
        deferred_async_read_begins(product.a, bytes_of(product, product_lines), product.line);
    }
    deferred_async_read_begins(product.b, bytes_of(product, product.n), product.line);
}

void end(Warpgroup *group, const Begun &begun)
{
    const Product &product = begun.product;
    if (digest(product, begun.registers) != begun.digest) {
        block_fail(
            status_error(STATUS_DEVICE,
                         "the factors of the product of line %d changed while it could still "
                         "read them: they were loaded or overwritten after it started",
                         product.line));
    }
    Pending *const pending = find_pending(group, begun.registers.d[0]);
    Registers values = begun.registers;
    for (int thread = 0; thread < warpgroup_size; ++thread) {
        values.d[thread] = &pending->values[static_cast<size_t>(thread * product.n / 2)];
    }
    multiply(product, values);
    if (product.a) {
        deferred_async_read_ends(product.a, product.line);
    }
    deferred_async_read_ends(product.b, product.line);
    if (--pending->count == 0) {
        give_back(*pending, product);
        group->accumulators.remove_if(
            [&](const Pending &one) { return one.registers.d[0] == begun.registers.d[0]; });
        group->fenced = false;
    }
}

void fence(void *const *)
{
    warpgroup()->fenced = true;
}

void commit(void *const *)
{
    ++warpgroup()->groups;
}

void wait(void *const *threads)
{
    Warpgroup *const group = warpgroup();
    const auto left = static_cast<unsigned>(*static_cast<const int *>(threads[0]));
    while (!group->products.empty() && group->products[0].group + left < group->groups) {
        end(group, group->products[0]);
        group->products.erase(group->products.begin());
    }
}
#elif defined(SGEMM_SANITIZED)
/* Computes the product immediately. The sanitizer checks when its sums are used. */
void begin(const Product &product, const Registers &registers)
{
    sanitizer_hooks.product(registers.d, product.n);
    multiply(product, registers);
}

void fence(void *const *) {}
void commit(void *const *)
{
    sanitizer_hooks.product_commit();
}
void wait(void *const *threads)
{
    sanitizer_hooks.product_wait(*static_cast<const int *>(threads[0]));
}
#else
/* Computes the product immediately. */
void begin(const Product &product, const Registers &registers)
{
    multiply(product, registers);
}

void fence(void *const *) {}
void commit(void *const *) {}
void wait(void *const *) {}
#endif

void begin_requested(void *const *threads)
{
    const auto request = [threads](int thread) {
        return static_cast<const Request *>(threads[thread]);
    };
    const Product &product = request(0)->product;
    Registers registers;
    for (int thread = 0; thread < warpgroup_size; ++thread) {
        if (!same(request(thread)->product, product)) {
            block_fail(status_error(STATUS_DEVICE,
                                    "line %d: the threads of a warpgroup pass different "
                                    "arguments: its first thread and its thread %d",
                                    product.line, thread));
        }
        registers.d[thread] = request(thread)->d;
        registers.a[thread] = request(thread)->a;
    }
    begin(product, registers);
}

const char *mistake(const Product &product)
{
    if (product.n < 8 || product.n > most_cols || product.n % 8 != 0) {
        return "a wgmma product must have 8 to 256 columns, a multiple of 8";
    }
    if (product.swizzle != 64 && product.swizzle != 128) {
        return "a swizzle must be 64 or 128 bytes";
    }
    if (reinterpret_cast<uintptr_t>(product.a) % 16 ||
        reinterpret_cast<uintptr_t>(product.b) % 16) {
        return "a factor of a wgmma product must begin at a multiple of 16 bytes";
    }
    return nullptr;
}

} /* namespace */

#ifdef SGEMM_DEFERRED_ASYNC
void deferred_async_products_begin()
{
    for (Warpgroup &group : warpgroups) {
        group = {};
    }
}
#endif

static void request_product(Request mine)
{
    if (const char *const what = mistake(mine.product)) {
        block_fail(
            status_error(STATUS_DEVICE, "%s, line %d: %s", thread_name(), mine.product.line, what));
    }
    grid_synchronize_warpgroup(mine.product.line, begin_requested, &mine);
}

void grid_wgmma(float *d, int n, const void *a, const void *b, int swizzle, bool accumulate,
                int line)
{
    request_product({{n, a, b, swizzle, accumulate, line}, d, nullptr});
}

void grid_wgmma_registers(float *d, int n, const unsigned (&a)[4], const void *b, int swizzle,
                          bool accumulate, int line)
{
    request_product({{n, nullptr, b, swizzle, accumulate, line}, d, a});
}

void grid_wgmma_fence(int line)
{
    grid_synchronize_warpgroup(line, fence, nullptr);
}

void grid_wgmma_commit(int line)
{
    grid_synchronize_warpgroup(line, commit, nullptr);
}

void grid_wgmma_wait(int left, int line)
{
    grid_synchronize_warpgroup(line, wait, &left);
}
