#include "strided_copy.h"

#include "../element.h"

namespace {

constexpr int side = 32, lines = 8; /* size of a tile; rows of threads in a block */

__device__ char *place(const Strided &X, int64_t row, int64_t col)
{
    return X.data + row * X.row_bytes + col * X.col_bytes;
}

template <class Bits> __device__ bool is_aligned(const char *at)
{
    return reinterpret_cast<uintptr_t>(at) % sizeof(Bits) == 0;
}

template <class Bits> __device__ Bits load(const char *at)
{
    if (is_aligned<Bits>(at)) {
        return *reinterpret_cast<const Bits *>(at);
    }
    Bits bits;
    memcpy(&bits, at, sizeof bits); /* unaligned: byte by byte */
    return bits;
}

template <class Bits> __device__ void store(char *at, Bits bits)
{
    if (is_aligned<Bits>(at)) {
        *reinterpret_cast<Bits *>(at) = bits;
    } else {
        memcpy(at, &bits, sizeof bits);
    }
}

/* The bits of an element, in native byte order and as a float if `as_float`. */
__device__ uint32_t load_element(const char *at, const Strided &from, bool as_float)
{
    if (from.type == ELEMENT_FLOAT32) {
        const uint32_t bits = load<uint32_t>(at);
        return from.swapped ? __byte_perm(bits, 0, 0x0123) : bits;
    }
    const uint32_t loaded = load<uint16_t>(at);
    const auto bits = static_cast<uint16_t>(from.swapped ? __byte_perm(loaded, 0, 0x4401) : loaded);
    return as_float ? float_of_16_bits(bits, from.type) : bits;
}

__device__ void store_element(char *at, const Strided &to, uint32_t bits)
{
    if (to.type == ELEMENT_FLOAT32) {
        store<uint32_t>(at, to.swapped ? __byte_perm(bits, 0, 0x0123) : bits);
    } else {
        store<uint16_t>(at, static_cast<uint16_t>(bits)); /* a copy for a kernel: never swapped */
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
            tile[i][j] = load_element(place(from, first_row + i, first_col + j), from,
                                      to.type == ELEMENT_FLOAT32);
        }
    }
    __syncthreads();
    const bool writes_rows = is_row_major(to);
    for (int line = static_cast<int>(threadIdx.y); line < side; line += lines) {
        const int i = writes_rows ? line : across, j = writes_rows ? across : line;
        if (first_row + i < to.rows && first_col + j < to.cols) {
            store_element(place(to, first_row + i, first_col + j), to, tile[i][j]);
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
