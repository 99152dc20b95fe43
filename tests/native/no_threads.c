/* Products of a process that can start only a few threads. Prints the codes, and how many elements
 * are wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "sgemm_kernels.h"

enum { N = 300 };
static int may_start;

/* Takes the place of the C library's function. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument)
{
    int (*const start)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(start))dlsym(RTLD_NEXT, "pthread_create");
    return may_start-- > 0 ? start(thread, attributes, body, argument) : EAGAIN;
}

int main(void)
{
    static float ones[N * N], result[N * N];
    const sgemm_kernels_matrix A = {ones, N, N, N, 1}, C = {result, N, N, N, 1};
    const sgemm_kernels_place place = {SGEMM_KERNELS_CPU, SGEMM_KERNELS_HOST_MEMORY, NULL};
    for (int i = 0; i < N * N; ++i) {
        ones[i] = 1;
    }
    for (int index = 0;; ++index) {
        const char *const variant = sgemm_kernels_variant(index);
        sgemm_kernels_status status;
        int wrong = 0;
        if (!variant) {
            break;
        }
        may_start = index % 3;
        if (sgemm_kernels_multiply(variant, &place, 1, &A, &A, 0, NULL, &C, &status) != 0) {
            printf("%s: %d %s\n", variant, status.code, status.message);
            continue;
        }
        for (int i = 0; i < N * N; ++i) {
            wrong += result[i] != N;
            result[i] = 0;
        }
        printf("%s: %d wrong\n", variant, wrong);
    }
    return 0;
}
