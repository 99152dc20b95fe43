"""Times `mma` beside `simt`, and fits the estimate of `mma` that `auto` uses."""

import math
import statistics
from dataclasses import dataclass

import numpy as np

from .. import _core, _plans
from .._catalog import Device
from ..measuring.devices import gpu_index
from ..measuring.operands import operand_sets

SHAPES: tuple[tuple[int, int, int], ...] = (
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (256, 4096, 4096),
    (4096, 256, 1024),
)
ROUNDS, WARM_UP = 9, 3


@dataclass(frozen=True, slots=True)
class Timed:
    """Median kernel times of a shape, with operands that are not in the L2 cache."""

    M: int
    N: int
    K: int
    simt_s: float
    mma_s: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants of the estimate of `mma` (csrc/gemm/plan/proofs.h)."""

    rate: float
    start: float


def time_shapes(
    device: Device, shapes: tuple[tuple[int, int, int], ...] = SHAPES
) -> tuple[Timed, ...]:
    """Takes turns between `simt` and `mma` at each shape. A shape without samples is left out."""
    found = []
    for M, N, K in shapes:
        rng = np.random.default_rng((M, N, K))
        A, B = (rng.random(s, np.float32) * 2 - 1 for s in ((M, K), (K, N)))
        sets = operand_sets((M, N, K), device.l2_bytes or 0)
        names = ("simt", "mma")
        samples = _core._measure(names, A, B, gpu_index(device.name), sets, WARM_UP + ROUNDS)
        medians = [statistics.median(each[WARM_UP:]) for each in samples if len(each) > WARM_UP]
        if len(medians) == len(names) and min(medians) > 0:
            found.append(Timed(M, N, K, *medians))
    return tuple(found)


def fit(device: Device, times: tuple[Timed, ...]) -> Fit:
    """Fits the estimate of `mma` to its times.

    The unit is a cycle of the estimate of `simt`, which may be longer or shorter than a cycle of
    the GPU: so the choice is right even if that estimate is wrong by a factor.
    """
    if not times:
        raise ValueError("no product was timed: fit needs at least one")
    of_simt, rest, work = np.array([_estimates(device, each) for each in times]).T
    simt_s, mma_s = (np.array([getattr(t, name) for t in times]) for name in ("simt_s", "mma_s"))
    per_second = math.exp(float(np.log(of_simt / simt_s).mean()))
    cycles = mma_s * per_second
    # start + work / rate + rest = cycles, by least squares of relative errors.
    columns = np.stack([np.ones_like(work), work], axis=1) / cycles[:, None]
    (start, slope), *_ = np.linalg.lstsq(columns, 1 - rest / cycles, rcond=None)
    if start <= 1:  # too few shapes to tell, or noise: all of the time is work
        start = 1.0
        slope = float(np.median((cycles - rest) / work))
    if slope <= 0:
        slope = float(np.median(cycles / work))
    return Fit(rate=float(1 / slope), start=float(start))


def _estimates(device: Device, timed: Timed) -> tuple[float, float, float]:
    """Estimated cycles of `simt`; of `mma` without its two constants; and the multiply-adds of its
    busiest multiprocessor."""
    major = (device.compute_capability or (0, 0))[0]
    shared = max((device.shared_bytes_per_multiprocessor or 0) - 1024, 0)
    rate, start = 1e8, 1e-3  # next to nothing
    simt, mma, work = _core._plan_estimate(
        _plans.constants_on(device), device.multiprocessors, 8 if major >= 9 else 1, shared,
        rate, start, timed.M, timed.N, timed.K,
    )  # fmt: skip
    return simt, mma - work / rate - start, work
