#include "resident.h"

static Block *dropped;

void block_share(Block *block)
{
    __atomic_add_fetch(&block->owners, 1, __ATOMIC_RELAXED);
}

void block_drop(Block *block)
{
    if (__atomic_sub_fetch(&block->owners, 1, __ATOMIC_ACQ_REL) == 0) {
        block_put_back(block);
    }
}

Block *block_take_dropped(void)
{
    return __atomic_exchange_n(&dropped, NULL, __ATOMIC_ACQ_REL);
}

void block_put_back(Block *block)
{
    block->next = __atomic_load_n(&dropped, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&dropped, &block->next, block, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
}
