"""Helpers shared by several test files: operands, memory layouts, special memory, subprocesses."""

import ctypes
import functools
import mmap
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from numpy.typing import NDArray

import sgemm_kernels
from sgemm_kernels import _core

Float32 = NDArray[np.float32]

SHORTEST_K = {"mma": 256, "wgmma": 128, "waves": 128, "fused": 128}
"""The least K that the rungs on tensor cores compute there. They leave a shorter K to others."""

SPLIT_FP16 = tuple(SHORTEST_K)
"""Rungs on tensor cores. The CPU device is slow at them because it reproduces their bits."""

MULTIPROCESSORS = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
"""The setting that makes the CPU device plan like a GPU of so many multiprocessors."""

MARGIN = 64  # bytes on either side of a placed matrix
FILLER = 0xFF  # four make a NaN, so a read outside the matrix shows in the result


def launched_by(name: str, A: Float32, B: Float32, **options: Any) -> tuple[Any, set[str]]:
    """The result of `run` on the CPU device, and the names of the launched kernels."""
    _core._launched(True)
    try:
        result = sgemm_kernels.run(name, A, B, device="cpu", **options)
    finally:
        launched = _core._launched(False)
    return result, launched


def with_header(name: str) -> str:
    """The text of a kernel that is written with kernel.h: a rung as it was before it became plain
    CUDA, or the library's kernel of that name."""
    path = Path(__file__).parent / f"with_header/{name}.cu"
    return path.read_text() if path.is_file() else sgemm_kernels.source(name)


def run_script(script: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Any:
    """Runs a script of benchmarks/ and returns its exit status."""
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *map(str, arguments)])
    try:
        return script.main()
    except SystemExit as ended:
        return ended.code


def sampled(values: Iterable[object], quick: Container[object]) -> list[ParameterSet]:
    """Parameters of a test. Those that are not quick are thorough tests."""
    return [
        pytest.param(value, marks=() if value in quick else pytest.mark.thorough)
        for value in values
    ]


def uniform(rng: np.random.Generator, *shape: int) -> Float32:
    """Random values in [-1, 1]."""
    return rng.uniform(-1, 1, shape).astype(np.float32)


def deep(name: str, K: int) -> int:
    """K, or so much more that a rung on tensor cores computes the product itself."""
    return K + SHORTEST_K.get(name, 0)


def deepened(name: str, A: Float32, B: Float32) -> tuple[Float32, Float32]:
    """A and B with zeros added along K, so that a rung on tensor cores computes them itself."""
    more = deep(name, 0)
    rows, cols = np.zeros((len(A), more), np.float32), np.zeros((more, B.shape[1]), np.float32)
    return np.hstack([A, rows]), np.vstack([B, cols])


def same_bits(a: Float32, b: Float32) -> bool:
    return a.shape == b.shape and np.array_equal(
        np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32)
    )


class Placed(NamedTuple):
    """A matrix inside a larger block of memory."""

    matrix: Float32
    memory: NDArray[np.uint8]  # the whole block, matrix included

    def surroundings(self) -> bytes:
        """The bytes outside the matrix, in order."""
        outside = np.ones(self.memory.shape, bool)
        if self.matrix.size:
            start = self.matrix.ctypes.data - self.memory.ctypes.data
            rows, columns = (
                np.arange(n) * stride
                for n, stride in zip(self.matrix.shape, self.matrix.strides, strict=True)
            )
            first_bytes = start + np.add.outer(rows, columns).ravel()
            outside[np.add.outer(first_bytes, np.arange(4))] = False
        return self.memory[outside].tobytes()


class Layout(NamedTuple):
    """Strides and offset of a matrix in bytes. The offset counts from an aligned address."""

    strides: Callable[[int, int], tuple[int, int]]
    offset: int = 0
    dtype: str = "=f4"
    writeable: bool = True

    def place(self, values: Float32) -> Placed:
        """Copies the values to new memory of this layout."""
        strides = self.strides(*values.shape)
        steps = [stride * max(n - 1, 0) for n, stride in zip(values.shape, strides, strict=True)]
        lowest = sum(min(step, 0) for step in steps)
        highest = sum(max(step, 0) for step in steps) + 4
        size = 2 * MARGIN + self.offset + highest - lowest
        # NumPy guarantees only 16 bytes of alignment, and offsets count from an aligned address.
        room = np.full(size + MARGIN, FILLER, np.uint8)
        skip = -room.ctypes.data % MARGIN
        memory = room[skip : skip + size]
        start = MARGIN + self.offset - lowest
        matrix = np.ndarray(values.shape, self.dtype, memory, start, strides)
        matrix[...] = values
        matrix.flags.writeable = self.writeable
        return Placed(matrix, memory)


def _c(m: int, n: int) -> tuple[int, int]:
    return 4 * n, 4


def _f(m: int, n: int) -> tuple[int, int]:
    return 4, 4 * m


LAYOUTS = {
    "C": Layout(_c),
    "F": Layout(_f),
    "C with padded rows": Layout(lambda m, n: (4 * n + 12, 4)),
    "F with padded columns": Layout(lambda m, n: (4, 4 * m + 20)),
    "rows ::2": Layout(lambda m, n: (8 * n, 4)),
    "columns ::2": Layout(lambda m, n: (8 * n, 8)),
    "F, both ::2": Layout(lambda m, n: (8, 16 * m)),
    "rows ::-1": Layout(lambda m, n: (-4 * n, 4)),
    "columns ::-1": Layout(lambda m, n: (4 * n, -4)),
    "both ::-1": Layout(lambda m, n: (-4 * n, -4)),
    "F, both ::-1": Layout(lambda m, n: (-4, -4 * m)),
    "C, 1 element on": Layout(_c, offset=4),
    "C, 2 elements on": Layout(_c, offset=8),
    "C, 3 elements on": Layout(_c, offset=12),
    "F, 1 element on": Layout(_f, offset=4),
    "C, 1 byte on": Layout(_c, offset=1),
    "C, 2 bytes on": Layout(_c, offset=2),
    "C, 3 bytes on": Layout(_c, offset=3),
    "F, 3 bytes on": Layout(_f, offset=3),
    "rows of odd bytes": Layout(lambda m, n: (4 * n + 1, 4)),
    "C, byte-swapped": Layout(_c, dtype=np.dtype("f4").newbyteorder("S").str),
    "F, byte-swapped": Layout(_f, dtype=np.dtype("f4").newbyteorder("S").str),
    "C, read-only": Layout(_c, writeable=False),
    "F, read-only": Layout(_f, writeable=False),
}


def unreadable(*shape: int) -> Float32:
    """A matrix in memory without read or write access: touching it ends the process."""
    size = 4 * int(np.prod(shape))
    memory = mmap.mmap(-1, max(size, 1))
    matrix = np.ndarray(shape, np.float32, memory)
    libc = ctypes.CDLL(None, use_errno=True)
    whole_pages = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    if libc.mprotect(ctypes.c_void_p(matrix.ctypes.data), ctypes.c_size_t(whole_pages), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    return matrix


def sparse(elements: int) -> Float32:
    """A vector of zeros of any length. Only pages that are written take memory."""
    no_reserve = 0x4000  # MAP_NORESERVE on Linux; Python's mmap names it from 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    memory = mmap.mmap(-1, 4 * elements, flags)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.float32)


def resident_bytes() -> int:
    """This process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def random_scalars(rng: np.random.Generator) -> tuple[float, float]:
    """A random alpha and beta that are not exact in float32."""
    return float(rng.uniform(-2, 2)), float(rng.uniform(-2, 2))


# Code that tests run in new processes calls a GPU 'cuda'. Builds for AMD GPUs call it 'hip', so the
# names are translated in the code and in its output.
OVER_HIP = _core._GPU_KIND == "hip"
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}  # hides the machine's GPUs


def _for_hip(code: str) -> str:
    return re.sub(r"""(?<=["'])cuda(?=[:"'])""", "hip", code) if OVER_HIP else code


def _from_hip(text: str) -> str:
    return re.sub(r"\bhip(?=:\w|')", "cuda", text) if OVER_HIP else text


def python(
    code: str, package: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Runs Python code in a new process that can also import tests.support."""
    package = package or Path(sgemm_kernels.__file__).parent.parent
    # The package comes first: the source tree beside the tests may lack the compiled extension.
    path = os.pathsep.join(map(str, [package, Path(__file__).parent.parent]))
    done = subprocess.run(
        [sys.executable, "-P", "-W", "default", "-c", _for_hip(textwrap.dedent(code))],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    done.stdout, done.stderr = _from_hip(done.stdout), _from_hip(done.stderr)
    return done


def ending(process: "subprocess.CompletedProcess[str]") -> str:
    """How a process ended (signals by name), followed by its output."""
    status = process.returncode
    how = f"exit status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
    if status == -signal.SIGKILL:
        how += ", as the system ends a process where the machine's memory is short"
    return f"{how}\n{process.stdout}{process.stderr}"


@functools.cache
def fake_cuda() -> Path:
    """The folder of the package built over tests/fake_cuda, for PYTHONPATH. Builds it if needed."""
    root = Path(__file__).parent.parent
    # The extension of this tree may be built without CUDA: the fake runtime is a build of its own.
    environ = {**os.environ}
    if environ.get("SGEMM_KERNELS_CUDA") == "0":
        environ["SGEMM_KERNELS_CUDA"] = "auto"
    sys.path.insert(0, str(root))
    try:
        from build_backend.compiling import build_fake
        from build_backend.toolkit import BuildError

        try:
            return build_fake(root, environ)
        except BuildError as error:
            pytest.skip(f"no fake CUDA runtime: {str(error)[:300]}")
    finally:
        sys.path.remove(str(root))


FAKE_PRELUDE = """
import ctypes, gc, os, sys, threading
import numpy as np
import sgemm_kernels
from sgemm_kernels import DeviceError, OutOfMemoryError, run
from tests.support import same_bits, uniform
fake = ctypes.CDLL(sgemm_kernels._core.__file__)
for name in ("live", "pinned"):
    getattr(fake, f"fake_cuda_{name}").restype = ctypes.c_size_t
for name in ("calls", "allocations", "handles", "waits_for_newest"):
    getattr(fake, f"fake_cuda_{name}").restype = ctypes.c_long
fake.fake_cuda_set_memory.argtypes = (ctypes.c_int, ctypes.c_size_t)
fake.fake_cuda_set_scratch.argtypes = (ctypes.c_size_t,)
fake.fake_cuda_failed_call.restype = ctypes.c_char_p
rng = np.random.default_rng(7)
"""


def printed_over_fake_cuda(code: str, **environment: str) -> str:
    """The output of code run in a new process over the fake CUDA runtime. `fake` is its ctypes
    handle."""
    code = FAKE_PRELUDE + textwrap.dedent(code)
    return printed_by(code, package=fake_cuda(), **environment)


def printed_by(code: str, package: Path | None = None, **environment: str) -> str:
    """The output of code run in a new process, which must succeed."""
    process = python(code, package, **environment)
    assert process.returncode == 0, ending(process)
    return process.stdout.strip()
