/* What of a GPU this process uses: memory, kept from call to call, and whether it still works. */
#ifndef SGEMM_CUDA_ALLOCATOR_H
#define SGEMM_CUDA_ALLOCATOR_H

#include <stddef.h>

#include "../core/status.h"

/* Uninitialised memory of the current device, which is device number `device`, aligned to 256 bytes;
 * NULL for no bytes. It goes back by device_give, when no queued work uses it any more. When the
 * GPU has too little, what is idle is given back to it first; then this is out of memory. */
Status device_take(int device, size_t bytes, void **memory);
void device_give(int device, void *memory);

/* Gives a device's idle memory back to it, scratch memory included. The device is current. */
void device_trim(int device);

/* Whether this process has memory of a device, in use or idle. */
bool device_is_used(int device);

/* Bytes of the current device that device_take could still find, all that is idle given back. */
Status device_available(int device, size_t *bytes);

/* The failure of a call, which `what` names as in "copying to the GPU". One that CUDA never forgets
 * is remembered as the device's end. */
Status device_failed(int device, const char *what, cudaError_t error);

/* The same, or success. */
Status device_checked(int device, const char *what, cudaError_t error);

/* Success, or how the device was lost. Cheap. */
Status device_works(int device);

#endif
