/* The counting build of the kernels: what cpu/grid.h and kernels/kernel.h say otherwise in it.
 *
 * The kernels are compiled once more, hardly optimised, so that each access of the source is one
 * access of the program; -fsanitize=thread has the compiler call a function at each of them,
 * and count.cpp has those functions in place of ThreadSanitizer's. build_backend/counting.py notes
 * the source line of every call. */
#ifndef SGEMM_COUNT_COUNTED_H
#define SGEMM_COUNT_COUNTED_H

/* Plain storage, since only one block is counted at a time, and by name, so that
 * build_backend/counting.py can note where each array lies. */
#undef __shared__
#define __shared__ static __attribute__((section(".bss.sgemm_counted_shared")))

/* Helpers keep frames of their own, so that an access in one is known by the kernel's line that
 * called it. */
#undef __forceinline__
#define __forceinline__ __attribute__((noinline, unused))

/* As run_grid, for what is being counted: by one OS thread, whatever is asked. */
Status count_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                  int cluster, int multiprocessors, const Interrupt *interrupt);
#define run_grid count_grid

/* Says what a part of dynamic shared memory is called, for the rest of the launch. */
void name_array(const char *name, const void *first, size_t bytes);

/* Says where kernels keep what they hand to each other. */
void name_scratch(const void *first, size_t bytes, bool zeros);

/* An asynchronous copy by a thread, both of whose sides are accesses. */
void count_copy(bool begins);
#define grid_copy_async(...) (count_copy(true), grid_copy_async(__VA_ARGS__), count_copy(false))

/* A thread's part of a product of tensor cores. */
void count_tensor_multiply_adds(int number);
#define grid_multiply_halves(...)                                                                  \
    (count_tensor_multiply_adds(16 * 8 * 16 / 32), grid_multiply_halves(__VA_ARGS__))

/* What the hardware moves by itself is counted in chunks of 16 bytes, 32 to a request, as if a warp's
 * threads had asked for them: a box, which one thread asks for, and a thread's part of what a product
 * of its warpgroup reads. */
void count_box(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int line);
void count_wgmma(int n, const void *a, const void *b, int swizzle);
#define grid_copy_box(to, map, barrier, x, y, line)                                                \
    (count_box(to, map, barrier, x, y, line), grid_copy_box(to, map, barrier, x, y, line))
#define grid_wgmma(d, n, a, b, swizzle, ...)                                                       \
    (count_wgmma(n, a, b, swizzle), grid_wgmma(d, n, a, b, swizzle, __VA_ARGS__))

/* A kernel that can be counted is found through a section that the linker collects. */
#define COUNTED_VARIANT(name, ...)                                                                 \
    static const Variant variant_##name = {#name, __VA_ARGS__, {launch_##name##_cpu, nullptr}};    \
    __attribute__((used, section("sgemm_counted"))) static const Variant *counted_##name =         \
        &variant_##name

#endif
