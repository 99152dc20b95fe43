"""Installs a wheel as a user would, and makes a first product.

    python release/try_wheel.py dist/NAME.whl

Prints the seconds from the end of the download to the first product: `pip install` into a fresh
environment, `sgemm-kernels info`, `sgemm-kernels check` and a product. The device is a GPU if there
is one. Finally, pip must find packages for every extra.
"""

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

PRODUCT = """
import numpy as np, sgemm_kernels
A = np.arange(6, dtype=np.float32).reshape(2, 3)
assert (sgemm_kernels.run("auto", A, A.T) == A @ A.T).all()
"""


def first_product(wheel: Path, folder: Path) -> float:
    """Downloads what the wheel needs, does each step once, and returns the seconds of all."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv/bin/python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "download", "--dest", folder / "files", wheel], check=True)
    from_files = ["--no-index", "--find-links", folder / "files"]
    steps = {
        "pip install": [*pip, "install", *from_files, "sgemm_kernels"],
        "sgemm-kernels info": [folder / "venv/bin/sgemm-kernels", "info"],
        "sgemm-kernels check": [folder / "venv/bin/sgemm-kernels", "check"],
        "first product": [python, "-c", PRODUCT],
    }
    seconds = {}
    for step, command in steps.items():
        start = time.perf_counter()
        subprocess.run(command, check=True, cwd=folder)  # not among the package's sources
        seconds[step] = time.perf_counter() - start
    print(", ".join(f"{step} {taken:.1f} s" for step, taken in seconds.items()))
    return sum(seconds.values())


def missing_extras(wheel: Path) -> str:
    """pip's words about extras that the wheel lacks; fails if an extra has no packages."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    command = [*pip, "install", "--dry-run", "--ignore-installed", f"{wheel}[all,docs,plot]"]
    done = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    return "\n".join(line for line in done.stderr.splitlines() if "does not provide" in line)


def main() -> str | None:
    wheel = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        whole = first_product(wheel, Path(folder))
    print(f"from the download to the first product: {whole:.1f} s")
    return missing_extras(wheel) or None


if __name__ == "__main__":
    sys.exit(main())
