"""Experiment 15: what every plan of `simt` takes at shapes drawn at random, to fit a choice to.

``python benchmarks/plan_times.py`` goes through the shapes to fit to of ``_shapes.py``. At each of
them the plans between which csrc/engine/plan.c chooses are checked and timed by turns, briefly, but
for those that by the model of ``plan_model.py`` take several times as long as its best. It compiles
the package's kernels once more, with a way in (``plan_times.cu``): ``python
benchmarks/plan_times.py --compile sm_90a`` does that beforehand, and needs no GPU. Writes JSON
with every sample, and prints what ``plan_model.py`` makes of it. With ``--keep`` the constants
that it fits are kept for this model of GPU. ``--tiling`` adds one that the package lacks, to see
what it would bring, and writes to a file that ``-o`` names.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _compiled import architecture, compiled
from _results import output_argument, write
from _shapes import to_fit
from plan_model import (
    Gpu,
    Tiling,
    constants_now,
    direct_of,
    estimate,
    fitted_to,
    gemv_choices,
    gemv_of,
    joined_choices,
    plans_of,
    streamk_of,
)

from sgemm_kernels import Device, DeviceError, Error, build_info, variants
from sgemm_kernels._plans import keep
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.shapes import Case, size_text

SOURCE = Path(__file__).with_suffix(".cu")
CSRC = Path(__file__).parent.parent / "csrc"
PARTS = [CSRC / name for name in ("engine/plan.c", "core/status.c", "ladder/13_tma.cu")]
SECONDS = 150.0
BRIEFLY_S = 0.05
MOST_PLANS = 23
MOST_GEMV = 4
"""Of those, matrix-vector products, of which many are alike."""
GEMV_MOST_ROWS = 64
"""As in plan.h."""
SLOW = 1.6
"""Plans that take so many times as long as the best, by the model, are left out."""


class Matrix(ctypes.Structure):
    """As in csrc/core/sgemm.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "cols", "row_stride", "col_stride")),
    )


class Sgemm(ctypes.Structure):
    _fields_ = (
        *((name, Matrix) for name in "ABC"),
        ("alpha", ctypes.c_float),
        ("beta", ctypes.c_float),
    )


class Plan(ctypes.Structure):
    """As in csrc/engine/plan.h."""

    _fields_ = (
        ("tiling", ctypes.c_int),
        ("splits", ctypes.c_int),
        ("swapped", ctypes.c_bool),
        ("copies_A", ctypes.c_bool),
        ("copies_B", ctypes.c_bool),
        ("cluster", ctypes.c_int),
        ("width", ctypes.c_int),
        ("cycles", ctypes.c_double),
    )


class Status(ctypes.Structure):
    """As in csrc/core/status.h."""

    _fields_ = (("code", ctypes.c_int), ("message", ctypes.c_char * 496))


class Choice(NamedTuple):
    """A plan: what ``Plan`` is filled with."""

    tiling: int
    splits: int
    swapped: bool
    copies_A: bool
    copies_B: bool
    cluster: int = 0
    """Blocks of a cluster, each with a part, if blocks or warps join."""
    width: int = 0
    """Columns of a block of matrix-vector products."""

    @property
    def name(self) -> str:
        name = f"tiling {self.tiling}, {self.splits} parts"
        name += f" of {self.width} columns" if self.width else ""
        name += f" in clusters of {self.cluster}" if self.cluster else ""
        flags = ("swapped", "copies_A", "copies_B")
        return ", ".join([name, *(flag for flag in flags if getattr(self, flag))])


def whole(figures: str) -> str:
    """The figures of a tiling. The last three, what a step of K takes and what storing does, may be
    missing: then they are about those of others of as many results a thread. Raises ValueError for
    no tiling."""
    numbers = [int(figure) for figure in figures.split(",")]
    if len(numbers) == 10:
        work = numbers[5] * numbers[6]
        numbers += [work + 20, work + 40, 100]
    if len(numbers) != 13:
        raise ValueError(figures)
    return ",".join(map(str, numbers))


def build(target: str, tried: Sequence[str]) -> Path:
    """The shared object, compiled if it is not there yet, with more tilings than the package's."""
    listed = " ".join(f"TILING({figures})" for figures in tried)
    defines = [f"TRIED_TILINGS(TILING)={listed}"]
    return compiled(SOURCE, target, beside=PARTS, defines=defines, depends=build_info().csrc_hash)


class Kernels:
    """The package's kernels, by plans that the caller names; and the choice between them, on a
    model of GPU."""

    def __init__(self, path: Path, device: int, model: str) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.multiply.restype = Status
        self.library.has_clusters.restype = ctypes.c_bool
        self.clusters: bool = self.library.has_clusters(device)
        self.device = device
        constants = dataclasses.astuple(constants_now(model))
        self.constants = (ctypes.c_double * len(constants))(*constants)
        if self.library.keep_scratch(device) != 0:
            raise DeviceError("a GPU without memory pools")

    @functools.cached_property
    def tilings(self) -> list[Tiling]:
        figures = (ctypes.c_int * len(dataclasses.fields(Tiling)))()
        found = []
        for index in range(self.library.count_tilings()):
            self.library.describe_tiling(index, figures)
            found.append(Tiling(*figures))
        return found

    def plan(self, case: Case, multiprocessors: int) -> Plan:
        """What csrc/engine/plan.c chooses."""
        (M, N, K), layout = case
        problem = Sgemm(
            matrix_of(None, (M, K), layout[0] == "T"),
            matrix_of(None, (K, N), layout[1] == "T"),
            matrix_of(None, (M, N), False),
            1.0,
        )
        plan = Plan()
        self.library.choose_plan(
            ctypes.byref(problem),
            multiprocessors,
            ctypes.c_bool(self.clusters),
            self.constants,
            ctypes.byref(plan),
        )
        return plan

    def chosen(self, case: Case, multiprocessors: int) -> Choice:
        """The same."""
        plan = self.plan(case, multiprocessors)
        return Choice(*(getattr(plan, field) for field in Choice._fields))

    def product(self, A: Any, B: Any, out: Any, choice: Choice) -> None:
        """Queues out = A @ B by a plan in the default stream."""
        problem = Sgemm(*map(lent_matrix, (A, B, out)), 1.0)
        plan = Plan(*choice)
        status = self.library.multiply(ctypes.byref(problem), self.device, ctypes.byref(plan))
        if status.code != 0:
            raise DeviceError(f"{choice.name}: {status.message.decode()}")


def matrix_of(data: int | None, shape: tuple[int, int], by_columns: bool) -> Matrix:
    rows, cols = shape
    return Matrix(data, rows, cols, *((1, rows) if by_columns else (cols, 1)))


def lent_matrix(array: Any) -> Matrix:
    lent = array.__cuda_array_interface__
    strides = (stride // 4 for stride in lent["strides"])
    return Matrix(lent["data"][0], *lent["shape"], *strides)


def choices(
    case: Case, tilings: Sequence[Tiling], multiprocessors: int, clusters: bool
) -> Iterator[Choice]:
    """The plans between which csrc/engine/plan.c chooses at a shape, on a GPU with or
    without clusters of blocks."""
    (M, N, K), layout = case
    yield Choice(direct_of(tilings), 1, False, False, False)
    for swapped, rows in ((False, M), (True, N)):
        if rows <= GEMV_MOST_ROWS:
            for width, splits in gemv_choices((M, N, K, layout), swapped, multiprocessors):
                yield Choice(gemv_of(tilings), splits, swapped, False, False, width=width)
    if min(M, N) == 1:
        return
    # An operand that is not read by quads may be copied to where it is.
    copies_A = (False, True) if layout[0] == "N" or M % 4 else (False,)
    copies_B = (False, True) if layout[1] == "T" or N % 4 else (False,)
    swaps = (False, True) if M > N else (False,)
    for swapped, *copies in itertools.product(swaps, copies_A, copies_B):
        if not swapped:
            yield Choice(streamk_of(tilings), 1, False, *copies)
        rows, cols = (N, M) if swapped else (M, N)
        for index, t in enumerate(tilings):
            if index > 0 and 8 * rows < t.BM:
                continue
            if t.slices == 1 and (not swapped or t.stages == 1):
                yield Choice(index, 1, swapped, *copies)
            joined = joined_choices(t, rows, cols, K, swapped, multiprocessors, clusters)
            for splits, cluster in dict.fromkeys(joined):
                yield Choice(index, splits, swapped, *copies, cluster)


def row_of(case: Case, choice: Choice) -> dict[str, Any]:
    (M, N, K), layout = case
    return {"M": M, "N": N, "K": K, "layout": layout, **choice._asdict()}


def worth_timing(case: Case, kernels: Kernels, gpu: Gpu, chosen: Choice) -> list[Choice]:
    """Those that the model does not call slow, and what is chosen today."""
    tilings = kernels.tilings
    every = list(choices(case, tilings, gpu.multiprocessors, kernels.clusters))
    plans = plans_of([row_of(case, choice) for choice in every], tilings)
    seconds = estimate(constants_now(""), plans, gpu)
    order = [int(i) for i in np.argsort(seconds, kind="stable")]
    gemv = [i for i in order if every[i].tiling == gemv_of(tilings)]
    order = [i for i in order if i not in gemv[MOST_GEMV:]][: MOST_PLANS - 1]
    near = [every[i] for i in order if seconds[i] <= SLOW * seconds[order[0]]]
    return list(dict.fromkeys([chosen, *near]))


def beside() -> list[str]:
    """What is timed beside the plans: `simt` itself, and cuBLAS where it is."""
    known = {variant.name for variant in variants() if variant.unavailable is None}
    return ["simt", "cublas"] if "cublas" in known else ["simt"]


def timed(case: Case, kernels: Kernels, gpu: Gpu, device: str) -> list[dict[str, Any]]:
    """A row for each plan of a shape."""
    chosen = kernels.chosen(case, gpu.multiprocessors)
    named = {choice.name: choice for choice in worth_timing(case, kernels, gpu, chosen)}
    competitors = [
        (name, functools.partial(kernels.product, choice=choice)) for name, choice in named.items()
    ]
    shape, layout = case
    results = measure_briefly(
        [*competitors, *beside()], shape, layout, device=device, seconds=BRIEFLY_S
    )
    others = {name: results.find(name, shape, layout) for name in ("simt", "cublas")}
    medians = {f"{name}_median_s": row and row.median_s for name, row in others.items()}
    rows = []
    for name, choice in named.items():
        row = row_of(case, choice) | {"chosen": choice == chosen} | medians
        found = results.find(name, shape, layout)
        assert found is not None
        row |= {"right": found.error.right, "unmet": list(found.unmet)}
        if found.median_s is not None:
            row |= {"median_s": found.median_s, "samples_s": list(found.samples_s)}
        rows.append(row)
    return rows


def measured(
    cases: Sequence[Case], kernels: Kernels, gpu: Gpu, device: str, seconds: float
) -> list[dict[str, Any]]:
    """The rows of all shapes that there was time for. One that does not fit into memory, or of
    which a plan cannot be launched, is left out, and it is said so."""
    end = time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    left = list(cases)
    with progress(len(cases)) as advance:
        while left and time.monotonic() < end:
            case = left.pop(0)
            try:
                rows += timed(case, kernels, gpu, device)
            except (MemoryError, Error) as error:
                print(f"{size_text(*case)} is left out: {error}", file=sys.stderr)
            advance(size_text(*case))
    if left:
        print(f"{len(left)} of {len(cases)} shapes are left out: time was over", file=sys.stderr)
    return rows


def describe(device: Device) -> Gpu:
    """A GPU as the model takes it: its multiprocessors, and the clock that it may reach."""
    assert device.clock_mhz is not None
    return Gpu(device.multiprocessors, 1e6 * device.clock_mhz)


def main() -> int:
    """Measures, writes and prints; returns 1 if a result was wrong, 2 if it cannot be done."""
    parser = output_argument(__doc__.splitlines()[0], "plan_times")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="most time in all (default: %(default)s)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="have simt and auto choose by what is fitted, on GPUs of this model, from now on",
    )
    parser.add_argument(
        "--tiling",
        action="append",
        type=whole,
        default=[],
        metavar="BM,BN,...",
        help="try one that the package lacks, with figures as in csrc/engine/plan.h; repeatable",
    )
    parser.add_argument("--compile", metavar="ARCH", help="only compile, for sm_90a or another")
    arguments = parser.parse_args()
    if arguments.compile:
        print(build(arguments.compile, arguments.tiling))
        return 0
    if arguments.tiling and arguments.keep:
        parser.error("--keep is for the package, which lacks a --tiling: leave one of them out")
    if arguments.tiling and arguments.output == parser.get_default("output"):
        parser.error("--tiling needs -o and another file than that of the package's own tilings")
    try:
        device = find_gpu("plans are measured")
        index = int(device.name.partition(":")[2])
        kernels = Kernels(build(architecture(), arguments.tiling), index, device.model)
        gpu = describe(device)
        rows = measured(to_fit(), kernels, gpu, device.name, arguments.seconds)
    except (Error, OSError, ImportError, RuntimeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    if not rows:
        print(f"{parser.prog}: no plan was timed", file=sys.stderr)
        return 2
    head = {
        "device": device.model,
        "driver": device.driver,
        "cuda_toolkit": build_info().cuda_toolkit,
        "csrc_hash": build_info().csrc_hash,
        "protocol": "CUDA events, cold, the plans of a shape by turns, uniform [-1, 1]",
        "gpu": dataclasses.asdict(gpu),
        "tilings": [dataclasses.astuple(tiling) for tiling in kernels.tilings],
        "tried_tilings": len(arguments.tiling),  # the last so many: the package lacks them
    }
    write(arguments.output, "plan_times", head, rows)
    constants, text = fitted_to({**head, "rows": rows})
    print(text)
    if arguments.keep:
        path = keep(device.model, dataclasses.asdict(constants))
        print(f"\nkept in {path}: remove it to have the package's own")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
