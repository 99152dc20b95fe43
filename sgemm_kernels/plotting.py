"""Pictures of results, light and dark. Needs matplotlib, which the extra 'plot' brings."""

import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ._catalog import variants
from .results import CPU_WARNING, KINDS, Comparison, Measurement, Shape, _size

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox
except ImportError as error:
    raise ImportError(
        "pictures need matplotlib: pip install 'sgemm_kernels[plot]'", name=error.name
    ) from None

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "faint": "#d0d7de",
    "grey": "#59636e",
    "alarm": "#b3261e",
    "bar": "#2f6fb0",
}
_DARK = {
    "paper": "#0d1117",
    "ink": "#f0f6fc",
    "faint": "#30363d",
    "grey": "#9198a1",
    "alarm": "#ff7b72",
    "bar": "#58a6ff",
}
_MARKERS = "osD^vPX*<>hd"


class Picture(Figure):
    """A matplotlib figure that a notebook shows wherever it stands, and that saves repeatably."""

    def save(self, path: str | Path) -> None:
        """Writes it; the name's ending says how (svg, png, pdf). Equal pictures, equal bytes."""
        with matplotlib.rc_context({"svg.hashsalt": "sgemm_kernels"}):
            dated = Path(path).suffix in (".svg", ".pdf")
            no_date = {"Date" if Path(path).suffix == ".svg" else "CreationDate": None}
            self.savefig(path, metadata=no_date if dated else None)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def plot(
    results: Comparison,
    kind: str = "speed",
    *,
    dark: bool = False,
    pair: tuple[str, str] | None = None,
    size: Shape | None = None,
    traffic: Mapping[str, float] | None = None,
) -> Picture:
    """Draws results of row-major operands, one of KINDS.

    'speed': TFLOP/s over M = N = K, a line for each variant, with cuBLAS and the FFMA peak of the
    same run; a reference in reduced precision leaves the picture where it is faster than these.
    'pair': the speed of pair[0] over that of pair[1] at each shape. 'speedup': each rung over the
    first one, at ``size``, by default the largest shape that all measured. 'roofline': each variant
    at ``size``, placed by its measured ``traffic``, the bytes between
    the GPU's memory and the chip by variant, under the roof that the probe of the run measured.

    Raises ValueError where the results do not hold what the picture shows.
    """
    theme = _DARK if dark else _LIGHT
    if kind not in KINDS:
        raise ValueError(f"there is no picture {kind!r}, only {', '.join(KINDS)}")
    with matplotlib.rc_context(_style(theme)):
        picture = Picture(figsize=(9, 5.4), layout="constrained")
        axes = picture.add_subplot()
        match kind:
            case "speed":
                title = _draw_speed(axes, results, theme)
            case "pair":
                title = _draw_pair(axes, results, theme, pair)
            case "speedup":
                title = _draw_speedup(axes, results, theme, size)
            case _:
                title = _draw_roofline(axes, results, theme, size, traffic)
        picture.suptitle(title, x=0.02, ha="left", fontsize=14, fontweight="bold")
        on_cpu = results.run.kind == "cpu"
        note = CPU_WARNING if on_cpu else _note(results)
        axes.set_title(
            note,
            loc="left",
            fontsize=12 if on_cpu else 9,
            color=theme["alarm" if on_cpu else "grey"],
        )
        picture.draw_without_rendering()
    return picture


def read_traffic(path: str | Path, shape: Shape) -> dict[str, float]:
    """Bytes moved between the GPU's memory and the chip, by variant, from benchmarks/traffic.py.

    Raises ValueError where the file counts none at this shape.
    """
    found = _traffic(path).get(shape)
    if found is None:
        raise ValueError(f"{path} has no bytes counted by a GPU at {_size(shape)}")
    return found


def common_shape(results: Comparison, traffic: str | Path | None = None) -> Shape:
    """The largest shape at which every variant was timed; of equals, a square one.

    With a file of benchmarks/traffic.py, of the shapes that a GPU counted there. Raises ValueError
    if there is none.
    """
    timed = {(row.variant, row.case) for row in results.rows if row.median_s is not None}
    common = [s for s in results.shapes if all((v, (s, "NN")) in timed for v in results.variants)]
    if not common:
        raise ValueError("no shape was timed for every variant of these results")
    if traffic is not None:
        counted = _traffic(traffic)
        common = [shape for shape in common if shape in counted]
        if not common:
            raise ValueError(f"{traffic} has no bytes counted by a GPU at a shape of these results")
    return max(common, key=lambda shape: (math.prod(shape), len(set(shape)) == 1))


def _traffic(path: str | Path) -> dict[Shape, dict[str, float]]:
    """What a GPU counted of each shape, by variant, in bytes."""
    found: dict[Shape, dict[str, float]] = {}
    for row in json.loads(Path(path).read_text(encoding="utf-8"))["rows"]:
        if row.get("dram_bytes"):
            shape = row["M"], row["N"], row["K"]
            found.setdefault(shape, {})[row["variant"]] = float(row["dram_bytes"])
    return found


def _draw_speed(axes: "Axes", results: Comparison, theme: Mapping[str, str]) -> str:
    squares = [shape for shape in results.shapes if len(set(shape)) == 1]
    on_gpu = results.run.kind == "cuda"
    unit = 1e3 if on_gpu else 1.0
    ends: list[tuple[float, str, str]] = []
    beyond: list[tuple[str, list[tuple[int, float]]]] = []
    for index, name in enumerate(results.variants):
        found = [results.find(name, shape) for shape in squares]
        points = [(row.M, row.gflops / unit) for row in found if row and row.gflops is not None]
        if not points:
            continue
        if _reduced(results, name):
            beyond.append((results.label(name), points))
            continue
        colour = _colour(name, theme)
        reference = name == "cublas"
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            linewidth=2.4,
            linestyle="--" if reference else "-",
            marker=None if reference else _MARKERS[index % len(_MARKERS)],
            markersize=6,
        )
        ends.append((points[-1][1], _label(name), colour))
    if not ends:
        raise ValueError("these results have no timed float32 product of square matrices to draw")
    peak = results.run.ffma_gflops
    if peak is not None:
        axes.axhline(peak / unit, color=theme["grey"], linestyle=":", linewidth=2)
        ends.append((peak / unit, "FFMA peak", theme["grey"]))
    sizes = [shape[0] for shape in squares]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("M = N = K")
    axes.set_ylabel("TFLOP/s, higher is faster" if on_gpu else "GFLOP/s of the CPU device")
    axes.set_ylim(0, 1.06 * max(end[0] for end in ends))
    for label, points in beyond:
        _draw_beyond(axes, label, points, theme)
    _label_ends(axes, ends)
    return "Float32 matrix product: speed of every rung over size"


def _draw_beyond(
    axes: "Axes", label: str, points: Sequence[tuple[int, float]], theme: Mapping[str, str]
) -> None:
    """A line that may leave the picture, and at the place where it does, what and how high."""
    top = axes.get_ylim()[1]
    axes.plot(*zip(*points, strict=True), color=theme["grey"], linewidth=1.6, linestyle="-.")
    place = next(((size, top) for size, height in points if height > top), points[-1])
    rightwards = place[0] <= math.sqrt(math.prod(axes.get_xlim()))
    axes.annotate(
        f"{label}: up to {max(height for _, height in points):.0f} TFLOP/s",
        place,
        (8 if rightwards else -14, -1),
        textcoords="offset points",
        ha="left" if rightwards else "right",
        va="top",
        color=theme["grey"],
        fontsize=11,
    )


def _draw_pair(
    axes: "Axes", results: Comparison, theme: Mapping[str, str], pair: tuple[str, str] | None
) -> str:
    if pair is None:
        raise ValueError("a picture of a pair needs the names of two variants")
    if "cublas" in pair and results.run.kind == "cpu":
        raise ValueError("times of the CPU device are not compared with cuBLAS")
    ratios = []
    for shape in results.shapes:
        over, under = (_timed(results, name, shape) for name in pair)
        if over is not None and under is not None:
            ratios.append((_size(shape).replace("x", "x\n"), under / over))
    if not ratios:
        raise ValueError(f"no shape was timed for both {pair[0]} and {pair[1]}")
    sizes, heights = zip(*ratios, strict=True)
    bars = axes.bar(sizes, heights, color=theme["bar"], width=0.65)
    axes.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2, fontsize=11)
    axes.axhline(1, color=theme["ink"], linewidth=1.5, linestyle="--")
    axes.set_ylim(0, 1.12 * max(1.0, *heights))
    axes.set_xlabel("M = N = K, or M x N x K")
    axes.set_ylabel(f"speed of {pair[0]} / speed of {_label(pair[1])}")
    axes.grid(visible=False, axis="x")
    return (
        f"{_label(pair[0])} against {_label(pair[1])}: above the dashed line, {pair[0]} is faster"
    )


def _draw_speedup(
    axes: "Axes", results: Comparison, theme: Mapping[str, str], size: Shape | None
) -> str:
    shape = size or common_shape(results)
    full = [name for name in results.variants if not _reduced(results, name)]
    times = {name: _timed(results, name, shape) for name in full}
    if results.run.kind == "cpu":
        times.pop("cublas", None)
    bars = [(name, seconds) for name, seconds in times.items() if seconds is not None]
    if len(bars) < 2:
        raise ValueError(f"fewer than two variants were timed at {_size(shape)}")
    first = bars[0][1]
    lengths = [first / seconds for _, seconds in bars]
    names = [_label(name) for name, _ in bars]
    colours = [theme["grey" if name == "cublas" else "bar"] for name, _ in bars]
    drawn = axes.barh(names, lengths, color=colours, height=0.68)
    texts = []
    for (name, _), length in zip(bars, lengths, strict=True):
        row = results.find(name, shape)
        step = None if row is None else results.over_previous(row)
        texts.append(f"{length:.3g}x" + (f"   ({step:.2f}x the rung before)" if step else ""))
    axes.bar_label(drawn, texts, padding=5, fontsize=11)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.42 * max(lengths))
    axes.set_xlabel(f"speed over {bars[0][0]}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelsize=12)
    return f"What each rung of the ladder brings, at {_spelled(shape)}"


def _draw_roofline(
    axes: "Axes",
    results: Comparison,
    theme: Mapping[str, str],
    size: Shape | None,
    traffic: Mapping[str, float] | None,
) -> str:
    peak, bandwidth = results.run.ffma_gflops, results.run.copy_bytes_per_s
    if peak is None or bandwidth is None:
        raise ValueError("a roofline needs the peaks of the same run: measure with the probe")
    if not traffic:
        raise ValueError("a roofline needs measured traffic: run benchmarks/traffic.py on a GPU")
    shape = size or common_shape(results)
    operations = 2.0 * math.prod(shape)
    points = []
    for name in results.variants:
        seconds = _timed(results, name, shape)
        if seconds is not None and name in traffic:
            points.append((operations / traffic[name], operations / seconds / 1e12, name))
    if not points:
        raise ValueError(f"no variant has both a time and its traffic at {_size(shape)}")

    ridge = peak * 1e9 / bandwidth
    low = min(ridge, *(x for x, _, _ in points)) / 3
    high = max(ridge, *(x for x, _, _ in points)) * 8
    corners = [low, ridge, high]
    roof = [min(peak / 1e3, bandwidth * x / 1e12) for x in corners]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot(corners, roof, color=theme["ink"], linewidth=2.4)
    axes.fill_between(corners, roof, [r * 100 for r in roof], color=theme["faint"], alpha=0.35)
    middle = math.sqrt(low * ridge)
    for text, place, offset, side in (
        (f"FFMA peak, {peak / 1e3:.1f} TFLOP/s", (high, peak / 1e3), (-4, 6), "right"),
        (
            f"memory, {bandwidth / 1e12:.2f} TB/s",
            (middle, bandwidth * middle / 1e12),
            (8, -12),
            "left",
        ),
    ):
        axes.annotate(text, place, offset, textcoords="offset points", ha=side, fontsize=11)
    for x, y, name in points:
        index = results.variants.index(name)
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(x, y, marker=marker, markersize=10, color=_colour(name, theme))
    lowest = min(*(y for _, y, _ in points), roof[0])
    axes.set_xlim(low, high)
    axes.set_ylim(lowest / 1.6, 2.2 * peak / 1e3)
    _label_points(axes, points, theme)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("operations per byte moved between the GPU's memory and the chip, measured")
    axes.set_ylabel("TFLOP/s")
    return f"Under the roof: how near each rung comes to a limit, at {_spelled(shape)}"


_LINE_POINTS = 15.0
_LETTER_POINTS = 8.5


def _label_ends(axes: "Axes", ends: Sequence[tuple[float, str, str]]) -> None:
    """Names (height, text, colour) at the ends of lines.

    Those that would touch are moved apart, upwards: the lowest stand on the axis.
    """
    right = axes.get_xlim()[1]
    ends = sorted(ends)
    places = _in_points(axes, [(right, height) for height, _, _ in ends])
    last = -math.inf
    for (height, text, colour), (_, wanted) in zip(ends, places, strict=True):
        last = max(wanted, last + _LINE_POINTS)
        _annotate(axes, text, (right, height), (10, last - wanted), colour)


def _label_points(
    axes: "Axes", points: Sequence[tuple[float, float, str]], theme: Mapping[str, str]
) -> None:
    """Names of points (x, y, variant), each to the right of its point.

    Where a name would touch another one or its point, the names of both form one column to the
    right of the points, the highest first, with a line from each name to its point.
    """
    places = _in_points(axes, [(x, y) for x, y, _ in points])
    texts = [_label(name) for _, _, name in points]

    def column(group: Sequence[int]) -> dict[int, tuple[float, float]]:
        """Where the names of some points begin."""
        left = max(places[i][0] for i in group) + (10 if len(group) == 1 else 30)
        middle = math.inf
        starts = {}
        for i in sorted(group, key=lambda i: -places[i][1]):
            middle = min(places[i][1], middle - _LINE_POINTS)
            starts[i] = left, middle
        return starts

    def boxes(group: Sequence[int]) -> list[Bbox]:
        """What the points and their names cover."""
        half = _LINE_POINTS / 2 - 1
        names = column(group)
        spots = [(x - half, y, 2 * half) for x, y in (places[i] for i in group)]
        spots += [(x, y, _LETTER_POINTS * len(texts[i])) for i, (x, y) in names.items()]
        return [Bbox.from_bounds(x, y - half, width, 2 * half) for x, y, width in spots]

    groups: list[tuple[int, ...]] = [(i,) for i in range(len(points))]
    while touching := next(
        (
            (one, other)
            for one, other in itertools.combinations(groups, 2)
            if any(box.count_overlaps(boxes(other)) for box in boxes(one))
        ),
        None,
    ):
        groups = [group for group in groups if group not in touching]
        groups.append(touching[0] + touching[1])
    for group in groups:
        for i, (left, middle) in column(group).items():
            x, y, name = points[i]
            offset = left - places[i][0], middle - places[i][1]
            _annotate(axes, texts[i], (x, y), offset, _colour(name, theme), line=len(group) > 1)


def _in_points(axes: "Axes", places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where places of the axes are on the picture, in points, the unit of letters."""
    picture = cast(Figure, axes.figure)
    picture.draw_without_rendering()
    pixels = axes.transData.transform(places)
    return [(float(x), float(y)) for x, y in pixels * 72 / picture.get_dpi()]


def _annotate(
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
        text,
        place,
        offset_points,
        textcoords="offset points",
        va="center",
        color=colour,
        fontsize=12,
        fontweight="bold",
        annotation_clip=False,
        arrowprops=leader if line else None,
    )


def _timed(results: Comparison, name: str, shape: Shape) -> float | None:
    row: Measurement | None = results.find(name, shape)
    return None if row is None else row.median_s


def _reduced(results: Comparison, name: str) -> bool:
    return any(row.precision != "float32" for row in results.rows if row.variant == name)


def _label(name: str) -> str:
    return "cuBLAS" if name == "cublas" else name


def _spelled(shape: Shape) -> str:
    return f"M = N = K = {shape[0]}" if len(set(shape)) == 1 else _size(shape)


def _note(results: Comparison) -> str:
    cache = results.run.protocol.cache
    facts = [results.run.device, f"float32, kernel time, {cache} cache"]
    facts += [f"CUDA {results.run.cuda_toolkit}"] if results.run.cuda_toolkit else []
    return ", ".join([*facts, results.run.date[:10]])


def _colour(name: str, theme: Mapping[str, str]) -> Any:
    """A rung's colour goes with its place on the ladder; the reference has the ink's."""
    rungs = [variant.name for variant in variants() if variant.file is not None]
    if name not in rungs:
        return theme["ink"]
    place = rungs.index(name) / max(len(rungs) - 1, 1)
    # Plasma's end that stands out from the paper: without yellow on white, without blue on black.
    start, end = (0.0, 0.74) if theme is _LIGHT else (0.95, 0.44)
    return matplotlib.colormaps["plasma"](start + (end - start) * place)


def _style(theme: Mapping[str, str]) -> Any:
    ink, paper = theme["ink"], theme["paper"]
    return {
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "axes.edgecolor": theme["grey"],
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.labelsize": 12,
        "grid.color": theme["faint"],
        "font.family": "DejaVu Sans",
        "font.size": 11,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink),
    }
