/* What tests ask of the fake CUDA runtime and tell it, by ctypes. */
#ifndef SGEMM_FAKE_CUDA_H
#define SGEMM_FAKE_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The runtime call that comes call-th from now, 1 the next, fails with this error; one that CUDA
 * never forgets fails every later call on that device too. 0: none fails. */
void fake_cuda_fail(long call, int error);

/* Which call failed so since; empty if none did. */
const char *fake_cuda_failed_call(void);

/* Lost devices work again, as if in a new process. */
void fake_cuda_revive(void);

/* How much memory a device has (at first the variable FAKE_CUDA_MEMORY, or 1 GiB). */
void fake_cuda_set_memory(int device, size_t bytes);

/* Whether to refuse to pin memory. */
void fake_cuda_refuse_pinning(int refuse);

/* Whether devices have memory pools, which the memory of graphs is of. */
void fake_cuda_set_pools(int has_pools);

/* Whether devices reach each other's memory. */
void fake_cuda_set_peers(int reach);

/* To queue a copy to a device from another takes so long, and three times as long to begin with it. */
void fake_cuda_set_peer_delay(int device, int microseconds);

/* Bytes that copies have brought to a device from the host. */
size_t fake_cuda_from_host(int device);

/* Each launch takes so much scratch memory, as splitk does for the parts of its results, and counters beside it,
 * as streamk does, which have to be zero. */
void fake_cuda_set_scratch(size_t bytes);

/* Begins a list of the calls that are made from now on; and that list, a line each. The line "a timing
 * event" follows the record of one. */
void fake_cuda_note_calls(void);
const char *fake_cuda_noted_calls(void);

/* No kernel's code is loaded, as in a new process. */
void fake_cuda_forget_kernels(void);

/* Each queued operation begins after up to so many microseconds (FAKE_CUDA_DELAY_US). */
void fake_cuda_set_delay(int microseconds);

/* Whether the process has used a device, so that it has memory there that is nobody's. */
int fake_cuda_has_context(int device);

/* How often a device was asked for its clock, for which a driver takes half a millisecond. */
long fake_cuda_clock_questions(void);

/* How often a device was to reach another's memory. */
long fake_cuda_peer_questions(void);

/* How often a launch was given an operand that an earlier one had made something of. */
long fake_cuda_prepared_again(void);

/* Bytes of a device that are allocated; bytes of host memory that are pinned; runtime calls and
 * allocations of device memory so far; streams and events that exist. */
size_t fake_cuda_live(int device);
size_t fake_cuda_pinned(void);
long fake_cuda_calls(void);
long fake_cuda_allocations(void);
long fake_cuda_handles(void);

/* Libraries of machine code that are loaded. */
long fake_cuda_libraries(void);

/* How often the host has waited for a whole device. */
long fake_cuda_device_waits(void);

/* Queues in a stream what a graph has captured. */
void fake_cuda_replay(void *graph, void *stream);

/* How often the host has waited for an event after which no other was recorded in its stream. */
long fake_cuda_waits_for_newest(void);

/* Memory of a device, and its end, which waits for nothing. */
void *fake_cuda_malloc(int device, size_t bytes);
void fake_cuda_free(void *memory);

/* Where the bytes behind a device address really are; NULL if they are not allocated. */
void *fake_cuda_content(const void *address, size_t bytes);

/* Whether bytes of host memory are all in one piece that is pinned. */
int fake_cuda_is_pinned(const void *address, size_t bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
