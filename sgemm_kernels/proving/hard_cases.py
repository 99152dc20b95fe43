"""Operands that test the error check of split-fp16 products.

Each function returns A (150, K) and B (K, 140), so that tiles have edges.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._accuracy import expect
from .._core import run
from .models import SHORTEST_K, Model

Float32 = NDArray[np.float32]
Maker = Callable[[np.random.Generator, int], tuple[Float32, Float32]]

DEPTHS = (SHORTEST_K, SHORTEST_K + 1, 1000)
_CHUNK = 64


def normal(rng: np.random.Generator, *shape: int) -> Float32:
    return rng.standard_normal(shape).astype(np.float32)


def blocks(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """All terms are small, but no row and no column is."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :] *= np.float32(2.0**-30)
    return A, B


def one_small(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """One row and one column that begin or end with tiny elements. They share one result."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[77, : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :, 99] *= np.float32(2.0**-30)
    return A, B


def with_special(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[3, 7], A[5, 8], B[9, 11], B[10, 130] = np.nan, -np.inf, np.inf, np.nan
    A[20], B[:, 30] = 0.0, 0.0
    return A, B


def cancelling(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Large sums that cancel almost completely: the first half of K against the second."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    half = K // 2
    A[:, half : 2 * half] = A[:, :half]
    B[half : 2 * half] = -B[:half] * np.float32(1 + 2.0**-22)
    return A, B


def underflowing(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Where A's fp16 pairs are nonzero, B is zero. Where B is nonzero, A's pairs underflow to
    zero."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, 64:] = np.ldexp(np.abs(A[:, 64:]), -60)  # positive, because fp16 zeros would lose the sign
    B[:64] = 0.0
    return A, B


def infinite_beside_zeros(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Infinity or NaN where A has whole zero K chunks, and at the end of K, when a tile may already
    be due for recomputation in fp32."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, :128], B[70, 5], B[80, 135] = 0.0, np.inf, np.nan
    A[:128, K - 1 :] = -np.inf
    A[128:] = 0.0
    return A, B


def wide(rng: np.random.Generator, *shape: int) -> Float32:
    return np.ldexp(normal(rng, *shape), rng.integers(-30, 30, shape)).astype(np.float32)


def softmax(rng: np.random.Generator, *shape: int) -> Float32:
    x = np.exp(3 * normal(rng, *shape))
    share: Float32 = (x / x.sum(axis=1, keepdims=True)).astype(np.float32)
    return share


def banded(X: Float32) -> Float32:
    band: Float32 = np.triu(np.tril(X, 9), -9)
    return band


def chunk_of_losses(F: int, G: int) -> tuple[Float32, Float32]:
    """A large term that loses lo * lo, and small terms that each step cuts off almost entirely.

    In each step, all terms but the last keep one unit, 2**-F. Their number is one less than a
    multiple of a float32's last place, so that some of these units are cut off too.
    """
    A = np.full((1, _CHUNK), (2 - 2.0**-10) * 2.0**-12)
    A[0, G - 1 :: G] = (1 - 2.0**-11) * 2.0**-12
    B = np.full((_CHUNK, 1), 2.0 ** (12 - F))
    A[0, 0] = B[0, 0] = 1 + 2.0**-11
    return A.astype(np.float32), B.astype(np.float32)


INPUTS: dict[str, Maker] = {
    "normal": lambda rng, K: (normal(rng, 150, K), normal(rng, K, 140)),
    "positive": lambda rng, K: (np.abs(normal(rng, 150, K)), np.abs(normal(rng, K, 140))),
    "NaN, infinities, zeros": with_special,
    "blocks of 2**-30": blocks,
    "one row and one column of them": one_small,
    "cancelling": cancelling,
    "fp16 pairs that underflow": underflowing,
    "infinities beside zeros": infinite_beside_zeros,
    "60 binades": lambda rng, K: (wide(rng, 150, K), wide(rng, K, 140)),
    "subnormal": lambda rng, K: (
        np.ldexp(normal(rng, 150, K), -146).astype(np.float32),
        np.ldexp(normal(rng, K, 140), 120).astype(np.float32),
    ),
    "2**-126 beside 2**127": lambda rng, K: (
        np.ldexp(rng.uniform(1, 2, (150, K)), -126).astype(np.float32),
        np.ldexp(rng.uniform(-1, 1, (K, 140)), 127).astype(np.float32),
    ),
    "overflow": lambda rng, K: (
        np.ldexp(normal(rng, 150, K), 66).astype(np.float32),
        np.ldexp(normal(rng, K, 140), 62).astype(np.float32),
    ),
    "underflow": lambda rng, K: (
        np.ldexp(normal(rng, 150, K), -80).astype(np.float32),
        np.ldexp(normal(rng, K, 140), -66).astype(np.float32),
    ),
    "zeros": lambda rng, K: (np.zeros((150, K), np.float32), normal(rng, K, 140)),
    "one element": lambda rng, K: (
        np.eye(150, K, dtype=np.float32)[:, ::-1] * np.float32(2.0**-149),
        normal(rng, K, 140),
    ),
    "triangular": lambda rng, K: (np.tril(normal(rng, 150, K)), np.tril(normal(rng, K, 140))),
    "banded": lambda rng, K: (banded(normal(rng, 150, K)), banded(normal(rng, K, 140))),
    "1 % sparse": lambda rng, K: (
        (normal(rng, 150, K) * (rng.random((150, K)) < 0.01)).astype(np.float32),
        normal(rng, K, 140),
    ),
    "softmax": lambda rng, K: (softmax(rng, 150, K), normal(rng, K, 140)),
}
"""By name."""


@dataclass(frozen=True, slots=True)
class HardCase:
    """A product by `mma`, beside the error bound."""

    name: str
    K: int
    worst_share: float
    """The largest error, as a share of the bound: at most 1."""


def hard_cases(device: str, model: Model) -> Iterator[HardCase]:
    """Computes all inputs with `mma`, and the input that loses most with this model."""

    def losses(_: np.random.Generator, K: int) -> tuple[Float32, Float32]:
        return _losses(model, K)

    makers: dict[str, Maker] = {**INPUTS, "most losses known": losses}
    for name, make in makers.items():
        for K in DEPTHS:
            A, B = make(np.random.default_rng(K), K)
            with np.errstate(all="ignore"):
                yield HardCase(name, K, expect(A, B).worst_share(run("mma", A, B, device=device)))


def _losses(model: Model, K: int) -> tuple[Float32, Float32]:
    A, B = chunk_of_losses(model.bits, model.products)
    chunks = -(-K // _CHUNK)
    return np.tile(A, (1, chunks))[:, :K], np.tile(B, (chunks, 1))[:K]
