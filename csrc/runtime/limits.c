#define _GNU_SOURCE /* PATH_MAX */
#include "limits.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/threads.h"
#include "pinned.h"

enum { MOST_THREADS = 256, PINNED_SHARE = 2 }; /* pinned memory: 1 / PINNED_SHARE */

/* The least limit that was found so far; 0 if none was. */
typedef struct {
    int64_t least;
} Found;

typedef void Visit(const char *folder, int version, Found *found);

/* Reads a line of a file in a folder. False if there is none. */
static bool read_line(const char *folder, const char *name, char *line, int bytes)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return false;
    }
    FILE *const file = fopen(path, "re");
    const bool read = file && fgets(line, bytes, file);
    if (file) {
        fclose(file);
    }
    return read;
}

static void note(Found *found, int64_t limit)
{
    found->least = found->least == 0 || limit < found->least ? limit : found->least;
}

/* A number from 0 in a file. -1 if it has none, such as "max" or "-1" for no limit. */
static int64_t number_in(const char *folder, const char *name)
{
    char line[64];
    long long number;
    return read_line(folder, name, line, sizeof line) && sscanf(line, "%lld", &number) == 1 &&
                   number >= 0
               ? number
               : -1;
}

static void visit_cpu(const char *folder, int version, Found *found)
{
    char line[64];
    long long quota = -1, period = 0;
    if (version == 2) {
        if (!read_line(folder, "cpu.max", line, sizeof line) ||
            sscanf(line, "%lld %lld", &quota, &period) != 2) {
            return;
        }
    } else {
        quota = number_in(folder, "cpu.cfs_quota_us");
        period = number_in(folder, "cpu.cfs_period_us");
    }
    if (quota >= 0 && period > 0) {
        const int64_t cores = (quota + period - 1) / period;
        note(found, cores > 1 ? cores : 1);
    }
}

static void visit_memory(const char *folder, int version, Found *found)
{
    const int64_t limit = number_in(folder, version == 2 ? "memory.max" : "memory.limit_in_bytes");
    if (limit >= 0) {
        note(found, limit);
    }
}

/* Visits a cgroup's folder and its parents up to the mount point. A folder need not exist: inside a
 * container, a path can be the host's while only the mount point is visible. */
static void visit_up(const char *mount, const char *group, int version, Visit *visit, Found *found)
{
    char folder[PATH_MAX];
    while (*group == '/') {
        ++group;
    }
    if (snprintf(folder, sizeof folder, "%s/%s", mount, group) >= (int)sizeof folder) {
        return;
    }
    for (char *end; (end = strrchr(folder, '/')) && (size_t)(end - folder) >= strlen(mount);
         *end = '\0') {
        visit(folder, version, found);
    }
    visit(mount, version, found);
}

static bool names(const char *controllers, const char *controller)
{
    const size_t length = strlen(controller);
    for (const char *at = controllers; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == length && strncmp(at, controller, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Visits the folders of this process's cgroups. For version 1, only the hierarchy of the
 * controller. A line of /proc/self/cgroup is "number:controllers:path". */
static void visit_all(const char *proc, const char *cgroups, const char *controller, Visit *visit,
                      Found *found)
{
    char path[PATH_MAX], line[PATH_MAX + 64], mount[PATH_MAX];
    snprintf(path, sizeof path, "%s/self/cgroup", proc);
    FILE *const file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *const controllers = strchr(line, ':');
        char *const group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) {
            continue;
        }
        *group = '\0';
        if (controllers[1] == '\0') {
            visit_up(cgroups, group + 1, 2, visit, found);
        } else if (names(controllers + 1, controller) &&
                   snprintf(mount, sizeof mount, "%s/%s", cgroups, controller) <
                       (int)sizeof mount) {
            visit_up(mount, group + 1, 1, visit, found);
        }
    }
    if (file) {
        fclose(file);
    }
}

int64_t limits_quota_cores(const char *proc, const char *cgroups)
{
    Found found = {0};
    visit_all(proc, cgroups, "cpu", visit_cpu, &found);
    return found.least < INT_MAX ? found.least : 0;
}

int64_t limits_usable_bytes(const char *proc, const char *cgroups)
{
    Found found = {(int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)};
    visit_all(proc, cgroups, "memory", visit_memory, &found);
    return found.least;
}

/* The number in SGEMM_KERNELS_THREADS; 0 if it is unset or invalid. */
static int threads_asked(void)
{
    const char *const text = getenv("SGEMM_KERNELS_THREADS");
    const long number = text && text[strspn(text, "0123456789")] == '\0' ? atol(text) : 0;
    return number >= 1 && number <= MOST_THREADS ? (int)number : 0;
}

__attribute__((constructor)) static void apply(void)
{
    usable_cores_set(threads_asked(), (int)limits_quota_cores("/proc", "/sys/fs/cgroup"));
    pinned_set_limit(limits_usable_bytes("/proc", "/sys/fs/cgroup") / PINNED_SHARE);
}
