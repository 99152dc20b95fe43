"""The best values for what a kernel takes by TUNABLE: tiles, and whatever else its file leaves
open.

Each candidate is compiled, compared with float64, and only then timed by the rules of ``measure``,
in a process of its own. What does not compile, is wrong or cannot be launched is counted and left
out.
"""

import contextlib
import importlib
import itertools
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from . import _cache
from ._accuracy import expect
from ._catalog import build_info
from ._checking import tile_of
from ._compiling import CompileError, Source, digest_of, find_compiler, text_of
from ._core import DeviceError, UnsupportedVariantError
from ._core import run as run_variant
from ._table import as_html, table
from .measuring import find_device, measure, progress, shapes_of
from .own import Kernel, checked, source, with_defines
from .results import Shape, Size, as_shape, read_json, size_text

if TYPE_CHECKING:
    from ._style import Picture

RIGHT = "right"
WRONG = "wrong"
NOT_COMPILED = "did not compile"
NOT_LAUNCHED = "cannot be launched"
STRATEGIES = ("exhaustive", "random", "local")

_SHOWN = 10
"""Candidates of a table."""
_TUNABLE = re.compile(r"\bTUNABLE\(\s*(\w+)\s*,\s*(\d+)\s*\)")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of values, and what became of it."""

    defines: dict[str, int]
    verdict: str
    """'right', 'wrong', 'did not compile' or 'cannot be launched'."""
    reason: str = ""
    """What was wrong; empty if nothing."""
    seconds: tuple[float, ...] = ()
    """The median time at each size, in the order of the sizes; none unless it is right."""

    @property
    def text(self) -> str:
        """'BM=64 BN=128'."""
        return " ".join(f"{name}={value}" for name, value in self.defines.items())


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """What a search found. Prints as a table of the best, in a notebook too."""

    kernel: str
    """The rung, or the name of the kernel's file."""
    device: str
    """The device's model."""
    kind: str
    """'cpu' or 'cuda'. What is best on the CPU device says nothing about a GPU."""
    sizes: tuple[Shape, ...]
    """(M, N, K) of each."""
    space: dict[str, tuple[int, ...]]
    """What was to be tried of each define."""
    default: dict[str, int]
    """The file's own values of these."""
    candidates: tuple[Candidate, ...]
    """In the order in which they were tried."""
    interrupted: bool
    csrc_hash: str
    """Of the build that measured: ``build_info``."""

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        """Those that are right, from the best on: by the geometric mean of times over all sizes."""
        right = [c for c in self.candidates if c.verdict == RIGHT]
        return tuple(sorted(right, key=lambda c: sum(map(math.log, c.seconds))))

    @property
    def best(self) -> Candidate | None:
        """The best; None if none was right."""
        return self.ranked[0] if self.ranked else None

    @property
    def counts(self) -> dict[str, int]:
        """How many candidates came to each verdict."""
        verdicts = [candidate.verdict for candidate in self.candidates]
        return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}

    def find(self, **defines: int) -> Candidate | None:
        """The candidate of these values.

        Parameters
        ----------
        **defines
            Values by name; others are the file's own.

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
            A line for each: its defines, verdict, reason, and the median seconds at each size.

        Raises
        ------
        ImportError
            Where pandas is missing.
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
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

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
            What it holds.

        Raises
        ------
        ValueError
            Where it holds none.
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

    def plot(self, *, dark: bool = False) -> "Picture":
        """Draws the space: over two defines, for each pair the best that any others gave.

        Needs matplotlib: ``pip install 'sgemm_kernels[plot]'``.

        Parameters
        ----------
        dark
            For dark pages.

        Returns
        -------
        Picture
            A matplotlib figure.
        """
        from ._tuning_picture import draw

        return draw(self, dark=dark)

    def summary(self) -> list[str]:
        """Tells the result in words.

        Returns
        -------
        list of str
            What was tried, what was left out, and what is best, in lines.
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

    def _title(self) -> str:
        sizes = ", ".join(map(size_text, self.sizes))
        return f"{self.kernel} on {self.device}, GFLOP/s at {sizes}"

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


def tune(
    kernel_or_file: str | os.PathLike[str] | Kernel,
    space: Mapping[str, Iterable[SupportsIndex]],
    sizes: Size | Iterable[Size] = 1024,
    *,
    device: str | None = None,
    strategy: str = "exhaustive",
    where: Callable[[dict[str, int]], bool] | None = None,
    limit: int | None = None,
    seconds: float = 0.5,
    seed: int = 0,
) -> Tuning:
    """Searches the best values of a kernel's defines.

    Each candidate is compared with float64 at each size and about the edges of its tiles before it
    is timed. An interrupt ends the search and returns what it has; what was found is kept in the
    cache folder, and the same search goes on from there, as does one of a larger space. What could
    not be launched is tried again.

    Parameters
    ----------
    kernel_or_file
        A rung's name, a kernel of your own, or the path of its file. A kernel keeps the defines
        that it was made with where space names no others.
    space
        What to try of each define: {"BM": [64, 128], "TM": [4, 8]}.
    sizes
        N for square matrices or a tuple (M, N, K), or a list of such.
    device
        As of ``run``. Times of the CPU device say nothing about a GPU.
    strategy
        'exhaustive' tries all, in order; 'random' tries them in random order; 'local' goes from the
        file's own values to the best neighbour, in which one define has its next value, until none
        is better, and begins again elsewhere.
    where
        A constraint: takes the values by name, and says whether to try them.
    limit
        The most candidates to try; None: all.
    seconds
        How long to sample each at each size.
    seed
        Of what is random.

    Returns
    -------
    Tuning
        Every candidate with its verdict and times.

    Raises
    ------
    ValueError
        An empty space, an unknown strategy, a limit below 1, or a define that the file does not
        use.
    NoCompilerError, DeviceError, OSError
        As ``kernel`` and ``run``.
    Error
        A file that is included has changed since the search began, or the kernel was loaded.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"a strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is the most candidates to try, from 1 up, not {limit}")
    values = {
        name: tuple(dict.fromkeys(checked({name: choice})[name] for choice in choices))
        for name, choices in space.items()
    }
    if not values or not all(values.values()):
        raise ValueError(
            "a space names at least one define, and values for each: {'BM': [64, 128]}"
        )
    target = _Target(kernel_or_file, tuple(values))
    target.check_names({name: choices[0] for name, choices in values.items()})
    shapes = tuple(shapes_of(sizes))
    found = find_device(device)
    trials = _Trials(target, shapes, found.name, found.model, seconds)
    allowed = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    allowed = [defines for defines in allowed if where is None or where(dict(defines))]
    most = len(allowed) if limit is None else min(limit, len(allowed))
    candidates: list[Candidate] = []
    interrupted = False
    with progress(max(most, 1)) as advance:
        try:
            for defines in _order(strategy, values, allowed, target.default, candidates, seed):
                if len(candidates) == most:
                    break
                candidates.append(trials.of(defines))
                advance(candidates[-1].verdict)
        except KeyboardInterrupt:
            interrupted = True
    return Tuning(
        target.name,
        found.model,
        found.kind,
        shapes,
        values,
        target.default,
        tuple(candidates),
        interrupted,
        build_info().csrc_hash,
    )


class _Target:
    """What is tuned: a file that is compiled with one set of defines after the other."""

    def __init__(
        self, kernel_or_file: str | os.PathLike[str] | Kernel, names: tuple[str, ...]
    ) -> None:
        if isinstance(kernel_or_file, Kernel):
            self.name, self._source = kernel_or_file.name, kernel_or_file.made_of
        else:
            path = Path(kernel_or_file)
            if path.suffix:
                self.name = path.name
                self._source = Source(path.absolute(), text_of(path))
            else:
                self.name = str(path)
                self._source = Source(Path(f"{path}.cu"), source(str(path)))
        own = dict(_TUNABLE.findall(self._source.text))
        self.default = {name: int(own[name]) for name in names if name in own}

    def check_names(self, defines: Mapping[str, int]) -> None:
        """Raises what is wrong with the file itself, with its compiler, or with these names."""
        self.make({})
        with contextlib.suppress(CompileError):
            self.make(defines)

    def digest(self, defines: Mapping[str, int]) -> str:
        """That of the kernel with these defines."""
        return with_defines(self._source, defines).digest

    def make(self, defines: Mapping[str, int]) -> Kernel:
        """The kernel with these defines."""
        stem = re.sub(r"\W", "_", Path(self.name).stem)
        return Kernel(with_defines(self._source, defines), f"tuned_{stem}")


class _Trials:
    """What becomes of candidates; those of earlier searches are known."""

    def __init__(
        self, target: _Target, sizes: tuple[Shape, ...], device: str, model: str, seconds: float
    ) -> None:
        self.target, self.sizes, self.device, self.seconds = target, sizes, device, seconds
        self.model = model

    def of(self, defines: dict[str, int]) -> Candidate:
        """The candidate of these defines, tried now unless it was before."""
        facts = [self.model, self.sizes, float(self.seconds), build_info().csrc_hash]
        key = digest_of(["trial", self.target.digest(defines), find_compiler(), *facts])
        noted = _cache.noted(key, ".trial")
        if noted is not None:
            entry = json.loads(noted)
            return Candidate(defines, entry["verdict"], entry["reason"], tuple(entry["seconds"]))
        candidate = self._try(defines)
        # That it cannot be launched may be the machine's fault, and over the next time.
        if candidate.verdict != NOT_LAUNCHED:
            _cache.note(key, ".trial", json.dumps(asdict(candidate)))
        return candidate

    def _try(self, defines: dict[str, int]) -> Candidate:
        candidate = Candidate(defines, RIGHT)
        try:
            made = self.target.make(defines)
        except CompileError as error:
            return replace(candidate, verdict=NOT_COMPILED, reason=_first_error(str(error)))
        try:
            if not _right_about_edges(made, self.device):
                return replace(candidate, verdict=WRONG, reason="about the edges of its tiles")
            measured = measure(
                made, list(self.sizes), device=self.device, seconds=self.seconds, whole_calls=False
            )
            if measured.interrupted:
                raise KeyboardInterrupt
        except CompileError as error:
            return replace(candidate, verdict=NOT_COMPILED, reason=_first_error(str(error)))
        except (DeviceError, UnsupportedVariantError) as error:
            return replace(candidate, verdict=NOT_LAUNCHED, reason=str(error))
        finally:
            made.child.end()
        if not all(row.error.right for row in measured.rows):
            return replace(candidate, verdict=WRONG, reason="at a size that was to be timed")
        medians = [row.median_s for row in measured.rows]
        if any(median is None for median in medians):
            return replace(candidate, verdict=NOT_LAUNCHED, reason="no launch could be timed")
        return replace(candidate, seconds=tuple(float(m) for m in medians if m is not None))


def _right_about_edges(own: Kernel, device: str) -> bool:
    """Whether two small products are right that end inside of a tile."""
    tile = tile_of(own.variant)
    for M, N, K in (
        (tile.BM + 1, tile.BN + 1, tile.BK + 1),
        (max(tile.BM - 1, 1), max(tile.BN - 1, 1), 5 * tile.BK - 1),
    ):
        rng = np.random.default_rng((M, N, K))
        A = rng.uniform(-1, 1, (M, K)).astype(np.float32)
        B = rng.uniform(-1, 1, (K, N)).astype(np.float32)
        C = rng.uniform(-1, 1, (M, N)).astype(np.float32)
        result = run_variant(own, A, B, C=C, beta=0.5, device=device)
        if not expect(A, B, C=C, beta=0.5).worst_share(result) <= 1:
            return False
    return True


def _first_error(messages: str) -> str:
    """The first line of a compiler's messages that says what is wrong."""
    lines = messages.splitlines()
    return next((line.strip() for line in lines if "error" in line), lines[0])


def _order(
    strategy: str,
    values: Mapping[str, Sequence[int]],
    allowed: Sequence[dict[str, int]],
    default: Mapping[str, int],
    tried: Sequence[Candidate],
    seed: int,
) -> Iterator[dict[str, int]]:
    """The candidates as a strategy comes to them, each once; ``tried`` has grown by the last one
    whenever the next is asked for."""
    if strategy == "exhaustive":
        yield from allowed
        return
    shuffled = list(allowed)
    random.Random(seed).shuffle(shuffled)
    if strategy == "random":
        yield from shuffled
        return
    done: list[dict[str, int]] = []
    start = [dict(default)] if dict(default) in allowed else []
    for first in [*start, *shuffled]:
        here = first
        while here is not None:
            for defines in [here, *_neighbours(here, values)]:
                if defines in allowed and defines not in done:
                    done.append(defines)
                    yield defines
            here = _better_neighbour(here, values, tried)  # type: ignore[assignment]


def _neighbours(
    here: Mapping[str, int], values: Mapping[str, Sequence[int]]
) -> Iterator[dict[str, int]]:
    """Those in which one define has its next value, or the one before."""
    for name, choices in values.items():
        place = choices.index(here[name])
        for other in (place - 1, place + 1):
            if 0 <= other < len(choices):
                yield {**here, name: choices[other]}


def _better_neighbour(
    here: dict[str, int], values: Mapping[str, Sequence[int]], tried: Sequence[Candidate]
) -> dict[str, int] | None:
    costs = {
        tuple(c.defines.items()): sum(map(math.log, c.seconds)) for c in tried if c.verdict == RIGHT
    }
    around = [d for d in _neighbours(here, values) if tuple(d.items()) in costs]
    best = min(around, key=lambda d: costs[tuple(d.items())], default=None)
    if best is None:
        return None
    better = costs[tuple(best.items())] < costs.get(tuple(here.items()), math.inf)
    return best if better else None
