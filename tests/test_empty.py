"""An empty dimension gives the same result as in NumPy and BLAS."""

import numpy as np
import pytest

from sgemm_kernels import run

from .support import same_bits, uniform


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(("M", "N"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("K", [0, 5])
def test_no_results(variant, device, M, N, K):
    out = zeros(M, N)
    assert run(variant.name, zeros(M, K), zeros(K, N), device=device).shape == (M, N)
    assert run(variant.name, zeros(M, K), zeros(K, N), out=out, device=device) is out
    with_c = run(variant.name, zeros(M, K), zeros(K, N), C=out, beta=2, device=device)
    assert with_c.shape == (M, N)


@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (130, 67)])
def test_no_terms_leave_beta_c(variant, device, rng, shape):
    M, N = shape
    A, B, C = zeros(M, 0), zeros(0, N), uniform(rng, M, N)
    beta = np.float32(-1.3)
    assert same_bits(run(variant.name, A, B, C=C, beta=beta, device=device), beta * C)
    stale = np.full((M, N), np.nan, np.float32)
    run(variant.name, A, B, out=stale, device=device)
    assert same_bits(stale, zeros(M, N))


@pytest.mark.parametrize("alpha", [np.nan, np.inf])
def test_no_terms_and_a_special_alpha(variant, device, rng, alpha):
    """With K = 0 there is nothing for alpha to multiply."""
    C = uniform(rng, 3, 4)
    result = run(variant.name, zeros(3, 0), zeros(0, 4), C=C, alpha=alpha, beta=1, device=device)
    assert same_bits(result, C)
