/* Sharing the panels of B among the GPUs of one call. Each GPU loads its share of a panel from the
 * host and copies the other shares from the other GPUs, so B crosses each host bus only once in
 * total.
 *
 * Events order the work. A GPU copies another GPU's share only after that GPU has loaded it. It
 * overwrites a slot only after the other GPUs have copied its share from that slot. The threads
 * tell each other through a Team (../team.h) which events are recorded. All threads queue the
 * same panels in the same order. */
#ifndef SGEMM_CUDA_SHARED_PANELS_H
#define SGEMM_CUDA_SHARED_PANELS_H

#include "../panels.h"
#include "../product.h"
#include "../team.h"
#include "streams.h"

/* A GPU's memory for panels of B, published to the other GPUs. */
struct PanelSlots {
    char *memory;
    size_t slot_bytes;
    int held;
    int64_t rounds; /* how many times each panel is loaded */
    int64_t panel_cols, panel_rows;
    ElementType type;
    bool by_columns; /* panels are column-major, and a share is a range of columns, not of rows */
    const Streams *streams;
    bool reaches_all; /* peer access to all other GPUs */
};

struct SharedPanels {
    Team *team; /* NULL: shared_panels_start was not called */
    int member;
    const Interrupt *interrupt;
    PanelSlots own;
    bool active;                    /* panels are shared */
    int64_t begun;                  /* panels begun so far */
    int64_t newest[streams_panels]; /* the newest panel in each slot */
    int64_t exchanged;              /* panels that the others may read */
};

/* A range of a panel's rows, or of its columns if the panel is column-major. */
struct Lines {
    int64_t first, count;
};

/* The submatrix of these lines, in a copy of the matrix at `memory`, with elements of that type. */
static inline Matrix matrix_of_lines(const Matrix &matrix, void *memory, ElementType type,
                                     const Lines &lines, bool by_columns)
{
    Matrix part = matrix;
    part.data = static_cast<float *>(memory);
    part.data = address_of_element(
        &part, lines.first * (by_columns ? matrix.col_stride : matrix.row_stride), type);
    (by_columns ? part.cols : part.rows) = lines.count;
    return part;
}

/* True if sharing B within the product's team would pay off. */
bool shared_panels_wanted(const Product *product);

/* Synchronizes with the other members. All get the same shared->active: whether panels are shared.
 * Fails with the first failure of any member. Call shared_panels_finish in any case, after all
 * streams have finished and before anything in `own` is freed. */
Status shared_panels_start(const Product *product, const PanelSlots *own, SharedPanels *shared);
void shared_panels_finish(SharedPanels *shared, const Status *status);

/* The range that this GPU loads of a panel of `lines` rows (or columns, if column-major). */
Lines shared_panels_own(const SharedPanels *shared, int64_t lines);

/* Begins the next panel: work queued on `h2d` from now on may write its slot. Waits for the other
 * threads if they are behind. */
Status shared_panels_begin(SharedPanels *shared, int slot);

/* Publishes this GPU's share of the panel; the copies of that share are already queued on `h2d`.
 * Queues copies of the other shares on `p2p`. Work queued on `run` after this call sees the
 * whole panel `there`. */
Status shared_panels_exchange(SharedPanels *shared, int slot, const Matrix *there);

#endif
