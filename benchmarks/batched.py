"""Experiment 21: batches of products against `torch.bmm`, CuPy's matmul and a Triton kernel.

``python benchmarks/batched.py`` needs a GPU and PyTorch. It measures the 60 batches of
``_batches.py``, drawn from a committed seed; ``--seed TEXT -o FILE`` draws others. `auto` and
`simt` multiply PyTorch's tensors into `out`, as the others do. Each way is checked on a sample of
the matrices. The ways alternate in a new order each round, and the L2 cache is flushed before each
sample. Writes JSON with every sample in nanoseconds, prints tables, and draws a picture.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from _batches import SEED, Batch, suite
from _results import measuring, output_argument, parsed, redraw, write
from _tensors import Call, Timer, queued, report_problems, verdict

from sgemm_kernels import run
from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table
from sgemm_kernels.cli.experiment_tables import (
    AUTO_OUT,
    BMM_OUT,
    SIMT_OUT,
    batch_targets,
    of_batches,
    speeds_of,
)
from sgemm_kernels.measuring.truth import Truth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODULES = {"torch": "torch", "cupy": "cupy", "triton": "_triton_batches"}
"""Modules by the name that the result reports if they are missing."""
CUPY_OUT, TRITON = "cupy.matmul, out=", "Triton"
SECONDS, QUICK_SECONDS = 0.25, 0.03
"""To sample a batch, all ways together."""
QUICK_STEP = 6
"""With --quick, every sixth batch is measured."""
MOST_CHECKED, ROWS_CHECKED, CHECKED_WORK = 64, 128, 1e9
"""The matrices of a batch and the rows of each that are checked: this many, or fewer matrices with
about this many multiply-adds; at least two."""
EDGES = (65_534, 65_535, 65_536)
"""Matrices beside the limit of a grid's y and z are checked if there are so many."""
COPIED_BYTES, COPIES = 1 << 30, 10
"""Size and number of the copies that give the memory bandwidth."""


def operands(timer: Timer, batch: Batch) -> tuple[Any, Any, Any]:
    """A, B and memory for the results, as 3-D tensors on the GPU. A shared operand is a view with
    stride 0."""

    def uniform(rows: int, columns: int, *, shared: bool) -> Any:
        values = timer.uniform(1 if shared else batch.count, rows, columns)
        return values.expand(batch.count, rows, columns)

    a = uniform(batch.M, batch.K, shared=batch.shared == "A")
    if batch.transposed:
        b = uniform(batch.N, batch.K, shared=batch.shared == "B").mT
    else:
        b = uniform(batch.K, batch.N, shared=batch.shared == "B")
    return a, b, timer.torch.empty((batch.count, batch.M, batch.N), device="cuda")


def ways(found: Mapping[str, Any], a: Any, b: Any, out: Any) -> Iterator[tuple[str, Call]]:
    """Each way to queue the products in PyTorch's current stream."""
    torch = found["torch"]
    yield BMM_OUT, lambda: torch.bmm(a, b, out=out)
    yield AUTO_OUT, lambda: run("auto", a, b, out=out)
    yield SIMT_OUT, lambda: run("simt", a, b, out=out)
    if "cupy" in found:
        cupy = found["cupy"]  # its current stream is the legacy default stream, as PyTorch's is
        of_a, of_b, of_out = (cupy.from_dlpack(tensor) for tensor in (a, b, out))
        yield CUPY_OUT, lambda: cupy.matmul(of_a, of_b, out=of_out)
    if "triton" in found:
        yield TRITON, lambda: found["triton"].product(a, b, out)


def checked_indices(batch: Batch) -> list[int]:
    """The matrices to check: the first, the last, those at EDGES, and random ones."""
    work = min(batch.M, ROWS_CHECKED) * batch.N * batch.K
    count = min(max(int(CHECKED_WORK / work), 2), MOST_CHECKED, batch.count)
    wanted = {0, batch.count - 1, *(edge for edge in EDGES if edge < batch.count)}
    others = random.Random(0).sample(range(batch.count), count)
    return sorted(wanted | set(others[: max(count - len(wanted), 0)]))


def on_host(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.cpu())


class Checker:
    """Compares a sample of the results with float64."""

    def __init__(self, batch: Batch, a: Any, b: Any) -> None:
        rng = np.random.default_rng(batch.count)
        self._truths = []
        for index in checked_indices(batch):
            others = rng.permutation(batch.M - 1)[: ROWS_CHECKED - 1]
            rows = sorted({*others.tolist(), batch.M - 1})
            truth = Truth(on_host(a[index][rows]), on_host(b[index]), (), rng)
            self._truths.append((index, rows, truth))

    def checked(self, out: Any) -> dict[str, Any]:
        """The largest error as a share of its bound, and the problem if it is above 1."""
        return verdict(
            max(
                truth.accuracy_of(on_host(out[index][rows])).worst_share
                for index, rows, truth in self._truths
            )
        )


def measured(timer: Timer, batch: Batch) -> list[dict[str, Any]]:
    """A row for each way. A way that fails or is wrong has no samples, but a problem."""
    a, b, out = operands(timer, batch)
    checker = Checker(batch, a, b)
    of_batch = {"case": batch.text, "bytes": batch.bytes, **asdict(batch)}
    calls = dict(ways(timer.found, a, b, out))
    return timer.measured(calls, [out], lambda _: checker.checked(out), of_batch)


def copy_bytes_per_s(torch: Any) -> float:
    """Bytes read plus written per second by a copy in the GPU's memory."""
    source = torch.empty((COPIED_BYTES // 4,), device="cuda").fill_(0)
    target = torch.empty((COPIED_BYTES // 4,), device="cuda")
    pairs = [queued(torch, lambda: target.copy_(source), lambda: None) for _ in range(COPIES)]
    torch.cuda.synchronize()
    times_ms = [begin.elapsed_time(done) for begin, done in pairs]
    return 2e3 * COPIED_BYTES / statistics.median(times_ms)


LOOKS = {
    BMM_OUT: ("torch.bmm", SERIES[5], "^"),
    CUPY_OUT: ("CuPy", SERIES[4], "D"),
    TRITON: ("Triton", SERIES[3], "v"),
    SIMT_OUT: ("run simt", SERIES[0], "s"),
    AUTO_OUT: ("run auto", SERIES[2], "o"),
}
"""The label, colour and marker of each way."""


def side_of(row: Mapping[str, Any]) -> float:
    """The size of a product: the side of a cube with as many multiply-adds."""
    return math.cbrt(row["M"] * row["N"] * row["K"])


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Above, the speed over torch.bmm's by size; below, the memory traffic."""
    timed = [row for row in rows if row.get("median_ns")]
    speeds = speeds_of(rows)
    ours = [speed for (_, way), speed in speeds.items() if way == AUTO_OUT]
    title = "Batches of products by size"
    if ours:
        title += f": auto is {statistics.geometric_mean(ours):.2f} times as fast as torch.bmm"
    note = (
        f"{len({row['case'] for row in rows})} batches, {head['device']}, medians; {versions(head)}"
    )
    with drawing(title, note, height=9.4) as (figure, theme):
        above, below = figure.subplots(2, sharex=True)
        points = [(row, speeds[row["case"], row["way"]]) for row in timed
                  if row["way"] != BMM_OUT and (row["case"], row["way"]) in speeds]  # fmt: skip
        draw_points(above, points)
        above.axhline(1, color=theme.ink, linewidth=1.5)
        above.set(yscale="log", ylabel="times as fast as torch.bmm", title="Speed over torch.bmm")
        low, high = above.get_ylim()
        marks = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
        ticks(above, "y", [mark for mark in marks if low < mark < high])
        rates = [(row, row["bytes"] / row["median_ns"] / 1e3) for row in timed
                 if row["way"] in (BMM_OUT, TRITON, AUTO_OUT)]  # fmt: skip
        draw_points(below, rates)
        peak = head["copy_bytes_per_s"] / 1e12
        below.axhline(peak, color=theme.ink, linewidth=1.5)
        below.annotate(f"a copy: {peak:.2f}", (0, peak), (4, 4), va="bottom", ha="left",
                       xycoords=("axes fraction", "data"), textcoords="offset points")  # fmt: skip
        below.set(xscale="log", ylim=(0, 1.35 * peak), ylabel="TB/s, each operand once",
                  xlabel="size of a product: cube root of M N K",
                  title="Memory traffic: beyond about 128, arithmetic limits instead")  # fmt: skip
        ticks(below, "x", [2**power for power in range(12)])
    return figure


def draw_points(axes: Axes, points: Sequence[tuple[Mapping[str, Any], float]]) -> None:
    """A marker for each batch and way."""
    for way, (label, colour, marker) in LOOKS.items():
        own = [(side_of(row), value) for row, value in points if row["way"] == way]
        if own:
            axes.plot(*zip(*own, strict=True), marker, color=colour, label=label, markersize=5,
                      alpha=0.8)  # fmt: skip
    if points:
        axes.legend(loc="upper right", fontsize=9)


def versions(head: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in head["versions"].items())


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result of ours was wrong or failed, 2 if
    measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "batched")
    parser.add_argument("--quick", action="store_true", help="fewer batches and samples")
    parser.add_argument("--seed", default=SEED, help="draws the batches (default: %(default)r)")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    usual = parser.get_default("output")
    if (arguments.seed != SEED or arguments.quick) and arguments.output == usual:
        parser.error(f"{usual} is for the whole committed suite: pass -o FILE")
    batches = suite(arguments.seed)[:: QUICK_STEP if arguments.quick else 1]
    seconds = QUICK_SECONDS if arguments.quick else SECONDS
    rows: list[dict[str, Any]] = []
    with measuring(parser, RuntimeError):
        timer = Timer("batches are timed", seconds, MODULES)
        bandwidth = copy_bytes_per_s(timer.torch)
        for index, batch in enumerate(batches):
            timer.torch.manual_seed(index)
            timer.torch.cuda.empty_cache()
            rows += measured(timer, batch)
    head = timer.head() | {
        "missing": timer.missing,
        "seed": arguments.seed,
        "copy_bytes_per_s": bandwidth,
    }
    print(f"{head['device']}, {head['run_s']:.0f} s\n")
    for header, lines in (batch_targets(rows, bandwidth), of_batches(rows)):
        print(f"{table(header, lines)}\n")
    for name, why in timer.missing.items():
        print(f"{name} is missing: {why}", file=sys.stderr)
    wrong = report_problems(rows)
    write(arguments.output, "batched", head, rows, picture)
    return 1 if {AUTO_OUT, SIMT_OUT} & {*wrong} else 0


if __name__ == "__main__":
    sys.exit(main())
