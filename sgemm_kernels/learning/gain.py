"""The measured gain of a level's idea, from the results in the package."""

from ..measuring.recorded import SIZE, record_of
from .judge import Verdict


def gain_text(verdict: Verdict) -> str:
    """A sentence with the gain of the level's idea, if two of the ladder's kernels differ by it;
    otherwise with the speed of the kernel that is most like the learner's."""
    level = verdict.level
    names = [verdict.similar] if level.before is None else [level.before, level.rung]
    record = record_of([*names, "cublas"])
    seconds, gpu = record.seconds, record.device + record.age
    if any(name not in seconds for name in names):
        return ""
    size = f"M = N = K = {SIZE}"
    speed = 2 * SIZE**3 / seconds[names[-1]] / 1e12
    if level.before is None:
        share = ""
        if "cublas" in seconds:
            share = f", {seconds['cublas'] / seconds[verdict.similar]:.0%} of cuBLAS"
        return (
            f"The ladder's kernel that is most like yours is {verdict.similar}. On an "
            f"{gpu} it reaches {speed:.3g} TFLOP/s{share} ({size})."
        )
    times = seconds[level.before] / seconds[level.rung]
    return (
        f"In the ladder, {level.rung} has this idea, and {level.before} lacks it. On an "
        f"{gpu}, {level.rung} is {times:.3g} times as fast: {speed:.3g} TFLOP/s "
        f"({size})."
    )
