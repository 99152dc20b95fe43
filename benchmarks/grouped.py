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
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from _modules import first_line, imported
from _results import output_argument, parsed, redraw, write
from batched import flush_of, sample

from sgemm_kernels import Error, build_info, run_many
from sgemm_kernels._accuracy import gamma
from sgemm_kernels._style import SERIES, Picture, drawing
from sgemm_kernels._table import table
from sgemm_kernels.measuring.devices import find_gpu

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

Call = Callable[[], Any]


def rows_of_experts(seed: str) -> list[int]:
    """The number of rows of each expert: log-uniform from 1 to MOST_ROWS."""
    draw = random.Random(seed)
    return [round(math.exp(draw.uniform(0, math.log(MOST_ROWS)))) for _ in range(EXPERTS)]


def operands(torch: Any, rows: Sequence[int], N: int, K: int) -> tuple[list[Any], ...]:
    """The rows of each expert, its weights transposed, and memory for its results."""

    def uniform(*shape: int) -> Any:
        return torch.empty(shape, device="cuda").uniform_(-1, 1)

    return (
        [uniform(M, K) for M in rows],
        [uniform(N, K).T for _ in rows],
        [torch.empty((M, N), device="cuda") for M in rows],
    )


def ways(torch: Any, a: list[Any], b: list[Any], out: list[Any]) -> Iterator[tuple[str, Call]]:
    """Each way to queue the products in PyTorch's current stream."""

    def loop() -> None:
        for A, B, result in zip(a, b, out, strict=True):
            torch.mm(A, B, out=result)

    yield LOOP, loop
    yield AUTO, lambda: run_many("auto", a, b, out=out)
    yield SIMT, lambda: run_many("simt", a, b, out=out)


def worst_share(a: list[Any], b: list[Any], out: list[Any]) -> float:
    """The largest error as a share of its bound, by float64 on the GPU: at most 1 if all are
    right."""
    shares = []
    for A, B, result in zip(a, b, out, strict=True):
        A, B = A.double(), B.double()
        error = (result.double() - A @ B).abs() / (A.abs() @ B.abs())
        shares.append(float(error.max()) / gamma(A.shape[1] + 3))
    return math.inf if any(map(math.isnan, shares)) else max(shares)


def measured(
    torch: Any, rows: Sequence[int], N: int, K: int, flush: Call, seconds: float
) -> list[dict[str, Any]]:
    """A row for each way. A way that fails or is wrong has no samples, but a problem."""
    a, b, out = operands(torch, rows, N, K)
    found: dict[str, dict[str, Any]] = {}
    right: dict[str, Call] = {}
    for name, call in ways(torch, a, b, out):
        share = None
        for result in out:
            result.fill_(math.nan)
        try:
            call()
            share = worst_share(a, b, out)
            problem = None if share <= 1 else f"wrong: {share:.2g} times the error bound"
        except Exception as error:  # any error of a library
            problem = first_line(error)
        if problem is None:
            right[name] = call
        size = {"case": f"{N} x {K}", "N": N, "K": K, "operations": 2 * sum(rows) * N * K}
        found[name] = {"way": name, **size, "worst_share_of_bound": share, "problem": problem}
    for name, samples_ns in sample(torch, right, flush, seconds).items():
        low, middle, high = statistics.quantiles(samples_ns, n=4, method="inclusive")
        found[name] |= {"median_ns": middle, "iqr_ns": high - low, "samples_ns": samples_ns}
    return list(found.values())


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
    begin = time.perf_counter()
    try:
        gpu = find_gpu("experts are timed")
        found, missing = imported({"torch": "torch"})
        if "torch" not in found:
            raise OSError(f"PyTorch is missing: {missing['torch']}")
        torch = found["torch"]
        flush = flush_of(torch, gpu.l2_bytes or 1 << 26)
        rows: list[dict[str, Any]] = []
        for N, K in SIZES:
            torch.manual_seed(N)
            torch.cuda.empty_cache()
            rows += measured(torch, of_experts, N, K, flush, SECONDS)
    except (Error, OSError, RuntimeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    build = build_info()
    head = {
        "device": gpu.model,
        "driver": gpu.driver,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
        "versions": {"numpy": np.__version__, "torch": torch.__version__},
        "seed": arguments.seed,
        "rows_of_experts": of_experts,
        "run_s": time.perf_counter() - begin,
        "protocol": "CUDA events around each call, the L2 cache flushed before it; rounds in "
        "random order, the first one discarded; tensors with out=, no TF32; uniform [-1, 1]",
    }
    print(f"{gpu.model}, {head['run_s']:.0f} s\n")
    print(table(("N x K", "way", "ms", "TFLOP/s", "speed"), lines(rows)))
    of_auto = [speed for (_, way), speed in speeds_of(rows).items() if way == AUTO]
    if of_auto:
        print(f"\nauto, slowest: {min(of_auto):.2f} times as fast (target {TARGET})")
    problems = [row for row in rows if row["problem"]]
    for row in problems:
        print(f"{row['way']} at {row['case']}: {row['problem']}", file=sys.stderr)
    write(arguments.output, "grouped", head, rows, picture)
    return 1 if any(row["way"] in (AUTO, SIMT) for row in problems) else 0


if __name__ == "__main__":
    sys.exit(main())
