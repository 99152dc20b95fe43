"""Reliable timing: results are checked first, variants are warmed up and timed in turn, and every
sample is kept.

A result is compared with float64 before it is timed; a wrong variant gets no time. The kernel time
is the time between CUDA events around one launch. The stream is held back until the launch is
queued. All variants multiply the same operands in turn (A B C A B C), so that clock and temperature
are the same for each.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from .._catalog import Device, variants
from .._custom_kernel import CustomKernel
from .competitors import Competitor, Measured, contenders_of, launch_of
from .devices import find_device, gpu_index
from .measurement import TF32, Accuracy, Measurement, Readings, Run
from .operands import DATA, Data, Float32, laid_out, of_shape, operand_sets, read_only
from .progress import progress
from .results import Results
from .run_facts import describe_run
from .sampling import Sampling, median_of, rounded
from .shapes import LAYOUTS, Shape, Size, shapes_of
from .telemetry import Telemetry
from .truth import TF32_ROUNDING, Truth

WHOLE_CALLS = 5
WHOLE_CALLS_S = 0.5
"""Maximum number of timed whole calls of each variant, and maximum time for them."""


def measure(
    names: Measured | Iterable[Measured],
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
    """Measures variants at several sizes, in turn, in one run.

    Each variant is checked before it is timed; a wrong one gets no time. For each size and layout,
    sampling ends when all medians are stable, or about ``seconds`` after every variant has the
    minimum number of samples. An interrupt ends the run and returns the results so far; without
    any, it raises KeyboardInterrupt. On the CPU device, times are of whole calls, and nothing is
    compared with cuBLAS.

    Parameters
    ----------
    names
        One or several of: a name from ``variants()``; a custom kernel; 'cublas-tf32', a reference
        in reduced precision that is checked against its own bound; or a competitor. With 'cublas'
        ('rocblas' on AMD GPUs) among them, every row has ``vs_cublas``. A competitor is a pair
        (name, f), which is checked and timed by the same rules. f(A, B, out) writes the product to
        out. On the CPU device, these are NumPy arrays. On a GPU they have
        ``__cuda_array_interface__``, which ``torch.as_tensor(A, device='cuda')`` and
        ``cupy.asarray(A)`` accept. For a batch they have three dimensions. f must queue its work in
        the default stream without waiting for it.
    sizes
        N for square matrices, a tuple (M, N, K), or (batch, M, N, K) for a batch of products in one
        call, or a list of these.
    layouts
        Memory layouts of A and B: 'NN', 'NT', 'TN' or 'TT', or several of them. N is row-major, T
        is column-major. Each size is measured in each layout with the same values.
    device
        As for ``run``.
    cache
        'cold' (sets of operands that together exceed twice the L2 cache, up to 1000 sets) or 'warm'
        (one set).
    data
        Values of A and B: 'uniform' in [-1, 1), standard 'normal', or a pair (words, f). The
        protocol records the words. f(rng, (M, N, K)) returns A (M, K) and B (K, N) as row-major
        float32 arrays, and f(rng, (batch, M, N, K)) returns (batch, M, K) and (batch, K, N). rng is
        a ``numpy.random.Generator`` with the same state for each run of a shape. With tensor cores,
        the time can depend on the values.
    seconds
        Sampling time for each size and layout.
    whole_calls
        Also time whole calls of ``run``, on a GPU.
    ffma_probe
        The path of benchmarks/peaks.cu, for ``share_of_peak``. Compiling it needs nvcc.

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
        If the device is unusable or fails.
    FileNotFoundError
        If nvcc is missing and a probe is given.
    """
    where = find_device(device)
    contenders = contenders_of(names)
    own = {name: f for name, f in contenders.items() if hasattr(f, "__sgemm_run__")}
    competitors = {name: f for name, f in contenders.items() if f is not None and name not in own}
    shapes = shapes_of(sizes)
    layouts = tuple(dict.fromkeys([layouts] if isinstance(layouts, str) else layouts))
    unknown = set(layouts) - set(LAYOUTS)
    if unknown:
        raise ValueError(f"unknown layout {min(unknown)!r}: use one of {', '.join(LAYOUTS)}")
    if cache not in ("cold", "warm"):
        raise ValueError(f"unknown cache {cache!r}: use 'cold' or 'warm'")
    if isinstance(data, str) and data not in DATA:
        raise ValueError(
            f"unknown data {data!r}: use one of {', '.join(DATA)}, or a pair (words, f)"
        )
    if not contenders or not shapes or not layouts or not seconds > 0:
        raise ValueError("measure needs at least one variant, size and layout, and seconds > 0")
    for kernel in own.values():
        if not kernel.in_this_process:
            every = [n if f is None else f if n in own else (n, f) for n, f in contenders.items()]
            options: dict[str, Any] = {"layouts": layouts, "device": where.name, "cache": cache}
            options |= {"data": data, "seconds": seconds}
            options |= {"whole_calls": whole_calls, "ffma_probe": ffma_probe}
            results: Results = kernel.child.call(measure, every, shapes, **options)
            return results
    one = np.ones((1, 1), np.float32)
    for name in contenders.keys() - competitors:
        launched = own.get(name, name)
        _core._run_measured(launched, one, one, device=where.name)  # raises if it cannot run

    words, make = DATA[data] if isinstance(data, str) else data
    run = describe_run(where, cache, words, ffma_probe)
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


class _Bench:
    """One shape: its operands, their exact product, and the measurements."""

    def __init__(
        self,
        run: Run,
        device: Device,
        names: tuple[str, ...],
        competitors: Mapping[str, Competitor],
        own: Mapping[str, CustomKernel],
        shape: Shape,
        make: Callable[[np.random.Generator, Shape], tuple[Float32, Float32]],
        whole_calls: bool,
    ) -> None:
        self.run, self.device, self.names, self.shape = run, device, names, shape
        self.competitors, self.own = competitors, own
        self.whole_calls = whole_calls and device.kind != "cpu"
        rng = np.random.default_rng(shape)
        self.A, self.B = self.by_rows = of_shape(make(rng, shape), shape)
        self.truth = Truth(self.A, self.B, _tile_rows(names, own.values()), rng)
        self.sets = 1
        if run.protocol.cache == "cold" and device.l2_bytes is not None:
            self.sets = operand_sets(shape, device.l2_bytes)

    def measure(
        self, layout: str, seconds: float, advance: Callable[[str], None]
    ) -> tuple[list[Measurement], Readings | None, bool]:
        """Checks, then times. Returns a row for each variant, the GPU's readings during sampling,
        and whether sampling was interrupted.

        Calls ``advance`` with the name of each checked variant.
        """
        self.A, self.B = map(read_only, laid_out(self.by_rows, layout))
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
        batch = math.prod(self.shape[:-3])
        rows = [
            Measurement(
                self.run,
                name,
                *self.shape[-3:],
                errors[name],
                operand_sets=self.sets,
                samples_s=rounded(sampling.samples.get(name, ())),
                call_samples_s=rounded(calls[name] if name in right else ()),
                cublas_median_s=median_of(reference) if reference and name in right else None,
                unmet=sampling.unmet(name) if name in right else (),
                precision="tf32" if name == TF32 else "float32",
                layout=layout,
                batch=batch,
            )
            for name in self.names
        ]
        if interrupted:
            rows = [row for row in rows if row.samples_s or not row.error.right]
        figures = telemetry.figures()
        told = any(figure is not None for figure in figures)
        readings = Readings(*self.shape[-3:], layout, *figures, batch) if told else None
        return rows, readings, interrupted

    def _check(self, name: str) -> tuple[Accuracy, tuple[float, ...]]:
        """The error of one product, and the times of whole calls. Drops the first time unless it is
        the only one, because a device's first call of a size also allocates memory."""
        C, first = self._call(name)
        error = self.truth.accuracy_of(C, TF32_ROUNDING if name == TF32 else 0.0)
        if not error.right or not self.whole_calls or name in self.competitors:
            return error, ()
        del C
        times = [first]
        while len(times) <= WHOLE_CALLS and sum(times) < WHOLE_CALLS_S:
            times.append(self._call(name)[1])
        return error, tuple(times[1:] or times)

    def _call(self, name: str) -> tuple[Float32, float]:
        if name in self.competitors:
            return self._call_competitor(self.competitors[name])
        begin = time.perf_counter()
        launched = self.own.get(name, name)
        C = _core._run_measured(launched, self.A, self.B, device=self.device.name)
        return C, time.perf_counter() - begin

    def _call_competitor(self, competitor: Competitor) -> tuple[Float32, float]:
        # Elements that it does not write stay NaN, which is wrong.
        C = np.full((*self.A.shape[:-1], self.B.shape[-1]), np.nan, np.float32)
        begin = time.perf_counter()
        if self.device.kind != "cpu":
            index = gpu_index(self.device.name)
            _core._measure((launch_of(competitor),), self.A, self.B, index, 1, 1, C)
        else:
            competitor(self.A, self.B, C)
        return C, time.perf_counter() - begin

    def _on_gpu(self, names: tuple[str, ...], rounds: int) -> Sequence[list[float]]:
        launched = tuple(map(self._launched, names))
        index = gpu_index(self.device.name)
        return _core._measure(launched, self.A, self.B, index, self.sets, rounds)

    def _launched(self, name: str) -> Any:
        """The object that the extension launches for this name."""
        if name in self.competitors:
            return launch_of(self.competitors[name])
        return self.own[name].launchable(self.device.name) if name in self.own else name

    def _on_cpu(self, names: tuple[str, ...], rounds: int) -> Sequence[list[float]]:
        samples: list[list[float]] = [[] for _ in names]
        for _ in range(rounds):
            for name, seconds in zip(names, samples, strict=True):
                seconds.append(self._call(name)[1])
        return samples


def _tile_rows(names: tuple[str, ...], own: Iterable[CustomKernel]) -> set[int]:
    """The first and the last row of the first tiles of each variant named."""
    entries = [v for v in variants() if v.name in names and v.file is not None]
    heights = {v.block_tile[0] for v in (*entries, *(kernel.variant for kernel in own))}
    return {0, *(edge for height in heights for edge in (height - 1, height))}
