"""Experiment 2: results per thread, with operands in global memory.

``python benchmarks/work_per_thread.py`` compiles one kernel nine times for this machine's GPU, from
1 result per thread to 32 x 32. More results reuse a loaded value more often, but take registers:
fewer warps fit, and hide less of each other's waiting. At 16 x 16 and above the compiler also
spills. The table shows registers, spills and occupancy.
"""

from __future__ import annotations

from typing import Any

from _results import output_argument, parsed, redraw, write
from _sweep import milliseconds, sweep

from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table

SHAPES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8), (16, 16), (32, 32))
N = 4096  # a multiple of the largest block tile, 256 x 1024


def lines(rows: list[dict[str, Any]]) -> str:
    header = ("results", "shape", "registers", "spilled bytes", "occupancy", "ms", "GFLOP/s")
    return table(
        header,
        [
            (
                str(row["tm"] * row["tn"]),
                f"{row['tm']} x {row['tn']}",
                str(row["registers"]),
                f"{row['spill_store_bytes']} + {row['spill_load_bytes']}",
                f"{row['occupancy']:.0%}",
                milliseconds(row),
                f"{row['gflops']:.0f}" if "gflops" in row else "-",
            )
            for row in rows
        ],
    )


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Over results per thread: time, registers and spilled bytes."""
    title = "More results per thread take less time, until too few warps fit"
    note = f"operands in global memory, {N} x {N} x {N}, {head['device']}, kernel time"
    with drawing(title, note, width=8, height=7) as (figure, theme):
        panels = figure.subplots(3, sharex=True, height_ratios=(3, 2, 2))
        right = [row for row in rows if "median_s" in row]
        spilled = [row["spill_store_bytes"] + row["spill_load_bytes"] for row in rows]
        columns = (
            ("kernel time, ms", right, [1e3 * row["median_s"] for row in right]),
            ("registers", rows, [row["registers"] for row in rows]),
            ("spilled, bytes", rows, spilled),
        )
        for axes, colour, (text, those, heights) in zip(panels, SERIES, columns, strict=False):
            results = [row["tm"] * row["tn"] for row in those]
            axes.plot(results, heights, "o-", color=colour, linewidth=2)
            axes.set(xscale="log", ylabel=text)
        time, registers, spills = panels
        time.set(yscale="log")
        registers.set(ylim=(0, 280))
        registers.axhline(255, color=theme.grey, linestyle=":")
        registers.text(1, 240, "255, the most that a thread can have", va="top", color=theme.grey)
        spills.set(yscale="symlog", ylim=(0, 10 * max(spilled)), xlabel="results per thread")
        ticks(spills, "x", [row["tm"] * row["tn"] for row in rows])
    return figure


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "work_per_thread")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    head, rows = sweep("work_per_thread", [{"TM": tm, "TN": tn} for tm, tn in SHAPES], N)
    print(f"{head['device']}, CUDA {head['cuda_toolkit']}, {N} x {N} x {N}\n")
    print(lines(rows))
    write(arguments.output, "work_per_thread", head, rows, picture)


if __name__ == "__main__":
    main()
