"""Tries a plain kernel with M and N exchanged in its grid."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .cases import Case, Tile
from .compiler import CompileError, Source, library, sanitizer_build
from .diagnosis import Finding
from .plain import Plain
from .sanitize import watch, watch_these

_SYMPTOMS = {"out of bounds", "never set", "wrong values", "race", "ended its process"}


def exchange_hint(
    program: Path, source: Source, findings: Sequence[Finding], seconds: float
) -> str:
    """What to add to the findings if the kernel passes with M and N exchanged in its grid."""
    plain = source.plain
    wrong = {finding.kind for finding in findings if not finding.harmless}
    if plain is None or not wrong & _SYMPTOMS or len(plain.grid) < 2:
        return ""
    if not _is_right_for_squares_only(program, source, plain, seconds):
        return ""
    assert source.launch is not None
    for grid in _exchanged(plain):
        other = replace(source, launch=replace(source.launch, grid=grid))
        try:
            tried, _ = library(other, sanitizer_build())
        except (CompileError, ValueError):
            continue
        assert other.plain is not None
        if not watch(tried, Tile(*other.plain.tile), other, seconds)[1]:
            text = ", ".join(map(str, grid))
            return f"; M and N are exchanged in grid=: with grid='({text})' the kernel passes"
    return ""


def _is_right_for_squares_only(program: Path, source: Source, plain: Plain, seconds: float) -> bool:
    """Whether products of whole tiles are right if M = N, and wrong if N = 2 M."""
    BM, BN, BK = plain.tile
    side = math.lcm(BM, BN, *plain.multiple_of[:2])
    square = Case(*plain.fitting(side, side, 2 * BK))
    if plain.square:
        return False
    wide = replace(square, N=2 * side)
    return not watch_these(program, [square], source, seconds) and bool(
        watch_these(program, [wide], source, seconds)
    )


def _exchanged(plain: Plain) -> Iterator[tuple[str, ...]]:
    texts = tuple(part.text for part in plain.grid)
    yield (texts[1], texts[0], *texts[2:])
    other = {"M": "N", "N": "M", "m": "n", "n": "m"}
    yield tuple(re.sub(r"\b[MNmn]\b", lambda found: other[found[0]], text) for text in texts)
