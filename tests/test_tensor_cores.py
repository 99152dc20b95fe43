"""Products by tensor cores: what the proof of their bound needs, and what they do with any input.

docs/tensor_cores.md has the proof. The model of this file is its arithmetic, in NumPy: what a
tensor core of compute capability 9.0 does was found on one, bit by bit.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from sgemm_kernels import run
from sgemm_kernels._accuracy import UNIT_ROUNDOFF, expect

from .support import LAYOUTS, Float32, same_bits, uniform

Float64 = NDArray[np.float64]
CERTAIN, SHORTEST, STRETCH, SLOTS = 2.0**15, 256, 64, 32
TILE = 128


# ------------------------------------------------------------------ the model


def scaled(X: Float32, axis: int) -> Float64:
    """Lines of X, which run along `axis`, times powers of two: magnitudes below 2**15."""
    largest = np.abs(X.astype(np.float64)).max(axis=axis, keepdims=True)
    exponent = np.frexp(np.where(largest > 0, largest, 1.0))[1] - 1
    return np.ldexp(X.astype(np.float64), 14 - exponent)


def split(x: Float64) -> tuple[Float64, Float64]:
    hi = x.astype(np.float16).astype(np.float64)
    return hi, (x - hi).astype(np.float16).astype(np.float64)


def exponents(x: Float64) -> NDArray[np.int64]:
    """Of zero, a very small one; of a half that is subnormal, that of the smallest normal one."""
    return np.where(x == 0, -1000, np.frexp(x)[1] - 1)


def step(s: Float64, a: Float64, b: Float64, F: int = 25) -> Float64:
    """s + the sum over the last axis of a * b, as one sum of the tensor core's, of 16 products."""
    e = np.where(
        (a == 0) | (b == 0), -1000, np.maximum(exponents(a), -14) + np.maximum(exponents(b), -14)
    )
    top = np.maximum(e.max(axis=-1), exponents(s))
    unit = np.ldexp(1.0, np.maximum(top, -900) - F)
    exact = np.trunc(a * b / unit[..., None]).sum(axis=-1) + np.trunc(s / unit)
    total = exact * unit
    ulp = np.ldexp(1.0, np.maximum(exponents(total), -900) - 23)
    return np.trunc(total / ulp) * ulp


def by_halves(A: Float32, B: Float32, F: int = 25, G: int = 16) -> Float64:
    """The product in scaled units, before it is certified."""
    K = A.shape[1]
    a, b = scaled(A, 1), scaled(B, 0).T
    pad = [(0, 0), (0, -K % STRETCH)]
    (a_hi, a_lo), (b_hi, b_lo) = split(np.pad(a, pad)), split(np.pad(b, pad))
    total = np.zeros((A.shape[0], B.shape[1]), np.float32)
    for begin in range(0, a_hi.shape[1], STRETCH):
        part = np.zeros(total.shape)
        depths = range(begin, begin + STRETCH, G)
        for d in reversed(depths):
            for x, y in ((a_lo, b_hi), (a_hi, b_lo)):
                part = step(part, x[:, None, d : d + G], y[None, :, d : d + G], F)
        for d in depths:
            part = step(part, a_hi[:, None, d : d + G], b_hi[None, :, d : d + G], F)
        total = total + part.astype(np.float32)
    return total.astype(np.float64)


def share_of_bound(A: Float32, B: Float32, result: Float64) -> Float64:
    """The error of a product in scaled units, as a share of what is allowed."""
    a, b = scaled(A, 1), scaled(B, 0)
    x = A.shape[1] * UNIT_ROUNDOFF
    return np.abs(result - a @ b) / np.maximum(x / (1 - x) * (np.abs(a) @ np.abs(b)), 1e-300)


def normal(rng: np.random.Generator, *shape: int) -> Float32:
    return rng.standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------------ each constant of the proof

U = UNIT_ROUNDOFF


def test_two_halves_keep_all_but_two_units_of_a_factor(rng):
    x = np.float64(np.float32(1 + 2.0**-11 - 2.0**-23))
    hi, lo = split(x)
    assert abs(x - hi - lo) / x > 1.99 * U
    many = scaled(normal(rng, 1, 100_000), 1)
    many = many[np.abs(many) >= 0.25]
    hi, lo = split(many)
    assert (np.abs(many - hi - lo) <= 2 * U * np.abs(many)).all()
    assert (np.abs(lo) <= 2.0**-11 * np.abs(many)).all()


def test_the_product_that_is_left_out_is_four_units():
    x = np.float64(1 + 2.0**-11)
    _, lo = split(x)
    assert lo**2 / x**2 > 3.9 * U


def test_small_factors_lose_up_to_the_absolute_share():
    large, small = np.float64(2.0**15 - 2.0**-8), np.float64(2.0**-25)
    hi, lo = split(small)
    assert hi == 0
    assert lo == 0
    assert large * small > 0.99 * 2.0**-10
    every = np.ldexp(np.arange(2**12, dtype=np.float64), -38)
    hi, lo = split(every)
    assert np.abs(every - hi - lo).max() <= 2.0**-25


@pytest.mark.parametrize(("F", "G"), [(25, 16), (24, 8)], ids=["9.0", "8.0"])
def test_a_step_cuts_off_eight_units(F, G):
    """All but the sum so far lie just below what is kept, and are cut off."""
    b = np.full((1, G), 2.0**-12)
    a = np.full((1, G), (2 - 2.0**-10) * 2.0 ** -(F - 11))
    after = step(np.ones(1), -a, b, F)
    assert after == 1  # but for what was cut off, less
    assert (a * b).sum() > 7.9 * U


def test_a_step_rounds_off_two_units():
    a, b = np.zeros((1, 16)), np.zeros((1, 16))
    a[0, 0] = b[0, 0] = 1.0
    a[0, 1], b[0, 1] = 2.0**-12, (2 - 2.0**-10) * 2.0**-12
    exact = (a * b).sum()
    assert (exact - step(np.zeros(1), a, b)) / exact > 1.9 * U


def test_a_stretch_stays_within_what_the_proof_says(rng):
    """48.2 units with 16 products a step; small products first."""
    worst = 0.0
    for _ in range(40):
        A = np.ldexp(np.abs(normal(rng, 8, STRETCH)), rng.integers(-14, 1, (8, STRETCH)))
        A[:, 0] = 1.0
        B = np.ldexp(np.abs(normal(rng, STRETCH, 8)), rng.integers(-10, 1, (STRETCH, 8)))
        A, B = A.astype(np.float32), B.astype(np.float32)
        a, b = scaled(A, 1), scaled(B, 0)
        allowed = np.abs(a) @ np.abs(b)
        worst = max(worst, (np.abs(by_halves(A, B) - a @ b) / allowed).max() / U)
    assert 1 < worst < 48.2


def test_the_terms_of_the_proof_add_up():
    """Cut off and rounded in each step of a stretch, the factors, and the sums of stretches."""
    for steps in (4, 8):  # of the large products of a stretch: 16 or 8 of them at a time
        small = 2 * steps * (8 + 2) * 2.0**-10 * (1 + 2.0**-11)
        stretch = (8 + 2) * steps * (1 + 2.0**-11) ** 2 + small + 8 + 8 * U
        for K in (SHORTEST, 1000, 2**20, 2**23, 2**24 - 4):
            x, r = K * U, (stretch + -(-K // STRETCH)) * U
            least = (CERTAIN - K * 2.0**-10) / (1 + r)  # of the sum of magnitudes
            assert K * 2.0**-10 + r * least <= x / (1 - x) * least
    assert stretch + 4 > SHORTEST / 3, "for shorter sums it would not be true everywhere"


# ---------------------------------------------------------------- any input, within README's bound


def blocks(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Each term is small, though neither a row nor a column is."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :] *= np.float32(2.0**-30)
    return A, B


def one_small(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Such a row and such a column, which meet in one result."""
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
    """Large sums that leave next to nothing: the first half of K against the second."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    half = K // 2
    A[:, half : 2 * half] = A[:, :half]
    B[half : 2 * half] = -B[:half] * np.float32(1 + 2.0**-22)
    return A, B


def wide(rng: np.random.Generator, *shape: int) -> Float32:
    return np.ldexp(normal(rng, *shape), rng.integers(-30, 30, shape)).astype(np.float32)


def softmax(rng: np.random.Generator, *shape: int) -> Float32:
    x = np.exp(3 * normal(rng, *shape))
    return (x / x.sum(axis=1, keepdims=True)).astype(np.float32)


def banded(X: Float32) -> Float32:
    return np.triu(np.tril(X, 9), -9)


INPUTS = {
    "normal": lambda rng, K: (normal(rng, 150, K), normal(rng, K, 140)),
    "positive": lambda rng, K: (np.abs(normal(rng, 150, K)), np.abs(normal(rng, K, 140))),
    "NaN, infinities, zeros": with_special,
    "blocks of 2**-30": blocks,
    "one row and one column of them": one_small,
    "cancelling": cancelling,
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


@pytest.mark.parametrize("K", [256, 257, 700])
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_every_input_is_within_the_bound(name, K, rng):
    A, B = INPUTS[name](rng, K)
    C = normal(rng, 150, 140)
    plain = run("mma", A, B, device="cpu")
    assert expect(A, B).worst_share(plain) <= 1
    alpha, beta = float(rng.uniform(-2, 2)), float(rng.uniform(-2, 2))
    updated = run("mma", A, B, C=C, alpha=alpha, beta=beta, device="cpu")
    assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(updated) <= 1


@pytest.mark.parametrize("name", ["normal", "blocks of 2**-30", "one row and one column of them"])
def test_bits_are_the_same_whatever_the_layout_and_whenever(name, rng):
    """Certified results, whole tiles and single places in float32 are the same each time."""
    A, B = INPUTS[name](rng, 300)
    C = normal(rng, 150, 140)
    first = run("mma", A, B, C=C, beta=0.5, device="cpu")
    for layout in ("C", "C with padded rows", "C, 1 element on", "F", "F with padded columns"):
        placed = [LAYOUTS[layout].place(X).matrix for X in (A, B)]
        again = run("mma", *placed, C=C, beta=0.5, device="cpu")
        if name == "normal":
            assert same_bits(again, first), layout
        assert expect(A, B, C=C, beta=0.5).worst_share(again) <= 1
    out = C.copy()
    assert run("mma", A, B, C=out, beta=0.5, out=out, device="cpu") is out
    assert same_bits(out, first)


@pytest.mark.parametrize("name", ["blocks of 2**-30", "one row and one column of them"])
def test_what_fails_is_computed_in_float32(name, rng):
    """Halves alone would be beyond the bound here, so what is within it was computed anew."""
    A, B = INPUTS[name](rng, 512)
    halves = by_halves(A, B)
    failing = np.abs(halves) < CERTAIN
    beyond = share_of_bound(A, B, halves) > 1
    assert (failing | ~beyond).all(), "what is certified is within the bound"
    in_first_tile = failing[:TILE, :TILE].sum()
    if name == "blocks of 2**-30":
        assert beyond.any()
        assert in_first_tile > SLOTS, "the tile is marked"
    else:
        assert beyond[77, 99]
        assert 1 <= in_first_tile <= SLOTS, "the place is in a slot"
    expected = expect(A, B)
    result = run("mma", A, B, device="cpu")
    assert expected.worst_share(result) <= 1
    C = np.full(result.shape, 3.0, np.float32)
    for beta in (1.0, -2.0):  # once, for those that came through a slot or a marked tile too
        share = expect(A, B, C=C, beta=beta).worst_share(
            run("mma", A, B, C=C, beta=beta, device="cpu")
        )
        assert share <= 1


def test_certified_results_are_those_of_the_model(rng):
    A, B = normal(rng, 20, 300), normal(rng, 300, 24)
    halves = by_halves(A, B)
    certain = np.abs(halves) >= CERTAIN
    assert certain.mean() > 0.99
    units = (
        scaled(A, 1)[:, :1]
        / A[:, :1].astype(np.float64)
        * (scaled(B, 0)[:1] / B[:1].astype(np.float64))
    )
    result = run("mma", A, B, device="cpu")
    assert same_bits(result[certain], (halves / units).astype(np.float32)[certain])


def test_many_slots_of_one_tile(rng):
    """As many as there are, one less, one more: the last has the tile computed anew."""
    for count in (SLOTS - 1, SLOTS, SLOTS + 1):
        A, B = normal(rng, 64, 512), normal(rng, 512, 64)
        A[5, :256] *= np.float32(2.0**-30)
        B[256:, :count] *= np.float32(2.0**-30)
        failing = (np.abs(by_halves(A, B)) < CERTAIN).sum()
        assert count <= failing <= count + 3
        C = uniform(rng, 64, 64)
        result = run("mma", A, B, C=C, beta=2.0, device="cpu")
        assert expect(A, B, C=C, beta=2.0).worst_share(result) <= 1


def test_short_sums_are_those_of_float32(rng):
    A, B = uniform(rng, 70, SHORTEST - 1), uniform(rng, SHORTEST - 1, 50)
    assert same_bits(run("mma", A, B, device="cpu"), run("splitk", A, B, device="cpu"))
