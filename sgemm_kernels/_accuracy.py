"""Computes the error bound of a float32 matrix product and compares results with it.

The bound is the standard one for an inner product of length n in floating point, for any summation
order (N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, section 3.1):
the error is at most gamma(n) times the sum of the terms' magnitudes, where gamma(n) = n u / (1 - n
u) and u = 2**-24. alpha, beta and the last sum add three roundings. In addition, each operation may
lose half a unit of the smallest subnormal, 2**-149.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNIT_ROUNDOFF = 2.0**-24
_SMALLEST_SUBNORMAL = 2.0**-149
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The float64 reference of one product, or of a batch. All arrays have the result's shape."""

    value: NDArray[np.float64]
    bound: NDArray[np.float64]
    """The largest allowed absolute error."""
    may_overflow: NDArray[np.bool_]
    """True if the sum of the terms' magnitudes exceeds the largest float32: any result passes."""

    def worst_share(self, result: NDArray[np.float32]) -> float:
        """The largest of ``shares``: at most 1 if the result is correct, 0 if it is empty."""
        return float(self.shares(result).max(initial=0.0))

    def shares(self, result: NDArray[np.float32]) -> NDArray[np.float64]:
        """The error of each element divided by its bound.

        Infinite if a NaN or an infinity is missing, misplaced, or has the wrong sign.
        """
        if result.shape != self.value.shape:
            raise ValueError(f"the result has shape {result.shape}, expected {self.value.shape}")
        finite = np.isfinite(self.value)
        same = (result == self.value) | (np.isnan(result) & np.isnan(self.value))
        with np.errstate(invalid="ignore"):
            error = np.abs(result - self.value)
        share = np.full(self.value.shape, np.inf)
        np.divide(error, self.bound, out=share, where=finite & np.isfinite(result))
        share[same | self.may_overflow] = 0.0
        return share


def gamma(K: int) -> float:
    """The error bound of a float32 product over K, relative to the sum of its terms' magnitudes.

    Raises ValueError for K >= 2**24 - 3, where no bound exists.
    """
    roundings = (K + 3) * UNIT_ROUNDOFF
    if roundings >= 1:
        raise ValueError(f"no error bound exists for K = {K}: K must be below 2**24 - 3")
    return roundings / (1 - roundings)


def expect(
    A: NDArray[np.float32],
    B: NDArray[np.float32],
    *,
    C: NDArray[np.float32] | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Expected:
    """The product alpha * A @ B + beta * C in float64, and the error bound for float32.

    A is (M, K), B is (K, N), C is (M, N), or each is a batch of as many of them. As in BLAS, C is
    ignored if beta is 0, and A and B are ignored if alpha or K is 0. Raises ValueError for K >=
    2**24 - 3, where no bound exists.
    """
    K = A.shape[-1]
    bound = gamma(K)
    with np.errstate(over="ignore"):
        scale, keep = float(np.float32(alpha)), float(np.float32(beta))

    value = np.zeros((*A.shape[:-1], B.shape[-1]))
    magnitude = np.zeros_like(value)
    largest = np.zeros_like(value)
    with np.errstate(invalid="ignore", over="ignore"):
        if scale != 0 and K != 0:
            value += scale * (A.astype(np.float64) @ B.astype(np.float64))
            # Infinities and NaNs are compared by position; the finite terms give the bound.
            terms = _finite_magnitude(A) @ _finite_magnitude(B)
            magnitude += _finite_magnitude(scale) * terms
            largest = terms
        if keep != 0:
            if C is None:
                raise ValueError("beta is not 0: pass C")
            value += keep * C.astype(np.float64)
            magnitude += _finite_magnitude(keep) * _finite_magnitude(C)
    largest = np.maximum(largest, magnitude)
    underflow = (K + 3) * _SMALLEST_SUBNORMAL * max(1.0, float(_finite_magnitude(scale)))
    return Expected(
        value=value,
        bound=bound * magnitude + underflow,
        may_overflow=largest * (1 + bound) > _LARGEST,
    )


def _finite_magnitude(values: float | NDArray[np.float32]) -> NDArray[np.float64]:
    """Magnitudes in float64, with 0 for infinities and NaNs."""
    magnitudes = np.abs(np.asarray(values, np.float64))
    return np.where(np.isfinite(magnitudes), magnitudes, 0.0)
