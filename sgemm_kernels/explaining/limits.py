"""Finds a kernel's bottleneck: its work for each unit of a GPU, divided by the unit's peak rate.

The predicted time is the time of the busiest unit, assuming that it never waits. If a product uses
several kernels, their predicted times add up. A trace counts the work in the source; the profiler
counts the work of the compiled kernel. The compiler causes the difference between the two. The rest
of the measured time is waiting.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._gpus import SECTOR_BYTES, WARP, WORDS_PER_LOAD, gpu_of
from ..measuring.recorded import Record
from .accesses import Access
from .trace import Trace

_MACS_PER_TENSOR_INSTRUCTION = 16 * 8 * 16  # multiply-adds of one mma.m16n8k16


@dataclass(frozen=True, slots=True)
class Limit:
    """One unit of a GPU and a kernel's use of it. For a product of several kernels, the kernel with
    the longest predicted time."""

    unit: str
    asked: float
    """Work in the source, over all blocks."""
    of: str
    """Unit of the work, such as bytes."""
    rate: str
    """The unit's peak rate, as text."""
    seconds: float
    """Time for this work at the peak rate."""
    share: float
    """Time relative to the busiest unit, which has 1."""
    measured_share: float | None
    """The profiler's count over all kernels of the product, divided by what the unit can do in the
    measured time at its peak rate. For the tensor pipe: the share of clock cycles in which it was
    busy, in the kernel that multiplies."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All units for one kernel at one size on one GPU."""

    units: tuple[Limit, ...]
    predicted_s: float
    """Sum of the busiest unit's time over the kernels of the product."""
    compiled_s: float | None
    """Time of the busiest unit by the profiler's counts."""
    compiled_unit: str | None
    """Name of that unit."""
    measured_s: float | None
    unmet: bool
    """True if its sampling ended before its criteria were met."""

    @property
    def limiting(self) -> Limit:
        """The predicted bottleneck."""
        return max(self.units, key=lambda limit: limit.seconds)


@dataclass(frozen=True, slots=True)
class _Unit:
    of: str
    a_second: float
    rate: str
    per_block: bool
    """True if each multiprocessor has its own unit, which idles when no block is left for it."""


def limits(trace: Trace, record: Record) -> Limits:
    """The limits of the traced kernel, for all blocks of the product, on the recorded GPU."""
    units = _units(record)
    launches = [_work(trace, launch) for launch in sorted({a.launch for a in trace.accesses})]
    counters = record.counters.get(trace.variant, {})
    counted = _counted(counters, trace)
    measured_s = record.seconds.get(trace.variant)
    blocks, multiprocessors = math.prod(_tiles(trace)), gpu_of(record.device).multiprocessors
    uneven = math.ceil(blocks / multiprocessors) * multiprocessors / blocks

    def seconds(unit: str, amount: float) -> float:
        return amount / units[unit].a_second * (uneven if units[unit].per_block else 1)

    taken = [{unit: seconds(unit, n) for unit, n in asked.items()} for asked in launches]
    longest = max(range(len(taken)), key=lambda launch: max(taken[launch].values()))
    asked, predicted = launches[longest], taken[longest]
    compiled = {unit: seconds(unit, amount) for unit, amount in counted.items()}
    shares: dict[str, float] = {}
    if measured_s is not None:
        shares = {unit: taken / measured_s for unit, taken in compiled.items()}
        if "tensor pipe" in asked and "tensor_pipe_percent" in counters:
            shares["tensor pipe"] = counters["tensor_pipe_percent"] / 100
            compiled["tensor pipe"] = shares["tensor pipe"] * measured_s
    most = max(predicted.values())
    found = []
    for unit, amount in asked.items():
        known, unit_s = units[unit], predicted[unit]
        found.append(
            Limit(unit, amount, known.of, known.rate, unit_s, unit_s / most, shares.get(unit))
        )
    busiest = max(compiled, key=lambda unit: compiled[unit], default=None)
    return Limits(
        tuple(found),
        sum(max(of_launch.values()) for of_launch in taken),
        None if busiest is None else compiled[busiest],
        busiest,
        measured_s,
        trace.variant in record.unmet,
    )


def _units(record: Record) -> dict[str, _Unit]:
    gpu = gpu_of(record.device)

    def each(number: float) -> float:
        return number * gpu.multiprocessors * record.clock_hz

    copied = record.copy_bytes_per_s
    return {
        "device memory": _Unit(
            "bytes", copied, f"{copied / 1e12:.2f} TB/s, measured with a copy", False
        ),
        "L2 cache": _Unit(
            "bytes",
            gpu.l2_bytes * record.clock_hz,
            f"{gpu.l2_bytes} bytes per clock",
            False,
        ),
        "L1 and shared memory": _Unit(
            "128-byte lines", each(gpu.lines), f"{gpu.lines} per clock per SM", True
        ),
        "issue slots": _Unit(
            "warp instructions",
            each(gpu.instructions),
            f"{gpu.instructions} per clock per SM",
            True,
        ),
        "FMA pipe": _Unit(
            "multiply-adds", each(gpu.multiply_adds), f"{gpu.multiply_adds} per clock per SM", True
        ),
        "tensor pipe": _Unit(
            "fp16 multiply-adds",
            each(gpu.tensor_multiply_adds),
            f"{gpu.tensor_multiply_adds} per clock per SM",
            True,
        ),
    }


def _tiles(trace: Trace) -> tuple[int, int]:
    """The number of blocks along M and along N."""
    return math.ceil(trace.M / trace.rows), math.ceil(trace.N / trace.cols)


def repetitions(access: Access, trace: Trace) -> float:
    """How often the product repeats an access of the traced block.

    Kernels before the one that stores C prepare the operands: each row of A and column of B once.
    """
    down, across = _tiles(trace)
    storing = min(a.launch for a in trace.accesses if a.operand == "C" and a.kind == "store")
    if access.launch >= storing:
        return down * across
    return {"A": down, "B": across}.get(access.operand, (down + across) / 2)


def l1_cycles(access: Access) -> int:
    """The cycles that an access takes in the L1 cache or shared memory, which move 128 bytes per
    cycle. An asynchronous copy takes them only for its store, because its load bypasses the
    cache."""
    if access.copied and access.kind == "load":
        return 0
    lines = access.wavefronts if access.lines is None else access.lines
    assert lines is not None
    return lines


def _work(trace: Trace, launch: int) -> dict[str, float]:
    """The work in the source for each unit, over all blocks of one launch."""
    own = [access for access in trace.accesses if access.launch == launch]
    multiplies = (
        launch == max(trace.accesses, key=lambda a: repetitions(a, trace) * a.requests).launch
    )
    blocks = math.prod(_tiles(trace)) if multiplies else 0
    # An asynchronous copy's load and store are one instruction.
    issued = [a for a in own if not (a.copied and a.kind == "store")]
    requests = sum(repetitions(access, trace) * access.requests for access in issued)
    tensor = blocks * trace.tensor_multiply_adds
    multiply_adds = trace.M * trace.N * trace.K if multiplies and not tensor else 0
    return {
        "device memory": _from_memory(own, trace),
        "L2 cache": _from_l2(own, trace),
        "L1 and shared memory": sum(repetitions(a, trace) * l1_cycles(a) for a in own),
        "issue slots": requests + multiply_adds / WARP + tensor / _MACS_PER_TENSOR_INSTRUCTION,
        **({"tensor pipe": tensor} if trace.tensor_multiply_adds else {"FMA pipe": multiply_adds}),
    }


def _from_memory(own: Sequence[Access], trace: Trace) -> float:
    """Device memory traffic of one launch in bytes: each accessed matrix once, and scratch data of
    other kernels once per write and read."""
    elements = {"A": trace.M * trace.K, "B": trace.K * trace.N, "C": trace.M * trace.N}
    matrices = {access.operand for access in own if access.space == "global"} & elements.keys()

    def scratch(accesses: Sequence[Access], kind: str) -> float:
        wanted = [a for a in accesses if (a.operand, a.kind) == ("scratch", kind)]
        return sum(repetitions(a, trace) * a.lanes * a.bytes_per_thread for a in wanted)

    read = min(scratch(own, "load"), scratch(trace.accesses, "store"))
    return 4 * sum(elements[matrix] for matrix in matrices) + read + scratch(own, "store")


def _from_l2(own: Sequence[Access], trace: Trace) -> float:
    """L2 traffic of one launch in bytes. A block reads each element of an operand at most once from
    L2, because the L1 cache then holds it."""
    total = 0.0
    in_memory = [access for access in own if access.space == "global"]
    for operand in {access.operand for access in in_memory}:
        of_it = [access for access in in_memory if access.operand == operand]
        moved = SECTOR_BYTES * sum(access.sectors or 0 for access in of_it)
        lines = {"A": trace.rows, "B": trace.cols}.get(operand)
        once = moved if lines is None else 4 * trace.K * lines
        total += repetitions(of_it[0], trace) * min(moved, once)
    return total


def _counted(counters: Mapping[str, float], trace: Trace) -> dict[str, float]:
    """The work of all compiled kernels, as far as the profiler counts it. It counts no TMA copies.
    Of threads' asynchronous copies it counts only the loads, so a load's lines also represent the
    store."""
    if not counters:
        return {}
    in_memory = [access for access in trace.accesses if access.lines is not None]
    sectors = sum(repetitions(access, trace) * (access.sectors or 0) for access in in_memory)
    lines = sum(repetitions(access, trace) * (access.lines or 0) for access in in_memory)
    kinds = ("load", "store")
    moved = sum(counters[f"global_{kind}_sectors"] for kind in kinds)
    wavefronts = sum(counters[f"shared_{kind}_wavefronts"] for kind in kinds)
    found = {
        "device memory": counters["dram_bytes_read"] + counters["dram_bytes_written"],
        "L2 cache": SECTOR_BYTES * counters["l2_sectors"],
        "issue slots": counters["instructions"],
    }
    if _counts_shared_loads(counters, trace):
        found["L1 and shared memory"] = moved * lines / sectors + wavefronts
    return found if trace.tensor_multiply_adds else found | {"FMA pipe": counters["multiply_adds"]}


def _counts_shared_loads(counters: Mapping[str, float], trace: Trace) -> bool:
    """True if the profiler counted the source's loads from shared memory. It does not count reads
    by the tensor cores themselves."""
    loads = [a for a in trace.accesses if (a.space, a.kind) == ("shared", "load")]
    fewest = sum(repetitions(access, trace) * access.least for access in loads) / WORDS_PER_LOAD
    return counters["shared_load_wavefronts"] >= fewest
