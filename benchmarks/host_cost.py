"""Experiment 6: the cost of the host: whole calls on NumPy arrays against kernel time.

``python benchmarks/host_cost.py`` needs a GPU. A whole call copies two NumPy arrays to the GPU,
multiplies, and returns the product as a new NumPy array. This package, CuPy and PyTorch (if
installed) alternate in one run. Each is timed twice: with every result dropped immediately, within
its time, so that the next result can reuse its memory; and with all results kept, so that each
needs new memory. `auto` also runs with pinned operands, which need no copy on the host. The table
adds the time of the copies alone (both operands and the result, between pinned memory and the GPU),
the kernel's own time, and the target as a share of the faster library's time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _results import facts, output_argument, parsed, redraw, summary, write
from numpy.typing import NDArray

from sgemm_kernels import Error, build_info, empty, measure, run, variants
from sgemm_kernels._style import Picture, drawing, label_ends, label_of, look, ticks
from sgemm_kernels._table import table
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.sampling import copy_samples
from sgemm_kernels.measuring.truth import Truth

SIZES = (64, 256, 1024, 4096, 8192, 16384)
# The target, as a share of the faster library's time.
TARGETS = {64: 0.50, 256: 0.50, 1024: 0.40, 4096: 0.20, 8192: 0.20, 16384: 0.35}
SAMPLING_S = 1.5  # for each size and fate of the results, all functions together
FEWEST_CALLS, MOST_CALLS = 7, 300
FATES = ("dropped", "kept")
LIBRARIES = {"CuPy", "PyTorch"}
PINNED = ", pinned operands"  # after a function's name

Float32 = NDArray[np.float32]
Call = Callable[[Float32, Float32], Float32]


def ways(names: list[str]) -> tuple[dict[str, Call], dict[str, str]]:
    """Functions that multiply, by label, and the versions of the libraries among them."""
    calls: dict[str, Call] = {}
    for name in names:
        calls[name] = lambda A, B, name=name: run(name, A, B, device="cuda")
    versions = {"numpy": np.__version__}
    with contextlib.suppress(ImportError):
        import cupy

        calls["CuPy"] = lambda A, B: cupy.asnumpy(cupy.asarray(A) @ cupy.asarray(B))
        versions["cupy"] = cupy.__version__
    with contextlib.suppress(ImportError):
        import torch

        torch.set_float32_matmul_precision("highest")  # no TF32
        calls["PyTorch"] = lambda A, B: (
            (torch.from_numpy(A).cuda() @ torch.from_numpy(B).cuda()).cpu().numpy()
        )
        versions["torch"] = torch.__version__
    return calls, versions


def sample(calls: dict[str, Call], A: Float32, B: Float32, *, kept: bool) -> dict[str, list[float]]:
    """Times of alternating whole calls, seconds. All results are kept, or none."""
    samples: dict[str, list[float]] = {label: [] for label in calls}
    alive: list[Float32] = []
    begin = time.perf_counter()
    for turn in range(MOST_CALLS):
        if turn >= FEWEST_CALLS and time.perf_counter() - begin > SAMPLING_S:
            break
        for label, call in calls.items():
            start = time.perf_counter()
            if kept:
                alive.append(call(A, B))
            else:
                call(A, B)
            samples[label].append(time.perf_counter() - start)
    return samples


def pinned(array: Float32) -> Float32:
    """The same values in pinned memory, which the GPU can copy directly."""
    copy = empty(array.shape)
    copy[:] = array
    return copy


def bus_floor(A: Float32, B: Float32) -> float:
    """Seconds to copy pinned A and B to the GPU and a pinned result back: median."""
    C = empty((A.shape[0], B.shape[1]))
    return float(np.median(copy_samples(A, B, C, find_gpu("the bus is measured").name, 20)))


def measure_calls(
    n: int,
    calls: dict[str, Call],
    names: list[str],
    floor_of: Callable[[Float32, Float32], float] = bus_floor,
) -> list[dict[str, Any]]:
    """A row for each function and fate of the results, at n x n x n: checked, then alternating.

    The first of the names also runs with pinned operands.
    """
    rng = np.random.default_rng(n)
    A, B = (rng.uniform(-1, 1, (n, n)).astype(np.float32) for _ in "AB")
    first, held = calls[names[0]], (pinned(A), pinned(B))
    calls = calls | {names[0] + PINNED: lambda *_: first(*held)}
    truth = Truth(A, B, (), rng)
    errors = {label: truth.accuracy_of(call(A, B)) for label, call in calls.items()}
    right = {label: call for label, call in calls.items() if errors[label].right}
    kernels = measure(names, [n], device="cuda", cache="warm", seconds=0.5)
    floor_s = floor_of(*held)
    rows = []
    for fate in FATES:
        samples = sample(right, A, B, kept=fate == "kept")
        for label in calls:
            row: dict[str, Any] = {"way": label, "n": n, "results": fate}
            row |= {"worst_share_of_bound": errors[label].worst_share}
            if label in right:
                row |= summary(samples[label][2:])  # the first two also allocate memory
            kernel = kernels.find(label, (n, n, n)) if label in names else None
            row |= {"kernel_median_s": kernel.median_s if kernel else None}
            rows.append(row | {"bus_floor_s": floor_s, "target_share": TARGETS.get(n)})
    for row in rows:
        others = [
            other["median_s"]
            for other in rows
            if other["results"] == row["results"] and other["way"] in LIBRARIES & right.keys()
        ]
        if others and row["way"] in names and row["way"] in right:
            row["over_fastest_library"] = row["median_s"] / min(others)
    return rows


def lines(rows: list[dict[str, Any]]) -> str:
    """Whole calls in ms, a line for each function and fate of the results. Below this package's
    calls: their share of the fastest library's time, and the kernel's own time."""
    sizes = sorted({row["n"] for row in rows})

    def line(label: str, fate: str, figure: str, what: str, scale: float) -> tuple[str, ...]:
        own = {row["n"]: row for row in rows if (row["way"], row["results"]) == (label, fate)}
        found = [own[n].get(figure) for n in sizes]
        return (label, what, *("-" if x is None else f"{scale * x:.3f}" for x in found))

    body = []
    for label in dict.fromkeys(row["way"] for row in rows):
        for fate in FATES:
            body.append(line(label, fate, "median_s", f"whole call, {fate}", 1e3))
            if any(row["way"] == label and "over_fastest_library" in row for row in rows):
                share = line(label, fate, "over_fastest_library", "/ fastest library", 1)
                body.append(share)
        if any(row["way"] == label and row["kernel_median_s"] is not None for row in rows):
            body.append(line(label, "dropped", "kernel_median_s", "its kernel", 1e3))
    first = rows[0]["way"]
    body.append(line(first, "dropped", "target_share", "target share", 1))
    body.append(line(first, "dropped", "bus_floor_s", "copies alone", 1e3))
    return table(("ms", "", *map(str, sizes)), body)


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Whole calls relative to the first function's, at each size, for each fate of the results; and
    the first function's kernel alone."""
    titles = {"dropped": "each result dropped immediately", "kept": "all results kept alive"}
    first = rows[0]["way"]
    sizes = sorted({row["n"] for row in rows})
    title = f"Whole calls on NumPy arrays: time relative to {label_of(first)}"
    note = f"float32, medians, {head['device']}"
    with drawing(title, note, height=8) as (figure, theme):
        panels = figure.subplots(2, 1, sharex=True)
        for axes, fate in zip(panels, FATES, strict=True):
            own = {(row["way"], row["n"]): row for row in rows if row["results"] == fate}
            ends = []
            for way, figure_name in [
                *((way, "median_s") for way in dict.fromkeys(row["way"] for row in rows)),
                (first, "kernel_median_s"),
            ]:
                times = [(n, own[way, n].get(figure_name)) for n in sizes]
                known = [(n, s / own[first, n]["median_s"]) for n, s in times if s is not None]
                if not known:
                    continue
                of = look(way.removesuffix(PINNED))
                text, line = label_of(way.replace(PINNED, " (pinned)")), of.line()
                if way.endswith(PINNED):
                    line |= {"markerfacecolor": "none", "linestyle": "--", "linewidth": 2}
                if figure_name != "median_s":
                    text, line = "auto's kernel alone", line | {"color": theme.grey, "linewidth": 1}
                axes.plot(*zip(*known, strict=True), **line)
                ends.append((known[-1][1], text, line["color"]))
            axes.set(yscale="log", ylabel="relative time", title=titles[fate])
            axes.set_xscale("log", base=2)
            ticks(axes, "x", sizes)
            ticks(axes, "y", [0.1, 0.2, 0.5, 1, 2, 5, 10])
            label_ends(axes, ends)
        panels[-1].set_xlabel("M = N = K; lower is faster")
    return figure


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "host_cost")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=SIZES,
        help="default: %(default)s; 16384 takes 45 GB of the host's memory",
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    try:
        gpu = find_gpu("whole calls are compared with kernels")
    except Error as error:
        parser.error(str(error))
    known = {v.name for v in variants() if v.unavailable is None}
    names = [name for name in ("auto", "cublas") if name in known]
    calls, versions = ways(names)
    rows = [row for n in arguments.sizes for row in measure_calls(n, calls, names)]
    build = build_info()
    head = {
        **facts(gpu),
        "versions": versions,
        "protocol": "whole calls by a host clock, round-robin, new result arrays, dropped within "
        "the time or all kept alive; operands in pageable memory unless called pinned; "
        "kernel time by CUDA events, warm (one set of operands, as after the copy); "
        "uniform [-1, 1]",
    }
    print(f"{gpu.model}, CUDA {build.cuda_toolkit}\n")
    print(lines(rows))
    write(arguments.output, "host_cost", head, rows, picture)


if __name__ == "__main__":
    main()
