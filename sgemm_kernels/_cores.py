"""How many threads compute on the CPU device, and copy for a GPU."""

import os
import warnings
from pathlib import Path

from . import _core
from ._cgroups import CGROUPS, PROC, folders, number_in

VARIABLE = "SGEMM_KERNELS_THREADS"
MOST = 256


def quota_cores(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """How many cores' time the cgroups of this process allow, rounded up; 0 for no limit."""
    known = []
    for version, folder in folders("cpu", proc, cgroups):
        if version == 2:
            try:
                quota, period = (folder / "cpu.max").read_text().split()
            except (OSError, ValueError):
                continue
            if quota.isdigit() and period.isdigit():
                known.append((int(quota), int(period)))
        else:
            microseconds = number_in(folder / "cpu.cfs_quota_us")  # -1 for no limit
            period_microseconds = number_in(folder / "cpu.cfs_period_us")
            if microseconds and period_microseconds:
                known.append((microseconds, period_microseconds))
    return min((max(1, -(-quota // period)) for quota, period in known if period), default=0)


def number_asked() -> int:
    """What the environment asks for; 0 if nothing, or, with a warning, if it is no such number."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return 0
    if text.isdecimal() and 1 <= int(text) <= MOST:
        return int(text)
    warnings.warn(
        f"{VARIABLE} is {text!r} and is ignored: set it to a number of threads from 1 to {MOST}, "
        "or leave it out for as many as there are cores",
        RuntimeWarning,
        stacklevel=2,
    )
    return 0


def set_cores() -> None:
    """Has the extension use as many threads as the environment and the cgroups say now."""
    _core._set_usable_cores(number_asked(), quota_cores())
