/* The CPU as a device. */
#include "../core/device.h"
#include "../core/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "multiply.h"

static int count(Status *why)
{
    *why = status_ok();
    return 1;
}

static Status usable(int)
{
    return status_ok();
}

/* The processor's name as Linux gives it; machines that give none are "CPU". */
static void processor_name(char *name, size_t bytes)
{
    snprintf(name, bytes, "CPU");
    FILE *const file = fopen("/proc/cpuinfo", "r");
    if (!file) {
        return;
    }
    char line[256];
    while (fgets(line, sizeof line, file)) {
        const char *const colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            snprintf(name, bytes, "%.*s", static_cast<int>(strcspn(colon + 2, "\n")), colon + 2);
            break;
        }
    }
    fclose(file);
}

bool fuses_multiply_add()
{
#ifdef __x86_64__ /* whose kernels are compiled twice: ../kernels/launch.h */
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
    return FUSES_MULTIPLY_ADD;
#endif
}

Status modelled_multiprocessors(int *count)
{
    const char *const name = "SGEMM_KERNELS_CPU_MULTIPROCESSORS", *const text = getenv(name);
    *count = 0;
    if (!text || !*text) {
        return status_ok();
    }
    char *end;
    const long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > 4096) {
        return status_error(STATUS_INVALID, "%s is '%.40s': it must be a number from 1 to 4096",
                            name, text);
    }
    *count = static_cast<int>(number);
    return status_ok();
}

static Status describe(int, DeviceInfo *info)
{
    *info = {};
    processor_name(info->model, sizeof info->model);
    info->multiprocessors = usable_cores();
    info->fused_multiply_add = fuses_multiply_add();
    info->memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    return status_ok();
}

extern const Device cpu_device = {
    .name = "cpu",
    .count = count,
    .usable = usable,
    .compute_capability = nullptr,
    .describe = describe,
    .multiply = cpu_multiply,
    .pin = nullptr,
    .unpin = nullptr,
    .measure = nullptr,
    .measure_copies = nullptr,
    .give_idle_back = nullptr,
    .arrays = nullptr,
};
