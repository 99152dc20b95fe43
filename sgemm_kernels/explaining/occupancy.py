"""Computes how many blocks fit on a multiprocessor, and which resource limits them."""

from dataclasses import dataclass

from .._gpus import WARP, Gpu

_REGISTER_GRANULARITY = 8  # a thread's registers are allocated in multiples of this


@dataclass(frozen=True, slots=True)
class Room:
    """The number of blocks that fit into one resource."""

    resource: str
    each: int
    """Amount that a block takes."""
    there: int
    """Amount that a multiprocessor has."""
    blocks: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks of one kernel on a multiprocessor."""

    rooms: tuple[Room, ...]
    blocks: int
    """Maximum number, by the scarcest resource."""
    warps: int
    """Warps in this number of blocks."""
    warps_there: int
    """Maximum number of warps on a multiprocessor."""
    measured_warps: float | None
    registers_a_thread: int
    """Minimum: a thread's accumulators and the values of one step of k."""
    registers_between: tuple[int, int] | None
    """Registers per thread that explain the measured number of blocks. None if all blocks that fit
    were measured, or if nothing was measured."""


def occupancy(
    gpu: Gpu,
    threads: int,
    shared_bytes: int,
    thread_tile: tuple[int, int],
    warps_percent: float | None,
) -> Occupancy:
    """Computes the occupancy. `warps_percent` is the profiler's share of the maximum warps."""
    TM, TN = thread_tile
    needed = TM * TN + TM + TN
    registers = -(-needed // _REGISTER_GRANULARITY) * _REGISTER_GRANULARITY * threads
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
            step = _REGISTER_GRANULARITY
            between = (too_many // step * step + 1, most // step * step)
    return Occupancy(rooms, blocks, blocks * threads // WARP, there, measured, needed, between)
