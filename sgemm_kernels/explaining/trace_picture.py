"""Draws the addresses that a warp accesses in one request."""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from .._style import RAMP, Picture, Theme, styled  # first: its error names the missing package

# isort: split
from matplotlib.patches import Patch, Rectangle

from .._gpus import SECTOR_BYTES
from .accesses import Access

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WORD = 4
_BANKS = 32
_PER_SECTOR = SECTOR_BYTES // _WORD
_PANEL_INCHES = 5.4
_ROW_INCHES = 0.15
_HEAD_INCHES = 0.75  # title and legend
_TITLE_INCHES = 0.5
_AXIS_INCHES = 0.5
_MARGIN_INCHES = 0.65
_PANEL_LETTERS = 78  # monospace characters of _LETTER points
_LETTER = 8
_FEWEST_ROWS = 3
_MOST_ROWS_IN_FULL = 40


def draw(variant: str, accesses: Iterable[Access], *, dark: bool | None) -> Picture:
    """Draws a panel for each access of the kernel. Accesses that look the same share a panel."""
    panels = [_Panel(group) for group in alike(accesses)]
    ends = [_HEAD_INCHES, _HEAD_INCHES]  # filled height of each of two columns
    places = []
    for panel in panels:
        column = ends.index(min(ends))
        places.append((column, ends[column] + _TITLE_INCHES))
        ends[column] += _TITLE_INCHES + panel.inches + _AXIS_INCHES
    width, height = 2 * (_MARGIN_INCHES + _PANEL_INCHES) + 0.2, max(ends)
    with styled(dark=dark, grid=False) as theme:
        picture = Picture(figsize=(width, height))
        picture.dark = dark
        for panel, (column, top) in zip(panels, places, strict=True):
            left = _MARGIN_INCHES + column * (_PANEL_INCHES + _MARGIN_INCHES)
            size = (_PANEL_INCHES / width, panel.inches / height)
            box = (left / width, 1 - (top + panel.inches) / height, *size)
            panel.draw(picture.add_axes(box), theme)
        _head(picture, variant, theme)
    return picture


def _head(picture: Picture, variant: str, theme: Theme) -> None:
    width, height = picture.get_size_inches()
    left = _MARGIN_INCHES / width
    title = f"{variant}: addresses that the 32 threads of a warp access in one instruction"
    picture.text(left, 1 - 0.3 / height, title, fontsize=15, fontweight="bold", va="center")
    colours = RAMP([0.0, 0.5, 1.0])
    words = [Patch(color=colours[i], label=f"word of thread {(0, 16, 31)[i]}") for i in range(3)]
    moved = Patch(color=theme.moved, label="transferred but not used")
    sector = Patch(facecolor="none", edgecolor=theme.ink, label="sector of 32 bytes")
    picture.legend(
        handles=[*words, moved, sector],
        loc="center left",
        bbox_to_anchor=(left, 1 - 0.62 / height),
        ncols=5,
        frameon=False,
        fontsize=9.5,
        borderaxespad=0,
        borderpad=0,
        handlelength=1,
        handleheight=1,
    )


def alike(accesses: Iterable[Access]) -> list[list[Access]]:
    """Groups accesses that look the same in the plot."""
    seen: dict[object, list[Access]] = defaultdict(list)
    for access in accesses:
        offsets = [offset for offset in access.first_request if offset is not None]
        shape = tuple(None if o is None else o - min(offsets) for o in access.first_request)
        look = (access.space, access.operand, access.kind, access.bytes_per_thread, shape)
        seen[look].append(access)
    return list(seen.values())


class _Panel:
    """One request on a grid of words: a matrix by rows, or shared memory by banks."""

    def __init__(self, accesses: list[Access]) -> None:
        self.access = access = accesses[0]
        self.requests = sum(each.requests for each in accesses)
        self.words_in_row = access.row_bytes // _WORD
        self.threads_of: dict[int, list[int]] = defaultdict(list)  # by first word
        for thread, offset in enumerate(access.first_request):
            if offset is not None:
                self.threads_of[offset // _WORD].append(thread)
        self.words_each = -(-access.bytes_per_thread // _WORD)
        self.owner = {
            word + step: threads[0]
            for word, threads in self.threads_of.items()
            for step in range(self.words_each)
        }
        self.sectors = {word // _PER_SECTOR for word in self.owner}
        self.rows, self.first_col, self.cols = self._window()
        self.inches = _ROW_INCHES * len(self.rows)

    def _window(self) -> tuple[list[int], int, int]:
        """The rows, the first column and the number of columns to show."""
        touched = sorted({word // self.words_in_row for word in self.owner})
        rows = touched
        if touched[-1] - touched[0] < _MOST_ROWS_IN_FULL and self.access.space == "global":
            last = max(touched[-1], touched[0] + _FEWEST_ROWS - 1)
            rows = list(range(touched[0], last + 1))
        if self.access.space == "shared":
            return rows, 0, _BANKS
        columns = [word % self.words_in_row for word in self.owner]
        low, high = min(columns), max(columns)
        # A sector may span two rows; omit columns far from the accessed ones.
        columns += [
            word % self.words_in_row
            for sector in self.sectors
            for word in range(sector * _PER_SECTOR, (sector + 1) * _PER_SECTOR)
            if low - _PER_SECTOR < word % self.words_in_row < high + _PER_SECTOR
        ]
        wanted = max(columns) + 1 - min(columns)
        return rows, min(columns), -(-wanted // 32) * 32

    def draw(self, axes: "Axes", theme: Theme) -> None:
        self._cells(axes, theme)
        self._labels(axes)
        self._frame(axes, theme)

    def _place(self, word: int) -> tuple[int, int]:
        """A word's column and row on the grid."""
        row, column = divmod(word, self.words_in_row)
        return column - self.first_col, self.rows.index(row)

    def _visible(self, sector: int) -> list[tuple[int, int, int]]:
        """The visible part of a sector in each row: column, row and number of words."""
        begin, end = sector * _PER_SECTOR, (sector + 1) * _PER_SECTOR
        places = [self._place(w) for w in range(begin, end) if w // self.words_in_row in self.rows]
        inside = [(column, row) for column, row in places if 0 <= column < self.cols]
        by_row = {row: [c for c, r in inside if r == row] for _, row in inside}
        return [(min(columns), row, len(columns)) for row, columns in by_row.items()]

    def _cells(self, axes: "Axes", theme: Theme) -> None:
        cells = np.zeros((len(self.rows), self.cols, 4))  # transparent, unless a thread has it
        colours = RAMP(np.linspace(0, 1, 32))
        for word, thread in self.owner.items():
            column, row = self._place(word)
            cells[row, column] = colours[thread]
        extent = (0, self.cols, len(self.rows), 0)
        axes.imshow(cells, extent=extent, aspect="auto", interpolation="nearest")
        axes.hlines(range(len(self.rows) + 1), 0, self.cols, theme.faint, linewidth=0.5)
        # Lines only between threads, so that none crosses a thread's number.
        every = max(1 if self.cols <= 32 else 4, self.words_each)
        ticks = range(-self.first_col % every, self.cols + 1, every)
        axes.vlines(ticks, 0, len(self.rows), theme.faint, linewidth=0.5)
        if self.access.space == "global":
            for column, row, words in itertools.chain(*map(self._visible, self.sectors)):
                moved = Rectangle((column, row), words, 1, color=theme.moved, linewidth=0)
                moved.set_zorder(-1)  # below the words
                outline = Rectangle((column, row), words, 1, fill=False, clip_on=False)
                outline.set_edgecolor(theme.ink)
                axes.add_patch(moved)
                axes.add_patch(outline)

    def _labels(self, axes: "Axes") -> None:
        """Writes the thread numbers that fit."""
        cell_inches = _PANEL_INCHES / self.cols
        for word, threads in self.threads_of.items():
            text = ", ".join(map(str, threads))
            if len(threads) > 2:
                together = threads[-1] - threads[0] == len(threads) - 1
                text = f"{threads[0]}-{threads[-1]}" if together else f"{threads[0]} …"
            column, row = self._place(word)
            fits = 0.062 * len(text) <= self.words_each * cell_inches
            if not fits and len(self.threads_of) > 2:
                continue
            axes.text(
                column + (self.words_each / 2 if fits else self.words_each + 0.3),
                row + 0.53,
                text if fits else f"threads {text}",
                ha="center" if fits else "left",
                va="center",
                fontsize=6 if fits else 8,
                color="white" if fits else None,
            )

    def _frame(self, axes: "Axes", theme: Theme) -> None:
        access = self.access
        moved = _PER_SECTOR * len(self.sectors)
        all_used = access.space == "shared" or len(self.owner) == moved
        requested = f"{self.requests} request{'' if self.requests == 1 else 's'}" + (
            "" if all_used else f", {len(self.owner)} of {moved} words used"
        )
        code, limit = f"{access.place}: {access.text.strip()}", _PANEL_LETTERS - len(requested) - 2
        if len(code) > limit:
            code = code[: limit - 2] + " …"
        axes.text(
            0,
            1 + 0.28 / self.inches,
            code,
            transform=axes.transAxes,
            fontsize=_LETTER,
            family="monospace",
            color=theme.grey,
        )
        axes.text(
            1,
            1 + 0.28 / self.inches,
            requested,
            transform=axes.transAxes,
            ha="right",
            fontsize=_LETTER,
            color=theme.grey,
        )
        axes.text(
            0,
            1 + 0.09 / self.inches,
            f"{access.kind} {access.operand}, {access.bytes_per_thread} bytes per thread: "
            + access.verdict,
            transform=axes.transAxes,
            fontsize=10.5,
            fontweight="bold",
            color=theme.alarm if access.wasteful else theme.good if all_used else theme.ink,
        )
        shared = access.space == "shared"
        step = 8 if self.cols <= 64 else 16
        columns = range(0, self.cols, step)
        axes.set_xticks([c + 0.5 for c in columns], [str(self.first_col + c) for c in columns])
        every = 1 if len(self.rows) <= 4 else 4 if len(self.rows) <= 16 else 8
        shown = range(0, len(self.rows), every)
        unit = self.words_in_row if shared else 1
        axes.set_yticks([r + 0.5 for r in shown], [str(self.rows[r] * unit) for r in shown])
        axes.set_xlabel("bank" if shared else f"column of {access.operand}", fontsize=8, labelpad=1)
        axes.set_ylabel("word" if shared else "row", fontsize=8, labelpad=2)
        axes.tick_params(labelsize=7, length=0, pad=2)
        axes.spines[:].set_visible(False)
