"""Experiment 3: the edge of a square tile in shared memory, from 1 to 32.

``python benchmarks/tile_size.py`` compiles one kernel six times for this machine's GPU. A tile of T
reads 8 / T bytes from global memory for each multiply-add; a block has T x T threads, so the small
tiles leave most of a warp's 32 lanes idle as well.
"""

from __future__ import annotations

from typing import Any

from _results import output_argument, write
from _sweep import milliseconds, sweep
from matplotlib.figure import Figure

from sgemm_kernels._table import table

TILES = (1, 2, 4, 8, 16, 32)
N = 2048  # a tile of 1 takes a thousand times as long as cuBLAS: larger ones teach no more


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


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Figure:
    """Time over tile size."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    right = [row for row in rows if "median_s" in row]
    axes.plot([row["tile"] for row in right], [1e3 * row["median_s"] for row in right], "o-")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="edge of the shared tile",
        ylabel="kernel time, ms",
        title=f"Shared-memory tile size, {N} x {N} x {N}\n{head['device']}",
    )
    axes.set_xticks(TILES, [str(tile) for tile in TILES])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    return figure


def main() -> None:
    arguments = output_argument(__doc__.splitlines()[0], "tile_size").parse_args()
    head, rows = sweep("tile_size", [{"TILE": tile} for tile in TILES], N)
    print(f"{head['device']}, CUDA {head['cuda_toolkit']}, {N} x {N} x {N}\n")
    print(lines(rows))
    write(arguments.output, "tile_size", head, rows, picture(head, rows))


if __name__ == "__main__":
    main()
