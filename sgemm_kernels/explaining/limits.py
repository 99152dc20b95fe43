"""What limits a kernel: what it asks of each unit of a GPU, over what that unit can do.

A time is predicted by the busiest unit alone, as though it never waited; of a product of several
kernels, which run one after the other, by that of each. What the source asks comes from a trace;
what the compiled kernel asks, from the profiler. The difference between the two is the compiler's;
what is left to the measured time is waiting.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._gpus import SECTOR_BYTES, WARP, WORDS_A_LOAD, gpu_of
from ..measuring.recorded import Record
from .accesses import Access
from .trace import Trace

_OF_TENSOR_INSTRUCTION = 16 * 8 * 16  # multiply-adds of one mma.m16n8k16


@dataclass(frozen=True, slots=True)
class Limit:
    """One unit of a GPU, and how much of it a kernel takes: of the several of a product, the one
    that is predicted to take longest."""

    unit: str
    asked: float
    """By the source, of all blocks."""
    of: str
    """What is asked."""
    rate: str
    """What the unit can do, in words."""
    seconds: float
    """What it takes, if it never waits."""
    share: float
    """Of the time of the busiest unit, which is 1."""
    measured_share: float | None
    """What it did, by the profiler's counts, of what it could have done in the measured time, where
    it had work to the end, over all kernels of the product; the tensor pipe: in what share of the
    clocks of the kernel that multiplies it was busy."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All units, for one kernel at one size on one GPU."""

    units: tuple[Limit, ...]
    predicted_s: float
    """What the busiest unit takes, of each kernel of the product."""
    compiled_s: float | None
    """What the busiest unit takes of all that the profiler counted."""
    compiled_unit: str | None
    """Which unit that is."""
    measured_s: float | None
    unmet: bool
    """Whether its sampling ended before its criteria were met."""

    @property
    def limiting(self) -> Limit:
        """The busiest, as predicted."""
        return max(self.units, key=lambda limit: limit.seconds)


@dataclass(frozen=True, slots=True)
class _Unit:
    of: str
    a_second: float
    rate: str
    per_block: bool
    """Whether each multiprocessor has its own, which is idle when no block is left for it."""


def limits(trace: Trace, record: Record) -> Limits:
    """Of the traced kernel, for all blocks of the product, on the recorded GPU."""
    units = _units(record)
    launches = [_asked(trace, launch) for launch in sorted({a.launch for a in trace.accesses})]
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
        "device memory": _Unit("bytes", copied, f"{copied / 1e12:.2f} TB/s, as a copy had", False),
        "L2 cache": _Unit(
            "bytes",
            gpu.l2_bytes * record.clock_hz,
            f"{gpu.l2_bytes} bytes a clock",
            False,
        ),
        "L1 and shared memory": _Unit(
            "lines of 128 bytes", each(gpu.lines), f"{gpu.lines} a clock and SM", True
        ),
        "issue slots": _Unit(
            "instructions of a warp",
            each(gpu.instructions),
            f"{gpu.instructions} a clock and SM",
            True,
        ),
        "FMA pipe": _Unit(
            "multiply-adds", each(gpu.multiply_adds), f"{gpu.multiply_adds} a clock and SM", True
        ),
        "tensor pipe": _Unit(
            "multiply-adds of halves",
            each(gpu.tensor_multiply_adds),
            f"{gpu.tensor_multiply_adds} a clock and SM",
            True,
        ),
    }


def _tiles(trace: Trace) -> tuple[int, int]:
    """How many blocks there are down C, and across."""
    return math.ceil(trace.M / trace.rows), math.ceil(trace.N / trace.cols)


def times(access: Access, trace: Trace) -> float:
    """How often the product does what the traced block does there.

    Kernels before the one that stores C prepare the operands, each line of them once.
    """
    down, across = _tiles(trace)
    storing = min(a.launch for a in trace.accesses if a.operand == "C" and a.kind == "store")
    if access.launch >= storing:
        return down * across
    return {"A": down, "B": across}.get(access.operand, (down + across) / 2)


def turns(access: Access) -> int:
    """Of the level-1 cache and shared memory, in each of which 128 bytes can move. An asynchronous
    copy takes them where it is written: what it loads passes the cache by."""
    if access.copied and access.kind == "load":
        return 0
    lines = access.wavefronts if access.lines is None else access.lines
    assert lines is not None
    return lines


def _asked(trace: Trace, launch: int) -> dict[str, float]:
    """Of each unit, by the source, by all blocks of one launch of the product."""
    own = [access for access in trace.accesses if access.launch == launch]
    multiplies = launch == max(trace.accesses, key=lambda a: times(a, trace) * a.requests).launch
    blocks = math.prod(_tiles(trace)) if multiplies else 0
    # An asynchronous copy's load and store are one instruction.
    issued = [a for a in own if not (a.copied and a.kind == "store")]
    requests = sum(times(access, trace) * access.requests for access in issued)
    tensor = blocks * trace.tensor_multiply_adds
    multiply_adds = trace.M * trace.N * trace.K if multiplies and not tensor else 0
    return {
        "device memory": _from_memory(own, trace),
        "L2 cache": _from_l2(own, trace),
        "L1 and shared memory": sum(times(a, trace) * turns(a) for a in own),
        "issue slots": requests + multiply_adds / WARP + tensor / _OF_TENSOR_INSTRUCTION,
        **({"tensor pipe": tensor} if trace.tensor_multiply_adds else {"FMA pipe": multiply_adds}),
    }


def _from_memory(own: Sequence[Access], trace: Trace) -> float:
    """Bytes, by the accesses of one launch: of each matrix that it touches once all, of what
    kernels hand to each other once what was written."""
    elements = {"A": trace.M * trace.K, "B": trace.K * trace.N, "C": trace.M * trace.N}
    matrices = {access.operand for access in own if access.space == "global"} & elements.keys()

    def scratch(accesses: Sequence[Access], kind: str) -> float:
        wanted = [a for a in accesses if (a.operand, a.kind) == ("scratch", kind)]
        return sum(times(a, trace) * a.lanes * a.bytes_per_thread for a in wanted)

    read = min(scratch(own, "load"), scratch(trace.accesses, "store"))
    return 4 * sum(elements[matrix] for matrix in matrices) + read + scratch(own, "store")


def _from_l2(own: Sequence[Access], trace: Trace) -> float:
    """Bytes, by the accesses of one launch. Of an operand at most what a block reads, once: then
    the level-1 cache has it."""
    total = 0.0
    in_memory = [access for access in own if access.space == "global"]
    for operand in {access.operand for access in in_memory}:
        of_it = [access for access in in_memory if access.operand == operand]
        moved = SECTOR_BYTES * sum(access.sectors or 0 for access in of_it)
        lines = {"A": trace.rows, "B": trace.cols}.get(operand)
        once = moved if lines is None else 4 * trace.K * lines
        total += times(of_it[0], trace) * min(moved, once)
    return total


def _counted(counters: Mapping[str, float], trace: Trace) -> dict[str, float]:
    """The same of all compiled kernels, as far as the profiler counted it: of the asynchronous
    copies of threads their loads, whose lines stand for what they write; of TMA's nothing."""
    if not counters:
        return {}
    in_memory = [access for access in trace.accesses if access.lines is not None]
    sectors = sum(times(access, trace) * (access.sectors or 0) for access in in_memory)
    lines = sum(times(access, trace) * (access.lines or 0) for access in in_memory)
    kinds = ("load", "store")
    moved = sum(counters[f"global_{kind}_sectors"] for kind in kinds)
    wavefronts = sum(counters[f"shared_{kind}_wavefronts"] for kind in kinds)
    found = {
        "device memory": counters["dram_bytes_read"] + counters["dram_bytes_written"],
        "L2 cache": SECTOR_BYTES * counters["l2_sectors"],
        "issue slots": counters["instructions"],
    }
    if _all_is_seen(counters, trace):
        found["L1 and shared memory"] = moved * lines / sectors + wavefronts
    return found if trace.tensor_multiply_adds else found | {"FMA pipe": counters["multiply_adds"]}


def _all_is_seen(counters: Mapping[str, float], trace: Trace) -> bool:
    """Whether the profiler counted what the source loads of shared memory: it does not see what
    tensor cores read there by themselves."""
    loads = [a for a in trace.accesses if (a.space, a.kind) == ("shared", "load")]
    fewest = sum(times(access, trace) * access.least for access in loads) / WORDS_A_LOAD
    return counters["shared_load_wavefronts"] >= fewest
