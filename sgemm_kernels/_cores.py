"""Sets the number of threads of the CPU device and of host copies for a GPU."""

import os
import warnings
from pathlib import Path

from . import _core
from ._cgroups import CGROUPS, PROC, folders, number_in

VARIABLE = "SGEMM_KERNELS_THREADS"
MOST = 256


def quota_cores(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """The CPU quota of this process's cgroups in cores, rounded up; 0 for no limit."""
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
    """The number in the environment variable. 0 if it is unset or, with a warning, invalid."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return 0
    if text.isdecimal() and 1 <= int(text) <= MOST:
        return int(text)
    warnings.warn(
        f"ignoring {VARIABLE}={text!r}: set it to a number of threads from 1 to {MOST}, or unset "
        "it to use every core",
        RuntimeWarning,
        stacklevel=2,
    )
    return 0


def set_cores() -> None:
    """Passes the thread limits of the environment and the cgroups to the extension."""
    _core._set_usable_cores(number_asked(), quota_cores())
