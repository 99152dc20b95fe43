/* How functions report errors: a code, and a message for the user. */
#ifndef SGEMM_STATUS_H
#define SGEMM_STATUS_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    STATUS_OK = 0,
    STATUS_DEVICE,        /* a device is missing, unusable, or failed */
    STATUS_OUT_OF_MEMORY, /* on the host or on a device */
    STATUS_UNSUPPORTED,   /* the variant cannot run on that device or in that build */
    STATUS_INVALID,       /* the request is invalid on any device */
    STATUS_INTERRUPTED,   /* the caller's interrupt callback asked to stop */
} StatusCode;

enum { STATUS_MESSAGE_BYTES = 496 };

typedef struct {
    StatusCode code;
    char message[STATUS_MESSAGE_BYTES]; /* for the user; empty if code is STATUS_OK */
} Status;

Status status_ok(void);

/* A failure with a message formatted as by printf; a message that is too long is truncated. */
Status status_error(StatusCode code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

#ifdef __cplusplus
}
#endif
#endif
