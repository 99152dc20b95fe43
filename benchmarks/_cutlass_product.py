"""Products of float32 matrices by CUTLASS. nvcc compiles them on first use.

The first product of a size and layout tries all tiles of the source, and keeps the fastest. ``make
peers`` fetches CUTLASS. ``python benchmarks/_cutlass_product.py sm_90a`` compiles the products
beforehand and needs no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from _compiled import SOURCES, architecture, compiled

SOURCE = Path(__file__).with_name("cutlass_products.cu")
HEADER = Path("include/cutlass/gemm/device/gemm.h")
KERNELS = ("Simt", "ThreeTf32")
LAYOUTS = {(True, True): 0, (True, False): 1, (False, True): 2}
"""The source's number for: is A by rows, and is B by rows."""
_TILES: dict[tuple[str | int, ...], int] = {}
"""The fastest tiles, by kernel, M, N, K and layout."""


def root() -> Path:
    """The folder with CUTLASS's headers in include/: CUTLASS_PATH, or the one that ``make peers``
    made, or one in the package nvidia-cutlass.

    Raises FileNotFoundError without them.
    """
    named = os.environ.get("CUTLASS_PATH")
    found = Path(named) if named else SOURCES / "cutlass"
    package = importlib.util.find_spec("cutlass_library")
    if not named and not found.is_dir() and package and package.submodule_search_locations:
        found = Path(package.submodule_search_locations[0]) / "source"
    if not (found / HEADER).is_file():
        where = f"not in CUTLASS_PATH={named}" if named else "make peers"
        raise FileNotFoundError(f"CUTLASS's headers are missing: {where}")
    return found


def release(folder: Path) -> str:
    """CUTLASS's version, from its header."""
    text = (folder / "include/cutlass/version.h").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if line.startswith("#define CUTLASS_"))


def build(target: str, kernel: str) -> Path:
    """The shared object of a kernel, compiled if it is not there yet."""
    folder = root()
    defines = [f"KERNEL={kernel}"]
    return compiled(
        SOURCE, target, include=[folder / "include"], defines=defines, depends=release(folder)
    )


@functools.cache
def library(kernel: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(build(architecture(), kernel)))


def is_by_rows(matrix: dict[str, Any]) -> bool:
    """True if a densely packed matrix is row-major, False if it is column-major. Raises ValueError
    for any other."""
    rows, cols = matrix["shape"]
    down, along = matrix["strides"] or (4 * cols, 4)  # None: by rows
    if along == 4 and (down == 4 * cols or rows == 1):
        return True
    if down == 4 and (along == 4 * rows or cols == 1):
        return False
    raise ValueError(f"strides {down, along}: these kernels take densely packed matrices")


def product(A: Any, B: Any, out: Any, kernel: str) -> None:
    """Queues out = A @ B in the default stream, by the fastest tile of a kernel. The matrices are
    densely packed, `out` by rows, and A or B by rows."""
    a, b, c = (matrix.__cuda_array_interface__ for matrix in (A, B, out))
    (M, K), (_, N) = a["shape"], b["shape"]
    by_rows = (is_by_rows(a), is_by_rows(b))
    if by_rows not in LAYOUTS or not is_by_rows(c):
        raise ValueError("these kernels take A or B by rows, and out by rows")
    layout = LAYOUTS[by_rows]
    operands = [ctypes.c_void_p(each["data"][0]) for each in (a, b, c)]
    key = (kernel, M, N, K, layout)
    if key not in _TILES:
        _TILES[key] = library(kernel).fastest(*operands, M, N, K, layout)
    if _TILES[key] < 0:
        raise RuntimeError(f"no tile of CUTLASS can compute {M} x {N} x {K}")
    status = library(kernel).multiply(*operands, M, N, K, layout, _TILES[key], None)
    if status != 0:
        raise RuntimeError(f"CUTLASS refused {M} x {N} x {K}: status {status}")


if __name__ == "__main__":
    for each in KERNELS:
        print(build(sys.argv[1] if len(sys.argv) > 1 else architecture(), each))
