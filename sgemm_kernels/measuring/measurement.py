"""A measurement and the facts about its run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._accuracy import UNIT_ROUNDOFF
from .._table import as_html, one_line
from .shapes import Case, Shape, as_shape, size_text
from .sources import OLDER, is_older

LIBRARIES = {"cuda": "cuBLAS", "hip": "rocBLAS"}
"""The reference library by kind of device. The variant's name is in lower case."""

TF32 = "cublas-tf32"
"""cuBLAS on tensor cores, with inputs rounded to TF32: a reference, not one of variants()."""

UNMET = "*"
"""Marks a figure whose sampling criteria were not met."""
UNMET_NOTE = "*: sampling ended before its criteria were met"

UNIFORM = "uniform [-1, 1]"
"""The default operands of `measure`."""
NORMAL = "standard normal"

_ENOUGH_RESULTS = 1024
"""With fewer results, a few that cancel decide the relative error."""

CPU_WARNING = "CPU DEVICE: these are not GPU times and do not predict them"

KINDS = ("speed", "pair", "speedup", "limits")
"""Kinds of plots in ``plotting``."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """How the times were measured. Times of different protocols are not comparable."""

    timer: str
    """'CUDA events' around one launch; 'host clock' around ``run`` on the CPU device."""
    cache: str
    """'cold': operand sets exceed twice the L2 cache; 'warm': one set; 'uncontrolled': the CPU
    device."""
    data: str = UNIFORM
    """Description of the operands."""
    order: str = "by turns"
    alpha: float = 1.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """Facts that all measurements of one run share. Unknown facts are None."""

    date: str
    """Start time, ISO 8601, UTC."""
    device: str
    """The vendor's name for the device."""
    kind: str
    """'cuda', 'hip' or 'cpu'."""
    csrc_hash: str
    """Hash of the C and CUDA sources, as in ``build_info()``."""
    version: str
    """Version of this package."""
    protocol: Protocol
    driver: str | None = None
    """Version of the GPU's driver."""
    cuda_toolkit: str | None = None
    cublas: str | None = None
    ffma_gflops: float | None = None
    """Speed of a kernel with only FFMAs in this run, in GFLOP/s; None if it did not run."""
    copy_bytes_per_s: float | None = None
    """Bytes read plus written per second by a copy in the GPU's memory, from the same probe."""
    seed: str | None = None
    """What random shapes were drawn from; None for shapes that someone chose."""
    sources_hash: str | None = None
    """Hash of the files that the kernels are compiled from; None if only ``csrc_hash`` is known."""

    def describe(self) -> str:
        """Describes the run.

        Returns
        -------
        str
            One line with device, versions, protocol and date. Further lines for the CPU device,
            with a warning, and for a run of other sources than those of this clone.
        """
        facts = [self.device]
        facts += [f"CUDA {self.cuda_toolkit}"] if self.kind == "cuda" else []
        facts += [f"cuBLAS {self.cublas}"] if self.cublas else []
        facts += [f"driver {self.driver}"] if self.driver else []
        facts += [f"{self.protocol.cache} cache"] if self.kind != "cpu" else []
        facts += [f"seed {self.seed!r}"] if self.seed is not None else []
        facts += [f"csrc {self.csrc_hash}", self.date[:10]]
        notes = [OLDER] if is_older(self.sources_hash) else []
        notes += [CPU_WARNING] if self.kind == "cpu" else []
        return "\n".join([one_line(", ".join(facts)), *notes])


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The error of a result relative to float64. Infinite if the result contains a NaN."""

    relative: float
    """Frobenius norm of the error divided by the norm of the product, over the checked rows."""
    worst_share: float
    """The largest error of an element divided by its bound, which depends on the precision: at most
    1 if the rows are correct."""
    rows: int
    """Rows compared element by element, over all products of a batch."""
    vector_share: float | None = None
    """Check of all elements through a product with a random vector: its error divided by the bound
    for rounding, at most 1 if correct. None if every row was compared."""

    @property
    def right(self) -> bool:
        """True if the result passes the check. Only such variants are timed."""
        return self.worst_share <= 1 and (self.vector_share is None or self.vector_share <= 1)


@dataclass(frozen=True, slots=True, repr=False)
class Measurement:
    """One variant at one shape on one device: the error, and all samples if the result is correct.

    Figures derived from the samples are None if there are no samples, as for a wrong result.
    """

    run: Run
    variant: str
    M: int
    N: int
    K: int
    error: Accuracy
    operand_sets: int = 1
    """Number of operand sets that the samples cycle through."""
    samples_s: tuple[float, ...] = ()
    """Kernel times in seconds; on the CPU device, times of whole calls."""
    call_samples_s: tuple[float, ...] = ()
    """Times of whole calls of ``run`` by the host's clock, in seconds; empty on the CPU device."""
    cublas_median_s: float | None = None
    """Median time of cuBLAS or rocBLAS at this shape in the same run, in seconds."""
    unmet: tuple[str, ...] = ()
    """Criteria that were not met when the time limit ended the sampling."""
    precision: str = "float32"
    """'float32', or 'tf32' if the inputs were rounded to TF32."""
    layout: str = "NN"
    """Memory layout of the operands, one of LAYOUTS."""
    timed_by: str | None = None
    """The timing method, if it differs from the run's protocol."""
    batch: int = 1
    """Products in the batch, which one launch computes."""
    energy_j: float | None = None
    """Energy of one product by the GPU's own counter, in joules, if a benchmark measured it."""

    def marked(self, figure: float) -> str:
        """Formats a figure of this measurement.

        Parameters
        ----------
        figure
            A figure in any unit.

        Returns
        -------
        str
            Three digits, with a mark if criteria were not met.
        """
        digits = f"{figure:.0f}" if figure >= 1000 else f"{figure:.3g}"
        return digits + (UNMET if self.unmet else "")

    @property
    def less_than_float32(self) -> bool:
        """Whether the relative error exceeds what rounding in float32 explains, although each
        element is within its bound.

        Rounding errors of random operands are a random walk. In any order of summation their norm
        stays below u sqrt(K) of the product's, with u = 2**-24. For other operands, or few results,
        nothing is claimed.
        """
        random = self.run.protocol.data.startswith((UNIFORM, NORMAL))
        enough = self.error.rows * self.N >= _ENOUGH_RESULTS
        largest = UNIT_ROUNDOFF * math.sqrt(self.K)
        return self.error.right and random and enough and self.error.relative > largest

    @property
    def name(self) -> str:
        """The variant, with its error where that is larger than float32's."""
        name = "cuBLAS TF32" if self.variant == TF32 else self.variant
        if self.less_than_float32 or self.precision != "float32":
            name += f", error {self.error.relative:.1e}".replace("e-0", "e-")
        return name

    @property
    def label(self) -> str:
        """The variant's name in tables: ``name``, and the timing method if it is not the run's."""
        return self.name + (f" ({self.timed_by})" if self.timed_by else "")

    @property
    def shape(self) -> Shape:
        """(M, N, K), or (batch, M, N, K) for a batch."""
        return as_shape((self.batch, self.M, self.N, self.K))

    @property
    def case(self) -> Case:
        """The shape and the layout."""
        return self.shape, self.layout

    @property
    def quartiles_s(self) -> tuple[float, float] | None:
        """First and third quartile of the samples, in seconds."""
        if not self.samples_s:
            return None
        low, high = np.percentile(self.samples_s, (25, 75))
        return float(low), float(high)

    @property
    def median_s(self) -> float | None:
        """Median of the samples, in seconds."""
        return _median(self.samples_s)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Two samples that enclose the true median with 95 % confidence, by their ranks; with fewer
        than six samples, the smallest and the largest. In seconds."""
        if not self.samples_s:
            return None
        return median_interval(self.samples_s)

    @property
    def iqr_s(self) -> float | None:
        """Interquartile range, in seconds."""
        quartiles = self.quartiles_s
        return None if quartiles is None else quartiles[1] - quartiles[0]

    @property
    def gflops(self) -> float | None:
        """2 M N K operations for each product of the batch, divided by the median time, in 10^9 per
        second."""
        median = self.median_s
        return None if median is None else 2e-9 * math.prod(self.shape) / median

    @property
    def vs_cublas(self) -> float | None:
        """Speed relative to cuBLAS or rocBLAS in the same run, by medians. None on the CPU
        device."""
        if self.cublas_median_s is None or self.median_s is None or self.run.kind == "cpu":
            return None
        return self.cublas_median_s / self.median_s

    @property
    def share_of_peak(self) -> float | None:
        """Speed relative to the FFMA probe in the same run; None in reduced precision."""
        if self.run.ffma_gflops is None or self.gflops is None or self.precision != "float32":
            return None
        return self.gflops / self.run.ffma_gflops

    @property
    def call_median_s(self) -> float | None:
        """Median time of a whole call of ``run``, in seconds."""
        return _median(self.samples_s if self.run.kind == "cpu" else self.call_samples_s)

    def __repr__(self) -> str:
        facts = "; ".join(value for _, value in self._facts())
        return f"<{self.variant} {size_text(*self.case)} on {self.run.device}: {facts}>"

    def _repr_html_(self) -> str:
        title = f"{self.variant}, {size_text(*self.case)}"
        return as_html(title, ("figure", "value"), self._facts(), self.run.describe())

    def _facts(self) -> list[tuple[str, str]]:
        """The available figures with their names, as self-contained text."""
        error = f"worst error {self.error.worst_share:.2g} of its bound"
        if self.precision != "float32":
            error += f" in {self.precision}, {self.error.relative:.1e} overall"
        if not self.error.right:
            return [("error", f"WRONG, not timed: {error}")]
        if self.median_s is None or self.iqr_s is None or self.gflops is None:
            return [("error", f"not timed: {error}")]
        unmet = [("not met", f"not met: {', '.join(self.unmet)}")] if self.unmet else []
        spread = f"IQR {self.iqr_s / self.median_s:.1%}, {len(self.samples_s)} samples"
        if self.run.kind == "cpu":
            time = f"{_seconds(self.median_s)} per call ({spread})"
            return [("time", time), ("error", error), *unmet, ("device", CPU_WARNING)]
        facts = [("kernel", f"{_seconds(self.median_s)} ({spread})")]
        facts += [("speed", f"{self.gflops / 1e3:.3g} TFLOP/s")]
        if self.vs_cublas is not None:
            of_library = f"of {LIBRARIES[self.run.kind]}"
            facts += [(of_library, f"{self.vs_cublas:.3f} {of_library}")]
        if self.share_of_peak is not None:
            facts += [("of peak", f"{self.share_of_peak:.3f} of the FFMA peak")]
        if self.call_median_s is not None:
            facts += [("whole call", f"{_seconds(self.call_median_s)} per whole call")]
        return [*facts, ("error", error), ("cache", self.run.protocol.cache), *unmet]


@dataclass(frozen=True, slots=True)
class Readings:
    """Medians of the GPU's readings while a shape was sampled, over all variants. A figure is None
    if the GPU does not report it, or if sampling took less than a second, over which the GPU
    averages.
    """

    M: int
    N: int
    K: int
    layout: str
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    batch: int = 1

    def __str__(self) -> str:
        figures = ((self.clock_mhz, "MHz"), (self.power_w, "W"), (self.temperature_c, "°C"))
        told = [f"{figure:.0f} {unit}" for figure, unit in figures if figure is not None]
        shape = as_shape((self.batch, self.M, self.N, self.K))
        return f"{size_text(shape, self.layout)}: {', '.join(told)}"


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Two of the samples that enclose the true median with 95 % confidence; with fewer than six
    samples, the smallest and the largest."""
    ordered, count = sorted(samples), len(samples)
    # Of 2**count equally likely cases, those with at most `rank` samples below the median: 1 in 40.
    below, rank = 1, 0
    while 40 * (below + math.comb(count, rank + 1)) <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    return ordered[rank], ordered[-1 - rank]


def _median(samples: tuple[float, ...]) -> float | None:
    return float(np.median(samples)) if samples else None


def _seconds(value: float) -> str:
    """A time with three digits and a suitable unit."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"
