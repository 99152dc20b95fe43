"""A side-by-side difference of two texts that omits long unchanged sections."""

import difflib
from typing import NamedTuple

_AROUND = 3


class Row(NamedTuple):
    """One line of each text; either may be missing. Line numbers start at 1."""

    kind: str
    """'same', 'changed', 'gone', 'new', or 'left out' (with the number of lines as text)."""
    old_number: int | None
    old: str
    new_number: int | None
    new: str


def difference(old: str, new: str) -> list[Row]:
    """The rows of the side-by-side difference."""
    old_lines, new_lines = old.splitlines(), new.splitlines()
    rows: list[Row] = []
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    codes = matcher.get_opcodes()
    for place, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag == "equal":
            rows += _same(old_lines, i1, i2, j1, ends=(place == 0, place == len(codes) - 1))
            continue
        for step in range(max(i2 - i1, j2 - j1)):
            i, j = i1 + step, j1 + step
            gone, come = i < i2, j < j2
            rows.append(
                Row(
                    "changed" if gone and come else "gone" if gone else "new",
                    i + 1 if gone else None,
                    old_lines[i] if gone else "",
                    j + 1 if come else None,
                    new_lines[j] if come else "",
                )
            )
    return rows


def _same(lines: list[str], i1: int, i2: int, j1: int, *, ends: tuple[bool, bool]) -> list[Row]:
    """Equal lines. Omits the middle of a long section."""
    rows = [Row("same", i + 1, lines[i], j1 + i - i1 + 1, lines[i]) for i in range(i1, i2)]
    head, tail = (0 if at_end else _AROUND for at_end in ends)
    left_out = len(rows) - head - tail
    if left_out < 2:
        return rows
    note = Row("left out", None, f"{left_out} unchanged lines", None, "")
    return [*rows[:head], note, *rows[len(rows) - tail :]]
