"""Products of float32 matrices by GEMMul8. nvcc compiles them on first use.

GEMMul8 multiplies integers in 8 bits modulo several numbers, with cuBLASLt, and so emulates a
product of fixed-point numbers with one scale for each row of A and column of B (Ozaki scheme II).
Its "accurate" mode chooses the scales.

``make peers`` fetches its sources. ``python benchmarks/_gemmul8_product.py sm_90a`` compiles them
beforehand and needs no GPU.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

from _compiled import SOURCES, architecture, compiled
from _cublas_product import load, stored

SOURCE = Path(__file__).with_name("gemmul8_products.cu")
MODULI = {"int8": 7, "fp8": 6}
"""The fewest with which uniform operands have a smaller error than by cuBLAS in float32."""


def root() -> Path:
    """GEMMul8's folder src/. Raises FileNotFoundError without it."""
    folder = SOURCES / "gemmul8/GEMMul8/src"
    if not (folder / "gemmul8_real.hpp").is_file():
        raise FileNotFoundError(f"GEMMul8's sources are not in {SOURCES}: make peers")
    return folder


def build(target: str) -> Path:
    """The shared object, compiled if it is not there yet."""
    release = (SOURCES / "gemmul8/release").read_text(encoding="utf-8")
    return compiled(
        SOURCE, target, include=[root()], depends=release, libraries=["cublasLt", "cublas"]
    )


@functools.cache
def library() -> ctypes.CDLL:
    load("cublas")
    load("cublasLt")
    return ctypes.CDLL(str(build(architecture())))


def product(A: Any, B: Any, out: Any, numbers: str) -> None:
    """Queues out = A @ B in the default stream. `out` is row-major."""
    a, b, c = (matrix.__cuda_array_interface__ for matrix in (A, B, out))
    (M, K), (_, N) = a["shape"], b["shape"]
    (of_a, lda), (of_b, ldb), (_, ldc) = map(stored, (a, b, c))
    from_a, from_b, to = (ctypes.c_void_p(each["data"][0]) for each in (a, b, c))
    names = [ctypes.c_char(b"T" if of_which else b"N") for of_which in (of_b, of_a)]
    status = getattr(library(), numbers)(
        *names, N, M, K, from_b, ldb, from_a, lda, to, ldc, MODULI[numbers], None
    )
    if status != 0:
        raise RuntimeError(f"GEMMul8 refused {M} x {N} x {K}: status {status}")


if __name__ == "__main__":
    print(build(sys.argv[1] if len(sys.argv) > 1 else architecture()))
