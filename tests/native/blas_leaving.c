/* Leaves the program's own BLAS by longjmp. Later products must be computed by the preloaded
 * library, at any depth of the stack. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *);
extern void (*at_each_sgemm)(void);
extern long own_sgemm_calls;

static jmp_buf back;
static float ones[100 * 100], result[100 * 100];

static void leave(void)
{
    longjmp(back, 1);
}

static void multiply(int n)
{
    const float one = 1, zero = 0;
    sgemm_("N", "N", &n, &n, &n, &one, ones, &n, ones, &n, &zero, result, &n);
}

static void multiply_deeper(int n, int depth)
{
    volatile char unused[1000];
    unused[0] = 0;
    if (depth > 0) {
        multiply_deeper(n, depth - 1);
    } else {
        multiply(n);
    }
    unused[1] = 0;
}

int main(void)
{
    for (int i = 0; i < 100 * 100; ++i) {
        ones[i] = 1;
    }
    for (volatile int depth = 0; depth < 10; depth += 3) {
        at_each_sgemm = leave;
        if (setjmp(back) == 0) {
            multiply_deeper(2, 5); /* too small to be computed here */
        }
        at_each_sgemm = NULL;
        memset(result, 0, sizeof result);
        multiply_deeper(100, depth);
        for (int i = 0; i < 100 * 100; ++i) {
            if (result[i] != 100) {
                puts("wrong");
                return 1;
            }
        }
    }
    printf("%ld\n", own_sgemm_calls);
    return 0;
}
