"""Experiment 8: `auto` against cuBLAS over a suite of shapes, each row-major and transposed.

``python benchmarks/auto.py`` measures the shapes of shapes.json: square, skinny, deep and flat
products, with both operands row-major, with B transposed, and with A transposed. `auto` and cuBLAS
alternate on the same operands. The script writes JSON with every sample, and prints the speed
relative to cuBLAS at each shape, the geometric mean and the worst ratio.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from pathlib import Path

from _results import measuring, output_argument, parsed, redraw, write_comparison

from sgemm_kernels import Results, measure
from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table
from sgemm_kernels.cli.speed_tables import against_cublas, read_suite
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.measurement import UNMET_NOTE
from sgemm_kernels.measuring.shapes import Shape

SUITE = Path(__file__).with_name("shapes.json")
LAYOUTS = ("NN", "NT", "TN")
LEAST, AIM = 0.8, 1.0
"""Targets: the least share of cuBLAS's speed at a shape, and the geometric mean."""


def suite() -> dict[str, list[Shape]]:
    """The shapes by kind."""
    return read_suite(SUITE)


def picture(results: Results) -> Picture:
    """Draws a line for each shape, grouped by kind, with a point for each layout."""
    found = {
        row.case: row.vs_cublas for row in results.rows if row.variant == "auto" and row.vs_cublas
    }
    title = "auto against cuBLAS"
    if found:
        mean = statistics.geometric_mean(found.values())
        title += f": {mean:.2f} times as fast (geometric mean)"
    shapes = results.shapes
    height = 1.8 + 0.2 * len(shapes)
    note = f"dotted: {LEAST}, the target minimum; crosses: {UNMET_NOTE.removeprefix('*: ')}\n"
    note += "M x N x K; N: row-major, T: column-major\n"
    note += results.run.describe()
    with drawing(title, note, height=height) as (figure, theme):
        axes = figure.subplots()
        for layout, marker, colour in zip(LAYOUTS, "osD", SERIES, strict=False):
            points = [(found.get((s, layout), math.nan), y) for y, s in enumerate(shapes)]
            axes.plot(*zip(*points, strict=True), marker, color=colour, alpha=0.85, label=layout)
        for y, shape in enumerate(shapes):
            own = [ratio for case, ratio in found.items() if case[0] == shape]
            if own:
                axes.hlines(y, min(own), max(own), color=theme.grey, linewidth=1.5, zorder=1)
        unmet = {row.case for row in results.rows if row.unmet}
        unmet_points = [
            (ratio, shapes.index(case[0])) for case, ratio in found.items() if case in unmet
        ]
        for place in unmet_points:
            axes.plot(*place, "x", color=theme.ink, zorder=5)
        low, high = 0.93 * min([LEAST, *found.values()]), 1.07 * max([AIM, *found.values()])
        axes.axvspan(low, AIM, color=SERIES[1], alpha=0.1, linewidth=0, zorder=0)
        axes.axvline(AIM, color=theme.ink, linewidth=1.5)
        axes.axvline(LEAST, color=theme.grey, linewidth=1.5, linestyle=":")
        start = 0.0
        for kind, group in itertools.groupby(shapes, kind_of):
            members = list(group)
            own = [ratio for case, ratio in found.items() if case[0] in members]
            text = f"{kind}: {statistics.geometric_mean(own):.2f}" if own else kind
            axes.axhline(start - 0.5, color=theme.grey, linewidth=1)
            axes.text(0.995, start - 0.3, text, transform=axes.get_yaxis_transform(), ha="right",
                      va="top", fontweight="bold", color=theme.grey)  # fmt: skip
            start += len(members)
        names = [" x ".join(map(str, shape)) for shape in shapes]
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set(
            xscale="log",
            xlabel="speed of auto / speed of cuBLAS; shaded: cuBLAS is faster",
            xlim=(low, high),
            ylim=(len(names) - 0.5, -0.5),
        )
        tick_values = (0.5, 0.6, 0.7, LEAST, 0.9, AIM, 1.1, 1.2, 1.5, 2, 2.5, 3)
        ticks(axes, "x", [value for value in tick_values if low < value < high])
        figure.legend(loc="outside upper right", ncols=len(LAYOUTS), title="layout of A and B")
    return figure


def kind_of(shape: Shape) -> str:
    return next(kind for kind, shapes in suite().items() if shape in shapes)


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "auto.json.gz")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.2,
        help="maximum sampling time per shape and layout, after three samples (default: 0.2)",
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    shapes = [shape for kind in suite().values() for shape in kind]
    with measuring(parser):
        gpu = find_gpu("the suite is measured")
        results = measure(
            ["cublas", "auto"],
            shapes,
            layouts=LAYOUTS,
            device=gpu.name,
            seconds=arguments.seconds,
            whole_calls=False,
        )
    header, lines = against_cublas(results, suite())
    print(f"{results.run.describe()}\n\n{table(header, lines)}")
    write_comparison(arguments.output, results, picture)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
