"""Experiment 9: what transposed operands cost each rung from `vec4` on, `simt` and `auto`, at 4096.

``python benchmarks/layouts.py`` measures all of them with A and B by rows (NN), and with B, A, or
both by columns (NT, TN, TT), the same values in each. The layouts follow each other several times
in one run, and a loss is the median of those of the passes. Writes JSON with every sample, and
prints the speed by rows and what each other layout loses of it.
"""

from __future__ import annotations

import statistics
import sys

import numpy as np
from _results import output_argument, parsed, redraw, write_comparison

from sgemm_kernels import Error, Results, measure, variants
from sgemm_kernels._style import SERIES, Picture, drawing, label_of
from sgemm_kernels._table import table
from sgemm_kernels.measuring import find_gpu
from sgemm_kernels.results import LAYOUTS

SIZE = 4096
PASSES = 5
MOST = 0.03
"""What no rung shall lose."""


def names() -> list[str]:
    """The rungs that load along whichever direction is contiguous, and the choices of one."""
    rungs = [variant.name for variant in variants() if variant.file is not None]
    return [*rungs[rungs.index("vec4") :], "simt", "auto"]


def speeds(results: Results, name: str, layout: str) -> list[float | None]:
    """In GFLOP/s, pass by pass; None where the result was wrong or has no time."""
    own = (row for row in results.rows if (row.variant, row.layout) == (name, layout))
    return [row.gflops for row in own]


def losses(results: Results, name: str) -> dict[str, list[float]]:
    """By layout, the share of its speed by rows that a variant loses, pass by pass."""
    by_rows = speeds(results, name, "NN")
    return {
        layout: [
            1 - speed / before
            # An interrupted pass may lack its last layouts.
            for before, speed in zip(by_rows, speeds(results, name, layout), strict=False)
            if before and speed
        ]
        for layout in LAYOUTS[1:]
    }


def lines(results: Results) -> str:
    """A line for each variant: its speed by rows, and its losses with their range over passes."""
    body = []
    for name in results.variants:
        known = [speed for speed in speeds(results, name, "NN") if speed]
        cells = [f"{statistics.median(known) / 1e3:.3g}" if known else "-"]
        for found in losses(results, name).values():
            low, high = (f"{limit(found, default=0):.1%}" for limit in (min, max))
            cells.append(f"{statistics.median(found):.1%} ({low} to {high})" if found else "-")
        body.append((name, *cells))
    return table(("loss of speed", "NN, TFLOP/s", *LAYOUTS[1:]), body)


def picture(results: Results, *, dark: bool = False) -> Picture:
    """Bars of the losses in per cent, a group for each variant, with their range over passes."""
    found = {name: losses(results, name) for name in results.variants}
    size = results.shapes[0][0]
    title = f"What transposed operands cost, at M = N = K = {size}: less is better"
    note = f"bars: medians of {PASSES} passes; lines: from the least to the most\n"
    note += results.run.describe()
    width = 0.8 / (len(LAYOUTS) - 1)
    with drawing(title, note, dark=dark) as (figure, theme):
        axes = figure.subplots()
        for index, layout in enumerate(LAYOUTS[1:]):
            places = np.arange(len(found)) + (index - 1) * width
            percent = [[100 * loss for loss in by[layout]] or [np.nan] for by in found.values()]
            middles = np.array([statistics.median(each) for each in percent])
            reach = [middles - [min(e) for e in percent], [max(e) for e in percent] - middles]
            bars = {"color": SERIES[index], "error_kw": {"linewidth": 1, "ecolor": theme.ink}}
            axes.bar(places, middles, width, yerr=reach, label=layout, **bars)
        axes.axhline(100 * MOST, color=theme.grey, linewidth=1.5, linestyle=":")
        axes.axhline(0, color=theme.ink, linewidth=1)
        axes.text(-0.5, 100 * MOST - 0.05, "no rung shall lose more", va="top", color=theme.grey)
        axes.set_xticks(range(len(found)), [label_of(name) for name in found])
        axes.set_ylabel("loss of speed against operands by rows, %")
        axes.grid(visible=False, axis="x")
        axes.legend(ncols=3, title="layout of A and B: T is by columns", alignment="left")
    return figure


def main() -> int:
    """Measures, writes and prints; returns 1 if a result was wrong, 2 if it cannot be done."""
    parser = output_argument(__doc__.splitlines()[0], "layouts")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    try:
        gpu = find_gpu("layouts are measured")
        sizes = [SIZE] * PASSES
        chosen = {"device": gpu.name, "seconds": 0.5, "whole_calls": False}
        results = measure(names(), sizes, layouts=LAYOUTS, **chosen)
    except (Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{results.run.describe()}\n\n{lines(results)}")
    write_comparison(arguments.output, results, picture)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
