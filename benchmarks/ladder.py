"""Kernel time of every rung on this machine's GPU, beside cuBLAS: checked, as JSON and a table.

python benchmarks/ladder.py -o benchmarks/results/NAME.json [--sizes 1024 4096]

Kernel time is CUDA events around one launch, on a stream that is held until the launch is queued.
In each round every variant multiplies once, by turns, on operands of uniform [-1, 1] values that
together exceed twice the L2 cache. A variant whose result is out of bounds gets no time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path

import numpy as np

from sgemm_kernels import DeviceError, _core, build_info, devices, run, variants
from sgemm_kernels._accuracy import expect

SCHEMA = 1
PROTOCOL = "operand sets exceed twice the L2 cache; variants by turns; uniform [-1, 1]"
SIZES = (256, 512, 1024, 2048, 4096, 8192)
WARM_UP_SECONDS = 0.3
SAMPLING_SECONDS = 1.0
MOST_ROUNDS = 200
FULL_CHECK = 2048


def check(name: str, a: np.ndarray, b: np.ndarray, device: str, rng: np.random.Generator) -> dict:
    """Runs a variant once against float64: all of it up to FULL_CHECK, else 64 rows."""
    c = run(name, a, b, device=device)
    m = a.shape[0]
    rows = np.arange(m)
    if m > FULL_CHECK:
        rows = np.unique([0, 127, 128, m - 1, *rng.integers(0, m, 60)])
    exact = expect(a[rows], b)
    error = np.linalg.norm(c[rows] - exact.value) / np.linalg.norm(exact.value)
    return {
        "worst_share_of_bound": exact.worst_share(c[rows]),
        "relative_error": float(error),
        "rows_checked": len(rows),
    }


def sets_beyond_cache(m: int, n: int, k: int, l2_bytes: int) -> int:
    """How many sets of operands exceed twice the L2 cache."""
    return 1 + 2 * l2_bytes // (4 * (m * k + k * n + m * n))


def quartiles(samples: list[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
    return low, middle, high


def measure(shape: tuple[int, int, int], index: int, l2_bytes: int) -> list[dict]:
    m, n, k = shape
    rng = np.random.default_rng(m + n + k)
    a = rng.uniform(-1, 1, (m, k)).astype(np.float32)
    b = rng.uniform(-1, 1, (k, n)).astype(np.float32)
    names = [v.name for v in variants() if "cuda" in v.devices]
    checks = {name: check(name, a, b, f"cuda:{index}", rng) for name in names}
    right = tuple(name for name in names if checks[name]["worst_share_of_bound"] <= 1)
    sets = sets_beyond_cache(m, n, k, l2_bytes)

    once = _core._measure(right, a, b, index, sets, 2)
    seconds_a_round = sum(samples[-1] for samples in once)
    _core._measure(right, a, b, index, sets, 1 + int(WARM_UP_SECONDS / seconds_a_round))
    rounds = min(MOST_ROUNDS, max(10, int(SAMPLING_SECONDS / seconds_a_round)))
    samples = dict(zip(right, _core._measure(right, a, b, index, sets, rounds), strict=True))

    rows = []
    for name in names:
        row = {"variant": name, "m": m, "n": n, "k": k, "operand_sets": sets, **checks[name]}
        if name in samples:
            low, middle, high = quartiles(samples[name])
            row |= {
                "samples_s": samples[name],
                "median_s": middle,
                "iqr_s": high - low,
                "gflops": 2e-9 * m * n * k / middle,
            }
            if "cublas" in samples:
                row["vs_cublas"] = quartiles(samples["cublas"])[1] / middle
        rows.append(row)
    return rows


def table(rows: list[dict]) -> str:
    """TFLOP/s by size, a line for each variant, and its share of cuBLAS at the largest."""
    shapes = list(dict.fromkeys((r["m"], r["n"], r["k"]) for r in rows))
    at = {(r["variant"], (r["m"], r["n"], r["k"])): r for r in rows}
    names = list(dict.fromkeys(r["variant"] for r in rows))
    heads = ["x".join(map(str, s)) if len(set(s)) > 1 else str(s[0]) for s in shapes]
    columns = "".join(head.rjust(18 if "x" in head else 8) for head in heads)
    lines = ["TFLOP/s".ljust(10) + columns + "  of cuBLAS"]
    for name in names:
        cells = ""
        for shape, head in zip(shapes, heads, strict=True):
            row = at[name, shape]
            figure = f"{row['gflops'] / 1e3:.2f}" if "gflops" in row else "wrong"
            cells += figure.rjust(18 if "x" in head else 8)
        share = at[name, shapes[-1]].get("vs_cublas")
        lines.append(name.ljust(10) + cells + (f"{share:.2f}" if share else "-").rjust(11))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    gpu = next((d for d in devices() if d.kind == "cuda" and d.usable), None)
    if gpu is None:
        raise DeviceError(f"the ladder is measured on a GPU: {_core._cuda_problem()}")
    index = int(gpu.name.partition(":")[2])

    rows = []
    for size in arguments.sizes:
        rows += measure((size, size, size), index, gpu.l2_bytes)
    build = build_info()
    document = {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": gpu.model,
        "driver": gpu.driver,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
        "protocol": PROTOCOL,
        "rows": rows,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=1))
    print(f"{gpu.model}, CUDA {build.cuda_toolkit}, csrc {build.csrc_hash}")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
