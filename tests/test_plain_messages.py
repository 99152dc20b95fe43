"""Plain kernels that cannot be judged as they are: each message says why, and its advice works."""

import ast
import re
from pathlib import Path

import pytest

import sgemm_kernels as sk
from sgemm_kernels.custom import hints
from sgemm_kernels.custom.cases import Tile, shared_out
from sgemm_kernels.custom.compiler import Source
from sgemm_kernels.custom.diagnosis import Finding
from sgemm_kernels.custom.failures import placed
from sgemm_kernels.custom.load import name_fault
from sgemm_kernels.custom.plain import PlainLaunch

from .support import with_header

ABC = "float *A, float *B, float *C, "


def source_of(text, path=Path("mine.cu"), *, grid="M*N", block=1, defines=None, **launch):
    return Source(path, text, defines or {}, launch=PlainLaunch.of(grid, block, **launch))


def roles(parameters, before="", **launch):
    text = f"{before}__global__ void mm({parameters})\n{{\n}}\n"
    found = source_of(text, **launch).plain.parameters
    return [p.role or (p.value if isinstance(p.value, float) else p.value.text) for p in found]


@pytest.mark.parametrize(
    ("parameters", "before", "message"),
    [
        ("float A[N][N], float B[N][N], float C[N][N]", "", "'float A[N][N]' is not supported"),
        ("float (*A)[64], float *B, float *C, int n", "", "'float (*A)[64]' is not supported"),
        ("float (*f)(float), " + ABC + "int n", "", "'float (*f)(float)' is not supported"),
        (
            "Params p, " + ABC + "int n",
            "struct Params { int n; };\n",
            "'Params p' is not supported",
        ),
        ("Matrix A, Matrix B, Matrix C", "", "flat pointers, such as float *A with A[row * K +"),
        ("float **A, float *B, float *C, int n", "", "'float **A' is not supported"),
        (
            "const Packed<float, 2> A, float *B, float *C, int n",
            "",
            "'const Packed<float, 2> A' is not supported",
        ),
        (ABC + "int &n", "", "'int &n' is not supported"),
        (ABC + "int n, float4 v", "", "'float4 v' is not supported"),
        (ABC + "int n, dim3 size", "", "'dim3 size' is not supported"),
        ("std::vector<float> A, " + ABC + "int n", "", "'std::vector<float> A' is not supported"),
        ("const float *alpha, " + ABC + "int n", "", "alpha is passed by value: write float alpha"),
        ("float *, float *, float *, int", "", "'float *' has no name"),
        ("float *A, float *C, int n", "", "has 2 pointers to matrices, and a product needs three"),
        ("double *A, float *B, float *C, int n", "", "write float (or float2, float4) in its type"),
        ("real *A, real *B, real *C, int n", "typedef double real;\n", "is no pointer to float"),
        ("T *A, T *B, T *C, int n", "template <class T = double>\n", "is no pointer to float"),
        (ABC + "int *lock, int n", "", "or pass arguments={'lock': None} for a null pointer"),
        (ABC + "const float *bias, int n", "", "arguments={'bias': None}"),
        (ABC + "int n, float gamma", "", "arguments={'gamma': 'alpha'}"),
        (ABC + "int n, int step", "", "arguments={'step': 'K'}"),
        (ABC + "int n, bool turned", "", "arguments={'turned': 0}"),
        ("float *A, float *B, float *C, float *D, int n", "", "arguments={'D': None}"),
    ],
)
def test_a_parameter_that_is_not_supported_is_named_and_the_advice_works(
    parameters, before, message
):
    with pytest.raises(ValueError, match=r"^mine\.cu:[12]: ") as caught:
        roles(parameters, before)
    assert message in str(caught.value)
    advised = re.search(r"arguments=(\{[^}]*\})", str(caught.value))
    if advised:
        roles(parameters, before, arguments=ast.literal_eval(advised[1]))


@pytest.mark.parametrize(
    ("parameters", "before", "right"),
    [
        ("real *A, real *B, real *C, real alpha, idx n", "typedef float real; using idx = int;\n",
         "A B C alpha N"),
        ("REAL *A, REAL *B, REAL *C, int n", "#define REAL float\n", "A B C N"),
        ("T *A, T *B, T *C, int n", "template <typename T>\n", "A B C N"),
        ("float A[64 * 64], float B[], float C[M*N], int n", "", "A B C N"),
        ("[[maybe_unused]] int M, int N, int K, float *A, float *B, float *C", "", "M N K A B C"),
        ("std::size_t m, std::size_t n, std::size_t k, float *a, float *b, float *c", "",
         "M N K A B C"),
    ],
)  # fmt: skip
def test_types_have_other_names(parameters, before, right):
    assert roles(parameters, before) == right.split()


def test_a_pointer_can_be_null_and_a_scalar_cannot():
    for value in (None, "None", "nullptr"):
        found = roles(ABC + "float *bias, int n", arguments={"bias": value})
        assert found == ["A", "B", "C", "null", "N"]
    with pytest.raises(ValueError, match="only a pointer can be null"):
        roles(ABC + "int n, int step", arguments={"step": None})


KERNEL = """\
__global__ void mm(const float *A, const float *B, float *C, int M, int N, int K)
{
    C[0] = TILE * twice(A[0]);
}
"""
OTHERS = """\
#include <mma.h>
using namespace nvcuda;
using namespace cooperative_groups;
texture<float, 2, cudaReadModeElementType> tex;
static std::mt19937 rng(42);
static std::ofstream report{"a"};
struct timeval begin_time;
inline int seed = std::time(nullptr);
class Timer {
  public:
    Timer() : start_(0) { gettimeofday(&t, NULL); }
    __device__ float twice(float x) const { return 2 * x; }
    static constexpr int SIZE = 4;
};
struct Failure : public std::runtime_error { using std::runtime_error::runtime_error; };
__device__ float slow(float x) { asm("nop"); return x; }
__global__ void other(float *A, float *B, float *C, int n) { C[n] = tex2D(tex, 0, 0); }
__device__ float twice(float x) { Timer t; return t.twice(x) + Timer::SIZE; }
template <class T> static void check(T error) { if (error) exit(1); }
"""


def test_other_kernels_and_the_hosts_code_are_left_out(tmp_path):
    (tmp_path / "others.cuh").write_text(OTHERS)
    path = tmp_path / "mine.cu"
    source = source_of('#define TILE 3\n#include "others.cuh"\n' + KERNEL, path, function="mm")
    (_, device) = source.texts("c++").values()
    left = " ".join(line for line in device.splitlines() if line.strip() and line[0] != "#")
    assert " ".join(left.split()) == (
        "using namespace cooperative_groups; class Timer { public: "
        "__device__ float twice(float x) const { return 2 * x; } static constexpr int SIZE = 4; }; "
        "__device__ float twice(float x) { Timer t; return t.twice(x) + Timer::SIZE; } "
        + " ".join(KERNEL.split())
    )
    with pytest.raises(sk.CompileError, match=r"others\.cuh:17: error: tex2D: .* lacks textures"):
        source_of(source.text, path, function="other").texts("c++")


def test_the_file_of_a_function_is_named(tmp_path):
    (tmp_path / "kernels.cuh").write_text("// kernels\n__global__ void mm(float **A)\n{\n}\n")
    with pytest.raises(ValueError, match=r"^kernels\.cuh:2: the parameter"):
        source_of('#include "kernels.cuh"\n', tmp_path / "mine.cu").plain  # noqa: B018


def test_defaults_of_a_template_may_be_in_a_namespace():
    text = f"namespace x {{ enum {{ SIZE = 8 }};\ntemplate <int TILE = 2 * SIZE>\n{KERNEL}}}\n"
    assert source_of(text).plain.call == "x::mm<16>"
    assert source_of(text, function="mm<4>").plain.call == "x::mm<4>"


def test_code_of_another_branch_may_lack_anything():
    branches = "#ifdef {}\ntypedef half T;\n#else\ntypedef float T;\n#endif\n#define TILE 1\n"
    text = "#include <cuda_fp16.h>\n" + branches + KERNEL.replace("twice(A[0])", "T(1)")
    assert "typedef half T;" in list(source_of(text.replace("{}", "HALF")).texts("c++").values())[1]
    with pytest.raises(sk.CompileError, match=r"mine\.cu:3: error: half: .* lacks 16-bit"):
        source_of(text.replace("{}", "TILE")).texts("c++")


def test_a_file_name_may_begin_with_a_digit():
    assert name_fault("1_naive") is None
    assert "use letters, digits and _" in name_fault("my-kernel")


def test_global_may_be_in_a_macro():
    text = f'#define ENTRY extern "C" __global__\n{KERNEL.replace("__global__", "ENTRY")}'
    plain = source_of(text).plain
    assert (plain.function.name, plain.function.line) == ("mm", 2)
    text = "#define MAKE(name) __global__ void name(float *A) { *A = 0; }\nMAKE(mm)\n"
    with pytest.raises(ValueError, match="the macro MAKE has one, so write it without the macro"):
        source_of(text).plain  # noqa: B018


def test_a_missing_file_and_a_macro_without_a_value_are_named():
    text = '#include "tile.cuh"\n#include "cuda_runtime.h"\n#include <vector>\n' + KERNEL
    missing = r'mine\.cu includes "tile\.cuh", which is not found here'
    with pytest.raises(ValueError, match=rf"SIZE is neither .*; {missing}$"):
        source_of(text, grid="N/SIZE").texts("c++")
    advice = r"TILE has no value in mine\.cu: pass one, such as defines={'TILE': 16}"
    with pytest.raises(ValueError, match=rf"TILE is neither .*; {advice}$"):
        source_of(text, grid="N/TILE").texts("c++")
    said = "mine.cu:6:12: error: 'TILE' was not declared in this scope"
    left_out = source_of(text).left_out
    assert left_out == ['"tile.cuh"']
    more = '#include "a/b.cu"\n#include <c.hpp>\n#include <stdio.h>\n#include "helper_cuda.h"\n'
    assert hints.left_out(more, {"d.h"}) == ['"a/b.cu"', "<c.hpp>"]
    assert re.search(missing, hints.compile_hint(text, "mine.cu", left_out, said))
    empty = f"#define TILE\n#define GUARD_H\n{KERNEL}"
    assert hints.empty_macros(empty) == ["TILE"]
    with pytest.raises(ValueError, match=advice):
        source_of(empty).texts("c++")
    capital = text.partition("<vector>")[2]  # without the missing file
    assert re.search(advice, hints.compile_hint(capital, "mine.cu", [], said))
    for file in (text, empty):
        given = source_of(file, grid="N/TILE", defines={"TILE": 16})
        assert given.plain.grid[0].at(0, 64, 0) == 4
        (_, device) = given.texts("c++").values()
        assert "#define TILE 16" in device or given.flags() == ["-DTILE=16"]


def test_a_failed_launch_is_at_a_line_of_code():
    text = "// a block has 64 threads, a KernelSpec, scratch_alloc(x)\n" + with_header("naive")
    source = Source(Path("mine.cu"), text)
    for kind, words, line in (
        ("launch failed", "the block has 2048 threads", ".threads = "),
        ("never set", "no kernel was launched", "RUNG("),
    ):
        found = placed(Finding(kind, words), source)
        assert line in text.splitlines()[found.line - 1]
    assert placed(Finding("scratch memory", "not given back"), source).line is None


def test_products_for_kernels_that_share_out_their_work():
    tile = Tile(128, 256, 32)
    counts = {"splitk": 3, "streamk": 3, "tma": 3, "waves": 8, "fused": 8}
    for name, count in counts.items():
        few = shared_out(tile, Source(Path("mine.cu"), sk.source(name)))
        assert {case.multiprocessors for case in few} == {0, 1, count}, name
        assert all(case.M * case.N % 256 for case in few)
        assert any(case.alpha != 1 and case.K > 256 for case in few)
    assert shared_out(tile, Source(Path("mine.cu"), with_header("warptile"))) == []
