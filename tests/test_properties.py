"""The properties that users test first: the table of docs/use/accuracy.md is true.

Where the table says yes, the property holds in all cases below. Where it says no, a case shows a
counterexample. The CPU device computes the tensor cores' bits, and models GPUs of any size.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sgemm_kernels import run, variants

from .support import SPLIT_FP16, Float32, same_bits, uniform

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
PAGE = Path(__file__).parent.parent / "docs/use/accuracy.md"
NAMES = [variant.name for variant in variants() if "cpu" in variant.devices]
PROPERTIES = ["identity", "symmetry", "row", "integers"]
IF_SHORT = {"if K < 128": 128, "if K < 256": 256}
"""Cells of rungs on tensor cores, and the least K that they compute there."""


def names_in(cell: str) -> list[str]:
    """The kernels that the first cell of a row names."""
    found = re.findall(r"`(\w+)`", cell)
    if " to " in cell:
        first, last = map(NAMES.index, found)
        return NAMES[first : last + 1]
    return found


def table() -> dict[tuple[str, str], str]:
    """The table's cells by kernel and property."""
    text = PAGE.read_text().split("## Properties to rely on")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return {
        (name, each): cell
        for row in rows
        for name in names_in(row[0])
        for each, cell in zip(PROPERTIES, row[1:], strict=True)
    }


TABLE = table()


def test_the_table_has_every_kernel_and_property():
    assert sorted(TABLE) == sorted((name, each) for name in NAMES for each in PROPERTIES)
    assert set(TABLE.values()) == {"yes", "no", *IF_SHORT, "if all pass"}


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param


@pytest.fixture
def on(monkeypatch):
    """Sets how many multiprocessors the CPU device models; None: none."""

    def set_to(multiprocessors: int | None) -> None:
        if multiprocessors:
            monkeypatch.setenv(SETTING, str(multiprocessors))
        else:
            monkeypatch.delenv(SETTING, raising=False)

    return set_to


def product(name: str, A: Float32, B: Float32) -> Float32:
    return run(name, A, B, device="cpu")


def judge(name: str, property_name: str, holds: Iterator[tuple[int, bool]]) -> None:
    """Compares the cell with cases, each of a K and whether the property holds. After the first
    counterexample, a cell that says no needs no more."""
    cell = TABLE[name, property_name]
    if cell == "yes":
        assert all(held for _, held in holds)
    elif cell == "no":
        assert not all(held for _, held in holds)
    else:
        found = list(holds)
        shortest = IF_SHORT[cell]
        short = [held for depth, held in found if depth < shortest]
        assert short
        assert all(short)
        assert not all(held for depth, held in found if depth <= shortest + 50)


# ------------------------------------------------------------------ identity


def any_finite(rng, *shape) -> Float32:
    """Floats of all magnitudes, subnormal ones included."""
    bits = rng.integers(0, 2**32, shape, np.uint32, endpoint=False)
    return np.where(np.isfinite(bits.view(np.float32)), bits.view(np.float32), np.float32(0))


def identities(name, on, rng) -> Iterator[tuple[int, bool]]:
    for multiprocessors, K, N in [(None, 127, 140), (1, 384, 140), (132, 300, 70), (1, 150, 300)]:
        on(multiprocessors)
        eye = np.eye(K, dtype=np.float32)
        for B in (uniform(rng, K, N), any_finite(rng, K, N)):
            yield K, np.array_equal(product(name, eye, B), B)
            yield K, np.array_equal(product(name, B.T, eye), B.T)


def test_the_identity_times_a_matrix(name, on, rng):
    judge(name, "identity", identities(name, on, rng))


@pytest.mark.parametrize("name", SPLIT_FP16)
def test_tensor_cores_change_a_quarter_by_one_unit(name, on, rng):
    """The docs promise this of the identity: an fp16 pair has 23 of the 24 bits."""
    on(None)
    B = uniform(rng, 300, 200)
    result = product(name, np.eye(300, dtype=np.float32), B)
    assert 0.2 < np.mean(result != B) < 0.3
    assert np.all(np.abs(result - B) <= np.spacing(np.abs(B)))


# ------------------------------------------------------------------ symmetry


def symmetries(name, on, rng) -> Iterator[tuple[int, bool]]:
    for multiprocessors, M, K, by_columns in [
        (None, 140, 127, False),
        (None, 140, 128, False),
        (None, 140, 255, False),
        (None, 140, 256, False),
        (None, 140, 1100, False),
        (1, 300, 600, True),
        (4, 300, 600, False),
        (132, 300, 700, False),
        (5, 768, 800, True),
    ]:
        on(multiprocessors)
        A = uniform(rng, M, K)
        A = np.asfortranarray(A) if by_columns else A
        square = product(name, A, A.T)
        yield K, same_bits(square, square.T)


def test_a_matrix_times_its_transpose(name, on, rng):
    judge(name, "symmetry", symmetries(name, on, rng))


# ------------------------------------------------------------------ one row


def rows_alone(name: str, A: Float32, B: Float32) -> bool:
    whole = product(name, A, B)
    return all(
        same_bits(product(name, A[part], B), whole[part])
        for part in (slice(7, 8), slice(5, 70), slice(len(A) - 1, None))
    )


def passing(name, on, rng) -> Iterator[tuple[int, bool]]:
    """Products without cancellation, whose results pass the error check."""
    for multiprocessors, M, N, K in [
        (None, 300, 140, 1100),
        (4, 300, 140, 1101),
        (132, 200, 300, 1024),
        (1, 100, 300, 520),
    ]:
        on(multiprocessors)
        yield K, rows_alone(name, np.abs(uniform(rng, M, K)), np.abs(uniform(rng, K, N)))


def row_that_fails(rng) -> tuple[Float32, Float32]:
    """A and B whose product fails the error check in row 7 alone. Computed by itself, the row
    falls back as a whole; beside other rows, its results are computed one by one."""
    A, B = np.abs(uniform(rng, 100, 512)), np.abs(uniform(rng, 512, 20))
    A[7, :256] *= np.float32(2.0**-30)
    B[256:] *= np.float32(2.0**-30)
    return A, B


def test_a_row_alone(name, on, rng):
    if TABLE[name, "row"] == "if all pass":
        assert all(held for _, held in passing(name, on, rng))
        on(None)
        assert not rows_alone(name, *row_that_fails(rng))
        return
    judge(name, "row", passing(name, on, rng))
    if TABLE[name, "row"] == "yes":
        assert rows_alone(name, *row_that_fails(rng))


# ------------------------------------------------------------------ integers

LARGEST_SUM = 2**24


@pytest.mark.parametrize(
    ("a", "b", "K"),
    [
        (256, 256, 256),
        (2**16, 1, 256),
        (1, 2**16, 256),
        (3000, 7, 790),
        (4097, 15, 273),
        (9, 9, 5000),
        (2**12, 2**12, 1),
        (2**24, 1, 1),
    ],
)
@pytest.mark.parametrize("multiprocessors", [None, 1, 132])
def test_integers_are_exact(name, on, rng, a, b, K, multiprocessors):
    assert TABLE[name, "integers"] == "yes"
    assert K * a * b <= LARGEST_SUM
    on(multiprocessors)
    A = rng.integers(-a, a, (130, K), endpoint=True).astype(np.float32)
    B = rng.integers(-b, b, (K, 70), endpoint=True).astype(np.float32)
    A[0], B[:, 0] = a, -b  # the largest sum
    exact = A.astype(np.float64) @ B.astype(np.float64)
    assert np.array_equal(product(name, A, B), exact)


def test_larger_integers_are_not(name, on):
    """The exact result is 1, but a sum on the way needs 25 bits."""
    on(None)
    A = np.array([[LARGEST_SUM, 1, -LARGEST_SUM]], np.float32)
    assert product(name, A, np.ones((3, 1), np.float32)) == 0
