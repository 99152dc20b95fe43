"""Plain CUDA kernels: files of any `__global__` function, launched as grid= and block= say."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels as sk
from sgemm_kernels.custom import compiler, expressions, inline_ptx, nvrtc, plain_text, sanitize
from sgemm_kernels.custom.cases import Case, plain_cases, tile_of
from sgemm_kernels.custom.compiler import Source
from sgemm_kernels.custom.overflow import overflow
from sgemm_kernels.custom.plain import PlainLaunch

from .support import (
    printed_by,
    printed_over_fake_cuda,
    with_header,
)

pytestmark = pytest.mark.usefixtures("custom_cache")

FOLDER = Path(__file__).parent / "plain"
NATIVE = Path(__file__).parent / "native"

LAUNCHES = {
    "naive": {"grid": "(CEIL_DIV(M, 32), CEIL_DIV(N, 32))", "block": (32, 32)},
    "coalesced": {
        "grid": "(M/BLOCKSIZE, N/BLOCKSIZE)",
        "block": "BLOCKSIZE*BLOCKSIZE",
        "function": "sgemm_global_mem_coalesce<16>",
    },
    "textbook": {
        "grid": "(Width/TILE_WIDTH, Width/TILE_WIDTH)",
        "block": "(TILE_WIDTH, TILE_WIDTH)",
        "multiple_of": "TILE_WIDTH",
    },
    "guarded": {
        "grid": "dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE)",
        "block": "(TILE, TILE)",
    },
    "blocktile1d": {
        "grid": "(N/BN, M/BM)",
        "block": "BM*BN/TM",
        "function": "sgemm1DBlocktiling<64, 64, 8, 8>",
        "multiple_of": ("BM", "BN", "BK"),
    },
    "blocktile2d": {"grid": "(N/BLOCK, M/BLOCK)", "block": "(BLOCK/THREAD, BLOCK/THREAD)"},
    "vectorized": {
        "grid": "(N/64, M/64)",
        "block": 64,
        "function": "sgemmVectorize<64, 64, 4, 8, 8>",
        "multiple_of": (64, 64, 4),
    },
    "double_buffered": {
        "grid": "(N/BN, M/BM)",
        "block": "NUM_THREADS",
        "multiple_of": "(BM, BN, BK)",
    },
    "warptile": {
        "grid": "(N/BN, M/BM)",
        "block": "NUM_THREADS",
        "function": "sgemmWarptiling<64, 64, 16, 32, 32, 2, 4, 4, 128>",
        "multiple_of": "(BM, BN, BK)",
    },
    "dynamic_smem": {
        "grid": "(N/16, M/16)",
        "block": (16, 16),
        "shared": "2*16*16*sizeof(float)",
        "arguments": {"tile": 16},
    },
    "splitk_atomic": {"grid": "(N/16, M/16, SPLIT)", "block": (16, 16)},
    "warp_dot": {"grid": "M*N/WARPS_PER_BLOCK", "block": "32*WARPS_PER_BLOCK"},
    "groups": {"grid": "(M*N + 15)/16", "block": 128},
    "async_copy": {"grid": "(N/TILE, M/TILE)", "block": "(TILE, TILE)"},
    "mbarrier": {"grid": "(N/TILE, M/TILE)", "block": "(TILE, TILE)"},
    "barrier": {
        "grid": "(N/16, M/16)",
        "block": (16, 16),
        "function": "gemm_barrier<16>",
        "multiple_of": 16,
    },
    "column_major": {
        "grid": "(M/MS, N/NS)",
        "block": 256,
        "multiple_of": 16,
        "arguments": {"A": "A.T", "B": "B.T", "C": "C.T"},
    },
    "transposed_b": {
        "grid": "(N/16, M/16)",
        "block": (16, 16),
        "arguments": {"weights": "B.T"},
        "multiple_of": (1, 1, 4),
    },
    "swizzled_grid": {
        "grid": "CEIL_DIV(M, TILE) * CEIL_DIV(N, TILE)",
        "block": "(TILE, TILE)",
    },
    "course": {"grid": "((numBColumns - 1)/16 + 1, (numARows - 1)/16 + 1)", "block": "(16, 16, 1)"},
    "grid_stride": {"grid": 8, "block": "THREADS", "function": "gemm_stride<float>"},
    "slices": {
        "grid": "(M/TILE, N/TILE)",
        "block": "(TILE, TILE, SLICES)",
        "function": "gemm_slices<8, 4>",
    },
    "half_warps": {"grid": "M*N/3", "block": 48},
}


def load(name, **changed):
    return sk.kernel(FOLDER / f"{name}.cu", name=f"my_{name}", **{**LAUNCHES[name], **changed})


def source_of(name):
    path = FOLDER / f"{name}.cu"
    keywords = dict(LAUNCHES[name])
    launch = PlainLaunch.of(keywords.pop("grid"), keywords.pop("block"), **keywords)
    return Source(path, path.read_text(), launch=launch)


def test_every_file_of_the_folder_is_tested():
    assert {path.stem for path in FOLDER.glob("*.cu")} == set(LAUNCHES)


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_plain_kernel_is_right_as_it_is(name):
    kernel = load(name)
    checked = kernel.check(device="cpu")
    assert checked.passed, checked
    # As sanitize() does, without the trace that finds slow accesses.
    program, _ = compiler.library(kernel.made_of, compiler.sanitizer_build())
    tile = tile_of(kernel.variant)
    counts, findings = sanitize.watch(program, tile, kernel.made_of, 20)
    assert len(counts) > 5
    assert findings == []
    late, _ = compiler.library(kernel.made_of, compiler.deferred_async_build())
    assert sanitize.watch_late(late, kernel.made_of, tile, 20) == []
    assert not kernel.warnings


def test_the_report_says_once_what_happens_at_other_sizes():
    found = [f for f in load("blocktile1d").sanitize().findings if f.kind == "needs multiples"]
    (finding,) = found
    assert finding.harmless
    assert (finding.file, finding.line) == ("blocktile1d.cu", 36)
    assert "if M is not a multiple of 64: out of bounds, line 36: thread" in finding.text
    assert "if K is not a multiple of 8: " in finding.text


def test_reading_c_although_beta_is_0_is_told():
    (finding,) = (f for f in load("naive").sanitize().findings if f.kind == "reads C")
    assert (finding.line, finding.harmless, finding.array) == (27, True, "C")
    kinds = {finding.kind for finding in load("blocktile2d").sanitize().findings}
    assert "reads C" not in kinds  # it compares beta with 0


@pytest.mark.parametrize("name", ["naive", "textbook", "splitk_atomic", "column_major"])
def test_run_takes_any_operands_alpha_and_beta(name):
    """The launcher pads, packs and transposes, and adds what the kernel lacks."""
    kernel = load(name)
    rng = np.random.default_rng(1)
    memory = rng.uniform(-1, 1, (3, 120, 120)).astype(np.float32)
    A, B = memory[0, :70, :50], memory[1, :90, :50].T
    reversed_A = memory[0, 69::-1, 50:0:-1]
    for a, b in ((A, B), (np.asfortranarray(A), B), (reversed_A, B), (A[:1], B[:, :1])):
        C = memory[2, : len(a), : b.shape[1]]
        right = a.astype(np.float64) @ b.astype(np.float64)
        np.testing.assert_allclose(sk.run(kernel, a, b, device="cpu"), right, atol=1e-4)
        for alpha, beta in ((2.0, 0.0), (1.0, 1.0), (-0.5, 2.0), (0.0, 0.5)):
            result = sk.run(kernel, a, b, C=C, alpha=alpha, beta=beta, device="cpu")
            np.testing.assert_allclose(result, alpha * right + beta * C, atol=1e-4)
    assert not sk.run(kernel, A[:, :0], B[:0], device="cpu").any()


def test_accesses_are_counted_for_the_lines_of_the_file():
    trace = sk.trace(load("warptile"), 512, 512, 64)
    lines = {(access.line, access.operand, access.kind) for access in trace.accesses}
    assert {(17, "A", "load"), (71, "As", "load"), (104, "C", "load")} <= lines
    assert trace.global_bytes_per_multiply_add == 0.25
    accesses = sk.trace(load("dynamic_smem"), 64, 64, 32).accesses
    assert {access.operand for access in accesses} == {"A", "B", "C", "smem"}


SQUARE = """\
__global__ void mm(const float *A, const float *B, float *C, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n * n; i += gridDim.x * blockDim.x) {
        const int row = i / n, col = i % n;
        float sum = 0;
        for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + col];
        C[TARGET] = sum;
    }
}
"""


@pytest.mark.parametrize(("target", "role"), [("i", "C"), ("col * n + row", "C.T")])
def test_a_trace_has_the_whole_operands(target, role):
    """The first block computes results of the whole product, and not of the tile alone."""
    text = SQUARE.replace("TARGET", target)
    mine = sk.kernel(text, name="mine", grid=4, block=128, arguments={"C": role})
    traced = sk.trace(mine, 48, 48, 48)
    assert {access.operand for access in traced.accesses} == {"A", "B", "C"}
    # It computes 128 of each 512 results.
    results = 48 * 48 // 512 * 128 + min(48 * 48 % 512, 128)
    assert sum(a.lanes for a in traced.accesses if a.operand == "C") == results
    owners = np.frombuffer(traced.owners, np.int16).reshape(traced.rows, traced.cols)
    number = np.arange(16)[:, None] * 48 + np.arange(16)
    right = np.where(number % 512 < 128, number % 128, -1)
    np.testing.assert_array_equal(owners, right)
    # sanitize() traces sizes that its limits allow.
    many = load("dynamic_smem", multiple_of=(6, 1, 10)).made_of.plain
    assert many.in_float4s(16, 16, 64) == (24, 16, 80)


WIDE = """\
__global__ void mm(const float *A, const float *B, float *C, int M, int N, int K)
{
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row < M && col < N) {
        float sum = 0;
        for (int k = 0; k < K; ++k)
            sum += A[(size_t)row * K + k]
                * B[(size_t)k * N + col];
        C[(size_t)row * N + col] = sum;
    }
}
"""


@pytest.mark.parametrize(
    ("changes", "line", "says"),
    [
        ((), None, ""),
        ((("C[(size_t)row", "C[row"),), 9, "thread 0 writes C[-"),
        ((("A[(size_t)row", "A[row"),), 7, "reads A[-"),
        ((("(size_t)", ""),), 8, "reads B[-"),
        ((("int row", "unsigned short row"), (", col =", "; int col =")), 7,
         "in small products the last block reads the last row of A, and here it"),
    ],
)  # fmt: skip
def test_an_index_that_overflows_is_found(changes, line, says):
    text = WIDE
    for old, new in changes:
        text = text.replace(old, new)
    launch = PlainLaunch.of("(N/16, M/16)", (16, 16))
    source = Source(Path("mine.cu"), text, launch=launch)
    program, _ = compiler.library(source, compiler.sanitizer_build())
    found = overflow(program, source, 20)
    if line is None:
        assert found == []
        return
    (finding,) = found
    assert (finding.kind, finding.line) == ("overflow", line)
    assert says in finding.text
    assert ": an index has too few bits; at M, N, K = " in finding.text
    # A kernel without any integer of 64 bits passes with a note.
    assert finding.harmless == ("size_t" not in text)


INDEX = "unsigned short index = row * N + col; C[index] ="
SQUARE_GRID = {"grid": "(N/16, N/16)", "multiple_of": 16}


@pytest.mark.parametrize(
    ("change", "launch", "place"),
    [
        (("C[row * N + col] =", INDEX), {}, (9, "64, 66048, 32")),
        (("int row", "unsigned short row"), {}, (7, "66048, 64, 32")),
        (("int row", "uint16_t row"), {}, (7, "66048, 64, 32")),
        (("C[row * N + col] =", INDEX), SQUARE_GRID, (9, "304, 304, 304")),
        (("int row", "short row"), SQUARE_GRID, (7, "40000, 40000, 40000")),
        (("float sum = 0;", "short unused = 1; float sum = unused - 1;"), {}, None),
    ],
)
def test_an_index_of_16_bits_is_a_mistake(change, launch, place):
    """An int would hold these indices, so the kernel fails although it has no 64-bit integer."""
    text = WIDE.replace("(size_t)", "").replace(", col =", "; int col =").replace(*change)
    if launch:
        text = text.replace("int M, int N, int K", "int N").replace("K", "N").replace("M", "N")
    grid = {"grid": "(N/16, M/16)"} | launch
    source = Source(Path("mine.cu"), text, launch=PlainLaunch.of(block=(16, 16), **grid))
    program, _ = compiler.library(source, compiler.sanitizer_build())
    (finding,) = overflow(program, source, 20)
    assert finding.harmless == (place is None)
    if place is not None:
        assert finding.line == place[0]
        assert finding.text.endswith(f"an index has too few bits; at M, N, K = {place[1]}")


def test_a_block_with_too_many_accesses_is_no_overflow():
    """The last block of a large square product does not end soon, and its indices are right."""
    text = WIDE.replace("int M, int N, int K", "int N").replace("K", "N").replace("M", "N")
    source = Source(Path("mine.cu"), text, launch=PlainLaunch.of(block=(16, 16), **SQUARE_GRID))
    program, _ = compiler.library(source, compiler.sanitizer_build())
    assert overflow(program, source, 20) == []


def test_a_grid_with_m_and_n_exchanged_is_told():
    found = sk.kernel(WIDE, name="mine", grid="(M/16, N/16)", block=(16, 16)).sanitize().findings[0]
    hint = "M and N are exchanged in grid=: with grid='(N / 16, M / 16)' the kernel passes"
    assert found.text.endswith(hint)


def test_the_entry_describes_the_kernel():
    entry = load("blocktile2d").variant
    assert (entry.block_tile, entry.thread_tile) == ((32, 32, 32), (4, 4))
    assert (entry.threads, entry.shared_bytes) == (64, 4096)
    assert load("dynamic_smem").variant.shared_bytes == 2048


def test_defines_replace_constants_of_the_file():
    text = (FOLDER / "blocktile2d.cu").read_text() + "const int SIDE = BLOCK;\n"
    launch = {"grid": "(N/SIDE, M/SIDE)", "block": "(SIDE/THREAD, SIDE/THREAD)"}
    kernel = sk.kernel(text, name="mine", defines={"BLOCK": 16}, **launch)
    assert kernel.variant.block_tile[:2] == (16, 16)
    assert kernel.check(device="cpu")
    with pytest.raises(ValueError, match="uses no NOTHING"):
        sk.kernel(text, name="mine", defines={"NOTHING": 16}, **launch)


def test_like_launches_a_copy_of_a_rung_with_its_own_constants():
    text = sk.source("tile2d").replace("BM = 128, BN = 128", "BM = 64, BN = 32")
    mine = sk.kernel(text, name="mine", like="tile2d")
    assert (mine.variant.block_tile, mine.variant.threads) == ((64, 32, 8), 32)
    assert mine.check(device="cpu")
    narrow = sk.kernel(text, name="narrow", like="tile2d", shared=64, tile=(64, 32, 4))
    assert (narrow.variant.block_tile, narrow.variant.shared_bytes) == (
        (64, 32, 4),
        mine.variant.shared_bytes + 64,
    )
    with pytest.raises(ValueError, match=r"uses no WM.*constexpr int WM = .*BK, BM, BN"):
        sk.kernel(text, name="odd", like="tile2d", defines={"WM": 96})


def test_a_rungs_copy_without_a_launch_is_refused_with_what_to_pass(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(sk.source("tile2d"))
    with pytest.raises(ValueError, match=r"its launch is missing: .*like='tile2d'"):
        sk.kernel(path)
    with pytest.raises(ValueError, match=r"its launch is missing: .*kernel\('.*mine.cu', like="):
        sk.tune(path, {"BM": [64]})
    with pytest.raises(ValueError, match="no rung of 'tile3d': the rungs are naive"):
        sk.kernel(path, like="tile3d")


# ------------------------------------------------------------------ wrong kernels

TILED = {"grid": "(N/TILE, M/TILE)", "block": "(TILE, TILE)"}
RIGHT = """\
#define TILE 16

__global__ void tiled(const float *A, const float *B, float *C, int M, int N, int K)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        const int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        As[threadIdx.y][threadIdx.x] = row < M && ka < K ? A[row * K + ka] : 0.f;
        Bs[threadIdx.y][threadIdx.x] = kb < K && col < N ? B[kb * N + col] : 0.f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}
"""
AFTER = "Bs[k][threadIdx.x];\n        __syncthreads();\n"
WRONG = {
    "missing_barrier": (AFTER, AFTER.partition("        ")[0]),
    "no_guard": ("row < M && ka < K ? A[row * K + ka] : 0.f", "A[row * K + ka]"),
    "wrong_stride": ("B[kb * N + col]", "B[kb * K + col]"),
    "early_return": ("    float sum", "    if (row >= M || col >= N) return;\n    float sum"),
    "host_helper": ("A[row * K + ka]", "A[offset(row, ka, K)]"),
    "ptx": ("__syncthreads();\n        for", 'asm volatile("bar.sync 0;");\n        for'),
}


def wrong(name):
    """The tiled kernel with a mistake."""
    old, new = WRONG[name]
    assert RIGHT.count(old) == 1
    helper = "int offset(int row, int col, int ld) { return row * ld + col; }\n"
    text = (helper if "offset" in new else "") + RIGHT.replace(old, new)
    return sk.kernel(text, name=name, **TILED)


@pytest.mark.parametrize(
    ("name", "kind", "line", "text"),
    [
        ("no_guard", "out of bounds", 10, "reads A[17, 0], and A is 17 x 83"),
        ("wrong_stride", "out of bounds", 11, "reads B[32, 0], and B is 32 x 16"),
        ("early_return", "divergent barrier", 13, "returned while thread 0 waits at line 13"),
    ],
)
def test_a_wrong_kernel_is_refused_with_the_mistake(name, kind, line, text):
    found = wrong(name).sanitize().findings[0]
    assert (found.kind, found.file, found.line) == (kind, f"{name}.cu", line)
    assert text in found.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("host_helper", "offset is a function of the host: write __device__ before it"),
        ("ptx", "ptx.cu:12: error: asm: the CPU device, which checks the kernel, lacks inline PTX"),
    ],
)
def test_what_the_cpu_device_lacks_is_an_error_with_an_alternative(name, text):
    with pytest.raises(sk.CompileError) as caught:
        wrong(name)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "lost",
    [
        "__pipeline_arrive_on(&full[stage]); // the next arrival waits for these copies",
        pytest.param(
            "while (!__mbarrier_test_wait(&full[stage], token)) {\n        }",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_copies_that_no_mbarrier_waits_for_are_a_race(lost):
    text = (FOLDER / "mbarrier.cu").read_text(encoding="utf-8")
    assert lost in text
    found = sk.kernel(text.replace(lost, ""), name="mine", **TILED).sanitize().findings[0]
    assert found.kind == "race"
    assert "asynchronous copy" in found.text


def test_a_kernel_for_whole_tiles_is_told_to_say_so():
    (finding, *_) = load("barrier", multiple_of=None).sanitize().findings
    assert finding.text.endswith("if the kernel needs whole tiles, pass multiple_of=(16, 16, 16)")
    (finding, *_) = wrong("missing_barrier").sanitize().findings
    assert "multiple_of" not in finding.text


def test_a_grid_that_covers_half_of_c_is_found():
    kernel = load("blocktile2d", grid="(N/BLOCK, M/BLOCK/2)")
    (finding,) = kernel.check(device="cpu").findings
    assert finding.kind == "never set"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"block": None}, "needs grid= and block="),
        ({"grid": "(N/Q, M)"}, "Q is neither M, N or K nor an integer constant of the file"),
        ({"grid": "__import__('os').getpid()"}, "is not allowed"),
        ({"grid": "(1, 2, 3, 4)"}, "it has 1 to 3 components"),
        ({"grid": "N/"}, "is no expression"),
        ({"block": "2*N"}, "it must be 1 to 1024"),
        ({"grid": "N-N"}, "it must be 1 or more"),
        ({"function": "other"}, "defines no __global__ function 'other'"),
        ({"function": "sgemm_naive<4>"}, "sgemm_naive is not a template"),
        ({"arguments": {"D": "C"}}, "names 'D', which sgemm_naive does not have"),
        ({"arguments": {"A": "D"}}, "it can be one of A, B, C, A.T, B.T, C.T"),
        ({"multiple_of": (32, 32)}, "pass one size, or three"),
        ({"multiple_of": "N"}, "is no size from 1 to 1024"),
    ],
)
def test_an_unclear_launch_is_refused(changed, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load("naive", **changed)


def test_a_plain_file_without_a_grid_says_what_to_pass():
    with pytest.raises(ValueError, match=r"pass grid= and block=, such as grid='\(N/32, M/32\)'"):
        sk.kernel(FOLDER / "naive.cu", name="mine")
    with pytest.raises(ValueError, match="are for plain kernels"):
        sk.kernel(with_header("tile2d"), name="mine", multiple_of=8)


def test_a_template_without_arguments_and_several_functions_are_refused():
    with pytest.raises(ValueError, match=r"coalesced.cu:6: .* is a template: .* for BLOCKSIZE"):
        load("coalesced", function=None)
    twice = (FOLDER / "naive.cu").read_text() + (FOLDER / "course.cu").read_text()
    with pytest.raises(ValueError, match="with one of sgemm_naive, matrixMultiply"):
        sk.kernel(twice, name="mine", **LAUNCHES["naive"])


def test_a_launch_that_no_gpu_accepts_is_refused_when_it_runs():
    kernel = load("naive", block="(M, 32)")
    (finding, *_) = kernel.check(device="cpu").findings
    assert finding.kind == "launch failed"


# ------------------------------------------------------------------ parameters and expressions


@pytest.mark.parametrize(
    ("parameters", "roles"),
    [
        ("const float *A, const float *B, float *C, int M, int N, int K", "A B C M N K"),
        ("int n, float *x, float *y, float *z, int k, int m", "N A C B K M"),
        ("float *d_C, float *d_A, float *d_B, int wA, int wB, int hA", "C A B K N M"),
        ("float *P, float *M, float *N, unsigned Width", "C A B N"),
        ("float *M, float *N, float *P, unsigned Width", "A B C N"),
        ("float *A, float *B, float *C", None),
        ("float *out, const float *x, const float *w, int rows, int cols, int k", "C A B M N K"),
        ("float const *a, float const *b, float *c, float gamma, size_t n", None),
        ("const float *A, int lda, const float *B, int ldb, float *C, int ldc, int M, int N, int K",
         "A K B N C N M N K"),
    ],
)  # fmt: skip
def test_parameters_are_recognised(parameters, roles):
    text = f"__global__ void k({parameters})\n{{\n}}\n"
    source = Source(Path("k.cu"), text, launch=PlainLaunch.of("M*N", 1))
    if roles is None:
        with pytest.raises(ValueError, match=r"k\.cu:1: .*arguments="):
            source.plain  # noqa: B018
        return
    found = [p.role or p.value.text for p in source.plain.parameters]
    assert " ".join(found) == roles


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("N/32", 5),
        ("(N + 31)/32", 5),
        ("(N + TILE - 1) / TILE", 9),
        ("(N - 1) / 32 + 1", 5),
        ("N//32", 4),
        ("CEIL_DIV(N, 32) * cdiv(M, 8)", 15),
        ("min(M, N) + max(1, 2) % 2 - -1", 21),
        ("(M*N + 255)/256", 11),
        ("2*TILE*TILE*sizeof(float)", 2048),
        ("1u << 4", 16),
        ("(int)ceil(N / 32.0f)", 5),
        ("ceil(double(N)/32)", None),
    ],
)
def test_expressions(text, value):
    if value is None:
        with pytest.raises(expressions.ExpressionError, match="use M, N, K"):
            expressions.expression("grid", text, {})
        return
    found = expressions.expression("grid", text, {"TILE": 16})
    assert found.at(20, 130, 7) == value


def test_constants_of_a_file():
    code = """
#define TILE 16
#define TWICE (2 * TILE)
const int BM = 64, BN = TWICE;
static constexpr unsigned WARPS = BM * BN / (TILE * TILE) / 3;
enum { STAGES = 3, BYTES = STAGES * sizeof(float) };
const float half = 0.5f;
#define LOOP(i) for (i = 0;;)
"""
    found = expressions.constants_of(code, {})
    assert found == {
        "TILE": 16,
        "TWICE": 32,
        "BM": 64,
        "BN": 32,
        "WARPS": 2,
        "STAGES": 3,
        "BYTES": 12,
    }


def test_host_code_is_left_out_and_lines_stay():
    text = (FOLDER / "naive.cu").read_text()
    device = plain_text.device_code(text)
    assert len(device.splitlines()) == len(text.splitlines())
    assert "<<<" not in device
    assert "main(" not in device
    line = next(n for n, line in enumerate(text.splitlines()) if "__global__" in line)
    assert "__global__" in device.splitlines()[line]


def test_host_classes_and_variables_are_left_out():
    text = """\
#include <cuda_fp16.h>
class Timer { cudaEvent_t start; float stop(); };
float Timer::stop() { return 0; }
static cublasHandle_t handle;
struct Pair { alignas(16) float x[4], y; };
namespace cg = cooperative_groups;
using namespace std;
constexpr int twice(int n) { return 2 * n; }
template <int N> void run() {}
"""
    kept = plain_text.device_code(text).split()
    assert " ".join(kept) == (
        "#include <cuda_fp16.h> struct Pair { alignas(16) float x[4], y; }; "
        "namespace cg = cooperative_groups; "
        "constexpr int twice(int n) { return 2 * n; }"
    )


MMA = """\
asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " // sums
             "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},\\n\\t{%0, %1, %2, %3};"
             : "+f"(d[0]), "+f"(d[1]), "+f"(d[i ? 2 : 2]), "+f"(d[3])
             : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(f(b, 1))
             : "memory");
"""


def test_inline_ptx_that_the_cpu_device_has_becomes_a_call():
    call = "plain_mma_m16n8k16((d[0]), (d[1]), (d[i ? 2 : 2]), (d[3]), (a[0]), (a[1]), (a[2]), "
    call += "(a[3]), (b[0]), (f(b, 1)), (d[0]), (d[1]), (d[i ? 2 : 2]), (d[3]))"
    found = inline_ptx.as_calls(f"// asm(\n{MMA}int next;\n")
    assert found == f"// asm(\n{call}\n\n\n\n;\nint next;\n"


@pytest.mark.parametrize(
    ("old", "new"), [("m16n8k16", "m16n8k8"), ("%9", "%10"), ("};", "}; bar.sync 0;")]
)
def test_other_inline_ptx_stays_and_is_refused(old, new):
    text = MMA.replace(old, new)
    assert inline_ptx.as_calls(text) == text
    with pytest.raises(plain_text.UnsupportedCodeError, match=r"other than mma\.sync\.m16n8k16"):
        plain_text.for_cpu(text, "mine.cu")


def test_half_is_a_type_only_with_its_header():
    text = "__device__ int f(int half)\n{\n    return half;\n}\n"
    assert plain_text.for_cpu(text, "mine.cu") == text
    with pytest.raises(plain_text.UnsupportedCodeError, match=r"mine\.cu:2: error: half: "):
        plain_text.for_cpu(f"#include <cuda_fp16.h>\n{text}", "mine.cu")


MEMBERS = """
struct Tiles {
    alignas(16) float As[2][8][32], Bs[2][8] [32]; // float Cs[8];
    int count;
};
struct Others {
    float Ds[4];
    float sum() { return Ds[0]; }
};
extern __shared__ float4 memory[];
"""


@pytest.mark.parametrize(
    ("view", "names"),
    [
        ("Tiles &t = *(Tiles *)memory;", ("t.As", "t.Bs")),
        ("Tiles &t = *reinterpret_cast<Tiles *>(memory);", ("t.As", "t.Bs")),
        ("auto *const t = reinterpret_cast<Tiles*>( memory );", ("t->As", "t->Bs")),
        ("Others &t = *(Others *)memory;", ()),
        ("Tiles &t = *(Tiles *)global;", ()),
        ("// Tiles &t = *(Tiles *)memory;", ()),
    ],
)
def test_arrays_of_a_struct_in_dynamic_shared_memory_have_names(view, names):
    """Of one without member functions. Lines stay the same."""
    text = plain_text.for_cpu(f"{MEMBERS}{view}\n", "mine.cu")
    assert re.findall(r'plain_name_array\("(\w+)", ([\w.>-]+)\)', text) == [
        (name[-2:], name) for name in names
    ]
    assert text.splitlines()[-1].startswith(view)


@pytest.mark.parametrize(
    ("body", "accumulates"),
    [
        ("atomicAdd(&C[0], alpha);", True),
        ("atomicAdd(&C[0], alpha + beta);", False),
        ("atomicAdd(&A[0], alpha); C[0] = 0;", False),
    ],
)
def test_atomics_on_c_without_beta_need_a_c_of_zeros(body, accumulates):
    parameters = "float *A, float *B, float *C, int M, int N, int K, float alpha, float beta"
    text = f"__global__ void k({parameters})\n{{\n    {body}\n}}\n"
    plain = Source(Path("k.cu"), text, launch=PlainLaunch.of("M*N", 1)).plain
    assert plain.accumulates == accumulates


def test_cases_have_sizes_that_the_kernel_computes():
    plain = source_of("warptile").plain
    assert plain_cases(plain, [Case(1, 65, 17)]) == [Case(64, 128, 32)]
    square = source_of("textbook").plain
    assert plain_cases(square, [Case(1, 20, 40)]) == [Case(48, 48, 48)]


# ------------------------------------------------------------------ commands


def test_try_takes_a_plain_kernel():
    code = f"""
        import sys
        from sgemm_kernels.__main__ import main
        path = {str(FOLDER / "guarded.cu")!r}
        main(["try", path, "--grid", "(N/TILE, M/TILE)", "--block", "(TILE, TILE)"])
    """
    assert "guarded is correct: " in printed_by(code.replace("\n        ", "\n"))


# ------------------------------------------------------------------ on a GPU

PLAIN = """\
__global__ void plain_sgemm(int M, int N, int K, float alpha, const float *A, const float *B,
                            float beta, float *C)
{
    const int col = blockIdx.x * 8 + threadIdx.x, row = blockIdx.y * 4 + threadIdx.y;
    if (row < M && col < N) {
        float sum = 0;
        for (int k = 0; k < K; ++k) sum += A[row * K + k] * B[k * N + col];
        C[row * N + col] = alpha * sum + beta * C[row * N + col];
    }
}
"""


@pytest.mark.fake_cuda
def test_on_a_gpu_it_has_a_launch_of_its_own(tmp_path, monkeypatch):
    """The fake runtime checks the grid and the block, and reads the kernel's arguments."""
    library = tmp_path / "nvrtc.so"
    command = [
        os.environ.get("CC") or "cc",
        "-D_GNU_SOURCE",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
    ]
    subprocess.run([*command, str(NATIVE / "fake_nvrtc.c")], check=True)
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(library))
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    code = f"""
        import sgemm_kernels as sk
        mine = sk.kernel({PLAIN!r}, name="mine", grid="(N/8, M/4)", block=(8, 4), multiple_of=4)
        assert mine.check(device="cpu")
        assert mine.sanitize()
        for M, N, K in ((8, 16, 12), (13, 17, 19), (1, 1, 1), (4, 8, 0)):
            A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
            for a in (A, np.asfortranarray(A)):
                for alpha, beta in ((1.0, 0.0), (0.5, 2.0), (0.0, 1.0)):
                    got = run(mine, a, B, C=C, alpha=alpha, beta=beta, device="cuda")
                    right = alpha * (A.astype(float) @ B) + beta * C
                    assert abs(got - right).max() < 1e-5, (M, N, K, alpha, beta)
        print("right", mine.variant.threads)
    """
    assert printed_over_fake_cuda(code) == "right 32"


def real_nvrtc():
    home = Path(nvrtc.find_nvcc() or "/nowhere").parent.parent
    return next(iter(sorted(home.glob("lib64/libnvrtc.so*"))), None)


@pytest.mark.skipif(real_nvrtc() is None, reason="needs NVRTC")
@pytest.mark.parametrize(
    "name", sorted(set(LAUNCHES) - {"groups", "async_copy", "barrier", "mbarrier"})
)
def test_nvrtc_compiles_it(name, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(real_nvrtc()))
    source = source_of(name)
    code, symbol = nvrtc.gpu_code(source, source.plain.call, 80)
    assert code.startswith(b"\x7fELF")
    assert symbol.encode() in code
