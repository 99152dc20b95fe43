"""Shared objects that experiments call by ctypes, compiled by nvcc once for each change."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sgemm_kernels import devices
from sgemm_kernels.measuring.probe import find_nvcc

FOLDER = Path(__file__).parent.parent / "build" / "benchmarks"
SOURCES = FOLDER.parent / "peers"
"""Where ``make peers`` puts the sources of other projects."""


def architecture() -> str:
    """The architecture of this machine's first GPU, such as sm_90a."""
    major, minor = next(
        device.compute_capability
        for device in devices()
        if device.usable and device.compute_capability is not None
    )
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def compiled(
    source: Path,
    target: str,
    *,
    include: Iterable[Path] = (),
    beside: Iterable[Path] = (),
    defines: Iterable[str] = (),
    depends: str = "",
    libraries: Iterable[str] = (),
) -> Path:
    """A shared object of a CUDA source for one architecture, in FOLDER, and of sources beside it.

    It is compiled again if the source, its macros or `depends` changed. `depends` identifies the
    included files and the sources beside it.

    Raises FileNotFoundError without nvcc, RuntimeError with the compiler's message.
    """
    macros = [f"-D{define}".replace(",", r"\,") for define in defines]  # nvcc divides at commas
    key = hashlib.sha256(f"{source.read_text()}{macros}{depends}".encode()).hexdigest()[:16]
    library = FOLDER / f"{source.stem}-{target}-{key}.so"
    if library.is_file():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    new = library.with_suffix(".new")
    process = subprocess.run(
        [find_nvcc(), "-O3", "-std=c++20", f"-arch={target}", "-Xcompiler=-fPIC", "-shared"]
        + [f"-I{folder}" for folder in include]
        + macros
        + [*map(str, beside), str(source), "-o", str(new)]
        + [f"-l{name}" for name in libraries],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RuntimeError(process.stderr.strip())
    new.replace(library)
    return library
