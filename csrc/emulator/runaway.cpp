#include "runaway.h"

#ifdef SGEMM_STOPPABLE

#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>

#include "multiprocessor.h"

/* The linker places them before and after the kernel's code. */
extern "C" void custom_kernel_begins();
extern "C" void custom_kernel_ends();

namespace {

constexpr int patience = 10;          /* polls */
constexpr int signal_number = SIGSYS; /* not blocked by threads of launches: threads.c */

pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
int stopping; /* launches */
struct sigaction before;

uintptr_t where(const void *context)
{
    const mcontext_t &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
#ifdef __x86_64__
    return static_cast<uintptr_t>(machine.gregs[REG_RIP]);
#else
    return machine.pc;
#endif
}

/* Leaves the stacks of the kernel's threads as they are, like at a barrier. */
void leave(int, siginfo_t *, void *context)
{
    const uintptr_t here = where(context);
    // Elsewhere a thread may be about to end, and have no multiprocessor any more.
    if (here >= reinterpret_cast<uintptr_t>(custom_kernel_begins) &&
        here < reinterpret_cast<uintptr_t>(custom_kernel_ends) && multiprocessor->grid->stop) {
        block_leave();
    }
}

/* Another library may have saved this handler and install it later, so it must stay loaded. */
void keep_library()
{
    Dl_info library;
    if (dladdr(reinterpret_cast<void *>(leave), &library)) {
        dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

/* The process has this handler between begin and end. Its old handler is restored. */
void begin()
{
    pthread_mutex_lock(&one_at_a_time);
    if (stopping++ == 0) {
        keep_library();
        struct sigaction action = {};
        action.sa_sigaction = leave;
        action.sa_flags = SA_SIGINFO | SA_RESTART;
        sigaction(signal_number, &action, &before);
    }
    pthread_mutex_unlock(&one_at_a_time);
}

void end()
{
    pthread_mutex_lock(&one_at_a_time);
    struct sigaction now;
    // Another kernel's library may have installed its own handler meanwhile.
    if (--stopping == 0 && sigaction(signal_number, nullptr, &now) == 0 &&
        now.sa_sigaction == leave) {
        sigaction(signal_number, &before, nullptr);
    }
    pthread_mutex_unlock(&one_at_a_time);
}

} /* namespace */

void runaways_poll(Runaways *runaways)
{
    if (++runaways->polls < patience) {
        return;
    }
    if (runaways->polls == patience) {
        begin();
    }
    for (int index = 0; index < runaways->count; ++index) {
        pthread_kill(runaways->os_threads[index], signal_number);
    }
}

void runaways_have_stopped(const Runaways *runaways)
{
    if (runaways->polls >= patience) {
        end();
    }
}

#endif
