"""What a rung gained over the one before: predicted, measured, and whence the difference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .limits import Limits

_ALIKE = 1.05  # factors nearer to one than that need no cause
_SOME = 0.1  # warps that wait, for each instruction; fewer are not worth naming


@dataclass(frozen=True, slots=True)
class Gain:
    """Times the speed. The measured gain is the product of the other three."""

    predicted: float
    """As written: by the busiest units, for what the sources ask."""
    compiled: float | None
    """The prediction as compiled, over the one as written: what the compiled kernels ask, if the
    profiler counted both, over what their sources ask."""
    waiting: float | None
    """What both wait for beside their busiest units."""
    measured: float | None
    cause: str
    """Why the measured gain is another than the predicted one, in a sentence."""
    unmet: bool
    """Whether the sampling of either ended before its criteria were met."""

    @property
    def as_compiled(self) -> float | None:
        """Predicted for what the compiled kernels ask; None unless the profiler counted both."""
        return None if self.compiled is None else self.predicted * self.compiled


def gain(
    before: tuple[str, Limits], after: tuple[str, Limits], stalls: Mapping[str, float]
) -> Gain:
    """Of two kernels by name; `stalls` are the profiler's of the second."""
    (old_name, old), (new_name, new) = before, after
    predicted, unmet = old.predicted_s / new.predicted_s, old.unmet or new.unmet
    if old.measured_s is None or new.measured_s is None:
        return Gain(
            predicted, None, None, None, "Not both of them were measured on one GPU.", unmet
        )
    measured = old.measured_s / new.measured_s
    if old.compiled_s is None or new.compiled_s is None:
        waiting = measured / predicted
        unknown = (
            "The profiler has not counted both, so that it cannot be told what the compiled "
            "kernels ask, and what is waiting."
        )
        return Gain(predicted, None, waiting, measured, _agreement(waiting) or unknown, unmet)
    compiled = old.compiled_s / new.compiled_s / predicted
    waiting = measured / predicted / compiled
    cause = _agreement(measured / predicted)
    if cause is None and abs(math.log(compiled)) >= abs(math.log(waiting)):
        cause = (
            "Mostly what the compiled kernels ask: by the profiler's counts, the busiest unit of "
            f"{old_name} ({old.compiled_unit}) takes {_share(old.compiled_s, old.predicted_s)} of "
            f"the time that its source predicts, that of {new_name} ({new.compiled_unit}) "
            f"{_share(new.compiled_s, new.predicted_s)}."
        )
    elif cause is None:
        worst = max(stalls, key=lambda name: stalls[name], default=None)
        cause = (
            f"Mostly waiting: the busiest unit of {old_name} works "
            f"{_share(old.compiled_s, old.measured_s)} of the measured time, that of {new_name} "
            f"{_share(new.compiled_s, new.measured_s)}."
        )
        if worst is not None and stalls[worst] >= _SOME:
            cause += f" Its warps wait most {worst}, of what the profiler was asked."
    return Gain(predicted, compiled, waiting, measured, cause, unmet)


def _agreement(ratio: float) -> str | None:
    alike = 1 / _ALIKE < ratio < _ALIKE
    return f"They agree within {_ALIKE - 1:.0%}." if alike else None


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}"
