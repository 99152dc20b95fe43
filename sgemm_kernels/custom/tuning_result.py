"""The result of ``tune``."""

import importlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._table import as_html, one_line, table
from ..measuring.results_file import read_json, write_json
from ..measuring.shapes import Shape, as_shape, size_text

if TYPE_CHECKING:
    from .._style import Picture

RIGHT = "right"
WRONG = "wrong"
NOT_COMPILED = "did not compile"
NOT_LAUNCHED = "cannot be launched"
TOO_LONG = "took too long"

_SHOWN = 10
"""The number of candidates in a printed table."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of values, with its verdict and times."""

    defines: dict[str, int]
    verdict: str
    """'right', 'wrong', 'did not compile', 'cannot be launched' or 'took too long'."""
    reason: str = ""
    """Why it is not right; empty if it is."""
    seconds: tuple[float, ...] = ()
    """The median time at each size, in the order of the sizes; empty unless it is right."""

    @property
    def text(self) -> str:
        """'BM=64 BN=128'."""
        return " ".join(f"{name}={value}" for name, value in self.defines.items())


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """The result of a search. Prints as a table of the best candidates, in a notebook too."""

    kernel: str
    """The rung, or the name of the kernel's file."""
    device: str
    """The device's model."""
    kind: str
    """'cpu' or 'cuda'. The best on the CPU device says nothing about a GPU."""
    sizes: tuple[Shape, ...]
    """(M, N, K) of each."""
    space: dict[str, tuple[int, ...]]
    """The values to try of each define."""
    default: dict[str, int]
    """The file's own values of these defines."""
    candidates: tuple[Candidate, ...]
    """In the order of the search."""
    interrupted: bool
    csrc_hash: str
    """``build_info().csrc_hash`` of the build that measured."""
    sources_hash: str | None = None
    """Hash of the files that the kernel is compiled from; None if only ``csrc_hash`` is known."""

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """The right candidates, the best first, by the geometric mean of times over all sizes."""
        right = [c for c in self.candidates if c.verdict == RIGHT]
        return tuple(sorted(right, key=lambda c: sum(map(math.log, c.seconds))))

    @property
    def best(self) -> Candidate | None:
        """The best candidate; None if none is right."""
        return self.ranked[0] if self.ranked else None

    @property
    def counts(self) -> dict[str, int]:
        """The number of candidates by verdict."""
        verdicts = [candidate.verdict for candidate in self.candidates]
        return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}

    def find(self, **defines: int) -> Candidate | None:
        """The candidate of these values.

        Parameters
        ----------
        **defines
            Values by name. The others are the file's own.

        Returns
        -------
        Candidate or None
            None if it was not tried.
        """
        wanted = {**self.default, **defines}
        for candidate in self.candidates:
            if {**self.default, **candidate.defines} == wanted:
                return candidate
        return None

    def gflops(self, candidate: Candidate) -> tuple[float, ...]:
        """The speed of a candidate.

        Parameters
        ----------
        candidate
            One that is right.

        Returns
        -------
        tuple of float
            10**9 floating-point operations a second at each size.
        """
        return tuple(
            2e-9 * math.prod(shape) / seconds
            for shape, seconds in zip(self.sizes, candidate.seconds, strict=False)
        )

    def to_pandas(self) -> Any:
        """The candidates as a table of pandas.

        Returns
        -------
        pandas.DataFrame
            A row for each: its defines, verdict, reason, and the median seconds at each size.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        pandas: Any = importlib.import_module("pandas")
        names = [f"{size_text(shape)} s" for shape in self.sizes]
        lines = []
        for candidate in self.candidates:
            times = candidate.seconds or (math.nan,) * len(names)
            verdict = {"verdict": candidate.verdict, "reason": candidate.reason}
            lines.append({**candidate.defines, **verdict, **dict(zip(names, times, strict=True))})
        return pandas.DataFrame(lines)

    def to_json(self, path: str | Path) -> None:
        """Writes all of it.

        Parameters
        ----------
        path
            The file to write.
        """
        write_json(path, asdict(self))

    @classmethod
    def from_json(cls, path: str | Path) -> "Tuning":
        """Reads what ``to_json`` wrote.

        Parameters
        ----------
        path
            The file.

        Returns
        -------
        Tuning
            The result.

        Raises
        ------
        ValueError
            The file has no result of ``tune``.
        """
        fields = read_json(path)
        try:
            fields["sizes"] = tuple(map(as_shape, fields["sizes"]))
            fields["space"] = {name: tuple(values) for name, values in fields["space"].items()}
            fields["candidates"] = tuple(
                Candidate(**{**entry, "seconds": tuple(entry["seconds"])})
                for entry in fields["candidates"]
            )
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            fault = f"no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{path} does not hold a tuning: {fault}") from None

    def plot(self, *, dark: bool | None = None) -> "Picture":
        """Draws the space over two defines: the best candidate for each pair of values.

        Needs matplotlib: ``pip install matplotlib``.

        Parameters
        ----------
        dark
            Use the dark theme. The default is the light theme, but a saved SVG is dark where its
            reader prefers dark pages.

        Returns
        -------
        Picture
            A matplotlib figure.
        """
        from .tuning_picture import draw

        scores = [(found.defines, self._score(found)) for found in self.ranked]
        note = f"{self.device}; " + "; ".join(self.summary())
        return draw(self.kernel, note, self.space, scores, dark=dark)

    def summary(self) -> list[str]:
        """The result in words.

        Returns
        -------
        list of str
            Lines with the number of candidates, their verdicts, and the gain of the best.
        """
        counts = ", ".join(f"{number} {verdict}" for verdict, number in self.counts.items())
        every = math.prod(map(len, self.space.values()))
        lines = [f"{len(self.candidates)} of {every} tried: {counts or 'none'}"]
        if self.interrupted:
            lines.append("interrupted: call again to go on")
        own = self.find()
        if own is not None and own.verdict == RIGHT and self.best is not None:
            gain = math.exp(
                sum(math.log(a / b) for a, b in zip(own.seconds, self.best.seconds, strict=True))
                / len(own.seconds)
            )
            best = "are the best" if own == self.best else f"take {gain:.2f}x the best's time"
            lines.append(f"the file's own values {best}")
        if self.kind == "cpu":
            lines.append("on the CPU device, whose times say nothing about a GPU's")
        return lines

    def _score(self, candidate: Candidate) -> float:
        """The geometric mean of the speeds at all sizes."""
        rates = self.gflops(candidate)
        return math.exp(sum(map(math.log, rates)) / len(rates))

    def _title(self) -> str:
        sizes = ", ".join(map(size_text, self.sizes))
        return one_line(f"{self.kernel} on {self.device}, GFLOP/s at {sizes}")

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = (*self.space, *map(size_text, self.sizes))
        rows = []
        for candidate in self.ranked[:_SHOWN]:
            values = [str({**self.default, **candidate.defines}[name]) for name in self.space]
            rows.append(
                (*values, *(f"{g:.4g}" if g < 1000 else f"{g:.0f}" for g in self.gflops(candidate)))
            )
        return header, rows

    def __repr__(self) -> str:
        header, rows = self._cells()
        shown = [table(header, rows), ""] if rows else []
        return "\n".join([self._title(), "", *shown, *self.summary()])

    def _repr_html_(self) -> str:
        return as_html(self._title(), *self._cells(), "\n".join(self.summary()))
