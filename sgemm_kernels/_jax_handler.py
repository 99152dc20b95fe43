"""The C handler of `sgemm_kernels.jax`: compiled with jaxlib's headers, kept, and registered."""

import ctypes
import functools
import platform
import shlex
import warnings
from pathlib import Path

import jax

from . import _cache, _core
from ._version import __version__
from .custom.compiler import (
    CompileError,
    NoCompilerError,
    digest_of,
    find_compiler,
    headers,
    run_compiler,
)

TARGET = "sgemm_kernels_matmul"
_GPU_PLATFORM = {"cuda": "CUDA", "hip": "ROCM"}[_core._GPU_KIND]
_PLATFORMS = {"cpu": "sgemm_jax_cpu", _GPU_PLATFORM: "sgemm_jax_gpu"}
_FLAGS = ("-xc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-shared")


def _register() -> ctypes.CDLL:
    """Compiles the handler, or takes it from the cache, and registers it with XLA.

    Returns its library. Raises CompileError, NoCompilerError and OSError.
    """
    library = ctypes.CDLL(str(_handler()))
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    get_pointer = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    address = get_pointer(_core._c_multiply_typed, b"sgemm_kernels.multiply_typed")
    library.sgemm_jax_set_call(ctypes.c_void_p(address))
    for name, symbol in _PLATFORMS.items():
        capsule = jax.ffi.pycapsule(getattr(library, symbol))
        jax.ffi.register_ffi_target(TARGET, capsule, platform=name)
    return library


registered = functools.cache(_register)


def _handler() -> Path:
    """The compiled handler: from the cache folder, or compiled now."""
    source, include = headers() / "frontends/jax/matmul.c", Path(jax.ffi.include_dir())
    api = headers() / "frontends/c/sgemm_kernels.h"
    used = [source, api, include / "xla/ffi/api/c_api.h"]
    texts = [path.read_text(encoding="utf-8") for path in used]

    def make(target: Path) -> None:
        compiler, _ = find_compiler()
        command = [*shlex.split(compiler), *_FLAGS, f"-I{include}", str(source)]
        done = run_compiler([*command, "-o", str(target)])
        if done.returncode:
            raise CompileError(
                f"the handler for JAX does not compile with the headers in {include}:\n"
                f"{done.stderr}"
            )

    # Not the compiler: a machine without one can use what another one compiled.
    machine = [platform.machine(), *platform.libc_ver()]
    return _cache.kept(digest_of(["jax", __version__, machine, _FLAGS, texts]), ".so", make)


def register_at_import() -> None:
    """So that a program which JAX exported runs before any call of matmul."""
    try:
        registered()
    except (CompileError, NoCompilerError, OSError) as error:
        warnings.warn(
            f"sgemm_kernels.jax cannot multiply yet: {error}", RuntimeWarning, stacklevel=3
        )
