/* Products in threads, and in a context, with the smallest stacks. Prints how many are right. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *);

enum { N = 100, SMALLEST = 16 * 1024 };
static float ones[N * N], result[N * N];
static ucontext_t begin, small;
static int right;

static void *multiply(void *unused)
{
    const float one = 1, zero = 0;
    const int n = N;
    sgemm_("N", "N", &n, &n, &n, &one, ones, &n, ones, &n, &zero, result, &n);
    right += result[N] == N && result[N * N - 1] == N;
    memset(result, 0, sizeof result);
    return unused;
}

static void multiply_in_context(void)
{
    multiply(NULL);
}

int main(void)
{
    for (int i = 0; i < N * N; ++i) {
        ones[i] = 1;
    }
    for (size_t bytes = SMALLEST; bytes <= 64 * SMALLEST; bytes *= 2) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, bytes);
        if (pthread_create(&thread, &attributes, multiply, NULL) != 0) {
            return 1;
        }
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
    }
    getcontext(&small);
    small.uc_stack.ss_size = SMALLEST;
    small.uc_stack.ss_sp = malloc(SMALLEST);
    small.uc_link = &begin;
    makecontext(&small, multiply_in_context, 0);
    swapcontext(&begin, &small);
    free(small.uc_stack.ss_sp);
    multiply(NULL);
    printf("%d\n", right);
    return 0;
}
