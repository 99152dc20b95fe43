"""Every element is within Higham's error bound of the float64 result."""

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import deep, deepened, uniform

SHAPES = [(1, 1, 1), (5, 7, 3), (64, 64, 64), (130, 67, 129), (33, 260, 1000)]
SCALARS = [(1.0, 0.0), (-0.3, 0.0), (1.0, 1.0), (0.1, -1.7), (0.0, 0.6), (1e-30, 1e30)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_uniform(variant, device, rng, shape):
    M, N, K = shape
    K = deep(variant.name, K)
    A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
    # How a kernel stores its sums does not depend on K: a long K takes long to emulate.
    for alpha, beta in SCALARS[-3:] if K >= 1000 else SCALARS:
        result = run(variant.name, A, B, C=C, alpha=alpha, beta=beta, device=device)
        share = expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(result)
        assert share <= 1, (alpha, beta)


@pytest.mark.parametrize("exponents", [(-20, 20), (-75, -60), (-149, -120), (50, 63)], ids=str)
def test_wide_ranges(variant, device, rng, exponents):
    def wide(*shape):
        scale = np.exp2(rng.uniform(*exponents, shape))
        return (rng.uniform(-1, 1, shape) * scale).astype(np.float32)

    K = deep(variant.name, 90)
    A, B, C = wide(70, K), wide(K, 67), wide(70, 67)
    for alpha, beta in SCALARS:
        result = run(variant.name, A, B, C=C, alpha=alpha, beta=beta, device=device)
        assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(result) <= 1, (alpha, beta)


def test_cancellation(variant, device, rng):
    """Terms that nearly cancel: the bound is relative to the terms, not to their small sum."""
    K = deep(variant.name, 100)
    half = uniform(rng, 40, K)
    A = np.hstack([half, -half])
    column = uniform(rng, K, 35)
    B = np.vstack([column, column + uniform(rng, K, 35) * np.float32(1e-6)])
    result = run(variant.name, A, B, device=device)
    assert expect(A, B).worst_share(result) <= 1


def test_alpha_and_beta_are_rounded_first(variant, device):
    one, zero = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    for value in (0.1, 1 / 3, 1 + 2.0**-24, 1 + 2.0**-30, 16777217.0):
        A, B = deepened(variant.name, one, one)
        assert run(variant.name, A, B, alpha=value, device=device)[0, 0] == np.float32(value)
        A, B = deepened(variant.name, zero, one)
        by_beta = run(variant.name, A, B, C=one, beta=value, device=device)
        assert by_beta[0, 0] == np.float32(value)


def test_a_beta_that_rounds_to_zero_is_zero(variant, device):
    one, nan = np.ones((1, 1), np.float32), np.full((1, 1), np.nan, np.float32)
    A, B = deepened(variant.name, one, one)
    assert run(variant.name, A, B, C=nan, beta=1e-60, device=device)[0, 0] == 1
    A, B = deepened(variant.name, nan, nan)
    assert run(variant.name, A, B, C=one, alpha=1e-60, beta=1, device=device)[0, 0] == 1


class TestTheBound:
    """The check itself: it accepts float32 results and nothing less accurate."""

    def test_accepts_float32_and_rejects_half_its_digits(self, rng):
        A, B = uniform(rng, 20, 300), uniform(rng, 300, 20)
        assert expect(A, B).worst_share(A @ B) <= 1
        coarse = A.astype(np.float16) @ B.astype(np.float16)
        assert expect(A, B).worst_share(coarse.astype(np.float32)) > 1

    def test_is_highams(self):
        A, B = np.full((1, 5), -2, np.float32), np.full((5, 1), 3, np.float32)
        C = np.full((1, 1), 7, np.float32)
        expected = expect(A, B, C=C, alpha=-0.5, beta=2)
        u, n = 2.0**-24, 5 + 3
        gamma = n * u / (1 - n * u)
        assert expected.value[0, 0] == -0.5 * -30 + 2 * 7
        assert expected.bound[0, 0] == gamma * (0.5 * 30 + 2 * 7) + n * 2.0**-149

    @pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
    def test_a_misplaced_special_value_is_infinitely_wrong(self, wrong):
        one = np.ones((1, 1), np.float32)
        assert expect(one, one).worst_share(np.full((1, 1), wrong, np.float32)) == np.inf

    @pytest.mark.parametrize("wrong", [1.0, np.nan, -np.inf])
    def test_a_missing_infinity_is_infinitely_wrong(self, wrong):
        one, inf = np.ones((1, 1), np.float32), np.full((1, 1), np.inf, np.float32)
        assert expect(one, inf).worst_share(np.full((1, 1), wrong, np.float32)) == np.inf
        assert expect(one, inf).worst_share(inf) == 0

    def test_exempts_overflow_alone(self):
        big = np.array([[1e30], [1e5]], np.float32)
        expected = expect(big, big[:1])
        assert expected.may_overflow.tolist() == [[True], [False]]

    def test_has_no_bound_for_very_long_sums(self):
        long = np.broadcast_to(np.float32(1), (1, 2**24))
        with pytest.raises(ValueError, match="no error bound exists"):
            expect(long, long.T)
