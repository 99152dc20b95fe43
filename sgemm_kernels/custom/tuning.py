"""Searches the best values of a kernel's constants.

Each candidate is compiled and compared with float64 in a child process, and then timed by the rules
of ``measure``. Candidates that do not compile, are wrong or cannot be launched are counted and left
out.
"""

import contextlib
import itertools
import json
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import SupportsIndex

import numpy as np

from .. import _cache
from .._accuracy import expect
from .._catalog import build_info
from .._core import DeviceError, UnsupportedVariantError
from .._core import run as run_variant
from .._launches import launch_keywords
from ..measuring.devices import find_device
from ..measuring.measure import measure
from ..measuring.progress import progress
from ..measuring.shapes import Shape, Size, shapes_of
from .cases import tile_of
from .child_process import START_S, EndlessError
from .compiler import (
    CompileError,
    Source,
    checked_defines,
    digest_of,
    library_key,
    run_build,
    text_of,
    with_defines,
)
from .expressions import constants_of
from .kernel import Kernel
from .load import is_plain, source
from .plain import PlainLaunch
from .plain_text import masked
from .tuning_result import NOT_COMPILED, NOT_LAUNCHED, RIGHT, TOO_LONG, WRONG, Candidate, Tuning

STRATEGIES = ("exhaustive", "random", "local")
_SMALL_S = 50.0
"""The time limit of a small product."""
_SLOWEST = {"cpu": 1e7, "cuda": 1e10}
"""Multiply-adds per second that a candidate must reach, by kind of device."""
_TUNABLE = re.compile(r"\bTUNABLE\(\s*(\w+)\s*,\s*(\d+)\s*\)")


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

    Each candidate is compared with float64 at each size and at the edges of its tiles before it is
    timed. An interrupt ends the search and returns the candidates so far. The cache folder keeps
    results, so the same search, or one of a larger space, continues from there. Candidates that
    could not be launched or took too long are tried again.

    Parameters
    ----------
    kernel_or_file
        A rung's name, a custom kernel, or the path of a file that is written with kernel.h. A
        kernel keeps its launch, and its own defines unless ``space`` has them.
    space
        The values to try of each define: {"BM": [64, 128], "TM": [4, 8]}.
    sizes
        N for square matrices, a tuple (M, N, K), or a list of these.
    device
        As in ``run``. Times of the CPU device say nothing about a GPU.
    strategy
        'exhaustive' tries all candidates in order, 'random' in random order. 'local' starts from
        the file's own values and moves to the best neighbour (one define has its next or previous
        value) until none is better. Then it starts again from a random candidate.
    where
        A constraint: a function of the values by name that returns whether to try them.
    limit
        The maximum number of candidates; None: all.
    seconds
        How long to sample each candidate at each size.
    seed
        The seed of the random order.

    Returns
    -------
    Tuning
        Every candidate with its verdict and times.

    Raises
    ------
    ValueError
        An empty space, an unknown strategy, a limit below 1, an unused define, or the path of a
        plain kernel, whose launch is missing.
    NoCompilerError, DeviceError, OSError
        As in ``kernel`` and ``run``.
    Error
        An included file has changed since the search began or the kernel was loaded.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"a strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit is the most candidates to try, from 1 up, not {limit}")
    values = {
        name: tuple(dict.fromkeys(checked_defines({name: choice})[name] for choice in choices))
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
    """The file to tune, which is compiled with different defines."""

    def __init__(
        self, kernel_or_file: str | os.PathLike[str] | Kernel, names: tuple[str, ...]
    ) -> None:
        if isinstance(kernel_or_file, Kernel):
            self.name, self._source = kernel_or_file.name, kernel_or_file.made_of
        else:
            path = Path(kernel_or_file)
            if path.suffix:
                self.name = path.name
                text = text_of(path)
                if is_plain(text):
                    raise ValueError(
                        f"{path.name} is a plain CUDA kernel, so its launch is missing: pass "
                        f"kernel({str(path)!r}, like='tile2d') if it started from that rung, or "
                        "kernel(...) with grid= and block="
                    )
                self._source = Source(path.absolute(), text)
            else:
                self.name = str(path)
                launch = launch_keywords(self.name)
                self._source = Source(
                    Path(f"{path}.cu"),
                    source(self.name),
                    launch=PlainLaunch.of(**launch) if launch else None,
                )
        own: dict[str, int] = {name: int(at) for name, at in _TUNABLE.findall(self._source.text)}
        if self._source.launch is not None:
            own |= constants_of(masked(self._source.whole()), {})
        self.default = {name: own[name] for name in names if name in own}

    def check_names(self, defines: Mapping[str, int]) -> None:
        """Raises an error if the file does not compile or does not use these names."""
        self.make({})
        with contextlib.suppress(CompileError):
            self.make(defines)

    def key(self, defines: Mapping[str, int]) -> str:
        """A digest of everything that the kernel with these defines depends on."""
        return library_key(with_defines(self._source, defines), run_build())

    def make(self, defines: Mapping[str, int]) -> Kernel:
        """The kernel with these defines. It stays in its child process, which can be killed."""
        stem = re.sub(r"\W", "_", Path(self.name).stem)
        return Kernel(with_defines(self._source, defines), f"tuned_{stem}", stays_apart=True)


class _Trials:
    """Tries candidates, or takes their results from the cache."""

    def __init__(
        self, target: _Target, sizes: tuple[Shape, ...], device: str, model: str, seconds: float
    ) -> None:
        self.target, self.sizes, self.device, self.seconds = target, sizes, device, seconds
        self.model = model

    def of(self, defines: dict[str, int]) -> Candidate:
        """The candidate with these defines, tried now unless the cache has it."""
        facts = [self.model, self.sizes, float(self.seconds), build_info().csrc_hash]
        key = digest_of(["trial", self.target.key(defines), *facts])
        noted = _cache.noted(key, ".trial")
        if noted is not None:
            entry = json.loads(noted)
            return Candidate(defines, entry["verdict"], entry["reason"], tuple(entry["seconds"]))
        candidate = self._try(defines)
        # These may be due to the machine's state.
        if candidate.verdict not in (NOT_LAUNCHED, TOO_LONG):
            _cache.note(key, ".trial", json.dumps(asdict(candidate)))
        return candidate

    def _try(self, defines: dict[str, int]) -> Candidate:
        candidate = Candidate(defines, RIGHT)
        try:
            made = self.target.make(defines)
        except CompileError as error:
            return replace(candidate, verdict=NOT_COMPILED, reason=_first_error(str(error)))
        try:
            made.child.limit_s = START_S + _SMALL_S
            if not _right_about_edges(made, self.device):
                return replace(candidate, verdict=WRONG, reason="about the edges of its tiles")
            made.child.limit_s = self._limit_s()
            measured = measure(
                made, list(self.sizes), device=self.device, seconds=self.seconds, whole_calls=False
            )
            if measured.interrupted:
                raise KeyboardInterrupt
        except CompileError as error:
            return replace(candidate, verdict=NOT_COMPILED, reason=_first_error(str(error)))
        except EndlessError as error:
            return replace(candidate, verdict=TOO_LONG, reason=str(error))
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

    def _limit_s(self) -> float:
        """The time limit of a measurement, which no rung comes near."""
        kind = "cpu" if self.device == "cpu" else "cuda"
        products = sum(math.prod(shape) for shape in self.sizes) / _SLOWEST[kind]
        return START_S + _SMALL_S + len(self.sizes) * 10 * self.seconds + 20 * products


def _right_about_edges(own: Kernel, device: str) -> bool:
    """Whether two small products with partial tiles are right."""
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
    """The first line of the compiler's messages that has an error."""
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
    """The candidates in the order of a strategy, each once. The caller adds each result to
    ``tried`` before it asks for the next candidate."""
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
    """The candidates where one define has its next or previous value."""
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
