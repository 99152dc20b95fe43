"""Builds the operators for PyTorch as a package in the format of Hugging Face's `kernels`.

    python release/hf_kernel.py FOLDER

FOLDER becomes a repository of that format: build/VARIANT is the package, and VARIANT names the
oldest PyTorch, the CUDA toolkit (or cpu) and the processor. `kernels.get_local_kernel(FOLDER)`
loads it. The build takes the settings of docs/inside/build.md. The package needs PyTorch, and
neither NumPy nor an installed sgemm_kernels. Nothing is uploaded.
"""

import base64
import hashlib
import json
import os
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from build_backend.compiling import (  # noqa: E402
    LIBRARIES,
    compile_stale,
    find_toolkit,
    link,
    of_rooms,
    plan,
)
from build_backend.toolkit import BuildError, HipToolkit, Toolkit  # noqa: E402

NAME = "sgemm-kernels"
VERSION = 0  # the format's number before a first release
OLDEST_TORCH = "210"  # TORCH_WRITTEN_FOR in csrc/frontends/torch/abi.h
OLDEST_PYTHON = "0x03090000"  # the format's
PYTHON_FILES = ("release/hf/__init__.py", "sgemm_kernels/_torch_operators.py")


def compute_kind(toolkit: Toolkit | None) -> tuple[str, dict[str, Any]]:
    """The name of a build's kind of processor in the variant's name, and in the metadata."""
    if toolkit is None:
        return "cpu", {"type": "cpu"}
    major, minor = toolkit.version.split(".")[:2]
    capabilities = [f"{number // 10}.{number % 10}" for number in toolkit.architectures]
    capabilities[-1] += "+PTX"
    return f"cu{major}{minor}", {"type": "cuda", "archs": capabilities}


def build_core(toolkit: Toolkit | None, library: Path) -> None:
    """Compiles what changed, and links the operators' C functions and all kernels."""
    jobs = plan(ROOT, os.environ, toolkit)
    needed = of_rooms(jobs, LIBRARIES["frontends/c"] | {"frontends/torch"})
    of_package = next(job for job in jobs if job.source == Path("csrc/module.c"))
    core = replace(
        of_package,
        source=Path("release/hf/core.c"),
        target=Path("build/objects/hf/core.c.o"),
        flags=[*of_package.flags, "-UPy_LIMITED_API", f"-DPy_LIMITED_API={OLDEST_PYTHON}"],
    )
    compile_stale(ROOT, [*needed, core])
    link(ROOT, os.environ, toolkit, [job.target for job in (*needed, core)], library)


def metadata(package: Path, backend: dict[str, Any]) -> dict[str, Any]:
    """The contents of metadata.json. The loader imports the package by its id, which depends on
    every file."""
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).digest() for path in sorted(package.iterdir())
    }
    whole = hashlib.sha256(b"".join(digests.values())).hexdigest()
    return {
        "name": NAME,
        "id": f"_{NAME.replace('-', '_')}_{backend['type']}_{whole[:12]}",
        "version": VERSION,
        "license": "MIT",
        "python-depends": [],
        "backend": backend,
        "digest": {
            "algorithm": "sha256",
            "files": {name: base64.b64encode(each).decode() for name, each in digests.items()},
        },
    }


def build(folder: Path) -> Path:
    """Builds the package below folder; returns its own folder. Raises BuildError."""
    toolkit = find_toolkit(os.environ)
    if isinstance(toolkit, HipToolkit):
        raise BuildError("the operators are not for AMD GPUs: unset SGEMM_KERNELS_HIP")
    kind, backend = compute_kind(toolkit)
    variant = f"torch-stable-abi{OLDEST_TORCH}-{kind}-{platform.machine()}-linux"
    package = folder.absolute() / "build" / variant
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    build_core(toolkit, package / "_core.abi3.so")
    for name in PYTHON_FILES:
        shutil.copy(ROOT / name, package)
    text = json.dumps(metadata(package, backend), indent=2) + "\n"
    (package / "metadata.json").write_text(text)
    shutil.copy(ROOT / "LICENSE", folder)
    return package


def main() -> str | None:
    if len(sys.argv) != 2:
        return "usage: python release/hf_kernel.py FOLDER"
    try:
        print(build(Path(sys.argv[1])))
    except BuildError as error:
        return f"error: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
