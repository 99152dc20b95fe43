"""What sanitize() says about single mistakes: the name, the line, and the cause in words."""

import re
from pathlib import Path

import pytest

import sgemm_kernels as sk
from sgemm_kernels.custom import sanitize
from sgemm_kernels.custom.cases import tile_of
from sgemm_kernels.custom.compiler import Source, library, sanitizer_build
from sgemm_kernels.custom.failures import placed

from .judge_rates import with_loop
from .mutation import LOOPS
from .support import with_header

pytestmark = pytest.mark.usefixtures("custom_cache")

HEAD = "__global__ void sgemm(const float *A, const float *B, float *C, int M, int N, int K)\n{"
TILED = {"grid": "(N/16, M/16)", "block": "(16, 16)"}
DOTS = {"grid": "(N, M)", "block": "128"}

TILES = f"""{HEAD}
    __shared__ float As[16][16], Bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, x = blockIdx.x * 16 + tx, y = blockIdx.y * 16 + ty;
    float sum = 0;
    for (int k = 0; k < K; k += 16) {{
        float a = y < M && k + tx < K ? A[y * K + k + tx] : 0.0f;
        float b = x < N && k + ty < K ? B[(k + ty) * N + x] : 0.0f;
        __syncthreads(); // before
        As[ty][tx] = a; // the store
        Bs[ty][tx] = b;
        __syncthreads(); // after
        for (int i = 0; i < 16; ++i)
            sum += As[ty][i] * Bs[i][tx]; // the read
    }}
    if (x < N && y < M) C[y * N + x] = sum;
}}
"""
DOT = f"""{HEAD}
    __shared__ float part[128];
    int t = threadIdx.x, x = blockIdx.x, y = blockIdx.y;
    float sum = 0;
    for (int k = t; k < K; k += 128) sum += A[y * K + k] * B[k * N + x];
    part[t] = sum;
    __syncthreads(); // all are there
    if (t >= 64) return; // two warps
    part[t] += part[t + 64]; // the first half
    __syncthreads(); // halves
    if (t == 0) {{
        float all = 0;
        for (int i = 0; i < 64; ++i) all += part[i]; // the sum
        C[y * N + x] = all;
    }}
}}
"""
LOOP = f"""{HEAD}
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x >= N || y >= M) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) // the loop
        sum += A[y * K + k] * B[k * N + x];
    C[y * N + x] = sum;
}}
"""
COPIES = '#include "ptx.h"\n' + TILES.replace(
    "        float a = y < M && k + tx < K ? A[y * K + k + tx] : 0.0f;\n", ""
).replace(
    "As[ty][tx] = a;", "cp_async4(&As[ty][tx], &A[y * K + k + tx], y < M && k + tx < K);"
).replace("__syncthreads(); // after", "cp_async_commit(); cp_async_wait<0>(); __syncthreads();")
DEVICE = "__device__ float partial[128];\n" + DOT.replace(
    "    __shared__ float part[128];\n", ""
).replace("part[", "partial[")
COUNTER = "static __device__ unsigned ticket;\n" + LOOP.replace(
    "C[y * N + x] = sum;", "ticket += 1; C[y * N + x] = sum; // the count"
)
STRUCTS = {
    "a function": ("__device__ float4 four(float x) { return {x, x, x, x}; }", "four(sum)"),
    "a template": (
        "template <class T> __device__ __forceinline__ T four(float x) { return {x, x, x, x}; }",
        "four<float4>(sum)",
    ),
    "an operator": (
        "static inline __device__ float4 operator+(float4 a, float4 b)\n"
        "{ return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }",
        "make_float4(0, sum, 0, 0) + make_float4(0, 0, 0, sum)",
    ),
    "a method": (
        "struct Four { float x; __device__ float4 all() const { return {x, x, x, x}; } };",
        "Four{sum}.all()",
    ),
}
"""Functions that return a struct, and a call: what they return is stored in shared memory."""

# The kernel, a text in it, the text that replaces it, and the launch; then the finding's kind, a
# text in its line, and a pattern of its sentence.
WRONG = {
    "no barrier before the stores": (
        (TILES, "        __syncthreads(); // before\n", "", TILED),
        (
            "race",
            "// the store",
            r"in the previous round of the loop, .*: one belongs after line 13",
        ),
    ),
    "no barrier after the stores": (
        (TILES, "        __syncthreads(); // after\n", "", TILED),
        ("race", "// the read", "in the same round of the loop, .*: one belongs after line 10"),
    ),
    "no barrier in a reduction": (
        (DOT, "    __syncthreads(); // halves\n", "", DOTS),
        (
            "race",
            "// the sum",
            "writes at line 10, and no barrier is between them: one belongs after",
        ),
    ),
    "no barrier before warps return": (
        (DOT, "    __syncthreads(); // all are there\n", "", DOTS),
        ("race", "// the first half", "which thread 64 writes at line 7"),
    ),
    "a loop without a step": (
        (LOOP, "k < K; ++k", "k < K;", TILED),
        ("endless", "// the loop", "the loop never ends"),
    ),
    "an unsigned counter that goes down": (
        (LOOP, "int k = 0; k < K; ++k", "unsigned k = K - 1; k >= 0; --k", TILED),
        ("endless", "// the loop", "the loop never ends"),
    ),
    "a part of a warp misses a barrier": (
        (TILES, "__syncthreads(); // after", "if (tx < 8) __syncthreads(); // after", TILED),
        ("divergent barrier", "// after", "waits at line"),
    ),
    "whole warps miss a barrier": (
        (TILES, "__syncthreads(); // after", "if (ty < 8) __syncthreads(); // after", TILED),
        ("divergent barrier", "// after", "waits at line 9 while .* waits at line 12"),
    ),
    "two blocks write a __device__ array": (
        (DEVICE, "partial[t] = sum;", "partial[t] = sum; // both", DOTS),
        ("race", "// both", "which thread 0 of block .* writes at line 10, and no fences"),
    ),
    "threads add to a __device__ variable": (
        (COUNTER, "", "", TILED),
        ("race", "// the count", "ticket, element 0"),
    ),
    "an index beyond a __device__ array": (
        (DEVICE, "partial[t] = sum;", "partial[t + 1] = sum; // beyond", DOTS),
        ("out of bounds", "// beyond", "thread 127 takes element 128 of"),
    ),
    **{
        f"a struct that {what} returns is stored": (
            (
                f"{define}\n{DOT}".replace("float part[128]", "float4 part[128]")
                .replace("+= part[i]", "+= part[i].y")
                .replace("part[t] += part[t + 64]", "part[t].y += part[t + 64].y")
                .replace("    __syncthreads(); // all are there\n", ""),
                "part[t] = sum",
                f"part[t] = {call}",
                DOTS,
            ),
            ("race", "// the first half", "which thread 64 writes at line"),
        )
        for what, (define, call) in STRUCTS.items()
    },
    "a copy by a header's function that is not waited for": (
        (COPIES, "cp_async_wait<0>(); ", "", TILED),
        ("race", "// the read", "asynchronous copy of thread 0, line 10, is on its way"),
    ),
    "a header's function reads beyond an operand": (
        (COPIES, "y < M && k + tx < K);", "y <= M && k + tx < K);", TILED),
        ("out of bounds", "// the store", "reads A"),
    ),
}


RUNGS = {
    "no barrier after the mbarriers' initialization": (
        ("splitk", "    __syncthreads(); // the barriers are initialized\n", ""),
        (
            "race",
            "cp_async_mbarrier_arrive",
            r"uses the mbarrier in .*, which thread 0 initializes",
        ),
    ),
    "counters that are not reset": (
        (
            "streamk",
            "atomicInc(s.arrivals + number - s.whole_tiles, others)",
            "atomicAdd(s.arrivals, 1u)",
        ),
        ("scratch memory", "atomicAdd", "after the product: the next product takes it as zero"),
    ),
    "products without a commit": (
        ("wgmma", "    wgmma_commit();\n", ""),
        ("race", "wgmma_wait<0>", "no wgmma_commit is between them"),
    ),
    "products without a wait": (
        ("wgmma", "    wgmma_wait<0>();\n", ""),
        ("race", "wgmma_commit", "no wgmma_wait follows its wgmma_commit here"),
    ),
    "a wait that leaves the products": (
        ("wgmma", "wgmma_wait<0>();", "wgmma_wait<1>();"),
        ("race", "wgmma_wait<1>", "leaves the group of the product"),
    ),
    "no wait for the second stage": (
        ("wgmma", "        mbarrier_wait(shared.full + second.index, second.parity);\n", ""),
        ("uninitialized read", "wgmma_k16", "has written yet: a wait for a copy may be missing"),
    ),
    "the consumers' barrier": (
        ("wgmma", "bar_sync<1>(threads); // the consumers alone", "(void)threads;"),
        ("race", "", "no barrier is between them"),
    ),
    "a loop that misses its end": (
        ("tile2d", "left > 0; left -= BK", "left != 0; left -= BK"),
        ("endless", "left != 0", "the loop never ends"),
    ),
}


def changed(text, old, new):
    assert old in text, old
    return text.replace(old, new)


def first_of(program_of, tile):
    """The first finding, as sanitize() orders them, of the program that checks each access."""
    program, _ = library(program_of, sanitizer_build())
    _, findings = sanitize.watch(program, tile, program_of, 100)
    return placed(sanitize.in_order(findings)[0], program_of)


def check_words(source, found, kind, line_has, says):
    assert found.kind == kind, found
    assert found.file == source.file, found
    assert line_has in source.text.splitlines()[found.line - 1], found
    assert re.search(says, found.text), found


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_plain_kernel_is_named(name):
    (text, old, new, launch), expected = WRONG[name]
    mine = sk.kernel(changed(text, old, new), name="mine", **launch)
    found = first_of(mine.made_of, tile_of(mine.variant))
    check_words(mine.made_of, found, *expected)


@pytest.mark.parametrize("name", RUNGS)
def test_a_mistake_in_a_rung_is_named(name):
    (rung, old, new), expected = RUNGS[name]
    text = with_loop(rung) if rung in LOOPS else with_header(rung)
    source = Source(Path("mine.cu"), changed(text, old, new))
    tile = tile_of(next(v for v in sk.variants() if v.name == rung))
    check_words(source, first_of(source, tile), *expected)


BOTH_BARRIERS = changed(
    TILES,
    "__syncthreads(); // after",
    "if (ty % 4 < 2) {\n    __syncthreads();\n} else { __syncthreads(); } // after",
)
PART = """    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    float *partial = plain_user::partial + block % 4096 * 128;
    int t ="""
RIGHT = {
    "barriers, and warps that return": (DOT, DOTS),
    "asynchronous copies": (COPIES, TILED),
    "a row-major A with a column-major B": (
        changed(LOOP, "B[k * N + x]", "B[x * K + k]"),
        {**TILED, "arguments": {"B": "B.T"}},
    ),
    "a column-major A": (
        changed(LOOP, "A[y * K + k]", "A[k * M + y]"),
        {**TILED, "arguments": {"A": "A.T"}},
    ),
    "a column-major C": (
        changed(LOOP, "C[y * N + x]", "C[x * M + y]"),
        {**TILED, "arguments": {"C": "C.T"}},
    ),
    "a function that returns a struct and calls itself": (
        "__device__ float4 four(int n, float x)\n"
        "{ return n == 0 ? make_float4(x, x, x, x) : four(n - 1, x); }\n"
        + changed(LOOP, "= sum;", "= four(2, sum).x;"),
        TILED,
    ),
    "a __device__ array with a part for each block": (
        DEVICE.replace("[128]", "[128 * 4096]").replace("    int t =", PART),
        DOTS,
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes(name):
    """With operands of one row and one column, too, whose strides do not tell their layout."""
    text, launch = RIGHT[name]
    mine = sk.kernel(text, name="mine", **launch)
    program, _ = library(mine.made_of, sanitizer_build())
    counts, findings = sanitize.watch(program, tile_of(mine.variant), mine.made_of, 100)
    assert findings == []
    assert all(counts)


def test_whole_warps_at_two_barriers_are_a_note():
    verdict = sk.kernel(BOTH_BARRIERS, name="mine", **TILED).sanitize()
    assert verdict.passed, verdict
    (note,) = {f.kind: f for f in verdict.findings if f.kind == "divergent barrier"}.values()
    assert note.harmless
    assert "a GPU takes both for one barrier" in note.text


def test_a_slow_kernel_is_not_called_endless():
    """'Endless' is about steps. A kernel that takes too long otherwise is 'not finished'."""
    text = "#include <unistd.h>\n" + changed(
        with_header("naive"),
        "float sum = 0.0f;",
        "float sum = p.beta == 1.0f ? sleep(1000) : 0.0f;",
    )
    source = Source(Path("mine.cu"), text)
    program, _ = library(source, sanitizer_build())
    tile = tile_of(sk.variants()[0])
    cases = sanitize.cases_of(tile, source)
    slow = next(index for index, case in enumerate(cases) if case.beta == 1)
    counts, (found,) = sanitize.watch(program, tile, source, 4)
    assert found.kind == "not finished"
    assert len(counts) == slow + 1
    assert f"{slow} of {len(cases)} products finished before it" in found.text
