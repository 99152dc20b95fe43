/* Checks the rungs element by element, without Python, so that sanitizers can watch.
 *
 *   driver cpu|cuda|cuda-exact SET...                  every rung, every tile size of splitk and
 *                                                      waves, streamk's divisions, the library's
 *                                                      kernels
 *   driver cpu|cuda|cuda-exact --without NAME SET...   the same but one rung; may be repeated
 *   driver cpu|cuda|cuda-exact --planted NAME SET...   one planted bug, which should fail
 *   driver cpu --rung NAME SET...                      one rung
 *   driver --list                                      the planted bugs
 *
 * A SET is one of
 *   few     some shapes, with A and B row-major and column-major
 *   edges   every combination of sizes around the edges of the kernel's tiles
 *   orders  like few, with blocks and threads started in 20 orders, which must not matter
 *   big     offsets beyond 2^31 in every operand, in memory that is mostly untouched
 *   apart   the cases of big whose rows or columns are that far apart
 * The last three need a checking build for the CPU.
 *
 * Operands are between guard bands of NaN, and have NaN between their rows or columns. If a kernel
 * reads there, its results show it; if it writes there, a comparison shows it. AddressSanitizer
 * sees both. With cuda-exact, a buffer ends where its operand ends, and nothing is written between
 * the rows or columns, so that compute-sanitizer sees each access there. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../../csrc/base/scratch.h"
#include "../../csrc/emulator/grid.h"
#include "../../csrc/gemm/plan/fused_plan.h"
#include "../../csrc/gemm/plan/plan.h"
#include "../../csrc/runtime/catalog.h"
#include "../../csrc/runtime/device.h"
#ifdef SGEMM_ASAN
#include <sanitizer/asan_interface.h>
#endif

extern const Variant *const planted_bugs[];     /* planted.cu */
extern const Variant *const tilings_of_waves[]; /* tilings.cu */
extern "C" const Variant variant_shallow;       /* shallow.cu */
/* ../../csrc/gemm/simt/portable.cu */
extern "C" const Variant variant_portable, variant_per_element;

#ifdef SGEMM_CUDA
/* device_memory.cu */
extern "C" float *device_memory_new(size_t bytes);
extern "C" void device_memory_delete(float *memory);
extern "C" Status device_memory_open(void **stream);
extern "C" Status device_memory_copy(const Matrix *to, const Matrix *from, bool to_host);
#else
Status device_memory_open(void **)
{
    return status_ok();
}
Status device_memory_copy(const Matrix *, const Matrix *, bool)
{
    return status_ok();
}
#endif

namespace {

DeviceKind kind;
const Device *device;
void *stream; /* of the device */
bool exact_buffers;

[[noreturn]] void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("driver: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    exit(2);
}

void must(const Status &status)
{
    if (status.code != STATUS_OK) {
        give_up("%s", status.message);
    }
}

/* Poisons memory for AddressSanitizer, or unpoisons it. The macros in its header do nothing
 * here, because this file is not instrumented. */
void forbid(const float *first, size_t elements)
{
#ifdef SGEMM_ASAN
    __asan_poison_memory_region(first, elements * sizeof(float));
#else
    (void)first, (void)elements;
#endif
}

void permit(const float *first, size_t elements)
{
#ifdef SGEMM_ASAN
    __asan_unpoison_memory_region(first, elements * sizeof(float));
#else
    (void)first, (void)elements;
#endif
}

/* ------------------------------------------------------------------ values and places */

std::mt19937 randomness;

template <typename T> T one_of(std::initializer_list<T> choices)
{
    return choices.begin()[randomness() % choices.size()];
}

/* A value in [-1, 1), or an integer in [-8, 8], whose sums of products are exact. */
float random_value(bool integer)
{
    return integer ? static_cast<float>(static_cast<int>(randomness() % 17) - 8)
                   : static_cast<float>(static_cast<int32_t>(randomness())) * 0x1p-31f;
}

struct Layout {
    bool column_major;
    int64_t padding; /* elements between two rows or columns */
    int skew;        /* elements from a 16-byte boundary */
};

float *place(const Matrix &X, int64_t row, int64_t col)
{
    return X.data + row * X.row_stride + col * X.col_stride;
}

Matrix matrix_at(float *data, int64_t rows, int64_t cols, const Layout &layout)
{
    const int64_t ld = (layout.column_major ? rows : cols) + layout.padding;
    return {data, rows, cols, layout.column_major ? 1 : ld, layout.column_major ? ld : 1};
}

void shrink(const Matrix &X, int64_t row, int64_t end_row, int64_t col, int64_t end_col)
{
    for (int64_t i = row; i < end_row && i < X.rows; ++i) {
        for (int64_t j = col; j < end_col && j < X.cols; ++j) {
            *place(X, i, j) *= 0x1p-30f;
        }
    }
}

void fill(const Matrix &X, bool integers)
{
    for (int64_t i = 0; i < X.rows; ++i) {
        for (int64_t j = 0; j < X.cols; ++j) {
            *place(X, i, j) = random_value(integers);
        }
    }
}

/* ------------------------------------------------------------------ operands */

/* An operand in host memory and, if the device has its own memory, a copy there. */
class Operand {
  public:
    Operand(int64_t rows, int64_t cols, const Layout &layout)
        : length_(layout.column_major ? rows : cols), lines_(layout.column_major ? cols : rows),
          ld_(length_ + layout.padding)
    {
        /* A kernel that ignores an edge writes at most one tile too far: within the guard band. */
        const int64_t guard = exact_buffers ? 0 : 128 * (ld_ + 4);
        const int64_t first = guard + layout.skew;
        const int64_t extent = lines_ > 0 ? lines_ * ld_ - layout.padding : 0;
        memory_.assign(static_cast<size_t>(first + extent + guard), NAN);
        host = matrix_at(memory_.data() + first, rows, cols, layout);
        seen = host;
#ifdef SGEMM_CUDA
        if (kind == DEVICE_CUDA) {
            buffer_ = whole();
            buffer_.data = device_memory_new(memory_.size() * sizeof(float));
            if (!buffer_.data && !memory_.empty()) {
                give_up("no memory on the GPU for an operand");
            }
            seen.data = buffer_.data + first;
        }
#endif
    }

    ~Operand()
    {
#ifdef SGEMM_CUDA
        if (buffer_.data) {
            device_memory_delete(buffer_.data);
        }
#endif
    }

    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    /* Saves the elements, to start each launch with and to compare results with. */
    void keep()
    {
        kept_ = memory_;
        kept = host;
        kept.data = kept_.data() + (host.data - memory_.data());
    }

    /* Sends the saved elements to the device; an exact buffer receives only inputs. */
    void send(bool is_input)
    {
        memcpy(memory_.data(), kept_.data(), bytes());
        if (buffer_.data && !exact_buffers) {
            const Matrix all = whole();
            must(device_memory_copy(&buffer_, &all, false));
        } else if (buffer_.data && is_input) {
            must(device_memory_copy(&seen, &host, false));
        }
        forbid(memory_.data(), memory_.size());
        for (int64_t line = 0; line < lines_; ++line) {
            permit(host.data + line * ld_, static_cast<size_t>(length_));
        }
    }

    /* Copies back the memory as the kernel left it. */
    void fetch()
    {
        permit(memory_.data(), memory_.size());
        if (buffer_.data) {
            const Matrix all = whole();
            must(exact_buffers ? device_memory_copy(&host, &seen, true)
                               : device_memory_copy(&all, &buffer_, true));
        }
    }

    bool unchanged() const
    {
        return memcmp(memory_.data(), kept_.data(), bytes()) == 0;
    }

    bool unchanged_around() const
    {
        std::vector<float> around = memory_;
        for (int64_t line = 0; line < lines_; ++line) {
            const ptrdiff_t first = host.data + line * ld_ - memory_.data();
            memcpy(&around[first], &kept_[first], static_cast<size_t>(length_) * sizeof(float));
        }
        return memcmp(around.data(), kept_.data(), bytes()) == 0;
    }

    bool same_bits(const std::vector<float> &other) const
    {
        return memcmp(memory_.data(), other.data(), bytes()) == 0;
    }

    const std::vector<float> &memory() const
    {
        return memory_;
    }

    Matrix host, seen, kept = {};

  private:
    size_t bytes() const
    {
        return memory_.size() * sizeof(float);
    }

    Matrix whole()
    {
        return {memory_.data(), static_cast<int64_t>(memory_.size()), 1, 1, 1};
    }

    int64_t length_, lines_, ld_;
    std::vector<float> memory_, kept_;
    Matrix buffer_ = {};
};

/* A matrix in address space that takes memory only where it is touched. It starts 2^31 elements
 * into the mapping, so that an offset that wrapped around misses the matrix but not the mapping. */
class Sparse {
  public:
    Sparse(int64_t rows, int64_t cols, const Layout &layout)
    {
        const Matrix shape = matrix_at(nullptr, rows, cols, layout);
        const size_t elements =
            static_cast<size_t>(rows * shape.row_stride + cols * shape.col_stride);
        constexpr size_t before = size_t{1} << 31;
        bytes_ = (before + elements) * sizeof(float);
        mapping_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapping_ == MAP_FAILED) {
            give_up("no address space of %.0f GB, which 'big' needs (and hardly any memory)",
                    bytes_ / 1e9);
        }
        madvise(mapping_, bytes_, MADV_NOHUGEPAGE);
        matrix = matrix_at(static_cast<float *>(mapping_) + before, rows, cols, layout);
    }

    ~Sparse()
    {
        munmap(mapping_, bytes_);
    }

    Sparse(const Sparse &) = delete;
    Sparse &operator=(const Sparse &) = delete;

    Matrix matrix;

  private:
    void *mapping_;
    size_t bytes_;
};

/* ------------------------------------------------------------------ one case */

/* The first rows of A are small in the first half of K, and the first columns of B in the second
 * half. All terms of their products are small, though no row or column is: too small for fp16
 * pairs. */
struct Small {
    int64_t rows, cols;
};

struct Case {
    int64_t M, N, K;
    Layout A, B, C;
    float alpha, beta;
    bool integers;
    Small small;
    bool special; /* A's last element is infinite, and B's is NaN */
    /* Computed as a batch of so many products: each has as many rows of A and C, and the same B. */
    int64_t batch = 1;
};

/* Results of a kernel's cases so far. */
struct Record {
    const Variant *variant;
    int cases;
    int complaints;
    double worst;      /* largest error as a share of its bound */
    bool is_plan;      /* many plans share a kernel: one layout pair per shape */
    int64_t batch = 1; /* of the next cases */
};

constexpr int most_complaints = 5; /* per kernel: then its remaining cases are skipped */

std::string described(const Layout &layout)
{
    return std::string(layout.column_major ? "columns" : "rows") + " +" +
           std::to_string(layout.padding) + " @" + std::to_string(layout.skew);
}

void complain(Record *record, const Case &c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s, M %lld N %lld K %lld, A %s, B %s, C %s, alpha %g beta %g%s: ",
           record->variant->name, static_cast<long long>(c.M), static_cast<long long>(c.N),
           static_cast<long long>(c.K), described(c.A).c_str(), described(c.B).c_str(),
           described(c.C).c_str(), c.alpha, c.beta, c.integers ? ", integers" : "");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    ++record->complaints;
}

Status launch(const Variant *variant, const Case &c, const Matrix &A, const Matrix &B,
              const Matrix &C)
{
    Sgemm problem = {A, B, C, c.alpha, c.beta, c.batch};
    for (Matrix *const stacked : {&problem.A, &problem.C}) {
        stacked->rows /= c.batch;
        stacked->batch_stride = stacked->rows * stacked->row_stride;
    }
    const Launch where = {0, stream, nullptr, {}, false};
    int64_t launched = 0;
    return variant_launch(variant, kind, &problem, &where, &launched);
}

/* Checks C from (row, col) on against float64. Integers must be exact; other results must be
 * within Higham's bound for any order of summation, plus underflow. `old` is C before the
 * launch. */
void check_values(Record *record, const Case &c, const Matrix &A, const Matrix &B, const Matrix &C,
                  const Matrix &old, int64_t row, int64_t col)
{
    const double n = static_cast<double>(c.K) + 3.0, u = 0x1p-24;
    const double gamma = n * u / (1.0 - n * u);
    const double underflow = n * 0x1p-149 * fmax(1.0, fabs(c.alpha));
    const auto cols = static_cast<size_t>(c.N - col);
    std::vector<double> of_B, sums(cols),
        sizes(cols); /* one row at a time, so that compilers vectorize */
    for (int64_t k = 0; k < c.K; ++k) {
        for (int64_t j = col; j < c.N; ++j) {
            of_B.push_back(static_cast<double>(*place(B, k, j)));
        }
    }
    for (int64_t i = row; i < c.M; ++i) {
        sums.assign(cols, 0.0);
        sizes.assign(cols, 0.0);
        for (int64_t k = 0; k < c.K; ++k) {
            const auto a = static_cast<double>(*place(A, i, k));
            for (size_t j = 0; j < cols; ++j) {
                const double product = a * of_B[static_cast<size_t>(k) * cols + j];
                sums[j] += product;
                sizes[j] += fabs(product);
            }
        }
        for (int64_t j = col; j < c.N; ++j) {
            const double sum = sums[static_cast<size_t>(j - col)];
            const double size = sizes[static_cast<size_t>(j - col)];
            double want = c.alpha * sum, bound = fabs(c.alpha) * size;
            if (c.beta != 0.0f) {
                want += static_cast<double>(c.beta) * static_cast<double>(*place(old, i, j));
                bound += fabs(static_cast<double>(c.beta) * static_cast<double>(*place(old, i, j)));
            }
            bound = c.integers ? 0.0 : gamma * bound + underflow;
            const double got = static_cast<double>(*place(C, i, j)), error = fabs(got - want);
            if (!isfinite(want)) {
                if (isnan(want) ? !isnan(got) : got != want) {
                    complain(record, c, "wrong value: C[%lld, %lld] is %g, not %g",
                             static_cast<long long>(i), static_cast<long long>(j), got, want);
                    return;
                }
                continue;
            }
            if (!(error <= bound)) { /* NaN included */
                complain(record, c, "wrong value: C[%lld, %lld] is %.9g, not %.9g +- %.2g",
                         static_cast<long long>(i), static_cast<long long>(j), got, want, bound);
                return;
            }
            if (bound > 0.0) {
                record->worst = fmax(record->worst, error / bound);
            }
        }
    }
}

void begin_threads_in_order(int order)
{
#ifdef SGEMM_CHECKED
    grid_check.order = order;
#else
    (void)order;
#endif
}

void check_case(Record *record, const Case &c, int orders)
{
    Operand A(c.M, c.K, c.A), B(c.K, c.N, c.B), C(c.M, c.N, c.C);
    fill(A.host, c.integers);
    fill(B.host, c.integers);
    shrink(A.host, 0, c.small.rows, 0, c.K / 2);
    shrink(B.host, c.K / 2, c.K, 0, c.small.cols);
    if (c.special) {
        *place(A.host, c.M - 1, c.K - 1) = INFINITY;
        *place(B.host, c.K - 1, c.N - 1) = NAN;
    }
    if (c.beta != 0.0f) { /* otherwise C is NaN throughout */
        fill(C.host, c.integers);
    }
    A.keep();
    B.keep();
    C.keep();
    std::vector<float> first;
    for (int order = 0; order < orders; ++order) {
        begin_threads_in_order(order);
        A.send(true);
        B.send(true);
        C.send(c.beta != 0.0f);
        const Status status = launch(record->variant, c, A.seen, B.seen, C.seen);
        A.fetch();
        B.fetch();
        C.fetch();
        if (status.code != STATUS_OK) {
            complain(record, c, "%s", status.message);
            break;
        }
        if (order == 0) {
            if (!A.unchanged() || !B.unchanged()) {
                complain(record, c, "an input was changed, or memory around it");
            }
            if (!C.unchanged_around()) {
                complain(record, c, "memory around C was changed");
            }
            check_values(record, c, A.kept, B.kept, C.host, C.kept, 0, 0);
            first = C.memory();
        } else if (!C.same_bits(first)) {
            complain(record, c,
                     "other bits with the threads and blocks started in order %d than in order 0",
                     order);
            break;
        }
    }
    begin_threads_in_order(0);
    ++record->cases;
}

/* ------------------------------------------------------------------ sets of cases */

Layout any_layout(const Variant *variant, bool column_major)
{
    const int skew = one_of({0, 0, 1, 2, 3});
    return variant->spec.contiguous ? Layout{false, 0, skew}
                                    : Layout{column_major, one_of<int64_t>({0, 3, 4}), skew};
}

/* Whether the kernel loads an operand as it is by TMA, and copies one that TMA cannot load. */
bool uses_tma(const Variant *variant)
{
    const std::string symbol = variant->spec.symbol ? variant->spec.symbol : "";
    return symbol == "tma" || symbol == "fused";
}

/* Each row or column starts on a 16-byte boundary, as TMA requires. */
Layout aligned_layout(bool column_major, int64_t rows, int64_t cols)
{
    const int64_t length = column_major ? rows : cols;
    return {column_major, (4 - length % 4) % 4 + one_of<int64_t>({0, 4}), 0};
}

/* Checks a shape with A and B row-major and column-major, or in one of the four pairs if layouts
 * do not matter, or once if all matrices are contiguous. All other choices are random, but the same
 * in each run. */
void check_shape(Record *record, int64_t M, int64_t N, int64_t K, int orders, Small small = {})
{
    const unsigned one_pair = randomness() % 4;
    for (unsigned pair = 0; pair < 4; ++pair) {
        const bool once = record->is_plan || record->variant->spec.contiguous || small.rows > 0;
        if (once && pair != one_pair) {
            continue;
        }
        const bool integers = one_of({false, true}) && small.rows == 0;
        const bool aligned = uses_tma(record->variant) && one_of({false, true, true, true});
        const Case c = {
            M,
            N,
            K,
            aligned ? aligned_layout(pair / 2, M, K) : any_layout(record->variant, pair / 2),
            aligned ? aligned_layout(pair % 2, K, N) : any_layout(record->variant, pair % 2),
            any_layout(record->variant, false),
            integers ? one_of({1.0f, -2.0f}) : one_of({1.0f, 0.7f, 0.0f}),
            integers ? one_of({0.0f, 3.0f}) : one_of({0.0f, 1.0f, -1.3f}),
            integers,
            small,
            K > 0 && small.rows == 0 && one_of({false, false, true}),
            record->batch};
        if (record->complaints < most_complaints) {
            check_case(record, c, orders);
        }
    }
}

/* ThreadSanitizer gets no long sums of `fused`: all lanes of a warp read A's tile, and one of them
 * releases it after the product of their registers. The checker does not see that the product
 * orders the lanes. */
#ifdef SGEMM_TSAN
constexpr bool finds_races = true;
#else
constexpr bool finds_races = false;
#endif

/* True for split-fp16 kernels. They use K chunks of 64, and leave sums shorter than 256 to
 * another rung. */
bool is_split_fp16(const Variant *variant)
{
    const std::string symbol = variant->spec.symbol ? variant->spec.symbol : "";
    return symbol == "mma" || symbol == "wgmma" || symbol == "waves" ||
           (symbol == "fused" && !finds_races);
}

int64_t step_of(const Variant *variant)
{
    return is_split_fp16(variant) ? 64 : variant->spec.block_tile[2];
}

/* If few results of a tile fail the check, they use slots; if more fail, they mark the tile. If
 * most fail early, the tile falls back: with copies in flight, and with many not yet issued. */
void check_small(Record *record, int64_t M, int64_t N, int orders)
{
    check_shape(record, M, N, 400, orders, {1, 3});
    check_shape(record, M, N, 400, orders, {5, 10});
    check_shape(record, M, N, 400, orders, {M, N});
    check_shape(record, M, N, 1000, orders, {M, N});
    for (const int64_t K : {1000, 1100, 1200}) { /* fused divides K */
        check_shape(record, 70, 40, K, orders);
    }
    check_shape(record, 1100, 16, 800, orders); /* and the last of nine tiles alone */
}

void check_few(Record *record, int orders)
{
    const int64_t BM = record->variant->spec.block_tile[0],
                  BN = record->variant->spec.block_tile[1];
    const int64_t BK = step_of(record->variant);
    check_shape(record, BM, BN, 2 * BK, orders);
    check_shape(record, BM + 1, BN - 1, 6 * BK + 3, orders); /* more than a ring of stages */
    record->batch = 3;
    check_shape(record, 3 * (BM + 1), BN - 1, 2 * BK + 3, orders);
    record->batch = 1;
    if (is_split_fp16(record->variant)) {
        check_small(record, BM + 1, BN - 1, orders);
    }
}

/* True if every third combination is enough; each pair of sizes still occurs. There are many
 * plans, split-fp16 sums are long, and the rungs named here use async's loop. */
bool is_thinned(const Record *record)
{
    const std::string name = record->variant->name;
    return record->is_plan || is_split_fp16(record->variant) || name == "raster" ||
           name == "splitk";
}

void check_edges(Record *record)
{
    const int64_t BM = record->variant->spec.block_tile[0],
                  BN = record->variant->spec.block_tile[1];
    const int64_t BK = step_of(record->variant);
    std::set<int64_t> depths = {0, 1, BK - 1, BK, BK + 1, 5 * BK + 3};
    if (is_split_fp16(record->variant)) {
        depths = {0, 255, 256, 257, 5 * BK + 3};
    }
    if (record->is_plan) { // three tiles are in flight
        depths = {0, BK - 1, BK + 1, 3 * BK, 3 * BK + 1, 5 * BK + 3};
    }
    for (const int64_t M : {int64_t{1}, BM - 2, BM - 1, BM, BM + 1}) {
        for (const int64_t N : {int64_t{1}, BN - 2, BN - 1, BN, BN + 1}) {
            for (const int64_t K : depths) {
                if (!is_thinned(record) || (M + N + K) % 3 == 0) {
                    check_shape(record, M, N, K, 1);
                }
            }
        }
    }
}

#ifdef SGEMM_CHECKED

void check_sparse(Record *record, const Case &c, int64_t first_row, int64_t first_col)
{
    const Sparse A(c.M, c.K, c.A), B(c.K, c.N, c.B), C(c.M, c.N, c.C);
    fill(A.matrix, false);
    fill(B.matrix, false);
    const Status status = launch(record->variant, c, A.matrix, B.matrix, C.matrix);
    if (status.code != STATUS_OK) {
        complain(record, c, "%s", status.message);
    } else {
        check_values(record, c, A.matrix, B.matrix, C.matrix, C.matrix, first_row, first_col);
    }
    ++record->cases;
}

void check_big(Record *record)
{
    const int64_t BM = record->variant->spec.block_tile[0],
                  BN = record->variant->spec.block_tile[1];

    /* A result with more than 2^31 elements: only its last block runs. */
    const int64_t side = 46401, last_row = (side - 1) / BM * BM, last_col = (side - 1) / BN * BN;
    grid_check.last_blocks = 1;
    check_sparse(record, {side, side, 3, {}, {}, {}, 1.0f, 0.0f, false, {}, false}, last_row,
                 last_col);
    grid_check.last_blocks = 0;
}

/* Every operand has such a large stride that no distance between rows or columns fits an int. */
void check_apart(Record *record)
{
    if (record->variant->spec.contiguous) {
        return;
    }
    const int64_t BM = record->variant->spec.block_tile[0],
                  BN = record->variant->spec.block_tile[1];
    const int64_t BK = record->variant->spec.block_tile[2];
    const int64_t padding = int64_t{1} << 31;
    for (const bool A_by_columns : {false, true}) {
        for (const bool B_by_columns : {false, true}) {
            const Layout A = {A_by_columns, padding, 0}, B = {B_by_columns, padding, 0};
            const Layout C = {false, padding, 0};
            check_sparse(record, {BM + 1, BN + 1, BK + 1, A, B, C, 1.0f, 0.0f, false, {}, false}, 0,
                         0);
        }
    }
}

#endif

/* ------------------------------------------------------------------ the command line */

void check_set(Record *record, const std::string &set)
{
    if (set == "few") {
        check_few(record, 1);
    } else if (set == "edges") {
        check_edges(record);
#ifdef SGEMM_CHECKED
    } else if (set == "orders") {
        check_few(record, 20);
    } else if (set == "big") {
        check_big(record);
        check_apart(record);
    } else if (set == "apart") {
        check_apart(record);
#endif
    } else {
        give_up("this build has no set of cases '%s'", set.c_str());
    }
}

/* Checks one kernel and prints one line about it. Returns true if it passed. */
bool passes(const Variant *variant, const std::vector<std::string> &sets, int number_of_plan = 0)
{
    Record record = {variant, 0, 0, 0.0, number_of_plan > 0};
    randomness.seed(static_cast<unsigned>(1 + number_of_plan)); /* each plan gets other cases */
    for (const std::string &set : sets) {
        check_set(&record, set);
    }
    printf("%-11s %5d cases, worst error %.2f of its bound: %s\n", variant->name, record.cases,
           record.worst, record.complaints ? "FAILED" : "passed");
    return record.complaints == 0;
}

/* A problem without operands, with B row-major or column-major. */
Sgemm problem_of(int64_t M, int64_t N, int64_t K, bool by_columns = false)
{
    Sgemm problem = {
        {nullptr, M, K, K, 1}, {nullptr, K, N, N, 1}, {nullptr, M, N, N, 1}, 1.0f, 0.0f};
    if (by_columns) {
        problem.B.row_stride = 1;
        problem.B.col_stride = K;
    }
    return problem;
}

Plan plan; /* used by launch_by_plan */

PlanDevice plan_device()
{
    const Launch where = {0, stream, nullptr, {}, false};
    PlanDevice device;
#ifdef SGEMM_CUDA
    if (kind == DEVICE_CUDA) {
        plan_device_cuda(&where, &device);
        return device;
    }
#endif
    plan_device_cpu(&where, &device);
    device.multiprocessors = std::max(device.multiprocessors, 1);
    return device;
}

/* If K is too short for the plan, drops split-K; if that is not supported either, uses the
 * fallback. */
Status launch_by_plan(const Sgemm *problem, const Launch *where)
{
    const PlanDevice device = plan_device();
    Plan supported = plan;
    if (!plan_supports(&supported, problem, &device)) {
        supported.splits = 1;
        supported.cluster = false;
    }
    if (!plan_supports(&supported, problem, &device)) {
        supported = plan_fallback();
    }
#ifdef SGEMM_CUDA
    if (kind == DEVICE_CUDA) {
        return launch_plan_cuda(problem, where, &supported);
    }
#endif
    return launch_plan_cpu(problem, where, &supported);
}

/* Checks launch_by_plan as if it were a kernel. */
bool plan_passes(std::string name, const int (&tile)[3], const std::vector<std::string> &sets,
                 int number)
{
    name += plan.transposed ? " transposed" : "";
    Variant kernel = {};
    kernel.name = name.c_str();
    kernel.spec.block_tile[0] = tile[plan.transposed ? 1 : 0];
    kernel.spec.block_tile[1] = tile[plan.transposed ? 0 : 1];
    kernel.spec.block_tile[2] = tile[2];
    kernel.launch[kind] = launch_by_plan;
    kernel.batch = BATCH_OF_LAUNCH;
    return passes(&kernel, sets, number);
}

/* Checks all kernels that simt chooses from, for C and for the transposed problem: each tile
 * configuration without split-K, with a cluster reduction, and with few and many split-K slices
 * in memory; GEMV in blocks of several widths; STREAMK; and DOT. */
bool plans_pass(const std::vector<std::string> &sets)
{
    int number = 0;
    bool all_passed = true;
#define TILE(BM, BN, BK, ...) {BM, BN, BK},
    const int tiles[][3] = {TILES(TILE)};
#undef TILE
    const PlanDevice device = plan_device();
    if (device.multiprocessors == 0) {
        printf("no plans on this device\n");
        return true;
    }
    const Sgemm long_sums = problem_of(256, 256, 1 << 20);
    for (int kernel = 0; kernel < TILE_COUNT; ++kernel) {
        const std::string name = "tiles:" + std::to_string(kernel);
        for (const bool transposed : {false, true}) {
            for (const int splits : {1, 2, 3, 4, 8, 33}) {
                for (const bool cluster : {false, true}) {
                    plan = {kernel, splits, cluster, transposed, false, 0, 0.0};
                    const bool power = (splits & (splits - 1)) == 0;
                    if ((cluster && (splits == 1 || !power)) || (!cluster && splits % 2 == 0) ||
                        (splits == 33 && kernel % 4 != 2) ||
                        !plan_supports(&plan, &long_sums, &device)) {
                        continue;
                    }
                    all_passed &= plan_passes(name + "x" + std::to_string(splits) +
                                                  (cluster ? " in a cluster" : ""),
                                              tiles[kernel], sets, ++number);
                }
            }
        }
    }
    /* A narrower block loads more of K at a time. */
    const int widths[][2] = {
        {1, GEMV_ROWS}, {2, 3 * GEMV_ROWS}, {8, GEMV_ROWS}, {128, GEMV_MOST_ROWS}};
    for (const auto &[width, rows] : widths) {
        for (const int splits : {1, 3}) {
            const bool transposed = (width < 8) == (splits > 1);
            const int loaded = (16 << GEMV_THREAD_BITS) / width;
            const int tile[] = {rows, std::max(width, 4), std::min(loaded, GEMV_STAGED(GEMV_ROWS))};
            plan = {GEMV, splits, false, transposed, false, width, 0.0};
            all_passed &=
                plan_passes("gemv:" + std::to_string(width) + "x" + std::to_string(splits), tile,
                            sets, ++number);
        }
    }
    plan = {STREAMK, 1, false, false, false, 0, 0.0};
    all_passed &= plan_passes("streamk", {128, 256, 32}, sets, ++number);
    /* With more results, fewer threads share each one; a single thread computes it if it can load
     * all of so short a K. */
    plan = {DOT, 1, false, false, false, 0, 0.0};
    const auto round_of = [](int64_t results, int64_t K, bool batch) {
        const DotPlan found = dot_plan(results, K, batch, batch);
        return DOT_IN_FLIGHT(found.by_lines) * found.sharers;
    };
    const int dots[][3] = {{4, 4, round_of(4 * 4, 1024, false)},
                           {64, 64, round_of(64 * 64, 1024, false)},
                           {64, 64, round_of(64 * 64, 1024, true)},
                           {64, 64, DOT_IN_FLIGHT(false) / 2}};
    for (const auto &tile : dots) {
        const std::string name = std::to_string(tile[0]) + "x" + std::to_string(tile[2]);
        all_passed &= plan_passes("dot:" + name, tile, sets, ++number);
    }
    return all_passed;
}

/* Checks streamk and tma on GPUs where blocks' shares end at tile edges and where they do not,
 * and streamk with half the tile depth. */
bool shares_pass(const std::vector<std::string> &sets)
{
    int number = 0;
    bool all_passed = true;
    for (const char *multiprocessors : {"3", "5"}) {
        setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", multiprocessors, 1);
        for (const char *name : {"streamk", "tma"}) {
            all_passed &= passes(catalog_find(name), sets, ++number);
        }
    }
    all_passed &= passes(&variant_shallow, sets, ++number);
    unsetenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS");
    return all_passed;
}

/* Checks that a split-fp16 product reuses an earlier call's prepared operands and does not split
 * again: if the operands have changed since, the result is still the first one. Prepares B alone,
 * or both. */
bool prepared_operands_are_reused(const Variant *variant, bool both)
{
    const Layout rows = {false, 0, 0};
    constexpr int64_t M = 130, N = 70, K = 300;
    Operand A(M, K, rows), B(K, N, rows), C(M, N, rows);
    Prepared prepared[2] = {};
    const Launch where = {0, stream, nullptr, {both ? &prepared[0] : nullptr, &prepared[1]}, false};
    bool right = true;
    for (const float value : {1.0f, 2.0f}) {
        for (const Operand *const X : {&A, &B}) {
            for (int64_t i = 0; i < X->host.rows; ++i) {
                std::fill_n(place(X->host, i, 0), X->host.cols, value);
            }
        }
        for (Operand *const X : {&A, &B, &C}) {
            X->keep();
            X->send(X != &C);
        }
        const Sgemm problem = {A.seen, B.seen, C.seen, 1.0f, 0.0f};
        right &= variant->launch[kind](&problem, &where).code == STATUS_OK;
        for (Operand *const X : {&A, &B, &C}) {
            X->fetch();
        }
        const float of_a = both ? 1.0f : value;
        right &= prepared[0].ready == both && prepared[1].ready &&
                 *place(C.host, M - 1, N - 1) == of_a * K;
    }
    for (const Prepared &each : prepared) {
        if (!each.memory) {
            continue;
        }
#ifdef SGEMM_CUDA
        if (kind == DEVICE_CUDA) {
            scratch_free(each.memory, &where);
            continue;
        }
#endif
#ifdef SGEMM_DEFERRED_ASYNC
        deferred_async_memory_freed(each.memory);
#endif
        free(each.memory);
    }
    printf("%-11s reuses prepared operands: %s\n", variant->name, right ? "passed" : "FAILED");
    return right;
}

/* Checks for which products `auto` uses tensor cores on a GPU with 132 multiprocessors. */
bool tensor_cores_are_chosen()
{
    const struct {
        int64_t M, N, K;
        bool chosen;
    } cases[] = {
        {4096, 4096, 4096, true},     {8192, 8192, 8192, true},     {16384, 16384, 16384, true},
        {4095, 4097, 4099, true},     {8192, 8192, 128, true},      {8192, 8192, 127, false},
        {128, 128, 128, false},       {256, 256, 256, false},       {8, 8192, 8192, false},
        {1, 1 << 24, 1 << 20, false}, {1 << 24, 1, 1 << 20, false}, {4096, 4096, 0, false},
        {8448, 32, 2816, false},      {8, 10240, 8192, false},      {272, 5320, 272, false},
    };
    const PlanDevice device = {132, CLUSTER_MOST_BLOCKS, 227 * 1024, &plan_fitted};
    const int hopper[] = {9, 0};
    const TensorCores cores = plan_tensor_cores("a GPU", hopper, &device);
    bool right = true;
    for (const auto &c : cases) {
        const Sgemm problem = problem_of(c.M, c.N, c.K);
        const double cycles = plan_choose(&problem, &device).cycles;
        right &= (plan_tensor_rung(cycles, &problem, &cores) != TENSOR_NONE) == c.chosen;
    }
    // Thin products. If K is no multiple of 4, the larger operand must be copied first.
    const struct {
        int64_t M, N, K;
        TensorRung rung;
    } thin[] = {
        {10072, 401, 7832, TENSOR_FUSED}, {442, 3738, 6228, TENSOR_FUSED},
        {119, 11036, 2276, TENSOR_FUSED}, {119, 11035, 2274, TENSOR_NONE},
        {348, 1197, 13008, TENSOR_FUSED}, {348, 1197, 13007, TENSOR_FUSED},
        {253, 1287, 2904, TENSOR_FUSED},  {253, 1287, 2903, TENSOR_FUSED},
    };
    for (const auto &c : thin) {
        const Sgemm problem = problem_of(c.M, c.N, c.K, true);
        const double cycles = plan_choose(&problem, &device).cycles;
        right &= plan_tensor_rung(cycles, &problem, &cores) == c.rung;
    }
    // Gradients of weights, with an A by columns; last, one whose C is stored in single floats.
    const struct {
        int64_t M, N, K;
        TensorRung rung;
    } gradients[] = {
        {768, 768, 6144, TENSOR_FUSED},   {768, 3072, 6144, TENSOR_FUSED},
        {512, 512, 6272, TENSOR_FUSED},   {384, 128, 100352, TENSOR_FUSED},
        {4096, 4096, 4096, TENSOR_WAVES}, {48900, 783, 158, TENSOR_NONE},
    };
    for (const auto &c : gradients) {
        Sgemm problem = problem_of(c.M, c.N, c.K);
        problem.A.row_stride = 1;
        problem.A.col_stride = c.M;
        const double cycles = plan_choose(&problem, &device).cycles;
        right &= plan_tensor_rung(cycles, &problem, &cores) == c.rung;
    }
    // Tiles that fused does not divide along K: all; all but those of the last wave; none.
    const struct {
        int64_t M, N, K, whole;
    } waves[] = {
        {16896, 128, 1024, 132}, {4096, 768, 768, 192},  {6144, 768, 768, 264},
        {4096, 768, 1536, 132},  {3072, 768, 4096, 132}, {768, 768, 6144, 0},
    };
    for (const auto &c : waves) {
        const Sgemm problem = problem_of(c.M, c.N, c.K);
        right &= plan_fused(&problem, false, device.multiprocessors).whole == c.whole;
    }
    printf("%-11s products for tensor cores: %s\n", "auto", right ? "passed" : "FAILED");
    return right;
}

/* Checks which products of simt the rung tma computes: the largest. */
bool largest_are_chosen()
{
    const PlanDevice device = {132, CLUSTER_MOST_BLOCKS, 227 * 1024, &plan_fitted};
    bool right = true;
    for (const int64_t size : {64, 512, 4096, 16384}) {
        const Sgemm problem = problem_of(size, size, size);
        right &= (plan_choose(&problem, &device).kernel == STREAMK) == (size >= 4096);
    }
    printf("%-11s products for the rung tma: %s\n", "simt", right ? "passed" : "FAILED");
    return right;
}

const Variant *find_planted(const std::string &name)
{
    for (const Variant *const *bug = planted_bugs; *bug; ++bug) {
        if (name == (*bug)->name) {
            return *bug;
        }
    }
    give_up("no bug called '%s' is planted", name.c_str());
}

void open_device(const std::string &name)
{
    exact_buffers = name == "cuda-exact";
    kind = name == "cpu" ? DEVICE_CPU : DEVICE_CUDA;
    device = device_kinds[kind];
    if (!device || (kind == DEVICE_CUDA && name != "cuda" && !exact_buffers)) {
        give_up("this build has no device '%s'", name.c_str());
    }
    Status why;
    if (device->count(&why) <= 0) {
        give_up("%s", why.message);
    }
    if (kind == DEVICE_CUDA) {
        must(device_memory_open(&stream));
    }
}

} // namespace

int main(int count, char **arguments)
{
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); /* a sanitizer may end the process at any time */
    std::vector<std::string> words(arguments + 1, arguments + count);
    if (words == std::vector<std::string>{"--list"}) {
        for (const Variant *const *bug = planted_bugs; *bug; ++bug) {
            printf("%-31s %s\n", (*bug)->name, (*bug)->summary);
        }
        return 0;
    }
    if (words.size() < 2) {
        give_up("what to check? See the head of driver.cpp");
    }
    open_device(words[0]);
    if (words[1] == "--planted" && words.size() > 3) {
        return passes(find_planted(words[2]), {words.begin() + 3, words.end()}) ? 0 : 1;
    }
    if (words[1] == "--rung" && words.size() > 3) {
        const Variant *const rung = catalog_find(words[2].c_str());
        return rung && passes(rung, {words.begin() + 3, words.end()}) ? 0 : 1;
    }
    std::set<std::string> left_out;
    while (words[1] == "--without" && words.size() > 3) {
        left_out.insert(words[2]);
        words.erase(words.begin() + 1, words.begin() + 3);
    }
    bool all_passed = true;
    for (const Variant *const *rung = catalog; *rung; ++rung) {
        if ((*rung)->file && !left_out.count((*rung)->name)) { /* not a library's kernel */
            /* These divide the product depending on the device; more cases follow below. */
            const std::string name = (*rung)->name;
            const bool is_plan = name == "waves" || name == "streamk" || name == "tma";
            all_passed &= passes(*rung, {words.begin() + 1, words.end()}, is_plan);
        }
    }
    for (const Variant *const inside : {&variant_portable, &variant_per_element}) {
        if (inside->launch[kind]) { /* simt chooses them where it has no plans */
            all_passed &= passes(inside, {words.begin() + 1, words.end()});
        }
    }
    /* Adding split-K partial sums touches all of C, which is too much memory for 'big'. */
    std::replace(words.begin(), words.end(), std::string("big"), std::string("apart"));
    /* Short sums run on splitk, whose last tile is in another place. */
    int number = 0;
    for (const Variant *const *tile_size = tilings_of_waves; *tile_size; ++tile_size) {
        all_passed &= passes(*tile_size, {words.begin() + 1, words.end()}, ++number);
    }
    all_passed &= prepared_operands_are_reused(catalog_find("mma"), true);
    all_passed &= prepared_operands_are_reused(catalog_find("waves"), false);
    all_passed &= finds_races || prepared_operands_are_reused(catalog_find("fused"), false);
    all_passed &= tensor_cores_are_chosen();
    all_passed &= largest_are_chosen();
    all_passed &= shares_pass({words.begin() + 1, words.end()});
    all_passed &= plans_pass({words.begin() + 1, words.end()});
    return all_passed ? 0 : 1;
}
