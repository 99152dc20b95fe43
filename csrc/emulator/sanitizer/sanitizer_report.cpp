/* The findings of the checking program. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "sanitizer_parts.h"

/* Used by ../../gemm/kernel/plain_run.h. */
void sanitizer_grid(const int64_t *grid);
bool sanitizer_last_block = false;

namespace {

int64_t grid_size[3] = {1, 1, 1}; /* of a plain kernel */

/* One finding per kind and place. */
std::set<std::tuple<std::string, std::string, int, std::string>> told;

struct Suspect {
    int thread; /* in its block */
    int64_t block;
    const char *kind;
    std::string text;
};
std::map<std::pair<Site, const char *>, Suspect> suspects;

/* ------------------------------------------------------------------ races */

/* One of the two accesses of a race. */
struct Access {
    Touch touch;
    bool store;

    long long block() const
    {
        return block_of(touch.block, touch.thread);
    }
    int thread() const
    {
        return touch.thread % threads_of_block();
    }
    const char *does() const
    {
        return touch.mbarrier ? store ? "initializes" : "uses" : store ? "writes" : "reads";
    }
};

void print_race(const Array &array, const Access &access, const Access &other,
                const std::string &text)
{
    print_finding("race", access.touch.site, array.name, access.block(), access.thread(),
                  other.thread(), text);
}

/* ' of block 4', unless both are of one block. */
std::string of_block(const Access &access, const Access &other)
{
    return access.touch.block == other.touch.block && access.block() == other.block()
               ? ""
               : " of block " + name_of_block(other.block());
}

/* Whether the first site is earlier in the kernel's text, if that decides. */
bool is_above(const Touch &one, const Touch &other)
{
    const Line of_one = line_of(one.in_kernel), of_other = line_of(other.in_kernel);
    if (strcmp(of_one.file, of_other.file) == 0 && of_one.number != of_other.number) {
        return of_one.number < of_other.number;
    }
    return line_of(one.site).number < line_of(other.site).number;
}

std::string words_of_rounds(const Rounds &later)
{
    return !later.loop        ? ""
           : later.ahead == 0 ? " in the same round of the loop"
           : later.ahead == 1 ? " in the previous round of the loop"
                              : formatted(" %d rounds of the loop earlier", later.ahead);
}

/* Where a barrier of the block belongs: after the earlier access and before the later one. */
std::string place_of_barrier(const Touch &earlier, const Touch &later, const Rounds &rounds)
{
    const bool in_helper = earlier.in_kernel == later.in_kernel;
    const std::string from = name_of_line(in_helper ? earlier.site : earlier.in_kernel),
                      to = name_of_line(in_helper ? later.site : later.in_kernel);
    const bool needs_barrier = !uses_mbarriers || later.mbarrier;
    if (!needs_barrier || (from == to && rounds.ahead == 0)) {
        return "";
    }
    const bool is_below = line_of(later.in_kernel).number > line_of(earlier.in_kernel).number;
    return rounds.ahead == 0
               ? ": one belongs after " + from + (is_below || in_helper ? " and before " + to : "")
               : ": one belongs after " + from + " or, in the next round, before " + to;
}

/* Two accesses of one block. The finding is about the one that is later in the kernel's order. */
void tell_race_in_block(const Array &array, const std::string &element, Access before, Access now)
{
    Rounds rounds = rounds_between(now.touch, before.touch);
    const bool text_decides = rounds.loop || !uses_mbarriers;
    if (rounds.ahead < 0 ||
        (rounds.ahead == 0 && text_decides && is_above(now.touch, before.touch))) {
        std::swap(before, now);
        rounds.ahead = -rounds.ahead;
    }
    print_race(array, now, before,
               formatted("thread %d %s %s, which thread %d %s at %s%s, and no barrier is between "
                         "them%s",
                         now.thread(), now.does(), element.c_str(), before.thread(), before.does(),
                         name_of_line(before.touch.site).c_str(), words_of_rounds(rounds).c_str(),
                         place_of_barrier(before.touch, now.touch, rounds).c_str()));
}

/* Returns whether no thread writes some element of C. The finding is about the line that writes
 * another one, if any. */
bool print_never_set(const Array &C)
{
    const Matrix &X = C.operand->matrix;
    const auto writer_of = [&](int64_t row, int64_t col) -> const Touch & {
        const float *const element = X.data + row * X.row_stride + col * X.col_stride;
        return C.words[(reinterpret_cast<uintptr_t>(element) - C.begin) / sizeof(float)].writer;
    };
    int64_t missing = -1;
    Site site = 0;
    for (int64_t index = 0; index < X.rows * X.cols; ++index) {
        const Touch &writer = writer_of(index / X.cols, index % X.cols);
        if (writer.thread != no_thread) {
            site = writer.site;
        } else if (missing < 0) {
            missing = index;
        }
    }
    if (missing >= 0) {
        print_finding("never set", site, "C", -1, no_thread, no_thread,
                      formatted("no thread writes C[%lld, %lld]%s",
                                static_cast<long long>(missing / X.cols),
                                static_cast<long long>(missing % X.cols),
                                site ? "; this line writes others" : ""));
    }
    return missing >= 0;
}

} // namespace

bool is_first(const char *kind, const Array *array, Site site, Site other)
{
    static std::set<std::tuple<std::string, const char *, Site, Site>> before;
    return before.insert({kind, array->name, site, other}).second;
}

std::string formatted(const char *format, ...)
{
    char text[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

std::string name_of_block(int64_t block)
{
    const long long x = grid_size[0], y = grid_size[1], z = grid_size[2];
    return y == 1 && z == 1 ? std::to_string(block)
           : z == 1         ? formatted("(%lld, %lld)", block % x, block / x)
                    : formatted("(%lld, %lld, %lld)", block % x, block / x % y, block / x / y);
}

void print_finding(const char *kind, Site site, const char *array, int64_t block, int thread,
                   int other_thread, const std::string &text)
{
    if (fills_with_zeros) {
        return;
    }
    const Line line = line_of(site);
    /* An index may be reported both with and without its array's name. */
    const char *const whose = strcmp(kind, "out of bounds") == 0 ? "" : array;
    if (told.size() < 100 && told.insert({kind, line.file, line.number, whose}).second) {
        printf("finding\t%s\t%s\t%d\t%s\t%lld\t%d\t%d\t%s\n", kind, line.file, line.number, array,
               static_cast<long long>(block), thread, other_thread,
               (block > 0 ? text + ", in block " + name_of_block(block) : text).c_str());
    }
}

void tell(const char *kind, Site site, const char *array, const std::string &text)
{
    print_finding(kind, site, array, blockIdx.x, thread_in_block(), no_thread, text);
}

void tell_race(const Array &array, uintptr_t address, const Touch &before, bool was_store,
               const Touch &now, bool store)
{
    const bool same_store = was_store && store && before.site == now.site;
    // In the package's own kernels, warps store the same value: add_slices in fused_slices.h.
    if ((same_store && before.block == now.block && !is_own(now.site)) ||
        !is_first("race", &array, now.site, before.site)) {
        return;
    }
    const Access earlier = {before, was_store}, access = {now, store};
    const std::string element =
        (now.mbarrier ? "the mbarrier in " : "") + element_of(array, address);
    const std::string other = of_block(access, earlier);
    if (before.on_its_way) {
        print_race(array, access, earlier,
                   formatted("thread %d %s %s, to which the asynchronous copy of thread %d%s, %s, "
                             "is on its way, and nobody waited for it",
                             access.thread(), access.does(), element.c_str(), earlier.thread(),
                             other.c_str(), name_of_line(before.site).c_str()));
        return;
    }
    const bool one_cluster = before.block == now.block;
    const bool one_block = one_cluster && earlier.block() == access.block();
    if (one_block && !(same_store && rounds_between(now, before).ahead == 0)) {
        tell_race_in_block(array, element, earlier, access);
        return;
    }
    print_race(array, access, earlier,
               formatted("thread %d %s %s, which thread %d%s %s%s at %s%s, and no %s between them",
                         access.thread(), access.does(), element.c_str(), earlier.thread(),
                         other.c_str(), earlier.does(), same_store ? " too" : "",
                         name_of_line(before.site).c_str(),
                         same_store ? ": two threads write the same element" : "",
                         one_block     ? "barrier is"
                         : one_cluster ? "barrier of the cluster is"
                                       : "fences with atomic operations are"));
}

/* Called by the CPU device. */
void sanitize_two_barriers(int other_thread, int other_line, int line)
{
    tell("two barriers", present_site(), "",
         formatted("thread %d waits at line %d while thread %d waits at line %d: a GPU takes both "
                   "for one barrier",
                   thread_in_block(), line, other_thread % threads_of_block(), other_line));
}

void suspect(Site site, const char *array, const std::string &text)
{
    suspects.insert({{site, array}, {thread_in_block(), blockIdx.x, "uninitialized read", text}});
}

void suspect_of_copy(const Array &array, uintptr_t address, const Touch &read, const Touch &copy)
{
    const auto found = suspects.find({read.site, array.name});
    if (found != suspects.end() && strcmp(found->second.kind, "race") != 0) {
        found->second.kind = "race";
        found->second.text =
            formatted("thread %d reads %s before the asynchronous copy of thread %d, %s, begins: a "
                      "wait for it is missing",
                      read.thread % threads_of_block(), element_of(array, address).c_str(),
                      copy.thread % threads_of_block(), name_of_line(copy.site).c_str());
    }
}

/* ------------------------------------------------------------------ called by driver.cpp */

void sanitizer_grid(const int64_t *grid)
{
    std::copy_n(grid, 3, grid_size);
}

void sanitizer_forget_suspects()
{
    suspects.clear();
}

bool sanitizer_has_new_suspects()
{
    static std::set<std::pair<Site, const char *>> known;
    bool has_new = false;
    for (const auto &entry : suspects) {
        has_new = known.insert(entry.first).second || has_new;
    }
    return has_new;
}

void sanitizer_print_place(const char *kind, const char *text)
{
    if (latest_site == 0 || unaligned_site != latest_site) { /* otherwise reported already */
        print_finding(kind, latest_site, "", latest_block, latest_thread, no_thread, text);
    }
    fflush(stdout);
}

void sanitizer_print_wrong(int64_t row, int64_t col, double got, double right)
{
    std::string text =
        formatted("C[%lld, %lld] is %.9g, expected %.9g", static_cast<long long>(row),
                  static_cast<long long>(col), got, right);
    Site site = 0;
    for (const Array &array : arrays) {
        if (!array.operand) {
            continue;
        }
        const Matrix &X = array.operand->matrix;
        const auto word_of = [&](int64_t i, int64_t j) {
            const float *const element = X.data + i * X.row_stride + j * X.col_stride;
            return (reinterpret_cast<uintptr_t>(element) - array.begin) / sizeof(float);
        };
        if (!array.operand->input) {
            const Touch &writer = array.words[word_of(row, col)].writer;
            site = writer.thread == no_thread ? 0 : writer.site;
            continue;
        }
        const bool is_A = array.operand == &operands[0];
        for (int64_t k = 0; k < (is_A ? X.cols : X.rows); ++k) {
            const int64_t i = is_A ? row : k, j = is_A ? k : col;
            if (!array.seen[word_of(i, j)]) {
                text += formatted("; no thread reads %s[%lld, %lld]", array.name,
                                  static_cast<long long>(i), static_cast<long long>(j));
                break;
            }
        }
    }
    print_finding("wrong values", site, "C", -1, no_thread, no_thread, text);
}

void sanitizer_print_at(const char *kind, Site site, const char *array, const char *text)
{
    print_finding(kind, site, array, -1, no_thread, no_thread, text);
}

void sanitizer_print_suspects(bool has_ended)
{
    if (has_ended && arrays.empty()) {
        print_finding("never set", 0, "C", -1, no_thread, no_thread, "no kernel was launched");
    }
    for (const auto &entry : suspects) {
        print_finding(entry.second.kind, entry.first.first, entry.first.second, entry.second.block,
                      entry.second.thread, no_thread, entry.second.text);
    }
    for (const Array &array : arrays) {
        if (!has_ended || !array.operand || array.operand->input) {
            continue;
        }
        if (print_never_set(array)) {
            return;
        }
    }
}
