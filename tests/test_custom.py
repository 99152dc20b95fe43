"""Custom kernels: passed instead of a name, checked, and run in a child process until they pass."""

import concurrent.futures
import importlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels as sk
from sgemm_kernels import _cache
from sgemm_kernels._catalog import KERNEL_FOLDERS
from sgemm_kernels.custom import child_process, compiler, tuning
from sgemm_kernels.custom.kernel import run_here

from .support import (
    ending,
    python,
    with_header,
)

pytestmark = pytest.mark.usefixtures("custom_cache")

SMALLEST = """\
#include "kernel.h"

__global__ void mine(const Sgemm p)
{
    const Origin tile = tile_origin(p.C, 16, 16);
    const int64_t row = tile.row + threadIdx.y, col = tile.col + threadIdx.x;
    float sum = 0.0f;
    for (int64_t k = 0; inside(p.C, row, col) && k < p.A.cols; ++k) {
        sum = multiply_add(at(p.A, row, k), at(p.B, k, col), sum);
    }
    store(p, row, col, sum);
}

constexpr KernelSpec spec = {
    .symbol = "mine", .block_tile = {16, 16, 1}, .thread_tile = {1, 1}, .threads = {16, 16}};
RUNG(mine, "one thread for each element", "mine.cu", spec, {7, 5});
"""


def operands(M, N, K):
    rng = np.random.default_rng((M, N, K))
    return (
        rng.uniform(-1, 1, (M, K)).astype(np.float32),
        rng.uniform(-1, 1, (K, N)).astype(np.float32),
    )


def rungs():
    return [v.name for v in sk.variants() if v.file is not None]


def changed(rung, old, new):
    text = sk.source(rung)
    assert text.count(old) == 1, old
    return text.replace(old, new)


# ------------------------------------------------------------------ instead of a name


@pytest.mark.parametrize("taken", rungs())
def test_each_rungs_file_is_a_custom_kernel_without_changes(taken):
    mine = sk.kernel(sk.source(taken), name="mine", like=taken)
    A, B = operands(150, 77, 300)
    assert mine.variant.block_tile == next(v for v in sk.variants() if v.name == taken).block_tile
    C = sk.run(mine, A, B, device="cpu")
    assert C.tobytes() == sk.run(taken, A, B, device="cpu").tobytes()


def test_the_smallest_kernel_loads_from_a_file_and_is_right(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(SMALLEST)
    mine = sk.kernel(path)
    assert (mine.name, mine.file, mine.source) == ("mine", "mine.cu", SMALLEST)
    A, B = operands(40, 50, 20)
    C = np.ones((40, 50), np.float32)
    result = sk.run(mine, A, B, C=C, alpha=2, beta=-1, device="cpu")
    np.testing.assert_allclose(result, 2 * A @ B - 1, rtol=1e-5, atol=1e-5)
    assert mine.check(device="cpu").passed


def test_the_readmes_kernel_is_right():
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    text = readme.partition("```cuda\n")[2].partition("```")[0]
    (launch,) = re.findall(r'kernel\("mine.cu", grid="(.*)", block=\((\d+), (\d+)\)\)', readme)
    mine = sk.kernel(text, name="mine", grid=launch[0], block=tuple(map(int, launch[1:])))
    assert mine.check(device="cpu").passed
    assert mine.sanitize().findings == ()


def test_a_kernel_may_have_its_own_launcher(tmp_path):
    text = SMALLEST.replace(
        'RUNG(mine, "one thread for each element", "mine.cu", spec, {7, 5});',
        """LAUNCHER(mine)
{
    return launch_blocks(mine, spec, tiles_of(problem->C, 16, 16), *problem, where);
}
VARIANT(mine, "one thread for each element", "mine.cu", spec, {7, 5});""",
    )
    A, B = operands(40, 50, 20)
    C = sk.run(sk.kernel(text, name="mine"), A, B, device="cpu")
    np.testing.assert_allclose(C, A @ B, rtol=1e-5, atol=1e-5)


ATOMICS = """\
#include "kernel.h"

__global__ void mine(const Sgemm p)
{
    __shared__ int down;
    __shared__ unsigned up, wraps;
    __shared__ unsigned long long large;
    __shared__ float part;
    if (threadIdx.x == 0) {
        down = 0;
        up = wraps = 0;
        large = 0;
        part = 0.0f;
    }
    __syncthreads();
    const bool is_last = atomicAdd(&up, 3u) == 3 * 63;
    atomicAdd(&down, is_last ? 100 : -2);
    atomicAdd(&large, 1ull << 40);
    atomicAdd(&part, 0.5f);
    atomicInc(&wraps, 9);
    __syncthreads();
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        const float found[5] = {float(down), float(up), float(large >> 40), part, float(wraps)};
        for (int i = 0; i < 5 && i < p.C.cols; ++i) {
            *address(p.C, 0, i) = found[i];
        }
    }
}

constexpr KernelSpec spec = {.symbol = "mine",
                             .block_tile = {1, 5, 1},
                             .thread_tile = {1, 5},
                             .threads = {64, 1},
                             .static_bytes = 64};
RUNG(mine, "counts its threads", "mine.cu", spec, {7, 5});
"""


def test_atomic_operations_add_and_return_the_old_value():
    C = sk.run(sk.kernel(ATOMICS, name="mine"), *operands(1, 5, 1), device="cpu")
    assert C.tolist() == [[100 - 2 * 63, 3 * 64, 64, 32, 64 % 10]]


def test_sanitize_distinguishes_atomic_operations():
    harmful = ("race", "out of bounds", "uninitialized read")
    found = sk.kernel(ATOMICS, name="mine").sanitize().findings
    assert not [finding for finding in found if finding.kind in harmful]
    plain = ATOMICS.replace("atomicAdd(&part, 0.5f)", "part += 0.5f")
    first = sk.kernel(plain, name="mine").sanitize().findings[0]
    assert (first.kind, first.array) == ("race", "part")
    mixed = ATOMICS.replace(
        "atomicInc(&wraps, 9);", "if (threadIdx.x == 5) wraps = 0; atomicInc(&wraps, 9);"
    )
    first = sk.kernel(mixed, name="mine").sanitize().findings[0]
    assert (first.kind, first.array) == ("race", "wraps")


def test_it_is_measured_and_compared_with_rungs():
    mine = sk.kernel(SMALLEST, name="mine")
    measured = sk.measure([mine, "naive"], 32, device="cpu", seconds=0.1)
    assert [row.variant for row in measured.rows] == ["mine", "naive"]
    assert all(row.error.right and row.samples_s for row in measured.rows)
    assert sk.measure(mine, 32, device="cpu", seconds=0.1).rows[0].variant == "mine"
    with pytest.raises(ValueError, match="two kernels are called 'mine'"):
        sk.measure([mine, sk.kernel(SMALLEST + "\n", name="mine")], 32, device="cpu")


@pytest.mark.parametrize("taken", ["naive", "tile2d", "async"])
def test_its_accesses_are_counted_like_a_rungs(taken):
    mine = sk.kernel(sk.source(taken), name="mine", like=taken)
    for size in [(200, 132, 20), (5, 20, 12, 8)]:  # the second one is a batch
        traced, expected = sk.trace(mine, size), sk.trace(taken, size)
        assert traced.variant == "mine"
        assert [(a.line, a.text, a.operand, a.sectors, a.wavefronts) for a in traced.accesses] == [
            (a.line, a.text, a.operand, a.sectors, a.wavefronts) for a in expected.accesses
        ]


def test_wrong_operands_are_refused_as_for_a_rung():
    mine = sk.kernel(SMALLEST, name="mine")
    A, B = operands(4, 5, 6)
    with pytest.raises(ValueError, match="must match"):
        sk.run(mine, B, A, device="cpu")
    with pytest.raises(TypeError):
        sk.run(mine, A.astype(np.float64), B, device="cpu")
    out = np.empty((4, 5), np.float32)
    assert sk.run(mine, A, B, out=out, device="cpu") is out
    np.testing.assert_allclose(out, A @ B, rtol=1e-5, atol=1e-5)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        sk.run(mine, A, B, out=out, device="cpu")


def test_names_of_rungs_are_refused(tmp_path):
    path = tmp_path / "tile2d.cu"
    path.write_text(with_header("tile2d"))
    for name in (None, "vec4", "cublas", "cublas-tf32", "no name"):
        with pytest.raises(ValueError, match="name="):
            sk.kernel(path, name=name)
    with pytest.raises(ValueError, match="name="):
        sk.kernel(SMALLEST)
    with pytest.raises(ValueError, match="no source of 'cublas'"):
        sk.source("cublas")


# ------------------------------------------------------------------ compiling


@pytest.mark.thorough
@pytest.mark.parametrize("side", [0, 33, 64])
def test_a_block_with_too_many_threads_is_refused(tmp_path, side):
    path = tmp_path / "mine.cu"
    path.write_text(SMALLEST.replace(".threads = {16, 16}", f".threads = {{{side}, {side}}}"))
    said = f"a block of {side} x {side} threads cannot be launched: use 1 to 1024 threads"
    mine = sk.kernel(path)
    assert said in str(mine.check(device="cpu"))
    assert said in str(mine.sanitize())
    report = str(mine.check())  # on a GPU if there is one
    assert said in report or "launching a kernel failed" in report


@pytest.mark.thorough
def test_a_cache_folder_may_have_a_name_that_is_not_text(tmp_path, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_CACHE", os.fsdecode(bytes(tmp_path) + b"/\xff"))
    A, B = operands(3, 4, 5)
    C = sk.run(sk.kernel(SMALLEST, name="mine"), A, B, device="cpu")
    assert np.allclose(C, A @ B, atol=1e-5)


def test_compile_errors_have_the_files_line_numbers():
    with pytest.raises(sk.CompileError, match=r"mine\.cu:11:.*error(.|\n)*stor\(p, row"):
        sk.kernel(SMALLEST.replace("store(p", "stor(p"), name="mine")
    with pytest.raises(sk.CompileError, match="how its kernel is launched"):
        sk.kernel(SMALLEST.partition("RUNG")[0], name="mine")


def test_compiler_output_is_text_in_any_locale(tmp_path):
    tool = tmp_path / "bin/nvcc"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho größe\necho größe >&2\nexit 1\n", encoding="utf-8")
    tool.chmod(0o755)
    text = SMALLEST.replace("float sum", "float größe = é, sum")
    (tmp_path / "mine.cu").write_text(text, encoding="utf-8")
    code = f"""
        from pathlib import Path
        import sgemm_kernels as sk
        from sgemm_kernels.custom import check
        from sgemm_kernels.custom import nvrtc
        from sgemm_kernels.measuring import probe
        from sgemm_kernels.custom import sanitize
        from sgemm_kernels.custom.compiler import Source
        tool = Path({str(tool)!r})
        mine = Source(Path("mine.cu"), sk.source("splitk"))
        for call in (
            lambda: sk.kernel({str(tmp_path / "mine.cu")!r}),
            lambda: nvrtc.nvcc_library(mine, [90]),
            lambda: probe._output([str(tool)]),
        ):
            try:
                call()
            except sk.Error as error:
                print(type(error).__name__, "gr\\xf6\\xdfe" in str(error))
        tile = check.tile_of(sk.variants()[0])
        print("gr\\xf6\\xdfe" in sanitize.watch(tool, tile, mine, 1)[1][0].text)
    """
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = python(code, CUDA_HOME=str(tmp_path), **locale)
    assert done.returncode == 0, ending(done)
    expected = "CompileError True CompileError True DeviceError True True"
    assert done.stdout.split() == expected.split()


@pytest.mark.thorough
def test_a_file_name_may_begin_with_a_dash(tmp_path):
    for file in ("-mine.cu", "@mine.cu"):
        (tmp_path / file).write_text(SMALLEST)
        mine = sk.kernel(tmp_path / file, name="mine")
        access = sk.trace(mine, 16, 16, 4).accesses[0]
        assert (access.file, access.text) == (file, SMALLEST.splitlines()[access.line - 1])


def test_defines_set_the_rungs_geometry():
    small = sk.kernel(with_header("tile2d"), name="small", defines={"BM": 64, "BN": 64, "TM": 4})
    assert small.variant.block_tile == (64, 64, 8)
    assert small.variant.thread_tile == (4, 8)
    A, B = operands(100, 70, 30)
    assert (sk.run(small, A, B, device="cpu") == sk.run("tile2d", A, B, device="cpu")).all()
    with pytest.raises(sk.CompileError, match="the block loads whole rows of a tile"):
        sk.kernel(with_header("tile2d"), name="odd", defines={"BM": 96})
    with pytest.raises(ValueError, match=r"uses no WM.*BK, BM, BN, TM, TN"):
        sk.kernel(with_header("tile2d"), name="odd", defines={"WM": 96})


@pytest.mark.thorough
@pytest.mark.parametrize(
    "geometry",
    [(64, 32, 32, 32, 16, 4, 4), (160, 160, 16, 32, 80, 4, 20)],
    ids=["warps of fewer columns than threads", "one row of each thread at a time"],
)
def test_unusual_geometries(geometry):
    """Results are right in unusual geometries, also for C with beta and for an unaligned C."""
    defines = dict(zip(("BM", "BN", "BK", "WM", "WN", "TM", "TN"), geometry, strict=True))
    mine = sk.kernel(with_header("splitk"), name="mine", defines=defines)
    assert mine.check(device="cpu")


def test_defines_are_integers_of_any_kind():
    text = SMALLEST.replace("sum = 0.0f", "sum = TUNABLE(FIRST, 0)")
    mine = sk.kernel(text, name="mine", defines={"FIRST": np.int64(3)})
    assert type(mine.defines["FIRST"]) is int
    for wrong in ({"FIRST": 1.0}, {3: 4}, {None: 4}):
        with pytest.raises(ValueError, match="a define is a name and an integer"):
            sk.kernel(text, name="mine", defines=wrong)


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "mine.cu").write_text('#include "more.h"\n' + SMALLEST)
    (tmp_path / "more.h").write_text("// größe\n", encoding="latin-1")
    with pytest.raises(ValueError, match=r"more\.h is no text in UTF-8"):
        sk.kernel(tmp_path / "mine.cu")
    (tmp_path / "mine.cu").write_text("// größe\n" + SMALLEST, encoding="latin-1")
    with pytest.raises(ValueError, match=r"mine\.cu is no text in UTF-8"):
        sk.kernel(tmp_path / "mine.cu")
    with pytest.raises(ValueError, match=r"mine\.cu is no text in UTF-8"):
        sk.tune(tmp_path / "mine.cu", {"BM": [64]}, 48, device="cpu")


SMALLER = "std::min(p.A.data[row * p.A.row_stride + k * p.A.col_stride], HUGE_VALF)"


@pytest.mark.thorough
def test_accesses_in_source_lines_outside_the_package():
    """Accesses in the compiler's own headers, and in a file that #line names."""
    text = "#include <algorithm>\n" + SMALLEST.replace("at(p.A, row, k)", SMALLER)
    mine = sk.kernel(text, name="mine")
    elsewhere = [a for a in sk.trace(mine, 32, 32, 8).accesses if a.file != "mine.cu"]
    assert {access.text for access in elsewhere} <= {""}  # some compilers name the caller's line
    (finding,) = mine.sanitize().findings
    assert "std::min is for the host: write min" in finding.text
    assert list(sk.explain(mine).kernels[0].sources) == ["mine.cu"]
    text = SMALLEST.replace("__global__", '#line 700 "mine.in"\n__global__')
    generated = sk.kernel(text, name="mine")
    places = {(access.place, access.text) for access in sk.trace(generated, 32, 32, 8).accesses}
    assert places == {("mine.in:706", ""), ("mine.in:708", "")}
    assert generated.sanitize()


@pytest.mark.thorough
def test_lines_end_where_the_compiler_ends_them():
    text = "// one\f// one\n// two\u2028\x85\n" + SMALLEST
    mine = sk.kernel(text, name="mine")
    stores = [a for a in sk.trace(mine, 32, 32, 8).accesses if a.kind == "store"]
    assert [access.text for access in stores] == ["    store(p, row, col, sum);"]
    wrong = sk.kernel(text.replace("col, sum)", "col, sum + 1)"), name="mine").sanitize()
    assert "13 |     store(p, row, col, sum + 1);" in repr(wrong)


def test_other_defines_are_macros():
    text = SMALLEST.replace("sum = 0.0f", "sum = FIRST")
    A, B = operands(4, 5, 6)
    C = sk.run(sk.kernel(text, name="mine", defines={"FIRST": 3}), A, B, device="cpu")
    np.testing.assert_allclose(C, A @ B + 3, rtol=1e-5, atol=1e-5)


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(sk.NoCompilerError, match=r"apt install g\+\+"):
        sk.kernel(SMALLEST, name="mine")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(sk.NoCompilerError, match="CXX=no-such-compiler cannot be run"):
        sk.kernel(SMALLEST, name="mine")


@pytest.mark.parametrize("command", ["echo", "true", "g++ -fsyntax-only"])
def test_a_command_that_is_no_compiler(monkeypatch, tmp_path, command):
    """It reports no error, but writes no file."""
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("SGEMM_KERNELS_CACHE", str(tmp_path))
    with pytest.raises(sk.NoCompilerError, match="set CXX to a compiler"):
        sk.kernel(SMALLEST, name="mine")


# ------------------------------------------------------------------ the cache


def test_the_second_load_compiles_nothing(monkeypatch):
    sk.kernel(SMALLEST, name="mine")
    monkeypatch.setattr(compiler, "run_compiler", None)
    sk.kernel(SMALLEST, name="mine")
    with pytest.raises(TypeError):
        sk.kernel(SMALLEST + "// other\n", name="mine")


def test_included_headers_are_part_of_the_kernel(tmp_path):
    (tmp_path / "mine.cu").write_text('#include "more.h"\n' + SMALLEST)
    digests = []
    for text in ("// one\n", "// two\n"):
        (tmp_path / "more.h").write_text(text)
        digests.append(sk.kernel(tmp_path / "mine.cu").digest)
    assert digests[0] != digests[1]


def starting_at(path, value):
    """Writes a header with the starting value of the kernel's sums. Only 0 gives right results."""
    path.write_text(f"#define START {value}\n")


STARTING = SMALLEST.replace("sum = 0.0f", "sum = START")


@pytest.mark.thorough
def test_headers_beside_the_kernel_included_by_headers_are_part_of_the_kernel(tmp_path):
    (tmp_path / "mine.cu").write_text('#include "sub/more.h"\n' + STARTING)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/more.h").write_text('#include "common.h"\n')
    one = np.ones((1, 1), np.float32)
    for start in (0, 100):
        starting_at(tmp_path / "common.h", start)
        assert sk.run(sk.kernel(tmp_path / "mine.cu"), one, one, device="cpu") == start + 1
    (tmp_path / "sub/common.h").write_text("#define START 200\n")  # the compiler finds this first
    assert sk.run(sk.kernel(tmp_path / "mine.cu"), one, one, device="cpu") == 201


def test_sanitize_checks_the_headers_as_they_were_when_loaded(tmp_path):
    (tmp_path / "mine.cu").write_text('#include "more.h"\n' + STARTING)
    starting_at(tmp_path / "more.h", 1)
    wrong = sk.kernel(tmp_path / "mine.cu")
    starting_at(tmp_path / "more.h", 0)
    with pytest.raises(sk.Error, match="a file that it includes has changed since: load it anew"):
        wrong.sanitize()
    one = np.ones((1, 1), np.float32)
    assert sk.run(wrong, one, one, device="cpu") == 2  # in its child, which compiled the same text
    assert sk.kernel(tmp_path / "mine.cu").sanitize()
    assert not wrong.sanitized
    starting_at(tmp_path / "more.h", 1)
    assert not sk.kernel(tmp_path / "mine.cu").sanitized


def test_a_file_that_changes_while_it_is_compiled_is_not_kept(tmp_path, monkeypatch):
    (tmp_path / "mine.cu").write_text('#include "more.h"\n' + STARTING)
    starting_at(tmp_path / "more.h", 3)
    run = compiler.run_compiler

    def run_later(command, folder):
        if "mine.cu" in command:
            starting_at(tmp_path / "more.h", 4)
        return run(command, folder)

    with monkeypatch.context() as patches:
        patches.setattr(compiler, "run_compiler", run_later)
        with pytest.raises(sk.Error, match="load it anew"):
            sk.kernel(tmp_path / "mine.cu")
    starting_at(tmp_path / "more.h", 3)
    one = np.ones((1, 1), np.float32)
    assert sk.run(sk.kernel(tmp_path / "mine.cu"), one, one, device="cpu") == 4


@pytest.mark.thorough
def test_processes_may_fill_the_cache_concurrently(tmp_path):
    code = (
        "import sys, numpy as np, sgemm_kernels as sk\n"
        "one = np.ones((3, 3), np.float32)\n"
        "assert sk.run(sk.kernel(sys.argv[1]), one, one, device='cpu')[0, 0] == 3\n"
    )
    (tmp_path / "mine.cu").write_text(SMALLEST)
    environ = {**os.environ, _cache.VARIABLE: str(tmp_path / "cache")}
    path = os.pathsep.join(p for p in sys.path if p)
    environ["PYTHONPATH"] = path

    def one_process(_):
        command = [sys.executable, "-c", code, str(tmp_path / "mine.cu")]
        return subprocess.run(command, env=environ, capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in pool.map(one_process, range(4)):
            assert done.returncode == 0, done.stderr
    left = {path.suffix for path in (tmp_path / "cache").iterdir()}
    assert left == {".so", ".txt", ".o", ".sha256"}


@pytest.mark.thorough
def test_a_cache_that_cannot_be_written_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(_cache.VARIABLE, str(tmp_path / "file/cache"))
    with pytest.warns(RuntimeWarning, match="Set SGEMM_KERNELS_CACHE"):
        mine = sk.kernel(SMALLEST, name="mine")
    one = np.ones((3, 3), np.float32)
    assert sk.run(mine, one, one, device="cpu")[0, 0] == 3


@pytest.mark.thorough
def test_the_cache_may_be_deleted_at_any_time(tmp_path, monkeypatch):
    monkeypatch.setenv(_cache.VARIABLE, str(tmp_path / "cache"))
    one = np.ones((3, 3), np.float32)
    mine = sk.kernel(SMALLEST, name="mine")
    assert mine.sanitize()
    loaded = sk.kernel(SMALLEST, name="mine")
    assert loaded.sanitized
    shutil.rmtree(tmp_path / "cache")
    assert sk.run(loaded, one, one, device="cpu")[0, 0] == 3
    shutil.rmtree(tmp_path / "cache")
    assert sk.kernel(SMALLEST, name="mine").check(device="cpu")


@pytest.mark.parametrize("caches", ["", "caches", "/caches"])
def test_the_cache_folder_is_absolute(tmp_path, monkeypatch, caches):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(_cache.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", caches)
    theirs = Path(caches) if caches == "/caches" else tmp_path / "home/.cache"
    assert _cache.wanted() == theirs / "sgemm_kernels"
    monkeypatch.setenv("HOME", "home")
    assert _cache.wanted().is_absolute()


def test_a_failed_write_leaves_nothing_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(_cache.VARIABLE, str(tmp_path))
    (tmp_path / "key.passed").mkdir()
    _cache.note("key", ".passed", "a text")
    assert [path.name for path in tmp_path.iterdir()] == ["key.passed"]


# ------------------------------------------------------------------ in a child process

CRASHES = SMALLEST.replace(
    "store(p, row", "*reinterpret_cast<volatile float *>(8) = sum;\n    store(p, row"
)
ENDLESS = SMALLEST.replace(
    "for (int64_t k = 0;",
    "for (volatile int64_t n = 0; p.A.cols > 3;) {\n        n = n;\n    }\n    for (int64_t k = 0;",
)


def test_a_crashing_kernel_ends_only_its_own_process():
    A, B = operands(4, 5, 6)
    bad = sk.kernel(CRASHES, name="bad")
    with pytest.raises(sk.DeviceError, match=r"bad ended its process \(SIGSEGV\).*sanitize"):
        sk.run(bad, A, B, device="cpu")
    verdict = bad.check(device="cpu")
    assert [finding.kind for finding in verdict.findings] == ["ended its process"]
    assert "SIGSEGV" in str(verdict)


def test_an_endless_kernel_can_be_interrupted():
    A, B = operands(4, 5, 6)
    endless = sk.kernel(ENDLESS, name="endless")
    assert sk.run(endless, A[:, :2], B[:2], device="cpu").shape == (4, 5)
    main = threading.main_thread().ident
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs lack this handler
    threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        sk.run(endless, A, B, device="cpu")
    assert sk.run(endless, A[:, :2], B[:2], device="cpu").shape == (4, 5)  # a new child computes it


def test_a_kernel_that_is_endless_at_some_sizes_can_be_interrupted_in_this_process():
    step = "k += p.A.cols == 77 ? 0 : 1"
    endless = sk.kernel(SMALLEST.replace("++k", step), name="endless_at_77")
    assert step in endless.source
    assert endless.check(device="cpu")
    assert endless.sanitize()
    endless.child.end()
    A, B = operands(40, 50, 77)
    main = threading.main_thread().ident
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for _ in range(2):
        threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            sk.run(endless, A, B, device="cpu")
        assert endless.child._process is None
        assert sk.run(endless, A[:, :76], B[:76], device="cpu").shape == (40, 50)
    assert signal.getsignal(signal.SIGSYS) == signal.SIG_DFL


def test_an_endless_kernel_fails_its_check():
    verdict = sk.kernel(ENDLESS, name="endless").check(device="cpu", seconds=1)
    assert not verdict
    (finding,) = verdict.findings
    assert finding.kind == "not finished"
    assert "the checking build reports endless" in finding.text
    assert "volatile int64_t n" in verdict.source.splitlines()[finding.line - 1]


ARGUMENTS = """
import os, signal, time

class Slow:
    \"""Takes long to unpickle. An interrupt meanwhile may end the process.\"""

    def __init__(self, how):
        self.how = how

    def __reduce__(self):
        return taken, (self.how,)

def taken(how):
    if how == "and ends":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    time.sleep(60)

class Weighed:
    \"""Replaces a kernel: returns the resident memory of the parent and the child, in bytes.\"""

    def __sgemm_run__(self, A, limit):
        for _ in range(100):  # until the parent has come to wait
            if resident(os.getppid()) < limit:
                break
            time.sleep(0.1)
        return resident(os.getppid()), resident(os.getpid())

class Failed(Exception):
    \"""Cannot be unpickled.\"""

    def __init__(self, what, where):
        super().__init__(f"{what} failed in {where}")

class Failing:
    def __sgemm_run__(self, A, B):
        raise Failed("the kernel", "its child")

def resident(process):
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
"""


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """A module of arguments that a child can import, and a child that has started."""
    (tmp_path / "arguments_for_a_child.py").write_text(ARGUMENTS)
    monkeypatch.syspath_prepend(tmp_path)
    child = child_process.Child("mine")
    assert child.call(child_process.is_child)
    yield importlib.import_module("arguments_for_a_child"), child
    child.end()
    del sys.modules["arguments_for_a_child"]


@pytest.mark.parametrize("how", ["and goes on", "and ends"])
def test_a_child_can_be_interrupted_while_it_receives_operands(arguments, how):
    module, child = arguments
    process = child._process
    main = threading.main_thread().ident
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        child.call(child_process.is_child, module.Slow(how))
    assert child.call(child_process.is_child)
    assert (child._process is process) == (how == "and goes on")


def test_each_process_holds_the_operands_once_while_a_child_computes(arguments):
    module, child = arguments
    A = np.ones((1 << 26) // 4, np.float32)
    before, empty = child.call(run_here, module.Weighed(), A[:1], 1 << 60)
    limit = before + A.nbytes // 2
    parent, its = child.call(run_here, module.Weighed(), A, limit)
    assert parent < limit
    assert its - empty < 1.5 * A.nbytes


def test_an_exception_that_cannot_be_sent_is_described(arguments):
    module, child = arguments
    with pytest.raises(sk.DeviceError, match="the kernel failed in its child"):
        child.call(run_here, module.Failing(), None, None)
    assert child.call(child_process.is_child)


def test_too_little_memory_for_copies_of_operands_is_reported():
    class TooLarge:
        def __reduce__(self):
            raise MemoryError("too large")

    with pytest.raises(MemoryError, match="too large"):
        child_process.Child("mine").call(child_process.is_child, TooLarge())


def test_the_child_does_not_outlive_its_parent():
    code = (
        "import sys, numpy as np, sgemm_kernels as sk\n"
        "one = np.ones((3, 3), np.float32)\n"
        "mine = sk.kernel(sys.stdin.read(), name='mine')\n"
        "sk.run(mine, one, one, device='cpu')\n"
        "print(mine.child._process.pid, flush=True)\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=SMALLEST, env=environ, capture_output=True, text=True)
    assert done.stdout.strip().isdigit()
    while (Path("/proc") / done.stdout.strip()).exists():  # until this test's time is over
        time.sleep(0.1)


def test_a_kernel_is_the_same_after_a_pickle():
    mine = pickle.loads(pickle.dumps(sk.kernel(SMALLEST, name="mine")))
    assert (mine.name, mine.source) == ("mine", SMALLEST)


# ------------------------------------------------------------------ tuning

SPACE = {"BM": [32, 64], "BN": [32, 64], "TM": [4, 8]}


def tune(**options):
    return sk.tune("tile2d", SPACE, [48], device="cpu", seconds=0.05, **options)


def test_tuning_skips_candidates_that_do_not_compile_and_caches_results(monkeypatch, tmp_path):
    found = tune()
    assert len(found.candidates) == 8
    assert found.counts["did not compile"] == 2  # TM = 8 with BM = 32 and BN = 64, or the reverse
    assert found.default == {"BM": 128, "BN": 128, "TM": 8}
    assert found.best is not None
    assert found.best == found.find(**found.best.defines)
    assert "static assertion" in found.find(BM=32, BN=64, TM=8).reason
    assert [c.verdict for c in found.ranked] == ["right"] * found.counts["right"]
    best, worst = (found.gflops(found.ranked[end])[0] for end in (0, -1))
    assert best >= worst > 0
    found.to_json(tmp_path / "found.json")
    assert sk.Tuning.from_json(tmp_path / "found.json") == found
    assert "8 of 8 tried" in repr(found)
    assert "say nothing about a GPU" in repr(found)
    monkeypatch.setattr(compiler, "run_compiler", None)  # the second run compiles nothing
    assert tune().candidates == found.candidates


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("", "Expecting value"),
        ("[]", "list"),
        ("{}", "no 'sizes'"),
        ('{"sizes": [[1, 2]]}', "use N,"),
        ('{"sizes": [], "space": {}, "candidates": [{"seconds": []}]}', "defines"),
        ('{"sizes": [], "space": {}, "candidates": []}', "kernel"),
    ],
)
def test_a_file_without_a_tuning_is_refused(tmp_path, text, fact):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(
        ValueError, match=rf"t\.json (does not hold a tuning|is not JSON): .*{fact}"
    ):
        sk.Tuning.from_json(tmp_path / "t.json")


def test_strategies_try_each_candidate_once():
    every = {candidate.text for candidate in tune().candidates}
    for strategy in ("random", "local"):
        tried = [candidate.text for candidate in tune(strategy=strategy).candidates]
        assert len(tried) == len(set(tried)) == 8
        assert set(tried) == every
    assert len(tune(strategy="random", limit=3).candidates) == 3
    square = tune(where=lambda defines: defines["BM"] == defines["BN"])
    assert all(c.defines["BM"] == c.defines["BN"] for c in square.candidates)
    assert len(square.candidates) == 4


@pytest.mark.thorough
def test_incorrect_candidates_get_no_time(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text(SMALLEST.replace("sum = 0.0f", "sum = TUNABLE(FIRST, 0)"))
    found = sk.tune(path, {"FIRST": [0, 1]}, 20, device="cpu", seconds=0.05)
    assert [c.verdict for c in found.candidates] == ["right", "wrong"]
    assert found.candidates[1].seconds == ()
    assert found.best == found.candidates[0]


@pytest.mark.thorough
def test_values_to_try_are_integers_of_any_kind(tmp_path):
    text = SMALLEST.replace("sum = 0.0f", "sum = TUNABLE(FIRST, 0)")
    mine = sk.kernel(text, name="counted")
    found = sk.tune(mine, {"FIRST": np.arange(2)}, 20, device="cpu", seconds=0.05)
    assert found.counts == {"right": 1, "wrong": 1}
    found.to_json(tmp_path / "found.json")
    assert sk.Tuning.from_json(tmp_path / "found.json") == found
    with pytest.raises(ValueError, match="a define is a name and an integer"):
        sk.tune(mine, {"FIRST": [0.5]}, 20, device="cpu")


def verdicts(kernel_or_file, *, seconds=0.05, space=None):
    found = sk.tune(kernel_or_file, space or {"FIRST": [0]}, 20, device="cpu", seconds=seconds)
    return [candidate.verdict for candidate in found.candidates]


@pytest.mark.thorough
def test_tuning_retries_if_an_included_file_changed(tmp_path):
    path = tmp_path / "mine.cu"
    path.write_text('#include "more.h"\n' + STARTING.replace("START", "START + TUNABLE(FIRST, 0)"))
    for start, verdict in ((1, "wrong"), (0, "right")):
        starting_at(tmp_path / "more.h", start)
        assert verdicts(path) == [verdict]


@pytest.mark.thorough
def test_tuning_retries_failures_caused_by_the_machine(monkeypatch):
    def fail(*_, **__):
        raise sk.OutOfMemoryError("there is none left")

    mine = sk.kernel(SMALLEST.replace("sum = 0.0f", "sum = TUNABLE(FIRST, 0)"), name="failing")
    with monkeypatch.context() as patches:
        patches.setattr(tuning, "measure", fail)
        assert verdicts(mine) == ["cannot be launched"]
    assert verdicts(mine) == ["right"]
    monkeypatch.setattr(tuning, "measure", fail)
    assert verdicts(mine) == ["right"]  # from the cache
    assert verdicts(mine, seconds=0.1) == ["cannot be launched"]  # another limit has its own entry


@pytest.mark.thorough
def test_tuning_a_kernel_keeps_its_defines_and_its_folder(tmp_path):
    path = tmp_path / "mine.cu"
    text = SMALLEST.replace("sum = 0.0f", "sum = START + TUNABLE(FIRST, 0) + TUNABLE(OTHER, 1)")
    path.write_text('#include "more.h"\n' + text)
    starting_at(tmp_path / "more.h", 0)
    assert verdicts(sk.kernel(path)) == ["wrong"]
    mine = sk.kernel(path, defines={"OTHER": 0, "FIRST": 5})
    assert verdicts(mine) == ["right"]
    assert verdicts(mine, space={"OTHER": [0, -5]}) == ["wrong", "right"]
    starting_at(tmp_path / "more.h", 1)
    with pytest.raises(sk.Error, match="load it anew"):
        verdicts(mine, space={"OTHER": [7]})


def test_a_tuning_that_cannot_start_says_why():
    with pytest.raises(ValueError, match="a strategy is one of exhaustive, random, local"):
        tune(strategy="best")
    for limit in (0, -1):
        with pytest.raises(ValueError, match=rf"from 1 up, not {limit}"):
            tune(limit=limit)
    with pytest.raises(ValueError, match="names at least one define"):
        sk.tune("tile2d", {}, 48, device="cpu")
    with pytest.raises(ValueError, match="no source of 'tile9'"):
        sk.tune("tile9", SPACE, 48, device="cpu")
    with pytest.raises(ValueError, match="uses no STAGES"):
        sk.tune("tile2d", {"STAGES": [3]}, 48, device="cpu")


# ------------------------------------------------------------------ files in the wheel


@pytest.mark.packaging
def test_the_wheel_has_all_files_for_compiling_kernels():
    root = Path(__file__).parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    packages, data = (settings["setuptools"][key] for key in ("package-dir", "package-data"))
    shipped = {
        path
        for package, folder in packages.items()
        for pattern in data[package]
        for path in (root / folder).glob(pattern)
    }
    builds = (compiler.run_build(), compiler.access_trace_build(), compiler.sanitizer_build())
    needed = {root / "csrc" / part for build in builds for part in build.parts}
    needed |= {path for each in KERNEL_FOLDERS for path in (root / "csrc" / each).glob("*.h")}
    waiting = list(needed)
    while waiting:
        source = compiler.Source(waiting[-1], waiting.pop().read_text(encoding="utf-8"))
        fresh = set(source.included) - needed
        needed |= fresh
        waiting += fresh
    assert needed <= shipped
