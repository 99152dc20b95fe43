#include "plan.h"

/* Constants for split-fp16 products on tensor cores (`waves`), fitted to an H200: float32
 * multiply-adds per cycle and multiprocessor; cycles of all launches; and cycles to check and store
 * a result. */
static const double tensor_rate = 565, tensor_start = 19000, tensor_store = 1.4;

bool plan_loses_to_tensor_cores(double cycles, const Sgemm *p, int multiprocessors)
{
    enum { TILE = 128, DEPTH = 64, FITTED = 132 /* multiprocessors of an H200 */ };
    if (p->A.cols < SPLIT_FP16_MIN_K) {
        return false;
    }
    const int64_t down = (p->C.rows + TILE - 1) / TILE, across = (p->C.cols + TILE - 1) / TILE;
    const double depth = (double)((p->A.cols + DEPTH - 1) / DEPTH * DEPTH);
    /* Splitting reads an element (4 bytes) twice and writes its hi/lo pair (4 bytes). */
    const double splitting =
        12 * (double)(down + across) * TILE * depth / (2.0 / 3 * plan_fitted.from_memory * FITTED);
    const double waves = (double)((down * across + multiprocessors - 1) / multiprocessors);
    return tensor_start + splitting + waves * TILE * TILE * (depth / tensor_rate + tensor_store) <
           cycles;
}
