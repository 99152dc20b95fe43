"""What a measurement is: typed, frozen, printable, and the same after a round trip through JSON.

``measuring`` makes these objects; ``plotting`` draws them. benchmarks/README.md explains the file.
"""

import csv
import dataclasses
import importlib
import json
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from ._catalog import variants
from ._table import as_html, markdown, table

if TYPE_CHECKING:
    from ._style import Picture

SCHEMA = 3
"""Version of the JSON. It rises when a field changes its meaning or goes; a new one is optional."""

SAME_TIMES = frozenset({2, 3})
"""The schemas whose samples were taken alike, so that runs of them can be judged together."""

Shape = tuple[int, int, int]

Size = SupportsIndex | Sequence[SupportsIndex]
"""N for square matrices, or (M, N, K), in integers of any kind."""

Case = tuple[Shape, str]
"""A shape, and the layout of its operands."""

LAYOUTS = ("NN", "NT", "TN", "TT")
"""How A, the first letter, and B lie in memory: N is by rows, T by columns, as a transposed view of
rows does. The result is by rows."""

KINDS = ("speed", "pair", "speedup", "limits")
"""The pictures that ``plotting`` draws of results."""

LIBRARIES = {"cuda": "cuBLAS", "hip": "rocBLAS"}
"""The reference above the ladder by kind of device; as a variant its name has no capitals."""

TF32 = "cublas-tf32"
"""cuBLAS on tensor cores, which round the factors to TF32: a reference, not one of variants()."""

UNMET = "*"
"""What a figure bears whose criteria were not met."""
UNMET_NOTE = "*: sampling ended before its criteria were met"

UNIFORM = "uniform [-1, 1]"
"""What operands are unless `measure` is asked for others."""

CPU_WARNING = "CPU DEVICE: these are not GPU times and say nothing about a GPU"


def size_text(shape: Shape, layout: str = "NN") -> str:
    """'4096', or '512x16x500000'; with the layout where that is not by rows."""
    size = str(shape[0]) if len(set(shape)) == 1 else "x".join(map(str, shape))
    return size if layout == "NN" else f"{size} {layout}"


def as_shape(size: Size) -> Shape:
    """(M, N, K) of a size. Raises TypeError or ValueError for what is none, and below 1."""
    numbers = [*size] if isinstance(size, Iterable) else [size] * 3
    try:
        if any(isinstance(number, bool) for number in numbers):
            raise TypeError
        M, N, K = map(operator.index, numbers)
    except (TypeError, ValueError) as error:
        message = f"a size is N or (M, N, K), in integers, not {size!r}; several are a list"
        raise type(error)(message) from None
    if min(M, N, K) < 1:
        raise ValueError(f"a size is measured from 1 up, not {size!r}")
    return M, N, K


def read_json(path: str | Path) -> Any:
    """What a file holds. Raises ValueError, which names it, for one that is no JSON, or that is
    nested too deep."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None


@dataclass(frozen=True, slots=True)
class Protocol:
    """How the numbers were made. Numbers of different protocols are not comparable."""

    timer: str
    """'CUDA events' round one launch; 'host clock' round ``run``, on the CPU device."""
    cache: str
    """'cold': operand sets exceed twice the L2; 'warm': one set; 'uncontrolled': the CPU device."""
    data: str = UNIFORM
    """What the operands were, in words."""
    order: str = "by turns"
    alpha: float = 1.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """What all measurements of one run share. A fact is None where nothing tells it."""

    date: str
    """When it began, ISO 8601, UTC."""
    device: str
    """The maker's name for the device."""
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
    """What a kernel of FFMAs alone reached in this run, in GFLOP/s; None where it was not run."""
    copy_bytes_per_s: float | None = None
    """Bytes read plus written per second by a copy in the GPU's memory, from the same probe."""

    def describe(self) -> str:
        """Tells the facts of the run.

        Returns
        -------
        str
            One line: device, versions, protocol and date; on the CPU device a second one, which
            warns.
        """
        facts = [self.device]
        facts += [f"CUDA {self.cuda_toolkit}"] if self.kind == "cuda" else []
        facts += [f"cuBLAS {self.cublas}"] if self.cublas else []
        facts += [f"driver {self.driver}"] if self.driver else []
        facts += [f"{self.protocol.cache} cache"] if self.kind != "cpu" else []
        facts += [f"csrc {self.csrc_hash}", self.date[:10]]
        line = ", ".join(facts)
        return f"{line}\n{CPU_WARNING}" if self.kind == "cpu" else line


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a result is from float64. Figures are infinite where the result is not a number."""

    relative: float
    """Frobenius norm of the error over that of the product, over the rows checked."""
    worst_share: float
    """The worst element's error as a share of its bound, that of the precision in which it was
    computed: at most 1 if the rows are right."""
    rows: int
    """Rows compared element by element."""
    vector_share: float | None = None
    """All elements through a product with a random vector, as a share of what rounding explains:
    at most 1 if right. None where every row was compared."""

    @property
    def right(self) -> bool:
        """Whether the result may be timed."""
        return self.worst_share <= 1 and (self.vector_share is None or self.vector_share <= 1)


@dataclass(frozen=True, slots=True, repr=False)
class Measurement:
    """One variant at one shape on one device: the error, and every sample if it is right.

    A figure derived from the samples is None where there are none, as for a wrong result.
    """

    run: Run
    variant: str
    M: int
    N: int
    K: int
    error: Accuracy
    operand_sets: int = 1
    """Sets of operands that the samples went through, by turns."""
    samples_s: tuple[float, ...] = ()
    """Kernel times, seconds; on the CPU device, times of the whole call."""
    call_samples_s: tuple[float, ...] = ()
    """Times of whole calls of ``run`` by the host's clock, seconds; none on the CPU device."""
    cublas_median_s: float | None = None
    """cuBLAS's median time, or rocBLAS's, at this shape in the same run, seconds."""
    unmet: tuple[str, ...] = ()
    """The criteria that were not met when the time limit ended the sampling."""
    precision: str = "float32"
    """'float32'; 'tf32' where the factors were rounded to that first, as for TF32 alone."""
    layout: str = "NN"
    """One of LAYOUTS: how the operands lay in memory."""
    timed_by: str | None = None
    """How the samples were taken, where that was not by the run's protocol."""

    def marked(self, figure: float) -> str:
        """A figure of this measurement as text.

        Parameters
        ----------
        figure
            Of any unit.

        Returns
        -------
        str
            Three digits, and a mark where criteria were not met.
        """
        digits = f"{figure:.0f}" if figure >= 1000 else f"{figure:.3g}"
        return digits + (UNMET if self.unmet else "")

    @property
    def label(self) -> str:
        """What tables and pictures call the variant: one in reduced precision with its error, one
        that was not timed by the run's protocol with how it was."""
        if self.precision == "float32":
            return self.variant + (f" ({self.timed_by})" if self.timed_by else "")
        return f"cuBLAS TF32, error {self.error.relative:.1e}".replace("e-0", "e-")

    @property
    def shape(self) -> Shape:
        """(M, N, K)"""
        return self.M, self.N, self.K

    @property
    def case(self) -> Case:
        """The shape and the layout."""
        return self.shape, self.layout

    @property
    def quartiles_s(self) -> tuple[float, float] | None:
        """The first and the third quartile of the samples, seconds."""
        if not self.samples_s:
            return None
        low, high = np.percentile(self.samples_s, (25, 75))
        return float(low), float(high)

    @property
    def median_s(self) -> float | None:
        """The median of the samples, seconds."""
        return _median(self.samples_s)

    @property
    def interval_s(self) -> tuple[float, float] | None:
        """Two samples between which the true median lies with 95 %, by their ranks; of fewer than
        six samples, the least and the greatest."""
        if not self.samples_s:
            return None
        return median_interval(self.samples_s)

    @property
    def iqr_s(self) -> float | None:
        """The distance between the quartiles, seconds."""
        quartiles = self.quartiles_s
        return None if quartiles is None else quartiles[1] - quartiles[0]

    @property
    def gflops(self) -> float | None:
        """2 M N K operations over the median time, in 10^9 per second."""
        median = self.median_s
        return None if median is None else 2e-9 * self.M * self.N * self.K / median

    @property
    def vs_cublas(self) -> float | None:
        """Speed as a share of cuBLAS's, or rocBLAS's, in the same run, by medians. Never on the CPU
        device."""
        if self.cublas_median_s is None or self.median_s is None or self.run.kind == "cpu":
            return None
        return self.cublas_median_s / self.median_s

    @property
    def share_of_peak(self) -> float | None:
        """Speed as a share of the FFMA probe's in the same run; None where it was not FFMAs."""
        if self.run.ffma_gflops is None or self.gflops is None or self.precision != "float32":
            return None
        return self.gflops / self.run.ffma_gflops

    @property
    def call_median_s(self) -> float | None:
        """The median time of a whole call of ``run``, seconds."""
        return _median(self.samples_s if self.run.kind == "cpu" else self.call_samples_s)

    def __repr__(self) -> str:
        facts = "; ".join(value for _, value in self._facts())
        return f"<{self.variant} {size_text(*self.case)} on {self.run.device}: {facts}>"

    def _repr_html_(self) -> str:
        title = f"{self.variant}, {size_text(*self.case)}"
        return as_html(title, ("figure", "value"), self._facts(), self.run.describe())

    def _facts(self) -> list[tuple[str, str]]:
        """The figures that there are, each with its name, as text that stands alone."""
        error = f"worst error {self.error.worst_share:.2g} of its bound"
        if self.precision != "float32":
            error += f" in {self.precision}, {self.error.relative:.1e} in all"
        if not self.error.right:
            return [("error", f"WRONG, not timed: {error}")]
        if self.median_s is None or self.iqr_s is None or self.gflops is None:
            return [("error", f"not timed: {error}")]
        unmet = [("not met", f"not met: {', '.join(self.unmet)}")] if self.unmet else []
        spread = f"IQR {self.iqr_s / self.median_s:.1%}, {len(self.samples_s)} samples"
        if self.run.kind == "cpu":
            time = f"{_seconds(self.median_s)} a call ({spread})"
            return [("time", time), ("error", error), *unmet, ("device", CPU_WARNING)]
        facts = [("kernel", f"{_seconds(self.median_s)} ({spread})")]
        facts += [("speed", f"{self.gflops / 1e3:.3g} TFLOP/s")]
        if self.vs_cublas is not None:
            of_library = f"of {LIBRARIES[self.run.kind]}"
            facts += [(of_library, f"{self.vs_cublas:.3f} {of_library}")]
        if self.share_of_peak is not None:
            facts += [("of peak", f"{self.share_of_peak:.3f} of the FFMA peak")]
        if self.call_median_s is not None:
            facts += [("whole call", f"{_seconds(self.call_median_s)} a whole call")]
        return [*facts, ("error", error), ("cache", self.run.protocol.cache), *unmet]


_COLUMNS = (
    *("variant", "M", "N", "K", "median_s", "iqr_s", "samples", "gflops", "vs_cublas"),
    *("share_of_peak", "call_median_s"),
    *("layout", "timed_by", "precision", "error_relative", "error_worst_share"),
    *("operand_sets", "unmet", "timer", "cache", "device"),
    *("driver", "cuda_toolkit", "cublas", "ffma_gflops", "csrc_hash", "date"),
)


@dataclass(frozen=True, slots=True)
class Readings:
    """What the GPU told while a shape was sampled, all variants by turns: medians. A figure is None
    where the GPU did not tell, or the sampling was shorter than the second that it averages over.
    """

    M: int
    N: int
    K: int
    layout: str
    clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None

    def __str__(self) -> str:
        figures = ((self.clock_mhz, "MHz"), (self.power_w, "W"), (self.temperature_c, "°C"))
        told = [f"{figure:.0f} {unit}" for figure, unit in figures if figure is not None]
        return f"{size_text((self.M, self.N, self.K), self.layout)}: {', '.join(told)}"


@dataclass(frozen=True, slots=True, repr=False)
class Results:
    """Measurements of one run, case by case. Prints as a table."""

    run: Run
    rows: tuple[Measurement, ...]
    interrupted: bool = False
    """Whether the run was cut short; the rows are what was measured until then."""
    readings: tuple[Readings, ...] = ()
    """Clock, power and temperature by shape and layout, where the GPU told them."""
    schema: int = field(default=SCHEMA, compare=False)
    """The schema of the file that they were read from."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants measured, in the order of the rows."""
        return tuple(dict.fromkeys(row.variant for row in self.rows))

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes (M, N, K) measured, in the order of the rows."""
        return tuple(dict.fromkeys(row.shape for row in self.rows))

    @property
    def cases(self) -> tuple[Case, ...]:
        """The shapes measured, each with each layout measured, in the order of the rows."""
        return tuple(dict.fromkeys(row.case for row in self.rows))

    @property
    def clock_hz(self) -> float | None:
        """The highest clock at which a case was sampled; None where the GPU did not tell any."""
        told = [each.clock_mhz for each in self.readings if each.clock_mhz is not None]
        return 1e6 * max(told) if told else None

    def __getitem__(self, key: tuple[str, Size] | tuple[str, Size, str]) -> Measurement:
        """``results["vec4", 4096]``, or with a layout ``results["vec4", (512, 16, 5000), "NT"]``.

        Parameters
        ----------
        key
            A name, a size, and a layout if that is not by rows.

        Returns
        -------
        Measurement
            The row.

        Raises
        ------
        KeyError
            Where there is none; it says what was measured.
        """
        if not isinstance(key, tuple) or len(key) not in (2, 3):
            raise TypeError(
                f"a row is results[name, size] or results[name, size, layout], not {key!r}"
            )
        row = self.find(*key)
        if row is None:
            cases = ", ".join(size_text(*case) for case in self.cases)
            known = f"{', '.join(self.variants)} at {cases}" if self.rows else "nothing"
            raise KeyError(f"{key} was not measured, but {known}")
        return row

    def find(self, variant: str, size: Size, layout: str = "NN") -> Measurement | None:
        """The measurement of a variant at a size in a layout.

        Parameters
        ----------
        variant
            Its name.
        size
            N or (M, N, K).
        layout
            One of LAYOUTS.

        Returns
        -------
        Measurement or None
            The row; None if there is none.
        """
        wanted = variant, (as_shape(size), layout)
        return next((row for row in self.rows if (row.variant, row.case) == wanted), None)

    def label(self, variant: str) -> str:
        """``Measurement.label`` of a variant, at its largest shape.

        Parameters
        ----------
        variant
            Its name.

        Returns
        -------
        str
            What tables and pictures call it.
        """
        rows = [row for row in self.rows if row.variant == variant]
        return max(rows, key=lambda row: math.prod(row.shape)).label

    def over_previous(self, row: Measurement) -> float | None:
        """Speed over that of the rung before it on the ladder, by medians.

        Parameters
        ----------
        row
            One of the rows.

        Returns
        -------
        float or None
            None if one of the two was not measured, for the reference, which is no rung, and on the
            CPU device.
        """
        before = self._rung_before(row)
        if before is None or row.run.kind == "cpu" or not before.median_s or not row.median_s:
            return None
        return before.median_s / row.median_s

    def _rung_before(self, row: Measurement) -> Measurement | None:
        ladder = [variant.name for variant in variants() if variant.file is not None]
        if row.variant not in ladder[1:]:
            return None
        return self.find(ladder[ladder.index(row.variant) - 1], *row.case)

    def ratios(self, row: Measurement | None) -> tuple[str, str]:
        """``vs_cublas`` and ``over_previous`` as text.

        Parameters
        ----------
        row
            One of the rows, or None.

        Returns
        -------
        tuple of str
            Each with a mark where either of the two times that it is made of has one; a dash where
            there is none.
        """
        if row is None:
            return "-", "-"
        library = LIBRARIES.get(self.run.kind, "")
        reference, before = self.find(library.lower(), *row.case), self._rung_before(row)
        return (
            _ratio(row.vs_cublas) + _mark(row.vs_cublas, row, reference),
            _ratio(self.over_previous(row), "x") + _mark(self.over_previous(row), row, before),
        )

    def plot(self, kind: str = "speed", **options: Any) -> "Picture":
        """Draws it, by ``plotting.plot``; needs the extra 'plot'.

        Parameters
        ----------
        kind
            One of KINDS.
        **options
            The others of ``plotting.plot``.

        Returns
        -------
        Picture
            A matplotlib figure.
        """
        from .plotting import plot

        return plot(self, kind, **options)

    def to_json(self, path: str | Path) -> None:
        """Writes the results; ``from_json`` reads them.

        Parameters
        ----------
        path
            The file to write.
        """
        document = {
            "schema": SCHEMA,
            "run": dataclasses.asdict(self.run),
            "interrupted": self.interrupted,
            "readings": [dataclasses.asdict(each) for each in self.readings],
            "rows": [_row_to_json(row) for row in self.rows],
        }
        Path(path).write_text(dump(document) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | Path) -> "Results":
        """Reads results, those of older versions too.

        Parameters
        ----------
        path
            A file that ``to_json`` wrote.

        Returns
        -------
        Results
            What it holds.

        Raises
        ------
        ValueError
            Where it holds none, or those of a newer schema than is known here.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(document, dict):
                raise ValueError(f"it is a {type(document).__name__}, not an object")
            schema = document["schema"]
            if schema not in range(1, SCHEMA + 1):
                raise ValueError(f"its schema is {schema}; known here: 1 to {SCHEMA}")
            facts = dict(document["run"])
            facts["protocol"] = _pick(Protocol, facts["protocol"])
            run = _pick(Run, facts)
            if run.kind not in ("cpu", *LIBRARIES):
                raise ValueError(f"its kind of device is {run.kind!r}")
            rows = tuple(_row_from_json(run, row) for row in document["rows"])
            interrupted = document.get("interrupted", False)
            return cls(run, rows, interrupted, _readings_from_json(document), schema)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            fault = f"no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} does not hold results: {fault}") from None

    def to_csv(self, path: str | Path) -> None:
        """Writes one line per row, with the facts of the run in each; samples are in JSON alone.

        Parameters
        ----------
        path
            The file to write.
        """
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, _COLUMNS)
            writer.writeheader()
            writer.writerows(self._records())

    def to_pandas(self) -> Any:
        """The rows as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            A line for each row, with the columns of ``to_csv``.

        Raises
        ------
        ImportError
            Where pandas is missing.
        """
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError as error:
            message = "to_pandas needs pandas: pip install pandas"
            raise ImportError(message, name=error.name) from None
        return pandas.DataFrame(self._records(), columns=list(_COLUMNS))

    def _records(self) -> list[dict[str, Any]]:
        """The figures of each row, by _COLUMNS."""
        records = []
        for row in self.rows:
            places = {**_fields(row.run), **_fields(row.run.protocol), **_fields(row)}
            figures = {name: getattr(row, name, places.get(name)) for name in _COLUMNS}
            figures |= {"samples": len(row.samples_s), "unmet": "; ".join(row.unmet)}
            figures |= {
                "error_relative": row.error.relative,
                "error_worst_share": row.error.worst_share,
            }
            records.append(figures)
        return records

    def to_markdown(self) -> str:
        """The table of ``repr`` in Markdown.

        Returns
        -------
        str
            The table, and below it what its marks mean.
        """
        return "\n\n".join([markdown(*self._cells()), *self._marks()])

    def __repr__(self) -> str:
        notes = "\ninterrupted: what follows was measured until then" if self.interrupted else ""
        if not self.rows:
            return f"{self.run.describe()}{notes}\nnothing measured"
        read = [f"while sampling {each}" for each in self.readings]
        marks = "".join(f"\n{line}" for line in (*self._marks(), *read))
        return f"{self.run.describe()}{notes}\n{table(*self._cells())}{marks}"

    def _repr_html_(self) -> str:
        note = self.run.describe() + ("\ninterrupted" if self.interrupted else "")
        return as_html("", *self._cells(), "\n".join([note, *self._marks()]))

    def _marks(self) -> list[str]:
        return [UNMET_NOTE] if any(row.unmet for row in self.rows) else []

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        return self._by_case() if len(self.cases) > 1 else self._in_detail()

    def _by_case(self) -> tuple[list[str], list[list[str]]]:
        """A line for each variant, a column for each case; ratios at the largest shape."""
        on_gpu = self.run.kind != "cpu"
        largest = max(self.cases, key=lambda case: math.prod(case[0]))
        header = ["TFLOP/s" if on_gpu else "call, ms"]
        header += [size_text(*case) for case in self.cases]
        if on_gpu:
            of_library = f"of {LIBRARIES[self.run.kind]}, {size_text(*largest)}"
            header += [of_library, "over the rung before"]
        lines = []
        for variant in self.variants:
            line = [self.label(variant)]
            for case in self.cases:
                row = self.find(variant, *case)
                if row is None:
                    line.append("-")
                elif row.gflops is None or row.median_s is None:
                    line.append("wrong" if not row.error.right else "-")
                else:
                    line.append(row.marked(row.gflops / 1e3 if on_gpu else 1e3 * row.median_s))
            if on_gpu:
                line += self.ratios(self.find(variant, *largest))
            lines.append(line)
        return header, lines

    def _in_detail(self) -> tuple[list[str], list[list[str]]]:
        """A line for each variant, all of one case."""
        on_gpu = self.run.kind != "cpu"
        size = size_text(*self.cases[0]) if self.rows else ""
        header = [size, "kernel, ms" if on_gpu else "call, ms", "IQR", "samples"]
        if on_gpu:
            of_library = f"of {LIBRARIES[self.run.kind]}"
            header += ["TFLOP/s", of_library, "of peak", "over the rung before"]
            header += ["whole call, ms"]
        header += ["worst error / bound"]
        lines = []
        for row in self.rows:
            line = [row.label]
            if row.median_s is None or row.iqr_s is None or row.gflops is None:
                line += ["wrong" if not row.error.right else "-"] + ["-"] * (len(header) - 3)
            else:
                line += [row.marked(1e3 * row.median_s), f"{row.iqr_s / row.median_s:.1%}"]
                line += [str(len(row.samples_s))]
                if on_gpu:
                    of_cublas, over_previous = self.ratios(row)
                    line += [row.marked(row.gflops / 1e3), of_cublas]
                    line += [_ratio(row.share_of_peak), over_previous]
                    call = row.call_median_s
                    line += ["-" if call is None else f"{1e3 * call:.3g}"]
            line += [f"{row.error.worst_share:.2g}"]
            lines.append(line)
        return header, lines


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Two of the samples between which the median of what they are drawn from lies with 95 %; the
    least and the greatest where there are fewer than six."""
    ordered, count = sorted(samples), len(samples)
    # The cases, of 2**count, in which at most `rank` samples are below that median: one in 40.
    below, rank = 1, 0
    while 40 * (below + math.comb(count, rank + 1)) <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    return ordered[rank], ordered[-1 - rank]


def _median(samples: tuple[float, ...]) -> float | None:
    return float(np.median(samples)) if samples else None


def _ratio(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.2f}{unit}"


def _mark(figure: float | None, *rows: Measurement | None) -> str:
    unmet = any(row is not None and row.unmet for row in rows)
    return UNMET if figure is not None and unmet else ""


def _seconds(value: float) -> str:
    """Seconds with three digits and the unit that suits them."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def _fields(instance: Any) -> dict[str, Any]:
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}


def _pick(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """An instance from what the class knows of the values; what only a newer one knows is left."""
    known = {field.name for field in dataclasses.fields(cls)}
    return cls(**{name: value for name, value in values.items() if name in known})


def _row_to_json(row: Measurement) -> dict[str, Any]:
    """The fields, and what readers without this package would have to compute."""
    fields = {name: value for name, value in _fields(row).items() if name != "run"}
    # JSON has no infinity; null stands for it, and only these two can be infinite.
    error = _fields(row.error)
    for name, value in error.items():
        if isinstance(value, float) and not math.isfinite(value):
            error[name] = None
    derived = ("median_s", "iqr_s", "gflops", "vs_cublas", "share_of_peak", "call_median_s")
    figures = {name: getattr(row, name) for name in derived}
    return {**fields, "error": error | {"right": row.error.right}, **figures}


def _row_from_json(run: Run, values: Mapping[str, Any]) -> Measurement:
    error = dict(values["error"])
    for name in ("relative", "worst_share"):
        error[name] = math.inf if error[name] is None else error[name]
    if error.get("vector_share") is None and not error["right"] and error["worst_share"] <= 1:
        error["vector_share"] = math.inf
    names = ("samples_s", "call_samples_s", "unmet")
    lists = {name: tuple(values.get(name, ())) for name in names}
    times = lists["samples_s"] + lists["call_samples_s"]
    if not all(0 < seconds < math.inf for seconds in times):
        raise ValueError("a sample is no time")
    row: Measurement = _pick(
        Measurement, {**values, **lists, "run": run, "error": _pick(Accuracy, error)}
    )
    as_shape(row.shape)
    if row.layout not in LAYOUTS or not isinstance(row.variant, str):
        raise ValueError(f"a row is of {row.variant!r} in the layout {row.layout!r}")
    return row


def dump(document: dict[str, Any]) -> str:
    """JSON with a line for each row, so that files can be read and compared line by line."""
    rows = ",\n".join(json.dumps(row, allow_nan=False) for row in document["rows"])
    head = json.dumps({**document, "rows": []}, indent=1, allow_nan=False)
    return head.replace('"rows": []', f'"rows": [\n{rows}\n]')


def _readings_from_json(document: Mapping[str, Any]) -> tuple[Readings, ...]:
    """Up to schema 2 they stood in the rows of their shape, the same in each."""
    if "readings" in document:
        return tuple(_pick(Readings, each) for each in document["readings"])
    names = ("clock_mhz", "power_w", "temperature_c")
    found: dict[Case, Readings] = {}
    for row in document["rows"]:
        figures = [row.get(name) for name in names]
        if figures != [None] * len(names):
            layout = row.get("layout", "NN")
            shape = row["M"], row["N"], row["K"]
            found.setdefault((shape, layout), Readings(*shape, layout, *figures))
    return tuple(found.values())
