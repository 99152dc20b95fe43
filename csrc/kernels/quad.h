/* Four neighbouring floats at a time: what the rungs from vec4 on share.
 *
 * A tile of A is some rows of A, a tile of B some columns of B: *lines*, each a few steps of K
 * deep. Shared memory keeps both as [depth][line], so that four neighbouring lines at one depth
 * are one 16-byte load. In global memory four neighbours run along the depth (row-major A,
 * transposed B) or across the lines (transposed A, row-major B). */
#ifndef SGEMM_KERNELS_QUAD_H
#define SGEMM_KERNELS_QUAD_H

#include "kernel.h"

/* Added to each row of a shared tile: it moves a quad that is stored along the depth, element by
 * element, to banks of its own. A multiple of 4 keeps the rows aligned. */
constexpr int quad_padding = 4;

/* One quad of each of an operand's tiles, from one tile to the next along K: four neighbours in
 * memory. */
struct QuadCursor {
    const float *here;
    int64_t step;     /* to the next tile */
    int line, k;      /* of the quad's first element within the tile */
    bool along_depth; /* whether its elements are neighbours along the depth, or across the lines */
    int count;        /* elements before the operand's last line: 0 to 4 */
    int vector; /* the count that one load can take: 4 if it is aligned, else more than there is */

    /* The quad, with zeros beyond the edges; then goes on to the next tile. `depth` is what is
     * left of K from this tile's beginning on. */
    __device__ __forceinline__ float4 take(int depth)
    {
        const int deep = along_depth ? depth - k : k < depth ? 4 : 0;
        const int left = deep < count ? deep : count;
        const float *const from = here;
        here += step;
        if (left >= vector) {
            return *reinterpret_cast<const float4 *>(from);
        }
        return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f,
                           left > 2 ? from[2] : 0.0f, left > 3 ? from[3] : 0.0f);
    }
};

static __device__ __forceinline__ bool aligned(const float *address)
{
    return reinterpret_cast<uintptr_t>(address) % sizeof(float4) == 0;
}

/* The quad that a thread takes of each tile of LINES x DEPTH, whose first line is first_line. A
 * line is a row of A or a column of B: X is A, or B with rows and columns exchanged. */
template <int LINES, int DEPTH>
static __device__ __forceinline__ QuadCursor quad_cursor(const Matrix &X, int64_t first_line,
                                                         int thread)
{
    static_assert(LINES % 4 == 0 && DEPTH % 4 == 0,
                  "a tile is made of whole quads in both directions");
    QuadCursor q;
    q.along_depth = X.col_stride == 1;
    q.line = q.along_depth ? thread / (DEPTH / 4) : thread % (LINES / 4) * 4;
    q.k = q.along_depth ? thread % (DEPTH / 4) * 4 : thread / (LINES / 4);
    q.here = place(X, first_line + q.line, q.k);
    q.step = DEPTH * X.col_stride;
    const int64_t lines_left = X.rows - first_line - q.line;
    q.count = lines_left <= 0                    ? 0
              : q.along_depth || lines_left >= 4 ? 4
                                                 : static_cast<int>(lines_left);
    q.vector = aligned(q.here) ? 4 : 5; // and so are those of all tiles: DEPTH is a multiple of 4
    return q;
}

static __host__ __device__ __forceinline__ Matrix transposed(const Matrix &X)
{
    return {X.data, X.cols, X.rows, X.col_stride, X.row_stride};
}

/* Puts a quad in its place in a shared tile. */
template <int DEPTH, int ROW>
static __device__ __forceinline__ void put_quad(float (&tile)[DEPTH][ROW], const QuadCursor &q,
                                                float4 quad)
{
    if (q.along_depth) {
        tile[q.k + 0][q.line] = quad.x;
        tile[q.k + 1][q.line] = quad.y;
        tile[q.k + 2][q.line] = quad.z;
        tile[q.k + 3][q.line] = quad.w;
    } else {
        *reinterpret_cast<float4 *>(&tile[q.k][q.line]) = quad;
    }
}

/* Four neighbouring floats of shared memory, by one load. */
static __device__ __forceinline__ void load_quad(float *to, const float *from)
{
    const float4 quad = *reinterpret_cast<const float4 *>(from);
    to[0] = quad.x;
    to[1] = quad.y;
    to[2] = quad.z;
    to[3] = quad.w;
}

/* The values that a thread multiplies at one step of K: quads of a and of b, ROWS and COLS quads
 * apart. */
template <int TM, int TN, int ROWS, int COLS> struct Fragments {
    float a[TM], b[TN];

    /* From this thread's first quads in the shared tiles. */
    __device__ __forceinline__ void load(const float *As, const float *Bs)
    {
        for (int i = 0; i < TM; i += 4) {
            load_quad(a + i, As + i * ROWS);
        }
        for (int j = 0; j < TN; j += 4) {
            load_quad(b + j, Bs + j * COLS);
        }
    }

    /* Adds the products of rows FIRST to LAST - 1. Every other row goes backwards: each
     * multiplication then shares an operand with the one before, which the register file need not
     * deliver again. */
    template <int FIRST = 0, int LAST = TM>
    __device__ __forceinline__ void multiply(float (&sum)[TM][TN]) const
    {
        for (int i = FIRST; i < LAST; ++i) {
            for (int n = 0; n < TN; ++n) {
                const int j = i % 2 ? TN - 1 - n : n;
                sum[i][j] += a[i] * b[j];
            }
        }
    }
};

/* The epilogue for four neighbours in a row of C. */
static __device__ __forceinline__ void store_quad(const Sgemm &p, const Results &C, int row,
                                                  int col, const float *sum)
{
    float *const first = C.first + row * C.ld + col;
    if (row < C.rows && col + 3 < C.cols && aligned(first)) {
        float4 *const c = reinterpret_cast<float4 *>(first);
        const float4 old = p.beta == 0.0f ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *c;
        // Named, since the counting build does not see what a call writes to memory by itself.
        const float4 fresh = make_float4(scaled(p, sum[0], old.x), scaled(p, sum[1], old.y),
                                         scaled(p, sum[2], old.z), scaled(p, sum[3], old.w));
        *c = fresh;
        return;
    }
    for (int j = 0; j < 4; ++j) {
        store(p, C, row, col + j, sum[j]);
    }
}

#endif
