"""Experiment 11: the gain of `device='cuda:all'`: whole calls on one GPU and on all, alternating.

``python benchmarks/all_gpus.py`` needs two GPUs or more, and PyTorch. A, B and `out` are its
tensors on the first GPU, then NumPy's arrays, and then arrays of `sgemm_kernels.empty`, which the
GPUs copy by themselves; the difference is the time of the host's cores for ordinary memory. The
host's clock times a call until its result is complete. `auto` multiplies, and is checked before it
is timed. Writes JSON with every sample, and prints a table.
"""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Any

import host_cost
import numpy as np
from _results import facts, output_argument, summary, write

from sgemm_kernels import devices, empty, run
from sgemm_kernels._table import table
from sgemm_kernels.measuring.truth import Truth

DEVICES = ("cuda:0", "cuda:all")
SIZES = (1024, 2048, 4096, 8192, 16384)
GPU, HOST, PINNED = PLACES = ("GPU", "host", "pinned")
AIMED_AT = {(GPU, 16384): 1.8}
AIMED_AT |= dict.fromkeys(itertools.product((HOST, PINNED), (8192, 16384)), 1.7)
"""The target speed of two GPUs over one, by the place of the arrays."""


def sample(place: str, n: int, torch: Any) -> tuple[dict[str, list[float]], float]:
    """Times of alternating calls on one GPU and on all, seconds; and the worst error of the results
    as a share of its bound."""
    rng = np.random.default_rng(n)
    A, B = (rng.uniform(-1, 1, (n, n)).astype(np.float32) for _ in "AB")
    truth = Truth(A, B, (), rng)
    placed = {
        GPU: lambda operand: torch.from_numpy(operand).cuda(),
        HOST: lambda operand: operand,
        PINNED: host_cost.pinned,
    }
    A, B = map(placed[place], (A, B))
    out = torch.empty_like(A) if place == GPU else empty((n, n))

    def product(A: Any, B: Any, device: str) -> None:
        run("auto", A, B, out=out, device=device)
        if place == GPU:  # the call is queued in PyTorch's stream
            torch.cuda.synchronize()

    calls = {device: functools.partial(product, device=device) for device in DEVICES}
    shares = []
    for call in calls.values():
        out[:] = float("nan")
        call(A, B)
        result = out.cpu().numpy() if place == GPU else out
        shares.append(truth.accuracy_of(result).worst_share)
    samples = host_cost.sample(calls, A, B, kept=False)
    # The first two calls allocate memory.
    return {device: times[2:] for device, times in samples.items()}, max(shares)


def lines(rows: list[dict[str, Any]]) -> str:
    """A line for each size."""
    header = ("arrays", "M = N = K", "one GPU, ms", "all, ms", "speedup", "target", "right")
    body = []
    for row in rows:
        one, all_ = (row[way]["median_s"] for way in ("one", "all"))
        figures = (f"{1e3 * one:.3f}", f"{1e3 * all_:.3f}", f"{one / all_:.2f}")
        aim = f"{row['aimed_at']}" if row["aimed_at"] else "-"
        body.append(
            (
                row["arrays"],
                str(row["n"]),
                *figures,
                aim,
                "yes" if row["worst_share_of_bound"] <= 1 else "NO",
            )
        )
    return table(header, body)


def main() -> int:
    arguments = output_argument(__doc__.splitlines()[0], "all_gpus").parse_args()
    gpus = [d for d in devices() if d.kind == "cuda" and d.usable]
    if len(gpus) < 2:
        sys.exit(f"two GPUs are needed, and there are {len(gpus)}")
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is needed, for operands that are on a GPU: pip install torch")
    rows: list[dict[str, Any]] = []
    for place, n in itertools.product(PLACES, SIZES):
        samples, worst = sample(place, n, torch)
        one, all_ = (summary(samples[device]) for device in DEVICES)
        row = {"arrays": place, "n": n, "one": one, "all": all_}
        aim = AIMED_AT.get((place, n)) if len(gpus) == 2 else None
        rows.append(row | {"worst_share_of_bound": worst, "aimed_at": aim})
    head = {
        **facts(gpus[0]),
        "gpus": len(gpus),
        "versions": {"torch": torch.__version__},
        "protocol": "whole calls by a host clock, round-robin; arrays on cuda:0, in the host's "
        "memory with out pinned, and all pinned; uniform [-1, 1]",
    }
    print(f"{len(gpus)} x {gpus[0].model}\n\n{lines(rows)}")
    write(arguments.output, "all_gpus", head, rows)
    return 0 if all(row["worst_share_of_bound"] <= 1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
