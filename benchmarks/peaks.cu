/* What this GPU can do at most: multiply-adds in registers, and a copy in its memory. Prints
 * {"ffma_gflops": ..., "copy_bytes_per_s": ...}; the argument is the number of the GPU.
 * Compiled with nvcc when it is run; see README.md beside it. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

constexpr int threads = 256;
constexpr int chains = 16;     // independent sums: enough to hide the latency of an FFMA
constexpr int steps = 1 << 15; // some milliseconds a launch
constexpr size_t copied = size_t{1} << 30;

__global__ void __launch_bounds__(threads) multiply_add(float *out, float a, float b)
{
    float sum[chains];
    for (int i = 0; i < chains; ++i) {
        sum[i] = static_cast<float>(threadIdx.x + i);
    }
#pragma unroll 8
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int i = 0; i < chains; ++i) {
            sum[i] = fmaf(sum[i], a, b);
        }
    }
    float total = 0.0f;
    for (int i = 0; i < chains; ++i) {
        total += sum[i];
    }
    if (total == 12345.0f) { // never; but the compiler must keep the sums
        *out = total;
    }
}

/* Seconds, median of launches after a warm-up of half a second, during which clocks settle. */
template <typename Launch> double median_seconds(const Launch &launch)
{
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<double> seconds;
    double warm_up = 0.5;
    while (seconds.size() < 25) {
        CHECK(cudaEventRecord(begin));
        launch();
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float milliseconds = 0.0f;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (warm_up > 0) {
            warm_up -= milliseconds / 1e3;
        } else {
            seconds.push_back(milliseconds / 1e3);
        }
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
}

int main(int count, char **arguments)
{
    CHECK(cudaSetDevice(count > 1 ? std::atoi(arguments[1]) : 0));
    int device = 0, multiprocessors = 0, resident = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, multiply_add, threads, 0));
    const int blocks = multiprocessors * resident; // one full wave

    char *from, *to;
    CHECK(cudaMalloc(&from, copied));
    CHECK(cudaMalloc(&to, copied));
    CHECK(cudaMemset(from, 1, copied));

    const double ffma_seconds = median_seconds(
        [&] { multiply_add<<<blocks, threads>>>(reinterpret_cast<float *>(to), 0.999f, 0.001f); });
    const double copy_seconds =
        median_seconds([&] { CHECK(cudaMemcpyAsync(to, from, copied, cudaMemcpyDeviceToDevice)); });
    std::printf("{\"ffma_gflops\": %.1f, \"copy_bytes_per_s\": %.4g}\n",
                2e-9 * blocks * threads * chains * steps / ffma_seconds,
                2.0 * copied / copy_seconds);
    return 0;
}
