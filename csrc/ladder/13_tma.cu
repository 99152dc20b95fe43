// idea      have tiles brought by TMA, a part of the GPU that copies boxes of a matrix by itself: one thread
//           asks for a tile, where in streamk each thread works out its addresses and issues up to 24
//           copies for it. An operand whose neighbours lie across its lines comes as the arithmetic wants
//           it. One whose neighbours run along the depth comes as it lies, and is turned on its way from
//           one place in shared memory to another, four by four floats a thread.
// block     128 x 256 results, 256 threads, warps of 64 x 64, threads of 8 x 16; tiles 128 x 32 and
//           32 x 256, in a pipeline of three stages, and two more of the operand that is turned; 48 deep
//           where none is, and that takes fewer steps and turns.
// traffic   6 / 128 bytes from the L2 cache per multiply-add, 6 / 8 from shared memory, and 8 for
//           each result of a part.
// bound by  issue slots: 6 loads from shared memory for 128 multiply-adds; and power.
// next      mma: tensor cores, which multiply halves fifteen times as fast.
#include "12_streamk.cu"
#include "13_tma.h"

namespace {

/* Of which operand neighbours run along the depth, so that its tiles are turned. */
enum Along { NEITHER, OF_A, OF_B };

/* Barriers of stages, and of the places where tiles lie until they are turned. */
template <int STAGES> struct BoxPipeline {
    Barrier full[STAGES], brought[2];

    /* A stage is full when all threads have turned their parts, and what one of them has asked for is there. */
    __device__ __forceinline__ void begin(int thread, int threads)
    {
        show_to_tma(); // what the block has stored in the same places
        if (thread < STAGES) {
            barrier_begin(full + thread, threads + 1);
        } else if (thread < STAGES + 2) {
            barrier_begin(brought + (thread - STAGES), 1);
        }
        show_to_tma();
        __syncthreads();
    }
    __device__ __forceinline__ void wait(int tile)
    {
        barrier_wait(full + tile % STAGES, tile / STAGES % 2);
    }
};

template <int STAGES>
static __device__ __forceinline__ void end_pipeline(BoxPipeline<STAGES> &pipeline)
{
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < STAGES) {
        barrier_end(pipeline.full + thread);
    } else if (thread < STAGES + 2) {
        barrier_end(pipeline.brought + (thread - STAGES));
    }
}

/* Only what threads write has its rows padded. */
template <Along ALONG, int DEPTH = 32>
struct BoxGeometry : Geometry<128, 256, DEPTH, 64, 64, 8, 16, 3> {
    typedef typename BoxGeometry::Geometry Tiles;
    using Tiles::BM, Tiles::BN, Tiles::BK, Tiles::stages;
    static constexpr Along along = ALONG;
    static constexpr int lda = BM + (ALONG == OF_A ? quad_padding : 0);
    static constexpr int ldb = BN + (ALONG == OF_B ? quad_padding : 0);
    static constexpr int lying_lines = ALONG == OF_A ? BM : ALONG == OF_B ? BN : 1;
    static_assert(ALONG == NEITHER || BK * sizeof(float) == swizzle_bytes,
                  "a line of a tile that is turned is a row of a box");
    static_assert(2 * lying_lines * BK * sizeof(float) % 128 == 0, "TMA brings to such places");
    static_assert(stages >= 3, "tile t + 1 takes the place of tile t - 2, or of an older one");

    struct Shared {
        float lying[2][lying_lines][BK]; // (2, BM or BN, BK), swizzled
        float As[stages][BK][lda];       // (stages, BK, BM)
        float Bs[stages][BK][ldb];       // (stages, BK, BN)
        BoxPipeline<stages> pipeline;
    };
};

/* A product whose operands TMA knows. */
struct TmaProduct {
    StreamProduct s;
    TensorMap a, b;
};

/* Turns this thread's part of a tile: of each 128 lines four, and four floats of each, a chunk. Of eight threads
 * that are served at once each has another chunk, and their quads of lines are of four kinds, chosen so that
 * all read from different banks, and write to different ones. */
template <int LINES, int DEPTH, int LD>
static __device__ __forceinline__ void turn(const float (&from)[LINES][DEPTH],
                                            float (&to)[DEPTH][LD], int thread)
{
    const int x = thread % 4, y = thread / 4 % 2, kind = thread / 8 % 4;
    const int chunk = x + 4 * (y ^ x / 2);
    const int first = (thread / 32 * 4 + ((x / 2 + 2 * y) ^ kind)) * 4;
    UNROLL(LINES / 128)
    for (int next = 0; next < LINES; next += 128) {
        const int line = next + first;
        float lines[4][4];
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            read_quad(lines[i], &from[line + i][(chunk ^ (first + i) % 8) * 4]);
        }
        UNROLL(4)
        for (int k = 0; k < 4; ++k) {
            *reinterpret_cast<float4 *>(&to[chunk * 4 + k][line]) =
                make_float4(lines[0][k], lines[1][k], lines[2][k], lines[3][k]);
        }
    }
}

/* sum += the products of so many of the tiles' steps, of which TMA knows the whole operands: beyond their
 * edges it brings zeros.
 *
 * At tile t the stage of tile t + 1 is filled, which is that of tile t - 2; and tile t + 2 is asked for, to
 * lie where tile t did. A thread arrives at tile t's barrier after it has read tile t - 2, and has turned
 * tile t: who has waited for tile t knows of all threads that they have. Warps take turns to ask. */
template <class G>
KERNEL_BODY void boxes_product(const TmaProduct &q, const Origin &tile, int first, int tiles,
                               const ThreadTile<G> &own, float (&sum)[G::TM][G::TN])
{
    typename G::Shared &shared = dynamic_shared<typename G::Shared>();
#ifdef SGEMM_COUNTED
    name_array("lying", shared.lying, sizeof shared.lying);
#endif
    constexpr bool turns = G::along != NEITHER;
    constexpr int lying = G::along == NEITHER ? 0 : sizeof shared.lying[0];
    constexpr int straight = (G::along == OF_A ? 0 : sizeof(float) * G::BM * G::BK) +
                             (G::along == OF_B ? 0 : sizeof(float) * G::BN * G::BK);
    const int thread = threadIdx.x;
    const int row = static_cast<int>(tile.row), col = static_cast<int>(tile.col);
    const auto bring = [&](int t, int stage) {
        Barrier *const full = shared.pipeline.full + stage;
        const int depth = (first + t) * G::BK;
        barrier_arrive_expecting(full, straight);
        if (G::along != OF_A) {
            bring_box(shared.As[stage], q.a, row, depth, full);
        }
        if (G::along != OF_B) {
            bring_box(shared.Bs[stage], q.b, col, depth, full);
        }
    };
    const auto bring_lying = [&](int t) {
        Barrier *const brought = shared.pipeline.brought + t % 2;
        barrier_arrive_expecting(brought, lying);
        bring_box(shared.lying[t % 2], G::along == OF_A ? q.a : q.b, (first + t) * G::BK,
                  G::along == OF_A ? row : col, brought);
    };
    const auto turn_tile = [&](int t, int stage) {
        barrier_wait(shared.pipeline.brought + t % 2, t / 2 % 2);
        if constexpr (G::along == OF_A) {
            turn(shared.lying[t % 2], shared.As[stage], thread);
        } else if constexpr (G::along == OF_B) {
            turn(shared.lying[t % 2], shared.Bs[stage], thread);
        }
    };

    shared.pipeline.begin(thread, G::threads);
    if (thread == 0) {
        if (turns) {
            bring_lying(0);
        }
        bring(0, 0);
        if (turns && tiles > 1) {
            bring_lying(1);
        }
    }
    if (turns) {
        turn_tile(0, 0);
    }
    barrier_arrive(shared.pipeline.full);
    multiply_tiles<G>(tiles, own, sum, [&](int t, int stage) {
        if (thread == t % (G::threads / 32) * 32) {
            if (t < tiles) {
                bring(t, stage);
            } else {
                barrier_arrive(shared.pipeline.full + stage);
            }
            if (turns && t + 1 < tiles) {
                bring_lying(t + 1);
            }
        }
        if (turns && t < tiles) {
            turn_tile(t, stage);
        }
        barrier_arrive(shared.pipeline.full + stage);
    });
    if (turns) {
        // The loop multiplies the first rows last. By a 1 that the compiler does not know, it need not keep them where a
        // store of quads wants them, but where multiply-adds do: by measured times half a per cent to one is gained.
        int one = 1;
        not_known_before(one);
        UNROLL(2)
        for (int i = 0; i < 2; ++i) {
            UNROLL(G::TN)
            for (int j = 0; j < G::TN; ++j) {
                sum[i][j] *= static_cast<float>(one);
            }
        }
    }
}

template <class G>
__global__ void __launch_bounds__(G::threads, 1) tma(const __grid_constant__ TmaProduct q)
{
#if !defined(__CUDA_ARCH__) || (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200)
    compute_share<G>(q.s, [&](const Origin &tile, int first, int here, float(&sum)[G::TM][G::TN]) {
        // For each tile, since no registers are left to keep what follows from it.
        unsigned thread = threadIdx.x;
        not_known_before(thread);
        boxes_product<G>(q, tile, first, here, ThreadTile<G>(thread), sum);
    });
#else
    (void)q; // never launched: there is no TMA, or no block has so much shared memory
#endif
}

/* ------------------------------------------------------------------ on the host */

/* Whether TMA brings boxes of an operand. */
inline bool has_boxes(const Matrix &X)
{
    const int64_t pitch = X.col_stride == 1 ? X.row_stride : X.col_stride;
    const int64_t bytes = int64_t{1} << 40;
    return is_aligned(X.data) && pitch > 0 && pitch % 4 == 0 &&
           pitch < bytes / static_cast<int64_t>(sizeof(float)) && X.rows > 0 && X.cols > 0 &&
           X.rows <= INT32_MAX && X.cols <= INT32_MAX;
}

/* Of an operand whose rows are lines of tiles, and run along the depth or across it. */
inline Status describe_tiles(TensorMap *map, const Matrix &X, bool along, int lines, int depth)
{
    constexpr int bytes = sizeof(float);
    const auto rows = static_cast<uint64_t>(X.rows), cols = static_cast<uint64_t>(X.cols);
    const auto pitch = static_cast<uint64_t>(along ? X.row_stride : X.col_stride) * bytes;
    return along ? describe_boxes(map, {X.data, cols, rows, pitch, bytes, depth, lines, true})
                 : describe_boxes(map, {X.data, rows, cols, pitch, bytes, lines, depth, false});
}

template <class G> constexpr KernelSpec tma_spec()
{
    KernelSpec spec = spec_of<G>("tma");
    spec.dynamic_bytes = sizeof(Shared<G>);
    return spec;
}

/* Whether the device has TMA, and machine code that knows it. */
inline bool has_tma(const Launch *where)
{
#ifdef __CUDACC__
    typedef void Kernel(TmaProduct);
    return version_of_code<Kernel, tma<BoxGeometry<NEITHER>>>(where->device) > 0;
#else
    (void)where;
    return true;
#endif
}

template <class G>
Status launch_boxes(const Sgemm *problem, const Launch *where, Launcher *otherwise)
{
    constexpr KernelSpec spec = tma_spec<G>();
    if (!has_shared_memory(where, spec)) {
        return otherwise(problem, where);
    }
    TensorMap a, b;
    Status status = describe_tiles(&a, problem->A, G::along == OF_A, G::BM, G::BK);
    if (status.code == STATUS_OK) {
        status = describe_tiles(&b, transposed(problem->B), G::along == OF_B, G::BN, G::BK);
    }
    if (status.code != STATUS_OK) { // the driver has no TMA
        return otherwise(problem, where);
    }
    return launch_shares<G>(problem, where, 1, [&](const StreamProduct &s, int64_t blocks) {
        return launch_blocks(tma<G>, spec, blocks, TmaProduct{s, a, b}, where);
    });
}

/* Steps of K in whole tiles, and one for each turn from tile to tile, which was measured to take as long. */
inline int64_t steps_and_turns(int64_t K, int depth)
{
    return (K + depth - 1) / depth * (depth + 1);
}

/* Where no tile lies in shared memory before it is turned, there is room for deeper ones. */
inline Status launch_straight(const Sgemm *problem, const Launch *where, Launcher *otherwise)
{
    typedef BoxGeometry<NEITHER> G;
    typedef BoxGeometry<NEITHER, 48> Deeper;
    const int64_t K = problem->A.cols;
    const bool deeper = steps_and_turns(K, Deeper::BK) < steps_and_turns(K, G::BK) &&
                        has_shared_memory(where, tma_spec<Deeper>());
    return (deeper ? launch_boxes<Deeper> : launch_boxes<G>)(problem, where, otherwise);
}

/* As streamk, which is `otherwise`, where TMA brings nothing, or would have to bring two operands that are turned: for
 * both there is no room. */
Status launch_by_tma(const Sgemm *problem, const Launch *where, Launcher *otherwise)
{
    const bool along_A = problem->A.col_stride == 1, along_B = problem->B.row_stride == 1;
    if ((along_A && along_B) || !has_boxes(problem->A) || !has_boxes(transposed(problem->B)) ||
        !has_tma(where)) {
        return otherwise(problem, where);
    }
    return (along_A   ? launch_boxes<BoxGeometry<OF_A>>
            : along_B ? launch_boxes<BoxGeometry<OF_B>>
                      : launch_straight)(problem, where, otherwise);
}

} // namespace

#if THIS_RUNG
LAUNCHER(tma)
{
    return launch_by_tma(problem, where, launch_in_shares);
}

VARIANT(tma, "tiles brought by TMA, turned in shared memory where they lie along K", "13_tma.cu",
        tma_spec<BoxGeometry<OF_A>>(), {9, 0});
#endif
