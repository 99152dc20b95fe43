"""Bounds and operands of experiment 25: of the tests, and hard ones.

The tests are by J. Demmel, X. Li, J. Langou, W. Pereira, M. Gates and C. Rubio-Gonzalez, "How
to grade the accuracy of an implementation of the BLAS" (2024). NVIDIA's programs test_blas3 and
grade_blas3, for float64, name the same ones tests 2, 4 and 6, and criterion 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sgemm_kernels._accuracy import UNIT_ROUNDOFF, gamma

EPSILON = 2.0**-23
"""The distance from 1 to the next float32."""
GRADES = ("A", "B", "C")
TILE = 16
"""Hard products are TILE x n by n x TILE."""

Float32 = NDArray[np.float32]
Make = Callable[[np.random.Generator, int], tuple[Float32, Float32]]
"""Makes A and B, n x n."""


# ------------------------------------------------------------------ bounds


def widened(xp: Any, matrix: Any) -> Any:
    """A float32 matrix in float64. CuPy converts a subnormal number to 0, so these are computed
    from their bits."""
    bits = matrix.view(xp.int32)
    magnitude = bits & 0x7FFFFFFF
    subnormal = xp.where(bits < 0, -(2.0**-149), 2.0**-149) * magnitude
    return xp.where(magnitude < 0x00800000, subnormal, matrix.astype(xp.float64))


def exact(xp: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """A @ B and |A| @ |B| in float64."""
    a, b = widened(xp, A), widened(xp, B)
    return a @ b, xp.abs(a) @ xp.abs(b)


def units(xp: Any, error: Any, terms: Any) -> float:
    """The largest error in units of EPSILON times the terms' magnitudes. Infinite for a NaN or
    infinity, and for an error where all terms are 0."""
    share = xp.where(error == 0, 0.0, error / xp.where(terms == 0, 1e-300, EPSILON * terms))
    return _finite(float(xp.where(xp.isnan(share), xp.inf, share).max()))


def shares(xp: Any, A: Any, B: Any, error: Any, terms: Any) -> dict[str, float]:
    """The error divided by each grade's bound, which is n EPSILON times:

    A: (|A| |B|)[i, j]; B: the norms of row i of A and of column j of B; C: the norms of A and B,
    for the norm of the error.
    """
    n = A.shape[1]
    a, b = (
        xp.sqrt((matrix.astype(xp.float64) ** 2).sum(axis)) for matrix, axis in ((A, 1), (B, 0))
    )
    whole = float(xp.sqrt((error**2).sum()))
    norms = float(xp.sqrt((a**2).sum()) * xp.sqrt((b**2).sum()))
    return {
        "A": units(xp, error, terms) / n,
        "B": units(xp, error, a[:, None] * b) / n,
        "C": _finite(whole / (n * EPSILON * norms)),
    }


def grade(found: Sequence[Mapping[str, float]]) -> str | None:
    """The best grade whose bound all of these products keep."""
    return next((name for name in GRADES if all(each[name] <= 1 for each in found)), None)


def slope(sizes: Sequence[int], errors: Sequence[float]) -> float | None:
    """How errors grow: like n to this power, by a line through their logarithms. None for fewer
    than two finite errors other than 0."""
    points = [
        (math.log(n), math.log(e)) for n, e in zip(sizes, errors, strict=True) if 0 < e < math.inf
    ]
    return float(np.polyfit(*zip(*points, strict=True), 1)[0]) if len(points) > 1 else None


def share_of_bound(xp: Any, C: Any, value: Any, terms: Any, K: int) -> float:
    """The largest error in units of this package's bound."""
    bound = gamma(K) * terms + (K + 3) * 2.0**-149
    share = xp.abs(widened(xp, C) - value) / bound
    return _finite(float(xp.where(xp.isnan(share), xp.inf, share).max()))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


# ------------------------------------------------------------------ operands of the tests


def _random(rng: np.random.Generator, n: int) -> Float32:
    """Values in [1, 2)."""
    return 1 + rng.random((n, n), np.float32)


def _uniform(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    return rng.random((n, n), np.float32), rng.random((n, n), np.float32)


def _normal(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    return rng.standard_normal((n, n), np.float32), rng.standard_normal((n, n), np.float32)


def _zeros(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Test 2: some rows of A and columns of B share no place where both are other than 0, so their
    results are exactly 0. Strassen's algorithm computes others from sums of such rows."""
    A, B = _normal(rng, n)
    rows, columns = (rng.permutation(n)[: n // 2] for _ in "AB")
    for i, j in zip(rows, columns, strict=True):
        of_a = rng.permutation(n) < rng.integers(1, n)
        A[i, of_a] = 0
        B[~of_a, j] = 0
    return A, B


def largest_exponent(n: int) -> int:
    """Products and sums of values up to two to this power do not overflow."""
    return int(64 - math.log2(n) - 2)


def _steps(n: int, largest: int) -> Float32:
    """Powers of two from the largest exponent down to its negative."""
    exponents = largest - (np.arange(n) * (2 * largest / max(n - 1, 1))).astype(int)
    return np.ldexp(np.float32(1), exponents)


def _graded(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Test 4: row i of A is x D, shifted by i, and column j of B is x / D, shifted by j. Results on
    the diagonal are x x'. Integers or fixed-point numbers with one scale for each row and column
    lose the small elements."""
    x, D = 1 + rng.random(n, np.float32), _steps(n, largest_exponent(n))
    shifted = np.add.outer(np.arange(n), np.arange(n)) % n
    return (x * D)[shifted], (x / D)[shifted]


def _corner(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Test 6: graded in groups of 16, with a last row and column that are large."""
    of_group = rng.permutation(_steps(16, largest_exponent(n)))
    D = np.resize(of_group, n)
    A, B = _random(rng, n) * D, _random(rng, n) / D[:, None]
    A[-1] = of_group.max() * (1 + rng.random(n, np.float32))
    B[:, -1] = of_group.max() * (1 + rng.random(n, np.float32))
    return A, B


UNIFORM, ZEROS, GRADED = "uniform [0, 1)", "zeros", "graded"
TESTS: dict[str, Make] = {
    UNIFORM: _uniform,
    "standard normal": _normal,
    ZEROS: _zeros,
    GRADED: _graded,
    "graded, large corner": _corner,
}
TOLERANCE = 10 * UNIT_ROUNDOFF
"""Relative to n and to the result, for test 4."""


def zeros_are_exact(C: Any, terms: Any) -> bool:
    """Test 2: results without any term other than 0 are 0."""
    return bool((C[terms == 0] == 0).all())


def keeps_small_elements(xp: Any, error: Any, value: Any) -> bool:
    """Test 4: results are accurate although the elements of a row differ in size."""
    return bool((error <= TOLERANCE * len(value) * xp.abs(value)).all())


# ------------------------------------------------------------------ hard operands


def _scaled(matrix: Float32, exponents: NDArray[np.int64]) -> Float32:
    return np.ldexp(matrix, exponents).astype(np.float32)


def _absorbed(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """A term of 1, and terms just below half a unit in its last place: in order, none counts."""
    A, B = (np.float32(2**-12) * (1 - 2**-10 * rng.random((n, n), np.float32)) for _ in "AB")
    A[:, 0], B[0] = 1, 1
    return A, B


def _cancelling(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Each term comes again with the other sign: all results are 0."""
    X, Y = (
        rng.standard_normal((n, n // 2), np.float32),
        rng.standard_normal((n // 2, n), np.float32),
    )
    return np.hstack([X, X]), np.vstack([Y, -Y])


def _wide(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Each element has an exponent of its own."""
    A, B = (_scaled(each, rng.integers(-28, 28, (n, n))) for each in _normal(rng, n))
    return A, B


def _along(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Exponents along K, in any order. The exponents of A and of B add up to 0."""
    exponents = rng.permutation(np.linspace(-40, 40, n).astype(int))
    A, B = _normal(rng, n)
    return _scaled(A, exponents), _scaled(B, -exponents[:, None])


def _ties(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """Low bits at and beside the ties of rounding to fp16, TF32 and bfloat16; all are positive."""
    low = np.array([0x0FFF, 0x1000, 0x1001, 0x1FFF, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    high = [np.uint32(0x3F800000) + (rng.integers(0, 64, (n, n), np.uint32) << 17) for _ in "AB"]
    A, B = ((each | rng.choice(low, (n, n))).view(np.float32) for each in high)
    return A, B


def _outlier(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
    """A row or column has one element that is a million times as large as the others."""
    A, B = _normal(rng, n)
    A[np.arange(n), rng.integers(0, n, n)] *= 1e6
    B[rng.integers(0, n, n), np.arange(n)] *= 1e6
    return A, B


def _of_size(exponent: int) -> Make:
    """Elements near two to this power."""

    def make(rng: np.random.Generator, n: int) -> tuple[Float32, Float32]:
        A, B = (_scaled(each, exponent + rng.integers(-6, 6, (n, n))) for each in _normal(rng, n))
        return A, B

    return make


HARD: dict[str, Make] = {
    "one sign": lambda rng, n: (_random(rng, n), _random(rng, n)),
    "absorbed terms": _absorbed,
    "cancelling terms": _cancelling,
    "wide exponents": _wide,
    "exponents along K": _along,
    "ties of rounding": _ties,
    "outliers": _outlier,
    "tiny": _of_size(-56),
    "subnormal terms": _of_size(-68),
    "huge": _of_size(50),
}
"""Operands whose errors may come near to the bound, or beyond it for a product that is not float32.
Any TILE rows of A and TILE columns of B are such a pair."""


def apart(xp: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """The products of each TILE rows of A and each TILE columns of B, as a batch."""
    n = len(A) // TILE
    rows = A.reshape(n, TILE, -1)
    columns = B.T.reshape(n, TILE, -1).transpose(0, 2, 1)
    return xp.repeat(rows, n, axis=0), xp.ascontiguousarray(xp.tile(columns, (n, 1, 1)))


def together(C: Any) -> Any:
    """The result whose tiles are this batch's."""
    n = math.isqrt(len(C))
    return C.reshape(n, n, TILE, TILE).transpose(0, 2, 1, 3).reshape(n * TILE, n * TILE)
