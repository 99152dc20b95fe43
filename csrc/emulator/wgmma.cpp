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
    WgmmaFactors factors;
};

bool same(const Product &one, const Product &other)
{
    return one.n == other.n && one.a == other.a && one.b == other.b &&
           one.swizzle == other.swizzle && one.accumulate == other.accumulate &&
           one.factors.format == other.factors.format &&
           one.factors.a_mn_major == other.factors.a_mn_major &&
           one.factors.b_mn_major == other.factors.b_mn_major &&
           one.factors.b_tile_bytes == other.factors.b_tile_bytes;
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

/* A factor in shared memory. A line is a row of A or a column of B. */
struct SharedFactor {
    const void *first;
    int lines, swizzle;
    bool mn_major;
    int tile_bytes; /* of an MN-major one: from one tile to the next */
    int line_in_kernel;
};

SharedFactor factor_a(const Product &product)
{
    return {product.a, product_lines, product.swizzle, product.factors.a_mn_major, 0, product.line};
}

SharedFactor factor_b(const Product &product)
{
    return {product.b,
            product.n,
            product.swizzle,
            product.factors.b_mn_major,
            product.factors.b_tile_bytes,
            product.line};
}

/* Bytes from the factor's first element to an element, in the linear order of its tiles. */
int offset_in(const SharedFactor &factor, int line, int k)
{
    const int bytes = static_cast<int>(sizeof(Half));
    if (!factor.mn_major) {
        return line * factor.swizzle + k * bytes;
    }
    const int in_tile = factor.swizzle / bytes;
    return line / in_tile * factor.tile_bytes + k * factor.swizzle + line % in_tile * bytes;
}

/* The chunk of eight elements that begins at (line, k): along K, or along the lines if the factor
 * is MN-major. Swizzling keeps the elements of a chunk together. */
const Half *chunk_of(const SharedFactor &factor, int line, int k)
{
    const auto linear = reinterpret_cast<uintptr_t>(factor.first) +
                        static_cast<unsigned>(offset_in(factor, line, k));
    const auto chunk = reinterpret_cast<const Half *>(swizzled_address(linear, factor.swizzle));
#ifdef SGEMM_DEFERRED_ASYNC
    return static_cast<const Half *>(deferred_async_view(chunk, factor.line_in_kernel));
#else
    return chunk;
#endif
}

/* Calls visit(line, k, element) for `lines` lines from first_line on, a multiple of 8. */
template <class Visit>
void for_elements(const SharedFactor &factor, int first_line, int lines, const Visit &visit)
{
    const int lines_of_chunk = factor.mn_major ? 8 : 1, depth_of_chunk = factor.mn_major ? 1 : 8;
    for (int line = first_line; line < first_line + lines; line += lines_of_chunk) {
        for (int k = 0; k < product_depth; k += depth_of_chunk) {
            const Half *const chunk = chunk_of(factor, line, k);
            for (int i = 0; i < 8; ++i) {
                visit(factor.mn_major ? line + i : line, factor.mn_major ? k : k + i, chunk[i]);
            }
        }
    }
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
    for_elements(factor_a(product), first_line, product_rows, [=](int row, int k, Half half) {
        a->half[(row - first_line) * product_depth + k] = half;
    });
    a->prepare();
}

void read_b(const Product &product, int first_line, FactorB *b)
{
    for_elements(factor_b(product), first_line, product_cols, [=](int col, int k, Half half) {
        b->half[k * product_cols + col - first_line] = half;
    });
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
        a[warp].format = product.factors.format;
        if (product.a) {
            read_a(product, warp * product_rows, &a[warp]);
        } else {
            read_registers_of_a(registers.a + warp * warp_size, &a[warp]);
        }
    }
    for (int col = 0; col < product.n; col += product_cols) {
        FactorB b;
        b.format = product.factors.format;
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
    const auto add = [&](const SharedFactor &factor) {
        for_elements(factor, 0, factor.lines,
                     [&](int, int, Half half) { sum = (sum ^ half) * 1099511628211u; });
    };
    if (product.a) {
        add(factor_a(product));
    } else {
        for (const unsigned *const of_thread : registers.a) {
            for (int i = 0; i < registers_of_a; ++i) {
                sum = (sum ^ of_thread[i]) * 1099511628211u;
            }
        }
    }
    add(factor_b(product));
    return sum;
}

/* Bytes from the first element of a factor to the last, with the gaps between them. */
int bytes_of(const SharedFactor &factor)
{
    return offset_in(factor, factor.lines - 1, product_depth - 1) + static_cast<int>(sizeof(Half));
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
        deferred_async_read_begins(product.a, bytes_of(factor_a(product)), product.line);
    }
    deferred_async_read_begins(product.b, bytes_of(factor_b(product)), product.line);
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
    if ((product.factors.a_mn_major || product.factors.b_mn_major) && product.swizzle != 128) {
        return "an MN-major factor must have a swizzle of 128 bytes";
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
                int line, const WgmmaFactors &factors)
{
    request_product({{n, a, b, swizzle, accumulate, line, factors}, d, nullptr});
}

void grid_wgmma_registers(float *d, int n, const unsigned (&a)[4], const void *b, int swizzle,
                          bool accumulate, int line)
{
    request_product({{n, nullptr, b, swizzle, accumulate, line, {}}, d, a});
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
