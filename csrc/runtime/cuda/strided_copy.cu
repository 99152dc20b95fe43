#include "strided_copy.h"

namespace {

constexpr int side = 32, lines = 8; /* size of a tile; rows of threads in a block */

__device__ char *place(const Strided &X, int64_t row, int64_t col)
{
    return X.data + row * X.row_bytes + col * X.col_bytes;
}

__device__ bool is_aligned(const char *at)
{
    return reinterpret_cast<uintptr_t>(at) % sizeof(uint32_t) == 0;
}

__device__ uint32_t load(const char *at)
{
    if (is_aligned(at)) {
        return *reinterpret_cast<const uint32_t *>(at);
    }
    uint32_t bits;
    memcpy(&bits, at, sizeof bits); /* unaligned: byte by byte */
    return bits;
}

__device__ void store(char *at, uint32_t bits)
{
    if (is_aligned(at)) {
        *reinterpret_cast<uint32_t *>(at) = bits;
    } else {
        memcpy(at, &bits, sizeof bits);
    }
}

/* True if neighbours in a row are closer in memory than neighbours in a column. */
__device__ bool is_row_major(const Strided &X)
{
    return llabs(X.col_bytes) <= llabs(X.row_bytes);
}

/* One tile per block, through shared memory: neighbouring threads read and write neighbouring
 * elements whatever the storage order of each matrix. */
__global__ void copy_elements(Strided to, Strided from)
{
    __shared__ uint32_t tile[side][side + 1];
    const int64_t tiles_in_row = (to.cols + side - 1) / side;
    const int64_t first_row = blockIdx.x / tiles_in_row * side;
    const int64_t first_col = blockIdx.x % tiles_in_row * side;
    const int across = static_cast<int>(threadIdx.x);

    const bool reads_rows = is_row_major(from);
    for (int line = static_cast<int>(threadIdx.y); line < side; line += lines) {
        const int i = reads_rows ? line : across, j = reads_rows ? across : line;
        if (first_row + i < from.rows && first_col + j < from.cols) {
            const uint32_t bits = load(place(from, first_row + i, first_col + j));
            tile[i][j] = from.swapped == to.swapped ? bits : __byte_perm(bits, 0, 0x0123);
        }
    }
    __syncthreads();
    const bool writes_rows = is_row_major(to);
    for (int line = static_cast<int>(threadIdx.y); line < side; line += lines) {
        const int i = writes_rows ? line : across, j = writes_rows ? across : line;
        if (first_row + i < to.rows && first_col + j < to.cols) {
            store(place(to, first_row + i, first_col + j), tile[i][j]);
        }
    }
}

/* One thread for each element of C. */
__global__ void combine(Matrix C, Matrix X, float alpha, float beta)
{
    const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t row = index / C.cols, col = index % C.cols;
    if (row < C.rows) {
        float *const c = C.data + row * C.row_stride + col * C.col_stride;
        const float x = X.data ? alpha * X.data[row * X.row_stride + col * X.col_stride] : 0.0f;
        *c = beta == 0.0f ? x : fmaf(beta, *c, x);
    }
}

} // namespace

extern "C" cudaError_t launch_strided_copy(const Strided *to, const Strided *from, void *stream)
{
    const int64_t tiles = ((to->rows + side - 1) / side) * ((to->cols + side - 1) / side);
    if (tiles > INT32_MAX) {
        return cudaErrorInvalidConfiguration;
    }
    copy_elements<<<static_cast<unsigned>(tiles), dim3(side, lines), 0,
                    static_cast<cudaStream_t>(stream)>>>(*to, *from);
    return cudaGetLastError();
}

extern "C" cudaError_t launch_combine(const Matrix *C, const Matrix *X, float alpha, float beta,
                                      void *stream)
{
    constexpr int threads = 256;
    const int64_t blocks = (C->rows * C->cols + threads - 1) / threads;
    if (blocks > INT32_MAX) {
        return cudaErrorInvalidConfiguration;
    }
    combine<<<static_cast<unsigned>(blocks), threads, 0, static_cast<cudaStream_t>(stream)>>>(
        *C, *X, alpha, beta);
    return cudaGetLastError();
}
