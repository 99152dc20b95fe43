"""Products of every shape are right."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import SPLIT_FP16, random_scalars, uniform

SIZES = [*range(6), 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 131, 193]


@pytest.mark.parametrize("M", SIZES)
def test_every_combination(device, variants_on, rng, M):
    # Sums this short are computed by another rung in place of split-fp16 ones, so fewer shapes
    # suffice.
    names = [name for name in variants_on[device] if name not in SPLIT_FP16 or M in (0, 1, 129)]
    # All variants share one reference, which takes longer than they do.
    for N, K in itertools.product(SIZES, SIZES):
        A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
        alpha, beta = random_scalars(rng)
        expected = expect(A, B, C=C, alpha=alpha, beta=beta)
        for name in names:
            result = run(name, A, B, C=C, alpha=alpha, beta=beta, device=device)
            assert result.shape == (M, N)
            assert result.dtype == np.float32
            assert result.flags.c_contiguous
            assert expected.worst_share(result) <= 1, (name, M, N, K)


def check(variant, device, rng, M, N, K):
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    assert expect(A, B).worst_share(run(variant.name, A, B, device=device)) <= 1, (M, N, K)


def test_sizes_around_the_tile_edges(variant, device, rng):
    for sizes in itertools.product(*((n - 1, n, n + 1) for n in variant.block_tile)):
        check(variant, device, rng, *(max(n, 0) for n in sizes))


@pytest.mark.parametrize("tiles", [2, 3, 4, 5])
def test_even_and_odd_numbers_of_tiles(variant, device, rng, tiles):
    """A double buffer must finish correctly after an even and an odd number of tiles."""
    BM, BN, BK = (n or 32 for n in variant.block_tile)
    for K in (tiles * BK - 1, tiles * BK, tiles * BK + 1):
        check(variant, device, rng, BM + 1, BN + 1, K)


@pytest.mark.parametrize("shape", [(1, 5003, 61), (5003, 1, 61), (1, 1, 5003)])
def test_thin(variant, device, rng, shape):
    check(variant, device, rng, *shape)


def test_long(variant, device, rng):
    check(variant, device, rng, 2, 3, 10**5 if device == "cpu" else 10**6)
