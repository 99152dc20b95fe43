"""Experiment 9: the cost of transposed operands: each rung, `simt` and `auto`, at 4096.

``python benchmarks/layouts.py`` measures all of them with row-major A and B (NN), and with B, A, or
both transposed (NT, TN, TT). The values are the same in each layout. The layouts alternate several
times in one run, and a loss is a median over these passes. The script writes JSON with every
sample, and prints the row-major speed and the loss in each other layout.
"""

from __future__ import annotations

import math
import statistics
import sys

from _results import joined, measuring, output_argument, parsed, redraw, write_comparison

from sgemm_kernels import Results, measure, variants
from sgemm_kernels._style import SERIES, Cell, Picture, cells, drawing, label_of
from sgemm_kernels._table import table
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.shapes import LAYOUTS

SIZE = 4096
PASSES = 5
WORDS = {"NT": "B column-major", "TN": "A column-major", "TT": "both"}
FULL_COLOUR = 1.1
"""A speed that is higher or lower by this factor has the full colour."""


def names() -> list[str]:
    """All rungs, `simt` and `auto`."""
    return [*(variant.name for variant in variants() if variant.file is not None), "simt", "auto"]


def speeds(results: Results, name: str, layout: str) -> list[float | None]:
    """Speeds in GFLOP/s, one per pass; None if the result was wrong or has no time."""
    own = (row for row in results.rows if (row.variant, row.layout) == (name, layout))
    return [row.gflops for row in own]


def losses(results: Results, name: str) -> dict[str, list[float]]:
    """For each layout, the share of its row-major speed that a variant loses in each pass."""
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
    """A line for each variant: its row-major speed, and its losses with their range over passes."""
    body = []
    for name in results.variants:
        known = [speed for speed in speeds(results, name, "NN") if speed]
        cells = [f"{statistics.median(known) / 1e3:.3g}" if known else "-"]
        for found in losses(results, name).values():
            low, high = (f"{limit(found, default=0):.1%}" for limit in (min, max))
            cells.append(f"{statistics.median(found):.1%} ({low} to {high})" if found else "-")
        body.append((name, *cells))
    return table(("loss of speed", "NN, TFLOP/s", *LAYOUTS[1:]), body)


def picture(results: Results) -> Picture:
    """Draws a table of each variant's speed in the other layouts, relative to row-major."""
    size = results.shapes[0][0]
    title = f"Speed with transposed operands relative to row-major, at M = N = K = {size}"
    passes = len(speeds(results, results.variants[0], "NN"))
    counted = f"medians of {passes} passes" if passes > 1 else "one pass"
    note = f"{counted}; T: column-major\n{results.run.describe()}"
    rows = []
    for name in results.variants:
        kept = [1 - statistics.median(found) if found else None
                for found in losses(results, name).values()]  # fmt: skip
        rows.append((label_of(name), [_cell(share) for share in kept]))
    columns = [f"{layout}: {words}" for layout, words in WORDS.items()]
    with drawing(title, note, height=1.6 + 0.36 * len(rows)) as (figure, theme):
        cells(figure.subplots(), rows, columns, theme)
    return figure


def _cell(kept: float | None) -> Cell:
    if kept is None:
        return Cell("-")
    strength = abs(math.log(kept)) / math.log(FULL_COLOUR)
    return Cell(f"{kept:.3f}", SERIES[0] if kept > 1 else SERIES[1], strength)


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "layouts")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    with measuring(parser):
        gpu = find_gpu("layouts are measured")
        chosen = {"device": gpu.name, "seconds": 0.5, "whole_calls": False}
        passes: list[Results] = []
        while len(passes) < PASSES and not (passes and passes[-1].interrupted):
            passes.append(measure(names(), [SIZE], layouts=LAYOUTS, **chosen))
        results = joined(passes)
    print(f"{results.run.describe()}\n\n{lines(results)}")
    write_comparison(arguments.output, results, picture)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
