"""Experiment 26: the price of the same bits in every batch.

``python benchmarks/same_bits.py`` needs a GPU and PyTorch. `invariant`, `auto`, `simt` and cuBLAS
in float32 multiply 1 to 8192 rows by a B of N x K in memory, as in a linear layer, and by a
row-major B. Every element is checked. Each product with fewer rows has the last rows of the A with
8192 rows, and ``equal_bits`` is true if its results have the bits of those rows. The ways
alternate, and the L2 cache is flushed before each sample. Writes JSON with every sample in
nanoseconds, and prints tables. It draws no picture.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from _results import measuring, output_argument, write
from _tensors import Exact, Timer, report_problems

from sgemm_kernels import run
from sgemm_kernels._table import table
from sgemm_kernels.cli.same_bits_tables import CUBLAS, INVARIANT, tables

OURS = (INVARIANT, "auto", "simt")
ROWS = (8192, 2048, 512, 128, 64, 8, 1)
"""The most rows first."""
SIZES = (
    *((n, n) for n in (1024, 2048, 4096, 5120, 8192)),
    *((1024, 8192), (8192, 1024), (11008, 4096)),
)
"""N and K."""
LAYOUTS = ("NT", "NN")
"""Of A and B: T is column-major, like the transposed weights of a linear layer."""
SECONDS = 0.2
"""To sample a product, all ways together."""


def measured(timer: Timer, N: int, K: int, layout: str) -> list[dict[str, Any]]:
    """A row for each number of rows of A and each way, for one B."""
    torch = timer.torch
    all_rows = timer.uniform(ROWS[0], K)
    B = timer.uniform(N, K).T if layout == "NT" else timer.uniform(K, N)
    whole: dict[str, Any] = {}
    found = []
    for M in ROWS:
        A, out = all_rows[-M:], torch.empty((M, N), device="cuda")
        exact = Exact(A, B)

        def check(name: str, out: Any = out, exact: Exact = exact) -> dict[str, Any]:
            whole.setdefault(name, out.clone())
            of_all = whole[name][-len(out) :]
            equal = torch.equal(out.view(torch.int32), of_all.view(torch.int32))
            facts = exact.checked(out) | {"equal_bits": equal}
            if name == INVARIANT and not equal:
                facts["problem"] = facts["problem"] or f"other bits than with {ROWS[0]} rows"
            return facts

        ways = {CUBLAS: partial(torch.mm, A, B, out=out)}
        ways |= {name: partial(run, name, A, B, out=out) for name in OURS}
        size = {"case": f"{N} x {K} {layout}", "M": M, "N": N, "K": K, "layout": layout}
        found += timer.measured(ways, [out], check, size)
    return found


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result of ours was wrong or failed, 2 if
    measuring failed."""
    parser = output_argument((__doc__ or "").splitlines()[0], "same_bits.json.gz")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with measuring(parser, RuntimeError):
        timer = Timer("the variant 'invariant' is timed", SECONDS)
        for N, K in SIZES:
            for layout in LAYOUTS:
                timer.torch.cuda.empty_cache()
                rows += measured(timer, N, K, layout)
    head = timer.head()
    print(f"{head['device']}, {head['run_s']:.0f} s\n")
    print("\n\n".join(table(*each) for each in tables(rows)))
    write(arguments.output, "same_bits", head, rows)
    return 1 if {*OURS} & {*report_problems(rows)} else 0


if __name__ == "__main__":
    sys.exit(main())
