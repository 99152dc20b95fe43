/* Prints on the program's standard error. */
#ifndef SGEMM_BLAS_SAY_H
#define SGEMM_BLAS_SAY_H

#include <stdbool.h>

/* Whether descriptor 2 is still the file that it was when the program began. A program can close it
 * and open a file of its own, which then gets this number. */
bool say_can(void);

/* Prints "sgemm_kernels: " and the text, if it can. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

#endif
