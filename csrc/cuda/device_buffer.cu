#include "device_arrays.h"

static DeviceBuffer *dropped;

void buffer_share(DeviceBuffer *block)
{
    __atomic_add_fetch(&block->owners, 1, __ATOMIC_RELAXED);
}

void buffer_drop(DeviceBuffer *block)
{
    if (__atomic_sub_fetch(&block->owners, 1, __ATOMIC_ACQ_REL) == 0) {
        buffer_put_back(block);
    }
}

DeviceBuffer *buffer_take_dropped(void)
{
    return __atomic_exchange_n(&dropped, NULL, __ATOMIC_ACQ_REL);
}

void buffer_put_back(DeviceBuffer *block)
{
    block->next = __atomic_load_n(&dropped, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&dropped, &block->next, block, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}
