"""The commands for C programs, and for programs that use a BLAS."""

import argparse
import ctypes
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

import numpy as np

from .. import _cache, _core
from .._catalog import variants
from .._library import get_include, get_library_dir
from .._version import __version__
from .command import Command, refuse_unwritable

BLAS = "libsgemm_kernels_blas.so"
_LOG_LEVELS = ("stats", "calls")
_DEVICES = f"cpu, {_core._GPU_KIND} or {_core._GPU_KIND}:N"


def _show_config(options: argparse.Namespace) -> int:
    lib = get_library_dir()
    run_path = ["-Xlinker", "-rpath", "-Xlinker", lib] if "," in lib else [f"-Wl,-rpath,{lib}"]
    known = {
        "cflags": shlex.join([f"-I{get_include()}"]),
        "libs": shlex.join([f"-L{lib}", *run_path, "-lsgemm_kernels"]),
        "pkgconfigdir": f"{lib}/pkgconfig",
        "cmakedir": f"{lib}/cmake/sgemm_kernels",
        "blas": f"{lib}/{BLAS}",
        "version": __version__,
    }
    asked = options.asked or []
    if "libs" in asked and ":" in lib:
        raise ValueError(
            f"the package is in {lib}, and a run path cannot contain a colon: install it in "
            "another folder"
        )
    if not asked:
        raise ValueError("name what to print, for example: sgemm-kernels config --cflags --libs")
    print(" ".join(known[name] for name in asked))
    return 0


def _config_arguments(parser: argparse.ArgumentParser) -> None:
    for name, help_text in (
        ("cflags", "flags to compile with"),
        ("libs", "flags to link with"),
        ("pkgconfigdir", "the folder of sgemm_kernels.pc, for PKG_CONFIG_PATH"),
        ("cmakedir", "the folder of the CMake package, for sgemm_kernels_DIR"),
        ("blas", f"the path of {BLAS}, for LD_PRELOAD"),
        ("version", "the version"),
    ):
        parser.add_argument(
            f"--{name}", dest="asked", action="append_const", const=name, help=help_text
        )


def _preloadable(path: str) -> str:
    """The path, or a symbolic link to it in the cache folder: spaces and colons separate
    the paths in LD_PRELOAD."""
    if not re.search("[ :]", path):
        return path
    digest = hashlib.sha256(path.encode()).hexdigest()[:16]
    folder = _cache.folder() / f"preload-{digest}"
    if re.search("[ :]", str(folder)):
        raise ValueError(
            f"the preloaded library is {path!r}, and LD_PRELOAD cannot contain a path with a space "
            "or a colon: set SGEMM_KERNELS_CACHE to a folder without them, for a link"
        )
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        os.symlink(path, Path(made) / BLAS)
        os.replace(Path(made) / BLAS, folder / BLAS)
    return str(folder / BLAS)


def _refuse_library(path: str) -> None:
    """Raises ValueError if the file is no BLAS that can be loaded."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ValueError(f"cannot load --library {path}: {error}") from None
    names = [f"{name}{suffix}" for name in ("sgemm", "cblas_sgemm") for suffix in ("_", "64_", "")]
    if not any(hasattr(library, name) for name in names):
        raise ValueError(f"--library {path} has neither sgemm_ nor cblas_sgemm: name a BLAS")


def preload_environment(environ: dict[str, str], settings: dict[str, str | None]) -> dict[str, str]:
    """The environment of a program under preload: `environ` with our variables."""
    blas = _preloadable(str(Path(get_library_dir()) / BLAS))
    others = environ.get("LD_PRELOAD", "")
    preloaded = f"{blas}:{others}" if others else blas
    ours = {
        f"SGEMM_KERNELS_BLAS_{name.upper()}": value for name, value in settings.items() if value
    }
    return {**environ, "LD_PRELOAD": preloaded, **ours}


def _preload(options: argparse.Namespace) -> int:
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise ValueError("name a program: sgemm-kernels preload -- python train.py")
    if not shutil.which(program[0]):
        raise FileNotFoundError(f"there is no program {program[0]!r} on PATH")
    names = ("variant", "device", "min", "library", "log", "logfile")
    settings = {name: getattr(options, name) for name in names}
    names_known = [variant.name for variant in variants()]
    if options.variant and options.variant not in names_known:
        raise ValueError(
            f"there is no variant {options.variant!r}: the variants are {', '.join(names_known)}"
        )
    if options.device and options.device != "cpu":
        one = np.ones((1, 1), np.float32)
        _core.run("naive", one, one, device=options.device)  # raises why it cannot be used
    if options.library:
        if os.path.exists(options.library):
            settings["library"] = os.path.abspath(options.library)
        _refuse_library(settings["library"])
    if settings["logfile"]:
        refuse_unwritable(Path(settings["logfile"]))
        settings["logfile"] = os.path.abspath(settings["logfile"])
    os.execvpe(program[0], program, preload_environment(dict(os.environ), settings))


def _device(text: str) -> str:
    if not re.fullmatch(rf"cpu|{_core._GPU_KIND}(:\d{{1,6}})?", text):
        raise argparse.ArgumentTypeError(f"unknown device {text!r}: use {_DEVICES}")
    return text


def _least_flops(text: str) -> str:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not number >= 0:  # or NaN
        raise argparse.ArgumentTypeError(
            f"invalid number {text!r}: name the least 2*M*N*K to compute here, such as 1e9"
        )
    return repr(number)


def _preload_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variant", help="the kernel, by default auto")
    which = f"{_DEVICES}; cpu is slow and for tests"
    parser.add_argument("--device", type=_device, help=which)
    parser.add_argument(
        "--min",
        type=_least_flops,
        metavar="FLOPS",
        help="compute products from 2*M*N*K = FLOPS on; by default, those estimated to be faster",
    )
    parser.add_argument(
        "--library", metavar="FILE", help="the program's own BLAS, if it is not found"
    )
    parser.add_argument(
        "--log",
        choices=_LOG_LEVELS,
        help="at the end, print the calls by shape; or also print each call",
    )
    parser.add_argument("--logfile", metavar="FILE", help="append the log to FILE, not to stderr")
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="-- PROGRAM ...",
        help="the program and its arguments",
    )


COMMANDS = (
    Command(
        "config",
        "print how to compile and link C programs",
        "Prints flags and paths for C, C++ and Fortran programs that use the C library.",
        "--cflags --libs",
        _show_config,
        _config_arguments,
    ),
    Command(
        "preload",
        "run a program whose float32 matrix products use the kernels",
        "Runs a program, unchanged. Its calls of sgemm and ssyrk, from NumPy, SciPy or any other "
        "user of a BLAS, are computed on the GPU where that is estimated to be faster. All other "
        "calls go to the program's own BLAS.",
        "--log stats -- python train.py",
        _preload,
        _preload_arguments,
        usage="[OPTION ...] -- PROGRAM [ARGUMENT ...]",
    ),
)
