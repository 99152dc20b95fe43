/* Checks the rungs of the ladder element by element, with no Python, so that sanitizers can watch.
 *
 *   driver cpu|cuda|cuda-exact SET...                     every rung
 *   driver cpu|cuda|cuda-exact --planted NAME SET...      one planted bug, which must fail
 *   driver --list                                         the planted bugs
 *
 * Each operand lies between guard bands of NaN, and lines that have padding have NaN there: what a
 * kernel reads there shows in its results, and what it writes there shows afterwards. With cuda-exact
 * a buffer ends where its operand ends and holds nothing in its padding, so that compute-sanitizer
 * can tell. */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../../csrc/cpu/grid.h"
#include "../../csrc/device.h"
extern "C" {
#include "../../csrc/catalog.h"
}
#ifdef SGEMM_ASAN
#include <sanitizer/asan_interface.h>
#endif

extern const Variant *const planted_bugs[]; /* planted.cu */

namespace {

DeviceKind kind;
Session session;
bool exact_buffers;
std::mt19937 randomness;

int64_t random_below(int64_t count)
{
    return static_cast<int64_t>(randomness() % static_cast<uint64_t>(count));
}

/* A value in [-1, 1), or an integer in [-8, 8], whose products and sums are exact. */
float random_value(bool integer)
{
    return integer ? static_cast<float>(random_below(17) - 8)
                   : static_cast<float>(static_cast<int32_t>(randomness())) * 0x1p-31f;
}

[[noreturn]] void give_up(const char *what)
{
    printf("driver: %s\n", what);
    exit(2);
}

void must(const Status &status)
{
    if (status.code != STATUS_OK) {
        give_up(status.message);
    }
}

/* ------------------------------------------------------------------ operands */

struct Layout {
    bool column_major;
    int padding; /* elements between two lines */
    int skew;    /* elements from an address that is a multiple of 16 */
};

float *place(const Matrix &X, int64_t row, int64_t col)
{
    return X.data + row * X.row_stride + col * X.col_stride;
}

Matrix matrix_of(float *data, int64_t rows, int64_t cols, bool column_major, int64_t ld)
{
    return {data, rows, cols, column_major ? 1 : ld, column_major ? ld : 1};
}

/* An operand in host memory, and where kernels see it. */
class Operand {
public:
    Operand(int64_t rows, int64_t cols, Layout layout)
    {
        const int64_t length = layout.column_major ? rows : cols;
        const int64_t lines = layout.column_major ? cols : rows;
        const int64_t ld = length + layout.padding;
        /* A kernel that forgets an edge writes no further than the tile's rest: within the guard. */
        const int64_t guard = exact_buffers ? 0 : 128 * ld + 128;
        const int64_t first = (guard + 3) / 4 * 4 + layout.skew;
        memory_.assign(static_cast<size_t>(first + lines * ld - layout.padding + guard), NAN);
        host = matrix_of(memory_.data() + first, rows, cols, layout.column_major, ld);
        seen = host;
        if (!device_kinds[kind]->uses_host_memory) {
            must(device_kinds[kind]->allocate(&session, elements(), 1, false, &buffer_));
            seen.data = buffer_.data + first;
        }
    }

    ~Operand()
    {
        if (buffer_.data) {
            device_kinds[kind]->release(&session, &buffer_);
        }
    }

    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;

    void fill(bool integers)
    {
        for (int64_t i = 0; i < host.rows; ++i) {
            for (int64_t j = 0; j < host.cols; ++j) {
                *::place(host, i, j) = random_value(integers);
            }
        }
    }

    /* From here on `before` is what the operand held. */
    void remember()
    {
        before_ = memory_;
        before = host;
        before.data = before_.data() + (host.data - memory_.data());
    }

    /* Gives the kernel what was remembered; without values, memory that no one has written. */
    void send(bool with_values)
    {
        memory_ = before_; /* of the same size: where it lies does not change */
        if (buffer_.data && !exact_buffers) {
            const Matrix all = whole();
            must(device_kinds[kind]->upload(&session, &buffer_, &all));
        } else if (buffer_.data && with_values) {
            must(device_kinds[kind]->upload(&session, &seen, &host));
        }
#ifdef SGEMM_ASAN
        ASAN_POISON_MEMORY_REGION(memory_.data(), memory_.size() * sizeof(float));
        const bool by_columns = host.col_stride != 1;
        for (int64_t line = 0; line < (by_columns ? host.cols : host.rows); ++line) {
            ASAN_UNPOISON_MEMORY_REGION(by_columns ? ::place(host, 0, line) : ::place(host, line, 0),
                                        static_cast<size_t>(by_columns ? host.rows : host.cols) * sizeof(float));
        }
#endif
    }

    void fetch()
    {
#ifdef SGEMM_ASAN
        ASAN_UNPOISON_MEMORY_REGION(memory_.data(), memory_.size() * sizeof(float));
#endif
        if (buffer_.data && !exact_buffers) {
            const Matrix all = whole();
            must(device_kinds[kind]->download(&session, &all, &buffer_));
        } else if (buffer_.data) {
            must(device_kinds[kind]->download(&session, &host, &seen));
        }
        if (buffer_.data) {
            must(device_kinds[kind]->finish(&session));
        }
    }

    /* Whether all that was remembered is still there, the operand's own elements aside if it is a
     * result. */
    bool untouched(bool is_result)
    {
        if (is_result) { /* only row-major ones are */
            for (int64_t i = 0; i < host.rows; ++i) {
                memcpy(::place(before, i, 0), ::place(host, i, 0), static_cast<size_t>(host.cols) * sizeof(float));
            }
        }
        return memcmp(memory_.data(), before_.data(), memory_.size() * sizeof(float)) == 0;
    }

    Matrix host, seen, before;

private:
    int64_t elements() const
    {
        return static_cast<int64_t>(memory_.size());
    }

    Matrix whole()
    {
        return {memory_.data(), elements(), 1, 1, 1};
    }

    std::vector<float> memory_, before_;
    Matrix buffer_ = {}; /* on a device with memory of its own */
};
