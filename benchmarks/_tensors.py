"""Products of PyTorch's tensors: each way is checked, then all ways are timed in turn."""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from _modules import first_line, imported
from _results import facts

from sgemm_kernels._accuracy import gamma
from sgemm_kernels.measuring.devices import find_gpu

Call = Callable[[], Any]
FEWEST_ROUNDS, MOST_ROUNDS = 5, 25
FLUSHED = 4
"""A flush reads this many times the L2 cache. The host queues the sample meanwhile."""


class Timer:
    """Checks and times on the first GPU. Raises DeviceError without a GPU, and OSError without
    PyTorch."""

    def __init__(
        self, what: str, seconds: float, modules: Mapping[str, str] = {"torch": "torch"}
    ) -> None:
        """``seconds``: to sample a product, all ways together. ``modules``: by the name that the
        result reports if one is missing."""
        self._begin = time.perf_counter()
        self._gpu = find_gpu(what)
        self.found, self.missing = imported(modules)
        if "torch" not in self.found:
            raise OSError(f"PyTorch is missing: {self.missing['torch']}")
        self.torch = self.found["torch"]
        self.torch.manual_seed(0)
        self._seconds = seconds
        self._flush = flush_of(self.torch, self._gpu.l2_bytes or 1 << 26)

    def uniform(self, *shape: int) -> Any:
        """A tensor with values in [-1, 1]."""
        return self.torch.empty(shape, device="cuda").uniform_(-1, 1)

    def measured(
        self,
        ways: Mapping[str, Call],
        results: Sequence[Any],
        check: Callable[[str], Mapping[str, Any]],
        facts: Mapping[str, Any],
    ) -> list[dict[str, Any]]:
        """A row for each way, with the facts and the findings of the check. The ways overwrite
        the results. A way that fails, or whose check has a problem, has no samples."""
        rows: dict[str, dict[str, Any]] = {}
        right: dict[str, Call] = {}
        for name, call in ways.items():
            rows[name] = {"way": name, **facts}
            for result in results:
                result.fill_(math.nan)
            try:
                call()
                rows[name] |= check(name)
            except Exception as error:  # any error of a library
                rows[name]["problem"] = first_line(error)
            if rows[name]["problem"] is None:
                right[name] = call
        for name, samples_ns in sample(self.torch, right, self._flush, self._seconds).items():
            low, middle, high = statistics.quantiles(samples_ns, n=4, method="inclusive")
            rows[name] |= {"median_ns": middle, "iqr_ns": high - low, "samples_ns": samples_ns}
        return list(rows.values())

    def head(self) -> dict[str, Any]:
        """The facts that all rows share."""
        return {
            **facts(self._gpu),
            "versions": {"numpy": np.__version__}
            | {name: sys.modules[name].__version__ for name in self.found},
            "run_s": time.perf_counter() - self._begin,
            "protocol": "CUDA events around each call, the L2 cache flushed before it; rounds in "
            "random order, the first one discarded; tensors with out=, no TF32; uniform [-1, 1]",
        }


def verdict(share: float) -> dict[str, Any]:
    """The largest error as a share of its bound, and the problem if it is above 1."""
    problem = None if share <= 1 else f"wrong: {share:.2g} times the error bound"
    return {"worst_share_of_bound": share, "problem": problem}


class Exact:
    """A product by float64 on the GPU."""

    def __init__(self, A: Any, B: Any) -> None:
        A, B = A.double(), B.double()
        self._product, self._size = A @ B, A.abs() @ B.abs()
        self._gamma = gamma(A.shape[-1])

    def checked(self, result: Any) -> dict[str, Any]:
        """The largest error as a share of its bound, and the problem if it is above 1."""
        error = (result.double() - self._product).abs() / self._size
        share = float(error.max()) / self._gamma
        if math.isnan(share):
            share = math.inf
        return verdict(share)


def report_problems(rows: list[dict[str, Any]]) -> list[str]:
    """Prints the problems. Returns the ways that have one."""
    problems = [row for row in rows if row["problem"]]
    for row in problems:
        print(f"{row['way']} at {row['case']}: {row['problem']}", file=sys.stderr)
    return [row["way"] for row in problems]


def sample(
    torch: Any, calls: Mapping[str, Call], flush: Call, seconds: float
) -> dict[str, list[int]]:
    """Times of each call in nanoseconds by CUDA events, in rounds with a random order."""
    samples: dict[str, list[int]] = {name: [] for name in calls}
    order = random.Random(0)
    names = list(calls)
    end = time.perf_counter() + seconds
    for turn in range(1 + MOST_ROUNDS):
        if turn > FEWEST_ROUNDS and time.perf_counter() > end:
            break
        order.shuffle(names)
        taken = {name: queued(torch, calls[name], flush) for name in names}
        torch.cuda.synchronize()
        if turn:  # the first round warms up
            for name, (begin, done) in taken.items():
                samples[name].append(round(1e6 * begin.elapsed_time(done)))
    return samples


def queued(torch: Any, call: Call, flush: Call) -> tuple[Any, Any]:
    """Queues a call after a flush, between two events."""
    begin, done = (torch.cuda.Event(enable_timing=True) for _ in "ab")
    flush()
    begin.record()
    call()
    done.record()
    return begin, done


def flush_of(torch: Any, l2_bytes: int) -> Call:
    """Reads enough memory to replace the L2 cache. Reading leaves no writes to the next kernel."""
    memory = torch.empty((FLUSHED * l2_bytes // 4,), device="cuda").fill_(0)
    return lambda: memory.sum()
