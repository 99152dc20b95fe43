/* The names of the launched kernels, for tests: a variant may leave a product to another kernel. */
#ifndef SGEMM_LAUNCHED_H
#define SGEMM_LAUNCHED_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LAUNCHED_MOST = 64 }; /* names; more are left out */

/* Adds a name, if names are recorded. The text must stay valid. Any thread may call it. */
void launched_add(const char *symbol);

/* Returns how many names were added since the last call, and copies them. `record` decides whether
 * names are recorded from now on. Must not run beside a launch. */
int launched_take(bool record, const char *names[LAUNCHED_MOST]);

#ifdef __cplusplus
}
#endif
#endif
