"""Experiment 14: `simt` and `auto` against cuBLAS over random shapes.

``python benchmarks/random_shapes.py`` measures the 320 shapes of the release suite of
``_shapes.py``: log-uniform from 1 to 16384, each in one of the four layouts. Published figures come
from this suite. Its seed contains the package's version, and it is measured once per version, after
the last change to the kernels. While you change them, use ``--suite developing -o FILE``.

The variants and cuBLAS alternate, with few samples each. Operands are contiguous CuPy arrays, so
most rows are not aligned. The run ends after ``--seconds`` and says how many shapes it left out:
the last ones drawn. It writes JSON with every sample, and prints the geometric mean and the worst
of each kind of shapes, and the share that is slower than cuBLAS. cuBLAS's default mode is measured
too (``_cublas_product.py``).
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Sequence

import _cublas_product
from _results import joined, measuring, output_argument, parsed, redraw, write_comparison
from _shapes import SEEDS, suite

from sgemm_kernels import Results
from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table
from sgemm_kernels.cli.speed_tables import KINDS, by_kind, kind_of, sampled
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.shapes import Case, size_text

NAMES = ("cublas", "simt", "auto")
MEASURED = (*NAMES, (_cublas_product.NAME, _cublas_product.product))
SECONDS = 150.0
WORST = 10


def measured(cases: Sequence[Case], device: str, seconds: float) -> Results:
    """Rows of all cases within the time limit. A case that does not fit into memory is left out
    with a message."""
    end = time.monotonic() + seconds
    found: list[Results] = []
    left = list(cases)
    with progress(len(cases)) as advance:
        while left and time.monotonic() < end:
            shape, layout = left.pop(0)
            try:
                found.append(measure_briefly(MEASURED, shape, layout, device=device))
            except MemoryError as error:
                print(f"{size_text(shape, layout)} is left out: {error}", file=sys.stderr)
                continue
            advance(size_text(shape, layout))
    if not found:
        raise MemoryError("no shape was measured")
    if left:
        print(f"{len(left)} of {len(cases)} shapes are left out: time was over", file=sys.stderr)
    return joined(found, interrupted=bool(left))


def worst(results: Results, name: str) -> str:
    """The slowest shapes of a variant, relative to cuBLAS."""
    known = [row for row in results.rows if row.variant == name and row.vs_cublas is not None]
    lines = [
        (size_text(*row.case), kind_of(row.shape), results.ratios(row)[0])
        for row in sorted(known, key=lambda row: row.vs_cublas or 0)[:WORST]
    ]
    return table((f"slowest of {name}", "kind", "/ cuBLAS"), lines)


def picture(results: Results) -> Picture:
    """For `simt` and `auto` the ratios over the work of a product, by kind."""
    others = [name for name in results.variants if name in NAMES[1:]]
    title = "Speed over cuBLAS's, at random shapes"
    note = f"{len(results.cases)} shapes, log-uniform, in four layouts; {sampled(results)}"
    note += f"\n{results.run.describe()}"
    with drawing(title, note, height=1 + 3.5 * len(others)) as (figure, theme):
        panels = figure.subplots(len(others), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, name in zip(panels, others, strict=True):
            own = [row for row in results.rows if row.variant == name and row.vs_cublas]
            for kind, colour, marker in zip(KINDS, SERIES, "osD^v", strict=False):
                points = [(2 * row.M * row.N * row.K, row.vs_cublas) for row in own
                          if kind_of(row.shape) == kind]  # fmt: skip
                if points:
                    axes.plot(*zip(*points, strict=True), marker, color=colour, label=kind,
                              markersize=4, alpha=0.8)  # fmt: skip
            mean = statistics.geometric_mean(row.vs_cublas or 1 for row in own) if own else 1
            axes.axhline(1, color=theme.ink, linewidth=1.5)
            axes.set(xscale="log", yscale="log", ylabel="times as fast as cuBLAS",
                     title=f"{name}: geometric mean {mean:.2f}")  # fmt: skip
        low, high = panels[0].get_ylim()
        marks = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20)
        ticks(panels[0], "y", [mark for mark in marks if low < mark < high])
        panels[-1].set_xlabel("operations of a product")
        panels[0].legend(loc="upper right", fontsize=9)
    return figure


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "random_shapes.json.gz")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="maximum total time (default: %(default)s)"
    )
    parser.add_argument(
        "--suite", choices=("release", "developing"), default="release", help="default: %(default)s"
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    name = arguments.suite
    if name != "release" and arguments.output == parser.get_default("output"):
        parser.error(f"{arguments.output} is for the release suite: pass -o FILE")
    with measuring(parser):
        gpu = find_gpu("the suite is measured")
        results = measured(suite(name), gpu.name, arguments.seconds)
        run = dataclasses.replace(results.run, seed=SEEDS[name])
        results = joined([dataclasses.replace(results, run=run)], results.interrupted)
    print(f"{results.run.describe()}\n\n{table(*by_kind(results))}")
    for name in NAMES[1:]:
        print(f"\n{worst(results, name)}")
    write_comparison(arguments.output, results, picture)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
