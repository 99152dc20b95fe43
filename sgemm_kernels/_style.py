"""How every picture looks, light and dark: papers, colours, lines, and where names stand.

A rung has one colour in all pictures and on both papers. The colours run along the ladder from blue
to ochre, so that those who see no red or no green can tell its foot from its top, and all of them
stand out from white and from black. What is no rung is told apart by more than its colour: `auto`
by a wide line, `simt` by that line's colour, a library by a grey and broken one.
"""

import contextlib
import io
import itertools
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ._catalog import variants
from ._output import write
from ._table import printable

try:
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.rcsetup import cycler
    from matplotlib.ticker import LogFormatter
except ImportError as error:
    raise ImportError(
        "pictures need matplotlib: pip install 'sgemm_kernels[plot]'", name=error.name
    ) from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LETTER = 12.0
"""Size of the letters of a name beside a line, in points."""
LINE = 15.0
"""From one such name to the next, in points."""

_TOGETHER = 3.5
"""Lines that end so close together, in points, are one line to the eye, and have one name."""
_SIDE_BY_SIDE = 4
"""So many of them at most are side by side."""


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours that go with a paper."""

    paper: str
    ink: str
    grey: str
    """What stands beside what is shown."""
    faint: str
    """Grids."""
    good: str
    alarm: str
    moved: str
    """Words that are moved along and not used."""


_LIGHT = Theme("#ffffff", "#1f2328", "#59636e", "#d0d7de", "#1a7f37", "#b3261e", "#f2b8b5")
_DARK = Theme("#0d1117", "#f0f6fc", "#9198a1", "#30363d", "#3fb950", "#ff7b72", "#6b2b28")

RAMP = LinearSegmentedColormap.from_list(
    "ladder", ["#2f7de1", "#7c6fe0", "#b75fc4", "#d65a86", "#d9633a", "#b07d14"]
)
"""The ladder's colours, from its foot to its top: blue, violet, rose, orange, ochre."""

SERIES = ("#2f7de1", "#d9633a", "#16967f", "#b75fc4", "#b07d14", "#7a838e")
"""Colours of what has no order; as many as a picture can bear."""

MARKERS = "osD^vPX*<>h|dp8H"

Marker = str | tuple[int, int, float]
"""As matplotlib takes them: a letter, or points, style and angle."""

_LIBRARY_GREY = "#7a838e"
_LIBRARIES = {
    "cublas": ("--", "s"),
    "CuPy": (":", "D"),
    "PyTorch": ("-.", "^"),
    "numpy": (":", "v"),
}


@dataclass(frozen=True, slots=True)
class Look:
    """How the line of something that multiplies is drawn."""

    colour: str
    marker: Marker
    dashes: str = "-"
    width: float = 2.0

    def line(self) -> dict[str, Any]:
        """As the options of ``Axes.plot``; a library's markers are hollow."""
        options: dict[str, Any] = {"color": self.colour, "linestyle": self.dashes}
        options |= {"linewidth": self.width, "marker": self.marker, "markersize": 6}
        return options | ({} if self.dashes == "-" else {"markerfacecolor": "none"})


def look(name: str) -> Look:
    """Of a rung by its place on the ladder, of a choice of rungs, and of a library."""
    rungs = [variant.name for variant in variants() if variant.file is not None]
    if name in rungs:
        place = rungs.index(name)
        colour = to_hex(RAMP(place / max(len(rungs) - 1, 1)))
        return Look(colour, _marker(place))
    if name in ("simt", "auto"):
        return Look(SERIES[2], "o", width=3.2 if name == "auto" else 2.0)
    others = list(_LIBRARIES.values())
    known = "cublas" if name == "rocblas" else name  # each is the reference of its GPUs
    dashes, marker = _LIBRARIES.get(known, others[zlib.crc32(name.encode()) % len(others)])
    return Look(_LIBRARY_GREY, marker, dashes)


def _marker(place: int) -> Marker:
    """No two rungs have the same: those beyond MARKERS have stars of 6, 7 and more points."""
    more = place - len(MARKERS)
    return MARKERS[place] if more < 0 else (6 + more, 1, 0.0)


def label_of(name: str) -> str:
    """What pictures call a variant."""
    return plain({"cublas": "cuBLAS", "rocblas": "rocBLAS", "numpy": "NumPy"}.get(name, name))


def plain(text: str) -> str:
    """The text for a picture: no dollar sign begins mathematics, and each character has a shape."""
    return re.sub(r"(?<!\\)\$", r"\\$", printable(text))


def theme(dark: bool) -> Theme:
    return _DARK if dark else _LIGHT


class Picture(Figure):
    """A matplotlib figure that a notebook shows wherever it stands, and that saves repeatably."""

    def entitle(self, title: str) -> None:
        """Says above the picture what it shows."""
        self.suptitle(plain(title), x=0.01, ha="left", fontsize=14, fontweight="bold")

    def footnote(self, text: str, paper: Theme) -> None:
        """Says below the picture where it is from."""
        self.supxlabel(plain(text), x=0.01, ha="left", fontsize=9, color=paper.grey)

    def save(self, path: str | Path, *, origin: str | None = None) -> None:
        """Writes the picture. Equal pictures have equal bytes.

        Parameters
        ----------
        path
            The file to write; its ending says how: svg, png or pdf.
        origin
            For the metadata of an SVG: the results that the picture shows.
        """
        metadata: dict[str, str | None] = {}
        match Path(path).suffix:
            case ".svg":
                metadata = {"Date": None} | ({"Source": origin} if origin else {})
            case ".pdf":
                metadata = {"CreationDate": None}
        with matplotlib.rc_context({"svg.hashsalt": "sgemm_kernels"}):
            self.savefig(
                picture := io.BytesIO(),
                format=Path(path).suffix.removeprefix(".") or "png",
                metadata=metadata or None,
            )
        write(path, lambda file: file.write(picture.getvalue()))

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def style(*, dark: bool = False) -> dict[str, Any]:
    """Matplotlib's settings for pictures of your own that look as this package's.

    ``matplotlib.pyplot.rcParams.update(style())`` sets them for all that is drawn afterwards.

    Parameters
    ----------
    dark
        For dark pages.

    Returns
    -------
    dict
        By the names of matplotlib's rcParams.
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
def styled(*, dark: bool, grid: bool = True) -> Iterator[Theme]:
    """What is drawn meanwhile is in this style."""
    settings: Any = style(dark=dark) | {"axes.grid": grid}
    with matplotlib.rc_context(settings):
        yield theme(dark)


@contextlib.contextmanager
def drawing(
    title: str, note: str, *, dark: bool, width: float = 9.0, height: float = 5.4
) -> Iterator[tuple[Picture, Theme]]:
    """A picture under its title, which says what it shows, and above a note of where that is from.
    It is laid out when what is drawn meanwhile is all there."""
    with styled(dark=dark) as colours:
        picture = Picture(figsize=(width, height), layout="constrained")
        picture.entitle(title)
        picture.footnote(note, colours)
        yield picture, colours
        picture.draw_without_rendering()


def plain_marks(axes: "Axes") -> None:
    """Writes the marks of a logarithmic y axis without powers of ten."""
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter())


def ticks(axes: "Axes", which: str, values: Sequence[float]) -> None:
    """Marks a logarithmic axis at these values alone, written as they are."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """Of a table that is a picture: what is written, and how strong a colour stands behind it."""

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
    """A table of named rows under named columns, each cell with its text on its colour."""
    for y, (_, line) in enumerate(rows):
        for x, cell in enumerate(line):
            shade = _mixed(paper.paper, cell.colour, 0.85 * min(max(cell.strength, 0.0), 1.0))
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


def _mixed(paper: str, colour: str, share: float) -> tuple[float, ...]:
    """A colour on paper, of such a share; the ink of either paper can be read on it."""
    pairs = zip(to_rgb(paper), to_rgb(colour), strict=True)
    return tuple(0.7 * share * ink + (1 - 0.7 * share) * white for white, ink in pairs)


def mark_unmet(axes: "Axes", points: Sequence[tuple[float, float]], paper: Theme) -> None:
    """A cross on each point whose sampling ended too early, and what it means."""
    if points:
        (crosses,) = axes.plot(*zip(*points, strict=True), "x", color=paper.ink, zorder=5)
        crosses.set(markersize=8, label="sampling ended before its criteria were met")
        axes.legend(handles=[crosses], loc="lower right", fontsize=9, handletextpad=0.3)


def label_ends(axes: "Axes", ends: Sequence[tuple[float, str, str]]) -> None:
    """Names (height, text, colour) of lines, at the right edge of the axes, each at the height of
    its line's end; those of lines that end together are one name, of a few of them.

    Names that would touch are moved apart, as little as will do, with a line from each to its
    place.
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
    """Places in ascending order, each as near to the wanted one as they all can be with at least so
    much between one and the next: the least sum of squares of what they are moved by."""
    blocks: list[tuple[float, int]] = []  # the mean of what is wanted less the gaps, and how many
    for index, place in enumerate(wanted):
        mean, count = place - index * least, 1
        while blocks and blocks[-1][0] > mean:
            before, number = blocks.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        blocks.append((mean, count))
    means = itertools.chain.from_iterable([mean] * count for mean, count in blocks)
    return [mean + index * least for index, mean in enumerate(means)]


def in_points(axes: "Axes", places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where places of the axes are on the picture, in points, the unit of letters."""
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
    """A name that begins at some distance from its place, with a line between them or without."""
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
