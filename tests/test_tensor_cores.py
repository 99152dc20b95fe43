"""Products by tensor cores: what the proof of their bound needs, and what they do with any input.

docs/inside/tensor_cores.md has the proof. The model in this file is its arithmetic, in NumPy. It
was compared with a tensor core of compute capability 9.0, bit by bit.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sgemm_kernels import run
from sgemm_kernels._accuracy import UNIT_ROUNDOFF, expect

from .support import LAYOUTS, Float32, printed_by, same_bits, uniform

Float64 = NDArray[np.float64]
CERTAIN, SHORTEST, STRETCH, SLOTS = 2.0**15, 256, 64, 32
EARLY = 4
"""After so many stretches a result that is certain stays so, and a tile may be given up."""
TILE = 128


class Tiling(NamedTuple):
    """Tiles of one size: the rung, and for how many multiprocessors it takes them for small C."""

    rung: str
    multiprocessors: int
    rows: int
    cols: int


TILINGS = {
    "mma": Tiling("mma", 1, TILE, TILE),
    "wgmma": Tiling("wgmma", 1, TILE, TILE),
    "waves-low": Tiling("waves", 4096, 64, TILE),
    "waves-wide": Tiling("waves", 1, TILE, 192),
}
SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"


@pytest.fixture(params=TILINGS)
def tiling(request, monkeypatch) -> Tiling:
    """Each size of tile in turn, which `waves` takes for a C of 150 x 140."""
    monkeypatch.setenv(SETTING, str(TILINGS[request.param].multiprocessors))
    return TILINGS[request.param]


@pytest.fixture
def multiply(tiling) -> Callable[..., Float32]:
    """A product of the CPU device, of any operands."""
    return lambda A, B, **others: run(tiling.rung, A, B, device="cpu", **others)


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


def sums_of_halves(A: Float32, B: Float32, F: int = 25, G: int = 16) -> Float64:
    """The product in scaled units, before it is certified, as it is after each stretch."""
    K = A.shape[1]
    a, b = scaled(A, 1), scaled(B, 0).T
    pad = [(0, 0), (0, -K % STRETCH)]
    (a_hi, a_lo), (b_hi, b_lo) = split(np.pad(a, pad)), split(np.pad(b, pad))

    def stretches(x: Float64) -> Float64:
        return x.reshape(len(x), -1, STRETCH).swapaxes(0, 1)

    a_hi, a_lo = (stretches(x)[:, :, None] for x in (a_hi, a_lo))
    b_hi, b_lo = (stretches(x)[:, None] for x in (b_hi, b_lo))
    parts = np.zeros((len(a_hi), A.shape[0], B.shape[1]))  # of each stretch
    depths = range(0, STRETCH, G)
    for d in reversed(depths):
        for x, y in ((a_lo, b_hi), (a_hi, b_lo)):
            parts = step(parts, x[..., d : d + G], y[..., d : d + G], F)
    for d in depths:
        parts = step(parts, a_hi[..., d : d + G], b_hi[..., d : d + G], F)
    # One after the other, each sum rounded to float32.
    return np.add.accumulate(parts.astype(np.float32), axis=0).astype(np.float64)


def by_halves(A: Float32, B: Float32, F: int = 25, G: int = 16) -> Float64:
    return sums_of_halves(A, B, F, G)[-1]


def are_certified(sums: Float64) -> NDArray[np.bool_]:
    """Of operands that are nowhere zero throughout a stretch."""
    return (np.abs(sums[[EARLY - 1, -1]]) >= CERTAIN).any(axis=0)


def certified(A: Float32, B: Float32) -> NDArray[np.bool_]:
    return are_certified(sums_of_halves(A, B))


Maker = Callable[[np.random.Generator, int], tuple[Float32, Float32]]


@functools.cache
def modelled(make: Maker, K: int) -> tuple[Float32, Float32, Float64]:
    """Operands and the sums of their halves, once for all tilings."""
    A, B = make(np.random.default_rng(20240229), K)
    return A, B, sums_of_halves(A, B)


def scaled_back(A: Float32, B: Float32, halves: Float64) -> Float32:
    """In the units of A and B, of which the first column and row have no zeros."""
    rows, cols = scaled(A, 1)[:, :1] / A[:, :1], scaled(B, 0)[:1] / B[:1]
    return (halves / (rows * cols)).astype(np.float32)


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
    # And a whole product: all of its terms but one, which is zero.
    K = SHORTEST
    A, B = np.full((1, K), 2.0**-39, np.float32), np.full((K, 1), 2 - 2.0**-20, np.float32)
    A[0, 0], B[0, 0] = 1.0, 0.0
    assert scaled(A, 1)[0, 1] * scaled(B, 0)[1, 0] * (K - 1) > 0.99 * K * 2.0**-10
    assert by_halves(A, B) == 0


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


def stretch_of_losses(F: int, G: int) -> tuple[Float32, Float32]:
    """A large term whose lo * lo is left out, and terms of which each step cuts off nearly all.

    All but the last of a step's keep one unit, 2**-F. They are one less than a multiple of a
    float32's last place, so that some of what they keep is cut off too.
    """
    A = np.full((1, STRETCH), (2 - 2.0**-10) * 2.0**-12)
    A[0, G - 1 :: G] = (1 - 2.0**-11) * 2.0**-12
    B = np.full((STRETCH, 1), 2.0 ** (12 - F))
    A[0, 0] = B[0, 0] = 1 + 2.0**-11
    return A.astype(np.float32), B.astype(np.float32)


@pytest.mark.parametrize(("F", "G", "R"), [(25, 16, 48.2), (24, 8, 88.4)], ids=["9.0", "8.0"])
def test_a_stretch_loses_what_the_proof_says(F, G, R, rng):
    """At most R units; half of them are reached."""

    def units(A: Float32, B: Float32) -> float:
        a, b = scaled(A, 1), scaled(B, 0)
        allowed = np.abs(a) @ np.abs(b) * U
        return float((np.abs(by_halves(A, B, F, G) - a @ b) / allowed).max())

    assert R / 2 < units(*stretch_of_losses(F, G)) < R
    for _ in range(20):
        A = np.ldexp(np.abs(normal(rng, 8, STRETCH)), rng.integers(-14, 1, (8, STRETCH)))
        A[:, 0] = 1.0
        B = np.ldexp(np.abs(normal(rng, STRETCH, 8)), rng.integers(-10, 1, (STRETCH, 8)))
        assert 1 < units(A.astype(np.float32), B.astype(np.float32)) < R


def test_each_promotion_rounds_off_a_unit(multiply):
    """After the first stretch each has half a unit of the sum's last place, and adds nothing."""
    stretches = 16
    A = np.ones((1, stretches * STRETCH), np.float32)
    B = np.zeros((A.shape[1], 1), np.float32)
    B[0], B[STRETCH::STRETCH] = 1.0, U
    lost = stretches - 1
    assert A.astype(np.float64) @ B == 1 + lost * U
    assert lost > (stretches + 1) / 2
    assert multiply(A, B) == by_halves(A, B) * 2.0**-28 == 1


def test_a_subnormal_half_counts_as_the_least_normal_exponent():
    """So that a step may lose more than its magnitudes' share, but no more than 2**-20."""
    a, b = np.full((1, 16), 2.0**-24), np.full((1, 16), 2.0**-3)
    a[0, 1:] = 2.0**-14  # with the first product as the largest exponent the others are cut off
    b[0, 0], b[0, 1:] = 2.0**15, 2.0**-11 * (2 - 2.0**-10)
    lost = (a * b).sum() - step(np.zeros(1), a, b)
    assert lost[0] > 8 * U * (a * b).sum()
    assert lost[0] < 2.0**-20


def test_the_terms_of_the_proof_add_up():
    """Cut off and rounded in each step of a stretch, the factors, and the sums of stretches."""
    for steps in (4, 8):  # of the large products of a stretch: 16 or 8 of them at a time
        left = 2.0**-10 * (1 + 2.0**-11)  # by the small products
        small = 2 * steps * (8 + 2) * left
        stretch = (8 + 2) * steps * ((1 + 2.0**-11) ** 2 + left) + small + 8 + 8 * U
        assert stretch < {4: 48.2, 8: 88.4}[steps]
        for K in (SHORTEST, 1000, 2**20, 2**23, 2**24 - 4):
            x, r = K * U, (stretch + -(-K // STRETCH)) * U
            small = K * 2.0**-10 + -(-K // STRETCH) * 3 * steps * 2.0**-20  # factors, and halves
            least = (CERTAIN - small) / (1 + r)  # of the sum of magnitudes
            assert small + r * least <= x / (1 - x) * least
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


def underflowing(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Where halves of A are not zero B is; where B is not, they are, though A is not."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, 64:] = np.ldexp(np.abs(A[:, 64:]), -60)  # of no sign that a half would keep
    B[:64] = 0.0
    return A, B


def infinite_beside_zeros(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """Not finite where A is zero in whole stretches of K, and late, when tiles may be marked."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, :128], B[70, 5], B[80, 135] = 0.0, np.inf, np.nan
    A[:128, K - 1 :] = -np.inf
    A[128:] = 0.0
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
    "halves that underflow": underflowing,
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


@pytest.mark.parametrize(
    ("tiling", "K"),
    [
        *[("mma", 256), ("mma", 257), ("mma", 700)],
        *[("wgmma", 700), ("waves-low", 300), ("waves-wide", 600)],
    ],
    indirect=["tiling"],
)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_every_input_is_within_the_bound(name, tiling, K, multiply, rng):
    A, B = INPUTS[name](rng, K)
    C = normal(rng, 150, 140)
    plain = multiply(A, B)
    assert expect(A, B).worst_share(plain) <= 1
    alpha, beta = float(rng.uniform(-2, 2)), float(rng.uniform(-2, 2))
    updated = multiply(A, B, C=C, alpha=alpha, beta=beta)
    assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(updated) <= 1


@pytest.mark.parametrize("name", INPUTS)
def test_products_of_warpgroups_have_the_bits_of_mma(name, rng, monkeypatch):
    """Whatever the tiles, but for what fails: whether by slots or by tiles depends on them."""
    A, B = INPUTS[name](rng, 300)
    expected = run("mma", A, B, device="cpu")
    assert same_bits(run("wgmma", A, B, device="cpu"), expected)
    if name in ("normal", "positive", "softmax"):
        assert certified(A, B).all()
        for multiprocessors in (1, 4, 4096):
            monkeypatch.setenv(SETTING, str(multiprocessors))
            assert same_bits(run("waves", A, B, device="cpu"), expected)


@pytest.mark.parametrize(
    ("multiprocessors", "rows", "cols"), [(1, 128, 140), (4, 128, 128), (4096, 64, 128)]
)
def test_waves_takes_tiles_by_their_number(multiprocessors, rows, cols, rng, monkeypatch):
    """Of 150 x 140 results: few tiles for few multiprocessors. One that fails shows its size."""
    A, B = normal(rng, 150, 512), normal(rng, 512, 140)
    A[:8, :256] *= np.float32(2.0**-30)
    B[256:, :8] *= np.float32(2.0**-30)
    monkeypatch.setenv(SETTING, str(multiprocessors))
    by_tile = run("waves", A, B, device="cpu") == run("raster", A, B, device="cpu")
    assert by_tile[:rows, :cols].all()
    assert by_tile[rows:].mean() < 0.5
    assert cols == 140 or by_tile[:, cols:].mean() < 0.5


@pytest.mark.parametrize("K", [0, 1, 63, 255, 256, 300])
def test_edges_of_tiles_of_every_size(tiling, K, multiply, rng):
    for M, N in ((1, 1), (63, 129), (65, 127), (128, 191), (129, 192), (127, 193)):
        A, B, C = normal(rng, M, K), normal(rng, K, N), normal(rng, M, N)
        assert expect(A, B).worst_share(multiply(A, B)) <= 1
        if K == 300:
            result = multiply(A, B, C=C, beta=-1.5)
            assert expect(A, B, C=C, beta=-1.5).worst_share(result) <= 1


@pytest.mark.parametrize("name", ["normal", "blocks of 2**-30", "one row and one column of them"])
def test_bits_are_the_same_whatever_the_layout_and_whenever(name, multiply, rng):
    """Certified results, whole tiles and single places in float32 are the same each time."""
    A, B = INPUTS[name](rng, 300)
    C = normal(rng, 150, 140)
    first = multiply(A, B, C=C, beta=0.5)
    for layout in ("C", "C with padded rows", "C, 1 element on", "F", "F with padded columns"):
        placed = [LAYOUTS[layout].place(X).matrix for X in (A, B)]
        again = multiply(*placed, C=C, beta=0.5)
        if name == "normal":
            assert same_bits(again, first), layout
        assert expect(A, B, C=C, beta=0.5).worst_share(again) <= 1
    out = C.copy()
    assert multiply(A, B, C=out, beta=0.5, out=out) is out
    assert same_bits(out, first)


@pytest.mark.parametrize("name", ["blocks of 2**-30", "one row and one column of them"])
def test_what_fails_is_computed_in_float32(name, tiling, multiply):
    """Halves alone would be beyond the bound here, so what is within it was computed anew."""
    A, B, sums = modelled(INPUTS[name], 512)
    failing = ~are_certified(sums)
    beyond = share_of_bound(A, B, sums[-1]) > 1
    assert (failing | ~beyond).all(), "what is certified is within the bound"
    in_tiles = {
        (row, col): failing[row : row + tiling.rows, col : col + tiling.cols].sum()
        for row in range(0, 150, tiling.rows)
        for col in range(0, 140, tiling.cols)
    }
    if name == "blocks of 2**-30":
        assert beyond.any()
        assert min(in_tiles.values()) > SLOTS, "the tiles are marked"
    else:
        assert beyond[77, 99]
        assert max(in_tiles.values()) <= SLOTS, "the place is in a slot"
    expected = expect(A, B)
    result = multiply(A, B)
    assert expected.worst_share(result) <= 1
    C = np.full(result.shape, 3.0, np.float32)
    for beta in (1.0, -2.0):  # once, for those that came through a slot or a marked tile too
        updated = multiply(A, B, C=C, beta=beta)
        assert expect(A, B, C=C, beta=beta).worst_share(updated) <= 1


def test_certified_results_are_those_of_the_model(multiply, rng):
    A, B = normal(rng, 20, 300), normal(rng, 300, 24)
    certain = certified(A, B)
    assert certain.mean() > 0.99
    halves = scaled_back(A, B, by_halves(A, B))
    assert same_bits(multiply(A, B)[certain], halves[certain])


def test_what_was_certain_early_is_stored_whatever_becomes_of_it(multiply):
    """Large sums after 256 of K, of which the rest leaves next to nothing."""
    A, B, sums = modelled(cancelling, 512)
    early = np.abs(sums[EARLY - 1]) >= CERTAIN
    assert early.mean() > 0.99
    assert (np.abs(sums[-1]) < CERTAIN).mean() > 0.99, "at the end nearly all would fail"
    assert share_of_bound(A, B, sums[-1])[early].max() < 1
    result = multiply(A, B)
    assert same_bits(result[early], scaled_back(A, B, sums[-1])[early])
    assert expect(A, B).worst_share(result) <= 1


def test_an_early_certificate_holds_for_what_is_lost_later(multiply):
    """The least sum that certifies, and then small factors alone, of which halves keep nothing."""
    A, B = np.zeros((1, 2048), np.float32), np.zeros((2048, 1), np.float32)
    A[0, 0], B[0] = 2.0**14, 2.0
    B[1] = 2.0**15 - 2.0**-8  # where A is zero: the units are 1
    A[0, STRETCH * EARLY :], B[STRETCH * EARLY :] = 2.0**-25, 2.0**15 - 2.0**-8
    for stretch in range(1, EARLY):  # so that there are four stretches with products
        A[0, STRETCH * stretch] = B[STRETCH * stretch] = 2.0**-20
    halves = by_halves(A, B)
    assert abs(halves - CERTAIN) < 1
    assert 0.4 < share_of_bound(A, B, halves) < 1
    assert multiply(A, B) == halves


def small_at_first(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """All terms are small up to 384 of K, though no line is."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, 256:384] *= np.float32(2.0**-30)
    B[:256] *= np.float32(2.0**-30)
    return A, B


def small_throughout(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    A, B = small_at_first(rng, K)
    A[:, 384:] *= np.float32(2.0**-30)
    return A, B


@pytest.mark.parametrize("make", [small_at_first, small_throughout])
def test_what_is_small_early_is_given_up(make, multiply):
    """With no look at what it becomes: most results of a tile, which is computed in float32."""
    A, B, sums = modelled(make, 512)
    assert (np.abs(sums[EARLY - 1]) < CERTAIN).mean() > 0.99
    assert (np.abs(sums[-1]) < CERTAIN).mean() > 0.99 or make is small_at_first
    result = multiply(A, B)
    assert same_bits(result, run("raster", A, B, device="cpu"))
    assert expect(A, B).worst_share(result) <= 1


@pytest.mark.parametrize("layouts", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_tiles_that_fall_back_have_the_bits_of_raster_in_every_layout(layouts, beta, multiply, rng):
    A, B, C = normal(rng, 150, 417), normal(rng, 417, 140), normal(rng, 150, 140)
    A[:, ::2] *= np.float32(2.0**-30)
    B[1::2] *= np.float32(2.0**-30)
    A, B = np.array(A, order=layouts[0]), np.array(B, order=layouts[1])
    others = {"C": C, "alpha": 0.7, "beta": beta} if beta else {}
    assert same_bits(multiply(A, B, **others), run("raster", A, B, device="cpu", **others))


@pytest.mark.parametrize("positive", [False, True])
def test_a_million_terms_are_within_the_bound(positive, rng):
    """Of the model, since as many take minutes by the CPU device."""
    A, B = normal(rng, 2, 10**6), normal(rng, 10**6, 2)
    if positive:
        A, B = np.abs(A), np.abs(B)
    halves = by_halves(A, B)
    assert (np.abs(halves) >= CERTAIN).all()
    assert share_of_bound(A, B, halves).max() < 0.01


@pytest.mark.parametrize("name", ["mma", "waves"])
def test_lines_in_halves_need_memory_or_raise(name):
    """A thin operand takes as much as one of 128 lines, here 2 GB."""
    pytest.importorskip("resource")
    code = f"""
import resource
import numpy as np
import sgemm_kernels as sk

A, B = np.ones((1, 2**22), np.float32), np.ones((2**22, 1), np.float32)
B[1:] = 0
with open("/proc/self/statm") as sizes:
    now = int(sizes.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, resource.RLIM_INFINITY))
try:
    sk.run({name!r}, A, B, device="cpu")
except MemoryError as error:
    print(error)
print(sk.run({name!r}, A[:, :300], B[:300], device="cpu")[0, 0])
"""
    few = {"OPENBLAS_NUM_THREADS": "1", "SGEMM_KERNELS_THREADS": "2"}
    said, right = printed_by(code, **few).splitlines()
    assert "no memory for 4" in said
    assert right == "1.0"


def test_more_halves_than_any_memory_has():
    """An operand of one element, seen as many, takes none itself."""
    code = """
import numpy as np
import sgemm_kernels as sk

one = np.float32(1)
for K in (2**37, 2**40):
    A, B = np.broadcast_to(one, (1, K)), np.broadcast_to(one, (K, 1))
    try:
        sk.run("mma", A, B, device="cpu")
    except MemoryError as error:
        print(error)
"""
    assert printed_by(code).splitlines() == 2 * ["no memory for more than 70 TB of fp16 pairs"]


def test_many_slots_of_one_tile(multiply, rng):
    """As many as there are, one less, one more: the last has the tile computed anew."""
    for count in (SLOTS - 1, SLOTS, SLOTS + 1):
        A, B = normal(rng, 64, 512), normal(rng, 512, 64)
        A[5, :256] *= np.float32(2.0**-30)
        B[256:, :count] *= np.float32(2.0**-30)
        failing = (~certified(A, B)).sum()
        assert count <= failing <= count + 3
        C = uniform(rng, 64, 64)
        result = multiply(A, B, C=C, beta=2.0)
        assert expect(A, B, C=C, beta=2.0).worst_share(result) <= 1


@pytest.mark.parametrize("count", [SLOTS - 1, SLOTS, SLOTS + 1])
def test_exactly_so_many_slots(count, multiply):
    """Of sums of ones, so many of which are zero."""
    A, B = np.ones((1, 256), np.float32), np.ones((256, TILE), np.float32)
    B[1, :count] = -255.0
    C = np.full((1, TILE), 7, np.float32)
    result = multiply(A, B, C=C, beta=-1.0)
    assert (result == np.where(np.arange(TILE) < count, -7, 249)).all()


def test_short_sums_are_those_of_float32(multiply, rng):
    A, B = uniform(rng, 70, SHORTEST - 1), uniform(rng, SHORTEST - 1, 50)
    assert same_bits(multiply(A, B), run("splitk", A, B, device="cpu"))
