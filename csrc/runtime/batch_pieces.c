#include "batch_pieces.h"

#include "../base/threads.h"
#include "shared_interrupt.h"
#include "team.h"

/* The size of a piece: many copies of this size reach the bandwidth of the bus, and the first one
 * does not take long. */
static const double piece_bytes = 1 << 24;

/* Threads take one piece after another. Each GPU has two threads: while a piece of one is computed
 * and copied back, the other gathers and copies the next. */
enum { LANES_OF_GPU = 2 };

typedef struct {
    const Product *product;
    int64_t matrices; /* of a piece */
    int64_t next;     /* the first matrix that no thread has taken */
    SharedInterrupt *interrupt;
    pthread_mutex_t mutex; /* guards the fields below */
    Status failure;
    int failed; /* the device of the failure; -1: none */
} Pieces;

typedef struct {
    Pieces *pieces;
    int device;
    Interrupt interrupt;
    pthread_t thread;
} Lane;

static void *run_lane(void *argument)
{
    const Lane *const lane = argument;
    Pieces *const pieces = lane->pieces;
    const Product *const whole = pieces->product;
    Product part = *whole;
    part.device = lane->device;
    part.interrupt = lane->interrupt;
    for (;;) {
        const int64_t first = __atomic_fetch_add(&pieces->next, pieces->matrices, __ATOMIC_RELAXED);
        if (first >= whole->count || interrupt_raised(&lane->interrupt)) {
            return NULL;
        }
        part.count =
            whole->count - first < pieces->matrices ? whole->count - first : pieces->matrices;
        part.A = strided_in_batch(&whole->A, first);
        part.B = strided_in_batch(&whole->B, first);
        part.C = strided_in_batch(&whole->C, first);
        part.out = strided_in_batch(&whole->out, first);
        const Status status = device_kinds[part.kind]->multiply(&part);
        if (status.code == STATUS_OK) {
            continue;
        }
        pthread_mutex_lock(&pieces->mutex);
        if (pieces->failed < 0 && status.code != STATUS_INTERRUPTED) {
            pieces->failed = lane->device;
            pieces->failure = status;
        }
        pthread_mutex_unlock(&pieces->mutex);
        shared_interrupt_raise(pieces->interrupt);
        return NULL;
    }
}

static double bytes_of(const Strided *array)
{
    return (double)array->rows * (double)array->cols * sizeof(float);
}

/* Starts the lanes after the first, which the calling thread runs, and waits for all. */
static void run_lanes(Lane *lanes, int count)
{
    int begun = 1;
    while (begun < count &&
           thread_start(&lanes[begun].thread, run_lane, &lanes[begun]).code == STATUS_OK) {
        ++begun; /* lanes without a thread leave their pieces to the others */
    }
    run_lane(&lanes[0]);
    for (int index = 1; index < begun; ++index) {
        pthread_join(lanes[index].thread, NULL);
    }
}

Status batch_pieces_multiply(const Product *product, const int *devices, int count)
{
    const double bytes = bytes_of(&product->A) + bytes_of(&product->B) + bytes_of(&product->out);
    const int64_t most = (int64_t)(piece_bytes / bytes), matrices = most > 1 ? most : 1;
    /* A single large product already overlaps its copies. */
    const int lanes_of_gpu = matrices > 1 ? LANES_OF_GPU : 1;
    const int64_t number = (product->count + matrices - 1) / matrices;
    const int lane_count = number < count * lanes_of_gpu ? (int)number : count * lanes_of_gpu;
    SharedInterrupt interrupt = {product->interrupt, false};
    Pieces pieces = {.product = product,
                     .matrices = matrices,
                     .interrupt = &interrupt,
                     .mutex = PTHREAD_MUTEX_INITIALIZER,
                     .failed = -1};
    Lane lanes[MOST_GPUS * LANES_OF_GPU];
    for (int index = 0; index < lane_count; ++index) {
        lanes[index] =
            (Lane){.pieces = &pieces,
                   .device = devices[index % count],
                   .interrupt = {index == 0 ? shared_interrupt_poll : shared_interrupt_raised,
                                 &interrupt}};
    }
    run_lanes(lanes, lane_count);
    pthread_mutex_destroy(&pieces.mutex);
    if (pieces.failed >= 0) {
        return count == 1 ? pieces.failure
                          : status_error(pieces.failure.code, GPU_KIND ":%d, one of %d GPUs: %s",
                                         pieces.failed, count, pieces.failure.message);
    }
    return interrupt.raised ? status_error(STATUS_INTERRUPTED, "interrupted") : status_ok();
}
