"""Products in functions that numba compiled, for blas_check.py: pytest runs it under preload."""

import numba
import numpy as np
import pytest

M, N, K = 70, 50, 60
rng = np.random.default_rng(3)


@numba.njit
def dot(A, B, out):
    return np.dot(A, B)


@numba.njit
def operator(A, B, out):
    return A @ B


@numba.njit
def into(A, B, out):
    np.dot(A, B, out)
    return out


@numba.njit(parallel=True)
def in_threads(A, B, out):
    for block in numba.prange(5):
        rows = slice(block * (M // 5), (block + 1) * (M // 5))
        out[rows] = np.dot(A[rows], B)
    return out


@pytest.mark.parametrize("product", [dot, operator, into, in_threads])
@pytest.mark.parametrize("order_a", "CF")
@pytest.mark.parametrize("order_b", "CF")
def test_a_compiled_product(product, order_a, order_b):
    if product is in_threads and order_a == "F":
        pytest.skip("numba has no products of strided arrays")
    A = np.asarray(rng.standard_normal((M, K)), np.float32, order_a)
    B = np.asarray(rng.standard_normal((K, N)), np.float32, order_b)
    C = product(A, B, np.full((M, N), np.nan, np.float32))
    assert C.dtype == np.float32
    np.testing.assert_allclose(C, A.astype(float) @ B.astype(float), rtol=0, atol=1e-4)


def test_a_compiled_product_with_the_transposed():
    A = rng.standard_normal((M, K)).astype(np.float32)
    C = dot(A, A.T, A)
    np.testing.assert_allclose(C, A.astype(float) @ A.T.astype(float), rtol=0, atol=1e-4)
