"""Experiment 20: unchanged programs, with their own BLAS, NVBLAS and `sgemm-kernels preload`.

``python benchmarks/programs.py`` runs PCA, k-means, kernel ridge regression, an MLP, and an Octave
script if there is an Octave. Each runs in a new process: with the program's own BLAS on all cores,
under NVIDIA's NVBLAS if the CUDA toolkit has it, and under preload. The first repetition includes
opening the GPU. The loops compare preload with `run`, and ordinary arrays with pinned ones. Writes
JSON with every sample, and prints a table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _programs import PROGRAMS
from _results import output_argument, write

from sgemm_kernels import build_info, devices
from sgemm_kernels._table import table
from sgemm_kernels.cli.c_library import preload_environment
from sgemm_kernels.cli.program_tables import of_programs

HERE = Path(__file__).resolve().parent
OWN, NVBLAS, OURS = "own BLAS", "NVBLAS", "preload"
WAYS = {"loop_run": ["run"], "loop_pinned": ["run"], "loop_empty": [OURS]}  # others: all three
OCTAVE = """
rand('twister', 7); A = single(rand({n})); s = [];
for r = 1:3
  tic; B = A * A / {n}; for i = 1:4, B = A * B / {n}; end; s(r) = toc;
end
printf('{{"seconds": [%.6f, %.6f, %.6f], "checksum": %.6g}}\\n', s, double(mean(B(:))));
"""


def nvblas() -> Path | None:
    """NVBLAS of the CUDA toolkit."""
    places = [Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda")]
    found = (path for place in places for path in place.glob("**/libnvblas.so"))
    return next(found, None)


def own_blas(program: str) -> Path | None:
    """The BLAS that the program uses: Octave the system's, the others that of NumPy's wheel."""
    if program == "octave":
        return Path("libblas.so.3")
    package = Path(np.__file__).parent
    return next(iter((package.parent / "numpy.libs").glob("*openblas*.so")), None)


def environment_of(program: str, way: str, folder: Path) -> dict[str, str] | None:
    """The environment to run a program in; None if this machine lacks what the way needs."""
    environ = dict(os.environ)
    if way == OURS:
        log = {"log": "stats", "logfile": str(folder / "log")}
        return preload_environment(environ, log)
    if way == NVBLAS:
        library, cpu = nvblas(), own_blas(program)
        if not library or not cpu:
            return None
        settings = folder / "nvblas.conf"
        settings.write_text(
            f"NVBLAS_LOGFILE {folder}/nvblas.log\nNVBLAS_CPU_BLAS_LIB {cpu}\n"
            "NVBLAS_GPU_LIST ALL\nNVBLAS_AUTOPIN_MEM_ENABLED\n"
        )
        return {**environ, "LD_PRELOAD": str(library), "NVBLAS_CONFIG_FILE": str(settings)}
    return environ


def command_of(program: str, scale: float) -> list[str]:
    if program == "octave":
        return ["octave-cli", "--no-init-file", "--eval", OCTAVE.format(n=int(4096 * scale))]
    return [sys.executable, str(HERE / "_programs.py"), program, str(scale)]


def calls_in(log: Path) -> tuple[int, int]:
    """The calls that preload computed and passed on."""
    text = log.read_text() if log.is_file() else ""
    found = re.findall(r"(\d+) calls computed here \(.*?\), (\d+) passed on", text)
    return sum(int(computed) for computed, _ in found), sum(int(passed) for _, passed in found)


def run_program(program: str, way: str, scale: float) -> dict[str, Any] | None:
    """One row: the seconds of a program's repetitions. None if this way is missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environ = environment_of(program, way, folder)
        if environ is None:
            return None
        done = subprocess.run(
            command_of(program, scale), env=environ, capture_output=True, text=True, check=False
        )
        row: dict[str, Any] = {"program": program, "way": way}
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            return {**row, "failed": f"status {done.returncode}: {reason[:200]}"}
        row |= json.loads(lines[-1])
        if way == OURS:
            row["computed"], row["passed_on"] = calls_in(folder / "log")
        return row


def main() -> int:
    """Times every program in every way."""
    parser: argparse.ArgumentParser = output_argument(__doc__ or "", "programs")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sizes (default: 1)")
    options = parser.parse_args()
    programs, rows = list(PROGRAMS), []
    if shutil.which("octave-cli"):
        programs.append("octave")
    else:
        print("left out octave: octave-cli is not installed", flush=True)
    for program in programs:
        for way in WAYS.get(program, [OWN, NVBLAS, OURS]):
            row = run_program(program, way, options.scale)
            if row is not None:
                rows.append(row)
                print(json.dumps(row), flush=True)
    print(table(*of_programs(rows)))
    head = {
        "device": next((found.model for found in devices() if found.usable), ""),
        "cores": len(os.sched_getaffinity(0)),
        "numpy": np.__version__,
        "csrc_hash": build_info().csrc_hash,
        "scale": options.scale,
    }
    write(options.output, "programs", head, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
