#include "tensor_core_model.h"

#include <atomic>

namespace {

/* A byte for each field, so that threads read all of them at once. */
constexpr unsigned packed(int major, int minor, int products, int bits)
{
    return static_cast<unsigned>(major << 24 | minor << 16 | products << 8 | bits);
}

std::atomic<unsigned> current{packed(9, 0, 16, 25)};

bool is_byte(int value)
{
    return value >= 0 && value < 128;
}

} /* namespace */

TensorCoreModel cpu_tensor_cores(void)
{
    const unsigned model = current.load(std::memory_order_relaxed);
    const auto field = [=](int shift) { return static_cast<int>(model >> shift & 255); };
    return {field(24), field(16), field(8), field(0)};
}

bool cpu_tensor_cores_set(const TensorCoreModel *m)
{
    if (!is_byte(m->major) || !is_byte(m->minor) || m->products < 1 || 16 % m->products != 0 ||
        m->bits < 1 || m->bits > 25) {
        return false;
    }
    current = packed(m->major, m->minor, m->products, m->bits);
    return true;
}
