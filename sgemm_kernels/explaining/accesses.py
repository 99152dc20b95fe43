"""The memory accesses of one source line of a kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """All accesses by one source line to one array with one access width, in the traced block.

    A request is issued by the 32 threads of a warp together. A request to global memory transfers
    whole sectors of 32 bytes. A request to shared memory takes wavefronts: in each wavefront, each
    of the 32 banks delivers one 4-byte word to all threads that requested it.

    Transfers without threads count as if a warp made them with 16 bytes per thread. These are TMA
    copies of a matrix tile, and reads of shared memory by tensor cores for a warpgroup's product.
    """

    file: str
    """The kernel's file or an included file."""
    line: int
    """Line number in that file, from 1."""
    text: str
    """Text of the line. Empty if the file was not included by ``#include "name"``."""
    launch: int
    """Index of the kernel launch within the product, from 0."""
    space: str
    """'global' or 'shared'."""
    operand: str
    """'A', 'B' or 'C'; 'scratch' for global memory that passes data between the kernels of one
    product; or the name of an array in shared memory."""
    kind: str
    """'load' or 'store'."""
    copied: bool
    """True for an asynchronous copy (cp.async, TMA) from global to shared memory. Its load and its
    store are separate accesses."""
    bytes_per_thread: int
    requests: int
    lanes: int
    """Participating threads, summed over all requests."""
    sectors: int | None
    """Sectors, summed over all requests; None for shared memory."""
    wavefronts: int | None
    """Wavefronts, summed over all requests; None for global memory. Accesses of 8 and 16 bytes per
    thread are counted for half-warps and quarter-warps. Two quarter-warps take one wavefront if
    each thread loads the same 16 bytes as the next thread, or as the next but one."""
    lines: int | None
    """128-byte lines, summed over all requests: the cycles that the L1 cache needs. None for shared
    memory."""
    least: int
    """Minimum number of sectors or wavefronts for the same bytes."""
    row_bytes: int
    """Bytes from one row of the operand to the next; for shared memory, one pass over the banks."""
    first_request: tuple[int | None, ...]
    """For the first request and each thread of the warp: byte offset from the array's start, or
    None if the thread does not participate."""
    in_kernel_file: bool
    """True if the line is in the kernel's own file, False if it is in an included file."""

    @property
    def place(self) -> str:
        """The line number, with the file's name if it is an included file."""
        return str(self.line) if self.in_kernel_file else f"{self.file}:{self.line}"

    @property
    def sectors_per_request(self) -> float | None:
        return None if self.sectors is None else self.sectors / self.requests

    @property
    def wavefronts_per_request(self) -> float | None:
        return None if self.wavefronts is None else self.wavefronts / self.requests

    @property
    def verdict(self) -> str:
        """The sectors or wavefronts per request compared with the minimum, as text."""
        taken = self._transactions / self.requests
        best = self.least / self.requests
        unit = "sector" if self.space == "global" else "wavefront"
        amount = f"{taken:.3g} {unit}{'' if taken == 1 else 's'}"
        return amount + (f" (minimum: {best:.3g})" if taken > best else ", the minimum")

    @property
    def wasteful(self) -> bool:
        """True if other addresses for the same bytes would need fewer sectors or wavefronts."""
        return self._transactions > self.least

    @property
    def _transactions(self) -> int:
        taken = self.sectors if self.wavefronts is None else self.wavefronts
        assert taken is not None
        return taken
