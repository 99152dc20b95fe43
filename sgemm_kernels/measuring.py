"""Times that can be trusted: checked first, warmed up, by turns, every sample kept.

A variant's result is compared with float64 before it is timed; a wrong one gets no time. Kernel
time is CUDA events round one launch, while the stream is held until the launch is queued. All
variants multiply the same operands by turns, A B C A B C, so that the clock and the temperature of
the moment are the same for each of them.
"""

import contextlib
import datetime
import importlib
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import __version__, _core, _cublas
from ._accuracy import UNIT_ROUNDOFF, Expected, expect, gamma
from ._catalog import Device, build_info, default_device, devices, variants
from ._core import DeviceError, UnsupportedVariantError
from ._probe import peaks
from ._telemetry import Telemetry, driver_version
from .results import (
    LAYOUTS,
    TF32,
    UNIFORM,
    Accuracy,
    Measurement,
    Protocol,
    Readings,
    Results,
    Run,
    Shape,
    Size,
    as_shape,
    median_interval,
)

if TYPE_CHECKING:
    from .own import Kernel

FULL_CHECK = 2048
"""Up to this size every element is compared with float64."""
ROWS_CHECKED = 64
"""Beyond it, this many rows are."""

TF32_ROUNDING = 2.0**-10
"""TF32 keeps 10 bits of a number's fraction: at most this share of it is lost."""

SETTLED = 0.02
"""Warm-up ends when two batches in a row have medians this close, as a share."""
WARM_UP_S = 1.0
"""It is given up after this time, or after that of sampling if that is longer."""
LONG_LAUNCH_S = 0.5
"""A kernel this long was warmed up by its check: the first sample counts."""
BATCH_S = 0.25
"""About how long the extension samples between two looks at the clock, and at the keyboard."""

ENOUGH_SAMPLES = ((0.1, 10), (2.0, 5), (math.inf, 3))
"""(seconds, samples): how many samples make a median, by how long one takes at most."""
MOST_SAMPLES = 200
STABLE = 0.02
"""The median is stable when, of enough samples, two that lie so close together, as a share of it,
hold the true median between them with 95 %: ``results.median_interval``."""

MOST_SETS = 1000
"""Sets of operands for cold times: more take longer to copy to a GPU than to sample. Operands so
small that these do not exceed twice the L2 come from that cache."""

BRIEF_ROUNDS = (5, 25)
"""How many rounds ``measure_briefly`` keeps, at least and at most."""

WHOLE_CALLS = 5
WHOLE_CALLS_S = 0.5
"""So many whole calls of each variant are timed, in about this time."""

_Float32 = NDArray[np.float32]
_BAR = 30
"""Characters of the bar that shows how far a run is."""
_BAND = 2**20
"""Elements made float64 at a time: the memory of so few, unlike that of a whole matrix, is had
again and again without asking the operating system, which takes longer than the arithmetic."""
_LEGACY_STREAM = 1
"""CUDA's handle of the default stream."""
Competitor = Callable[[Any, Any, Any], object]
"""f(A, B, out) writes the product A @ B to out."""

Data = tuple[str, Callable[[np.random.Generator, Shape], tuple[_Float32, _Float32]]]
"""What operands are: in words, for the protocol, and f(rng, (M, N, K)), which makes A and B."""

_Measured: TypeAlias = "str | Kernel | tuple[str, Competitor]"

_Sampler = Callable[[tuple[str, ...], int], Sequence[list[float]]]
"""Takes so many samples of each variant named, by turns; seconds."""


def measure(
    names: "_Measured | Iterable[_Measured]",
    sizes: Size | Iterable[Size],
    *,
    layouts: str | Iterable[str] = "NN",
    device: str | None = None,
    cache: str = "cold",
    data: str | Data = "uniform",
    seconds: float = 5.0,
    whole_calls: bool = True,
    ffma_probe: str | Path | None = None,
) -> Results:
    """Measures variants at sizes, by turns, in one run.

    Each is checked before it is timed, and a wrong one gets no time. At each size and layout
    sampling ends when every median is known well enough, or about ``seconds`` after each has as
    many samples as it needs. An interrupt ends the run and returns what was measured; one before
    the first row is raised. On the CPU device the times are those of whole calls, and nothing is
    compared with cuBLAS.

    Parameters
    ----------
    names
        One of ``variants()``, a kernel of your own, or 'cublas-tf32', a reference in reduced
        precision, held to its own bound; or several. With 'cublas' among them, or 'rocblas' on AMD
        GPUs, every row has its ``vs_cublas``. In place of a name may stand a pair (name, f) of a
        competitor, which is checked and timed by the same rules: f(A, B, out) writes the product to
        out. On the CPU device these are NumPy arrays. On a GPU they have
        ``__cuda_array_interface__``, as ``torch.as_tensor(A, device='cuda')`` and
        ``cupy.asarray(A)`` take it, and f queues its work in the default stream, and does not wait
        for it.
    sizes
        N for square matrices or a tuple (M, N, K), or a list of such.
    layouts
        How A and B lie in memory, 'NN', 'NT', 'TN' or 'TT', or several of them: N by rows, T by
        columns. Each size is measured in each of them, with the same values.
    device
        As of ``run``.
    cache
        'cold' (sets of operands that together exceed twice the L2, up to 1000 of them) or 'warm'
        (one set).
    data
        What A and B are: 'uniform' in [-1, 1), or standard 'normal'; or a pair (words, f), of which
        the protocol takes the words, and f(rng, (M, N, K)) returns A (M, K) and B (K, N), float32
        by rows, from a ``numpy.random.Generator`` that is the same for each run of a shape. The
        time of what computes on tensor cores may depend on them.
    seconds
        How long to sample, at each size and layout.
    whole_calls
        Whether whole calls of ``run`` are timed too, on a GPU.
    ffma_probe
        The path of benchmarks/peaks.cu, for ``share_of_peak``; it is compiled, which needs nvcc.

    Returns
    -------
    Results
        A row for each variant, size and layout.

    Raises
    ------
    ValueError, TypeError
        For an unknown variant, size, layout or cache, or unknown data.
    UnsupportedVariantError
        For a variant that the device cannot run.
    DeviceError
        Where the device cannot be used, or fails.
    FileNotFoundError
        For a probe without nvcc.
    """
    where = find_device(device)
    contenders = _contenders(names)
    own = {name: f for name, f in contenders.items() if hasattr(f, "__sgemm_run__")}
    competitors = {name: f for name, f in contenders.items() if f is not None and name not in own}
    shapes = shapes_of(sizes)
    layouts = tuple(dict.fromkeys([layouts] if isinstance(layouts, str) else layouts))
    unknown = set(layouts) - set(LAYOUTS)
    if unknown:
        raise ValueError(f"a layout is one of {', '.join(LAYOUTS)}, not {min(unknown)!r}")
    if cache not in ("cold", "warm"):
        raise ValueError(f"cache must be 'cold' or 'warm', not {cache!r}")
    if isinstance(data, str) and data not in DATA:
        raise ValueError(f"data is one of {', '.join(DATA)}, or a pair (words, f), not {data!r}")
    if not contenders or not shapes or not layouts or not seconds > 0:
        raise ValueError("a run needs at least one variant, one size, one layout, and time")
    for kernel in own.values():
        if not kernel.in_this_process:
            every = [n if f is None else f if n in own else (n, f) for n, f in contenders.items()]
            options: dict[str, Any] = {"layouts": layouts, "device": where.name, "cache": cache}
            options |= {"data": data, "seconds": seconds}
            options |= {"whole_calls": whole_calls, "ffma_probe": ffma_probe}
            results: Results = kernel.child.call("measuring", "measure", every, shapes, **options)
            return results
    one = np.ones((1, 1), np.float32)
    for name in contenders.keys() - competitors:
        launched = own.get(name, name)
        _core._run_measured(launched, one, one, device=where.name)  # refuses what cannot be run

    words, make = DATA[data] if isinstance(data, str) else data
    run = _describe_run(where, cache, words, ffma_probe)
    rows: list[Measurement] = []
    readings: list[Readings] = []
    interrupted = False
    with progress(len(shapes) * len(layouts) * len(contenders)) as advance:
        try:
            for shape in shapes:
                bench = _Bench(
                    run, where, tuple(contenders), competitors, own, shape, make, whole_calls
                )
                for layout in layouts:
                    measured, told, interrupted = bench.measure(layout, seconds, advance)
                    rows += measured
                    readings += [told] if told else []
                    if interrupted:
                        raise KeyboardInterrupt
        except KeyboardInterrupt:
            interrupted = True
    if interrupted and not rows:
        raise KeyboardInterrupt
    return Results(run, tuple(rows), interrupted, tuple(readings))


class _OnGPU:
    """A matrix on a GPU, which other libraries take as it lies."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def measure_briefly(
    names: "_Measured | Iterable[_Measured]",
    size: Size,
    layout: str = "NN",
    *,
    device: str,
    seconds: float = 0.1,
) -> Results:
    """Measures variants at one size in one layout, for suites of hundreds, of which each may take a
    fraction of a second.

    Checked and timed as by ``measure``, with uniform operands, cold and by turns; but sampling
    lasts about ``seconds``, within BRIEF_ROUNDS, whatever it has found by then. The first fifth of
    the rounds are not kept, since they warm up. A row says in ``unmet`` what ``measure`` would
    have gone on for. The operands are arrays of CuPy, whose lines follow one another, as those of
    a program do; ``measure`` aligns them.

    Parameters
    ----------
    names
        Variants that ``run`` takes, and competitors, as of ``measure``.
    size
        N for square matrices or a tuple (M, N, K).
    layout
        As of ``measure``.
    device
        A GPU, as of ``run``.
    seconds
        About how long to sample.

    Returns
    -------
    Results
        A row for each variant.

    Raises
    ------
    ValueError, TypeError
        For an unknown variant, size or layout.
    DeviceError
        Where the device cannot be used, or fails.
    MemoryError
        Where the operands are too large for it.
    ImportError
        Without CuPy.
    """
    where = find_device(device)
    (shape,) = shapes_of(size)
    words, make = DATA["uniform"]
    rng = np.random.default_rng(shape)
    A, B = _laid_out(make(rng, shape), layout)
    result = np.empty((A.shape[0], B.shape[1]), np.float32)
    truth = Truth(A, B, (), rng)
    index = _gpu_index(where.name)
    count = 1 if where.l2_bytes is None else operand_sets(shape, where.l2_bytes)
    with _DenseSets((A, B, result), count, index) as sets:
        launches = {name: sets.launch(name, f) for name, f in _contenders(names).items()}
        errors = {name: truth.accuracy_of(sets.first(launch)) for name, launch in launches.items()}
        right = {name: launch for name, launch in launches.items() if errors[name].right}
        samples: dict[str, Sequence[float]] = {}
        if right:
            least, most = BRIEF_ROUNDS
            once = _timed(right, index, 1)
            round_s = math.fsum(taken[0] for taken in once.values() if taken)
            rounds = min(max(int(seconds / max(round_s, 1e-6)), least), most)
            taken = _timed(right, index, rounds // 4 + 1 + rounds)
            samples = {name: each[-rounds:] for name, each in taken.items()}
    run = _describe_run(where, "cold", f"{words}, lines follow one another", None)
    reference = samples.get(_core._REFERENCE)
    rows = (
        Measurement(
            run,
            name,
            *shape,
            errors[name],
            operand_sets=count,
            samples_s=_rounded(samples.get(name, ())),
            cublas_median_s=_median_of(reference) if reference and name in right else None,
            unmet=unmet_of(own, statistics.median(own)) if (own := samples.get(name)) else (),
            layout=layout,
        )
        for name in launches
    )
    return Results(run, tuple(rows))


class _DenseSets:
    """Sets of operands and result on a GPU, in memory of CuPy, their lines following one another.

    A launch, of a variant or a competitor, multiplies the next set, in the default stream.
    """

    def __init__(self, matrices: Sequence[_Float32], count: int, device: int) -> None:
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

    def _place(self, matrix: _Float32, count: int) -> list[_OnGPU]:
        """So many copies of a matrix, each of which begins where an allocation may."""
        size = -(-matrix.size // 64) * 64
        block = self._cupy.empty((count, size), np.float32)
        block[:, : matrix.size] = self._cupy.asarray(matrix.ravel(order="K"))
        self._blocks.append(block)
        of_all: dict[str, Any] = {"shape": matrix.shape, "strides": matrix.strides}
        of_all |= {"typestr": "<f4"}
        of_all |= {"version": 3, "stream": None}
        return [
            _OnGPU(of_all | {"data": (block.data.ptr + 4 * size * i, False)}) for i in range(count)
        ]

    def launch(self, name: str, competitor: Competitor | None) -> Callable[..., object]:
        """Queues the next product, whatever it is called with."""
        if competitor is not None:
            return lambda *_: competitor(*next(self._next))

        def of_variant(*_: object) -> object:
            A, B, out = next(self._next)
            return _core.run(name, A, B, out=out, stream=_LEGACY_STREAM)

        return of_variant

    def first(self, launch: Callable[..., object]) -> _Float32:
        """What a launch makes of the first set, whose result is NaN before."""
        self._next = itertools.cycle(self._sets)
        with self._device:
            flat = self._blocks[-1][0, : self._result.size]
            flat.fill(np.nan)
            launch()
            C: _Float32 = flat.get().reshape(self._result.shape)
        return C

    def __enter__(self) -> "_DenseSets":
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        """Gives the memory back, which others on the GPU need."""
        self._blocks.clear()
        self._cupy.get_default_memory_pool().free_all_blocks()


def _timed(
    launches: Mapping[str, Callable[..., object]], device: int, rounds: int
) -> dict[str, list[float]]:
    """Times by turns, of what needs no operands."""
    one = np.ones((1, 1), np.float32)
    taken = _core._measure(tuple(launches.values()), one, one, device, 1, rounds)
    return dict(zip(launches, taken, strict=True))


def _on_gpu(competitor: Competitor) -> Callable[..., object]:
    """The competitor as the extension calls it."""
    return lambda *interfaces: competitor(*map(_OnGPU, interfaces))


def _contenders(names: Any) -> dict[str, Any]:
    """The names, each with its callable if it is a competitor's, or with the kernel if it is one of
    a user's own."""
    pair = isinstance(names, tuple) and len(names) == 2 and callable(names[1])
    one = pair or isinstance(names, str) or not isinstance(names, Iterable)
    several: Any = [names] if one else names
    known = {*(variant.name for variant in variants()), TF32}
    found: dict[str, Any] = {}
    for entry in several:
        match entry:
            case str():
                found.setdefault(entry, None)
            case (str() as name, f) if callable(f):
                if name in known or name in found:
                    raise ValueError(f"a competitor needs a name of its own, not {name!r}")
                found[name] = f
            case _ if hasattr(entry, "__sgemm_run__"):
                if found.setdefault(entry.name, entry) is not entry:
                    raise ValueError(
                        f"two are called {entry.name!r}: pass kernel(..., name=) another name"
                    )
            case _:
                raise TypeError(
                    "what is measured is the name of a variant, a kernel of your own, or a pair "
                    f"(name, f) of a competitor, not {entry!r}"
                )
    return found


def shapes_of(sizes: Size | Iterable[Size]) -> list[Shape]:
    """One size, or several, each once: a tuple of numbers is one."""
    one = isinstance(sizes, str) or not isinstance(sizes, Iterable)
    if isinstance(sizes, tuple) and sizes:
        one = not any(isinstance(number, Iterable) for number in sizes)
    several: Any = [sizes] if one else sizes
    return list(dict.fromkeys(map(as_shape, several)))


class _Bench:
    """One shape: its operands, the truth about their product, and the measurements on them."""

    def __init__(
        self,
        run: Run,
        device: Device,
        names: tuple[str, ...],
        competitors: Mapping[str, Competitor],
        own: "Mapping[str, Kernel]",
        shape: Shape,
        make: Callable[[np.random.Generator, Shape], tuple[_Float32, _Float32]],
        whole_calls: bool,
    ) -> None:
        self.run, self.device, self.names, self.shape = run, device, names, shape
        self.competitors, self.own = competitors, own
        self.whole_calls = whole_calls and device.kind != "cpu"
        rng = np.random.default_rng(shape)
        self.A, self.B = self.by_rows = _of_shape(make(rng, shape), shape)
        self.truth = Truth(self.A, self.B, _tile_rows(names, own.values()), rng)
        self.sets = 1
        if run.protocol.cache == "cold" and device.l2_bytes is not None:
            self.sets = operand_sets(shape, device.l2_bytes)

    def measure(
        self, layout: str, seconds: float, advance: Callable[[str], None]
    ) -> tuple[list[Measurement], Readings | None, bool]:
        """Checks, then times; a row for each variant, what the GPU told meanwhile, and whether
        sampling was interrupted.

        advance is told each variant when it is checked.
        """
        self.A, self.B = map(_read_only, _laid_out(self.by_rows, layout))
        errors: dict[str, Accuracy] = {}
        calls: dict[str, tuple[float, ...]] = {}
        for name in self.names:
            errors[name], calls[name] = self._check(name)
            advance(name)
        right = tuple(name for name in self.names if errors[name].right)
        on_gpu = self.device.kind != "cpu"
        sampling = Sampling(self._on_gpu if on_gpu else self._on_cpu, right)
        interrupted = False
        with Telemetry(self.device.pci_bus_id) as telemetry:
            try:
                sampling.sample(seconds)
            except KeyboardInterrupt:
                interrupted = True
        reference = sampling.samples.get(_core._REFERENCE)
        rows = [
            Measurement(
                self.run,
                name,
                *self.shape,
                errors[name],
                operand_sets=self.sets,
                samples_s=_rounded(sampling.samples.get(name, ())),
                call_samples_s=_rounded(calls[name] if name in right else ()),
                cublas_median_s=_median_of(reference) if reference and name in right else None,
                unmet=sampling.unmet(name) if name in right else (),
                precision="tf32" if name == TF32 else "float32",
                layout=layout,
            )
            for name in self.names
        ]
        if interrupted:
            rows = [row for row in rows if row.samples_s or not row.error.right]
        figures = telemetry.figures()
        told = any(figure is not None for figure in figures)
        return rows, Readings(*self.shape, layout, *figures) if told else None, interrupted

    def _check(self, name: str) -> tuple[Accuracy, tuple[float, ...]]:
        """The error of one product, and the times of whole calls, of which the first is kept only
        where it is the only one: a device's first call of a size also finds memory for it."""
        C, first = self._call(name)
        error = self.truth.accuracy_of(C, TF32_ROUNDING if name == TF32 else 0.0)
        if not error.right or not self.whole_calls or name in self.competitors:
            return error, ()
        del C
        times = [first]
        while len(times) <= WHOLE_CALLS and sum(times) < WHOLE_CALLS_S:
            times.append(self._call(name)[1])
        return error, tuple(times[1:] or times)

    def _call(self, name: str) -> tuple[_Float32, float]:
        if name in self.competitors:
            return self._call_competitor(self.competitors[name])
        begin = time.perf_counter()
        launched = self.own.get(name, name)
        C = _core._run_measured(launched, self.A, self.B, device=self.device.name)
        return C, time.perf_counter() - begin

    def _call_competitor(self, competitor: Competitor) -> tuple[_Float32, float]:
        # What it does not write is no number, and so wrong.
        C = np.full((self.A.shape[0], self.B.shape[1]), np.nan, np.float32)
        begin = time.perf_counter()
        if self.device.kind != "cpu":
            index = _gpu_index(self.device.name)
            _core._measure((_on_gpu(competitor),), self.A, self.B, index, 1, 1, C)
        else:
            competitor(self.A, self.B, C)
        return C, time.perf_counter() - begin

    def _on_gpu(self, names: tuple[str, ...], rounds: int) -> Sequence[list[float]]:
        launched = tuple(map(self._launched, names))
        index = _gpu_index(self.device.name)
        return _core._measure(launched, self.A, self.B, index, self.sets, rounds)

    def _launched(self, name: str) -> Any:
        """What the extension launches by that name."""
        if name in self.competitors:
            return _on_gpu(self.competitors[name])
        return self.own[name].launchable(self.device.name) if name in self.own else name

    def _on_cpu(self, names: tuple[str, ...], rounds: int) -> Sequence[list[float]]:
        samples: list[list[float]] = [[] for _ in names]
        for _ in range(rounds):
            for name, seconds in zip(names, samples, strict=True):
                seconds.append(self._call(name)[1])
        return samples


class Sampling:
    """Samples of several variants by turns: warm-up, then until each median is stable.

    A variant leaves when it is done. The reference stays for as long as another is sampled, so that
    whatever the GPU does to a variant's samples, it does to some of the reference's. Rounds that
    are asked for at once have one order, and the next another, so that no variant always comes
    after the same one, which may change its time.
    """

    def __init__(self, sampler: _Sampler, names: tuple[str, ...]) -> None:
        self._sampler = sampler
        self.samples: dict[str, list[float]] = {name: [] for name in names}
        self._cost = dict.fromkeys(names, 0.0)
        self._asked = dict.fromkeys(names, 0)  # samples kept, and discarded in their place
        self._unsettled: set[str] = set()
        self._random = random.Random(0)

    def sample(self, seconds: float) -> None:
        """Fills ``samples``; ends about ``seconds`` after each had enough, if not before."""
        names = tuple(self.samples)
        if not names:
            return
        self._warm_up(names, max(seconds, WARM_UP_S))
        begin = time.monotonic()
        while True:
            if any(self._asked[name] < self._enough(name) for name in names):
                begin = time.monotonic()
            left = seconds - (time.monotonic() - begin)
            todo = tuple(name for name in names if not self._done(name, left))
            if not todo:
                return
            kept = tuple(name for name in names if name in todo or name == _core._REFERENCE)
            room = MOST_SAMPLES - min(len(self.samples[name]) for name in kept)
            self._take(kept, min(self._rounds(kept, min(BATCH_S, max(left, 0))), max(room, 1)))

    def unmet(self, name: str) -> tuple[str, ...]:
        """The criteria that this variant did not meet."""
        warm_up = ["warm-up did not settle"] if name in self._unsettled else []
        return (*warm_up, *unmet_of(self.samples[name], self._cost[name]))

    def _warm_up(self, names: tuple[str, ...], seconds: float) -> None:
        before = self._batch(names, 1)
        for name in names:
            if LONG_LAUNCH_S <= before[name] < math.inf:
                self.samples[name].append(before[name])
                self._asked[name] = 1
        begin = time.monotonic()
        waiting = tuple(name for name in names if not self.samples[name])
        while waiting and time.monotonic() - begin < seconds:
            now = self._batch(waiting, self._rounds(waiting, BATCH_S / 2))
            # An infinity stands for no sample, and settles nothing.
            waiting = tuple(n for n in waiting if not abs(now[n] - before[n]) < SETTLED * now[n])
            before |= now
        self._unsettled = set(waiting)

    def _batch(self, names: tuple[str, ...], rounds: int) -> dict[str, float]:
        """The medians of samples that are not kept."""
        taken = self._sampler(names, rounds)
        medians = {
            name: statistics.median(samples) if samples else math.inf
            for name, samples in zip(names, taken, strict=True)
        }
        self._cost |= {name: median for name, median in medians.items() if median < math.inf}
        return medians

    def _take(self, names: tuple[str, ...], rounds: int) -> None:
        turns = tuple(self._random.sample(names, len(names)))
        for name, samples in zip(turns, self._sampler(turns, rounds), strict=True):
            self.samples[name] += samples
            self._asked[name] += rounds
            if samples:
                self._cost[name] = statistics.median(samples)

    def _rounds(self, names: tuple[str, ...], seconds: float) -> int:
        """How many rounds take about so many seconds: at least 1, at most MOST_SAMPLES."""
        round_s = max(sum(self._cost[name] for name in names), 1e-5)
        return min(max(int(seconds / round_s), 1), MOST_SAMPLES)

    def _done(self, name: str, left: float) -> bool:
        samples = self.samples[name]
        if len(samples) >= self._enough(name) and _uncertainty(samples) <= STABLE:
            return True
        late = self._cost[name] > left and self._asked[name] >= self._enough(name)
        return late or len(samples) >= MOST_SAMPLES

    def _enough(self, name: str) -> int:
        return _enough_samples(self._cost[name])


def unmet_of(samples: Sequence[float], sample_s: float) -> tuple[str, ...]:
    """The criteria that samples, of which one takes about so many seconds, do not meet."""
    enough = _enough_samples(sample_s)
    if len(samples) < enough:
        return (f"samples: {len(samples)} (at least {enough})",)
    unsure = _uncertainty(samples)
    return (f"median known to {unsure:.1%} (at most {STABLE:.0%})",) if unsure > STABLE else ()


def _enough_samples(sample_s: float) -> int:
    return next(count for limit, count in ENOUGH_SAMPLES if sample_s <= limit)


def _of_shape(made: Any, shape: Shape) -> tuple[_Float32, _Float32]:
    """What `data` made; raises ValueError where it is not what was asked for."""
    M, N, K = shape
    A, B = made
    for name, matrix, wanted in (("A", A, (M, K)), ("B", B, (K, N))):
        found = getattr(matrix, "shape", None), str(getattr(matrix, "dtype", type(matrix).__name__))
        if found != (wanted, "float32"):
            raise ValueError(
                f"data made {name} of shape {found[0]} and type {found[1]}, where one of shape "
                f"{wanted} and type float32 was asked for"
            )
    return A, B


def _read_only(matrix: _Float32) -> _Float32:
    """So that no competitor changes what others multiply."""
    view = matrix.view()
    view.flags.writeable = False
    return view


class Truth:
    """What float64 says about A @ B, found once and asked for every variant.

    Up to FULL_CHECK every element is compared. Beyond, ROWS_CHECKED rows are, those at tile edges
    among them, and all elements through the product with a vector v of random signs: C @ v against
    A @ (B @ v). An element's error is a random walk, which stays well below 16 u times t, the sum
    of its terms' magnitudes (u = 2**-24). A row's errors have random signs there, so that their sum
    stays below the root of the sum of their squares, and the sum of t**2 is at most the sum of t
    times the largest t. One element that is wrong altogether stands out of that.
    """

    def __init__(
        self, A: _Float32, B: _Float32, edges: Iterable[int], rng: np.random.Generator
    ) -> None:
        M, N = A.shape[0], B.shape[1]
        self._roundings = gamma(A.shape[1])
        self._whole = max(M, N, A.shape[1]) <= FULL_CHECK or M <= ROWS_CHECKED
        self.rows = np.arange(M)
        if not self._whole:
            wanted = [row for row in sorted(edges) if row < M][: ROWS_CHECKED // 2]
            others = rng.permutation(np.setdiff1d(self.rows, [*wanted, M - 1]))
            chosen = [*wanted, M - 1, *others][:ROWS_CHECKED]
            self.rows = np.unique(chosen)
            self._signs = rng.choice((-1.0, 1.0), N)
            self._product = _times(A, _times(B, self._signs))
            terms = _times(A, _times(B, np.ones(N), np.abs), np.abs)
            largest_of_B = np.maximum(B.max(axis=1), -B.min(axis=1)).astype(np.float64)
            largest = _times(A, largest_of_B, np.abs)
            self._allowed = 16 * UNIT_ROUNDOFF * np.sqrt(terms * largest)
        # A part of B is no smaller than the rows, which are made float64 for each part anew.
        rows = A[self.rows]
        columns = range(0, N, max(_BAND // A.shape[1], len(rows)))
        parts = [expect(rows, B[:, i : i + columns.step]) for i in columns]
        fields = zip(*((e.value, e.bound, e.may_overflow) for e in parts), strict=True)
        self._exact = Expected(*(np.hstack(field) for field in fields))

    def accuracy_of(self, C: _Float32, rounding: float = 0.0) -> Accuracy:
        """The error of a result (M, N), for which each factor may have been rounded by such a share
        of itself. A term is then off by twice that share, on top of what float32 explains."""
        exact = self._exact.value
        rows = C[self.rows]
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            error = np.linalg.norm(rows - exact)
            relative = float(error / np.linalg.norm(exact)) if error != 0 else 0.0
            vector_share = None
            if not self._whole:
                off = np.abs(_times(C, self._signs) - self._product)
                share = np.divide(off, self._allowed, out=np.zeros_like(off), where=off != 0)
                widened = 1 + 2 * rounding / (16 * UNIT_ROUNDOFF)
                vector_share = _or_infinity(float(share.max()) / widened)
        widened = 1 + 2 * rounding / self._roundings
        worst = _or_infinity(self._exact.worst_share(rows) / widened)
        return Accuracy(_or_infinity(relative), worst, len(self.rows), vector_share)


def runnable(device: Device, *, tf32: bool = False) -> tuple[str, ...]:
    """The names of what to measure on a device: the ladder, and the reference if it is there, in
    reduced precision too if that is asked for."""
    usable = [v for v in variants() if device.kind in v.devices]
    names = tuple(v.name for v in usable if v.file is not None or v.unavailable is None)
    if tf32 and device.kind == "cuda":
        with contextlib.suppress(UnsupportedVariantError):
            one = np.ones((1, 1), np.float32)
            _core._run_measured(TF32, one, one, device=device.name)
            names += (TF32,)
    return names


def operand_sets(shape: Shape, l2_bytes: int) -> int:
    """How many sets of operands and result, float32, together exceed twice the L2 cache; MOST_SETS
    at most."""
    M, N, K = shape
    return min(1 + 2 * l2_bytes // (4 * (M * K + K * N + M * N)), MOST_SETS)


def _laid_out(operands: tuple[_Float32, _Float32], layout: str) -> tuple[_Float32, _Float32]:
    """The same values by rows or by columns, as the layout says."""
    A, B = (
        np.asarray(values, order="F" if letter == "T" else "C")
        for values, letter in zip(operands, layout, strict=True)
    )
    return A, B


def _times(
    matrix: _Float32, vector: NDArray[np.float64], of: Callable[[Any], Any] = np.asarray
) -> NDArray[np.float64]:
    """of(matrix) @ vector in float64, by bands of rows."""
    bands = range(0, matrix.shape[0], max(_BAND // matrix.shape[1], 1))
    return np.concatenate(
        [of(matrix[i : i + bands.step].astype(np.float64)) @ vector for i in bands]
    )


def _rounded(samples: Iterable[float]) -> tuple[float, ...]:
    """To seven digits, which is more than a clock tells."""
    return tuple(float(f"{sample:.7g}") for sample in samples)


def _median_of(samples: Iterable[float]) -> float:
    """That of the samples as they are kept, so that equal times have a ratio of 1."""
    return statistics.median(_rounded(samples))


def _or_infinity(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _uncertainty(samples: Sequence[float]) -> float:
    """The width of the interval that holds the median, as a share of it."""
    low, high = median_interval(samples)
    return (high - low) / statistics.median(samples)


def _uniform(rng: np.random.Generator, *shape: int) -> _Float32:
    """Random float32 values in [-1, 1), made without a float64 copy."""
    values = rng.random(shape, np.float32)
    values *= 2
    values -= 1
    return values


def _normal(rng: np.random.Generator, *shape: int) -> _Float32:
    return rng.standard_normal(shape, np.float32)


def _pair(
    of: Callable[..., _Float32],
) -> Callable[[np.random.Generator, Shape], tuple[_Float32, _Float32]]:
    """Makes A and B of what makes one matrix."""
    return lambda rng, shape: (of(rng, shape[0], shape[2]), of(rng, shape[2], shape[1]))


DATA: dict[str, Data] = {
    "uniform": (UNIFORM, _pair(_uniform)),
    "normal": ("standard normal", _pair(_normal)),
}
"""By the name that ``measure`` takes."""


def _tile_rows(names: tuple[str, ...], own: "Iterable[Kernel]") -> set[int]:
    """The first and the last row of the first tiles of each variant named."""
    entries = [v for v in variants() if v.name in names and v.file is not None]
    heights = {v.block_tile[0] for v in (*entries, *(kernel.variant for kernel in own))}
    return {0, *(edge for height in heights for edge in (height - 1, height))}


def _gpu_index(device: str) -> int:
    return int(device.partition(":")[2])


def find_device(name: str | None) -> Device:
    """The one device that ``run`` would use; raises what ``run`` would raise, and ValueError for
    several."""
    if name is None:
        return default_device()
    one = np.ones((1, 1), np.float32)
    _core.run(variants()[0].name, one, one, device=name)
    for device in devices():
        if device.name == name or (device.kind == name and device.usable):
            return device
    raise ValueError(f"{name!r} is several devices: pass one of them")


def find_gpu(what: str) -> Device:
    """The GPU that ``run`` would use, for what is measured on a GPU alone.

    Raises DeviceError, which says what that is, and why there is no GPU.
    """
    device = find_device(None)
    if device.kind == "cpu":
        raise DeviceError(f"{what} on a GPU: {_core._cuda_problem()}")
    return device


def kernel_samples(
    names: tuple[str, ...],
    A: _Float32,
    B: _Float32,
    device: str,
    *,
    rounds: int,
    sets: int = 1,
) -> Sequence[list[float]]:
    """Times of each variant's kernel on 'cuda:N' in so many rounds by turns, seconds, through so
    many sets of operands. Nothing is checked, and a launch that was disturbed leaves no sample."""
    return _core._measure(names, A, B, _gpu_index(device), sets, rounds)


def copy_samples(
    A: _Float32, B: _Float32, C: _Float32, device: str, rounds: int
) -> tuple[float, ...]:
    """Times of copying A and B to 'cuda:N', and a result back into C, seconds."""
    return tuple(_core._measure_copies(A, B, C, _gpu_index(device), rounds)[0])


def _describe_run(device: Device, cache: str, data: str, ffma_probe: str | Path | None) -> Run:
    build = build_info()
    on_gpu = device.kind != "cpu"
    protocol = Protocol("host clock", "uncontrolled", data)
    if on_gpu:
        protocol = Protocol(f"{device.kind.upper()} events", cache, data)
    ffma, copy = None, None
    if on_gpu and ffma_probe is not None:
        ffma, copy = peaks(Path(ffma_probe), _gpu_index(device.name))
    return Run(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        device=device.model,
        kind=device.kind,
        csrc_hash=build.csrc_hash,
        version=__version__,
        protocol=protocol,
        driver=driver_version() if on_gpu else None,
        cuda_toolkit=build.cuda_toolkit,
        cublas=_cublas.version() if on_gpu else None,
        ffma_gflops=ffma,
        copy_bytes_per_s=copy,
    )


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal; elsewhere nothing."""
    done = 0
    begin = time.monotonic()

    def advance(name: str) -> None:
        nonlocal done
        done += 1
        filled = _BAR * done // total
        bar = "#" * filled + "." * (_BAR - filled)
        seconds = time.monotonic() - begin
        print(f"\r[{bar}] {done} of {total}, {seconds:.0f} s: {name:<12}", end="", file=sys.stderr)
        sys.stderr.flush()

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield advance
    finally:
        print("\r" + " " * 79 + "\r", end="", file=sys.stderr)
        sys.stderr.flush()
