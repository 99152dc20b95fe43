#define _GNU_SOURCE /* pthread_getattr_np */
#include "apart.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "signals.h"

enum { NEEDED = 256 * 1024 };

bool apart_is_needed(void)
{
    static _Thread_local uintptr_t first, end; /* of this thread's stack */
    pthread_attr_t attributes;
    if (end == 0 && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void *address;
        size_t bytes;
        pthread_attr_getstack(&attributes, &address, &bytes);
        pthread_attr_destroy(&attributes);
        first = (uintptr_t)address;
        end = first + bytes;
    }
    const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return here < first || here >= end || here - first < NEEDED;
}

void apart_run(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    Held before;
    signals_hold(&before); /* the new thread inherits the blocked signals */
    if (pthread_create(&thread, NULL, body, argument) == 0) {
        pthread_join(thread, NULL);
    } else {
        body(argument);
    }
    signals_release(&before);
}
