"""Builds a wheel for other machines into dist/, and reports how large it is.

    python release/wheels.py x86_64
    python release/wheels.py aarch64

The wheel has machine code for every architecture of nvcc, and PTX for newer GPUs. With
SGEMM_KERNELS_ARCHS='90', say, it has machine code for these alone, and is built much faster. It
runs on Linux with the glibc of POLICY or newer. It is built from an sdist with nvcc from the
package index. The wheel for aarch64 is compiled on x86-64 with g++-aarch64-linux-gnu. Objects that
are up to date, of this tree or of an earlier run, are not compiled again.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import device_code

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from build_backend.toolkit import ALL, INDEX, INDEX_REQUIREMENT  # noqa: E402

DIST = ROOT / "dist"
POLICY = "manylinux_2_34"  # the glibc of RHEL 9; that of Ubuntu 22.04 is newer
MOST_BYTES = 90_000_000
MACHINES = ("x86_64", "aarch64")
CUDA_RUNTIME = "nvidia-cuda-runtime==13.0.*"


def run(*command: str | Path, **settings: str) -> None:
    """Runs a command with these environment variables in addition."""
    subprocess.run([str(part) for part in command], check=True, env={**os.environ, **settings})


def pip(*arguments: str | Path) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *arguments)


def unpack(folder: Path) -> Path:
    """Builds an sdist into dist/ and unpacks it below folder. Returns the sources' folder, whose
    objects of an earlier build remain."""
    run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    sdist = max(DIST.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    for old in source.iterdir():
        if old.name != "build":
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "new", filter="data")
    for new in next((folder / "new").iterdir()).iterdir():
        new.rename(source / new.name)
    shutil.rmtree(folder / "new")
    if not (source / "build").exists():
        for made in ("objects", "ptxas"):
            if (ROOT / "build" / made).exists():
                shutil.copytree(ROOT / "build" / made, source / "build" / made)
    return source


def settings(machine: str, folder: Path) -> dict[str, str]:
    """The environment variables that make a build one for this kind of processor."""
    architectures = os.environ.get("SGEMM_KERNELS_ARCHS") or ALL
    common = {"SGEMM_KERNELS_ARCHS": architectures, "SGEMM_KERNELS_PORTABLE": "1"}
    if machine == os.uname().machine:
        return common | {"SGEMM_KERNELS_CUDA": INDEX}
    compiler = f"{machine}-linux-gnu-g++"
    if not shutil.which(compiler):
        sys.exit(
            f"{compiler} is missing. On Debian and Ubuntu: apt install g++-{machine}-linux-gnu"
        )
    return common | {
        "CC": f"{machine}-linux-gnu-gcc",
        "CXX": compiler,
        "SGEMM_KERNELS_CUDA": str(toolkit_for(machine, folder / "cuda")),
    }


def toolkit_for(machine: str, folder: Path) -> Path:
    """A toolkit whose nvcc runs here and whose CUDA runtime is for another kind of processor."""
    root = folder / "nvidia/cu13"
    if not (root / "bin/nvcc").is_file():
        pip("install", "--target", folder, INDEX_REQUIREMENT)
    platform = [f"--platform=manylinux2014_{machine}", "--only-binary=:all:", "--no-deps"]
    pip("download", *platform, "--dest", folder / "runtime", CUDA_RUNTIME)
    with zipfile.ZipFile(next((folder / "runtime").glob("*.whl"))) as wheel:
        wheel.extract("nvidia/cu13/lib/libcudart_static.a", folder)
    return root.resolve()


def build(machine: str) -> Path:
    """Builds the wheel for a kind of processor; returns its path in dist/."""
    folder = ROOT / "build/wheels" / machine
    source = unpack(folder)
    plain = folder / "plain"
    shutil.rmtree(plain, ignore_errors=True)
    for old in DIST.glob(f"*_{machine}.whl"):
        old.unlink()
    named = f"--config-setting=--build-option=--plat-name=linux_{machine}"
    command = [sys.executable, "-m", "build", "--wheel", named, "--outdir", plain, source]
    run(*command, **settings(machine, folder))
    # Names the wheel after the oldest glibc that its libraries run with, and changes nothing else.
    repair = ["repair", "--plat", "auto", "--only-plat", "--wheel-dir", DIST]
    run(sys.executable, "-m", "auditwheel", *repair, *plain.glob("*.whl"))
    wheel = next(DIST.glob(f"*_{machine}.whl"))
    if f"-{POLICY}_" not in wheel.name:
        sys.exit(f"{wheel.name} is not for {POLICY}: `auditwheel show` names the symbols")
    return wheel


def sizes(wheel: Path) -> Mapping[str, int]:
    """The bytes of GPU code of each architecture that the extension in a wheel contains."""
    with zipfile.ZipFile(wheel) as archive:
        return device_code.sizes(archive.read("sgemm_kernels/_core.abi3.so"))


def main() -> str | None:
    if len(sys.argv) != 2 or sys.argv[1] not in MACHINES:
        return f"usage: python release/wheels.py {'|'.join(MACHINES)}"
    wheel = build(sys.argv[1])
    print(f"\n| GPU code of {wheel.name} | MB, compressed |\n| :-- | --: |")
    for name, size in sizes(wheel).items():
        print(f"| {name} | {size / 1e6:.2f} |")
    whole = wheel.stat().st_size
    print(f"| the wheel, with the extension and the C library | {whole / 1e6:.1f} |")
    if whole > MOST_BYTES:
        return f"{wheel.name} has {whole} bytes, more than {MOST_BYTES}"
    return None


if __name__ == "__main__":
    sys.exit(main())
