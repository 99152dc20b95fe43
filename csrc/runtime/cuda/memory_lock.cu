#include "memory_lock.h"

#include <pthread.h>
#include <time.h>

#include "../../base/cuda/failures.h"

namespace {

constexpr long poll_ns = 50'000'000; /* how often a waiting call checks for interrupts */

pthread_rwlock_t locks[most_devices];
pthread_once_t once = PTHREAD_ONCE_INIT;

void make_locks()
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    /* Otherwise overlapping shared holders could block an exclusive one forever. */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    for (pthread_rwlock_t &lock : locks) {
        pthread_rwlock_init(&lock, &attributes);
    }
    pthread_rwlockattr_destroy(&attributes);
}

} // namespace

void memory_lock_shared(int device)
{
    pthread_once(&once, make_locks);
    pthread_rwlock_rdlock(&locks[device]);
}

void memory_unlock(int device)
{
    pthread_rwlock_unlock(&locks[device]);
}

bool memory_lock_exclusive(int device, const Interrupt *interrupt)
{
    pthread_once(&once, make_locks);
    for (;;) {
        timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += poll_ns;
        until.tv_sec += until.tv_nsec / 1'000'000'000;
        until.tv_nsec %= 1'000'000'000;
        if (pthread_rwlock_timedwrlock(&locks[device], &until) == 0) {
            return true;
        }
        if (interrupt_raised(interrupt)) {
            return false;
        }
    }
}
