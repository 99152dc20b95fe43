/* What the sweeps share: operands, a check of every result against float64, kernel times, and one
 * line of JSON about them. Matrices are n x n and row-major. */
#ifndef SWEEPS_HARNESS_CUH
#define SWEEPS_HARNESS_CUH

#include <algorithm>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

typedef void Kernel(const float *A, const float *B, float *C, int n);

namespace harness {

constexpr double settled_within = 0.01;                    // of the median before
constexpr double warm_up_limit = 1.0, sampling_time = 0.5; // seconds
constexpr int fewest_samples = 5, most_samples = 100;

inline void require(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

/* Uniform in [-1, 1): a hash of the index (the finalizer of MurmurHash3). */
__global__ void fill(float *X, unsigned count, unsigned seed)
{
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) {
        unsigned x = index + seed * 0x9e3779b9u;
        x = (x ^ (x >> 16)) * 0x85ebca6bu;
        x = (x ^ (x >> 13)) * 0xc2b2ae35u;
        x ^= x >> 16;
        X[index] = static_cast<float>(x >> 8) * 0x1p-23f - 1.0f;
    }
}

struct Errors {
    double squared_error, squared_value; // sums over all elements
    unsigned worst;                      // share of its bound, as the bits of a float
};

/* Compares C with A @ B in float64. The bound is that of an inner product in any order:
 * gamma(n) times the sum of the terms' magnitudes. */
__global__ void compare(const float *A, const float *B, const float *C, int n, double gamma,
                        Errors *errors)
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y;
    if (col >= n) {
        return;
    }
    double value = 0.0, magnitude = 0.0;
    for (int k = 0; k < n; ++k) {
        const double term = static_cast<double>(A[static_cast<size_t>(row) * n + k]) *
                            static_cast<double>(B[static_cast<size_t>(k) * n + col]);
        value += term;
        magnitude += fabs(term);
    }
    const float c = C[static_cast<size_t>(row) * n + col];
    const double error = fabs(static_cast<double>(c) - value);
    const float share = isfinite(c) ? static_cast<float>(error / (gamma * magnitude)) : FLT_MAX;
    atomicAdd(&errors->squared_error, isfinite(c) ? error * error : 0.0);
    atomicAdd(&errors->squared_value, value * value);
    atomicMax(&errors->worst, __float_as_uint(share)); // floats >= 0 are ordered as their bits
}

struct Operands {
    float *A, *B, *C;
};

class Sweep {
  public:
    Sweep(Kernel *kernel, dim3 grid, dim3 block, int n)
        : kernel(kernel), grid(grid), block(block), n(n)
    {
        require(cudaGetDeviceProperties(&gpu, 0), "no GPU");
        const size_t elements = static_cast<size_t>(n) * n, bytes = elements * sizeof(float);
        sets.resize(1 + 2 * static_cast<size_t>(gpu.l2CacheSize) / (3 * bytes));
        const unsigned blocks = static_cast<unsigned>((elements + 255) / 256);
        for (Operands &set : sets) {
            require(cudaMalloc(&set.A, bytes), "memory for A");
            require(cudaMalloc(&set.B, bytes), "memory for B");
            require(cudaMalloc(&set.C, bytes), "memory for C");
            fill<<<blocks, 256>>>(set.A, static_cast<unsigned>(elements), 1);
            fill<<<blocks, 256>>>(set.B, static_cast<unsigned>(elements), 2);
            require(cudaMemset(set.C, 0xff, bytes), "filling C with NaN");
        }
        require(cudaDeviceSynchronize(), "filling A and B");
    }

    /* Multiplies once, and compares every element. */
    Errors check()
    {
        Errors *errors;
        require(cudaMallocManaged(&errors, sizeof *errors), "memory for the check");
        *errors = Errors{};
        launch(sets[0]);
        const double gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
        compare<<<dim3((n + 127) / 128, n), 128>>>(sets[0].A, sets[0].B, sets[0].C, n, gamma,
                                                   errors);
        require(cudaDeviceSynchronize(), "the check");
        const Errors found = *errors;
        require(cudaFree(errors), "the check");
        return found;
    }

    /* Warms up until the median settles, then samples. `settled` is false if time ran out first. */
    std::vector<double> sample(bool *settled)
    {
        using clock = std::chrono::steady_clock;
        const clock::time_point begin = clock::now();
        double now = median(batch(1)), before;
        do {
            before = now;
            now = median(batch(samples_in(sampling_time / 4, now)));
            *settled = std::fabs(now - before) <= settled_within * before;
        } while (!*settled &&
                 std::chrono::duration<double>(clock::now() - begin).count() < warm_up_limit);
        return batch(samples_in(sampling_time, now));
    }

    const cudaDeviceProp &device() const
    {
        return gpu;
    }
    size_t operand_sets() const
    {
        return sets.size();
    }

  private:
    void launch(const Operands &set)
    {
        kernel<<<grid, block>>>(set.A, set.B, set.C, n);
        require(cudaGetLastError(), "the launch");
    }

    static int samples_in(double seconds, double each)
    {
        return std::clamp(static_cast<int>(seconds / each), fewest_samples, most_samples);
    }

    static double median(std::vector<double> values)
    {
        std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
        return values[values.size() / 2];
    }

    /* Seconds from the end of one launch to the end of the next. All are queued behind a first one,
     * which lasts longer than the queueing of the second, so the host's time stays out. */
    std::vector<double> batch(int count)
    {
        std::vector<cudaEvent_t> ends(count + 1);
        for (int i = 0; i <= count; ++i) {
            require(cudaEventCreate(&ends[i]), "an event");
            launch(sets[turn++ % sets.size()]);
            require(cudaEventRecord(ends[i]), "an event");
        }
        require(cudaDeviceSynchronize(), "the kernel");
        std::vector<double> seconds(count);
        for (int i = 0; i < count; ++i) {
            float milliseconds;
            require(cudaEventElapsedTime(&milliseconds, ends[i], ends[i + 1]), "a time");
            seconds[i] = milliseconds / 1e3;
        }
        for (cudaEvent_t end : ends) {
            cudaEventDestroy(end);
        }
        return seconds;
    }

    Kernel *kernel;
    dim3 grid, block;
    int n;
    cudaDeviceProp gpu;
    std::vector<Operands> sets; // together larger than twice the L2 cache
    size_t turn = 0;
};

} // namespace harness

/* Checks and times the kernel, and prints what came of it as one JSON object. A wrong result gets
 * no times. Ends the process with status 1 if the GPU reports an error. */
inline void measure(Kernel *kernel, dim3 grid, dim3 block, int n)
{
    harness::Sweep sweep(kernel, grid, block, n);
    const harness::Errors errors = sweep.check();
    float share;
    static_assert(sizeof share == sizeof errors.worst, "the bits of a float");
    std::copy_n(reinterpret_cast<const char *>(&errors.worst), sizeof share,
                reinterpret_cast<char *>(&share));

    const int threads = static_cast<int>(block.x * block.y);
    int resident = 0, driver = 0;
    harness::require(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0),
                     "occupancy");
    harness::require(cudaDriverGetVersion(&driver), "the driver's version");
    const cudaDeviceProp &gpu = sweep.device();
    printf("{\"device\": \"%s\", \"driver\": \"%d.%d\", \"n\": %d, \"operand_sets\": %zu, ",
           gpu.name, driver / 1000, driver % 1000 / 10, n, sweep.operand_sets());
    printf("\"threads\": %d, \"blocks\": %u, \"resident_blocks\": %d, \"occupancy\": %.6f, ",
           threads, grid.x * grid.y, resident,
           static_cast<double>(resident * threads) / gpu.maxThreadsPerMultiProcessor);
    printf("\"worst_share_of_bound\": %.9g, \"relative_error\": %.9g", share,
           std::sqrt(errors.squared_error / errors.squared_value));
    if (share <= 1.0f) {
        bool settled;
        const std::vector<double> seconds = sweep.sample(&settled);
        printf(", \"settled\": %s, \"samples_s\": [", settled ? "true" : "false");
        for (size_t i = 0; i < seconds.size(); ++i) {
            printf("%s%.9g", i ? ", " : "", seconds[i]);
        }
        printf("]");
    }
    printf("}\n");
}

#endif
