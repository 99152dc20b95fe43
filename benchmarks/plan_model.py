"""The constants of the estimate in csrc/gemm/plan/plan.c, fitted to measured times.

``python benchmarks/plan_model.py`` reads measured plans, by default an H100's in
``plan_fit.npz``, fits the constants, and prints them beside the current ones. It then prints the
gap: how much longer the chosen plan takes than the best measured plan. Each fifth of the shapes is
judged by a fit to the others. It needs a C compiler, no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import hashlib
import json
import math
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgemm_kernels._plans import constants_for
from sgemm_kernels._table import table

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "results" / "h100-80gb-hbm3" / "plan_fit.npz"
SOURCES = [
    Path(__file__).with_suffix(".c"),
    *(
        ROOT / "csrc/gemm/plan" / name
        for name in ("plan.c", "plan_constants.c", "small_batch_plan.c")
    ),
]
HEADERS = [ROOT / "csrc/gemm/plan" / name for name in ("constants.h", "plan.h", "tiles.h")]
TILES = re.findall(r"^ +TILE\((\d+), (\d+), (\d+),", HEADERS[-1].read_text(), re.MULTILINE)
KERNELS = (*("x".join(tile) for tile in TILES), "gemv", "dot", "streamk", "small_batch")
"""Names of a plan's kernels, in the order of plan.h."""

Float64 = NDArray[np.float64]

MATRIX = np.dtype(
    [("data", "u8"), ("rows", "i8"), ("cols", "i8"), ("row_stride", "i8"), ("col_stride", "i8"),
     ("batch_stride", "i8")],
)  # fmt: skip
SGEMM = np.dtype(
    [*((name, MATRIX) for name in "ABC"), ("alpha", "f4"), ("beta", "f4"), ("count", "i8")]
)
PLAN = np.dtype(
    [("kernel", "i4"), ("splits", "i4"), ("cluster", "?"), ("transposed", "?"), ("mirrors", "?"),
     ("width", "i4"), ("cycles", "f8")], align=True,
)  # fmt: skip
"""As in csrc/base/sgemm.h and csrc/gemm/plan/plan.h."""


class PlanDevice(ctypes.Structure):
    """As in csrc/gemm/plan/plan.h."""

    _fields_ = (
        ("multiprocessors", ctypes.c_int),
        ("widest_cluster", ctypes.c_int),
        ("shared_bytes", ctypes.c_int),
        ("constants", ctypes.c_void_p),
    )


def matrix(rows: int, cols: int, by_columns: bool, data: int = 0) -> tuple[int, ...]:
    return (data, rows, cols, *((1, rows) if by_columns else (cols, 1)), 0)


def problem(M: int, N: int, K: int, layout: str) -> NDArray[Any]:
    """A product whose operands are aligned and contiguous, as a record. They are at two places:
    otherwise it could be symmetric."""
    A = matrix(M, K, layout[0] == "T")
    B = matrix(K, N, layout[1] == "T", data=1 << 20)
    return np.array((A, B, matrix(M, N, False), 1.0, 0.0, 1), SGEMM)


@dataclass(frozen=True)
class Measured:
    """Plans and their times. Plan i is of shape of[i]."""

    problems: NDArray[Any]
    of: NDArray[np.int32]
    plans: NDArray[Any]
    seconds: Float64
    cublas: Float64
    """cuBLAS's seconds at each shape; NaN where unknown."""
    multiprocessors: int
    clock_hz: float

    @property
    def best(self) -> Float64:
        """The least time of each shape."""
        return least(self.seconds, self.of, len(self.problems))

    def only(self, shapes: NDArray[np.bool_]) -> Measured:
        """The same without the other shapes."""
        own = shapes[self.of]
        number = np.cumsum(shapes) - 1
        return dataclasses.replace(
            self, problems=self.problems[shapes], of=number[self.of[own]].astype(np.int32),
            plans=self.plans[own], seconds=self.seconds[own], cublas=self.cublas[shapes],
        )  # fmt: skip


def least(values: Float64, of: NDArray[np.int32], count: int) -> Float64:
    found = np.full(count, math.inf)
    np.minimum.at(found, of, values)
    return found


def from_rows(rows: list[dict[str, Any]], multiprocessors: int, clock_hz: float) -> Measured:
    """Measured plans from the rows of plan_times.py, without plans that have no time."""
    rows = [row for row in rows if "median_s" in row]
    shapes = {(row["M"], row["N"], row["K"], row["layout"]): row for row in rows}
    number = {shape: i for i, shape in enumerate(shapes)}
    rows.sort(key=lambda row: number[row["M"], row["N"], row["K"], row["layout"]])
    plans = [
        (KERNELS.index(row["kernel"]), row["splits"], row["cluster"], row["transposed"], False,
         row["width"], 0.0)
        for row in rows
    ]  # fmt: skip
    return Measured(
        problems=np.array([problem(*shape) for shape in shapes], SGEMM),
        of=np.array([number[row["M"], row["N"], row["K"], row["layout"]] for row in rows], "i4"),
        plans=np.array(plans, PLAN),
        seconds=np.array([row["median_s"] for row in rows]),
        cublas=np.array([row.get("cublas_median_s") or math.nan for row in shapes.values()]),
        multiprocessors=multiprocessors,
        clock_hz=clock_hz,
    )


LOG_STEP = 2048
"""Times in plan_fit.npz are 2 ** (value / LOG_STEP) nanoseconds."""


def load(path: Path) -> Measured:
    """Measured plans: a JSON of plan_times.py, or an NPZ."""
    if path.suffix == ".json":
        document = json.loads(path.read_text(encoding="utf-8"))
        return from_rows(document["rows"], **document["gpu"])
    with np.load(path) as data:
        index = np.array([KERNELS.index(name) for name in data["kernels"]], "i4")
        plans = np.zeros(len(data["of"]), PLAN)
        plans["kernel"] = index[data["kernel"]]
        for name in ("splits", "cluster", "transposed", "width"):
            plans[name] = data[name]
        seconds, cublas = (
            1e-9 * 2 ** (data[name].astype(float) / LOG_STEP) for name in ("time", "cublas")
        )
        layouts = ("NN", "NT", "TN", "TT")
        shapes = zip(data["shapes"].tolist(), data["layouts"].tolist(), strict=True)
        return Measured(
            problems=np.array([problem(M, N, K, layouts[i]) for (M, N, K), i in shapes], SGEMM),
            of=np.cumsum(data["of"], dtype="i4"),
            plans=plans,
            seconds=seconds,
            cublas=cublas,
            multiprocessors=int(data["multiprocessors"]),
            clock_hz=float(data["clock_hz"]),
        )


def save(path: Path, m: Measured, layouts: list[str]) -> None:
    """As `load` reads it. Plans are in the order of shapes."""
    log = [np.round(LOG_STEP * np.log2(1e9 * t)).astype("u2") for t in (m.seconds, m.cublas)]
    sides = [m.problems["C"]["rows"], m.problems["C"]["cols"], m.problems["A"]["cols"]]
    np.savez_compressed(
        path,
        kernels=np.array(KERNELS),
        shapes=np.stack(sides, axis=1).astype("i4"),
        layouts=np.array([("NN", "NT", "TN", "TT").index(layout) for layout in layouts], "u1"),
        of=np.diff(m.of, prepend=0).astype("u1"),
        kernel=m.plans["kernel"].astype("u1"),
        splits=m.plans["splits"].astype("u2"),
        cluster=m.plans["cluster"],
        transposed=m.plans["transposed"],
        width=m.plans["width"].astype("u1"),
        time=log[0],
        cublas=log[1],
        multiprocessors=m.multiprocessors,
        clock_hz=m.clock_hz,
    )


class Model:
    """The C code's estimate."""

    def __init__(self) -> None:
        text = b"".join(path.read_bytes() for path in (*SOURCES, *HEADERS))
        library = ROOT / f"build/benchmarks/plan_model-{hashlib.sha256(text).hexdigest()[:16]}.so"
        if not library.is_file():
            library.parent.mkdir(parents=True, exist_ok=True)
            flags = ["-std=c11", "-O2", "-fno-math-errno", "-fPIC", "-shared"]
            compiler = os.environ.get("CC", "cc").split()
            subprocess.run([*compiler, *flags, *SOURCES, "-o", library, "-lm"], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.constant_name.restype = ctypes.c_char_p
        count = self.library.count_constants()
        self.names = [self.library.constant_name(i).decode() for i in range(count)]

    def device(self, constants: Float64, multiprocessors: int) -> PlanDevice:
        return PlanDevice(multiprocessors, 8, 227 * 1024, constants.ctypes.data)

    def seconds(self, constants: dict[str, float], m: Measured) -> Float64:
        """The estimated time of each plan."""
        values = np.array([constants[name] for name in self.names])
        cycles = np.zeros(len(m.plans))
        self.library.estimate_plans(
            len(m.plans),
            *(array.ctypes.data_as(ctypes.c_void_p) for array in (m.problems, m.of, m.plans)),
            ctypes.byref(self.device(values, m.multiprocessors)),
            cycles.ctypes.data_as(ctypes.c_void_p),
        )
        return cycles / m.clock_hz


def chosen(estimates: Float64, m: Measured) -> NDArray[np.int64]:
    """The plan with the least estimate of each shape."""
    order = np.lexsort((estimates, m.of))
    return order[np.r_[True, np.diff(m.of[order]) > 0]]


NEAR = 0.3
"""A plan that takes longer than the best of its shape by this share has the weight 1 / e."""
COMMON = 0.4
"""Weight of an error that all plans of a shape share, because it changes no choice."""
SHARE = 0.25
"""Weight of the errors of times, relative to the time lost by wrong choices."""
SURE = 0.02
"""A plan whose estimate is longer by this share is chosen less often by 1 / e."""
MOST_LOST = 0.3
"""Larger losses of a choice count as this one."""
CLOSE, CLOSE_WEIGHT = 0.06, 2.0
"""Losses weigh more if cuBLAS takes as long as the best plan."""
HELD = 0.02
"""Constants that the plans hardly determine stay near their current values."""


def fit(m: Measured, start: dict[str, float], model: Model) -> dict[str, float]:
    """The constants that best predict measured times and lose least time by wrong choices."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    count, best = len(m.problems), m.best
    lost = m.seconds / best[m.of] - 1
    weights = np.exp(-lost / NEAR)
    ahead = np.nan_to_num(m.cublas / best - 1, nan=math.inf)
    worth = 1 + CLOSE_WEIGHT * np.exp(-np.minimum((ahead / CLOSE) ** 2, 100))
    worth /= worth.mean()

    def of_shape(values: Float64) -> Float64:
        return np.asarray(np.bincount(m.of, values, count), float)

    def constants(logs: Float64) -> dict[str, float]:
        factors = np.exp(logs).tolist()
        return {name: start[name] * f for name, f in zip(model.names, factors, strict=True)}

    def residuals(logs: Float64) -> Float64:
        estimates = np.log(model.seconds(constants(logs), m))
        off = estimates - np.log(m.seconds)
        together = of_shape(weights * off) / of_shape(weights)
        likely = np.exp(-(estimates - least(estimates, m.of, count)[m.of]) / SURE)
        losses = of_shape(likely * np.minimum(lost, MOST_LOST)) / of_shape(likely)
        found: Float64 = np.r_[
            np.sqrt(SHARE * weights) * (off - (1 - COMMON) * together[m.of]),
            np.sqrt(worth * losses + 1e-4),  # whose slope is finite where nothing is lost
            HELD * math.sqrt(SHARE * len(off)) * logs,
        ]
        return found

    x = least_squares(residuals, np.zeros(len(model.names)), diff_step=1e-4, max_nfev=25,
                      ftol=1e-5, xtol=1e-6, bounds=(-3, 3)).x  # fmt: skip
    return constants(x)


def gaps(constants: dict[str, float], m: Measured, model: Model) -> Float64:
    """For each shape, the chosen plan's time over the best time."""
    found: Float64 = m.seconds[chosen(model.seconds(constants, m), m)] / m.best
    return found


FOLDS = 5


def gaps_unseen(m: Measured, start: dict[str, float], model: Model) -> Float64:
    """The same, by fits to the shapes of the other folds."""
    found = np.full(len(m.problems), math.nan)
    fold = np.arange(len(found)) % FOLDS
    for number in np.unique(fold) if len(found) >= FOLDS else ():
        own = fold == number
        found[own] = gaps(fit(m.only(~own), start, model), m.only(own), model)
    return found


def report(m: Measured, now: dict[str, float]) -> tuple[dict[str, float], str]:
    """The fitted constants; and they and the gaps, as text."""
    model = Model()
    fitted = fit(m, now, model)
    figures = [(name, f"{fitted[name]:.3g}", f"{now[name]:.3g}") for name in model.names]
    body = []
    by_kind = {
        "unseen by the fit": gaps_unseen(m, now, model),
        "fitted": gaps(fitted, m, model),
        "now": gaps(now, m, model),
    }
    for kind, found in by_kind.items():
        speed = m.cublas / m.best / found
        found, known = found[np.isfinite(found)], speed[np.isfinite(speed)]
        if found.size == 0:
            continue
        of_cublas = [f"{np.exp(np.log(known).mean()):.3f}", f"{(known < 0.9).mean():.2%}",
                     f"{(known < 0.85).mean():.2%}"] if known.size else ["-"] * 3  # fmt: skip
        body.append((kind, f"{np.exp(np.log(found).mean()):.4f}", f"{found.max():.2f}", *of_cublas))
    header = ("constants", "gap to the best plan", "worst", "cuBLAS's speed", "< 0.9", "< 0.85")
    off = np.abs(np.log(model.seconds(fitted, m) / m.seconds))[m.seconds <= 1.3 * m.best[m.of]]
    return fitted, "\n\n".join(
        [
            table(("constant", "fitted", "now"), figures),
            f"Plans near the best are off the model by {np.median(off):.1%} (median).",
            table(header, body),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=DATA, help="default: %(default)s")
    path = parser.parse_args().data
    print(report(load(path), constants_for(""))[1])


if __name__ == "__main__":
    main()
