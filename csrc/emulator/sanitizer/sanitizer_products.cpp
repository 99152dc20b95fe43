/* Products of warpgroups (wgmma). The CPU device computes them at once, but a thread may use their
 * sums only after wgmma_commit and a wgmma_wait that covers them. */
#include "sanitizer_parts.h"

namespace {

struct Product {
    uintptr_t begin[warpgroup_size], end[warpgroup_size]; /* the sums of each thread */
    Site site;
    Site latest; /* the warpgroup's latest commit or wait, which leaves the product in flight */
    enum { issued, committed, waited, waited_without_commit } state;
    unsigned group;
};
struct Warpgroup {
    std::vector<Product> products; /* in flight */
    unsigned groups;
};
Warpgroup warpgroups[max_threads / warpgroup_size];

Warpgroup &warpgroup()
{
    return warpgroups[running->number / warpgroup_size];
}

std::string reason(const Product &product, const char *product_line)
{
    switch (product.state) {
    case Product::issued:
        return formatted("the product at %s is still in flight: no wgmma_commit and no wgmma_wait "
                         "follow it",
                         product_line);
    case Product::committed:
        return formatted("the product at %s is still in flight: no wgmma_wait follows its "
                         "wgmma_commit here",
                         product_line);
    case Product::waited_without_commit:
        return formatted("the wait here does not include the product at %s: no wgmma_commit is "
                         "between them",
                         product_line);
    default:
        return formatted("the wait here leaves the group of the product at %s in flight",
                         product_line);
    }
}

} // namespace

void products_block_begins()
{
    for (Warpgroup &group : warpgroups) {
        group.products.clear();
        group.groups = 0;
    }
}

void look_at_accumulators(uintptr_t address, bool store, Site site)
{
    const Warpgroup &group = warpgroup();
    const int thread = running->number % warpgroup_size;
    for (const Product &product : group.products) {
        if (product.begin[thread] <= address && address < product.end[thread]) {
            print_finding("race", product.latest, "", blockIdx.x, thread_in_block(), no_thread,
                          formatted("thread %d %s sums of a product at %s, and %s",
                                    thread_in_block(), store ? "writes" : "reads",
                                    name_of_line(site).c_str(),
                                    reason(product, name_of_line(product.site).c_str()).c_str()));
            return;
        }
    }
}

/* Declared in traced.h. The reads by a product of a warpgroup, in chunks of 16 bytes. The
 * first thread of each warp stands for the warp: it reads the warp's 16 rows of A and a quarter of
 * the rows of B. */
void traced_wgmma(int n, const void *a, const void *b, int swizzle)
{
    constexpr int rows = 16, warps = 4, chunks = 2, chunk_bytes = 16;
    const Site here = site_to_tell(site_of(__builtin_return_address(0)));
    running->latest = site_of(__builtin_return_address(0));
    const int thread = running->number % warpgroup_size, warp = thread / warp_size;
    if (thread % warp_size != 0) {
        return;
    }
    const auto read = [=](const void *factor, int first, int end) {
        for (int at = first * chunks; at < end * chunks; ++at) {
            const auto linear =
                reinterpret_cast<uintptr_t>(factor) +
                static_cast<unsigned>(at / chunks * swizzle + at % chunks * chunk_bytes);
            look(reinterpret_cast<const void *>(swizzled_address(linear, swizzle)), chunk_bytes,
                 false, false, here);
        }
    };
    if (a) { /* otherwise it is in registers */
        read(a, warp * rows, (warp + 1) * rows);
    }
    read(b, warp * n / warps, (warp + 1) * n / warps);
}

/* ------------------------------------------------------------------ called by the CPU device */

void sanitize_product(float *const *sums, int n)
{
    Warpgroup &group = warpgroup();
    const Site here = present_site();
    group.products.push_back({{}, {}, here, here, Product::issued, group.groups});
    Product &product = group.products.back();
    for (int thread = 0; thread < warpgroup_size; ++thread) {
        product.begin[thread] = reinterpret_cast<uintptr_t>(sums[thread]);
        product.end[thread] = reinterpret_cast<uintptr_t>(sums[thread] + n / 2);
    }
}

void sanitize_product_commit()
{
    Warpgroup &group = warpgroup();
    for (Product &product : group.products) {
        if (product.group == group.groups) {
            product.latest = present_site();
            product.state = Product::committed;
        }
    }
    ++group.groups;
}

void sanitize_product_wait(int left)
{
    Warpgroup &group = warpgroup();
    std::vector<Product> in_flight;
    for (Product &product : group.products) {
        if (product.group + static_cast<unsigned>(left) >= group.groups) {
            product.latest = present_site();
            product.state =
                product.group == group.groups ? Product::waited_without_commit : Product::waited;
            in_flight.push_back(product);
        }
    }
    group.products = in_flight;
}
