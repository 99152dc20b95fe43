"""The layout of an operand changes no bit of the result, and inputs never change."""

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import LAYOUTS, same_bits, uniform

M, N, K = 37, 45, 70


@pytest.mark.parametrize("a_layout", LAYOUTS)
def test_every_pair_of_layouts(rung, device, rng, a_layout):
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    plain = run(rung.name, A, B, device=device)
    a = LAYOUTS[a_layout].place(A)
    a_before = a.memory.copy()
    for b_layout in LAYOUTS:
        b = LAYOUTS[b_layout].place(B)
        b_before = b.memory.copy()
        result = run(rung.name, a.matrix, b.matrix, device=device)
        assert same_bits(result, plain), b_layout
        assert np.array_equal(b.memory, b_before), b_layout
    assert np.array_equal(a.memory, a_before)


@pytest.mark.parametrize("a_layout", ["C", "F"])
def test_column_major_b_with_many_rows(rung, device, rng, a_layout):
    """A rung reads B without a copy. tests/test_on_gpu.py tests `auto` on a GPU."""
    A, B = uniform(rng, 3075, 45), uniform(rng, 45, 70)
    plain = run(rung.name, A, B, device=device)
    a, b = LAYOUTS[a_layout].place(A).matrix, LAYOUTS["F"].place(B).matrix
    assert same_bits(run(rung.name, a, b, device=device), plain)
    assert same_bits(b, B)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_c(rung, device, rng, layout):
    A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
    plain = run(rung.name, A, B, C=C, alpha=1.1, beta=-0.7, device=device)
    c = LAYOUTS[layout].place(C)
    before = c.memory.copy()
    result = run(rung.name, A, B, C=c.matrix, alpha=1.1, beta=-0.7, device=device)
    assert same_bits(result, plain)
    assert np.array_equal(c.memory, before)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_within_the_bound(variant, device, rng, layout):
    A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
    placed = [LAYOUTS[layout].place(values).matrix for values in (A, B, C)]
    result = run(variant.name, placed[0], placed[1], C=placed[2], beta=0.5, device=device)
    assert expect(A, B, C=C, beta=0.5).worst_share(result) <= 1


@pytest.mark.parametrize("operand", ["A", "B", "C"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=["rows", "columns", "both"])
def test_zero_strides(rung, device, rng, operand, axes):
    operands = {"A": uniform(rng, M, K), "B": uniform(rng, K, N), "C": uniform(rng, M, N)}
    shape = operands[operand].shape
    source = uniform(rng, *(1 if axis in axes else n for axis, n in enumerate(shape)))
    repeated = np.broadcast_to(source, shape)
    results = []
    for values in (repeated, repeated.copy()):
        A, B, C = (operands | {operand: values}).values()
        results.append(run(rung.name, A, B, C=C, beta=2, device=device))
    assert same_bits(*results)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 9), (7, 1, 9), (7, 9, 1), (1, 1, 9)])
@pytest.mark.parametrize("stride", [0, 4, -4, 12, 1, 2**40])
def test_the_stride_of_a_single_row_or_column_is_ignored(rung, device, rng, shape, stride):
    M, N, K = shape
    operands = [uniform(rng, M, K), uniform(rng, K, N)]
    odd = []
    for values in operands:
        strides = [
            stride if n == 1 else s for n, s in zip(values.shape, values.strides, strict=True)
        ]
        odd.append(np.lib.stride_tricks.as_strided(values, strides=strides))
    assert same_bits(run(rung.name, *odd, device=device), run(rung.name, *operands, device=device))


def test_the_same_array_as_every_operand(rung, device, rng):
    A = uniform(rng, 50, 50)
    before = A.copy()
    result = run(rung.name, A, A.T, C=A, beta=1, device=device)
    apart = run(rung.name, A.copy(), A.T.copy(), C=A.copy(), beta=1, device=device)
    assert same_bits(result, apart)
    assert same_bits(A, before)
