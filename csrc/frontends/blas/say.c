#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

static struct stat at_begin;
static bool had_any;

__attribute__((constructor)) static void look(void)
{
    had_any = fstat(2, &at_begin) == 0;
}

bool say_can(void)
{
    struct stat now;
    return had_any && fstat(2, &now) == 0 && now.st_dev == at_begin.st_dev &&
           now.st_ino == at_begin.st_ino && now.st_rdev == at_begin.st_rdev;
}

void say(const char *format, ...)
{
    if (!say_can()) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    fputs("sgemm_kernels: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}
