"""Experiment 6: what the host costs: whole calls on NumPy arrays against kernel time.

``python benchmarks/host_cost.py`` needs a GPU. A whole call takes two NumPy arrays to the GPU,
multiplies, and brings the product back as a NumPy array, by this package, by CuPy and by PyTorch
(those two when they are installed), by turns in one run.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _results import output_argument, summary, write
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sgemm_kernels import DeviceError, _core, build_info, compare, run, variants
from sgemm_kernels._accuracy import expect
from sgemm_kernels._catalog import default_device
from sgemm_kernels._table import table

SIZES = (64, 256, 1024, 4096)
SAMPLING_S = 1.5  # for each size, all ways together
FEWEST_CALLS, MOST_CALLS = 7, 300
ROWS_CHECKED = 64

Float32 = NDArray[np.float32]
Call = Callable[[Float32, Float32], Float32]


def ways(names: list[str]) -> tuple[dict[str, Call], dict[str, str]]:
    """How to multiply, by label, and the versions of the libraries among them."""
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

        torch.backends.cuda.matmul.allow_tf32 = False
        calls["PyTorch"] = lambda A, B: (
            (torch.from_numpy(A).cuda() @ torch.from_numpy(B).cuda()).cpu().numpy()
        )
        versions["torch"] = torch.__version__
    return calls, versions


def measure(n: int, calls: dict[str, Call], names: list[str]) -> list[dict[str, Any]]:
    """A row for each way, at n x n x n: checked on 64 rows, warmed up, then timed by turns."""
    rng = np.random.default_rng(n)
    A, B = (rng.uniform(-1, 1, (n, n)).astype(np.float32) for _ in "AB")
    checked = np.sort(rng.permutation(n)[:ROWS_CHECKED])
    exact = expect(A[checked], B)
    shares = {}
    for label, call in calls.items():
        shares[label] = exact.worst_share(call(A, B)[checked])
    right = {label: call for label, call in calls.items() if shares[label] <= 1}

    samples: dict[str, list[float]] = {label: [] for label in right}
    begin = time.perf_counter()
    for turn in range(MOST_CALLS):
        if turn >= FEWEST_CALLS and time.perf_counter() - begin > SAMPLING_S:
            break
        for label, call in right.items():
            start = time.perf_counter()
            call(A, B)
            samples[label].append(time.perf_counter() - start)

    kernels = compare(names, [n], device="cuda", cache="warm", seconds=0.5)
    rows = []
    for label in calls:
        row: dict[str, Any] = {"way": label, "n": n, "worst_share_of_bound": shares[label]}
        if label in right:
            row |= summary(samples[label][2:])  # the first two also find memory
        kernel = kernels.find(label, (n, n, n)) if label in names else None
        rows.append(row | {"kernel_median_s": kernel.median_s if kernel else None})
    return rows


def lines(rows: list[dict[str, Any]]) -> str:
    """Whole calls in ms, a line for each way, with the kernel's own time where it is known."""
    sizes = sorted({row["n"] for row in rows})
    body = []
    for label in dict.fromkeys(row["way"] for row in rows):
        own = {row["n"]: row for row in rows if row["way"] == label}
        call = [
            f"{1e3 * own[n]['median_s']:.3f}" if "median_s" in own[n] else "wrong" for n in sizes
        ]
        body.append((label, "whole call", *call))
        if own[sizes[0]]["kernel_median_s"] is not None:
            kernel = [f"{1e3 * (own[n]['kernel_median_s'] or np.nan):.3f}" for n in sizes]
            body.append((label, "its kernel", *kernel))
    return table(("ms", "", *map(str, sizes)), body)


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Figure:
    """Whole calls over size as lines, kernel times dashed in the same colour."""
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for index, label in enumerate(dict.fromkeys(row["way"] for row in rows)):
        own = [row for row in rows if row["way"] == label and "median_s" in row]
        sizes = [row["n"] for row in own]
        axes.plot(
            sizes, [1e3 * row["median_s"] for row in own], "o-", color=f"C{index}", label=label
        )
        if own and own[0]["kernel_median_s"] is not None:
            kernel = [1e3 * row["kernel_median_s"] for row in own]
            axes.plot(sizes, kernel, "s--", color=f"C{index}", label=f"{label}: kernel alone")
    axes.set(
        yscale="log",
        xlabel="M = N = K",
        ylabel="ms",
        title=f"NumPy in, NumPy out\n{head['device']}",
    )
    axes.set_xscale("log", base=2)
    axes.set_xticks(SIZES, map(str, SIZES))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    arguments = output_argument(__doc__.splitlines()[0], "host_cost").parse_args()
    gpu = default_device()
    if gpu.kind != "cuda":
        raise DeviceError(
            f"whole calls are compared with kernels on a GPU: {_core._cuda_problem()}"
        )
    ladder = [v.name for v in variants() if v.file is not None]
    cublas = [v.name for v in variants() if v.file is None and v.unavailable is None]
    names = [ladder[-1], *cublas]
    calls, versions = ways(names)
    rows = [row for n in SIZES for row in measure(n, calls, names)]
    build = build_info()
    head = {
        "device": gpu.model,
        "driver": gpu.driver,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
        "versions": versions,
        "protocol": "whole calls by a host clock, by turns, fresh result arrays; kernel time by "
        "CUDA events, warm (one set of operands, as after the copy); uniform [-1, 1]",
    }
    print(f"{gpu.model}, CUDA {build.cuda_toolkit}\n")
    print(lines(rows))
    write(arguments.output, "host_cost", head, rows, picture(head, rows))


if __name__ == "__main__":
    main()
