"""C of alpha * A @ B + beta * C as a bias or another array than the result. Some kernels read it
where it is. Other kernels, and the expected results here, begin with a copy of it."""

import numpy as np
import pytest

from sgemm_kernels import _core, run
from sgemm_kernels.proving.hard_cases import INPUTS

from .support import (
    LAYOUTS,
    MULTIPROCESSORS,
    same_bits,
    uniform,
)
from .test_tensor_cores import TILE_SIZES


def special(bias):
    """The bias with a NaN and infinities in it."""
    values = bias.reshape(-1)
    values[[0, values.size // 2, -1]] = np.nan, np.inf, -np.inf
    return bias


ADDENDS = {
    "a row": lambda rng, M, N: np.broadcast_to(special(uniform(rng, N)), (M, N)),
    "a row, one element on": lambda rng, M, N: np.broadcast_to(uniform(rng, N + 1)[1:], (M, N)),
    "every second element": lambda rng, M, N: np.broadcast_to(uniform(rng, 2 * N)[::2], (M, N)),
    "a column": lambda rng, M, N: np.broadcast_to(special(uniform(rng, M, 1)), (M, N)),
    "a number": lambda rng, M, N: np.broadcast_to(uniform(rng, 1), (M, N)),
    "all of C": lambda rng, M, N: special(uniform(rng, M, N)),
    "rows of a wider array": lambda rng, M, N: uniform(rng, M, N + 3)[:, :N],
    **{
        name: lambda rng, M, N, name=name: LAYOUTS[name].place(uniform(rng, M, N)).matrix
        for name in ("F", "rows ::-1", "columns ::2", "C, 1 byte on", "C, byte-swapped")
    },
}

QUICK = ("a row", "a column", "all of C")


@pytest.fixture(autouse=True)
def without_copies(monkeypatch):
    """The kernels see the caller's arrays, as on a GPU whose memory they are in."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")


@pytest.fixture(params=[*TILE_SIZES, "auto", "simt"])
def name(request, monkeypatch):
    """A kernel and a number of multiprocessors with which it uses this tile size for small C."""
    size = TILE_SIZES.get(request.param)
    monkeypatch.setenv(MULTIPROCESSORS, str(size.multiprocessors if size else 1))
    return size.rung if size else request.param


def added_in_place(name, A, B, C, **factors):
    """The result of a product that overwrites a copy of C."""
    out = np.array(C, np.float32, order="C")
    return run(name, A, B, C=out, out=out, device="cpu", **factors)


def check(name, A, B, kinds=QUICK, **factors):
    """These addends give the bits of their copies."""
    rng = np.random.default_rng(3)
    M, N = len(A), B.shape[1]
    for kind in kinds:
        C = ADDENDS[kind](rng, M, N)
        expected = added_in_place(name, A, B, C, **factors)
        assert same_bits(run(name, A, B, C=C, device="cpu", **factors), expected), kind


@pytest.mark.parametrize(("M", "N", "beta"), [(70, 152, 1), (131, 139, -0.5), (60, 300, -0.5)])
def test_an_addend_has_the_bits_of_its_copy(name, M, N, beta, rng):
    """With columns in float4s, without, and for `fused` as the transposed problem."""
    kinds = ADDENDS if M > 60 else QUICK
    check(name, uniform(rng, M, 256), uniform(rng, 256, N), kinds, alpha=0.7, beta=beta)


@pytest.mark.parametrize("types", [("f2", "f2"), ("f2", "f4"), ("f4", "f2")], ids=str)
@pytest.mark.parametrize("K", [256, 40])
def test_operands_of_16_bits(types, K, rng, monkeypatch):
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A, B = uniform(rng, 150, K).astype(types[0]), uniform(rng, K, 140).astype(types[1])
    check("auto", A, B, alpha=0.7, beta=-0.5)


@pytest.mark.parametrize("inputs", ["blocks of 2**-30", "one row and one column of them"])
def test_results_that_fail_the_check_add_it_once(name, inputs, rng):
    A, B = INPUTS[inputs](rng, 512)
    check(name, A, B, beta=-0.5)


@pytest.mark.parametrize("K", [0, 1, 127])
def test_short_sums(name, K, rng):
    """K is below each rung's minimum."""
    check(name, uniform(rng, 70, K), uniform(rng, K, 152), beta=-0.5)


def test_without_a_product(name, rng):
    A, B = np.full((70, 256), np.nan, np.float32), uniform(rng, 256, 152)
    check(name, A, B, alpha=0, beta=-0.5)


def test_a_row_and_a_column_of_results(name, rng):
    """Strides of an axis of length 1 have no meaning."""
    check(name, uniform(rng, 1, 300), uniform(rng, 300, 40), beta=2)
    check(name, uniform(rng, 40, 300), uniform(rng, 300, 1), beta=2)


@pytest.mark.parametrize("offset", [1, 5, 140, 141])
def test_an_addend_that_overlaps_the_result(name, offset, rng):
    """In part: it is read as it was before the call."""
    A, B = uniform(rng, 70, 256), uniform(rng, 256, 140)
    memory = uniform(rng, 70 * 140 + offset)
    C, out = (part.reshape(70, 140) for part in (memory[:-offset], memory[offset:]))
    expected = added_in_place(name, A, B, C, beta=-0.5)
    assert run(name, A, B, C=C, beta=-0.5, out=out, device="cpu") is out
    assert same_bits(out, expected)
    row = uniform(rng, 140)
    expected = added_in_place(name, A, B, np.broadcast_to(row, (70, 140)), beta=-0.5)
    memory[:140] = row
    out, C = memory[: 70 * 140].reshape(70, 140), np.broadcast_to(memory[:140], (70, 140))
    assert same_bits(run(name, A, B, C=C, beta=-0.5, out=out, device="cpu"), expected)


@pytest.mark.parametrize(
    ("kernel", "shape"), [("waves", (257, 130, 1023)), ("fused", (256, 256, 512))]
)
def test_auto_adds_it_on_tensor_cores(kernel, shape, rng, monkeypatch):
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    M, N, K = shape
    A, B, C = uniform(rng, M, K), uniform(rng, K, N), np.broadcast_to(uniform(rng, N), (M, N))
    _core._launched(True)
    try:
        result = run("auto", A, B, C=C, beta=-0.5, device="cpu")
    finally:
        launched = _core._launched(False)
    assert kernel in launched
    assert same_bits(result, added_in_place("auto", A, B, C, beta=-0.5))


FEW_ROWS = [
    ("dot", (3, 20, 50), "C"),
    ("gemv_by_rows", (1, 3000, 700), "C"),
    ("gemv_by_columns", (7, 3000, 512), "F"),
    ("gemv_by_columns", (3000, 2, 512), "F"),  # the transposed problem
    ("gemv_by_columns", (1, 200, 8192), "F"),  # K is split among blocks
    ("gemv_unaligned_columns", (3, 3000, 701), "F"),
]
"""Kernels for few rows, and products that they compute: the shape, and the layout of B."""


@pytest.mark.parametrize(("kernel", "shape", "layout"), FEW_ROWS)
def test_kernels_for_few_rows(kernel, shape, layout, rng, monkeypatch):
    monkeypatch.setenv(MULTIPROCESSORS, "132")
    M, N, K = shape
    A, B = uniform(rng, M, K), np.array(uniform(rng, K, N), order=layout)
    _core._launched(True)
    try:
        check("simt", A, B, alpha=0.7, beta=-0.5)
    finally:
        launched = _core._launched(False)
    assert kernel in launched


SHAPES_OF_C = {"row": (72,), "rows": (3, 1, 72), "columns": (3, 130, 1), "all": (3, 130, 72)}


@pytest.mark.parametrize("shape", SHAPES_OF_C.values(), ids=SHAPES_OF_C)
@pytest.mark.parametrize("K", [300, 40])
def test_each_product_of_a_batch_adds_it(name, shape, K, rng):
    """On tensor cores and, with a short K, on others. With a shared B, all rows of a C with one row
    stride are one product."""
    A, B, C = uniform(rng, 3, 130, K), uniform(rng, 3, K, 72), uniform(rng, *shape)
    C = np.broadcast_to(C, (3, 130, 72))
    for b in (B,) if shape == SHAPES_OF_C["rows"] else (B, B[0]):
        result = run(name, A, b, C=C, beta=-0.5, device="cpu")
        assert same_bits(result, added_in_place(name, A, b, C, beta=-0.5))
