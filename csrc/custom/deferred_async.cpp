/* Linked with driver.cpp instead of the sanitizer, for another program. There asynchronous work
 * completes as late as its rules allow (../emulator/deferred_async.h), and blocks run in two
 * orders. Accesses are not checked. */
#include <stdio.h>

#include "../base/custom_kernel.h"
#include "../emulator/deferred_async_memory.h"
#include "../emulator/grid.h"
#include "../emulator/sanitizer/sanitizer.h"

namespace {

/* The section of shared arrays exists even if the kernel has none. */
__attribute__((used)) __shared__ char no_array;

void print_finding(const char *kind, const char *array, const char *text)
{
    printf("finding\t%s\t\t0\t%s\t-1\t-1\t-1\t%s\n", kind, array, text);
}

} /* namespace */

const char *sanitizer_orders[] = {"", "if blocks and threads run in reverse order", nullptr};

void sanitizer_order(int index)
{
    grid_check = {index, 0, true};
}

void sanitizer_files(const char *) {}
void sanitizer_operands(const SanitizerOperand (&)[3], double) {}
void sanitizer_launcher(bool begins)
{
    const size_t bytes = deferred_async_memory_left();
    if (!begins && bytes > 0) {
        char text[100];
        snprintf(text, sizeof text,
                 "the launcher took %zu bytes of scratch memory and did not give them back", bytes);
        print_finding("scratch memory", "scratch", text);
    }
}
void sanitizer_print_counts() {}
bool sanitizer_fill_with_zeros(bool)
{
    return false;
}
void sanitizer_forget_suspects() {}
bool sanitizer_has_new_suspects()
{
    return false;
}
FaultyAccess sanitizer_meaning_of(const void *)
{
    return {"out of bounds", "the processor refuses this address, which is in no array"};
}
void sanitizer_print_suspects(bool) {}
void sanitizer_print_place(const char *kind, const char *text)
{
    print_finding(kind, "", text);
    fflush(stdout);
}

void sanitizer_print_wrong(int64_t row, int64_t col, double got, double right)
{
    char text[300];
    snprintf(text, sizeof text, "C[%lld, %lld] is %.9g, expected %.9g, %s",
             static_cast<long long>(row), static_cast<long long>(col), got, right,
             grid_check.order
                 ? "if blocks and threads run in reverse order: the result depends on the order"
                 : "if copies and products complete as late as the waits allow: a wait, a commit "
                   "or a fence is missing");
    print_finding("race", "C", text);
}
