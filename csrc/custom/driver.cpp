/* Runs one kernel for a list of products, each access watched, and prints what is wrong.
 *
 *   driver SECONDS FILES CASE...      a CASE may also be that of large.h
 *
 * FILES are the kernel's own, with slashes between them. A CASE is M,N,K, A by columns, B by
 * columns, the shifts of A, B and C in floats, alpha, beta, and the letter of its values
 * (fill_special), and flags (Case). Each output line has fields separated
 * by tabs: a finding (the sanitizer), the start of a case, its counts, or the message of a failed
 * launch. A product that takes longer than SECONDS ends the program. The sanitizer or
 * deferred_async.cpp is linked with it. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "../base/custom_kernel.h"
#ifdef SGEMM_SANITIZED
#include "large.h"
#endif
#include "../emulator/sanitizer/sanitizer.h"

#ifdef SGEMM_TRACED
extern "C" const Variant *const __start_sgemm_traced[];
#define KERNEL __start_sgemm_traced[0]
#else
#define KERNEL &variant_custom
#endif
/* Only in programs of plain kernels: plain.cpp. */
extern "C" __attribute__((weak)) bool plain_pads;

namespace {

constexpr int64_t guard = 1 << 16; /* floats before and after an operand */
constexpr int64_t gap = 4;         /* floats between its rows or columns */

struct Case {
    int64_t M, N, K;
    int A_by_columns, B_by_columns, A_shift, B_shift, C_shift;
    float alpha, beta;
    char values;
    int contiguous;      /* for a plain kernel; 2: with C by columns */
    int pads;            /* see plain_host.h */
    int reads_C;         /* the launcher sets C first */
    int multiprocessors; /* that the CPU device models; 0: its default */
};

std::mt19937 randomness;

/* An operand in its own memory. All bytes outside its elements are NaN. */
class Operand {
  public:
    Operand(const char *name, int64_t rows, int64_t cols, bool by_columns, int shift,
            bool contiguous)
    {
        const int64_t lines = by_columns ? cols : rows, length = by_columns ? rows : cols;
        const int64_t ld = contiguous ? length : (length + gap + 3) / 4 * 4;
        bytes_ = static_cast<size_t>(2 * guard + lines * ld + 4) * sizeof(float);
        memory_ = static_cast<char *>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (memory_ == MAP_FAILED) {
            fprintf(stderr, "no memory for an operand\n");
            exit(2);
        }
        memset(memory_, 0xff, bytes_);
        float *const first = reinterpret_cast<float *>(memory_) + guard + shift;
        matrix = {first, rows, cols, by_columns ? 1 : ld, by_columns ? ld : 1};
        name_ = name;
        by_columns_ = by_columns;
    }
    ~Operand()
    {
        munmap(memory_, bytes_);
    }
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    float &at(int64_t row, int64_t col) const
    {
        return matrix.data[row * matrix.row_stride + col * matrix.col_stride];
    }
    void fill() const
    {
        for (int64_t row = 0; row < matrix.rows; ++row) {
            for (int64_t col = 0; col < matrix.cols; ++col) {
                at(row, col) = static_cast<float>(static_cast<int>(randomness() % 17) - 8);
            }
        }
    }
    /* With values between -1 and 1. */
    void fill_between() const
    {
        std::uniform_real_distribution<float> values(-1.0f, 1.0f);
        for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
            at(i / matrix.cols, i % matrix.cols) = values(randomness);
        }
    }
    void scale(float factor) const
    {
        for (int64_t row = 0; row < matrix.rows; ++row) {
            for (int64_t col = 0; col < matrix.cols; ++col) {
                at(row, col) *= factor;
            }
        }
    }
    void set(const std::vector<float> &values) const
    {
        for (int64_t i = 0; i < matrix.rows * matrix.cols; ++i) {
            at(i / matrix.cols, i % matrix.cols) = values[static_cast<size_t>(i)];
        }
    }
    SanitizerOperand watched(bool input, bool readable) const
    {
        return {name_, matrix, memory_, bytes_, by_columns_, input, readable};
    }

    Matrix matrix;

  private:
    const char *name_;
    char *memory_;
    size_t bytes_;
    bool by_columns_;
};

/* As check() does (custom/check.py): a NaN in A, the same beside a zero, an infinity in B, or tiny
 * and huge values; or values between -1 and 1. */
void fill_special(char values, const Operand &A, const Operand &B)
{
    if (A.matrix.rows * A.matrix.cols * B.matrix.cols == 0) {
        return;
    }
    const int64_t last = A.matrix.cols - 1;
    if (values == 'n' || values == 'z') {
        A.at(0, last) = NAN;
        for (int64_t j = 0; values == 'z' && j < B.matrix.cols; ++j) {
            B.at(last, j) = 0.0f;
        }
    } else if (values == 'i') {
        B.at(B.matrix.rows - 1, 0) = INFINITY;
    } else if (values == 'f') {
        A.fill_between();
        B.fill_between();
    } else if (values == 's') {
        A.scale(1e-30f);
        B.scale(1e30f);
    }
}

/* Row by row. */
std::vector<float> values_of(const Operand &X)
{
    std::vector<float> values;
    for (int64_t i = 0; i < X.matrix.rows * X.matrix.cols; ++i) {
        values.push_back(X.at(i / X.matrix.cols, i % X.matrix.cols));
    }
    return values;
}

bool is_close(double got, double right)
{
    if (!std::isfinite(right)) {
        return std::isnan(right) ? std::isnan(got) : !std::isfinite(got);
    }
    return fabs(got - right) <= 1e-4 * (1 + fabs(right));
}

/* Values are small integers, so the order of summation does not matter. Prints the first that is
 * wrong. */
bool is_right(const Case &c, const Operand &A, const Operand &B, const Operand &C,
              const std::vector<float> &old)
{
    for (int64_t i = 0; i < c.M; ++i) {
        for (int64_t j = 0; j < c.N; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < c.K; ++k) {
                sum += static_cast<double>(A.at(i, k)) * static_cast<double>(B.at(k, j));
            }
            const double before = static_cast<double>(old[static_cast<size_t>(i * c.N + j)]);
            const double right = c.alpha * sum + (c.beta == 0.0f ? 0.0 : c.beta * before);
            const auto got = static_cast<double>(C.at(i, j));
            if (!is_close(got, right)) {
                sanitizer_print_wrong(i, j, got, right);
                return false;
            }
        }
    }
    return true;
}

Status launch_sanitized(const Sgemm &problem)
{
    const Launch where = {0, nullptr, nullptr, {}, false};
    // A plain kernel's launcher copies operands, and C without a product is scaled on the host.
    const bool may_access = &plain_pads || problem.alpha == 0.0f;
    sanitizer_launcher(!may_access);
    const Status status = (KERNEL)->launch[DEVICE_CPU](&problem, &where);
    sanitizer_launcher(false);
    return status;
}

/* Including those of tiles that are partly beyond the edge. */
double multiply_adds_of(const Case &c)
{
    double product = 1;
    const int64_t sizes[] = {c.M, c.N, c.K};
    for (int i = 0; i < 3; ++i) {
        product *= static_cast<double>(sizes[i] + std::max((KERNEL)->spec.block_tile[i], 0));
    }
    return product;
}

/* Returns whether the result is right. */
bool run_case(const Case &c)
{
    const Operand A("A", c.M, c.K, c.A_by_columns, c.A_shift, c.contiguous);
    const Operand B("B", c.K, c.N, c.B_by_columns, c.B_shift, c.contiguous);
    const Operand C("C", c.M, c.N, c.contiguous == 2, c.C_shift, c.contiguous);
    A.fill();
    B.fill();
    fill_special(c.values, A, B);
    std::vector<float> old(static_cast<size_t>(c.M * c.N));
    if (c.beta != 0.0f) {
        C.fill();
        if (c.values == 'c') {
            C.at(0, c.N - 1) = NAN;
        }
        for (int64_t i = 0; i < c.M; ++i) {
            for (int64_t j = 0; j < c.N; ++j) {
                old[static_cast<size_t>(i * c.N + j)] = C.at(i, j);
            }
        }
    }
    sanitizer_operands({A.watched(true, true), B.watched(true, true),
                        C.watched(false, c.beta != 0.0f || c.reads_C)},
                       multiply_adds_of(c));
    const std::vector<float> before = values_of(C);
    const Sgemm problem = {A.matrix, B.matrix, C.matrix, c.alpha, c.beta};
    const Status status = launch_sanitized(problem);
    sanitizer_print_counts();
    if (status.code != STATUS_OK) {
        printf("failed\t%s\n", status.message);
        sanitizer_print_suspects(false);
        return false;
    }
    // A check of the results may notice the NaN of memory that was never written, and compute them
    // again.
    const bool right = is_right(c, A, B, C, old);
    if (right && (c.values != '-' || !sanitizer_has_new_suspects())) {
        return true;
    }
    const std::vector<float> result = values_of(C);
    C.set(before);
    // Read-ahead of values that nothing uses is harmless: then other values give the same result.
    if (sanitizer_fill_with_zeros(true)) {
        launch_sanitized(problem);
        if (memcmp(values_of(C).data(), result.data(), result.size() * sizeof(float)) == 0) {
            sanitizer_forget_suspects();
        }
        sanitizer_fill_with_zeros(false);
    }
    sanitizer_print_suspects(true);
    return right;
}

bool done;
unsigned seconds; /* the time limit of a product */

void tell_exit()
{
    if (!done) {
        sanitizer_print_place("ended its process", "the kernel calls exit()");
        _exit(3);
    }
}

[[noreturn]] void stop(int number, siginfo_t *about, void *)
{
    char text[60];
    switch (number) {
    case SIGALRM:
        snprintf(text, sizeof text, "the kernel was here after %u s", seconds);
        sanitizer_print_place("not finished", text);
        break;
    case SIGFPE:
        sanitizer_print_place("ended its process", "the processor refuses this: a division by 0");
        break;
    case SIGABRT:
        sanitizer_print_place("ended its process",
                              "an exception, an assertion or abort() ended it");
        break;
    case SIGILL:
    case SIGTRAP:
        sanitizer_print_place(
            "ended its process",
            "the compiler found this to be undefined, as an access through NULL is");
        break;
    default:
        const FaultyAccess access = sanitizer_meaning_of(about->si_addr);
        sanitizer_print_place(access.kind, access.text);
    }
    _exit(3);
}

} // namespace

int main(int count, char **arguments)
{
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    for (const int number : {SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, SIGTRAP}) {
        struct sigaction action = {};
        action.sa_sigaction = stop;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK; // sanitizer.cpp sets the stack
        sigaction(number, &action, nullptr);
    }
    atexit(tell_exit);
    seconds = count > 1 ? static_cast<unsigned>(atoi(arguments[1])) : 0;
    sanitizer_files(count > 2 ? arguments[2] : "");
    for (int index = 3; index < count; ++index) {
#ifdef SGEMM_SANITIZED
        if (strncmp(arguments[index], "large,", 6) == 0) {
            printf("case\t%s\n", arguments[index]);
            alarm(seconds);
            if (!run_large(arguments[index], launch_sanitized)) {
                return 2;
            }
            alarm(0);
            continue;
        }
#endif
        Case c;
        long long M, N, K;
        if (sscanf(arguments[index], "%lld,%lld,%lld,%d,%d,%d,%d,%d,%f,%f,%c,%d,%d,%d,%d", &M, &N,
                   &K, &c.A_by_columns, &c.B_by_columns, &c.A_shift, &c.B_shift, &c.C_shift,
                   &c.alpha, &c.beta, &c.values, &c.contiguous, &c.pads, &c.reads_C,
                   &c.multiprocessors) != 15) {
            fprintf(stderr, "'%s' is no case\n", arguments[index]);
            return 2;
        }
        if (c.alpha == 0.0f || K == 0) { /* product_as_read in ../runtime/product.c */
            c.alpha = 0.0f;
            K = 0;
        }
        c.M = M;
        c.N = N;
        c.K = K;
        if (&plain_pads) {
            plain_pads = c.pads;
        }
        if (c.multiprocessors) {
            setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", std::to_string(c.multiprocessors).c_str(),
                   1);
        } else {
            unsetenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS");
        }
        printf("case\t%s\n", arguments[index]);
        alarm(seconds);
        for (int order = 0; sanitizer_orders[order]; ++order) {
            sanitizer_order(order);
            if (!run_case(c)) {
                break;
            }
        }
        alarm(0);
    }
    done = true;
    printf("done\n");
    return 0;
}
