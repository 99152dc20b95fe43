"""The exact counts that a level's goal can limit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .._gpus import SECTOR_BYTES
from ..custom.sanitizer_program import ProductCounts
from ..explaining.accesses import Access
from ..explaining.trace import Trace


@dataclass(frozen=True)
class Counted:
    """The counts of one product on the CPU device."""

    trace: Trace
    product: ProductCounts
    dynamic_shared_bytes: int


@dataclass(frozen=True)
class Count:
    """A value, and the access that adds most to it (None if no single one does)."""

    value: float
    access: Access | None = None


def _of(space: str, kind: str | None, counted: Counted) -> list[Access]:
    return [
        access
        for access in counted.trace.accesses
        if access.space == space and kind in (None, access.kind)
    ]


def _summed(accesses: Iterable[Access], each: Callable[[Access], float], over: float) -> Count:
    """The sum for these accesses, divided by ``over``."""
    found = [(each(access), access) for access in accesses]
    most = max(found, key=lambda pair: pair[0], default=(0.0, None))
    return Count(sum(value for value, _ in found) / over, most[1] if most[0] > 0 else None)


def _sector_bytes(counted: Counted) -> Count:
    def moved(access: Access) -> float:
        return SECTOR_BYTES * (access.sectors or 0)

    return _summed(_of("global", None, counted), moved, counted.trace.multiply_adds)


def _extra_sectors(counted: Counted) -> Count:
    def extra(access: Access) -> float:
        return (access.sectors or 0) - access.least

    return _summed(_of("global", None, counted), extra, 1)


def _bank_conflicts(counted: Counted) -> Count:
    def extra(access: Access) -> float:
        return (access.wavefronts or 0) - access.least

    return _summed(_of("shared", None, counted), extra, 1)


def _shared_loads(counted: Counted) -> Count:
    loads = _of("shared", "load", counted)
    return _summed(loads, lambda access: access.lanes, counted.trace.multiply_adds)


def _per_wavefront(counted: Counted) -> Count:
    """0 if the kernel does not use shared memory, since it then does not reach the goal either."""
    taken = _summed(_of("shared", None, counted), lambda access: access.wavefronts or 0, 1)
    value = counted.trace.multiply_adds / taken.value if taken.value else 0.0
    return Count(value, taken.access)


def _share(counted: Counted, has: Callable[[Access], bool]) -> Count:
    """The share of the bytes loaded from A and B that such accesses load."""
    loads = [a for a in _of("global", "load", counted) if a.operand in ("A", "B")]
    every = _summed(loads, lambda a: a.lanes * a.bytes_per_thread, 1)
    others = _summed(
        [a for a in loads if not has(a)], lambda a: a.lanes * a.bytes_per_thread, every.value or 1
    )
    return Count(1 - others.value if every.value else 0.0, others.access)


def _tensor_share(counted: Counted) -> Count:
    return Count(counted.trace.tensor_multiply_adds / counted.trace.multiply_adds)


COUNTS: dict[str, Callable[[Counted], Count]] = {
    "bytes of sectors per multiply-add": _sector_bytes,
    "sectors above the minimum": _extra_sectors,
    "bank conflicts": _bank_conflicts,
    "loads from shared memory per multiply-add": _shared_loads,
    "multiply-adds per wavefront": _per_wavefront,
    "share of loaded bytes by float4": lambda counted: _share(
        counted, lambda access: access.bytes_per_thread == 16
    ),
    "share of loaded bytes by cp.async": lambda counted: _share(
        counted, lambda access: access.copied
    ),
    "multiply-adds on tensor cores per multiply-add": _tensor_share,
    "barriers of a block": lambda counted: Count(counted.product.barriers),
    "share of shared loads after a load of the next tile": lambda counted: Count(
        counted.product.reads_ahead / max(counted.product.shared_reads, 1)
    ),
    "share of shared loads with a copy on its way": lambda counted: Count(
        counted.product.reads_in_flight / max(counted.product.shared_reads, 1)
    ),
    "share of waits that leave a copy on its way": lambda counted: Count(
        counted.product.waits_with_more / max(counted.product.waits, 1)
    ),
    "share of copies that arrive at an mbarrier": lambda counted: Count(
        counted.product.copied_to_mbarriers / max(counted.product.copied, 1)
    ),
    "atomic operations": lambda counted: Count(counted.product.atomics),
    "accesses of the busiest thread": lambda counted: Count(counted.product.accesses),
    "bytes of shared memory": lambda counted: Count(
        counted.product.static_shared_bytes + counted.dynamic_shared_bytes
    ),
}
"""By the names that goal.toml uses. A sector is 32 bytes of global memory. A wavefront is one cycle
of shared memory. A bank conflict is a wavefront above the minimum for the same bytes."""
