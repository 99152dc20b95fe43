"""The style of all plots, light and dark: colours, lines, and label positions.

A rung has the same colour in all plots, on light and dark paper. The colours run along the ladder
from blue to ochre, so that readers with red-green colour blindness can tell both ends apart, and
they contrast with white and black. Other lines differ by more than colour: `auto` is wide, `simt`
and `invariant` have the same colour as `auto`, and a library's line is dashed.
"""

import contextlib
import io
import itertools
import math
import re
import textwrap
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ._catalog import variants
from ._output import write
from ._svg import compact
from ._table import printable

try:
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap, to_hex
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Rectangle
    from matplotlib.rcsetup import cycler
    from matplotlib.ticker import LogFormatter
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install matplotlib", name=error.name) from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER = 12.0
"""Font size of line labels, in points."""
LINE = 15.0
"""Distance between line labels, in points."""

_CHOICES = {"simt": "o", "auto": "o", "invariant": "s"}
"""The markers of variants that choose among rungs."""

_NOTE_LETTER = 5.2
"""Width of a letter of a note, in points."""
_MARGIN = 0.1
"""Around axes, in inches: text in another font may be a little wider."""
_TOGETHER = 3.5
"""Lines whose ends are closer than this, in points, share a label."""
_SIDE_BY_SIDE = 4
"""Maximum number of names in one label."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours for light or dark paper."""

    paper: str
    ink: str
    grey: str
    """Notes and axes."""
    faint: str
    """Grid lines."""
    good: str
    alarm: str
    moved: str
    """Words that are transferred but not used."""


_LIGHT = Theme("#ffffff", "#1f2328", "#59636e", "#d0d7de", "#1a7f37", "#b3261e", "#f2b8b5")
_DARK = Theme("#0d1117", "#f0f6fc", "#9198a1", "#30363d", "#3fb950", "#ff7b72", "#6b2b28")

RAMP = LinearSegmentedColormap.from_list(
    "ladder", ["#2f7de1", "#7c6fe0", "#b75fc4", "#d65a86", "#d9633a", "#b07d14"]
)
"""The ladder's colours, from the first rung to the last: blue, violet, rose, orange, ochre."""

SERIES = ("#2f7de1", "#d9633a", "#16967f", "#b75fc4", "#b07d14", "#7a838e")
"""Colours for unordered series."""

MARKERS = "osD^vPX*<>h|dp8H"

Marker = str | tuple[int, int, float]
"""A matplotlib marker: a letter, or (points, style, angle)."""

_LIBRARY_GREY = "#7a838e"
_LIBRARIES = {
    "cublas": ("--", "s"),
    "CuPy": (":", "D"),
    "PyTorch": ("-.", "^"),
    "numpy": (":", "v"),
}


@dataclass(frozen=True, slots=True)
class Look:
    """The line style of a kernel or library."""

    colour: str
    marker: Marker
    dashes: str = "-"
    width: float = 2.0

    def line(self) -> dict[str, Any]:
        """Options for ``Axes.plot``. A library's markers are hollow."""
        options: dict[str, Any] = {"color": self.colour, "linestyle": self.dashes}
        options |= {"linewidth": self.width, "marker": self.marker, "markersize": 6}
        return options | ({} if self.dashes == "-" else {"markerfacecolor": "none"})


def look(name: str) -> Look:
    """The line style of a rung (by its position), of a choice among rungs, or of a library."""
    rungs = [variant.name for variant in variants() if variant.file is not None]
    if name in rungs:
        place = rungs.index(name)
        colour = to_hex(RAMP(place / max(len(rungs) - 1, 1)))
        return Look(colour, _marker(place))
    if name in _CHOICES:
        return Look(SERIES[2], _CHOICES[name], width=3.2 if name == "auto" else 2.0)
    others = list(_LIBRARIES.values())
    known = "cublas" if name == "rocblas" else name  # both are the reference library
    dashes, marker = _LIBRARIES.get(known, others[zlib.crc32(name.encode()) % len(others)])
    return Look(_LIBRARY_GREY, marker, dashes)


def _marker(place: int) -> Marker:
    """A unique marker for each rung. Beyond MARKERS, stars with 6, 7 and more points."""
    more = place - len(MARKERS)
    return MARKERS[place] if more < 0 else (6 + more, 1, 0.0)


def label_of(name: str) -> str:
    """The name of a variant in plots."""
    return plain({"cublas": "cuBLAS", "rocblas": "rocBLAS", "numpy": "NumPy"}.get(name, name))


def plain(text: str) -> str:
    """Escapes text for a plot: dollar signs do not start maths, and all characters are
    printable."""
    return re.sub(r"(?<!\\)\$", r"\\$", printable(text))


def theme(dark: bool | None) -> Theme:
    return _DARK if dark else _LIGHT


class Picture(Figure):
    """A matplotlib figure that notebooks display and that is saved reproducibly."""

    dark: bool | None = None
    """The theme it was drawn with. None is the light theme, but as SVG the reader's."""

    def entitle(self, title: str) -> None:
        """Sets the title above the plot. A long title has smaller letters."""
        text = self.suptitle(plain(title), x=0.01, ha="left", fontsize=14, fontweight="bold")
        width = text.get_window_extent().width / self.bbox.width
        text.set_fontsize(14 * min(1.0, 0.96 / max(width, 0.01)))

    def footnote(self, text: str, paper: Theme) -> None:
        """Sets the note below the plot, which gives its source. Long lines wrap."""
        self._set_note(plain(text), color=paper.grey)

    def add_note(self, text: str) -> None:
        """Adds a line to the note below the plot, unless it has this line."""
        if text not in (note := self.get_supxlabel()).splitlines():
            self._set_note(f"{note}\n{plain(text)}")

    def _set_note(self, text: str, **look: Any) -> None:
        letters = int(self.bbox.width / self.dpi * 72 / _NOTE_LETTER)
        lines = [line for long in text.splitlines() for line in textwrap.wrap(long, letters)]
        self.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=9, **look)

    def save(self, path: str | Path, *, origin: str | None = None) -> None:
        """Saves the plot. Equal plots give identical files.

        A plot drawn without the option ``dark`` is light; but an SVG is dark where the reader
        prefers dark pages.

        Parameters
        ----------
        path
            The file to write. Its suffix selects the format: svg, png or pdf.
        origin
            The results that an SVG shows, for its metadata.
        """
        metadata: dict[str, str | None] = {}
        match Path(path).suffix:
            case ".svg":
                metadata = {"Date": None}
            case ".pdf":
                metadata = {"CreationDate": None}
        with matplotlib.rc_context({"svg.hashsalt": "sgemm_kernels", "svg.fonttype": "none"}):
            self.savefig(
                picture := io.BytesIO(),
                format=Path(path).suffix.removeprefix(".") or "png",
                metadata=metadata or None,
            )
        data = picture.getvalue()
        if Path(path).suffix == ".svg":
            replaced = (
                zip(astuple(_LIGHT), astuple(_DARK), strict=True) if self.dark is None else ()
            )
            data = compact(data.decode("utf-8"), dict(replaced), origin).encode("utf-8")
        write(path, lambda file: file.write(data))

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def style(*, dark: bool = False) -> dict[str, Any]:
    """Matplotlib settings for this package's style, for use in your own plots.

    ``matplotlib.pyplot.rcParams.update(style())`` applies them to all later plots.

    Parameters
    ----------
    dark
        Use the dark theme.

    Returns
    -------
    dict
        Values by rcParams name.
    """
    colours = theme(dark)
    inks = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor")
    return {
        "figure.facecolor": colours.paper,
        "savefig.facecolor": colours.paper,
        "axes.facecolor": colours.paper,
        "axes.edgecolor": colours.grey,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.labelsize": 12,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.prop_cycle": cycler("color", SERIES),
        "grid.color": colours.faint,
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "font.family": "DejaVu Sans",
        "font.size": 11,
        **dict.fromkeys(inks, colours.ink),
    }


@contextlib.contextmanager
def styled(*, dark: bool | None, grid: bool = True) -> Iterator[Theme]:
    """Applies this style to everything drawn in the ``with`` block."""
    settings: Any = style(dark=bool(dark)) | {"axes.grid": grid}
    with matplotlib.rc_context(settings):
        yield theme(dark)


@contextlib.contextmanager
def drawing(
    title: str, note: str, *, dark: bool | None = None, width: float = 9.0, height: float = 5.4
) -> Iterator[tuple[Picture, Theme]]:
    """A plot with a title and a note about its source. Its layout is computed when the ``with``
    block ends."""
    with styled(dark=dark) as colours:
        layout = ConstrainedLayoutEngine(w_pad=_MARGIN)
        picture = Picture(figsize=(width, height), layout=layout)
        picture.dark = dark
        picture.entitle(title)
        picture.footnote(note, colours)
        yield picture, colours
        picture.draw_without_rendering()


def plain_marks(axes: "Axes") -> None:
    """Labels a logarithmic y axis with plain numbers instead of powers of ten."""
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter())


def ticks(axes: "Axes", which: str, values: Sequence[float]) -> None:
    """Labels a logarithmic axis at these values only, with plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that is drawn as a plot: its text and the strength of its background."""

    text: str
    colour: str = SERIES[0]
    strength: float = 0.0
    """From 0 to 1."""
    outlined: bool = False


def cells(
    axes: "Axes",
    rows: Sequence[tuple[str, Sequence[Cell]]],
    columns: Sequence[str],
    paper: Theme,
) -> None:
    """Draws a table with row and column names; each cell has a text and a background colour."""
    for y, (_, line) in enumerate(rows):
        for x, cell in enumerate(line):
            shade = (cell.colour, 0.6 * min(max(cell.strength, 0.0), 1.0))  # text stays readable
            box = Rectangle((x - 0.5, y - 0.5), 1, 1)
            box.set(facecolor=shade, edgecolor=paper.paper, linewidth=2)
            axes.add_patch(box)
            if cell.outlined:
                inner = Rectangle((x - 0.47, y - 0.43), 0.94, 0.86, fill=False)
                inner.set(edgecolor=paper.ink, linewidth=2)
                axes.add_patch(inner)
            weight = "bold" if cell.outlined else "normal"
            axes.text(
                x, y, plain(cell.text), ha="center", va="center", fontsize=11, fontweight=weight
            )
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), list(map(plain, columns)))
    axes.set_yticks(range(len(rows)), [plain(name) for name, _ in rows])
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)


def mark_unmet(axes: "Axes", points: Sequence[tuple[float, float]], paper: Theme) -> None:
    """Marks points whose sampling ended too early with a cross, and adds a legend."""
    if points:
        (crosses,) = axes.plot(*zip(*points, strict=True), "x", color=paper.ink, zorder=5)
        crosses.set(markersize=8, label="sampling ended before its criteria were met")
        axes.legend(handles=[crosses], loc="lower right", fontsize=9, handletextpad=0.3)


def label_ends(axes: "Axes", ends: Sequence[tuple[float, str, str]]) -> None:
    """Labels lines at the right edge of the axes. ``ends`` has (height, text, colour) for each
    line.

    Lines that end at almost the same height share a label. Labels that would overlap are moved
    apart as little as possible; a leader line then connects each one with its end.
    """
    right = axes.get_xlim()[1]
    found = sorted(ends)
    heights = [y for _, y in in_points(axes, [(right, height) for height, _, _ in found])]
    groups: list[list[int]] = []
    for index, height in enumerate(heights):
        if groups and height - heights[groups[-1][0]] < _TOGETHER:
            groups[-1].append(index)
        else:
            groups.append([index])
    groups = [
        group[first : first + _SIDE_BY_SIDE]
        for group in groups
        for first in range(0, len(group), _SIDE_BY_SIDE)
    ]
    middles = [math.fsum(heights[i] for i in group) / len(group) for group in groups]
    places = spread(middles, LINE)
    moved = any(abs(place - middle) > 2 for place, middle in zip(places, middles, strict=True))
    for group, place in zip(groups, places, strict=True):
        middle = group[len(group) // 2]
        text = ", ".join(found[i][1] for i in reversed(group))
        colours = {found[i][2] for i in group}
        colour = colours.pop() if len(colours) == 1 else matplotlib.rcParams["text.color"]
        offset = (24 if moved else 8), place - heights[middle]
        annotate(axes, text, (right, found[middle][0]), offset, colour, line=moved)


def spread(wanted: Sequence[float], least: float) -> list[float]:
    """Ascending positions at least ``least`` apart, as close to the wanted ones as possible: they
    minimize the sum of squared displacements."""
    blocks: list[tuple[float, int]] = []  # (mean wanted position without gaps, count)
    for index, place in enumerate(wanted):
        mean, count = place - index * least, 1
        while blocks and blocks[-1][0] > mean:
            before, number = blocks.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        blocks.append((mean, count))
    means = itertools.chain.from_iterable([mean] * count for mean, count in blocks)
    return [mean + index * least for index, mean in enumerate(means)]


def in_points(axes: "Axes", places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Converts data coordinates to positions on the plot, in points."""
    picture = cast(Figure, axes.figure)
    picture.draw_without_rendering()
    pixels = axes.transData.transform(places)
    return [(float(x), float(y)) for x, y in pixels * 72 / picture.get_dpi()]


def annotate(
    axes: "Axes",
    text: str,
    place: tuple[float, float],
    offset_points: tuple[float, float],
    colour: Any,
    *,
    line: bool = False,
) -> None:
    """Draws a label at an offset from its place, optionally with a leader line."""
    leader = {"arrowstyle": "-", "color": colour, "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 6}
    axes.annotate(
        plain(text),
        place,
        offset_points,
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=LETTER,
        fontweight="bold",
        annotation_clip=False,
        arrowprops=leader if line else None,
    )
