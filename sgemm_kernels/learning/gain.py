"""The measured gain of a level's idea, from the results in the package."""

from ..measuring.recorded import SIZE, record_of
from .level import Level


def gain_text(level: Level) -> str:
    """A sentence with the measured gain, or with the speed of the ladder's kernel."""
    names = [name for name in (level.before, level.rung) if name is not None]
    record = record_of(names)
    seconds = record.seconds
    if any(name not in seconds for name in names):
        return ""
    size = f"M = N = K = {SIZE}"
    speed = 2 * SIZE**3 / seconds[level.rung] / 1e12
    if level.before is None:
        share = ""
        if "cublas" in seconds:
            share = f", {seconds['cublas'] / seconds[level.rung]:.0%} of cuBLAS"
        return (
            f"On an {record.device}, the ladder's kernel {level.rung} reaches {speed:.3g} "
            f"TFLOP/s{share} ({size})."
        )
    times = seconds[level.before] / seconds[level.rung]
    return (
        f"On an {record.device}, the ladder's kernel {level.rung} is {times:.3g} times as fast as "
        f"{level.before}: {speed:.3g} TFLOP/s ({size})."
    )
