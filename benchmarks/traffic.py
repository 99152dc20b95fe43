"""Experiment 4: bytes moved by each rung, from a formula, a trace and a GPU's counters.

``python benchmarks/traffic.py`` runs on any machine: the trace counts each kernel's accesses on the
CPU device. If Nsight Compute (``ncu``) can read a GPU's counters, the script adds the requests of
the compiled kernel, the bytes of the GPU's memory, and the schedulers' instructions and stalls. The
compiled kernel has fewer requests than the source if the compiler merged loads. At the largest
size, the script also reads clock and power while each kernel runs alone for some seconds.
"""

from __future__ import annotations

import contextlib
import csv
import math
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _results import output_argument, parsed, redraw, write

from sgemm_kernels import (
    Device,
    Error,
    Results,
    Trace,
    Variant,
    build_info,
    devices,
    trace,
    variants,
)
from sgemm_kernels._style import SERIES, Cell, Picture, cells, drawing, label_of
from sgemm_kernels._table import table
from sgemm_kernels.measuring.plotting import common_shape, plot, read_traffic
from sgemm_kernels.measuring.sampling import kernel_samples
from sgemm_kernels.measuring.telemetry import Telemetry

SIZES = (1024, 4096)
SECTOR_BYTES = 32
POWERED_S = 2.5  # readings of the first second are dropped
KINDS = ("load", "store")
# These kernels first convert operands to fp16 pairs, so the formula does not apply.
SPLITTING = ("mma", "wgmma", "waves", "fused")
HOLDING = "hold"  # csrc/runtime/cuda/blocking_kernel.cu, which holds the stream for a measurement

METRICS = {
    "dram__bytes_read.sum": "dram_bytes_read",
    "dram__bytes_write.sum": "dram_bytes_written",
    "lts__t_sectors_srcunit_tex.sum": "l2_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "global_load_requests",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "global_store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "global_load_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "global_store_sectors",
    "smsp__inst_executed_op_shared_ld.sum": "shared_load_requests",
    "smsp__inst_executed_op_shared_st.sum": "shared_store_requests",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "shared_load_wavefronts",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": "shared_store_wavefronts",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": "bank_conflicts",
    "smsp__inst_executed.sum": "instructions",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": "multiply_adds",
}
"""Nsight Compute's names of counters, and our names."""

SHARES = {
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue_slots_percent",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "fma_pipe_percent",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_pipe_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps_percent",
    "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio": "dispatch_stalls",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio": "shared_waits",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "barrier_waits",
}
"""Counters that are ratios. If a product has several kernels, they are taken from the kernel with
the variant's name."""


def by_formula(variant: Variant, depth: int) -> dict[str, float]:
    """Bytes that threads request per multiply-add, computed from the tile sizes."""
    (BM, BN, _), (TM, TN) = variant.block_tile, variant.thread_tile
    result = 4 / depth  # each result is stored once
    if variant.shared_bytes == 0:
        return {"global": 8 + result, "shared": 0.0}
    tiles = 4 / BM + 4 / BN
    return {"global": tiles + result, "shared": tiles + 4 / TM + 4 / TN}


def counted(traced: Trace) -> dict[str, int]:
    """The counts of one block times the number of blocks, for a product of whole tiles."""
    blocks = (traced.M // traced.rows) * (traced.N // traced.cols)
    totals = {"requested_bytes_global": 0, "requested_bytes_shared": 0}
    totals |= dict.fromkeys((n for n in METRICS.values() if n[:6] in ("global", "shared")), 0)
    for access in traced.accesses:
        name = f"{access.space}_{access.kind}"
        totals[f"requested_bytes_{access.space}"] += blocks * access.lanes * access.bytes_per_thread
        totals[f"{name}_requests"] += blocks * access.requests
        if access.sectors is not None:
            totals[f"{name}_sectors"] += blocks * access.sectors
        if access.wavefronts is not None:
            totals[f"{name}_wavefronts"] += blocks * access.wavefronts
    return totals


# ------------------------------------------------------------------------------ the GPU's counters


def operands(size: int) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    rng = np.random.default_rng(size)
    return [rng.uniform(-1, 1, (size, size)).astype(np.float32) for _ in "AB"]


def run_all(size: int, device: str, names: list[str]) -> None:
    """Runs one product with each variant, for Nsight Compute. A variant that fails has no counters;
    the others keep theirs."""
    A, B = operands(size)
    for name in names:
        try:
            kernel_samples((name,), A, B, device, rounds=1)
        except Error as error:
            print(f"{name}: {error}", file=sys.stderr)


def powered(size: int, gpu: Device, name: str) -> dict[str, float | None]:
    """Clock and power while one variant's kernel runs repeatedly."""
    A, B = operands(size)
    rounds = 1
    begin = time.monotonic()
    with Telemetry(gpu.pci_bus_id) as telemetry:
        while time.monotonic() - begin < POWERED_S:
            (samples,) = kernel_samples((name,), A, B, gpu.name, rounds=rounds)
            # Each call copies the operands again, so let it run for about half a second.
            rounds = max(int(0.5 / max(samples, default=0.5)), 1)
    figures = telemetry.figures()
    return {"clock_mhz": figures.clock_mhz, "power_w": figures.power_w}


def watch(size: int, device: str, names: list[str]) -> dict[str, dict[str, float]] | str:
    """The counters of each variant's kernels, or why they could not be read. If the library's
    variant is among `names`, it is the first: its kernels do not have its name."""
    ncu = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if ncu is None:
        return "Nsight Compute (ncu) is not installed"
    watched = [sys.executable, __file__, "--watched", str(size), device, *names]
    # As in every other measurement, the clock is not locked.
    options = ["--csv", "--print-units", "base", "--clock-control", "none", "--metrics"]
    for metrics in ([*METRICS, *SHARES], METRICS):  # some GPUs lack some of SHARES
        done = subprocess.run(
            [ncu, *options, ",".join(metrics), *watched],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
        if done.returncode == 0 and len(lines) >= 2:
            break
    else:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERR" in line.upper()]
        return f"ncu could not read the counters: {said[0] if said else done.stderr.strip()}"
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for product in products(lines):
        # One kernel of each product has its variant's name, except for the library's products.
        named = [n for n in names if any(n in words for words, _ in product)]
        name = [*named, *names][0]
        for words, entry in product:
            value = entry["Metric Value"].replace(",", "")
            if entry["Metric Name"] in METRICS and value not in ("", "n/a"):
                found[name][METRICS[entry["Metric Name"]]] += float(value)
            elif not named or name in words:
                share = SHARES.get(entry["Metric Name"])
                if share and value not in ("", "n/a"):
                    found[name].setdefault(share, float(value))
    return {name: dict(counters) for name, counters in found.items()}


def products(lines: list[str]) -> list[list[tuple[list[str], dict[str, str]]]]:
    """The entries of each product's kernels, with the words of the kernel's name.

    A blocking kernel before each product separates it from the previous one.
    """
    found: list[list[tuple[list[str], dict[str, str]]]] = [[]]
    for entry in csv.DictReader(lines):
        words = re.findall(r"\w+", entry["Kernel Name"])
        if words[0] != HOLDING:
            found[-1].append((words, entry))
        elif found[-1]:
            found.append([])
    return found


def measure(size: int, gpu: Device | None) -> tuple[list[dict[str, Any]], str]:
    """A row for each variant at one size, and why the GPU's counters are missing (empty if not).

    `simt` and `auto` have no row, because their kernels have the names of rungs.
    """
    chosen = [v for v in variants() if v.file or (gpu and "cpu" not in v.devices)]
    chosen = [v for v in chosen if v.unavailable is None]
    no_gpu = "no GPU: counted on the CPU device alone"
    libraries_first = sorted(chosen, key=lambda variant: variant.file is not None)
    watched = watch(size, gpu.name, [v.name for v in libraries_first]) if gpu else no_gpu
    rows = []
    for variant in chosen:
        row: dict[str, Any] = {"variant": variant.name, "M": size, "N": size, "K": size}
        if variant.file is not None:
            if variant.name not in SPLITTING:
                row["formula_bytes_per_multiply_add"] = by_formula(variant, size)
            traced = trace(variant.name, size, size, size)
            row["counted"] = counted(traced)
            row["lines"] = [
                {
                    "line": access.line,
                    "operand": access.operand,
                    "kind": access.kind,
                    "bytes_per_thread": access.bytes_per_thread,
                    "sectors_per_request": access.sectors_per_request,
                    "lines_per_request": access.lines and access.lines / access.requests,
                    "wavefronts_per_request": access.wavefronts_per_request,
                }
                for access in traced.accesses
            ]
        gpu_counters = watched.get(variant.name) if isinstance(watched, dict) else None
        row["gpu"] = gpu_counters
        both = [(gpu_counters or {}).get(f"dram_bytes_{way}") for way in ("read", "written")]
        row["dram_bytes"] = None if None in both else sum(filter(None, both))
        rows.append(row)
    return rows, watched if isinstance(watched, str) else ""


# ------------------------------------------------------------------------------ table and picture


def figures(row: dict[str, Any]) -> dict[str, float | None]:
    """The figures of a row in the table and the picture: bytes per multiply-add."""
    operations = row["M"] * row["N"] * row["K"]
    seen: dict[str, float | None] = {}
    formula, totals, gpu = row.get("formula_bytes_per_multiply_add"), row.get("counted"), row["gpu"]
    for space in ("global", "shared"):
        seen[f"{space}, formula"] = formula[space] if formula else None
        requested = totals[f"requested_bytes_{space}"] / operations if totals else None
        seen[f"{space}, counted"] = requested
    for label, counters in (("counted", totals), ("GPU", gpu)):
        names = [f"global_{kind}_sectors" for kind in KINDS]
        there = counters is not None and all(name in counters for name in names)
        moved = sum(counters[name] for name in names) if counters and there else None
        seen[f"sectors, {label}"] = None if moved is None else SECTOR_BYTES * moved / operations
    l2 = gpu.get("l2_sectors") if gpu else None
    seen["L2, GPU"] = None if l2 is None else SECTOR_BYTES * l2 / operations
    seen["memory, GPU"] = None if row["dram_bytes"] is None else row["dram_bytes"] / operations
    return seen


def lines(rows: list[dict[str, Any]]) -> str:
    """Bytes per multiply-add as text, with a line for each variant."""
    header = ["variant", *figures(rows[0])]
    texts = []
    for row in rows:
        cells = ["-" if value is None else f"{value:.4g}" for value in figures(row).values()]
        texts.append([row["variant"], *cells])
    return table(header, texts)


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Draws a table of bytes per multiply-add at the last size, with a line for each variant."""
    size = rows[-1]["M"]
    shown = {row["variant"]: figures(row) for row in rows if row["M"] == size}
    wanted = {
        "shared, counted": "requested\nfrom shared\nmemory",
        "global, counted": "requested\nfrom global\nmemory",
        "sectors, counted": "global\nsectors,\ncounted",
        "sectors, GPU": "global\nsectors,\nGPU",
        "L2, GPU": "sectors\nfrom L2,\nGPU",
        "memory, GPU": "GPU's\nmemory",
    }
    known = {name: text for name, text in wanted.items() if any(f[name] for f in shown.values())}
    amounts = [found[name] for found in shown.values() for name in known if found[name]]
    least, most = math.log(min(amounts)), math.log(max(amounts))
    title = "Bytes that each rung moves for one multiply-add: less is better"
    note = f"{size} x {size} x {size}{', ' + head['device'] if head['device'] else ''}"

    def cell(amount: float | None) -> Cell:
        if not amount:
            return Cell("-")
        return Cell(f"{amount:.2g}", SERIES[1], (math.log(amount) - least) / (most - least))

    with drawing(title, note, height=2 + 0.34 * len(shown)) as (figure, theme):
        of = {v: [cell(found[name]) for name in known] for v, found in shown.items()}
        named = [(label_of(variant), line) for variant, line in of.items()]
        cells(figure.subplots(), named, list(known.values()), theme)
    return figure


def beside(path: Path) -> list[Path]:
    """The ladder's times, if they are in the same folder."""
    ladder = path.with_name("ladder.json")
    return [ladder] if ladder.exists() else []


def limits(path: Path, head: Any, rows: Any) -> Picture:
    """Draws each rung's bottleneck if `ladder.json` is beside these counts; otherwise the bytes."""
    for ladder in beside(path):
        results = Results.from_json(ladder)
        with contextlib.suppress(ValueError):  # no shape in both
            size = common_shape(results, path)
            return plot(results, "limits", size=size, traffic=read_traffic(path, size))
    return picture(head, rows)


def main() -> None:
    if sys.argv[1:2] == ["--watched"]:
        run_all(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
        return
    parser = output_argument(__doc__.splitlines()[0], "traffic")
    whole = math.lcm(*(edge for v in variants() if v.file for edge in v.block_tile))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help=f"multiples of {whole}")
    arguments = parsed(parser, lambda path: redraw(path, partial(limits, path), beside(path)))
    if any(size < 1 or size % whole for size in arguments.sizes):
        parser.error(f"sizes must be multiples of {whole}, so that every block is a whole one")

    gpu = next((d for d in devices() if d.kind == "cuda" and d.usable), None)
    rows: list[dict[str, Any]] = []
    problem = ""
    try:
        for size in arguments.sizes:
            fresh, problem = measure(size, gpu)
            rows += fresh
            print(f"{size} x {size} x {size}, bytes per multiply-add\n\n{lines(fresh)}\n")
        for row in rows:
            if gpu and row["M"] == max(arguments.sizes):
                try:
                    row |= powered(row["M"], gpu, row["variant"])
                except Error as error:
                    print(f"no clock and power of {row['variant']}: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        if not rows:
            raise
        print("interrupted: what was measured is kept", file=sys.stderr)
    build = build_info()
    head = {
        "device": gpu.model if gpu else None,
        "driver": gpu.driver if gpu else None,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
        "no_gpu_counters": problem or None,
    }
    if problem:
        print(f"without the GPU's counters: {problem}")
    write(arguments.output, "traffic", head, rows)
    redraw(arguments.output, partial(limits, arguments.output), beside(arguments.output))


if __name__ == "__main__":
    main()
