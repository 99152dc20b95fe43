#include "shared_panels.h"

#include "../../base/cuda/failures.h"
#include "device_matrix.h"
#include "peers.h"

namespace {

/* Minimum number of bytes that sharing must save on each bus. PCI Express 5.0 x16 takes 33 us for 2
 * MiB; the exchange costs the host some microseconds. */
constexpr double least_saved = 2 << 20;

Lines lines_of(const SharedPanels *shared, int member, int64_t lines)
{
    const int count = shared->team->count;
    const int64_t first = lines * member / count;
    return {first, lines * (member + 1) / count - first};
}

const PanelSlots *slots_of(const SharedPanels *shared, int member)
{
    return static_cast<const PanelSlots *>(shared->team->members[member].offer);
}

bool alike(const PanelSlots *a, const PanelSlots *b)
{
    return a->reaches_all && b->reaches_all && a->slot_bytes == b->slot_bytes &&
           a->held == b->held && a->rounds == b->rounds && a->panel_cols == b->panel_cols &&
           a->panel_rows == b->panel_rows && a->type == b->type;
}

} // namespace

bool shared_panels_wanted(const Product *product)
{
    const Team *const team = product->team;
    return team && sizeof(float) * static_cast<double>(product->B.rows) *
                           static_cast<double>(product->B.cols) * (team->count - 1) >=
                       least_saved * team->count;
}

Status shared_panels_start(const Product *product, const PanelSlots *own, SharedPanels *shared)
{
    *shared = {product->team, product->member, &product->interrupt, *own, false, 0, {}, 0};
    for (int64_t &newest : shared->newest) {
        newest = -1;
    }
    const Team *const team = product->team;
    shared->own.reaches_all = true;
    for (int member = 0; member < team->count && shared->own.reaches_all; ++member) {
        shared->own.reaches_all = member == product->member ||
                                  peers_connect(product->device, team->members[member].device);
    }
    bool together;
    const Status status = team_synchronize(product->team, product->member, &shared->own,
                                           &product->interrupt, &together);
    shared->active = status.code == STATUS_OK && together;
    for (int member = 0; member < team->count && shared->active; ++member) {
        shared->active = alike(slots_of(shared, member), slots_of(shared, 0));
    }
    return status;
}

void shared_panels_finish(SharedPanels *shared, const Status *status)
{
    if (shared->team) {
        if (status->code != STATUS_OK) {
            team_fail(shared->team, shared->member, status);
        }
        team_finish(shared->team, shared->member, shared->interrupt);
    }
}

Lines shared_panels_own(const SharedPanels *shared, int64_t lines)
{
    return lines_of(shared, shared->member, lines);
}

Status shared_panels_begin(SharedPanels *shared, int slot)
{
    /* The others must have read the slot's previous panel, and must be done with the panel whose
     * events this one reuses. */
    const int64_t number = shared->begun++, oldest = number - streams_panels;
    const int64_t before = shared->newest[slot] > oldest ? shared->newest[slot] : oldest;
    shared->newest[slot] = number;
    if (before < 0) {
        return status_ok();
    }
    Team *const team = shared->team;
    Status status = team_wait(team, shared->member, TEAM_COPIED, before + 1, shared->interrupt);
    for (int member = 0; member < team->count && status.code == STATUS_OK; ++member) {
        if (member != shared->member) {
            const Streams *const theirs = slots_of(shared, member)->streams;
            status = device_checked(
                team->members[shared->member].device, "waiting for another GPU",
                cudaStreamWaitEvent(shared->own.streams->h2d,
                                    theirs->shares_copied[before % streams_panels], 0));
        }
    }
    return status;
}

Status shared_panels_exchange(SharedPanels *shared, int slot, const Matrix *there)
{
    Team *const team = shared->team;
    const Streams *const streams = shared->own.streams;
    const bool by_columns = shared->own.by_columns;
    const int64_t lines = by_columns ? there->cols : there->rows;
    const int64_t number = shared->exchanged++;
    const int event = static_cast<int>(number % streams_panels);
    const int device = team->members[shared->member].device;
    Status status = device_checked(device, "copying from the host",
                                   cudaEventRecord(streams->share_loaded[event], streams->h2d));
    if (status.code != STATUS_OK) {
        return status;
    }
    team_set_progress(team, shared->member, TEAM_LOADED, number + 1);
    status = team_wait(team, shared->member, TEAM_LOADED, number + 1, shared->interrupt);
    /* Each GPU starts with its successor, so that they do not all read from the same one. */
    for (int distance = 1; distance < team->count && status.code == STATUS_OK; ++distance) {
        const int member = (shared->member + distance) % team->count;
        const PanelSlots *const theirs = slots_of(shared, member);
        const Lines part = lines_of(shared, member, lines);
        char *const memory = theirs->memory + static_cast<size_t>(slot) * theirs->slot_bytes;
        const ElementType type = shared->own.type;
        const Matrix to = matrix_of_lines(*there, there->data, type, part, by_columns);
        const Matrix from = matrix_of_lines(*there, memory, type, part, by_columns);
        cudaError_t error =
            cudaStreamWaitEvent(streams->p2p, theirs->streams->share_loaded[event], 0);
        error = error == cudaSuccess
                    ? device_matrix_copy(&to, &from, cudaMemcpyDefault, streams->p2p, type)
                    : error;
        status = device_checked(device, "copying between GPUs", error);
    }
    if (status.code == STATUS_OK) {
        cudaError_t error = cudaEventRecord(streams->shares_copied[event], streams->p2p);
        error = error == cudaSuccess
                    ? cudaStreamWaitEvent(streams->run, streams->shares_copied[event], 0)
                    : error;
        status = device_checked(device, "copying between GPUs", error);
    }
    if (status.code == STATUS_OK) {
        team_set_progress(team, shared->member, TEAM_COPIED, number + 1);
    }
    return status;
}
