"""Products on tensor cores: the constants of the error bound's proof, and results for any input.

docs/inside/tensor_cores.md has the proof. The model in this file does its arithmetic in NumPy.
It was compared bit by bit with a tensor core of compute capability 9.0.
"""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from sgemm_kernels import run
from sgemm_kernels._accuracy import UNIT_ROUNDOFF, expect
from sgemm_kernels.proving.hard_cases import INPUTS, cancelling, chunk_of_losses, normal

from .support import LAYOUTS, Float32, printed_by, same_bits, sampled, uniform

Float64 = NDArray[np.float64]
CERTAIN, CHUNK, SLOTS = 2.0**15, 64, 32
SHORTEST = {"mma": 256, "wgmma": 128, "waves": 128, "fused": 128}
"""The least K that each rung computes on tensor cores."""
EARLY = 4
"""After this many K chunks, results pass the early check or their tile falls back to fp32."""
TILE = 128


class TileSize(NamedTuple):
    """A tile size: its rung, and a number of multiprocessors for which the rung uses it for small
    C."""

    rung: str
    multiprocessors: int
    rows: int
    cols: int


TILE_SIZES = {
    "mma": TileSize("mma", 1, TILE, TILE),
    "wgmma": TileSize("wgmma", 1, TILE, TILE),
    "waves-low": TileSize("waves", 4096, 64, TILE),
    "waves-wide": TileSize("waves", 1, TILE, 192),
    "fused": TileSize("fused", 1, TILE, TILE),
    "fused-narrow": TileSize("fused", 6, TILE, 64),
    "fused-slices": TileSize("fused", 4096, 64, 64),
}
CHECK_EARLY = [name for name, size in TILE_SIZES.items() if size.rung != "fused"]
IN_ONE_SLICE = [*CHECK_EARLY, "fused"]
"""Tile sizes of the rungs that have an early check, and those that never divide K."""
SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"


@pytest.fixture(params=TILE_SIZES)
def tile_size(request, monkeypatch) -> TileSize:
    """Each tile size; `waves` uses it for a C of 150 x 140."""
    monkeypatch.setenv(SETTING, str(TILE_SIZES[request.param].multiprocessors))
    return TILE_SIZES[request.param]


@pytest.fixture
def multiply(tile_size) -> Callable[..., Float32]:
    """A product of any operands on the CPU device."""
    return lambda A, B, **others: run(tile_size.rung, A, B, device="cpu", **others)


# ------------------------------------------------------------------ the model


def scaled(X: Float32, axis: int) -> Float64:
    """X with each row (axis 1) or column (axis 0) scaled by a power of two to magnitudes below
    2**15."""
    largest = np.abs(X.astype(np.float64)).max(axis=axis, keepdims=True)
    exponent = np.frexp(np.where(largest > 0, largest, 1.0))[1] - 1
    return np.ldexp(X.astype(np.float64), 14 - exponent)


def split(x: Float64) -> tuple[Float64, Float64]:
    hi = x.astype(np.float16).astype(np.float64)
    return hi, (x - hi).astype(np.float16).astype(np.float64)


def exponents(x: Float64) -> NDArray[np.int64]:
    """Exponents of the elements; a very small one for zero."""
    return np.where(x == 0, -1000, np.frexp(x)[1] - 1)


def step(s: Float64, a: Float64, b: Float64, F: int = 25) -> Float64:
    """One sum of a tensor core: s + the sum of the 16 products a * b along the last axis."""
    e = np.where(
        (a == 0) | (b == 0), -1000, np.maximum(exponents(a), -14) + np.maximum(exponents(b), -14)
    )
    top = np.maximum(e.max(axis=-1), exponents(s))
    unit = np.ldexp(1.0, np.maximum(top, -900) - F)
    exact = np.trunc(a * b / unit[..., None]).sum(axis=-1) + np.trunc(s / unit)
    total = exact * unit
    ulp = np.ldexp(1.0, np.maximum(exponents(total), -900) - 23)
    return np.trunc(total / ulp) * ulp


def chunked(X: Float64) -> Float64:
    """[K chunk][row][element] of a matrix of rows along K, padded with zeros."""
    whole = np.pad(X, [(0, 0), (0, -X.shape[1] % CHUNK)])
    return whole.reshape(len(X), -1, CHUNK).swapaxes(0, 1)


def chunk_products(a: Float64, b: Float64, F: int = 25, G: int = 16) -> Float64:
    """The products of chunks of scaled rows and columns, one for each K chunk."""
    (a_hi, a_lo), (b_hi, b_lo) = split(a[:, :, None]), split(b[:, None])
    parts = np.zeros((len(a), a.shape[1], b.shape[1]))
    depths = range(0, CHUNK, G)
    for d in reversed(depths):
        for x, y in ((a_lo, b_hi), (a_hi, b_lo)):
            parts = step(parts, x[..., d : d + G], y[..., d : d + G], F)
    for d in depths:
        parts = step(parts, a_hi[..., d : d + G], b_hi[..., d : d + G], F)
    return parts


def split_fp16_sums(A: Float32, B: Float32, F: int = 25, G: int = 16) -> Float64:
    """The scaled product after each K chunk, before the error check."""
    parts = chunk_products(chunked(scaled(A, 1)), chunked(scaled(B, 0).T), F, G)
    # Chunks are added in order; each sum is rounded to float32.
    return np.add.accumulate(parts.astype(np.float32), axis=0).astype(np.float64)


def split_fp16(A: Float32, B: Float32, F: int = 25, G: int = 16) -> Float64:
    return split_fp16_sums(A, B, F, G)[-1]


class FusedModel(NamedTuple):
    """Sums of `fused`, in units of A and of the scaled B, and what each row must reach to pass."""

    sums: Float32
    least: Float64


def fused_model(A: Float32, B: Float32, slices: int = 1) -> FusedModel:
    """Each row of A has a scale for each K chunk, which is undone when the chunk is added."""
    a = chunked(A.astype(np.float64))
    largest = np.abs(a).max(axis=-1, keepdims=True)
    exponent = np.maximum(np.frexp(largest)[1] - 1, -111)
    inverse = np.ldexp(1.0, exponent - 14)
    parts = chunk_products(a / inverse, chunked(scaled(B, 0).T)) * inverse
    bounds = [len(a) * i // slices for i in range(slices + 1)]
    of_slices = [
        np.add.accumulate(parts[begin:end].astype(np.float32), axis=0)[-1]
        for begin, end in itertools.pairwise(bounds)
    ]
    sums = np.add.accumulate(np.array(of_slices), axis=0)[-1]
    mean = (inverse.sum(axis=0) * CHUNK / A.shape[1])[:, 0]
    return FusedModel(sums, CERTAIN * 2.0 ** np.ceil(np.log2(mean))[:, None])


def sums_pass(sums: Float64) -> NDArray[np.bool_]:
    """True where a result passes the check, for operands without all-zero K chunks."""
    return (np.abs(sums[[EARLY - 1, -1]]) >= CERTAIN).any(axis=0)


def passes_check(A: Float32, B: Float32) -> NDArray[np.bool_]:
    return sums_pass(split_fp16_sums(A, B))


Maker = Callable[[np.random.Generator, int], tuple[Float32, Float32]]


@functools.cache
def modelled(make: Maker, K: int) -> tuple[Float32, Float32, Float64]:
    """Operands and their split-fp16 sums, computed once for all tile sizes."""
    A, B = make(np.random.default_rng(20240229), K)
    return A, B, split_fp16_sums(A, B)


def scaled_back(A: Float32, B: Float32, pairs: Float64) -> Float32:
    """The product in the units of A and B. Their first column and row must not contain zeros."""
    rows, cols = scaled(A, 1)[:, :1] / A[:, :1], scaled(B, 0)[:1] / B[:1]
    return (pairs / (rows * cols)).astype(np.float32)


def share_of_bound(A: Float32, B: Float32, result: Float64) -> Float64:
    """The error of a scaled product, as a share of the allowed error."""
    a, b = scaled(A, 1), scaled(B, 0)
    x = A.shape[1] * UNIT_ROUNDOFF
    return np.abs(result - a @ b) / np.maximum(x / (1 - x) * (np.abs(a) @ np.abs(b)), 1e-300)


# ------------------------------------------------------------------ each constant of the proof

U = UNIT_ROUNDOFF


def test_an_fp16_pair_loses_at_most_two_units_of_a_factor(rng):
    x = np.float64(np.float32(1 + 2.0**-11 - 2.0**-23))
    hi, lo = split(x)
    assert abs(x - hi - lo) / x > 1.99 * U
    many = scaled(normal(rng, 1, 100_000), 1)
    many = many[np.abs(many) >= 0.25]
    hi, lo = split(many)
    assert (np.abs(many - hi - lo) <= 2 * U * np.abs(many)).all()
    assert (np.abs(lo) <= 2.0**-11 * np.abs(many)).all()


def test_the_omitted_product_is_four_units():
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
    # A whole product: every term is this small but one, which is zero.
    K = min(SHORTEST.values())
    A, B = np.full((1, K), 2.0**-39, np.float32), np.full((K, 1), 2 - 2.0**-20, np.float32)
    A[0, 0], B[0, 0] = 1.0, 0.0
    assert scaled(A, 1)[0, 1] * scaled(B, 0)[1, 0] * (K - 1) > 0.99 * K * 2.0**-10
    assert split_fp16(A, B) == 0


@pytest.mark.parametrize(("F", "G"), [(25, 16), (24, 8)], ids=["9.0", "8.0"])
def test_a_step_cuts_off_eight_units(F, G):
    """All terms but the sum so far are just too small to be kept, and are cut off."""
    b = np.full((1, G), 2.0**-12)
    a = np.full((1, G), (2 - 2.0**-10) * 2.0 ** -(F - 11))
    after = step(np.ones(1), -a, b, F)
    assert after == 1  # less by the terms that were cut off
    assert (a * b).sum() > 7.9 * U


def test_a_step_rounds_off_two_units():
    a, b = np.zeros((1, 16)), np.zeros((1, 16))
    a[0, 0] = b[0, 0] = 1.0
    a[0, 1], b[0, 1] = 2.0**-12, (2 - 2.0**-10) * 2.0**-12
    exact = (a * b).sum()
    assert (exact - step(np.zeros(1), a, b)) / exact > 1.9 * U


@pytest.mark.parametrize(("F", "G", "R"), [(25, 16, 48.2), (24, 8, 88.4)], ids=["9.0", "8.0"])
def test_a_chunk_loses_at_most_the_proofs_bound(F, G, R, rng):
    """At most R units; this example reaches half of them."""

    def units(A: Float32, B: Float32) -> float:
        a, b = scaled(A, 1), scaled(B, 0)
        allowed = np.abs(a) @ np.abs(b) * U
        return float((np.abs(split_fp16(A, B, F, G) - a @ b) / allowed).max())

    assert R / 2 < units(*chunk_of_losses(F, G)) < R
    for _ in range(20):
        A = np.ldexp(np.abs(normal(rng, 8, CHUNK)), rng.integers(-14, 1, (8, CHUNK)))
        A[:, 0] = 1.0
        B = np.ldexp(np.abs(normal(rng, CHUNK, 8)), rng.integers(-10, 1, (CHUNK, 8)))
        assert 1 < units(A.astype(np.float32), B.astype(np.float32)) < R


@pytest.mark.parametrize("tile_size", IN_ONE_SLICE, indirect=True)
def test_each_promotion_rounds_off_a_unit(tile_size, multiply):
    """Every chunk after the first adds half a unit of the sum's last place, which rounding
    removes."""
    chunks = 16
    A = np.ones((1, chunks * CHUNK), np.float32)
    B = np.zeros((A.shape[1], 1), np.float32)
    B[0], B[CHUNK::CHUNK] = 1.0, U
    lost = chunks - 1
    assert A.astype(np.float64) @ B == 1 + lost * U
    assert lost > (chunks + 1) / 2
    assert multiply(A, B) == split_fp16(A, B) * 2.0**-28 == 1


def test_a_subnormal_half_counts_as_the_least_normal_exponent():
    """A step may therefore lose more than the share of its magnitudes, but at most 2**-20."""
    a, b = np.full((1, 16), 2.0**-24), np.full((1, 16), 2.0**-3)
    a[0, 1:] = 2.0**-14  # the first product has the largest exponent, so the others are cut off
    b[0, 0], b[0, 1:] = 2.0**15, 2.0**-11 * (2 - 2.0**-10)
    lost = (a * b).sum() - step(np.zeros(1), a, b)
    assert lost[0] > 8 * U * (a * b).sum()
    assert lost[0] < 2.0**-20


def test_the_terms_of_the_proof_add_up():
    """The sum of all losses: in each step of a chunk, in the fp16 pairs, and in adding the
    chunks."""
    # Steps with large products in a chunk: 4 of 16 each on 9.0, where all rungs run, or 8 of 8.
    for steps, shortest in ((4, min(SHORTEST.values())), (8, SHORTEST["mma"])):
        left = 2.0**-10 * (1 + 2.0**-11)  # from the small products
        small = 2 * steps * (8 + 2) * left
        chunk = (8 + 2) * steps * ((1 + 2.0**-11) ** 2 + left) + small + 8 + 8 * U
        assert chunk < {4: 48.2, 8: 88.4}[steps]
        for K in (shortest, shortest + 1, 1000, 2**20, 2**23, 2**24 - 4):
            x, r = K * U, (chunk + -(-K // CHUNK)) * U
            small = K * 2.0**-10 + -(-K // CHUNK) * 3 * steps * 2.0**-20  # factors, fp16 pairs
            least = (CERTAIN - small) / (1 + r)  # least sum of magnitudes
            assert small + r * least <= x / (1 - x) * least
        assert chunk + 4 > shortest / 3, "for shorter sums it would not be true everywhere"


# ---------------------------------------------------------------- any input, within README's bound


@pytest.mark.parametrize(
    ("tile_size", "K"),
    [
        *[("mma", 256), ("mma", 257), ("mma", 700)],
        *[(name, 128) for name in ("wgmma", "waves-low", "waves-wide", "fused", "fused-narrow")],
        *[("wgmma", 700), ("waves-low", 300), ("waves-wide", 600)],
        *[("fused", 600), ("fused-narrow", 300), ("fused-slices", 700)],
    ],
    indirect=["tile_size"],
)
@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_every_input_is_within_the_bound(name, tile_size, K, multiply, rng):
    A, B = INPUTS[name](rng, K)
    C = normal(rng, 150, 140)
    plain = multiply(A, B)
    assert expect(A, B).worst_share(plain) <= 1
    alpha, beta = float(rng.uniform(-2, 2)), float(rng.uniform(-2, 2))
    updated = multiply(A, B, C=C, alpha=alpha, beta=beta)
    assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(updated) <= 1


@pytest.mark.parametrize("name", INPUTS)
def test_warpgroup_products_are_bit_identical_to_mma(name, rng, monkeypatch):
    """With any tile size, unless a result fails the check: the number of failures in a tile decides
    whether single results or the whole tile are recomputed in fp32."""
    A, B = INPUTS[name](rng, 300)
    expected = run("mma", A, B, device="cpu")
    assert same_bits(run("wgmma", A, B, device="cpu"), expected)
    if name in ("normal", "positive", "softmax"):
        assert passes_check(A, B).all()
        for multiprocessors in (1, 4, 4096):
            monkeypatch.setenv(SETTING, str(multiprocessors))
            assert same_bits(run("waves", A, B, device="cpu"), expected)


@pytest.mark.parametrize(
    ("multiprocessors", "rows", "cols"), [(1, 128, 140), (4, 128, 128), (4096, 64, 128)]
)
def test_waves_chooses_tiles_by_their_number(multiprocessors, rows, cols, rng, monkeypatch):
    """C is 150 x 140. With fewer multiprocessors, `waves` uses fewer and larger tiles. A tile that
    falls back to fp32 shows its size."""
    A, B = normal(rng, 150, 512), normal(rng, 512, 140)
    A[:8, :256] *= np.float32(2.0**-30)
    B[256:, :8] *= np.float32(2.0**-30)
    monkeypatch.setenv(SETTING, str(multiprocessors))
    by_tile = run("waves", A, B, device="cpu") == run("raster", A, B, device="cpu")
    assert by_tile[:rows, :cols].all()
    assert by_tile[rows:].mean() < 0.5
    assert cols == 140 or by_tile[:, cols:].mean() < 0.5


@pytest.mark.parametrize("K", [0, 1, 63, 127, 128, 190, 255, 256, 300])
def test_edges_of_tiles_of_every_size(tile_size, K, multiply, rng):
    for M, N in ((1, 1), (63, 129), (65, 127), (128, 191), (129, 192), (127, 193)):
        A, B, C = normal(rng, M, K), normal(rng, K, N), normal(rng, M, N)
        assert expect(A, B).worst_share(multiply(A, B)) <= 1
        if K == 300:
            result = multiply(A, B, C=C, beta=-1.5)
            assert expect(A, B, C=C, beta=-1.5).worst_share(result) <= 1


@pytest.mark.parametrize("name", ["normal", "blocks of 2**-30", "one row and one column of them"])
def test_bits_are_the_same_in_every_layout_and_every_run(name, multiply, rng):
    """Results that pass, whole fp32 tiles and single fp32 elements are the same each time."""
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
def test_results_that_fail_the_check_are_computed_in_float32(name, tile_size, multiply):
    """fp16 pairs alone would exceed the bound, so results within it were recomputed in fp32."""
    A, B, sums = modelled(INPUTS[name], 512)
    failing = ~sums_pass(sums)
    beyond = share_of_bound(A, B, sums[-1]) > 1
    assert (failing | ~beyond).all(), "what passes is within the bound"
    in_tiles = {
        (row, col): failing[row : row + tile_size.rows, col : col + tile_size.cols].sum()
        for row in range(0, 150, tile_size.rows)
        for col in range(0, 140, tile_size.cols)
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
    for beta in (1.0, -2.0):  # recomputed results apply beta once, too
        updated = multiply(A, B, C=C, beta=beta)
        assert expect(A, B, C=C, beta=beta).worst_share(updated) <= 1


def test_results_that_pass_the_check_equal_the_model(multiply, rng):
    A, B = normal(rng, 20, 300), normal(rng, 300, 24)
    certain = passes_check(A, B)
    assert certain.mean() > 0.99
    pairs = scaled_back(A, B, split_fp16(A, B))
    assert same_bits(multiply(A, B)[certain], pairs[certain])


@pytest.mark.parametrize("tile_size", CHECK_EARLY, indirect=True)
def test_results_that_pass_the_early_check_are_stored(tile_size, multiply):
    """Large sums after K = 256 that the rest of K cancels almost completely."""
    A, B, sums = modelled(cancelling, 512)
    early = np.abs(sums[EARLY - 1]) >= CERTAIN
    assert early.mean() > 0.99
    assert (np.abs(sums[-1]) < CERTAIN).mean() > 0.99, "at the end nearly all would fail"
    assert share_of_bound(A, B, sums[-1])[early].max() < 1
    result = multiply(A, B)
    assert same_bits(result[early], scaled_back(A, B, sums[-1])[early])
    assert expect(A, B).worst_share(result) <= 1


@pytest.mark.parametrize("tile_size", CHECK_EARLY, indirect=True)
def test_the_early_check_covers_later_losses(tile_size, multiply):
    """The smallest sum that passes, then factors so small that their fp16 pairs are zero."""
    A, B = np.zeros((1, 2048), np.float32), np.zeros((2048, 1), np.float32)
    A[0, 0], B[0] = 2.0**14, 2.0
    B[1] = 2.0**15 - 2.0**-8  # A is zero here; this sets B's scale to 1
    A[0, CHUNK * EARLY :], B[CHUNK * EARLY :] = 2.0**-25, 2.0**15 - 2.0**-8
    for chunk in range(1, EARLY):  # so that four chunks have products
        A[0, CHUNK * chunk] = B[CHUNK * chunk] = 2.0**-20
    pairs = split_fp16(A, B)
    assert abs(pairs - CERTAIN) < 1
    assert 0.4 < share_of_bound(A, B, pairs) < 1
    assert multiply(A, B) == pairs


def uneven(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """The magnitudes of A change from chunk to chunk, and from row to row."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    exponents = np.repeat(rng.integers(-9, 9, (150, -(-K // CHUNK))), CHUNK, axis=1)
    return np.ldexp(A, exponents[:, :K]).astype(np.float32), B


@pytest.mark.parametrize(("tile", "slices"), [("fused", 1), ("fused-slices", 3)])
def test_fused_equals_its_model(tile, slices, rng, monkeypatch):
    """Chunks with scales of their own, and slices of K that are added in order."""
    A, B = uneven(rng, 12 * CHUNK - 5)
    model = fused_model(A, B, slices)
    passing = np.abs(model.sums) >= model.least
    assert passing.mean() > 0.99
    monkeypatch.setenv(SETTING, str(TILE_SIZES[tile].multiprocessors))
    result = run("fused", A, B, device="cpu")
    assert same_bits(
        result[passing], (model.sums * (B[:1] / scaled(B, 0)[:1]).astype(np.float32))[passing]
    )
    assert expect(A, B).worst_share(result) <= 1


@pytest.mark.parametrize("share", [0.999, 1.0])
def test_the_check_of_fused_depends_on_the_scales_of_a_row(share):
    """The smallest sum that passes, beside factors whose fp16 pairs are zero; and a sum that is a
    little smaller, which fp32 computes."""
    K = 16 * CHUNK
    A, B = np.zeros((1, K), np.float32), np.zeros((K, 1), np.float32)
    A[0, ::CHUNK] = 2.0 ** np.arange(-8, 8)  # each chunk's scale; B is zero there, but in the last
    A[0, 1::CHUNK] = A[0, ::CHUNK] * np.float32(2.0**-39)
    B[1::CHUNK] = 2 - 2.0**-20
    least = fused_model(A, B).least[0, 0] * 2.0**-14  # in units of A and B
    A[0, 2], B[2] = share * least, 1.0
    A[0, 0] = max(A[0, 0], A[0, 2])
    model = fused_model(A, B)
    passes = abs(model.sums[0, 0]) >= model.least[0, 0]
    result = run("fused", A, B, device="cpu")
    assert passes == (share == 1.0)
    assert (result == model.sums * 2.0**-14).all() == passes
    assert expect(A, B).worst_share(result) <= 1


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("N", [16, 64, 128])
def test_zeros_beside_a_huge_element_are_stored(N, swapped, rng):
    """No sum of a row with a huge element passes. Those of a column of zeros are exact."""
    A, B = normal(rng, 128, 512), normal(rng, 512, N)
    A[5, 7] = 1e33
    B[:, 3] = 0
    A, B = (B.T, A.T) if swapped else (A, B)
    for name in ("mma", "waves", "fused"):
        out = np.full((A.shape[0], B.shape[1]), 7, np.float32)
        run(name, A, B, out=out, device="cpu")
        assert not (out[3] if swapped else out[:, 3]).any()
        assert expect(A, B).worst_share(out) <= 1


def test_sums_of_fused_that_may_overflow_are_computed_in_float32(rng):
    """A sum is in units of A and of the scaled B, whose elements reach 2**15."""
    A, B = np.abs(normal(rng, 70, 300)), np.abs(normal(rng, 300, 64))
    A[3:5] *= np.float32(2.0**118)
    B *= np.float32(2.0**-20)
    result = run("fused", A, B, device="cpu")
    assert same_bits(result[3:5], run("raster", A, B, device="cpu")[3:5])
    assert expect(A, B).worst_share(result) <= 1


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("M", "N"), [(300, 60), (60, 300)])
def test_auto_computes_a_batch_by_fused(M, N, shared, rng, monkeypatch):
    """With the bits of single products, which all take one slice of K here. A may be the same for
    all. Results that fail the check, and tiles that fall back, differ from matrix to matrix."""
    A, B = normal(rng, 3, M, 448), normal(rng, 3, N, 448).swapaxes(1, 2)
    A[1, 5, :256] *= np.float32(2.0**-30)
    B[1, 256:] *= np.float32(2.0**-30)
    B[2, :, 40:] = np.nan
    A = A[1] if shared else A
    C = normal(rng, 3, M, N)
    monkeypatch.setenv(SETTING, "6")
    together = run("auto", A, B, C=C, alpha=0.7, beta=-0.3, device="cpu")
    singly = [
        run("fused", A if shared else A[n], B[n], C=C[n], alpha=0.7, beta=-0.3, device="cpu")
        for n in range(3)
    ]
    assert same_bits(together, np.array(singly))


@pytest.mark.parametrize("shared", sampled([False, True], [True]))
def test_auto_computes_a_batch_by_waves(shared, rng, monkeypatch):
    """With the bits of single products."""
    A, B, C = normal(rng, 4, 256, 1536), normal(rng, 4, 1536, 256), normal(rng, 4, 256, 256)
    if shared:
        A, B = np.ascontiguousarray(A[::-1])[::-1], B[1]
    monkeypatch.setenv(SETTING, "1")
    together = run("auto", A, B, C=C, beta=2, device="cpu")
    singly = [
        run("waves", A[n], B if shared else B[n], C=C[n], beta=2, device="cpu") for n in range(4)
    ]
    assert same_bits(together, np.array(singly))


@pytest.mark.parametrize("layouts", ["CC", "CF", "FC", "FF"])
def test_fused_splits_the_smaller_operand_in_advance(layouts, rng):
    """A wide C is computed as its transpose, with the same bits."""
    A, B, C = normal(rng, 300, 700), normal(rng, 700, 70), normal(rng, 300, 70)
    A, B = np.array(A, order=layouts[0]), np.array(B, order=layouts[1])
    tall = run("fused", A, B, C=C, alpha=0.7, beta=-0.3, device="cpu")
    wide = run("fused", B.T, A.T, C=C.T.copy(), alpha=0.7, beta=-0.3, device="cpu")
    assert same_bits(wide, np.ascontiguousarray(tall.T))


@pytest.mark.parametrize("tile", ["fused", "fused-narrow", "fused-slices"])
@pytest.mark.parametrize(("M", "K"), [(152, 300), (36, 700), (300, 128), (4, 193), (151, 300)])
def test_fused_loads_an_mn_major_operand_with_the_same_bits(tile, M, K, rng, monkeypatch):
    """Steps of K whose rows are no multiple of four floats are copied first."""
    monkeypatch.setenv(SETTING, str(TILE_SIZES[tile].multiprocessors))
    A, B = uneven(rng, K)
    A, C = np.resize(A, (M, K)), normal(rng, M, 140)
    A[M // 2] *= np.float32(2.0**-30)  # and some of its results fail the check
    A[M // 2, 7] = 1.0
    expected = run("fused", A, B, C=C, alpha=0.7, beta=-0.3, device="cpu")
    assert expect(A, B, C=C, alpha=0.7, beta=-0.3).worst_share(expected) <= 1
    padded = np.zeros((K, M + 4), np.float32, order="C")[:, :M]
    padded[:] = A.T
    for placed in (np.asfortranarray(A), padded.T):
        for b in (B, np.asfortranarray(B)):
            result = run("fused", placed, b, C=C, alpha=0.7, beta=-0.3, device="cpu")
            assert same_bits(result, expected)


@pytest.mark.parametrize("K", [512, 500])
def test_fused_loads_a_batch_of_mn_major_operands(K, rng, monkeypatch):
    """If K is no multiple of a chunk, the last chunk would reach into the next matrix, of NaN."""
    A, B = normal(rng, 3, 300, K), normal(rng, 3, K, 60)
    A[1:] = np.nan
    A[2, 7:] = normal(rng, 293, K)
    monkeypatch.setenv(SETTING, "3")
    steps_of_k = np.ascontiguousarray(A.swapaxes(1, 2)).swapaxes(1, 2)
    together = run("auto", steps_of_k, B, device="cpu")
    singly = [run("fused", A[n], B[n], device="cpu") for n in range(3)]
    assert same_bits(together[0], singly[0])
    assert same_bits(together[2, 7:], singly[2][7:])
    assert np.isnan(together[1]).all()


@pytest.mark.parametrize(("N", "tile"), [(132, "fused"), (60, "fused-slices"), (61, "fused")])
def test_a_long_mn_major_operand_is_split_with_the_same_bits(N, tile, rng, monkeypatch):
    """By two kernels instead of one, with up to 32 parts of K, unless its rows are no float4s."""
    monkeypatch.setenv(SETTING, str(TILE_SIZES[tile].multiprocessors))
    A, B = normal(rng, 70, 2200), normal(rng, 2200, N)
    B[2199, 3], B[64, 5] = 2.0**20, 2.0**-20
    assert same_bits(
        run("fused", A, B, device="cpu"), run("fused", A, np.asfortranarray(B), device="cpu")
    )


def small_at_first(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    """All terms are small up to K = 384, though no row or column is."""
    A, B = normal(rng, 150, K), normal(rng, K, 140)
    A[:, 256:384] *= np.float32(2.0**-30)
    B[:256] *= np.float32(2.0**-30)
    return A, B


def small_throughout(rng: np.random.Generator, K: int) -> tuple[Float32, Float32]:
    A, B = small_at_first(rng, K)
    A[:, 384:] *= np.float32(2.0**-30)
    return A, B


@pytest.mark.parametrize("tile_size", CHECK_EARLY, indirect=True)
@pytest.mark.parametrize("make", [small_at_first, small_throughout])
def test_a_tile_that_fails_the_early_check_falls_back(make, tile_size, multiply):
    """If most results of a tile fail the early check, fp32 computes it, whatever the later sums
    are."""
    A, B, sums = modelled(make, 512)
    assert (np.abs(sums[EARLY - 1]) < CERTAIN).mean() > 0.99
    assert (np.abs(sums[-1]) < CERTAIN).mean() > 0.99 or make is small_at_first
    result = multiply(A, B)
    assert same_bits(result, run("raster", A, B, device="cpu"))
    assert expect(A, B).worst_share(result) <= 1


@pytest.mark.parametrize("layouts", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("beta", [0.0, 1.5])
def test_tiles_that_fall_back_equal_raster_in_every_layout(layouts, beta, multiply, rng):
    A, B, C = normal(rng, 150, 417), normal(rng, 417, 140), normal(rng, 150, 140)
    A[:, ::2] *= np.float32(2.0**-30)
    B[1::2] *= np.float32(2.0**-30)
    A, B = np.array(A, order=layouts[0]), np.array(B, order=layouts[1])
    others = {"C": C, "alpha": 0.7, "beta": beta} if beta else {}
    assert same_bits(multiply(A, B, **others), run("raster", A, B, device="cpu", **others))


@pytest.mark.parametrize("positive", sampled([False, True], [True]))
def test_a_million_terms_are_within_the_bound(positive, rng):
    """Uses the model, because the CPU device would take minutes."""
    A, B = normal(rng, 2, 10**6), normal(rng, 10**6, 2)
    if positive:
        A, B = np.abs(A), np.abs(B)
    pairs = split_fp16(A, B)
    assert (np.abs(pairs) >= CERTAIN).all()
    assert share_of_bound(A, B, pairs).max() < 0.01


@pytest.mark.parametrize("name", ["mma", "waves"])
def test_fp16_pairs_need_memory_or_raise(name):
    """A thin operand takes as much memory as one of 128 rows, here 2 GB."""
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


def test_fp16_pairs_larger_than_any_memory():
    """Broadcasting one element to the whole operand takes no memory."""
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
    """As many failing results as slots, one less, and one more, which recomputes the whole tile."""
    for count in (SLOTS - 1, SLOTS, SLOTS + 1):
        A, B = normal(rng, 64, 512), normal(rng, 512, 64)
        A[5, :256] *= np.float32(2.0**-30)
        B[256:, :count] *= np.float32(2.0**-30)
        failing = (~passes_check(A, B)).sum()
        assert count <= failing <= count + 3
        C = uniform(rng, 64, 64)
        result = multiply(A, B, C=C, beta=2.0)
        assert expect(A, B, C=C, beta=2.0).worst_share(result) <= 1


@pytest.mark.parametrize("count", [SLOTS - 1, SLOTS, SLOTS + 1])
def test_an_exact_number_of_slots(count, multiply):
    """Sums of ones, `count` of which are zero."""
    A, B = np.ones((1, 256), np.float32), np.ones((256, TILE), np.float32)
    B[1, :count] = -255.0
    C = np.full((1, TILE), 7, np.float32)
    result = multiply(A, B, C=C, beta=-1.0)
    assert (result == np.where(np.arange(TILE) < count, -7, 249)).all()


def test_short_sums_are_computed_in_float32(tile_size, multiply, rng):
    for K, is_short in ((SHORTEST[tile_size.rung] - 1, True), (SHORTEST[tile_size.rung], False)):
        A, B = uniform(rng, 70, K), uniform(rng, K, 50)
        assert same_bits(multiply(A, B), run("splitk", A, B, device="cpu")) == is_short
