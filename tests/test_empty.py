"""An empty dimension gives the same result as in NumPy and BLAS."""

import numpy as np
import pytest

from sgemm_kernels import _core, run

from .support import same_bits, uniform


def zeros(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(("M", "N"), [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("K", [0, 5])
def test_no_results(variants_on, device, M, N, K):
    """Nothing is launched."""
    out = zeros(M, N)
    _core._launched(True)
    for name in variants_on[device]:
        assert run(name, zeros(M, K), zeros(K, N), device=device).shape == (M, N), name
        assert run(name, zeros(M, K), zeros(K, N), out=out, device=device) is out, name
        with_c = run(name, zeros(M, K), zeros(K, N), C=out, beta=2, device=device)
        assert with_c.shape == (M, N), name
    assert not _core._launched(False)


@pytest.mark.any_kernel
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (130, 67)])
def test_no_terms_leave_beta_c(variant, device, rng, shape):
    """Rungs on tensor cores leave this to another rung."""
    M, N = shape
    A, B, C = zeros(M, 0), zeros(0, N), uniform(rng, M, N)
    beta = np.float32(-1.3)
    assert same_bits(run(variant.name, A, B, C=C, beta=beta, device=device), beta * C)
    stale = np.full((M, N), np.nan, np.float32)
    run(variant.name, A, B, out=stale, device=device)
    assert same_bits(stale, zeros(M, N))
    for alpha in (np.nan, np.inf):  # there is nothing for alpha to multiply
        result = run(variant.name, A, B, C=C, alpha=alpha, beta=1, device=device)
        assert same_bits(result, C)
