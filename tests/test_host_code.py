"""Device code that uses what only the host has: refused without a compiler for a GPU, too."""

from pathlib import Path

import pytest

import sgemm_kernels as sk
from sgemm_kernels._catalog import KERNEL_FOLDERS
from sgemm_kernels.custom import for_gpu
from sgemm_kernels.custom.compiler import Source
from sgemm_kernels.custom.host_code import HostUse, host_uses
from sgemm_kernels.custom.launch_bounds import with_bounds
from sgemm_kernels.custom.reachable import only_for

from .support import with_header

KERNEL = """\
__global__ void mm(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = threadIdx.x;
    float sum = 0;
    %s
}
"""
ON_DEVICE = {
    "shadowed var": ("float *A, *B, *C;\nint N = 3;\n", "C[row] = A[row] * N;"),
    "const": (
        "const int T = 4; constexpr float half = 0.5f; const float q = 2.0f;\n",
        "C[row] = T * half * q;",
    ),
    "constexpr fn": ("constexpr int f(int n) { return n; }\n", "C[row] = f(3);"),
    "device fn": ("__device__ float f(float x);\n", "C[row] = f(3);"),
    "both": (
        "float f(float x) { return x; }\n__device__ float f(int x) { return x; }\n",
        "C[row] = f(3);",
    ),
    "method": (
        "struct T { float x; __device__ float get() const { return x; } };\n"
        "class Timer { public: Timer() {} void get2() {} };\n",
        "T t; C[row] = t.get();",
    ),
    "lambda local": (
        "float load(float x) { return x; }\n",
        "auto load = [&](int i) { return A[i]; }; C[row] = load(3);",
    ),
    "main": (
        "int main() { std::vector<float> v(3); mm<<<1, 1>>>(0, 0, 0, 1, 1, 1); return 0; }\n",
        "C[row] = 0;",
    ),
    "cg reduce": (
        "float reduce(float *x) { return *x; }\n",
        "C[row] = cg::reduce(tile, sum, cg::plus<float>());",
    ),
    "table const": ("constexpr int table[2] = {1, 2};\n", "C[row] = table[1];"),
    "device var": (
        "__constant__ float w[3];\n__device__ float g = 3;\nstatic __device__ int cnt[4];\n",
        "C[row] = w[row] * g + cnt[row];",
    ),
    "std math": ("", "C[row] = std::sqrt(std::fma(1.0f, 2.0f, 3.0f)) + sizeof(std::size_t);"),
    "macro device": (
        "#define DEV __device__ __forceinline__\nDEV float f(float x) { return x; }\n",
        "C[row] = f(3) + sum * f(2);",
    ),
    "enum": (
        "enum { TWO = 2 }; typedef float T4[4]; using F = float;\n",
        "T4 x; C[row] = TWO; F y = 2;",
    ),
    "template device": (
        "template <typename T, int N> __device__ inline T f(T x) { return x; }\n",
        "C[row] = f<float, 3>(3);",
    ),
    "method same name": (
        "struct Loader { __device__ void load(int) {} };\nvoid load(int) {}\n",
        "Loader l; l.load(3);",
    ),
    "host field": (
        "struct P { int N; float table; };\nfloat table[3];\n",
        "P p; C[row] = p.table;",
    ),
    "for loop": ("int i = 0;\n", "for (int i = 0; i < 3; ++i) C[i] = i;"),
    "host min": ("int minimum(int a, int b) { return a < b ? a : b; }\n", "C[row] = min(3, row);"),
    "host device": (
        "__host__ __device__ inline int cdiv(int a, int b) { return (a + b - 1) / b; }\n",
        "C[row] = cdiv(3, row);",
    ),
}
ON_HOST = {
    "fn": ("float zero(int i) { return 0 * i; }\n", "C[row] = sum * zero(row);", "zero"),
    "fn static inline": (
        "static inline float zero(int i) { return 0 * i; }\n",
        "C[row] = zero(row);",
        "zero",
    ),
    "fn host": ("__host__ float zero(int i) { return 0 * i; }\n", "C[row] += zero(row);", "zero"),
    "fn template": (
        "template <class T> T zero(T i) { return 0 * i; }\n",
        "C[row] += zero<int>(row);",
        "zero",
    ),
    "fn in namespace": (
        "namespace u { float zero(int i) { return 0 * i; } }\n",
        "C[row] += u::zero(row);",
        "zero",
    ),
    "fn attribute": (
        "__attribute__((always_inline)) inline float zero(int i) { return 0 * i; }\n",
        "C[row] += zero(row);",
        "zero",
    ),
    "fn from device": (
        "float zero(int i) { return 0 * i; }\n"
        "__device__ float two(int i) { return zero(i) + 2; }\n",
        "C[row] += two(row);",
        "zero",
    ),
    "method": (
        "struct P { float x; float get() const { return x; } };\n",
        "P p = {1}; C[row] = p.get();",
        "get",
    ),
    "method via sibling": (
        "struct P { float x; float get() const { return x; }\n"
        "  __device__ float twice() { return get(); } };\n",
        "P p = {1}; C[row] = p.twice();",
        "get",
    ),
    "static method": (
        "struct P { static float get() { return 2; } };\n",
        "C[row] = P::get();",
        "get",
    ),
    "ctor": ("struct P { float x; P(float y) : x(y) {} };\n", "P p(3); C[row] = p.x;", "P"),
    "call operator": (
        "struct P { float operator()(float x) const { return x; } };\n",
        "P p; C[row] = p(3);",
        "P",
    ),
    "index operator": (
        "struct P { float v[3]; float &operator[](int i) { return v[i]; } };\n",
        "P p; C[row] = p[2];",
        "P",
    ),
    "array": ("float table[4] = {0, 1, 2, 3};\n", "C[row] = sum * table[row];", "table"),
    "const array": ("const float table[] = {0, 1, 2, 3};\n", "C[row] = table[row];", "table"),
    "static const 2d": (
        "static const int table[2][2] = {{0, 1}, {2, 3}};\n",
        "C[row] = table[row][1];",
        "table",
    ),
    "constexpr array": (
        "constexpr float table[] = {0, 1, 2, 3};\n",
        "C[row] = table[row];",
        "table",
    ),
    "array uninit": ("float table[64];\n", "table[row] = 1; C[row] = 0;", "table"),
    "variable": ("int width = 32;\n", "C[row] = width;", "width"),
    "static variable": ("static float scale = 0.5f;\n", "C[row] = scale * sum;", "scale"),
    "pointer": ("float *buffer;\n", "C[row] = buffer[row];", "buffer"),
    "in namespace": ("namespace { float table[4]; }\n", "C[row] = table[row];", "table"),
    "lambda": ("auto twice = [](float x) { return 2 * x; };\n", "C[row] = twice(3);", "twice"),
    "std::vector": ("", "std::vector<float> v(3); C[row] = v[0];", "std::vector"),
    "std::array": ("", "std::array<float, 3> v = {}; C[row] = v[0];", "std::array"),
    "std::max": ("", "C[row] = std::max(1.0f, sum);", "std::max"),
    "std::swap": ("", "std::swap(A, B);", "std::swap"),
    "std::cout": ("", "std::cout << 3;", "std::cout"),
    "rand": ("", "C[row] = rand();", "rand"),
    "kernel call": ("__global__ void other(float *x) { *x = 0; }\n", "other(C);", "other"),
    "std::vector global": ("std::vector<float> v(3);\n", "C[row] = v[0];", "v"),
    "struct var": ("struct Conf { int a; };\nConf conf = {3};\n", "C[row] = conf.a;", "conf"),
}


@pytest.mark.parametrize(("before", "body"), ON_DEVICE.values(), ids=ON_DEVICE)
def test_what_a_device_has_is_accepted(before, body):
    assert host_uses(before + KERNEL % body, "mine.cu") == []


@pytest.mark.parametrize(("before", "body", "name"), ON_HOST.values(), ids=ON_HOST)
def test_what_only_the_host_has_is_refused(before, body, name):
    (use,) = host_uses(before + KERNEL % body, "mine.cu")
    assert name in use.text
    assert "host" in use.text or "__global__" in use.text
    if "__device__" not in before:
        assert use.line == before.count("\n") + 5


def test_the_ladder_and_the_plain_kernels_have_no_host_code_in_kernels():
    root = Path(__file__).parent
    texts = {rung.file: rung.source for rung in sk.variants() if rung.source is not None}
    texts |= {path.name: path.read_text() for path in (root / "plain").glob("*.cu*")}
    for folder in KERNEL_FOLDERS:
        headers = (root.parent / "csrc" / folder).glob("*.h")
        texts |= {path.name: path.read_text() for path in headers}
    assert len(texts) > 40
    assert {name: found for name, text in texts.items() if (found := host_uses(text, name))} == {}


def test_the_line_is_in_the_file_that_has_it(tmp_path):
    (tmp_path / "helper.h").write_text("// a helper\nfloat zero(float x) { return 0 * x; }\n")
    path = tmp_path / "mine.cu"
    rung = with_header("naive").replace("store(p, row, col, sum)", "store(p, row, col, zero(sum))")
    path.write_text(f'#include "helper.h"\n{rung}')
    source = Source(path, path.read_text())
    line = 1 + next(n for n, text in enumerate(source.text.splitlines()) if "zero(sum)" in text)
    text = "zero is a function of the host: write __device__ before it"
    assert host_uses(source.whole(), "mine.cu") == [HostUse("mine.cu", line, text)]


def test_host_code_in_another_kernel_is_no_mistake():
    other = KERNEL.replace(" mm(", " other(") % "C[row] = table[row];"
    text = "float table[4];\n" + other + KERNEL % "C[row] = 0;"
    assert host_uses(only_for(text, "mm"), "mine.cu") == []
    assert len(host_uses(only_for(text, "other"), "mine.cu")) == 1


def test_sanitize_reports_host_code(custom_cache):
    text = with_header("naive").replace("namespace {", "namespace {\nfloat table[2] = {1, 2};", 1)
    text = text.replace("store(p, row, col, sum)", "store(p, row, col, sum * table[0])")
    (finding,) = sk.kernel(text, name="mine").sanitize().findings
    assert (finding.kind, finding.file) == ("does not compile", "mine.cu")
    assert text.splitlines()[finding.line - 1].strip().startswith("store(")


def test_an_array_of_variable_length_is_refused(custom_cache):
    text = KERNEL % "float part[K]; part[0] = sum; C[row] = part[0];"
    with pytest.raises(sk.CompileError, match=r"mine\.cu:5:.*\n(.*\n)*CUDA has no arrays of var"):
        sk.kernel(text, name="mine", grid="M*N", block=32)


@pytest.mark.parametrize(
    ("kernels", "line"),
    [
        (["__shared__ float big[128][128];"], 5),
        (["", "__shared__ float big[128][128];"], 11),
        (["__shared__ float some[64][128];", "__shared__ float others[64][128];"], None),
    ],
)
def test_static_arrays_of_each_kernel_have_at_most_48_kib(kernels, line):
    """Without a compiler: the declarations of a file with several kernels."""
    text = "".join(KERNEL.replace("mm", f"mm{n}") % body for n, body in enumerate(kernels))
    source = Source(Path("mine.cu"), text)
    static = 64 * 1024 if any(kernels) else 0  # of all kernels, as the checking build measures
    found = for_gpu.too_much_shared(static, static, source)
    assert [finding.line for finding in found] == ([] if line is None else [line])


def test_a_block_above_the_launch_bounds_is_refused(custom_cache):
    text = KERNEL.replace(
        "__global__ void mm", "__global__ void\n__launch_bounds__(TILE * X, 2) mm"
    )
    text = f"const int TILE = 16;\ntemplate <int X>\n{text % 'C[row] = 0;'}"
    launch = {"grid": "M*N", "block": "TILE * TILE"}
    mine = sk.kernel(text, name="mine", function="mm<4>", **launch)
    (finding, *_) = mine.check(device="cpu").findings
    assert (finding.kind, finding.line) == ("launch failed", 4)
    assert "the block has 256 threads, and __launch_bounds__ in line 4 allows 64" in finding.text
    rung = with_header("naive").replace("__launch_bounds__(BM *BN)", "__launch_bounds__(BM)")
    (finding, *_) = sk.kernel(rung, name="mine").check(device="cpu").findings
    assert "__launch_bounds__(BM)" in rung.splitlines()[finding.line - 1]


def test_launch_bounds_may_be_in_a_macro():
    kernel = KERNEL.replace("__global__ void mm", "ENTRY LIMIT mm") % "C[row] = 0;"
    text = f"#define ENTRY __global__ void\n#define LIMIT __launch_bounds__(64, 2)\n{kernel}"
    lines = with_bounds(text).splitlines()
    assert lines[3] == "{ ::grid_check_bounds(static_cast<int>(64), 3);"


def test_the_check_of_launch_bounds_leaves_the_lines():
    for rung in sk.variants():
        if rung.source is not None:
            checked = with_bounds(rung.source)
            assert checked.count("\n") == rung.source.count("\n")
            kernels = rung.source.count(" __launch_bounds__(")
            assert checked.count("::grid_check_bounds(") == kernels >= 1
