"""Products of `invariant` and digests of their rows: python -m tests.rows

The command computes them on the CPU device and writes tests/data/rows.json, which
tests/test_same_bits.py compares with every device. Run it when the arithmetic of `invariant`
changes.
"""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sgemm_kernels import run
from sgemm_kernels.measuring.results_file import read_json, write_json

from .bits import KINDS, Float32, contiguous, random_values

RECORD = Path(__file__).parent / "data/rows.json"

ROWS = 130
"""Rows of A in every case: more than one tile has."""

WEIGHTS = ((1, 300), (30, 100), (64, 128), (70, 1030), (64, 1536), (129, 200), (132, 2049))
"""N and K. K is below the least of tensor cores, or has up to four slices."""


class Case(NamedTuple):
    """B's sizes, the layouts of A and B (r is row-major, c is column-major), and the values."""

    N: int
    K: int
    layout: str
    kind: str

    def __str__(self) -> str:
        return f"{self.N}x{self.K} {self.layout} {self.kind}"


def cases() -> Iterator[Case]:
    kinds = itertools.cycle((*KINDS, "mixed"))
    for (N, K), layout in itertools.product(WEIGHTS, ("rr", "rc", "cr", "cc")):
        yield Case(N, K, layout, next(kinds))


def operands(case: Case, rows: int = ROWS) -> tuple[Float32, Float32, Float32]:
    """A, B and C. In a "mixed" case, some rows fail the error check in many results."""
    seed = hashlib.sha256(f"{case.N} {case.K} {case.kind}".encode()).hexdigest()
    bits = np.random.PCG64(int(seed[:8], 16))
    of_A, of_B, specials = KINDS["ordinary" if case.kind == "mixed" else case.kind]
    A = random_values(bits, (rows, case.K), of_A, specials)
    B = random_values(bits, (case.K, case.N), of_B, specials)
    C = random_values(bits, (rows, case.N), (-6, 2), 0)
    if case.kind == "mixed":
        large = np.where(np.arange(case.K) < case.K // 2, np.float32(2.0**-40), np.float32(1))
        A[::3] *= large
        B[:, ::2] *= large[::-1, None]
    return contiguous(A, case.layout[0]), contiguous(B, case.layout[1]), C


def of_rows(result: Float32) -> list[str]:
    """A digest of each row. All NaNs count as equal."""
    result = np.where(np.isnan(result), np.float32(np.nan), result)
    return [hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in result]


def digest(case: Case, device: str) -> str:
    """The digest of all rows, with and without C."""
    A, B, C = operands(case)
    with np.errstate(all="ignore"):
        results = (
            run("invariant", A, B, device=device),
            run("invariant", A, B, C=C, alpha=-0.75, beta=0.3, device=device),
        )
    rows = [row for result in results for row in of_rows(result)]
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:16]


def recorded() -> dict[str, str]:
    return {row["case"]: row["digest"] for row in read_json(RECORD)["rows"]}


def main() -> None:
    rows = [{"case": str(case), "digest": digest(case, "cpu")} for case in cases()]
    write_json(RECORD, {"rows": rows})


if __name__ == "__main__":
    main()
