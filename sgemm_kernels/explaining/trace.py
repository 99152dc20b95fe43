"""What a kernel asks of memory, counted per line of its source from its own accesses.

The counts come from a build of the kernels that notes every access. It runs on the CPU device, so
no GPU is needed; what it counts are the requests of a GPU's warps, not those of the CPU.
"""

import operator
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _core
from .._catalog import kernel_file, variants
from .._custom_kernel import CustomKernel
from .._gpus import SECTOR_BYTES
from .._source_text import line_at
from .._table import as_html, table
from .accesses import Access

if TYPE_CHECKING:
    from .._style import Picture

_HEADER = ("line", "source", "access", "bytes", "requests", "per request", "at best")
_COLUMNS = 100
"""What is printed is no wider."""


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """The accesses of a kernel's first block to memory, by line. ``plot`` draws them.

    Prints as a table, in a notebook too.
    """

    variant: str
    M: int
    N: int
    K: int
    rows: int
    """Of the results that the block computes."""
    cols: int
    tensor_multiply_adds: int
    """Of the block, by tensor cores: with halves for factors."""
    owners: bytes
    """Of each result of the block, by rows, the number of the thread that stored it, as int16 in
    the machine's byte order; -1 where none did. Where results go through shared memory first, as
    from tensor cores, another thread of the same warp has computed it."""
    accesses: tuple[Access, ...]
    """In the order of their files and lines."""

    @property
    def multiply_adds(self) -> int:
        """Of the block traced."""
        return self.rows * self.cols * self.K

    @property
    def global_bytes_per_multiply_add(self) -> float:
        """Bytes that threads ask of global memory, loads and stores, per multiply-add."""
        return self._asked("global") / self.multiply_adds

    @property
    def shared_bytes_per_multiply_add(self) -> float:
        """Bytes that threads ask of shared memory, loads and stores, per multiply-add."""
        return self._asked("shared") / self.multiply_adds

    @property
    def sector_bytes_per_multiply_add(self) -> float:
        """Bytes of the sectors that global requests move, before any cache, per multiply-add.

        Less than what threads ask for where they ask for the same word together, more where they
        leave parts of a sector unused.
        """
        sectors = sum(access.sectors or 0 for access in self.accesses)
        return SECTOR_BYTES * sectors / self.multiply_adds

    def plot(self, *, dark: bool = False) -> "Picture":
        """Draws which addresses a warp touches in one request, for each access of the kernel.

        Needs matplotlib: ``pip install 'sgemm_kernels[plot]'``.

        Parameters
        ----------
        dark
            For dark pages.

        Returns
        -------
        Picture
            A panel for each access; those that look the same share one.
        """
        from .trace_picture import draw

        return draw(self.variant, self.accesses, dark=dark)

    def __repr__(self) -> str:
        cells = self._cells()
        wide = max(map(len, table(_HEADER, cells).splitlines()))
        source = max((len(text) for _, text, *_ in cells), default=0)
        room = max(source - max(wide - _COLUMNS, 0), len(_HEADER[1]))
        cells = [(line, _cut(text, room), *others) for line, text, *others in cells]
        summary = (textwrap.fill(line, _COLUMNS) for line in self._summary())
        return "\n".join([self._title(), "", table(_HEADER, cells), "", *summary])

    def _repr_html_(self) -> str:
        return as_html(self._title(), _HEADER, self._cells(), "\n".join(self._summary()))

    def _title(self) -> str:
        return (
            f"{self.variant}, M = {self.M}, N = {self.N}, K = {self.K}: "
            f"one block, {self.rows} x {self.cols} results"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                access.place,
                access.text.strip(),
                f"{access.kind} {access.operand} ({access.space})",
                str(access.bytes_per_thread),
                str(access.requests),
                _amount(access.sectors_per_request, "sector")
                + _amount(access.wavefronts_per_request, "wavefront"),
                f"{access.least / access.requests:.3g}",
            )
            for access in self.accesses
        ]

    def _summary(self) -> list[str]:
        return [
            f"bytes per multiply-add: {self.global_bytes_per_multiply_add:.4g} asked of global "
            f"memory, {self.sector_bytes_per_multiply_add:.4g} moved in sectors; "
            f"{self.shared_bytes_per_multiply_add:.4g} asked of shared memory"
        ]

    def _asked(self, space: str) -> int:
        return sum(a.lanes * a.bytes_per_thread for a in self.accesses if a.space == space)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def trace(variant: str | CustomKernel, M: int, N: int, K: int) -> Trace:
    """Counts what a kernel asks of memory in its first block, for A (M, K) and B (K, N).

    Any machine will do: the counting build of the kernel runs on the CPU device, with alpha = 1,
    beta = 0 and operands by rows, laid out as on a GPU. Time grows with K, about a second for 4096;
    M and N matter only where they cut the block short. In a block cut short, a thread that leaves
    out an access is counted from then on together with what the others did an access before. Where
    several blocks or kernels compute the results of one block together, all of them are counted,
    with what they keep in memory in between.

    Parameters
    ----------
    variant
        A name from ``variants()``, or a kernel of your own.
    M, N, K
        The sizes of the product.

    Returns
    -------
    Trace
        What each line of the kernel asked for.

    Raises
    ------
    ValueError, TypeError
        For an unknown variant, and for sizes below 1 or that are no integers.
    UnsupportedVariantError
        For a variant that does not run on the CPU device.
    OutOfMemoryError
        Where there is too little memory.
    """
    M, N, K = (operator.index(size) for size in (M, N, K))
    if not isinstance(variant, str) and hasattr(variant, "child") and not variant.in_this_process:
        traced: Trace = variant.child.call(trace, variant, M, N, K)
        return traced
    counted_as: Any = variant.countable() if hasattr(variant, "countable") else variant
    try:
        rows, cols, tensor, owners, counted = _core._trace(counted_as, M, N, K)
    except OverflowError:
        raise ValueError(f"no matrix is as large as M, N, K = {M}, {N}, {K}") from None
    files = {entry["file"] for entry in counted}
    if isinstance(variant, str):
        (own,) = [entry.file for entry in variants() if entry.name == variant]
        lines = {name: kernel_file(name).splitlines() for name in files}
    else:
        own = variant.file
        lines = {name: variant.lines_of(name) for name in files}
        variant = variant.name
    accesses = tuple(
        Access(
            text=line_at(lines[entry["file"]], entry["line"]),
            in_kernel_file=entry["file"] == own,
            **entry,
        )
        for entry in counted
    )
    return Trace(variant, M, N, K, rows, cols, tensor, owners, accesses)


def _amount(number: float | None, unit: str) -> str:
    return "" if number is None else f"{number:.3g} {unit}{'' if number == 1 else 's'}"
