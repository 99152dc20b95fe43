"""A @ A.T on the CPU device as on a GPU: `simt` and `auto` compute the lower triangle alone."""

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import MULTIPROCESSORS, launched_by, printed_over_fake_cuda, same_bits, uniform

SHAPES = [
    ("tiled_symmetric", 1, "simt", 1, (300, 90)),
    ("tiled_symmetric", 1, "auto", 3, (192, 120)),
    ("split_product", 132, "simt", 1, (97, 333)),
    ("dot", 132, "auto", 1, (13, 50)),
    ("waves", 1, "auto", 1, (300, 1500)),
    ("waves", 4, "auto", 1, (200, 2500)),
    ("waves", 1, "auto", 1, (130, 2100)),
    ("fused", 1, "auto", 1, (517, 515)),
    ("fused", 1, "auto", 4, (256, 256)),
    ("add_slices", 12, "auto", 1, (200, 2500)),
    ("add_slices", 5, "auto", 2, (257, 640)),  # the last two of 12 tiles are divided
    ("add_slices", 9, "auto", 2, (387, 768)),  # the last two of 20, into three slices
]
"""A kernel, and products for which it is launched: multiprocessors, variant, batch, M and K."""


def check(name, A, *, C, alpha=1.0, beta=0.0):
    """The kernels that computed A @ A.T, which is right, and symmetric if C is."""
    options = {"alpha": alpha, "beta": beta, "C": C if beta else None}
    with np.errstate(all="ignore"):
        expected = expect(A, A.mT, **options)
        result, launched = launched_by(name, A, A.mT, **options)
    assert expected.worst_share(result) <= 1
    if beta == 0 or np.array_equal(C, C.mT):
        if np.isnan(result).any():
            np.testing.assert_array_equal(result, result.mT)
        else:
            assert same_bits(result, result.mT)
    return launched


@pytest.mark.parametrize(("kernel", "multiprocessors", "name", "count", "shape"), SHAPES)
def test_each_kernel(monkeypatch, rng, kernel, multiprocessors, name, count, shape):
    monkeypatch.setenv(MULTIPROCESSORS, str(multiprocessors))
    batch = () if count == 1 else (count,)
    M, K = shape
    C = uniform(rng, *batch, M, M)
    for A in (uniform(rng, *batch, M, K), uniform(rng, *batch, K, M).mT):
        assert kernel in check(name, A, C=C)
        check(name, A, C=C, alpha=-0.7, beta=0.3)
        check(name, A, C=C + C.mT, beta=0.3)


def operands(rng, M, K):
    """Ordinary ones; such that fail the error check in all results, or some; NaN and infinity."""
    yield uniform(rng, M, K)
    halves = np.where((np.arange(K) < K // 2) ^ (np.arange(M)[:, None] % 2 == 1), 2.0**-30, 1)
    yield (uniform(rng, M, K) * halves).astype(np.float32)
    few = np.where((np.arange(K) < K // 2) ^ (np.arange(M)[:, None] % 64 == 1), 2.0**-30, 1)
    yield (uniform(rng, M, K) * few).astype(np.float32)
    special = uniform(rng, M, K)
    special[M // 2, K // 3], special[M // 3, 1] = np.nan, np.inf
    yield special
    sparse = uniform(rng, M, K)
    sparse[: M // 2, : K // 2] = sparse[M // 2 :, K // 2 :] = 0
    yield sparse


@pytest.mark.parametrize(("kernel", "shape"), [("fused", (384, 300)), ("waves", (200, 1700))])
def test_operands_that_fail_the_error_check(monkeypatch, rng, kernel, shape):
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    C = uniform(rng, shape[0], shape[0])
    for A in operands(rng, *shape):
        assert kernel in check("auto", A, C=C)
        check("auto", A, C=C, alpha=2.0, beta=-1.0)


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.thorough)])
def test_random_shapes_and_layouts(monkeypatch, rng, count):
    for number in range(count):
        monkeypatch.setenv(MULTIPROCESSORS, str(rng.choice([1, 4, 132])))
        M = int(rng.choice([rng.integers(1, 12), rng.integers(12, 90), rng.integers(90, 320)]))
        K = int(rng.choice([rng.integers(0, 40), rng.integers(120, 700)]))
        batch = (int(rng.integers(2, 4)),) if number % 4 == 0 else ()
        A = uniform(rng, *batch, M, K + int(rng.integers(0, 4)))[..., :K]
        A = uniform(rng, *batch, K, M).mT if number % 2 else A
        C = uniform(rng, *batch, M, M)
        check("simt" if number % 3 == 0 else "auto", A, C=C + C.mT, beta=0.3 * (number % 5 == 0))


def test_the_addend_of_a_mirrored_result(monkeypatch, rng):
    """C with strides of its own, and C in place."""
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A, bias = uniform(rng, 300, 300), uniform(rng, 300)
    for C in (np.broadcast_to(bias, (300, 300)), np.broadcast_to(bias[:, None], (300, 300))):
        check("auto", A, C=C, beta=0.5)
    C = uniform(rng, 300, 300)
    expected = expect(A, A.T, C=C, beta=0.5)
    assert expected.worst_share(run("auto", A, A.T, C=C, beta=0.5, out=C, device="cpu")) <= 1


@pytest.mark.parametrize("pad", [0, 1])
def test_operands_of_16_bits(monkeypatch, rng, pad):
    """All results are computed, with one order of additions: either every tile is in slices of K,
    or none is. TMA cannot load padded rows, so both operands are copied first."""
    monkeypatch.setenv(MULTIPROCESSORS, "16")
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")
    A = uniform(rng, 700, 1536 + pad).astype(np.float16)[:, :1536]
    assert ("copy_rows_16bit" in check("auto", A, C=None)) == bool(pad)


def test_other_products_are_computed_as_before(monkeypatch, rng):
    """The rungs compute all of A @ A.T, and so does `simt` unless B is the transposed A itself."""
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A = uniform(rng, 300, 300)
    for B in (A.T.copy(), A, A[::-1].T):
        result, launched = launched_by("simt", A, B)
        assert "tiled_symmetric" not in launched
        assert same_bits(result, run("simt", A, B.copy(), device="cpu"))
    for name in ("waves", "fused", "mma", "wgmma"):
        copy = np.lib.stride_tricks.as_strided(A.copy(), A.shape, A.strides)
        assert same_bits(run(name, A, A.T, device="cpu"), run(name, A, copy.T, device="cpu"))


@pytest.mark.fake_cuda
def test_operands_in_host_memory():
    code = """
    for M, K in (64, 40), (300, 300), (2600, 60):
        A = rng.integers(-4, 5, (M, K)).astype(np.float32)
        for X in (A, np.asfortranarray(A), A[:, ::-1]):
            assert np.array_equal(run("simt", X, X.T, device="cuda:0"), X @ X.T), (M, K)
    A = rng.integers(-4, 5, (5, 40, 30)).astype(np.float32)
    print(np.array_equal(run("simt", A, A.mT, device="cuda:0"), A @ A.mT))
    """
    assert printed_over_fake_cuda(code) == "True"
