"""Experiment 5: error against float64 over K, for every variant, beside NumPy's.

``python benchmarks/accuracy.py`` uses the GPU, or the CPU device where there is none: the rungs sum
in the same order on both. Operands are uniform in [-1, 1], all variants get the same, and every
element is compared. It measures no times.
"""

from __future__ import annotations

import argparse
import itertools
import textwrap
from typing import Any

import numpy as np
from _results import output_argument, write
from matplotlib.figure import Figure

from sgemm_kernels import Device, build_info, run
from sgemm_kernels._accuracy import expect
from sgemm_kernels._table import table
from sgemm_kernels.measuring import find_device, runnable

DEPTHS = tuple(2**power for power in range(4, 17))
M, N = 96, 160


def measure(device: Device, depths: tuple[int, ...] = DEPTHS) -> list[dict[str, Any]]:
    """A row for each K and each way to multiply that runs on the device."""
    names = runnable(device)
    rng = np.random.default_rng(20240229)
    rows = []
    for K in depths:
        A = rng.uniform(-1, 1, (M, K)).astype(np.float32)
        B = rng.uniform(-1, 1, (K, N)).astype(np.float32)
        exact = expect(A, B)
        results = {name: run(name, A, B, device=device.name) for name in names} | {"numpy": A @ B}
        for name, C in results.items():
            error = np.linalg.norm(C - exact.value) / np.linalg.norm(exact.value)
            rows.append(
                {
                    "variant": name,
                    "m": M,
                    "n": N,
                    "k": K,
                    "relative_error": float(error),
                    "worst_share_of_bound": exact.worst_share(C),
                }
            )
    return rows


def by_name(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each name, in order of K."""
    names = dict.fromkeys(row["variant"] for row in rows)
    return {name: [row for row in rows if row["variant"] == name] for name in names}


def lines(rows: list[dict[str, Any]]) -> str:
    depths = [row["k"] for row in rows if row["variant"] == "numpy"][::3]
    body = [
        (
            name,
            *(f"{row['relative_error']:.1e}" for row in own if row["k"] in depths),
            f"{max(row['worst_share_of_bound'] for row in own):.3f}",
        )
        for name, own in by_name(rows).items()
    ]
    return table(("relative error", *(f"K = {K}" for K in depths), "worst error / bound"), body)


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Figure:
    """Frobenius error over K, and the worst element as a share of its bound."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    frobenius, worst = figure.subplots(1, 2)
    # Rungs that sum in one order have one error, and one line.
    lines: dict[tuple[float, ...], list[str]] = {}
    for name, own in by_name(rows).items():
        lines.setdefault(tuple(row["relative_error"] for row in own), []).append(name)
    for (errors, names), marker in zip(lines.items(), itertools.cycle("os^Dv"), strict=False):
        own = by_name(rows)[names[0]]
        depths = [row["k"] for row in own]
        frobenius.plot(depths, errors, marker=marker, label=textwrap.fill(", ".join(names), 30))
        worst.plot(depths, [row["worst_share_of_bound"] for row in own], marker=marker)
    frobenius.set(title="relative error (Frobenius)", ylabel="against float64")
    worst.set(title="worst element", ylabel="error / its bound")
    for axes in (frobenius, worst):
        axes.set(xscale="log", yscale="log", xlabel="K")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
    frobenius.legend(frameon=False, fontsize="small")
    figure.suptitle(f"{M} x {N} results, on {head['device']}", fontsize="medium")
    return figure


def main() -> None:
    parser: argparse.ArgumentParser = output_argument(__doc__.splitlines()[0], "accuracy")
    parser.add_argument("--device", help="cpu, cuda or cuda:N; by default the first usable GPU")
    arguments = parser.parse_args()
    device = find_device(arguments.device)
    rows = measure(device)
    build = build_info()
    head = {
        "device": device.model,
        "driver": device.driver,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
        "numpy": np.__version__,
        "protocol": "uniform [-1, 1], every element against float64",
    }
    print(f"{M} x {N} results, on {device.name} ({device.model})\n")
    print(lines(rows))
    write(arguments.output, "accuracy", head, rows, picture(head, rows))


if __name__ == "__main__":
    main()
