"""cuBLAS in its default mode, CUBLAS_COMPUTE_32F, as a second reference.

The package's own reference, `cublas`, passes CUBLAS_COMPUTE_32F_PEDANTIC, which allows float32
arithmetic alone. The default mode lets cuBLAS choose among more algorithms, and is what cublasSgemm
and libraries that call it use.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any

NAME = "cublas-default"

_COMPUTE_32F = 68
_FLOAT32 = 0  # CUDA_R_32F
_DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_KEEP, _TRANSPOSE = 0, 1


@functools.cache
def _library() -> Any:
    pathfinder = importlib.import_module("cuda.pathfinder")
    return ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)


@functools.cache
def _handle() -> ctypes.c_void_p:
    """The cuBLAS handle of the current device."""
    handle = ctypes.c_void_p()
    status = _library().cublasCreate_v2(ctypes.byref(handle))
    if status != 0:
        raise RuntimeError(f"cuBLAS could not begin: status {status}")
    return handle


def _stored(matrix: dict[str, Any]) -> tuple[int, int]:
    """cuBLAS is column-major: returns the operation with which it reads the transposed matrix, and
    the leading dimension."""
    (rows, cols), (down, along) = matrix["shape"], matrix["strides"]
    by_rows = along == 4
    length, apart = (cols, down) if by_rows else (rows, along)
    return (_KEEP if by_rows else _TRANSPOSE), max(apart // 4, length, 1)


def product(A: Any, B: Any, out: Any) -> None:
    """Queues out = A @ B in the default stream. `out` is row-major."""
    a, b, c = (matrix.__cuda_array_interface__ for matrix in (A, B, out))
    (M, K), (_, N) = a["shape"], b["shape"]
    one, zero = (ctypes.c_float(value) for value in (1, 0))
    (of_a, lda), (of_b, ldb) = _stored(a), _stored(b)
    from_b, from_a, to = (ctypes.c_void_p(matrix["data"][0]) for matrix in (b, a, c))
    sizes = (ctypes.c_int64(size) for size in (N, M, K))
    status = _library().cublasGemmEx_64(
        _handle(), of_b, of_a, *sizes, ctypes.byref(one), from_b, _FLOAT32, ctypes.c_int64(ldb),
        from_a, _FLOAT32, ctypes.c_int64(lda), ctypes.byref(zero), to, _FLOAT32,
        ctypes.c_int64(_stored(c)[1]), _COMPUTE_32F, _DEFAULT_ALGORITHM,
    )  # fmt: skip
    if status != 0:
        raise RuntimeError(f"cuBLAS refused {M} x {N} x {K}: status {status}")
