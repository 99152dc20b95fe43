/* How a product goes through a device's memory: in panels of A and B, and pieces of C. */
#ifndef SGEMM_PANELS_H
#define SGEMM_PANELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Panels of B and pieces of C that are on the device at a time, at most. */
enum { B_AHEAD = 4, C_AHEAD = 4 };

/* A panel of A is rows x depth, one of B depth x cols, a piece of C rows x cols. So many of each are
 * on the device at a time. Whoever holds a_held of A's can multiply them all by each of B's, which
 * come one after another: if that is all of A, every element crosses the bus once. */
typedef struct {
    int64_t rows, cols, depth;
    int a_held, b_held, c_held;
} Panels;

/* The panels of a product of M x K by K x N, on a device with room for so many elements. While there
 * is room for whole rows of A and columns of B, they depend on M and N alone, so that results do
 * not depend on where operands lie; false if not even the smallest panels find room. */
bool panels_plan(int64_t M, int64_t N, int64_t K, int64_t room, Panels *panels);

/* Elements on the device, as rows are rounded up to quads. */
int64_t panels_a_elements(const Panels *panels);
int64_t panels_b_elements(const Panels *panels);
int64_t panels_c_elements(const Panels *panels);

#ifdef __cplusplus
}
#endif
#endif
