/* A product in panels. Three stages overlap: worker threads gather A and B in chunks of pinned
 * memory, which are copied to the GPU; kernels compute pieces of C; finished pieces are copied
 * back. panels.h chooses the pieces.
 *
 * Items wait in a queue before they go to a stream, so that workers gather chunks ahead of the
 * copies. */
#include "../panels.h"

#include <stdlib.h>

#include "../../base/cuda/allocator.h"
#include "../../base/cuda/failures.h"
#include "../../base/scratch.h"
#include "../device.h"
#include "../workers.h"
#include "contiguous.h"
#include "device_matrix.h"
#include "host_arrays.h"
#include "shared_panels.h"
#include "staging.h"

namespace {

constexpr int64_t element = sizeof(float); /* of the result */
constexpr int64_t least_chunk = int64_t{1} << 17, most_chunk = int64_t{1} << 21;
constexpr int few_chunks = 16;
constexpr int out_slots = 2; /* staged pieces of C */
/* Copies in flight when the host needs the next chunk. Waiting for the newest copy would leave the
 * bus idle between copies. */
constexpr int copies_ahead = 8;

/* ------------------------------------------------------------------ the call */

/* An operand on the device. Up to `held` panels; panel n is in slot n % held. */
struct Operand {
    Strided array;
    ElementType type; /* on the device */
    bool by_columns;  /* as in host memory */
    int held;
    size_t slot_bytes;
    char *memory;
    int64_t *content;        /* the panel in each slot; -1: none */
    int64_t *used;           /* the last step that read each slot */
    Prepared *prepared;      /* data that launches derived from the panel in each slot */
    int64_t *prepared_panel; /* the panel that it was derived from */
};

struct Step {
    Sgemm problem;
    Strided
        out; /* where the piece goes after this step; data is NULL unless it is the last along K */
    int64_t piece; /* index of the piece */
    int64_t a, b;  /* indices of the panels */
};

struct Item {
    enum { CHUNK, COPY, BEGIN, EXCHANGE, STEP } kind;
    cudaEvent_t after; /* unless STEP: event to wait for, or NULL */
    Job job;           /* CHUNK */
    char *to;
    size_t bytes;
    Matrix device, host; /* COPY; EXCHANGE: the panel */
    ElementType type;    /* COPY: of both */
    int slot;            /* BEGIN, EXCHANGE: the panel's slot */
    Step step;
};

struct Call {
    Product product;
    int device;
    Streams *streams;
    Panels panels;
    Operand A, B, C;
    SharedPanels shared; /* of B */
    Status status;
    bool overlaps;  /* several steps, on three streams */
    bool symmetric; /* one step, whose B is the transposed A on the device, too */
    bool prepares;  /* memory suffices to keep prepared panels */
    int64_t chunk_bytes;
    bool recycles; /* chunks are reused; events tell when */
    Staging chunks, pieces;

    Item queue[streams_chunks];
    int64_t pieces_in, steps_in, added, issued; /* into and out of the queue */
    bool moving[streams_chunks]; /* a copy from this chunk was queued and not waited for */

    int64_t steps;              /* issued so far */
    Strided waiting[out_slots]; /* destinations of staged pieces; data is NULL if none */
    int64_t waiting_piece[out_slots];
    int64_t pieces_out;
};

bool check(Call *call, const char *what, cudaError_t error)
{
    if (error != cudaSuccess && call->status.code == STATUS_OK) {
        call->status = device_failed(call->device, what, error);
    }
    return call->status.code == STATUS_OK;
}

const char *const copying_in = "copying from the host", *const copying_out = "copying to the host",
                  *const computing = "computing";

/* ------------------------------------------------------------------ out */

/* Waits for a staged piece and copies it to its destination. */
void finish_piece(Call *call, int slot)
{
    Strided *const out = &call->waiting[slot];
    if (!out->data || call->status.code != STATUS_OK) {
        return;
    }
    const int64_t piece = call->waiting_piece[slot];
    const cudaError_t error =
        call->overlaps ? cudaEventSynchronize(call->streams->downloaded[piece % streams_steps])
                       : cudaStreamSynchronize(call->streams->d2h);
    if (check(call, computing, error)) {
        product_changes_out(&call->product);
        const int64_t ld = leading_dimension(out->cols);
        const Strided staged = {call->pieces.memory +
                                    static_cast<size_t>(slot) * call->C.slot_bytes,
                                out->rows,
                                out->cols,
                                ld * element,
                                element,
                                false};
        const Status copied = workers_copy(out, &staged, &call->product.interrupt);
        call->status = copied.code == STATUS_OK ? call->status : copied;
    }
    out->data = nullptr;
}

/* Queues the copy of a piece of C to the host. */
bool download(Call *call, const Step *step)
{
    const Matrix *const C = &step->problem.C;
    const cudaStream_t d2h = call->streams->d2h;
    Matrix host;
    if (as_pinned_matrix(&step->out, false, &host)) {
        product_changes_out(&call->product);
        return check(call, copying_out, device_matrix_copy(&host, C, cudaMemcpyDeviceToHost, d2h));
    }
    if (!call->pieces.memory) {
        const size_t bytes = call->C.slot_bytes * (call->overlaps ? out_slots : 1);
        if (!alloc_staging(call->device, bytes, &call->pieces)) {
            call->status = no_staging(bytes);
            return false;
        }
    }
    const int slot = static_cast<int>(call->pieces_out++ % (call->overlaps ? out_slots : 1));
    finish_piece(call, slot);
    if (call->status.code != STATUS_OK) {
        return false;
    }
    const size_t bytes = static_cast<size_t>(((C->rows - 1) * C->row_stride + C->cols) * element);
    char *const staged = call->pieces.memory + static_cast<size_t>(slot) * call->C.slot_bytes;
    call->waiting_piece[slot] = step->piece;
    call->waiting[slot] = step->out;
    return check(call, copying_out,
                 cudaMemcpyAsync(staged, C->data, bytes, cudaMemcpyDeviceToHost, d2h));
}

/* ------------------------------------------------------------------ steps */

bool interrupted(Call *call)
{
    if (!interrupt_raised(&call->product.interrupt)) {
        return false;
    }
    call->status = status_error(STATUS_INTERRUPTED, "interrupted");
    return true;
}

/* The prepared data of a panel. Frees the data of the panel that was in the slot before. */
Prepared *prepared_of(Operand *operand, int64_t panel, const Launch *where)
{
    const int64_t slot = panel % operand->held;
    Prepared *const prepared = &operand->prepared[slot];
    if (operand->prepared_panel[slot] != panel) {
        scratch_free(prepared->memory, where);
        *prepared = {};
    }
    operand->prepared_panel[slot] = panel;
    return prepared;
}

Status launch(Call *call, const Step *step)
{
    Launch where = {call->device, call->streams->run, nullptr, {}, false};
    where.elements[0] = call->A.type;
    where.elements[1] = call->B.type;
    const Variant *const variant = call->product.variant;
    int64_t launched = 0;
    if (!call->prepares) {
        return launch_contiguous(variant, &step->problem, &where, &launched);
    }
    Prepared *const of_a = prepared_of(&call->A, step->a, &where);
    Prepared *const of_b = prepared_of(&call->B, step->b, &where);
    where.prepared[0] = of_a;
    where.prepared[1] = of_b;
    return launch_contiguous(variant, &step->problem, &where, &launched);
}

bool perform_step(Call *call, const Step *step)
{
    Streams *const streams = call->streams;
    const int number = static_cast<int>(call->steps % streams_steps);
    if (call->overlaps) {
        if (call->steps >= streams_steps &&
            (!check(call, computing, cudaEventSynchronize(streams->computed[number])) ||
             interrupted(call))) {
            return false;
        }
        const int64_t before = step->piece - call->panels.c_held; /* in the same slot */
        if (!check(call, copying_in, cudaEventRecord(streams->uploaded[number], streams->h2d)) ||
            !check(call, computing,
                   cudaStreamWaitEvent(streams->run, streams->uploaded[number], 0)) ||
            (before >= 0 &&
             !check(call, computing,
                    cudaStreamWaitEvent(streams->run, streams->downloaded[before % streams_steps],
                                        0)))) {
            return false;
        }
    }
    call->status = launch(call, step);
    if (call->status.code != STATUS_OK) {
        return false;
    }
    if (call->overlaps &&
        !check(call, computing, cudaEventRecord(streams->computed[number], streams->run))) {
        return false;
    }
    if (step->out.data) {
        if ((call->overlaps &&
             !check(call, copying_out,
                    cudaStreamWaitEvent(streams->d2h, streams->computed[number], 0))) ||
            !download(call, step)) {
            return false;
        }
        if (call->overlaps &&
            !check(
                call, copying_out,
                cudaEventRecord(streams->downloaded[step->piece % streams_steps], streams->d2h))) {
            return false;
        }
    }
    ++call->steps;
    return true;
}

/* ------------------------------------------------------------------ the queue */

/* Issues the oldest item to its stream. */
void issue_next(Call *call)
{
    const int64_t number = call->issued++ % streams_chunks;
    Item *const item = &call->queue[number];
    if (item->kind == Item::CHUNK) {
        workers_wait(&item->job); /* even after a failure: the job reads the caller's memory */
    }
    if (call->status.code != STATUS_OK) {
        return;
    }
    if (item->kind == Item::STEP) {
        perform_step(call, &item->step);
        return;
    }
    const cudaStream_t h2d = call->streams->h2d;
    const cudaStream_t stream = item->kind == Item::EXCHANGE ? call->streams->p2p : h2d;
    if (item->after && !check(call, copying_in, cudaStreamWaitEvent(stream, item->after, 0))) {
        return;
    }
    if (item->kind == Item::BEGIN) {
        call->status = shared_panels_begin(&call->shared, item->slot);
        return;
    }
    if (item->kind == Item::EXCHANGE) {
        call->status = shared_panels_exchange(&call->shared, item->slot, &item->device);
        return;
    }
    if (item->kind == Item::COPY) {
        check(call, copying_in,
              device_matrix_copy(&item->device, &item->host, cudaMemcpyHostToDevice, h2d,
                                 item->type));
        return;
    }
    call->moving[number] =
        check(call, copying_in,
              cudaMemcpyAsync(item->to, item->job.to.data, item->bytes, cudaMemcpyHostToDevice,
                              h2d)) &&
        (!call->recycles ||
         check(call, copying_in, cudaEventRecord(call->streams->moved[number], h2d)));
}

/* The next free item. The copy from its chunk was issued copies_ahead items ago. */
Item *next_item(Call *call)
{
    if (call->added - call->issued == streams_chunks - copies_ahead) {
        issue_next(call);
    }
    return &call->queue[call->added % streams_chunks];
}

void add_chunk(Call *call, const Strided *from, ElementType type, char *to, int64_t ld,
               cudaEvent_t after)
{
    const int64_t size = element_bytes(type);
    Item *const item = next_item(call);
    const int64_t number = call->added % streams_chunks;
    if (call->moving[number]) {
        check(call, copying_in,
              call->recycles ? cudaEventSynchronize(call->streams->moved[number])
                             : cudaStreamSynchronize(call->streams->h2d));
        call->moving[number] = false;
    }
    if (call->status.code != STATUS_OK) {
        return;
    }
    item->kind = Item::CHUNK;
    item->after = after;
    item->to = to;
    item->bytes = static_cast<size_t>(((from->rows - 1) * ld + from->cols) * size);
    /* Bypasses the cache: an H100 reads memory about twice as fast as another core's private
     * cache. */
    item->job.copy = strided_stream;
    item->job.from = *from;
    item->job.to = {call->chunks.memory + number * call->chunk_bytes,
                    from->rows,
                    from->cols,
                    ld * size,
                    size,
                    false,
                    0,
                    type};
    ++call->added;
    workers_add(&item->job);
}

/* Adds the upload of a part of a host array to a device matrix of that type. */
void add_upload(Call *call, const Strided *part, ElementType type, bool by_columns,
                const Matrix *there, cudaEvent_t after)
{
    if (part->rows == 0 || part->cols == 0 || call->status.code != STATUS_OK) {
        return;
    }
    Matrix host;
    if (as_pinned_matrix(part, by_columns, &host, type)) {
        Item *const item = next_item(call);
        item->kind = Item::COPY;
        item->after = after;
        item->device = *there;
        item->host = host;
        item->type = type;
        ++call->added;
        return;
    }
    const Strided lines = by_columns ? strided_transposed(part) : *part;
    const int64_t ld = leading_dimension_of(type, lines.cols);
    const int64_t most = call->chunk_bytes / element_bytes(type);
    const int64_t rows = most / ld > 1 ? most / ld : 1, cols = ld > most ? most : lines.cols;
    for (int64_t row = 0; row < lines.rows; row += rows) {
        for (int64_t col = 0; col < lines.cols; col += cols) {
            const Strided from =
                strided_part(&lines, row, col, row + rows < lines.rows ? rows : lines.rows - row,
                             col + cols < lines.cols ? cols : lines.cols - col);
            float *const to = address_of_element(there, row * ld + col, type);
            add_chunk(call, &from, type, reinterpret_cast<char *>(to), ld, after);
            after = nullptr;
        }
    }
}

/* ------------------------------------------------------------------ panels */

Matrix matrix_at(const Operand *operand, int slot, int64_t rows, int64_t cols)
{
    char *const memory = operand->memory
                             ? operand->memory + static_cast<size_t>(slot) * operand->slot_bytes
                             : nullptr;
    return matrix_in(memory, operand->type, rows, cols, operand->by_columns);
}

/* Adds the upload of this GPU's share of a panel of B and the copies of the other GPUs' shares. */
void add_share(Call *call, int slot, const Strided *part, const Matrix *there, cudaEvent_t after)
{
    const bool by_columns = call->B.by_columns;
    const Lines own = shared_panels_own(&call->shared, by_columns ? part->cols : part->rows);
    const Strided lines = by_columns ? strided_part(part, 0, own.first, part->rows, own.count)
                                     : strided_part(part, own.first, 0, own.count, part->cols);
    const Matrix place = matrix_of_lines(*there, there->data, call->B.type, own, by_columns);
    for (const auto kind : {Item::BEGIN, Item::EXCHANGE}) {
        Item *const item = next_item(call);
        item->kind = kind;
        item->after = after;
        item->slot = slot;
        item->device = *there;
        ++call->added;
        if (kind == Item::BEGIN) {
            add_upload(call, &lines, call->B.type, by_columns, &place, nullptr);
        }
    }
}

/* The device matrix of a panel for the next step; adds its upload if necessary. */
Matrix panel(Call *call, Operand *operand, int64_t number, const Strided *part)
{
    const int slot = static_cast<int>(number % operand->held);
    const Matrix there = matrix_at(operand, slot, part->rows, part->cols);
    if (operand->content[slot] != number) {
        const int64_t used = operand->used[slot];
        /* A later step reuses the event of an older step, which perform_step has waited for. */
        const bool done = used < call->steps_in - streams_steps;
        const cudaEvent_t after =
            used < 0 || done ? nullptr : call->streams->computed[used % streams_steps];
        if (operand == &call->B && call->shared.active) {
            add_share(call, slot, part, &there, after);
        } else {
            add_upload(call, part, operand->type, operand->by_columns, &there, after);
        }
        operand->content[slot] = number;
    }
    return there;
}

int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Adds the steps of one piece of C: one per chunk of K. */
void add_piece(Call *call, int64_t i, int64_t j, int64_t k_steps)
{
    const Product *const product = &call->product;
    const Panels *const p = &call->panels;
    const int64_t K = call->A.array.cols;
    const int64_t row = i * p->rows, rows = least_of(p->rows, call->C.array.rows - row);
    const int64_t col = j * p->cols, cols = least_of(p->cols, call->C.array.cols - col);
    Step step = {};
    step.piece = call->pieces_in++;
    step.problem.alpha = product->alpha;
    step.problem.count = 1;
    step.problem.C = matrix_at(&call->C, static_cast<int>(step.piece % p->c_held), rows, cols);
    for (int64_t k = 0; k < k_steps && call->status.code == STATUS_OK; ++k) {
        const int64_t at = k * p->depth, depth = least_of(p->depth, K - at);
        const Strided a = strided_part(&call->A.array, row, at, rows, depth);
        const Strided b = strided_part(&call->B.array, at, col, depth, cols);
        step.a = i * k_steps + k;
        step.b = j * k_steps + k;
        step.problem.A = panel(call, &call->A, step.a, &a);
        step.problem.B = call->symmetric ? matrix_transposed(&step.problem.A)
                                         : panel(call, &call->B, step.b, &b);
        step.problem.beta = k == 0 ? product->beta : 1.0f;
        if (k == 0 && product->beta != 0.0f) {
            const Strided c = strided_part(&product->C, row, col, rows, cols);
            const int64_t before = step.piece - p->c_held;
            add_upload(call, &c, ELEMENT_FLOAT32, false, &step.problem.C,
                       before < 0 ? nullptr : call->streams->downloaded[before % streams_steps]);
        }
        if (k == k_steps - 1) {
            step.out = strided_part(&product->out, row, col, rows, cols);
        }
        call->A.used[step.a % call->A.held] = call->steps_in;
        if (!call->symmetric) {
            call->B.used[step.b % call->B.held] = call->steps_in;
        }
        ++call->steps_in;
        Item *const item = next_item(call);
        item->kind = Item::STEP;
        item->step = step;
        ++call->added;
    }
}

/* The order of the pieces of C. */
struct Order {
    int64_t in_column, in_row; /* pieces in a column and in a row of C */
    int64_t k_steps;           /* chunks of K per piece */
    int64_t down, across;      /* size of a group of pieces that use the same panels */
};

/* Early pieces should need few panels. A group uses all panels of A that the device holds and half
 * of the panels of B, so that the next panels of B can be loaded meanwhile. */
Order order_of(const Call *call)
{
    const Panels *const p = &call->panels;
    const int64_t K = call->A.array.cols;
    Order order;
    order.in_column = (call->C.array.rows + p->rows - 1) / p->rows;
    order.in_row = (call->C.array.cols + p->cols - 1) / p->cols;
    order.k_steps = K ? (K + p->depth - 1) / p->depth : 1;
    order.down = order.k_steps > 1 ? 1 : p->a_held;
    order.across = order.k_steps > 1 || p->b_held < 2 ? 1 : p->b_held / 2;
    return order;
}

void add_pieces(Call *call)
{
    const Order o = order_of(call);
    for (int64_t top = 0; top < o.in_column; top += o.down) {
        for (int64_t left = 0; left < o.in_row; left += o.across) {
            for (int64_t i = top; i < least_of(top + o.down, o.in_column); ++i) {
                for (int64_t j = left; j < least_of(left + o.across, o.in_row); ++j) {
                    add_piece(call, i, j, o.k_steps);
                }
            }
        }
    }
}

/* ------------------------------------------------------------------ one call's memory */

bool allocate_panels(Call *call, Operand *operand, int held, int64_t elements)
{
    operand->held = held;
    /* 16-bit elements need less, although their rows are padded to multiples of 8. */
    operand->slot_bytes = aligned(static_cast<size_t>(elements * element));
    operand->content =
        static_cast<int64_t *>(malloc(3 * sizeof(int64_t) * static_cast<size_t>(held)));
    operand->prepared =
        static_cast<Prepared *>(calloc(static_cast<size_t>(held), sizeof(Prepared)));
    if (!operand->content || !operand->prepared) {
        call->status =
            status_error(STATUS_OUT_OF_MEMORY, "no host memory for the records of %d panels", held);
        return false;
    }
    operand->used = operand->content + held;
    operand->prepared_panel = operand->used + held;
    for (int slot = 0; slot < held; ++slot) {
        operand->content[slot] = operand->used[slot] = operand->prepared_panel[slot] = -1;
    }
    void *memory;
    call->status = allocator_alloc(call->device, operand->slot_bytes * static_cast<size_t>(held),
                                   nullptr, &memory);
    operand->memory = static_cast<char *>(memory);
    return call->status.code == STATUS_OK;
}

void release_panels(Call *call, Operand *operand)
{
    const Launch where = {call->device, call->streams->run, nullptr, {}, false};
    for (int slot = 0; operand->prepared && slot < operand->held; ++slot) {
        scratch_free(operand->prepared[slot].memory, &where);
    }
    allocator_free(call->device, operand->memory);
    free(operand->content);
    free(operand->prepared);
    operand->memory = nullptr;
    operand->content = nullptr;
    operand->prepared = nullptr;
}

/* True unless launches will copy panels, for a kernel that takes contiguous matrices, and there is
 * no memory for the copies. The launches find what is allocated here idle. */
bool leaves_room(Call *call)
{
    void *copies[3] = {};
    int count = 0;
    for (const Operand *const operand : {&call->A, &call->B, &call->C}) {
        const bool has_gaps = operand->by_columns || operand->array.cols % 4 != 0;
        if (call->product.variant->spec.contiguous && has_gaps && call->status.code == STATUS_OK) {
            call->status =
                allocator_alloc(call->device, operand->slot_bytes, nullptr, &copies[count++]);
        }
    }
    for (void *const copy : copies) {
        allocator_free(call->device, copy);
    }
    return call->status.code == STATUS_OK;
}

bool allocate_all(Call *call)
{
    const Panels *const p = &call->panels;
    const bool held =
        allocate_panels(call, &call->A, p->a_held, panels_a_elements(p)) &&
        (call->symmetric || allocate_panels(call, &call->B, p->b_held, panels_b_elements(p))) &&
        allocate_panels(call, &call->C, p->c_held, panels_c_elements(p)) && leaves_room(call);
    if (!held) {
        release_panels(call, &call->A);
        release_panels(call, &call->B);
        release_panels(call, &call->C);
    }
    return held;
}

/* Allocates the preferred panels, or smaller ones that fit. */
bool fit_panels(Call *call)
{
    const int64_t M = call->C.array.rows, N = call->C.array.cols, K = call->A.array.cols;
    size_t available = 0, all;
    call->symmetric = product_is_symmetric(&call->product);
    call->panels = {M, N, K, 1, 1, 1};
    if (call->symmetric && allocate_all(call)) {
        return true;
    }
    if (call->symmetric && call->status.code != STATUS_OUT_OF_MEMORY) {
        return false;
    }
    call->symmetric = false; /* there is not enough memory: computed like any other product */
    call->status = status_ok();
    const bool rows_alone = call->product.variant->spec.rows_alone;
    panels_plan(M, N, K, INT64_MAX, rows_alone, &call->panels);
    if (allocate_all(call)) {
        /* Prepared data is about as large as the panels. If less than twice that is available, the
         * memory is left to the launches, which then prepare the data each time. */
        const size_t panels = call->A.slot_bytes * static_cast<size_t>(call->A.held) +
                              call->B.slot_bytes * static_cast<size_t>(call->B.held);
        call->prepares = (call->panels.rows < M || call->panels.cols < N) &&
                         cudaMemGetInfo(&available, &all) == cudaSuccess && available > 2 * panels;
        return true;
    }
    if (call->status.code == STATUS_OUT_OF_MEMORY) {
        cuda_give_idle_back(); /* frees the memory of dead arrays on the GPU */
    }
    for (int share = 9; share >= 3 && call->status.code == STATUS_OUT_OF_MEMORY; share -= 2) {
        const Status full = call->status;
        call->status = allocator_available(call->device, &available);
        if (call->status.code != STATUS_OK) {
            return false;
        }
        /* Leave some for kernels and for other allocations that may come first. */
        const int64_t usable = static_cast<int64_t>(available / 10 * static_cast<size_t>(share));
        if (!panels_plan(M, N, K, usable / element, rows_alone, &call->panels)) {
            call->status = status_error(
                STATUS_OUT_OF_MEMORY, "%.400s; %s", full.message,
                rows_alone ? "'invariant' needs memory for all of B: 'auto' runs in panels"
                           : "less than 1 MB of free memory is enough for any product, which then "
                             "runs in panels");
            return false;
        }
        allocate_all(call);
    }
    return call->status.code == STATUS_OK;
}

/* Agrees with the GPUs that compute other rows whether to share the panels of B. */
bool start_sharing(Call *call)
{
    const Panels *const p = &call->panels;
    if (shared_panels_wanted(&call->product)) {
        const Order o = order_of(call);
        const PanelSlots own = {call->B.memory, call->B.slot_bytes,
                                p->b_held,      (o.in_column + o.down - 1) / o.down,
                                p->cols,        p->depth,
                                call->B.type,   call->B.by_columns,
                                call->streams,  true};
        call->status = shared_panels_start(&call->product, &own, &call->shared);
    }
    return call->status.code == STATUS_OK;
}

Operand operand_of(const Strided *array, ElementType type)
{
    Operand operand = {};
    operand.array = *array;
    operand.type = type;
    operand.by_columns = is_column_major(array);
    return operand;
}

/* Waits for all queued work, so that its memory can be released. */
void drain(Call *call)
{
    while (call->issued < call->added) {
        issue_next(call);
    }
    if (call->overlaps && call->status.code == STATUS_OK) {
        /* The downloads follow every upload and kernel. */
        check(call, computing, cudaStreamSynchronize(call->streams->d2h));
    } else if (call->status.code == STATUS_OK) {
        check(call, computing, cudaStreamSynchronize(call->streams->run));
    }
    for (int slot = 0; slot < out_slots; ++slot) {
        finish_piece(call, static_cast<int>((call->pieces_out + slot) % out_slots));
    }
    if (call->status.code != STATUS_OK) {
        /* Wait for each, since a wait itself may fail. */
        for (const cudaStream_t stream :
             {call->streams->h2d, call->streams->p2p, call->streams->run, call->streams->d2h}) {
            check(call, computing, cudaStreamSynchronize(stream));
        }
        device_checked(call->device, computing, device_wait());
    }
}

void multiply(Call *call)
{
    if (!fit_panels(call)) {
        return;
    }
    const Panels *const p = &call->panels;
    const int64_t K = call->A.array.cols;
    const int64_t M = call->C.array.rows, N = call->C.array.cols;
    call->overlaps = p->rows < M || p->cols < N || p->depth < K;
    const bool begins = start_sharing(call);
    const int64_t of_b =
        call->symmetric ? 0 : K * N / (call->shared.active ? call->product.team->count : 1);
    const int64_t in = (M * K + of_b + (call->product.beta == 0.0f ? 0 : M * N)) * element;
    /* A chunk costs the host some microseconds, so use few if all of them fit in the queue. */
    call->chunk_bytes = in / few_chunks < least_chunk ? least_chunk : in / few_chunks / 4096 * 4096;
    call->chunk_bytes = call->chunk_bytes < most_chunk ? call->chunk_bytes : most_chunk;
    call->recycles = in > call->chunk_bytes * streams_chunks;
    const size_t staging = static_cast<size_t>(call->chunk_bytes) * streams_chunks;
    if (begins && !alloc_staging(call->device, staging, &call->chunks)) {
        call->status = no_staging(staging);
    } else if (begins) {
        Streams *const streams = call->streams;
        const Streams own = *streams;
        if (!call->overlaps) {
            /* In one stream the work is in order; only the exchange with other GPUs needs
             * events. */
            streams->h2d = streams->p2p = streams->d2h = streams->run;
        }
        add_pieces(call);
        drain(call);
        streams->h2d = own.h2d;
        streams->p2p = own.p2p;
        streams->d2h = own.d2h;
    }
    shared_panels_finish(&call->shared, &call->status);
    free_staging(&call->chunks);
    free_staging(&call->pieces);
    release_panels(call, &call->A);
    release_panels(call, &call->B);
    release_panels(call, &call->C);
}

} // namespace

Status multiply_by_panels(const Product *product, Streams *streams, bool *began)
{
    /* Not on the stack. A thread may end inside a call: a daemon thread does if it checks for
     * signals while the interpreter shuts down. Workers then still run jobs of this call. */
    Call *const call = static_cast<Call *>(calloc(1, sizeof(Call)));
    if (!call) {
        return status_error(STATUS_OUT_OF_MEMORY,
                            "no host memory for the record of a product on a GPU");
    }
    call->product = *product;
    call->device = product->device;
    call->streams = streams;
    call->A = operand_of(&product->A, product->taken[0]);
    call->B = operand_of(&product->B, product->taken[1]);
    call->C.array = product->out;
    multiply(call);
    const Status status = call->status;
    *began = call->steps > 0;
    free(call);
    return status;
}
