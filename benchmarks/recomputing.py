"""Experiment 13: the cost of recomputing in float32, for the rungs on tensor cores.

``python benchmarks/recomputing.py`` times `mma`, `wgmma`, `waves` and `auto` beside `simt` and
cuBLAS, alternating. Operands are ordinary, or triangular, or force every tile of C to be recomputed
in float32, early or late, or fill the slots of every tile. The rules of `measure` apply. It writes
JSON with every sample, and prints each time as a multiple of `simt`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from _results import measuring, output_argument, summary, write

from sgemm_kernels import Results, build_info, measure, variants
from sgemm_kernels._table import table
from sgemm_kernels.cli.experiment_tables import over_simt
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.operands import Data
from sgemm_kernels.measuring.shapes import Shape

SIZES = (1024, 2048, 4096, 8192)
NAMES = ("simt", "mma", "wgmma", "waves", "auto", "cublas")
TINY = np.float32(2.0**-30)
"""A factor that an fp16 pair rounds to zero in a row or column with ordinary elements."""

Operands = tuple[np.ndarray, np.ndarray]


def ordinary(rng: np.random.Generator, shape: Shape) -> Operands:
    M, N, K = shape
    return rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)


def triangular(rng: np.random.Generator, shape: Shape) -> Operands:
    A, B = ordinary(rng, shape)
    return np.tril(A), np.tril(B)


def early_fallback(rng: np.random.Generator, shape: Shape) -> Operands:
    """Each term has a tiny factor, so all results fail the error check from the start: a tile falls
    back to float32 after four K chunks."""
    A, B = ordinary(rng, shape)
    half = shape[2] // 2
    A[:, half:] *= TINY
    B[:half] *= TINY
    return A, B


def late_fallback(rng: np.random.Generator, shape: Shape) -> Operands:
    """Every fourth column is like that: too few for an early fallback, but more than the slots.
    The tile is computed by fp16 pairs to the end, and then in float32."""
    A, B = ordinary(rng, shape)
    half = shape[2] // 2
    A[:, half:] *= TINY
    B[:half, ::4] *= TINY
    return A, B


def in_slots(rng: np.random.Generator, shape: Shape) -> Operands:
    """One row of 64 and five columns of 64 are like that: 30 results of a tile of 128 x 192, the
    largest, which has 32 slots. Each is recomputed as a dot product."""
    A, B = ordinary(rng, shape)
    half = shape[2] // 2
    A[::64, half:] *= TINY
    for column in range(5):
        B[:half, column::64] *= TINY
    return A, B


DATA: dict[str, str | Data] = {
    "uniform": "uniform",
    "normal": "normal",
    "triangular": ("lower triangles, standard normal", triangular),
    "in slots": ("standard normal, 30 results of 128 x 192 too small", in_slots),
    "early fallback": ("standard normal, all results too small", early_fallback),
    "late fallback": ("standard normal, a quarter of the results too small", late_fallback),
}
"""Operands by the name of their rows."""


def names() -> list[str]:
    """The variants that run here."""
    usable = {variant.name for variant in variants() if variant.unavailable is None}
    return [name for name in NAMES if name in usable]


def rows_of(key: str, results: Results) -> list[dict[str, Any]]:
    """A row for each variant and size, with its time relative to `simt` and cuBLAS."""
    found = []
    for row in results.rows:
        line: dict[str, Any] = {
            "data": key,
            "operands": results.run.protocol.data,
            "variant": row.variant,
            "n": row.M,
            "relative_error": row.error.relative,
            "worst_share_of_bound": row.error.worst_share,
            "right": row.error.right,
            "unmet": list(row.unmet),
        }
        if row.median_s is not None:
            line |= summary(list(row.samples_s))
            for name in ("simt", "cublas"):
                other = results.find(name, row.shape)
                if other is not None and other.median_s is not None:
                    line[f"over_{name}"] = row.median_s / other.median_s
        found.append(line)
    return found


def measured(sizes: Sequence[int], device: str, seconds: float) -> tuple[Results, list[Any]]:
    """The results of the last data, for their common facts, and the rows of all."""
    rows: list[dict[str, Any]] = []
    for key, data in DATA.items():
        results = measure(
            names(), list(sizes), data=data, device=device, seconds=seconds, whole_calls=False
        )
        rows += rows_of(key, results)
    return results, rows


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "recomputing")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="of 512 and more (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        help="maximum sampling time per size and kind of operands (default: 0.5)",
    )
    arguments = parser.parse_args()
    with measuring(parser):
        gpu = find_gpu("the fallback to float32 is measured")
        results, rows = measured(arguments.sizes, gpu.name, arguments.seconds)
    run = results.run
    head = {
        "device": run.device,
        "driver": run.driver,
        "cuda_toolkit": run.cuda_toolkit,
        "cublas": run.cublas,
        "csrc_hash": build_info().csrc_hash,
        "protocol": f"{run.protocol.timer}, {run.protocol.cache}, all variants "
        "alternate with the same operands",
    }
    print(f"{run.describe()}\n\n{table(*over_simt(rows))}")
    write(arguments.output, "recomputing", head, rows)
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
