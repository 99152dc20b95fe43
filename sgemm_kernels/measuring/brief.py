"""Brief measurements, for suites of hundreds of shapes."""

import importlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _core
from .competitors import Competitor, Measured, OnGPU, contenders_of
from .devices import find_device, gpu_index
from .measurement import TF32, Measurement
from .operands import DATA, Data, Float32, laid_out, operand_sets
from .results import Results
from .run_facts import describe_run
from .sampling import median_of, rounded, unmet_of
from .shapes import Size, shapes_of
from .truth import TF32_ROUNDING, Truth

BRIEF_ROUNDS = (5, 25)
"""Minimum and maximum number of rounds that ``measure_briefly`` keeps."""
_LEGACY_STREAM = 1
"""CUDA's handle for the default stream."""


def measure_briefly(
    names: Measured | Iterable[Measured],
    size: Size,
    layout: str = "NN",
    *,
    device: str,
    seconds: float = 0.1,
    data: Data = DATA["uniform"],
) -> Results:
    """Measures variants at one size and layout in a fraction of a second, for suites of hundreds.

    Checks and times as ``measure`` does, with a cold cache and variants in turn.
    But sampling lasts about ``seconds``, within BRIEF_ROUNDS, even if the medians are not yet
    stable. The first fifth of the rounds is warm-up and is discarded. ``unmet`` lists the criteria
    that were not met. Operands are densely packed CuPy arrays, as in most
    programs; ``measure`` aligns their rows.

    Parameters
    ----------
    names
        Variants and competitors, as for ``measure``.
    size
        N for square matrices, a tuple (M, N, K), or (batch, M, N, K).
    layout
        As for ``measure``.
    device
        A GPU, as for ``run``.
    seconds
        Approximate sampling time.
    data
        What makes the operands, as in ``DATA``.

    Returns
    -------
    Results
        A row for each variant.

    Raises
    ------
    ValueError, TypeError
        For an unknown variant, size or layout.
    DeviceError
        If the device is unusable or fails.
    MemoryError
        If the operands do not fit on the device.
    ImportError
        If CuPy is missing.
    """
    where = find_device(device)
    (shape,) = shapes_of(size)
    words, make = data
    rng = np.random.default_rng(shape)
    A, B = laid_out(make(rng, shape), layout)
    result = np.empty((*A.shape[:-1], B.shape[-1]), np.float32)
    truth = Truth(A, B, (), rng)
    index = gpu_index(where.name)
    count = 1 if where.l2_bytes is None else operand_sets(shape, where.l2_bytes)
    with _DenseSets((A, B, result), count, index) as sets:
        launches = {name: sets.launch(name, f) for name, f in contenders_of(names).items()}
        errors = {
            name: truth.accuracy_of(sets.first(launch), TF32_ROUNDING if name == TF32 else 0.0)
            for name, launch in launches.items()
        }
        right = {name: launch for name, launch in launches.items() if errors[name].right}
        samples: dict[str, Sequence[float]] = {}
        if right:
            least, most = BRIEF_ROUNDS
            once = _timed(right, index, 1)
            round_s = math.fsum(taken[0] for taken in once.values() if taken)
            rounds = min(max(int(seconds / max(round_s, 1e-6)), least), most)
            taken = _timed(right, index, rounds // 4 + 1 + rounds)
            samples = {name: each[-rounds:] for name, each in taken.items()}
    run = describe_run(where, "cold", f"{words}, lines follow one another", None)
    reference = samples.get(_core._REFERENCE)
    rows = (
        Measurement(
            run,
            name,
            *shape[-3:],
            errors[name],
            operand_sets=count,
            samples_s=rounded(samples.get(name, ())),
            cublas_median_s=median_of(reference) if reference and name in right else None,
            unmet=unmet_of(own, statistics.median(own)) if (own := samples.get(name)) else (),
            precision="tf32" if name == TF32 else "float32",
            layout=layout,
            batch=math.prod(shape[:-3]),
        )
        for name in launches
    )
    return Results(run, tuple(rows))


class _DenseSets:
    """Sets of densely packed operands and results on a GPU, in CuPy's memory.

    A launch of a variant or competitor multiplies the next set in the default stream.
    """

    def __init__(self, matrices: Sequence[Float32], count: int, device: int) -> None:
        self._cupy: Any = importlib.import_module("cupy")
        self._device = self._cupy.cuda.Device(device)
        self._result = matrices[-1]
        self._blocks: list[Any] = []
        try:
            with self._device:
                placed = [self._place(matrix, count) for matrix in matrices]
        except MemoryError:
            self._release()
            raise
        self._sets = list(zip(*placed, strict=True))
        self._next = itertools.cycle(self._sets)

    def _place(self, matrix: Float32, count: int) -> list[OnGPU]:
        """``count`` copies of a matrix, each aligned like an allocation."""
        size = -(-matrix.size // 64) * 64
        block = self._cupy.empty((count, size), np.float32)
        block[:, : matrix.size] = self._cupy.asarray(matrix.ravel(order="K"))
        self._blocks.append(block)
        of_all: dict[str, Any] = {"shape": matrix.shape, "strides": matrix.strides}
        of_all |= {"typestr": "<f4"}
        of_all |= {"version": 3, "stream": None}
        return [
            OnGPU(of_all | {"data": (block.data.ptr + 4 * size * i, False)}) for i in range(count)
        ]

    def launch(self, name: str, competitor: Competitor | None) -> Callable[..., object]:
        """A function that queues the next product and ignores its arguments."""
        if competitor is not None:
            return lambda *_: competitor(*next(self._next))

        def of_variant(*_: object) -> object:
            A, B, out = next(self._next)
            return _core._run_measured(name, A, B, out=out, stream=_LEGACY_STREAM)

        return of_variant

    def first(self, launch: Callable[..., object]) -> Float32:
        """Fills the first set's result with NaN, launches, and returns the result."""
        self._next = itertools.cycle(self._sets)
        with self._device:
            flat = self._blocks[-1][0, : self._result.size]
            flat.fill(np.nan)
            launch()
            C: Float32 = flat.get().reshape(self._result.shape)
        return C

    def __enter__(self) -> "_DenseSets":
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        """Frees the GPU memory."""
        self._blocks.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()


def _timed(
    launches: Mapping[str, Callable[..., object]], device: int, rounds: int
) -> dict[str, list[float]]:
    """Times launches in turn, each with its own operands."""
    one = np.ones((1, 1), np.float32)
    taken = _core._measure(tuple(launches.values()), one, one, device, 1, rounds)
    return dict(zip(launches, taken, strict=True))
