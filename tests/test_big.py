"""Results are right beyond 2**31 elements and beyond the limits of a grid."""

import os
import resource

import numpy as np
import pytest

from sgemm_kernels import devices, run
from sgemm_kernels._accuracy import expect

from .support import deep, same_bits, sparse, uniform

FAR = 2**25 + 3  # elements between rows, so row 64 begins beyond element 2**31
M, N, K = 67, 70, 66  # all more than 64


def spread(values, *, transposed):
    """The values with FAR elements between rows or columns. The gaps take no memory."""
    if transposed:
        return spread(values.T, transposed=False).T
    matrix = sparse(values.shape[0] * FAR).reshape(-1, FAR)[:, : values.shape[1]]
    matrix[...] = values
    return matrix


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("operand", ["A", "B", "C"])
def test_far_apart_operands(rung, device, rng, operand, transposed):
    k = deep(rung.name, K)
    operands = {"A": uniform(rng, M, k), "B": uniform(rng, k, N), "C": uniform(rng, M, N)}
    results = []
    for values in (operands[operand], spread(operands[operand], transposed=transposed)):
        A, B, C = (operands | {operand: values}).values()
        results.append(run(rung.name, A, B, C=C, beta=0.5, device=device))
    assert same_bits(*results)


@pytest.mark.parametrize("transposed", [False, True])
def test_far_apart_out(rung, device, rng, transposed):
    A, B = uniform(rng, M, deep(rung.name, K)), uniform(rng, deep(rung.name, K), N)
    out = spread(np.zeros((M, N), np.float32), transposed=transposed)
    run(rung.name, A, B, out=out, device=device)
    assert same_bits(out, run(rung.name, A, B, device=device))


@pytest.mark.any_kernel
@pytest.mark.parametrize("side", ["M", "N"])
def test_more_blocks_than_a_grid_dimension_may_have(variant, device, rng, side):
    """65536 blocks and one row or column more. Two of a grid's three dimensions allow at most
    65535. A K long enough for tensor cores would take too much memory."""
    if device == "cpu" and variant.shared_bytes:
        pytest.skip("the CPU has no such limit; the rungs without barriers show it in a second")
    tile = variant.block_tile["MN".index(side)] or 128
    long, thin = uniform(rng, 65536 * tile + 1, 2), uniform(rng, 2, 1)
    operands = (long, thin) if side == "M" else (thin.T, long.T)
    result = run(variant.name, *operands, device=device)
    assert expect(*operands).worst_share(result) <= 1


def test_a_plain_rung_refuses_sizes_above_32_bits_before_it_copies_operands():
    """Operands that take 4 bytes as a broadcast view, and 8 GiB as a copy."""
    A = np.broadcast_to(np.float32(1), (1, 2**31))
    with pytest.raises(ValueError, match=r"naive has 32-bit sizes.*: at most 2147483647 each"):
        run("naive", A, A.T, device="cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8 * 2**20


@pytest.mark.parametrize("largest", ["A", "B", "out"])
def test_really_big(variant, device, rng, largest):
    """More than 2**31 elements, zero except near the places where an index could wrap."""
    if device == "cpu":
        pytest.skip("minutes on the CPU device; the tests above and the native ones cover it")
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    (device_bytes,) = (d.memory_bytes for d in devices() if d.name == device)
    if host_bytes < 24 * 2**30 or device_bytes < 12 * 2**30:
        pytest.skip("needs 24 GiB of memory, and a GPU with 12 GiB")
    K = deep(variant.name, 2 if largest == "out" else 65)
    long = 2**31 // (K - 1) + 3
    M, N = {"A": (long, 3), "B": (3, long), "out": (46347, 46347)}[largest]
    A, B = np.zeros((M, K), np.float32), np.zeros((K, N), np.float32)
    rows = _marked(M)
    columns = _marked(N)
    A[rows] = uniform(rng, len(rows), K)
    B[:, columns] = uniform(rng, K, len(columns))
    result = run(variant.name, A, B, device=device)
    grid = np.ix_(rows, columns)
    assert expect(A[rows], B[:, columns]).worst_share(result[grid]) <= 1
    result[grid] = 0
    assert not result.any()


def _marked(n):
    """Indices at both ends and in the middle of a dimension, where element 2**31 may be."""
    if n < 16:
        return np.arange(n)
    middle = n // 2
    return np.r_[:3, middle - 2 : middle + 3, n - 3 : n]
