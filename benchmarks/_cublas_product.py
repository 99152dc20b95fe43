"""cuBLAS in modes that the package's own reference does not use.

That reference, `cublas`, passes CUBLAS_COMPUTE_32F_PEDANTIC, which allows float32 arithmetic alone.
The default mode, CUBLAS_COMPUTE_32F, lets cuBLAS choose among more algorithms, and is what
cublasSgemm and libraries that call it use. The emulation, CUBLAS_COMPUTE_32F_EMULATED_16BFX9,
computes float32 products from nine products of bfloat16 numbers, on GPUs for which cuBLAS has it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
from typing import Any

import numpy as np

NAME = "cublas-default"
MODES = {"default": 68, "TF32": 77, "BF16x9": 78}
"""cublasComputeType_t."""
_EAGER = 2
"""cublasEmulationStrategy_t: emulate wherever cuBLAS can."""

_FLOAT32 = 0  # CUDA_R_32F
_DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_KEEP, _TRANSPOSE = 0, 1


@functools.cache
def load(name: str) -> ctypes.CDLL:
    """A library of the CUDA toolkit, or of NVIDIA's packages."""
    pathfinder = importlib.import_module("cuda.pathfinder")
    return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib(name).abs_path)


def _library() -> Any:
    return load("cublas")


@functools.cache
def _handle() -> ctypes.c_void_p:
    """The cuBLAS handle of the current device."""
    handle = ctypes.c_void_p()
    status = _library().cublasCreate_v2(ctypes.byref(handle))
    if status != 0:
        raise RuntimeError(f"cuBLAS could not begin: status {status}")
    with contextlib.suppress(AttributeError):  # cuBLAS before 12.9 has no emulation
        _library().cublasSetEmulationStrategy(handle, _EAGER)
    return handle


def emulates() -> bool:
    """False if cuBLAS computes products of its mode BF16x9 in float32 on this GPU: then they have
    the bits of the default mode. Needs CuPy."""
    cupy = importlib.import_module("cupy")
    A, B = (cupy.asarray(np.random.default_rng(n).random((1024, 1024), np.float32)) for n in (1, 2))
    found = [cupy.empty_like(A) for _ in "AB"]
    for out, mode in zip(found, ("default", "BF16x9"), strict=True):
        product(A, B, out, mode)
    return bool((found[0] != found[1]).any())


def stored(matrix: dict[str, Any]) -> tuple[int, int]:
    """cuBLAS is column-major: returns the operation with which it reads the transposed matrix, and
    the leading dimension."""
    rows, cols = matrix["shape"]
    down, along = matrix["strides"] or (4 * cols, 4)  # None: by rows
    by_rows = along == 4
    length, apart = (cols, down) if by_rows else (rows, along)
    return (_KEEP if by_rows else _TRANSPOSE), max(apart // 4, length, 1)


def product(A: Any, B: Any, out: Any, mode: str = "default") -> None:
    """Queues out = A @ B in the default stream. `out` is row-major."""
    a, b, c = (matrix.__cuda_array_interface__ for matrix in (A, B, out))
    (M, K), (_, N) = a["shape"], b["shape"]
    one, zero = (ctypes.c_float(value) for value in (1, 0))
    (of_a, lda), (of_b, ldb) = stored(a), stored(b)
    from_b, from_a, to = (ctypes.c_void_p(matrix["data"][0]) for matrix in (b, a, c))
    sizes = (ctypes.c_int64(size) for size in (N, M, K))
    status = _library().cublasGemmEx_64(
        _handle(), of_b, of_a, *sizes, ctypes.byref(one), from_b, _FLOAT32, ctypes.c_int64(ldb),
        from_a, _FLOAT32, ctypes.c_int64(lda), ctypes.byref(zero), to, _FLOAT32,
        ctypes.c_int64(stored(c)[1]), MODES[mode], _DEFAULT_ALGORITHM,
    )  # fmt: skip
    if status != 0:
        raise RuntimeError(f"cuBLAS refused {M} x {N} x {K}: status {status}")
