/* The limits of this process's cgroups (version 1 or 2) and of their parents. They apply from the
 * start: usable_cores() and the limit of pinned memory respect them. */
#ifndef SGEMM_LIMITS_H
#define SGEMM_LIMITS_H

#include <stdint.h>

/* The CPU quota in cores, rounded up; 0 for no limit. `proc` and `cgroups` are the folders /proc
 * and /sys/fs/cgroup. */
int64_t limits_quota_cores(const char *proc, const char *cgroups);

/* The memory that this process may use, in bytes: the machine's, or the smallest limit. */
int64_t limits_usable_bytes(const char *proc, const char *cgroups);

#endif
