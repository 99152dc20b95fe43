"""The pinned memory that holds results: its limit and its current size."""

import operator
from dataclasses import dataclass
from typing import SupportsIndex

from . import _core


@dataclass(frozen=True, slots=True)
class Memory:
    """Pinned memory that holds results, in bytes."""

    live_bytes: int
    """Used by arrays and running calls."""
    idle_bytes: int
    """Kept for later results."""
    limit_bytes: int
    """Limit on the sum of both; further results use ordinary memory."""

    def __str__(self) -> str:
        live, idle, limit = (
            f"{value / 1e9:.3f} GB"
            for value in (self.live_bytes, self.idle_bytes, self.limit_bytes)
        )
        return f"pinned memory: {live} live, {idle} idle, limit {limit}"


def memory(*, limit: SupportsIndex | None = None, empty: bool = False) -> Memory:
    """Reports the pinned memory in use. Optionally changes its limit or frees idle memory.

    Results of products on a GPU, and arrays from ``empty``, are in pinned memory, which the GPU
    reads and writes directly. When an array dies, its memory is kept for later arrays. The limit
    covers live and idle memory. Initially it is half of the machine's memory, or half of the limit
    of the process's cgroups (version 1 or 2) if that is less. Beyond the limit, or if the system
    refuses to pin memory, results use ordinary memory, which is slower. Lowering the limit does not
    affect existing arrays.

    Parameters
    ----------
    limit : int, optional
        The new limit in bytes, at least 0. Idle memory beyond it is freed.
    empty : bool
        Free all idle pinned memory, and the memory on the GPUs that is kept between calls.

    Returns
    -------
    Memory
        Bytes live, idle and allowed.

    Raises
    ------
    TypeError, ValueError
        The limit is not an integer, or is negative.
    """
    if limit is not None:
        try:
            limit = operator.index(limit)
        except TypeError:
            message = f"limit must be a number of bytes (an int), got {limit!r}"
            raise TypeError(message) from None
        if not 0 <= limit < 2**63:
            raise ValueError(
                f"limit is {limit} bytes: pass a number from 0 (no pinned memory) to 2**63 - 1"
            )
        _core._set_memory_limit(limit)
    if empty:
        _core._empty_memory()
    return Memory(*_core._memory())
