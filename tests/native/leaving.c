/* Leaves products by longjmp from the handlers of timers, and by pthread_cancel. The next product
 * must be right. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "sgemm_kernels.h"

enum { MOST = 300, ROUNDS = 16 };

static sigjmp_buf back;
static volatile sig_atomic_t handled;

static void leave(int number)
{
    (void)number;
    ++handled;
    siglongjmp(back, 1);
}

static float ones[MOST * MOST], result[MOST * MOST];

static int multiply(int n)
{
    const sgemm_kernels_matrix A = {ones, n, n, n, 1}, C = {result, n, n, n, 1};
    const sgemm_kernels_place place = {SGEMM_KERNELS_CPU, SGEMM_KERNELS_HOST_MEMORY, NULL};
    return sgemm_kernels_multiply("tile2d", &place, 1, &A, &A, 0, NULL, &C, NULL);
}

static int wrong_elements(int n)
{
    int wrong = 0;
    memset(result, 0, sizeof result);
    wrong += multiply(n) != SGEMM_KERNELS_OK;
    for (int i = 0; i < n * n; ++i) {
        wrong += result[i] != (float)n;
    }
    return wrong;
}

static void *multiply_forever(void *size)
{
    for (;;) {
        multiply(*(const int *)size);
        pthread_testcancel();
    }
    return NULL;
}

static int wrong_after_cancels(int *sizes)
{
    int wrong = 0;
    for (int round = 0; round < ROUNDS; ++round) {
        pthread_t thread;
        pthread_create(&thread, NULL, multiply_forever, &sizes[round % 2]);
        usleep((useconds_t)(1000 * round));
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        wrong += wrong_elements(sizes[round % 2]);
    }
    return wrong;
}

int main(void)
{
    const int signals[] = {SIGALRM, SIGVTALRM}, timers[] = {ITIMER_REAL, ITIMER_VIRTUAL};
    int sizes[] = {20, MOST}; /* in this thread, and in several */
    volatile int wrong = 0;
    for (int i = 0; i < MOST * MOST; ++i) {
        ones[i] = 1;
    }
    for (int which = 0; which < 2; ++which) {
        struct sigaction action = {.sa_handler = leave};
        sigaction(signals[which], &action, NULL);
        for (volatile int round = 0; round < ROUNDS; ++round) {
            const int n = sizes[round % 2];
            const struct itimerval timer = {.it_value = {0, 100 + 3000 * round}};
            if (sigsetjmp(back, 1) == 0) {
                setitimer(timers[which], &timer, NULL);
                for (;;) {
                    multiply(n);
                }
            }
            wrong += wrong_elements(n);
        }
    }
    wrong += wrong_after_cancels(sizes);
    printf("%d signals, %d wrong\n", (int)handled, wrong);
    return 0;
}
