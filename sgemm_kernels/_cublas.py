"""Finds NVIDIA's cuBLAS library for the reference variant, when that variant is first used."""

import ctypes
import importlib

from . import _core

_REMEDY = "pip install 'sgemm_kernels[cublas]'"


def load() -> None:
    """Opens cuBLAS for the variant 'cublas'; a second call changes nothing.

    Raises UnsupportedVariantError, naming the extra that brings the library, when cuda-pathfinder
    or the library is missing.
    """
    # Imported by name, because the package is optional and import must not need it.
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        raise _core.UnsupportedVariantError(
            f"variant 'cublas' needs the cuBLAS library, and cuda-pathfinder to find it: {_REMEDY}"
        ) from None
    try:
        library = pathfinder.load_nvidia_dynamic_lib("cublas")
    except pathfinder.DynamicLibNotFoundError as error:
        raise _core.UnsupportedVariantError(
            f"variant 'cublas' needs the cuBLAS library, which was not found: {_REMEDY}"
        ) from error
    _core._open_cublas(library.abs_path)


def version() -> str | None:
    """Version of the cuBLAS library that ``load`` opens, such as '13.1.0'; None without one."""
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
