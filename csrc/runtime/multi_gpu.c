#include "multi_gpu.h"

#include "../base/threads.h"
#include "shared_interrupt.h"
#include "workers.h"

typedef struct {
    Product product;
    pthread_t thread;
} Part;

static void *run_part(void *argument)
{
    Part *const part = argument;
    const Product *const product = &part->product;
    const Status status = device_kinds[product->kind]->multiply(product);
    team_leave(product->team, product->member, &status);
    return NULL;
}

static Strided rows_of(const Strided *array, int64_t first, int64_t count)
{
    return strided_part(array, first, 0, count, array->cols);
}

Status multi_gpu_multiply(const Product *product, const int *devices, int count)
{
    count = product->out.rows < count ? (int)product->out.rows : count;
    Part parts[MOST_GPUS];
    SharedInterrupt interrupt = {product->interrupt, false};
    Team team;
    workers_for_gpus(count);
    team_begin(&team, devices, count);
    const int64_t rows = product->out.rows;
    for (int index = 0; index < count; ++index) {
        const int64_t first = rows * index / count, here = rows * (index + 1) / count - first;
        Product *const part = &parts[index].product;
        *part = *product;
        part->device = devices[index];
        part->team = &team;
        part->member = index;
        part->A = rows_of(&product->A, first, here);
        part->out = rows_of(&product->out, first, here);
        if (product->beta != 0.0f) {
            part->C = rows_of(&product->C, first, here);
        }
        part->interrupt = (Interrupt){shared_interrupt_raised, &interrupt};
    }
    int begun = 1;
    while (begun < count &&
           thread_start(&parts[begun].thread, run_part, &parts[begun]).code == STATUS_OK) {
        ++begun;
    }
    if (begun < count) {
        team_work_independently(&team);
    }
    /* The calling thread computes the first part, and every part whose thread did not start. */
    for (int index = 0; index < count; index = index ? index + 1 : begun) {
        parts[index].product.interrupt.poll = shared_interrupt_poll;
        run_part(&parts[index]);
    }
    for (int index = 1; index < begun; ++index) {
        pthread_join(parts[index].thread, NULL);
    }
    team_end(&team);
    if (interrupt.raised) {
        return status_error(STATUS_INTERRUPTED, "interrupted");
    }
    if (team.failed >= 0) {
        return status_error(team.failure.code, GPU_KIND ":%d, one of %d GPUs: %s",
                            devices[team.failed], count, team.failure.message);
    }
    return status_ok();
}
