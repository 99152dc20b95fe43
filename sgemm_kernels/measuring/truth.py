"""Computes the product in float64 and compares results with it."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._accuracy import UNIT_ROUNDOFF, Expected, expect, gamma
from .measurement import Accuracy
from .operands import Float32

FULL_CHECK = 2048
"""Up to this size, every element is compared with float64."""
ROWS_CHECKED = 64
"""Beyond it, this many rows are compared."""

TF32_ROUNDING = 2.0**-10
"""TF32 keeps 10 bits of the fraction: the relative rounding error is at most this."""
_BAND = 2**20
"""Elements to convert to float64 at a time. Memory of this size is reused without system calls. For
a whole matrix, those would take longer than the arithmetic."""


class Truth:
    """The float64 reference of A @ B, computed once and used for every variant. A and B may be
    batches.

    Up to FULL_CHECK, every element is compared. Beyond, ROWS_CHECKED rows are compared, including
    rows at tile edges, and all elements through the product with a vector v of random signs: C @ v
    against A @ (B @ v). An element's error is a random walk and stays well below 16 u t, where t is
    the sum of its terms' magnitudes and u = 2**-24. In C @ v, a row's errors have random signs, so
    their sum stays below the root of the sum of their squares. The sum of t**2 is at most the sum
    of t times the largest t. A single completely wrong element exceeds this bound.
    """

    def __init__(
        self, A: Float32, B: Float32, edges: Iterable[int], rng: np.random.Generator
    ) -> None:
        (M, K), N = A.shape[-2:], B.shape[-1]
        self._roundings = gamma(K)
        self._whole = max(M, N, K) <= FULL_CHECK or M <= ROWS_CHECKED
        self.rows = np.arange(M)
        if not self._whole:
            wanted = [row for row in sorted(edges) if row < M][: ROWS_CHECKED // 2]
            others = rng.permutation(np.setdiff1d(self.rows, [*wanted, M - 1]))
            chosen = [*wanted, M - 1, *others][:ROWS_CHECKED]
            self.rows = np.unique(chosen)
            self._signs = rng.choice((-1.0, 1.0), N)
            self._product = _times(A, _times(B, self._signs))
            terms = _times(A, _times(B, np.ones(N), np.abs), np.abs)
            largest_of_B = np.maximum(B.max(axis=-1), -B.min(axis=-1)).astype(np.float64)
            largest = _times(A, largest_of_B, np.abs)
            self._allowed = 16 * UNIT_ROUNDOFF * np.sqrt(terms * largest)
        rows = A[..., self.rows, :]
        if A.ndim > 2:
            some = range(0, len(A), max(_BAND // (len(self.rows) * N), 1))
            parts = [expect(rows[i : i + some.step], B[i : i + some.step]) for i in some]
        else:  # the rows are converted again for each part of B: no part is smaller than the rows
            columns = range(0, N, max(_BAND // K, len(rows)))
            parts = [expect(rows, B[:, i : i + columns.step]) for i in columns]
        fields = zip(*((e.value, e.bound, e.may_overflow) for e in parts), strict=True)
        along = 0 if A.ndim > 2 else 1
        self._exact = Expected(*(np.concatenate(field, along) for field in fields))

    def accuracy_of(self, C: Float32, rounding: float = 0.0) -> Accuracy:
        """The error of a result. ``rounding`` is the relative rounding error of each input;
        each term may be off by twice that, in addition to float32 rounding."""
        exact = self._exact.value
        rows = C[..., self.rows, :]
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            error = np.linalg.norm(rows - exact)
            relative = float(error / np.linalg.norm(exact)) if error != 0 else 0.0
            vector_share = None
            if not self._whole:
                off = np.abs(_times(C, self._signs) - self._product)
                share = np.divide(off, self._allowed, out=np.zeros_like(off), where=off != 0)
                widened = 1 + 2 * rounding / (16 * UNIT_ROUNDOFF)
                vector_share = _or_infinity(float(share.max()) / widened)
        widened = 1 + 2 * rounding / self._roundings
        worst = _or_infinity(self._exact.worst_share(rows) / widened)
        count = math.prod(exact.shape[:-1])
        return Accuracy(_or_infinity(relative), worst, count, vector_share)


def _times(
    matrix: Float32, vector: NDArray[np.float64], of: Callable[[Any], Any] = np.asarray
) -> NDArray[np.float64]:
    """of(matrix) @ vector in float64, computed in bands of rows. For a batch of matrices, with one
    vector for all or one for each."""
    if matrix.ndim > 2:
        vectors = np.broadcast_to(vector, (len(matrix), matrix.shape[-1]))
        return np.stack([_times(*each, of) for each in zip(matrix, vectors, strict=True)])
    bands = range(0, matrix.shape[0], max(_BAND // matrix.shape[1], 1))
    return np.concatenate(
        [of(matrix[i : i + bands.step].astype(np.float64)) @ vector for i in bands]
    )


def _or_infinity(value: float) -> float:
    return value if math.isfinite(value) else math.inf
