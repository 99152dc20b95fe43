"""Experiment 22: products of mixture-of-experts routers, and squares, against cuBLAS.

``python benchmarks/routers.py`` measures M tokens x N experts x K hidden for the sizes of real
models, with a column-major B (the weights of a linear layer), and squares. These shapes have few
columns: reading A takes a large share of the time, and few tiles fill a GPU.

The variants and cuBLAS alternate, with few samples each and a cold cache. It writes JSON with every
sample, and prints the times, the ratios to cuBLAS and the geometric mean of each variant.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time

from _results import joined, output_argument, parsed, redraw, write_comparison

from sgemm_kernels import Error, Results
from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table
from sgemm_kernels.cli.speed_tables import sampled
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.shapes import Case, size_text

NAMES = ("cublas", "simt", "waves", "fused", "auto")
TOKENS = (512, 2048, 8192, 65536)
EXPERTS = (64, 128, 256, 384, 896)
HIDDEN = (2048, 7168)
SQUARES = (1024, 2048, 4096, 8192)
SECONDS = 600.0


def routers() -> list[Case]:
    """M tokens by N experts; B holds the router's weights, N x K in memory."""
    return [((M, N, K), "NT") for M, K, N in itertools.product(TOKENS, HIDDEN, EXPERTS)]


def squares() -> list[Case]:
    """Row-major squares."""
    return [((n, n, n), "NN") for n in SQUARES]


def measured(device: str, seconds: float) -> Results:
    """Rows of all cases within the time limit, the smallest operands first."""
    end = time.monotonic() + seconds
    cases = sorted([*routers(), *squares()], key=lambda case: case[0][0] * case[0][2])
    found: list[Results] = []
    with progress(len(cases)) as advance:
        while len(found) < len(cases) and time.monotonic() < end:
            shape, layout = cases[len(found)]
            found.append(measure_briefly(NAMES, shape, layout, device=device))
            advance(size_text(shape, layout))
    if len(found) < len(cases):
        print(f"{len(cases) - len(found)} cases are left out: time was over", file=sys.stderr)
    return joined(found, interrupted=len(found) < len(cases))


def rows(results: Results) -> list[tuple[str, ...]]:
    """For each case cuBLAS's time, each variant's ratio to it, and the error of `auto`."""
    lines = []
    for shape, layout in results.cases:
        own = {row.variant: row for row in results.rows if row.case == (shape, layout)}
        ratios = [results.ratios(own[name])[0] for name in NAMES[1:]]
        time_us = f"{(own['cublas'].median_s or 0) * 1e6:.0f}"
        errors = own["auto"].error.relative / own["cublas"].error.relative
        lines.append((size_text(shape, layout), time_us, *ratios, f"{errors:.2f}"))
    return lines


def means(results: Results, name: str) -> dict[str, float]:
    """A variant's geometric mean over cuBLAS for routers by their number of experts, and for
    squares."""
    found: dict[str, list[float]] = {}
    for row in results.rows:
        if row.variant == name and row.vs_cublas is not None:
            kind = "squares" if row.M == row.N == row.K else f"{row.N} experts"
            found.setdefault(kind, []).append(row.vs_cublas)
    return {kind: statistics.geometric_mean(ratios) for kind, ratios in found.items()}


def picture(results: Results, *, dark: bool = False) -> Picture:
    """The speed of each variant over cuBLAS's: a panel for each number of tokens, and for
    squares."""
    title = "Speed over cuBLAS's: routers, and squares"
    note = f"M tokens, N experts, B column-major; {sampled(results)}\n{results.run.describe()}"
    kinds = [*TOKENS, None]
    with drawing(title, note, dark=dark, height=12) as (figure, theme):
        panels = figure.subplots(len(kinds), squeeze=False)[:, 0]
        for axes, M in zip(panels, kinds, strict=True):
            cases = [
                case
                for case in results.cases
                if (len(set(case[0])) == 1 if M is None else case[0][0] == M and case[1] == "NT")
            ]
            for name, colour in zip(NAMES[1:], SERIES, strict=False):
                by_case = {row.case: row.vs_cublas for row in results.rows if row.variant == name}
                axes.plot([by_case[case] for case in cases], "o", color=colour, label=name)
            labels = [str(s[0]) if M is None else f"{s[1]}\n{s[2]}" for s, _ in cases]
            axes.set_xticks(range(len(cases)), labels)
            axes.axhline(1, color=theme.ink, linewidth=1.5)
            axes.set(yscale="log", ylabel="times as fast",
                     title="squares" if M is None else f"{M} tokens (experts, hidden)")  # fmt: skip
            low, high = axes.get_ylim()
            marks = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5)
            ticks(axes, "y", [mark for mark in marks if low < mark < high])
        panels[0].legend(loc="upper left", fontsize=9, ncols=len(NAMES))
    return figure


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "routers.json.gz")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="maximum total time (default: %(default)s)"
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    try:
        results = measured(find_gpu("routers are measured").name, arguments.seconds)
    except (Error, OSError, ImportError, MemoryError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{results.run.describe()}\n")
    print(table(("size", "cublas, us", *NAMES[1:], "error / cublas"), rows(results)))
    for name in NAMES[1:]:
        print(name, ", ".join(f"{k}: {v:.2f}" for k, v in means(results, name).items()))
    write_comparison(arguments.output, results, picture)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
