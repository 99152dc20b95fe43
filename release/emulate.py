"""Tries the aarch64 wheel on the CPU device under QEMU, and runs tests of every kernel.

    python release/emulate.py dist/NAME_aarch64.whl

Needs root, debootstrap and qemu-user-static. The emulated system, Debian 12 with Python 3.11, is in
build/wheels/aarch64/root.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build/wheels/aarch64"
SYSTEM = FOLDER / "root"
BINFMT = Path("/proc/sys/fs/binfmt_misc")
# In the emulated system.
SITE, TESTS = Path("/site"), Path("/source")
# The glibc of Debian 12 and older.
PLATFORMS = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (34, 28, 27, 17)]
TOOLS = ("hypothesis", "matplotlib", "pytest", "pytest-timeout")

# Each runs on every kernel; together they take minutes, emulated. Only the first has a K for which
# rungs use tensor cores.
CHOSEN = (
    "test_exact.py::test_integers_with_alpha_and_beta",
    "test_special.py",
    "test_empty.py",
    "test_layouts.py::test_every_layout_is_within_the_bound",
    "test_out.py::test_out_is_written_in_place",
    "test_out.py::test_out_is_c",
)


def prepare_system() -> None:
    """Installs the emulated system once, and lets the kernel run its programs."""
    for program in ("debootstrap", "qemu-aarch64-static"):
        if not shutil.which(program):
            sys.exit(f"{program} is missing. Debian: apt install debootstrap qemu-user-static")
    if os.geteuid() != 0:
        sys.exit("the emulated system is entered with chroot: run this as root")
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "none", str(BINFMT)], check=True)
    if not (BINFMT / "qemu-aarch64").exists():
        line = Path("/usr/lib/binfmt.d/qemu-aarch64.conf").read_text().strip()
        (BINFMT / "register").write_text(line)
    if not (SYSTEM / "usr/bin/python3").exists():
        shutil.rmtree(SYSTEM, ignore_errors=True)
        arguments = ["--arch=arm64", "--variant=minbase", "--include=python3,libstdc++6"]
        subprocess.run(["debootstrap", *arguments, "bookworm", str(SYSTEM)], check=True)


def install(wheel: Path) -> None:
    """Installs the wheel and what the tests need, from outside: the system has no network."""
    inside = SYSTEM / SITE.relative_to("/")
    shutil.rmtree(inside, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    foreign = [*PLATFORMS, "--python-version=3.11", "--only-binary=:all:"]
    subprocess.run([*pip, "--target", inside, *foreign, wheel, *TOOLS], check=True)
    sources = SYSTEM / TESTS.relative_to("/")
    shutil.rmtree(sources, ignore_errors=True)
    left_out = shutil.ignore_patterns("build", "sgemm_kernels")
    shutil.copytree(FOLDER / "source", sources, ignore=left_out)


def inside(*command: str) -> None:
    """Runs Python in the emulated system, where PATH holds no compiler."""
    clean = ["env", "-i", f"--chdir={TESTS}", "PATH=/usr/bin", "HOME=/", f"PYTHONPATH={SITE}"]
    clean.append("PYTHONSAFEPATH=1")  # the package is in SITE, not beside the tests
    subprocess.run(["chroot", SYSTEM, *clean, "python3", *command], check=True)


def main() -> None:
    prepare_system()
    install(Path(sys.argv[1]).resolve())
    inside("-m", "sgemm_kernels", "info")
    inside("-m", "sgemm_kernels", "check", "--device", "cpu")
    inside("-m", "pytest", "-q", *(f"tests/{test}" for test in CHOSEN))


if __name__ == "__main__":
    main()
