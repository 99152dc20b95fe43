/* Shared by the sweeps and ablations: operands, a check of every result against float64, kernel
 * times in round-robin order, and a line of JSON about each kernel. Matrices are n x n and
 * row-major. */
#ifndef SWEEPS_HARNESS_CUH
#define SWEEPS_HARNESS_CUH

#include "launch.h"

#include <algorithm>
#include <cfloat>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

namespace harness {

constexpr double settled_within = 0.01;                    // of the median before
constexpr double warm_up_limit = 1.0, sampling_time = 0.5; // seconds of each kernel
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

/* The product in float64, and the sums of the terms' magnitudes. */
__global__ void multiply(const float *A, const float *B, double *values, double *magnitudes, int n)
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
    values[static_cast<size_t>(row) * n + col] = value;
    magnitudes[static_cast<size_t>(row) * n + col] = magnitude;
}

struct Errors {
    double squared_error, squared_value; // sums over all elements
    unsigned worst;                      // the worst error / bound, as the bits of a float
};

/* Compares C with the product. The bound is that of an inner product in any order: gamma times the
 * sum of the terms' magnitudes. */
__global__ void compare(const float *C, const double *values, const double *magnitudes,
                        unsigned count, double gamma, Errors *errors)
{
    const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) {
        const float c = C[index];
        const double value = values[index], error = fabs(static_cast<double>(c) - value);
        const float share =
            isfinite(c) ? static_cast<float>(error / (gamma * magnitudes[index])) : FLT_MAX;
        atomicAdd(&errors->squared_error, isfinite(c) ? error * error : 0.0);
        atomicAdd(&errors->squared_value, value * value);
        atomicMax(&errors->worst, __float_as_uint(share)); // floats >= 0 are ordered as their bits
    }
}

struct Operands {
    float *A, *B, *C;
};

class Sweep {
  public:
    Sweep(std::vector<Launch> launches, int n) : launches(launches), n(n)
    {
        require(cudaGetDeviceProperties(&gpu, 0), "no GPU");
        const size_t bytes = elements() * sizeof(float);
        sets.resize(1 + 2 * static_cast<size_t>(gpu.l2CacheSize) / (3 * bytes));
        for (Operands &set : sets) {
            require(cudaMalloc(&set.A, bytes), "memory for A");
            require(cudaMalloc(&set.B, bytes), "memory for B");
            require(cudaMalloc(&set.C, bytes), "memory for C");
            fill<<<blocks(), 256>>>(set.A, static_cast<unsigned>(elements()), 1);
            fill<<<blocks(), 256>>>(set.B, static_cast<unsigned>(elements()), 2);
        }
        require(cudaDeviceSynchronize(), "filling A and B");
    }

    /* Multiplies once with each kernel, and compares every element. */
    std::vector<Errors> check()
    {
        const size_t bytes = elements() * sizeof(double);
        double *values, *magnitudes;
        Errors *errors;
        require(cudaMalloc(&values, bytes), "memory for the check");
        require(cudaMalloc(&magnitudes, bytes), "memory for the check");
        require(cudaMallocManaged(&errors, sizeof *errors), "memory for the check");
        const Operands &set = sets[0];
        multiply<<<dim3((n + 127) / 128, n), 128>>>(set.A, set.B, values, magnitudes, n);
        const double gamma = n * 0x1p-24 / (1 - n * 0x1p-24);
        std::vector<Errors> found;
        for (const Launch &launch : launches) {
            *errors = Errors{};
            require(cudaMemset(set.C, 0xff, elements() * sizeof(float)), "filling C with NaN");
            start(launch, set);
            compare<<<blocks(), 256>>>(set.C, values, magnitudes, static_cast<unsigned>(elements()),
                                       gamma, errors);
            require(cudaDeviceSynchronize(), "the check");
            found.push_back(*errors);
        }
        require(cudaFree(values), "the check");
        require(cudaFree(magnitudes), "the check");
        require(cudaFree(errors), "the check");
        return found;
    }

    /* Seconds of each of these kernels, which alternate. Warms up until the medians settle, then
     * samples. `settled` is false if time ran out first. */
    std::vector<std::vector<double>> sample(const std::vector<Launch> &right, bool *settled)
    {
        using clock = std::chrono::steady_clock;
        const clock::time_point begin = clock::now();
        std::vector<double> now = medians(batch(right, 1)), before;
        do {
            before = now;
            now = medians(batch(right, rounds_in(sampling_time / 4, now)));
            *settled = true;
            for (size_t i = 0; i < now.size(); ++i) {
                *settled &= std::fabs(now[i] - before[i]) <= settled_within * before[i];
            }
        } while (!*settled && std::chrono::duration<double>(clock::now() - begin).count() <
                                  warm_up_limit * right.size());
        return batch(right, rounds_in(sampling_time, now));
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
    size_t elements() const
    {
        return static_cast<size_t>(n) * n;
    }
    unsigned blocks() const // of 256 threads, one for each element
    {
        return static_cast<unsigned>((elements() + 255) / 256);
    }

    void start(const Launch &launch, const Operands &set)
    {
        if (launch.start != nullptr) {
            launch.start(launch, set.A, set.B, set.C, n);
        } else {
            launch.kernel<<<launch.grid, launch.block, launch.shared>>>(set.A, set.B, set.C, n);
        }
        require(cudaGetLastError(), "the launch");
    }

    /* The number of rounds that take `seconds` for each kernel. */
    static int rounds_in(double seconds, const std::vector<double> &each)
    {
        const double mean = std::accumulate(each.begin(), each.end(), 0.0) / each.size();
        return std::clamp(static_cast<int>(seconds / mean), fewest_samples, most_samples);
    }

    static std::vector<double> medians(std::vector<std::vector<double>> samples)
    {
        std::vector<double> found;
        for (std::vector<double> &values : samples) {
            std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
            found.push_back(values[values.size() / 2]);
        }
        return found;
    }

    /* Seconds from the end of one launch to the end of the next, for each kernel. All are queued
     * behind a first one, which lasts longer than the queueing of the second, so the host's time
     * stays out. */
    std::vector<std::vector<double>> batch(const std::vector<Launch> &turns, int rounds)
    {
        std::vector<cudaEvent_t> ends(rounds * turns.size() + 1);
        for (size_t i = 0; i < ends.size(); ++i) {
            require(cudaEventCreate(&ends[i]), "an event");
            start(turns[(i + turns.size() - 1) % turns.size()], sets[turn++ % sets.size()]);
            require(cudaEventRecord(ends[i]), "an event");
        }
        require(cudaDeviceSynchronize(), "the kernel");
        std::vector<std::vector<double>> seconds(turns.size());
        for (size_t i = 0; i + 1 < ends.size(); ++i) {
            float milliseconds;
            require(cudaEventElapsedTime(&milliseconds, ends[i], ends[i + 1]), "a time");
            seconds[i % turns.size()].push_back(milliseconds / 1e3);
        }
        for (cudaEvent_t end : ends) {
            cudaEventDestroy(end);
        }
        return seconds;
    }

    std::vector<Launch> launches;
    int n;
    cudaDeviceProp gpu;
    std::vector<Operands> sets; // together larger than twice the L2 cache
    size_t turn = 0;
};

} // namespace harness

/* Checks the kernels, times them round-robin, and prints one line of JSON for each. A wrong result
 * gets no times. Ends the process with status 1 if the GPU reports an error. */
inline void measure(const std::vector<harness::Launch> &launches, int n)
{
    harness::Sweep sweep(launches, n);
    const std::vector<harness::Errors> errors = sweep.check();
    std::vector<float> shares;
    std::vector<harness::Launch> right;
    for (size_t i = 0; i < launches.size(); ++i) {
        float share;
        static_assert(sizeof share == sizeof errors[i].worst, "the bits of a float");
        memcpy(&share, &errors[i].worst, sizeof share);
        shares.push_back(share);
        if (share <= 1.0f) {
            right.push_back(launches[i]);
        }
    }
    bool settled = false;
    std::vector<std::vector<double>> samples;
    if (!right.empty()) {
        samples = sweep.sample(right, &settled);
    }

    int driver = 0;
    harness::require(cudaDriverGetVersion(&driver), "the driver's version");
    const cudaDeviceProp &gpu = sweep.device();
    size_t sampled = 0;
    for (size_t i = 0; i < launches.size(); ++i) {
        const harness::Launch &launch = launches[i];
        const int threads = static_cast<int>(launch.block.x * launch.block.y);
        int resident = 0;
        harness::require(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, launch.kernel,
                                                                       threads, launch.shared),
                         "occupancy");
        printf("{\"device\": \"%s\", \"driver\": \"%d.%d\", \"n\": %d, \"operand_sets\": %zu, ",
               gpu.name, driver / 1000, driver % 1000 / 10, n, sweep.operand_sets());
        printf("\"threads\": %d, \"blocks\": %u, \"resident_blocks\": %d, \"occupancy\": %.6f, ",
               threads, launch.grid.x * launch.grid.y, resident,
               static_cast<double>(resident * threads) / gpu.maxThreadsPerMultiProcessor);
        printf("\"worst_share_of_bound\": %.9g, \"relative_error\": %.9g", shares[i],
               std::sqrt(errors[i].squared_error / errors[i].squared_value));
        if (shares[i] <= 1.0f) {
            printf(", \"settled\": %s, \"samples_s\": [", settled ? "true" : "false");
            const std::vector<double> &seconds = samples[sampled++];
            for (size_t each = 0; each < seconds.size(); ++each) {
                printf("%s%.9g", each ? ", " : "", seconds[each]);
            }
            printf("]");
        }
        printf("}\n");
    }
}

#endif
