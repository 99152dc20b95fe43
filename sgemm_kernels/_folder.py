"""Finds the user's cache folder."""

import os
from pathlib import Path

VARIABLE = "SGEMM_KERNELS_CACHE"


def wanted() -> Path:
    """$SGEMM_KERNELS_CACHE, or sgemm_kernels in the user's cache folder. It need not exist."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):  # the XDG Base Directory Specification says to ignore it
        caches = os.path.expanduser("~/.cache")
    return Path(caches).absolute() / "sgemm_kernels"
