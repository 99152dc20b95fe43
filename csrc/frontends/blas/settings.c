#define _GNU_SOURCE /* asprintf, sigset_t */
#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "say.h"
#include "signals.h"

static const char LIBRARY[] = "SGEMM_KERNELS_BLAS_LIBRARY",
                  LOGFILE[] = "SGEMM_KERNELS_BLAS_LOGFILE";

static Settings known;

/* The value of a variable; NULL if it is unset or empty. */
static const char *value_of(const char *variable)
{
    const char *const value = getenv(variable);
    return value && *value ? value : NULL;
}

/* Reads a number from 0 on, such as 1e9. False, and *flops is unchanged, if the text is none. */
static bool read_flops(const char *text, double *flops)
{
    char *end;
    const double number = strtod(text, &end);
    const bool valid = end != text && *end == '\0' && number >= 0; /* not NaN */
    *flops = valid ? number : *flops;
    return valid;
}

static char *folder_at_begin;

__attribute__((constructor)) static void note_folder(void)
{
    folder_at_begin = value_of(LIBRARY) || value_of(LOGFILE) ? getcwd(NULL, 0) : NULL;
}

/* A relative path as an absolute one: the program can have changed to another folder. */
static const char *from_begin(const char *path)
{
    char *whole;
    return path && *path != '/' && folder_at_begin &&
                   asprintf(&whole, "%s/%s", folder_at_begin, path) > 0
               ? whole
               : path;
}

static void read_all(void)
{
    const char *const variant = value_of("SGEMM_KERNELS_BLAS_VARIANT");
    const char *const min = value_of("SGEMM_KERNELS_BLAS_MIN");
    const char *const log = value_of("SGEMM_KERNELS_BLAS_LOG");
    const char *const library = value_of(LIBRARY);
    known.variant = variant ? variant : "auto";
    known.device = value_of("SGEMM_KERNELS_BLAS_DEVICE");
    known.on_cpu = known.device && strcmp(known.device, "cpu") == 0;
    known.has_min = min && read_flops(min, &known.min);
    /* The loader searches for a library without a slash in its folders. */
    known.library = library && strchr(library, '/') ? from_begin(library) : library;
    known.logfile = from_begin(value_of(LOGFILE));
    known.log = !log                        ? LOG_NOTHING
                : strcmp(log, "stats") == 0 ? LOG_STATS
                : strcmp(log, "calls") == 0 ? LOG_CALLS
                                            : LOG_NOTHING;
    if (min && !known.has_min) {
        say("ignoring SGEMM_KERNELS_BLAS_MIN='%s': set it to the least 2*M*N*K, such as 1e9", min);
    }
    if (log && !known.log) {
        say("ignoring SGEMM_KERNELS_BLAS_LOG='%s': set it to 'stats' or 'calls'", log);
    }
}

const Settings *settings(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static bool is_known;
    if (!__atomic_load_n(&is_known, __ATOMIC_ACQUIRE)) {
        Held before;
        signals_hold(&before);
        pthread_once(&once, read_all);
        signals_release(&before);
        __atomic_store_n(&is_known, true, __ATOMIC_RELEASE);
    }
    return &known;
}
