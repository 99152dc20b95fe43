/* How tests control and query the fake CUDA runtime, by ctypes. */
#ifndef SGEMM_FAKE_CUDA_H
#define SGEMM_FAKE_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Makes the call-th runtime call from now fail with this error (1: the next call; 0: none). A
 * sticky error also fails every later call on that device. */
void fake_cuda_fail(long call, int error);

/* The name of the call that failed since; empty if none did. */
const char *fake_cuda_failed_call(void);

/* Makes lost devices work again, as in a new process. */
void fake_cuda_revive(void);

/* Sets a device's memory size (default: the variable FAKE_CUDA_MEMORY, or 1 GiB). */
void fake_cuda_set_memory(int device, size_t bytes);

/* Sets whether pinning memory is refused. */
void fake_cuda_refuse_pinning(int refuse);

/* Sets whether devices have memory pools, which graphs allocate from. */
void fake_cuda_set_pools(int has_pools);

/* Sets whether devices can access each other's memory. */
void fake_cuda_set_peers(int reach);

/* Queueing a copy to this device from another takes this long, and starting it three times as
 * long. */
void fake_cuda_set_peer_delay(int device, int microseconds);

/* Bytes copied from the host to a device. */
size_t fake_cuda_from_host(int device);

/* Each launch uses this much scratch memory, like splitk's partial sums, and counters that must
 * be zero, like streamk's. */
void fake_cuda_set_scratch(size_t bytes);

/* Starts recording the runtime calls; then returns them, one per line. After the record of a
 * timing event comes the line "a timing event". */
void fake_cuda_note_calls(void);
const char *fake_cuda_noted_calls(void);

/* Forgets which kernels are loaded, as in a new process. */
void fake_cuda_forget_kernels(void);

/* Each queued operation starts after a delay of up to this long (FAKE_CUDA_DELAY_US). */
void fake_cuda_set_delay(int microseconds);

/* Sets those of the CPU device, which runs the kernels. */
void fake_cuda_set_tensor_cores(int major, int minor, int products, int bits);

/* True if the process has used the device, so that a context takes memory there. */
int fake_cuda_has_context(int device);

/* How often a device's clock was queried, which takes a driver half a millisecond. */
long fake_cuda_clock_questions(void);

/* How often peer access was to be enabled. */
long fake_cuda_peer_questions(void);

/* How often a launch got an operand that an earlier launch had prepared. */
long fake_cuda_prepared_again(void);

/* Allocated bytes of a device; pinned bytes of host memory; runtime calls and device allocations
 * so far; existing streams and events. */
size_t fake_cuda_live(int device);
size_t fake_cuda_pinned(void);
long fake_cuda_calls(void);
long fake_cuda_allocations(void);
long fake_cuda_handles(void);

/* Number of loaded libraries of machine code. */
long fake_cuda_libraries(void);

/* How often the host waited for a whole device. */
long fake_cuda_device_waits(void);

/* Queues a captured graph in a stream. */
void fake_cuda_replay(void *graph, void *stream);

/* How often the host waited for the newest event of a stream. */
long fake_cuda_waits_for_newest(void);

/* Allocates memory of a device, and frees it without a wait. */
void *fake_cuda_malloc(int device, size_t bytes);
void fake_cuda_free(void *memory);

/* Frees it after the work already queued in a stream, as PyTorch's allocator does. */
void fake_cuda_free_in_order(void *memory, int device, void *stream);

/* Host memory behind a device address; NULL if the bytes are not allocated. */
void *fake_cuda_content(const void *address, size_t bytes);

/* True if the bytes of host memory are within one pinned allocation. */
int fake_cuda_is_pinned(const void *address, size_t bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
