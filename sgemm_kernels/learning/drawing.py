"""Draws a level's tiles, accesses or steps from the entries of its goal.toml, as SVG or as text."""

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .expressions import value_of
from .level import Level

_INK, _GREY, _LINE, _PAPER = "#1f2328", "#656d76", "#d0d7de", "#ffffff"
_FAINT, _BAND, _STRONG, _ALARM = "#f0f3f6", "#a5d0fa", "#0969da", "#d1242f"
_CELL = 13
_WARP = 32
_WIDTH = 84  # of a terminal's caption
_SECTOR = 8  # words


class _Svg:
    """Shapes on a sheet that grows with them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._width = self._height = 0.0

    def box(self, x: float, y: float, w: float, h: float, fill: str, *, line: str = _LINE) -> None:
        self._parts.append(
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{w:.4g}" height="{h:.4g}" fill="{fill}" '
            f'stroke="{line}"/>'
        )
        self._grow(x + w, y + h)

    def text(
        self, x: float, y: float, words: str, *, size: int = 12, fill: str = _INK, at: str = "start"
    ) -> None:
        self._parts.append(
            f'<text x="{x:.4g}" y="{y:.4g}" font-size="{size}" fill="{fill}" '
            f'text-anchor="{at}">{html.escape(words)}</text>'
        )
        wide = 0.56 * size * len(words)
        self._grow(x + (wide if at == "start" else wide / 2 if at == "middle" else 0), y + 4)

    def _grow(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)

    def __str__(self) -> str:
        width, height = self._width + 12, self._height + 12
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.4g} {height:.4g}" '
            f'width="{width:.4g}" font-family="system-ui, sans-serif" role="img">\n'
            f'<rect width="100%" height="100%" fill="{_PAPER}"/>\n'
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def svg(level: Level) -> str:
    """The drawing as an SVG file, with its caption."""
    sheet = _Svg()
    sheet.text(12, 22, level.drawing["caption"], size=13)
    _SVG[level.drawing["kind"]](sheet, level.drawing)
    return str(sheet)


def text(level: Level) -> str:
    """The drawing for a terminal, with its caption."""
    lines = _TEXT[level.drawing["kind"]](level.drawing)
    return "\n".join([*lines, "", *textwrap.wrap(level.drawing["caption"], _WIDTH)])


# ------------------------------------------------------------------ tiles of A, B and C

_ACROSS, _DOWN, _DEEP = 6, 5, 6  # cells of C along N and M, and of K
_TILE = (2, 2)  # the tile's first row and column, in cells; it has 2 x 2


def _tile_cells(drawing: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    """For A, B and C: 0 an element, 1 a line that is read, 2 the tile that is in use or the
    result, 3 beyond the matrix."""
    row, col = _TILE
    whole = "tile" in drawing
    rows = range(row, row + 2) if whole else range(row, row + 1)
    cols = range(col, col + 2) if whole else range(col, col + 1)
    steps = range(2, 4) if whole and len(drawing["tile"]) == 3 else range(0)
    beyond = 1 if drawing.get("overhang") else 0
    tail = 1 if drawing.get("tail") else 0
    if beyond:
        rows, cols = range(_DOWN - 1, _DOWN + 1), range(_ACROSS - 1, _ACROSS + 1)
    if tail:
        steps = range(_DEEP - 1, _DEEP + 1)
    A = [
        [
            3 if i >= _DOWN or k >= _DEEP else 2 if i in rows and k in steps else int(i in rows)
            for k in range(_DEEP + tail)
        ]
        for i in range(_DOWN + beyond)
    ]
    B = [
        [
            3 if j >= _ACROSS or k >= _DEEP else 2 if j in cols and k in steps else int(j in cols)
            for j in range(_ACROSS + beyond)
        ]
        for k in range(_DEEP + tail)
    ]
    C = [
        [
            3 if i >= _DOWN or j >= _ACROSS else 2 if i in rows and j in cols else 0
            for j in range(_ACROSS + beyond)
        ]
        for i in range(_DOWN + beyond)
    ]
    return {"A": A, "B": B, "C": C}


def _tiles_svg(sheet: _Svg, drawing: Mapping[str, Any]) -> None:
    cells, size = _tile_cells(drawing), 2 * _CELL
    left, top = 12, 60
    c_left, c_top = left + (len(cells["A"][0]) + 1) * size, top + (len(cells["B"]) + 1) * size
    fills = (_FAINT, _BAND, _STRONG, _PAPER)
    for name, x, y, shape in (
        ("A", left, c_top, "M x K"),
        ("B", c_left, top, "K x N"),
        ("C", c_left, c_top, "M x N"),
    ):
        sheet.text(x, y - 6, f"{name}  ({shape})", fill=_GREY)
        for i, line in enumerate(cells[name]):
            for j, kind in enumerate(line):
                edge = _ALARM if kind == 3 else _LINE
                sheet.box(x + j * size, y + i * size, size, size, fills[kind], line=edge)
    read, strong = _meanings(drawing)
    notes = [(read, _BAND), (strong, _STRONG)]
    notes += [("beyond the matrix", _PAPER)] if any(3 in line for line in cells["A"]) else []
    x, y = c_left + (len(cells["C"][0]) + 1) * size, c_top + 4
    for index, (words, fill) in enumerate(notes):
        edge = _ALARM if fill == _PAPER else _LINE
        sheet.box(x, y + index * 24, 14, 14, fill, line=edge)
        sheet.text(x + 22, y + index * 24 + 12, words)
    for index, words in enumerate(_tile_notes(drawing)):
        sheet.text(x, y + (len(notes) + index) * 24 + 12, words, fill=_GREY)


def _meanings(drawing: Mapping[str, Any]) -> tuple[str, str]:
    """The meanings of the two colours: one thread's elements, a block's without tiles in shared
    memory, or a block's with tiles."""
    match len(drawing.get("tile", ())):
        case 0:
            return "read by the thread", "result of the thread"
        case 2:
            return "read by the block", "results of the block"
    return "read in other steps", "tiles of this step, and the block's tile of C"


def _tile_notes(drawing: Mapping[str, Any]) -> list[str]:
    tile, thread = drawing.get("tile", ()), drawing.get("thread")
    notes = [f"block: {tile[0]} x {tile[1]} results"] if tile else []
    notes += [f"step along K: {tile[2]}"] if len(tile) == 3 else []
    if thread and tile:
        notes.append(f"thread: {thread[0]} x {thread[1]} results")
    return notes


def _tiles_text(drawing: Mapping[str, Any]) -> list[str]:
    cells, marks = _tile_cells(drawing), ("·", "▒", "█", "x")
    gap = 2 * len(cells["A"][0]) + 2

    def row(line: list[int]) -> str:
        return " ".join(marks[kind] for kind in line)

    lines = [" " * gap + "B  (K x N)", *(" " * gap + row(line) for line in cells["B"])]
    lines.append("A  (M x K)".ljust(gap) + "C  (M x N)")
    lines += [row(a).ljust(gap) + row(c) for a, c in zip(cells["A"], cells["C"], strict=True)]
    key = "▒ {}   █ {}".format(*_meanings(drawing))
    key += "   x beyond the matrix" if any(3 in line for line in cells["A"]) else ""
    notes = [", ".join(_tile_notes(drawing))] if "tile" in drawing else []
    return [*lines, "", key, *notes]


# ------------------------------------------------------------------ the words of a warp's request


def _named(drawing: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The two requests, and what they are called."""
    return list(zip(("before", "after"), drawing.get("labels", ("start", "goal")), strict=True))


def _words(drawing: Mapping[str, Any], which: str) -> list[int]:
    threads = drawing.get("threads", _WARP)
    return [int(value_of(drawing[which], {"t": t})) for t in range(threads)]


def _sectors_of(drawing: Mapping[str, Any], which: str) -> list[list[str]]:
    """The sectors that are transferred: for each word the thread that reads it, or ''."""
    width = drawing.get(f"words_{which}", 1)
    reads = {
        word + step: str(t)
        for t, word in enumerate(_words(drawing, which))
        for step in range(width)
    }
    numbers = sorted({word // _SECTOR for word in reads})
    return [[reads.get(s * _SECTOR + w, "") for w in range(_SECTOR)] for s in numbers]


def _banks_of(drawing: Mapping[str, Any], which: str) -> list[int]:
    """How many words of each bank are accessed."""
    words = set(_words(drawing, which))
    return [sum(word % _WARP == bank for word in words) for bank in range(_WARP)]


def _taken(drawing: Mapping[str, Any], which: str) -> str:
    if drawing["space"] == "banks":
        most = max(_banks_of(drawing, which))
        return f"{most} wavefront{'' if most == 1 else 's'}"
    count = len(_sectors_of(drawing, which))
    return f"{count} sector{'' if count == 1 else 's'}"


_SHOWN = 4  # sectors


def _warp_svg(sheet: _Svg, drawing: Mapping[str, Any]) -> None:
    for index, (which, name) in enumerate(_named(drawing)):
        y = 62 + index * 92
        fine = which == "after"
        sheet.text(12, y - 8, f"{name}: {_taken(drawing, which)}", fill=_INK if fine else _ALARM)
        if drawing["space"] == "banks":
            for bank, count in enumerate(_banks_of(drawing, which)):
                fill = _FAINT if count == 0 else _STRONG if count == 1 else _ALARM
                sheet.box(12 + bank * 18, y, 18, 18, fill)
                if count:
                    sheet.text(
                        21 + bank * 18, y + 13, str(count), size=10, fill=_PAPER, at="middle"
                    )
            sheet.text(12, y + 34, "bank 0", size=10, fill=_GREY)
            sheet.text(12 + 31 * 18, y + 34, "bank 31", size=10, fill=_GREY, at="middle")
            continue
        sectors = _sectors_of(drawing, which)
        for number, sector in enumerate(sectors[:_SHOWN]):
            for word, thread in enumerate(sector):
                x = 12 + number * (_SECTOR * 20 + 8) + word * 20
                sheet.box(x, y, 20, 20, _STRONG if thread else "#ffd8b5")
                if thread:
                    sheet.text(x + 10, y + 14, thread, size=10, fill=_PAPER, at="middle")
        if len(sectors) > _SHOWN:
            x = 12 + _SHOWN * (_SECTOR * 20 + 8)
            sheet.text(x, y + 15, f"… and {len(sectors) - _SHOWN} more", fill=_GREY)
        sheet.text(
            12,
            y + 36,
            "number: the thread that reads the word; orange: transferred, but not used",
            size=10,
            fill=_GREY,
        )


def _warp_text(drawing: Mapping[str, Any]) -> list[str]:
    lines = []
    for which, name in _named(drawing):
        name = name.ljust(max(len(each) for _, each in _named(drawing)))
        if drawing["space"] == "banks":
            row = "".join(f"{count or '.':>2}" for count in _banks_of(drawing, which))
            lines.append(f"{name}{row}   {_taken(drawing, which)}")
            continue
        sectors = _sectors_of(drawing, which)
        row = " ".join(
            f"[{' '.join(f'{thread or chr(46):>2}' for thread in sector)}]"
            for sector in sectors[: _SHOWN - 1]
        )
        more = f" … {len(sectors)} in all" if len(sectors) > _SHOWN - 1 else ""
        lines.append(f"{name} {row}{more}")
    if drawing["space"] == "banks":
        return [
            *lines,
            "",
            "A number counts the words that a request accesses in a bank, for banks 0 to 31.",
        ]
    return [
        *lines,
        "",
        "A bracket is a sector. A number is the thread that reads a word; a dot is an unused word.",
    ]


# ------------------------------------------------------------------ steps, one row for each actor


def _timeline_svg(sheet: _Svg, drawing: Mapping[str, Any]) -> None:
    rows: Sequence[Sequence[str]] = drawing["rows"]
    widths = [
        14.0
        if {row[c] for row in rows if row[c]} <= {"|"}
        else 26 + 7 * max(len(row[c]) for row in rows)
        for c in range(1, len(rows[0]))
    ]
    for index, (name, *cells) in enumerate(rows):
        y = 44 + index * 40
        sheet.text(12, y + 19, name)
        x = 110.0
        for cell, width in zip(cells, widths, strict=True):
            if cell == "|":
                sheet.box(x + 4, y - 4, 5, 36, _INK, line=_INK)
            elif cell:
                wrong = cell.endswith("!")
                sheet.box(x, y, width - 4, 28, "#ffdcd7" if wrong else _BAND)
                words = cell.removesuffix("!").rstrip("| ")
                sheet.text(x + (width - 4) / 2, y + 18, words, at="middle")
                if cell.endswith("|"):
                    sheet.box(x + width - 5, y - 4, 4, 36, _INK, line=_INK)
            x += width
    y = 44 + len(rows) * 40
    notes = "time goes to the right" + (
        "; black: a barrier" if any("|" in cell for row in rows for cell in row) else ""
    )
    wrong = any(cell.endswith("!") for row in rows for cell in row)
    sheet.text(110, y + 10, notes + ("; red: the race" if wrong else ""), size=10, fill=_GREY)


def _timeline_text(drawing: Mapping[str, Any]) -> list[str]:
    rows: Sequence[Sequence[str]] = drawing["rows"]
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    notes = ["time goes to the right"]
    notes += ["| is a barrier"] if any("|" in cell for row in rows for cell in row) else []
    notes += ["! marks the race"] if any("!" in cell for row in rows for cell in row) else []
    return [*lines, "", "; ".join(notes)]


# ------------------------------------------------------------------ which lane has which element


def _lane_grids(drawing: Mapping[str, Any]) -> list[tuple[str, list[list[str]]]]:
    """Named grids of lane numbers."""
    if drawing["kind"] == "fragment":
        names = [
            [str(int(value_of(drawing["lane"], {"r": r, "c": c}))) for c in range(drawing["cols"])]
            for r in range(drawing["rows"])
        ]
        return [("", names)]
    grids = []
    for which, name in (("before", "start"), ("after", "goal")):
        rows, cols = (
            [int(value_of(expression, {"t": t})) for t in range(_WARP)]
            for expression in drawing[which]
        )
        grid = [[""] * (max(cols) + 1) for _ in range(max(rows) + 1)]
        for lane, (r, c) in enumerate(zip(rows, cols, strict=True)):
            grid[r][c] = str(lane)
        grids.append((name, grid))
    return grids


def _lanes_svg(sheet: _Svg, drawing: Mapping[str, Any]) -> None:
    y = 44
    for name, grid in _lane_grids(drawing):
        if name:
            sheet.text(12, y + 10, name)
            y += 18
        for row in grid:
            for column, lane in enumerate(row):
                strong = int(lane or 0) < 4
                sheet.box(12 + column * 26, y, 26, 18, _STRONG if strong else _FAINT)
                fill = _PAPER if strong else _INK
                sheet.text(25 + column * 26, y + 13, lane, size=10, fill=fill, at="middle")
            y += 18
        y += 14
    sheet.text(12, y + 6, "blue: lanes 0 to 3", size=10, fill=_GREY)


def _lanes_text(drawing: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, grid in _lane_grids(drawing):
        lines += [f"{name}:"] if name else []
        lines += ["".join(f"{lane:>3}" for lane in row) for row in grid]
        lines.append("")
    return lines[:-1]


# ------------------------------------------------------------------ the bits of an fp16 pair

_BITS = (("float", 24, 0), ("hi", 11, 0), ("lo", 11, 11))


def _bits_svg(sheet: _Svg, drawing: Mapping[str, Any]) -> None:
    for index, (name, bits, first) in enumerate(_BITS):
        y = 44 + index * 34
        sheet.text(12, y + 16, name)
        for bit in range(bits):
            sheet.box(60 + (first + bit) * 20, y, 20, 22, _STRONG if index else _BAND)
        sheet.text(68 + (first + bits) * 20, y + 16, f"{bits} bits", fill=_GREY)


def _bits_text(drawing: Mapping[str, Any]) -> list[str]:
    return [f"{name:<6}{' ' * first}{'#' * bits}  {bits} bits" for name, bits, first in _BITS]


_SVG: dict[str, Callable[[_Svg, Mapping[str, Any]], None]] = {
    "tiles": _tiles_svg,
    "warp": _warp_svg,
    "timeline": _timeline_svg,
    "lanes": _lanes_svg,
    "fragment": _lanes_svg,
    "bits": _bits_svg,
}
_TEXT: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "tiles": _tiles_text,
    "warp": _warp_text,
    "timeline": _timeline_text,
    "lanes": _lanes_text,
    "fragment": _lanes_text,
    "bits": _bits_text,
}
