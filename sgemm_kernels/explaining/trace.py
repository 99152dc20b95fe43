"""Counts a kernel's memory accesses per line of its source.

A special build of the kernels records every access. It runs on the CPU device, so no GPU is needed.
It counts the requests of a GPU's warps, not of the CPU.
"""

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _core
from .._catalog import kernel_file, variants
from .._custom_kernel import CustomKernel
from .._gpus import SECTOR_BYTES
from .._source_text import line_at
from .._table import as_html, table
from ..measuring.shapes import Size, as_shape
from .accesses import Access

if TYPE_CHECKING:
    from .._style import Picture

_HEADER = ("line", "source", "access", "bytes", "requests", "per request", "at best")
_COLUMNS = 100
"""Maximum width of the printed text."""


@dataclass(frozen=True, slots=True, repr=False)
class Trace:
    """The memory accesses of a kernel's first block, by source line. ``plot`` draws them.

    For a batch, the accesses of the first block of every product. Prints as a table, also in
    notebooks.
    """

    variant: str
    batch: int
    """The number of products, each of (M, K) by (K, N)."""
    M: int
    N: int
    K: int
    rows: int
    """Rows of the results that the block computes."""
    cols: int
    tensor_multiply_adds: int
    """fp16 multiply-adds of the traced blocks on tensor cores."""
    owners: bytes
    """Thread index of each result of the first product's block, in row order, as int16 in native
    byte order: the thread that stored it, or -1 if none did. If results pass through shared memory,
    another thread of the same warp computed it."""
    accesses: tuple[Access, ...]
    """Sorted by file and line."""

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the traced blocks."""
        return self.batch * self.rows * self.cols * self.K

    @property
    def global_bytes_per_multiply_add(self) -> float:
        """Bytes that threads load from and store to global memory, per multiply-add."""
        return self._accessed("global") / self.multiply_adds

    @property
    def shared_bytes_per_multiply_add(self) -> float:
        """Bytes that threads load from and store to shared memory, per multiply-add."""
        return self._accessed("shared") / self.multiply_adds

    @property
    def sector_bytes_per_multiply_add(self) -> float:
        """Bytes of the sectors that global requests transfer, before any cache, per multiply-add.

        Less than the bytes accessed if threads read the same word together; more if they leave
        parts of a sector unused.
        """
        sectors = sum(access.sectors or 0 for access in self.accesses)
        return SECTOR_BYTES * sectors / self.multiply_adds

    def plot(self, *, dark: bool | None = None) -> "Picture":
        """Draws the addresses that a warp accesses in one request, for each access of the kernel.

        Needs matplotlib: ``pip install matplotlib``.

        Parameters
        ----------
        dark
            Use the dark theme. The default is the light theme, but a saved SVG is dark where its
            reader prefers dark pages.

        Returns
        -------
        Picture
            A plot with a panel for each access. Accesses that look the same share a panel.
        """
        from .trace_picture import draw

        return draw(self.variant, self.accesses, dark=dark)

    def __repr__(self) -> str:
        cells = self._cells()
        wide = max(map(len, table(_HEADER, cells).splitlines()))
        source = max((len(text) for _, text, *_ in cells), default=0)
        width = max(source - max(wide - _COLUMNS, 0), len(_HEADER[1]))
        cells = [(line, _cut(text, width), *others) for line, text, *others in cells]
        summary = (textwrap.fill(line, _COLUMNS) for line in self._summary())
        return "\n".join([self._title(), "", table(_HEADER, cells), "", *summary])

    def _repr_html_(self) -> str:
        return as_html(self._title(), _HEADER, self._cells(), "\n".join(self._summary()))

    def _title(self) -> str:
        sizes = f"M = {self.M}, N = {self.N}, K = {self.K}"
        blocks = "one block"
        if self.batch > 1:
            sizes = f"batch = {self.batch}, {sizes}"
            blocks = "one block of each product"
        return f"{self.variant}, {sizes}: {blocks}, {self.rows} x {self.cols} results"

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
            f"bytes per multiply-add: {self.global_bytes_per_multiply_add:.4g} accessed in global "
            f"memory, {self.sector_bytes_per_multiply_add:.4g} transferred in whole sectors; "
            f"{self.shared_bytes_per_multiply_add:.4g} accessed in shared memory"
        ]

    def _accessed(self, space: str) -> int:
        return sum(a.lanes * a.bytes_per_thread for a in self.accesses if a.space == space)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def trace(variant: str | CustomKernel, *size: Size) -> Trace:
    """Counts the memory accesses of a kernel's first block, for A (M, K) and B (K, N).

    For a batch, counts the first block of every product. Works on any machine: the traced build
    runs on the CPU device, with alpha = 1, beta = 0 and row-major operands that are aligned as on a
    GPU. The rows of one product are padded to 16 bytes; a batch has no gaps. M and N matter only if
    they cut the block short, or if rows of a batch begin at other places of a sector. The time
    grows with K, about a second for 4096. A batch takes at most the time of 32 products, because
    later ones repeat their accesses.

    If a thread of a block skips an access, each of its later accesses is counted with the previous
    access of the other threads. If several blocks or kernels compute the results of one block
    together, all of them are counted, including their accesses to the memory through which they
    exchange data.

    Parameters
    ----------
    variant
        A name from ``variants()``, or a custom kernel.
    *size
        M, N, K, or batch, M, N, K: as integers, or as one size that ``measure`` takes.

    Returns
    -------
    Trace
        The accesses of each line of the kernel.

    Raises
    ------
    ValueError, TypeError
        For an unknown variant, and for sizes that are not 3 or 4 integers or are below 1.
    UnsupportedVariantError
        For a variant that does not run on the CPU device.
    OutOfMemoryError
        If there is too little memory.
    """
    sizes: Any = size[0] if len(size) == 1 else size
    shape = as_shape(sizes)
    if not isinstance(variant, str) and hasattr(variant, "child") and not variant.in_this_process:
        traced: Trace = variant.child.call(trace, variant, *shape)
        return traced
    batch, M, N, K = shape if len(shape) == 4 else (1, *shape)
    counted_as: Any = variant.countable() if hasattr(variant, "countable") else variant
    try:
        rows, cols, tensor, owners, counted = _core._trace(counted_as, batch, M, N, K)
    except OverflowError:
        raise ValueError(f"invalid size {shape}: the matrices are too large") from None
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
    return Trace(variant, batch, M, N, K, rows, cols, tensor, owners, accesses)


def _amount(number: float | None, unit: str) -> str:
    return "" if number is None else f"{number:.3g} {unit}{'' if number == 1 else 's'}"
