"""The pinned memory of results: how much there may be, and how much there is."""

import operator
import os
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsIndex

from . import _core
from ._cgroups import CGROUPS, PROC, folders, number_in

SHARE = 2  # of what the machine or its cgroup has, pinned memory may be one half


@dataclass(frozen=True, slots=True)
class Memory:
    """Pinned memory that results live in, in bytes."""

    live_bytes: int
    """In arrays, and in calls that run."""
    idle_bytes: int
    """Kept for the next results."""
    limit_bytes: int
    """What both may be together; beyond it results live in ordinary memory."""

    def __str__(self) -> str:
        live, idle, limit = (
            f"{value / 1e9:.3f} GB"
            for value in (self.live_bytes, self.idle_bytes, self.limit_bytes)
        )
        return f"pinned memory: {live} live, {idle} idle, limit {limit}"


def memory(*, limit: SupportsIndex | None = None, empty: bool = False) -> Memory:
    """How much pinned memory there is, after a change of its limit, or of giving idle memory back.

    Results of products on a GPU, and arrays from ``empty``, live in memory that the GPU copies
    from and to by itself. It is kept when an array dies, for the next. The limit counts live and
    idle memory; at first it is half of the machine's memory, or of what the process's cgroups
    (version 1 or 2) allow if that is less. Beyond it, and where the system refuses to pin,
    ordinary memory serves, which takes longer. Arrays keep what they have when the limit falls
    below it.

    Parameters
    ----------
    limit : int, optional
        A new limit in bytes, at least 0. What is idle beyond it goes back to the system.
    empty : bool
        Give all idle memory back to the system, and to the GPUs what is kept there from call to
        call.

    Returns
    -------
    Memory
        Bytes live, idle and allowed.

    Raises
    ------
    TypeError, ValueError
        The limit is no integer, or negative.
    """
    if limit is not None:
        try:
            limit = operator.index(limit)
        except TypeError:
            message = f"limit must be an int, a number of bytes, and is {limit!r}"
            raise TypeError(message) from None
        if not 0 <= limit < 2**63:
            raise ValueError(f"limit is {limit} bytes: pass 0 for none, or any number below 2**63")
        _core._set_memory_limit(limit)
    if empty:
        _core._empty_memory()
    return Memory(*_core._memory())


def usable_bytes(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """What this process may use of the machine's memory, in bytes.

    It is what the machine has, or the least that a cgroup of the process or a parent of it allows.
    """
    known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for version, folder in folders("memory", proc, cgroups):
        limit = number_in(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
        if limit is not None:
            known.append(limit)
    return min(known)


def set_first_limit() -> None:
    """Sets the limit that holds until ``memory`` is told another."""
    _core._set_memory_limit(usable_bytes() // SHARE)
