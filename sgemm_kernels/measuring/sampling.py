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
"""Warm-up stops after this time, or after the sampling time if that is longer."""
LONG_LAUNCH_S = 0.5
"""The check is enough warm-up for a kernel that takes this long: its first sample counts."""
BATCH_S = 0.25
"""Approximate sampling time between two checks of the clock and for an interrupt."""

ENOUGH_SAMPLES = ((0.1, 10), (2.0, 5), (math.inf, 3))
"""(seconds, samples): minimum number of samples, by the maximum time of one."""
MOST_SAMPLES = 200
STABLE = 0.02
"""The median is stable if there are enough samples and two of them this close together, relative to
the median, enclose the true median with 95 % confidence: ``measurement.median_interval``."""

_Sampler = Callable[[tuple[str, ...], int], Sequence[list[float]]]
"""Takes this many samples of each named variant, in turn; in seconds."""


class Sampling:
    """Samples several variants in turn: first warm-up, then until each median is stable.

    A variant leaves when its median is stable. The reference stays as long as any other variant is
    sampled, so that changes of the GPU's state affect both. Each batch of rounds has another order
    of the variants, because the variant before may change a variant's time.
    """

    def __init__(self, sampler: _Sampler, names: tuple[str, ...]) -> None:
        self._sampler = sampler
        self.samples: dict[str, list[float]] = {name: [] for name in names}
        self._cost = dict.fromkeys(names, 0.0)
        self._requested = dict.fromkeys(names, 0)  # samples requested, including discarded ones
        self._unsettled: set[str] = set()
        self._random = random.Random(0)

    def sample(self, seconds: float) -> None:
        """Fills ``samples``. Ends at the latest about ``seconds`` after each variant has enough."""
        names = tuple(self.samples)
        if not names:
            return
        self._warm_up(names, max(seconds, WARM_UP_S))
        begin = time.monotonic()
        while True:
            if any(self._requested[name] < self._enough(name) for name in names):
                begin = time.monotonic()
            left = seconds - (time.monotonic() - begin)
            todo = tuple(name for name in names if not self._done(name, left))
            if not todo:
                return
            kept = tuple(name for name in names if name in todo or name == _core._REFERENCE)
            missing = MOST_SAMPLES - min(len(self.samples[name]) for name in kept)
            self._take(kept, min(self._rounds(kept, min(BATCH_S, max(left, 0))), max(missing, 1)))

    def unmet(self, name: str) -> tuple[str, ...]:
        """The criteria that this variant did not meet."""
        warm_up = ["warm-up did not settle"] if name in self._unsettled else []
        return (*warm_up, *unmet_of(self.samples[name], self._cost[name]))

    def _warm_up(self, names: tuple[str, ...], seconds: float) -> None:
        before = self._batch(names, 1)
        for name in names:
            if LONG_LAUNCH_S <= before[name] < math.inf:
                self.samples[name].append(before[name])
                self._requested[name] = 1
        begin = time.monotonic()
        waiting = tuple(name for name in names if not self.samples[name])
        while waiting and time.monotonic() - begin < seconds:
            now = self._batch(waiting, self._rounds(waiting, BATCH_S / 2))
            # Infinity means that there was no sample, so the warm-up continues.
            waiting = tuple(n for n in waiting if not abs(now[n] - before[n]) < SETTLED * now[n])
            before |= now
        self._unsettled = set(waiting)

    def _batch(self, names: tuple[str, ...], rounds: int) -> dict[str, float]:
        """The medians of samples that are discarded."""
        taken = self._sampler(names, rounds)
        medians = {
            name: statistics.median(samples) if samples else math.inf
            for name, samples in zip(names, taken, strict=True)
        }
        self._cost |= {name: median for name, median in medians.items() if median < math.inf}
        return medians

    def _take(self, names: tuple[str, ...], rounds: int) -> None:
        order = tuple(self._random.sample(names, len(names)))
        for name, samples in zip(order, self._sampler(order, rounds), strict=True):
            self.samples[name] += samples
            self._requested[name] += rounds
            if samples:
                self._cost[name] = statistics.median(samples)

    def _rounds(self, names: tuple[str, ...], seconds: float) -> int:
        """The number of rounds that take about this many seconds, from 1 to MOST_SAMPLES. One, if a
        variant had no sample yet: a disturbed launch can take long before it is given up."""
        costs = [self._cost[name] for name in names]
        if not all(costs):
            return 1
        round_s = max(sum(costs), 1e-5)
        return min(max(int(seconds / round_s), 1), MOST_SAMPLES)

    def _done(self, name: str, left: float) -> bool:
        samples = self.samples[name]
        if len(samples) >= self._enough(name) and _uncertainty(samples) <= STABLE:
            return True
        late = self._cost[name] > left and self._requested[name] >= self._enough(name)
        return late or len(samples) >= MOST_SAMPLES

    def _enough(self, name: str) -> int:
        return _enough_samples(self._cost[name])


def unmet_of(samples: Sequence[float], sample_s: float) -> tuple[str, ...]:
    """The criteria that the samples do not meet; one sample takes about ``sample_s`` seconds."""
    enough = _enough_samples(sample_s)
    if len(samples) < enough:
        return (f"samples: {len(samples)} (at least {enough})",)
    unsure = _uncertainty(samples)
    return (f"median known to {unsure:.1%} (at most {STABLE:.0%})",) if unsure > STABLE else ()


def _enough_samples(sample_s: float) -> int:
    return next(count for limit, count in ENOUGH_SAMPLES if sample_s <= limit)


def rounded(samples: Iterable[float]) -> tuple[float, ...]:
    """Rounds to seven digits, more than the clock's resolution."""
    return tuple(float(f"{sample:.7g}") for sample in samples)


def median_of(samples: Iterable[float]) -> float:
    """The median of the rounded samples, so that equal times have a ratio of 1."""
    return statistics.median(rounded(samples))


def _uncertainty(samples: Sequence[float]) -> float:
    """The width of the median's confidence interval, relative to the median."""
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
    """Kernel times of each variant on 'cuda:N' in seconds, from this many rounds in turn, through
    this many sets of operands. Checks nothing. A disturbed launch leaves no sample."""
    return _core._measure(names, A, B, gpu_index(device), sets, rounds)


def copy_samples(A: Float32, B: Float32, C: Float32, device: str, rounds: int) -> tuple[float, ...]:
    """Times of copying A and B to 'cuda:N' and a result back into C, in seconds."""
    return tuple(_core._measure_copies(A, B, C, gpu_index(device), rounds)[0])
