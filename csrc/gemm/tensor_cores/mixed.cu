// idea      a 16-bit operand times a float32 one, as in `fused`. A bf16 number times a power of two
//           is one fp16 number, and so is an fp16 number, so A has no lo part: two products take
//           the place of three. A warpgroup scales and converts A in registers. The bits are those
//           of `fused` for A in float32 with the same slices.
// block     128 x 128 or 128 x 64 results by two consumer warpgroups, and a producer warpgroup;
//           tiles 64 deep, in four or six stages; a thread has 2 x 32 or 2 x 16 results.
// traffic   6 / 128 bytes from the L2 cache per multiply-add. From shared memory 2 / 128 bytes of
//           A, which are read once, and 2 / 64 times 2 bytes of B.
// bound by  memory if C has 64 columns, tensor cores from 256 on.
#include "../plan/fused_plan.h"
#include "copy_rows.h"
#include "fused_slices.h"

namespace {

/* Two consumer warpgroups compute 64 x BN_ results each. A has elements of type ELEMENT. */
template <int BN_, int STAGES, ElementType ELEMENT> struct MixedTile {
    typedef GroupTile<BN_> Group;
    static constexpr ElementType element = ELEMENT;
    static constexpr bool symmetric = false;
    static constexpr int stacked = 1;
    static constexpr int groups = Group::stacked, BM = groups * Group::BM, BN = BN_, BK = k_chunk;
    static constexpr int WM = Group::WM, WN = Group::WN, stages = STAGES;
    static constexpr int threads = groups * Group::threads; // of the consumers
    static constexpr int producers = 128, block_threads = threads + producers;

    struct Shared {
        uint16_t As[stages][BM * BK];             // (BM, 64)
        Fp16x8 Bs[stages][2][BN * block_vectors]; // two K blocks (BN, 32): hi, lo
        Mbarrier full[stages], empty[stages];     // of a stage: loaded, read by all consumers
        Checking<Group> check[groups];
    };

    static constexpr KernelSpec spec()
    {
        KernelSpec found = spec_of_tile<MixedTile>("mixed", block_threads);
        found.reads_addend = true;
        return found;
    }
};

/* ------------------------------------------------------------------ the producer */

/* The producer thread. Its first loads of A need not wait for the kernel that splits B. */
template <class T>
KERNEL_BODY void load_mixed(const FusedProduct &q, const Work &work, typename T::Shared &shared)
{
    constexpr int b_step = swizzle_bytes / static_cast<int>(sizeof(uint16_t)); // of a K block
    const Origin tile = tile_computed<T>(q.product.p.C, work.tile);
    const int row = static_cast<int>(tile.row);
    const int col = static_cast<int>(tile.col + q.product.b.first_row(work.matrix));
    const auto load_a = [&](int chunk, int stage) {
        mbarrier_arrive_expect_tx(shared.full + stage, sizeof shared.As[0] + sizeof shared.Bs[0]);
        tma_load_2d(shared.As[stage], q.a, chunk * k_chunk, row, shared.full + stage);
    };
    const auto load_b = [&](int chunk, int stage) {
        UNROLL(2)
        for (int block = 0; block < 2; ++block) {
            tma_load_2d(shared.Bs[stage][block], q.b, (2 * chunk + block) * b_step, col,
                        shared.full + stage);
        }
    };
    const int filled = work.begin + T::stages < work.end ? work.begin + T::stages : work.end;
    UNROLL(1)
    for (int chunk = work.begin; chunk < filled; ++chunk) {
        load_a(chunk, chunk - work.begin);
    }
    griddep_wait();
    RingPosition<T::stages> to;
    UNROLL(1)
    for (int chunk = work.begin; chunk < filled; ++chunk) {
        load_b(chunk, chunk - work.begin);
        to.advance();
    }
    UNROLL(1)
    for (int chunk = filled; chunk < work.end; ++chunk) {
        mbarrier_wait(shared.empty + to.index, to.parity ^ 1);
        load_a(chunk, to.index);
        load_b(chunk, to.index);
        to.advance();
    }
}

/* ------------------------------------------------------------------ the consumers */

/* A thread's elements of two rows of a K chunk, in the layout of wgmma's A: pairs of 16 bits. */
typedef unsigned RegistersOfA[depths][4];

__device__ __forceinline__ void read_16bit(const uint16_t *As, RegistersOfA &to)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane % 16;
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        ldmatrix_x4(to[d], As + row * k_chunk + swizzled(row, 2 * d + lane / 16) * 8);
    }
}

template <ElementType ELEMENT> __device__ __forceinline__ Pair values_of(unsigned pair)
{
    return {StoredElement<ELEMENT>::value(static_cast<uint16_t>(pair)),
            StoredElement<ELEMENT>::value(static_cast<uint16_t>(pair >> 16))};
}

/* Scales both rows as split_pairs does, and converts them to fp16. */
template <ElementType ELEMENT>
__device__ __forceinline__ void convert(const RegistersOfA &x, RowOfA (&rows)[2],
                                        float (&inverse)[2], RegistersOfA &hi)
{
    float scale[2];
    UNROLL(2)
    for (int r = 0; r < 2; ++r) {
        float largest = 0.0f;
        UNROLL(depths)
        for (int d = 0; d < depths; ++d) {
            largest = larger(larger(largest, values_of<ELEMENT>(x[d][r])),
                             values_of<ELEMENT>(x[d][r + 2]));
        }
        scale[r] = scale_of_chunk(largest, rows[r], inverse[r]);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        UNROLL(4)
        for (int i = 0; i < 4; ++i) {
            const Pair two = values_of<ELEMENT>(x[d][i]);
            hi[d][i] = fp16_pair(two.x * scale[i % 2], two.y * scale[i % 2]);
        }
    }
}

/* part = the product of a K chunk. The order is that of mma. */
template <class T>
__device__ __forceinline__ void begin_chunk(const RegistersOfA &hi,
                                            const Fp16x8 (&Bs)[2][T::BN * block_vectors],
                                            float (&part)[T::Group::NI][4])
{
    const WgmmaFactor b[] = {WgmmaFactor(Bs[0]), WgmmaFactor(Bs[1])};
    const auto at = [&b](int depth, bool low) {
        const int vectors = depth % 2 * 2 + low * lo_offset;
        return b[depth / 2].from_byte(vectors * static_cast<int>(sizeof(Fp16x8)));
    };
    wgmma_fence();
    UNROLL(depths)
    for (int d = depths - 1; d >= 0; --d) {
        wgmma_k16(part, hi[d], at(d, true), d != depths - 1);
    }
    UNROLL(depths)
    for (int d = 0; d < depths; ++d) {
        wgmma_k16(part, hi[d], at(d, false), true);
    }
    wgmma_commit();
}

/* The consumer threads of a warpgroup. A chunk of A is read from shared memory during the previous
 * chunk's products. */
template <class T>
KERNEL_BODY void multiply_mixed(const FusedProduct &q, const Work &work, typename T::Shared &shared)
{
    typedef typename T::Group Group;
    const int group = threadIdx.x / Group::threads, thread = threadIdx.x % Group::threads;
    RingPosition<T::stages> now, ahead; // the stages multiplied and read next
    float sum[1][Group::NI][4] = {};
    RowOfA rows[2] = {};
    RegistersOfA x;
    const auto read_next = [&] {
        mbarrier_wait(shared.full + ahead.index, ahead.parity);
        read_16bit(shared.As[ahead.index], x);
        ahead.advance();
    };
    read_next();
    UNROLL(1)
    for (int chunk = work.begin; chunk < work.end; ++chunk) {
        RegistersOfA hi;
        float inverse[2], part[Group::NI][4];
        convert<T::element>(x, rows, inverse, hi);
        begin_chunk<T>(hi, shared.Bs[now.index], part);
        if (chunk + 1 < work.end) {
            read_next();
        }
        wgmma_wait<0>();
        UNROLL(depths)
        for (int d = 0; d < depths; ++d) {
            wgmma_factor_read(hi[d]);
        }
        if (threadIdx.x % 32 == 0) { // this warp has read the stage
            mbarrier_arrive(shared.empty + now.index);
        }
        add_scaled(part, inverse, sum);
        now.advance();
    }
    griddep_launch_dependents();
    CheckedTile<Group> own(q.product, work.tile * T::groups + group, work.matrix, thread);
    if (work.divided) {
        store_slice<Group>(q, work.part, rows, sum, own);
    } else {
        Checking<Group> &check = shared.check[group];
        scale_rows<Group>(rows, q.chunk_share, sum, own, check);
        own.store_passing(sum, true, check.failing, check.staging);
    }
}

template <class T>
__global__ void __launch_bounds__(T::block_threads, 1) mixed(const __grid_constant__ FusedProduct q)
{
    typename T::Shared &shared = dynamic_shared<typename T::Shared>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < T::stages; ++i) {
            mbarrier_init(shared.full + i, 1);
            mbarrier_init(shared.empty + i, T::threads / 32);
        }
        fence_proxy_async();
    }
    __syncthreads();
    const Work work(q, blockIdx.x);
    if (threadIdx.x < T::threads) {
        setmaxnreg_inc<232>();
        griddep_wait();
        multiply_mixed<T>(q, work, shared);
    } else {
        setmaxnreg_dec<40>();
        if (threadIdx.x == T::threads) {
            load_mixed<T>(q, work, shared);
        }
    }
}

/* ------------------------------------------------------------------ the launch */

template <class T, class Adding>
Status launch_mixed_product(FusedProduct q, const Fp16Product &product, bool overlaps,
                            const Launch *where)
{
    const Sgemm &p = product.p;
    q.product = product;
    Status status = count_work(&q, tiles_of(p.C, T::BM, T::BN));
    if (status.code != STATUS_OK) {
        return status;
    }
    q.chunk_share = static_cast<float>(k_chunk) / static_cast<float>(p.A.cols);
    const int64_t pitch = p.A.rows == 1 ? (p.A.cols + 7) / 8 * 8 : p.A.row_stride;
    const TiledMatrix a = {p.A.data,
                           static_cast<uint64_t>(p.A.cols),
                           static_cast<uint64_t>(p.A.rows),
                           static_cast<uint64_t>(pitch) * sizeof(uint16_t),
                           sizeof(uint16_t),
                           k_chunk,
                           T::BM,
                           true};
    status = encode_tensor_map(&q.b, tiled_matrix(product.b, T::BN));
    if (status.code == STATUS_OK) {
        status = encode_tensor_map(&q.a, a);
    }
    if (status.code == STATUS_OK) {
        status = launch_blocks(mixed<T>, overlapping(T::spec(), overlaps), q.blocks, q, where);
    }
    return status.code == STATUS_OK ? launch_adding<Adding>(q, where) : status;
}

/* add_slices has tiles of ADDED columns. If some tiles are not divided, that is their width, too:
 * `recompute` reads one list for both. */
template <class T, int ADDED>
Status launch_mixed_tile(const Sgemm *problem, const Launch *where, const FusedPlan &plan)
{
    typedef AddingTile<typename T::Group, ADDED> Adding;
    FusedProduct q = {};
    const auto multiply = [&](const Fp16Product &product, int64_t, bool overlaps) {
        return launch_mixed_product<T, Adding>(q, product, overlaps, where);
    };
    q.whole = static_cast<unsigned>(plan.whole);
    q.slices = plan.slices;
    return with_sums<T>(problem, where, &q, [&] {
        return launch_checked<Adding, T::element>(problem, where, multiply, false);
    });
}

/* A has 16 bits, and TMA can load it. */
template <ElementType ELEMENT>
Status launch_loadable_mixed(const Sgemm *problem, const Launch *where)
{
    typedef MixedTile<FUSED_NARROW, 6, ELEMENT> Narrow;
    typedef MixedTile<FUSED_WIDE, 4, ELEMENT> Wide;
    int multiprocessors;
    const Status status = multiprocessors_to_fill(where, &multiprocessors);
    if (status.code != STATUS_OK) {
        return status;
    }
    const FusedPlan plan = plan_fused(problem, false, multiprocessors);
    return (plan.width == FUSED_NARROW ? launch_mixed_tile<Narrow, FUSED_NARROW>
            : plan.whole > 0           ? launch_mixed_tile<Wide, FUSED_WIDE>
                             : launch_mixed_tile<Wide, FUSED_NARROW>)(problem, where, plan);
}

/* A has 16 bits. */
template <ElementType ELEMENT> Status launch_16bit_a(const Sgemm *problem, const Launch *where)
{
    if (tma_can_load_16bit(&problem->A)) {
        return launch_loadable_mixed<ELEMENT>(problem, where);
    }
    return with_rows_copied<uint16_t>(problem->A, 1, where, [&](const Matrix &A) {
        Sgemm copied = *problem;
        copied.A = A;
        return launch_loadable_mixed<ELEMENT>(&copied, where);
    });
}

} // namespace

LAUNCHER(mixed)
{
    const ElementType *const elements = where->elements;
    if ((elements[0] == ELEMENT_FLOAT32) == (elements[1] == ELEMENT_FLOAT32)) {
        return status_error(STATUS_UNSUPPORTED, "mixed multiplies a float32 matrix and one of "
                                                "float16 or bfloat16: convert A or B");
    }
    if (problem->A.cols < WGMMA_MIN_K) {
        return status_error(STATUS_UNSUPPORTED,
                            "mixed multiplies matrices with K of at least %d, but K is %lld: "
                            "convert the 16-bit one, and call auto",
                            WGMMA_MIN_K, static_cast<long long>(problem->A.cols));
    }
    const auto launch = [](ElementType element) {
        return element == ELEMENT_FLOAT16 ? launch_16bit_a<ELEMENT_FLOAT16>
                                          : launch_16bit_a<ELEMENT_BFLOAT16>;
    };
    if (elements[0] != ELEMENT_FLOAT32) {
        return launch(elements[0])(problem, where);
    }
    return launch_swapped(problem, where, launch(elements[1]));
}

ARCHITECTURE_SPECIFIC_VARIANT(mixed, "A or B has 16 bits: converted in registers, and not split",
                              nullptr, (MixedTile<FUSED_WIDE, 4, ELEMENT_BFLOAT16>::spec()),
                              {9, 0});
