"""What a plan of `simt` takes, as arithmetic with seven constants, and their fit to measured times.

A plan divides C into tiles and K into parts (csrc/core/plan.h). ``python benchmarks/plan_model.py``
reads what ``plan_times.py`` measured, fits the constants, and prints them, how far the times are
from the model, and the gap: how much longer the plan that the model chooses takes than the best
one. The gap is told of shapes that the fit did not see: each fifth of them is judged by a fit to
the others. Needs no GPU.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _results import output_argument
from numpy.typing import NDArray

from sgemm_kernels._table import table
from sgemm_kernels.reporting import KINDS, kind_of

Float64 = NDArray[np.float64]

LANES = 128
"""Multiply-adds of a multiprocessor in a cycle, on each GPU that the rungs run on."""


@dataclass(frozen=True)
class Gpu:
    """What a device tells of itself, and a probe of its memory."""

    multiprocessors: int
    clock_hz: float
    memory_bytes_per_s: float


@dataclass(frozen=True)
class Constants:
    """What is fitted. Times are in cycles of a multiprocessor, whatever GPU it is."""

    start: float = 15000.0
    """Until the first tiles are there, and after the last results: once for each wave of blocks."""
    step: float = 30.0
    """Of a thread at each step of K beside its multiply-adds: what latency it cannot hide."""
    wait: float = 1500.0
    """From when a block begins to copy a tile until it is there."""
    load: float = 8.0
    """Issue slots of a warp for each quad that a thread takes from shared memory."""
    copy: float = 13.0
    """Issue slots of a warp for each copy that a thread begins: of a quad, or of a single float."""
    cache_bytes: float = 10.0
    """From the L2 cache, a cycle and multiprocessor."""
    memory_share: float = 0.65
    """What is reached of the memory's bandwidth."""
    adding: float = 8000.0
    """Of the second kernel, which adds the parts, beside its traffic."""


@dataclass(frozen=True)
class Tiling:
    """A block's tile of C and its step of K, its warps' tiles, its threads', and how many blocks a
    multiprocessor holds."""

    BM: int
    BN: int
    BK: int
    WM: int
    WN: int
    TM: int
    TN: int
    stages: int
    resident: int

    @property
    def warps(self) -> int:
        return self.BM // self.WM * (self.BN // self.WN)


@dataclass(frozen=True)
class Plans:
    """Plans as arrays, an element for each: what ``estimate`` takes. M and N are as the plan sees
    them, which may compute the transpose of C."""

    case: NDArray[np.int64]
    """Which shape it is of, from 0 on."""
    M: Float64
    N: Float64
    K: Float64
    a_singles: NDArray[np.bool_]
    """Whether A is copied float by float, since its neighbours run along K, or its lines, which
    follow one another, are not aligned; so B."""
    b_singles: NDArray[np.bool_]
    tiling: dict[str, Float64]
    splits: Float64
    added: NDArray[np.bool_]
    """Whether a second kernel adds the parts, or stores the transpose."""

    def of(self, chosen: NDArray[Any]) -> Plans:
        """Those that are chosen, by a mask or by places."""
        figures = {name: figure[chosen] for name, figure in self.tiling.items()}
        fields = (f.name for f in dataclasses.fields(self) if f.name != "tiling")
        return Plans(tiling=figures, **{name: getattr(self, name)[chosen] for name in fields})


def plans_of(rows: Sequence[dict[str, Any]], tilings: Sequence[Tiling]) -> Plans:
    """Of rows that name a plan: M, N, K, layout, tiling, splits, swapped."""
    cases = {case: i for i, case in enumerate(dict.fromkeys(map(case_of, rows)))}
    turned = np.array([row["swapped"] for row in rows])
    M, N, K = (np.array([row[name] for row in rows], float) for name in "MNK")
    # Along K lie the neighbours of an A by rows, and of a B by columns; others are copied by quads
    # where each line begins at one.
    a = np.array([row["layout"][0] == "N" or row["M"] % 4 != 0 for row in rows])
    b = np.array([row["layout"][1] == "T" or row["N"] % 4 != 0 for row in rows])
    of = [tilings[row["tiling"]] for row in rows]
    figures = (*(field.name for field in dataclasses.fields(Tiling)), "warps")
    splits = np.array([row["splits"] for row in rows], float)
    return Plans(
        case=np.array([cases[case_of(row)] for row in rows]),
        M=np.where(turned, N, M),
        N=np.where(turned, M, N),
        K=K,
        a_singles=np.where(turned, b, a),
        b_singles=np.where(turned, a, b),
        tiling={name: np.array([getattr(t, name) for t in of], float) for name in figures},
        splits=splits,
        added=(splits > 1) | turned,
    )


def case_of(row: dict[str, Any]) -> tuple[int, int, int, str]:
    return row["M"], row["N"], row["K"], row["layout"]


def estimate(c: Constants, p: Plans, gpu: Gpu) -> Float64:
    """Seconds that each plan takes."""
    t = p.tiling
    blocks = np.ceil(p.M / t["BM"]) * np.ceil(p.N / t["BN"]) * p.splits
    depth = np.ceil(np.ceil(p.K / t["BK"]) / p.splits) * t["BK"]
    work = t["TM"] * t["TN"]
    # A copy brings four floats, or one.
    copies = (t["BM"] / np.where(p.a_singles, 1, 4) + t["BN"] / np.where(p.b_singles, 1, 4)) / (
        32 * t["warps"]
    )
    # A warp issues an instruction a cycle at most, a multiprocessor LANES / 32 of them.
    issued = work + c.load * (t["TM"] + t["TN"]) / 4 + c.copy * copies
    # A tile is copied while the one before is multiplied, or with one stage before it is multiplied.
    busy, tiles = t["BK"] * (issued + c.step), depth / t["BK"]
    alone = tiles * np.where(t["stages"] > 1, np.maximum(busy, c.wait), busy + c.wait)
    of_block = depth * issued * t["warps"] * 32 / LANES

    def wave(count: Float64) -> Float64:
        return np.where(count > 0, np.maximum(count * of_block, alone) + c.start, 0)

    of_each = np.ceil(blocks / gpu.multiprocessors)
    full, rest = np.divmod(of_each, t["resident"])
    cycles = full * wave(t["resident"]) + wave(rest)
    from_cache = 4 * blocks * depth * (t["BM"] + t["BN"])
    cycles = np.maximum(cycles, c.start + from_cache / (c.cache_bytes * gpu.multiprocessors))
    memory = c.memory_share * gpu.memory_bytes_per_s / gpu.clock_hz
    bytes_moved = 4 * (p.M * p.K + p.K * p.N + p.M * p.N)
    cycles = np.maximum(cycles, c.start + bytes_moved / memory)
    of_adding = c.adding + 8 * p.M * p.N * p.splits / memory
    return (cycles + np.where(p.added, of_adding, 0)) / gpu.clock_hz


# ------------------------------------------------------------------------------------- the fit


NEAR = 0.3
"""A plan that takes so much longer than its shape's best, as a share, counts by 1 / e: how slow the
slow ones are is of little use to a choice."""
STEPS = 60
TOLERANCE = 1e-7


def fit(p: Plans, seconds: Float64, gpu: Gpu, begin: Constants | None = None) -> Constants:
    """The constants by which the logarithms of estimates are nearest to those of measured times, by
    damped least squares (Levenberg and Marquardt) over the logarithms of the constants."""
    names = [field.name for field in dataclasses.fields(Constants)]
    start = begin or Constants()
    x = np.log([getattr(start, name) for name in names])
    weights = np.sqrt(np.exp(-(seconds / best_of(p, seconds)[p.case] - 1) / NEAR))

    def constants(logs: Float64) -> Constants:
        return Constants(**dict(zip(names, map(float, np.exp(logs)), strict=True)))

    def residuals(logs: Float64) -> Float64:
        return weights * np.log(estimate(constants(logs), p, gpu) / seconds)

    now, damping = residuals(x), 1e-2
    for _ in range(STEPS):
        slopes = np.stack([
            (residuals(x + 1e-4 * unit) - residuals(x - 1e-4 * unit)) / 2e-4
            for unit in np.eye(len(x))
        ], axis=1)  # fmt: skip
        square, down = slopes.T @ slopes, slopes.T @ now
        while damping < 1e9:
            scale = np.diag(damping * (np.diag(square) + 1e-9))
            tried = x - np.clip(np.linalg.solve(square + scale, down), -1, 1)
            then = residuals(tried)
            if then @ then < now @ now:
                break
            damping *= 4
        else:
            break
        gained = 1 - (then @ then) / (now @ now)
        x, now, damping = tried, then, damping / 4
        if gained < TOLERANCE:
            break
    return constants(x)


def best_of(p: Plans, seconds: Float64) -> Float64:
    """The least time of each case."""
    best = np.full(p.case.max() + 1, math.inf)
    np.minimum.at(best, p.case, seconds)
    return best


def chosen_by(estimates: Float64, p: Plans) -> NDArray[np.int64]:
    """The place of the plan with the least estimate, for each case that has plans."""
    order = np.lexsort((estimates, p.case))
    return order[np.r_[True, np.diff(p.case[order]) > 0]]


def gaps(c: Constants, p: Plans, seconds: Float64, gpu: Gpu) -> Float64:
    """For each case, the time of the plan that the constants choose over that of the best."""
    chosen = chosen_by(estimate(c, p, gpu), p)
    return seconds[chosen] / best_of(p, seconds)[p.case[chosen]]


FOLDS = 5


def gaps_unseen(p: Plans, seconds: Float64, gpu: Gpu) -> Float64:
    """For each case the gap by a fit to the cases of the other folds."""
    found = np.full(p.case.max() + 1, math.nan)
    for fold in range(FOLDS):
        judged = p.case % FOLDS == fold
        if not judged.any() or judged.all():
            continue
        constants = fit(renumbered(p.of(~judged)), seconds[~judged], gpu)
        places = np.unique(p.case[judged])
        found[places] = gaps(constants, renumbered(p.of(judged)), seconds[judged], gpu)
    return found


def renumbered(p: Plans) -> Plans:
    """With cases from 0 on, in their order."""
    return dataclasses.replace(p, case=np.unique(p.case, return_inverse=True)[1])


# ------------------------------------------------------------------------------------- the file


def lines(document: dict[str, Any]) -> str:
    """The constants and the gaps, as text."""
    gpu = Gpu(**document["gpu"])
    tilings = [Tiling(*figures) for figures in document["tilings"]]
    rows = [row for row in document["rows"] if "median_s" in row]
    p = plans_of(rows, tilings)
    seconds = np.array([row["median_s"] for row in rows])
    over_best = seconds / best_of(p, seconds)[p.case]
    constants = fit(p, seconds, gpu)
    off = np.abs(np.log(estimate(constants, p, gpu) / seconds))[over_best <= 1 + NEAR]
    unseen = gaps_unseen(p, seconds, gpu)
    today = {int(p.case[i]): over_best[i] for i, row in enumerate(rows) if row["chosen"]}
    way_in = [row["simt_median_s"] / row["median_s"] for row in rows
              if row["chosen"] and row["simt_median_s"]]  # fmt: skip
    kind_of_case = {int(p.case[i]): kind_of(case_of(row)[:3]) for i, row in enumerate(rows)}
    body = []
    for kind in ("all", *KINDS):
        own = [case for case, its in kind_of_case.items() if kind in ("all", its)]
        if own:
            fitted = told([unseen[case] for case in own])
            body.append((kind, str(len(own)), *fitted, *told([today.get(c) for c in own])))
    header = ("gap to the best plan", "shapes", "unseen by the fit", "worst", "plan.c", "worst")
    figures = [(f.name, f"{getattr(constants, f.name):.3g}") for f in dataclasses.fields(constants)]
    known = [f"Plans near the best are off the model by {np.median(off):.1%} (median)."]
    if way_in:
        middle = statistics.median(way_in)
        known += [f"`simt` itself takes {middle:.3f} of the time of its plan here (median)."]
    return "\n\n".join([table(("constant", "fitted"), figures), *known, table(header, body)])


def told(found: Sequence[float | None]) -> tuple[str, str]:
    """The geometric mean of the ratios that are known, and the worst."""
    known = [ratio for ratio in found if ratio is not None and math.isfinite(ratio)]
    return (f"{statistics.geometric_mean(known):.3f}", f"{max(known):.2f}") if known else ("-", "-")


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "plan_times")
    path = parser.parse_args().output
    print(lines(json.loads(path.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
