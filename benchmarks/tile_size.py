"""Experiment 3: the edge of a square tile in shared memory, from 1 to 32.

``python benchmarks/tile_size.py`` compiles one kernel six times for this machine's GPU. A tile of T
reads 8 / T bytes from global memory for each multiply-add; a block has T x T threads, so the small
tiles leave most of a warp's 32 lanes idle as well.
"""

from __future__ import annotations

from typing import Any

from _results import output_argument, parsed, redraw, write
from _sweep import milliseconds, sweep

from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table

TILES = (1, 2, 4, 8, 16, 32)
N = 2048  # larger sizes take long: a tile of 1 takes a thousand times as long as cuBLAS


def lines(rows: list[dict[str, Any]]) -> str:
    header = ("tile", "bytes per multiply-add", "threads", "occupancy", "ms", "GFLOP/s")
    return table(
        header,
        [
            (
                str(row["tile"]),
                f"{8 / row['tile']:g}",
                str(row["threads"]),
                f"{row['occupancy']:.0%}",
                milliseconds(row),
                f"{row['gflops']:.0f}" if "gflops" in row else "-",
            )
            for row in rows
        ],
    )


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Time over tile size."""
    right = [row for row in rows if "median_s" in row]
    title = "The larger the tile in shared memory, the less time"
    note = f"{N} x {N} x {N}, {head['device']}, kernel time"
    with drawing(title, note, width=7.5, height=4.4) as (figure, _):
        axes = figure.subplots()
        times = [1e3 * row["median_s"] for row in right]
        axes.plot([row["tile"] for row in right], times, "o-", color=SERIES[0], linewidth=2)
        for row, time in zip(right, times, strict=True):
            axes.annotate(f"{time:.3g} ms", (row["tile"], time), (6, 6), textcoords="offset points")
        axes.set(xscale="log", yscale="log", xlabel="edge of the tile, elements")
        axes.set_ylabel("ms, lower is faster")
        axes.margins(x=0.12, y=0.15)
        ticks(axes, "x", TILES)
    return figure


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "tile_size")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    head, rows = sweep("tile_size", [{"TILE": tile} for tile in TILES], N)
    print(f"{head['device']}, CUDA {head['cuda_toolkit']}, {N} x {N} x {N}\n")
    print(lines(rows))
    write(arguments.output, "tile_size", head, rows, picture)


if __name__ == "__main__":
    main()
