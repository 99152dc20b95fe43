#include "large.h"

#include <stdio.h>
#include <sys/mman.h>

#include <initializer_list>

#include "../emulator/sanitizer/sanitizer.h"

/* Only in programs of plain kernels: plain.cpp. */
extern "C" __attribute__((weak)) bool plain_pads;

namespace {

/* Elements before and after an operand: an index of 32 bits that overflows stays inside. */
constexpr int64_t beside = (int64_t{1} << 31) + (1 << 16);
constexpr int64_t most_filled = 8192; /* up to this K, the last element of C is compared */

/* All elements are 0 but the last row of A or column of B. */
class LargeOperand {
  public:
    LargeOperand(const char *name, int64_t rows, int64_t cols, bool by_columns)
        : name_(name), by_columns_(by_columns)
    {
        bytes_ = static_cast<size_t>(rows * cols + 2 * beside) * sizeof(float);
        memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        float *const first = there() ? static_cast<float *>(memory_) + beside : nullptr;
        matrix = {first, rows, cols, by_columns ? 1 : cols, by_columns ? rows : 1};
    }
    ~LargeOperand()
    {
        if (there()) {
            munmap(memory_, bytes_);
        }
    }
    LargeOperand(const LargeOperand &) = delete;
    LargeOperand &operator=(const LargeOperand &) = delete;

    bool there() const
    {
        return memory_ != MAP_FAILED;
    }
    float &at(int64_t row, int64_t col) const
    {
        return matrix.data[row * matrix.row_stride + col * matrix.col_stride];
    }
    SanitizerOperand watched(bool input) const
    {
        return {name_, matrix, static_cast<char *>(memory_), bytes_, by_columns_, input, true};
    }

    Matrix matrix;

  private:
    const char *name_;
    bool by_columns_;
    void *memory_;
    size_t bytes_;
};

/* What the last block did. */
struct Outcome {
    bool ran, compared;
    float got, right;
    LargeTouch touch;
};

Outcome run_last_block(const int64_t (&sizes)[3], const int (&turned)[3],
                       Status (*launch)(const Sgemm &problem))
{
    const int64_t M = sizes[0], N = sizes[1], K = sizes[2];
    const LargeOperand A("A", M, K, turned[0]), B("B", K, N, turned[1]), C("C", M, N, turned[2]);
    Outcome outcome = {};
    if (!A.there() || !B.there() || !C.there()) {
        return outcome; /* the address space is limited */
    }
    outcome.compared = K <= most_filled;
    for (int64_t k = 0; outcome.compared && k < K; ++k) {
        A.at(M - 1, k) = static_cast<float>(k % 7 + 1);
        B.at(k, N - 1) = static_cast<float>(k % 5 + 1);
        outcome.right += A.at(M - 1, k) * B.at(k, N - 1);
    }
    sanitizer_operands({A.watched(true), B.watched(true), C.watched(false)},
                       static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K));
    sanitizer_last_block = true;
    const Status status = launch({A.matrix, B.matrix, C.matrix, 1.0f, 0.0f});
    sanitizer_last_block = false;
    outcome.ran = status.code == STATUS_OK;
    outcome.got = C.at(M - 1, N - 1);
    outcome.touch = sanitizer_large_touch();
    return outcome;
}

} // namespace

bool run_large(const char *text, Status (*launch)(const Sgemm &problem))
{
    long long s[9];
    int turned[3];
    if (sscanf(text, "large,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%d,%d,%d", &s[0], &s[1],
               &s[2], &s[3], &s[4], &s[5], &s[6], &s[7], &s[8], &turned[0], &turned[1],
               &turned[2]) != 12 ||
        !&plain_pads) {
        return false;
    }
    Outcome outcomes[3];
    for (const int which : {1, 2, 0}) { /* the large one last */
        outcomes[which] =
            run_last_block({s[3 * which], s[3 * which + 1], s[3 * which + 2]}, turned, launch);
    }
    const Outcome &large = outcomes[0];
    if (large.touch.cut) {
        return true; /* what it would have done is unknown */
    }
    const char *const names[] = {"A", "B", "C"};
    const char *const what[] = {"reads the last row of A", "reads the last column of B",
                                "stores the last element of C"};
    bool touched = true;
    for (int operand = 0; operand < 3; ++operand) {
        const bool expected = outcomes[1].touch.there[operand] && outcomes[2].touch.there[operand];
        const bool done = operand < 2 || large.ran; /* otherwise the block did not end */
        touched = touched && large.touch.there[operand];
        if (expected && done && !large.touch.there[operand]) {
            char words[120];
            snprintf(words, sizeof words,
                     "in small products the last block %s, and here it does not", what[operand]);
            sanitizer_print_at("out of bounds", outcomes[1].touch.site[operand], names[operand],
                               words);
            return true;
        }
    }
    const auto is_right = [](const Outcome &each) {
        return each.ran && each.compared && each.got == each.right;
    };
    if (touched && large.ran && large.compared && is_right(outcomes[1]) && is_right(outcomes[2]) &&
        !is_right(large)) {
        char words[120];
        snprintf(words, sizeof words, "the last element of C is %.9g, expected %.9g",
                 static_cast<double>(large.got), static_cast<double>(large.right));
        sanitizer_print_at("wrong values", large.touch.site[2], "C", words);
    }
    return true;
}
