"""Where the user's caches are."""

import os
from pathlib import Path

VARIABLE = "SGEMM_KERNELS_CACHE"


def wanted() -> Path:
    """$SGEMM_KERNELS_CACHE, or sgemm_kernels in the user's caches, whether it is there or not."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):  # which is none, by the XDG Base Directory Specification
        caches = os.path.expanduser("~/.cache")
    return Path(caches).absolute() / "sgemm_kernels"
