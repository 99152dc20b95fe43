#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Settings known;

/* The value of a variable; NULL if it is unset or empty. */
static const char *value_of(const char *variable)
{
    const char *const value = getenv(variable);
    return value && *value ? value : NULL;
}

static void read_all(void)
{
    const char *const variant = value_of("SGEMM_KERNELS_BLAS_VARIANT");
    const char *const min = value_of("SGEMM_KERNELS_BLAS_MIN");
    const char *const log = value_of("SGEMM_KERNELS_BLAS_LOG");
    char *end = NULL;
    known.variant = variant ? variant : "auto";
    known.device = value_of("SGEMM_KERNELS_BLAS_DEVICE");
    known.on_cpu = known.device && strcmp(known.device, "cpu") == 0;
    known.min = min ? strtod(min, &end) : 0;
    known.has_min = min && *end == '\0';
    known.library = value_of("SGEMM_KERNELS_BLAS_LIBRARY");
    known.logfile = value_of("SGEMM_KERNELS_BLAS_LOGFILE");
    known.log = !log                        ? LOG_NOTHING
                : strcmp(log, "stats") == 0 ? LOG_STATS
                : strcmp(log, "calls") == 0 ? LOG_CALLS
                                            : LOG_NOTHING;
    if (min && !known.has_min) {
        fprintf(stderr,
                "sgemm_kernels: ignoring SGEMM_KERNELS_BLAS_MIN='%s': set it to the least 2*M*N*K, "
                "such as 1e9\n",
                min);
    }
    if (log && !known.log) {
        fprintf(stderr,
                "sgemm_kernels: ignoring SGEMM_KERNELS_BLAS_LOG='%s': set it to 'stats' or "
                "'calls'\n",
                log);
    }
}

const Settings *settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_all);
    return &known;
}
