"""Experiment 8: `auto` against cuBLAS over a suite of shapes, each row-major and transposed.

``python benchmarks/auto.py`` goes through shapes.json: squares, skinny, deep and flat products,
with both operands by rows, with B by columns, and with A by columns. cuBLAS has the same operands
in the same layout, by turns. Writes JSON with every sample, and prints what `auto` reaches of
cuBLAS's speed at each shape, the geometric mean and the worst.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from _results import output_argument, write_comparison
from matplotlib.figure import Figure

from sgemm_kernels import Comparison, Error, compare
from sgemm_kernels._table import table
from sgemm_kernels.measuring import find_gpu
from sgemm_kernels.reporting import ratios, read_suite
from sgemm_kernels.results import Shape

SUITE = Path(__file__).with_name("shapes.json")
LAYOUTS = ("NN", "NT", "TN")
LEAST, AIM = 0.8, 1.0
"""What each shape shall reach of cuBLAS's speed, and their geometric mean."""


def suite() -> dict[str, list[Shape]]:
    """The shapes by kind."""
    return read_suite(SUITE)


def picture(results: Comparison) -> Figure:
    """A point for each shape and layout, the shapes in the order of the suite."""
    found = {row.case: row.vs_cublas for row in results.rows if row.variant == "auto"}
    figure = Figure(figsize=(11, 5), layout="constrained")
    axes = figure.subplots()
    for layout, marker in zip(LAYOUTS, "osd", strict=True):
        heights = [found.get((shape, layout)) or np.nan for shape in results.shapes]
        axes.plot(range(len(heights)), heights, marker, markersize=5, alpha=0.8, label=layout)
    for height, style in ((AIM, "-"), (LEAST, ":")):
        axes.axhline(height, color="0.4", linewidth=1, linestyle=style)
    start = 0
    for _, shapes in itertools.groupby(results.shapes, kind_of):
        axes.axvline(start - 0.5, color="0.8", linewidth=1)
        start += len(list(shapes))
    names = ["x".join(map(str, shape)) for shape in results.shapes]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set(yscale="log", ylabel="speed of auto / cuBLAS's", xlim=(-0.5, len(names) - 0.5))
    axes.set_yticks([0.5, LEAST, AIM, 1.5, 2, 3], ["0.5", "0.8", "1", "1.5", "2", "3"])
    axes.minorticks_off()
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, ncols=len(LAYOUTS))
    figure.suptitle(f"auto against cuBLAS over the suite of shapes, {results.run.device}")
    return figure


def kind_of(shape: Shape) -> str:
    return next(kind for kind, shapes in suite().items() if shape in shapes)


def main() -> int:
    """Measures, writes and prints; returns 1 if a result was wrong, 2 if it cannot be done."""
    parser = output_argument(__doc__.splitlines()[0], "auto")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.2,
        help="most time to sample, per shape and layout, after three samples (default: 0.2)",
    )
    arguments = parser.parse_args()
    shapes = [shape for kind in suite().values() for shape in kind]
    try:
        gpu = find_gpu("the suite is measured")
        results = compare(
            ["cublas", "auto"],
            shapes,
            layouts=LAYOUTS,
            device=gpu.name,
            seconds=arguments.seconds,
            whole_calls=False,
        )
    except (Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    header, lines = ratios(results, "auto", suite())
    print(f"{results.run.describe()}\n\n{table(header, lines)}")
    write_comparison(arguments.output, "auto", results, picture(results))
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
