"""Experiment 23: the experts of a mixture of experts, against a loop of `torch.mm`.

``python benchmarks/grouped.py`` needs a GPU and PyTorch. Each of 64 experts multiplies its own
number of rows, 1 to 4096, by its weights, N x K in memory as in a linear layer. The numbers of rows
are drawn from a committed seed; ``--seed TEXT -o FILE`` draws others. `run_many` with `auto` and
with `simt` alternates with the loop. Every element of every result is checked. The L2 cache is
flushed before each sample. Writes JSON with every sample in nanoseconds, prints a table, and draws
a picture.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from _results import measuring, output_argument, parsed, redraw, write
from _tensors import Call, Exact, Timer, report_problems

from sgemm_kernels import run_many
from sgemm_kernels._style import SERIES, Picture, drawing
from sgemm_kernels._table import table

SEED = "experts to judge by"
"""The committed numbers of rows. Pass another seed for ones that the kernels were not tuned to."""
EXPERTS, MOST_ROWS = 64, 4096
SIZES = ((1024, 4096), (4096, 1024), (2048, 7168))
"""N and K."""
LOOP, AUTO, SIMT = "torch.mm, out=, in a loop", "run_many auto, out=", "run_many simt, out="
TARGET = 1.5
"""How many times as fast as the loop `auto` should be."""
SECONDS = 1.5
"""To sample a size, all ways together."""


def rows_of_experts(seed: str) -> list[int]:
    """The number of rows of each expert: log-uniform from 1 to MOST_ROWS."""
    draw = random.Random(seed)
    return [round(math.exp(draw.uniform(0, math.log(MOST_ROWS)))) for _ in range(EXPERTS)]


def operands(timer: Timer, rows: Sequence[int], N: int, K: int) -> tuple[list[Any], ...]:
    """The rows of each expert, its weights transposed, and memory for its results."""
    return (
        [timer.uniform(M, K) for M in rows],
        [timer.uniform(N, K).T for _ in rows],
        [timer.torch.empty((M, N), device="cuda") for M in rows],
    )


def ways(torch: Any, a: list[Any], b: list[Any], out: list[Any]) -> Iterator[tuple[str, Call]]:
    """Each way to queue the products in PyTorch's current stream."""

    def loop() -> None:
        for A, B, result in zip(a, b, out, strict=True):
            torch.mm(A, B, out=result)

    yield LOOP, loop
    yield AUTO, lambda: run_many("auto", a, b, out=out)
    yield SIMT, lambda: run_many("simt", a, b, out=out)


def measured(timer: Timer, rows: Sequence[int], N: int, K: int) -> list[dict[str, Any]]:
    """A row for each way. A way that fails or is wrong has no samples, but a problem."""
    a, b, out = operands(timer, rows, N, K)

    def check(_: str) -> Mapping[str, Any]:
        found = (Exact(A, B).checked(result) for A, B, result in zip(a, b, out, strict=True))
        return max(found, key=lambda each: each["worst_share_of_bound"])

    size = {"case": f"{N} x {K}", "N": N, "K": K, "operations": 2 * sum(rows) * N * K}
    return timer.measured(dict(ways(timer.torch, a, b, out)), out, check, size)


def speeds_of(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Speeds over the loop by size and way. Wrong or failed products have none."""
    medians = {(row["case"], row["way"]): row["median_ns"] for row in rows if row.get("median_ns")}
    return {
        (case, way): medians[case, LOOP] / median
        for (case, way), median in medians.items()
        if (case, LOOP) in medians
    }


def lines(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The table: size, way, milliseconds, TFLOP/s, and the speed over the loop."""
    speeds = speeds_of(rows)
    return [
        [row["case"], row["way"], f"{row['median_ns'] / 1e6:.2f}",
         f"{row['operations'] / row['median_ns'] / 1e3:.1f}",
         f"{speeds.get((row['case'], row['way']), math.nan):.2f}"]
        for row in rows if row.get("median_ns")
    ]  # fmt: skip


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """The speed of each way over the loop, by size."""
    speeds = speeds_of(rows)
    cases = list(dict.fromkeys(row["case"] for row in rows))
    title = f"{EXPERTS} experts with 1 to {MOST_ROWS} rows each: speed over a loop of torch.mm"
    note = f"{sum(head['rows_of_experts'])} rows, {head['device']}, medians"
    with drawing(title, note) as (figure, theme):
        axes = figure.subplots()
        for offset, (way, colour) in enumerate(zip((AUTO, SIMT), SERIES, strict=False)):
            places = [(place, speeds[case, way]) for place, case in enumerate(cases)
                      if (case, way) in speeds]  # fmt: skip
            axes.bar([place + 0.4 * offset for place, _ in places], [s for _, s in places],
                     0.38, color=colour, label=way)  # fmt: skip
        axes.axhline(1, color=theme.ink, linewidth=1.5)
        axes.set_xticks([place + 0.2 for place in range(len(cases))], cases)
        axes.set(xlabel="N x K", ylabel="times as fast")
        axes.margins(y=0.2)
        axes.legend(loc="upper left", ncols=2, fontsize=9)
    return figure


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result of ours was wrong or failed, 2 if
    measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "grouped")
    parser.add_argument("--seed", default=SEED, help="draws the rows (default: %(default)r)")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    usual = parser.get_default("output")
    if arguments.seed != SEED and arguments.output == usual:
        parser.error(f"{usual} is for the committed seed: pass -o FILE")
    of_experts = rows_of_experts(arguments.seed)
    rows: list[dict[str, Any]] = []
    with measuring(parser, RuntimeError):
        timer = Timer("experts are timed", SECONDS)
        for N, K in SIZES:
            timer.torch.cuda.empty_cache()
            rows += measured(timer, of_experts, N, K)
    head = timer.head() | {"seed": arguments.seed, "rows_of_experts": of_experts}
    print(f"{head['device']}, {head['run_s']:.0f} s\n")
    print(table(("N x K", "way", "ms", "TFLOP/s", "speed"), lines(rows)))
    of_auto = [speed for (_, way), speed in speeds_of(rows).items() if way == AUTO]
    if of_auto:
        print(f"\nauto, slowest: {min(of_auto):.2f} times as fast (target {TARGET})")
    wrong = report_problems(rows)
    write(arguments.output, "grouped", head, rows, picture)
    return 1 if {AUTO, SIMT} & {*wrong} else 0


if __name__ == "__main__":
    sys.exit(main())
