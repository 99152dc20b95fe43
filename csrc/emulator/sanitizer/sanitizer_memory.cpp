/* The arrays of a product, and the check of each access. */
#include <string.h>

#include <algorithm>

#include "sanitizer_parts.h"

SanitizerOperand operands[3];
std::vector<Array> arrays;
bool fills_with_zeros;
Done done;
OutOfBounds out_of_bounds;

namespace {

/* How an operand lies: lines of `length` elements, `ld` apart. A line is a row, or a column of a
 * column-major operand. */
struct Layout {
    int64_t lines, length, ld;
};

Layout layout_of(const SanitizerOperand &operand)
{
    const Matrix &X = operand.matrix;
    return operand.by_columns ? Layout{X.cols, X.rows, X.col_stride}
                              : Layout{X.rows, X.cols, X.row_stride};
}

bool inside_operand(const SanitizerOperand &operand, uintptr_t address)
{
    const auto first = reinterpret_cast<uintptr_t>(operand.matrix.data);
    const Layout layout = layout_of(operand);
    if (address < first) {
        return false;
    }
    const auto offset = static_cast<int64_t>((address - first) / sizeof(float));
    return offset / layout.ld < layout.lines && offset % layout.ld < layout.length;
}

Touch touch_now(unsigned bytes, Site site)
{
    Touch now = {};
    now.thread = static_cast<int16_t>(running->number);
    now.bytes = static_cast<uint8_t>(bytes);
    now.clock = clocks[running->number][running->number];
    now.step = running->step;
    now.site = site;
    now.in_kernel = running->access;
    now.block = this_cluster();
    return now;
}

/* The touch is of bytes of the word at this address. */
void look_at_word(Array *array, uintptr_t address, const Touch &now, bool store)
{
    Word &word = array->words[(address - array->begin) / sizeof(float)];
    const int thread = now.thread;
    const int64_t block = now.block;
    if (word.block != block && !array->scratch) {
        if (array->operand && store && !ordered(word.writer, now)) {
            tell("race", now.site, array->name,
                 formatted("thread %d writes %s, which block %s writes too, at %s: two threads "
                           "write the same element",
                           thread_in_block(), element_of(*array, address).c_str(),
                           name_of_block(block_of(word.block, word.writer.thread)).c_str(),
                           name_of_line(word.writer.site).c_str()));
        }
        if (!array->operand || store) { /* shared memory has a new history in each block */
            word = {};
            word.block = block;
        }
    }
    if (!ordered(word.writer, now)) {
        tell_race(*array, address, word.writer, true, now, store);
    }
    if (store) {
        for (const Touch *reader :
             {&word.reader, &word.reader_of_other_warp, &word.other_reader_of_warp}) {
            if (!ordered(*reader, now)) {
                tell_race(*array, address, *reader, false, now, true);
            }
        }
        if (now.on_its_way && word.writer.thread == no_thread && word.reader.thread != no_thread) {
            suspect_of_copy(*array, address, word.reader, now);
        }
        word.writer = now;
        if (now.on_its_way) {
            copies_of_thread[thread].back().push_back(&word);
            done.copied += blockIdx.x == 0;
        }
        word.reader = word.reader_of_other_warp = word.other_reader_of_warp = Touch();
        return;
    }
    if (word.writer.thread == no_thread && !array->operand && !array->zeros) {
        suspect(now.site, array->name,
                formatted("thread %d reads %s, which no thread%s has written%s", thread_in_block(),
                          element_of(*array, address).c_str(),
                          array->scratch ? "" : " of its block",
                          uses_mbarriers ? " yet: a wait for a copy may be missing" : ""));
    }
    /* An ordered earlier reader need not be kept. */
    Touch *const readers[3] = {&word.reader, &word.reader_of_other_warp,
                               &word.other_reader_of_warp};
    for (Touch *reader : readers) {
        if (ordered(*reader, now)) {
            *reader = now;
            return;
        }
    }
    (word.reader.thread / warp_size != thread / warp_size ? word.reader_of_other_warp
                                                          : word.other_reader_of_warp) = now;
}

void count_read(const Array &array, uintptr_t address)
{
    const int thread = running->number;
    if (array.operand) {
        const size_t word = (address - array.begin) / sizeof(float);
        if (array.operand->input && word < array.seen.size() && !array.seen[word]) {
            done.new_inputs[thread] |= 1u << (array.operand - operands);
        }
    } else if (!array.scratch) {
        ++done.shared_reads;
        done.reads_ahead += done.new_inputs[thread] == 3;
        done.reads_in_flight += has_copies_on_their_way(thread);
    }
}

/* Operands with more bytes have no record of each word. */
constexpr size_t most_recorded = size_t{1} << 30;
constexpr int64_t most_large_accesses = 4000000; /* then the block ends: it is too slow */
LargeTouch large;
int64_t large_accesses;

bool is_large(const SanitizerOperand *operand)
{
    return operand && operand->bytes > most_recorded;
}

void look_at_large(const Array &array, uintptr_t address, int bytes, bool store, Site site)
{
    const Matrix &X = array.operand->matrix;
    const int which = static_cast<int>(array.operand - operands);
    const Layout layout = layout_of(*array.operand);
    const auto offset = static_cast<int64_t>((address - reinterpret_cast<uintptr_t>(X.data)) / 4);
    const int64_t line = offset / layout.ld;
    const int64_t last = offset % layout.ld + (bytes - 1) / 4;
    const bool last_row = (array.operand->by_columns ? last : line) == X.rows - 1;
    const bool last_col = (array.operand->by_columns ? line : last) == X.cols - 1;
    const bool there = which == 0 ? last_row : which == 1 ? last_col : last_row && last_col;
    if (there && store == (which == 2)) {
        large.there[which] = true;
        large.site[which] = site;
    }
    if (++large_accesses > most_large_accesses) {
        large.cut = true;
        block_fail(status_error(STATUS_DEVICE, "the last block has too many accesses"));
    }
}

/* Tells it if one of the words is outside of the array. */
bool leaves_array(const Array &array, uintptr_t address, uintptr_t last, const char *does,
                  Site site)
{
    for (uintptr_t word = address; word <= last; word += sizeof(float)) {
        const SanitizerOperand *const operand = array.operand;
        if (operand ? inside_operand(*operand, word) : word < array.end) {
            continue;
        }
        if (!is_large(operand) && !is_first("out of bounds", &array, site)) {
            return true;
        }
        const int64_t rows = operand ? operand->matrix.rows : 0;
        const int64_t cols = operand ? operand->matrix.cols : 0;
        const std::string size =
            operand ? formatted("%s is %lld x %lld", array.name, static_cast<long long>(rows),
                                static_cast<long long>(cols))
                    : formatted("%s has %lld", array.name,
                                static_cast<long long>((array.end - array.begin) / 4));
        tell("out of bounds", site, array.name,
             formatted("thread %d %s %s, and %s", thread_in_block(), does,
                       element_of(array, word).c_str(), size.c_str()));
        if (is_large(operand)) {
            block_fail(status_error(STATUS_DEVICE, "an index overflows"));
        }
        return true;
    }
    return false;
}

} // namespace

std::string element_of(const Array &array, uintptr_t address)
{
    if (!array.operand) {
        return formatted("%s, element %lld", array.name,
                         static_cast<long long>((address - array.begin) / sizeof(float)));
    }
    const Layout layout = layout_of(*array.operand);
    const int64_t offset =
        (static_cast<int64_t>(address) - reinterpret_cast<int64_t>(array.operand->matrix.data)) /
        static_cast<int64_t>(sizeof(float));
    const int64_t line = offset >= 0 ? offset / layout.ld : -1 - (-1 - offset) / layout.ld;
    const int64_t along = offset - line * layout.ld;
    const bool by_columns = array.operand->by_columns;
    return formatted("%s[%lld, %lld]", array.name,
                     static_cast<long long>(by_columns ? along : line),
                     static_cast<long long>(by_columns ? line : along));
}

Array *array_at(uintptr_t address)
{
    for (auto array = arrays.rbegin(); array != arrays.rend(); ++array) {
        if (array->begin <= address && address < array->end + array->redzone) {
            return &*array;
        }
    }
    return nullptr;
}

void add_array(const char *name, uintptr_t begin, size_t bytes, size_t behind,
               const SanitizerOperand *operand, bool scratch)
{
    const bool is_input = operand && operand->input;
    const size_t words = is_large(operand) ? 0 : bytes / sizeof(float) + 1;
    arrays.push_back({name, begin, begin + bytes, behind, scratch, false,
                      std::vector<Word>(is_input ? 0 : words),
                      std::vector<uint32_t>(operand || scratch ? words : 0), operand});
}

void fill(uintptr_t begin, size_t bytes)
{
    memset(reinterpret_cast<void *>(begin), fills_with_zeros ? 0 : 0xff, bytes);
}

bool is_unset_C(const Array &array, uintptr_t address)
{
    return array.operand && !array.operand->readable && !array.words.empty() &&
           array.words[(address - array.begin) / sizeof(float)].writer.thread == no_thread;
}

void look(const void *pointer, int bytes, bool store, bool atomic, Site site)
{
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    latest_site = site;
    Array *const array = array_at(address);
    if (out_of_bounds.there) {
        out_of_bounds.there = false;
        tell("out of bounds", out_of_bounds.site, array ? array->name : "", out_of_bounds.text);
    }
    if (!array) { /* a thread's own variable, or an address that the processor refuses */
        look_at_accumulators(address, store, site);
        return;
    }
    Running &own = *running;
    own.access = site_in_kernel(site);
    own.access_at = own.step;
    done.accesses[own.number] += blockIdx.x == 0;
    if (blockIdx.x == 0 && !store) {
        count_read(*array, address);
    }
    const char *const does = store ? "writes" : "reads";
    if (bytes <= 16 && address % static_cast<unsigned>(bytes) != 0) {
        unaligned_site = site;
        if (is_first("unaligned", array, site)) {
            tell("unaligned", site, array->name,
                 formatted(
                     "thread %d %s %d bytes at once from %s, whose address is not a multiple of %d",
                     thread_in_block(), does, bytes, element_of(*array, address).c_str(), bytes));
        }
    }
    const uintptr_t last = address + static_cast<unsigned>(bytes) - 1;
    if (leaves_array(*array, address, last, does, site)) {
        return;
    }
    if (array->operand && store && array->operand->input) {
        tell("writes to an input", site, array->name,
             formatted("thread %d writes %s", thread_in_block(),
                       element_of(*array, address).c_str()));
    }
    if (!store && is_unset_C(*array, address)) {
        tell("uninitialized read", site, array->name,
             formatted("thread %d reads %s although beta is 0", thread_in_block(),
                       element_of(*array, address).c_str()));
    }
    if (array->given) {
        tell("scratch memory", site, array->name,
             formatted(
                 "thread %d %s %s after the launcher has given it back: give it back after the "
                 "last kernel",
                 thread_in_block(), store ? "writes" : "reads",
                 element_of(*array, address).c_str()));
        block_fail(status_error(STATUS_DEVICE, "scratch memory is used after scratch_free"));
    }
    if (is_large(array->operand)) {
        look_at_large(*array, address, bytes, store, site);
        return;
    }
    if (!array->seen.empty()) {
        for (uintptr_t word = address; word <= last; word += sizeof(float)) {
            uint32_t &seen = array->seen[(word - array->begin) / sizeof(float)];
            if (seen != blocks_begun) {
                seen = blocks_begun;
                has_progressed();
            }
        }
    }
    if (!array->words.empty()) {
        for (uintptr_t word = address / 4 * 4; word <= last; word += sizeof(float)) {
            const uintptr_t from = std::max(word, address), to = std::min(word + 3, last);
            const unsigned touched = (2u << (to - word)) - (1u << (from - word));
            Touch now = touch_now(touched, site);
            now.atomic = atomic;
            now.on_its_way = store && copying;
            look_at_word(array, from, now, store);
        }
    }
}

void look_at(const void *pointer, int bytes, bool store, const void *returns_to)
{
    if (watching) {
        running->latest = site_of(returns_to);
        look(pointer, bytes, store, false, present_site());
    }
}

/* ------------------------------------------------------------------ called by the CPU device */

/* mbarriers may be used by all threads at once, but only after their initialization. */
void sanitize_mbarrier(const void *barrier, bool begins)
{
    const auto address = reinterpret_cast<uintptr_t>(barrier);
    Array *const array = array_at(address);
    if (array && !array->operand && address + sizeof(uint64_t) <= array->end) {
        const Site site = present_site();
        running->access = site_in_kernel(site);
        running->access_at = running->step;
        Touch now = touch_now(0xf, site);
        now.mbarrier = true;
        now.atomic = !begins;
        look_at_word(array, address, now, begins);
    }
    uses_mbarriers = uses_mbarriers || !begins;
}

/* ------------------------------------------------------------------ called by the driver */

void memory_product_begins()
{
    arrays.clear();
    done = {};
    large = {};
    large_accesses = 0;
}

const LargeTouch &sanitizer_large_touch()
{
    return large;
}
