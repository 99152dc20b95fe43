/* Checks products of 16-bit operands: on the CPU device, or, compiled by nvcc, on a GPU of
 * compute capability 9.0. Random sizes, layouts, alignments and kinds of elements, fp16 and bf16.
 * The results must have the bits of the arithmetic in fp16.h: for each 128 steps of K, a sum of
 * steps of 16 that starts at 0, added to a sum in float32; and the sums of K's slices in order.
 * A product with a float32 operand must have the bits of `fused` for both operands in float32.
 *
 *   sixteen_bit [CASES]      100 by default
 *   sixteen_bit time         on a GPU: the speed of bf16 products, B column-major and row-major */
#include "../../csrc/gemm/tensor_cores/direct.cu"
#include "../../csrc/gemm/tensor_cores/fused.cu"
#include "../../csrc/gemm/tensor_cores/mixed.cu"
#include "fp16.h"

namespace {

/* In place of `splitk`, which computes sums of few products. */
__global__ void plain_product(Sgemm p)
{
    const Origin tile = tile_origin(p.C, 1, 1);
    float sum = 0;
    for (int64_t k = 0; k < p.A.cols; ++k) {
        sum = multiply_add(at(p.A, tile.row, k), at(p.B, k, tile.col), sum);
    }
    store(p, tile.row, tile.col, sum);
}

Status launch_plain(const Sgemm *problem, const Launch *where)
{
    const KernelSpec spec = {.symbol = "plain_product", .block_tile = {1, 1, 1}, .threads = {1, 1}};
    return launch_tiles(plain_product, spec, problem, where);
}

} // namespace

#ifdef __CUDACC__
extern "C" Status launch_splitk_cuda(const Sgemm *problem, const Launch *where)
{
    return launch_plain(problem, where);
}
#else
const Variant variant_splitk = {"splitk", "", nullptr, {}, {}, false, 1, {launch_plain, nullptr}};
const Variant variant_per_element = variant_splitk;
#endif

namespace {

#ifdef SGEMM_CHECKED
/* The CPU device looks for static shared memory, and no kernel here has any. */
__attribute__((used)) __shared__ char of_no_kernel[16];
#endif

/* Kinds of bf16 elements. Their exponents are a float's. */
const Kind bf16_kinds[] = {
    {"ordinary", -3, 4, 0, 0, 0, 1, 0, 0, 0},
    {"positive", -3, 4, 0, 0, 0, 1, 0, 0, 1},
    {"wide", -40, 80, 0.1, 0, 0, 1, 0, 0, 0},
    {"any exponent", -133, 260, 0.1, 0, 0, 1, 0, 0, 0},
    {"subnormal beside all", -133, 12, 0.1, 0, 0, 1, 0, 0, 0},
    {"sums that are subnormal", -75, 6, 0.1, 0, 0, 1, 0, 0, 0},
    {"sums that overflow", 60, 6, 0.1, 0, 0, 1, 0, 0, 1},
    {"few terms", -133, 260, 0.9, 0, 0, 1, 0, 0, 0},
    {"not finite", -40, 80, 0.1, 0.002, 0, 1, 0, 0, 0},
};

uint16_t draw(Random &random, const Kind &kind, ElementType element)
{
    if (element == ELEMENT_FLOAT16) {
        return draw_half(random, kind);
    }
    const uint16_t sign = with_odds(random, kind.positive) ? 0 : random() & 0x8000;
    if (with_odds(random, kind.specials)) {
        return static_cast<uint16_t>(sign | 0x7f80 | (random() % 3 ? 0 : random() & 127));
    }
    if (with_odds(random, kind.zeros)) {
        return sign;
    }
    const int exponent = kind.least + static_cast<int>(random() % kind.spread);
    const float magnitude = ldexpf(1.0f + static_cast<float>(random() & 127) / 128.0f, exponent);
    return static_cast<uint16_t>(sign | bits_of_float(magnitude) >> 16);
}

uint16_t *element_16bit(const Matrix &X, int64_t row, int64_t col, unsigned matrix = 0)
{
    return reinterpret_cast<uint16_t *>(X.data) + matrix * X.batch_stride + row * X.row_stride +
           col * X.col_stride;
}

/* Matrices with NaN between their rows or columns, and around them. */
struct Operand {
    Matrix X;
    Shared<uint16_t> memory;

    static constexpr int guard = 64;

    Operand(Random &random, const Kind &kind, ElementType element, int rows, int cols,
            int count = 1)
        : memory(static_cast<size_t>(2 * guard + count * size_of_each(rows, cols)))
    {
        const bool by_columns = random() % 2;
        const int length = by_columns ? rows : cols;
        const int64_t pitch =
            random() % 2 ? (length + 7) / 8 * 8 : length + static_cast<int>(random() % 6);
        const int skew = random() % 4 ? 0 : static_cast<int>(random() % 8);
        const int apart = size_of_each(rows, cols) - (random() % 4 ? 0 : 1);
        for (int i = 0; i < 2 * guard + count * size_of_each(rows, cols); ++i) {
            memory[i] = 0x7fff;
        }
        X = {reinterpret_cast<float *>(memory + guard + skew),
             rows,
             cols,
             by_columns ? 1 : pitch,
             by_columns ? pitch : 1,
             count > 1 && random() % 3 ? apart : 0};
        for (int matrix = 0; matrix < (X.batch_stride == 0 ? 1 : count); ++matrix) {
            for (int i = 0; i < rows * cols; ++i) {
                *element_16bit(X, i / cols, i % cols, static_cast<unsigned>(matrix)) =
                    draw(random, kind, element);
            }
        }
    }
    static int size_of_each(int rows, int cols)
    {
        return ((rows + 16) * (cols + 16) + 7) / 8 * 8;
    }
};

constexpr int chunk_depth = chunk_stages * stage_depth;

/* Where a result is. */
struct Place {
    unsigned matrix; // of the batch
    int row, col;
};

/* The sum of a row of A and a column of B over some steps of K. */
float sum_of_steps(const Operand &A, const Operand &B, bool is_bf16, const Place &at, int first,
                   int end)
{
    float sum = 0;
    for (int begin = first; begin < end; begin += chunk_depth) {
        float part = 0;
        for (int k = begin; k < begin + chunk_depth && k < end; k += 16) {
            uint16_t a[16] = {}, b[16] = {};
            for (int i = 0; i < 16 && k + i < end; ++i) {
                a[i] = *element_16bit(A.X, at.row, k + i, at.matrix);
                b[i] = *element_16bit(B.X, k + i, at.col, at.matrix);
            }
            part = sum_of(a, b, part, is_bf16);
        }
        sum += part;
    }
    return sum;
}

float expected_sum(const Operand &A, const Operand &B, bool is_bf16, const Place &at, int slices)
{
    const int depth = static_cast<int>(A.X.cols), chunks = (depth + chunk_depth - 1) / chunk_depth;
    float sum = 0;
    for (int slice = 0; slice < slices; ++slice) {
        const int end = chunks * (slice + 1) / slices * chunk_depth;
        sum += sum_of_steps(A, B, is_bf16, at, chunks * slice / slices * chunk_depth,
                            end < depth ? end : depth);
    }
    return sum;
}

/* A launcher of this library, or of a plan. */
struct Way {
    bool is_chosen; // by the launcher
    DirectPlan plan;
};

#define TILE(NAME, ROWS, COLS, ...) {ROWS, COLS},
constexpr int tile_sizes[][2] = {DIRECT_TILES(TILE)};
#undef TILE

/* A plan that no planner would choose: any tile, so many slices of K, and any tiles in slices. */
DirectPlan draw_plan(Random &random, const Sgemm &problem)
{
    const int tile = static_cast<int>(random() % (sizeof tile_sizes / sizeof *tile_sizes));
    const int64_t works =
        tiles_of(problem.C, tile_sizes[tile][0], tile_sizes[tile][1]) * problem.count;
    const int slices = 1 + static_cast<int>(random() % DIRECT_MOST_SLICES);
    const int64_t whole = slices == 1 ? works : static_cast<int64_t>(random() % (works + 1));
    const int64_t most = works < 3 ? works : 3, left = works - whole;
    return {tile, slices, left > most ? left : 1 + static_cast<int64_t>(random() % most) + left,
            whole, 0};
}

/* Whether the plan divides K for this result. */
bool is_sliced(const DirectPlan &plan, const Matrix &C, const Place &at)
{
    const int rows = tile_sizes[plan.tile][0], cols = tile_sizes[plan.tile][1];
    const auto tiles = static_cast<unsigned>(tiles_of(C, rows, cols));
    for (unsigned number = 0; number < tiles; ++number) {
        const Origin tile = tile_in_bands(C, rows, cols, number);
        if (tile.row == at.row / rows * rows && tile.col == at.col / cols * cols) {
            return at.matrix * tiles + number >= plan.whole;
        }
    }
    give_up("no tile has the result");
    return false;
}

Status launch_by(const Way &way, const Sgemm &problem, const Launch *where)
{
    if (way.is_chosen) {
#ifdef __CUDACC__
        return launch_direct_cuda(&problem, where);
#else
        return variant_direct.launch[DEVICE_CPU](&problem, where);
#endif
    }
    const auto launch = [&](const Sgemm *loadable) {
        return launch_tiles_of[way.plan.tile](loadable, where, way.plan);
    };
    return problem.A.cols == 0 ? launch(&problem) : with_both_loadable(&problem, where, launch);
}

void wait_for(Status status)
{
#ifdef __CUDACC__
    if (status.code == STATUS_OK && cudaDeviceSynchronize() != cudaSuccess) {
        give_up(cudaGetErrorString(cudaGetLastError()));
    }
#endif
    if (status.code != STATUS_OK) {
        give_up(status.message);
    }
}

/* Computes the product and waits for it. */
void launch(const Way &way, const Sgemm &problem, ElementType element,
            const Addend *addend = nullptr)
{
    Launch where = {};
    where.elements[0] = where.elements[1] = element;
    where.addend = addend;
    wait_for(launch_by(way, problem, &where));
}

/* What the launcher chooses. */
DirectPlan chosen_plan(const Sgemm &problem)
{
    const Launch where = {};
    int multiprocessors;
    if (multiprocessors_to_fill(&where, &multiprocessors).code != STATUS_OK) {
        give_up("the number of multiprocessors is unknown");
    }
    return plan_direct(&problem, multiprocessors);
}

bool same_bits(float x, float y)
{
    return bits_of_float(x) == bits_of_float(y) || (isnan(x) && isnan(y));
}

/* Matrices of small integers. */
struct FloatMatrices {
    Shared<float> memory;
    Matrix X;

    FloatMatrices(Random &random, int count, int rows, int cols)
        : memory(static_cast<size_t>(count * (rows * (cols + 2) + 2)))
    {
        const int64_t pitch = cols + static_cast<int>(random() % 3);
        X = {memory + 0, rows, cols, pitch, 1, rows * pitch + static_cast<int>(random() % 3)};
        for (int i = 0; i < count * (rows * (cols + 2) + 2); ++i) {
            memory[i] = static_cast<float>(random() % 17) - 8.0f;
        }
    }
};

int64_t place_of(const Matrix &X, const Place &at)
{
    return at.matrix * X.batch_stride + at.row * X.row_stride + at.col * X.col_stride;
}

bool passes(Random &random, const Kind &kind, ElementType element, bool large)
{
    const auto size = [&](int most) {
        const int found = 1 + static_cast<int>(random() % most);
        return random() % 2 ? (found + 7) / 8 * 8 : found;
    };
    const int M = size(large ? 300 : 40), N = size(large ? 420 : 40),
              K = random() % 20 ? size(large          ? 300
                                       : random() % 4 ? 600
                                                      : 1500)
                                : 0;
    const int count = random() % 3 ? 1 : 2 + static_cast<int>(random() % 2);
    const Operand A(random, kind, element, M, K, count), B(random, kind, element, K, N, count);
    const float alpha = random() % 2 ? 1.0f : -2.0f, beta = random() % 2 ? 0.0f : 0.5f;
    FloatMatrices C(random, count, M, N), added(random, count, M, N);
    if (random() % 2) { // a bias
        added.X.row_stride = 0;
    } else if (random() % 2) { // the same for all matrices, column-major
        added.X = {added.X.data, M, N, 1, M, 0};
    }
    const Addend addend = {added.X, 0, nullptr, nullptr};
    const bool in_place = random() % 2;
    std::vector<float> old(C.memory + 0, C.memory + count * (M * (N + 2) + 2));
    for (int i = 0; i < static_cast<int>(old.size()) && beta == 0.0f; ++i) {
        C.memory[i] = NAN;
        old[static_cast<size_t>(i)] = NAN;
    }
    const Sgemm problem = {A.X, B.X, C.X, alpha, beta, count};
    const bool is_chosen = random() % 4 == 0;
    const Way way = {is_chosen, is_chosen ? chosen_plan(problem) : draw_plan(random, problem)};
    launch(way, problem, element, in_place ? nullptr : &addend);
    std::vector<float> wanted = old;
    const int step = large ? 7 : 1; // of the results that are compared
    for (int i = 0; i < count * M * N; ++i) {
        const Place at = {static_cast<unsigned>(i / (M * N)), i / N % M, i % N};
        const int64_t place = place_of(C.X, at);
        float &here = wanted[static_cast<size_t>(place)];
        if (i % step != 0) {
            here = C.memory[place];
            continue;
        }
        const int slices = is_sliced(way.plan, C.X, at) ? way.plan.slices : 1;
        const float product = alpha * expected_sum(A, B, element == ELEMENT_BFLOAT16, at, slices);
        const float before = in_place ? here : added.X.data[place_of(added.X, at)];
        here = beta == 0.0f ? product : fmaf(beta, before, product);
    }
    for (int i = 0; i < static_cast<int>(old.size()); ++i) {
        if (!same_bits(C.memory[i], wanted[static_cast<size_t>(i)])) {
            printf("sixteen_bit: %s %s: %d of %d x %d x %d, tile %d, %d slices after %d tiles: "
                   "number %d is %a, not %a\n",
                   element == ELEMENT_BFLOAT16 ? "bf16" : "fp16", kind.name, count, M, N, K,
                   way.plan.tile, way.plan.slices, static_cast<int>(way.plan.whole), i,
                   static_cast<double>(C.memory[i]),
                   static_cast<double>(wanted[static_cast<size_t>(i)]));
            return false;
        }
    }
    return true;
}

/* Elements of B beside a 16-bit A: zeros, and magnitudes far apart in some columns. */
float draw_float(Random &random, int col)
{
    const int spread = col % 5 == 0 ? 60 : 4;
    const float fraction = 1.0f + static_cast<float>(random() % (1 << 23)) * 0x1p-23f;
    return with_odds(random, 0.05) ? 0.0f
                                   : ldexpf(random() % 2 ? fraction : -fraction,
                                            static_cast<int>(random() % spread) - spread / 2);
}

/* A product of a 16-bit A and a float32 B, and the same with both in float32. */
bool passes_mixed(Random &random, const Kind &kind, ElementType element)
{
    const int M = 1 + static_cast<int>(random() % 200), most = 2 * M < 150 ? 2 * M : 150;
    const int N = 1 + static_cast<int>(random() % most),
              K = WGMMA_MIN_K + static_cast<int>(random() % 600);
    const Operand A(random, kind, element, M, K);
    const Shared<float> wide(static_cast<size_t>(M * K)), b(static_cast<size_t>(K * N)),
        C(static_cast<size_t>(2 * M * N));
    for (int i = 0; i < M * K; ++i) {
        const uint16_t x = *element_16bit(A.X, i / K, i % K);
        wide[i] =
            static_cast<float>(element == ELEMENT_FLOAT16 ? value_of_half(x) : value_of_bf16(x));
    }
    for (int i = 0; i < K * N; ++i) {
        b[i] = draw_float(random, i / K);
    }
    for (int i = 0; i < 2 * M * N; ++i) {
        C[i] = static_cast<float>(i % (M * N) % 17);
    }
    Sgemm both = {{wide + 0, M, K, K, 1}, {b + 0, K, N, 1, K}, {C + 0, M, N, N, 1}, 2.0f, 0.5f};
    const Launch where = {};
    Launch of_mixed = {};
    of_mixed.elements[0] = element;
    Sgemm mixed_types = both;
    mixed_types.A = A.X;
    mixed_types.C.data = C + M * N;
    if (random() % 2) { // A.T is the 16-bit operand B
        mixed_types = sgemm_transposed(&mixed_types);
        of_mixed.elements[0] = ELEMENT_FLOAT32;
        of_mixed.elements[1] = element;
    }
#ifdef __CUDACC__
    wait_for(launch_fused_cuda(&both, &where));
    wait_for(launch_mixed_cuda(&mixed_types, &of_mixed));
#else
    wait_for(variant_fused.launch[DEVICE_CPU](&both, &where));
    wait_for(variant_mixed.launch[DEVICE_CPU](&mixed_types, &of_mixed));
#endif
    for (int i = 0; i < M * N; ++i) {
        if (!same_bits(C[i], C[M * N + i])) {
            printf("sixteen_bit: mixed, %s %s: %d x %d x %d: C(%d, %d) is %a, and %a by fused\n",
                   element == ELEMENT_BFLOAT16 ? "bf16" : "fp16", kind.name, M, N, K, i / N, i % N,
                   static_cast<double>(C[M * N + i]), static_cast<double>(C[i]));
            return false;
        }
    }
    return true;
}

/* A subnormal factor beside a large one hides the other products of its step
 * (docs/inside/sixteen_bit.md, "Subnormal factors"). Their loss is at most K * cut * largest, and
 * this input loses 15/16 of that. */
bool loses_what_is_proved(ElementType element)
{
    const bool is_bf16 = element == ELEMENT_BFLOAT16;
    // The least subnormal number; the largest power of two; 1 - u for the format's u; 2^-24
    const uint16_t least = 1, largest = is_bf16 ? (127 + 127) << 7 : (15 + 15) << 10;
    const uint16_t below_one = is_bf16 ? 0x3f7f : 0x3bff, tiny = is_bf16 ? (127 - 24) << 7 : 1;
    const uint16_t a[16] = {least,     below_one, below_one, below_one, below_one, below_one,
                            below_one, below_one, below_one, below_one, below_one, below_one,
                            below_one, below_one, below_one, below_one};
    uint16_t b[16] = {largest};
    const auto value_of = is_bf16 ? value_of_bf16 : value_of_half;
    double exact = 0;
    for (int k = 0; k < 16; ++k) {
        b[k] = k == 0 ? largest : tiny;
        exact += value_of(a[k]) * value_of(b[k]);
    }
    const Shared<uint16_t> memory(2 * 16);
    const Shared<float> C(1);
    memcpy(memory, a, sizeof a);
    memcpy(memory + 16, b, sizeof b);
    const Sgemm problem = {{reinterpret_cast<float *>(memory + 0), 1, 16, 16, 1},
                           {reinterpret_cast<float *>(memory + 16), 16, 1, 1, 16},
                           {C, 1, 1, 1, 1},
                           1.0f,
                           0.0f};
    launch({true, {}}, problem, element);
    const double lost = exact - static_cast<double>(*C), cut = is_bf16 ? 0x1p-151 : 0x1p-39;
    const double most = 16 * cut * value_of(largest);
    if (lost > most || lost < most * 14 / 16) {
        printf("sixteen_bit: a subnormal factor loses %a, and at most %a is proved\n", lost, most);
        return false;
    }
    return true;
}

#ifdef __CUDACC__
/* The median time of a product in ms, with a cold L2 cache. */
float time_of(const Sgemm &problem, void *flushed, size_t bytes)
{
    Launch where = {};
    where.elements[0] = where.elements[1] = ELEMENT_BFLOAT16;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times(21);
    for (float &time : times) {
        cudaMemsetAsync(flushed, 0, bytes);
        cudaEventRecord(begin);
        if (launch_direct_cuda(&problem, &where).code != STATUS_OK) {
            give_up("the product was refused");
        }
        cudaEventRecord(end);
        if (cudaEventSynchronize(end) != cudaSuccess) {
            give_up(cudaGetErrorString(cudaGetLastError()));
        }
        cudaEventElapsedTime(&time, begin, end);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void time_products()
{
    constexpr int sizes[][3] = {{16, 32000, 4096},   {64, 32000, 4096},  {512, 32000, 4096},
                                {2048, 32000, 4096}, {4096, 256, 7168},  {8192, 256, 7168},
                                {2048, 2048, 2048},  {4096, 4096, 4096}, {8192, 8192, 8192}};
    constexpr size_t flushed_bytes = 256 << 20;
    void *flushed;
    cudaMalloc(&flushed, flushed_bytes);
    for (const auto &[M, N, K] : sizes) {
        const int64_t of_a = int64_t{M} * K, of_b = int64_t{K} * N;
        std::vector<uint16_t> values(static_cast<size_t>(of_a + of_b));
        Random random(0);
        constexpr size_t drawn = (1 << 20) + 7; // the others repeat them
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] =
                i < drawn ? draw(random, bf16_kinds[0], ELEMENT_BFLOAT16) : values[i - drawn];
        }
        uint16_t *operands;
        float *C;
        cudaMalloc(&operands, values.size() * sizeof(uint16_t));
        cudaMalloc(&C, static_cast<size_t>(M) * static_cast<size_t>(N) * sizeof(float));
        cudaMemcpy(operands, values.data(), values.size() * sizeof(uint16_t),
                   cudaMemcpyHostToDevice);
        float *const a = reinterpret_cast<float *>(operands);
        float *const b = reinterpret_cast<float *>(operands + of_a);
        const Sgemm by_columns = {{a, M, K, K, 1}, {b, K, N, 1, K}, {C, M, N, N, 1}, 1.0f, 0.0f};
        Sgemm by_rows = by_columns;
        by_rows.B = {b, K, N, N, 1};
        for (const Sgemm &problem : {by_columns, by_rows}) {
            const double ms = static_cast<double>(time_of(problem, flushed, flushed_bytes));
            printf("%d x %d x %d, B %s: %.1f us, %.0f TFLOP/s\n", M, N, K,
                   problem.B.col_stride == 1 ? "row-major" : "column-major", ms * 1e3,
                   2e-9 * M * N * K / ms);
        }
        cudaFree(operands);
        cudaFree(C);
    }
    cudaFree(flushed);
}
#endif

} // namespace

int main(int count, char **arguments)
{
#ifdef __CUDACC__
    if (count > 1 && strcmp(arguments[1], "time") == 0) {
        time_products();
        return 0;
    }
#endif
    const int cases = count > 1 ? atoi(arguments[1]) : 100;
    constexpr int fp16 = sizeof kinds / sizeof *kinds, bf16 = sizeof bf16_kinds / sizeof *kinds;
    int failed[fp16 + bf16] = {}; // of each kind
    for (int i = 0; i < cases; ++i) {
        Random random(static_cast<unsigned>(i));
        const int number = i % (fp16 + bf16);
        const Kind &kind = number < fp16 ? kinds[number] : bf16_kinds[number - fp16];
        const ElementType element = number < fp16 ? ELEMENT_FLOAT16 : ELEMENT_BFLOAT16;
        if (!passes(random, kind, element, i % 8 == 7) ||
            (i % 3 == 0 && !passes_mixed(random, kind, element))) {
            printf("case %d\n", i);
            ++failed[number];
        }
    }
    int all = 0;
    for (int kind = 0; kind < fp16 + bf16; ++kind) {
        all += failed[kind];
        if (failed[kind] > 0) {
            printf("sixteen_bit: %s %s: %d cases failed\n", kind < fp16 ? "fp16" : "bf16",
                   (kind < fp16 ? kinds[kind] : bf16_kinds[kind - fp16]).name, failed[kind]);
        }
    }
    if (all > 0) {
        return 1;
    }
    if (!loses_what_is_proved(ELEMENT_FLOAT16) || !loses_what_is_proved(ELEMENT_BFLOAT16)) {
        return 1;
    }
    printf("sixteen_bit: %d cases\n", cases);
    return 0;
}
