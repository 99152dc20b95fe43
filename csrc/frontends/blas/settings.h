/* The environment variables SGEMM_KERNELS_BLAS_..., read at the first call. */
#ifndef SGEMM_BLAS_SETTINGS_H
#define SGEMM_BLAS_SETTINGS_H

#include <stdbool.h>

typedef enum { LOG_NOTHING, LOG_STATS, LOG_CALLS } LogLevel;

typedef struct {
    const char *variant; /* VARIANT: a name, "auto" by default */
    const char *device;  /* DEVICE: "cpu", "cuda" or "cuda:1"; NULL: the first usable GPU */
    bool on_cpu;         /* DEVICE is "cpu" */
    bool has_min;
    double min;          /* MIN: the least 2 * M * N * K to compute here; replaces the estimate */
    const char *library; /* LIBRARY: the program's own BLAS; NULL: found by itself */
    LogLevel log;        /* LOG: "stats" or "calls" */
    const char *logfile; /* LOGFILE: where to append; NULL: stderr */
} Settings;

const Settings *settings(void);

#endif
