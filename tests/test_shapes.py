"""Products of every shape are right."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import MULTIPROCESSORS, SPLIT_FP16, deep, random_scalars, uniform

SIZES = [*range(6), 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 131, 193]
FEWER = [0, 1, 9, 33, 64, 65, 128, 129]
"""For rungs on tensor cores, which the CPU device emulates slowly."""


@pytest.fixture
def check_all(device, rng, monkeypatch):
    """Checks a shape with all variants. They share one reference, which takes longer than they do.
    On the CPU device, `simt` plans for a GPU."""

    def check(names, M, N, K):
        A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
        alpha, beta = random_scalars(rng)
        expected = expect(A, B, C=C, alpha=alpha, beta=beta)
        for name in names:
            with monkeypatch.context() as patch:
                if name == "simt":
                    patch.setenv(MULTIPROCESSORS, "132")
                result = run(name, A, B, C=C, alpha=alpha, beta=beta, device=device)
            assert result.shape == (M, N)
            assert result.dtype == np.float32
            assert result.flags.c_contiguous
            assert expected.worst_share(result) <= 1, (name, M, N, K)

    return check


@pytest.fixture
def on_cuda_cores(device, variants_on):
    """`auto` runs the kernels of `simt`, unless the library or tensor cores are faster."""
    return [
        n for n in variants_on[device] if n not in SPLIT_FP16 and (n, device) != ("auto", "cpu")
    ]


def by_pairs(sizes):
    """Shapes with every pair of sizes as M and N, as M and K, and as N and K."""
    count = len(sizes)
    for i, j in itertools.product(range(count), repeat=2):
        yield sizes[i], sizes[j], sizes[(i + j) % count]


def test_every_pair_of_sizes(on_cuda_cores, check_all):
    for shape in by_pairs(SIZES):
        check_all(on_cuda_cores, *shape)


@pytest.mark.parametrize("name", SPLIT_FP16)
def test_every_pair_of_sizes_on_tensor_cores(name, device, variants_on, check_all):
    if name not in variants_on[device]:
        pytest.skip("runs on other devices")
    for M, N, K in by_pairs(FEWER if device == "cpu" else SIZES):
        check_all([name], M, N, deep(name, K))


@pytest.mark.thorough
@pytest.mark.parametrize("M", SIZES)
def test_every_combination(on_cuda_cores, check_all, M):
    for N, K in itertools.product(SIZES, SIZES):
        check_all(on_cuda_cores, M, N, K)


def check(variant, device, rng, M, N, K):
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    assert expect(A, B).worst_share(run(variant.name, A, B, device=device)) <= 1, (M, N, K)


def tile(variant):
    """Its block tile; for a variant that chooses its tiles, one of those."""
    return variant.block_tile if any(variant.block_tile) else (64, 64, 32)


def test_sizes_around_the_tile_edges(variant, device, rng):
    BM, BN, BK = tile(variant)
    for m, n, k in by_pairs((-1, 0, 1)):
        check(variant, device, rng, BM + m, BN + n, deep(variant.name, BK + k))


@pytest.mark.parametrize("tiles", [2, 3, 4, 5])
def test_even_and_odd_numbers_of_tiles(variant, device, rng, tiles):
    """A double buffer must finish correctly after an even and an odd number of tiles."""
    BK = tile(variant)[2]
    for k in (-1, 0, 1):
        check(variant, device, rng, 33, 35, deep(variant.name, tiles * BK + k))


@pytest.mark.parametrize("shape", [(1, 1203, 61), (1203, 1, 61), (1, 1, 5003)])
def test_thin(variant, device, rng, shape):
    """1203 rows are more than the eight rows of tiles in a band."""
    M, N, K = shape
    check(variant, device, rng, M, N, deep(variant.name, K))


def test_long(variant, device, rng):
    emulated = device == "cpu" and variant.name in SPLIT_FP16
    check(variant, device, rng, 2, 3, 10**4 if emulated else 10**5 if device == "cpu" else 10**6)
