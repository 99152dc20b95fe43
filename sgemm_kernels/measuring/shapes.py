"""Shapes, sizes and layouts: their types, how to read them and how to print them."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

Shape = tuple[int, int, int]

Size = SupportsIndex | Sequence[SupportsIndex]
"""N for square matrices, or (M, N, K), in integers of any kind."""

Case = tuple[Shape, str]
"""A shape, and the layout of its operands."""

LAYOUTS = ("NN", "NT", "TN", "TT")
"""How A, the first letter, and B lie in memory: N is by rows, T by columns, as a transposed view of
rows does. The result is by rows."""


def size_text(shape: Shape, layout: str = "NN") -> str:
    """'4096', or '512x16x500000'; with the layout where that is not by rows."""
    size = str(shape[0]) if len(set(shape)) == 1 else "x".join(map(str, shape))
    return size if layout == "NN" else f"{size} {layout}"


def as_shape(size: Size) -> Shape:
    """(M, N, K) of a size. Raises TypeError or ValueError for what is none, and below 1."""
    numbers = [*size] if isinstance(size, Iterable) else [size] * 3
    try:
        if any(isinstance(number, bool) for number in numbers):
            raise TypeError
        M, N, K = map(operator.index, numbers)
    except (TypeError, ValueError) as error:
        message = f"a size is N or (M, N, K), in integers, not {size!r}; several are a list"
        raise type(error)(message) from None
    if min(M, N, K) < 1:
        raise ValueError(f"a size is measured from 1 up, not {size!r}")
    return M, N, K


def shapes_of(sizes: Size | Iterable[Size]) -> list[Shape]:
    """One size, or several, each once: a tuple of numbers is one."""
    one = isinstance(sizes, str) or not isinstance(sizes, Iterable)
    if isinstance(sizes, tuple) and sizes:
        one = not any(isinstance(number, Iterable) for number in sizes)
    several: Any = [sizes] if one else sizes
    return list(dict.fromkeys(map(as_shape, several)))
