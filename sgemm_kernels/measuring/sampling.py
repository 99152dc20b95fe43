"""Takes samples of several variants in turn until each median is stable."""

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

from .. import _core
from .devices import gpu_index
from .measurement import median_interval
from .operands import Float32

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

_Sampler = Callable[[tuple[str, ...], int], Sequence[list[float]]]
"""Takes so many samples of each variant named, by turns; seconds."""


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


def rounded(samples: Iterable[float]) -> tuple[float, ...]:
    """To seven digits, which is more than a clock tells."""
    return tuple(float(f"{sample:.7g}") for sample in samples)


def median_of(samples: Iterable[float]) -> float:
    """That of the samples as they are kept, so that equal times have a ratio of 1."""
    return statistics.median(rounded(samples))


def _uncertainty(samples: Sequence[float]) -> float:
    """The width of the interval that holds the median, as a share of it."""
    low, high = median_interval(samples)
    return (high - low) / statistics.median(samples)


def kernel_samples(
    names: tuple[str, ...],
    A: Float32,
    B: Float32,
    device: str,
    *,
    rounds: int,
    sets: int = 1,
) -> Sequence[list[float]]:
    """Times of each variant's kernel on 'cuda:N' in so many rounds by turns, seconds, through so
    many sets of operands. Nothing is checked, and a launch that was disturbed leaves no sample."""
    return _core._measure(names, A, B, gpu_index(device), sets, rounds)


def copy_samples(A: Float32, B: Float32, C: Float32, device: str, rounds: int) -> tuple[float, ...]:
    """Times of copying A and B to 'cuda:N', and a result back into C, seconds."""
    return tuple(_core._measure_copies(A, B, C, gpu_index(device), rounds)[0])
