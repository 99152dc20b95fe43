#include "status.h"

#include <stdarg.h>
#include <stdio.h>

Status status_ok(void)
{
    Status status; /* not zeroed: calls return many of these */
    status.code = STATUS_OK;
    status.message[0] = '\0';
    return status;
}

Status status_error(StatusCode code, const char *format, ...)
{
    Status status = {.code = code};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(status.message, sizeof status.message, format, arguments);
    va_end(arguments);
    return status;
}
