"""Tensor cores store results at the edges of C: any number of rows and columns, in any layout."""

from typing import NamedTuple

import numpy as np
import pytest

from sgemm_kernels._accuracy import expect

from .support import MULTIPROCESSORS, launched_by, same_bits, uniform
from .test_tensor_cores import CHUNK, TILE_SIZES


class Whole(NamedTuple):
    """A C; rows and columns whose products fail the check, and are computed again; and parts of C.

    A thread has two of every eight columns. If one, nine or 17 are in a tile, some threads have one
    of the last two, which fails."""

    M: int
    N: int
    rows: list[int]
    cols: list[int]
    parts: list[tuple[int, int]]


SQUARE = Whole(
    *(256, 256, [3, 60, 130], [5, 128, 136, 144, 254]),
    [(133, 129), (148, 137), (161, 145), (191, 255), (250, 256)],
)
WIDE = Whole(
    *(128, 300, [0, 8, 16, 126], [5, 130, 254]), [(1, 133), (9, 148), (17, 261), (127, 300)]
)
"""`fused` computes the transposed product, and stores C by columns."""
UNSET = np.float32(7e30)


def in_float4s(M, N):
    memory = np.full((M + 1, 304), UNSET)
    return memory, memory[:M, :N]


def unaligned(M, N):
    memory = np.full((M + 1, 305), UNSET)
    return memory, memory[:M, 1 : N + 1]


def by_columns(M, N):
    memory = np.full((N + 1, 261), UNSET)
    return memory, memory[:N, :M].T


@pytest.mark.parametrize(
    ("tile_size", "of"),
    [*((size, SQUARE) for size in TILE_SIZES), ("fused", WIDE), ("fused-slices", WIDE)],
    ids=lambda value: value if isinstance(value, str) else f"{value.M}x{value.N}",
)
def test_results_do_not_depend_on_the_edges_of_c(tile_size, of, rng, monkeypatch):
    """They have the bits of the same results of a larger product, whose tiles are whole."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")
    rung, multiprocessors, _, _ = TILE_SIZES[tile_size]
    monkeypatch.setenv(MULTIPROCESSORS, str(multiprocessors))
    slices = 2 if tile_size == "fused-slices" else 1
    K = 4 * CHUNK * slices
    A, B, C = uniform(rng, of.M, K), uniform(rng, K, of.N), uniform(rng, of.M, of.N)
    A[of.rows, : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :, of.cols] *= np.float32(2.0**-30)
    for factors in ({}, {"alpha": 0.7, "beta": -0.3}):
        addend = {"C": C} if factors else {}
        whole, launched = launched_by(rung, A, B, **addend, **factors)
        assert "recompute" in launched
        assert ("add_slices" in launched) == (slices > 1)
        assert expect(A, B, **addend, **factors).worst_share(whole) <= 1
        for place in (in_float4s, unaligned, by_columns):
            for M, N in of.parts:
                memory, result = place(M, N)
                if factors:
                    added = C[:M, :N]
                    addend["C"] = np.asfortranarray(added) if place is by_columns else added
                launched_by(rung, A[:M], B[:, :N], out=result, **addend, **factors)
                assert same_bits(result, whole[:M, :N])
                result[...] = UNSET
                assert (memory == UNSET).all()
