/* Every access of a kernel looked at before it is made: is it inside an array, aligned, of memory that
 * somebody wrote, and kept by a barrier from what other threads do with the same word?
 *
 * The kernel is compiled as the counting build is (../count/counted.h), with calls at each access,
 * and watch.cpp answers them in place of ../count/count.cpp. Threads of a block that no barrier keeps
 * apart race whichever of them the CPU device happens to run first. */
#ifndef SGEMM_OWN_KERNEL_WATCH_H
#define SGEMM_OWN_KERNEL_WATCH_H

#include <stddef.h>

#include "../core/sgemm.h"

/* An operand: `memory` has guard bands around it, and gaps between its lines. */
struct WatchedOperand {
    const char *name;
    Matrix matrix;
    char *memory;
    size_t bytes;
    bool input;    /* which a kernel does not write */
    bool readable; /* C is not when beta is 0 */
};

/* What a launch's accesses are held against from now on. */
void watch_operands(const WatchedOperand (&operands)[3]);

/* Prints what is known of where the kernel is: from a signal's handler too. */
void watch_print_place(const char *kind, const char *text);

/* Prints that an element of C came out wrong, by which line, and which factors of it no thread read. */
void watch_print_wrong(int64_t row, int64_t col, double got, double right);

/* Prints the reads of memory that nobody had written, and the elements of C that were never written: for
 * a product that came out wrong. */
void watch_print_suspects();

#endif
