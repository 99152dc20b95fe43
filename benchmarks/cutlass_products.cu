/* Products C = A B of float32 matrices by CUTLASS, with several tiles: on CUDA cores (KERNEL is
 * Simt), or as three TF32 products on tensor cores (ThreeTf32). C is row-major. A and B are both
 * row-major (layout 0), or B (1) or A (2) is column-major. */
#include <cutlass/gemm/device/gemm.h>

#include <tuple>
#include <type_traits>

namespace {

using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
template <int M, int N, int K> using Shape = cutlass::gemm::GemmShape<M, N, K>;
using Bands = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;
template <int WIDTH>
using Store = cutlass::epilogue::thread::LinearCombination<float, WIDTH, float, float>;

template <class Block, class Warp, int STAGES> struct Tile {};

/* Tiles from the lists of CUTLASS's own library for these two kinds of kernels. */
struct Simt {
    using Tiles = std::tuple<
        Tile<Shape<256, 128, 8>, Shape<64, 64, 8>, 4>,
        Tile<Shape<128, 256, 8>, Shape<64, 64, 8>, 4>,
        Tile<Shape<128, 128, 8>, Shape<32, 64, 8>, 5>,
        Tile<Shape<128, 128, 8>, Shape<32, 64, 8>, 4>, Tile<Shape<128, 64, 8>, Shape<64, 32, 8>, 5>,
        Tile<Shape<64, 128, 8>, Shape<32, 64, 8>, 5>, Tile<Shape<64, 64, 8>, Shape<32, 64, 8>, 5>>;
    template <class A, class B, class Block, class Warp, int STAGES>
    using Gemm = cutlass::gemm::device::Gemm<float, A, float, B, float, Rows, float,
                                             cutlass::arch::OpClassSimt, cutlass::arch::Sm80, Block,
                                             Warp, Shape<1, 1, 1>, Store<1>, Bands, STAGES>;
};

struct ThreeTf32 {
    using Tiles = std::tuple<Tile<Shape<128, 128, 16>, Shape<32, 64, 16>, 4>,
                             Tile<Shape<128, 128, 32>, Shape<32, 64, 32>, 3>,
                             Tile<Shape<256, 64, 16>, Shape<64, 32, 16>, 3>,
                             Tile<Shape<64, 256, 16>, Shape<32, 64, 16>, 3>,
                             Tile<Shape<128, 64, 16>, Shape<64, 32, 16>, 3>,
                             Tile<Shape<64, 128, 16>, Shape<32, 64, 16>, 4>,
                             Tile<Shape<64, 64, 16>, Shape<32, 32, 16>, 3>>;
    template <class A, class B, class Block, class Warp, int STAGES>
    using Gemm = cutlass::gemm::device::Gemm<float, A, float, B, float, Rows, float,
                                             cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
                                             Block, Warp, Shape<16, 8, 8>, Store<4>, Bands, STAGES,
                                             4, 4, false, cutlass::arch::OpMultiplyAddFastF32>;
};

using Product = int (*)(const float *, const float *, float *, int, int, int, cudaStream_t);

template <class Gemm>
int product(const float *A, const float *B, float *C, int M, int N, int K, cudaStream_t stream)
{
    constexpr bool a_by_rows = std::is_same_v<typename Gemm::LayoutA, Rows>;
    constexpr bool b_by_rows = std::is_same_v<typename Gemm::LayoutB, Rows>;
    Gemm gemm;
    const typename Gemm::Arguments arguments({M, N, K}, {A, a_by_rows ? K : M},
                                             {B, b_by_rows ? N : K}, {C, N}, {C, N}, {1.0f, 0.0f});
    cutlass::Status status = gemm.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) {
        status = gemm(arguments, nullptr, stream);
    }
    return static_cast<int>(status);
}

template <class Kernel, class Tiles> struct Products;
template <class Kernel, class... Blocks, class... Warps, int... STAGES>
struct Products<Kernel, std::tuple<Tile<Blocks, Warps, STAGES>...>> {
    template <class A, class B>
    static constexpr Product of[] = {
        product<typename Kernel::template Gemm<A, B, Blocks, Warps, STAGES>>...};
    static constexpr int count = sizeof...(STAGES);
};
using Chosen = Products<KERNEL, KERNEL::Tiles>;

const Product *products(int layout)
{
    static constexpr const Product *by_layout[] = {
        Chosen::of<Rows, Rows>, Chosen::of<Rows, Columns>, Chosen::of<Columns, Rows>};
    return by_layout[layout];
}

/* Rounds over all tiles, because the GPU's clock changes meanwhile, and products in each. */
constexpr int ROUNDS = 4, PRODUCTS = 3;

} // namespace

/* Queues a product by the tile of this number. Returns 0 or CUTLASS's error number. */
extern "C" int multiply(const float *A, const float *B, float *C, int M, int N, int K, int layout,
                        int tile, void *stream)
{
    return products(layout)[tile](A, B, C, M, N, K, static_cast<cudaStream_t>(stream));
}

/* The number of the tile with the shortest time for such products, one after the other. -1 if no
 * tile can compute them. The first round warms up. */
extern "C" int fastest(const float *A, const float *B, float *C, int M, int N, int K, int layout)
{
    int best = -1;
    float least_ms = 0.0f;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int round = 0; round < ROUNDS; ++round) {
        for (int tile = 0; tile < Chosen::count; ++tile) {
            int status = 0;
            float ms = 0.0f;
            cudaEventRecord(begin, nullptr);
            for (int i = 0; i < PRODUCTS && status == 0; ++i) {
                status = products(layout)[tile](A, B, C, M, N, K, nullptr);
            }
            cudaEventRecord(end, nullptr);
            if (cudaEventSynchronize(end) == cudaSuccess && status == 0 && round > 0 &&
                cudaEventElapsedTime(&ms, begin, end) == cudaSuccess &&
                (best < 0 || ms < least_ms)) {
                best = tile;
                least_ms = ms;
            }
        }
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}
