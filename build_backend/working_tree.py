"""Chooses how `make` builds in a working tree.

`python build_backend/working_tree.py settings FILE GOAL...` writes the settings that the
environment leaves open to FILE, as shell assignments. `... requirements EXTRA` prints what the
build and that extra of pyproject.toml need from the package index, and `... extra EXTRA` what the
extra alone needs. Works without setuptools.
"""

import os
import shlex
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from toolkit import (
    INDEX,
    NATIVE,
    OLDEST_ARCHITECTURE,
    BuildError,
    build_requirements,
    choose,
    gpus,
)

CUDA = "SGEMM_KERNELS_CUDA"
HIP = "SGEMM_KERNELS_HIP"
ARCHS = "SGEMM_KERNELS_ARCHS"
WERROR = "SGEMM_KERNELS_WERROR"

ONE_ARCHITECTURE = "90"  # for tests without a GPU
WANT_CUDA = {"thorough-nvcc"}

Settings = Mapping[str, str]


def settle(goals: Collection[str], environ: Settings, last: Settings) -> tuple[Settings, str]:
    """The settings for these goals of make, and a sentence on why CUDA is left out, or "".

    Settings in environ win. Some goals require CUDA. The others repeat the last build's choice; the
    first build uses CUDA if this machine has both a supported GPU and a toolkit. A build for AMD
    GPUs happens only if environ requests it.
    """
    cuda, architectures = environ.get(CUDA, ""), environ.get(ARCHS, "")
    hip = environ.get(HIP, "") or "0"
    if hip != "0":
        return {
            CUDA: cuda,
            HIP: hip,
            ARCHS: architectures,
            WERROR: environ.get(WERROR, ""),
        }, ""
    present = any(gpu >= OLDEST_ARCHITECTURE for gpu in gpus())
    why = ""
    if not cuda:
        cuda = "auto"
        if not (WANT_CUDA & set(goals) or architectures or last.get(CUDA) == "auto"):
            if not present:
                why = "nvidia-smi lists no GPU that this package runs on"
            elif choose(environ) == INDEX:
                why = "there is a GPU but no CUDA toolkit"
            cuda = "0" if why else "auto"
    if cuda != "0":
        architectures = architectures or (NATIVE if present else ONE_ARCHITECTURE)
    settings = {
        CUDA: cuda,
        HIP: hip,
        ARCHS: architectures,
        WERROR: environ.get(WERROR, ""),
    }
    return settings, why


def _declared() -> dict[str, Any]:
    root = Path(__file__).resolve().parent.parent
    return tomllib.loads((root / "pyproject.toml").read_text())


def extra_requirements(extra: str) -> list[str]:
    """The packages that this extra needs beside the package's own dependencies."""
    return list(_declared()["project"]["optional-dependencies"][extra])


def requirements(extra: str, environ: Settings) -> list[str]:
    """The packages that the build and this extra need."""
    return [
        *_declared()["build-system"]["requires"],
        *build_requirements(environ),
        *extra_requirements(extra),
    ]


def _write(path: Path, goals: Collection[str]) -> None:
    """Chooses the settings and writes them to path if they changed."""
    before = path.read_text() if path.is_file() else ""
    last = dict(word.split("=", 1) for word in shlex.split(before))
    settings, why = settle(goals, os.environ, last)
    if why and "demo" in goals:
        print(
            f"Built for the CPU only: {why}. SGEMM_KERNELS_CUDA=auto builds with CUDA, "
            "and downloads nvcc if needed.",
            flush=True,
        )
    after = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    if after != before:
        path.parent.mkdir(exist_ok=True)
        path.write_text(after)


def main(arguments: list[str]) -> str | None:
    """Runs the command in the arguments. Returns a one-line error message or None."""
    try:
        match arguments:
            case ["settings", path, *goals]:
                _write(Path(path), goals)
            case ["requirements", extra]:
                print("\n".join(requirements(extra, os.environ)))
            case ["extra", extra]:
                print("\n".join(extra_requirements(extra)))
            case _:
                return __doc__
    except BuildError as error:
        return f"error: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
