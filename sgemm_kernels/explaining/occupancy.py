"""How many blocks a multiprocessor has room for, and what leaves no room for more."""

from dataclasses import dataclass

from .._gpus import WARP, Gpu

_REGISTERS_AT_ONCE = 8  # in which a thread's are given


@dataclass(frozen=True, slots=True)
class Room:
    """What one resource has room for."""

    resource: str
    each: int
    """What a block takes of it."""
    there: int
    """What a multiprocessor has."""
    blocks: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks of one kernel on a multiprocessor."""

    rooms: tuple[Room, ...]
    blocks: int
    """At most, by the scarcest resource."""
    warps: int
    """Of so many blocks."""
    warps_there: int
    """Of the most threads that a multiprocessor takes."""
    measured_warps: float | None
    registers_a_thread: int
    """At least: a thread's sums, and the values of one step of k."""
    registers_between: tuple[int, int] | None
    """What a thread must take for there to be no more blocks than were measured; None where there
    were all that there is room for, or nothing was measured."""


def occupancy(
    gpu: Gpu,
    threads: int,
    shared_bytes: int,
    thread_tile: tuple[int, int],
    warps_percent: float | None,
) -> Occupancy:
    """By arithmetic; `warps_percent` is the profiler's share of the warps that there could be."""
    TM, TN = thread_tile
    needed = TM * TN + TM + TN
    registers = -(-needed // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE * threads
    shared = shared_bytes + gpu.shared_bytes_taken
    rooms = (
        Room("blocks", 1, gpu.blocks, gpu.blocks),
        Room("threads", threads, gpu.threads, gpu.threads // threads),
        Room("bytes of shared memory", shared, gpu.shared_bytes, gpu.shared_bytes // shared),
        Room("registers, at least", registers, gpu.registers, gpu.registers // registers),
    )
    blocks = min(room.blocks for room in rooms)
    there = gpu.threads // WARP
    measured = None if warps_percent is None else there * warps_percent / 100
    between = None
    if measured is not None:
        resident = max(round(measured * WARP / threads), 1)
        if resident < blocks:
            most, too_many = (gpu.registers // (n * threads) for n in (resident, resident + 1))
            step = _REGISTERS_AT_ONCE
            between = (too_many // step * step + 1, most // step * step)
    return Occupancy(rooms, blocks, blocks * threads // WARP, there, measured, needed, between)
