/* Panels of B that the GPUs of one call bring together: each its share of a panel's lines from the host,
 * and those of the others out of their memory, so that B crosses the buses once.
 *
 * A GPU reads the others' share of a panel when they have it, by an event of each, and fills a slot anew
 * when they have read its own share of what was there. What of that was queued yet, threads tell each
 * other as a team (../core/team.h); all queue the same panels in the same order. */
#ifndef SGEMM_CUDA_SHARED_PANELS_H
#define SGEMM_CUDA_SHARED_PANELS_H

#include "../core/panels.h"
#include "../core/product.h"
#include "../core/team.h"
#include "streams.h"

/* A GPU's memory for panels of B, as the others see it. */
struct PanelSlots {
    char *memory;
    size_t slot_bytes;
    int held;
    int64_t rounds; /* how often all panels come */
    int64_t panel_cols, panel_rows;
    bool by_columns; /* lines of panels are their columns */
    const Streams *streams;
    bool reaches_all; /* the memory of the others */
};

struct SharedPanels {
    Team *team; /* NULL: the others have not been met */
    int member;
    const Interrupt *interrupt;
    PanelSlots own;
    bool active;                    /* panels are shared */
    int64_t begun;                  /* panels so far, */
    int64_t newest[streams_panels]; /* the newest in each slot, */
    int64_t exchanged;              /* and those that the others may read */
};

/* Lines of a panel. */
struct Lines {
    int64_t first, count;
};

/* The matrix of some lines of one, by rows or by columns, whose memory begins there. */
static inline Matrix matrix_of_lines(const Matrix &matrix, float *memory, const Lines &lines,
                                     bool by_columns)
{
    Matrix part = matrix;
    part.data = memory + lines.first * (by_columns ? matrix.col_stride : matrix.row_stride);
    (by_columns ? part.cols : part.rows) = lines.count;
    return part;
}

/* Whether the product's B is to be shared with the others of its team, if they agree. */
bool shared_panels_wanted(const Product *product);

/* Meets the others: shared->active says whether panels are shared, for all of them alike. Fails with the
 * first failure of any. shared_panels_finish is owed before anything of `own` ends, and after all
 * streams were waited for. */
Status shared_panels_start(const Product *product, const PanelSlots *own, SharedPanels *shared);
void shared_panels_finish(SharedPanels *shared, const Status *status);

/* The lines that this GPU brings of a panel of so many. */
Lines shared_panels_own(const SharedPanels *shared, int64_t lines);

/* Begins the next panel: what is queued on `up` from now on may write to its slot. Waits for the
 * others' threads, if they have not come so far. */
Status shared_panels_begin(SharedPanels *shared, int slot);

/* Gives the others what is queued on `up` by now of the panel that was begun, and queues on `across` the
 * copies of what they bring; what is queued on `run` from now on finds the whole panel, `there`. */
Status shared_panels_exchange(SharedPanels *shared, int slot, const Matrix *there);

#endif
