"""Compares a rung's predicted and measured speedup over the one before, and explains the
difference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .limits import Limits

_AGREEMENT = 1.05  # factors closer to 1 than this need no explanation
_MIN_STALL = 0.1  # waiting warps per instruction; fewer are not mentioned


@dataclass(frozen=True, slots=True)
class Gain:
    """Speedups. The measured one is the product of the other three."""

    predicted: float
    """As written: from the busiest units and the work in the sources."""
    compiled: float | None
    """The prediction as compiled over the prediction as written, if the profiler counted both."""
    waiting: float | None
    """Effect of waiting beyond the busiest units' time."""
    measured: float | None
    cause: str
    """Explains why the measured gain differs from the predicted one."""
    unmet: bool
    """True if the sampling of either kernel ended before its criteria were met."""

    @property
    def as_compiled(self) -> float | None:
        """The prediction for the compiled kernels; None unless the profiler counted both."""
        return None if self.compiled is None else self.predicted * self.compiled


def gain(
    before: tuple[str, Limits], after: tuple[str, Limits], stalls: Mapping[str, float]
) -> Gain:
    """The gain of the second kernel over the first. `stalls` are the profiler's for the second."""
    (old_name, old), (new_name, new) = before, after
    predicted, unmet = old.predicted_s / new.predicted_s, old.unmet or new.unmet
    if old.measured_s is None or new.measured_s is None:
        missing = "At least one of the two kernels was not measured on this GPU."
        return Gain(predicted, None, None, None, missing, unmet)
    measured = old.measured_s / new.measured_s
    if old.compiled_s is None or new.compiled_s is None:
        waiting = measured / predicted
        unknown = (
            "The profiler did not count both kernels, so the difference cannot be split into "
            "compiled code and waiting."
        )
        return Gain(predicted, None, waiting, measured, _agreement(waiting) or unknown, unmet)
    compiled = old.compiled_s / new.compiled_s / predicted
    waiting = measured / predicted / compiled
    cause = _agreement(measured / predicted)
    if cause is None and abs(math.log(compiled)) >= abs(math.log(waiting)):
        cause = (
            "Mostly compiled code: by the profiler's counts, the busiest unit of "
            f"{old_name} ({old.compiled_unit}) takes {_share(old.compiled_s, old.predicted_s)} of "
            f"the time predicted from the source. For {new_name} ({new.compiled_unit}) it takes "
            f"{_share(new.compiled_s, new.predicted_s)}."
        )
    elif cause is None:
        worst = max(stalls, key=lambda name: stalls[name], default=None)
        cause = (
            f"Mostly waiting: the busiest unit of {old_name} works "
            f"{_share(old.compiled_s, old.measured_s)} of the measured time, the busiest unit of "
            f"{new_name} {_share(new.compiled_s, new.measured_s)}."
        )
        if worst is not None and stalls[worst] >= _MIN_STALL:
            cause += f" By the profiler's stall counters, its warps wait most {worst}."
    return Gain(predicted, compiled, waiting, measured, cause, unmet)


def _agreement(ratio: float) -> str | None:
    agrees = 1 / _AGREEMENT < ratio < _AGREEMENT
    return f"Prediction and measurement agree within {_AGREEMENT - 1:.0%}." if agrees else None


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}"
