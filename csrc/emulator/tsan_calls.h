/* The functions that the compiler calls at each access, as if for ThreadSanitizer. The file that
 * includes this one defines OBSERVE(address, bytes, stores, the caller). */
#include <string.h>

#define OBSERVED(bytes)                                                                            \
    void __tsan_read##bytes(void *address)                                                         \
    {                                                                                              \
        OBSERVE(address, bytes, false, __builtin_return_address(0));                               \
    }                                                                                              \
    void __tsan_write##bytes(void *address)                                                        \
    {                                                                                              \
        OBSERVE(address, bytes, true, __builtin_return_address(0));                                \
    }                                                                                              \
    void __tsan_unaligned_read##bytes(void *address)                                               \
    {                                                                                              \
        OBSERVE(address, bytes, false, __builtin_return_address(0));                               \
    }                                                                                              \
    void __tsan_unaligned_write##bytes(void *address)                                              \
    {                                                                                              \
        OBSERVE(address, bytes, true, __builtin_return_address(0));                                \
    }

extern "C" {
OBSERVED(1)
OBSERVED(2)
OBSERVED(4)
OBSERVED(8)
OBSERVED(16)

void __tsan_read_range(void *address, unsigned long bytes)
{
    OBSERVE(address, static_cast<int>(bytes), false, __builtin_return_address(0));
}
void __tsan_write_range(void *address, unsigned long bytes)
{
    OBSERVE(address, static_cast<int>(bytes), true, __builtin_return_address(0));
}
/* Replaces memcpy, since clang copies a float4 with it. */
void *traced_memcpy(void *to, const void *from, size_t bytes)
{
    OBSERVE(from, static_cast<int>(bytes), false, __builtin_return_address(0));
    OBSERVE(to, static_cast<int>(bytes), true, __builtin_return_address(0));
    return memcpy(to, from, bytes);
}
}
