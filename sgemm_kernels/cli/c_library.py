"""The commands for C programs, and for programs that use a BLAS."""

import argparse
import os
import shutil
from pathlib import Path

from .._catalog import variants
from .._library import get_include, get_library_dir
from .._version import __version__
from .command import Command, refuse_unwritable

BLAS = "libsgemm_kernels_blas.so"
_LOG_LEVELS = ("stats", "calls")


def _show_config(options: argparse.Namespace) -> int:
    lib = get_library_dir()
    known = {
        "cflags": f"-I{get_include()}",
        "libs": f"-L{lib} -Wl,-rpath,{lib} -lsgemm_kernels",
        "pkgconfigdir": f"{lib}/pkgconfig",
        "cmakedir": f"{lib}/cmake/sgemm_kernels",
        "blas": f"{lib}/{BLAS}",
        "version": __version__,
    }
    asked = options.asked or []
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


def preload_environment(environ: dict[str, str], settings: dict[str, str | None]) -> dict[str, str]:
    """The environment of a program under preload: `environ` with our variables."""
    blas = str(Path(get_library_dir()) / BLAS)
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
    if settings["logfile"]:
        refuse_unwritable(Path(settings["logfile"]))
        settings["logfile"] = os.path.abspath(settings["logfile"])
    os.execvpe(program[0], program, preload_environment(dict(os.environ), settings))


def _least_flops(text: str) -> str:
    if float(text) < 0:
        raise ValueError
    return text


def _preload_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--variant", help="the kernel, by default auto")
    parser.add_argument("--device", help="cuda, cuda:N, or cpu, which is slow and for tests")
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
