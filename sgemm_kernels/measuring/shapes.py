"""Shapes, sizes and layouts: their types, parsing and printing."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

Shape = tuple[int, int, int] | tuple[int, int, int, int]
"""(M, N, K), or (batch, M, N, K) for a batch of more than one product."""

Size = SupportsIndex | Sequence[SupportsIndex]
"""N for square matrices, (M, N, K), or (batch, M, N, K), as integers of any type."""

Case = tuple[Shape, str]
"""A shape, and the layout of its operands."""

LAYOUTS = ("NN", "NT", "TN", "TT")
"""Memory layouts of A (first letter) and B: N is row-major, T is column-major, like a transposed
view of a row-major array. The result is row-major."""


def size_text(shape: Shape, layout: str = "NN") -> str:
    """'4096', '512x16x500000' or, for a batch of 1000, '1000x8x8x8', with the layout if it is not
    row-major."""
    size = str(shape[0]) if is_square(shape) else "x".join(map(str, shape))
    return size if layout == "NN" else f"{size} {layout}"


def is_square(shape: Shape) -> bool:
    """Whether the shape is one product of square matrices."""
    return len(shape) == 3 and len(set(shape)) == 1


def as_shape(size: Size) -> Shape:
    """The shape of a size; a batch of 1 is one product. Raises TypeError or ValueError for an
    invalid size or one below 1."""
    numbers = [*size] if isinstance(size, Iterable) else [size] * 3
    try:
        if any(isinstance(number, bool) for number in numbers):
            raise TypeError
        batch, M, N, K = map(operator.index, [1] * (len(numbers) == 3) + numbers)
    except (TypeError, ValueError) as error:
        message = f"invalid size {size!r}: use N, (M, N, K) or (batch, M, N, K) with integers"
        raise type(error)(message) from None
    if min(batch, M, N, K) < 1:
        raise ValueError(f"invalid size {size!r}: each number must be at least 1")
    return (M, N, K) if batch == 1 else (batch, M, N, K)


def shapes_of(sizes: Size | Iterable[Size]) -> list[Shape]:
    """The shapes of one or several sizes, without duplicates. A tuple of numbers is one size."""
    one = isinstance(sizes, str) or not isinstance(sizes, Iterable)
    if isinstance(sizes, tuple) and sizes:
        one = not any(isinstance(number, Iterable) for number in sizes)
    several: Any = [sizes] if one else sizes
    return list(dict.fromkeys(map(as_shape, several)))
