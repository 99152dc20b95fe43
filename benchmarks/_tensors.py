"""Products of PyTorch's tensors: each way is checked, then all ways are timed in turn."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from _modules import first_line, imported
from _results import facts
from batched import flush_of, sample

from sgemm_kernels._accuracy import gamma
from sgemm_kernels.measuring.devices import find_gpu

Call = Callable[[], Any]


class Timer:
    """Checks and times on the first GPU. Raises DeviceError without a GPU, and OSError without
    PyTorch."""

    def __init__(self, what: str, seconds: float) -> None:
        """``seconds``: to sample a product, all ways together."""
        self._begin = time.perf_counter()
        self._gpu = find_gpu(what)
        found, missing = imported({"torch": "torch"})
        if "torch" not in found:
            raise OSError(f"PyTorch is missing: {missing['torch']}")
        self.torch = found["torch"]
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
            "versions": {"numpy": np.__version__, "torch": self.torch.__version__},
            "run_s": time.perf_counter() - self._begin,
            "protocol": "CUDA events around each call, the L2 cache flushed before it; rounds in "
            "random order, the first one discarded; tensors with out=, no TF32; uniform [-1, 1]",
        }


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
        problem = None if share <= 1 else f"wrong: {share:.2g} times the error bound"
        return {"worst_share_of_bound": share, "problem": problem}


def report_problems(rows: list[dict[str, Any]]) -> list[str]:
    """Prints the problems. Returns the ways that have one."""
    problems = [row for row in rows if row["problem"]]
    for row in problems:
        print(f"{row['way']} at {row['case']}: {row['problem']}", file=sys.stderr)
    return [row["way"] for row in problems]
