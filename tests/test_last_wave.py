"""Products on tensor cores whose tiles of the last wave alone are divided along K, by `fused`."""

from typing import NamedTuple

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import MULTIPROCESSORS, launched_by, same_bits, uniform
from .test_tensor_cores import CHUNK, fused_model, scaled, uneven


class Case(NamedTuple):
    """A product, and where the divided tiles begin: the last ones, in one column of tiles."""

    multiprocessors: int
    M: int
    N: int
    K: int
    slices: int
    first_row: int
    first_col: int = 0


NARROW = Case(4, 620, 60, 17 * CHUNK, 3, 512)
WIDE = Case(9, 620, 140, 33 * CHUNK, 5, 512, 128)


@pytest.mark.parametrize(
    "case",
    [
        NARROW,
        WIDE,
        NARROW._replace(M=513),  # the last tile has one row
        NARROW._replace(K=16 * CHUNK, slices=4),  # slices of equal lengths
        NARROW._replace(K=14 * CHUNK - 4),  # the last slice is shorter, and so is its last chunk
        Case(6, 1000, 60, 17 * CHUNK, 3, 768),  # two tiles
        NARROW._replace(K=12 * CHUNK, first_row=620),  # too few chunks: slices would take longer
        NARROW._replace(M=800, first_row=800),  # two slices of three tiles do not fit in a wave
        NARROW._replace(M=900, first_row=900),  # whole waves
    ],
    ids=lambda case: "x".join(map(str, case[:4])),
)
def test_only_tiles_of_the_last_wave_are_divided(case, rng, monkeypatch):
    """The others are added in one order."""
    monkeypatch.setenv(MULTIPROCESSORS, str(case.multiprocessors))
    A, B = uneven(rng, case.K)
    A, B = np.resize(A, (case.M, case.K)), np.ascontiguousarray(B[:, : case.N])
    result, launched = launched_by("fused", A, B)
    assert ("add_slices" in launched) == (case.first_row < case.M)
    assert expect(A, B).worst_share(result) <= 1
    rows = np.unique([0, 127, 130, case.first_row - 1, min(case.first_row, case.M - 1), case.M - 1])
    whole, divided = (fused_model(A[rows], B, slices) for slices in (1, case.slices))
    is_divided = (rows >= case.first_row)[:, None] & (np.arange(case.N) >= case.first_col)
    assert (whole.sums != divided.sums)[is_divided].any() or not is_divided.any()
    sums = np.where(is_divided, divided.sums, whole.sums)
    passing = np.abs(sums) >= whole.least
    assert passing.mean() > 0.9
    expected = sums * (B[:1] / scaled(B, 0)[:1]).astype(np.float32)
    assert same_bits(result[rows][passing], expected[passing])


@pytest.mark.parametrize("case", [NARROW, WIDE], ids=["narrow", "wide"])
def test_results_of_divided_tiles_that_fail_the_check(case, rng, monkeypatch):
    """A few fail, and are computed again alone; many fail in a tile, which falls back as a whole;
    others are NaN, infinite, or exactly zero."""
    monkeypatch.setenv(MULTIPROCESSORS, str(case.multiprocessors))
    A, B = uniform(rng, case.M, case.K), uniform(rng, case.K, case.N)
    half, small = case.K // 2, np.float32(2.0**-30)
    B[half:, -12:] *= small
    A[520, :half] *= small
    A[576:616, :half] *= small
    A[530, 7], A[531, 9], A[532] = np.nan, np.inf, 0
    C = uniform(rng, case.M, case.N)
    for options in ({}, {"C": C, "alpha": 0.7, "beta": -0.3}):
        unset = np.full((case.M, case.N), 7e30, np.float32)
        with np.errstate(all="ignore"):
            expected = expect(A, B, **options)
            result, launched = launched_by("fused", A, B, out=unset, **options)
        assert {"add_slices", "recompute"} <= launched
        assert expected.worst_share(result) <= 1
        if options:
            options["C"] = np.asfortranarray(C).T
        transposed = run("fused", B.T, A.T, device="cpu", **options)
        assert same_bits(np.ascontiguousarray(transposed.T), result)
        if not options:
            in_float32 = run("raster", A, B, device="cpu")
            assert same_bits(result[576:, case.first_col :], in_float32[576:, case.first_col :])
            assert not same_bits(result[:512], in_float32[:512])


@pytest.mark.parametrize("mn_major", [False, True])
def test_the_last_wave_of_a_batch(mn_major, rng, monkeypatch):
    """Nine tiles, three of each matrix: the last one is divided."""
    monkeypatch.setenv(MULTIPROCESSORS, "8")
    K = 17 * CHUNK
    A, B = uniform(rng, 3, 300, K), uniform(rng, 3, K, 60)
    placed = np.ascontiguousarray(A.swapaxes(1, 2)).swapaxes(1, 2) if mn_major else A
    result, launched = launched_by("auto", placed, B)
    assert {"fused", "add_slices"} <= launched
    assert expect(A, B).worst_share(result) <= 1
    rows = np.array([0, 255, 256, 299])
    for n in range(3):
        whole, divided = (fused_model(A[n, rows], B[n], slices) for slices in (1, 4))
        sums = np.where((n == 2) & (rows >= 256)[:, None], divided.sums, whole.sums)
        passing = np.abs(sums) >= whole.least
        expected = sums * (B[n, :1] / scaled(B[n], 0)[:1]).astype(np.float32)
        assert same_bits(result[n, rows][passing], expected[passing])


@pytest.mark.parametrize("case", [NARROW, WIDE], ids=["narrow", "wide"])
def test_mixed_divides_the_same_tiles(case, rng, monkeypatch):
    """So a 16-bit A gives the bits of a float32 one."""
    monkeypatch.setenv(MULTIPROCESSORS, str(case.multiprocessors))
    A, B = uniform(rng, case.M, case.K).astype(np.float16), uniform(rng, case.K, case.N)
    result, launched = launched_by("auto", A, B)
    assert {"mixed", "add_slices"} <= launched
    assert same_bits(result, run("fused", A.astype(np.float32), B, device="cpu"))
