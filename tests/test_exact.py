"""Small integers give the exact product."""

import numpy as np
import pytest

from sgemm_kernels import run

from .support import deep


def integers(rng, *shape):
    return rng.integers(-8, 8, shape, endpoint=True).astype(np.float32)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (17, 19, 23), (64, 128, 32), (129, 131, 193), (5, 3, 2**13)], ids=str
)
def test_integers(variant, device, rng, shape):
    M, N, K = shape
    K = deep(variant.name, K)
    A, B = integers(rng, M, K), integers(rng, K, N)
    # Exact in float64 too: every partial sum is an integer below 2**53.
    exact = A.astype(np.float64) @ B.astype(np.float64)
    assert np.array_equal(run(variant.name, A, B, device=device), exact)


@pytest.mark.parametrize(("factor", "K"), [(64, 2**12), (32, 2**14)])
def test_the_largest_sum(variant, device, factor, K):
    """The sum is 2**24, beyond which float32 skips integers."""
    check_the_largest_sum(variant.name, device, factor, K)


@pytest.mark.parametrize("name", ["coalesced", "simt"])
def test_the_longest_sum(device, name):
    check_the_largest_sum(name, device, 8, 2**18)


@pytest.mark.thorough
def test_the_longest_sum_of_any_variant(variant, device):
    check_the_largest_sum(variant.name, device, 8, 2**18)


def check_the_largest_sum(name, device, factor, K):
    A, B = np.full((1, K), factor, np.float32), np.full((K, 1), -factor, np.float32)
    assert run(name, A, B, device=device)[0, 0] == -(2.0**24)


def test_integers_with_alpha_and_beta(variant, device, rng):
    A, B, C = integers(rng, 37, 1000), integers(rng, 1000, 41), integers(rng, 37, 41)
    exact = -3 * (A.astype(np.float64) @ B.astype(np.float64)) + 5 * C.astype(np.float64)
    result = run(variant.name, A, B, C=C, alpha=-3, beta=5, device=device)
    assert np.array_equal(result, exact)
