"""Sweeps over constants of a kernel: each setting is compiled for this machine's GPU and run.

A program checks every element of its result against float64, then times the kernel, and prints
JSON. The result keeps the compiler's report of its kernel (registers, spills) too.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _results import summary

from sgemm_kernels.measuring.probe import find_nvcc

SWEEPS = Path(__file__).parent / "sweeps"
PROTOCOL = (
    "kernel time between events of consecutive launches, cold (operand sets exceed twice the L2 "
    "cache), uniform [-1, 1), every element checked against float64 before"
)


def nvcc() -> str:
    """The path of the compiler. Raises SystemExit without one."""
    try:
        return find_nvcc()
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None


def compile_source(
    source: Path,
    constants: dict[str, int | str],
    output: Path,
    *others: str | Path,
    architecture: str = "native",
) -> str:
    """Compiles a file, with other arguments for nvcc; returns the report of ptxas.

    Raises SystemExit without nvcc or if the compilation fails.
    """
    target = [f"-arch={architecture}"]
    if architecture != "native":  # sm_90a has no portable PTX
        target = [f"-arch={architecture.replace('sm', 'compute')}", f"-code={architecture}"]
    process = subprocess.run(
        [nvcc(), "-O3", "-std=c++20", *target, "-Xptxas", "-v"]
        + [f"-D{constant}={value}" for constant, value in constants.items()]
        + [str(source), *map(str, others), "-o", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(process.stderr)
    return process.stderr


def compile_kernel(name: str, constants: dict[str, int], program: Path) -> dict[str, int]:
    """Compiles sweeps/NAME.cu; returns the registers and the bytes that ptxas reports."""
    return parse_report(compile_source(SWEEPS / f"{name}.cu", {**constants}, program), name)


def parse_report(text: str, kernel: str) -> dict[str, int]:
    """A kernel's figures in the output of `ptxas -v`."""
    found = re.search(
        rf"Compiling entry function '{kernel}'.*?"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
        r"Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
        text,
        re.DOTALL,
    )
    if found is None:
        raise ValueError(f"no report of {kernel!r} by ptxas in:\n{text}")
    stack, stores, loads, registers, shared = (int(figure or 0) for figure in found.groups())
    return {
        "registers": registers,
        "spill_store_bytes": stores,
        "spill_load_bytes": loads,
        "stack_bytes": stack,
        "shared_bytes": shared,
    }


def measure(program: Path, n: int, *kernels: str) -> list[dict[str, Any]]:
    """Runs a program for n x n matrices, and returns a row for each of its kernels.

    Raises SystemExit if it fails.
    """
    process = subprocess.run(
        [program, str(n), *kernels], capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise SystemExit(process.stderr)
    found: list[dict[str, Any]] = [json.loads(line) for line in process.stdout.splitlines()]
    for row in found:
        if "samples_s" in row:
            row |= summary(row.pop("samples_s"))
            row["gflops"] = 2e-9 * n**3 / row["median_s"]
    return found


def head(device: str, driver: str) -> dict[str, Any]:
    """The head of a result file."""
    return {
        "device": device,
        "driver": driver,
        "cuda_toolkit": toolkit(),
        "protocol": PROTOCOL,
        "clock_mhz": None,  # these counters average over about a second, longer than a sampling
        "power_w": None,
        "temperature_c": None,
    }


def sweep(
    name: str, settings: list[dict[str, int]], n: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head of the result file, and one row for each setting, in order."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as compilers:
        programs = [Path(folder) / str(index) for index in range(len(settings))]
        reports = list(compilers.map(lambda *each: compile_kernel(name, *each), settings, programs))
        rows = [
            {constant.lower(): value for constant, value in constants.items()}
            | report
            | measure(program, n)[0]
            for constants, report, program in zip(settings, reports, programs, strict=True)
        ]
    device, driver = rows[0]["device"], rows[0]["driver"]
    kept = [{k: v for k, v in row.items() if k not in ("device", "driver")} for row in rows]
    return head(device, driver), kept


def toolkit() -> str:
    """The version of the nvcc that compiles the sweeps."""
    text = subprocess.run([nvcc(), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found[1] if found else "unknown"


def milliseconds(row: dict[str, Any]) -> str:
    """The median time of a row for a table; `wrong` for a result out of bounds."""
    return f"{1e3 * row['median_s']:.3f}" if "median_s" in row else "wrong"
