"""Experiment 5: the error of each variant and of NumPy against float64, over K.

``python benchmarks/accuracy.py`` uses the GPU, or the CPU device if there is none: the rungs sum in
the same order on both. All variants multiply the same operands, uniform in [-1, 1], and every
element is compared. The script measures no times.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from _results import facts, output_argument, parsed, redraw, write

from sgemm_kernels import Device, run
from sgemm_kernels._accuracy import expect
from sgemm_kernels._style import Picture, drawing, label_of, look
from sgemm_kernels._table import table
from sgemm_kernels.measuring.devices import find_device, runnable

DEPTHS = tuple(2**power for power in range(4, 17))
M, N = 96, 160


def measure(device: Device, depths: tuple[int, ...] = DEPTHS) -> list[dict[str, Any]]:
    """A row for each K and each variant that runs on the device, and for NumPy."""
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


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Draws the Frobenius error over K, and the worst element's error divided by its bound."""
    # Rungs that sum in the same order share a line.
    lines: dict[tuple[float, ...], list[str]] = {}
    for name, own in by_name(rows).items():
        lines.setdefault(tuple(row["relative_error"] for row in own), []).append(name)
    title = "Rounding errors grow with K, and stay far below their bound"
    note = f"{M} x {N} results, {head['device']}, uniform [-1, 1]"
    with drawing(title, note, width=11) as (figure, theme):
        frobenius, worst = figure.subplots(1, 2)
        for errors, names in lines.items():
            own = by_name(rows)[names[0]]
            depths = [row["k"] for row in own]
            text = textwrap.fill(", ".join(map(label_of, names)), 34)
            frobenius.plot(depths, errors, label=text, **look(names[0]).line())
            shares = [row["worst_share_of_bound"] for row in own]
            worst.plot(depths, shares, **look(names[0]).line())
        frobenius.set(
            title="error of the whole product", ylabel="relative Frobenius error against float64"
        )
        worst.set(title="error of the worst element", ylabel="error / bound; above 1 is wrong")
        worst.hlines(1, 16, max(row["k"] for row in rows), color=theme.grey, linestyle=":")
        for axes in (frobenius, worst):
            axes.set(xscale="log", yscale="log", xlabel="K")
            axes.set_xscale("log", base=2)
        frobenius.legend(fontsize=9)
    return figure


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "accuracy")
    parser.add_argument("--device", help="cpu, cuda or cuda:N; by default the first usable GPU")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    device = find_device(arguments.device)
    rows = measure(device)
    head = {
        **facts(device),
        "numpy": np.__version__,
        "protocol": "uniform [-1, 1], every element against float64",
    }
    print(f"{M} x {N} results, on {device.name} ({device.model})\n")
    print(lines(rows))
    write(arguments.output, "accuracy", head, rows, picture)


if __name__ == "__main__":
    main()
