"""Finds indices of a plain kernel that overflow, by the last block of very large products."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .compiler import Source
from .diagnosis import Finding
from .plain import Plain
from .sanitize import watch_arguments

_MORE = 2_200_000_000
"""Elements of an operand: more than 2^31, but fewer than 2^32."""
_SQUARES = (50_000, 66_000)
"""Sides of square products: above the square root of 2^31, and above 2^16."""
_NARROW = 66_000
"""A size above 2^16. An ``int`` holds every index of a product with one such size."""
_NARROW_SQUARES = (300, 40_000)
"""Sides above the square root of 2^16, and above 2^15. An ``int`` holds every index."""
_MOST_BLOCKS = 65_535
"""Of a grid along y and z."""
_WIDE_TYPES = re.compile(
    r"\b(?:size_t|u?int64_t|u?int_fast64_t|long|ptrdiff_t|intptr_t|uintptr_t|ulonglong)\b"
)
_NARROW_TYPES = re.compile(r"\b(?:u?short[1-4]?|u?int_(?:fast|least)?16_t|u?int16_t)\b")
_TOLD = ("out of bounds", "endless", "wrong values")


def overflow(program: Path, source: Source, seconds: float) -> list[Finding]:
    """Findings about a plain kernel that is right in smaller products.

    An overflow that an ``int`` would not have is a mistake. One of operands with more than 2^31
    elements is a note if the kernel has no integer of 64 bits.
    """
    plain = source.plain
    if plain is None:
        return []
    if _NARROW_TYPES.search("\n".join([source.text, *source.included.values()])):
        found = _of_last_block(_narrow_sizes(plain), program, source, seconds)
        if found:
            return found
    note = not _WIDE_TYPES.search(plain.function.parameters + plain.function.body)
    found = _of_last_block(_large_sizes(plain), program, source, seconds)
    return [replace(finding, harmless=note) for finding in found]


def _of_last_block(
    every: Iterator[tuple[int, int, int]], program: Path, source: Source, seconds: float
) -> list[Finding]:
    """The first finding about the last block of products of these sizes."""
    plain = source.plain
    assert plain is not None
    turned = [int(f"{name}.T" in plain.roles) for name in "ABC"]
    for M, N, K in every:
        small = _small_sizes(plain, K)
        argument = ",".join(map(str, ["large", M, N, K, *small[0], *small[1], *turned]))
        when = f"M, N, K = {M}, {N}, {K}"
        found = watch_arguments(program, [argument], when, source, seconds)
        told = [finding for finding in found if finding.kind in _TOLD]
        if told:
            text = told[0].text.replace("; at M", ": an index has too few bits; at M")
            return [replace(told[0], kind="overflow", text=text)]
    return []


def _narrow_sizes(plain: Plain) -> Iterator[tuple[int, int, int]]:
    """Sizes with indices of more than 16 bits and operands of fewer than 2^31 elements."""
    BM, BN, BK = plain.tile
    if plain.square:
        yield from _squares(plain, _NARROW_SQUARES)
        return
    M, N, K = plain.fitting(4 * BM, 4 * BN, 2 * BK)
    rows, cols = (_step(tile, of) for tile, of in zip((BM, BN), plain.multiple_of, strict=False))
    for sizes in ((M, _up(_NARROW, cols), K), (_up(_NARROW, rows), N, K)):
        fitted = plain.fitting(*sizes)
        if _has_blocks(plain, fitted):
            yield fitted


def _squares(plain: Plain, sides: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Square products with these sides, rounded up, that a grid can cover."""
    BM, BN, _ = plain.tile
    for side in sides:
        size = _up(side, math.lcm(BM, BN, plain.multiple_of[0]))
        if _has_blocks(plain, (size, size, size)):
            yield size, size, size


def _large_sizes(plain: Plain) -> Iterator[tuple[int, int, int]]:
    """Sizes with operands of more than 2^31 elements that a grid can cover."""
    BM, BN, BK = plain.tile
    if plain.square:
        yield from _squares(plain, _SQUARES)
        return
    M, N, K = plain.fitting(4 * BM, 4 * BN, 2 * BK)
    rows, cols = (_step(tile, of) for tile, of in zip((BM, BN), plain.multiple_of, strict=False))
    wide = (M, _up(_MORE // min(K, M), cols), K)
    most_rows = (_MOST_BLOCKS // 16) * 16 * BM
    tall = min(_up(_MORE // min(K, N), rows), most_rows // rows * rows)
    deep = _MORE // tall + 1
    for sizes in (wide, (tall, _up(max(deep, N), cols), max(deep, K))):
        fitted = plain.fitting(*sizes)
        if _has_blocks(plain, fitted):
            yield fitted


def _step(tile: int, of: int) -> int:
    return math.lcm(16 * tile, of)


def _up(size: int, of: int) -> int:
    return -(-size // of) * of


def _has_blocks(plain: Plain, sizes: tuple[int, int, int]) -> bool:
    """Whether a GPU has such a grid, which has a block for each tile."""
    small = _small_sizes(plain, sizes[2])[0]
    x, y, z = [*(part.at(*sizes) for part in plain.grid), 1, 1][:3]
    few = math.prod(part.at(*small) for part in plain.grid)
    for_each = x * y * z * small[0] * small[1] == few * sizes[0] * sizes[1]
    return for_each and 1 <= x < 1 << 31 and 1 <= y <= _MOST_BLOCKS and 1 <= z <= _MOST_BLOCKS


def _small_sizes(plain: Plain, K: int) -> list[tuple[int, int, int]]:
    BM, BN, _ = plain.tile
    if plain.square:
        return [plain.fitting(count * BM, count * BM, count * BM) for count in (2, 3)]
    return [plain.fitting(rows * BM, cols * BN, K) for rows, cols in ((2, 2), (3, 5))]
