"""The number of threads of the CPU device and of host copies for a GPU.

The extension reads the variable and the quota of the cgroups when it is loaded.
"""

import os
import warnings

VARIABLE = "SGEMM_KERNELS_THREADS"
MOST = 256


def check_asked() -> None:
    """Warns if the number in the environment variable is invalid and therefore ignored."""
    text = os.environ.get(VARIABLE, "")
    if text and not (text.isdecimal() and 1 <= int(text) <= MOST):
        warnings.warn(
            f"ignoring {VARIABLE}={text!r}: set it to a number of threads from 1 to {MOST}, or "
            "unset it to use every core",
            RuntimeWarning,
            stacklevel=2,
        )
