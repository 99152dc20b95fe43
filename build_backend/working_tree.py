"""How `make` builds in a working tree, where one machine is built for and waited at.

`python build_backend/working_tree.py settings FILE GOAL...` settles in FILE, as assignments of a
shell, what the environment leaves open; `... requirements EXTRA` prints what building and that
extra of pyproject.toml need from the package index. Stands by itself, without setuptools.
"""

import os
import shlex
import sys
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

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
FAKE = "SGEMM_KERNELS_FAKE_CUDA"

ONE_ARCHITECTURE = "90"  # for tests that no GPU runs
WANT_CUDA = {"test", "spills"}

Settings = Mapping[str, str]


def settle(goals: Collection[str], environ: Settings, last: Settings) -> tuple[Settings, str]:
    """What to build for these goals of make, and a sentence on why without CUDA, or "".

    What environ says is so. Some goals want CUDA, whatever it takes; the others take what the last
    build made, or else what is quick to make: CUDA where a GPU would run it and a toolkit is there.
    For AMD GPUs it is built where environ asks for that alone.
    """
    cuda, architectures = environ.get(CUDA, ""), environ.get(ARCHS, "")
    hip = environ.get(HIP, "") or "0"
    if hip != "0":
        return {
            CUDA: cuda,
            HIP: hip,
            ARCHS: architectures,
            WERROR: environ.get(WERROR, ""),
            FAKE: "1" if "test" in goals else "",
        }, ""
    present = any(gpu >= OLDEST_ARCHITECTURE for gpu in gpus())
    why = ""
    if not cuda:
        cuda = "auto"
        if not (WANT_CUDA & set(goals) or architectures or last.get(CUDA) == "auto"):
            if not present:
                why = "nvidia-smi lists no GPU that this package runs on"
            elif choose(environ) == INDEX:
                why = "there is a GPU here, and no CUDA toolkit"
            cuda = "0" if why else "auto"
    if cuda != "0":
        architectures = architectures or (NATIVE if present else ONE_ARCHITECTURE)
    fake = cuda != "0" and ("test" in goals or last.get(FAKE) == "1")
    settings = {
        CUDA: cuda,
        HIP: hip,
        ARCHS: architectures,
        WERROR: environ.get(WERROR, ""),
        FAKE: "1" if fake else "",
    }
    return settings, why


def requirements(extra: str, environ: Settings) -> list[str]:
    """What building here takes, and what the package with that extra takes."""
    root = Path(__file__).resolve().parent.parent
    declared = tomllib.loads((root / "pyproject.toml").read_text())
    return [
        *declared["build-system"]["requires"],
        *build_requirements(environ),
        *declared["project"]["optional-dependencies"][extra],
    ]


def _write(path: Path, goals: Collection[str]) -> None:
    """Settles, and writes to path if that differs from what is there."""
    before = path.read_text() if path.is_file() else ""
    last = dict(word.split("=", 1) for word in shlex.split(before))
    settings, why = settle(goals, os.environ, last)
    if why and "demo" in goals:
        print(
            f"Built for the CPU alone: {why}. With CUDA: `make test`, which fetches nvcc where "
            "there is none; SGEMM_KERNELS_CUDA=auto does the same for `make demo`.",
            flush=True,
        )
    after = "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())
    if after != before:
        path.parent.mkdir(exist_ok=True)
        path.write_text(after)


def main(arguments: list[str]) -> str | None:
    """Does what the arguments say; returns what is wrong, in one line."""
    try:
        match arguments:
            case ["settings", path, *goals]:
                _write(Path(path), goals)
            case ["requirements", extra]:
                print("\n".join(requirements(extra, os.environ)))
            case _:
                return __doc__
    except BuildError as error:
        return f"error: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
