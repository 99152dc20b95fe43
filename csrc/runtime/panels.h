/* Divides a product into panels of A and B and pieces of C that fit in a device's memory. */
#ifndef SGEMM_PANELS_H
#define SGEMM_PANELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest number of panels of B and of pieces of C that are on the device at the same time. */
enum { B_AHEAD = 4, C_AHEAD = 4 };

/* A panel of A is rows x depth, a panel of B depth x cols, a piece of C rows x cols. The device
 * holds a_held panels of A and multiplies them all by each panel of B in succession. If it holds
 * all of A, every element crosses the bus only once. */
typedef struct {
    int64_t rows, cols, depth;
    int a_held, b_held, c_held;
} Panels;

/* Chooses panels for a product of M x K by K x N on a device that can hold `capacity` elements. If
 * whole rows of A and columns of B fit, the panels depend only on M and N, so results do not depend
 * on where the operands are. With `rows_alone`, B is one panel, and a panel of A has whole rows.
 * False if not even the smallest panels fit. */
bool panels_plan(int64_t M, int64_t N, int64_t K, int64_t capacity, bool rows_alone,
                 Panels *panels);

/* Elements on the device, including the padding of dimensions to multiples of 4. */
int64_t panels_a_elements(const Panels *panels);
int64_t panels_b_elements(const Panels *panels);
int64_t panels_c_elements(const Panels *panels);

#ifdef __cplusplus
}
#endif
#endif
