/* Overrides for the traced build of the kernels, which replace parts of emulator/grid.h
 * and gemm/kernel/kernel.h.
 *
 * The kernels are compiled a second time, almost without optimisation, so that each access in the
 * source is one access in the program. With -fsanitize=thread the compiler calls a function at each
 * access; access_trace.cpp defines these functions instead of ThreadSanitizer.
 * build_backend/annotation.py records the source line of every call. */
#ifndef SGEMM_ACCESS_TRACE_TRACED_H
#define SGEMM_ACCESS_TRACE_TRACED_H

/* Static storage suffices, since only one block is counted at a time. The section name lets
 * build_backend/annotation.py find each array. It is `used`: otherwise the compiler drops an array
 * that is only written, and its size is not counted. */
#undef __shared__
#define __shared__ static __attribute__((used, section(".bss.sgemm_traced_shared")))

/* Helpers are not inlined, so that an access in one is attributed to the kernel line that called
 * it. */
#undef __forceinline__
#define __forceinline__ __attribute__((noinline, unused))

/* Replaces run_grid while counting. Always runs in one OS thread. */
Status traced_grid(const AnyKernel &kernel, int64_t blocks, dim3 threads, size_t shared_bytes,
                   int cluster, int multiprocessors, const Interrupt *interrupt,
                   int64_t matrices = 1);
#define run_grid traced_grid

/* Names a range of dynamic shared memory for the rest of the launch. */
void name_array(const char *name, const void *first, size_t bytes);

/* Names all of it, for accesses outside those ranges. */
void name_dynamic_shared(const char *name, const void *first, size_t bytes);

/* Registers the memory that passes data from one kernel to the next. */
void name_scratch(const void *first, size_t bytes, bool zeros);

/* Another matrix replaces A, B or C for a launch: that is what the kernel accesses. */
void name_operand(const char *name, const Matrix &X, size_t bytes);

/* In a checking program: the launcher gives it back, and counters must be zero again. */
void sanitizer_scratch_freed(const void *first);

/* Called before and after an asynchronous copy by a thread: its load and its store are both
 * accesses. */
void traced_copy(bool begins);
#define grid_copy_async(...) (traced_copy(true), grid_copy_async(__VA_ARGS__), traced_copy(false))

/* A thread's share of a tensor core instruction. */
void traced_tensor_multiply_adds(int number);
#define grid_multiply_fp16(...)                                                                    \
    (traced_tensor_multiply_adds(16 * 8 * 16 / 32), grid_multiply_fp16(__VA_ARGS__))

/* Data that the hardware moves is counted in 16-byte chunks, 32 per request, as if the threads of a
 * warp accessed it. This applies to a TMA tile, which one thread requests, and to a thread's share
 * of the operands that wgmma reads there (`a` is NULL if A is in registers). */
void traced_tile(void *to, const TensorMap *map, uint64_t *barrier, int x, int y, int z, int line);
void traced_wgmma(int n, const void *a, const void *b, int swizzle);
#define grid_copy_tile(to, map, ...)                                                               \
    (traced_tile(to, map, __VA_ARGS__), grid_copy_tile(to, map, __VA_ARGS__))
#define grid_wgmma(d, n, a, b, swizzle, ...)                                                       \
    (traced_wgmma(n, a, b, swizzle), grid_wgmma(d, n, a, b, swizzle, __VA_ARGS__))
#define grid_wgmma_registers(d, n, a, b, swizzle, ...)                                             \
    (traced_wgmma(n, nullptr, b, swizzle), grid_wgmma_registers(d, n, a, b, swizzle, __VA_ARGS__))

/* trace_block finds the kernels through a section that the linker collects. */
#define TRACED_VARIANT(name, ...)                                                                  \
    static const Variant variant_##name = {#name, __VA_ARGS__, {launch_##name##_cpu, nullptr}};    \
    __attribute__((used, section("sgemm_traced"))) static const Variant *traced_variant_##name =   \
        &variant_##name

#endif
