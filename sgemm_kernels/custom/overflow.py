"""Finds indices of a plain kernel that overflow, by the last block of very large products."""

import math
import re
from collections.abc import Iterator
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
_MOST_BLOCKS = 65_535
"""Of a grid along y and z."""
_WIDE_TYPES = re.compile(
    r"\b(?:size_t|u?int64_t|u?int_fast64_t|long|ptrdiff_t|intptr_t|uintptr_t|ulonglong)\b"
)
_TOLD = ("out of bounds", "wrong values")


def overflow(program: Path, source: Source, seconds: float) -> list[Finding]:
    """Findings about a plain kernel that is right in smaller products.

    A kernel without any integer of 64 bits gets a note. It fails if smaller operands are enough.
    """
    plain = source.plain
    if plain is None:
        return []
    for sizes in _large_sizes(plain):
        small = _small_sizes(plain, sizes[2])
        turned = [int(f"{name}.T" in plain.roles) for name in "ABC"]
        argument = ",".join(map(str, ["large", *sizes, *small[0], *small[1], *turned]))
        M, N, K = sizes
        when = f"M, N, K = {M}, {N}, {K}"
        found = watch_arguments(program, [argument], when, source, seconds)
        told = [finding for finding in found if finding.kind in _TOLD]
        if told:
            text = told[0].text.replace("; at M", ": an index has too few bits; at M")
            note = not _WIDE_TYPES.search(plain.function.parameters + plain.function.body)
            return [replace(told[0], kind="overflow", text=text, harmless=note)]
    return []


def _large_sizes(plain: Plain) -> Iterator[tuple[int, int, int]]:
    """Sizes with operands of more than 2^31 elements that a grid can cover."""
    BM, BN, BK = plain.tile
    if plain.square:
        sides = (_up(side, math.lcm(BM, BN, plain.multiple_of[0])) for side in _SQUARES)
        yield from ((side, side, side) for side in sides if _has_blocks(plain, (side, side, side)))
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
