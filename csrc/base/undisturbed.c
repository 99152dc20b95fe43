#define _GNU_SOURCE /* sigset_t, NSIG */
#include "undisturbed.h"

#include <pthread.h>
#include <stddef.h>

/* Blocks all signals for the calling thread, except the signals of its own faults. abort() is none:
 * it unblocks its signal. */
static void block_signals(sigset_t *before)
{
    static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t index = 0; index < sizeof of_faults / sizeof *of_faults; ++index) {
        sigdelset(&blocked, of_faults[index]);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

void undisturbed_begin(Undisturbed *before)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancellation);
    block_signals(&before->signals);
}

void undisturbed_end(const Undisturbed *before)
{
    pthread_sigmask(SIG_SETMASK, &before->signals, NULL);
    pthread_setcancelstate(before->cancellation, NULL);
}

static bool has_default_action(int signal_number)
{
    struct sigaction action;
    return sigaction(signal_number, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == SIG_DFL;
}

bool undisturbed_lets_defaults_act(void *context)
{
    const Undisturbed *const before = context;
    sigset_t pending, by_default;
    sigpending(&pending);
    sigemptyset(&by_default);
    for (int number = 1; number < NSIG; ++number) {
        if (sigismember(&pending, number) == 1 && sigismember(&before->signals, number) == 0 &&
            has_default_action(number)) {
            sigaddset(&by_default, number);
        }
    }
    pthread_sigmask(SIG_UNBLOCK, &by_default, NULL);
    pthread_sigmask(SIG_BLOCK, &by_default, NULL);
    return false;
}
