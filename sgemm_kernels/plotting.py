"""Pictures of results, light and dark. Needs matplotlib, which the extra 'plot' brings."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ._style import (
    LETTER,
    LINE,
    Picture,
    Theme,
    annotate,
    drawing,
    in_points,
    label_ends,
    label_of,
    look,
)
from .results import CPU_WARNING, KINDS, Measurement, Results, Shape, size_text

# isort: split
from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Picture", "common_shape", "plot", "read_traffic"]


def plot(
    results: Results,
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
    if kind not in KINDS:
        raise ValueError(f"there is no picture {kind!r}, only {', '.join(KINDS)}")
    on_cpu = results.run.kind == "cpu"
    with drawing("", _note(results), dark=dark) as (picture, theme):
        axes = picture.add_subplot()
        match kind:
            case "speed":
                title = _draw_speed(axes, results, theme)
            case "pair":
                title = _draw_pair(axes, results, theme, pair)
            case "speedup":
                title = _draw_speedup(axes, results, size)
            case _:
                title = _draw_roofline(axes, results, theme, size, traffic)
        picture.entitle(title)
        if on_cpu:
            axes.set_title(CPU_WARNING, color=theme.alarm)
    return picture


def read_traffic(path: str | Path, shape: Shape) -> dict[str, float]:
    """Bytes moved between the GPU's memory and the chip, by variant, from benchmarks/traffic.py.

    Raises ValueError where the file counts none at this shape.
    """
    found = _traffic(path).get(shape)
    if found is None:
        raise ValueError(f"{path} has no bytes counted by a GPU at {size_text(shape)}")
    return found


def common_shape(results: Results, traffic: str | Path | None = None) -> Shape:
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
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "rows" not in document:
        raise ValueError(f"{path} does not hold what benchmarks/traffic.py writes")
    for row in document["rows"]:
        if row.get("dram_bytes"):
            shape = row["M"], row["N"], row["K"]
            found.setdefault(shape, {})[row["variant"]] = float(row["dram_bytes"])
    return found


def _draw_speed(axes: "Axes", results: Results, theme: Theme) -> str:
    squares = [shape for shape in results.shapes if len(set(shape)) == 1]
    on_gpu = results.run.kind == "cuda"
    unit = 1e3 if on_gpu else 1.0
    ends: list[tuple[float, str, str]] = []
    beyond: list[tuple[str, list[tuple[int, float]]]] = []
    highest = 0.0
    for name in results.variants:
        found = [results.find(name, shape) for shape in squares]
        points = [(row.M, row.gflops / unit) for row in found if row and row.gflops is not None]
        if not points:
            continue
        if _reduced(results, name):
            beyond.append((results.label(name), points))
            continue
        axes.plot(*zip(*points, strict=True), **look(name).line())
        ends.append((points[-1][1], label_of(name), look(name).colour))
        highest = max(highest, *(height for _, height in points))
    if not ends:
        raise ValueError("these results have no timed float32 product of square matrices to draw")
    peak = results.run.ffma_gflops
    if peak is not None:
        axes.axhline(peak / unit, color=theme.grey, linestyle=":", linewidth=2)
        ends.append((peak / unit, "FFMA peak", theme.grey))
        highest = max(highest, peak / unit)
    sizes = [shape[0] for shape in squares]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("M = N = K")
    axes.set_ylabel("TFLOP/s, higher is faster" if on_gpu else "GFLOP/s of the CPU device")
    axes.set_ylim(0, 1.06 * highest)
    for text, points in beyond:
        _draw_beyond(axes, text, points, theme)
    label_ends(axes, ends)
    return "Float32 matrix product: speed of every rung over size"


def _draw_beyond(
    axes: "Axes", text: str, points: Sequence[tuple[int, float]], theme: Theme
) -> None:
    """A line that may leave the picture, and at the place where it does, what and how high."""
    top = axes.get_ylim()[1]
    axes.plot(*zip(*points, strict=True), color=theme.grey, linewidth=1.6, linestyle="-.")
    place = next(((size, top) for size, height in points if height > top), points[-1])
    rightwards = place[0] <= math.sqrt(math.prod(axes.get_xlim()))
    axes.annotate(
        f"{text}: up to {max(height for _, height in points):.0f} TFLOP/s",
        place,
        (8 if rightwards else -14, -1),
        textcoords="offset points",
        ha="left" if rightwards else "right",
        va="top",
        color=theme.grey,
        fontsize=11,
    )


def _draw_pair(axes: "Axes", results: Results, theme: Theme, pair: tuple[str, str] | None) -> str:
    if pair is None:
        raise ValueError("a picture of a pair needs the names of two variants")
    if "cublas" in pair and results.run.kind == "cpu":
        raise ValueError("times of the CPU device are not compared with cuBLAS")
    ratios = []
    for shape in results.shapes:
        over, under = (_timed(results, name, shape) for name in pair)
        if over is not None and under is not None:
            ratios.append((size_text(shape).replace("x", "x\n"), under / over))
    if not ratios:
        raise ValueError(f"no shape was timed for both {pair[0]} and {pair[1]}")
    sizes, heights = zip(*ratios, strict=True)
    bars = axes.bar(sizes, heights, color=look(pair[0]).colour, width=0.65)
    axes.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2, fontsize=11)
    axes.axhline(1, color=theme.ink, linewidth=1.5, linestyle="--")
    axes.set_ylim(0, 1.12 * max(1.0, *heights))
    axes.set_xlabel("M = N = K, or M x N x K")
    axes.set_ylabel(f"speed of {pair[0]} / speed of {label_of(pair[1])}")
    axes.grid(visible=False, axis="x")
    one, other = map(label_of, pair)
    return f"{one} against {other}: above the dashed line, {one} is faster"


def _draw_speedup(axes: "Axes", results: Results, size: Shape | None) -> str:
    shape = size or common_shape(results)
    full = [name for name in results.variants if not _reduced(results, name)]
    times = {name: _timed(results, name, shape) for name in full}
    if results.run.kind == "cpu":
        times.pop("cublas", None)
    bars = [(name, seconds) for name, seconds in times.items() if seconds is not None]
    if len(bars) < 2:
        raise ValueError(f"fewer than two variants were timed at {size_text(shape)}")
    first = bars[0][1]
    lengths = [first / seconds for _, seconds in bars]
    names = [label_of(name) for name, _ in bars]
    colours = [look(name).colour for name, _ in bars]
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
    results: Results,
    theme: Theme,
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
        raise ValueError(f"no variant has both a time and its traffic at {size_text(shape)}")

    ridge = peak * 1e9 / bandwidth
    low = min(ridge, *(x for x, _, _ in points)) / 3
    high = max(ridge, *(x for x, _, _ in points)) * 8
    corners = [low, ridge, high]
    roof = [min(peak / 1e3, bandwidth * x / 1e12) for x in corners]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot(corners, roof, color=theme.ink, linewidth=2.4)
    axes.fill_between(corners, roof, [r * 100 for r in roof], color=theme.faint, alpha=0.35)
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
        axes.plot(x, y, **look(name).line() | {"markersize": 10})
    lowest = min(*(y for _, y, _ in points), roof[0])
    axes.set_xlim(low, high)
    axes.set_ylim(lowest / 1.6, 2.2 * peak / 1e3)
    _label_points(axes, points)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("operations per byte moved between the GPU's memory and the chip, measured")
    axes.set_ylabel("TFLOP/s")
    return f"Under the roof: how near each rung comes to a limit, at {_spelled(shape)}"


_LETTER_WIDTH = 0.7 * LETTER
"""More than that of the widest letter of a name, in points."""


def _label_points(axes: "Axes", points: Sequence[tuple[float, float, str]]) -> None:
    """Names of points (x, y, variant), each to the right of its point.

    Where a name would touch another one or its point, the names of both form one column to the
    right of the points, the highest first, with a line from each name to its point.
    """
    places = in_points(axes, [(x, y) for x, y, _ in points])
    texts = [label_of(name) for _, _, name in points]

    def column(group: Sequence[int]) -> dict[int, tuple[float, float]]:
        """Where the names of some points begin."""
        left = max(places[i][0] for i in group) + (10 if len(group) == 1 else 30)
        middle = math.inf
        starts = {}
        for i in sorted(group, key=lambda i: -places[i][1]):
            middle = min(places[i][1], middle - LINE)
            starts[i] = left, middle
        return starts

    def boxes(group: Sequence[int]) -> list[Bbox]:
        """What the points and their names cover."""
        half = LINE / 2 - 1
        names = column(group)
        spots = [(x - half, y, 2 * half) for x, y in (places[i] for i in group)]
        spots += [(x, y, _LETTER_WIDTH * len(texts[i])) for i, (x, y) in names.items()]
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
            annotate(axes, texts[i], (x, y), offset, look(name).colour, line=len(group) > 1)


def _timed(results: Results, name: str, shape: Shape) -> float | None:
    row: Measurement | None = results.find(name, shape)
    return None if row is None else row.median_s


def _reduced(results: Results, name: str) -> bool:
    return any(row.precision != "float32" for row in results.rows if row.variant == name)


def _spelled(shape: Shape) -> str:
    return f"M = N = K = {shape[0]}" if len(set(shape)) == 1 else size_text(shape)


def _note(results: Results) -> str:
    cache = results.run.protocol.cache
    facts = [results.run.device, f"float32, kernel time, {cache} cache"]
    facts += [f"CUDA {results.run.cuda_toolkit}"] if results.run.cuda_toolkit else []
    return ", ".join([*facts, results.run.date[:10]])
