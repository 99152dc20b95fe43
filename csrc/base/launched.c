#include "launched.h"

#include <stddef.h>

static bool recording;
static const char *launched[LAUNCHED_MOST];

void launched_add(const char *symbol)
{
    if (!__atomic_load_n(&recording, __ATOMIC_RELAXED)) {
        return;
    }
    for (int i = 0; i < LAUNCHED_MOST; ++i) {
        const char *found = NULL;
        if (__atomic_compare_exchange_n(&launched[i], &found, symbol, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            found == symbol) {
            return;
        }
    }
}

int launched_take(bool record, const char *names[LAUNCHED_MOST])
{
    int count = 0;
    for (int i = 0; i < LAUNCHED_MOST; ++i) {
        const char *const name = __atomic_exchange_n(&launched[i], NULL, __ATOMIC_RELAXED);
        if (name) {
            names[count++] = name;
        }
    }
    __atomic_store_n(&recording, record, __ATOMIC_RELAXED);
    return count;
}
