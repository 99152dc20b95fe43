"""Experiment 2: results per thread with operands in global memory, beside what the compiler did.

``python benchmarks/work_per_thread.py`` compiles one kernel nine times for this machine's GPU, from
1 result per thread to 32 x 32. More results reuse a loaded value more often, until they no longer
fit into a thread's registers: the compiler then spills them to memory.
"""

from __future__ import annotations

from typing import Any

from _results import output_argument, write
from _sweep import milliseconds, sweep
from matplotlib.figure import Figure

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


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Figure:
    """Time over results per thread; below it registers and spilled bytes."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    time, registers = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    right = [row for row in rows if "median_s" in row]
    time.plot(
        [row["tm"] * row["tn"] for row in right], [1e3 * row["median_s"] for row in right], "o-"
    )
    time.set(
        xscale="log",
        yscale="log",
        ylabel="kernel time, ms",
        title=f"Results per thread, operands in global memory, {N} x {N} x {N}\n{head['device']}",
    )
    results = [row["tm"] * row["tn"] for row in rows]
    registers.plot(results, [row["registers"] for row in rows], "s-", label="registers")
    registers.set(xlabel="results per thread", ylabel="registers per thread", ylim=(0, 280))
    registers.set_xticks(results, [str(each) for each in results])
    registers.minorticks_off()
    spills = registers.twinx()
    spilled = [row["spill_store_bytes"] + row["spill_load_bytes"] for row in rows]
    spills.plot(results, spilled, "^--", color="C3", label="spill stores and loads")
    spills.set(ylabel="bytes per thread", yscale="symlog", ylim=(0, None))
    for axes in (time, registers):
        axes.grid(alpha=0.3)
    registers.legend(
        handles=[*registers.get_lines(), *spills.get_lines()], loc="upper left", frameon=False
    )
    return figure


def main() -> None:
    arguments = output_argument(__doc__.splitlines()[0], "work_per_thread").parse_args()
    head, rows = sweep("work_per_thread", [{"TM": tm, "TN": tn} for tm, tn in SHAPES], N)
    print(f"{head['device']}, CUDA {head['cuda_toolkit']}, {N} x {N} x {N}\n")
    print(lines(rows))
    write(arguments.output, "work_per_thread", head, rows, picture(head, rows))


if __name__ == "__main__":
    main()
