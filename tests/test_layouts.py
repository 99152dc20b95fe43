"""The layout of an operand changes no bit of the result, and inputs never change."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import LAYOUTS, SPLIT_FP16, Layout, deep, same_bits, uniform

M, N, K = 37, 45, 70


def is_read_in_place(layout: Layout) -> bool:
    """Whether kernels read this layout. The extension copies operands of all others."""
    strides = layout.strides(M, K)
    return (
        layout.dtype == "=f4"
        and 4 in strides
        and all(step > 0 and step % 4 == 0 for step in (*strides, layout.offset + 4))
    )


IN_PLACE = [name for name, layout in LAYOUTS.items() if is_read_in_place(layout)]


def test_kernels_read_eleven_layouts():
    assert len(IN_PLACE) == 11
    assert {"C", "F", "rows ::2", "C, 3 elements on"} < set(IN_PLACE)


def check_layouts(rung, device, rng, pairs):
    A, B = uniform(rng, M, deep(rung.name, K)), uniform(rng, deep(rung.name, K), N)
    plain = run(rung.name, A, B, device=device)
    for pair in pairs:
        placed = [LAYOUTS[name].place(X) for name, X in zip(pair, (A, B), strict=True)]
        before = [each.memory.copy() for each in placed]
        result = run(rung.name, *(each.matrix for each in placed), device=device)
        assert same_bits(result, plain), pair
        for each, kept in zip(placed, before, strict=True):
            assert np.array_equal(each.memory, kept), pair


def test_pairs_of_layouts_that_kernels_read(rung, device, rng):
    """Rungs on tensor cores split each operand by itself, so fewer pairs suffice."""
    if rung.name in SPLIT_FP16:
        pairs = zip(IN_PLACE, reversed(IN_PLACE), strict=True)
    else:
        pairs = itertools.product(IN_PLACE, IN_PLACE)
    check_layouts(rung, device, rng, pairs)


def test_layouts_that_are_copied(rung, device, rng):
    copied = [name for name in LAYOUTS if name not in IN_PLACE]
    others = itertools.cycle(["C", "F"])
    check_layouts(rung, device, rng, [(name, next(others)) for name in copied])
    check_layouts(rung, device, rng, [(next(others), name) for name in copied])


@pytest.mark.thorough
def test_every_pair_of_layouts(rung, device, rng):
    check_layouts(rung, device, rng, itertools.product(LAYOUTS, LAYOUTS))


def test_column_major_b_with_many_rows(rung, device, rng):
    """A rung reads B without a copy, unlike `auto` on a GPU: see tests/test_on_gpu.py."""
    rows = 131 if device == "cpu" else 3075
    A, B = uniform(rng, rows, deep(rung.name, 45)), uniform(rng, deep(rung.name, 45), 7)
    plain = run(rung.name, A, B, device=device)
    b = LAYOUTS["F"].place(B).matrix
    for a_layout in ("C", "F"):
        a = LAYOUTS[a_layout].place(A).matrix
        assert same_bits(run(rung.name, a, b, device=device), plain), a_layout
    assert same_bits(b, B)


def test_every_layout_of_c(rung, device, rng):
    A, B = uniform(rng, M, deep(rung.name, K)), uniform(rng, deep(rung.name, K), N)
    C = uniform(rng, M, N)
    plain = run(rung.name, A, B, C=C, alpha=1.1, beta=-0.7, device=device)
    for name, layout in LAYOUTS.items():
        c = layout.place(C)
        before = c.memory.copy()
        result = run(rung.name, A, B, C=c.matrix, alpha=1.1, beta=-0.7, device=device)
        assert same_bits(result, plain), name
        assert np.array_equal(c.memory, before), name


def test_every_layout_is_within_the_bound(variant, device, rng):
    A, B = uniform(rng, M, deep(variant.name, K)), uniform(rng, deep(variant.name, K), N)
    C = uniform(rng, M, N)
    expected = expect(A, B, C=C, beta=0.5)
    for name, layout in LAYOUTS.items():
        a, b, c = (layout.place(values).matrix for values in (A, B, C))
        result = run(variant.name, a, b, C=c, beta=0.5, device=device)
        assert expected.worst_share(result) <= 1, name


@pytest.mark.parametrize("operand", ["A", "B", "C"])
def test_zero_strides(rung, device, rng, operand):
    k = deep(rung.name, K)
    operands = {"A": uniform(rng, M, k), "B": uniform(rng, k, N), "C": uniform(rng, M, N)}
    shape = operands[operand].shape
    for axes in ((0,), (1,), (0, 1)):
        source = uniform(rng, *(1 if axis in axes else n for axis, n in enumerate(shape)))
        repeated = np.broadcast_to(source, shape)
        results = []
        for values in (repeated, repeated.copy()):
            A, B, C = (operands | {operand: values}).values()
            results.append(run(rung.name, A, B, C=C, beta=2, device=device))
        assert same_bits(*results), axes


def odd_strides(values, stride):
    """The same matrix, with this stride along an axis of one element."""
    strides = [stride if n == 1 else s for n, s in zip(values.shape, values.strides, strict=True)]
    return np.lib.stride_tricks.as_strided(values, strides=strides)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 9), (7, 1, 9), (7, 9, 1), (1, 1, 9)], ids=str)
def test_the_stride_of_a_single_row_or_column_is_ignored(device, rng, shape):
    M, N, K = shape
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    expected = run("vec4", A, B, device=device)
    for stride in (0, 4, -4, 12, 1, 2**40):
        result = run("vec4", odd_strides(A, stride), odd_strides(B, stride), device=device)
        assert same_bits(result, expected), stride


def test_the_stride_of_a_single_row_or_column_of_any_rung(rung, device, rng):
    k = deep(rung.name, 9)
    for M, N in ((1, 7), (7, 1), (1, 1)):
        A, B = uniform(rng, M, k), uniform(rng, k, N)
        odd = run(rung.name, odd_strides(A, 2**40), odd_strides(B, 2**40), device=device)
        assert same_bits(odd, run(rung.name, A, B, device=device)), (M, N)


def test_the_same_array_as_every_operand(rung, device, rng):
    n = max(50, deep(rung.name, 0))
    A = uniform(rng, n, n)
    before = A.copy()
    result = run(rung.name, A, A.T, C=A, beta=1, device=device)
    apart = run(rung.name, A.copy(), A.T.copy(), C=A.copy(), beta=1, device=device)
    assert same_bits(result, apart)
    assert same_bits(A, before)
