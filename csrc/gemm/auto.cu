// `simt` and `auto`: they choose a plan for each product (plan.c) and launch its kernel. `simt`
// uses CUDA cores only; `auto` uses tensor cores if these are estimated to be faster.
// docs/inside/engine.md.
#ifndef SGEMM_TRACED // the traced build counts the rungs
#include "../base/addend.h"
#include "kernel/kernel.h"
#include "launch_portable.h"

#if defined(__CUDACC__) && defined(SGEMM_HIP)
// AMD GPUs lack asynchronous copies to shared memory.
LAUNCHER(simt)
{
    return launch_portable(problem, where);
}

LAUNCHER(auto)
{
    return launch_simt_cuda(problem, where);
}
#else
#ifdef __CUDACC__
#include <atomic>
#else
#include "../emulator/tensor_core_model.h"
#endif

#include "simt/cluster_reduce.h"
#include "small/dot.h"
#include "small/gemv.h"
#include "small/grouped.h"
#include "small/small_batch.h"

/* The rungs that auto and simt launch. */
#ifdef __CUDACC__
extern "C" Launcher launch_tma_cuda;
extern "C" Launcher launch_mma_cuda;
extern "C" Launcher launch_waves_cuda;
extern "C" Launcher launch_fused_cuda;
#define RUNG_LAUNCHER(name) launch_##name##_cuda
#define ON_DEVICE(name) name##_cuda
#else
extern "C" const Variant variant_tma;
extern "C" const Variant variant_mma;
extern "C" const Variant variant_waves;
extern "C" const Variant variant_fused;
#define RUNG_LAUNCHER(name) variant_##name.launch[DEVICE_CPU]
#define ON_DEVICE(name) name##_cpu
#endif

namespace {

typedef Status LaunchTiles(const Sgemm &, const Plan &, const Launch *);

/* The launchers of all tile configurations for operands of one layout. */
#define TILE(BM, BN, BK, WM, WN, TM, TN, SLICES, BLOCKS, SLOTS)                                    \
    launch_tiles_of<Geometry<BM, BN, BK, WM, WN, TM, TN, SLICES, A_K_MAJOR, B_K_MAJOR>, BLOCKS>,
template <bool A_K_MAJOR, bool B_K_MAJOR>
constexpr LaunchTiles *launchers[TILE_COUNT] = {TILES(TILE)};
#undef TILE

/* Launches a plan that the device supports. */
Status launch(const Sgemm *problem, const Launch *where, const Plan *plan)
{
    const Sgemm p = plan->transposed ? sgemm_transposed(problem) : *problem;
    if (plan->kernel == DOT) {
        return launch_dot(problem, where);
    }
    if (plan->kernel == GEMV) {
        const Matrix addend = addend_or(where, &problem->C);
        return launch_gemv(p, plan->transposed ? matrix_transposed(&addend) : addend, plan->splits,
                           plan->width, where);
    }
    const Status copied = addend_copy(where, problem->count);
    if (copied.code != STATUS_OK) {
        return copied;
    }
    if (plan->kernel == STREAMK) {
        return RUNG_LAUNCHER(tma)(problem, where);
    }
    if (plan->kernel == SMALL_BATCH) {
        PlanDevice device;
        const Status status = ON_DEVICE(plan_device)(where, &device);
        return status.code == STATUS_OK ? launch_small_batch(*problem, device, where) : status;
    }
    const bool A_is_k_major = p.A.col_stride == 1, B_is_k_major = p.B.row_stride == 1;
    const auto &of_layout = A_is_k_major
                                ? (B_is_k_major ? launchers<true, true> : launchers<true, false>)
                                : (B_is_k_major ? launchers<false, true> : launchers<false, false>);
    return of_layout[plan->kernel](p, *plan, where);
}

} // namespace

#if defined(__CUDACC__) || !defined(SGEMM_FUSED)
extern "C" Status ON_DEVICE(launch_plan)(const Sgemm *problem, const Launch *where,
                                         const Plan *plan)
{
    return launch(problem, where, plan);
}
#endif

/* ------------------------------------------------------------------ the device */

#ifdef __CUDACC__
typedef Geometry<32, 32, 32, 32, 32, 4, 8, 4, true, true> SmallTile;

/* Ten times the compute capability that the code of tile kernels was compiled for. Below 80 they
 * are empty, and below 90 those with clusters are. */
static int version_of_code()
{
    const auto kernel = reinterpret_cast<const void *>(split_product<SmallTile, 6, CLUSTER>);
    cudaFuncAttributes code = {};
    const bool found = cudaFuncGetAttributes(&code, kernel) == cudaSuccess;
    cudaGetLastError(); // clears the error; the launch reports it again
    return found ? code.ptxVersion : 80;
}

/* The largest cluster that the device runs: less on a part of a GPU (MIG, MPS). */
static int find_widest_cluster()
{
    typedef SmallTile G;
    const auto kernel = reinterpret_cast<const void *>(split_product<G, 6, CLUSTER>);
    for (int blocks = CLUSTER_MOST_BLOCKS; blocks > 1; blocks /= 2) {
        cudaLaunchAttribute attribute = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = dim3(G::threads);
        config.dynamicSmemBytes = sizeof(G::Shared);
        config.attrs = &attribute;
        config.numAttrs = 1;
        int clusters = 0;
        if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess &&
            clusters > 0) {
            return blocks;
        }
        cudaGetLastError();
    }
    return 1;
}

/* What the choice of a plan and of tensor cores depends on. */
struct KnownDevice {
    PlanDevice plan;
    GpuFigures figures;
    char model[sizeof cudaDeviceProp::name]; /* empty if unknown */
};

static GpuFigures figures_of(int device)
{
    GpuFigures found = {};
    const struct {
        int *to;
        cudaDeviceAttr attribute;
    } queries[] = {{&found.capability[0], cudaDevAttrComputeCapabilityMajor},
                   {&found.capability[1], cudaDevAttrComputeCapabilityMinor},
                   {&found.clock, cudaDevAttrClockRate},
                   {&found.memory_clock, cudaDevAttrMemoryClockRate},
                   {&found.memory_bus_bits, cudaDevAttrGlobalMemoryBusWidth},
                   {&found.multiprocessors, cudaDevAttrMultiProcessorCount}};
    for (const auto &query : queries) {
        cudaDeviceGetAttribute(query.to, query.attribute, device);
    }
    return found;
}

/* The constants that were fitted to GPUs of this name; otherwise those of the data sheet. */
static const PlanConstants *constants_of(const KnownDevice &device)
{
    const PlanConstants *const fitted = plan_constants(device.model);
    PlanConstants of_sheet;
    if (fitted != &plan_fitted || !plan_constants_of_sheet(&device.figures, &of_sheet)) {
        return fitted;
    }
    return new PlanConstants(of_sheet); // never freed, like KnownDevice below
}

static KnownDevice describe_device(int device)
{
    const int version = version_of_code();
    KnownDevice found = {};
    found.figures = figures_of(device);
    found.plan.multiprocessors = version >= 80 ? found.figures.multiprocessors : 0;
    found.plan.widest_cluster = version >= 90 ? find_widest_cluster() : 1;
    cudaDeviceGetAttribute(&found.plan.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                           device);
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
        memcpy(found.model, properties.name, sizeof found.model);
    }
    found.plan.constants = constants_of(found);
    cudaGetLastError();
    return found;
}

static const KnownDevice &known_device(int device)
{
    constexpr int most = 64; // cached devices; others are queried for each product
    static std::atomic<const KnownDevice *> known[most];
    if (device >= most) {
        thread_local KnownDevice other;
        other = describe_device(device);
        return other;
    }
    const KnownDevice *found = known[device].load();
    if (!found) {
        const auto *const fresh = new KnownDevice(describe_device(device));
        if (known[device].compare_exchange_strong(found, fresh)) {
            found = fresh;
        } else {
            delete fresh; // another thread was first
        }
    }
    return *found;
}

extern "C" Status plan_device_cuda(const Launch *where, PlanDevice *device)
{
    *device = known_device(where->device).plan;
    return status_ok();
}
#elif !defined(SGEMM_FUSED)
extern "C" Status plan_device_cpu(const Launch *where, PlanDevice *device)
{
    *device = {0, CLUSTER_MOST_BLOCKS, INT32_MAX, &plan_fitted};
    return multiprocessors_of(where, &device->multiprocessors);
}
#endif

/* ------------------------------------------------------------------ simt and auto */

/* Launches a plan. If the device refuses it, launches the plan that always works. */
static Status launch_or_fall_back(const Sgemm *problem, const Launch *where, const Plan &plan,
                                  const PlanDevice &device)
{
    Status status = status_ok();
    if (plan_supports(&plan, problem, &device)) {
        status = launch(problem, where, &plan);
        if (status.code != STATUS_DEVICE && status.code != STATUS_OUT_OF_MEMORY) {
            return status;
        }
    }
    const Plan fallback = plan_fallback();
    const Status then =
        launch_in_parts(problem, where, [&](const Sgemm *part, const Launch *of_part) {
            return launch(part, of_part, &fallback);
        });
    return then.code == STATUS_OK || status.code == STATUS_OK ? then : status;
}

/* The tensor cores that round as the proof of the error bound assumes
 * (docs/inside/tensor_cores.md). */
static TensorCores tensor_cores_of(const Launch *where, const PlanDevice &device)
{
#ifdef __CUDACC__
    const KnownDevice &known = known_device(where->device);
    return plan_tensor_cores(known.model, known.figures.capability, &device);
#else
    (void)where;
    const TensorCoreModel model = cpu_tensor_cores();
    const int capability[] = {model.major, model.minor};
    return plan_tensor_cores(nullptr, capability, &device);
#endif
}

static Status launch_rung(TensorRung rung, const Sgemm *problem, const Launch *where)
{
    Launcher *const launcher = rung == TENSOR_FUSED   ? RUNG_LAUNCHER(fused)
                               : rung == TENSOR_WAVES ? RUNG_LAUNCHER(waves)
                                                      : RUNG_LAUNCHER(mma);
    Launch here = *where;
    here.symmetric = sgemm_is_symmetric(problem);
    if (here.symmetric) { // A is split once
        here.prepared[0] = here.prepared[1] = nullptr;
    }
    return launcher(problem, &here);
}

/* Launches each product of a batch by itself, or all from number `first` on. */
static Status launch_singly(const Sgemm *batch, const Launch *where, const PlanDevice &device,
                            int64_t first)
{
    Addend addend;
    Launch of_rest = addend_part(where, first, &addend);
    Status status = addend_copy(&of_rest, batch->count - first);
    of_rest.addend = nullptr;
    for (int64_t n = first; n < batch->count && status.code == STATUS_OK; ++n) {
        const Sgemm one = part_of_batch(batch, n, 1);
        status = launch_or_fall_back(&one, &of_rest, plan_choose(&one, &device), device);
    }
    return status;
}

static Status launch_on_tensor_cores(const Sgemm *batch, const Launch *where,
                                     const PlanDevice &device, TensorRung rung)
{
    const int64_t most = plan_tensor_batch(rung, batch);
    for (int64_t n = 0; n < batch->count; n += most) {
        const int64_t left = batch->count - n;
        const Sgemm part = part_of_batch(batch, n, left < most ? left : most);
        Addend addend;
        const Launch of_part = addend_part(where, n, &addend);
        const Status status = launch_rung(rung, &part, &of_part);
        if (status.code == STATUS_OUT_OF_MEMORY) { // simt needs less
            return launch_singly(batch, where, device, n);
        }
        if (status.code != STATUS_OK) {
            return status;
        }
    }
    return status_ok();
}

/* Computes a batch in one launch, or each product in a launch of its own if that is estimated to be
 * faster: large products use plans that take the whole GPU. */
static Status multiply_batch(const Sgemm *batch, const Launch *where, const PlanDevice &device,
                             const TensorCores &cores)
{
    const double count = static_cast<double>(batch->count);
    const Sgemm one = part_of_batch(batch, 0, 1);
    const Plan together = plan_choose(batch, &device), singly = plan_choose(&one, &device);
    const double of_one = singly.cycles > launch_cycles ? singly.cycles : launch_cycles;
    const bool is_together = together.cycles < count * of_one;
    const double best = is_together ? together.cycles : count * of_one;
    const TensorRung rung = plan_tensor_rung(best, batch, &cores);
    if (rung != TENSOR_NONE) {
        return launch_on_tensor_cores(batch, where, device, rung);
    }
    if (!is_together) {
        return launch_singly(batch, where, device, 0);
    }
    if (together.kernel == SMALL_BATCH) { // numbers its blocks in one dimension
        return launch_or_fall_back(batch, where, together, device);
    }
    return launch_in_parts(batch, where, [&](const Sgemm *part, const Launch *of_part) {
        return launch_or_fall_back(part, of_part, together, device);
    });
}

static Status multiply_one(const Sgemm *problem, const Launch *where, const PlanDevice &device,
                           const TensorCores &cores)
{
    const Plan plan = plan_choose(problem, &device);
    const TensorRung rung = plan_tensor_rung(plan.cycles, problem, &cores);
    if (rung != TENSOR_NONE) {
        const Status status = launch_rung(rung, problem, where);
        if (status.code != STATUS_OUT_OF_MEMORY) { // simt needs less
            return status;
        }
    }
    return launch_or_fall_back(problem, where, plan, device);
}

static Status multiply(const Sgemm *problem, const Launch *where, bool tensor_cores)
{
    PlanDevice device;
    Status status = ON_DEVICE(plan_device)(where, &device);
    if (status.code != STATUS_OK) {
        return status;
    }
    if (device.multiprocessors == 0) {
        return launch_portable(problem, where);
    }
    const TensorCores cores = tensor_cores ? tensor_cores_of(where, device) : TensorCores{};
    return problem->count > 1 ? multiply_batch(problem, where, device, cores)
                              : multiply_one(problem, where, device, cores);
}

/* ------------------------------------------------------------------ many products */

/* Products that are planned at a time. */
constexpr int planned_together = 512;

/* The products that are computed together with others, sorted by configuration and layouts. */
struct Together {
    GroupedPlan plans[planned_together]; // kernel is -1 if the product is not among them
    double cycles[TILE_COUNT][4];        // the sum of all shares
    double longest[TILE_COUNT][4];       // of all blocks
    int count;
};

static int layout_of(const Sgemm &problem, bool transposed)
{
    const Sgemm p = transposed ? sgemm_transposed(&problem) : problem;
    return 2 * (p.A.col_stride == 1) + (p.B.row_stride == 1);
}

static void add_product(Together *together, const Sgemm &problem, const GroupedPlan &plan)
{
    const int layout = layout_of(problem, plan.transposed);
    double &longest = together->longest[plan.kernel][layout];
    together->cycles[plan.kernel][layout] += plan.share;
    longest = plan.block > longest ? plan.block : longest;
    ++together->count;
}

/* Launches one product for itself if that is estimated to add less time than computing it together
 * with others: a large one on tensor cores or by the rung tma. *launched tells whether it did. */
static Status launch_large(const Sgemm *problem, const Launch *where, const PlanDevice &device,
                           const TensorCores &cores, double cycles, bool *launched)
{
    Plan largest = {};
    largest.kernel = STREAMK;
    largest.splits = 1;
    const double of_largest = plan_supports(&largest, problem, &device)
                                  ? plan_estimate(&largest, problem, &device)
                                  : INFINITY;
    const TensorRung rung =
        plan_tensor_rung(of_largest < cycles ? of_largest : cycles, problem, &cores);
    *launched = true;
    if (rung != TENSOR_NONE) {
        const Status status = launch_rung(rung, problem, where);
        if (status.code != STATUS_OUT_OF_MEMORY) { // simt needs less
            return status;
        }
    }
    *launched = of_largest < cycles;
    return *launched ? launch_or_fall_back(problem, where, largest, device) : status_ok();
}

/* Whether a few products are faster one after the other, each on the whole GPU. */
static bool are_faster_singly(const Sgemm *problems, int count, const Together &together,
                              const PlanDevice &device)
{
    double cycles = 0, singly = 0;
    for (int kernel = 0; kernel < TILE_COUNT; ++kernel) {
        for (int layout = 0; layout < 4; ++layout) {
            const double share = together.cycles[kernel][layout];
            cycles += share > 0 ? device.constants->launch +
                                      overlapped(share, together.longest[kernel][layout])
                                : 0;
        }
    }
    for (int n = 0; n < count && together.count * launch_cycles < cycles && singly < cycles; ++n) {
        if (together.plans[n].kernel >= 0) {
            const double of_one = plan_choose(&problems[n], &device).cycles;
            singly += of_one > launch_cycles ? of_one : launch_cycles;
        }
    }
    return together.count * launch_cycles < cycles && singly < cycles;
}

/* Launches a group. If the device refuses it, launches each product. */
static Status launch_group_or_each(const Group &group, int64_t blocks, int kernel,
                                   const Launch *where, const PlanDevice &device)
{
    const Status status = launch_group(group, blocks, kernel, where);
    if (status.code != STATUS_DEVICE && status.code != STATUS_OUT_OF_MEMORY) {
        return status;
    }
    Status then = status_ok();
    for (int n = 0; n < group.count && then.code == STATUS_OK; ++n) {
        const Sgemm &p = group.problems[n];
        const Sgemm by_rows = p.C.col_stride == 1 ? p : sgemm_transposed(&p);
        then = launch_or_fall_back(&by_rows, where, plan_choose(&by_rows, &device), device);
    }
    return then;
}

/* Launches all products of one configuration and layout. */
static Status launch_together(const Sgemm *problems, int count, const Together &together,
                              int kernel, int layout, const Launch *where, const PlanDevice &device)
{
    Group group = {};
    int64_t blocks = 0;
    Status status = status_ok();
    for (int n = 0; n < count && status.code == STATUS_OK; ++n) {
        const GroupedPlan &plan = together.plans[n];
        if (plan.kernel != kernel || layout_of(problems[n], plan.transposed) != layout) {
            continue;
        }
        const Sgemm p = plan.transposed ? sgemm_transposed(&problems[n]) : problems[n];
        const int64_t tiles = plan_tiles(kernel, p.C.rows, p.C.cols);
        if (group.count == GROUP_MOST || (group.count > 0 && blocks + tiles > INT32_MAX)) {
            status = launch_group_or_each(group, blocks, kernel, where, device);
            group.count = 0;
            blocks = 0;
        }
        group.first[group.count] = static_cast<unsigned>(blocks);
        group.problems[group.count++] = p;
        blocks += tiles;
    }
    return status.code == STATUS_OK && group.count > 0
               ? launch_group_or_each(group, blocks, kernel, where, device)
               : status;
}

static intptr_t bytes_between(const Matrix &X, const Matrix &Y)
{
    return static_cast<intptr_t>(reinterpret_cast<uintptr_t>(Y.data) -
                                 reinterpret_cast<uintptr_t>(X.data));
}

/* Whether a matrix that begins `step` elements behind X leaves no gap. A tile of `fused` may read
 * lines of memory behind the last one of X, which another allocation need not have. */
static bool leaves_no_gap(const Matrix &X, int64_t step)
{
    return step <= X.rows * X.row_stride || step <= X.cols * X.col_stride;
}

/* The products at the begin of a list that are one batch: they differ by their places in memory
 * only, and these are equally far apart. */
static Sgemm batch_of_list(const Sgemm *problems, int count)
{
    constexpr intptr_t size = sizeof(float);
    Sgemm batch = problems[0];
    intptr_t steps[3] = {};
    for (bool belongs = true; belongs && batch.count < count;) {
        const Sgemm &last = problems[batch.count - 1], &next = problems[batch.count];
        belongs = next.alpha == last.alpha && next.beta == last.beta;
        const Matrix *const of_last[] = {&last.A, &last.B, &last.C};
        const Matrix *const of_next[] = {&next.A, &next.B, &next.C};
        for (int i = 0; i < 3; ++i) {
            const intptr_t step = bytes_between(*of_last[i], *of_next[i]);
            steps[i] = batch.count == 1 ? step : steps[i];
            belongs = belongs && matrix_is_alike(of_last[i], of_next[i]) && step == steps[i] &&
                      step % size == 0 && (i == 2 || leaves_no_gap(*of_last[i], step / size));
        }
        batch.count += belongs;
    }
    Matrix *const of_batch[] = {&batch.A, &batch.B, &batch.C};
    for (int i = 0; i < 3; ++i) {
        of_batch[i]->batch_stride = batch.count > 1 ? steps[i] / size : 0;
    }
    return batch;
}

/* Launches the batch at the begin of a list if it is estimated to be faster on tensor cores than
 * together with all `listed` products. *alike: the products of the batch. */
static Status launch_batch(const Sgemm *problems, int count, int listed, const Launch *where,
                           const PlanDevice &device, const TensorCores &cores, int *alike,
                           bool *launched)
{
    const Sgemm batch = batch_of_list(problems, count);
    const double each = plan_in_group(problems, listed, &device).cycles;
    const TensorRung rung =
        batch.count > 1 ? plan_tensor_rung(static_cast<double>(batch.count) * each, &batch, &cores)
                        : TENSOR_NONE;
    *alike = static_cast<int>(batch.count);
    *launched = rung != TENSOR_NONE;
    return *launched ? launch_on_tensor_cores(&batch, where, device, rung) : status_ok();
}

/* Launches groups of different sizes at the begin of a list if that is estimated to be faster than
 * launching each on tensor cores, or all on CUDA cores. *belong: how many groups. */
static Status launch_groups(const Sgemm *problems, int count, int listed, const Launch *where,
                            const PlanDevice &device, const TensorCores &cores, int *belong,
                            bool *launched)
{
    FusedGroups groups;
    *launched = false;
    *belong = plan_groups(problems, count, &cores, &groups);
    if (batch_of_list(problems, count).count >= *belong) {
        return status_ok();
    }
    double others = 0;
    for (int n = 0; n < *belong; ++n) {
        TensorRung rung;
        const double share = tensor_margin * plan_in_group(&problems[n], listed, &device).cycles;
        const double alone = plan_estimate_tensor(&problems[n], &cores, &rung);
        others += alone < share ? alone : share;
    }
    if (groups.cycles >= others) {
        return status_ok();
    }
    const Status status = launch_fused_groups(&groups, where);
    *launched = status.code != STATUS_OUT_OF_MEMORY && status.code != STATUS_DEVICE;
    return *launched ? status : status_ok(); // each product needs less
}

/* Launches a product, or leaves it to a launch of several. */
static Status launch_or_add(const Sgemm &problem, int listed, const Launch *where,
                            const PlanDevice &device, const TensorCores &cores, Together *together,
                            GroupedPlan *plan)
{
    *plan = plan_in_group(&problem, listed, &device);
    bool launched = false;
    const Status status = launch_large(&problem, where, device, cores, plan->cycles, &launched);
    if (!launched && plan->kernel >= 0) {
        add_product(together, problem, *plan);
        return status;
    }
    plan->kernel = -1;
    return launched ? status : multiply_one(&problem, where, device, cores);
}

static Status multiply_planned(const Sgemm *problems, int count, const Launch *where,
                               const PlanDevice &device, const TensorCores &cores)
{
    Together together = {};
    Status status = status_ok();
    for (int n = 0, compared = 0; n < count && status.code == STATUS_OK;) {
        int alike = 1;
        bool launched = false;
        if (n >= compared) { // with groups
            status = launch_groups(problems + n, count - n, count, where, device, cores, &alike,
                                   &launched);
            compared = n + alike;
        }
        if (!launched && status.code == STATUS_OK) {
            status = launch_batch(problems + n, count - n, count, where, device, cores, &alike,
                                  &launched);
        }
        for (const int end = n + alike; n < end && status.code == STATUS_OK; ++n) {
            together.plans[n].kernel = -1;
            if (!launched) {
                status = launch_or_add(problems[n], count, where, device, cores, &together,
                                       &together.plans[n]);
            }
        }
    }
    if (are_faster_singly(problems, count, together, device)) {
        for (int n = 0; n < count && status.code == STATUS_OK; ++n) {
            if (together.plans[n].kernel >= 0) {
                status = multiply_one(&problems[n], where, device, cores);
            }
        }
        return status;
    }
    for (int kernel = 0; kernel < TILE_COUNT; ++kernel) {
        for (int layout = 0; layout < 4 && status.code == STATUS_OK; ++layout) {
            if (together.cycles[kernel][layout] > 0) {
                status = launch_together(problems, count, together, kernel, layout, where, device);
            }
        }
    }
    return status;
}

static Status multiply_many(const Sgemm *problems, int64_t count, const Launch *where,
                            bool tensor_cores)
{
    PlanDevice device;
    Status status = ON_DEVICE(plan_device)(where, &device);
    const bool has_plans = status.code == STATUS_OK && device.multiprocessors > 0;
    const TensorCores cores =
        has_plans && tensor_cores ? tensor_cores_of(where, device) : TensorCores{};
    for (int64_t n = 0; n < count && status.code == STATUS_OK;) {
        const int64_t left = count - n;
        const int part = static_cast<int>(left < planned_together ? left : planned_together);
        if (n > 0 && interrupt_raised(where->interrupt)) {
            return status_error(STATUS_INTERRUPTED, "interrupted");
        }
        status = has_plans ? multiply_planned(problems + n, part, where, device, cores)
                           : multiply(problems + n, where, tensor_cores);
        n += has_plans ? part : 1;
    }
    return status;
}

LAUNCHER(simt)
{
    return multiply(problem, where, false);
}

LAUNCHER(auto)
{
    return multiply(problem, where, true);
}

MANY_LAUNCHER(simt)
{
    return multiply_many(problems, count, where, false);
}

MANY_LAUNCHER(auto)
{
    return multiply_many(problems, count, where, true);
}

WHOLE_BATCH_VARIANT(simt, "on CUDA cores, with the plan estimated to be the fastest", nullptr,
                    KernelSpec{.reads_addend = true}, {7, 5});
WHOLE_BATCH_VARIANT(auto, "on tensor cores if estimated to be faster, otherwise as simt", nullptr,
                    KernelSpec{.reads_addend = true}, {7, 5});
#endif
#endif
