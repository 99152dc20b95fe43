"""Products of float32 matrices by CUTLASS. nvcc compiles them on first use.

``python benchmarks/_cutlass_product.py sm_90a`` compiles them beforehand and needs no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from _compiled import architecture, compiled

SOURCE = Path(__file__).with_name("cutlass_products.cu")
HEADER = Path("include/cutlass/gemm/device/gemm.h")


def root() -> Path:
    """The folder with CUTLASS's headers in include/: CUTLASS_PATH, or of nvidia-cutlass.

    Raises FileNotFoundError without them.
    """
    named = os.environ.get("CUTLASS_PATH")
    package = None if named else importlib.util.find_spec("cutlass_library")
    found = Path(named) if named else None
    if package is not None and package.submodule_search_locations:
        found = Path(package.submodule_search_locations[0]) / "source"
    if found is None or not (found / HEADER).is_file():
        where = f"not in CUTLASS_PATH={named}" if named else "pip install nvidia-cutlass"
        raise FileNotFoundError(f"CUTLASS's headers are missing: {where}")
    return found


def release(folder: Path) -> str:
    """CUTLASS's version, from its header."""
    text = (folder / "include/cutlass/version.h").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if line.startswith("#define CUTLASS_"))


def build(target: str) -> Path:
    """The shared object, compiled if it is not there yet."""
    folder = root()
    return compiled(SOURCE, target, include=[folder / "include"], depends=release(folder))


@functools.cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build(architecture())))


def product(A: Any, B: Any, out: Any, kernel: str) -> None:
    """Queues out = A @ B in the default stream, by a function of SOURCE. All are densely packed: A
    and out row-major, B row-major or column-major."""
    a, b, c = (matrix.__cuda_array_interface__ for matrix in (A, B, out))
    (M, K), (_, N) = a["shape"], b["shape"]
    steps = [each["strides"][1] if each["strides"] else 4 for each in (a, b, c)]  # None: by rows
    by_columns = steps[1] != 4 and b["strides"][0] == 4
    if steps[0] != 4 or steps[2] != 4 or not (steps[1] == 4 or by_columns):
        raise ValueError("these kernels take A and out by rows, and B by rows or columns")
    pointers = (ctypes.c_void_p(each["data"][0]) for each in (a, b, c))
    function = getattr(library(), f"{kernel}_nt" if by_columns else kernel)
    status = function(*pointers, M, N, K, None)
    if status != 0:
        raise RuntimeError(f"CUTLASS refused {M} x {N} x {K}: status {status}")


if __name__ == "__main__":
    print(build(sys.argv[1] if len(sys.argv) > 1 else architecture()))
