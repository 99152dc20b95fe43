"""Compiles custom kernels for GPUs, with NVRTC or nvcc.

NVRTC compiles the one kernel of a file to machine code. The library that the C++ compiler made for
the CPU device launches it. nvcc compiles the whole file to a library, so the file may have several
kernels and any launcher.
"""

import ctypes
import importlib
import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .. import _cache
from .._version import __version__
from .compiler import (
    CompileError,
    NoCompilerError,
    Source,
    digest_of,
    find_compiler,
    headers,
    run_compiler,
    write_texts,
)

_REMEDY = "pip install 'nvidia-cuda-nvrtc>=13' cuda-pathfinder"
# A name beyond ASCII or with a dollar is an unrecognized token, but not for nvcc.
_NVRTC_CANNOT = re.compile(
    "nv_name_map|cannot open source file|calling a __host__ function|unrecognized token"
)
_INTEGERS = """\
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long uint64_t; typedef long intptr_t; typedef unsigned long uintptr_t;
#define INT32_MAX 2147483647
#define INT64_MAX 9223372036854775807
#define INT64_C(number) number##L
"""
_MATH = "#define NAN __int_as_float(0x7fffffff)\n#define INFINITY __int_as_float(0x7f800000)\n"
_NOTHING = ("stdlib.h", "stddef.h", "stdbool.h", "string.h", "limits.h")
"""C headers that are empty for NVRTC: their contents are built in, or no kernel needs them."""
_EVERY_KERNEL = "sgemm_every_kernel"
_INSTANTIATED = f"""
__global__ void {_EVERY_KERNEL}(const Sgemm *problem, const Launch *where)
{{
    if (false) {{
        launch_own(problem, where);
    }}
}}
"""
"""Added to a file, so that NVRTC compiles each kernel that the launcher launches. The call itself
generates no code."""


class BeyondNvrtcError(CompileError):
    """A file that NVRTC cannot compile, but nvcc may."""


def gpu_code(source: Source, symbol: str, capability: int) -> tuple[bytes, str]:
    """Machine code for a compute capability (90 is 9.0), or PTX if NVRTC is older than the GPU, and
    the kernel's name in it. From the cache, or compiled now.

    Raises CompileError, BeyondNvrtcError, NoCompilerError, OSError, and Error for included files
    that have changed.
    """
    nvrtc = _open_nvrtc()
    options = _options(nvrtc, source, capability)
    key = digest_of(["nvrtc", __version__, _version(nvrtc), source.digest, symbol, options])

    def make(paths: tuple[Path, ...]) -> None:
        source.refuse_changed()
        code, lowered, _ = _compile(nvrtc, source, symbol, options)
        source.refuse_changed()
        paths[0].write_bytes(code)
        paths[1].write_text(lowered, encoding="utf-8")

    code, lowered = _cache.kept_all(key, (".cubin", ".symbol"), make)
    return code.read_bytes(), lowered.read_text(encoding="utf-8")


def _options(nvrtc: ctypes.CDLL, source: Source, capability: int) -> list[str]:
    target = architecture(capability, _architectures(nvrtc))
    return [
        f"--gpu-architecture={target}",
        "--std=c++20",
        "-default-device",
        "-lineinfo",
        "-diag-suppress=177",
        "-DSGEMM_CUSTOM=1",
        *source.flags(),
        *(f"-I{folder}" for folder in source.folders),
    ]


def compile_log(source: Source, symbol: str, capability: int, specific: bool) -> str:
    """The compiler's report of registers and spills for a compute capability, of each kernel that
    the file launches. No GPU is needed. ``specific`` compiles for this capability alone (sm_90a).

    Raises as ``gpu_code``.
    """
    nvrtc = _open_nvrtc()
    options = [*_options(nvrtc, source, capability), "--ptxas-options=-v"]
    options[0] += "a" * specific
    # NVRTC 12.9 and newer keep compiled code, without its report.
    if _version(nvrtc) >= [12, 9]:
        options.append("--no-cache")
    added = ""
    if source.launch is None:
        symbol, added = _EVERY_KERNEL, _INSTANTIATED
        nvcc = find_nvcc()
        if nvcc is not None:  # its toolkit has headers such as cuda_fp16.h
            options.append(f"-I{Path(nvcc).parent.parent / 'include'}")
    key = digest_of(["log", __version__, _version(nvrtc), source.digest, symbol, options])

    def make(path: Path) -> None:
        source.refuse_changed()
        path.write_text(_compile(nvrtc, source, symbol, options, added)[2], encoding="utf-8")

    return _cache.kept(key, ".log", make).read_text(encoding="utf-8")


def nvcc_library(source: Source, capabilities: Sequence[int]) -> Path:
    """A library by nvcc that launches the kernel on GPUs of these compute capabilities.

    Raises CompileError, NoCompilerError, OSError, and Error for included files that have changed.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise NoCompilerError(
            f"there is no nvcc to compile {source.file} for a GPU: install a CUDA toolkit, and "
            "name its path in CUDA_HOME"
        )
    architectures = [f"-gencode=arch=compute_{c},code=sm_{c}" for c in capabilities]
    flags = ["-shared", "-O3", "-std=c++20", "-lineinfo", "-DSGEMM_CUSTOM=1", "-DSGEMM_CUDA=1"]
    flags += ["-Xcompiler=-fPIC,-fvisibility=hidden", "-ccbin", find_compiler()[0]]
    # nvcc would take the text after a comma for another name.
    flags += [*architectures, *(flag.replace(",", r"\,") for flag in source.flags())]
    flags += [f"-I{folder}" for folder in source.folders]
    version = run_compiler([nvcc, "--version"]).stdout
    key = digest_of(["nvcc", __version__, version, source.digest, flags])

    def make(path: Path) -> None:
        folder = path.parent
        argument = write_texts(source.texts("nvcc"), folder)
        root = headers()
        parts = ["custom/library.cpp", "custom/nvcc_library.cu", "base/status.c"]
        if source.launch is not None:
            parts.append("custom/plain.cpp")
        if source.rungs_launched():
            raise CompileError(
                f"{source.file} launches another rung, which a custom kernel may not"
            )
        sources = [argument, *(str(root / part) for part in parts)]
        source.refuse_changed()
        done = run_compiler([str(nvcc), *flags, "-x", "cu", *sources, "-o", str(path)], folder)
        if done.returncode:
            raise CompileError(f"{source.file} does not compile for a GPU:\n{done.stderr.strip()}")
        source.refuse_changed()

    return _cache.kept(key, ".so", make)


def find_nvcc() -> str | None:
    """The machine's nvcc: from CUDA_HOME, PATH or /usr/local/cuda."""
    home = os.environ.get("CUDA_HOME")
    for place in (home and f"{home}/bin/nvcc", shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if place and os.access(place, os.X_OK):
            return place
    return None


def has_nvrtc() -> bool:
    """Whether NVRTC is installed."""
    try:
        _open_nvrtc()
    except NoCompilerError:
        return False
    return True


@cache
def _load(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def _open_nvrtc() -> ctypes.CDLL:
    chosen = os.environ.get("SGEMM_KERNELS_NVRTC")
    if chosen:
        try:
            return _load(chosen)
        except OSError as error:
            raise NoCompilerError(f"SGEMM_KERNELS_NVRTC={chosen}: {error}") from None
    try:
        pathfinder = importlib.import_module("cuda.pathfinder")
    except ImportError:
        raise NoCompilerError(
            "a custom kernel is compiled for a GPU by NVRTC, which cuda-pathfinder finds: "
            + _REMEDY
        ) from None
    try:
        return _load(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except pathfinder.DynamicLibNotFoundError as error:
        raise NoCompilerError(
            f"a custom kernel is compiled for a GPU by NVRTC, which was not found: {_REMEDY}"
        ) from error


def _checked(nvrtc: ctypes.CDLL, result: int, doing: str) -> None:
    if result != 0:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        text = nvrtc.nvrtcGetErrorString(result)
        raise CompileError(f"NVRTC failed {doing}: {(text or b'').decode()}")


def _version(nvrtc: ctypes.CDLL) -> list[int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    result = nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    _checked(nvrtc, result, "to say its version")
    return [major.value, minor.value]


def _architectures(nvrtc: ctypes.CDLL) -> list[int]:
    count = ctypes.c_int()
    _checked(nvrtc, nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "to say for what it is")
    numbers = (ctypes.c_int * count.value)()
    _checked(nvrtc, nvrtc.nvrtcGetSupportedArchs(numbers), "to say for what it is")
    return sorted(numbers)


def architecture(capability: int, known: Sequence[int]) -> str:
    """Machine code if NVRTC knows the GPU's family; otherwise PTX for the newest one it knows."""
    same = [number for number in known if number <= capability and number // 10 == capability // 10]
    if same:
        return f"sm_{max(same)}"
    older = [number for number in known if number <= capability]
    if not older:
        raise CompileError(f"NVRTC compiles for compute capability {known[0] / 10} and newer")
    return f"compute_{max(older)}"


def _compile(
    nvrtc: ctypes.CDLL, source: Source, symbol: str, options: Sequence[str], added: str = ""
) -> tuple[bytes, str, str]:
    texts = {"stdint.h": _INTEGERS, "math.h": _MATH, **dict.fromkeys(_NOTHING, "")}
    # NVRTC first searches the folder of this path, or the current folder if it has none. #line sets
    # the file name in messages and in the machine code.
    path = source.folders[0] / source.file
    named = f'#line 1 "{source.file}"\n{source.texts("nvrtc")[source.file]}{added}'
    program = ctypes.c_void_p()
    count = len(texts)
    result = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program),
        named.encode(),
        str(path).encode(),
        count,
        (ctypes.c_char_p * count)(*(text.encode() for text in texts.values())),
        (ctypes.c_char_p * count)(*(name.encode() for name in texts)),
    )
    _checked(nvrtc, result, f"to take {source.file}")
    try:
        _checked(
            nvrtc, nvrtc.nvrtcAddNameExpression(program, symbol.encode()), f"to look for {symbol}"
        )
        every = [option.encode() for option in options]
        result = nvrtc.nvrtcCompileProgram(
            program, len(every), (ctypes.c_char_p * len(every))(*every)
        )
        log = _bytes_of(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if result != 0:
            kind = BeyondNvrtcError if _NVRTC_CANNOT.search(log) else CompileError
            raise kind(f"{source.file} does not compile for a GPU by NVRTC:\n{log.strip()}")
        lowered = ctypes.c_char_p()
        result = nvrtc.nvrtcGetLoweredName(program, symbol.encode(), ctypes.byref(lowered))
        _checked(nvrtc, result, f"to find {symbol}")
        kind_of_code = "CUBIN" if options[0].startswith("--gpu-architecture=sm_") else "PTX"
        return _bytes_of(nvrtc, program, kind_of_code), (lowered.value or b"").decode(), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _bytes_of(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """The result of nvrtcGet...: the log, machine code or PTX."""
    size = ctypes.c_size_t()
    asked = getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    _checked(nvrtc, asked, f"to give its {what}")
    content = ctypes.create_string_buffer(size.value)
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, content), f"to give its {what}")
    return content.raw
