"""Where the user's caches are."""

import os
from pathlib import Path

VARIABLE = "SGEMM_KERNELS_CACHE"


def wanted() -> Path:
    """$SGEMM_KERNELS_CACHE, or sgemm_kernels in the user's caches, whether it is there or not."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches) / "sgemm_kernels"
