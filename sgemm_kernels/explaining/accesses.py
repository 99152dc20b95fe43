"""The memory accesses of one source line of a kernel."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """What one line does to one array with accesses of one width, over the block traced.

    A request is what the 32 threads of a warp ask for together. One to global memory moves whole
    sectors of 32 bytes. One to shared memory takes wavefronts: in each, every one of 32 banks
    delivers one word of 4 bytes, to all threads that asked for it.

    What moves without threads counts as if a warp's had moved it, 16 bytes each: boxes of a matrix
    that TMA copies, and what tensor cores read of shared memory for a product of a warpgroup.
    """

    file: str
    """The kernel's own, or one that it includes."""
    line: int
    """Of that file, from 1."""
    text: str
    """That line; empty where the file is none that ``#include "name"`` includes."""
    launch: int
    """Which of the kernels that make up the product, from 0."""
    space: str
    """'global' or 'shared'."""
    operand: str
    """'A', 'B' or 'C'; 'scratch', where the kernels of one product keep what they hand to each
    other; or the name of the array in shared memory."""
    kind: str
    """'load' or 'store'."""
    copied: bool
    """Whether an asynchronous copy does it (cp.async, TMA), from global memory straight to shared
    memory: its load and its store are an access each."""
    bytes_per_thread: int
    requests: int
    lanes: int
    """Threads that took part, over all requests."""
    sectors: int | None
    """Over all requests; None for shared memory."""
    wavefronts: int | None
    """Over all requests; None for global memory. For 8 and 16 bytes per thread they are counted
    as for halves and quarters of the warp in turn; two quarters go as one where each thread loads
    the same 16 bytes as its neighbour, or each the same as the second next."""
    lines: int | None
    """Lines of 128 bytes that the requests touch, each request anew: the turns that the level-1
    cache takes. None for shared memory."""
    least: int
    """The sectors or wavefronts that the same bytes would take in the best places."""
    row_bytes: int
    """From one row of the operand to the next; for shared memory, once over the banks."""
    first_request: tuple[int | None, ...]
    """Of the first request, by thread of the warp: bytes from the array's start, None for a thread
    that took no part."""
    in_kernel_file: bool
    """Whether the line is in the kernel's own file, or in one that it includes."""

    @property
    def place(self) -> str:
        """Its line; with the file's name if that is not the kernel's own."""
        return str(self.line) if self.in_kernel_file else f"{self.file}:{self.line}"

    @property
    def sectors_per_request(self) -> float | None:
        return None if self.sectors is None else self.sectors / self.requests

    @property
    def wavefronts_per_request(self) -> float | None:
        return None if self.wavefronts is None else self.wavefronts / self.requests

    @property
    def verdict(self) -> str:
        """In words: what a request takes, and what it would take at best."""
        taken = self._transactions / self.requests
        best = self.least / self.requests
        unit = "sector" if self.space == "global" else "wavefront"
        amount = f"{taken:.3g} {unit}{'' if taken == 1 else 's'}"
        return amount + (
            f", where {best:.3g} would do" if taken > best else ", the fewest possible"
        )

    @property
    def wasteful(self) -> bool:
        """Whether better places for the same bytes would take fewer sectors or wavefronts."""
        return self._transactions > self.least

    @property
    def _transactions(self) -> int:
        taken = self.sectors if self.wavefronts is None else self.wavefronts
        assert taken is not None
        return taken
