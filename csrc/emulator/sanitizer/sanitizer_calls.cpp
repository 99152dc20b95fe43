/* What the compiled kernel calls: before each access, at each function and at each basic block. The
 * compiler means these calls for ThreadSanitizer, the bounds sanitizer and a coverage tool. */
#include <string.h>

#include <algorithm>

#include "sanitizer_parts.h"

#define OBSERVE look_at
#include "../tsan_calls.h"

extern "C" {
void __tsan_func_entry(void *returns_to)
{
    if (watching) {
        Running &own = *running;
        const int depth = std::min(own.depth, most_depth - 1);
        own.latest = own.returns_to[depth] = site_of(returns_to);
        const int entered = std::min(++own.depth, most_depth - 1);
        own.block_at[entered] = 0;
    }
}
void __tsan_func_exit()
{
    if (watching) {
        Running &own = *running;
        own.latest = own.returns_to[std::min(--own.depth, most_depth - 1)];
    }
}
void __tsan_init() {}

void __sanitizer_cov_trace_pc()
{
    if (watching) {
        const Site site = site_of(__builtin_return_address(0));
        running->latest = site;
        latest_site = present_site();
        latest_thread = thread_in_block();
        latest_block = blockIdx.x;
        step_to(site);
    }
}

/* The layout that gcc and clang use. */
struct IndexSite {
    const char *file;
    uint32_t line, column;
    const struct {
        uint16_t kind, info;
        char name[1];
    } * array, *index;
};
void __ubsan_handle_out_of_bounds(IndexSite *site, uintptr_t index)
{
    if (watching) {
        const char *const type = site->array->name;
        const auto number = static_cast<long long>(static_cast<intptr_t>(index));
        out_of_bounds = {true, site_to_tell(site_of(__builtin_return_address(0))),
                         formatted("thread %d takes element %lld of what is %s", thread_in_block(),
                                   number, type)};
        latest_site = out_of_bounds.site;
    }
}
void __ubsan_handle_out_of_bounds_abort(IndexSite *site, uintptr_t index)
{
    __ubsan_handle_out_of_bounds(site, index);
}
}
