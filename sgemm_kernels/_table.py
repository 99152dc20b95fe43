"""Plain tables for the terminal."""

from collections.abc import Iterable, Sequence


def row(cells: Iterable[str], widths: Sequence[int]) -> str:
    """Cells padded to their widths, two spaces apart."""
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A header and rows as lines of text, each column as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(row(line, widths) for line in lines)
