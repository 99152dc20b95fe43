"""Experiment 27: symmetric products, A @ A.mT, against the product with a copy of A and cuBLAS.

``python benchmarks/symmetric.py`` needs a GPU and PyTorch. `auto` and `simt` multiply A by its own
transpose, by `run` and by `gram`, and by the transpose of a copy, which they compute like any other
product. Sizes are 256 to 8192, and a few are batches. Then five Newton-Schulz steps at 4096, whose
first two products of three are symmetric. Every element is checked, and symmetric products must be
exactly symmetric. The ways alternate, and the L2 cache is flushed before each sample. Writes JSON
with every sample in nanoseconds, and prints tables. It draws no picture.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from _results import measuring, output_argument, write
from _tensors import Exact, Timer, report_problems

from sgemm_kernels import gram, run
from sgemm_kernels._table import table
from sgemm_kernels.cli.symmetric_tables import (
    AUTO,
    AUTO_COPY,
    CUBLAS,
    GRAM,
    NEWTON_SCHULZ,
    SIMT,
    SIMT_COPY,
    tables,
)

SYMMETRIC = (AUTO, GRAM, SIMT)
OURS = (*SYMMETRIC, AUTO_COPY, SIMT_COPY)
DEPTHS = {
    256: (1024,),
    512: (1024, 8192),
    1024: (256, 512, 1024, 2048, 8192),
    1536: (1024,),
    2048: (256, 1024, 2048, 8192),
    3072: (3072,),
    4096: (256, 1024, 4096, 8192),
    8192: (512, 1024, 2048, 8192),
}
"""The K of each M."""
ODD = ((1001, 1001), (2047, 1024), (4000, 1000))
"""M and K that do not fit the tiles."""
BATCHES = ((8, 256, 256), (16, 512, 512), (8, 1024, 1024))
COLUMNS = ((1024, 1024), (4096, 1024), (8192, 1024))
"""M and K of X.T @ X: A is column-major."""
SECONDS = 0.2
"""To sample a product, all ways together."""
STEPS, WIDTH = 5, 4096
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of Newton-Schulz: X becomes a X + (b A + c A @ A) @ X with A = X @ X.mT."""
MOST_OF_CUBLAS = 2
"""Newton-Schulz is wrong if its error is more than this many times cuBLAS's."""


def operands(timer: Timer) -> list[tuple[str, Callable[[], Any]]]:
    """The name of each case, and a function that makes its A."""
    squares = [(M, K) for M, depths in DEPTHS.items() for K in depths]
    cases: list[tuple[str, Callable[[], Any]]] = [
        (" x ".join(map(str, shape)), partial(timer.uniform, *shape))
        for shape in [*squares, *ODD, *BATCHES]
    ]

    def columns(M: int, K: int) -> Any:
        return timer.uniform(K, M).mT

    return cases + [(f"{M} x {K}, columns", partial(columns, M, K)) for M, K in COLUMNS]


def measured(timer: Timer, case: str, A: Any) -> list[dict[str, Any]]:
    """A row for each way."""
    torch = timer.torch
    *count, M, _ = A.shape
    plain = A.clone().mT  # at another address
    out = torch.empty((*count, M, M), device="cuda")
    exact = Exact(A, A.mT)

    def check(name: str) -> dict[str, Any]:
        symmetric = torch.equal(out, out.mT)
        facts = exact.checked(out) | {"symmetric": symmetric}
        if name in SYMMETRIC and not symmetric:
            facts["problem"] = facts["problem"] or "the result is not symmetric"
        return facts

    ways = {
        CUBLAS: partial(torch.matmul, A, A.mT, out=out),
        AUTO: partial(run, "auto", A, A.mT, out=out),
        GRAM: partial(gram, "auto", A, out=out),
        AUTO_COPY: partial(run, "auto", A, plain, out=out),
        SIMT: partial(run, "simt", A, A.mT, out=out),
        SIMT_COPY: partial(run, "simt", A, plain, out=out),
    }
    return timer.measured(ways, [out], check, {"case": case, "shape": [*A.shape]})


# ------------------------------------------------------------------ Newton-Schulz


Product = Callable[[Any, Any, Any, float, float, Any], object]
"""Writes alpha A @ B + beta C: takes A, B, the result, alpha, beta and C."""


def by_auto(A: Any, B: Any, out: Any, alpha: float, beta: float, C: Any) -> None:
    run("auto", A, B, alpha=alpha, beta=beta, C=C, out=out)


def by_cublas(torch: Any) -> Product:
    """PyTorch's product with float32 or float64 tensors."""

    def product(A: Any, B: Any, out: Any, alpha: float, beta: float, C: Any) -> None:
        if C is None:
            torch.mm(A, B, out=out)
        else:
            torch.addmm(C, A, B, alpha=alpha, beta=beta, out=out)

    return product


class NewtonSchulz:
    """Steps that make a matrix orthogonal, with memory for all that they compute."""

    def __init__(self, X: Any) -> None:
        self._given = X
        self._A, self._B, self._copy, first, second = (X.clone() for _ in range(5))
        self._next = first, second
        self.result = first if STEPS % 2 else second

    def compute(self, multiply: Product, *, symmetric: bool) -> None:
        """Computes the result with three products a step. Symmetric ones get a transposed operand;
        the others get the transpose of a copy, and A @ A."""
        a, b, c = COEFFICIENTS
        X, A, B = self._given, self._A, self._B
        for step in range(STEPS):
            x = X if symmetric else self._copy.copy_(X)
            Y = self._next[step % 2]
            multiply(X, x.mT, A, 1.0, 0.0, None)
            multiply(A, A.mT if symmetric else A, B, c, b, A)
            multiply(B, X, Y, 1.0, a, X)
            X = Y


def measured_steps(timer: Timer) -> list[dict[str, Any]]:
    """A row for each way to compute the Newton-Schulz steps."""
    torch = timer.torch
    X = timer.uniform(WIDTH, WIDTH)
    X /= X.norm()
    exact = NewtonSchulz(X.double())
    exact.compute(by_cublas(torch), symmetric=True)
    steps = NewtonSchulz(X)
    errors: dict[str, float] = {}

    def check(name: str) -> dict[str, Any]:
        difference = steps.result.double() - exact.result
        error = float(difference.norm() / exact.result.norm())
        limit = MOST_OF_CUBLAS * errors.setdefault(CUBLAS, error)
        problem = None if error <= limit else f"wrong: a relative error of {error:.2g}"
        return {"relative_error": error, "problem": problem}

    ways = {
        CUBLAS: partial(steps.compute, by_cublas(torch), symmetric=True),
        AUTO: partial(steps.compute, by_auto, symmetric=True),
        AUTO_COPY: partial(steps.compute, by_auto, symmetric=False),
    }
    facts = {"case": NEWTON_SCHULZ, "shape": [WIDTH, WIDTH], "steps": STEPS}
    return timer.measured(ways, [steps.result], check, facts)


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result of ours was wrong or failed, 2 if
    measuring failed."""
    parser = output_argument((__doc__ or "").splitlines()[0], "symmetric.json.gz")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with measuring(parser, RuntimeError):
        timer = Timer("symmetric products are timed", SECONDS)
        for case, make in operands(timer):
            timer.torch.cuda.empty_cache()
            rows += measured(timer, case, make())
        timer.torch.cuda.empty_cache()
        rows += measured_steps(timer)
    head = timer.head()
    print(f"{head['device']}, {head['run_s']:.0f} s\n")
    print("\n\n".join(table(*each) for each in tables(rows)))
    write(arguments.output, "symmetric", head, rows)
    return 1 if {*OURS} & {*report_problems(rows)} else 0


if __name__ == "__main__":
    sys.exit(main())
