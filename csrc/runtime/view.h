/* A caller's array with any number of axes. */
#ifndef SGEMM_VIEW_H
#define SGEMM_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "../base/sgemm.h"

enum { VIEW_AXES = 64 }; /* NumPy's limit */

/* Element (i, j, ...) begins at data + i * bytes[0] + j * bytes[1] + ... */
typedef struct {
    char *data;
    int axes;
    bool swapped; /* in the opposite of this machine's byte order */
    int64_t shape[VIEW_AXES], bytes[VIEW_AXES];
    ElementType type DEFAULT(ELEMENT_FLOAT32);
} View;

#endif
