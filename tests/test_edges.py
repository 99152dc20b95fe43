"""Tensor cores store results at the edges of C: any number of rows and columns, in any layout."""

import numpy as np
import pytest

from sgemm_kernels._accuracy import expect

from .support import MULTIPROCESSORS, same_bits, uniform
from .test_last_wave import launched_by
from .test_tensor_cores import CHUNK, TILE_SIZES

EDGES = [(133, 129), (148, 137), (161, 145), (191, 255), (256, 256)]
"""Rows and columns of C. A thread has two of every eight columns; of 129, 137 and 145 columns, some
threads have one of the last two."""
FAILING = np.array([3, 60, 130]), np.array([5, 128, 136, 144, 254])
"""Rows and columns whose products fail the check, and are computed again. Each C but the largest
ends in one of these columns."""
UNSET = np.float32(7e30)


def in_float4s(M, N):
    memory = np.full((M + 1, 260), UNSET)
    return memory, memory[:M, :N]


def unaligned(M, N):
    memory = np.full((M + 1, 261), UNSET)
    return memory, memory[:M, 1 : N + 1]


def by_columns(M, N):
    memory = np.full((N + 1, 261), UNSET)
    return memory, memory[:N, :M].T


@pytest.mark.parametrize("tile_size", TILE_SIZES)
def test_results_do_not_depend_on_the_edges_of_c(tile_size, rng, monkeypatch):
    """They have the bits of the same results of a larger product, whose tiles are all whole."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")
    rung, multiprocessors, _, _ = TILE_SIZES[tile_size]
    monkeypatch.setenv(MULTIPROCESSORS, str(multiprocessors))
    slices = 2 if tile_size == "fused-slices" else 1
    K = 4 * CHUNK * slices
    A, B, C = uniform(rng, 256, K), uniform(rng, K, 256), uniform(rng, 256, 256)
    A[FAILING[0], : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :, FAILING[1]] *= np.float32(2.0**-30)
    for factors in ({}, {"alpha": 0.7, "beta": -0.3}):
        addend = {"C": C} if factors else {}
        whole, launched = launched_by(rung, A, B, **addend, **factors)
        assert "recompute" in launched
        assert ("add_slices" in launched) == (slices > 1)
        assert expect(A, B, **addend, **factors).worst_share(whole) <= 1
        for place in (in_float4s, unaligned, by_columns):
            for M, N in EDGES:
                memory, result = place(M, N)
                if factors:
                    added = C[:M, :N]
                    addend["C"] = np.asfortranarray(added) if place is by_columns else added
                launched_by(rung, A[:M], B[:, :N], out=result, **addend, **factors)
                assert same_bits(result, whole[:M, :N])
                result[...] = UNSET
                assert (memory == UNSET).all()
