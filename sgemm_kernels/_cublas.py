"""Loads cuBLAS (or rocBLAS in a build for AMD GPUs) when the reference variant is first used."""

import ctypes
import importlib

from . import _core

REMEDY = {
    "cublas": "pip install 'nvidia-cublas>=13' cuda-pathfinder",
    "rocblas": "install ROCm's package rocblas (Debian and Ubuntu: apt install librocblas0)",
}[_core._REFERENCE]

_ROCBLAS = tuple(
    f"{folder}librocblas.so{version}"
    for folder in ("", "/opt/rocm/lib/")
    for version in ("", ".5", ".4", ".3", ".0")
)


def load() -> None:
    """Loads the library of the reference variant. Repeated calls do nothing.

    Raises UnsupportedVariantError, with the install command, if cuda-pathfinder or the library is
    missing.
    """
    if _core._REFERENCE == "rocblas":
        _load_rocblas()
        return
    # Imported here, because the package is optional.
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        raise _core.UnsupportedVariantError(
            f"variant 'cublas' needs the cuBLAS library and cuda-pathfinder: {REMEDY}"
        ) from None
    try:
        library = pathfinder.load_nvidia_dynamic_lib("cublas")
    except pathfinder.DynamicLibNotFoundError as error:
        raise _core.UnsupportedVariantError(
            f"variant 'cublas' needs the cuBLAS library, which was not found: {REMEDY}"
        ) from error
    _core._open_cublas(library.abs_path)


def _load_rocblas() -> None:
    for name in _ROCBLAS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        _core._open_cublas(name)
        return
    raise _core.UnsupportedVariantError(
        f"variant 'rocblas' needs the rocBLAS library, which was not found: {REMEDY}"
    )


def version() -> str | None:
    """Version of the cuBLAS library that ``load`` opens, such as '13.1.0'; None if it is
    missing."""
    if _core._REFERENCE == "rocblas":
        return None
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
        library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, OSError, RuntimeError):
        return None
    value = ctypes.c_int()
    parts = []
    for part in range(3):  # cublasGetProperty's MAJOR_VERSION, MINOR_VERSION and PATCH_LEVEL
        library.cublasGetProperty(part, ctypes.byref(value))
        parts.append(str(value.value))
    return ".".join(parts)
