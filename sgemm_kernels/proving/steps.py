"""Single products of tensor cores, compared bit by bit with the model on the CPU device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .models import Model, emulated

Float32 = NDArray[np.float32]
Operands = tuple[Float32, Float32, Float32]
"""A (SIDE, DEPTH) and B (DEPTH, SIDE), exact in fp16, and C (SIDE, SIDE)."""

SIDE, DEPTH = 256, 16
_SIGN, _INFINITY = 0x8000, 0x7C00


@dataclass(frozen=True, slots=True)
class Compared:
    """Products of one kind of operands."""

    kind: str
    results: int
    """How many results were compared, with distinct operands."""
    differing: int
    first_difference: str | None
    """The operands and both results, as bits. None if no result differs."""


def _from_bits(bits: NDArray[np.int64]) -> Float32:
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


def _fp16(values: NDArray[np.floating]) -> Float32:
    return values.astype(np.float16).astype(np.float32)


def _random_bits(rng: np.random.Generator, low: int, high: int) -> tuple[Float32, Float32]:
    """A and B, with magnitudes of these bits and random signs."""
    A, B = (
        _from_bits(rng.integers(low, high, shape) | rng.integers(0, 2, shape) * _SIGN)
        for shape in ((SIDE, DEPTH), (DEPTH, SIDE))
    )
    return A, B


def _scaled_normal(rng: np.random.Generator, low: int, high: int) -> Float32:
    """Random float32 values whose exponents are from low to high."""
    shape = (SIDE, SIDE)
    return np.ldexp(rng.standard_normal(shape), rng.integers(low, high, shape)).astype(np.float32)


def _normal(rng: np.random.Generator) -> Operands:
    A, B = rng.standard_normal((SIDE, DEPTH)), rng.standard_normal((DEPTH, SIDE))
    return _fp16(A), _fp16(B), _scaled_normal(rng, 0, 3)


def _positive(rng: np.random.Generator) -> Operands:
    A, B, C = _normal(rng)
    return np.abs(A), np.abs(B), np.abs(C)


def _all_exponents(rng: np.random.Generator) -> Operands:
    return *_random_bits(rng, 0, _INFINITY), _scaled_normal(rng, -40, 35)


def _subnormal(rng: np.random.Generator) -> Operands:
    return *_random_bits(rng, 0, 0x400), _scaled_normal(rng, -50, -25)


def _beside_subnormal(rng: np.random.Generator) -> Operands:
    """Subnormal numbers times large ones: their exponent counts as that of the smallest normal."""
    A, _ = _random_bits(rng, 0, 0x400)
    _, B = _random_bits(rng, 0x3C00, _INFINITY)
    return A, B, _scaled_normal(rng, -30, 2)


def _cancelling_sum(rng: np.random.Generator) -> Operands:
    """The old value cancels the sum of the products, except for its last bits."""
    A, B, _ = _normal(rng)
    noise = 1 + rng.integers(-3, 4, (SIDE, SIDE)) * 2.0**-23
    return A, B, (-(A.astype(np.float64) @ B) * noise).astype(np.float32)


def _cancelling_products(rng: np.random.Generator) -> Operands:
    """Products cancel each other: neighbours along K, or 8 steps apart."""
    A, B, C = _normal(rng)
    for first, second in ((slice(0, 8, 2), slice(1, 8, 2)), (slice(0, 8), slice(8, 16))):
        rows = slice(0, None, 2) if first.step else slice(1, None, 2)
        A[rows, second] = _fp16(-A[rows, first] * np.float32(1 + 2.0**-10))
        B[second] = B[first]
    return A, B, C * np.float32(2.0**-12)


def _zeros(rng: np.random.Generator) -> Operands:
    """Mostly zeros of both signs, beside numbers of any exponent."""
    A, B, C = _all_exponents(rng)
    for X in (A, B, C):
        X[rng.random(X.shape) < 0.75] *= 0
    return A, B, C


def _pairs(rng: np.random.Generator) -> Operands:
    """As in `mma`: large hi parts, lo parts 2**11 times smaller, and sums of up to 2**36."""
    A, B = _random_bits(rng, 0x7000, 0x7800)
    A[: SIDE // 2] = _fp16(A[: SIDE // 2] * 2.0**-11)
    return A, B, _scaled_normal(rng, 14, 36)


def _not_finite(rng: np.random.Generator) -> Operands:
    A, B, C = _normal(rng)
    for X in (A, B, C):
        for value in (np.inf, -np.inf, np.nan, 0.0):
            X[rng.random(X.shape) < 0.01] = value
    return A, B, C


KINDS: dict[str, Callable[[np.random.Generator], Operands]] = {
    "normal": _normal,
    "positive": _positive,
    "all exponents of fp16": _all_exponents,
    "subnormal": _subnormal,
    "subnormal times large": _beside_subnormal,
    "the old value cancels": _cancelling_sum,
    "products cancel": _cancelling_products,
    "mostly zeros": _zeros,
    "fp16 pairs": _pairs,
    "infinities and NaN": _not_finite,
}


def step_products(operands: Operands, device: str) -> Float32:
    """C + A @ B, one mma.sync for each 16 x 8 results. A and B must be exact in fp16."""
    A, B, C = operands
    result: Float32 = _core._run_measured("mma_step", A, B, C=C, beta=1, device=device)
    return result


def compare_steps(device: str, model: Model, rounds: int) -> Iterator[Compared]:
    """Compares `rounds` times SIDE * SIDE results of each kind of operands with the model."""
    for kind, make in KINDS.items():
        rng = np.random.default_rng((rounds, *map(ord, kind)))
        differing, first = 0, None
        for _ in range(rounds):
            operands = make(rng)
            found = step_products(operands, device)
            with emulated(model):
                expected = step_products(operands, "cpu")
            wrong = differs(found, expected)
            differing += int(wrong.sum())
            if first is None and wrong.any():
                first = _describe(operands, found, expected, wrong)
        yield Compared(kind, rounds * SIDE * SIDE, differing, first)


def differs(found: Float32, expected: Float32) -> NDArray[np.bool_]:
    """Where the bits differ. All NaN are equal: the result is recomputed in float32 then."""
    same_bits = found.view(np.uint32) == expected.view(np.uint32)
    differ: NDArray[np.bool_] = ~(same_bits | (np.isnan(found) & np.isnan(expected)))
    return differ


def _describe(
    operands: Operands, found: Float32, expected: Float32, wrong: NDArray[np.bool_]
) -> str:
    A, B, C = operands
    row, column = np.argwhere(wrong)[0]

    def halves(values: Float32) -> str:
        return " ".join(f"{bits:04x}" for bits in values.astype(np.float16).view(np.uint16))

    def single(matrix: Float32) -> str:
        return f"{matrix.view(np.uint32)[row, column]:08x}"

    return (
        f"A = {halves(A[row])}, B = {halves(B[:, column])} (fp16), C = {single(C)} (float32): "
        f"the device computes {single(found)}, the model {single(expected)}"
    )
