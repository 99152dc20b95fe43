/* The CPU device. */
#include "../device.h"
#include "../../base/threads.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../emulator/grid.h"
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

/* The processor's name from /proc/cpuinfo, or "CPU". */
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
    .runs_16bit = cpu_runs_16bit,
    .describe = describe,
    .multiply = cpu_multiply,
    .multiply_many = cpu_multiply_many,
    .pin = nullptr,
    .unpin = nullptr,
    .measure = nullptr,
    .measure_copies = nullptr,
    .give_idle_back = nullptr,
    .queue = nullptr,
    .queue_many = nullptr,
    .arrays = nullptr,
};
