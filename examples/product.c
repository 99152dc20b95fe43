/* Multiplies two matrices on the first usable GPU, or on the device named by the argument.
 *
 *     cc product.c $(sgemm-kernels config --cflags --libs) -o product
 *     ./product
 *     ./product cpu
 *
 * Also compiles as C++. */
#include <stdio.h>
#include <stdlib.h>

#include "sgemm_kernels.h"

enum { M = 300, N = 200, K = 100 };

int main(int count, char **arguments)
{
    sgemm_kernels_status status;
    sgemm_kernels_place place = {SGEMM_KERNELS_CPU, SGEMM_KERNELS_HOST_MEMORY, NULL};
    const char *const name = count > 1 ? arguments[1] : NULL;
    if (sgemm_kernels_find_device(name, &place.device, &status) != SGEMM_KERNELS_OK) {
        fprintf(stderr, "%s\n", status.message);
        return 1;
    }

    /* Any memory works. A GPU copies fastest from and to this one. */
    float *const memory =
        (float *)sgemm_kernels_allocate(place.device, (M * K + K * N + M * N) * sizeof(float));
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    const sgemm_kernels_matrix A = {memory, M, K, K, 1};
    const sgemm_kernels_matrix B = {A.data + M * K, K, N, N, 1};
    const sgemm_kernels_matrix C = {B.data + K * N, M, N, N, 1};
    for (int i = 0; i < M * K; ++i) {
        A.data[i] = (float)(i % 7);
    }
    for (int i = 0; i < K * N; ++i) {
        B.data[i] = (float)(i % 5);
    }

    /* C = 1 * A @ B + 0 * C */
    if (sgemm_kernels_multiply("auto", &place, 1.0f, &A, &B, 0.0f, NULL, &C, &status) !=
        SGEMM_KERNELS_OK) {
        fprintf(stderr, "%s\n", status.message);
        return 1;
    }
    float expected = 0.0f;
    for (int k = 0; k < K; ++k) {
        expected += A.data[(M - 1) * K + k] * B.data[k * N + N - 1];
    }
    printf("device %d: C[%d][%d] = %g, expected %g\n", place.device, M - 1, N - 1,
           (double)C.data[M * N - 1], (double)expected);
    const int right = C.data[M * N - 1] == expected;
    sgemm_kernels_free(memory);
    return right ? 0 : 1;
}
