#define _GNU_SOURCE /* secure_getenv, strtod_l */
#include "kept_proofs.h"

#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../gemm/plan/proofs.h"

/* The first line. SGEMM_BUILD: the hash of csrc/ and the version of the package. */
static const char header[] = "sgemm_kernels " SGEMM_BUILD "\n";

/* The value of a variable; NULL if it is unset or empty. */
static const char *value_of(const char *variable)
{
    const char *const value = secure_getenv(variable);
    return value && *value ? value : NULL;
}

/* Opens the file in the folder that sgemm_kernels/_folder.py finds. NULL if there is none. */
static FILE *open_file(void)
{
    const char *const chosen = value_of("SGEMM_KERNELS_CACHE");
    const char *const caches = value_of("XDG_CACHE_HOME"), *const home = value_of("HOME");
    char path[4096];
    int length;
    if (chosen) {
        length = snprintf(path, sizeof path, "%s/proofs.txt", chosen);
    } else if (caches && *caches == '/') {
        length = snprintf(path, sizeof path, "%s/sgemm_kernels/proofs.txt", caches);
    } else if (home) {
        length = snprintf(path, sizeof path, "%s/.cache/sgemm_kernels/proofs.txt", home);
    } else {
        return NULL;
    }
    if (length >= (int)sizeof path) {
        return NULL;
    }
    const int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait */
    struct stat found;
    const bool usable = number >= 0 && fstat(number, &found) == 0 && S_ISREG(found.st_mode);
    FILE *const file = usable ? fdopen(number, "r") : NULL;
    if (number >= 0 && !file) {
        close(number);
    }
    return file;
}

/* Reads "8 0 200.5 10000.0 2026-01-02 NVIDIA A100-SXM4-40GB". In the locale C, numbers have a point
 * whatever the program's locale is. */
static bool read_proof(const char *line, locale_t c, Proof *proof)
{
    char rate[32], start[32], *rate_end, *start_end;
    if (sscanf(line, "%4d %4d %31s %31s %*s %255[^\n]", &proof->capability[0],
               &proof->capability[1], rate, start, proof->model) != 5) {
        return false;
    }
    proof->rate = strtod_l(rate, &rate_end, c);
    proof->start = strtod_l(start, &start_end, c);
    return *rate_end == '\0' && *start_end == '\0';
}

void kept_proofs_read(void)
{
    FILE *const file = open_file();
    if (!file) {
        return;
    }
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char line[512];
    Proof proof;
    if (c && fgets(line, sizeof line, file) && strcmp(line, header) == 0) {
        while (fgets(line, sizeof line, file)) {
            if (read_proof(line, c, &proof)) {
                proof_keep(&proof);
            }
        }
    }
    if (c) {
        freelocale(c);
    }
    fclose(file);
}

void kept_proofs_read_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, kept_proofs_read);
}
