/* Checks each access of a kernel before it is made: is it inside an array, is it aligned, has the
 * memory been written, and does a barrier order it with the accesses of other threads to the same
 * word?
 *
 * The kernel is compiled as in the traced build (../access_trace/traced.h), with a call before
 * each access, and sanitizer_calls.cpp defines these functions instead of access_trace.cpp. A race
 * is found in whichever order the CPU device runs the threads. */
#ifndef SGEMM_SANITIZER_H
#define SGEMM_SANITIZER_H

#include <stddef.h>
#include <stdint.h>

#include "../../base/sgemm.h"

/* An operand. `memory` has guard bands around it, and gaps between its rows or columns. */
struct SanitizerOperand {
    const char *name;
    Matrix matrix;
    char *memory;
    size_t bytes;
    bool by_columns; /* column-major: the strides of one row or column cannot tell */
    bool input;      /* a kernel must not write it */
    bool readable;   /* false for C if beta is 0 */
};

/* The names of the kernel's own files, with slashes between them. Call it first. */
void sanitizer_files(const char *names);

/* Sets the operands of the next launch, and how many multiply-adds its blocks compute at most. */
void sanitizer_operands(const SanitizerOperand (&operands)[3], double multiply_adds);

/* The host's launcher begins or ends. It must not access the operands' memory itself. */
void sanitizer_launcher(bool begins);

/* The orders of blocks and threads in which each product is computed, as words; NULL ends them. */
extern const char *sanitizer_orders[];
void sanitizer_order(int index);

/* What shared memory and scratch memory hold at first: zeros, or NaN again. With zeros the next
 * launch prints nothing. Returns false if that is not supported. */
bool sanitizer_fill_with_zeros(bool zeros);

/* Forgets the reads of memory that was never written. */
void sanitizer_forget_suspects();

/* Whether this product has such reads at new places. */
bool sanitizer_has_new_suspects();

/* What the threads did in operands that are too large for a record of each word. */
struct LargeTouch {
    bool there[3]; /* reads of the last row of A and column of B, stores of the last of C */
    int site[3];   /* of these accesses: sanitizer_parts.h */
    bool cut;      /* the block was ended: it has too many accesses */
};
const LargeTouch &sanitizer_large_touch();

/* Prints a finding at a place. */
void sanitizer_print_at(const char *kind, int site, const char *array, const char *text);

/* Why the processor refused an access. */
struct FaultyAccess {
    const char *kind, *text;
};
FaultyAccess sanitizer_meaning_of(const void *address);

/* Prints what happened since sanitizer_operands(): the barriers of the first block, the atomic
 * operations of all threads, the accesses of the first block's busiest thread, the bytes of
 * static shared memory, and the first block's reads of shared memory: all, those after a read of A
 * or B since the last barrier, and those with a copy on its way. */
void sanitizer_print_counts();

/* Prints a finding with the kernel's latest line and thread. Signal handlers may call it. */
void sanitizer_print_place(const char *kind, const char *text);

/* Prints that an element of C is wrong, with the line that stored it and an unread factor. */
void sanitizer_print_wrong(int64_t row, int64_t col, double got, double right);

/* For a product that is wrong, or whose launch failed: prints the reads of memory that was never
 * written, and the first element of C that was never written if the launch has ended. */
void sanitizer_print_suspects(bool has_ended);

/* While it is true, only the last block of a plain kernel's grid runs. */
extern bool sanitizer_last_block;

#endif
