"""Experiment 15: the time of every plan of `simt` at random shapes, to fit the planner to.

``python benchmarks/plan_times.py`` goes through the shapes to fit to of ``_shapes.py``. At each
shape it checks and times all plans that the planner (csrc/gemm/plan/plan.c) considers, except plans
with a slow estimate. It compiles the package's kernels again, with an entry point for plans
(``plan_times.cu``); ``python benchmarks/plan_times.py --compile sm_90a`` does that beforehand and
needs no GPU. It writes JSON with every sample, and prints the constants that ``plan_model.py`` fits
to them. With ``--keep`` the fitted constants are kept for this model of GPU. You can try another
tile configuration: add it to csrc/gemm/plan/tiles.h.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _compiled import architecture, compiled
from _results import facts, measuring, output_argument, write
from _shapes import to_fit
from numpy.typing import NDArray
from plan_model import KERNELS, PLAN, SGEMM, PlanDevice, from_rows, problem, report

from sgemm_kernels import DeviceError, Error, build_info, variants
from sgemm_kernels._plans import constants_for, keep
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.shapes import Case, size_text

SOURCE = Path(__file__).with_suffix(".cu")
CSRC = Path(__file__).parent.parent / "csrc"
PARTS = [
    *(
        CSRC / "gemm/plan" / f"{name}.c"
        for name in (
            "plan",
            "plan_cache",
            "plan_constants",
            "small_batch_plan",
            "tensor_cores",
        )
    ),
    *(CSRC / name for name in ("gemm/plan/proofs.c", "base/status.c", "gemm/simt/tma.cu")),
]
SECONDS = 150.0
BRIEFLY_S = 0.05
MOST_PLANS = 23
MOST_GEMV = 4
"""Of these, matrix-vector products; many of them are alike."""
SLOW = 1.6
"""Plans with an estimate this many times that of the best are left out."""


class Status(ctypes.Structure):
    """As in csrc/base/status.h."""

    _fields_ = (("code", ctypes.c_int), ("message", ctypes.c_char * 496))


class Choice(NamedTuple):
    """A plan: its fields in csrc/gemm/plan/plan.h."""

    kernel: str
    splits: int
    cluster: bool
    transposed: bool
    width: int

    @property
    def name(self) -> str:
        name = f"{self.kernel}, K in {self.splits}"
        name += " of a cluster" if self.cluster else ""
        name += f", {self.width} columns" if self.width else ""
        return name + (", transposed" if self.transposed else "")


def choice_of(plan: NDArray[Any]) -> Choice:
    return Choice(
        KERNELS[plan["kernel"]], *plan[["splits", "cluster", "transposed", "width"]].item()
    )


def build(target: str) -> Path:
    """The shared object, compiled if it is not there yet."""
    return compiled(SOURCE, target, beside=PARTS, depends=build_info().csrc_hash)


class Kernels:
    """The package's kernels, by plans that the caller names; and the planner's own plans."""

    def __init__(self, path: Path, device: int, model: str) -> None:
        self.library = ctypes.CDLL(str(path))
        for function in (self.library.multiply, self.library.describe):
            function.restype = Status
        self.device = device
        self.limits = PlanDevice()
        self.library.describe(device, ctypes.byref(self.limits))
        self.constants = np.array(list(constants_for(model).values()))
        self.limits.constants = self.constants.ctypes.data
        if self.library.keep_scratch(device) != 0:
            raise DeviceError("a GPU without memory pools")

    def plans(self, case: Case) -> NDArray[Any]:
        """All plans between which the planner chooses, the chosen first."""
        (M, N, K), layout = case
        own = problem(M, N, K, layout)
        plans = np.zeros(256, PLAN)
        count = self.library.list_plans(
            own.ctypes.data_as(ctypes.c_void_p), ctypes.byref(self.limits),
            plans.ctypes.data_as(ctypes.c_void_p),
        )  # fmt: skip
        return plans[:count][np.argsort(plans["cycles"][:count], kind="stable")]

    def product(self, A: Any, B: Any, out: Any, choice: Choice) -> None:
        """Queues out = A @ B by a plan in the default stream."""
        own = np.array((*map(interface_matrix, (A, B, out)), 1.0, 0.0, 1), SGEMM)
        kernel = KERNELS.index(choice.kernel)
        plan = np.array((kernel, *choice[1:-1], False, choice.width, 0.0), PLAN)
        status = self.library.multiply(
            own.ctypes.data_as(ctypes.c_void_p), self.device, plan.ctypes.data_as(ctypes.c_void_p)
        )
        if status.code != 0:
            raise DeviceError(f"{choice.name}: {status.message.decode()}")


def interface_matrix(array: Any) -> tuple[int, ...]:
    interface = array.__cuda_array_interface__
    strides = (stride // 4 for stride in interface["strides"])
    return (interface["data"][0], *interface["shape"], *strides, 0)


def row_of(case: Case, choice: Choice) -> dict[str, Any]:
    (M, N, K), layout = case
    return {"M": M, "N": N, "K": K, "layout": layout, **choice._asdict()}


def worth_timing(plans: NDArray[Any]) -> list[Choice]:
    """Plans without a slow estimate, the chosen one first."""
    near = plans[plans["cycles"] <= SLOW * plans["cycles"][0]]
    gemv = np.cumsum(near["kernel"] == KERNELS.index("gemv"))
    kept = (near["kernel"] != KERNELS.index("gemv")) | (gemv <= MOST_GEMV)
    return [choice_of(plan) for plan in near[kept][:MOST_PLANS]]


def beside() -> list[str]:
    """Timed beside the plans: `simt` itself, and cuBLAS if installed."""
    known = {variant.name for variant in variants() if variant.unavailable is None}
    return ["simt", "cublas"] if "cublas" in known else ["simt"]


def timed(case: Case, kernels: Kernels, device: str) -> list[dict[str, Any]]:
    """A row for each plan of a shape."""
    named = {choice.name: choice for choice in worth_timing(kernels.plans(case))}
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
    for number, (name, choice) in enumerate(named.items()):
        row = row_of(case, choice) | {"chosen": number == 0} | medians
        found = results.find(name, shape, layout)
        assert found is not None
        row |= {"right": found.error.right, "unmet": list(found.unmet)}
        if found.median_s is not None:
            row |= {"median_s": found.median_s, "samples_s": list(found.samples_s)}
        rows.append(row)
    return rows


def measured(
    cases: Sequence[Case], kernels: Kernels, device: str, seconds: float
) -> list[dict[str, Any]]:
    """The rows of all shapes within the time limit. A shape that does not fit into memory, or has a
    plan that cannot be launched, is left out with a message."""
    end = time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    left = list(cases)
    with progress(len(cases)) as advance:
        while left and time.monotonic() < end:
            case = left.pop(0)
            try:
                rows += timed(case, kernels, device)
            except (MemoryError, Error) as error:
                print(f"{size_text(*case)} is left out: {error}", file=sys.stderr)
            advance(size_text(*case))
    if left:
        print(f"{len(left)} of {len(cases)} shapes are left out: time was over", file=sys.stderr)
    return rows


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "plan_times")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="maximum total time (default: %(default)s)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="have simt and auto choose by what is fitted, on GPUs of this model, from now on",
    )
    parser.add_argument("--compile", metavar="ARCH", help="only compile, for sm_90a or another")
    arguments = parser.parse_args()
    if arguments.compile:
        print(build(arguments.compile))
        return 0
    with measuring(parser, RuntimeError):
        device = find_gpu("plans are measured")
        index = int(device.name.partition(":")[2])
        kernels = Kernels(build(architecture()), index, device.model)
        rows = measured(to_fit(), kernels, device.name, arguments.seconds)
    if not rows:
        print(f"{parser.prog}: no plan was timed", file=sys.stderr)
        return 2
    head: dict[str, Any] = {
        **facts(device),
        "protocol": "CUDA events, cold, the plans of a shape round-robin, uniform [-1, 1]",
        "gpu": {
            "multiprocessors": device.multiprocessors,
            "clock_hz": 1e6 * (device.clock_mhz or 0),
        },
    }
    write(arguments.output, "plan_times", head, rows)
    constants, text = report(from_rows(rows, **head["gpu"]), constants_for(device.model))
    print(text)
    if arguments.keep:
        path = keep(device.model, constants)
        print(f"\nkept in {path}: remove it to have the package's own")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
