"""Small integers give the exact product."""

import numpy as np
import pytest

from sgemm_kernels import run

from .support import SPLIT_FP16


def integers(rng, *shape):
    return rng.integers(-8, 8, shape, endpoint=True).astype(np.float32)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (17, 19, 23), (64, 128, 32), (129, 131, 193), (5, 3, 2**18)], ids=str
)
def test_integers(variant, device, rng, shape):
    M, N, K = shape
    K = min(K, 2**15) if is_slow(variant, device) else K
    A, B = integers(rng, M, K), integers(rng, K, N)
    # Exact in float64 too: every partial sum is an integer below 2**53.
    exact = A.astype(np.float64) @ B.astype(np.float64)
    assert np.array_equal(run(variant.name, A, B, device=device), exact)


def is_slow(variant, device):
    return device == "cpu" and variant.name in SPLIT_FP16


def test_the_largest_sum(variant, device):
    """All terms are 64 and K is 2**18, or 4096 and 2**12. The sum is 2**24, beyond which float32
    skips integers."""
    factor, K = (64, 2**12) if is_slow(variant, device) else (8, 2**18)
    A, B = np.full((1, K), factor, np.float32), np.full((K, 1), -factor, np.float32)
    assert run(variant.name, A, B, device=device)[0, 0] == -(2.0**24)


def test_integers_with_alpha_and_beta(variant, device, rng):
    A, B, C = integers(rng, 37, 1000), integers(rng, 1000, 41), integers(rng, 37, 41)
    exact = -3 * (A.astype(np.float64) @ B.astype(np.float64)) + 5 * C.astype(np.float64)
    result = run(variant.name, A, B, C=C, alpha=-3, beta=5, device=device)
    assert np.array_equal(result, exact)
