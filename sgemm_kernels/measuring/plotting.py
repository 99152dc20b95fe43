"""Plots of results, light and dark. Needs matplotlib, which the extra 'plot' installs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._gpus import SECTOR_BYTES, WORDS_PER_LOAD, gpu_of
from .._style import (
    Cell,
    Picture,
    Theme,
    cells,
    drawing,
    label_ends,
    label_of,
    look,
    mark_unmet,
    plain_marks,
    style,
)
from .measurement import CPU_WARNING, KINDS, UNMET, UNMET_NOTE, Measurement
from .result_rows import MeasurementRows
from .results_file import read_json
from .shapes import Shape, is_square, size_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Picture", "common_shape", "plot", "read_traffic", "style"]


def plot(
    results: MeasurementRows,
    kind: str = "speed",
    *,
    dark: bool | None = None,
    pair: tuple[str, str] | None = None,
    size: Shape | None = None,
    traffic: Mapping[str, Mapping[str, Any]] | None = None,
) -> Picture:
    """Plots results of row-major operands.

    Parameters
    ----------
    results
        Results of ``measure`` or ``Results.from_json``.
    kind
        'speed': TFLOP/s over M = N = K, a line for each variant, with cuBLAS and the FFMA peak of
        the same run. 'pair': the speed of pair[0] relative to pair[1] at each shape. 'speedup': the
        speedup of each rung over the first one, at one size. 'limits': a table of each variant's
        utilization of the GPU's units at one size.
    dark
        Use the dark theme. The default is the light theme, but a saved SVG is dark where its
        reader prefers dark pages.
    pair
        The names of two variants, for 'pair'.
    size
        For 'speedup' and 'limits'. The default is the largest size that all variants have.
    traffic
        For 'limits': the GPU's counters at this size, from ``read_traffic``.

    Returns
    -------
    Picture
        A matplotlib figure.

    Raises
    ------
    ValueError
        If the results lack the data for this plot.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown plot kind {kind!r}: use one of {', '.join(KINDS)}")
    on_cpu = results.run.kind == "cpu"
    note = _note(results)
    if kind == "limits":
        note += "\nshare of each unit's peak rate; -: not counted by the profiler"
    with drawing("", note, dark=dark) as (picture, theme):
        axes = picture.add_subplot()
        match kind:
            case "speed":
                title = _draw_speed(axes, results, theme)
            case "pair":
                title = _draw_pair(axes, results, theme, pair)
            case "speedup":
                title = _draw_speedup(axes, results, size)
            case _:
                title = _draw_limits(axes, results, theme, size, traffic)
        picture.entitle(title)
        written = [text.get_text() for text in (*axes.texts, *axes.get_yticklabels())]
        if any(UNMET in text for text in written):
            picture.footnote(f"{note}\n{UNMET_NOTE}", theme)
        if on_cpu:
            axes.set_title(CPU_WARNING, color=theme.alarm)
    return picture


def read_traffic(path: str | Path, shape: Shape) -> dict[str, dict[str, Any]]:
    """Reads a GPU's counters at a shape from a file of benchmarks/traffic.py.

    Parameters
    ----------
    path
        The file.
    shape
        (M, N, K).

    Returns
    -------
    dict
        The counters by variant.

    Raises
    ------
    ValueError
        If the file has no counters at this shape.
    """
    found = _traffic(path).get(shape)
    if found is None:
        raise ValueError(f"{path} has no GPU counters at {size_text(shape)}")
    return found


def common_shape(results: MeasurementRows, traffic: str | Path | None = None) -> Shape:
    """The largest shape at which every variant was timed; among equal ones, a square one.

    Parameters
    ----------
    results
        The results to search.
    traffic
        A file of benchmarks/traffic.py. Considers only shapes with GPU counters in it.

    Returns
    -------
    tuple of int
        (M, N, K), or (batch, M, N, K).

    Raises
    ------
    ValueError
        If there is no such shape.
    """
    timed = {(row.variant, row.case) for row in results.rows if row.median_s is not None}
    common = [s for s in results.shapes if all((v, (s, "NN")) in timed for v in results.variants)]
    if not common:
        raise ValueError("these results have no shape at which every variant was timed")
    if traffic is not None:
        counted = _traffic(traffic)
        common = [shape for shape in common if shape in counted]
        if not common:
            raise ValueError(f"{traffic} has no GPU counters at any shape of these results")
    return max(common, key=lambda shape: (math.prod(shape), is_square(shape)))


def _traffic(path: str | Path) -> dict[Shape, dict[str, dict[str, Any]]]:
    """GPU counters by shape and variant."""
    found: dict[Shape, dict[str, dict[str, Any]]] = {}
    document = read_json(path)
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is not a file of benchmarks/traffic.py")
    device = {"device": document.get("device")}
    for row in rows:
        if row.get("dram_bytes"):
            shape = row["M"], row["N"], row["K"]
            found.setdefault(shape, {})[row["variant"]] = row | (row.get("gpu") or {}) | device
    return found


def _draw_speed(axes: "Axes", results: MeasurementRows, theme: Theme) -> str:
    squares = [shape for shape in results.shapes if is_square(shape)]
    on_gpu = results.run.kind != "cpu"
    unit = 1e3 if on_gpu else 1.0
    ends: list[tuple[float, str, str]] = []
    heights: list[float] = []
    unmet: list[tuple[float, float]] = []
    for name in results.variants:
        found = [results.find(name, shape) for shape in squares]
        points = [(row.M, row.gflops / unit) for row in found if row and row.gflops is not None]
        if not points:
            continue
        own = look(name)
        line = own.line() | ({"linestyle": "-.", "marker": ""} if _reduced(results, name) else {})
        axes.plot(*zip(*points, strict=True), **line)
        largest = max(filter(None, found), key=lambda row: row.M)
        ends.append((points[-1][1], label_of(largest.name), own.colour))
        heights += [height for _, height in points]
        unmet += [(row.M, row.gflops / unit) for row in found if row and row.gflops and row.unmet]
    if not ends:
        raise ValueError("these results have no timed product of square matrices to plot")
    peak = results.run.ffma_gflops
    if peak is not None:
        axes.axhline(peak / unit, color=theme.grey, linestyle=":", linewidth=2)
        ends.append((peak / unit, "peak of CUDA cores", theme.grey))
        heights.append(peak / unit)
    sizes = [shape[0] for shape in squares]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("M = N = K")
    axes.set_ylabel("TFLOP/s, higher is faster" if on_gpu else "GFLOP/s of the CPU device")
    axes.set_yscale("log")
    axes.set_ylim(0.8 * min(heights), 1.3 * max(heights))
    plain_marks(axes)
    mark_unmet(axes, unmet, theme)
    label_ends(axes, ends)
    return "Float32 matrix product: speed of each kernel by matrix size"


def _draw_pair(
    axes: "Axes", results: MeasurementRows, theme: Theme, pair: tuple[str, str] | None
) -> str:
    if pair is None:
        raise ValueError("a plot of kind 'pair' needs the names of two variants: pass pair")
    if "cublas" in pair and results.run.kind == "cpu":
        raise ValueError("times of the CPU device cannot be compared with cuBLAS")
    ratios = []
    for shape in results.shapes:
        over, under = (_timed(results, name, shape) for name in pair)
        if over is not None and under is not None:
            unmet = any(row and row.unmet for row in (results.find(name, shape) for name in pair))
            text = f"{under / over:.2f}{UNMET if unmet else ''}"
            ratios.append((size_text(shape).replace("x", "x\n"), under / over, text))
    if not ratios:
        raise ValueError(f"no shape was timed for both {pair[0]} and {pair[1]}")
    sizes, heights, labels = zip(*ratios, strict=True)
    bars = axes.bar(sizes, heights, color=look(pair[0]).colour, width=0.65)
    behind = {"facecolor": theme.paper, "edgecolor": "none", "pad": 1}  # hides the line at 1
    axes.bar_label(bars, labels, padding=3, fontsize=11, bbox=behind, zorder=3)
    axes.axhline(1, color=theme.ink, linewidth=1.5, linestyle="--")
    axes.set_ylim(0, 1.12 * max(1.0, *heights))
    batches = ", or batch x M x N x K" if any(len(shape) > 3 for shape in results.shapes) else ""
    axes.set_xlabel(f"M = N = K, or M x N x K{batches}")
    axes.set_ylabel(f"speed of {label_of(pair[0])} / speed of {label_of(pair[1])}")
    axes.grid(visible=False, axis="x")
    one, other = map(label_of, pair)
    return f"Speed of {one} relative to {other} (above the dashed line, {one} is faster)"


def _draw_speedup(axes: "Axes", results: MeasurementRows, size: Shape | None) -> str:
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
    texts, reference = [], results.find(bars[0][0], shape)
    for (name, _), length in zip(bars, lengths, strict=True):
        row = results.find(name, shape)
        assert row
        _, step = results.ratios(row)
        unmet = UNMET if row.unmet or (reference and reference.unmet) else ""
        before = "" if step == "-" else f"   ({step} over the rung before)"
        texts.append(f"{length:.3g}x{unmet}{before}")
    axes.bar_label(drawn, texts, padding=5, fontsize=11)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.42 * max(lengths))
    axes.set_xlabel(f"speedup over {label_of(bars[0][0])}")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelsize=12)
    return f"Speedup of each rung at {_spelled(shape)}"


_SECTORS_A_LINE = 4


@dataclass(frozen=True, slots=True)
class _Rates:
    """The GPU's rates per second in a run: from the vendor's documents at the highest clock that
    was read, except for multiply-adds (measured with an FFMA kernel) and bytes (measured with a
    copy)."""

    bytes: float
    l2_bytes: float
    lines: float
    multiply_adds: float


def _rates(results: MeasurementRows) -> _Rates:
    run, clock_hz = results.run, results.clock_hz
    if run.ffma_gflops is None or run.copy_bytes_per_s is None:
        raise ValueError("limits need the peak rates of the same run: measure with --ffma-probe")
    if clock_hz is None:
        raise ValueError("limits need the clock of the same run: measure with nvidia-ml-py")
    gpu = gpu_of(run.device)
    return _Rates(
        run.copy_bytes_per_s,
        gpu.l2_bytes * clock_hz,
        gpu.lines * gpu.multiprocessors * clock_hz,
        run.ffma_gflops * 1e9 / 2,
    )


def _l1_cycles(counted: Mapping[str, Any]) -> float:
    """Cycles of the L1 cache and shared memory of an SM: one for each wavefront and for each
    128-byte line of a global request. Older files have sectors but no lines; then four sectors
    count as a line, or one sector if they are not adjacent. Raises KeyError if tensor cores read
    shared memory themselves, which the GPU does not count."""
    by_the_source = counted.get("counted", {}).get("shared_load_wavefronts", 0)
    if counted["shared_load_wavefronts"] < by_the_source / WORDS_PER_LOAD:
        raise KeyError("shared_load_wavefronts")
    cycles = counted["shared_load_wavefronts"] + counted["shared_store_wavefronts"]
    for kind in ("load", "store"):
        touched = [
            (line.get("lines_per_request"), line["sectors_per_request"], line["bytes_per_thread"])
            for line in counted.get("lines", ())
            if line["kind"] == kind and line["sectors_per_request"] is not None
        ]
        lines = math.fsum(n or (s if s > b else max(s / _SECTORS_A_LINE, 1)) for n, s, b in touched)
        sectors = math.fsum(s for _, s, _ in touched)
        share = lines / sectors if touched else 1 / _SECTORS_A_LINE
        cycles += counted[f"global_{kind}_sectors"] * share
    return float(cycles)


LIMITS: dict[str, Callable[[_Rates, float, Mapping[str, Any]], float]] = {
    "device\nmemory": lambda can, s, c: c["dram_bytes"] / s / can.bytes,
    "L2\ncache": lambda can, s, c: SECTOR_BYTES * c["l2_sectors"] / s / can.l2_bytes,
    "L1 and\nshared": lambda can, s, c: _l1_cycles(c) / s / can.lines,
    "issue\nslots": lambda can, s, c: c["issue_slots_percent"] / 100,
    "multiply-\nadds": lambda can, s, c: c["multiply_adds"] / s / can.multiply_adds,
    "tensor\ncores": lambda can, s, c: c["tensor_pipe_percent"] / 100,
}
"""Possible bottlenecks, each with a function for a kernel's utilization of it. Arguments: the GPU's
rates, the kernel's time in seconds, and its counters."""


def _draw_limits(
    axes: "Axes",
    results: MeasurementRows,
    theme: Theme,
    size: Shape | None,
    traffic: Mapping[str, Mapping[str, Any]] | None,
) -> str:
    if not traffic:
        raise ValueError("limits need GPU counters: run benchmarks/traffic.py on a GPU")
    for device in {counted.get("device") for counted in traffic.values()} - {None}:
        if device != results.run.device:
            raise ValueError(
                f"the times are from {results.run.device}, but the counters are from {device}"
            )
    can = _rates(results)
    shape = size or common_shape(results)
    rows = []
    for name in results.variants:
        row, seconds = results.find(name, shape), _timed(results, name, shape)
        if row and seconds is not None and name in traffic:
            shares = [_share(tell, can, seconds, traffic[name]) for tell in LIMITS.values()]
            known = [share for share in shares if share is not None]
            nearest = max(known, default=None)
            rows.append((label_of(name) + (UNMET if row.unmet else ""), [
                Cell("-" if s is None else f"{s:.0%}", strength=s or 0, outlined=s == nearest)
                for s in shares
            ]))  # fmt: skip
    if not rows:
        raise ValueError(f"no variant has both a time and counters at {size_text(shape)}")
    cells(axes, rows, [*LIMITS], theme)
    return f"Utilization of each GPU unit at {_spelled(shape)} (the highest is outlined)"


def _share(
    tell: Callable[[_Rates, float, Mapping[str, Any]], float],
    can: _Rates,
    seconds: float,
    counted: Mapping[str, Any],
) -> float | None:
    try:
        return tell(can, seconds, counted)
    except (KeyError, TypeError):  # not counted
        return None


def _timed(results: MeasurementRows, name: str, shape: Shape) -> float | None:
    row: Measurement | None = results.find(name, shape)
    return None if row is None else row.median_s


def _reduced(results: MeasurementRows, name: str) -> bool:
    return any(row.precision != "float32" for row in results.rows if row.variant == name)


def _spelled(shape: Shape) -> str:
    return f"M = N = K = {shape[0]}" if is_square(shape) else size_text(shape)


def _note(results: MeasurementRows) -> str:
    timed = f"kernel time, {results.run.protocol.cache} cache"
    facts = [results.run.device, "float32", "whole calls" if results.run.kind == "cpu" else timed]
    facts += [f"CUDA {results.run.cuda_toolkit}"] if results.run.cuda_toolkit else []
    return ", ".join([*facts, results.run.date[:10]])
