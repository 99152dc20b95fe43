"""Measures this GPU's peak rates with a probe that is compiled on demand."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .._core import DeviceError


def find_nvcc() -> str:
    """The path of nvcc: in CUDA_HOME, on PATH, or in /usr/local/cuda.

    Raises FileNotFoundError if there is none.
    """
    home = os.environ.get("CUDA_HOME")
    places = [*([f"{home}/bin"] if home else []), os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    nvcc = shutil.which("nvcc", path=os.pathsep.join(places))
    if nvcc is None:
        raise FileNotFoundError(
            "no nvcc: it compiles the program that measures this GPU. Install the CUDA toolkit, or "
            "set CUDA_HOME"
        )
    return nvcc


def peaks(source: Path, index: int) -> tuple[float, float]:
    """Runs the probe, a CUDA program, on GPU number index.

    Returns the speed of FFMAs alone in GFLOP/s, and of a copy in GPU memory in bytes per second,
    read plus written. Raises FileNotFoundError without nvcc, and DeviceError if the probe fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / source.stem
        _output([find_nvcc(), "-O3", "-arch=native", "-o", str(program), str(source)])
        printed = _output([str(program), str(index)])
    found = json.loads(printed)
    return float(found["ffma_gflops"]), float(found["copy_bytes_per_s"])


def _output(command: list[str]) -> str:
    process = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if process.returncode != 0:
        raise DeviceError(f"{Path(command[0]).name} failed:\n{process.stderr.strip()}")
    return process.stdout
