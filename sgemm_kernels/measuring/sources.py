"""Which sources a result depends on, and whether they changed since it was measured.

A result carries a hash of the files that its kernels are compiled from: those of this module's
table, and the headers that they include. Comments, spaces and folders do not count, nor does what
only other builds compile: the headers of the CPU device, and lines for tests or custom kernels.
"""

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from .._catalog import variants

OLDER = "measured on older sources"

_ROOT = (Path(__file__).parent.parent / "csrc").resolve().parent

_LADDER = ("csrc/ladder/*.cu", "csrc/ladder/launches.toml", "csrc/gemm/kernel/rung.h")
_LIBRARY = ("csrc/gemm/simt/*.cu", "csrc/gemm/tensor_cores/*.cu")
_CHOICE = (
    *("csrc/gemm/*.cu", "csrc/gemm/small/*.cu", "csrc/gemm/plan/*.c", "csrc/runtime/catalog.c"),
)
_KERNELS = (*_LIBRARY, *_CHOICE)
_HOST = (
    *("csrc/base/*.c", "csrc/base/cuda/*.cu", "csrc/runtime/*.c", "csrc/runtime/cuda/*.cu"),
    "csrc/frontends/c/*.c",
)
_CALLS = (*_KERNELS, *_HOST)
_FROM_PYTHON = (*_CALLS, "csrc/frontends/python/*.c")
_ABLATIONS = "benchmarks/ablations/"
_SWEEPS = "benchmarks/sweeps/"
_DEPENDS = {
    **dict.fromkeys(("ladder", "accuracy", "grades", "clocks"), (*_LADDER, *_KERNELS)),
    "traffic": (*_LADDER, *_LIBRARY),
    "calls": (*_FROM_PYTHON, "csrc/frontends/torch/*.c"),
    "models": (*_CALLS, "csrc/frontends/torch/*.c"),
    "programs": (*_CALLS, "csrc/frontends/blas/*.c"),
    "host_cost": _FROM_PYTHON,
    "all_gpus": _FROM_PYTHON,
    "ablations": (f"{_ABLATIONS}tile.cu", f"{_ABLATIONS}alternate.cu"),
    "ablations_fp16_pairs": (f"{_ABLATIONS}fp16_pairs.cu", f"{_ABLATIONS}alternate.cu"),
    "tile_size": (f"{_SWEEPS}tile_size.cu",),
    "work_per_thread": (f"{_SWEEPS}work_per_thread.cu",),
}
"""The sources of an experiment, unless they are those of the library's kernels and of the choice
among them. Results of `measure` with a rung of the ladder are of the experiment "ladder"."""

_LEFT_OUT = {
    *("csrc/emulator", "csrc/emulator/access_trace", "csrc/emulator/plain"),
    "csrc/base/threads.h",
    "build/ladder",  # made from the table of launches by the build
}
_OF_OTHER_BUILDS = re.compile(
    r"^#ifdef SGEMM_(?:CUSTOM|DEFERRED_ASYNC|FUSED_TOO|NAMES_LAUNCHES|SANITIZED|TRACED)\n"
    r"(?:(?!#).*\n|#(?:include|define) .*\n)*#endif.*\n",
    re.MULTILINE,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(.+?)".*', re.MULTILINE)
_COMMENT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""", re.DOTALL
)


def patterns_of(experiment: str) -> tuple[str, ...]:
    """The files that an experiment's kernels are compiled from, as patterns."""
    tool, _, rung = experiment.partition("-")
    if tool == "tuning":
        return tuple(f"csrc/**/{each.file}" for each in variants() if each.name == rung)
    return _DEPENDS.get(experiment, _KERNELS)


@functools.cache
def sources_hash(experiment: str = "", root: Path = _ROOT) -> str | None:
    """A hash (16 hexadecimal digits) of the sources of an experiment. None where some are missing,
    as in an installed package."""
    found: list[Path] = []
    for pattern in patterns_of(experiment):
        matches = list(root.glob(pattern))
        if not matches:
            return None
        found += matches
    digest = hashlib.sha256()
    for name, text in sorted(_with_headers(found, root)):
        code = _COMMENT.sub(lambda match: match[1] or " ", _INCLUDE.sub("", text))
        digest.update(f"{name}\0{' '.join(code.split())}\0".encode())
    return digest.hexdigest()[:16]


def is_older(recorded: str | None, experiment: str = "") -> bool:
    """True if a result's hash differs from this tree's. False if one of them is unknown.

    Without an experiment, the result may have been measured with the ladder's rungs or without.
    """
    current = [sources_hash(each) for each in ([experiment] if experiment else ["", "ladder"])]
    return recorded is not None and None not in current and recorded not in current


def _with_headers(sources: list[Path], root: Path) -> Iterator[tuple[str, str]]:
    """The files and all that they include: names without folders, and texts."""
    waiting, seen = sources, set[str]()
    while waiting:
        path = waiting.pop()
        place = path.relative_to(root).as_posix()
        if place in seen or {place, place.rpartition("/")[0]} & _LEFT_OUT:
            continue
        seen.add(place)
        text = _OF_OTHER_BUILDS.sub("", path.read_text(encoding="utf-8"))
        yield path.name, text
        beside = (path.parent / each for each in _INCLUDE.findall(text))
        waiting += [Path(os.path.normpath(each)) for each in beside if each.is_file()]
